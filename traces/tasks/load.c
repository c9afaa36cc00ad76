/* load.c: from what a user names (files, folders, archives) to the ranks of a job. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/formats/format.h"
#include "traces/formats/kineto.h"
#include "traces/formats/nsys.h"
#include "traces/tasks/tasks.h"
#include "traces/formats/visit.h"

struct load {
    struct dtp_arena *a;
    const struct dtp_trace_options *options;
    struct dtp_trace *out;
    size_t capacity;
};

/* The number after "rank" or "worker" in the last part of a path, or -1. */
static int rank_in_name(const char *path) {
    static const char *const words[] = {"rank", "worker"};
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const char *at = strstr(base, words[w]);
        if (!at)
            continue;
        at += strlen(words[w]);
        at += strspn(at, "-_ .");
        if (isdigit((unsigned char)*at))
            return (int)strtol(at, NULL, 10);
    }
    return -1;
}

static bool taken(const struct dtp_trace *t, int rank) {
    for (size_t i = 0; i < t->nranks; i++)
        if (t->rank[i].rank == rank)
            return true;
    return false;
}

static enum dtp_status place_rank(struct load *l, struct dtp_trace_rank *r, struct dtp_err *err) {
    if (r->rank < 0) {
        dtp_trace_warn(r, DTP_WARN_NO_RANK, 0);
        int named = l->options ? l->options->rank : -1;
        r->rank = named >= 0 ? named : rank_in_name(r->file);
        for (int i = 0; r->rank < 0; i++)
            if (!taken(l->out, i))
                r->rank = i;
    }
    if (r->world_size >= 0 && r->rank >= r->world_size)
        return dtp_fail(err, DTP_EINPUT, "%s: rank %d of a world of %d", r->file, r->rank,
                        r->world_size);
    for (size_t i = 0; i < l->out->nranks; i++)
        if (l->out->rank[i].rank == r->rank)
            return dtp_fail(err, DTP_EINPUT, "%s and %s are both rank %d", l->out->rank[i].file,
                            r->file, r->rank);
    return DTP_OK;
}

/* A timeline that dtplan wrote holds all ranks of its job. */
static enum dtp_status load_own(struct load *l, struct dtp_source *s, struct dtp_err *err) {
    struct dtp_tasks *tasks;
    if (l->out->nranks > 0)
        return dtp_fail(err, DTP_EINPUT, "%s holds all ranks of a job, %s is another",
                        dtp_source_name(s), l->out->rank[0].file);
    DTP_TRY(dtp_tasks_read(l->a, s, &tasks, err));
    dtp_tasks_to_trace(l->a, tasks, dtp_source_name(s), l->out);
    l->capacity = l->out->nranks;
    return DTP_OK;
}

static struct dtp_trace_rank *room(struct load *l) {
    l->out->rank = dtp_arena_room(l->a, l->out->rank, sizeof(struct dtp_trace_rank), l->out->nranks,
                                  &l->capacity);
    return &l->out->rank[l->out->nranks];
}

static enum dtp_status load_source(struct load *l, struct dtp_source *s, struct dtp_err *err) {
    if (dtp_tasks_is_own(s))
        return load_own(l, s, err);
    if (l->out->tasks)
        return dtp_fail(err, DTP_EINPUT, "%s holds all ranks of a job, %s is another",
                        l->out->rank[0].file, dtp_source_name(s));
    struct dtp_trace_rank *r = room(l);
    dtp_trace_rank_init(r, l->a, dtp_source_name(s));
    DTP_TRY(dtp_kineto_read(s, l->options, r, err));
    DTP_TRY(place_rank(l, r, err));
    l->out->nranks++;
    return DTP_OK;
}

/* A report may hold several processes; they are ranks in the order of their devices. */
static enum dtp_status load_report(struct load *l, const struct dtp_visited *v,
                                   struct dtp_err *err) {
    struct dtp_trace_rank *rank;
    size_t n;
    DTP_TRY(dtp_nsys_read(l->a, v->source, v->path, &rank, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct dtp_trace_rank *r = room(l);
        *r = rank[i];
        for (int k = 0; n > 1 && r->rank < 0; k++)
            if (!taken(l->out, k))
                r->rank = k;
        DTP_TRY(place_rank(l, r, err));
        l->out->nranks++;
    }
    return DTP_OK;
}

static enum dtp_status load_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    struct load *l = ctx;
    enum dtp_format format;
    struct dtp_err unknown = {0};
    enum dtp_status status = dtp_format_detect(v->source, &format, &unknown);
    if (status == DTP_OK && dtp_formats[format].kind != DTP_KIND_RANKS)
        status = dtp_fail(&unknown, DTP_EINPUT, "%s: %s, which has no ranks with times to replay",
                          dtp_source_name(v->source), dtp_formats[format].title);
    if (status != DTP_OK) { /* in folders and archives other files are passed over */
        if (!v->named)
            return DTP_OK;
        return dtp_fail(err, status, "%s", unknown.msg);
    }
    return format == DTP_FORMAT_NSYS ? load_report(l, v, err) : load_source(l, v->source, err);
}

static int by_rank(const void *x, const void *y) {
    const struct dtp_trace_rank *p = x, *q = y;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

enum dtp_status dtp_trace_load(struct dtp_arena *a, const char *const *paths, size_t npaths,
                               const struct dtp_trace_options *options, struct dtp_trace *out,
                               struct dtp_err *err) {
    struct load l = {.a = a, .options = options, .out = out};
    *out = (struct dtp_trace){0};
    for (size_t i = 0; i < npaths; i++)
        DTP_TRY(dtp_visit(a, paths[i], load_one, &l, err));
    if (out->nranks == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no trace in it", npaths > 0 ? paths[0] : "no file");
    qsort(out->rank, out->nranks, sizeof *out->rank, by_rank);
    int world = out->rank[0].world_size;
    for (size_t i = 1; i < out->nranks; i++)
        if (out->rank[i].world_size != world && out->rank[i].world_size >= 0 && world >= 0)
            return dtp_fail(err, DTP_EINPUT, "%s is of a world of %d, %s of %d: not one job",
                            out->rank[0].file, world, out->rank[i].file, out->rank[i].world_size);
    if (world > 0 && (size_t)world > out->nranks)
        out->rank[0].warned[DTP_WARN_UNFINISHED_GROUP].count = (size_t)world - out->nranks;
    return DTP_OK;
}
