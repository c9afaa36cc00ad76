#include "traces/measured.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/tune.h"

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
                                              TEXT(source),
                                              {0}};

enum { NRUN_FIELDS = sizeof run_fields / sizeof run_fields[0] - 1 };

/* ---- reading ------------------------------------------------------------------------------------ */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void run_unknown(struct dtp_run *run) {
    *run =
        (struct dtp_run){.gpu_mem_gb = DTP_UNKNOWN, .step_s = DTP_UNKNOWN, .peak_mem = DTP_UNKNOWN};
    const char *empty = "";
    for (int i = 0; i < NRUN_FIELDS; i++) {
        char *at = (char *)run + run_fields[i].offset;
        if (run_fields[i].kind == DTP_FIELD_INT)
            memcpy(at, &(int){DTP_UNKNOWN}, sizeof(int));
        if (run_fields[i].kind == DTP_FIELD_STRING)
            memcpy(at, &empty, sizeof empty);
    }
}

/* A cell that cannot be read costs its row, not the file. */
static void read_row(struct dtp_arena *a, const struct dtp_csv *csv, size_t row, const int *col,
                     struct dtp_run *out) {
    run_unknown(out);
    out->file = base_name(csv->name);
    out->line = csv->line[row];
    for (int i = 0; i < NRUN_FIELDS; i++) {
        const char *cell = dtp_csv_get(csv, row, col[i]);
        if (!*cell || strcmp(cell, "?") == 0)
            continue;
        const char *place =
            dtp_arena_printf(a, "%s:%d: column %s", csv->name, csv->line[row], run_fields[i].name);
        struct dtp_err bad;
        if (dtp_field_parse(a, &run_fields[i], cell, place, out, &bad) != DTP_OK)
            out->broken = dtp_arena_strdup(a, bad.msg);
    }
}

enum dtp_status dtp_runs_read(struct dtp_arena *a, const char *path, struct dtp_runs *out,
                              struct dtp_err *err) {
    static const char *const needed[] = {"id",     "framework", "gpu", "gpus",         "layers",
                                         "hidden", "seq",       "tp",  "global_batch", NULL};
    struct dtp_csv csv;
    DTP_TRY(dtp_csv_read_file(a, path, &csv, err));
    int col[NRUN_FIELDS];
    for (int i = 0; i < NRUN_FIELDS; i++)
        col[i] = dtp_csv_col(&csv, run_fields[i].name);
    for (int i = 0; needed[i]; i++)
        if (dtp_csv_col(&csv, needed[i]) < 0)
            return dtp_fail(err, DTP_EINPUT,
                            "%s: not a file of measured runs: no column \"%s\" (columns: id, "
                            "framework, gpu, gpus, layers, hidden, ..., step_s)",
                            path, needed[i]);
    struct dtp_run *grown = dtp_arena_grow(a, out->at, sizeof *out->at, out->n, out->n + csv.nrows);
    out->at = grown;
    out->verdicts = dtp_csv_col(&csv, "step_s") < 0;
    for (size_t row = 0; row < csv.nrows; row++)
        read_row(a, &csv, row, col, &out->at[out->n++]);
    return DTP_OK;
}

/* ---- from a row to a problem ---------------------------------------------------------------------- */

struct cluster_fact {
    const char *framework, *gpu, *source_contains, *cluster;
    const char *stack; /* the framework where the row's is another or "other"; NULL: the row's */
    const char *recompute;     /* of the run where the row's cannot be; NULL: the row's */
    const char *peak_mem_unit; /* what a unit of the row means; NULL: what it says */
    bool tied_embeddings;      /* head and token table are one matrix, which no column says */
    bool peak_of_first_stage;  /* peak_mem is rank 0's, not the largest */
    bool launch_blocking;      /* run with CUDA_LAUNCH_BLOCKING=1 */
    bool checked_collectives, checked_transfers, keeps_gathered_input; /* as of the framework */
    int gpus_above, tp_above, tp_below, pp_above; /* only for runs of such a size; 0: of any */
    double checked_above_bytes; /* runs of a larger predicted peak were checked too; 0: never */
    bool dropout;               /* on, though the model's family has none */
    bool whole_sequences;       /* no sequence parallelism where the row does not say */
    int zero_stage;             /* where the row does not say */
};

