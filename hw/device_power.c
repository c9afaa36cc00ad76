#include "hw/device.h"

#include <math.h>

/* Predictions take + - * / and sqrt alone, whose last bit is the same on every CPU. */

/* x^e of 0 < x, e >= 0: whole powers by products, the rest bit by bit by roots. */
static double raised(double x, double e) {
    enum { BITS = 16 };
    double y = 1, root = x;
    for (; e >= 1; e--)
        y *= x;
    for (int i = 0; i < BITS && e > 0; i++) {
        root = sqrt(root);
        e *= 2;
        if (e >= 1) {
            y *= root;
            e--;
        }
    }
    return y;
}

/* e^-u of u >= 0: (1 + u / n)^-n, n = 2^20. */
static double decayed(double u) {
    enum { SQUARINGS = 20 };
    double y = 1 / (1 + u / (1 << SQUARINGS));
    for (int i = 0; i < SQUARINGS; i++)
        y *= y;
    return y;
}

/* Watts that a stretch of work may take on the mean: the limit, and what the rest before it left, as far
 * back as the chip looks; no more than it takes in a burst. */
static double allowed_w(const struct dtp_gpu *g, const struct dtp_load_mix *m, double time_s) {
    const struct dtp_power_cal *p = &g->power;
    double left_s =
        p->memory_s > 0 ? p->memory_s * (1 - decayed(m->rest * time_s / p->memory_s)) / time_s : 0;
    double w = g->power_w + (g->power_w - p->idle_w) * left_s;
    return p->burst_w > 0 && w > p->burst_w ? p->burst_w : w;
}

/* Energy of the mix at x times the highest clock less what is allowed; grows with x. */
static double excess_j(const struct dtp_gpu *g, const struct dtp_load_mix *m, double x) {
    double time_s = m->product_s / x + m->other_s;
    return g->power.idle_w * time_s + m->product_j * raised(x, g->power.exponent) + m->other_j -
           allowed_w(g, m, time_s) * time_s;
}

/* The root by false position, where an end that stays loses half of its value (the Illinois rule; Dowell and
 * Jarratt 1971). */
double dtp_power_slowdown(const struct dtp_gpu *g, const struct dtp_load_mix *m) {
    enum { STEPS = 40 };
    double low = 0.2, high = 1; /* no chip goes below a fifth of its clock */
    if (!(g->power.idle_w > 0) || !(m->product_s > 0))
        return 1;
    double above = excess_j(g, m, high), below = excess_j(g, m, low);
    if (above <= 0)
        return 1;
    if (below >= 0)
        return 1 / low;
    double x = low;
    int side = 0;
    for (int i = 0; i < STEPS && high - low > 1e-9; i++) {
        x = (low * above - high * below) / (above - below);
        double f = excess_j(g, m, x);
        if (f > 0) {
            high = x;
            above = f;
            below = side > 0 ? below / 2 : below;
            side = 1;
        } else if (f < 0) {
            low = x;
            below = f;
            above = side < 0 ? above / 2 : above;
            side = -1;
        } else {
            break;
        }
        if (f * f < 1e-24 * g->power_w * g->power_w * m->product_s * m->product_s)
            break;
    }
    return 1 / x;
}
