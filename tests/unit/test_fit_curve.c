/* Fits: known curves come back, limits hold, and the committed curves follow from the sweeps. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/sweeps.h"
#include "sim/base/units.h"
#include "tests/suites.h"

#define DATA "../shared/hw"
#define SIX_DIGITS 1e-5

static struct dtp_arena *a;

static int setup(void) {
    a = dtp_arena_create("test_fit_curve");
    return a == NULL;
}

static int teardown(void) {
    dtp_arena_destroy(a);
    return 0;
}

static bool near(double x, double y) {
    return fabs(x - y) <= SIX_DIGITS * fabs(y) + 1e-18;
}

/* Points of t = A + B sqrt(s) + C s at powers of two. */
static size_t points(double A, double B, double C, struct dtp_point *p) {
    size_t n = 0;
    for (double s = DTP_KIB; s <= DTP_GIB; s *= 2)
        p[n++] = (struct dtp_point){s, A + B * sqrt(s) + C * s};
    return n;
}

static void test_exact(void) {
    struct dtp_point p[64];
    struct dtp_curve c = {0};
    struct dtp_err err = {0};
    const double none[3] = {0, 0, 0};
    size_t n = points(30e-6, 1e-8, 5e-12, p);
    CU_ASSERT_EQUAL(dtp_fit_curve(a, p, n, none, &c, &err), DTP_OK);
    CU_ASSERT(near(c.a_s, 30e-6) && near(c.b_s_per_sqrt_byte, 1e-8) && near(c.c_s_per_byte, 5e-12));
    CU_ASSERT(c.mean_error < SIX_DIGITS);
    CU_ASSERT_EQUAL(c.points, (int)n);
    CU_ASSERT_EQUAL(dtp_fit_curve(a, p, 0, none, &c, &err), DTP_EINPUT);
}

/* No negative term, and no link faster than it is. */
static void test_limits(void) {
    struct dtp_point p[64];
    struct dtp_curve c = {0};
    struct dtp_err err = {0};
    const double floor[3] = {0, 0, 8e-12};
    size_t n = points(30e-6, -1e-9, 5e-12, p);
    CU_ASSERT_EQUAL(dtp_fit_curve(a, p, n, floor, &c, &err), DTP_OK);
    CU_ASSERT(c.a_s >= 0 && c.b_s_per_sqrt_byte >= 0);
    CU_ASSERT_EQUAL(c.c_s_per_byte, 8e-12);
    const double latency[3] = {50e-6, 0, 0};
    CU_ASSERT_EQUAL(dtp_fit_curve(a, p, n, latency, &c, &err), DTP_OK);
    CU_ASSERT(c.a_s >= 50e-6);
}

static const struct dtp_curve *committed(const struct dtp_cluster *c, const struct dtp_sweep *s) {
    for (int i = 0; i < c->ncurves; i++)
        if (c->curve[i].collective == (int)s->collective && c->curve[i].gpus == s->gpus &&
            c->curve[i].nodes == s->nodes)
            return &c->curve[i];
    return NULL;
}

/* Anyone can redo hw/curves. */
static void test_committed(void) {
    size_t nsweeps = 0;
    const struct dtp_sweep *s = dtp_sweeps(&nsweeps);
    FILE *f = fopen(DATA "/collectives.csv", "r");
    if (!f) {
        printf("skipped: no %s\n", DATA);
        return;
    }
    fclose(f);
    for (size_t i = 0; i < nsweeps; i++) {
        struct dtp_cluster c;
        struct dtp_point *p = NULL;
        struct dtp_curve k = {0};
        struct dtp_err err = {0};
        size_t n = 0;
        const double least[3] = {s[i].least_s, 0,
                                 dtp_busbw_factor(s[i].collective, s[i].gpus) /
                                     s[i].busbw_limit_bytes_per_s};
        if (i % 5 != 0) /* each reads its CSV file again */
            continue;
        CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, s[i].cluster, &c, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_sweep_read(a, DATA, &s[i], &p, &n, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_fit_curve(a, p, n, least, &k, &err), DTP_OK);
        const struct dtp_curve *stored = committed(&c, &s[i]);
        CU_ASSERT(stored != NULL);
        if (!stored)
            continue;
        CU_ASSERT(near(stored->a_s, k.a_s));
        CU_ASSERT(near(stored->b_s_per_sqrt_byte, k.b_s_per_sqrt_byte));
        CU_ASSERT(near(stored->c_s_per_byte, k.c_s_per_byte));
        CU_ASSERT_EQUAL(stored->points, (int)n);
    }
}

/* The factors in hw/nccl are those of the fit, rounded. */
static void test_factors(void) {
    struct dtp_cluster c;
    struct dtp_nccl_correction k[DTP_NCORRECTIONS];
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, "a100", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_fit_correction(a, k, &err), DTP_OK);
    for (int i = 0; i < DTP_NCORRECTIONS; i++) {
        const struct dtp_nccl_correction *stored = &c.nccl_model->correction[i];
        CU_ASSERT_DOUBLE_EQUAL(stored->latency, k[i].latency, 0.01);
        CU_ASSERT_DOUBLE_EQUAL(stored->mixed, k[i].mixed, 0.01);
        CU_ASSERT_DOUBLE_EQUAL(stored->bandwidth, k[i].bandwidth, 0.01);
        CU_ASSERT_DOUBLE_EQUAL(stored->mean_error, k[i].mean_error, 0.005);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"a known curve comes back", test_exact},
                           {"limits of the terms", test_limits},
                           {"committed curves from the sweeps", test_committed},
                           {"committed factors from the curves", test_factors},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"fit_curve", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
