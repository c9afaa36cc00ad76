#include "sim/engine.h"
#include "tests/arena_case.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <string.h>

static struct dtp_graph graph;
static struct dtp_err err;

static void fresh(void) {
    dtp_arena_reset(arena);
    dtp_graph_init(&graph, arena);
    memset(&err, 0, sizeof err);
}

static dtp_id add(double work, uint64_t tag) {
    return dtp_graph_add(
        &graph,
        &(struct dtp_task){.work = work, .device = DTP_NONE, .stream = DTP_NONE, .tag = tag});
}

static dtp_id add_uses(const struct dtp_use *uses, uint32_t n, double cap) {
    return dtp_graph_add(&graph, &(struct dtp_task){.work = 1,
                                                    .rate_cap = cap,
                                                    .uses = uses,
                                                    .nuses = n,
                                                    .device = DTP_NONE,
                                                    .stream = DTP_NONE});
}

static void test_successors_are_grouped_by_task_in_the_order_of_insertion(void) {
    fresh();
    dtp_id a = add(1, 0), b = add(1, 0), c = add(1, 0), d = add(1, 0);
    dtp_graph_dep(&graph, b, d);
    dtp_graph_dep(&graph, a, d);
    dtp_graph_dep(&graph, a, b);
    dtp_graph_dep(&graph, a, c);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    const uint32_t begin[] = {0, 3, 4, 4, 4}, npred[] = {0, 1, 1, 2};
    const dtp_id succ[] = {d, b, c, d};
    CU_ASSERT_EQUAL(memcmp(graph.succ_begin, begin, sizeof begin), 0);
    CU_ASSERT_EQUAL(memcmp(graph.succ, succ, sizeof succ), 0);
    CU_ASSERT_EQUAL(memcmp(graph.npred, npred, sizeof npred), 0);
    CU_ASSERT_PTR_NULL(graph.order); /* ids already are a topological order */
}

static void test_an_order_is_found_when_ids_are_none(void) {
    fresh();
    dtp_id a = add(1, 0), b = add(1, 0), c = add(1, 0);
    dtp_graph_dep(&graph, c, a);
    dtp_graph_dep(&graph, a, b);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    const dtp_id order[] = {c, a, b};
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph.order);
    CU_ASSERT_EQUAL(memcmp(graph.order, order, sizeof order), 0);
}

static void test_tasks_of_a_stream_follow_one_another(void) {
    fresh();
    dtp_id s = dtp_graph_stream(&graph), other = dtp_graph_stream(&graph), x[3];
    for (int i = 0; i < 3; i++) {
        x[i] =
            dtp_graph_add(&graph, &(struct dtp_task){.work = 1, .device = DTP_NONE, .stream = s});
        dtp_graph_add(&graph, &(struct dtp_task){.work = 1, .device = DTP_NONE, .stream = other});
    }
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL(graph.ndeps, 4);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(graph.succ_begin[x[i] + 1] - graph.succ_begin[x[i]], 1);
        CU_ASSERT_EQUAL(graph.succ[graph.succ_begin[x[i]]], x[i + 1]);
    }
    CU_ASSERT_EQUAL(graph.npred[x[0]], 0);
}

/* {3: 1, 3: 2, load 3: 0.5} -> {3: 3, load 3: 0.5}; the same beyond the size that is searched plainly */
static void test_uses_of_one_resource_are_added_up(void) {
    fresh();
    const struct dtp_use few[] = {
        {3, DTP_USE_LINK, 1}, {3, DTP_USE_LOAD, 0.5}, {3, DTP_USE_LINK, 2}};
    struct dtp_use many[300];
    for (uint32_t i = 0; i < 300; i++)
        many[i] = (struct dtp_use){(i * 7) % 100, DTP_USE_LINK, 1.0 + i / 100};
    add_uses(few, 3, 1);
    add_uses(many, 300, 1);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL(graph.use_end[0], 2);
    CU_ASSERT_EQUAL(graph.use[0].weight, 3);
    CU_ASSERT_EQUAL(graph.use[1].weight, 0.5);
    CU_ASSERT_EQUAL_FATAL(graph.use_end[1], 2 + 100);
    CU_ASSERT_EQUAL(graph.nuses, 2 + 100);
    CU_ASSERT_EQUAL(graph.nload_uses, 1);
    for (uint32_t i = 0; i < 100; i++) {
        CU_ASSERT_EQUAL(graph.use[2 + i].resource, i);
        CU_ASSERT_EQUAL(graph.use[2 + i].weight, 1 + 2 + 3);
    }
}

