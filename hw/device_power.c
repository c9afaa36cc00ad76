#include "hw/device.h"

#include <math.h>

/* Watts that a stretch of work may take on the mean: the limit, and what the rest before it left, as far
 * back as the chip looks; no more than it takes in a burst. */
static double allowed_w(const struct dtp_gpu *g, const struct dtp_load_mix *m, double time_s) {
    const struct dtp_power_cal *p = &g->power;
    double left_s =
        p->memory_s > 0 ? p->memory_s * (1 - exp(-m->rest * time_s / p->memory_s)) / time_s : 0;
    double w = g->power_w + (g->power_w - p->idle_w) * left_s;
    return p->burst_w > 0 && w > p->burst_w ? p->burst_w : w;
}

/* Energy of the mix at x times the highest clock less what is allowed; grows with x. */
static double excess_j(const struct dtp_gpu *g, const struct dtp_load_mix *m, double x) {
    double time_s = m->product_s / x + m->other_s;
    return g->power.idle_w * time_s + m->product_j * pow(x, g->power.exponent) + m->other_j -
           allowed_w(g, m, time_s) * time_s;
}

double dtp_power_slowdown(const struct dtp_gpu *g, const struct dtp_load_mix *m) {
    enum { HALVINGS = 30 };
    double low = 0.2, high = 1; /* no chip goes below a fifth of its clock */
    if (!(g->power.idle_w > 0) || !(m->product_s > 0) || excess_j(g, m, high) <= 0)
        return 1;
    for (int i = 0; i < HALVINGS; i++) {
        double x = (low + high) / 2;
        *(excess_j(g, m, x) > 0 ? &high : &low) = x;
    }
    return 1 / low;
}
