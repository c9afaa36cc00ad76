/* Every operation of the CUDA table against the CPU's, on random numbers, in fp32, bf16 and fp16. Inputs
 * are rounded to the dtype first, so that both sides read the same values; outputs start as NaN, so that
 * what is not written shows. The measure is |gpu - cpu| / |cpu| over all elements of a tensor (norms).
 *   dtype   rounding of the result   tolerance here
 *   fp32    2^-24                    1e-4 (sums of thousands of terms in another order, fast exp)
 *   fp16    2^-11                    4e-3
 *   bf16    2^-8                     1.2e-2 (P and dS are rounded inside attention as well)
 * Without a GPU, or without the module, the program says so and skips. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "runtime/comm.h"
#include "sim/base/rng.h"
#include "tests/suites.h"

enum { SKIP = 77 };
static const uint64_t cpu_bytes = UINT64_C(1) << 31, gpu_bytes = UINT64_C(1) << 31;

static struct dtp_arena *arena;
static struct dtp_dev *cpu, *gpu;
static const struct dtp_dev_ops *cops, *gops;
static struct dtp_rng rng;
static const char *attention = ""; /* what $DTPLAN_CUDA_ATTENTION says; "": nothing */

static double tolerance(void) {
    return gpu->dtype == DTP_FP32 ? 1e-4 : gpu->dtype == DTP_FP16 ? 4e-3 : 1.2e-2;
}

/* ---- tensors on both sides ---- */

/* type: what the GPU holds; the CPU always holds fp32. */
struct pair {
    float *c;
    void *g;
    int64_t n;
    enum dtp_dtype type;
};

static void read_gpu(const struct pair *p, float *out) {
    float *wide = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "read", (uint64_t)p->n * 4);
    gops->cast(gpu, wide, DTP_FP32, p->g, p->type, p->n);
    gops->copy_out(gpu, out, wide, (uint64_t)p->n * 4);
    dtp_heap_release(gpu->heap, wide);
}

static void write_gpu(const struct pair *p, const float *values) {
    float *wide = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "write", (uint64_t)p->n * 4);
    gops->copy_in(gpu, wide, values, (uint64_t)p->n * 4);
    gops->cast(gpu, p->g, p->type, wide, DTP_FP32, p->n);
    gops->sync(gpu);
    dtp_heap_release(gpu->heap, wide);
}

static struct pair make(int64_t n, enum dtp_dtype type) {
    struct pair p = {.n = n, .type = type};
    p.c = dtp_heap_alloc(cpu->heap, DTP_MEM_BUFFERS, "cpu", (uint64_t)n * 4);
    p.g = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "gpu", (uint64_t)(n * dtp_dtype_bytes(type)));
    CU_ASSERT_FATAL(p.c && p.g);
    return p;
}

/* Uniform in offset + (-scale, scale), the same on both sides. */
static struct pair random_pair(int64_t n, enum dtp_dtype type, double scale, double offset) {
    struct pair p = make(n, type);
    for (int64_t i = 0; i < n; i++)
        p.c[i] = (float)(offset + scale * ((double)(dtp_rng_next(&rng) >> 11) / 0x1p52 - 1));
    write_gpu(&p, p.c);
    read_gpu(&p, p.c);
    return p;
}

static struct pair in(int64_t n) {
    return random_pair(n, gpu->dtype, 1, 0);
}

static struct pair poison(int64_t n, enum dtp_dtype type) {
    struct pair p = make(n, type);
    for (int64_t i = 0; i < n; i++)
        p.c[i] = (float)NAN;
    write_gpu(&p, p.c);
    return p;
}

static struct pair out(int64_t n) {
    return poison(n, gpu->dtype);
}

/* Gradients: what is there already counts. */
static struct pair gradient(int64_t n) {
    return random_pair(n, DTP_FP32, 1, 0);
}

static double distance(const struct pair *p) {
    float *x = dtp_heap_alloc(cpu->heap, DTP_MEM_BUFFERS, "compare", (uint64_t)p->n * 4);
    double diff = 0, norm = 0;
    read_gpu(p, x);
    for (int64_t i = 0; i < p->n; i++) {
        diff += ((double)x[i] - (double)p->c[i]) * ((double)x[i] - (double)p->c[i]);
        norm += (double)p->c[i] * (double)p->c[i];
    }
    dtp_heap_release(cpu->heap, x);
    return sqrt(diff) / sqrt(norm > 0 ? norm : 1);
}

