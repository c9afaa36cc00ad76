/* calibrate: fits sweeps in files, or measures this machine. */
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/calibrate.h"
#include "planner/cli/calibration.h"
#include "planner/cli/cli.h"
#include "traces/replay/infer.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/replay/host_times.h"
#include "traces/tasks/diff.h"
#include "traces/tasks/tasks_simulated.h"

struct own {
    const char *backend, *gpu, *out, *framework;
    int ranks, rounds, largest;
    bool from, from_trace;
};

/* ---- --backend cuda ---- */

/* dtplan-calibrate-cuda (runtime/cuda/calibrate_cuda.cuh) is in the folder of this program or in $PATH, or named by
 * $DTPLAN_CALIBRATE_CUDA; its sweep stays as OUT.sweep.json. The GPU file whose sweep_names hold the GPU found is
 * fitted to it, as with --from, and written to OUT. */

extern char **environ;

static const char program[] = "dtplan-calibrate-cuda", seconds[] = "200";
enum { PROGRAM_NO_GPU = 4, SHELL_NOT_FOUND = 127 };

/* Looks in the folder of this program first, else returns a bare name for $PATH. */
static const char *find_program(struct dtp_arena *a) {
    const char *given = getenv("DTPLAN_CALIBRATE_CUDA");
    if (given)
        return given;
    const char *own = dtp_program_folder(a);
    const char *beside = own ? dtp_arena_printf(a, "%s/%s", own, program) : program;
    return access(beside, X_OK) == 0 ? beside : program;
}

static enum dtp_status measure(struct dtp_cli *cli, const char *sweep, struct dtp_err *err) {
    const char *path = find_program(cli->a);
    const char *argv[] = {path, "--seconds", seconds, "--out", sweep, NULL};
    pid_t pid;
    int state, failed;

    /* posix_spawnp() takes char *const[] and changes none of it */
    union {
        const char **in;
        char **out;
    } arguments = {.in = argv};
    fflush(NULL);
    failed = posix_spawnp(&pid, path, NULL, NULL, arguments.out, environ);
    if (failed)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: %s (it is built where nvcc is found; DTPLAN_CALIBRATE_CUDA names it)",
                        path, strerror(failed));
    if (waitpid(pid, &state, 0) != pid || !WIFEXITED(state))
        return dtp_fail(err, DTP_ENO, "%s was killed", path);
    if (WEXITSTATUS(state) == SHELL_NOT_FOUND)
        return dtp_fail(err, DTP_EUNSUPPORTED, "%s cannot be run", path);
    if (WEXITSTATUS(state) == PROGRAM_NO_GPU)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "no NVIDIA GPU: neither the driver nor a device was found");
    if (WEXITSTATUS(state) != 0)
        return dtp_fail(err, DTP_ENO, "%s: exit status %d", path, WEXITSTATUS(state));
    return DTP_OK;
}

/* The GPU file that calls this part by the name in the sweep. */
static enum dtp_status find_gpu(struct dtp_arena *a, const char *sweep, const char **out,
                                struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_read_file(a, sweep, &j, err));
    return dtp_gpu_of_card(a, dtp_json_string(dtp_json_get(j, "gpu")), out, err);
}

/* gpu NULL: by the name that the driver reports; out NULL: GPU.json. DTP_EUNSUPPORTED, naming what is
 * missing, without the program or without a GPU. */
/* gpu NULL: by the name that the driver reports; out NULL: GPU.json. DTP_EUNSUPPORTED, naming what is missing, without
 * the program or without a GPU. */
static enum dtp_status calibrate_cuda(struct dtp_cli *cli, const char *gpu, const char *out,
                                      struct dtp_err *err) {
    const char *stem = out ? out : gpu ? gpu : "gpu";
    const char *sweep = dtp_arena_printf(cli->a, "%s.sweep.json", stem);
    const char *const paths[] = {sweep};

    DTP_TRY(measure(cli, sweep, err));
    if (!gpu)
        DTP_TRY(find_gpu(cli->a, sweep, &gpu, err));
    if (!out)
        out = dtp_arena_printf(cli->a, "%s.json", gpu);
    struct dtp_calibrate_args args = {
        .paths = paths, .npaths = 1, .gpu = gpu, .out_path = out, .report = cli->out.file};
    DTP_TRY(dtp_calibrate_from_files(cli->a, &args, err));
    fprintf(cli->out.file,
            "Not covered: fused attention (calibrate_torch.py times PyTorch's), "
            "collectives (%s --gpus N), FP8 where the file holds it fixed.\n",
            program);
    return DTP_OK;
}

