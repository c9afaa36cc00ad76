#include "traces/validate/validate.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/stats.h"

/* Returns the name that a row is counted under; NULL if none. */
typedef const char *row_key(const struct dtp_validated *row);

struct grouping {
    const char *name;
    row_key *key;
    bool detail; /* printed on request only */
};

struct subset {
    const struct grouping *by; /* NULL: all rows */
    const char *value;
    bool extrapolated; /* rows beyond the calibration only, else rows inside it only */
};

/* ---- which rows ---- */

static bool has_value(const struct grouping *g, const struct dtp_validated *row,
                      const char *value) {
    const char *x = g->key(row);
    return x && strcmp(x, value) == 0;
}

/* ctx is a struct subset. */
static bool in_subset(const void *ctx, const struct dtp_validated *row) {
    const struct subset *s = ctx;
    return row->extrapolated == s->extrapolated && (!s->by || has_value(s->by, row, s->value));
}

static const char *key_file(const struct dtp_validated *row) {
    return row->run->file;
}
static const char *key_framework(const struct dtp_validated *row) {
    return row->run->framework;
}
static const char *key_gpu(const struct dtp_validated *row) {
    return row->run->gpu;
}

/* Names the power-of-two range of a number. */
static const char *octave(int v) {
    static const char *const names[] = {"1", "2-3", "4-7", "8-15", "16-31", "32-63", "64 and more"};
    int i = 0;
    while (v > 1 && i < 6) {
        v /= 2;
        i++;
    }
    return names[i];
}

static const char *key_gpus(const struct dtp_validated *row) {
    return row->run->gpus < 10      ? "1-9"
           : row->run->gpus < 100   ? "10-99"
           : row->run->gpus < 1000  ? "100-999"
           : row->run->gpus < 10000 ? "1,000-9,999"
                                    : "10,000 and more";
}
static const char *key_tp(const struct dtp_validated *row) {
    return octave(row->run->tp);
}
static const char *key_pp(const struct dtp_validated *row) {
    return octave(row->run->pp);
}
static const char *key_dp(const struct dtp_validated *row) {
    return octave(row->run->dp);
}
static const char *key_cp(const struct dtp_validated *row) {
    return octave(row->run->cp);
}
static const char *key_zero(const struct dtp_validated *row) {
    static const char *const names[] = {"0", "1", "2", "3"};
    return row->run->zero_stage >= 0 && row->run->zero_stage <= 3 ? names[row->run->zero_stage]
                                                                  : "unknown";
}
static const char *key_memory(const struct dtp_validated *row) {
    return row->measured_peak_bytes > 0 ? row->peak_meaning : NULL;
}
static const char *key_recompute(const struct dtp_validated *row) {
    return *row->run->recompute ? row->run->recompute : "unknown";
}

static const struct grouping groupings[] = {{"file", key_file, false},
                                            {"framework", key_framework, false},
                                            {"gpu", key_gpu, false},
                                            {"peak_mem", key_memory, false},
                                            {"gpus", key_gpus, true},
                                            {"tp", key_tp, true},
                                            {"pp", key_pp, true},
                                            {"dp", key_dp, true},
                                            {"cp", key_cp, true},
                                            {"zero_stage", key_zero, true},
                                            {"recompute", key_recompute, true},
                                            {NULL, NULL, false}};

/* Lists the distinct values of a key, in order of first appearance. */
static size_t distinct_values(struct dtp_arena *a, const struct dtp_validation *v, row_key *key,
                              const char ***out) {
    const char **value = DTP_NEW(a, const char *, v->runs.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const char *x = key(&v->row[i]);
        size_t k = 0;
        if (!x)
            continue;
        while (k < n && strcmp(value[k], x) != 0)
            k++;
        if (k == n)
            value[n++] = x;
    }
    *out = value;
    return n;
}

/* g is NULL for all rows. */
static int count_unsupported(const struct dtp_validation *v, const struct grouping *g,
                             const char *value) {
    int n = 0;
    for (size_t i = 0; i < v->runs.n; i++)
        n += !v->row[i].supported && (!g || has_value(g, &v->row[i], value));
    return n;
}

/* ---- text ---- */

