/* op_internal.h: what the builders of lists share: sizes of a rank and what adds operations (op_build.c), the parts of a
 * layer that several stacks have (op_attention.c, op_moe.c), and the layers and ends of each stack. */
#ifndef DTP_MODELS_OP_INTERNAL_H
#define DTP_MODELS_OP_INTERNAL_H

#include "models/ops/op.h"

/* Sizes of one rank and one microbatch after dividing by tp and cp. */
struct dtp_op_build {
    const struct dtp_problem *problem;
    const struct dtp_model *m;
    const struct dtp_framework *f;
    const struct dtp_layer_key *key;
    struct dtp_ops *out;
    double e;      /* bytes of an activation element */
    double tokens; /* N = microbatch x seq / cp */
    double z;      /* N h, over tp with sequence parallelism: where norms and dropout work */
    double h, t;   /* hidden size, tp */
    double q_width, kv_width, ffn; /* a d / t, g d / t, f / t */
    int window;           /* keys that a query of this layer sees, fewer than all; 0: all */
    enum dtp_dtype dtype; /* the GEMMs being added: FP8 in layers, 16 bit elsewhere */
    bool dropout, attention_dropout, tp_overlap;
    bool fused_activation; /* one kernel between the products of the MLP */
    bool norm_cast; /* the norm of the block wrote the FP8 cast that its first products read */
};

/* The next operation of the list, once and with one launch. */
struct dtp_op *dtp_op_add(struct dtp_op_build *b, const char *name, enum dtp_op_kind kind,
                          enum dtp_pass pass);
struct dtp_op *dtp_op_kernel(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                             enum dtp_kernel k, double bytes, double elements);
/* A linear layer [rows, in] x [in, out]: forward, input gradient, weight gradient. saved_bytes: what
 * the forward keeps for the backward. */
void dtp_op_linear(struct dtp_op_build *b, const char *name, double rows, double in, double out,
                   double saved_bytes);
/* `batch` products [m, k] x [k, n]. */
struct dtp_op_shape {
    double m, n, k, batch;
    bool row_parallel; /* tp divides k and not n: of its tensors the output is whole in width */
};
void dtp_op_gemm(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                 struct dtp_op_shape s);
/* `batch` linear layers, each [m = rows, k = in] x [k, n = out]: forward, input gradient, weight
 * gradient. saved_bytes: what the forward keeps for the backward. */
void dtp_op_linears(struct dtp_op_build *b, const char *name, struct dtp_op_shape s,
                    double saved_bytes);
/* The norm from `from` on belongs to the module of the block's first products, where there are such modules:
 * sets norm_cast if its kernel writes their cast. */
void dtp_op_norm_within(struct dtp_op_build *b, int from);
struct dtp_op *dtp_op_collective(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                                 enum dtp_collective kind, enum dtp_axis axis, double bytes);
/* Adds a norm of `elements` elements, forward and backward. */
void dtp_op_norm(struct dtp_op_build *b, const char *name, double elements, double saved_bytes);
/* Output of a block: bias, dropout and the residual add. */
void dtp_op_residual(struct dtp_op_build *b, bool bias);
/* Return what is kept for the weight gradient: an input that only the product needs, attention's output, the input of a
 * column-parallel layer. */
double dtp_op_input_bytes(const struct dtp_op_build *b, double elements);
double dtp_op_context_bytes(const struct dtp_op_build *b, double elements);
double dtp_op_column_input_bytes(const struct dtp_op_build *b);
/* Adds the sum of the n + 1 input gradients of separate products on one input. */
void dtp_op_input_gradient_adds(struct dtp_op_build *b, double n);
/* Adds the activation between the products of an MLP of width ffn (for ffn = b->ffn). */
void dtp_op_activation(struct dtp_op_build *b, double rows, bool bias);
/* Adds a dense MLP on `rows` rows; saved_in_bytes: what its input keeps. */
void dtp_op_mlp(struct dtp_op_build *b, const char *up, const char *down, double rows,
                double saved_in_bytes);
/* Adds the experts of a layer with all that surrounds them (op_moe.c). */
void dtp_op_moe(struct dtp_op_build *b);
/* Entry and exit of a block that tp divides (Shoeybi 2019; Korthikanti 2022). */
void dtp_op_tp_enter(struct dtp_op_build *b);
void dtp_op_tp_leave(struct dtp_op_build *b);
/* Returns the kernel that the problem asks for, else the framework's on this GPU. */
enum dtp_attention dtp_op_attention_kernel(const struct dtp_op_build *b);
/* Adds the attention core, fused or with scores in memory. */
void dtp_op_attention_core(struct dtp_op_build *b);
/* Adds norm, projections, core, output projection and residual (op_attention.c). */
void dtp_op_attention_block(struct dtp_op_build *b);
/* Marks the forward operations from `from` on: these modules recompute them and do not keep what they saved. Inputs of
 * products from there on are recomputed, so that they are not kept and their FP8 casts are repeated. */
void dtp_op_again(struct dtp_op_build *b, int from, int modules);
void dtp_op_dropped(struct dtp_op_build *b, int from, int modules);
void dtp_op_input_dropped(struct dtp_op_build *b, int from, int modules);
/* Each row of a table, whose name is NULL at its end, as a kernel on a tensor of so many elements. */
struct dtp_op_row {
    const char *name;
    enum dtp_pass pass;
    enum dtp_kernel kernel;
    double bytes, elements; /* per element of the tensor */
};
void dtp_op_rows(struct dtp_op_build *b, const struct dtp_op_row *r, double elements);
/* The last forward operation keeps so many more bytes for the backward. */
void dtp_op_keep(struct dtp_op_build *b, double bytes);
/* RMS norm as Python has it, one kernel per operator. */
void dtp_op_rms_norm_in_parts(struct dtp_op_build *b, double elements);

/* ---- what each stack runs. params: weights of the layer on this rank ---- */

/* Fused kernels (op_fused.c). */
void dtp_op_fused_layer(struct dtp_op_build *b, bool moe, double params);
void dtp_op_fused_embedding(struct dtp_op_build *b);
void dtp_op_fused_head(struct dtp_op_build *b);
/* Adds a depth of multi-token prediction: embedding, projection and head around its layer. */
void dtp_op_mtp(struct dtp_op_build *b);
void dtp_op_convolutions(struct dtp_op_build *b);
/* Eager PyTorch, one kernel per operator (op_eager.c). */
void dtp_op_eager_layer(struct dtp_op_build *b, bool moe, double params);
void dtp_op_eager_embedding(struct dtp_op_build *b);
void dtp_op_eager_head(struct dtp_op_build *b);
/* These write the operations of our runtime (op_native.c). */
void dtp_op_native_layer(struct dtp_op_build *b, bool moe, double params);
void dtp_op_native_embedding(struct dtp_op_build *b);
void dtp_op_native_head(struct dtp_op_build *b);

#endif
