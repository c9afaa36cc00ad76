#include "sim/base/json_scan.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cJSON copies a number into 64 bytes and cuts what is longer. */
enum { LONGEST_NUMBER = 60 };
static const double LARGEST_INTEGER = 9007199254740992.0; /* 2^53 */

/* What the scanner is inside of: the key (raw text) or the index that it has reached there. */
struct frame {
    const char *key; /* NULL in an array */
    size_t key_length, index;
};

struct scan {
    const char *name, *text, *p, *end;
    struct frame frame[DTP_JSON_DEPTH];
    int depth;
    struct dtp_err *err;
};

/* ---- errors ---- */

static void describe_byte(const struct scan *s, const char *at, char *buf, size_t size) {
    if (at >= s->end)
        snprintf(buf, size, "the end of the text");
    else if (isprint((unsigned char)*at))
        snprintf(buf, size, "'%c'", *at);
    else
        snprintf(buf, size, "byte 0x%02x", (unsigned)(unsigned char)*at);
}

/* "name:line:column", columns counted in bytes from 1. */
static void locate(const struct scan *s, const char *at, char *buf, size_t size) {
    int line = 1, column = 1;
    for (const char *q = s->text; q < at; q++) {
        column = *q == '\n' ? 1 : column + 1;
        line += *q == '\n';
    }
    snprintf(buf, size, "%s:%d:%d", s->name, line, column);
}

static enum dtp_status bad_syntax(const struct scan *s, const char *at, const char *expected) {
    char found[32], place[512];
    describe_byte(s, at, found, sizeof found);
    locate(s, at, place, sizeof place);
    return dtp_fail(s->err, DTP_EINPUT, "%s: found %s, expected %s", place, found, expected);
}

/* name: $.path: found TEXT, expected WHAT, for values that the grammar allows and we do not. */
static enum dtp_status bad_value(const struct scan *s, const char *at, size_t length,
                                 const char *expected) {
    char path[512] = "$";
    size_t n = 1;
    for (int i = 0; i < s->depth && n < sizeof path; i++) {
        const struct frame *f = &s->frame[i];
        int added = f->key
                        ? snprintf(path + n, sizeof path - n, ".%.*s", (int)f->key_length, f->key)
                        : snprintf(path + n, sizeof path - n, "[%zu]", f->index);
        n += added > 0 ? (size_t)added : 0;
    }
    int shown = length > 80 ? 80 : (int)length;
    return dtp_fail(s->err, DTP_EINPUT, "%s: %s: found %.*s%s, expected %s", s->name, path, shown,
                    at, length > 80 ? "..." : "", expected);
}

/* ---- tokens ---- */

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool is_at(const struct scan *s, char c) {
    return s->p < s->end && *s->p == c;
}

static bool digit_at(const struct scan *s) {
    return s->p < s->end && isdigit((unsigned char)*s->p);
}

static enum dtp_status scan_digits(struct scan *s) {
    if (!digit_at(s))
        return bad_syntax(s, s->p, "a digit");
    while (digit_at(s))
        s->p++;
    return DTP_OK;
}

static enum dtp_status check_number(const struct scan *s, const char *start, bool integer) {
    size_t length = (size_t)(s->p - start);
    if (length > LONGEST_NUMBER)
        return bad_value(s, start, length, "a number of at most 60 characters");
    char copy[LONGEST_NUMBER + 1];
    memcpy(copy, start, length);
    copy[length] = '\0';
    double v = strtod(copy, NULL);
    if (!isfinite(v))
        return bad_value(s, start, length, "a finite number");
    /* 2^53 + 1 rounds to 2^53: compare the digits too */
    bool beyond = fabs(v) > LARGEST_INTEGER ||
                  (fabs(v) == LARGEST_INTEGER && !strstr(copy, "9007199254740992"));
    if (integer && beyond)
        return bad_value(s, start, length, "an integer of at most 2^53 in size");
    return DTP_OK;
}

