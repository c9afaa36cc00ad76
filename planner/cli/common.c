/* common.c: the common options, the problem and the plan that they ask for; what long work says on a terminal. */
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "models/framework/optimizer.h"
#include "models/schedule/schedule.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

#define AT(field) offsetof(struct dtp_args, field)
#define ASK(field) offsetof(struct dtp_args, ask.field)

static const char *const color_names[] = {"auto", "always", "never", NULL};
static const char *const shell_names[] = {"bash", "zsh", NULL};

/* PyTorch's names for the types of dtp_dtype_names. */
static const char *const torch_dtypes[] = {"float32",  "tf32",   "float16",
                                           "bfloat16", "float8", "float4"};

static const struct dtp_option place_options[] = {
    {"gpus", DTP_OPT_INT, 'g', ASK(gpus), .value = "N", .min = 1, .max = DTP_MOST_GPUS,
     .aliases = "num-gpus ngpus world-size", .help = "number of GPUs in all",
     .many = "dtplan sweep"},
    {"cluster", DTP_OPT_STRING, 'c', ASK(cluster), .value = "NAME|FILE", .aliases = "gpu",
     .number = "a name such as hgx-h100; the number of GPUs is --gpus",
     .complete = DTP_COMPLETE_CLUSTERS, .many = "dtplan sweep",
     .help = "what to train on (default " DTP_DEFAULT_CLUSTER "): `dtplan clusters`"},
    {"nic", DTP_OPT_STRING, 0, ASK(nic), .value = "NxG",
     .help = "network cards of a node, such as 4x100: four of 100 Gbit/s"},
    {"framework", DTP_OPT_STRING, 'f', ASK(framework), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_FRAMEWORKS, .many = "dtplan sweep",
     .help = "software stack (default " DTP_DEFAULT_FRAMEWORK "): `dtplan frameworks`"},
    {0}};

static const struct dtp_option training_options[] = {
    {"model", DTP_OPT_STRING, 'm', ASK(model), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_MODELS,
     .help = "what to train: `dtplan models` lists the names; or a JSON file, a Hugging Face "
             "config.json among them"},
    {"batch", DTP_OPT_INT, 'b', ASK(batch), .value = "SEQUENCES", .min = 1, .max = 1 << 30,
     .aliases = "global-batch-size global-batch gbs train-batch-size",
     .scaled =
         "a number of sequences such as 1024; of tokens, divide by those of a sequence (--seq)",
     .help = "global batch (default: the model's)"},
    {"seq", DTP_OPT_INT, 's', ASK(seq), .value = "TOKENS", .min = 1, .max = 1 << 30,
     .aliases = "seq-length seq-len seqlen sequence-length max-seq-len max-length context-length",
     .help = "length of a sequence (default: the model's)"},
    {"dtype", DTP_OPT_CHOICE, 0, ASK(dtype), .value = "TYPE", .names = dtp_dtype_names,
     .aliases = "precision", .same = torch_dtypes,
     .help = "type of the matrix products (default bf16, fp16 where the GPU lacks it)"},
    {"attention", DTP_OPT_CHOICE, 0, ASK(attention), .value = "KERNEL",
     .names = dtp_attention_names, .help = "attention kernel (default: the framework's)"},
    {"dropout", DTP_OPT_STRING, 0, ASK(dropout), .value = "P[,Q]",
     .help =
         "probability of dropout, of the attention's Q (default: the model's, where the framework "
         "trains with dropout; dtplan's runtime does when asked)"},
    {"optimizer", DTP_OPT_STRING, 0, ASK(optimizer), .value = "NAME", .names = dtp_optimizer_names,
     .help = "optimizer (default adamw), where the framework has it"},
    {"memory-limit", DTP_OPT_BYTES, 0, ASK(memory_limit_bytes), .value = "BYTES", .min = DTP_KIB,
     .help =
         "device memory that a plan may take, such as 76GiB (default: what the device has, less "
         "a margin from the validated error)"},
    {0}};

