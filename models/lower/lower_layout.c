#include "models/lower/lower_layout.h"

#include <string.h>

static void fill_durations(struct dtp_layout *l) {
    for (int vs = 0; vs < l->nstages; vs++) {
        const struct dtp_stage_cost *s = &l->costs->stage[vs];
        double *d = l->dur_s + vs, *alone = d + DTP_LAYOUT_KINDS * l->nstages;
        d[DTP_A_F * l->nstages] = s->f.total_s;
        d[DTP_A_B * l->nstages] = s->i.total_s + s->w.total_s + s->r.total_s;
        d[DTP_A_I * l->nstages] = s->i.total_s + s->r.total_s;
        d[DTP_A_W * l->nstages] = s->w.total_s;
        alone[DTP_A_F * l->nstages] = d[DTP_A_F * l->nstages] + s->f.hidden_s;
        alone[DTP_A_B * l->nstages] = d[DTP_A_B * l->nstages] + s->i.hidden_s;
        alone[DTP_A_I * l->nstages] = d[DTP_A_I * l->nstages] + s->i.hidden_s;
        alone[DTP_A_W * l->nstages] = d[DTP_A_W * l->nstages];
    }
}

struct dtp_paired dtp_schedule_paired(const struct dtp_schedule *schedule, int rank) {
    const struct dtp_action *at = schedule->action;
    uint32_t begin = schedule->begin[rank], end = schedule->begin[rank + 1];
    struct dtp_paired x = {begin, end};
    while (x.from < end && at[x.from].kind == DTP_A_F)
        x.from++; /* the first backward */
    while (x.to > begin && at[x.to - 1].kind != DTP_A_F)
        x.to--; /* behind the last forward */
    return x;
}

static void find_paired(struct dtp_arena *a, struct dtp_layout *l) {
    bool hides = false;
    for (int vs = 0; vs < l->nstages; vs++)
        hides = hides || l->costs->stage[vs].f.hidden_s > 0 || l->costs->stage[vs].i.hidden_s > 0;
    if (!hides)
        return;
    l->paired = DTP_NEW(a, struct dtp_paired, (size_t)l->pp);
    for (int r = 0; r < l->pp; r++)
        l->paired[r] = dtp_schedule_paired(l->schedule, r);
}

static void fill_sends(struct dtp_layout *l, bool free_p2p) {
    int n = l->nstages;
    for (int vs = 0; vs < n; vs++) {
        const struct dtp_stage_cost *s = &l->costs->stage[vs];
        bool forward = vs + 1 < n && l->rank_of[vs] != l->rank_of[vs + 1];
        bool backward = vs > 0 && l->rank_of[vs] != l->rank_of[vs - 1];
        l->send_s[vs] = !forward ? -1 : free_p2p ? 0 : s->send_f.time_s;
        l->send_s[n + vs] = !backward ? -1 : free_p2p ? 0 : s->send_b.time_s;
    }
}

/* True when the action is the first one met of its kind and chunk. */
static bool take_end(const struct dtp_action *act, int kind, uint32_t index, uint32_t *of,
                     const int *stage) {
    uint32_t *end = &of[stage[act->chunk]];
    if (act->kind != kind || *end != UINT32_MAX)
        return false;
    *end = index;
    return true;
}

/* First F and last gradient of each chunk, in the order of the rank. */
static void find_ends(struct dtp_layout *l) {
    const struct dtp_schedule *s = l->schedule;
    int gradient = l->split ? DTP_A_W : DTP_A_B;
    for (int r = 0; r < l->pp; r++) {
        const int *stage = l->stage_of + r * l->vpp;
        uint32_t begin = s->begin[r], end = s->begin[r + 1];
        int missing = l->vpp;
        for (uint32_t i = begin; i < end && missing > 0; i++)
            missing -= take_end(&s->action[i], DTP_A_F, i, l->first, stage);
        missing = l->vpp;
        for (uint32_t i = end; i-- > begin && missing > 0;)
            missing -= take_end(&s->action[i], gradient, i, l->last, stage);
    }
}

static void fill_time_slots(struct dtp_arena *a, struct dtp_layout *l) {
    const struct dtp_schedule *s = l->schedule;
    l->slot = DTP_NEW(a, uint32_t, s->begin[l->pp]);
    for (int r = 0; r < l->pp; r++) {
        uint32_t begin = s->begin[r], end = s->begin[r + 1];
        for (uint32_t k = begin; k < end; k++)
            l->slot[k] = dtp_schedule_kinds[s->kind].time_slot(l->pp, l->vpp, l->m, r, k - begin);
        if (end > begin && l->slot[end - 1] >= l->nslots)
            l->nslots = l->slot[end - 1] + 1;
    }
}

