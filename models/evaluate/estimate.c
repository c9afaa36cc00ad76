#include <math.h>
#include <string.h>

#include "models/lower/lower_layout.h"

/* ESTIMATE: every rank walks its actions as far as their inputs are known; sweeps up and down the
 * pipeline until nothing moves. One pass over the actions in all, a few loads and adds for each. */

/* The state of a walk along the longest path. */
struct walk_rank {
    uint32_t pos, stop, end; /* next action; walk no further than stop for now; behind the last */
    double free_s;           /* end of the previous action (and of a reduction that blocks) */
    int64_t out;             /* rendezvous: transfer that the previous action started, or -1 */
    double reduce_free_s, gather_free_s, unshard_free_s;
    uint32_t nunits; /* unsharded units so far */
    bool filled;     /* a backward has started */
};

struct walk {
    struct dtp_layout l;
    struct walk_rank *state; /* [pp] */
    struct dtp_rank_path *path;
    double *sent_s;   /* [2 * nstages * m] arrival; rendezvous: end of the producer; -1: not yet */
    double *posted_s; /* rendezvous: when the receiver came; else NULL */
    double *unit_start_s; /* [pp * ring] starts of the last units */
    int ring;
};

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* The action's units hold up its parts. Returns its end; start_s is when it could start without. */
static double run_parts(struct walk *w, int r, int vs, struct dtp_action_parts parts,
                        double start_s, double dur_s) {
    const struct dtp_stage_cost *cost = &w->l.costs->stage[vs];
    struct walk_rank *state = &w->state[r];
    uint32_t prefetch = (uint32_t)parts.prefetch, nring = (uint32_t)w->ring;
    double t = start_s, part_s = dur_s / parts.nparts;
    int unshard = 0, gather = 0, reduce = 0;
    for (int p = 0; p < parts.nparts; p++) {
        double begin_s = t;
        for (; gather < parts.ngather && dtp_part_first(gather, parts.ngather, parts.nparts) == p;
             gather++) {
            state->gather_free_s += dtp_comm_beside(&cost->gather, gather > 0).time_s;
            begin_s = larger(begin_s, state->gather_free_s);
        }
        for (;
             unshard < parts.nunshard && dtp_part_first(unshard, parts.nunshard, parts.nparts) == p;
             unshard++) {
            uint32_t q = state->nunits++;
            double *ring = w->unit_start_s + (size_t)r * (size_t)w->ring;
            double ready_s = prefetch == 0   ? t
                             : q >= prefetch ? ring[(q - prefetch) % nring]
                                             : w->l.costs->step_host_s;
            state->unshard_free_s =
                larger(state->unshard_free_s, ready_s) +
                dtp_comm_beside(&cost->unshard, q >= prefetch && prefetch > 0).time_s;
            begin_s = larger(begin_s, state->unshard_free_s);
            ring[q % nring] = begin_s;
        }
        w->path[r].dp_wait_s += begin_s - t;
        t = begin_s + part_s;
        for (; reduce < parts.nreduce && dtp_part_last(reduce, parts.nreduce, parts.nparts) == p;
             reduce++)
            state->reduce_free_s = larger(state->reduce_free_s, t) +
                                   dtp_comm_beside(&cost->reduce, p + 1 < parts.nparts).time_s;
    }
    return t;
}

/* Reduces all units after a microbatch, either during the next action or before it. */
static void reduce_whole(struct walk *w, int r, int vs, double end_s) {
    const struct dtp_stage_cost *cost = &w->l.costs->stage[vs];
    struct walk_rank *state = &w->state[r];
    double time_s = cost->nreduce * cost->reduce.time_s;
    if (w->l.costs->reduce_overlap) {
        state->reduce_free_s = larger(state->reduce_free_s, end_s) + time_s;
        return;
    }
    state->reduce_free_s = end_s + time_s;
    if (state->reduce_free_s <= state->free_s) /* it ends before a transfer that holds the sender */
        return;
    if (state->pos + 1 < state->end) /* the last one is the tail's */
        w->path[r].dp_wait_s += state->reduce_free_s - state->free_s;
    state->free_s = state->reduce_free_s;
}

