/* The lowering is tested: tags, counts of tasks, weights of links, exchanges that share a NIC, slow-down during a
 * reduction, step flows, errors. Times are computed by hand. */
#include <CUnit/Basic.h>
#include <math.h>

#include "models/evaluate/evaluate.h"
#include "models/lower/lower_layout.h"
#include "tests/costs_case.h"
#include "tests/near.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_cluster cluster;
static const double tolerance = 1e-9;
static const double nic_bytes_per_s = 10e9, nvlink_bytes_per_s = 100e9;

static void near(double got, double want) {
    expect_near(got, want, tolerance);
}

/* Nodes of `gpus` GPUs with `nics` NICs of 10 GB/s behind a switch that never binds. */
static void make_cluster(int gpus, int nics) {
    struct dtp_err err = {0};
    if (dtp_cluster_load(arena, "dgx-a100-80", &cluster, &err) != DTP_OK)
        CU_FAIL_FATAL("dgx-a100-80");
    cluster.node.gpus = gpus;
    cluster.node.nics = nics;
    cluster.node.nic_bytes_per_s = nic_bytes_per_s;
    cluster.node.nic_efficiency = 1;
    cluster.node.gpu_link_bytes_per_s = nvlink_bytes_per_s;
    for (int i = 0; i < gpus; i++)
        cluster.node.nic_of_gpu[i] = i * nics / gpus;
}

struct run {
    struct dtp_lowered lowered;
    struct dtp_timeline t;
    struct dtp_path path;
};

static struct run run_with(const struct dtp_costs *c, int kind, struct dtp_plan plan,
                           struct dtp_lower_options how) {
    static struct dtp_framework framework;
    static struct dtp_model model;
    struct run r;
    struct dtp_err err = {0};
    framework.wire.rank_order = "tp-cp-dp-pp";
    plan.schedule = kind;
    plan.pp = c->pp;
    plan.vpp = c->vpp;
    plan.global_batch_size = c->m * plan.dp;
    struct dtp_schedule s = case_schedule(arena, kind, c->pp, c->vpp, c->m);
    struct dtp_problem problem = {.model = &model,
                                  .cluster = &cluster,
                                  .framework = &framework,
                                  .gpus = plan.tp * plan.cp * plan.dp * plan.pp};
    struct dtp_lower_input in = {&problem, &plan, c, &s};
    enum dtp_status status = dtp_lower(arena, &in, &how, &r.lowered, &err);
    if (status == DTP_OK)
        status = dtp_engine_run(arena, &r.lowered.platform, &r.lowered.graph, &r.t, &err);
    if (status != DTP_OK)
        printf("\n  %s\n", err.msg);
    CU_ASSERT_FATAL(status == DTP_OK);
    dtp_lowered_path(arena, &r.lowered, c, &r.t, &r.path);
    return r;
}

static struct dtp_plan plan_of(int tp, int dp) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = tp;
    p.dp = dp;
    return p;
}

static int count_kind(const struct dtp_lowered *lo, enum dtp_task_kind kind) {
    int n = 0;
    for (uint32_t x = 0; x < lo->graph.ntasks; x++)
        n += dtp_tag_unpack(lo->graph.tag[x]).kind == kind;
    return n;
}

/* ---- */

static void test_tags(void) {
    struct dtp_task_tag most = {DTP_T_OP, (1 << 20) - 1, (1 << 12) - 1, (1 << 19) - 1, 255};
    struct dtp_task_tag some = {DTP_T_SEND_B, 70001, 17, 300, 2};
    struct dtp_task_tag cases[] = {most, some, {0}};
    for (int i = 0; i < 3; i++) {
        struct dtp_task_tag t = dtp_tag_unpack(dtp_tag_pack(cases[i]));
        CU_ASSERT(t.kind == cases[i].kind && t.rank == cases[i].rank);
        CU_ASSERT(t.stage == cases[i].stage && t.microbatch == cases[i].microbatch);
        CU_ASSERT(t.part == cases[i].part);
    }
    for (int k = 0; k < DTP_NTASKS; k++)
        CU_ASSERT(dtp_task_names[k] != NULL);
    CU_ASSERT(dtp_task_names[DTP_NTASKS] == NULL);
}

