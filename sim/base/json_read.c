#include "sim/base/json.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- the grammar, which is checked before cJSON sees a text ----
 *
 * cJSON accepts trailing bytes, raw control characters, bad UTF-8, lone surrogates, numbers that
 * overflow, and says nothing of where. This pass accepts exactly RFC 8259 in UTF-8 with depth at
 * most MOST_DEPTH, finite numbers, and integers at most 2^53 in size (those a double holds).
 * Errors of syntax name line and column, errors of value the JSON path. */

enum { MOST_DEPTH = 64 };

/* cJSON copies a number into 64 bytes and cuts what is longer. */
enum { LONGEST_NUMBER = 60 };

/* The scanner is inside of this: the key (raw text) or the index that it has reached there. */
struct frame {
    const char *key; /* NULL in an array */
    size_t key_length, index;
};

struct scan {
    const char *name, *text, *p, *end;
    struct frame frame[MOST_DEPTH];
    int depth;
    struct dtp_err *err;
};

/* ---- errors ---- */

static void describe_byte(const struct scan *s, const char *at, char *buf, size_t size) {
    if (at >= s->end)
        snprintf(buf, size, "the end of the text");
    else if (isprint((unsigned char)*at))
        snprintf(buf, size, "'%c'", *at);
    else
        snprintf(buf, size, "byte 0x%02x", (unsigned)(unsigned char)*at);
}

/* Writes "name:line:column", with columns counted in bytes from 1. */
static void locate(const struct scan *s, const char *at, char *buf, size_t size) {
    int line = 1, column = 1;
    for (const char *q = s->text; q < at; q++) {
        column = *q == '\n' ? 1 : column + 1;
        line += *q == '\n';
    }
    snprintf(buf, size, "%s:%d:%d", s->name, line, column);
}

static enum dtp_status bad_syntax(const struct scan *s, const char *at, const char *expected) {
    char found[32], place[512];
    describe_byte(s, at, found, sizeof found);
    locate(s, at, place, sizeof place);
    return dtp_fail(s->err, DTP_EINPUT, "%s: found %s, expected %s", place, found, expected);
}

/* Says "name: $.path: found TEXT, expected WHAT" of values that the grammar allows and we do not. */
static enum dtp_status bad_value(const struct scan *s, const char *at, size_t length,
                                 const char *expected) {
    char path[512] = "$";
    size_t n = 1;
    for (int i = 0; i < s->depth && n < sizeof path; i++) {
        const struct frame *f = &s->frame[i];
        int added = f->key
                        ? snprintf(path + n, sizeof path - n, ".%.*s", (int)f->key_length, f->key)
                        : snprintf(path + n, sizeof path - n, "[%zu]", f->index);
        n += added > 0 ? (size_t)added : 0;
    }
    int shown = length > 80 ? 80 : (int)length;
    return dtp_fail(s->err, DTP_EINPUT, "%s: %s: found %.*s%s, expected %s", s->name, path, shown,
                    at, length > 80 ? "..." : "", expected);
}

/* ---- tokens ---- */

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool is_at(const struct scan *s, char c) {
    return s->p < s->end && *s->p == c;
}

static bool digit_at(const struct scan *s) {
    return s->p < s->end && isdigit((unsigned char)*s->p);
}

static enum dtp_status scan_digits(struct scan *s) {
    if (!digit_at(s))
        return bad_syntax(s, s->p, "a digit");
    while (digit_at(s))
        s->p++;
    return DTP_OK;
}

static enum dtp_status check_number(const struct scan *s, const char *start, bool integer) {
    size_t length = (size_t)(s->p - start);
    if (length > LONGEST_NUMBER)
        return bad_value(s, start, length, "a number of at most 60 characters");
    char copy[LONGEST_NUMBER + 1];
    memcpy(copy, start, length);
    copy[length] = '\0';
    double v = strtod(copy, NULL);
    if (!isfinite(v))
        return bad_value(s, start, length, "a finite number");
    /* 2^53 + 1 rounds to 2^53: compare the digits too */
    bool beyond = fabs(v) > DTP_LARGEST_INTEGER ||
                  (fabs(v) == DTP_LARGEST_INTEGER && !strstr(copy, "9007199254740992"));
    if (integer && beyond)
        return bad_value(s, start, length, "an integer of at most 2^53 in size");
    return DTP_OK;
}

