/* fit_curves.h: measured sweeps to curves t(s) = a + b sqrt(s) + c s.
 *
 * For each group size of each machine: weighted linear least squares (GSL) of the relative error,
 * every octave of sizes with the same weight however many points it has (a quarter of it below 256
 * KiB, three times from 16 MiB up), a, b, c not negative, and c at least what the busiest wire takes at its capacity (small sizes must not promise more than the
 * links can). Deterministic: the same CSV files give the same bytes.
 *
 *     dtp_fit_curves(a, "../shared/hw", "hw/curves", stdout, err)   writes hw/curves/NAME.json
 *     dtp_fit_correction(a, out, err)   the three factors of hw/nccl/VERSION.json, from the curves
 */
#ifndef DTP_HW_FIT_CURVES_H
#define DTP_HW_FIT_CURVES_H

#include <stdio.h>

#include "hw/nccl.h"

struct dtp_point {
    double bytes, time_s;
};
/* One row of a fit of 1 = x0 r0 + x1 r1 + x2 r2, each x at least its limit. */
struct dtp_fit_row {
    double x[3], weight;
};
/* Least squares by weight. */
void dtp_fit_three(const struct dtp_fit_row *row, size_t n, const double least[3], double out[3]);

/* n measured points by size; least: limits of a, b, c. Fills a, b, c, the range, points and the
 * mean error (by octave). */
enum dtp_status dtp_fit_curve(struct dtp_arena *a, const struct dtp_point *point, size_t n,
                              const double least[3], struct dtp_curve *out, struct dtp_err *err);
/* data: folder of the CSV and JSON files; out: folder for NAME.json; report: one line for each fit. */
enum dtp_status dtp_fit_curves(struct dtp_arena *a, const char *data, const char *out, FILE *report,
                               struct dtp_err *err);
enum dtp_status dtp_fit_correction(struct dtp_arena *a,
                                   struct dtp_nccl_correction out[DTP_NCORRECTIONS],
                                   struct dtp_err *err);

/* The measured sweeps, one for each curve; for reports. */
struct dtp_sweep {
    const char *curves;  /* file of hw/curves */
    const char *cluster; /* a cluster that it belongs to */
    enum dtp_collective collective;
    int gpus, nodes;
    double busbw_limit_bytes_per_s; /* of the wires: the floor of c */
    double least_s;                 /* floor of a, for a sweep without small sizes */
    const char *source;
    struct {
        const char *file, *gpu, *interconnect; /* as in the CSV; NULL: no more */
        double min_bytes;                      /* smaller ones hold host time or start-up */
    } from[3];
    /* those of the fabric (SHARP): none of the algorithms whose factors are fitted */
    bool switches_sum;
};
/* All of them; *n: how many. */
const struct dtp_sweep *dtp_sweeps(size_t *n);
/* The points of one from the folder `data`, by size. */
enum dtp_status dtp_sweep_read(struct dtp_arena *a, const char *data, const struct dtp_sweep *s,
                               struct dtp_point **out, size_t *out_n, struct dtp_err *err);

#endif
