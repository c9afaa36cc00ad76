#include "hw/collective.h"

#include <math.h>
#include <string.h>

#include "hw/cluster_parts.h"
#include "hw/nccl.h"
#include "sim/base/units.h"

static double lesser(double x, double y) {
    return x < y ? x : y;
}

static double greater(double x, double y) {
    return x > y ? x : y;
}

static double port_bytes_per_s(const struct dtp_cluster *c) {
    return c->node.gpu_link_bytes_per_s * c->node.gpu_link_efficiency;
}

/* ---- lat and g of every way to run a collective ---- */

/* Each rank sends 1/n to each other: NVLink inside, the node's NICs for the rest; one call of NCCL
 * holds all sends, each a little work on its own (2 us: Sophia, 16 GPUs, 58 us in all; Polaris,
 * 2,160 ranks, 12 us each). */
static void all_to_all_terms(const struct dtp_cluster *c, const struct dtp_group_shape *s,
                             struct dtp_nccl_terms *out) {
    double peer_s = 2 * DTP_MICRO, n = s->size, p = s->per_node;
    double g = p > 1 ? (p - 1) / n / port_bytes_per_s(c) : 0;
    if (c->node.intra == DTP_INTRA_SHM || c->node.intra == DTP_INTRA_MESH)
        g = (p - 1) / n / dtp_coll_ring_bytes_per_s(c, &(struct dtp_group_shape){
                              .size = s->per_node, .nodes = 1, .per_node = s->per_node,
                              .siblings = 1, .tier = -1});
    out->n = 1;
    out->at[0].algo = DTP_NCCL_RING;
    out->at[0].lat_s = c->node.p2p_intra_latency_s + (n - 1) * peer_s;
    if (s->nodes > 1) {
        struct dtp_group_shape across = *s;
        across.per_node = 1;
        g = greater(g, (n - p) * p / n / dtp_coll_ring_bytes_per_s(c, &across));
        out->at[0].lat_s += c->node.p2p_latency_s - c->node.p2p_intra_latency_s;
    }
    out->at[0].s_per_byte = g;
}

static void send_terms(const struct dtp_cluster *c, const struct dtp_group_shape *s,
                       struct dtp_nccl_terms *out) {
    const struct dtp_node *n = &c->node;
    double g = 1 / (n->intra == DTP_INTRA_MESH ? n->mesh_link_bytes_per_s * n->gpu_link_efficiency
                                               : port_bytes_per_s(c));
    out->n = 1;
    out->at[0].algo = DTP_NCCL_RING;
    out->at[0].lat_s = n->p2p_intra_latency_s;
    if (s->nodes > 1) {
        struct dtp_group_shape one = *s;
        one.per_node = one.nics = 1;
        g = greater(1 / (n->nic_bytes_per_s * n->p2p_efficiency),
                    1 / dtp_coll_ring_bytes_per_s(c, &one));
        out->at[0].lat_s = n->p2p_latency_s;
    }
    out->at[0].s_per_byte = g;
}

static void terms_of(const struct dtp_cluster *c, enum dtp_collective kind,
                     const struct dtp_group_shape *s, struct dtp_nccl_terms *out) {
    if (kind == DTP_ALL_TO_ALL)
        all_to_all_terms(c, s, out);
    else if (kind == DTP_SEND_RECV)
        send_terms(c, s, out);
    else
        dtp_nccl_terms(c, kind, s, out);
}

/* ---- measured curves ---- */

static double curve_s(const struct dtp_curve *k, double bytes) {
    double s = lesser(bytes, k->max_bytes);
    double t = k->a_s + k->b_s_per_sqrt_byte * sqrt(s) + k->c_s_per_byte * s;
    return bytes > k->max_bytes ? t * (bytes / k->max_bytes) : t;
}

/* The group that a curve was measured on: whole nodes of this cluster. */
static struct dtp_group_shape curve_shape(const struct dtp_cluster *c, const struct dtp_curve *k) {
    struct dtp_group_shape s = {.size = k->gpus, .nodes = k->nodes, .siblings = 1, .tier = -1,
                                .per_node = (k->gpus + k->nodes - 1) / k->nodes};
    if (k->nodes > 1) {
        s.nics = s.per_node < c->node.nics ? s.per_node : c->node.nics;
        s.tier = 0;
    }
    return s;
}