static void expect_within(const char *what, const struct pair *p, double most) {
    struct dtp_err err = {0};
    enum dtp_status status = gops->check(gpu, &err);
    double d = distance(p);
    bool good = status == DTP_OK && d <= most; /* NaN is not */
    printf("%s  %-5s %-34s %.2e%s%s\n", good ? "    " : "FAIL", dtp_dtype_names[gpu->dtype], what,
           d, status == DTP_OK ? "" : "  ", err.msg);
    CU_ASSERT(good);
}

static void expect(const char *what, const struct pair *p) {
    expect_within(what, p, tolerance());
}

static void drop(struct pair *const p[], size_t n) {
    gops->sync(gpu);
    for (size_t i = 0; i < n; i++) {
        dtp_heap_release(cpu->heap, p[i]->c);
        dtp_heap_release(gpu->heap, p[i]->g);
    }
}
#define DROP(...)                                                                                  \
    drop((struct pair *const[]){__VA_ARGS__},                                                      \
         sizeof((struct pair *const[]){__VA_ARGS__}) / sizeof(struct pair *))

static int32_t *tokens(int64_t n, int64_t most, int32_t **on_gpu) {
    int32_t *ids = dtp_heap_alloc(cpu->heap, DTP_MEM_BUFFERS, "ids", (uint64_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)dtp_rng_below(&rng, (uint64_t)most);
    *on_gpu = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "ids", (uint64_t)n * 4);
    gops->copy_in(gpu, *on_gpu, ids, (uint64_t)n * 4);
    return ids;
}

/* The tensor of one side; the loop variable `side` is 0 for the CPU. */
#define SIDE(p) (side ? (p).g : (void *)(p).c)

/* ---- GEMM ---- */

static void one_gemm(int64_t m, int64_t n, int64_t k, int kind) {
    static const char *const names[] = {"forward", "forward + bias", "input gradient",
                                        "weight gradient"};
    struct pair a = in(m * k), b = in(n * k), bias = in(n);
    struct pair c = kind == 3 ? gradient(m * n) : out(m * n);
    struct dtp_gemm_args g = {.m = m, .n = n, .k = k, .ldc = n};
    char name[64];
    g.ta = g.accumulate = g.c_gradient = kind == 3;
    g.tb = kind < 2;
    g.lda = g.ta ? m : k;
    g.ldb = g.tb ? k : n;
    g.a = a.c;
    g.b = b.c;
    g.c = c.c;
    g.bias = kind == 1 ? bias.c : NULL;
    cops->gemm(cpu, &g);
    g.a = a.g;
    g.b = b.g;
    g.c = c.g;
    g.bias = kind == 1 ? bias.g : NULL;
    gops->gemm(gpu, &g);
    snprintf(name, sizeof name, "gemm %lldx%lldx%lld %s", (long long)m, (long long)n, (long long)k,
             names[kind]);
    expect(name, &c);
    DROP(&a, &b, &bias, &c);
}

/* forward: gelu(x W + bias), keeping what it is of; backward: (dy W) gelu'(what it was of) */
static void one_gelu_gemm(int64_t m, int64_t n, int64_t k) {
    struct pair a = in(m * k), b = in(n * k), bias = in(n), before = out(m * n), c = out(m * n);
    struct pair bt = in(k * n), at = random_pair(m * n, gpu->dtype, 3, 0), dx = out(m * n);
    for (int side = 0; side < 2; side++) {
        struct dtp_gemm_args g = {.a = SIDE(a),
                                  .b = SIDE(b),
                                  .c = SIDE(c),
                                  .tb = true,
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .lda = k,
                                  .ldb = k,
                                  .ldc = n,
                                  .bias = SIDE(bias),
                                  .before = SIDE(before)};
        (side ? gops : cops)->gemm(side ? gpu : cpu, &g);
        g = (struct dtp_gemm_args){.a = SIDE(a),
                                   .b = SIDE(bt),
                                   .c = SIDE(dx),
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .lda = k,
                                   .ldb = n,
                                   .ldc = n,
                                   .slope_at = SIDE(at)};
        (side ? gops : cops)->gemm(side ? gpu : cpu, &g);
    }
    expect("gemm + bias + gelu", &c);
    expect("  before gelu", &before);
    expect("  input gradient through gelu", &dx);
    DROP(&a, &b, &bias, &before, &c, &bt, &at, &dx);
}

