/* replay_recover.c: calls, work and what each waited for, as the trace of a rank shows them. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "traces/replay/replay_internal.h"

/* ---- calls of host threads ---- */

enum { HANDOVER_NS = 20000 }; /* a shorter gap of a thread is its own */

static int by_lane_start(const void *x, const void *y) {
    const struct replay_call *p = x, *q = y;
    if (p->lane != q->lane)
        return p->lane < q->lane ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    if (p->end_ns != q->end_ns) /* the outer first */
        return p->end_ns > q->end_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

/* Threads that launch or synchronise; a watchdog that only asks events takes no part. */
static bool *find_active_lanes(struct dtp_arena *a, const struct replay_rank *q) {
    bool *active = DTP_NEW(a, bool, q->r->nlanes + 1);
    for (size_t i = 0; i < q->r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(q->r, i);
        if (dtp_trace_is_work(e) && e->launch != DTP_TRACE_NONE)
            active[dtp_trace_event(q->r, e->launch)->lane] = true;
        if (e->kind == DTP_TRACE_CALL && strstr(dtp_trace_name(q->r, e->name), "Synchronize"))
            active[e->lane] = true;
    }
    return active;
}

void replay_find_calls(struct dtp_arena *a, struct replay_rank *q) {
    const bool *active = find_active_lanes(a, q);
    uint32_t n = 0;
    size_t most = 0;
    for (size_t i = 0; i < q->r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(q->r, i);
        most += e->kind == DTP_TRACE_CALL && active[e->lane];
    }
    q->call = DTP_NEW(a, struct replay_call, most + 1);
    q->call_of = DTP_NEW(a, uint32_t, q->r->nevents + 1);
    memset(q->call_of, 0xff, (q->r->nevents + 1) * sizeof *q->call_of);
    for (size_t i = 0; i < q->r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(q->r, i);
        if (e->kind != DTP_TRACE_CALL || !active[e->lane])
            continue;
        int64_t start_ns = dtp_trace_at_ns(q->m, q->r, e->start_ns);
        q->call[n++] = (struct replay_call){.event = (uint32_t)i,
                                            .lane = e->lane,
                                            .start_ns = start_ns,
                                            .end_ns = start_ns + e->dur_ns,
                                            .handed_by = NO_INDEX,
                                            .waits_for = NO_INDEX};
    }
    qsort(q->call, n, sizeof *q->call, by_lane_start);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct replay_call c = q->call[i];
        bool inside =
            kept > 0 && q->call[kept - 1].lane == c.lane && c.start_ns < q->call[kept - 1].end_ns;
        if (!inside)
            q->call[kept++] = c;
        q->call_of[c.event] = kept - 1;
    }
    q->ncalls = kept;
}

/* A launch that takes long (it loads a module, allocates) issues its work late: the part of a call
 * after the issue is what the median launching call takes in all. */
void replay_find_issues(struct dtp_arena *a, struct replay_rank *q) {
    int64_t *dur_ns = DTP_NEW(a, int64_t, q->nwork + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < q->nwork; i++)
        if (q->work[i].call != NO_INDEX)
            dur_ns[n++] = q->call[q->work[i].call].end_ns - q->call[q->work[i].call].start_ns;
    int64_t usual_ns = dtp_median_high_i64(dur_ns, n);
    for (uint32_t i = 0; i < q->ncalls; i++) {
        struct replay_call *c = &q->call[i];
        c->issue_ns = c->end_ns - c->start_ns > usual_ns ? c->end_ns - usual_ns : c->start_ns;
    }
}

static bool starts_lane(const struct replay_rank *q, uint32_t i) {
    return i == 0 || q->call[i - 1].lane != q->call[i].lane;
}

/* First call of [from, to) (one lane) that starts at or after at_ns. */
static uint32_t first_at(const struct replay_rank *q, uint32_t from, uint32_t to, int64_t at_ns) {
    return from + (uint32_t)dtp_rows_before(q->call + from, to - from, sizeof *q->call,
                                            offsetof(struct replay_call, start_ns), at_ns);
}

