/* What kernels under long load say of power: constants of struct dtp_power_cal. */
#include <math.h>
#include <string.h>

#include "planner/cli/own_times.h"

static const struct dtp_measured_load *row_of(const struct dtp_measured *m, const char *kernel) {
    for (int i = 0; i < m->nloads; i++)
        if (strcmp(m->load[i].kernel, kernel) == 0)
            return &m->load[i];
    return NULL;
}

/* Joules beyond idle of a call; rests take idle_w and no more. */
static double beyond_j(const struct dtp_measured *m, const struct dtp_measured_load *x,
                       double idle_w) {
    /* what is read is true to a few percent; a chip that slows down is at its limit */
    double limit_w = m->limits.power_limit_w;
    double w = limit_w > 0 && x->power_w > limit_w ? limit_w : x->power_w;
    return (w - idle_w) * x->call_s;
}

/* What a FLOP takes at a clock over what it takes at the highest. */
static double factor_of(const struct dtp_measured *m, double clock_hz, double exponent) {
    return pow(clock_hz / m->limits.most_clock_hz, exponent);
}

/* Joules of a FLOP at the highest clock; where the kernel was not loaded, otherwise. */
static double at_most_clock(const struct dtp_measured *m, const char *kernel,
                            const struct dtp_power_cal *p, double otherwise) {
    const struct dtp_measured_load *x = row_of(m, kernel);
    if (!x)
        return otherwise;
    return (beyond_j(m, x, p->idle_w) - p->j_per_byte * x->bytes) /
           (x->flops * factor_of(m, x->clock_hz, p->exponent));
}

static bool is_gemm(const struct dtp_measured_load *x) {
    return strncmp(x->kernel, "gemm", strlen("gemm")) == 0;
}

/* Least squares of the GEMMs' relative errors at an exponent: joules of a FLOP and of a byte. Returns the sum of the
 * squares, less than 0 with fewer than two of them. */
static double fit_at(const struct dtp_measured *m, double exponent, struct dtp_power_cal *p) {
    const double least_share = 1e-9; /* of the determinant; below, bytes and FLOPs go together */
    double n = 0, u = 0, v = 0, uu = 0, uv = 0, vv = 0;
    for (int i = 0; i < m->nloads; i++) {
        const struct dtp_measured_load *x = &m->load[i];
        double j = beyond_j(m, x, p->idle_w);
        if (!is_gemm(x) || !(x->clock_hz > 0) || !(j > 0))
            continue;
        double a = x->flops * factor_of(m, x->clock_hz, exponent) / j, b = x->bytes / j;
        n++;
        u += a;
        v += b;
        uu += a * a;
        uv += a * b;
        vv += b * b;
    }
    if (n < 2)
        return -1;
    double determinant = uu * vv - uv * uv;
    bool apart = determinant > least_share * uu * vv && v * uu > u * uv;
    p->exponent = exponent;
    p->j_per_byte = apart ? (v * uu - u * uv) / determinant : 0;
    p->gemm_j_per_flop = (u - p->j_per_byte * uv) / uu;
    double f = p->gemm_j_per_flop, b = p->j_per_byte;
    return fmax(0, f * f * uu + 2 * f * b * uv + b * b * vv - 2 * (f * u + b * v) + n);
}

/* The exponent that fits best, by thirds: of 0 and more. */
static bool fit_gemms(const struct dtp_measured *m, struct dtp_power_cal *p) {
    enum { ROUNDS = 60, THIRDS = 3 };
    const double most = 2;
    double low = 0, high = most;
    for (int i = 0; i < ROUNDS; i++) {
        double third = (high - low) / THIRDS, below = fit_at(m, low + third, p);
        if (below < 0)
            return false;
        if (below < fit_at(m, high - third, p))
            high -= third;
        else
            low += third;
    }
    return fit_at(m, (low + high) / 2, p) >= 0;
}

/* Watts of a product, the same again and again, each call in call_s. */
static double product_w(const struct dtp_measured *m, const struct dtp_power_cal *p,
                        const struct dtp_measured_load *x, double clock_hz, double call_s) {
    double flop_j = p->gemm_j_per_flop * factor_of(m, clock_hz, p->exponent);
    return p->idle_w + (flop_j * x->flops + p->j_per_byte * x->bytes) / call_s;
}

/* After a rest longer than that the chip takes more than its limit for a while: what it takes beyond, over a
 * stretch, is what it did not take in so many seconds of rest (dtp_power_slowdown()). */
static double memory_s(const struct dtp_measured *m, const struct dtp_power_cal *p) {
    enum { ROUNDS = 20 };
    const struct dtp_measured_load *x = row_of(m, "after_rest");
    if (!x || !(x->call_s > 0))
        return 0;
    double w = product_w(m, p, x, x->clock_hz, x->call_s);
    double saved_w = m->limits.power_limit_w - p->idle_w;
    double full_s = (w - m->limits.power_limit_w) * x->stretch_s / saved_w, s = full_s;
    if (!(full_s > 0))
        return 0;
    for (int i = 0; i < ROUNDS; i++) /* full_s = s (1 - e^(-rest / s)) */
        s = full_s / (1 - exp(-x->rest_s / s));
    return s;
}

/* The most that a GEMM takes in its first milliseconds: at the clock that it has then. */
static double burst_w(const struct dtp_measured *m, const struct dtp_power_cal *p) {
    double most_w = 0;
    for (int i = 0; i < m->nloads; i++) {
        const struct dtp_measured_load *x = &m->load[i];
        if (!(x->flops > 0) || !is_gemm(x))
            continue;
        double w = product_w(m, p, x, x->alone_clock_hz, x->alone_s);
        most_w = w > most_w ? w : most_w;
    }
    return most_w;
}

bool dtp_own_power(const struct dtp_measured *m, struct dtp_power_cal *out) {
    const struct dtp_measured_load *idle = row_of(m, "pause");
    *out = (struct dtp_power_cal){0};
    if (!idle || !(idle->power_w > 0) || !(m->limits.most_clock_hz > 0))
        return false;
    out->idle_w = idle->power_w;
    if (!fit_gemms(m, out))
        return false;
    double gemm = out->gemm_j_per_flop;
    out->attention_j_per_flop = at_most_clock(m, "attention_forward", out, gemm);
    out->attention_backward_j_per_flop = at_most_clock(m, "attention_backward", out, gemm);
    out->attention_dropout_j_per_flop = at_most_clock(m, "attention_dropout_forward", out, 0);
    out->attention_dropout_backward_j_per_flop =
        at_most_clock(m, "attention_dropout_backward", out, 0);
    out->burst_w = burst_w(m, out);
    out->memory_s = memory_s(m, out);
    const struct dtp_measured_load *comm = row_of(m, "all_reduce");
    out->comm_w = comm && comm->power_w > out->idle_w ? comm->power_w - out->idle_w : 0;
    return true;
}

double dtp_own_kernel_power_w(const struct dtp_measured *m, const char *kernel) {
    const struct dtp_measured_load *x = row_of(m, kernel), *idle = row_of(m, "pause");
    return x && idle && x->power_w > idle->power_w ? x->power_w - idle->power_w : 0;
}
