/* check: predicts every layout, writes that down, trains them all, compares. */
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "hw/own_times.h"
#include "models/memory/memory.h"
#include "planner/check.h"
#include "planner/cli/calibration.h"
#include "planner/cli/check_internal.h"
#include "planner/cli/timeline_file.h"
#include "planner/cli/cli.h"
#include "planner/space.h"
#include "runtime/device/backend.h"
#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "sim/base/text.h"

static double check_now_s(void) {
    return (double)dtp_os_now_ns() / (double)DTP_NS_PER_S;
}

/* A quick calibration beside the predictions; its name goes to the report. */
static enum dtp_status calibrate(struct dtp_cli *cli, int ranks, struct dtp_check *c,
                                 const char **out, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measured m;
    o.backend = own->backend;
    o.nranks = ranks;
    o.together = true;
    o.largest = 512;
    if (cli->progress) {
        o.progress = dtp_cli_measuring;
        o.context = stderr;
    }
    *out = dtp_arena_printf(cli->a, "%s.calibration.json", own->predictions);
    DTP_TRY(dtp_calibration_make(cli->a, &o, *out, &m, err));
    c->calibrate_s = m.seconds;
    return DTP_OK;
}

/* Finds a cluster with this GPU: an HGX board's, else the first. */
static enum dtp_status find_cluster(struct dtp_arena *a, const char *gpu, const char **out,
                                    struct dtp_err *err) {
    const char *const *names;
    size_t n;
    *out = NULL;
    DTP_TRY(dtp_cluster_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct dtp_cluster c;
        DTP_TRY(dtp_cluster_load(a, names[i], &c, err));
        if (strcmp(c.gpu.name, gpu) == 0 && (!*out || strncmp(names[i], "hgx-", 4) == 0))
            *out = names[i];
    }
    return *out ? DTP_OK : dtp_fail(err, DTP_EUNSUPPORTED, "no cluster has the GPU %s", gpu);
}

/* Sets up the cluster of this machine's GPUs, and the times of our runtime's kernels on them. */
static enum dtp_status set_up_gpus(struct dtp_cli *cli, struct dtp_ask *ask, struct dtp_check *c,
                                   struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_measure_options o = {.backend = own->backend};
    struct dtp_dev_about *about = DTP_NEW(cli->a, struct dtp_dev_about, 1);
    const char *gpu;
    DTP_TRY(dtp_measure_about(own->backend, about, err));
    DTP_TRY(dtp_gpu_of_card(cli->a, about->card, &gpu, err));
    c->machine = about->card;
    c->versions = about->versions;
    if (ask->gpus < 1)
        ask->gpus = about->ndevices;
    if (!ask->cluster)
        DTP_TRY(find_cluster(cli->a, gpu, &ask->cluster, err));
    ask->own_times = own->calibration;
    if (own->calibration || dtp_own_times_path(cli->a, gpu))
        return DTP_OK;
    struct dtp_measured m;
    const char *path = dtp_arena_printf(cli->a, "%s.calibration.json", own->predictions);
    DTP_TRY(dtp_own_times_make(cli->a, &o, &path, &m, err));
    ask->own_times = path;
    c->calibrate_s = m.seconds;
    return DTP_OK;
}

enum dtp_status dtp_check_set_up(struct dtp_cli *cli, struct dtp_ask ask, struct dtp_check *c,
                                 struct dtp_setup *setup, struct dtp_err *err) {
    enum { DEFAULT_RANKS = 4, MOST_RANKS = 4096 };
    const struct dtp_check_own *own = cli->own;
    ask.attention = -1;
    ask.nic = NULL;
    ask.framework_json = NULL;
    ask.framework = "dtplan";
    if (dtp_check_on_gpus(own)) {
        DTP_TRY(set_up_gpus(cli, &ask, c, err));
        return dtp_setup_init(cli->a, &ask, setup, err);
    }
    ask.gpus = ask.gpus > 0 ? ask.gpus : DEFAULT_RANKS;
    if (ask.gpus > MOST_RANKS &&
        !own->shadow) /* each is a process or thread of this machine, as in dtplan run */
        return dtp_fail(err, DTP_EUSAGE, "--gpus: found %d, expected at most %d ranks on CPUs",
                        ask.gpus, (int)MOST_RANKS);
    ask.dtype = DTP_FP32;
    ask.cluster_json = NULL;
    ask.memory_limit_bytes = 0;
    ask.cluster = own->calibration;
    if (!ask.cluster)
        DTP_TRY(calibrate(cli, ask.gpus, c, &ask.cluster, err));
    return dtp_setup_init(cli->a, &ask, setup, err);
}

