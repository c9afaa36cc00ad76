/* This file lists our runtime's operations as its executor runs them (runtime/transformer*.c): each call is a kernel,
 * and collectives stop the rank. Element counts stand for the work of a kernel class; the GPU file has the rates. */
#include "models/ops/op_native.h"

#include "models/ops/op_internal.h"

int64_t dtp_native_vocab(const struct dtp_model *m, int tp, enum dtp_dtype dtype) {
    enum { ROWS = 64, WIDE_BYTES = 4 };
    int64_t rows = (m->vocab + tp - 1) / tp;
    return dtp_dtype_bytes(dtype) < WIDE_BYTES ? (rows + ROWS - 1) / ROWS * ROWS : rows;
}

void dtp_native_of(const struct dtp_problem *problem, const struct dtp_native_sizes *p,
                   struct dtp_native *out) {
    const struct dtp_model *m = problem->model;
    struct dtp_native d = {.tokens = (int64_t)p->microbatch_size * problem->seq,
                           .hidden = m->hidden,
                           .seq = problem->seq,
                           .heads = m->heads / p->tp,
                           .kv_heads = m->kv_heads >= p->tp ? m->kv_heads / p->tp : 1,
                           .head_dim = m->head_dim,
                           .ffn = m->ffn / p->tp,
                           .vocab = dtp_native_vocab(m, p->tp, p->dtype),
                           .kv_copies = m->kv_heads >= p->tp ? 1 : p->tp / m->kv_heads,
                           .sp = p->sequence_parallel && p->tp > 1,
                           .dropout = problem->framework->kernels.dropout && m->dropout > 0,
                           .attention_dropout =
                               problem->framework->kernels.dropout && m->attention_dropout > 0};
    d.local_tokens = d.sp ? d.tokens / p->tp : d.tokens;
    d.q_width = d.heads * d.head_dim;
    d.kv_width = d.kv_heads * d.head_dim;
    d.qkv_width = d.q_width + 2 * d.kv_width;
    d.up_width = m->gated_ffn ? 2 * d.ffn : d.ffn;
    d.norm_params = d.hidden * (m->norm == DTP_NORM_LAYER && m->norm_bias ? 2 : 1);
    d.layer_params =
        2 * d.norm_params + d.hidden * (d.qkv_width + d.q_width) + d.hidden * (d.up_width + d.ffn);
    if (m->attention_bias || m->qkv_bias)
        d.layer_params += d.qkv_width;
    d.layer_params += m->attention_bias ? d.hidden : 0;
    d.layer_params += m->mlp_bias ? d.up_width + d.hidden : 0;
    *out = d;
}

static int64_t padded(int64_t n, int dp) {
    return (n + dp - 1) / dp * dp;
}

/* A stage without layers, by the ends of the model that it has. */
static void ends_of(const struct dtp_model *m, const struct dtp_native *d, int dp, bool first,
                    bool last, struct dtp_native_stage *out) {
    int64_t positions = m->max_positions > 0 ? m->max_positions : m->seq;
    *out = (struct dtp_native_stage){
        .first = first, .last = last, .layer_n = padded(d->layer_params, dp)};
    out->tied = out->first && out->last && m->tied_embeddings;
    if (out->first)
        out->tokens_n = padded(d->vocab * d->hidden, dp);
    if (out->first && m->position == DTP_POS_LEARNED)
        out->positions_n = padded(positions * d->hidden, dp);
    if (out->last)
        out->norm_n = padded(d->norm_params, dp);
    if (out->last && !out->tied)
        out->head_n = padded(d->vocab * d->hidden, dp);
}

void dtp_native_stage_of(const struct dtp_model *m, const struct dtp_cut *cut, int dp,
                         const struct dtp_native *d, int vs, struct dtp_native_stage *out) {
    ends_of(m, d, dp, vs == 0, vs == cut->pp * cut->vpp - 1, out);
    out->layers = dtp_cut_layers(cut, m, vs);
}

int64_t dtp_native_stage_params(const struct dtp_native_stage *s) {
    return s->tokens_n + s->positions_n + s->layers * s->layer_n + s->norm_n + s->head_n;
}

/* ---- lists of kernels ---- */

struct native {
    struct dtp_op_build *b;
    struct dtp_native d;
    bool gelu; /* it ends the products around it, and they were timed so */
};

