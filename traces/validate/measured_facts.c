/* Facts, stacks, clusters and models that rows of measured runs refer to. */
#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/validate/measured_internal.h"

#define FACT(field, type)                                                                          \
    .name = #field, .kind = type, .offset = offsetof(struct cluster_fact, field)
#define TEXT(field, text)                                                                          \
    { FACT(field, DTP_FIELD_STRING), .help = text }
#define NEEDED(field, text)                                                                        \
    { FACT(field, DTP_FIELD_STRING), .required = true, .help = text }
#define BOOLEAN(field, text)                                                                       \
    { FACT(field, DTP_FIELD_BOOL), .help = text }
#define INTEGER(field, top, text)                                                                  \
    { FACT(field, DTP_FIELD_INT), .max = top, .help = text }
#define NUMBER(field, top, text)                                                                   \
    { FACT(field, DTP_FIELD_DOUBLE), .max = top, .help = text }
static const struct dtp_field fact_fields[] = {
    NEEDED(framework, "of the row"),
    NEEDED(gpu, "of the row; empty: any"),
    NEEDED(source_contains, "part of the row's source"),
    TEXT(cluster, "entry of hw/cluster; without it the usual nodes of the row's GPU"),
    TEXT(peak_mem_unit, "unit of peak_mem where the row's is mistaken"),
    INTEGER(tied_below_ffn, DTP_MEGA,
            "head and token table are one matrix in models with a smaller ffn"),
    BOOLEAN(peak_of_first_stage, "peak_mem is that of rank 0, not the largest"),
    BOOLEAN(launch_blocking, "run with CUDA_LAUNCH_BLOCKING=1"),
    BOOLEAN(checked_collectives, "run with checks of every collective"),
    BOOLEAN(checked_transfers, "run with slow transfers between stages"),
    INTEGER(gpus_above, DTP_MEGA, "only runs on more GPUs"),
    INTEGER(gpus_below, DTP_MEGA, "only runs on fewer GPUs"),
    INTEGER(tp_above, DTP_MEGA, "only runs with a larger tp"),
    INTEGER(tp_below, DTP_MEGA, "only runs with a smaller tp"),
    NUMBER(checked_above_bytes, 1e13,
           "both kinds of checks where more would be reserved on a card without end"),
    NUMBER(memory_limit_bytes, 1e13, "of the card, what runs without slow transfers had"),
    INTEGER(pp_above, DTP_MEGA, "only runs with a larger pp"),
    INTEGER(dp_above, DTP_MEGA, "only runs with a larger dp"),
    INTEGER(dp_below, DTP_MEGA, "only runs with a smaller dp"),
    INTEGER(microbatch_above, DTP_MEGA, "only runs with a larger microbatch"),
    INTEGER(microbatch_below, DTP_MEGA, "only runs with a smaller microbatch"),
    INTEGER(hidden_below, DTP_MEGA, "only runs of a model with a smaller hidden size"),
    TEXT(model_contains, "part of the row's model"),
    TEXT(only_zero, "only runs with this ZeRO stage"),
    TEXT(only_recompute, "only rows that name this recomputation"),
    BOOLEAN(dropout, "run with dropout, whatever the model's family"),
    BOOLEAN(no_attention_dropout,
            "run without dropout of attention's probabilities, whatever the model's family"),
    BOOLEAN(whole_sequences, "run without sequence parallelism where the row does not say"),
    {.name = "zero_stage",
     .kind = DTP_FIELD_INT,
     .offset = offsetof(struct cluster_fact, zero_stage),
     .help = "of the run where the row does not say"},
    BOOLEAN(weighs_rows,
            "experts' rows were weighted by a kernel of their own, and kept for its backward"),
    TEXT(norm, "fused or operators: RMS norm of the run where it was not the stack's"),
    INTEGER(recompute_layers, DTP_MEGA, "full recomputation was of so many layers of a stage"),
    INTEGER(gpu_mem_below, DTP_MEGA, "only runs on cards of fewer GB"),
    NUMBER(capacity_factor, 100,
           "rows of an expert over the mean that are kept, the others dropped"),
    INTEGER(batch_below, DTP_MEGA, "only runs with a smaller global batch"),
    TEXT(family, "family of the run's model where a model of that name is of another"),
    TEXT(attention, "kernel of the run where it was not the stack's"),
    INTEGER(document_tokens, DTP_MEGA, "sequences were packed from documents of so many tokens"),
    INTEGER(vpp, DTP_MEGA, "of the run where the row does not say"),
    NUMBER(optimizer_bytes, 64, "of optimizer state per parameter, where it was not the stack's"),
    INTEGER(offloaded_layers, DTP_MEGA, "activations of so many layers were moved to the host"),
    TEXT(dtype_contains, "part of the row's dtype"),
    TEXT(recompute, "none, selective or full, where the row's own cannot be"),
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
                                                {.name = "recompute_contains",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(recompute_contains),
                                                 .help = "part of the row's recomputation"},
                                                {.name = "use",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = STACK(use),
                                                 .required = true,
                                                 .help = "entry of models/frameworks"},
                                                {0}};

