/* Each case states links (capacity) and activities (cap, weights) and the rates by hand. */
#include "sim/maxmin.c" /* its tests read how many links it solved */
#include "tests/arena_case.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>

static const double RELATIVE = 1e-12;

enum { MAX_LINKS = 64 };

static struct dtp_platform platform;
static struct dtp_maxmin *maxmin;
static const uint32_t *changed;

static void links(const double *capacity, uint32_t n) {
    dtp_arena_reset(arena);
    dtp_platform_init(&platform, arena);
    for (uint32_t l = 0; l < n; l++)
        dtp_platform_link(&platform, capacity[l], NULL);
    maxmin = dtp_maxmin_create(arena, &platform, 1);
}

/* w[l] > 0: uses link l */
static void add(uint32_t activity, double cap, const double *w) {
    struct dtp_use uses[MAX_LINKS];
    uint32_t n = 0;
    for (uint32_t l = 0; l < platform.nlinks; l++)
        if (w[l] > 0)
            uses[n++] = (struct dtp_use){l, DTP_USE_LINK, w[l]};
    dtp_maxmin_add(maxmin, activity, cap, uses, n);
}

static void expect(uint32_t activity, double rate) {
    double x = dtp_maxmin_rate(maxmin, activity);
    CU_ASSERT(fabs(x - rate) <= RELATIVE * rate);
    if (!(fabs(x - rate) <= RELATIVE * rate))
        printf("  activity %u: rate %.17g, expected %.17g\n", activity, x, rate);
}

/* (1) C = 100, R = inf, inf, 10: x = 45, 45, 10; the sum is the capacity and no cap is exceeded */
static void test_1_feasible_caps_and_capacities_hold(void) {
    const double c[] = {100}, w[] = {1};
    links(c, 1);
    add(0, INFINITY, w);
    add(1, INFINITY, w);
    add(2, 10, w);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 3);
    expect(0, 45);
    expect(1, 45);
    expect(2, 10);
}

/* (1) with weights: 2 x + 1 x = 90: x = 30 each, for rates are equal, not w x */
static void test_1_weights_count_in_the_capacity(void) {
    const double c[] = {90}, w2[] = {2}, w1[] = {1};
    links(c, 1);
    add(0, INFINITY, w2);
    add(1, INFINITY, w1);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 30);
    expect(1, 30);
}

/* (2) A = 1e8, B = 2.5e8, D = 3e8; f0 on all, f1 on A, f2 on B, f3 on D: 50, 50, 200, 250 MB/s */
static void test_2_each_is_limited_by_a_saturated_link_where_it_is_largest(void) {
    const double c[] = {1e8, 2.5e8, 3e8};
    const double f0[] = {1, 1, 1}, f1[] = {1, 0, 0}, f2[] = {0, 1, 0}, f3[] = {0, 0, 1};
    links(c, 3);
    add(0, INFINITY, f0);
    add(1, INFINITY, f1);
    add(2, INFINITY, f2);
    add(3, INFINITY, f3);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 5e7);
    expect(1, 5e7);
    expect(2, 2e8);
    expect(3, 2.5e8);
}

/* (3) an activity alone: the least of its cap and C / w over its links */
static void test_3_alone_the_tightest_of_cap_and_links(void) {
    const double c[] = {100, 60, 1000}, w[] = {1, 2, 5};
    links(c, 3);
    add(0, INFINITY, w);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 1);
    expect(0, 30);
    dtp_maxmin_remove(maxmin, 0);
    add(0, 7, w);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 7);
}

/* (4) C = 100, limits elsewhere 5, 10, none: L = 100 - 5 - 10; a link that nobody fills limits none */
static void test_4_a_level_is_what_the_limited_ones_leave(void) {
    const double c[] = {100, 5, 10, 1000};
    const double f0[] = {1, 1, 0, 1}, f1[] = {1, 0, 1, 1}, f2[] = {1, 0, 0, 1};
    links(c, 4);
    add(0, INFINITY, f0);
    add(1, INFINITY, f1);
    add(2, INFINITY, f2);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 5);
    expect(1, 10);
    expect(2, 85);
}

/* A chain of links of capacity 10, one activity on all, one on each link; then the long one leaves. */
static void test_rates_follow_adds_and_removes(void) {
    double c[20], all[20];
    for (int l = 0; l < 20; l++) {
        c[l] = 10;
        all[l] = 1;
    }
    links(c, 20);
    add(0, INFINITY, all);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 10);
    for (uint32_t l = 0; l < 20; l++) {
        double one[20] = {0};
        one[l] = 1;
        add(1 + l, INFINITY, one);
    }
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 21);
    for (uint32_t i = 0; i < 21; i++)
        expect(i, 5);
    dtp_maxmin_remove(maxmin, 0);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 20);
    for (uint32_t i = 1; i < 21; i++)
        expect(i, 10);
}

/* A smaller cap frees capacity for the other; a larger one takes it back. C = 12: 6, 6; 2, 10; 6, 6 */
static void test_a_new_cap_moves_the_shares(void) {
    const double c[] = {12}, w[] = {1};
    links(c, 1);
    add(0, 8, w);
    add(1, INFINITY, w);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 6);
    dtp_maxmin_set_cap(maxmin, 0, 2);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 2);
    expect(0, 2);
    expect(1, 10);
    dtp_maxmin_set_cap(maxmin, 0, 100);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 6);
    expect(1, 6);
}