/* Which stack of ours a row's framework stands for, by what else the row says. */
struct stack_fact {
    const char *framework, *source_contains, *dtype_contains, *schedule_contains, *use;
};

/* What a library has loaded, by key: rows share their few clusters and models. */
struct kept_cluster {
    const char *key;
    struct dtp_cluster cluster;
};
struct kept_model {
    const char *key;
    bool known;
    struct dtp_model model;
};

struct dtp_run_library {
    struct dtp_arena *a;
    struct kept_cluster *cluster;
    struct kept_model *model;
    size_t nclusters, nmodels;
    struct stack_fact *stack;
    size_t nstacks;
    struct cluster_fact *fact;
    size_t nfacts;
    struct dtp_framework *framework;
    size_t nframeworks;
};

static const struct dtp_field fact_fields[] = {
    {.name = "framework",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, framework),
     .required = true,
     .help = "of the row"},
    {.name = "gpu",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, gpu),
     .required = true,
     .help = "of the row; empty: any"},
    {.name = "source_contains",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, source_contains),
     .required = true,
     .help = "part of the row's source"},
    {.name = "cluster",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, cluster),
     .help = "entry of hw/cluster; without it the usual nodes of the row's GPU"},
    {.name = "peak_mem_unit",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, peak_mem_unit),
     .help = "unit of peak_mem where the row's is mistaken"},
    {.name = "tied_embeddings",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, tied_embeddings),
     .help = "head and token table are one matrix"},
    {.name = "peak_of_first_stage",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, peak_of_first_stage),
     .help = "peak_mem is that of rank 0, not the largest"},
    {.name = "launch_blocking",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, launch_blocking),
     .help = "run with CUDA_LAUNCH_BLOCKING=1"},
    {.name = "checked_collectives",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, checked_collectives),
     .help = "run with checks of every collective"},
    {.name = "checked_transfers",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, checked_transfers),
     .help = "run with slow transfers between stages"},
    {.name = "keeps_gathered_input",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, keeps_gathered_input),
     .help = "sequence parallelism kept what it gathered"},
    {.name = "gpus_above",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, gpus_above),
     .max = 1e6,
     .help = "only runs on more GPUs"},
    {.name = "tp_above",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, tp_above),
     .max = 1e6,
     .help = "only runs with a larger tp"},
    {.name = "tp_below",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, tp_below),
     .max = 1e6,
     .help = "only runs with a smaller tp"},
    {.name = "checked_above_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = offsetof(struct cluster_fact, checked_above_bytes),
     .max = 1e13,
     .help = "both kinds of checks where the predicted peak is above"},
    {.name = "pp_above",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, pp_above),
     .max = 1e6,
     .help = "only runs with a larger pp"},
    {.name = "dropout",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, dropout),
     .help = "run with dropout, whatever the model's family"},
    {.name = "whole_sequences",
     .kind = DTP_FIELD_BOOL,
     .offset = offsetof(struct cluster_fact, whole_sequences),
     .help = "run without sequence parallelism where the row does not say"},
    {.name = "zero_stage",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, zero_stage),
     .help = "of the run where the row does not say"},
    {.name = "recompute",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct cluster_fact, recompute),
     .help = "none, selective or full, where the row's own cannot be"},
    {0}};

#define STACK(member) offsetof(struct stack_fact, member)
static const struct dtp_field stack_fields[] = {{.name = "framework",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(framework),
                                                 .required = true,
                                                 .help = "of the row"},
                                                {.name = "source_contains",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(source_contains),
                                                 .help = "part of the row's source"},
                                                {.name = "dtype_contains",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(dtype_contains),
                                                 .help = "part of the row's dtype"},
                                                {.name = "schedule_contains",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(schedule_contains),
                                                 .help = "part of the row's schedule"},
                                                {.name = "use",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(use),
                                                 .required = true,
                                                 .help = "entry of models/frameworks"},
                                                {0}};

