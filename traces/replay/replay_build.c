/* replay_build.c: the graph of tasks of a job, under what-if options. */
#include <gsl/gsl_fit.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "traces/replay/replay_internal.h"

/* ---- without the straggler ---- */

/* What-if on stragglers: in each stretch between two collectives, a rank that took longer than the
 * median rank is as much faster. */
static double stretch_speed(const struct replay_rank *q, int64_t start_ns) {
    size_t i = dtp_rows_until(q->stretch, q->nstretches, sizeof *q->stretch,
                              offsetof(struct replay_stretch, end_ns), start_ns);
    return i < q->nstretches ? q->stretch[i].speed : 1;
}

/* Compute of a rank up to each of its starts, in order of time. */
struct computed {
    int64_t start_ns, before_ns;
};
struct look {
    struct replay_state *s;
    int64_t *from_ns, *length_ns; /* [nranks] where the stretch of each began; room */
    struct computed **computed;   /* [nranks], with one more at the end */
    size_t *ncomputed;
};

static int by_start(const void *x, const void *y) {
    const struct computed *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

static void find_computed(struct look *l, size_t rank) {
    const struct replay_rank *q = &l->s->rank[rank];
    struct computed *v = DTP_NEW(l->s->a, struct computed, (size_t)q->nwork + 1);
    size_t n = 0;
    int64_t sum_ns = 0;
    for (uint32_t i = 0; i < q->nwork; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(q->r, q->work[i].event);
        if (e->class == DTP_CLASS_COMPUTE)
            v[n++] = (struct computed){q->work[i].start_ns, e->dur_ns};
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i <= n; i++) {
        int64_t own_ns = i < n ? v[i].before_ns : 0;
        v[i].before_ns = sum_ns;
        sum_ns += own_ns;
    }
    l->computed[rank] = v;
    l->ncomputed[rank] = n;
}

static int64_t computed_before_ns(const struct look *l, size_t rank, int64_t at_ns) {
    const struct computed *v = l->computed[rank];
    size_t i = dtp_rows_before(v, l->ncomputed[rank], sizeof *v,
                               offsetof(struct computed, start_ns), at_ns);
    return v[i].before_ns;
}

/* Returns what the median rank of the collective computed in a window: if collectives overlap compute, a
 * rank that waits in one has a stretch of no length, and still its work to do. */
static int64_t median_compute_ns(const struct look *l, const struct dtp_match *m, int64_t from_ns,
                                 int64_t to_ns) {
    for (size_t k = 0; k < m->n; k++) {
        size_t rank = l->s->m->member[m->first + k].rank;
        l->length_ns[k] = computed_before_ns(l, rank, to_ns) - computed_before_ns(l, rank, from_ns);
    }
    return dtp_median_low_i64(l->length_ns, m->n);
}

/* Stretches end at a collective's start on the rank; m: of all ranks, in order of their ends. */
static void add_stretches(const struct look *l, const struct dtp_match *m) {
    struct replay_state *s = l->s;
    int64_t *from_ns = l->from_ns, *length_ns = l->length_ns;
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
    int64_t median_ns = dtp_median_low_i64(length_ns, n);
    for (size_t k = m->first; k < m->first + m->n; k++) {
        const struct dtp_match_member *o = &s->m->member[k];
        struct replay_rank *q = &s->rank[o->rank];
        const struct replay_work *w = &q->work[q->work_of[o->event]];
        int64_t own_ns = w->start_ns - from_ns[o->rank];
        int64_t least_ns = median_compute_ns(l, m, from_ns[o->rank], w->start_ns);
        least_ns = least_ns > median_ns ? least_ns : median_ns;
        double speed = own_ns > least_ns && least_ns > 0 ? (double)own_ns / (double)least_ns : 1;
        q->stretch[q->nstretches++] = (struct replay_stretch){w->start_ns, speed};
        from_ns[o->rank] = w->end_ns;
    }
}

static void find_stretches(struct replay_state *s) {
    size_t nranks = s->t->nranks;
    struct look l = {.s = s,
                     .from_ns = DTP_NEW(s->a, int64_t, nranks + 1),
                     .length_ns = DTP_NEW(s->a, int64_t, nranks + 1),
                     .computed = DTP_NEW(s->a, struct computed *, nranks + 1),
                     .ncomputed = DTP_NEW(s->a, size_t, nranks + 1)};
    for (size_t r = 0; r < nranks; r++) {
        s->rank[r].stretch = DTP_NEW(s->a, struct replay_stretch, s->m->n + 1);
        l.from_ns[r] = s->rank[r].first_ns;
        find_computed(&l, r);
    }
    for (size_t i = 0; i < s->m->n; i++)
        if (s->m->at[i].n <= nranks)
            add_stretches(&l, &s->m->at[i]);
}

/* ---- the network: a transfer is latency + bytes / bandwidth ---- */

static struct dtp_whatif_transfer whatif_of(const struct replay_state *s, const struct dtp_match *m,
                                            double t_s) {
    const struct dtp_match_member *o = &s->m->member[m->first];
    int first = s->t->rank[o[0].rank].rank;
    int second = m->n > 1 ? s->t->rank[o[1].rank].rank : first + 1;
    int world = s->t->rank[0].world_size > 0 ? s->t->rank[0].world_size : (int)s->t->nranks;
    return (struct dtp_whatif_transfer){.op = m->op,
                                        .group_size = m->group_size,
                                        .stride = second > first ? second - first : first - second,
                                        .world = world,
                                        .bytes = m->bytes,
                                        .transfer_s = t_s};
}

static int by_size(const void *x, const void *y) {
    const struct dtp_match *p = *(const struct dtp_match *const *)x,
                           *q = *(const struct dtp_match *const *)y;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? -1 : 1;
    return p->transfer_ns < q->transfer_ns ? -1 : p->transfer_ns > q->transfer_ns;
}

/* Latency through the median of each size, small sizes as heavy as large ones; false: the sizes do not tell. */
static bool fit_latency(struct dtp_arena *a, const struct dtp_match **v, size_t n,
                        struct dtp_replay_network *out) {
    double *x = DTP_NEW(a, double, n + 1), *y = DTP_NEW(a, double, n + 1),
           *w = DTP_NEW(a, double, n + 1), latency_s, per_byte_s, cov[3], chisq;
    size_t sizes = 0;
    qsort(v, n, sizeof *v, by_size);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && v[to]->bytes == v[from]->bytes; to++)
            ;
        double t_s = replay_seconds(v[(from + to) / 2]->transfer_ns);
        if (v[from]->bytes == 0 || t_s <= 0)
            continue;
        x[sizes] = (double)v[from]->bytes;
        y[sizes] = t_s;
        w[sizes++] = 1 / (t_s * t_s);
    }
    out->nsizes = (int)sizes;
    if (sizes < 2 || x[sizes - 1] < 2 * x[0])
        return false;
    gsl_fit_wlinear(x, 1, w, 1, y, 1, sizes, &latency_s, &per_byte_s, &cov[0], &cov[1], &cov[2],
                    &chisq);
    if (per_byte_s <= 0)
        return false;
    out->latency_s = latency_s > 0 ? latency_s : 0;
    out->from = dtp_arena_printf(a, "%zu sizes of the trace", sizes);
    return true;
}

