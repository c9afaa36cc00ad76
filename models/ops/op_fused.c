/* Layers and ends as stacks with fused kernels run them: Megatron-LM and its like, compiled PyTorch; and what every
 * stack runs so: depths of multi-token prediction, the convolutions of a CNN. */
#include "models/ops/op_internal.h"

/* The norm is a separate module before experts, else a part of the dense MLP. */
static void mlp_block(struct dtp_op_build *b, bool moe) {
    int from = b->out->mlp = b->out->n;
    if (!b->m->parallel_block)
        dtp_op_norm(b, "norm 2", b->z, b->e * b->z);
    int inside = b->out->n;
    if (moe) {
        dtp_op_again(b, from, DTP_BIT_LAYERNORM);
        dtp_op_moe(b);
    } else {
        if (!b->m->parallel_block)
            dtp_op_norm_within(b, from);
        dtp_op_tp_enter(b);
        dtp_op_mlp(b, "fc1", "fc2", b->tokens, dtp_op_column_input_bytes(b));
        b->norm_cast = false;
        dtp_op_tp_leave(b);
        dtp_op_again(b, from, DTP_BIT_MLP);
        dtp_op_dropped(b, inside, DTP_BIT_MLP);
    }
    dtp_op_residual(b, b->m->mlp_bias);
}

/* Weight gradients go into a buffer. Fused, the GEMM's epilogue reads the buffer before it adds (4 bytes in
 * fp32; the wider write hides). Otherwise, with several microbatches, a separate kernel reads the new and
 * the old gradient and writes the sum, for each tensor. params: of the layer, on this rank. */
static void accumulation(struct dtp_op_build *b, double params) {
    double g = b->f->kernels.fp32_gradient_accumulation ? 4 : 2;
    double vectors =
        2 * (b->m->norm_bias ? 2 : 1) + (b->m->attention_bias ? 2 : 0) + (b->m->mlp_bias ? 2 : 0);
    if (b->f->kernels.fused_gradient_accumulation)
        dtp_op_kernel(b, "gradient add in GEMM", DTP_PASS_W, DTP_K_ELEMENTWISE, g * params, params)
            ->launches = vectors;
    else if (b->key->microbatches > 1)
        dtp_op_kernel(b, "gradient add", DTP_PASS_W, DTP_K_ELEMENTWISE, (2 + 2 * g) * params,
                      params)
            ->launches = vectors + 4;
}

void dtp_op_fused_layer(struct dtp_op_build *b, bool moe, double params) {
    dtp_op_attention_block(b);
    mlp_block(b, moe);
    accumulation(b, params);
}

