#include "traces/replay.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/engine.h"
#include "traces/replay_private.h"

struct replay_state {
    struct dtp_arena *a;
    struct dtp_trace *t;
    const struct dtp_replay_options *options;
    struct dtp_matches *m;
    struct replay_rank *rank;
    struct dtp_graph graph;
    dtp_id *transfer; /* [matches] task of each collective */
};

static double seconds(int64_t ns) {
    return (double)ns * DTP_NANO;
}

/* What a task of the graph is: its tag. */
enum replay_part { PART_BEFORE, PART_CALL, PART_START, PART_WORK, PART_TRANSFER, PART_LATENCY };

static uint64_t tag_of(enum replay_part part, const struct replay_rank *q, uint32_t i) {
    uint64_t rank = q ? (uint64_t)q->index : 0;
    return (uint64_t)part << 56 | rank << 32 | i;
}

static dtp_id add(struct replay_state *s, uint64_t tag, double start_s, double latency_s,
                  double work_s) {
    return dtp_graph_add(&s->graph, &(struct dtp_task){.tag = tag,
                                                       .start_s = start_s,
                                                       .latency_s = latency_s,
                                                       .work = work_s,
                                                       .rate_cap = 1,
                                                       .device = DTP_NONE,
                                                       .stream = DTP_NONE});
}

/* ---- host ---- */

/* What-if on stragglers: in each stretch between two collectives, a rank that took longer than the
 * median rank is as much faster. */
