/* What the tests of the CUDA table against the CPU's share: random numbers in fp32, bf16 and fp16. Inputs
 * are rounded to the dtype first, so that both sides read the same values; outputs start as NaN, so that
 * what is not written shows. The measure is |gpu - cpu| / |cpu| over all elements of a tensor (norms).
 *   dtype   rounding of the result   tolerance here
 *   fp32    2^-24                    1e-4 (sums of thousands of terms in another order, fast exp)
 *   fp16    2^-11                    4e-3
 *   bf16    2^-8                     1.2e-2 (P and dS are rounded inside attention as well)
 * Without a GPU, or without the module, the program says so and skips. */
#ifndef DTP_TESTS_CUDA_PAIR_H
#define DTP_TESTS_CUDA_PAIR_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "runtime/comm/comm.h"
#include "sim/base/rng.h"
#include "tests/suites.h"

enum { SKIP = 77 };
static const uint64_t cpu_bytes = UINT64_C(1) << 31, gpu_bytes = UINT64_C(1) << 31;

static struct dtp_arena *arena;
static struct dtp_dev *cpu, *gpu;
static const struct dtp_dev_ops *cops, *gops;
static struct dtp_rng rng;
static const char *attention = ""; /* what $DTPLAN_CUDA_ATTENTION says; "": nothing */

static inline double tolerance(void) {
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

static inline void read_gpu(const struct pair *p, float *out) {
    float *wide = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "read", (uint64_t)p->n * 4);
    gops->cast(gpu, wide, DTP_FP32, p->g, p->type, p->n);
    gops->copy_out(gpu, out, wide, (uint64_t)p->n * 4);
    dtp_heap_release(gpu->heap, wide);
}

static inline void write_gpu(const struct pair *p, const float *values) {
    float *wide = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "write", (uint64_t)p->n * 4);
    gops->copy_in(gpu, wide, values, (uint64_t)p->n * 4);
    gops->cast(gpu, p->g, p->type, wide, DTP_FP32, p->n);
    gops->sync(gpu);
    dtp_heap_release(gpu->heap, wide);
}

static inline struct pair make(int64_t n, enum dtp_dtype type) {
    struct pair p = {.n = n, .type = type};
    p.c = dtp_heap_alloc(cpu->heap, DTP_MEM_BUFFERS, "cpu", (uint64_t)n * 4);
    p.g = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "gpu", (uint64_t)(n * dtp_dtype_bytes(type)));
    CU_ASSERT_FATAL(p.c && p.g);
    return p;
}

/* Uniform in offset + (-scale, scale), the same on both sides. */
static inline struct pair random_pair(int64_t n, enum dtp_dtype type, double scale, double offset) {
    struct pair p = make(n, type);
    for (int64_t i = 0; i < n; i++)
        p.c[i] = (float)(offset + scale * ((double)(dtp_rng_next(&rng) >> 11) / 0x1p52 - 1));
    write_gpu(&p, p.c);
    read_gpu(&p, p.c);
    return p;
}

static inline struct pair in(int64_t n) {
    return random_pair(n, gpu->dtype, 1, 0);
}

static inline struct pair poison(int64_t n, enum dtp_dtype type) {
    struct pair p = make(n, type);
    for (int64_t i = 0; i < n; i++)
        p.c[i] = (float)NAN;
    write_gpu(&p, p.c);
    return p;
}

static inline struct pair out(int64_t n) {
    return poison(n, gpu->dtype);
}

/* Gradients: what is there already counts. */
static inline struct pair gradient(int64_t n) {
    return random_pair(n, DTP_FP32, 1, 0);
}

static inline double distance(const struct pair *p) {
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

static inline void expect_within(const char *what, const struct pair *p, double most) {
    struct dtp_err err = {0};
    enum dtp_status status = gops->check(gpu, &err);
    double d = distance(p);
    bool good = status == DTP_OK && d <= most; /* NaN is not */
    printf("%s  %-5s %-34s %.2e%s%s\n", good ? "    " : "FAIL", dtp_dtype_names[gpu->dtype], what,
           d, status == DTP_OK ? "" : "  ", err.msg);
    CU_ASSERT(good);
}

static inline void expect(const char *what, const struct pair *p) {
    expect_within(what, p, tolerance());
}

static inline void drop(struct pair *const p[], size_t n) {
    gops->sync(gpu);
    for (size_t i = 0; i < n; i++) {
        dtp_heap_release(cpu->heap, p[i]->c);
        dtp_heap_release(gpu->heap, p[i]->g);
    }
}
#define DROP(...)                                                                                  \
    drop((struct pair *const[]){__VA_ARGS__},                                                      \
         sizeof((struct pair *const[]){__VA_ARGS__}) / sizeof(struct pair *))

static inline int32_t *tokens(int64_t n, int64_t most, int32_t **on_gpu) {
    int32_t *ids = dtp_heap_alloc(cpu->heap, DTP_MEM_BUFFERS, "ids", (uint64_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)dtp_rng_below(&rng, (uint64_t)most);
    *on_gpu = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "ids", (uint64_t)n * 4);
    gops->copy_in(gpu, *on_gpu, ids, (uint64_t)n * 4);
    return ids;
}

/* The tensor of one side; the loop variable `side` is 0 for the CPU. */
#define SIDE(p) (side ? (p).g : (void *)(p).c)

/* ---- one suite per dtype ---- */

static inline enum dtp_status open_both(enum dtp_dtype dtype, const char *kind,
                                        struct dtp_err *err) {
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

static inline int close_both(void) {
    gops->close(gpu);
    cops->close(cpu);
    dtp_arena_destroy(arena);
    return 0;
}

static inline int open_fp32(void) {
    return (int)open_both(DTP_FP32, "simple", NULL);
}
static inline int open_bf16(void) {
    return (int)open_both(DTP_BF16, "own", NULL);
}
static inline int open_fp16(void) {
    return (int)open_both(DTP_FP16, "own", NULL);
}

/* True, and says why, without a GPU or the module. */
static inline bool no_gpu(void) {
    struct dtp_err err = {0};
    bool there = open_both(DTP_FP32, "", &err) == DTP_OK;
    if (there)
        gops->close(gpu);
    else
        printf("skipped: %s\n", err.msg);
    cops->close(cpu);
    dtp_arena_destroy(arena);
    return !there;
}

#endif
