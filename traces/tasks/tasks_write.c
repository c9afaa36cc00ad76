/* tasks_write.c: the table of writers, by the end of a file's name; .gz; lanes. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/tasks_private.h"

static const struct {
    const char *end;
    tasks_writer *write; /* NULL: a file for each rank */
    bool wants_all;
    double bytes; /* of a task, about */
} writers[] = {{".json", tasks_write_chrome, false, 300},
               {".csv", tasks_write_csv, false, 140},
               {".svg", tasks_write_gantt, false, 110},
               {".et", NULL, true, 60}};

static bool ends_in(const char *s, size_t n, const char *suffix) {
    size_t k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

static size_t bare_length(const char *path) {
    size_t n = strlen(path);
    return ends_in(path, n, ".gz") ? n - 3 : n;
}

static int writer_of(const char *path) {
    size_t n = bare_length(path);
    for (int i = 0; i < (int)(sizeof writers / sizeof *writers); i++)
        if (ends_in(path, n, writers[i].end))
            return i;
    return -1;
}

enum dtp_status dtp_tasks_check_path(const char *path, struct dtp_err *err) {
    if (writer_of(path) >= 0 || strcmp(path, "-") == 0)
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "%s: a timeline's name ends in .json, .csv, .svg or .et (and .gz after it)",
                    path);
}

bool dtp_tasks_wants_all(const char *path) {
    int i = writer_of(path);
    return i >= 0 && writers[i].wants_all;
}

double dtp_tasks_bytes(const struct dtp_tasks *t, const char *path) {
    int i = writer_of(path);
    return i < 0 || bare_length(path) < strlen(path) ? 0 : writers[i].bytes * t->ntasks;
}

/* gzip (RFC 1952) of the plain file; no time in the header, so that equal runs give equal bytes. */
static enum dtp_status compress_file(FILE *plain, struct dtp_file_out *out, struct dtp_err *err) {
    enum { CHUNK = 1 << 16, GZIP_WINDOW = 15 + 16, MEMORY_LEVEL = 8 };
    struct dtp_arena *a = dtp_arena_create("compressing a timeline");
    unsigned char *in = DTP_NEW(a, unsigned char, CHUNK),
                  *packed = DTP_NEW(a, unsigned char, CHUNK);
    z_stream z = {0};
    int state = deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                             Z_DEFAULT_STRATEGY);
    rewind(plain);
    while (state == Z_OK || state == Z_BUF_ERROR) {
        if (z.avail_in == 0 && !feof(plain)) {
            z.next_in = in;
            z.avail_in = (uInt)fread(in, 1, CHUNK, plain);
        }
        z.next_out = packed;
        z.avail_out = CHUNK;
        state = deflate(&z, feof(plain) ? Z_FINISH : Z_NO_FLUSH);
        fwrite(packed, 1, CHUNK - z.avail_out, out->f);
        if (ferror(plain))
            break;
    }
    deflateEnd(&z);
    dtp_arena_destroy(a);
    if (state != Z_STREAM_END)
        return dtp_fail(err, DTP_EINPUT, "%s: cannot compress", out->final);
    return DTP_OK;
}

/* One file of a timeline, compressed where its name says so. */
struct output {
    struct dtp_file_out file;
    FILE *f, *plain; /* f: where to write */
};

static enum dtp_status open_output(struct dtp_arena *a, const char *path, struct output *o,
                                   struct dtp_err *err) {
    *o = (struct output){0};
    DTP_TRY(dtp_file_out_open(a, path, &o->file, err));
    o->f = o->file.f;
    if (!ends_in(path, strlen(path), ".gz"))
        return DTP_OK;
    o->plain = tmpfile();
    if (o->plain) {
        o->f = o->plain;
        return DTP_OK;
    }
    dtp_file_out_abort(&o->file);
    return dtp_fail(err, DTP_EINPUT, "%s: no temporary file: %s", path, strerror(errno));
}

static enum dtp_status close_output(struct output *o, enum dtp_status status, struct dtp_err *err) {
    if (status == DTP_OK && o->plain)
        status = fflush(o->plain) == 0
                     ? compress_file(o->plain, &o->file, err)
                     : dtp_fail(err, DTP_EINPUT, "%s: %s", o->file.final, strerror(errno));
    if (o->plain)
        fclose(o->plain);
    if (status == DTP_OK)
        return dtp_file_out_commit(&o->file, err);
    dtp_file_out_abort(&o->file);
    return status;
}

static enum dtp_status write_ranks(struct dtp_arena *a, const struct dtp_tasks *t, const char *path,
                                   struct dtp_err *err) {
    size_t n = bare_length(path);
    const char *base = dtp_arena_strndup(a, path, n - strlen(".et")), *gz = path + n;
    const struct tasks_groups *groups = tasks_groups_find(a, t);
    struct output o;
    for (size_t r = 0; r < t->nranks; r++) {
        const char *name = dtp_arena_printf(a, "%s.%d.et%s", base, t->rank[r].rank, gz);
        DTP_TRY(open_output(a, name, &o, err));
        tasks_write_chakra(o.f, t, groups, t->rank[r].rank);
        DTP_TRY(close_output(&o, DTP_OK, err));
    }
    DTP_TRY(open_output(a, dtp_arena_printf(a, "%s.groups.json", base), &o, err));
    tasks_write_groups(o.f, groups);
    return close_output(&o, DTP_OK, err);
}

