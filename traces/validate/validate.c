#include "traces/validate/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/pool.h"
#include "sim/base/stats.h"
#include "sim/base/text.h"

/* ---- predicting ----------------------------------------------------------------------------------- */

struct predict_ctx {
    const struct dtp_validate_options *options;
    struct dtp_run_case *cases; /* [n], made one after the other: they share the library */
    struct dtp_validated *row;
    struct dtp_arena **arena; /* [threads], reset for each row */
};

static double peak_of(const struct dtp_result *r, const char *meaning, bool first_stage) {
    bool reserved = strcmp(meaning, "reserved") == 0;
    if (strcmp(meaning, "device") == 0)
        return (double)r->observed_bytes;
    if (first_stage && r->nstages > 0)
        return (double)(reserved ? r->stages[0].reserved_bytes : r->stages[0].peak_bytes);
    return (double)(reserved ? r->reserved_bytes : r->peak_bytes);
}

static void predict_row(void *context, size_t item, int thread) {
    struct predict_ctx *ctx = context;
    struct dtp_validated *row = &ctx->row[item];
    struct dtp_run_case *c = &ctx->cases[item];
    if (!row->supported)
        return;
    struct dtp_arena *a = ctx->arena[thread];
    dtp_arena_reset(a);
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &c->problem);
    struct dtp_result r;
    if (dtp_evaluate(a, ev, &c->plan, ctx->options->fidelity, NULL, &r, NULL) != DTP_OK ||
        !(r.step_s > 0)) {
        row->supported = false;
        row->note = "the plan could not be simulated";
    } else {
        row->predicted_s = r.step_s * c->batches;
        row->predicted_peak_bytes = peak_of(&r, row->peak_meaning, c->peak_of_first_stage);
        row->extrapolated = r.extrapolated || c->outside;
        row->fits = r.device_bytes <= c->problem.memory_limit_bytes;
        row->breakdown = r.breakdown;
    }
    dtp_evaluator_destroy(ev);
}

static void finish_row(struct dtp_validated *row) {
    const struct dtp_run *run = row->run;
    if (!row->supported)
        return;
    if (run->step_s > 0)
        row->error = row->predicted_s / run->step_s - 1;
    if (row->measured_peak_bytes > 0)
        row->memory_error = row->predicted_peak_bytes / row->measured_peak_bytes - 1;
}

/* Names of the fitted constants; "by_gpu" stands for the factors of the family. */
static void name_fitted(struct dtp_arena *a, const struct dtp_run_case *c,
                        struct dtp_validated *row) {
    struct dtp_str s = {.a = a};
    const struct dtp_framework *f = &c->framework;
    struct dtp_framework_gpu on = dtp_framework_on(f, &c->cluster.gpu);
    bool factors = false;
    for (const char *const *name = f->fitted; name && *name; name++) {
        if (strcmp(*name, "by_gpu") == 0) {
            factors = true;
            continue;
        }
        dtp_str_printf(&s, "%s%s", row->nfitted ? " " : "", *name);
        row->nfitted++;
    }
    const char *const names[] = {"kernel_time_factor", "attention_time_factor"};
    const bool set[] = {on.kernel_time_factor != f->kernels.kernel_time_factor,
                        on.attention_time_factor != 1};
    for (int i = 0; i < 2 && factors; i++)
        if (set[i])
            dtp_str_printf(&s, "%s%s", row->nfitted++ ? " " : "", names[i]);
    row->fitted = s.at ? s.at : "";
    row->gpu_family = c->cluster.gpu.family;
}

enum { ROWS_PER_WAVE = 64 }; /* between two calls of the progress function */

static enum dtp_status predict_all(struct dtp_arena *a, const struct dtp_validate_options *options,
                                   struct dtp_validation *out, struct dtp_err *err) {
    size_t n = out->runs.n;
    struct dtp_run_library *library;
    DTP_TRY(dtp_run_library_create(a, &library, err));
    struct predict_ctx ctx = {
        .options = options, .cases = DTP_NEW(a, struct dtp_run_case, n), .row = out->row};
    int threads = options->jobs > 0 ? options->jobs : dtp_pool_default_threads();
    for (size_t i = 0; i < n; i++) {
        struct dtp_validated *row = &out->row[i];
        row->run = &out->runs.at[i];
        dtp_run_case_make(a, library, row->run, &ctx.cases[i]);
        row->supported = ctx.cases[i].unsupported == NULL;
        row->experts = row->supported && ctx.cases[i].model.moe.experts > 0;
        row->framework = row->supported ? ctx.cases[i].framework.name : "";
        if (row->supported)
            name_fitted(a, &ctx.cases[i], row);
        row->note = row->supported ? ctx.cases[i].note : ctx.cases[i].unsupported;
        row->unknown_schedule = row->supported ? ctx.cases[i].unknown_schedule : NULL;
        struct dtp_run run = *row->run;
        run.peak_mem_unit = ctx.cases[i].peak_mem_unit;
        row->measured_peak_bytes = dtp_run_peak_bytes(&run, &row->peak_meaning);
        if (row->supported &&
            row->measured_peak_bytes > (double)ctx.cases[i].cluster.gpu.memory_bytes) {
            row->measured_peak_bytes = 0;
            row->note = dtp_arena_printf(a, "%s%speak_mem is more than a card has, left out",
                                         row->note, *row->note ? "; " : "");
        }
    }
    ctx.arena = DTP_NEW(a, struct dtp_arena *, (size_t)threads);
    for (int t = 0; t < threads; t++)
        ctx.arena[t] = dtp_arena_create("validate row");
    for (size_t from = 0; from < n; from += ROWS_PER_WAVE) {
        struct predict_ctx wave = ctx;
        size_t left = n - from;
        wave.row += from;
        wave.cases += from;
        dtp_pool_run(threads, left < ROWS_PER_WAVE ? left : ROWS_PER_WAVE, predict_row, &wave);
        if (options->progress)
            options->progress(options->progress_ctx,
                              from + ROWS_PER_WAVE < n ? from + ROWS_PER_WAVE : n, n);
    }
    for (int t = 0; t < threads; t++)
        dtp_arena_destroy(ctx.arena[t]);
    for (size_t i = 0; i < n; i++)
        finish_row(&out->row[i]);
    return DTP_OK;
}

