#include "traces/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/text.h"
#include "sim/engine.h"
#include "traces/replay/replay_internal.h"
#include "traces/tasks/tasks.h"

/* ---- results of a rank ---- */

struct mark { /* a task's measured and replayed end */
    int64_t measured_ns;
    double replayed_s;
};

static int by_measured(const void *x, const void *y) {
    const struct mark *p = x, *q = y;
    if (p->measured_ns != q->measured_ns)
        return p->measured_ns < q->measured_ns ? -1 : 1;
    return p->replayed_s < q->replayed_s ? -1 : p->replayed_s > q->replayed_s;
}

/* A moment of the host moves with the last call that had ended by then (before the first call: with
 * its start). */
static double replayed_s(const struct mark *v, size_t n, int64_t at_ns) {
    size_t until = dtp_rows_until(v, n, sizeof *v, offsetof(struct mark, measured_ns), at_ns);
    if (n == 0)
        return replay_seconds(at_ns);
    const struct mark *m = &v[until > 0 ? until - 1 : 0];
    return m->replayed_s + replay_seconds(at_ns - m->measured_ns);
}

static size_t marks_of(struct replay_state *s, const struct replay_rank *q,
                       const struct dtp_timeline *line, struct mark **out) {
    struct mark *v = DTP_NEW(s->a, struct mark, q->ncalls + q->nwork + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < q->ncalls; i++) {
        if (i == 0)
            v[n++] = (struct mark){q->call[i].start_ns, line->end_s[q->call[i].before]};
        v[n++] = (struct mark){q->call[i].end_ns, line->end_s[q->call[i].body]};
    }
    if (q->ncalls == 0)
        for (uint32_t i = 0; i < q->nwork; i++)
            v[n++] = (struct mark){q->work[i].end_ns, line->end_s[q->work[i].end]};
    qsort(v, n, sizeof *v, by_measured);
    *out = v;
    return n;
}

/* The last end of the work that calls of a step launch. */
struct last_end {
    bool any;
    int64_t measured_ns;
    double replayed_s;
};

static void find_ends(const struct replay_rank *q, const struct dtp_timeline *line,
                      const struct dtp_trace_step *step, size_t n, struct last_end *end) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        const struct replay_work *w = &q->work[i];
        uint32_t event = w->call == NO_INDEX ? w->event : q->call[w->call].event;
        int64_t launched_ns = dtp_trace_event(q->r, event)->start_ns;
        size_t until = dtp_rows_until(step, n, sizeof *step,
                                      offsetof(struct dtp_trace_step, start_ns), launched_ns);
        if (until == 0 || launched_ns >= step[until - 1].start_ns + step[until - 1].dur_ns)
            continue;
        struct last_end *e = &end[until - 1];
        if (!e->any || w->end_ns > e->measured_ns)
            e->measured_ns = w->end_ns;
        if (!e->any || line->end_s[w->end] > e->replayed_s)
            e->replayed_s = line->end_s[w->end];
        e->any = true;
    }
}

static double later(double x, double y) {
    return x > y ? x : y;
}

static void take_steps(struct replay_state *s, const struct replay_rank *q,
                       const struct dtp_timeline *line, struct dtp_replayed_rank *out) {
    const struct dtp_trace_step *step;
    struct mark *mark;
    size_t n = marks_of(s, q, line, &mark);
    double until_s = 0, replayed_until_s = 0; /* ends of the steps before */
    dtp_trace_steps(s->a, q->r, &step, &out->nsteps);
    struct last_end *end = DTP_NEW(s->a, struct last_end, out->nsteps + 1);
    find_ends(q, line, step, out->nsteps, end);
    out->step = DTP_NEW(s->a, struct dtp_replayed_step, out->nsteps + 1);
    for (size_t i = 0; i < out->nsteps; i++) {
        struct dtp_replayed_step *x = &out->step[i];
        int64_t from_ns = dtp_trace_at_ns(s->m, q->r, step[i].start_ns);
        double from_s = replayed_s(mark, n, from_ns);
        double to_s = replayed_s(mark, n, from_ns + step[i].dur_ns);
        x->name = step[i].name;
        x->host_s = replay_seconds(step[i].dur_ns);
        x->replayed_host_s = to_s - from_s;
        x->start_s = later(replay_seconds(from_ns), until_s);
        x->replayed_start_s = later(from_s, replayed_until_s);
        double last_s = replay_seconds(from_ns + step[i].dur_ns);
        if (end[i].any) {
            last_s = later(last_s, replay_seconds(end[i].measured_ns));
            to_s = later(to_s, end[i].replayed_s);
        }
        until_s = later(last_s, x->start_s);
        replayed_until_s = later(to_s, x->replayed_start_s);
        x->measured_s = until_s - x->start_s;
        x->replayed_s = replayed_until_s - x->replayed_start_s;
    }
}

