/* cost.h: the ONLY place that turns a plan into seconds: it times each action.
 *
 * dtp_costs() fills a struct dtp_costs: per virtual stage the time of F, I, W (B = I + W) and R
 * (recomputation before the backward) of one microbatch, with what they consist of; the transfers
 * between stages; the gradient reduction, parameter gather and unshard of each stage; the optimizer.
 * BOUND, ESTIMATE and the lowering all read this struct and compute no time of their own.
 *
 * Layers are timed by the problem and a struct dtp_layer_key (models/plan/key.h), which is what they are memoised by, so
 * that a plan costs O(stages). Where products slow down at the power limit, kernels are memoised at the highest
 * clock, and layers by what the clock depends on, too.
 */
#ifndef DTP_MODELS_COST_H
#define DTP_MODELS_COST_H

#include "models/ops/op.h"

enum { DTP_NET_AXES = 4 };
extern const enum dtp_axis dtp_net_axis[DTP_NET_AXES]; /* tp, cp, ep, etp */

/* X(member, term of dtp_breakdown): what the compute stream is taken for in an action. tp, cp and ep are exposed
 * collectives inside the action, dp and pp collectives and copies that the rank does itself in it; host is waiting
 * for the host's launches. A recomputed forward counts its compute as recompute_s. */
#define DTP_PHASE_LIST(X)                                                                          \
    X(compute_s, compute_s)                                                                        \
    X(tp_s, tp_exposed_s)                                                                          \
    X(cp_s, cp_exposed_s)                                                                          \
    X(ep_s, ep_exposed_s)                                                                          \
    X(dp_s, dp_exposed_s)                                                                          \
    X(pp_s, pp_exposed_s)                                                                          \
    X(host_s, host_s)

/* X(member): what else an action adds up, layer by layer. total_s is the sum of the list above. hidden_s are seconds
 * of experts' exchanges that hide behind an action of another microbatch (ep_overlap), which the action takes in
 * addition where no other runs. flops are those of this rank. */
#define DTP_PHASE_SUMS(X) X(total_s) X(hidden_s) X(flops)

/* One action of one virtual stage and one microbatch. */
struct dtp_phase {
#define X(member, term) double member;
    DTP_PHASE_LIST(X)
#undef X
#define X(member) double member;
    DTP_PHASE_SUMS(X)
#undef X
    /* collectives inside the action, hidden ones too, by dtp_net_axis: all-gather bytes of tp, cp and etp
     * (an all-reduce counts twice), all-to-all bytes of ep */
    double net_bytes[DTP_NET_AXES];
};

/* A collective or transfer that becomes a flow of its own. time_s = 0: none. */
struct dtp_comm {
    enum dtp_collective kind;
    enum dtp_axis axis;
    enum dtp_algo algo;
    double bytes;        /* buffer, as in collective.h */
    double time_s;       /* alone, sibling groups in lockstep */
    double latency_s;    /* part of time_s */
    double device_share; /* share of the compute rate that it takes while under way */
    /* added by dtp_comm_beside() if it starts while compute runs: latency, and the share by which its transfer
     * takes longer than alone */
    double wait_s, stretch;
};

/* A collective that is launched while a kernel runs gets its SMs when that kernel's last blocks have
 * begun. Units in the middle of an action start so, its last unit finds the device idle. */
static inline struct dtp_comm dtp_comm_beside(const struct dtp_comm *c, bool beside) {
    struct dtp_comm x = *c;
    if (beside && x.time_s > 0) {
        x.time_s += x.wait_s + x.stretch * (x.time_s - x.latency_s);
        x.latency_s += x.wait_s;
    }
    return x;
}

struct dtp_stage_cost {
    struct dtp_phase f, i, w, r;
    /* Gradient reduction: nreduce units (buckets or layers, in order of the backward), each `reduce`.
     * reduce_overlap: unit k starts when that part of the last backward ended; else all start after the
     * rank's last action, one after the other. */
    int nreduce;
    struct dtp_comm reduce;
    /* Parameters gathered back after the optimizer (ZeRO-1/2), in nreduce units too. */
    struct dtp_comm gather;
    /* ZeRO-3: units gathered before use in F and (regather) in B, prefetched. */
    int nunshard;
    struct dtp_comm unshard;
    struct dtp_comm send_f; /* to virtual stage vs + 1; time_s 0 on the last or on the same rank */
    struct dtp_comm send_b; /* to vs - 1 */
};

