/* The kernel sweep. Every process walks the same list; rank 0's times count. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/launch.h"
#include "runtime/measure/measure_kernels_private.h"
#include "runtime/os_linux.h"
#include "sim/base/rng.h"

float *dtp_sweep_part(float *pool, int64_t n, int i) {
    int64_t places = n > 0 && POOL_FLOATS / n > 1 ? POOL_FLOATS / n : 1;
    return pool + i % places * n;
}

void dtp_sweep_note(struct dtp_sweep *s, double time_s) {
    if (s->writes && (s->time_s[s->n] <= 0 || time_s < s->time_s[s->n]))
        s->time_s[s->n] = time_s;
    s->n++;
}

/* ---- GEMM ---- */

struct gemm {
    struct dtp_sweep *s;
    struct dtp_gemm_args g;
};

/* Weights stay, activations move. */
static void run_gemm(void *context, int i) {
    struct gemm *x = context;
    struct dtp_gemm_args g = x->g;
    g.a = dtp_sweep_part(x->s->pool, g.m * g.k, i);
    g.b = dtp_sweep_part(x->s->other, g.k * g.n, g.c_gradient ? i : 0);
    g.c = dtp_sweep_part(x->s->other + POOL_FLOATS, g.m * g.n, g.c_gradient ? 0 : i);
    x->s->ops->gemm(x->s->dev, &g);
}

/* As transformer_comm.c calls it: y = x W', dx = dy W, dW += dy' x. */
static void add_gemm(struct dtp_sweep *s, enum dtp_gemm_pass pass, int64_t m, int64_t n,
                     int64_t k) {
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
    dtp_sweep_note(s, dtp_measure_typical_s(run_gemm, &x, sweep_target_s));
}

static const int grid[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

static int grid_size(const struct dtp_measure_options *o) {
    int n = 0;
    while (n < (int)(sizeof grid / sizeof *grid) && grid[n] <= o->largest)
        n++;
    return n;
}

static void gemms(struct dtp_sweep *s) {
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
    struct dtp_sweep *s;
    struct dtp_attention_args x;
    bool backward;
};

static void run_attention(void *context, int i) {
    struct attention *t = context;
    struct dtp_attention_args x = t->x;
    int64_t width = HEADS * x.head_dim, keys = x.kv_heads * x.head_dim, n = x.qkv_stride * x.seq;
    float *qkv = dtp_sweep_part(t->s->pool, n, i), *grad = dtp_sweep_part(t->s->other, n, i);
    x.q = qkv;
    x.k = qkv + width;
    x.v = qkv + width + keys;
    x.out = dtp_sweep_part(t->s->other + POOL_FLOATS, width * x.seq, i);
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

/* Forward, then backward: the tables' order, groups innermost. */
static void attentions(struct dtp_sweep *s, int ngroups, double dropout) {
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
        dtp_sweep_note(s, dtp_measure_typical_s(run_attention, &t, sweep_target_s) / HEADS);
    }
}

/* ---- the processes ---- */

struct job {
    const struct dtp_measure_options *o;
    struct dtp_measure_board *board;
};

/* Activations early in training: about normal, a quarter wide. Without any pattern, since functions such
 * as tanh branch on their argument and processors learn patterns. */
static float *take(struct dtp_sweep *s, int64_t n) {
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

static enum dtp_status open_sweep(struct dtp_arena *a, struct dtp_sweep *s, int rank,
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
    struct dtp_sweep s = {.o = job->o, .time_s = job->board->time_s, .writes = rank == 0};
    enum dtp_status status = open_sweep(a, &s, rank, err);
    for (int round = 0; status == DTP_OK && round < job->o->rounds; round++) {
        s.n = 0;
        gemms(&s);
        attentions(&s, NGROUP, 0);
        attentions(&s, 1, DTP_MEASURE_DROPOUT);
        dtp_sweep_classes(&s);
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
        out->elements_per_s[dtp_sweep_class_rows[i].kernel] =
            (double)(dtp_sweep_class_rows[i].rows * dtp_sweep_class_rows[i].cols) / time_s[i];
    out->copy_bytes_per_s = 2.0 * POOL_FLOATS * sizeof(float) / time_s[NCLASSES];
    out->gap_s = time_s[NCLASSES + 1];
    for (int i = 0; i < NGATED; i++)
        out->gated_factor[DTP_K_ACTIVATION + i] =
            time_s[NCLASSES + 2 + i] * out->elements_per_s[DTP_K_ACTIVATION + i] / (ROWS * COLS);
}

enum dtp_status dtp_measure_kernels(struct dtp_arena *a, const struct dtp_measure_options *o,
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