static bool gathers(int kind) {
    return kind == DTP_ALL_GATHER || kind == DTP_REDUCE_SCATTER;
}

/* How well a curve of `have` tells about `want`: 3 the same, 2 its mirror, 1 a ring of another kind. */
static int kinship(const struct dtp_cluster *c, int want, int have) {
    if (want == have)
        return 3;
    if (gathers(want) && gathers(have))
        return 2;
    bool ring = want <= DTP_REDUCE && (have == DTP_ALL_REDUCE ? !c->nvls : gathers(have));
    return ring && !(want == DTP_ALL_REDUCE && c->nvls) ? 1 : 0;
}

/* log2, linear between powers of two. */
static double log2_between(double x) {
    int e = 0;
    double m = frexp(x, &e);
    return e + 2 * m - 1;
}

/* Curves next below and above the group size, of the best kinship, and the exact one. */
struct neighbours {
    const struct dtp_curve *exact, *below, *above;
};

static struct neighbours find_curves(const struct dtp_cluster *c, enum dtp_collective kind,
                                     const struct dtp_group_shape *s) {
    struct neighbours n = {0};
    int best = 1;
    for (int i = 0; i < c->ncurves; i++) {
        const struct dtp_curve *k = &c->curve[i];
        int kin = kinship(c, (int)kind, k->collective);
        if ((k->nodes > 1) != (s->nodes > 1) || kin < best)
            continue;
        if (kin > best) {
            best = kin;
            n = (struct neighbours){0};
        }
        bool regular = s->per_node * s->nodes == s->size;
        if (k->gpus == s->size && k->nodes == s->nodes && regular && !k->foreign && !n.exact)
            n.exact = k;
        if (k->gpus <= s->size && (!n.below || k->gpus > n.below->gpus))
            n.below = k;
        if (k->gpus >= s->size && (!n.above || k->gpus < n.above->gpus))
            n.above = k;
    }
    return n;
}

void dtp_curve_terms(const struct dtp_cluster *measured, struct dtp_curve *k) {
    struct dtp_group_shape shape = curve_shape(measured, k);
    struct dtp_nccl_terms t;
    terms_of(measured, (enum dtp_collective)k->collective, &shape, &t);
    k->nterms = t.n;
    for (int i = 0; i < t.n; i++) {
        k->term[i].algo = (int)t.at[i].algo;
        k->term[i].lat_s = t.at[i].lat_s;
        k->term[i].s_per_byte = t.at[i].s_per_byte;
    }
}

/* The curve of another group, in dimensionless form, least over the algorithms that both have. */
static double scaled_s(const struct dtp_curve *k, const struct dtp_nccl_terms *to, double bytes,
                       double *latency_s) {
    double best = -1;
    for (int i = 0; i < to->n; i++)
        for (int j = 0; j < k->nterms; j++) {
            if ((int)to->at[i].algo != k->term[j].algo)
                continue;
            double lat = to->at[i].lat_s / k->term[j].lat_s;
            double size = to->at[i].s_per_byte / k->term[j].s_per_byte / lat;
            double t = lat * curve_s(k, bytes * size);
            if (best < 0 || t < best) {
                best = t;
                *latency_s = lat * k->a_s;
            }
        }
    return best;
}

/* ---- no curve ---- */

static double modelled_s(const struct dtp_nccl_correction *k, const struct dtp_nccl_terms *to,
                         double bytes, double *latency_s) {
    double best = -1;
    for (int i = 0; i < to->n; i++) {
        double lat = to->at[i].lat_s, x = to->at[i].s_per_byte * bytes;
        double t = k->latency * lat + k->mixed * sqrt(lat * x) + k->bandwidth * x;
        if (best < 0 || t < best) {
            best = t;
            *latency_s = k->latency * lat;
        }
    }
    return best;
}