static void test_gemm(void) {
    one_gelu_gemm(384, 512, 256);
    one_gelu_gemm(37, 45, 51);
    for (int kind = 0; kind < 4; kind++) {
        one_gemm(384, 512, 256, kind);
        one_gemm(37, 45, 51, kind);
    }
}

/* ---- norms ---- */

static void one_norm(bool rms, int64_t rows, int64_t cols) {
    struct pair x = in(rows * cols), w = random_pair(cols, gpu->dtype, 0.5, 1), b = in(cols);
    struct pair y = out(rows * cols), mean = poison(rows, DTP_FP32), rstd = poison(rows, DTP_FP32);
    struct pair dy = in(rows * cols), residual = in(rows * cols), dx = out(rows * cols);
    struct pair dw = gradient(cols), db = gradient(cols);
    struct dtp_norm_args n = {.rms = rms, .rows = rows, .cols = cols, .epsilon = 1e-5};
    char name[64];
    for (int side = 0; side < 2; side++) {
        n.x = SIDE(x);
        n.weight = SIDE(w);
        n.bias = rms ? NULL : SIDE(b);
        n.y = SIDE(y);
        n.mean = rms ? NULL : SIDE(mean);
        n.rstd = SIDE(rstd);
        n.dy = SIDE(dy);
        n.residual = SIDE(residual);
        n.dx = SIDE(dx);
        n.dweight = SIDE(dw);
        n.dbias = rms ? NULL : SIDE(db);
        (side ? gops : cops)->norm_forward(side ? gpu : cpu, &n);
        (side ? gops : cops)->norm_backward(side ? gpu : cpu, &n);
    }
    snprintf(name, sizeof name, "%s norm %lldx%lld", rms ? "rms" : "layer", (long long)rows,
             (long long)cols);
    expect(name, &y);
    expect_within("  rstd", &rstd, 1e-4);
    expect("  dx", &dx);
    expect_within("  dweight", &dw, 1e-3);
    if (!rms) {
        expect_within("  dbias", &db, 1e-4);
        expect_within("  mean", &mean, 1e-4);
    }
    DROP(&x, &w, &b, &y, &mean, &rstd, &dy, &residual, &dx, &dw, &db);
}

static void test_norms(void) {
    static const int64_t cols[] = {45, 64, 768, 2048, 5120, 12288, 20480};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
        one_norm(false, 301, cols[i]);
        one_norm(true, 301, cols[i]);
    }
    one_norm(false, 3000, 768);
}

/* ---- rotary positions, activations ---- */

static void one_rope(int64_t heads, int64_t dim, int64_t stride, bool inverse) {
    int64_t batch = 3, rows = batch * 70;
    struct pair x = in(rows * stride);
    struct dtp_rope_args r = {.rows = rows,
                              .batch = batch,
                              .heads = heads,
                              .head_dim = dim,
                              .row_stride = stride,
                              .theta = 10000,
                              .inverse = inverse};
    r.x = x.c;
    cops->rope(cpu, &r);
    r.x = x.g;
    gops->rope(gpu, &r);
    expect(inverse ? "rope inverse" : "rope", &x);
    DROP(&x);
}

static void test_rope(void) {
    one_rope(6, 64, 8 * 64, false);
    one_rope(5, 128, 7 * 128, true);
    one_rope(3, 10, 31, false);
}

static void one_act(enum dtp_act fn, int64_t rows, int64_t cols) {
    int64_t wide = fn == DTP_ACT_FN_SWIGLU ? 2 * cols : cols;
    struct pair x = random_pair(rows * wide, gpu->dtype, 4, 0), y = out(rows * cols);
    struct pair dy = in(rows * cols), dx = out(rows * wide);
    struct dtp_act_args a = {.fn = fn, .rows = rows, .cols = cols};
    for (int side = 0; side < 2; side++) {
        a.x = SIDE(x);
        a.y = SIDE(y);
        a.dy = SIDE(dy);
        a.dx = SIDE(dx);
        (side ? gops : cops)->act_forward(side ? gpu : cpu, &a);
        (side ? gops : cops)->act_backward(side ? gpu : cpu, &a);
    }
    expect(fn == DTP_ACT_FN_GELU ? "gelu" : fn == DTP_ACT_FN_RELU ? "relu" : "swiglu", &y);
    expect("  dx", &dx);
    DROP(&x, &y, &dy, &dx);
}