static const struct dtp_field relative_fields[] = {
    {.name = "begins",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct stack_relative, begins),
     .required = true,
     .help = "how a word of the row's framework begins, whatever the case"},
    {.name = "use",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct stack_relative, use),
     .required = true,
     .help = "entry of models/frameworks"},
    {0}};

#define BATCH(member) offsetof(struct batch_fact, member)
static const struct dtp_field batch_fields[] = {{.name = "id",
                                                 .kind = DTP_FIELD_STRING,
                                                 .offset = BATCH(id),
                                                 .required = true,
                                                 .help = "of the row"},
                                                {.name = "microbatches",
                                                 .kind = DTP_FIELD_INT,
                                                 .offset = BATCH(microbatches),
                                                 .required = true,
                                                 .min = 1,
                                                 .max = 1e6,
                                                 .help = "of a replica"},
                                                {.name = "checked_collectives",
                                                 .kind = DTP_FIELD_BOOL,
                                                 .offset = BATCH(checked_collectives),
                                                 .help = "run with checks of every collective"},
                                                {0}};

/* The objects of the array `key`, `size` bytes each; without the key none. */
static enum dtp_status read_rows(struct dtp_arena *a, const struct dtp_json *j, const char *key,
                                 const struct dtp_field *fields, size_t size, void **out,
                                 size_t *out_n, struct dtp_err *err) {
    const struct dtp_json *rows = dtp_json_get(j, key);
    if (!rows)
        return DTP_OK;
    if (dtp_json_type(rows) != DTP_JSON_ARRAY)
        return dtp_json_expected(rows, "an array", err);
    *out_n = dtp_json_size(rows);
    *out = dtp_arena_alloc(a, size, *out_n);
    for (size_t i = 0; i < *out_n; i++)
        DTP_TRY(dtp_fields_read(a, dtp_json_at(rows, i), fields, (char *)*out + i * size, err));
    return DTP_OK;
}

/* Reads what clusters.json knows. */
static enum dtp_status read_facts(struct dtp_arena *a, struct dtp_run_library *l,
                                  struct dtp_err *err) {
    const struct dtp_json *j;
    void *facts = NULL, *stacks = NULL, *relatives = NULL, *batches = NULL;
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "traces/measured/clusters.json"), &j, err));
    DTP_TRY(read_rows(a, j, "runs", fact_fields, sizeof *l->fact, &facts, &l->nfacts, err));
    DTP_TRY(read_rows(a, j, "stacks", stack_fields, sizeof *l->stack, &stacks, &l->nstacks, err));
    DTP_TRY(read_rows(a, j, "relatives", relative_fields, sizeof *l->relative, &relatives,
                      &l->nrelatives, err));
    DTP_TRY(
        read_rows(a, j, "batches", batch_fields, sizeof *l->batch, &batches, &l->nbatches, err));
    l->fact = facts;
    l->stack = stacks;
    l->relative = relatives;
    l->batch = batches;
    return DTP_OK;
}