/* Bytes count as one element read and one written, which the rates of the classes are made of. */
static struct dtp_op *kernel(struct native *x, const char *name, enum dtp_pass pass,
                             enum dtp_kernel k, int64_t rows, int64_t cols) {
    double elements = (double)rows * (double)cols;
    struct dtp_op *op = dtp_op_kernel(x->b, name, pass, k, 2 * x->b->e * elements, elements);
    op->rows = (double)rows;
    op->cols = (double)cols;
    return op;
}

static struct dtp_op *gemm(struct native *x, const char *name, enum dtp_pass pass, int64_t m,
                           int64_t n, int64_t k) {
    struct dtp_op *op = dtp_op_kernel(x->b, name, pass, DTP_K_ELEMENTWISE, 0, 0);
    op->kind = DTP_OP_GEMM;
    op->gemm = (struct dtp_gemm){.dtype = x->b->dtype,
                                 .pass = pass == DTP_PASS_F   ? DTP_GEMM_FORWARD
                                         : pass == DTP_PASS_I ? DTP_GEMM_DGRAD
                                                              : DTP_GEMM_WGRAD,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .batch = 1};
    return op;
}

static void collective(struct native *x, const char *name, enum dtp_pass pass,
                       enum dtp_collective kind, int64_t elements) {
    if (x->b->key->tp == 1)
        return;
    double e = x->b->e;
    struct dtp_op *op = dtp_op_kernel(x->b, name, pass, DTP_K_COPY, e * (double)elements, 0);
    op->kind = DTP_OP_COLLECTIVE;
    op->collective = kind;
    op->axis = DTP_AXIS_TP;
}

static void tp_gather(struct native *x, enum dtp_pass pass) {
    if (x->d.sp)
        collective(x, "tp all_gather", pass, DTP_ALL_GATHER, x->d.tokens * x->d.hidden);
}

static void tp_reduce(struct native *x, enum dtp_pass pass) {
    collective(x, x->d.sp ? "tp reduce_scatter" : "tp all_reduce", pass,
               x->d.sp ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, x->d.tokens * x->d.hidden);
}

static void norm(struct native *x, const char *name) {
    kernel(x, name, DTP_PASS_F, DTP_K_NORM, x->d.local_tokens, x->d.hidden)->saved_bytes =
        x->b->e * (double)(x->d.local_tokens * x->d.hidden) + 8.0 * (double)x->d.local_tokens;
    kernel(x, name, DTP_PASS_I, DTP_K_NORM_BACKWARD, x->d.local_tokens, x->d.hidden);
}

/* y = gather(x) W + b, column-parallel. */
static void expand(struct native *x, const char *name, int64_t out, bool bias) {
    const struct dtp_native *d = &x->d;
    tp_gather(x, DTP_PASS_F);
    struct dtp_op *op = gemm(x, name, DTP_PASS_F, d->tokens, out, d->hidden);
    op->saved_bytes = x->b->e * (double)(d->tokens * out);
    op->gemm.gelu = x->gelu;
    if (bias && !x->b->f->kernels.fused_linear_bias)
        kernel(x, "bias rows", DTP_PASS_F, DTP_K_COPY, d->tokens, out)->launches = 0;
    if (bias)
        kernel(x, "bias gradient", DTP_PASS_W, DTP_K_REDUCE, d->tokens, out);
    tp_gather(x, DTP_PASS_W);
    gemm(x, name, DTP_PASS_W, out, d->hidden, d->tokens);
    gemm(x, name, DTP_PASS_I, d->tokens, d->hidden, out);
    tp_reduce(x, DTP_PASS_I);
}

/* The backward draws the mask a second time instead of reading it. That takes as long as "bias, dropout and residual",
 * though it reads one tensor less (H200, 4096 x 2048, in a step: 15.8 us for both). */
static void drop(struct native *x, const char *name, enum dtp_pass pass) {
    if (x->d.dropout)
        kernel(x, name, pass, DTP_K_DROPOUT, x->d.local_tokens, x->d.hidden);
}

