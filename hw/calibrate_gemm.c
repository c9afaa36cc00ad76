#include "hw/calibrate.h"

#include <math.h>
#include <stddef.h>

#include "sim/base/units.h"

/* Constants of one dtype, as logarithms, then host time and rate of each source. */
enum {
    P_RATE,
    P_TILE,
    P_TAIL, /* odds: tail / (1 - tail) */
    P_SMALL,
    P_WGRAD,
    P_DGRAD,
    P_LOAD,
    P_LOAD_TIME,
    P_FIXED,
    MAX_PARAMS = P_FIXED + 2 * DTP_CAL_MAX_SOURCES
};

/* Where a constant starts when the GPU file has none, and the sd of its prior, in log units. */
static const double first_tile_s = 2e-6, first_tail = 0.3, first_load = 0.05, first_small = 0.5;
static const double first_load_time_s = 1e-4, first_host_s = 1e-6;
static const double prior_sd[P_FIXED] = {1, 1, 1, 1, 0.1, 0.1, 2, 0.7};
/* Host time: sd so wide that a sweep with 40 us of it is no surprise. Rate of another part: 20 %. */
static const double host_sd = 3, rate_sd = 0.2, bmm_rate_sd = 0.05;
/* Too small to say anything of the chip: launch dominates, or a matrix-vector product. */
static const double least_flops = DTP_GIGA;
static const int64_t least_dim = 64;
/* With fewer rows than this only the rate is fitted. */
enum { MIN_ROWS_SHAPE = 40, MIN_ROWS = 5, FOLDS = 5 };

struct gemm_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index; /* rows of this dtype */
    bool bmm;
};

static void store(const double *x, struct dtp_gemm_cal *c) {
    c->sm_flops_per_s = exp(x[P_RATE]);
    c->tile_s = exp(x[P_TILE]);
    c->tail = exp(x[P_TAIL]) / (1 + exp(x[P_TAIL]));
    c->small_tile = exp(x[P_SMALL]);
    c->wgrad_factor = exp(x[P_WGRAD]);
    c->dgrad_factor = exp(x[P_DGRAD]);
}

static double predict_s(const struct gemm_fit *fit, const double *x,
                        const struct dtp_cal_row *row) {
    struct dtp_gpu g = *fit->gpu;
    struct dtp_gemm_cal *c = fit->bmm ? &g.bmm[row->gemm.dtype] : &g.gemm[row->gemm.dtype];
    double load = exp(x[P_LOAD]), t_s;
    size_t source = P_FIXED + 2 * (size_t)row->source;

    store(x, c);
    if (row->same_chip)
        c->sm_flops_per_s *= exp(x[source + 1]);
    if (fit->bmm) /* load slows its product, not its memory */
        return dtp_device_bmm_s(&g, &row->gemm) + exp(x[source]);
    g.sustained = 1;
    t_s = dtp_device_gemm_s(&g, &row->gemm);
    if (row->loaded)
        t_s *= 1 + load;
    else
        t_s *= 1 + load * t_s / (t_s + exp(x[P_LOAD_TIME]));
    return t_s + row->accumulate_bytes / g.stream_bytes_per_s + exp(x[source]);
}

static double residual(const void *ctx, const double *x, size_t i) {
    const struct gemm_fit *fit = ctx;
    const struct dtp_cal_row *row = &fit->rows->at[fit->index[i]];

    return log(predict_s(fit, x, row) / row->time_s);
}

static bool is_half(enum dtp_dtype dtype) {
    return dtype == DTP_BF16 || dtype == DTP_FP16;
}

static bool matches(const struct dtp_cal_row *r, enum dtp_cal_kind kind, enum dtp_dtype dtype) {
    return r->kind == kind &&
           (r->gemm.dtype == dtype || (is_half(dtype) && is_half(r->gemm.dtype)));
}

static bool usable(const struct dtp_gemm *s) {
    return s->m >= least_dim && s->n >= least_dim && s->k >= least_dim &&
           2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch >= least_flops;
}

static bool is_layer(const struct dtp_gemm *s) {
    return s->m >= 2048 && s->n >= 1024 && s->k >= 1024;
}

