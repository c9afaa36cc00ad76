#include "sim/engine.h"

#include <CUnit/Basic.h>

#include "sim/engine.h"
#include "tests/arena_case.h"
#include "tests/suites.h"

static dtp_id add(struct dtp_graph *g, double work, dtp_id stream) {
    return dtp_graph_add(g, &(struct dtp_task){.work = work, .device = DTP_NONE, .stream = stream});
}

static struct dtp_timeline run(struct dtp_graph *g) {
    struct dtp_platform p;
    struct dtp_timeline t;
    dtp_platform_init(&p, arena);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(g, NULL), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &p, g, &t, NULL), DTP_OK);
    return t;
}

/* stream 0: 1 s, waits for 3 s, 2 s; stream 1: 4 s. busy: 3 and 4; the stream without tasks: 0 */
static void test_busy_time_is_the_time_under_way(void) {
    struct dtp_graph g;
    dtp_graph_init(&g, arena);
    dtp_id s0 = dtp_graph_stream(&g), s1 = dtp_graph_stream(&g), s2 = dtp_graph_stream(&g);
    add(&g, 1, s0);
    dtp_id long_one = add(&g, 4, s1), last = add(&g, 2, s0);
    dtp_graph_dep(&g, long_one, last);
    struct dtp_timeline t = run(&g);
    CU_ASSERT_EQUAL(t.makespan_s, 6);
    const double *busy_s = dtp_timeline_busy_s(arena, &t, &g);
    CU_ASSERT_EQUAL(busy_s[s0], 3);
    CU_ASSERT_EQUAL(busy_s[s1], 4);
    CU_ASSERT_EQUAL(busy_s[s2], 0);
}

/* a 1 -> c 5 -> d 1; b 3 -> d. Path of d: a, c, d; of b: b alone. */
static void test_the_critical_path_follows_the_last_dependency(void) {
    struct dtp_graph g;
    const dtp_id *path;
    uint32_t n;
    dtp_graph_init(&g, arena);
    dtp_id a = add(&g, 1, DTP_NONE), b = add(&g, 3, DTP_NONE), c = add(&g, 5, DTP_NONE),
           d = add(&g, 1, DTP_NONE);
    dtp_graph_dep(&g, a, c);
    dtp_graph_dep(&g, c, d);
    dtp_graph_dep(&g, b, d);
    struct dtp_timeline t = run(&g);
    CU_ASSERT_EQUAL(t.last, d);
    dtp_timeline_critical_path(arena, &t, t.last, &path, &n);
    CU_ASSERT_EQUAL_FATAL(n, 3);
    CU_ASSERT(path[0] == a && path[1] == c && path[2] == d);
    dtp_timeline_critical_path(arena, &t, b, &path, &n);
    CU_ASSERT(n == 1 && path[0] == b);
}

/* Two dependencies end together: the lowest id is the cause, whichever was added first. */
static void test_ties_go_to_the_lowest_id(void) {
    struct dtp_graph g;
    dtp_graph_init(&g, arena);
    dtp_id a = add(&g, 2, DTP_NONE), b = add(&g, 2, DTP_NONE), c = add(&g, 0, DTP_NONE),
           d = add(&g, 0, DTP_NONE);
    dtp_graph_dep(&g, b, c);
    dtp_graph_dep(&g, a, c);
    dtp_graph_dep(&g, a, d);
    dtp_graph_dep(&g, b, d);
    struct dtp_timeline t = run(&g);
    CU_ASSERT_EQUAL(t.cause[c], a);
    CU_ASSERT_EQUAL(t.cause[d], a);
    CU_ASSERT_EQUAL(t.cause[a], DTP_NONE);
    CU_ASSERT_EQUAL(t.last, a); /* all four end at 2 */
}

/* The earliest start binds: no task is the cause. */
static void test_a_late_earliest_start_has_no_cause(void) {
    struct dtp_graph g;
    dtp_graph_init(&g, arena);
    dtp_id a = add(&g, 1, DTP_NONE);
    dtp_id b = dtp_graph_add(
        &g, &(struct dtp_task){.start_s = 5, .work = 1, .device = DTP_NONE, .stream = DTP_NONE});
    dtp_graph_dep(&g, a, b);
    struct dtp_timeline t = run(&g);
    CU_ASSERT_EQUAL(t.start_s[b], 5);
    CU_ASSERT_EQUAL(t.cause[b], DTP_NONE);
    CU_ASSERT_EQUAL(t.makespan_s, 6);
}

static void test_an_empty_timeline_has_no_last(void) {
    struct dtp_graph g;
    const dtp_id *path;
    uint32_t n = 7;
    dtp_graph_init(&g, arena);
    struct dtp_timeline t = run(&g);
    CU_ASSERT_EQUAL(t.last, DTP_NONE);
    CU_ASSERT_EQUAL(t.makespan_s, 0);
    dtp_timeline_critical_path(arena, &t, t.last, &path, &n);
    CU_ASSERT_EQUAL(n, 0);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"busy time is the time under way", test_busy_time_is_the_time_under_way},
        {"the critical path follows the last dependency",
         test_the_critical_path_follows_the_last_dependency},
        {"ties go to the lowest id", test_ties_go_to_the_lowest_id},
        {"a late earliest start has no cause", test_a_late_earliest_start_has_no_cause},
        {"an empty timeline has no last", test_an_empty_timeline_has_no_last},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "timeline", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = tests},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
