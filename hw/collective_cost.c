#include "hw/collective_internal.h"

#include <math.h>

#include "hw/cluster_internal.h"
#include "sim/base/units.h"

/* Returns what one GPU reaches in one direction. */
static double port_bytes_per_s(const struct dtp_cluster *c) {
    return c->node.gpu_link_bytes_per_s * c->node.gpu_link_efficiency;
}

/* ---- latency and seconds per byte of each way to run a collective ---- */

/* Each rank sends 1/n to each other: NVLink inside, the node's NICs for the rest; one call of NCCL
 * holds all sends, each a little work on its own (2 us: Sophia, 16 GPUs, 58 us in all; Polaris,
 * 2,160 ranks, 12 us each). */
static void all_to_all_terms(const struct dtp_cluster *c, const struct dtp_group_shape *s,
                             struct dtp_nccl_terms *out) {
    double peer_s = 2 * DTP_MICRO, n = s->size, p = s->per_node;
    double g = p > 1 ? (p - 1) / n / port_bytes_per_s(c) : 0;
    if (c->node.intra == DTP_INTRA_SHM || c->node.intra == DTP_INTRA_MESH)
        g = (p - 1) / n /
            dtp_coll_ring_bytes_per_s(c, &(struct dtp_group_shape){.size = s->per_node,
                                                                   .nodes = 1,
                                                                   .per_node = s->per_node,
                                                                   .siblings = 1,
                                                                   .tier = -1});
    out->n = 1;
    out->at[0].algo = DTP_NCCL_RING;
    out->at[0].lat_s = c->node.p2p_intra_latency_s + (n - 1) * peer_s;
    if (s->nodes > 1) {
        struct dtp_group_shape across = *s;
        across.per_node = 1;
        g = dtp_greater(g, (n - p) * p / n / dtp_coll_ring_bytes_per_s(c, &across));
        out->at[0].lat_s += c->node.p2p_latency_s - c->node.p2p_intra_latency_s;
    }
    out->at[0].s_per_byte = g;
}

/* Returns the rate of one link of a mesh, or of the host if the mesh is not connected (bridged pairs). */
static double send_bytes_per_s(const struct dtp_cluster *c) {
    const struct dtp_node *n = &c->node;
    if (n->intra != DTP_INTRA_MESH)
        return port_bytes_per_s(c);
    return (n->mesh_ring[n->gpus] > 0 ? n->mesh_link_bytes_per_s : n->host_link_bytes_per_s) *
           n->gpu_link_efficiency;
}

static void send_terms(const struct dtp_cluster *c, const struct dtp_group_shape *s,
                       struct dtp_nccl_terms *out) {
    const struct dtp_node *n = &c->node;
    double g = 1 / send_bytes_per_s(c);
    out->n = 1;
    out->at[0].algo = DTP_NCCL_RING;
    out->at[0].lat_s = n->p2p_intra_latency_s;
    if (s->nodes > 1) {
        struct dtp_group_shape one = *s;
        one.per_node = one.nics = 1;
        g = dtp_greater(1 / (n->nic_bytes_per_s * n->p2p_efficiency),
                        1 / dtp_coll_ring_bytes_per_s(c, &one));
        out->at[0].lat_s = n->p2p_latency_s;
    }
    out->at[0].s_per_byte = g;
}

void dtp_coll_terms(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *s, struct dtp_nccl_terms *out) {
    if (kind == DTP_ALL_TO_ALL)
        all_to_all_terms(c, s, out);
    else if (kind == DTP_SEND_RECV)
        send_terms(c, s, out);
    else
        dtp_nccl_terms(c, kind, s, out);
}

/* The group that a curve was measured on: whole nodes of this cluster. */
static struct dtp_group_shape curve_shape(const struct dtp_cluster *c, const struct dtp_curve *k) {
    struct dtp_group_shape s = {.size = k->gpus,
                                .nodes = k->nodes,
                                .siblings = 1,
                                .tier = -1,
                                .per_node = (k->gpus + k->nodes - 1) / k->nodes};
    if (k->nodes > 1) {
        s.nics = s.per_node < c->node.nics ? s.per_node : c->node.nics;
        s.tier = 0;
    }
    return s;
}

void dtp_curve_terms(const struct dtp_cluster *measured, struct dtp_curve *k) {
    struct dtp_group_shape shape = curve_shape(measured, k);
    struct dtp_nccl_terms t;
    dtp_coll_terms(measured, (enum dtp_collective)k->collective, &shape, &t);
    k->nterms = t.n;
    k->simple_only = measured->simple_only;
    for (int i = 0; i < t.n; i++) {
        k->term[i].algo = (int)t.at[i].algo;
        k->term[i].lat_s = t.at[i].lat_s;
        k->term[i].s_per_byte = t.at[i].s_per_byte;
    }
}

