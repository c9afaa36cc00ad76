/* Backward of a layer, from dout to dx; weight gradients on the way, or later (dtp_layer_weights) when
 * the backward is split. Without a split each activation is released after its last use. */
#include "runtime/transformer.h"

#define BUFFERS DTP_MEM_ACTIVATIONS

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

/* The gradient behind a dropout, of all tokens, from dy [local tokens] before it: dy itself, or a copy that
 * is given back with dtp_tp_ungather(). */
static enum dtp_status gather_dropped(struct dtp_rank *r, const struct dtp_unit *u,
                                      enum dtp_dropout_place place, void *dy, void **out) {
    struct dtp_residual_args x = dtp_layer_residual(r, u->layer, place);
    void *kept;
    if (x.dropout.drop_below == 0)
        return dtp_tp_gather(r, dy, out);
    DTP_TRY(dtp_take(r, BUFFERS, "gradient behind a dropout", x.rows * x.cols, &kept));
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
    DTP_TRY(dtp_take(r, BUFFERS, "gradient of a norm", d->tokens * d->hidden, &whole));
    dtp_linear_input(r, s->l, dy, whole);
    DTP_TRY(dtp_tp_reduce(r, BUFFERS, "gradient of a norm", whole, &dn));
    DTP_TRY(
        dtp_take(r, BUFFERS, "gradient of the residual stream", d->local_tokens * d->hidden, dx));
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
        DTP_TRY(dtp_take(r, BUFFERS, name, d->tokens * d->ffn, &to));
    else
        DTP_TRY(dtp_take(r, BUFFERS, "gradient after activation", d->tokens * d->ffn, &to));
    l.slope_at = fused ? x->up : NULL;
    dtp_linear_input(r, &l, x->dout, to);
    if (!r->split) {
        dtp_tp_ungather(r, dout, x->dout);
        x->dout = NULL;
    }
    x->dup = to;
    if (fused)
        return DTP_OK;
    DTP_TRY(dtp_take(r, BUFFERS, name, d->tokens * d->up_width, &x->dup));
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
    DTP_TRY(dtp_take(r, BUFFERS, "gradient of queries, keys, values", d->tokens * d->qkv_width,
                     &x->dqkv));
    dtp_layer_attention_args(r, u, x, &args);
    args.dout = dctx;
    args.dq = x->dqkv;
    args.dk = dtp_element(r, x->dqkv, d->q_width, false);
    args.dv = dtp_element(r, x->dqkv, d->q_width + d->kv_width, false);
    r->ops->attention_backward(r->dev, &args);
    dtp_layer_rope(r, x->dqkv, true);
    return DTP_OK;
}

static enum dtp_status attention_backward(struct dtp_rank *r, struct dtp_unit *u,
                                          struct dtp_layer_acts *x, void *dx1, void **dx) {
    const struct dtp_dims *d = &r->dims;
    struct dtp_layer_linears l;
    dtp_layer_linears(r, u, &l);
    void *dctx;
    if (!x->saved) /* selective recomputation */
        DTP_TRY(dtp_layer_attention(r, u, x));
    DTP_TRY(gather_dropped(r, u, DTP_DROPOUT_PROJECTION, dx1, &x->dx1));
    if (!r->split)
        out_grads(r, u, &l.out, x->dx1, x->ctx);
    DTP_TRY(
        dtp_take(r, BUFFERS, "gradient of the attention output", d->tokens * d->q_width, &dctx));
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
