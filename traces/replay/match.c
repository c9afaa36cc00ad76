#include "traces/replay/match.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/stats.h"

/* ---- communication kernels of a rank ---- */

struct span { /* a host record of a collective */
    uint32_t lane, event;
    int64_t start_ns, end_ns;
};

static int by_lane_start(const void *x, const void *y) {
    const struct span *p = x, *q = y;
    if (p->lane != q->lane)
        return p->lane < q->lane ? -1 : 1;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

static int by_order(const void *x, const void *y) {
    const struct dtp_comm_kernel *p = x, *q = y;
    if (p->order_ns != q->order_ns)
        return p->order_ns < q->order_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

/* Operators whose first input is the result and the second the source, or the other way round. */
static bool has_ratio(const struct dtp_trace_rank *r, const struct dtp_trace_event *e) {
    const char *name = dtp_trace_name(r, e->name);
    return e->kind == DTP_TRACE_OP && e->shape != DTP_TRACE_NONE &&
           (strcmp(name, "c10d::_allgather_base_") == 0 ||
            strcmp(name, "c10d::_reduce_scatter_base_") == 0);
}

static bool is_record(const struct dtp_trace_rank *r, const struct dtp_trace_event *e) {
    return (e->kind == DTP_TRACE_ANNOTATION || e->kind == DTP_TRACE_OP) &&
           strncmp(dtp_trace_name(r, e->name), "nccl:", 5) == 0;
}

/* The last record that starts no later than the call, if it is still open then. */
static const struct span *record_around(const struct span *v, size_t n,
                                        const struct dtp_trace_event *call) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        bool before = v[mid].lane < call->lane ||
                      (v[mid].lane == call->lane && v[mid].start_ns <= call->start_ns);
        if (before)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || v[low - 1].lane != call->lane || v[low - 1].end_ns < call->start_ns)
        return NULL;
    return &v[low - 1];
}

/* Returns the elements of the tensor "[2,512]" at *at, which moves past it; 0: there is none. */
static uint64_t elements_at(char **at) {
    uint64_t n = 1;
    *at += strcspn(*at, "0123456789]");
    if (**at == ']' || **at == '\0')
        return 0;
    while (**at && **at != ']') {
        n *= strtoull(*at, at, 10);
        *at += strspn(*at, ", ");
    }
    *at += **at == ']';
    return n;
}

/* "[[16,512],[2,512],[]]": 8. */
static int ratio_of(const char *shape) {
    char *at = (char *)(uintptr_t)shape;
    uint64_t x = elements_at(&at), y = elements_at(&at);
    uint64_t most = x > y ? x : y, least = x > y ? y : x;
    return least > 0 && most % least == 0 && most / least > 1 && most / least < INT32_MAX
               ? (int)(most / least)
               : 0;
}

/* As the record says, else by the list of process groups, else by elements in and out. */
static int group_size_of(const struct dtp_trace_rank *r, const struct dtp_comm_info *info) {
    const struct dtp_trace_comm *c = info->comm;
    if (c && c->group_size > 0)
        return c->group_size;
    for (size_t g = 0; g < r->ngroups; g++)
        if (r->ngroups == 1 || (c && c->group[0] && strcmp(r->group[g].name, c->group) == 0))
            return r->group[g].size;
    bool sized = info->op == DTP_COMM_ALL_GATHER || info->op == DTP_COMM_REDUCE_SCATTER;
    if (!c || !sized || c->in_elements == 0 || c->out_elements == 0)
        return 0;
    uint64_t most = c->in_elements > c->out_elements ? c->in_elements : c->out_elements;
    uint64_t least = c->in_elements + c->out_elements - most;
    return most % least == 0 && most / least > 1 ? (int)(most / least) : 0;
}

static struct dtp_comm_info info_of(const struct dtp_trace_rank *r, const struct dtp_trace_event *e,
                                    const struct span *record) {
    struct dtp_comm_info info = {dtp_comm_op_of(dtp_trace_name(r, e->name)), NULL, 0};
    if (e->comm != DTP_TRACE_NONE) {
        info.comm = &r->comm[e->comm];
        enum dtp_comm_op named = dtp_comm_op_of(info.comm->collective);
        info.op = named == DTP_COMM_UNKNOWN ? info.op : named;
    } else if (record) {
        const struct dtp_trace_event *host = dtp_trace_event(r, record->event);
        info.comm = host->comm == DTP_TRACE_NONE ? NULL : &r->comm[host->comm];
        enum dtp_comm_op named = dtp_comm_op_of(dtp_trace_name(r, host->name));
        info.op = named == DTP_COMM_UNKNOWN ? info.op : named;
    }
    info.group_size = group_size_of(r, &info);
    return info;
}

