/* Transfers that share a link slow each other: groups on one NIC, collectives inside actions during reductions; by
 * hand, folded and not, and on random plans against bounds that hold whatever the order. */
#include <CUnit/Basic.h>
#include <math.h>

#include "models/evaluate/evaluate.h"
#include "sim/base/rng.h"
#include "tests/costs_case.h"
#include "tests/near.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_cluster cluster;
static const double nic_bytes_per_s = 10e9;

/* Nodes of so many GPUs that share one NIC of 10 GB/s. */
static void make_cluster(int gpus) {
    struct dtp_err err = {0};
    if (dtp_cluster_load(arena, "dgx-a100-80", &cluster, &err) != DTP_OK)
        CU_FAIL_FATAL("dgx-a100-80");
    cluster.node.gpus = gpus;
    cluster.node.nics = 1;
    cluster.node.nic_bytes_per_s = nic_bytes_per_s;
    cluster.node.nic_efficiency = 1;
    cluster.node.gpu_link_bytes_per_s = 1e12;
    cluster.max_gpus = 0;
    for (int i = 0; i < gpus; i++)
        cluster.node.nic_of_gpu[i] = 0;
}

static double simulated_s(const struct dtp_costs *c, struct dtp_plan plan, const char *order,
                          bool fold) {
    struct dtp_framework framework = {.wire.rank_order = order};
    struct dtp_model model = {0};
    struct dtp_lowered lowered;
    struct dtp_timeline t;
    struct dtp_err err = {0};
    plan.pp = c->pp;
    plan.global_batch_size = c->m * plan.dp;
    struct dtp_schedule s = case_schedule(arena, plan.schedule, c->pp, 1, c->m);
    struct dtp_problem problem = {.model = &model,
                                  .cluster = &cluster,
                                  .framework = &framework,
                                  .gpus = plan.tp * plan.dp * plan.pp};
    struct dtp_lower_input in = {&problem, &plan, c, &s};
    struct dtp_lower_options how = {.fold = fold};
    enum dtp_status status = dtp_lower(arena, &in, &how, &lowered, &err);
    if (status == DTP_OK)
        status = dtp_engine_run(arena, &lowered.platform, &lowered.graph, &t, &err);
    if (status != DTP_OK)
        printf("\n  %s\n", err.msg);
    CU_ASSERT_FATAL(status == DTP_OK);
    return t.makespan_s;
}

static double estimated_s(const struct dtp_costs *c, int kind) {
    struct dtp_schedule s = case_schedule(arena, kind, c->pp, 1, c->m);
    struct dtp_path path;
    dtp_estimate(arena, c, &s, &path);
    return path.step_s;
}

static void set_reduce(struct dtp_costs *c, int n, double bytes) {
    for (int s = 0; s < c->nstages; s++) {
        c->stage[s].nreduce = n;
        c->stage[s].reduce =
            case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, bytes, bytes / nic_bytes_per_s, 0);
    }
}

/* k stages of a node reduce over two nodes at once, each as much as fills the NIC for its time alone: k
 * times as long. */
static void test_groups(void) {
    for (int k = 1; k <= 4; k++)
        for (int fold = 0; fold < 2; fold++) {
            make_cluster(k);
            struct dtp_costs c = case_costs(arena, k, 1, 1, (struct case_times){1e-7, 1e-7, 1e-7});
            struct dtp_plan plan = dtp_plan_default();
            plan.dp = 2;
            set_reduce(&c, 1, nic_bytes_per_s);
            expect_near(estimated_s(&c, DTP_SCHED_1F1B), 1, 1e-5);
            expect_near(simulated_s(&c, plan, "tp-pp-cp-dp", fold), k, 1e-5);
        }
}

/* Two groups, one begins when the other has had the NIC for 1 s: 4 s each alone. Until 4 s stage 1 has a
 * quarter, then half the rate: 3 more seconds take 6, to 10; stage 0 has 1 s left: 11. */