static enum dtp_status scan_number(struct scan *s) {
    const char *start = s->p;
    bool integer = true;
    if (is_at(s, '-'))
        s->p++;
    if (is_at(s, '0')) {
        s->p++;
        if (digit_at(s))
            return bad_syntax(s, s->p, "no digit after a leading zero");
    } else {
        DTP_TRY(scan_digits(s));
    }
    if (is_at(s, '.')) {
        integer = false;
        s->p++;
        DTP_TRY(scan_digits(s));
    }
    if (is_at(s, 'e') || is_at(s, 'E')) {
        integer = false;
        s->p++;
        if (is_at(s, '+') || is_at(s, '-'))
            s->p++;
        DTP_TRY(scan_digits(s));
    }
    return check_number(s, start, integer);
}

static enum dtp_status scan_word(struct scan *s, const char *word) {
    for (const char *w = word; *w; w++, s->p++)
        if (!is_at(s, *w))
            return bad_syntax(s, s->p, "true, false, null, a number, a string, [ or {");
    return DTP_OK;
}

/* Reads four hexadecimal digits after \u. */
static enum dtp_status scan_hex4(struct scan *s, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        if (s->p >= s->end || !isxdigit((unsigned char)*s->p))
            return bad_syntax(s, s->p, "four hexadecimal digits after \\u");
        int c = tolower((unsigned char)*s->p);
        *code = *code * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return DTP_OK;
}

/* Reads \uXXXX, with the second half of a surrogate pair; NUL cannot be held in a C string. */
static enum dtp_status scan_unicode_escape(struct scan *s) {
    const char *start = s->p - 2;
    unsigned high, low = 0;
    DTP_TRY(scan_hex4(s, &high));
    if (high == 0)
        return bad_syntax(s, start, "no NUL character (\\u0000)");
    if (high < 0xd800 || high > 0xdfff)
        return DTP_OK;
    bool pair = high < 0xdc00 && s->end - s->p >= 2 && s->p[0] == '\\' && s->p[1] == 'u';
    if (pair) {
        s->p += 2;
        DTP_TRY(scan_hex4(s, &low));
    }
    if (low < 0xdc00 || low > 0xdfff)
        return bad_syntax(s, start, "both halves of a surrogate pair");
    return DTP_OK;
}

static enum dtp_status scan_escape(struct scan *s) {
    s->p++; /* the backslash */
    if (s->p >= s->end || *s->p == '\0' || !strchr("\"\\/bfnrtu", *s->p))
        return bad_syntax(s, s->p, "one of \" \\ / b f n r t u after a backslash");
    bool unicode = *s->p == 'u';
    s->p++;
    return unicode ? scan_unicode_escape(s) : DTP_OK;
}

/* Reads one well-formed sequence of two to four bytes (Unicode 15, table 3-7). */
static enum dtp_status scan_utf8(struct scan *s) {
    const unsigned char *u = (const unsigned char *)s->p;
    unsigned low = 0x80, high = 0xbf;
    int more = 0;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        more = 1;
    else if (u[0] >= 0xe0 && u[0] <= 0xef)
        more = 2;
    else if (u[0] >= 0xf0 && u[0] <= 0xf4)
        more = 3;
    if (u[0] == 0xe0)
        low = 0xa0; /* no overlong form */
    if (u[0] == 0xed)
        high = 0x9f; /* no surrogate */
    if (u[0] == 0xf0)
        low = 0x90;
    if (u[0] == 0xf4)
        high = 0x8f; /* nothing above U+10FFFF */
    if (more == 0 || s->end - s->p <= more || u[1] < low || u[1] > high)
        return bad_syntax(s, s->p, "valid UTF-8");
    for (int i = 2; i <= more; i++)
        if (u[i] < 0x80 || u[i] > 0xbf)
            return bad_syntax(s, s->p, "valid UTF-8");
    s->p += more + 1;
    return DTP_OK;
}

