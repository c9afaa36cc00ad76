/* This file builds what the lists of every stack share: kernels, products with casts, norms, collectives, MLPs. */
#include <assert.h>
#include <string.h>

#include "models/ops/op_internal.h"

struct dtp_op *dtp_op_add(struct dtp_op_build *b, const char *name, enum dtp_op_kind kind,
                          enum dtp_pass pass) {
    assert(b->out->n < DTP_MAX_OPS);
    struct dtp_op *op = &b->out->at[b->out->n++];
    *op = (struct dtp_op){
        .name = name, .kind = kind, .pass = pass, .count = 1, .slowdown = 1, .launches = 1};
    return op;
}

struct dtp_op *dtp_op_kernel(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                             enum dtp_kernel k, double bytes, double elements) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_KERNEL, pass);
    op->kernel = k;
    op->bytes = bytes;
    op->elements = elements;
    return op;
}

void dtp_op_gemm(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                 struct dtp_op_shape s) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_GEMM, pass);
    enum dtp_gemm_pass gemm_pass = pass == DTP_PASS_F   ? DTP_GEMM_FORWARD
                                   : pass == DTP_PASS_I ? DTP_GEMM_DGRAD
                                                        : DTP_GEMM_WGRAD;
    op->gemm = (struct dtp_gemm){.dtype = b->dtype,
                                 .pass = gemm_pass,
                                 .m = (int64_t)s.m,
                                 .n = (int64_t)s.n,
                                 .k = (int64_t)s.k,
                                 .batch = (int64_t)s.batch,
                                 .whole_waves = b->f->kernels.whole_gemm_waves};
}

void dtp_op_rows(struct dtp_op_build *b, const struct dtp_op_row *r, double elements) {
    for (; r->name; r++)
        dtp_op_kernel(b, r->name, r->pass, r->kernel, r->bytes * elements, r->elements * elements);
}

/* The last forward operation keeps so many more bytes for the backward. */
void dtp_op_keep(struct dtp_op_build *b, double bytes) {
    for (int i = b->out->n - 1; i >= 0; i--)
        if (b->out->at[i].pass == DTP_PASS_F) {
            b->out->at[i].saved_bytes += bytes;
            return;
        }
}

void dtp_op_again(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].again_by |= b->out->at[i].pass == DTP_PASS_F ? modules : 0;
}

void dtp_op_dropped(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].dropped_by |= b->out->at[i].pass == DTP_PASS_F ? modules : 0;
}

void dtp_op_input_dropped(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass == DTP_PASS_F)
            *(op->kind == DTP_OP_GEMM ? &op->dropped_by : &op->again_by) |= modules;
    }
}

/* ---- casts of what FP8 and FP4 products read ---- */

/* Scales of whole tensors in TransformerEngine's modules, of which what follows is known kernel by kernel. */
static bool known(const struct dtp_op_build *b) {
    return b->dtype == DTP_FP8 && b->f->kernels.fp8_keeps_casts &&
           b->f->kernels.fp8_cast_bytes == 0 && b->f->kernels.fp8_recipe != DTP_FP8_BLOCK;
}

/* Its kernel writes the cast where the scale is known before it runs (TransformerEngine 1.11,
 * module/layernorm_linear.py). */
void dtp_op_norm_within(struct dtp_op_build *b, int from) {
    b->norm_cast = false;
    for (int i = from; i < b->out->n && known(b) && b->f->kernels.fp8_recipe == DTP_FP8_DELAYED;
         i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass == DTP_PASS_F && op->kind == DTP_OP_KERNEL && op->kernel == DTP_K_NORM) {
            op->bytes -= (b->e - 1) * op->elements;
            b->norm_cast = true;
        }
    }
}

/* FP8 products of Ada, Hopper and the Blackwell of graphics cards read both operands along the summed dimension alone,
 * so that weight gradients need them transposed; those of sm_10x and sm_11x do not (is_non_tn_fp8_gemm_supported() of
 * TransformerEngine 2). */
static bool transposes(const struct dtp_op_build *b) {
    const char *arch = b->problem->cluster->gpu.arch;
    return known(b) && arch &&
           (strncmp(arch, "sm_8", 4) == 0 || strncmp(arch, "sm_9", 4) == 0 ||
            strncmp(arch, "sm_12", 5) == 0);
}

static void cast(struct dtp_op_build *b, enum dtp_pass pass, double elements, double part,
                 double bytes) {
    dtp_op_kernel(b, "fp8 cast", pass, DTP_K_COPY, bytes * part * elements, part * elements);
}