struct dtp_plan dtp_check_resolved(const struct dtp_plan *p, const struct dtp_framework *f) {
    struct dtp_plan x = *p;
    x.dp_overlap = f->wire.dp_overlap;
    x.tp_overlap = f->wire.tp_overlap;
    x.p2p_overlap = !f->wire.p2p_blocking;
    return x;
}

/* ---- options ---- */

#define AT(field) offsetof(struct dtp_check_own, field)
static const char *const backends[] = {"cpu", "cuda", NULL};
static const struct dtp_option options[] = {
    {"backend", DTP_OPT_STRING, 0, AT(backend), .value = "NAME", .names = backends,
     .help = "cpu or cuda"},
    {"steps", DTP_OPT_INT, 0, AT(steps), .value = "N", .min = 1, .max = 1e6,
     .help =
         "measured steps of each layout, after those to warm up; the fastest counts, on GPUs the "
         "median (default 5)"},
    {"calibration", DTP_OPT_STRING, 0, AT(calibration), .value = "FILE",
     .complete = DTP_COMPLETE_FILE,
     .help = "what dtplan calibrate wrote (default: on CPUs a quick one is made first, on GPUs "
             "that of hw/runtime)"},
    {"shadow", DTP_OPT_FLAG, 0, AT(shadow),
     .help =
         "one rank of a large job at a time: the first, a middle and the last stage of the plan "
         "that the search picks (gpt175b on 1,024 GPUs), and of its runners-up"},
    {"runners-up", DTP_OPT_INT, 0, AT(runners_up), .value = "N", .max = 100,
     .help = "of --shadow: other layouts (default 1)"},
    {"cover", DTP_OPT_FLAG, 0, AT(cover),
     .help =
         "only so many layouts that every pair of settings is in one of them; the rule on GPUs"},
    {"layouts", DTP_OPT_INT, 0, AT(layouts), .value = "N", .min = 1, .max = 1e5,
     .help = "of a cover, at least (default 24)"},
    {"skip", DTP_OPT_INT, 0, AT(skip), .value = "N", .max = 1e5,
     .help = "leave out the first N of the layouts: those that a call before has run"},
    {"predictions", DTP_OPT_STRING, 0, AT(predictions), .value = "FILE",
     .complete = DTP_COMPLETE_FILE,
     .help = "where predictions go before the runs (default dtplan-check.json)"},
    {"results", DTP_OPT_STRING, 0, AT(results), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "what --json prints, into a file, anew after each run"},
    {"svg", DTP_OPT_STRING, 0, AT(svg), .value = "OUT.svg", .complete = DTP_COMPLETE_FILE,
     .help = "picture of predicted against measured step times"},
    {0}};

enum { DEFAULT_LAYOUTS = 24 };

static void defaults(void *own) {
    *(struct dtp_check_own *)own = (struct dtp_check_own){
        .backend = "cpu", .predictions = "dtplan-check.json", .steps = 5, .runners_up = 1};
}

/* ---- the layouts ---- */

static void add_row(struct dtp_check *c, const struct dtp_plan *plan) {
    c->row[c->nrows++] = (struct dtp_check_row){
        .plan = dtp_check_resolved(plan, &c->setup->framework), .measured_s = NAN};
}

/* Instead of all rows those of a cover, in its order: what runs out of time has run most of the settings. */
static void keep_cover(struct dtp_arena *a, struct dtp_check *c, size_t least) {
    struct dtp_plan *plan = DTP_NEW(a, struct dtp_plan, c->nrows);
    size_t *index = DTP_NEW(a, size_t, c->nrows);
    for (size_t i = 0; i < c->nrows; i++)
        plan[i] = c->row[i].plan;
    c->nrows = dtp_plan_cover(a, plan, c->nrows, least, index);
    for (size_t i = 0; i < c->nrows; i++)
        c->row[i].plan = plan[index[i]];
}

/* Unless asked otherwise: microbatches of one sequence; on GPUs of up to eight, and up to four chunks; layers
 * divided and recomputed as all do. */
