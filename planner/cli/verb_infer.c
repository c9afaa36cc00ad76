/* dtplan infer: the model and the plan behind a trace. */
#include "planner/cli/verb_infer.h"

#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

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

const char *dtp_cli_cluster_of(struct dtp_arena *a, const char *device, int gpus) {
    const char *const *name;
    size_t n;
    const char *found = NULL;
    size_t longest = 0;
    if (!device[0] || dtp_cluster_list(a, &name, &n, NULL) != DTP_OK)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        struct dtp_cluster *c = DTP_NEW(a, struct dtp_cluster, 1);
        if (dtp_cluster_load(a, name[i], c, NULL) != DTP_OK || !c->gpu.family ||
            !strstr(device, c->gpu.family) || (c->max_gpus > 0 && c->max_gpus < gpus))
            continue;
        bool dgx = strncmp(name[i], "dgx", 3) == 0;
        size_t fit = 2 * strlen(c->gpu.family) + dgx;
        if (fit > longest) {
            longest = fit;
            found = name[i];
        }
    }
    return found;
}

/* ---- output ---- */

static void write_document(struct dtp_json_out *w, const struct dtp_inferred *in,
                           const struct dtp_infer_model *m, const char *cluster) {
    dtp_json_kv_int(w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_kv_string(w, "source", "dtplan infer: from traces");
    dtp_json_put_key(w, "model");
    dtp_model_write(w, &m->model);
    if (cluster)
        dtp_json_kv_string(w, "cluster", cluster);
    if (in->framework[0])
        dtp_json_kv_string(w, "framework", in->framework);
    dtp_json_kv_int(w, "gpus", in->gpus);
    dtp_json_kv_int(w, "seq", m->seq);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &m->plan);
}

static enum dtp_status write_file(struct dtp_cli *cli, const struct dtp_inferred *in,
                                  const struct dtp_infer_model *m, const char *cluster,
                                  struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_file_out file;
    struct dtp_json_out w;
    DTP_TRY(dtp_file_out_open(cli->a, own->out, &file, err));
    dtp_json_begin(&w, file.f, 1);
    dtp_json_object(&w);
    write_document(&w, in, m, cluster);
    dtp_json_end(&w);
    return dtp_file_out_commit(&file, err);
}

static void write_guesses(struct dtp_cli *cli, struct dtp_json_out *w,
                          const struct dtp_inferred *in) {
    dtp_json_put_key(w, "inferred");
    dtp_json_object(w);
    for (int f = 0; f < DTP_NINFERRED; f++) {
        const struct dtp_guess *g = &in->at[f];
        if (!g->known)
            continue;
        dtp_json_put_key(w, dtp_infer_keys[f]);
        dtp_json_object(w);
        dtp_json_kv_int(w, "value", g->value);
        dtp_json_kv_string(w, "text", value_text(cli->a, (enum dtp_infer_field)f, g->value));
        dtp_json_kv_double(w, "confidence", g->confidence);
        dtp_json_kv_string(w, "source", g->evidence);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void print_json(struct dtp_cli *cli, const struct dtp_inferred *in,
                       const struct dtp_infer_model *m, const char *cluster) {
    struct dtp_json_out w;
    dtp_json_begin(&w, cli->out.file, 1);
    dtp_json_object(&w);
    write_guesses(cli, &w, in);
    if (m) {
        write_document(&w, in, m, cluster);
        dtp_json_put_key(&w, "notes");
        dtp_json_array(&w);
        for (size_t i = 0; i < m->nnotes; i++)
            dtp_json_put_string(&w, m->note[i]);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
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
    const char *cluster = dtp_cli_cluster_of(cli->a, in.device, in.gpus);
    if (cli->args.json)
        print_json(cli, &in, status == DTP_OK ? &m : NULL, cluster);
    else
        print_text(cli, &in, cluster);
    if (status != DTP_OK)
        return dtp_fail(err, status, "%s", why.msg);
    for (size_t i = 0; i < m.nnotes && !cli->args.json; i++)
        fprintf(cli->out.file, "note: %s\n", m.note[i]);
    return own->out ? write_file(cli, &in, &m, cluster, err) : DTP_OK;
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
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