static double stretch_speed(const struct replay_rank *q, int64_t start_ns) {
    size_t low = 0, high = q->nstretches;
    while (low < high) { /* the first stretch that ends after start_ns */
        size_t mid = (low + high) / 2;
        if (q->stretch[mid].end_ns <= start_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low < q->nstretches ? q->stretch[low].speed : 1;
}

static double host_speed(const struct replay_state *s, const struct replay_rank *q,
                         int64_t start_ns) {
    return s->options->host_speed * stretch_speed(q, start_ns);
}

static bool first_of_lane(const struct replay_rank *q, uint32_t i) {
    return i == 0 || q->call[i - 1].lane != q->call[i].lane;
}

/* What the host itself does before a call: since the call before, or since the hand-over. */
static void add_before(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_call *c = &q->call[i];
    bool first = first_of_lane(q, i);
    int64_t since_ns = first ? c->start_ns : q->call[i - 1].end_ns;
    if (c->handed_by != NO_INDEX && (first || q->call[c->handed_by].end_ns > since_ns))
        since_ns = q->call[c->handed_by].end_ns;
    double own_s = seconds(c->start_ns - since_ns) / host_speed(s, q, since_ns);
    bool free = first && c->handed_by == NO_INDEX;
    double delay_s = q->r->rank == s->options->delayed_rank ? s->options->delay_s : 0;
    c->before =
        add(s, tag_of(PART_BEFORE, q, i), free ? seconds(c->start_ns) + delay_s : 0, 0, own_s);
}

/* The call in two parts, around the issue; one that blocks ends when what it waits for has. */
static void add_call(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_call *c = &q->call[i];
    add_before(s, q, i);
    double speed = host_speed(s, q, c->start_ns);
    uint64_t tag = tag_of(PART_CALL, q, i);
    if (c->waits_for != NO_INDEX) {
        int64_t waited_ns = q->work[c->waits_for].end_ns;
        int64_t tail_ns = c->end_ns > waited_ns ? c->end_ns - waited_ns : 0;
        c->issue = c->before;
        c->body = add(s, tag, 0, 0, seconds(tail_ns) / speed);
    } else {
        c->issue = add(s, tag, 0, 0, seconds(c->issue_ns - c->start_ns) / speed);
        c->body = add(s, tag, 0, 0, seconds(c->end_ns - c->issue_ns) / speed);
    }
}

static void link_calls(struct replay_state *s, struct replay_rank *q) {
    for (uint32_t i = 0; i < q->ncalls; i++) {
        struct replay_call *c = &q->call[i];
        if (!first_of_lane(q, i))
            dtp_graph_dep(&s->graph, q->call[i - 1].body, c->before);
        if (c->handed_by != NO_INDEX)
            dtp_graph_dep(&s->graph, q->call[c->handed_by].body, c->before);
        if (c->issue != c->before)
            dtp_graph_dep(&s->graph, c->before, c->issue);
        dtp_graph_dep(&s->graph, c->issue, c->body);
        if (c->waits_for != NO_INDEX)
            dtp_graph_dep(&s->graph, q->work[c->waits_for].end, c->body);
    }
}

/* ---- work ---- */

/* Of neighbours on a stream with the text of --fuse, only the longest takes time. */
static bool is_fused_away(const struct replay_state *s, const struct replay_rank *q,
                          const struct replay_work *w) {
    const char *text = s->options->other.fused;
    uint32_t i = (uint32_t)(w - q->work), longest = i;
    const struct dtp_trace_event *own = dtp_trace_event(q->r, w->event), *e;
    if (!text || own->class != DTP_CLASS_COMPUTE || !strstr(dtp_trace_name(q->r, own->name), text))
        return false;
    for (int step = -1; step <= 1; step += 2)
        for (uint32_t k = i + (uint32_t)step; k < q->nwork && q->work[k].lane == w->lane;
             k += (uint32_t)step) {
            e = dtp_trace_event(q->r, q->work[k].event);
            if (!strstr(dtp_trace_name(q->r, e->name), text))
                break;
            int64_t best_ns = dtp_trace_event(q->r, q->work[longest].event)->dur_ns;
            if (e->dur_ns > best_ns || (e->dur_ns == best_ns && k < longest))
                longest = k;
        }
    return longest != i;
}

/* What it takes on the machine of the what-if. */
static double other_s(const struct replay_state *s, const struct replay_rank *q,
                      const struct replay_work *w) {
    const struct dtp_trace_event *e = dtp_trace_event(q->r, w->event);
    const struct dtp_whatif *other = &s->options->other;
    if (is_fused_away(s, q, w))
        return 0;
    if (e->class == DTP_CLASS_COMPUTE)
        return dtp_whatif_kernel_s(other, dtp_trace_name(q->r, e->name), seconds(e->dur_ns));
    return e->class == DTP_CLASS_MEMORY ? dtp_whatif_copy_s(other, seconds(e->dur_ns))
                                        : seconds(e->dur_ns);
}

static double duration_s(const struct replay_state *s, const struct replay_rank *q,
                         const struct replay_work *w) {
    const struct dtp_trace_event *e = dtp_trace_event(q->r, w->event);
    double speed = e->class == DTP_CLASS_MEMORY    ? s->options->memory_speed
                   : e->class == DTP_CLASS_COMPUTE ? s->options->kernel_speed
                                                   : 1;
    if (s->options->op && strstr(dtp_trace_name(q->r, e->name), s->options->op))
        speed *= s->options->op_speed;
    if (e->class == DTP_CLASS_COMPUTE && q->r->rank == s->options->slow_rank)
        speed /= s->options->slow_by;
    if (e->class != DTP_CLASS_COMM)
        speed *= stretch_speed(q, w->start_ns);
    return other_s(s, q, w) / speed;
}

/* What a start took beyond its dependencies and the usual latencies. */
static int64_t unexplained_ns(const struct replay_rank *q, const struct replay_work *w) {
    int64_t expected_ns = replay_expected_ns(q, w);
    if (expected_ns == INT64_MIN || w->makes_room != NO_INDEX)
        return 0;
    return w->start_ns > expected_ns ? w->start_ns - expected_ns : 0;
}

static void add_work(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_work *w = &q->work[i];
    bool free = replay_expected_ns(q, w) == INT64_MIN; /* what let it start is not in the trace */
    w->start = add(s, tag_of(PART_START, q, i), free ? seconds(w->start_ns) : 0, 0, 0);
    if (w->match == NO_INDEX)
        w->end = add(s, tag_of(PART_WORK, q, i), 0, 0, duration_s(s, q, w));
    else if (w->tail_ns == 0)
        w->end = s->transfer[w->match];
    else
        w->end = add(s, tag_of(PART_WORK, q, i), 0, 0,
                     seconds(w->tail_ns) / s->options->network_bandwidth);
    q->unexplained_ns += unexplained_ns(q, w);
}

static void depend(struct replay_state *s, const struct replay_rank *q, dtp_id before, dtp_id after,
                   double latency_s) {
    dtp_id wait = add(s, tag_of(PART_LATENCY, q, 0), 0, latency_s, 0);
    dtp_graph_dep(&s->graph, before, wait);
    dtp_graph_dep(&s->graph, wait, after);
}

/* Work that waits for room depends on a moment of another. */
static void link_room(struct replay_state *s, struct replay_rank *q, struct replay_work *w) {
    const struct replay_work *o = &q->work[w->makes_room];
    double share = (double)replay_room_ns(q, w) / (double)(o->end_ns - o->start_ns + 1);
    if (o->match == NO_INDEX)
        depend(s, q, o->start, w->start, share * duration_s(s, q, o));
    else
        dtp_graph_dep(&s->graph, o->end, w->start);
}

static void link_work(struct replay_state *s, struct replay_rank *q) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        uint32_t others[] = {w->previous, w->waits_for};
        if (w->call != NO_INDEX) {
            const struct replay_call *c = &q->call[w->call];
            depend(s, q, w->early ? c->before : c->issue, w->start,
                   seconds(replay_latency_ns(q, w, AFTER_LAUNCH)));
        }
        for (int k = 0; k < 2; k++)
            if (others[k] != NO_INDEX)
                depend(s, q, q->work[others[k]].end, w->start,
                       seconds(replay_latency_ns(q, w, (int)replay_after_work(q, w, others[k]))));
        if (w->makes_room != NO_INDEX)
            link_room(s, q, w);
        dtp_id common = w->match == NO_INDEX ? w->end : s->transfer[w->match];
        dtp_graph_dep(&s->graph, w->start, common);
        if (common != w->end)
            dtp_graph_dep(&s->graph, common, w->end);
        if (w->match_after != NO_INDEX)
            dtp_graph_dep(&s->graph, w->end, s->transfer[w->match_after]);
    }
}