/* ---- closed form of the steps ---- */

/* Bytes on the busiest port and NIC and the latency of one repeat, in units of the buffer. */
struct load {
    double port, nic;
    bool across;
};

static struct load step_load(const struct dtp_step *st, const struct dtp_group_shape *s) {
    double f = st->fraction, n = s->size, p = s->per_node, per_nic = s->nics > 0 ? p / s->nics : 1;
    int d = st->distance;
    bool multi = s->nodes > 1, far = multi && d >= s->per_node;
    struct load in = {f, 0, false}, out = {0, f * per_nic, true};
    switch (st->peer) {
    case DTP_PEER_NEXT:
        if (st->tier == 1)
            return in;
        if (st->tier == 2)
            return out;
        if (d == 0)
            return (struct load){p > 1 ? f : 0, multi ? f * per_nic : 0, multi};
        return (struct load){p > 1 ? f : 0, multi ? f / s->nics : 0, multi};
    case DTP_PEER_CHAIN:
    case DTP_PEER_CHAIN_BACK:
        return (struct load){p > 1 ? f : 0, multi ? f : 0, multi};
    case DTP_PEER_XOR:
        return far ? out : in;
    case DTP_PEER_FOLD_IN:
    case DTP_PEER_FOLD_OUT:
        return far ? out : in;
    case DTP_PEER_TO_ROOT:
    case DTP_PEER_FROM_ROOT:
        if (d == 1)
            return multi ? (struct load){0, f, true} : in;
        return (struct load){(p - 1) * f, multi ? (n - p) * f : 0, multi};
    case DTP_PEER_ALL:
        return (struct load){(p - 1) * f, multi ? p * (n - p) * f / s->nics : 0, multi};
    case DTP_PEER_TREE_UP:
    case DTP_PEER_TREE_DOWN:
        return far ? (struct load){0, f, true} : in;
    case DTP_PEER_TREES_UP:
    case DTP_PEER_TREES_DOWN:
        return far ? (struct load){0, per_nic > 1 ? 2 * f : f, true}
                   : (struct load){2 * f, 0, false};
    case DTP_PEER_SWITCH:
        return in;
    }
    return in;
}

/* Returns what one GPU can send inside the node: its port, or its share of links without a switch. */
static double in_node_bytes_per_s(const struct dtp_cluster *c, const struct dtp_group_shape *s) {
    struct dtp_group_shape in = {
        .size = s->per_node, .nodes = 1, .per_node = s->per_node, .siblings = 1, .tier = -1};
    return c->node.intra == DTP_INTRA_SWITCH || s->per_node < 2 ? port_bytes_per_s(c)
                                                                : dtp_coll_ring_bytes_per_s(c, &in);
}

/* Time, latency and bytes of the busiest port and NIC; time_s stays -1 when it does not apply. */
static void by_steps(const struct dtp_cluster *c, enum dtp_collective kind,
                     const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    enum dtp_algo algo = out->algo;
    struct dtp_step steps[DTP_MAX_STEPS];
    int per_node = s->per_node * s->nodes == s->size ? s->per_node : 1;
    int n = dtp_coll_steps(algo, kind, s->size, per_node, steps, DTP_MAX_STEPS);
    double t = 0, lat = 0, net = 0, hop = c->node.nic_latency_s;
    double port = in_node_bytes_per_s(c, s);
    if (n < 0 || (algo == DTP_ALGO_NVLS && (!c->nvls || c->node.intra != DTP_INTRA_SWITCH)))
        return;
    if (s->nodes > 1) {
        struct dtp_group_shape one = {.size = 2,
                                      .nodes = 2,
                                      .per_node = 1,
                                      .nics = 1,
                                      .siblings = s->siblings,
                                      .tier = s->tier};
        net = dtp_coll_ring_bytes_per_s(c, &one);
        for (int k = 0; k <= s->tier && k < c->ntiers; k++)
            hop += c->tier[k].latency_s;
    }
    for (int i = 0; i < n; i++) {
        struct load l = step_load(&steps[i], s);
        double wire = l.port * bytes / port, near = c->node.gpu_link_latency_s;
        double step = l.across ? hop : near;
        int repeat = steps[i].repeat;
        if (s->nodes > 1 && !dtp_step_uniform(&steps[i]) && l.port <= 0) {
            /* one at a time with the root: those of its node over NVLink */
            double in_node = per_node - 1;
            lat += in_node * near;
            t += in_node * (near + l.nic * bytes / port);
            out->nvlink_bytes += in_node * l.nic * bytes;
            repeat -= per_node - 1;
        }
        if (l.nic > 0)
            wire = dtp_greater(wire, l.nic * bytes / net);
        lat += repeat * step;
        t += repeat * (step + wire);
        out->nvlink_bytes += repeat * l.port * bytes;
        out->nic_bytes += repeat * l.nic * bytes;
    }
    out->latency_s = lat;
    out->time_s = t;
}

