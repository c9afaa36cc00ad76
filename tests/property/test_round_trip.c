/* Simulate, write, read back, replay: the same step to 1e-9, for random plans of several models,
 * frameworks and clusters, folded and not, at both details; and a network asked of the timeline against
 * the same network simulated. The seed of a failing case is printed. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "models/schedule/schedule.h"
#include "planner/setup.h"
#include "sim/base/rng.h"
#include "tests/suites.h"
#include "tests/tasks_case.h"
#include "traces/tasks/tasks_simulated.h"

static const char *const models[] = {"gpt3-125m", "llama2-7b", "mixtral-8x7b", "gpt-check"};
static const char *const frameworks[] = {"megatron-core", "megatron-deepspeed", "torchtitan",
                                         "nanotron"};
static const char *const clusters[] = {"dgx-a100-80", "dgx-h100"};
static const char *const ends[] = {"json", "json.gz"};

static char folder[] = "/tmp/dtp_round_XXXXXX";

static int below(struct dtp_rng *r, int n) {
    return (int)dtp_rng_below(r, (uint64_t)n);
}

static struct dtp_plan random_plan(struct dtp_rng *r) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = 1 << below(r, 3);
    p.pp = 1 << below(r, 3);
    p.dp = 1 << below(r, 3);
    p.cp = below(r, 4) == 0 ? 2 : 1;
    p.schedule = below(r, DTP_NSCHEDULES);
    p.vpp = dtp_schedule_kinds[p.schedule].chunked ? 2 : 1;
    if (p.pp == 1) {
        p.schedule = DTP_SCHED_1F1B;
        p.vpp = 1;
    }
    p.zero_stage = below(r, 4);
    p.sequence_parallel = p.tp > 1 && below(r, 2);
    p.recompute = (enum dtp_recompute)below(r, 3);
    p.recompute_modules = p.recompute == DTP_RECOMPUTE_SELECTIVE ? below(r, 1 << DTP_NMODULES) : 0;
    p.microbatch_size = 1 << below(r, 2);
    p.global_batch_size = p.microbatch_size * p.dp * (p.pp * (1 + below(r, 3)));
    return p;
}

/* False: the framework refuses the plan. */
static bool check_case(struct dtp_arena *a, uint64_t seed) {
    struct dtp_rng r = dtp_rng_stream(41, seed);
    struct dtp_plan plan = random_plan(&r);
    struct dtp_ask ask = {.model = models[below(&r, 4)],
                          .framework = frameworks[below(&r, 4)],
                          .cluster = clusters[below(&r, 2)],
                          .gpus = plan.tp * plan.pp * plan.dp * plan.cp,
                          .batch = plan.global_batch_size,
                          .seq = 512,
                          .dtype = -1,
                          .attention = -1};
    struct dtp_setup *setup = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    if (dtp_setup_init(a, &ask, setup, &err) != DTP_OK) {
        printf("\n  seed %llu: %s\n", (unsigned long long)seed, err.msg);
        CU_FAIL("setup");
        return false;
    }
    plan.dtype = setup->problem.dtype;
    if (dtp_plan_check(&setup->problem, &plan) != DTP_LEGAL)
        return false;
    struct dtp_simulate_options how = {.no_fold = below(&r, 2),
                                       .detail = below(&r, 2) ? DTP_DETAIL_OP : DTP_DETAIL_ACTION};
    struct dtp_result result;
    struct dtp_tasks *tasks;
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &setup->problem);
    CU_ASSERT_FATAL(dtp_tasks_simulate(a, ev, &plan, &how, &result, &tasks, &err) == DTP_OK);
    dtp_evaluator_destroy(ev);
    const char *path = dtp_arena_printf(a, "%s/t.%s", folder, ends[below(&r, 2)]);
    double back_s = case_replayed_s(a, tasks, path, &DTP_REPLAY_AS_MEASURED);
    bool same = fabs(back_s - result.step_s) <= 1e-9 * result.step_s;
    if (!same)
        printf("\n  seed %llu: %.17g simulated, %.17g read back\n", (unsigned long long)seed,
               result.step_s, back_s);
    CU_ASSERT(same);
    remove(path);
    return true;
}