static enum dtp_status read_stacks(struct dtp_arena *a, struct dtp_run_library *l,
                                   const struct dtp_json *j, struct dtp_err *err) {
    const struct dtp_json *stacks = dtp_json_get(j, "stacks");
    if (!stacks)
        return DTP_OK;
    if (dtp_json_type(stacks) != DTP_JSON_ARRAY)
        return dtp_json_expected(stacks, "an array", err);
    l->nstacks = dtp_json_size(stacks);
    l->stack = DTP_NEW(a, struct stack_fact, l->nstacks);
    for (size_t i = 0; i < l->nstacks; i++) {
        l->stack[i].source_contains = l->stack[i].dtype_contains = l->stack[i].schedule_contains =
            "";
        DTP_TRY(dtp_fields_read(a, dtp_json_at(stacks, i), stack_fields, &l->stack[i], err));
    }
    return DTP_OK;
}

enum dtp_status dtp_run_library_create(struct dtp_arena *a, struct dtp_run_library **out,
                                       struct dtp_err *err) {
    struct dtp_run_library *l = DTP_NEW(a, struct dtp_run_library, 1);
    const struct dtp_json *j;
    l->a = a;
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "traces/measured/clusters.json"), &j, err));
    const struct dtp_json *runs = dtp_json_get(j, "runs");
    if (!runs || dtp_json_type(runs) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an object with an array \"runs\"", err);
    l->nfacts = dtp_json_size(runs);
    l->fact = DTP_NEW(a, struct cluster_fact, l->nfacts);
    for (size_t i = 0; i < l->nfacts; i++)
        DTP_TRY(dtp_fields_read(a, dtp_json_at(runs, i), fact_fields, &l->fact[i], err));
    DTP_TRY(read_stacks(a, l, j, err));
    const char *const *names;
    DTP_TRY(dtp_framework_list(a, &names, &l->nframeworks, err));
    l->framework = DTP_NEW(a, struct dtp_framework, l->nframeworks);
    for (size_t i = 0; i < l->nframeworks; i++)
        DTP_TRY(dtp_framework_load(a, names[i], &l->framework[i], err));
    *out = l;
    return DTP_OK;
}

static const struct dtp_framework *find_framework(const struct dtp_run_library *l,
                                                  const char *name) {
    for (size_t i = 0; i < l->nframeworks; i++) {
        if (strcmp(l->framework[i].name, name) == 0)
            return &l->framework[i];
        for (size_t k = 0; l->framework[i].aliases && l->framework[i].aliases[k]; k++)
            if (strcmp(l->framework[i].aliases[k], name) == 0)
                return &l->framework[i];
    }
    return NULL;
}

static void add_note(struct dtp_arena *a, struct dtp_run_case *c, const char *text) {
    c->note = *c->note ? dtp_arena_printf(a, "%s; %s", c->note, text) : text;
}

/* "other" stands for stacks without a file of their own: the nearest by the row's other columns. */
static const struct dtp_framework *nearest_framework(const struct dtp_run_library *l,
                                                     const struct dtp_run *run) {
    bool model_parallel = run->tp > 1 || run->pp > 1;
    const char *name = strstr(run->schedule, "DeepSpeed") ? "megatron-deepspeed"
                       : model_parallel                   ? "megatron-core"
                       : run->zero_stage >= 2             ? "torch-fsdp2"
                                                          : "torch-ddp";
    return find_framework(l, name);
}

static bool fact_has_size(const struct cluster_fact *f, const struct dtp_run *run) {
    return (f->gpus_above == 0 || run->gpus > f->gpus_above) &&
           (f->tp_above == 0 || run->tp > f->tp_above) &&
           (f->tp_below == 0 || run->tp < f->tp_below) &&
           (f->pp_above == 0 || run->pp > f->pp_above);
}

static const struct cluster_fact *find_fact(const struct dtp_run_library *l,
                                            const struct dtp_run *run) {
    for (size_t i = 0; i < l->nfacts; i++) {
        const struct cluster_fact *f = &l->fact[i];
        bool gpu = !*f->gpu || strcmp(f->gpu, run->gpu) == 0;
        if (strcmp(f->framework, run->framework) == 0 && gpu &&
            strstr(run->source, f->source_contains) && fact_has_size(f, run))
            return f;
    }
    return NULL;
}