/* A thread that is silent while another runs from begin to end of an activity had handed over to it
 * and got back: lane [from, to) within the gap before call i. */
static void hand_over(struct replay_rank *q, uint32_t i, uint32_t from, uint32_t to) {
    const bool first = starts_lane(q, i);
    int64_t gap_start_ns = first ? INT64_MIN : q->call[i - 1].end_ns;
    int64_t gap_end_ns = q->call[i].start_ns;
    uint32_t begin = first_at(q, from, to, gap_start_ns);
    uint32_t end = first_at(q, begin, to, gap_end_ns);
    if (begin == end || q->call[end - 1].end_ns > gap_end_ns)
        return;
    /* the other was silent before the gap began: it was let go by the call before the gap */
    bool waited = begin == from || q->call[begin - 1].end_ns <= gap_start_ns;
    if (!first && waited && q->call[begin].handed_by == NO_INDEX)
        q->call[begin].handed_by = i - 1;
    /* and is silent after it: its last call let this one go on */
    bool done = end == to || q->call[end].start_ns >= gap_end_ns;
    uint32_t by = q->call[i].handed_by;
    if (!first && done && (by == NO_INDEX || q->call[by].end_ns < q->call[end - 1].end_ns))
        q->call[i].handed_by = end - 1;
}

void replay_find_handovers(struct replay_rank *q) {
    for (uint32_t i = 0; i < q->ncalls; i++) {
        if (starts_lane(q, i) || q->call[i].start_ns - q->call[i - 1].end_ns < HANDOVER_NS)
            continue;
        for (uint32_t from = 0, to; from < q->ncalls; from = to) {
            for (to = from + 1; to < q->ncalls && q->call[to].lane == q->call[from].lane; to++)
                ;
            if (q->call[from].lane != q->call[i].lane)
                hand_over(q, i, from, to);
        }
    }
}

/* ---- latencies of starts ---- */

enum { MOST_LATENCY_NS = 50000 }; /* no device takes longer to start what is ready */

static int class_of(const struct replay_rank *q, const struct replay_work *w) {
    return dtp_trace_event(q->r, w->event)->class;
}

static int64_t launched_ns(const struct replay_rank *q, const struct replay_work *w) {
    if (w->call == NO_INDEX)
        return INT64_MIN;
    const struct replay_call *c = &q->call[w->call];
    return w->early ? c->start_ns : c->issue_ns;
}

/* The work that it follows, on its stream or on one that it was told to wait for. */
static uint32_t followed(const struct replay_rank *q, const struct replay_work *w) {
    uint32_t p = w->previous, o = w->waits_for;
    if (p == NO_INDEX || o == NO_INDEX)
        return p == NO_INDEX ? o : p;
    return q->work[o].end_ns > q->work[p].end_ns ? o : p;
}

static int64_t followed_ns(const struct replay_rank *q, const struct replay_work *w) {
    uint32_t o = followed(q, w);
    return o == NO_INDEX ? INT64_MIN : q->work[o].end_ns;
}

static bool is_copy(const struct replay_rank *q, const struct replay_work *w) {
    return dtp_trace_event(q->r, w->event)->kind == DTP_TRACE_MEMCPY;
}

enum replay_after replay_after_work(const struct replay_rank *q, const struct replay_work *w,
                                    uint32_t other) {
    if (is_copy(q, w) != is_copy(q, &q->work[other]))
        return AFTER_SWITCH;
    return (enum replay_after)(AFTER_WORK + w->beside);
}

/* Tells whether a lane [from, to) had work that was launched and had not started at at_ns. */
static bool waits_at(const struct replay_rank *q, uint32_t from, uint32_t to, int64_t at_ns) {
    uint32_t i = from + (uint32_t)dtp_rows_until(q->work + from, to - from, sizeof *q->work,
                                                 offsetof(struct replay_work, start_ns), at_ns);
    return i < to && q->work[i].call != NO_INDEX && q->work[i].order_ns < at_ns;
}