static enum dtp_status scan_number(struct scan *s) {
    const char *start = s->p;
    bool integer = true;
    if (is_at(s, '-'))
        s->p++;
    if (is_at(s, '0')) {
        s->p++;
        if (digit_at(s))
            return bad_syntax(s, s->p, "no digit after a leading zero");
    } else {
        DTP_TRY(scan_digits(s));
    }
    if (is_at(s, '.')) {
        integer = false;
        s->p++;
        DTP_TRY(scan_digits(s));
    }
    if (is_at(s, 'e') || is_at(s, 'E')) {
        integer = false;
        s->p++;
        if (is_at(s, '+') || is_at(s, '-'))
            s->p++;
        DTP_TRY(scan_digits(s));
    }
    return check_number(s, start, integer);
}

static enum dtp_status scan_word(struct scan *s, const char *word) {
    for (const char *w = word; *w; w++, s->p++)
        if (!is_at(s, *w))
            return bad_syntax(s, s->p, "true, false, null, a number, a string, [ or {");
    return DTP_OK;
}

/* Four hexadecimal digits after \u. */
static enum dtp_status scan_hex4(struct scan *s, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        if (s->p >= s->end || !isxdigit((unsigned char)*s->p))
            return bad_syntax(s, s->p, "four hexadecimal digits after \\u");
        int c = tolower((unsigned char)*s->p);
        *code = *code * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return DTP_OK;
}

/* \uXXXX, with the second half of a surrogate pair; NUL cannot be held in a C string. */
static enum dtp_status scan_unicode_escape(struct scan *s) {
    const char *start = s->p - 2;
    unsigned high, low = 0;
    DTP_TRY(scan_hex4(s, &high));
    if (high == 0)
        return bad_syntax(s, start, "no NUL character (\\u0000)");
    if (high < 0xd800 || high > 0xdfff)
        return DTP_OK;
    bool pair = high < 0xdc00 && s->end - s->p >= 2 && s->p[0] == '\\' && s->p[1] == 'u';
    if (pair) {
        s->p += 2;
        DTP_TRY(scan_hex4(s, &low));
    }
    if (low < 0xdc00 || low > 0xdfff)
        return bad_syntax(s, start, "both halves of a surrogate pair");
    return DTP_OK;
}

static enum dtp_status scan_escape(struct scan *s) {
    s->p++; /* the backslash */
    if (s->p >= s->end || *s->p == '\0' || !strchr("\"\\/bfnrtu", *s->p))
        return bad_syntax(s, s->p, "one of \" \\ / b f n r t u after a backslash");
    bool unicode = *s->p == 'u';
    s->p++;
    return unicode ? scan_unicode_escape(s) : DTP_OK;
}

/* One well-formed sequence of two to four bytes (Unicode 15, table 3-7). */
static enum dtp_status scan_utf8(struct scan *s) {
    const unsigned char *u = (const unsigned char *)s->p;
    unsigned low = 0x80, high = 0xbf;
    int more = 0;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        more = 1;
    else if (u[0] >= 0xe0 && u[0] <= 0xef)
        more = 2;
    else if (u[0] >= 0xf0 && u[0] <= 0xf4)
        more = 3;
    if (u[0] == 0xe0)
        low = 0xa0; /* no overlong form */
    if (u[0] == 0xed)
        high = 0x9f; /* no surrogate */
    if (u[0] == 0xf0)
        low = 0x90;
    if (u[0] == 0xf4)
        high = 0x8f; /* nothing above U+10FFFF */
    if (more == 0 || s->end - s->p <= more || u[1] < low || u[1] > high)
        return bad_syntax(s, s->p, "valid UTF-8");
    for (int i = 2; i <= more; i++)
        if (u[i] < 0x80 || u[i] > 0xbf)
            return bad_syntax(s, s->p, "valid UTF-8");
    s->p += more + 1;
    return DTP_OK;
}