/* When the action in the gap before it can start; false: something it waits for is not known yet. */
static bool gap(struct walk *w, struct walk_rank *state, int64_t in, double *start_s) {
    const struct dtp_layout *l = &w->l;
    double start = state->free_s;
    if (l->p2p != DTP_P2P_RENDEZVOUS) {
        if (in >= 0) {
            if (w->sent_s[in] < 0)
                return false;
            start = larger(start, w->sent_s[in]);
        }
        *start_s = start;
        return true;
    }
    if (in >= 0) {
        w->posted_s[in] = state->free_s;
        if (w->sent_s[in] < 0)
            return false;
        double send_s = l->send_s[dtp_slot_sender(l, in)];
        start = send_s < 0 ? larger(start, w->sent_s[in]) : larger(start, w->sent_s[in]) + send_s;
    }
    if (state->out >= 0) {
        if (w->posted_s[state->out] < 0)
            return false;
        double send_s = l->send_s[dtp_slot_sender(l, state->out)];
        start = larger(start, larger(w->sent_s[state->out], w->posted_s[state->out]) + send_s);
    }
    *start_s = start;
    return true;
}

static void finish(struct walk *w, struct walk_rank *state, int64_t out, double end_s) {
    state->free_s = end_s;
    if (w->l.p2p == DTP_P2P_RENDEZVOUS)
        state->out = -1;
    if (out < 0)
        return;
    double send_s = w->l.send_s[dtp_slot_sender(&w->l, out)];
    if (w->l.p2p == DTP_P2P_RENDEZVOUS) {
        w->sent_s[out] = end_s;
        state->out = send_s < 0 ? -1 : out;
        return;
    }
    w->sent_s[out] = send_s > 0 ? end_s + send_s : end_s;
    if (w->l.p2p == DTP_P2P_SENDER)
        state->free_s = w->sent_s[out];
}

/* The next action of the rank. */
static void run_action(struct walk *w, int r, double start_s) {
    const struct dtp_layout *l = &w->l;
    struct walk_rank *state = &w->state[r];
    struct dtp_action act = l->schedule->action[state->pos];
    int vs = l->stage_of[r * l->vpp + act.chunk];
    double end_s, dur_s = l->dur_s[dtp_layout_row(l, r, state->pos) * l->nstages + vs];
    struct dtp_action_parts parts = {.nparts = 1};
    if (l->parts)
        parts = dtp_layout_parts(l, vs, act.kind, state->pos);
    if (parts.nunshard | parts.ngather | parts.nreduce)
        end_s = run_parts(w, r, vs, parts, start_s, dur_s);
    else
        end_s = start_s + dur_s;
    if (state->pos == l->schedule->begin[r])
        w->path[r].first_s = start_s;
    if (!state->filled && act.kind != DTP_A_F) {
        state->filled = true;
        w->path[r].filled_s =
            start_s - l->costs->step_host_s - w->path[r].busy_s - w->path[r].dp_wait_s;
    }
    w->path[r].busy_s += dur_s;
    w->path[r].last_s = end_s;
    finish(w, state, dtp_slot_out(l, act.kind, vs, act.microbatch), end_s);
    if (parts.reduce_whole)
        reduce_whole(w, r, vs, end_s);
}

static bool advance(struct walk *w, int r) {
    const struct dtp_layout *l = &w->l;
    struct walk_rank *state = &w->state[r];
    uint32_t begin = state->pos;
    for (; state->pos < state->stop; state->pos++) {
        struct dtp_action act = l->schedule->action[state->pos];
        int vs = l->stage_of[r * l->vpp + act.chunk];
        double start_s;
        if (!gap(w, state, dtp_slot_in(l, act.kind, vs, act.microbatch), &start_s))
            break;
        run_action(w, r, start_s);
    }
    return state->pos != begin;
}

/* Time slots: what a rank did in a slot, then all transfers of the slot, each when both ends have come. */
static void walk_slots(struct dtp_arena *a, struct walk *w) {
    const struct dtp_layout *l = &w->l;
    size_t n = (size_t)l->pp;
    double *come_s = DTP_NEW(a, double, n), *left_s = DTP_NEW(a, double, n);
    for (int r = 0; r < l->pp; r++)
        come_s[r] = left_s[r] = l->costs->step_host_s;
    for (uint32_t k = 0; k < l->nslots; k++) {
        for (int r = 0; r < l->pp; r++) {
            struct walk_rank *state = &w->state[r];
            state->out = -1;
            if (state->pos == state->end || l->slot[state->pos] != k)
                continue;
            struct dtp_action act = l->schedule->action[state->pos];
            run_action(w, r, larger(state->free_s, left_s[r]));
            come_s[r] = w->path[r].last_s;
            state->out =
                dtp_slot_out(l, act.kind, l->stage_of[r * l->vpp + act.chunk], act.microbatch);
            state->pos++;
        }
        for (int r = 0; r < l->pp; r++) {
            int64_t out = w->state[r].out;
            double send_s = out < 0 ? -1 : l->send_s[dtp_slot_sender(l, out)];
            if (send_s < 0)
                continue;
            int to = dtp_slot_receiver(l, out);
            double end_s = larger(come_s[r], come_s[to]) + send_s;
            left_s[r] = larger(left_s[r], end_s);
            left_s[to] = larger(left_s[to], end_s);
        }
        for (int r = 0; r < l->pp; r++)
            come_s[r] = larger(come_s[r], left_s[r]);
    }
}