/* A thread that synchronises with the device has a marker wait in every stream. */
static void add_markers(struct dtp_arena *a, struct replay_rank *q) {
    int64_t *start_ns = DTP_NEW(a, int64_t, (size_t)q->ncalls + 1),
            *end_ns = DTP_NEW(a, int64_t, (size_t)q->ncalls + 1);
    size_t n = 0;
    for (uint32_t c = 0; c < q->ncalls; c++)
        if (strstr(dtp_trace_name(q->r, dtp_trace_event(q->r, q->call[c].event)->name),
                   "DeviceSynchronize")) {
            start_ns[n] = q->call[c].start_ns;
            end_ns[n++] = q->call[c].end_ns;
        }
    qsort(start_ns, n, sizeof *start_ns, dtp_order_i64);
    qsort(end_ns, n, sizeof *end_ns, dtp_order_i64);
    for (uint32_t i = 0; i < q->nwork && n > 0; i++) {
        struct replay_work *w = &q->work[i];
        uint32_t other = followed(q, w);
        if (other == NO_INDEX)
            continue;
        int64_t at_ns = q->work[other].end_ns;
        size_t begun = dtp_rows_before(start_ns, n, sizeof *start_ns, 0, at_ns),
               ended = dtp_rows_until(end_ns, n, sizeof *end_ns, 0, at_ns);
        for (size_t k = ended; k < begun && w->beside < 2; k++)
            w->beside++;
    }
}

static void find_beside(struct replay_rank *q) {
    for (size_t l = 0; l < q->nlanes; l++) {
        const uint32_t from = q->lane[l].from, to = q->lane[l].to;
        for (uint32_t i = 0; i < q->nwork; i++) {
            struct replay_work *w = &q->work[i];
            uint32_t other = followed(q, w);
            if (w->lane != q->work[from].lane && other != NO_INDEX && w->beside < 2 &&
                waits_at(q, from, to, q->work[other].end_ns))
                w->beside++;
        }
    }
}

int64_t replay_latency_ns(const struct replay_rank *q, const struct replay_work *w, int after) {
    const struct replay_latency *l =
        &q->of_name[NAFTER * dtp_trace_event(q->r, w->event)->name + (uint32_t)after];
    return l->n > 0 ? l->sum_ns / l->n : q->latency_ns[class_of(q, w)][after];
}

int64_t replay_expected_ns(const struct replay_rank *q, const struct replay_work *w) {
    int64_t launched = launched_ns(q, w), at_ns = INT64_MIN;
    uint32_t other = followed(q, w);
    if (launched != INT64_MIN)
        at_ns = launched + replay_latency_ns(q, w, AFTER_LAUNCH);
    if (other == NO_INDEX)
        return at_ns;
    int64_t after_ns =
        q->work[other].end_ns + replay_latency_ns(q, w, (int)replay_after_work(q, w, other));
    return after_ns > at_ns ? after_ns : at_ns;
}

/* Returns which of the two let it start, or -1 if both could have. */
static int starts_after(const struct replay_rank *q, const struct replay_work *w) {
    int64_t launched = launched_ns(q, w);
    uint32_t other = followed(q, w);
    int64_t follows_ns = followed_ns(q, w);
    if (launched != INT64_MIN && launched >= follows_ns)
        return AFTER_LAUNCH;
    int64_t usual_ns = q->latency_ns[class_of(q, w)][AFTER_LAUNCH];
    if (other != NO_INDEX && (launched == INT64_MIN || follows_ns >= launched + usual_ns))
        return (int)replay_after_work(q, w, other);
    return -1;
}

static int64_t latency_of(const struct replay_rank *q, const struct replay_work *w, int after) {
    int64_t late_ns = w->start_ns - (after == AFTER_LAUNCH ? launched_ns(q, w) : followed_ns(q, w));
    return late_ns > 0 ? late_ns : 0;
}

