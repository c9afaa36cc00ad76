#include "planner/check.h"

#include <math.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/document.h"
#include "planner/report.h"
#include "sim/base/stats.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/plot.h"

/* ---- statistics ---- */

double dtp_error_pct(double predicted, double measured) {
    return measured > 0 ? 100 * (predicted / measured - 1) : 100;
}

void dtp_check_summarise(struct dtp_arena *a, struct dtp_check *c) {
    size_t n = c->nrows;
    double *predicted = DTP_NEW(a, double, n), *measured = DTP_NEW(a, double, n);
    double step = 0, peak = 0;
    c->worst_peak_pct = 0;
    c->picked = c->fastest_measured = c->nfailed = 0;
    for (size_t i = 0; i < n; i++) {
        const struct dtp_check_row *r = &c->row[i];
        double bytes = r->failure ? 0
                                  : fabs(dtp_error_pct((double)r->predicted_peak_bytes,
                                                       (double)r->measured_peak_bytes));
        step += r->failure ? 100 : fabs(dtp_error_pct(r->predicted_s, r->measured_s));
        peak += bytes;
        c->worst_peak_pct = bytes > c->worst_peak_pct ? bytes : c->worst_peak_pct;
        c->nfailed += r->failure != NULL;
        predicted[i] = r->predicted_s;
        measured[i] = r->failure ? (double)INFINITY : r->measured_s;
        if (predicted[i] < predicted[c->picked])
            c->picked = i;
        if (measured[i] < measured[c->fastest_measured])
            c->fastest_measured = i;
    }
    double ran = (double)(n - c->nfailed); /* what failed has no peak */
    c->mape_step_pct = n > 0 ? step / (double)n : (double)NAN;
    c->mape_peak_pct = ran > 0 ? peak / ran : (double)NAN;
    c->rank_correlation = n > 1 ? dtp_spearman(a, predicted, measured, n) : (double)NAN;
    c->regret_pct = n > 0 && isfinite(measured[c->picked])
                        ? 100 * (measured[c->picked] / measured[c->fastest_measured] - 1)
                        : (double)NAN;
}

/* ---- JSON ---- */