static void print_line(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                       const char *name, const struct subset *s, int unsupported) {
    struct dtp_error_stats t = dtp_validation_stats(a, v, false, in_subset, s);
    struct dtp_error_stats m = dtp_validation_stats(a, v, true, in_subset, s);
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
    for (int g = 0; groupings[g].name; g++) {
        const char **value;
        if (groupings[g].detail && !detail)
            continue;
        size_t n = distinct_values(a, v, groupings[g].key, &value);
        if (n > 0)
            fprintf(f, "by %s\n", groupings[g].name);
        for (size_t i = 0; i < n; i++) {
            struct subset s = {.by = &groupings[g], .value = value[i]};
            print_line(a, f, v, value[i], &s, count_unsupported(v, &groupings[g], value[i]));
        }
    }
    struct subset all = {0}, outside = {.extrapolated = true};
    print_line(a, f, v, "all", &all, count_unsupported(v, NULL, NULL));
    if (dtp_validation_stats(a, v, false, in_subset, &outside).rows > 0)
        print_line(a, f, v, "outside the calibration", &outside, 0);
}

/* A summary holds means and medians over the cells of a file; file is NULL for those of all files. */
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

/* Prints the three largest parts of the prediction. */
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

/* Prints how many of the runs that ran (or failed), inside or outside the calibration, are declared not to fit. */
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

/* Lists frameworks on a GPU family with the constants of their files that were fitted to steps. */
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

/* Prints once each schedule that no row could be predicted with. */
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

/* Prints why rows were not predicted: each reason once, with the first row that has it. */
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

/* ---- JSON ---- */

/* A set of rows: all of them, or those of one value of a grouping. */
struct group {
    const char *value;
    int unsupported;
    struct dtp_error_stats step, memory, outside;
};

struct document {
    struct dtp_arena *a;
    const struct dtp_validation *v;
    const char *version;
    int schema_version, unsupported;
    uint64_t rows;
    struct group all;
    struct dtp_list cells;
};

static struct group group_of(struct dtp_arena *a, const struct dtp_validation *v,
                             const struct subset *inside) {
    struct subset outside = *inside;
    outside.extrapolated = true;
    return (struct group){.value = inside->value,
                          .unsupported = count_unsupported(v, inside->by, inside->value),
                          .step = dtp_validation_stats(a, v, false, in_subset, inside),
                          .memory = dtp_validation_stats(a, v, true, in_subset, inside),
                          .outside = dtp_validation_stats(a, v, false, in_subset, &outside)};
}

/* Writes a list of groups for each way to group the rows: "by_file", "by_gpu", ... */
static void put_groups(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    for (const struct grouping *by = groupings; by->name; by++) {
        const char **value;
        size_t n = distinct_values(d->a, d->v, by->key, &value);
        dtp_json_put_key(w, dtp_arena_printf(d->a, "by_%s", by->name));
        dtp_json_array(w);
        for (size_t i = 0; i < n; i++) {
            const struct subset subset = {.by = by, .value = value[i]};
            const struct group g = group_of(d->a, d->v, &subset);
            dtp_json_object(w);
            dtp_json_kv_string(w, by->name, g.value);
            dtp_fields_write(w, f->fields, &g);
            dtp_json_end(w);
        }
        dtp_json_end(w);
    }
}

static void put_nothing(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)w;
    (void)f;
    (void)at;
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_error_stats, member)
#define PERCENT(key, member, text) {key, DTP_FIELD_DOUBLE, AT(member), .scale = 100, .help = text}
static const struct dtp_field errors_fields[] = {
    {"rows", DTP_FIELD_INT, AT(rows), .help = "how many"},
    PERCENT("mape_pct", mape, "mean of the absolute errors"),
    PERCENT("median_pct", median, "their median"),
    PERCENT("p90_pct", p90, "what nine of ten are below"),
    PERCENT("bias_pct", bias, "mean error; above 0: predicted too slow or too large"),
    PERCENT("worst_pct", worst, "largest absolute error"),
    {0}};
#undef AT
static const struct dtp_form errors_form = {
    "ERRORS", "Statistics of errors, in percent of what was measured; null where there are no rows.", errors_fields};

#define AT(member) offsetof(struct group, member)
static const struct dtp_field group_fields[] = {
    {"step", DTP_FIELD_OBJECT, AT(step), .form = &errors_form, .help = "errors of the step's time"},
    {"memory", DTP_FIELD_OBJECT, AT(memory), .form = &errors_form, .help = "errors of the peak memory"},
    {"outside_calibration", DTP_FIELD_OBJECT, AT(outside), .form = &errors_form,
     .help = "errors of the step's time of the rows outside of what was calibrated, which are counted nowhere else"},
    {0}};
