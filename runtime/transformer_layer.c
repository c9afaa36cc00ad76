/* Forward of a layer:
 *   n1 = norm(x); qkv = n1 Wqkv + b; ctx = attention(rope(qkv)); x1 = x + drop(reduce(ctx Wo) + b)
 *   n2 = norm(x1); up = n2 W1 + b; act = f(up); out = x1 + drop(reduce(act W2) + b)
 * GELU is the end of the GEMM before it, and its slope that of the one before it in the backward.
 * Under sequence parallelism x, n1, x1, n2 and out hold this rank's tokens only; n1 and n2 are gathered
 * before their GEMM, and again in the backward. */
#include "runtime/transformer.h"

#define ACTS DTP_MEM_ACTIVATIONS

static const double norm_epsilon = 1e-5;
static const double rope_theta = 10000;

void dtp_layer_norm_args(struct dtp_rank *r, struct dtp_unit *u, int id, float *stats,
                         struct dtp_norm_args *out) {
    bool rms = r->model->norm == DTP_NORM_RMS;
    *out = (struct dtp_norm_args){.rms = rms,
                                  .rows = r->dims.local_tokens,
                                  .cols = r->dims.hidden,
                                  .epsilon = norm_epsilon,
                                  .weight = dtp_weight(r, u, id),
                                  .bias = dtp_weight(r, u, id + 1),
                                  .mean = rms ? NULL : stats,
                                  .rstd = stats + r->dims.local_tokens};
}

static enum dtp_status norm(struct dtp_rank *r, struct dtp_unit *u, int id, const void *x, void **y,
                            float **stats) {
    struct dtp_norm_args n;
    DTP_TRY(dtp_take_floats(r, ACTS, "norm statistics", 2 * r->dims.local_tokens, stats));
    DTP_TRY(dtp_take(r, ACTS, "norm", r->dims.local_tokens * r->dims.hidden, y));
    dtp_layer_norm_args(r, u, id, *stats, &n);
    n.x = x;
    n.y = *y;
    r->ops->norm_forward(r->dev, &n);
    return DTP_OK;
}

/* ---- attention ---- */

void dtp_layer_rope(struct dtp_rank *r, void *qkv, bool inverse) {
    const struct dtp_dims *d = &r->dims;
    if (r->model->position != DTP_POS_ROPE)
        return;
    /* keys follow the queries in a row, so one call turns both */
    const struct dtp_rope_args x = {.x = qkv,
                                    .rows = d->tokens,
                                    .batch = d->batch,
                                    .heads = d->heads + d->kv_heads,
                                    .head_dim = d->head_dim,
                                    .row_stride = d->qkv_width,
                                    .theta = rope_theta,
                                    .inverse = inverse};
    r->ops->rope(r->dev, &x);
}

static struct dtp_dropout dropout(const struct dtp_rank *r, int layer,
                                  enum dtp_dropout_place place) {
    double p = place == DTP_DROPOUT_ATTENTION ? r->o->attention_dropout : r->o->dropout;
    uint32_t site = (uint32_t)layer * DTP_DROPOUTS + place;
    struct dtp_dropout d = dtp_dropout_of(p, r->o->seed, 0, p > 0 ? site : 0, 0);
    d.now = p > 0 ? dtp_rank_now(r) : NULL;
    return d;
}

void dtp_layer_attention_args(const struct dtp_rank *r, const struct dtp_unit *u,
                              const struct dtp_layer_acts *x, struct dtp_attention_args *out) {
    const struct dtp_dims *d = &r->dims;
    *out =
        (struct dtp_attention_args){.batch = d->batch,
                                    .seq = d->seq,
                                    .heads = d->heads,
                                    .kv_heads = d->kv_heads,
                                    .head_dim = d->head_dim,
                                    .qkv_stride = d->qkv_width,
                                    .out_stride = d->q_width,
                                    .workspace = r->workspace,
                                    .dropout = dropout(r, u ? u->layer : 0, DTP_DROPOUT_ATTENTION),
                                    .first_head = r->layout.tp_rank * d->heads};
    if (!x)
        return;
    out->q = x->qkv;
    out->k = dtp_element(r, x->qkv, d->q_width, false);
    out->v = dtp_element(r, x->qkv, d->q_width + d->kv_width, false);
    out->out = x->ctx;
    out->saved = x->saved;
}

