/* F, B, I and W of a chunk and a microbatch: its layers, and the embedding, head and loss at the ends of the model. */
#include "runtime/transformer/transformer.h"

#include <stdio.h>

/* ---- embedding, head and loss ---- */

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

static enum dtp_status embed_forward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
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

static enum dtp_status embed_weights(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
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

static enum dtp_status head_forward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
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

static enum dtp_status head_weights(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m) {
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
        DTP_TRY(head_weights(r, c, m));
    return dtp_tp_reduce(r, ACTS, "gradient of a norm", whole, dn);
}

static enum dtp_status head_backward(struct dtp_rank *r, struct dtp_chunk *c, struct dtp_micro *m,
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

/* ---- actions of a chunk ---- */

/* Makes a microbatch the current one, and returns it. */
static struct dtp_micro *micro_of(struct dtp_rank *r, int chunk, int microbatch) {
    r->sequence = ((int64_t)r->layout.dp_rank * r->num_microbatches + microbatch) * r->dims.batch;
    if (r->o->dropout + r->o->attention_dropout > 0) {
        const uint32_t now[] = {(uint32_t)r->step, (uint32_t)r->sequence};
        r->ops->copy_in(r->dev, dtp_rank_now(r), now, sizeof now);
    }
    return &r->micro[chunk][microbatch];
}

/* Token ids of the microbatch's sequences, rows by position: row = position * batch + sequence. */
static enum dtp_status load_tokens(struct dtp_rank *r, int microbatch, bool targets,
                                   int32_t **out) {
    const struct dtp_dims *d = &r->dims;
    const int32_t *from = r->drawn + microbatch * d->batch * (d->seq + 1) + (targets ? 1 : 0);
    float *p;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->seq; i++)
            r->host_ids[i * d->batch + b] = from[b * (d->seq + 1) + i];
    DTP_TRY(dtp_take_floats(r, DTP_MEM_ACTIVATIONS, "token ids", d->tokens, &p));
    *out = (int32_t *)(void *)p;
    r->ops->copy_in(r->dev, p, r->host_ids, (uint64_t)d->tokens * sizeof **out);
    return DTP_OK;
}

enum dtp_status dtp_chunk_forward(struct dtp_rank *r, int chunk, int microbatch) {
    struct dtp_chunk *c = &r->layout.chunk[chunk];
    struct dtp_micro *m = micro_of(r, chunk, microbatch);
    if (c->first)
        DTP_TRY(load_tokens(r, microbatch, false, &m->ids));
    if (c->last)
        DTP_TRY(load_tokens(r, microbatch, true, &m->targets));
    if (c->first)
        DTP_TRY(embed_forward(r, c, m));
    for (int i = 0; i < c->nlayers; i++) {
        struct dtp_unit *u = &c->layer[i];
        void *out;
        m->layer[i].x = m->x;
        DTP_TRY(dtp_unit_need(r, u, 1));
        DTP_TRY(dtp_layer_forward(r, u, &m->layer[i], false, &out));
        dtp_unit_used(r, u);
        if (dtp_layer_recomputed(r, c, i))
            dtp_layer_drop(r, &m->layer[i], true);
        m->x = out;
    }
    return c->last ? head_forward(r, c, m) : DTP_OK;
}

/* The layer's activations once more, from its input. */
static enum dtp_status recompute(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x,
                                 int microbatch) {
    char name[28];
    void *out;
    snprintf(name, sizeof name, "%dC%d layer %d", u->chunk, microbatch, u->layer);
    int event = dtp_trace_begin_part(r, DTP_STREAM_COMPUTE, name);
    DTP_TRY(dtp_layer_forward(r, u, x, true, &out));
    dtp_give(r, out);
    dtp_trace_end(r, event);
    return DTP_OK;
}

static enum dtp_status ends_done(struct dtp_rank *r, struct dtp_chunk *c, bool last) {
    DTP_TRY(dtp_unit_done(r, c->tokens, last));
    return c->positions ? dtp_unit_done(r, c->positions, last) : DTP_OK;
}

/* The head, when it is not the first stage's tokens too: those are complete with the embedding. */
static enum dtp_status head_done(struct dtp_rank *r, struct dtp_chunk *c, bool last) {
    DTP_TRY(dtp_unit_done(r, c->norm, last));
    return c->head != c->tokens ? dtp_unit_done(r, c->head, last) : DTP_OK;
}

enum dtp_status dtp_chunk_backward(struct dtp_rank *r, int chunk, int microbatch, bool last) {
    struct dtp_chunk *c = &r->layout.chunk[chunk];
    struct dtp_micro *m = micro_of(r, chunk, microbatch);
    void *grad = m->grad;
    m->grad = NULL;
    if (c->last)
        DTP_TRY(head_backward(r, c, m, &grad));
    if (c->last && !r->split)
        DTP_TRY(head_done(r, c, last));
    for (int i = c->nlayers - 1; i >= 0; i--) {
        struct dtp_unit *u = &c->layer[i];
        DTP_TRY(dtp_unit_need(r, u, -1));
        DTP_TRY(dtp_unit_grads(r, u));
        if (dtp_layer_recomputed(r, c, i))
            DTP_TRY(recompute(r, u, &m->layer[i], microbatch));
        DTP_TRY(dtp_layer_backward(r, u, &m->layer[i], grad, &grad));
        dtp_unit_used(r, u);
        if (!r->split)
            DTP_TRY(dtp_unit_done(r, u, last));
    }
    if (!c->first) {
        m->grad = grad;
        return DTP_OK;
    }
    m->dembed = grad;
    if (r->split)
        return DTP_OK;
    DTP_TRY(embed_weights(r, c, m));
    return ends_done(r, c, last);
}

enum dtp_status dtp_chunk_weights(struct dtp_rank *r, int chunk, int microbatch, bool last) {
    struct dtp_chunk *c = &r->layout.chunk[chunk];
    struct dtp_micro *m = micro_of(r, chunk, microbatch);
    if (c->last) {
        DTP_TRY(head_weights(r, c, m));
        DTP_TRY(head_done(r, c, last));
    }
    for (int i = c->nlayers - 1; i >= 0; i--) {
        struct dtp_unit *u = &c->layer[i];
        DTP_TRY(dtp_unit_grads(r, u));
        DTP_TRY(dtp_layer_weights(r, u, &m->layer[i]));
        DTP_TRY(dtp_unit_done(r, u, last));
    }
    if (!c->first)
        return DTP_OK;
    DTP_TRY(embed_weights(r, c, m));
    return ends_done(r, c, last);
}
