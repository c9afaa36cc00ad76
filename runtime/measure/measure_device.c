/* Measures how long a device's kernels take, by calls through its table of operations (measure.h). */
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/comm.h"
#include "runtime/launch.h"
#include "runtime/measure/measure_device_internal.h"
#include "runtime/os_linux.h"

struct dtp_measure_grid dtp_measure_gpu_grid(void) {
    static const int tokens[] = {512, 1024, 2048, 4096, 8192, 16384, 0};
    static const int width[] = {256,  512,  768,  1024,  1536,  2048,  3072,
                                4096, 6144, 8192, 12288, 24576, 51200, 0};
    static const int seq[] = {512, 1024, 2048, 4096, 8192, 0}, head_dim[] = {64, 80, 128, 0};
    static const int heads[] = {2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 0};
    static const int gelu_n[] = {1536, 3072, 4096, 8192, 16384, 51200, 0};
    static const int gelu_k[] = {768, 1024, 2048, 4096, 8192, 12288, 0};
    static const int rows[] = {512, 1024, 2048, 4096, 8192, 16384, 0};
    static const int cols[] = {256, 768, 1024, 2048, 4096, 8192, 16384, 51200, 0};
    static const int64_t bytes[] = {4 * KIB,  32 * KIB,    128 * KIB, 256 * KIB, 512 * KIB,
                                    MIB,      3 * MIB / 2, 2 * MIB,   3 * MIB,   4 * MIB,
                                    6 * MIB,  8 * MIB,     12 * MIB,  16 * MIB,  32 * MIB,
                                    64 * MIB, 128 * MIB,   256 * MIB, 0};
    return (struct dtp_measure_grid){.dtype = DTP_BF16,
                                     .tokens = tokens,
                                     .width = width,
                                     .seq = seq,
                                     .head_dim = head_dim,
                                     .heads = heads,
                                     .gelu_n = gelu_n,
                                     .gelu_k = gelu_k,
                                     .rows = rows,
                                     .cols = cols,
                                     .class_rows = 8192,
                                     .class_cols = 2048,
                                     .memory_bytes = 14 * (uint64_t)DTP_GIB,
                                     .most_bytes = 5200 * (uint64_t)DTP_MIB,
                                     .bytes = bytes,
                                     .target_s = 1.2e-3,
                                     .gap_s = 5e-7}; /* CUPTI traces of steps: 0.42 to 0.75 us */
}

/* ---- timing ---- */

double dtp_bench_batch_s(struct dtp_bench *b, dtp_bench_fn *run, void *context, int n,
                         double lead_s) {
    b->ops->sync(b->dev);
    if (lead_s > 0)
        b->ops->pause(b->dev, DTP_STREAM_COMPUTE, lead_s);
    if (b->ops->tick)
        b->ops->tick(b->dev, 0);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 0);
    for (int i = 0; i < n; i++)
        run(context, i);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 1);
    if (b->ops->tick)
        b->ops->tick(b->dev, 1);
    b->ops->sync(b->dev);
    int64_t begin_ns = b->ops->mark_ns(b->dev, 0), end_ns = b->ops->mark_ns(b->dev, 1);
    return (double)(end_ns - begin_ns) / (double)DTP_NS_PER_S / n;
}

static void replay_graph(void *context, int i) {
    struct dtp_bench *b = context;
    b->ops->replay(b->dev, i);
}

/* Keeps the least time so far, with its clock; *least_s is 0 before the first. */
static void keep_least(struct dtp_bench *b, double time_s, double *least_s) {
    if (*least_s > 0 && time_s >= *least_s)
        return;
    *least_s = time_s;
    b->clock_hz = b->ops->clock_hz ? b->ops->clock_hz(b->dev) : 0;
}

/* Returns the seconds that one of n calls takes in a graph, as the executor replays them (device/graphs.h); 0 if the
 * device has no graphs. */
static double graph_s(struct dtp_bench *b, dtp_bench_fn *run, void *context, int n) {
    enum { ROUNDS = 2 };
    const double lead_s = 1e-4; /* meanwhile the host enqueues the replay */
    double least_s = 0;
    if (!b->ops->record || !b->ops->record(b->dev, 0, true))
        return 0;
    for (int i = 0; i < n; i++)
        run(context, i);
    if (b->ops->record(b->dev, 0, false) == 0)
        return 0;
    (void)dtp_bench_batch_s(b, replay_graph, b, 1, 0); /* the first replay uploads the graph */
    for (int i = 0; i < ROUNDS; i++) {
        double before_s = i + 1 == ROUNDS ? b->rest_s + lead_s : lead_s;
        keep_least(b, dtp_bench_batch_s(b, replay_graph, b, 1, before_s) / n, &least_s);
    }
    return least_s;
}

