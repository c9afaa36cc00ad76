/* GPU files: all of them load, names, inheritance of calibrations, what each error says. */
#include <CUnit/Basic.h>
#include <string.h>

#include "hw/device.h"
#include "sim/base/text.h"
#include "tests/device_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_err err;

/* Its 16-bit products run at 50 to 90 % of the nominal rate (tensor cores that were cut come to all of it, and
 * cards may be above their nominal boost), its memory above 70 %. */
static void test_every_file(void) {
    static const enum dtp_dtype half[] = {DTP_FP16, DTP_BF16};
    const char *const *names;
    size_t n;

    CU_ASSERT_EQUAL_FATAL(dtp_gpu_list(arena, &names, &n, &err), DTP_OK);
    CU_ASSERT(n >= 12);
    for (size_t i = 0; i < n; i++) {
        struct dtp_gpu g;

        if (dtp_gpu_load(arena, names[i], &g, &err) != DTP_OK) {
            CU_FAIL("a GPU file does not load");
            printf("%s\n", err.msg);
            continue;
        }
        CU_ASSERT_STRING_EQUAL(g.name, names[i]);
        CU_ASSERT(g.calibration && g.calibration[0]);
        CU_ASSERT(g.sustained >= 1 && g.kernel_gap_s > 0);
        CU_ASSERT(g.stream_bytes_per_s > 0.7 * g.hbm_bytes_per_s);
        CU_ASSERT(g.stream_bytes_per_s < g.hbm_bytes_per_s);
        for (int k = 0; k < DTP_NKERNELS; k++)
            CU_ASSERT(g.kernel[k].bytes_per_s > 0 && g.kernel[k].bytes_per_s < g.hbm_bytes_per_s);
        for (int j = 0; j < 2; j++) {
            struct dtp_gemm s = {half[j], DTP_GEMM_FORWARD, 8192, 8192, 8192, 1};
            double rate;

            if (g.peak_flops_per_s[half[j]] <= 0)
                continue;
            rate = 2.0 * 8192 * 8192 * 8192 / dtp_device_gemm_s(&g, &s);
            CU_ASSERT(rate > 0.5 * g.peak_flops_per_s[half[j]]);
            CU_ASSERT(rate < (g.not_calibrated ? 1.1 : 0.9) * g.peak_flops_per_s[half[j]]);
        }
    }
}

/* Tensor cores of GA102 and AD10x do 1,024 FLOP of 16 bit a cycle and SM, with FP32 accumulation half of that on
 * GeForce and A10G; TF32 is half of 16 bit. With ECC a sixteenth of GDDR6 is not there. */
static void test_graphics_chips(void) {
    static const struct {
        const char *name;
        double boost_hz, flops_per_cycle, gib;
        bool ecc;
    } chips[] = {
        {"rtx3090", 1.695e9, 512, 24, false},
        {"rtx4090", 2.52e9, 512, 24, false},
        {"a10g", 1.71e9, 512, 24, true},
        {"l4", 2.04e9, 1024, 24, true},
        {"a40", 1.74e9, 1024, 48, true},
        {"rtx-a6000", 1.8e9, 1024, 48, false},
        {"rtx-6000-ada", 2.505e9, 1024, 48, false},
        {"l40s", 2.52e9, 1024, 48, true},
    };
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        struct dtp_gpu g;
        double peak, gib;

        CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, chips[i].name, &g, &err), DTP_OK);
        peak = g.num_sms * chips[i].boost_hz * chips[i].flops_per_cycle;
        CU_ASSERT_DOUBLE_EQUAL(g.peak_flops_per_s[DTP_BF16], peak, 0.02 * peak);
        CU_ASSERT_DOUBLE_EQUAL(g.peak_flops_per_s[DTP_FP16], peak, 0.02 * peak);
        CU_ASSERT_DOUBLE_EQUAL(g.peak_flops_per_s[DTP_TF32], peak / 2, 0.02 * peak);
        gib = chips[i].ecc ? chips[i].gib * 15 / 16 : chips[i].gib;
        CU_ASSERT((double)g.memory_bytes < gib * 0x1p30);
        CU_ASSERT((double)g.memory_bytes > 0.97 * gib * 0x1p30);
    }
}

