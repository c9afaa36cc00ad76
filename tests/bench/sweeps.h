/* sweeps.h: the measured sweeps of collectives, which file holds each, and what is fitted to them. The same CSV files
 * give the same bytes.
 *
 *     dtp_fit_curves(a, "../shared/hw", "hw/curves", stdout, err)   writes hw/curves/NAME.json
 *     dtp_fit_correction(a, out, err)   the three factors of hw/nccl/VERSION.json, from the curves
 */
#ifndef DTP_TESTS_BENCH_SWEEPS_H
#define DTP_TESTS_BENCH_SWEEPS_H

#include <stdio.h>

#include "hw/fit_curve.h"
#include "hw/nccl.h"

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
    double busbw_limit_bytes_per_s; /* limit of the wires: the floor of c */
    double least_s;                 /* floor of a, for a sweep without small sizes */
    const char *source;
    struct {
        const char *file, *gpu, *interconnect; /* as in the CSV; NULL: no more */
        double min_bytes;                      /* smaller ones hold host time or start-up */
    } from[3];
    /* those of the fabric (SHARP): none of the algorithms whose factors are fitted */
    bool switches_sum;
};
/* Returns all of them, and how many in *n. */
const struct dtp_sweep *dtp_sweeps(size_t *n);
/* Reads the points of one from the folder `data`, by size. */
enum dtp_status dtp_sweep_read(struct dtp_arena *a, const char *data, const struct dtp_sweep *s,
                               struct dtp_point **out, size_t *out_n, struct dtp_err *err);

#endif
