#include "hw/calibrate.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { P_BYTES, P_ELEMENTS, NPARAMS, MIN_ROWS = 2 };
static const double prior_sd[NPARAMS] = {2, 2};
/* A row counts when it cannot sit in the cache; with autograd, when it is also much longer than the
 * 170 us of host time in such rows (H100 sweep). */
static const double least_l2_forward = 1, least_l2_both = 6;

struct kernel_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index;
    bool backward;
};

static double residual(const void *ctx, const double *x, size_t i) {
    const struct kernel_fit *fit = ctx;
    const struct dtp_cal_row *row = &fit->rows->at[fit->index[i]];
    struct dtp_kernel_cal c = {exp(x[P_BYTES]), row->elements > 0 ? exp(x[P_ELEMENTS]) : 0};
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

/* Few rows a class: leave one out. */
static enum dtp_status leave_one_out(struct dtp_arena *a, const struct dtp_fit_problem *p,
                                     struct dtp_cal_error *out, struct dtp_err *err) {
    double *r = DTP_NEW(a, double, p->nrows);

    DTP_TRY(dtp_fit_cross(a, p, p->nrows, r, err));
    dtp_fit_error(r, p->nrows, out);
    return DTP_OK;
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
    double prior[NPARAMS] = {log(c->bytes_per_s > 0 ? c->bytes_per_s : g->stream_bytes_per_s),
                             log(c->elements_per_s > 0 ? c->elements_per_s : 1e18)},
           x[NPARAMS];
    struct dtp_fit_problem p = {n, NPARAMS, residual, fit, prior, prior_sd, NULL};
    struct dtp_cal_error *out = &result->classes[result->n];

    if (n < MIN_ROWS || (fit->backward && fitted(result, k)))
        return DTP_OK;
    fit->index = index;
    *out = (struct dtp_cal_error){.name = dtp_arena_printf(a, "kernel.%s", dtp_kernel_names[k]),
                                  .source = dtp_calibrate_sources(a, fit->rows, index, n),
                                  .rows = all,
                                  .used = n};
    DTP_TRY(leave_one_out(a, &p, out, err));
    DTP_TRY(dtp_fit_robust(a, &p, x, err));
    c->bytes_per_s = exp(x[P_BYTES]);
    if (c->elements_per_s > 0)
        c->elements_per_s = exp(x[P_ELEMENTS]);
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
    dtp_fit_error(v, n, &e); /* expm1 undoes log1p */
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