static enum dtp_status scan_string(struct scan *s) {
    const char *start = s->p;
    if (!is_at(s, '"'))
        return bad_syntax(s, s->p, "a string");
    s->p++;
    while (!is_at(s, '"')) {
        if (s->p >= s->end)
            return bad_syntax(s, start, "a string that ends");
        unsigned char c = (unsigned char)*s->p;
        if (c < 0x20)
            return bad_syntax(s, s->p, "no raw control character in a string");
        if (c == '\\')
            DTP_TRY(scan_escape(s));
        else if (c >= 0x80)
            DTP_TRY(scan_utf8(s));
        else
            s->p++;
    }
    s->p++;
    return DTP_OK;
}

/* ---- values: recursion is bounded by DTP_JSON_DEPTH ---- */

static enum dtp_status scan_value(struct scan *s);

static enum dtp_status enter(struct scan *s) {
    if (s->depth == DTP_JSON_DEPTH) {
        char place[512];
        locate(s, s->p, place, sizeof place);
        return dtp_fail(s->err, DTP_EINPUT, "%s: nested deeper than %d levels", place,
                        DTP_JSON_DEPTH);
    }
    s->p++;
    s->frame[s->depth++] = (struct frame){NULL, 0, 0};
    skip_space(s);
    return DTP_OK;
}

static enum dtp_status scan_array(struct scan *s) {
    DTP_TRY(enter(s));
    struct frame *f = &s->frame[s->depth - 1];
    while (!is_at(s, ']')) {
        DTP_TRY(scan_value(s));
        skip_space(s);
        if (is_at(s, ']'))
            break;
        if (!is_at(s, ','))
            return bad_syntax(s, s->p, "',' or ']'");
        s->p++;
        f->index++;
        skip_space(s);
        if (is_at(s, ']'))
            return bad_syntax(s, s->p, "a value after ','");
    }
    s->p++;
    s->depth--;
    return DTP_OK;
}

static enum dtp_status scan_member(struct scan *s, struct frame *f) {
    const char *start = s->p;
    if (!is_at(s, '"'))
        return bad_syntax(s, s->p, "a key in quotes");
    DTP_TRY(scan_string(s));
    f->key = start + 1;
    f->key_length = (size_t)(s->p - start) - 2;
    skip_space(s);
    if (!is_at(s, ':'))
        return bad_syntax(s, s->p, "':'");
    s->p++;
    skip_space(s);
    DTP_TRY(scan_value(s));
    skip_space(s);
    return DTP_OK;
}

static enum dtp_status scan_object(struct scan *s) {
    DTP_TRY(enter(s));
    struct frame *f = &s->frame[s->depth - 1];
    while (!is_at(s, '}')) {
        DTP_TRY(scan_member(s, f));
        if (is_at(s, '}'))
            break;
        if (!is_at(s, ','))
            return bad_syntax(s, s->p, "',' or '}'");
        s->p++;
        skip_space(s);
        if (is_at(s, '}'))
            return bad_syntax(s, s->p, "a key after ','");
    }
    s->p++;
    s->depth--;
    return DTP_OK;
}

static enum dtp_status scan_value(struct scan *s) {
    if (is_at(s, '{'))
        return scan_object(s);
    if (is_at(s, '['))
        return scan_array(s);
    if (is_at(s, '"'))
        return scan_string(s);
    if (is_at(s, '-') || digit_at(s))
        return scan_number(s);
    if (is_at(s, 't'))
        return scan_word(s, "true");
    if (is_at(s, 'f'))
        return scan_word(s, "false");
    return scan_word(s, "null");
}

enum dtp_status dtp_json_scan(const char *name, const char *text, size_t length_bytes,
                              struct dtp_err *err) {
    struct scan s = {.name = name, .text = text, .p = text, .end = text + length_bytes, .err = err};
    skip_space(&s);
    DTP_TRY(scan_value(&s));
    skip_space(&s);
    if (s.p < s.end)
        return bad_syntax(&s, s.p, "the end of the text");
    return DTP_OK;
}