/* y = dropout(x W + b) + residual, row-parallel. */
static void project(struct native *x, const char *name, int64_t in, bool bias) {
    const struct dtp_native *d = &x->d;
    gemm(x, name, DTP_PASS_F, d->tokens, d->hidden, in);
    tp_reduce(x, DTP_PASS_F);
    kernel(x, d->dropout ? "bias, dropout and residual" : "bias and residual", DTP_PASS_F,
           d->dropout ? DTP_K_DROPOUT : DTP_K_ELEMENTWISE, d->local_tokens, d->hidden)
        ->saved_bytes = x->b->e * (double)(d->local_tokens * d->hidden);
    drop(x, "dropout", DTP_PASS_I);
    tp_gather(x, DTP_PASS_I);
    gemm(x, name, DTP_PASS_W, d->hidden, in, d->tokens);
    if (bias)
        kernel(x, "bias gradient", DTP_PASS_W, DTP_K_REDUCE, d->tokens, d->hidden);
    gemm(x, name, DTP_PASS_I, d->tokens, in, d->hidden)->gemm.gelu = x->gelu;
}

/* SwiGLU's time over GELU's, as measured; else by bytes: it reads two and, backward, writes two. */
static void gate(struct native *x, struct dtp_op *op, double bytes_factor) {
    double measured = x->b->problem->cluster->gpu.kernel[op->kernel].gated_factor;
    op->bytes *= measured > 0 ? measured : bytes_factor;
    op->elements *= measured > 0 ? measured : 1;
}

static bool has_gelu(const struct native *x) {
    const struct dtp_model *m = x->b->m;
    return x->b->f->kernels.fused_bias_activation && !m->gated_ffn && m->activation == DTP_ACT_GELU;
}

/* The rates are those of GELU; gate() has the gated ones. GELU at the end of a GEMM (fused_bias_activation) is timed
 * with the GEMM. If that was not measured, it costs what the GEMM moves in addition: the forward writes one more tensor
 * instead of reading one and writing one, and the backward reads one instead of reading two and writing one. On an
 * H100 with 8192 x 8192: 51 of 92 us and 46 of 135 us (traces/measured/runtime_cuda_h100.json). */
static void activation(struct native *x) {
    const struct dtp_model *m = x->b->m;
    bool gated = m->gated_ffn, fused = has_gelu(x);
    double timed = x->gelu ? 0 : 1;
    struct dtp_op *op =
        kernel(x, "activation", DTP_PASS_F, DTP_K_ACTIVATION, x->d.tokens, x->d.ffn);
    op->saved_bytes = x->b->e * (double)(x->d.tokens * x->d.ffn);
    op->bytes *= fused ? timed / 2 : 1;
    op->elements *= timed;
    op->launches = fused ? 0 : op->launches;
    if (gated)
        gate(x, op, 3.0 / 2);
    op = kernel(x, "activation", DTP_PASS_I, DTP_K_ACTIVATION_BACKWARD, x->d.tokens, x->d.ffn);
    op->bytes *= fused ? timed / 3 : 1;
    op->elements *= timed;
    op->launches = fused ? 0 : op->launches;
    if (gated)
        gate(x, op, 5.0 / 3);
}

/* Adds the core, which makes the scores of one head at a time and keeps the probabilities. */
static void core(struct native *x) {
    const struct dtp_native *d = &x->d;
    const struct dtp_attention_shape shape = {
        .dtype = x->b->dtype,
        .impl = x->b->problem->attention >= 0 ? (enum dtp_attention)x->b->problem->attention
                                              : x->b->f->kernels.attention,
        .causal = true,
        .dropout = d->attention_dropout,
        .batch = x->b->key->microbatch_size,
        .heads = d->heads,
        .kv_heads = d->kv_heads,
        .seq_q = d->seq,
        .seq_kv = d->seq,
        .head_dim = d->head_dim};
    for (int pass = DTP_PASS_F; pass <= DTP_PASS_I; pass++) {
        struct dtp_op *op =
            dtp_op_kernel(x->b, "attention", (enum dtp_pass)pass, DTP_K_SOFTMAX, 0, 0);
        op->kind = DTP_OP_ATTENTION;
        op->attention = shape;
        op->attention.backward = pass == DTP_PASS_I;
        if (pass == DTP_PASS_I)
            continue;
        op->again_by = op->dropped_by = DTP_BIT_CORE_ATTN;
        op->saved_bytes = 4.0 * (double)(shape.batch * d->heads * d->seq * d->seq);
    }
}

static void start(struct dtp_op_build *b, struct native *x) {
    const struct dtp_native_sizes sizes = {b->key->tp, b->key->microbatch_size,
                                           b->key->sequence_parallel, b->key->dtype};
    *x = (struct native){.b = b};
    dtp_native_of(b->problem, &sizes, &x->d);
}

