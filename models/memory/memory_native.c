/* The allocations of our own runtime, tensor by tensor in the order of its actions (runtime/README.md,
 * "Memory"): every tensor is rounded up to the heap's unit, the peak is the largest sum, the items are
 * those of that moment. */
#include "models/memory/memory_native_private.h"

int64_t dtp_walk_rounded(int64_t bytes) {
    int64_t units = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES;
    return (units > 0 ? units : 1) * ALIGN_BYTES;
}

void dtp_walk_take(struct walk *w, enum item item, int64_t bytes) {
    bytes = dtp_walk_rounded(bytes);
    w->live[item] += bytes;
    w->sum += bytes;
    if (w->sum <= w->peak)
        return;
    w->peak = w->sum;
    for (int i = 0; i < NITEMS; i++)
        w->at_peak[i] = w->live[i];
}

void dtp_walk_give(struct walk *w, enum item item, int64_t bytes) {
    bytes = dtp_walk_rounded(bytes);
    w->live[item] -= bytes;
    w->sum -= bytes;
}

/* ---- ZeRO ---- */

static void gather(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage < 3 || c->gathered[unit])
        return;
    c->gathered[unit] = true;
    dtp_walk_take(w, BUFFERS, w->e * c->n[unit]);
}

static int next_unit(const struct chunk *c, int unit, int direction) {
    int next = unit + direction;
    while (next >= 0 && next < c->nunits && c->n[next] == 0)
        next += direction;
    if (next < 0 || next >= c->nunits)
        return -1;
    bool layer = next >= LAYERS && next < c->norm;
    return direction > 0 || layer ? next : -1;
}

void dtp_walk_need(struct walk *w, struct chunk *c, int unit, int direction) {
    if (w->plan->zero_stage < 3)
        return;
    gather(w, c, unit);
    int next = next_unit(c, unit, direction);
    for (int i = 0; next >= 0 && i < w->prefetch; i++) {
        gather(w, c, next);
        next = next_unit(c, next, direction);
    }
}

void dtp_walk_used(struct walk *w, struct chunk *c, int unit) {
    if (c->gathered[unit])
        dtp_walk_give(w, BUFFERS, w->e * c->n[unit]);
    c->gathered[unit] = false;
}

void dtp_walk_need_grads(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage >= 2 && !c->grads[unit]) {
        dtp_walk_take(w, BUFFERS, FLOAT_BYTES * c->n[unit]);
        c->grads[unit] = true;
    }
}

void dtp_walk_done(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage < 2 || c->n[unit] == 0)
        return;
    int64_t shard = FLOAT_BYTES * c->n[unit] / w->plan->dp;
    dtp_walk_take(w, BUFFERS, shard);
    dtp_walk_give(w, BUFFERS, shard);
    dtp_walk_give(w, BUFFERS, FLOAT_BYTES * c->n[unit]);
    c->grads[unit] = false;
}

static void create_unit(struct walk *w, int64_t n) {
    int zero = w->plan->zero_stage;
    int64_t shard = n / w->plan->dp, owned = zero >= 1 ? shard : n;
    if (n == 0)
        return;
    dtp_walk_take(w, WEIGHTS, w->e * (zero >= 3 ? shard : n));
    dtp_walk_take(w, GRADIENTS, FLOAT_BYTES * (zero >= 2 ? shard : n));
    for (int i = w->e < FLOAT_BYTES ? 0 : 1; i < 3; i++) /* master weights, two moments */
        dtp_walk_take(w, OPTIMIZER, FLOAT_BYTES * owned);
}

static bool recomputed(const struct walk *w, int layer) {
    const struct dtp_plan *p = w->plan;
    return p->recompute == DTP_RECOMPUTE_FULL &&
           (p->recompute_layers == 0 || layer < p->recompute_layers);
}

/* ---- actions ---- */

static void forward(struct walk *w, struct chunk *c) {
    if (c->s.first)
        dtp_walk_ids(w, true);
    if (c->s.last)
        dtp_walk_ids(w, true);
    if (c->s.first)
        dtp_walk_embed(w, c);
    for (int i = 0; i < c->s.layers; i++) {
        dtp_walk_need(w, c, LAYERS + i, 1);
        dtp_walk_layer_forward(w, false);
        dtp_walk_used(w, c, LAYERS + i);
        if (recomputed(w, i))
            dtp_walk_layer_drop(w);
    }
    if (c->s.last)
        dtp_walk_head_forward(w, c);
}

static void backward(struct walk *w, struct chunk *c) {
    if (c->s.last)
        dtp_walk_head_backward(w, c);
    for (int i = c->s.layers - 1; i >= 0; i--) {
        dtp_walk_need(w, c, LAYERS + i, -1);
        dtp_walk_need_grads(w, c, LAYERS + i);
        if (recomputed(w, i)) {
            dtp_walk_layer_forward(w, true);
            dtp_walk_give(w, ACTIVATIONS, w->H);
        }
        dtp_walk_mlp_backward(w);
        dtp_walk_attention_backward(w);
        dtp_walk_used(w, c, LAYERS + i);
        if (!w->d.split)
            dtp_walk_done(w, c, LAYERS + i);
    }
    if (c->s.first && !w->d.split)
        dtp_walk_embed_weights(w, c);
}

static void weights(struct walk *w, struct chunk *c) {
    if (c->s.last) {
        dtp_walk_head_weights(w, c);
        dtp_walk_head_done(w, c);
    }
    for (int i = c->s.layers - 1; i >= 0; i--) {
        dtp_walk_need_grads(w, c, LAYERS + i);
        dtp_walk_layer_weights(w);
        dtp_walk_done(w, c, LAYERS + i);
    }
    if (c->s.first)
        dtp_walk_embed_weights(w, c);
}

