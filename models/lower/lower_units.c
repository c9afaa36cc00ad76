#include "models/lower/lower_build.h"

int dtp_lowering_preds(const struct dtp_lowering *w, int stage, int replica, uint32_t k,
                       dtp_id *out) {
    const struct dtp_schedule *s = w->l.schedule;
    const struct dtp_action *act = &s->action[k];
    size_t at = (size_t)replica * w->nactions + k;
    int n = 0, chunks = stage * w->l.vpp;
    if (w->gate) {
        dtp_id stream = k > s->begin[stage] ? w->last_task[at - 1]
                                            : w->host[dtp_lowering_index(w, stage, replica)];
        if (stream != DTP_NONE)
            out[n++] = stream;
        if (w->gate[at] != DTP_NONE)
            out[n++] = w->gate[at];
        if (w->whole && k > s->begin[stage] && w->whole[at - 1] != DTP_NONE)
            out[n++] = w->whole[at - 1];
        return n;
    }
    if (k == s->begin[stage]) {
        dtp_id host = w->host[dtp_lowering_index(w, stage, replica)];
        if (host != DTP_NONE)
            out[n++] = host;
    } else {
        out[n++] = w->last_task[at - 1];
        int64_t sent = dtp_slot_out(&w->l, act[-1].kind, w->l.stage_of[chunks + act[-1].chunk],
                                    act[-1].microbatch);
        if (sent >= 0 && w->l.p2p != DTP_P2P_ASYNC) {
            dtp_id x = w->transfer[(size_t)replica * w->nslots + (size_t)sent];
            if (x != DTP_NONE)
                out[n++] = x;
        }
        if (w->whole && w->whole[at - 1] != DTP_NONE)
            out[n++] = w->whole[at - 1];
    }
    int64_t in = dtp_slot_in(&w->l, act->kind, w->l.stage_of[chunks + act->chunk], act->microbatch);
    if (in >= 0) {
        dtp_id x = w->transfer[(size_t)replica * w->nslots + (size_t)in];
        if (x != DTP_NONE)
            out[n++] = x;
    }
    return n;
}

/* ---- units: a stream for each group, in the order of the stage's actions ---- */

struct units {
    struct dtp_lowering *w;
    int stage;
    const struct dtp_group_flow *group;
    struct dtp_span last; /* on the stream */
};

static int replica_of(const struct units *u, int member) {
    return member % u->w->replicas;
}

static size_t place(const struct units *u, int member, uint32_t k) {
    return (size_t)replica_of(u, member) * u->w->nactions + k;
}

static uint64_t unit_tag(const struct units *u, enum dtp_task_kind kind, int vs, int unit) {
    return dtp_tag_pack((struct dtp_task_tag){.kind = kind,
                                              .rank = u->w->out->rank[u->group->member[0]],
                                              .stage = vs,
                                              .microbatch = unit});
}

static struct dtp_span add_unit(struct units *u, const struct dtp_comm *comm, double n, bool loads,
                                uint64_t tag) {
    struct dtp_span span = dtp_flows_add(u->w, u->group, comm, n, loads, tag);
    if (u->last.out != DTP_NONE)
        dtp_graph_dep(u->w->g, u->last.out, span.in);
    u->last = span;
    return span;
}

static void reduce_action(struct units *u, int vs, struct dtp_action_parts parts, uint32_t k) {
    struct dtp_lowering *w = u->w;
    const struct dtp_stage_cost *cost = &w->costs->stage[vs];
    for (int i = 0; i < parts.nreduce; i++) {
        int part = dtp_part_last(i, parts.nreduce, parts.nparts);
        struct dtp_comm comm = dtp_comm_beside(&cost->reduce, part + 1 < parts.nparts);
        struct dtp_span x = add_unit(u, &comm, 1, true, unit_tag(u, DTP_T_REDUCE, vs, i));
        for (int q = 0; q < u->group->nmembers; q++) {
            size_t at = place(u, u->group->member[q], k);
            dtp_id end = parts.nparts > 1 ? w->first_task[at] + (dtp_id)part : w->last_task[at];
            dtp_graph_dep(w->g, end, x.in); /* an action that is not cut may be many operations */
        }
    }
    if (!parts.reduce_whole)
        return;
    struct dtp_span x =
        add_unit(u, &cost->reduce, cost->nreduce, w->costs->reduce_overlap,
                 unit_tag(u, DTP_T_REDUCE, vs, (int)w->l.schedule->action[k].microbatch));
    for (int q = 0; q < u->group->nmembers; q++) {
        size_t at = place(u, u->group->member[q], k);
        dtp_graph_dep(w->g, w->last_task[at], x.in);
        if (w->whole)
            w->whole[at] = x.out;
    }
}