static void find_medians(struct dtp_arena *a, struct replay_rank *q) {
    static const int order[] = {AFTER_LAUNCH, AFTER_WORK, AFTER_WORK_BESIDE_1, AFTER_WORK_BESIDE_2,
                                AFTER_SWITCH}; /* the first tells the rest */
    int64_t *v = DTP_NEW(a, int64_t, q->nwork + 1);
    for (int k = 0; k < NAFTER * DTP_NCLASSES; k++) {
        int after = order[k / DTP_NCLASSES], kind = k % DTP_NCLASSES;
        size_t n = 0;
        for (uint32_t i = 0; i < q->nwork; i++)
            if (class_of(q, &q->work[i]) == kind && starts_after(q, &q->work[i]) == after)
                v[n++] = latency_of(q, &q->work[i], after);
        int64_t median_ns = dtp_median_high_i64(v, n);
        q->latency_ns[kind][after] = median_ns < MOST_LATENCY_NS ? median_ns : MOST_LATENCY_NS;
    }
}

/* A kernel's own latency (its arguments, its grid) is the mean over its starts, without those that
 * something else delayed: what is late against the median of its class. */
static void find_means(struct dtp_arena *a, struct replay_rank *q) {
    q->of_name = DTP_NEW(a, struct replay_latency, NAFTER * ((size_t)dtp_trace_nnames(q->r) + 1));
    for (uint32_t i = 0; i < q->nwork; i++) {
        const struct replay_work *w = &q->work[i];
        int after = starts_after(q, w);
        if (after < 0)
            continue;
        int64_t usual_ns = q->latency_ns[class_of(q, w)][after];
        int64_t latency_ns = latency_of(q, w, after);
        if (latency_ns > 2 * usual_ns + REPLAY_ROOM_NS)
            continue;
        struct replay_latency *l =
            &q->of_name[NAFTER * dtp_trace_event(q->r, w->event)->name + (uint32_t)after];
        l->sum_ns += latency_ns;
        l->n++;
    }
}

/* The device takes new blocks while the last ones of a kernel drain: from this share of it on. */
#define DRAINS_FROM 0.6

/* Returns the work of one lane that ran while w was ready and waited, and that drained when w began. */
static uint32_t drained(const struct replay_rank *q, uint32_t from, uint32_t to,
                        const struct replay_work *w, int64_t ready_ns) {
    size_t before = dtp_rows_before(q->work + from, to - from, sizeof *q->work,
                                    offsetof(struct replay_work, start_ns), w->start_ns);
    if (before == 0)
        return NO_INDEX;
    uint32_t last = from + (uint32_t)before - 1;
    const struct replay_work *o = &q->work[last];
    double drains_ns = DRAINS_FROM * (double)(o->end_ns - o->start_ns);
    int64_t late_ns = w->start_ns - o->end_ns;
    bool fits = o->end_ns > ready_ns && late_ns < REPLAY_ROOM_NS &&
                (double)(w->start_ns - o->start_ns) >= drains_ns;
    return fits ? last : NO_INDEX;
}

/* Kernels that were ready and did not start until work of another stream drained: the device was
 * full. */
static void find_room(struct replay_rank *q) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        int64_t ready_ns = replay_expected_ns(q, w);
        if (ready_ns == INT64_MIN || w->start_ns - ready_ns < REPLAY_ROOM_NS)
            continue;
        for (size_t l = 0; l < q->nlanes; l++) {
            const uint32_t from = q->lane[l].from, to = q->lane[l].to;
            uint32_t o =
                q->work[from].lane == w->lane ? NO_INDEX : drained(q, from, to, w, ready_ns);
            if (o != NO_INDEX &&
                (w->makes_room == NO_INDEX || q->work[o].end_ns > q->work[w->makes_room].end_ns))
                w->makes_room = o;
        }
    }
}

int64_t replay_room_ns(const struct replay_rank *q, const struct replay_work *w) {
    const struct replay_work *o = &q->work[w->makes_room];
    int64_t dur_ns = o->end_ns - o->start_ns, at_ns = w->start_ns - o->start_ns;
    return at_ns < dur_ns ? at_ns : dur_ns;
}

