/* lower_internal.h: the state of one lowering; lower*.c alone include it.
 *
 * Simulated rank i = pipeline stage * replicas + replica; folded: replicas = 1. Tasks of action k (its
 * index in the schedule) of replica q stand at q * nactions + k: first_task .. last_task, consecutive
 * ids when the action is cut into parts. Transfers stand at q * nslots + slot.
 */
#ifndef DTP_MODELS_LOWER_INTERNAL_H
#define DTP_MODELS_LOWER_INTERNAL_H

#include "models/lower/lower_layout.h"

/* A flow, or the steps of a collective between two empty tasks. */
struct dtp_span {
    dtp_id in, out;
};

/* One flow, whose weights on links allow for its siblings; lower_flows.c. */
struct dtp_flow {
    double work, rate_cap, latency_s;
    const struct dtp_use *uses;
    uint32_t nuses, same_uses; /* they mean what they mean in struct dtp_task */
};

/* Uses of links of the cluster by a group's collective: resource + shift. */
struct dtp_moved_uses {
    const struct dtp_use *at;
    uint32_t n, shift;
};

struct dtp_known_uses;
struct dtp_op_list;
struct dtp_rank_net;

enum dtp_unit { DTP_UNIT_REDUCE, DTP_UNIT_GATHER, DTP_UNIT_UNSHARD, DTP_NUNITS };

/* A collective that the replicas of a stage run in groups. */
struct dtp_group_flow {
    struct dtp_group group;
    int nmembers;
    int *member; /* simulated indices */
    /* [2 * nraw] by pairs: the group's use of a link (of the cluster), the sum over all siblings */
    struct dtp_use *raw;
    uint32_t nraw;
    bool flows;                      /* had uses before they were pruned */
    const struct dtp_group *sibling; /* all groups of the stage, this one included */
    int nsiblings;
};
struct dtp_group_flows {
    int n;
    struct dtp_group_flow *at;
};

struct dtp_lowering {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    const struct dtp_costs *costs;
    const struct dtp_lower_options *options;
    struct dtp_layout l;
    struct dtp_placement placement;
    struct dtp_lowered *out;
    struct dtp_graph *g;
    int replicas; /* simulated */
    size_t nactions, nslots;
    dtp_id *first_task, *last_task; /* [replicas * nactions] */
    dtp_id *whole;                  /* [replicas * nactions] blocking reduction after it, or NULL */
    dtp_id *transfer;               /* [replicas * nslots] */
    dtp_id *gate;             /* [replicas * nactions] time slots: transfers before it, or NULL */
    dtp_id *host;             /* [nranks] */
    dtp_id *device;           /* [nranks] */
    struct dtp_use *core;     /* [nranks] the core that the rank shares, or NULL: its own */
    struct dtp_rank_net *net; /* [nranks] collectives inside actions that leave the node, or NULL */
    struct dtp_op_list *ops;  /* [4 * nstages] made when first asked for */
    struct dtp_group_flows *unit;     /* [pp * DTP_NUNITS]; n = 0: none */
    struct dtp_group_flows embedding; /* n = 0: none */
    /* links of the cluster that are in the platform, and room to add up weights on them: for all
     * siblings, and for one group alone (--detail step) */
    uint32_t nlinks, ntouched;
    uint32_t node_links; /* dtp_cluster_node_links() */
    int block_gpus;      /* GPUs of dtp_cluster_block_nodes() */
    struct dtp_known_uses *known;
    dtp_id *link;
    double *total, *own;
    uint32_t *touched;
};

static inline int dtp_lowering_index(const struct dtp_lowering *w, int stage, int replica) {
    return stage * w->replicas + replica;
}
/* Replicas of the plan, and the global rank of one of them. */
static inline int dtp_lowering_replicas(const struct dtp_lowering *w) {
    return w->placement.tp * w->placement.cp * w->placement.dp;
}
static inline int dtp_lowering_rank(const struct dtp_lowering *w, int stage, int q) {
    const struct dtp_placement *p = &w->placement;
    return dtp_placement_rank(p, q % p->tp, q / p->tp % p->cp, q / p->tp / p->cp, stage);
}