/* ---- --from-trace ---- */

struct fit {
    struct dtp_trace trace;
    struct dtp_inferred in;
    struct dtp_infer_model job;
    struct dtp_cluster cluster;
    struct dtp_framework before, after;
    struct dtp_problem problem;
    struct dtp_host_times host;
    const char *framework; /* name */
    double layers;         /* layer passes of one direction that the trace has */
    double launches[DTP_NDIRECTIONS], predicted[DTP_NDIRECTIONS]; /* a layer */
    double layer_s;                                               /* a layer, without launches */
    double measured_s, before_s, after_s;                         /* the step */
    struct dtp_diff diff;
};

/* Launches of a layer as the framework's list has them. */
static void count_launches(struct dtp_arena *a, struct fit *f, enum dtp_layer_kind kind,
                           double *out) {
    struct dtp_ops *ops = DTP_NEW(a, struct dtp_ops, 1);
    dtp_ops_layer(&f->problem, &f->job.plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out[op->pass == DTP_PASS_F ? DTP_FORWARD_LAUNCHES : DTP_BACKWARD_LAUNCHES] +=
            op->count * op->launches;
    }
}

static enum dtp_status prepare(struct dtp_cli *cli, struct fit *f, struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *cluster = own->gpu;
    DTP_TRY(dtp_trace_load(cli->a, cli->arg, (size_t)cli->nargs, NULL, &f->trace, err));
    if (f->trace.tasks)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "--from-trace: %s is a timeline of dtplan; what its host took is not in it",
                        cli->arg[0]);
    dtp_infer(cli->a, &f->trace, &f->in);
    struct dtp_err why_not;
    bool some = f->trace.nranks < (size_t)(f->in.gpus > 0 ? f->in.gpus : 0);
    if (some && dtp_infer_complete(cli->a, &f->in, &f->job, &why_not) != DTP_OK)
        return dtp_fail(
            err, DTP_ENO,
            "--from-trace: %zu of the job's %d ranks: %s; of a pipeline, give a trace of "
            "each stage",
            f->trace.nranks, f->in.gpus, why_not.msg);
    DTP_TRY(dtp_infer_complete(cli->a, &f->in, &f->job, err));
    f->framework = own->framework ? own->framework : f->in.framework;
    if (!cluster)
        cluster = dtp_cli_cluster_of(cli->a, &f->in);
    if (!cluster)
        return dtp_fail(err, DTP_EUSAGE,
                        "--from-trace: no cluster has the trace's \"%s\": give --gpu CLUSTER",
                        f->in.device);
    DTP_TRY(dtp_cluster_load(cli->a, cluster, &f->cluster, err));
    DTP_TRY(dtp_framework_load(cli->a, f->framework, &f->before, err));
    f->problem = (struct dtp_problem){.model = &f->job.model,
                                      .cluster = &f->cluster,
                                      .framework = &f->before,
                                      .gpus = f->in.gpus,
                                      .seq = f->job.seq,
                                      .global_batch = f->job.plan.global_batch_size,
                                      .attention = -1,
                                      .dtype = f->job.plan.dtype};
    f->problem.memory_limit_bytes = dtp_problem_default_limit(&f->problem);
    enum dtp_reason why = dtp_plan_check(&f->problem, &f->job.plan);
    if (why != DTP_LEGAL)
        return dtp_fail(err, DTP_ENO, "%s cannot run the plan of the trace: %s", f->framework,
                        dtp_reasons[why]);
    return dtp_host_times_of(cli->a, &f->trace, &f->host, err);
}