/* Collectives slow concurrent compute. Compute loses a collective's share of the rate while both run; a collective
 * that overlaps no compute takes its full time, which is more, as long as the shares of those that can run at
 * once are less than 1. So from its first compute on a rank takes at least its compute and the shares of its
 * collectives' transfers, wherever waits and contention put them. Unshards that are not prefetched stop the rank
 * and count in full; reductions may run meanwhile. Prefetched ones may come before all compute, and the first
 * must. The last reduction starts after all actions and counts in full, or with its share during late_s of
 * compute that follows them. Returns the earliest time at which all this can have ended; 0: nothing is
 * slowed. */
static double slowed_s(const struct walk *w, int r, double late_s) {
    const struct dtp_layout *l = &w->l;
    const struct dtp_costs *c = l->costs;
    int forward = l->unsharded ? l->m : 0, backward = l->unsharded_b ? l->m : 0;
    int beside = (c->prefetch_forward > 0 ? forward : 0) + (c->prefetch > 0 ? backward : 0);
    int ahead = c->prefetch > c->prefetch_forward ? c->prefetch : c->prefetch_forward;
    double reductions = c->reduce_per_microbatch ? l->m : 1, reduce_s = 0, share[2] = {0};
    double lost_s = 0, worst_s = 0, alone_s = 0;
    double first_s = INFINITY, last_s = INFINITY, last_lost_s = INFINITY;
    for (int k = 0; k < l->vpp; k++) {
        const struct dtp_stage_cost *s = &c->stage[l->stage_of[r * l->vpp + k]];
        const struct dtp_comm *unshard = &s->unshard, *reduce = &s->reduce;
        double unit_s = unshard->device_share * (unshard->time_s - unshard->latency_s);
        bool reduces = c->reduce_overlap && s->nreduce > 0;
        double one_s = reduces ? reduce->device_share * (reduce->time_s - reduce->latency_s) : 0;
        lost_s += (double)beside * s->nunshard * unit_s;
        alone_s += (double)(forward + backward - beside) * s->nunshard * unshard->time_s;
        worst_s = larger(worst_s, unit_s);
        first_s = unshard->time_s < first_s ? unshard->time_s : first_s;
        last_s = !reduces ? 0 : reduce->time_s < last_s ? reduce->time_s : last_s;
        last_lost_s = one_s < last_lost_s ? one_s : last_lost_s;
        reduce_s += (reductions * s->nreduce - 1) * one_s;
        share[0] = larger(share[0], unshard->device_share);
        share[1] = larger(share[1], reduce->device_share);
    }
    lost_s = larger(lost_s - ahead * worst_s, 0) + larger(reduce_s - share[1] * alone_s, 0);
    if (lost_s + last_lost_s <= 0 || share[0] + share[1] >= 1)
        return 0;
    bool waits = forward > 0 && c->prefetch_forward > 0;
    first_s = larger(w->path[r].first_s, waits ? c->step_host_s + first_s : 0);
    return first_s + w->path[r].busy_s + alone_s + lost_s + larger(last_s, late_s + last_lost_s);
}

/* Walks what follows the last action of each rank: the head's deferred weight gradients, reductions, embedding,
 * norm, optimizer, gathers. */
