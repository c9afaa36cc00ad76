#include "models/lower/lower_internal.h"

#include <math.h>
#include <string.h>

#include "sim/base/mix.h"

/* This file decides which links the transfers and collectives of a plan use, and with which weights. */

/* ---- links, and room to add up weights on them ---- */

double dtp_lowering_capacity(const struct dtp_lowering *w, uint32_t link) {
    return dtp_cluster_link_capacity(w->problem->cluster, w->placement.ngpus, link);
}

dtp_id dtp_lowering_link(struct dtp_lowering *w, uint32_t link) {
    if (w->link[link] == DTP_NONE)
        w->link[link] = dtp_platform_link(&w->out->platform, dtp_lowering_capacity(w, link), NULL);
    return w->link[link];
}

static void total_add(struct dtp_lowering *w, uint32_t link, double weight) {
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

/* ---- uses of groups, by where they stand ---- */

/* If no tier of the fabric binds, a group that starts n nodes further on uses the links n nodes further on. Groups
 * and transfers without a common block (a node, or a group of the highest tier that binds) share no link. So one
 * ring is walked for thousands of groups on 131,072 GPUs, and a folded simulation looks only at groups that share
 * a block with the representative. */

/* These are the uses of groups that differ only in where they start, by the place of the first member in its node. */
struct dtp_known_uses {
    struct dtp_known_uses *next;
    enum dtp_collective kind;
    enum dtp_algo algo;
    int stride, size;
    struct dtp_moved_uses *first; /* [gpus of a node]; at NULL: not yet asked for */
};

static struct dtp_known_uses *find_known(struct dtp_lowering *w, enum dtp_collective kind,
                                         enum dtp_algo algo, const struct dtp_group *g) {
    for (struct dtp_known_uses *k = w->known; k; k = k->next)
        if (k->kind == kind && k->algo == algo && k->stride == g->stride && k->size == g->size)
            return k;
    struct dtp_known_uses *k = DTP_NEW(w->a, struct dtp_known_uses, 1);
    size_t gpus = (size_t)w->problem->cluster->node.gpus;
    *k = (struct dtp_known_uses){w->known,  kind,    algo,
                                 g->stride, g->size, DTP_NEW(w->a, struct dtp_moved_uses, gpus)};
    w->known = k;
    return k;
}

static struct dtp_moved_uses uses_of(struct dtp_lowering *w, enum dtp_collective kind,
                                     enum dtp_algo algo, struct dtp_group g) {
    struct dtp_coll_call call = {kind, algo, g, w->placement.ngpus};
    struct dtp_moved_uses uses = {0};
    uses.n = dtp_coll_uses(w->a, w->problem->cluster, &call, &uses.at);
    return uses;
}

struct dtp_moved_uses dtp_lowering_uses(struct dtp_lowering *w, enum dtp_collective kind,
                                        enum dtp_algo algo, const struct dtp_group *group) {
    int gpus = w->problem->cluster->node.gpus, node = group->first / gpus;
    if (w->node_links == 0)
        return uses_of(w, kind, algo, *group);
    struct dtp_group moved = {group->first % gpus, group->stride, group->size};
    struct dtp_moved_uses *known = &find_known(w, kind, algo, group)->first[moved.first];
    if (!known->at)
        *known = uses_of(w, kind, algo, moved);
    return (struct dtp_moved_uses){known->at, known->n, (uint32_t)node * w->node_links};
}

void dtp_lowering_uses_add(struct dtp_lowering *w, const struct dtp_moved_uses *uses) {
    for (uint32_t k = 0; k < uses->n; k++)
        total_add(w, uses->at[k].resource + uses->shift, uses->at[k].weight);
}

bool dtp_lowering_meet(const struct dtp_lowering *w, const struct dtp_group *x,
                       const struct dtp_group *y) {
    int gpus = w->block_gpus;
    return gpus == 0 || (x->first / gpus <= (y->first + (y->size - 1) * y->stride) / gpus &&
                         y->first / gpus <= (x->first + (x->size - 1) * x->stride) / gpus);
}

/* The representative's transfer goes from one block to another or stays in it. The list holds the replicas whose
 * transfers start in these blocks, then those whose transfers end there and start elsewhere. */
static int meeting(const struct dtp_lowering *w, int from, int to, const int **out) {
    const struct dtp_placement *p = &w->placement;
    int gpus = w->block_gpus, all = dtp_lowering_replicas(w), n = 0;
    bool near = w->out->folded && gpus > 0 && 2 * gpus < all;
    int *list = DTP_NEW(w->a, int, (size_t)(near ? 2 * gpus : all));
    *out = list;
    for (int q = 0; !near && q < all; q++)
        list[n++] = q;
    if (!near)
        return n;
    int block[2] = {dtp_lowering_rank(w, from, 0) / gpus, dtp_lowering_rank(w, to, 0) / gpus};
    for (int k = 0; k < (block[0] == block[1] ? 1 : 2); k++)
        for (int rank = block[k] * gpus; rank < (block[k] + 1) * gpus && rank < p->ngpus; rank++) {
            int t, c, d, stage;
            dtp_placement_coords(p, rank, &t, &c, &d, &stage);
            int q = t + p->tp * (c + p->cp * d), start = dtp_lowering_rank(w, from, q) / gpus;
            if (stage == from || (stage == to && start != block[0] && start != block[1]))
                list[n++] = q;
        }
    return n;
}

/* ---- transfers and collectives ---- */

/* Weights. A flow of `bytes` that alone takes time_s is capped at bytes / (time_s - latency_s). Its
 * siblings (the same transfer or collective of the other replicas of the stage, in lockstep) are part of
 * that time already; so their weights on a link are scaled down where together, at their caps, they
 * would ask for more than the link has. Folded, the representative carries the weights of all. */

/* Returns the index of a global rank, in an unfolded graph only. */
static int find_rank(const struct dtp_lowering *w, int rank) {
    int t, c, d, s;
    dtp_placement_coords(&w->placement, rank, &t, &c, &d, &s);
    return dtp_lowering_index(w, s, t + w->placement.tp * (c + w->placement.cp * d));
}

static bool is_flow(const struct dtp_comm *c) {
    return c->bytes > 0 && c->time_s > c->latency_s;
}

/* The groups of the first chunk that has a flow serve all chunks. */
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
    int n = meeting(w, from, to, &replica);
    for (int i = 0; i < n; i++) {
        find_route(w, from, to, replica[i], &route);
        for (int k = 0; k < route.n; k++)
            total_add(w, route.link[k], 1);
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

/* Finds the uses of all groups, and the sums by link, so that dtp_flows_add() can scale them. */
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

/* ---- links that cannot bind ---- */

/* A collective of 4,096 ranks uses 16,384 links, nearly all of them alike. A link needs no use where
 *   - only one collective of one stage (its groups in lockstep) uses it: together they never ask for
 *     more than it has, by the weights above;
 *   - another link has the same capacity and the same uses by the same groups: one binds as both do.
 * Links that a transfer or the embedding's all-reduce uses stay. */

struct pruning {
    struct dtp_lowering *w;
    uint64_t *signature; /* [nlinks] of the uses, in any order */
    uint32_t *user;      /* [nlinks] 1 + the last collective that uses it */
    bool *several;       /* [nlinks] more than one does */
    bool *keep;          /* [nlinks] */
};

/* The bits are those of single precision, so that sums in another order count as equal. */
static uint64_t bits(double x) {
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void sign(struct pruning *p, const struct dtp_group_flows *flows, uint32_t collective) {
    for (int i = 0; i < flows->n; i++) {
        const struct dtp_group_flow *f = &flows->at[i];
        for (uint32_t k = 0; k < f->nraw; k++) {
            uint32_t link = f->raw[2 * k].resource;
            uint64_t who = (uint64_t)collective << 32 | (uint32_t)i;
            uint64_t what = bits(f->raw[2 * k].weight) << 32 | bits(f->raw[2 * k + 1].weight);
            p->signature[link] += dtp_mix(dtp_mix(who + 1) + what);
            p->several[link] |= p->user[link] && p->user[link] != collective + 1;
            p->user[link] = collective + 1;
        }
    }
}

static void choose(struct pruning *p) {
    struct dtp_lowering *w = p->w;
    size_t nbuckets = 2 * (size_t)w->nlinks + 1;
    uint64_t *seen = DTP_NEW(w->a, uint64_t, nbuckets);
    for (uint32_t link = 0; link < w->nlinks; link++) {
        p->keep[link] = w->link[link] != DTP_NONE;
        if (p->keep[link] || !p->several[link])
            continue;
        uint64_t key = dtp_mix(p->signature[link] + bits(dtp_lowering_capacity(w, link))) | 1;
        size_t at = (size_t)(key % nbuckets);
        while (seen[at] && seen[at] != key)
            at = (at + 1) % nbuckets;
        p->keep[link] = seen[at] == 0;
        seen[at] = key;
    }
}

static void drop(const struct pruning *p, const struct dtp_group_flows *flows) {
    for (int i = 0; i < flows->n; i++) {
        struct dtp_group_flow *f = &flows->at[i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < f->nraw; k++) {
            if (!p->keep[f->raw[2 * k].resource])
                continue;
            f->raw[2 * n] = f->raw[2 * k];
            f->raw[2 * n + 1] = f->raw[2 * k + 1];
            n++;
        }
        f->nraw = n;
    }
}

static void prune(struct dtp_lowering *w) {
    size_t n = w->nlinks;
    struct pruning p = {w, DTP_NEW(w->a, uint64_t, n), DTP_NEW(w->a, uint32_t, n),
                        DTP_NEW(w->a, bool, n), DTP_NEW(w->a, bool, n)};
    uint32_t ncollectives = (uint32_t)(w->l.pp * DTP_NUNITS);
    for (int i = 0; i < w->embedding.n; i++)
        for (uint32_t k = 0; k < w->embedding.at[i].nraw; k++)
            dtp_lowering_link(w, w->embedding.at[i].raw[2 * k].resource);
    for (uint32_t c = 0; c < ncollectives; c++)
        sign(&p, &w->unit[c], c);
    choose(&p);
    for (uint32_t c = 0; c < ncollectives; c++)
        drop(&p, &w->unit[c]);
}

/* ---- --detail step ---- */

/* A repeat of a step whose largest flow sends the share f of the buffer takes
 *     latency_s / repeats + (time_s - latency_s) f / (sum of f over all repeats)
 * so that all of them, alone, take time_s: a measured curve keeps its time, the steps its shape. */

enum { MOST_FLOWS = 1 << 16 }; /* one collective has no more */

struct stepping {
    struct dtp_lowering *w;
    const struct dtp_group_flow *group;
    double latency_s;   /* one repeat */
    double s_per_share; /* time of share 1, the whole buffer */
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

/* Adds the rates that all siblings together ask of each link in one repeat. */
static void add_totals(const struct stepping *s, const struct dtp_coll_flow *flow, int n,
                       double time_s) {
    for (int q = 0; q < s->group->nsiblings; q++)
        for (int i = 0; i < n; i++) {
            struct dtp_route r;
            double rate = flow[i].fraction * s->bytes / time_s;
            bool mine = s->group->sibling[q].first == s->group->group.first;
            route(s, &s->group->sibling[q], &flow[i], &r);
            for (int k = 0; k < r.n; k++) {
                total_add(s->w, r.link[k], rate);
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
 * compute loses as much to all repeats together as to the one flow of a collective that is not expanded. */
static uint32_t load_members(const struct stepping *s, struct dtp_use *uses) {
    uint32_t n = s->device_share > 0 ? (uint32_t)s->group->nmembers : 0;
    for (uint32_t i = 0; i < n; i++)
        uses[i] =
            (struct dtp_use){s->w->device[s->group->member[i]], DTP_USE_LOAD, s->device_share};
    return n;
}

/* Adds one repeat after task `before` and returns its barrier. */
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

/* These are the steps of a collective and their sums. */
struct all_steps {
    struct dtp_step at[DTP_MAX_STEPS];
    int n; /* 0: it stays compound */
    int repeats;
    double nflows;
    double shares; /* sum of the buffer shares of the largest flow of each repeat */
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

static int count_steps(struct dtp_lowering *w, const struct dtp_group *group,
                       const struct dtp_comm *comm) {
    struct all_steps steps;
    find_steps(w, group, comm, &steps);
    return steps.n > 0 ? 1 + steps.repeats + (int)steps.nflows : 0;
}

static struct dtp_span add_steps(struct dtp_lowering *w, const struct dtp_group_flow *group,
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

/* ---- what the other files call ---- */

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
    prune(w);
}

int dtp_flows_count(struct dtp_lowering *w, const struct dtp_group *group,
                    const struct dtp_comm *comm) {
    int n = 0;
    if (w->options->detail == DTP_DETAIL_STEP && group->size > 1 && is_flow(comm))
        n = count_steps(w, group, comm);
    return n > 0 ? n : 1;
}

struct dtp_span dtp_flows_add(struct dtp_lowering *w, const struct dtp_group_flow *group,
                              const struct dtp_comm *comm, double n, bool loads, uint64_t tag) {
    struct dtp_span span = {DTP_NONE, DTP_NONE};
    if (w->options->detail == DTP_DETAIL_STEP && group->flows && is_flow(comm))
        span = add_steps(w, group, comm, n, loads, tag);
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
