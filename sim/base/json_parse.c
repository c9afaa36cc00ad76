#include "sim/base/json.h"

#include <string.h>

#include "sim/base/json_range.h"
#include "sim/base/text.h"

static enum dtp_status parse_bool(const char *text, const char *place, bool *out,
                                  struct dtp_err *err) {
    static const char *const names[] = {"false", "true", "no", "yes", "off", "on", "0", "1", NULL};
    int index = dtp_name_index(names, text);
    if (index < 0)
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected true or false",
                        place, text);
    *out = index % 2 == 1;
    return DTP_OK;
}

static bool ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

/* A field's unit is the end of its name, so "80GB" and "25us" are understood where they belong. */
static enum dtp_status parse_number(const struct dtp_field *f, const char *text, const char *place,
                                    double *out, struct dtp_err *err) {
    double v = 0;
    if (ends_with(f->name, "_bytes")) {
        uint64_t bytes = 0;
        DTP_TRY(dtp_parse_bytes(text, place, &bytes, err));
        v = (double)bytes;
    } else if (ends_with(f->name, "_s") && !ends_with(f->name, "_per_s")) {
        DTP_TRY(dtp_parse_time(text, place, &v, err));
    } else {
        DTP_TRY(dtp_parse_double(text, place, &v, err));
    }
    char what[96];
    if (!dtp_field_fits(f, v))
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected %s", place, text,
                        dtp_field_range_text(f, what, sizeof what));
    *out = v;
    return DTP_OK;
}

/* "12,13,13": as many numbers as commas and one. */
static enum dtp_status parse_list(struct dtp_arena *a, const struct dtp_field *f, const char *text,
                                  const char *place, void *slot, struct dtp_err *err) {
    size_t n = 1, i = 0;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    double *values = DTP_NEW(a, double, n);
    for (const char *p = text; i < n; i++) {
        size_t length = strcspn(p, ",");
        DTP_TRY(parse_number(f, dtp_arena_strndup(a, p, length), place, &values[i], err));
        p += length + 1;
    }
    if (f->kind == DTP_FIELD_DOUBLES) {
        *(struct dtp_doubles *)slot = (struct dtp_doubles){values, n};
        return DTP_OK;
    }
    int *whole = DTP_NEW(a, int, n);
    for (i = 0; i < n; i++)
        whole[i] = (int)values[i];
    *(struct dtp_ints *)slot = (struct dtp_ints){whole, n};
    return DTP_OK;
}

static enum dtp_status parse_text(struct dtp_arena *a, const struct dtp_field *f, const char *text,
                                  const char *place, void *slot, struct dtp_err *err) {
    if (f->kind == DTP_FIELD_STRING) {
        *(const char **)slot = dtp_arena_strdup(a, text);
        return DTP_OK;
    }
    int index = dtp_name_index(f->names, text);
    if (index < 0)
        return dtp_field_unknown_value(f, text, place, err);
    *(int *)slot = index;
    return DTP_OK;
}

static enum dtp_status parse_set(struct dtp_arena *a, const struct dtp_field *f, const char *text,
                                 const char *place, int *out, struct dtp_err *err) {
    int bits = 0;
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        const char *name = dtp_arena_strndup(a, p, length);
        int index = 0;
        while (f->names[index] && !dtp_same_name(f->names[index], name))
            index++;
        if (!f->names[index])
            return dtp_field_unknown_value(f, name, place, err);
        bits |= 1 << index;
        p += length;
        if (!*p)
            break;
    }
    *out = bits;
    return DTP_OK;
}

enum dtp_status dtp_field_parse(struct dtp_arena *a, const struct dtp_field *field,
                                const char *text, const char *place, void *out,
                                struct dtp_err *err) {
    void *slot = (char *)out + field->offset;
    double v = 0;
    switch (field->kind) {
    case DTP_FIELD_BOOL:
        return parse_bool(text, place, slot, err);
    case DTP_FIELD_INT:
        DTP_TRY(parse_number(field, text, place, &v, err));
        *(int *)slot = (int)v;
        return DTP_OK;
    case DTP_FIELD_U64:
        DTP_TRY(parse_number(field, text, place, &v, err));
        *(uint64_t *)slot = (uint64_t)v;
        return DTP_OK;
    case DTP_FIELD_DOUBLE:
        return parse_number(field, text, place, slot, err);
    case DTP_FIELD_STRING:
    case DTP_FIELD_ENUM:
        return parse_text(a, field, text, place, slot, err);
    case DTP_FIELD_SET:
        return parse_set(a, field, text, place, slot, err);
    case DTP_FIELD_INTS:
    case DTP_FIELD_DOUBLES:
        return parse_list(a, field, text, place, slot, err);
    case DTP_FIELD_OBJECT:
    case DTP_FIELD_JSON:
    case DTP_FIELD_PUT:
        break;
    }
    return dtp_fail(err, dtp_bad_value(place), "%s: \"%s\" can only be set in a JSON file", place,
                    field->name);
}
