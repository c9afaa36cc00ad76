/* device_case.h: what the tests of devices and of GPU files share. */
#ifndef DTP_TESTS_DEVICE_CASE_H
#define DTP_TESTS_DEVICE_CASE_H

#include "hw/device.h"

/* Seconds of one product of bf16, m x k by k x n. */
static inline double gemm_s(const struct dtp_gpu *g, enum dtp_gemm_pass pass, int64_t m, int64_t n,
                            int64_t k) {
    struct dtp_gemm s = {DTP_BF16, pass, m, n, k, 1};

    return dtp_device_gemm_s(g, &s);
}

#endif