enum dtp_status dtp_tasks_write(struct dtp_arena *a, const struct dtp_tasks *t, const char *path,
                                struct dtp_err *err) {
    DTP_TRY(dtp_tasks_check_path(path, err));
    int i = writer_of(path);
    tasks_writer *write = i < 0 ? tasks_write_chrome : writers[i].write;
    if (!write)
        return write_ranks(a, t, path, err);
    struct output o;
    DTP_TRY(open_output(a, path, &o, err));
    return close_output(&o, write(a, o.f, t, err), err);
}

/* ---- lanes ---- */

int64_t tasks_ns(double t_s) {
    double ns = t_s / DTP_NANO;
    if (!(ns > -9e18 && ns < 9e18))
        return 0;
    return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

int64_t tasks_length_ns(const struct dtp_tasks_task *k) {
    int64_t start_ns = tasks_ns(k->start_s), end_ns = tasks_ns(k->end_s);
    return end_ns > start_ns ? end_ns - start_ns : 0;
}

const char *tasks_category(const struct dtp_tasks_task *k) {
    return k->category ? k->category : dtp_task_class_names[k->class];
}

struct place {
    int rank;
    uint32_t first; /* task that named the stream first */
    const char *stream;
    int64_t start_ns, end_ns;
    uint32_t task;
};

static int by_stream(const void *x, const void *y) {
    const struct place *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    int c = strcmp(p->stream, q->stream);
    if (c != 0)
        return c;
    return p->task < q->task ? -1 : p->task > q->task;
}

static int by_first_and_time(const void *x, const void *y) {
    const struct place *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (p->first != q->first)
        return p->first < q->first ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    if (p->end_ns != q->end_ns)
        return p->end_ns > q->end_ns ? -1 : 1;
    return p->task < q->task ? -1 : p->task > q->task;
}

enum { MOST_DEPTH = 64 };
struct open_lane {
    size_t lane;
    int64_t end_ns[MOST_DEPTH]; /* of the tasks under way, innermost last */
    int depth;
};

/* Whether the task fits: after what has ended, inside what is under way. */
static bool fits(struct open_lane *l, const struct place *p) {
    while (l->depth > 0 && l->end_ns[l->depth - 1] <= p->start_ns)
        l->depth--;
    return l->depth < MOST_DEPTH && (l->depth == 0 || p->end_ns <= l->end_ns[l->depth - 1]);
}

/* The tasks of one stream, v[0..n), to lanes. */
static void lay_stream(struct dtp_arena *a, const struct place *v, uint32_t n,
                       struct tasks_lanes *out, size_t *capacity) {
    struct open_lane *open = NULL;
    size_t nopen = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < nopen && !fits(&open[k], &v[i]))
            k++;
        if (k == nopen) {
            open = dtp_arena_grow(a, open, sizeof *open, nopen, nopen + 1);
            open[nopen++] = (struct open_lane){.lane = out->n};
            if (out->n == *capacity) {
                out->lane =
                    dtp_arena_grow(a, out->lane, sizeof *out->lane, *capacity, *capacity * 2 + 64);
                *capacity = *capacity * 2 + 64;
            }
            out->lane[out->n++] = (struct tasks_lane){v[i].rank, (int)k + 1, v[i].stream};
        }
        out->of[v[i].task] = (uint32_t)open[k].lane;
        out->depth[v[i].task] = (uint32_t)open[k].depth;
        open[k].end_ns[open[k].depth++] = v[i].end_ns;
    }
}

void tasks_lay_out(struct dtp_arena *a, const struct dtp_tasks *t, struct tasks_lanes *out) {
    struct dtp_arena *scratch = dtp_arena_create("laying out a timeline");
    struct place *v = DTP_NEW(scratch, struct place, (size_t)t->ntasks + 1);
    size_t capacity = 0;
    *out = (struct tasks_lanes){.of = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1),
                                .order = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1),
                                .depth = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1)};
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        int64_t start_ns = tasks_ns(k->start_s);
        v[i] = (struct place){k->rank, 0, k->stream, start_ns, start_ns + tasks_length_ns(k), i};
    }
    if (t->ntasks > 1)
        qsort(v, t->ntasks, sizeof *v, by_stream);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        bool same = i > 0 && v[i].rank == v[i - 1].rank && !strcmp(v[i].stream, v[i - 1].stream);
        v[i].first = same ? v[i - 1].first : v[i].task;
    }
    if (t->ntasks > 1)
        qsort(v, t->ntasks, sizeof *v, by_first_and_time);
    for (uint32_t i = 0, j; i < t->ntasks; i = j) {
        for (j = i; j < t->ntasks && v[j].rank == v[i].rank && v[j].first == v[i].first; j++)
            ;
        lay_stream(a, v + i, j - i, out, &capacity);
    }
    for (uint32_t i = 0; i < t->ntasks; i++)
        out->order[i] = v[i].task;
    dtp_arena_destroy(scratch);
}
