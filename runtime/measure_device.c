/* Times of a device's kernels through its table of operations (measure.h). */
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm.h"
#include "runtime/launch.h"
#include "runtime/measure.h"
#include "runtime/os_linux.h"
#include "sim/base/units.h"

enum { NPOOLS = 3, POOL_C = 2, KIB = (int)DTP_KIB, MIB = (int)DTP_MIB };

struct bench {
    const struct dtp_measure_grid *grid;
    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    char *pool[NPOOLS];
    uint64_t pool_bytes[NPOOLS];
    float *saved, *workspace, *rows;
    int32_t *ids;
    double *time_s; /* of the board */
    int n, capacity;
};

struct dtp_measure_grid dtp_measure_gpu_grid(void) {
    static const int tokens[] = {512, 1024, 2048, 4096, 8192, 16384, 0};
    static const int width[] = {256,  512,  768,  1024,  1536,  2048,  3072,
                                4096, 6144, 8192, 12288, 24576, 51200, 0};
    static const int seq[] = {512, 1024, 2048, 4096, 8192, 0}, head_dim[] = {64, 128, 0};
    static const int heads[] = {8, 16, 32, 64, 128, 0};
    static const int64_t bytes[] = {4 * KIB,  64 * KIB, 256 * KIB, MIB, 4 * MIB,
                                    16 * MIB, 64 * MIB, 256 * MIB, 0};
    return (struct dtp_measure_grid){.dtype = DTP_BF16,
                                     .tokens = tokens,
                                     .width = width,
                                     .seq = seq,
                                     .head_dim = head_dim,
                                     .heads = heads,
                                     .class_rows = 8192,
                                     .class_cols = 2048,
                                     .memory_bytes = 14 * (uint64_t)DTP_GIB,
                                     .most_bytes = 5200 * (uint64_t)DTP_MIB,
                                     .bytes = bytes,
                                     .target_s = 1.2e-3,
                                     .gap_s = 1.4e-6};
}

/* ---- timing ---- */

typedef void run_fn(void *context, int i);

static double batch_s(struct bench *b, run_fn *run, void *context, int n, double lead_s) {
    b->ops->sync(b->dev);
    if (lead_s > 0)
        b->ops->pause(b->dev, DTP_STREAM_COMPUTE, lead_s);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 0);
    for (int i = 0; i < n; i++)
        run(context, i);
    b->ops->mark(b->dev, DTP_STREAM_COMPUTE, 1);
    b->ops->sync(b->dev);
    int64_t begin_ns = b->ops->mark_ns(b->dev, 0), end_ns = b->ops->mark_ns(b->dev, 1);
    return (double)(end_ns - begin_ns) / (double)DTP_NS_PER_S / n;
}

/* A queue holds about a thousand kernels: no more than that behind the pause. */
static double measured_s(struct bench *b, run_fn *run, void *context) {
    enum { LEAST = 3, MOST = 250 };
    const double short_s = 4e-5, host_s = 1.2e-5;
    (void)batch_s(b, run, context, 1, 0); /* chooses and loads the kernel */
    double once_s = batch_s(b, run, context, 2, 0);
    double wanted = b->grid->target_s / (once_s > 0 ? once_s : b->grid->target_s);
    int n = wanted > MOST ? MOST : wanted < LEAST ? LEAST : (int)wanted;
    double t = batch_s(b, run, context, n, once_s < short_s ? n * host_s : 0) - b->grid->gap_s;
    return t > 0 ? t : b->grid->gap_s;
}

static void note(struct bench *b, double time_s) {
    if (b->n < b->capacity)
        b->time_s[b->n] = time_s;
    b->n++;
}

/* The i-th of the places that a tensor of so many bytes has in a pool. */
static void *part(const struct bench *b, int pool, int64_t bytes, int i) {
    int64_t places = bytes > 0 ? (int64_t)b->pool_bytes[pool] / bytes : 1;
    enum { MOST_PLACES = 16 };
    places = places > MOST_PLACES ? MOST_PLACES : places;
    int64_t at =
        places > 1 ? i % places * (bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES) : 0;
    return b->pool[pool] + at;
}

static int64_t element_bytes(const struct bench *b) {
    return dtp_dtype_bytes(b->grid->dtype);
}

/* ---- GEMM, as transformer_comm.c calls it: y = x W', dx = dy W, dW += dy' x ---- */

struct gemm {
    struct bench *b;
    struct dtp_gemm_args g;
};

