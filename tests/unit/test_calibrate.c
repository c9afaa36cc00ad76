/* Calibration: constants of a made-up chip come back from its own sweep. */
#include "hw/calibrate.h"
#include "hw/calibrate_internal.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/rng.h"
#include "sim/base/text.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_err err;
static const double one_percent = 0.01;

static struct dtp_gpu truth(void) {
    struct dtp_gpu g = {.name = "t",
                        .num_sms = 100,
                        .l2_bytes = 1 << 25,
                        .hbm_bytes_per_s = 2e12,
                        .stream_bytes_per_s = 1.8e12,
                        .sustained = 1,
                        .kernel_gap_s = 2e-6};

    g.peak_flops_per_s[DTP_FP16] = g.peak_flops_per_s[DTP_BF16] = 400e12;
    g.peak_flops_per_s[DTP_FP8] = 800e12;
    g.gemm[DTP_BF16] = (struct dtp_gemm_cal){3.2e12, 2.5e-6, 0.25, 0.6, 1.05, 1.02, 0, 0};
    g.gemm[DTP_FP8] = g.gemm[DTP_BF16];
    g.gemm[DTP_FP8].sm_flops_per_s = 6.1e12;
    for (int k = 0; k < DTP_NKERNELS; k++)
        g.kernel[k].bytes_per_s = 1.8e12;
    g.kernel[DTP_K_NORM].bytes_per_s = 1.2e12;
    g.kernel[DTP_K_NORM_BACKWARD].bytes_per_s = 0.9e12;
    g.attention[DTP_ATTN_FLASH2] = (struct dtp_attention_cal){250e12, 200, 0.8, 0.85, 0.92, 0.5};
    return g;
}

/* The same chip with constants that are 20 to 40 % off. */
static struct dtp_gpu guess(void) {
    struct dtp_gpu g = truth();

    g.gemm[DTP_BF16] = (struct dtp_gemm_cal){2.4e12, 4e-6, 0.4, 0.3, 1, 1, 0, 0};
    g.gemm[DTP_FP8] = (struct dtp_gemm_cal){4.5e12, 4e-6, 0.4, 0.3, 1, 1, 0, 0};
    g.kernel[DTP_K_NORM].bytes_per_s = 1.6e12;
    g.kernel[DTP_K_NORM_BACKWARD].bytes_per_s = 1.6e12;
    g.attention[DTP_ATTN_FLASH2] = (struct dtp_attention_cal){180e12, 300, 0.75, 1, 1, 0.8};
    return g;
}

static struct dtp_cal_row *add(struct dtp_cal_rows *rows, enum dtp_cal_kind kind) {
    struct dtp_cal_row *r = &rows->at[rows->n++];

    *r = (struct dtp_cal_row){.kind = kind};
    return r;
}

/* n GEMMs of mixed sizes, timed by the true chip plus a host time. */
static void add_gemms(struct dtp_cal_rows *rows, const struct dtp_gpu *g, enum dtp_dtype dtype,
                      size_t n, double host_s) {
    struct dtp_rng r = dtp_rng_stream(5, dtype);

    for (size_t i = 0; i < n; i++) {
        struct dtp_cal_row *row = add(rows, DTP_CAL_GEMM);

        row->gemm = (struct dtp_gemm){dtype,
                                      (enum dtp_gemm_pass)(i % 3),
                                      256 * (1 + (int64_t)dtp_rng_below(&r, 40)),
                                      128 * (1 + (int64_t)dtp_rng_below(&r, 60)),
                                      128 * (4 + (int64_t)dtp_rng_below(&r, 60)),
                                      1};
        row->time_s = dtp_device_gemm_s(g, &row->gemm) + host_s;
    }
}

static struct dtp_cal_rows new_rows(void) {
    struct dtp_cal_rows rows = {.at = DTP_NEW(arena, struct dtp_cal_row, 2000),
                                .capacity = 2000,
                                .sources = {"made up"},
                                .nsources = 1};