static enum dtp_status fit_host(struct dtp_cli *cli, struct fit *f, struct dtp_err *err) {
    const struct dtp_launch_times *forward = &f->host.direction[DTP_FORWARD_LAUNCHES],
                                  *backward = &f->host.direction[DTP_BACKWARD_LAUNCHES];
    double ends[DTP_NDIRECTIONS] = {0}; /* embedding and head: each on one of pp ranks */
    count_launches(cli->a, f, DTP_LAYER_DENSE, f->predicted);
    count_launches(cli->a, f, DTP_LAYER_EMBEDDING, ends);
    count_launches(cli->a, f, DTP_LAYER_HEAD, ends);
    double microbatches = dtp_plan_num_microbatches(&f->job.plan);
    f->layers = (double)f->host.nsteps * microbatches * f->job.model.layers / f->job.plan.pp;
    if (!(f->layers > 0) || !(f->predicted[0] > 0) || !(f->predicted[1] > 0) || forward->n == 0)
        return dtp_fail(err, DTP_ENO, "the trace has no steps or no forward launches to fit");
    double passes = (double)f->host.nsteps * microbatches / f->job.plan.pp;
    double more[DTP_NDIRECTIONS]; /* launches in the trace for one of the framework's */
    for (int d = 0; d < DTP_NDIRECTIONS; d++) {
        more[d] = (double)f->host.direction[d].n / (f->layers * f->predicted[d] + passes * ends[d]);
        f->launches[d] = more[d] * f->predicted[d];
    }
    f->after = f->before;
    f->after.host.launch_s = forward->launch_s * more[0];
    if (backward->n > 0)
        f->after.host.backward_launch_factor =
            backward->launch_s * more[1] / f->after.host.launch_s;
    int directions = backward->n > 0 ? 2 : 1;
    f->layer_s = (forward->rest_s + backward->rest_s) / (directions * f->layers);
    bool shards = f->job.plan.zero_stage == 3;
    f->after.host.layer_host_s = shards ? 0 : f->layer_s;
    if (shards)
        f->after.quirks.unshard_host.zero3_host_s = f->layer_s;
    return DTP_OK;
}

static enum dtp_status simulate(struct dtp_arena *a, struct fit *f,
                                const struct dtp_framework *framework, double *out_s,
                                struct dtp_tasks **out, struct dtp_err *err) {
    struct dtp_simulate_options how = {.no_fold = true, .detail = DTP_DETAIL_OP};
    struct dtp_result result;
    f->problem.framework = framework;
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &f->problem);
    DTP_TRY(dtp_tasks_simulate(a, ev, &f->job.plan, &how, &result, out, err));
    dtp_evaluator_destroy(ev);
    *out_s = result.step_s;
    return DTP_OK;
}

static enum dtp_status judge(struct dtp_cli *cli, struct fit *f, struct dtp_err *err) {
    struct dtp_tasks *predicted, *measured = dtp_tasks_of_trace(cli->a, &f->trace, false);
    DTP_TRY(simulate(cli->a, f, &f->before, &f->before_s, &predicted, err));
    DTP_TRY(simulate(cli->a, f, &f->after, &f->after_s, &predicted, err));
    const struct dtp_tasks *const side[2] = {measured, predicted};
    const int step[2] = {-1, -1};
    DTP_TRY(dtp_diff(cli->a, side, step, &f->diff, err));
    f->measured_s =
        f->diff.step_s[0]; /* the last step: the first may have begun before the trace */
    if (!(f->measured_s > 0))
        return dtp_fail(err, DTP_EINPUT, "the last step of the trace has no duration");
    return DTP_OK;
}

static const char *ratios(struct dtp_arena *a, const struct dtp_diff *d) {
    struct dtp_str s = {.a = a};
    for (size_t i = 0; i < d->nkinds; i++) {
        const struct dtp_diff_kind *k = &d->kind[i];
        if (k->sum_s[0] > 0 && k->sum_s[1] > 0)
            dtp_str_printf(&s, "%s%s %.2f", s.n ? ", " : "", k->kind, k->sum_s[0] / k->sum_s[1]);
    }
    return s.at ? s.at : "none";
}

/* The framework file. */
struct stack_file {
    const char *title, *base, *source, *notes;
    const struct dtp_framework *after;
};

/* clang-format off */
#define AT(member) offsetof(struct dtp_framework, member)
static const struct dtp_field host_fields[] = {
    {"launch_s", DTP_FIELD_DOUBLE, AT(host.launch_s), .help = "host time of a launch"},
    {"backward_launch_factor", DTP_FIELD_DOUBLE, AT(host.backward_launch_factor), .help = "that of the backward pass over it"},
    {"layer_host_s", DTP_FIELD_DOUBLE, AT(host.layer_host_s), .help = "host time of a layer beside its launches"},
    {0}};
static const struct dtp_field unshard_fields[] = {
    {"zero3_host_s", DTP_FIELD_DOUBLE, AT(quirks.unshard_host.zero3_host_s), .help = "the same, of a layer of ZeRO-3"},
    {0}};