static void default_limits(const struct dtp_check_own *own, struct dtp_limits *limits) {
    struct dtp_select *mb = &limits->field[DTP_LIMIT_MICROBATCH];
    struct dtp_select *vpp = &limits->field[DTP_LIMIT_VPP];
    if (mb->n == 0)
        *mb = dtp_check_on_gpus(own) ? (struct dtp_select){4, {1, 2, 4, 8}, {1, 2, 4, 8}}
                                     : (struct dtp_select){1, {1}, {1}};
    const enum dtp_limit some[] = {DTP_LIMIT_LAST_LESS, DTP_LIMIT_RECOMPUTE_LAYERS};
    for (int i = 0; i < 2; i++)
        if (limits->field[some[i]].n == 0)
            limits->field[some[i]].n = 1; /* 0 */
    if (vpp->n == 0 && dtp_check_on_gpus(own))
        *vpp = (struct dtp_select){3, {1, 2, 4}, {1, 2, 4}};
}

/* Options of layouts that nothing would come of. */
static enum dtp_status check_layouts(const struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    bool one = own->shadow || cli->args.plan, covers = own->cover || dtp_check_on_gpus(own);
    const char *given = own->skip > 0      ? "skip"
                        : own->layouts > 0 ? "layouts"
                        : own->cover       ? "cover"
                                           : NULL;
    if (given && one)
        return dtp_fail(err, DTP_EUSAGE, "--%s goes without %s, which names the layouts", given,
                        own->shadow ? "--shadow" : "--plan");
    if (own->layouts > 0 && !covers)
        return dtp_fail(err, DTP_EUSAGE, "--layouts goes with --cover");
    return DTP_OK;
}

/* Every legal layout, in order of enumeration; on GPUs what fits, and of that a cover. */
static enum dtp_status enumerate(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    const struct dtp_problem *problem = &c->setup->problem;
    struct dtp_memory_memo *memory = dtp_memory_memo_create(cli->a, problem);
    struct dtp_limits limits;
    struct dtp_space space;
    DTP_TRY(dtp_cli_limits(cli, problem, &limits, err));
    default_limits(own, &limits);
    dtp_space_init(cli->a, problem, &limits, &space);
    c->row = DTP_NEW(cli->a, struct dtp_check_row, space.ncandidates);
    for (uint64_t i = 0; i < space.ncandidates; i++) {
        struct dtp_plan plan;
        dtp_space_candidate(&space, i, &plan);
        if (dtp_plan_check(problem, &plan) != DTP_LEGAL)
            continue;
        if (!dtp_check_on_gpus(own) ||
            dtp_memory_device_bytes(memory, &plan) <= problem->memory_limit_bytes)
            add_row(c, &plan);
    }
    if (c->nrows == 0)
        return dtp_fail(err, DTP_ENO, "no layout of %s on %d ranks is legal and fits",
                        problem->model->name, problem->gpus);
    if (own->cover || dtp_check_on_gpus(own))
        keep_cover(cli->a, c, own->layouts > 0 ? (size_t)own->layouts : DEFAULT_LAYOUTS);
    size_t skip = (size_t)own->skip;
    if (skip >= c->nrows)
        return dtp_fail(err, DTP_EINPUT, "--skip %d leaves none of %zu layouts", own->skip,
                        c->nrows);
    c->row += skip;
    c->nrows -= skip;
    return DTP_OK;
}

static enum dtp_status prepare(struct dtp_cli *cli, struct dtp_check *c, struct dtp_setup *setup,
                               struct dtp_err *err) {
    c->setup = setup;
    if (!cli->args.plan) {
        struct dtp_ask ask = cli->args.ask;
        if (!ask.model)
            ask.model = dtp_check_on_gpus(cli->own) ? "gpt3-1.3b" : "gpt-check";
        DTP_TRY(dtp_check_set_up(cli, ask, c, setup, err));
        return enumerate(cli, c, err);
    }
    struct dtp_document d;
    struct dtp_plan plan;
    DTP_TRY(dtp_document_read(cli->a, cli->args.plan, &d, err));
    DTP_TRY(dtp_cli_plan_alone(cli, err));
    DTP_TRY(dtp_check_set_up(cli, d.ask, c, setup, err));
    DTP_TRY(dtp_document_plan(cli->a, &d, &setup->problem, &plan, err));
    DTP_TRY(dtp_cli_fixed(cli, &plan, err));
    c->row = DTP_NEW(cli->a, struct dtp_check_row, 1);
    plan.dtype = setup->problem.dtype;
    add_row(c, &plan);
    return DTP_OK;
}

