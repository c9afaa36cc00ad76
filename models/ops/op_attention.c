/* This file lists the operations of attention: projections, the core fused or not, multi-head latent attention. */
#include "models/ops/op_internal.h"

/* Adds the forward from scores to softmax; returns the bytes of its elements. batch: heads x microbatch of a rank. */
static double softmax_of_scores(struct dtp_op_build *b, double batch, double scores) {
    double e = b->e;
    /* Megatron's kernel works on 16 bit and on whole blocks of heads (is_kernel_available). */
    int multiple = b->f->kernels.fused_softmax_multiple;
    bool half = e < 4;
    bool fused =
        b->f->kernels.fused_softmax && half && (multiple == 0 || (int64_t)batch % multiple == 0);
    /* The softmax falls back to fp32 between conversions if the heads do not make whole blocks
     * (forward_torch_softmax under query-key layer scaling); plain unfused softmax stays in 16 bit. */
    bool wide = !fused && half && multiple > 0;
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
    return w;
}

#define F DTP_PASS_F
#define I DTP_PASS_I
#define W DTP_PASS_W

/* transformers' eager_attention_forward: the softmax works on an fp32 copy of the 16-bit scores, what multiplies V
 * is cast back; as profiled with PyTorch 2.11. */
static const struct dtp_op_row scores_rows[] = {
    {"scores scale", F, DTP_K_ELEMENTWISE, 4, 1},
    {"mask add", F, DTP_K_STRIDED, 4, 1},
    {"scores to fp32", F, DTP_K_STRIDED, 6, 1},
    {"softmax", F, DTP_K_SOFTMAX, 8, 1},
    {"softmax to 16 bit", F, DTP_K_COPY, 6, 1},
    {"softmax gradient to fp32", I, DTP_K_STRIDED, 6, 1},
    {"softmax", I, DTP_K_SOFTMAX_BACKWARD, 12, 1},
    {"scores gradient to 16 bit", I, DTP_K_COPY, 6, 1},
    {"scores scale", I, DTP_K_ELEMENTWISE, 4, 1},
    {0}};
#undef F
#undef I
#undef W

/* Adds both passes of the fp32 softmax, of which 4 bytes of its output and 2 of the cast stay. */
static void eager_scores(struct dtp_op_build *b, double scores) {
    dtp_op_rows(b, scores_rows, scores);
    dtp_op_keep(b, 6 * scores);
}

/* The scores are in memory (Korthikanti 2022, section 4.1): S = b a s^2 / t elements. */
static void unfused_core(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double heads = m->heads / b->t, seq = b->problem->seq, d = m->head_dim, e = b->e;
    double rows = seq / b->key->cp, batch = b->key->microbatch_size * heads;
    double scores = batch * rows * seq;
    int from = b->out->n;
    dtp_op_gemm(b, "QK^T", DTP_PASS_F, (struct dtp_op_shape){rows, seq, d, batch});
    bool eager = b->f->kernels.ops == DTP_OPS_EAGER && e < 4;
    double w = eager ? 0 : softmax_of_scores(b, batch, scores);
    if (eager)
        eager_scores(b, scores);
    if (b->attention_dropout) {
        dtp_op_kernel(b, "attention dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * scores,
                      scores)
            ->saved_bytes = (e + 1) * scores; /* its output and the mask */
        dtp_op_kernel(b, "attention dropout", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * scores,
                      scores);
    }
    dtp_op_gemm(b, "PV", DTP_PASS_F, (struct dtp_op_shape){rows, d, seq, batch});
    dtp_op_gemm(b, "dP", DTP_PASS_I, (struct dtp_op_shape){rows, seq, d, batch});
    dtp_op_gemm(b, "dV", DTP_PASS_I, (struct dtp_op_shape){seq, d, rows, batch});
    if (!eager)
        dtp_op_kernel(b, "softmax", DTP_PASS_I, DTP_K_SOFTMAX_BACKWARD, 3 * w * scores, scores);
    dtp_op_gemm(b, "dQ", DTP_PASS_I, (struct dtp_op_shape){rows, d, seq, batch});
    dtp_op_gemm(b, "dK", DTP_PASS_I, (struct dtp_op_shape){seq, d, rows, batch});
    dtp_op_again(b, from, DTP_BIT_CORE_ATTN);
    dtp_op_dropped(b, from, DTP_BIT_CORE_ATTN);
    for (int i = from; i < b->out->n; i++) {
        if (b->out->at[i].kind == DTP_OP_GEMM) {
            b->out->at[i].kind = DTP_OP_BMM;
            b->out->at[i].gemm.unaligned = m->head_dim % 8 != 0;
            b->out->at[i].gemm.dtype = dtp_dtype_narrow(b->key->dtype) ? DTP_BF16 : b->key->dtype;
        }
    }
}

