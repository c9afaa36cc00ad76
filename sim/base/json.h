/* json.h: strict JSON in, deterministic JSON out, both driven by one table of fields.
 *
 * Reading (over cJSON) checks what cJSON lets pass: duplicate keys, trailing bytes, depth over 64,
 * NaN and infinity, bad UTF-8, integers beyond 2^53. A leading byte order mark is skipped. Each error
 * names file, JSON path, what was found and expected; for an unknown key it names the nearest known one:
 *
 *     hw/gpu/a100.json: $.hbm.capcity_bytes: unknown key, did you mean "capacity_bytes"?
 *
 * A struct that comes from JSON (or goes to it, or to a CSV row, or is set by a command-line
 * option) has ONE table of `struct dtp_field`; the same table documents the fields. The keys
 * "source" (string, or object of key -> string) and "notes" (string) are allowed in every object.
 *
 *     static const struct dtp_field node_fields[] = {
 *         {"gpus", DTP_FIELD_INT, offsetof(struct node, gpus), .min = 1, .max = 1024,
 *          .required = true, .help = "GPUs per node"},
 *         {0}};
 *     DTP_TRY(dtp_fields_read(a, json, node_fields, &node, err));
 *
 * Writing: keys in the order of the calls or of the table, doubles as the shortest text that reads
 * back the same, no locale, so that equal values give equal bytes.
 */
#ifndef DTP_SIM_BASE_JSON_H
#define DTP_SIM_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

/* A node of a parsed document with its place, for messages. Lives in the arena it was read into. */
struct dtp_json;

enum dtp_json_type {
    DTP_JSON_NULL,
    DTP_JSON_BOOL,
    DTP_JSON_NUMBER,
    DTP_JSON_STRING,
    DTP_JSON_ARRAY,
    DTP_JSON_OBJECT
};

/* Reads a file; path "-" is standard input. */
enum dtp_status dtp_json_read_file(struct dtp_arena *a, const char *path,
                                   const struct dtp_json **out, struct dtp_err *err);
/* name: what messages call the text, such as a path or "<stdin>". text needs no final NUL. */
enum dtp_status dtp_json_parse(struct dtp_arena *a, const char *name, const char *text,
                               size_t length_bytes, const struct dtp_json **out,
                               struct dtp_err *err);

enum dtp_json_type dtp_json_type(const struct dtp_json *j);
/* Member of an object, or NULL. A member that holds null is returned, with type DTP_JSON_NULL. */
const struct dtp_json *dtp_json_get(const struct dtp_json *j, const char *key);
size_t dtp_json_size(const struct dtp_json *j); /* members or elements */
const struct dtp_json *dtp_json_at(const struct dtp_json *j, size_t i);
const char *dtp_json_key(const struct dtp_json *j); /* key under which j stands, or "" */
/* "file: $.path.to[3]" of the node, for messages. Returns buf. */
const char *dtp_json_place(const struct dtp_json *j, char *buf, size_t size);
double dtp_json_number(const struct dtp_json *j);      /* asserts the type */
const char *dtp_json_string(const struct dtp_json *j); /* asserts the type */
bool dtp_json_bool(const struct dtp_json *j);          /* asserts the type */

/* Fails with "PLACE: found FOUND, expected WHAT", status DTP_EINPUT. */
enum dtp_status dtp_json_expected(const struct dtp_json *j, const char *what, struct dtp_err *err);

/* The first member that is not the same in both, by its path ("plan.tp", "" where x and y are no objects), and
 * both values as text; NULL: none differs. x or y may be NULL, a member that is not there. */
struct dtp_json_difference {
    const char *path, *x, *y;
};
const struct dtp_json_difference *dtp_json_differ(struct dtp_arena *a, const struct dtp_json *x,
                                                  const struct dtp_json *y);

/* ---- field tables ---------------------------------------------------------------------------- */