/* The machine of the trace, as the user or the name of its GPU says; NULL: unknown. */
static const struct dtp_cluster *machine_of(const struct replay_state *s) {
    const char *device = s->t->nranks > 0 ? s->t->rank[0].device : "";
    if (s->options->other.from)
        return s->options->other.from;
    struct dtp_cluster *c = DTP_NEW(s->a, struct dtp_cluster, 1);
    return dtp_whatif_machine(s->a, device ? device : "", c, NULL) == DTP_OK ? c : NULL;
}

static void find_latency(struct replay_state *s, const struct dtp_cluster *machine,
                         const struct dtp_match *m, struct dtp_replay_network *out) {
    const struct dtp_match **v = DTP_NEW(s->a, const struct dtp_match *, s->m->n);
    size_t n = 0;
    for (size_t i = 0; i < s->m->n; i++)
        if (s->network_of[i] == s->nnetwork)
            v[n++] = &s->m->at[i];
    if (fit_latency(s->a, v, n, out))
        return;
    out->from = "no model of the machine: none";
    if (!machine)
        return;
    struct dtp_whatif_transfer x = whatif_of(s, m, replay_seconds(m->transfer_ns));
    out->latency_s = dtp_whatif_latency_s(machine, &x);
    out->from = dtp_arena_printf(s->a, "model of %s", machine->name);
}

