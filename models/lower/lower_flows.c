#include "models/lower/lower_build.h"

#include <math.h>
#include <string.h>

/* Weights. A flow of `bytes` that alone takes time_s is capped at bytes / (time_s - latency_s). Its
 * siblings (the same transfer or collective of the other replicas of the stage, in lockstep) are part of
 * that time already; so their weights on a link are scaled down where together, at their caps, they
 * would ask for more than the link has. Folded, the representative carries the weights of all. */

/* Index of a global rank; unfolded only. */
static int find_rank(const struct dtp_lowering *w, int rank) {
    int t, c, d, s;
    dtp_placement_coords(&w->placement, rank, &t, &c, &d, &s);
    return dtp_lowering_index(w, s, t + w->placement.tp * (c + w->placement.cp * d));
}

double dtp_lowering_capacity(const struct dtp_lowering *w, uint32_t link) {
    return dtp_cluster_link_capacity(w->problem->cluster, w->placement.ngpus, link);
}

dtp_id dtp_lowering_link(struct dtp_lowering *w, uint32_t link) {
    if (w->link[link] == DTP_NONE)
        w->link[link] = dtp_platform_link(&w->out->platform, dtp_lowering_capacity(w, link), NULL);
    return w->link[link];
}

void dtp_lowering_total_add(struct dtp_lowering *w, uint32_t link, double weight) {
    if (w->total[link] == 0)
        w->touched[w->ntouched++] = link;
    w->total[link] += weight;
}

void dtp_lowering_total_clear(struct dtp_lowering *w) {
    while (w->ntouched > 0) {
        uint32_t link = w->touched[--w->ntouched];
        w->total[link] = w->own[link] = 0;
    }
}

static bool is_flow(const struct dtp_comm *c) {
    return c->bytes > 0 && c->time_s > c->latency_s;
}

/* Of the first chunk that has one; its groups serve all chunks. */
const struct dtp_comm *dtp_flows_unit_comm(const struct dtp_lowering *w, int stage,
                                           enum dtp_unit unit) {
    const struct dtp_comm *best = NULL;
    for (int c = w->l.vpp; c-- > 0;) {
        const struct dtp_comm *comm =
            dtp_unit_comm(&w->costs->stage[w->l.stage_of[stage * w->l.vpp + c]], unit);
        if (comm->time_s > 0 && (!best || is_flow(comm) || !is_flow(best)))
            best = comm;
    }
    return best;
}

static void find_route(const struct dtp_lowering *w, int from, int to, int q,
                       struct dtp_route *out) {
    dtp_cluster_route(w->problem->cluster, w->placement.ngpus, dtp_lowering_rank(w, from, q),
                      dtp_lowering_rank(w, to, q), out);
}

void dtp_flows_p2p(struct dtp_lowering *w, int vs, bool backward, struct dtp_flow *out) {
    const struct dtp_stage_cost *s = &w->costs->stage[vs];
    const struct dtp_comm *comm = backward ? &s->send_b : &s->send_f;
    int from = w->l.rank_of[vs], to = w->l.rank_of[backward ? vs - 1 : vs + 1];
    if (!is_flow(comm)) {
        for (int q = 0; q < w->replicas; q++)
            out[q] = (struct dtp_flow){.work = comm->time_s, .rate_cap = 1};
        return;
    }
    const int *replica;
    struct dtp_route route;
    int n = dtp_lowering_meeting(w, from, to, &replica);
    for (int i = 0; i < n; i++) {
        find_route(w, from, to, replica[i], &route);
        for (int k = 0; k < route.n; k++)
            dtp_lowering_total_add(w, route.link[k], 1);
    }
    double rate = comm->bytes / (comm->time_s - comm->latency_s);
    for (int q = 0; q < w->replicas; q++) {
        find_route(w, from, to, q, &route);
        struct dtp_use *uses = DTP_NEW(w->a, struct dtp_use, (size_t)route.n);
        for (int k = 0; k < route.n; k++) {
            uint32_t link = route.link[k];
            double total = w->total[link], most = dtp_lowering_capacity(w, link) / rate;
            double weight = total < most ? 1 : most / total;
            uses[k] = (struct dtp_use){dtp_lowering_link(w, link), DTP_USE_LINK,
                                       w->out->folded ? weight * total : weight};
        }
        out[q] = (struct dtp_flow){.work = comm->bytes,
                                   .rate_cap = rate,
                                   .latency_s = comm->latency_s,
                                   .uses = uses,
                                   .nuses = (uint32_t)route.n};
    }
    dtp_lowering_total_clear(w);
}