static bool set_framework(struct dtp_arena *a, const struct dtp_run_library *l,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    const char *name = run->framework;
    for (size_t i = l->nstacks; i-- > 0;) /* the first that matches counts */
        if (strcmp(l->stack[i].framework, run->framework) == 0 &&
            strstr(run->source, l->stack[i].source_contains) &&
            strstr(run->dtype, l->stack[i].dtype_contains) &&
            strstr(run->schedule, l->stack[i].schedule_contains))
            name = l->stack[i].use;
    const struct dtp_framework *f = find_framework(l, name);
    if (!f && strcmp(run->framework, "other") == 0) {
        f = nearest_framework(l, run);
        if (f)
            add_note(a, c, dtp_arena_printf(a, "framework taken as %s", f->name));
    }
    if (f) {
        const struct cluster_fact *fact = find_fact(l, run);
        c->framework = *f;
        c->peak_of_first_stage = fact && fact->peak_of_first_stage;
        if (fact && fact->peak_mem_unit)
            c->peak_mem_unit = fact->peak_mem_unit;
        c->framework.launch_blocking |= fact && fact->launch_blocking;
        c->framework.checked_collectives |= fact && fact->checked_collectives;
        c->framework.checked_transfers |= fact && fact->checked_transfers;
        c->framework.keeps_gathered_input |= fact && fact->keeps_gathered_input;
    } else
        c->unsupported = dtp_arena_printf(a, "framework %s", run->framework);
    return f != NULL;
}

/* The named entry of hw/cluster, or with name NULL the usual nodes of the row's GPU. */
static enum dtp_status load_cluster(struct dtp_run_library *l, const struct dtp_run *run,
                                    const char *name, struct dtp_cluster *out,
                                    struct dtp_err *err) {
    int per_node = run->gpus_per_node > 0 ? run->gpus_per_node : 8;
    double memory_gb = run->gpu_mem_gb > 0 ? run->gpu_mem_gb : 0;
    const char *key =
        name ? name : dtp_arena_printf(l->a, "%s %g %d", run->gpu, memory_gb, per_node);
    for (size_t i = 0; i < l->nclusters; i++)
        if (strcmp(l->cluster[i].key, key) == 0) {
            *out = l->cluster[i].cluster;
            return DTP_OK;
        }
    if (name)
        DTP_TRY(dtp_cluster_load(l->a, name, out, err));
    else
        DTP_TRY(dtp_cluster_for_gpu(l->a, run->gpu, memory_gb, per_node, out, err));
    l->cluster =
        dtp_arena_grow(l->a, l->cluster, sizeof *l->cluster, l->nclusters, l->nclusters + 1);
    l->cluster[l->nclusters++] = (struct kept_cluster){key, *out};
    return DTP_OK;
}

static bool set_cluster(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                        struct dtp_run_case *c) {
    struct dtp_err err;
    const struct cluster_fact *f = find_fact(l, run);
    if (!f && run->gpus_per_node <= 0)
        add_note(a, c, "8 GPUs per node assumed");
    if (load_cluster(l, run, f ? f->cluster : NULL, &c->cluster, &err) == DTP_OK) {
        if (c->cluster.max_gpus > 0 && run->gpus > c->cluster.max_gpus) {
            add_note(a, c, "more GPUs than the cluster is known to have");
            c->cluster.max_gpus = run->gpus;
        }
        return true;
    }
    c->unsupported = f ? dtp_arena_strdup(a, err.msg) : dtp_arena_printf(a, "GPU %s", run->gpu);
    return false;
}

/* Name of the model without what stands in parentheses: "GPT 175B (MegaScale)". */
static const char *bare_name(struct dtp_arena *a, const char *name) {
    const char *paren = strchr(name, '(');
    size_t n = paren ? (size_t)(paren - name) : strlen(name);
    while (n > 0 && name[n - 1] == ' ')
        n--;
    char *bare = dtp_arena_strndup(a, name, n);
    for (char *p = bare; *p; p++)
        if (*p == ' ')
            *p = '-';
    return bare;
}

