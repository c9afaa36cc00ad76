/* dtplan run: trains a plan for real. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/timeline_file.h"
#include "planner/cli/check_terms.h"
#include "planner/cli/verbs.h"
#include "planner/setup.h"
#include "runtime/run.h"
#include "sim/base/text.h"

struct own {
    const char *backend, *data, *save, *resume;
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
     .help = "text to train on, byte by byte (default: synthetic tokens)"},
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
     .help = "go on from the newest checkpoint of this folder, which any layout may have written"},
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
    const char *dropout = ask->dropout;
    *ask = d.ask;
    ask->dropout = dropout ? dropout : d.ask.dropout;
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
    if (ask.dropout)
        DTP_TRY(dtp_dropout_parse(ask.dropout, dropout, err));
    o->dropout = dropout[0];
    o->attention_dropout = dropout[1];
    o->backend = own->backend;
    o->steps = own->steps;
    o->seed = (uint64_t)cli->args.seed;
    o->data = own->data;
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

/* Mean time of each kind of action of a shadow rank, in its last step. */
static void put_actions(struct dtp_json_out *w, const struct dtp_run_result *r) {
    dtp_json_put_key(w, "actions");
    dtp_json_array(w);
    for (int kind = 0; kind < DTP_NACTIONS; kind++) {
        int count;
        double mean_s = dtp_action_mean_s(r, kind, &count);
        if (count == 0)
            continue;
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", dtp_action_names[kind]);
        dtp_json_kv_int(w, "count", count);
        dtp_json_kv_double(w, "mean_s", mean_s);
        dtp_json_kv_string(w, "source", "measured");
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void put_head(struct dtp_json_out *w, const struct dtp_run_options *o) {
    dtp_json_object(w);
    dtp_json_kv_int(w, "schema_version", 1);
    dtp_json_kv_string(w, "model", o->model->name);
    dtp_json_kv_string(w, "backend", o->backend);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &o->plan);
}

static void print_failure(FILE *f, const struct dtp_run_options *o, const struct dtp_err *err) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    put_head(&w, o);
    dtp_json_kv_string(&w, "failure", err->msg);
    dtp_json_end(&w);
}

static void print_json(FILE *f, const struct dtp_run_options *o, const struct dtp_run_result *r,
                       double mfu) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    put_head(&w, o);
    dtp_json_kv_int(&w, "ranks", r->nranks);
    dtp_json_kv_int(&w, "first_step", r->first_step);
    dtp_json_kv_int(&w, "steps", r->steps);
    dtp_json_kv_double(&w, "step_s", r->step_s);
    dtp_json_kv_double(&w, "best_step_s", r->best_step_s);
    dtp_json_put_key(&w, "losses");
    dtp_json_array(&w);
    for (int i = 0; i < r->steps; i++)
        dtp_json_put_double(&w, r->loss[i]);
    dtp_json_end(&w);
    dtp_json_put_key(&w, "peak_bytes");
    dtp_json_array(&w);
    for (int i = 0; i < r->nranks; i++)
        dtp_json_put_u64(&w, r->peak_bytes[i]);
    dtp_json_end(&w);
    dtp_json_kv_double(&w, "tokens_per_s", r->tokens_per_s);
    dtp_json_kv_double(&w, "mfu", mfu);
    if (strcmp(o->backend, "cpu") != 0) {
        dtp_json_kv_double(&w, "host_s", r->host_s);
        dtp_json_kv_int(&w, "graphs", r->graphs);
        dtp_json_kv_int(&w, "graph_kernels", r->graph_kernels);
        dtp_json_kv_double(&w, "graph_share", r->graph_share);
        dtp_json_kv_u64(&w, "overhead_bytes", r->overhead_bytes);
    }
    if (o->loss_scale > 0 || o->plan.dtype == DTP_FP16) {
        dtp_json_kv_double(&w, "loss_scale", r->loss_scale);
        dtp_json_kv_int(&w, "skipped_steps", r->skipped_steps);
    }
    if (o->shadow_cluster) {
        dtp_json_kv_int(&w, "shadow_rank", o->shadow_rank);
        put_actions(&w, r);
    }
    dtp_json_end(&w);
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
    DTP_TRY(fill_options(cli, &m, &o, err));
    if (o.attention_dropout > 0 && strcmp(o.backend, "cuda") == 0)
        fprintf(stderr,
                "dtplan: attention on our own kernels: cuDNN would not draw the mask of other "
                "layouts\n");
    if (!cli->args.json) {
        o.progress = progress;
        o.progress_context = cli->out.file;
    }
    DTP_TRY(dtp_run_check(&o, err));
    enum dtp_status status = dtp_run(cli->a, &o, &r, err);
    if (status != DTP_OK) {
        if (cli->args.json)
            print_failure(cli->out.file, &o, err);
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
        print_json(cli->out.file, &o, &r, mfu);
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
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .run = run};
