/* check.h: predicted against measured, layout by layer: statistics and what is shown of them.
 *
 *     MAPE              mean of |predicted - measured| / measured over all rows, in %; a run that
 *                       failed counts as 100 %
 *     rank correlation  Spearman's: Pearson's of the ranks, equal values share the mean rank; a run
 *                       that failed is slower than all others
 *     picked            the row with the least predicted time (the first of equals): what a search
 *                       would choose; regret: how much slower it ran than the fastest one
 */
#ifndef DTP_PLANNER_CHECK_H
#define DTP_PLANNER_CHECK_H

#include "planner/setup.h"
#include "planner/term.h"

enum { DTP_CHECK_TERMS = 4 };
struct dtp_check_term {
    const char *name; /* static */
    double predicted_s, measured_s;
};

struct dtp_check_row {
    struct dtp_plan plan;
    double predicted_s, measured_s; /* measured: on CPUs the fastest step, which others
                                       disturb least; on GPUs the median. NAN: the run failed */
    double median_s;
    double clock_hz, power_w,
        host_s;           /* rank 0: its GPU's; time that its host takes to enqueue a step */
    double graph_share;   /* share of its operations in CUDA graphs */
    double open_s;        /* device, communicators, parameters, before the first step */
    const double *step_s; /* [nsteps], those to warm up too */
    int nsteps;
    uint64_t predicted_peak_bytes, measured_peak_bytes; /* worst rank */
    struct dtp_check_term term[DTP_CHECK_TERMS];        /* means over the ranks */
    const char *failure;                                /* or NULL */
};

struct dtp_check {
    const struct dtp_setup *setup;
    const char *machine, *versions, *backend;
    int steps, ncores;
    struct dtp_check_row *row;
    size_t nrows;
    double predict_s, run_s, calibrate_s; /* wall clock of the parts */
    /* filled by dtp_check_summarise() */
    double mape_step_pct, mape_peak_pct, worst_peak_pct, rank_correlation, regret_pct;
    size_t picked, fastest_measured, nfailed;
};

double dtp_error_pct(double predicted, double measured); /* signed; NAN measured: 100 */
void dtp_check_summarise(struct dtp_arena *a, struct dtp_check *c);

/* The document of a struct dtp_check before the runs (plans, times and bytes as predicted) and after them; for
 * dtp_file_write(). */
extern const struct dtp_form dtp_check_form;
extern const struct dtp_field
    dtp_check_machine_fields[]; /* the machine on which a struct dtp_check ran */
void dtp_check_predictions(FILE *f, const void *check);
void dtp_check_json(FILE *f, const void *check);
void dtp_check_header(const struct dtp_term *t, const struct dtp_check *c);
void dtp_check_line(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_check_row *r);
void dtp_check_text(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_check *c);
/* Draws predicted against measured times on logarithmic axes. */
void dtp_check_svg(FILE *f, const void *check);

/* Few plans that stand for many: every pair of settings that some plan has is in one chosen.
 *
 * Settings: tp, pp with its schedule and chunks, dp, ZeRO stage, sequence parallelism, recomputation,
 * microbatch size. Greedy: the plan with most pairs that are still missing, of equals the first; then,
 * until `least` are chosen, those that are spread evenly over the rest (deterministic).
 *
 * Indices of the chosen plans into out[n], in the order of choice: the first few have most of the values, whatever
 * is cut off behind them; returns how many. */
size_t dtp_plan_cover(struct dtp_arena *a, const struct dtp_plan *plan, size_t n, size_t least,
                      size_t *out);

#endif