/* The closed form of the steps on a regular group, of one algorithm or (AUTO) of the fastest. out has time_s -1
 * when none applies. */
static void steps_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                       const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    int from = algo == DTP_ALGO_AUTO ? DTP_ALGO_RING : (int)algo;
    int to = algo == DTP_ALGO_AUTO ? DTP_NALGOS - 1 : (int)algo;
    *out = (struct dtp_coll_cost){.time_s = -1};
    for (int i = from; i <= to; i++) {
        struct dtp_coll_cost one = {.time_s = -1, .algo = (enum dtp_algo)i, .source = "steps"};
        by_steps(c, kind, s, bytes, &one);
        if (one.time_s >= 0 && (out->time_s < 0 || one.time_s < out->time_s))
            *out = one;
    }
}

/* ---- measured curves ---- */

/* Interpolates linearly between the measured points. Beyond them time grows in proportion to bytes, since only the
 * wires count there, and the slope of the last two points is as uncertain as a single measurement. */
static double points_s(const struct dtp_curve *k, double bytes) {
    const double *x = k->at_bytes.at, *y = k->time_s.at;
    size_t last = k->at_bytes.n - 1, i = 0;
    if (bytes <= x[0])
        return y[0];
    if (bytes >= x[last])
        return y[last] * bytes / x[last];
    while (x[i + 1] < bytes)
        i++;
    return y[i] + (y[i + 1] - y[i]) * (bytes - x[i]) / (x[i + 1] - x[i]);
}

static double curve_s(const struct dtp_curve *k, double bytes) {
    if (k->at_bytes.n > 0)
        return points_s(k, bytes);
    return k->a_s + k->b_s_per_sqrt_byte * sqrt(bytes) + k->c_s_per_byte * bytes;
}

static bool gathers(int kind) {
    return kind == DTP_ALL_GATHER || kind == DTP_REDUCE_SCATTER;
}

/* Returns how well a curve of `have` predicts `want`: 3 the same, 2 its mirror, 1 a ring of another kind. */
static int kinship(const struct dtp_cluster *c, int want, int have) {
    if (want == have)
        return 3;
    if (gathers(want) && gathers(have))
        return 2;
    bool ring = want <= DTP_REDUCE && (have == DTP_ALL_REDUCE ? !c->nvls : gathers(have));
    return ring && !(want == DTP_ALL_REDUCE && c->nvls) ? 1 : 0;
}

/* Returns log2, made linear between powers of two. */
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

/* Returns the time of one algorithm from its lat and g with the factors of the class. */
static double model_s(const struct dtp_nccl_correction *k, double lat_s, double wire_s) {
    return k->latency * lat_s + k->mixed * sqrt(lat_s * wire_s) + k->bandwidth * wire_s;
}

/* Time by one algorithm, and the part of it that is latency. */
struct guess {
    double time_s, latency_s;
    enum dtp_nccl_algo algo;
};

static void keep_least(struct guess *best, double time_s, double latency_s,
                       enum dtp_nccl_algo algo) {
    if (best->time_s < 0 || time_s < best->time_s)
        *best = (struct guess){time_s, latency_s, algo};
}

/* Returns how much slower algorithm j of the curve's group is than the fastest one, by the model. */
static double slower(const struct dtp_curve *k, const struct dtp_nccl_correction *f, int j,
                     double bytes) {
    double own = model_s(f, k->term[j].lat_s, k->term[j].s_per_byte * bytes), least = own;
    for (int i = 0; i < k->nterms; i++)
        if (i != j)
            least = dtp_lesser(least, model_s(f, k->term[i].lat_s, k->term[i].s_per_byte * bytes));
    return own / least;
}

/* The curve of another group in dimensionless form: t = lat/lat' t'(s g/g' lat'/lat). Where that group
 * has a faster algorithm than this one, its curve is of that one, and slower by as much as the model
 * says. Below the smallest measured size the shape is the model's. */
