#include "hw/collective.h"

#include "sim/base/units.h"

/* Weights by link, dense; the list is made at the end. */
struct tally {
    const struct dtp_cluster *c;
    const struct dtp_group *g;
    int ngpus;
    uint32_t nlinks;
    double *at; /* [nlinks] bytes for a buffer of one byte */
};

static int gpu_of(const struct dtp_group *g, int member) {
    return g->first + member * g->stride;
}

static void add_route(struct tally *t, int src, int dst, double fraction) {
    struct dtp_route r;
    dtp_cluster_route(t->c, t->ngpus, src, dst, &r);
    for (int i = 0; i < r.n; i++)
        t->at[r.link[i]] += fraction;
}

/* To the switch and back: the out-port and the in-port of one GPU. */
static void add_switch(struct tally *t, int gpu, double fraction) {
    int other = gpu % t->c->node.gpus ? gpu - 1 : gpu + 1;
    struct dtp_route out, in;
    dtp_cluster_route(t->c, t->ngpus, gpu, other, &out);
    dtp_cluster_route(t->c, t->ngpus, other, gpu, &in);
    t->at[out.link[0]] += fraction;
    t->at[in.link[1]] += fraction;
}

static void add_flow(struct tally *t, const struct dtp_coll_flow *f, double times) {
    if (f->src == f->dst)
        add_switch(t, gpu_of(t->g, f->src), f->fraction * times);
    else
        add_route(t, gpu_of(t->g, f->src), gpu_of(t->g, f->dst), f->fraction * times);
}

static void add_steps(struct dtp_arena *a, struct tally *t, const struct dtp_step *steps, int n,
                      int per_node) {
    for (int i = 0; i < n; i++) {
        bool uniform = dtp_step_uniform(&steps[i]);
        for (int r = 0; r < (uniform ? 1 : steps[i].repeat); r++) {
            const struct dtp_coll_flow *flow = NULL;
            int nflows = dtp_coll_flows(a, &steps[i], r, t->g->size, per_node, &flow);
            for (int k = 0; k < nflows; k++)
                add_flow(t, &flow[k], uniform ? steps[i].repeat : 1);
        }
    }
}

/* NCCL's rings inside a mesh: what a GPU sends, over its links into the group by their width. */
static bool spread_on_mesh(struct tally *t, double sent) {
    const struct dtp_node *n = &t->c->node;
    const struct dtp_group *g = t->g;
    int node = g->first / n->gpus * n->gpus, width[DTP_MAX_MESH] = {0};
    for (int i = 0; i < g->size; i++)
        for (int k = 0; k < g->size; k++)
            width[i] += n->mesh_links[gpu_of(g, i) - node][gpu_of(g, k) - node];
    for (int i = 0; i < g->size; i++)
        if (width[i] == 0)
            return false;
    for (int i = 0; i < g->size; i++)
        for (int k = 0; k < g->size; k++) {
            int links = n->mesh_links[gpu_of(g, i) - node][gpu_of(g, k) - node];
            if (links > 0)
                add_route(t, gpu_of(g, i), gpu_of(g, k), sent * links / width[i]);
        }
    return true;
}

static enum dtp_algo default_algo(const struct dtp_cluster *c, enum dtp_collective kind,
                                  const struct dtp_group *g, int per_node) {
    int nodes = g->size / per_node, nics = c->node.nics;
    struct dtp_group_shape s = {.size = g->size, .nodes = nodes, .per_node = per_node,
                                .siblings = 1, .tier = nodes > 1 ? 0 : -1,
                                .nics = nodes < 2 ? 0 : per_node < nics ? per_node : nics};
    struct dtp_coll_cost cost;
    if (kind == DTP_ALL_TO_ALL)
        return DTP_ALGO_NAIVE;
    if (kind != DTP_ALL_REDUCE || !c->nvls)
        return DTP_ALGO_RING;
    dtp_coll_cost(c, kind, DTP_ALGO_AUTO, &s, DTP_GIGA, &cost);
    return cost.algo == DTP_ALGO_NVLS ? DTP_ALGO_NVLS : DTP_ALGO_RING;
}

