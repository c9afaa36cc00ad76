/* Operations outside the repeated layers: embedding, LM head and loss, and the convolutions of a CNN. */
#include "models/op_build.h"

void dtp_op_embedding(struct dtp_op_build *b) {
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
    if (b->plan->tp > 1)
        dtp_op_collective(b, "tp embedding sum", DTP_PASS_F,
                          b->plan->sequence_parallel ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE,
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

/* LM head and loss. Vocabulary-parallel cross-entropy (Shoeybi 2019, section 3): without fusion the logits
 * are cast to fp32, and maximum, shift, exponential and sum are passes of their own: 34 bytes per
 * logit forward, 18 backward; fused 4 and 4. */
void dtp_op_head(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double e = b->e, n = b->tokens;
    if (m->final_norm)
        dtp_op_norm(b, "final norm", b->z, e * b->z);
    if (m->classes > 0) {
        dtp_op_linear(b, "classifier", b->plan->microbatch_size, b->h, m->classes, 0);
        return;
    }
    double vocab = dtp_framework_padded_vocab(b->f, m->vocab, b->plan->tp) / b->t;
    double logits = n * vocab;
    if (m->mlm_head) {
        dtp_op_linear(b, "mlm dense", n, b->h, b->h, e * n * b->h);
        dtp_op_norm(b, "mlm norm", n * b->h, e * n * b->h);
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
    dtp_op_linear(b, "logits", n, b->h, vocab, dtp_op_column_input_bytes(b));
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].gemm.unaligned = (int64_t)vocab % 8 != 0;
    double width = b->f->half_cross_entropy ? 0.5 : 1; /* of its elements over fp32 */
    bool fused = b->f->fused_cross_entropy;
    enum dtp_kernel kernel =
        b->f->cross_entropy_passes && !fused ? DTP_K_ELEMENTWISE : DTP_K_CROSS_ENTROPY;
    dtp_op_kernel(b, "cross-entropy", DTP_PASS_F, kernel, (fused ? 2 * e : 34 * width) * logits,
                  logits)
        ->launches = fused ? 1 : 7;
    dtp_op_kernel(b, "cross-entropy", DTP_PASS_I, kernel, (fused ? 2 * e : 18 * width) * logits,
                  logits)
        ->launches = fused ? 1 : 3;
    for (int i = 0; b->plan->tp > 1 && i < 3; i++) /* maximum, target logit, sum */
        dtp_op_collective(b, "tp loss", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, 4 * n);
}

/* Each convolution as an implicit GEMM, followed by batch norm and activation (He 2015, table 1). */
void dtp_op_convolutions(struct dtp_op_build *b) {
    const struct dtp_model *m = b->m;
    double batch = b->plan->microbatch_size, e = b->e;
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