static int calls_of(const struct dtp_bench *b, double once_s, int least, int most) {
    double wanted = b->grid->target_s / (once_s > 0 ? once_s : b->grid->target_s);
    return wanted > most ? most : wanted < least ? least : (int)wanted;
}

/* Returns the least time of two rounds, because a host that is interrupted in one of them leaves the device idle. A
 * queue holds about a thousand kernels, so that no more are enqueued after the pause. */
double dtp_bench_measured_s(struct dtp_bench *b, dtp_bench_fn *run, void *context) {
    enum { LEAST = 4, MOST = 250, MOST_IN_GRAPH = 600, ROUNDS = 2 };
    const double short_s = 4e-5, in_graph_s = 2e-4, host_s = 1.2e-5;
    (void)dtp_bench_batch_s(b, run, context, 1, 0); /* chooses and loads the kernel */
    double once_s = dtp_bench_batch_s(b, run, context, 2, 0), t = 0;
    int n = calls_of(b, once_s, LEAST, MOST);
    if (once_s < in_graph_s)
        t = graph_s(b, run, context, calls_of(b, once_s, LEAST, MOST_IN_GRAPH));
    bool in_graph = t > 0;
    for (int i = 0; i < ROUNDS && !in_graph; i++) {
        double lead_s = (once_s < short_s ? n * host_s : 0) + (i + 1 == ROUNDS ? b->rest_s : 0);
        keep_least(b, dtp_bench_batch_s(b, run, context, n / ROUNDS, lead_s), &t);
    }
    t -= b->grid->gap_s;
    return t > 0 ? t : b->grid->gap_s;
}

double dtp_bench_clock(const struct dtp_bench *b) {
    double most_hz = b->limits.most_clock_hz;
    return b->clock_hz > 0 && most_hz > b->clock_hz ? b->clock_hz / most_hz : 1;
}

double dtp_bench_product_s(struct dtp_bench *b, dtp_bench_fn *run, void *context) {
    b->rest_s = 0.015; /* a chip's power is a mean over less than twice this time */
    double time_s = dtp_bench_measured_s(b, run, context);
    b->rest_s = 0;
    return time_s * dtp_bench_clock(b);
}

void dtp_bench_note(struct dtp_bench *b, double time_s, double clock) {
    if (b->n < b->capacity) {
        b->time_s[b->n] = time_s;
        b->clock[b->n] = clock;
    }
    b->n++;
}

void *dtp_bench_part(const struct dtp_bench *b, int pool, int64_t bytes, int i) {
    int64_t places = bytes > 0 ? (int64_t)b->pool_bytes[pool] / bytes : 1;
    enum { MOST_PLACES = 16 };
    places = places > MOST_PLACES ? MOST_PLACES : places;
    int64_t at =
        places > 1 ? i % places * (bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES) : 0;
    return b->pool[pool] + at;
}

int64_t dtp_bench_element_bytes(const struct dtp_bench *b) {
    return dtp_dtype_bytes(b->grid->dtype);
}

/* ---- the process ---- */

struct job {
    const struct dtp_measure_options *o;
    const struct dtp_measure_grid *grid; /* NULL: the device is only described */
    struct dtp_measure_board *board;
};

static enum dtp_status take(struct dtp_bench *b, uint64_t bytes, void *out, struct dtp_err *err) {
    void *p = dtp_heap_alloc(b->dev->heap, DTP_MEM_BUFFERS, "measure", bytes);
    if (!p)
        return dtp_heap_fail(b->dev->heap, "measure", bytes, err);
    bytes = bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
    b->ops->fill(b->dev, p, bytes);
    memcpy(out, &p, sizeof p);
    return DTP_OK;
}

static int largest(const int *axis, int least) {
    for (; *axis; axis++)
        least = *axis > least ? *axis : least;
    return least;
}

