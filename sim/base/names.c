#include "sim/base/text.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

enum { LONGEST = 64, FAR = 9999, MOST_SUGGESTIONS = 3, SHORT_LIST = 16 };

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

/* Optimal string alignment distance (insert, delete, replace, swap of neighbours) over at most
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

/* How far a known name is from what was typed: ten per edit; a name that begins with the text (or
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

/* The indices of the nearest names, best first, none much worse than the best. */
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