/* Squares in bf16, as published (zzc0721/torch-performance-test-data, issues 77, 126 and 185 and database.md, of which
 * only the largest counts). */
static void test_published_products(void) {
    static const struct {
        const char *name;
        int size;
        double tflops;
    } rows[] = {{"h20", 2048, 120.3},        {"h20", 4096, 133.4},     {"h20", 8192, 138.6},
                {"h20", 10240, 142.3},       {"a40", 4096, 115.2},     {"a40", 8192, 110.6},
                {"a40", 10240, 122.3},       {"a10g", 2048, 60.6},     {"a10g", 4096, 62.5},
                {"a10g", 8192, 66.6},        {"a10g", 10240, 69.5},    {"rtx-a6000", 10240, 123.3},
                {"rtx3090", 10240, 76.5},    {"l40s", 10240, 269.2},   {"rtx4090", 10240, 163.1},
                {"a100-pcie-40", 4096, 234}, {"a100-80", 10240, 264.5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dtp_gpu g;
        double n = rows[i].size;
        CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, rows[i].name, &g, &err), DTP_OK);
        double rate = 2 * n * n * n /
                      gemm_s(&g, DTP_GEMM_FORWARD, rows[i].size, rows[i].size, rows[i].size) / 1e12;
        CU_ASSERT_DOUBLE_EQUAL(rate / rows[i].tflops, 1, 0.11);
    }
}