static enum dtp_status open_tensors(struct dtp_arena *a, struct dtp_bench *b, struct dtp_err *err) {
    const struct dtp_measure_grid *g = b->grid;
    uint64_t room = g->memory_bytes / 16; /* the pools take 4, 4 and 6 of 16 parts */
    int rows = largest(g->rows, g->class_rows), cols = largest(g->cols, g->class_cols);
    uint64_t small = sizeof(float) * (uint64_t)(3 * rows + 4 * cols);
    uint64_t saved = dtp_bench_attention_bytes(b, false),
             workspace = dtp_bench_attention_bytes(b, true);
    b->pool_bytes[0] = b->pool_bytes[1] = room * 4;
    b->pool_bytes[POOL_C] = room * 6;
    for (int i = 0; i < NPOOLS; i++)
        DTP_TRY(take(b, b->pool_bytes[i], &b->pool[i], err));
    DTP_TRY(take(b, saved > small ? saved : small, &b->saved, err));
    DTP_TRY(take(b, workspace > small ? workspace : small, &b->workspace, err));
    DTP_TRY(take(b, sizeof(float) * (uint64_t)(cols + 64 * KIB), &b->rows, err));
    DTP_TRY(take(b, sizeof(int32_t) * (uint64_t)rows, &b->ids, err));
    int32_t *ids = DTP_NEW(a, int32_t, (size_t)rows);
    b->nids = rows;
    for (int i = 0; i < rows; i++)
        ids[i] = (int32_t)((int64_t)i * 37 % rows);
    b->ops->copy_in(b->dev, b->ids, ids, sizeof *ids * (size_t)rows);
    return DTP_OK;
}

static enum dtp_status run_bench(struct dtp_arena *a, struct job *job, struct dtp_bench *b,
                                 struct dtp_err *err) {
    const uint64_t little = 64 * (uint64_t)DTP_MIB;
    const struct dtp_dev_config config = {.nlocal = 1,
                                          .memory_bytes =
                                              job->grid ? job->grid->memory_bytes : little,
                                          .dtype = job->grid ? job->grid->dtype : DTP_FP32,
                                          .grad_dtype = DTP_FP32};
    DTP_TRY(dtp_dev_find(job->o->backend, &b->ops, err));
    DTP_TRY(b->ops->open(a, &config, &b->dev, err));
    b->ops->about(b->dev, &job->board->about);
    if (!job->grid)
        return DTP_OK;
    if (b->ops->load)
        b->ops->load(b->dev, &b->limits);
    job->board->limits = b->limits;
    DTP_TRY(open_tensors(a, b, err));
    dtp_bench_gemms(b);
    for (int i = 0; i < 4; i++)
        dtp_bench_attentions(b, i % 2 == 1, i / 2 * DTP_MEASURE_DROPOUT);
    dtp_bench_gelus(b);
    dtp_bench_classes(b);
    dtp_bench_loads(b);
    job->board->nloads = b->nloads;
    if (b->n > b->capacity)
        return dtp_fail(err, DTP_EINPUT, "a grid of %d times, room for %d", b->n, b->capacity);
    return b->ops->check(b->dev, err);
}

static enum dtp_status bench_rank(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    struct dtp_arena *a = dtp_arena_create("measure");
    struct dtp_bench b = {.grid = job->grid,
                          .time_s = job->board->time_s,
                          .clock = job->board->clock,
                          .capacity = DTP_MEASURE_MAX_TIMES,
                          .load = job->board->load};
    dtp_os_pin(rank);
    enum dtp_status status = run_bench(a, job, &b, err);
    if (b.dev)
        b.ops->close(b.dev);
    dtp_arena_destroy(a);
    return status;
}

static enum dtp_status fork_bench(struct job *job, struct dtp_err *err) {
    const struct dtp_fork f = {.nranks = 1, .run = bench_rank, .context = job, .grace_s = 1};
    struct dtp_comm_config config = {.size = 1, .local_size = 1};
    struct dtp_fork with_board = f;
    DTP_TRY(dtp_comm_shm_map(&config, &with_board.shared, err));
    enum dtp_status status = dtp_launch_fork(&with_board, err);
    dtp_comm_shm_unmap(&config, with_board.shared);
    return status;
}

/* ---- results ---- */

static struct dtp_doubles axis(struct dtp_arena *a, const int *at) {
    size_t n = 0;
    while (at[n])
        n++;
    struct dtp_doubles d = {DTP_NEW(a, double, n), n};
    for (size_t i = 0; i < n; i++)
        d.at[i] = at[i];
    return d;
}

static struct dtp_doubles list(struct dtp_arena *a, const double *from, size_t n) {
    struct dtp_doubles d = {DTP_NEW(a, double, n), n};
    memcpy(d.at, from, n * sizeof *from);
    return d;
}

/* clock is NULL for kernels whose time does not depend on it. */
static const double *take_table(struct dtp_arena *a, const struct dtp_measure_grid *g,
                                const int *const axes[3], const double *from, const double *clock,
                                struct dtp_time_table *out) {
    size_t n = 1;
    *out = (struct dtp_time_table){.dtype = (int)g->dtype, .relative = true};
    for (int d = 0; d < 3; d++) {
        out->axis[d] = axis(a, axes[d]);
        n *= out->axis[d].n;
    }
    out->time_s = list(a, from, n);
    if (clock)
        out->clock = list(a, clock, n);
    return from + n;
}