/* The shortest transfer of the same operation and size of group: what the latency is at most. */
static int64_t shortest_ns(const struct dtp_matches *m, const struct dtp_match *like) {
    int64_t best_ns = like->transfer_ns;
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].op == like->op && m->at[i].group_size == like->group_size &&
            m->at[i].transfer_ns < best_ns)
            best_ns = m->at[i].transfer_ns;
    return best_ns;
}

static double other_transfer_s(const struct replay_state *s, const struct dtp_match *m,
                               double t_s) {
    const struct dtp_match_member *o = &s->m->member[m->first];
    const struct dtp_trace_rank *r = &s->t->rank[o->rank];
    const char *removed = s->options->other.removed;
    if (removed && (strstr(dtp_trace_name(r, dtp_trace_event(r, o->event)->name), removed) ||
                    strstr(dtp_comm_op_name[m->op], removed)))
        return 0;
    int first = s->t->rank[o[0].rank].rank;
    int second = m->n > 1 ? s->t->rank[o[1].rank].rank : first + 1;
    int world = s->t->rank[0].world_size > 0 ? s->t->rank[0].world_size : (int)s->t->nranks;
    struct dtp_whatif_transfer x = {.op = m->op,
                                    .group_size = m->group_size,
                                    .stride = second > first ? second - first : first - second,
                                    .world = world,
                                    .bytes = m->bytes,
                                    .transfer_s = t_s};
    return dtp_whatif_transfer_s(&s->options->other, &x);
}

