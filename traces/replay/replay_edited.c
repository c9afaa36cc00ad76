/* replay_edited.c: traces in which durations were edited and times were not.
 *
 * "What if these kernels took half as long again" is asked by editing `dur` in the file, too. Then work
 * ends after what waited for it has begun, and dependencies cannot be told from the ends. The ends are
 * put back where the others saw them; the durations that are replayed stay the edited ones.
 *
 *     kernels       streams run in order: dur / (next start - start - START_NS) is at most the factor, and
 *                   the factor itself where the next was queued. If many overlaps of a rank agree on one
 *                   factor, all its kernels were edited; else an overlap alone is cut: at the start of the
 *                   next, or of work of another stream that was launched later and had been waiting
 *     collectives   ends are common: s1 + d1/f = s2 + d2/f gives the factor of one whose ends differ
 */
#include <stdlib.h>

#include "sim/base/order.h"
#include "traces/replay/replay_private.h"

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

/* Of the lane [from, to): the first start after that of w, if it was launched later and waited. */
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
    for (uint32_t from = 0, to; from < q->nwork; from = to) {
        for (to = from + 1; to < q->nwork && q->work[to].lane == q->work[from].lane; to++)
            ;
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
