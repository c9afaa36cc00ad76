#include <string.h>

#include "traces/validate/validate_parts.h"

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
                      const struct dtp_subset *inside) {
    struct dtp_subset outside = *inside;
    outside.extrapolated = true;
    struct dtp_error_stats step = dtp_validation_stats(a, v, false, dtp_in_subset, inside);
    struct dtp_error_stats memory = dtp_validation_stats(a, v, true, dtp_in_subset, inside);
    struct dtp_error_stats beyond = dtp_validation_stats(a, v, false, dtp_in_subset, &outside);
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
    struct dtp_subset all = {0};
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", 1);
    dtp_json_kv_string(&w, "version", DTP_VERSION);
    dtp_json_kv_u64(&w, "rows", v->runs.n);
    dtp_json_kv_int(&w, "unsupported", dtp_count_unsupported(v, NULL, NULL));
    dtp_json_put_key(&w, "all");
    dtp_json_object(&w);
    write_set(a, &w, v, &all);
    dtp_json_end(&w);
    for (int g = 0; dtp_groupings[g].name; g++) {
        const char **value;
        size_t n = dtp_distinct_values(a, v, dtp_groupings[g].key, &value);
        dtp_json_put_key(&w, dtp_arena_printf(a, "by_%s", dtp_groupings[g].name));
        dtp_json_array(&w);
        for (size_t i = 0; i < n; i++) {
            struct dtp_subset s = {.by = &dtp_groupings[g], .value = value[i]};
            dtp_json_object(&w);
            dtp_json_kv_string(&w, dtp_groupings[g].name, value[i]);
            dtp_json_kv_int(&w, "unsupported",
                            dtp_count_unsupported(v, &dtp_groupings[g], value[i]));
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