static void add_transfers(struct replay_state *s) {
    s->transfer = DTP_NEW(s->a, dtp_id, s->m->n + 1);
    for (size_t i = 0; i < s->m->n; i++) {
        const struct dtp_match *m = &s->m->at[i];
        int64_t least_ns = shortest_ns(s->m, m);
        double t_s = seconds(least_ns) * s->options->network_latency +
                     seconds(m->transfer_ns - least_ns) / s->options->network_bandwidth;
        t_s = other_transfer_s(s, m, t_s);
        if ((int)i == s->options->slow_collective)
            t_s *= s->options->slow_collective_by;
        s->transfer[i] = add(s, tag_of(PART_TRANSFER, NULL, (uint32_t)i), 0, 0, t_s);
        for (size_t k = m->first; k < m->first + m->n; k++) {
            struct replay_rank *q = &s->rank[s->m->member[k].rank];
            struct replay_work *w = &q->work[q->work_of[s->m->member[k].event]];
            w->tail_ns = s->m->member[k].tail_ns;
            *(s->m->member[k].ahead ? &w->match_after : &w->match) = (uint32_t)i;
        }
    }
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

static int by_value(const void *x, const void *y) {
    int64_t p = *(const int64_t *)x, q = *(const int64_t *)y;
    return p < q ? -1 : p > q;
}

/* Stretches end at a collective's start on the rank; m: of all ranks, in order of their ends. */
static void add_stretches(struct replay_state *s, const struct dtp_match *m, int64_t *from_ns,
                          int64_t *length_ns) {
    size_t n = 0;
    for (size_t k = m->first; k < m->first + m->n; k++) {
        const struct dtp_match_member *o = &s->m->member[k];
        struct replay_rank *q = &s->rank[o->rank];
        int64_t start_ns = q->work[q->work_of[o->event]].start_ns;
        if (start_ns > from_ns[o->rank])
            length_ns[n++] = start_ns - from_ns[o->rank];
    }
    if (n < 2)
        return;
    qsort(length_ns, n, sizeof *length_ns, by_value);
    int64_t median_ns = length_ns[(n - 1) / 2];
    for (size_t k = m->first; k < m->first + m->n; k++) {
        const struct dtp_match_member *o = &s->m->member[k];
        struct replay_rank *q = &s->rank[o->rank];
        const struct replay_work *w = &q->work[q->work_of[o->event]];
        int64_t own_ns = w->start_ns - from_ns[o->rank];
        double speed = own_ns > median_ns && median_ns > 0 ? (double)own_ns / (double)median_ns : 1;
        q->stretch[q->nstretches++] = (struct replay_stretch){w->start_ns, speed};
        from_ns[o->rank] = w->end_ns;
    }
}

static void find_stretches(struct replay_state *s) {
    int64_t *from_ns = DTP_NEW(s->a, int64_t, s->t->nranks + 1);
    int64_t *length_ns = DTP_NEW(s->a, int64_t, s->t->nranks + 1);
    for (size_t r = 0; r < s->t->nranks; r++) {
        s->rank[r].stretch = DTP_NEW(s->a, struct replay_stretch, s->m->n + 1);
        from_ns[r] = s->rank[r].first_ns;
    }
    for (size_t i = 0; i < s->m->n; i++)
        if (s->m->at[i].n <= s->t->nranks)
            add_stretches(s, &s->m->at[i], from_ns, length_ns);
}

static void build(struct replay_state *s) {
    if (s->options->remove_straggler)
        find_stretches(s);
    add_transfers(s);
    for (size_t r = 0; r < s->t->nranks; r++) {
        for (uint32_t i = 0; i < s->rank[r].ncalls; i++)
            add_call(s, &s->rank[r], i);
        for (uint32_t i = 0; i < s->rank[r].nwork; i++)
            add_work(s, &s->rank[r], i);
    }
    for (size_t r = 0; r < s->t->nranks; r++) {
        link_calls(s, &s->rank[r]);
        link_work(s, &s->rank[r]);
    }
}

/* ---- results ---- */

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
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (v[mid].measured_ns <= at_ns)
            low = mid + 1;
        else
            high = mid;
    }
    if (n == 0)
        return seconds(at_ns);
    const struct mark *m = &v[low > 0 ? low - 1 : 0];
    return m->replayed_s + seconds(at_ns - m->measured_ns);
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

