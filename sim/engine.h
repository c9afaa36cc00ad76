/* engine.h: runs a frozen graph on a platform, event by event.
 *
 * Events are ordered by (time, sequence number), so that equal inputs give equal bytes. Simultaneous
 * ends are all taken before rates are solved again; simultaneous means within DTP_ENGINE_MERGE of
 * each other, relative to the clock: rounding may part equal ends, each keeps its own time.
 *
 * The end of a task that has no use and whose device nobody loads is known when its start is known.
 * Such tasks take part in no event: they are evaluated before the clock reaches them, as soon as their last
 * dependency is, a few nanoseconds each, and a graph with no link and no load at all runs as a plain
 * longest path. All others cost one event when their latency is over and one when they end; work in
 * progress is settled only when its rate changes.
 *
 * Units: seconds. The engine allocates in `a`: its state and the timeline; the graph and the platform
 * are only read, so many runs may share them. Errors: DTP_EINPUT when a task uses what the platform
 * does not have, or can never end (a rate of 0), naming it.
 */
#ifndef DTP_SIM_ENGINE_H
#define DTP_SIM_ENGINE_H

#include "sim/graph.h"

#define DTP_ENGINE_MERGE 1e-13

/* When each task started and ended, and what follows from it.
 *
 *     start_s[i]   all dependencies met (the latency counts from here)
 *     end_s[i]     done
 *     cause[i]     the task whose end let i start (the last of its dependencies; the lowest id among
 *                  equals), or DTP_NONE: following it from the last end gives the critical path
 */
struct dtp_timeline {
    uint32_t ntasks;
    double *start_s, *end_s; /* [ntasks] */
    dtp_id *cause;           /* [ntasks] */
    double makespan_s;
    dtp_id
        last; /* the task that ends last, the lowest id among equals; DTP_NONE if there is none */
    uint64_t nevents; /* starts of work, ends */
};

/* Start, end and cause of every task in *out. */
enum dtp_status dtp_engine_run(struct dtp_arena *a, const struct dtp_platform *p,
                               const struct dtp_graph *g, struct dtp_timeline *out,
                               struct dtp_err *err);
/* Time during which at least one task of a stream is under way, seconds: [g->nstreams]. */
const double *dtp_timeline_busy_s(struct dtp_arena *a, const struct dtp_timeline *t,
                                  const struct dtp_graph *g);
/* Ids on the critical path that ends with task `last`, in time order. */
void dtp_timeline_critical_path(struct dtp_arena *a, const struct dtp_timeline *t, dtp_id last,
                                const dtp_id **out, uint32_t *out_n);

#endif