static void find_network(struct replay_state *s) {
    const struct dtp_replay_options *o = s->options;
    bool wanted = o->network_bandwidth < 1 || o->network_bandwidth > 1 || o->network_latency < 1 ||
                  o->network_latency > 1 || o->bucket_bytes > 0;
    if (!wanted)
        return;
    const struct dtp_cluster *machine = machine_of(s);
    s->network = DTP_NEW(s->a, struct dtp_replay_network, s->m->n + 1);
    s->network_of = DTP_NEW(s->a, uint32_t, s->m->n + 1);
    memset(s->network_of, 0xff, (s->m->n + 1) * sizeof *s->network_of);
    for (size_t i = 0; i < s->m->n; i++) {
        const struct dtp_match *m = &s->m->at[i];
        if (s->network_of[i] != NO_INDEX)
            continue;
        struct dtp_replay_network *out = &s->network[s->nnetwork];
        *out = (struct dtp_replay_network){m->op, m->group, m->group_size, 0, 0, ""};
        for (size_t k = i; k < s->m->n; k++)
            if (s->m->at[k].op == m->op && s->m->at[k].group_size == m->group_size &&
                strcmp(s->m->at[k].group, m->group) == 0)
                s->network_of[k] = (uint32_t)s->nnetwork;
        find_latency(s, machine, m, out);
        s->nnetwork++;
    }
}

/* ---- overlap and buckets ---- */

static int64_t launched_ns(const struct replay_rank *q, const struct replay_work *w) {
    const struct dtp_trace_event *e = dtp_trace_event(q->r, w->event);
    return w->call == NO_INDEX ? e->start_ns
                               : dtp_trace_event(q->r, q->call[w->call].event)->start_ns;
}

/* The step in which it is launched, as steps of the trace are numbered; 0 before the first. */
static size_t step_of(const struct dtp_trace_step *step, size_t n, int64_t at_ns) {
    return dtp_rows_until(step, n, sizeof *step, offsetof(struct dtp_trace_step, start_ns), at_ns);
}

static bool is_overlapped(const struct replay_state *s, const struct replay_work *w) {
    return w->match != NO_INDEX &&
           strstr(dtp_comm_op_name[s->m->at[w->match].op], s->options->overlap);
}

/* Nothing waits for a loose collective. The last of a step is not loose: what needs the results of all
 * (the optimizer) comes after it, and its stream runs in order. */
static void find_loose(struct replay_state *s) {
    for (size_t r = 0; s->options->overlap && r < s->t->nranks; r++) {
        struct replay_rank *q = &s->rank[r];
        const struct dtp_trace_step *step;
        size_t n;
        dtp_trace_steps(s->a, q->r, &step, &n);
        uint32_t *last = DTP_NEW(s->a, uint32_t, n + 1);
        memset(last, 0xff, (n + 1) * sizeof *last);
        for (uint32_t i = 0; i < q->nwork; i++) {
            if (!is_overlapped(s, &q->work[i]))
                continue;
            size_t at = step_of(step, n, launched_ns(q, &q->work[i]));
            q->work[i].loose = true;
            if (last[at] == NO_INDEX || q->work[i].order_ns > q->work[last[at]].order_ns)
                last[at] = i;
        }
        for (size_t i = 0; i <= n; i++)
            if (last[i] != NO_INDEX)
                q->work[last[i]].loose = false;
    }
}

/* Returns what work waits for instead of `other`: the work before the loose ones. */
static uint32_t firm(const struct replay_rank *q, const struct replay_work *w, uint32_t other) {
    if (dtp_trace_event(q->r, w->event)->class == DTP_CLASS_COMM)
        return other;
    while (other != NO_INDEX && q->work[other].loose)
        other = q->work[other].lane == w->lane ? q->work[other].previous : NO_INDEX;
    return other;
}

