/* Plans one after another in the same processes: each gives what it gives alone, and a failure costs its
 * own run only. */
#include <CUnit/Basic.h>
#include <string.h>

#include "tests/runtime_cases.h"
#include "tests/suites.h"

enum { PLANS = 4, RANKS = 2, STEPS = 3, FAILS = 2 };

struct seen {
    size_t next;
    double loss[PLANS][STEPS];
    uint64_t peak[PLANS][RANKS];
    char failure[PLANS][1024];
};

static void note(void *context, size_t i, const struct dtp_run_result *r,
                 const struct dtp_err *failure) {
    struct seen *s = context;
    CU_ASSERT_EQUAL(i, s->next++);
    if (failure) {
        snprintf(s->failure[i], sizeof s->failure[i], "%s", failure->msg);
        return;
    }
    memcpy(s->loss[i], r->loss, sizeof s->loss[i]);
    memcpy(s->peak[i], r->peak_bytes, sizeof s->peak[i]);
}

static void make_plans(const struct dtp_model *m, struct dtp_run_options o[PLANS]) {
    for (int i = 0; i < PLANS; i++) {
        o[i] = tiny_options(m);
        o[i].steps = STEPS;
        o[i].plan = with_degrees(o[i].plan, i == 0 ? 2 : 1, i == 1 ? 2 : 1, i > 1 ? 2 : 1);
        o[i].plan.zero_stage = i > 1 ? i : 0;
    }
}

static void test_same_as_alone(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model("gpt");
    struct dtp_run_options o[PLANS];
    struct seen s = {0};
    struct dtp_err err = {0};
    make_plans(&m, o);
    const struct dtp_run_series series = {.options = o, .n = PLANS, .done = note, .context = &s};
    CU_ASSERT_EQUAL(dtp_run_series(a, &series, &err), DTP_OK);
    CU_ASSERT_EQUAL(s.next, PLANS);
    for (int i = 0; i < PLANS; i++) {
        struct dtp_run_result r;
        CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o[i], &r, &err), DTP_OK);
        CU_ASSERT_STRING_EQUAL(s.failure[i], "");
        for (int k = 0; k < STEPS; k++)
            CU_ASSERT(s.loss[i][k] == r.loss[k]);
        for (int k = 0; k < RANKS; k++)
            CU_ASSERT_EQUAL(s.peak[i][k], r.peak_bytes[k]);
    }
    dtp_arena_destroy(a);
}

static void test_failure_costs_one_run(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model("llama");
    struct dtp_run_options o[PLANS];
    struct seen s = {0};
    struct dtp_err err = {0};
    make_plans(&m, o);
    o[FAILS].fault = DTP_FAULT_KILL;
    o[FAILS].fault_rank = 1;
    o[FAILS].fault_step = 1;
    const struct dtp_run_series series = {.options = o, .n = PLANS, .done = note, .context = &s};
    CU_ASSERT_EQUAL(dtp_run_series(a, &series, &err), DTP_OK);
    CU_ASSERT_EQUAL(s.next, PLANS);
    for (int i = 0; i < PLANS; i++) {
        CU_ASSERT_EQUAL(s.failure[i][0] != '\0', i == FAILS);
        CU_ASSERT_EQUAL(s.loss[i][STEPS - 1] > 0, i != FAILS);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(s.failure[FAILS], "rank 1 died"));
    o[0].plan.cp = 2; /* refused before it starts */
    s = (struct seen){0};
    CU_ASSERT_EQUAL(dtp_run_series(a, &series, &err), DTP_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.failure[0], "context parallelism"));
    CU_ASSERT_STRING_EQUAL(s.failure[1], "");
    dtp_arena_destroy(a);
}

/* Weights that the device makes: the same memory, finite losses. */
static void test_rough_weights(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model("gpt");
    struct dtp_run_options o[PLANS];
    struct dtp_run_result exact, rough;
    struct dtp_err err = {0};
    make_plans(&m, o);
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o[3], &exact, &err), DTP_OK);
    o[3].rough_weights = true;
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o[3], &rough, &err), DTP_OK);
    CU_ASSERT_EQUAL(rough.peak_bytes[0], exact.peak_bytes[0]);
    CU_ASSERT(rough.loss[STEPS - 1] > 0 && rough.loss[STEPS - 1] != exact.loss[STEPS - 1]);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"the same as alone", test_same_as_alone},
                           {"a failure costs one run", test_failure_costs_one_run},
                           {"rough weights", test_rough_weights},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"series of runs", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
