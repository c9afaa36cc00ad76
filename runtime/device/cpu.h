/* cpu.h: kernels of the CPU's table (backend.h) that cpu.c does not hold itself; internal to the two files. */
#ifndef DTP_RUNTIME_DEVICE_CPU_H
#define DTP_RUNTIME_DEVICE_CPU_H

#include "runtime/device/backend.h"

/* C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C, row-major; lda, ldb: elements between stored rows. */
struct dtp_sgemm {
    bool ta, tb;
    int64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
};
void dtp_cpu_sgemm(const struct dtp_dev *d, const struct dtp_sgemm *g);

void dtp_cpu_norm_forward(struct dtp_dev *d, const struct dtp_norm_args *n);
void dtp_cpu_norm_backward(struct dtp_dev *d, const struct dtp_norm_args *n);
void dtp_cpu_act_forward(struct dtp_dev *d, const struct dtp_act_args *x);
void dtp_cpu_act_backward(struct dtp_dev *d, const struct dtp_act_args *x);
/* Attention keeps the probabilities [batch, head, seq, seq] for the backward. */
void dtp_cpu_rope(struct dtp_dev *d, const struct dtp_rope_args *r);
uint64_t dtp_cpu_attention_saved_bytes(const struct dtp_dev *d, const struct dtp_attention_args *x);
uint64_t dtp_cpu_attention_workspace_bytes(const struct dtp_dev *d,
                                           const struct dtp_attention_args *x);
void dtp_cpu_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x);
void dtp_cpu_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x);
void dtp_cpu_loss_max(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cpu_loss_sum(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cpu_loss_mean(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cpu_loss_grad(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cpu_embed(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cpu_embed_backward(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cpu_position_add(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cpu_position_backward(struct dtp_dev *d, const struct dtp_embedding_args *x);

#endif
