/* Measures the CPU by the kernel sweep. Every process walks the same list; rank 0's times count. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/launch.h"
#include "runtime/measure/measure.h"
#include "runtime/os_linux.h"
#include "sim/base/rng.h"
#include "sim/base/stats.h"

enum {
    POOL_FLOATS = 1 << 21, /* operands move through 8 MiB */
    HEAP_BYTES = 1 << 28,
    ROWS = 128, /* shape of the classes' tensors */
    COLS = 512,
    LARGE_FLOATS = 1 << 19
};
static const double sweep_target_s = 0.4e-3; /* target for one entry and round */

struct sweep {
    const struct dtp_measure_options *o;
    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    float *pool, *other; /* [POOL_FLOATS] each */
    float *rows, *saved, *workspace, *large;
    int32_t *ids;
    double *time_s; /* times on the board */
    bool writes;
    int n; /* entries so far */
};

/* The entries are classes of memory-bound kernels, a large copy, the gap between kernels, SwiGLU forward, backward. */
enum { NCLASSES = 13, NGATED = 2 };
struct class_row {
    enum dtp_kernel kernel;
    void (*run)(void *context, int i);
    int64_t rows, cols;
};
/* Returns one entry of the sweep: the median time of repeats of `run`, which take target_s together. */
static double typical_s(void (*run)(void *context, int i), void *context, double target_s) {
    enum { LEAST = 5, MOST = 400 };
    double sample_s[MOST], sum_s = 0;
    int n = 0;
    run(context, 0); /* warms up */
    for (; n < MOST && (n < LEAST || sum_s < target_s); n++) {
        int64_t start_ns = dtp_os_now_ns();
        run(context, n + 1);
        sample_s[n] = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
        sum_s += sample_s[n];
    }
    return dtp_median_high(sample_s, (size_t)n);
}

/* Returns the i-th of the places that n floats have in a pool. */
static float *part(float *pool, int64_t n, int i) {
    int64_t places = n > 0 && POOL_FLOATS / n > 1 ? POOL_FLOATS / n : 1;
    return pool + i % places * n;
}

/* Notes the next time on the board, if it is the least so far. */
static void note(struct sweep *s, double time_s) {
    if (s->writes && (s->time_s[s->n] <= 0 || time_s < s->time_s[s->n]))
        s->time_s[s->n] = time_s;
    s->n++;
}

/* ---- memory-bound kernels by class, and the gap between kernels ---- */

struct class_run {
    struct sweep *s;
    int64_t rows, cols;
};

static struct dtp_norm_args norm_of(const struct class_run *c, int i) {
    struct sweep *s = c->s;
    int64_t n = c->rows * c->cols;
    return (struct dtp_norm_args){.rows = c->rows,
                                  .cols = c->cols,
                                  .epsilon = 1e-5,
                                  .x = part(s->pool, n, i),
                                  .weight = s->rows,
                                  .bias = s->rows,
                                  .y = part(s->other, n, i),
                                  .mean = s->saved,
                                  .rstd = s->saved + c->rows,
                                  .dy = part(s->other, n, i),
                                  .residual = part(s->pool, n, i + 1),
                                  .dx = part(s->other + POOL_FLOATS, n, i),
                                  .dweight = s->workspace,
                                  .dbias = s->workspace + c->cols};
}

static void run_norm(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_norm_args n = norm_of(c, i);
    c->s->ops->norm_forward(c->s->dev, &n);
}

static void run_norm_backward(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_norm_args n = norm_of(c, i);
    c->s->ops->norm_backward(c->s->dev, &n);
}

static struct dtp_act_args act_of(const struct class_run *c, enum dtp_act fn, int i) {
    int64_t n = c->rows * c->cols, in = fn == DTP_ACT_FN_SWIGLU ? 2 * n : n;
    return (struct dtp_act_args){.fn = fn,
                                 .rows = c->rows,
                                 .cols = c->cols,
                                 .x = part(c->s->pool, in, i),
                                 .y = part(c->s->other, n, i),
                                 .dy = part(c->s->other + POOL_FLOATS, n, i),
                                 .dx = part(c->s->other, in, i)};
}

static void act(const struct class_run *c, enum dtp_act fn, int i) {
    const struct dtp_act_args x = act_of(c, fn, i);
    c->s->ops->act_forward(c->s->dev, &x);
}

static void act_backward(const struct class_run *c, enum dtp_act fn, int i) {
    const struct dtp_act_args x = act_of(c, fn, i);
    c->s->ops->act_backward(c->s->dev, &x);
}

static void run_act(void *context, int i) {
    act(context, DTP_ACT_FN_GELU, i);
}

