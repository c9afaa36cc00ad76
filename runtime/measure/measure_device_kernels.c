/* Times of a device's kernels: products, attention, memory-bound ones by class; and of a launch. */
#include "runtime/launch.h"
#include "runtime/measure/measure_device_internal.h"
#include "runtime/os_linux.h"

/* ---- GEMM, as transformer_comm.c calls it: y = x W', dx = dy W, dW += dy' x ---- */

void dtp_bench_run_gemm(void *context, int i) {
    const struct dtp_bench_gemm *x = context;
    struct dtp_gemm_args g = x->g;
    int64_t e = dtp_bench_element_bytes(x->b), out = g.c_gradient ? (int64_t)sizeof(float) : e;
    g.a = dtp_bench_part(x->b, 0, g.m * g.k * e, i);
    g.b = dtp_bench_part(x->b, 1, g.k * g.n * e, i);
    g.c = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i);
    if (x->gelu && g.tb)
        g.before = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i + 1);
    else if (x->gelu)
        g.slope_at = dtp_bench_part(x->b, POOL_C, g.m * g.n * out, i + 1);
    x->b->ops->gemm(x->b->dev, &g);
}

static bool fits(const struct dtp_bench *b, const struct dtp_gemm_args *g) {
    uint64_t e = (uint64_t)dtp_bench_element_bytes(b), out = g->c_gradient ? sizeof(float) : e;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    uint64_t most = b->grid->most_bytes;
    return m * k * e <= b->pool_bytes[0] && k * n * e <= b->pool_bytes[1] &&
           m * n * out <= b->pool_bytes[POOL_C] && m * n * out <= most && k * n * e <= most;
}

struct dtp_bench_gemm dtp_bench_gemm_of(struct dtp_bench *b, enum dtp_gemm_pass pass,
                                        const int64_t mnk[3]) {
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct dtp_bench_gemm x = {.b = b, .g = {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n}};
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
    return x;
}

/* before: k of the entry before this one, when m and n are the same; else 0. Calls that are longer than LONG_S run
 * into the limit of power while their kernel is chosen: their clock is that of the entry before, at whose rate
 * they work (along k products of 14 us and of 800 us are within 6 %). */
static const double LONG_S = 2.5e-4;
static void add_gemm(struct dtp_bench *b, const struct dtp_bench_gemm *like, int64_t before) {
    struct dtp_bench_gemm x = *like;
    int64_t k = x.g.k;
    bool has_last = b->n > 0 && b->n <= b->capacity;
    double time_s = 0, clock = 1;
    if (fits(b, &x.g)) {
        time_s = dtp_bench_product_s(b, dtp_bench_run_gemm, &x);
        clock = dtp_bench_clock(b);
        if (before > 0 && has_last && time_s / clock > LONG_S)
            clock = b->clock[b->n - 1];
    } else if (before > 0 && has_last) {
        time_s = b->time_s[b->n - 1] * (double)k / (double)before;
        clock = b->clock[b->n - 1];
    }
    dtp_bench_note(b, time_s, clock);
}

static void gemms_of(struct dtp_bench *b, enum dtp_gemm_pass pass, bool gelu) {
    const struct dtp_measure_grid *grid = b->grid;
    const int *x = pass == DTP_GEMM_WGRAD ? grid->width : grid->tokens,
              *y = gelu ? grid->gelu_n : grid->width,
              *z = gelu                     ? grid->gelu_k
                   : pass == DTP_GEMM_WGRAD ? grid->tokens
                                            : grid->width;
    for (int i = 0; x[i]; i++)
        for (int j = 0; y[j]; j++)
            for (int k = 0; z[k]; k++) {
                struct dtp_bench_gemm g = dtp_bench_gemm_of(b, pass, (int64_t[]){x[i], y[j], z[k]});
                g.gelu = gelu;
                add_gemm(b, &g, k > 0 ? z[k - 1] : 0);
            }
}

void dtp_bench_gemms(struct dtp_bench *b) {
    for (int pass = DTP_GEMM_FORWARD; pass <= DTP_GEMM_WGRAD; pass++)
        gemms_of(b, (enum dtp_gemm_pass)pass, false);
}

void dtp_bench_gelus(struct dtp_bench *b) {
    gemms_of(b, DTP_GEMM_FORWARD, true);
    gemms_of(b, DTP_GEMM_DGRAD, true);
}

/* ---- attention ---- */

