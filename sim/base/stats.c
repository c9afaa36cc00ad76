#include "sim/base/stats.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/order.h"

/* Returns the k-th smallest, from 0, and sorts v; 0 where there is none. */
static double kth(double *v, size_t n, size_t k) {
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, dtp_order_double);
    return v[k];
}

static int64_t kth_i64(int64_t *v, size_t n, size_t k) {
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, dtp_order_i64);
    return v[k];
}

double dtp_median(double *v, size_t n) {
    double high = kth(v, n, n / 2);
    return n > 0 ? (v[(n - 1) / 2] + high) / 2 : 0;
}

double dtp_median_high(double *v, size_t n) {
    return kth(v, n, n / 2);
}

int64_t dtp_median_low_i64(int64_t *v, size_t n) {
    return kth_i64(v, n, (n - 1) / 2);
}

int64_t dtp_median_high_i64(int64_t *v, size_t n) {
    return kth_i64(v, n, n / 2);
}

int64_t dtp_median_i64(int64_t *v, size_t n) {
    int64_t low = dtp_median_low_i64(v, n);
    return n > 0 ? low + (v[n / 2] - low) / 2 : 0;
}

struct place {
    double value;
    size_t index;
};

static int by_value(const void *x, const void *y) {
    const struct place *p = x, *q = y;
    return (p->value > q->value) - (p->value < q->value);
}

/* Ranks count from 1. */
static double *ranks_of(struct dtp_arena *a, const double *v, size_t n) {
    struct place *p = DTP_NEW(a, struct place, n);
    double *rank = DTP_NEW(a, double, n);
    for (size_t i = 0; i < n; i++)
        p[i] = (struct place){v[i], i};
    qsort(p, n, sizeof *p, by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && by_value(&p[i], &p[end]) == 0; end++)
            ;
        for (size_t k = i; k < end; k++)
            rank[p[k].index] = (double)(i + end + 1) / 2;
    }
    return rank;
}

double dtp_spearman(struct dtp_arena *a, const double *x, const double *y, size_t n) {
    const double *u = ranks_of(a, x, n), *v = ranks_of(a, y, n);
    double mean = ((double)n + 1) / 2, xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += (u[i] - mean) * (v[i] - mean);
        xx += (u[i] - mean) * (u[i] - mean);
        yy += (v[i] - mean) * (v[i] - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : (double)NAN;
}

double dtp_kendall(const double *x, const double *y, size_t n) {
    double score = 0, untied_x = 0, untied_y = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            int dx = (x[i] > x[j]) - (x[i] < x[j]), dy = (y[i] > y[j]) - (y[i] < y[j]);
            score += dx * dy;
            untied_x += dx != 0;
            untied_y += dy != 0;
        }
    return untied_x > 0 && untied_y > 0 ? score / sqrt(untied_x * untied_y) : (double)NAN;
}