static const struct dtp_option timeline_options[] = {
    {"timeline", DTP_OPT_STRING, 't', AT(timeline), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help =
         "write the step: .json for Perfetto and for dtplan replay, .svg a picture, .csv tasks, "
         ".et Chakra graphs for ASTRA-sim, one a rank; .gz after it compresses"},
    {"timeline-ranks", DTP_OPT_STRING, 0, AT(timeline_filter.ranks), .value = "LIST",
     .help = "only these ranks of it, such as 0,8..15; without --no-fold one rank stands for its "
             "replicas"},
    {"timeline-steps", DTP_OPT_STRING, 0, AT(timeline_filter.steps), .value = "LIST",
     .help = "only these steps of it, by number"},
    {"timeline-streams", DTP_OPT_STRING, 0, AT(timeline_filter.streams), .value = "LIST",
     .help = "only these streams of it, by name: compute,\"data parallel\""},
    {0}};

static const struct dtp_option simulate_options[] = {
    {"no-fold", DTP_OPT_FLAG, 0, AT(no_fold),
     .help = "simulate every rank, not one for its replicas"},
    {"detail", DTP_OPT_CHOICE, 0, AT(detail), .value = "LEVEL", .names = dtp_detail_names,
     .help = "what a simulated task is"},
    {"tokens", DTP_OPT_COUNT, 0, AT(tokens), .value = "N", .max = 1e18,
     .help = "token budget for the days of training, such as 300B (default: the model's)"},
    {0}};

static const struct dtp_option failure_options[] = {
    {"gpu-hours-per-failure", DTP_OPT_STRING, 0, AT(gpu_hours_per_failure), .value = "HOURS",
     .help = "mean GPU-hours between interruptions (default 50700)"},
    {"restart", DTP_OPT_STRING, 0, AT(restart), .value = "TIME",
     .help = "time that each takes to find and restart (default 10 min)"},
    {"checkpoint", DTP_OPT_STRING, 0, AT(checkpoint), .value = "TIME",
     .help = "time between checkpoints; what is behind one is not lost (default: that which loses "
             "least, of `jobs` 1 h)"},
    {"checkpoint-write", DTP_OPT_STRING, 0, AT(checkpoint_write), .value = "TIME",
     .help = "that training stops for one (default: 14 bytes a parameter at 89 MB/s a GPU)"},
    {"no-failures", DTP_OPT_FLAG, 0, AT(no_failures), .help = "no interruptions"},
    {0}};

static const struct dtp_option plan_options[] = {
    {"plan", DTP_OPT_STRING, 'p', AT(plan), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "plan document, or the output of dtplan --json; - is standard input"},
    {0}};

static const struct dtp_option output_options[] = {
    {"json", DTP_OPT_FLAG, 0, AT(json),
     .help = "one JSON document on standard output; of a list of names an array"},
    {0}};

static const struct dtp_option search_options[] = {
    {"jobs", DTP_OPT_INT, 'j', AT(jobs), .value = "N", .min = 0, .max = 1024,
     .help = "threads (default: one a processor); any number gives the same answer"},
    {"seed", DTP_OPT_INT, 0, AT(seed), .value = "N", .min = 0, .max = 2147483647,
     .help = "seed of random draws (default 0)"},
    {0}};

static const struct dtp_option general_options[] = {
    {"color", DTP_OPT_CHOICE, 0, AT(color), .value = "WHEN", .names = color_names,
     .help = "colours; auto: on a terminal, unless NO_COLOR is set"},
    {"help", DTP_OPT_FLAG, 'h', AT(help), .help = "this text, or that of a command"},
    {"version", DTP_OPT_FLAG, 'V', AT(version), .help = "version"},
    {"man", DTP_OPT_FLAG, 0, AT(man), .help = "the manual page (roff): dtplan --man | man -l -"},
    {"man-formats", DTP_OPT_FLAG, 0, AT(man_formats),
     .help = "the manual page of the JSON files, dtplan(5)"},
    {"completions", DTP_OPT_STRING, 0, AT(completions), .value = "SHELL", .names = shell_names,
     .help = "completion script"},
    {0}};

#define LIMIT_ROW(limit_, kind, option, text)                                                      \
    option, kind, 0, AT(limit) + (limit_) * sizeof(const char *), .aliases = limit_##_ALIASES,     \
                                                                  .help = text
#define LIMIT(limit_, option, text)                                                                \
    { LIMIT_ROW(limit_, DTP_OPT_STRING, option, text), .value = "LIST" }
#define SWITCH(limit_, option, text)                                                               \
    { LIMIT_ROW(limit_, DTP_OPT_SWITCH, option, text) }
#define FIELD(option, label, field, text)                                                          \
    { option, DTP_OPT_STRING, 0, AT(field), .value = label, .help = text }
