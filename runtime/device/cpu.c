/* The CPU as a device: fp32, one thread per rank, GEMMs by OpenBLAS. */
#include "runtime/device/cpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "sim/base/machine.h"

enum { MAX_BLOCKS = 1 << 16 };

struct cpu_blas {
    const char *name;
    void (*sgemm)(const char *transa, const char *transb, const int *m, const int *n, const int *k,
                  const float *alpha, const float *a, const int *lda, const float *b,
                  const int *ldb, const float *beta, float *c, const int *ldc);
};

struct cpu {
    struct dtp_dev dev;
    struct cpu_blas blas;
    void *base;
    uint64_t size_bytes;
    int64_t *mark_ns; /* [DTP_DEV_MARKS], grows by touching */
};

/* The library of the products is opened at run time: a planner that computes none of them then needs neither the
 * library nor its memory, some 100 MB of addresses. Its Fortran interface (column-major) is what is called:
 * every library has it, and GSL's reference BLAS, which the calibration links, has only the other. */
static const char *const blas_names[] = {"libopenblas.so.0", "libopenblas.so", "libblas.so.3",
                                         NULL};

/* OpenBLAS spins for ever where it finds no room for its buffers, so make sure that there is some. */
static enum dtp_status check_room(struct dtp_err *err) {
    const uint64_t room_bytes = 256 * (uint64_t)DTP_MIB; /* 0.3.21 takes 173 with its code */
    void *room = dtp_os_map(room_bytes, false);
    if (!room)
        return dtp_fail(err, DTP_ENOMEM, "no memory for the library of matrix products (OpenBLAS)");
    munmap(room, (size_t)room_bytes);
    return DTP_OK;
}

static enum dtp_status open_blas(struct cpu_blas *out, struct dtp_err *err) {
    void *library = dlopen(blas_names[0], RTLD_NOW | RTLD_NOLOAD);
    out->name = blas_names[0];
    if (!library)
        DTP_TRY(check_room(err));
    /* ranks have a core each; threads that are never started cost no memory either */
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (int i = 0; blas_names[i] && !library; i++) {
        library = dlopen(blas_names[i], RTLD_NOW | RTLD_LOCAL);
        out->name = blas_names[i];
    }
    void *sgemm = library ? dlsym(library, "sgemm_") : NULL;
    void *threads = library ? dlsym(library, "openblas_set_num_threads") : NULL;
    if (!sgemm)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "the cpu backend needs OpenBLAS (Debian: libopenblas0): %s",
                        library ? "no sgemm_ in it" : dlerror());
    memcpy(&out->sgemm, &sgemm,
           sizeof sgemm); /* ISO C has no cast between the two kinds of pointer */
    void (*set_threads)(int n) = NULL;
    memcpy(&set_threads, &threads, sizeof threads);
    if (set_threads)
        set_threads(1);
    return DTP_OK;
}

enum dtp_status dtp_cpu_dev_find(const struct dtp_dev_ops **out, struct dtp_err *err) {
    struct cpu_blas blas;
    *out = dtp_cpu_dev_ops();
    return open_blas(&blas, err);
}

static enum dtp_status cpu_open(struct dtp_arena *a, const struct dtp_dev_config *config,
                                struct dtp_dev **out, struct dtp_err *err) {
    if (config->dtype != DTP_FP32 || config->grad_dtype != DTP_FP32)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the cpu backend computes in fp32, not in %s",
                        dtp_dtype_names[config->dtype]);
    struct cpu *c = DTP_NEW(a, struct cpu, 1);
    int nlocal = config->nlocal > 0 ? config->nlocal : 1;
    c->size_bytes = config->memory_bytes ? config->memory_bytes
                                         : dtp_machine_memory("").total_bytes / (uint64_t)nlocal;
    c->base = dtp_os_map(c->size_bytes, false);
    if (!c->base)
        return dtp_fail(err, DTP_ENOMEM, "cannot map %llu bytes for a rank's memory",
                        (unsigned long long)c->size_bytes);
    DTP_TRY(open_blas(&c->blas, err));
    c->dev = (struct dtp_dev){.ops = dtp_cpu_dev_ops(),
                              .heap = dtp_heap_create(a, c->base, c->size_bytes, MAX_BLOCKS),
                              .dtype = DTP_FP32,
                              .grad_dtype = DTP_FP32};
    c->mark_ns = DTP_NEW(a, int64_t, DTP_DEV_MARKS);
    *out = &c->dev;
    return DTP_OK;
}

