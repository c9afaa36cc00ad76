#include "sim/maxmin.h"

#include <assert.h>

/* An activity on a link; y is the limit of the activity elsewhere, as this link last noted it. */
struct entry {
    double y, w;
    uint32_t activity, k; /* k: the link is the k-th of the activity */
};

struct link {
    double capacity;
    struct entry *e;
    uint32_t n, e_capacity;
    uint32_t queued; /* as dirty */
};

struct place {
    uint32_t link, at; /* links[link].e[at] is this activity */
};

struct activity {
    double lowest, second; /* the two lowest among its cap and the levels of its links */
    double rate, cap;
    uint32_t arg, arg_second; /* the k of those, or DTP_NONE for the cap */
    uint32_t n, place_capacity;
    struct place *place;
    uint32_t active, listed;
};

struct dirty {
    double key;
    uint32_t link;
};

struct dtp_maxmin {
    struct dtp_arena *a;
    uint32_t nlinks, nactivities;
    struct link *link;
    double *level; /* [nlinks], apart from the links: read most */
    struct activity *act;
    struct dirty *dirty;
    uint32_t ndirty, dirty_capacity;
    uint32_t *touched; /* activities whose lowest has changed, then those to report */
    uint32_t ntouched, touched_capacity;
    double tolerance; /* for this solve */
    uint64_t nsolved; /* links solved by (4) so far */
};

static void reserve_activities(struct dtp_maxmin *m, uint32_t n) {
    m->act = dtp_arena_grow(m->a, m->act, sizeof *m->act, m->nactivities, n);
    m->nactivities = n;
}

struct dtp_maxmin *dtp_maxmin_create(struct dtp_arena *a, const struct dtp_platform *p,
                                     uint32_t max_activities) {
    struct dtp_maxmin *m = DTP_NEW(a, struct dtp_maxmin, 1);
    m->a = a;
    m->nlinks = p->nlinks;
    m->link = DTP_NEW(a, struct link, p->nlinks);
    m->level = DTP_NEW(a, double, p->nlinks);
    for (uint32_t l = 0; l < p->nlinks; l++) {
        m->link[l].capacity = p->link_capacity_per_s[l];
        m->level[l] = INFINITY;
    }
    reserve_activities(m, max_activities ? max_activities : 1);
    return m;
}

static int differs(const struct dtp_maxmin *m, double x, double y) {
    /* not <= rather than >: infinity against a number gives nan or infinity */
    return x != y && !(fabs(x - y) <= m->tolerance * (x < y ? x : y));
}

static void touch(struct dtp_maxmin *m, uint32_t i) {
    if (m->act[i].listed)
        return;
    m->act[i].listed = 1;
    if (m->ntouched == m->touched_capacity) {
        uint32_t n = m->touched_capacity ? 2 * m->touched_capacity : 64;
        m->touched = dtp_arena_grow(m->a, m->touched, sizeof(uint32_t), m->ntouched, n);
        m->touched_capacity = n;
    }
    m->touched[m->ntouched++] = i;
}

static int dirty_before(struct dirty x, struct dirty y) {
    return x.key < y.key || (x.key == y.key && x.link < y.link);
}

static void dirty_up(struct dtp_maxmin *m, uint32_t i, struct dirty d) {
    while (i > 0 && dirty_before(d, m->dirty[(i - 1) / 2])) {
        m->dirty[i] = m->dirty[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->dirty[i] = d;
}

/* Queues the link by its present level: changes travel from low levels to high ones. */
static void mark(struct dtp_maxmin *m, uint32_t l) {
    if (m->link[l].queued)
        return;
    if (m->ndirty == m->dirty_capacity) {
        uint32_t n = m->dirty_capacity ? 2 * m->dirty_capacity : 64;
        m->dirty = dtp_arena_grow(m->a, m->dirty, sizeof *m->dirty, m->ndirty, n);
        m->dirty_capacity = n;
    }
    m->link[l].queued = 1;
    dirty_up(m, m->ndirty++, (struct dirty){m->level[l], l});
}

static uint32_t pop_dirty(struct dtp_maxmin *m) {
    uint32_t l = m->dirty[0].link, i = 0, n = --m->ndirty;
    struct dirty last = m->dirty[n];
    m->link[l].queued = 0;
    for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && dirty_before(m->dirty[c + 1], m->dirty[c]))
            c++;
        if (!dirty_before(m->dirty[c], last))
            break;
        m->dirty[i] = m->dirty[c];
    }
    m->dirty[i] = last;
    return l;
}

