/* GEMMs of cuBLASLt: one plan per shape, the fastest of what its heuristic offers, kept. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cublasLt.h>

#include "runtime/cuda/cuda.h"
#include "sim/base/mix.h"
#include "sim/base/units.h"

enum { MAX_PLANS = 8192, WORKSPACE_BYTES = 32 << 20, CANDIDATES = 8 };

#define LT_FUNCTIONS(X)                                                                            \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

/* Everything that the choice of a kernel depends on; compared by bytes, so without padding. */
struct key {
    int64_t m, n, k, lda, ldb, ldc;
    uint32_t flags, align_bytes[3];
};
enum { TA = 1, TB = 2, ACCUMULATE = 4, GRADIENT = 8, BIAS = 16, USED = 32, GELU = 64, SLOPE = 128 };

struct plan {
    struct key key; /* flags 0: unused */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool valid, apart; /* apart: GELU in a separate kernel is faster */
};

struct dtp_cuda_gemms {
#define LT_MEMBER(f) __typeof__(&(f)) f;
    LT_FUNCTIONS(LT_MEMBER)
    cublasLtHandle_t handle;
    void *workspace;
    cudaEvent_t begin, end;
    bool tunes;
    struct plan *plan; /* [MAX_PLANS], by hash */
};

enum dtp_status dtp_cuda_gemm_open(struct dtp_arena *a, struct dtp_cuda *c, struct dtp_err *err) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so", NULL};
    void *library = dtp_cuda_library(names);
    if (!library)
        return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda needs cuBLASLt: %s", dlerror());
    struct dtp_cuda_gemms *g = DTP_NEW(a, struct dtp_cuda_gemms, 1);
