/* tasks_trace.c: between tasks and the ranks of a trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/base/text.h"
#include "traces/replay/analyse.h"
#include "traces/replay/match.h"
#include "traces/tasks/tasks_internal.h"

uint64_t dtp_tasks_in_bytes(const struct dtp_tasks_task *k) {
    bool share = k->op == DTP_COMM_ALL_GATHER && k->group_size > 0;
    return share ? k->bytes / (uint64_t)k->group_size : k->bytes;
}

/* ---- tasks to a trace ---- */

static uint32_t lane_of(struct dtp_trace_rank *r, const char *stream, bool host) {
    if (host)
        return dtp_trace_host_lane(r, "host", stream);
    for (uint32_t i = 0; i < r->nlanes; i++)
        if (r->lane[i].is_device && strcmp(r->lane[i].tid, stream) == 0)
            return i;
    uint32_t lane = dtp_trace_device_lane(r, 0, (int64_t)r->nlanes);
    r->lane[lane].tid = stream;
    return lane;
}

static void add_event(struct dtp_trace_rank *r, const struct dtp_tasks_task *k) {
    bool host = k->class == DTP_CLASS_HOST;
    struct dtp_trace_event *e = dtp_trace_add(r);
    e->start_ns = tasks_ns(k->start_s);
    e->dur_ns = tasks_length_ns(k);
    e->name = dtp_trace_intern(r, k->name, strlen(k->name));
    e->kind = host                           ? DTP_TRACE_OP
              : k->class == DTP_CLASS_MEMORY ? DTP_TRACE_MEMCPY
                                             : DTP_TRACE_KERNEL;
    e->category = dtp_trace_intern_category(r, tasks_category(k), strlen(tasks_category(k)));
    r->category_count[e->category]++;
    e->lane = lane_of(r, k->stream, host);
    e->on_stream = !host;
    if (k->shape)
        e->shape = dtp_trace_intern(r, k->shape, strlen(k->shape));
    if (k->class != DTP_CLASS_COMM)
        return;
    struct dtp_trace_comm comm = {.collective = dtp_comm_op_name[k->op],
                                  .group = "",
                                  .group_description = "",
                                  .group_ranks = "",
                                  .in_bytes = dtp_tasks_in_bytes(k),
                                  .in_elements = dtp_tasks_in_bytes(k),
                                  .element_bytes = 1,
                                  .group_size = k->group_size,
                                  .seq = -1,
                                  .peer = k->peer};
    e->comm = dtp_trace_add_comm(r, &comm);
}

static int by_rank(const void *x, const void *y) {
    const struct dtp_tasks_rank *p = x, *q = y;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

/* The tasks of each rank, in order of their ids; tasks of a rank without a row are nobody's. */
static void share_out(struct dtp_arena *a, struct dtp_tasks *t) {
    uint32_t *own = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1);
    uint32_t *index = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1), at = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        struct dtp_tasks_rank key = {.rank = t->task[i].rank};
        const struct dtp_tasks_rank *r =
            t->nranks > 0 ? bsearch(&key, t->rank, t->nranks, sizeof key, by_rank) : NULL;
        index[i] = r ? (uint32_t)(r - t->rank) : DTP_TRACE_NONE;
        if (r)
            t->rank[index[i]].nown++;
    }
    for (size_t r = 0; r < t->nranks; r++) {
        t->rank[r].own = own + at;
        at += t->rank[r].nown;
        t->rank[r].nown = 0;
    }
    for (uint32_t i = 0; i < t->ntasks; i++) {
        if (index[i] == DTP_TRACE_NONE)
            continue;
        struct dtp_tasks_rank *r = &t->rank[index[i]];
        own[(size_t)(r->own - own) + r->nown++] = i;
    }
}

static void fill_rank(struct dtp_arena *a, const struct dtp_tasks *t, size_t index,
                      const char *file, struct dtp_trace_rank *r) {
    const struct dtp_tasks_rank *own = &t->rank[index];
    int rank = own->rank;
    dtp_trace_rank_init(r, a, file);
    r->rank = rank;
    r->unlaunched = true;
    for (uint32_t i = 0; i < own->nown; i++)
        add_event(r, &t->task[own->own[i]]);
    r->nrecords = r->nevents;
    dtp_trace_finish(r);
    memset(r->warned, 0, sizeof r->warned); /* there are no launches to miss */
    for (uint32_t i = 0; i < own->nown; i++) {
        int class = t->task[own->own[i]].class;
        dtp_trace_event(r, i)->class = (uint8_t)(class < DTP_NCLASSES ? class : DTP_CLASS_COMPUTE);
    }
    for (size_t i = 0; i < t->nsteps; i++) {
        const struct dtp_tasks_step *s = &t->step[i];
        if (s->rank >= 0 && s->rank != rank)
            continue;
        r->step = dtp_arena_grow(a, r->step, sizeof *r->step, r->nsteps, r->nsteps + 1);
        int64_t start_ns = tasks_ns(s->start_s);
        r->step[r->nsteps] = (struct dtp_trace_step){(int64_t)r->nsteps, start_ns,
                                                     tasks_ns(s->end_s) - start_ns, s->name};
        r->nsteps++;
    }
}

