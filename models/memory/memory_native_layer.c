/* Tensors of a layer and of the ends of the model, in the order in which our own runtime makes them. */
#include "models/memory/memory_native_private.h"

/* Tensors of a layer, in bytes. */
static int64_t stats(const struct walk *w) {
    return 2 * FLOAT_BYTES * w->d.local_tokens;
}

static int64_t wide(const struct walk *w, int64_t width) {
    return w->e * w->d.tokens * width;
}

/* ---- a layer ---- */

/* The whole sequence of a tensor that is divided over tp, for one product. */
static void whole_input(struct walk *w, bool there) {
    if (w->d.sp && there)
        dtp_walk_take(w, BUFFERS, w->HF);
    else if (w->d.sp)
        dtp_walk_give(w, BUFFERS, w->HF);
}

/* Partial sums [tokens, h] become this rank's part. */
static void reduced(struct walk *w) {
    if (!w->d.sp)
        return;
    dtp_walk_take(w, ACTIVATIONS, w->H);
    dtp_walk_give(w, ACTIVATIONS, w->HF);
}

/* The gradient of all tokens behind a dropout: a copy also where the sequence is whole. */
static void dropped_gradient(struct walk *w, bool there) {
    if (w->d.dropout && there)
        dtp_walk_take(w, ACTIVATIONS, w->H);
    whole_input(w, there);
    if (w->d.dropout && there == w->d.sp)
        dtp_walk_give(w, ACTIVATIONS, w->H);
}

void dtp_walk_layer_forward(struct walk *w, bool keep_all) {
    dtp_walk_take(w, ACTIVATIONS, stats(w));
    dtp_walk_take(w, ACTIVATIONS, w->H);
    whole_input(w, true);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    whole_input(w, false);
    dtp_walk_take(w, ACTIVATIONS, w->probs);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.q_width));
    if (!keep_all && w->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        dtp_walk_give(w, ACTIVATIONS, w->probs);
    dtp_walk_take(w, ACTIVATIONS, w->HF);
    reduced(w);
    dtp_walk_take(w, ACTIVATIONS, stats(w));
    dtp_walk_take(w, ACTIVATIONS, w->H);
    whole_input(w, true);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.up_width));
    if (!w->gelu)
        whole_input(w, false);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.ffn));
    if (w->gelu)
        whole_input(w, false);
    dtp_walk_take(w, ACTIVATIONS, w->HF);
    reduced(w);
}

void dtp_walk_layer_drop(struct walk *w) {
    const int64_t kept[] = {
        stats(w), w->H, wide(w, w->d.qkv_width), w->probs,         wide(w, w->d.q_width), w->H,
        stats(w), w->H, wide(w, w->d.up_width),  wide(w, w->d.ffn)};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        dtp_walk_give(w, ACTIVATIONS, kept[i]);
}

/* Through a column-parallel layer and its norm. */
static void through_norm(struct walk *w) {
    dtp_walk_take(w, ACTIVATIONS, w->HF);
    reduced(w);
    dtp_walk_take(w, ACTIVATIONS, w->H);
    dtp_walk_give(w, ACTIVATIONS, w->H);
}

/* The gathered or plain gradient that a weight gradient has used. */
static void give_gradient(struct walk *w) {
    if (w->d.sp)
        dtp_walk_give(w, BUFFERS, w->HF);
    else
        dtp_walk_give(w, ACTIVATIONS, w->H);
}

void dtp_walk_mlp_backward(struct walk *w) {
    bool split = w->d.split;
    dropped_gradient(w, true);
    if (!split)
        dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.ffn));
    dtp_walk_take(w, ACTIVATIONS,
                  wide(w, w->d.ffn)); /* gradient after activation, with GELU before it */
    if (!split)
        dropped_gradient(w, false);
    if (!w->gelu) {
        dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.up_width));
        dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.ffn));
    }
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.up_width));
    if (!split) {
        whole_input(w, true);
        whole_input(w, false);
        dtp_walk_give(w, ACTIVATIONS, w->H);
    }
    through_norm(w);
    if (!split)
        dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.up_width));
    dtp_walk_give(w, ACTIVATIONS, w->H); /* residual stream after attention */
    dtp_walk_give(w, ACTIVATIONS, stats(w));
    if (!split || w->d.sp || w->d.dropout)
        dtp_walk_give(w, ACTIVATIONS, w->H); /* gradient of the output */
}

