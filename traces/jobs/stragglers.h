/* stragglers.h: iteration times of the workers of one job, as PAI published them: which worker holds the
 * others up, and what waiting for the slowest costs.
 *
 *     ,worker,gpu,time,batch_time_norm      gpu: percent of a GPU; time: when; batch_time_norm: normalised
 */
#ifndef DTP_TRACES_JOBS_STRAGGLERS_H
#define DTP_TRACES_JOBS_STRAGGLERS_H

#include "traces/formats/source.h"

struct dtp_worker {
    int64_t worker;
    size_t n;
    double mean, max;
    uint64_t slowest; /* iterations in which it took longest */
};

struct dtp_iterations {
    size_t rows, niterations, nworkers;
    struct dtp_worker *worker; /* by number */
    double mean;               /* mean of all rows */
    double mean_slowest; /* over iterations, of the slowest worker: what a synchronous step takes */
};

enum dtp_status dtp_iterations_read(struct dtp_arena *a, struct dtp_source *source,
                                    struct dtp_iterations *out, struct dtp_err *err);

#endif