static void test_activations(void) {
    for (int fn = 0; fn <= DTP_ACT_FN_RELU; fn++) {
        one_act((enum dtp_act)fn, 99, 1000);
        one_act((enum dtp_act)fn, 99, 37);
    }
}

/* ---- attention ---- */

struct shape {
    int64_t batch, seq, heads, kv_heads, dim;
};

/* Every gradient twice on the GPU: the same bits, except where cuDNN adds atomically (device.h). */
static void expect_repeatable(const struct dtp_attention_args *x, const struct pair *d) {
    float *a = malloc((size_t)d->n * 4), *b = malloc((size_t)d->n * 4);
    read_gpu(d, a);
    gops->attention_backward(gpu, x);
    read_gpu(d, b);
    bool same = memcmp(a, b, (size_t)d->n * 4) == 0;
    if (!same)
        printf("          the same call twice: other bits\n");
    CU_ASSERT(same || strcmp(attention, "cudnn") == 0);
    free(a);
    free(b);
}

static void one_attention(struct shape s, double dropout) {
    int64_t rows = s.batch * s.seq, q = s.heads * s.dim, kv = s.kv_heads * s.dim;
    int64_t width = q + 2 * kv;
    struct dtp_attention_args x = {.batch = s.batch,
                                   .seq = s.seq,
                                   .heads = s.heads,
                                   .kv_heads = s.kv_heads,
                                   .head_dim = s.dim,
                                   .qkv_stride = width,
                                   .out_stride = q,
                                   .dropout = dtp_dropout_of(dropout, 1, 2, 3, 4),
                                   .first_head = 8};
    struct pair qkv = random_pair(rows * width, gpu->dtype, 2, 0), o = out(rows * q);
    struct pair dout = in(rows * q), dqkv = out(rows * width);
    char name[64];
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        size_t e = side ? (size_t)dtp_dtype_bytes(gpu->dtype) : 4;
        char *base = SIDE(qkv), *grad = SIDE(dqkv);
        x.q = base;
        x.k = base + (size_t)q * e;
        x.v = base + (size_t)(q + kv) * e;
        x.dq = grad;
        x.dk = grad + (size_t)q * e;
        x.dv = grad + (size_t)(q + kv) * e;
        x.out = SIDE(o);
        x.dout = SIDE(dout);
        x.saved =
            dtp_heap_alloc(d->heap, DTP_MEM_BUFFERS, "saved", ops->attention_saved_bytes(d, &x));
        x.workspace = dtp_heap_alloc(d->heap, DTP_MEM_BUFFERS, "workspace",
                                     ops->attention_workspace_bytes(d, &x));
        ops->attention_forward(d, &x);
        ops->attention_backward(d, &x);
        if (side == 0) {
            dtp_heap_release(d->heap, x.saved);
            dtp_heap_release(d->heap, x.workspace);
        }
    }
    snprintf(name, sizeof name, "attention b%lld s%lld h%lld/%lld d%lld%s", (long long)s.batch,
             (long long)s.seq, (long long)s.heads, (long long)s.kv_heads, (long long)s.dim,
             dropout > 0 ? " dropout" : "");
    expect(name, &o);
    expect("  dqkv", &dqkv);
    expect_repeatable(&x, &dqkv);
    gops->sync(gpu);
    dtp_heap_release(gpu->heap, x.saved);
    dtp_heap_release(gpu->heap, x.workspace);
    DROP(&qkv, &o, &dout, &dqkv);
}

