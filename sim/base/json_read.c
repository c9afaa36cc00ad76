#include "sim/base/json.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json_scan.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* Objects with more members than this are searched through an index sorted by key. */
enum { LINEAR_MEMBERS = 8 };

/* A document is read whole; none is as large, and a device that never ends shall not fill the memory. */
static const size_t MOST_BYTES = (size_t)DTP_GIB;

struct dtp_json {
    enum dtp_json_type type;
    bool truth;
    const struct dtp_json *parent; /* NULL: the root, whose key is the document's name */
    const char *key;               /* NULL in an array */
    union {
        double number;
        const char *string;
        const struct dtp_json *child; /* [size] */
    } as;
    size_t size;
    const struct dtp_json **sorted; /* by key; NULL in small objects */
};

/* ---- building ---- */

static int compare_keys(const void *x, const void *y) {
    const struct dtp_json *const *a = x, *const *b = y;
    return strcmp((*a)->key, (*b)->key);
}

static enum dtp_status duplicate_key(const struct dtp_json *j, struct dtp_err *err) {
    char place[512];
    return dtp_fail(err, DTP_EINPUT, "%s: duplicate key", dtp_json_place(j, place, sizeof place));
}

/* In a small object: a member whose key one before it has, or NULL. */
static const struct dtp_json *repeated_member(const struct dtp_json *j) {
    for (size_t i = 1; i < j->size; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(j->as.child[i].key, j->as.child[k].key) == 0)
                return &j->as.child[i];
    return NULL;
}

static enum dtp_status index_object(struct dtp_arena *a, struct dtp_json *j, struct dtp_err *err) {
    if (j->size <= LINEAR_MEMBERS) {
        const struct dtp_json *repeated = repeated_member(j);
        return repeated ? duplicate_key(repeated, err) : DTP_OK;
    }
    j->sorted = DTP_NEW(a, const struct dtp_json *, j->size);
    for (size_t i = 0; i < j->size; i++)
        j->sorted[i] = &j->as.child[i];
    qsort(j->sorted, j->size, sizeof *j->sorted, compare_keys);
    for (size_t i = 1; i < j->size; i++)
        if (compare_keys(&j->sorted[i - 1], &j->sorted[i]) == 0)
            return duplicate_key(j->sorted[i], err);
    return DTP_OK;
}

static enum dtp_status convert(struct dtp_arena *a, const cJSON *c, struct dtp_json *j,
                               struct dtp_err *err);

static enum dtp_status convert_children(struct dtp_arena *a, const cJSON *c, struct dtp_json *j,
                                        struct dtp_err *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, c) j->size++;
    struct dtp_json *child = DTP_NEW(a, struct dtp_json, j->size);
    j->as.child = child;
    size_t i = 0;
    cJSON_ArrayForEach(item, c) {
        child[i].parent = j;
        if (j->type == DTP_JSON_OBJECT)
            child[i].key = dtp_arena_strdup(a, item->string);
        DTP_TRY(convert(a, item, &child[i], err));
        i++;
    }
    return j->type == DTP_JSON_OBJECT ? index_object(a, j, err) : DTP_OK;
}

static enum dtp_status convert(struct dtp_arena *a, const cJSON *c, struct dtp_json *j,
                               struct dtp_err *err) {
    if (cJSON_IsObject(c) || cJSON_IsArray(c)) {
        j->type = cJSON_IsObject(c) ? DTP_JSON_OBJECT : DTP_JSON_ARRAY;
        return convert_children(a, c, j, err);
    }
    if (cJSON_IsNumber(c)) {
        j->type = DTP_JSON_NUMBER;
        j->as.number = c->valuedouble;
    } else if (cJSON_IsString(c)) {
        j->type = DTP_JSON_STRING;
        j->as.string = dtp_arena_strdup(a, c->valuestring);
    } else if (cJSON_IsBool(c)) {
        j->type = DTP_JSON_BOOL;
        j->truth = cJSON_IsTrue(c);
    } else {
        j->type = DTP_JSON_NULL;
    }
    return DTP_OK;
}