enum dtp_field_kind {
    DTP_FIELD_BOOL = 1, /* bool */
    DTP_FIELD_INT,      /* int; min..max */
    DTP_FIELD_U64,      /* uint64_t, up to 2^53 in JSON; min..max */
    DTP_FIELD_DOUBLE,   /* double; min..max */
    DTP_FIELD_STRING,   /* const char * */
    DTP_FIELD_ENUM,     /* int (or an enum): index of the name in `names` */
    DTP_FIELD_SET,  /* int: bit i for the i-th of `names`; in JSON a list of names, 0 is left out */
    DTP_FIELD_INTS, /* struct dtp_ints */
    DTP_FIELD_DOUBLES, /* struct dtp_doubles */
    DTP_FIELD_OBJECT,  /* nested struct at offset, described by `fields` */
    DTP_FIELD_JSON,    /* const struct dtp_json *: known key whose value the module reads itself */
    DTP_FIELD_PUT      /* only written: put() writes the value */
};

/* What a number that is not above 0, false, NULL or an empty set or list becomes when it is written. */
enum dtp_unset {
    DTP_UNSET_USUAL,    /* NULL and an empty set are left out, all else is a value */
    DTP_UNSET_LEFT_OUT, /* the key is left out */
    DTP_UNSET_NULL      /* null */
};

struct dtp_ints {
    int *at;
    size_t n;
};
struct dtp_doubles {
    double *at;
    size_t n;
};

/* Whether there is at least one number and each is larger than the one before. */
bool dtp_doubles_ascend(const struct dtp_doubles *d);

struct dtp_field;
struct dtp_json_out;
/* Writes the value at `slot`, whose key is written already (with .flat: writes keys and values). */
typedef void dtp_field_put(struct dtp_json_out *w, const struct dtp_field *f, const void *slot);

/* A part that several documents have; the manual describes it once, under its title. */
struct dtp_form {
    const char *title, *text;
    const struct dtp_field *fields; /* NULL: the manual has it elsewhere */
};

struct dtp_field {
    const char *name; /* NULL ends the table */
    enum dtp_field_kind kind;
    size_t offset;
    double min, max;          /* both 0: any finite number */
    double least;             /* the smallest value besides min; 0: none */
    bool required;            /* else the value already in the struct stays (its default) */
    bool optional_null;       /* null is accepted and leaves the default */
    const char *const *names; /* ENUM, SET: NULL-terminated */
    const struct dtp_field *fields;
    const char *help; /* one line, with the unit */
    /* for output only */
    const struct dtp_form *form; /* instead of fields: the part that the value is */
    dtp_field_put *put;
    bool flat;         /* OBJECT, PUT: the keys of the value stand among those of the table */
    const char *inner; /* PUT: what the manual adds to the name, such as "[]" or ".*" */
    enum dtp_unset unset;
    double scale; /* DOUBLE: a factor; 0: none */
};

/* Fills *out from object j. Fields that j does not have keep what *out holds. */
enum dtp_status dtp_fields_read(struct dtp_arena *a, const struct dtp_json *j,
                                const struct dtp_field *fields, void *out, struct dtp_err *err);
/* One field from text (a command-line value, a CSV cell). place: what messages call it; out: the
 * struct. A field whose name ends in _bytes or _s takes units ("80GB", "25us"); a list is "12,13", a set "a,b". */
enum dtp_status dtp_field_parse(struct dtp_arena *a, const struct dtp_field *field,
                                const char *text, const char *place, void *out,
                                struct dtp_err *err);
const struct dtp_field *dtp_field_find(const struct dtp_field *fields, const char *name);
/* What the field holds: "an integer from 1 to 8", "one of: none, full"; DTP_FIELD_JSON: "". Returns buf. */
const char *dtp_field_values(const struct dtp_field *field, char *buf, size_t size);
/* The names of a SET: "moe_act,layernorm". Returns buf. */
const char *dtp_set_text(const char *const *names, int bits, char *buf, size_t size);
/* Index of name in a NULL-terminated list, or -1. */
int dtp_name_index(const char *const *names, const char *name);

