#include "hw/calibrate.h"

#include <math.h>
#include <string.h>

#include "hw/calibrate_internal.h"
#include "sim/base/text.h"

/* Every constant of g that the rows tell something about, starting from those in g. */
static enum dtp_status fit(struct dtp_arena *a, const struct dtp_cal_rows *rows, struct dtp_gpu *g,
                           struct dtp_cal_result *result, struct dtp_err *err) {
    DTP_TRY(dtp_calibrate_gemm(a, rows, g, result, err));
    DTP_TRY(dtp_calibrate_attention(a, rows, g, result, err));
    return dtp_calibrate_kernels(a, rows, g, result, err);
}

static const char *const *string_list(struct dtp_arena *a, const struct dtp_json *j) {
    size_t n = j && dtp_json_type(j) == DTP_JSON_ARRAY ? dtp_json_size(j) : 0, kept = 0;
    const char **list = DTP_NEW(a, const char *, n + 1);

    for (size_t i = 0; i < n; i++)
        if (dtp_json_type(dtp_json_at(j, i)) == DTP_JSON_STRING)
            list[kept++] = dtp_json_string(dtp_json_at(j, i));
    return list;
}

/* ---- writing ---- */

/* Four significant digits: more would claim a precision that no sweep has. */
static double rounded(double v) {
    double scale;

    if (v <= 0 || !isfinite(v))
        return v;
    scale = pow(10, 3 - floor(log10(v)));
    return scale >= 1 ? round(v * scale) / scale : round(v * scale) * round(1 / scale);
}

/* An entry of constants, such as a row of "kernel", stands on one line. */
static bool has_only_constants(const struct dtp_field *fields) {
    for (; fields->name; fields++)
        if (fields->kind == DTP_FIELD_OBJECT)
            return false;
    return true;
}

static bool is_empty(const struct dtp_field *fields, const char *base) {
    for (const struct dtp_field *f = fields; f->name; f++) {
        if (f->kind == DTP_FIELD_OBJECT ? !is_empty(f->fields, base + f->offset)
                                        : *(const double *)(const void *)(base + f->offset) > 0)
            return false;
        if (f->kind == DTP_FIELD_DOUBLE && f == fields)
            return true; /* the first constant of an entry, its rate, decides */
    }
    return true;
}

/* Members that are set; an entry without a rate is left out. */
static void put_constants(struct dtp_json_out *w, const struct dtp_field *fields,
                          const char *base) {
    for (const struct dtp_field *f = fields; f->name; f++) {
        const void *at = base + f->offset;

        bool said_anew = f->kind == DTP_FIELD_STRING || f->kind == DTP_FIELD_BOOL;
        if (said_anew || (f->kind == DTP_FIELD_OBJECT && is_empty(f->fields, at)))
            continue;
        if (f->kind == DTP_FIELD_DOUBLE) {
            if (*(const double *)at > 0)
                dtp_json_kv_double(w, f->name, rounded(*(const double *)at));
            continue;
        }
        dtp_json_put_key(w, f->name);
        if (has_only_constants(f->fields))
            dtp_json_line(w);
        dtp_json_object(w);
        put_constants(w, f->fields, at);
        dtp_json_end(w);
    }
}

static const struct dtp_cal_error *class_named(const struct dtp_cal_result *r, const char *name) {
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->classes[i].name, name))
            return &r->classes[i];
    return NULL;
}

/* Sources of the old file for what was not fitted, of the rows for what was. */
static void put_sources(struct dtp_json_out *w, const struct dtp_json *old,
                        const struct dtp_cal_result *result) {
    dtp_json_put_key(w, "source");
    dtp_json_object(w);
    if (old && dtp_json_type(old) == DTP_JSON_STRING)
        dtp_json_kv_string(w, "not_fitted", dtp_json_string(old));
    for (size_t i = 0; old && dtp_json_type(old) == DTP_JSON_OBJECT && i < dtp_json_size(old); i++)
        if (!class_named(result, dtp_json_key(dtp_json_at(old, i)))) {
            dtp_json_put_key(w, dtp_json_key(dtp_json_at(old, i)));
            dtp_json_put_json(w, dtp_json_at(old, i));
        }
    for (size_t i = 0; i < result->n; i++)
        dtp_json_kv_string(w, result->classes[i].name, result->classes[i].source);
    dtp_json_end(w);
}

