#include "models/lower/lower_build.h"

/* --detail step. A repeat of a step whose largest flow sends the share f of the buffer takes
 *     latency_s / repeats + (time_s - latency_s) f / (sum of f over all repeats)
 * so that all of them, alone, take time_s: a measured curve keeps its time, the steps its shape. */

enum { MOST_FLOWS = 1 << 16 }; /* of one collective */

struct stepping {
    struct dtp_lowering *w;
    const struct dtp_group_flow *group;
    double latency_s;   /* of one repeat */
    double s_per_share; /* of the buffer */
    double bytes;
    double device_share; /* 0: no load */
    uint64_t tag;
    struct dtp_use *uses; /* room for those of one flow */
};

static double largest(const struct dtp_coll_flow *flow, int n) {
    double most = 0;
    for (int i = 0; i < n; i++)
        most = flow[i].fraction > most ? flow[i].fraction : most;
    return most;
}

static int rank_of(const struct dtp_group *g, int member) {
    return g->first + member * g->stride;
}

static void route(const struct stepping *s, const struct dtp_group *g,
                  const struct dtp_coll_flow *flow, struct dtp_route *out) {
    *out = (struct dtp_route){0};
    if (flow->src != flow->dst) /* else to the switch and back, which nothing else shares */
        dtp_cluster_route(s->w->problem->cluster, s->w->placement.ngpus, rank_of(g, flow->src),
                          rank_of(g, flow->dst), out);
}

/* Rates that all siblings together ask of each link in one repeat. */
static void add_totals(const struct stepping *s, const struct dtp_coll_flow *flow, int n,
                       double time_s) {
    for (int q = 0; q < s->group->nsiblings; q++)
        for (int i = 0; i < n; i++) {
            struct dtp_route r;
            double rate = flow[i].fraction * s->bytes / time_s;
            bool mine = s->group->sibling[q].first == s->group->group.first;
            route(s, &s->group->sibling[q], &flow[i], &r);
            for (int k = 0; k < r.n; k++) {
                dtp_lowering_total_add(s->w, r.link[k], rate);
                s->w->own[r.link[k]] += mine ? rate : 0;
            }
        }
}

static dtp_id barrier(const struct stepping *s) {
    return dtp_graph_add(
        s->w->g,
        &(struct dtp_task){.rate_cap = 1, .device = DTP_NONE, .stream = DTP_NONE, .tag = s->tag});
}

/* The members are at work on a repeat for as long as its largest flow is under way, whichever of them sends it:
 * beside all repeats compute loses what it does beside the compound flow. */
static uint32_t load_members(const struct stepping *s, struct dtp_use *uses) {
    uint32_t n = s->device_share > 0 ? (uint32_t)s->group->nmembers : 0;
    for (uint32_t i = 0; i < n; i++)
        uses[i] =
            (struct dtp_use){s->w->device[s->group->member[i]], DTP_USE_LOAD, s->device_share};
    return n;
}

/* One repeat after task `before`; returns its barrier. */
static dtp_id add_repeat(const struct stepping *s, const struct dtp_coll_flow *flow, int n,
                         dtp_id before) {
    struct dtp_lowering *w = s->w;
    double share = largest(flow, n), time_s = s->s_per_share * share;
    add_totals(s, flow, n, time_s);
    dtp_id first = w->g->ntasks;
    bool loaded = false;
    for (int i = 0; i < n; i++) {
        struct dtp_use *uses = s->uses;
        struct dtp_route r;
        struct dtp_task task = {.latency_s = s->latency_s,
                                .work = flow[i].fraction * s->bytes,
                                .rate_cap = flow[i].fraction * s->bytes / time_s,
                                .uses = uses,
                                .device = DTP_NONE,
                                .stream = DTP_NONE,
                                .tag = s->tag};
        route(s, &s->group->group, &flow[i], &r);
        for (int k = 0; k < r.n; k++) {
            double total = w->total[r.link[k]], most = dtp_lowering_capacity(w, r.link[k]);
            double asked = total < most ? total : most;
            double for_whom = w->out->folded ? w->own[r.link[k]] : total;
            uses[task.nuses++] =
                (struct dtp_use){dtp_lowering_link(w, r.link[k]), DTP_USE_LINK, asked / for_whom};
        }
        if (!loaded && flow[i].fraction == share) {
            task.nuses += load_members(s, uses + task.nuses);
            loaded = true;
        }
        dtp_graph_dep(w->g, before, dtp_graph_add(w->g, &task));
    }
    dtp_lowering_total_clear(w);
    dtp_id after = barrier(s);
    for (dtp_id x = first; x < after; x++)
        dtp_graph_dep(w->g, x, after);
    return after;
}

/* The steps of a collective, and what they are in all. */
struct all_steps {
    struct dtp_step at[DTP_MAX_STEPS];
    int n; /* 0: it stays compound */
    int repeats;
    double nflows;
    double shares; /* of the buffer, by the largest flow of each repeat */
};

static void find_steps(struct dtp_lowering *w, const struct dtp_group *group,
                       const struct dtp_comm *comm, struct all_steps *out) {
    int per_node = dtp_group_per_node(w->problem->cluster, group);
    int n = dtp_coll_steps(comm->algo, comm->kind, group->size, per_node, out->at, DTP_MAX_STEPS);
    out->n = out->repeats = 0;
    out->nflows = out->shares = 0;
    for (int i = 0; i < n && out->nflows <= MOST_FLOWS; i++) {
        const struct dtp_coll_flow *flow;
        int k = dtp_coll_flows(w->a, &out->at[i], 0, group->size, per_node, &flow);
        out->repeats += out->at[i].repeat;
        out->shares += out->at[i].repeat * largest(flow, k);
        out->nflows += (double)out->at[i].repeat * k;
    }
    if (out->shares > 0 && out->nflows <= MOST_FLOWS)
        out->n = n;
}

int dtp_lower_steps_count(struct dtp_lowering *w, const struct dtp_group *group,
                          const struct dtp_comm *comm) {
    struct all_steps steps;
    find_steps(w, group, comm, &steps);
    return steps.n > 0 ? 1 + steps.repeats + (int)steps.nflows : 0;
}

struct dtp_span dtp_lower_steps(struct dtp_lowering *w, const struct dtp_group_flow *group,
                                const struct dtp_comm *comm, double n, bool loads, uint64_t tag) {
    struct dtp_span span = {DTP_NONE, DTP_NONE};
    struct all_steps steps;
    find_steps(w, &group->group, comm, &steps);
    if (steps.n == 0)
        return span;
    struct stepping s = {
        .w = w,
        .group = group,
        .latency_s = n * comm->latency_s / steps.repeats,
        .s_per_share = n * (comm->time_s - comm->latency_s) / steps.shares,
        .bytes = n * comm->bytes,
        .device_share = loads ? comm->device_share : 0,
        .tag = tag,
        .uses = DTP_NEW(w->a, struct dtp_use, DTP_MAX_ROUTE + (size_t)group->nmembers)};
    int size = group->group.size;
    int per_node = dtp_group_per_node(w->problem->cluster, &group->group);
    span.in = span.out = barrier(&s);
    for (int i = 0; i < steps.n; i++)
        for (int r = 0; r < steps.at[i].repeat; r++) {
            const struct dtp_coll_flow *flow;
            int k = dtp_coll_flows(w->a, &steps.at[i], r, size, per_node, &flow);
            span.out = add_repeat(&s, flow, k, span.out);
        }
    return span;
}