/* Latency and bandwidth of a single call are as they are measured; nothing to correct. */
static const struct dtp_nccl_correction plain = {1, 0, 1, 0};

/* ---- the closed form of the steps on a regular group ---- */

/* Bytes on the busiest port and NIC and the latency of one repeat, in units of the buffer. */
struct load {
    double port, nic, sharers; /* sharers of the NIC: GPUs of the group that send at once */
    bool across;
};

static struct load step_load(const struct dtp_step *st, const struct dtp_group_shape *s) {
    double f = st->fraction, n = s->size, p = s->per_node, per_nic = s->nics > 0 ? p / s->nics : 1;
    int d = st->distance;
    bool multi = s->nodes > 1, far = multi && d >= s->per_node;
    struct load in = {f, 0, 0, false}, out = {0, f * per_nic, 0, true};
    switch (st->peer) {
    case DTP_PEER_NEXT:
        if (st->tier == 1)
            return in;
        if (st->tier == 2)
            return out;
        if (d == 0)
            return (struct load){p > 1 ? f : 0, multi ? f * per_nic : 0, 0, multi};
        return (struct load){p > 1 ? f : 0, multi ? f / s->nics : 0, 0, multi};
    case DTP_PEER_CHAIN:
    case DTP_PEER_CHAIN_BACK: return (struct load){p > 1 ? f : 0, multi ? f : 0, 0, multi};
    case DTP_PEER_XOR: return far ? out : in;
    case DTP_PEER_FOLD_IN:
    case DTP_PEER_FOLD_OUT: return far ? out : in;
    case DTP_PEER_TO_ROOT:
    case DTP_PEER_FROM_ROOT:
        if (d == 1)
            return multi ? (struct load){0, f, 0, true} : in;
        return (struct load){(p - 1) * f, multi ? (n - p) * f : 0, 0, multi};
    case DTP_PEER_ALL:
        return (struct load){(p - 1) * f, multi ? p * (n - p) * f / s->nics : 0, 0, multi};
    case DTP_PEER_TREE_UP:
    case DTP_PEER_TREE_DOWN: return far ? (struct load){0, f, 0, true} : in;
    case DTP_PEER_TREES_UP:
    case DTP_PEER_TREES_DOWN:
        return far ? (struct load){0, per_nic > 1 ? 2 * f : f, 0, true} : (struct load){2 * f, 0, 0, false};
    case DTP_PEER_SWITCH: return in;
    }
    return in;
}

static double steps_s(const struct dtp_cluster *c, enum dtp_algo algo, enum dtp_collective kind,
                      const struct dtp_group_shape *s, double bytes, double *latency_s) {
    struct dtp_step steps[DTP_MAX_STEPS];
    int per_node = s->per_node * s->nodes == s->size ? s->per_node : 1;
    int n = dtp_coll_steps(algo, kind, s->size, per_node, steps, DTP_MAX_STEPS);
    double t = 0, lat = 0, net = 0, hop = c->node.nic_latency_s;
    if (n < 0 || (algo == DTP_ALGO_NVLS && c->node.intra != DTP_INTRA_SWITCH))
        return -1;
    if (s->nodes > 1) {
        struct dtp_group_shape one = {.size = 2, .nodes = 2, .per_node = 1, .nics = 1,
                                      .siblings = s->siblings, .tier = s->tier};
        net = dtp_coll_ring_bytes_per_s(c, &one);
        for (int k = 0; k <= s->tier && k < c->ntiers; k++)
            hop += c->tier[k].latency_s;
    }
    for (int i = 0; i < n; i++) {
        struct load l = step_load(&steps[i], s);
        double wire = l.port * bytes / port_bytes_per_s(c);
        double step = l.across ? hop : c->node.gpu_link_latency_s;
        if (l.nic > 0)
            wire = greater(wire, l.nic * bytes / net);
        lat += steps[i].repeat * step;
        t += steps[i].repeat * (step + wire);
    }
    *latency_s = lat;
    return t;
}

/* ---- putting it together ---- */

