/* bench_lower.c: speed of the lowering and of the fidelities on gpt175b, one line a case:
 *
 *     NAME VALUE UNIT   details as key=value
 *
 *     bench_lower [--quick] [NAME ...]
 *
 * Processor time of one core, best of the repeats. Lowering and run are given apart for the unfolded
 * cases (all 1,024 ranks of tp 8, pp 16, dp 8; 4,096 with dp 32; m = 192).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "models/evaluate/evaluate.h"
#include "sim/base/units.h"

static struct dtp_model model;
static struct dtp_cluster cluster;
static struct dtp_framework framework;
static struct dtp_arena *program;
static int repeats = 9, nnames;
static char **names;

static bool wanted(const char *name) {
    for (int i = 0; i < nnames; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return nnames == 0;
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + DTP_NANO * (double)t.tv_nsec;
}

static void die_if(enum dtp_status status, const struct dtp_err *err) {
    if (status == DTP_OK)
        return;
    fprintf(stderr, "bench_lower: %s\n", err->msg);
    exit(1);
}

static struct dtp_problem problem_of(int gpus, int batch) {
    struct dtp_problem p = {.model = &model,
                            .cluster = &cluster,
                            .framework = &framework,
                            .gpus = gpus,
                            .seq = 2048,
                            .global_batch = batch,
                            .attention = -1,
                            .dtype = DTP_BF16};
    p.memory_limit_bytes = dtp_problem_default_limit(&p);
    return p;
}

static struct dtp_plan plan_of(int kind, int vpp, int dp, int m) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = 8;
    p.pp = 16;
    p.dp = dp;
    p.vpp = vpp;
    p.schedule = kind;
    p.zero_stage = 1;
    p.sequence_parallel = true;
    p.global_batch_size = dp * m;
    p.dtype = DTP_BF16;
    return p;
}

struct inputs {
    struct dtp_problem problem;
    struct dtp_plan plan;
    struct dtp_costs costs;
    struct dtp_schedule schedule;
};

static void make_inputs(struct dtp_arena *a, int kind, int vpp, int dp, int m, struct inputs *in) {
    struct dtp_err err = {0};
    in->plan = plan_of(kind, vpp, dp, m);
    in->problem = problem_of(8 * 16 * dp, dp * m);
    die_if(dtp_schedule_make(a, kind, 16, vpp, m, &in->schedule, &err), &err);
    dtp_costs(a, dtp_cost_memo_create(a, &in->problem), &in->plan, &in->costs);
}

static void bench_lower(const char *name, int kind, int vpp, int dp, bool fold) {
    if (!wanted(name))
        return;
    struct dtp_arena *a = dtp_arena_create("inputs"), *run = dtp_arena_create("run");
    struct inputs in;
    double lower_s = INFINITY, run_s = INFINITY, step_s = 0;
    uint32_t ntasks = 0, nuses = 0;
    uint64_t nevents = 0;
    make_inputs(a, kind, vpp, dp, 192, &in);
    for (int k = 0; k < repeats; k++) {
        struct dtp_lower_options how = {.fold = fold};
        struct dtp_lowered lowered;
        struct dtp_timeline t;
        struct dtp_err err = {0};
        dtp_arena_reset(run);
        double t0 = cpu_s();
        struct dtp_lower_input what = {&in.problem, &in.plan, &in.costs, &in.schedule};
        die_if(dtp_lower(run, &what, &how, &lowered, &err), &err);
        double t1 = cpu_s();
        die_if(dtp_engine_run(run, &lowered.platform, &lowered.graph, &t, &err), &err);
        double t2 = cpu_s();
        lower_s = t1 - t0 < lower_s ? t1 - t0 : lower_s;
        run_s = t2 - t1 < run_s ? t2 - t1 : run_s;
        step_s = t.makespan_s;
        ntasks = lowered.graph.ntasks;
        nuses = lowered.graph.nuses;
        nevents = t.nevents;
    }
    printf("%s %.6f s   lower_s=%.6f run_s=%.6f tasks=%u uses=%u events=%llu step_s=%.9g\n", name,
           lower_s + run_s, lower_s, run_s, ntasks, nuses, (unsigned long long)nevents, step_s);
    dtp_arena_destroy(a);
    dtp_arena_destroy(run);
}

static void bench_estimate(const char *name, int kind, int vpp) {
    if (!wanted(name))
        return;
    struct dtp_arena *a = dtp_arena_create("inputs"), *run = dtp_arena_create("run");
    struct inputs in;
    struct dtp_path path = {0};
    double best_s = INFINITY;
    make_inputs(a, kind, vpp, 8, 192, &in);
    for (int k = 0; k < 20 * repeats; k++) {
        dtp_arena_reset(run);
        double t0 = cpu_s();
        dtp_estimate(run, &in.costs, &in.schedule, &path);
        double t = cpu_s() - t0;
        best_s = t < best_s ? t : best_s;
    }
    double actions = in.schedule.begin[16];
    printf("%s %.1f Mactions/s   actions=%.0f us=%.1f step_s=%.9g\n", name,
           actions / best_s / DTP_MEGA, actions, best_s / DTP_MICRO, path.step_s);
    dtp_arena_destroy(a);
    dtp_arena_destroy(run);
}

/* Plans as the search meets them: the fields that vary fastest change at each call. */
static void bench_bound(void) {
    if (!wanted("bound"))
        return;
    struct dtp_arena *a = dtp_arena_create("bound");
    struct dtp_problem problem = problem_of(1024, 1536);
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &problem);
    double best_s = INFINITY, sum_s = 0;
    int n = 0;
    for (int k = 0; k < repeats; k++) {
        double t0 = cpu_s();
        n = 0;
        for (int pass = 0; pass < 20; pass++)
            for (int pp = 1; pp <= 32; pp *= 2)
                for (int mb = 1; mb <= 4; mb *= 2)
                    for (int zero = 0; zero < 2; zero++)
                        for (int recompute = 0; recompute < 3; recompute++) {
                            struct dtp_plan p = plan_of(DTP_SCHED_1F1B, 1, 128 / pp, 12 * pp);
                            p.pp = pp;
                            p.microbatch_size = mb;
                            p.zero_stage = zero;
                            p.recompute = (enum dtp_recompute)recompute;
                            sum_s += dtp_evaluate_bound(ev, &p);
                            n++;
                        }
        double t = cpu_s() - t0;
        best_s = t < best_s ? t : best_s;
    }
    printf("bound %.2f Mplans/s   plans=%d mean_s=%.6g\n", n / best_s / DTP_MEGA, n,
           sum_s / repeats / n);
    dtp_evaluator_destroy(ev);
    dtp_arena_destroy(a);
}