/* The fields of a plan that are searched (the rows of dtp_limit_fields). */
static const struct dtp_option layout_options[] = {
    LIMIT(DTP_LIMIT_TP, "tp", "tensor-parallel degree"),
    LIMIT(DTP_LIMIT_PP, "pp", "pipeline stages"),
    LIMIT(DTP_LIMIT_CP, "cp", "context-parallel degree"),
    LIMIT(DTP_LIMIT_DP, "dp", "data-parallel degree"),
    LIMIT(DTP_LIMIT_EP, "ep",
          "expert-parallel degree, a part of tp x cp x dp / etp (models with experts)"),
    LIMIT(DTP_LIMIT_ETP, "etp",
          "tensor-parallel degree of the experts alone (default: tp and 1 are tried)"),
    LIMIT(DTP_LIMIT_EP_OVERLAP, "ep-overlap",
          "1: the all-to-all of experts runs behind another microbatch's compute"),
    LIMIT(DTP_LIMIT_EP_PER_NODE, "ep-per-node",
          "1: a token is sent once to each node that holds experts of its, as DeepEP does"),
    LIMIT(DTP_LIMIT_VPP, "vpp", "virtual stages of each pipeline stage"),
    LIMIT(DTP_LIMIT_SCHEDULE, "schedule", "pipeline schedule (`dtplan schedules`)"),
    LIMIT(DTP_LIMIT_MICROBATCH, "microbatch-size", "sequences in a microbatch"),
    LIMIT(DTP_LIMIT_ZERO, "zero-stage", "ZeRO stage, 0 to 3"),
    LIMIT(DTP_LIMIT_ZERO_GROUP, "zero-group",
          "ZeRO: ranks that share one copy of the state, 0: all of dp x cp (default: 0, and with "
          "ZeRO-3 the replicas of 1, 2, 4 ... nodes where the framework has hybrid sharding)"),
    SWITCH(DTP_LIMIT_SP, "sequence-parallel",
           "norms and dropout divided by tp as well (default: both are tried)"),
    LIMIT(DTP_LIMIT_RECOMPUTE, "recompute",
          "activations computed again in the backward: none, selective, full"),
    LIMIT(DTP_LIMIT_RECOMPUTE_LAYERS, "recompute-layers",
          "with full recomputation: only so many layers of a chunk, 0: all (default: 0, and the "
          "fewest that fit where the framework has it)"),
    LIMIT(DTP_LIMIT_LAST_LESS, "last-stage-less",
          "layers that the last stage leaves to the others, for its head (default: 0, and some "
          "where the framework takes the layers of each stage)"),
    SWITCH(DTP_LIMIT_ENDS, "account-for-ends",
           "embedding and head count as a layer each when layers are divided into stages (default: "
           "both are tried)"),
    {0}};
/* Options of the fields of a plan that are not searched, named as these. */
static const struct dtp_option fixed_options[] = {
    {"recompute-modules", DTP_OPT_STRING, 0, AT(recompute_modules), .value = "LIST",
     .names = dtp_module_names, .several = true,
     .help = "with selective recomputation: these parts of a layer, such as moe_act,layernorm "
             "(default core_attn; a search also tries those that cost little)"},
    {"layers-per-stage", DTP_OPT_STRING, 0, AT(layers_per_stage), .value = "LIST",
     .aliases = "pipeline-model-parallel-layout",
     .help = "layers of each virtual stage, such as 12,13,13,10 or Megatron's Et*12|(t*13|)*2t*10L "
             "(default: as even as it goes)"},
    FIELD("tp-algo", "ALGO", tp_algo,
          "algorithm of tensor-parallel collectives (`dtplan collectives`)"),
    FIELD("dp-algo", "ALGO", dp_algo, "algorithm of data-parallel collectives"),
    FIELD("tp-overlap", "0|1", tp_overlap, "hide tensor-parallel collectives behind compute"),
    FIELD("dp-overlap", "0|1", dp_overlap, "hide the gradient reduction behind the backward"),
    FIELD("p2p-overlap", "0|1", p2p_overlap, "hide pipeline transfers behind compute"),
    FIELD("offload", "WHAT", offload, "none, optimizer or parameters"),
    FIELD("offload-to", "WHERE", offload_to, "host or nvme"),
    {0}};

