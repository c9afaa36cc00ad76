/* replay_latency.c: how long after its launch or other work a start comes. */
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "traces/replay/replay_private.h"

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

/* Whether a lane [from, to) had work that was launched and had not started at at_ns. */
static bool waits_at(const struct replay_rank *q, uint32_t from, uint32_t to, int64_t at_ns) {
    uint32_t i = from + (uint32_t)dtp_rows_until(q->work + from, to - from, sizeof *q->work,
                                                 offsetof(struct replay_work, start_ns), at_ns);
    return i < to && q->work[i].call != NO_INDEX && q->work[i].order_ns < at_ns;
}

/* A thread that synchronises with the device has a marker wait in every stream. */
static void add_markers(struct replay_rank *q) {
    for (uint32_t c = 0; c < q->ncalls; c++) {
        if (!strstr(dtp_trace_name(q->r, dtp_trace_event(q->r, q->call[c].event)->name),
                    "DeviceSynchronize"))
            continue;
        for (uint32_t i = 0; i < q->nwork; i++) {
            struct replay_work *w = &q->work[i];
            uint32_t other = followed(q, w);
            int64_t at_ns = other != NO_INDEX ? q->work[other].end_ns : INT64_MIN;
            if (at_ns > q->call[c].start_ns && at_ns < q->call[c].end_ns && w->beside < 2)
                w->beside++;
        }
    }
}

static void find_beside(struct replay_rank *q) {
    for (uint32_t from = 0, to; from < q->nwork; from = to) {
        for (to = from + 1; to < q->nwork && q->work[to].lane == q->work[from].lane; to++)
            ;
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

/* Which of the two let it start, where there is no doubt: -1 where both could have. */
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
        q->latency_ns[kind][after] = dtp_median_high_i64(v, n);
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

/* Of one lane: work that was under way while w was ready and waited, and that drained when w began. */
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
        for (uint32_t from = 0, to; from < q->nwork; from = to) {
            for (to = from + 1; to < q->nwork && q->work[to].lane == q->work[from].lane; to++)
                ;
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
    add_markers(q);
    find_medians(a, q);
    find_means(a, q);
    find_room(q);
}
