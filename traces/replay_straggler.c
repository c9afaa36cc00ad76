/* replay_straggler.c: what if no rank took longer to a collective than the median rank. */
#include <stdlib.h>

#include "traces/replay_private.h"

/* What-if on stragglers: in each stretch between two collectives, a rank that took longer than the
 * median rank is as much faster. */
double replay_stretch_speed(const struct replay_rank *q, int64_t start_ns) {
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

void replay_find_stretches(struct replay_state *s) {
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