static bool any_parts(const struct dtp_layout *l) {
    const struct dtp_costs *c = l->costs;
    for (int vs = 0; vs < l->nstages; vs++) {
        const struct dtp_stage_cost *s = &c->stage[vs];
        bool reduces = s->nreduce > 0 && s->reduce.time_s > 0;
        if (reduces && (c->reduce_overlap || c->reduce_per_microbatch))
            return true;
        if (c->gather_overlap && s->nreduce > 0 && s->gather.time_s > 0)
            return true;
        if (l->unsharded && s->nunshard > 0 && s->unshard.time_s > 0)
            return true;
    }
    return false;
}

void dtp_layout_init(struct dtp_arena *a, const struct dtp_costs *costs,
                     const struct dtp_schedule *schedule, bool free_p2p, struct dtp_layout *out) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[schedule->kind];
    int pp = schedule->pp, vpp = schedule->vpp, n = pp * vpp;
    *out = (struct dtp_layout){.costs = costs,
                               .schedule = schedule,
                               .pp = pp,
                               .vpp = vpp,
                               .m = schedule->m,
                               .nstages = n,
                               .split = schedule->split,
                               .unsharded = costs->zero_stage == 3,
                               .unsharded_b = costs->zero_stage == 3 && costs->regather_backward};
    out->p2p = free_p2p || !costs->p2p_blocking      ? DTP_P2P_ASYNC
               : kind->rendezvous                    ? DTP_P2P_RENDEZVOUS
               : costs->p2p_slots && kind->time_slot ? DTP_P2P_SLOTS
                                                     : DTP_P2P_SENDER;
    out->rank_of = DTP_NEW(a, int, (size_t)n);
    out->stage_of = DTP_NEW(a, int, (size_t)n);
    out->dur_s = DTP_NEW(a, double, DTP_LAYOUT_ROWS *(size_t)n);
    out->send_s = DTP_NEW(a, double, 2 * (size_t)n);
    out->first = DTP_NEW(a, uint32_t, (size_t)n);
    out->last = DTP_NEW(a, uint32_t, (size_t)n);
    memset(out->first, 0xff, (size_t)n * sizeof *out->first);
    memset(out->last, 0xff, (size_t)n * sizeof *out->last);
    for (int r = 0; r < pp; r++)
        for (int c = 0; c < vpp; c++) {
            int vs = kind->stage(pp, vpp, r, c);
            out->stage_of[r * vpp + c] = vs;
            out->rank_of[vs] = r;
        }
    fill_durations(out);
    find_paired(a, out);
    fill_sends(out, free_p2p);
    find_ends(out);
    if (out->p2p == DTP_P2P_SLOTS)
        fill_time_slots(a, out);
    out->parts = any_parts(out);
}

struct dtp_action_parts dtp_layout_parts(const struct dtp_layout *l, int vs, int kind,
                                         uint32_t index) {
    const struct dtp_costs *c = l->costs;
    const struct dtp_stage_cost *s = &c->stage[vs];
    struct dtp_action_parts p = {.nparts = 1};
    bool gradient = kind == (l->split ? DTP_A_W : DTP_A_B);
    bool unshards = kind == DTP_A_F ? l->unsharded : l->unsharded_b && kind != DTP_A_W;
    if (unshards && s->unshard.time_s > 0)
        p.nunshard = s->nunshard;
    p.prefetch = kind == DTP_A_F ? c->prefetch_forward : c->prefetch;
    if (kind == DTP_A_F && c->gather_overlap && !p.nunshard && s->gather.time_s > 0 &&
        index == l->first[vs])
        p.ngather = s->nreduce;
    if (gradient && s->nreduce > 0 && s->reduce.time_s > 0) {
        bool cut = c->reduce_overlap && index == l->last[vs];
        p.nreduce = cut ? s->nreduce : 0;
        p.reduce_whole = !cut && c->reduce_per_microbatch;
    }
    int units = p.nunshard > p.ngather ? p.nunshard : p.ngather;
    units = units > p.nreduce ? units : p.nreduce;
    p.nparts = units > 1 ? units : 1;
    return p;
}