static void fill_members(struct dtp_lowering *w, struct dtp_group_flow *f, int representative) {
    f->nmembers = w->out->folded ? 1 : f->group.size;
    f->member = DTP_NEW(w->a, int, (size_t)f->nmembers);
    f->member[0] = representative;
    for (int i = 0; i < f->nmembers && !w->out->folded; i++)
        f->member[i] = find_rank(w, f->group.first + i * f->group.stride);
}

static void set_own(const struct dtp_moved_uses *uses, struct dtp_use *raw) {
    for (uint32_t k = 0; k < uses->n; k++) {
        raw[2 * k] = uses->at[k];
        raw[2 * k].resource += uses->shift;
    }
}

/* Uses of all groups, and the sums by link, so that dtp_flows_add() can scale them. */
static void fill_uses(struct dtp_lowering *w, const struct dtp_comm *comm,
                      const struct dtp_group *group, int ngroups, struct dtp_group_flows *out) {
    for (int i = 0; i < out->n; i++) {
        out->at[i].sibling = group;
        out->at[i].nsiblings = ngroups;
    }
    if (!is_flow(comm) || ngroups == 0 || group[0].size < 2)
        return;
    for (int i = 0; i < ngroups; i++) {
        if (out->n == 1 && !dtp_lowering_meet(w, &group[i], &group[0]))
            continue;
        struct dtp_moved_uses uses = dtp_lowering_uses(w, comm->kind, comm->algo, &group[i]);
        dtp_lowering_uses_add(w, &uses);
        if (i < out->n) {
            out->at[i].raw = DTP_NEW(w->a, struct dtp_use, 2 * (size_t)uses.n);
            out->at[i].nraw = uses.n;
            out->at[i].flows = uses.n > 0;
            set_own(&uses, out->at[i].raw);
        }
    }
    for (int i = 0; i < out->n; i++)
        for (uint32_t k = 0; k < out->at[i].nraw; k++) {
            out->at[i].raw[2 * k + 1] = out->at[i].raw[2 * k];
            out->at[i].raw[2 * k + 1].weight = w->total[out->at[i].raw[2 * k].resource];
        }
    dtp_lowering_total_clear(w);
}

static void fill_groups(struct dtp_lowering *w, int stage, const struct dtp_comm *comm,
                        struct dtp_group_flows *out) {
    int n = dtp_lowering_replicas(w), ngroups = 0;
    struct dtp_group *group = DTP_NEW(w->a, struct dtp_group, (size_t)n);
    for (int q = 0; q < n; q++) {
        int rank = dtp_lowering_rank(w, stage, q);
        struct dtp_group g = dtp_placement_group(&w->placement, comm->axis, rank);
        if (g.first == rank)
            group[ngroups++] = g;
    }
    out->n = w->out->folded ? 1 : ngroups;
    out->at = DTP_NEW(w->a, struct dtp_group_flow, (size_t)out->n);
    for (int i = 0; i < out->n; i++) {
        out->at[i].group = group[i];
        fill_members(w, &out->at[i], stage);
    }
    fill_uses(w, comm, group, ngroups, out);
}

