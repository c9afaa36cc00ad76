/* load.c: from what a user names (files, folders, archives) to the ranks of a job. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/text.h"
#include "traces/kineto.h"
#include "traces/tasks.h"

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

static enum dtp_status load_source(struct load *l, struct dtp_source *s, struct dtp_err *err) {
    if (dtp_tasks_is_own(s))
        return load_own(l, s, err);
    if (l->out->tasks)
        return dtp_fail(err, DTP_EINPUT, "%s holds all ranks of a job, %s is another",
                        l->out->rank[0].file, dtp_source_name(s));
    if (l->out->nranks == l->capacity) {
        size_t more = l->capacity ? l->capacity * 2 : 8;
        l->out->rank =
            dtp_arena_grow(l->a, l->out->rank, sizeof(struct dtp_trace_rank), l->capacity, more);
        l->capacity = more;
    }
    struct dtp_trace_rank *r = &l->out->rank[l->out->nranks];
    dtp_trace_rank_init(r, l->a, dtp_source_name(s));
    DTP_TRY(dtp_kineto_read(s, l->options, r, err));
    DTP_TRY(place_rank(l, r, err));
    l->out->nranks++;
    return DTP_OK;
}

static bool looks_like_trace(const char *name) {
    return strstr(name, ".json") && !strstr(name, "__MACOSX");
}

static enum dtp_status load_archive(struct load *l, struct dtp_source *tar, struct dtp_err *err) {
    for (;;) {
        struct dtp_source *member;
        DTP_TRY(dtp_source_tar_next(l->a, tar, &member, err));
        if (!member)
            return DTP_OK;
        enum dtp_status status =
            looks_like_trace(dtp_source_name(member)) ? load_source(l, member, err) : DTP_OK;
        dtp_source_close(member);
        DTP_TRY(status);
    }
}

static enum dtp_status load_file(struct load *l, const char *path, struct dtp_err *err) {
    struct dtp_source *s;
    DTP_TRY(dtp_source_open(l->a, path, &s, err));
    enum dtp_status status =
        dtp_source_is_tar(s) ? load_archive(l, s, err) : load_source(l, s, err);
    dtp_source_close(s);
    return status;
}

static enum dtp_status load_folder(struct load *l, const char *path, struct dtp_err *err) {
    static const char *const suffixes[] = {".json", ".json.gz", ".tar", ".tar.gz", ".tgz"};
    size_t any = 0;
    for (size_t s = 0; s < sizeof suffixes / sizeof *suffixes; s++) {
        const char *const *name;
        size_t n;
        DTP_TRY(dtp_dir_list(l->a, path, suffixes[s], &name, &n, err));
        for (size_t i = 0; i < n; i++)
            DTP_TRY(
                load_file(l, dtp_arena_printf(l->a, "%s/%s%s", path, name[i], suffixes[s]), err));
        any += n;
    }
    if (any == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: no file here ends in .json, .json.gz, .tar, .tar.gz or "
                        ".tgz",
                        path);
    return DTP_OK;
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
    for (size_t i = 0; i < npaths; i++) {
        struct stat st;
        bool folder = stat(paths[i], &st) == 0 && S_ISDIR(st.st_mode);
        DTP_TRY(folder ? load_folder(&l, paths[i], err) : load_file(&l, paths[i], err));
    }
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
