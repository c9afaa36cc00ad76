#include "hw/fit_curves.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

/* Weighted least squares of t over those of the terms 1, sqrt(s), s that the mask names. */
struct system {
    const struct dtp_point *point;
    const double *weight; /* of the relative error */
    size_t n;
};

static double solve(const struct system *s, unsigned mask, double c_fixed, double x[3]) {
    size_t terms = 0, at[3] = {0};
    double residual = 0;
    for (size_t k = 0; k < 3; k++) {
        x[k] = 0;
        if (mask & (1u << k))
            at[terms++] = k;
    }
    if (!(mask & 4u))
        x[2] = c_fixed;
    if (terms > 0 && s->n >= terms) {
        gsl_matrix *m = gsl_matrix_alloc(s->n, terms), *cov = gsl_matrix_alloc(terms, terms);
        gsl_vector *y = gsl_vector_alloc(s->n), *w = gsl_vector_alloc(s->n),
                   *c = gsl_vector_alloc(terms);
        gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(s->n, terms);
        for (size_t i = 0; i < s->n; i++) {
            const struct dtp_point *p = &s->point[i];
            const double column[3] = {1, sqrt(p->bytes), p->bytes};
            for (size_t k = 0; k < terms; k++)
                gsl_matrix_set(m, i, k, column[at[k]] / p->time_s);
            gsl_vector_set(y, i, 1 - x[2] * p->bytes / p->time_s);
            gsl_vector_set(w, i, s->weight[i]);
        }
        int failed = gsl_multifit_wlinear(m, w, y, c, cov, &residual, work);
        for (size_t k = 0; k < terms; k++)
            x[at[k]] = gsl_vector_get(c, k);
        gsl_multifit_linear_free(work);
        gsl_vector_free(c);
        gsl_vector_free(w);
        gsl_vector_free(y);
        gsl_matrix_free(cov);
        gsl_matrix_free(m);
        if (failed)
            return INFINITY;
    }
    residual = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct dtp_point *p = &s->point[i];
        double e = (x[0] + x[1] * sqrt(p->bytes) + x[2] * p->bytes) / p->time_s - 1;
        residual += s->weight[i] * e * e;
    }
    return residual;
}

/* Each octave counts once. */
static double *octave_weights(struct dtp_arena *a, const struct dtp_point *point, size_t n) {
    double *w = DTP_NEW(a, double, n);
    for (size_t i = 0; i < n; i++) {
        int octave = ilogb(point[i].bytes), same = 0;
        for (size_t k = 0; k < n; k++)
            same += ilogb(point[k].bytes) == octave;
        w[i] = 1.0 / same;
    }
    return w;
}

enum dtp_status dtp_fit_curve(struct dtp_arena *a, const struct dtp_point *point, size_t n,
                              double floor_s_per_byte, struct dtp_curve *out,
                              struct dtp_err *err) {
    if (n == 0)
        return dtp_fail(err, DTP_EINPUT, "no measured points");
    gsl_set_error_handler_off();
    struct system s = {point, octave_weights(a, point, n), n};
    double best[3] = {0, 0, floor_s_per_byte}, least = INFINITY;
    for (unsigned mask = 0; mask < 8; mask++) {
        double x[3], r = solve(&s, mask, floor_s_per_byte, x);
        if (x[0] < 0 || x[1] < 0 || x[2] < floor_s_per_byte || r >= least)
            continue;
        least = r;
        memcpy(best, x, sizeof best);
    }
    double sum = 0, weights = 0;
    out->a_s = best[0];
    out->b_s_per_sqrt_byte = best[1];
    out->c_s_per_byte = best[2];
    out->min_bytes = point[0].bytes;
    out->max_bytes = point[n - 1].bytes;
    out->points = (int)n;
    for (size_t i = 0; i < n; i++) {
        double t = best[0] + best[1] * sqrt(point[i].bytes) + best[2] * point[i].bytes;
        sum += s.weight[i] * fabs(t / point[i].time_s - 1);
        weights += s.weight[i];
    }
    out->mean_error = sum / weights;
    return DTP_OK;
}

