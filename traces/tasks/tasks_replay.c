/* tasks_replay.c: a timeline that dtplan wrote, replayed from the dependencies that it holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"
#include "traces/replay/replay.h"
#include "traces/tasks/tasks.h"

struct run {
    struct dtp_arena *a;
    const struct dtp_tasks *t;
    const struct dtp_replay_options *o;
    uint32_t *collective; /* [ntasks] number by end, or DTP_TRACE_NONE */
    struct dtp_graph graph;
    struct dtp_timeline line;
    dtp_id *start, *end; /* [ntasks]; one and the same but for tasks that wait under way */
};

static bool is_late(const struct dtp_tasks *t, const struct dtp_tasks_task *k, uint32_t dep) {
    return t->task[t->dep[dep]].end_s > k->start_s;
}

/* When the last of what a task waits for under way had ended, or its start. */
static double released_s(const struct dtp_tasks *t, const struct dtp_tasks_task *k) {
    double at_s = k->start_s;
    for (uint32_t d = k->first_dep; d < k->first_dep + k->ndeps; d++)
        at_s = t->task[t->dep[d]].end_s > at_s ? t->task[t->dep[d]].end_s : at_s;
    return at_s;
}

struct by_end {
    double end_s;
    uint32_t task;
};
static int by_end(const void *x, const void *y) {
    const struct by_end *p = x, *q = y;
    if (p->end_s != q->end_s)
        return p->end_s < q->end_s ? -1 : 1;
    return p->task < q->task ? -1 : p->task > q->task;
}

static bool same_collective(const struct dtp_tasks_task *x, const struct dtp_tasks_task *y) {
    return x->end_s == y->end_s && x->start_s == y->start_s && x->group_size > 1 &&
           x->group_size == y->group_size && x->group_first == y->group_first &&
           x->group_stride == y->group_stride && strcmp(x->name, y->name) == 0;
}

static void number_collectives(struct run *r) {
    struct by_end *v = DTP_NEW(r->a, struct by_end, (size_t)r->t->ntasks + 1);
    size_t n = 0;
    uint32_t number = 0;
    r->collective = DTP_NEW(r->a, uint32_t, (size_t)r->t->ntasks + 1);
    for (uint32_t i = 0; i < r->t->ntasks; i++) {
        r->collective[i] = DTP_TRACE_NONE;
        if (r->t->task[i].class == DTP_CLASS_COMM)
            v[n++] = (struct by_end){r->t->task[i].end_s, i};
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_end);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i;
             j-- > 0 && v[j].end_s == v[i].end_s && r->collective[v[i].task] == DTP_TRACE_NONE;)
            if (same_collective(&r->t->task[v[j].task], &r->t->task[v[i].task]))
                r->collective[v[i].task] = r->collective[v[j].task];
        if (r->collective[v[i].task] == DTP_TRACE_NONE)
            r->collective[v[i].task] = number++;
    }
}

static double duration_s(const struct run *r, uint32_t i) {
    const struct dtp_tasks_task *k = &r->t->task[i];
    double dur_s = k->end_s - released_s(r->t, k), speed = 1;
    if (k->class == DTP_CLASS_COMM) {
        double rest_s = dur_s > k->latency_s ? dur_s - k->latency_s : 0;
        dur_s = (dur_s - rest_s) * r->o->network_latency + rest_s / r->o->network_bandwidth;
        if ((int)r->collective[i] == r->o->slow_collective)
            dur_s *= r->o->slow_collective_by;
    } else {
        speed = k->class == DTP_CLASS_MEMORY ? r->o->memory_speed
                : k->class == DTP_CLASS_HOST ? r->o->host_speed
                                             : r->o->kernel_speed;
    }
    if (k->class == DTP_CLASS_COMPUTE && k->rank == r->o->slow_rank)
        speed /= r->o->slow_by;
    if (r->o->op && strstr(k->name, r->o->op))
        speed *= r->o->op_speed;
    return r->o->other.removed && strstr(k->name, r->o->other.removed) ? 0 : dur_s / speed;
}

static void add_task(struct run *r, uint32_t i) {
    struct dtp_graph *g = &r->graph;
    const struct dtp_tasks_task *k = &r->t->task[i];
    uint32_t before = 0;
    for (uint32_t d = k->first_dep; d < k->first_dep + k->ndeps; d++)
        before += !is_late(r->t, k, d);
    double delay_s = k->rank == r->o->delayed_rank ? r->o->delay_s : 0;
    struct dtp_task start = {.start_s = before == 0 ? k->start_s + delay_s : 0,
                             .tag = i,
                             .latency_s = before > 0 ? k->gap_s / r->o->host_speed : 0,
                             .rate_cap = 1,
                             .device = DTP_NONE,
                             .stream = DTP_NONE};
    if (before < k->ndeps) { /* two tasks: up to what it waits for under way, and the rest */
        r->start[i] = dtp_graph_add(g, &start);
        start.start_s = start.latency_s = 0;
    }
    start.work = duration_s(r, i);
    r->end[i] = dtp_graph_add(g, &start);
    if (before < k->ndeps)
        dtp_graph_dep(g, r->start[i], r->end[i]);
    else
        r->start[i] = r->end[i];
}

