#include <math.h>
#include <string.h>

#include "sim/base/stats.h"
#include "traces/validate/validate_parts.h"

/* ---- terminal ------------------------------------------------------------------------------------------ */

static void print_line(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                       const char *name, const struct dtp_subset *s, int unsupported) {
    struct dtp_error_stats t = dtp_validation_stats(a, v, false, dtp_in_subset, s);
    struct dtp_error_stats m = dtp_validation_stats(a, v, true, dtp_in_subset, s);
    fprintf(f, "  %-28.28s %6d", name, t.rows);
    if (t.rows > 0)
        fprintf(f, " %7.1f %7.1f %7.1f %+7.1f %7.1f", 100 * t.mape, 100 * t.median, 100 * t.p90,
                100 * t.bias, 100 * t.worst);
    else
        fprintf(f, " %7s %7s %7s %7s %7s", "-", "-", "-", "-", "-");
    if (m.rows > 0)
        fprintf(f, " %6d %7.1f %+7.1f", m.rows, 100 * m.mape, 100 * m.bias);
    else
        fprintf(f, " %6s %7s %7s", "-", "-", "-");
    fprintf(f, unsupported ? "  %d\n" : "\n", unsupported);
}

static void print_table(struct dtp_arena *a, FILE *f, const struct dtp_validation *v, bool detail) {
    fprintf(f, "  %-28s %6s %7s %7s %7s %7s %7s %6s %7s %7s  %s\n", "", "rows", "MAPE", "median",
            "p90", "bias", "worst", "memory", "MAPE", "bias", "unsupported");
    for (int g = 0; dtp_groupings[g].name; g++) {
        const char **value;
        if (dtp_groupings[g].detail && !detail)
            continue;
        size_t n = dtp_distinct_values(a, v, dtp_groupings[g].key, &value);
        if (n > 0)
            fprintf(f, "by %s\n", dtp_groupings[g].name);
        for (size_t i = 0; i < n; i++) {
            struct dtp_subset s = {.by = &dtp_groupings[g], .value = value[i]};
            print_line(a, f, v, value[i], &s,
                       dtp_count_unsupported(v, &dtp_groupings[g], value[i]));
        }
    }
    struct dtp_subset all = {0}, outside = {.extrapolated = true};
    print_line(a, f, v, "all", &all, dtp_count_unsupported(v, NULL, NULL));
    if (dtp_validation_stats(a, v, false, dtp_in_subset, &outside).rows > 0)
        print_line(a, f, v, "outside the calibration", &outside, 0);
}

/* Means and medians over the cells of a file; file NULL: of all. */
struct cells_summary {
    size_t n;
    double spearman, kendall, top1, top5, median_top1, median_top5;
};

static struct cells_summary summarise_cells(struct dtp_arena *a, const struct dtp_validation *v,
                                            const char *file) {
    struct cells_summary s = {0};
    double *top1 = DTP_NEW(a, double, v->ncells + 1), *top5 = DTP_NEW(a, double, v->ncells + 1);
    for (size_t i = 0; i < v->ncells; i++) {
        const struct dtp_cell *c = &v->cell[i];
        if (file && strcmp(file, c->file) != 0)
            continue;
        s.spearman += c->spearman;
        s.kendall += c->kendall;
        s.top1 += c->regret_top1;
        s.top5 += c->regret_top5;
        top1[s.n] = c->regret_top1;
        top5[s.n++] = c->regret_top5;
    }
    double n = s.n > 0 ? (double)s.n : 1;
    s.spearman /= n;
    s.kendall /= n;
    s.top1 /= n;
    s.top5 /= n;
    s.median_top1 = dtp_median(top1, s.n);
    s.median_top5 = dtp_median(top5, s.n);
    return s;
}

static bool first_cell_of_file(const struct dtp_validation *v, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (strcmp(v->cell[k].file, v->cell[i].file) == 0)
            return false;
    return true;
}

static void print_summary(FILE *f, const char *name, const struct cells_summary *s) {
    fprintf(f, "  %-28.28s %5zu %9.2f %9.2f %8.1f%% %8.1f%% %8.1f%% %8.1f%%\n", name, s->n,
            s->spearman, s->kendall, 100 * s->median_top1, 100 * s->top1, 100 * s->median_top5,
            100 * s->top5);
}

static void print_cells(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    if (v->ncells == 0)
        return;
    fprintf(f,
            "\nranking of layouts, per cell of 5 or more\n  %-28s %-32s %5s %5s %9s %9s %8s %8s\n",
            "file", "model", "gpus", "rows", "Spearman", "tau", "regret", "best of 5");
    for (size_t i = 0; i < v->ncells; i++) {
        const struct dtp_cell *c = &v->cell[i];
        fprintf(f, "  %-28.28s %-32.32s %5d %5d %9.2f %9.2f %7.1f%% %7.1f%%\n", c->file, c->model,
                c->gpus, c->rows, c->spearman, c->kendall, 100 * c->regret_top1,
                100 * c->regret_top5);
    }
    fprintf(f, "\n  %-28s %5s %9s %9s %9s %9s %9s %9s\n", "by file", "cells", "Spearman", "tau",
            "regret 50", "mean", "of 5: 50", "mean");
    for (size_t i = 0; i < v->ncells; i++) {
        if (!first_cell_of_file(v, i))
            continue;
        struct cells_summary s = summarise_cells(a, v, v->cell[i].file);
        print_summary(f, v->cell[i].file, &s);
    }
    struct cells_summary all = summarise_cells(a, v, NULL);
    print_summary(f, "all", &all);
}

