#include "hw/placement.h"

#include <math.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/mix.h"
#include "sim/base/text.h"

enum { NBASIC = 4 };
static const char *const axis_names[NBASIC] = {"tp", "cp", "dp", "pp"};

static int basic_size(const struct dtp_placement *p, int axis) {
    const int sizes[NBASIC] = {p->tp, p->cp, p->dp, p->pp};
    return sizes[axis];
}

/* Parses "tp-cp-dp-pp" into axes, innermost first. */
static enum dtp_status parse_order(const char *order, int axis[NBASIC], struct dtp_err *err) {
    bool seen[NBASIC] = {false};
    const char *at = order;
    for (int i = 0; i < NBASIC; i++) {
        size_t n = strcspn(at, "-");
        int found = -1;
        for (int k = 0; k < NBASIC; k++)
            if (n == strlen(axis_names[k]) && strncmp(at, axis_names[k], n) == 0)
                found = k;
        bool last = i == NBASIC - 1;
        if (found < 0 || seen[found] || (at[n] == '-') == last)
            return dtp_fail(err, DTP_EINPUT,
                            "rank order: found \"%s\", expected tp, cp, dp and pp, innermost "
                            "first, such as tp-cp-dp-pp",
                            order);
        seen[found] = true;
        axis[i] = found;
        at += n + 1;
    }
    return DTP_OK;
}

/* dp x cp is one axis when nothing that counts stands between them. */
static bool neighbours(const struct dtp_placement *p) {
    int dp = p->stride[DTP_AXIS_DP], cp = p->stride[DTP_AXIS_CP];
    return p->dp == 1 || p->cp == 1 || dp == cp * p->cp || cp == dp * p->dp;
}

enum dtp_status dtp_placement_init(struct dtp_placement *out, const struct dtp_cluster *c,
                                   const struct dtp_sizes *sizes, const char *order,
                                   struct dtp_err *err) {
    int tp = sizes->tp, cp = sizes->cp, dp = sizes->dp, pp = sizes->pp, ep = sizes->ep;
    int etp = sizes->etp > 0 ? sizes->etp : tp;
    int axis[NBASIC] = {0}, stride = 1;
    if (tp < 1 || cp < 1 || dp < 1 || pp < 1 || ep < 1)
        return dtp_fail(err, DTP_EINPUT, "tp %d cp %d dp %d pp %d ep %d: each must be 1 or more",
                        tp, cp, dp, pp, ep);
    DTP_TRY(parse_order(order, axis, err));
    *out = (struct dtp_placement){.tp = tp,
                                  .cp = cp,
                                  .dp = dp,
                                  .pp = pp,
                                  .ep = ep,
                                  .etp = etp,
                                  .gpus_per_node = c->node.gpus};
    for (int i = 0; i < NBASIC; i++) {
        out->stride[axis[i]] = stride;
        if (stride > INT32_MAX / basic_size(out, axis[i]))
            return dtp_fail(err, DTP_EINPUT, "tp %d cp %d dp %d pp %d: too many GPUs", tp, cp, dp,
                            pp);
        stride *= basic_size(out, axis[i]);
    }
    out->ngpus = stride;
    if (c->max_gpus > 0 && stride > c->max_gpus)
        return dtp_fail(err, DTP_EINPUT, "%d GPUs: cluster %s has %d", stride, c->name,
                        c->max_gpus);
    if (!neighbours(out))
        return dtp_fail(err, DTP_EINPUT,
                        "rank order \"%s\": cp and dp must be neighbours, they reduce together",
                        order);
    if (etp == tp && dp * cp % ep != 0)
        return dtp_fail(err, DTP_EINPUT, "ep %d does not divide dp x cp = %d", ep, dp * cp);
    if (etp != tp && (etp > stride || ep > stride / etp || tp * cp * dp % (etp * ep) != 0))
        return dtp_fail(err, DTP_EINPUT, "etp %d x ep %d does not divide tp x cp x dp = %d", etp,
                        ep, tp * cp * dp);
    if (etp != tp && pp > 1 && out->stride[DTP_AXIS_PP] != tp * cp * dp)
        return dtp_fail(err, DTP_EINPUT, "rank order \"%s\": etp other than tp needs pp outermost",
                        order);
    return DTP_OK;
}

int dtp_placement_rank(const struct dtp_placement *p, int t, int c, int d, int s) {
    return t * p->stride[DTP_AXIS_TP] + c * p->stride[DTP_AXIS_CP] + d * p->stride[DTP_AXIS_DP] +
           s * p->stride[DTP_AXIS_PP];
}

void dtp_placement_coords(const struct dtp_placement *p, int rank, int *t, int *c, int *d, int *s) {
    *t = rank / p->stride[DTP_AXIS_TP] % p->tp;
    *c = rank / p->stride[DTP_AXIS_CP] % p->cp;
    *d = rank / p->stride[DTP_AXIS_DP] % p->dp;
    *s = rank / p->stride[DTP_AXIS_PP] % p->pp;
}

