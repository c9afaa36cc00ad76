/* stats.h: figures of samples.
 *
 *     median      of an even number, the mean of the two in the middle
 *     Spearman    rho: the correlation of the ranks, equal values sharing the mean of theirs
 *     Kendall     tau-b: (concordant - discordant) / sqrt(pairs untied in x * pairs untied in y)
 *
 * A correlation with a side that is constant is NAN.
 */
#ifndef DTP_SIM_BASE_STATS_H
#define DTP_SIM_BASE_STATS_H

#include <stdint.h>

#include "sim/base/arena.h"

/* These sort v; the median of no value is 0. */
double dtp_median(double *v, size_t n);
int64_t dtp_median_i64(int64_t *v, size_t n); /* the mean of the two is rounded down */
/* These return one of the values: the lower, or the higher, of two in the middle. */
int64_t dtp_median_low_i64(int64_t *v, size_t n);
int64_t dtp_median_high_i64(int64_t *v, size_t n);
double dtp_median_high(double *v, size_t n);
double dtp_spearman(struct dtp_arena *a, const double *x, const double *y, size_t n);
double dtp_kendall(const double *x, const double *y, size_t n);

#endif