/* Bytes of the busiest port and NIC for a buffer of one byte, as dtp_coll_uses() spreads them. */
static void wire(enum dtp_collective kind, enum dtp_algo algo, const struct dtp_group_shape *s, double *port, double *nic) {
    double n = s->size, p = s->per_node;
    bool multi = s->nodes > 1;
    double factor = dtp_busbw_factor(kind, s->size);
    *port = p > 1 ? factor : 0;
    *nic = multi ? factor / s->nics : 0;
    if (kind == DTP_ALL_TO_ALL) {
        *port = (p - 1) / n;
        *nic = multi ? p * (n - p) / n / s->nics : 0;
    } else if (kind == DTP_SEND_RECV || kind == DTP_BROADCAST || kind == DTP_REDUCE) {
        *port = p > 1;
        *nic = multi;
    } else if (algo == DTP_ALGO_NVLS) {
        *port = 1;
        *nic = multi ? 2.0 * (s->nodes - 1) / s->nodes * 1 / s->nics : 0;
    }
}

static enum dtp_algo algo_name(enum dtp_nccl_algo a) {
    static const enum dtp_algo names[] = {DTP_ALGO_DOUBLE_TREE, DTP_ALGO_RING, DTP_ALGO_NVLS,
                                          DTP_ALGO_NVLS};
    return names[a];
}

/* NCCL's answer, or the pseudo-algorithm of what it does not tune. */
static enum dtp_algo auto_algo(const struct dtp_cluster *c, enum dtp_collective kind,
                               const struct dtp_group_shape *s, double bytes) {
    struct dtp_nccl_choice choice;
    if (kind == DTP_ALL_TO_ALL)
        return DTP_ALGO_NAIVE;
    return dtp_nccl_choose(c, kind, s, bytes, &choice) ? algo_name(choice.algo) : DTP_ALGO_RING;
}

/* Keeps the algorithms of that name; false when NCCL does not have it here. */
static bool restrict_terms(struct dtp_nccl_terms *t, enum dtp_algo algo) {
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (algo_name(t->at[i].algo) == algo)
            t->at[n++] = t->at[i];
    if (n > 0)
        t->n = n;
    return n > 0;
}

static void from_curves(const struct neighbours *near,
                        const struct dtp_nccl_terms *to, const struct dtp_group_shape *s,
                        double bytes, struct dtp_coll_cost *out) {
    double lat[2] = {0}, t[2] = {-1, -1};
    const struct dtp_curve *k[2] = {near->below, near->above};
    for (int i = 0; i < 2; i++)
        if (k[i])
            t[i] = scaled_s(k[i], to, bytes, &lat[i]);
    int one = t[0] >= 0 ? 0 : 1;
    out->time_s = t[one];
    out->latency_s = lat[one];
    out->extrapolated = true;
    if (k[one])
        out->source = k[one]->source;
    if (t[0] < 0 || t[1] < 0 || k[0]->gpus == k[1]->gpus)
        return;
    double at = log2_between(s->size), from = log2_between(k[0]->gpus);
    double w = (at - from) / (log2_between(k[1]->gpus) - from);
    out->time_s = (1 - w) * t[0] + w * t[1];
    out->latency_s = (1 - w) * lat[0] + w * lat[1];
}

/* Time and latency of what NCCL runs (or a group of sends). */
static void nccl_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                      const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    struct neighbours near = find_curves(c, kind, s);
    const struct dtp_curve *k = near.exact;
    bool same = k && s->siblings == 1 && kinship(c, (int)kind, k->collective) >= 2;
    if (same && algo == DTP_ALGO_AUTO) {
        out->time_s = curve_s(k, bytes);
        out->latency_s = k->a_s;
        out->source = k->source;
        out->extrapolated = bytes > 2 * k->max_bytes || 2 * bytes < k->min_bytes;
        return;
    }
    struct dtp_nccl_terms to;
    terms_of(c, kind, s, &to);
    if (algo != DTP_ALGO_AUTO)
        restrict_terms(&to, algo);
    out->time_s = -1;
    if (near.below || near.above)
        from_curves(&near, &to, s, bytes, out);
    if (out->time_s >= 0)
        return;
    out->source = "nccl model";
    out->extrapolated = true;
    out->time_s = modelled_s(kind <= DTP_REDUCE ? &c->nccl_model->correction : &plain, &to, bytes,
                             &out->latency_s);
}

