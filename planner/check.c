#include "planner/check.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
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

/* A check before its runs (summary NULL) or after them. */
struct document {
    const struct dtp_check *check;
    const struct dtp_problem *problem;
    const struct dtp_check *summary;
};

struct measurement {
    double measured_s, median_s, error_pct;
    const struct dtp_check_row *ran, *on_gpu; /* NULL: it failed; on CPUs */
};

struct row {
    const struct dtp_check_row *row;
    const struct measurement *measured; /* NULL: before the runs */
    const uint64_t *measured_peak_bytes;
};

static void put_steps(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_check_row *r = at;
    (void)f;
    dtp_json_array(w);
    for (int i = 0; i < r->nsteps; i++)
        dtp_json_put_double(w, r->step_s[i]);
    dtp_json_end(w);
}

static void put_peak(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_u64(w, **(const uint64_t *const *)at);
}

static void put_index(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_u64(w, *(const size_t *)at);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_check_term, member)
static const struct dtp_field term_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "part of the step"},
    {"predicted_s", DTP_FIELD_DOUBLE, AT(predicted_s), .help = "mean over the ranks"},
    {0}};
static const struct dtp_field measured_term_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "part of the step"},
    {"predicted_s", DTP_FIELD_DOUBLE, AT(predicted_s), .help = "mean over the ranks"},
    {"measured_s", DTP_FIELD_DOUBLE, AT(measured_s), .help = "mean over the ranks"},
    {0}};
#undef AT
/* clang-format on */