/* f0: A; f1: A, B; f2: B. A = 10, B = 100. f0 leaves A: f1 rises from 5 to 10 and f2 falls to 90. */
static void test_a_change_travels_along_the_links_it_moves(void) {
    const double c[] = {10, 100}, f0[] = {1, 0}, f1[] = {1, 1}, f2[] = {0, 1};
    links(c, 2);
    add(0, INFINITY, f0);
    add(1, INFINITY, f1);
    add(2, INFINITY, f2);
    dtp_maxmin_solve(maxmin, &changed);
    expect(1, 5);
    expect(2, 95);
    dtp_maxmin_remove(maxmin, 0);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 2);
    expect(1, 10);
    expect(2, 90);
}

/* 30 pairs of links, each with its own two activities: a change in one pair solves links of it only;
 * nothing changed solves nothing; a lone activity solves nothing either. */
static void test_work_is_proportional_to_what_changes(void) {
    double c[60];
    for (int l = 0; l < 60; l++)
        c[l] = 10;
    links(c, 60);
    for (uint32_t i = 0; i < 60; i++) {
        double w[60] = {0};
        w[i] = w[i / 2 * 2] = 1;
        add(i, INFINITY, w);
    }
    dtp_maxmin_solve(maxmin, &changed);
    uint64_t before = maxmin->nsolved;
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 0);
    CU_ASSERT_EQUAL(maxmin->nsolved, before);
    dtp_maxmin_remove(maxmin, 20);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 1);
    CU_ASSERT_EQUAL(changed[0], 21);
    CU_ASSERT(maxmin->nsolved - before <= 3);
    dtp_maxmin_remove(maxmin, 21);
    dtp_maxmin_solve(maxmin, &changed);
    before = maxmin->nsolved;
    double w[60] = {0};
    w[20] = w[21] = 1;
    add(20, INFINITY, w);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 1);
    CU_ASSERT_EQUAL(maxmin->nsolved, before);
    expect(20, 10);
}

/* Levels that differ by 15 orders of magnitude, and equal ones that rounding tells apart. */
static void test_magnitudes_and_ties_end(void) {
    const double c[] = {1e-6, 1e15, 0.1 + 0.2, 0.3};
    const double f0[] = {1, 1, 0, 0}, f1[] = {0, 1, 0, 0}, both[] = {0, 0, 1, 1};
    links(c, 4);
    add(0, INFINITY, f0);
    add(1, INFINITY, f1);
    for (uint32_t i = 2; i < 9; i++)
        add(i, INFINITY, both);
    dtp_maxmin_solve(maxmin, &changed);
    expect(0, 1e-6);
    expect(1, 1e15);
    for (uint32_t i = 2; i < 9; i++)
        expect(i, 0.3 / 7);
}

/* A number may be used again, and one removed before it was ever solved is not reported. */
static void test_activities_come_and_go_between_solves(void) {
    const double c[] = {8}, w[] = {1};
    links(c, 1);
    for (uint32_t i = 0; i < 1000; i++)
        add(i, INFINITY, w);
    for (uint32_t i = 4; i < 1000; i++)
        dtp_maxmin_remove(maxmin, i);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 4);
    expect(3, 2);
    dtp_maxmin_remove(maxmin, 3);
    add(3, 1, w);
    CU_ASSERT_EQUAL(dtp_maxmin_solve(maxmin, &changed), 4);
    expect(3, 1);
    expect(0, 7.0 / 3);
}

static void test_a_link_without_capacity_gives_rate_0(void) {
    const double c[] = {0, 5}, f0[] = {1, 1}, f1[] = {0, 1};
    links(c, 2);
    add(0, INFINITY, f0);
    add(1, INFINITY, f1);
    dtp_maxmin_solve(maxmin, &changed);
    CU_ASSERT_EQUAL(dtp_maxmin_rate(maxmin, 0), 0);
    expect(1, 5);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"(1) feasible: caps and capacities hold", test_1_feasible_caps_and_capacities_hold},
        {"(1) weights count in the capacity", test_1_weights_count_in_the_capacity},
        {"(2) limited by a saturated link where it is largest",
         test_2_each_is_limited_by_a_saturated_link_where_it_is_largest},
        {"(3) alone: the tightest of cap and links", test_3_alone_the_tightest_of_cap_and_links},
        {"(4) a level is what the limited ones leave",
         test_4_a_level_is_what_the_limited_ones_leave},
        {"rates follow adds and removes", test_rates_follow_adds_and_removes},
        {"a new cap moves the shares", test_a_new_cap_moves_the_shares},
        {"a change travels along the links it moves",
         test_a_change_travels_along_the_links_it_moves},
        {"work is proportional to what changes", test_work_is_proportional_to_what_changes},
        {"magnitudes and ties end", test_magnitudes_and_ties_end},
        {"activities come and go between solves", test_activities_come_and_go_between_solves},
        {"a link without capacity gives rate 0", test_a_link_without_capacity_gives_rate_0},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "maxmin", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = tests},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