/* ---- writing --------------------------------------------------------------------------------- */

/* A JSON writer into a FILE. Misuse (value without key, unbalanced end) asserts. */
struct dtp_json_out {
    FILE *file;
    int indent; /* spaces per level; 0 writes one line */
    /* state, private */
    int depth;
    bool need_comma, after_key;
    bool line_next;             /* dtp_json_line() was called, nothing was opened since */
    int line_depth, old_indent; /* the depth of what stands on one line, 0: nothing does */
    unsigned char in_array[64];
};

/* One document: begin, an object or array, its members, ends in pairs. */
void dtp_json_begin(struct dtp_json_out *w, FILE *file, int indent);
void dtp_json_object(struct dtp_json_out *w);
void dtp_json_array(struct dtp_json_out *w);
void dtp_json_end(struct dtp_json_out *w); /* closes the innermost; after the last, a newline */
/* The array or object that is opened next stands on one line: a row of a table. */
void dtp_json_line(struct dtp_json_out *w);
void dtp_json_put_key(struct dtp_json_out *w, const char *key);
void dtp_json_put_string(struct dtp_json_out *w, const char *s); /* NULL writes null */
void dtp_json_put_double(struct dtp_json_out *w, double v);      /* not finite writes null */
void dtp_json_put_u64(struct dtp_json_out *w, uint64_t v);
/* Writes v / 1000 with three decimals and no exponent: nanoseconds as microseconds. */
void dtp_json_put_thousandths(struct dtp_json_out *w, int64_t v);
void dtp_json_put_int(struct dtp_json_out *w, long long v);
void dtp_json_put_bool(struct dtp_json_out *w, bool v);
void dtp_json_put_null(struct dtp_json_out *w);
/* A list of numbers with per_line of them on a line; 0: all of them. */
void dtp_json_put_doubles(struct dtp_json_out *w, const struct dtp_doubles *d, size_t per_line);
void dtp_json_put_json(struct dtp_json_out *w,
                       const struct dtp_json *j); /* a copy of what was read */
/* Writes the same with lists of scalars and objects of numbers on one line each. */
void dtp_json_put_rows(struct dtp_json_out *w, const struct dtp_json *j);
/* Key and value in one call. */
void dtp_json_kv_string(struct dtp_json_out *w, const char *key, const char *s);
void dtp_json_kv_double(struct dtp_json_out *w, const char *key, double v);
void dtp_json_kv_u64(struct dtp_json_out *w, const char *key, uint64_t v);
void dtp_json_kv_int(struct dtp_json_out *w, const char *key, long long v);
void dtp_json_kv_bool(struct dtp_json_out *w, const char *key, bool v);
/* All fields of a struct as members of the object being written (the object is already open);
 * a NULL string, list or JSON value is left out, so that it reads back as the default. */
void dtp_fields_write(struct dtp_json_out *w, const struct dtp_field *fields, const void *in);
/* A whole document: an object with the fields of the form. */
void dtp_form_write(FILE *f, int indent, const struct dtp_form *form, const void *in);

/* A list of structs for .put, each of which becomes an object with the members of the field. */
struct dtp_list {
    const void *at;
    size_t n, size_bytes; /* size_bytes: one struct */
};
#define DTP_LIST(array, count) ((struct dtp_list){(array), (size_t)(count), sizeof *(array)})
dtp_field_put dtp_put_list;
dtp_field_put dtp_put_object;  /* an object with the members of the field */
dtp_field_put dtp_put_pointer; /* a pointer to a struct, an object; NULL is null */
/* A pointer to a struct whose members stand among the others (with .flat); NULL: none do. */
dtp_field_put dtp_put_part;
#define DTP_FIELD_PART_AT(at, table)                                                               \
    {                                                                                              \
        .name = "part", .kind = DTP_FIELD_PUT, .offset = at, .put = dtp_put_part, .flat = true,    \
        .fields = table                                                                            \
    }
dtp_field_put dtp_put_constant; /* the first of the field's names, a string */

#endif