static void run_act_backward(void *context, int i) {
    act_backward(context, DTP_ACT_FN_GELU, i);
}

static void run_gated(void *context, int i) {
    act(context, DTP_ACT_FN_SWIGLU, i);
}

static void run_gated_backward(void *context, int i) {
    act_backward(context, DTP_ACT_FN_SWIGLU, i);
}

static struct dtp_loss_args loss_of(const struct class_run *c, int i) {
    struct sweep *s = c->s;
    return (struct dtp_loss_args){.logits = part(s->other, c->rows * c->cols, i),
                                  .rows = c->rows,
                                  .cols = c->cols,
                                  .valid = c->cols,
                                  .targets = s->ids,
                                  .max = s->saved,
                                  .sum = s->saved + c->rows,
                                  .target = s->saved + 2 * c->rows,
                                  .loss = s->workspace,
                                  .scale = 1e-3};
}

static void run_loss(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_loss_args x = loss_of(c, i);
    c->s->ops->loss_max(c->s->dev, &x);
    c->s->ops->loss_sum(c->s->dev, &x);
    c->s->ops->loss_mean(c->s->dev, &x);
}

static void run_loss_grad(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_loss_args x = loss_of(c, i);
    c->s->ops->loss_grad(c->s->dev, &x);
}

static void residual(const struct class_run *c, int i, double dropout) {
    struct sweep *s = c->s;
    int64_t n = c->rows * c->cols;
    float *out = part(s->other, n, i);
    const struct dtp_residual_args x = {.out = out,
                                        .x = out,
                                        .bias = s->rows,
                                        .residual = part(s->pool, n, i),
                                        .rows = c->rows,
                                        .cols = c->cols,
                                        .batch = 1,
                                        .dropout = dtp_dropout_of(dropout, 1, (uint32_t)i, 0, 0)};
    s->ops->bias_residual(s->dev, &x);
}

static void run_residual(void *context, int i) {
    residual(context, i, 0);
}

static void run_dropout(void *context, int i) {
    residual(context, i, DTP_MEASURE_DROPOUT);
}

static void run_bias_gradient(void *context, int i) {
    struct class_run *c = context;
    c->s->ops->bias_backward(c->s->dev, c->s->workspace, part(c->s->pool, c->rows * c->cols, i),
                             (const int64_t[2]){c->rows, c->cols});
}

static void run_copy(void *context, int i) {
    struct class_run *c = context;
    int64_t n = c->rows * c->cols;
    c->s->ops->copy(c->s->dev, part(c->s->other, n, i), part(c->s->pool, n, i),
                    (uint64_t)n * sizeof(float));
}

static void run_embed(void *context, int i) {
    struct class_run *c = context;
    struct sweep *s = c->s;
    const struct dtp_embedding_args x = {.ids = s->ids,
                                         .rows = c->rows,
                                         .cols = c->cols,
                                         .valid = ROWS,
                                         .batch = 1,
                                         .table = s->pool,
                                         .out = part(s->other, c->rows * c->cols, i)};
    s->ops->embed(s->dev, &x);
}

static void run_rope(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_rope_args x = {.x = part(c->s->pool, c->rows * c->cols, i),
                                    .rows = c->rows,
                                    .batch = 1,
                                    .heads = c->cols / 64,
                                    .head_dim = 64,
                                    .row_stride = c->cols,
                                    .theta = 10000};
    c->s->ops->rope(c->s->dev, &x);
}

/* Runs the norm for clipping and the update. */
static void run_optimizer(void *context, int i) {
    struct class_run *c = context;
    struct sweep *s = c->s;
    int64_t n = c->rows * c->cols;
    (void)i;
    const struct dtp_adamw_hyper h = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step = 1};
    const struct dtp_adamw_tensor t = {.param = s->large,
                                       .m = s->large + n,
                                       .v = s->large + 2 * n,
                                       .grad = s->large + 3 * n,
                                       .n = n};
    const struct dtp_norm2_args norm = {.sum = s->workspace, .nruns = 1, .run = {{t.grad, n, 1}}};
    s->ops->norm2(s->dev, &norm);
    s->ops->adamw(s->dev, &h, &t, 1);
}

