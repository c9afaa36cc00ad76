/* dtplan run: trains a plan for real. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/timeline_file.h"
#include "planner/cli/check_internal.h"
#include "planner/cli/cli.h"
#include "planner/setup.h"
#include "runtime/launch.h"
#include "runtime/run.h"
#include "sim/base/text.h"

struct own {
    const char *backend, *data, *weights, *save_weights, *save, *resume;
    bool shadow;
    int rank;
    int ranks, steps, warmup_steps, decay_steps, save_every;
    double lr, min_lr, clip_norm, weight_decay, loss_scale, timeout_s;
    bool pin;
};

#define AT(field) offsetof(struct own, field)
enum { MOST_STEPS = 100000000, MOST_RANKS = 4096, MOST_GPUS = 1 << 20 };
static const char *const backends[] = {"cpu", "cuda", NULL};

static const struct dtp_option options[] = {
    {"backend", DTP_OPT_STRING, 0, AT(backend), .value = "NAME", .names = backends,
     .help = "device to train on (default cpu): cpu or cuda"},
    {"ranks", DTP_OPT_INT, 'n', AT(ranks), .value = "N", .min = 1, .max = MOST_RANKS,
     .help = "processes (default: what the plan needs)"},
    {"steps", DTP_OPT_INT, 0, AT(steps), .value = "N", .min = 1, .max = MOST_STEPS,
     .help = "optimizer steps in all (default 10)"},
    {"data", DTP_OPT_STRING, 0, AT(data), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "text to train on, byte by byte; or tokens: .npy, or Megatron's .bin with its .idx "
             "(default: synthetic tokens)"},
    {"weights", DTP_OPT_STRING, 0, AT(weights), .value = "PATH", .complete = DTP_COMPLETE_FILE,
     .help = "initial weights: a file or folder of safetensors with Hugging Face's names"},
    {"save-weights", DTP_OPT_STRING, 0, AT(save_weights), .value = "FILE",
     .complete = DTP_COMPLETE_FILE,
     .help = "write the weights there at the end: safetensors in fp32 with Hugging Face's names"},
    {"lr", DTP_OPT_DOUBLE, 0, AT(lr), .value = "RATE", .help = "learning rate (default 0.001)"},
    {"min-lr", DTP_OPT_DOUBLE, 0, AT(min_lr), .value = "RATE",
     .help = "where the cosine ends (default a tenth of --lr)"},
    {"warmup-steps", DTP_OPT_INT, 0, AT(warmup_steps), .value = "N", .max = MOST_STEPS,
     .help = "steps up to --lr (default 2)"},
    {"decay-steps", DTP_OPT_INT, 0, AT(decay_steps), .value = "N", .max = MOST_STEPS,
     .help = "step at which the cosine ends (default: --steps)"},
    {"clip-norm", DTP_OPT_DOUBLE, 0, AT(clip_norm), .value = "NORM",
     .help = "largest global norm of the gradients (default 1), 0: any"},
    {"weight-decay", DTP_OPT_DOUBLE, 0, AT(weight_decay), .value = "W",
     .help = "AdamW's decay of matrices (default 0.1)"},
    {"loss-scale", DTP_OPT_DOUBLE, 0, AT(loss_scale), .value = "SCALE",
     .help = "first factor of the gradients, a power of two (default 65536 in fp16, else none)"},
    {"save", DTP_OPT_STRING, 0, AT(save), .value = "DIR", .complete = DTP_COMPLETE_FILE,
     .help = "write checkpoints into this folder"},
    {"save-every", DTP_OPT_INT, 0, AT(save_every), .value = "N", .max = MOST_STEPS,
     .help = "steps between checkpoints (default: one at the end)"},
    {"resume", DTP_OPT_STRING, 0, AT(resume), .value = "DIR", .complete = DTP_COMPLETE_FILE,
     .help =
         "go on from the newest checkpoint of this folder, of any layout, or from a step-N in it"},
    {"timeout", DTP_OPT_DOUBLE, 0, AT(timeout_s), .value = "SECONDS",
     .help = "longest wait for another rank (default 60)"},
    {"no-pin", DTP_OPT_FLAG, 0, AT(pin), .help = "leave ranks free to move between cores"},
    {"shadow", DTP_OPT_FLAG, 0, AT(shadow),
     .help = "run one rank alone, with waits of the predicted length for what others would send"},
    {"rank", DTP_OPT_INT, 0, AT(rank), .value = "R", .max = MOST_GPUS,
     .help = "which one (default 0)"},
    {0}};

static void defaults(void *own) {
    struct dtp_run_options o = dtp_run_options_default();
    *(struct own *)own = (struct own){.backend = o.backend,
                                      .steps = o.steps,
                                      .warmup_steps = o.warmup_steps,
                                      .lr = o.lr,
                                      .min_lr = -1,
                                      .clip_norm = o.clip_norm,
                                      .weight_decay = o.weight_decay,
                                      .timeout_s = o.timeout_s};
}

/* ---- what to run ---- */