static void take_comms(struct replay_state *s, size_t rank, const struct dtp_timeline *line,
                       struct dtp_replayed_rank *out) {
    out->comm = DTP_NEW(s->a, struct dtp_replayed_comm, s->m->n + 1);
    const struct dtp_trace_rank *r = &s->t->rank[rank];
    for (size_t i = 0; i < s->m->n; i++) {
        const struct dtp_match *m = &s->m->at[i];
        for (size_t k = m->first; k < m->first + m->n; k++) {
            if (s->m->member[k].rank != rank)
                continue;
            const struct dtp_trace_event *e = dtp_trace_event(r, s->m->member[k].event);
            int64_t start_ns = dtp_trace_at_ns(s->m, r, e->start_ns);
            out->comm[out->ncomms++] = (struct dtp_replayed_comm){
                .op = m->op,
                .group_size = m->group_assumed ? 0 : m->group_size,
                .bytes = m->bytes,
                .start_s = replay_seconds(start_ns),
                .end_s = replay_seconds(start_ns + e->dur_ns),
                .replayed_end_s =
                    line->end_s
                        [s->rank[rank].work[s->rank[rank].work_of[s->m->member[k].event]].end],
                .transfer_s = replay_seconds(m->transfer_ns),
                .waiting_s = replay_seconds(m->last_start_ns - start_ns)};
        }
    }
}

static void take_rank(struct replay_state *s, size_t rank, const struct dtp_timeline *line,
                      struct dtp_replayed_rank *out) {
    const struct replay_rank *q = &s->rank[rank];
    *out = (struct dtp_replayed_rank){.rank = q->r};
    out->span_s = replay_seconds(q->last_ns - q->first_ns);
    out->unexplained_s = replay_seconds(q->unexplained_ns);
    out->measured_end_s = replay_seconds(q->last_ns);
    for (uint32_t i = 0; i < q->ncalls; i++)
        if (line->end_s[q->call[i].body] > out->replayed_end_s)
            out->replayed_end_s = line->end_s[q->call[i].body];
    for (uint32_t i = 0; i < q->nwork; i++)
        if (line->end_s[q->work[i].end] > out->replayed_end_s)
            out->replayed_end_s = line->end_s[q->work[i].end];
    take_steps(s, q, line, out);
    take_comms(s, rank, line, out);
}

static void describe(const void *ctx, dtp_id task, struct dtp_critical_task *out) {
    static const enum dtp_critical_class class_of[DTP_NCLASSES] = {
        [DTP_CLASS_COMPUTE] = DTP_CRITICAL_COMPUTE,
        [DTP_CLASS_COMM] = DTP_CRITICAL_COMM,
        [DTP_CLASS_MEMORY] = DTP_CRITICAL_MEMORY};
    const struct replay_state *s = ctx;
    uint64_t tag = s->graph.tag[task];
    uint32_t i = (uint32_t)tag;
    const struct replay_rank *q = &s->rank[(tag >> 32) & 0xffffff];
    const struct dtp_trace_event *e;
    switch ((enum replay_part)(tag >> 56)) {
    case PART_TRANSFER:
        *out = (struct dtp_critical_task){dtp_comm_op_name[s->m->at[i].op], -1, DTP_CRITICAL_COMM};
        return;
    case PART_BEFORE:
        *out = (struct dtp_critical_task){"host between calls", q->r->rank, DTP_CRITICAL_HOST};
        return;
    case PART_CALL:
        e = dtp_trace_event(q->r, q->call[i].event);
        *out = (struct dtp_critical_task){dtp_trace_name(q->r, e->name), q->r->rank,
                                          DTP_CRITICAL_HOST};
        return;
    case PART_WORK:
        e = dtp_trace_event(q->r, q->work[i].event);
        *out = (struct dtp_critical_task){dtp_trace_name(q->r, e->name), q->r->rank,
                                          class_of[e->class]};
        return;
    case PART_START:
        *out = (struct dtp_critical_task){"unexplained", q->r->rank, DTP_CRITICAL_UNEXPLAINED};
        return;
    case PART_LATENCY:
        break;
    }
    *out = (struct dtp_critical_task){"latency of starts", q->r->rank, DTP_CRITICAL_LATENCY};
}

/* ---- the job as replayed, as a timeline ---- */

