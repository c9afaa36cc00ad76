/* order.h: plain values for qsort(), the smallest first; where rows in order pass a value.
 *
 *     dtp_rows_before(v, n, sizeof *v, offsetof(struct row, start_ns), at_ns)
 *
 * is the index of the first row that starts at at_ns or later, n where none does.
 */
#ifndef DTP_SIM_BASE_ORDER_H
#define DTP_SIM_BASE_ORDER_H

#include <stddef.h>
#include <stdint.h>

static inline int dtp_order_i64(const void *x, const void *y) {
    int64_t p = *(const int64_t *)x, q = *(const int64_t *)y;
    return p < q ? -1 : p > q;
}

static inline int dtp_order_double(const void *x, const void *y) {
    double p = *(const double *)x, q = *(const double *)y;
    return p < q ? -1 : p > q;
}

static inline int64_t dtp_row_key(const void *rows, size_t i, size_t size, size_t offset) {
    const void *key = (const char *)rows + i * size + offset;
    return *(const int64_t *)key;
}

/* Rows of `size` bytes in order of an int64_t at `offset`: how many have less than x. */
static inline size_t dtp_rows_before(const void *rows, size_t n, size_t size, size_t offset,
                                     int64_t x) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (dtp_row_key(rows, mid, size, offset) < x)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns likewise how many rows have at most x. */
static inline size_t dtp_rows_until(const void *rows, size_t n, size_t size, size_t offset,
                                    int64_t x) {
    return x == INT64_MAX ? n : dtp_rows_before(rows, n, size, offset, x + 1);
}

#endif
