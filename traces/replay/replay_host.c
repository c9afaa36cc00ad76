/* replay_host.c: calls of host threads, and which thread let which begin. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "traces/replay/replay_private.h"

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
    q->call = DTP_NEW(a, struct replay_call, q->r->nevents + 1);
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