enum item_kind { ITEM_CALL, ITEM_POST, ITEM_WORK };

struct item {
    double start_s, end_s;
    uint32_t rank, index;
    enum item_kind kind;
};

struct export {
    struct dtp_arena *a;
    const struct replay_export_input *in;
    struct dtp_tasks *t;
    struct item *item;
    size_t nitems;
    uint32_t **task_of[3]; /* [kind][rank][index] */
    const char ***stream;  /* [rank][lane] */
};

static int by_start(const void *x, const void *y) {
    const struct item *p = x, *q = y;
    if (p->start_s != q->start_s)
        return p->start_s < q->start_s ? -1 : 1;
    if (p->kind != q->kind)
        return p->kind < q->kind ? -1 : 1;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    return p->index < q->index ? -1 : p->index > q->index;
}

/* A collective of several ranks: each posts its part, all end together. */
static bool is_shared(const struct export *x, const struct replay_work *w) {
    return w->match != NO_INDEX && x->in->matches->at[w->match].n > 1;
}

static void collect(struct export *x) {
    const struct dtp_timeline *line = x->in->line;
    size_t n = 0;
    for (size_t r = 0; r < x->in->nranks; r++)
        n += x->in->rank[r].ncalls + 2 * (size_t)x->in->rank[r].nwork;
    x->item = DTP_NEW(x->a, struct item, n + 1);
    for (uint32_t r = 0; r < x->in->nranks; r++) {
        const struct replay_rank *q = &x->in->rank[r];
        for (uint32_t i = 0; i < q->ncalls; i++)
            x->item[x->nitems++] = (struct item){line->end_s[q->call[i].before],
                                                 line->end_s[q->call[i].body], r, i, ITEM_CALL};
        for (uint32_t i = 0; i < q->nwork; i++) {
            double start_s = line->end_s[q->work[i].start], end_s = line->end_s[q->work[i].end];
            if (is_shared(x, &q->work[i]))
                x->item[x->nitems++] = (struct item){start_s, start_s, r, i, ITEM_POST};
            x->item[x->nitems++] = (struct item){start_s, end_s, r, i, ITEM_WORK};
        }
    }
    qsort(x->item, x->nitems, sizeof *x->item, by_start);
    for (int kind = 0; kind < 3; kind++) {
        x->task_of[kind] = DTP_NEW(x->a, uint32_t *, x->in->nranks + 1);
        for (size_t r = 0; r < x->in->nranks; r++) {
            const struct replay_rank *q = &x->in->rank[r];
            size_t most = q->ncalls > q->nwork ? q->ncalls : q->nwork;
            x->task_of[kind][r] = DTP_NEW(x->a, uint32_t, most + 1);
            memset(x->task_of[kind][r], 0xff, (most + 1) * sizeof(uint32_t));
        }
    }
    for (size_t i = 0; i < x->nitems; i++)
        x->task_of[x->item[i].kind][x->item[i].rank][x->item[i].index] = (uint32_t)i;
}

static void name_streams(struct export *x) {
    x->stream = DTP_NEW(x->a, const char **, x->in->nranks + 1);
    for (size_t r = 0; r < x->in->nranks; r++) {
        const struct dtp_trace_rank *t = x->in->rank[r].r;
        x->stream[r] = DTP_NEW(x->a, const char *, (size_t)t->nlanes + 1);
        for (uint32_t l = 0; l < t->nlanes; l++)
            x->stream[r][l] =
                t->lane[l].is_device
                    ? dtp_arena_printf(x->a, "stream %lld", (long long)t->lane[l].stream)
                    : dtp_arena_printf(x->a, "thread %s", t->lane[l].tid);
    }
}

static void wait_for(struct export *x, enum item_kind kind, uint32_t rank, uint32_t index) {
    uint32_t task = index == NO_INDEX ? NO_INDEX : x->task_of[kind][rank][index];
    if (task != NO_INDEX)
        dtp_tasks_after(x->t, task);
}

static void describe_comm(const struct export *x, const struct replay_work *w,
                          struct dtp_tasks_task *k) {
    if (w->match == NO_INDEX)
        return;
    const struct dtp_match *m = &x->in->matches->at[w->match];
    k->op = (int)m->op;
    k->group_size = m->group_size;
    k->group_stride = m->group_size > 0;
    bool share = m->op == DTP_COMM_ALL_GATHER && m->group_size > 0;
    k->bytes = m->bytes * (share ? (uint64_t)m->group_size : 1);
}

