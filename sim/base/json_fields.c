#include "sim/base/json.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "sim/base/text.h"

enum { MOST_FIELDS = 128 };

/* ---- names, ranges, and how to say what a field accepts ---- */

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
        high = DTP_LARGEST_INTEGER;
    }
    r.min = r.min < low ? low : r.min;
    r.max = r.max > high ? high : r.max;
    return r;
}

static bool is_integer_kind(enum dtp_field_kind kind) {
    return kind == DTP_FIELD_INT || kind == DTP_FIELD_INTS || kind == DTP_FIELD_U64;
}

static bool fits(const struct dtp_field *f, double v) {
    struct range r = field_range(f);
    return v >= r.min && v <= r.max && (f->least <= 0 || v == r.min || v >= f->least) &&
           (!is_integer_kind(f->kind) || v == floor(v));
}

/* Writes "an integer from 1 to 1024" or "a number of 0 or more"; 96 bytes are enough. */
static const char *range_text(const struct dtp_field *f, char *buf, size_t size) {
    struct range r = field_range(f);
    char low[32], high[32];
    const char *what = is_integer_kind(f->kind) ? "an integer" : "a number";
    double open_max = f->kind == DTP_FIELD_U64   ? DTP_LARGEST_INTEGER
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
    if (f->least > 0) {
        char least[32];
        dtp_double_text(f->least, least, sizeof least);
        snprintf(buf, size, "%s, or %s from %s to %s", low, what, least, high);
    }
    return buf;
}

static size_t count_names(const char *const *names) {
    size_t n = 0;
    while (names[n])
        n++;
    return n;
}

static enum dtp_status unknown_value(const struct dtp_field *f, const char *text, const char *place,
                                     struct dtp_err *err) {
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
        range_text(f, buf, size);
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
        snprintf(buf, size, "a list, each %s", range_text(f, range, sizeof range));
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

/* ---- reading from JSON ---- */

static enum dtp_status read_number(const struct dtp_json *j, const struct dtp_field *f, double *out,
                                   struct dtp_err *err) {
    char what[96];
    if (dtp_json_type(j) != DTP_JSON_NUMBER || !fits(f, dtp_json_number(j)))
        return dtp_json_expected(j, range_text(f, what, sizeof what), err);
    *out = dtp_json_number(j);
    return DTP_OK;
}

static enum dtp_status read_list(struct dtp_arena *a, const struct dtp_json *j,
                                 const struct dtp_field *f, void *slot, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of numbers", err);
    size_t n = dtp_json_size(j);
    bool ints = f->kind == DTP_FIELD_INTS;
    int *whole = ints ? DTP_NEW(a, int, n) : NULL;
    double *real = ints ? NULL : DTP_NEW(a, double, n);
    for (size_t i = 0; i < n; i++) {
        double v = 0;
        DTP_TRY(read_number(dtp_json_at(j, i), f, &v, err));
        if (ints)
            whole[i] = (int)v;
        else
            real[i] = v;
    }
    if (ints)
        *(struct dtp_ints *)slot = (struct dtp_ints){whole, n};
    else
        *(struct dtp_doubles *)slot = (struct dtp_doubles){real, n};
    return DTP_OK;
}

static enum dtp_status read_text(const struct dtp_json *j, const struct dtp_field *f, void *slot,
                                 struct dtp_err *err) {
    char place[512];
    if (dtp_json_type(j) != DTP_JSON_STRING)
        return dtp_json_expected(j, "a string", err);
    if (f->kind == DTP_FIELD_STRING) {
        *(const char **)slot = dtp_json_string(j);
        return DTP_OK;
    }
    int index = dtp_name_index(f->names, dtp_json_string(j));
    if (index < 0)
        return unknown_value(f, dtp_json_string(j), dtp_json_place(j, place, sizeof place), err);
    *(int *)slot = index;
    return DTP_OK;
}

static enum dtp_status read_set(const struct dtp_json *j, const struct dtp_field *f, int *out,
                                struct dtp_err *err) {
    char place[512];
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "a list of names", err);
    *out = 0;
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *item = dtp_json_at(j, i);
        if (dtp_json_type(item) != DTP_JSON_STRING)
            return dtp_json_expected(item, "a string", err);
        int index = dtp_name_index(f->names, dtp_json_string(item));
        if (index < 0)
            return unknown_value(f, dtp_json_string(item),
                                 dtp_json_place(item, place, sizeof place), err);
        *out |= 1 << index;
    }
    return DTP_OK;
}

