/* The graphs of cuDNN's attention (runtime/cuda/attention_cudnn.c), without a GPU: for the properties of an
 * H100, given as text, cuDNN must accept every operation and, where a driver's library is found (kernels
 * made at run time need it), name kernels for the whole. Skips where cuDNN or its headers are not found. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <CUnit/Basic.h>

#include "tests/suites.h"

enum { SKIP = 77 };

#ifdef DTP_WITH_CUDNN

#include "runtime/cuda/attention_cudnn.h"

static const char h100[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
    " \"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"smClockRateKHz\": 1980000,"
    " \"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800, \"warpSize\": 32,"
    " \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448,"
    " \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0,"
    " \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048,"
    " \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"deviceVer\": 900, \"driverVer\": 13000,"
    " \"cudaDeviceId\": 0, \"totalGlobalMem\": 84934656000, \"deviceName\": \"H100\"}";

static struct dtp_cudnn_api api;
static int64_t fewest; /* kernels that a good graph has: 0 without a driver */

static struct dtp_attention_args shape(int64_t heads, int64_t kv_heads, int64_t dim) {
    return (struct dtp_attention_args){.batch = 2,
                                       .seq = 640,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = dim,
                                       .qkv_stride = (heads + 2 * kv_heads) * dim,
                                       .out_stride = heads * dim};
}

/* Kernels that cuDNN's heuristic names; -1 when an operation is refused. */
static int64_t kernels_for(const struct dtp_attention_args *x, enum dtp_dtype dtype,
                           enum dtp_attention_pass pass) {
    struct dtp_cudnn_plan *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    (void)dtp_attention_plan(p, &api, x, dtype, pass); /* building one needs the driver */
    int64_t n = p->graph.good ? p->nconfigs : -1;
    dtp_cudnn_destroy(p);
    free(p);
    return n;
}

static void test_every_pass_has_kernels(void) {
    const struct dtp_attention_args shapes[] = {shape(16, 16, 128), shape(8, 2, 64),
                                                shape(6, 1, 96), shape(3, 3, 80)};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int pass = 0; pass < DTP_ATTENTION_PASSES; pass++) {
            CU_ASSERT(kernels_for(&shapes[i], DTP_BF16, (enum dtp_attention_pass)pass) >= fewest);
            CU_ASSERT(kernels_for(&shapes[i], DTP_FP16, (enum dtp_attention_pass)pass) >= fewest);
        }
}

static void test_nonsense_is_refused(void) {
    struct dtp_attention_args x = shape(8, 3, 64); /* 8 heads are no multiple of 3 */
    CU_ASSERT_EQUAL(kernels_for(&x, DTP_BF16, DTP_ATTENTION_FORWARD), -1);
    x = shape(8, 8, 65); /* rows of 130 bytes */
    CU_ASSERT(kernels_for(&x, DTP_BF16, DTP_ATTENTION_BACKWARD) <= 0);
}

/* Row sums, then dQ in fp32, then what the plan wants; each from a multiple of 256 bytes. */
static void test_space(void) {
    const struct dtp_attention_args x = shape(3, 3, 80);
    const struct dtp_cudnn_plan p = {.workspace_bytes = 1000};
    struct dtp_attention_space a = dtp_attention_space(&p, &x, DTP_ATTENTION_FORWARD);
    CU_ASSERT(a.plan == 0 && a.bytes == 1000);
    a = dtp_attention_space(&p, &x, DTP_ATTENTION_BACKWARD);
    uint64_t rows_bytes = UINT64_C(4) * 2 * 3 * 640;
    CU_ASSERT_EQUAL(a.delta, 0);
    CU_ASSERT_EQUAL(a.dq, rows_bytes);
    CU_ASSERT_EQUAL(a.plan, 81 * rows_bytes);
    CU_ASSERT_EQUAL(a.bytes, 81 * rows_bytes + 1000);
    a = dtp_attention_space(&p, &x, DTP_ATTENTION_BACKWARD_EXACT);
    CU_ASSERT(a.plan == rows_bytes && a.bytes == rows_bytes + 1000);
}

int main(void) {
    fewest = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) ? 1 : 0;
    CU_TestInfo tests[] = {{"every pass has kernels", test_every_pass_has_kernels},
                           {"nonsense", test_nonsense_is_refused},
                           {"space", test_space},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"graphs of cuDNN", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    if (dtp_cudnn_load(&api, &err) != DTP_OK || dtp_cudnn_device(&api, 0, h100, &err) != DTP_OK) {
        printf("skipped: %s\n", err.msg);
        return SKIP;
    }
    int status = run_suites(suites);
    dtp_cudnn_unload(&api);
    return status;
}

#else

int main(void) {
    printf("skipped: built without cuDNN's headers\n");
    return SKIP;
}

#endif