static void add_call(struct export *x, const struct item *at) {
    const struct replay_rank *q = &x->in->rank[at->rank];
    const struct replay_call *c = &q->call[at->index];
    const struct dtp_trace_event *e = dtp_trace_event(q->r, c->event);
    struct dtp_tasks_task k = {.name = dtp_trace_name(q->r, e->name),
                               .category = dtp_trace_category(q->r, e->category),
                               .stream = x->stream[at->rank][e->lane],
                               .rank = q->r->rank,
                               DTP_TASKS_UNSAID,
                               .class = DTP_CLASS_HOST,
                               .start_s = at->start_s,
                               .end_s = at->end_s};
    dtp_tasks_add(x->t, &k);
    if (at->index > 0 && q->call[at->index - 1].lane == c->lane)
        wait_for(x, ITEM_CALL, at->rank, at->index - 1);
    wait_for(x, ITEM_CALL, at->rank, c->handed_by);
    wait_for(x, ITEM_WORK, at->rank, c->waits_for);
}

/* A start waits for the stream, for another stream, and for the host: for the call before its launch, since a
 * kernel may start before the launching call has ended. */
static void add_waits(struct export *x, const struct item *at) {
    const struct replay_rank *q = &x->in->rank[at->rank];
    const struct replay_work *w = &q->work[at->index];
    wait_for(x, ITEM_WORK, at->rank, w->previous);
    wait_for(x, ITEM_WORK, at->rank, w->waits_for);
    if (w->call == NO_INDEX)
        return;
    bool ended = x->in->line->end_s[q->call[w->call].body] <= at->start_s;
    if (ended)
        wait_for(x, ITEM_CALL, at->rank, w->call);
    else if (w->call > 0 && q->call[w->call - 1].lane == q->call[w->call].lane)
        wait_for(x, ITEM_CALL, at->rank, w->call - 1);
}

static void add_work(struct export *x, const struct item *at) {
    const struct replay_rank *q = &x->in->rank[at->rank];
    const struct replay_work *w = &q->work[at->index];
    const struct dtp_trace_event *e = dtp_trace_event(q->r, w->event);
    bool post = at->kind == ITEM_POST;
    struct dtp_tasks_task k = {.name = post ? "posted" : dtp_trace_name(q->r, e->name),
                               .stream = x->stream[at->rank][e->lane],
                               .rank = q->r->rank,
                               DTP_TASKS_UNSAID,
                               .class = post ? DTP_CLASS_HOST : e->class,
                               .start_s = at->start_s,
                               .end_s = at->end_s};
    if (!post && e->shape != DTP_TRACE_NONE)
        k.shape = dtp_trace_name(q->r, e->shape);
    if (!post)
        describe_comm(x, w, &k);
    dtp_tasks_add(x->t, &k);
    if (post || !is_shared(x, w)) {
        add_waits(x, at);
        return;
    }
    const struct dtp_match *m = &x->in->matches->at[w->match];
    double last_s = at->start_s;
    for (size_t i = m->first; i < m->first + m->n; i++) {
        const struct dtp_match_member *o = &x->in->matches->member[i];
        uint32_t other = x->in->rank[o->rank].work_of[o->event];
        uint32_t task = other == NO_INDEX ? NO_INDEX : x->task_of[ITEM_POST][o->rank][other];
        if (o->ahead || task == NO_INDEX)
            continue;
        dtp_tasks_after(x->t, task);
        last_s = x->item[task].start_s > last_s ? x->item[task].start_s : last_s;
    }
    x->t->task[x->t->ntasks - 1].wait_s = last_s < at->end_s ? last_s - at->start_s : 0;
}

/* The step, by its place in time, in which a task of the rank starts. */
static void number_steps(struct export *x) {
    for (uint32_t i = 0; i < x->t->ntasks; i++) {
        struct dtp_tasks_task *k = &x->t->task[i];
        const struct dtp_replayed_rank *r = &x->in->replayed[x->item[i].rank];
        for (size_t s = 0; s < r->nsteps && r->step[s].replayed_start_s <= k->start_s; s++)
            k->step = (int)s;
    }
    for (size_t r = 0; r < x->in->nranks; r++)
        for (size_t s = 0; s < x->in->replayed[r].nsteps; s++) {
            const struct dtp_replayed_step *step = &x->in->replayed[r].step[s];
            dtp_tasks_step(x->t, x->in->rank[r].r->rank, step->name, step->replayed_start_s,
                           step->replayed_start_s + step->replayed_s);
        }
}

