#include "traces/formats/pull.h"

#include <string.h>

static size_t put_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

static bool hex4(const unsigned char *at, size_t n, unsigned *out) {
    *out = 0;
    if (n < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        unsigned char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (unsigned)digit;
    }
    return true;
}

/* One escape at at[0] = '\\' of n bytes; returns the bytes taken, puts the result into to. */
static size_t unescape(struct dtp_pull *p, const unsigned char *at, size_t n, char *to,
                       size_t *out_n) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *known = n > 1 && at[1] ? strchr(from, at[1]) : NULL;
    unsigned code, low;
    *out_n = 1;
    if (known) {
        *to = into[known - from];
        return 2;
    }
    if (n < 6 || at[1] != 'u' || !hex4(at + 2, n - 2, &code)) {
        p->bad_escapes++;
        *to = '\\';
        return 1;
    }
    if (code >= 0xd800 && code < 0xdc00 && n >= 12 && at[6] == '\\' && at[7] == 'u' &&
        hex4(at + 8, n - 8, &low) && low >= 0xdc00 && low < 0xe000) {
        *out_n = put_utf8(to, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
        return 12;
    }
    if (code >= 0xd800 && code < 0xe000) {
        p->bad_utf8++;
        code = 0xfffd;
    }
    *out_n = put_utf8(to, code);
    return 6;
}

/* Returns the length of a valid UTF-8 sequence at `at`, or 0. */
static size_t utf8_length(const unsigned char *at, size_t n) {
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] > 0xf4 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

/* Each byte gives at most three. */
static void dtp_pull_decode(struct dtp_pull *p, struct dtp_text *t) {
    const unsigned char *at = (const unsigned char *)t->at;
    if (p->decoded_capacity < 3 * t->n + 4) {
        p->decoded_capacity = 6 * t->n + 64;
        p->decoded = DTP_NEW(p->a, char, p->decoded_capacity);
    }
    size_t n = 0;
    for (size_t i = 0; i < t->n;) {
        size_t length, made;
        if (at[i] == '\\') {
            i += unescape(p, at + i, t->n - i, p->decoded + n, &made);
            n += made;
            continue;
        }
        length = utf8_length(at + i, t->n - i);
        if (length == 0) {
            p->bad_utf8++;
            n += put_utf8(p->decoded + n, 0xfffd);
            i++;
            continue;
        }
        p->raw_controls += at[i] < 0x20;
        memcpy(p->decoded + n, at + i, length);
        n += length;
        i += length;
    }
    t->at = p->decoded;
    t->n = n;
}

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

enum { WINDOW = 1 << 18 };

void dtp_pull_init(struct dtp_pull *p, struct dtp_arena *a, struct dtp_source *source) {
    *p = (struct dtp_pull){.source = source, .a = a, .capacity = WINDOW};
    p->buf = DTP_NEW(a, unsigned char, WINDOW);
}

uint64_t dtp_pull_offset(const struct dtp_pull *p) {
    return p->before + p->at;
}

enum dtp_status dtp_pull_fail(const struct dtp_pull *p, struct dtp_err *err, const char *what) {
    return dtp_fail(err, DTP_EINPUT, "%s: byte %llu: %s", dtp_source_name(p->source),
                    (unsigned long long)dtp_pull_offset(p), what);
}

/* Reads on, keeping the bytes from `keep`; the window grows when they fill it. */
static enum dtp_status fill(struct dtp_pull *p, size_t keep, struct dtp_err *err) {
    if (keep > 0) {
        memmove(p->buf, p->buf + keep, p->end - keep);
        p->before += keep;
        p->at -= keep;
        p->end -= keep;
    }
    if (p->end == p->capacity) {
        if (p->capacity >= DTP_PULL_STRING_BYTES)
            return dtp_pull_fail(p, err, "a string of more than 16 MB");
        p->buf = dtp_arena_grow(p->a, p->buf, 1, p->capacity, p->capacity * 2);
        p->capacity *= 2;
    }
    size_t n;
    DTP_TRY(dtp_source_read(p->source, p->buf + p->end, p->capacity - p->end, &n, err));
    p->end += n;
    p->at_end = n == 0;
    return DTP_OK;
}

