#include "models/lower/lower_internal.h"

/* This file adds the collectives that run concurrently with the actions, and what follows each rank's last action. */

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
    struct dtp_span last; /* last unit on the stream */
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

/* An unshard of the stage belongs to this part of action k. */
struct unit_place {
    uint32_t k;
    dtp_id part;
};

/* Makes `after` wait for all that this part of the action waits for, except the part's unshard. */
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

/* Adds all units of one type on one stage. */
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

/* ---- the tail of the step ---- */

/* The tail has the order of lower_layout.h. Each of its steps waits for the ends that dtp_rank_tasks holds so far. */

static uint64_t rank_tag(const struct dtp_lowering *w, int i, enum dtp_task_kind kind) {
    return dtp_tag_pack(
        (struct dtp_task_tag){.kind = kind, .rank = w->out->rank[i], .stage = w->out->stage[i]});
}

/* The next step of the rank waits for these ends. */
static int ends_of(const struct dtp_rank_tasks *t, dtp_id out[2]) {
    dtp_id newest = t->gather != DTP_NONE      ? t->gather
                    : t->optimizer != DTP_NONE ? t->optimizer
                    : t->norm != DTP_NONE      ? t->norm
                                               : t->embedding;
    int n = 0;
    if (newest != DTP_NONE) {
        out[n++] = newest;
        return n;
    }
    if (t->last != DTP_NONE)
        out[n++] = t->last;
    if (t->reduce != DTP_NONE)
        out[n++] = t->reduce;
    return n;
}

static void wait_for_rank(struct dtp_lowering *w, int i, dtp_id after) {
    dtp_id ends[2];
    int n = ends_of(&w->out->tasks[i], ends);
    for (int k = 0; k < n; k++)
        dtp_graph_dep(w->g, ends[k], after);
}

/* Adds the deferred weight gradients of the head as one more compute task of the last stage's ranks. */
static void late(struct dtp_lowering *w) {
    int vs = w->l.nstages - 1;
    for (int q = 0; q < w->replicas && w->costs->late.total_s > 0; q++) {
        int i = dtp_lowering_index(w, w->l.rank_of[vs], q);
        struct dtp_task_tag tag = {DTP_T_LATE, w->out->rank[i], vs, 0, 0};
        dtp_id x = dtp_graph_add(w->g, &(struct dtp_task){.work = w->costs->late.total_s,
                                                          .rate_cap = 1,
                                                          .uses = w->core ? &w->core[i] : NULL,
                                                          .nuses = w->core != NULL,
                                                          .device = w->device[i],
                                                          .stream = w->out->compute_stream[i],
                                                          .tag = dtp_tag_pack(tag)});
        dtp_graph_dep(w->g, w->out->tasks[i].last, x);
        w->out->tasks[i].last = x;
    }
}

/* Adds the nreduce units of every chunk of one group, in series; the first waits for all members. */
static dtp_id series_of(struct dtp_lowering *w, int stage, const struct dtp_group_flow *f,
                        enum dtp_unit unit) {
    dtp_id last = DTP_NONE;
    for (int c = 0; c < w->l.vpp; c++) {
        int vs = w->l.stage_of[stage * w->l.vpp + c];
        const struct dtp_stage_cost *s = &w->costs->stage[vs];
        struct dtp_task_tag tag = {.kind = unit == DTP_UNIT_GATHER ? DTP_T_GATHER : DTP_T_REDUCE,
                                   .rank = w->out->rank[f->member[0]],
                                   .stage = vs};
        for (int k = 0; k < s->nreduce; k++) {
            tag.microbatch = k;
            struct dtp_span x =
                dtp_flows_add(w, f, dtp_unit_comm(s, unit), 1, false, dtp_tag_pack(tag));
            for (int q = 0; q < f->nmembers && last == DTP_NONE; q++)
                wait_for_rank(w, f->member[q], x.in);
            if (last != DTP_NONE)
                dtp_graph_dep(w->g, last, x.in);
            last = x.out;
        }
    }
    return last;
}

/* Adds reductions after the last actions of the ranks, or gathers after their optimizer updates. */
static void series(struct dtp_lowering *w, int stage, enum dtp_unit unit) {
    const struct dtp_group_flows *groups = &w->unit[stage * DTP_NUNITS + (int)unit];
    for (int i = 0; i < groups->n; i++) {
        const struct dtp_group_flow *f = &groups->at[i];
        dtp_id last = series_of(w, stage, f, unit);
        for (int q = 0; q < f->nmembers; q++) {
            struct dtp_rank_tasks *t = &w->out->tasks[f->member[q]];
            *(unit == DTP_UNIT_GATHER ? &t->gather : &t->reduce) = last;
        }
    }
}

static void embedding(struct dtp_lowering *w) {
    for (int i = 0; i < w->embedding.n; i++) {
        const struct dtp_group_flow *f = &w->embedding.at[i];
        struct dtp_span x = dtp_flows_add(w, f, &w->costs->embedding_all_reduce, 1, false,
                                          rank_tag(w, f->member[0], DTP_T_EMBEDDING));
        for (int q = 0; q < 2; q++)
            wait_for_rank(w, f->member[q], x.in);
        for (int q = 0; q < 2; q++) {
            w->out->tasks[f->member[q]].embedding = x.out;
            w->out->tasks[f->member[q]].embedding_begin = x.in;
        }
    }
}

/* Adds the norm all-reduce as a fixed time: a few bytes over all ranks take only latency, so it is not a flow. */
static void norm(struct dtp_lowering *w) {
    double time_s = w->costs->norm_all_reduce.time_s;
    if (!(time_s > 0))
        return;
    dtp_id x =
        dtp_graph_add(w->g, &(struct dtp_task){.work = time_s,
                                               .rate_cap = 1,
                                               .uses = w->core,
                                               .nuses = w->core ? (uint32_t)w->out->nranks : 0,
                                               .device = DTP_NONE,
                                               .stream = DTP_NONE,
                                               .tag = rank_tag(w, 0, DTP_T_NORM)});
    for (int i = 0; i < w->out->nranks; i++)
        wait_for_rank(w, i, x);
    for (int i = 0; i < w->out->nranks; i++)
        w->out->tasks[i].norm = x;
}

static dtp_id after_rank(struct dtp_lowering *w, int i, double work_s, enum dtp_task_kind kind) {
    dtp_id x = dtp_graph_add(w->g, &(struct dtp_task){.work = work_s,
                                                      .rate_cap = 1,
                                                      .uses = w->core ? &w->core[i] : NULL,
                                                      .nuses = w->core != NULL,
                                                      .device = DTP_NONE,
                                                      .stream = w->out->compute_stream[i],
                                                      .tag = rank_tag(w, i, kind)});
    wait_for_rank(w, i, x);
    return x;
}

void dtp_lower_tail(struct dtp_lowering *w) {
    const struct dtp_costs *c = w->costs;
    late(w);
    if (dtp_reduces_last(c))
        for (int stage = 0; stage < w->l.pp; stage++)
            series(w, stage, DTP_UNIT_REDUCE);
    embedding(w);
    norm(w);
    for (int i = 0; i < w->out->nranks; i++)
        w->out->tasks[i].optimizer =
            after_rank(w, i, c->optimizer_s[w->out->stage[i]], DTP_T_OPTIM);
    for (int stage = 0; stage < w->l.pp && !c->gather_overlap; stage++)
        series(w, stage, DTP_UNIT_GATHER);
    for (int i = 0; i < w->out->nranks && c->offload_s > 0; i++)
        w->out->tasks[i].end = after_rank(w, i, c->offload_s, DTP_T_OFFLOAD);
}