static enum dtp_status read_field(struct dtp_arena *a, const struct dtp_json *j,
                                  const struct dtp_field *f, void *slot, struct dtp_err *err) {
    double v = 0;
    switch (f->kind) {
    case DTP_FIELD_BOOL:
        if (dtp_json_type(j) != DTP_JSON_BOOL)
            return dtp_json_expected(j, "true or false", err);
        *(bool *)slot = dtp_json_bool(j);
        return DTP_OK;
    case DTP_FIELD_INT:
        DTP_TRY(read_number(j, f, &v, err));
        *(int *)slot = (int)v;
        return DTP_OK;
    case DTP_FIELD_U64:
        DTP_TRY(read_number(j, f, &v, err));
        *(uint64_t *)slot = (uint64_t)v;
        return DTP_OK;
    case DTP_FIELD_DOUBLE:
        return read_number(j, f, slot, err);
    case DTP_FIELD_STRING:
    case DTP_FIELD_ENUM:
        return read_text(j, f, slot, err);
    case DTP_FIELD_SET:
        return read_set(j, f, slot, err);
    case DTP_FIELD_INTS:
    case DTP_FIELD_DOUBLES:
        return read_list(a, j, f, slot, err);
    case DTP_FIELD_OBJECT:
        return dtp_fields_read(a, j, f->fields, slot, err);
    case DTP_FIELD_JSON:
        *(const struct dtp_json **)slot = j;
        return DTP_OK;
    case DTP_FIELD_PUT:
        break;
    }
    assert(false && "a field without a kind");
    return DTP_EINPUT;
}

/* "source" and "notes" are allowed everywhere; true if the member is one of them and well-formed. */
static enum dtp_status check_annotation(const struct dtp_json *member, bool *is_annotation,
                                        struct dtp_err *err) {
    bool source = strcmp(dtp_json_key(member), "source") == 0;
    *is_annotation = source || strcmp(dtp_json_key(member), "notes") == 0;
    if (!*is_annotation || dtp_json_type(member) == DTP_JSON_STRING)
        return DTP_OK;
    if (!source)
        return dtp_json_expected(member, "a string", err);
    if (dtp_json_type(member) != DTP_JSON_OBJECT)
        return dtp_json_expected(member, "a string, or an object of key and string", err);
    for (size_t i = 0; i < dtp_json_size(member); i++)
        if (dtp_json_type(dtp_json_at(member, i)) != DTP_JSON_STRING)
            return dtp_json_expected(dtp_json_at(member, i), "a string", err);
    return DTP_OK;
}