/* Two tasks follow each other on one link: their uses are stored once, and the times are those of two copies. */
static void test_uses_that_tasks_share_are_kept_once(void) {
    const struct dtp_use links[] = {{0, DTP_USE_LINK, 1}, {1, DTP_USE_LINK, 2}};
    struct dtp_timeline timeline[2];
    for (int share = 0; share < 2; share++) {
        struct dtp_platform platform;
        fresh();
        dtp_platform_init(&platform, arena);
        dtp_platform_link(&platform, 4, NULL);
        dtp_platform_link(&platform, 4, NULL);
        struct dtp_task t = {.work = 8,
                             .rate_cap = DTP_UNCAPPED,
                             .uses = links,
                             .nuses = 2,
                             .device = DTP_NONE,
                             .stream = DTP_NONE};
        for (int i = 0; i < 3; i++) {
            dtp_id id = dtp_graph_add(&graph, &t);
            t.same_uses = share ? id + 1 : 0;
        }
        dtp_graph_dep(&graph, 0, 2);
        CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
        CU_ASSERT_EQUAL(graph.nuses, share ? 2 : 6);
        CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &platform, &graph, &timeline[share], &err),
                              DTP_OK);
    }
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(timeline[0].end_s[i], timeline[1].end_s[i]);
    CU_ASSERT_EQUAL(timeline[1].end_s[0], 8); /* two at a time on a link of 4 with weight 2 */
    CU_ASSERT_EQUAL(timeline[1].end_s[2], 12);
}

static void test_time_alone_is_latency_plus_work_over_cap_and_no_cap_means_one(void) {
    fresh();
    dtp_graph_add(
        &graph,
        &(struct dtp_task){
            .latency_s = 0.5, .work = 3, .rate_cap = 2, .device = DTP_NONE, .stream = DTP_NONE});
    add(3, 0);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL(graph.alone_s[0], 2);
    CU_ASSERT_EQUAL(graph.alone_s[1], 3);
}

static void test_a_cycle_is_found_and_its_tasks_named(void) {
    fresh();
    for (uint64_t i = 0; i < 6; i++)
        add(1, 100 + i);
    dtp_graph_dep(&graph, 0, 1);
    dtp_graph_dep(&graph, 4, 2); /* 2 waits for 4 waits for 3 waits for 2 */
    dtp_graph_dep(&graph, 3, 4);
    dtp_graph_dep(&graph, 2, 3);
    dtp_graph_dep(&graph, 4, 5); /* after the cycle, not on it */
    CU_ASSERT_EQUAL(dtp_graph_freeze(&graph, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg,
                           "dependency cycle of 3 tasks: task 2 (tag 102) waits for task 4 "
                           "(tag 104) waits for task 3 (tag 103) waits for task 2");
}

static void test_a_long_cycle_is_cut_and_a_task_that_waits_for_itself_is_one(void) {
    fresh();
    for (uint32_t i = 0; i < 50; i++) {
        add(1, i);
        dtp_graph_dep(&graph, (i + 1) % 50, i);
    }
    CU_ASSERT_EQUAL(dtp_graph_freeze(&graph, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "cycle of 50 tasks: task 0 (tag 0) waits for task 1"));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "waits for ... for task 0"));
    fresh();
    dtp_graph_dep(&graph, add(1, 7), 0);
    CU_ASSERT_EQUAL(dtp_graph_freeze(&graph, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "task 0 (tag 7) waits for task 0"));
}