struct dtp_costs {
    int pp, vpp, m, nstages;      /* nstages = pp * vpp */
    struct dtp_stage_cost *stage; /* [nstages] by virtual stage; caller's or in the arena */
    bool p2p_blocking, p2p_slots;
    bool reduce_overlap, reduce_per_microbatch, gather_overlap, regather_backward;
    int zero_stage;
    int prefetch, prefetch_forward; /* units prefetched in the backward, in the forward */
    double *optimizer_s;            /* [pp] update of the rank's parameters */
    /* tied embeddings, first and last stage, after the last action */
    struct dtp_comm embedding_all_reduce;
    struct dtp_comm norm_all_reduce; /* gradient norm over everything */
    /* after the last action of the rank that has the last virtual stage: deferred weight gradients of the head,
     * dtp_cost_deferred(); what collectives of the last backward take longer during reductions */
    struct dtp_phase late;
    double offload_s;      /* per step and rank, exposed */
    double step_host_s;    /* exposed host time of each rank per step, before its first action */
    double model_flops;    /* whole step, all GPUs, without recomputation (mfu) */
    double hardware_flops; /* with it (hfu) */
    bool shares_cores;     /* ranks take turns on fewer cores: actions last longer than here */
    bool extrapolated;     /* the GPU's constants are scaled from another's, not calibrated */
};

/* Ranks that are processes of a host with fewer cores take turns: rank r is pinned to core r mod cores
 * (runtime/launch.h). */
bool dtp_shares_cores(const struct dtp_problem *problem);

/* Logits of one microbatch on a rank of the last stage. */
double dtp_cost_logits(const struct dtp_problem *problem, const struct dtp_plan *plan);
/* Microbatches of a step whose weight gradient of the head a pipeline puts off until its last stage has
 * nothing else to do (Megatron-Core, --defer-embedding-wgrad-compute): as many as head_deferral_bytes
 * hold gradients of logits for. */
int dtp_cost_deferred(const struct dtp_problem *problem, const struct dtp_plan *plan);
/* Returns the share of the head's weight gradients that stay in the backwards. */
double dtp_cost_inline_share(const struct dtp_problem *problem, const struct dtp_plan *plan);

/* Counts the layers of each kind that virtual stage vs computes; where stages are equal, each has the same fraction of
 * the model. Returns the share of its blocks that full recomputation repeats. */
double dtp_cost_stage_count(const struct dtp_problem *problem, const struct dtp_plan *plan, int vs,
                            double n[DTP_NLAYER_KINDS]);

struct dtp_cost_memo;
/* The memo serves one problem, which must stay, and one thread; it lives in `a`. */
struct dtp_cost_memo *dtp_cost_memo_create(struct dtp_arena *a, const struct dtp_problem *problem);

/* Fills *out; its arrays are allocated in a (candidate lifetime). The plan must be legal. */
void dtp_costs(struct dtp_arena *a, struct dtp_cost_memo *memo, const struct dtp_plan *plan,
               struct dtp_costs *out);

/* The phases of layers without arrays, for BOUND. */
struct dtp_layer_costs {
    struct dtp_phase of[DTP_NLAYER_KINDS][4]; /* f, i, w, r */
    double kernel_s;     /* mean duration of a layer's kernels, as one meets them at any moment */
    double memory_share; /* share of their time in memory-bound kernels */
};
/* One layer of each kind that the model has; kept in the memo. */
const struct dtp_layer_costs *dtp_cost_layers(struct dtp_cost_memo *memo,
                                              const struct dtp_plan *plan);

/* What BOUND adds to the layers, O(1). Each is at most what dtp_costs() gives. A layer's r phase is that
 * of one recomputed layer; a virtual stage's phase is the sum over its layers, embedding and head. */
struct dtp_bound_costs {
    double p2p_s;    /* least time of one transfer between neighbouring stages; 0 with pp = 1 */
    double fixed_s;  /* offload_s + step_host_s */
    double tail_s;   /* first rank after its last backward: reductions (overlapped: the last
                       unit), embedding and norm all-reduce, optimizer, gathers that are not hidden */
    int nreduce;     /* units of virtual stage 0 that start within its last backward; 0: none do */
    double reduce_s; /* one of them */
};
/* Seconds; all 0 where the cluster has no place for the plan. */
void dtp_cost_bound(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                    struct dtp_bound_costs *out);

#endif