/* Queries see only keys of their stretch of `tokens` tokens; 0: all keys. The last stretch may be shorter: all
 * are as long as their mean. */
static void stay_within(struct dtp_attention_shape *s, int tokens) {
    if (tokens <= 0 || tokens >= s->seq_kv)
        return;
    int64_t stretches = (s->seq_kv + tokens - 1) / tokens;
    s->seq_kv = (s->seq_kv + stretches - 1) / stretches;
    int64_t here = (s->seq_q + s->seq_kv - 1) / s->seq_kv;
    s->batch *= here;
    s->seq_q /= here;
}

static void fused_core(struct dtp_op_build *b, enum dtp_attention impl, double context) {
    const struct dtp_model *m = b->m;
    bool mla = m->mla.kv_lora_rank > 0;
    struct dtp_attention_shape shape = {
        .dtype = dtp_dtype_narrow(b->key->dtype) ? DTP_BF16 : b->key->dtype,
        .impl = impl,
        .causal = m->causal,
        .dropout = b->attention_dropout,
        .batch = b->key->microbatch_size,
        .heads = (int64_t)(m->heads / b->t),
        .kv_heads = m->kv_heads < b->key->tp ? 1 : (int64_t)(m->kv_heads / b->t),
        .seq_q = b->problem->seq / b->key->cp,
        .seq_kv = b->problem->seq,
        .window = m->chunked_attention ? 0 : b->window,
        .head_dim = mla ? m->mla.nope_head_dim + m->mla.rope_head_dim : m->head_dim,
    };
    stay_within(&shape, b->problem->document_tokens);
    stay_within(&shape, m->chunked_attention ? b->window : 0);
    struct dtp_op *op = dtp_op_add(b, "attention", DTP_OP_ATTENTION, DTP_PASS_F);
    op->attention = shape;
    op->again_by = op->dropped_by = DTP_BIT_CORE_ATTN;
    /* The log-sum-exp of each row, fp32 (Dao 2022, section 3.1). */
    op->saved_bytes = 4.0 * b->tokens * m->heads / b->t +
                      b->f->quirks.attention_copies.attention_copies_bytes * b->tokens * b->q_width;
    if (dtp_op_context_bytes(b, 1) < b->e)
        op->saved_bytes += b->e * context;
    op = dtp_op_add(b, "attention", DTP_OP_ATTENTION, DTP_PASS_I);
    op->attention = shape;
    op->attention.backward = true;
    if (b->key->cp > 1) {
        /* Keys and values travel around the ring once forward; in the backward they and their gradients
         * (Liu 2023, ring attention). */
        double bytes = 2 * b->tokens * b->key->cp * b->kv_width * b->e;
        dtp_op_collective(b, "cp ring KV", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_CP, bytes)
            ->overlapped = true;
        dtp_op_collective(b, "cp ring KV dKV", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_CP, 2 * bytes)
            ->overlapped = true;
    }
}

/* DeepSeek-V2 2024, section 2.1: low-rank queries and keys-values, projected up per head. mla_up_proj keeps the
 * latents before their norms, which are part of the products (Megatron-Core, qkv_up_proj_and_rope_apply()). */
static void mla_projections(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    const struct dtp_mla *l = &m->mla;
    double heads = m->heads / b->t, qk = l->nope_head_dim + l->rope_head_dim, n = b->tokens;
    int first = b->out->n, up = first;
    if (l->q_lora_rank > 0) {
        dtp_op_linear(b, "q down", n, b->h, l->q_lora_rank, b->e * b->z);
        dtp_op_input_dropped(b, first, DTP_BIT_LAYERNORM);
        up = b->out->n;
        dtp_op_norm(b, "q norm", n * l->q_lora_rank, b->e * n * l->q_lora_rank);
        dtp_op_again(b, up, DTP_BIT_MLA_UP_PROJ);
        up = b->out->n;
        dtp_op_linear(b, "q up", n, l->q_lora_rank, heads * qk,
                      dtp_op_input_bytes(b, n * l->q_lora_rank));
        dtp_op_dropped(b, up, DTP_BIT_MLA_UP_PROJ);
    } else {
        dtp_op_linear(b, "q", n, b->h, heads * qk, b->e * b->z);
        dtp_op_input_dropped(b, first, DTP_BIT_LAYERNORM);
    }
    dtp_op_again(b, up, DTP_BIT_MLA_UP_PROJ);
    up = b->out->n;
    dtp_op_linear(b, "kv down", n, b->h, l->kv_lora_rank + l->rope_head_dim, 0);
    dtp_op_input_dropped(b, up, DTP_BIT_LAYERNORM);
    up = b->out->n;
    dtp_op_norm(b, "kv norm", n * l->kv_lora_rank, b->e * n * l->kv_lora_rank);
    dtp_op_again(b, up, DTP_BIT_MLA_UP_PROJ);
    up = b->out->n;
    dtp_op_linear(b, "kv up", n, l->kv_lora_rank, heads * (l->nope_head_dim + l->v_head_dim),
                  dtp_op_input_bytes(b, n * l->kv_lora_rank));
    double width = heads * (2 * qk + l->v_head_dim);
    dtp_op_kernel(b, "rope and concat", DTP_PASS_F, DTP_K_ROPE, 2 * b->e * n * width, n * width)
        ->saved_bytes = b->e * n * width;
    dtp_op_kernel(b, "rope and concat", DTP_PASS_I, DTP_K_ROPE, 2 * b->e * n * width, n * width);
    dtp_op_again(b, up, DTP_BIT_MLA_UP_PROJ);
    dtp_op_dropped(b, up, DTP_BIT_MLA_UP_PROJ);
}