static void run_tail(struct walk *w, bool slowed, struct dtp_path *out) {
    const struct dtp_costs *c = w->l.costs;
    double barrier_s = 0, embedding_s = 0;
    for (int r = 0; r < w->l.pp; r++) {
        struct dtp_rank_path *p = &w->path[r];
        double late_s = r == w->l.rank_of[w->l.nstages - 1] ? c->late.total_s : 0;
        double slow_s = slowed ? slowed_s(w, r, late_s) : 0;
        p->busy_s += late_s;
        p->last_s += late_s;
        double t = p->last_s;
        if (dtp_reduces_last(c))
            for (int k = 0; k < w->l.vpp; k++) {
                const struct dtp_stage_cost *s = &c->stage[w->l.stage_of[r * w->l.vpp + k]];
                t += s->nreduce * s->reduce.time_s;
            }
        p->reduced_s = larger(t, w->state[r].reduce_free_s);
        double more_s = slow_s - p->reduced_s;
        if (more_s > 0) {
            p->busy_s += more_s;
            p->last_s += more_s;
            p->reduced_s += more_s;
        }
        if (dtp_has_embedding(&w->l, r))
            embedding_s = larger(embedding_s, p->reduced_s);
    }
    for (int r = 0; r < w->l.pp; r++) {
        struct dtp_rank_path *p = &w->path[r];
        bool has = dtp_has_embedding(&w->l, r);
        p->embedding_start_s = has ? embedding_s : p->reduced_s;
        p->embedding_end_s = has ? embedding_s + c->embedding_all_reduce.time_s : p->reduced_s;
        barrier_s = larger(barrier_s, p->embedding_end_s);
    }
    for (int r = 0; r < w->l.pp; r++) {
        struct dtp_rank_path *p = &w->path[r];
        bool has = c->norm_all_reduce.time_s > 0;
        p->norm_start_s = has ? barrier_s : p->embedding_end_s;
        p->norm_end_s = has ? barrier_s + c->norm_all_reduce.time_s : p->embedding_end_s;
        p->optimized_s = p->norm_end_s + c->optimizer_s[r];
        p->gathered_s = p->optimized_s;
        for (int k = 0; k < w->l.vpp && !c->gather_overlap; k++) {
            const struct dtp_stage_cost *s = &c->stage[w->l.stage_of[r * w->l.vpp + k]];
            p->gathered_s += s->nreduce * s->gather.time_s;
        }
        p->end_s = p->gathered_s + c->offload_s;
        if (p->end_s > out->step_s) {
            out->step_s = p->end_s;
            out->last_rank = out->stage_of_last = r;
        }
    }
}

static void start(struct dtp_arena *a, struct walk *w, struct dtp_path *out) {
    const struct dtp_layout *l = &w->l;
    size_t nslots = 2 * (size_t)l->nstages * (size_t)l->m;
    w->ring = l->costs->prefetch > l->costs->prefetch_forward ? l->costs->prefetch
                                                              : l->costs->prefetch_forward;
    w->ring = w->ring > 0 ? w->ring : 1;
    w->state = DTP_NEW(a, struct walk_rank, (size_t)l->pp);
    w->path = DTP_NEW(a, struct dtp_rank_path, (size_t)l->pp);
    w->unit_start_s = DTP_NEW(a, double, (size_t)l->pp *(size_t)w->ring);
    w->sent_s = DTP_NEW(a, double, nslots);
    for (size_t i = 0; i < nslots; i++)
        w->sent_s[i] = -1;
    if (l->p2p == DTP_P2P_RENDEZVOUS) {
        w->posted_s = DTP_NEW(a, double, nslots);
        for (size_t i = 0; i < nslots; i++)
            w->posted_s[i] = -1;
    }
    for (int r = 0; r < l->pp; r++) {
        double fixed_s = l->costs->step_host_s;
        w->state[r] = (struct walk_rank){.pos = l->schedule->begin[r],
                                         .stop = l->schedule->begin[r + 1],
                                         .end = l->schedule->begin[r + 1],
                                         .free_s = fixed_s,
                                         .out = -1,
                                         .gather_free_s = fixed_s,
                                         .unshard_free_s = fixed_s};
        w->path[r].first_s = w->path[r].last_s = fixed_s;
    }
    *out = (struct dtp_path){.rank = w->path, .nranks = l->pp};
}

/* Sweeps up and down the ranks until none can go on. */
static void walk_sweep(struct walk *w) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < w->l.pp; r++)
            moved |= advance(w, r);
        for (int r = w->l.pp; r-- > 0;)
            moved |= advance(w, r);
    }
}

/* ---- the jump over the periodic steady state ---- */

