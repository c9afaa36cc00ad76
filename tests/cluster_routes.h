/* cluster_routes.h: names of links, and a collective's time on the links that it crosses, for tests. */
#ifndef DTP_TESTS_CLUSTER_ROUTES_H
#define DTP_TESTS_CLUSTER_ROUTES_H

#include "hw/collective.h"
#include "sim/base/text.h"

/* The dense ids of hw/cluster_links.c, read backwards: the links of each node, those inside it first, then two for each
 * NIC; then an up-link and a down-link for each group (and rail, where the leaf has rails) of a tier that binds. */
static inline const char *intra_name(struct dtp_arena *a, const struct dtp_node *n, int node,
                                     int link) {
    static const char *const sides[] = {"out", "in"}, *const ends[] = {"up", "down"};
    int gpu_links = 2 * n->gpus;
    int switches = (n->gpus + n->pcie_gpus_per_switch - 1) / n->pcie_gpus_per_switch;
    if (n->intra == DTP_INTRA_SHM)
        return dtp_arena_printf(a, "node%d.memory", node);
    if (n->intra == DTP_INTRA_SWITCH)
        return dtp_arena_printf(a, "node%d.gpu%d.%s", node, link / 2, sides[link & 1]);
    if (n->intra == DTP_INTRA_PCIE) {
        if (link < gpu_links)
            return dtp_arena_printf(a, "node%d.gpu%d.%s", node, link / 2, ends[link & 1]);
        link -= gpu_links;
        if (link < 2 * switches)
            return dtp_arena_printf(a, "node%d.pcie%d.%s", node, link / 2, ends[link & 1]);
        return dtp_arena_printf(a, "node%d.socket%d.out", node, link - 2 * switches);
    }
    for (int i = 0; i < n->gpus; i++)
        for (int k = 0; k < n->gpus; k++)
            if (n->mesh_id[i][k] == link)
                return dtp_arena_printf(a, "node%d.gpu%d-gpu%d", node, i, k);
    link -= n->nmesh;
    if (link < gpu_links)
        return dtp_arena_printf(a, "node%d.host%d.%s", node, link / 2, sides[link & 1]);
    return dtp_arena_printf(a, "node%d.socket%d.out", node, link - gpu_links);
}

/* "node3.nic2.out" */
static inline const char *link_name(struct dtp_arena *a, const struct dtp_cluster *c, int ngpus,
                                    uint32_t link) {
    int nnodes = dtp_cluster_nnodes(c, ngpus), node = -1, l = (int)link, first = 0, intra = 0;
    bool fabric = dtp_cluster_link_fabric(c, ngpus, link, &node);
    while (!dtp_cluster_link_fabric(c, ngpus, (uint32_t)intra, &first))
        intra++;
    int per_node = intra + 2 * c->node.nics;
    if (node >= 0 && !fabric)
        return intra_name(a, &c->node, node, l % per_node);
    if (node >= 0)
        return dtp_arena_printf(a, "node%d.nic%d.%s", node, (l % per_node - intra) / 2,
                                (l % per_node - intra) & 1 ? "in" : "out");
    l -= nnodes * per_node;
    for (int t = 0; t + 1 < c->ntiers; t++) {
        int rails = c->rail_optimised && t == 0 ? c->node.nics : 1;
        int links = 2 * rails * ((nnodes - 1) / c->tier[t].nodes + 1);
        if (c->tier[t].oversubscription <= 1)
            continue;
        if (l < links)
            return dtp_arena_printf(a, "%s%d.%d.%s", c->tier[t].name, l / 2 / rails, l / 2 % rails,
                                    l & 1 ? "down" : "up");
        l -= links;
    }
    return "none";
}

/* One repeat of a step: the longest latency of its flows and the busiest link. */
static inline double repeat_s(struct dtp_arena *a, const struct dtp_cluster *c,
                              const struct dtp_coll_call *call, const struct dtp_step *step,
                              int repeat, double bytes) {
    const struct dtp_group *g = &call->group;
    const struct dtp_coll_flow *flow = NULL;
    int n = dtp_coll_flows(a, step, repeat, g->size, dtp_group_per_node(c, g), &flow);
    double *on_link = DTP_NEW(a, double, dtp_cluster_nlinks(c, call->ngpus)), latency_s = 0,
           wire_s = 0;
    for (int k = 0; k < n; k++) {
        int src = g->first + flow[k].src * g->stride, dst = g->first + flow[k].dst * g->stride;
        struct dtp_route r = {.n = 2, .latency_s = c->node.gpu_link_latency_s};
        if (src == dst) { /* to the switch and back */
            struct dtp_route out, in;
            int other = src % c->node.gpus ? src - 1 : src + 1;
            dtp_cluster_route(c, call->ngpus, src, other, &out);
            dtp_cluster_route(c, call->ngpus, other, src, &in);
            r.link[0] = out.link[0];
            r.link[1] = in.link[1];
        } else {
            dtp_cluster_route(c, call->ngpus, src, dst, &r);
        }
        latency_s = r.latency_s > latency_s ? r.latency_s : latency_s;
        for (int i = 0; i < r.n; i++) {
            on_link[r.link[i]] += flow[k].fraction;
            double s =
                on_link[r.link[i]] * bytes / dtp_cluster_link_capacity(c, call->ngpus, r.link[i]);
            wire_s = s > wire_s ? s : wire_s;
        }
    }
    return latency_s + wire_s;
}

/* The closed form of the steps on the routes of the very ranks; false where the algorithm does not run there. */
static inline bool time_on_routes(struct dtp_arena *a, const struct dtp_cluster *c,
                                  const struct dtp_coll_call *call, double bytes, double *out_s) {
    struct dtp_step steps[DTP_MAX_STEPS];
    int n = dtp_coll_steps(call->algo, call->kind, call->group.size,
                           dtp_group_per_node(c, &call->group), steps, DTP_MAX_STEPS);
    *out_s = 0;
    if (n < 0 || (call->algo == DTP_ALGO_NVLS && c->node.intra != DTP_INTRA_SWITCH))
        return false;
    for (int i = 0; i < n; i++) {
        bool uniform = dtp_step_uniform(&steps[i]);
        for (int r = 0; r < (uniform ? 1 : steps[i].repeat); r++)
            *out_s += (uniform ? steps[i].repeat : 1) * repeat_s(a, c, call, &steps[i], r, bytes);
    }
    return true;
}

#endif
