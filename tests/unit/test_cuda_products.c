/* GEMMs and attention of the CUDA table against the CPU's; attention of each kind. */
#include "tests/cuda_pair.h"

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

/* ---- one suite per dtype, and per kind of attention ---- */

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
    CU_TestInfo tests[] = {{"GEMM", test_gemm}, {"attention", test_attention}, CU_TEST_INFO_NULL};
    CU_TestInfo only_attention[] = {{"attention", test_attention}, CU_TEST_INFO_NULL};
    enum { CUDNN = 4 };
    CU_SuiteInfo suites[] = {
        {"cuda products in fp32", open_fp32, close_both, NULL, NULL, tests},
        {"cuda products in bf16", open_bf16, close_both, NULL, NULL, tests},
        {"cuda products in fp16", open_fp16, close_both, NULL, NULL, tests},
        {"plain attention", open_simple, close_both, NULL, NULL, only_attention},
        {"cuDNN, bf16", open_cudnn, close_both, NULL, NULL, only_attention},
        {"cuDNN, fp16", open_cudnn_fp16, close_both, NULL, NULL, only_attention},
        {"cuDNN, exact", open_exact, close_both, NULL, NULL, only_attention},
        CU_SUITE_INFO_NULL};
    if (no_gpu())
        return SKIP;
    if (!has_cudnn())
        suites[CUDNN] = (CU_SuiteInfo)CU_SUITE_INFO_NULL;
    return run_suites(suites);
}
