/* Measures power and clock of a device under long load: one kernel is repeated, with and without rests. */
#include <stdio.h>

#include "runtime/launch.h"
#include "runtime/measure/measure_device_internal.h"
#include "runtime/os_linux.h"

/* Asking for the energy takes milliseconds: what is enqueued must last longer. */
static const double lead_s = 0.25, window_s = 0.6, chunk_s = 3e-2;

static double now_s(void) {
    return (double)dtp_os_now_ns() / (double)DTP_NS_PER_S;
}

/* Energy at the moments when the counter was seen to move: it does in steps of many milliseconds. */
struct edges {
    double from_j, from_s, to_j, to_s, last_j;
};

static void look(struct dtp_bench *b, struct edges *e) {
    struct dtp_dev_load now;
    b->ops->load(b->dev, &now);
    if (e->last_j > 0 && now.energy_j > e->last_j) {
        if (!(e->from_s > 0)) {
            e->from_j = now.energy_j;
            e->from_s = now_s();
        }
        e->to_j = now.energy_j;
        e->to_s = now_s();
    }
    e->last_j = now.energy_j;
}

struct work {
    dtp_bench_fn *run;
    void *context;
    double rest_s; /* after each call */
    int calls;     /* calls in a chunk */
};

static void enqueue(struct dtp_bench *b, const struct work *w, int *at) {
    for (int i = 0; i < w->calls; i++) {
        if (w->run)
            w->run(w->context, (*at)++);
        if (w->rest_s > 0)
            b->ops->pause(b->dev, DTP_STREAM_COMPUTE, w->rest_s);
    }
}

/* Keeps two chunks enqueued for so long; returns the calls that were made. */
static int keep_busy(struct dtp_bench *b, const struct work *w, double for_s, struct edges *e) {
    double end_s = now_s() + for_s;
    int at = 0;
    for (int chunk = 0; now_s() < end_s; chunk++) {
        enqueue(b, w, &at);
        b->ops->event_record(b->dev, DTP_STREAM_COMPUTE, chunk % 2);
        while (chunk > 0 && !b->ops->event_done(b->dev, (chunk - 1) % 2))
            dtp_os_relax();
        if (e)
            look(b, e);
    }
    return w->run ? at : 0;
}

/* busy: share of the time that the kernel runs, the rest is a pause. */
static void load_row(struct dtp_bench *b, const char *name, dtp_bench_fn *run, void *context,
                     double busy) {
    struct dtp_measured_load *out = &b->load[b->nloads++];
    struct edges e = {0};
    double once_s = run ? dtp_bench_measured_s(b, run, context) : chunk_s;
    double alone_hz = b->clock_hz;
    struct work w = {.run = run, .context = context};
    w.rest_s = run ? once_s * (1 / busy - 1) : chunk_s;
    double call_s = run ? once_s + w.rest_s : chunk_s;
    w.calls = call_s < chunk_s ? (int)(chunk_s / call_s) : 1;
    (void)keep_busy(b, &w, lead_s, NULL);
    b->ops->sync(b->dev);
    b->ops->tick(b->dev, 0);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 0);
    int calls = keep_busy(b, &w, window_s, &e);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 1);
    b->ops->tick(b->dev, 1);
    b->ops->sync(b->dev);
    double all_s =
        (double)(b->ops->mark_ns(b->dev, 1) - b->ops->mark_ns(b->dev, 0)) / (double)DTP_NS_PER_S;
    *out = (struct dtp_measured_load){
        .busy = busy,
        .clock_hz = b->ops->clock_hz(b->dev),
        .alone_s = run ? once_s : 0,
        .alone_clock_hz = run ? alone_hz : 0,
        .call_s = calls > 0 ? all_s / calls : 0,
        .power_w = e.to_s > e.from_s ? (e.to_j - e.from_j) / (e.to_s - e.from_s) : 0};
    snprintf(out->kernel, sizeof out->kernel, "%s", name);
}

