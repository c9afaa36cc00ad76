/* Random streams: known values, independence of the order of drawing, ranges and moments. */
#include "sim/base/rng.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <math.h>

/* xoshiro256** from the state {1, 2, 3, 4}: 1 x 5 = 5 is not used, s[1] x 5 = 10 is; the first
 * values follow by hand: rotl(10, 7) x 9 = 11520, then s[1] = 0 gives 0, then ... */
static void test_first_values_by_hand(void) {
    struct dtp_rng r = {{1, 2, 3, 4}};
    CU_ASSERT_EQUAL(dtp_rng_next(&r), 11520);
    CU_ASSERT_EQUAL(dtp_rng_next(&r), 0);
    CU_ASSERT_EQUAL(dtp_rng_next(&r), 1509978240);
    CU_ASSERT_EQUAL(dtp_rng_next(&r), UINT64_C(1215971899390074240));
}

static void test_streams_do_not_depend_on_each_other(void) {
    struct dtp_rng a = dtp_rng_stream(7, 1), b = dtp_rng_stream(7, 2);
    uint64_t a0 = dtp_rng_next(&a), b0 = dtp_rng_next(&b);
    struct dtp_rng b2 = dtp_rng_stream(7, 2), a2 = dtp_rng_stream(7, 1);
    CU_ASSERT_EQUAL(dtp_rng_next(&b2), b0);
    CU_ASSERT_EQUAL(dtp_rng_next(&a2), a0);
}

static void test_neighbouring_keys_differ(void) {
    enum { SIDE = 40 };
    static uint64_t seen[SIDE * SIDE];
    int n = 0;
    for (uint64_t seed = 0; seed < SIDE; seed++)
        for (uint64_t entity = 0; entity < SIDE; entity++) {
            struct dtp_rng r = dtp_rng_stream(seed, entity);
            seen[n++] = dtp_rng_next(&r);
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (seen[i] == seen[k])
                CU_FAIL("two streams start alike");
}

static void test_uniform_range_and_mean(void) {
    struct dtp_rng r = dtp_rng_stream(3, 0);
    enum { N = 200000 };
    double sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double v = dtp_rng_uniform(&r);
        if (v < 0 || v >= 1)
            CU_FAIL("outside of [0, 1)");
        sum += v;
        square += v * v;
    }
    /* five standard errors: sqrt(1/12/N) and sqrt(4/45/N) */
    CU_ASSERT_DOUBLE_EQUAL(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    CU_ASSERT_DOUBLE_EQUAL(square / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
}

static void test_below_has_no_bias(void) {
    struct dtp_rng r = dtp_rng_stream(4, 0);
    enum { N = 60000, SIDES = 6 };
    int count[SIDES] = {0};
    for (int i = 0; i < N; i++)
        count[dtp_rng_below(&r, SIDES)]++;
    double chi2 = 0, expected = (double)N / SIDES;
    for (int i = 0; i < SIDES; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    CU_ASSERT(chi2 < 20.5); /* 0.1 % of the chi-squared distribution with 5 degrees */
    CU_ASSERT_EQUAL(dtp_rng_below(&r, 1), 0);
    /* 3 x 2^62 leaves a quarter of the words over: a plain remainder would double a third */
    uint64_t n = UINT64_C(3) << 62;
    int low = 0;
    for (int i = 0; i < N; i++)
        low += dtp_rng_below(&r, n) < (UINT64_C(1) << 62);
    CU_ASSERT_DOUBLE_EQUAL((double)low / N, 1.0 / 3, 5 * sqrt(2.0 / 9 / N));
}

static CU_TestInfo tests[] = {
    {"first values by hand", test_first_values_by_hand},
    {"streams are independent", test_streams_do_not_depend_on_each_other},
    {"neighbouring keys differ", test_neighbouring_keys_differ},
    {"uniform", test_uniform_range_and_mean},
    {"below", test_below_has_no_bias},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"rng", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
