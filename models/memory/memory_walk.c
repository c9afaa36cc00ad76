/* This file walks the allocations of our runtime, tensor by tensor in the order of its actions (runtime/NOTES.md,
 * "Memory"). Every tensor is rounded up to the unit of the heap, the peak is the largest sum, and the items are
 * those of that moment. A compute action with the transfers and unshards around it is a step; each kind of step of
 * a stage is walked once, and its result is then only added. */
#include "models/memory/memory_internal.h"
#include "models/ops/op_native.h"
#include "models/schedule/schedule.h"

static int64_t rounded(int64_t bytes) {
    int64_t units = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES;
    return (units > 0 ? units : 1) * ALIGN_BYTES;
}

static void take(struct walk *w, enum item item, int64_t bytes) {
    bytes = rounded(bytes);
    w->live[item] += bytes;
    w->sum += bytes;
    if (w->sum <= w->peak)
        return;
    w->peak = w->sum;
    for (int i = 0; i < NITEMS; i++)
        w->at_peak[i] = w->live[i];
}

static void give(struct walk *w, enum item item, int64_t bytes) {
    bytes = rounded(bytes);
    w->live[item] -= bytes;
    w->sum -= bytes;
}

/* ---- ZeRO ---- */

static void gather(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage < 3 || c->gathered[unit])
        return;
    c->gathered[unit] = true;
    take(w, BUFFERS, w->e * c->n[unit]);
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

static void need(struct walk *w, struct chunk *c, int unit, int direction) {
    if (w->plan->zero_stage < 3)
        return;
    gather(w, c, unit);
    int next = next_unit(c, unit, direction);
    for (int i = 0; next >= 0 && i < w->prefetch; i++) {
        gather(w, c, next);
        next = next_unit(c, next, direction);
    }
}

static void used(struct walk *w, struct chunk *c, int unit) {
    if (c->gathered[unit])
        give(w, BUFFERS, w->e * c->n[unit]);
    c->gathered[unit] = false;
}

static void need_grads(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage >= 2 && !c->grads[unit]) {
        take(w, BUFFERS, FLOAT_BYTES * c->n[unit]);
        c->grads[unit] = true;
    }
}

static void done(struct walk *w, struct chunk *c, int unit) {
    if (w->plan->zero_stage < 2 || c->n[unit] == 0)
        return;
    int64_t shard = FLOAT_BYTES * c->n[unit] / w->plan->dp;
    take(w, BUFFERS, shard);
    give(w, BUFFERS, shard);
    give(w, BUFFERS, FLOAT_BYTES * c->n[unit]);
    c->grads[unit] = false;
}

static void create_unit(struct walk *w, int64_t n) {
    int zero = w->plan->zero_stage;
    int64_t shard = n / w->plan->dp, owned = zero >= 1 ? shard : n;
    if (n == 0)
        return;
    take(w, WEIGHTS, w->e * (zero >= 3 ? shard : n));
    take(w, GRADIENTS, FLOAT_BYTES * (zero >= 2 ? shard : n));
    for (int i = w->e < FLOAT_BYTES ? 0 : 1; i < 3; i++) /* master weights, two moments */
        take(w, OPTIMIZER, FLOAT_BYTES * owned);
}

/* Tensors of a layer, in bytes. */
static int64_t stats(const struct walk *w) {
    return 2 * FLOAT_BYTES * w->d.local_tokens;
}

static int64_t wide(const struct walk *w, int64_t width) {
    return w->e * w->d.tokens * width;
}

/* ---- a layer ---- */

/* Takes or gives the whole sequence of a tensor that tp divides, for one product. */
static void whole_input(struct walk *w, bool there) {
    if (w->d.sp && there)
        take(w, BUFFERS, w->HF);
    else if (w->d.sp)
        give(w, BUFFERS, w->HF);
}