static enum dtp_status load_model(struct dtp_arena *a, const struct dtp_ask *ask,
                                  struct dtp_model *out, struct dtp_err *err) {
    if (ask->model_json)
        return dtp_model_read(a, ask->model_json, out, err);
    if (!ask->model)
        return dtp_fail(err, DTP_EUSAGE, "what to train? give --model NAME or --plan FILE");
    return dtp_model_load(a, ask->model, out, err);
}

/* The dtype that was asked for, else what the backend computes in. */
static enum dtp_dtype choose_dtype(const struct own *own, int asked) {
    if (strcmp(own->backend, "cpu") == 0)
        return DTP_FP32;
    return asked >= 0 ? (enum dtp_dtype)asked : DTP_BF16;
}

static void defaults_of_plan(const struct own *own, const struct dtp_ask *ask,
                             const struct dtp_model *m, struct dtp_plan *out) {
    *out = dtp_plan_default();
    out->dtype = choose_dtype(own, ask->dtype);
    out->global_batch_size = ask->batch > 0 ? ask->batch : m->global_batch;
}

/* dp from the number of ranks where it was not given. */
static void fill_dp(struct dtp_plan *p, int ranks, bool given) {
    int model_parallel = p->tp * p->cp * p->pp;
    if (!given && ranks > 0 && model_parallel > 0)
        p->dp = ranks / model_parallel;
}

static enum dtp_status plan_from_options(struct dtp_cli *cli, const struct own *own,
                                         const struct dtp_model *m, struct dtp_plan *out,
                                         struct dtp_err *err) {
    struct dtp_limits limits = dtp_limits_none();
    defaults_of_plan(own, &cli->args.ask, m, &limits.fixed);
    for (int i = 0; i < DTP_NLIMITS; i++) {
        char place[64];
        snprintf(place, sizeof place, "--%s", dtp_limit_fields[i].option);
        if (cli->args.limit[i])
            DTP_TRY(dtp_select_parse((enum dtp_limit)i, cli->args.limit[i], place, &limits.field[i],
                                     err));
    }
    DTP_TRY(dtp_cli_fixed(cli, &limits.fixed, err));
    DTP_TRY(dtp_cli_single(cli, &limits, out, err));
    if (limits.field[DTP_LIMIT_SCHEDULE].n == 0 && out->vpp > 1)
        out->schedule = dtp_schedule_usual(out->vpp);
    fill_dp(out, own->ranks ? own->ranks : cli->args.ask.gpus, limits.field[DTP_LIMIT_DP].n > 0);
    return DTP_OK;
}

static enum dtp_status plan_from_document(struct dtp_cli *cli, const struct own *own,
                                          struct dtp_ask *ask, struct dtp_model *m,
                                          struct dtp_plan *out, struct dtp_err *err) {
    struct dtp_document d;
    DTP_TRY(dtp_document_read(cli->a, cli->args.plan, &d, err));
    DTP_TRY(dtp_cli_plan_alone(cli, err));
    int asked = ask->dtype, seq = ask->seq;
    const char *dropout = ask->dropout, *optimizer = ask->optimizer;
    *ask = d.ask;
    ask->dropout = dropout ? dropout : d.ask.dropout;
    ask->optimizer = optimizer ? optimizer : d.ask.optimizer;
    ask->seq = seq > 0 ? seq : d.ask.seq;
    DTP_TRY(load_model(cli->a, ask, m, err));
    defaults_of_plan(own, ask, m, out);
    DTP_TRY(dtp_plan_read(cli->a, d.plan, out, err));
    DTP_TRY(dtp_cli_fixed(cli, out, err));
    enum dtp_dtype wanted = out->dtype;
    out->dtype = choose_dtype(own, asked >= 0 ? asked : (int)wanted);
    if (out->dtype != wanted)
        fprintf(stderr, "dtplan: the %s backend computes in %s, the plan says %s\n", own->backend,
                dtp_dtype_names[out->dtype], dtp_dtype_names[wanted]);
    fill_dp(out, d.ask.gpus, dtp_json_get(d.plan, "dp") != NULL);
    return DTP_OK;
}

