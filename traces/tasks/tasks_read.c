/* read_head.c: values of a timeline, and its head. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/formats/pull.h"
#include "traces/tasks/tasks.h"

enum { MOST_TASKS = 1 << 28, MOST_RANKS = 1 << 24 };
#define MOST_S DTP_GIGA /* in ns, sums stay below 2^63 */

struct read_task {
    struct dtp_tasks_task k;
    int64_t id, tid;
    size_t first_dep, ndeps;
};

struct tasks_reader {
    struct dtp_arena *a;
    struct dtp_pull p;
    struct dtp_tasks *t;
    struct read_task *task;
    size_t ntasks, capacity;
    int64_t *dep;
    size_t ndeps, deps_capacity;
    const char **lane;
    size_t nlanes, lanes_capacity;
    int64_t declared;
    struct dtp_trace_rank names; /* equal texts are one */
};

static bool in_time(double t_s) {
    return t_s >= -MOST_S && t_s <= MOST_S;
}

/* Text that lives as long as the tasks; equal texts are one. */
static const char *keep(struct tasks_reader *r, const struct dtp_text *t) {
    return dtp_trace_name(&r->names, dtp_trace_intern(&r->names, t->at, t->n));
}

static enum dtp_status read_double(struct tasks_reader *r, double *out, struct dtp_err *err) {
    struct dtp_text t;
    char buf[64], *end;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    if (t.n == 0 || t.n >= sizeof buf || t.token != DTP_TOKEN_NUMBER)
        return dtp_pull_fail(&r->p, err, "expected a number");
    memcpy(buf, t.at, t.n);
    buf[t.n] = '\0';
    *out = strtod(buf, &end);
    if (*end || !isfinite(*out))
        return dtp_pull_fail(&r->p, err, "expected a finite number");
    return DTP_OK;
}

static enum dtp_status read_whole(struct tasks_reader *r, int64_t least, int64_t most, int64_t *out,
                                  struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    if (!dtp_text_i64(&t, out) || *out < least || *out > most)
        return dtp_pull_fail(&r->p, err, "expected a whole number in range");
    return DTP_OK;
}

static enum dtp_status read_int(struct tasks_reader *r, int *out, struct dtp_err *err) {
    int64_t v;
    DTP_TRY(read_whole(r, -1, INT32_MAX, &v, err));
    *out = (int)v;
    return DTP_OK;
}

static enum dtp_status read_string(struct tasks_reader *r, const char **out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    *out = keep(r, &t);
    return DTP_OK;
}

/* ---- the head ---- */

struct head_item {
    int rank;
    const char *name;
    double start_s, end_s;
};

static enum dtp_status read_item(struct tasks_reader *r, struct head_item *out,
                                 struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    *out = (struct head_item){.name = ""};
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "rank"))
            DTP_TRY(read_int(r, &out->rank, err));
        else if (dtp_text_is(&key, "name"))
            DTP_TRY(read_string(r, &out->name, err));
        else if (dtp_text_is(&key, "start_s") || dtp_text_is(&key, "end_s"))
            DTP_TRY(read_double(r, key.at[0] == 's' ? &out->start_s : &out->end_s, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}

enum list { LIST_RANKS, LIST_LANES, LIST_STEPS };

static enum dtp_status read_list(struct tasks_reader *r, enum list list, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        struct head_item x;
        if (list == LIST_LANES) {
            const char *name;
            DTP_TRY(read_string(r, &name, err));
            r->lane = dtp_arena_room(r->a, r->lane, sizeof *r->lane, r->nlanes, &r->lanes_capacity);
            r->lane[r->nlanes++] = name;
            continue;
        }
        DTP_TRY(read_item(r, &x, err));
        if (x.rank > MOST_RANKS || !in_time(x.start_s) || !in_time(x.end_s))
            return dtp_pull_fail(&r->p, err, "a rank or a step out of range");
        if (list == LIST_RANKS)
            dtp_tasks_rank(r->t, x.rank, x.name);
        else
            dtp_tasks_step(r->t, x.rank, x.name, x.start_s, x.end_s);
    }
    return status;
}

