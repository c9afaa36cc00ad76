#include "models/op.h"

#include <assert.h>

#include "models/evaluate.h"
#include "models/op_build.h"

const char *const dtp_part_names[] = {"attention", "mlp",  "norm", "embedding",
                                      "head",      "conv", NULL};
const char *const dtp_pass_names[] = {"F", "I", "W", NULL};
const char *const dtp_op_kind_names[] = {"gemm", "bmm", "attention", "kernel", "collective", NULL};

static struct dtp_op *add(struct dtp_op_build *b, const char *name, enum dtp_op_kind kind,
                          enum dtp_pass pass) {
    assert(b->out->n < DTP_MAX_OPS);
    struct dtp_op *op = &b->out->at[b->out->n++];
    *op = (struct dtp_op){
        .name = name, .kind = kind, .pass = pass, .part = b->part, .count = 1, .launches = 1};
    return op;
}

struct dtp_op *dtp_op_kernel(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                             enum dtp_kernel k, double bytes, double elements) {
    struct dtp_op *op = add(b, name, DTP_OP_KERNEL, pass);
    op->kernel = k;
    op->bytes = bytes;
    op->elements = elements;
    return op;
}

static void gemm(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                 struct dtp_op_shape s) {
    struct dtp_op *op = add(b, name, DTP_OP_GEMM, pass);
    enum dtp_gemm_pass gemm_pass = pass == DTP_PASS_F   ? DTP_GEMM_FORWARD
                                   : pass == DTP_PASS_I ? DTP_GEMM_DGRAD
                                                        : DTP_GEMM_WGRAD;
    op->gemm = (struct dtp_gemm){.dtype = b->dtype,
                                 .pass = gemm_pass,
                                 .m = (int64_t)s.m,
                                 .n = (int64_t)s.n,
                                 .k = (int64_t)s.k,
                                 .batch = (int64_t)s.batch,
                                 .whole_waves = b->f->whole_gemm_waves};
}

void dtp_op_linears(struct dtp_op_build *b, const char *name, struct dtp_op_shape s,
                    double saved_bytes) {
    gemm(b, name, DTP_PASS_F, s);
    b->out->at[b->out->n - 1].saved_bytes = saved_bytes;
    gemm(b, name, DTP_PASS_I, (struct dtp_op_shape){s.m, s.k, s.n, s.batch});
    gemm(b, name, DTP_PASS_W, (struct dtp_op_shape){s.k, s.n, s.m, s.batch});
    if (b->dtype != DTP_FP8)
        return;
    /* Input and output gradient are cast to FP8 and transposed for the weight gradient (Micikevicius 2022;
     * TransformerEngine); with sequence parallelism each rank casts its part of what is h wide before it
     * is gathered. */
    double in = s.m * s.k * s.batch, out = s.m * s.n * s.batch, per_element = b->f->fp8_cast_bytes;
    double parts = b->plan->sequence_parallel && !b->f->fp8_cast_after_gather ? b->t : 1;
    in /= s.k >= b->h ? parts : 1;
    out /= s.n >= b->h ? parts : 1;
    dtp_op_kernel(b, "fp8 cast", DTP_PASS_F, DTP_K_COPY, per_element * in, in);
    dtp_op_kernel(b, "fp8 cast", DTP_PASS_I, DTP_K_COPY, per_element * out, out);
}

void dtp_op_linear(struct dtp_op_build *b, const char *name, double rows, double in, double out,
                   double saved_bytes) {
    dtp_op_linears(b, name, (struct dtp_op_shape){rows, out, in, 1}, saved_bytes);
}

/* Input of a column-parallel layer that is kept for its weight gradient: the shard (Korthikanti 2022,
 * section 4.2.2), or what was gathered. */
static double column_input_bytes(const struct dtp_op_build *b) {
    return b->e * (b->f->keeps_gathered_input ? b->tokens * b->h : b->z);
}

struct dtp_op *dtp_op_collective(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                                 enum dtp_collective kind, enum dtp_axis axis, double bytes) {
    struct dtp_op *op = add(b, name, DTP_OP_COLLECTIVE, pass);
    op->collective = kind;
    op->axis = axis;
    op->bytes = bytes;
    return op;
}

/* Entry of a column-parallel block (Shoeybi 2019, section 3; with sequence parallelism Korthikanti
 * 2022, section 4.2.2): the forward gathers the sequence, the backward reduces the input gradient; the
 * sharded input is gathered once more for the weight gradient. */
