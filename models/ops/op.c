/* The list of a layer, by the stack that runs it, and what recomputation repeats of it. */
#include "models/ops/op.h"

#include <assert.h>

#include "models/ops/op_internal.h"

const char *const dtp_pass_names[] = {"F", "I", "W", NULL};
const char *const dtp_op_kind_names[] = {"gemm", "bmm", "attention", "kernel", "collective", NULL};

static void set_core(struct dtp_op *op, bool is) {
    op->again_by = op->dropped_by = is ? DTP_BIT_CORE_ATTN : 0;
}

/* Selective recomputation as torchtitan has it: what attention and every second product made stays,
 * the rest is repeated. FP8 products are none of those that its list names (aten.mm): all are repeated but the
 * last, whose output no backward reads. */
static void alternate_products(struct dtp_op_build *b) {
    double all = 0, kept = b->e * b->z;
    bool repeated = true, listed = !dtp_dtype_narrow(b->dtype);
    struct dtp_op *attention = NULL, *first = NULL, *last = NULL;
    for (int i = 0; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass != DTP_PASS_F)
            continue;
        all += op->saved_bytes;
        op->saved_bytes = 0;
        set_core(op, op->kind == DTP_OP_KERNEL);
        if (op->kind == DTP_OP_GEMM) {
            repeated = !repeated || !listed;
            set_core(op, repeated);
            last = op;
            kept += repeated ? 0 : b->e * (double)(op->gemm.m * op->gemm.n * op->gemm.batch);
        } else if (op->kind == DTP_OP_ATTENTION) {
            attention = op;
            kept += b->e * b->tokens * b->q_width;
        }
        first = first ? first : op;
    }
    if (!attention)
        return;
    if (!listed && last)
        set_core(last, false);
    attention->saved_bytes = kept;
    set_core(first, true);
    first->saved_bytes = all > kept ? all - kept : 0;
    b->out->mlp = 0; /* the layer is repeated as a whole */
}

/* Number of operations that full recomputation repeats: all, or as PyTorch's checkpoint does without
 * re-entering autograd: up to the last tensor that the forward kept. A GEMM keeps its inputs, so that
 * it does not run itself; another kernel keeps what it makes. */
static int recomputed_ops(const struct dtp_framework *f, const struct dtp_ops *ops) {
    if (!f->kernels.recompute_stops_early)
        return ops->n;
    for (int i = ops->n - 1; i >= 0; i--)
        if (ops->at[i].pass == DTP_PASS_F && ops->at[i].saved_bytes > 0)
            return ops->at[i].kind == DTP_OP_GEMM ? i : i + 1;
    return 0;
}

static void set_repeated(const struct dtp_framework *f, const struct dtp_layer_key *key,
                         struct dtp_ops *ops) {
    int recomputed = key->recompute == DTP_RECOMPUTE_FULL ? recomputed_ops(f, ops) : 0;
    int modules = key->recompute_modules;
    for (int i = 0; i < ops->n; i++) {
        struct dtp_op *op = &ops->at[i];
        op->repeated =
            op->pass == DTP_PASS_F && (i < recomputed || (modules & op->again_by) || op->again);
    }
}

static double layer_params(const struct dtp_op_build *b, bool moe) {
    struct dtp_param_counts counts;
    dtp_model_params(b->m, b->m->vocab, &counts);
    if (!moe)
        return (double)counts.dense_layer / b->t;
    double experts = (double)counts.moe_layer_experts;
    return ((double)counts.moe_layer - experts) / b->t +
           experts / ((double)b->key->etp * b->key->ep);
}

/* Adds ZeRO's copies: gradients into and out of buckets; with ZeRO-3 gathered parameters into place and gradients into
 * the reduced buffer (a conversion if they travel in fp32). Recomputation uses what the backward gathered; the backward
 * gathers layers again, but not the parameters outside them. */
static void zero_copies(struct dtp_op_build *b, double params) {
    bool block = dtp_layer_is_block(b->key->kind);
    const struct dtp_framework *f = b->f;
    int zero = b->key->zero_stage;
    if ((zero == 1 || zero == 2) && f->quirks.zero_pieces.zero_copy_bytes > 0) {
        double times = zero == 2 && f->wire.reduce_per_microbatch ? 1 : b->key->microbatches;
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W, DTP_K_COPY,
                      f->quirks.zero_pieces.zero_copy_bytes * params / times, params / times);
    }
    if (zero < 3)
        return;
    if (f->wire.zero3_copy_out_bytes > 0) {
        dtp_op_kernel(b, "unshard copy", DTP_PASS_F, DTP_K_COPY,
                      f->wire.zero3_copy_out_bytes * params, params);
        if (block && f->wire.zero3_regather_backward && b->key->recompute != DTP_RECOMPUTE_FULL)
            dtp_op_kernel(b, "unshard copy", DTP_PASS_I, DTP_K_COPY,
                          f->wire.zero3_copy_out_bytes * params, params);
    }
    if (f->wire.zero3_copy_in_bytes > 0)
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W,
                      f->wire.reduce_bytes > b->e ? DTP_K_STRIDED : DTP_K_COPY,
                      f->wire.zero3_copy_in_bytes * params, params);
}

