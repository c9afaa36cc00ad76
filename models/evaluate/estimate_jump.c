#include <math.h>
#include <string.h>

#include "models/evaluate/estimate_walk.h"

struct jumping {
    struct dtp_walk *w;
    uint32_t period, shift;   /* actions; microbatches */
    bool feeds_forward;       /* no rank ever waits for one after it */
    uint32_t *begin, *end;    /* [pp] periodic region of each rank */
    uint32_t nwalked, depth;  /* periods; of the history */
    double *history_s;        /* [depth * pp] free_s after period k, at k % depth */
    double *busy_s, *grown_s; /* [pp] a period ago; since the cut compared with */
};

static bool repeats(const struct jumping *j, const struct dtp_action *at) {
    const struct dtp_action *old = at - j->period;
    return at->kind == old->kind && at->chunk == old->chunk &&
           at->microbatch == old->microbatch + j->shift;
}

/* The longest run of the rank's actions to come that repeat, without those that are cut into parts or alone. */
static bool find_region(struct jumping *j, int r) {
    const struct dtp_layout *l = &j->w->l;
    const struct dtp_schedule *s = l->schedule;
    uint32_t run = 0, best = 0, best_end = 0;
    for (uint32_t i = j->w->state[r].pos + j->period; i < s->begin[r + 1]; i++) {
        run = repeats(j, &s->action[i]) ? run + 1 : 0;
        if (run > best) {
            best = run;
            best_end = i + 1;
        }
    }
    uint32_t begin = best_end - best - j->period, end = best_end;
    for (int c = 0; c < l->vpp && l->parts; c++) {
        int vs = l->stage_of[r * l->vpp + c];
        begin = begin > l->first[vs] ? begin : l->first[vs] + 1;
        end = end < l->last[vs] ? end : l->last[vs];
    }
    if (l->paired) {
        begin = begin > l->paired[r].from ? begin : l->paired[r].from;
        end = end < l->paired[r].to ? end : l->paired[r].to;
    }
    j->begin[r] = begin;
    j->end[r] = end;
    return best > 0 && begin < end && end - begin >= 4 * j->period;
}

static bool start(struct dtp_arena *a, struct jumping *j) {
    const struct dtp_layout *l = &j->w->l;
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[l->schedule->kind];
    uint32_t kinds = l->split ? 3 : 2;
    size_t n = (size_t)l->pp;
    /* units in every action make no period of their own worth finding */
    if (l->parts && (l->unsharded || l->costs->reduce_per_microbatch))
        return false;
    j->shift = kind->chunked ? (uint32_t)l->pp : 1;
    j->period = kind->phases ? 1 : kinds * j->shift * (uint32_t)l->vpp;
    j->feeds_forward = kind->phases && l->p2p != DTP_P2P_RENDEZVOUS;
    if ((uint32_t)l->m < 6 * j->shift || l->pp == 1)
        return false;
    j->begin = DTP_NEW(a, uint32_t, n);
    j->end = DTP_NEW(a, uint32_t, n);
    j->depth = (uint32_t)l->pp + 1;
    j->history_s = DTP_NEW(a, double, n * j->depth);
    j->busy_s = DTP_NEW(a, double, n);
    j->grown_s = DTP_NEW(a, double, n);
    return true;
}

static bool find_regions(struct jumping *j) {
    j->nwalked = 0;
    for (int r = 0; r < j->w->l.pp; r++)
        if (!find_region(j, r))
            return false;
    return true;
}

static void set_stops(struct jumping *j, uint32_t beyond) {
    for (int r = 0; r < j->w->l.pp; r++)
        j->w->state[r].stop = j->w->state[r].pos + beyond;
}

/* The first cut with every rank in its region: the ranks walk a few actions at a time, so that none
 * runs far ahead. */
static bool reach_region(struct jumping *j) {
    struct dtp_walk *w = j->w;
    bool moved = true;
    while (moved) {
        bool inside = true;
        for (int r = 0; r < w->l.pp; r++)
            inside = inside && w->state[r].pos >= j->begin[r];
        if (inside)
            return true;
        uint64_t sum = 0, after = 0;
        for (int r = 0; r < w->l.pp; r++) {
            struct dtp_walk_rank *s = &w->state[r];
            sum += s->pos;
            uint32_t next = s->pos + (s->pos < j->begin[r] ? j->period : 1);
            s->stop = next < s->end ? next : s->end;
        }
        dtp_walk_sweep(w);
        for (int r = 0; r < w->l.pp; r++)
            after += w->state[r].pos;
        moved = after > sum;
    }
    return false;
}

