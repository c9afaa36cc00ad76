/* The device model: kernels by hand. */
#include "hw/device.h"

#include <CUnit/Basic.h>
#include <math.h>

#include "tests/device_case.h"
#include "tests/suites.h"

/* A GPU whose numbers make sums by hand: 10 SMs of 1 TFLOP/s, 1 TB/s, no overheads. */
static struct dtp_gpu plain_gpu(void) {
    struct dtp_gpu g = {.num_sms = 10, .stream_bytes_per_s = 1e12, .sustained = 1};

    g.gemm[DTP_BF16] =
        (struct dtp_gemm_cal){.sm_flops_per_s = 1e12, .wgrad_factor = 1.5, .dgrad_factor = 1.25};
    g.bmm[DTP_BF16] = (struct dtp_gemm_cal){.sm_flops_per_s = 1e12};
    return g;
}

/* 20 tiles of 256 x 256... the largest tile is 256 x 128: m = 2560, n = 256 gives 20 tiles, 2 waves
 * of 2 x 256 x 128 x k; a whole number of waves leaves no tail: flops / peak. */
static void test_gemm_whole_waves(void) {
    struct dtp_gpu g = plain_gpu();
    double flops = 2.0 * 2560 * 256 * 65536;

    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 2560, 256, 65536), flops / 10e12, 1e-12);
}

/* One tile of 64 x 64 on one SM of ten: split-K by 4 uses four of them. */
static void test_gemm_split_k(void) {
    struct dtp_gpu g = plain_gpu();
    double flops = 2.0 * 64 * 64 * 8192;

    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 64, 64, 8192), flops / 4e12, 1e-12);
}

/* 11 tiles of 64 x 64 at tail 0.3: any larger tile computes more per SM; the second wave holds one
 * tile of ten: 1 + 0.3 + 0.7 / 10 waves. m is chosen so that larger tiles waste more than that. */
static void test_gemm_tail(void) {
    struct dtp_gpu g = plain_gpu();
    double wave_s, quantised_s;

    g.gemm[DTP_BF16].tail = 1;
    quantised_s = gemm_s(&g, DTP_GEMM_FORWARD, 64 * 11, 64, 65536);
    g.gemm[DTP_BF16].tail = 0.3;
    wave_s = 2.0 * 64 * 64 * 65536 / 1e12;
    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 64 * 11, 64, 65536), wave_s * 1.37, 1e-12);
    CU_ASSERT(quantised_s > wave_s * 1.37);
}

/* On one SM a tile of u units of 64 x 64 takes what u units of a tile of 256 x 128 do, times sqrt(8 / u). */
static void test_gemm_small_tiles(void) {
    static const int shapes[][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 4}, {4, 1}, {2, 4}, {4, 2}};
    struct dtp_gpu g = plain_gpu();

    g.num_sms = 1;
    g.gemm[DTP_BF16].small_tile = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int m = shapes[i][0], n = shapes[i][1];
        double units_s = 2.0 * 64 * 64 * 8192 * m * n / 1e12;

        CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 64 * m, 64 * n, 8192),
                               units_s * sqrt(8.0 / (m * n)), 1e-8 * units_s);
    }
}

/* Rows that are no multiple of 8 elements cost a product, and one in a batch, half as much again. */
static void test_unaligned(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_gemm s = {DTP_BF16, DTP_GEMM_FORWARD, 2560, 256, 65536, 1};
    double product_s = dtp_device_gemm_s(&g, &s), batched_s = dtp_device_bmm_s(&g, &s);
    double compute_s = 2.0 * 2560 * 256 * 65536 / 10e12;

    g.gemm[DTP_BF16].unaligned_factor = g.bmm[DTP_BF16].unaligned_factor = 1.5;
    s.unaligned = true;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_gemm_s(&g, &s), 1.5 * product_s, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_bmm_s(&g, &s), batched_s + 0.5 * compute_s, 1e-12);
}