static bool scaled_s(const struct dtp_cluster *c, const struct dtp_curve *k,
                     const struct dtp_nccl_terms *to, int which, double bytes, struct guess *best) {
    const struct dtp_nccl_correction *f =
        dtp_nccl_correction_for(c, (enum dtp_collective)k->collective, k->nodes, k->simple_only);
    for (int j = 0; j < k->nterms; j++) {
        double lat_s = k->term[j].lat_s, g = k->term[j].s_per_byte;
        if ((int)to->at[which].algo != k->term[j].algo)
            continue;
        double lat = to->at[which].lat_s / lat_s;
        double there = bytes * to->at[which].s_per_byte / g / lat;
        double known = dtp_greater(there, k->min_bytes);
        double t = lat * slower(k, f, j, known) * curve_s(k, known);
        if (there < known)
            t *= model_s(f, lat_s, g * there) / model_s(f, lat_s, g * known);
        keep_least(best, t, dtp_lesser(lat * k->a_s, t), to->at[which].algo);
        return true;
    }
    return false;
}

/* Returns the least time over the algorithms, by the curve if it has them, else by the model. k may be NULL. */
static struct guess estimate(const struct dtp_cluster *c, const struct dtp_curve *k,
                             const struct dtp_nccl_correction *f, const struct dtp_nccl_terms *to,
                             double bytes) {
    struct guess best = {.time_s = -1};
    for (int i = 0; i < to->n; i++) {
        double lat_s = to->at[i].lat_s, g = to->at[i].s_per_byte;
        if (!k || !scaled_s(c, k, to, i, bytes, &best))
            keep_least(&best, model_s(f, lat_s, g * bytes), f->latency * lat_s, to->at[i].algo);
    }
    return best;
}

/* ---- putting it together ---- */

/* Finds the bytes of the busiest port and NIC for a buffer of one byte, as dtp_coll_uses() spreads them. */
static void wire(enum dtp_collective kind, enum dtp_algo algo, const struct dtp_group_shape *s,
                 double *port, double *nic) {
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
        *nic = !multi ? 0 : kind == DTP_SEND_RECV ? 1 : 1.0 / s->nics; /* rings go over all NICs */
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

/* Blends the curves next below and above by log2 of the group size, or takes the only one. */
static struct guess blend(const struct dtp_cluster *c, const struct neighbours *near,
                          const struct dtp_nccl_correction *f, const struct dtp_nccl_terms *to,
                          int size, double bytes) {
    const struct dtp_curve *low = near->below ? near->below : near->above;
    struct guess x = estimate(c, low, f, to, bytes), y;
    if (!near->below || !near->above || near->below->gpus == near->above->gpus)
        return x;
    y = estimate(c, near->above, f, to, bytes);
    double from = log2_between(near->below->gpus);
    double w = (log2_between(size) - from) / (log2_between(near->above->gpus) - from);
    return (struct guess){(1 - w) * x.time_s + w * y.time_s,
                          (1 - w) * x.latency_s + w * y.latency_s, w < 0.5 ? x.algo : y.algo};
}

/* Time and latency of what NCCL runs (or a group of sends). */
static void nccl_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                      const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    struct neighbours near = find_curves(c, kind, s);
    const struct dtp_nccl_correction *f =
        dtp_nccl_correction_for(c, kind, s->nodes, c->simple_only);
    const struct dtp_curve *k = near.exact;
    struct dtp_nccl_terms to;
    struct guess g;
    dtp_coll_terms(c, kind, s, &to);
    if (algo != DTP_ALGO_AUTO)
        restrict_terms(&to, algo);
    if (k && s->siblings == 1 && kinship(c, (int)kind, k->collective) >= 2 &&
        algo == DTP_ALGO_AUTO) {
        g = estimate(c, NULL, f, &to, bytes); /* for the name of the algorithm */
        g.time_s = curve_s(k, bytes);
        g.latency_s = k->a_s;
        out->extrapolated = bytes > 2 * k->max_bytes || 2 * bytes < k->min_bytes;
    } else {
        g = blend(c, &near, f, &to, s->size, bytes);
        k = near.below ? near.below : near.above;
        out->extrapolated = true;
    }
    out->time_s = g.time_s;
    out->latency_s = g.latency_s;
    out->source = k ? k->source : "nccl model";
    if (algo == DTP_ALGO_AUTO)
        out->algo = kind == DTP_ALL_TO_ALL ? DTP_ALGO_NAIVE : algo_name(g.algo);
}