/* Models with experts are refused, and parameters have no kernels of their own. */
void dtp_op_native_layer(struct dtp_op_build *b, bool moe, double params) {
    (void)moe;
    (void)params;
    const struct dtp_model *m = b->m;
    struct native x;
    start(b, &x);
    norm(&x, "norm 1");
    expand(&x, "qkv", x.d.qkv_width, m->attention_bias || m->qkv_bias);
    for (int pass = DTP_PASS_F; m->position == DTP_POS_ROPE && pass <= DTP_PASS_I; pass++)
        kernel(&x, "rope", (enum dtp_pass)pass, DTP_K_ROPE, x.d.tokens, x.d.q_width + x.d.kv_width);
    core(&x);
    project(&x, "projection", x.d.q_width, m->attention_bias);
    norm(&x, "norm 2");
    x.gelu = has_gelu(&x) && dtp_device_knows_gelu(&b->problem->cluster->gpu);
    expand(&x, "fc1", x.d.up_width, m->mlp_bias);
    activation(&x);
    project(&x, "fc2", x.d.ffn, m->mlp_bias);
}

void dtp_op_native_embedding(struct dtp_op_build *b) {
    struct native x;
    start(b, &x);
    kernel(&x, "token rows", DTP_PASS_F, DTP_K_EMBEDDING, x.d.tokens, x.d.hidden);
    tp_reduce(&x, DTP_PASS_F);
    tp_gather(&x, DTP_PASS_W);
    kernel(&x, "row gradients", DTP_PASS_W, DTP_K_EMBEDDING, x.d.tokens, x.d.hidden);
    drop(&x, "embedding dropout", DTP_PASS_F);
    drop(&x, "embedding dropout", DTP_PASS_W);
    if (b->m->position != DTP_POS_LEARNED)
        return;
    kernel(&x, "positions", DTP_PASS_F, DTP_K_ELEMENTWISE, x.d.local_tokens, x.d.hidden);
    kernel(&x, "position gradients", DTP_PASS_W, DTP_K_ELEMENTWISE, x.d.local_tokens, x.d.hidden);
}

/* Vocabulary-parallel cross-entropy: maximum; sum and target; their all-reduces; the gradient, which
 * is a softmax, in place. */
void dtp_op_native_head(struct dtp_op_build *b) {
    struct native x;
    start(b, &x);
    norm(&x, "final norm");
    expand(&x, "logits", x.d.vocab, false);
    kernel(&x, "cross-entropy", DTP_PASS_F, DTP_K_CROSS_ENTROPY, x.d.tokens, x.d.vocab)->launches =
        3;
    collective(&x, "tp loss", DTP_PASS_F, DTP_ALL_REDUCE, x.d.tokens);
    collective(&x, "tp loss", DTP_PASS_F, DTP_ALL_REDUCE, 2 * x.d.tokens);
    kernel(&x, "cross-entropy", DTP_PASS_I, DTP_K_SOFTMAX, x.d.tokens, x.d.vocab);
}

/* ---- seconds of the communication of its units ---- */

/* Weights travel in the plan's dtype, gradients as the framework reduces them. */
static double collective_s(const struct dtp_native_comm *c, enum dtp_collective kind,
                           const struct dtp_group_shape *shape, double elements) {
    struct dtp_coll_cost cost;
    double bytes = elements * (kind == DTP_ALL_GATHER ? dtp_dtype_bytes(c->dtype)
                                                      : c->problem->framework->wire.reduce_bytes);
    if (!(elements > 0) || shape->size < 2)
        return 0;
    dtp_coll_cost(c->problem->cluster, kind, DTP_ALGO_AUTO, shape, bytes, &cost);
    return cost.time_s * c->problem->framework->wire.comm_time_factor +
           c->problem->framework->host.stream_hop_s;
}

static double kernel_s(const struct dtp_native_comm *c, enum dtp_kernel k, double elements) {
    const struct dtp_gpu *g = &c->problem->cluster->gpu;
    double e = c->problem->framework->wire.reduce_bytes; /* bytes of a gradient */
    return dtp_device_kernel_s(g, k, 2 * e * elements, elements) + g->kernel_gap_s;
}

/* Gradients of `partial` parameters that each tp rank has a part of, in `runs` neighbouring runs. */
static double partial_s(const struct dtp_native_comm *c, int runs, int64_t elements) {
    return c->d.sp ? runs * collective_s(c, DTP_ALL_REDUCE, c->tp, (double)elements / runs) : 0;
}

