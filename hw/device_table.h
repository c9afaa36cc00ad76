/* device_table.h: measured times of a kernel at the points of a grid, for devices whose times follow
 * no simple form (a CPU's BLAS switches its kernels and packings by size).
 *
 *     t(x, y, z) = linear in each coordinate between grid points (2 m n k / R is exactly that);
 *                  beyond the grid the nearest point's time, times |x| / |nearest x| per coordinate
 *                  above it; below it the time of the first point falls in proportion likewise
 *
 * With `relative` it is not the time that is linear but its ratio to what a formula gives for the same
 * shape (device.c: the tile model of a GEMM, the FLOPs of an attention), also beyond the grid: a GPU's
 * times go in waves of tiles, of which a formula knows between the points.
 *
 * A class of memory-bound kernels ("norm", "reduce", ...) has rows, columns and 1 as axes.
 *
 * JSON, in a GPU file's calibration: "tables": [{"kernel": "gemm_forward", "dtype": "fp32",
 * "x": [32, 64], "y": [...], "z": [...], "time_s": [x-major], "clock": [x-major]}]. Axes of gemm_*: m, n, k; of
 * attention_*: sequence, head_dim, and of a relative table heads x sequences that the time is of, else
 * query heads for each of the keys, the time being of one (beyond the last as there);
 * attention_dropout_*: with dropout of the probabilities.
 */
#ifndef DTP_HW_DEVICE_TABLE_H
#define DTP_HW_DEVICE_TABLE_H

#include <stdbool.h>

#include "hw/kernel.h"
#include "sim/base/json.h"

enum dtp_table {
    DTP_TABLE_GEMM_FORWARD, /* in the order of enum dtp_gemm_pass */
    DTP_TABLE_GEMM_DGRAD,
    DTP_TABLE_GEMM_WGRAD,
    DTP_TABLE_ATTENTION_FORWARD,
    DTP_TABLE_ATTENTION_BACKWARD,
    DTP_TABLE_ATTENTION_DROPOUT_FORWARD,
    DTP_TABLE_ATTENTION_DROPOUT_BACKWARD,
    DTP_TABLE_GEMM_FORWARD_GELU, /* with bias and GELU; with GELU's slope */
    DTP_TABLE_GEMM_DGRAD_GELU,
    DTP_TABLE_KERNEL, /* the first of the classes, in the order of enum dtp_kernel */
    DTP_NTABLES = DTP_TABLE_KERNEL + DTP_NKERNELS
};
extern const char *const dtp_table_names[]; /* NULL-terminated */

struct dtp_time_table {
    int dtype; /* enum dtp_dtype */
    bool relative;
    struct dtp_doubles axis[3]; /* ascending; n = 0: no table */
    struct dtp_doubles time_s;  /* [axis 0][axis 1][axis 2] */
    /* likewise: share of the highest clock that a product had, alone after a rest; its time is that at the highest.
     * n = 0: not known */
    struct dtp_doubles clock;
};

/* The table of one of "tables": for the reader and for the manual. */
extern const struct dtp_field dtp_time_table_fields[];

/* Inside the grid. */
bool dtp_table_covers(const struct dtp_time_table *t, const double at[3]);
double dtp_table_time_s(const struct dtp_time_table *t, const double at[3]);
/* The clock there, linear between the points; 1 where it is not known. */
double dtp_table_clock(const struct dtp_time_table *t, const double at[3]);
/* Of a relative table: by what to multiply the formula's time at `at`. formula_s: its time at a point. */
double dtp_table_ratio(const struct dtp_time_table *t, const double at[3],
                       double (*formula_s)(const void *context, const double point[3]),
                       const void *context);
/* Reads the list into tables[DTP_NTABLES]. */
enum dtp_status dtp_tables_read(struct dtp_arena *a, const struct dtp_json *j,
                                struct dtp_time_table *tables, struct dtp_err *err);
void dtp_table_write(struct dtp_json_out *w, enum dtp_table which, const struct dtp_time_table *t);

#endif