void dtp_tasks_to_trace(struct dtp_arena *a, struct dtp_tasks *t, const char *file,
                        struct dtp_trace *out) {
    *out = (struct dtp_trace){.tasks = t, .nranks = t->nranks};
    if (t->nranks > 1)
        qsort(t->rank, t->nranks, sizeof *t->rank, by_rank);
    share_out(a, t);
    out->rank = DTP_NEW(a, struct dtp_trace_rank, t->nranks + 1);
    for (size_t i = 0; i < t->nranks; i++)
        fill_rank(a, t, i, file, &out->rank[i]);
}

/* ---- a trace to tasks ---- */

struct convert {
    struct dtp_arena *a;
    struct dtp_trace *trace;
    struct dtp_matches m;
    struct dtp_tasks *t;
    uint32_t **task_of;  /* [ranks][events] */
    struct steps *steps; /* [ranks] */
    bool all;
};

static double seconds(int64_t ns) {
    return (double)ns * DTP_NANO;
}

static bool takes(const struct convert *c, const struct dtp_trace_event *e) {
    return dtp_trace_is_work(e) || e->kind == DTP_TRACE_CALL ||
           (c->all && (e->kind == DTP_TRACE_OP || e->kind == DTP_TRACE_ANNOTATION));
}

static const char *stream_of(struct convert *c, const struct dtp_trace_rank *r, uint32_t lane) {
    const struct dtp_trace_lane *l = &r->lane[lane];
    return l->is_device ? dtp_arena_printf(c->a, "stream %lld", (long long)l->stream)
                        : dtp_arena_printf(c->a, "thread %s", l->tid);
}

struct steps {
    const struct dtp_trace_step *at;
    size_t n;
};

/* The step in which a moment of the host lies: its number, or its index where steps have none. */
static int step_at(const struct steps *s, int64_t at_ns) {
    int step = 0;
    for (size_t i = 0; i < s->n && s->at[i].start_ns <= at_ns; i++) {
        bool numbered = s->at[i].number > 0 && s->at[i].number < INT32_MAX;
        step = numbered ? (int)s->at[i].number : (int)i;
    }
    return step;
}

static void convert_event(struct convert *c, size_t rank, size_t i, const char *const *stream) {
    const struct dtp_trace_rank *r = &c->trace->rank[rank];
    const struct dtp_trace_event *e = dtp_trace_event(r, i);
    int64_t at_ns = dtp_trace_at_ns(&c->m, r, e->start_ns);
    const struct dtp_trace_event *host =
        e->launch == DTP_TRACE_NONE ? e : dtp_trace_event(r, e->launch);
    struct dtp_tasks_task k = {.name = dtp_trace_name(r, e->name),
                               .category =
                                   dtp_trace_is_work(e) ? NULL : dtp_trace_category(r, e->category),
                               .stream = stream[e->lane],
                               .rank = r->rank,
                               .step = step_at(&c->steps[rank], host->start_ns),
                               DTP_TASKS_UNSAID,
                               .class = dtp_trace_is_work(e) ? e->class : DTP_CLASS_HOST,
                               .start_s = seconds(at_ns),
                               .end_s = seconds(at_ns + e->dur_ns)};
    if (e->shape != DTP_TRACE_NONE)
        k.shape = dtp_trace_name(r, e->shape);
    if (k.class == DTP_CLASS_COMM)
        k.op = (int)dtp_comm_op_of(k.name);
    if (e->comm != DTP_TRACE_NONE && k.class == DTP_CLASS_COMM) {
        k.group_size = r->comm[e->comm].group_size;
        k.group_stride = k.group_size > 0;
        bool share = k.op == DTP_COMM_ALL_GATHER && k.group_size > 0;
        k.bytes = r->comm[e->comm].in_bytes * (share ? (uint64_t)k.group_size : 1);
    }
    c->task_of[rank][i] = dtp_tasks_add(c->t, &k);
}

