/* Embedding and vocabulary-parallel cross-entropy on the CPU. */
#include "runtime/device_cpu.h"

#include <math.h>
#include <string.h>

void dtp_cpu_loss_max(struct dtp_dev *d, const struct dtp_loss_args *x) {
    (void)d;
    for (int64_t i = 0; i < x->rows; i++) {
        const float *row = (const float *)x->logits + i * x->cols;
        float most = -INFINITY;
        for (int64_t k = 0; k < x->valid; k++)
            most = row[k] > most ? row[k] : most;
        x->max[i] = most;
    }
}

void dtp_cpu_loss_sum(struct dtp_dev *d, const struct dtp_loss_args *x) {
    (void)d;
    for (int64_t i = 0; i < x->rows; i++) {
        const float *row = (const float *)x->logits + i * x->cols;
        double sum = 0;
        for (int64_t k = 0; k < x->valid; k++)
            sum += (double)expf(row[k] - x->max[i]);
        int64_t own = x->targets[i] - x->first;
        x->sum[i] = (float)sum;
        x->target[i] = own >= 0 && own < x->valid ? row[own] - x->max[i] : 0.0F;
    }
}

void dtp_cpu_loss_mean(struct dtp_dev *d, const struct dtp_loss_args *x) {
    (void)d;
    double sum = 0;
    for (int64_t i = 0; i < x->rows; i++)
        sum += log((double)x->sum[i]) - (double)x->target[i];
    *x->loss += (float)(sum * x->scale);
}

void dtp_cpu_loss_grad(struct dtp_dev *d, const struct dtp_loss_args *x) {
    (void)d;
    float scale = (float)x->scale;
    for (int64_t i = 0; i < x->rows; i++) {
        float *row = (float *)x->logits + i * x->cols;
        float factor = scale / x->sum[i];
        for (int64_t k = 0; k < x->valid; k++)
            row[k] = expf(row[k] - x->max[i]) * factor;
        for (int64_t k = x->valid; k < x->cols; k++)
            row[k] = 0;
        int64_t own = x->targets[i] - x->first;
        if (own >= 0 && own < x->valid)
            row[own] -= scale;
    }
}

void dtp_cpu_embed(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    (void)d;
    size_t row_bytes = (size_t)x->cols * sizeof(float);
    for (int64_t i = 0; i < x->rows; i++) {
        int64_t own = x->ids[i] - x->first;
        float *out = (float *)x->out + i * x->cols;
        if (own >= 0 && own < x->valid)
            memcpy(out, (const float *)x->table + own * x->cols, row_bytes);
        else
            memset(out, 0, row_bytes);
    }
}

void dtp_cpu_embed_backward(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    (void)d;
    for (int64_t i = 0; i < x->rows; i++) {
        int64_t own = x->ids[i] - x->first;
        if (own < 0 || own >= x->valid)
            continue;
        float *to = (float *)x->dtable + own * x->cols;
        const float *from = (const float *)x->dout + i * x->cols;
        for (int64_t k = 0; k < x->cols; k++)
            to[k] += from[k];
    }
}

void dtp_cpu_position_add(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    (void)d;
    for (int64_t i = 0; i < x->rows; i++) {
        float *out = (float *)x->out + i * x->cols;
        const float *table = (const float *)x->table + (x->first + i / x->batch) * x->cols;
        for (int64_t k = 0; k < x->cols; k++)
            out[k] += table[k];
    }
}

void dtp_cpu_position_backward(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    (void)d;
    for (int64_t i = 0; i < x->rows; i++) {
        float *to = (float *)x->dtable + (x->first + i / x->batch) * x->cols;
        const float *from = (const float *)x->dout + i * x->cols;
        for (int64_t k = 0; k < x->cols; k++)
            to[k] += from[k];
    }
}