static void fill_pairs(struct dtp_lowering *w, int stage_a, int stage_b,
                       const struct dtp_comm *comm, struct dtp_group_flows *out) {
    int n = dtp_lowering_replicas(w);
    struct dtp_group *group = DTP_NEW(w->a, struct dtp_group, (size_t)n);
    for (int q = 0; q < n; q++) {
        int a = dtp_lowering_rank(w, stage_a, q), b = dtp_lowering_rank(w, stage_b, q);
        group[q] = (struct dtp_group){a < b ? a : b, a < b ? b - a : a - b, 2};
    }
    out->n = w->replicas;
    out->at = DTP_NEW(w->a, struct dtp_group_flow, (size_t)out->n);
    for (int i = 0; i < out->n; i++) {
        struct dtp_group_flow *f = &out->at[i];
        f->group = group[i];
        f->nmembers = 2;
        f->member = DTP_NEW(w->a, int, 2);
        f->member[0] = dtp_lowering_index(w, stage_a, i);
        f->member[1] = dtp_lowering_index(w, stage_b, i);
    }
    fill_uses(w, comm, group, n, out);
}

void dtp_flows_collectives(struct dtp_lowering *w) {
    int first = w->l.rank_of[0], last = w->l.rank_of[w->l.nstages - 1];
    w->unit = DTP_NEW(w->a, struct dtp_group_flows, (size_t)(w->l.pp * DTP_NUNITS));
    for (int stage = 0; stage < w->l.pp; stage++)
        for (int u = 0; u < DTP_NUNITS; u++) {
            const struct dtp_comm *comm = dtp_flows_unit_comm(w, stage, (enum dtp_unit)u);
            if (comm)
                fill_groups(w, stage, comm, &w->unit[stage * DTP_NUNITS + u]);
        }
    if (dtp_has_embedding(&w->l, first))
        fill_pairs(w, first, last, &w->costs->embedding_all_reduce, &w->embedding);
    dtp_flows_prune(w);
}

int dtp_flows_count(struct dtp_lowering *w, const struct dtp_group *group,
                    const struct dtp_comm *comm) {
    int n = 0;
    if (w->options->detail == DTP_DETAIL_STEP && group->size > 1 && is_flow(comm))
        n = dtp_lower_steps_count(w, group, comm);
    return n > 0 ? n : 1;
}

struct dtp_span dtp_flows_add(struct dtp_lowering *w, const struct dtp_group_flow *group,
                              const struct dtp_comm *comm, double n, bool loads, uint64_t tag) {
    struct dtp_span span = {DTP_NONE, DTP_NONE};
    if (w->options->detail == DTP_DETAIL_STEP && group->flows && is_flow(comm))
        span = dtp_lower_steps(w, group, comm, n, loads, tag);
    if (span.in != DTP_NONE)
        return span;
    struct dtp_task task = {.work = n * comm->time_s,
                            .device = DTP_NONE,
                            .stream = DTP_NONE,
                            .rate_cap = 1,
                            .tag = tag};
    loads = loads && comm->device_share > 0;
    size_t most = group->nraw + 2 * (size_t)group->nmembers;
    struct dtp_use *uses = DTP_NEW(w->a, struct dtp_use, most);
    if (group->flows && is_flow(comm)) {
        double rate = comm->bytes / (comm->time_s - comm->latency_s);
        task.latency_s = n * comm->latency_s;
        task.work = n * comm->bytes;
        task.rate_cap = rate;
        for (uint32_t k = 0; k < group->nraw; k++) {
            const struct dtp_use *own = &group->raw[2 * k];
            double total = own[1].weight;
            double limit = dtp_lowering_capacity(w, own->resource) / rate;
            double scale = total < limit ? 1 : limit / total;
            uses[task.nuses++] = (struct dtp_use){dtp_lowering_link(w, own->resource), DTP_USE_LINK,
                                                  scale * (w->out->folded ? total : own->weight)};
        }
    }
    for (int i = 0; i < group->nmembers && loads; i++)
        uses[task.nuses++] =
            (struct dtp_use){w->device[group->member[i]], DTP_USE_LOAD, comm->device_share};
    if (!(group->flows && is_flow(comm))) /* copies and sums by the members themselves */
        task.nuses += dtp_core_uses(w, group->member, group->nmembers, uses + task.nuses);
    task.uses = uses;
    span.in = span.out = dtp_graph_add(w->g, &task);
    return span;
}
