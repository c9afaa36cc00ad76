/* op_eager.c: the layers of Hugging Face models as eager PyTorch runs them: every operator is a
 * separate kernel. The lists are those of traces of PyTorch 2.11 (FSDP2 GPT-2, pipelined Llama), in order;
 * bytes are counted per element of the tensor, `elements` is the number of elements that the kernels
 * which are not vectorised (broadcast, strided or converting) work on per element of the tensor.
 *
 * Under autocast weights and residual stream are fp32, matrix products are 16 bit, and norm, pow and
 * loss run in fp32 (torch.autocast's lists), with a conversion at every border.
 */
#include "models/ops/op_internal.h"

#define F DTP_PASS_F
#define I DTP_PASS_I
#define W DTP_PASS_W

/* torch.nn.LayerNorm: one kernel forward, two backward. */
static const struct dtp_op_row layer_norm[] = {{"norm", F, DTP_K_NORM, 4, 1},
                                               {"norm", I, DTP_K_NORM_BACKWARD, 6, 1},
                                               {"norm parameters", W, DTP_K_NORM_BACKWARD, 4, 1},
                                               {0}};
static const struct dtp_op_row layer_norm_autocast[] = {
    {"norm", F, DTP_K_NORM, 8, 1},
    {"norm to 16 bit", F, DTP_K_COPY, 6, 1},
    {"norm gradient to fp32", I, DTP_K_STRIDED, 6, 1},
    {"norm", I, DTP_K_NORM_BACKWARD, 12, 1},
    {"norm parameters", W, DTP_K_NORM_BACKWARD, 8, 1},
    {0}};

static const struct dtp_op_row rms_norm_autocast[] = {
    {"norm square", F, DTP_K_ELEMENTWISE, 8, 1},
    {"norm mean", F, DTP_K_ELEMENTWISE, 4, 1},
    {"norm epsilon", F, DTP_K_ELEMENTWISE, 0, 0},
    {"norm rsqrt", F, DTP_K_ELEMENTWISE, 0, 0},
    {"norm scale", F, DTP_K_STRIDED, 8, 1},
    {"norm weight", F, DTP_K_STRIDED, 8, 1},
    {"norm weight", I, DTP_K_STRIDED, 8, 1},
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
    {"norm weight product", W, DTP_K_ELEMENTWISE, 12, 1},
    {"norm weight sum", W, DTP_K_REDUCE, 4, 1},
    {0}};

static const struct dtp_op_row dropout[] = {
    {"dropout", F, DTP_K_DROPOUT, 5, 1}, {"dropout", I, DTP_K_ELEMENTWISE, 5, 1}, {0}};
static const struct dtp_op_row residual[] = {{"residual add", F, DTP_K_ELEMENTWISE, 6, 1},
                                             {"residual gradient add", I, DTP_K_ELEMENTWISE, 6, 1},
                                             {0}};
static const struct dtp_op_row residual_autocast[] = {
    {"residual add", F, DTP_K_STRIDED, 10, 1},
    {"residual gradient to 16 bit", I, DTP_K_COPY, 6, 1},
    {"residual gradient add", I, DTP_K_ELEMENTWISE, 12, 1},
    {0}};

/* x cos + rotate_half(x) sin on tensors in transposed layout. */
static const struct dtp_op_row rope[] = {
    {"rope cos", F, DTP_K_STRIDED, 4, 1.35},    {"rope negate", F, DTP_K_STRIDED, 2, 0.5},
    {"rope cat", F, DTP_K_CAT, 4, 1},           {"rope sin", F, DTP_K_STRIDED, 4, 1},
    {"rope add", F, DTP_K_STRIDED, 6, 1.35},    {"rope sin", I, DTP_K_STRIDED, 4, 1.35},
    {"rope negate", I, DTP_K_STRIDED, 2, 0.5},  {"rope zero", I, DTP_K_ELEMENTWISE, 2, 1},
    {"rope slice", I, DTP_K_STRIDED, 2, 0.6},   {"rope zero", I, DTP_K_ELEMENTWISE, 2, 1},
    {"rope slice", I, DTP_K_STRIDED, 2, 0.6},   {"rope slices add", I, DTP_K_ELEMENTWISE, 6, 1},
    {"rope cos", I, DTP_K_STRIDED, 4, 1.35},    {"rope add", I, DTP_K_STRIDED, 6, 1.35},
    {"rope layout", I, DTP_K_STRIDED, 4, 1.25}, {0}};