static enum dtp_status fill_shadow(struct dtp_cli *cli, const struct dtp_ask *ask,
                                   struct dtp_run_options *o, struct dtp_err *err) {
    const struct own *own = cli->own;
    if (!own->shadow)
        return own->rank == 0 ? DTP_OK : dtp_fail(err, DTP_EUSAGE, "--rank goes with --shadow");
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    DTP_TRY(dtp_setup_load(cli->a, ask, setup, err));
    o->shadow_cluster = &setup->cluster;
    o->shadow_rank = own->rank;
    return DTP_OK;
}

static enum dtp_status fill_options(struct dtp_cli *cli, struct dtp_model *m,
                                    struct dtp_run_options *o, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_ask ask = cli->args.ask;
    if (cli->args.plan) {
        DTP_TRY(plan_from_document(cli, own, &ask, m, &o->plan, err));
    } else {
        DTP_TRY(load_model(cli->a, &ask, m, err));
        DTP_TRY(plan_from_options(cli, own, m, &o->plan, err));
    }
    int ranks = o->plan.tp * o->plan.cp * o->plan.pp * o->plan.dp;
    if (own->ranks > 0 && own->ranks != ranks)
        return dtp_fail(err, DTP_EUSAGE, "--ranks %d, but tp %d x cp %d x pp %d x dp %d is %d",
                        own->ranks, o->plan.tp, o->plan.cp, o->plan.pp, o->plan.dp, ranks);
    o->model = m;
    o->seq = ask.seq > 0 ? ask.seq : m->seq;
    if (m->position == DTP_POS_LEARNED && m->max_positions < o->seq)
        m->max_positions = o->seq; /* as dtplan plan does */
    double dropout[2] = {0};
    if (ask.optimizer && strcmp(ask.optimizer, "adamw") != 0)
        return dtp_fail(err, DTP_EUSAGE, "--optimizer: found %s, this runtime trains with adamw",
                        ask.optimizer);
    if (ask.dropout)
        DTP_TRY(dtp_dropout_parse(ask.dropout, dropout, err));
    o->dropout = dropout[0];
    o->attention_dropout = dropout[1];
    o->backend = own->backend;
    o->steps = own->steps;
    o->seed = (uint64_t)cli->args.seed;
    o->data = own->data;
    o->weights = own->weights;
    o->save_weights = own->save_weights;
    o->lr = own->lr;
    o->min_lr = own->min_lr >= 0 ? own->min_lr : own->lr / 10;
    o->warmup_steps = own->warmup_steps;
    o->decay_steps = own->decay_steps;
    o->clip_norm = own->clip_norm;
    o->weight_decay = own->weight_decay;
    o->loss_scale = own->loss_scale;
    o->timeout_s = own->timeout_s;
    o->save = own->save;
    o->save_every = own->save_every;
    o->resume = own->resume;
    o->memory_bytes = ask.memory_limit_bytes;
    o->pin = !own->pin;
    return fill_shadow(cli, &ask, o, err);
}

/* ---- results ---- */

/* Model FLOPs over the ranks' peak; NAN where no data sheet says what a rank can do. */
static double mfu_of(struct dtp_cli *cli, const struct dtp_run_options *o,
                     const struct dtp_run_result *r) {
    struct dtp_cluster c;
    if (strcmp(o->backend, "cpu") == 0 || o->shadow_cluster || !cli->args.ask.cluster ||
        dtp_cluster_load(cli->a, cli->args.ask.cluster, &c, NULL) != DTP_OK)
        return NAN;
    double flops = 3 * dtp_model_forward_flops(o->model, o->seq) * o->plan.global_batch_size;
    double peak_flops_per_s = c.gpu.peak_flops_per_s[o->plan.dtype] * r->nranks;
    return peak_flops_per_s > 0 ? flops / r->step_s / peak_flops_per_s : (double)NAN;
}

/* ---- JSON ---- */

struct document {
    const char *model, *backend, *failure;
    struct dtp_plan plan;
    const struct dtp_run_result *result; /* NULL: it failed */
    double mfu;
    const struct dtp_run_result *on_gpu, *scaled; /* result, or NULL where this part is left out */
    const struct dtp_run_options *shadow;
    const struct document *ended, *with_actions; /* itself, or NULL */
};

static void put_losses(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_run_result *r = at;
    (void)f;
    dtp_json_array(w);
    for (int i = 0; i < r->steps; i++)
        dtp_json_put_double(w, r->loss[i]);
    dtp_json_end(w);
}

static void put_peaks(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_run_result *r = at;
    (void)f;
    dtp_json_array(w);
    for (int i = 0; i < r->nranks; i++)
        dtp_json_put_u64(w, r->peak_bytes[i]);
    dtp_json_end(w);
}

