#include "planner/cli/calibrate_trace.h"

#include <math.h>
#include <string.h>

#include "planner/cli/verb_infer.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/diff.h"
#include "traces/replay/host_times.h"
#include "traces/tasks/tasks_simulated.h"

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
    double layer_s;                                               /* beside launches, a layer */
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

static enum dtp_status prepare(struct dtp_cli *cli, const struct dtp_calibrate_trace *args,
                               struct fit *f, struct dtp_err *err) {
    const char *cluster = args->cluster;
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
    f->framework = args->framework ? args->framework : f->in.framework;
    if (!cluster)
        cluster = dtp_cli_cluster_of(cli->a, f->in.device, f->in.gpus);
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
        f->diff.step_s[0]; /* of the last step: the first may have begun before the trace */
    if (!(f->measured_s > 0))
        return dtp_fail(err, DTP_EINPUT, "the last step of the trace has no duration");
    return DTP_OK;
}

/* ---- output ---- */

static const char *ratios(struct dtp_arena *a, const struct dtp_diff *d) {
    struct dtp_str s = {.a = a};
    for (size_t i = 0; i < d->nkinds; i++) {
        const struct dtp_diff_kind *k = &d->kind[i];
        if (k->sum_s[0] > 0 && k->sum_s[1] > 0)
            dtp_str_printf(&s, "%s%s %.2f", s.n ? ", " : "", k->kind, k->sum_s[0] / k->sum_s[1]);
    }
    return s.at ? s.at : "none";
}

static enum dtp_status write_file(struct dtp_cli *cli, const struct fit *f, const char *path,
                                  struct dtp_err *err) {
    struct dtp_file_out file;
    struct dtp_json_out w;
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
    DTP_TRY(dtp_file_out_open(cli->a, path, &file, err));
    dtp_json_begin(&w, file.f, 2);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "name", "from-trace");
    dtp_json_kv_string(&w, "title", f->before.title);
    dtp_json_kv_string(&w, "base", f->framework);
    dtp_json_kv_string(&w, "source", source);
    dtp_json_kv_string(&w, "notes", notes);
    dtp_json_put_key(&w, "host");
    dtp_json_object(&w);
    dtp_json_kv_double(&w, "launch_s", f->after.host.launch_s);
    dtp_json_kv_double(&w, "backward_launch_factor", f->after.host.backward_launch_factor);
    dtp_json_kv_double(&w, "layer_host_s", f->after.host.layer_host_s);
    dtp_json_end(&w);
    dtp_json_put_key(&w, "quirks");
    dtp_json_object(&w);
    dtp_json_put_key(&w, "unshard_host");
    dtp_json_object(&w);
    dtp_json_kv_double(&w, "zero3_host_s", f->after.quirks.unshard_host.zero3_host_s);
    dtp_json_end(&w);
    dtp_json_end(&w);
    dtp_json_end(&w);
    return dtp_file_out_commit(&file, err);
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

enum dtp_status dtp_cli_calibrate_trace(struct dtp_cli *cli, const struct dtp_calibrate_trace *args,
                                        struct dtp_err *err) {
    struct fit *f = DTP_NEW(cli->a, struct fit, 1);
    const char *path = args->out;
    if (cli->nargs == 0)
        return dtp_fail(err, DTP_EUSAGE, "--from-trace needs the traces of a job");
    DTP_TRY(prepare(cli, args, f, err));
    DTP_TRY(fit_host(cli, f, err));
    DTP_TRY(judge(cli, f, err));
    if (!path)
        path = dtp_arena_printf(cli->a, "%s-trace.json", f->before.name);
    DTP_TRY(write_file(cli, f, path, err));
    print_fit(cli, f);
    fprintf(cli->out.file, "Wrote %s: --framework %s\n", path, path);
    return DTP_OK;
}