/* Finds the lowest and second lowest of cap and levels. */
static void scan_limits(struct dtp_maxmin *m, struct activity *x) {
    x->lowest = x->cap;
    x->arg = DTP_NONE;
    x->second = INFINITY;
    x->arg_second = DTP_NONE;
    for (uint32_t k = 0; k < x->n; k++) {
        double level = m->level[x->place[k].link];
        if (level < x->lowest) {
            x->second = x->lowest;
            x->arg_second = x->arg;
            x->lowest = level;
            x->arg = k;
        } else if (level < x->second) {
            x->second = level;
            x->arg_second = k;
        }
    }
}

/* Tells the links of x (all but `except`) their new y; those whose level may depend on it are dirty. */
static void push_limits(struct dtp_maxmin *m, const struct activity *x, uint32_t except) {
    for (uint32_t k = 0; k < x->n; k++) {
        uint32_t l = x->place[k].link;
        struct link *link = &m->link[l];
        struct entry *e = &link->e[x->place[k].at];
        double y = k == x->arg ? x->second : x->lowest, old = e->y, level = m->level[l];
        if (k == except || !differs(m, y, old))
            continue;
        e->y = y;
        if (link->n < 2)
            continue;
        /* unsaturated and asked for less: it stays so; both above the level: no term of (4) changes */
        if (isinf(level) ? y > old : (y < old ? y : old) < level)
            mark(m, l);
    }
}

/* The level of the k-th link of activity i is now `level`. */
static void take_level(struct dtp_maxmin *m, uint32_t i, uint32_t k, double level) {
    struct activity *x = &m->act[i];
    double lowest = x->lowest, second = x->second;
    uint32_t arg = x->arg;
    if (k == x->arg && level <= second) {
        x->lowest = level;
    } else if (k == x->arg || k == x->arg_second) {
        scan_limits(m, x);
    } else if (level < lowest) {
        x->second = lowest;
        x->arg_second = arg;
        x->lowest = level;
        x->arg = k;
    } else if (level < second) {
        x->second = level;
        x->arg_second = k;
    }
    if (x->lowest != lowest)
        touch(m, i);
    if (x->n > 1 && (x->lowest != lowest || x->second != second || x->arg != arg))
        push_limits(m, x, k);
}

/* Equation (4) by Newton's method from a guess. The left side is concave and piecewise linear in the
 * level, so the first step lands at or below the solution and the next ones climb to it, one piece
 * after the other; few pieces lie between a level and its last. The terms are summed from zero in each
 * step, so that nothing cancels twice. */
static double level_of(const struct link *link, double guess, double tolerance) {
    double level = guess;
    if (link->n == 0)
        return INFINITY;
    if (link->n == 1)
        return link->capacity / link->e[0].w;
    for (int step = 0;; step++) {
        double fixed = 0, weight = 0, bound = level * (1 + tolerance);
        for (uint32_t i = 0; i < link->n; i++) {
            const struct entry *e = &link->e[i];
            /* selections of values, not of sums: no branch to mispredict */
            double y = e->y <= bound ? e->y : 0, w = e->y <= bound ? 0 : e->w;
            fixed += e->w * y;
            weight += w;
        }
        if (weight == 0 && (step > 0 || fixed <= link->capacity))
            return INFINITY;
        double next = weight > 0 ? (link->capacity - fixed) / weight : 0;
        if (next == level || (step > 1 && next < level))
            return level;
        level = next;
    }
}

static void solve_link(struct dtp_maxmin *m, uint32_t l) {
    struct link *link = &m->link[l];
    double level = level_of(link, m->level[l], m->tolerance);
    m->nsolved++;
    if (!differs(m, level, m->level[l]))
        return;
    m->level[l] = level;
    for (uint32_t i = 0; i < link->n; i++)
        take_level(m, link->e[i].activity, link->e[i].k, level);
}