static size_t step_of_match(struct replay_state *s, const struct dtp_match *m) {
    const struct dtp_match_member *o = &s->m->member[m->first];
    const struct replay_rank *q = &s->rank[o->rank];
    const struct dtp_trace_step *step;
    size_t n;
    dtp_trace_steps(s->a, q->r, &step, &n);
    return step_of(step, n, launched_ns(q, &q->work[q->work_of[o->event]]));
}

/* bucket[i]: the first collective of the bucket that i is in. */
static uint32_t *find_buckets(struct replay_state *s) {
    uint32_t *bucket = DTP_NEW(s->a, uint32_t, s->m->n + 1);
    uint64_t *filled = DTP_NEW(s->a, uint64_t, s->m->n + 1);
    for (uint32_t i = 0; i < s->m->n; i++) {
        const struct dtp_match *m = &s->m->at[i];
        bucket[i] = i;
        filled[i] = m->bytes;
        bool reduces = m->op == DTP_COMM_ALL_REDUCE || m->op == DTP_COMM_REDUCE_SCATTER;
        if (!s->options->bucket_bytes || !reduces || m->bytes == 0)
            continue;
        for (uint32_t j = i; j-- > 0;) { /* the one before of its kind */
            const struct dtp_match *o = &s->m->at[j];
            if (o->op != m->op || o->bytes == 0 || strcmp(o->group, m->group) != 0)
                continue;
            if (filled[bucket[j]] + m->bytes <= s->options->bucket_bytes &&
                step_of_match(s, o) == step_of_match(s, m)) {
                bucket[i] = bucket[j];
                filled[bucket[j]] += m->bytes;
            }
            break;
        }
    }
    return bucket;
}

/* Returns the latency that a collective saves in a bucket. */
static double saved_s(const struct replay_state *s, uint32_t i) {
    double own_s = replay_seconds(s->m->at[i].transfer_ns);
    double latency_s = s->network_of ? s->network[s->network_of[i]].latency_s : 0;
    return (latency_s < own_s ? latency_s : own_s) * s->options->network_latency;
}

/* ---- tasks ---- */

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

/* When work ended for those that wait for it: a collective on all ranks at once, unless its ends were edited. */
static int64_t seen_end_ns(const struct replay_state *s, const struct replay_work *o) {
    if (o->match == NO_INDEX || o->tail_ns != 0)
        return o->end_ns;
    int64_t common_ns = s->m->at[o->match].end_ns, apart_ns = o->end_ns - common_ns;
    return apart_ns > DTP_MATCH_SKEW_NS || apart_ns < -DTP_MATCH_SKEW_NS ? o->end_ns : common_ns;
}

/* ---- host ---- */

static double host_speed(const struct replay_state *s, const struct replay_rank *q,
                         int64_t start_ns) {
    return s->options->host_speed * stretch_speed(q, start_ns);
}

static bool first_of_lane(const struct replay_rank *q, uint32_t i) {
    return i == 0 || q->call[i - 1].lane != q->call[i].lane;
}

/* Adds the host's own time before a call: since the call before, or since the hand-over. */
static void add_before(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_call *c = &q->call[i];
    bool first = first_of_lane(q, i);
    int64_t since_ns = first ? c->start_ns : q->call[i - 1].end_ns;
    if (c->handed_by != NO_INDEX && (first || q->call[c->handed_by].end_ns > since_ns))
        since_ns = q->call[c->handed_by].end_ns;
    double own_s = replay_seconds(c->start_ns - since_ns) / host_speed(s, q, since_ns);
    bool free = first && c->handed_by == NO_INDEX;
    double delay_s = q->r->rank == s->options->delayed_rank ? s->options->delay_s : 0;
    c->before = add(s, tag_of(PART_BEFORE, q, i), free ? replay_seconds(c->start_ns) + delay_s : 0,
                    0, own_s);
}

