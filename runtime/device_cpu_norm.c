/* Norms and activations on the CPU. */
#include "runtime/device_cpu.h"

#include <math.h>

/* LayerNorm (Ba 2016): y = (x - mean) rstd w + b. RMSNorm (Zhang 2019): y = x rstd w. */
void dtp_cpu_norm_forward(struct dtp_dev *d, const struct dtp_norm_args *n) {
    (void)d;
    const float *w = n->weight, *b = n->bias;
    for (int64_t i = 0; i < n->rows; i++) {
        const float *x = (const float *)n->x + i * n->cols;
        float *y = (float *)n->y + i * n->cols;
        double sum = 0, squares = 0;
        for (int64_t k = 0; !n->rms && k < n->cols; k++)
            sum += (double)x[k];
        double mean = sum / (double)n->cols;
        for (int64_t k = 0; k < n->cols; k++)
            squares += ((double)x[k] - mean) * ((double)x[k] - mean);
        double rstd = 1 / sqrt(squares / (double)n->cols + n->epsilon);
        float m = (float)mean, r = (float)rstd;
        for (int64_t k = 0; k < n->cols; k++)
            y[k] = (x[k] - m) * r * w[k] + (b ? b[k] : 0.0F);
        n->rstd[i] = r;
        if (n->mean)
            n->mean[i] = m;
    }
}

/* With xh = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - xh mean(g xh)), without mean(g)
 * for RMSNorm; dw += dy xh, db += dy. */
void dtp_cpu_norm_backward(struct dtp_dev *d, const struct dtp_norm_args *n) {
    (void)d;
    const float *w = n->weight;
    float *dw = n->dweight, *db = n->dbias;
    for (int64_t i = 0; i < n->rows; i++) {
        const float *x = (const float *)n->x + i * n->cols;
        const float *dy = (const float *)n->dy + i * n->cols;
        const float *residual = n->residual ? (const float *)n->residual + i * n->cols : NULL;
        float *dx = (float *)n->dx + i * n->cols;
        float mean = n->mean ? n->mean[i] : 0.0F, rstd = n->rstd[i];
        double sum_g = 0, sum_gx = 0;
        for (int64_t k = 0; k < n->cols; k++) {
            float xh = (x[k] - mean) * rstd, g = dy[k] * w[k];
            sum_g += (double)g;
            sum_gx += (double)g * (double)xh;
            dw[k] += dy[k] * xh;
            if (db)
                db[k] += dy[k];
        }
        float mean_g = n->rms ? 0.0F : (float)(sum_g / (double)n->cols);
        float mean_gx = (float)(sum_gx / (double)n->cols);
        for (int64_t k = 0; k < n->cols; k++) {
            float xh = (x[k] - mean) * rstd;
            float r = residual ? residual[k] : 0.0F;
            dx[k] = rstd * (dy[k] * w[k] - mean_g - xh * mean_gx) + r;
        }
    }
}

/* GELU, tanh form (Hendrycks 2016): y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
static const float gelu_root = 0.7978845608F, gelu_cubic = 0.044715F;

static float gelu(float x) {
    return 0.5F * x * (1.0F + tanhf(gelu_root * (x + gelu_cubic * x * x * x)));
}

static float gelu_slope(float x) {
    float t = tanhf(gelu_root * (x + gelu_cubic * x * x * x));
    return 0.5F * (1.0F + t) +
           0.5F * x * (1.0F - t * t) * gelu_root * (1.0F + 3.0F * gelu_cubic * x * x);
}

static float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

static void swiglu_forward(const struct dtp_act_args *a) {
    for (int64_t i = 0; i < a->rows; i++) {
        const float *gate = (const float *)a->x + i * 2 * a->cols, *up = gate + a->cols;
        float *y = (float *)a->y + i * a->cols;
        for (int64_t k = 0; k < a->cols; k++)
            y[k] = gate[k] * sigmoid(gate[k]) * up[k];
    }
}

static void swiglu_backward(const struct dtp_act_args *a) {
    for (int64_t i = 0; i < a->rows; i++) {
        const float *gate = (const float *)a->x + i * 2 * a->cols, *up = gate + a->cols;
        const float *dy = (const float *)a->dy + i * a->cols;
        float *dgate = (float *)a->dx + i * 2 * a->cols, *dup = dgate + a->cols;
        for (int64_t k = 0; k < a->cols; k++) {
            float s = sigmoid(gate[k]), silu = gate[k] * s;
            dgate[k] = dy[k] * up[k] * (s + silu * (1.0F - s));
            dup[k] = dy[k] * silu;
        }
    }
}

void dtp_cpu_act_forward(struct dtp_dev *d, const struct dtp_act_args *a) {
    (void)d;
    const float *x = a->x;
    float *y = a->y;
    int64_t n = a->rows * a->cols;
    switch (a->fn) {
    case DTP_ACT_FN_GELU:
        for (int64_t i = 0; i < n; i++)
            y[i] = gelu(x[i]);
        break;
    case DTP_ACT_FN_RELU:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] > 0 ? x[i] : 0;
        break;
    case DTP_ACT_FN_SWIGLU:
        swiglu_forward(a);
        break;
    }
}

void dtp_cpu_act_backward(struct dtp_dev *d, const struct dtp_act_args *a) {
    (void)d;
    const float *x = a->x, *dy = a->dy;
    float *dx = a->dx;
    int64_t n = a->rows * a->cols;
    switch (a->fn) {
    case DTP_ACT_FN_GELU:
        for (int64_t i = 0; i < n; i++)
            dx[i] = dy[i] * gelu_slope(x[i]);
        break;
    case DTP_ACT_FN_RELU:
        for (int64_t i = 0; i < n; i++)
            dx[i] = x[i] > 0 ? dy[i] : 0;
        break;
    case DTP_ACT_FN_SWIGLU:
        swiglu_backward(a);
        break;
    }
}
