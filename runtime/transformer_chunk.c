/* F, B, I and W of a chunk and a microbatch. */
#include <stdio.h>

#include "runtime/rank.h"

/* From now on the microbatch at hand. */
static struct dtp_micro *micro_of(struct dtp_rank *r, int chunk, int microbatch) {
    r->sequence = ((int64_t)r->layout.dp_rank * r->num_microbatches + microbatch) * r->dims.batch;
    if (r->o->dropout + r->o->attention_dropout > 0) {
        const uint32_t now[] = {(uint32_t)r->step, (uint32_t)r->sequence};
        r->ops->copy_in(r->dev, dtp_rank_now(r), now, sizeof now);
    }
    return &r->micro[chunk][microbatch];
}

void dtp_draw_tokens(struct dtp_rank *r, int step) {
    bool uses = false;
    for (int c = 0; c < r->layout.nchunks; c++)
        uses |= r->layout.chunk[c].first || r->layout.chunk[c].last;
    if (!uses || step == r->drawn_step)
        return;
    int64_t n = r->num_microbatches * r->dims.batch, row = r->dims.seq + 1;
    uint64_t first = (uint64_t)step * (uint64_t)r->plan->global_batch_size +
                     (uint64_t)r->layout.dp_rank * (uint64_t)n;
    for (int64_t i = 0; i < n; i++)
        dtp_data_sequence(r->data, first + (uint64_t)i, r->drawn + i * row);
    r->drawn_step = step;
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
        DTP_TRY(dtp_embed_forward(r, c, m));
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
    return c->last ? dtp_head_forward(r, c, m) : DTP_OK;
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
        DTP_TRY(dtp_head_backward(r, c, m, &grad));
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
    DTP_TRY(dtp_embed_weights(r, c, m));
    return ends_done(r, c, last);
}

enum dtp_status dtp_chunk_weights(struct dtp_rank *r, int chunk, int microbatch, bool last) {
    struct dtp_chunk *c = &r->layout.chunk[chunk];
    struct dtp_micro *m = micro_of(r, chunk, microbatch);
    if (c->last) {
        DTP_TRY(dtp_head_weights(r, c, m));
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
    DTP_TRY(dtp_embed_weights(r, c, m));
    return ends_done(r, c, last);
}