#define LT_LOAD(f)                                                                                 \
    {                                                                                              \
        void *found = dlsym(library, #f);                                                          \
        if (!found)                                                                                \
            return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda: cuBLASLt lacks " #f);            \
        memcpy(&g->f, &found, sizeof found);                                                       \
    }
    LT_FUNCTIONS(LT_LOAD)
    cublasStatus_t s = g->cublasLtCreate(&g->handle);
    if (s != CUBLAS_STATUS_SUCCESS)
        return dtp_fail(err, DTP_ENO, "cublasLtCreate: status %d", (int)s);
    if (cudaMalloc(&g->workspace, WORKSPACE_BYTES) != cudaSuccess)
        return dtp_fail(err, DTP_ENOMEM, "out of memory: the workspace of cuBLASLt");
    if (cudaEventCreate(&g->begin) != cudaSuccess || cudaEventCreate(&g->end) != cudaSuccess)
        return dtp_fail(err, DTP_ENO, "cudaEventCreate failed");
    const char *tune = getenv("DTPLAN_CUDA_TUNE");
    g->tunes = !tune || strcmp(tune, "0") != 0;
    g->plan = DTP_NEW(a, struct plan, MAX_PLANS);
    c->gemms = g;
    return DTP_OK;
}

size_t dtp_cuda_gemm_version(const struct dtp_cuda *c) {
    return c->gemms->cublasLtGetVersion();
}

void dtp_cuda_gemm_close(struct dtp_cuda *c) {
    struct dtp_cuda_gemms *g = c->gemms;
    if (!g)
        return;
    for (int i = 0; i < MAX_PLANS; i++) {
        struct plan *p = &g->plan[i];
        if (!p->desc)
            continue;
        (void)g->cublasLtMatmulDescDestroy(p->desc);
        (void)g->cublasLtMatrixLayoutDestroy(p->a);
        (void)g->cublasLtMatrixLayoutDestroy(p->b);
        (void)g->cublasLtMatrixLayoutDestroy(p->c);
    }
    (void)cudaEventDestroy(g->begin);
    (void)cudaEventDestroy(g->end);
    (void)cudaFree(g->workspace);
    (void)g->cublasLtDestroy(g->handle);
    c->gemms = NULL;
}

static cudaDataType_t type_of(enum dtp_dtype dtype) {
    return dtype == DTP_BF16 ? CUDA_R_16BF : dtype == DTP_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

static uint32_t align_of(const void *p) {
    enum { MOST_BYTES = 256 };
    uintptr_t at = (uintptr_t)p, bit = at & (~at + 1);
    return bit == 0 || bit > MOST_BYTES ? MOST_BYTES : (uint32_t)bit;
}

static struct key key_of(const struct dtp_gemm_args *g) {
    struct key k = {.m = g->m, .n = g->n, .k = g->k, .lda = g->lda, .ldb = g->ldb, .ldc = g->ldc};
    k.flags = USED | (g->ta ? TA : 0U) | (g->tb ? TB : 0U) | (g->accumulate ? ACCUMULATE : 0U) |
              (g->c_gradient ? GRADIENT : 0U) | (g->bias ? BIAS : 0U) | (g->before ? GELU : 0U) |
              (g->slope_at ? SLOPE : 0U);
    k.align_bytes[0] = align_of(g->a);
    k.align_bytes[1] = align_of(g->b);
    k.align_bytes[2] = align_of(g->c);
    return k;
}

static struct plan *find(struct dtp_cuda_gemms *gemms, const struct key *key) {
    uint64_t h = DTP_FNV_START;
    const unsigned char *bytes = (const unsigned char *)key;
    for (size_t i = 0; i < sizeof *key; i++)
        h = dtp_fnv(h, bytes[i]);
    for (uint64_t i = 0; i < MAX_PLANS; i++) {
        struct plan *p = &gemms->plan[(h + i) % MAX_PLANS];
        if (p->key.flags == 0 || memcmp(&p->key, key, sizeof *key) == 0)
            return p;
    }
    return NULL;
}

/* cuBLAS thinks in columns: row-major C = op(A) op(B) is C' = op(B)' op(A)', with B as its first
 * operand. A stored matrix [r, c] with ld is [c, r] to it. */
static bool describe(struct dtp_cuda *c, struct plan *p, const struct dtp_gemm_args *g) {
    const struct dtp_cuda_gemms *t = c->gemms;
    enum dtp_dtype result = g->c_gradient ? c->dev.grad_dtype : c->dev.dtype;
    cudaDataType_t in = type_of(c->dev.dtype), out = type_of(result);
    cublasOperation_t opa = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t opb = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue =
        g->before     ? g->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX
        : g->slope_at ? CUBLASLT_EPILOGUE_DGELU
                      : CUBLASLT_EPILOGUE_BIAS;
    const void *aux = g->before ? g->before : g->slope_at;
    uint64_t n = (uint64_t)g->n, m = (uint64_t)g->m, k = (uint64_t)g->k;
    bool good = t->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
                CUBLAS_STATUS_SUCCESS;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
        bool set;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &opa, sizeof opa, true},
        {CUBLASLT_MATMUL_DESC_TRANSB, &opb, sizeof opb, true},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, g->bias || aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux, aux != NULL},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g->ldc, sizeof g->ldc, aux != NULL},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof(const void *), g->bias != NULL},
    };
    for (size_t i = 0; good && i < sizeof attributes / sizeof attributes[0]; i++)
        good = !attributes[i].set || t->cublasLtMatmulDescSetAttribute(
                                         p->desc, attributes[i].attribute, attributes[i].value,
                                         attributes[i].bytes) == CUBLAS_STATUS_SUCCESS;
    return good &&
           t->cublasLtMatrixLayoutCreate(&p->a, in, g->tb ? k : n, g->tb ? n : k, g->ldb) ==
               CUBLAS_STATUS_SUCCESS &&
           t->cublasLtMatrixLayoutCreate(&p->b, in, g->ta ? m : k, g->ta ? k : m, g->lda) ==
               CUBLAS_STATUS_SUCCESS &&
           t->cublasLtMatrixLayoutCreate(&p->c, out, n, m, g->ldc) == CUBLAS_STATUS_SUCCESS;
}