static void run_gemm(void *context, int i) {
    const struct gemm *x = context;
    struct dtp_gemm_args g = x->g;
    int64_t e = element_bytes(x->b), out = g.c_gradient ? (int64_t)sizeof(float) : e;
    g.a = part(x->b, 0, g.m * g.k * e, i);
    g.b = part(x->b, 1, g.k * g.n * e, i);
    g.c = part(x->b, POOL_C, g.m * g.n * out, i);
    x->b->ops->gemm(x->b->dev, &g);
}

static bool fits(const struct bench *b, const struct dtp_gemm_args *g) {
    uint64_t e = (uint64_t)element_bytes(b), out = g->c_gradient ? sizeof(float) : e;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    uint64_t most = b->grid->most_bytes;
    return m * k * e <= b->pool_bytes[0] && k * n * e <= b->pool_bytes[1] &&
           m * n * out <= b->pool_bytes[POOL_C] && m * n * out <= most && k * n * e <= most;
}

/* before: k of the entry before this one, when m and n are the same; else 0. */
static void add_gemm(struct bench *b, enum dtp_gemm_pass pass, const int64_t mnk[3],
                     int64_t before) {
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct gemm x = {.b = b, .g = {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n}};
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
    double last_s = b->n > 0 && b->n <= b->capacity ? b->time_s[b->n - 1] : 0;
    if (fits(b, &x.g) || before == 0)
        note(b, fits(b, &x.g) ? measured_s(b, run_gemm, &x) : 0);
    else
        note(b, last_s * (double)k / (double)before);
}

static void gemms_of(struct bench *b, enum dtp_gemm_pass pass, const int *x, const int *z) {
    const int *y = b->grid->width;
    for (int i = 0; x[i]; i++)
        for (int j = 0; y[j]; j++)
            for (int k = 0; z[k]; k++)
                add_gemm(b, pass, (int64_t[]){x[i], y[j], z[k]}, k > 0 ? z[k - 1] : 0);
}

static void gemms(struct bench *b) {
    const struct dtp_measure_grid *g = b->grid;
    gemms_of(b, DTP_GEMM_FORWARD, g->tokens, g->width);
    gemms_of(b, DTP_GEMM_DGRAD, g->tokens, g->width);
    gemms_of(b, DTP_GEMM_WGRAD, g->width, g->tokens);
}

/* ---- attention ---- */

struct attention {
    struct bench *b;
    struct dtp_attention_args x;
    bool backward;
};

static void run_attention(void *context, int i) {
    const struct attention *t = context;
    struct bench *b = t->b;
    struct dtp_attention_args x = t->x;
    int64_t e = element_bytes(b), width = x.heads * x.head_dim, rows = x.seq * x.batch;
    char *qkv = part(b, 0, 3 * width * rows * e, i), *grad = part(b, 1, 3 * width * rows * e, i);
    x.q = qkv;
    x.k = qkv + width * e;
    x.v = qkv + 2 * width * e;
    x.out = part(b, POOL_C, width * rows * e, i);
    x.dout = part(b, POOL_C, width * rows * e, i + 1);
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

/* As many sequences of HEADS heads as give the number of heads. */
static struct dtp_attention_args attention_of(const struct bench *b, int s, int d, int h) {
    enum { HEADS = 8 };
    const struct dtp_measure_grid *g = b->grid;
    int64_t heads = g->heads[h] < HEADS ? g->heads[h] : HEADS, dim = g->head_dim[d];
    return (struct dtp_attention_args){.batch = g->heads[h] / heads,
                                       .seq = g->seq[s],
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .head_dim = dim,
                                       .qkv_stride = 3 * heads * dim,
                                       .out_stride = heads * dim};
}

static void attentions(struct bench *b, bool backward) {
    const struct dtp_measure_grid *g = b->grid;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int h = 0; g->heads[h]; h++) {
                struct attention t = {.b = b, .backward = backward, .x = attention_of(b, s, d, h)};
                note(b, measured_s(b, run_attention, &t));
            }
}

/* The most that any shape keeps, or works in. */
static uint64_t attention_bytes(const struct bench *b, bool workspace) {
    const struct dtp_measure_grid *g = b->grid;
    uint64_t most = 0;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int h = 0; g->heads[h]; h++) {
                struct dtp_attention_args x = attention_of(b, s, d, h);
                uint64_t bytes = workspace ? b->ops->attention_workspace_bytes(b->dev, &x)
                                           : b->ops->attention_saved_bytes(b->dev, &x);
                most = bytes > most ? bytes : most;
            }
    return most;
}