/* The family whose flags a row's model has, by the start of its name. */
static const char *family_of(const struct dtp_run *run) {
    static const struct {
        const char *start, *family;
    } families[] = {{"mpt", "mpt"},   {"bloom", "bloom"},       {"gpt", "gpt"},
                    {"opt", "opt"},   {"nemotron", "nemotron"}, {"falcon", "falcon"},
                    {"bert", "bert"}, {"mt-nlg", "gpt"},        {"llama", "llama"}};
    char lower[16] = "";
    for (size_t i = 0; i + 1 < sizeof lower && run->model[i]; i++)
        lower[i] = (char)tolower((unsigned char)run->model[i]);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strncmp(lower, families[i].start, strlen(families[i].start)) == 0)
            return families[i].family;
    return run->gated_ffn == 1 ? "llama" : "gpt";
}

/* A model of models/NAME.json, if there is one. */
static bool load_model(struct dtp_run_library *l, const char *name, struct dtp_model *out) {
    for (size_t i = 0; i < l->nmodels; i++)
        if (strcmp(l->model[i].key, name) == 0) {
            *out = l->model[i].model;
            return l->model[i].known;
        }
    bool known = dtp_model_load(l->a, name, out, NULL) == DTP_OK;
    l->model = dtp_arena_grow(l->a, l->model, sizeof *l->model, l->nmodels, l->nmodels + 1);
    l->model[l->nmodels++] = (struct kept_model){name, known, *out};
    return known;
}

static bool set_model(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                      struct dtp_run_case *c) {
    struct dtp_err err;
    struct dtp_model *m = &c->model;
    bool known = load_model(l, bare_name(l->a, run->model), m) && m->layers == run->layers &&
                 m->hidden == run->hidden;
    if (!known && dtp_model_family(family_of(run), m, &err) != DTP_OK) {
        c->unsupported = dtp_arena_strdup(a, err.msg);
        return false;
    }
    m->name = run->model;
    m->layers = run->layers;
    m->hidden = run->hidden;
    m->heads = run->heads > 0 ? run->heads : m->heads;
    if (!known)
        m->head_dim = 0;
    m->kv_heads = run->kv_heads > 0 ? run->kv_heads : m->kv_heads;
    m->ffn = run->ffn > 0 ? run->ffn : m->ffn;
    if (run->gated_ffn >= 0)
        m->gated_ffn = run->gated_ffn;
    m->vocab = run->vocab > 0 ? run->vocab : m->vocab;
    if (m->vocab == 0) {
        m->vocab = 50257;
        add_note(a, c, "vocabulary of 50257 assumed");
    }
    const struct cluster_fact *fact = find_fact(l, run);
    if (fact && fact->tied_embeddings)
        m->tied_embeddings = true;
    if (fact && fact->dropout)
        m->dropout = 0.1;
    m->seq = run->seq;
    m->max_positions = m->position == DTP_POS_LEARNED ? run->seq : m->max_positions;
    if (dtp_model_finish(m, &err) == DTP_OK)
        return true;
    c->unsupported = dtp_arena_strdup(a, err.msg);
    return false;
}

static enum dtp_dtype run_dtype(const struct dtp_run *run) {
    if (strstr(run->dtype, "fp8") || strstr(run->dtype, "FP8") || strstr(run->dtype, "float8"))
        return DTP_FP8;
    if (strstr(run->dtype, "fp16"))
        return DTP_FP16;
    if (strcmp(run->dtype, "fp32") == 0)
        return DTP_TF32;
    return DTP_BF16;
}

static void set_attention(const struct dtp_run *run, struct dtp_run_case *c) {
    enum dtp_attention usual = dtp_framework_on(&c->framework, &c->cluster.gpu).attention;
    c->problem.attention = DTP_UNKNOWN;
    if (run->flash_attention == 0)
        c->problem.attention = DTP_ATTN_UNFUSED;
    if (run->flash_attention == 1)
        c->problem.attention = usual == DTP_ATTN_UNFUSED ? DTP_ATTN_FLASH2 : (int)usual;
}

static int or_one(int v) {
    return v > 0 ? v : 1;
}