    return rows;
}

#define NEAR(found, expected) CU_ASSERT(fabs((found) / (expected)-1) < one_percent)

/* Six constants and 20 us of host time in each row, the latter of no interest. */
static void test_gemm_recovered(void) {
    struct dtp_gpu t = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {.keep_sustained = true};

    add_gemms(&rows, &t, DTP_BF16, 400, 20e-6);
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_gemm(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.gemm[DTP_BF16].sm_flops_per_s, 3.2e12);
    NEAR(g.gemm[DTP_BF16].tile_s, 2.5e-6);
    NEAR(g.gemm[DTP_BF16].tail, 0.25);
    NEAR(g.gemm[DTP_BF16].small_tile, 0.6);
    NEAR(g.gemm[DTP_BF16].wgrad_factor, 1.05);
    NEAR(g.gemm[DTP_BF16].dgrad_factor, 1.02);
    NEAR(g.gemm[DTP_FP16].sm_flops_per_s, 3.2e12);
    CU_ASSERT_EQUAL_FATAL(result.n, 1);
    CU_ASSERT_STRING_EQUAL(result.classes[0].name, "gemm.bf16");
    CU_ASSERT_EQUAL(result.classes[0].rows, 400);
    CU_ASSERT(result.classes[0].p90 < one_percent);
}

/* Few FP8 rows: the rate only, the shape constants are those of 16 bit. */
static void test_fp8_takes_shape_constants(void) {
    struct dtp_gpu t = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {.keep_sustained = true};

    add_gemms(&rows, &t, DTP_BF16, 300, 0);
    add_gemms(&rows, &t, DTP_FP8, 12, 0);
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_gemm(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.gemm[DTP_FP8].sm_flops_per_s, 6.1e12);
    NEAR(g.gemm[DTP_FP8].wgrad_factor, 1.05);
    NEAR(g.gemm[DTP_FP8].tail, 0.25);
}

/* Every tenth row is a kernel that the library chose badly, twice as slow: no constant moves much,
 * as it would by 7 % in least squares. */
static void test_outliers_do_not_pull(void) {
    struct dtp_gpu t = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {.keep_sustained = true};

    add_gemms(&rows, &t, DTP_BF16, 400, 0);
    for (size_t i = 0; i < rows.n; i += 10)
        rows.at[i].time_s *= 2;
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_gemm(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.gemm[DTP_BF16].sm_flops_per_s, 3.2e12);
    CU_ASSERT(result.classes[0].median < one_percent);
    CU_ASSERT(result.classes[0].bias < -0.05);
}

/* The chip slows by up to 15 % under the load of the sweep: rate and `sustained` come apart. */
static void test_load_recovered(void) {
    struct dtp_gpu t = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {0};

    add_gemms(&rows, &t, DTP_BF16, 600, 0);
    for (size_t i = 0; i < rows.n; i++)
        rows.at[i].time_s *= 1 + 0.15 * rows.at[i].time_s / (rows.at[i].time_s + 1.5e-4);
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_gemm(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.gemm[DTP_BF16].sm_flops_per_s, 3.2e12);
    NEAR(g.sustained, 1.15);
}

/* Rows of another part of the same chip, 10 % slower, teach the shape but not the rate. */
static void test_same_chip(void) {
    struct dtp_gpu t = truth(), slow = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {.keep_sustained = true};

    slow.gemm[DTP_BF16].sm_flops_per_s *= 0.9;
    rows.sources[rows.nsources++] = "other part";
    add_gemms(&rows, &slow, DTP_BF16, 300, 5e-6);
    for (size_t i = 0; i < rows.n; i++) {
        rows.at[i].source = 1;
        rows.at[i].same_chip = true;
    }
    add_gemms(&rows, &t, DTP_BF16, 20, 2e-6);
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_gemm(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.gemm[DTP_BF16].sm_flops_per_s, 3.2e12);

    NEAR(g.gemm[DTP_BF16].tile_s, 2.5e-6);
}

