#include "hw/calibrate.h"
#include "sim/base/stats.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <stdlib.h>

/* |residual| below this counts as this: rows that fit already get no infinite weight. */
static const double least_residual = 0.01;
static const double derivative_step = 1e-4; /* the model has kinks: wider than for a smooth one */
enum { MAX_ITERATIONS = 60, REWEIGHTINGS = 6, POLISH_ITERATIONS = 1200 };
static const double polish_step = 0.2, polish_size = 1e-4;

/* The rows that are not skipped, then one row per parameter that holds it near its prior. */
struct fit {
    const struct dtp_fit_problem *problem;
    const size_t *row;
    size_t nrows;
};

static int evaluate(const gsl_vector *x, void *params, gsl_vector *f) {
    const struct fit *fit = params;
    const struct dtp_fit_problem *p = fit->problem;

    for (size_t i = 0; i < fit->nrows; i++)
        gsl_vector_set(f, i, p->residual(p->ctx, gsl_vector_const_ptr(x, 0), fit->row[i]));
    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(f, fit->nrows + j, (gsl_vector_get(x, j) - p->prior[j]) / p->prior_sd[j]);
    return GSL_SUCCESS;
}

/* Weights that turn the sum of squares into one of absolute values; a prior of one sd weighs as much
 * as one row that is off by 1 %. */
static void reweight(const struct fit *fit, const double *x, gsl_vector *weight, bool first) {
    const struct dtp_fit_problem *p = fit->problem;

    for (size_t i = 0; i < fit->nrows; i++) {
        double r = first ? 0 : fabs(p->residual(p->ctx, x, fit->row[i]));

        gsl_vector_set(weight, i, 1 / (r > least_residual ? r : least_residual));
    }
    for (size_t j = 0; j < p->nparams; j++)
        gsl_vector_set(weight, fit->nrows + j, least_residual);
}

static enum dtp_status solve(const struct fit *fit, gsl_multifit_nlinear_workspace *w,
                             gsl_vector *x, gsl_vector *weight, struct dtp_err *err) {
    const struct dtp_fit_problem *p = fit->problem;
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
            return dtp_fail(err, DTP_EINPUT, "calibration: the fit failed: %s",
                            gsl_strerror(status));
        gsl_vector_memcpy(x, gsl_multifit_nlinear_position(w));
    }
    return DTP_OK;
}

/* What the reweighted squares tend to: twice the absolute values, and the priors. */
static double absolute(const gsl_vector *x, void *params) {
    const struct fit *fit = params;
    const struct dtp_fit_problem *p = fit->problem;
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
    const struct dtp_fit_problem *p = fit->problem;
    gsl_multimin_function f = {absolute, p->nparams, (void *)(uintptr_t)fit};
    gsl_multimin_fminimizer *s =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, p->nparams);
    gsl_vector *step = gsl_vector_alloc(p->nparams);

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

enum dtp_status dtp_fit_robust(struct dtp_arena *a, const struct dtp_fit_problem *p, double *x,
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

enum dtp_status dtp_fit_cross(struct dtp_arena *a, const struct dtp_fit_problem *p, size_t nfolds,
                              double *r, struct dtp_err *err) {
    struct dtp_fit_problem part = *p;
    double *x = DTP_NEW(a, double, p->nparams);
    unsigned char *skip = DTP_NEW(a, unsigned char, p->nrows);

    part.skip = skip;
    for (size_t fold = 0; fold < nfolds; fold++) {
        for (size_t i = 0; i < p->nrows; i++)
            skip[i] = i % nfolds == fold;
        DTP_TRY(dtp_fit_robust(a, &part, x, err));
        for (size_t i = fold; i < p->nrows; i += nfolds)
            r[i] = p->residual(p->ctx, x, i);
    }
    return DTP_OK;
}

void dtp_fit_error(double *r, size_t n, struct dtp_cal_error *out) {
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
