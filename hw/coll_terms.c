#include "hw/cluster_parts.h"
#include "hw/coll_parts.h"
#include "sim/base/units.h"

/* Each rank sends 1/n to each other: NVLink inside, the node's NICs for the rest; one call of NCCL
 * holds all sends, each a little work on its own (2 us: Sophia, 16 GPUs, 58 us in all; Polaris,
 * 2,160 ranks, 12 us each). */
static void all_to_all_terms(const struct dtp_cluster *c, const struct dtp_group_shape *s,
                             struct dtp_nccl_terms *out) {
    double peer_s = 2 * DTP_MICRO, n = s->size, p = s->per_node;
    double g = p > 1 ? (p - 1) / n / dtp_port_bytes_per_s(c) : 0;
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

/* Over one link of a mesh; where the mesh does not hold together (bridged pairs), by the host. */
static double send_bytes_per_s(const struct dtp_cluster *c) {
    const struct dtp_node *n = &c->node;
    if (n->intra != DTP_INTRA_MESH)
        return dtp_port_bytes_per_s(c);
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
