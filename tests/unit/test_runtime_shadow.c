/* A rank alone ("shadow") does what the same rank does in the whole job: the same actions and
 * collectives in the same order, the same peak of memory, to the byte. */
#include <CUnit/Basic.h>
#include <string.h>

#include "hw/cluster.h"
#include "runtime/rank.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;
static struct dtp_cluster cluster;

static const struct dtp_run_event *first_event(const struct dtp_run_result *r, int rank) {
    size_t i = 0;
    while (i < r->nevents && r->event[i].rank != rank)
        i++;
    return &r->event[i];
}

static void compare(const struct dtp_run_options *whole, const struct dtp_run_result *all,
                    int rank) {
    struct dtp_run_options o = *whole;
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.shadow_cluster = &cluster;
    o.shadow_rank = rank;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    CU_ASSERT(r.is_root);
    CU_ASSERT_EQUAL(r.nranks, 1);
    CU_ASSERT_EQUAL(r.peak_bytes[0], all->peak_bytes[rank]);
    const struct dtp_run_event *expected = first_event(all, rank);
    int wrong = 0;
    for (size_t i = 0; i < r.nevents; i++)
        wrong += r.event[i].rank != rank || strcmp(r.event[i].name, expected[i].name) != 0;
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(r.nevents > 0);
}

static void check_plan(int tp, int pp, int dp, int zero_stage, bool sequence_parallel) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result all;
    struct dtp_err err = {0};
    o.plan = with_degrees(o.plan, tp, pp, dp);
    o.plan.zero_stage = zero_stage;
    o.plan.sequence_parallel = sequence_parallel;
    o.steps = 2;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &all, &err), DTP_OK);
    for (int rank = 0; rank < tp * pp * dp; rank++)
        compare(&o, &all, rank);
}

static void test_pipeline(void) {
    check_plan(1, 2, 2, 0, false);
}

static void test_tensor_and_sequence_parallel(void) {
    check_plan(2, 2, 1, 0, true);
}

static void test_zero(void) {
    check_plan(1, 1, 4, 1, false);
    check_plan(2, 1, 2, 3, false);
}

/* The waits last as long as the predicted collectives, and there are none where nothing is shared. */
static void test_waits(void) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result four, one;
    struct dtp_err err = {0};
    o.plan = with_degrees(o.plan, 1, 1, 4);
    o.shadow_cluster = &cluster;
    o.steps = 4;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &four, &err), DTP_OK);
    o.plan = with_degrees(o.plan, 1, 1, 1);
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &one, &err), DTP_OK);
    double waited_s = 0;
    for (size_t i = 0; i < four.nevents; i++)
        if (strncmp(four.event[i].name, "dp all_reduce", 13) == 0)
            waited_s += four.event[i].dur_s;
    CU_ASSERT(waited_s > 0);
    for (size_t i = 0; i < one.nevents; i++)
        CU_ASSERT(strncmp(one.event[i].name, "dp all_reduce", 13) != 0);
}

static void test_refuses_ranks_that_are_not_there(void) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.shadow_cluster = &cluster;
    o.shadow_rank = o.plan.tp * o.plan.pp * o.plan.dp;
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_EINPUT);
}

int main(void) {
    CU_TestInfo tests[] = {{"pipeline", test_pipeline},
                           {"tensor and sequence parallel", test_tensor_and_sequence_parallel},
                           {"ZeRO", test_zero},
                           {"waits", test_waits},
                           {"ranks that are not there", test_refuses_ranks_that_are_not_there},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"shadow ranks", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    if (dtp_cluster_load(arena, "dgx-a100-80", &cluster, &err) != DTP_OK)
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