static void write_problem(struct dtp_json_out *w, const struct dtp_check *c) {
    const struct dtp_problem *p = &c->setup->problem;
    dtp_json_kv_int(w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_kv_string(w, "source", "dtplan check: predicted, and measured on machine");
    dtp_json_kv_string(w, "machine", c->machine);
    if (c->versions)
        dtp_json_kv_string(w, "versions", c->versions);
    dtp_json_kv_string(w, "backend", c->backend);
    dtp_json_kv_string(w, "model", p->model->name);
    dtp_json_kv_string(w, "framework", p->framework->name);
    dtp_json_kv_int(w, "gpus", p->gpus);
    dtp_json_kv_int(w, "cores", c->ncores);
    dtp_json_kv_int(w, "seq", p->seq);
    dtp_json_kv_int(w, "global_batch", p->global_batch);
    dtp_json_kv_int(w, "steps", c->steps);
}

static void write_terms(struct dtp_json_out *w, const struct dtp_check_row *r, bool measured) {
    dtp_json_put_key(w, "terms");
    dtp_json_array(w);
    for (int i = 0; i < DTP_CHECK_TERMS && r->term[i].name; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", r->term[i].name);
        dtp_json_kv_double(w, "predicted_s", r->term[i].predicted_s);
        if (measured)
            dtp_json_kv_double(w, "measured_s", r->failure ? (double)NAN : r->term[i].measured_s);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_steps(struct dtp_json_out *w, const struct dtp_check_row *r) {
    dtp_json_kv_double(w, "open_s", r->open_s);
    dtp_json_put_key(w, "steps_s");
    dtp_json_array(w);
    for (int i = 0; i < r->nsteps; i++)
        dtp_json_put_double(w, r->step_s[i]);
    dtp_json_end(w);
}

static void write_row(struct dtp_json_out *w, const struct dtp_check_row *r, bool measured) {
    dtp_json_object(w);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &r->plan);
    dtp_json_kv_double(w, "predicted_s", r->predicted_s);
    if (measured) {
        dtp_json_kv_double(w, "measured_s", r->failure ? (double)NAN : r->measured_s);
        dtp_json_kv_double(w, "median_s", r->failure ? (double)NAN : r->median_s);
        dtp_json_kv_double(w, "error_pct",
                           r->failure ? 100 : dtp_error_pct(r->predicted_s, r->measured_s));
        if (!r->failure)
            write_steps(w, r);
        if (r->clock_hz > 0) {
            dtp_json_kv_double(w, "clock_hz", r->clock_hz);
            dtp_json_kv_double(w, "power_w", r->power_w);
            dtp_json_kv_double(w, "host_s", r->host_s);
            dtp_json_kv_double(w, "graph_share", r->graph_share);
        }
    }
    dtp_json_kv_u64(w, "predicted_peak_bytes", r->predicted_peak_bytes);
    dtp_json_put_key(w, "measured_peak_bytes");
    if (measured && !r->failure)
        dtp_json_put_u64(w, r->measured_peak_bytes);
    else
        dtp_json_put_null(w);
    write_terms(w, r, measured);
    if (r->failure)
        dtp_json_kv_string(w, "failure", r->failure);
    dtp_json_end(w);
}

static void write_rows(struct dtp_json_out *w, const struct dtp_check *c, bool measured) {
    dtp_json_put_key(w, "rows");
    dtp_json_array(w);
    for (size_t i = 0; i < c->nrows; i++)
        write_row(w, &c->row[i], measured);
    dtp_json_end(w);
}

void dtp_check_predictions(FILE *f, const struct dtp_check *c) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    write_problem(&w, c);
    write_rows(&w, c, false);
    dtp_json_end(&w);
}

void dtp_check_json(FILE *f, const struct dtp_check *c) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    write_problem(&w, c);
    write_rows(&w, c, true);
    dtp_json_kv_double(&w, "mape_step_pct", c->mape_step_pct);
    dtp_json_kv_double(&w, "mape_peak_pct", c->mape_peak_pct);
    dtp_json_kv_double(&w, "worst_peak_pct", c->worst_peak_pct);
    dtp_json_kv_double(&w, "rank_correlation", c->rank_correlation);
    dtp_json_kv_u64(&w, "picked", c->picked);
    dtp_json_kv_u64(&w, "fastest_measured", c->fastest_measured);
    dtp_json_kv_double(&w, "regret_pct", c->regret_pct);
    dtp_json_kv_u64(&w, "failed", c->nfailed);
    dtp_json_put_key(&w, "wall_clock_s");
    dtp_json_object(&w);
    dtp_json_kv_double(&w, "calibrate", c->calibrate_s);
    dtp_json_kv_double(&w, "predict", c->predict_s);
    dtp_json_kv_double(&w, "run", c->run_s);
    dtp_json_end(&w);
    dtp_json_end(&w);
}

/* ---- text ---- */

/* "tp2 pp2 dp1 interleaved x2 z0 sp selective": one layout in 37 columns. */
static const char *label(struct dtp_arena *a, const struct dtp_plan *p) {
    const char *schedule = p->pp > 1 ? dtp_schedule_names[p->schedule] : "";
    char chunks[16] = "", text[32];
    const char *again =
        p->recompute == DTP_RECOMPUTE_NONE ? "" : dtp_recompute_text(p, text, sizeof text);
    if (p->vpp > 1)
        snprintf(chunks, sizeof chunks, "x%d", p->vpp);
    return dtp_arena_printf(a, "%2d %2d %2d  %d %2d %-2s %-12s%-4s%-9s", p->tp, p->pp, p->dp,
                            p->zero_stage, p->microbatch_size, p->sequence_parallel ? "sp" : "",
                            schedule, chunks, again);
}