/* Periods that every rank still has before the end of its region. */
static uint32_t periods_left(const struct jumping *j) {
    uint32_t least = UINT32_MAX;
    for (int r = 0; r < j->w->l.pp; r++) {
        uint32_t pos = j->w->state[r].pos;
        uint32_t n = pos < j->end[r] ? (j->end[r] - pos) / j->period : 0;
        least = n < least ? n : least;
    }
    return least;
}

static double *history_at(const struct jumping *j, uint32_t walked) {
    return j->history_s + (size_t)(walked % j->depth) * (size_t)j->w->l.pp;
}

static void remember(struct jumping *j) {
    double *now_s = history_at(j, j->nwalked);
    for (int r = 0; r < j->w->l.pp; r++)
        now_s[r] = j->w->state[r].free_s;
}

/* One period on all ranks; false: some rank cannot go that far from this cut. */
static bool walk_period(struct jumping *j) {
    struct dtp_walk *w = j->w;
    for (int r = 0; r < w->l.pp; r++)
        j->busy_s[r] = w->path[r].busy_s;
    set_stops(j, j->period);
    dtp_walk_sweep(w);
    for (int r = 0; r < w->l.pp; r++)
        if (w->state[r].pos != w->state[r].stop)
            return false;
    j->nwalked++;
    remember(j);
    return true;
}

/* ---- transfers under way on the cut ---- */

static int row_sender(const struct dtp_layout *l, int row) {
    return l->rank_of[row < l->nstages ? row : row - l->nstages];
}

/* First microbatch of the row (virtual stage and direction) that its consumer still waits for. */
static uint32_t next_consumed(const struct jumping *j, int row) {
    const struct dtp_layout *l = &j->w->l;
    int vs = row < l->nstages ? row + 1 : row - l->nstages - 1, r = l->rank_of[vs];
    for (uint32_t i = j->w->state[r].pos; i < l->schedule->begin[r + 1]; i++) {
        struct dtp_action act = l->schedule->action[i];
        bool forward = act.kind == DTP_A_F, is_w = act.kind == DTP_A_W;
        if (l->stage_of[r * l->vpp + act.chunk] == vs && !is_w && forward == (row < l->nstages))
            return act.microbatch;
    }
    return (uint32_t)l->m;
}

/* Microbatches first .. last of the row have been sent and may still be needed. In phases the order is
 * that of the microbatches: the first one tells whether any was sent. */
static bool under_way(const struct jumping *j, int row, uint32_t *first, uint32_t *last) {
    const struct dtp_layout *l = &j->w->l;
    const double *sent_s = j->w->sent_s + (size_t)row * (size_t)l->m;
    if (dtp_schedule_kinds[l->schedule->kind].phases && sent_s[0] < 0)
        return false;
    uint32_t n = (uint32_t)l->m, next = next_consumed(j, row), x = next;
    while (x < n && sent_s[x] >= 0)
        x++;
    while (x > 0 && sent_s[x - 1] < 0)
        x--;
    if (x == 0)
        return false;
    *last = x - 1;
    *first = next;
    bool holds = j->w->state[row_sender(l, row)].out == (int64_t)row * l->m + *last;
    if (*first > *last && holds)
        *first = *last; /* the last sent holds its sender (rendezvous) */
    return *first <= *last;
}

struct growth {
    uint32_t periods;
    double limit_s;
};

/* Of a row: what is under way now came as much later than what was under way then as its sender. */
static bool row_grew(const struct jumping *j, int row, const struct growth *g) {
    const struct dtp_walk *w = j->w;
    uint32_t first, last, back = g->periods * j->shift;
    double step_s = j->grown_s[row_sender(&w->l, row)];
    if (row == w->l.nstages - 1 || row == w->l.nstages || !under_way(j, row, &first, &last))
        return true; /* the last stage sends no activations, the first no gradients */
    if (first < back)
        return false;
    const double *sent_s = w->sent_s + (size_t)row * (size_t)w->l.m;
    const double *posted_s = w->posted_s ? w->posted_s + (size_t)row * (size_t)w->l.m : NULL;
    for (uint32_t x = first; x <= last; x++) {
        if (!(fabs(sent_s[x] - sent_s[x - back] - step_s) <= g->limit_s))
            return false;
        bool posted = posted_s && posted_s[x] >= 0;
        if (posted && !(fabs(posted_s[x] - posted_s[x - back] - step_s) <= g->limit_s))
            return false;
    }
    return true;
}