struct action {
    int kind, count;
    double mean_s;
};

/* Mean time of each kind of action of a shadow rank, in its last step. */
static void put_actions(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    dtp_json_array(w);
    for (int kind = 0; kind < DTP_NACTIONS; kind++) {
        struct action action = {.kind = kind};
        action.mean_s = dtp_action_mean_s(d->result, kind, &action.count);
        if (action.count == 0)
            continue;
        dtp_put_object(w, f, &action);
    }
    dtp_json_end(w);
}

/* clang-format off */
#define IN(member) offsetof(struct action, member)
static const struct dtp_field action_fields[] = {
    {"name", DTP_FIELD_ENUM, IN(kind), .names = dtp_action_names, .help = "F, B, I, W, ..."},
    {"count", DTP_FIELD_INT, IN(count), .help = "actions that were measured"},
    {"mean_s", DTP_FIELD_DOUBLE, IN(mean_s), .help = "mean time of one"},
    DTP_FIELD_SOURCE("measured"),
    {0}};
#undef IN
#define IN(member) offsetof(struct dtp_run_result, member)
static const struct dtp_field result_fields[] = {
    {"ranks", DTP_FIELD_INT, IN(nranks), .help = "ranks that ran"},
    {"first_step", DTP_FIELD_INT, IN(first_step), .help = "number of the first step; not 0: from a checkpoint"},
    {"steps", DTP_FIELD_INT, IN(steps), .help = "steps that ran"},
    {"step_s", DTP_FIELD_DOUBLE, IN(step_s), .help = "median of the steps after the warm-up"},
    {"best_step_s", DTP_FIELD_DOUBLE, IN(best_step_s), .help = "the fastest of them"},
    {"losses", DTP_FIELD_PUT, 0, .put = put_losses, .help = "loss of each step"},
    {"peak_bytes", DTP_FIELD_PUT, 0, .put = put_peaks, .help = "peak memory of each rank"},
    {"tokens_per_s", DTP_FIELD_DOUBLE, IN(tokens_per_s), .help = "throughput of all ranks"},
    {0}};
static const struct dtp_field gpu_fields[] = {
    {"host_s", DTP_FIELD_DOUBLE, IN(host_s), .help = "time in which rank 0's host enqueues a step, on GPUs"},
    {"graphs", DTP_FIELD_INT, IN(graphs), .help = "CUDA graphs of rank 0"},
    {"graph_kernels", DTP_FIELD_INT, IN(graph_kernels), .help = "kernels in them"},
    {"graph_share", DTP_FIELD_DOUBLE, IN(graph_share), .help = "share of its operations that are in CUDA graphs"},
    {"overhead_bytes", DTP_FIELD_U64, IN(overhead_bytes),
     .help = "device memory beyond what is counted: context, NCCL, libraries"},
    {0}};
static const struct dtp_field scale_fields[] = {
    {"loss_scale", DTP_FIELD_DOUBLE, IN(loss_scale), .help = "loss scale at the end, where there is one"},
    {"skipped_steps", DTP_FIELD_INT, IN(skipped_steps), .help = "steps skipped for gradients that are no numbers"},
    {0}};
#undef IN
static const struct dtp_field shadow_fields[] = {
    {"shadow_rank", DTP_FIELD_INT, offsetof(struct dtp_run_options, shadow_rank),
     .help = "rank of the plan that ran alone"},
    {0}};
#define IN(member) offsetof(struct document, member)
static const struct dtp_field tail_fields[] = {
    {"mfu", DTP_FIELD_DOUBLE, IN(mfu), .help = "model FLOPs as a share of the peak"},
    DTP_FIELD_PART_AT(IN(on_gpu), gpu_fields), DTP_FIELD_PART_AT(IN(scaled), scale_fields), DTP_FIELD_PART_AT(IN(shadow), shadow_fields),
    {0}};
static const struct dtp_field actions_fields[] = {
    {"actions", DTP_FIELD_PUT, 0, .put = put_actions, .inner = "[]", .fields = action_fields}, {0}};
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION,
    {"model", DTP_FIELD_STRING, IN(model), .unset = DTP_UNSET_NULL, .help = "name of the model"},
    {"backend", DTP_FIELD_STRING, IN(backend), .help = "cpu or cuda"},
    DTP_FIELD_PLAN_AT(IN(plan)),
    {"failure", DTP_FIELD_STRING, IN(failure), .help = "why it failed; then nothing follows"},
    DTP_FIELD_PART_AT(IN(result), result_fields), DTP_FIELD_PART_AT(IN(ended), tail_fields), DTP_FIELD_PART_AT(IN(with_actions), actions_fields),
    {0}};
