/* replay_regroup.c: what if collectives were overlapped or bucketed differently. */
#include <string.h>

#include "sim/base/order.h"
#include "traces/replay/replay_private.h"

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
 * (the optimizer) is behind it, and its stream runs in order. */
void replay_find_loose(struct replay_state *s) {
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

/* What work waits for instead of `other`: what came before the loose ones. */
uint32_t replay_firm(const struct replay_rank *q, const struct replay_work *w, uint32_t other) {
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
uint32_t *replay_find_buckets(struct replay_state *s) {
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

/* The latency that a collective saves in a bucket: where t = a + b bytes through the smallest and the
 * largest of its operation and group cuts 0. Of one size alone nothing can be told: 0. */
double replay_saved_s(const struct replay_state *s, uint32_t i) {
    const struct dtp_match *m = &s->m->at[i], *small = m, *large = m;
    for (size_t k = 0; k < s->m->n; k++) {
        const struct dtp_match *o = &s->m->at[k];
        if (o->op != m->op || o->bytes == 0 || strcmp(o->group, m->group) != 0)
            continue;
        if (o->bytes < small->bytes)
            small = o;
        if (o->bytes > large->bytes)
            large = o;
    }
    if (small->bytes == large->bytes)
        return 0;
    double per_byte_s = replay_seconds(large->transfer_ns - small->transfer_ns) /
                        (double)(large->bytes - small->bytes);
    double latency_s = replay_seconds(small->transfer_ns) - per_byte_s * (double)small->bytes;
    double own_s = replay_seconds(m->transfer_ns);
    latency_s = latency_s < own_s ? latency_s : own_s;
    return latency_s > 0 ? latency_s * s->options->network_latency : 0;
}
