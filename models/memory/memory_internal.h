/* memory_internal.h: what the files of memory/ share: the memo with what it keeps, and the walk of our runtime.
 *
 * dtp_walk_act() walks one action, tensor by tensor. What it takes and gives depends on the chunk's stage and
 * on the buffers of gradients that are there, on nothing else: memory_walk.c lets each case be
 * walked once and then only adds, which is the same to the byte (tests/property/test_native_walk.c).
 */
#ifndef DTP_MODELS_MEMORY_INTERNAL_H
#define DTP_MODELS_MEMORY_INTERNAL_H

#include "models/memory/memory.h"
#include "models/ops/op_native.h"
#include "models/ops/op.h"
#include "models/schedule/schedule.h"
#include "sim/base/memo.h"

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
    double input;                   /* of a layer: all that full recomputation keeps */
    double gathered_input;          /* the same with the whole sequence, whatever tp */
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

struct dtp_memory_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_placed_memo placed;
    struct dtp_memo activations, layers, in_flight;
    struct dtp_param_counts params;
    struct dtp_ops ops;
    struct dtp_action *action; /* [nactions] scratch: the order of one rank */
    size_t nactions;
    /* [nstages] of the plan that was asked for last: most are like the one before */
    struct memory_stage *stage;
    size_t nstages;
    struct dtp_cut cut;
};

const struct activations *dtp_memory_activations(struct dtp_memory_memo *memo,
                                                 const struct dtp_plan *plan);

/* ZeRO-1/2: the one piece that updated parameters are gathered into; 0: gathered in place. */
static inline double dtp_memory_flat_gather_bytes(const struct dtp_framework *f,
                                                  const struct dtp_plan *plan,
                                                  const struct rank_parts *r) {
    bool divided = (plan->zero_stage == 1 || plan->zero_stage == 2) && plan->dp * plan->cp > 1;
    return divided ? f->quirks.whole_gradients.flat_gather_bytes * (r->dense + r->experts) : 0;
}

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

/* ---- the walk of the allocations of our own runtime ---- */

enum item { WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, LOGITS, BUFFERS, NITEMS };
enum { ALIGN_BYTES = 256, SCALARS = 64, FLOAT_BYTES = 4 };

/* Units of a chunk: tokens, positions, layers, norm, head. */
enum { TOKENS, POSITIONS, LAYERS };

struct chunk {
    struct dtp_native_stage s;
    int nunits, norm, head; /* indices; head = TOKENS when tied */
    int64_t *n;             /* [nunits] elements, 0: has none */
    bool *gathered, *grads; /* [nunits] */
};

struct walk {
    const struct dtp_plan *plan;
    struct dtp_native d;
    bool gelu;  /* which the GEMMs around it compute */
    bool split; /* backward in two actions */
    bool fused; /* attention keeps a number per row, not the probabilities */
    int prefetch;
    int64_t e, H, HF,
        probs; /* bytes: of an element; [local tokens, h], [tokens, h]; probabilities */
    int64_t live[NITEMS], sum, peak, at_peak[NITEMS];
};

/* Nothing but what is there before any parameter. */
void dtp_walk_begin(const struct dtp_problem *problem, const struct dtp_plan *plan, struct walk *w);
/* The parameters of a virtual stage with their gradients and states. */
void dtp_walk_chunk(struct dtp_arena *a, const struct dtp_problem *problem, struct walk *w, int vs,
                    struct chunk *c);
/* c: the chunk of the action; end: of the rank's list that the action is in. */
void dtp_walk_act(struct walk *w, struct chunk *c, const struct dtp_action *x,
                  const struct dtp_action *end);
/* The passes by which a rank's list is completed. */
struct dtp_schedule_passes dtp_walk_passes(const struct dtp_plan *plan);

#endif