static enum dtp_status read_head(struct tasks_reader *r, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    int64_t version;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "from"))
            DTP_TRY(read_string(r, &r->t->from, err));
        else if (dtp_text_is(&key, "explained_pct"))
            DTP_TRY(read_double(r, &r->t->explained_pct, err));
        else if (dtp_text_is(&key, "title"))
            DTP_TRY(read_string(r, &r->t->title, err));
        else if (dtp_text_is(&key, "schema_version"))
            DTP_TRY(read_whole(r, 1, 1, &version, err));
        else if (dtp_text_is(&key, "tasks"))
            DTP_TRY(read_whole(r, 0, MOST_TASKS, &r->declared, err));
        else if (dtp_text_is(&key, "ranks"))
            DTP_TRY(read_list(r, LIST_RANKS, err));
        else if (dtp_text_is(&key, "lanes"))
            DTP_TRY(read_list(r, LIST_LANES, err));
        else if (dtp_text_is(&key, "steps"))
            DTP_TRY(read_list(r, LIST_STEPS, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}

/* Index of the word in names; it must be one of them. */
static enum dtp_status read_word(struct tasks_reader *r, const char *const *names, int n, int *out,
                                 struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    for (int i = 0; i < n; i++)
        if (dtp_text_is(&t, names[i])) {
            *out = i;
            return DTP_OK;
        }
    return dtp_pull_fail(&r->p, err, "a class or collective that dtplan does not write");
}

/* ---- a record ---- */

struct record {
    char phase;
    bool has_id, has_times;
    double at_us, value;
    struct read_task task;
};

static enum dtp_status read_after(struct tasks_reader *r, struct read_task *to,
                                  struct dtp_err *err) {
    enum dtp_status status;
    to->first_dep = r->ndeps;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        r->dep = dtp_arena_room(r->a, r->dep, sizeof *r->dep, r->ndeps, &r->deps_capacity);
        DTP_TRY(read_whole(r, 0, MOST_TASKS, &r->dep[r->ndeps], err));
        r->ndeps++;
    }
    DTP_TRY(status);
    to->ndeps = r->ndeps - to->first_dep;
    return DTP_OK;
}

enum arg_kind { ARG_INT, ARG_DOUBLE, ARG_TEXT };
#define ARG(key, kind, field)                                                                      \
    { key, kind, offsetof(struct dtp_tasks_task, field) }
static const struct {
    const char *key;
    enum arg_kind kind;
    size_t offset;
} plain_args[] = {ARG("microbatch", ARG_INT, microbatch),
                  ARG("chunk", ARG_INT, chunk),
                  ARG("part", ARG_INT, part),
                  ARG("step", ARG_INT, step),
                  ARG("peer", ARG_INT, peer),
                  ARG("group_size", ARG_INT, group_size),
                  ARG("group_first", ARG_INT, group_first),
                  ARG("group_stride", ARG_INT, group_stride),
                  ARG("start_s", ARG_DOUBLE, start_s),
                  ARG("end_s", ARG_DOUBLE, end_s),
                  ARG("latency_s", ARG_DOUBLE, latency_s),
                  ARG("gap_s", ARG_DOUBLE, gap_s),
                  ARG("wait_s", ARG_DOUBLE, wait_s),
                  ARG("flops", ARG_DOUBLE, flops),
                  ARG("shape", ARG_TEXT, shape)};

static enum dtp_status read_plain(struct tasks_reader *r, size_t i, struct dtp_tasks_task *k,
                                  struct dtp_err *err) {
    char *to = (char *)k + plain_args[i].offset;
    if (plain_args[i].kind == ARG_INT)
        return read_int(r, (int *)(void *)to, err);
    if (plain_args[i].kind == ARG_DOUBLE)
        return read_double(r, (double *)(void *)to, err);
    return read_string(r, (const char **)(void *)to, err);
}

static enum dtp_status read_arg(struct tasks_reader *r, const struct dtp_text *key,
                                struct record *rec, struct dtp_err *err) {
    struct dtp_tasks_task *k = &rec->task.k;
    int64_t v;
    for (size_t i = 0; i < sizeof plain_args / sizeof *plain_args; i++)
        if (dtp_text_is(key, plain_args[i].key)) {
            rec->has_times = rec->has_times || strcmp(plain_args[i].key, "end_s") == 0;
            return read_plain(r, i, k, err);
        }
    if (dtp_text_is(key, "id")) {
        rec->has_id = true;
        return read_whole(r, 0, MOST_TASKS, &rec->task.id, err);
    }
    if (dtp_text_is(key, "value"))
        return read_double(r, &rec->value, err);
    if (dtp_text_is(key, "after"))
        return read_after(r, &rec->task, err);
    if (dtp_text_is(key, "class"))
        return read_word(r, dtp_task_class_names, DTP_NTASK_CLASSES, &k->class, err);
    if (dtp_text_is(key, "collective"))
        return read_word(r, dtp_comm_op_name, DTP_NCOMM_OPS, &k->op, err);
    if (!dtp_text_is(key, "bytes"))
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(read_whole(r, 0, INT64_MAX, &v, err));
    k->bytes = (uint64_t)v;
    return DTP_OK;
}

static enum dtp_status read_args(struct tasks_reader *r, struct record *rec, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(read_arg(r, &key, rec, err));
    return status;
}

