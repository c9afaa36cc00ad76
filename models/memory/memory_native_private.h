/* memory_native_private.h: private to memory_native*.c: the tensors of a rank that are alive.
 *
 * dtp_walk_act() walks one action, tensor by tensor. What it takes and gives depends on the chunk's stage and
 * on the buffers of gradients that are there, on nothing else: memory_native_ranks.c lets each case be
 * walked once and then only adds, which is the same to the byte (tests/property/test_native_walk.c).
 */
#ifndef DTP_MODELS_MEMORY_NATIVE_PRIVATE_H
#define DTP_MODELS_MEMORY_NATIVE_PRIVATE_H

#include "models/ops/native.h"
#include "models/schedule/schedule.h"

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

/* What a tensor takes in the heap. */
int64_t dtp_walk_rounded(int64_t bytes);
/* A tensor of an item comes into being, or goes. */
void dtp_walk_take(struct walk *w, enum item item, int64_t bytes);
void dtp_walk_give(struct walk *w, enum item item, int64_t bytes);
/* ZeRO: a unit's parameters before their use and after it; its gradients before and after. */
void dtp_walk_need(struct walk *w, struct chunk *c, int unit, int direction);
void dtp_walk_used(struct walk *w, struct chunk *c, int unit);
void dtp_walk_need_grads(struct walk *w, struct chunk *c, int unit);
void dtp_walk_done(struct walk *w, struct chunk *c, int unit);

/* A layer; keep_all: under selective recomputation too. */
void dtp_walk_layer_forward(struct walk *w, bool keep_all);
/* All but the input. */
void dtp_walk_layer_drop(struct walk *w);
void dtp_walk_mlp_backward(struct walk *w);
void dtp_walk_attention_backward(struct walk *w);
void dtp_walk_layer_weights(struct walk *w);

/* The ends of the model. */
void dtp_walk_ids(struct walk *w, bool there);
void dtp_walk_embed(struct walk *w, struct chunk *c);
void dtp_walk_embed_weights(struct walk *w, struct chunk *c);
void dtp_walk_head_forward(struct walk *w, struct chunk *c);
void dtp_walk_head_weights(struct walk *w, struct chunk *c);
void dtp_walk_head_done(struct walk *w, struct chunk *c);
void dtp_walk_head_backward(struct walk *w, struct chunk *c);

#endif