static const struct dtp_form group_form = {"GROUP", "Errors of a group of rows.", group_fields};
static const struct dtp_field by_fields[] = {
    {"*", DTP_FIELD_PUT, 0, .put = put_nothing, .flat = true, .inner = "",
     .help = "which rows, by the key that the list is named by"},
    {"unsupported", DTP_FIELD_INT, AT(unsupported), .help = "rows that are not predicted"},
    {"group", DTP_FIELD_OBJECT, 0, .flat = true, .form = &group_form},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_cell, member)
static const struct dtp_field cell_fields[] = {
    {"file", DTP_FIELD_STRING, AT(file), .help = "file of the rows of one model and number of GPUs, from five layouts on"},
    {"model", DTP_FIELD_STRING, AT(model), .help = "model of the cell"},
    {"gpus", DTP_FIELD_INT, AT(gpus), .help = "GPUs of the cell"},
    {"rows", DTP_FIELD_INT, AT(rows), .help = "rows of the cell"},
    {"spearman", DTP_FIELD_DOUBLE, AT(spearman), .help = "rank correlation of predicted and measured times"},
    {"kendall", DTP_FIELD_DOUBLE, AT(kendall), .help = "the same, Kendall's"},
    PERCENT("regret_top1_pct", regret_top1, "how much slower the pick is than the fastest"),
    PERCENT("regret_top5_pct", regret_top5, "the same of the best of five picks"),
    {0}};
#undef AT
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    {"schema_version", DTP_FIELD_INT, AT(schema_version), .help = "version of this form"},
    {"version", DTP_FIELD_STRING, AT(version), .help = "version of dtplan"},
    {"rows", DTP_FIELD_U64, AT(rows), .help = "rows that were read"},
    {"unsupported", DTP_FIELD_INT, AT(unsupported), .help = "rows that are not predicted"},
    {"all", DTP_FIELD_OBJECT, AT(all), .form = &group_form, .help = "errors of all rows"},
    {"by_*", DTP_FIELD_PUT, 0, .put = put_groups, .flat = true, .inner = "[]", .fields = by_fields,
     .help = "errors of the rows of each file, framework, GPU, ..."},
    {"cells", DTP_FIELD_PUT, AT(cells), .put = dtp_put_list, .fields = cell_fields},
    {0}};
/* clang-format on */
const struct dtp_form dtp_validation_form = {"validate", "Predicted against measured runs.",
                                             document_fields};

void dtp_validation_write_json(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    const struct subset all = {0};
    const struct document d = {.a = a,
                               .v = v,
                               .version = DTP_VERSION,
                               .schema_version = 1,
                               .rows = v->runs.n,
                               .unsupported = count_unsupported(v, NULL, NULL),
                               .all = group_of(a, v, &all),
                               .cells = DTP_LIST(v->cell, v->ncells)};
    dtp_form_write(f, 1, &dtp_validation_form, &d);
}

/* ---- CSV ---- */

static void put_number(FILE *f, bool known, double x, bool last) {
    char buf[32];
    dtp_csv_put(f, known ? dtp_double_text(x, buf, sizeof buf) : "", last);
}

void dtp_validation_write_rows(FILE *f, const struct dtp_validation *v) {
    fputs("id,framework,gpu,gpus,model,measured_s,predicted_s,error_pct,measured_peak_bytes,"
          "predicted_peak_bytes,memory_error_pct,fits,note\n",
          f);
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *row = &v->row[i];
        const struct dtp_run *run = row->run;
        bool step = run->step_s > 0, peak = row->measured_peak_bytes > 0, ok = row->supported;
        dtp_csv_put(f, run->id, false);
        dtp_csv_put(f, run->framework, false);
        dtp_csv_put(f, run->gpu, false);
        put_number(f, true, run->gpus, false);
        dtp_csv_put(f, run->model, false);
        put_number(f, step, run->step_s, false);
        put_number(f, ok, row->predicted_s, false);
        put_number(f, ok && step, 100 * row->error, false);
        put_number(f, peak, row->measured_peak_bytes, false);
        put_number(f, ok, row->predicted_peak_bytes, false);
        put_number(f, ok && peak, 100 * row->memory_error, false);
        dtp_csv_put(f, !ok ? "" : row->fits ? "1" : "0", false);
        dtp_csv_put(f, row->note, true);
    }
}
