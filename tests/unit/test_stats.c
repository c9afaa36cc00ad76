/* Medians and rank correlations, by hand. */
#include "sim/base/stats.h"

#include <CUnit/Basic.h>
#include <math.h>

#include "tests/arena_case.h"
#include "tests/suites.h"

static const double tolerance = 1e-12;

static void test_median(void) {
    double none[] = {7}, odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    CU_ASSERT(dtp_median(none, 0) == 0 && dtp_median(none, 1) == 7);
    CU_ASSERT(dtp_median(odd, 3) == 2 && odd[0] == 1 && odd[2] == 3);
    CU_ASSERT(dtp_median_high(none, 0) == 0 && dtp_median_high(even, 4) == 3);
    CU_ASSERT(dtp_median(even, 4) == 2.5);
}

/* Sums of the two in the middle do not fit. */
static void test_median_of_integers(void) {
    int64_t even[] = {5, -1, 2, 3}, negative[] = {-4, -1}, large[] = {INT64_MAX, INT64_MAX - 2};
    CU_ASSERT(dtp_median_i64(even, 0) == 0 && dtp_median_i64(even, 3) == 2);
    CU_ASSERT(dtp_median_i64(even, 4) == 2);
    CU_ASSERT(dtp_median_low_i64(even, 4) == 2 && dtp_median_high_i64(even, 4) == 3);
    CU_ASSERT(dtp_median_low_i64(even, 0) == 0 && dtp_median_high_i64(even, 0) == 0);
    CU_ASSERT(dtp_median_i64(negative, 2) == -3);
    CU_ASSERT(dtp_median_i64(large, 2) == INT64_MAX - 1);
}

/* Without ties: 1 - 6 sum of d^2 / (n (n^2 - 1)). */
static void test_spearman(void) {
    const double x[] = {1, 2, 3, 4, 5}, same[] = {10, 20, 40, 41, 100}, back[] = {5, 4, 3, 2, 1};
    const double swapped[] = {2, 1, 3, 4, 5}, flat[] = {7, 7, 7, 7, 7};
    CU_ASSERT_DOUBLE_EQUAL(dtp_spearman(arena, x, same, 5), 1, tolerance);
    CU_ASSERT_DOUBLE_EQUAL(dtp_spearman(arena, x, back, 5), -1, tolerance);
    CU_ASSERT_DOUBLE_EQUAL(dtp_spearman(arena, x, swapped, 5), 1 - 6 * 2 / (5.0 * 24), tolerance);
    CU_ASSERT(isnan(dtp_spearman(arena, x, flat, 5)) && isnan(dtp_spearman(arena, flat, x, 5)));
    CU_ASSERT(isnan(dtp_kendall(x, flat, 5)) && isnan(dtp_kendall(flat, x, 5)));
}

/* Two that tie have the mean of their ranks, 1.5, and are no pair. Deviations from 2.5: -1.5 -0.5 0.5 1.5 and
 * -1 -1 0.5 1.5; of six pairs five are in order, one is tied. What did not run counts as the slowest. */
static void test_ties(void) {
    const double x[] = {1, 2, 3, 4}, y[] = {1, 1, 2, (double)INFINITY};
    CU_ASSERT_DOUBLE_EQUAL(dtp_spearman(arena, x, y, 4), 4.5 / sqrt(5 * 4.5), tolerance);
    CU_ASSERT_DOUBLE_EQUAL(dtp_kendall(x, y, 4), 5 / sqrt(6 * 5.0), tolerance);
    CU_ASSERT_DOUBLE_EQUAL(dtp_kendall(y, x, 4), 5 / sqrt(6 * 5.0), tolerance);
}

int main(void) {
    CU_TestInfo tests[] = {{"median", test_median},
                           {"median of integers", test_median_of_integers},
                           {"Spearman", test_spearman},
                           {"ties", test_ties},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"stats", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