/* The times of many and of few elements give a rate, and the latency that each kernel adds. */
static void read_class(const struct dtp_measure_grid *g, const double time_s[2], enum dtp_kernel k,
                       struct dtp_measured *out) {
    const struct dtp_measure_grid small = dtp_bench_small_grid(g);
    double many = (double)g->class_rows * g->class_cols;
    double few = (double)small.class_rows * small.class_cols;
    double more_s = time_s[0] - time_s[1], latency_s = time_s[1] - more_s * few / (many - few);
    latency_s = more_s > 0 && latency_s > 0 ? latency_s : 0;
    out->latency_s[k] = latency_s;
    out->elements_per_s[k] = many / (time_s[0] - latency_s);
}

static void axes_of(const struct dtp_measure_grid *g, enum dtp_table which, const int *out[3]) {
    static const int one[] = {1, 0};
    const int *const axes[][3] = {{g->tokens, g->width, g->width},
                                  {g->width, g->width, g->tokens},
                                  {g->seq, g->head_dim, g->heads},
                                  {g->tokens, g->gelu_n, g->gelu_k},
                                  {g->rows, g->cols, one}};
    int kind = which >= DTP_TABLE_KERNEL              ? 4
               : which >= DTP_TABLE_GEMM_FORWARD_GELU ? 3
               : which > DTP_TABLE_GEMM_WGRAD         ? 2
               : which == DTP_TABLE_GEMM_WGRAD        ? 1
                                                      : 0;
    memcpy(out, axes[kind], sizeof axes[kind]);
}

static void read_board(struct dtp_arena *a, const struct dtp_measure_grid *g,
                       const struct dtp_measure_board *board, struct dtp_measured *out) {
    const double *from = board->time_s;
    const int *axes[3];
    for (int i = 0; i < DTP_TABLE_KERNEL; i++) {
        axes_of(g, (enum dtp_table)i, axes);
        const double *clock = board->limits.most_clock_hz > 0 ? board->clock : NULL;
        from = take_table(a, g, axes, from, clock ? clock + (from - board->time_s) : NULL,
                          &out->table[i]);
    }
    axes_of(g, DTP_TABLE_KERNEL, axes);
    for (int i = 0; i < NTABLED; i++) {
        struct dtp_time_table *t =
            &out->table[DTP_TABLE_KERNEL + (int)dtp_bench_class_rows[i].kernel];
        from = take_table(a, g, axes, from, NULL, t);
        t->relative = false;
    }
    for (int i = 0; i < NCLASSES; i++, from += 2)
        read_class(g, from, dtp_bench_class_rows[i].kernel, out);
    out->copy_bytes_per_s = 2 * dtp_dtype_bytes(g->dtype) * out->elements_per_s[DTP_K_COPY];
    out->launch_s = from[0];
    out->gap_s = g->gap_s;
}

static enum dtp_status with_board(struct job *job, struct dtp_err *err) {
    job->board = dtp_os_map(sizeof *job->board, true);
    if (!job->board)
        return dtp_fail(err, DTP_ENOMEM, "cannot map memory for the measured times");
    return fork_bench(job, err);
}

enum dtp_status dtp_measure_about(const char *backend, struct dtp_dev_about *out,
                                  struct dtp_err *err) {
    const struct dtp_measure_options o = {.backend = backend};
    struct job job = {.o = &o};
    enum dtp_status status = with_board(&job, err);
    if (job.board) {
        *out = job.board->about;
        munmap(job.board, sizeof *job.board);
    }
    return status;
}

enum dtp_status dtp_measure_device(struct dtp_arena *a, const struct dtp_measure_options *o,
                                   const struct dtp_measure_grid *grid, struct dtp_measured *out,
                                   struct dtp_err *err) {
    int64_t start_ns = dtp_os_now_ns();
    struct job job = {.o = o, .grid = grid};
    *out = (struct dtp_measured){.ncores = dtp_os_num_cores()};
    if (o->progress)
        o->progress(o->context, "kernels");
    enum dtp_status status = with_board(&job, err);
    if (status == DTP_OK) {
        read_board(a, grid, job.board, out);
        out->limits = job.board->limits;
        out->nloads = job.board->nloads;
        memcpy(out->load, job.board->load, sizeof out->load);
    }
    if (job.board) {
        out->about = job.board->about;
        munmap(job.board, sizeof *job.board);
    }
    if (status == DTP_OK)
        status = dtp_measure_device_comm(a, o, grid, out, err);
    out->seconds = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    return status;
}
