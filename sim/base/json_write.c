#include "sim/base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/base/text.h"

void dtp_json_begin(struct dtp_json_out *w, FILE *file, int indent) {
    *w = (struct dtp_json_out){.file = file, .indent = indent};
}

static void new_line(struct dtp_json_out *w) {
    if (w->indent > 0)
        fprintf(w->file, "\n%*s", w->indent * w->depth, "");
}

/* Writes the comma and the line break that a value needs before it. */
static void before_value(struct dtp_json_out *w) {
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    assert(w->depth == 0 || w->in_array[w->depth - 1]); /* else a value without a key */
    if (w->need_comma)
        fputs(w->indent > 0 ? "," : ", ", w->file);
    if (w->depth > 0)
        new_line(w);
}

static void after_value(struct dtp_json_out *w) {
    w->need_comma = w->depth > 0;
    if (w->depth == 0)
        fputc('\n', w->file);
}

static void open_level(struct dtp_json_out *w, bool array) {
    before_value(w);
    assert(w->depth < (int)sizeof w->in_array);
    fputc(array ? '[' : '{', w->file);
    w->in_array[w->depth++] = array;
    w->need_comma = false;
    if (w->line_next && w->line_depth == 0) {
        w->line_depth = w->depth;
        w->old_indent = w->indent;
        w->indent = 0;
    }
    w->line_next = false;
}

void dtp_json_line(struct dtp_json_out *w) {
    w->line_next = true;
}

void dtp_json_object(struct dtp_json_out *w) {
    open_level(w, false);
}

void dtp_json_array(struct dtp_json_out *w) {
    open_level(w, true);
}

void dtp_json_end(struct dtp_json_out *w) {
    assert(w->depth > 0 && !w->after_key);
    bool array = w->in_array[--w->depth];
    if (w->need_comma)
        new_line(w);
    fputc(array ? ']' : '}', w->file);
    if (w->line_depth > w->depth) {
        w->line_depth = 0;
        w->indent = w->old_indent;
    }
    after_value(w);
}

static void put_quoted(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c == '\t')
            fputs("\\t", f);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\u%04x", (unsigned)c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

void dtp_json_put_key(struct dtp_json_out *w, const char *key) {
    assert(w->depth > 0 && !w->in_array[w->depth - 1] && !w->after_key);
    if (w->need_comma)
        fputs(w->indent > 0 ? "," : ", ", w->file);
    new_line(w);
    put_quoted(w->file, key);
    fputs(": ", w->file);
    w->after_key = true;
}

static void put_text(struct dtp_json_out *w, const char *text) {
    before_value(w);
    fputs(text, w->file);
    after_value(w);
}

void dtp_json_put_string(struct dtp_json_out *w, const char *s) {
    if (!s) {
        put_text(w, "null");
        return;
    }
    before_value(w);
    put_quoted(w->file, s);
    after_value(w);
}

void dtp_json_put_double(struct dtp_json_out *w, double v) {
    char buf[32];
    put_text(w, isfinite(v) ? dtp_double_text(v, buf, sizeof buf) : "null");
}

void dtp_json_put_u64(struct dtp_json_out *w, uint64_t v) {
    char buf[32];
    snprintf(buf, sizeof buf, "%" PRIu64, v);
    put_text(w, buf);
}

void dtp_json_put_thousandths(struct dtp_json_out *w, int64_t v) {
    char buf[40];
    uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;
    snprintf(buf, sizeof buf, "%s%" PRIu64 ".%03" PRIu64, v < 0 ? "-" : "", u / 1000, u % 1000);
    put_text(w, buf);
}

void dtp_json_put_int(struct dtp_json_out *w, long long v) {
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", v);
    put_text(w, buf);
}

void dtp_json_put_bool(struct dtp_json_out *w, bool v) {
    put_text(w, v ? "true" : "false");
}

void dtp_json_put_null(struct dtp_json_out *w) {
    put_text(w, "null");
}

void dtp_json_kv_string(struct dtp_json_out *w, const char *key, const char *s) {
    dtp_json_put_key(w, key);
    dtp_json_put_string(w, s);
}

void dtp_json_kv_double(struct dtp_json_out *w, const char *key, double v) {
    dtp_json_put_key(w, key);
    dtp_json_put_double(w, v);
}

void dtp_json_kv_u64(struct dtp_json_out *w, const char *key, uint64_t v) {
    dtp_json_put_key(w, key);
    dtp_json_put_u64(w, v);
}

void dtp_json_kv_int(struct dtp_json_out *w, const char *key, long long v) {
    dtp_json_put_key(w, key);
    dtp_json_put_int(w, v);
}

void dtp_json_kv_bool(struct dtp_json_out *w, const char *key, bool v) {
    dtp_json_put_key(w, key);
    dtp_json_put_bool(w, v);
}

void dtp_json_put_doubles(struct dtp_json_out *w, const struct dtp_doubles *d, size_t per_line) {
    if (per_line == 0)
        dtp_json_line(w);
    dtp_json_array(w);
    for (size_t i = 0; i < d->n; i++) {
        if (per_line > 0 && i % per_line > 0) { /* a space, no new line */
            fputs(", ", w->file);
            w->need_comma = false;
            w->after_key = true;
        }
        dtp_json_put_double(w, d->at[i]);
    }
    dtp_json_end(w);
}

static bool is_scalar(const struct dtp_json *j) {
    return dtp_json_type(j) != DTP_JSON_ARRAY && dtp_json_type(j) != DTP_JSON_OBJECT;
}

/* A row of a table: a list of scalars or an object of numbers. */
static bool is_row(const struct dtp_json *j) {
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *child = dtp_json_at(j, i);
        bool text = dtp_json_type(child) == DTP_JSON_STRING;
        if (!is_scalar(child) || (text && dtp_json_type(j) == DTP_JSON_OBJECT))
            return false;
    }
    return true;
}

static void put_copy(struct dtp_json_out *w, const struct dtp_json *j, bool rows);

static void put_members(struct dtp_json_out *w, const struct dtp_json *j, bool rows) {
    bool object = dtp_json_type(j) == DTP_JSON_OBJECT;
    if (rows && is_row(j))
        dtp_json_line(w);
    open_level(w, !object);
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *child = dtp_json_at(j, i);
        if (object)
            dtp_json_put_key(w, dtp_json_key(child));
        put_copy(w, child, rows);
    }
    dtp_json_end(w);
}

static void put_copy(struct dtp_json_out *w, const struct dtp_json *j, bool rows) {
    switch (dtp_json_type(j)) {
    case DTP_JSON_NULL:
        dtp_json_put_null(w);
        return;
    case DTP_JSON_BOOL:
        dtp_json_put_bool(w, dtp_json_bool(j));
        return;
    case DTP_JSON_NUMBER:
        dtp_json_put_double(w, dtp_json_number(j));
        return;
    case DTP_JSON_STRING:
        dtp_json_put_string(w, dtp_json_string(j));
        return;
    case DTP_JSON_ARRAY:
    case DTP_JSON_OBJECT:
        put_members(w, j, rows);
        return;
    }
}

void dtp_json_put_json(struct dtp_json_out *w, const struct dtp_json *j) {
    put_copy(w, j, false);
}

void dtp_json_put_rows(struct dtp_json_out *w, const struct dtp_json *j) {
    put_copy(w, j, true);
}