static void test_later_group(void) {
    make_cluster(2);
    struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){1, 0.5, 0.5});
    struct dtp_plan plan = dtp_plan_default();
    plan.dp = 2;
    set_reduce(&c, 1, 4 * nic_bytes_per_s);
    expect_near(estimated_s(&c, DTP_SCHED_1F1B), 8, 1e-9);
    for (int fold = 0; fold < 2; fold++)
        expect_near(simulated_s(&c, plan, "tp-pp-cp-dp", fold), 11, 1e-9);
}

/* tp 2 and dp 2 over four nodes of one GPU. The backward (two parts of 1 s) moves 0.8 of what its NIC
 * can; each of two reductions would fill the NIC for 1 s. The first one overlaps the second part,
 * with half the NIC each: the part takes 1.6 s, the reduction 1.8; then the second: 1 + 1 + 1.8 + 1. */
static void test_inside_actions(void) {
    make_cluster(1);
    struct dtp_plan plan = dtp_plan_default();
    plan.tp = plan.dp = 2;
    for (int fold = 0; fold < 2; fold++) {
        struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
        c.reduce_overlap = true;
        set_reduce(&c, 2, nic_bytes_per_s);
        expect_near(simulated_s(&c, plan, "tp-cp-dp-pp", fold), 4, 1e-9);
        /* an all-gather of two sends half its bytes */
        c.stage[0].i.net_bytes[0] = 2 * 0.8 * nic_bytes_per_s * 2;
        expect_near(simulated_s(&c, plan, "tp-cp-dp-pp", fold), 4.8, 1e-9);
        expect_near(estimated_s(&c, DTP_SCHED_1F1B), 4, 1e-9);
        /* nothing overlaps it: it takes as long as without */
        c.stage[0].reduce.time_s = 0;
        expect_near(simulated_s(&c, plan, "tp-cp-dp-pp", fold), 3, 1e-9);
    }
}

/* Random: never faster than the estimate, never slower than all traffic of a NIC and all compute in
 * series; folded as unfolded. */
static void test_random(void) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct dtp_rng r = dtp_rng_stream(11, seed);
        dtp_arena_reset(arena);
        make_cluster(1 << dtp_rng_below(&r, 3));
        struct dtp_plan plan = dtp_plan_default();
        plan.tp = 2 << dtp_rng_below(&r, 3);
        plan.dp = 2 << dtp_rng_below(&r, 2);
        int pp = 1 + (int)dtp_rng_below(&r, 3), m = 1 + (int)dtp_rng_below(&r, 4);
        struct dtp_costs c = case_costs(arena, pp, 1, m, (struct case_times){1, 1, 1});
        c.reduce_overlap = dtp_rng_below(&r, 2);
        c.reduce_per_microbatch = dtp_rng_below(&r, 2);
        set_reduce(&c, 1 + (int)dtp_rng_below(&r, 3), nic_bytes_per_s * dtp_rng_uniform(&r));
        double bytes = nic_bytes_per_s * dtp_rng_uniform(&r);
        for (int s = 0; s < pp; s++) {
            c.stage[s].f.net_bytes[0] = bytes;
            c.stage[s].i.net_bytes[0] = c.stage[s].w.net_bytes[0] = bytes / 2;
        }
        double estimate_s = estimated_s(&c, DTP_SCHED_1F1B);
        double all_s = simulated_s(&c, plan, "tp-cp-dp-pp", false);
        double folded_s = simulated_s(&c, plan, "tp-cp-dp-pp", true);
        expect_near(folded_s, all_s, 1e-9);
        CU_ASSERT(all_s >= estimate_s * (1 - 1e-9));
        double reductions_s =
            c.stage[0].nreduce * c.stage[0].reduce.time_s * (c.reduce_per_microbatch ? m : 1);
        /* a fair share of a NIC: at worst everything on it waits for everything else */
        CU_ASSERT(all_s <= (estimate_s + pp * reductions_s) * 2 * plan.tp * plan.dp);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"groups on one NIC", test_groups},
                           {"a group that comes later", test_later_group},
                           {"collectives inside actions", test_inside_actions},
                           {"random plans", test_random},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"contention", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
