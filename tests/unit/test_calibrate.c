/* Calibration: constants of a made-up chip come back from its own sweep; files; real sweeps. */
#include "hw/calibrate.h"

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

/* ---- files ---- */

static const char *write_temporary(const char *suffix, const char *text) {
    const char *path =
        dtp_arena_printf(arena, "/tmp/dtp_test_calibrate_%ld%s", (long)getpid(), suffix);
    FILE *f = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static enum dtp_status read_text(const char *suffix, const char *text, struct dtp_cal_rows *rows) {
    static const char *const own[] = {"My GPU", NULL}, *const other[] = {"Its sister", NULL};
    struct dtp_cal_names names = {own, other};
    const char *path = write_temporary(suffix, text);
    enum dtp_status status = dtp_calibrate_read(arena, path, &names, rows, &err);

    remove(path);
    return status;
}

static void test_read_json(void) {
    struct dtp_cal_rows rows = {0};

    CU_ASSERT_EQUAL_FATAL(
        read_text(".json",
                  "{\"gpu\": \"My GPU\", \"driver\": \"1\", \"versions\": {}, \"rows\": ["
                  "{\"op\": \"gemm_wgrad\", \"dtype\": \"fp8\", \"m\": 1, \"n\": 2, \"k\": 3, "
                  "\"time_s\": 1},"
                  "{\"op\": \"attn_fwd_bwd\", \"backend\": \"flash\", \"b\": 1, \"a\": 2, \"s\": "
                  "3, \"hd\": 4, \"causal\": true, \"time_s\": 1},"
                  "{\"op\": \"layernorm_fwd_bwd\", \"m\": 10, \"h\": 20, \"time_s\": 1},"
                  "{\"op\": \"dropout\", \"bytes\": 500, \"time_s\": 1},"
                  "{\"op\": \"cat\", \"bytes\": 500, \"elements\": 7, \"time_s\": 1}]}",
                  &rows),
        DTP_OK);
    CU_ASSERT_EQUAL_FATAL(rows.n, 5);
    CU_ASSERT_EQUAL(rows.at[0].gemm.dtype, DTP_FP8);
    CU_ASSERT_EQUAL(rows.at[0].gemm.pass, DTP_GEMM_WGRAD);
    CU_ASSERT_EQUAL(rows.at[1].attention.impl, DTP_ATTN_FLASH2);
    CU_ASSERT_EQUAL(rows.at[1].part, DTP_CAL_BOTH);
    CU_ASSERT_EQUAL(rows.at[1].attention.kv_heads, 2);
    CU_ASSERT_EQUAL(rows.at[2].bytes, 800);
    CU_ASSERT_EQUAL(rows.at[2].backward_bytes, 2000);
    CU_ASSERT_EQUAL(rows.at[3].elements, 100);
    CU_ASSERT_EQUAL(rows.at[4].kernel, DTP_K_CAT);
    CU_ASSERT_EQUAL(rows.at[4].elements, 7);
}

/* A sweep of a busy chip: 16-bit GEMMs at the clock of load, others as timed; what a weight gradient
 * reads of its buffer apart. */
static void test_read_loaded(void) {
    struct dtp_cal_rows rows = {0};

    CU_ASSERT_EQUAL_FATAL(
        read_text(".json",
                  "{\"gpu\": \"My GPU\", \"loaded_clock_mhz\": 1000, \"clocks\": [], \"rows\": ["
                  "{\"op\": \"gemm_wgrad\", \"m\": 5, \"n\": 7, \"k\": 3, \"time_s\": 2, "
                  "\"clock_mhz\": 1500, \"accumulate\": \"fp32\"},"
                  "{\"op\": \"gemm_fwd\", \"dtype\": \"fp32\", \"m\": 5, \"n\": 7, \"k\": 3, "
                  "\"time_s\": 2, \"clock_mhz\": 1500}]}",
                  &rows),
        DTP_OK);
    CU_ASSERT_EQUAL_FATAL(rows.n, 2);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[0].time_s, 3, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[0].accumulate_bytes, 4 * 5 * 7, 1e-12);
    CU_ASSERT_TRUE(rows.at[0].loaded);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[1].time_s, 2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[1].accumulate_bytes, 0, 1e-12);
}

