#include "hw/coll_parts.h"

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

/* What one GPU can send inside the node: its port, or its share where links are not a switch's. */
static double in_node_bytes_per_s(const struct dtp_cluster *c, const struct dtp_group_shape *s) {
    struct dtp_group_shape in = {
        .size = s->per_node, .nodes = 1, .per_node = s->per_node, .siblings = 1, .tier = -1};
    return c->node.intra == DTP_INTRA_SWITCH || s->per_node < 2 ? dtp_port_bytes_per_s(c)
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

/* Without NCCL: the fastest by steps. */
void dtp_steps_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
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
