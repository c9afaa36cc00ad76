/* Covers: every pair of settings that a plan has is in a chosen one, checked by brute force. */
#include <CUnit/Basic.h>

#include "planner/check.h"
#include "tests/suites.h"

enum { FIELDS = 4, MOST = 200 };

static int field(const struct dtp_plan *p, int i) {
    const int value[FIELDS] = {p->tp, p->zero_stage, (int)p->recompute, p->microbatch_size};
    return value[i];
}

static bool has_pair(const struct dtp_plan *p, const struct dtp_plan *like, int i, int k) {
    return field(p, i) == field(like, i) && field(p, k) == field(like, k);
}

static size_t make(struct dtp_plan *plan) {
    size_t n = 0;
    for (int tp = 1; tp <= 2; tp++)
        for (int zero = 0; zero < (tp == 1 ? 4 : 1); zero++)
            for (int recompute = 0; recompute < 3; recompute++)
                for (int mb = 1; mb <= 4; mb *= 2) {
                    plan[n] = dtp_plan_default();
                    plan[n].tp = tp;
                    plan[n].dp = 2 / tp;
                    plan[n].zero_stage = zero;
                    plan[n].recompute = (enum dtp_recompute)recompute;
                    plan[n++].microbatch_size = mb;
                }
    return n;
}

static void test_every_pair(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_plan plan[MOST];
    size_t chosen[MOST], n = make(plan);
    size_t count = dtp_plan_cover(a, plan, n, 0, chosen);
    CU_ASSERT(count > 0 && count < n / 2);
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < FIELDS; i++)
            for (int k = i + 1; k < FIELDS; k++) {
                bool found = false;
                for (size_t c = 0; c < count; c++)
                    found |= has_pair(&plan[chosen[c]], &plan[p], i, k);
                CU_ASSERT(found);
            }
    dtp_arena_destroy(a);
}

/* The next plan is the one that has most that is new: each value is among the first few. */
static void test_order(void) {
    enum { FIRST = 5 };
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_plan plan[MOST];
    size_t chosen[MOST], n = make(plan);
    CU_ASSERT_FATAL(dtp_plan_cover(a, plan, n, 0, chosen) > FIRST);
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < FIELDS; i++) {
            bool early = false;
            for (size_t c = 0; c < FIRST; c++)
                early |= field(&plan[chosen[c]], i) == field(&plan[p], i);
            CU_ASSERT(early);
        }
    dtp_arena_destroy(a);
}

static void test_at_least(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_plan plan[MOST];
    size_t chosen[MOST], n = make(plan);
    CU_ASSERT_EQUAL(dtp_plan_cover(a, plan, n, n - 1, chosen), n - 1);
    CU_ASSERT_EQUAL(dtp_plan_cover(a, plan, n, n + 9, chosen), n);
    CU_ASSERT_EQUAL(dtp_plan_cover(a, plan, 1, 24, chosen), 1);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"every pair", test_every_pair},
                           {"order", test_order},
                           {"at least", test_at_least},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"cover", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
