#include "hw/cluster_internal.h"

#include <assert.h>

/* Links of one node, then of the fabric:
 *   nvswitch  2 per GPU (out, in)            mesh  one per linked pair and direction, then host out
 *   pcie      2 per GPU (up, down),                and in per GPU, then 2 between the sockets
 *             2 per switch, 2 between sockets shm  one
 *   then 2 per NIC (out, in); after all nodes, per oversubscribed tier: (up, down) of each group, or
 *   of each rail of each group of the leaf tier when it is rail-optimised. */

static int switches(const struct dtp_node *n) {
    return (n->gpus + n->pcie_gpus_per_switch - 1) / n->pcie_gpus_per_switch;
}

static int intra_links(const struct dtp_node *n) {
    switch (n->intra) {
    case DTP_INTRA_SWITCH:
        return 2 * n->gpus;
    case DTP_INTRA_MESH:
        return n->nmesh + 2 * n->gpus + 2;
    case DTP_INTRA_PCIE:
        return 2 * n->gpus + 2 * switches(n) + 2;
    case DTP_INTRA_SHM:
        return 1;
    }
    return 0;
}

static int node_links(const struct dtp_node *n) {
    return intra_links(n) + 2 * n->nics;
}

int dtp_cluster_nnodes(const struct dtp_cluster *c, int ngpus) {
    return (ngpus + c->node.gpus - 1) / c->node.gpus;
}

/* The top tier covers all nodes: nothing goes up from it. */
static bool tier_binds(const struct dtp_cluster *c, int tier) {
    return c->node.nics > 0 && tier + 1 < c->ntiers && c->tier[tier].oversubscription > 1;
}

static int tier_rails(const struct dtp_cluster *c, int tier) {
    return c->rail_optimised && tier == 0 ? c->node.nics : 1;
}

static int tier_groups(const struct dtp_cluster *c, int nnodes, int tier) {
    return (nnodes - 1) / c->tier[tier].nodes + 1;
}

static int tier_links(const struct dtp_cluster *c, int nnodes, int tier) {
    return tier_binds(c, tier) ? 2 * tier_groups(c, nnodes, tier) * tier_rails(c, tier) : 0;
}

uint32_t dtp_cluster_nlinks(const struct dtp_cluster *c, int ngpus) {
    int nnodes = dtp_cluster_nnodes(c, ngpus), n = nnodes * node_links(&c->node);
    for (int t = 0; t < c->ntiers; t++)
        n += tier_links(c, nnodes, t);
    return (uint32_t)n;
}

uint32_t dtp_cluster_node_links(const struct dtp_cluster *c) {
    for (int t = 0; t < c->ntiers; t++)
        if (tier_binds(c, t))
            return 0;
    return (uint32_t)node_links(&c->node);
}

int dtp_cluster_block_nodes(const struct dtp_cluster *c) {
    int block = 1;
    for (int t = 0; t < c->ntiers; t++) {
        if (!tier_binds(c, t))
            continue;
        if (c->tier[t].nodes % block != 0)
            return 0;
        block = c->tier[t].nodes;
    }
    return block;
}

bool dtp_cluster_link_fabric(const struct dtp_cluster *c, int ngpus, uint32_t link, int *node) {
    int each = node_links(&c->node), at = (int)link / each;
    bool in_node = at < dtp_cluster_nnodes(c, ngpus);
    *node = in_node ? at : -1;
    return !in_node || (int)link % each >= intra_links(&c->node);
}

/* ---- capacities ---- */

static double nic_capacity(const struct dtp_node *n) {
    return n->nic_bytes_per_s * n->nic_efficiency;
}

static int mesh_width(const struct dtp_node *n, int link) {
    for (int i = 0; i < n->gpus; i++)
        for (int k = 0; k < n->gpus; k++)
            if (n->mesh_id[i][k] == link)
                return n->mesh_links[i][k];
    return 0;
}

