/* Tensor parallelism between the linear layers: g and g-bar of Korthikanti 2022, section 4.2. */
#include <stdio.h>

#include "runtime/device/graphs.h"
#include "runtime/rank.h"

bool dtp_within_host(const struct dtp_rank *r, const struct dtp_comm_group *g) {
    return g->rank[0] >= r->first_local && g->rank[g->size - 1] < r->first_local + r->local_size;
}

/* Compute waits for each of them: they are on its stream, and parts of graphs where no host takes part in
 * them (nccl_comm.c). */
static enum dtp_status run(struct dtp_rank *r, const struct dtp_collective_args *x) {
    char name[28];
    snprintf(name, sizeof name, "tp %s", dtp_collective_names[x->kind]);
    int event = dtp_trace_begin_part(r, DTP_STREAM_TP, name);
    DTP_TRY(dtp_graphs_collective(r->dev, x, dtp_within_host(r, x->group), r->err));
    dtp_trace_end(r, event);
    return DTP_OK;
}

enum dtp_status dtp_tp_all_reduce(struct dtp_rank *r, struct dtp_comm_group *g, void *x, int64_t n,
                                  enum dtp_dtype dtype, enum dtp_reduce_op op) {
    const struct dtp_collective_args all = {
        .group = g, .out = x, .in = x, .n = n, .kind = DTP_ALL_REDUCE, .dtype = dtype, .op = op};
    return g ? run(r, &all) : DTP_OK;
}

enum dtp_status dtp_tp_reduce(struct dtp_rank *r, enum dtp_mem class, const char *name, void *x,
                              void **out) {
    const struct dtp_dims *d = &r->dims;
    *out = x;
    if (!r->sp)
        return dtp_tp_all_reduce(r, r->tp, x, d->tokens * d->hidden, r->dev->dtype, DTP_REDUCE_SUM);
    int64_t n = d->local_tokens * d->hidden;
    DTP_TRY(dtp_take(r, class, name, n, out));
    const struct dtp_collective_args scatter = {.group = r->tp,
                                                .out = *out,
                                                .in = x,
                                                .n = n,
                                                .kind = DTP_REDUCE_SCATTER,
                                                .dtype = r->dev->dtype};
    DTP_TRY(run(r, &scatter));
    dtp_give(r, x);
    return DTP_OK;
}

enum dtp_status dtp_tp_gather(struct dtp_rank *r, const void *x, void **out) {
    const struct dtp_dims *d = &r->dims;
    union {
        const void *from;
        void *to;
    } same = {.from = x}; /* read only when nothing is gathered */
    *out = same.to;
    if (!r->sp)
        return DTP_OK;
    DTP_TRY(dtp_take(r, DTP_MEM_BUFFERS, "gathered sequence", d->tokens * d->hidden, out));
    const struct dtp_collective_args gather = {.group = r->tp,
                                               .out = *out,
                                               .in = x,
                                               .n = d->local_tokens * d->hidden,
                                               .kind = DTP_ALL_GATHER,
                                               .dtype = r->dev->dtype};
    return run(r, &gather);
}

void dtp_tp_ungather(struct dtp_rank *r, const void *x, void *gathered) {
    if (gathered != x)
        dtp_give(r, gathered);
}

/* ---- linear layers ---- */

void dtp_linear_forward(struct dtp_rank *r, const struct dtp_linear *l, const void *x, void *y) {
    const struct dtp_gemm_args g = {.a = x,
                                    .lda = l->in,
                                    .b = l->w,
                                    .tb = true,
                                    .ldb = l->in,
                                    .c = y,
                                    .ldc = l->out,
                                    .m = l->rows,
                                    .n = l->out,
                                    .k = l->in,
                                    .bias = l->bias,
                                    .before = l->before};
    r->ops->gemm(r->dev, &g);
}

void dtp_linear_input(struct dtp_rank *r, const struct dtp_linear *l, const void *dy, void *dx) {
    const struct dtp_gemm_args g = {.a = dy,
                                    .lda = l->out,
                                    .b = l->w,
                                    .ldb = l->in,
                                    .c = dx,
                                    .ldc = l->in,
                                    .m = l->rows,
                                    .n = l->in,
                                    .k = l->out,
                                    .slope_at = l->slope_at};
    r->ops->gemm(r->dev, &g);
}

void dtp_linear_weights(struct dtp_rank *r, const struct dtp_linear *l, const void *dy,
                        const void *x, void *dw) {
    const struct dtp_gemm_args g = {.a = dy,
                                    .ta = true,
                                    .lda = l->out,
                                    .b = x,
                                    .ldb = l->in,
                                    .c = dw,
                                    .ldc = l->in,
                                    .m = l->out,
                                    .n = l->in,
                                    .k = l->rows,
                                    .accumulate = true,
                                    .c_gradient = true};
    r->ops->gemm(r->dev, &g);
}
