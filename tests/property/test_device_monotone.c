/* Times never fall when a dimension grows, on every GPU and dtype, and hardly jump. */
#include "hw/device.h"

#include <CUnit/Basic.h>
#include <stdio.h>

#include "sim/base/rng.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_gpu gpus[32];
static size_t ngpus;

static int load(void) {
    const char *const *names;
    struct dtp_err err;
    size_t n;

    if (dtp_gpu_list(arena, &names, &n, &err) != DTP_OK)
        return 1;
    for (size_t i = 0; i < n && ngpus < 32; i++)
        if (dtp_gpu_load(arena, names[i], &gpus[ngpus++], &err) != DTP_OK)
            return 1;
    return 0;
}

/* Next size of a grid that has sizes just below, at and just above tile borders. */
static int64_t next_size(int64_t n) {
    return n < 64 ? n + 21 : n % 64 == 0 ? n + 1 : n % 64 == 1 ? n + n / 3 : (n / 64 + 1) * 64;
}

static int64_t *dimension(struct dtp_gemm *s, int which) {
    return which == 0 ? &s->m : which == 1 ? &s->n : which == 2 ? &s->k : &s->batch;
}

static int falls(const struct dtp_gpu *g, struct dtp_gemm s, int which,
                 double (*time_s)(const struct dtp_gpu *, const struct dtp_gemm *)) {
    double last_s = 0;
    int bad = 0;

    for (int64_t n = 1; n < 70000; n = next_size(n)) {
        double t_s;

        *dimension(&s, which) = n;
        t_s = time_s(g, &s);
        bad += t_s < last_s;
        last_s = t_s;
    }
    return bad;
}

static void check_gemm(double (*time_s)(const struct dtp_gpu *, const struct dtp_gemm *),
                       bool batched) {
    struct dtp_rng r = dtp_rng_stream(11, batched);
    int bad = 0;

    for (size_t i = 0; i < ngpus; i++)
        for (int dtype = 0; dtype < DTP_NDTYPES; dtype++) {
            const struct dtp_gemm_cal *c = batched ? &gpus[i].bmm[dtype] : &gpus[i].gemm[dtype];

            if (c->sm_flops_per_s <= 0)
                continue;
            for (int draw = 0; draw < 40; draw++) {
                struct dtp_gemm s = {(enum dtp_dtype)dtype,
                                     (enum dtp_gemm_pass)dtp_rng_below(&r, 3),
                                     1 + (int64_t)dtp_rng_below(&r, 20000),
                                     1 + (int64_t)dtp_rng_below(&r, 20000),
                                     1 + (int64_t)dtp_rng_below(&r, 20000),
                                     1 + (int64_t)dtp_rng_below(&r, batched ? 64 : 2)};

                for (int which = 0; which < 4; which++)
                    bad += falls(&gpus[i], s, which, time_s);
            }
        }
    CU_ASSERT_EQUAL(bad, 0);
}

static void test_gemm(void) {
    check_gemm(dtp_device_gemm_s, false);
}

static void test_bmm(void) {
    check_gemm(dtp_device_bmm_s, true);
}

/* One row more changes the time of a layer's GEMM by less than a wave: 792 costs about as 800. 1,024 rows are two
 * waves of 128 SMs (RTX 4090): the first tile of the next costs its tail, a third of one. Where products were
 * measured to go by whole waves (H20) it costs all of one, the third after two. */
static void test_smooth(void) {
    for (size_t i = 0; i < ngpus; i++) {
        enum dtp_dtype dtype = DTP_FP16;
        struct dtp_gemm s = {dtype, DTP_GEMM_FORWARD, 0, 4096, 4096, 1};
        double last_s = 0, largest = 0;

        for (s.m = 1024; s.m < 16384; s.m++) {
            double t_s = dtp_device_gemm_s(&gpus[i], &s);

            if (last_s > 0 && t_s / last_s > largest)
                largest = t_s / last_s;
            last_s = t_s;
        }
        CU_ASSERT(largest < (gpus[i].gemm[dtype].tail < 1 ? 1.3 : 1.5));
        s.m = s.n = s.k = 792;
        last_s = dtp_device_gemm_s(&gpus[i], &s);
        s.m = s.n = s.k = 800;
        CU_ASSERT(dtp_device_gemm_s(&gpus[i], &s) < 1.05 * last_s);
    }
}

static void test_attention(void) {
    int bad = 0, checked = 0;

    for (size_t i = 0; i < ngpus; i++)
        for (int impl = DTP_ATTN_FLASH1; impl < DTP_NATTN; impl++)
            for (int variant = 0; variant < 4; variant++) {
                struct dtp_attention_shape s = {
                    DTP_FP16, (enum dtp_attention)impl, variant & 1, variant & 2, 2, 8, 8, 0, 0,
                    128};
                double last_s = 0;

                if (gpus[i].attention[impl].flops_per_s <= 0)
                    continue;
                for (int64_t seq = 64; seq < 70000; seq = next_size(seq)) {
                    double t_s;

                    s.seq_q = s.seq_kv = seq;
                    t_s = dtp_device_attention_s(&gpus[i], &s);
                    bad += t_s <= last_s;
                    last_s = t_s;
                    checked++;
                }
            }
    CU_ASSERT(checked > 1000);
    CU_ASSERT_EQUAL(bad, 0);
}

/* More bytes never take less time; a weight of the bandwidth never makes a kernel beat the memory. */
static void test_kernels(void) {
    for (size_t i = 0; i < ngpus; i++)
        for (int k = 0; k < DTP_NKERNELS; k++) {
            double small_s = dtp_device_kernel_s(&gpus[i], (enum dtp_kernel)k, 1e6, 5e5);
            double large_s = dtp_device_kernel_s(&gpus[i], (enum dtp_kernel)k, 1e9, 5e8);

            CU_ASSERT(large_s > small_s);
            CU_ASSERT(large_s >= 1e9 / gpus[i].hbm_bytes_per_s);
        }
}

int main(void) {
    CU_TestInfo tests[] = {{"GEMM", test_gemm},       {"batched GEMM", test_bmm},
                           {"smooth", test_smooth},   {"attention", test_attention},
                           {"kernels", test_kernels}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"monotone", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (load())
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
