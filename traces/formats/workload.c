#include "traces/formats/workload.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/formats/lines.h"

enum { FIELDS = 12, MOST_LAYERS = 9999999 };

static const char space[] = " \t\r";

/* The next line that is not blank, without blanks before it; NULL at the end of the text. */
static enum dtp_status next_line(struct dtp_lines *l, char **out, struct dtp_err *err) {
    enum dtp_status status;
    while (dtp_lines_next(l, out, &status, err)) {
        *out += strspn(*out, space);
        if (**out)
            return DTP_OK;
    }
    *out = NULL;
    return status;
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

static enum dtp_status take_layer(struct dtp_intern *words, char **field, const char *place,
                                  double unit_s, struct dtp_workload_layer *out,
                                  struct dtp_err *err) {
    double v;
    *out = (struct dtp_workload_layer){.name = dtp_intern_text(words, field[0])};
    for (int p = 0; p < DTP_NPHASES; p++) {
        char **at = field + 2 + 3 * p;
        if (!number(at[0], &v))
            return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected a time", place, at[0]);
        out->phase[p].compute_s = v * unit_s;
        out->phase[p].collective = dtp_intern_text(words, at[1]);
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

static enum dtp_status take_rows(struct dtp_arena *a, const char *name, struct dtp_lines *l,
                                 double unit_s, struct dtp_workload *out, struct dtp_err *err) {
    size_t capacity = 0;
    char *line, *field[FIELDS];
    struct dtp_intern *words = dtp_intern_create(a);
    for (;;) {
        char place[512];
        DTP_TRY(next_line(l, &line, err));
        if (!line)
            break;
        snprintf(place, sizeof place, "%.400s:%llu", name, (unsigned long long)l->number);
        size_t n = split(line, field, FIELDS);
        if (n != FIELDS)
            return dtp_fail(err, DTP_EINPUT, "%s: %zu fields, expected %d", place, n, FIELDS);
        out->layer = dtp_arena_room(a, out->layer, sizeof *out->layer, out->nlayers, &capacity);
        DTP_TRY(take_layer(words, field, place, unit_s, &out->layer[out->nlayers++], err));
    }
    return DTP_OK;
}

enum dtp_status dtp_workload_read(struct dtp_arena *a, struct dtp_source *source, double unit_s,
                                  struct dtp_workload *out, struct dtp_err *err) {
    struct dtp_lines l;
    const char *name = dtp_source_name(source);
    char *line;
    long declared;
    *out = (struct dtp_workload){.policy = "", .header = ""};
    dtp_lines_init(&l, a, source);
    DTP_TRY(next_line(&l, &line, err));
    if (!line)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", name);
    size_t n = strcspn(line, space);
    out->policy = dtp_arena_strndup(a, line, n);
    n += strspn(line + n, space);
    size_t length = strlen(line + n);
    while (length > 0 && strchr(space, line[n + length - 1]))
        length--;
    out->header = dtp_arena_strndup(a, line + n, length);
    DTP_TRY(next_line(&l, &line, err));
    if (!line)
        return dtp_fail(err, DTP_EINPUT, "%s: no number of layers in line 2", name);
    line[strcspn(line, space)] = '\0';
    DTP_TRY(dtp_parse_long(line, name, 0, MOST_LAYERS, &declared, err));
    DTP_TRY(take_rows(a, name, &l, unit_s, out, err));
    if ((size_t)declared != out->nlayers)
        return dtp_fail(err, DTP_EINPUT, "%s: line 2 says %ld layers, the file has %zu", name,
                        declared, out->nlayers);
    return DTP_OK;
}