enum dtp_status dtp_pull_peek(struct dtp_pull *p, char *out, struct dtp_err *err) {
    for (;;) {
        while (p->at < p->end) {
            unsigned char c = p->buf[p->at];
            if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
                *out = (char)c;
                return DTP_OK;
            }
            p->at++;
        }
        *out = '\0';
        if (p->at_end)
            return DTP_OK;
        DTP_TRY(fill(p, p->at, err));
    }
}

enum dtp_status dtp_pull_open(struct dtp_pull *p, char brace, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c != brace)
        return dtp_pull_fail(p, err,
                             c == '\0'      ? "the file ends where a value should begin"
                             : brace == '{' ? "expected {"
                                            : "expected [");
    if (++p->depth > DTP_PULL_DEPTH)
        return dtp_pull_fail(p, err, "nested deeper than 64");
    p->at++;
    p->opened = true;
    return DTP_OK;
}

enum dtp_status dtp_pull_open_or_skip(struct dtp_pull *p, char brace, bool *out_open,
                                      struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    *out_open = c == brace;
    return c == brace ? dtp_pull_open(p, brace, err) : dtp_pull_skip(p, err);
}

/* Whether a member or element follows; takes the comma, or the closing brace if none does. */
static enum dtp_status take_comma(struct dtp_pull *p, char close, bool *out_more,
                                  struct dtp_err *err) {
    bool first = p->opened;
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    p->opened = false;
    *out_more = c != close;
    if (c == close) {
        p->at++;
        p->depth--;
        return DTP_OK;
    }
    if (c == '\0')
        return dtp_pull_fail(p, err,
                             close == '}' ? "the file ends inside an object"
                                          : "the file ends inside an array");
    if (first)
        return DTP_OK;
    if (c != ',')
        return dtp_pull_fail(p, err, close == '}' ? "expected , or }" : "expected , or ]");
    p->at++;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c == close)
        return dtp_pull_fail(p, err, "a comma without a value after it");
    return DTP_OK;
}

bool dtp_pull_element(struct dtp_pull *p, enum dtp_status *out_status, struct dtp_err *err) {
    bool more;
    *out_status = take_comma(p, ']', &more, err);
    return *out_status == DTP_OK && more;
}

/* ---- strings ---- */

/* Eight bytes, the first in the lowest bits. */
static uint64_t load_8(const unsigned char *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* Bytes of a string before the first that is a quote, a backslash, a control character or not ASCII, or `n`. Eight at
 * once: a byte is less than k < 128 where subtracting k borrows into its top bit and the bit was not set before; what
 * a borrow marks wrongly lies above a byte that is marked rightly, so that the lowest mark is right. */
static size_t plain_bytes(const unsigned char *at, size_t n) {
    const uint64_t ones = UINT64_MAX / 255, top = ones << 7;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v = load_8(at + i), quote = v ^ (ones * '"'), slash = v ^ (ones * '\\');
        uint64_t mark = (((v - ones * 0x20) | (quote - ones) | (slash - ones)) & ~v) | v;
        if ((mark & top) != 0)
            return i + (size_t)__builtin_ctzll(mark & top) / 8;
    }
    while (i < n && at[i] >= 0x20 && at[i] < 0x80 && at[i] != '"' && at[i] != '\\')
        i++;
    return i;
}

/* p->at is after the opening quote. decoded: false where the text is thrown away. */
static enum dtp_status take_string(struct dtp_pull *p, struct dtp_text *out, bool decoded,
                                   struct dtp_err *err) {
    size_t start = p->at;
    bool plain = true;
    for (;;) {
        while (p->at < p->end) {
            p->at += plain_bytes(p->buf + p->at, p->end - p->at);
            if (p->at == p->end || p->buf[p->at] == '"')
                break;
            plain = false;
            p->at += p->buf[p->at] == '\\' ? 2 : 1;
        }
        if (p->at < p->end)
            break;
        if (p->at_end) {
            p->at = p->end;
            return dtp_pull_fail(p, err, "the file ends inside a string");
        }
        DTP_TRY(fill(p, start, err));
        start = 0;
    }
    *out = (struct dtp_text){(const char *)p->buf + start, p->at - start, DTP_TOKEN_STRING};
    p->at++;
    if (!plain && decoded)
        dtp_pull_decode(p, out);
    return DTP_OK;
}