static void test_gemm_passes_and_load(void) {
    struct dtp_gpu g = plain_gpu();
    double forward_s = gemm_s(&g, DTP_GEMM_FORWARD, 2560, 256, 65536);

    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_WGRAD, 2560, 256, 65536), 1.5 * forward_s, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_DGRAD, 2560, 256, 65536), 1.25 * forward_s, 1e-12);
    g.sustained = 1.1;
    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 2560, 256, 65536), 1.1 * forward_s, 1e-12);
}

/* k = 1: the operands take longer to move than to multiply, (m + n + mn) x 2 bytes. */
static void test_gemm_memory_floor(void) {
    struct dtp_gpu g = plain_gpu();

    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 8192, 8192, 1),
                           (8192.0 + 8192 + 8192.0 * 8192) * 2 / 1e12, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(gemm_s(&g, DTP_GEMM_FORWARD, 0, 8192, 8192), 0, 0);
}

/* A kernel that the GPU has not gives way to the nearest that it has: FlashAttention 2 on A100, none on V100. */
static void test_nearest_attention(void) {
    struct dtp_gpu gpu = {0};
    CU_ASSERT(dtp_device_attention(&gpu, DTP_ATTN_CUDNN) == DTP_ATTN_UNFUSED);
    gpu.attention[DTP_ATTN_FLASH1].flops_per_s = 1;
    CU_ASSERT(dtp_device_attention(&gpu, DTP_ATTN_CUDNN) == DTP_ATTN_FLASH1);
    gpu.attention[DTP_ATTN_FLASH2].flops_per_s = 1;
    CU_ASSERT(dtp_device_attention(&gpu, DTP_ATTN_CUDNN) == DTP_ATTN_FLASH2);
    CU_ASSERT(dtp_device_attention(&gpu, DTP_ATTN_FLASH1) == DTP_ATTN_FLASH1);
    CU_ASSERT(dtp_device_attention(&gpu, DTP_ATTN_UNFUSED) == DTP_ATTN_UNFUSED);
}

/* Scores of unfused attention: bytes and FLOPs are added, head_dim 80 costs as 128. */
static void test_bmm_adds_bytes_and_flops(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_gemm s = {DTP_BF16, DTP_GEMM_FORWARD, 1024, 1024, 80, 16};
    double bytes = (2 * 1024.0 * 80 + 1024.0 * 1024) * 16 * 2;
    double flops = 2.0 * 1024 * 1024 * 128 * 16;

    CU_ASSERT_DOUBLE_EQUAL(dtp_device_bmm_s(&g, &s), bytes / 1e12 + flops / 10e12, 1e-15);
    g.bmm[s.dtype].tail = 1; /* all of the shorter one is hidden */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_bmm_s(&g, &s),
                           bytes / 1e12 > flops / 10e12 ? bytes / 1e12 : flops / 10e12, 1e-15);
}

/* A head of 16 positions takes 1 s, 2 s where 4 query heads share keys; with dropout 3 s, whatever they
 * share. 2 heads a group: linear between; 8: as 4. */
static void test_own_attention(void) {
    static double seq[] = {16}, dim[] = {32}, group[] = {1, 4}, time_s[] = {1, 2}, drop_s[] = {3};
    struct dtp_gpu g = plain_gpu();
    struct dtp_attention_shape s = {.impl = DTP_ATTN_HEADS,
                                    .causal = true,
                                    .batch = 3,
                                    .heads = 8,
                                    .kv_heads = 8,
                                    .seq_q = 16,
                                    .seq_kv = 16,
                                    .head_dim = 32};
    g.attention[DTP_ATTN_HEADS].flops_per_s = 1;
    g.table[DTP_TABLE_ATTENTION_FORWARD] =
        (struct dtp_time_table){.axis = {{seq, 1}, {dim, 1}, {group, 2}}, .time_s = {time_s, 2}};
    const struct {
        int kv_heads;
        double head_s;
    } cases[] = {{8, 1}, {4, 1 + 1.0 / 3}, {2, 2}, {1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s.kv_heads = cases[i].kv_heads;
        CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 3 * 8 * cases[i].head_s, 1e-12);
    }
    s.dropout = true; /* not measured: as without */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 3 * 8 * 2, 1e-12);
    g.table[DTP_TABLE_ATTENTION_DROPOUT_FORWARD] =
        (struct dtp_time_table){.axis = {{seq, 1}, {dim, 1}, {group, 1}}, .time_s = {drop_s, 1}};
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 3 * 8 * 3, 1e-12);
}

