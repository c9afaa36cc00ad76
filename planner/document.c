#include "planner/document.h"

#include <limits.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"

/* Keys of a document and of the output of --json; the values of the latter's own are not looked at.
 */
struct fields {
    int schema_version, gpus, seq, seed;
    uint64_t memory_limit_bytes;
    const char *version, *nic, *attention, *dtype, *dropout, *optimizer;
    const struct dtp_json *model, *cluster, *framework, *plan, *best, *ignored;
};
#define KEY(key, type, text)                                                                       \
    .name = #key, .kind = type, .offset = offsetof(struct fields, key), .help = text
#define IGNORED(key)                                                                               \
    {                                                                                              \
        .name = key, .kind = DTP_FIELD_JSON, .offset = offsetof(struct fields, ignored),           \
        .help = "of the output of --json; passed over"                                             \
    }
const struct dtp_field dtp_document_fields[] = {
    {KEY(schema_version, DTP_FIELD_INT, "of this form"), .min = 1, .max = DTP_SCHEMA_VERSION,
     .required = true},
    {KEY(version, DTP_FIELD_STRING, "of the dtplan that wrote it")},
    {KEY(model, DTP_FIELD_JSON, "a name, or an object of the form of a model file")},
    {KEY(cluster, DTP_FIELD_JSON, "a name, or an object of the form of a cluster file")},
    {KEY(framework, DTP_FIELD_JSON, "a name, or an object of the form of a framework file")},
    {KEY(nic, DTP_FIELD_STRING, "network cards of a node, such as 4x100")},
    {KEY(attention, DTP_FIELD_STRING, "attention kernel; the framework's if absent")},
    {KEY(dtype, DTP_FIELD_STRING, "type of the matrix products")},
    {KEY(dropout, DTP_FIELD_STRING, "as --dropout; the model's if absent")},
    {KEY(optimizer, DTP_FIELD_STRING, "as --optimizer; adamw if absent")},
    {KEY(gpus, DTP_FIELD_INT, "GPUs in all"), .min = 1, .max = DTP_MOST_GPUS, .required = true},
    {KEY(seq, DTP_FIELD_INT, "tokens of a sequence; the model's if absent"), .min = 1,
     .max = 1 << 30},
    {KEY(seed, DTP_FIELD_INT, "of random draws"), .min = 0, .max = 2147483647},
    {KEY(memory_limit_bytes, DTP_FIELD_U64, "of device memory that a plan may take")},
    {KEY(plan, DTP_FIELD_JSON, "the plan, an object")},
    {KEY(best, DTP_FIELD_JSON, "of the output of --json: an object whose \"plan\" is taken")},
    IGNORED("global_batch_size"),
    IGNORED("unusual"),
    IGNORED("runners_up"),
    IGNORED("near_misses"),
    IGNORED("training"),
    IGNORED("search"),
    IGNORED("defaults"),
    IGNORED("definitions"),
    IGNORED("source"),
    {0}};

/* A name (string) or an embedded object. */
static enum dtp_status name_or_object(const struct dtp_json *j, const char **out_name,
                                      const struct dtp_json **out_object, struct dtp_err *err) {
    if (!j)
        return DTP_OK;
    if (dtp_json_type(j) == DTP_JSON_STRING)
        *out_name = dtp_json_string(j);
    else if (dtp_json_type(j) == DTP_JSON_OBJECT)
        *out_object = j;
    else
        return dtp_json_expected(j, "a name or an object", err);
    return DTP_OK;
}

static enum dtp_status name_index(const char *const *names, const char *name, const char *kind,
                                  int *out, struct dtp_err *err) {
    size_t n = 0;
    *out = -1;
    if (!name)
        return DTP_OK;
    while (names[n])
        n++;
    *out = dtp_name_index(names, name);
    return *out >= 0 ? DTP_OK : dtp_unknown_name(err, DTP_EINPUT, kind, name, names, n, NULL);
}