static void test_attention(void) {
    static const struct shape shapes[] = {
        {1, 64, 1, 1, 64},    {2, 200, 4, 4, 64}, {1, 333, 8, 2, 128},
        {2, 128, 3, 3, 80},   {1, 65, 6, 1, 96},  {3, 50, 2, 1, 16},
        {1, 1024, 2, 2, 128}, {1, 7, 2, 2, 64},   {2, 640, 8, 2, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        one_attention(shapes[i], 0);
        one_attention(shapes[i], 0.2);
    }
}

/* ---- loss ---- */

static void one_loss(int64_t cols, int64_t valid, int64_t first) {
    int64_t rows = 130;
    struct pair logits = random_pair(rows * cols, gpu->dtype, 8, 0);
    struct pair most = poison(rows, DTP_FP32), sum = poison(rows, DTP_FP32);
    struct pair target = poison(rows, DTP_FP32), loss = random_pair(1, DTP_FP32, 1, 0);
    int32_t *on_gpu, *ids = tokens(rows, 2 * valid, &on_gpu);
    struct dtp_loss_args x = {
        .rows = rows, .cols = cols, .valid = valid, .first = first, .scale = 0.01};
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        x.logits = SIDE(logits);
        x.targets = side ? on_gpu : ids;
        x.max = SIDE(most);
        x.sum = SIDE(sum);
        x.target = SIDE(target);
        x.loss = SIDE(loss);
        ops->loss_max(d, &x);
        ops->loss_sum(d, &x);
        ops->loss_mean(d, &x);
        ops->loss_grad(d, &x);
    }
    expect_within("loss max", &most, 1e-6);
    expect_within("  sum", &sum, 1e-4);
    expect_within("  target", &target, 1e-5);
    expect_within("  loss", &loss, 1e-4);
    expect("  gradient of the logits", &logits);
    dtp_heap_release(cpu->heap, ids);
    dtp_heap_release(gpu->heap, on_gpu);
    DROP(&logits, &most, &sum, &target, &loss);
}

static void test_loss(void) {
    one_loss(1024, 1000, 0);
    one_loss(45, 45, 30);
    one_loss(50304, 50257, 0);
}

/* ---- embeddings ---- */

static void one_embedding(int64_t cols) {
    int64_t batch = 4, rows = batch * 150, valid = 60;
    int32_t *on_gpu, *ids = tokens(rows, 100, &on_gpu);
    struct pair table = in(200 * cols), o = out(rows * cols), dout = in(rows * cols);
    struct pair dtable = gradient(200 * cols), dposition = gradient(200 * cols);
    struct dtp_embedding_args x = {
        .rows = rows, .cols = cols, .valid = valid, .first = 20, .batch = batch};
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        x.ids = side ? on_gpu : ids;
        x.table = SIDE(table);
        x.out = SIDE(o);
        x.dout = SIDE(dout);
        x.dtable = SIDE(dtable);
        ops->embed(d, &x);
        ops->embed_backward(d, &x);
        x.dtable = SIDE(dposition);
        ops->position_add(d, &x);
        ops->position_backward(d, &x);
    }
    expect("embedding + positions", &o);
    expect_within("  dtable", &dtable, 1e-5);
    expect_within("  dpositions", &dposition, 1e-5);
    dtp_heap_release(cpu->heap, ids);
    dtp_heap_release(gpu->heap, on_gpu);
    DROP(&table, &o, &dout, &dtable, &dposition);
}

static void test_embeddings(void) {
    one_embedding(768);
    one_embedding(4096);
    one_embedding(37);
}

/* ---- sums ---- */

/* Rows from the 300th on, of 3 sequences; backward: in place, without bias and residual. The masks are the
 * same to the bit: a single other element would show in the distance. */
static void one_residual(int64_t rows, int64_t cols, double dropout) {
    struct pair x = in(rows * cols), bias = in(cols), r = in(rows * cols), o = out(rows * cols);
    struct pair g = in(rows * cols), zeros = out(rows * cols);
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        struct dtp_residual_args a = {.out = SIDE(o),
                                      .x = SIDE(x),
                                      .bias = SIDE(bias),
                                      .residual = SIDE(r),
                                      .rows = rows,
                                      .cols = cols,
                                      .first_row = 300,
                                      .batch = 3,
                                      .dropout = dtp_dropout_of(dropout, 9, 8, 7, 6)};
        ops->bias_residual(d, &a);
        a.bias = a.residual = NULL;
        a.out = SIDE(zeros);
        ops->bias_residual(d, &a);
        a.x = a.out = SIDE(g);
        ops->bias_residual(d, &a);
    }
    expect(dropout > 0 ? "bias + dropout + residual" : "bias + residual", &o);
    expect("  backward, in place", &g);
    float *seen = malloc((size_t)(rows * cols) * 4);
    int64_t other = 0;
    read_gpu(&zeros, seen);
    for (int64_t i = 0; i < rows * cols; i++)
        other += (seen[i] != 0.0F) != (zeros.c[i] != 0.0F);
    if (other > 0)
        printf("          %lld elements of the mask differ\n", (long long)other);
    CU_ASSERT_EQUAL(other, 0);
    free(seen);
    DROP(&x, &bias, &r, &o, &g, &zeros);
}

