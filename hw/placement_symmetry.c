/* Whether one replica of each stage stands for all. */
#include <math.h>

#include "hw/collective.h"
#include "hw/placement.h"
#include "sim/base/mix.h"

/* Two replicas are alike when their groups and routes are, and when what else may run on the links of these is:
 * a stage's first rank meets the ring of its own stage on another link than the second, or half of its replicas
 * share a node with the next stage. So each link has a fingerprint of its traffic: the sum over all stages of
 * transfers and collectives, a hash of the kind and the stage for each. */
struct traffic {
    struct dtp_arena *scratch;
    const struct dtp_placement *p;
    const struct dtp_cluster *c;
    uint64_t *of; /* [links] */
};

static int stage_of(const struct dtp_placement *p, int rank) {
    return rank / p->stride[DTP_AXIS_PP] % p->pp;
}

static bool equal(double x, double y) {
    return !(x < y || x > y);
}

/* Tiers are the same to a message when they add the same latency and share as much on the way up. */
static bool same_tier(const struct dtp_cluster *c, int x, int y) {
    double latency_s[2] = {0}, share[2] = {1, 1};
    const int top[2] = {x, y};
    for (int k = 0; k < 2; k++)
        for (int t = 0; t <= top[k] && t < c->ntiers; t++) {
            latency_s[k] += c->tier[t].latency_s;
            share[k] *= t < top[k] ? c->tier[t].oversubscription : 1;
        }
    return (x < 0) == (y < 0) && equal(latency_s[0], latency_s[1]) && equal(share[0], share[1]);
}

static bool same_shape(const struct dtp_cluster *c, const struct dtp_group_shape *x,
                       const struct dtp_group_shape *y) {
    return x->size == y->size && x->nodes == y->nodes && x->per_node == y->per_node &&
           x->nics == y->nics && x->siblings == y->siblings && same_tier(c, x->tier, y->tier);
}

/* To the next stage or back; the first and the last are neighbours, as chunks of one rank want it. */
static void route_of(const struct traffic *t, int rank, bool back, struct dtp_route *out) {
    const struct dtp_placement *p = t->p;
    int stage = stage_of(p, rank), to = (stage + (back ? p->pp - 1 : 1)) % p->pp;
    dtp_cluster_route(t->c, p->ngpus, rank, rank + (to - stage) * p->stride[DTP_AXIS_PP], out);
}

/* Links of a group's collective: rings, or all pairs of experts. Until the next call. */
static uint32_t uses_of(const struct traffic *t, enum dtp_axis axis, int rank,
                        const struct dtp_use **out) {
    struct dtp_coll_call call = {axis == DTP_AXIS_EP ? DTP_ALL_TO_ALL : DTP_ALL_REDUCE,
                                 DTP_ALGO_AUTO, dtp_placement_group(t->p, axis, rank), t->p->ngpus};
    dtp_arena_reset(t->scratch);
    return call.group.size > 1 ? dtp_coll_uses(t->scratch, t->c, &call, out) : 0;
}

/* Of one use, with its weight to a millionth. */
static uint64_t print_of(int kind, int stage, double weight) {
    return dtp_mix(dtp_fnv(dtp_fnv(dtp_fnv(DTP_FNV_START, (uint64_t)kind), (uint64_t)stage),
                           (uint64_t)llrint(ldexp(weight, 20))));
}

static bool leads(const struct traffic *t, enum dtp_axis axis, int rank) {
    return axis != DTP_AXIS_PP && dtp_placement_group(t->p, axis, rank).first == rank;
}

static void add_rank(struct traffic *t, int rank) {
    int stage = stage_of(t->p, rank);
    for (int back = 0; back < 2 && t->p->pp > 1; back++) {
        struct dtp_route route;
        route_of(t, rank, back, &route);
        for (int i = 0; i < route.n; i++)
            t->of[route.link[i]] += print_of(DTP_NAXES + back, stage, 1);
    }
    for (int axis = 0; axis < DTP_NAXES; axis++) {
        const struct dtp_use *use = NULL;
        uint32_t n =
            leads(t, (enum dtp_axis)axis, rank) ? uses_of(t, (enum dtp_axis)axis, rank, &use) : 0;
        for (uint32_t i = 0; i < n; i++)
            t->of[use[i].resource] += print_of(axis, stage, use[i].weight);
    }
}

/* Kinds of route and their traffic, not their links. A send has one latency between nodes (dtp_p2p_cost()), so that
 * only the capacities on the way tell routes apart. */
static bool same_route(const struct traffic *t, int first, int rank, bool back) {
    struct dtp_route x, y;
    route_of(t, first, back, &x);
    route_of(t, rank, back, &y);
    if (x.n != y.n || x.inter_node != y.inter_node)
        return false;
    for (int i = 0; i < x.n; i++)
        if (t->of[x.link[i]] != t->of[y.link[i]] ||
            !equal(dtp_cluster_link_capacity(t->c, t->p->ngpus, x.link[i]),
                   dtp_cluster_link_capacity(t->c, t->p->ngpus, y.link[i])))
            return false;
    return true;
}

/* All that runs on the links of a rank's collective beside it, in any order. */
static uint64_t beside(const struct traffic *t, enum dtp_axis axis, int rank) {
    const struct dtp_use *use = NULL;
    uint64_t sum = 0;
    for (uint32_t n = uses_of(t, axis, rank, &use); n-- > 0;)
        sum += dtp_mix(t->of[use[n].resource]);
    return sum;
}

/* All groups that start at this rank look like that of the stage's first rank. */
static bool same_groups(const struct traffic *t, int first, int rank) {
    for (int i = 0; i < DTP_NAXES; i++) {
        enum dtp_axis axis = (enum dtp_axis)i;
        if (!leads(t, axis, rank))
            continue;
        struct dtp_group_shape x = dtp_placement_shape(t->p, t->c, axis, first);
        struct dtp_group_shape y = dtp_placement_shape(t->p, t->c, axis, rank);
        if (!same_shape(t->c, &x, &y) || beside(t, axis, first) != beside(t, axis, rank))
            return false;
    }
    return true;
}

bool dtp_placement_symmetric(const struct dtp_placement *p, const struct dtp_cluster *c) {
    struct dtp_arena *a = dtp_arena_create("traffic");
    struct traffic t = {dtp_arena_create("uses of a group"), p, c,
                        DTP_NEW(a, uint64_t, dtp_cluster_nlinks(c, p->ngpus))};
    bool same = true;
    for (int rank = 0; rank < p->ngpus; rank++)
        add_rank(&t, rank);
    for (int rank = 0; rank < p->ngpus && same; rank++) {
        int first = stage_of(p, rank) * p->stride[DTP_AXIS_PP];
        same = same_groups(&t, first, rank) && (p->pp == 1 || (same_route(&t, first, rank, false) &&
                                                               same_route(&t, first, rank, true)));
    }
    dtp_arena_destroy(t.scratch);
    dtp_arena_destroy(a);
    return same;
}