static bool nccl_has(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                     const struct dtp_group_shape *s) {
    struct dtp_nccl_terms t;
    if (c->node.intra == DTP_INTRA_SHM)
        return false;
    if (algo == DTP_ALGO_AUTO)
        return true;
    dtp_coll_terms(c, kind, s, &t);
    if (kind == DTP_ALL_TO_ALL)
        return algo == DTP_ALGO_NAIVE;
    return restrict_terms(&t, algo);
}

/* Keeps the time at least at that of the busiest wire at its capacity. */
static void apply_wires(const struct dtp_cluster *c, enum dtp_collective kind,
                        const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    double port = 0, nic = 0, least = 0;
    wire(kind, out->algo, s, &port, &nic);
    out->nvlink_bytes = port * bytes;
    out->nic_bytes = nic * bytes;
    if (s->nodes > 1) {
        struct dtp_group_shape one = *s;
        one.per_node = one.nics = 1;
        least = nic * bytes / dtp_coll_ring_bytes_per_s(c, &one);
    }
    if (c->node.intra == DTP_INTRA_SWITCH)
        least = dtp_greater(least, port * bytes / port_bytes_per_s(c));
    if (c->node.intra == DTP_INTRA_MESH && s->nodes == 1 && kind <= DTP_REDUCE_SCATTER)
        least = dtp_greater(least, port * bytes / dtp_coll_ring_bytes_per_s(c, s));
    out->time_s = dtp_greater(out->time_s, least);
    out->latency_s = dtp_lesser(out->latency_s, out->time_s - least);
}

/* Ranks that share memory: copies and waits of the processors, by the curve of the group's size. */
static bool shared_memory_s(const struct dtp_cluster *c, enum dtp_collective kind,
                            const struct dtp_group_shape *s, double bytes,
                            struct dtp_coll_cost *out) {
    struct neighbours near = find_curves(c, kind, s);
    const struct dtp_curve *k = near.exact;
    if (!k || kinship(c, (int)kind, k->collective) < 3)
        return false;
    out->time_s = curve_s(k, bytes);
    out->latency_s = k->a_s;
    out->source = k->source;
    out->algo = DTP_ALGO_NAIVE;
    out->extrapolated = bytes > 2 * k->max_bytes || 2 * bytes < k->min_bytes;
    return true;
}

static void cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                 const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out) {
    if (s->size < 2 || !(bytes > 0))
        return;
    if (algo == DTP_ALGO_AUTO && c->node.intra == DTP_INTRA_SHM &&
        shared_memory_s(c, kind, s, bytes, out))
        return;
    if (!nccl_has(c, kind, algo, s)) {
        struct dtp_coll_cost steps;
        steps_cost(c, kind, algo, s, bytes, &steps);
        if (steps.time_s >= 0) {
            *out = steps;
            return;
        }
        if (!nccl_has(c, kind, DTP_ALGO_AUTO, s)) {
            steps_cost(c, kind, DTP_ALGO_AUTO, s, bytes, out);
            return;
        }
        algo = DTP_ALGO_AUTO; /* what was asked for does not apply: what runs instead */
    }
    nccl_cost(c, kind, algo, s, bytes, out);
    apply_wires(c, kind, s, bytes, out);
}

void dtp_coll_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                   const struct dtp_group_shape *shape, double bytes, struct dtp_coll_cost *out) {
    *out = (struct dtp_coll_cost){.algo = algo, .source = ""};
    cost(c, kind, algo, shape, bytes, out);
}

void dtp_p2p_cost(const struct dtp_cluster *c, int src, int dst, int siblings, double bytes,
                  struct dtp_coll_cost *out) {
    int from = src / c->node.gpus, to = dst / c->node.gpus;
    struct dtp_group_shape s = {.size = 2, .nodes = 1, .per_node = 2, .siblings = 1, .tier = -1};
    if (src == dst) {
        *out = (struct dtp_coll_cost){.source = ""};
        return;
    }
    if (from != to) {
        int t = 0;
        while (t + 1 < c->ntiers && from / c->tier[t].nodes != to / c->tier[t].nodes)
            t++;
        s = (struct dtp_group_shape){.size = 2,
                                     .nodes = 2,
                                     .per_node = 1,
                                     .nics = 1,
                                     .siblings = siblings > 1 ? siblings : 1,
                                     .tier = t};
    }
    dtp_coll_cost(c, DTP_SEND_RECV, DTP_ALGO_AUTO, &s, bytes, out);
}
