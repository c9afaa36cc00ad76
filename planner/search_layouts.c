/* The best plan of each layout, for the layouts that come next after the best. */
#include <stdlib.h>

#include "planner/search_internal.h"

enum { LAYOUT_WAVE = 16 };

struct layout {
    int tp, pp, cp, ep, etp;
    size_t first, n; /* in members[] */
    size_t next;     /* first member that was not estimated */
    double bound_s;  /* its first member's */
    struct contender *best;
};

struct member {
    int tp, pp, cp, ep, etp;
    struct contender *contender;
};

static int compare_int(int a, int b) {
    return a < b ? -1 : a > b;
}

static int compare_layout(const struct member *a, const struct member *b) {
    int c = compare_int(a->tp, b->tp);
    c = c ? c : compare_int(a->pp, b->pp);
    c = c ? c : compare_int(a->cp, b->cp);
    c = c ? c : compare_int(a->ep, b->ep);
    return c ? c : compare_int(a->etp, b->etp);
}

/* Contenders lie in one array by (bound, number): within a layout the address is that order. */
static int by_layout(const void *x, const void *y) {
    const struct member *a = x, *b = y;
    int c = compare_layout(a, b);
    return c ? c : a->contender < b->contender ? -1 : a->contender > b->contender;
}

static int by_bound(const void *x, const void *y) {
    const struct layout *a = x, *b = y;
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    return compare_int((int)a->first, (int)b->first);
}

static size_t group(struct searcher *s, struct member *members, struct layout *layouts) {
    size_t n = 0;
    for (size_t i = 0; i < s->ncontenders; i++) {
        struct dtp_plan p;
        dtp_space_candidate(&s->out->space, s->contender[i].number, &p);
        members[i] = (struct member){p.tp, p.pp, p.cp, p.ep, p.etp, &s->contender[i]};
    }
    qsort(members, s->ncontenders, sizeof *members, by_layout);
    for (size_t i = 0; i < s->ncontenders; i++) {
        if (i == 0 || compare_layout(&members[i - 1], &members[i]) != 0)
            layouts[n++] = (struct layout){.tp = members[i].tp,
                                           .pp = members[i].pp,
                                           .cp = members[i].cp,
                                           .ep = members[i].ep,
                                           .etp = members[i].etp,
                                           .first = i,
                                           .next = i,
                                           .bound_s = members[i].contender->bound_s};
        layouts[n - 1].n++;
    }
    qsort(layouts, n, sizeof *layouts, by_bound);
    return n;
}

static bool better(const struct contender *a, const struct contender *b) {
    if (!b)
        return true;
    return a->estimate_s != b->estimate_s ? a->estimate_s < b->estimate_s : a->number < b->number;
}

/* Estimates members in order of bound until none can beat the best of the layout. */
static void best_of(struct searcher *s, const struct member *members, struct layout *layout) {
    struct contender *wave[LAYOUT_WAVE], *seen[LAYOUT_WAVE];
    size_t end = layout->first + layout->n;
    for (;;) {
        size_t n = 0, nseen = 0;
        while (nseen < LAYOUT_WAVE && layout->next < end) {
            struct contender *c = members[layout->next].contender;
            if (layout->best && c->bound_s > layout->best->estimate_s)
                break;
            layout->next++;
            seen[nseen++] = c;
            if (c->estimate_s == 0)
                wave[n++] = c;
        }
        if (nseen == 0)
            return;
        dtp_search_estimate(s, wave, n);
        for (size_t i = 0; i < nseen; i++)
            if (better(seen[i], layout->best))
                layout->best = seen[i];
    }
}

struct contender *dtp_search_usual(struct searcher *s) {
    struct member *members = DTP_NEW(s->a, struct member, s->ncontenders + 1);
    struct layout usual = {0};
    for (size_t i = 0; i < s->ncontenders; i++) {
        struct dtp_plan p;
        dtp_search_plan(s->out, s->contender[i].legal, &p);
        if (dtp_plan_is_usual(&p))
            members[usual.n++].contender = &s->contender[i];
    }
    best_of(s, members, &usual);
    return usual.best;
}

size_t dtp_search_layouts(struct searcher *s, struct contender **out) {
    int most = s->options.layouts + 1; /* the best plan's own is one of them */
    if (most > DTP_MOST_LAYOUTS)
        most = DTP_MOST_LAYOUTS;
    if (most < 1 || s->ncontenders == 0)
        return 0;
    struct member *members = DTP_NEW(s->a, struct member, s->ncontenders);
    struct layout *layouts = DTP_NEW(s->a, struct layout, s->ncontenders);
    size_t nlayouts = group(s, members, layouts), n = 0;
    for (size_t i = 0; i < nlayouts; i++) {
        if (n == (size_t)most && layouts[i].bound_s > out[n - 1]->estimate_s)
            break;
        best_of(s, members, &layouts[i]);
        struct contender *c = layouts[i].best;
        if (n == (size_t)most && !better(c, out[n - 1]))
            continue;
        size_t at = n < (size_t)most ? n++ : n - 1;
        for (; at > 0 && better(c, out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = c;
    }
    return n;
}
