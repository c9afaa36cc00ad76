#include "traces/formats/format.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

enum { MOST_KEYS = 48, MOST_INNER = 24, KEY_BYTES = 48, TEXT_SAMPLE = 4096, TEXT = 32 };

const char *const dtp_format_kind_name[DTP_NKINDS] = {"ranks",    "graph",      "operators",
                                                      "workload", "log",        "topology",
                                                      "jobs",     "iterations", "configuration"};

struct dtp_format_head {
    const unsigned char *at;
    size_t n;
    char json; /* { or [, else 0 */
    char key[MOST_KEYS][KEY_BYTES];
    unsigned char
        depth[MOST_KEYS]; /* 1: a key of the outermost object; 2: of an object or array in it */
    int nkeys, ninner;    /* ninner: those of depth 2 */
    bool is_text;
};

/* ---- keys of JSON: a string that a colon follows, with the number of braces around it ---- */

struct scan {
    struct dtp_format_head *h;
    size_t i;
    int depth;
};

static void take_string(struct scan *s) {
    struct dtp_format_head *h = s->h;
    size_t from = ++s->i, to;
    while (s->i < h->n && h->at[s->i] != '"')
        s->i += h->at[s->i] == '\\' ? 2 : 1;
    if (s->i >= h->n)
        return;
    to = s->i;
    size_t after = to + 1;
    while (after < h->n && isspace(h->at[after]))
        after++;
    if (after >= h->n || h->at[after] != ':' || h->nkeys == MOST_KEYS || s->depth > 2 ||
        (s->depth == 2 && h->ninner == MOST_INNER))
        return;
    h->ninner += s->depth == 2;
    size_t n = to - from < KEY_BYTES - 1 ? to - from : KEY_BYTES - 1;
    memcpy(h->key[h->nkeys], h->at + from, n);
    h->key[h->nkeys][n] = '\0';
    h->depth[h->nkeys++] = (unsigned char)s->depth;
}

static void scan_keys(struct dtp_format_head *h) {
    struct scan s = {.h = h};
    for (; s.i < h->n && h->nkeys < MOST_KEYS; s.i++) {
        unsigned char c = h->at[s.i];
        if (c == '{' || c == '[')
            s.depth++;
        else if (c == '}' || c == ']')
            s.depth--;
        else if (c == '"')
            take_string(&s);
    }
}

bool dtp_head_has_key(const struct dtp_format_head *h, int depth, const char *key) {
    for (int i = 0; i < h->nkeys; i++)
        if (h->depth[i] == depth && strcmp(h->key[i], key) == 0)
            return true;
    return false;
}

static void look(struct dtp_format_head *h) {
    size_t i = 0, sample = h->n < TEXT_SAMPLE ? h->n : TEXT_SAMPLE;
    h->is_text = true;
    for (size_t k = 0; k < sample; k++)
        h->is_text &= h->at[k] >= ' ' || strchr("\t\n\r\f\033", h->at[k]);
    while (i < h->n && isspace(h->at[i]))
        i++;
    size_t inner = i + 1;
    while (inner < h->n && isspace(h->at[inner]))
        inner++;
    /* "[2024-03-01 ...]" begins a line of a log, and "[rank0 ~ rank7]" a table */
    bool array = inner < h->n && h->at[i] == '[' && strchr("{[]\"", h->at[inner]);
    if (i < h->n && (h->at[i] == '{' || array)) {
        h->json = (char)h->at[i];
        scan_keys(h);
    }
}

/* ---- lines of text ---- */

bool dtp_head_line(const struct dtp_format_head *h, int k, char *out, size_t size) {
    for (size_t i = 0; i < h->n;) {
        size_t from = i, n = 0;
        bool blank = true;
        for (; i < h->n && h->at[i] != '\n'; i++)
            blank &= isspace(h->at[i]) != 0;
        if (!blank && k-- == 0) {
            for (; from < i && n < size - 1; from++)
                out[n++] = (char)h->at[from];
            out[n] = '\0';
            return true;
        }
        i++;
    }
    return false;
}