typedef bool wanted(const struct dtp_trace_rank *r, const struct dtp_trace_event *e);

static struct span *spans_of(struct dtp_arena *a, const struct dtp_trace_rank *r, wanted *is,
                             size_t *out_n) {
    size_t n = 0, capacity = 0;
    struct span *span = NULL;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!is(r, e))
            continue;
        span = dtp_arena_room(a, span, sizeof *span, n, &capacity);
        span[n++] = (struct span){e->lane, (uint32_t)i, e->start_ns, dtp_trace_end_ns(e)};
    }
    if (n > 1)
        qsort(span, n, sizeof *span, by_lane_start);
    *out_n = n;
    return span;
}

void dtp_trace_comm_kernels(struct dtp_arena *a, const struct dtp_trace_rank *r,
                            struct dtp_comm_kernel **out, size_t *out_n) {
    size_t nspans, nops, n = 0;
    const struct span *span = spans_of(a, r, is_record, &nspans);
    const struct span *op = spans_of(a, r, has_ratio, &nops);
    for (size_t i = 0; i < r->nevents; i++)
        n += dtp_trace_is_work(dtp_trace_event(r, i)) &&
             dtp_trace_event(r, i)->class == DTP_CLASS_COMM;
    struct dtp_comm_kernel *k = DTP_NEW(a, struct dtp_comm_kernel, n + 1);
    n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e) || e->class != DTP_CLASS_COMM)
            continue;
        const struct dtp_trace_event *call =
            e->launch == DTP_TRACE_NONE ? NULL : dtp_trace_event(r, e->launch);
        const struct span *record = call ? record_around(span, nspans, call) : NULL;
        const struct span *around = call ? record_around(op, nops, call) : NULL;
        k[n] = (struct dtp_comm_kernel){(uint32_t)i, call ? call->start_ns : e->start_ns,
                                        info_of(r, e, record)};
        bool sized = k[n].info.op == DTP_COMM_ALL_GATHER || k[n].info.op == DTP_COMM_REDUCE_SCATTER;
        if (k[n].info.group_size == 0 && around && sized)
            k[n].info.group_size =
                ratio_of(dtp_trace_name(r, dtp_trace_event(r, around->event)->shape));
        n++;
    }
    qsort(k, n, sizeof *k, by_order);
    *out = k;
    *out_n = n;
}

/* ---- the same collective on several ranks ---- */

struct entry { /* one kernel: sorted so that those of one collective are neighbours */
    const char *group;
    int64_t sequence;
    uint32_t rank, event;
    struct dtp_comm_info info;
};

static int by_collective(const void *x, const void *y) {
    const struct entry *p = x, *q = y;
    int c = strcmp(p->group, q->group);
    if (c != 0)
        return c;
    if (p->sequence != q->sequence)
        return p->sequence < q->sequence ? -1 : 1;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

static const char *group_of(struct dtp_arena *a, const struct dtp_trace *t, size_t rank,
                            const struct dtp_comm_info *info) {
    const struct dtp_trace_comm *c = info->comm;
    bool cut = c && strstr(c->group_ranks, "...");
    if (c && (c->group[0] || (c->group_ranks[0] && !cut)))
        return dtp_arena_printf(a, "%s %s", c->group, cut ? "" : c->group_ranks);
    if (info->op == DTP_COMM_SEND_RECV && t->rank[rank].world_size != 2)
        return dtp_arena_printf(a, "\x7f rank %zu", rank); /* its partner cannot be told */
    return "";
}

/* The k-th of its group on this rank, unless the record has a number. v: of one rank, as launched. */
static void number(struct entry *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct dtp_trace_comm *c = v[i].info.comm;
        size_t j = i;
        while (j-- > 0 && strcmp(v[j].group, v[i].group) != 0)
            ;
        if (c && c->seq >= 0)
            v[i].sequence = c->seq;
        else if (j < i)
            v[i].sequence = v[j].sequence + 1;
    }
}