/* ctx from qkv; allocates what is not there (in the backward, ctx is and gets the same values). */
enum dtp_status dtp_layer_attention(struct dtp_rank *r, const struct dtp_unit *u,
                                    struct dtp_layer_acts *x) {
    struct dtp_attention_args args;
    dtp_layer_attention_args(r, u, x, &args);
    float *saved;
    int64_t nsaved = (int64_t)(r->ops->attention_saved_bytes(r->dev, &args) / sizeof(float));
    DTP_TRY(dtp_take_floats(r, ACTS, "attention probabilities", nsaved, &saved));
    x->saved = saved;
    if (!x->ctx)
        DTP_TRY(dtp_take(r, ACTS, "attention output", r->dims.tokens * r->dims.q_width, &x->ctx));
    dtp_layer_attention_args(r, u, x, &args);
    r->ops->attention_forward(r->dev, &args);
    return DTP_OK;
}

/* ---- the layer ---- */

struct dtp_residual_args dtp_layer_residual(const struct dtp_rank *r, int layer,
                                            enum dtp_dropout_place place) {
    const struct dtp_dims *d = &r->dims;
    return (struct dtp_residual_args){.rows = d->local_tokens,
                                      .cols = d->hidden,
                                      .first_row = r->sp ? r->layout.tp_rank * d->local_tokens : 0,
                                      .batch = d->batch,
                                      .dropout = dropout(r, layer, place)};
}

/* y = dropout(x W + bias) + residual, W row-parallel: *out is new, the partial sums are gone. sum: with
 * the residual. */
static enum dtp_status project(struct dtp_rank *r, const struct dtp_linear *l, const void *x,
                               struct dtp_residual_args sum, void **out) {
    struct dtp_linear partial = *l;
    partial.bias = NULL; /* added once, after the sum */
    void *parts;
    DTP_TRY(dtp_take(r, ACTS, "residual stream", r->dims.tokens * r->dims.hidden, &parts));
    dtp_linear_forward(r, &partial, x, parts);
    DTP_TRY(dtp_tp_reduce(r, ACTS, "residual stream", parts, out));
    sum.bias = l->bias;
    sum.x = sum.out = *out;
    r->ops->bias_residual(r->dev, &sum);
    return DTP_OK;
}

/* y = gather(x) W + bias, W column-parallel. */
static enum dtp_status expand(struct dtp_rank *r, const struct dtp_linear *l, const char *name,
                              const void *x, void **out) {
    void *gathered;
    DTP_TRY(dtp_tp_gather(r, x, &gathered));
    DTP_TRY(dtp_take(r, ACTS, name, l->rows * l->out, out));
    dtp_linear_forward(r, l, gathered, *out);
    dtp_tp_ungather(r, x, gathered);
    return DTP_OK;
}

/* x->up and x->act from x->n2. */
static enum dtp_status mlp_in(struct dtp_rank *r, const struct dtp_linear *up,
                              struct dtp_layer_acts *x) {
    const char *before = "MLP before activation", *after = "MLP after activation";
    int64_t n = r->dims.tokens * r->dims.ffn;
    struct dtp_act_args act = dtp_layer_act(r);
    struct dtp_linear l = *up;
    void *gathered;
    if (act.fn == DTP_ACT_FN_GELU) {
        DTP_TRY(dtp_tp_gather(r, x->n2, &gathered));
        DTP_TRY(dtp_take(r, ACTS, before, n, &x->up));
        DTP_TRY(dtp_take(r, ACTS, after, n, &x->act));
        l.before = x->up;
        dtp_linear_forward(r, &l, gathered, x->act);
        dtp_tp_ungather(r, x->n2, gathered);
        return DTP_OK;
    }
    DTP_TRY(expand(r, up, before, x->n2, &x->up));
    DTP_TRY(dtp_take(r, ACTS, after, n, &x->act));
    act.x = x->up;
    act.y = x->act;
    r->ops->act_forward(r->dev, &act);
    return DTP_OK;
}

