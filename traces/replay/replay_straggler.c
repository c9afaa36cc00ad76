/* replay_straggler.c: what if no rank took longer to a collective than the median rank. */
#include <stdlib.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "traces/replay/replay_private.h"

/* What-if on stragglers: in each stretch between two collectives, a rank that took longer than the
 * median rank is as much faster. */
double replay_stretch_speed(const struct replay_rank *q, int64_t start_ns) {
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

/* What the median rank of the collective computed in a window: where collectives run beside compute, a
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

void replay_find_stretches(struct replay_state *s) {
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
