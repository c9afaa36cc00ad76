/* host_times.h: what the host of a measured job takes to launch: the constants of a framework file.
 *
 * Forward and optimizer are launched by the thread that opens the steps, the backward by autograd's
 * (PyTorch). The host's time for a launch is from its call to the next one on its thread, without calls
 * that synchronise, without what a full queue holds a call up, and without turns of the other thread. The
 * shorter 9 of 10 give the time per launch (their mean); what the longest take beyond it belongs to
 * layers: hooks, collectives, Python between modules.
 *
 * A trace of a profiler is slower on the host than the job alone; what it gives is an upper bound.
 */
#ifndef DTP_TRACES_REPLAY_HOST_TIMES_H
#define DTP_TRACES_REPLAY_HOST_TIMES_H

#include "traces/formats/trace.h"

enum dtp_direction { DTP_FORWARD_LAUNCHES, DTP_BACKWARD_LAUNCHES, DTP_NDIRECTIONS };

struct dtp_launch_times { /* one direction, all ranks and steps */
    uint64_t n;           /* launches with a time */
    double launch_s;      /* mean of the shorter 9 of 10 */
    double sum_s, rest_s; /* all; beyond n x launch_s */
    double spread;        /* spread of launch_s over ranks: (largest - least) / mean */
};

struct dtp_host_times {
    struct dtp_launch_times direction[DTP_NDIRECTIONS];
    size_t nranks, nsteps; /* numbers that were analysed; steps of all ranks */
    double optimizer_s;    /* host time of a step's optimizer, mean; 0: not named */
    double collective_s;   /* host time of a collective besides its launch, mean; 0: none */
    uint64_t ncollectives;
    double gap_s; /* between kernels that wait for each other, mean (a GPU's constant) */
};

/* DTP_ENO where no rank has launches. */
enum dtp_status dtp_host_times_of(struct dtp_arena *a, const struct dtp_trace *t,
                                  struct dtp_host_times *out, struct dtp_err *err);

#endif
