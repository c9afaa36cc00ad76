/* Measured tables: exact at their points and for what is linear in each coordinate. */
#include <CUnit/Basic.h>
#include <string.h>

#include "hw/device.h"
#include "tests/suites.h"

static const double tolerance = 1e-12;

/* t = 2 m n k on a grid of 2 x 3 x 2. */
static struct dtp_time_table product_table(double *axes, double *times) {
    const double m[] = {32, 64}, n[] = {16, 32, 128}, k[] = {8, 64};
    struct dtp_time_table t = {.axis = {{axes, 2}, {axes + 2, 3}, {axes + 5, 2}},
                               .time_s = {times, 12}};
    for (int i = 0; i < 12; i++) {
        int x = i / 6, y = i / 2 % 3, z = i % 2;
        axes[x] = m[x];
        axes[2 + y] = n[y];
        axes[5 + z] = k[z];
        times[i] = 2 * m[x] * n[y] * k[z];
    }
    return t;
}

static void check_at(double m, double n, double k) {
    double axes[7], times[12];
    struct dtp_time_table t = product_table(axes, times);
    double got = dtp_table_time_s(&t, (const double[3]){m, n, k}), expected = 2 * m * n * k;
    CU_ASSERT_DOUBLE_EQUAL(got / expected, 1, tolerance);
}

static void test_points(void) {
    check_at(32, 16, 8);
    check_at(64, 128, 64);
    check_at(32, 32, 64);
}

static void test_between(void) {
    check_at(40, 20, 13);
    check_at(63, 100, 9);
}

/* In proportion beyond the grid, in every direction. */
static void test_beyond(void) {
    check_at(640, 1280, 6400);
    check_at(1, 1, 1);
    check_at(48, 1024, 4);
}

static void test_read(void) {
    static const char good[] = "[{\"kernel\": \"attention_forward\", \"x\": [16, 32], \"y\": [8], "
                               "\"z\": [1], \"time_s\": [1, 3], \"clock\": [0.9, 0.8]}]";
    static const char *const bad[] = {
        "[{\"kernel\": \"attention_forward\", \"x\": [32, 16], \"y\": [8], \"z\": [1], "
        "\"time_s\": [1, 3]}]",
        "[{\"kernel\": \"attention_forward\", \"x\": [16, 32], \"y\": [8], \"z\": [1], "
        "\"time_s\": [1]}]",
        "[{\"kernel\": \"attention_forward\", \"x\": [16, 32], \"y\": [8], \"z\": [1], "
        "\"time_s\": [1, 3], \"clock\": [0.9]}]",
        "[{\"kernel\": \"sort\", \"x\": [16], \"y\": [8], \"z\": [1], \"time_s\": [1]}]", "{}"};
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_time_table tables[DTP_NTABLES] = {0};
    const struct dtp_json *j;
    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(a, "good", good, sizeof good - 1, &j, NULL), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_tables_read(a, j, tables, NULL), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(
        dtp_table_time_s(&tables[DTP_TABLE_ATTENTION_FORWARD], (const double[3]){24, 8, 1}), 2,
        tolerance);
    static const double clocks[][2] = {{8, 0.9}, {16, 0.9}, {24, 0.85}, {32, 0.8}, {99, 0.8}};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
        CU_ASSERT_DOUBLE_EQUAL(dtp_table_clock(&tables[DTP_TABLE_ATTENTION_FORWARD],
                                               (const double[3]){clocks[i][0], 8, 1}),
                               clocks[i][1], tolerance);
    CU_ASSERT_EQUAL(dtp_table_clock(&tables[DTP_TABLE_GEMM_FORWARD], (const double[3]){8, 8, 1}),
                    1);
    CU_ASSERT_EQUAL(tables[DTP_TABLE_GEMM_FORWARD].time_s.n, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL_FATAL(dtp_json_parse(a, "bad", bad[i], strlen(bad[i]), &j, NULL), DTP_OK);
        CU_ASSERT_EQUAL(dtp_tables_read(a, j, tables, NULL), DTP_EINPUT);
    }
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"points", test_points},
                           {"between points", test_between},
                           {"beyond the grid", test_beyond},
                           {"read", test_read},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"tables", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