/* Finds the heuristic's kernels, the best by its guess first, and returns their number. */
static int offers(const struct dtp_cuda *c, const struct plan *p,
                  cublasLtMatmulHeuristicResult_t found[CANDIDATES]) {
    const struct dtp_cuda_gemms *t = c->gemms;
    cublasLtMatmulPreference_t preference = NULL;
    size_t workspace = WORKSPACE_BYTES;
    const uint32_t *align = p->key.align_bytes;
    int count = 0;
    if (t->cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } wish[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[1], sizeof *align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[0], sizeof *align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof *align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof *align},
    };
    for (size_t i = 0; i < sizeof wish / sizeof wish[0]; i++)
        (void)t->cublasLtMatmulPreferenceSetAttribute(preference, wish[i].attribute, wish[i].value,
                                                      wish[i].bytes);
    cublasStatus_t s = t->cublasLtMatmulAlgoGetHeuristic(t->handle, p->desc, p->a, p->b, p->c, p->c,
                                                         preference, CANDIDATES, found, &count);
    (void)t->cublasLtMatmulPreferenceDestroy(preference);
    return s == CUBLAS_STATUS_SUCCESS ? count : 0;
}

static cublasStatus_t launch(struct dtp_cuda *c, const struct plan *p,
                             const struct dtp_gemm_args *g, float alpha) {
    const struct dtp_cuda_gemms *t = c->gemms;
    const float beta = g->accumulate ? 1.0F : 0.0F;
    return t->cublasLtMatmul(t->handle, p->desc, &alpha, g->b, p->a, g->a, p->b, &beta, g->c, p->c,
                             g->c, p->c, &p->algo, t->workspace, WORKSPACE_BYTES,
                             dtp_cuda_compute(c));
}

/* ---- the choice of a kernel: each is timed on the operands at hand, before the first call. A sum that
 * accumulates is timed with products so small that it stays what it is. ---- */

typedef bool timed_fn(struct dtp_cuda *c, const struct plan *p, const struct dtp_gemm_args *g);

static bool run_plan(struct dtp_cuda *c, const struct plan *p, const struct dtp_gemm_args *g) {
    const float nothing = 1e-37F;
    return launch(c, p, g, g->accumulate ? nothing : 1.0F) == CUBLAS_STATUS_SUCCESS;
}

/* Returns the seconds of one of n calls, which are enqueued after a pause so that the device never waits for the host;
 * returns a huge number if a call fails. */
static double timed_s(struct dtp_cuda *c, timed_fn *run, const struct plan *p,
                      const struct dtp_gemm_args *g, int n) {
    const double host_s = 1.2e-5, never_s = HUGE_VAL;
    const struct dtp_cuda_gemms *t = c->gemms;
    cudaStream_t stream = dtp_cuda_compute(c);
    float ms = 0;
    dtp_cuda_pause(&c->dev, DTP_STREAM_COMPUTE, (n + 1) * host_s);
    bool good = cudaEventRecord(t->begin, stream) == cudaSuccess;
    for (int i = 0; i < n && good; i++)
        good = run(c, p, g);
    good = cudaEventRecord(t->end, stream) == cudaSuccess && good;
    good = cudaEventSynchronize(t->end) == cudaSuccess && good &&
           cudaEventElapsedTime(&ms, t->begin, t->end) == cudaSuccess;
    return good ? (double)ms * DTP_MILLI / n : never_s;
}

static int repeats(double once_s) {
    enum { MOST = 10, LEAST = 1 };
    const double enough_s = 2e-4;
    double n = enough_s / once_s;
    return n > MOST ? MOST : n < LEAST ? LEAST : (int)n;
}

/* Waits for what is enqueued, which may hang on another rank: no longer than the time-out. */
static bool idle(const struct dtp_cuda *c) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStream_t stream = dtp_cuda_compute(c);
    struct timespec start, now;
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone || clock_gettime(CLOCK_MONOTONIC, &start) != 0)
        return false;
    cudaError_t e = cudaStreamQuery(stream);
    while (e == cudaErrorNotReady && clock_gettime(CLOCK_MONOTONIC, &now) == 0 &&
           (!(c->timeout_s > 0) || (double)(now.tv_sec - start.tv_sec) < c->timeout_s))
        e = cudaStreamQuery(stream);
    return e == cudaSuccess;
}

/* Takes the first algorithm unless another is clearly faster, so that runs choose alike. The first round loads
 * kernels; the least time of the other rounds counts, since a collective may overlap one of them. */