void replay_find_latencies(struct dtp_arena *a, struct replay_rank *q) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        w->early = w->call != NO_INDEX && w->start_ns < q->call[w->call].issue_ns;
    }
    find_beside(q);
    add_markers(a, q);
    find_medians(a, q);
    find_means(a, q);
    find_room(q);
}

/* ---- traces whose durations were edited ---- */

enum { START_NS = 1500, LONG_NS = 10000, WAITED_NS = 20000, FEWEST = 8 };
#define AGREE 0.05   /* factors closer than this agree */
#define MAJORITY 0.2 /* share of a rank's overlaps that must */

/* Start of the next work of its stream, INT64_MAX at the last. */
static int64_t next_ns(const struct replay_rank *q, uint32_t i) {
    bool last = i + 1 == q->nwork || q->work[i + 1].lane != q->work[i].lane;
    return last ? INT64_MAX : q->work[i + 1].start_ns;
}

static bool overlaps(const struct replay_rank *q, uint32_t i) {
    int64_t next = next_ns(q, i);
    return next != INT64_MAX && q->work[i].end_ns - next > REPLAY_PROGRAMMATIC_NS &&
           next - q->work[i].start_ns > START_NS;
}

static bool is_kernel(const struct replay_rank *q, uint32_t i) {
    return dtp_trace_event(q->r, q->work[i].event)->class == DTP_CLASS_COMPUTE;
}

/* The factor by which the kernels of a rank were edited; 1 where none is to be seen. */
static double factor_of(struct dtp_arena *a, const struct replay_rank *q) {
    double *v = DTP_NEW(a, double, (size_t)q->nwork + 1);
    size_t n = 0, agree = 0;
    for (uint32_t i = 0; i < q->nwork; i++) {
        int64_t dur_ns = q->work[i].end_ns - q->work[i].start_ns;
        if (is_kernel(q, i) && dur_ns > LONG_NS && overlaps(q, i))
            v[n++] = (double)dur_ns / (double)(next_ns(q, i) - q->work[i].start_ns - START_NS);
    }
    if (n < FEWEST)
        return 1;
    qsort(v, n, sizeof *v, dtp_order_double);
    double factor = v[n - 1 - n / 10];
    for (size_t i = 0; i < n; i++)
        agree += v[i] > factor * (1 - AGREE) && v[i] < factor * (1 + AGREE);
    return (double)agree >= MAJORITY * (double)n ? factor : 1;
}

/* Returns the first start after that of w in the lane [from, to), if it was launched later and waited. */
static int64_t waited_ns(const struct replay_rank *q, uint32_t from, uint32_t to,
                         const struct replay_work *w) {
    size_t until = dtp_rows_until(q->work + from, to - from, sizeof *q->work,
                                  offsetof(struct replay_work, start_ns), w->start_ns);
    if (until == to - from)
        return INT64_MAX;
    const struct replay_work *o = &q->work[from + until];
    bool waited = o->order_ns > w->order_ns && o->start_ns - o->order_ns > WAITED_NS;
    return waited ? o->start_ns : INT64_MAX;
}

/* An overlap alone: when the first that can have waited for it started. */
static int64_t cut_ns(const struct replay_rank *q, uint32_t i) {
    int64_t end_ns = next_ns(q, i);
    for (size_t l = 0; l < q->nlanes; l++) {
        const uint32_t from = q->lane[l].from, to = q->lane[l].to;
        int64_t at_ns =
            q->work[from].lane == q->work[i].lane ? INT64_MAX : waited_ns(q, from, to, &q->work[i]);
        end_ns = at_ns < end_ns ? at_ns : end_ns;
    }
    return end_ns - START_NS;
}

static void put_back_kernels(struct replay_rank *q, double factor) {
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        int64_t dur_ns = w->end_ns - w->start_ns;
        if (is_kernel(q, i) && factor > 1)
            w->end_ns = w->start_ns + (int64_t)((double)dur_ns / factor);
        if (overlaps(q, i))
            w->end_ns = cut_ns(q, i) > w->start_ns ? cut_ns(q, i) : w->start_ns;
    }
}

