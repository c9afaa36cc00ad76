#include "hw/calibrate.h"

#include <math.h>
#include <stddef.h>

/* Constants of one implementation, as logarithms. */
enum {
    P_RATE,
    P_HALF,
    P_BACKWARD,
    P_DIM64,
    P_CAUSAL,
    P_TAIL,
    P_HALF_BACKWARD,
    NPARAMS,
    FOLDS = 5,
    MIN_ROWS = 6
};

static const double first_half_seq = 100, first_tail = 0.3, first_backward = 0.85;
/* Backward and causal factors hardly differ between implementations: what rows of one pass only
 * cannot tell stays near the start. */
static const double prior_sd[NPARAMS] = {1, 1.5, 0.1, 0.3, 0.1, 1, 1};
/* Shorter than this a row of an eager framework holds host time (H100 sweep: floors of 28 us
 * forward and of 200 us with autograd). */
static const double least_time_s[] = {
    [DTP_CAL_FORWARD] = 60e-6, [DTP_CAL_BACKWARD] = 60e-6, [DTP_CAL_BOTH] = 450e-6};

struct attention_fit {
    const struct dtp_gpu *gpu;
    const struct dtp_cal_rows *rows;
    const size_t *index;
};

static void store(const double *x, struct dtp_attention_cal *c) {
    c->flops_per_s = exp(x[P_RATE]);
    c->half_seq = exp(x[P_HALF]);
    c->backward_factor = exp(x[P_BACKWARD]);
    c->head_dim_factor_64 = exp(x[P_DIM64]);
    c->causal_factor = exp(x[P_CAUSAL]);
    c->tail_blocks = exp(x[P_TAIL]);
    c->half_seq_backward = exp(x[P_HALF_BACKWARD]);
}

static double residual(const void *ctx, const double *x, size_t i) {
    const struct attention_fit *fit = ctx;
    const struct dtp_cal_row *row = &fit->rows->at[fit->index[i]];
    struct dtp_attention_shape s = row->attention;
    struct dtp_gpu g = *fit->gpu;
    double t_s = 0;

    store(x, &g.attention[s.impl]);
    if (row->part != DTP_CAL_BACKWARD) {
        s.backward = false;
        t_s += dtp_device_attention_s(&g, &s);
    }
    if (row->part != DTP_CAL_FORWARD) {
        s.backward = true;
        t_s += dtp_device_attention_s(&g, &s);
    }
    return log(t_s / row->time_s);
}

static double or_else(double value, double otherwise) {
    return value > 0 ? value : otherwise;
}

static void start(const struct dtp_gpu *g, enum dtp_attention impl, double *prior) {
    const struct dtp_attention_cal *c = &g->attention[impl];

    prior[P_RATE] = log(or_else(c->flops_per_s, g->peak_flops_per_s[DTP_FP16] * 0.6));
    prior[P_HALF] = log(or_else(c->half_seq, first_half_seq));
    prior[P_BACKWARD] = log(or_else(c->backward_factor, first_backward));
    prior[P_DIM64] = log(or_else(c->head_dim_factor_64, 1));
    prior[P_CAUSAL] = log(or_else(c->causal_factor, 1));
    prior[P_TAIL] = log(or_else(c->tail_blocks, first_tail));
    prior[P_HALF_BACKWARD] =
        log(or_else(c->half_seq_backward, or_else(c->half_seq, first_half_seq)));
}

static enum dtp_status cross_validate(struct dtp_arena *a, const struct dtp_fit_problem *p,
                                      struct dtp_cal_error *out, struct dtp_err *err) {
    double *r = DTP_NEW(a, double, p->nrows);

    DTP_TRY(dtp_fit_cross(a, p, FOLDS, r, err));
    dtp_fit_error(r, p->nrows, out);
    return DTP_OK;
}

enum dtp_status dtp_calibrate_attention(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                        struct dtp_gpu *g, struct dtp_cal_result *result,
                                        struct dtp_err *err) {
    size_t *index = DTP_NEW(a, size_t, rows->n + 1);

    for (int impl = DTP_ATTN_FLASH1; impl < DTP_NATTN; impl++) {
        struct dtp_gpu base = *g;
        struct attention_fit fit = {&base, rows, index};
        double prior[NPARAMS], x[NPARAMS];
        struct dtp_fit_problem p = {.nparams = NPARAMS,
                                    .residual = residual,
                                    .ctx = &fit,
                                    .prior = prior,
                                    .prior_sd = prior_sd};
        struct dtp_cal_error *out = &result->classes[result->n];
        size_t n = 0, all = 0;

        for (size_t i = 0; i < rows->n; i++) {
            const struct dtp_cal_row *row = &rows->at[i];

            if (row->kind != DTP_CAL_ATTENTION || row->same_chip ||
                (int)row->attention.impl != impl)
                continue;
            all++;
            if (row->time_s >= least_time_s[row->part])
                index[n++] = i;
        }
        if (n < MIN_ROWS)
            continue;
        p.nrows = n;
        start(g, (enum dtp_attention)impl, prior);
        *out = (struct dtp_cal_error){
            .name = dtp_arena_printf(a, "attention.%s", dtp_attention_names[impl]),
            .source = dtp_calibrate_sources(a, rows, index, n),
            .rows = all,
            .used = n};
        DTP_TRY(cross_validate(a, &p, out, err));
        DTP_TRY(dtp_fit_robust(a, &p, x, err));
        store(x, &g->attention[impl]);
        result->n++;
    }
    return DTP_OK;
}