static bool choose(struct dtp_cuda *c, struct plan *p, const struct dtp_gemm_args *g,
                   double *best_s) {
    enum { ROUNDS = 4 };
    const double too_long_s = 2.5e-3, gain = 0.97;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    double time_s[CANDIDATES];
    int n = offers(c, p, found), best = 0;
    *best_s = 0;
    if (n == 0)
        return false;
    p->algo = found[0].algo;
    if (!c->gemms->tunes || !idle(c))
        return true;
    (void)timed_s(c, run_plan, p, g, 1); /* loads the kernel */
    time_s[0] = timed_s(c, run_plan, p, g, 1);
    int calls = repeats(time_s[0]);
    for (int r = 0; r < ROUNDS && time_s[0] < too_long_s; r++)
        for (int i = 0; i < n; i++) {
            p->algo = found[i].algo;
            double now_s = timed_s(c, run_plan, p, g, r == 0 ? 1 : calls);
            time_s[i] = r < 2 || now_s < time_s[i] ? now_s : time_s[i];
        }
    for (int i = 1; i < n && time_s[0] < too_long_s; i++)
        best = time_s[i] < time_s[best] ? i : best;
    best = time_s[best] < gain * time_s[0] ? best : 0;
    p->algo = found[best].algo;
    *best_s = time_s[best];
    return true;
}

/* Runs GELU in a separate kernel if cuBLASLt has no product that ends with it, or a slow one. */
static void gemm_then_gelu(struct dtp_dev *d, const struct dtp_gemm_args *g) {
    struct dtp_gemm_args plain = *g;
    struct dtp_act_args act = {.fn = DTP_ACT_FN_GELU, .rows = g->m, .cols = g->n};
    plain.before = NULL;
    plain.slope_at = NULL;
    plain.c = g->before ? g->before : g->c;
    dtp_cuda_gemm(d, &plain);
    act.x = g->before ? g->before : g->slope_at;
    act.y = act.dx = g->c;
    act.dy = g->c;
    if (g->before)
        dtp_cuda_act_forward(d, &act);
    else
        dtp_cuda_act_backward(d, &act);
}

static bool run_apart(struct dtp_cuda *c, const struct plan *p, const struct dtp_gemm_args *g) {
    (void)p;
    gemm_then_gelu(&c->dev, g);
    return true;
}

/* At small sizes the GEMM that ends with GELU's slope takes twice as long as one without and a kernel. */
static bool is_faster_apart(struct dtp_cuda *c, const struct dtp_gemm_args *g, double fused_s) {
    enum { ROUNDS = 4 };
    const double gain = 0.97;
    if (!(fused_s > 0) || (!g->before && !g->slope_at))
        return false;
    gemm_then_gelu(&c->dev, g); /* chooses its kernel */
    int calls = repeats(fused_s);
    double apart_s = timed_s(c, run_apart, NULL, g, 1);
    for (int r = 1; r < ROUNDS; r++) {
        double now_s = timed_s(c, run_apart, NULL, g, calls);
        apart_s = r == 1 || now_s < apart_s ? now_s : apart_s;
    }
    return apart_s < gain * fused_s;
}

void dtp_cuda_gemm(struct dtp_dev *d, const struct dtp_gemm_args *g) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    const struct dtp_cuda_gemms *t = c->gemms;
    const struct key key = key_of(g);
    struct plan *p = find(c->gemms, &key);
    if (g->m == 0 || g->n == 0)
        return;
    if (p && p->key.flags == 0) {
        double fused_s = 0;
        p->key = key;
        p->valid = describe(c, p, g) && choose(c, p, g, &fused_s);
        p->apart = p->valid && is_faster_apart(c, g, fused_s);
    }
    const void *aux = g->before ? g->before : g->slope_at;
    if (p && aux && (!p->valid || p->apart)) {
        gemm_then_gelu(d, g);
        return;
    }
    if (!p || !p->valid) {
        dtp_cuda_fail(c, "cuBLASLt has no kernel for a GEMM of %lld x %lld x %lld", (long long)g->m,
                      (long long)g->n, (long long)g->k);
        return;
    }
    if (g->bias) /* the plan serves all layers */
        (void)t->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &g->bias, sizeof g->bias);
    if (aux)
        (void)t->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &aux, sizeof aux);
    cublasStatus_t s = launch(c, p, g, 1.0F);
    if (s != CUBLAS_STATUS_SUCCESS)
        dtp_cuda_fail(c, "GEMM of %lld x %lld x %lld: cuBLAS status %d", (long long)g->m,
                      (long long)g->n, (long long)g->k, (int)s);
}
