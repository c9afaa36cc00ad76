#include "traces/replay/streams.h"

#include <stdlib.h>

#include "sim/base/units.h"
#include "traces/replay/analyse.h"

static int by_busy(const void *x, const void *y) {
    const struct dtp_trace_stream *p = x, *q = y;
    if (p->busy_ns != q->busy_ns)
        return p->busy_ns > q->busy_ns ? -1 : 1;
    return p->stream < q->stream ? -1 : p->stream > q->stream;
}

/* Work of a lane, in order of starts. */
struct piece {
    uint32_t lane;
    int64_t start_ns, end_ns;
    int class;
};

static int by_lane(const void *x, const void *y) {
    const struct piece *p = x, *q = y;
    if (p->lane != q->lane)
        return p->lane < q->lane ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->end_ns < q->end_ns ? -1 : p->end_ns > q->end_ns;
}

static struct piece *pieces_of(struct dtp_arena *a, const struct dtp_trace_rank *r, size_t *out_n) {
    struct piece *v = DTP_NEW(a, struct piece, r->nevents + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (dtp_trace_is_work(e))
            v[n++] = (struct piece){e->lane, e->start_ns, dtp_trace_end_ns(e), e->class};
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_lane);
    *out_n = n;
    return v;
}

void dtp_trace_streams(struct dtp_arena *a, const struct dtp_trace_rank *r,
                       struct dtp_trace_stream **out, size_t *out_n) {
    size_t n, nstreams = 0;
    const struct piece *v = pieces_of(a, r, &n);
    struct dtp_trace_stream *s = DTP_NEW(a, struct dtp_trace_stream, (size_t)r->nlanes + 1);
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || v[i - 1].lane != v[i].lane;
        if (first)
            s[nstreams++] = (struct dtp_trace_stream){.device = r->lane[v[i].lane].device,
                                                      .stream = r->lane[v[i].lane].stream,
                                                      .first_ns = v[i].start_ns,
                                                      .last_ns = v[i].start_ns};
        struct dtp_trace_stream *own = &s[nstreams - 1];
        int64_t from_ns = v[i].start_ns > own->last_ns ? v[i].start_ns : own->last_ns;
        if (v[i].end_ns > from_ns) {
            own->busy_ns += v[i].end_ns - from_ns;
            own->last_ns = v[i].end_ns;
        }
        own->class_ns[v[i].class] += v[i].end_ns - v[i].start_ns;
        own->nwork++;
    }
    if (nstreams > 1)
        qsort(s, nstreams, sizeof *s, by_busy);
    *out = s;
    *out_n = nstreams;
}

/* ---- pipelines ---- */

/* Finds the first and last compute that a rank launched in [from_ns, from_ns + wall_ns), since the origin. */
static bool compute_window(const struct dtp_trace_rank *r, const struct dtp_matches *m,
                           const struct dtp_trace_step *step, int64_t *first_ns, int64_t *last_ns) {
    bool any = false;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e) || e->class != DTP_CLASS_COMPUTE)
            continue;
        int64_t launched_ns =
            e->launch == DTP_TRACE_NONE ? e->start_ns : dtp_trace_event(r, e->launch)->start_ns;
        if (launched_ns < step->start_ns || launched_ns >= step->start_ns + step->dur_ns)
            continue;
        int64_t start_ns = dtp_trace_at_ns(m, r, e->start_ns), end_ns = start_ns + e->dur_ns;
        *first_ns = start_ns < *first_ns ? start_ns : *first_ns;
        *last_ns = end_ns > *last_ns ? end_ns : *last_ns;
        any = true;
    }
    return any;
}

/* Sum over the ranks of the time between their own start of a transfer and the last one's. */
static int64_t waiting_ns(const struct dtp_trace *t, const struct dtp_matches *m, int64_t first_ns,
                          int64_t last_ns) {
    int64_t sum_ns = 0;
    for (size_t i = 0; i < m->n; i++) {
        const struct dtp_match *x = &m->at[i];
        if (x->op != DTP_COMM_SEND_RECV || x->end_ns <= first_ns || x->end_ns > last_ns)
            continue;
        for (size_t k = x->first; k < x->first + x->n; k++) {
            const struct dtp_match_member *o = &m->member[k];
            const struct dtp_trace_rank *r = &t->rank[o->rank];
            int64_t start_ns = dtp_trace_at_ns(m, r, dtp_trace_event(r, o->event)->start_ns);
            start_ns = start_ns > first_ns ? start_ns : first_ns;
            if (!o->ahead && x->last_start_ns > start_ns)
                sum_ns += x->last_start_ns - start_ns;
        }
    }
    return sum_ns;
}

static bool has_transfers(const struct dtp_matches *m) {
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].op == DTP_COMM_SEND_RECV)
            return true;
    return false;
}

void dtp_trace_pipeline_bubble(struct dtp_arena *a, const struct dtp_trace *t,
                               const struct dtp_matches *m, size_t step,
                               struct dtp_trace_bubble *out) {
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN, compute_ns = 0;
    *out = (struct dtp_trace_bubble){0};
    if (t->nranks < 2 || !has_transfers(m))
        return;
    for (size_t i = 0; i < t->nranks; i++) {
        const struct dtp_trace_step *s;
        struct dtp_trace_times times;
        size_t n;
        dtp_trace_steps(a, &t->rank[i], &s, &n);
        if (step >= n || !compute_window(&t->rank[i], m, &s[step], &first_ns, &last_ns))
            return;
        dtp_trace_times_launched(&t->rank[i], s[step].start_ns, s[step].start_ns + s[step].dur_ns,
                                 &times);
        compute_ns += times.compute_ns;
    }
    double window_ns = (double)(last_ns - first_ns), nranks = (double)t->nranks;
    if (window_ns <= 0)
        return;
    out->found = true;
    out->window_s = window_ns * DTP_NANO;
    out->fraction = 1 - (double)compute_ns / nranks / window_ns;
    out->waiting_fraction = (double)waiting_ns(t, m, first_ns, last_ns) / nranks / window_ns;
}