/* The rank's last action did not wait for its input. */
static bool own_bound(const struct jumping *j, int r) {
    const struct dtp_layout *l = &j->w->l;
    struct dtp_action act = l->schedule->action[j->w->state[r].pos - 1];
    int64_t in = dtp_slot_in(l, act.kind, l->stage_of[r * l->vpp + act.chunk], act.microbatch);
    return in < 0 || j->w->sent_s[in] <= history_at(j, j->nwalked - 1)[r];
}

/* The rank grows as the one before it does; or by more, and it never waits for it any more. */
static bool follows(const struct jumping *j, int r, const struct growth *g) {
    struct dtp_action act = j->w->l.schedule->action[j->w->state[r].pos - 1];
    int before = act.kind == DTP_A_F ? r - 1 : r + 1;
    if (before < 0 || before >= j->w->l.pp)
        return true;
    double more_s = j->grown_s[r] - j->grown_s[before];
    return fabs(more_s) <= g->limit_s || (more_s > 0 && own_bound(j, r));
}

/* The whole state grew by the same since so many periods, to what rounding allows over those left;
 * where ranks only feed those after them, each by its own. */
static bool grew_evenly(struct jumping *j, uint32_t left, struct growth *g) {
    static const double rounding = 4e-16, most_error = 1e-13;
    const double *now_s = history_at(j, j->nwalked);
    const double *then_s = history_at(j, j->nwalked - g->periods);
    double limit = most_error * g->periods / (left + 1);
    g->limit_s = (limit > rounding ? limit : rounding) * now_s[0];
    for (int r = 0; r < j->w->l.pp; r++) {
        j->grown_s[r] = now_s[r] - then_s[r];
        if (!j->feeds_forward && !(fabs(j->grown_s[r] - j->grown_s[0]) <= g->limit_s))
            return false;
    }
    for (int r = 0; r < j->w->l.pp && j->feeds_forward; r++)
        if (g->periods != 1 || !follows(j, r, g))
            return false;
    for (int row = 0; row < 2 * j->w->l.nstages; row++)
        if (!row_grew(j, row, g))
            return false;
    return true;
}

static void move_row(struct jumping *j, int row, uint32_t periods, double grown_s) {
    struct dtp_walk *w = j->w;
    uint32_t first, last, by = periods * j->shift;
    if (row == w->l.nstages - 1 || row == w->l.nstages || !under_way(j, row, &first, &last))
        return;
    double *sent_s = w->sent_s + (size_t)row * (size_t)w->l.m;
    double *posted_s = w->posted_s ? w->posted_s + (size_t)row * (size_t)w->l.m : NULL;
    for (uint32_t x = last + 1; x-- > first;) {
        sent_s[x + by] = sent_s[x] + grown_s;
        if (posted_s)
            posted_s[x + by] = posted_s[x] < 0 ? -1 : posted_s[x] + grown_s;
    }
}

static uint64_t jump(struct jumping *j, const struct growth *g, uint32_t left) {
    struct dtp_walk *w = j->w;
    uint32_t times = left / g->periods, periods = times * g->periods;
    for (int row = 0; row < 2 * w->l.nstages; row++)
        move_row(j, row, periods, j->grown_s[row_sender(&w->l, row)] * times);
    for (int r = 0; r < w->l.pp; r++) {
        struct dtp_walk_rank *s = &w->state[r];
        s->pos += periods * j->period;
        s->free_s += j->grown_s[r] * times;
        if (s->out >= 0)
            s->out += periods * j->shift;
        w->path[r].busy_s += (w->path[r].busy_s - j->busy_s[r]) * periods;
        w->path[r].last_s += j->grown_s[r] * times;
    }
    return (uint64_t)periods * j->period * (uint64_t)w->l.pp;
}

/* A critical cycle through c microbatches lets the state repeat every c periods only. */
static uint64_t try_jump(struct jumping *j) {
    uint32_t left = periods_left(j);
    struct growth g = {.periods = 1};
    for (; g.periods < j->depth && g.periods <= j->nwalked && g.periods <= left; g.periods++)
        if (grew_evenly(j, left, &g))
            return jump(j, &g, left);
    return 0;
}

uint64_t dtp_walk_jump(struct dtp_arena *a, struct dtp_walk *w) {
    struct jumping j = {.w = w};
    uint64_t sum = 0, left_out;
    if (!start(a, &j))
        return 0;
    do {
        left_out = 0;
        if (find_regions(&j) && reach_region(&j)) {
            remember(&j);
            while (left_out == 0 && periods_left(&j) > 1 && walk_period(&j))
                left_out = try_jump(&j);
        }
        sum += left_out;
    } while (left_out > 0);
    for (int r = 0; r < w->l.pp; r++)
        w->state[r].stop = w->state[r].end;
    return sum;
}
