/* Attention and rotary positions on the CPU: one head at a time, two GEMMs around a softmax. */
#include "runtime/device_cpu.h"

#include <cblas.h>
#include <math.h>

/* Su 2021 (RoFormer), the two halves of a head rotated against each other. */
void dtp_cpu_rope(struct dtp_dev *d, const struct dtp_rope_args *r) {
    (void)d;
    int64_t half = r->head_dim / 2;
    for (int64_t row = 0; row < r->rows; row++) {
        double position = (double)(row / r->batch);
        float *x = (float *)r->x + row * r->row_stride;
        for (int64_t i = 0; i < half; i++) {
            double angle = position * pow(r->theta, -2.0 * (double)i / (double)r->head_dim);
            float c = (float)cos(angle), s = (float)sin(r->inverse ? -angle : angle);
            for (int64_t head = 0; head < r->heads; head++) {
                float *at = x + head * r->head_dim + i;
                float x0 = at[0], x1 = at[half];
                at[0] = x0 * c - x1 * s;
                at[half] = x0 * s + x1 * c;
            }
        }
    }
}

uint64_t dtp_cpu_attention_saved_bytes(const struct dtp_dev *d,
                                       const struct dtp_attention_args *x) {
    (void)d;
    return (uint64_t)(x->batch * x->heads * x->seq * x->seq) * sizeof(float);
}

/* The gradient of one head's probabilities. */
uint64_t dtp_cpu_attention_workspace_bytes(const struct dtp_dev *d,
                                           const struct dtp_attention_args *x) {
    (void)d;
    return (uint64_t)(x->seq * x->seq) * sizeof(float);
}

/* Rows of one sequence stand batch rows apart. */
struct head {
    const float *q, *k, *v;
    float *p;                      /* [seq, seq] probabilities */
    int64_t qkv_at, kv_at, out_at; /* offsets in q, dq; k, v, dk, dv; out, dout */
    blasint seq, dim, ld, ld_out;
    float scale;
};

static struct head head_of(const struct dtp_attention_args *x, int64_t sequence, int64_t i) {
    int64_t kv = i / (x->heads / x->kv_heads);
    struct head h = {.qkv_at = sequence * x->qkv_stride + i * x->head_dim,
                     .kv_at = sequence * x->qkv_stride + kv * x->head_dim,
                     .out_at = sequence * x->out_stride + i * x->head_dim,
                     .seq = (blasint)x->seq,
                     .dim = (blasint)x->head_dim,
                     .ld = (blasint)(x->qkv_stride * x->batch),
                     .ld_out = (blasint)(x->out_stride * x->batch),
                     .scale = (float)(1 / sqrt((double)x->head_dim))};
    h.q = (const float *)x->q + h.qkv_at;
    h.k = (const float *)x->k + h.kv_at;
    h.v = (const float *)x->v + h.kv_at;
    h.p = (float *)x->saved + (sequence * x->heads + i) * x->seq * x->seq;
    return h;
}

static void causal_softmax(float *p, int64_t seq) {
    for (int64_t i = 0; i < seq; i++) {
        float *row = p + i * seq, most = row[0], sum = 0;
        for (int64_t k = 1; k <= i; k++)
            most = row[k] > most ? row[k] : most;
        for (int64_t k = 0; k <= i; k++) {
            row[k] = expf(row[k] - most);
            sum += row[k];
        }
        float inverse = 1.0F / sum;
        for (int64_t k = 0; k <= i; k++)
            row[k] *= inverse;
        for (int64_t k = i + 1; k < seq; k++)
            row[k] = 0;
    }
}

void dtp_cpu_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    (void)d;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->heads; i++) {
            struct head h = head_of(x, b, i);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h.seq, h.seq, h.dim, h.scale, h.q,
                        h.ld, h.k, h.ld, 0.0F, h.p, h.seq);
            causal_softmax(h.p, x->seq);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h.seq, h.dim, h.seq, 1.0F, h.p,
                        h.seq, h.v, h.ld, 0.0F, (float *)x->out + h.out_at, h.ld_out);
        }
}

/* dS = P (dP - sum_k P dP), in place of dP. */
static void softmax_backward(const float *p, float *dp, int64_t seq) {
    for (int64_t i = 0; i < seq; i++) {
        const float *prow = p + i * seq;
        float *row = dp + i * seq, dot = 0;
        for (int64_t k = 0; k <= i; k++)
            dot += prow[k] * row[k];
        for (int64_t k = 0; k <= i; k++)
            row[k] = prow[k] * (row[k] - dot);
        for (int64_t k = i + 1; k < seq; k++)
            row[k] = 0;
    }
}

void dtp_cpu_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    (void)d;
    int64_t group = x->heads / x->kv_heads;
    float *dp = x->workspace;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->heads; i++) {
            struct head h = head_of(x, b, i);
            /* query heads of a group add into the same key-value head, the first one writes */
            float beta = i % group == 0 ? 0.0F : 1.0F;
            const float *dout = (const float *)x->dout + h.out_at;
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h.seq, h.dim, h.seq, 1.0F, h.p,
                        h.seq, dout, h.ld_out, beta, (float *)x->dv + h.kv_at, h.ld);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h.seq, h.seq, h.dim, 1.0F, dout,
                        h.ld_out, h.v, h.ld, 0.0F, dp, h.seq);
            softmax_backward(h.p, dp, x->seq);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h.seq, h.dim, h.seq, h.scale, dp,
                        h.seq, h.k, h.ld, 0.0F, (float *)x->dq + h.qkv_at, h.ld);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h.seq, h.dim, h.seq, h.scale, dp,
                        h.seq, h.q, h.ld, beta, (float *)x->dk + h.kv_at, h.ld);
        }
}