static void one_sum(int64_t rows, int64_t cols) {
    const int64_t shape[2] = {rows, cols};
    struct pair x = in(rows * cols), r = in(rows * cols);
    struct pair db = gradient(cols), total = random_pair(1, DTP_FP32, 1, 0);
    struct pair g = gradient(rows * cols), scale = poison(1, DTP_FP32);
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        ops->bias_backward(d, SIDE(db), SIDE(x), shape);
        ops->add(d, SIDE(x), SIDE(r), rows * cols, false);
        ops->norm2(d, SIDE(total), SIDE(g), rows * cols, 0.25);
        ops->clip_scale(d, SIDE(scale), SIDE(total),
                        &(struct dtp_clip){.max_norm = 1.5, .loss_scale = 4});
    }
    expect_within("bias gradient", &db, 1e-4);
    expect("  add", &x);
    expect_within("  norm2", &total, 1e-5);
    expect_within("  clip", &scale, 1e-5);
    DROP(&x, &r, &db, &total, &g, &scale);
}

static void test_sums(void) {
    static const int64_t shapes[][2] = {{300, 768}, {2100, 12288}, {33, 37}, {33, 36}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        one_sum(shapes[i][0], shapes[i][1]);
        one_residual(shapes[i][0], shapes[i][1], 0);
        one_residual(shapes[i][0], shapes[i][1], 0.25);
    }
}

/* ---- AdamW ---- */

static void test_adamw(void) {
    static const int64_t sizes[] = {5, 4096, 100000, 1, 16384 * 3 + 8};
    enum { N = 70 };
    struct pair p[N], master[N], m[N], v[N], g[N], scale = random_pair(1, DTP_FP32, 0.1, 0.5);
    struct dtp_adamw_tensor t[2][N];
    struct dtp_adamw_hyper h = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3};
    bool wide = gpu->dtype == DTP_FP32;
    for (int i = 0; i < N; i++) {
        int64_t n = sizes[i % 5];
        p[i] = in(n);
        g[i] = gradient(n);
        m[i] = gradient(n);
        v[i] = random_pair(n, DTP_FP32, 0.5, 0.5);
        master[i] = make(n, DTP_FP32);
        write_gpu(&master[i], p[i].c);
        memcpy(master[i].c, p[i].c, (size_t)n * 4);
        for (int side = 0; side < 2; side++)
            t[side][i] = (struct dtp_adamw_tensor){.param = side ? p[i].g : (void *)master[i].c,
                                                   .m = SIDE(m[i]),
                                                   .v = SIDE(v[i]),
                                                   .master = side && !wide ? master[i].g : NULL,
                                                   .grad = SIDE(g[i]),
                                                   .n = n,
                                                   .decay = i % 2 == 0};
    }
    h.grad_scale = scale.c;
    cops->adamw(cpu, &h, t[0], N);
    h.grad_scale = scale.g;
    gops->adamw(gpu, &h, t[1], N);
    for (int i = 0; i < N; i++) {
        memcpy(p[i].c, master[i].c, (size_t)p[i].n * 4);
        if (i < 5 || i > N - 3) {
            expect("adamw parameter", &p[i]);
            if (!wide)
                expect_within("  master", &master[i], 1e-5);
            expect_within("  m", &m[i], 1e-5);
            expect_within("  v", &v[i], 1e-5);
        }
        CU_ASSERT(distance(&p[i]) < tolerance());
        DROP(&p[i], &master[i], &m[i], &v[i], &g[i]);
    }
    DROP(&scale);
}

/* ---- streams, events, errors ---- */

static void test_streams(void) {
    struct dtp_err err = {0};
    struct pair a = in(1000), b = out(1000);
    gops->mark(gpu, DTP_STREAM_COMPUTE, 0);
    gops->copy(gpu, b.g, a.g, (uint64_t)(1000 * dtp_dtype_bytes(gpu->dtype)));
    gops->mark(gpu, DTP_STREAM_COMPUTE, 1);
    gops->event_record(gpu, DTP_STREAM_COMPUTE, 3);
    gops->event_wait(gpu, DTP_STREAM_TP, 3);
    gops->sync(gpu);
    CU_ASSERT(gops->event_done(gpu, 3));
    CU_ASSERT(gops->mark_ns(gpu, 1) >= gops->mark_ns(gpu, 0));
    memcpy(b.c, a.c, 4000);
    expect_within("copy", &b, 0);
    gops->zero(gpu, b.g, (uint64_t)(1000 * dtp_dtype_bytes(gpu->dtype)));
    memset(b.c, 0, 4000);
    expect_within("zero", &b, 0);
    CU_ASSERT_EQUAL(gops->check(gpu, &err), DTP_OK);
    CU_ASSERT(gops->overhead_bytes(gpu) > 0);
    DROP(&a, &b);
}