struct jumping {
    struct walk *w;
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

static bool start_jump(struct dtp_arena *a, struct jumping *j) {
    const struct dtp_layout *l = &j->w->l;
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[l->schedule->kind];
    uint32_t kinds = l->split ? 3 : 2;
    size_t n = (size_t)l->pp;
    /* if every action has units, no period is worth finding */
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

/* Finds the first cut with every rank in its region: the ranks walk a few actions at a time, so that no
 * rank gets far beyond the others. */
static bool reach_region(struct jumping *j) {
    struct walk *w = j->w;
    bool moved = true;
    while (moved) {
        bool inside = true;
        for (int r = 0; r < w->l.pp; r++)
            inside = inside && w->state[r].pos >= j->begin[r];
        if (inside)
            return true;
        uint64_t sum = 0, after = 0;
        for (int r = 0; r < w->l.pp; r++) {
            struct walk_rank *s = &w->state[r];
            sum += s->pos;
            uint32_t next = s->pos + (s->pos < j->begin[r] ? j->period : 1);
            s->stop = next < s->end ? next : s->end;
        }
        walk_sweep(w);
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
    struct walk *w = j->w;
    for (int r = 0; r < w->l.pp; r++)
        j->busy_s[r] = w->path[r].busy_s;
    set_stops(j, j->period);
    walk_sweep(w);
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

/* Whether each transfer of the row came later than its counterpart `periods` earlier by as much as its sender did. */
static bool row_grew(const struct jumping *j, int row, const struct growth *g) {
    const struct walk *w = j->w;
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

/* Whether all times grew by the same over so many periods, to what rounding allows over the periods left;
 * if ranks only feed those after them, each may grow by its own amount. */
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
    struct walk *w = j->w;
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
    struct walk *w = j->w;
    uint32_t times = left / g->periods, periods = times * g->periods;
    for (int row = 0; row < 2 * w->l.nstages; row++)
        move_row(j, row, periods, j->grown_s[row_sender(&w->l, row)] * times);
    for (int r = 0; r < w->l.pp; r++) {
        struct walk_rank *s = &w->state[r];
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

/* Walks until the times of all ranks grow by the same step every few periods of the schedule, then jumps
 * over the periods that are left. Returns how many actions it left out; 0 when there is no such state.
 *
 * Why it is exact. The actions of a rank repeat every `period` actions with microbatches `shift`
 * later; a cut (a position on each rank) and the cut one period on see the same dependencies. Times on
 * the cut are the state of a max-plus linear system x(k+1) = A x(k) (Baccelli 1992, section 3.7): once
 * x(k+c) = lambda + x(k) in all components, it holds for good. The components are the ranks' times
 * and those of the transfers that have been started and are still waited for. */
static uint64_t walk_jump(struct dtp_arena *a, struct walk *w) {
    struct jumping j = {.w = w};
    uint64_t sum = 0, left_out;
    if (!start_jump(a, &j))
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

/* ---- the whole step ---- */

enum { PLAIN = 0, FREE_P2P = 1, JUMP = 2 };

static void estimate(struct dtp_arena *a, const struct dtp_costs *costs,
                     const struct dtp_schedule *schedule, int how, struct dtp_path *out) {
    struct walk w = {0};
    dtp_layout_init(a, costs, schedule, how & FREE_P2P, &w.l);
    start(a, &w, out);
    out->nactions = schedule->begin[w.l.pp];
    if (w.l.p2p == DTP_P2P_SLOTS) {
        walk_slots(a, &w);
    } else {
        if (how & JUMP)
            out->nactions -= walk_jump(a, &w);
        walk_sweep(&w);
    }
    for (int r = 0; r < w.l.pp; r++)
        if (w.state[r].pos != w.state[r].end) {
            out->step_s = INFINITY;
            return;
        }
    run_tail(&w, !(how & FREE_P2P), out); /* the bubble is that of the schedule alone */
}

void dtp_estimate(struct dtp_arena *a, const struct dtp_costs *costs,
                  const struct dtp_schedule *schedule, struct dtp_path *out) {
    estimate(a, costs, schedule, JUMP, out);
}

void dtp_estimate_free(struct dtp_arena *a, const struct dtp_costs *costs,
                       const struct dtp_schedule *schedule, struct dtp_path *out) {
    estimate(a, costs, schedule, JUMP | FREE_P2P, out);
}

void dtp_estimate_plain(struct dtp_arena *a, const struct dtp_costs *costs,
                        const struct dtp_schedule *schedule, struct dtp_path *out) {
    estimate(a, costs, schedule, PLAIN, out);
}
