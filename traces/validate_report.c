#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "traces/validate.h"

/* ---- which rows -------------------------------------------------------------------------------------- */

typedef const char *row_key(const struct dtp_run *run);

struct grouping {
    const char *name;
    row_key *key;
    bool detail; /* printed on request only */
};

struct subset {
    const struct grouping *by; /* NULL: all rows */
    const char *value;
    bool extrapolated; /* only those, else only those inside the calibration */
};

static bool in_subset(const void *ctx, const struct dtp_validated *row) {
    const struct subset *s = ctx;
    return row->extrapolated == s->extrapolated &&
           (!s->by || strcmp(s->value, s->by->key(row->run)) == 0);
}

static const char *key_file(const struct dtp_run *run) {
    return run->file;
}
static const char *key_framework(const struct dtp_run *run) {
    return run->framework;
}
static const char *key_gpu(const struct dtp_run *run) {
    return run->gpu;
}

/* A number by octaves. */
static const char *octave(int v) {
    static const char *const names[] = {"1", "2-3", "4-7", "8-15", "16-31", "32-63", "64 and more"};
    int i = 0;
    while (v > 1 && i < 6) {
        v /= 2;
        i++;
    }
    return names[i];
}

static const char *key_gpus(const struct dtp_run *run) {
    return run->gpus < 10      ? "1-9"
           : run->gpus < 100   ? "10-99"
           : run->gpus < 1000  ? "100-999"
           : run->gpus < 10000 ? "1,000-9,999"
                               : "10,000 and more";
}
static const char *key_tp(const struct dtp_run *run) {
    return octave(run->tp);
}
static const char *key_pp(const struct dtp_run *run) {
    return octave(run->pp);
}
static const char *key_dp(const struct dtp_run *run) {
    return octave(run->dp);
}
static const char *key_cp(const struct dtp_run *run) {
    return octave(run->cp);
}
static const char *key_zero(const struct dtp_run *run) {
    static const char *const names[] = {"0", "1", "2", "3"};
    return run->zero_stage >= 0 && run->zero_stage <= 3 ? names[run->zero_stage] : "unknown";
}
static const char *key_recompute(const struct dtp_run *run) {
    return *run->recompute ? run->recompute : "unknown";
}

static const struct grouping groupings[] = {
    {"file", key_file, false},      {"framework", key_framework, false},
    {"gpu", key_gpu, false},        {"gpus", key_gpus, true},
    {"tp", key_tp, true},           {"pp", key_pp, true},
    {"dp", key_dp, true},           {"cp", key_cp, true},
    {"zero_stage", key_zero, true}, {"recompute", key_recompute, true}};
enum { NGROUPINGS = sizeof groupings / sizeof groupings[0] };

/* Distinct values of a key, in order of first appearance. */
static size_t distinct(struct dtp_arena *a, const struct dtp_validation *v, row_key *key,
                       const char ***out) {
    const char **value = DTP_NEW(a, const char *, v->runs.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const char *x = key(&v->runs.at[i]);
        size_t k = 0;
        while (k < n && strcmp(value[k], x) != 0)
            k++;
        if (k == n)
            value[n++] = x;
    }
    *out = value;
    return n;
}

static int count_rows(const struct dtp_validation *v, const struct grouping *g, const char *value,
                      bool supported) {
    int n = 0;
    for (size_t i = 0; i < v->runs.n; i++)
        n += v->row[i].supported == supported && (!g || strcmp(g->key(&v->runs.at[i]), value) == 0);
    return n;
}

/* ---- terminal ------------------------------------------------------------------------------------------ */

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
    for (int g = 0; g < NGROUPINGS; g++) {
        const char **value;
        if (groupings[g].detail && !detail)
            continue;
        size_t n = distinct(a, v, groupings[g].key, &value);
        fprintf(f, "by %s\n", groupings[g].name);
        for (size_t i = 0; i < n; i++) {
            struct subset s = {.by = &groupings[g], .value = value[i]};
            print_line(a, f, v, value[i], &s, count_rows(v, &groupings[g], value[i], false));
        }
    }
    struct subset all = {0}, outside = {.extrapolated = true};
    print_line(a, f, v, "all", &all, count_rows(v, NULL, NULL, false));
    if (dtp_validation_stats(a, v, false, in_subset, &outside).rows > 0)
        print_line(a, f, v, "outside the calibration", &outside, 0);
}

