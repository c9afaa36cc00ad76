/* The first and the last stage: embedding, final norm, vocabulary-parallel head and loss. */
#include "runtime/transformer.h"

#define ACTS DTP_MEM_ACTIVATIONS

static struct dtp_embedding_args token_args(const struct dtp_rank *r, const struct dtp_micro *m) {
    const struct dtp_dims *d = &r->dims;
    return (struct dtp_embedding_args){.ids = m->ids,
                                       .rows = d->tokens,
                                       .cols = d->hidden,
                                       .valid = d->vocab_valid,
                                       .first = d->vocab_first,
                                       .batch = d->batch};
}

/* Positions are added after the sum over tp: to this rank's tokens. */
static struct dtp_embedding_args position_args(const struct dtp_rank *r) {
    const struct dtp_dims *d = &r->dims;
    int64_t first = r->sp ? r->layout.tp_rank * d->local_tokens / d->batch : 0;
    return (struct dtp_embedding_args){
        .rows = d->local_tokens, .cols = d->hidden, .first = first, .batch = d->batch};
}

/* In place: x forward, its gradient backward. */
static void drop_embedding(struct dtp_rank *r, void *x) {
    struct dtp_residual_args all = dtp_layer_residual(r, 0, DTP_DROPOUT_EMBEDDING);
    all.x = all.out = x;
    if (all.dropout.drop_below > 0)
        r->ops->bias_residual(r->dev, &all);
}

static enum dtp_status add_positions(struct dtp_rank *r, struct dtp_chunk *c, void *x) {
    struct dtp_embedding_args p = position_args(r);
    DTP_TRY(dtp_unit_need(r, c->positions, 1));
    p.table = dtp_weight(r, c->positions, DTP_P_TABLE);
    p.out = x;
    r->ops->position_add(r->dev, &p);
    dtp_unit_used(r, c->positions);
    return DTP_OK;
}

enum dtp_status dtp_embed_forward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
    struct dtp_embedding_args t = token_args(r, m);
    void *sum;
    DTP_TRY(dtp_unit_need(r, c->tokens, 1));
    DTP_TRY(dtp_take(r, ACTS, "embedding", r->dims.tokens * r->dims.hidden, &sum));
    t.table = dtp_weight(r, c->tokens, DTP_P_TABLE);
    t.out = sum;
    r->ops->embed(r->dev, &t);
    dtp_unit_used(r, c->tokens);
    DTP_TRY(dtp_tp_reduce(r, ACTS, "embedding", sum, &m->x));
    if (c->positions)
        DTP_TRY(add_positions(r, c, m->x));
    drop_embedding(r, m->x);
    return DTP_OK;
}

enum dtp_status dtp_embed_weights(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
    struct dtp_embedding_args t = token_args(r, m), p = position_args(r);
    void *gathered;
    drop_embedding(r, m->dembed);
    DTP_TRY(dtp_unit_grads(r, c->tokens));
    DTP_TRY(dtp_tp_gather(r, m->dembed, &gathered));
    t.dout = gathered;
    t.dtable = dtp_grad(r, c->tokens, DTP_P_TABLE);
    r->ops->embed_backward(r->dev, &t);
    dtp_tp_ungather(r, m->dembed, gathered);
    if (c->positions) {
        DTP_TRY(dtp_unit_grads(r, c->positions));
        p.dout = m->dembed;
        p.dtable = dtp_grad(r, c->positions, DTP_P_TABLE);
        r->ops->position_backward(r->dev, &p);
    }
    DTP_DROP(r, m->dembed);
    DTP_DROP(r, m->ids);
    return DTP_OK;
}

/* ---- head ---- */

static struct dtp_loss_args loss_args(const struct dtp_rank *r, const struct dtp_micro *m) {
    const struct dtp_dims *d = &r->dims;
    return (struct dtp_loss_args){.logits = m->logits,
                                  .rows = d->tokens,
                                  .cols = d->vocab,
                                  .valid = d->vocab_valid,
                                  .first = d->vocab_first,
                                  .targets = m->targets,
                                  .max = m->rows,
                                  .sum = m->rows + d->tokens,
                                  .target = m->rows + 2 * d->tokens,
                                  .loss = r->scalars + DTP_SCALAR_LOSS,
                                  .scale = r->tokens_inverse};
}

static struct dtp_linear head_linear(const struct dtp_rank *r, const struct dtp_chunk *c) {
    return (struct dtp_linear){r->dims.tokens, r->dims.hidden, r->dims.vocab,
                               dtp_weight(r, c->head, DTP_P_TABLE), NULL};
}

