/* dtplan infer: finds the model and the plan behind a trace. */
#include "traces/replay/infer.h"

#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

struct own {
    const char *out;
    int rank;
};

static const struct dtp_option options[] = {
    {"out", DTP_OPT_STRING, 'o', offsetof(struct own, out), .value = "FILE",
     .complete = DTP_COMPLETE_FILE,
     .help = "write the plan document, model and all, for dtplan simulate --plan FILE"},
    {"rank", DTP_OPT_INT, 0, offsetof(struct own, rank), .value = "N", .min = -1, .max = 1 << 20,
     .help = "rank of a single file that does not say"},
    {0}};

static void defaults(void *own) {
    ((struct own *)own)->rank = -1;
}

/* The value as people write it. */
static const char *value_text(struct dtp_arena *a, enum dtp_infer_field f, int64_t v) {
    bool index = v >= 0;
    if (f == DTP_INFER_SCHEDULE && index && v < DTP_NSCHEDULES)
        return dtp_schedule_kinds[v].name;
    if (f == DTP_INFER_RECOMPUTE && index && v <= DTP_RECOMPUTE_FULL)
        return dtp_recompute_names[v];
    if (f == DTP_INFER_DTYPE && index && v < DTP_NDTYPES)
        return dtp_dtype_names[v];
    if (f == DTP_INFER_NORM)
        return v ? "RMS" : "layer";
    if (f == DTP_INFER_GATED || f == DTP_INFER_ROPE || f == DTP_INFER_TRAINS ||
        f == DTP_INFER_SEQUENCE_PARALLEL)
        return v ? "yes" : "no";
    return dtp_arena_printf(a, "%lld", (long long)v);
}

/* ---- the cluster ---- */

/* GB in the name of a device, "A100-SXM4-80GB", else of what the driver reported; 0: unknown. */
static double memory_gb(const struct dtp_inferred *in) {
    const char *gb = strstr(in->device, "GB"), *digits = gb;
    while (gb && digits > in->device && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return gb && digits < gb ? strtod(digits, NULL) : (double)in->device_bytes / DTP_GIGA;
}

const char *dtp_cli_cluster_of(struct dtp_arena *a, const struct dtp_inferred *in) {
    const char *device = in->device;
    double wanted_gb = memory_gb(in);
    const char *const *name;
    size_t n;
    const char *found = NULL;
    size_t longest = 0;
    if (!device[0] || dtp_cluster_list(a, &name, &n, NULL) != DTP_OK)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        struct dtp_cluster *c = DTP_NEW(a, struct dtp_cluster, 1);
        if (dtp_cluster_load(a, name[i], c, NULL) != DTP_OK || !c->gpu.family ||
            !strstr(device, c->gpu.family) || (c->max_gpus > 0 && c->max_gpus < in->gpus))
            continue;
        bool dgx = strncmp(name[i], "dgx", 3) == 0;
        double gb = (double)c->gpu.memory_bytes / DTP_GIGA;
        bool same = gb > 0.85 * wanted_gb && gb < 1.15 * wanted_gb;
        size_t fit = 4 * strlen(c->gpu.family) + (wanted_gb > 0 && same ? 2 : 0) + dgx;
        if (fit > longest) {
            longest = fit;
            found = name[i];
        }
    }
    return found;
}

/* ---- output ---- */

struct document {
    struct dtp_arena *a;
    const struct dtp_inferred *inferred;
    const struct dtp_infer_model *model; /* NULL: the trace does not tell */
    const char *cluster, *framework;
    int gpus;
    const struct document *plan, *notes; /* itself, or NULL */
};

struct guess {
    const struct dtp_guess *guess;
    const char *text;
};

static void put_value(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_int(w, (*(const struct dtp_guess *const *)at)->value);
}

static void put_guesses(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    dtp_json_object(w);
    for (int i = 0; i < DTP_NINFERRED; i++) {
        const struct dtp_guess *g = &d->inferred->at[i];
        if (!g->known)
            continue;
        const struct guess x = {g, value_text(d->a, (enum dtp_infer_field)i, g->value)};
        dtp_json_put_key(w, dtp_infer_keys[i]);
        dtp_put_object(w, f, &x);
    }
    dtp_json_end(w);
}

static void put_model(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_model_write(w, at);
}

static void put_notes(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_infer_model *m = *(const struct dtp_infer_model *const *)at;
    (void)f;
    dtp_json_array(w);
    for (size_t i = 0; i < m->nnotes; i++)
        dtp_json_put_string(w, m->note[i]);
    dtp_json_end(w);
}

/* clang-format off */
#define IN(member) offsetof(struct dtp_guess, member)
static const struct dtp_field evidence_fields[] = {
    {"confidence", DTP_FIELD_DOUBLE, IN(confidence), .help = "0 to 1"},
    {"source", DTP_FIELD_STRING, IN(evidence), .help = "what says so"},
    {0}};
#undef IN
#define IN(member) offsetof(struct guess, member)
static const struct dtp_field guess_fields[] = {
    {"value", DTP_FIELD_PUT, IN(guess), .put = put_value,
     .help = "number, or that of the name in text; a name is layers, hidden, heads, ..."},
    {"text", DTP_FIELD_STRING, IN(text), .help = "the same in words"},
    DTP_FIELD_PART_AT(IN(guess), evidence_fields), {0}};