int main(int argc, char **argv) {
    struct dtp_err err = {0};
    nnames = argc - 1;
    names = argv + 1;
    if (nnames > 0 && strcmp(names[0], "--quick") == 0) {
        repeats = 2;
        nnames--;
        names++;
    }
    program = dtp_arena_create("program");
    die_if(dtp_model_load(program, "gpt175b", &model, &err), &err);
    die_if(dtp_cluster_load(program, "dgx-a100-80", &cluster, &err), &err);
    die_if(dtp_framework_load(program, "megatron-core", &framework, &err), &err);
    bench_lower("folded_1f1b", DTP_SCHED_1F1B, 1, 8, true);
    bench_lower("folded_interleaved_v3", DTP_SCHED_INTERLEAVED, 3, 8, true);
    bench_lower("unfolded_1024_1f1b", DTP_SCHED_1F1B, 1, 8, false);
    bench_lower("unfolded_1024_interleaved_v3", DTP_SCHED_INTERLEAVED, 3, 8, false);
    bench_lower("unfolded_4096_1f1b", DTP_SCHED_1F1B, 1, 32, false);
    bench_estimate("estimate_gpipe", DTP_SCHED_GPIPE, 1);
    bench_estimate("estimate_1f1b", DTP_SCHED_1F1B, 1);
    bench_estimate("estimate_interleaved_v3", DTP_SCHED_INTERLEAVED, 3);
    bench_bound();
    dtp_arena_destroy(program);
    return 0;
}
