/* Times of a device's products and attention. */
#include "runtime/measure/measure_device_private.h"

/* ---- GEMM, as transformer_comm.c calls it: y = x W', dx = dy W, dW += dy' x ---- */

void dtp_bench_run_gemm(void *context, int i) {
    const struct dtp_bench_gemm *x = context;
    struct dtp_gemm_args g = x->g;
    int64_t e = dtp_bench_element_bytes(x->b), out = g.c_gradient ? (int64_t)sizeof(float) : e;
    g.a = dtp_bench_part(x->b, 0, g.m * g.k * e, i);
    g.b = dtp_bench_part(x->b, 1, g.k * g.n * e, i);
    g.c = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i);
    if (x->gelu && g.tb)
        g.before = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i + 1);
    else if (x->gelu)
        g.slope_at = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i + 1);
    x->b->ops->gemm(x->b->dev, &g);
}

static bool fits(const struct dtp_bench *b, const struct dtp_gemm_args *g) {
    uint64_t e = (uint64_t)dtp_bench_element_bytes(b), out = g->c_gradient ? sizeof(float) : e;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    uint64_t most = b->grid->most_bytes;
    return m * k * e <= b->pool_bytes[0] && k * n * e <= b->pool_bytes[1] &&
           m * n * out <= b->pool_bytes[POOL_C] && m * n * out <= most && k * n * e <= most;
}

struct dtp_bench_gemm dtp_bench_gemm_of(struct dtp_bench *b, enum dtp_gemm_pass pass,
                                        const int64_t mnk[3]) {
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct dtp_bench_gemm x = {.b = b, .g = {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n}};
    if (pass == DTP_GEMM_FORWARD) {
        x.g.tb = true;
        x.g.ldb = k;
        x.g.bias = b->rows;
    }
    if (pass == DTP_GEMM_WGRAD) {
        x.g.ta = true;
        x.g.lda = m;
        x.g.accumulate = x.g.c_gradient = true;
    }
    return x;
}

/* before: k of the entry before this one, when m and n are the same; else 0. Calls that are longer than LONG_S run
 * into the limit of power while their kernel is chosen: their clock is that of the entry before, at whose rate
 * they work (along k products of 14 us and of 800 us are within 6 %). */
static const double LONG_S = 2.5e-4;
static void add_gemm(struct dtp_bench *b, const struct dtp_bench_gemm *like, int64_t before) {
    struct dtp_bench_gemm x = *like;
    int64_t k = x.g.k;
    bool has_last = b->n > 0 && b->n <= b->capacity;
    double time_s = 0, clock = 1;
    if (fits(b, &x.g)) {
        time_s = dtp_bench_product_s(b, dtp_bench_run_gemm, &x);
        clock = dtp_bench_clock(b);
        if (before > 0 && has_last && time_s / clock > LONG_S)
            clock = b->clock[b->n - 1];
    } else if (before > 0 && has_last) {
        time_s = b->time_s[b->n - 1] * (double)k / (double)before;
        clock = b->clock[b->n - 1];
    }
    dtp_bench_note(b, time_s, clock);
}

static void gemms_of(struct dtp_bench *b, enum dtp_gemm_pass pass, bool gelu) {
    const struct dtp_measure_grid *grid = b->grid;
    const int *x = pass == DTP_GEMM_WGRAD ? grid->width : grid->tokens,
              *y = gelu ? grid->gelu_n : grid->width,
              *z = gelu                     ? grid->gelu_k
                   : pass == DTP_GEMM_WGRAD ? grid->tokens
                                            : grid->width;
    for (int i = 0; x[i]; i++)
        for (int j = 0; y[j]; j++)
            for (int k = 0; z[k]; k++) {
                struct dtp_bench_gemm g = dtp_bench_gemm_of(b, pass, (int64_t[]){x[i], y[j], z[k]});
                g.gelu = gelu;
                add_gemm(b, &g, k > 0 ? z[k - 1] : 0);
            }
}

void dtp_bench_gemms(struct dtp_bench *b) {
    for (int pass = DTP_GEMM_FORWARD; pass <= DTP_GEMM_WGRAD; pass++)
        gemms_of(b, (enum dtp_gemm_pass)pass, false);
}

