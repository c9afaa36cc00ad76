/* ranks.c: the formats that hold ranks with times, and the ranks of a job from files, folders and archives. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/catalog.h"
#include "traces/formats/kineto.h"
#include "traces/formats/nsys.h"
#include "traces/replay/analyse.h"
#include "traces/replay/match.h"
#include "traces/tasks/tasks.h"

/* Returns the number after "rank" or "worker" in the last part of a path, or -1. */
static int rank_in_name(const char *path) {
    static const char *const words[] = {"rank", "worker"};
    const char *base = dtp_base_name(path);
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

static enum dtp_status place_rank(const struct dtp_trace *t, const struct dtp_format_options *o,
                                  struct dtp_trace_rank *r, struct dtp_err *err) {
    if (r->rank < 0) {
        dtp_trace_warn(r, DTP_WARN_NO_RANK, 0);
        int named = o->load ? o->load->rank : -1;
        r->rank = named >= 0 ? named : rank_in_name(r->file);
        for (int i = 0; r->rank < 0; i++) /* a file alone is rank 0; of several, finish() asks */
            if (!taken(t, i))
                r->rank = i;
    }
    if (r->world_size >= 0 && r->rank >= r->world_size)
        return dtp_fail(err, DTP_EINPUT, "%s: rank %d of a world of %d", r->file, r->rank,
                        r->world_size);
    for (size_t i = 0; i < t->nranks; i++)
        if (t->rank[i].rank == r->rank)
            return dtp_fail(err, DTP_EINPUT, "%s and %s are both rank %d", t->rank[i].file, r->file,
                            r->rank);
    return DTP_OK;
}

static struct dtp_trace *trace_of(struct dtp_arena *a, void **content) {
    if (!*content)
        *content = DTP_NEW(a, struct dtp_trace, 1);
    return *content;
}

static struct dtp_trace_rank *room(struct dtp_arena *a, struct dtp_trace *t) {
    t->rank = dtp_arena_room(a, t->rank, sizeof *t->rank, t->nranks, &t->capacity);
    return &t->rank[t->nranks];
}

/* A timeline that dtplan wrote holds all ranks of its job. */
static enum dtp_status read_dtplan(struct dtp_arena *a, const struct dtp_visited *v,
                                   const struct dtp_format_options *o, void **content,
                                   struct dtp_err *err) {
    struct dtp_trace *t = trace_of(a, content);
    struct dtp_tasks *tasks;
    (void)o;
    if (t->nranks > 0)
        return dtp_fail(err, DTP_EINPUT, "%s holds all ranks of a job, %s is another",
                        dtp_source_name(v->source), t->rank[0].file);
    DTP_TRY(dtp_tasks_read(a, v->source, &tasks, err));
    dtp_tasks_to_trace(a, tasks, dtp_source_name(v->source), t);
    t->capacity = t->nranks;
    return DTP_OK;
}

static enum dtp_status read_kineto(struct dtp_arena *a, const struct dtp_visited *v,
                                   const struct dtp_format_options *o, void **content,
                                   struct dtp_err *err) {
    struct dtp_trace *t = trace_of(a, content);
    if (t->tasks)
        return dtp_fail(err, DTP_EINPUT, "%s holds all ranks of a job, %s is another",
                        t->rank[0].file, dtp_source_name(v->source));
    struct dtp_trace_rank *r = room(a, t);
    dtp_trace_rank_init(r, a, dtp_source_name(v->source));
    DTP_TRY(dtp_kineto_read(v->source, o->load, r, err));
    DTP_TRY(place_rank(t, o, r, err));
    t->nranks++;
    return DTP_OK;
}

/* A report may hold several processes; they are ranks in the order of their devices. */
static enum dtp_status read_nsys(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    struct dtp_trace *t = trace_of(a, content);
    struct dtp_trace_rank *rank;
    size_t n;
    DTP_TRY(dtp_nsys_read(a, v->source, v->path, &rank, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct dtp_trace_rank *r = room(a, t);
        *r = rank[i];
        for (int k = 0; n > 1 && r->rank < 0; k++)
            if (!taken(t, k))
                r->rank = k;
        DTP_TRY(place_rank(t, o, r, err));
        t->nranks++;
    }
    return DTP_OK;
}

/* ---- whether a rank can be true ---- */

#define MOST_WORK_S (10 * 86400.0) /* no kernel runs for ten days */

static enum dtp_status check_times(const struct dtp_trace_rank *r, struct dtp_err *err) {
    uint64_t nkernels = 0, timed = 0;
    double longest_s = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        double dur_s = (double)e->dur_ns * DTP_NANO;
        nkernels += e->kind == DTP_TRACE_KERNEL;
        timed += e->kind == DTP_TRACE_KERNEL && e->dur_ns > 0;
        longest_s = dtp_trace_is_work(e) && dur_s > longest_s ? dur_s : longest_s;
    }
    if (nkernels > 0 && timed == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: %llu kernels, and none has a duration (\"dur\")",
                        r->file, (unsigned long long)nkernels);
    if (longest_s > MOST_WORK_S)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: work of %.0f days on a device: \"ts\" and \"dur\" seem to be swapped",
                        r->file, longest_s / 86400);
    return DTP_OK;
}

/* ---- whether ranks are of one job ---- */

struct extent {
    double from_s, to_s;
    bool absolute; /* since 1970, not since the host started */
};

static struct extent extent_of(const struct dtp_trace_rank *r) {
    static const double year_2001_s = DTP_GIGA;
    double from_s = (double)(r->base_ns + dtp_trace_first_ns(r)) * DTP_NANO;
    return (struct extent){from_s, from_s + (double)dtp_trace_span_ns(r) * DTP_NANO,
                           from_s > year_2001_s};
}

/* By its record, its name or the user. */
static bool says_its_rank(const struct dtp_trace_rank *r) {
    return r->warned[DTP_WARN_NO_RANK].count == 0 || rank_in_name(r->file) >= 0;
}

/* Why two ranks are not of one job; NULL: nothing is against it. */
static const char *why_not_one_job(struct dtp_arena *a, const struct dtp_trace_rank *p,
                                   const struct dtp_trace_rank *q) {
    static const double most_apart_s = 60; /* limit for clocks of hosts that run one job */
    const struct dtp_trace_rank *silent = !says_its_rank(p) ? p : !says_its_rank(q) ? q : NULL;
    if (p->world_size >= 0 && q->world_size >= 0 && p->world_size != q->world_size)
        return dtp_arena_printf(a, "%s is of a world of %d, %s of %d", p->file, p->world_size,
                                q->file, q->world_size);
    if (silent)
        return dtp_arena_printf(a, "neither %s nor its name says its rank (rankN)", silent->file);
    if (p->rank == q->rank)
        return dtp_arena_printf(a, "%s and %s are both rank %d", p->file, q->file, p->rank);
    struct extent x = extent_of(p), y = extent_of(q);
    double apart_s = x.from_s > y.to_s ? x.from_s - y.to_s : y.from_s - x.to_s;
    if (x.absolute && y.absolute && apart_s > most_apart_s)
        return dtp_arena_printf(a, "%s and %s were recorded %.0f s apart", p->file, q->file,
                                apart_s);
    return NULL;
}

/* All ranks of a job are there, and communicate, but no two of them took part in one collective. */
static const char *why_no_collectives(struct dtp_arena *a, struct dtp_trace *t) {
    struct dtp_matches m;
    size_t shared = 0, n = 0;
    if (t->tasks || t->nranks < 2 || t->rank[0].world_size != (int)t->nranks)
        return NULL;
    dtp_trace_match(a, t, DTP_ALIGN_ALL, &m);
    for (size_t i = 0; i < m.n; i++) {
        shared += m.at[i].n > 1;
        n += m.at[i].op != DTP_COMM_SEND_RECV;
    }
    for (size_t r = 0; r < t->nranks; r++) {
        t->rank[r].warned[DTP_WARN_UNMATCHED].count = 0;
        t->rank[r].offset_ns = 0;
    }
    return n > 0 && shared == 0 ? dtp_arena_printf(a, "none of their %zu collectives is shared", n)
                                : NULL;
}

bool dtp_ranks_join(struct dtp_arena *a, struct dtp_trace *to, const struct dtp_trace *more) {
    if (to->tasks || more->tasks)
        return false;
    for (size_t i = 0; i < to->nranks; i++)
        for (size_t k = 0; k < more->nranks; k++)
            if (why_not_one_job(a, &to->rank[i], &more->rank[k]))
                return false;
    for (size_t k = 0; k < more->nranks; k++) {
        *room(a, to) = more->rank[k];
        to->nranks++;
    }
    return true;
}

static int by_rank(const void *x, const void *y) {
    const struct dtp_trace_rank *p = x, *q = y;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

static enum dtp_status finish(struct dtp_arena *a, void *content, struct dtp_err *err) {
    struct dtp_trace *t = content;
    const char *why = NULL;
    qsort(t->rank, t->nranks, sizeof *t->rank, by_rank);
    int world = t->rank[0].world_size;
    for (size_t i = 0; i < t->nranks && !t->tasks && !why; i++) {
        DTP_TRY(check_times(&t->rank[i], err));
        if (i > 0 && strcmp(t->rank[0].file, t->rank[i].file) != 0)
            why = why_not_one_job(a, &t->rank[0], &t->rank[i]);
    }
    if (!why)
        why = why_no_collectives(a, t);
    if (why)
        return dtp_fail(err, DTP_EINPUT, "not ranks of one job: %s", why);
    if (world > 0 && (size_t)world > t->nranks)
        t->rank[0].warned[DTP_WARN_UNFINISHED_GROUP].count = (size_t)world - t->nranks;
    return DTP_OK;
}

struct load {
    struct dtp_arena *a;
    struct dtp_format_options options;
    void *trace;
};

static enum dtp_status load_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    struct load *l = ctx;
    const struct dtp_format *format;
    struct dtp_err unknown = {0};
    enum dtp_status status = dtp_format_detect(v->source, &format, &unknown);
    if (status == DTP_OK && format->kind != DTP_KIND_RANKS)
        status = dtp_fail(&unknown, DTP_EINPUT, "%s: %s, which has no ranks with times to replay",
                          dtp_source_name(v->source), format->title);
    if (status != DTP_OK) /* other files of folders and archives are passed over */
        return v->named ? dtp_fail(err, status, "%s", unknown.msg) : DTP_OK;
    return format->read(l->a, v, &l->options, &l->trace, err);
}

enum dtp_status dtp_trace_load(struct dtp_arena *a, const char *const *paths, size_t npaths,
                               const struct dtp_trace_options *options, struct dtp_trace *out,
                               struct dtp_err *err) {
    struct load l = {a, {.unit_s = 1, .load = options}, out};
    *out = (struct dtp_trace){0};
    for (size_t i = 0; i < npaths; i++)
        DTP_TRY(dtp_visit(a, paths[i], load_one, &l, err));
    if (out->nranks == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no trace in it", npaths > 0 ? paths[0] : "no file");
    return finish(a, out, err);
}

/* ---- the rows of the formats ---- */

static bool begins(const struct dtp_format_head *h, const char *magic, size_t size) {
    size_t n;
    const unsigned char *at = dtp_head_bytes(h, &n);
    return n >= size && memcmp(at, magic, size) == 0;
}

static bool is_dtplan(const struct dtp_format_head *h) {
    static const char head[] = "{\"dtplan\"";
    return begins(h, head, sizeof head - 1);
}

static bool is_nsys(const struct dtp_format_head *h) {
    static const char magic[] = "SQLite format 3";
    return begins(h, magic, sizeof magic);
}

static bool is_kineto(const struct dtp_format_head *h) {
    static const char *const keys[] = {"traceEvents",     "schemaVersion",       "deviceProperties",
                                       "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit",
                                       "traceName"};
    if (dtp_head_json(h) == '[')
        return dtp_head_has_key(h, 2, "ph");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (dtp_head_json(h) && dtp_head_has_key(h, 1, keys[i]))
            return true;
    return false;
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    enum { TEXT = 32 };
    (void)a;
    (void)o;
    char span[TEXT], compute[TEXT], comm[TEXT], idle[TEXT], overlap[TEXT];
    const struct dtp_trace *t = item->content;
    for (size_t r = 0; r < t->nranks; r++) {
        const struct dtp_trace_rank *rank = &t->rank[r];
        struct dtp_trace_times times;
        dtp_trace_times_all(rank, &times);
        fprintf(f, "  rank %d", rank->rank);
        if (rank->world_size > 0)
            fprintf(f, " of %d", rank->world_size);
        fprintf(f, "%s%s: %zu events, %zu steps\n", rank->device[0] ? ", " : "", rank->device,
                rank->nevents, rank->nsteps);
        fprintf(f, "    span %s: compute %s, communication %s (%s under compute), idle %s\n",
                dtp_fmt_time((double)times.span_ns * DTP_NANO, span, sizeof span),
                dtp_fmt_time((double)times.compute_ns * DTP_NANO, compute, sizeof compute),
                dtp_fmt_time((double)times.comm_ns * DTP_NANO, comm, sizeof comm),
                dtp_fmt_percent(dtp_trace_overlap_pct(&times) / 100, overlap, sizeof overlap),
                dtp_fmt_time((double)times.idle_ns * DTP_NANO, idle, sizeof idle));
    }
    fprintf(f, "  replay it, ask what if:      dtplan replay %s%s\n", item->name,
            item->nfiles > 1 ? " ..." : "");
    fprintf(f, "  find model and plan:         dtplan infer %s%s\n", item->name,
            item->nfiles > 1 ? " ..." : "");
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_trace *t = item->content;
    dtp_json_put_key(w, "ranks");
    dtp_json_array(w);
    for (size_t r = 0; r < t->nranks; r++) {
        struct dtp_trace_times times;
        dtp_trace_times_all(&t->rank[r], &times);
        dtp_json_object(w);
        dtp_json_kv_int(w, "rank", t->rank[r].rank);
        dtp_json_kv_int(w, "world_size", t->rank[r].world_size);
        dtp_json_kv_string(w, "device", t->rank[r].device);
        dtp_json_kv_u64(w, "events", t->rank[r].nevents);
        dtp_json_kv_u64(w, "steps", t->rank[r].nsteps);
        dtp_json_kv_double(w, "span_s", (double)times.span_ns * DTP_NANO);
        dtp_json_kv_double(w, "compute_s", (double)times.compute_ns * DTP_NANO);
        dtp_json_kv_double(w, "communication_s", (double)times.comm_ns * DTP_NANO);
        dtp_json_kv_double(w, "memory_s", (double)times.memory_ns * DTP_NANO);
        dtp_json_kv_double(w, "idle_s", (double)times.idle_ns * DTP_NANO);
        dtp_json_kv_double(w, "overlap_pct", dtp_trace_overlap_pct(&times));
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

const struct dtp_format dtp_format_kineto = {
    .name = "kineto",
    .title = "PyTorch Kineto trace (CUDA, ROCm), JSON",
    .told = "keys traceEvents, schemaVersion, distributedInfo, ...; or an array of events",
    .kind = DTP_KIND_RANKS,
    .joins = "ranks",
    .detect = is_kineto,
    .read = read_kineto,
    .finish = finish,
    .print = print_item,
    .json = write_item};

const struct dtp_format dtp_format_dtplan = {.name = "dtplan",
                                             .title = "timeline that dtplan wrote, JSON",
                                             .told = "first key dtplan",
                                             .kind = DTP_KIND_RANKS,
                                             .joins = "ranks",
                                             .detect = is_dtplan,
                                             .read = read_dtplan,
                                             .finish = finish,
                                             .print = print_item,
                                             .json = write_item};

const struct dtp_format dtp_format_nsys = {.name = "nsys",
                                           .title = "Nsight Systems report, SQLite",
                                           .told = "magic of SQLite",
                                           .kind = DTP_KIND_RANKS,
                                           .joins = "ranks",
                                           .detect = is_nsys,
                                           .read = read_nsys,
                                           .finish = finish,
                                           .print = print_item,
                                           .json = write_item};