#undef IN
static const struct dtp_form model_form = {.title = "MODEL"};
#define IN(member) offsetof(struct dtp_infer_model, member)
static const struct dtp_field model_fields[] = {
    {"model", DTP_FIELD_PUT, IN(model), .put = put_model, .form = &model_form, .help = "the model as inferred"}, {0}};
static const struct dtp_field layout_fields[] = {
    {"seq", DTP_FIELD_INT, IN(seq), .help = "tokens of a sequence"}, DTP_FIELD_PLAN_AT(IN(plan)), {0}};
#undef IN
#define IN(member) offsetof(struct document, member)
static const struct dtp_field plan_fields[] = {
    {"schema_version", DTP_FIELD_PUT, .put = dtp_put_schema_version,
     .help = "version of this form, that of a plan document with what follows"},
    DTP_FIELD_SOURCE("dtplan infer: from traces"),
    DTP_FIELD_PART_AT(IN(model), model_fields),
    {"cluster", DTP_FIELD_STRING, IN(cluster), .help = "cluster that has the trace's GPU"},
    {"framework", DTP_FIELD_STRING, IN(framework), .help = "framework whose kernels these are"},
    {"gpus", DTP_FIELD_INT, IN(gpus), .help = "GPUs of the job"},
    DTP_FIELD_PART_AT(IN(model), layout_fields), {0}};
static const struct dtp_field notes_fields[] = {
    {"notes", DTP_FIELD_PUT, IN(model), .put = put_notes, .help = "what was taken for what the trace does not say"}, {0}};
static const struct dtp_field document_fields[] = {
    {"inferred", DTP_FIELD_PUT, 0, .put = put_guesses, .inner = ".*", .fields = guess_fields,
     .help = "what the trace tells"},
    DTP_FIELD_PART_AT(IN(plan), plan_fields), DTP_FIELD_PART_AT(IN(notes), notes_fields), {0}};
/* clang-format on */
static const struct dtp_form document = {"infer", "The model and the plan behind a trace.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};
static const struct dtp_form plan_document = {"infer --out", "", plan_fields};

static void write_plan(FILE *f, const void *d) {
    dtp_form_write(f, 1, &plan_document, d);
}

static void print_text(struct dtp_cli *cli, const struct dtp_inferred *in, const char *cluster) {
    enum { NAME = 40, VALUE = 14 };
    FILE *f = cli->out.file;
    fprintf(f, "%-*s %-*s confidence  evidence\n", NAME, "", VALUE, "value");
    for (int i = 0; i < DTP_NINFERRED; i++) {
        const struct dtp_guess *g = &in->at[i];
        char percent[32];
        if (!g->known) {
            fprintf(f, "%-*s %-*s\n", NAME, dtp_infer_words[i], VALUE, "?");
            continue;
        }
        fprintf(f, "%-*s %-*s %10s  %s\n", NAME, dtp_infer_words[i], VALUE,
                value_text(cli->a, (enum dtp_infer_field)i, g->value),
                dtp_fmt_percent(g->confidence, percent, sizeof percent), g->evidence);
    }
    fprintf(f, "%-*s %-*d\n", NAME, "ranks of the job", VALUE, in->gpus);
    if (cluster)
        fprintf(f, "%-*s %-*s %10s  device \"%s\"\n", NAME, "cluster, by its GPU", VALUE, cluster,
                "", in->device);
    if (in->framework[0])
        fprintf(f, "%-*s %-*s %10s  %s\n", NAME, "framework", VALUE, in->framework, "",
                in->framework_evidence);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_trace_options load = {.rank = own->rank};
    struct dtp_trace trace;
    struct dtp_inferred in;
    struct dtp_infer_model m;
    struct dtp_err why = {0};
    DTP_TRY(dtp_trace_load(cli->a, cli->arg, (size_t)cli->nargs, &load, &trace, err));
    dtp_infer(cli->a, &trace, &in);
    enum dtp_status status = dtp_infer_complete(cli->a, &in, &m, &why);
    const char *cluster = dtp_cli_cluster_of(cli->a, &in);
    struct document d = {.a = cli->a,
                         .inferred = &in,
                         .model = status == DTP_OK ? &m : NULL,
                         .cluster = cluster,
                         .framework = in.framework[0] ? in.framework : NULL,
                         .gpus = in.gpus};
    d.plan = d.notes = d.model ? &d : NULL;
    if (cli->args.json)
        dtp_form_write(cli->out.file, 1, &document, &d);
    else
        print_text(cli, &in, cluster);
    if (status != DTP_OK)
        return dtp_fail(err, status, "%s", why.msg);
    for (size_t i = 0; i < m.nnotes && !cli->args.json; i++)
        fprintf(cli->out.file, "note: %s\n", m.note[i]);
    return own->out ? dtp_file_write(cli->a, own->out, write_plan, &d, err) : DTP_OK;
}

const struct dtp_verb dtp_verb_infer = {
    .name = "infer",
    .summary = "from a trace to the model and the plan that made it",
    .synopsis = "infer TRACE... [--out PLAN.json] [--json]",
    .description =
        "Infers layers, sizes, sequence, microbatch, tensor, pipeline and data parallel groups, "
        "ZeRO "
        "or FSDP, recomputation and schedule from names, grids and counts of kernels, dimensions "
        "of "
        "operators where they were recorded, sizes and groups of collectives, and the order of "
        "forwards and backwards; each with a confidence and what it rests on. --out writes a plan "
        "document: `dtplan simulate --plan FILE` predicts the job, and other options beside it ask "
        "what another cluster or layout would do. Give all ranks. Exit status 1 when the trace "
        "does not tell layers or hidden size.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