size_t dtp_verb_sets(const struct dtp_verb *verb, struct dtp_args *args, void *own,
                     struct dtp_option_set *out) {
    const struct {
        unsigned group;
        const char *title;
        const struct dtp_option *options;
    } common[] = {{DTP_GROUP_TRAINING, "Problem", training_options},
                  {DTP_GROUP_PLACE, "Machines and software", place_options},
                  {DTP_GROUP_PLAN, "Plan", plan_options},
                  {DTP_GROUP_LAYOUT,
                   verb->groups & DTP_GROUP_PLAN ? "Layout (one value each)"
                                                 : "Limits on the layout (8  1,2,4  4..16)",
                   layout_options},
                  {DTP_GROUP_LAYOUT,
                   verb->groups & DTP_GROUP_PLAN ? "Layout, continued"
                                                 : "Layout, one value each: these are not searched",
                   fixed_options},
                  {DTP_GROUP_SIMULATE, "Simulation", simulate_options},
                  {DTP_GROUP_FAILURES, "Interruptions", failure_options},
                  {DTP_GROUP_TIMELINE, "Timeline", timeline_options},
                  {DTP_GROUP_SEARCH, "Running", search_options},
                  {DTP_GROUP_OUTPUT, "Output", output_options},
                  {DTP_GROUP_GENERAL, "General", general_options}};
    size_t n = 0;
    if (verb->options)
        out[n++] = (struct dtp_option_set){"Options of this command", verb->options, own};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (common[i].group == DTP_GROUP_GENERAL || (verb->groups & common[i].group))
            out[n++] = (struct dtp_option_set){common[i].title, common[i].options, args};
    return n;
}

/* ---- from parsed options to a problem, limits, a plan ---- */

enum dtp_status dtp_cli_setup(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_err *err) {
    return dtp_setup_init(cli->a, &cli->args.ask, out, err);
}

static const struct dtp_field *field_of(const struct dtp_option *o) {
    const struct dtp_field *f = dtp_plan_fields;
    while (!dtp_same_name(f->name, o->name))
        f++;
    return f;
}

enum dtp_status dtp_cli_fixed(struct dtp_cli *cli, struct dtp_plan *plan, struct dtp_err *err) {
    for (const struct dtp_option *o = fixed_options; o->name; o++) {
        const void *at = (const char *)&cli->args + o->offset;
        const char *text = *(const char *const *)at;
        char place[64];
        snprintf(place, sizeof place, "--%s", o->name);
        if (!text)
            continue;
        const struct dtp_field *field = field_of(o);
        const char *layers =
            field->kind == DTP_FIELD_INTS ? dtp_plan_layers_of_layout(cli->a, text) : NULL;
        DTP_TRY(dtp_field_parse(cli->a, field, layers ? layers : text, place, plan, err));
    }
    return DTP_OK;
}

/* What a layer without experts has anyhow, as rows of tables say. */
static bool etp_is_tp(const struct dtp_limits *limits) {
    const struct dtp_select *tp = &limits->field[DTP_LIMIT_TP],
                            *etp = &limits->field[DTP_LIMIT_ETP];
    return tp->n == 1 && etp->n == 1 && tp->lo[0] == tp->hi[0] && etp->lo[0] == tp->lo[0] &&
           etp->hi[0] == tp->lo[0];
}

/* Options of experts that would do nothing; --ep 1 says that there are none. */
static enum dtp_status check_experts(const struct dtp_limits *limits,
                                     const struct dtp_problem *problem, struct dtp_err *err) {
    const struct dtp_framework *f = problem->framework;
    const struct {
        const char *option;
        bool given, known;
    } of[] = {{"ep", !dtp_select_has(&limits->field[DTP_LIMIT_EP], 1), true},
              {"etp", limits->field[DTP_LIMIT_ETP].n > 0 && !etp_is_tp(limits), true},
              {"ep-overlap", !dtp_select_has(&limits->field[DTP_LIMIT_EP_OVERLAP], 0),
               f->can.has_ep_overlap},
              {"ep-per-node", !dtp_select_has(&limits->field[DTP_LIMIT_EP_PER_NODE], 0),
               f->can.has_ep_per_node}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (of[i].given && problem->model->moe.experts == 0)
            return dtp_fail(err, DTP_EUSAGE, "--%s: %s has no experts", of[i].option,
                            problem->model->name);
        if (of[i].given && !of[i].known)
            return dtp_fail(err, DTP_EUSAGE, "--%s: %s does not have it", of[i].option, f->name);
    }
    return DTP_OK;
}