/* Draws cases until so many are legal. */
static void check_legal(bool (*check)(struct dtp_arena *a, uint64_t seed), int wanted) {
    struct dtp_arena *a = dtp_arena_create("case");
    enum { MOST = 4000 };
    int legal = 0;
    for (uint64_t seed = 0; legal < wanted && seed < MOST; seed++) {
        legal += check(a, seed);
        dtp_arena_reset(a);
    }
    CU_ASSERT(legal == wanted);
    dtp_arena_destroy(a);
}

static void test_round_trip(void) {
    check_legal(check_case, 40);
}

/* Every transfer inside a node takes half as long: links, and the measured curves. */
static void twice_as_fast(struct dtp_cluster *c) {
    c->node.gpu_link_bytes_per_s *= 2;
    c->node.gpu_link_latency_s /= 2;
    c->node.p2p_intra_latency_s /= 2;
    for (int i = 0; i < c->ncurves; i++) {
        c->curve[i].a_s /= 2;
        c->curve[i].b_s_per_sqrt_byte /= 2;
        c->curve[i].c_s_per_byte /= 2;
        for (int k = 0; k < c->curve[i].nterms; k++)
            c->curve[i].term[k].s_per_byte /= 2;
    }
}

/* A network twice as wide with half the latency, asked of the timeline and simulated: a pipeline, whose
 * transfers are alone on their links. */
static bool check_network(struct dtp_arena *a, uint64_t seed) {
    struct dtp_rng r = dtp_rng_stream(43, seed);
    struct dtp_plan plan = random_plan(&r);
    plan.tp = plan.cp = plan.dp = 1;
    plan.sequence_parallel = false;
    plan.zero_stage = 0;
    plan.global_batch_size = plan.microbatch_size * plan.pp * (1 + below(&r, 3));
    struct dtp_ask ask = {.model = models[below(&r, 2)],
                          .framework = frameworks[below(&r, 4)],
                          .cluster = clusters[below(&r, 2)],
                          .gpus = plan.pp,
                          .batch = plan.global_batch_size,
                          .seq = 512,
                          .dtype = -1,
                          .attention = -1};
    struct dtp_setup *setup = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_setup_init(a, &ask, setup, &err) == DTP_OK);
    plan.dtype = setup->problem.dtype;
    if (plan.pp == 1 || dtp_plan_check(&setup->problem, &plan) != DTP_LEGAL)
        return false;
    struct dtp_simulate_options how = {.no_fold = true, .detail = DTP_DETAIL_ACTION};
    struct dtp_result was, is;
    struct dtp_tasks *tasks, *unused;
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &setup->problem);
    CU_ASSERT_FATAL(dtp_tasks_simulate(a, ev, &plan, &how, &was, &tasks, &err) == DTP_OK);
    dtp_evaluator_destroy(ev);
    twice_as_fast(&setup->cluster);
    ev = dtp_evaluator_create(a, &setup->problem);
    CU_ASSERT_FATAL(dtp_tasks_simulate(a, ev, &plan, &how, &is, &unused, &err) == DTP_OK);
    dtp_evaluator_destroy(ev);
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    o.network_bandwidth = 2;
    o.network_latency = 0.5;
    const char *path = dtp_arena_printf(a, "%s/n.json", folder);
    double asked_s = case_replayed_s(a, tasks, path, &o);
    remove(path);
    bool same = fabs(asked_s - is.step_s) <= 1e-9 * is.step_s;
    if (!same)
        printf("\n  seed %llu: %s on %s, pp %d: %.17g asked, %.17g simulated, was %.17g\n",
               (unsigned long long)seed, ask.framework, ask.cluster, plan.pp, asked_s, is.step_s,
               was.step_s);
    CU_ASSERT(same);
    CU_ASSERT(is.step_s < was.step_s);
    return true;
}

static void test_network(void) {
    check_legal(check_network, 12);
}

static int remove_folder(void) {
    return rmdir(folder);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"round trip", test_round_trip}, {"another network", test_network}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"round trip", NULL, remove_folder, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    if (!mkdtemp(folder))
        return 1;
    int status = run_suites(suites);
    return status;
}