static const struct method {
    void (*layer)(struct dtp_op_build *b, bool moe, double params);
    void (*embedding)(struct dtp_op_build *b);
    void (*head)(struct dtp_op_build *b);
} methods[] = {
    [DTP_OPS_FUSED] = {dtp_op_fused_layer, dtp_op_fused_embedding, dtp_op_fused_head},
    [DTP_OPS_EAGER] = {dtp_op_eager_layer, dtp_op_eager_embedding, dtp_op_eager_head},
    [DTP_OPS_OWN] = {dtp_op_native_layer, dtp_op_native_embedding, dtp_op_native_head},
};
static_assert(sizeof methods / sizeof *methods == DTP_NOPS_METHODS, "a row each");

/* Eager lists exist for decoders with a language model head. */
static const struct method *method_of(const struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    bool decoder = m->mla.kv_lora_rank == 0 && m->patch == 0 && m->classes == 0 && !m->mlm_head &&
                   !m->parallel_block;
    enum dtp_ops_method ops = b->f->kernels.ops;
    return &methods[ops == DTP_OPS_EAGER && !decoder ? DTP_OPS_FUSED : ops];
}

static void layer(struct dtp_op_build *b, const struct method *method) {
    bool moe = dtp_layer_has_experts(b->key->kind);
    double params = layer_params(b, moe);
    method->layer(b, moe, params);
    if (b->f->kernels.selective_alternate_products && b->key->recompute == DTP_RECOMPUTE_SELECTIVE)
        alternate_products(b);
    zero_copies(b, params);
}

static int window_of(const struct dtp_problem *problem, enum dtp_layer_kind kind) {
    const struct dtp_model *m = problem->model;
    bool alike = m->full_attention_step == 0;
    bool has = alike || kind == DTP_LAYER_DENSE_WINDOW || kind == DTP_LAYER_MOE_WINDOW;
    return has && m->sliding_window < problem->seq ? m->sliding_window : 0;
}

static struct dtp_op_build build_of(const struct dtp_problem *problem,
                                    const struct dtp_layer_key *key, struct dtp_ops *out) {
    const struct dtp_model *m = problem->model;
    double t = key->tp, n = (double)key->microbatch_size * problem->seq / key->cp;
    double kv = m->kv_heads < key->tp ? 1 : m->kv_heads / t;
    return (struct dtp_op_build){
        .problem = problem,
        .m = m,
        .f = problem->framework,
        .key = key,
        .out = out,
        .dtype =
            dtp_layer_is_block(key->kind) || !dtp_dtype_narrow(key->dtype) ? key->dtype : DTP_BF16,
        .e = key->dtype == DTP_FP32 || key->dtype == DTP_TF32 ? 4 : 2,
        .tokens = n,
        .z = n * m->hidden / (key->sequence_parallel ? t : 1),
        .h = m->hidden,
        .t = t,
        .q_width = m->heads * (double)m->head_dim / t,
        .kv_width = kv * m->head_dim,
        .ffn = m->ffn / t,
        .window = window_of(problem, key->kind),
        .dropout = m->dropout > 0 && problem->framework->kernels.dropout,
        .fused_activation = problem->framework->kernels.fused_bias_activation,
        .attention_dropout = m->attention_dropout > 0 && problem->framework->kernels.dropout,
        .tp_overlap = key->tp_overlap,
    };
}

void dtp_op_list(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                 struct dtp_ops *out) {
    struct dtp_op_build b = build_of(problem, key, out);
    const struct method *method = method_of(&b);
    enum dtp_layer_kind kind = key->kind;
    out->n = out->mlp = 0;
    switch (kind) {
    case DTP_LAYER_DENSE:
    case DTP_LAYER_MOE:
    case DTP_LAYER_DENSE_WINDOW:
    case DTP_LAYER_MOE_WINDOW:
        layer(&b, method);
        break;
    case DTP_LAYER_EMBEDDING:
        method->embedding(&b);
        zero_copies(&b, (double)problem->model->vocab * b.h / b.t);
        break;
    case DTP_LAYER_HEAD:
        method->head(&b);
        if (!problem->model->tied_embeddings)
            zero_copies(&b, (double)problem->model->vocab * b.h / b.t);
        break;
    case DTP_LAYER_MTP:
        dtp_op_mtp(&b);
        break;
    case DTP_LAYER_CONV:
        dtp_op_convolutions(&b);
        break;
    case DTP_NLAYER_KINDS:
        break;
    }
    if (dtp_layer_is_block(kind) || kind == DTP_LAYER_CONV)
        set_repeated(b.f, key, out);
}