static void describe(const void *ctx, dtp_id task, struct dtp_critical_task *out) {
    static const enum dtp_critical_class class_of[DTP_NTASK_CLASSES] = {
        [DTP_CLASS_COMPUTE] = DTP_CRITICAL_COMPUTE,
        [DTP_CLASS_COMM] = DTP_CRITICAL_COMM,
        [DTP_CLASS_MEMORY] = DTP_CRITICAL_MEMORY,
        [DTP_CLASS_HOST] = DTP_CRITICAL_HOST};
    const struct run *r = ctx;
    const struct dtp_tasks_task *k = &r->t->task[r->graph.tag[task]];
    *out = (struct dtp_critical_task){k->category ? k->category : k->name, k->rank,
                                      class_of[k->class]};
}

static enum dtp_status run_graph(struct run *r, struct dtp_err *err) {
    struct dtp_platform platform;
    const struct dtp_tasks *t = r->t;
    dtp_platform_init(&platform, r->a);
    dtp_graph_init(&r->graph, r->a);
    dtp_graph_reserve(&r->graph, t->ntasks, t->ndeps, 0);
    r->start = DTP_NEW(r->a, dtp_id, (size_t)t->ntasks + 1);
    r->end = DTP_NEW(r->a, dtp_id, (size_t)t->ntasks + 1);
    for (uint32_t i = 0; i < t->ntasks; i++)
        add_task(r, i);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        for (uint32_t d = k->first_dep; d < k->first_dep + k->ndeps; d++)
            dtp_graph_dep(&r->graph, r->end[t->dep[d]], is_late(t, k, d) ? r->end[i] : r->start[i]);
    }
    DTP_TRY(dtp_graph_freeze(&r->graph, err));
    return dtp_engine_run(r->a, &platform, &r->graph, &r->line, err);
}

/* A step moves with the last task that ended in it: on its rank, or on any. */
static double step_end_s(const struct run *r, const struct dtp_tasks_step *s) {
    double last_s = -INFINITY, replayed_s = -INFINITY;
    for (uint32_t i = 0; i < r->t->ntasks; i++) {
        const struct dtp_tasks_task *k = &r->t->task[i];
        if ((s->rank >= 0 && k->rank != s->rank) || k->end_s > s->end_s || k->end_s < s->start_s)
            continue;
        double end_s = r->line.end_s[r->end[i]];
        bool later = s->rank < 0 ? end_s > replayed_s : k->end_s > last_s;
        replayed_s = later ? end_s : replayed_s;
        last_s = k->end_s > last_s ? k->end_s : last_s;
    }
    return isfinite(last_s) ? replayed_s + (s->end_s - last_s) : s->end_s;
}

static void take_steps(const struct run *r, struct dtp_replayed_rank *out) {
    out->step = DTP_NEW(r->a, struct dtp_replayed_step, r->t->nsteps + 1);
    double before_s = 0, moved_s = 0;
    for (size_t i = 0; i < r->t->nsteps; i++) {
        const struct dtp_tasks_step *s = &r->t->step[i];
        if (s->rank >= 0 && s->rank != out->rank->rank)
            continue;
        double start_s = out->nsteps > 0 ? s->start_s + moved_s - before_s : s->start_s;
        double end_s = step_end_s(r, s);
        out->step[out->nsteps++] = (struct dtp_replayed_step){s->name, s->end_s - s->start_s,
                                                              end_s - start_s, s->start_s, start_s};
        before_s = s->end_s;
        moved_s = end_s;
    }
}

static int by_comm_end(const void *x, const void *y) {
    const struct dtp_replayed_comm *p = x, *q = y;
    return p->end_s < q->end_s ? -1 : p->end_s > q->end_s;
}

