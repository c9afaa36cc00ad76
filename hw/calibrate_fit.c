#include "hw/calibrate_internal.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/stats.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- the fit ---- */

/* Residual i of the model with constants x, log(predicted / measured). */
struct problem {
    size_t nrows, nparams;
    double (*residual)(const void *ctx, const double *x, size_t i);
    const void *ctx;
    const double *prior, *prior_sd; /* [nparams]; x starts at prior */
    const unsigned char *skip;      /* [nrows] or NULL: rows left out */
};

/* |residual| below this counts as this: rows that fit already get no infinite weight. */
static const double least_residual = 0.01;
static const double derivative_step = 1e-4; /* the model has kinks: wider than for a smooth one */
enum { MAX_ITERATIONS = 60, REWEIGHTINGS = 6, FOLDS = 5, POLISH_ITERATIONS = 1200 };
static const double polish_step = 0.2, polish_size = 1e-4;

/* The rows that are not skipped, then one row per parameter that holds it near its prior. */
struct fit {
    const struct problem *problem;
    const size_t *row;
    size_t nrows;
};

static int evaluate(const gsl_vector *x, void *params, gsl_vector *f) {
    const struct fit *fit = params;
    const struct problem *p = fit->problem;

    for (size_t i = 0; i < fit->nrows; i++)
        gsl_vector_set(f, i, p->residual(p->ctx, gsl_vector_const_ptr(x, 0), fit->row[i]));
    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(f, fit->nrows + j, (gsl_vector_get(x, j) - p->prior[j]) / p->prior_sd[j]);
    return GSL_SUCCESS;
}

/* Weights that turn the sum of squares into one of absolute values; a prior of one sd weighs as much
 * as one row that is off by 1 %. */
static void reweight(const struct fit *fit, const double *x, gsl_vector *weight, bool first) {
    const struct problem *p = fit->problem;

    for (size_t i = 0; i < fit->nrows; i++) {
        double r = first ? 0 : fabs(p->residual(p->ctx, x, fit->row[i]));

        gsl_vector_set(weight, i, 1 / (r > least_residual ? r : least_residual));
    }
    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(weight, fit->nrows + j, least_residual);
}

static enum dtp_status solve(const struct fit *fit, gsl_multifit_nlinear_workspace *w,
                             gsl_vector *x, gsl_vector *weight, struct dtp_err *err) {
    const struct problem *p = fit->problem;
    gsl_multifit_nlinear_fdf fdf = {.f = evaluate,
                                    .n = fit->nrows + p->nparams,
                                    .p = p->nparams,
                                    .params = (void *)(uintptr_t)fit};

    for (int round = 0; round < REWEIGHTINGS; round++) {
        int info, status;

        reweight(fit, gsl_vector_const_ptr(x, 0), weight, round == 0);
        status = gsl_multifit_nlinear_winit(x, weight, &fdf, w);
        if (status == GSL_SUCCESS)
            status =
                gsl_multifit_nlinear_driver(MAX_ITERATIONS, 1e-6, 1e-8, 1e-8, NULL, NULL, &info, w);
        /* No progress and the iteration limit are ends like others: the next round goes on. */
        if (status != GSL_SUCCESS && status != GSL_EMAXITER && status != GSL_ENOPROG)
            return dtp_fail(err, status == GSL_ENOMEM ? DTP_ENOMEM : DTP_EINPUT,
                            "calibration: the fit failed: %s", gsl_strerror(status));
        gsl_vector_memcpy(x, gsl_multifit_nlinear_position(w));
    }
    return DTP_OK;
}

/* Returns the limit of the reweighted squares: twice the absolute values, and the priors. */
static double absolute(const gsl_vector *x, void *params) {
    const struct fit *fit = params;
    const struct problem *p = fit->problem;
    double sum = 0;

    for (size_t i = 0; i < fit->nrows; i++) {
        double r = p->residual(p->ctx, gsl_vector_const_ptr(x, 0), fit->row[i]);

        sum += 2 * sqrt(r * r + least_residual * least_residual);
    }
    for (size_t j = 0; j < p->nparams; j++) {
        double z = (gsl_vector_get(x, j) - p->prior[j]) / p->prior_sd[j];

        sum += least_residual * z * z;
    }
    return sum;
}

