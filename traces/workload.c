#include "traces/workload.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS = 12, MOST_LAYERS = 9999999 };

static const char space[] = " \t\r";

struct lines {
    const char *at;
    int number;
};

/* The next line that is not blank, without its end; false at the end of the text. */
static bool next_line(struct dtp_arena *a, struct lines *l, char **out) {
    while (*l->at) {
        size_t n = strcspn(l->at, "\n");
        const char *from = l->at;
        l->at += n + (l->at[n] == '\n');
        l->number++;
        size_t blank = strspn(from, space);
        if (blank >= n)
            continue;
        *out = dtp_arena_strndup(a, from + blank, n - blank);
        return true;
    }
    return false;
}

static size_t split(char *line, char **field, size_t most) {
    size_t n = 0;
    for (char *at = line; *at;) {
        at += strspn(at, space);
        if (!*at)
            break;
        if (n < most)
            field[n] = at;
        n++;
        at += strcspn(at, space);
        if (*at)
            *at++ = '\0';
    }
    return n;
}

static bool number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out < 1e300;
}

static enum dtp_status take_layer(char **field, const char *place, double unit_s,
                                  struct dtp_workload_layer *out, struct dtp_err *err) {
    double v;
    *out = (struct dtp_workload_layer){.name = field[0]};
    out->dependency = strtoll(field[1], NULL, 10);
    for (int p = 0; p < DTP_NPHASES; p++) {
        char **at = field + 2 + 3 * p;
        if (!number(at[0], &v))
            return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected a time", place, at[0]);
        out->phase[p].compute_s = v * unit_s;
        out->phase[p].collective = at[1];
        if (!number(at[2], &v) || v > 0x1p63)
            return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected bytes", place, at[2]);
        out->phase[p].bytes = (uint64_t)v;
    }
    if (!number(field[FIELDS - 1], &v))
        return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected a time", place,
                        field[FIELDS - 1]);
    out->update_s = v * unit_s;
    return DTP_OK;
}

static enum dtp_status take_rows(struct dtp_arena *a, const char *name, struct lines *l,
                                 double unit_s, struct dtp_workload *out, struct dtp_err *err) {
    size_t capacity = 0;
    char *line, *field[FIELDS];
    while (next_line(a, l, &line)) {
        char place[512];
        snprintf(place, sizeof place, "%.400s:%d", name, l->number);
        size_t n = split(line, field, FIELDS);
        if (n != FIELDS)
            return dtp_fail(err, DTP_EINPUT, "%s: %zu fields, expected %d", place, n, FIELDS);
        if (out->nlayers == capacity) {
            size_t more = capacity * 2 + 16;
            out->layer = dtp_arena_grow(a, out->layer, sizeof *out->layer, capacity, more);
            capacity = more;
        }
        DTP_TRY(take_layer(field, place, unit_s, &out->layer[out->nlayers++], err));
    }
    return DTP_OK;
}

enum dtp_status dtp_workload_parse(struct dtp_arena *a, const char *name, const char *text,
                                   double unit_s, struct dtp_workload *out, struct dtp_err *err) {
    struct lines l = {text, 0};
    char *line;
    long declared;
    *out = (struct dtp_workload){.policy = "", .header = ""};
    if (!next_line(a, &l, &line))
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", name);
    size_t n = strcspn(line, space);
    out->policy = dtp_arena_strndup(a, line, n);
    n += strspn(line + n, space);
    size_t length = strlen(line + n);
    while (length > 0 && strchr(space, line[n + length - 1]))
        length--;
    out->header = dtp_arena_strndup(a, line + n, length);
    if (!next_line(a, &l, &line))
        return dtp_fail(err, DTP_EINPUT, "%s: no number of layers in line 2", name);
    line[strcspn(line, space)] = '\0';
    DTP_TRY(dtp_parse_long(line, name, 0, MOST_LAYERS, &declared, err));
    DTP_TRY(take_rows(a, name, &l, unit_s, out, err));
    if ((size_t)declared != out->nlayers)
        return dtp_fail(err, DTP_EINPUT, "%s: line 2 says %ld layers, the file has %zu", name,
                        declared, out->nlayers);
    return DTP_OK;
}

void dtp_workload_sum(const struct dtp_workload *w, const char *collective, uint64_t *out_count,
                      uint64_t *out_bytes) {
    *out_count = *out_bytes = 0;
    for (size_t i = 0; i < w->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            if (strcmp(w->layer[i].phase[p].collective, collective) == 0) {
                ++*out_count;
                *out_bytes += w->layer[i].phase[p].bytes;
            }
}