static enum dtp_status take_key(struct dtp_pull *p, struct dtp_text *out, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c != '"')
        return dtp_pull_fail(p, err, "expected a key in quotes");
    p->at++;
    /* the colon may lie beyond the window, which would move the key */
    DTP_TRY(take_string(p, out, true, err));
    if (p->at < p->end && p->buf[p->at] == ':') {
        p->at++;
        return DTP_OK;
    }
    if (p->decoded_capacity <= out->n) {
        p->decoded_capacity = 2 * out->n + 64;
        p->decoded = DTP_NEW(p->a, char, p->decoded_capacity);
    }
    memmove(p->decoded, out->at, out->n);
    out->at = p->decoded;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c != ':')
        return dtp_pull_fail(p, err, "expected :");
    p->at++;
    return DTP_OK;
}

bool dtp_pull_member(struct dtp_pull *p, struct dtp_text *out_key, enum dtp_status *out_status,
                     struct dtp_err *err) {
    bool more;
    *out_status = take_comma(p, '}', &more, err);
    if (*out_status == DTP_OK && more)
        *out_status = take_key(p, out_key, err);
    return *out_status == DTP_OK && more;
}

/* ---- scalars ---- */

static bool in_word(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '+' || c == '-' || c == '_';
}

static bool one_of(const struct dtp_text *t, const char *const *words) {
    for (int i = 0; words[i]; i++)
        if (dtp_text_is(t, words[i]))
            return true;
    return false;
}

/* -?digits[.digits][e[+-]digits] */
static bool is_number(const struct dtp_text *t) {
    size_t i = t->n > 0 && t->at[0] == '-', digits = 0;
    for (; i < t->n && t->at[i] >= '0' && t->at[i] <= '9'; i++)
        digits++;
    if (digits == 0)
        return false;
    if (i < t->n && t->at[i] == '.')
        for (i++; i < t->n && t->at[i] >= '0' && t->at[i] <= '9'; i++)
            ;
    if (i < t->n && (t->at[i] == 'e' || t->at[i] == 'E')) {
        i++;
        i += i < t->n && (t->at[i] == '+' || t->at[i] == '-');
        if (i == t->n)
            return false;
        for (; i < t->n && t->at[i] >= '0' && t->at[i] <= '9'; i++)
            ;
    }
    return i == t->n;
}

static enum dtp_status take_word(struct dtp_pull *p, struct dtp_text *out, struct dtp_err *err) {
    static const char *const words[] = {"true", "false", "null", NULL};
    static const char *const not_finite[] = {"NaN", "nan",  "-nan", "-NaN", "Infinity", "-Infinity",
                                             "inf", "-inf", "Inf",  "-Inf", NULL};
    size_t start = p->at;
    for (;;) {
        while (p->at < p->end && in_word(p->buf[p->at]))
            p->at++;
        if (p->at < p->end || p->at_end)
            break;
        DTP_TRY(fill(p, start, err));
        start = 0;
    }
    *out = (struct dtp_text){(const char *)p->buf + start, p->at - start, DTP_TOKEN_NUMBER};
    if (is_number(out))
        return DTP_OK;
    if (one_of(out, words)) {
        out->token = DTP_TOKEN_WORD;
        return DTP_OK;
    }
    if (one_of(out, not_finite)) {
        out->token = DTP_TOKEN_NOT_FINITE;
        p->not_finite++;
        return DTP_OK;
    }
    p->at = start;
    return dtp_pull_fail(p, err,
                         out->n == 0 && p->at_end && p->at == p->end
                             ? "the file ends where a value should begin"
                             : "expected a value");
}

enum dtp_status dtp_pull_text(struct dtp_pull *p, struct dtp_text *out, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c != '"')
        return take_word(p, out, err);
    p->at++;
    return take_string(p, out, true, err);
}

enum dtp_status dtp_pull_skip(struct dtp_pull *p, struct dtp_err *err) {
    char c;
    struct dtp_text t;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c == '"') {
        p->at++;
        return take_string(p, &t, false, err);
    }
    if (c != '{' && c != '[')
        return take_word(p, &t, err);
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, c, err));
    while (c == '{' ? dtp_pull_member(p, &t, &status, err) : dtp_pull_element(p, &status, err))
        DTP_TRY(dtp_pull_skip(p, err));
    return status;
}

bool dtp_text_is(const struct dtp_text *t, const char *s) {
    size_t i = 0;
    while (i < t->n && s[i] == t->at[i] && s[i]) /* most differ in the first byte */
        i++;
    return i == t->n && !s[i];
}