static void put_terms(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct row *x = at;
    (void)f;
    dtp_json_array(w);
    for (int i = 0; i < DTP_CHECK_TERMS && x->row->term[i].name; i++) {
        struct dtp_check_term term = x->row->term[i];
        if (x->row->failure)
            term.measured_s = NAN;
        dtp_json_object(w);
        dtp_fields_write(w, x->measured ? measured_term_fields : term_fields, &term);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void put_rows(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    dtp_json_array(w);
    for (size_t i = 0; i < d->check->nrows; i++) {
        const struct dtp_check_row *r = &d->check->row[i];
        bool ran = !r->failure;
        const struct measurement m = {.measured_s = ran ? r->measured_s : (double)NAN,
                                      .median_s = ran ? r->median_s : (double)NAN,
                                      .error_pct =
                                          ran ? dtp_error_pct(r->predicted_s, r->measured_s) : 100,
                                      .ran = ran ? r : NULL,
                                      .on_gpu = r->clock_hz > 0 ? r : NULL};
        const struct row x = {.row = r,
                              .measured = d->summary ? &m : NULL,
                              .measured_peak_bytes =
                                  d->summary && ran ? &r->measured_peak_bytes : NULL};
        dtp_put_object(w, f, &x);
    }
    dtp_json_end(w);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_check_row, member)
static const struct dtp_field plan_fields[] = {
    DTP_FIELD_PLAN_AT(AT(plan)),
    {"predicted_s", DTP_FIELD_DOUBLE, AT(predicted_s), .help = "time of a step"},
    {0}};
static const struct dtp_field steps_fields[] = {
    {"open_s", DTP_FIELD_DOUBLE, AT(open_s), .help = "device, communicators and parameters, before the first step"},
    {"steps_s", DTP_FIELD_PUT, 0, .put = put_steps, .help = "every step, those to warm up too"},
    {0}};
static const struct dtp_field gpu_fields[] = {
    {"clock_hz", DTP_FIELD_DOUBLE, AT(clock_hz), .help = "clock of rank 0's GPU"},
    {"power_w", DTP_FIELD_DOUBLE, AT(power_w), .help = "power of rank 0's GPU"},
    {"host_s", DTP_FIELD_DOUBLE, AT(host_s), .help = "time in which rank 0's host enqueues a step, on GPUs"},
    {"graph_share", DTP_FIELD_DOUBLE, AT(graph_share), .help = "share of its operations that are in CUDA graphs"},
    {0}};
static const struct dtp_field peak_fields[] = {
    {"predicted_peak_bytes", DTP_FIELD_U64, AT(predicted_peak_bytes), .help = "peak of the worst rank"},
    {0}};
static const struct dtp_field failure_fields[] = {
    {"failure", DTP_FIELD_STRING, AT(failure), .help = "why the run failed"},
    {0}};
#undef AT
#define AT(member) offsetof(struct measurement, member)
static const struct dtp_field measurement_fields[] = {
    {"measured_s", DTP_FIELD_DOUBLE, AT(measured_s),
     .help = "measured time: the fastest step on CPUs, the median on GPUs; null: it failed"},
    {"median_s", DTP_FIELD_DOUBLE, AT(median_s), .help = "median of the steps"},
    {"error_pct", DTP_FIELD_DOUBLE, AT(error_pct), .help = "error of predicted_s; 100 where it failed"},
    DTP_FIELD_PART_AT(AT(ran), steps_fields), DTP_FIELD_PART_AT(AT(on_gpu), gpu_fields), {0}};
#undef AT
#define AT(member) offsetof(struct row, member)
static const struct dtp_field row_fields[] = {
    DTP_FIELD_PART_AT(AT(row), plan_fields), DTP_FIELD_PART_AT(AT(measured), measurement_fields), DTP_FIELD_PART_AT(AT(row), peak_fields),
    {"measured_peak_bytes", DTP_FIELD_PUT, AT(measured_peak_bytes), .put = put_peak, .unset = DTP_UNSET_NULL,
     .help = "peak of the worst rank; null: it failed"},
    {"terms", DTP_FIELD_PUT, 0, .put = put_terms, .inner = "[]", .fields = measured_term_fields},
    DTP_FIELD_PART_AT(AT(row), failure_fields), {0}};
#undef AT
#define AT(member) offsetof(struct dtp_problem, member)
static const struct dtp_field sizes_fields[] = {
    {"seq", DTP_FIELD_INT, AT(seq), .help = "tokens of a sequence"},
    {"global_batch", DTP_FIELD_INT, AT(global_batch), .help = "sequences of a step"},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_check, member)
const struct dtp_field dtp_check_machine_fields[] = {
    {"machine", DTP_FIELD_STRING, AT(machine), .help = "machine that it ran on"},
    {"versions", DTP_FIELD_STRING, AT(versions), .help = "versions of driver and libraries, on GPUs"},
    {"backend", DTP_FIELD_STRING, AT(backend), .help = "cpu or cuda"},
    {0}};
static const struct dtp_field cores_fields[] = {
    {"cores", DTP_FIELD_INT, AT(ncores), .help = "cores of the machine"}, {0}};
static const struct dtp_field steps_of_layout_fields[] = {
    {"steps", DTP_FIELD_INT, AT(steps), .help = "steps that each layout ran"}, {0}};
static const struct dtp_field clock_fields[] = {
    {"calibrate", DTP_FIELD_DOUBLE, AT(calibrate_s), .help = "wall-clock time of the calibration"},
    {"predict", DTP_FIELD_DOUBLE, AT(predict_s), .help = "wall-clock time of the predictions"},
    {"run", DTP_FIELD_DOUBLE, AT(run_s), .help = "wall-clock time of the runs"},
    {0}};
static const struct dtp_field summary_fields[] = {
    {"mape_step_pct", DTP_FIELD_DOUBLE, AT(mape_step_pct), .help = "mean of the absolute errors of the step"},
    {"mape_peak_pct", DTP_FIELD_DOUBLE, AT(mape_peak_pct), .help = "mean of the absolute errors of the peak memory"},
    {"worst_peak_pct", DTP_FIELD_DOUBLE, AT(worst_peak_pct), .help = "largest absolute error of the peak memory"},
    {"rank_correlation", DTP_FIELD_DOUBLE, AT(rank_correlation), .help = "Spearman's, of predicted and measured times"},
    {"picked", DTP_FIELD_PUT, AT(picked), .put = put_index, .help = "index of the row with the least predicted time"},
    {"fastest_measured", DTP_FIELD_PUT, AT(fastest_measured), .put = put_index, .help = "index of the fastest row"},
    {"regret_pct", DTP_FIELD_DOUBLE, AT(regret_pct), .help = "how much slower the pick ran than the fastest"},
    {"failed", DTP_FIELD_PUT, AT(nfailed), .put = put_index, .help = "runs that failed"},
    {"wall_clock_s", DTP_FIELD_OBJECT, 0, .fields = clock_fields},
    {0}};
#undef AT
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan check: predicted, and measured on machine"),
    DTP_FIELD_PART_AT(AT(check), dtp_check_machine_fields),
    {"model", DTP_FIELD_PUT, AT(problem), .put = dtp_put_model_name, .help = "name of the model"},
    {"framework", DTP_FIELD_PUT, AT(problem), .put = dtp_put_framework_name, .help = "name of the framework"},
    {"gpus", DTP_FIELD_PUT, AT(problem), .put = dtp_put_gpus, .help = "ranks in all"},
    DTP_FIELD_PART_AT(AT(check), cores_fields), DTP_FIELD_PART_AT(AT(problem), sizes_fields), DTP_FIELD_PART_AT(AT(check), steps_of_layout_fields),
    {"rows", DTP_FIELD_PUT, 0, .put = put_rows, .inner = "[]", .fields = row_fields},
    DTP_FIELD_PART_AT(AT(summary), summary_fields), {0}};
/* clang-format on */
const struct dtp_form dtp_check_form = {
    "check", "Layouts as predicted and as they ran; before the runs without what is measured.",
    document_fields};

void dtp_check_predictions(FILE *f, const void *check) {
    const struct dtp_check *c = check;
    const struct document d = {c, &c->setup->problem, NULL};
    dtp_form_write(f, 1, &dtp_check_form, &d);
}

void dtp_check_json(FILE *f, const void *check) {
    const struct dtp_check *c = check;
    const struct document d = {c, &c->setup->problem, c};
    dtp_form_write(f, 1, &dtp_check_form, &d);
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

/* Prints the sums of each term over all rows. */
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

void dtp_check_svg(FILE *f, const void *check) {
    const struct dtp_check *c = check;
    struct dtp_arena *a = dtp_arena_create("picture");
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
    dtp_arena_destroy(a);
}

/* ---- few plans that hold every pair of settings ---- */

enum { TP, PP, DP, ZERO, SP, RECOMPUTE, MICROBATCH, NSETTINGS };

static int setting(const struct dtp_plan *p, int which) {
    const int value[NSETTINGS] = {
        [TP] = p->tp,
        [PP] = (p->pp * DTP_MAX_STAGES + p->schedule) * DTP_MAX_STAGES / 2 + p->vpp,
        [DP] = p->dp,
        [ZERO] = p->zero_stage,
        [SP] = p->sequence_parallel,
        [RECOMPUTE] = (int)p->recompute,
        [MICROBATCH] = p->microbatch_size};
    return value[which];
}

struct pairs {
    uint64_t *key; /* sorted */
    bool *chosen;
    size_t n;
};

static uint64_t key_of(const struct dtp_plan *p, int i, int k) {
    enum { SETTING_BITS = 28 };
    return ((uint64_t)(i * NSETTINGS + k) << 2 * SETTING_BITS) |
           ((uint64_t)setting(p, i) << SETTING_BITS) | (uint64_t)setting(p, k);
}

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct pairs all_pairs(struct dtp_arena *a, const struct dtp_plan *plan, size_t n) {
    enum { PAIRS = NSETTINGS * (NSETTINGS - 1) / 2 };
    struct pairs x = {.key = DTP_NEW(a, uint64_t, n * PAIRS)};
    size_t all = 0;
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < NSETTINGS; i++)
            for (int k = i + 1; k < NSETTINGS; k++)
                x.key[all++] = key_of(&plan[p], i, k);
    qsort(x.key, all, sizeof *x.key, compare);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || x.key[i] != x.key[i - 1])
            x.key[x.n++] = x.key[i];
    x.chosen = DTP_NEW(a, bool, x.n);
    return x;
}