static const struct dtp_field quirk_fields[] = {
    {"unshard_host", DTP_FIELD_OBJECT, 0, .fields = unshard_fields}, {0}};
static const struct dtp_field after_fields[] = {
    {"host", DTP_FIELD_OBJECT, 0, .fields = host_fields},
    {"quirks", DTP_FIELD_OBJECT, 0, .fields = quirk_fields},
    {0}};
#undef AT
#define AT(member) offsetof(struct stack_file, member)
static const struct dtp_field stack_fields[] = {
    {"name", DTP_FIELD_PUT, 0, .put = dtp_put_constant, .names = (const char *const[]){"from-trace", NULL}},
    {"title", DTP_FIELD_STRING, AT(title), .unset = DTP_UNSET_NULL},
    {"base", DTP_FIELD_STRING, AT(base)},
    {"source", DTP_FIELD_STRING, AT(source)},
    {"notes", DTP_FIELD_STRING, AT(notes)},
    DTP_FIELD_PART_AT(AT(after), after_fields), {0}};
#undef AT
/* clang-format on */
static const struct dtp_form stack_form = {"FRAMEWORK", "What a trace says.", stack_fields};

static void write_stack(FILE *f, const void *what) {
    dtp_form_write(f, 2, &stack_form, what);
}

static enum dtp_status write_fitted(struct dtp_cli *cli, const struct fit *f, const char *path,
                                    struct dtp_err *err) {
    const char *source = dtp_arena_printf(
        cli->a,
        "dtplan calibrate --from-trace: %llu forward and %llu backward launches of %zu ranks "
        "on %s, the rest as %s",
        (unsigned long long)f->host.direction[0].n, (unsigned long long)f->host.direction[1].n,
        f->trace.nranks, f->in.device, f->before.name);
    const char *notes = dtp_arena_printf(
        cli->a,
        "a profiler slows the host; step %.1f ms measured, %.1f ms predicted (%+.1f %%); time per "
        "launch differs by %.0f %% forward and %.0f %% backward over the ranks; kernels, measured "
        "over "
        "predicted: %s",
        f->measured_s / DTP_MILLI, f->after_s / DTP_MILLI, 100 * (f->after_s / f->measured_s - 1),
        100 * f->host.direction[0].spread, 100 * f->host.direction[1].spread,
        ratios(cli->a, &f->diff));
    const struct stack_file file = {f->before.title, f->framework, source, notes, &f->after};
    return dtp_file_write(cli->a, path, write_stack, &file, err);
}

static void print_fit(struct dtp_cli *cli, const struct fit *f) {
    FILE *out = cli->out.file;
    static const char *const words[] = {"forward", "backward"};
    fprintf(out, "%zu ranks on %s, framework %s; model and plan as dtplan infer says\n",
            f->trace.nranks, f->in.device, f->before.name);
    for (int d = 0; d < DTP_NDIRECTIONS; d++) {
        const struct dtp_launch_times *t = &f->host.direction[d];
        fprintf(out,
                "  %-9s %6llu launches, %5.1f us each (ranks differ by %.0f %%); a layer has %.0f, "
                "predicted %.0f\n",
                words[d], (unsigned long long)t->n, t->launch_s / DTP_MICRO, 100 * t->spread,
                f->launches[d], f->predicted[d]);
    }
    fprintf(out, "  %-24s %10.1f us, was %.1f us\n", "launch_s", f->after.host.launch_s / DTP_MICRO,
            f->before.host.launch_s / DTP_MICRO);
    fprintf(out, "  %-24s %10.2f, was %.2f\n", "backward_launch_factor",
            f->after.host.backward_launch_factor, f->before.host.backward_launch_factor);
    fprintf(out, "  %-24s %10.0f us, was %.0f us\n", "layer_host_s",
            f->after.host.layer_host_s / DTP_MICRO, f->before.host.layer_host_s / DTP_MICRO);
    fprintf(out, "  %-24s %10.0f us, was %.0f us\n", "zero3_host_s",
            f->after.quirks.unshard_host.zero3_host_s / DTP_MICRO,
            f->before.quirks.unshard_host.zero3_host_s / DTP_MICRO);
    fprintf(out,
            "  not fitted: optimizer %.2f ms of the host, a collective %.0f us, gap of kernels "
            "%.2f us\n",
            f->host.optimizer_s / DTP_MILLI, f->host.collective_s / DTP_MICRO,
            f->host.gap_s / DTP_MICRO);
    fprintf(
        out, "step: measured %.1f ms, predicted %.1f ms (%+.1f %%), before %.1f ms (%+.1f %%)\n",
        f->measured_s / DTP_MILLI, f->after_s / DTP_MILLI, 100 * (f->after_s / f->measured_s - 1),
        f->before_s / DTP_MILLI, 100 * (f->before_s / f->measured_s - 1));
    fprintf(out, "kernels, measured over predicted: %s\n", ratios(cli->a, &f->diff));
}