/* A simplex search from where the derivatives led: they stop at kinks, where the best tile of many
 * rows changes at once. */
static void polish(const struct fit *fit, gsl_vector *x) {
    const struct problem *p = fit->problem;
    gsl_multimin_function f = {absolute, p->nparams, (void *)(uintptr_t)fit};
    gsl_multimin_fminimizer *s =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, p->nparams);
    gsl_vector *step = gsl_vector_alloc(p->nparams);
    if (!s || !step)
        dtp_out_of_memory("GSL", 0);

    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(step, j, polish_step * (p->prior_sd[j] < 1 ? p->prior_sd[j] : 1));
    gsl_multimin_fminimizer_set(s, &f, x, step);
    for (int i = 0; i < POLISH_ITERATIONS; i++)
        if (gsl_multimin_fminimizer_iterate(s) != GSL_SUCCESS ||
            gsl_multimin_fminimizer_size(s) < polish_size)
            break;
    gsl_vector_memcpy(x, s->x);
    gsl_vector_free(step);
    gsl_multimin_fminimizer_free(s);
}

/* Minimises squares with a robust loss and priors, starting from x = prior; x then holds the result. */
static enum dtp_status fit_robust(struct dtp_arena *a, const struct problem *p, double *x,
                                  struct dtp_err *err) {
    gsl_multifit_nlinear_parameters parameters = gsl_multifit_nlinear_default_parameters();
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    size_t *row = DTP_NEW(a, size_t, p->nrows + 1);
    struct fit fit = {p, row, 0};
    gsl_multifit_nlinear_workspace *w;
    gsl_vector *position, *weight;
    enum dtp_status status;

    for (size_t i = 0; i < p->nrows; i++)
        if (!p->skip || !p->skip[i])
            row[fit.nrows++] = i;
    parameters.h_df = derivative_step;
    w = gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &parameters, fit.nrows + p->nparams,
                                   p->nparams);
    position = gsl_vector_alloc(p->nparams);
    weight = gsl_vector_alloc(fit.nrows + p->nparams);
    if (!w || !position || !weight)
        dtp_out_of_memory("GSL", 0);
    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(position, j, p->prior[j]);
    status = solve(&fit, w, position, weight, err);
    if (status == DTP_OK)
        polish(&fit, position);
    for (size_t j = 0; j < p->nparams; j++)
        x[j] = gsl_vector_get(position, j);
    gsl_multifit_nlinear_free(w);
    gsl_vector_free(position);
    gsl_vector_free(weight);
    gsl_set_error_handler(handler);
    return status;
}

/* Cross-validation: r[nrows] is the residual of each row by a fit without the rows of its fold, those whose
 * numbers are equal modulo nfolds; nfolds nrows: without that row alone. */
static enum dtp_status fit_cross(struct dtp_arena *a, const struct problem *p, size_t nfolds,
                                 double *r, struct dtp_err *err) {
    struct problem part = *p;
    double *x = DTP_NEW(a, double, p->nparams);
    unsigned char *skip = DTP_NEW(a, unsigned char, p->nrows);

    part.skip = skip;
    for (size_t fold = 0; fold < nfolds; fold++) {
        for (size_t i = 0; i < p->nrows; i++)
            skip[i] = i % nfolds == fold;
        DTP_TRY(fit_robust(a, &part, x, err));
        for (size_t i = fold; i < p->nrows; i += nfolds)
            r[i] = p->residual(p->ctx, x, i);
    }
    return DTP_OK;
}

/* Finds median and p90 of |r| and the mean of r over n residuals; r is overwritten. Median and p90 are residuals of the
 * sample; GSL's quantiles lie between two of them and would change the errors in every GPU file. */
static void fit_error(double *r, size_t n, struct dtp_cal_error *out) {
    double sum = 0;

    if (!n)
        return;
    for (size_t i = 0; i < n; i++) {
        sum += r[i];
        r[i] = fabs(expm1(r[i]));
    }
    out->median = dtp_median_high(r, n); /* sorts */
    out->p90 = r[n * 9 / 10];
    out->bias = expm1(sum / (double)n);
}

