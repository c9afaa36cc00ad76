/* Times of the CUDA table's operations at the shapes of a GPT of 1.3 billion parameters (4 sequences of
 * 2,048, hidden 2,048, 16 heads), in bf16: median of 5 groups of 10 calls, and what that is of the
 * bytes or FLOPs that the operation cannot do without. Last lines: host time of enqueued kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/comm.h"
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
static void *workspace; /* of the attention */

static struct dtp_gemm_args gemm_args(int64_t m, int64_t n, int64_t k) {
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
static void forward_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.bias = buffer[3];
    ops->gemm(gpu, &g);
}
static void gelu_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.bias = buffer[3];
    g.before = (char *)buffer[3] + UNUSED_BYTES;
    ops->gemm(gpu, &g);
}
static void slope_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.tb = false;
    g.ldb = 4L * HIDDEN;
    g.slope_at = buffer[3];
    ops->gemm(gpu, &g);
}
static void plain_slope_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.tb = false;
    g.ldb = 4L * HIDDEN;
    ops->gemm(gpu, &g);
}
static void input_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, HIDDEN, 4L * HIDDEN);
    g.tb = false;
    g.ldb = HIDDEN;
    ops->gemm(gpu, &g);
}
static void weight_gemm(void) {
    struct dtp_gemm_args g = gemm_args(4L * HIDDEN, HIDDEN, ROWS);
    g.ta = g.accumulate = g.c_gradient = true;
    g.tb = false;
    g.lda = 4L * HIDDEN;
    g.ldb = HIDDEN;
    ops->gemm(gpu, &g);
}
static void head_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, VOCAB, HIDDEN);
    ops->gemm(gpu, &g);
}
static struct dtp_norm_args norm_args(void) {
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
static void norm_forward(void) {
    struct dtp_norm_args n = norm_args();
    ops->norm_forward(gpu, &n);
}
static void norm_backward(void) {
    struct dtp_norm_args n = norm_args();
    ops->norm_backward(gpu, &n);
}
/* hidden = heads * dim; kv heads of the same dim */
static struct dtp_attention_args attention_args(int64_t heads, int64_t kv_heads) {
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
static void attention_forward(void) {
    struct dtp_attention_args x = attention_args(HEADS, HEADS);
    ops->attention_forward(gpu, &x);
}
static void attention_backward(void) {
    struct dtp_attention_args x = attention_args(HEADS, HEADS);
    ops->attention_backward(gpu, &x);
}
static void grouped_forward(void) {
    struct dtp_attention_args x = attention_args(2L * HEADS, KV_HEADS);
    ops->attention_forward(gpu, &x);
}
static void grouped_backward(void) {
    struct dtp_attention_args x = attention_args(2L * HEADS, KV_HEADS);
    ops->attention_backward(gpu, &x);
}
static void gelu_forward(void) {
    struct dtp_act_args a = {
        .fn = DTP_ACT_FN_GELU, .rows = tokens, .cols = 4L * HIDDEN, .x = buffer[0], .y = buffer[2]};
    ops->act_forward(gpu, &a);
}
static void gelu_backward(void) {
    struct dtp_act_args a = {.fn = DTP_ACT_FN_GELU,
                             .rows = tokens,
                             .cols = 4L * HIDDEN,
                             .x = buffer[0],
                             .dy = buffer[3],
                             .dx = buffer[2]};
    ops->act_backward(gpu, &a);
}
static void residual(double dropout) {
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
static void bias_residual(void) {
    residual(0);
}
static void bias_dropout_residual(void) {
    residual(0.1);
}
static void bias_backward(void) {
    ops->bias_backward(gpu, floats, buffer[0], (const int64_t[2]){tokens, 4L * HIDDEN});
}
static void loss(void) {
    struct dtp_loss_args x = {.logits = buffer[0],
                              .rows = ROWS,
                              .cols = VOCAB,
                              .valid = VOCAB,
                              .targets = (const int32_t *)buffer[4],
                              .max = floats,
                              .sum = floats + ROWS,
                              .target = floats + 2L * ROWS,
                              .loss = floats + 3L * ROWS,
                              .scale = 1};
    ops->loss_max(gpu, &x);
    ops->loss_sum(gpu, &x);
    ops->loss_mean(gpu, &x);
    ops->loss_grad(gpu, &x);
}
static void embed_backward(void) {
    struct dtp_embedding_args x = {.ids = (const int32_t *)buffer[4],
                                   .rows = ROWS,
                                   .cols = HIDDEN,
                                   .valid = VOCAB,
                                   .batch = BATCH,
                                   .dout = buffer[0],
                                   .dtable = buffer[2]};
    ops->embed_backward(gpu, &x);
}
static void adamw(void) {
    enum { N = 1 << 26 };
    struct dtp_adamw_tensor t = {.param = buffer[0],
                                 .master = buffer[1],
                                 .m = buffer[2],
                                 .v = buffer[3],
                                 .grad = buffer[4],
                                 .n = N,
                                 .decay = true};
    struct dtp_adamw_hyper h = {.lr = 1e-9, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1, .step = 1};
    ops->adamw(gpu, &h, &t, 1);
}
static void squared_norm(void) {
    ops->norm2(gpu, floats, buffer[3], 1 << 26, 0);
}
static void small_gemm(void) {
    struct dtp_gemm_args g = gemm_args(FEW, HIDDEN, HIDDEN);
    ops->gemm(gpu, &g);
}
static void small_gelu(void) {
    struct dtp_gemm_args g = gemm_args(FEW, HIDDEN, HIDDEN);
    g.bias = buffer[3];
    g.before = (char *)buffer[3] + UNUSED_BYTES;
    ops->gemm(gpu, &g);
}
static void small_slope(void) {
    struct dtp_gemm_args g = gemm_args(FEW, HIDDEN, HIDDEN);
    g.slope_at = buffer[3];
    ops->gemm(gpu, &g);
}
static struct dtp_attention_args small_attention(void) {
    struct dtp_attention_args x = attention_args(HEADS, HEADS);
    x.batch = 1;
    x.seq = FEW;
    return x;
}
static void attention_small(void) {
    struct dtp_attention_args x = small_attention();
    ops->attention_forward(gpu, &x);
}
static void back_small(void) {
    struct dtp_attention_args x = small_attention();
    ops->attention_backward(gpu, &x);
}
static void replay(void) {
    ops->replay(gpu);
}
static void nothing(void) {
    ops->clip_scale(gpu, floats, floats + 1, &(struct dtp_clip){.max_norm = 1, .loss_scale = 1});
}

static const double row_bytes = 2.0 * ROWS * HIDDEN, big_flops = 8.0 * ROWS * HIDDEN * HIDDEN;
static const double attention_flops = 2.0 * BATCH * SEQ * SEQ * HIDDEN; /* causal, two products */

static double seconds_of(void (*call)(void)) {
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

/* Operations of a GPT's layer, forward and backward, on few tokens, so that the GPU's queue is never full. */
static void (*const layer[])(void) = {
    norm_forward,  small_gemm, attention_small, small_gemm,    bias_residual, norm_forward,
    small_gelu,    small_gemm, bias_residual,   small_gemm,    small_slope,   bias_backward,
    small_gemm,    small_gemm, bias_backward,   norm_backward, small_gemm,    small_gemm,
    bias_backward, back_small, small_gemm,      small_gemm,    bias_backward, norm_backward};
enum { LAYER = sizeof layer / sizeof layer[0] };

static void whole_layer(void) {
    for (int i = 0; i < LAYER; i++)
        layer[i]();
}

/* Seconds of the host for a call: median of groups, each after the GPU has caught up. */
static double host_seconds(void (*call)(void), int calls) {
    double s[GROUPS];
    for (int g = -1; g < GROUPS; g++) {
        struct timespec from, to;
        ops->sync(gpu);
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < calls; i++)
            call();
        clock_gettime(CLOCK_MONOTONIC, &to);
        double took_s =
            ((double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / DTP_GIGA) /
            calls;
        int at = g;
        for (; at > 0 && s[at - 1] > took_s; at--)
            s[at] = s[at - 1];
        if (g >= 0)
            s[at] = took_s;
    }
    ops->sync(gpu);
    return s[GROUPS / 2];
}

static int kernels_of(void (*call)(void)) {
    if (!ops->record(gpu, true))
        return 0;
    call();
    return ops->record(gpu, false);
}

/* Host time a kernel: of an empty one, of a layer's (mean, and the median over its kernels), and of the
 * layer as a CUDA graph, which then takes as long as its kernels. */
static void print_host_times(void) {
    double us[LAYER];
    int count[LAYER], n = 0, below = 0;
    printf("%-32s %9.2f us\n", "host time of an empty kernel",
           host_seconds(nothing, 500) / DTP_MICRO);
    tokens = FEW;
    for (int i = 0; i < LAYER; i++) {
        int kernels = kernels_of(layer[i]), at = i;
        double each_us = kernels ? host_seconds(layer[i], CALLS) / DTP_MICRO / kernels : 0;
        for (; at > 0 && us[at - 1] > each_us; at--) {
            us[at] = us[at - 1];
            count[at] = count[at - 1];
        }
        us[at] = each_us;
        count[at] = kernels;
        n += kernels;
    }
    int median = 0;
    while (median + 1 < LAYER && 2 * (below += count[median]) < n)
        median++;
    double all_us = host_seconds(whole_layer, CALLS) / DTP_MICRO;
    double gemm_us = host_seconds(small_gemm, CALLS) / DTP_MICRO;
    double forward_us = host_seconds(attention_small, CALLS) / DTP_MICRO;
    double norm_us = host_seconds(norm_forward, CALLS) / DTP_MICRO;
    printf("%-32s %9.2f us a kernel (median %.2f), %d kernels\n", "host time of a layer",
           n ? all_us / n : 0.0, us[median], n);
    printf("%-32s %9.2f us a GEMM, %.2f a norm, %.2f an attention forward\n", "", gemm_us, norm_us,
           forward_us);
    if (kernels_of(whole_layer) > 0)
        printf("%-32s %9.2f us a kernel, host %.2f us\n", "the layer as a CUDA graph",
               seconds_of(replay) / DTP_MICRO / n, host_seconds(replay, CALLS) / DTP_MICRO / n);
    tokens = ROWS;
}

static enum dtp_status open_gpu(struct dtp_arena *a, struct dtp_err *err) {
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

int main(void) {
    static const struct {
        const char *name;
        void (*call)(void);
        double bytes, flops;
    } rows[] = {
        {"gemm forward + bias", forward_gemm, 0, big_flops},
        {"gemm forward + bias + gelu", gelu_gemm, 0, big_flops},
        {"gemm input gradient", input_gemm, 0, big_flops},
        {"gemm input gradient, wide", plain_slope_gemm, 0, big_flops},
        {"gemm input gradient, gelu's slope", slope_gemm, 0, big_flops},
        {"gemm weight gradient, fp32 +=", weight_gemm, 0, big_flops},
        {"gemm head", head_gemm, 0, 2.0 * ROWS * HIDDEN * VOCAB},
        {"attention forward", attention_forward, 0, attention_flops},
        {"attention backward", attention_backward, 0, 2.5 * attention_flops},
        {"attention forward, 32/4 heads", grouped_forward, 0, attention_flops},
        {"attention backward, 32/4 heads", grouped_backward, 0, 2.5 * attention_flops},
        {"norm forward", norm_forward, 2 * row_bytes, 0},
        {"norm backward", norm_backward, 4 * row_bytes, 0},
        {"gelu forward", gelu_forward, 8 * row_bytes, 0},
        {"gelu backward", gelu_backward, 12 * row_bytes, 0},
        {"bias + residual", bias_residual, 3 * row_bytes, 0},
        {"bias + dropout + residual", bias_dropout_residual, 3 * row_bytes, 0},
        {"bias gradient", bias_backward, 4 * row_bytes, 0},
        {"cross-entropy", loss, 6.0 * ROWS * VOCAB, 0},
        {"embedding gradient", embed_backward, 5 * row_bytes, 0},
        {"norm^2", squared_norm, 4.0 * (1 << 26), 0},
        {"adamw", adamw, 30.0 * (1 << 26), 0},
        {"one empty kernel", nothing, 0, 0},
    };
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_err err = {0};
    if (open_gpu(a, &err) != DTP_OK) {
        printf("skipped: %s\n", err.msg);
        return SKIP;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double s = seconds_of(rows[i].call);
        printf("%-32s %9.1f us  %7.1f TFLOP/s %7.1f GB/s\n", rows[i].name, s / DTP_MICRO,
               rows[i].flops / s / DTP_TERA, rows[i].bytes / s / DTP_GIGA);
        fflush(stdout);
    }
    print_host_times();
    enum dtp_status status = ops->check(gpu, &err);
    printf("%s\n", err.msg);
    ops->close(gpu);
    dtp_arena_destroy(a);
    return (int)status;
}