struct dtp_format_head *dtp_head_look(struct dtp_arena *a, const unsigned char *at, size_t n) {
    struct dtp_format_head *h = DTP_NEW(a, struct dtp_format_head, 1);
    h->at = at;
    h->n = n;
    look(h);
    return h;
}

const unsigned char *dtp_head_bytes(const struct dtp_format_head *h, size_t *n) {
    *n = h->n;
    return h->at;
}

char dtp_head_json(const struct dtp_format_head *h) {
    return h->json;
}

bool dtp_head_is_text(const struct dtp_format_head *h) {
    return h->is_text;
}

const char *dtp_head_no_content(const unsigned char *at, size_t n) {
    static const char lfs[] = "version https://git-lfs.github.com/";
    if (n >= sizeof lfs - 1 && memcmp(at, lfs, sizeof lfs - 1) == 0)
        return "a Git LFS pointer, not the file it stands for: `git lfs pull` fetches that";
    if (n >= 2 && ((at[0] == 0xff && at[1] == 0xfe) || (at[0] == 0xfe && at[1] == 0xff)))
        return "text in UTF-16: `iconv -f UTF-16 -t UTF-8` makes it readable";
    return NULL;
}

/* Recognises files of other programs by their first bytes. */
static const char *binary_kind(const struct dtp_format_head *h) {
    static const struct {
        const char *magic, *kind;
    } kinds[] = {{"PK\003\004", "a zip archive (or a PyTorch checkpoint)"},
                 {"\050\265\057\375", "data compressed by zstd"},
                 {"\375\067zXZ", "data compressed by xz"},
                 {"BZh", "data compressed by bzip2"},
                 {"\200\002", "a Python pickle"},
                 {"\200\004", "a Python pickle"},
                 {"\211PNG", "a picture"},
                 {"%PDF", "a PDF document"},
                 {"\177ELF", "a program"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (h->n >= strlen(kinds[i].magic) &&
            memcmp(h->at, kinds[i].magic, strlen(kinds[i].magic)) == 0)
            return kinds[i].kind;
    return "binary data";
}

const char *dtp_head_describe(struct dtp_arena *a, const struct dtp_format_head *h) {
    struct dtp_str s = {.a = a};
    if (!h->json)
        return h->is_text ? "text" : binary_kind(h);
    dtp_str_add(&s, "JSON with the keys");
    for (int i = 0; i < h->nkeys && i < 4; i++)
        dtp_str_printf(&s, " \"%s\"", h->key[i]);
    return s.at;
}

/* ---- traffic ---- */

void dtp_traffic_add(struct dtp_traffic *t, const char *kind, const char *group, uint64_t count,
                     double bytes) {
    size_t i = 0;
    while (i < t->n && (strcmp(t->row[i].kind, kind) != 0 || strcmp(t->row[i].group, group) != 0))
        i++;
    if (i == t->n) {
        t->row = dtp_arena_room(t->a, t->row, sizeof *t->row, t->n, &t->capacity);
        t->row[t->n++] = (struct dtp_traffic_row){.kind = kind, .group = group};
    }
    t->row[i].count += count;
    t->row[i].bytes += bytes;
}

void dtp_traffic_print(FILE *f, const struct dtp_traffic *t) {
    char bytes[TEXT];
    for (size_t i = 0; i < t->n; i++)
        fprintf(f, "    %-22s %-18s x%-7llu %s\n", t->row[i].kind, t->row[i].group,
                (unsigned long long)t->row[i].count,
                t->row[i].bytes > 0 ? dtp_fmt_bytes_si(t->row[i].bytes, bytes, sizeof bytes) : "");
}

void dtp_traffic_json(struct dtp_json_out *w, const struct dtp_traffic *t) {
    dtp_json_put_key(w, "communication");
    dtp_json_array(w);
    for (size_t i = 0; i < t->n; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "kind", t->row[i].kind);
        dtp_json_kv_string(w, "group", t->row[i].group);
        dtp_json_kv_u64(w, "count", t->row[i].count);
        dtp_json_kv_double(w, "bytes", t->row[i].bytes);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}