static struct replay_work *work_of(struct replay_rank *rank, const struct dtp_match_member *o) {
    return &rank[o->rank].work[rank[o->rank].work_of[o->event]];
}

/* The members that started first and last. */
static void find_ends(const struct dtp_matches *m, struct replay_rank *rank,
                      const struct dtp_match *c, const struct replay_work **first,
                      const struct replay_work **last) {
    *first = *last = NULL;
    for (size_t k = c->first; k < c->first + c->n; k++) {
        const struct replay_work *w = work_of(rank, &m->member[k]);
        if (m->member[k].ahead)
            continue;
        if (!*first || w->start_ns < (*first)->start_ns)
            *first = w;
        if (!*last || w->start_ns > (*last)->start_ns)
            *last = w;
    }
}

static void put_back_collective(struct replay_rank *rank, const struct dtp_matches *m,
                                const struct dtp_match *c, const double *factor) {
    const struct replay_work *first, *last;
    find_ends(m, rank, c, &first, &last);
    if (!first || first->end_ns - last->end_ns <= DTP_MATCH_SKEW_NS)
        return;
    bool one_rank = false;
    for (size_t k = c->first; k < c->first + c->n; k++)
        one_rank |= factor[m->member[k].rank] > 1;
    double apart_ns = (double)(last->start_ns - first->start_ns);
    double more_ns = (double)((first->end_ns - first->start_ns) - (last->end_ns - last->start_ns));
    int64_t transfer_ns = c->end_ns - c->last_start_ns;
    if (!one_rank && apart_ns > 0 && more_ns > apart_ns)
        transfer_ns = (int64_t)((double)(last->end_ns - last->start_ns) * apart_ns / more_ns);
    for (size_t k = c->first; k < c->first + c->n; k++) {
        struct replay_work *w = work_of(rank, &m->member[k]);
        if (!m->member[k].ahead && m->member[k].tail_ns == 0)
            w->end_ns = c->last_start_ns + transfer_ns;
    }
}

void replay_find_edits(struct dtp_arena *a, struct replay_rank *rank, size_t nranks) {
    double *factor = DTP_NEW(a, double, nranks + 1);
    for (size_t r = 0; r < nranks; r++) {
        factor[r] = factor_of(a, &rank[r]);
        put_back_kernels(&rank[r], factor[r]);
    }
    for (size_t i = 0; nranks > 0 && i < rank[0].m->n; i++)
        put_back_collective(rank, rank[0].m, &rank[0].m->at[i], factor);
}

/* ---- work of the device ---- */