/* Parts of a layer to recompute that the stack cannot choose or no layer has. */
static enum dtp_status check_modules(const struct dtp_plan *plan, const struct dtp_problem *problem,
                                     struct dtp_err *err) {
    int asked = plan->recompute_modules, known = problem->framework->can.recompute_modules;
    char names[128];
    if (asked & ~known)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-modules: %s has %s%s",
                        problem->framework->name, known ? "no " : "none to choose",
                        known ? dtp_set_text(dtp_module_names, asked & ~known, names, sizeof names)
                              : "");
    for (int i = 0; i < DTP_NMODULES; i++)
        if (asked & ~dtp_model_modules(problem->model) & 1 << i)
            return dtp_fail(err, DTP_EUSAGE,
                            "--recompute-modules: %s is %s in layers with %s, of which %s has none",
                            dtp_module_names[i], dtp_module_texts[i].again,
                            dtp_module_texts[i].where, problem->model->name);
    return DTP_OK;
}

/* Modules go with one mode of recomputation, layers with another. */
static enum dtp_status check_recompute(bool modules_without, bool layers_without,
                                       struct dtp_err *err) {
    if (modules_without)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-modules goes with --recompute selective");
    if (layers_without)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-layers goes with --recompute full");
    return DTP_OK;
}

enum dtp_status dtp_cli_check_limits(const struct dtp_limits *limits,
                                     const struct dtp_problem *problem, struct dtp_err *err) {
    const struct dtp_select *modes = &limits->field[DTP_LIMIT_RECOMPUTE];
    DTP_TRY(check_recompute(limits->fixed.recompute_modules &&
                                !dtp_select_has(modes, DTP_RECOMPUTE_SELECTIVE),
                            !dtp_select_has(&limits->field[DTP_LIMIT_RECOMPUTE_LAYERS], 0) &&
                                !dtp_select_has(modes, DTP_RECOMPUTE_FULL),
                            err));
    DTP_TRY(check_experts(limits, problem, err));
    DTP_TRY(check_modules(&limits->fixed, problem, err));
    if (limits->fixed.layers_per_stage.n == 0)
        return DTP_OK;
    const struct dtp_ints *layers = &limits->fixed.layers_per_stage;
    long sum = 0;
    for (size_t i = 0; i < layers->n; i++)
        sum += layers->at[i];
    if (sum == problem->model->layers)
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "--layers-per-stage: %zu stages with %ld layers in all, %s has %d", layers->n,
                    sum, problem->model->name, problem->model->layers);
}

enum dtp_status dtp_cli_limits(struct dtp_cli *cli, const struct dtp_problem *problem,
                               struct dtp_limits *out, struct dtp_err *err) {
    *out = dtp_limits_none();
    out->fixed.dtype = problem->dtype;
    out->fixed.global_batch_size = problem->global_batch;
    for (int i = 0; i < DTP_NLIMITS; i++) {
        if (!cli->args.limit[i])
            continue;
        char place[64];
        snprintf(place, sizeof place, "--%s", dtp_limit_fields[i].option);
        DTP_TRY(
            dtp_select_parse((enum dtp_limit)i, cli->args.limit[i], place, &out->field[i], err));
    }
    DTP_TRY(dtp_cli_fixed(cli, &out->fixed, err));
    return dtp_cli_check_limits(out, problem, err);
}

enum dtp_status dtp_cli_single(struct dtp_cli *cli, const struct dtp_limits *limits,
                               struct dtp_plan *out, struct dtp_err *err) {
    *out = limits->fixed;
    for (int i = 0; i < DTP_NLIMITS; i++) {
        const struct dtp_select *s = &limits->field[i];
        if (s->n > 1 || (s->n == 1 && s->lo[0] != s->hi[0]))
            return dtp_fail(err, DTP_EUSAGE, "--%s: one plan is wanted here, found \"%s\"",
                            dtp_limit_fields[i].option, cli->args.limit[i]);
        if (s->n == 1)
            dtp_limit_set(out, (enum dtp_limit)i, s->lo[0]);
    }
    return DTP_OK;
}