/* ---- classes of memory-bound kernels ---- */

static int64_t class_elements(const struct bench *b) {
    return (int64_t)b->grid->class_rows * b->grid->class_cols;
}

static void *tensor(const struct bench *b, int pool, int i) {
    return part(b, pool, class_elements(b) * element_bytes(b), i);
}

static struct dtp_norm_args norm_of(const struct bench *b, int i) {
    return (struct dtp_norm_args){.rows = b->grid->class_rows,
                                  .cols = b->grid->class_cols,
                                  .epsilon = 1e-5,
                                  .x = tensor(b, 0, i),
                                  .weight = b->rows,
                                  .bias = b->rows,
                                  .y = tensor(b, 1, i),
                                  .mean = b->saved,
                                  .rstd = b->saved + b->grid->class_rows,
                                  .dy = tensor(b, 1, i + 1),
                                  .residual = tensor(b, 0, i + 1),
                                  .dx = tensor(b, POOL_C, i),
                                  .dweight = b->workspace,
                                  .dbias = b->workspace + b->grid->class_cols};
}

static void run_norm(void *context, int i) {
    struct bench *b = context;
    const struct dtp_norm_args n = norm_of(b, i);
    b->ops->norm_forward(b->dev, &n);
}

static void run_norm_backward(void *context, int i) {
    struct bench *b = context;
    const struct dtp_norm_args n = norm_of(b, i);
    b->ops->norm_backward(b->dev, &n);
}

static struct dtp_act_args act_of(const struct bench *b, int i) {
    return (struct dtp_act_args){.fn = DTP_ACT_FN_GELU,
                                 .rows = b->grid->class_rows,
                                 .cols = b->grid->class_cols,
                                 .x = tensor(b, 0, i),
                                 .y = tensor(b, POOL_C, i),
                                 .dy = tensor(b, 1, i),
                                 .dx = tensor(b, POOL_C, i)};
}

static void run_act(void *context, int i) {
    struct bench *b = context;
    const struct dtp_act_args x = act_of(b, i);
    b->ops->act_forward(b->dev, &x);
}

static void run_act_backward(void *context, int i) {
    struct bench *b = context;
    const struct dtp_act_args x = act_of(b, i);
    b->ops->act_backward(b->dev, &x);
}

static struct dtp_loss_args loss_of(const struct bench *b, int i) {
    int64_t rows = b->grid->class_rows;
    return (struct dtp_loss_args){.logits = tensor(b, POOL_C, i),
                                  .rows = rows,
                                  .cols = b->grid->class_cols,
                                  .valid = b->grid->class_cols,
                                  .targets = b->ids,
                                  .max = b->saved,
                                  .sum = b->saved + rows,
                                  .target = b->saved + 2 * rows,
                                  .loss = b->workspace,
                                  .scale = 1e-3};
}

static void run_loss(void *context, int i) {
    struct bench *b = context;
    const struct dtp_loss_args x = loss_of(b, i);
    b->ops->loss_max(b->dev, &x);
    b->ops->loss_sum(b->dev, &x);
    b->ops->loss_mean(b->dev, &x);
}

static void run_loss_grad(void *context, int i) {
    struct bench *b = context;
    const struct dtp_loss_args x = loss_of(b, i);
    b->ops->loss_grad(b->dev, &x);
}

static void run_residual(void *context, int i) {
    struct bench *b = context;
    b->ops->bias_residual(b->dev, tensor(b, POOL_C, i), tensor(b, 0, i), b->rows, tensor(b, 1, i),
                          (const int64_t[2]){b->grid->class_rows, b->grid->class_cols});
}

static void run_bias_gradient(void *context, int i) {
    struct bench *b = context;
    b->ops->bias_backward(b->dev, b->workspace, tensor(b, 0, i),
                          (const int64_t[2]){b->grid->class_rows, b->grid->class_cols});
}

static void run_copy(void *context, int i) {
    struct bench *b = context;
    b->ops->copy(b->dev, tensor(b, 0, i), tensor(b, 1, i),
                 (uint64_t)(class_elements(b) * element_bytes(b)));
}