static enum dtp_status unknown_key(const struct dtp_json *member, const struct dtp_field *fields,
                                   struct dtp_err *err) {
    const char *names[MOST_FIELDS];
    size_t n = 0;
    for (const struct dtp_field *f = fields; f->name && n < MOST_FIELDS; f++)
        names[n++] = f->name;
    char place[512];
    dtp_json_place(member, place, sizeof place);
    int near = dtp_nearest_name(dtp_json_key(member), names, n);
    if (near >= 0)
        return dtp_fail(err, DTP_EINPUT, "%s: unknown key, did you mean \"%s\"?", place,
                        names[near]);
    char list[512] = "";
    size_t at = 0;
    for (size_t i = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    return dtp_fail(err, DTP_EINPUT, "%s: unknown key, expected one of: %s", place, list);
}

static enum dtp_status check_required(const struct dtp_json *j, const struct dtp_field *fields,
                                      struct dtp_err *err) {
    char place[512];
    for (const struct dtp_field *f = fields; f->name; f++)
        if (f->required && !dtp_json_get(j, f->name))
            return dtp_fail(err, DTP_EINPUT, "%s: missing key \"%s\" (%s)",
                            dtp_json_place(j, place, sizeof place), f->name,
                            f->help ? f->help : "required");
    return DTP_OK;
}

enum dtp_status dtp_fields_read(struct dtp_arena *a, const struct dtp_json *j,
                                const struct dtp_field *fields, void *out, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object", err);
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *member = dtp_json_at(j, i);
        const struct dtp_field *f = dtp_field_find(fields, dtp_json_key(member));
        bool is_annotation = false;
        if (!f)
            DTP_TRY(check_annotation(member, &is_annotation, err));
        if (is_annotation)
            continue;
        if (!f)
            return unknown_key(member, fields, err);
        if (f->optional_null && dtp_json_type(member) == DTP_JSON_NULL)
            continue;
        DTP_TRY(read_field(a, member, f, (char *)out + f->offset, err));
    }
    return check_required(j, fields, err);
}

/* ---- reading from text ---- */

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

/* A field's unit is the end of its name, so "80GB" and "25us" are understood where they belong. */
static enum dtp_status parse_number(const struct dtp_field *f, const char *text, const char *place,
                                    double *out, struct dtp_err *err) {
    double v = 0;
    if (dtp_ends_with(f->name, "_bytes")) {
        uint64_t bytes = 0;
        DTP_TRY(dtp_parse_bytes(text, place, &bytes, err));
        v = (double)bytes;
    } else if (dtp_ends_with(f->name, "_s") && !dtp_ends_with(f->name, "_per_s")) {
        DTP_TRY(dtp_parse_time(text, place, &v, err));
    } else {
        DTP_TRY(dtp_parse_double(text, place, &v, err));
    }
    char what[96];
    if (!fits(f, v))
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected %s", place, text,
                        range_text(f, what, sizeof what));
    *out = v;
    return DTP_OK;
}

/* A list such as "12,13,13" has one number more than commas. */
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
        return unknown_value(f, text, place, err);
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
            return unknown_value(f, name, place, err);
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

/* ---- writing ---- */

static void write_ints(struct dtp_json_out *w, const struct dtp_ints *list) {
    dtp_json_array(w);
    for (size_t i = 0; i < list->n; i++)
        dtp_json_put_int(w, list->at[i]);
    dtp_json_end(w);
}

static void write_set(struct dtp_json_out *w, const char *const *names, int bits) {
    dtp_json_array(w);
    for (int i = 0; names[i]; i++)
        if (bits >> i & 1)
            dtp_json_put_string(w, names[i]);
    dtp_json_end(w);
}

static bool is_unset(const struct dtp_field *f, const void *slot) {
    switch (f->kind) {
    case DTP_FIELD_STRING:
        return *(const char *const *)slot == NULL;
    case DTP_FIELD_JSON:
        return *(const struct dtp_json *const *)slot == NULL;
    case DTP_FIELD_SET:
        return *(const int *)slot == 0;
    case DTP_FIELD_INTS:
        return ((const struct dtp_ints *)slot)->at == NULL;
    case DTP_FIELD_DOUBLES:
        return ((const struct dtp_doubles *)slot)->at == NULL;
    case DTP_FIELD_BOOL:
        return f->unset && !*(const bool *)slot;
    case DTP_FIELD_INT:
        return f->unset && *(const int *)slot <= 0;
    case DTP_FIELD_U64:
        return f->unset && *(const uint64_t *)slot == 0;
    case DTP_FIELD_DOUBLE:
        return f->unset && !(*(const double *)slot > 0);
    case DTP_FIELD_PUT: /* a pointer or a list */
        return f->unset && *(const void *const *)slot == NULL;
    case DTP_FIELD_ENUM: /* less than 0: none of the names */
        return f->unset && *(const int *)slot < 0;
    case DTP_FIELD_OBJECT:
        break;
    }
    return false;
}