void dtp_check_header(const struct dtp_term *t, const struct dtp_check *c) {
    const struct dtp_problem *p = &c->setup->problem;
    fprintf(t->file, "%s, %d ranks of %s on %d cores, %d sequences of %d tokens, %d steps each\n",
            p->model->name, p->gpus, c->backend, c->ncores, p->global_batch, p->seq, c->steps);
    dtp_term_print(
        t, DTP_BOLD,
        "tp pp dp  z mb sp schedule        recompute      step in ms            peak in MB\n"
        "                                                predicted  measured  error   "
        "predicted   error\n");
}

void dtp_check_line(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_check_row *r) {
    fprintf(t->file, "%s", label(a, &r->plan));
    double peak = (double)r->predicted_peak_bytes;
    fprintf(t->file, " %10.2f", r->predicted_s / DTP_MILLI);
    if (r->failure) {
        fprintf(t->file, "  failed: %s\n", r->failure);
        return;
    }
    double error = dtp_error_pct(r->predicted_s, r->measured_s);
    fprintf(t->file, " %9.2f", r->measured_s / DTP_MILLI);
    dtp_term_print(t, fabs(error) <= 10 ? DTP_PLAIN : DTP_YELLOW, " %+6.1f %%", error);
    error = dtp_error_pct(peak, (double)r->measured_peak_bytes);
    fprintf(t->file, " %9.3f", peak / DTP_MEGA);
    dtp_term_print(t, fabs(error) <= 1 ? DTP_PLAIN : DTP_RED, " %+6.2f %%\n", error);
}

/* Sums of each term over all rows. */
static void print_terms(const struct dtp_term *t, const struct dtp_check *c) {
    fprintf(t->file, "\nmean over layouts and ranks, ms     predicted  measured\n");
    for (int i = 0; i < DTP_CHECK_TERMS && c->nrows > 0 && c->row[0].term[i].name; i++) {
        double predicted = 0, measured = 0;
        for (size_t k = 0; k < c->nrows; k++)
            if (!c->row[k].failure) {
                predicted += c->row[k].term[i].predicted_s;
                measured += c->row[k].term[i].measured_s;
            }
        double n = (double)(c->nrows - c->nfailed) * DTP_MILLI;
        fprintf(t->file, "  %-32s %9.3f %9.3f\n", c->row[0].term[i].name, n > 0 ? predicted / n : 0,
                n > 0 ? measured / n : 0);
    }
}

void dtp_check_text(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_check *c) {
    print_terms(t, c);
    fprintf(t->file, "\n%zu layouts, %zu failed; step time: MAPE %.1f %%, rank correlation %.3f\n",
            c->nrows, c->nfailed, c->mape_step_pct, c->rank_correlation);
    fprintf(t->file, "peak memory of those that ran: mean error %.3f %%, worst %.3f %%\n",
            c->mape_peak_pct, c->worst_peak_pct);
    if (c->nrows > 1)
        fprintf(t->file, "the predicted best (%s) ran %.1f %% slower than the fastest (%s)\n",
                dtp_plan_words(a, &c->row[c->picked].plan), c->regret_pct,
                dtp_plan_words(a, &c->row[c->fastest_measured].plan));
    fprintf(t->file, "calibration %.1f s, predictions %.1f s, runs %.1f s\n", c->calibrate_s,
            c->predict_s, c->run_s);
}

void dtp_check_svg(struct dtp_arena *a, FILE *f, const struct dtp_check *c) {
#define X(index, name) name,
    static const char *const groups[] = {"no pipeline", DTP_SCHEDULE_LIST(X)};
#undef X
    struct dtp_plot_point *point = DTP_NEW(a, struct dtp_plot_point, c->nrows);
    size_t n = 0;
    for (size_t i = 0; i < c->nrows; i++) {
        const struct dtp_check_row *r = &c->row[i];
        int k = r->plan.pp == 1 ? 0 : r->plan.schedule + 1;
        if (!r->failure)
            point[n++] =
                (struct dtp_plot_point){r->measured_s / DTP_MILLI, r->predicted_s / DTP_MILLI, k,
                                        dtp_plan_words(a, &r->plan)};
    }
    const struct dtp_plot p = {
        "dtplan check: predicted against measured", "step time, ms", point, n, groups,
        (int)(sizeof groups / sizeof *groups)};
    dtp_plot_scatter(f, &p);
}