/* A plan whose options all do something. */
static enum dtp_status require(const struct dtp_problem *problem, const struct dtp_plan *plan,
                               struct dtp_err *err) {
    if (plan->ep == 1 && (plan->ep_overlap > 0 || plan->ep_per_node > 0))
        return dtp_fail(err, DTP_EUSAGE, "--%s: no rows of experts travel with --ep 1",
                        plan->ep_overlap > 0 ? "ep-overlap" : "ep-per-node");
    DTP_TRY(check_recompute(plan->recompute_modules && plan->recompute != DTP_RECOMPUTE_SELECTIVE,
                            plan->recompute_layers > 0 && plan->recompute != DTP_RECOMPUTE_FULL,
                            err));
    return dtp_plan_require(problem, plan, err);
}

/* FSDP and its like divide at least something: the most that they can with tp and pp. */
static int usual_zero(const struct dtp_framework *f, const struct dtp_plan *p) {
    int has = f->can.zero_stages & (p->pp > 1 ? f->can.zero_stages_pp : ~0) &
              (p->tp > 1 ? f->can.zero_stages_tp : ~0);
    int stage = 0;
    for (int s = 1; s <= 3 && !(f->can.zero_stages & 1); s++)
        stage = has >> s & 1 ? s : stage;
    return stage == 3 && p->pp > 1 && f->can.pp_keeps_gathered ? 2 : stage;
}

/* The one plan that the options name. */
static enum dtp_status single_plan(struct dtp_cli *cli, const struct dtp_problem *problem,
                                   struct dtp_plan *out, struct dtp_err *err) {
    struct dtp_limits limits;
    DTP_TRY(dtp_cli_limits(cli, problem, &limits, err));
    DTP_TRY(dtp_cli_single(cli, &limits, out, err));
    long model_parallel = (long)out->tp * out->cp * out->pp;
    if (limits.field[DTP_LIMIT_DP].n == 0)
        out->dp = model_parallel <= problem->gpus ? (int)(problem->gpus / model_parallel) : 1;
    if (limits.field[DTP_LIMIT_ZERO].n == 0)
        out->zero_stage = usual_zero(problem->framework, out);
    int stages = (int)out->layers_per_stage.n;
    if (limits.field[DTP_LIMIT_VPP].n == 0 && out->pp > 1 && stages > out->pp &&
        stages % out->pp == 0)
        out->vpp = stages / out->pp;
    if (limits.field[DTP_LIMIT_SCHEDULE].n == 0 && out->vpp > 1)
        out->schedule = dtp_schedule_usual(out->vpp);
    if (limits.field[DTP_LIMIT_VPP].n == 0 && dtp_schedule_kinds[out->schedule].most_vpp > 0)
        out->vpp = dtp_schedule_kinds[out->schedule].most_vpp; /* the one that it takes */
    return require(problem, out, err);
}

enum dtp_status dtp_cli_plan_alone(struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_ask *ask = &cli->args.ask;
    if (ask->model || ask->gpus || ask->batch)
        return dtp_fail(err, DTP_EUSAGE, "--plan names model, gpus and batch: leave %s out",
                        ask->model  ? "--model"
                        : ask->gpus ? "--gpus"
                                    : "--batch");
    for (int i = 0; i < DTP_NLIMITS; i++)
        if (cli->args.limit[i])
            return dtp_fail(err, DTP_EUSAGE, "--plan names the layout: leave --%s out",
                            dtp_limit_fields[i].option);
    return DTP_OK;
}

/* What is not a part of the layout may differ from the document's. */
static enum dtp_status change_plan(struct dtp_cli *cli, const struct dtp_problem *problem,
                                   struct dtp_plan *plan, struct dtp_err *err) {
    struct dtp_limits limits = dtp_limits_none();
    if (cli->args.ask.dtype >= 0)
        plan->dtype = problem->dtype;
    DTP_TRY(dtp_cli_fixed(cli, plan, err));
    if (cli->args.layers_per_stage) { /* instead of how the plan divides them */
        plan->account_for_ends = false;
        plan->last_stage_less = 0;
    }
    limits.fixed = *plan;
    DTP_TRY(dtp_cli_check_limits(&limits, problem, err));
    return require(problem, plan, err);
}