enum dtp_status dtp_run_library_create(struct dtp_arena *a, struct dtp_run_library **out,
                                       struct dtp_err *err) {
    struct dtp_run_library *l = DTP_NEW(a, struct dtp_run_library, 1);
    const char *const *names;
    l->a = a;
    DTP_TRY(read_facts(a, l, err));
    DTP_TRY(dtp_framework_list(a, &names, &l->nframeworks, err));
    l->framework = DTP_NEW(a, struct dtp_framework, l->nframeworks);
    for (size_t i = 0; i < l->nframeworks; i++)
        DTP_TRY(dtp_framework_load(a, names[i], &l->framework[i], err));
    *out = l;
    return DTP_OK;
}

const struct dtp_framework *dtp_run_framework(const struct dtp_run_library *l, const char *name) {
    for (size_t i = 0; i < l->nframeworks; i++) {
        if (dtp_same_name(l->framework[i].name, name))
            return &l->framework[i];
        for (size_t k = 0; l->framework[i].aliases && l->framework[i].aliases[k]; k++)
            if (dtp_same_name(l->framework[i].aliases[k], name))
                return &l->framework[i];
    }
    return NULL;
}

static bool fact_has_size(const struct cluster_fact *f, const struct dtp_run *run) {
    return (f->gpus_above == 0 || run->gpus > f->gpus_above) &&
           (f->gpus_below == 0 || run->gpus < f->gpus_below) &&
           (f->tp_above == 0 || run->tp > f->tp_above) &&
           (f->tp_below == 0 || run->tp < f->tp_below) &&
           (f->batch_below == 0 || run->global_batch < f->batch_below) &&
           (f->pp_above == 0 || run->pp > f->pp_above) &&
           (f->dp_above == 0 || run->dp > f->dp_above) &&
           (f->dp_below == 0 || run->dp < f->dp_below) &&
           (f->microbatch_above == 0 || run->microbatch > f->microbatch_above) &&
           (f->microbatch_below == 0 || run->microbatch < f->microbatch_below) &&
           (f->hidden_below == 0 || run->hidden < f->hidden_below) &&
           (f->gpu_mem_below == 0 || (run->gpu_mem_gb > 0 && run->gpu_mem_gb < f->gpu_mem_below));
}

static bool fact_has_kind(const struct cluster_fact *f, const struct dtp_run *run) {
    char zero[2] = {(char)('0' + run->zero_stage), '\0'};
    return dtp_run_says(run->model, f->model_contains) &&
           dtp_run_says(run->dtype, f->dtype_contains) &&
           (!f->only_zero || strcmp(f->only_zero, zero) == 0) &&
           (!f->only_recompute || strcmp(f->only_recompute, run->recompute) == 0);
}

const struct cluster_fact *dtp_run_fact(const struct dtp_run_library *l,
                                        const struct dtp_run *run) {
    for (size_t i = 0; i < l->nfacts; i++) {
        const struct cluster_fact *f = &l->fact[i];
        bool gpu = !*f->gpu || strcmp(f->gpu, run->gpu) == 0;
        if (strcmp(f->framework, run->framework) == 0 && gpu &&
            strstr(run->source, f->source_contains) && fact_has_size(f, run) &&
            fact_has_kind(f, run))
            return f;
    }
    return NULL;
}

const struct batch_fact *dtp_run_batch(const struct dtp_run_library *l, const struct dtp_run *run) {
    for (size_t i = 0; i < l->nbatches; i++)
        if (strcmp(l->batch[i].id, run->id) == 0)
            return &l->batch[i];
    return NULL;
}

enum dtp_status dtp_run_cluster(struct dtp_run_library *l, const struct dtp_run *run,
                                const char *name, struct dtp_cluster *out, struct dtp_err *err) {
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

bool dtp_run_model(struct dtp_run_library *l, const char *name, struct dtp_model *out) {
    for (size_t i = 0; i < l->nmodels; i++)
        if (strcmp(l->model[i].key, name) == 0) {
            *out = l->model[i].model;
            return l->model[i].known;
        }
    bool known = dtp_model_load_by(l->a, &l->model_names, name, out, NULL) == DTP_OK;
    l->model = dtp_arena_grow(l->a, l->model, sizeof *l->model, l->nmodels, l->nmodels + 1);
    l->model[l->nmodels++] = (struct kept_model){name, known, *out};
    return known;
}
