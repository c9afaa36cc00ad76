/* replay_export.c: a job as it was replayed, as tasks that can be written and replayed again. */
#include <stdlib.h>
#include <string.h>

#include "traces/replay/replay_private.h"
#include "traces/tasks/tasks.h"

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

/* What a start waits for: the stream, another stream, and the host: the call before its launch, since a
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

struct dtp_tasks *replay_export(struct dtp_arena *a, const struct replay_export_input *in) {
    struct export x = {.a = a, .in = in};
    const char *file = in->nranks > 0 ? in->rank[0].r->file : "", *slash = strrchr(file, '/');
    x.t = dtp_tasks_create(a, "replay", slash ? slash + 1 : file);
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
