/* replay_work.c: work of the streams and what it waited for. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "traces/replay/replay_private.h"

static int by_lane_start(const void *x, const void *y) {
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
    q->work = DTP_NEW(a, struct replay_work, q->r->nevents + 1);
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
    qsort(q->work, n, sizeof *q->work, by_lane_start);
    q->nwork = n;
    for (uint32_t i = 0; i < n; i++)
        q->work_of[q->work[i].event] = i;
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
    for (uint32_t from = 0, to; from < q->nwork; from = to) {
        for (to = from + 1; to < q->nwork && q->work[to].lane == q->work[from].lane; to++)
            ;
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

/* Copies to and from pageable memory block: the call ends after its own copy. */
static uint32_t own_copy(const struct replay_rank *q, uint32_t call, const uint32_t *last_of) {
    uint32_t w = last_of[call];
    if (w == NO_INDEX || !is_named(q, q->work[w].event, "Pageable") ||
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
    for (uint32_t from = 0, to; from < q->nwork; from = to) {
        for (to = from + 1; to < q->nwork && q->work[to].lane == q->work[from].lane; to++)
            ;
        uint32_t w = last_ended(q, from, to, c->start_ns, INT64_MAX);
        if (w != NO_INDEX && q->work[w].call != NO_INDEX &&
            (best == NO_INDEX || q->work[w].end_ns > q->work[best].end_ns))
            best = w;
    }
    return best != NO_INDEX && q->work[best].end_ns > c->start_ns ? best : NO_INDEX;
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