static void test_read_csv(void) {
    struct dtp_cal_rows rows = {0};

    CU_ASSERT_EQUAL_FATAL(
        read_text(
            ".csv",
            "gpu,dtype,m,n,k,layout,time_us,tflops,peak_tflops,efficiency,source\n"
            "My GPU,bf16,8,16,32,TN,2.5,1,1,1,A\nMy GPU,bf16,8,16,32,best-of-sweep,1,1,1,1,A\n"
            "Its sister,fp16,8,16,32,NT+acc,3,1,1,1,B\nOther,bf16,8,16,32,TN,2.5,1,1,1,A\n",
            &rows),
        DTP_OK);
    CU_ASSERT_EQUAL_FATAL(rows.n, 2);
    CU_ASSERT_EQUAL(rows.biased, 1);
    CU_ASSERT_EQUAL(rows.other_gpu, 1);
    CU_ASSERT_EQUAL(rows.nsources, 2);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[0].time_s, 2.5e-6, 1e-15);
    CU_ASSERT_FALSE(rows.at[0].same_chip);
    CU_ASSERT_TRUE(rows.at[1].same_chip);
    CU_ASSERT_EQUAL(rows.at[1].gemm.pass, DTP_GEMM_WGRAD);
    /* 16384 tokens, 2048 wide: 8 sequences of 2048, 16 heads; forward and backward 3.5 x the FLOPs */
    CU_ASSERT_EQUAL_FATAL(read_text(".csv",
                                    "gpu,impl,pass,causal,headdim,seqlen,tflops,source\n"
                                    "My GPU,FA2,fwd+bwd,1,128,2048,100,C\n",
                                    &rows),
                          DTP_OK);
    CU_ASSERT_EQUAL_FATAL(rows.n, 3);
    CU_ASSERT_EQUAL(rows.at[2].attention.heads, 16);
    CU_ASSERT_DOUBLE_EQUAL(rows.at[2].time_s, 3.5 * 2 * 16384.0 * 2048 * 2048 / 100e12, 1e-12);
}

static void test_read_errors(void) {
    struct dtp_cal_rows rows = {0};

    CU_ASSERT_EQUAL(read_text(".json",
                              "{\"gpu\": \"My GPU\", \"rows\": [{\"op\": \"gem\", \"time_s\": 1}]}",
                              &rows),
                    DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "$.rows[0].op"));
    CU_ASSERT_EQUAL(read_text(".json",
                              "{\"gpu\": \"My GPU\", \"rows\": [{\"op\": \"gemm_fwd\", \"m\": 1, "
                              "\"time_s\": 1}]}",
                              &rows),
                    DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "every dimension"));
    CU_ASSERT_EQUAL(read_text(".csv", "a,b\n1,2\n", &rows), DTP_EINPUT);
}

static bool same_text(const char *left, const char *right) {
    const char *l, *r;
    size_t nl, nr;

    return dtp_file_read(arena, left, 0, &l, &nl, &err) == DTP_OK &&
           dtp_file_read(arena, right, 0, &r, &nr, &err) == DTP_OK && nl == nr && !memcmp(l, r, nl);
}

