/* Tensor parallelism between the linear layers: g and g-bar of Korthikanti 2022, section 4.2. */
#include "runtime/rank.h"

static enum dtp_status all_reduce(struct dtp_rank *r, void *x, int64_t n, enum dtp_dtype dtype,
                                  enum dtp_reduce_op op) {
    int event = dtp_trace_begin(r, DTP_STREAM_TP, "tp all_reduce");
    dtp_order(r, DTP_STREAM_TP, DTP_STREAM_COMPUTE);
    DTP_TRY(r->cops->all_reduce(r->tp, DTP_STREAM_TP, x, n, dtype, op, r->err));
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_TP);
    dtp_trace_end(r, event);
    return DTP_OK;
}

enum dtp_status dtp_tp_all_reduce(struct dtp_rank *r, float *x, int64_t n, enum dtp_reduce_op op) {
    return r->tp ? all_reduce(r, x, n, DTP_FP32, op) : DTP_OK;
}

enum dtp_status dtp_tp_reduce(struct dtp_rank *r, enum dtp_mem class, const char *name, void *x,
                              void **out) {
    const struct dtp_dims *d = &r->dims;
    *out = x;
    if (!r->tp)
        return DTP_OK;
    if (!r->sp)
        return all_reduce(r, x, d->tokens * d->hidden, r->dev->dtype, DTP_REDUCE_SUM);
    int64_t n = d->local_tokens * d->hidden;
    DTP_TRY(dtp_take(r, class, name, n, out));
    int event = dtp_trace_begin(r, DTP_STREAM_TP, "tp reduce_scatter");
    dtp_order(r, DTP_STREAM_TP, DTP_STREAM_COMPUTE);
    DTP_TRY(r->cops->reduce_scatter(r->tp, DTP_STREAM_TP, *out, x, n, r->dev->dtype, r->err));
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_TP);
    dtp_trace_end(r, event);
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
    int event = dtp_trace_begin(r, DTP_STREAM_TP, "tp all_gather");
    dtp_order(r, DTP_STREAM_TP, DTP_STREAM_COMPUTE);
    DTP_TRY(r->cops->all_gather(r->tp, DTP_STREAM_TP, *out, x, d->local_tokens * d->hidden,
                                r->dev->dtype, r->err));
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_TP);
    dtp_trace_end(r, event);
    return DTP_OK;
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