void dtp_layer_linears(const struct dtp_rank *r, const struct dtp_unit *u,
                       struct dtp_layer_linears *out) {
    const struct dtp_dims *d = &r->dims;
    bool gated = r->model->gated_ffn;
    out->qkv = (struct dtp_linear){d->tokens, d->hidden, d->qkv_width, dtp_weight(r, u, DTP_P_Q),
                                   dtp_weight(r, u, DTP_P_Q_BIAS)};
    out->out = (struct dtp_linear){d->tokens, d->q_width, d->hidden, dtp_weight(r, u, DTP_P_OUT),
                                   dtp_weight(r, u, DTP_P_OUT_BIAS)};
    out->up = (struct dtp_linear){d->tokens, d->hidden, d->up_width,
                                  dtp_weight(r, u, gated ? DTP_P_GATE : DTP_P_UP),
                                  dtp_weight(r, u, gated ? DTP_P_GATE_BIAS : DTP_P_UP_BIAS)};
    out->down = (struct dtp_linear){d->tokens, d->ffn, d->hidden, dtp_weight(r, u, DTP_P_DOWN),
                                    dtp_weight(r, u, DTP_P_DOWN_BIAS)};
}

struct dtp_act_args dtp_layer_act(const struct dtp_rank *r) {
    const struct dtp_model *m = r->model;
    return (struct dtp_act_args){.fn = m->gated_ffn                    ? DTP_ACT_FN_SWIGLU
                                       : m->activation == DTP_ACT_GELU ? DTP_ACT_FN_GELU
                                                                       : DTP_ACT_FN_RELU,
                                 .rows = r->dims.tokens,
                                 .cols = r->dims.ffn};
}

enum dtp_status dtp_layer_forward(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x,
                                  bool keep_all, void **out) {
    struct dtp_residual_args sum = dtp_layer_residual(r, u->layer, DTP_DROPOUT_PROJECTION);
    struct dtp_layer_linears l;
    dtp_layer_linears(r, u, &l);
    DTP_TRY(norm(r, u, DTP_P_NORM1, x->x, &x->n1, &x->stats1));
    DTP_TRY(expand(r, &l.qkv, "queries, keys, values", x->n1, &x->qkv));
    dtp_layer_rope(r, x->qkv, false);
    DTP_TRY(dtp_layer_attention(r, u, x));
    if (!keep_all && r->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        DTP_DROP(r, x->saved);
    sum.residual = x->x;
    DTP_TRY(project(r, &l.out, x->ctx, sum, &x->x1));
    DTP_TRY(norm(r, u, DTP_P_NORM2, x->x1, &x->n2, &x->stats2));
    DTP_TRY(mlp_in(r, &l.up, x));
    sum = dtp_layer_residual(r, u->layer, DTP_DROPOUT_MLP);
    sum.residual = x->x1;
    return project(r, &l.down, x->act, sum, out);
}

void dtp_layer_drop(struct dtp_rank *r, struct dtp_layer_acts *x, bool keep_input) {
    void *input = x->x;
    void *const all[] = {x->n1,  x->x1,   x->n2,  x->qkv, x->saved, x->ctx,    x->up,
                         x->act, x->dout, x->dup, x->dx1, x->dqkv,  x->stats1, x->stats2};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        dtp_give(r, all[i]);
    if (!keep_input)
        dtp_give(r, input);
    *x = (struct dtp_layer_acts){.x = keep_input ? input : NULL};
}

bool dtp_layer_recomputed(const struct dtp_rank *r, const struct dtp_chunk *c, int layer) {
    (void)c;
    const struct dtp_plan *p = r->plan;
    return p->recompute == DTP_RECOMPUTE_FULL &&
           (p->recompute_layers == 0 || layer < p->recompute_layers);
}