static int by_lane_then_start(const void *x, const void *y) {
    const struct replay_work *p = x, *q = y;
    if (p->lane != q->lane)
        return p->lane < q->lane ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

/* The work before it on its stream, since streams run in order. Work that began within REPLAY_PROGRAMMATIC_NS
 * of the end of the one before was let in early (programmatic dependent launch) and follows what came
 * before that; longer overlaps are errors of the trace. */
static uint32_t previous_of(const struct replay_rank *q, uint32_t i) {
    for (uint32_t j = i; j-- > 0 && q->work[j].lane == q->work[i].lane && i - j < 16;) {
        int64_t overlap_ns = q->work[j].end_ns - q->work[i].start_ns;
        if (overlap_ns <= 0 || overlap_ns > REPLAY_PROGRAMMATIC_NS)
            return j;
    }
    return NO_INDEX;
}

void replay_find_work(struct dtp_arena *a, struct replay_rank *q) {
    uint32_t n = 0;
    size_t most = 0;
    for (size_t i = 0; i < q->r->nevents; i++)
        most += dtp_trace_is_work(dtp_trace_event(q->r, i));
    q->work = DTP_NEW(a, struct replay_work, most + 1);
    q->work_of = DTP_NEW(a, uint32_t, q->r->nevents + 1);
    memset(q->work_of, 0xff, (q->r->nevents + 1) * sizeof *q->work_of);
    for (size_t i = 0; i < q->r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(q->r, i);
        if (!dtp_trace_is_work(e))
            continue;
        int64_t start_ns = dtp_trace_at_ns(q->m, q->r, e->start_ns);
        struct replay_work w = {.event = (uint32_t)i,
                                .lane = e->lane,
                                .start_ns = start_ns,
                                .end_ns = start_ns + e->dur_ns,
                                .order_ns = start_ns,
                                .call = NO_INDEX,
                                .waits_for = NO_INDEX,
                                .makes_room = NO_INDEX,
                                .match = NO_INDEX,
                                .match_after = NO_INDEX};
        uint32_t call = e->launch == DTP_TRACE_NONE ? NO_INDEX : q->call_of[e->launch];
        if (call != NO_INDEX && q->call[call].start_ns <= start_ns) {
            w.call = call;
            w.order_ns = q->call[call].start_ns;
        }
        q->work[n++] = w;
    }
    qsort(q->work, n, sizeof *q->work, by_lane_then_start);
    q->nwork = n;
    q->lane = DTP_NEW(a, struct replay_lane, (size_t)q->r->nlanes + 1);
    q->nlanes = 0;
    for (uint32_t i = 0; i < n; i++) {
        q->work_of[q->work[i].event] = i;
        if (i == 0 || q->work[i].lane != q->work[i - 1].lane)
            q->lane[q->nlanes++].from = i;
        q->lane[q->nlanes - 1].to = i + 1;
    }
}

void replay_find_previous(struct replay_rank *q) {
    for (uint32_t i = 0; i < q->nwork; i++)
        q->work[i].previous = previous_of(q, i);
}

/* ---- waits between streams ---- */

/* On one lane, the last work that was launched before order_ns and had ended by end_ns. Work of a
 * stream runs in the order of its launches, so both bounds cut a prefix. */
static uint32_t last_ended(const struct replay_rank *q, uint32_t from, uint32_t to,
                           int64_t order_ns, int64_t end_ns) {
    uint32_t low = from, high = to;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (q->work[mid].order_ns < order_ns && q->work[mid].end_ns <= end_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low == from ? NO_INDEX : low - 1;
}

/* The latest-ending work of the lanes other than `lane` (all, if lane is none). */
static uint32_t last_ended_elsewhere(const struct replay_rank *q, uint32_t lane, int64_t order_ns,
                                     int64_t end_ns) {
    uint32_t best = NO_INDEX;
    for (size_t l = 0; l < q->nlanes; l++) {
        const uint32_t from = q->lane[l].from, to = q->lane[l].to;
        if (q->work[from].lane == lane)
            continue;
        uint32_t found = last_ended(q, from, to, order_ns, end_ns);
        if (found != NO_INDEX && (best == NO_INDEX || q->work[found].end_ns > q->work[best].end_ns))
            best = found;
    }
    return best;
}

static bool is_named(const struct replay_rank *q, uint32_t event, const char *word) {
    return strstr(dtp_trace_name(q->r, dtp_trace_event(q->r, event)->name), word) != NULL;
}

static bool is_call(const struct replay_rank *q, uint32_t call, const char *word) {
    return is_named(q, q->call[call].event, word);
}

/* Starts of all cudaStreamWaitEvent calls, in order of time. */
static int64_t *find_wait_calls(struct dtp_arena *a, const struct replay_rank *q, size_t *out_n) {
    int64_t *v = DTP_NEW(a, int64_t, q->ncalls + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < q->ncalls; i++)
        if (is_call(q, i, "StreamWaitEvent"))
            v[n++] = q->call[i].start_ns;
    qsort(v, n, sizeof *v, dtp_order_i64);
    *out_n = n;
    return v;
}

/* The newest wait before order_ns, of any thread; INT64_MIN if there is none. */
static int64_t newest_before(const int64_t *v, size_t n, int64_t order_ns) {
    size_t before = dtp_rows_before(v, n, sizeof *v, 0, order_ns);
    return before > 0 ? v[before - 1] : INT64_MIN;
}

/* Copies to and from pageable memory block, and calls that are not named Async (hipMemcpyWithStream): the call
 * ends after its own copy. */
static uint32_t own_copy(const struct replay_rank *q, uint32_t call, const uint32_t *last_of) {
    uint32_t w = last_of[call];
    if (w == NO_INDEX ||
        (is_call(q, call, "Async") && !is_named(q, q->work[w].event, "Pageable")) ||
        q->work[w].end_ns > q->call[call].end_ns + REPLAY_SKEW_NS)
        return NO_INDEX;
    return w;
}

/* A call that blocks ends after the newest work that ended while it ran. */
static uint32_t synchronised(const struct replay_rank *q, uint32_t call) {
    const struct replay_call *c = &q->call[call];
    uint32_t w = last_ended_elsewhere(q, NO_INDEX, c->start_ns, c->end_ns + REPLAY_SKEW_NS);
    bool waited = w != NO_INDEX && q->work[w].end_ns > c->start_ns && q->work[w].call != NO_INDEX;
    return waited ? w : NO_INDEX;
}

/* All work launched before; its last end stands for it. */
static uint32_t last_before(const struct replay_rank *q, uint32_t call) {
    const struct replay_call *c = &q->call[call];
    uint32_t best = NO_INDEX;
    for (size_t l = 0; l < q->nlanes; l++) {
        const uint32_t from = q->lane[l].from, to = q->lane[l].to;
        uint32_t w = last_ended(q, from, to, c->start_ns, INT64_MAX);
        if (w != NO_INDEX && q->work[w].call != NO_INDEX &&
            (best == NO_INDEX || q->work[w].end_ns > q->work[best].end_ns))
            best = w;
    }
    return best != NO_INDEX && q->work[best].end_ns > c->start_ns ? best : NO_INDEX;
}

/* The launch of a graph waits while too many are under way: the work launched before it ends while it runs. One
 * that does not wait returns before that work ends, or begins after it has. */
static uint32_t held_graph(const struct replay_rank *q, uint32_t call) {
    uint32_t w = last_before(q, call);
    return w != NO_INDEX && q->work[w].end_ns <= q->call[call].end_ns ? w : NO_INDEX;
}

static void find_blocked(struct dtp_arena *a, struct replay_rank *q) {
    uint32_t *last_of = DTP_NEW(a, uint32_t, q->ncalls + 1); /* work of each call */
    memset(last_of, 0xff, (q->ncalls + 1) * sizeof *last_of);
    for (uint32_t i = 0; i < q->nwork; i++)
        if (q->work[i].call != NO_INDEX)
            last_of[q->work[i].call] = i;
    for (uint32_t i = 0; i < q->ncalls; i++) {
        if (is_call(q, i, "Memcpy"))
            q->call[i].waits_for = own_copy(q, i, last_of);
        else if (is_call(q, i, "DeviceSynchronize"))
            q->call[i].waits_for = last_before(q, i);
        else if (is_call(q, i, "GraphLaunch"))
            q->call[i].waits_for = held_graph(q, i);
        else if (is_call(q, i, "Synchronize") || is_call(q, i, "Free"))
            q->call[i].waits_for = synchronised(q, i);
    }
}

/* A stream was told to wait between two launches on it: for the newest work elsewhere that was
 * launched before the wait and had ended. (Kineto does not say which stream or event was meant.) */
void replay_find_waits(struct dtp_arena *a, struct replay_rank *q) {
    size_t n;
    const int64_t *wait_ns = find_wait_calls(a, q, &n);
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        bool first = i == 0 || q->work[i - 1].lane != w->lane;
        int64_t since_ns = first ? INT64_MIN : q->work[i - 1].order_ns;
        int64_t told_ns = w->call == NO_INDEX ? INT64_MIN : newest_before(wait_ns, n, w->order_ns);
        if (told_ns == INT64_MIN || told_ns < since_ns)
            continue;
        uint32_t other = last_ended_elsewhere(q, w->lane, told_ns, w->start_ns);
        if (other != NO_INDEX && q->work[other].end_ns > w->order_ns)
            w->waits_for = other;
    }
    find_blocked(a, q);
}
