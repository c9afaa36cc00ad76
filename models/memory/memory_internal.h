/* memory_internal.h: what the files of memory/ share: the memo with what it keeps, and the walk of our runtime.
 *
 * dtp_walk_act() walks one action, tensor by tensor. What the action allocates and frees depends only on the stage
 * of its chunk and on which gradient buffers exist. So memory_walk.c walks each case once and then only adds its
 * result, which is the same to the byte (tests/property/test_native_walk.c).
 */
#ifndef DTP_MODELS_MEMORY_INTERNAL_H
#define DTP_MODELS_MEMORY_INTERNAL_H

#include "models/memory/memory.h"
#include "models/ops/op_native.h"
#include "models/ops/op.h"
#include "models/schedule/schedule.h"
#include "sim/base/memo.h"

/* What a layer of one kind keeps for one microbatch. */
struct layer_kept {
    double kept, whole, again, launches[2], host_s[2], gpu_s[2]; /* as in struct activations */
};

/* Bytes of the activations of one layer of each kind for one microbatch. */
struct activations {
    double kept[DTP_NLAYER_KINDS];  /* between forward and backward */
    double whole[DTP_NLAYER_KINDS]; /* while the layer's backward runs */
    double again[DTP_NLAYER_KINDS]; /* part of it that recomputation makes for the backward */
    double working;                 /* gradients of activations alive in the backward */
    double widest;                  /* the largest tensor of the layer's forward */
    double input;                   /* a layer's input: all that full recomputation keeps */
    double gathered_input;          /* the same with the whole sequence, whatever tp */
    double launches[2];             /* kernels of a layer's forward, backward */
    double host_s[2], gpu_s[2];     /* time of these without waits; unset without queue_layers */
};

/* What the chunks of a rank add up to. */
struct rank_parts {
    double dense, experts, root, largest_layer;
    double table; /* embedding table that no product reads: autocast makes no copy of it */
    double activations, whole_layer, again, logits, nlogits;
    /* logits: at the loss; saved_logits: of all microbatches in flight; outputs: until the step ends. */
    double saved_logits, outputs;
    int layers;
    int in_flight;       /* microbatches, summed over the chunks */
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
    /* [nstages] stages of the last plan: most plans have the stages of the one before */
    struct memory_stage *stage;
    size_t nstages;
    struct dtp_cut cut;
};

const struct activations *dtp_memory_activations(struct dtp_memory_memo *memo,
                                                 const struct dtp_plan *plan);

/* Returns the size of the flat tensor into which ZeRO-1/2 gather updated parameters; 0: they gather in place. */
static inline double dtp_memory_flat_gather_bytes(const struct dtp_framework *f,
                                                  const struct dtp_plan *plan,
                                                  const struct rank_parts *r) {
    bool divided = (plan->zero_stage == 1 || plan->zero_stage == 2) && plan->dp * plan->cp > 1;
    return divided ? f->quirks.whole_gradients.flat_gather_bytes * (r->dense + r->experts) : 0;
}

/* Bytes of a rank: at the loss, the most in forward and backward, the most of all, and the optimizer's. */
struct rank_sums {
    double loss, passes, peak, optimizer;
};
/* Bytes that the caching allocator of a rank reserves while the card has room (wanted), and after it had to return
 * its free blocks to the device (least). */
struct reserved {
    double wanted, least;
};
/* Returns the reserved bytes above those in use at the peak: the allocator returns them before an allocation fails. */
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
    bool gelu;  /* GELU runs inside the GEMMs before and after it */
    bool split; /* backward in two actions */
    bool fused; /* attention keeps a number per row, not the probabilities */
    int prefetch;
    int64_t e, H, HF,
        probs; /* bytes: of an element; [local tokens, h], [tokens, h]; probabilities */
    int64_t live[NITEMS], sum, peak, at_peak[NITEMS];
};

/* Starts a walk with the buffers that exist before any parameter. */
void dtp_walk_begin(const struct dtp_problem *problem, const struct dtp_plan *plan, struct walk *w);
/* Adds the parameters of a virtual stage with their gradients and optimizer states. */
void dtp_walk_chunk(struct dtp_arena *a, const struct dtp_problem *problem, struct walk *w, int vs,
                    struct chunk *c);
/* Walks action x. c: the chunk of the action; end: the end of the rank's list that holds x. */
void dtp_walk_act(struct walk *w, struct chunk *c, const struct dtp_action *x,
                  const struct dtp_action *end);
/* Returns the passes that complete a rank's list of actions. */
struct dtp_schedule_passes dtp_walk_passes(const struct dtp_plan *plan);

#endif
