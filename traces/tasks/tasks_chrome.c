/* tasks_chrome.c: Chrome JSON ("Trace Event Format", Google 2016) that Perfetto shows whole: integer ids
 * of 32 bits from 1, microseconds as decimal text with whole nanoseconds, slices of one thread nest. */
#include <string.h>

#include "sim/base/json.h"
#include "traces/tasks/tasks_private.h"

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

/* What the reader needs beyond the events. */
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