/* p = 4, m = 8, d = 2: 2 m actions a rank, 2 m (p - 1) transfers, one reduction a stage and group. */
static void test_counts(void) {
    make_cluster(8, 8);
    struct dtp_costs c = case_costs(arena, 4, 1, 8, (struct case_times){1, 0.5, 0.5});
    case_sends(&c, 1e9, 0.25, 0.05);
    for (int s = 0; s < 4; s++) {
        c.stage[s].nreduce = 3;
        c.stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0.1);
    }
    for (int fold = 0; fold < 2; fold++) {
        int replicas = fold ? 1 : 4, groups = fold ? 1 : 2;
        struct run r =
            run_with(&c, DTP_SCHED_1F1B, plan_of(2, 2), (struct dtp_lower_options){.fold = fold});
        CU_ASSERT(r.lowered.nranks == 4 * replicas && r.lowered.folded == fold);
        CU_ASSERT(count_kind(&r.lowered, DTP_T_F) == 8 * 4 * replicas);
        CU_ASSERT(count_kind(&r.lowered, DTP_T_B) == 8 * 4 * replicas);
        CU_ASSERT(count_kind(&r.lowered, DTP_T_SEND_F) == 8 * 3 * replicas);
        CU_ASSERT(count_kind(&r.lowered, DTP_T_SEND_B) == 8 * 3 * replicas);
        CU_ASSERT(count_kind(&r.lowered, DTP_T_REDUCE) == 3 * 4 * groups);
        CU_ASSERT(r.path.rank[0].busy_s > 0);
        near(r.path.rank[0].busy_s, 8 * 2);
        near(r.path.rank[0].reduced_s - r.path.rank[0].last_s, 1.5);
    }
}

/* GPipe, p = 2, dp = 2, nodes of two GPUs and one NIC: both replicas' messages leave at once through the
 * NIC. Their cost says so already (siblings in lockstep), and the flows take just that. */
static void test_siblings(void) {
    make_cluster(2, 1);
    struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){1, 0.5, 0.5});
    case_sends(&c, 5e9, 1, 0); /* 2 x 5 GB over 10 GB/s */
    for (int fold = 0; fold < 2; fold++) {
        struct run r =
            run_with(&c, DTP_SCHED_GPIPE, plan_of(1, 2), (struct dtp_lower_options){.fold = fold});
        near(r.t.makespan_s, 1 + 1 + 2 + 1 + 1);
    }
    /* a cost that asks for more than the NIC has is believed: weights give way, not the cost */
    case_sends(&c, 5e9, 0.25, 0);
    struct run r = run_with(&c, DTP_SCHED_GPIPE, plan_of(1, 2), (struct dtp_lower_options){0});
    near(r.t.makespan_s, 1 + 0.25 + 2 + 0.25 + 1);
}

/* p = 3 on nodes of one GPU, asynchronous 1F1B with F = B = 1 and messages of 10 GB (1 s alone): rank 1
 * sends an F up and a B down from the one NIC at the same time, which contend: later than the
 * estimate; with half the message and the same time (cap 5 GB/s) both fit: equal to it. */
static void test_shared_nic(void) {
    make_cluster(1, 1);
    for (int half = 0; half < 2; half++) {
        struct dtp_costs c = case_costs(arena, 3, 1, 6, (struct case_times){1, 0.5, 0.5});
        struct dtp_schedule s = case_schedule(arena, DTP_SCHED_1F1B, 3, 1, 6);
        struct dtp_path estimate;
        /* F's of the middle rank leave at the same time as its B's: 2 s of transfer, F 1 s */
        case_sends(&c, half ? 5e9 : 10e9, 1, 0);
        c.stage[1].send_f.time_s = 1.5;
        c.stage[1].send_f.bytes = half ? 7.5e9 : 15e9;
        dtp_estimate(arena, &c, &s, &estimate);
        struct run r =
            run_with(&c, DTP_SCHED_1F1B, plan_of(1, 1), (struct dtp_lower_options){.fold = true});
        if (half)
            near(r.t.makespan_s, estimate.step_s);
        else
            CU_ASSERT(r.t.makespan_s > estimate.step_s + 0.1);
    }
}