void dtp_bench_run_attention(void *context, int i) {
    const struct dtp_bench_attention *t = context;
    struct dtp_bench *b = t->b;
    struct dtp_attention_args x = t->x;
    int64_t e = dtp_bench_element_bytes(b), width = x.heads * x.head_dim, rows = x.seq * x.batch;
    char *qkv = dtp_bench_part(b, 0, 3 * width * rows * e, i),
         *grad = dtp_bench_part(b, 1, 3 * width * rows * e, i);
    x.q = qkv;
    x.k = qkv + width * e;
    x.v = qkv + 2 * width * e;
    x.out = dtp_bench_part(b, POOL_C, width * rows * e, i);
    x.dout = dtp_bench_part(b, POOL_C, width * rows * e, i + 1);
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

/* As many sequences of HEADS heads as give the number of heads, or one of so many. */
static struct dtp_attention_args attention_of(const struct dtp_bench *b, const int at[3],
                                              double dropout) {
    enum { HEADS = 8 };
    const struct dtp_measure_grid *g = b->grid;
    int64_t all = g->heads[at[2]], heads = all % HEADS ? all : HEADS, dim = g->head_dim[at[1]];
    return (struct dtp_attention_args){.batch = all / heads,
                                       .seq = g->seq[at[0]],
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .head_dim = dim,
                                       .qkv_stride = 3 * heads * dim,
                                       .out_stride = heads * dim,
                                       .dropout = dtp_dropout_of(dropout, 1, 0, 0, 0)};
}

void dtp_bench_attentions(struct dtp_bench *b, bool backward, double dropout) {
    const struct dtp_measure_grid *g = b->grid;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int h = 0; g->heads[h]; h++) {
                struct dtp_bench_attention t = {
                    .b = b,
                    .backward = backward,
                    .x = attention_of(b, (const int[3]){s, d, h}, dropout)};
                double time_s = dtp_bench_product_s(b, dtp_bench_run_attention, &t);
                dtp_bench_note(b, time_s, dtp_bench_clock(b));
            }
}

static int length(const int *axis) {
    int n = 0;
    while (axis[n])
        n++;
    return n;
}

struct dtp_bench_attention dtp_bench_attention_of(struct dtp_bench *b, bool backward,
                                                  double dropout) {
    const struct dtp_measure_grid *g = b->grid;
    const int at[3] = {length(g->seq) * 3 / 4, length(g->head_dim) - 1, length(g->heads) * 2 / 3};
    return (struct dtp_bench_attention){
        .b = b, .backward = backward, .x = attention_of(b, at, dropout)};
}

double dtp_bench_attention_flops(const struct dtp_bench_attention *t) {
    const struct dtp_attention_shape s = {.causal = true,
                                          .backward = t->backward,
                                          .batch = t->x.batch,
                                          .heads = t->x.heads,
                                          .kv_heads = t->x.kv_heads,
                                          .seq_q = t->x.seq,
                                          .seq_kv = t->x.seq,
                                          .head_dim = t->x.head_dim};
    return dtp_attention_flops(&s);
}

uint64_t dtp_bench_attention_bytes(const struct dtp_bench *b, bool workspace) {
    const struct dtp_measure_grid *g = b->grid;
    uint64_t most = 0;
    for (int s = 0; g->seq[s]; s++)
        for (int d = 0; g->head_dim[d]; d++)
            for (int i = 0; g->heads[i / 2]; i++) {
                struct dtp_attention_args x =
                    attention_of(b, (const int[3]){s, d, i / 2}, i % 2 * DTP_MEASURE_DROPOUT);
                uint64_t bytes = workspace ? b->ops->attention_workspace_bytes(b->dev, &x)
                                           : b->ops->attention_saved_bytes(b->dev, &x);
                most = bytes > most ? bytes : most;
            }
    return most;
}

/* ---- classes, and the host's time of a launch ---- */

static int64_t class_elements(const struct dtp_bench *b) {
    return (int64_t)b->grid->class_rows * b->grid->class_cols;
}

static void *tensor(const struct dtp_bench *b, int pool, int i) {
    return dtp_bench_part(b, pool, class_elements(b) * dtp_bench_element_bytes(b), i);
}

static struct dtp_norm_args norm_of(const struct dtp_bench *b, int i) {
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
    struct dtp_bench *b = context;
    const struct dtp_norm_args n = norm_of(b, i);
    b->ops->norm_forward(b->dev, &n);
}