static void test_names(void) {
    struct dtp_gpu g;

    CU_ASSERT_EQUAL(dtp_gpu_load(arena, "a100", &g, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(g.name, "a100-80");
    CU_ASSERT_EQUAL(dtp_gpu_load(arena, "h100", &g, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(g.name, "h100-sxm");
    CU_ASSERT_EQUAL(dtp_gpu_load(arena, "H100", &g, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(g.name, "h100-sxm");
    CU_ASSERT_EQUAL(dtp_gpu_load(arena, "A100_PCIe_40", &g, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(g.name, "a100-pcie-40");
    CU_ASSERT_EQUAL(dtp_gpu_load(arena, "h2000", &g, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "\"h200\""));
}

static void test_find(void) {
    static const struct {
        const char *family;
        double memory_gb;
        const char *name;
    } cases[] = {{"A100", 40, "a100-40"}, {"A100", 0, "a100-80"},  {"H100", 96, "h100-sxm-96"},
                 {"H100", 0, "h100-sxm"}, {"V100", 16, "v100-16"}, {"A800", 80, "a800-80"},
                 {"H800", 80, "h800-80"}, {"GB200", 186, "gb200"}, {"b200", 180, "b200"}};
    struct dtp_gpu g;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CU_ASSERT_EQUAL_FATAL(dtp_gpu_find(arena, cases[i].family, cases[i].memory_gb, &g, &err),
                              DTP_OK);
        CU_ASSERT_STRING_EQUAL(g.name, cases[i].name);
    }
    /* memory of another size: the family's nearest */
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_find(arena, "A100", 64, &g, &err), DTP_OK);
    double memory_bytes = (double)g.memory_bytes;
    CU_ASSERT(g.other_memory && memory_bytes > 63e9 && memory_bytes < 69e9);
    CU_ASSERT_EQUAL(dtp_gpu_find(arena, "TPUv4", 0, &g, &err), DTP_EUNSUPPORTED);
}

/* Products back to back on B200 at 1,000 W: SimuMax's sweep has 1,020 to 1,110 TFLOP/s for those of several ms, and
 * GB300 is 1.1 times as fast as GB200, as NVIDIA's attention of the same kind is. */
static double sustained_flops_per_s(const char *name) {
    struct dtp_gpu g;
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, name, &g, &err), DTP_OK);
    double time_s = gemm_s(&g, DTP_GEMM_FORWARD, 4096, 57344, 8192);
    double flops = 2.0 * 4096 * 57344 * 8192;
    struct dtp_load_mix mix = {.product_s = time_s, .product_j = flops * g.power.gemm_j_per_flop};
    return flops / (time_s * dtp_power_slowdown(&g, &mix));
}

static void test_blackwell_power(void) {
    double b200 = sustained_flops_per_s("b200");
    double ratio = sustained_flops_per_s("gb300") / sustained_flops_per_s("gb200");
    CU_ASSERT(b200 > 1020e12 && b200 < 1110e12);
    CU_ASSERT(ratio > 1.08 && ratio < 1.14);
}

/* "like": the same GEMM, memory scaled by the nominal bandwidth, 1555 / 2039. */
static void test_like(void) {
    struct dtp_gpu a80, a40;

    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "a100-80", &a80, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "a100-40", &a40, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&a40, DTP_GEMM_FORWARD, 4096, 4096, 4096),
                           gemm_s(&a80, DTP_GEMM_FORWARD, 4096, 4096, 4096), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(a40.stream_bytes_per_s / a80.stream_bytes_per_s, 1555.0 / 2039, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(a40.kernel[DTP_K_NORM].bytes_per_s / a80.kernel[DTP_K_NORM].bytes_per_s,
                           1555.0 / 2039, 1e-9);
    CU_ASSERT(a40.memory_bytes < a80.memory_bytes);
    CU_ASSERT_STRING_EQUAL(a40.like_family, "A100");
    CU_ASSERT(a80.like_family == NULL || strcmp(a80.like_family, "A100") != 0);
    /* FP4 has the shapes of FP8 at the nominal ratio, where the chip has it. */
    struct dtp_gpu b, h;
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "gb300", &b, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "h100-sxm", &h, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(b.gemm[DTP_FP4].sm_flops_per_s / b.gemm[DTP_FP8].sm_flops_per_s,
                           b.peak_flops_per_s[DTP_FP4] / b.peak_flops_per_s[DTP_FP8], 1e-9);
    CU_ASSERT(b.gemm[DTP_FP4].tile_s == b.gemm[DTP_FP8].tile_s);
    CU_ASSERT(h.gemm[DTP_FP4].sm_flops_per_s <= 0);
    /* Energy goes with the bits of an operand; what has no file of its own for it has that of the other. */
    CU_ASSERT(b.power.fp8_energy == 0.5 && b.power.fp4_energy == 0.25);
    CU_ASSERT(h.index_add_elements > 1 && b.index_add_elements == h.index_add_elements);
    CU_ASSERT(h.scatter_add_elements > 1 && b.scatter_add_elements == h.scatter_add_elements);
}

static double of_row(const struct dtp_json *row, const char *key) {
    return dtp_json_number(dtp_json_get(row, key));
}

/* Dropout of the probabilities on H200: the factors are the means over the rows that were measured, of which none
 * is further than a seventh from its mean; a chip scaled from it has them too. */
static void test_attention_dropout(void) {
    static const enum dtp_attention impls[] = {DTP_ATTN_FLASH2, DTP_ATTN_CUDNN};
    const struct dtp_json *file, *rows;
    struct dtp_gpu g, like;
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "h200", &g, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "h800-80", &like, &err), DTP_OK);
    const char *path = "traces/measured/calibration/h200_attention_dropout.json";
    CU_ASSERT_EQUAL_FATAL(dtp_json_read_file(arena, dtp_data_path(arena, path), &file, &err),
                          DTP_OK);
    rows = dtp_json_get(file, "rows");
    for (size_t k = 0; k < sizeof impls / sizeof *impls; k++) {
        const struct dtp_attention_cal *c = &g.attention[impls[k]];
        double sum[2] = {0}, factor[2] = {c->dropout_factor, c->dropout_backward_factor};
        int n = 0;
        for (size_t i = 0; i + 1 < dtp_json_size(rows); i += 2) { /* without, with */
            const struct dtp_json *plain = dtp_json_at(rows, i), *drops = dtp_json_at(rows, i + 1);
            double ratio[2] = {of_row(drops, "forward_s") / of_row(plain, "forward_s"),
                               of_row(drops, "backward_s") / of_row(plain, "backward_s")};
            if (strcmp(dtp_json_string(dtp_json_get(plain, "backend")),
                       dtp_attention_names[impls[k]]) != 0)
                continue;
            CU_ASSERT(of_row(plain, "dropout") <= 0 && of_row(drops, "dropout") > 0);
            for (int pass = 0; pass < 2; pass++) {
                CU_ASSERT_DOUBLE_EQUAL(ratio[pass], factor[pass], factor[pass] / 7);
                sum[pass] += ratio[pass];
            }
            n++;
        }
        CU_ASSERT_DOUBLE_EQUAL(sum[0] / n, factor[0], 0.01);
        CU_ASSERT_DOUBLE_EQUAL(sum[1] / n, factor[1], 0.01);
        CU_ASSERT_DOUBLE_EQUAL(like.attention[impls[k]].dropout_factor, factor[0], 0.01);
    }
}

static void check_error(const char *text, const char *expected) {
    const struct dtp_json *j;
    struct dtp_gpu g;

    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(arena, "t.json", text, strlen(text), &j, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_gpu_read(arena, j, &g, &err), DTP_EINPUT);
    if (!strstr(err.msg, expected)) {
        CU_FAIL("message lacks what was expected");
        printf("%s\nlacks %s\n", err.msg, expected);
    }
}

#define NOMINAL                                                                                    \
    "{\"name\": \"x\", \"title\": \"X\", \"arch\": \"sm_80\", \"family\": \"X\", \"num_sms\": 4, " \
    "\"memory_bytes\": 1000, \"hbm_bytes_per_s\": 1000, \"peak_flops_per_s\": {}"

static void test_errors(void) {
    check_error(NOMINAL "}", "calibration");
    check_error(NOMINAL ", \"calibration\": {}}", "stream_bytes_per_s");
    check_error(NOMINAL ", \"calibration\": {\"like\": \"x\"}}", "another GPU");
    check_error(NOMINAL ", \"calibration\": {\"like\": \"a100-8\"}}", "a100-80");
    check_error(NOMINAL ", \"calibration\": {\"steam_bytes_per_s\": 1}}", "stream_bytes_per_s");
    check_error(NOMINAL ", \"num_sm\": 3, \"calibration\": {}}", "num_sms");
    check_error(NOMINAL ", \"calibration\": {\"gemm\": {\"fp12\": {}}}}", "gemm.fp12");
}

/* Compares forward and backward of TransformerEngine's example on H100, cuDNN 9.3 over FlashAttention 2 in the same
 * table (the source of attention.cudnn_9_3): the clock of those runs is not known, so that only the ratio is tested. */
static void test_older_cudnn(void) {
    static const struct {
        int heads, seq;
        double cudnn_s, flash_s;
    } rows[] = {{16, 2048, 0.3664e-3, 0.5850e-3}, {32, 8192, 7.4875e-3, 11.8879e-3}};
    struct dtp_gpu g;
    CU_ASSERT_EQUAL_FATAL(dtp_gpu_load(arena, "h100-sxm", &g, &err), DTP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double s[2] = {0};
        for (int k = 0; k < 4; k++) {
            struct dtp_attention_shape at = {.dtype = DTP_BF16,
                                             .impl = k % 2 ? DTP_ATTN_FLASH2 : DTP_ATTN_CUDNN_9_3,
                                             .causal = true,
                                             .backward = k > 1,
                                             .batch = 2,
                                             .heads = rows[i].heads,
                                             .kv_heads = rows[i].heads,
                                             .seq_q = rows[i].seq,
                                             .seq_kv = rows[i].seq,
                                             .head_dim = 128};
            s[k % 2] += dtp_device_attention_s(&g, &at);
        }
        CU_ASSERT_DOUBLE_EQUAL(s[0] / s[1] / (rows[i].cudnn_s / rows[i].flash_s), 1, 0.02);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"cuDNN before 9.4", test_older_cudnn},
                           {"every file", test_every_file},
                           {"graphics chips", test_graphics_chips},
                           {"published products", test_published_products},
                           {"names", test_names},
                           {"find", test_find},
                           {"power of Blackwell", test_blackwell_power},
                           {"like", test_like},
                           {"dropout in attention", test_attention_dropout},
                           {"errors", test_errors},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"GPU files", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