static struct entry *collect(struct dtp_arena *a, const struct dtp_trace *t, size_t *out_n) {
    struct entry *v = NULL;
    size_t n = 0;
    for (uint32_t r = 0; r < t->nranks; r++) {
        struct dtp_comm_kernel *k;
        size_t nk;
        dtp_trace_comm_kernels(a, &t->rank[r], &k, &nk);
        v = dtp_arena_grow(a, v, sizeof *v, n, n + nk + 1);
        size_t first = n;
        for (size_t i = 0; i < nk; i++)
            v[n++] = (struct entry){group_of(a, t, r, &k[i].info), 0, r, k[i].event, k[i].info};
        number(v + first, n - first);
    }
    if (n > 0)
        qsort(v, n, sizeof *v, by_collective);
    *out_n = n;
    return v;
}

int64_t dtp_trace_at_ns(const struct dtp_matches *m, const struct dtp_trace_rank *r,
                        int64_t start_ns) {
    return r->base_ns - m->origin_ns + start_ns + r->offset_ns;
}

static void find_origin(const struct dtp_trace *t, struct dtp_matches *out) {
    out->origin_ns = INT64_MAX;
    for (size_t r = 0; r < t->nranks; r++)
        for (size_t i = 0; i < t->rank[r].nevents; i++) {
            int64_t at_ns = t->rank[r].base_ns + dtp_trace_event(&t->rank[r], i)->start_ns;
            out->origin_ns = at_ns < out->origin_ns ? at_ns : out->origin_ns;
        }
    if (out->origin_ns == INT64_MAX)
        out->origin_ns = 0;
}

static void build(struct dtp_arena *a, struct dtp_trace *t, struct dtp_matches *out) {
    size_t n;
    const struct entry *v = collect(a, t, &n);
    out->at = DTP_NEW(a, struct dtp_match, n + 1);
    out->member = DTP_NEW(a, struct dtp_match_member, n + 1);
    out->n = 0;
    size_t nmembers = 0;
    for (size_t i = 0, j; i < n; i = j) {
        struct dtp_match *m = &out->at[out->n];
        *m = (struct dtp_match){.op = v[i].info.op, .group = v[i].group, .first = nmembers};
        for (j = i; j < n && strcmp(v[j].group, v[i].group) == 0 &&
                    v[j].sequence == v[i].sequence && v[j].info.op == v[i].info.op;
             j++) {
            const struct dtp_trace_comm *c = v[j].info.comm;
            if (c && c->in_bytes > m->bytes)
                m->bytes = c->in_bytes;
            if (v[j].info.group_size > 0)
                m->group_size = v[j].info.group_size;
            out->member[nmembers++] = (struct dtp_match_member){v[j].rank, v[j].event, false, 0};
        }
        m->n = j - i;
        int world = t->rank[v[i].rank].world_size;
        if (m->group_size == 0) {
            m->group_size = world > 0 ? world : (int)t->nranks;
            m->group_assumed = m->n != (size_t)m->group_size;
        }
        if (m->n < t->nranks && m->n < (size_t)m->group_size)
            dtp_trace_warn(&t->rank[v[i].rank], DTP_WARN_UNMATCHED, 0);
        out->n++;
    }
}

/* ---- clocks ---- */

enum { SPREAD_NS = 200000 }; /* limit for the middle half of the differences of ends */

static int64_t member_end_ns(const struct dtp_trace *t, const struct dtp_matches *m, size_t i) {
    const struct dtp_trace_rank *r = &t->rank[m->member[i].rank];
    return dtp_trace_at_ns(m, r, dtp_trace_end_ns(dtp_trace_event(r, m->member[i].event)));
}

/* End of rank `of` less that of a placed rank, for each collective both have. */
static size_t differences(const struct dtp_trace *t, const struct dtp_matches *m, uint32_t of,
                          const bool *placed, int64_t *out, enum dtp_align align) {
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        size_t own = SIZE_MAX, other = SIZE_MAX;
        if ((align == DTP_ALIGN_EVEN && i % 2 == 1) || (align == DTP_ALIGN_ODD && i % 2 == 0))
            continue;
        for (size_t k = m->at[i].first; k < m->at[i].first + m->at[i].n; k++) {
            if (m->member[k].ahead)
                continue;
            if (m->member[k].rank == of)
                own = k;
            else if (placed[m->member[k].rank] && other == SIZE_MAX)
                other = k;
        }
        if (own != SIZE_MAX && other != SIZE_MAX)
            out[n++] = member_end_ns(t, m, other) - member_end_ns(t, m, own);
    }
    return n;
}

/* Ends that differ by other amounts each time tell nothing of the clocks (durations were edited);
 * sorted. */
static bool is_spread(const int64_t *difference, size_t n) {
    return difference[(3 * n) / 4 < n ? (3 * n) / 4 : n - 1] - difference[n / 4] > SPREAD_NS;
}

