/* Kernels of the CPU beyond products and sums: attention (one head at a time, two products around a softmax), rotary
 * positions, norms, activations, embedding and the cross-entropy of a split vocabulary. */
#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

static void rotate_row(const struct dtp_rope_args *r, float *at, float c, float s) {
    int64_t half = r->head_dim / 2;
    for (int64_t head = 0; head < r->heads; head++, at += r->head_dim) {
        float x0 = at[0], x1 = at[half];
        at[0] = x0 * c - x1 * s;
        at[half] = x0 * s + x1 * c;
    }
}

/* Su 2021 (RoFormer), the two halves of a head rotated against each other. */
void dtp_cpu_rope(struct dtp_dev *d, const struct dtp_rope_args *r) {
    (void)d;
    int64_t half = r->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = pow(r->theta, -2.0 * (double)i / (double)r->head_dim);
        for (int64_t row = 0; row < r->rows; row++) {
            double angle = (double)(row / r->batch) * frequency;
            float c = (float)cos(angle), s = (float)sin(r->inverse ? -angle : angle);
            rotate_row(r, (float *)r->x + row * r->row_stride + i, c, s);
        }
    }
}

uint64_t dtp_cpu_attention_saved_bytes(const struct dtp_dev *d,
                                       const struct dtp_attention_args *x) {
    (void)d;
    return (uint64_t)(x->batch * x->heads * x->seq * x->seq) * sizeof(float);
}

/* The workspace holds the gradient of one head's probabilities. */
uint64_t dtp_cpu_attention_workspace_bytes(const struct dtp_dev *d,
                                           const struct dtp_attention_args *x) {
    (void)d;
    return (uint64_t)(x->seq * x->seq) * sizeof(float);
}

/* Rows of one sequence stand batch rows apart. */
struct head {
    const struct dtp_dropout *dropout;
    uint32_t number, sequence; /* head of the model; sequence of the microbatch */
    const float *q, *k, *v;
    float *p;                      /* [seq, seq] probabilities */
    int64_t qkv_at, kv_at, out_at; /* offsets in q, dq; k, v, dk, dv; out, dout */
    int64_t seq, dim, ld, ld_out;
    float scale;
};

static struct head head_of(const struct dtp_attention_args *x, int64_t sequence, int64_t i) {
    int64_t kv = i / (x->heads / x->kv_heads);
    struct head h = {.dropout = &x->dropout,
                     .number = (uint32_t)(x->first_head + i),
                     .sequence = (uint32_t)sequence,
                     .qkv_at = sequence * x->qkv_stride + i * x->head_dim,
                     .kv_at = sequence * x->qkv_stride + kv * x->head_dim,
                     .out_at = sequence * x->out_stride + i * x->head_dim,
                     .seq = x->seq,
                     .dim = x->head_dim,
                     .ld = x->qkv_stride * x->batch,
                     .ld_out = x->out_stride * x->batch,
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

/* ---- dropout: probabilities that are dropped get a minus, which keeps the mask for the backward ---- */

enum { QUERIES = 32, KEYS = 16, HALF = 8 };

/* The eight elements that share a counter, of those that the causal mask leaves. */
static void drop_eight(const struct head *h, uint32_t query, uint32_t key) {
    struct dtp_dropout_bits bits =
        dtp_dropout_scores(h->dropout, h->number, query, key, h->sequence);
    for (uint32_t i = query; i < query + QUERIES && i < h->seq; i += HALF)
        for (uint32_t j = key; j < key + KEYS && j <= i; j += HALF)
            if (!dtp_dropout_keeps(h->dropout, &bits, dtp_dropout_score_slot(i, j)))
                h->p[i * h->seq + j] *= -1;
}

static void drop(const struct head *h) {
    for (uint32_t i = 0; i < h->seq; i += QUERIES)
        for (uint32_t j = 0; j < i + QUERIES && j < h->seq; j += KEYS)
            for (uint32_t k = 0; k < HALF * HALF; k++)
                drop_eight(h, i + k / HALF, j + k % HALF);
}

/* Returns the kept probabilities, scaled, in `out`; without dropout it returns the probabilities themselves. */
static const float *kept(const struct head *h, float *out) {
    if (h->dropout->drop_below == 0)
        return h->p;
    for (int64_t i = 0; i < h->seq * h->seq; i++)
        out[i] = signbit(h->p[i]) ? 0.0F : h->p[i] * h->dropout->scale;
    return out;
}

void dtp_cpu_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->heads; i++) {
            struct head h = head_of(x, b, i);
            dtp_cpu_sgemm(d, &(struct dtp_sgemm){false, true, h.seq, h.seq, h.dim, h.scale, 0, h.q,
                                                 h.k, h.p, h.ld, h.ld, h.seq});
            causal_softmax(h.p, x->seq);
            if (x->dropout.drop_below > 0)
                drop(&h);
            const float *p = kept(&h, x->workspace);
            dtp_cpu_sgemm(d,
                          &(struct dtp_sgemm){false, false, h.seq, h.dim, h.seq, 1, 0, p, h.v,
                                              (float *)x->out + h.out_at, h.seq, h.ld, h.ld_out});
        }
}

/* The gradient of what was dropped is 0. */
static void drop_backward(const struct head *h, float *dp) {
    for (int64_t i = 0; i < h->seq * h->seq; i++)
        dp[i] = signbit(h->p[i]) ? 0.0F : dp[i] * h->dropout->scale;
}

/* dS = P (dP - sum_k P dP), in place of dP. */
static void softmax_backward(const float *p, float *dp, int64_t seq) {
    for (int64_t i = 0; i < seq; i++) {
        const float *prow = p + i * seq;
        float *row = dp + i * seq, dot = 0;
        for (int64_t k = 0; k <= i; k++)
            dot += fabsf(prow[k]) * row[k];
        for (int64_t k = 0; k <= i; k++)
            row[k] = fabsf(prow[k]) * (row[k] - dot);
        for (int64_t k = i + 1; k < seq; k++)
            row[k] = 0;
    }
}

void dtp_cpu_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    int64_t group = x->heads / x->kv_heads;
    float *dp = x->workspace;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->heads; i++) {
            struct head h = head_of(x, b, i);
            /* query heads of a group add into the same key-value head, the first one writes */
            float beta = i % group == 0 ? 0.0F : 1.0F;
            const float *dout = (const float *)x->dout + h.out_at;
            const float *p = kept(&h, dp);
            dtp_cpu_sgemm(d, &(struct dtp_sgemm){true, false, h.seq, h.dim, h.seq, 1, beta, p, dout,
                                                 (float *)x->dv + h.kv_at, h.seq, h.ld_out, h.ld});
            dtp_cpu_sgemm(d, &(struct dtp_sgemm){false, true, h.seq, h.seq, h.dim, 1, 0, dout, h.v,
                                                 dp, h.ld_out, h.ld, h.seq});
            if (x->dropout.drop_below > 0)
                drop_backward(&h, dp);
            softmax_backward(h.p, dp, x->seq);
            dtp_cpu_sgemm(d,
                          &(struct dtp_sgemm){false, false, h.seq, h.dim, h.seq, h.scale, 0, dp,
                                              h.k, (float *)x->dq + h.qkv_at, h.seq, h.ld, h.ld});
            dtp_cpu_sgemm(d,
                          &(struct dtp_sgemm){true, false, h.seq, h.dim, h.seq, h.scale, beta, dp,
                                              h.q, (float *)x->dk + h.kv_at, h.seq, h.ld, h.ld});
        }
}

/* ---- norms and activations ---- */

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

/* ---- cross-entropy and embedding ---- */

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