/* Pairs of the plan that no chosen plan has; choose: now it is one. */
static int missing(struct pairs *x, const struct dtp_plan *p, bool choose) {
    int count = 0;
    for (int i = 0; i < NSETTINGS; i++)
        for (int k = i + 1; k < NSETTINGS; k++) {
            uint64_t key = key_of(p, i, k);
            const uint64_t *at = bsearch(&key, x->key, x->n, sizeof key, compare);
            size_t index = at ? (size_t)(at - x->key) : 0;
            count += at && !x->chosen[index];
            if (at && choose)
                x->chosen[index] = true;
        }
    return count;
}

static size_t best_of(struct pairs *x, const struct dtp_plan *plan, size_t n, int *most) {
    size_t best = 0;
    *most = 0;
    for (size_t p = 0; p < n; p++) {
        int count = missing(x, &plan[p], false);
        if (count > *most) {
            *most = count;
            best = p;
        }
    }
    return best;
}

size_t dtp_plan_cover(struct dtp_arena *a, const struct dtp_plan *plan, size_t n, size_t least,
                      size_t *out) {
    bool *taken = DTP_NEW(a, bool, n);
    struct pairs x = all_pairs(a, plan, n);
    size_t chosen = 0;
    int most;
    for (size_t p = best_of(&x, plan, n, &most); most > 0; p = best_of(&x, plan, n, &most)) {
        (void)missing(&x, &plan[p], true);
        taken[p] = true;
        out[chosen++] = p;
    }
    size_t wanted = least < n ? least : n, more = chosen < wanted ? wanted - chosen : 0;
    for (size_t i = 0; i < more; i++) { /* the first free plan of each of `more` equal parts */
        size_t p = i * n / more;
        while (taken[p])
            p = (p + 1) % n;
        taken[p] = true;
        out[chosen++] = p;
    }
    return chosen;
}