static void run_norm_backward(void *context, int i) {
    struct dtp_bench *b = context;
    const struct dtp_norm_args n = norm_of(b, i);
    b->ops->norm_backward(b->dev, &n);
}

static struct dtp_act_args act_of(const struct dtp_bench *b, int i) {
    return (struct dtp_act_args){.fn = DTP_ACT_FN_GELU,
                                 .rows = b->grid->class_rows,
                                 .cols = b->grid->class_cols,
                                 .x = tensor(b, 0, i),
                                 .y = tensor(b, POOL_C, i),
                                 .dy = tensor(b, 1, i),
                                 .dx = tensor(b, POOL_C, i)};
}

static void run_act(void *context, int i) {
    struct dtp_bench *b = context;
    const struct dtp_act_args x = act_of(b, i);
    b->ops->act_forward(b->dev, &x);
}

static void run_act_backward(void *context, int i) {
    struct dtp_bench *b = context;
    const struct dtp_act_args x = act_of(b, i);
    b->ops->act_backward(b->dev, &x);
}

static struct dtp_loss_args loss_of(const struct dtp_bench *b, int i) {
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
    struct dtp_bench *b = context;
    const struct dtp_loss_args x = loss_of(b, i);
    b->ops->loss_max(b->dev, &x);
    b->ops->loss_sum(b->dev, &x);
    b->ops->loss_mean(b->dev, &x);
}

static void run_loss_grad(void *context, int i) {
    struct dtp_bench *b = context;
    const struct dtp_loss_args x = loss_of(b, i);
    b->ops->loss_grad(b->dev, &x);
}

static void residual(struct dtp_bench *b, int i, double dropout) {
    const struct dtp_residual_args x = {.out = tensor(b, POOL_C, i),
                                        .x = tensor(b, 0, i),
                                        .bias = b->rows,
                                        .residual = tensor(b, 1, i),
                                        .rows = b->grid->class_rows,
                                        .cols = b->grid->class_cols,
                                        .batch = 1,
                                        .dropout = dtp_dropout_of(dropout, 1, (uint32_t)i, 0, 0)};
    b->ops->bias_residual(b->dev, &x);
}

static void run_residual(void *context, int i) {
    residual(context, i, 0);
}

static void run_dropout(void *context, int i) {
    residual(context, i, DTP_MEASURE_DROPOUT);
}

static void run_bias_gradient(void *context, int i) {
    struct dtp_bench *b = context;
    b->ops->bias_backward(b->dev, b->workspace, tensor(b, 0, i),
                          (const int64_t[2]){b->grid->class_rows, b->grid->class_cols});
}

static void run_copy(void *context, int i) {
    struct dtp_bench *b = context;
    b->ops->copy(b->dev, tensor(b, 0, i), tensor(b, 1, i),
                 (uint64_t)(class_elements(b) * dtp_bench_element_bytes(b)));
}

