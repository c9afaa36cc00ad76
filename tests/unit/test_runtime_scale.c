/* Loss scaling, on the CPU: what fp16 needs, in numbers that have room for any scale. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/runtime_cases.h"
#include "tests/suites.h"

enum { STEPS = 8 };

static struct dtp_arena *arena;
static struct dtp_model model;

static struct dtp_run_result train(const struct dtp_run_options *o) {
    struct dtp_run_result r = {0};
    struct dtp_err err = {0};
    enum dtp_status status = dtp_run(arena, o, &r, &err);
    if (status != DTP_OK)
        printf("\n    %s\n", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    return r;
}

static struct dtp_run_options options(int tp, int pp, int dp) {
    struct dtp_run_options o = tiny_options(&model);
    o.plan = with_degrees(o.plan, tp, pp, dp);
    o.steps = STEPS;
    return o;
}

/* A power of two changes no bit of an fp32 number, so none of the losses. */
static void test_a_scale_changes_nothing(void) {
    for (int zero = 0; zero <= 3; zero += 3) {
        struct dtp_run_options o = options(1, 2, 2);
        o.plan.zero_stage = zero;
        struct dtp_run_result plain = train(&o);
        o.loss_scale = 1024;
        struct dtp_run_result scaled = train(&o);
        CU_ASSERT_EQUAL(memcmp(plain.loss, scaled.loss, STEPS * sizeof *plain.loss), 0);
        CU_ASSERT_EQUAL(scaled.skipped_steps, 0);
        CU_ASSERT_EQUAL(scaled.loss_scale, 1024);
        CU_ASSERT_EQUAL(plain.loss_scale, 1);
    }
}

/* Squares of these gradients overflow: nothing is learned, on any rank, until the scale has been halved
 * often enough; then the run goes on as one with that scale and without the lost steps' updates. */
static void test_overflow_skips_steps(void) {
    const double first = 0x1p68;
    struct dtp_run_options o = options(2, 2, 1);
    o.loss_scale = first;
    struct dtp_run_result r = train(&o);
    CU_ASSERT(r.skipped_steps > 0 && r.skipped_steps < STEPS - 1);
    CU_ASSERT_EQUAL(r.loss_scale, ldexp(first, -r.skipped_steps));
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT(isfinite(r.loss[i]));
    o = options(1, 1, 1);
    o.loss_scale = first;
    struct dtp_run_result serial = train(&o);
    CU_ASSERT_EQUAL(serial.skipped_steps, r.skipped_steps);
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT_DOUBLE_EQUAL(serial.loss[i], r.loss[i], 5e-6);
    /* the same data and no learning: the loss of the first step but for the data */
    o.loss_scale = 0;
    o.lr = o.min_lr = 0;
    struct dtp_run_result still = train(&o);
    for (int i = 0; i <= serial.skipped_steps; i++)
        CU_ASSERT_EQUAL(serial.loss[i], still.loss[i]);
    CU_ASSERT(serial.loss[STEPS - 1] < still.loss[STEPS - 1]);
}

static void test_resume_knows_the_scale(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = options(1, 1, 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.loss_scale = 0x1p68;
    struct dtp_run_result whole = train(&o);
    o.save = folder;
    o.steps = STEPS / 2;
    (void)train(&o);
    o.save = NULL;
    o.resume = folder;
    o.steps = STEPS;
    o.loss_scale = 2; /* the checkpoint knows better */
    struct dtp_run_result rest = train(&o);
    CU_ASSERT_EQUAL(rest.loss_scale, whole.loss_scale);
    CU_ASSERT_EQUAL(memcmp(rest.loss, whole.loss + STEPS / 2, STEPS / 2 * sizeof *rest.loss), 0);
    remove_tree(folder);
}

static void test_odd_scales_are_refused(void) {
    static const double bad[] = {-1, 3, 1e300 * 10};
    struct dtp_err err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dtp_run_options o = options(1, 1, 1);
        o.loss_scale = bad[i];
        CU_ASSERT_EQUAL(dtp_run_check(&o, &err), DTP_EINPUT);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"a scale changes nothing", test_a_scale_changes_nothing},
                           {"overflow", test_overflow_skips_steps},
                           {"resume", test_resume_knows_the_scale},
                           {"odd scales", test_odd_scales_are_refused},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"loss scale", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
