/* order.h: plain values for qsort(), the smallest first. */
#ifndef DTP_SIM_BASE_ORDER_H
#define DTP_SIM_BASE_ORDER_H

#include <stdint.h>

static inline int dtp_order_i64(const void *x, const void *y) {
    int64_t p = *(const int64_t *)x, q = *(const int64_t *)y;
    return p < q ? -1 : p > q;
}

static inline int dtp_order_double(const void *x, const void *y) {
    double p = *(const double *)x, q = *(const double *)y;
    return p < q ? -1 : p > q;
}

#endif
