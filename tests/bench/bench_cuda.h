/* The GPU, its buffers and the arguments of operations that the benches of the CUDA table share. */
#ifndef DTP_TESTS_BENCH_CUDA_H
#define DTP_TESTS_BENCH_CUDA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/comm/comm.h"
#include "sim/base/units.h"

enum {
    SKIP = 77,
    CALLS = 10,
    GROUPS = 5,
    BATCH = 4,
    SEQ = 2048,
    HIDDEN = 2048,
    HEADS = 16,
    KV_HEADS = 4
};
enum { ROWS = BATCH * SEQ, VOCAB = 51200, FEW = 64, UNUSED_BYTES = 1 << 29 };

static struct dtp_dev *gpu;
static const struct dtp_dev_ops *ops;
static void *buffer[5]; /* large, random */
static int64_t tokens = ROWS;
static float *floats;
static void *workspace; /* workspace of the attention */

static inline struct dtp_gemm_args gemm_args(int64_t m, int64_t n, int64_t k) {
    return (struct dtp_gemm_args){.a = buffer[0],
                                  .b = buffer[1],
                                  .c = buffer[2],
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .lda = k,
                                  .ldb = k,
                                  .ldc = n,
                                  .tb = true};
}
static inline struct dtp_norm_args norm_args(void) {
    return (struct dtp_norm_args){.rows = tokens,
                                  .cols = HIDDEN,
                                  .epsilon = 1e-5,
                                  .x = buffer[0],
                                  .weight = buffer[1],
                                  .bias = buffer[1],
                                  .y = buffer[2],
                                  .mean = floats,
                                  .rstd = floats + ROWS,
                                  .dy = buffer[3],
                                  .residual = buffer[1],
                                  .dx = buffer[2],
                                  .dweight = floats + 2L * ROWS,
                                  .dbias = floats + 2L * ROWS + HIDDEN};
}
static inline void norm_forward(void) {
    struct dtp_norm_args n = norm_args();
    ops->norm_forward(gpu, &n);
}
static inline void norm_backward(void) {
    struct dtp_norm_args n = norm_args();
    ops->norm_backward(gpu, &n);
}
/* hidden = heads * dim; kv heads of the same dim */
static inline struct dtp_attention_args attention_args(int64_t heads, int64_t kv_heads) {
    int64_t dim = HIDDEN / heads, kv = kv_heads * dim;
    struct dtp_attention_args x = {.batch = BATCH,
                                   .seq = SEQ,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = dim,
                                   .qkv_stride = HIDDEN + 2 * kv,
                                   .out_stride = HIDDEN};
    char *in = buffer[0], *grad = buffer[2];
    x.q = in;
    x.k = in + 2L * HIDDEN;
    x.v = in + 2L * HIDDEN + 2 * kv;
    x.dq = grad;
    x.dk = grad + 2L * HIDDEN;
    x.dv = grad + 2L * HIDDEN + 2 * kv;
    x.out = buffer[1];
    x.dout = buffer[3];
    x.saved = floats;
    x.workspace = workspace;
    return x;
}
static inline void residual(double dropout) {
    const struct dtp_residual_args x = {.out = buffer[2],
                                        .x = buffer[0],
                                        .bias = buffer[1],
                                        .residual = buffer[3],
                                        .rows = tokens,
                                        .cols = HIDDEN,
                                        .batch = 4,
                                        .dropout = dtp_dropout_of(dropout, 1, 2, 3, 4)};
    ops->bias_residual(gpu, &x);
}
static inline void bias_residual(void) {
    residual(0);
}
static inline void bias_backward(void) {
    ops->bias_backward(gpu, floats, buffer[0], (const int64_t[2]){tokens, 4L * HIDDEN});
}
static inline void nothing(void) {
    ops->clip_scale(gpu, floats, floats + 1, &(struct dtp_clip){.max_norm = 1, .loss_scale = 1});
}

static inline double seconds_of(void (*call)(void)) {
    double s[GROUPS];
    for (int g = -1; g < GROUPS; g++) {
        ops->mark(gpu, DTP_STREAM_COMPUTE, 0);
        for (int i = 0; i < CALLS; i++)
            call();
        ops->mark(gpu, DTP_STREAM_COMPUTE, 1);
        ops->sync(gpu);
        double took_s = (double)(ops->mark_ns(gpu, 1) - ops->mark_ns(gpu, 0)) / DTP_GIGA / CALLS;
        int at = g;
        for (; at > 0 && s[at - 1] > took_s; at--)
            s[at] = s[at - 1];
        if (g >= 0)
            s[at] = took_s;
    }
    return s[GROUPS / 2];
}

static inline enum dtp_status open_gpu(struct dtp_arena *a, struct dtp_err *err) {
    enum { ELEMENTS = 1 << 22, COPIES = 112 };
    const struct dtp_dev_config config = {.nlocal = 1, .dtype = DTP_BF16, .grad_dtype = DTP_FP32};
    DTP_TRY(dtp_dev_find("cuda", &ops, err));
    DTP_TRY(ops->open(a, &config, &gpu, err));
    uint64_t piece_bytes = 2 * (uint64_t)ELEMENTS;
    uint16_t *random = DTP_NEW(a, uint16_t, ELEMENTS);
    uint32_t state = 1;
    for (int i = 0; i < ELEMENTS; i++) {
        state = state * 1664525U + 1013904223U;
        random[i] =
            (uint16_t)(0x3f00U + (state >> 24) + (state >> 8 & 0x8000U)); /* 0.5 .. 2, signed */
    }
    for (int b = 0; b < 5; b++) {
        buffer[b] = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "bench", COPIES * piece_bytes);
        if (!buffer[b])
            return dtp_heap_fail(gpu->heap, "bench", COPIES * piece_bytes, err);
        for (int i = 0; i < COPIES; i++)
            ops->copy_in(gpu, (char *)buffer[b] + (uint64_t)i * piece_bytes, random, piece_bytes);
    }
    for (int i = 0; i < ROWS; i++) { /* token ids at the start of the last buffer */
        int32_t id = (int32_t)((uint32_t)i * 2654435761U % VOCAB);
        memcpy((char *)random + (size_t)i * 4, &id, 4);
    }
    ops->copy_in(gpu, buffer[4], random, 4 * (uint64_t)ROWS);
    floats = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "floats", UINT64_C(1) << 24);
    ops->zero(gpu, floats, UINT64_C(1) << 24);
    uint64_t need_bytes = 0;
    for (int64_t heads = HEADS; heads <= 2 * HEADS; heads += HEADS) {
        struct dtp_attention_args x =
            attention_args(heads, heads == HEADS ? (int64_t)HEADS : (int64_t)KV_HEADS);
        uint64_t bytes = ops->attention_workspace_bytes(gpu, &x);
        need_bytes = bytes > need_bytes ? bytes : need_bytes;
    }
    workspace = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "workspace", need_bytes);
    printf("attention workspace %.1f MB\n", (double)need_bytes / DTP_MEGA);
    ops->sync(gpu);
    return ops->check(gpu, err);
}

#endif