/* Partial sums [tokens, h] become this rank's part. */
static void reduced(struct walk *w) {
    if (!w->d.sp)
        return;
    take(w, ACTIVATIONS, w->H);
    give(w, ACTIVATIONS, w->HF);
}

/* Takes or gives the gradient of all tokens behind a dropout: it is a copy even if the sequence is not divided. */
static void dropped_gradient(struct walk *w, bool there) {
    if (w->d.dropout && there)
        take(w, ACTIVATIONS, w->H);
    whole_input(w, there);
    if (w->d.dropout && there == w->d.sp)
        give(w, ACTIVATIONS, w->H);
}

static void layer_forward(struct walk *w, bool keep_all) {
    take(w, ACTIVATIONS, stats(w));
    take(w, ACTIVATIONS, w->H);
    whole_input(w, true);
    take(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    whole_input(w, false);
    take(w, ACTIVATIONS, w->probs);
    take(w, ACTIVATIONS, wide(w, w->d.q_width));
    if (!keep_all && w->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        give(w, ACTIVATIONS, w->probs);
    take(w, ACTIVATIONS, w->HF);
    reduced(w);
    take(w, ACTIVATIONS, stats(w));
    take(w, ACTIVATIONS, w->H);
    whole_input(w, true);
    take(w, ACTIVATIONS, wide(w, w->d.up_width));
    if (!w->gelu)
        whole_input(w, false);
    take(w, ACTIVATIONS, wide(w, w->d.ffn));
    if (w->gelu)
        whole_input(w, false);
    take(w, ACTIVATIONS, w->HF);
    reduced(w);
}

static void layer_drop(struct walk *w) {
    const int64_t kept[] = {
        stats(w), w->H, wide(w, w->d.qkv_width), w->probs,         wide(w, w->d.q_width), w->H,
        stats(w), w->H, wide(w, w->d.up_width),  wide(w, w->d.ffn)};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        give(w, ACTIVATIONS, kept[i]);
}

/* Walks the backward through a column-parallel layer and its norm. */
static void through_norm(struct walk *w) {
    take(w, ACTIVATIONS, w->HF);
    reduced(w);
    take(w, ACTIVATIONS, w->H);
    give(w, ACTIVATIONS, w->H);
}

/* Frees the gathered or plain gradient that a weight gradient has used. */
static void give_gradient(struct walk *w) {
    if (w->d.sp)
        give(w, BUFFERS, w->HF);
    else
        give(w, ACTIVATIONS, w->H);
}

static void mlp_backward(struct walk *w) {
    bool split = w->split;
    dropped_gradient(w, true);
    if (!split)
        give(w, ACTIVATIONS, wide(w, w->d.ffn));
    take(w, ACTIVATIONS, wide(w, w->d.ffn)); /* gradient after activation, with GELU before it */
    if (!split)
        dropped_gradient(w, false);
    if (!w->gelu) {
        take(w, ACTIVATIONS, wide(w, w->d.up_width));
        give(w, ACTIVATIONS, wide(w, w->d.ffn));
    }
    give(w, ACTIVATIONS, wide(w, w->d.up_width));
    if (!split) {
        whole_input(w, true);
        whole_input(w, false);
        give(w, ACTIVATIONS, w->H);
    }
    through_norm(w);
    if (!split)
        give(w, ACTIVATIONS, wide(w, w->d.up_width));
    give(w, ACTIVATIONS, w->H); /* residual stream after attention */
    give(w, ACTIVATIONS, stats(w));
    if (!split || w->d.sp || w->d.dropout)
        give(w, ACTIVATIONS, w->H); /* gradient of the output */
}

static void attention_backward(struct walk *w) {
    bool split = w->split;
    if (w->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        take(w, ACTIVATIONS, w->probs);
    dropped_gradient(w, true);
    take(w, ACTIVATIONS, wide(w, w->d.q_width));
    if (!split)
        dropped_gradient(w, false);
    take(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    give(w, ACTIVATIONS, wide(w, w->d.q_width));
    give(w, ACTIVATIONS, w->probs);
    give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    if (!split) {
        give(w, ACTIVATIONS, wide(w, w->d.q_width));
        whole_input(w, true);
        whole_input(w, false);
        give(w, ACTIVATIONS, w->H); /* norm 1 */
    }
    through_norm(w);
    if (!split)
        give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    give(w, ACTIVATIONS, w->H); /* input */
    give(w, ACTIVATIONS, stats(w));
    if (!split || w->d.sp || w->d.dropout)
        give(w, ACTIVATIONS, w->H); /* gradient of the residual stream */
}

static void layer_weights(struct walk *w) {
    give_gradient(w);
    give(w, ACTIVATIONS, wide(w, w->d.ffn));
    whole_input(w, true);
    whole_input(w, false);
    give(w, ACTIVATIONS, wide(w, w->d.up_width));
    give(w, ACTIVATIONS, w->H);
    give_gradient(w);
    give(w, ACTIVATIONS, wide(w, w->d.q_width));
    whole_input(w, true);
    whole_input(w, false);
    give(w, ACTIVATIONS, wide(w, w->d.qkv_width));
    give(w, ACTIVATIONS, w->H);
}

/* ---- ends ---- */

static void ids(struct walk *w, bool there) {
    int64_t bytes = FLOAT_BYTES * w->d.tokens;
    if (there)
        take(w, ACTIVATIONS, bytes);
    else
        give(w, ACTIVATIONS, bytes);
}

static void embed(struct walk *w, struct chunk *c) {
    need(w, c, TOKENS, 1);
    take(w, ACTIVATIONS, w->HF);
    used(w, c, TOKENS);
    reduced(w);
    if (c->n[POSITIONS] == 0)
        return;
    need(w, c, POSITIONS, 1);
    used(w, c, POSITIONS);
}

static void embed_weights(struct walk *w, struct chunk *c) {
    need_grads(w, c, TOKENS);
    whole_input(w, true);
    whole_input(w, false);
    if (c->n[POSITIONS] > 0)
        need_grads(w, c, POSITIONS);
    give(w, ACTIVATIONS, w->H);
    ids(w, false);
    done(w, c, TOKENS);
    done(w, c, POSITIONS);
}

static void head_forward(struct walk *w, struct chunk *c) {
    need(w, c, c->norm, 1);
    take(w, ACTIVATIONS, stats(w));
    take(w, ACTIVATIONS, w->H);
    used(w, c, c->norm);
    need(w, c, c->head, 1);
    whole_input(w, true);
    take(w, LOGITS, wide(w, w->d.vocab));
    whole_input(w, false);
    used(w, c, c->head);
    take(w, LOGITS, 3 * FLOAT_BYTES * w->d.tokens);
}

static void head_weights(struct walk *w, struct chunk *c) {
    need_grads(w, c, c->head);
    whole_input(w, true);
    whole_input(w, false);
    give(w, LOGITS, wide(w, w->d.vocab));
    give(w, ACTIVATIONS, w->H);
}

static void head_done(struct walk *w, struct chunk *c) {
    done(w, c, c->norm);
    if (c->head != TOKENS)
        done(w, c, c->head);
}

static void head_backward(struct walk *w, struct chunk *c) {
    give(w, LOGITS, 3 * FLOAT_BYTES * w->d.tokens);
    ids(w, false);
    need(w, c, c->head, -1);
    take(w, ACTIVATIONS, w->HF);
    used(w, c, c->head);
    if (!w->split)
        head_weights(w, c);
    reduced(w);
    need(w, c, c->norm, -1);
    need_grads(w, c, c->norm);
    take(w, ACTIVATIONS, w->H);
    used(w, c, c->norm);
    give(w, ACTIVATIONS, w->H); /* gradient of the norm's output */
    give(w, ACTIVATIONS, w->H); /* its input */
    give(w, ACTIVATIONS, stats(w));
    if (!w->split)
        head_done(w, c);
}

static bool recomputed(const struct walk *w, int layer) {
    const struct dtp_plan *p = w->plan;
    return p->recompute == DTP_RECOMPUTE_FULL &&
           (p->recompute_layers == 0 || layer < p->recompute_layers);
}

/* ---- actions ---- */

static void forward(struct walk *w, struct chunk *c) {
    if (c->s.first)
        ids(w, true);
    if (c->s.last)
        ids(w, true);
    if (c->s.first)
        embed(w, c);
    for (int i = 0; i < c->s.layers; i++) {
        need(w, c, LAYERS + i, 1);
        layer_forward(w, false);
        used(w, c, LAYERS + i);
        if (recomputed(w, i))
            layer_drop(w);
    }
    if (c->s.last)
        head_forward(w, c);
}

static void backward(struct walk *w, struct chunk *c) {
    if (c->s.last)
        head_backward(w, c);
    for (int i = c->s.layers - 1; i >= 0; i--) {
        need(w, c, LAYERS + i, -1);
        need_grads(w, c, LAYERS + i);
        if (recomputed(w, i)) {
            layer_forward(w, true);
            give(w, ACTIVATIONS, w->H);
        }
        mlp_backward(w);
        attention_backward(w);
        used(w, c, LAYERS + i);
        if (!w->split)
            done(w, c, LAYERS + i);
    }
    if (c->s.first && !w->split)
        embed_weights(w, c);
}

static void weights(struct walk *w, struct chunk *c) {
    if (c->s.last) {
        head_weights(w, c);
        head_done(w, c);
    }
    for (int i = c->s.layers - 1; i >= 0; i--) {
        need_grads(w, c, LAYERS + i);
        layer_weights(w);
        done(w, c, LAYERS + i);
    }
    if (c->s.first)
        embed_weights(w, c);
}

/* Gathers the unit that the next use of the chunk needs first. */
static void unshard(struct walk *w, struct chunk *c, const struct dtp_action *x,
                    const struct dtp_action *end) {
    for (const struct dtp_action *next = x + 1; next < end; next++) {
        bool back = next->kind == DTP_A_B || next->kind == DTP_A_I;
        if (next->chunk != x->chunk || (next->kind != DTP_A_F && !back))
            continue;
        if (back)
            need(w, c, c->s.last ? c->head : LAYERS + c->s.layers - 1, -1);
        else
            need(w, c, c->s.first ? TOKENS : LAYERS, 1);
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
        take(w, ACTIVATIONS, w->H);
        break;
    case DTP_A_SEND_F: /* frees an earlier tensor; see kept_sent() below */
    case DTP_A_SEND_B:
        give(w, ACTIVATIONS, w->H);
        break;
    case DTP_A_UNSHARD:
        unshard(w, c, x, end);
        break;
    case DTP_A_RESHARD:
        for (int i = 0; i < c->nunits; i++)
            used(w, c, i);
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

/* Returns the workspace of the attention. The CPU holds the probabilities of one head. In 16 bit a GPU holds what
 * cuDNN's backward needs (runtime/cuda/attention_cudnn.c): row sums, dQ in fp32, 256 bytes for cuDNN itself, and with
 * grouped queries dK and dV of every query head (as cuDNN 9.19 reports for sm_90). In fp32, and with dropout of the
 * probabilities, for which cuDNN is never used, a GPU holds row sums. */
static int64_t workspace(const struct walk *w) {
    enum { CUDNN_BYTES = 256 };
    int64_t rows = w->d.tokens * w->d.heads, width = rows * w->d.head_dim;
    if (!w->fused)
        return FLOAT_BYTES * w->d.seq * w->d.seq;
    if (w->e == FLOAT_BYTES || w->d.attention_dropout)
        return FLOAT_BYTES * rows;
    int64_t each = w->d.heads == w->d.kv_heads ? 0 : 2 * w->e * width;
    return rounded(FLOAT_BYTES * rows) + rounded(FLOAT_BYTES * width) + each + CUDNN_BYTES;
}

void dtp_walk_chunk(struct dtp_arena *a, const struct dtp_problem *problem, struct walk *w, int vs,
                    struct chunk *c) {
    const struct dtp_cut cut = dtp_plan_cut(w->plan);
    dtp_native_stage_of(problem->model, &cut, w->plan->dp, &w->d, vs, &c->s);
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
                       .split = dtp_schedule_kinds[plan->schedule].split_backward,
                       .prefetch = problem->framework->wire.zero3_prefetch_layers,
                       .e = dtp_dtype_bytes(plan->dtype)};
    const struct dtp_native_sizes sizes = {plan->tp, plan->microbatch_size, plan->sequence_parallel,
                                           plan->dtype};
    dtp_native_of(problem, &sizes, &w->d);
    w->H = w->e * w->d.local_tokens * w->d.hidden;
    w->HF = w->e * w->d.tokens * w->d.hidden;
    w->probs = FLOAT_BYTES * w->d.tokens * w->d.heads * (w->fused ? 1 : w->d.seq);
    take(w, BUFFERS, workspace(w));
    take(w, BUFFERS, FLOAT_BYTES * SCALARS);
}

struct dtp_schedule_passes dtp_walk_passes(const struct dtp_plan *plan) {
    return (struct dtp_schedule_passes){
        .p2p = plan->pp > 1, .zero_stage = plan->zero_stage, .regather_backward = true};
}

/* What a step adds to the memory by its end, and at its peak. */
struct step {
    bool known;
    int64_t sum, peak, items[NITEMS], items_at_peak[NITEMS];
};

/* A class of virtual stages that hold the same tensors. `held`: an input gradient has allocated the buffers of ZeRO's
 * gradients, which the weight gradient will free. */
struct stage_class {
    struct chunk chunk;
    int rank, index; /* one chunk of the class */
    int64_t params, items[NITEMS];
    struct step step[DTP_A_W + 1][2]; /* by kind of action, held */
};

struct ranks {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    struct walk start; /* before any parameter */
    struct dtp_schedule shape;
    struct stage_class **class; /* [nclasses] */
    int nclasses;
    struct stage_class **of;       /* [vpp] chunks of the walked rank */
    bool *held;                    /* [vpp] */
    struct dtp_chunk_links *links; /* [vpp] */
    int sends_held, sent[2];       /* sends_held: the most; sent: so far, forward and backward */
    struct dtp_action *action;
    int nactions;
};

/* A rank's sum before its first action and at its peak. */
struct peak {
    int64_t start[NITEMS], bytes;
    int at; /* index of the action, -1: before the first */
};

/* ---- steps ---- */

static struct stage_class *new_class(struct ranks *r, int rank, int index, int vs) {
    struct stage_class *c = DTP_NEW(r->a, struct stage_class, 1);
    struct walk w = r->start;
    dtp_walk_chunk(r->a, r->problem, &w, vs, &c->chunk);
    c->rank = rank;
    c->index = index;
    c->params = dtp_native_stage_params(&c->chunk.s);
    for (int i = 0; i < NITEMS; i++)
        c->items[i] = w.live[i] - r->start.live[i];
    return r->class[r->nclasses++] = c;
}

static struct stage_class *find_class(struct ranks *r, int rank, int index) {
    const struct dtp_plan *p = r->plan;
    int vs = dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, rank, index);
    bool first = vs == 0, last = vs == p->pp * p->vpp - 1;
    int layers = dtp_plan_layers(p, r->problem->model, vs);
    for (int i = 0; i < r->nclasses; i++) {
        const struct dtp_native_stage *s = &r->class[i]->chunk.s;
        if (s->first == first && s->last == last && s->layers == layers)
            return r->class[i];
    }
    return new_class(r, rank, index, vs);
}

static void walk_action(const struct ranks *r, struct stage_class *c, enum dtp_action_kind kind,
                        struct walk *w) {
    struct dtp_schedule_passes passes = dtp_walk_passes(r->plan);
    struct dtp_action list[DTP_SCHEDULE_MOST_AROUND],
        x = {.kind = (uint8_t)kind, .chunk = (uint16_t)c->index};
    int n = dtp_schedule_complete_one(&r->shape, c->rank, &passes, x, list);
    *w = r->start;
    for (int i = 0; i < NITEMS; i++)
        w->live[i] = 0;
    w->sum = w->peak = 0;
    for (int i = 0; i < n; i++)
        dtp_walk_act(w, &c->chunk, &list[i], list + n);
}

static void walk_step(const struct ranks *r, struct stage_class *c, enum dtp_action_kind kind,
                      bool held, struct step *out) {
    struct walk w;
    for (int i = 0; i < c->chunk.nunits; i++)
        c->chunk.gathered[i] = c->chunk.grads[i] = false;
    if (held)
        walk_action(r, c, DTP_A_I, &w);
    walk_action(r, c, kind, &w);
    *out = (struct step){.known = true, .sum = w.sum, .peak = w.peak};
    for (int i = 0; i < NITEMS; i++) {
        out->items[i] = w.live[i];
        out->items_at_peak[i] = w.at_peak[i];
    }
}

/* Returns the step of an action, given what the actions before it have left. */
static inline const struct step *next_step(struct ranks *r, const struct dtp_action *x) {
    bool *held = &r->held[x->chunk];
    struct step *step = &r->of[x->chunk]->step[x->kind][*held];
    if (!step->known)
        walk_step(r, r->of[x->chunk], (enum dtp_action_kind)x->kind, *held, step);
    if (x->kind != DTP_A_F)
        *held = x->kind == DTP_A_I && r->plan->zero_stage >= 2;
    return step;
}

/* Returns what an action leaves in memory that its step does not count. The step frees at its end what it sends, as if
 * an earlier sent tensor were freed instead, but the first sends of a rank have no earlier one. */
static int64_t kept_sent(struct ranks *r, const struct dtp_action *x) {
    int back = x->kind == DTP_A_F ? 0 : 1;
    bool sends = back ? r->links[x->chunk].far_before : r->links[x->chunk].far_after;
    if (x->kind == DTP_A_W || !sends || r->sent[back] == r->sends_held)
        return 0;
    r->sent[back]++;
    return rounded(r->start.H);
}

/* ---- ranks ---- */

/* The order of actions has period pp once all ranks are busy, after at most (vpp + 1) pp forwards. So 3 pp microbatches
 * contain a whole period after that and stand for the whole step, unless a rank holds more with all microbatches. */
static int microbatches_walked(const struct dtp_plan *p) {
    int m = dtp_plan_num_microbatches(p), few = 3 * p->pp + m % p->pp;
    bool all = m <= few || dtp_schedule_holds_more(p->schedule, p->pp, p->vpp, m, few);
    return all ? m : few;
}

static void ranks_init(struct dtp_arena *in, struct ranks *r, const struct dtp_problem *problem,
                       const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create_in(in, "memory walk");
    *r = (struct ranks){
        .a = a,
        .problem = problem,
        .plan = p,
        .shape = {.kind = p->schedule, .pp = p->pp, .vpp = p->vpp, .m = microbatches_walked(p)}};
    dtp_walk_begin(problem, p, &r->start);
    r->class = DTP_NEW(a, struct stage_class *, (size_t)(p->pp * p->vpp));
    r->of = DTP_NEW(a, struct stage_class *, (size_t)p->vpp);
    r->held = DTP_NEW(a, bool, (size_t)p->vpp);
    r->links = DTP_NEW(a, struct dtp_chunk_links, (size_t)p->vpp);
    r->sends_held = dtp_schedule_sends_held(p->schedule, p->pp, dtp_plan_num_microbatches(p));
    r->action = DTP_NEW(a, struct dtp_action, dtp_schedule_max_actions(p->vpp, r->shape.m));
}

static void begin_actions(struct ranks *r) {
    r->sent[0] = r->sent[1] = 0;
    for (int c = 0; c < r->plan->vpp; c++)
        r->held[c] = false;
}

static void take_actions(struct ranks *r, int rank) {
    const struct dtp_schedule *s = &r->shape;
    bool made = !dtp_schedule_applies(s->kind, s->pp, s->vpp, s->m);
    r->nactions =
        made ? dtp_schedule_kinds[s->kind].generate(s->pp, s->vpp, s->m, rank, r->action) : 0;
    dtp_schedule_links(s, rank, r->links);
    begin_actions(r);
}

static struct peak walk_rank(struct ranks *r, int rank) {
    struct peak out = {.at = -1};
    for (int c = 0; c < r->plan->vpp; c++)
        r->of[c] = find_class(r, rank, c);
    for (int i = 0; i < NITEMS; i++) {
        out.start[i] = r->start.live[i];
        for (int c = 0; c < r->plan->vpp; c++)
            out.start[i] += r->of[c]->items[i];
        out.bytes += out.start[i];
    }
    int64_t sum = out.bytes;
    take_actions(r, rank);
    for (int i = 0; i < r->nactions; i++) {
        const struct step *step = next_step(r, &r->action[i]);
        if (sum + step->peak > out.bytes) {
            out.bytes = sum + step->peak;
            out.at = i;
        }
        sum += step->sum + kept_sent(r, &r->action[i]);
    }
    return out;
}

/* Fills in the items at the peak of the rank that was walked last. */
static void fill(struct ranks *r, const struct peak *peak, struct dtp_stage_memory *out) {
    int64_t at[NITEMS];
    for (int i = 0; i < NITEMS; i++)
        at[i] = peak->start[i];
    begin_actions(r);
    for (int n = 0; n <= peak->at; n++) {
        const struct step *step = next_step(r, &r->action[n]);
        for (int i = 0; i < NITEMS; i++)
            at[i] += n < peak->at ? step->items[i] : step->items_at_peak[i];
        if (n < peak->at)
            at[ACTIVATIONS] += kept_sent(r, &r->action[n]);
    }
    *out = (struct dtp_stage_memory){.weights_bytes = (uint64_t)at[WEIGHTS],
                                     .gradients_bytes = (uint64_t)at[GRADIENTS],
                                     .optimizer_bytes = (uint64_t)at[OPTIMIZER],
                                     .activations_bytes = (uint64_t)at[ACTIVATIONS],
                                     .logits_bytes = (uint64_t)at[LOGITS],
                                     .buffers_bytes = (uint64_t)at[BUFFERS],
                                     .peak_bytes = (uint64_t)peak->bytes,
                                     .reserved_bytes = (uint64_t)peak->bytes,
                                     .device_bytes = (uint64_t)peak->bytes,
                                     .moment = "largest sum of live tensors"};
    for (int c = 0; c < r->plan->vpp; c++)
        out->params += (uint64_t)r->of[c]->params;
}

void dtp_memory_native(struct dtp_arena *a, const struct dtp_problem *problem,
                       const struct dtp_plan *plan, struct dtp_stage_memory *stages) {
    struct ranks r;
    ranks_init(a, &r, problem, plan);
    for (int rank = 0; rank < plan->pp; rank++) {
        struct peak peak = walk_rank(&r, rank);
        fill(&r, &peak, &stages[rank]);
    }
    dtp_arena_destroy(r.a);
}

uint64_t dtp_memory_native_peak(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan) {
    struct ranks r;
    int64_t worst_bytes = 0;
    ranks_init(a, &r, problem, plan);
    for (int rank = 0; rank < plan->pp; rank++) {
        struct peak peak = walk_rank(&r, rank);
        worst_bytes = peak.bytes > worst_bytes ? peak.bytes : worst_bytes;
    }
    dtp_arena_destroy(r.a);
    return (uint64_t)worst_bytes;
}
