/* Host time to enqueue kernels of the CUDA table: an empty one, a layer of a GPT on few tokens, and parts of
 * the layer as CUDA graphs. */
#include "tests/bench/bench_cuda.h"

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
    ops->replay(gpu, 0);
}
/* Operations of a GPT's layer, forward and backward, on few tokens, so that the GPU's queue is never full. */
static void (*const layer[])(void) = {
    norm_forward,  small_gemm, attention_small, small_gemm,    bias_residual, norm_forward,
    small_gelu,    small_gemm, bias_residual,   small_gemm,    small_slope,   bias_backward,
    small_gemm,    small_gemm, bias_backward,   norm_backward, small_gemm,    small_gemm,
    bias_backward, back_small, small_gemm,      small_gemm,    bias_backward, norm_backward};
enum { LAYER = sizeof layer / sizeof layer[0] };

static int part = LAYER; /* so many of the layer's first operations run */

static void part_of_layer(void) {
    for (int i = 0; i < part; i++)
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
    if (!ops->record(gpu, 0, true))
        return 0;
    call();
    return ops->record(gpu, 0, false);
}

/* Prints the host's and the GPU's time for the first n operations of a layer (both bound a step), one by one and
 * as one graph. */
static void print_part(int n) {
    part = n;
    double host_s = host_seconds(part_of_layer, CALLS), gpu_s = seconds_of(part_of_layer);
    int kernels = kernels_of(part_of_layer);
    printf("%2d operations, %2d kernels:        host %7.2f us, with the GPU %7.2f us", n, kernels,
           host_s / DTP_MICRO, gpu_s / DTP_MICRO);
    if (kernels > 0)
        printf("; as a graph %7.2f us, %7.2f us", host_seconds(replay, CALLS) / DTP_MICRO,
               seconds_of(replay) / DTP_MICRO);
    printf("\n");
}

/* Host time a kernel: of an empty one, and of a layer's (mean, and the median over its kernels). */
static void print_host_times(void) {
    double us[LAYER];
    int count[LAYER], n = 0, below = 0;
    printf("%-32s %9.2f us\n", "host time of an empty kernel",
           host_seconds(nothing, 500) / DTP_MICRO);
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
    double all_us = host_seconds(part_of_layer, CALLS) / DTP_MICRO;
    double gemm_us = host_seconds(small_gemm, CALLS) / DTP_MICRO;
    double forward_us = host_seconds(attention_small, CALLS) / DTP_MICRO;
    double norm_us = host_seconds(norm_forward, CALLS) / DTP_MICRO;
    printf("%-32s %9.2f us a kernel (median %.2f), %d kernels\n", "host time of a layer",
           n ? all_us / n : 0.0, us[median], n);
    printf("%-32s %9.2f us a GEMM, %.2f a norm, %.2f an attention forward\n", "", gemm_us, norm_us,
           forward_us);
}

/* Memory of the device that graphs of the layer take. */
static void print_graph_memory(void) {
    enum { GRAPHS = 256 };
    uint64_t before_bytes = ops->overhead_bytes(gpu);
    int kernels = 0;
    part = LAYER;
    for (int i = 0; i < GRAPHS && ops->record(gpu, i, true); i++) {
        part_of_layer();
        kernels += ops->record(gpu, i, false);
        ops->replay(gpu, i);
    }
    ops->sync(gpu);
    printf("%d kernels in graphs take %.1f MB of the GPU", kernels,
           (double)(ops->overhead_bytes(gpu) - before_bytes) / DTP_MEGA);
    ops->forget_graphs(gpu);
    printf(", forgotten %.1f MB\n", (double)(ops->overhead_bytes(gpu) - before_bytes) / DTP_MEGA);
}

int main(void) {
    static const int parts[] = {1, 2, 3, 4, 6, 8, 12, LAYER};
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_err err = {0};
    if (open_gpu(a, &err) != DTP_OK) {
        printf("skipped: %s\n", err.msg);
        return SKIP;
    }
    tokens = FEW;
    print_host_times();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        print_part(parts[i]);
    print_graph_memory();
    enum dtp_status status = ops->check(gpu, &err);
    printf("%s\n", err.msg);
    ops->close(gpu);
    dtp_arena_destroy(a);
    return (int)status;
}