/* Times the reduction of one unit: its partial gradients over tp, then over dp. */
static double reduce_s(const struct dtp_native_comm *c, int64_t n, double over_tp_s) {
    int zero = c->zero_stage;
    if (n == 0)
        return 0;
    double t = over_tp_s;
    t += collective_s(c, zero > 0 ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, c->dp, (double)n);
    if (zero >= 2) /* a fresh buffer, and the sum into the shard */
        t += kernel_s(c, DTP_K_COPY, (double)n) +
             kernel_s(c, DTP_K_ELEMENTWISE, (double)n / c->replicas);
    return t;
}

double dtp_native_reduce_s(const struct dtp_native_comm *c) {
    const struct dtp_native *d = &c->d;
    double kv_s = 0;
    if (d->kv_copies > 1) { /* key-value heads that several ranks hold */
        struct dtp_group_shape kv = *c->tp;
        kv.size = kv.per_node = d->kv_copies;
        kv_s = collective_s(c, DTP_ALL_REDUCE, &kv, 2.0 * (double)(d->kv_width * d->hidden));
    }
    double layer_s = reduce_s(c, c->s.layer_n, kv_s + partial_s(c, 2, 2 * d->norm_params));
    return reduce_s(c, c->s.tokens_n, 0) +
           reduce_s(c, c->s.positions_n, partial_s(c, 1, c->s.positions_n)) +
           c->s.layers * layer_s + reduce_s(c, c->s.norm_n, partial_s(c, 1, d->norm_params)) +
           reduce_s(c, c->s.head_n, 0);
}

double dtp_native_gather_s(const struct dtp_native_comm *c, int64_t n) {
    return collective_s(c, DTP_ALL_GATHER, c->dp, (double)n);
}

double dtp_native_gather_all_s(const struct dtp_native_comm *c) {
    return dtp_native_gather_s(c, c->s.tokens_n) + dtp_native_gather_s(c, c->s.positions_n) +
           c->s.layers * dtp_native_gather_s(c, c->s.layer_n) +
           dtp_native_gather_s(c, c->s.norm_n) + dtp_native_gather_s(c, c->s.head_n);
}

/* Units are reduced during the last backward as they are done; the first layer's, the positions' and the tokens' are
 * done at its end: as so many equal ones that each takes as long as these. */
int dtp_native_num_reductions(const struct dtp_native_comm *c, double all_s) {
    double end_s = reduce_s(c, c->s.layers > 0 ? c->s.layer_n : 0, 0) +
                   reduce_s(c, c->s.positions_n, 0) + reduce_s(c, c->s.tokens_n, 0);
    int n = end_s > 0 ? (int)(all_s / end_s + 1.0 / 2) : 1;
    return n > 1 ? n : 1;
}

static void wait_for(const struct dtp_native_comm *c, struct dtp_native_waits *out) {
    out->reduce_s += dtp_native_reduce_s(c);
    out->gather_s += c->zero_stage == 3 ? 2 * dtp_native_gather_all_s(c) : 0;
}

/* The stages' sum, from both ends and all layers: how layers are divided does not change a bit of it. */
struct dtp_native_waits dtp_native_waits_of(const struct dtp_problem *problem,
                                            const struct dtp_layer_key *all) {
    struct dtp_native_waits out = {0};
    if (problem->framework->kernels.ops != DTP_OPS_OWN || all->zero_stage < 2 || all->dp < 2 ||
        !all->dp_shape)
        return out;
    const struct dtp_native_sizes sizes = {all->tp, all->microbatch_size, all->sequence_parallel,
                                           all->dtype};
    struct dtp_native_comm c = {.problem = problem,
                                .dp = all->dp_shape,
                                .tp = all->tp_shape,
                                .dtype = all->dtype,
                                .zero_stage = all->zero_stage,
                                .replicas = all->dp};
    dtp_native_of(problem, &sizes, &c.d);
    int last = all->pp * all->vpp - 1;
    for (int vs = 0; vs <= last; vs += last > 0 ? last : 1) {
        ends_of(problem->model, &c.d, all->dp, vs == 0, vs == last, &c.s);
        wait_for(&c, &out);
    }
    c.s = (struct dtp_native_stage){.layers = problem->model->layers,
                                    .layer_n = padded(c.d.layer_params, all->dp)};
    wait_for(&c, &out);
    if (all->zero_stage == 3)
        out.layer_gather_s = dtp_native_gather_s(&c, c.s.layer_n);
    return out;
}