static void test_attention(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_attention_shape s = {DTP_BF16, DTP_ATTN_FLASH2, false, false, 2, 8, 8, 1024, 1024,
                                    128};
    double flops = 4.0 * 2 * 8 * 1024 * 1024 * 128;

    g.attention[DTP_ATTN_FLASH2] = (struct dtp_attention_cal){.flops_per_s = 5e12,
                                                              .half_seq = 256,
                                                              .backward_factor = 0.8,
                                                              .head_dim_factor_64 = 0.5,
                                                              .causal_factor = 0.9};
    CU_ASSERT_DOUBLE_EQUAL(dtp_attention_flops(&s), flops, 1);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), flops / 5e12 * 1.25, 1e-12);
    s.causal = true; /* half the FLOPs, twice the waste on the diagonal */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), flops / 2 / 4.5e12 * 1.5, 1e-12);
    s.causal = false;
    s.backward = true;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 2.5 * flops / 4e12 * 1.25, 1e-12);
    g.attention[DTP_ATTN_FLASH2].half_seq_backward = 512; /* the backward's own */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 2.5 * flops / 4e12 * 1.5, 1e-12);
    s.backward = false;
    s.head_dim = 80; /* flash has a kernel for 96 */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), flops * 0.75 / 5e12 * 1.25, 1e-12);
    s.head_dim = 40; /* as 64, at half the rate */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), flops / 2 / 2.5e12 * 1.25, 1e-12);
    s.head_dim = 128;
    g.attention[DTP_ATTN_FLASH2].tail_blocks = 2; /* blocks of 128 queries on one SM of ten */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s),
                           flops / 5e12 * 1.25 + 2 * 4.0 * 128 * 1024 * 128 / 5e11, 1e-12);
    s.backward = true; /* its blocks compute 2.5 times as much at 0.8 of the rate */
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s),
                           2.5 * flops / 4e12 * 1.5 + 2 * 2.5 * 4.0 * 128 * 1024 * 128 / 4e11,
                           1e-12);
    s.dropout = true; /* if it was not measured, the time is as without */
    double plain_s = dtp_device_attention_s(&g, &s);
    g.attention[DTP_ATTN_FLASH2].dropout_factor = 2;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), plain_s, 1e-12);
    g.attention[DTP_ATTN_FLASH2].dropout_backward_factor = 1.5;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), 1.5 * plain_s, 1e-12);
    s.dropout = s.backward = false;
    s.impl = DTP_ATTN_CUDNN; /* has none between 64 and 128 */
    g.attention[DTP_ATTN_CUDNN] = g.attention[DTP_ATTN_FLASH2];
    double wide_s = dtp_device_attention_s(&g, &s);
    s.head_dim = 96;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), wide_s, 1e-12);
}

/* A window of 256 of 1024 keys: the triangle of 1024 less that of 768; a block of queries sees 256 + 128. */
static void test_attention_window(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_attention_shape s = {DTP_BF16, DTP_ATTN_FLASH2, true, false, 2, 8, 8, 1024, 1024,
                                    128};
    double all = 4.0 * 2 * 8 * 128, flops = all * (1024.0 * 1024 - 768.0 * 768) / 2;

    g.attention[DTP_ATTN_FLASH2] = (struct dtp_attention_cal){
        .flops_per_s = 5e12, .half_seq = 112, .head_dim_factor_64 = 1, .causal_factor = 1};
    double full_s = dtp_device_attention_s(&g, &s);
    s.window = 1024;
    CU_ASSERT_EQUAL(dtp_device_attention_s(&g, &s), full_s);
    s.window = 256; /* 224 keys in the mean */
    CU_ASSERT_DOUBLE_EQUAL(dtp_attention_flops(&s), flops, 1);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s), flops / 5e12 * 1.5, 1e-12);
    g.attention[DTP_ATTN_FLASH2].tail_blocks = 1;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_attention_s(&g, &s),
                           flops / 5e12 * 1.5 + 4.0 * 128 * (256 + 128) * 128 / 5e11, 1e-12);
    double before_s = 0;
    for (s.window = 16; s.window <= 2048; s.window *= 2) { /* never less with more keys */
        double time_s = dtp_device_attention_s(&g, &s);
        CU_ASSERT(time_s >= before_s);
        before_s = time_s;
    }
}