static void cpu_about(struct dtp_dev *d, struct dtp_dev_about *out) {
    const char *blas = ((struct cpu *)d)->blas.name;
    out->ndevices = dtp_os_num_cores();
    dtp_os_cpu_name(out->card, sizeof out->card);
    snprintf(out->versions, sizeof out->versions, "%s",
             strstr(blas, "openblas") ? "OpenBLAS" : blas);
}

static void cpu_close(struct dtp_dev *d) {
    struct cpu *c = (struct cpu *)d;
    munmap(c->base, (size_t)c->size_bytes);
}

/* Row-major C = A B is column-major C' = B' A'. */
void dtp_cpu_sgemm(const struct dtp_dev *d, const struct dtp_sgemm *g) {
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    const int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    const struct cpu_blas *blas = &((const struct cpu *)d)->blas;
    blas->sgemm(g->tb ? "T" : "N", g->ta ? "T" : "N", &n, &m, &k, &g->alpha, g->b, &ldb, g->a, &lda,
                &g->beta, g->c, &ldc);
}

/* ---- data movement ---- */

static void cpu_copy(struct dtp_dev *d, void *to, const void *from, uint64_t bytes) {
    (void)d;
    memmove(to, from, (size_t)bytes);
}

static void cpu_zero(struct dtp_dev *d, void *to, uint64_t bytes) {
    (void)d;
    memset(to, 0, (size_t)bytes);
}

static void cpu_cast(struct dtp_dev *d, void *to, enum dtp_dtype to_type, const void *from,
                     enum dtp_dtype from_type, int64_t n) {
    (void)d, (void)to_type, (void)from_type; /* all are fp32 */
    memmove(to, from, (size_t)n * sizeof(float));
}

static void cpu_event(struct dtp_dev *d, enum dtp_stream stream, int event) {
    (void)d, (void)stream, (void)event;
}

static bool cpu_event_done(struct dtp_dev *d, int event) {
    (void)d, (void)event;
    return true;
}

static void cpu_sync(struct dtp_dev *d) {
    (void)d;
}

static enum dtp_status cpu_check(struct dtp_dev *d, struct dtp_err *err) {
    (void)d, (void)err;
    return DTP_OK;
}

static uint64_t cpu_overhead_bytes(struct dtp_dev *d) {
    (void)d;
    return 0;
}

static void cpu_mark(struct dtp_dev *d, enum dtp_stream stream, int mark) {
    (void)stream;
    if (mark >= 0 && mark < DTP_DEV_MARKS)
        ((struct cpu *)d)->mark_ns[mark] = dtp_os_now_ns();
}

static int64_t cpu_mark_ns(struct dtp_dev *d, int mark) {
    return mark >= 0 && mark < DTP_DEV_MARKS ? ((struct cpu *)d)->mark_ns[mark] : 0;
}

static void cpu_pause(struct dtp_dev *d, enum dtp_stream stream, double time_s) {
    (void)d, (void)stream;
    int64_t end_ns = dtp_os_now_ns() + (int64_t)(time_s * (double)DTP_NS_PER_S);
    while (dtp_os_now_ns() < end_ns)
        dtp_os_relax();
}

static void cpu_fill(struct dtp_dev *d, void *to, uint64_t bytes) {
    (void)d;
    uint32_t *word = to;
    for (uint64_t i = 0; i < bytes / sizeof *word; i++)
        word[i] = dtp_dev_fill_word(i);
}

