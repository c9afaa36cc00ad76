#include "sim/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

/* ---- names ---- */

enum { LONGEST = 64, FAR = 9999, MOST_SUGGESTIONS = 3, SHORT_LIST = 20 };

static const char *next_of_name(const char *p) {
    while (*p == '-' || *p == '_' || *p == ' ')
        p++;
    return p;
}

bool dtp_same_name(const char *x, const char *y) {
    for (;; x++, y++) {
        x = next_of_name(x);
        y = next_of_name(y);
        if (tolower((unsigned char)*x) != tolower((unsigned char)*y))
            return false;
        if (*x == '\0')
            return true;
    }
}

bool dtp_text_has(const char *text, const char *lower) {
    for (; *text; text++) {
        size_t i = 0;
        while (lower[i] && tolower((unsigned char)text[i]) == lower[i])
            i++;
        if (!lower[i])
            return true;
    }
    return false;
}

const char *dtp_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool dtp_ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

bool dtp_one_of(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; at && *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0)
            return true;
        at += length + strspn(at + length, " ");
    }
    return false;
}

/* Returns the optimal string alignment distance (insert, delete, replace, swap of neighbours) over at most
 * LONGEST lower-case characters. */
static int edit_distance(const char *x, size_t nx, const char *y, size_t ny) {
    int row[3][LONGEST + 1];
    for (size_t j = 0; j <= ny; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= nx; i++) {
        int *now = row[i % 3];
        const int *above = row[(i + 2) % 3], *above2 = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= ny; j++) {
            int best = above[j - 1] + (x[i - 1] != y[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
            if (swapped && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[nx % 3][ny];
}

static size_t lower(const char *s, char *out) {
    size_t n = 0;
    for (; n < LONGEST && s[n]; n++)
        out[n] = (char)tolower((unsigned char)s[n]);
    out[n] = '\0';
    return n;
}

/* Says how far a known name is from what was typed: ten per edit; a name that begins with the text (or
 * is its beginning) counts as less than one edit, one that contains it as one. FAR: no likeness. */
static int unlikeness(const char *typed, const char *known) {
    char x[LONGEST + 1], y[LONGEST + 1];
    size_t nx = lower(typed, x), ny = lower(known, y);
    size_t longer = nx > ny ? nx : ny, shorter = nx > ny ? ny : nx;
    int edits = edit_distance(x, nx, y, ny);
    int cost = edits <= ((int)longer + 2) / 3 && edits < (int)longer ? 10 * edits : FAR;
    int rest = (int)(longer - shorter);
    if (shorter >= 2 && strncmp(x, y, shorter) == 0 && 5 + rest < cost)
        cost = 5 + rest;
    if (shorter >= 3 && (strstr(x, y) || strstr(y, x)) && 8 + rest < cost)
        cost = 8 + rest;
    return cost;
}

int dtp_nearest_name(const char *name, const char *const *names, size_t n) {
    int best = -1, best_cost = FAR;
    for (size_t i = 0; i < n; i++) {
        int cost = unlikeness(name, names[i]);
        if (cost < best_cost) {
            best_cost = cost;
            best = (int)i;
        }
    }
    return best;
}

/* Finds the indices of the nearest names, best first, none much worse than the best. */
static size_t nearest_few(const char *name, const char *const *names, size_t n, size_t *out) {
    int cost[MOST_SUGGESTIONS];
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        int c = unlikeness(name, names[i]);
        if (c >= FAR)
            continue;
        size_t at = found;
        while (at > 0 && c < cost[at - 1])
            at--;
        if (at == MOST_SUGGESTIONS)
            continue;
        if (found < MOST_SUGGESTIONS)
            found++;
        for (size_t k = found - 1; k > at; k--) {
            cost[k] = cost[k - 1];
            out[k] = out[k - 1];
        }
        cost[at] = c;
        out[at] = i;
    }
    while (found > 1 && cost[found - 1] > cost[0] + 5)
        found--;
    return found;
}

static void append(char *buf, size_t size, const char *a, const char *b, const char *c) {
    size_t n = strlen(buf);
    snprintf(buf + n, size - n, "%s%s%s", a, b, c);
}

enum dtp_status dtp_unknown_name(struct dtp_err *err, enum dtp_status status, const char *kind,
                                 const char *name, const char *const *names, size_t n,
                                 const char *list_hint) {
    size_t near[MOST_SUGGESTIONS];
    size_t found = nearest_few(name, names, n, near);
    char list[512] = "";
    for (size_t i = 0; i < found; i++)
        append(list, sizeof list,
               i == 0           ? "\""
               : i + 1 == found ? " or \""
                                : ", \"",
               names[near[i]], "\"");
    if (found > 0)
        return dtp_fail(err, status, "unknown %s \"%s\", did you mean %s?", kind, name, list);
    if (n > 0 && n <= SHORT_LIST) {
        for (size_t i = 0; i < n; i++)
            append(list, sizeof list, i == 0 ? "" : ", ", names[i], "");
        return dtp_fail(err, status, "unknown %s \"%s\", expected one of: %s", kind, name, list);
    }
    if (list_hint)
        return dtp_fail(err, status, "unknown %s \"%s\"; `%s` lists them", kind, name, list_hint);
    return dtp_fail(err, status, "unknown %s \"%s\"", kind, name);
}

/* ---- parsing what people type ---- */

enum dtp_status dtp_bad_value(const char *place) {
    return strncmp(place, "--", 2) == 0 ? DTP_EUSAGE : DTP_EINPUT;
}

struct suffix {
    const char *text; /* lower case */
    double factor;
};

/* Returns the length of a decimal number at s: [+-] digits [. digits] [e [+-] digits]. 0 if there is none.
 * strtod alone would also take hexadecimal, "nan" and "infinity". */
static size_t number_length(const char *s) {
    const char *p = s;
    if (*p == '+' || *p == '-')
        p++;
    size_t digits = 0;
    for (; isdigit((unsigned char)*p); p++)
        digits++;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++)
            digits++;
    if (digits == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        if (*q == '+' || *q == '-')
            q++;
        if (isdigit((unsigned char)*q)) {
            while (isdigit((unsigned char)*q))
                q++;
            p = q;
        }
    }
    return (size_t)(p - s);
}

static bool equal_case_blind(const char *a, const char *lower) {
    for (; *a && *lower; a++, lower++)
        if (tolower((unsigned char)*a) != *lower)
            return false;
    return *a == *lower;
}

static bool find_factor(const char *unit, const struct suffix *suffixes, size_t n, double *factor) {
    while (*unit == ' ')
        unit++;
    for (size_t i = 0; i < n; i++) {
        if (equal_case_blind(unit, suffixes[i].text)) {
            *factor = suffixes[i].factor;
            return true;
        }
    }
    return false;
}

/* Reads a number >= 0 with a suffix of the table (the empty one included where it is allowed). */
static bool parse_scaled(const char *text, const struct suffix *suffixes, size_t n, double *out) {
    size_t length = number_length(text);
    double factor = 1;
    if (length == 0 || !find_factor(text + length, suffixes, n, &factor))
        return false;
    double v = strtod(text, NULL) * factor;
    if (!isfinite(v) || v < 0)
        return false;
    *out = v;
    return true;
}

enum dtp_status dtp_parse_bytes(const char *text, const char *place, uint64_t *out,
                                struct dtp_err *err) {
    static const struct suffix suffixes[] = {
        {"", 1.0},        {"b", 1.0},       {"k", DTP_KILO},  {"kb", DTP_KILO},
        {"m", DTP_MEGA},  {"mb", DTP_MEGA}, {"g", DTP_GIGA},  {"gb", DTP_GIGA},
        {"t", DTP_TERA},  {"tb", DTP_TERA}, {"kib", DTP_KIB}, {"mib", DTP_MIB},
        {"gib", DTP_GIB}, {"tib", DTP_TIB}, {"p", DTP_PETA},  {"pb", DTP_PETA}};
    static const double limit_bytes = 9.2e18; /* below 2^63, so that sums of two stay in uint64_t */
    double v = 0;
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, &v) || v > limit_bytes)
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected bytes such as 80GB, 74.5GiB or 1000", place,
                        text);
    *out = (uint64_t)(v + 0.5);
    return DTP_OK;
}