static enum dtp_status find_plan(const struct dtp_json *root, const struct fields *f,
                                 struct dtp_document *out, struct dtp_err *err) {
    out->plan = f->plan;
    if (f->best) {
        if (dtp_json_type(f->best) != DTP_JSON_OBJECT)
            return dtp_json_expected(f->best, "an object with \"plan\" (nothing was found here)",
                                     err);
        out->result = f->best;
        if (!out->plan)
            out->plan = dtp_json_get(f->best, "plan");
    }
    if (!out->plan)
        return dtp_json_expected(root, "an object with \"plan\" or \"best\"", err);
    if (dtp_json_type(out->plan) != DTP_JSON_OBJECT)
        return dtp_json_expected(out->plan, "an object such as {\"tp\": 8, \"pp\": 16}", err);
    return DTP_OK;
}

enum dtp_status dtp_document_read(struct dtp_arena *a, const char *path, struct dtp_document *out,
                                  struct dtp_err *err) {
    const struct dtp_json *root;
    DTP_TRY(dtp_json_read_file(a, path, &root, err));
    if (dtp_json_type(root) != DTP_JSON_OBJECT)
        return dtp_json_expected(root, "a plan document: an object with \"plan\"", err);
    struct fields f = {0};
    DTP_TRY(dtp_fields_read(a, root, dtp_document_fields, &f, err));
    *out = (struct dtp_document){.version = f.version};
    DTP_TRY(find_plan(root, &f, out, err));
    out->ask = (struct dtp_ask){.gpus = f.gpus,
                                .seq = f.seq,
                                .nic = f.nic,
                                .dropout = f.dropout,
                                .optimizer = f.optimizer,
                                .memory_limit_bytes = f.memory_limit_bytes};
    DTP_TRY(name_index(dtp_dtype_names, f.dtype, "dtype", &out->ask.dtype, err));
    DTP_TRY(name_index(dtp_attention_names, f.attention, "attention", &out->ask.attention, err));
    DTP_TRY(name_or_object(f.model, &out->ask.model, &out->ask.model_json, err));
    DTP_TRY(name_or_object(f.cluster, &out->ask.cluster, &out->ask.cluster_json, err));
    DTP_TRY(name_or_object(f.framework, &out->ask.framework, &out->ask.framework_json, err));
    if (!f.model)
        return dtp_json_expected(root, "an object with \"model\"", err);
    const struct dtp_json *batch = dtp_json_get(out->plan, "global_batch_size");
    if (batch && dtp_json_type(batch) == DTP_JSON_NUMBER && dtp_json_number(batch) >= 1 &&
        dtp_json_number(batch) <= INT_MAX)
        out->ask.batch = (int)dtp_json_number(batch);
    return DTP_OK;
}

enum dtp_status dtp_document_plan(struct dtp_arena *a, const struct dtp_document *d,
                                  const struct dtp_problem *problem, struct dtp_plan *out,
                                  struct dtp_err *err) {
    *out = dtp_plan_default();
    out->global_batch_size = problem->global_batch;
    out->dtype = problem->dtype;
    DTP_TRY(dtp_plan_read(a, d->plan, out, err));
    int model_parallel = out->tp * out->cp * out->pp;
    if (!dtp_json_get(d->plan, "dp") && model_parallel > 0)
        out->dp = problem->gpus / model_parallel;
    return dtp_plan_require(problem, out, err);
}

struct refused {
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
};

static bool takes(const struct dtp_framework *f, const void *context) {
    const struct refused *r = context;
    struct dtp_problem there = *r->problem;
    there.framework = f;
    return dtp_plan_check(&there, r->plan) == DTP_LEGAL;
}

enum dtp_status dtp_plan_require(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                 struct dtp_err *err) {
    enum dtp_reason why = dtp_plan_check(problem, plan);
    if (why == DTP_LEGAL)
        return DTP_OK;
    const struct dtp_model *m = problem->model;
    struct dtp_arena *a = dtp_arena_create("refusal");
    const struct refused refused = {problem, plan};
    const char *others = dtp_frameworks_text(a, problem->framework, takes, &refused);
    char text[320], ep[40] = "";
    if (plan->ep > 1)
        snprintf(ep, sizeof ep, "ep %d, etp %d, ", plan->ep, dtp_plan_etp(plan));
    const char *wants = why == DTP_WHY_VPP
                            ? dtp_schedule_applies(plan->schedule, plan->pp, plan->vpp,
                                                   dtp_plan_num_microbatches(plan))
                            : NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s", dtp_reasons[why], wants ? ": " : "",
             wants ? wants : "", others ? "; frameworks that take it: " : "", others ? others : "");
    dtp_arena_destroy(a);
    return dtp_fail(err, DTP_ENO,
                    "the plan is refused: %s (tp %d, pp %d, cp %d, dp %d, %svpp %d, microbatch %d, "
                    "batch %d, %d GPU%s; %s has %d layers, %d heads; framework %s)",
                    text, plan->tp, plan->pp, plan->cp, plan->dp, ep, plan->vpp,
                    plan->microbatch_size, plan->global_batch_size, problem->gpus,
                    problem->gpus == 1 ? "" : "s", m->name, m->layers, m->heads,
                    problem->framework->name);
}