/* ---- elementwise and reductions ---- */

static void cpu_gemm(struct dtp_dev *d, const struct dtp_gemm_args *g) {
    float *c = g->before ? g->before : g->c;
    struct dtp_act_args act = {.fn = DTP_ACT_FN_GELU, .rows = g->m, .cols = g->n};
    float beta = g->accumulate || g->bias ? 1.0F : 0.0F;
    for (int64_t i = 0; g->bias && i < g->m; i++)
        memcpy(c + i * g->ldc, g->bias, (size_t)g->n * sizeof *c);
    const struct dtp_sgemm x = {.ta = g->ta,
                                .tb = g->tb,
                                .m = g->m,
                                .n = g->n,
                                .k = g->k,
                                .alpha = 1,
                                .beta = beta,
                                .a = g->a,
                                .b = g->b,
                                .c = c,
                                .lda = g->lda,
                                .ldb = g->ldb,
                                .ldc = g->ldc};
    dtp_cpu_sgemm(d, &x);
    if (g->before) {
        act.x = g->before;
        act.y = g->c;
        dtp_cpu_act_forward(d, &act);
    } else if (g->slope_at) {
        act.x = g->slope_at;
        act.dy = act.dx = g->c;
        dtp_cpu_act_backward(d, &act);
    }
}

/* Factors of a row: 0 or the scale of what is kept, eight features at a time. */
static void drop_block(const struct dtp_residual_args *x, int64_t row, int64_t first,
                       float factor[DTP_DROPOUT_BLOCK]) {
    struct dtp_dropout_bits bits = dtp_dropout_features(
        &x->dropout, (uint32_t)first, (uint32_t)(row / x->batch), (uint32_t)(row % x->batch));
    for (unsigned i = 0; i < DTP_DROPOUT_BLOCK; i++)
        factor[i] = dtp_dropout_keeps(&x->dropout, &bits, i) ? x->dropout.scale : 0.0F;
}

static void dropped_row(const struct dtp_residual_args *x, int64_t row) {
    int64_t at = row * x->cols;
    float *o = (float *)x->out + at, factor[DTP_DROPOUT_BLOCK];
    const float *in = (const float *)x->x + at, *b = x->bias;
    const float *r = x->residual ? (const float *)x->residual + at : NULL;
    for (int64_t k = 0; k < x->cols; k++) {
        int64_t i = k % DTP_DROPOUT_BLOCK;
        if (i == 0)
            drop_block(x, x->first_row + row, k, factor);
        o[k] = (in[k] + (b ? b[k] : 0.0F)) * factor[i] + (r ? r[k] : 0.0F);
    }
}

static void cpu_bias_residual(struct dtp_dev *d, const struct dtp_residual_args *x) {
    (void)d;
    float *o = x->out;
    const float *in = x->x, *b = x->bias, *r = x->residual;
    for (int64_t i = 0; i < x->rows; i++) {
        int64_t at = i * x->cols;
        if (x->dropout.drop_below > 0)
            dropped_row(x, i);
        else
            for (int64_t k = 0; k < x->cols; k++)
                o[at + k] = in[at + k] + (b ? b[k] : 0.0F) + (r ? r[at + k] : 0.0F);
    }
}

static void cpu_bias_backward(struct dtp_dev *d, void *dbias, const void *dy,
                              const int64_t shape[2]) {
    (void)d;
    float *db = dbias;
    const float *g = dy;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t k = 0; k < shape[1]; k++)
            db[k] += g[i * shape[1] + k];
}