/* Runs a kernel that does very little, and allocates the tensor that it writes. */
static void run_gap(void *context, int i) {
    enum { CALLS = 64, LIVE = 64 };
    struct class_run *c = context;
    struct sweep *s = c->s;
    (void)i;
    void *live[LIVE] = {NULL};
    for (int k = 0; k < CALLS; k++) {
        dtp_heap_release(s->dev->heap, live[k * 7 % LIVE]);
        live[k * 7 % LIVE] =
            dtp_heap_alloc(s->dev->heap, DTP_MEM_ACTIVATIONS, "gap", (uint64_t)(k % 5 + 1) * 4096);
        s->ops->bias_backward(s->dev, s->workspace, s->pool, (const int64_t[2]){1, 16});
    }
    for (int k = 0; k < LIVE; k++)
        dtp_heap_release(s->dev->heap, live[k]);
}
enum { GAP_CALLS = 64 };

static const struct class_row class_rows[NCLASSES] = {
    {DTP_K_NORM, run_norm, ROWS, COLS},
    {DTP_K_NORM_BACKWARD, run_norm_backward, ROWS, COLS},
    {DTP_K_ACTIVATION, run_act, ROWS, COLS},
    {DTP_K_ACTIVATION_BACKWARD, run_act_backward, ROWS, COLS},
    {DTP_K_CROSS_ENTROPY, run_loss, ROWS, COLS},
    {DTP_K_SOFTMAX, run_loss_grad, ROWS, COLS},
    {DTP_K_ELEMENTWISE, run_residual, ROWS, COLS},
    {DTP_K_DROPOUT, run_dropout, ROWS, COLS},
    {DTP_K_REDUCE, run_bias_gradient, ROWS, COLS},
    {DTP_K_COPY, run_copy, ROWS, COLS},
    {DTP_K_EMBEDDING, run_embed, ROWS, COLS},
    {DTP_K_ROPE, run_rope, ROWS, COLS},
    {DTP_K_OPTIMIZER, run_optimizer, LARGE_FLOATS / COLS, COLS},
};

static void time_classes(struct sweep *s) {
    for (int i = 0; i < NCLASSES; i++) {
        const struct class_row *r = &class_rows[i];
        struct class_run c = {s, r->rows, r->cols};
        note(s, typical_s(r->run, &c, sweep_target_s));
    }
    struct class_run large = {s, POOL_FLOATS / COLS, COLS}, gap = {s, 1, 1}, one = {s, ROWS, COLS};
    note(s, typical_s(run_copy, &large, 4 * sweep_target_s));
    note(s, typical_s(run_gap, &gap, sweep_target_s) / GAP_CALLS);
    note(s, typical_s(run_gated, &one, sweep_target_s));
    note(s, typical_s(run_gated_backward, &one, sweep_target_s));
}

/* ---- GEMM ---- */

struct gemm {
    struct sweep *s;
    struct dtp_gemm_args g;
};

/* Weights stay at one address, activations move. */
static void run_gemm(void *context, int i) {
    struct gemm *x = context;
    struct dtp_gemm_args g = x->g;
    g.a = part(x->s->pool, g.m * g.k, i);
    g.b = part(x->s->other, g.k * g.n, g.c_gradient ? i : 0);
    g.c = part(x->s->other + POOL_FLOATS, g.m * g.n, g.c_gradient ? 0 : i);
    x->s->ops->gemm(x->s->dev, &g);
}

/* As transformer_comm.c calls it: y = x W', dx = dy W, dW += dy' x. */
static void add_gemm(struct sweep *s, enum dtp_gemm_pass pass, int64_t m, int64_t n, int64_t k) {
    struct gemm x = {.s = s, .g = {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n}};
    if (pass == DTP_GEMM_FORWARD) {
        x.g.tb = true;
        x.g.ldb = k;
    }
    if (pass == DTP_GEMM_WGRAD) {
        x.g.ta = true;
        x.g.lda = m;
        x.g.accumulate = x.g.c_gradient = true;
    }
    note(s, typical_s(run_gemm, &x, sweep_target_s));
}