/* The rows, then their gradients: a class for both. */
static void run_embed(void *context, int i) {
    struct bench *b = context;
    struct dtp_embedding_args x = {.ids = b->ids,
                                   .rows = b->grid->class_rows,
                                   .cols = b->grid->class_cols,
                                   .valid = b->grid->class_rows,
                                   .batch = 1,
                                   .table = tensor(b, 0, 0),
                                   .out = tensor(b, 1, i),
                                   .dout = tensor(b, 1, i),
                                   .dtable = b->pool[POOL_C]};
    if (i % 2)
        b->ops->embed_backward(b->dev, &x);
    else
        b->ops->embed(b->dev, &x);
}

static void run_rope(void *context, int i) {
    enum { DIM = 64 };
    struct bench *b = context;
    const struct dtp_rope_args x = {.x = tensor(b, 0, i),
                                    .rows = b->grid->class_rows,
                                    .batch = 1,
                                    .heads = b->grid->class_cols / DIM,
                                    .head_dim = DIM,
                                    .row_stride = b->grid->class_cols,
                                    .theta = 10000};
    b->ops->rope(b->dev, &x);
}

/* Clipping's norm and the update, of as many parameters as a class has elements. */
static void run_optimizer(void *context, int i) {
    struct bench *b = context;
    int64_t n = class_elements(b);
    float *state = (float *)(void *)b->pool[POOL_C];
    (void)i;
    const struct dtp_adamw_hyper h = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step = 1};
    const struct dtp_adamw_tensor t = {.param = tensor(b, 0, 0),
                                       .master = b->grid->dtype == DTP_FP32 ? NULL : state,
                                       .m = state + n,
                                       .v = state + 2 * n,
                                       .grad = state + 3 * n,
                                       .n = n};
    b->ops->norm2(b->dev, b->workspace, t.grad, n, 1);
    b->ops->adamw(b->dev, &h, &t, 1);
}

static const struct class_row {
    enum dtp_kernel kernel;
    run_fn *run;
} class_rows[] = {
    {DTP_K_NORM, run_norm},
    {DTP_K_NORM_BACKWARD, run_norm_backward},
    {DTP_K_ACTIVATION, run_act},
    {DTP_K_ACTIVATION_BACKWARD, run_act_backward},
    {DTP_K_CROSS_ENTROPY, run_loss},
    {DTP_K_SOFTMAX, run_loss_grad},
    {DTP_K_ELEMENTWISE, run_residual},
    {DTP_K_REDUCE, run_bias_gradient},
    {DTP_K_COPY, run_copy},
    {DTP_K_EMBEDDING, run_embed},
    {DTP_K_ROPE, run_rope},
    {DTP_K_OPTIMIZER, run_optimizer}, /* last: it leaves its state in the pools */
};
enum { NCLASSES = sizeof class_rows / sizeof *class_rows };

/* Host time of a small product and of a small kernel with the tensor that it writes, as they come in a
 * layer: four to six. */
static double launch_time_s(struct bench *b) {
    enum { CALLS = 40, SMALL = 64, KERNELS = 6, GEMMS = 4, ALL = KERNELS + GEMMS };
    struct gemm x = {.b = b,
                     .g = {.m = SMALL,
                           .n = SMALL,
                           .k = SMALL,
                           .lda = SMALL,
                           .ldb = SMALL,
                           .ldc = SMALL,
                           .tb = true}};
    run_gemm(&x, 0);
    b->ops->sync(b->dev);
    int64_t start_ns = dtp_os_now_ns();
    for (int i = 0; i < CALLS * ALL; i++) {
        void *live = dtp_heap_alloc(b->dev->heap, DTP_MEM_BUFFERS, "launch", SMALL);
        if (i % ALL < GEMMS)
            run_gemm(&x, 0);
        else
            b->ops->bias_residual(b->dev, b->pool[0], b->pool[1], b->rows, NULL,
                                  (const int64_t[2]){1, SMALL});
        dtp_heap_release(b->dev->heap, live);
    }
    double t = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S / (CALLS * ALL);
    b->ops->sync(b->dev);
    return t;
}

static void classes(struct bench *b) {
    for (int i = 0; i < NCLASSES; i++)
        note(b, measured_s(b, class_rows[i].run, b));
    note(b, launch_time_s(b));
}

/* ---- the process ---- */

struct job {
    const struct dtp_measure_options *o;
    const struct dtp_measure_grid *grid; /* NULL: only what the device is */
    struct dtp_measure_board *board;
};