/* Finds the errors of the class by cross-validation. */
static enum dtp_status cross_errors(struct dtp_arena *a, const struct problem *p, size_t nfolds,
                                    struct dtp_cal_error *out, struct dtp_err *err) {
    double *r = DTP_NEW(a, double, p->nrows);

    DTP_TRY(fit_cross(a, p, nfolds, r, err));
    fit_error(r, p->nrows, out);
    return DTP_OK;
}

/* Returns the names of the sources of n rows, joined by "; ". */
static const char *sources_of(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                              const size_t *index, size_t n) {
    bool seen[DTP_CAL_MAX_SOURCES] = {false};
    struct dtp_str text = {.a = a};

    for (size_t i = 0; i < n; i++) {
        int source = rows->at[index[i]].source;

        if (!seen[source])
            dtp_str_printf(&text, "%s%s", text.at ? "; " : "", rows->sources[source]);
        seen[source] = true;
    }
    return text.at ? text.at : "";
}

/* ---- GEMMs ---- */

/* Constants of one dtype, as logarithms, then host time and rate of each source. */
enum {
    GEMM_RATE,
    GEMM_TILE,
    GEMM_TAIL, /* odds: tail / (1 - tail) */
    GEMM_SMALL,
    GEMM_WGRAD,
    GEMM_DGRAD,
    GEMM_LOAD,
    GEMM_LOAD_TIME,
    GEMM_FIXED,
    MAX_GEMM_PARAMS = GEMM_FIXED + 2 * DTP_CAL_MAX_SOURCES
};

/* A constant starts here if the GPU file has none; the sd of its prior is in log units. */
static const double first_tile_s = 2e-6, first_tail = 0.3, first_load = 0.05, first_small = 0.5;
static const double first_load_time_s = 1e-4, first_host_s = 1e-6;
static const double gemm_prior_sd[GEMM_FIXED] = {1, 1, 1, 1, 0.1, 0.1, 2, 0.7};
/* Host time: sd so wide that a sweep with 40 us of it is no surprise. Rate of another part: 20 %. */
static const double host_sd = 3, rate_sd = 0.2, bmm_rate_sd = 0.05;
/* Too small to say anything of the chip: launch dominates, or a matrix-vector product. */
static const double least_flops = DTP_GIGA;
static const int64_t least_dim = 64;
/* Fewer rows than these determine only the rate. */
enum { MIN_ROWS_SHAPE = 40, MIN_GEMM_ROWS = 5 };

struct gemm_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index; /* rows of this dtype */
    bool bmm;
};

static void store_gemm(const double *x, struct dtp_gemm_cal *c) {
    c->sm_flops_per_s = exp(x[GEMM_RATE]);
    c->tile_s = exp(x[GEMM_TILE]);
    c->tail = exp(x[GEMM_TAIL]) / (1 + exp(x[GEMM_TAIL]));
    c->small_tile = exp(x[GEMM_SMALL]);
    c->wgrad_factor = exp(x[GEMM_WGRAD]);
    c->dgrad_factor = exp(x[GEMM_DGRAD]);
}

static double predict_s(const struct gemm_fit *fit, const double *x,
                        const struct dtp_cal_row *row) {
    struct dtp_gpu g = *fit->gpu;
    struct dtp_gemm_cal *c = fit->bmm ? &g.bmm[row->gemm.dtype] : &g.gemm[row->gemm.dtype];
    double load = exp(x[GEMM_LOAD]), t_s;
    size_t source = GEMM_FIXED + 2 * (size_t)row->source;

    store_gemm(x, c);
    if (row->same_chip)
        c->sm_flops_per_s *= exp(x[source + 1]);
    if (fit->bmm) /* load slows its product, not its memory */
        return dtp_device_bmm_s(&g, &row->gemm) + exp(x[source]);
    g.sustained = 1;
    t_s = dtp_device_gemm_s(&g, &row->gemm);
    if (row->loaded)
        t_s *= 1 + load;
    else
        t_s *= 1 + load * t_s / (t_s + exp(x[GEMM_LOAD_TIME]));
    return t_s + row->accumulate_bytes / g.stream_bytes_per_s + exp(x[source]);
}