void dtp_walk_attention_backward(struct walk *w) {
    bool split = w->d.split;
    if (w->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        dtp_walk_take(w, ACTIVATIONS, w->probs);
    dropped_gradient(w, true);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.q_width));
    if (!split)
        dropped_gradient(w, false);
    dtp_walk_take(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.q_width));
    dtp_walk_give(w, ACTIVATIONS, w->probs);
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    if (!split) {
        dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.q_width));
        whole_input(w, true);
        whole_input(w, false);
        dtp_walk_give(w, ACTIVATIONS, w->H); /* norm 1 */
    }
    through_norm(w);
    if (!split)
        dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    dtp_walk_give(w, ACTIVATIONS, w->H); /* input */
    dtp_walk_give(w, ACTIVATIONS, stats(w));
    if (!split || w->d.sp || w->d.dropout)
        dtp_walk_give(w, ACTIVATIONS, w->H); /* gradient of the residual stream */
}

void dtp_walk_layer_weights(struct walk *w) {
    give_gradient(w);
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.ffn));
    whole_input(w, true);
    whole_input(w, false);
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.up_width));
    dtp_walk_give(w, ACTIVATIONS, w->H);
    give_gradient(w);
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.q_width));
    whole_input(w, true);
    whole_input(w, false);
    dtp_walk_give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    dtp_walk_give(w, ACTIVATIONS, w->H);
}

/* ---- ends ---- */

void dtp_walk_ids(struct walk *w, bool there) {
    int64_t bytes = FLOAT_BYTES * w->d.tokens;
    if (there)
        dtp_walk_take(w, ACTIVATIONS, bytes);
    else
        dtp_walk_give(w, ACTIVATIONS, bytes);
}

void dtp_walk_embed(struct walk *w, struct chunk *c) {
    dtp_walk_need(w, c, TOKENS, 1);
    dtp_walk_take(w, ACTIVATIONS, w->HF);
    dtp_walk_used(w, c, TOKENS);
    reduced(w);
    if (c->n[POSITIONS] == 0)
        return;
    dtp_walk_need(w, c, POSITIONS, 1);
    dtp_walk_used(w, c, POSITIONS);
}

void dtp_walk_embed_weights(struct walk *w, struct chunk *c) {
    dtp_walk_need_grads(w, c, TOKENS);
    whole_input(w, true);
    whole_input(w, false);
    if (c->n[POSITIONS] > 0)
        dtp_walk_need_grads(w, c, POSITIONS);
    dtp_walk_give(w, ACTIVATIONS, w->H);
    dtp_walk_ids(w, false);
    dtp_walk_done(w, c, TOKENS);
    dtp_walk_done(w, c, POSITIONS);
}

void dtp_walk_head_forward(struct walk *w, struct chunk *c) {
    dtp_walk_need(w, c, c->norm, 1);
    dtp_walk_take(w, ACTIVATIONS, stats(w));
    dtp_walk_take(w, ACTIVATIONS, w->H);
    dtp_walk_used(w, c, c->norm);
    dtp_walk_need(w, c, c->head, 1);
    whole_input(w, true);
    dtp_walk_take(w, LOGITS, wide(w, w->d.vocab));
    whole_input(w, false);
    dtp_walk_used(w, c, c->head);
    dtp_walk_take(w, LOGITS, 3 * FLOAT_BYTES * w->d.tokens);
}

void dtp_walk_head_weights(struct walk *w, struct chunk *c) {
    dtp_walk_need_grads(w, c, c->head);
    whole_input(w, true);
    whole_input(w, false);
    dtp_walk_give(w, LOGITS, wide(w, w->d.vocab));
    dtp_walk_give(w, ACTIVATIONS, w->H);
}

void dtp_walk_head_done(struct walk *w, struct chunk *c) {
    dtp_walk_done(w, c, c->norm);
    if (c->head != TOKENS)
        dtp_walk_done(w, c, c->head);
}

void dtp_walk_head_backward(struct walk *w, struct chunk *c) {
    dtp_walk_give(w, LOGITS, 3 * FLOAT_BYTES * w->d.tokens);
    dtp_walk_ids(w, false);
    dtp_walk_need(w, c, c->head, -1);
    dtp_walk_take(w, ACTIVATIONS, w->HF);
    dtp_walk_used(w, c, c->head);
    if (!w->d.split)
        dtp_walk_head_weights(w, c);
    reduced(w);
    dtp_walk_need(w, c, c->norm, -1);
    dtp_walk_need_grads(w, c, c->norm);
    dtp_walk_take(w, ACTIVATIONS, w->H);
    dtp_walk_used(w, c, c->norm);
    dtp_walk_give(w, ACTIVATIONS, w->H); /* gradient of the norm's output */
    dtp_walk_give(w, ACTIVATIONS, w->H); /* its input */
    dtp_walk_give(w, ACTIVATIONS, stats(w));
    if (!w->d.split)
        dtp_walk_head_done(w, c);
}
