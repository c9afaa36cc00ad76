/* Statistics and ranks of validated rows, by hand. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "traces/validate.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

/* Spearman by hand: 1 - 6 sum d^2 / (n (n^2 - 1)) without ties. */
static void test_spearman(void) {
    double x[] = {1, 2, 3, 4, 5}, same[] = {10, 20, 30, 40, 50}, back[] = {5, 4, 3, 2, 1};
    double one_swap[] = {2, 1, 3, 4, 5}, flat[] = {7, 7, 7, 7, 7};
    CU_ASSERT(fabs(dtp_spearman(arena, x, same, 5) - 1) < 1e-12);
    CU_ASSERT(fabs(dtp_spearman(arena, x, back, 5) + 1) < 1e-12);
    CU_ASSERT(fabs(dtp_spearman(arena, x, one_swap, 5) - (1 - 6 * 2 / (5.0 * 24))) < 1e-12);
    CU_ASSERT(dtp_spearman(arena, x, flat, 5) == 0);
}

static bool every(const void *ctx, const struct dtp_validated *row) {
    (void)ctx;
    (void)row;
    return true;
}

/* errors -10, +20, -30, +40 %: MAPE 25, median 25, p90 (nearest rank) 40, bias +5 */
static void test_stats(void) {
    static const double error[] = {-0.1, 0.2, -0.3, 0.4};
    struct dtp_run run[4];
    struct dtp_validated row[4];
    memset(run, 0, sizeof run);
    memset(row, 0, sizeof row);
    for (int i = 0; i < 4; i++) {
        run[i].step_s = 1;
        row[i] = (struct dtp_validated){.run = &run[i], .supported = true, .error = error[i]};
    }
    struct dtp_validation v = {.runs = {.at = run, .n = 4}, .row = row};
    struct dtp_error_stats s = dtp_validation_stats(arena, &v, false, every, NULL);
    CU_ASSERT(s.rows == 4 && fabs(s.mape - 0.25) < 1e-12 && fabs(s.median - 0.25) < 1e-12);
    CU_ASSERT(fabs(s.p90 - 0.4) < 1e-12 && fabs(s.bias - 0.05) < 1e-12 && s.worst == s.p90);
    row[3].supported = false;
    s = dtp_validation_stats(arena, &v, false, every, NULL);
    CU_ASSERT(s.rows == 3 && fabs(s.mape - 0.2) < 1e-12 && fabs(s.median - 0.2) < 1e-12);
    CU_ASSERT(dtp_validation_stats(arena, &v, true, every, NULL).rows == 0);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"Spearman", test_spearman}, {"statistics", test_stats}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"validation", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