static enum dtp_status read_field(struct tasks_reader *r, const struct dtp_text *key,
                                  struct record *rec, struct dtp_err *err) {
    struct dtp_tasks_task *k = &rec->task.k;
    struct dtp_text t;
    int64_t v;
    if (dtp_text_is(key, "args"))
        return read_args(r, rec, err);
    if (dtp_text_is(key, "name"))
        return read_string(r, &k->name, err);
    if (dtp_text_is(key, "cat"))
        return read_string(r, &k->category, err);
    if (dtp_text_is(key, "ts"))
        return read_double(r, &rec->at_us, err);
    if (dtp_text_is(key, "tid"))
        return read_whole(r, 0, MOST_TASKS, &rec->task.tid, err);
    if (dtp_text_is(key, "pid")) {
        DTP_TRY(read_whole(r, 0, MOST_RANKS, &v, err));
        k->rank = (int)v - 1;
        return DTP_OK;
    }
    if (!dtp_text_is(key, "ph"))
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    rec->phase = t.n == 1 ? t.at[0] : '\0';
    return DTP_OK;
}

/* Times that nanoseconds hold, and a group whose ranks do not overflow. */
static bool is_sane(const struct dtp_tasks_task *k) {
    int64_t most = k->group_size > 0 ? k->group_size - 1 : 0;
    most = k->group_first + most * (int64_t)k->group_stride;
    return in_time(k->start_s) && in_time(k->end_s) && in_time(k->latency_s) && in_time(k->gap_s) &&
           in_time(k->wait_s) && k->group_size <= MOST_RANKS && most <= MOST_RANKS;
}

static enum dtp_status keep_task(struct tasks_reader *r, const struct record *rec,
                                 struct dtp_err *err) {
    const struct read_task *x = &rec->task;
    if (!rec->has_id || !rec->has_times || x->k.end_s < x->k.start_s || x->k.rank < 0)
        return dtp_pull_fail(&r->p, err, "a task without its id, rank or times");
    if (!is_sane(&x->k))
        return dtp_pull_fail(&r->p, err, "a task with times or ranks out of range");
    if (x->tid < 1 || (size_t)x->tid > r->nlanes)
        return dtp_pull_fail(&r->p, err, "a task of a thread that \"lanes\" does not have");
    r->task = dtp_arena_room(r->a, r->task, sizeof *r->task, r->ntasks, &r->capacity);
    r->task[r->ntasks++] = *x;
    return DTP_OK;
}

static enum dtp_status read_record(struct tasks_reader *r, struct dtp_err *err) {
    struct record rec = {.task = {.k = {.name = "", DTP_TASKS_UNSAID}, .id = -1}};
    struct dtp_text key;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(read_field(r, &key, &rec, err));
    DTP_TRY(status);
    if (rec.phase == 'X')
        return keep_task(r, &rec, err);
    if (rec.phase == 'C' && in_time(rec.at_us * DTP_MICRO))
        dtp_tasks_count(r->t, rec.task.k.rank, rec.task.k.name, rec.at_us * DTP_MICRO, rec.value);
    return DTP_OK;
}

static enum dtp_status read_events(struct tasks_reader *r, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(read_record(r, err));
    return status;
}

static enum dtp_status read_document(struct tasks_reader *r, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    char c;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "dtplan"))
            DTP_TRY(read_head(r, err));
        else if (dtp_text_is(&key, "traceEvents"))
            DTP_TRY(read_events(r, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    return c == '\0' ? DTP_OK : dtp_pull_fail(&r->p, err, "text after the end of the document");
}

static int by_id(const void *x, const void *y) {
    const struct read_task *p = x, *q = y;
    return p->id < q->id ? -1 : p->id > q->id;
}

/* Tasks in the order of their ids, which are 0, 1, 2, ... */
static enum dtp_status order_tasks(struct tasks_reader *r, struct dtp_err *err) {
    if ((int64_t)r->ntasks != r->declared)
        return dtp_pull_fail(&r->p, err, "not as many tasks as the head says");
    if (r->ntasks > 1)
        qsort(r->task, r->ntasks, sizeof *r->task, by_id);
    for (size_t i = 0; i < r->ntasks; i++) {
        struct read_task *x = &r->task[i];
        if (x->id != (int64_t)i)
            return dtp_pull_fail(&r->p, err, "ids of tasks are not 0, 1, 2, ...");
        x->k.stream = r->lane[x->tid - 1];
        dtp_tasks_add(r->t, &x->k);
        for (size_t d = 0; d < x->ndeps; d++) {
            int64_t before = r->dep[x->first_dep + d];
            if (before >= (int64_t)r->ntasks)
                return dtp_pull_fail(&r->p, err, "a task waits for one that does not exist");
            dtp_tasks_after(r->t, (uint32_t)before);
        }
    }
    return DTP_OK;
}

enum dtp_status dtp_tasks_read(struct dtp_arena *a, struct dtp_source *source,
                               struct dtp_tasks **out, struct dtp_err *err) {
    struct tasks_reader *r = DTP_NEW(a, struct tasks_reader, 1);
    r->a = a;
    r->t = dtp_tasks_create(a, "", "");
    dtp_trace_rank_init(&r->names, a, dtp_source_name(source));
    dtp_pull_init(&r->p, a, source);
    DTP_TRY(read_document(r, err));
    DTP_TRY(order_tasks(r, err));
    *out = r->t;
    return DTP_OK;
}