static void add_place(struct dtp_maxmin *m, uint32_t i, uint32_t l, double w) {
    struct activity *x = &m->act[i];
    struct link *link = &m->link[l];
    if (x->n == x->place_capacity) {
        uint32_t n = x->place_capacity ? 2 * x->place_capacity : 4;
        x->place = dtp_arena_grow(m->a, x->place, sizeof *x->place, x->n, n);
        x->place_capacity = n;
    }
    if (link->n == link->e_capacity) {
        uint32_t n = link->e_capacity ? 2 * link->e_capacity : 4;
        link->e = dtp_arena_grow(m->a, link->e, sizeof *link->e, link->n, n);
        link->e_capacity = n;
    }
    x->place[x->n] = (struct place){l, link->n};
    link->e[link->n++] = (struct entry){INFINITY, w, i, x->n++};
    if (link->n == 1)
        m->level[l] = link->capacity / w;
    else
        mark(m, l);
}

void dtp_maxmin_add(struct dtp_maxmin *m, uint32_t activity, double rate_cap,
                    const struct dtp_use *uses, uint32_t nuses) {
    if (activity >= m->nactivities)
        reserve_activities(m, activity >= 2 * m->nactivities ? activity + 1 : 2 * m->nactivities);
    struct activity *x = &m->act[activity];
    assert(!x->active);
    x->active = 1;
    x->cap = rate_cap;
    x->rate = 0;
    x->n = 0;
    for (uint32_t k = 0; k < nuses; k++)
        if (uses[k].kind == DTP_USE_LINK)
            add_place(m, activity, uses[k].resource, uses[k].weight);
    scan_limits(m, x);
    for (uint32_t k = 0; k < x->n; k++)
        m->link[x->place[k].link].e[x->place[k].at].y = k == x->arg ? x->second : x->lowest;
    touch(m, activity);
}

void dtp_maxmin_remove(struct dtp_maxmin *m, uint32_t activity) {
    struct activity *x = &m->act[activity];
    assert(x->active);
    x->active = 0;
    for (uint32_t k = 0; k < x->n; k++) {
        uint32_t l = x->place[k].link, at = x->place[k].at;
        struct link *link = &m->link[l];
        struct entry *moved = &link->e[--link->n];
        if (at != link->n) {
            link->e[at] = *moved;
            m->act[moved->activity].place[moved->k].at = at;
        }
        if (link->n == 0)
            m->level[l] = INFINITY;
        else if (link->n == 1 || !isinf(m->level[l]))
            mark(m, l);
    }
}

void dtp_maxmin_set_cap(struct dtp_maxmin *m, uint32_t activity, double rate_cap) {
    struct activity *x = &m->act[activity];
    assert(x->active);
    x->cap = rate_cap;
    scan_limits(m, x);
    touch(m, activity);
    push_limits(m, x, DTP_NONE);
}

uint32_t dtp_maxmin_solve(struct dtp_maxmin *m, const uint32_t **changed) {
    uint64_t patience = m->nsolved + 1024, n = 0;
    m->tolerance = DTP_MAXMIN_TOLERANCE;
    while (m->ndirty > 0) {
        solve_link(m, pop_dirty(m));
        /* rounding may make two levels chase each other by some ulp: then ulps count for less */
        if (m->nsolved > patience + 64 * (uint64_t)m->nlinks) {
            m->tolerance *= 2;
            patience += 1024;
        }
    }
    m->tolerance = DTP_MAXMIN_TOLERANCE;
    for (uint32_t t = 0; t < m->ntouched; t++) {
        struct activity *x = &m->act[m->touched[t]];
        x->listed = 0;
        if (!x->active || (x->rate > 0 && !differs(m, x->lowest, x->rate)))
            continue;
        x->rate = x->lowest;
        m->touched[n++] = m->touched[t];
    }
    m->ntouched = 0;
    *changed = m->touched;
    return (uint32_t)n;
}

double dtp_maxmin_rate(const struct dtp_maxmin *m, uint32_t activity) {
    return m->act[activity].rate;
}
