/* Devices, times and whole runs, by hand: each case states tasks and their times. */
#include "sim/engine.h"

#include <string.h>

#include "tests/arena_bytes.h"
#include "tests/bench/cases.h"
#include "tests/engine_case.h"
#include "tests/suites.h"

/* ---- devices ---- */

/* 1 s of compute; a load of 0.25 for 0.4 s: 0.3 s done by then, 0.7 left. */
static void test_a_load_slows_compute_while_it_is_under_way(void) {
    fresh(0, NULL);
    dtp_id d = dtp_platform_device(&platform);
    dtp_id c = compute(1, d), l = load(d, 0.25, 0, 0.4);
    run();
    expect_end(l, 0.4);
    expect_end(c, 1.1);
}

static void test_the_latency_of_a_load_is_free(void) {
    fresh(0, NULL);
    dtp_id d = dtp_platform_device(&platform), other = dtp_platform_device(&platform);
    dtp_id c = compute(1, d), l = load(d, 0.5, 0.6, 0.2), free = compute(1, other);
    run();
    expect_end(l, 0.8);
    expect_end(c, 1.1); /* 0.6 + 0.2 x 0.5 done at 0.8 */
    expect_end(free, 1);
}

/* 0.7 + 0.6 leave nothing: DTP_DEVICE_MIN_RATE. 1 s x 0.05 done, then 0.4 for 1 s, then alone. */
static void test_loads_add_up_to_at_most_the_least_rate(void) {
    fresh(0, NULL);
    dtp_id d = dtp_platform_device(&platform);
    dtp_id c = compute(1, d);
    load(d, 0.7, 0, 1);
    load(d, 0.6, 0, 2);
    run();
    expect_end(c, 2 + (1 - DTP_DEVICE_MIN_RATE - 0.4));
}

static void test_a_task_does_not_slow_itself(void) {
    const struct dtp_use use = {0, DTP_USE_LOAD, 0.5};
    fresh(0, NULL);
    dtp_id d = dtp_platform_device(&platform);
    dtp_id both = add((struct dtp_task){.work = 1, .device = d}, &use, 1), c = compute(1, d);
    run();
    expect_end(both, 1);
    expect_end(c, 1.5);
}

/* The loading flow shares a link: it loads for 2 s instead of 1 s. */
static void test_contention_prolongs_the_load(void) {
    const struct dtp_use uses[] = {{0, DTP_USE_LINK, 1}, {0, DTP_USE_LOAD, 0.2}};
    fresh(1, (double[]){100});
    dtp_id d = dtp_platform_device(&platform);
    dtp_id f =
        add((struct dtp_task){.work = 100, .rate_cap = DTP_UNCAPPED, .device = DTP_NONE}, uses, 2);
    flow(1, 100, 0, 0);
    dtp_id c = compute(3, d);
    run();
    expect_end(f, 2);
    expect_end(c, 3.4);
}

/* Compute that also streams over a link of 10: at its cap 4 x 0.5 = 2, the other flow gets 8; when
 * the load ends at 1, 4 and 6. */
static void test_a_device_rate_caps_the_share_of_a_link(void) {
    const struct dtp_use use = {0, DTP_USE_LINK, 1};
    fresh(1, (double[]){10});
    dtp_id d = dtp_platform_device(&platform);
    dtp_id c = add((struct dtp_task){.work = 6, .rate_cap = 4, .device = d}, &use, 1);
    load(d, 0.5, 0, 1);
    dtp_id f = flow(1, 14, 0, 0);
    run();
    expect_end(c, 2);
    expect_end(f, 2);
}

/* ---- time ---- */

static void test_zero_work_and_zero_latency_take_no_time(void) {
    fresh(1, (double[]){100});
    dtp_id a = flow(1, 0, 2, 0), b = compute(0, DTP_NONE), c = flow(1, 0, 0, 1),
           d = flow(1, 0, 0, 0);
    dtp_graph_dep(&graph, a, b);
    dtp_graph_dep(&graph, b, c);
    dtp_graph_dep(&graph, c, d);
    run();
    expect_end(a, 2);
    expect_end(b, 2);
    expect_end(c, 3);
    expect_end(d, 3);
    CU_ASSERT_EQUAL(timeline.last, c);
}

/* Flows far apart in size, on links far apart in capacity, late enough that a flow's duration is
 * below the resolution of the clock: all end, in order. */
