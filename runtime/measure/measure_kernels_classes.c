/* Times of memory-bound kernels, by class, and of the gap between kernels. */
#include "runtime/measure/measure_kernels_private.h"

struct class_run {
    struct dtp_sweep *s;
    int64_t rows, cols;
};

static struct dtp_norm_args norm_of(const struct class_run *c, int i) {
    struct dtp_sweep *s = c->s;
    int64_t n = c->rows * c->cols;
    return (struct dtp_norm_args){.rows = c->rows,
                                  .cols = c->cols,
                                  .epsilon = 1e-5,
                                  .x = dtp_sweep_part(s->pool, n, i),
                                  .weight = s->rows,
                                  .bias = s->rows,
                                  .y = dtp_sweep_part(s->other, n, i),
                                  .mean = s->saved,
                                  .rstd = s->saved + c->rows,
                                  .dy = dtp_sweep_part(s->other, n, i),
                                  .residual = dtp_sweep_part(s->pool, n, i + 1),
                                  .dx = dtp_sweep_part(s->other + POOL_FLOATS, n, i),
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
                                 .x = dtp_sweep_part(c->s->pool, in, i),
                                 .y = dtp_sweep_part(c->s->other, n, i),
                                 .dy = dtp_sweep_part(c->s->other + POOL_FLOATS, n, i),
                                 .dx = dtp_sweep_part(c->s->other, in, i)};
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
    struct dtp_sweep *s = c->s;
    return (struct dtp_loss_args){.logits = dtp_sweep_part(s->other, c->rows * c->cols, i),
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
    struct dtp_sweep *s = c->s;
    int64_t n = c->rows * c->cols;
    float *out = dtp_sweep_part(s->other, n, i);
    const struct dtp_residual_args x = {.out = out,
                                        .x = out,
                                        .bias = s->rows,
                                        .residual = dtp_sweep_part(s->pool, n, i),
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
    c->s->ops->bias_backward(c->s->dev, c->s->workspace,
                             dtp_sweep_part(c->s->pool, c->rows * c->cols, i),
                             (const int64_t[2]){c->rows, c->cols});
}

static void run_copy(void *context, int i) {
    struct class_run *c = context;
    int64_t n = c->rows * c->cols;
    c->s->ops->copy(c->s->dev, dtp_sweep_part(c->s->other, n, i), dtp_sweep_part(c->s->pool, n, i),
                    (uint64_t)n * sizeof(float));
}

static void run_embed(void *context, int i) {
    struct class_run *c = context;
    struct dtp_sweep *s = c->s;
    const struct dtp_embedding_args x = {.ids = s->ids,
                                         .rows = c->rows,
                                         .cols = c->cols,
                                         .valid = ROWS,
                                         .batch = 1,
                                         .table = s->pool,
                                         .out = dtp_sweep_part(s->other, c->rows * c->cols, i)};
    s->ops->embed(s->dev, &x);
}

static void run_rope(void *context, int i) {
    struct class_run *c = context;
    const struct dtp_rope_args x = {.x = dtp_sweep_part(c->s->pool, c->rows * c->cols, i),
                                    .rows = c->rows,
                                    .batch = 1,
                                    .heads = c->cols / 64,
                                    .head_dim = 64,
                                    .row_stride = c->cols,
                                    .theta = 10000};
    c->s->ops->rope(c->s->dev, &x);
}

/* Clipping's norm and the update. */
static void run_optimizer(void *context, int i) {
    struct class_run *c = context;
    struct dtp_sweep *s = c->s;
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

/* A kernel of hardly any work with the tensor it writes. */
static void run_gap(void *context, int i) {
    enum { CALLS = 64, LIVE = 64 };
    struct class_run *c = context;
    struct dtp_sweep *s = c->s;
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

const struct dtp_sweep_class dtp_sweep_class_rows[NCLASSES] = {
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

void dtp_sweep_classes(struct dtp_sweep *s) {
    for (int i = 0; i < NCLASSES; i++) {
        const struct dtp_sweep_class *r = &dtp_sweep_class_rows[i];
        struct class_run c = {s, r->rows, r->cols};
        dtp_sweep_note(s, dtp_measure_typical_s(r->run, &c, sweep_target_s));
    }
    struct class_run large = {s, POOL_FLOATS / COLS, COLS}, gap = {s, 1, 1}, one = {s, ROWS, COLS};
    dtp_sweep_note(s, dtp_measure_typical_s(run_copy, &large, 4 * sweep_target_s));
    dtp_sweep_note(s, dtp_measure_typical_s(run_gap, &gap, sweep_target_s) / GAP_CALLS);
    dtp_sweep_note(s, dtp_measure_typical_s(run_gated, &one, sweep_target_s));
    dtp_sweep_note(s, dtp_measure_typical_s(run_gated_backward, &one, sweep_target_s));
}
