/* fit_curve.h: fits a curve t(s) = a + b sqrt(s) + c s to measured points.
 *
 * The fit minimises the weighted squares of the relative error (GSL). Every octave of sizes has the same weight
 * however many points it has (a quarter of that below 256 KiB, three times as much from 16 MiB up). a, b, c are not
 * negative, and c is at least the time per byte of the busiest wire at capacity: no size beats the links.
 * tests/bench/sweeps.h fits the curves of hw/curves; runtime/measure fits those of the machine it runs on.
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
/* Minimises the weighted squares; least[i] <= out[i]. */
void dtp_fit_three(const struct dtp_fit_row *row, size_t n, const double least[3], double out[3]);

/* Takes n measured points in order of size and the lower limits of a, b, c. Fills in a, b, c, the range, the points
 * and the mean error (by octave). */
enum dtp_status dtp_fit_curve(struct dtp_arena *a, const struct dtp_point *point, size_t n,
                              const double least[3], struct dtp_curve *out, struct dtp_err *err);

#endif
