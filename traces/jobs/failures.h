/* failures.h: what interruptions leave of a long run.
 *
 * A run on n GPUs is interrupted at random, once in M = (GPU-hours per failure) / n in the mean. It stops for W to
 * write a checkpoint after each T of training. An interruption costs R to find and restart, and what was done since
 * the last checkpoint; it may strike while a checkpoint is written or the run restarts. So the part of wall-clock time
 * that trains is (Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps)
 *
 *     g(T) = T / (M e^(R/M) (e^((T + W)/M) - 1))
 *
 * largest near T = sqrt(2 W M) (1 + sqrt(W / 2M) / 3 + (W / 2M) / 9) - W, or T = M where W >= 2 M (same paper).
 * M = 100, R = 0, W = 2: T = 18.7, g = 0.813; to first order a tenth is written and a tenth is lost.
 */
#ifndef DTP_TRACES_JOBS_FAILURES_H
#define DTP_TRACES_JOBS_FAILURES_H

#include "sim/base/arena.h"
#include "sim/base/status.h"

struct dtp_failures {
    double gpu_hours_per_failure; /* 0: no interruptions */
    double restart_s;             /* R */
    double checkpoint_s;          /* T; 0: that which loses least */
    double write_s;               /* W; negative: from the next two */
    double checkpoint_bytes_per_parameter, write_bytes_per_s_per_gpu;
};

struct dtp_goodput {
    double failure_s;        /* M */
    double checkpoint_s;     /* T */
    double write_s;          /* W */
    double checkpoint_bytes; /* 0 where W was given */
    double fraction;         /* g */
};

/* traces/measured/failures.json. */
enum dtp_status dtp_failures_load(struct dtp_arena *a, struct dtp_failures *out,
                                  struct dtp_err *err);
/* e^x - 1 for x >= 0, by + and x alone: the same bits on any machine. */
double dtp_growth(double x);
/* f->gpu_hours_per_failure > 0. */
struct dtp_goodput dtp_goodput(const struct dtp_failures *f, double parameters, int gpus);

#endif
