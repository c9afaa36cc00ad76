/* This file finds where two documents differ. */
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/text.h"

static const char *value_text(struct dtp_arena *a, const struct dtp_json *j) {
    enum { SIZE = 32 };
    enum dtp_json_type type = j ? dtp_json_type(j) : DTP_JSON_NULL;
    char *text = dtp_arena_alloc(a, 1, SIZE);
    if (type == DTP_JSON_STRING)
        return dtp_json_string(j);
    if (type == DTP_JSON_NUMBER)
        return dtp_double_text(dtp_json_number(j), text, SIZE);
    if (type == DTP_JSON_BOOL)
        return dtp_json_bool(j) ? "true" : "false";
    return type == DTP_JSON_NULL ? "nothing" : "a list";
}

static bool is_nested(const struct dtp_json *j) {
    return j && dtp_json_type(j) >= DTP_JSON_ARRAY;
}

static const struct dtp_json_difference *differ(struct dtp_arena *a, const char *path,
                                                const struct dtp_json *x, const struct dtp_json *y);

/* Compares members or elements of x with those of y, then finds those that x lacks. */
static const struct dtp_json_difference *differ_within(struct dtp_arena *a, const char *path,
                                                       const struct dtp_json *x,
                                                       const struct dtp_json *y) {
    bool object = dtp_json_type(x) == DTP_JSON_OBJECT;
    const char *dot = path[0] ? "." : "";
    const struct dtp_json_difference *found = NULL;
    for (size_t i = 0; i < dtp_json_size(x) && !found; i++) {
        const struct dtp_json *at = dtp_json_at(x, i);
        found = object ? differ(a, dtp_arena_printf(a, "%s%s%s", path, dot, dtp_json_key(at)), at,
                                dtp_json_get(y, dtp_json_key(at)))
                       : differ(a, dtp_arena_printf(a, "%s[%zu]", path, i), at,
                                i < dtp_json_size(y) ? dtp_json_at(y, i) : NULL);
    }
    for (size_t i = 0; i < dtp_json_size(y) && !found; i++) {
        const struct dtp_json *at = dtp_json_at(y, i);
        if (object && !dtp_json_get(x, dtp_json_key(at)))
            found = differ(a, dtp_arena_printf(a, "%s%s%s", path, dot, dtp_json_key(at)), NULL, at);
        else if (!object && i >= dtp_json_size(x))
            found = differ(a, dtp_arena_printf(a, "%s[%zu]", path, i), NULL, at);
    }
    return found;
}

static const struct dtp_json_difference *
differ(struct dtp_arena *a, const char *path, const struct dtp_json *x, const struct dtp_json *y) {
    if (is_nested(x) && is_nested(y) && dtp_json_type(x) == dtp_json_type(y))
        return differ_within(a, path, x, y);
    const struct dtp_json_difference found = {path, value_text(a, x), value_text(a, y)};
    if (!is_nested(x) && !is_nested(y) && strcmp(found.x, found.y) == 0)
        return NULL;
    struct dtp_json_difference *out = DTP_NEW(a, struct dtp_json_difference, 1);
    *out = found;
    return out;
}

const struct dtp_json_difference *dtp_json_differ(struct dtp_arena *a, const struct dtp_json *x,
                                                  const struct dtp_json *y) {
    return differ(a, "", x, y);
}
