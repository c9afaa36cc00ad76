/* timeline.h: when each task started and ended, and what follows from it.
 *
 *     start_s[i]   all dependencies met (the latency counts from here)
 *     end_s[i]     done
 *     cause[i]     the task whose end let i start (the last of its dependencies; the lowest id among
 *                  equals), or DTP_NONE: following it from the last end gives the critical path
 */
#ifndef DTP_SIM_TIMELINE_H
#define DTP_SIM_TIMELINE_H

#include "sim/graph.h"

struct dtp_timeline {
    uint32_t ntasks;
    double *start_s, *end_s; /* [ntasks] */
    dtp_id *cause;           /* [ntasks] */
    double makespan_s;
    dtp_id
        last; /* the task that ends last, the lowest id among equals; DTP_NONE if there is none */
    uint64_t nevents; /* starts of work, ends */
};

/* Time during which at least one task of a stream is under way, seconds: [g->nstreams]. */
const double *dtp_timeline_busy_s(struct dtp_arena *a, const struct dtp_timeline *t,
                                  const struct dtp_graph *g);
/* Ids on the critical path that ends with task `last`, in time order. */
void dtp_timeline_critical_path(struct dtp_arena *a, const struct dtp_timeline *t, dtp_id last,
                                const dtp_id **out, uint32_t *out_n);

#endif