static void put_errors(struct dtp_json_out *w, const struct dtp_cal_result *result) {
    dtp_json_put_key(w, "fit");
    dtp_json_object(w);
    dtp_json_kv_string(w, "source",
                       "dtplan calibrate; relative errors of rows left out of the fit in turn");
    for (size_t i = 0; i < result->n; i++) {
        const struct dtp_cal_error *e = &result->classes[i];

        dtp_json_put_key(w, e->name);
        dtp_json_line(w);
        dtp_json_object(w);
        dtp_json_kv_u64(w, "rows", e->rows);
        dtp_json_kv_u64(w, "used", e->used);
        dtp_json_kv_double(w, "median", rounded(e->median));
        dtp_json_kv_double(w, "p90", rounded(e->p90));
        if (e->rows_layer) {
            dtp_json_kv_u64(w, "rows_of_layers", e->rows_layer);
            dtp_json_kv_double(w, "median_of_layers", rounded(e->median_layer));
            dtp_json_kv_double(w, "p90_of_layers", rounded(e->p90_layer));
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void put_calibration(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_json *old,
                            const struct dtp_gpu *g, const struct dtp_cal_result *result) {
    const struct dtp_json *fixed = dtp_json_get(old, "fixed");
    struct dtp_str summary = {.a = a};

    for (size_t i = 0; i < result->n; i++)
        if (strncmp(result->classes[i].name, "kernel", 6))
            dtp_str_printf(&summary, "%s%s %.1f %% (p90 %.1f)",
                           summary.at ? ", " : "median error on kernels left out of the fit: ",
                           result->classes[i].name, 100 * result->classes[i].median,
                           100 * result->classes[i].p90);
    dtp_json_object(w);
    dtp_json_kv_string(w, "summary", summary.at ? summary.at : g->calibration);
    put_sources(w, dtp_json_get(old, "source"), result);
    if (fixed) {
        dtp_json_put_key(w, "fixed");
        dtp_json_put_rows(w, fixed);
    }
    if (result->rows_unloaded)
        dtp_json_kv_bool(w, "rows_unloaded", true);
    put_constants(w, dtp_gpu_calibration_fields, (const char *)g);
    put_errors(w, result);
    dtp_json_end(w);
}

/* Writes the old file with a new calibration. */
static enum dtp_status write_file(struct dtp_arena *a, const char *path, const struct dtp_json *old,
                                  const struct dtp_gpu *g, const struct dtp_cal_result *result,
                                  struct dtp_err *err) {
    struct dtp_file_out file;
    struct dtp_json_out w;

    DTP_TRY(dtp_file_out_open(a, path, &file, err));
    dtp_json_begin(&w, file.f, 1);
    dtp_json_object(&w);
    for (size_t i = 0; i < dtp_json_size(old); i++) {
        const struct dtp_json *member = dtp_json_at(old, i);

        dtp_json_put_key(&w, dtp_json_key(member));
        if (!strcmp(dtp_json_key(member), "calibration"))
            put_calibration(a, &w, member, g, result);
        else
            dtp_json_put_rows(&w, member);
    }
    dtp_json_end(&w);
    return dtp_file_out_commit(&file, err);
}

static void report_table(FILE *f, const char *gpu, const struct dtp_cal_rows *rows,
                         const struct dtp_cal_result *result) {
    fprintf(f, "%s: %zu rows taken, %zu of other GPUs, %zu biased or without a time\n", gpu,
            rows->n, rows->other_gpu, rows->biased);
    fprintf(f, "%-26s %6s %6s %8s %8s %8s   layers: %5s %8s %8s\n", "class", "rows", "used",
            "median %", "p90 %", "bias %", "rows", "median %", "p90 %");
    for (size_t i = 0; i < result->n; i++) {
        const struct dtp_cal_error *e = &result->classes[i];

        fprintf(f, "%-26s %6zu %6zu %8.1f %8.1f %+8.1f", e->name, e->rows, e->used, 100 * e->median,
                100 * e->p90, 100 * e->bias);
        if (e->rows_layer)
            fprintf(f, "           %5zu %8.1f %8.1f", e->rows_layer, 100 * e->median_layer,
                    100 * e->p90_layer);
        fputc('\n', f);
    }
}

static void read_fixed(struct dtp_arena *a, const struct dtp_json *calibration,
                       struct dtp_cal_result *result) {
    const struct dtp_json *unloaded = dtp_json_get(calibration, "rows_unloaded");

    for (const char *const *f = string_list(a, dtp_json_get(calibration, "fixed")); *f; f++) {
        if (!strcmp(*f, "sustained"))
            result->keep_sustained = true;
        if (!strcmp(*f, "gemm_rate"))
            result->keep_rate = true;
        if (!strcmp(*f, "gemm_fp8"))
            result->keep_fp8 = true;
        if (!strcmp(*f, "gemm_shape"))
            result->keep_shape = true;
    }
    result->rows_unloaded =
        unloaded && dtp_json_type(unloaded) == DTP_JSON_BOOL && dtp_json_bool(unloaded);
}

enum dtp_status dtp_calibrate_from_files(struct dtp_arena *a, const struct dtp_calibrate_args *args,
                                         struct dtp_err *err) {
    struct dtp_cal_result result = {0};
    struct dtp_cal_rows rows = {0};
    struct dtp_cal_names names;
    const struct dtp_json *j, *old;
    struct dtp_gpu g;

    DTP_TRY(dtp_gpu_load(a, args->gpu, &g, err)); /* names the nearest if there is none */
    const char *path = dtp_data_path(a, dtp_arena_printf(a, "hw/gpu/%s.json", g.name));
    DTP_TRY(dtp_json_read_file(a, path, &j, err));
    old = dtp_json_get(j, "calibration");
    names.own = string_list(a, dtp_json_get(j, "sweep_names"));
    names.same_chip = string_list(a, dtp_json_get(j, "same_chip"));
    for (size_t i = 0; i < args->npaths; i++)
        DTP_TRY(dtp_calibrate_read(a, args->paths[i], &names, &rows, err));
    if (!rows.n)
        return dtp_fail(err, DTP_EINPUT, "no row is of %s: none has a gpu among its sweep_names",
                        args->gpu);
    read_fixed(a, old, &result);
    DTP_TRY(fit(a, &rows, &g, &result, err));
    if (args->report)
        report_table(args->report, args->gpu, &rows, &result);
    return args->out_path ? write_file(a, args->out_path, j, &g, &result, err) : DTP_OK;
}