static enum dtp_status final_norm(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
    const struct dtp_dims *d = &r->dims;
    struct dtp_norm_args n;
    DTP_TRY(dtp_unit_need(r, c->norm, 1));
    DTP_TRY(dtp_take_floats(r, ACTS, "norm statistics", 2 * d->local_tokens, &m->head_stats));
    DTP_TRY(dtp_take(r, ACTS, "norm", d->local_tokens * d->hidden, &m->head_n));
    dtp_layer_norm_args(r, c->norm, DTP_P_NORM, m->head_stats, &n);
    n.x = m->head_x;
    n.y = m->head_n;
    r->ops->norm_forward(r->dev, &n);
    dtp_unit_used(r, c->norm);
    return DTP_OK;
}

/* The loss of Megatron's vocabulary-parallel cross-entropy: two all-reduces of one number per token. */
static enum dtp_status loss(struct dtp_rank *r, struct dtp_micro *m) {
    struct dtp_loss_args x = loss_args(r, m);
    r->ops->loss_max(r->dev, &x);
    DTP_TRY(dtp_tp_all_reduce(r, r->tp, x.max, x.rows, DTP_FP32, DTP_REDUCE_MAX));
    r->ops->loss_sum(r->dev, &x);
    DTP_TRY(dtp_tp_all_reduce(r, r->tp, x.sum, 2 * x.rows, DTP_FP32, DTP_REDUCE_SUM));
    r->ops->loss_mean(r->dev, &x);
    return DTP_OK;
}

enum dtp_status dtp_head_forward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
    const struct dtp_dims *d = &r->dims;
    void *gathered;
    m->head_x = m->x;
    m->x = NULL;
    DTP_TRY(final_norm(r, c, m));
    DTP_TRY(dtp_unit_need(r, c->head, 1));
    DTP_TRY(dtp_tp_gather(r, m->head_n, &gathered));
    DTP_TRY(dtp_take(r, DTP_MEM_LOGITS, "logits", d->tokens * d->vocab, &m->logits));
    const struct dtp_linear l = head_linear(r, c);
    dtp_linear_forward(r, &l, gathered, m->logits);
    dtp_tp_ungather(r, m->head_n, gathered);
    dtp_unit_used(r, c->head);
    DTP_TRY(dtp_take_floats(r, DTP_MEM_LOGITS, "loss per token", 3 * d->tokens, &m->rows));
    return loss(r, m);
}

enum dtp_status dtp_head_weights(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
    const struct dtp_linear l = head_linear(r, c);
    void *gathered;
    DTP_TRY(dtp_unit_grads(r, c->head));
    DTP_TRY(dtp_tp_gather(r, m->head_n, &gathered));
    dtp_linear_weights(r, &l, m->logits, gathered, dtp_grad(r, c->head, DTP_P_TABLE));
    dtp_tp_ungather(r, m->head_n, gathered);
    DTP_DROP(r, m->logits);
    DTP_DROP(r, m->head_n);
    return DTP_OK;
}

/* Gradient of the final norm's output, summed over tp. */
static enum dtp_status head_input(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m,
                                  void **dn) {
    struct dtp_loss_args x = loss_args(r, m);
    void *whole;
    x.scale *= r->loss_scale.scale;
    r->ops->loss_grad(r->dev, &x);
    DTP_DROP(r, m->rows);
    DTP_DROP(r, m->targets);
    DTP_TRY(dtp_unit_need(r, c->head, -1));
    DTP_TRY(dtp_take(r, ACTS, "gradient of a norm", r->dims.tokens * r->dims.hidden, &whole));
    const struct dtp_linear l = head_linear(r, c);
    dtp_linear_input(r, &l, m->logits, whole);
    dtp_unit_used(r, c->head);
    if (!r->split)
        DTP_TRY(dtp_head_weights(r, c, m));
    return dtp_tp_reduce(r, ACTS, "gradient of a norm", whole, dn);
}

enum dtp_status dtp_head_backward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m,
                                  void **dx) {
    const struct dtp_dims *d = &r->dims;
    struct dtp_norm_args n;
    void *dn;
    DTP_TRY(head_input(r, c, m, &dn));
    DTP_TRY(dtp_unit_need(r, c->norm, -1));
    DTP_TRY(dtp_unit_grads(r, c->norm));
    DTP_TRY(dtp_take(r, ACTS, "gradient of the residual stream", d->local_tokens * d->hidden, dx));
    dtp_layer_norm_args(r, c->norm, DTP_P_NORM, m->head_stats, &n);
    n.x = m->head_x;
    n.dy = dn;
    n.dx = *dx;
    n.dweight = dtp_grad(r, c->norm, DTP_P_NORM);
    n.dbias = dtp_grad(r, c->norm, DTP_P_NORM_BIAS);
    r->ops->norm_backward(r->dev, &n);
    dtp_unit_used(r, c->norm);
    dtp_give(r, dn);
    DTP_DROP(r, m->head_x);
    DTP_DROP(r, m->head_stats);
    return DTP_OK;
}