/* What the next use of the chunk needs first. */
static void unshard(struct walk *w, struct chunk *c, const struct dtp_action *x,
                    const struct dtp_action *end) {
    for (const struct dtp_action *next = x + 1; next < end; next++) {
        bool back = next->kind == DTP_A_B || next->kind == DTP_A_I;
        if (next->chunk != x->chunk || (next->kind != DTP_A_F && !back))
            continue;
        if (back)
            dtp_walk_need(w, c, c->s.last ? c->head : LAYERS + c->s.layers - 1, -1);
        else
            dtp_walk_need(w, c, c->s.first ? TOKENS : LAYERS, 1);
        return;
    }
}

void dtp_walk_act(struct walk *w, struct chunk *c, const struct dtp_action *x,
                  const struct dtp_action *end) {
    switch ((enum dtp_action_kind)x->kind) {
    case DTP_A_F:
        forward(w, c);
        break;
    case DTP_A_B:
    case DTP_A_I:
        backward(w, c);
        break;
    case DTP_A_W:
        weights(w, c);
        break;
    case DTP_A_RECV_F:
    case DTP_A_RECV_B:
        dtp_walk_take(w, ACTIVATIONS, w->H);
        break;
    case DTP_A_SEND_F: /* of an earlier one; see kept_sent() of memory_native_ranks.c */
    case DTP_A_SEND_B:
        dtp_walk_give(w, ACTIVATIONS, w->H);
        break;
    case DTP_A_UNSHARD:
        unshard(w, c, x, end);
        break;
    case DTP_A_RESHARD:
        for (int i = 0; i < c->nunits; i++)
            dtp_walk_used(w, c, i);
        break;
    case DTP_A_RECOMPUTE:
    case DTP_A_REDUCE_GRAD:
    case DTP_A_OFFLOAD:
    case DTP_A_FETCH:
    case DTP_A_OPTIM:
    case DTP_NACTIONS:
        break;
    }
}

/* ---- a rank ---- */

/* The workspace of the attention: probabilities of a head on the CPU. In 16 bit on GPUs it is cuDNN's for
 * the backward (runtime/cuda/attention_cudnn.c): row sums, dQ in fp32, 256 bytes of its own, and with
 * grouped queries dK and dV of every query head (asked of cuDNN 9.19 for sm_90). In fp32, and with dropout of
 * the probabilities, which is never cuDNN's: row sums. */
static int64_t workspace(const struct walk *w) {
    enum { CUDNN_BYTES = 256 };
    int64_t rows = w->d.tokens * w->d.heads, width = rows * w->d.head_dim;
    if (!w->fused)
        return FLOAT_BYTES * w->d.seq * w->d.seq;
    if (w->e == FLOAT_BYTES || w->d.attention_dropout)
        return FLOAT_BYTES * rows;
    int64_t each = w->d.heads == w->d.kv_heads ? 0 : 2 * w->e * width;
    return dtp_walk_rounded(FLOAT_BYTES * rows) + dtp_walk_rounded(FLOAT_BYTES * width) + each +
           CUDNN_BYTES;
}

void dtp_walk_chunk(struct dtp_arena *a, const struct dtp_problem *problem, struct walk *w, int vs,
                    struct chunk *c) {
    dtp_native_stage_of(problem, w->plan, &w->d, vs, &c->s);
    c->nunits = LAYERS + c->s.layers + 2;
    c->norm = LAYERS + c->s.layers;
    c->head = c->s.tied ? TOKENS : c->norm + 1;
    c->n = DTP_NEW(a, int64_t, (size_t)c->nunits);
    c->gathered = DTP_NEW(a, bool, (size_t)c->nunits);
    c->grads = DTP_NEW(a, bool, (size_t)c->nunits);
    c->n[TOKENS] = c->s.tokens_n;
    c->n[POSITIONS] = c->s.positions_n;
    for (int i = 0; i < c->s.layers; i++)
        c->n[LAYERS + i] = c->s.layer_n;
    c->n[c->norm] = c->s.norm_n;
    c->n[c->norm + 1] = c->s.head_n;
    for (int i = 0; i < c->nunits; i++)
        create_unit(w, c->n[i]);
}

void dtp_walk_begin(const struct dtp_problem *problem, const struct dtp_plan *plan,
                    struct walk *w) {
    int attention =
        problem->attention >= 0 ? problem->attention : (int)problem->framework->kernels.attention;
    *w = (struct walk){.plan = plan,
                       .gelu =
                           !problem->model->gated_ffn && problem->model->activation == DTP_ACT_GELU,
                       .fused = attention != DTP_ATTN_HEADS,
                       .prefetch = problem->framework->wire.zero3_prefetch_layers,
                       .e = dtp_dtype_bytes(plan->dtype)};
    dtp_native_of(problem, plan, &w->d);
    w->H = w->e * w->d.local_tokens * w->d.hidden;
    w->HF = w->e * w->d.tokens * w->d.hidden;
    w->probs = FLOAT_BYTES * w->d.tokens * w->d.heads * (w->fused ? 1 : w->d.seq);
    dtp_walk_take(w, BUFFERS, workspace(w));
    dtp_walk_take(w, BUFFERS, FLOAT_BYTES * SCALARS);
}

struct dtp_schedule_passes dtp_walk_passes(const struct dtp_plan *plan) {
    return (struct dtp_schedule_passes){
        .p2p = plan->pp > 1, .zero_stage = plan->zero_stage, .regather_backward = true};
}