static void align_clocks(struct dtp_arena *a, struct dtp_trace *t, const struct dtp_matches *m,
                         enum dtp_align align) {
    bool *placed = DTP_NEW(a, bool, t->nranks + 1), again = true;
    int64_t *difference = DTP_NEW(a, int64_t, m->n + 1);
    placed[0] = true;
    while (again && align != DTP_ALIGN_NONE) {
        again = false;
        for (uint32_t r = 0; r < t->nranks; r++) {
            if (placed[r])
                continue;
            size_t n = differences(t, m, r, placed, difference, align);
            if (n == 0)
                continue;
            int64_t offset_ns = dtp_median_i64(difference, n);
            t->rank[r].offset_ns = is_spread(difference, n) ? 0 : offset_ns;
            placed[r] = again = true;
        }
    }
}

static int64_t member_start_ns(const struct dtp_trace *t, const struct dtp_matches *m, size_t i) {
    const struct dtp_trace_rank *r = &t->rank[m->member[i].rank];
    return dtp_trace_at_ns(m, r, dtp_trace_event(r, m->member[i].event)->start_ns);
}

static void find_last_starts(const struct dtp_trace *t, struct dtp_matches *out) {
    for (size_t i = 0; i < out->n; i++) {
        struct dtp_match *m = &out->at[i];
        m->last_start_ns = INT64_MIN;
        for (size_t k = m->first; k < m->first + m->n; k++) {
            int64_t start_ns = member_start_ns(t, out, k);
            m->last_start_ns = start_ns > m->last_start_ns ? start_ns : m->last_start_ns;
        }
        for (size_t k = m->first; k < m->first + m->n && m->op == DTP_COMM_SEND_RECV; k++)
            out->member[k].ahead = member_end_ns(t, out, k) <= m->last_start_ns;
    }
}

/* Ends that are further apart than clocks and skew explain are those of ranks with a tail, or of ranks
 * that waited in a record whose durations were edited: the first end is the common one. */
static int64_t common_end(int64_t *end_ns, size_t n) {
    int64_t middle_ns = dtp_median_i64(end_ns, n);
    return n > 0 && middle_ns - end_ns[0] > DTP_MATCH_SKEW_NS / 2 &&
                   end_ns[n - 1] - end_ns[0] > DTP_MATCH_SKEW_NS
               ? end_ns[0]
               : middle_ns;
}

/* No more than a quarter of the transfer: more is no record of what happened. */
static void find_tails(const struct dtp_trace *t, struct dtp_matches *out, struct dtp_match *m) {
    for (size_t k = m->first; k < m->first + m->n; k++) {
        int64_t tail_ns = member_end_ns(t, out, k) - m->end_ns;
        if (!out->member[k].ahead && tail_ns > DTP_MATCH_SKEW_NS &&
            tail_ns < (m->end_ns - m->last_start_ns) / 4)
            out->member[k].tail_ns = tail_ns;
    }
}

static void measure(struct dtp_arena *a, const struct dtp_trace *t, struct dtp_matches *out) {
    int64_t *end_ns = DTP_NEW(a, int64_t, t->nranks + 1);
    for (size_t i = 0; i < out->n; i++) {
        struct dtp_match *m = &out->at[i];
        size_t n = 0;
        for (size_t k = m->first; k < m->first + m->n; k++)
            if (n < t->nranks && !out->member[k].ahead)
                end_ns[n++] = member_end_ns(t, out, k);
        m->end_ns = common_end(end_ns, n);
        find_tails(t, out, m);
        m->transfer_ns = m->end_ns > m->last_start_ns ? m->end_ns - m->last_start_ns : 0;
    }
}

static int by_end(const void *x, const void *y) {
    const struct dtp_match *p = x, *q = y;
    if (p->end_ns != q->end_ns)
        return p->end_ns < q->end_ns ? -1 : 1;
    return p->first < q->first ? -1 : p->first > q->first;
}

void dtp_trace_match(struct dtp_arena *a, struct dtp_trace *t, enum dtp_align align,
                     struct dtp_matches *out) {
    find_origin(t, out);
    build(a, t, out);
    for (size_t r = 0; r < t->nranks; r++)
        t->rank[r].offset_ns = 0;
    find_last_starts(t, out);
    align_clocks(a, t, out, align);
    find_last_starts(t, out);
    measure(a, t, out);
    qsort(out->at, out->n, sizeof *out->at, by_end);
}
