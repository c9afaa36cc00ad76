/* memory_private.h: private to memory*.c but the native ones: the memo and what it keeps. */
#ifndef DTP_MODELS_MEMORY_PRIVATE_H
#define DTP_MODELS_MEMORY_PRIVATE_H

#include "models/evaluate/evaluate.h"
#include "models/cost/memo.h"
#include "models/memory/memory.h"
#include "models/schedule/schedule.h"
#include "models/plan/stage.h"

/* What a layer of one kind keeps of one microbatch. */
struct layer_kept {
    double kept, whole, again, launches[2], host_s[2], gpu_s[2]; /* as in struct activations */
};

/* Activations of one layer of each kind and one microbatch. */
struct activations {
    double kept[DTP_NLAYER_KINDS];  /* between forward and backward */
    double whole[DTP_NLAYER_KINDS]; /* while the layer's backward runs */
    double again[DTP_NLAYER_KINDS]; /* of that, what recomputation makes again for the backward */
    double working;                 /* gradients of activations alive in the backward */
    double widest;                  /* the largest tensor of the layer's forward */
    double launches[2];             /* of a layer's forward and backward */
    double host_s[2], gpu_s[2];     /* of the same, neither waiting; unset without queue_layers */
};

/* What the chunks of a rank add up to. */
struct rank_parts {
    double dense, experts, root, largest_layer;
    double table; /* embedding table that no product reads: autocast leaves it alone */
    double activations, whole_layer, again, logits, nlogits;
    /* At the loss; of each microbatch in flight; until the step ends. */
    double saved_logits, outputs;
    int layers;
    int in_flight;       /* microbatches, of all chunks */
    bool gradients_live; /* a backward has run before activations peak */
};

/* A virtual stage and its layers by kind. */
struct memory_stage {
    struct dtp_stage stage;
    int n[DTP_NLAYER_KINDS];
};
/* What the stages of a plan depend on. */
struct stages_shape {
    int tp, ep, etp, pp, vpp, last_stage_less, account_for_ends;
};

struct dtp_memory_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_memo activations, layers, in_flight;
    struct dtp_param_counts params;
    struct dtp_ops ops;
    struct dtp_action *action; /* [nactions] scratch: the order of one rank */
    size_t nactions;
    /* [nstages] of the plan that was asked for last: most are like the one before */
    struct memory_stage *stage;
    size_t nstages;
    struct stages_shape shape;
};

const struct activations *dtp_memory_activations(struct dtp_memory_memo *memo,
                                                 const struct dtp_plan *plan);
/* Microbatches in flight when they are most: [pp * vpp], rank * vpp + chunk. */
const int *dtp_memory_in_flight(struct dtp_memory_memo *memo, const struct dtp_plan *plan);
/* Makes memo->stage those of the plan. */
void dtp_memory_stages(struct dtp_memory_memo *memo, const struct dtp_plan *plan);
/* Input of a layer, all that full recomputation keeps: 2 s b h (Korthikanti 2022, section 5). */
double dtp_memory_layer_input_bytes(const struct dtp_problem *problem, const struct dtp_plan *plan);
/* The same with the whole sequence, whatever tp: what sequence parallelism gathers. */
double dtp_memory_gathered_input_bytes(const struct dtp_problem *problem,
                                       const struct dtp_plan *plan);
/* ZeRO-1/2: the one piece that updated parameters are gathered into; 0: gathered in place. */
double dtp_memory_flat_gather_bytes(const struct dtp_framework_keeps *f,
                                    const struct dtp_plan *plan, const struct rank_parts *r);
/* Bytes of a rank: at the loss, at most in forward and backward, at most, and of the optimizer. */
struct rank_sums {
    double loss, passes, peak, optimizer;
};
/* Bytes of a rank that the caching allocator reserves where the card has room, and what it comes down to where
 * free blocks have to be given back. */
struct reserved {
    double wanted, least;
};
/* The same without what is in use at the peak: it is given back before an allocation fails. */
struct reserved dtp_memory_idle_bytes(const struct dtp_memory_memo *memo,
                                      const struct dtp_plan *plan, const struct activations *x,
                                      const struct rank_parts *r, const struct rank_sums *sums);

#endif