/* Input and output gradient are cast to FP8 and transposed for the weight gradient (Micikevicius 2022;
 * TransformerEngine); with sequence parallelism each rank casts its part of what is gathered next: the h wide input
 * of a column-parallel layer, the output gradient of a row-parallel one. What was gathered, and what a norm wrote, is
 * transposed by a separate kernel (TransformerEngine 1.11, module/base.py, grad_output_preprocess(), and
 * layernorm_linear.py); else the cast writes both. */
static void casts(struct dtp_op_build *b, struct dtp_op_shape s) {
    double in = s.m * s.k * s.batch, out = s.m * s.n * s.batch;
    bool both = transposes(b),
         split = b->key->sequence_parallel && b->t > 1 &&
                 !b->f->quirks.gathered_casts.fp8_cast_after_gather,
         in_gathered = split && !s.row_parallel && s.k >= b->h,
         out_gathered = split && s.row_parallel, by_norm = b->norm_cast && !s.row_parallel;
    double bytes = dtp_framework_cast_bytes(b->f, b->dtype), alone = known(b) ? bytes - 1 : bytes,
           part = split ? 1 / b->t : 1, whole = both ? bytes : alone;
    if (!by_norm)
        cast(b, DTP_PASS_F, in, in_gathered ? part : 1, in_gathered ? alone : whole);
    cast(b, DTP_PASS_I, out, out_gathered ? part : 1, out_gathered ? alone : whole);
    double apart = (in_gathered || by_norm ? in : 0) + (out_gathered ? out : 0);
    if (both && apart > 0)
        dtp_op_kernel(b, "fp8 transpose", DTP_PASS_W, DTP_K_COPY, 2 * apart, apart);
}

/* ---- what products keep of their inputs for the weight gradient ---- */

/* An input that nothing else needs is kept as its FP8 cast alone, rowwise where the backward gathers it and
 * transposed elsewhere (TransformerEngine, module/linear.py and layernorm_linear.py: update_usage before
 * save_for_backward). One byte an element; the scales of MXFP8 (1/32 byte) are left out, NVFP4 counts as FP8. */
double dtp_op_input_bytes(const struct dtp_op_build *b, double elements) {
    return (dtp_dtype_narrow(b->dtype) && b->f->kernels.fp8_keeps_casts ? 1 : b->e) * elements;
}

/* What attention made: its projection keeps the 16-bit tensor that attention's own backward needs too
 * (Megatron-Core, attention.py: save_original_input), or with delayed scaling, whose scale has passed on by then,
 * a cast of it as of any input; attention then keeps the other (fused_core()). */
double dtp_op_context_bytes(const struct dtp_op_build *b, double elements) {
    return b->f->kernels.fp8_recipe == DTP_FP8_DELAYED ? dtp_op_input_bytes(b, elements)
                                                       : b->e * elements;
}

/* Input of a column-parallel layer that is kept for its weight gradient: the shard (Korthikanti 2022,
 * section 4.2.2). */
double dtp_op_column_input_bytes(const struct dtp_op_build *b) {
    return dtp_op_input_bytes(b, b->z);
}

void dtp_op_linears(struct dtp_op_build *b, const char *name, struct dtp_op_shape s,
                    double saved_bytes) {
    dtp_op_gemm(b, name, DTP_PASS_F, s);
    b->out->at[b->out->n - 1].saved_bytes = saved_bytes;
    dtp_op_gemm(b, name, DTP_PASS_I, (struct dtp_op_shape){s.m, s.k, s.n, s.batch});
    dtp_op_gemm(b, name, DTP_PASS_W, (struct dtp_op_shape){s.k, s.n, s.m, s.batch});
    if (dtp_dtype_narrow(b->dtype))
        casts(b, s);
}

void dtp_op_linear(struct dtp_op_build *b, const char *name, double rows, double in, double out,
                   double saved_bytes) {
    dtp_op_linears(b, name, (struct dtp_op_shape){rows, out, in, 1}, saved_bytes);
}

struct dtp_op *dtp_op_collective(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                                 enum dtp_collective kind, enum dtp_axis axis, double bytes) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_COLLECTIVE, pass);
    op->collective = kind;
    op->axis = axis;
    op->bytes = bytes;
    return op;
}

/* Entry of a column-parallel block (Shoeybi 2019, section 3; with sequence parallelism Korthikanti
 * 2022, section 4.2.2): the forward gathers the sequence, the backward reduces the input gradient; the
 * sharded input is gathered once more for the weight gradient. */