/* Orders tasks by time, so that each stands after what it waits for. */
struct at {
    int64_t start_ns;
    uint32_t rank, event;
};
static int by_time(const void *x, const void *y) {
    const struct at *p = x, *q = y;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

static void convert_events(struct convert *c, struct at *v, size_t n) {
    const char ***stream = DTP_NEW(c->a, const char **, c->trace->nranks + 1);
    uint32_t **last = DTP_NEW(c->a, uint32_t *, c->trace->nranks + 1);
    for (size_t r = 0; r < c->trace->nranks; r++) {
        const struct dtp_trace_rank *x = &c->trace->rank[r];
        stream[r] = DTP_NEW(c->a, const char *, (size_t)x->nlanes + 1);
        last[r] = DTP_NEW(c->a, uint32_t, (size_t)x->nlanes + 1);
        for (uint32_t l = 0; l < x->nlanes; l++) {
            stream[r][l] = stream_of(c, x, l);
            last[r][l] = DTP_TRACE_NONE;
        }
    }
    for (size_t i = 0; i < n; i++) {
        const struct dtp_trace_rank *x = &c->trace->rank[v[i].rank];
        const struct dtp_trace_event *e = dtp_trace_event(x, v[i].event);
        convert_event(c, v[i].rank, v[i].event, stream[v[i].rank]);
        if (e->kind == DTP_TRACE_OP || e->kind == DTP_TRACE_ANNOTATION)
            continue;
        uint32_t *before = &last[v[i].rank][e->lane];
        if (*before != DTP_TRACE_NONE)
            dtp_tasks_after(c->t, *before);
        *before = c->t->ntasks - 1;
        if (e->launch != DTP_TRACE_NONE && takes(c, dtp_trace_event(x, e->launch)) &&
            c->task_of[v[i].rank][e->launch] != DTP_TRACE_NONE)
            dtp_tasks_after(c->t, c->task_of[v[i].rank][e->launch]);
    }
}

/* A rank waits in a collective until the last of its ranks has started. */
static void take_waits(struct convert *c) {
    for (size_t i = 0; i < c->m.n; i++) {
        const struct dtp_match *m = &c->m.at[i];
        for (size_t j = m->first; j < m->first + m->n; j++) {
            const struct dtp_match_member *o = &c->m.member[j];
            uint32_t task = c->task_of[o->rank][o->event];
            if (task == DTP_TRACE_NONE || o->ahead)
                continue;
            struct dtp_tasks_task *k = &c->t->task[task];
            double wait_s = seconds(m->last_start_ns) - k->start_s;
            k->wait_s = wait_s > 0 && wait_s < k->end_s - k->start_s ? wait_s : 0;
            k->bytes = k->bytes > 0 ? k->bytes : m->bytes;
        }
    }
}

struct dtp_tasks *dtp_tasks_of_trace(struct dtp_arena *a, struct dtp_trace *trace, bool all) {
    struct convert c = {.a = a, .trace = trace, .all = all};
    size_t n = 0;
    dtp_trace_match(a, trace, DTP_ALIGN_ALL, &c.m);
    const char *file = trace->nranks > 0 ? trace->rank[0].file : "";
    c.t = dtp_tasks_create(a, "replay", dtp_base_name(file));
    c.task_of = DTP_NEW(a, uint32_t *, trace->nranks + 1);
    c.steps = DTP_NEW(a, struct steps, trace->nranks + 1);
    for (size_t r = 0; r < trace->nranks; r++) {
        const struct dtp_trace_rank *x = &trace->rank[r];
        dtp_trace_steps(a, x, &c.steps[r].at, &c.steps[r].n);
        dtp_tasks_rank(c.t, x->rank, dtp_arena_printf(a, "rank %d", x->rank));
        c.task_of[r] = DTP_NEW(a, uint32_t, x->nevents + 1);
        memset(c.task_of[r], 0xff, x->nevents * sizeof(uint32_t));
        for (size_t i = 0; i < x->nevents; i++)
            n += takes(&c, dtp_trace_event(x, i));
    }
    struct at *v = DTP_NEW(a, struct at, n + 1);
    n = 0;
    for (uint32_t r = 0; r < trace->nranks; r++) {
        const struct dtp_trace_rank *x = &trace->rank[r];
        for (uint32_t i = 0; i < x->nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(x, i);
            if (takes(&c, e))
                v[n++] = (struct at){dtp_trace_at_ns(&c.m, x, e->start_ns), r, i};
        }
        for (size_t i = 0; i < c.steps[r].n; i++) {
            const struct dtp_trace_step *s = &c.steps[r].at[i];
            double start_s = seconds(dtp_trace_at_ns(&c.m, x, s->start_ns));
            dtp_tasks_step(c.t, x->rank, s->name, start_s, start_s + seconds(s->dur_ns));
        }
    }
    qsort(v, n, sizeof *v, by_time);
    convert_events(&c, v, n);
    take_waits(&c);
    dtp_tasks_explain(c.t);
    return c.t;
}
