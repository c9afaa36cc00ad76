/* fit_curve.h: measured points to a curve t(s) = a + b sqrt(s) + c s.
 *
 * Weighted linear least squares (GSL) of the relative error: every octave of sizes has the same weight however many
 * points it has (a quarter of it below 256 KiB, three times from 16 MiB up); a, b, c are not negative, and c is at
 * least what the busiest wire takes at its capacity (small sizes must not promise more than the links can).
 * tests/bench/sweeps.h fits the curves of hw/curves, runtime/measure those of the machine at hand.
 */
#ifndef DTP_HW_FIT_CURVE_H
#define DTP_HW_FIT_CURVE_H

#include "hw/cluster.h"

struct dtp_point {
    double bytes, time_s;
};
/* One row of a fit of 1 = x0 r0 + x1 r1 + x2 r2, each x at least its limit. */
struct dtp_fit_row {
    double x[3], weight;
};
/* Least squares by weight. */
void dtp_fit_three(const struct dtp_fit_row *row, size_t n, const double least[3], double out[3]);

/* n measured points by size; least: limits of a, b, c. Fills a, b, c, the range, points and the
 * mean error (by octave). */
enum dtp_status dtp_fit_curve(struct dtp_arena *a, const struct dtp_point *point, size_t n,
                              const double least[3], struct dtp_curve *out, struct dtp_err *err);

#endif