enum dtp_status dtp_cli_plan(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_plan *out_plan,
                             struct dtp_err *err) {
    if (!cli->args.plan) {
        DTP_TRY(dtp_cli_setup(cli, out, err));
        return single_plan(cli, &out->problem, out_plan, err);
    }
    struct dtp_document d;
    DTP_TRY(dtp_document_read(cli->a, cli->args.plan, &d, err));
    DTP_TRY(dtp_cli_plan_alone(cli, err));
    const struct dtp_ask *ask = &cli->args.ask;
    /* the same plan on other hardware or software is a question worth asking */
    if (ask->cluster) {
        d.ask.cluster = ask->cluster;
        d.ask.cluster_json = NULL;
        d.ask.nic = NULL;
    }
    if (ask->framework) {
        d.ask.framework = ask->framework;
        d.ask.framework_json = NULL;
    }
    if (ask->nic)
        d.ask.nic = ask->nic;
    if (ask->seq)
        d.ask.seq = ask->seq;
    if (ask->dtype >= 0)
        d.ask.dtype = ask->dtype;
    if (ask->attention >= 0)
        d.ask.attention = ask->attention;
    if (ask->dropout)
        d.ask.dropout = ask->dropout;
    if (ask->optimizer)
        d.ask.optimizer = ask->optimizer;
    if (ask->memory_limit_bytes)
        d.ask.memory_limit_bytes = ask->memory_limit_bytes;
    DTP_TRY(dtp_setup_init(cli->a, &d.ask, out, err));
    DTP_TRY(dtp_document_plan(cli->a, &d, &out->problem, out_plan, err));
    return change_plan(cli, &out->problem, out_plan, err);
}

/* ---- interruptions, over what traces/measured/failures.json says ---- */

static enum dtp_status take_time(const char *text, const char *place, double *out_s,
                                 struct dtp_err *err) {
    if (!text)
        return DTP_OK;
    DTP_TRY(dtp_parse_time(text, place, out_s, err));
    if (*out_s > DTP_GIGA)
        return dtp_fail(err, DTP_EUSAGE, "%s: found %s, expected at most 1e9 s", place, text);
    return DTP_OK;
}

/* Refuses options on the cost of interruptions if there are no interruptions. */
static enum dtp_status refuse_others(const struct dtp_args *args, struct dtp_err *err) {
    const char *other = args->gpu_hours_per_failure ? "--gpu-hours-per-failure"
                        : args->restart             ? "--restart"
                        : args->checkpoint          ? "--checkpoint"
                        : args->checkpoint_write    ? "--checkpoint-write"
                                                    : NULL;
    return other ? dtp_fail(err, DTP_EUSAGE, "--no-failures: leave %s out", other) : DTP_OK;
}

enum dtp_status dtp_cli_failures(struct dtp_cli *cli, bool best, struct dtp_failures *out,
                                 struct dtp_err *err) {
    const struct dtp_args *args = &cli->args;
    *out = (struct dtp_failures){0};
    if (args->no_failures)
        return refuse_others(args, err);
    DTP_TRY(dtp_failures_load(cli->a, out, err));
    if (best)
        out->checkpoint_s = 0;
    DTP_TRY(take_time(args->restart, "--restart", &out->restart_s, err));
    DTP_TRY(take_time(args->checkpoint, "--checkpoint", &out->checkpoint_s, err));
    if (best && args->checkpoint && !(out->checkpoint_s > 0))
        return dtp_fail(err, DTP_EUSAGE, "--checkpoint: found %s, expected more than 0",
                        args->checkpoint);
    DTP_TRY(take_time(args->checkpoint_write, "--checkpoint-write", &out->write_s, err));
    const char *hours = args->gpu_hours_per_failure;
    if (!hours)
        return DTP_OK;
    DTP_TRY(dtp_parse_double(hours, "--gpu-hours-per-failure", &out->gpu_hours_per_failure, err));
    if (out->gpu_hours_per_failure < DTP_MILLI || out->gpu_hours_per_failure > DTP_TERA)
        return dtp_fail(err, DTP_EUSAGE,
                        "--gpu-hours-per-failure: found %s, expected 0.001 to 1e12 (or "
                        "--no-failures)",
                        hours);
    return DTP_OK;
}

/* ---- what long work says: one line on stderr, over the one before ---- */

void dtp_cli_progress(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("\r", stderr);
    if (format)
        vfprintf(stderr, format, args);
    fputs("\033[K\r", stderr);
    va_end(args);
    fflush(stderr);
}

void dtp_cli_reading(void *context, const char *file, uint64_t bytes) {
    (void)context;
    dtp_cli_progress("  %s: %.0f MB", file, (double)bytes / DTP_MEGA);
}

void dtp_cli_measuring(void *context, const char *what) {
    fprintf(context, "measuring %s\n", what);
}