static void test_kernel_limits(void) {
    struct dtp_gpu g = plain_gpu();

    g.kernel[DTP_K_DROPOUT] = (struct dtp_kernel_cal){1e12, 1e11};
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_kernel_s(&g, DTP_K_DROPOUT, 5e9, 1e9), 1e-2, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_kernel_s(&g, DTP_K_DROPOUT, 5e10, 1e9), 5e-2, 1e-15);
    g.kernel[DTP_K_DROPOUT].latency_s = 1e-2;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_kernel_s(&g, DTP_K_DROPOUT, 5e10, 1e9), 6e-2, 1e-15);
    CU_ASSERT_EQUAL(dtp_device_kernel_s(&g, DTP_K_DROPOUT, 0, 0), 0); /* no kernel */
}

/* Up to a node of eight the rates are the file's; the slowest of n lies E(n) - E(8) deviations above, linear
 * between powers of two, and never falls with n. */
static void test_slowest(void) {
    struct dtp_gpu g = plain_gpu();

    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 4096), 1, 0);
    g.chip_spread = 0.01;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 1), 1, 0);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 8), 1, 0);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 16), 1 + 0.01 * (1.7660 - 1.4236), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 24), 1 + 0.01 * (1.91785 - 1.4236), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 1024), 1 + 0.01 * (3.2482 - 1.4236), 1e-12);
    for (int n = 1; n < 1 << 20; n += 1 + n / 7)
        CU_ASSERT(dtp_device_slowest(&g, n + 1) >= dtp_device_slowest(&g, n));
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_slowest(&g, 1 << 20), dtp_device_slowest(&g, 1 << 17), 0);
}

/* A class at 2 rows of 10 takes 1 s, of 20 columns 2 s: linear between. Products that end with GELU take
 * their own time where both of them were measured. */
static void test_own_tables(void) {
    static double rows[] = {2}, cols[] = {10, 20}, one[] = {1}, time_s[] = {1, 2}, gelu_s[] = {5};
    static double size[] = {64};
    struct dtp_gpu g = plain_gpu();
    struct dtp_gemm s = {.m = 64, .n = 64, .k = 64, .batch = 1, .gelu = true};
    const struct dtp_time_table gelu = {.axis = {{size, 1}, {size, 1}, {size, 1}},
                                        .time_s = {gelu_s, 1}};
    CU_ASSERT_EQUAL(dtp_device_rows_s(&g, DTP_K_NORM, 2, 15), 0);
    g.table[DTP_TABLE_KERNEL + DTP_K_NORM] =
        (struct dtp_time_table){.axis = {{rows, 1}, {cols, 2}, {one, 1}}, .time_s = {time_s, 2}};
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_rows_s(&g, DTP_K_NORM, 2, 15), 1.5, 1e-12);
    CU_ASSERT_EQUAL(dtp_device_rows_s(&g, DTP_K_NORM, 0, 15), 0);
    g.gemm[s.dtype].sm_flops_per_s = 1;
    g.table[DTP_TABLE_GEMM_FORWARD_GELU] = gelu;
    CU_ASSERT_FALSE(dtp_device_knows_gelu(&g));
    g.table[DTP_TABLE_GEMM_DGRAD_GELU] = gelu;
    CU_ASSERT_TRUE(dtp_device_knows_gelu(&g));
    g.table[DTP_TABLE_GEMM_FORWARD_GELU].dtype = (int)s.dtype;
    CU_ASSERT_DOUBLE_EQUAL(dtp_device_gemm_s(&g, &s), 5, 1e-12);
}

