/* replay_work.c: work of the streams, what it waited for, and the latencies of its starts. */
#include <stdlib.h>
#include <string.h>

#include "traces/replay_private.h"

static int by_lane_start(const void *x, const void *y) {
    const struct replay_work *p = x, *q = y;
    if (p->lane != q->lane)
        return p->lane < q->lane ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

/* The work before it on its stream that had ended; work that overlaps (programmatic launch) is
 * not waited for. */
static uint32_t previous_of(const struct replay_rank *q, uint32_t i) {
    for (uint32_t j = i; j-- > 0 && q->work[j].lane == q->work[i].lane && i - j < 16;)
        if (q->work[j].end_ns <= q->work[i].start_ns)
            return j;
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
                                .match = NO_INDEX};
        uint32_t call = e->launch == DTP_TRACE_NONE ? NO_INDEX : q->call_of[e->launch];
        if (call != NO_INDEX && q->call[call].start_ns <= start_ns) {
            w.call = call;
            w.order_ns = q->call[call].start_ns;
        }
        q->work[n++] = w;
    }
    qsort(q->work, n, sizeof *q->work, by_lane_start);
    q->nwork = n;
    for (uint32_t i = 0; i < n; i++) {
        q->work_of[q->work[i].event] = i;
        q->work[i].previous = previous_of(q, i);
    }
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

static bool is_call(const struct replay_rank *q, uint32_t call, const char *word) {
    return strstr(dtp_trace_name(q->r, dtp_trace_event(q->r, q->call[call].event)->name), word) !=
           NULL;
}

/* The newest cudaStreamWaitEvent since the launch before this one on the same thread. */
static uint32_t wait_before(const struct replay_rank *q, const uint32_t *launches, uint32_t call) {
    for (uint32_t i = call; i-- > 0 && q->call[i].lane == q->call[call].lane;) {
        if (is_call(q, i, "StreamWaitEvent"))
            return i;
        if (launches[i] > 0)
            break;
    }
    return NO_INDEX;
}

/* A call that blocks: it ends after the newest work that ended while it ran. */
static void find_blocked(struct replay_rank *q) {
    for (uint32_t i = 0; i < q->ncalls; i++) {
        struct replay_call *c = &q->call[i];
        if (!is_call(q, i, "Synchronize") && !is_call(q, i, "Memcpy") && !is_call(q, i, "Free"))
            continue;
        uint32_t w = last_ended_elsewhere(q, NO_INDEX, c->start_ns + 1, c->end_ns + REPLAY_SKEW_NS);
        if (w != NO_INDEX && q->work[w].end_ns > c->start_ns && q->work[w].call != NO_INDEX &&
            (q->work[w].call != i || q->work[w].start_ns < c->end_ns))
            c->waits_for = w;
    }
}

void replay_find_waits(struct dtp_arena *a, struct replay_rank *q) {
    uint32_t *launches = DTP_NEW(a, uint32_t, q->ncalls + 1);
    for (uint32_t i = 0; i < q->nwork; i++)
        if (q->work[i].call != NO_INDEX)
            launches[q->work[i].call]++;
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        if (w->call == NO_INDEX)
            continue;
        uint32_t wait = wait_before(q, launches, w->call);
        if (wait == NO_INDEX)
            continue;
        uint32_t other = last_ended_elsewhere(q, w->lane, q->call[wait].start_ns, w->start_ns);
        bool later = other != NO_INDEX && q->work[other].end_ns > w->order_ns;
        if (later)
            w->waits_for = other;
    }
    find_blocked(q);
}

/* ---- latencies ---- */

static int64_t launched_ns(const struct replay_rank *q, const struct replay_work *w) {
    const struct replay_call *c = &q->call[w->call];
    return w->early ? c->start_ns : c->issue_ns;
}

int64_t replay_ready_ns(const struct replay_rank *q, const struct replay_work *w) {
    int64_t ready_ns = w->call == NO_INDEX ? INT64_MIN : launched_ns(q, w);
    uint32_t others[] = {w->previous, w->waits_for};
    for (int i = 0; i < 2; i++)
        if (others[i] != NO_INDEX && q->work[others[i]].end_ns > ready_ns)
            ready_ns = q->work[others[i]].end_ns;
    return ready_ns;
}

static int by_value(const void *x, const void *y) {
    int64_t p = *(const int64_t *)x, q = *(const int64_t *)y;
    return p < q ? -1 : p > q;
}

static int64_t median(int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
    return n > 0 ? v[n / 2] : 0;
}

void replay_find_latencies(struct dtp_arena *a, struct replay_rank *q) {
    int64_t *launch = DTP_NEW(a, int64_t, q->nwork + 1), *queue = DTP_NEW(a, int64_t, q->nwork + 1);
    size_t nlaunch = 0, nqueue = 0;
    for (uint32_t i = 0; i < q->nwork; i++) {
        struct replay_work *w = &q->work[i];
        w->early = w->call != NO_INDEX && w->start_ns < q->call[w->call].issue_ns;
        int64_t ready_ns = replay_ready_ns(q, w);
        if (ready_ns == INT64_MIN)
            continue;
        w->after_launch = w->call != NO_INDEX && launched_ns(q, w) == ready_ns;
        if (w->after_launch)
            launch[nlaunch++] = w->start_ns - ready_ns;
        else
            queue[nqueue++] = w->start_ns - ready_ns;
    }
    q->launch_ns = median(launch, nlaunch);
    q->queue_ns = median(queue, nqueue);
}
