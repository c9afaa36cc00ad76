/* The sweep of a device, on the CPU's table with a grid of a few points: every entry is there, and large
 * products that do not fit are scaled from smaller ones. */
#include <CUnit/Basic.h>
#include <string.h>

#include "runtime/measure/measure.h"
#include "tests/suites.h"

static const int tokens[] = {16, 32, 0}, width[] = {16, 64, 1024, 0}, seq[] = {16, 32, 0};
static const int head_dim[] = {16, 0}, heads[] = {4, 16, 0};
static const int gelu[] = {16, 64, 0}, rows[] = {16, 64, 0}, cols[] = {64, 128, 0};
static const int64_t bytes[] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 0};

static struct dtp_measure_grid small_grid(void) {
    return (struct dtp_measure_grid){.dtype = DTP_FP32,
                                     .tokens = tokens,
                                     .width = width,
                                     .seq = seq,
                                     .head_dim = head_dim,
                                     .heads = heads,
                                     .gelu_n = gelu,
                                     .gelu_k = gelu,
                                     .rows = rows,
                                     .cols = cols,
                                     .class_rows = 64,
                                     .class_cols = 128,
                                     .memory_bytes = UINT64_C(1) << 25,
                                     .most_bytes = UINT64_C(1) << 20,
                                     .bytes = bytes,
                                     .target_s = 2e-5};
}

static void check_table(const struct dtp_time_table *t, size_t n, bool relative) {
    CU_ASSERT_EQUAL(t->time_s.n, n);
    CU_ASSERT_EQUAL(t->relative, relative);
    for (size_t i = 0; i < t->time_s.n; i++)
        CU_ASSERT(t->time_s.at[i] >= 0 && t->time_s.at[i] < 1);
}

static void test_sweep(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measure_grid grid = small_grid();
    struct dtp_measured m;
    struct dtp_err err = {0};
    o.nranks = 2;
    CU_ASSERT_EQUAL_FATAL(dtp_measure_device(a, &o, &grid, &m, &err), DTP_OK);
    check_table(&m.table[DTP_TABLE_GEMM_FORWARD], 2 * 3 * 3, true);
    check_table(&m.table[DTP_TABLE_GEMM_WGRAD], 3 * 3 * 2, true);
    check_table(&m.table[DTP_TABLE_GEMM_DGRAD_GELU], 2 * 2 * 2, true);
    check_table(&m.table[DTP_TABLE_ATTENTION_BACKWARD], 2 * 1 * 2, true);
    check_table(&m.table[DTP_TABLE_KERNEL + DTP_K_NORM_BACKWARD], 2 * 2, false);
    check_table(&m.table[DTP_TABLE_KERNEL + DTP_K_OPTIMIZER], 0, false);
    const struct dtp_doubles *forward = &m.table[DTP_TABLE_GEMM_FORWARD].time_s;
    CU_ASSERT(forward->at[0] > 0);
    /* 1024 x 1024 weights are over the limit of one operand: 16 times the time of 64 */
    CU_ASSERT_DOUBLE_EQUAL(forward->at[8], forward->at[7] * 1024 / 64, 1e-12);
    CU_ASSERT(m.elements_per_s[DTP_K_NORM] > 0 && m.elements_per_s[DTP_K_OPTIMIZER] > 0);
    CU_ASSERT(m.launch_s > 0 && m.copy_bytes_per_s > 0);
    CU_ASSERT(strlen(m.about.card) > 0 && strlen(m.about.versions) > 0);
    CU_ASSERT_EQUAL(m.ncurves, 4);
    for (int i = 0; i < m.ncurves; i++)
        CU_ASSERT(m.curve[i].gpus == 2 && m.curve[i].c_s_per_byte >= 0);
    dtp_arena_destroy(a);
}

/* Both halves of a word are numbers of either sign and of many magnitudes, as activations are. */
static void test_fill(void) {
    enum { WORDS = 1 << 16, MAGNITUDES = 9 };
    int negative = 0, seen[1 << 8] = {0}, magnitudes = 0;
    for (uint64_t i = 0; i < WORDS; i++)
        for (int half = 0; half < 32; half += 16) {
            uint32_t x = dtp_dev_fill_word(i) >> half & 0xffffU;
            negative += (int)(x >> 15);
            seen[x >> 7 & 0xffU]++;
        }
    for (int i = 0; i < 1 << 8; i++)
        magnitudes += seen[i] > 0;
    CU_ASSERT_EQUAL(magnitudes, MAGNITUDES); /* 2^-6, half as many 2^-7, ... */
    CU_ASSERT(seen[0x79] > 0.49 * 2 * WORDS && seen[0x79] < 0.51 * 2 * WORDS);
    CU_ASSERT(negative > 0.49 * 2 * WORDS && negative < 0.51 * 2 * WORDS);
}

static void test_about(void) {
    struct dtp_dev_about about;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_measure_about("cpu", &about, &err), DTP_OK);
    CU_ASSERT(strlen(about.card) > 0);
    CU_ASSERT_NOT_EQUAL(dtp_measure_about("no such", &about, &err), DTP_OK);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"sweep", test_sweep}, {"about", test_about}, {"fill", test_fill}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"measuring a device", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