/* The cut of the framework, where it has its own. */
static void set_stage_layers(struct dtp_arena *a, struct dtp_run_case *c) {
    int *layers = DTP_NEW(a, int, (size_t)c->plan.pp);
    if (c->plan.vpp == 1 && c->plan.pp <= DTP_MAX_STAGES &&
        dtp_framework_stage_layers(&c->framework, &c->model, c->plan.pp, layers))
        c->plan.layers_per_stage = (struct dtp_ints){.at = layers, .n = (size_t)c->plan.pp};
}

/* "ZeRO-1 over 8 (intra-node groups)", "ZeRO-1 in 8-GPU groups"; 0: nothing of the kind. */
static int stated_zero_group(const char *schedule, int replicas) {
    const char *at = strstr(schedule, "ZeRO-1 over ");
    int n = 0;
    if (!at)
        at = strstr(schedule, "ZeRO-1 in ");
    if (!at)
        return 0;
    at += strcspn(at + 6, " ") + 6; /* past "ZeRO-1" */
    while (*at && !isdigit((unsigned char)*at))
        at++;
    while (isdigit((unsigned char)*at) && n < DTP_MAX_STAGES)
        n = 10 * n + (*at++ - '0');
    return n < replicas ? n : 0;
}

static void set_recompute(struct dtp_arena *a, const struct cluster_fact *fact,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    int recompute = dtp_name_index(dtp_recompute_names, run->recompute);
    if (recompute < 0) {
        recompute =
            strstr(run->recompute, "selective") ? DTP_RECOMPUTE_SELECTIVE : DTP_RECOMPUTE_NONE;
        add_note(a, c, "no recomputation assumed");
    }
    int real = fact && fact->recompute ? dtp_name_index(dtp_recompute_names, fact->recompute) : -1;
    if (real >= 0 && real != recompute) {
        recompute = real;
        add_note(a, c, dtp_arena_printf(a, "run with recomputation %s", fact->recompute));
    }
    c->plan.recompute = (enum dtp_recompute)recompute;
}

static bool set_plan(struct dtp_arena *a, const struct dtp_run_library *l,
                     const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    *p = dtp_plan_default();
    p->tp = or_one(run->tp);
    p->pp = or_one(run->pp);
    p->cp = or_one(run->cp);
    p->vpp = or_one(run->vpp);
    p->dp = run->dp > 0 ? run->dp : run->gpus / (p->tp * p->pp * p->cp);
    const struct cluster_fact *fact = find_fact(l, run);
    p->zero_stage = run->zero_stage > 0 ? run->zero_stage : 0;
    if (run->zero_stage < 0 && fact && p->dp * p->cp > 1)
        p->zero_stage = fact->zero_stage;
    /* What a stack calls ZeRO-3 may keep its parameters gathered over the microbatches of a pipeline. */
    if (p->pp > 1 && p->zero_stage == 3 && !(c->framework.zero_stages_pp >> 3 & 1) &&
        (c->framework.zero_stages_pp >> 2 & 1)) {
        p->zero_stage = 2;
        add_note(a, c, "parameters stay gathered over the microbatches");
    }
    p->zero_group = stated_zero_group(run->schedule, p->dp * p->cp);
    p->global_batch_size = run->global_batch;
    p->microbatch_size = or_one(run->microbatch);
    p->sequence_parallel = run->sequence_parallel == 1 && p->tp > 1;
    bool whole = fact && fact->whole_sequences;
    if (run->sequence_parallel < 0 && p->tp > 1 && c->framework.has_sequence_parallel && !whole) {
        p->sequence_parallel = true;
        add_note(a, c, "sequence parallelism assumed");
    }
    set_recompute(a, fact, run, c);
    int named = *run->schedule ? dtp_schedule_find(run->schedule) : -1;
    p->schedule = named >= 0 ? named : DTP_SCHED_1F1B;
    if (run->vpp <= 0 && p->pp > 1 && strstr(run->schedule, "nterleaved")) {
        p->vpp = 2;
        add_note(a, c, "2 virtual stages assumed");
    }
    if (p->vpp > 1 && p->pp > 1)
        p->schedule = DTP_SCHED_INTERLEAVED;
    else
        p->vpp = 1;
    if (p->vpp == 1 && p->schedule == DTP_SCHED_INTERLEAVED)
        p->schedule = DTP_SCHED_1F1B;
    c->outside = strstr(run->dtype, "FP4") || strstr(run->dtype, "MX");
    if (c->outside)
        add_note(a, c, dtp_arena_printf(a, "%s is outside the calibration", run->dtype));
    p->dtype = run_dtype(run);
    set_stage_layers(a, c);
    if (run->global_batch <= 0 ||
        p->global_batch_size % (p->microbatch_size * or_one(p->dp)) != 0 ||
        dtp_plan_num_microbatches(p) < 1) {
        c->unsupported = "the batch does not divide";
        return false;
    }
    return true;
}