/* The rows, then their gradients: a class for both. */
static void run_embed(void *context, int i) {
    struct dtp_bench *b = context;
    struct dtp_embedding_args x = {.ids = b->ids,
                                   .rows = b->grid->class_rows,
                                   .cols = b->grid->class_cols,
                                   .valid = b->nids,
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
    struct dtp_bench *b = context;
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
    struct dtp_bench *b = context;
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
    const struct dtp_norm2_args norm = {.sum = b->workspace, .nruns = 1, .run = {{t.grad, n, 1}}};
    b->ops->norm2(b->dev, &norm);
    b->ops->adamw(b->dev, &h, &t, 1);
}

const struct dtp_bench_class dtp_bench_class_rows[NCLASSES] = {
    {DTP_K_NORM, run_norm},
    {DTP_K_NORM_BACKWARD, run_norm_backward},
    {DTP_K_ACTIVATION, run_act},
    {DTP_K_ACTIVATION_BACKWARD, run_act_backward},
    {DTP_K_CROSS_ENTROPY, run_loss},
    {DTP_K_SOFTMAX, run_loss_grad},
    {DTP_K_ELEMENTWISE, run_residual},
    {DTP_K_DROPOUT, run_dropout},
    {DTP_K_REDUCE, run_bias_gradient},
    {DTP_K_COPY, run_copy},
    {DTP_K_EMBEDDING, run_embed},
    {DTP_K_ROPE, run_rope},
    {DTP_K_OPTIMIZER, run_optimizer}, /* last: it leaves its state in the pools */
};

struct dtp_measure_grid dtp_bench_small_grid(const struct dtp_measure_grid *g) {
    enum { FEWER_ROWS = 8, FEWER_COLS = 2 };
    struct dtp_measure_grid small = *g;
    small.class_rows /= FEWER_ROWS;
    small.class_cols /= FEWER_COLS;
    return small;
}

/* Time of a class at each point; of points beyond the pools in proportion to the one before. */
static void class_table(struct dtp_bench *b, const struct dtp_bench_class *x) {
    const struct dtp_measure_grid *grid = b->grid;
    for (int i = 0; grid->rows[i]; i++)
        for (int j = 0; grid->cols[j]; j++) {
            struct dtp_measure_grid at = *grid;
            at.class_rows = grid->rows[i];
            at.class_cols = grid->cols[j];
            b->grid = &at;
            uint64_t bytes = (uint64_t)(class_elements(b) * dtp_bench_element_bytes(b));
            if (bytes <= b->pool_bytes[0] || j == 0)
                dtp_bench_note(b, dtp_bench_measured_s(b, x->run, b), 1);
            else
                dtp_bench_note(b, b->time_s[b->n - 1] * grid->cols[j] / grid->cols[j - 1], 1);
            b->grid = grid;
        }
}

/* ---- as graphs, where the device has them: kernels so short that the host matters run so ---- */

static bool record(struct dtp_bench *b, dtp_bench_fn *run, void *context, int n) {
    if (!b->ops->record || !b->ops->record(b->dev, 0, true))
        return false;
    for (int i = 0; i < n; i++)
        run(context, i);
    return b->ops->record(b->dev, 0, false) > 0;
}

static void run_recorded(void *context, int i) {
    struct dtp_bench *b = context;
    (void)i;
    b->ops->replay(b->dev, 0);
}

/* Host time of a small product and of a small kernel with the tensor that it writes, as they come in a
 * layer: four to six. */
enum { LAUNCH_GEMMS = 4, LAUNCHES = LAUNCH_GEMMS + 6 };

static void run_launches(void *context, int round) {
    enum { SMALL = 64 };
    struct dtp_bench *b = context;
    struct dtp_bench_gemm x = {.b = b,
                               .g = {.m = SMALL,
                                     .n = SMALL,
                                     .k = SMALL,
                                     .lda = SMALL,
                                     .ldb = SMALL,
                                     .ldc = SMALL,
                                     .tb = true}};
    const struct dtp_residual_args sum = {
        .out = b->pool[0], .x = b->pool[1], .bias = b->rows, .rows = 1, .cols = SMALL, .batch = 1};
    (void)round;
    for (int i = 0; i < LAUNCHES; i++) {
        void *live = dtp_heap_alloc(b->dev->heap, DTP_MEM_BUFFERS, "launch", SMALL);
        if (i < LAUNCH_GEMMS)
            dtp_bench_run_gemm(&x, 0);
        else
            b->ops->bias_residual(b->dev, &sum);
        dtp_heap_release(b->dev->heap, live);
    }
}

static double launch_time_s(struct dtp_bench *b) {
    enum { CALLS = 40, IN_A_GRAPH = 4 };
    run_launches(b, 0);
    bool recorded = record(b, run_launches, b, IN_A_GRAPH);
    if (recorded)
        run_recorded(b, 0);
    b->ops->sync(b->dev);
    int64_t start_ns = dtp_os_now_ns();
    for (int i = 0; i < CALLS; i += recorded ? IN_A_GRAPH : 1)
        (recorded ? run_recorded : run_launches)(b, i);
    double t = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S / (CALLS * LAUNCHES);
    b->ops->sync(b->dev);
    return t;
}

void dtp_bench_classes(struct dtp_bench *b) {
    const struct dtp_measure_grid *grid = b->grid;
    const struct dtp_measure_grid small = dtp_bench_small_grid(grid);
    for (int i = 0; i < NTABLED; i++)
        class_table(b, &dtp_bench_class_rows[i]);
    for (int i = 0; i < NCLASSES; i++) {
        b->grid = grid;
        dtp_bench_note(b, dtp_bench_measured_s(b, dtp_bench_class_rows[i].run, b), 1);
        b->grid = &small;
        dtp_bench_note(b, dtp_bench_measured_s(b, dtp_bench_class_rows[i].run, b), 1);
    }
    b->grid = grid;
    dtp_bench_note(b, launch_time_s(b), 1);
}
