#include "traces/validate/accuracy.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct dtp_accuracy, member)
static const struct dtp_field fields[] = {
    {.name = "framework",
     .kind = DTP_FIELD_STRING,
     .offset = AT(framework),
     .required = true,
     .help = "entry of models/frameworks; empty: all"},
    {.name = "gpu",
     .kind = DTP_FIELD_STRING,
     .offset = AT(gpu),
     .required = true,
     .help = "family of the GPU; empty: all"},
    {.name = "experts",
     .kind = DTP_FIELD_BOOL,
     .offset = AT(experts),
     .help = "of models with experts; else of those without"},
    {.name = "rows", .kind = DTP_FIELD_INT, .offset = AT(rows), .max = 1e9, .help = "runs"},
    {.name = "mape", .kind = DTP_FIELD_DOUBLE, .offset = AT(mape), .help = "mean error, ratio"},
    {.name = "p90", .kind = DTP_FIELD_DOUBLE, .offset = AT(p90), .help = "90th percentile, ratio"},
    {.name = "bias", .kind = DTP_FIELD_DOUBLE, .offset = AT(bias), .help = "signed mean, ratio"},
    {.name = "memory_rows",
     .kind = DTP_FIELD_INT,
     .offset = AT(memory_rows),
     .max = 1e9,
     .help = "runs with a measured peak"},
    {.name = "memory_mape",
     .kind = DTP_FIELD_DOUBLE,
     .offset = AT(memory_mape),
     .help = "mean error of the peak, ratio"},
    {.name = "memory_p90",
     .kind = DTP_FIELD_DOUBLE,
     .offset = AT(memory_p90),
     .help = "90th percentile of the peak's error, ratio"},
    {0}};

/* 90th percentiles of the stacks that have runs, ascending. */
struct quartile {
    double *p90;
    size_t n;
};

static void insert(struct quartile *q, double p90) {
    size_t at = q->n++;
    for (; at > 0 && q->p90[at - 1] > p90; at--)
        q->p90[at] = q->p90[at - 1];
    q->p90[at] = p90;
}

static double upper_quartile(const struct quartile *q, double otherwise) {
    return q->n > 0 ? q->p90[q->n - 1 - q->n / 4] : otherwise;
}

enum dtp_status dtp_accuracy_of(struct dtp_arena *a, const char *framework, const char *gpu,
                                bool experts, struct dtp_accuracy *out, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "traces/measured/accuracy.json"), &j, err));
    const struct dtp_json *stacks = dtp_json_get(j, "stacks");
    if (!stacks || dtp_json_type(stacks) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an object with an array \"stacks\"", err);
    memset(out, 0, sizeof *out);
    struct quartile step = {.p90 = DTP_NEW(a, double, dtp_json_size(stacks) + 1)};
    struct quartile memory = {.p90 = DTP_NEW(a, double, dtp_json_size(stacks) + 1)};
    struct dtp_accuracy all = {0}, x;
    bool found = false, whole = false;
    for (size_t i = 0; i < dtp_json_size(stacks); i++) {
        x = (struct dtp_accuracy){0};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(stacks, i), fields, &x, err));
        if (!*x.framework) {
            all = x;
            whole = true;
            continue;
        }
        if (x.rows >= DTP_FEW_RUNS)
            insert(&step, x.p90);
        if (x.memory_rows >= DTP_FEW_RUNS)
            insert(&memory, x.memory_p90);
        if (strcmp(x.framework, framework) == 0 && strcmp(x.gpu, gpu) == 0 &&
            x.experts == experts && x.rows >= DTP_FEW_RUNS) {
            *out = x;
            found = true;
        }
    }
    if (!whole)
        return dtp_fail(err, DTP_EINPUT, "traces/measured/accuracy.json: no entry for all runs");
    if (!found) {
        *out = all;
        out->p90 = upper_quartile(&step, all.p90);
    }
    if (!found || out->memory_rows < DTP_FEW_RUNS)
        out->memory_p90 = upper_quartile(&memory, all.memory_p90);
    return DTP_OK;
}

static bool of_stack(const void *ctx, const struct dtp_validated *row) {
    const struct dtp_accuracy *x = ctx;
    return !row->extrapolated &&
           (!*x->framework || (strcmp(x->framework, row->framework) == 0 &&
                               strcmp(x->gpu, row->run->gpu) == 0 && x->experts == row->experts));
}

static void write_stack(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_validation *v,
                        struct dtp_accuracy x) {
    struct dtp_error_stats step = dtp_validation_stats(a, v, false, of_stack, &x);
    struct dtp_error_stats memory = dtp_validation_stats(a, v, true, of_stack, &x);
    if (step.rows == 0 && *x.framework)
        return;
    x.rows = step.rows;
    x.mape = step.mape;
    x.p90 = step.p90;
    x.bias = step.bias;
    x.memory_rows = memory.rows;
    x.memory_mape = memory.mape;
    x.memory_p90 = memory.p90;
    dtp_json_object(w);
    dtp_fields_write(w, fields, &x);
    dtp_json_end(w);
}

void dtp_accuracy_write(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    struct dtp_json_out w;
    struct dtp_accuracy *seen = DTP_NEW(a, struct dtp_accuracy, v->runs.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        struct dtp_accuracy x = {.framework = v->row[i].framework,
                                 .gpu = v->row[i].run->gpu,
                                 .experts = v->row[i].experts};
        size_t k = 0;
        if (!v->row[i].supported)
            continue;
        while (k < n && (strcmp(seen[k].framework, x.framework) != 0 ||
                         strcmp(seen[k].gpu, x.gpu) != 0 || seen[k].experts != x.experts))
            k++;
        if (k == n)
            seen[n++] = x;
    }
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "source", "dtplan validate --accuracy over the measured runs");
    dtp_json_put_key(&w, "stacks");
    dtp_json_array(&w);
    for (size_t i = 0; i < n; i++)
        write_stack(a, &w, v, seen[i]);
    write_stack(a, &w, v, (struct dtp_accuracy){.framework = "", .gpu = ""});
    dtp_json_end(&w);
    dtp_json_end(&w);
}
