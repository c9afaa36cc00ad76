#include "hw/fit_curve.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <string.h>

#include "sim/base/units.h"

/* Minimises sum w (x0 r0 + x1 r1 + x2 r2 - 1)^2 over the terms that the mask names; the others stay at
 * their limit. Returns the sum, or infinity if it cannot be solved. */
static double solve(const struct dtp_fit_row *row, size_t n, unsigned mask, const double least[3],
                    double x[3]) {
    size_t terms = 0, at[3] = {0};
    for (size_t k = 0; k < 3; k++) {
        x[k] = mask & (1u << k) ? 0 : least[k];
        if (mask & (1u << k))
            at[terms++] = k;
    }
    if (n < terms)
        return INFINITY;
    if (terms > 0) {
        double residual = 0;
        gsl_matrix *m = gsl_matrix_alloc(n, terms), *cov = gsl_matrix_alloc(terms, terms);
        gsl_vector *y = gsl_vector_alloc(n), *w = gsl_vector_alloc(n), *c = gsl_vector_alloc(terms);
        gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(n, terms);
        if (!m || !cov || !y || !w || !c || !work)
            dtp_out_of_memory("GSL", 0);
        for (size_t i = 0; i < n; i++) {
            const double *r = row[i].x;
            for (size_t k = 0; k < terms; k++)
                gsl_matrix_set(m, i, k, r[at[k]]);
            gsl_vector_set(y, i, 1 - x[0] * r[0] - x[1] * r[1] - x[2] * r[2]);
            gsl_vector_set(w, i, row[i].weight);
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
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double e = x[0] * row[i].x[0] + x[1] * row[i].x[1] + x[2] * row[i].x[2] - 1;
        sum += row[i].weight * e * e;
    }
    return sum;
}

/* Two points have several exact fits: the first stands, whatever the rounding of the others; in that
 * order one with the least latency, as such points are large messages. */
#define TIE 1e-12

/* Three terms have eight sets of those that stand at their limit: all are tried. */
void dtp_fit_three(const struct dtp_fit_row *row, size_t n, const double least[3], double out[3]) {
    double residual = INFINITY;
    gsl_set_error_handler_off();
    memcpy(out, least, 3 * sizeof *out);
    for (unsigned mask = 8; mask-- > 0;) {
        double x[3] = {0}, r = solve(row, n, mask, least, x);
        if (x[0] < least[0] || x[1] < least[1] || x[2] < least[2] || !(r < residual - TIE))
            continue;
        residual = r;
        memcpy(out, x, sizeof x);
    }
}

/* Each octave counts once, below 256 KiB a quarter, from 16 MiB three times: what training sends. */
static double octave_weight(const struct dtp_point *point, size_t n, size_t i) {
    int octave = ilogb(point[i].bytes), same = 0;
    for (size_t k = 0; k < n; k++)
        same += ilogb(point[k].bytes) == octave;
    double share = point[i].bytes < 256 * DTP_KIB ? 0.25 : point[i].bytes < 16 * DTP_MIB ? 1 : 3;
    return share / same;
}

enum dtp_status dtp_fit_curve(struct dtp_arena *a, const struct dtp_point *point, size_t n,
                              const double least[3], struct dtp_curve *out, struct dtp_err *err) {
    if (n == 0)
        return dtp_fail(err, DTP_EINPUT, "no measured points");
    struct dtp_fit_row *row = DTP_NEW(a, struct dtp_fit_row, n);
    for (size_t i = 0; i < n; i++) {
        double s = point[i].bytes, t = point[i].time_s;
        row[i] = (struct dtp_fit_row){{1 / t, sqrt(s) / t, s / t}, octave_weight(point, n, i)};
    }
    double x[3], sum = 0, weights = 0;
    dtp_fit_three(row, n, least, x);
    for (size_t i = 0; i < n; i++) {
        double e = x[0] * row[i].x[0] + x[1] * row[i].x[1] + x[2] * row[i].x[2] - 1;
        sum += row[i].weight * fabs(e);
        weights += row[i].weight;
    }
    out->a_s = x[0];
    out->b_s_per_sqrt_byte = x[1];
    out->c_s_per_byte = x[2];
    out->min_bytes = point[0].bytes;
    out->max_bytes = point[n - 1].bytes;
    out->points = (int)n;
    out->mean_error = sum / weights;
    return DTP_OK;
}