static const struct dtp_field *members(const struct dtp_field *f) {
    return f->form && f->form->fields ? f->form->fields : f->fields;
}

void dtp_put_object(struct dtp_json_out *w, const struct dtp_field *f, const void *in) {
    dtp_json_object(w);
    dtp_fields_write(w, members(f), in);
    dtp_json_end(w);
}

static void write_field(struct dtp_json_out *w, const struct dtp_field *f, const void *slot) {
    switch (f->kind) {
    case DTP_FIELD_BOOL:
        dtp_json_put_bool(w, *(const bool *)slot);
        return;
    case DTP_FIELD_INT:
        dtp_json_put_int(w, *(const int *)slot);
        return;
    case DTP_FIELD_U64:
        dtp_json_put_u64(w, *(const uint64_t *)slot);
        return;
    case DTP_FIELD_DOUBLE:
        dtp_json_put_double(w, *(const double *)slot * (f->scale != 0 ? f->scale : 1));
        return;
    case DTP_FIELD_STRING:
        dtp_json_put_string(w, *(const char *const *)slot);
        return;
    case DTP_FIELD_ENUM:
        dtp_json_put_string(w, f->names[*(const int *)slot]);
        return;
    case DTP_FIELD_SET:
        write_set(w, f->names, *(const int *)slot);
        return;
    case DTP_FIELD_INTS:
        write_ints(w, slot);
        return;
    case DTP_FIELD_DOUBLES:
        dtp_json_put_doubles(w, slot, 0);
        return;
    case DTP_FIELD_OBJECT:
        if (f->flat)
            dtp_fields_write(w, members(f), slot);
        else
            dtp_put_object(w, f, slot);
        return;
    case DTP_FIELD_JSON:
        dtp_json_put_json(w, *(const struct dtp_json *const *)slot);
        return;
    case DTP_FIELD_PUT:
        f->put(w, f, slot);
        return;
    }
}

bool dtp_doubles_ascend(const struct dtp_doubles *d) {
    for (size_t i = 1; i < d->n; i++)
        if (!(d->at[i] > d->at[i - 1]))
            return false;
    return d->n > 0;
}

void dtp_fields_write(struct dtp_json_out *w, const struct dtp_field *fields, const void *in) {
    for (const struct dtp_field *f = fields; f->name; f++) {
        const void *slot = (const char *)in + f->offset;
        bool unset = is_unset(f, slot);
        if (unset && f->unset != DTP_UNSET_NULL)
            continue;
        if (!f->flat)
            dtp_json_put_key(w, f->name);
        if (unset)
            dtp_json_put_null(w);
        else
            write_field(w, f, slot);
    }
}

void dtp_form_write(FILE *f, int indent, const struct dtp_form *form, const void *in) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, indent);
    dtp_json_object(&w);
    dtp_fields_write(&w, form->fields, in);
    dtp_json_end(&w);
}

void dtp_put_list(struct dtp_json_out *w, const struct dtp_field *f, const void *slot) {
    const struct dtp_list *list = slot;
    dtp_json_array(w);
    for (size_t i = 0; i < list->n; i++)
        dtp_put_object(w, f, (const char *)list->at + i * list->size_bytes);
    dtp_json_end(w);
}

void dtp_put_pointer(struct dtp_json_out *w, const struct dtp_field *f, const void *slot) {
    const void *in = *(const void *const *)slot;
    if (in)
        dtp_put_object(w, f, in);
    else
        dtp_json_put_null(w);
}

void dtp_put_part(struct dtp_json_out *w, const struct dtp_field *f, const void *slot) {
    const void *in = *(const void *const *)slot;
    if (in)
        dtp_fields_write(w, members(f), in);
}

void dtp_put_constant(struct dtp_json_out *w, const struct dtp_field *f, const void *slot) {
    (void)slot;
    dtp_json_put_string(w, f->names[0]);
}