/* The call in two parts, around the issue; one that blocks ends when what it waits for has. */
static void add_call(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_call *c = &q->call[i];
    add_before(s, q, i);
    double speed = host_speed(s, q, c->start_ns);
    uint64_t tag = tag_of(PART_CALL, q, i);
    if (c->waits_for != NO_INDEX) {
        int64_t waited_ns = seen_end_ns(s, &q->work[c->waits_for]);
        int64_t tail_ns = c->end_ns > waited_ns ? c->end_ns - waited_ns : 0;
        c->issue = c->before;
        c->body = add(s, tag, 0, 0, replay_seconds(tail_ns) / speed);
    } else {
        c->issue = add(s, tag, 0, 0, replay_seconds(c->issue_ns - c->start_ns) / speed);
        c->body = add(s, tag, 0, 0, replay_seconds(c->end_ns - c->issue_ns) / speed);
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

/* Neighbours on a stream whose names hold the text of --fuse count as one: only the longest takes time. */
static bool is_fused_away(const struct replay_state *s, const struct replay_rank *q,
                          const struct replay_work *w) {
    const char *text = s->options->other.fused;
    uint32_t i = (uint32_t)(w - q->work);
    const struct dtp_trace_event *own = dtp_trace_event(q->r, w->event), *e;
    if (!text || own->class != DTP_CLASS_COMPUTE || !strstr(dtp_trace_name(q->r, own->name), text))
        return false;
    for (int step = -1; step <= 1; step += 2)
        for (uint32_t k = i + (uint32_t)step; k < q->nwork && q->work[k].lane == w->lane;
             k += (uint32_t)step) {
            e = dtp_trace_event(q->r, q->work[k].event);
            if (!strstr(dtp_trace_name(q->r, e->name), text))
                break;
            if (e->dur_ns > own->dur_ns || (e->dur_ns == own->dur_ns && k < i))
                return true;
        }
    return false;
}

/* Returns the time of work on the machine of the what-if. */
static double other_s(const struct replay_state *s, const struct replay_rank *q,
                      const struct replay_work *w) {
    const struct dtp_trace_event *e = dtp_trace_event(q->r, w->event);
    const struct dtp_whatif *other = &s->options->other;
    if (is_fused_away(s, q, w))
        return 0;
    if (e->class == DTP_CLASS_COMPUTE)
        return dtp_whatif_kernel_s(other, dtp_trace_name(q->r, e->name), replay_seconds(e->dur_ns));
    return e->class == DTP_CLASS_MEMORY ? dtp_whatif_copy_s(other, replay_seconds(e->dur_ns))
                                        : replay_seconds(e->dur_ns);
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

/* The usual latency after since_ns, or less if the work started sooner. */
static int64_t latency_after_ns(const struct replay_work *w, int64_t since_ns, int64_t usual_ns) {
    int64_t took_ns = w->start_ns > since_ns ? w->start_ns - since_ns : 0;
    return took_ns < usual_ns ? took_ns : usual_ns;
}

static int64_t launch_ns(const struct replay_rank *q, const struct replay_work *w) {
    const struct replay_call *c = &q->call[w->call];
    return w->early ? c->start_ns : c->issue_ns;
}

static int64_t after_launch_ns(const struct replay_rank *q, const struct replay_work *w) {
    return latency_after_ns(w, launch_ns(q, w), replay_latency_ns(q, w, AFTER_LAUNCH));
}

static int64_t after_work_ns(const struct replay_state *s, const struct replay_rank *q,
                             const struct replay_work *w, uint32_t other) {
    return latency_after_ns(w, seen_end_ns(s, &q->work[other]),
                            replay_latency_ns(q, w, (int)replay_after_work(q, w, other)));
}

/* A collective that makes room does so at its end, or, if the work began before that, a time after its start. */
static bool before_end(const struct replay_state *s, const struct replay_rank *q,
                       const struct replay_work *w) {
    return w->start_ns < seen_end_ns(s, &q->work[w->makes_room]);
}

/* Returns how long a start took, as measured, beyond its dependencies and their latencies. */
static int64_t find_wait_ns(const struct replay_state *s, const struct replay_rank *q,
                            const struct replay_work *w) {
    const uint32_t others[] = {w->previous, w->waits_for};
    int64_t ready_ns = INT64_MIN;
    if (replay_expected_ns(q, w) == INT64_MIN)
        return 0;
    if (w->call != NO_INDEX)
        ready_ns = launch_ns(q, w) + after_launch_ns(q, w);
    for (int k = 0; k < 2; k++) {
        if (others[k] == NO_INDEX)
            continue;
        int64_t at_ns = seen_end_ns(s, &q->work[others[k]]) + after_work_ns(s, q, w, others[k]);
        ready_ns = at_ns > ready_ns ? at_ns : ready_ns;
    }
    if (w->makes_room != NO_INDEX) {
        const struct replay_work *o = &q->work[w->makes_room];
        int64_t at_ns = o->match == NO_INDEX  ? o->start_ns + replay_room_ns(q, w)
                        : before_end(s, q, w) ? w->start_ns
                                              : seen_end_ns(s, o);
        ready_ns = at_ns > ready_ns ? at_ns : ready_ns;
    }
    return w->start_ns > ready_ns ? w->start_ns - ready_ns : 0;
}

static void add_work(struct replay_state *s, struct replay_rank *q, uint32_t i) {
    struct replay_work *w = &q->work[i];
    bool free = replay_expected_ns(q, w) == INT64_MIN; /* what let it start is not in the trace */
    w->wait_ns = find_wait_ns(s, q, w);
    w->start = add(s, tag_of(PART_START, q, i), free ? replay_seconds(w->start_ns) : 0,
                   replay_seconds(w->wait_ns), 0);
    if (w->match == NO_INDEX)
        w->end = add(s, tag_of(PART_WORK, q, i), 0, 0, duration_s(s, q, w));
    else if (w->tail_ns == 0)
        w->end = s->transfer[w->match];
    else
        w->end = add(s, tag_of(PART_WORK, q, i), 0, 0,
                     replay_seconds(w->tail_ns) / s->options->network_bandwidth);
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
    else if (before_end(s, q, w))
        depend(s, q, o->start, w->start, replay_seconds(w->start_ns - o->start_ns));
    else
        dtp_graph_dep(&s->graph, o->end, w->start);
}

/* Work of one bucket does not wait for the others' end, which is its own. */
static bool same_bucket(const struct replay_state *s, const struct replay_work *w,
                        const struct replay_work *o) {
    return w->match != NO_INDEX && o->match != NO_INDEX &&
           s->transfer[w->match] == s->transfer[o->match];
}

static void link_work(struct replay_state *s, struct replay_rank *q) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        uint32_t others[] = {w->previous, w->waits_for};
        if (w->call != NO_INDEX) {
            const struct replay_call *c = &q->call[w->call];
            depend(s, q, w->early ? c->before : c->issue, w->start,
                   replay_seconds(after_launch_ns(q, w)));
        }
        for (int k = 0; k < 2; k++) {
            others[k] = firm(q, w, others[k]);
            if (others[k] != NO_INDEX && !same_bucket(s, w, &q->work[others[k]]))
                depend(s, q, q->work[others[k]].end, w->start,
                       replay_seconds(after_work_ns(s, q, w, others[k])));
        }
        if (w->makes_room != NO_INDEX && !q->work[w->makes_room].loose)
            link_room(s, q, w);
        dtp_id common = w->match == NO_INDEX ? w->end : s->transfer[w->match];
        dtp_graph_dep(&s->graph, w->start, common);
        if (common != w->end)
            dtp_graph_dep(&s->graph, common, w->end);
        if (w->match_after != NO_INDEX)
            dtp_graph_dep(&s->graph, w->end, s->transfer[w->match_after]);
    }
}

static double other_transfer_s(const struct replay_state *s, const struct dtp_match *m,
                               double t_s) {
    const struct dtp_match_member *o = &s->m->member[m->first];
    const struct dtp_trace_rank *r = &s->t->rank[o->rank];
    const char *removed = s->options->other.removed;
    if (removed && (strstr(dtp_trace_name(r, dtp_trace_event(r, o->event)->name), removed) ||
                    strstr(dtp_comm_op_name[m->op], removed)))
        return 0;
    struct dtp_whatif_transfer x = whatif_of(s, m, t_s);
    return dtp_whatif_transfer_s(&s->options->other, &x);
}

static double transfer_s(const struct replay_state *s, uint32_t i) {
    const struct dtp_match *m = &s->m->at[i];
    double t_s = replay_seconds(m->transfer_ns);
    if (s->network_of) {
        double latency_s = s->network[s->network_of[i]].latency_s;
        latency_s = latency_s < t_s ? latency_s : t_s;
        t_s = latency_s * s->options->network_latency +
              (t_s - latency_s) / s->options->network_bandwidth;
    }
    t_s = other_transfer_s(s, m, t_s);
    return (int)i == s->options->slow_collective ? t_s * s->options->slow_collective_by : t_s;
}

static void add_transfers(struct replay_state *s) {
    find_network(s);
    const uint32_t *bucket = find_buckets(s);
    double *sum_s = DTP_NEW(s->a, double, s->m->n + 1);
    s->transfer = DTP_NEW(s->a, dtp_id, s->m->n + 1);
    for (uint32_t i = 0; i < s->m->n; i++)
        sum_s[bucket[i]] += transfer_s(s, i) - (bucket[i] == i ? 0 : saved_s(s, i));
    for (uint32_t i = 0; i < s->m->n; i++) {
        const struct dtp_match *m = &s->m->at[i];
        s->transfer[i] = bucket[i] == i ? add(s, tag_of(PART_TRANSFER, NULL, i), 0, 0, sum_s[i])
                                        : s->transfer[bucket[i]];
        for (size_t k = m->first; k < m->first + m->n; k++) {
            struct replay_rank *q = &s->rank[s->m->member[k].rank];
            struct replay_work *w = &q->work[q->work_of[s->m->member[k].event]];
            w->tail_ns = s->m->member[k].tail_ns;
            *(s->m->member[k].ahead ? &w->match_after : &w->match) = i;
        }
    }
    find_loose(s);
}

struct wait_span {
    int64_t from_ns, to_ns;
};

static int by_begin(const void *x, const void *y) {
    const struct wait_span *p = x, *q = y;
    return p->from_ns < q->from_ns ? -1 : p->from_ns > q->from_ns;
}

/* The time in which some start of the rank waits for no known reason. */
static int64_t sum_waits_ns(struct dtp_arena *a, const struct replay_rank *q) {
    struct wait_span *v = DTP_NEW(a, struct wait_span, (size_t)q->nwork + 1);
    int64_t sum_ns = 0, until_ns = INT64_MIN;
    size_t n = 0;
    for (uint32_t i = 0; i < q->nwork; i++)
        if (q->work[i].wait_ns > 0)
            v[n++] =
                (struct wait_span){q->work[i].start_ns - q->work[i].wait_ns, q->work[i].start_ns};
    qsort(v, n, sizeof *v, by_begin);
    for (size_t i = 0; i < n; i++) {
        int64_t from_ns = v[i].from_ns > until_ns ? v[i].from_ns : until_ns;
        sum_ns += v[i].to_ns > from_ns ? v[i].to_ns - from_ns : 0;
        until_ns = v[i].to_ns > until_ns ? v[i].to_ns : until_ns;
    }
    return sum_ns;
}

void replay_build(struct replay_state *s) {
    if (s->options->remove_straggler)
        find_stretches(s);
    add_transfers(s);
    for (size_t r = 0; r < s->t->nranks; r++) {
        for (uint32_t i = 0; i < s->rank[r].ncalls; i++)
            add_call(s, &s->rank[r], i);
        for (uint32_t i = 0; i < s->rank[r].nwork; i++)
            add_work(s, &s->rank[r], i);
        s->rank[r].unexplained_ns = sum_waits_ns(s->a, &s->rank[r]);
    }
    for (size_t r = 0; r < s->t->nranks; r++) {
        link_calls(s, &s->rank[r]);
        link_work(s, &s->rank[r]);
    }
}
