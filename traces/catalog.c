#include "traces/catalog.h"

#include <assert.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/formats/config.h"
#include "traces/formats/trace.h"

#define X(name) &dtp_format_##name,
const struct dtp_format *const dtp_formats[DTP_NFORMATS] = {DTP_FORMATS(X)};
#undef X

enum dtp_status dtp_format_detect(struct dtp_source *source, const struct dtp_format **out,
                                  struct dtp_err *err) {
    const unsigned char *at;
    size_t n;
    enum dtp_status status = DTP_OK;
    DTP_TRY(dtp_source_peek(source, &at, &n, err));
    if (n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", dtp_source_name(source));
    const char *other = dtp_head_no_content(at, n);
    if (other)
        return dtp_fail(err, DTP_EINPUT, "%s: %s", dtp_source_name(source), other);
    struct dtp_arena *a = dtp_arena_create("the first bytes of a file");
    const struct dtp_format_head *h = dtp_head_look(a, at, n);
    *out = NULL;
    for (int f = 0; f < DTP_NFORMATS && !*out; f++)
        *out = dtp_formats[f]->detect(h) ? dtp_formats[f] : NULL;
    if (!*out && dtp_head_json(h) == '{' && n == DTP_SOURCE_AHEAD)
        *out = &dtp_format_kineto; /* metadata of any length may come first */
    if (!*out)
        status = dtp_fail(err, DTP_EINPUT,
                          "%s: %s, of no format that is known (`dtplan trace --format list`)",
                          dtp_source_name(source), dtp_head_describe(a, h));
    dtp_arena_destroy(a);
    return status;
}

enum dtp_status dtp_format_find(const char *name, const struct dtp_format **out,
                                struct dtp_err *err) {
    const char *names[DTP_NFORMATS];
    for (int i = 0; i < DTP_NFORMATS; i++) {
        names[i] = dtp_formats[i]->name;
        *out = dtp_formats[i];
        if (strcmp(name, names[i]) == 0)
            return DTP_OK;
    }
    return dtp_unknown_name(err, DTP_EUSAGE, "format", name, names, DTP_NFORMATS,
                            "dtplan trace --format list");
}

/* ---- items ---- */

struct reader {
    struct dtp_arena *a;
    const struct dtp_format *format; /* given by the user, or NULL */
    struct dtp_items *out;
    const char *given; /* argument that gave the last file counted */
    size_t passed_over;
};

/* The item that takes the file, or a new one. */
static struct dtp_item *item_for(struct reader *r, const struct dtp_visited *v,
                                 const struct dtp_format *f) {
    struct dtp_items *o = r->out;
    assert(f != NULL); /* it was given by the user or detected */
    for (size_t i = 0; f->joins && i < o->n; i++)
        if (o->item[i].format->joins && strcmp(o->item[i].format->joins, f->joins) == 0)
            return &o->item[i];
    o->item = dtp_arena_room(r->a, o->item, sizeof *o->item, o->n, &o->capacity);
    o->item[o->n] = (struct dtp_item){
        .name = f->kind == DTP_KIND_RANKS ? v->given : dtp_source_name(v->source), .format = f};
    return &o->item[o->n++];
}

/* Returns the job that the ranks belong to, or one of their own. */
static struct dtp_item *join_ranks(struct reader *r, const struct dtp_visited *v,
                                   struct dtp_item *item, struct dtp_trace *ranks) {
    struct dtp_items *o = r->out;
    for (size_t i = 0; i < o->n; i++)
        if (o->item[i].format->kind == DTP_KIND_RANKS &&
            dtp_ranks_join(r->a, o->item[i].content, ranks))
            return &o->item[i];
    const struct dtp_format *format = item->format;
    const struct dtp_trace *first = item->content;
    if (item->name == v->given && item->nfiles <= 1) /* the folder is no longer all of its job */
        item->name = first->rank[0].file;
    o->item = dtp_arena_room(r->a, o->item, sizeof *o->item, o->n, &o->capacity);
    o->item[o->n] =
        (struct dtp_item){.name = dtp_source_name(v->source), .format = format, .content = ranks};
    return &o->item[o->n++];
}

static enum dtp_status read_as(struct reader *r, const struct dtp_visited *v,
                               const struct dtp_format *format, struct dtp_err *err) {
    size_t before = r->out->n;
    void *ranks = NULL; /* their job is known when they are read */
    struct dtp_item *item = item_for(r, v, format);
    bool is_ranks = format->kind == DTP_KIND_RANKS;
    enum dtp_status status =
        format->read(r->a, v, &r->out->options, is_ranks ? &ranks : &item->content, err);
    if (status == DTP_OK && is_ranks && !item->content)
        item->content = ranks;
    else if (status == DTP_OK && is_ranks)
        item = join_ranks(r, v, item, ranks);
    if (status != DTP_OK)
        r->out->n = before;
    else if (format->kind != DTP_KIND_RANKS || r->given != v->given)
        item->nfiles++; /* an archive of ranks counts once: commands take it whole */
    r->given = v->given;
    return status;
}

/* A text that is no log is read once more as settings: from its file, else from what was seen of it if that is
 * all. It needs two of them, for one setting may be anything. */
static bool read_config(struct reader *r, const struct dtp_visited *v, const void *seen, size_t n) {
    enum { FEW = 2 };
    struct dtp_visited again = *v;
    size_t before = r->out->n;
    if (!v->path && n == DTP_SOURCE_AHEAD)
        return false;
    if ((v->path ? dtp_source_open(r->a, v->path, &again.source, NULL)
                 : dtp_source_memory(r->a, dtp_source_name(v->source), seen, n, &again.source,
                                     NULL)) != DTP_OK)
        return false;
    bool is = read_as(r, &again, &dtp_format_config, NULL) == DTP_OK &&
              ((struct dtp_run_config *)r->out->item[before].content)->found >= FEW;
    dtp_source_close(again.source);
    r->out->n = is ? r->out->n : before;
    return is;
}

/* YAML says "key: value" as logs do, but a log is no mapping from its first line to its last. */
static bool is_mapping(struct dtp_arena *a, const unsigned char *seen, size_t n) {
    struct dtp_settings settings = {.a = a};
    while (n == DTP_SOURCE_AHEAD && n > 0 && seen[n - 1] != '\n')
        n--;
    return dtp_settings_read_yaml(&settings, (const char *)seen, n);
}

static enum dtp_status read_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    struct reader *r = ctx;
    const struct dtp_format *format = r->format;
    const unsigned char *seen = NULL;
    size_t n = 0;
    if (r->format)
        return read_as(r, v, format, err);
    enum dtp_status status = dtp_format_detect(v->source, &format, err);
    if (status != DTP_OK) {
        r->passed_over += !v->named;
        return v->named ? status : DTP_OK;
    }
    DTP_TRY(dtp_source_peek(v->source, &seen, &n, err)); /* reading leaves it there */
    if (format == &dtp_format_log && is_mapping(r->a, seen, n) && read_config(r, v, seen, n))
        return DTP_OK;
    status = read_as(r, v, format, err);
    if (status == DTP_OK || format != &dtp_format_log)
        return status;
    if (!v->named) { /* a text in a folder that is no log is not what the user means */
        r->passed_over++;
        return DTP_OK;
    }
    if (status != DTP_EINPUT || read_config(r, v, seen, n))
        return status == DTP_EINPUT ? DTP_OK : status;
    if (!v->path && n == DTP_SOURCE_AHEAD)
        return dtp_fail(err, status, "%s: no log; if it is a configuration: --format config",
                        dtp_source_name(v->source));
    return status;
}

enum dtp_status dtp_items_read(struct dtp_arena *a, const char *const *paths, size_t npaths,
                               const struct dtp_format *format, struct dtp_items *out,
                               struct dtp_err *err) {
    struct reader r = {.a = a, .format = format, .out = out};
    for (size_t i = 0; i < npaths; i++)
        DTP_TRY(dtp_visit(a, paths[i], read_one, &r, err));
    for (size_t i = 0; i < out->n; i++)
        if (out->item[i].format->finish)
            DTP_TRY(out->item[i].format->finish(a, out->item[i].content, err));
    if (out->n == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: no file of a known format in it (%zu others); `dtplan trace --format "
                        "list` has the formats",
                        paths[0], r.passed_over);
    return DTP_OK;
}
