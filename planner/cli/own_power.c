/* What kernels under long load say of power: constants of struct dtp_power_cal. */
#include <math.h>
#include <string.h>

#include "planner/cli/own_times.h"

/* Energy of a FLOP beyond idle, and the clock it was at. */
struct point {
    double x, j_per_flop;
};

static const struct dtp_measured_load *row_of(const struct dtp_measured *m, const char *kernel) {
    for (int i = 0; i < m->nloads; i++)
        if (strcmp(m->load[i].kernel, kernel) == 0)
            return &m->load[i];
    return NULL;
}

static struct point point_of(const struct dtp_measured *m, const struct dtp_measured_load *x,
                             double idle_w) {
    /* what is read is true to a few percent; a chip that slows down is at its limit */
    double limit_w = m->limits.power_limit_w;
    double w = limit_w > 0 && x->power_w > limit_w ? limit_w : x->power_w;
    double beyond_j = (w - idle_w) * x->call_s; /* rests take idle_w and no more */
    return (struct point){x->clock_hz / m->limits.most_clock_hz, beyond_j / x->flops};
}

/* Joules of a FLOP at the highest clock; where the kernel was not loaded, otherwise. */
static double at_most_clock(const struct dtp_measured *m, const char *kernel,
                            const struct dtp_power_cal *p, double otherwise) {
    const struct dtp_measured_load *x = row_of(m, kernel);
    if (!x)
        return otherwise;
    struct point e = point_of(m, x, p->idle_w);
    return e.j_per_flop / pow(e.x, p->exponent);
}

/* A line through the logarithms of the GEMMs' points. */
static bool fit_gemms(const struct dtp_measured *m, struct dtp_power_cal *p) {
    double n = 0, u = 0, v = 0, uu = 0, uv = 0;
    for (int i = 0; i < m->nloads; i++) {
        if (strncmp(m->load[i].kernel, "gemm", strlen("gemm")) != 0)
            continue;
        struct point e = point_of(m, &m->load[i], p->idle_w);
        if (!(e.x > 0) || !(e.j_per_flop > 0))
            continue;
        double a = log(e.x), b = log(e.j_per_flop);
        n++;
        u += a;
        v += b;
        uu += a * a;
        uv += a * b;
    }
    if (n < 2)
        return false;
    double spread = uu - u * u / n;
    p->exponent = spread > 0 ? (uv - u * v / n) / spread : 0;
    if (p->exponent < 0) /* all at one clock, but for noise */
        p->exponent = 0;
    p->gemm_j_per_flop = exp((v - p->exponent * u) / n);
    return true;
}

static double gemm_w(const struct dtp_power_cal *p, double x, double flops_per_s) {
    return p->idle_w + p->gemm_j_per_flop * pow(x, p->exponent) * flops_per_s;
}

/* After a rest longer than that the chip takes more than its limit for a while: what it takes beyond, over a
 * stretch, is what it did not take in so many seconds of rest (dtp_power_slowdown()). */
static double memory_s(const struct dtp_measured *m, const struct dtp_power_cal *p) {
    enum { ROUNDS = 20 };
    const struct dtp_measured_load *x = row_of(m, "after_rest");
    if (!x || !(x->call_s > 0))
        return 0;
    double w = gemm_w(p, x->clock_hz / m->limits.most_clock_hz, x->flops / x->call_s);
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
        if (!(x->flops > 0) || strncmp(x->kernel, "gemm", strlen("gemm")) != 0)
            continue;
        double w = gemm_w(p, x->alone_clock_hz / m->limits.most_clock_hz, x->flops / x->alone_s);
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