/* Stride and size of the groups of an axis; a group's coordinate is rank / stride % size. */
static void axis_shape(const struct dtp_placement *p, enum dtp_axis axis, int *stride, int *size) {
    int cp = p->stride[DTP_AXIS_CP], dp = p->stride[DTP_AXIS_DP];
    int inner = p->cp == 1 ? dp : p->dp == 1 || cp < dp ? cp : dp;
    bool folded =
        p->etp != p->tp; /* ranks of a stage are 0 .. tp cp dp - 1, parts of an expert first */
    switch (axis) {
    case DTP_AXIS_TP:
    case DTP_AXIS_CP:
    case DTP_AXIS_DP:
    case DTP_AXIS_PP:
        *stride = p->stride[axis];
        *size = basic_size(p, (int)axis);
        return;
    case DTP_AXIS_DP_CP:
        *stride = inner;
        *size = p->dp * p->cp;
        return;
    case DTP_AXIS_EP:
        *stride = folded ? p->etp : inner;
        *size = p->ep;
        return;
    case DTP_AXIS_ETP:
        *stride = folded ? 1 : p->stride[DTP_AXIS_TP];
        *size = p->etp;
        return;
    case DTP_AXIS_EDP:
        *stride = p->ep * (folded ? p->etp : inner);
        *size = p->tp * p->dp * p->cp / (p->ep * p->etp);
        return;
    case DTP_AXIS_ZERO:
        *stride = inner;
        *size = p->zero_group > 0 ? p->zero_group : p->dp * p->cp;
        return;
    case DTP_AXIS_REPLICA:
        *stride = inner * (p->zero_group > 0 ? p->zero_group : p->dp * p->cp);
        *size = p->zero_group > 0 ? p->dp * p->cp / p->zero_group : 1;
        return;
    case DTP_NAXES:
        break;
    }
    *stride = *size = 1;
}

struct dtp_group dtp_placement_group(const struct dtp_placement *p, enum dtp_axis axis, int rank) {
    int stride = 1, size = 1;
    axis_shape(p, axis, &stride, &size);
    return (struct dtp_group){rank - rank / stride % size * stride, stride, size};
}

/* ---- shapes ---- */

/* Members first + i stride with lo <= rank < hi, as a count. */
static int members_in(const struct dtp_group *g, int lo, int hi) {
    int last = g->first + (g->size - 1) * g->stride;
    if (lo < g->first)
        lo = g->first;
    if (hi > last + 1)
        hi = last + 1;
    if (lo >= hi)
        return 0;
    return (hi - 1 - g->first) / g->stride - (lo - 1 - g->first + g->stride) / g->stride + 1;
}

/* Distinct NICs of the group's members on a node, and into *siblings the largest number of groups
 * of the axis and stage that use one of them. */
static int node_nics(const struct dtp_placement *p, const struct dtp_cluster *c,
                     const struct dtp_group *g, int node, int *siblings) {
    int first = node * p->gpus_per_node, last = first + p->gpus_per_node;
    int stage = g->first / p->stride[DTP_AXIS_PP] % p->pp, nics = 0;
    bool used[DTP_MAX_GPUS_PER_NODE] = {false};
    bool all_stages = g->size > 1 && g->stride == p->stride[DTP_AXIS_PP] && g->size == p->pp;
    int mine = g->first +
               (first > g->first ? (first - g->first + g->stride - 1) / g->stride : 0) * g->stride;
    for (int r = mine; r < last && r <= g->first + (g->size - 1) * g->stride; r += g->stride) {
        int nic = c->node.nic_of_gpu[r - first], groups = 0, known[DTP_MAX_GPUS_PER_NODE];
        if (used[nic])
            continue;
        used[nic] = true;
        nics++;
        for (int q = first; q < last && q < p->ngpus; q++) {
            if (c->node.nic_of_gpu[q - first] != nic ||
                (!all_stages && q / p->stride[DTP_AXIS_PP] % p->pp != stage))
                continue;
            int id = q - q / g->stride % g->size * g->stride, k = 0;
            while (k < groups && known[k] != id)
                k++;
            if (k == groups)
                known[groups++] = id;
        }
        if (groups > *siblings)
            *siblings = groups;
    }
    return nics;
}

static int lowest_common_tier(const struct dtp_cluster *c, int from, int to) {
    int t = 0;
    while (t + 1 < c->ntiers && from / c->tier[t].nodes != to / c->tier[t].nodes)
        t++;
    return t;
}

struct dtp_group_shape dtp_placement_shape(const struct dtp_placement *p,
                                           const struct dtp_cluster *c, enum dtp_axis axis,
                                           int rank) {
    struct dtp_group g = dtp_placement_group(p, axis, rank);
    int gpus = p->gpus_per_node, last_rank = g.first + (g.size - 1) * g.stride;
    int from = g.first / gpus, to = last_rank / gpus;
    struct dtp_group_shape s = {
        .size = g.size, .nodes = 1, .per_node = g.size, .siblings = 1, .tier = -1};
    if (from == to)
        return s;
    s.tier = lowest_common_tier(c, from, to);
    s.nodes = g.stride >= gpus ? g.size : to - from + 1;
    s.per_node = 1;
    /* All nodes of a group look alike if groups and nodes nest. */
    bool alike = g.stride >= gpus ? g.stride % gpus == 0
                                  : gpus % g.stride == 0 && g.stride * g.size % gpus == 0 &&
                                        g.first % gpus < g.stride;
    int step = g.stride >= gpus ? g.stride : gpus;
    for (int i = 0; i < s.nodes; i++) {
        int node = (g.first + i * step) / gpus,
            here = members_in(&g, node * gpus, (node + 1) * gpus);
        int nics = node_nics(p, c, &g, node, &s.siblings);
        if (here > s.per_node || s.nics == 0) {
            s.per_node = here;
            s.nics = nics;
        }
        if (alike)
            break;
    }
    return s;
}

/* ---- whether one replica of each stage stands for all ---- */

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

/* Finds the route to the next stage or back; the first and the last stage are neighbours because of chunks. */
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

/* Returns the fingerprint of one use, with its weight to a millionth. */
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

/* Returns the fingerprint of all other traffic on the links of a rank's collective, in any order. */
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