static double intra_capacity(const struct dtp_node *n, int link) {
    int host = 2 * n->gpus;
    switch (n->intra) {
    case DTP_INTRA_SWITCH:
    case DTP_INTRA_SHM:
        break;
    case DTP_INTRA_MESH:
        if (link < n->nmesh)
            return mesh_width(n, link) * n->mesh_link_bytes_per_s * n->gpu_link_efficiency;
        return (link < n->nmesh + host ? n->host_link_bytes_per_s : n->socket_link_bytes_per_s) *
               n->gpu_link_efficiency;
    case DTP_INTRA_PCIE:
        if (link >= host + 2 * switches(n))
            return n->socket_link_bytes_per_s * n->gpu_link_efficiency;
        if (link >= host)
            return n->host_link_bytes_per_s * n->gpu_link_efficiency;
        break;
    }
    return n->gpu_link_bytes_per_s * n->gpu_link_efficiency;
}

/* The place of a link in the fabric. */
struct tier_place {
    int tier, group, rail;
    bool down;
};

static struct tier_place find_tier(const struct dtp_cluster *c, int nnodes, int link) {
    struct tier_place at = {0};
    while (link >= tier_links(c, nnodes, at.tier))
        link -= tier_links(c, nnodes, at.tier++);
    at.down = link & 1;
    at.rail = link / 2 % tier_rails(c, at.tier);
    at.group = link / 2 / tier_rails(c, at.tier);
    return at;
}

double dtp_cluster_link_capacity(const struct dtp_cluster *c, int ngpus, uint32_t link) {
    const struct dtp_node *n = &c->node;
    int nnodes = dtp_cluster_nnodes(c, ngpus), per_node = node_links(n), l = (int)link;
    if (l >= nnodes * per_node) {
        struct tier_place at = find_tier(c, nnodes, l - nnodes * per_node);
        const struct dtp_tier *t = &c->tier[at.tier];
        return nic_capacity(n) * n->nics / tier_rails(c, at.tier) * t->nodes / t->oversubscription;
    }
    int in_node = l % per_node;
    return in_node < intra_links(n) ? intra_capacity(n, in_node) : nic_capacity(n);
}

/* ---- the mesh ---- */

/* Returns the GPU whose narrower half is widest as a relay; the lowest index wins among equals. */
static short best_relay(const struct dtp_node *n, int i, int k) {
    int best = 0;
    short relay = DTP_RELAY_HOST;
    for (int r = 0; r < n->gpus; r++) {
        int first = n->mesh_links[i][r], second = n->mesh_links[r][k];
        int width = first < second ? first : second;
        if (width > best) {
            best = width;
            relay = (short)r;
        }
    }
    return relay;
}

/* Returns the fewest links that one of GPUs 0 .. size-1 has to the others; 0 when these GPUs are not
 * connected, so that a ring must leave the NVLinks. */
static int ring_width(const struct dtp_node *n, int size) {
    int least = -1, reached = 1, reach[DTP_MAX_MESH] = {0};
    bool seen[DTP_MAX_MESH] = {true};
    for (int i = 0; i < reached; i++)
        for (int k = 0; k < size; k++)
            if (n->mesh_links[reach[i]][k] > 0 && !seen[k]) {
                seen[k] = true;
                reach[reached++] = k;
            }
    for (int i = 0; i < size; i++) {
        int width = 0;
        for (int k = 0; k < size; k++)
            width += n->mesh_links[i][k];
        least = least < 0 || width < least ? width : least;
    }
    return reached < size ? 0 : least;
}

void dtp_node_mesh(struct dtp_node *n) {
    n->nmesh = 0;
    for (int i = 0; i < n->gpus; i++)
        for (int k = 0; k < n->gpus; k++) {
            bool direct = n->mesh_links[i][k] > 0;
            n->mesh_id[i][k] = direct ? (short)n->nmesh++ : (short)-1;
            n->relay[i][k] = direct ? (short)DTP_RELAY_DIRECT : best_relay(n, i, k);
        }
    for (int size = 2; size <= n->gpus; size++)
        n->mesh_ring[size] = ring_width(n, size);
}

/* ---- routes ---- */

static void push(struct dtp_route *r, int link) {
    assert(r->n < DTP_MAX_ROUTE);
    r->link[r->n++] = (uint32_t)link;
}

static int socket_of(const struct dtp_node *n, int gpu) {
    return n->sockets < 2 ? 0 : gpu >= (n->gpus + 1) / 2;
}

