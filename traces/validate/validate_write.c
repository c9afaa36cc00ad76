#include <stddef.h>
#include <string.h>

#include "traces/validate/validate_parts.h"

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
                             const struct dtp_subset *inside) {
    struct dtp_subset outside = *inside;
    outside.extrapolated = true;
    return (struct group){.value = inside->value,
                          .unsupported = dtp_count_unsupported(v, inside->by, inside->value),
                          .step = dtp_validation_stats(a, v, false, dtp_in_subset, inside),
                          .memory = dtp_validation_stats(a, v, true, dtp_in_subset, inside),
                          .outside = dtp_validation_stats(a, v, false, dtp_in_subset, &outside)};
}

/* Writes a list of groups for each way to group the rows: "by_file", "by_gpu", ... */
static void put_groups(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    for (const struct dtp_grouping *by = dtp_groupings; by->name; by++) {
        const char **value;
        size_t n = dtp_distinct_values(d->a, d->v, by->key, &value);
        dtp_json_put_key(w, dtp_arena_printf(d->a, "by_%s", by->name));
        dtp_json_array(w);
        for (size_t i = 0; i < n; i++) {
            const struct dtp_subset subset = {.by = by, .value = value[i]};
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
    const struct dtp_subset all = {0};
    const struct document d = {.a = a,
                               .v = v,
                               .version = DTP_VERSION,
                               .schema_version = 1,
                               .rows = v->runs.n,
                               .unsupported = dtp_count_unsupported(v, NULL, NULL),
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