void dtp_bench_gelus(struct dtp_bench *b) {
    gemms_of(b, DTP_GEMM_FORWARD, true);
    gemms_of(b, DTP_GEMM_DGRAD, true);
}

/* ---- attention ---- */

void dtp_bench_run_attention(void *context, int i) {
    const struct dtp_bench_attention *t = context;
    struct dtp_bench *b = t->b;
    struct dtp_attention_args x = t->x;
    int64_t e = dtp_bench_element_bytes(b), width = x.heads * x.head_dim, rows = x.seq * x.batch;
    char *qkv = dtp_bench_part(b, 0, 3 * width * rows * e, i),
         *grad = dtp_bench_part(b, 1, 3 * width * rows * e, i);
    x.q = qkv;
    x.k = qkv + width * e;
    x.v = qkv + 2 * width * e;
    x.out = dtp_bench_part(b, POOL_C, width * rows * e, i);
    x.dout = dtp_bench_part(b, POOL_C, width * rows * e, i + 1);
    x.dq = grad;
    x.dk = grad + width * e;
    x.dv = grad + 2 * width * e;
    x.saved = b->saved;
    x.workspace = b->workspace;
    if (t->backward)
        b->ops->attention_backward(b->dev, &x);
    else
        b->ops->attention_forward(b->dev, &x);
}

/* As many sequences of HEADS heads as give the number of heads, or one of so many. */
static struct dtp_attention_args attention_of(const struct dtp_bench *b, const int at[3],
                                              double dropout) {
    enum { HEADS = 8 };
    const struct dtp_measure_grid *g = b->grid;
    int64_t all = g->heads[at[2]], heads = all % HEADS ? all : HEADS, dim = g->head_dim[at[1]];
    return (struct dtp_attention_args){.batch = all / heads,
                                       .seq = g->seq[at[0]],
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .head_dim = dim,
                                       .qkv_stride = 3 * heads * dim,
                                       .out_stride = heads * dim,
                                       .dropout = dtp_dropout_of(dropout, 1, 0, 0, 0)};
}

void dtp_bench_attentions(struct dtp_bench *b, bool backward, double dropout) {
    const struct dtp_measure_grid *g = b->grid;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int h = 0; g->heads[h]; h++) {
                struct dtp_bench_attention t = {
                    .b = b,
                    .backward = backward,
                    .x = attention_of(b, (const int[3]){s, d, h}, dropout)};
                double time_s = dtp_bench_product_s(b, dtp_bench_run_attention, &t);
                dtp_bench_note(b, time_s, dtp_bench_clock(b));
            }
}

static int length(const int *axis) {
    int n = 0;
    while (axis[n])
        n++;
    return n;
}

struct dtp_bench_attention dtp_bench_attention_of(struct dtp_bench *b, bool backward,
                                                  double dropout) {
    const struct dtp_measure_grid *g = b->grid;
    const int at[3] = {length(g->seq) * 3 / 4, length(g->head_dim) - 1, length(g->heads) * 2 / 3};
    return (struct dtp_bench_attention){
        .b = b, .backward = backward, .x = attention_of(b, at, dropout)};
}

double dtp_bench_attention_flops(const struct dtp_bench_attention *t) {
    const struct dtp_attention_shape s = {.causal = true,
                                          .backward = t->backward,
                                          .batch = t->x.batch,
                                          .heads = t->x.heads,
                                          .kv_heads = t->x.kv_heads,
                                          .seq_q = t->x.seq,
                                          .seq_kv = t->x.seq,
                                          .head_dim = t->x.head_dim};
    return dtp_attention_flops(&s);
}

uint64_t dtp_bench_attention_bytes(const struct dtp_bench *b, bool workspace) {
    const struct dtp_measure_grid *g = b->grid;
    uint64_t most = 0;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int i = 0; g->heads[i / 2]; i++) {
                struct dtp_attention_args x =
                    attention_of(b, (const int[3]){s, d, i / 2}, i % 2 * DTP_MEASURE_DROPOUT);
                uint64_t bytes = workspace ? b->ops->attention_workspace_bytes(b->dev, &x)
                                           : b->ops->attention_saved_bytes(b->dev, &x);
                most = bytes > most ? bytes : most;
            }
    return most;
}