/* ---- predictions ---- */

static enum dtp_status predict(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err) {
    double start_s = check_now_s();
    struct dtp_check_terms terms = {.problem = &c->setup->problem,
                                    .beside = dtp_check_on_gpus(cli->own)};
    terms.ev = dtp_evaluator_create(cli->a, terms.problem);
    terms.memo = dtp_cost_memo_create(cli->a, terms.problem);
    for (size_t i = 0; i < c->nrows; i++)
        DTP_TRY(dtp_check_predict(&terms, &c->row[i], err));
    dtp_evaluator_destroy(terms.ev);
    c->predict_s = check_now_s() - start_s;
    const struct dtp_check_own *own = cli->own;
    return dtp_file_write(cli->a, own->predictions, dtp_check_predictions, c, err);
}

/* ---- runs ---- */

static struct dtp_run_options run_options(const struct dtp_cli *cli, const struct dtp_check *c,
                                          const struct dtp_check_row *row) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_run_options o = dtp_run_options_default();
    o.model = &c->setup->model;
    o.plan = row->plan;
    o.seq = c->setup->problem.seq;
    if (c->setup->framework.kernels.dropout) {
        o.dropout = c->setup->model.dropout;
        o.attention_dropout = c->setup->model.attention_dropout;
    }
    o.backend = own->backend;
    o.steps = own->steps + dtp_run_warm_up(&o);
    o.seed = (uint64_t)cli->args.seed;
    o.rough_weights =
        dtp_check_on_gpus(own); /* billions of draws would take longer than the steps */
    return o;
}

static const double BUSY =
    0.5; /* load of a core from which on measurements are not to be trusted */

struct runs {
    struct dtp_cli *cli;
    struct dtp_check *c;
    size_t all; /* rows; those that have run are c->nrows */
    enum dtp_status status;
    struct dtp_err *err;
};

static enum dtp_status write_results(struct dtp_cli *cli, struct dtp_check *c,
                                     struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    if (!own->results)
        return DTP_OK;
    dtp_check_summarise(cli->a, c);
    return dtp_file_write(cli->a, own->results, dtp_check_json, c, err);
}

static void note_run(struct dtp_arena *a, const struct dtp_check_own *own,
                     struct dtp_check_row *row, const struct dtp_run_result *r,
                     const struct dtp_err *failure) {
    if (failure) {
        row->failure = dtp_arena_strdup(a, failure->msg);
        return;
    }
    row->measured_s = dtp_check_on_gpus(own) ? r->step_s : r->best_step_s;
    row->median_s = r->step_s;
    row->clock_hz = r->clock_hz;
    row->power_w = r->power_w;
    row->host_s = r->host_s;
    row->graph_share = r->graph_share;
    row->open_s = r->open_s;
    row->step_s = r->step_s_each;
    row->nsteps = r->steps;
    for (int i = 0; i < r->nranks; i++)
        if (r->peak_bytes[i] > row->measured_peak_bytes)
            row->measured_peak_bytes = r->peak_bytes[i];
    dtp_check_measure(row, r, dtp_check_on_gpus(own));
}

static void run_done(void *context, size_t i, const struct dtp_run_result *r,
                     const struct dtp_err *failure) {
    struct runs *x = context;
    struct dtp_cli *cli = x->cli;
    x->c->nrows = i + 1;
    note_run(cli->a, cli->own, &x->c->row[i], r, failure);
    if (!cli->args.json)
        dtp_check_line(cli->a, &cli->out, &x->c->row[i]);
    else if (cli->progress)
        dtp_cli_progress("%zu of %zu layouts", i + 1, x->all);
    fflush(cli->out.file);
    if (x->status == DTP_OK)
        x->status = write_results(cli, x->c, x->err);
}

static enum dtp_status run_all(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err) {
    double start_s = check_now_s();
    struct dtp_run_options *o = DTP_NEW(cli->a, struct dtp_run_options, c->nrows);
    struct runs x = {.cli = cli, .c = c, .all = c->nrows, .err = err};
    for (size_t i = 0; i < c->nrows; i++)
        o[i] = run_options(cli, c, &c->row[i]);
    if (!cli->args.json)
        dtp_check_header(&cli->out, c);
    const struct dtp_run_series series = {
        .options = o, .n = c->nrows, .done = run_done, .context = &x};
    DTP_TRY(dtp_run_series(cli->a, &series, err));
    DTP_TRY(x.status);
    if (cli->args.json && cli->progress)
        dtp_cli_progress(NULL);
    c->run_s = check_now_s() - start_s;
    return DTP_OK;
}