static void take_steps(struct replay_state *s, const struct replay_rank *q,
                       const struct dtp_timeline *line, struct dtp_replayed_rank *out) {
    const struct dtp_trace_step *step;
    struct mark *mark;
    size_t n = marks_of(s, q, line, &mark);
    dtp_trace_steps(s->a, q->r, &step, &out->nsteps);
    out->step = DTP_NEW(s->a, struct dtp_replayed_step, out->nsteps + 1);
    for (size_t i = 0; i < out->nsteps; i++) {
        int64_t from_ns = dtp_trace_at_ns(s->m, q->r, step[i].start_ns);
        double from_s = replayed_s(mark, n, from_ns);
        double to_s = replayed_s(mark, n, from_ns + step[i].dur_ns);
        out->step[i] = (struct dtp_replayed_step){step[i].name, seconds(step[i].dur_ns),
                                                  to_s - from_s, seconds(from_ns), from_s};
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
                .group_size = m->group_size,
                .bytes = m->bytes,
                .start_s = seconds(start_ns),
                .end_s = seconds(start_ns + e->dur_ns),
                .replayed_end_s =
                    line->end_s
                        [s->rank[rank].work[s->rank[rank].work_of[s->m->member[k].event]].end],
                .transfer_s = seconds(m->transfer_ns),
                .waiting_s = seconds(m->last_start_ns - start_ns)};
        }
    }
}

static void take_rank(struct replay_state *s, size_t rank, const struct dtp_timeline *line,
                      struct dtp_replayed_rank *out) {
    const struct replay_rank *q = &s->rank[rank];
    *out = (struct dtp_replayed_rank){.rank = q->r};
    out->span_s = seconds(q->last_ns - q->first_ns);
    out->unexplained_s = seconds(q->unexplained_ns);
    out->launch_latency_s = seconds(q->latency_ns[DTP_CLASS_COMPUTE][AFTER_LAUNCH]);
    out->queue_latency_s = seconds(q->latency_ns[DTP_CLASS_COMPUTE][AFTER_WORK]);
    out->measured_end_s = seconds(q->last_ns);
    for (uint32_t i = 0; i < q->ncalls; i++)
        if (line->end_s[q->call[i].body] > out->replayed_end_s)
            out->replayed_end_s = line->end_s[q->call[i].body];
    for (uint32_t i = 0; i < q->nwork; i++)
        if (line->end_s[q->work[i].end] > out->replayed_end_s)
            out->replayed_end_s = line->end_s[q->work[i].end];
    take_steps(s, q, line, out);
    take_comms(s, rank, line, out);
}

static struct dtp_critical_task describe(const void *ctx, dtp_id task) {
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
        return (struct dtp_critical_task){dtp_comm_op_name[s->m->at[i].op], -1, DTP_CRITICAL_COMM};
    case PART_BEFORE:
        return (struct dtp_critical_task){"host between calls", q->r->rank, DTP_CRITICAL_HOST};
    case PART_CALL:
        e = dtp_trace_event(q->r, q->call[i].event);
        return (struct dtp_critical_task){dtp_trace_name(q->r, e->name), q->r->rank,
                                          DTP_CRITICAL_HOST};
    case PART_WORK:
        e = dtp_trace_event(q->r, q->work[i].event);
        return (struct dtp_critical_task){dtp_trace_name(q->r, e->name), q->r->rank,
                                          class_of[e->class]};
    case PART_START:
    case PART_LATENCY:
        break;
    }
    return (struct dtp_critical_task){"latency of starts", q->r->rank, DTP_CRITICAL_LATENCY};
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
    build(&s);
    DTP_TRY(dtp_graph_freeze(&s.graph, err));
    DTP_TRY(dtp_engine_run(a, &platform, &s.graph, &line, err));
    out->ntasks = s.graph.ntasks;
    out->rank = DTP_NEW(a, struct dtp_replayed_rank, t->nranks);
    double span_s = 0, unexplained_s = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        take_rank(&s, r, &line, &out->rank[r]);
        span_s += out->rank[r].span_s;
        unexplained_s += out->rank[r].unexplained_s;
    }
    out->explained_pct = span_s > 0 ? 100 * (1 - unexplained_s / span_s) : 100;
    dtp_critical_path(a, &line, describe, &s, &out->critical);
    if (options->out_tasks)
        *options->out_tasks =
            replay_export(a, &(struct replay_export_input){s.rank, t->nranks, s.m, &line, out->rank,
                                                           out->explained_pct});
    return DTP_OK;
}