/* ---- files ---- */

/* Six digits are more than a fit has. */
static double rounded(double v) {
    char text[32];
    snprintf(text, sizeof text, "%.5e", v);
    return strtod(text, NULL);
}

static void write_curve(struct dtp_json_out *w, const struct dtp_sweep *s,
                        const struct dtp_curve *c) {
    dtp_json_object(w);
    dtp_json_kv_string(w, "collective", dtp_collective_names[s->collective]);
    dtp_json_kv_int(w, "gpus", s->gpus);
    dtp_json_kv_int(w, "nodes", s->nodes);
    dtp_json_kv_double(w, "a_s", rounded(c->a_s));
    dtp_json_kv_double(w, "b_s_per_sqrt_byte", rounded(c->b_s_per_sqrt_byte));
    dtp_json_kv_double(w, "c_s_per_byte", rounded(c->c_s_per_byte));
    dtp_json_kv_double(w, "min_bytes", c->min_bytes);
    dtp_json_kv_double(w, "max_bytes", c->max_bytes);
    dtp_json_kv_int(w, "points", c->points);
    dtp_json_kv_double(w, "mean_error", rounded(c->mean_error));
    dtp_json_kv_string(w, "source", s->source);
    dtp_json_end(w);
}

static enum dtp_status fit_sweep(struct dtp_arena *a, const char *data,
                                 const struct dtp_sweep *s, struct dtp_curve *out,
                                 struct dtp_err *err) {
    struct dtp_point *point = NULL;
    size_t n = 0;
    DTP_TRY(dtp_sweep_read(a, data, s, &point, &n, err));
    double floor = dtp_busbw_factor(s->collective, s->gpus) / s->busbw_limit_bytes_per_s;
    enum dtp_status status = dtp_fit_curve(a, point, n, floor, out, err);
    if (status != DTP_OK) {
        char where[160];
        snprintf(where, sizeof where, "%s, %s, %d GPUs", s->curves,
                 dtp_collective_names[s->collective], s->gpus);
        dtp_err_prefix(err, where);
    }
    return status;
}

enum dtp_status dtp_fit_curves(struct dtp_arena *a, const char *data, const char *out,
                               FILE *report, struct dtp_err *err) {
    size_t n = 0;
    const struct dtp_sweep *s = dtp_sweeps(&n);
    for (size_t i = 0; i < n;) {
        const char *name = s[i].curves;
        struct dtp_file_out file;
        struct dtp_json_out w;
        DTP_TRY(dtp_file_out_open(a, dtp_arena_printf(a, "%s/%s.json", out, name), &file, err));
        dtp_json_begin(&w, file.f, 1);
        dtp_json_object(&w);
        dtp_json_kv_string(&w, "notes",
                           "written by dtp_fit_curves(), hw/fit_curves.h; do not edit");
        dtp_json_put_key(&w, "curves");
        dtp_json_array(&w);
        for (; i < n && strcmp(s[i].curves, name) == 0; i++) {
            struct dtp_curve c = {0};
            enum dtp_status status = fit_sweep(a, data, &s[i], &c, err);
            if (status != DTP_OK) {
                dtp_file_out_abort(&file);
                return status;
            }
            write_curve(&w, &s[i], &c);
            fprintf(report, "%-13s %-14s %5d GPUs %4d nodes %5d points  error %4.1f %%  %.1f GB/s\n",
                    name, dtp_collective_names[s[i].collective], s[i].gpus, s[i].nodes, c.points,
                    100 * c.mean_error,
                    dtp_busbw_factor(s[i].collective, s[i].gpus) / c.c_s_per_byte / DTP_GIGA);
        }
        dtp_json_end(&w);
        dtp_json_end(&w);
        DTP_TRY(dtp_file_out_commit(&file, err));
    }
    return DTP_OK;
}