static void test_magnitudes(void) {
    fresh(2, (double[]){1e-3, 1e15});
    dtp_id slow = flow(1, 1e9, 0, 0), fast = flow(2, 1e-3, 0, 0), tiny = flow(2, 1e-6, 0, 0),
           late = flow(3, 1e-12, 1e12, 0), later = flow(2, 1, 0, 0);
    dtp_graph_dep(&graph, late, later);
    run();
    expect_end(slow, 1e12);
    expect_end(tiny, 2e-21);
    expect_end(fast, 1.001e-18);
    CU_ASSERT(timeline.end_s[late] >= 1e12);
    CU_ASSERT(timeline.end_s[later] >= timeline.end_s[late]);
}

/* 1,000 equal flows end together: one batch, although each is 1/1000 of a link of 0.1. */
static void test_equal_ends_are_equal(void) {
    fresh(1, (double[]){0.1});
    for (int i = 0; i < 1000; i++)
        flow(1, 0.7, 0, 0);
    run();
    int wrong = 0;
    for (dtp_id i = 1; i < 1000; i++)
        wrong += timeline.end_s[i] != timeline.end_s[0];
    CU_ASSERT_EQUAL(wrong, 0);
    expect_end(0, 7000);
}

/* start, cause and end of a flow after a latency: the latency counts from start. */
static void test_start_is_when_dependencies_are_met(void) {
    fresh(1, (double[]){1});
    dtp_id a = compute(1, DTP_NONE), b = flow(1, 2, 0.5, 0.25);
    dtp_graph_dep(&graph, a, b);
    run();
    CU_ASSERT_EQUAL(timeline.start_s[b], 1);
    CU_ASSERT_EQUAL(timeline.cause[b], a);
    expect_end(b, 3.25);
    CU_ASSERT_EQUAL(timeline.makespan_s, timeline.end_s[b]);
}

/* ---- the same result by other ways ---- */

/* A flow apart from the rest makes the run go by events instead of the longest path. */
static void test_longest_path_and_events_agree_bit_for_bit(void) {
    static const int arg[] = {7, 40};
    struct dtp_timeline t[2];
    uint32_t n = 0;
    dtp_arena_reset(arena);
    for (int events = 0; events < 2; events++) {
        struct case_graph c;
        case_init(&c, arena);
        case_pipeline(&c, arg);
        n = c.g.ntasks;
        if (events) {
            const struct dtp_use use = {dtp_platform_link(&c.p, 1, NULL), DTP_USE_LINK, 1};
            dtp_graph_add(&c.g, &(struct dtp_task){.work = 3,
                                                   .rate_cap = DTP_UNCAPPED,
                                                   .uses = &use,
                                                   .nuses = 1,
                                                   .device = DTP_NONE,
                                                   .stream = DTP_NONE});
        }
        CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&c.g, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &c.p, &c.g, &t[events], &err), DTP_OK);
    }
    CU_ASSERT_EQUAL(memcmp(t[0].start_s, t[1].start_s, n * sizeof(double)), 0);
    CU_ASSERT_EQUAL(memcmp(t[0].end_s, t[1].end_s, n * sizeof(double)), 0);
    CU_ASSERT_EQUAL(memcmp(t[0].cause, t[1].cause, n * sizeof(dtp_id)), 0);
    CU_ASSERT_EQUAL(t[0].makespan_s, t[1].makespan_s);
    CU_ASSERT_EQUAL(t[1].end_s[n], 3);
}

static void test_a_graph_can_run_again_in_the_same_memory(void) {
    static const int arg[] = {16, CASE_SHUFFLED, 1};
    struct case_graph c;
    struct dtp_arena *candidate = dtp_arena_create("candidate");
    double first_s = 0;
    size_t first_bytes = 0;
    dtp_arena_reset(arena);
    case_init(&c, arena);
    case_rings(&c, arg);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&c.g, &err), DTP_OK);
    for (int k = 0; k < 3; k++) {
        dtp_arena_reset(candidate);
        CU_ASSERT_EQUAL_FATAL(dtp_engine_run(candidate, &c.p, &c.g, &timeline, &err), DTP_OK);
        size_t bytes = arena_used_bytes(candidate);
        CU_ASSERT(k == 0 || timeline.makespan_s == first_s);
        CU_ASSERT(k == 0 || bytes == first_bytes);
        first_s = timeline.makespan_s;
        first_bytes = bytes;
    }
    dtp_arena_destroy(candidate);
}

/* ---- SimGrid 3.32's times (CM02, equal latencies) ----
 * The last one is from network/optim:Full, which solves all rates at every event; SimGrid's default,
 * its lazy update, gives 4.301076508 there. */