static void qkv_projection(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens, width = b->q_width + 2 * b->kv_width, e = b->e;
    if (b->f->kernels.separate_products) {
        dtp_op_linear(b, "q", n, b->h, b->q_width, dtp_op_column_input_bytes(b));
        dtp_op_linear(b, "k", n, b->h, b->kv_width, 0);
        dtp_op_linear(b, "v", n, b->h, b->kv_width, 0);
        dtp_op_input_gradient_adds(b, 2);
    } else {
        dtp_op_linear(b, "qkv", n, b->h, width, dtp_op_column_input_bytes(b));
    }
    if ((m->attention_bias || m->qkv_bias) && !b->f->kernels.fused_linear_bias)
        dtp_op_kernel(b, "qkv bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * n * width, n * width);
    if (m->attention_bias || m->qkv_bias)
        dtp_op_kernel(b, "qkv bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * n * width, n * width);
    if (!b->f->kernels.separate_products)
        dtp_op_kernel(b, "qkv gradient concat", DTP_PASS_I, DTP_K_COPY, 2 * e * n * width,
                      n * width);
    if (m->position == DTP_POS_ROPE) {
        /* One kernel reads and writes q and k; otherwise rotate-half: negate, concatenate, two products
         * and a sum, on strided halves. */
        double qk = n * (b->q_width + b->kv_width), passes = b->f->kernels.fused_rope ? 1 : 4;
        enum dtp_kernel k = b->f->kernels.fused_rope ? DTP_K_ROPE : DTP_K_STRIDED;
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

enum dtp_attention dtp_op_attention_kernel(const struct dtp_op_build *b) {
    const struct dtp_gpu *gpu = &b->problem->cluster->gpu;
    int asked = b->problem->attention;
    return dtp_device_attention(gpu, asked >= 0 ? (enum dtp_attention)asked
                                                : dtp_framework_on(b->f, gpu).attention);
}

void dtp_op_attention_core(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double v_dim = m->mla.kv_lora_rank > 0 ? m->mla.v_head_dim : m->head_dim;
    double context = b->tokens * m->heads / b->t * v_dim;
    enum dtp_attention impl = dtp_op_attention_kernel(b);
    if (impl != DTP_ATTN_UNFUSED) {
        fused_core(b, impl, context);
        return;
    }
    unfused_core(b);
    dtp_op_kernel(b, "context transpose", DTP_PASS_F, DTP_K_STRIDED, 2 * b->e * context, context);
}

void dtp_op_attention_block(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens;
    int norm = b->out->n;
    dtp_op_norm(b, "norm 1", b->z, b->e * b->z);
    bool mla = m->mla.kv_lora_rank > 0;
    if (mla) /* elsewhere the product includes it */
        dtp_op_again(b, norm, DTP_BIT_LAYERNORM);
    else
        dtp_op_norm_within(b, norm);
    dtp_op_tp_enter(b);
    if (mla)
        mla_projections(b);
    else
        qkv_projection(b);
    b->norm_cast = false;
    dtp_op_attention_core(b);
    double width = mla ? m->heads / b->t * m->mla.v_head_dim : b->q_width;
    dtp_op_linears(b, "projection", (struct dtp_op_shape){n, b->h, width, 1, .row_parallel = true},
                   dtp_op_context_bytes(b, n * width));
    dtp_op_tp_leave(b);
    dtp_op_residual(b, m->attention_bias);
}