void dtp_op_fused_embedding(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double full = b->tokens * b->h, e = b->e;
    if (m->patch > 0) {
        double in = (double)m->channels * m->patch * m->patch;
        dtp_op_linear(b, "patches", b->tokens, in, b->h, e * b->tokens * in);
        dtp_op_kernel(b, "positions", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * full, full);
        return;
    }
    dtp_op_kernel(b, "token rows", DTP_PASS_F, DTP_K_EMBEDDING, 2 * e * full, full);
    if (m->position == DTP_POS_LEARNED)
        dtp_op_kernel(b, "positions", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * full, full);
    if (b->key->tp > 1)
        dtp_op_collective(b, "tp embedding sum", DTP_PASS_F,
                          b->key->sequence_parallel ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE,
                          DTP_AXIS_TP, e * full);
    if (m->embedding_norm)
        dtp_op_norm(b, "embedding norm", b->z, e * b->z);
    if (b->dropout)
        dtp_op_kernel(b, "embedding dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * b->z, b->z)
            ->saved_bytes = b->z;
    if (b->dropout)
        dtp_op_kernel(b, "embedding dropout", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * b->z,
                      b->z);
    dtp_op_kernel(b, "row gradients", DTP_PASS_W, DTP_K_EMBEDDING, 3 * e * full, full);
}

/* One pass over the logits with its bytes. PyTorch's and the fused loss use one class of kernel in all passes. */
struct pass {
    enum dtp_pass pass;
    enum dtp_kernel kernel;
    double bytes;
    int launches;
};
enum { MAX_PASSES = 8 };
/* Vocabulary-parallel (Shoeybi 2019, section 3; Megatron's cross_entropy.py): cast to fp32, maximum, difference,
 * exponential in place, sum, quotient; the gradient scaled by its token's and cast back. Differences, quotients and
 * products with one number a row are strided. Compiled (Megatron-Core 0.7, fused_cross_entropy.py) cast and maximum
 * are one, shift, exponential and sum one, the quotient one, all of the backward one. Measured alone on H200, in ps a
 * logit of 2k to 8k rows by 16k to 128k: 12.5 to 13.8 and 4.3 to 4.8 by passes (here 13.5, 4.2), 7.7 to 8.7 and 2.4
 * to 2.8 compiled (8.1, 2.4). */
static const struct pass losses[][MAX_PASSES] = {
    [DTP_LOSS_TORCH] = {{DTP_PASS_F, DTP_K_CROSS_ENTROPY, 34, 7},
                        {DTP_PASS_I, DTP_K_CROSS_ENTROPY, 18, 3}},
    [DTP_LOSS_PASSES] = {{DTP_PASS_F, DTP_K_COPY, 6, 1},
                         {DTP_PASS_F, DTP_K_REDUCE, 4, 1},
                         {DTP_PASS_F, DTP_K_STRIDED, 8, 1},
                         {DTP_PASS_F, DTP_K_ELEMENTWISE, 8, 2},
                         {DTP_PASS_F, DTP_K_REDUCE, 4, 1},
                         {DTP_PASS_F, DTP_K_STRIDED, 8, 1},
                         {DTP_PASS_I, DTP_K_STRIDED, 8, 2},
                         {DTP_PASS_I, DTP_K_COPY, 6, 1}},
    [DTP_LOSS_COMPILED] = {{DTP_PASS_F, DTP_K_ELEMENTWISE, 6, 1},
                           {DTP_PASS_F, DTP_K_REDUCE, 8, 1},
                           {DTP_PASS_F, DTP_K_ELEMENTWISE, 8, 1},
                           {DTP_PASS_I, DTP_K_ELEMENTWISE, 10, 1}},
    [DTP_LOSS_FUSED] = {{DTP_PASS_F, DTP_K_CROSS_ENTROPY, 4, 1},
                        {DTP_PASS_I, DTP_K_CROSS_ENTROPY, 4, 1}}};

static void loss(struct dtp_op_build *b, double logits) {
    enum dtp_cross_entropy how = b->f->kernels.cross_entropy;
    double width = how == DTP_LOSS_FUSED                         ? b->e / 2
                   : b->f->quirks.traced_gaps.half_cross_entropy ? 0.5
                                                                 : 1;
    int sums = how == DTP_LOSS_COMPILED ? 2 : 3; /* maximum, target logit, sum */
    for (const struct pass *p = losses[how]; p < losses[how] + MAX_PASSES && p->bytes > 0; p++) {
        enum dtp_kernel kernel = /* in 16 bit not measured */
            b->f->quirks.traced_gaps.half_cross_entropy && p->kernel == DTP_K_STRIDED
                ? DTP_K_ELEMENTWISE
                : p->kernel;
        dtp_op_kernel(b, "cross-entropy", p->pass, kernel, width * p->bytes * logits, logits)
            ->launches = p->launches;
    }
    for (int i = 0; b->key->tp > 1 && i < sums; i++)
        dtp_op_collective(b, "tp loss", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, 4 * b->tokens);
}

/* Adds the LM head and the loss. */
void dtp_op_fused_head(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double e = b->e, n = b->tokens;
    if (m->final_norm)
        dtp_op_norm(b, "final norm", b->z, e * b->z);
    if (m->classes > 0) {
        dtp_op_linear(b, "classifier", b->key->microbatch_size, b->h, m->classes, 0);
        return;
    }
    double vocab = dtp_framework_padded_vocab(b->f, m->vocab, b->key->tp) / b->t;
    if (m->mlm_head) {
        dtp_op_linear(b, "mlm dense", n, b->h, b->h, e * n * b->h);
        dtp_op_norm(b, "mlm norm", n * b->h, e * n * b->h);
    }
    if (b->key->tp > 1) {
        double bytes = n * b->h * e;
        if (b->key->sequence_parallel)
            dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP, bytes);
        dtp_op_collective(b, "tp head dX", DTP_PASS_I,
                          b->key->sequence_parallel ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE,
                          DTP_AXIS_TP, bytes)
            ->overlapped = b->tp_overlap;
    }
    int from = b->out->n;
    dtp_op_linear(b, "logits", n, b->h, vocab, dtp_op_column_input_bytes(b));
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].gemm.unaligned = (int64_t)vocab % 8 != 0;
    loss(b, n * vocab);
}

/* The next tokens' embeddings and the hidden states, each normed, side by side through a projection that tp
 * divides by columns and whose output is gathered (Megatron-Core, multi_token_prediction.py); after the
 * layer, the shared head with a separate final norm. */
void dtp_op_mtp(struct dtp_op_build *b) {
    double n = b->tokens, bytes = n * b->h * b->e;
    enum dtp_dtype head = b->dtype;
    dtp_op_fused_embedding(b);
    dtp_op_norm(b, "mtp norms", 2 * b->z, 2 * b->e * b->z);
    dtp_op_kernel(b, "mtp concat", DTP_PASS_F, DTP_K_COPY, 4 * b->e * b->z, 2 * b->z);
    dtp_op_kernel(b, "mtp split", DTP_PASS_I, DTP_K_COPY, 4 * b->e * b->z, 2 * b->z);
    if (b->key->tp > 1) {
        bool scattered = b->key->sequence_parallel;
        if (scattered)
            dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP,
                              2 * bytes);
        dtp_op_collective(b, "tp gather of columns", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP,
                          bytes);
        dtp_op_collective(b, "tp mtp dX", DTP_PASS_I,
                          scattered ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, DTP_AXIS_TP, 2 * bytes)
            ->overlapped = b->tp_overlap;
    }
    b->dtype = b->key->dtype;
    dtp_op_linear(b, "mtp projection", n, 2 * b->h, b->h / b->t, 2 * dtp_op_column_input_bytes(b));
    b->dtype = head;
    dtp_op_fused_head(b);
}

/* Adds each convolution as an implicit GEMM, with batch norm and activation after it (He 2015, table 1). */
void dtp_op_convolutions(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double batch = b->key->microbatch_size, e = b->e;
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
