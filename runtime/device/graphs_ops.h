/* graphs_ops.h: what a graph can hold: operations of the device's table, and collectives; each with its
 * arguments in one struct; internal to graphs.c, and to the fake module of the tests. */
#ifndef DTP_RUNTIME_GRAPHS_OPS_H
#define DTP_RUNTIME_GRAPHS_OPS_H

#include "runtime/device/graphs.h"

/* Arguments of those operations of the table that do not take a struct. */
struct dtp_bias_backward_args {
    void *dbias;
    const void *dy;
    int64_t shape[2];
};
struct dtp_add_args {
    void *to;
    const void *from;
    int64_t n, gradients;
};
struct dtp_copy_args {
    void *to;
    const void *from;
    uint64_t bytes;
};
struct dtp_zero_args {
    void *to;
    uint64_t bytes;
};

#define DTP_GRAPHS_STRUCT_OPS(X)                                                                   \
    X(gemm, dtp_gemm_args)                                                                         \
    X(norm_forward, dtp_norm_args)                                                                 \
    X(norm_backward, dtp_norm_args)                                                                \
    X(rope, dtp_rope_args)                                                                         \
    X(attention_forward, dtp_attention_args)                                                       \
    X(attention_backward, dtp_attention_args)                                                      \
    X(act_forward, dtp_act_args)                                                                   \
    X(act_backward, dtp_act_args)                                                                  \
    X(loss_max, dtp_loss_args)                                                                     \
    X(loss_sum, dtp_loss_args)                                                                     \
    X(loss_mean, dtp_loss_args)                                                                    \
    X(loss_grad, dtp_loss_args)                                                                    \
    X(embed, dtp_embedding_args)                                                                   \
    X(embed_backward, dtp_embedding_args)                                                          \
    X(position_add, dtp_embedding_args)                                                            \
    X(position_backward, dtp_embedding_args)                                                       \
    X(bias_residual, dtp_residual_args)                                                            \
    X(norm2, dtp_norm2_args)
/* These operations take words instead: X(name, parameters, initializer of its struct...). */
#define DTP_GRAPHS_WORD_OPS(X)                                                                     \
    X(bias_backward, (struct dtp_dev * d, void *dbias, const void *dy, const int64_t shape[2]),    \
      dbias, dy, {shape[0], shape[1]})                                                             \
    X(add, (struct dtp_dev * d, void *to, const void *from, int64_t n, bool gradients), to, from,  \
      n, gradients)                                                                                \
    X(copy, (struct dtp_dev * d, void *to, const void *from, uint64_t bytes), to, from, bytes)     \
    X(zero, (struct dtp_dev * d, void *to, uint64_t bytes), to, bytes)
#define DTP_GRAPHS_OPS(X)                                                                          \
    DTP_GRAPHS_STRUCT_OPS(X)                                                                       \
    X(bias_backward, dtp_bias_backward_args)                                                       \
    X(add, dtp_add_args)                                                                           \
    X(copy, dtp_copy_args)                                                                         \
    X(zero, dtp_zero_args)

enum dtp_op {
#define DTP_OP_NUMBER(name, args) DTP_OP_##name,
    DTP_GRAPHS_OPS(DTP_OP_NUMBER) DTP_OP_collective
};

/* An operation of a table, from its arguments. */
#define DTP_OP_RUN(name, type)                                                                     \
    static inline enum dtp_status dtp_op_run_##name(                                               \
        const struct dtp_dev_ops *ops, struct dtp_dev *d, const void *args, struct dtp_err *err) { \
        (void)err;                                                                                 \
        ops->name(d, args);                                                                        \
        return DTP_OK;                                                                             \
    }
DTP_GRAPHS_STRUCT_OPS(DTP_OP_RUN)

static inline enum dtp_status dtp_op_run_bias_backward(const struct dtp_dev_ops *ops,
                                                       struct dtp_dev *d, const void *args,
                                                       struct dtp_err *err) {
    const struct dtp_bias_backward_args *x = args;
    (void)err;
    ops->bias_backward(d, x->dbias, x->dy, x->shape);
    return DTP_OK;
}

static inline enum dtp_status dtp_op_run_add(const struct dtp_dev_ops *ops, struct dtp_dev *d,
                                             const void *args, struct dtp_err *err) {
    const struct dtp_add_args *x = args;
    (void)err;
    ops->add(d, x->to, x->from, x->n, x->gradients != 0);
    return DTP_OK;
}

static inline enum dtp_status dtp_op_run_copy(const struct dtp_dev_ops *ops, struct dtp_dev *d,
                                              const void *args, struct dtp_err *err) {
    const struct dtp_copy_args *x = args;
    (void)err;
    ops->copy(d, x->to, x->from, x->bytes);
    return DTP_OK;
}

static inline enum dtp_status dtp_op_run_zero(const struct dtp_dev_ops *ops, struct dtp_dev *d,
                                              const void *args, struct dtp_err *err) {
    const struct dtp_zero_args *x = args;
    (void)err;
    ops->zero(d, x->to, x->bytes);
    return DTP_OK;
}

static inline enum dtp_status dtp_op_run_collective(const struct dtp_dev_ops *ops,
                                                    struct dtp_dev *d, const void *args,
                                                    struct dtp_err *err) {
    const struct dtp_collective_args *x = args;
    const struct dtp_comm_ops *c = x->group->comm->ops;
    const enum dtp_stream stream = DTP_STREAM_COMPUTE;
    (void)ops, (void)d;
    if (x->kind == DTP_ALL_GATHER)
        return c->all_gather(x->group, stream, x->out, x->in, x->n, x->dtype, err);
    if (x->kind == DTP_REDUCE_SCATTER)
        return c->reduce_scatter(x->group, stream, x->out, x->in, x->n, x->dtype, err);
    return c->all_reduce(x->group, stream, x->out, x->n, x->dtype, x->op, err);
}

static const struct dtp_op_row {
    enum dtp_status (*run)(const struct dtp_dev_ops *ops, struct dtp_dev *d, const void *args,
                           struct dtp_err *err);
    size_t size;
} dtp_op_rows[] = {
#define DTP_OP_ROW(name, type) [DTP_OP_##name] = {dtp_op_run_##name, sizeof(struct type)},
    DTP_GRAPHS_OPS(DTP_OP_ROW) DTP_OP_ROW(collective, dtp_collective_args)};

#endif
