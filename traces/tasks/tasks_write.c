/* tasks_write.c: timelines as files: Chrome JSON, CSV, Chakra graphs; pictures are in tasks_gantt.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/formats/chakra.h"
#include "traces/tasks/tasks_internal.h"

/* ---- Chrome JSON ---- */

struct chrome {
    struct dtp_arena *a;
    struct dtp_json_out w;
    const struct dtp_tasks *t;
    struct tasks_lanes lanes;
    int narrows;
};

static void begin(struct chrome *c, const char *phase, const char *name, int rank, uint32_t tid) {
    dtp_json_object(&c->w);
    dtp_json_kv_string(&c->w, "ph", phase);
    dtp_json_kv_string(&c->w, "name", name);
    dtp_json_kv_int(&c->w, "pid", rank + 1);
    dtp_json_kv_int(&c->w, "tid", tid);
}

static void args(struct chrome *c) {
    dtp_json_put_key(&c->w, "args");
    dtp_json_object(&c->w);
}

static void name_of(struct chrome *c, const char *what, int rank, uint32_t tid, const char *name) {
    begin(c, "M", what, rank, tid);
    args(c);
    dtp_json_kv_string(&c->w, "name", name);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

static void index_of(struct chrome *c, const char *what, int rank, uint32_t tid, int index) {
    begin(c, "M", what, rank, tid);
    args(c);
    dtp_json_kv_int(&c->w, "sort_index", index);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

static void put_names(struct chrome *c) {
    for (size_t i = 0; i < c->t->nranks; i++) {
        name_of(c, "process_name", c->t->rank[i].rank, 0, c->t->rank[i].name);
        index_of(c, "process_sort_index", c->t->rank[i].rank, 0, (int)i);
    }
    for (size_t i = 0; i < c->lanes.n; i++) {
        const struct tasks_lane *l = &c->lanes.lane[i];
        const char *name =
            l->number > 1 ? dtp_arena_printf(c->a, "%s %d", l->stream, l->number) : l->stream;
        name_of(c, "thread_name", l->rank, (uint32_t)i + 1, name);
        index_of(c, "thread_sort_index", l->rank, (uint32_t)i + 1, (int)i);
    }
}

static void put_time(struct chrome *c, const char *key, int64_t ns) {
    dtp_json_put_key(&c->w, key);
    dtp_json_put_thousandths(&c->w, ns);
}

static void put_where(struct chrome *c, const char *key, int v) {
    if (v >= 0)
        dtp_json_kv_int(&c->w, key, v);
}

static void put_where_not_zero(struct chrome *c, const char *key, double v) {
    if (v != 0)
        dtp_json_kv_double(&c->w, key, v);
}

static void put_comm(struct chrome *c, const struct dtp_tasks_task *k) {
    if (k->class != DTP_CLASS_COMM)
        return;
    dtp_json_kv_string(&c->w, "collective", dtp_comm_op_name[k->op]);
    if (k->bytes > 0)
        dtp_json_kv_u64(&c->w, "bytes", k->bytes);
    put_where(c, "peer", k->peer);
    if (k->group_size > 0) {
        dtp_json_kv_int(&c->w, "group_size", k->group_size);
        dtp_json_kv_int(&c->w, "group_first", k->group_first);
        dtp_json_kv_int(&c->w, "group_stride", k->group_stride);
    }
}

static void put_args(struct chrome *c, uint32_t i) {
    const struct dtp_tasks_task *k = &c->t->task[i];
    args(c);
    put_where(c, "microbatch", k->microbatch);
    put_where(c, "chunk", k->chunk);
    put_where(c, "part", k->part);
    if (k->step > 0)
        dtp_json_kv_int(&c->w, "step", k->step);
    dtp_json_kv_string(&c->w, "class", dtp_task_class_names[k->class]);
    put_comm(c, k);
    if (k->shape)
        dtp_json_kv_string(&c->w, "shape", k->shape);
    put_where_not_zero(c, "flops", k->flops);
    put_where_not_zero(c, "latency_s", k->latency_s);
    put_where_not_zero(c, "gap_s", k->gap_s);
    put_where_not_zero(c, "wait_s", k->wait_s);
    dtp_json_kv_int(&c->w, "id", i);
    dtp_json_kv_double(&c->w, "start_s", k->start_s);
    dtp_json_kv_double(&c->w, "end_s", k->end_s);
    if (k->ndeps > 0) {
        dtp_json_put_key(&c->w, "after");
        dtp_json_array(&c->w);
        for (uint32_t d = 0; d < k->ndeps; d++)
            dtp_json_put_int(&c->w, c->t->dep[k->first_dep + d]);
        dtp_json_end(&c->w);
    }
    dtp_json_end(&c->w);
}

static void put_task(struct chrome *c, uint32_t i) {
    const struct dtp_tasks_task *k = &c->t->task[i];
    int64_t start_ns = tasks_ns(k->start_s);
    begin(c, "X", k->name, k->rank, c->lanes.of[i] + 1);
    dtp_json_kv_string(&c->w, "cat", tasks_category(k));
    put_time(c, "ts", start_ns);
    put_time(c, "dur", tasks_length_ns(k));
    put_args(c, i);
    dtp_json_end(&c->w);
}

static void put_end_of_arrow(struct chrome *c, const char *phase, uint32_t i, const char *name) {
    const struct dtp_tasks_task *k = &c->t->task[i];
    begin(c, phase, name, k->rank, c->lanes.of[i] + 1);
    dtp_json_kv_string(&c->w, "cat", "wait");
    dtp_json_kv_int(&c->w, "id", c->narrows);
    put_time(c, "ts", tasks_ns(k->start_s));
    if (phase[0] == 'f')
        dtp_json_kv_string(&c->w, "bp", "e");
    dtp_json_end(&c->w);
}

/* From a transfer to what another rank does with it, from a launch to the work. */
static void put_arrows(struct chrome *c, uint32_t i) {
    const struct dtp_tasks_task *k = &c->t->task[i];
    for (uint32_t d = 0; d < k->ndeps; d++) {
        const struct dtp_tasks_task *from = &c->t->task[c->t->dep[k->first_dep + d]];
        bool sent = from->op == DTP_COMM_SEND_RECV && from->rank != k->rank &&
                    (k->class == DTP_CLASS_COMPUTE || from->peer == k->rank) &&
                    from->microbatch == k->microbatch;
        bool launched = from->class == DTP_CLASS_HOST && k->class != DTP_CLASS_HOST;
        if (!sent && !launched)
            continue;
        c->narrows++;
        put_end_of_arrow(c, "s", c->t->dep[k->first_dep + d], from->name);
        put_end_of_arrow(c, "f", i, from->name);
    }
}

static void put_counts(struct chrome *c) {
    for (size_t i = 0; i < c->t->ncounts; i++) {
        const struct dtp_tasks_count *n = &c->t->count[i];
        begin(c, "C", n->name, n->rank, 0);
        put_time(c, "ts", tasks_ns(n->at_s));
        args(c);
        dtp_json_kv_double(&c->w, "value", n->value);
        dtp_json_end(&c->w);
        dtp_json_end(&c->w);
    }
}

/* Writes what the reader needs beyond the events. */
static void put_head(struct chrome *c) {
    dtp_json_put_key(&c->w, "dtplan");
    dtp_json_object(&c->w);
    dtp_json_kv_int(&c->w, "schema_version", 1);
    dtp_json_kv_string(&c->w, "from", c->t->from);
    dtp_json_kv_string(&c->w, "title", c->t->title);
    dtp_json_kv_int(&c->w, "tasks", c->t->ntasks);
    put_where_not_zero(c, "explained_pct", c->t->explained_pct);
    dtp_json_put_key(&c->w, "ranks");
    dtp_json_array(&c->w);
    for (size_t i = 0; i < c->t->nranks; i++) {
        dtp_json_object(&c->w);
        dtp_json_kv_int(&c->w, "rank", c->t->rank[i].rank);
        dtp_json_kv_string(&c->w, "name", c->t->rank[i].name);
        dtp_json_end(&c->w);
    }
    dtp_json_end(&c->w);
    dtp_json_put_key(&c->w, "lanes");
    dtp_json_array(&c->w);
    for (size_t i = 0; i < c->lanes.n; i++)
        dtp_json_put_string(&c->w, c->lanes.lane[i].stream);
    dtp_json_end(&c->w);
    dtp_json_put_key(&c->w, "steps");
    dtp_json_array(&c->w);
    for (size_t i = 0; i < c->t->nsteps; i++) {
        dtp_json_object(&c->w);
        dtp_json_kv_int(&c->w, "rank", c->t->step[i].rank);
        dtp_json_kv_string(&c->w, "name", c->t->step[i].name);
        dtp_json_kv_double(&c->w, "start_s", c->t->step[i].start_s);
        dtp_json_kv_double(&c->w, "end_s", c->t->step[i].end_s);
        dtp_json_end(&c->w);
    }
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

enum dtp_status tasks_write_chrome(struct dtp_arena *a, FILE *f, const struct dtp_tasks *t,
                                   struct dtp_err *err) {
    struct chrome c = {.a = a, .t = t};
    (void)err;
    tasks_lay_out(a, t, &c.lanes);
    dtp_json_begin(&c.w, f, 0);
    dtp_json_object(&c.w);
    put_head(&c);
    dtp_json_kv_string(&c.w, "displayTimeUnit", "ms");
    dtp_json_put_key(&c.w, "traceEvents");
    dtp_json_array(&c.w);
    put_names(&c);
    for (uint32_t i = 0; i < t->ntasks; i++)
        put_task(&c, c.lanes.order[i]);
    for (uint32_t i = 0; i < t->ntasks; i++)
        put_arrows(&c, i);
    put_counts(&c);
    dtp_json_end(&c.w);
    dtp_json_end(&c.w);
    return DTP_OK;
}

/* ---- CSV ---- */

static void put_number(FILE *f, double v, bool known) {
    char text[32];
    fprintf(f, "%s,", known ? dtp_double_text(v, text, sizeof text) : "");
}

static enum dtp_status write_csv(struct dtp_arena *a, FILE *f, const struct dtp_tasks *t,
                                 struct dtp_err *err) {
    (void)err;
    fputs("id,rank,stream,name,category,class,step,microbatch,chunk,part,start_s,end_s,duration_s,"
          "gap_s,collective,bytes,group_size,peer,shape,flops,after\n",
          f);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        bool comm = k->class == DTP_CLASS_COMM;
        fprintf(f, "%u,%d,", i, k->rank);
        dtp_csv_put(f, k->stream, false);
        dtp_csv_put(f, k->name, false);
        dtp_csv_put(f, tasks_category(k), false);
        fprintf(f, "%s,%d,", dtp_task_class_names[k->class], k->step);
        put_number(f, k->microbatch, k->microbatch >= 0);
        put_number(f, k->chunk, k->chunk >= 0);
        put_number(f, k->part, k->part >= 0);
        put_number(f, k->start_s, true);
        put_number(f, k->end_s, true);
        put_number(f, k->end_s - k->start_s, true);
        put_number(f, k->gap_s, true);
        fprintf(f, "%s,", comm ? dtp_comm_op_name[k->op] : "");
        put_number(f, (double)k->bytes, comm && k->bytes > 0);
        put_number(f, k->group_size, k->group_size > 0);
        put_number(f, k->peer, k->peer >= 0);
        dtp_csv_put(f, k->shape ? k->shape : "", false);
        put_number(f, k->flops, k->flops > 0);
        struct dtp_str after = {.a = a};
        for (uint32_t d = 0; d < k->ndeps; d++)
            dtp_str_printf(&after, "%s%u", d ? " " : "", t->dep[k->first_dep + d]);
        dtp_csv_put(f, after.at ? after.at : "", true);
    }
    return DTP_OK;
}

/* ---- Chakra graphs ---- */

struct group {
    int first, stride, size;
};
struct tasks_groups {
    struct group *at;
    size_t n;
};

static struct tasks_groups *groups_find(struct dtp_arena *a, const struct dtp_tasks *t) {
    struct tasks_groups *g = DTP_NEW(a, struct tasks_groups, 1);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        struct group own = {k->group_first, k->group_stride, k->group_size};
        size_t at = 0;
        if (own.size == 0)
            continue;
        while (at < g->n && memcmp(&g->at[at], &own, sizeof own) != 0)
            at++;
        if (at < g->n)
            continue;
        g->at = dtp_arena_grow(a, g->at, sizeof own, g->n, g->n + 1);
        g->at[g->n++] = own;
    }
    return g;
}

static void write_groups(FILE *f, const struct tasks_groups *g) {
    struct dtp_json_out w;
    char key[24];
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    for (size_t i = 0; i < g->n; i++) {
        snprintf(key, sizeof key, "%zu", i);
        dtp_json_put_key(&w, key);
        dtp_json_array(&w);
        for (int k = 0; k < g->at[i].size; k++)
            dtp_json_put_int(&w, g->at[i].first + k * g->at[i].stride);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
}

static const char *group_name(struct dtp_arena *a, const struct tasks_groups *g,
                              const struct dtp_tasks_task *k) {
    struct group own = {k->group_first, k->group_stride, k->group_size};
    for (size_t i = 0; own.size > 0 && i < g->n; i++)
        if (memcmp(&g->at[i], &own, sizeof own) == 0)
            return dtp_arena_printf(a, "%zu", i);
    return "";
}

/* ALL_REDUCE, ALL_GATHER, ... in Chakra's order; -1: it has no collective of the kind. */
static int comm_type(int op) {
    static const int types[DTP_NCOMM_OPS] = {
        [DTP_COMM_ALL_REDUCE] = 0, [DTP_COMM_ALL_GATHER] = 2, [DTP_COMM_REDUCE_SCATTER] = 7,
        [DTP_COMM_ALL_TO_ALL] = 6, [DTP_COMM_BROADCAST] = 5,  [DTP_COMM_REDUCE] = 1,
        [DTP_COMM_SEND_RECV] = -1, [DTP_COMM_BARRIER] = 9,    [DTP_COMM_UNKNOWN] = -1};
    return types[op];
}

struct graph {
    struct dtp_arena *a;
    const struct dtp_tasks *t;
    struct dtp_chakra g;
    uint32_t *node; /* [ntasks] 1 + the task's node in this rank's file, or 0; for a collective that
                       stands on another member, the node of its own part */
};

static uint64_t us_of(double t_s) {
    return t_s > 0 ? (uint64_t)(t_s / DTP_MICRO + 0.5) : 0;
}

static bool is_transfer(const struct dtp_tasks_task *k) {
    return k->op == DTP_COMM_SEND_RECV && k->peer >= 0;
}

static void add_dep(struct graph *x, uint32_t node) {
    dtp_chakra_add_dep(x->a, &x->g, node);
    x->g.node[x->g.nnodes - 1].ndata++;
}

static struct dtp_chakra_node *add_node(struct graph *x, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node n = dtp_chakra_node_init(&x->g);
    n.id = x->node[i] - 1;
    n.name = k->name;
    n.type = DTP_CHAKRA_COMP;
    n.start_us = us_of(k->start_s);
    n.dur_us = us_of(k->end_s) - n.start_us;
    dtp_chakra_add_node(x->a, &x->g, &n);
    return &x->g.node[x->g.nnodes - 1];
}

/* Adds what a task of this rank waits for; for a transfer, only what the sender waits for. */
static void add_deps(struct graph *x, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    for (uint32_t d = 0; d < k->ndeps; d++) {
        uint32_t before = x->node[x->t->dep[k->first_dep + d]];
        if (before > 0 && before != x->node[i])
            add_dep(x, before - 1);
    }
}

static void add_transfer(struct graph *x, uint32_t i, bool sends) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node *n = add_node(x, i);
    n->type = sends ? DTP_CHAKRA_SEND : DTP_CHAKRA_RECV;
    n->comm_src = k->rank;
    n->comm_dst = k->peer;
    n->comm_tag = i;
    n->comm_bytes = k->bytes;
    n->dur_us = 0;
    add_deps(x, i);
}

static bool stands_on(const struct dtp_tasks_task *k, int rank) {
    return k->rank == rank || (is_transfer(k) && k->peer == rank);
}

/* Parts of one collective are neighbours; who waits for another member's waits for the own part. */
static void share_parts(const struct graph *x) {
    const struct dtp_tasks *t = x->t;
    for (uint32_t i = 0, j; i < t->ntasks; i = j) {
        const struct dtp_tasks_task *k = &t->task[i];
        uint32_t own = x->node[i];
        for (j = i + 1;
             j < t->ntasks && k->group_size > 1 && t->task[j].start_s == k->start_s &&
             t->task[j].end_s == k->end_s && t->task[j].group_size == k->group_size &&
             t->task[j].group_first == k->group_first && strcmp(t->task[j].name, k->name) == 0;
             j++)
            own = x->node[j] > 0 ? x->node[j] : own;
        x->node[i] = own; /* others wait for the first of the parts */
    }
}

static void add_task(struct graph *x, const struct tasks_groups *groups, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node *n = add_node(x, i);
    int type = k->class == DTP_CLASS_COMM ? comm_type(k->op) : -1;
    if (type >= 0 && k->bytes > 0) {
        n->type = DTP_CHAKRA_COLL;
        n->comm_type = type;
        n->comm_bytes = k->bytes;
        n->group = group_name(x->a, groups, k);
        n->dur_us = 0;
    }
    n->is_cpu_op = k->class == DTP_CLASS_HOST;
    n->num_ops = k->flops > 0 ? (uint64_t)k->flops : 0;
    add_deps(x, i);
}

static void write_chakra(FILE *f, const struct dtp_tasks *t, const struct tasks_groups *groups,
                         int rank) {
    struct dtp_arena *scratch = dtp_arena_create("writing a graph of a rank");
    struct graph x = {.a = scratch, .t = t, .g = {.version = "0.0.4"}};
    uint32_t n = 0;
    x.node = DTP_NEW(scratch, uint32_t, (size_t)t->ntasks + 1);
    for (uint32_t i = 0; i < t->ntasks; i++)
        x.node[i] = stands_on(&t->task[i], rank) ? ++n : 0;
    share_parts(&x);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        if (!stands_on(&t->task[i], rank))
            continue;
        if (is_transfer(&t->task[i]))
            add_transfer(&x, i, t->task[i].rank == rank);
        else
            add_task(&x, groups, i);
    }
    dtp_chakra_write(f, &x.g);
    dtp_arena_destroy(scratch);
}