/* Uses of the cores of n simulated ranks: where ranks take turns (dtp_shares_cores()) each core is a
 * link of capacity 1. */
static inline uint32_t dtp_core_uses(const struct dtp_lowering *w, const int *member, int n,
                                     struct dtp_use *out) {
    for (int i = 0; w->core && i < n; i++)
        out[i] = w->core[member[i]];
    return w->core ? (uint32_t)n : 0;
}

static inline dtp_id *dtp_new_ids(struct dtp_arena *a, size_t n) {
    dtp_id *ids = DTP_NEW(a, dtp_id, n);
    for (size_t i = 0; i < n; i++)
        ids[i] = DTP_NONE;
    return ids;
}

/* ---- lower_flows.c ---- */

/* Returns the uses of a group's collective. */
struct dtp_moved_uses dtp_lowering_uses(struct dtp_lowering *w, enum dtp_collective kind,
                                        enum dtp_algo algo, const struct dtp_group *group);
/* Adds uses to the totals by link. */
void dtp_lowering_uses_add(struct dtp_lowering *w, const struct dtp_moved_uses *uses);
void dtp_lowering_total_clear(struct dtp_lowering *w);
/* False: the groups have no link in common; folded, when one of them is the representative's. */
bool dtp_lowering_meet(const struct dtp_lowering *w, const struct dtp_group *x,
                       const struct dtp_group *y);
dtp_id dtp_lowering_link(struct dtp_lowering *w, uint32_t link);
double dtp_lowering_capacity(const struct dtp_lowering *w, uint32_t link);
/* Makes the flows of a transfer from virtual stage vs, one for each simulated replica. */
void dtp_flows_p2p(struct dtp_lowering *w, int vs, bool backward, struct dtp_flow *out);
/* Fills w->unit and w->embedding, after all dtp_flows_p2p(). */
void dtp_flows_collectives(struct dtp_lowering *w);
/* Adds n times the collective as one task (or its steps); loads: it slows the compute of its members. */
struct dtp_span dtp_flows_add(struct dtp_lowering *w, const struct dtp_group_flow *group,
                              const struct dtp_comm *comm, double n, bool loads, uint64_t tag);
/* Returns how many tasks dtp_flows_add() makes at most, for a group like this one. */
int dtp_flows_count(struct dtp_lowering *w, const struct dtp_group *group,
                    const struct dtp_comm *comm);
/* The collective of the stage's chunks by which its groups are made, or NULL: they have none. */
const struct dtp_comm *dtp_flows_unit_comm(const struct dtp_lowering *w, int stage,
                                           enum dtp_unit unit);
static inline const struct dtp_comm *dtp_unit_comm(const struct dtp_stage_cost *s,
                                                   enum dtp_unit unit) {
    return unit == DTP_UNIT_REDUCE   ? &s->reduce
           : unit == DTP_UNIT_GATHER ? &s->gather
                                     : &s->unshard;
}

/* ---- lower_actions.c ---- */

/* Adds the actions of all ranks, each with its operations or parts. */
void dtp_lower_actions(struct dtp_lowering *w);
/* Seconds of one operation of an action and its name's index in dtp_lowered.op_name. */
struct dtp_op_time {
    double time_s;
    int name;
};
/* Operations of F, B, I or W (by row of the layout) of a virtual stage, in order; they add up to dur_s. */
int dtp_detail_ops(struct dtp_lowering *w, int vs, int row, double dur_s,
                   const struct dtp_op_time **out);

/* ---- lower_units.c ---- */

/* Fills in the at most 4 tasks that action k of a rank waits for, that of the rank's stream first. */
int dtp_lowering_preds(const struct dtp_lowering *w, int stage, int replica, uint32_t k,
                       dtp_id *out);
/* Adds the collectives that belong to parts of actions. */
void dtp_lower_units(struct dtp_lowering *w);
/* Adds what follows the last action of each rank. */
void dtp_lower_tail(struct dtp_lowering *w);

#endif