/* ---- statistics ------------------------------------------------------------------------------------ */

struct dtp_error_stats dtp_validation_stats(struct dtp_arena *a, const struct dtp_validation *v,
                                            bool memory, dtp_row_filter *keep, const void *ctx) {
    struct dtp_error_stats s = {0};
    double *magnitude = DTP_NEW(a, double, v->runs.n + 1), sum = 0, signed_sum = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_validated *row = &v->row[i];
        bool measured = memory ? row->measured_peak_bytes > 0 : row->run->step_s > 0;
        if (!row->supported || !measured || !keep(ctx, row))
            continue;
        double error = memory ? row->memory_error : row->error;
        magnitude[s.rows] = fabs(error);
        sum += magnitude[s.rows++];
        signed_sum += error;
    }
    if (s.rows == 0)
        return s;
    s.mape = sum / s.rows;
    s.bias = signed_sum / s.rows;
    s.median = dtp_median(magnitude, (size_t)s.rows);
    s.p90 = magnitude[(9 * s.rows + 9) / 10 - 1]; /* nearest rank */
    s.worst = magnitude[s.rows - 1];
    return s;
}

struct ranked {
    bool last; /* after all that are not */
    double value;
    size_t index;
};

static int compare_ranked(const void *x, const void *y) {
    const struct ranked *a = x, *b = y;
    if (a->last != b->last)
        return a->last - b->last;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* ---- cells ----------------------------------------------------------------------------------------- */

enum { LEAST_LAYOUTS = 5 };

static bool same_cell(const struct dtp_validated *a, const struct dtp_validated *b) {
    return strcmp(a->run->file, b->run->file) == 0 && strcmp(a->run->model, b->run->model) == 0 &&
           a->run->gpus == b->run->gpus && a->run->seq == b->run->seq &&
           a->run->layers == b->run->layers && a->run->hidden == b->run->hidden &&
           strcmp(a->run->gpu, b->run->gpu) == 0;
}

/* Layouts that are all alike to the prediction, or to the measurement, are not ranked by it. */
static double or_none(double correlation) {
    return isnan(correlation) ? 0 : correlation;
}

static void cell_make(struct dtp_arena *a, const struct dtp_validation *v, const size_t *member,
                      size_t n, struct dtp_cell *out) {
    const struct dtp_run *run = v->row[member[0]].run;
    double *predicted = DTP_NEW(a, double, n), *measured = DTP_NEW(a, double, n);
    struct ranked *order = DTP_NEW(a, struct ranked, n);
    double best = INFINITY, best5 = INFINITY;
    for (size_t i = 0; i < n; i++) { /* per sequence, since batches may differ */
        const struct dtp_validated *row = &v->row[member[i]];
        predicted[i] = row->predicted_s / row->run->global_batch;
        measured[i] = row->run->step_s / row->run->global_batch;
        order[i] = (struct ranked){!row->fits, predicted[i], i};
        best = measured[i] < best ? measured[i] : best;
    }
    qsort(order, n, sizeof *order, compare_ranked);
    for (size_t i = 0; i < n && i < 5; i++)
        best5 = measured[order[i].index] < best5 ? measured[order[i].index] : best5;
    *out = (struct dtp_cell){.file = run->file,
                             .model = run->model,
                             .gpus = run->gpus,
                             .rows = (int)n,
                             .spearman = or_none(dtp_spearman(a, predicted, measured, n)),
                             .kendall = or_none(dtp_kendall(predicted, measured, n)),
                             .regret_top1 = measured[order[0].index] / best - 1,
                             .regret_top5 = best5 / best - 1};
}

static void cells_make(struct dtp_arena *a, struct dtp_validation *v) {
    size_t n = v->runs.n;
    bool *taken = DTP_NEW(a, bool, n + 1);
    size_t *member = DTP_NEW(a, size_t, n + 1);
    v->cell = DTP_NEW(a, struct dtp_cell, n / LEAST_LAYOUTS + 1);
    for (size_t i = 0; i < n; i++) {
        size_t count = 0;
        for (size_t j = i; j < n && v->row[i].supported && v->row[i].run->step_s > 0 && !taken[i];
             j++)
            if (v->row[j].supported && v->row[j].run->step_s > 0 && !taken[j] &&
                same_cell(&v->row[i], &v->row[j]))
                member[count++] = j;
        for (size_t k = 0; k < count; k++)
            taken[member[k]] = true;
        if (count >= LEAST_LAYOUTS)
            cell_make(a, v, member, count, &v->cell[v->ncells++]);
    }
}

enum dtp_status dtp_validate(struct dtp_arena *a, const char *const *paths, size_t npaths,
                             const struct dtp_validate_options *options, struct dtp_validation *out,
                             struct dtp_err *err) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < npaths; i++)
        DTP_TRY(dtp_runs_read(a, paths[i], &out->runs, err));
    out->row = DTP_NEW(a, struct dtp_validated, out->runs.n + 1);
    DTP_TRY(predict_all(a, options, out, err));
    cells_make(a, out);
    return DTP_OK;
}
