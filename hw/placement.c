#include "hw/placement.h"

#include <string.h>

#include "sim/base/text.h"

const char *const dtp_axis_names[] = {"tp",  "cp",  "dp",   "pp",      "dp-cp", "ep",
                                      "etp", "edp", "zero", "replica", NULL};

enum { NBASIC = 4 };

static int basic_size(const struct dtp_placement *p, int axis) {
    const int sizes[NBASIC] = {p->tp, p->cp, p->dp, p->pp};
    return sizes[axis];
}

/* "tp-cp-dp-pp" to axes, innermost first. */
static enum dtp_status parse_order(const char *order, int axis[NBASIC], struct dtp_err *err) {
    bool seen[NBASIC] = {false};
    const char *at = order;
    for (int i = 0; i < NBASIC; i++) {
        size_t n = strcspn(at, "-");
        int found = -1;
        for (int k = 0; k < NBASIC; k++)
            if (n == strlen(dtp_axis_names[k]) && strncmp(at, dtp_axis_names[k], n) == 0)
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
    /* Where groups and nodes nest, all nodes of a group look alike. */
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