static void start(const struct dtp_gpu *g, const struct dtp_gemm_cal *c, enum dtp_dtype dtype,
                  double *prior, double *sd) {
    double rate = g->peak_flops_per_s[dtype] / g->num_sms * 0.8, load = g->sustained - 1;

    prior[P_RATE] = log(c->sm_flops_per_s > 0 ? c->sm_flops_per_s : rate);
    prior[P_TILE] = log(c->tile_s > 0 ? c->tile_s : first_tile_s);
    prior[P_TAIL] = c->tail > 0 && c->tail < 1 ? log(c->tail / (1 - c->tail))
                                               : log(first_tail / (1 - first_tail));
    prior[P_SMALL] = log(c->small_tile > 0 ? c->small_tile : first_small);
    prior[P_WGRAD] = log(c->wgrad_factor > 0 ? c->wgrad_factor : 1);
    prior[P_DGRAD] = log(c->dgrad_factor > 0 ? c->dgrad_factor : 1);
    prior[P_LOAD] = log(load > 0.001 ? load : first_load);
    prior[P_LOAD_TIME] = log(first_load_time_s);
    for (int i = 0; i < P_FIXED; i++)
        sd[i] = prior_sd[i];
    for (int i = P_FIXED; i < MAX_PARAMS; i += 2) {
        prior[i] = log(first_host_s);
        sd[i] = host_sd;
        prior[i + 1] = 0;
        sd[i + 1] = rate_sd;
    }
}

/* Holds a parameter: its prior becomes (nearly) exact. */
static void hold(double *sd, int i) {
    sd[i] = 1e-6;
}

static enum dtp_status cross_validate(struct dtp_arena *a, const struct dtp_fit_problem *p,
                                      struct dtp_cal_error *out, struct dtp_err *err) {
    const struct gemm_fit *fit = p->ctx;
    double *all = DTP_NEW(a, double, p->nrows), *layer = DTP_NEW(a, double, p->nrows);
    struct dtp_cal_error layers = {0};

    DTP_TRY(dtp_fit_cross(a, p, FOLDS, all, err));
    for (size_t i = 0; i < p->nrows; i++)
        if (is_layer(&fit->rows->at[fit->index[i]].gemm))
            layer[layers.rows++] = all[i];
    out->rows_layer = layers.rows;
    dtp_fit_error(all, p->nrows, out);
    dtp_fit_error(layer, layers.rows, &layers);
    out->median_layer = layers.median;
    out->p90_layer = layers.p90;
    return DTP_OK;
}

static void cover(const struct gemm_fit *fit, size_t n, struct dtp_gemm_cal *c) {
    for (size_t i = 0; i < n; i++) {
        const struct dtp_gemm *s = &fit->rows->at[fit->index[i]].gemm;
        double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch;

        if (!i || flops < c->min_flops)
            c->min_flops = flops;
        if (!i || flops > c->max_flops)
            c->max_flops = flops;
    }
}

/* What these rows cannot tell apart stays at its prior. */
static void hold_constants(const struct gemm_fit *fit, enum dtp_dtype dtype, size_t n,
                           const struct dtp_cal_result *result, double *prior, double *sd) {
    bool main_fit = is_half(dtype) && !fit->bmm, few = n < MIN_ROWS_SHAPE;

    if (!main_fit || result->keep_sustained || few) {
        /* rows of a chip under load hold `sustained` in full */
        double load = result->rows_unloaded ? 0 : fit->gpu->sustained - 1;

        prior[P_LOAD] = log(load > 1e-9 ? load : 1e-9);
        prior[P_LOAD_TIME] = log(1e-12);
        hold(sd, P_LOAD);
        hold(sd, P_LOAD_TIME);
    }
    if (fit->bmm) { /* bound by memory, which says little of the rate; no host time in a graph */
        sd[P_RATE] = bmm_rate_sd;
        for (size_t i = 0; i < fit->rows->nsources; i++)
            hold(sd, P_FIXED + 2 * (int)i);
    }
    if (dtype == DTP_FP8 && result->keep_fp8)
        for (int i = P_RATE; i <= P_DGRAD; i++)
            hold(sd, i);
    if (main_fit && result->keep_rate)
        hold(sd, P_RATE);
    if (main_fit && result->keep_shape)
        hold(sd, P_TILE);
    if (few || (main_fit && result->keep_shape)) {
        hold(sd, P_TAIL);
        hold(sd, P_SMALL);
        hold(sd, P_WGRAD);
        hold(sd, P_DGRAD);
    }
}