/* ---- the table of writers; gzip ---- */

static const struct {
    const char *end;
    tasks_writer *write; /* NULL: a file for each rank */
    bool wants_all;
    double bytes; /* size of a task, about */
} writers[] = {{".json", tasks_write_chrome, false, 300},
               {".csv", write_csv, false, 140},
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
        return dtp_fail(err, state == Z_MEM_ERROR ? DTP_ENOMEM : DTP_EINPUT, "%s: %s to compress",
                        out->final, state == Z_MEM_ERROR ? "no memory" : "failed");
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
    return dtp_fail(err, dtp_file_errno(), "%s: no temporary file: %s", path, strerror(errno));
}

static enum dtp_status close_output(struct output *o, enum dtp_status status, struct dtp_err *err) {
    if (status == DTP_OK && o->plain)
        status = fflush(o->plain) == 0
                     ? compress_file(o->plain, &o->file, err)
                     : dtp_fail(err, dtp_file_errno(), "%s: %s", o->file.final, strerror(errno));
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
    const struct tasks_groups *groups = groups_find(a, t);
    struct output o;
    for (size_t r = 0; r < t->nranks; r++) {
        const char *name = dtp_arena_printf(a, "%s.%d.et%s", base, t->rank[r].rank, gz);
        DTP_TRY(open_output(a, name, &o, err));
        write_chakra(o.f, t, groups, t->rank[r].rank);
        DTP_TRY(close_output(&o, DTP_OK, err));
    }
    DTP_TRY(open_output(a, dtp_arena_printf(a, "%s.groups.json", base), &o, err));
    write_groups(o.f, groups);
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