static double gemm_residual(const void *ctx, const double *x, size_t i) {
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

static void start_gemm(const struct dtp_gpu *g, const struct dtp_gemm_cal *c, enum dtp_dtype dtype,
                       double *prior, double *sd) {
    double rate = g->peak_flops_per_s[dtype] / g->num_sms * 0.8, load = g->sustained - 1;

    prior[GEMM_RATE] = log(c->sm_flops_per_s > 0 ? c->sm_flops_per_s : rate);
    prior[GEMM_TILE] = log(c->tile_s > 0 ? c->tile_s : first_tile_s);
    prior[GEMM_TAIL] = c->tail > 0 && c->tail < 1 ? log(c->tail / (1 - c->tail))
                                                  : log(first_tail / (1 - first_tail));
    prior[GEMM_SMALL] = log(c->small_tile > 0 ? c->small_tile : first_small);
    prior[GEMM_WGRAD] = log(c->wgrad_factor > 0 ? c->wgrad_factor : 1);
    prior[GEMM_DGRAD] = log(c->dgrad_factor > 0 ? c->dgrad_factor : 1);
    prior[GEMM_LOAD] = log(load > 0.001 ? load : first_load);
    prior[GEMM_LOAD_TIME] = log(first_load_time_s);
    for (int i = 0; i < GEMM_FIXED; i++)
        sd[i] = gemm_prior_sd[i];
    for (int i = GEMM_FIXED; i < MAX_GEMM_PARAMS; i += 2) {
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

static enum dtp_status gemm_errors(struct dtp_arena *a, const struct problem *p,
                                   struct dtp_cal_error *out, struct dtp_err *err) {
    const struct gemm_fit *fit = p->ctx;
    double *all = DTP_NEW(a, double, p->nrows), *layer = DTP_NEW(a, double, p->nrows);
    struct dtp_cal_error layers = {0};

    DTP_TRY(fit_cross(a, p, FOLDS, all, err));
    for (size_t i = 0; i < p->nrows; i++)
        if (is_layer(&fit->rows->at[fit->index[i]].gemm))
            layer[layers.rows++] = all[i];
    out->rows_layer = layers.rows;
    fit_error(all, p->nrows, out);
    fit_error(layer, layers.rows, &layers);
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

/* Holds constants that these rows cannot tell apart at their priors. */
static void hold_constants(const struct gemm_fit *fit, enum dtp_dtype dtype, size_t n,
                           const struct dtp_cal_result *result, double *prior, double *sd) {
    bool main_fit = is_half(dtype) && !fit->bmm, few = n < MIN_ROWS_SHAPE;

    if (!main_fit || result->keep_sustained || few) {
        /* rows of a chip under load hold `sustained` in full */
        double load = result->rows_unloaded ? 0 : fit->gpu->sustained - 1;

        prior[GEMM_LOAD] = log(load > 1e-9 ? load : 1e-9);
        prior[GEMM_LOAD_TIME] = log(1e-12);
        hold(sd, GEMM_LOAD);
        hold(sd, GEMM_LOAD_TIME);
    }
    if (fit->bmm) { /* bound by memory, which says little of the rate; no host time in a graph */
        sd[GEMM_RATE] = bmm_rate_sd;
        for (size_t i = 0; i < fit->rows->nsources; i++)
            hold(sd, GEMM_FIXED + 2 * (int)i);
    }
    if (dtype == DTP_FP8 && result->keep_fp8)
        for (int i = GEMM_RATE; i <= GEMM_DGRAD; i++)
            hold(sd, i);
    if (main_fit && result->keep_rate)
        hold(sd, GEMM_RATE);
    if (main_fit && result->keep_shape)
        hold(sd, GEMM_TILE);
    if (few || (main_fit && result->keep_shape)) {
        hold(sd, GEMM_TAIL);
        hold(sd, GEMM_SMALL);
        hold(sd, GEMM_WGRAD);
        hold(sd, GEMM_DGRAD);
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
    double prior[MAX_GEMM_PARAMS], sd[MAX_GEMM_PARAMS], x[MAX_GEMM_PARAMS];
    struct problem p = {.residual = gemm_residual, .ctx = fit, .prior = prior, .prior_sd = sd};
    struct dtp_gemm_cal *c = fit->bmm ? &g->bmm[dtype] : &g->gemm[dtype];
    struct dtp_cal_error *out = &result->classes[result->n];

    fit->index = index;
    if (n < MIN_GEMM_ROWS)
        return DTP_OK;
    p.nrows = n;
    p.nparams = GEMM_FIXED + 2 * fit->rows->nsources;
    start_gemm(g, c->sm_flops_per_s > 0 ? c : &g->gemm[dtype], dtype, prior, sd);
    hold_constants(fit, dtype, n, result, prior, sd);
    *out = (struct dtp_cal_error){
        .name = dtp_arena_printf(a, "%s.%s", fit->bmm ? "bmm" : "gemm", dtp_dtype_names[dtype]),
        .rows = all,
        .used = n};
    DTP_TRY(gemm_errors(a, &p, out, err));
    DTP_TRY(fit_robust(a, &p, x, err));
    store_gemm(x, c);
    cover(fit, n, c);
    out->source = sources_of(a, fit->rows, index, n);
    result->n++;
    if (is_half(dtype) && !fit->bmm && !result->keep_sustained && n >= MIN_ROWS_SHAPE)
        g->sustained = 1 + exp(x[GEMM_LOAD]);
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

/* ---- fused attention ---- */

/* Constants of one implementation, as logarithms. */
enum {
    ATTENTION_RATE,
    ATTENTION_HALF,
    ATTENTION_BACKWARD,
    ATTENTION_DIM64,
    ATTENTION_CAUSAL,
    ATTENTION_TAIL,
    ATTENTION_HALF_BACKWARD,
    ATTENTION_PARAMS,
    MIN_ATTENTION_ROWS = 6
};

static const double first_half_seq = 100, first_tail_blocks = 0.3, first_backward = 0.85;
/* Backward and causal factors hardly differ between implementations: what rows of one pass only
 * cannot tell stays near the start_attention. */
static const double attention_prior_sd[ATTENTION_PARAMS] = {1, 1.5, 0.1, 0.3, 0.1, 1, 1};
/* Shorter than this a row of an eager framework holds host time (H100 sweep: floors of 28 us
 * forward and of 200 us with autograd). */
static const double least_time_s[] = {
    [DTP_CAL_FORWARD] = 60e-6, [DTP_CAL_BACKWARD] = 60e-6, [DTP_CAL_BOTH] = 450e-6};

struct attention_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index;
};

static void store_attention(const double *x, struct dtp_attention_cal *c) {
    c->flops_per_s = exp(x[ATTENTION_RATE]);
    c->half_seq = exp(x[ATTENTION_HALF]);
    c->backward_factor = exp(x[ATTENTION_BACKWARD]);
    c->head_dim_factor_64 = exp(x[ATTENTION_DIM64]);
    c->causal_factor = exp(x[ATTENTION_CAUSAL]);
    c->tail_blocks = exp(x[ATTENTION_TAIL]);
    c->half_seq_backward = exp(x[ATTENTION_HALF_BACKWARD]);
}

static double attention_residual(const void *ctx, const double *x, size_t i) {
    const struct attention_fit *fit = ctx;
    const struct dtp_cal_row *row = &fit->rows->at[fit->index[i]];
    struct dtp_attention_shape s = row->attention;
    struct dtp_gpu g = *fit->gpu;
    double t_s = 0;

    store_attention(x, &g.attention[s.impl]);
    if (row->part != DTP_CAL_BACKWARD) {
        s.backward = false;
        t_s += dtp_device_attention_s(&g, &s);
    }
    if (row->part != DTP_CAL_FORWARD) {
        s.backward = true;
        t_s += dtp_device_attention_s(&g, &s);
    }
    return log(t_s / row->time_s);
}

static double or_else(double value, double otherwise) {
    return value > 0 ? value : otherwise;
}

static void start_attention(const struct dtp_gpu *g, enum dtp_attention impl, double *prior) {
    const struct dtp_attention_cal *c = &g->attention[impl];

    prior[ATTENTION_RATE] = log(or_else(c->flops_per_s, g->peak_flops_per_s[DTP_FP16] * 0.6));
    prior[ATTENTION_HALF] = log(or_else(c->half_seq, first_half_seq));
    prior[ATTENTION_BACKWARD] = log(or_else(c->backward_factor, first_backward));
    prior[ATTENTION_DIM64] = log(or_else(c->head_dim_factor_64, 1));
    prior[ATTENTION_CAUSAL] = log(or_else(c->causal_factor, 1));
    prior[ATTENTION_TAIL] = log(or_else(c->tail_blocks, first_tail_blocks));
    prior[ATTENTION_HALF_BACKWARD] =
        log(or_else(c->half_seq_backward, or_else(c->half_seq, first_half_seq)));
}

enum dtp_status dtp_calibrate_attention(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                        struct dtp_gpu *g, struct dtp_cal_result *result,
                                        struct dtp_err *err) {
    size_t *index = DTP_NEW(a, size_t, rows->n + 1);

    for (int impl = DTP_ATTN_FLASH1; impl < DTP_NATTN; impl++) {
        struct dtp_gpu base = *g;
        struct attention_fit fit = {&base, rows, index};
        double prior[ATTENTION_PARAMS], x[ATTENTION_PARAMS];
        struct problem p = {.nparams = ATTENTION_PARAMS,
                            .residual = attention_residual,
                            .ctx = &fit,
                            .prior = prior,
                            .prior_sd = attention_prior_sd};
        struct dtp_cal_error *out = &result->classes[result->n];
        size_t n = 0, all = 0;

        for (size_t i = 0; i < rows->n; i++) {
            const struct dtp_cal_row *row = &rows->at[i];

            if (row->kind != DTP_CAL_ATTENTION || row->same_chip ||
                (int)row->attention.impl != impl)
                continue;
            all++;
            if (row->time_s >= least_time_s[row->part])
                index[n++] = i;
        }
        if (n < MIN_ATTENTION_ROWS)
            continue;
        p.nrows = n;
        start_attention(g, (enum dtp_attention)impl, prior);
        *out = (struct dtp_cal_error){
            .name = dtp_arena_printf(a, "attention.%s", dtp_attention_names[impl]),
            .source = sources_of(a, rows, index, n),
            .rows = all,
            .used = n};
        DTP_TRY(cross_errors(a, &p, FOLDS, out, err));
        DTP_TRY(fit_robust(a, &p, x, err));
        store_attention(x, &g->attention[impl]);
        result->n++;
    }
    return DTP_OK;
}

/* ---- memory-bound kernels, and scalars ---- */

enum { KERNEL_BYTES, KERNEL_ELEMENTS, KERNEL_PARAMS, MIN_KERNEL_ROWS = 2 };
static const double kernel_prior_sd[KERNEL_PARAMS] = {2, 2};
/* A row counts when it cannot sit in the cache; with autograd, when it is also much longer than the
 * 170 us of host time in such rows (H100 sweep). */
static const double least_l2_forward = 1, least_l2_both = 6;

struct kernel_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index;
    bool backward;
};

static double kernel_residual(const void *ctx, const double *x, size_t i) {
    const struct kernel_fit *fit = ctx;
    const struct dtp_cal_row *row = &fit->rows->at[fit->index[i]];
    struct dtp_kernel_cal c = {exp(x[KERNEL_BYTES]),
                               row->elements > 0 ? exp(x[KERNEL_ELEMENTS]) : 0};
    struct dtp_gpu g = *fit->gpu;
    double t_s;

    g.kernel[fit->backward ? row->backward_kernel : row->kernel] = c;
    t_s = dtp_device_kernel_s(&g, row->kernel, row->bytes, row->elements) + g.kernel_gap_s;
    if (row->part == DTP_CAL_BOTH)
        t_s +=
            dtp_device_kernel_s(&g, row->backward_kernel, row->backward_bytes, 0) + g.kernel_gap_s;
    return log(t_s / row->time_s);
}

/* Rows that say something of kernel class k; *all counts those too small as well. Rows of forward and
 * backward together serve the backward class, once the forward one is known. */
static size_t select(const struct kernel_fit *fit, size_t *index, enum dtp_kernel k, size_t *all) {
    double l2 = (double)fit->gpu->l2_bytes;
    size_t n = 0;

    *all = 0;
    for (size_t i = 0; i < fit->rows->n; i++) {
        const struct dtp_cal_row *r = &fit->rows->at[i];
        bool both = r->part == DTP_CAL_BOTH;

        if (r->kind != DTP_CAL_KERNEL || r->same_chip || both != fit->backward ||
            (both ? r->backward_kernel : r->kernel) != k)
            continue;
        (*all)++;
        if (r->bytes + r->backward_bytes >= l2 * (both ? least_l2_both : least_l2_forward))
            index[n++] = i;
    }
    return n;
}

/* Rows of the class alone say more than rows of forward and backward together. */
static bool fitted(const struct dtp_cal_result *result, enum dtp_kernel k) {
    for (size_t i = 0; i < result->n; i++)
        if (!strncmp(result->classes[i].name, "kernel.", 7) &&
            !strcmp(result->classes[i].name + 7, dtp_kernel_names[k]))
            return true;
    return false;
}

static enum dtp_status fit_class(struct dtp_arena *a, struct kernel_fit *fit, enum dtp_kernel k,
                                 struct dtp_gpu *g, struct dtp_cal_result *result,
                                 struct dtp_err *err) {
    size_t *index = DTP_NEW(a, size_t, fit->rows->n + 1), all, n = select(fit, index, k, &all);
    struct dtp_kernel_cal *c = &g->kernel[k];
    double prior[KERNEL_PARAMS] = {log(c->bytes_per_s > 0 ? c->bytes_per_s : g->stream_bytes_per_s),
                                   log(c->elements_per_s > 0 ? c->elements_per_s : 1e18)},
           x[KERNEL_PARAMS];
    struct problem p = {n, KERNEL_PARAMS, kernel_residual, fit, prior, kernel_prior_sd, NULL};
    struct dtp_cal_error *out = &result->classes[result->n];

    if (n < MIN_KERNEL_ROWS || (fit->backward && fitted(result, k)))
        return DTP_OK;
    fit->index = index;
    *out = (struct dtp_cal_error){.name = dtp_arena_printf(a, "kernel.%s", dtp_kernel_names[k]),
                                  .source = sources_of(a, fit->rows, index, n),
                                  .rows = all,
                                  .used = n};
    DTP_TRY(cross_errors(a, &p, p.nrows /* few: leave one out */, out, err));
    DTP_TRY(fit_robust(a, &p, x, err));
    c->bytes_per_s = exp(x[KERNEL_BYTES]);
    if (c->elements_per_s > 0)
        c->elements_per_s = exp(x[KERNEL_ELEMENTS]);
    result->n++;
    return DTP_OK;
}

/* Median time of the rows of a kind over their bytes (or 1); 0 without rows. */
static enum dtp_status fit_scalar(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                  enum dtp_cal_kind kind, double *out) {
    struct dtp_cal_error e = {0};
    double *v = DTP_NEW(a, double, rows->n + 1);
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        const struct dtp_cal_row *r = &rows->at[i];

        if (r->kind == kind && !r->same_chip)
            v[n++] = log1p(kind == DTP_CAL_GAP ? r->time_s : r->bytes / r->time_s);
    }
    if (!n)
        return DTP_OK;
    fit_error(v, n, &e); /* expm1 undoes log1p */
    *out = e.median;
    return DTP_OK;
}

enum dtp_status dtp_calibrate_kernels(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                      struct dtp_gpu *g, struct dtp_cal_result *result,
                                      struct dtp_err *err) {
    DTP_TRY(fit_scalar(a, rows, DTP_CAL_GAP, &g->kernel_gap_s));
    DTP_TRY(fit_scalar(a, rows, DTP_CAL_OFFLOAD, &g->offload_bytes_per_s));
    for (int backward = 0; backward < 2; backward++)
        for (int k = 0; k < DTP_NKERNELS; k++) {
            struct dtp_gpu base = *g;
            struct kernel_fit fit = {&base, rows, NULL, backward};

            DTP_TRY(fit_class(a, &fit, (enum dtp_kernel)k, g, result, err));
        }
    return DTP_OK;
}