/* One stage, d = 2, m = 1, F = 1, B = 2 in two parts; a reduction of 0.5 s during the second takes half
 * of the device: that second part takes 0.5 s for 0.25 s of work, then 0.75 s: ends 0.25 s later;
 * the last unit follows: 1 + 1 + 1.25 + 0.5. Without overlap nothing slows: 3 + 1. */
static void test_slow_down(void) {
    make_cluster(8, 8);
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.stage[0].nreduce = 2;
    c.stage[0].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0);
    c.stage[0].reduce.device_share = 0.5;
    for (int fold = 0; fold < 2; fold++) {
        struct dtp_lower_options how = {.fold = fold};
        c.reduce_overlap = true;
        struct run r = run_with(&c, DTP_SCHED_1F1B, plan_of(1, 2), how);
        near(r.t.makespan_s, 1 + 1 + 1.25 + 0.5);
        near(r.path.rank[0].busy_s, 3.25);
        c.reduce_overlap = false;
        near(run_with(&c, DTP_SCHED_1F1B, plan_of(1, 2), how).t.makespan_s, 4);
    }
}

/* A ring all-reduce of 4 members is 2 x 3 repeats of 4 flows with a barrier after each and one before:
 * 6 x (4 + 1) + 1 tasks, and takes just its cost. */
static void test_steps(void) {
    make_cluster(1, 1);
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.stage[0].nreduce = 1;
    c.stage[0].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0.1);
    for (int fold = 0; fold < 2; fold++) {
        struct run r =
            run_with(&c, DTP_SCHED_1F1B, plan_of(1, 4),
                     (struct dtp_lower_options){.fold = fold, .detail = DTP_DETAIL_STEP});
        CU_ASSERT(count_kind(&r.lowered, DTP_T_REDUCE) == 6 * (4 + 1) + 1);
        near(r.t.makespan_s, 3.5);
    }
}

/* Folded, the flows of the representative carry the weights of their siblings. tp = 2, dp = 2, pp = 2 on
 * nodes of 2 GPUs with one NIC: unfolded, transfers use all 8 NIC directions, and both rings of each
 * stage its 4; folded, only the 4 directions of the representatives' nodes are there, with the
 * weights of both rings. Links that only one stage's rings use are pruned: without transfers, all. */
static void test_weights(void) {
    make_cluster(2, 1);
    for (int sends = 0; sends < 2; sends++) {
        struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){1, 1, 1});
        if (sends)
            case_sends(&c, 1e9, 1, 0);
        for (int s = 0; s < 2; s++) {
            c.stage[s].nreduce = 1;
            c.stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 10, 0);
        }
        double sum[2] = {0};
        for (int fold = 0; fold < 2; fold++) {
            struct run r = run_with(&c, DTP_SCHED_1F1B, plan_of(2, 2),
                                    (struct dtp_lower_options){.fold = fold});
            const struct dtp_graph *g = &r.lowered.graph;
            for (uint32_t x = 0; x < g->ntasks; x++)
                for (uint32_t k = g->use_begin[x]; k < g->use_end[x]; k++)
                    if (dtp_tag_unpack(g->tag[x]).kind == DTP_T_REDUCE)
                        sum[fold] += g->use[k].weight;
        }
        CU_ASSERT(sends ? sum[0] > 0 : sum[0] == 0);
        CU_ASSERT(fabs(sum[0] - 2 * sum[1]) <= tolerance);
    }
}

/* A user's order that no lowering can run names the cycle. */
static void test_cycle(void) {
    make_cluster(8, 8);
    struct dtp_framework framework = {.wire.rank_order = "tp-cp-dp-pp"};
    struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){1, 1, 1});
    struct dtp_plan plan = dtp_plan_default();
    struct dtp_problem problem = {.cluster = &cluster, .framework = &framework, .gpus = 2};
    struct dtp_schedule s;
    struct dtp_err err = {0};
    struct dtp_lowered lowered;
    plan.pp = 2;
    CU_ASSERT_FATAL(dtp_schedule_parse(arena, "test", "0: 0B0 0F0\n1: 0F0 0B0\n", 1, &s, &err) ==
                    DTP_OK);
    struct dtp_lower_input in = {&problem, &plan, &c, &s};
    struct dtp_lower_options how = {.fold = true};
    CU_ASSERT(dtp_lower(arena, &in, &how, &lowered, &err) == DTP_EINPUT);
}