struct published {
    void (*build)(struct case_graph *c, const int *arg);
    int arg[6];
    double makespan_s;
};

static void test_simgrids_times_come_out(void) {
    static const struct published cases[] = {
        {case_pipeline, {16, 512}, 64.196435200},
        {case_rings, {128, CASE_PACKED, 0}, 0.191590000},
        {case_rings, {128, CASE_SPREAD, 0}, 0.766150000},
        {case_rings, {128, CASE_SHUFFLED, 0}, 0.814030000},
        {case_rings, {128, CASE_SPREAD, 1}, 0.774038791},
        {case_rings, {128, CASE_SHUFFLED, 1}, 0.821322938},
        {case_step, {8, 16, 8, 192, 0, CASE_SPREAD}, 34.139448271},
        {case_step, {8, 16, 8, 192, 1, CASE_SPREAD}, 34.618254201},
        {case_step, {8, 16, 8, 192, 1, CASE_PACKED}, 34.620630345},
        {case_step, {8, 16, 8, 192, 1, CASE_SHUFFLED}, 34.627628788},
        {case_step, {8, 16, 16, 8, 0, CASE_SPREAD}, 4.301334891},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct case_graph c;
        dtp_arena_reset(arena);
        case_init(&c, arena);
        cases[i].build(&c, cases[i].arg);
        CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&c.g, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &c.p, &c.g, &timeline, &err), DTP_OK);
        double off = timeline.makespan_s / cases[i].makespan_s - 1;
        CU_ASSERT(fabs(off) < 1e-8); /* the digits that were printed */
        if (fabs(off) >= 1e-8)
            printf("  case %zu: %.9f, SimGrid %.9f\n", i, timeline.makespan_s, cases[i].makespan_s);
    }
}

/* ---- errors ---- */

static void expect_refused(const char *text) {
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_engine_run(arena, &platform, &graph, &timeline, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, text));
}

static void test_what_cannot_run_is_refused_by_name(void) {
    fresh(1, (double[]){0});
    flow(1, 1, 0, 0);
    graph.tag[0] = 42;
    expect_refused("task 0 (tag 42) can never end");
    fresh(1, (double[]){1});
    flow(2, 1, 0, 0);
    expect_refused("task 0 uses link 1 of 1");
    fresh(0, NULL);
    load(3, 0.5, 0, 1);
    expect_refused("task 0 uses device 3 of 0");
    fresh(0, NULL);
    compute(1, DTP_NONE);
    compute(1, 9);
    expect_refused("task 1: device 9 of 0");
    fresh(1, (double[]){1});
    flow(1, 1, 0, 0);
    dtp_graph_dep(&graph, 0, compute(1, DTP_NONE));
    dtp_graph_dep(&graph, 2, 1); /* 1 waits for 2 waits for 1 */
    dtp_graph_dep(&graph, 1, compute(1, DTP_NONE));
    expect_refused("dependency cycle of 2 tasks: task 1 (tag 0) waits for task 2 (tag 0) waits");
}

int main(void) {
    CU_TestInfo devices[] = {
        {"a load slows compute", test_a_load_slows_compute_while_it_is_under_way},
        {"the latency of a load is free", test_the_latency_of_a_load_is_free},
        {"loads add up to at most the least rate", test_loads_add_up_to_at_most_the_least_rate},
        {"a task does not slow itself", test_a_task_does_not_slow_itself},
        {"contention prolongs the load", test_contention_prolongs_the_load},
        {"a device rate caps the share", test_a_device_rate_caps_the_share_of_a_link},
        CU_TEST_INFO_NULL};
    CU_TestInfo time[] = {
        {"zero work and latency take no time", test_zero_work_and_zero_latency_take_no_time},
        {"magnitudes", test_magnitudes},
        {"equal ends are equal", test_equal_ends_are_equal},
        {"start is when dependencies are met", test_start_is_when_dependencies_are_met},
        CU_TEST_INFO_NULL};
    CU_TestInfo whole[] = {
        {"longest path and events agree", test_longest_path_and_events_agree_bit_for_bit},
        {"a graph can run again", test_a_graph_can_run_again_in_the_same_memory},
        {"SimGrid's times come out", test_simgrids_times_come_out},
        {"what cannot run is refused by name", test_what_cannot_run_is_refused_by_name},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "devices", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = devices},
        {.pName = "time", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = time},
        {.pName = "whole", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = whole},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