static const int grid[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

static int grid_size(const struct dtp_measure_options *o) {
    int n = 0;
    while (n < (int)(sizeof grid / sizeof *grid) && grid[n] <= o->largest)
        n++;
    return n;
}

static void gemms(struct sweep *s) {
    int n = grid_size(s->o);
    for (int pass = DTP_GEMM_FORWARD; pass <= DTP_GEMM_WGRAD; pass++)
        for (int i = 0; i < n * n * n; i++)
            add_gemm(s, (enum dtp_gemm_pass)pass, grid[i / n / n], grid[i / n % n], grid[i % n]);
}

/* ---- attention: HEADS heads of one sequence, qkv rows as they lie in a layer, with keys of their own and
 * with one head of keys; with dropout their own only ---- */

enum { HEADS = 4 };
static const int attention_group[] = {1, HEADS};
static const int attention_seq[] = {16, 32, 64, 128, 256, 512};
static const int attention_dim[] = {16, 32, 64, 128};
enum {
    NSEQ = sizeof attention_seq / sizeof *attention_seq,
    NDIM = sizeof attention_dim / sizeof *attention_dim,
    NGROUP = sizeof attention_group / sizeof *attention_group
};

struct attention {
    struct sweep *s;
    struct dtp_attention_args x;
    bool backward;
};

static void run_attention(void *context, int i) {
    struct attention *t = context;
    struct dtp_attention_args x = t->x;
    int64_t width = HEADS * x.head_dim, keys = x.kv_heads * x.head_dim, n = x.qkv_stride * x.seq;
    float *qkv = part(t->s->pool, n, i), *grad = part(t->s->other, n, i);
    x.q = qkv;
    x.k = qkv + width;
    x.v = qkv + width + keys;
    x.out = part(t->s->other + POOL_FLOATS, width * x.seq, i);
    x.dout = x.out;
    x.dq = grad;
    x.dk = grad + width;
    x.dv = grad + width + keys;
    x.saved = t->s->saved;
    x.workspace = t->s->workspace;
    if (t->backward)
        t->s->ops->attention_backward(t->s->dev, &x);
    else
        t->s->ops->attention_forward(t->s->dev, &x);
}

/* Measures forward, then backward, in the order of the tables with groups innermost. */
static void attentions(struct sweep *s, int ngroups, double dropout) {
    for (int i = 0; i < 2 * NSEQ * NDIM * ngroups; i++) {
        int at = i / ngroups;
        int64_t seq = attention_seq[at / NDIM % NSEQ], dim = attention_dim[at % NDIM];
        int64_t keys = HEADS / attention_group[i % ngroups];
        struct attention t = {.s = s,
                              .backward = at >= NSEQ * NDIM,
                              .x = {.batch = 1,
                                    .seq = seq,
                                    .heads = HEADS,
                                    .kv_heads = keys,
                                    .head_dim = dim,
                                    .qkv_stride = (HEADS + 2 * keys) * dim,
                                    .out_stride = HEADS * dim,
                                    .dropout = dtp_dropout_of(dropout, 1, 0, 0, 0)}};
        note(s, typical_s(run_attention, &t, sweep_target_s) / HEADS);
    }
}

/* ---- the processes ---- */

struct job {
    const struct dtp_measure_options *o;
    struct dtp_measure_board *board;
};

/* Allocates activations as they are early in training: about normal, a quarter wide. They have no pattern, since
 * functions such as tanh branch on their argument and processors learn patterns. */
static float *take(struct sweep *s, int64_t n) {
    float *p = dtp_heap_alloc(s->dev->heap, DTP_MEM_BUFFERS, "measure", (uint64_t)n * sizeof *p);
    struct dtp_rng rng = dtp_rng_stream(1, (uint64_t)n);
    for (int64_t i = 0; p && i < n; i++) {
        uint64_t bits = dtp_rng_next(&rng); /* four uniforms of 16 bits: variance 1/3 of a unit */
        uint64_t sum =
            (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        p[i] = ((float)sum / 65536.0F - 2.0F) * 0.43F;
    }
    return p;
}

static enum dtp_status open_sweep(struct dtp_arena *a, struct sweep *s, int rank,
                                  struct dtp_err *err) {
    const struct dtp_dev_config config = {.index = rank,
                                          .nlocal = 1,
                                          .memory_bytes = HEAP_BYTES,
                                          .dtype = DTP_FP32,
                                          .grad_dtype = DTP_FP32};
    const int64_t longest = attention_seq[NSEQ - 1];
    dtp_os_pin(rank);
    DTP_TRY(dtp_dev_find(s->o->backend, &s->ops, err));
    DTP_TRY(s->ops->open(a, &config, &s->dev, err));
    s->pool = take(s, POOL_FLOATS);
    s->other = take(s, 2 * POOL_FLOATS);
    s->large = take(s, 4 * LARGE_FLOATS);
    s->saved = take(s, HEADS * longest * longest);
    s->workspace = take(s, longest * longest);
    s->rows = take(s, COLS);
    s->ids = DTP_NEW(a, int32_t, ROWS);
    for (int i = 0; i < ROWS; i++)
        s->ids[i] = i * 37 % ROWS;
    for (int64_t i = 0; i < 4 * LARGE_FLOATS; i++)
        s->large[i] = i < LARGE_FLOATS / 2 ? 0.01F : 1.0F; /* second moments above 0 */
    return DTP_OK;
}

static enum dtp_status sweep_rank(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    struct dtp_arena *a = dtp_arena_create("measure");
    struct sweep s = {.o = job->o, .time_s = job->board->time_s, .writes = rank == 0};
    enum dtp_status status = open_sweep(a, &s, rank, err);
    for (int round = 0; status == DTP_OK && round < job->o->rounds; round++) {
        s.n = 0;
        gemms(&s);
        attentions(&s, NGROUP, 0);
        attentions(&s, 1, DTP_MEASURE_DROPOUT);
        time_classes(&s);
    }
    if (s.dev)
        s.ops->close(s.dev);
    dtp_arena_destroy(a);
    return status;
}

static struct dtp_doubles axis(struct dtp_arena *a, const int *at, int n) {
    struct dtp_doubles d = {DTP_NEW(a, double, (size_t)n), (size_t)n};
    for (int i = 0; i < n; i++)
        d.at[i] = at[i];
    return d;
}

static const double *take_table(struct dtp_arena *a, const double *from,
                                struct dtp_time_table *out) {
    size_t n = out->axis[0].n * out->axis[1].n * out->axis[2].n;
    out->time_s = (struct dtp_doubles){DTP_NEW(a, double, n), n};
    memcpy(out->time_s.at, from, n * sizeof *from);
    return from + n;
}

static void read_board(struct dtp_arena *a, const struct dtp_measure_options *o,
                       const double *time_s, struct dtp_measured *out) {
    int n = grid_size(o);
    for (int i = DTP_TABLE_GEMM_FORWARD; i <= DTP_TABLE_GEMM_WGRAD; i++) {
        for (int d = 0; d < 3; d++)
            out->table[i].axis[d] = axis(a, grid, n);
        time_s = take_table(a, time_s, &out->table[i]);
    }
    for (int i = DTP_TABLE_ATTENTION_FORWARD; i <= DTP_TABLE_ATTENTION_DROPOUT_BACKWARD; i++) {
        out->table[i].axis[0] = axis(a, attention_seq, NSEQ);
        out->table[i].axis[1] = axis(a, attention_dim, NDIM);
        bool drops = i >= DTP_TABLE_ATTENTION_DROPOUT_FORWARD;
        out->table[i].axis[2] = axis(a, attention_group, drops ? 1 : NGROUP);
        time_s = take_table(a, time_s, &out->table[i]);
    }
    for (int i = 0; i < NCLASSES; i++)
        out->elements_per_s[class_rows[i].kernel] =
            (double)(class_rows[i].rows * class_rows[i].cols) / time_s[i];
    out->copy_bytes_per_s = 2.0 * POOL_FLOATS * sizeof(float) / time_s[NCLASSES];
    out->gap_s = time_s[NCLASSES + 1];
    for (int i = 0; i < NGATED; i++)
        out->gated_factor[DTP_K_ACTIVATION + i] =
            time_s[NCLASSES + 2 + i] * out->elements_per_s[DTP_K_ACTIVATION + i] / (ROWS * COLS);
}

static enum dtp_status measure_kernels(struct dtp_arena *a, const struct dtp_measure_options *o,
                                       struct dtp_measured *out, struct dtp_err *err) {
    struct dtp_measure_board *board = dtp_os_map(sizeof *board, true);
    if (!board)
        return dtp_fail(err, DTP_ENOMEM, "cannot map memory for the measured times");
    if (o->progress)
        o->progress(o->context, "kernels");
    struct job job = {o, board};
    const struct dtp_fork f = {
        .nranks = out->ncores, .run = sweep_rank, .context = &job, .grace_s = 1};
    enum dtp_status status = dtp_launch_fork(&f, err);
    if (status == DTP_OK)
        read_board(a, o, board->time_s, out);
    munmap(board, sizeof *board);
    return status;
}

/* ---- all of it ---- */

struct dtp_measure_options dtp_measure_default(void) {
    return (struct dtp_measure_options){
        .backend = "cpu", .nranks = 4, .rounds = 3, .largest = 1024};
}

enum dtp_status dtp_measure(struct dtp_arena *a, const struct dtp_measure_options *o,
                            struct dtp_measured *out, struct dtp_err *err) {
    if (strcmp(o->backend, "cpu") != 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the %s backend is not measured from here",
                        o->backend);
    const struct dtp_dev_ops *device;
    DTP_TRY(
        dtp_dev_find(o->backend, &device, err)); /* before processes fork that could not say it */
    int64_t start_ns = dtp_os_now_ns();
    *out = (struct dtp_measured){.ncores = dtp_os_num_cores()};
    DTP_TRY(measure_kernels(a, o, out, err));
    DTP_TRY(dtp_measure_collectives(a, o, out, err));
    out->seconds = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    return DTP_OK;
}