/* The three largest parts of the prediction. */
static void print_parts(FILE *f, const struct dtp_validated *row) {
    const struct {
        const char *name;
        double s;
    } part[] = {
#define X(field, key, ...) {key, row->breakdown.field},
        DTP_BREAKDOWN_LIST(X)
#undef X
    };
    enum { NPARTS = sizeof part / sizeof part[0], SHOWN = 3 };
    bool shown[NPARTS] = {false};
    fprintf(f, "%14s", "");
    for (int k = 0; k < SHOWN; k++) {
        int largest = -1;
        for (int i = 0; i < NPARTS; i++)
            if (!shown[i] && (largest < 0 || part[i].s > part[largest].s))
                largest = i;
        shown[largest] = true;
        if (part[largest].s > 0)
            fprintf(f, "%s%s %.0f %%", k ? ", " : "", part[largest].name,
                    100 * part[largest].s / row->predicted_s);
    }
    fprintf(f, *row->note ? "; %s\n" : "\n", row->note);
}

static void print_worst(struct dtp_arena *a, FILE *f, const struct dtp_validation *v, int worst) {
    bool *shown = DTP_NEW(a, bool, v->runs.n + 1);
    if (worst > 0)
        fprintf(f, "\nworst rows\n");
    for (int k = 0; k < worst; k++) {
        size_t at = v->runs.n;
        for (size_t i = 0; i < v->runs.n; i++)
            if (v->row[i].supported && v->row[i].run->step_s > 0 && !shown[i] &&
                (at == v->runs.n || fabs(v->row[i].error) > fabs(v->row[at].error)))
                at = i;
        if (at == v->runs.n)
            return;
        const struct dtp_validated *row = &v->row[at];
        shown[at] = true;
        fprintf(f, "  %+7.1f %%  %-36s measured %.4g s, predicted %.4g s\n", 100 * row->error,
                row->run->id, row->run->step_s, row->predicted_s);
        print_parts(f, row);
    }
}

/* Of the runs that ran (or failed), inside or outside the calibration: how many are declared not to fit. */
static void print_verdict(FILE *f, const struct dtp_validation *v, const char *of, bool ran,
                          bool extrapolated) {
    int n = 0, declared_no = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *row = &v->row[i];
        if (!row->supported || (row->run->step_s > 0) != ran || row->extrapolated != extrapolated)
            continue;
        n++;
        declared_no += !row->fits;
    }
    if (n > 0)
        fprintf(f, "  of %d that %s, %d (%.1f %%) are declared not to fit\n", n, of, declared_no,
                100.0 * declared_no / n);
}

static void print_verdicts(FILE *f, const struct dtp_validation *v) {
    fprintf(f, "\nmemory verdicts\n");
    print_verdict(f, v, "ran", true, false);
    print_verdict(f, v, "failed", false, false);
    print_verdict(f, v, "ran outside the calibration", true, true);
    print_verdict(f, v, "failed outside the calibration", false, true);
}

/* Frameworks on a GPU family beside the constants of their files that were fitted to steps. */
static void print_constants(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    bool *done = DTP_NEW(a, bool, v->runs.n + 1);
    fprintf(f, "\nconstants of a framework's file that were fitted to measured steps\n");
    fprintf(f, "  %-28s %-8s %9s %6s\n", "", "gpu", "constants", "rows");
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *x = &v->row[i];
        int rows = 0;
        if (!x->supported || done[i])
            continue;
        for (size_t k = i; k < v->runs.n; k++) {
            const struct dtp_validated *y = &v->row[k];
            if (!y->supported || strcmp(x->framework, y->framework) != 0 ||
                strcmp(x->gpu_family, y->gpu_family) != 0)
                continue;
            done[k] = true;
            rows++;
        }
        fprintf(f, "  %-28.28s %-8.8s %9d %6d  %s\n", x->framework, x->gpu_family, x->nfitted, rows,
                x->fitted);
    }
}

/* Each schedule that no row could be predicted with, once. */
static void print_unknown_schedules(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    bool *done = DTP_NEW(a, bool, v->runs.n + 1);
    for (size_t i = 0; i < v->runs.n; i++) {
        const char *text = v->row[i].unknown_schedule;
        int rows = 0;
        for (size_t k = i; text && !done[i] && k < v->runs.n; k++) {
            bool same = v->row[k].unknown_schedule && strcmp(v->row[k].unknown_schedule, text) == 0;
            rows += same;
            done[k] |= same && k > i;
        }
        if (rows > 0)
            fprintf(f, "%d row%s: %s\n", rows, rows == 1 ? "" : "s", text);
    }
}

/* Why rows were not predicted, each reason once, with the first row that has it. */
static void print_unsupported(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    enum { MOST_SHOWN = 12 };
    bool *done = DTP_NEW(a, bool, v->runs.n + 1);
    int shown = 0, more = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *row = &v->row[i];
        int rows = 0;
        if (row->supported || done[i])
            continue;
        for (size_t k = i; k < v->runs.n; k++) {
            bool same = !v->row[k].supported && strcmp(v->row[k].note, row->note) == 0;
            rows += same;
            done[k] |= same;
        }
        if (shown++ == 0)
            fprintf(f, "\nnot predicted\n");
        if (shown <= MOST_SHOWN)
            fprintf(f, "  %5d row%s %s (%s)\n", rows, rows == 1 ? ": " : "s:", row->note,
                    row->run->id);
        else
            more += rows;
    }
    if (more > 0)
        fprintf(f, "  %5d more, in --rows\n", more);
}

void dtp_validation_print(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                          const struct dtp_validation_report *report) {
    fprintf(f, "predicted against measured; errors in percent, bias > 0: predicted too slow\n\n");
    print_table(a, f, v, report->detail);
    print_unknown_schedules(a, f, v);
    print_unsupported(a, f, v);
    print_verdicts(f, v);
    print_constants(a, f, v);
    print_cells(a, f, v);
    print_worst(a, f, v, report->worst);
}