/* ---- one suite per dtype ---- */

static enum dtp_status open_both(enum dtp_dtype dtype, const char *kind, struct dtp_err *err) {
    attention = kind;
    if (kind[0])
        (void)setenv("DTPLAN_CUDA_ATTENTION", kind, 1);
    else
        (void)unsetenv("DTPLAN_CUDA_ATTENTION");
    struct dtp_dev_config config = {
        .nlocal = 1, .memory_bytes = cpu_bytes, .dtype = DTP_FP32, .grad_dtype = DTP_FP32};
    arena = dtp_arena_create("test");
    rng = dtp_rng_stream(7, (uint64_t)dtype);
    DTP_TRY(dtp_dev_find("cpu", &cops, err));
    DTP_TRY(cops->open(arena, &config, &cpu, err));
    config.memory_bytes = gpu_bytes;
    config.dtype = dtype;
    DTP_TRY(dtp_dev_find("cuda", &gops, err));
    return gops->open(arena, &config, &gpu, err);
}

static int close_both(void) {
    gops->close(gpu);
    cops->close(cpu);
    dtp_arena_destroy(arena);
    return 0;
}

static int open_fp32(void) {
    return (int)open_both(DTP_FP32, "simple", NULL);
}
static int open_bf16(void) {
    return (int)open_both(DTP_BF16, "own", NULL);
}
static int open_fp16(void) {
    return (int)open_both(DTP_FP16, "own", NULL);
}
static int open_cudnn(void) {
    return (int)open_both(DTP_BF16, "cudnn", NULL);
}
static int open_cudnn_fp16(void) {
    return (int)open_both(DTP_FP16, "cudnn", NULL);
}
static int open_exact(void) {
    return (int)open_both(DTP_BF16, "exact", NULL);
}
static int open_simple(void) {
    return (int)open_both(DTP_BF16, "simple", NULL);
}

/* cuDNN's suites stand last, and are left out where it is not found. */
static bool has_cudnn(void) {
    struct dtp_err err = {0};
    bool found = open_both(DTP_BF16, "cudnn", &err) == DTP_OK;
    if (found)
        close_both();
    else
        printf("skipped: %s\n", err.msg);
    return found;
}

int main(void) {
    CU_TestInfo tests[] = {{"GEMM", test_gemm},
                           {"norms", test_norms},
                           {"rotary positions", test_rope},
                           {"activations", test_activations},
                           {"attention", test_attention},
                           {"loss", test_loss},
                           {"embeddings", test_embeddings},
                           {"sums", test_sums},
                           {"AdamW", test_adamw},
                           {"streams and events", test_streams},
                           CU_TEST_INFO_NULL};
    CU_TestInfo only_attention[] = {{"attention", test_attention}, CU_TEST_INFO_NULL};
    enum { CUDNN = 4 };
    CU_SuiteInfo suites[] = {
        {"cuda operations in fp32", open_fp32, close_both, NULL, NULL, tests},
        {"cuda operations in bf16", open_bf16, close_both, NULL, NULL, tests},
        {"cuda operations in fp16", open_fp16, close_both, NULL, NULL, tests},
        {"plain attention", open_simple, close_both, NULL, NULL, only_attention},
        {"cuDNN, bf16", open_cudnn, close_both, NULL, NULL, only_attention},
        {"cuDNN, fp16", open_cudnn_fp16, close_both, NULL, NULL, only_attention},
        {"cuDNN, exact", open_exact, close_both, NULL, NULL, only_attention},
        CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    if (open_both(DTP_FP32, "", &err) != DTP_OK) {
        printf("skipped: %s\n", err.msg);
        cops->close(cpu);
        dtp_arena_destroy(arena);
        return SKIP;
    }
    close_both();
    if (!has_cudnn())
        suites[CUDNN] = (CU_SuiteInfo)CU_SUITE_INFO_NULL;
    return run_suites(suites);
}
