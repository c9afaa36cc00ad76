#include "sim/base/json_range.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "sim/base/text.h"

static const double LARGEST_INTEGER = 9007199254740992.0; /* 2^53: what a double holds exactly */

int dtp_name_index(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

const struct dtp_field *dtp_field_find(const struct dtp_field *fields, const char *name) {
    for (const struct dtp_field *f = fields; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

struct range {
    double min, max;
};

static struct range field_range(const struct dtp_field *f) {
    struct range r = {f->min, f->max};
    if (f->min == 0 && f->max == 0)
        r = (struct range){-DBL_MAX, DBL_MAX};
    double low = -DBL_MAX, high = DBL_MAX;
    if (f->kind == DTP_FIELD_INT || f->kind == DTP_FIELD_INTS) {
        low = INT_MIN;
        high = INT_MAX;
    } else if (f->kind == DTP_FIELD_U64) {
        low = 0;
        high = LARGEST_INTEGER;
    }
    r.min = r.min < low ? low : r.min;
    r.max = r.max > high ? high : r.max;
    return r;
}

static bool is_integer_kind(enum dtp_field_kind kind) {
    return kind == DTP_FIELD_INT || kind == DTP_FIELD_INTS || kind == DTP_FIELD_U64;
}

bool dtp_field_fits(const struct dtp_field *f, double v) {
    struct range r = field_range(f);
    return v >= r.min && v <= r.max && (!is_integer_kind(f->kind) || v == floor(v));
}

/* "an integer from 1 to 1024", "a number of 0 or more" */
const char *dtp_field_range_text(const struct dtp_field *f, char *buf, size_t size) {
    struct range r = field_range(f);
    char low[32], high[32];
    const char *what = is_integer_kind(f->kind) ? "an integer" : "a number";
    double open_max = f->kind == DTP_FIELD_U64   ? LARGEST_INTEGER
                      : is_integer_kind(f->kind) ? (double)INT_MAX
                                                 : DBL_MAX;
    dtp_double_text(r.min, low, sizeof low);
    dtp_double_text(r.max, high, sizeof high);
    if (f->min == 0 && f->max == 0 && f->kind != DTP_FIELD_U64)
        snprintf(buf, size, "%s", what);
    else if (r.max >= open_max)
        snprintf(buf, size, "%s of %s or more", what, low);
    else
        snprintf(buf, size, "%s from %s to %s", what, low, high);
    return buf;
}

static size_t count_names(const char *const *names) {
    size_t n = 0;
    while (names[n])
        n++;
    return n;
}

enum dtp_status dtp_field_unknown_value(const struct dtp_field *f, const char *text,
                                        const char *place, struct dtp_err *err) {
    enum dtp_status status = dtp_unknown_name(err, dtp_bad_value(place), "value", text, f->names,
                                              count_names(f->names), NULL);
    dtp_err_prefix(err, place);
    return status;
}

static void append_names(const char *what, const char *const *names, char *buf, size_t size) {
    size_t n = (size_t)snprintf(buf, size, "%s", what);
    for (size_t i = 0; names[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i > 0 ? ", " : "", names[i]);
}

const char *dtp_set_text(const char *const *names, int bits, char *buf, size_t size) {
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; names[i] && n < size; i++)
        if (bits >> i & 1)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? "," : "", names[i]);
    return buf;
}

const char *dtp_field_values(const struct dtp_field *f, char *buf, size_t size) {
    char range[96];
    switch (f->kind) {
    case DTP_FIELD_BOOL:
        snprintf(buf, size, "true or false");
        break;
    case DTP_FIELD_INT:
    case DTP_FIELD_U64:
    case DTP_FIELD_DOUBLE:
        dtp_field_range_text(f, buf, size);
        break;
    case DTP_FIELD_STRING:
        snprintf(buf, size, "a string");
        break;
    case DTP_FIELD_ENUM:
        append_names("one of: ", f->names, buf, size);
        break;
    case DTP_FIELD_SET:
        append_names("a list of: ", f->names, buf, size);
        break;
    case DTP_FIELD_INTS:
    case DTP_FIELD_DOUBLES:
        snprintf(buf, size, "a list, each %s", dtp_field_range_text(f, range, sizeof range));
        break;
    case DTP_FIELD_OBJECT:
        snprintf(buf, size, "an object");
        break;
    case DTP_FIELD_JSON:
    case DTP_FIELD_PUT:
        buf[0] = '\0';
        break;
    }
    return buf;
}