void dtp_op_tp_enter(struct dtp_op_build *b) {
    if (b->plan->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->plan->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce dX", DTP_PASS_I, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes)
            ->overlapped = b->tp_overlap;
        return;
    }
    double gathered = b->dtype == DTP_FP8 ? bytes / b->e : bytes; /* cast before the gather */
    dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = b->tp_overlap && b->f->tp_overlap_forward;
    if (!b->f->keeps_gathered_input)
        dtp_op_collective(b, "tp all-gather X", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
            ->overlapped = b->tp_overlap;
    dtp_op_collective(b, "tp reduce-scatter dX", DTP_PASS_I, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = b->tp_overlap;
}

/* Exit of a row-parallel block: the forward sums the partial outputs; the backward gathers the sharded
 * output gradient (sequence parallelism) or copies it (none). */
void dtp_op_tp_leave(struct dtp_op_build *b) {
    if (b->plan->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->plan->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes);
        return;
    }
    bool whole = b->tp_overlap && b->f->tp_overlap_forward;
    dtp_op_collective(b, "tp reduce-scatter", DTP_PASS_F, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = whole;
    double gathered = b->dtype == DTP_FP8 ? bytes / b->e : bytes;
    dtp_op_collective(b, "tp all-gather dY", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = whole;
}

static void norm(struct dtp_op_build *b, const char *name, double elements, double saved_bytes) {
    enum dtp_part part = b->part;
    b->part = DTP_PART_NORM;
    /* One kernel reads and writes once; without fusion mean, variance, normalise, scale and shift are
     * passes of their own. Backward: dx reads x and dy and writes dx, the parameters read both again. */
    double passes = b->f->fused_norm ? 1 : 3;
    dtp_op_kernel(b, name, DTP_PASS_F, DTP_K_NORM, passes * 2 * b->e * elements, elements)
        ->saved_bytes = saved_bytes;
    dtp_op_kernel(b, name, DTP_PASS_I, DTP_K_NORM_BACKWARD, passes * 3 * b->e * elements, elements);
    dtp_op_kernel(b, "norm parameters", DTP_PASS_W, DTP_K_NORM_BACKWARD, 2 * b->e * elements,
                  elements)
        ->launches = 2; /* partial sums, then their sum */
    b->part = part;
}

/* Output of a block: bias, dropout and the residual add (7 z bytes in one kernel with a mask of one
 * byte). */
static void residual(struct dtp_op_build *b, bool bias) {
    double mask = b->dropout ? 1 : 0, e = b->e;
    enum dtp_part part = b->part;
    b->part = DTP_PART_NORM;
    if (b->f->fused_bias_dropout_add || (!b->dropout && !bias)) {
        dtp_op_kernel(b, "bias dropout add", DTP_PASS_F,
                      b->dropout ? DTP_K_DROPOUT : DTP_K_ELEMENTWISE, (3 * e + mask) * b->z, b->z)
            ->saved_bytes = mask * b->z;
    } else {
        if (bias && !b->f->fused_linear_bias)
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
    b->part = part;
}

/* Scores in memory (Korthikanti 2022, section 4.1): S = b a s^2 / t elements. */
static void unfused_core(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double heads = m->heads / b->t, seq = b->problem->seq, d = m->head_dim, e = b->e;
    double rows = seq / b->plan->cp, batch = b->plan->microbatch_size * heads;
    double scores = batch * rows * seq;
    int from = b->out->n;
    gemm(b, "QK^T", DTP_PASS_F, (struct dtp_op_shape){rows, seq, d, batch});
    /* Megatron's kernel works on whole blocks of heads (is_kernel_available). */
    int multiple = b->f->fused_softmax_multiple;
    bool fused = b->f->fused_softmax && (multiple == 0 || (int64_t)batch % multiple == 0);
    /* Where the heads do not make whole blocks it falls back to fp32 between conversions
     * (forward_torch_softmax under query-key layer scaling); plain unfused softmax stays in 16 bit. */
    bool wide = !fused && multiple > 0;
    double w = wide ? 4 : e;
    if (wide)
        dtp_op_kernel(b, "scores to fp32", DTP_PASS_F, DTP_K_COPY, (e + w) * scores, scores);
    if (!fused) {
        dtp_op_kernel(b, "scale", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * w * scores, scores);
        dtp_op_kernel(b, "mask", DTP_PASS_F, DTP_K_STRIDED, 2 * w * scores, scores);
        dtp_op_kernel(b, "scale backward", DTP_PASS_I, DTP_K_ELEMENTWISE, 2 * w * scores, scores);
    }
    dtp_op_kernel(b, "softmax", DTP_PASS_F, DTP_K_SOFTMAX, 2 * w * scores, scores)->saved_bytes =
        e * scores;
    if (wide) {
        dtp_op_kernel(b, "softmax to 16 bit", DTP_PASS_F, DTP_K_COPY, (w + e) * scores, scores);
        dtp_op_kernel(b, "softmax gradient to fp32", DTP_PASS_I, DTP_K_COPY, (e + w) * scores,
                      scores);
        dtp_op_kernel(b, "mask backward", DTP_PASS_I, DTP_K_STRIDED, 2 * w * scores, scores);
        dtp_op_kernel(b, "scores gradient to 16 bit", DTP_PASS_I, DTP_K_COPY, (w + e) * scores,
                      scores);
    }
    if (b->dropout) {
        dtp_op_kernel(b, "attention dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * scores,
                      scores)
            ->saved_bytes = (e + 1) * scores; /* its output and the mask */
        dtp_op_kernel(b, "attention dropout", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * scores,
                      scores);
    }
    gemm(b, "PV", DTP_PASS_F, (struct dtp_op_shape){rows, d, seq, batch});
    gemm(b, "dP", DTP_PASS_I, (struct dtp_op_shape){rows, seq, d, batch});
    gemm(b, "dV", DTP_PASS_I, (struct dtp_op_shape){seq, d, rows, batch});
    dtp_op_kernel(b, "softmax", DTP_PASS_I, DTP_K_SOFTMAX_BACKWARD, 3 * w * scores, scores);
    gemm(b, "dQ", DTP_PASS_I, (struct dtp_op_shape){rows, d, seq, batch});
    gemm(b, "dK", DTP_PASS_I, (struct dtp_op_shape){seq, d, rows, batch});
    for (int i = from; i < b->out->n; i++) {
        b->out->at[i].core = b->out->at[i].pass == DTP_PASS_F;
        if (b->out->at[i].kind == DTP_OP_GEMM) {
            b->out->at[i].kind = DTP_OP_BMM;
            b->out->at[i].gemm.unaligned = m->head_dim % 8 != 0;
            b->out->at[i].gemm.dtype = b->plan->dtype == DTP_FP8 ? DTP_BF16 : b->plan->dtype;
        }
    }
}

static void fused_core(struct dtp_op_build *b, enum dtp_attention impl) {
    const struct dtp_model *m = b->m;
    bool mla = m->mla.kv_lora_rank > 0;
    struct dtp_attention_shape shape = {
        .dtype = b->plan->dtype == DTP_FP8 ? DTP_BF16 : b->plan->dtype,
        .impl = impl,
        .causal = m->causal,
        .batch = b->plan->microbatch_size,
        .heads = (int64_t)(m->heads / b->t),
        .kv_heads = m->kv_heads < b->plan->tp ? 1 : (int64_t)(m->kv_heads / b->t),
        .seq_q = b->problem->seq / b->plan->cp,
        .seq_kv = m->sliding_window > 0 && m->sliding_window < b->problem->seq ? m->sliding_window
                                                                               : b->problem->seq,
        .head_dim = mla ? m->mla.nope_head_dim + m->mla.rope_head_dim : m->head_dim,
    };
    struct dtp_op *op = add(b, "attention", DTP_OP_ATTENTION, DTP_PASS_F);
    op->attention = shape;
    op->core = true;
    /* The log-sum-exp of each row, fp32 (Dao 2022, section 3.1). */
    op->saved_bytes = 4.0 * b->tokens * m->heads / b->t +
                      b->f->memory.attention_copies_bytes * b->tokens * b->q_width;
    op = add(b, "attention", DTP_OP_ATTENTION, DTP_PASS_I);
    op->attention = shape;
    op->attention.backward = true;
    if (b->plan->cp > 1) {
        /* Keys and values travel around the ring once forward; in the backward they and their gradients
         * (Liu 2023, ring attention). */
        double bytes = 2 * b->tokens * b->plan->cp * b->kv_width * b->e;
        dtp_op_collective(b, "cp ring KV", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_CP, bytes)
            ->overlapped = true;
        dtp_op_collective(b, "cp ring KV dKV", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_CP, 2 * bytes)
            ->overlapped = true;
    }
}

/* DeepSeek-V2 2024, section 2.1: low-rank queries and keys-values, projected up per head. */
static void mla_projections(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    const struct dtp_mla *l = &m->mla;
    double heads = m->heads / b->t, qk = l->nope_head_dim + l->rope_head_dim, n = b->tokens;
    if (l->q_lora_rank > 0) {
        dtp_op_linear(b, "q down", n, b->h, l->q_lora_rank, b->e * b->z);
        norm(b, "q norm", n * l->q_lora_rank, b->e * n * l->q_lora_rank);
        dtp_op_linear(b, "q up", n, l->q_lora_rank, heads * qk, b->e * n * l->q_lora_rank);
    } else {
        dtp_op_linear(b, "q", n, b->h, heads * qk, b->e * b->z);
    }
    dtp_op_linear(b, "kv down", n, b->h, l->kv_lora_rank + l->rope_head_dim, 0);
    norm(b, "kv norm", n * l->kv_lora_rank, b->e * n * l->kv_lora_rank);
    dtp_op_linear(b, "kv up", n, l->kv_lora_rank, heads * (l->nope_head_dim + l->v_head_dim),
                  b->e * n * l->kv_lora_rank);
    double width = heads * (2 * qk + l->v_head_dim);
    dtp_op_kernel(b, "rope and concat", DTP_PASS_F, DTP_K_ROPE, 2 * b->e * n * width, n * width)
        ->saved_bytes = b->e * n * width;
    dtp_op_kernel(b, "rope and concat", DTP_PASS_I, DTP_K_ROPE, 2 * b->e * n * width, n * width);
}

/* Products of their own on one input: their input gradients are summed. */
static void input_gradient_adds(struct dtp_op_build *b, double n) {
    double elements = b->tokens * b->h;
    dtp_op_kernel(b, "input gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE, n * 3 * b->e * elements,
                  n * elements)
        ->launches = n;
}

static void qkv_projection(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens, width = b->q_width + 2 * b->kv_width, e = b->e;
    if (b->f->separate_products) {
        dtp_op_linear(b, "q", n, b->h, b->q_width, column_input_bytes(b));
        dtp_op_linear(b, "k", n, b->h, b->kv_width, 0);
        dtp_op_linear(b, "v", n, b->h, b->kv_width, 0);
        input_gradient_adds(b, 2);
    } else {
        dtp_op_linear(b, "qkv", n, b->h, width, column_input_bytes(b));
    }
    if ((m->attention_bias || m->qkv_bias) && !b->f->fused_linear_bias)
        dtp_op_kernel(b, "qkv bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * n * width, n * width);
    if (m->attention_bias || m->qkv_bias)
        dtp_op_kernel(b, "qkv bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * n * width, n * width);
    if (!b->f->separate_products)
        dtp_op_kernel(b, "qkv gradient concat", DTP_PASS_I, DTP_K_COPY, 2 * e * n * width,
                      n * width);
    if (m->position == DTP_POS_ROPE) {
        /* One kernel reads and writes q and k; otherwise rotate-half: negate, concatenate, two products
         * and a sum, on strided halves. */
        double qk = n * (b->q_width + b->kv_width), passes = b->f->fused_rope ? 1 : 4;
        enum dtp_kernel k = b->f->fused_rope ? DTP_K_ROPE : DTP_K_STRIDED;
        dtp_op_kernel(b, "rope", DTP_PASS_F, k, passes * 2 * e * qk, passes * qk);
        dtp_op_kernel(b, "rope", DTP_PASS_I, k, passes * 2 * e * qk, passes * qk);
    }
    /* Q, K and V stay for the backward of the core. */
    for (int i = b->out->n - 1; i >= 0; i--)
        if (b->out->at[i].kind == DTP_OP_GEMM && b->out->at[i].pass == DTP_PASS_F) {
            b->out->at[i].saved_bytes += e * n * width;
            break;
        }
}

/* The kernel, or where the GPU does not have it the nearest that it has. */
static int attention_of_gpu(const struct dtp_gpu *gpu, int impl) {
    static const int nearest[] = {DTP_ATTN_FLASH2, DTP_ATTN_FLASH1, DTP_ATTN_UNFUSED};
    for (int i = 0; impl != DTP_ATTN_UNFUSED && gpu->attention[impl].flops_per_s <= 0; i++)
        impl = nearest[i];
    return impl;
}

void dtp_op_attention_core(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double v_dim = m->mla.kv_lora_rank > 0 ? m->mla.v_head_dim : m->head_dim;
    double context = b->tokens * m->heads / b->t * v_dim;
    int impl = b->problem->attention;
    if (impl < 0)
        impl = (int)dtp_framework_on(b->f, &b->problem->cluster->gpu).attention;
    impl = attention_of_gpu(&b->problem->cluster->gpu, impl);
    if (impl != DTP_ATTN_UNFUSED) {
        fused_core(b, (enum dtp_attention)impl);
        return;
    }
    unfused_core(b);
    dtp_op_kernel(b, "context transpose", DTP_PASS_F, DTP_K_STRIDED, 2 * b->e * context, context);
}

static void attention_block(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens, e = b->e;
    b->part = DTP_PART_ATTENTION;
    norm(b, "norm 1", b->z, e * b->z);
    dtp_op_tp_enter(b);
    bool mla = m->mla.kv_lora_rank > 0;
    if (mla)
        mla_projections(b);
    else
        qkv_projection(b);
    dtp_op_attention_core(b);
    double width = mla ? m->heads / b->t * m->mla.v_head_dim : b->q_width;
    dtp_op_linear(b, "projection", n, width, b->h, e * n * width);
    dtp_op_tp_leave(b);
    residual(b, m->attention_bias);
}

void dtp_op_activation(struct dtp_op_build *b, double rows, bool bias) {
    /* Gated: reads both halves, writes one. A bias that is not fused costs a pass of its own. */
    double e = b->e, x = rows * b->ffn, in = b->m->gated_ffn ? 2 : 1;
    if (bias && !b->f->fused_bias_activation && !b->f->fused_linear_bias)
        dtp_op_kernel(b, "fc1 bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * in * x, in * x);
    /* Unfused, SiLU of the gate is a tensor of its own, kept for its product with the other half. */
    double gate_kept = b->m->gated_ffn && !b->f->fused_bias_activation ? 1 : 0;
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
    if (m->gated_ffn && b->f->separate_products) {
        dtp_op_linears(b, "gate", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, saved_in_bytes);
        dtp_op_linears(b, "up", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, 0);
        input_gradient_adds(b, 1);
    } else {
        dtp_op_linears(b, up, (struct dtp_op_shape){rows, in * b->ffn, b->h, 1}, saved_in_bytes);
    }
    dtp_op_activation(b, rows, m->mlp_bias);
    dtp_op_linears(b, down, (struct dtp_op_shape){rows, b->h, b->ffn, 1}, b->e * rows * b->ffn);
}

static void mlp_block(struct dtp_op_build *b, bool moe) {
    b->part = DTP_PART_MLP;
    if (!b->m->parallel_block)
        norm(b, "norm 2", b->z, b->e * b->z);
    if (moe) {
        dtp_op_moe(b);
    } else {
        dtp_op_tp_enter(b);
        dtp_op_mlp(b, "fc1", "fc2", b->tokens, column_input_bytes(b));
        dtp_op_tp_leave(b);
    }
    residual(b, b->m->mlp_bias);
}

/* Weight gradients go into a buffer. Fused, the GEMM's epilogue reads the buffer before it adds (4 bytes in
 * fp32; the wider write hides). Otherwise, with several microbatches, a kernel of its own reads the new and
 * the old and writes, for each tensor. params: of the layer, on this rank. */
static void accumulation(struct dtp_op_build *b, double params) {
    double g = b->f->fp32_gradient_accumulation ? 4 : 2;
    double vectors =
        2 * (b->m->norm_bias ? 2 : 1) + (b->m->attention_bias ? 2 : 0) + (b->m->mlp_bias ? 2 : 0);
    if (b->f->fused_gradient_accumulation)
        dtp_op_kernel(b, "gradient add in GEMM", DTP_PASS_W, DTP_K_ELEMENTWISE, g * params, params)
            ->launches = vectors;
    else if (dtp_plan_num_microbatches(b->plan) > 1)
        dtp_op_kernel(b, "gradient add", DTP_PASS_W, DTP_K_ELEMENTWISE, (2 + 2 * g) * params,
                      params)
            ->launches = vectors + 4;
}

static void embedding(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double full = b->tokens * b->h, e = b->e;
    b->part = DTP_PART_EMBEDDING;
    if (m->patch > 0) {
        double in = (double)m->channels * m->patch * m->patch;
        dtp_op_linear(b, "patches", b->tokens, in, b->h, e * b->tokens * in);
        dtp_op_kernel(b, "positions", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * full, full);
        return;
    }
    dtp_op_kernel(b, "token rows", DTP_PASS_F, DTP_K_EMBEDDING, 2 * e * full, full);
    if (m->position == DTP_POS_LEARNED)
        dtp_op_kernel(b, "positions", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * full, full);
    if (b->plan->tp > 1)
        dtp_op_collective(b, "tp embedding sum", DTP_PASS_F,
                          b->plan->sequence_parallel ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE,
                          DTP_AXIS_TP, e * full);
    if (m->embedding_norm)
        norm(b, "embedding norm", b->z, e * b->z);
    if (b->dropout)
        dtp_op_kernel(b, "embedding dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * b->z, b->z)
            ->saved_bytes = b->z;
    if (b->dropout)
        dtp_op_kernel(b, "embedding dropout", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * b->z,
                      b->z);
    dtp_op_kernel(b, "row gradients", DTP_PASS_W, DTP_K_EMBEDDING, 3 * e * full, full);
}

/* LM head and loss. Vocabulary-parallel cross-entropy (Shoeybi 2019, section 3): without fusion the logits
 * are cast to fp32, and maximum, shift, exponential and sum are passes of their own: 34 bytes per
 * logit forward, 18 backward; fused 4 and 4. */
static void head(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double e = b->e, n = b->tokens;
    b->part = DTP_PART_HEAD;
    if (m->final_norm)
        norm(b, "final norm", b->z, e * b->z);
    if (m->classes > 0) {
        dtp_op_linear(b, "classifier", b->plan->microbatch_size, b->h, m->classes, 0);
        return;
    }
    double vocab = dtp_framework_padded_vocab(b->f, m->vocab, b->plan->tp) / b->t;
    double logits = n * vocab;
    if (m->mlm_head) {
        dtp_op_linear(b, "mlm dense", n, b->h, b->h, e * n * b->h);
        norm(b, "mlm norm", n * b->h, e * n * b->h);
    }
    if (b->plan->tp > 1) {
        double bytes = n * b->h * e;
        if (b->plan->sequence_parallel)
            dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP, bytes);
        dtp_op_collective(b, "tp head dX", DTP_PASS_I,
                          b->plan->sequence_parallel ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE,
                          DTP_AXIS_TP, bytes)
            ->overlapped = b->tp_overlap;
    }
    int from = b->out->n;
    dtp_op_linear(b, "logits", n, b->h, vocab, column_input_bytes(b));
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].gemm.unaligned = (int64_t)vocab % 8 != 0;
    double width = b->f->half_cross_entropy ? 0.5 : 1; /* of its elements over fp32 */
    bool fused = b->f->fused_cross_entropy;
    dtp_op_kernel(b, "cross-entropy", DTP_PASS_F, DTP_K_CROSS_ENTROPY,
                  (fused ? 2 * e : 34 * width) * logits, logits)
        ->launches = fused ? 1 : 7;
    dtp_op_kernel(b, "cross-entropy", DTP_PASS_I, DTP_K_CROSS_ENTROPY,
                  (fused ? 2 * e : 18 * width) * logits, logits)
        ->launches = fused ? 1 : 3;
    for (int i = 0; b->plan->tp > 1 && i < 3; i++) /* maximum, target logit, sum */
        dtp_op_collective(b, "tp loss", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, 4 * n);
}

/* Each convolution as an implicit GEMM, followed by batch norm and activation (He 2015, table 1). */
static void convolutions(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double batch = b->plan->microbatch_size, e = b->e;
    b->part = DTP_PART_CONV;
    for (int i = 0; i < m->nconvs; i++) {
        const struct dtp_conv *c = &m->conv[i];
        double out = (double)c->out_size * c->out_size * batch, groups = c->groups ? c->groups : 1;
        double k = c->cin * (double)c->kernel * c->kernel / groups, elements = out * c->cout;
        double in = (double)c->in_size * c->in_size * batch * c->cin;
        int from = b->out->n;
        dtp_op_linears(b, "conv", (struct dtp_op_shape){out, c->cout / groups, k, groups}, e * in);
        if (c->batch_norm) {
            dtp_op_kernel(b, "batch norm, activation", DTP_PASS_F, DTP_K_NORM, 3 * e * elements,
                          elements)
                ->saved_bytes = e * elements;
            dtp_op_kernel(b, "batch norm, activation", DTP_PASS_I, DTP_K_NORM_BACKWARD,
                          5 * e * elements, elements);
        }
        for (int op = from; op < b->out->n; op++) {
            b->out->at[op].count = c->repeat;
            b->out->at[op].saved_bytes *= c->repeat;
        }
    }
    if (m->classes > 0)
        dtp_op_linear(b, "classifier", batch, b->h, m->classes, 0);
}

static double layer_params(const struct dtp_op_build *b, bool moe) {
    struct dtp_param_counts counts;
    dtp_model_params(b->m, b->m->vocab, &counts);
    if (!moe)
        return (double)counts.dense_layer / b->t;
    double experts = (double)counts.moe_layer_experts;
    return ((double)counts.moe_layer - experts + experts / b->plan->ep) / b->t;
}

/* What eager lists exist for: decoders with a language model head. */
static bool eager(const struct dtp_op_build *b) {
    return b->f->eager && b->m->mla.kv_lora_rank == 0 && b->m->patch == 0 && b->m->classes == 0 &&
           !b->m->mlm_head && !b->m->parallel_block;
}

/* Copies beside the collectives of ZeRO: gradients into the buckets and out of them; of ZeRO-3: gathered parameters into place, gradients into the buffer that
 * is reduced (a conversion where they travel in fp32). Recomputation uses what the backward gathered. */
static void zero_copies(struct dtp_op_build *b, double params) {
    const struct dtp_framework *f = b->f;
    int zero = b->plan->zero_stage;
    if ((zero == 1 || zero == 2) && f->zero_copy_bytes > 0) {
        double times =
            zero == 2 && f->reduce_per_microbatch ? 1 : dtp_plan_num_microbatches(b->plan);
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W, DTP_K_COPY, f->zero_copy_bytes * params / times,
                      params / times);
    }
    if (zero < 3)
        return;
    if (f->zero3_copy_out_bytes > 0) {
        dtp_op_kernel(b, "unshard copy", DTP_PASS_F, DTP_K_COPY, f->zero3_copy_out_bytes * params,
                      params);
        if (f->zero3_regather_backward && b->plan->recompute != DTP_RECOMPUTE_FULL)
            dtp_op_kernel(b, "unshard copy", DTP_PASS_I, DTP_K_COPY,
                          f->zero3_copy_out_bytes * params, params);
    }
    if (f->zero3_copy_in_bytes > 0)
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W,
                      f->reduce_bytes > b->e ? DTP_K_STRIDED : DTP_K_COPY,
                      f->zero3_copy_in_bytes * params, params);
}

/* Selective recomputation as torchtitan has it: what attention and every second product made stays,
 * the rest is repeated. */
static void alternate_products(struct dtp_op_build *b) {
    double all = 0, kept = b->e * b->z;
    bool repeated = true;
    struct dtp_op *attention = NULL, *first = NULL;
    for (int i = 0; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass != DTP_PASS_F)
            continue;
        all += op->saved_bytes;
        op->saved_bytes = 0;
        op->core = op->kind == DTP_OP_KERNEL;
        if (op->kind == DTP_OP_GEMM) {
            repeated = !repeated;
            op->core = repeated;
            kept += repeated ? 0 : b->e * (double)(op->gemm.m * op->gemm.n * op->gemm.batch);
        } else if (op->kind == DTP_OP_ATTENTION) {
            attention = op;
            kept += b->e * b->tokens * b->q_width;
        }
        first = first ? first : op;
    }
    if (!attention)
        return;
    attention->saved_bytes = kept;
    first->core = true;
    first->saved_bytes = all > kept ? all - kept : 0;
}

static void layer(struct dtp_op_build *b, bool moe) {
    double params = layer_params(b, moe);
    if (eager(b) && !moe) {
        dtp_op_eager_attention(b);
        dtp_op_eager_mlp(b);
        dtp_op_eager_weights(b, params, dtp_op_eager_tensors(b));
    } else {
        attention_block(b);
        mlp_block(b, moe);
        accumulation(b, params);
    }
    if (b->f->selective_alternate_products && b->plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        alternate_products(b);
    zero_copies(b, params);
}

void dtp_ops_layer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                   enum dtp_layer_kind kind, struct dtp_ops *out) {
    const struct dtp_model *m = problem->model;
    double t = plan->tp, n = (double)plan->microbatch_size * problem->seq / plan->cp;
    double kv = m->kv_heads < plan->tp ? 1 : m->kv_heads / t;
    struct dtp_op_build b = {
        .problem = problem,
        .m = m,
        .f = problem->framework,
        .plan = plan,
        .out = out,
        .dtype = kind == DTP_LAYER_DENSE || kind == DTP_LAYER_MOE || plan->dtype != DTP_FP8
                     ? plan->dtype
                     : DTP_BF16,
        .e = plan->dtype == DTP_FP32 || plan->dtype == DTP_TF32 ? 4 : 2,
        .tokens = n,
        .z = n * m->hidden / (plan->sequence_parallel ? t : 1),
        .h = m->hidden,
        .t = t,
        .q_width = m->heads * (double)m->head_dim / t,
        .kv_width = kv * m->head_dim,
        .ffn = m->ffn / t,
        .dropout = m->dropout > 0 && problem->framework->dropout,
        .tp_overlap = plan->tp_overlap < 0 ? problem->framework->tp_overlap : plan->tp_overlap,
    };
    out->n = 0;
    switch (kind) {
    case DTP_LAYER_DENSE:
    case DTP_LAYER_MOE:
        if (b.f->native)
            dtp_op_native_layer(&b);
        else
            layer(&b, kind == DTP_LAYER_MOE);
        break;
    case DTP_LAYER_EMBEDDING:
        if (b.f->native)
            dtp_op_native_embedding(&b);
        else if (eager(&b))
            dtp_op_eager_embedding(&b);
        else
            embedding(&b);
        break;
    case DTP_LAYER_HEAD:
        if (b.f->native)
            dtp_op_native_head(&b);
        else if (eager(&b))
            dtp_op_eager_head(&b);
        else
            head(&b);
        break;
    case DTP_LAYER_CONV:
        convolutions(&b);
        break;
    case DTP_NLAYER_KINDS:
        break;
    }
}

double dtp_op_flops(const struct dtp_op *op) {
    switch (op->kind) {
    case DTP_OP_GEMM:
    case DTP_OP_BMM:
        return op->count * 2.0 * (double)op->gemm.m * (double)op->gemm.n * (double)op->gemm.k *
               (double)op->gemm.batch;
    case DTP_OP_ATTENTION:
        return op->count * dtp_attention_flops(&op->attention);
    case DTP_OP_KERNEL:
    case DTP_OP_COLLECTIVE:
        return 0;
    }
    return 0;
}

static double collective_time_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                const struct dtp_op *op) {
    struct dtp_placement placement;
    if (dtp_placement_init(&placement, problem->cluster,
                           &(struct dtp_sizes){plan->tp, plan->cp, plan->dp, plan->pp, plan->ep},
                           problem->framework->rank_order, NULL) != DTP_OK)
        return 0;
    struct dtp_group_shape shape = dtp_placement_shape(&placement, problem->cluster, op->axis, 0);
    struct dtp_coll_cost cost;
    enum dtp_algo algo = op->axis == DTP_AXIS_TP ? plan->tp_algo : DTP_ALGO_AUTO;
    dtp_coll_cost(problem->cluster, op->collective, algo, &shape, op->bytes, &cost);
    double steps = op->collective == DTP_ALL_REDUCE ? 2.0 * (shape.size - 1) : shape.size - 1;
    bool fabric = op->axis == DTP_AXIS_TP && shape.nodes > 1;
    return cost.time_s * problem->framework->comm_time_factor +
           (fabric ? steps * problem->framework->tp_hop_s : 0);
}

enum { SMALL_HEAD = 64 };

double dtp_op_time_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                     const struct dtp_op *op) {
    const struct dtp_gpu *gpu = &problem->cluster->gpu;
    double time_s = 0;
    switch (op->kind) {
    case DTP_OP_GEMM:
        time_s = dtp_device_gemm_s(gpu, &op->gemm);
        break;
    case DTP_OP_BMM:
        time_s = dtp_device_bmm_s(gpu, &op->gemm);
        break;
    case DTP_OP_ATTENTION:
        time_s = dtp_device_attention_s(gpu, &op->attention);
        break;
    case DTP_OP_KERNEL:
        time_s = dtp_device_kernel_s(gpu, op->kernel, op->bytes, op->elements);
        if (op->kernel == DTP_K_NORM || op->kernel == DTP_K_NORM_BACKWARD)
            time_s *= problem->framework->norm_time_factor;
        break;
    case DTP_OP_COLLECTIVE:
        return op->count * collective_time_s(problem, plan, op);
    }
    struct dtp_framework_gpu on = dtp_framework_on(problem->framework, gpu);
    if (op->kind == DTP_OP_ATTENTION && plan->cp > 1)
        time_s *= problem->framework->cp_attention_factor;
    if (op->kind == DTP_OP_ATTENTION && op->attention.head_dim <= SMALL_HEAD)
        time_s *= problem->framework->small_head_factor;
    return op->count * time_s *
           (op->kind == DTP_OP_ATTENTION ? on.attention_time_factor : on.kernel_time_factor);
}