/* Fills index with the rows of the dtype that can be used; returns their number. */
static size_t select_rows(const struct gemm_fit *fit, enum dtp_dtype dtype, size_t *index,
                          size_t *all) {
    size_t n = 0;

    *all = 0;
    for (size_t i = 0; i < fit->rows->n; i++) {
        const struct dtp_cal_row *row = &fit->rows->at[i];

        if (!matches(row, fit->bmm ? DTP_CAL_BMM : DTP_CAL_GEMM, dtype))
            continue;
        (*all)++;
        if (usable(&row->gemm))
            index[n++] = i;
    }
    return n;
}

static enum dtp_status fit_dtype(struct dtp_arena *a, struct gemm_fit *fit, enum dtp_dtype dtype,
                                 struct dtp_gpu *g, struct dtp_cal_result *result,
                                 struct dtp_err *err) {
    size_t *index = DTP_NEW(a, size_t, fit->rows->n + 1), all;
    size_t n = select_rows(fit, dtype, index, &all);
    double prior[MAX_PARAMS], sd[MAX_PARAMS], x[MAX_PARAMS];
    struct dtp_fit_problem p = {.residual = residual, .ctx = fit, .prior = prior, .prior_sd = sd};
    struct dtp_gemm_cal *c = fit->bmm ? &g->bmm[dtype] : &g->gemm[dtype];
    struct dtp_cal_error *out = &result->classes[result->n];

    fit->index = index;
    if (n < MIN_ROWS)
        return DTP_OK;
    p.nrows = n;
    p.nparams = P_FIXED + 2 * fit->rows->nsources;
    start(g, c->sm_flops_per_s > 0 ? c : &g->gemm[dtype], dtype, prior, sd);
    hold_constants(fit, dtype, n, result, prior, sd);
    *out = (struct dtp_cal_error){
        .name = dtp_arena_printf(a, "%s.%s", fit->bmm ? "bmm" : "gemm", dtp_dtype_names[dtype]),
        .rows = all,
        .used = n};
    DTP_TRY(cross_validate(a, &p, out, err));
    DTP_TRY(dtp_fit_robust(a, &p, x, err));
    store(x, c);
    cover(fit, n, c);
    out->source = dtp_calibrate_sources(a, fit->rows, index, n);
    result->n++;
    if (is_half(dtype) && !fit->bmm && !result->keep_sustained && n >= MIN_ROWS_SHAPE)
        g->sustained = 1 + exp(x[P_LOAD]);
    return DTP_OK;
}

enum dtp_status dtp_calibrate_gemm(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                   struct dtp_gpu *g, struct dtp_cal_result *result,
                                   struct dtp_err *err) {
    /* 16 bit first: it decides `sustained`, and the narrow types take its shape constants */
    static const enum dtp_dtype order[] = {DTP_BF16, DTP_FP8, DTP_TF32, DTP_FP32};

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        enum dtp_dtype dtype = order[i];
        struct gemm_fit fit = {.rows = rows};
        struct dtp_gpu base;

        if (dtype == DTP_BF16 && g->peak_flops_per_s[DTP_BF16] <= 0)
            dtype = DTP_FP16;
        if (dtype == DTP_FP8 &&
            !result->keep_fp8) { /* too few rows in any sweep: shape constants of 16 bit */
            g->gemm[DTP_FP8].tile_s = g->gemm[DTP_BF16].tile_s;
            g->gemm[DTP_FP8].tail = g->gemm[DTP_BF16].tail;
            g->gemm[DTP_FP8].small_tile = g->gemm[DTP_BF16].small_tile;
            g->gemm[DTP_FP8].wgrad_factor = g->gemm[DTP_BF16].wgrad_factor;
            g->gemm[DTP_FP8].dgrad_factor = g->gemm[DTP_BF16].dgrad_factor;
        }
        base = *g;
        fit.gpu = &base;
        DTP_TRY(fit_dtype(a, &fit, dtype, g, result, err));
        if (dtype == DTP_BF16)
            g->gemm[DTP_FP16] = g->gemm[DTP_BF16];
        fit.bmm = true;
        DTP_TRY(fit_dtype(a, &fit, dtype, g, result, err));
        if (dtype == DTP_BF16)
            g->bmm[DTP_FP16] = g->bmm[DTP_BF16];
    }
    return DTP_OK;
}