/* cos and sin are fp32, so the rotated tensors are, until the attention converts them. */
static const struct dtp_op_row rope_autocast[] = {{"rope to 16 bit", F, DTP_K_COPY, 6, 1},
                                                  {"rope gradient to fp32", I, DTP_K_STRIDED, 6, 1},
                                                  {"rope half to 16 bit", I, DTP_K_COPY, 6, 1},
                                                  {"rope to 16 bit", I, DTP_K_COPY, 6, 1},
                                                  {0}};

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) as transformers' NewGELUActivation writes it. */
static const struct dtp_op_row gelu_new[] = {
    {"gelu half", F, DTP_K_ELEMENTWISE, 4, 1},     {"gelu cube", F, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu scale", F, DTP_K_ELEMENTWISE, 4, 1},    {"gelu add", F, DTP_K_ELEMENTWISE, 6, 1},
    {"gelu scale", F, DTP_K_ELEMENTWISE, 4, 1},    {"gelu tanh", F, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu plus one", F, DTP_K_ELEMENTWISE, 4, 1}, {"gelu product", F, DTP_K_ELEMENTWISE, 6, 1},
    {"gelu product", I, DTP_K_ELEMENTWISE, 6, 1},  {"gelu product", I, DTP_K_ELEMENTWISE, 6, 1},
    {"gelu tanh", I, DTP_K_ELEMENTWISE, 6, 1},     {"gelu scale", I, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu scale", I, DTP_K_ELEMENTWISE, 4, 1},    {"gelu square", I, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu triple", I, DTP_K_ELEMENTWISE, 4, 1},   {"gelu cube", I, DTP_K_ELEMENTWISE, 6, 1},
    {"gelu add", I, DTP_K_ELEMENTWISE, 6, 1},      {"gelu half", I, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu add", I, DTP_K_ELEMENTWISE, 6, 1},      {0}};
static const struct dtp_op_row gelu_new_autocast[] = {
    {"gelu half", F, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu to fp32", F, DTP_K_STRIDED, 6, 1},
    {"gelu cube", F, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu scale", F, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu add", F, DTP_K_STRIDED, 10, 1},
    {"gelu scale", F, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu tanh", F, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu plus one", F, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu product", F, DTP_K_STRIDED, 10, 1},
    {"gelu to 16 bit", F, DTP_K_COPY, 6, 1},
    {"gelu gradient to fp32", I, DTP_K_STRIDED, 6, 1},
    {"gelu product", I, DTP_K_STRIDED, 10, 1},
    {"gelu product", I, DTP_K_ELEMENTWISE, 12, 1},
    {"gelu half to 16 bit", I, DTP_K_COPY, 6, 1},
    {"gelu tanh", I, DTP_K_ELEMENTWISE, 12, 1},
    {"gelu scale", I, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu to 16 bit", I, DTP_K_COPY, 6, 1},
    {"gelu scale", I, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu square", I, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu triple", I, DTP_K_ELEMENTWISE, 8, 1},
    {"gelu cube", I, DTP_K_ELEMENTWISE, 12, 1},
    {"gelu to 16 bit", I, DTP_K_COPY, 6, 1},
    {"gelu add", I, DTP_K_ELEMENTWISE, 6, 1},
    {"gelu half", I, DTP_K_ELEMENTWISE, 4, 1},
    {"gelu add", I, DTP_K_ELEMENTWISE, 6, 1},
    {0}};
static const struct dtp_op_row activation[] = {{"activation", F, DTP_K_ACTIVATION, 4, 1},
                                               {"activation", I, DTP_K_ACTIVATION_BACKWARD, 6, 1},
                                               {0}};
static const struct dtp_op_row gated[] = {
    {"silu", F, DTP_K_ELEMENTWISE, 4, 1},         {"gate product", F, DTP_K_ELEMENTWISE, 6, 1},
    {"gate product", I, DTP_K_ELEMENTWISE, 6, 1}, {"gate product", I, DTP_K_ELEMENTWISE, 6, 1},
    {"silu", I, DTP_K_ELEMENTWISE, 6, 1},         {0}};

/* Keys, and values, of each head of queries are a copy; q are the elements of such a copy. */
static const struct dtp_op_row repeat_rows[] = {{"repeat keys", F, DTP_K_STRIDED, 4, 1},
                                                {"repeat values", F, DTP_K_STRIDED, 4, 1},
                                                {"repeated keys sum", I, DTP_K_REDUCE, 2, 1},
                                                {"repeated values sum", I, DTP_K_REDUCE, 2, 1},
                                                {0}};

/* Upcast, log-softmax, negative log-likelihood; backward: zero-filled gradient, softmax, downcast. */
static const struct dtp_op_row cross_entropy[] = {
    {"logits to fp32", F, DTP_K_STRIDED, 6, 1}, {"log-softmax", F, DTP_K_CROSS_ENTROPY, 8, 1},
    {"nll", F, DTP_K_CROSS_ENTROPY, 0, 0},      {"nll", I, DTP_K_CROSS_ENTROPY, 0, 0},
    {"nll fill", I, DTP_K_CROSS_ENTROPY, 4, 1}, {"softmax", I, DTP_K_CROSS_ENTROPY, 12, 1},
    {"logits to 16 bit", I, DTP_K_COPY, 6, 1},  {0}};

#undef F
#undef I
#undef W

/* Whether RMS norm runs as Python operators; a fused RMS norm counts as layer norm's kernel. */
static bool rms(const struct dtp_op_build *b) {
    return b->m->norm == DTP_NORM_RMS && !b->f->kernels.fused_norm;
}

/* Its input stays, in fp32 under autocast or inside RMS norm; RMS norm also keeps what its weight
 * multiplies. readers: linear layers that read the output. */
static void norm(struct dtp_op_build *b, int readers) {
    bool autocast = dtp_framework_autocasts(b->f, b->key->zero_stage);
    double z = b->z;
    if (rms(b) && !autocast) {
        dtp_op_rms_norm_in_parts(b, z);
    } else {
        dtp_op_rows(b, rms(b) ? rms_norm_autocast : autocast ? layer_norm_autocast : layer_norm, z);
        dtp_op_keep(b, (rms(b) ? 8 : autocast ? 4 : 2) * z);
    }
    for (int i = 0; i < readers && rms(b) && autocast; i++) {
        dtp_op_kernel(b, "norm to 16 bit", DTP_PASS_F, DTP_K_COPY, 6 * z, z);
        dtp_op_kernel(b, "norm gradient to fp32", DTP_PASS_I, DTP_K_STRIDED, 6 * z, z);
    }
    for (int i = 1; i < readers; i++)
        dtp_op_kernel(b, "input gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE,
                      (autocast ? 12 : 6) * z, z);
    dtp_op_keep(b, 2 * z * (autocast ? readers : 1)); /* what the linear layers read */
}

static void leave(struct dtp_op_build *b, bool bias) {
    if (bias)
        dtp_op_kernel(b, "bias gradient", DTP_PASS_W, DTP_K_REDUCE, 2 * b->z, b->z);
    if (b->dropout) {
        dtp_op_rows(b, dropout, b->z);
        dtp_op_keep(b, b->z);
    }
    dtp_op_rows(b, dtp_framework_autocasts(b->f, b->key->zero_stage) ? residual_autocast : residual,
                b->z);
}

static void rotate(struct dtp_op_build *b, double elements) {
    dtp_op_rows(b, rope, elements);
    if (dtp_framework_autocasts(b->f, b->key->zero_stage))
        dtp_op_rows(b, rope_autocast, elements);
}

static void attention(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens, width = b->q_width + 2 * b->kv_width;
    bool bias = m->attention_bias || m->qkv_bias, separate = m->position == DTP_POS_ROPE;
    norm(b, separate ? 3 : 1);
    dtp_op_tp_enter(b);
    if (separate) {
        dtp_op_linear(b, "q", n, b->h, b->q_width, 0);
        dtp_op_linear(b, "k", n, b->h, b->kv_width, 0);
        dtp_op_linear(b, "v", n, b->h, b->kv_width, 0);
        rotate(b, n * b->q_width);
        rotate(b, n * b->kv_width);
    } else {
        dtp_op_linear(b, "qkv", n, b->h, width, 0);
        dtp_op_kernel(b, "qkv gradient cat", DTP_PASS_I, DTP_K_COPY, 4 * n * width, n * width);
    }
    if (bias)
        dtp_op_kernel(b, "qkv bias gradient", DTP_PASS_W, DTP_K_REDUCE, 2 * n * width, n * width);
    bool unfused = dtp_op_attention_kernel(b) == DTP_ATTN_UNFUSED;
    bool repeats = b->f->quirks.repeated_kv.repeats_kv || unfused;
    if (unfused && b->kv_width < b->q_width)
        dtp_op_rows(b, repeat_rows, n * b->q_width);
    dtp_op_keep(b, 2 * n * (repeats ? 3 * b->q_width : width)); /* q, k, v */
    dtp_op_attention_core(b);
    dtp_op_linear(b, "projection", n, b->q_width, b->h, 2 * n * b->q_width);
    dtp_op_tp_leave(b);
    leave(b, m->attention_bias);
}

static void mlp(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double n = b->tokens, x = n * b->ffn;
    bool chain = b->f->kernels.gelu_chain && m->activation == DTP_ACT_GELU && !m->gated_ffn;
    norm(b, m->gated_ffn ? 2 : 1);
    dtp_op_tp_enter(b);
    dtp_op_linear(b, m->gated_ffn ? "gate" : "fc1", n, b->h, b->ffn, 0);
    if (m->gated_ffn)
        dtp_op_linear(b, "up", n, b->h, b->ffn, 0);
    if (m->mlp_bias)
        dtp_op_kernel(b, "fc1 bias gradient", DTP_PASS_W, DTP_K_REDUCE, 2 * x, x);
    if (m->gated_ffn) { /* gate, silu and up stay */
        dtp_op_rows(b, gated, x);
        dtp_op_keep(b, 6 * x);
    } else if (
        chain) { /* its input, half of it, tanh and 1 + tanh; but the half fp32 under autocast */
        dtp_op_rows(
            b, dtp_framework_autocasts(b->f, b->key->zero_stage) ? gelu_new_autocast : gelu_new, x);
        dtp_op_keep(b, (dtp_framework_autocasts(b->f, b->key->zero_stage) ? 14 : 8) * x);
    } else {
        dtp_op_rows(b, activation, x);
        dtp_op_keep(b, 2 * x);
    }
    dtp_op_linear(b, "fc2", n, b->ffn, b->h, 2 * x);
    dtp_op_tp_leave(b);
    leave(b, m->mlp_bias);
}

/* The norm's output is read by the router, the ordering of rows and what all tokens visit. */
static void experts(struct dtp_op_build *b) {
    norm(b, b->m->moe.shared_experts > 0 ? 3 : 2);
    dtp_op_moe(b);
    leave(b, b->m->mlp_bias);
}

/* Parameter tensors of a layer: those that autocast converts (matrices and biases), all. */
struct tensors {
    double cast, all;
};

/* Adds what happens to `params` weights in n tensors besides products: autocast converts them and their gradients;
 * gradients move into buckets or are added up. */
static void parameters(struct dtp_op_build *b, double params, struct tensors n) {
    double wide = dtp_framework_autocasts(b->f, b->key->zero_stage) ? 4 : 2;
    if (dtp_framework_autocasts(b->f, b->key->zero_stage)) {
        dtp_op_kernel(b, "weights to 16 bit", DTP_PASS_F, DTP_K_COPY, 6 * params, params)
            ->launches = n.cast;
        dtp_op_kernel(b, "weight gradients to fp32", DTP_PASS_W, DTP_K_STRIDED, 6 * params, params)
            ->launches = n.cast;
    }
    bool several = b->key->microbatches > 1 && b->key->zero_stage < 2;
    bool reducer = b->f->keeps.reducer_bytes > 0 && b->key->zero_stage == 0 &&
                   b->problem->gpus >= b->f->keeps.reducer_ranks; /* no tp, no pp in such stacks */
    if (reducer && !several) /* gradients move into the reduction buckets */
        dtp_op_kernel(b, "gradients to buckets", DTP_PASS_W, DTP_K_ELEMENTWISE, 2 * wide * params,
                      params)
            ->launches = n.all;
    /* FSDP that reduces once a step adds up whole gradients in fp32 (to_accumulated_grad_if_needed()). */
    if (b->key->zero_stage >= 2 && !b->f->wire.reduce_per_microbatch && b->key->microbatches > 1)
        dtp_op_kernel(b, "gradient add", DTP_PASS_W, DTP_K_STRIDED, 10 * params, params)->launches =
            n.all;
    if (several)
        dtp_op_kernel(b, "gradient add", DTP_PASS_W, DTP_K_ELEMENTWISE, 3 * wide * params, params)
            ->launches = n.all;
}

/* Experts are two tensors, or three; router and shared experts have their own. */
static struct tensors tensors_of(const struct dtp_op_build *b, bool moe) {
    const struct dtp_model *m = b->m;
    double mlp = m->gated_ffn ? 3 : 2;
    double experts = m->gated_ffn && b->f->kernels.moe_separate_products ? 3 : 2;
    if (moe)
        mlp = 1 + experts + (m->moe.shared_experts > 0 ? mlp : 0);
    double products = (m->position == DTP_POS_ROPE ? 4 : 2) + mlp;
    double biases = m->attention_bias ? products - (m->mlp_bias ? 0 : 2) : 0;
    double norms = 2 * (m->norm_bias ? 2 : 1);
    return (struct tensors){products + biases, products + biases + norms};
}

void dtp_op_eager_layer(struct dtp_op_build *b, bool moe, double params) {
    attention(b);
    if (moe)
        experts(b);
    else
        mlp(b);
    parameters(b, params, tensors_of(b, moe));
}

void dtp_op_eager_embedding(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double full = b->tokens * b->h,
           wide = dtp_framework_autocasts(b->f, b->key->zero_stage) ? 4 : 2;
    double table = (double)m->vocab / b->t * b->h;
    dtp_op_kernel(b, "token rows", DTP_PASS_F, DTP_K_EMBEDDING, 2 * wide * full, full);
    if (m->position == DTP_POS_LEARNED) {
        dtp_op_kernel(b, "positions", DTP_PASS_F, DTP_K_STRIDED, 3 * wide * full, full);
        dtp_op_kernel(b, "position gradients", DTP_PASS_W, DTP_K_REDUCE, wide * full, full);
    }
    if (b->dropout) {
        dtp_op_rows(b, dropout, full);
        dtp_op_keep(b, full);
    }
    dtp_op_kernel(b, "table zero", DTP_PASS_W, DTP_K_ELEMENTWISE, wide * table, table);
    dtp_op_kernel(b, "row gradients", DTP_PASS_W, DTP_K_EMBEDDING, 3 * wide * full, full);
    if (m->tied_embeddings)
        dtp_op_kernel(b, "table gradient add", DTP_PASS_W, DTP_K_ELEMENTWISE, 3 * wide * table,
                      table);
    else
        parameters(b, table, (struct tensors){0, 1});
}

void dtp_op_eager_head(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double vocab = dtp_framework_padded_vocab(b->f, m->vocab, b->key->tp) / b->t;
    norm(b, 1);
    dtp_op_linear(b, "logits", b->tokens, b->h, vocab, 0);
    dtp_op_rows(b, cross_entropy, b->tokens * vocab);
    parameters(b, b->h * vocab, (struct tensors){1, 1});
}
