/* A layer of the transformer.
 *
 * Forward:
 *   n1 = norm(x); qkv = n1 Wqkv + b; ctx = attention(rope(qkv)); x1 = x + drop(reduce(ctx Wo) + b)
 *   n2 = norm(x1); up = n2 W1 + b; act = f(up); out = x1 + drop(reduce(act W2) + b)
 * GELU is computed at the end of the product before it; in the backward its slope is, too.
 * Under sequence parallelism x, n1, x1, n2 and out hold the tokens of this rank only; n1 and n2 are gathered
 * before their product, and a second time in the backward.
 * Backward: from dout to dx, with the gradients of the weights on the way, or in dtp_layer_weights() when the
 * backward is split. Without a split each activation is released after its last use. */
#include "runtime/transformer/transformer.h"

#define ACTS DTP_MEM_ACTIVATIONS

/* These hold where the model does not state its own. */
static const double usual_epsilon = 1e-5;
static const double usual_theta = 10000;

void dtp_layer_norm_args(struct dtp_rank *r, struct dtp_unit *u, int id, float *stats,
                         struct dtp_norm_args *out) {
    bool rms = r->model->norm == DTP_NORM_RMS;
    *out = (struct dtp_norm_args){.rms = rms,
                                  .rows = r->dims.local_tokens,
                                  .cols = r->dims.hidden,
                                  .epsilon = r->model->norm_epsilon > 0 ? r->model->norm_epsilon
                                                                        : usual_epsilon,
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

static void layer_rope(struct dtp_rank *r, void *qkv, bool inverse) {
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
                                    .theta = r->model->rope_theta > 0 ? r->model->rope_theta
                                                                      : usual_theta,
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
static enum dtp_status layer_attention(struct dtp_rank *r, const struct dtp_unit *u,
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
    layer_rope(r, x->qkv, false);
    DTP_TRY(layer_attention(r, u, x));
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

/* ---- backward ---- */

/* dw += dy^T x and db += column sums of dy. x is gathered first where it is sequence parallel. */
static void linear_grads(struct dtp_rank *r, const struct dtp_linear *l, const void *dy,
                         const void *x, void *const dwb[2]) {
    const int64_t shape[2] = {l->rows, l->out};
    dtp_linear_weights(r, l, dy, x, dwb[0]);
    if (dwb[1])
        r->ops->bias_backward(r->dev, dwb[1], dy, shape);
}

static enum dtp_status up_grads(struct dtp_rank *r, struct dtp_unit *u, const struct dtp_linear *l,
                                const void *dup, const void *n2) {
    bool gated = r->model->gated_ffn;
    void *const dwb[2] = {dtp_grad(r, u, gated ? DTP_P_GATE : DTP_P_UP),
                          dtp_grad(r, u, gated ? DTP_P_GATE_BIAS : DTP_P_UP_BIAS)};
    void *gathered;
    DTP_TRY(dtp_tp_gather(r, n2, &gathered));
    linear_grads(r, l, dup, gathered, dwb);
    dtp_tp_ungather(r, n2, gathered);
    return DTP_OK;
}

static enum dtp_status qkv_grads(struct dtp_rank *r, struct dtp_unit *u, const struct dtp_linear *l,
                                 const void *dqkv, const void *n1) {
    void *const dwb[2] = {dtp_grad(r, u, DTP_P_Q), dtp_grad(r, u, DTP_P_Q_BIAS)};
    void *gathered;
    DTP_TRY(dtp_tp_gather(r, n1, &gathered));
    linear_grads(r, l, dqkv, gathered, dwb);
    dtp_tp_ungather(r, n1, gathered);
    return DTP_OK;
}

static void down_grads(struct dtp_rank *r, struct dtp_unit *u, const struct dtp_linear *l,
                       const void *dout, const void *act) {
    void *const dwb[2] = {dtp_grad(r, u, DTP_P_DOWN), dtp_grad(r, u, DTP_P_DOWN_BIAS)};
    linear_grads(r, l, dout, act, dwb);
}

static void out_grads(struct dtp_rank *r, struct dtp_unit *u, const struct dtp_linear *l,
                      const void *dx1, const void *ctx) {
    void *const dwb[2] = {dtp_grad(r, u, DTP_P_OUT), dtp_grad(r, u, DTP_P_OUT_BIAS)};
    linear_grads(r, l, dx1, ctx, dwb);
}

/* Applies a dropout to the gradient dy [local tokens] and gathers all tokens: the result is dy itself, or a copy that
 * is released with dtp_tp_ungather(). */
static enum dtp_status gather_dropped(struct dtp_rank *r, const struct dtp_unit *u,
                                      enum dtp_dropout_place place, void *dy, void **out) {
    struct dtp_residual_args x = dtp_layer_residual(r, u->layer, place);
    void *kept;
    if (x.dropout.drop_below == 0)
        return dtp_tp_gather(r, dy, out);
    DTP_TRY(dtp_take(r, ACTS, "gradient behind a dropout", x.rows * x.cols, &kept));
    x.x = dy;
    x.out = kept;
    r->ops->bias_residual(r->dev, &x);
    DTP_TRY(dtp_tp_gather(r, kept, out));
    if (*out != kept)
        dtp_give(r, kept);
    return DTP_OK;
}

/* Gradient through a column-parallel layer and the norm before it: dx = norm'(reduce(dy W)) + residual.
 */
struct norm_step {
    const struct dtp_linear *l;
    int norm; /* parameter id */
    const void *x;
    float *stats;
    const void *residual;
};

static enum dtp_status through_norm(struct dtp_rank *r, struct dtp_unit *u,
                                    const struct norm_step *s, const void *dy, void **dx) {
    const struct dtp_dims *d = &r->dims;
    void *whole, *dn;
    DTP_TRY(dtp_take(r, ACTS, "gradient of a norm", d->tokens * d->hidden, &whole));
    dtp_linear_input(r, s->l, dy, whole);
    DTP_TRY(dtp_tp_reduce(r, ACTS, "gradient of a norm", whole, &dn));
    DTP_TRY(dtp_take(r, ACTS, "gradient of the residual stream", d->local_tokens * d->hidden, dx));
    struct dtp_norm_args n;
    dtp_layer_norm_args(r, u, s->norm, s->stats, &n);
    n.x = s->x;
    n.dy = dn;
    n.residual = s->residual;
    n.dx = *dx;
    n.dweight = dtp_grad(r, u, s->norm);
    n.dbias = dtp_grad(r, u, s->norm + 1);
    r->ops->norm_backward(r->dev, &n);
    dtp_give(r, dn);
    return DTP_OK;
}

/* x->dup from the gathered x->dout, through the activation. dout: as it came. */
static enum dtp_status mlp_out(struct dtp_rank *r, const struct dtp_linear *down,
                               struct dtp_layer_acts *x, void *dout) {
    const struct dtp_dims *d = &r->dims;
    const char *name = "gradient before activation";
    struct dtp_act_args act = dtp_layer_act(r);
    struct dtp_linear l = *down;
    bool fused = act.fn == DTP_ACT_FN_GELU;
    void *to;
    if (fused)
        DTP_TRY(dtp_take(r, ACTS, name, d->tokens * d->ffn, &to));
    else
        DTP_TRY(dtp_take(r, ACTS, "gradient after activation", d->tokens * d->ffn, &to));
    l.slope_at = fused ? x->up : NULL;
    dtp_linear_input(r, &l, x->dout, to);
    if (!r->split) {
        dtp_tp_ungather(r, dout, x->dout);
        x->dout = NULL;
    }
    x->dup = to;
    if (fused)
        return DTP_OK;
    DTP_TRY(dtp_take(r, ACTS, name, d->tokens * d->up_width, &x->dup));
    act.x = x->up;
    act.dy = to;
    act.dx = x->dup;
    r->ops->act_backward(r->dev, &act);
    dtp_give(r, to);
    return DTP_OK;
}

/* dout [local tokens] -> dx1 [local tokens], through the MLP. dout stays the caller's, except that a
 * split backward keeps a copy, gathered or behind the dropout, in x->dout. */
static enum dtp_status mlp_backward(struct dtp_rank *r, struct dtp_unit *u,
                                    struct dtp_layer_acts *x, void *dout, void **dx1) {
    struct dtp_layer_linears l;
    dtp_layer_linears(r, u, &l);
    DTP_TRY(gather_dropped(r, u, DTP_DROPOUT_MLP, dout, &x->dout));
    if (!r->split)
        down_grads(r, u, &l.down, x->dout, x->act);
    if (!r->split)
        DTP_DROP(r, x->act);
    DTP_TRY(mlp_out(r, &l.down, x, dout));
    DTP_DROP(r, x->up);
    if (!r->split)
        DTP_TRY(up_grads(r, u, &l.up, x->dup, x->n2));
    const struct norm_step s = {&l.up, DTP_P_NORM2, x->x1, x->stats2, dout};
    if (!r->split)
        DTP_DROP(r, x->n2);
    DTP_TRY(through_norm(r, u, &s, x->dup, dx1));
    if (!r->split)
        DTP_DROP(r, x->dup);
    DTP_DROP(r, x->x1);
    DTP_DROP(r, x->stats2);
    return DTP_OK;
}

/* dctx -> x->dqkv */
static enum dtp_status core_backward(struct dtp_rank *r, const struct dtp_unit *u,
                                     struct dtp_layer_acts *x, void *dctx) {
    const struct dtp_dims *d = &r->dims;
    struct dtp_attention_args args;
    DTP_TRY(
        dtp_take(r, ACTS, "gradient of queries, keys, values", d->tokens * d->qkv_width, &x->dqkv));
    dtp_layer_attention_args(r, u, x, &args);
    args.dout = dctx;
    args.dq = x->dqkv;
    args.dk = dtp_element(r, x->dqkv, d->q_width, false);
    args.dv = dtp_element(r, x->dqkv, d->q_width + d->kv_width, false);
    r->ops->attention_backward(r->dev, &args);
    layer_rope(r, x->dqkv, true);
    return DTP_OK;
}

static enum dtp_status attention_backward(struct dtp_rank *r, struct dtp_unit *u,
                                          struct dtp_layer_acts *x, void *dx1, void **dx) {
    const struct dtp_dims *d = &r->dims;
    struct dtp_layer_linears l;
    dtp_layer_linears(r, u, &l);
    void *dctx;
    if (!x->saved) /* selective recomputation */
        DTP_TRY(layer_attention(r, u, x));
    DTP_TRY(gather_dropped(r, u, DTP_DROPOUT_PROJECTION, dx1, &x->dx1));
    if (!r->split)
        out_grads(r, u, &l.out, x->dx1, x->ctx);
    DTP_TRY(dtp_take(r, ACTS, "gradient of the attention output", d->tokens * d->q_width, &dctx));
    dtp_linear_input(r, &l.out, x->dx1, dctx);
    if (!r->split) {
        dtp_tp_ungather(r, dx1, x->dx1);
        x->dx1 = NULL;
    }
    DTP_TRY(core_backward(r, u, x, dctx));
    dtp_give(r, dctx);
    DTP_DROP(r, x->saved);
    DTP_DROP(r, x->qkv);
    if (!r->split) {
        DTP_DROP(r, x->ctx);
        DTP_TRY(qkv_grads(r, u, &l.qkv, x->dqkv, x->n1));
        DTP_DROP(r, x->n1);
    }
    const struct norm_step s = {&l.qkv, DTP_P_NORM1, x->x, x->stats1, dx1};
    DTP_TRY(through_norm(r, u, &s, x->dqkv, dx));
    if (!r->split)
        DTP_DROP(r, x->dqkv);
    DTP_DROP(r, x->x);
    DTP_DROP(r, x->stats1);
    return DTP_OK;
}

enum dtp_status dtp_layer_backward(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x,
                                   void *dout, void **dx) {
    void *dx1;
    DTP_TRY(mlp_backward(r, u, x, dout, &dx1));
    if (x->dout != dout) /* else the split backward keeps dout itself */
        dtp_give(r, dout);
    DTP_TRY(attention_backward(r, u, x, dx1, dx));
    if (x->dx1 != dx1)
        dtp_give(r, dx1);
    return DTP_OK;
}

enum dtp_status dtp_layer_weights(struct dtp_rank *r, struct dtp_unit *u,
                                  struct dtp_layer_acts *x) {
    struct dtp_layer_linears l;
    dtp_layer_linears(r, u, &l);
    down_grads(r, u, &l.down, x->dout, x->act);
    DTP_DROP(r, x->dout);
    DTP_DROP(r, x->act);
    DTP_TRY(up_grads(r, u, &l.up, x->dup, x->n2));
    DTP_DROP(r, x->dup);
    DTP_DROP(r, x->n2);
    out_grads(r, u, &l.out, x->dx1, x->ctx);
    DTP_DROP(r, x->dx1);
    DTP_DROP(r, x->ctx);
    DTP_TRY(qkv_grads(r, u, &l.qkv, x->dqkv, x->n1));
    DTP_DROP(r, x->dqkv);
    DTP_DROP(r, x->n1);
    return DTP_OK;
}