/* Its byte order mark, as PowerShell writes it. */
static bool is_utf16(const char *text, size_t length_bytes) {
    return length_bytes >= 2 &&
           (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
}

enum dtp_status dtp_json_parse(struct dtp_arena *a, const char *name, const char *text,
                               size_t length_bytes, const struct dtp_json **out,
                               struct dtp_err *err) {
    size_t mark_bytes = dtp_text_mark_bytes(text, length_bytes);
    if (is_utf16(text, length_bytes))
        return dtp_fail(err, DTP_EINPUT, "%s: found UTF-16, expected UTF-8: save it as that", name);
    text += mark_bytes;
    length_bytes -= mark_bytes;
    DTP_TRY(dtp_json_scan(name, text, length_bytes, err));
    cJSON *c = cJSON_ParseWithLength(text, length_bytes);
    if (!c) /* the scan has accepted the text, so this is memory: let the handler say so */
        dtp_arena_alloc(a, 2, (size_t)-1);
    struct dtp_json *root = DTP_NEW(a, struct dtp_json, 1);
    root->key = dtp_arena_strdup(a, name);
    enum dtp_status status = convert(a, c, root, err);
    cJSON_Delete(c);
    if (status == DTP_OK)
        *out = root;
    return status;
}

enum dtp_status dtp_json_read_file(struct dtp_arena *a, const char *path,
                                   const struct dtp_json **out, struct dtp_err *err) {
    const char *text;
    size_t length_bytes;
    DTP_TRY(dtp_file_read(a, path, MOST_BYTES, &text, &length_bytes, err));
    const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    return dtp_json_parse(a, name, text, length_bytes, out, err);
}

/* ---- access ---- */

enum dtp_json_type dtp_json_type(const struct dtp_json *j) {
    return j->type;
}

const struct dtp_json *dtp_json_get(const struct dtp_json *j, const char *key) {
    if (j->type != DTP_JSON_OBJECT)
        return NULL;
    if (j->sorted) {
        const struct dtp_json wanted = {.key = key};
        const struct dtp_json *pointer = &wanted;
        const struct dtp_json **found =
            bsearch(&pointer, j->sorted, j->size, sizeof *j->sorted, compare_keys);
        return found ? *found : NULL;
    }
    for (size_t i = 0; i < j->size; i++)
        if (strcmp(j->as.child[i].key, key) == 0)
            return &j->as.child[i];
    return NULL;
}

size_t dtp_json_size(const struct dtp_json *j) {
    return j->size;
}

const struct dtp_json *dtp_json_at(const struct dtp_json *j, size_t i) {
    assert(i < j->size);
    return &j->as.child[i];
}

const char *dtp_json_key(const struct dtp_json *j) {
    return j->parent && j->key ? j->key : "";
}

double dtp_json_number(const struct dtp_json *j) {
    assert(j->type == DTP_JSON_NUMBER);
    return j->as.number;
}

const char *dtp_json_string(const struct dtp_json *j) {
    assert(j->type == DTP_JSON_STRING);
    return j->as.string;
}

bool dtp_json_bool(const struct dtp_json *j) {
    assert(j->type == DTP_JSON_BOOL);
    return j->truth;
}

/* ---- messages ---- */

const char *dtp_json_place(const struct dtp_json *j, char *buf, size_t size) {
    const struct dtp_json *path[DTP_JSON_DEPTH + 1];
    int depth = 0;
    for (; j->parent; j = j->parent)
        path[depth++] = j;
    int n = snprintf(buf, size, "%s: $", j->key);
    while (depth-- > 0 && n >= 0 && (size_t)n < size) {
        const struct dtp_json *at = path[depth];
        char *rest = buf + n;
        size_t room = size - (size_t)n;
        n += at->key ? snprintf(rest, room, ".%s", at->key)
                     : snprintf(rest, room, "[%zu]", (size_t)(at - at->parent->as.child));
    }
    return buf;
}

static const char *describe(const struct dtp_json *j, char *buf, size_t size) {
    char number[32];
    switch (j->type) {
    case DTP_JSON_NULL:
        return "null";
    case DTP_JSON_BOOL:
        return j->truth ? "true" : "false";
    case DTP_JSON_NUMBER:
        snprintf(buf, size, "%s", dtp_double_text(j->as.number, number, sizeof number));
        return buf;
    case DTP_JSON_STRING:
        snprintf(buf, size, "\"%.80s\"", j->as.string);
        return buf;
    case DTP_JSON_ARRAY:
        snprintf(buf, size, "an array of %zu", j->size);
        return buf;
    case DTP_JSON_OBJECT:
        return "an object";
    }
    return "nothing";
}

enum dtp_status dtp_json_expected(const struct dtp_json *j, const char *what, struct dtp_err *err) {
    char place[512], found[128];
    return dtp_fail(err, DTP_EINPUT, "%s: found %s, expected %s",
                    dtp_json_place(j, place, sizeof place), describe(j, found, sizeof found), what);
}