uint32_t dtp_coll_uses(struct dtp_arena *a, const struct dtp_cluster *c, int ngpus,
                       enum dtp_collective kind, enum dtp_algo algo, const struct dtp_group *group,
                       const struct dtp_use **out) {
    struct tally t = {c, group, ngpus, dtp_cluster_nlinks(c, ngpus), NULL};
    struct dtp_step steps[DTP_MAX_STEPS];
    int per_node = dtp_group_per_node(c, group);
    uint32_t n = 0;
    *out = NULL;
    if (group->size < 2)
        return 0;
    bool automatic = algo == DTP_ALGO_AUTO;
    if (automatic)
        algo = default_algo(c, kind, group, per_node);
    int nsteps = dtp_coll_steps(algo, kind, group->size, per_node, steps, DTP_MAX_STEPS);
    if (nsteps < 0 || (algo == DTP_ALGO_NVLS && c->node.intra != DTP_INTRA_SWITCH))
        return 0;
    t.at = DTP_NEW(a, double, t.nlinks);
    bool mesh = automatic && c->node.intra == DTP_INTRA_MESH && per_node == group->size &&
                algo == DTP_ALGO_RING && kind <= DTP_REDUCE_SCATTER;
    if (!mesh || !spread_on_mesh(&t, dtp_busbw_factor(kind, group->size)))
        add_steps(a, &t, steps, nsteps, per_node);
    for (uint32_t i = 0; i < t.nlinks; i++)
        n += t.at[i] > 0;
    struct dtp_use *use = DTP_NEW(a, struct dtp_use, n);
    n = 0;
    for (uint32_t i = 0; i < t.nlinks; i++)
        if (t.at[i] > 0)
            use[n++] = (struct dtp_use){i, DTP_USE_LINK, t.at[i]};
    *out = use;
    return n;
}

enum dtp_status dtp_coll_time_on_routes(struct dtp_arena *a, const struct dtp_cluster *c,
                                        int ngpus, enum dtp_collective kind, enum dtp_algo algo,
                                        const struct dtp_group *group, double bytes,
                                        double *out_s, struct dtp_err *err) {
    struct tally t = {c, group, ngpus, dtp_cluster_nlinks(c, ngpus), NULL};
    struct dtp_step steps[DTP_MAX_STEPS];
    int per_node = dtp_group_per_node(c, group);
    int n = dtp_coll_steps(algo, kind, group->size, per_node, steps, DTP_MAX_STEPS);
    *out_s = 0;
    if (group->size < 2)
        return DTP_OK;
    if (n < 0 || (algo == DTP_ALGO_NVLS && c->node.intra != DTP_INTRA_SWITCH))
        return dtp_fail(err, DTP_EUNSUPPORTED, "%s has no %s for %d GPUs, %d per node",
                        dtp_collective_names[kind], dtp_algo_names[algo], group->size, per_node);
    t.at = DTP_NEW(a, double, t.nlinks);
    for (int i = 0; i < n; i++) {
        bool uniform = dtp_step_uniform(&steps[i]);
        for (int r = 0; r < (uniform ? 1 : steps[i].repeat); r++) {
            const struct dtp_coll_flow *flow = NULL;
            int nflows = dtp_coll_flows(a, &steps[i], r, group->size, per_node, &flow);
            double latency_s = 0, wire_s = 0;
            for (uint32_t l = 0; l < t.nlinks; l++)
                t.at[l] = 0;
            for (int k = 0; k < nflows; k++) {
                struct dtp_route route = {.latency_s = c->node.gpu_link_latency_s};
                if (flow[k].src != flow[k].dst)
                    dtp_cluster_route(c, ngpus, gpu_of(group, flow[k].src),
                                      gpu_of(group, flow[k].dst), &route);
                if (route.latency_s > latency_s)
                    latency_s = route.latency_s;
                add_flow(&t, &flow[k], 1);
            }
            for (uint32_t l = 0; l < t.nlinks; l++) {
                double s = t.at[l] * bytes / dtp_cluster_link_capacity(c, ngpus, l);
                if (s > wire_s)
                    wire_s = s;
            }
            *out_s += (uniform ? steps[i].repeat : 1) * (latency_s + wire_s);
        }
    }
    return DTP_OK;
}
