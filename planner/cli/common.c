#include <stddef.h>

#include "planner/cli/cli.h"
#include "sim/base/units.h"

#define AT(field) offsetof(struct dtp_args, field)
#define ASK(field) offsetof(struct dtp_args, ask.field)

static const char *const color_names[] = {"auto", "always", "never", NULL};
static const char *const shell_names[] = {"bash", "zsh", NULL};

/* As PyTorch calls the types of dtp_dtype_names. */
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
    {"memory-limit", DTP_OPT_BYTES, 0, ASK(memory_limit_bytes), .value = "BYTES", .min = DTP_MIB,
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
    LIMIT(DTP_LIMIT_CP, "cp", "context-parallel degree (default 1; searched from 16384 tokens on)"),
    LIMIT(DTP_LIMIT_DP, "dp", "data-parallel degree"),
    LIMIT(DTP_LIMIT_EP, "ep",
          "expert-parallel degree, a part of tp x cp x dp / etp (models with experts)"),
    LIMIT(DTP_LIMIT_ETP, "etp",
          "tensor-parallel degree of the experts alone (default: tp and 1 are tried)"),
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
const struct dtp_option dtp_fixed_options[] = {
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
    FIELD("ep-overlap", "0|1", ep_overlap,
          "hide the all-to-all of experts behind another microbatch's compute (default: 0)"),
    FIELD("ep-per-node", "0|1", ep_per_node,
          "send a token once to each node that holds experts of its, as DeepEP (default: 0)"),
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
                   dtp_fixed_options},
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