enum dtp_status dtp_parse_time(const char *text, const char *place, double *out_s,
                               struct dtp_err *err) {
    static const struct suffix suffixes[] = {{"", 1.0},
                                             {"s", 1.0},
                                             {"ms", DTP_MILLI},
                                             {"us", DTP_MICRO},
                                             {"ns", DTP_NANO},
                                             {"min", DTP_S_PER_MINUTE},
                                             {"h", DTP_S_PER_HOUR},
                                             {"d", DTP_S_PER_DAY},
                                             {"days", DTP_S_PER_DAY}};
    static const double limit_s = DTP_TERA; /* 30,000 years: products of times stay finite */
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, out_s))
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected a time such as 1.5ms, 3s, 2h or 30d", place,
                        text);
    if (*out_s > limit_s)
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected %g s at most", place,
                        text, limit_s);
    return DTP_OK;
}

enum dtp_status dtp_parse_count(const char *text, const char *place, double *out,
                                struct dtp_err *err) {
    static const struct suffix suffixes[] = {
        {"", 1.0}, {"k", DTP_KILO}, {"m", DTP_MEGA}, {"b", DTP_GIGA}, {"t", DTP_TERA}};
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, out))
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected a count such as 300B, 1.5T or 450k", place,
                        text);
    return DTP_OK;
}

static enum dtp_status not_in_range(const char *text, const char *place, long min, long max,
                                    struct dtp_err *err) {
    if (max == LONG_MAX)
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected an integer of %ld or more", place, text, min);
    return dtp_fail(err, dtp_bad_value(place),
                    "%s: found \"%s\", expected an integer from %ld to %ld", place, text, min, max);
}

enum dtp_status dtp_parse_long(const char *text, const char *place, long min, long max, long *out,
                               struct dtp_err *err) {
    const char *digits = text + (*text == '+' || *text == '-');
    if (!isdigit((unsigned char)*digits))
        return not_in_range(text, place, min, max, err);
    char *end = NULL;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (*end || errno || v < min || v > max)
        return not_in_range(text, place, min, max, err);
    *out = v;
    return DTP_OK;
}

enum dtp_status dtp_parse_double(const char *text, const char *place, double *out,
                                 struct dtp_err *err) {
    size_t length = number_length(text);
    double v = length > 0 ? strtod(text, NULL) : 0;
    if (length == 0 || text[length] || !isfinite(v))
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected a number", place,
                        text);
    *out = v;
    return DTP_OK;
}

/* ---- a growing string ---- */

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
