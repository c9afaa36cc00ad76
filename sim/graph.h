/* graph.h: tasks with dependencies, by dense id, frozen into CSR form.
 *
 * A task starts when all the tasks it depends on have ended (and never before start_s). It waits
 * latency_s and then performs `work` units at a rate that is at most rate_cap:
 *
 *     no use, no device    ends latency_s + work / rate_cap after its start (rate_cap > 0, default 1)
 *     links                rate = its max-min fair share: for each link l, sum over the activities
 *                          of rate x weight[l] <= capacity[l]; an activity is limited by its own cap
 *                          or by one saturated link on which no other activity has a larger rate
 *                          (equations in maxmin.h)
 *     device               a compute task on that device: slowed by the loads of others
 *
 * A task may also load devices (use.kind DTP_USE_LOAD, weight = share) while its work is under way
 * (not during its latency). A stream is a sequence: dtp_graph_add() on stream s makes the task
 * depend on the last task added to s. Tags are opaque to sim: the lowering stores what a task means.
 *
 *     dtp_graph_init(&g, a);
 *     dtp_id f = dtp_graph_add(&g, &(struct dtp_task){.work = 0.01, .rate_cap = 1, .stream = gpu0});
 *     dtp_id x = dtp_graph_add(&g, &(struct dtp_task){.latency_s = 5e-6, .work = 1e8,
 *                              .rate_cap = DTP_UNCAPPED, .uses = (struct dtp_use[]){{nic, DTP_USE_LINK, 1}},
 *                              .nuses = 1, .stream = DTP_NONE});
 *     dtp_graph_dep(&g, f, x);
 *     DTP_TRY(dtp_graph_freeze(&g, err));
 *
 * Uses of the same resource by one task are added up. A rate_cap of 0 means 1. Building is fastest
 * when tasks are added after those they depend on (no order to compute) and when the final sizes are
 * announced with dtp_graph_reserve(). All memory is in `a`, so a candidate's graph costs no malloc.
 */
#ifndef DTP_SIM_GRAPH_H
#define DTP_SIM_GRAPH_H

#include <math.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"
#include "sim/platform.h"

#define DTP_UNCAPPED ((double)INFINITY)

enum dtp_use_kind { DTP_USE_LINK, DTP_USE_LOAD };

struct dtp_use {
    dtp_id resource; /* a link id for DTP_USE_LINK, a device id for DTP_USE_LOAD */
    enum dtp_use_kind kind;
    double weight; /* link: capacity units per unit of work, > 0; load: share in (0, 1) */
};

struct dtp_task {
    double start_s;             /* earliest start */
    double latency_s;           /* >= 0 */
    double work;                /* >= 0; seconds for compute, bytes for flows */
    double rate_cap;            /* > 0 units/s; DTP_UNCAPPED only with a link use */
    const struct dtp_use *uses; /* copied by dtp_graph_add */
    uint32_t nuses;
    /* 1 + a task added before whose uses, links alone, are kept once for both; or 0 */
    uint32_t same_uses;
    dtp_id device; /* compute on this device, or DTP_NONE */
    dtp_id stream; /* or DTP_NONE */
    uint64_t tag;
};

/* Struct of arrays; read-only to others after the freeze. */
struct dtp_graph {
    struct dtp_arena *a;
    uint32_t ntasks, ndeps, nuses, nstreams;
    uint32_t nload_uses;                           /* part of nuses */
    double *start_s, *latency_s, *work, *rate_cap; /* [ntasks] */
    uint32_t *use_begin, *use_end;                 /* [ntasks] into use[] */
    struct dtp_use *use;
    dtp_id *device, *stream; /* [ntasks] */
    uint64_t *tag;           /* [ntasks] */
    /* after the freeze */
    uint32_t *succ_begin; /* [ntasks + 1] into succ[] */
    dtp_id *succ;
    uint32_t *npred; /* [ntasks] */
    double *alone_s; /* [ntasks] latency_s + work / rate_cap: what it takes at its cap */
    /* [ntasks] a topological order; NULL when the ids are one, or events make it (uses) */
    dtp_id *order;
    /* private, while building */
    void *build;
};

/* Empty; all that follows is in a. */
void dtp_graph_init(struct dtp_graph *g, struct dtp_arena *a);
/* Room for that many in all; a hint that avoids copies. */
void dtp_graph_reserve(struct dtp_graph *g, uint32_t ntasks, uint32_t ndeps, uint32_t nuses);
dtp_id dtp_graph_add(struct dtp_graph *g, const struct dtp_task *t);
void dtp_graph_dep(struct dtp_graph *g, dtp_id before, dtp_id after);
dtp_id dtp_graph_stream(struct dtp_graph *g); /* a new stream */
/* DTP_EINPUT: a negative or not finite work or latency, a rate cap that is not positive, no cap and no link, a
 * weight or share out of range, a cycle (where a task has uses the run finds it); names the tasks. */
enum dtp_status dtp_graph_freeze(struct dtp_graph *g, struct dtp_err *err);
/* DTP_EINPUT: names the tasks of a cycle among those that still wait for left[i] > 0 others, one of which does. */
enum dtp_status dtp_graph_fail_cycle(struct dtp_arena *a, const struct dtp_graph *g,
                                     const uint32_t *left, struct dtp_err *err);
/* DTP_EINPUT: a use or a device that the platform does not have. Part of every run. */
enum dtp_status dtp_graph_check(const struct dtp_graph *g, const struct dtp_platform *p,
                                struct dtp_err *err);

#endif