static enum dtp_status take(struct bench *b, uint64_t bytes, void *out, struct dtp_err *err) {
    void *p = dtp_heap_alloc(b->dev->heap, DTP_MEM_BUFFERS, "measure", bytes);
    if (!p)
        return dtp_heap_fail(b->dev->heap, "measure", bytes, err);
    bytes = bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
    b->ops->fill(b->dev, p, bytes);
    memcpy(out, &p, sizeof p);
    return DTP_OK;
}

static enum dtp_status open_tensors(struct dtp_arena *a, struct bench *b, struct dtp_err *err) {
    const struct dtp_measure_grid *g = b->grid;
    uint64_t room = g->memory_bytes / 16; /* a quarter, a quarter, 6 sixteenths */
    uint64_t small = sizeof(float) * (uint64_t)(3 * g->class_rows + 4 * g->class_cols);
    uint64_t saved = attention_bytes(b, false), workspace = attention_bytes(b, true);
    b->pool_bytes[0] = b->pool_bytes[1] = room * 4;
    b->pool_bytes[POOL_C] = room * 6;
    for (int i = 0; i < NPOOLS; i++)
        DTP_TRY(take(b, b->pool_bytes[i], &b->pool[i], err));
    DTP_TRY(take(b, saved > small ? saved : small, &b->saved, err));
    DTP_TRY(take(b, workspace > small ? workspace : small, &b->workspace, err));
    DTP_TRY(take(b, sizeof(float) * (uint64_t)(g->class_cols + 64 * KIB), &b->rows, err));
    DTP_TRY(take(b, sizeof(int32_t) * (uint64_t)g->class_rows, &b->ids, err));
    int32_t *ids = DTP_NEW(a, int32_t, (size_t)g->class_rows);
    for (int i = 0; i < g->class_rows; i++)
        ids[i] = (int32_t)((int64_t)i * 37 % g->class_rows);
    b->ops->copy_in(b->dev, b->ids, ids, sizeof *ids * (size_t)g->class_rows);
    return DTP_OK;
}

static enum dtp_status run_bench(struct dtp_arena *a, struct job *job, struct bench *b,
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
    DTP_TRY(open_tensors(a, b, err));
    gemms(b);
    attentions(b, false);
    attentions(b, true);
    classes(b);
    if (b->n > b->capacity)
        return dtp_fail(err, DTP_EINPUT, "a grid of %d times, room for %d", b->n, b->capacity);
    return b->ops->check(b->dev, err);
}

static enum dtp_status bench_rank(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    struct dtp_arena *a = dtp_arena_create("measure");
    struct bench b = {
        .grid = job->grid, .time_s = job->board->time_s, .capacity = DTP_MEASURE_MAX_TIMES};
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

static const double *take_table(struct dtp_arena *a, const struct dtp_measure_grid *g,
                                const int *const axes[3], const double *from,
                                struct dtp_time_table *out) {
    size_t n = 1;
    *out = (struct dtp_time_table){.dtype = (int)g->dtype, .relative = true};
    for (int d = 0; d < 3; d++) {
        out->axis[d] = axis(a, axes[d]);
        n *= out->axis[d].n;
    }
    out->time_s = (struct dtp_doubles){DTP_NEW(a, double, n), n};
    memcpy(out->time_s.at, from, n * sizeof *from);
    return from + n;
}

static void read_board(struct dtp_arena *a, const struct dtp_measure_grid *g, const double *from,
                       struct dtp_measured *out) {
    const int *const forward[] = {g->tokens, g->width, g->width};
    const int *const wgrad[] = {g->width, g->width, g->tokens};
    const int *const attention[] = {g->seq, g->head_dim, g->heads};
    for (int i = 0; i < DTP_NTABLES; i++)
        from = take_table(a, g,
                          i >= DTP_TABLE_ATTENTION_FORWARD ? attention
                          : i == DTP_TABLE_GEMM_WGRAD      ? wgrad
                                                           : forward,
                          from, &out->table[i]);
    double elements = (double)g->class_rows * g->class_cols;
    for (int i = 0; i < NCLASSES; i++)
        out->elements_per_s[class_rows[i].kernel] = elements / from[i];
    out->copy_bytes_per_s = 2 * dtp_dtype_bytes(g->dtype) * out->elements_per_s[DTP_K_COPY];
    out->launch_s = from[NCLASSES];
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
    if (status == DTP_OK)
        read_board(a, grid, job.board->time_s, out);
    if (job.board) {
        out->about = job.board->about;
        munmap(job.board, sizeof *job.board);
    }
    if (status == DTP_OK)
        status = dtp_measure_device_comm(a, o, grid, out, err);
    out->seconds = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    return status;
}
