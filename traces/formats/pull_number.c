#include <string.h>

#include "traces/formats/pull.h"

/* A decimal as digits x 10^exponent; false when it does not fit 63 bits. */
struct decimal {
    bool negative;
    uint64_t digits;
    int exponent;
};

static bool parse_exponent(const char *at, size_t n, int *out) {
    bool negative = n > 0 && at[0] == '-';
    size_t i = n > 0 && (at[0] == '-' || at[0] == '+');
    int v = 0;
    if (i == n)
        return false;
    for (; i < n; i++) {
        if (at[i] < '0' || at[i] > '9' || v > 9999)
            return false;
        v = v * 10 + (at[i] - '0');
    }
    *out = negative ? -v : v;
    return true;
}

/* Drops digits beyond the third decimal (of microseconds), except the first of them, for rounding. */
static bool parse_decimal(const struct dtp_text *t, struct decimal *out) {
    *out = (struct decimal){0};
    size_t i = t->n > 0 && (t->at[0] == '-' || t->at[0] == '+');
    out->negative = i == 1 && t->at[0] == '-';
    bool point = false, any = false;
    for (; i < t->n; i++) {
        char c = t->at[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c == 'e' || c == 'E') {
            int e;
            if (!parse_exponent(t->at + i + 1, t->n - i - 1, &e))
                return false;
            out->exponent += e;
            break;
        }
        if (c < '0' || c > '9')
            return false;
        any = true;
        if (out->digits > (UINT64_MAX - 9) / 10) {
            if (!point)
                return false; /* beyond 63 bits of nanoseconds anyway */
            continue;
        }
        out->digits = out->digits * 10 + (uint64_t)(c - '0');
        out->exponent -= point;
    }
    return any;
}

/* digits x 10^(exponent + shift) to a whole number, rounded half away from zero. */
static bool scale(const struct decimal *d, int shift, uint64_t *out) {
    uint64_t v = d->digits;
    int e = d->exponent + shift;
    for (; e > 0 && v > 0; e--) {
        if (v > UINT64_MAX / 10)
            return false;
        v *= 10;
    }
    unsigned last = 0;
    for (; e < 0 && v > 0; e++) {
        last = (unsigned)(v % 10);
        v /= 10;
    }
    *out = v + (e == 0 && last >= 5);
    return true;
}

bool dtp_text_us_to_ns(const struct dtp_text *t, int64_t *out_ns) {
    struct decimal d;
    uint64_t v;
    if (t->token == DTP_TOKEN_NOT_FINITE || t->token == DTP_TOKEN_WORD || !parse_decimal(t, &d) ||
        !scale(&d, 3, &v) || v > (uint64_t)INT64_MAX)
        return false;
    *out_ns = d.negative ? -(int64_t)v : (int64_t)v;
    return true;
}

bool dtp_text_u64(const struct dtp_text *t, uint64_t *out) {
    uint64_t v = 0;
    if (t->n == 0 || t->token == DTP_TOKEN_WORD || t->token == DTP_TOKEN_NOT_FINITE)
        return false;
    for (size_t i = 0; i < t->n; i++) {
        if (t->at[i] < '0' || t->at[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(t->at[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

bool dtp_text_i64(const struct dtp_text *t, int64_t *out) {
    bool negative = t->n > 0 && t->at[0] == '-';
    struct dtp_text digits = {t->at + negative, t->n - negative, t->token};
    uint64_t v;
    if (!dtp_text_u64(&digits, &v) || v > (uint64_t)INT64_MAX)
        return false;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return true;
}

enum dtp_status dtp_pull_u64(struct dtp_pull *p, uint64_t *out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(p, &t, err));
    return dtp_text_u64(&t, out) ? DTP_OK
                                 : dtp_pull_fail(p, err, "found no whole number that fits 64 bits");
}

enum dtp_status dtp_pull_i64(struct dtp_pull *p, int64_t *out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(p, &t, err));
    return dtp_text_i64(&t, out) ? DTP_OK
                                 : dtp_pull_fail(p, err, "found no whole number that fits 64 bits");
}