/* clang-format on */
static const struct dtp_form document = {"run", "A run that trained; the last line.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static void print_json(FILE *f, const struct dtp_run_options *o, const struct dtp_run_result *r,
                       double mfu, const char *failure) {
    struct document d = {.model = o->model->name,
                         .backend = o->backend,
                         .plan = o->plan,
                         .failure = failure,
                         .result = r,
                         .mfu = mfu,
                         .on_gpu = strcmp(o->backend, "cpu") != 0 ? r : NULL,
                         .scaled = o->loss_scale > 0 || o->plan.dtype == DTP_FP16 ? r : NULL,
                         .shadow = o->shadow_cluster ? o : NULL};
    d.ended = r ? &d : NULL;
    d.with_actions = r && d.shadow ? &d : NULL;
    dtp_form_write(f, 0, &document, &d);
}

static void print_summary(FILE *f, const struct dtp_run_result *r, double mfu) {
    char time[32], peak[32], percent[32];
    uint64_t most_bytes = 0;
    for (int i = 0; i < r->nranks; i++)
        most_bytes = r->peak_bytes[i] > most_bytes ? r->peak_bytes[i] : most_bytes;
    fprintf(f, "step time %s (median), %.0f tokens/s, peak memory %s on the worst of %d ranks",
            dtp_fmt_time(r->step_s, time, sizeof time), r->tokens_per_s,
            dtp_fmt_bytes_gib((double)most_bytes, peak, sizeof peak), r->nranks);
    if (isfinite(mfu))
        fprintf(f, ", MFU %s", dtp_fmt_percent(mfu, percent, sizeof percent));
    if (r->skipped_steps > 0)
        fprintf(f, ", %d steps skipped on the way to a loss scale of %g", r->skipped_steps,
                r->loss_scale);
    fprintf(f, "\n");
}

static void progress(void *context, int step, double loss, double step_s) {
    char time[32];
    fprintf(context, "step %4d  loss %.4f  %s\n", step + 1, loss,
            dtp_fmt_time(step_s, time, sizeof time));
    fflush(context);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    struct dtp_model m;
    struct dtp_run_options o = dtp_run_options_default();
    struct dtp_run_result r;
    enum dtp_status status = fill_options(cli, &m, &o, err);
    if (status != DTP_OK) {
        const struct own *own = cli->own;
        dtp_launch_cannot_start(own->timeout_s, err);
        return status;
    }
    if (o.attention_dropout > 0 && strcmp(o.backend, "cuda") == 0)
        fprintf(stderr,
                "dtplan: attention on our own kernels: cuDNN would not draw the mask of other "
                "layouts\n");
    if (!cli->args.json) {
        o.progress = progress;
        o.progress_context = cli->out.file;
    }
    status = dtp_run(cli->a, &o, &r, err);
    if (status != DTP_OK) {
        if (cli->args.json)
            print_json(cli->out.file, &o, NULL, 0, err->msg);
        return status;
    }
    if (!r.is_root)
        return DTP_OK;
    double mfu = mfu_of(cli, &o, &r);
    if (cli->args.timeline) {
        const char *title = dtp_arena_printf(cli->a, "%s: %s", m.name ? m.name : "a model",
                                             dtp_plan_flags(cli->a, &o.plan));
        const struct dtp_tasks *tasks = dtp_cli_run_tasks(cli->a, &o.plan, &r, title);
        DTP_TRY(dtp_cli_write_tasks(cli, tasks, cli->args.timeline, err));
    }
    if (cli->args.json)
        print_json(cli->out.file, &o, &r, mfu, NULL);
    else
        print_summary(cli->out.file, &r, mfu);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_run = {
    .name = "run",
    .summary = "train a plan for real, on CPU or GPU ranks",
    .synopsis = "run --plan FILE | --model M --tp T --pp P --dp D ... [--steps N] [--data FILE]",
    .description =
        "Trains with the plan: one process a rank, forked here, or started by torchrun, mpirun or "
        "srun, whose "
        "environment is then read. Prints the loss of each step, the time of a step and the peak "
        "of memory. The same seed gives the same losses with any layout. --memory-limit is the "
        "memory of one rank; cluster, framework and attention play no part (a cluster gives the "
        "peak for the MFU). Exit status 1 when a rank dies, hangs or is stopped or the loss is no "
        "number (--json: failure), 4 for what the "
        "runtime cannot train, 5 when memory runs out.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_PLAN | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT |
              DTP_GROUP_SEARCH | DTP_GROUP_TIMELINE,
    .documents = documents,
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .run = run};