static void gather_action(struct units *u, int vs, struct dtp_action_parts parts, uint32_t k) {
    struct dtp_lowering *w = u->w;
    for (int i = 0; i < parts.ngather; i++) {
        bool first = u->last.out == DTP_NONE;
        struct dtp_comm comm = dtp_comm_beside(&w->costs->stage[vs].gather, i > 0);
        struct dtp_span x = add_unit(u, &comm, 1, true, unit_tag(u, DTP_T_GATHER, vs, i));
        dtp_id part = (dtp_id)dtp_part_first(i, parts.ngather, parts.nparts);
        for (int q = 0; q < u->group->nmembers; q++) {
            int member = u->group->member[q];
            if (first && w->host[member] != DTP_NONE)
                dtp_graph_dep(w->g, w->host[member], x.in);
            dtp_graph_dep(w->g, x.out, w->first_task[place(u, member, k)] + part);
        }
    }
}

/* The part that unit q of the stage's unshards belongs to. */
struct unit_place {
    uint32_t k;
    dtp_id part;
};

/* `after` waits for what the part of the unit waits for (but not for its own unshard). */
static void wait_like(struct units *u, struct unit_place p, dtp_id after) {
    struct dtp_lowering *w = u->w;
    for (int q = 0; q < u->group->nmembers; q++) {
        int member = u->group->member[q];
        dtp_id preds[4];
        int n = 1;
        if (p.part > 0)
            preds[0] = w->first_task[place(u, member, p.k)] + p.part - 1;
        else
            n = dtp_lowering_preds(w, u->stage, replica_of(u, member), p.k, preds);
        for (int i = 0; i < n; i++)
            dtp_graph_dep(w->g, preds[i], after);
    }
}

static void unshard_action(struct units *u, int vs, struct dtp_action_parts parts, uint32_t k,
                           struct unit_place *place_of, uint32_t *nunits) {
    struct dtp_lowering *w = u->w;
    uint32_t prefetch = (uint32_t)parts.prefetch;
    for (int i = 0; i < parts.nunshard; i++) {
        uint32_t unit = (*nunits)++;
        dtp_id part = (dtp_id)dtp_part_first(i, parts.nunshard, parts.nparts);
        place_of[unit] = (struct unit_place){k, part};
        bool beside = prefetch > 0 && unit >= prefetch;
        struct dtp_comm comm = dtp_comm_beside(&w->costs->stage[vs].unshard, beside);
        struct dtp_span x = add_unit(u, &comm, 1, true, unit_tag(u, DTP_T_UNSHARD, vs, i));
        if (unit >= prefetch)
            wait_like(u, place_of[unit - prefetch], x.in);
        for (int q = 0; q < u->group->nmembers; q++) {
            int member = u->group->member[q];
            if (unit < prefetch && w->host[member] != DTP_NONE)
                dtp_graph_dep(w->g, w->host[member], x.in);
            dtp_graph_dep(w->g, x.out, w->first_task[place(u, member, k)] + part);
        }
    }
}

/* All units of one type on one stage. */
static void stage_units(struct dtp_lowering *w, int stage, enum dtp_unit type) {
    const struct dtp_schedule *s = w->l.schedule;
    const int *chunk_stage = w->l.stage_of + stage * w->l.vpp;
    const struct dtp_group_flows *groups = &w->unit[stage * DTP_NUNITS + (int)type];
    size_t most = 0;
    for (int c = 0; c < w->l.vpp; c++)
        most += 2 * (size_t)w->l.m * (size_t)(w->costs->stage[chunk_stage[c]].nunshard + 1);
    if (type != DTP_UNIT_UNSHARD)
        most = 0;
    struct unit_place *place_of = DTP_NEW(w->a, struct unit_place, most);
    for (int i = 0; i < groups->n; i++) {
        struct units u = {w, stage, &groups->at[i], {DTP_NONE, DTP_NONE}};
        uint32_t nunits = 0;
        for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++) {
            int vs = chunk_stage[s->action[k].chunk];
            struct dtp_action_parts parts = dtp_layout_parts(&w->l, vs, s->action[k].kind, k);
            if (type == DTP_UNIT_REDUCE)
                reduce_action(&u, vs, parts, k);
            else if (type == DTP_UNIT_GATHER)
                gather_action(&u, vs, parts, k);
            else
                unshard_action(&u, vs, parts, k, place_of, &nunits);
        }
        for (int q = 0; q < groups->at[i].nmembers && type == DTP_UNIT_REDUCE; q++)
            w->out->tasks[groups->at[i].member[q]].reduce = u.last.out;
    }
}

void dtp_lower_units(struct dtp_lowering *w) {
    if (!w->l.parts)
        return;
    for (int stage = 0; stage < w->l.pp; stage++)
        for (int type = 0; type < DTP_NUNITS; type++)
            stage_units(w, stage, (enum dtp_unit)type);
}
