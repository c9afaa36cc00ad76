#include "traces/formats/pull.h"

#include <string.h>

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