static enum dtp_status scan_string(struct scan *s) {
    const char *start = s->p;
    if (!is_at(s, '"'))
        return bad_syntax(s, s->p, "a string");
    s->p++;
    while (!is_at(s, '"')) {
        if (s->p >= s->end)
            return bad_syntax(s, start, "a string that ends");
        unsigned char c = (unsigned char)*s->p;
        if (c < 0x20)
            return bad_syntax(s, s->p, "no raw control character in a string");
        if (c == '\\')
            DTP_TRY(scan_escape(s));
        else if (c >= 0x80)
            DTP_TRY(scan_utf8(s));
        else
            s->p++;
    }
    s->p++;
    return DTP_OK;
}

/* ---- values: recursion is bounded by MOST_DEPTH ---- */

static enum dtp_status scan_value(struct scan *s);

static enum dtp_status enter(struct scan *s) {
    if (s->depth == MOST_DEPTH) {
        char place[512];
        locate(s, s->p, place, sizeof place);
        return dtp_fail(s->err, DTP_EINPUT, "%s: nested deeper than %d levels", place, MOST_DEPTH);
    }
    s->p++;
    s->frame[s->depth++] = (struct frame){NULL, 0, 0};
    skip_space(s);
    return DTP_OK;
}

static enum dtp_status scan_array(struct scan *s) {
    DTP_TRY(enter(s));
    struct frame *f = &s->frame[s->depth - 1];
    while (!is_at(s, ']')) {
        DTP_TRY(scan_value(s));
        skip_space(s);
        if (is_at(s, ']'))
            break;
        if (!is_at(s, ','))
            return bad_syntax(s, s->p, "',' or ']'");
        s->p++;
        f->index++;
        skip_space(s);
        if (is_at(s, ']'))
            return bad_syntax(s, s->p, "a value after ','");
    }
    s->p++;
    s->depth--;
    return DTP_OK;
}

static enum dtp_status scan_member(struct scan *s, struct frame *f) {
    const char *start = s->p;
    if (!is_at(s, '"'))
        return bad_syntax(s, s->p, "a key in quotes");
    DTP_TRY(scan_string(s));
    f->key = start + 1;
    f->key_length = (size_t)(s->p - start) - 2;
    skip_space(s);
    if (!is_at(s, ':'))
        return bad_syntax(s, s->p, "':'");
    s->p++;
    skip_space(s);
    DTP_TRY(scan_value(s));
    skip_space(s);
    return DTP_OK;
}

static enum dtp_status scan_object(struct scan *s) {
    DTP_TRY(enter(s));
    struct frame *f = &s->frame[s->depth - 1];
    while (!is_at(s, '}')) {
        DTP_TRY(scan_member(s, f));
        if (is_at(s, '}'))
            break;
        if (!is_at(s, ','))
            return bad_syntax(s, s->p, "',' or '}'");
        s->p++;
        skip_space(s);
        if (is_at(s, '}'))
            return bad_syntax(s, s->p, "a key after ','");
    }
    s->p++;
    s->depth--;
    return DTP_OK;
}

static enum dtp_status scan_value(struct scan *s) {
    if (is_at(s, '{'))
        return scan_object(s);
    if (is_at(s, '['))
        return scan_array(s);
    if (is_at(s, '"'))
        return scan_string(s);
    if (is_at(s, '-') || digit_at(s))
        return scan_number(s);
    if (is_at(s, 't'))
        return scan_word(s, "true");
    if (is_at(s, 'f'))
        return scan_word(s, "false");
    return scan_word(s, "null");
}

static enum dtp_status scan_document(const char *name, const char *text, size_t length_bytes,
                                     struct dtp_err *err) {
    struct scan s = {.name = name, .text = text, .p = text, .end = text + length_bytes, .err = err};
    skip_space(&s);
    DTP_TRY(scan_value(&s));
    skip_space(&s);
    if (s.p < s.end)
        return bad_syntax(&s, s.p, "the end of the text");
    return DTP_OK;
}

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

/* Returns a member of a small object whose key one before it has, or NULL. */
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

/* Such a text begins with a byte order mark, as PowerShell writes it. */
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
    DTP_TRY(scan_document(name, text, length_bytes, err));
    cJSON *c = cJSON_ParseWithLength(text, length_bytes);
    if (!c) /* the scan has accepted the text, so this is memory */
        dtp_out_of_memory("JSON", length_bytes);
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
    const struct dtp_json *path[MOST_DEPTH + 1];
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