/* E = idle T + J x^2 + other, T = t/x + o: 100 W idle, 10 s of products that take 4000 J, limit 300 W. */
static void test_power(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_load_mix m = {.product_s = 10, .product_j = 4000};

    g.power_w = 300;
    CU_ASSERT_EQUAL(dtp_power_slowdown(&g, &m), 1); /* no power is known */
    g.power = (struct dtp_power_cal){.idle_w = 100, .exponent = 2};
    /* 100 * 10/x + 4000 x^2 = 300 * 10/x, x^3 = 1/2 */
    CU_ASSERT_DOUBLE_EQUAL(dtp_power_slowdown(&g, &m), cbrt(2), 1e-6);
    m.other_s = 10; /* idle: 200 * 20 = 4000 J are there */
    CU_ASSERT_EQUAL(dtp_power_slowdown(&g, &m), 1);
    m.other_j = 2000; /* 200 (10/x + 10) = 4000 x^2 + 2000, x = 0.8 gives 4500 = 4560 */
    CU_ASSERT(dtp_power_slowdown(&g, &m) > 1 && dtp_power_slowdown(&g, &m) < 1 / 0.79);
    /* after long rests 10 s are remembered: 200 (10/x + 10) = 4000 x^2, at x = 1 as well */
    m = (struct dtp_load_mix){.product_s = 10, .product_j = 4000, .rest = 100};
    g.power.memory_s = 10;
    CU_ASSERT_DOUBLE_EQUAL(dtp_power_slowdown(&g, &m), 1, 1e-6);
    g.power.burst_w = 300; /* but never more than that */
    CU_ASSERT_DOUBLE_EQUAL(dtp_power_slowdown(&g, &m), cbrt(2), 1e-6);
}

static void test_covered(void) {
    struct dtp_gpu g = plain_gpu();
    struct dtp_gemm s = {DTP_BF16, DTP_GEMM_FORWARD, 1000, 1000, 1000, 1};

    CU_ASSERT_FALSE(dtp_device_gemm_covered(&g, &s)); /* no row was measured */
    g.gemm[DTP_BF16].min_flops = 1e9;
    g.gemm[DTP_BF16].max_flops = 1e12;
    CU_ASSERT_TRUE(dtp_device_gemm_covered(&g, &s));
    s.k = 400;
    CU_ASSERT_FALSE(dtp_device_gemm_covered(&g, &s));
    s.dtype = DTP_FP8;
    CU_ASSERT_FALSE(dtp_device_gemm_covered(&g, &s));
    double x[] = {100, 2000},
           time_s[8] = {0}; /* a table of times covers its grid, whatever the FLOPs */
    struct dtp_time_table *t = &g.table[DTP_TABLE_GEMM_FORWARD];
    *t = (struct dtp_time_table){
        .dtype = DTP_FP8, .axis = {{x, 2}, {x, 2}, {x, 2}}, .time_s = {time_s, 8}};
    CU_ASSERT_TRUE(dtp_device_gemm_covered(&g, &s));
    s.k = 99;
    CU_ASSERT_FALSE(dtp_device_gemm_covered(&g, &s));
}

int main(void) {
    CU_TestInfo model[] = {{"whole waves", test_gemm_whole_waves},
                           {"split-K", test_gemm_split_k},
                           {"tail", test_gemm_tail},
                           {"small tiles", test_gemm_small_tiles},
                           {"unaligned rows", test_unaligned},
                           {"passes and load", test_gemm_passes_and_load},
                           {"memory floor", test_gemm_memory_floor},
                           {"batched GEMM", test_bmm_adds_bytes_and_flops},
                           {"own attention", test_own_attention},
                           {"attention that a GPU has not", test_nearest_attention},
                           {"attention", test_attention},
                           {"attention with a window", test_attention_window},
                           {"kernel limits", test_kernel_limits},
                           {"slowest chip", test_slowest},
                           {"power", test_power},
                           {"tables of our own kernels", test_own_tables},
                           {"covered", test_covered},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"model", NULL, NULL, NULL, NULL, model}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