static void cpu_add(struct dtp_dev *d, void *to, const void *from, int64_t n, bool gradients) {
    (void)d, (void)gradients;
    float *y = to;
    const float *x = from;
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* In double, so that the order of the parts hardly matters. */
static double squares(const float *g, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (double)g[i] * (double)g[i];
    return s;
}

static void cpu_norm2(struct dtp_dev *d, const struct dtp_norm2_args *x) {
    (void)d;
    double s = 0;
    for (int64_t k = 0; k < x->nruns; k++)
        s += x->run[k].factor * squares(x->run[k].grad, x->run[k].n);
    *x->sum += (float)s;
}

static void cpu_clip_scale(struct dtp_dev *d, float *scale, const float *norm2,
                           const struct dtp_clip *clip) {
    (void)d;
    double norm = sqrt((double)*norm2) / clip->loss_scale, most = clip->max_norm;
    *scale = (float)((most > 0 && norm > most ? most / norm : 1.0) / clip->loss_scale);
    if (clip->skip && !isfinite(*norm2))
        *scale = 0;
}

/* AdamW with decoupled weight decay (Loshchilov 2019, algorithm 2). */
static void adamw_run(const struct dtp_adamw_hyper *h, const struct dtp_adamw_tensor *t,
                      float grad_scale) {
    float *p = t->param, *m = t->m, *v = t->v;
    const float *g = t->grad;
    double correct1 = 1 - pow(h->beta1, (double)h->step),
           correct2 = 1 - pow(h->beta2, (double)h->step);
    float beta1 = (float)h->beta1, beta2 = (float)h->beta2, epsilon = (float)h->epsilon;
    float rate = (float)(h->lr / correct1), root = (float)(1 / sqrt(correct2));
    float keep = t->decay ? (float)(1 - h->lr * h->weight_decay) : 1.0F;
    for (int64_t i = 0; i < t->n; i++) {
        float gi = g[i] * grad_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * gi;
        v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
        p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * root + epsilon);
    }
}

static void cpu_adamw(struct dtp_dev *d, const struct dtp_adamw_hyper *h,
                      const struct dtp_adamw_tensor *t, int n) {
    (void)d;
    float grad_scale = h->grad_scale ? *h->grad_scale : 1.0F;
    for (int i = 0; i < n && !(grad_scale >= 0 && grad_scale <= 0); i++)
        adamw_run(h, &t[i], grad_scale);
}

static const struct dtp_dev_ops cpu_ops = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .about = cpu_about,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .cast = cpu_cast,
    .event_record = cpu_event,
    .event_wait = cpu_event,
    .event_done = cpu_event_done,
    .sync = cpu_sync,
    .check = cpu_check,
    .overhead_bytes = cpu_overhead_bytes,
    .mark = cpu_mark,
    .mark_ns = cpu_mark_ns,
    .pause = cpu_pause,
    .fill = cpu_fill,
    .gemm = cpu_gemm,
    .norm_forward = dtp_cpu_norm_forward,
    .norm_backward = dtp_cpu_norm_backward,
    .rope = dtp_cpu_rope,
    .attention_saved_bytes = dtp_cpu_attention_saved_bytes,
    .attention_workspace_bytes = dtp_cpu_attention_workspace_bytes,
    .attention_forward = dtp_cpu_attention_forward,
    .attention_backward = dtp_cpu_attention_backward,
    .act_forward = dtp_cpu_act_forward,
    .act_backward = dtp_cpu_act_backward,
    .loss_max = dtp_cpu_loss_max,
    .loss_sum = dtp_cpu_loss_sum,
    .loss_mean = dtp_cpu_loss_mean,
    .loss_grad = dtp_cpu_loss_grad,
    .embed = dtp_cpu_embed,
    .embed_backward = dtp_cpu_embed_backward,
    .position_add = dtp_cpu_position_add,
    .position_backward = dtp_cpu_position_backward,
    .bias_residual = cpu_bias_residual,
    .bias_backward = cpu_bias_backward,
    .add = cpu_add,
    .norm2 = cpu_norm2,
    .clip_scale = cpu_clip_scale,
    .adamw = cpu_adamw,
};

const struct dtp_dev_ops *dtp_cpu_dev_ops(void) {
    return &cpu_ops;
}