/* The trace's model and plan (dtplan infer) say how many launches a layer has in the framework and in
 * the trace; their times (traces/replay/host_times.h) become launch_s, backward_launch_factor and layer_host_s
 * (zero3_host_s of FSDP). Prints the step as measured and as predicted before and after, and kernels as
 * measured over predicted, by kind; writes the file with source and errors. */
static enum dtp_status from_trace(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct fit *f = DTP_NEW(cli->a, struct fit, 1);
    const char *path = own->out;
    if (cli->nargs == 0)
        return dtp_fail(err, DTP_EUSAGE, "--from-trace needs the traces of a job");
    DTP_TRY(prepare(cli, f, err));
    DTP_TRY(fit_host(cli, f, err));
    DTP_TRY(judge(cli, f, err));
    if (!path)
        path = dtp_arena_printf(cli->a, "%s-trace.json", f->before.name);
    DTP_TRY(write_fitted(cli, f, path, err));
    print_fit(cli, f);
    fprintf(cli->out.file, "Wrote %s: --framework %s\n", path, path);
    return DTP_OK;
}

/* ---- the verb ---- */

#define AT(field) offsetof(struct own, field)
static const char *const backends[] = {"cpu", "cuda", NULL};
static const struct dtp_option options[] = {
    {"from", DTP_OPT_FLAG, 0, AT(from), .help = "fit the sweeps in FILE... (JSON or CSV)"},
    {"from-trace", DTP_OPT_FLAG, 0, AT(from_trace),
     .help = "fit a framework file to the traces of a job: host time per launch and per layer"},
    {"gpu", DTP_OPT_STRING, 0, AT(gpu), .value = "NAME",
     .help = "with --from or --backend cuda: GPU file to start from: nominal figures, old "
             "constants; with --from-trace: a cluster of that GPU"},
    {"framework", DTP_OPT_STRING, 0, AT(framework), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_FRAMEWORKS,
     .help =
         "with --from-trace: what to start from (default: what the trace shows); with --backend "
         "cuda: dtplan, the kernels and collectives of our own runtime on all GPUs, in a "
         "minute, as a file of hw/runtime"},
    {"backend", DTP_OPT_STRING, 0, AT(backend), .value = "NAME", .names = backends,
     .help = "without --from: what to measure, cpu or cuda"},
    {"ranks", DTP_OPT_INT, 'n', AT(ranks), .value = "N", .min = 1, .max = 64,
     .help = "largest group of the collectives (default 8, or all GPUs)"},
    {"rounds", DTP_OPT_INT, 0, AT(rounds), .value = "N", .min = 1, .max = 1000,
     .help = "sweeps over all kernels; the least time counts (default 5)"},
    {"largest", DTP_OPT_INT, 0, AT(largest), .value = "N", .min = 64, .max = 4096,
     .help = "largest m, n, k of the grid of matrix products (default 2048)"},
    {"out", DTP_OPT_STRING, 'o', AT(out), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "the file to write: with --from a GPU file (- is standard output), else a cluster "
             "file (default cpu.json)"},
    {0}};

static void defaults(void *own) {
    *(struct own *)own = (struct own){.backend = "cpu", .rounds = 5, .largest = 2048};
}

enum { DEFAULT_RANKS = 8 };

static enum dtp_status from_files(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    bool to_stdout = own->out && !strcmp(own->out, "-");
    struct dtp_calibrate_args args = {.paths = cli->arg,
                                      .npaths = (size_t)cli->nargs,
                                      .gpu = own->gpu,
                                      .out_path = own->out,
                                      .report = to_stdout ? stderr : cli->out.file};
    if (!own->gpu)
        return dtp_fail(err, DTP_EUSAGE, "--gpu NAME is needed: which GPU are the sweeps of?");
    if (!cli->nargs)
        return dtp_fail(err, DTP_EUSAGE, "--from needs at least one FILE");
    return dtp_calibrate_from_files(cli->a, &args, err);
}

