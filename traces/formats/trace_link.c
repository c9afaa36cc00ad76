/* trace_link.c: what can be told only when all events of a rank are there. */
#include <stdlib.h>
#include <string.h>

#include "traces/formats/trace.h"

struct key {
    uint64_t link;
    int64_t start_ns;
    uint32_t event;
};

static int by_link(const void *x, const void *y) {
    const struct key *p = x, *q = y;
    if (p->link != q->link)
        return p->link < q->link ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

static int by_time(const void *x, const void *y) {
    const struct key *p = x, *q = y;
    if (p->link != q->link) /* here: the lane */
        return p->link < q->link ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

static int by_step_time(const void *x, const void *y) {
    const struct dtp_trace_step *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

/* The last launch with this link that starts no later; the first of all if none does. */
static size_t find_launch(const struct key *key, size_t n, uint64_t link, int64_t start_ns,
                          size_t *out_same) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (key[mid].link < link)
            low = mid + 1;
        else
            high = mid;
    }
    size_t found = low;
    *out_same = 0;
    for (size_t i = low; i < n && key[i].link == link; i++) {
        if (key[i].start_ns <= start_ns)
            found = i;
        ++*out_same;
    }
    return found;
}

static void link_launches(struct dtp_trace_rank *r, struct key *key) {
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind == DTP_TRACE_CALL && e->link)
            key[n++] = (struct key){e->link, e->start_ns, (uint32_t)i};
    }
    qsort(key, n, sizeof *key, by_link);
    for (size_t i = 0; i < r->nevents; i++) {
        struct dtp_trace_event *e = dtp_trace_event(r, i);
        size_t same = 0;
        if (!dtp_trace_is_work(e) && e->kind != DTP_TRACE_SYNC)
            continue;
        size_t at = e->link ? find_launch(key, n, e->link, e->start_ns, &same) : 0;
        if (same > 0)
            e->launch = key[at].event;
        if (!dtp_trace_is_work(e))
            continue;
        if (same == 0)
            dtp_trace_warn(r, DTP_WARN_NO_LAUNCH, 0);
        else if (key[at].start_ns > e->start_ns)
            dtp_trace_warn(r, DTP_WARN_BEFORE_LAUNCH, 0);
        if (same > 1)
            dtp_trace_warn(r, DTP_WARN_AMBIGUOUS_LINK, 0);
    }
}

static void count_overlaps(struct dtp_trace_rank *r, struct key *key) {
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (dtp_trace_is_work(e)) {
            key[n++] = (struct key){e->lane, e->start_ns, (uint32_t)i};
            r->lane[e->lane].nwork++;
        }
    }
    qsort(key, n, sizeof *key, by_time);
    for (size_t i = 1; i < n; i++)
        if (key[i].link == key[i - 1].link &&
            key[i].start_ns < dtp_trace_end_ns(dtp_trace_event(r, key[i - 1].event)))
            dtp_trace_warn(r, DTP_WARN_OVERLAP, 0);
}

void dtp_trace_finish(struct dtp_trace_rank *r) {
    struct dtp_arena *scratch = dtp_arena_create("trace links");
    struct key *key = DTP_NEW(scratch, struct key, r->nevents + 1);
    /* long C++ names: each is looked at once */
    unsigned char *class = DTP_NEW(scratch, unsigned char, dtp_trace_nnames(r) + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e))
            continue;
        if (class[e->name] == 0)
            class[e->name] = (unsigned char)(1 + dtp_trace_classify(dtp_trace_name(r, e->name),
                                                                    (enum dtp_trace_kind)e->kind));
        e->class = (uint8_t)(class[e->name] - 1);
    }
    link_launches(r, key);
    count_overlaps(r, key);
    if (r->nsteps > 1)
        qsort(r->step, r->nsteps, sizeof *r->step, by_step_time);
    dtp_arena_destroy(scratch);
}