static void take_rank(const struct run *r, const struct dtp_trace_rank *rank,
                      const struct dtp_tasks_rank *own, struct dtp_replayed_rank *out) {
    double first_s = INFINITY, last_s = 0;
    size_t n = 0;
    *out = (struct dtp_replayed_rank){.rank = rank};
    for (uint32_t i = 0; i < own->nown; i++)
        n += r->t->task[own->own[i]].class == DTP_CLASS_COMM;
    out->comm = DTP_NEW(r->a, struct dtp_replayed_comm, n + 1);
    for (uint32_t i = 0; i < own->nown; i++) {
        const struct dtp_tasks_task *k = &r->t->task[own->own[i]];
        double end_s = r->line.end_s[r->end[own->own[i]]];
        first_s = k->start_s < first_s ? k->start_s : first_s;
        last_s = k->end_s > last_s ? k->end_s : last_s;
        out->replayed_end_s = end_s > out->replayed_end_s ? end_s : out->replayed_end_s;
        out->unexplained_s += k->class == DTP_CLASS_HOST ? 0 : k->gap_s;
        if (k->class == DTP_CLASS_COMM)
            out->comm[out->ncomms++] =
                (struct dtp_replayed_comm){.op = (enum dtp_comm_op)k->op,
                                           .group_size = k->group_size,
                                           .bytes = dtp_tasks_in_bytes(k),
                                           .start_s = k->start_s,
                                           .end_s = k->end_s,
                                           .replayed_end_s = end_s,
                                           .transfer_s = k->end_s - k->start_s};
    }
    if (n > 1)
        qsort(out->comm, n, sizeof *out->comm, by_comm_end);
    out->measured_end_s = last_s;
    out->span_s = last_s > first_s ? last_s - first_s : 0;
    take_steps(r, out);
}

/* Returns the same tasks with the times of the replay. */
static struct dtp_tasks *replayed_tasks(const struct run *r, const struct dtp_replay *replay) {
    const struct dtp_tasks *t = r->t;
    struct dtp_tasks *out = dtp_tasks_create(r->a, t->from, t->title);
    out->explained_pct = t->explained_pct;
    for (size_t i = 0; i < t->nranks; i++)
        dtp_tasks_rank(out, t->rank[i].rank, t->rank[i].name);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        struct dtp_tasks_task k = t->task[i];
        double end_s = r->line.end_s[r->end[i]];
        bool one = r->start[i] == r->end[i]; /* its latency, then its work */
        k.start_s = one ? end_s - duration_s(r, i) : r->line.end_s[r->start[i]];
        k.end_s = end_s;
        k.wait_s = k.wait_s < k.end_s - k.start_s ? k.wait_s : 0;
        dtp_tasks_add(out, &k);
        for (uint32_t d = 0; d < t->task[i].ndeps; d++)
            dtp_tasks_after(out, t->dep[t->task[i].first_dep + d]);
    }
    for (size_t i = 0; i < replay->nranks; i++)
        for (size_t s = 0; s < replay->rank[i].nsteps; s++) {
            const struct dtp_replayed_step *step = &replay->rank[i].step[s];
            dtp_tasks_step(out, t->rank[i].rank, step->name, step->replayed_start_s,
                           step->replayed_start_s + step->replayed_s);
        }
    return out;
}

enum dtp_status dtp_replay_tasks(struct dtp_arena *a, struct dtp_trace *trace,
                                 const struct dtp_replay_options *options, struct dtp_replay *out,
                                 struct dtp_err *err) {
    struct run r = {.a = a, .t = trace->tasks, .o = options};
    if (options->remove_straggler)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "--remove-straggler: a timeline of dtplan has no stragglers to find; it "
                        "replays measured traces");
    if (options->overlap || options->bucket_bytes || options->other.to ||
        options->other.times_ranks > 1 || options->other.fused)
        return dtp_fail(
            err, DTP_EUNSUPPORTED,
            "a timeline of dtplan has no kernels to scale: simulate its plan on the other "
            "machine; --gpu, --cluster, --more-ranks, --fuse, --overlap and --bucket are for "
            "measured "
            "traces");
    *out =
        (struct dtp_replay){.nranks = trace->nranks, .ntasks = r.t->ntasks, .nwork = r.t->ntasks};
    number_collectives(&r);
    DTP_TRY(run_graph(&r, err));
    out->rank = DTP_NEW(a, struct dtp_replayed_rank, trace->nranks + 1);
    double span_s = 0, unexplained_s = 0;
    for (size_t i = 0; i < trace->nranks; i++) {
        take_rank(&r, &trace->rank[i], &r.t->rank[i], &out->rank[i]);
        span_s += out->rank[i].span_s;
        unexplained_s += out->rank[i].unexplained_s;
    }
    double share = span_s > 0 && unexplained_s < span_s ? 1 - unexplained_s / span_s : 0;
    out->explained_pct = r.t->explained_pct > 0 ? r.t->explained_pct
                         : span_s > 0           ? 100 * share
                                                : 100;
    if (options->out_tasks)
        *options->out_tasks = replayed_tasks(&r, out);
    dtp_critical_path(a, &r.line, describe, &r, &out->critical);
    return DTP_OK;
}