static void report(FILE *f, const struct dtp_measured *m, const char *path) {
    fprintf(f, "%d cores, %.1f s; copy %.1f GB/s, one kernel %.2f us beside its work\n", m->ncores,
            m->seconds, m->copy_bytes_per_s / DTP_GIGA, m->gap_s / DTP_MICRO);
    fprintf(f, "collective       ranks   latency   bandwidth   error of the fit\n");
    for (int i = 0; i < m->ncurves; i++) {
        const struct dtp_curve *c = &m->curve[i];
        fprintf(f, "%-16s %5d %6.1f us %6.2f GB/s %8.1f %%\n", dtp_collective_names[c->collective],
                c->gpus, c->a_s / DTP_MICRO,
                c->c_s_per_byte > 0 ? 1 / c->c_s_per_byte / DTP_GIGA : 0.0, 100 * c->mean_error);
    }
    fprintf(f,
            "Not covered: ReLU (taken as GELU), shapes beyond the grid (taken in proportion).\n");
    fprintf(f, "Wrote %s: --cluster %s\n", path, path);
}

static enum dtp_status own_runtime(struct dtp_cli *cli, struct dtp_measure_options *o,
                                   struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *path = own->out;
    struct dtp_measured m;
    DTP_TRY(dtp_own_times_make(cli->a, o, &path, &m, err));
    dtp_own_times_report(cli->out.file, &m, path);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measured m;
    const char *out = own->out ? own->out : "cpu.json";
    bool cuda = !strcmp(own->backend, "cuda");
    if (dtp_name_index(backends, own->backend) < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "backend", own->backend, backends, 2, NULL);
    if (own->from_trace)
        return from_trace(cli, err);
    if (own->from || (own->gpu && !cuda))
        return from_files(cli, err);
    if (cli->nargs > 0)
        return dtp_fail(err, DTP_EUSAGE, "unexpected \"%s\": files are for --from", cli->arg[0]);
    if (own->framework && !cuda)
        return dtp_fail(err, DTP_EUSAGE, "--framework goes with --backend cuda");
    if (own->framework && strcmp(own->framework, "dtplan") != 0)
        return dtp_fail(err, DTP_EUSAGE,
                        "--framework: found \"%s\", expected dtplan with --backend cuda",
                        own->framework);
    if (cuda && !own->framework)
        return calibrate_cuda(cli, own->gpu, own->out, err);
    o.backend = own->backend;
    o.nranks = own->ranks > 0 || cuda ? own->ranks : DEFAULT_RANKS;
    o.rounds = own->rounds;
    o.largest = own->largest;
    if (cli->progress) {
        o.progress = dtp_cli_measuring;
        o.context = stderr;
    }
    if (cuda)
        return own_runtime(cli, &o, err);
    DTP_TRY(dtp_calibration_make(cli->a, &o, out, &m, err));
    report(cli->out.file, &m, out);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_calibrate = {
    .name = "calibrate",
    .summary = "measure this machine, or fit a GPU file to measured kernels",
    .synopsis = "calibrate [--backend cpu|cuda] [--ranks N] [--out FILE] | --from FILE... --gpu "
                "NAME [--out FILE] | --from-trace TRACE... [--framework NAME] [--out FILE]",
    .description =
        "Times the runtime's own kernels (matrix products forward and backward over a grid of "
        "shapes, attention, norm, activation, cross-entropy, optimizer, copies) and collectives "
        "and transfers by size, each alone, never a training step, and writes a cluster file that "
        "--cluster and `dtplan check --calibration` take. The machine should be idle meanwhile. "
        "With --backend cuda it runs dtplan-calibrate-cuda on the first GPU for three to four "
        "minutes, "
        "keeps its sweep and fits the GPU file to it; with --framework dtplan it times the kernels "
        "and collectives of our own runtime instead, which `dtplan check --backend cuda` and "
        "--framework dtplan on GPUs need. With --from it fits the "
        "constants of a GPU file to sweeps of kernels (hw/README.md has the formats) and prints "
        "the errors of rows left out of the fit in turn. With --from-trace it takes host time per "
        "launch "
        "and per layer from the Kineto traces of a job, whose model and plan it infers, writes a "
        "framework file with source and errors, and prints the step as measured and as predicted.",
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .max_args = -1,
    .run = run};
