/* replay_results.c: steps, collectives and ends of a replayed job, and what its tasks are called. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "traces/replay/replay_private.h"

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
        out->step[i] = (struct dtp_replayed_step){step[i].name, replay_seconds(step[i].dur_ns),
                                                  to_s - from_s, replay_seconds(from_ns), from_s};
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

void replay_take_rank(struct replay_state *s, size_t rank, const struct dtp_timeline *line,
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

void replay_describe(const void *ctx, dtp_id task, struct dtp_critical_task *out) {
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
    case PART_LATENCY:
        break;
    }
    *out = (struct dtp_critical_task){"latency of starts", q->r->rank, DTP_CRITICAL_LATENCY};
}
