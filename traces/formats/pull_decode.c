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

/* Length of a valid UTF-8 sequence at `at`, or 0. */
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
void dtp_pull_decode(struct dtp_pull *p, struct dtp_text *t) {
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