static void expect_refused(struct dtp_task t, const char *text) {
    fresh();
    t.device = t.stream = DTP_NONE;
    dtp_graph_add(&graph, &t);
    CU_ASSERT_EQUAL(dtp_graph_freeze(&graph, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, text));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "task 0"));
}

static void test_tasks_out_of_range_are_refused(void) {
    const struct dtp_use bad = {0, DTP_USE_LINK, -1}, load = {0, DTP_USE_LOAD, 0.5};
    expect_refused((struct dtp_task){.work = -1}, "work -1");
    expect_refused((struct dtp_task){.work = NAN}, "work");
    expect_refused((struct dtp_task){.work = INFINITY}, "work inf");
    expect_refused((struct dtp_task){.latency_s = -1}, "latency -1");
    expect_refused((struct dtp_task){.start_s = -1}, "start -1");
    expect_refused((struct dtp_task){.rate_cap = -2}, "rate cap -2");
    expect_refused((struct dtp_task){.rate_cap = NAN}, "rate cap");
    expect_refused((struct dtp_task){.rate_cap = DTP_UNCAPPED}, "no rate cap and no link");
    expect_refused((struct dtp_task){.rate_cap = DTP_UNCAPPED, .uses = &load, .nuses = 1},
                   "no rate cap and no link");
    expect_refused((struct dtp_task){.uses = &bad, .nuses = 1}, "weight -1");
}

static void test_an_empty_graph_freezes(void) {
    fresh();
    CU_ASSERT_EQUAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL(graph.succ_begin[0], 0);
}

static void test_reserved_and_grown_graphs_are_equal(void) {
    uint32_t n = 3000, succ[2];
    for (int reserved = 0; reserved < 2; reserved++) {
        fresh();
        if (reserved)
            dtp_graph_reserve(&graph, n, 2 * n, n);
        for (uint32_t i = 0; i < n; i++) {
            const struct dtp_use use = {i % 5, DTP_USE_LINK, 1.0 + i};
            add_uses(&use, 1, 2.0 + i);
            if (i > 0)
                dtp_graph_dep(&graph, i / 2, i);
        }
        CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
        int wrong = 0;
        for (uint32_t i = 0; i < n; i++)
            wrong += graph.use[graph.use_begin[i]].weight != 1.0 + i ||
                     graph.rate_cap[i] != 2.0 + i || graph.npred[i] != (i > 0);
        CU_ASSERT_EQUAL(wrong, 0);
        succ[reserved] = graph.succ[graph.succ_begin[700]];
    }
    CU_ASSERT_EQUAL(succ[0], 1400);
    CU_ASSERT_EQUAL(succ[1], 1400);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"successors are grouped by task in the order of insertion",
         test_successors_are_grouped_by_task_in_the_order_of_insertion},
        {"an order is found when ids are none", test_an_order_is_found_when_ids_are_none},
        {"tasks of a stream follow one another", test_tasks_of_a_stream_follow_one_another},
        {"uses of one resource are added up", test_uses_of_one_resource_are_added_up},
        {"uses that tasks share are kept once", test_uses_that_tasks_share_are_kept_once},
        {"time alone is latency plus work over cap",
         test_time_alone_is_latency_plus_work_over_cap_and_no_cap_means_one},
        {"a cycle is found and its tasks named", test_a_cycle_is_found_and_its_tasks_named},
        {"a long cycle is cut", test_a_long_cycle_is_cut_and_a_task_that_waits_for_itself_is_one},
        {"tasks out of range are refused", test_tasks_out_of_range_are_refused},
        {"an empty graph freezes", test_an_empty_graph_freezes},
        {"reserved and grown graphs are equal", test_reserved_and_grown_graphs_are_equal},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "graph", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = tests},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