static int compare_double(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double median_of(double *x, size_t n) {
    qsort(x, n, sizeof *x, compare_double);
    return n > 0 ? (x[(n - 1) / 2] + x[n / 2]) / 2 : 0;
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
    s.median_top1 = median_of(top1, s.n);
    s.median_top5 = median_of(top5, s.n);
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

static double magnitude(double x) {
    return x < 0 ? -x : x;
}

static void print_worst(struct dtp_arena *a, FILE *f, const struct dtp_validation *v, int worst) {
    bool *shown = DTP_NEW(a, bool, v->runs.n + 1);
    if (worst > 0)
        fprintf(f, "\nworst rows\n");
    for (int k = 0; k < worst; k++) {
        size_t at = v->runs.n;
        for (size_t i = 0; i < v->runs.n; i++)
            if (v->row[i].supported && v->row[i].run->step_s > 0 && !shown[i] &&
                (at == v->runs.n || magnitude(v->row[i].error) > magnitude(v->row[at].error)))
                at = i;
        if (at == v->runs.n)
            return;
        const struct dtp_validated *row = &v->row[at];
        shown[at] = true;
        fprintf(f, "  %+7.1f %%  %-36s measured %.4g s, predicted %.4g s  %s\n", 100 * row->error,
                row->run->id, row->run->step_s, row->predicted_s, row->note);
    }
}

static void print_verdicts(FILE *f, const struct dtp_validation *v) {
    int ran = 0, declared_no = 0, failed = 0, declared_failed = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *row = &v->row[i];
        if (!row->supported)
            continue;
        if (row->run->step_s > 0) {
            ran++;
            declared_no += !row->fits;
        } else {
            failed++;
            declared_failed += !row->fits;
        }
    }
    fprintf(f, "\nmemory verdicts: of %d runs that ran, %d (%.1f %%) are declared not to fit\n",
            ran, declared_no, ran ? 100.0 * declared_no / ran : 0.0);
    if (failed)
        fprintf(f, "                 of %d that failed, %d (%.1f %%) are declared not to fit\n",
                failed, declared_failed, 100.0 * declared_failed / failed);
}

void dtp_validation_print(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                          const struct dtp_validation_report *report) {
    fprintf(f, "predicted against measured; errors in percent, bias > 0: predicted too slow\n\n");
    print_table(a, f, v, report->detail);
    print_verdicts(f, v);
    print_cells(a, f, v);
    print_worst(a, f, v, report->worst);
}

/* ---- JSON and CSV ---------------------------------------------------------------------------------------- */

static void write_stats(struct dtp_json_out *w, const char *key, const struct dtp_error_stats *s) {
    dtp_json_put_key(w, key);
    dtp_json_object(w);
    dtp_json_kv_int(w, "rows", s->rows);
    dtp_json_kv_double(w, "mape_pct", 100 * s->mape);
    dtp_json_kv_double(w, "median_pct", 100 * s->median);
    dtp_json_kv_double(w, "p90_pct", 100 * s->p90);
    dtp_json_kv_double(w, "bias_pct", 100 * s->bias);
    dtp_json_kv_double(w, "worst_pct", 100 * s->worst);
    dtp_json_end(w);
}

static void write_set(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_validation *v,
                      const struct subset *inside) {
    struct subset outside = *inside;
    outside.extrapolated = true;
    struct dtp_error_stats step = dtp_validation_stats(a, v, false, in_subset, inside);
    struct dtp_error_stats memory = dtp_validation_stats(a, v, true, in_subset, inside);
    struct dtp_error_stats beyond = dtp_validation_stats(a, v, false, in_subset, &outside);
    write_stats(w, "step", &step);
    write_stats(w, "memory", &memory);
    write_stats(w, "outside_calibration", &beyond);
}

static void write_cells(struct dtp_json_out *w, const struct dtp_validation *v) {
    dtp_json_put_key(w, "cells");
    dtp_json_array(w);
    for (size_t i = 0; i < v->ncells; i++) {
        const struct dtp_cell *c = &v->cell[i];
        dtp_json_object(w);
        dtp_json_kv_string(w, "file", c->file);
        dtp_json_kv_string(w, "model", c->model);
        dtp_json_kv_int(w, "gpus", c->gpus);
        dtp_json_kv_int(w, "rows", c->rows);
        dtp_json_kv_double(w, "spearman", c->spearman);
        dtp_json_kv_double(w, "kendall", c->kendall);
        dtp_json_kv_double(w, "regret_top1_pct", 100 * c->regret_top1);
        dtp_json_kv_double(w, "regret_top5_pct", 100 * c->regret_top5);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

void dtp_validation_write_json(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    struct dtp_json_out w;
    struct subset all = {0};
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", 1);
    dtp_json_kv_string(&w, "version", DTP_VERSION);
    dtp_json_kv_u64(&w, "rows", v->runs.n);
    dtp_json_kv_int(&w, "unsupported", count_rows(v, NULL, NULL, false));
    dtp_json_put_key(&w, "all");
    dtp_json_object(&w);
    write_set(a, &w, v, &all);
    dtp_json_end(&w);
    for (int g = 0; g < NGROUPINGS; g++) {
        const char **value;
        size_t n = distinct(a, v, groupings[g].key, &value);
        dtp_json_put_key(&w, dtp_arena_printf(a, "by_%s", groupings[g].name));
        dtp_json_array(&w);
        for (size_t i = 0; i < n; i++) {
            struct subset s = {.by = &groupings[g], .value = value[i]};
            dtp_json_object(&w);
            dtp_json_kv_string(&w, groupings[g].name, value[i]);
            dtp_json_kv_int(&w, "unsupported", count_rows(v, &groupings[g], value[i], false));
            write_set(a, &w, v, &s);
            dtp_json_end(&w);
        }
        dtp_json_end(&w);
    }
    write_cells(&w, v);
    dtp_json_end(&w);
}

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