/* ---- writing ---- */

static void name_or_whole(struct dtp_json_out *w, const struct dtp_json *whole, const char *name) {
    if (whole)
        dtp_json_put_json(w, whole);
    else
        dtp_json_put_string(w, name);
}

static void put_model(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_ask *ask = at;
    (void)f;
    name_or_whole(w, ask->model_json, ask->model);
}

static void put_cluster(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_ask *ask = at;
    (void)f;
    name_or_whole(w, ask->cluster_json, ask->cluster ? ask->cluster : DTP_DEFAULT_CLUSTER);
}

static void put_framework(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_ask *ask = at;
    (void)f;
    name_or_whole(w, ask->framework_json, ask->framework ? ask->framework : DTP_DEFAULT_FRAMEWORK);
}

void dtp_put_plan(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_plan_write(w, at);
}

static const struct dtp_problem *problem_at(const void *at) {
    return *(const struct dtp_problem *const *)at;
}

void dtp_put_model_name(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_string(w, problem_at(at)->model->name);
}

void dtp_put_cluster_name(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_string(w, problem_at(at)->cluster->name);
}

void dtp_put_framework_name(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_string(w, problem_at(at)->framework->name);
}

void dtp_put_gpus(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_int(w, problem_at(at)->gpus);
}

void dtp_put_schema_version(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    (void)at;
    dtp_json_put_int(w, DTP_SCHEMA_VERSION);
}

#define AT(member) offsetof(struct dtp_setup, member)
/* clang-format off */
static const struct dtp_form model_form = {.title = "MODEL"}, cluster_form = {.title = "CLUSTER"},
                             framework_form = {.title = "FRAMEWORK"};
const struct dtp_form dtp_plan_form = {.title = "PLAN"};
static const struct dtp_field problem_fields[] = {
    {"model", DTP_FIELD_PUT, AT(ask), .put = put_model, .form = &model_form,
     .help = "name, or the model itself where it came from a file"},
    {"cluster", DTP_FIELD_PUT, AT(ask), .put = put_cluster, .form = &cluster_form,
     .help = "name, or the cluster itself where it came from a file"},
    {"nic", DTP_FIELD_STRING, AT(ask.nic), .help = "network cards of a node, where --nic was given"},
    {"framework", DTP_FIELD_PUT, AT(ask), .put = put_framework, .form = &framework_form,
     .help = "name, or the framework itself where it came from a file"},
    {"gpus", DTP_FIELD_INT, AT(problem.gpus), .help = "GPUs in all"},
    {"seq", DTP_FIELD_INT, AT(problem.seq), .help = "tokens of a sequence"},
    {"dtype", DTP_FIELD_ENUM, AT(problem.dtype), .names = dtp_dtype_names, .help = "type of the matrix products"},
    {"attention", DTP_FIELD_ENUM, AT(problem.attention), .names = dtp_attention_names, .unset = DTP_UNSET_LEFT_OUT,
     .help = "attention kernel, where --attention was given"},
    {"dropout", DTP_FIELD_STRING, AT(ask.dropout), .help = "value of --dropout, where it was given"},
    {"optimizer", DTP_FIELD_STRING, AT(ask.optimizer), .help = "optimizer, where --optimizer was given"},
    {"memory_limit_bytes", DTP_FIELD_U64, AT(ask.memory_limit_bytes), .unset = DTP_UNSET_LEFT_OUT,
     .help = "limit on device memory, where --memory-limit was given"},
    {0}};
/* clang-format on */
const struct dtp_form dtp_problem_form = {"PROBLEM", "What was asked.", problem_fields};