/* Rests tell how energy goes with the clock, short inner dimensions the bytes from the FLOPs. */
static void gemm_rows(struct dtp_bench *b) {
    static const struct {
        const char *name;
        enum dtp_gemm_pass pass;
        int m, n, k;
        double busy;
    } rows[] = {{"gemm_forward", DTP_GEMM_FORWARD, 8192, 4096, 4096, 1},
                {"gemm_forward", DTP_GEMM_FORWARD, 8192, 4096, 4096, 0.8},
                {"gemm_forward", DTP_GEMM_FORWARD, 8192, 4096, 4096, 0.6},
                {"gemm_forward", DTP_GEMM_FORWARD, 8192, 4096, 4096, 0.5},
                {"gemm_forward", DTP_GEMM_FORWARD, 2048, 2048, 2048, 1},
                {"gemm_forward", DTP_GEMM_FORWARD, 8192, 12288, 4096, 1},
                {"gemm_forward", DTP_GEMM_FORWARD, 4096, 8192, 512, 1},
                {"gemm_forward", DTP_GEMM_FORWARD, 4096, 8192, 1024, 1},
                {"gemm_forward", DTP_GEMM_FORWARD, 4096, 16384, 3072, 1},
                {"gemm_dgrad", DTP_GEMM_DGRAD, 8192, 4096, 12288, 1},
                {"gemm_dgrad", DTP_GEMM_DGRAD, 4096, 8192, 1024, 1},
                {"gemm_dgrad", DTP_GEMM_DGRAD, 4096, 3072, 16384, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 12288, 4096, 2048, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 12288, 4096, 8192, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 4096, 8192, 512, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 4096, 8192, 1024, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 4096, 8192, 4096, 1},
                {"gemm_wgrad", DTP_GEMM_WGRAD, 16384, 3072, 4096, 1}};
    const double element = (double)dtp_bench_element_bytes(b);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t mnk[3] = {rows[i].m, rows[i].n, rows[i].k};
        double m = rows[i].m, n = rows[i].n, k = rows[i].k;
        double out = rows[i].pass == DTP_GEMM_WGRAD ? 2 * sizeof(float) : element;
        struct dtp_bench_gemm x = dtp_bench_gemm_of(b, rows[i].pass, mnk);
        load_row(b, rows[i].name, dtp_bench_run_gemm, &x, rows[i].busy);
        b->load[b->nloads - 1].flops = 2 * m * n * k;
        b->load[b->nloads - 1].bytes = element * k * (m + n) + out * m * n;
    }
}

static void attention_rows(struct dtp_bench *b) {
    /* tensors: queries, keys, values and output; backward again, its gradient, and three of theirs */
    enum { MOVED = 4, MOVED_BACKWARD = 8 };
    static const struct {
        const char *name;
        bool backward;
        double dropout;
    } rows[] = {{"attention_forward", false, 0},
                {"attention_backward", true, 0},
                {"attention_dropout_forward", false, DTP_MEASURE_DROPOUT},
                {"attention_dropout_backward", true, DTP_MEASURE_DROPOUT}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dtp_bench_attention x = dtp_bench_attention_of(b, rows[i].backward, rows[i].dropout);
        load_row(b, rows[i].name, dtp_bench_run_attention, &x, 1);
        struct dtp_measured_load *out = &b->load[b->nloads - 1];
        double element = (double)dtp_bench_element_bytes(b);
        double tensor = element * (double)(x.x.batch * x.x.seq * x.x.heads * x.x.head_dim);
        out->flops = dtp_bench_attention_flops(&x);
        out->bytes = (rows[i].backward ? MOVED_BACKWARD : MOVED) * tensor;
    }
}

/* Measures a product in a stretch after a rest, several times, and the clock of the stretch. */
static void after_rest_row(struct dtp_bench *b) {
    enum { TIMES = 6, SIZE = 4096 };
    const double rest_s = 0.25, stretch_s = 0.12;
    struct dtp_bench_gemm x =
        dtp_bench_gemm_of(b, DTP_GEMM_FORWARD, (const int64_t[3]){2 * SIZE, SIZE, SIZE});
    double once_s = dtp_bench_measured_s(b, dtp_bench_run_gemm, &x), all_s = 0, clock_hz = 0;
    double element = (double)dtp_bench_element_bytes(b);
    int calls = (int)(stretch_s / once_s) + 1;
    for (int i = 0; i < TIMES; i++) {
        b->ops->sync(b->dev);
        b->ops->pause(b->dev, DTP_STREAM_COMPUTE, rest_s);
        all_s += dtp_bench_batch_s(b, dtp_bench_run_gemm, &x, calls, 0) / TIMES;
        clock_hz += b->ops->clock_hz(b->dev) / TIMES;
    }
    struct dtp_measured_load *out = &b->load[b->nloads++];
    *out = (struct dtp_measured_load){.busy = stretch_s / (stretch_s + rest_s),
                                      .flops = 2.0 * (2 * SIZE) * SIZE * SIZE,
                                      .bytes = element * SIZE * (2 * SIZE + SIZE + 2 * SIZE),
                                      .alone_s = once_s,
                                      .call_s = all_s,
                                      .clock_hz = clock_hz,
                                      .rest_s = rest_s,
                                      .stretch_s = calls * all_s};
    snprintf(out->kernel, sizeof out->kernel, "after_rest");
}

void dtp_bench_loads(struct dtp_bench *b) {
    if (!b->ops->load || !b->ops->tick)
        return;
    gemm_rows(b);
    after_rest_row(b);
    load_row(b, "pause", NULL, NULL, 0); /* while it is hot: leakage counts */
    attention_rows(b);
    for (int i = 0; i < NCLASSES; i++)
        load_row(b, dtp_kernel_names[dtp_bench_class_rows[i].kernel], dtp_bench_class_rows[i].run,
                 b, 1);
}
