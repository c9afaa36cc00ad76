/* Flows that share links, by hand: each case states links, flows and their times. */
#include "sim/engine.h"

#include "tests/engine_case.h"
#include "tests/suites.h"

static void test_two_equal_flows_share_a_link(void) {
    fresh(1, (double[]){1e8});
    flow(1, 1e8, 0, 0);
    flow(1, 1e8, 0, 0);
    run();
    expect_end(0, 2);
    expect_end(1, 2);
    CU_ASSERT_EQUAL(timeline.nevents, 4);
}

static void test_the_longer_flow_takes_over(void) {
    fresh(1, (double[]){1e8});
    flow(1, 1e8, 0, 0);
    flow(1, 3e8, 0, 0);
    run();
    expect_end(0, 2);
    expect_end(1, 4);
}

static void test_three_links_four_flows(void) {
    fresh(3, (double[]){1e8, 2.5e8, 3e8});
    flow(7, 1e8, 0, 0);
    flow(1, 1e8, 0, 0);
    flow(2, 6e8, 0, 0);
    flow(4, 1e9, 0, 0);
    run();
    expect_end(0, 2);
    expect_end(1, 2);
    expect_end(2, 2.8);
    expect_end(3, 11.0 / 3);
}

static void test_a_later_flow_slows_the_first(void) {
    fresh(1, (double[]){1e8});
    flow(1, 2e8, 0, 0);
    flow(1, 5e7, 1, 0);
    run();
    expect_end(0, 2.5);
    expect_end(1, 2);
}

static void test_latencies_add_up_and_the_tightest_link_counts(void) {
    fresh(2, (double[]){1e8, 5e7});
    flow(3, 1e8, 0, 1e-3 + 2e-3);
    run();
    expect_end(0, 2.003);
}

static void test_sharing_starts_after_the_latency(void) {
    fresh(1, (double[]){1e8});
    flow(1, 1e8, 0, 3e-3);
    flow(1, 3e8, 0, 3e-3);
    run();
    expect_end(0, 2.003);
    expect_end(1, 4.003);
}

static void test_directions_are_links_of_their_own(void) {
    fresh(2, (double[]){1e8, 1e8});
    flow(1, 1e8, 0, 0);
    flow(2, 1e8, 0, 0);
    run();
    expect_end(0, 1);
    expect_end(1, 1);
}

/* Unequal latencies, unlike SimGrid's weights: 1 alone in [1 ms, 3 ms], then both at half. */
static void test_latency_does_not_weigh_the_shares(void) {
    fresh(1, (double[]){1e8});
    flow(1, 1e8, 0, 1e-3);
    flow(1, 1e8, 0, 3e-3);
    run();
    expect_end(0, 0.003 + 2 * (1e8 - 2e5) / 1e8);
    expect_end(1, 2.001);
}

/* Two of cap 10 and one without on a link of 100: 10, 10, 80. */
static void test_a_cap_leaves_the_rest_to_others(void) {
    const struct dtp_use use = {0, DTP_USE_LINK, 1};
    fresh(1, (double[]){100});
    for (int i = 0; i < 2; i++)
        add((struct dtp_task){.work = 10, .rate_cap = 10, .device = DTP_NONE}, &use, 1);
    flow(1, 80, 0, 0);
    run();
    expect_end(0, 1);
    expect_end(1, 1);
    expect_end(2, 1);
}

/* A compound flow with weights 2 and 0.5 on two links of 10: rate 5; with another on the second link
 * (10 = 0.5 x + y, x = 5): 7.5 until the first ends at 2, then 10. */
static void test_weights_of_a_compound_flow(void) {
    const struct dtp_use uses[] = {{0, DTP_USE_LINK, 2}, {1, DTP_USE_LINK, 0.5}};
    fresh(2, (double[]){10, 10});
    add((struct dtp_task){.work = 10, .rate_cap = DTP_UNCAPPED, .device = DTP_NONE}, uses, 2);
    flow(2, 25, 0, 0);
    run();
    expect_end(0, 2);
    expect_end(1, 3);
}

int main(void) {
    CU_TestInfo flows[] = {
        {"two equal flows share a link", test_two_equal_flows_share_a_link},
        {"the longer flow takes over", test_the_longer_flow_takes_over},
        {"three links, four flows", test_three_links_four_flows},
        {"a later flow slows the first", test_a_later_flow_slows_the_first},
        {"latencies add up", test_latencies_add_up_and_the_tightest_link_counts},
        {"sharing starts after the latency", test_sharing_starts_after_the_latency},
        {"directions are links of their own", test_directions_are_links_of_their_own},
        {"latency does not weigh the shares", test_latency_does_not_weigh_the_shares},
        {"a cap leaves the rest to others", test_a_cap_leaves_the_rest_to_others},
        {"weights of a compound flow", test_weights_of_a_compound_flow},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "flows", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = flows},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