static bool nccl_has(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                     const struct dtp_group_shape *s) {
    struct dtp_nccl_terms t;
    if (c->node.intra == DTP_INTRA_SHM)
        return false;
    if (algo == DTP_ALGO_AUTO)
        return true;
    terms_of(c, kind, s, &t);
    if (kind == DTP_ALL_TO_ALL)
        return algo == DTP_ALGO_NAIVE;
    return restrict_terms(&t, algo);
}

/* Without NCCL: the fastest by steps. */
static void steps_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                       const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    int from = algo == DTP_ALGO_AUTO ? DTP_ALGO_RING : (int)algo;
    int to = algo == DTP_ALGO_AUTO ? DTP_NALGOS - 1 : (int)algo;
    out->time_s = -1;
    out->source = "steps";
    for (int i = from; i <= to; i++) {
        double lat = 0, t = steps_s(c, (enum dtp_algo)i, kind, s, bytes, &lat);
        if (t < 0 || (out->time_s >= 0 && t >= out->time_s) ||
            (i == DTP_ALGO_NVLS && algo == DTP_ALGO_AUTO))
            continue;
        out->time_s = t;
        out->latency_s = lat;
        out->algo = (enum dtp_algo)i;
    }
}

void dtp_coll_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                   const struct dtp_group_shape *shape, double bytes, struct dtp_coll_cost *out) {
    double port = 0, nic = 0;
    *out = (struct dtp_coll_cost){.algo = algo, .source = ""};
    if (shape->size < 2 || !(bytes > 0))
        return;
    if (nccl_has(c, kind, algo, shape)) {
        nccl_cost(c, kind, algo, shape, bytes, out);
        out->algo = algo == DTP_ALGO_AUTO ? auto_algo(c, kind, shape, bytes) : algo;
    } else {
        steps_cost(c, kind, algo, shape, bytes, out);
        if (out->time_s < 0) /* asked for what does not apply here: what would run instead */
            steps_cost(c, kind, DTP_ALGO_AUTO, shape, bytes, out);
    }
    wire(kind, out->algo, shape, &port, &nic);
    out->nvlink_bytes = port * bytes;
    out->nic_bytes = nic * bytes;
    struct dtp_group_shape one = {.size = 2, .nodes = 2, .per_node = 1, .nics = 1,
                                  .siblings = shape->siblings, .tier = shape->tier};
    double least = shape->nodes > 1 ? nic * bytes / dtp_coll_ring_bytes_per_s(c, &one) : 0;
    if (c->node.intra == DTP_INTRA_SWITCH)
        least = greater(least, port * bytes / port_bytes_per_s(c));
    out->time_s = greater(out->time_s, least);
    out->latency_s = lesser(out->latency_s, out->time_s - least);
}

void dtp_p2p_cost(const struct dtp_cluster *c, int ngpus, int src, int dst, int siblings,
                  double bytes, struct dtp_coll_cost *out) {
    int from = src / c->node.gpus, to = dst / c->node.gpus;
    struct dtp_group_shape s = {.size = 2, .nodes = 1, .per_node = 2, .siblings = 1, .tier = -1};
    (void)ngpus;
    if (src == dst) {
        *out = (struct dtp_coll_cost){.source = ""};
        return;
    }
    if (from != to) {
        int t = 0;
        while (t + 1 < c->ntiers && from / c->tier[t].nodes != to / c->tier[t].nodes)
            t++;
        s = (struct dtp_group_shape){.size = 2, .nodes = 2, .per_node = 1, .nics = 1,
                                     .siblings = siblings > 1 ? siblings : 1, .tier = t};
    }
    dtp_coll_cost(c, DTP_SEND_RECV, DTP_ALGO_AUTO, &s, bytes, out);
}