/* Runs that a source made with checks because they did not fit at first. */
static void set_checks(struct dtp_arena *a, const struct dtp_run_library *l,
                       const struct dtp_run *run, struct dtp_run_case *c) {
    const struct cluster_fact *fact = find_fact(l, run);
    if (!fact || fact->checked_above_bytes <= 0 || c->plan.pp > DTP_MAX_STAGES)
        return;
    struct dtp_stage_memory *stages = DTP_NEW(a, struct dtp_stage_memory, (size_t)c->plan.pp);
    dtp_memory(dtp_memory_memo_create(a, &c->problem), &c->plan, stages);
    if ((double)stages[0].peak_bytes > fact->checked_above_bytes)
        c->framework.checked_collectives = c->framework.checked_transfers = true;
}

enum dtp_status dtp_run_case_make(struct dtp_arena *a, struct dtp_run_library *library,
                                  const struct dtp_run *run, struct dtp_run_case *out,
                                  struct dtp_err *err) {
    (void)err;
    memset(out, 0, sizeof *out);
    out->note = "";
    out->peak_mem_unit = run->peak_mem_unit;
    if (run->broken) {
        out->unsupported = run->broken;
        return DTP_OK;
    }
    if (run->gpus <= 0 || run->layers <= 0 || run->hidden <= 0 || run->seq <= 0) {
        out->unsupported = "gpus, layers, hidden or seq is missing";
        return DTP_OK;
    }
    if (!set_framework(a, library, run, out) || !set_cluster(a, library, run, out) ||
        !set_model(a, library, run, out) || !set_plan(a, library, run, out))
        return DTP_OK;
    out->problem = (struct dtp_problem){.model = &out->model,
                                        .cluster = &out->cluster,
                                        .framework = &out->framework,
                                        .gpus = run->gpus,
                                        .seq = run->seq,
                                        .global_batch = run->global_batch,
                                        .memory_limit_bytes = out->cluster.gpu.memory_bytes,
                                        .dtype = out->plan.dtype};
    set_attention(run, out);
    enum dtp_reason reason = dtp_plan_check(&out->problem, &out->plan);
    /* A run that was made is legal; only what makes no layout at all is refused here. */
    if (reason == DTP_WHY_GPUS || reason == DTP_WHY_BATCH || reason == DTP_WHY_LAYERS ||
        reason == DTP_WHY_DTYPE)
        out->unsupported = dtp_reasons[reason];
    else if (reason != DTP_LEGAL)
        add_note(a, out,
                 dtp_arena_printf(a, "outside the framework's rules: %s", dtp_reasons[reason]));
    if (out->unsupported)
        return DTP_OK;
    set_checks(a, library, run, out);
    struct dtp_unsaid unsaid = {.microbatch = run->microbatch <= 0,
                                .vpp =
                                    run->vpp <= 0 && (strstr(run->schedule, "nterleaved") != NULL),
                                .recompute = !*run->recompute};
    const char *taken = dtp_run_tune(a, out, unsaid);
    if (taken)
        add_note(a, out, taken);
    else if (unsaid.microbatch)
        add_note(a, out, "microbatch 1 assumed");
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
    /* torchtitan and torchtune print what the allocator has reserved. */
    bool reserves = strstr(run->source, "torchtitan") || strstr(run->source, "torchtune");
    *out_meaning = strstr(unit, "smi")                    ? "device"
                   : strstr(unit, "reserved") || reserves ? "reserved"
                                                          : "allocated";
    return run->peak_mem > 0 ? run->peak_mem * scale : 0;
}
