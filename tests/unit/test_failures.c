/* What interruptions leave of a run: against the formula, a simulation of it, and two published runs. */
#include "traces/jobs/failures.h"

#include <CUnit/Basic.h>
#include <math.h>

#include "sim/base/rng.h"
#include "sim/base/units.h"
#include "tests/suites.h"

/* M = 100 s on one GPU. */
static struct dtp_failures every_100_s(double restart_s, double checkpoint_s, double write_s) {
    return (struct dtp_failures){.gpu_hours_per_failure = 100 / DTP_S_PER_HOUR,
                                 .restart_s = restart_s,
                                 .checkpoint_s = checkpoint_s,
                                 .write_s = write_s};
}

static double fraction(double restart_s, double checkpoint_s, double write_s) {
    struct dtp_failures f = every_100_s(restart_s, checkpoint_s, write_s);
    return dtp_goodput(&f, 1, 1).fraction;
}

static void test_growth(void) {
    static const double x[] = {0, 1e-9, 0.02, 0.5, 0.51, 1, 7.3, 40, 700};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        CU_ASSERT_DOUBLE_EQUAL(dtp_growth(x[i]), expm1(x[i]), 1e-12 * expm1(x[i]));
    CU_ASSERT(isinf(dtp_growth(1e6)));
}

static void test_formula(void) {
    CU_ASSERT_DOUBLE_EQUAL(fraction(0, 20, 5), 20 / (100 * expm1(0.25)), 1e-14);
    CU_ASSERT_DOUBLE_EQUAL(fraction(30, 20, 5), 20 / (100 * exp(0.3) * expm1(0.25)), 1e-14);
    CU_ASSERT_DOUBLE_EQUAL(fraction(30, 0, 0), exp(-0.3),
                           1e-14); /* nothing is lost but the restart */
    CU_ASSERT(fraction(0, 1e6, 1) == 0);
}

/* The interval that is chosen: as in the header, and no other is better by more than a thousandth. */
static void test_best_interval(void) {
    struct dtp_failures f = every_100_s(0, 0, 2);
    struct dtp_goodput g = dtp_goodput(&f, 1, 1);
    CU_ASSERT_DOUBLE_EQUAL(g.checkpoint_s, 18.7, 0.05);
    CU_ASSERT_DOUBLE_EQUAL(g.fraction, 0.813, 0.0005);
    for (double write_s = 0.01; write_s < 400; write_s *= 3) {
        double best = fraction(10, 0, write_s);
        for (double at_s = 0.1; at_s < 1000; at_s *= 1.1)
            CU_ASSERT(fraction(10, at_s, write_s) <= best * 1.001 + 1e-4);
    }
}

/* Cycles one by one, failures drawn: an exponential time to the next one from any moment. */
static void test_simulated(void) {
    enum { CYCLES = 200000 };
    const double failure_s = 100, restart_s = 15, train_s = 30, write_s = 4;
    struct dtp_rng rng = dtp_rng_stream(1, 2);
    double wall_s = 0;
    for (int i = 0; i < CYCLES; i++) {
        double need_s = train_s + write_s;
        for (;;) { /* after a failure the restart and the cycle again */
            double next_s = -failure_s * log(1 - dtp_rng_uniform(&rng));
            if (next_s >= need_s)
                break;
            wall_s += next_s;
            need_s = restart_s + train_s + write_s;
        }
        wall_s += need_s;
    }
    CU_ASSERT_DOUBLE_EQUAL(fraction(restart_s, train_s, write_s), CYCLES * train_s / wall_s, 0.003);
}

/* Llama Team 2024, section 3.3: more than 90 % effective on 16,384 GPUs; Jiang et al. 2024 (MegaScale): more than
 * 90 % on 12,288. BLOOM's 384 GPUs failed about once a week. */
static void test_published(void) {
    struct dtp_arena *a = dtp_arena_create("failures");
    struct dtp_failures f;
    CU_ASSERT_EQUAL_FATAL(dtp_failures_load(a, &f, NULL), DTP_OK);
    f.checkpoint_s = 0;
    double llama = dtp_goodput(&f, 405e9, 16384).fraction,
           megascale = dtp_goodput(&f, 175e9, 12288).fraction;
    CU_ASSERT(llama > 0.9 && llama < 0.95);
    CU_ASSERT(megascale > llama && megascale < 0.97);
    struct dtp_goodput bloom = dtp_goodput(&f, 176e9, 384);
    CU_ASSERT(bloom.failure_s > 4 * DTP_S_PER_DAY && bloom.failure_s < 8 * DTP_S_PER_DAY);
    CU_ASSERT(bloom.write_s > 40 && bloom.write_s < 80); /* 40 s measured */
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"e^x - 1", test_growth},
                           {"formula", test_formula},
                           {"best interval", test_best_interval},
                           {"simulated", test_simulated},
                           {"published runs", test_published},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"goodput", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