/* Two stages, four replicas, three microbatches: a replica has 2 x 6 actions, 2 x 6 places of transfers and 2 x 3
 * tasks at the ends of a step; a reduction a stage, which by steps is 6 x (4 + 1) + 1 as above. What is too large for
 * the memory that there is names its size before anything of it is made. */
static void test_room(void) {
    make_cluster(1, 1);
    struct dtp_framework framework = {.wire.rank_order = "tp-cp-dp-pp"};
    struct dtp_costs c = case_costs(arena, 2, 1, 3, (struct case_times){1, 1, 1});
    for (int s = 0; s < 2; s++) {
        c.stage[s].nreduce = 1;
        c.stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0.1);
    }
    struct dtp_plan plan = plan_of(1, 4);
    plan.pp = 2;
    struct dtp_problem problem = {.cluster = &cluster, .framework = &framework, .gpus = 8};
    struct dtp_schedule s = case_schedule(arena, DTP_SCHED_1F1B, 2, 1, 3);
    struct dtp_lower_input in = {&problem, &plan, &c, &s};
    for (int fold = 0; fold < 2; fold++)
        for (int steps = 0; steps < 2; steps++) {
            int replicas = fold ? 1 : 4;
            struct dtp_lowered lowered;
            struct dtp_err err = {0};
            struct dtp_lower_options how = {.fold = fold,
                                            .detail = steps ? DTP_DETAIL_STEP : DTP_DETAIL_ACTION,
                                            .most_bytes = 1 << 20};
            CU_ASSERT(dtp_lower(arena, &in, &how, &lowered, &err) == DTP_OK);
            int ntasks = (int)lowered.graph.ntasks, most = 30 * replicas + 2 * (steps ? 31 : 1);
            CU_ASSERT(ntasks ==
                      most - (12 + 4) * replicas); /* nothing is sent; only the optimizer */
            how.most_bytes = 2048;
            CU_ASSERT(dtp_lower(arena, &in, &how, &lowered, &err) == DTP_EUNSUPPORTED);
            CU_ASSERT(lowered.graph.ntasks == 0 && strstr(err.msg, "of memory, there are"));
            const char *begin = dtp_arena_printf(arena, "%d tasks of %d ranks", most, 2 * replicas);
            CU_ASSERT(strncmp(err.msg, begin, strlen(begin)) == 0);
            CU_ASSERT(!fold == !!strstr(err.msg, "leave --no-fold out"));
        }
}

/* Units lie over the parts of an action without a gap or a part of two: 2 units over 6 parts are 0-2 and 3-5. */
static void test_parts(void) {
    CU_ASSERT(dtp_part_first(1, 2, 6) == 3 && dtp_part_last(0, 2, 6) == 2);
    for (int units = 1; units <= 9; units++)
        for (int parts = units; parts <= 24; parts++) {
            CU_ASSERT(dtp_part_first(0, units, parts) == 0);
            CU_ASSERT(dtp_part_last(units - 1, units, parts) == parts - 1);
            for (int k = 0; k < units; k++) {
                CU_ASSERT(dtp_part_first(k, units, parts) <= dtp_part_last(k, units, parts));
                CU_ASSERT(dtp_part_first(k + 1, units, parts) ==
                          dtp_part_last(k, units, parts) + 1);
            }
        }
}

int main(void) {
    CU_TestInfo tests[] = {{"tags", test_tags},
                           {"parts of actions", test_parts},
                           {"counts of tasks", test_counts},
                           {"siblings share a NIC", test_siblings},
                           {"transfers of one rank share its NIC", test_shared_nic},
                           {"compute slows beside a reduction", test_slow_down},
                           {"steps of a collective", test_steps},
                           {"folded weights", test_weights},
                           {"a cycle is an error", test_cycle},
                           {"a graph too large for the memory", test_room},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"lower", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