static struct dtp_tasks *replay_export(struct dtp_arena *a, const struct replay_export_input *in) {
    struct export x = {.a = a, .in = in};
    const char *file = in->nranks > 0 ? in->rank[0].r->file : "";
    x.t = dtp_tasks_create(a, "replay", dtp_base_name(file));
    x.t->explained_pct = in->explained_pct;
    for (size_t r = 0; r < in->nranks; r++)
        dtp_tasks_rank(x.t, in->rank[r].r->rank,
                       dtp_arena_printf(a, "rank %d", in->rank[r].r->rank));
    collect(&x);
    name_streams(&x);
    for (size_t i = 0; i < x.nitems; i++) {
        if (x.item[i].kind == ITEM_CALL)
            add_call(&x, &x.item[i]);
        else
            add_work(&x, &x.item[i]);
    }
    number_steps(&x);
    dtp_tasks_explain(x.t);
    return x.t;
}

static void find_span(struct replay_rank *q) {
    q->first_ns = INT64_MAX;
    q->last_ns = INT64_MIN;
    for (uint32_t i = 0; i < q->ncalls; i++) {
        q->first_ns = q->call[i].start_ns < q->first_ns ? q->call[i].start_ns : q->first_ns;
        q->last_ns = q->call[i].end_ns > q->last_ns ? q->call[i].end_ns : q->last_ns;
    }
    for (uint32_t i = 0; i < q->nwork; i++) {
        q->first_ns = q->work[i].start_ns < q->first_ns ? q->work[i].start_ns : q->first_ns;
        q->last_ns = q->work[i].end_ns > q->last_ns ? q->work[i].end_ns : q->last_ns;
    }
    if (q->first_ns == INT64_MAX)
        q->first_ns = q->last_ns = 0;
}

static void recover(struct replay_state *s) {
    for (size_t r = 0; r < s->t->nranks; r++) {
        struct replay_rank *q = &s->rank[r];
        q->r = &s->t->rank[r];
        q->index = r;
        q->m = s->m;
        replay_find_calls(s->a, q);
        replay_find_work(s->a, q);
    }
    replay_find_edits(s->a, s->rank, s->t->nranks);
    for (size_t r = 0; r < s->t->nranks; r++) {
        struct replay_rank *q = &s->rank[r];
        replay_find_previous(q);
        replay_find_issues(s->a, q);
        replay_find_handovers(q);
        replay_find_waits(s->a, q);
        replay_find_latencies(s->a, q);
        find_span(q);
    }
}

enum dtp_status dtp_replay(struct dtp_arena *a, struct dtp_trace *t,
                           const struct dtp_replay_options *options, struct dtp_replay *out,
                           struct dtp_err *err) {
    struct replay_state s = {.a = a, .t = t, .options = options, .m = &out->matches};
    struct dtp_platform platform;
    struct dtp_timeline line;
    if (t->tasks)
        return dtp_replay_tasks(a, t, options, out, err);
    *out = (struct dtp_replay){.nranks = t->nranks};
    dtp_trace_match(a, t, options->align, s.m);
    s.rank = DTP_NEW(a, struct replay_rank, t->nranks);
    dtp_graph_init(&s.graph, a);
    dtp_platform_init(&platform, a);
    recover(&s);
    replay_build(&s);
    if (dtp_graph_freeze(&s.graph, err) != DTP_OK)
        return options->bucket_bytes > 0
                   ? dtp_fail(err, DTP_EUNSUPPORTED,
                              "--bucket: work between two reductions needs the first and is needed "
                              "by the second, so that they cannot go together; try smaller buckets")
                   : DTP_EINPUT;
    DTP_TRY(dtp_engine_run(a, &platform, &s.graph, &line, err));
    out->ntasks = s.graph.ntasks;
    for (size_t r = 0; r < t->nranks; r++)
        out->nwork += s.rank[r].nwork;
    out->network = s.network;
    out->nnetwork = s.nnetwork;
    out->rank = DTP_NEW(a, struct dtp_replayed_rank, t->nranks);
    double span_s = 0, unexplained_s = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        take_rank(&s, r, &line, &out->rank[r]);
        span_s += out->rank[r].span_s;
        unexplained_s += out->rank[r].unexplained_s;
    }
    out->explained_pct = span_s > 0 && out->nwork > 0 ? 100 * (1 - unexplained_s / span_s) : 0;
    dtp_critical_path(a, &line, describe, &s, &out->critical);
    if (options->out_tasks)
        *options->out_tasks =
            replay_export(a, &(struct replay_export_input){s.rank, t->nranks, s.m, &line, out->rank,
                                                           out->explained_pct});
    return DTP_OK;
}