/* ---- pictures ---- */

/* Writes both timelines of the fastest layout: ranks 0 .. as predicted, then as measured. */
static enum dtp_status timeline(struct dtp_cli *cli, const struct dtp_check *c, const char *path,
                                struct dtp_err *err) {
    struct dtp_check_row row = c->row[c->fastest_measured];
    struct dtp_run_result result;
    const struct dtp_run_options o = run_options(cli, c, &row);
    DTP_TRY(dtp_run(cli->a, &o, &result, err));
    struct dtp_tasks *tasks;
    DTP_TRY(dtp_check_tasks(cli->a, &c->setup->problem, &row.plan, &result, &tasks, err));
    return dtp_cli_write_tasks(cli, tasks, path, err);
}

/* Ranks on cores that others use are not what was predicted. */
static void note_load(int ncores) {
    double load = 0;
    FILE *f = fopen("/proc/loadavg", "r");
    if (!f)
        return;
    if (fscanf(f, "%lf", &load) == 1 && load > BUSY * ncores)
        fprintf(stderr,
                "dtplan: note: %d cores have a load of %.1f before the start: what is measured "
                "will scatter and be slow\n",
                ncores, load);
    fclose(f);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct utsname host;
    struct dtp_check c = {.backend = own->backend, .steps = own->steps};
    c.ncores = dtp_os_num_cores();
    c.machine = uname(&host) == 0 ? dtp_arena_printf(cli->a, "%s %s, %d cores", host.nodename,
                                                     host.machine, c.ncores)
                                  : "?";
    const struct dtp_dev_ops *device;
    DTP_TRY(check_layouts(cli, err));
    DTP_TRY(dtp_dev_find(own->backend, &device, err)); /* an unknown name is said at once */
    if (own->shadow)
        return dtp_check_shadow(cli, &c, err);
    if (!dtp_check_on_gpus(own))
        note_load(c.ncores);
    DTP_TRY(prepare(cli, &c, setup, err));
    DTP_TRY(predict(cli, &c, err));
    DTP_TRY(run_all(cli, &c, err));
    dtp_check_summarise(cli->a, &c);
    if (cli->args.json)
        dtp_check_json(cli->out.file, &c);
    else
        dtp_check_text(cli->a, &cli->out, &c);
    if (own->svg)
        DTP_TRY(dtp_file_write(cli->a, own->svg, dtp_check_svg, &c, err));
    if (cli->args.timeline)
        DTP_TRY(timeline(cli, &c, cli->args.timeline, err));
    if (c.nfailed > 0)
        return dtp_fail(err, DTP_ENO, "%zu of %zu layouts failed", c.nfailed, c.nrows);
    return DTP_OK;
}

static const struct dtp_form *const documents[] = {&dtp_check_form, &dtp_check_shadow_form, NULL};

const struct dtp_verb dtp_verb_check = {
    .name = "check",
    .summary = "predict layouts, train them for real on this machine, compare",
    .synopsis = "check [--model M] [--gpus N | --plan FILE] [limits] [--backend cpu|cuda]",
    .description =
        "Takes or makes a calibration of the machine, predicts step time and peak memory of every "
        "legal layout of a small GPT on N ranks (or of the model or plan given), writes the "
        "predictions to a file, trains each layout for some steps and prints predicted beside "
        "measured: step time, forward, backward, optimizer, waits, peak bytes; mean "
        "error, rank correlation, and the regret of the plan that the predictions pick. "
        "Microbatches hold one sequence unless --microbatch-size says otherwise. With --backend "
        "cuda it takes GPT 1.3B on all GPUs of the host, the times of hw/runtime, microbatches of "
        "1 to 8 sequences, and of the layouts that fit a cover. With --shadow it checks a plan for "
        "many GPUs on one: ranks of three stages run with their exact schedule and shapes, waits "
        "stand for what others would send, and each action's time and the peak of memory come "
        "beside their prediction. Exit status 1 when a run fails.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_PLAN | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT |
              DTP_GROUP_SEARCH | DTP_GROUP_TIMELINE,
    .documents = documents,
    .options = options,
    .own_size = sizeof(struct dtp_check_own),
    .defaults = defaults,
    .run = run};