void dtp_op_tp_enter(struct dtp_op_build *b) {
    if (b->key->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->key->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce dX", DTP_PASS_I, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes)
            ->overlapped = b->tp_overlap;
        return;
    }
    double gathered =
        dtp_dtype_narrow(b->dtype) ? bytes / b->e : bytes; /* cast before the gather */
    dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = b->tp_overlap && b->f->wire.tp_overlap_forward;
    dtp_op_collective(b, "tp all-gather X", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = b->tp_overlap;
    dtp_op_collective(b, "tp reduce-scatter dX", DTP_PASS_I, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = b->tp_overlap;
}

/* Exit of a row-parallel block: the forward sums the partial outputs; the backward gathers the sharded
 * output gradient (sequence parallelism) or copies it (none). */
void dtp_op_tp_leave(struct dtp_op_build *b) {
    if (b->key->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->key->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes);
        return;
    }
    bool whole = b->tp_overlap && b->f->wire.tp_overlap_forward;
    dtp_op_collective(b, "tp reduce-scatter", DTP_PASS_F, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = whole;
    double gathered = dtp_dtype_narrow(b->dtype) ? bytes / b->e : bytes;
    dtp_op_collective(b, "tp all-gather dY", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = whole;
}

/* ---- norms, the residual, MLPs ---- */

#define F DTP_PASS_F
#define I DTP_PASS_I
#define W DTP_PASS_W

/* weight * (x * rsqrt(mean(x^2) + eps)) in fp32 inside, as transformers writes it. */
static const struct dtp_op_row rms_norm[] = {{"norm to fp32", F, DTP_K_STRIDED, 6, 1},
                                             {"norm square", F, DTP_K_ELEMENTWISE, 8, 1},
                                             {"norm mean", F, DTP_K_ELEMENTWISE, 4, 1},
                                             {"norm epsilon", F, DTP_K_ELEMENTWISE, 0, 0},
                                             {"norm rsqrt", F, DTP_K_ELEMENTWISE, 0, 0},
                                             {"norm scale", F, DTP_K_STRIDED, 8, 1},
                                             {"norm to 16 bit", F, DTP_K_COPY, 6, 1},
                                             {"norm weight", F, DTP_K_STRIDED, 4, 1},
                                             {"norm weight", I, DTP_K_STRIDED, 4, 1},
                                             {"norm gradient to fp32", I, DTP_K_STRIDED, 6, 1},
                                             {"norm scale", I, DTP_K_ELEMENTWISE, 12, 1},
                                             {"norm scale product", I, DTP_K_STRIDED, 12, 1},
                                             {"norm row sum", I, DTP_K_REDUCE, 4, 1},
                                             {"norm rsqrt", I, DTP_K_ELEMENTWISE, 0, 0},
                                             {"norm rsqrt cube", I, DTP_K_ELEMENTWISE, 0, 0},
                                             {"norm mean", I, DTP_K_STRIDED, 4, 1},
                                             {"norm mean expand", I, DTP_K_COPY, 8, 1},
                                             {"norm square", I, DTP_K_ELEMENTWISE, 8, 1},
                                             {"norm square product", I, DTP_K_ELEMENTWISE, 12, 1},
                                             {"norm sum", I, DTP_K_ELEMENTWISE, 12, 1},
                                             {"norm to 16 bit", I, DTP_K_COPY, 6, 1},
                                             {"norm weight product", W, DTP_K_ELEMENTWISE, 6, 1},
                                             {"norm weight sum", W, DTP_K_REDUCE, 2, 1},
                                             {0}};
#undef F
#undef I
#undef W

/* Adds an RMS norm without autocast. Its fp32 input and what its weight multiplies are kept. */
void dtp_op_rms_norm_in_parts(struct dtp_op_build *b, double elements) {
    dtp_op_rows(b, rms_norm, elements);
    dtp_op_keep(b, 6 * elements);
}

void dtp_op_norm(struct dtp_op_build *b, const char *name, double elements, double saved_bytes) {
    if (!b->f->kernels.fused_norm && b->m->norm == DTP_NORM_RMS) {
        dtp_op_rms_norm_in_parts(b, elements);
        return;
    }
    /* The forward reads x and writes y. The backward reads x and dy for dx, and again for the parameters. */
    double x = b->f->quirks.fp32_norms.norm_fp32 ? 4 : b->e, y = b->e;
    bool again = b->f->quirks.fp32_norms.repeats_norms;
    if (b->f->quirks.fp32_norms.norm_fp32) {
        dtp_op_kernel(b, "norm to fp32", DTP_PASS_F, DTP_K_COPY, (x + y) * elements, elements)
            ->again = again;
        dtp_op_kernel(b, "norm gradient to 16 bit", DTP_PASS_I, DTP_K_COPY, (x + y) * elements,
                      elements);
    }
    struct dtp_op *f = dtp_op_kernel(b, name, DTP_PASS_F, DTP_K_NORM, (x + y) * elements, elements);
    f->again = again;
    f->saved_bytes = again ? saved_bytes : saved_bytes * x / b->e;
    dtp_op_kernel(b, name, DTP_PASS_I, DTP_K_NORM_BACKWARD, (2 * x + y) * elements, elements);
    dtp_op_kernel(b, "norm parameters", DTP_PASS_W, DTP_K_NORM_BACKWARD, (x + y) * elements,
                  elements)
        ->launches = 2; /* partial sums, then their sum */
}

/* Output of a block: bias, dropout and the residual add (7 z bytes in one kernel with a mask of one
 * byte). */
void dtp_op_residual(struct dtp_op_build *b, bool bias) {
    double mask = b->dropout ? 1 : 0, e = b->e;
    if (b->f->kernels.fused_bias_dropout_add || (!b->dropout && !bias)) {
        dtp_op_kernel(b, "bias dropout add", DTP_PASS_F,
                      b->dropout ? DTP_K_DROPOUT : DTP_K_ELEMENTWISE, (3 * e + mask) * b->z, b->z)
            ->saved_bytes = mask * b->z;
    } else {
        if (bias && !b->f->kernels.fused_linear_bias)
            dtp_op_kernel(b, "bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * b->z, b->z);
        if (b->dropout)
            dtp_op_kernel(b, "dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * b->z, b->z)
                ->saved_bytes = b->z;
        dtp_op_kernel(b, "residual add", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * b->z, b->z);
    }
    if (b->dropout)
        dtp_op_kernel(b, "dropout backward", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * b->z,
                      b->z);
    if (bias)
        dtp_op_kernel(b, "bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * b->z, b->z);
    dtp_op_kernel(b, "residual gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE, 3 * e * b->z, b->z);
}

void dtp_op_input_gradient_adds(struct dtp_op_build *b, double n) {
    double elements = b->tokens * b->h;
    dtp_op_kernel(b, "input gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE, n * 3 * b->e * elements,
                  n * elements)
        ->launches = n;
}

void dtp_op_activation(struct dtp_op_build *b, double rows, bool bias) {
    /* A gated activation reads both halves and writes one. A bias that is not fused costs a separate pass. */
    double e = b->e, x = rows * b->ffn, in = b->m->gated_ffn ? 2 : 1;
    if (bias && !b->fused_activation && !b->f->kernels.fused_linear_bias)
        dtp_op_kernel(b, "fc1 bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * in * x, in * x);
    /* Unfused, SiLU of the gate is a separate tensor, kept for its product with the other half. */
    double gate_kept = b->m->gated_ffn && !b->fused_activation ? 1 : 0;
    double passes = gate_kept > 0 ? 5.0 / 3 : 1;
    dtp_op_kernel(b, "activation", DTP_PASS_F, DTP_K_ACTIVATION, passes * e * (in + 1) * x, x)
        ->saved_bytes = e * (gate_kept + in) * x;
    dtp_op_kernel(b, "activation", DTP_PASS_I, DTP_K_ACTIVATION_BACKWARD,
                  passes * e * (2 * in + 1) * x, x);
    if (bias)
        dtp_op_kernel(b, "fc1 bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * in * x, in * x);
}

void dtp_op_mlp(struct dtp_op_build *b, const char *up, const char *down, double rows,
                double saved_in_bytes) {
    const struct dtp_model *m = b->m;
    double in = m->gated_ffn ? 2 : 1;
    if (m->gated_ffn && b->f->kernels.separate_products) {
        dtp_op_linears(b, "gate", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, saved_in_bytes);
        dtp_op_linears(b, "up", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, 0);
        dtp_op_input_gradient_adds(b, 1);
    } else {
        dtp_op_linears(b, up, (struct dtp_op_shape){rows, in * b->ffn, b->h, 1}, saved_in_bytes);
    }
    dtp_op_activation(b, rows, m->mlp_bias);
    dtp_op_linears(b, down, (struct dtp_op_shape){rows, b->h, b->ffn, 1, .row_parallel = true},
                   dtp_op_input_bytes(b, rows * b->ffn));
}
