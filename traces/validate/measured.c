#include "traces/validate/measured.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "hw/cluster.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

#define AT(member) offsetof(struct dtp_run, member)
#define TEXT(member)                                                                               \
    { .name = #member, .kind = DTP_FIELD_STRING, .offset = AT(member), .help = "" }
#define WHOLE(member)                                                                              \
    {                                                                                              \
        .name = #member, .kind = DTP_FIELD_INT, .offset = AT(member), .min = DTP_UNKNOWN,          \
        .max = 1e9, .help = ""                                                                     \
    }
#define REAL(member)                                                                               \
    { .name = #member, .kind = DTP_FIELD_DOUBLE, .offset = AT(member), .help = "" }

static const char *const peak_mem_kinds[] = {"allocated", "reserved", "driver", NULL};
static const struct dtp_field run_fields[] = {TEXT(id),
                                              TEXT(framework),
                                              TEXT(gpu),
                                              REAL(gpu_mem_gb),
                                              WHOLE(gpus),
                                              WHOLE(gpus_per_node),
                                              TEXT(model),
                                              WHOLE(layers),
                                              WHOLE(hidden),
                                              WHOLE(heads),
                                              WHOLE(kv_heads),
                                              WHOLE(ffn),
                                              WHOLE(gated_ffn),
                                              WHOLE(vocab),
                                              WHOLE(seq),
                                              WHOLE(tp),
                                              WHOLE(pp),
                                              WHOLE(vpp),
                                              WHOLE(cp),
                                              WHOLE(dp),
                                              WHOLE(ep),
                                              WHOLE(etp),
                                              WHOLE(zero_stage),
                                              WHOLE(microbatch),
                                              WHOLE(global_batch),
                                              TEXT(dtype),
                                              TEXT(recompute),
                                              WHOLE(sequence_parallel),
                                              WHOLE(flash_attention),
                                              TEXT(schedule),
                                              REAL(step_s),
                                              TEXT(step_s_from),
                                              REAL(peak_mem),
                                              TEXT(peak_mem_unit),
                                              {.name = "peak_mem_kind",
                                               .kind = DTP_FIELD_ENUM,
                                               .offset = AT(peak_mem_kind),
                                               .names = peak_mem_kinds,
                                               .help = ""},
                                              TEXT(attention),
                                              TEXT(cluster),
                                              TEXT(nic),
                                              TEXT(optimizer),
                                              TEXT(loss),
                                              WHOLE(lora),
                                              TEXT(source),
                                              {0}};

enum { NRUN_FIELDS = sizeof run_fields / sizeof run_fields[0] - 1 };

static void run_unknown(struct dtp_run *run) {
    *run =
        (struct dtp_run){.gpu_mem_gb = DTP_UNKNOWN, .step_s = DTP_UNKNOWN, .peak_mem = DTP_UNKNOWN};
    const char *empty = "";
    for (int i = 0; i < NRUN_FIELDS; i++) {
        char *at = (char *)run + run_fields[i].offset;
        if (run_fields[i].kind == DTP_FIELD_INT || run_fields[i].kind == DTP_FIELD_ENUM)
            memcpy(at, &(int){DTP_UNKNOWN}, sizeof(int));
        if (run_fields[i].kind == DTP_FIELD_STRING)
            memcpy(at, &empty, sizeof empty);
    }
}

/* Plan documents and other tools call a column by these names; a unit is given if it is not the usual one. */
static const struct {
    const char *name, *also, *unit;
} other_names[] = {{"gpus", "num_gpus"},
                   {"gpus", "ngpus"},
                   {"microbatch", "microbatch_size"},
                   {"microbatch", "micro_batch"},
                   {"microbatch", "micro_batch_size"},
                   {"microbatch", "mbs"},
                   {"global_batch", "global_batch_size"},
                   {"global_batch", "batch"},
                   {"global_batch", "gbs"},
                   {"seq", "seq_len"},
                   {"seq", "seq_length"},
                   {"seq", "sequence_length"},
                   {"step_s", "step_time_s"},
                   {"step_s", "step_time"},
                   {"step_s", "step_ms", "ms"},
                   {"step_s", "step_time_ms", "ms"}};
enum { NOTHER_NAMES = sizeof other_names / sizeof *other_names };

static int find_col(const struct dtp_csv *csv, const char *name) {
    for (size_t i = 0; i < csv->ncols; i++)
        if (dtp_same_name(csv->header[i], name))
            return (int)i;
    return -1;
}

static int run_col(const struct dtp_csv *csv, const char *name) {
    int col = find_col(csv, name);
    for (size_t i = 0; i < NOTHER_NAMES && col < 0; i++)
        if (strcmp(other_names[i].name, name) == 0)
            col = find_col(csv, other_names[i].also);
    return col;
}

/* The numbers of the column are in another unit than the field's: which. */
static const char *unit_of(const struct dtp_csv *csv, int col) {
    for (size_t i = 0; i < NOTHER_NAMES; i++)
        if (other_names[i].unit && dtp_same_name(csv->header[col], other_names[i].also))
            return other_names[i].unit;
    return "";
}

static bool ends_in_digit(const char *cell) {
    size_t n = strlen(cell);
    return n > 0 && (isdigit((unsigned char)cell[n - 1]) || cell[n - 1] == '.');
}

/* Names that people give to two things: not guessed at unless the file says which. */
static enum dtp_status check_names(const struct dtp_csv *csv, struct dtp_err *err) {
    int batch = run_col(csv, "global_batch"), step = run_col(csv, "step_s");
    if (batch >= 0 && dtp_same_name(csv->header[batch], "batch") && run_col(csv, "microbatch") < 0)
        return dtp_fail(
            err, DTP_EINPUT,
            "%s: column \"batch\" may be that of a step or of a replica's pass: call it "
            "global_batch, or give microbatch as well",
            csv->name);
    if (step < 0 || !dtp_same_name(csv->header[step], "step_time"))
        return DTP_OK;
    for (size_t row = 0; row < csv->nrows; row++)
        if (ends_in_digit(dtp_csv_get(csv, row, step)))
            return dtp_fail(err, DTP_EINPUT,
                            "%s:%d: column \"%s\": found \"%s\" without a unit: call it step_s or "
                            "step_ms, or write %sms",
                            csv->name, csv->line[row], csv->header[step],
                            dtp_csv_get(csv, row, step), dtp_csv_get(csv, row, step));
    return DTP_OK;
}

/* A cell that cannot be read costs its row, not the file. */
static void read_row(struct dtp_arena *a, const struct dtp_csv *csv, size_t row, const int *col,
                     const char *const *families, struct dtp_run *out) {
    run_unknown(out);
    out->file = dtp_base_name(csv->name);
    out->line = csv->line[row];
    for (int i = 0; i < NRUN_FIELDS; i++) {
        const char *cell = dtp_csv_get(csv, row, col[i]);
        if (!*cell || strcmp(cell, "?") == 0)
            continue;
        const char *place =
            dtp_arena_printf(a, "%s:%d: column %s", csv->name, csv->line[row], run_fields[i].name);
        struct dtp_err bad;
        if (run_fields[i].kind == DTP_FIELD_DOUBLE && ends_in_digit(cell))
            cell = dtp_arena_printf(a, "%s%s", cell, unit_of(csv, col[i]));
        if (dtp_field_parse(a, &run_fields[i], cell, place, out, &bad) != DTP_OK)
            out->broken = dtp_arena_strdup(a, bad.msg);
    }
    out->gpu = dtp_card_name(families, out->gpu);
}

static enum dtp_status lacks(struct dtp_arena *a, const struct dtp_csv *csv, const char *what,
                             struct dtp_err *err) {
    enum { MOST_NAMED = 12 };
    struct dtp_str has = {.a = a};
    for (size_t i = 0; i < csv->ncols && i < MOST_NAMED; i++)
        dtp_str_printf(&has, "%s%s", i > 0 ? ", " : "", csv->header[i]);
    return dtp_fail(err, DTP_EINPUT,
                    "%s: not a file of measured runs: no column %s, found %s%s (traces/README.md "
                    "has the columns)",
                    csv->name, what, has.at ? has.at : "none",
                    csv->ncols > MOST_NAMED ? ", ..." : "");
}

enum dtp_status dtp_runs_read(struct dtp_arena *a, const char *path, struct dtp_runs *out,
                              struct dtp_err *err) {
    static const char *const needed[] = {"id", "framework", "gpu", "gpus", "global_batch"};
    struct dtp_csv csv;
    DTP_TRY(dtp_csv_read_file(a, path, &csv, err));
    int col[NRUN_FIELDS];
    for (int i = 0; i < NRUN_FIELDS; i++)
        col[i] = run_col(&csv, run_fields[i].name);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (run_col(&csv, needed[i]) < 0)
            return lacks(a, &csv, dtp_arena_printf(a, "\"%s\"", needed[i]), err);
    bool shape = run_col(&csv, "layers") >= 0 && run_col(&csv, "hidden") >= 0;
    if (run_col(&csv, "model") < 0 && !shape)
        return lacks(a, &csv, "\"model\", nor \"layers\" and \"hidden\"", err);
    DTP_TRY(check_names(&csv, err));
    const char *const *families = NULL;
    DTP_TRY(dtp_card_families(a, &families, err));
    struct dtp_run *grown = dtp_arena_grow(a, out->at, sizeof *out->at, out->n, out->n + csv.nrows);
    out->at = grown;
    for (size_t row = 0; row < csv.nrows; row++)
        read_row(a, &csv, row, col, families, &out->at[out->n++]);
    return DTP_OK;
}

double dtp_run_peak_bytes(const struct dtp_run *run, const char **out_meaning) {
    const char *unit = run->peak_mem_unit;
    double scale = strncmp(unit, "GiB", 3) == 0     ? DTP_GIB
                   : strncmp(unit, "MiB", 3) == 0   ? DTP_MIB
                   : strncmp(unit, "GB", 2) == 0    ? DTP_GIGA
                   : strncmp(unit, "MB", 2) == 0    ? DTP_MEGA
                   : strncmp(unit, "bytes", 5) == 0 ? 1.0
                                                    : 0.0;
    /* torchtitan prints what the allocator has reserved. */
    bool reserves = strstr(run->source, "torchtitan");
    static const char *const meanings[] = {"allocated", "reserved", "device"};
    if (run->peak_mem_kind >= 0)
        *out_meaning = meanings[run->peak_mem_kind];
    else
        *out_meaning = strstr(unit, "smi")                    ? "device"
                       : strstr(unit, "reserved") || reserves ? "reserved"
                                                              : "allocated";
    return run->peak_mem > 0 ? run->peak_mem * scale : 0;
}
