#include "sim/base/text.h"

#include <string.h>

void dtp_str_addn(struct dtp_str *s, const char *text, size_t n) {
    if (s->n + n + 1 > s->capacity) {
        size_t capacity = s->capacity ? s->capacity : 32;
        while (capacity < s->n + n + 1)
            capacity *= 2;
        s->at = dtp_arena_grow(s->a, s->at, 1, s->capacity, capacity);
        s->capacity = capacity;
    }
    memcpy(s->at + s->n, text, n);
    s->n += n;
    s->at[s->n] = '\0';
}

void dtp_str_add(struct dtp_str *s, const char *text) {
    dtp_str_addn(s, text, strlen(text));
}

void dtp_str_printf(struct dtp_str *s, const char *format, ...) {
    char small[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small)
        dtp_str_addn(s, small, (size_t)n);
    else
        dtp_str_add(s, dtp_arena_vprintf(s->a, format, again));
    va_end(again);
    va_end(args);
}

void dtp_str_add_word(struct dtp_str *s, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%+=:,./-_";
    if (text[0] && strspn(text, plain) == strlen(text)) {
        dtp_str_add(s, text);
        return;
    }
    dtp_str_add(s, "'");
    for (; *text; text++)
        dtp_str_printf(s, *text == '\'' ? "'\\%c'" : "%c", *text);
    dtp_str_add(s, "'");
}

size_t dtp_text_mark_bytes(const char *text, size_t length_bytes) {
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    return length_bytes >= sizeof mark && memcmp(text, mark, sizeof mark) == 0 ? sizeof mark : 0;
}