static void test_attention_recovered(void) {
    struct dtp_gpu t = truth(), g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {0};

    for (int i = 0; i < 144; i++) {
        struct dtp_cal_row *r = add(&rows, DTP_CAL_ATTENTION);
        int64_t seq = 1024 << (i / 2 % 4);
        struct dtp_attention_shape *s = &r->attention;

        *s = (struct dtp_attention_shape){
            DTP_BF16, DTP_ATTN_FLASH2,      i % 2, false, 1 + i / 8 % 3, 32, 32, seq,
            seq,      i / 24 % 2 ? 128 : 64};
        r->part = i / 48 == 1 ? DTP_CAL_BOTH : i / 48 ? DTP_CAL_BACKWARD : DTP_CAL_FORWARD;
        r->time_s = r->part != DTP_CAL_BACKWARD ? dtp_device_attention_s(&t, s) : 0;
        s->backward = true;
        r->time_s += r->part != DTP_CAL_FORWARD ? dtp_device_attention_s(&t, s) : 0;
        s->backward = false;
    }
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_attention(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.attention[DTP_ATTN_FLASH2].flops_per_s, 250e12);
    NEAR(g.attention[DTP_ATTN_FLASH2].half_seq, 200);
    NEAR(g.attention[DTP_ATTN_FLASH2].backward_factor, 0.8);
    NEAR(g.attention[DTP_ATTN_FLASH2].head_dim_factor_64, 0.85);
    NEAR(g.attention[DTP_ATTN_FLASH2].causal_factor, 0.92);
    NEAR(g.attention[DTP_ATTN_FLASH2].tail_blocks, 0.5);
    CU_ASSERT(g.attention[DTP_ATTN_FLASH3].flops_per_s <= 0); /* no rows, no constants */
}

/* Forward rows, then rows of both: the backward class is what is left. Small rows sit in the cache
 * and run ten times as fast; they must not count. */
static void test_kernels_recovered(void) {
    struct dtp_gpu g = guess();
    struct dtp_cal_rows rows = new_rows();
    struct dtp_cal_result result = {0};

    for (int i = 0; i < 10; i++) {
        double bytes = 1e6 * (double)(1 << i), in_cache = bytes < (1 << 25) ? 0.1 : 1;
        struct dtp_cal_row *r = add(&rows, DTP_CAL_KERNEL);

        r->kernel = DTP_K_NORM;
        r->bytes = bytes;
        r->time_s = in_cache * bytes / 1.2e12 + 2e-6;
        r = add(&rows, DTP_CAL_KERNEL);
        r->part = DTP_CAL_BOTH;
        r->kernel = DTP_K_NORM;
        r->backward_kernel = DTP_K_NORM_BACKWARD;
        r->bytes = bytes;
        r->backward_bytes = 2.5 * bytes;
        r->time_s = bytes / 1.2e12 + 2.5 * bytes / 0.9e12 + 4e-6;
    }
    CU_ASSERT_EQUAL_FATAL(dtp_calibrate_kernels(arena, &rows, &g, &result, &err), DTP_OK);
    NEAR(g.kernel[DTP_K_NORM].bytes_per_s, 1.2e12);
    NEAR(g.kernel[DTP_K_NORM_BACKWARD].bytes_per_s, 0.9e12);
    NEAR(g.kernel[DTP_K_COPY].bytes_per_s, 1.8e12);
}

int main(void) {
    CU_TestInfo fit[] = {
        {"GEMM", test_gemm_recovered},           {"FP8", test_fp8_takes_shape_constants},
        {"outliers", test_outliers_do_not_pull}, {"load", test_load_recovered},
        {"same chip", test_same_chip},           {"attention", test_attention_recovered},
        {"kernels", test_kernels_recovered},     CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"fit", NULL, NULL, NULL, NULL, fit}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