static void route_mesh(const struct dtp_node *n, int base, int src, int dst, struct dtp_route *r) {
    int relay = n->relay[src][dst], host = base + n->nmesh;
    if (relay == DTP_RELAY_DIRECT) {
        push(r, base + n->mesh_id[src][dst]);
        return;
    }
    r->latency_s += n->gpu_link_latency_s;
    if (relay != DTP_RELAY_HOST) {
        push(r, base + n->mesh_id[src][relay]);
        push(r, base + n->mesh_id[relay][dst]);
        return;
    }
    push(r, host + 2 * src);
    if (socket_of(n, src) != socket_of(n, dst))
        push(r, host + 2 * n->gpus + socket_of(n, src));
    push(r, host + 2 * dst + 1);
}

static void route_pcie(const struct dtp_node *n, int base, int src, int dst, struct dtp_route *r) {
    int from = src / n->pcie_gpus_per_switch, to = dst / n->pcie_gpus_per_switch;
    int switch_base = base + 2 * n->gpus;
    push(r, base + 2 * src);
    if (from != to) {
        push(r, switch_base + 2 * from);
        if (socket_of(n, src) != socket_of(n, dst))
            push(r, switch_base + 2 * switches(n) + socket_of(n, src));
        push(r, switch_base + 2 * to + 1);
        r->latency_s += n->gpu_link_latency_s;
    }
    push(r, base + 2 * dst + 1);
}

static void route_in_node(const struct dtp_node *n, int base, int src, int dst,
                          struct dtp_route *r) {
    r->latency_s = n->gpu_link_latency_s;
    switch (n->intra) {
    case DTP_INTRA_SWITCH:
        push(r, base + 2 * src);
        push(r, base + 2 * dst + 1);
        return;
    case DTP_INTRA_MESH:
        route_mesh(n, base, src, dst, r);
        return;
    case DTP_INTRA_PCIE:
        route_pcie(n, base, src, dst, r);
        return;
    case DTP_INTRA_SHM:
        push(r, base);
        return;
    }
}

/* Id of the first link of each tier, then up and down along the way to the tier where they meet. */
static void route_fabric(const struct dtp_cluster *c, int nnodes, const int node[2],
                         const int nic[2], struct dtp_route *r) {
    int top = 0;
    while (top + 1 < c->ntiers && node[0] / c->tier[top].nodes != node[1] / c->tier[top].nodes)
        top++;
    if (top == 0 && c->rail_optimised && nic[0] != nic[1] && c->ntiers > 1)
        top = 1; /* two rails of one leaf group meet above their leafs */
    int base = nnodes * node_links(&c->node), down[DTP_MAX_TIERS], ndown = 0;
    for (int t = 0; t < top; t++) {
        r->latency_s += c->tier[t + 1].latency_s;
        if (tier_binds(c, t)) {
            int rails = tier_rails(c, t), k = c->tier[t].nodes;
            int from = node[0] / k * rails + (rails > 1 ? nic[0] : 0);
            int to = node[1] / k * rails + (rails > 1 ? nic[1] : 0);
            push(r, base + 2 * from);
            down[ndown++] = base + 2 * to + 1;
        }
        base += tier_links(c, nnodes, t);
    }
    while (ndown > 0)
        push(r, down[--ndown]);
}

void dtp_cluster_route(const struct dtp_cluster *c, int ngpus, int src, int dst,
                       struct dtp_route *out) {
    const struct dtp_node *n = &c->node;
    int node[2] = {src / n->gpus, dst / n->gpus}, gpu[2] = {src % n->gpus, dst % n->gpus};
    int per_node = node_links(n);
    assert(src != dst);
    out->n = 0;
    out->inter_node = node[0] != node[1];
    if (!out->inter_node) {
        route_in_node(n, node[0] * per_node, gpu[0], gpu[1], out);
        return;
    }
    assert(n->nics > 0);
    int nic[2] = {n->nic_of_gpu[gpu[0]], n->nic_of_gpu[gpu[1]]}, first = intra_links(n);
    out->latency_s = n->nic_latency_s + c->tier[0].latency_s;
    push(out, node[0] * per_node + first + 2 * nic[0]);
    route_fabric(c, dtp_cluster_nnodes(c, ngpus), node, nic, out);
    push(out, node[1] * per_node + first + 2 * nic[1] + 1);
}
