/* Times of our own kernels on GPUs: read, applied to a cluster, refused where there are none. */
#include <CUnit/Basic.h>
#include <string.h>

#include "hw/own_times.h"
#include "planner/setup.h"
#include "tests/suites.h"

static struct dtp_arena *a;

static enum dtp_status set_up(const char *cluster, struct dtp_setup *out, struct dtp_err *err) {
    const struct dtp_ask ask = {.model = "gpt3-1.3b",
                                .cluster = cluster,
                                .framework = "dtplan",
                                .gpus = 8,
                                .batch = 32,
                                .dtype = -1,
                                .attention = -1};
    return dtp_setup_init(a, &ask, out, err);
}

static void test_legal_where_measured(void) {
    struct dtp_setup *h200 = DTP_NEW(a, struct dtp_setup, 1),
                     *h100 = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_setup *a100 = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", h200, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(h200->framework.name, "dtplan-cuda");
    CU_ASSERT_EQUAL(h200->problem.dtype, DTP_BF16);
    CU_ASSERT(h200->framework.launch_s > 0 && !h200->cluster.gpu.not_calibrated);
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h100", h100, &err), DTP_OK);
    CU_ASSERT(h100->cluster.gpu.not_calibrated);
    double faster = h200->cluster.gpu.kernel[DTP_K_NORM].bytes_per_s /
                    h100->cluster.gpu.kernel[DTP_K_NORM].bytes_per_s;
    CU_ASSERT_DOUBLE_EQUAL(
        faster, h200->cluster.gpu.hbm_bytes_per_s / h100->cluster.gpu.hbm_bytes_per_s, 1e-9);
    CU_ASSERT_EQUAL(set_up("dgx-a100-80", a100, &err), DTP_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "calibrate --backend cuda"));
}

/* At the points the time is what was measured, whatever the formula says. */
static void test_points(void) {
    struct dtp_cluster c;
    struct dtp_own_times t;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, "hgx-h200", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_own_times_read(a, dtp_own_times_path(a, "h200"), &t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_own_times_apply(a, &t, &c, &err), DTP_OK);
    const struct dtp_time_table *table = &c.gpu.table[DTP_TABLE_GEMM_FORWARD];
    size_t ny = table->axis[1].n, nz = table->axis[2].n;
    for (size_t i = 0; i < table->time_s.n; i += 37) {
        const struct dtp_gemm s = {.dtype = DTP_BF16,
                                   .m = (int64_t)table->axis[0].at[i / nz / ny],
                                   .n = (int64_t)table->axis[1].at[i / nz % ny],
                                   .k = (int64_t)table->axis[2].at[i % nz],
                                   .batch = 1};
        CU_ASSERT_DOUBLE_EQUAL(dtp_device_gemm_s(&c.gpu, &s) / table->time_s.at[i], 1, 1e-9);
    }
    CU_ASSERT(c.ncurves > 4 && c.curve[0].gpus == 2);
    CU_ASSERT_EQUAL(dtp_cluster_load(a, "hgx-h100", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_own_times_apply(a, &t, &c, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NULL(dtp_own_times_path(a, "no-such-gpu"));
}

int main(void) {
    CU_TestInfo tests[] = {{"legal where measured", test_legal_where_measured},
                           {"points", test_points},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"times of our own kernels", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    a = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(a);
    return status;
}