/* Real sweeps: errors below the figures, and the rate in the repository comes back to 2 %. */
static void test_real_sweeps(void) {
    static const char *const paths[] = {"../shared/hw/h100_kernel_times.json",
                                        "../shared/hw/h200_gemm_times.json",
                                        "../shared/hw/gemm.csv", "../shared/hw/attention.csv"};
    static const struct {
        const char *gpu;
        double gemm_median, gemm_p90;
    } cases[] = {{"h100-sxm", 0.04, 0.12},
                 {"h200", 0.06, 0.15},
                 {"a100-80", 0.02, 0.13},
                 {"a100-pcie-80", 0.02, 0.13},
                 {"v100-32", 0.06, 0.15}};
    const char *out = dtp_arena_printf(arena, "/tmp/dtp_test_gpu_%ld.json", (long)getpid());

    if (access(paths[0], R_OK)) {
        printf("skipped: no %s\n", paths[0]);
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_calibrate_args args = {paths, 4, cases[i].gpu, out, NULL};
        enum dtp_dtype dtype = DTP_FP16;
        struct dtp_gpu kept, found;
        const struct dtp_json *j, *e;

        CU_ASSERT_EQUAL_FATAL(dtp_calibrate_from_files(arena, &args, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_json_read_file(arena, out, &j, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, cases[i].gpu, &kept, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_gpu_read(arena, j, &found, &err), DTP_OK);
        CU_ASSERT(fabs(found.gemm[dtype].sm_flops_per_s / found.sustained * kept.sustained /
                           kept.gemm[dtype].sm_flops_per_s -
                       1) < 2 * one_percent);
        e = dtp_json_get(dtp_json_get(j, "calibration"), "fit");
        e = dtp_json_get(e, i == 4 ? "gemm.fp16" : "gemm.bf16");
        CU_ASSERT_PTR_NOT_NULL_FATAL(e);
        CU_ASSERT(dtp_json_number(dtp_json_get(e, "median")) < cases[i].gemm_median);
        CU_ASSERT(dtp_json_number(dtp_json_get(e, "p90")) < cases[i].gemm_p90);
    }
    remove(out);
}

/* No rows of the GPU asked for is an error, not an empty calibration. */
static void test_no_rows(void) {
    const char *path = write_temporary(".json", "{\"gpu\": \"nobody's\", \"rows\": []}");
    struct dtp_calibrate_args args = {&path, 1, "a100-80", NULL, NULL};

    CU_ASSERT_EQUAL(dtp_calibrate_from_files(arena, &args, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "a100-80"));
    remove(path);
}

/* The same rows give the same bytes. */
static void test_deterministic(void) {
    const char *rows = write_temporary(
        ".json",
        "{\"gpu\": \"NVIDIA H200\", \"rows\": ["
        "{\"op\": \"gemm_fwd\", \"m\": 4096, \"n\": 4096, \"k\": 4096, \"time_s\": 2.0e-4},"
        "{\"op\": \"gemm_fwd\", \"m\": 8192, \"n\": 4096, \"k\": 4096, \"time_s\": 4.1e-4},"
        "{\"op\": \"gemm_fwd\", \"m\": 8192, \"n\": 8192, \"k\": 4096, \"time_s\": 8.1e-4},"
        "{\"op\": \"gemm_fwd\", \"m\": 2048, \"n\": 8192, \"k\": 4096, \"time_s\": 2.1e-4},"
        "{\"op\": \"gemm_fwd\", \"m\": 8192, \"n\": 8192, \"k\": 8192, \"time_s\": 15.9e-4}]}");
    const char *out[2];

    for (int i = 0; i < 2; i++) {
        struct dtp_calibrate_args args = {&rows, 1, "h200", NULL, NULL};

        out[i] = dtp_arena_printf(arena, "/tmp/dtp_test_gpu_%ld_%d.json", (long)getpid(), i);
        args.out_path = out[i];
        CU_ASSERT_EQUAL_FATAL(dtp_calibrate_from_files(arena, &args, &err), DTP_OK);
    }
    CU_ASSERT(same_text(out[0], out[1]));
    remove(out[0]);
    remove(out[1]);
    remove(rows);
}

int main(void) {
    CU_TestInfo fit[] = {
        {"GEMM", test_gemm_recovered},           {"FP8", test_fp8_takes_shape_constants},
        {"outliers", test_outliers_do_not_pull}, {"load", test_load_recovered},
        {"same chip", test_same_chip},           {"attention", test_attention_recovered},
        {"kernels", test_kernels_recovered},     CU_TEST_INFO_NULL};
    CU_TestInfo files[] = {{"JSON", test_read_json},
                           {"loaded chip", test_read_loaded},
                           {"CSV", test_read_csv},
                           {"errors", test_read_errors},
                           {"no rows", test_no_rows},
                           {"deterministic", test_deterministic},
                           {"real sweeps", test_real_sweeps},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"fit", NULL, NULL, NULL, NULL, fit},
                             {"files", NULL, NULL, NULL, NULL, files},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
