#include "hw/collective.h"

#include "sim/base/units.h"

/* What crosses which link, in the order of the flows; merged at the end. */
struct entry {
    uint32_t link;
    double bytes; /* for a buffer of one byte */
};
struct tally {
    struct dtp_arena *a;
    const struct dtp_cluster *c;
    const struct dtp_group *g;
    int ngpus;
    uint32_t n;
    size_t capacity;
    struct entry *at;
};

static void put(struct tally *t, uint32_t link, double bytes) {
    t->at = dtp_arena_room(t->a, t->at, sizeof *t->at, t->n, &t->capacity);
    t->at[t->n++] = (struct entry){link, bytes};
}

/* One pass of a stable sort by a digit of the link. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
static void sort_digit(const struct entry *from, struct entry *to, uint32_t n, int shift) {
    uint32_t begin[DIGITS + 1] = {0};
    for (uint32_t i = 0; i < n; i++)
        begin[(from[i].link >> shift & (DIGITS - 1)) + 1]++;
    for (int d = 0; d < DIGITS; d++)
        begin[d + 1] += begin[d];
    for (uint32_t i = 0; i < n; i++)
        to[begin[from[i].link >> shift & (DIGITS - 1)]++] = from[i];
}

/* By link; those of one link stay in the order of the flows. */
static void sort_entries(struct tally *t) {
    enum { FEW = 128 };
    uint32_t most = 0;
    for (uint32_t i = 1; i < t->n && t->n <= FEW; i++) {
        struct entry e = t->at[i];
        uint32_t k = i;
        for (; k > 0 && t->at[k - 1].link > e.link; k--)
            t->at[k] = t->at[k - 1];
        t->at[k] = e;
    }
    if (t->n <= FEW)
        return;
    for (uint32_t i = 0; i < t->n; i++)
        most = t->at[i].link > most ? t->at[i].link : most;
    struct entry *other = DTP_NEW(t->a, struct entry, t->capacity);
    for (int shift = 0; shift < 32 && most >> shift > 0; shift += DIGIT_BITS) {
        sort_digit(t->at, other, t->n, shift);
        struct entry *sorted = other;
        other = t->at;
        t->at = sorted;
    }
}

/* One entry a link, ascending; sums in the order of the flows. */
static void merge(struct tally *t) {
    uint32_t n = 0;
    if (t->n == 0)
        return;
    sort_entries(t);
    for (uint32_t i = 1; i < t->n; i++)
        if (t->at[i].link == t->at[n].link)
            t->at[n].bytes += t->at[i].bytes;
        else
            t->at[++n] = t->at[i];
    t->n = n + 1;
}

static int gpu_of(const struct dtp_group *g, int member) {
    return g->first + member * g->stride;
}

static void add_route(struct tally *t, int src, int dst, double fraction) {
    struct dtp_route r;
    dtp_cluster_route(t->c, t->ngpus, src, dst, &r);
    for (int i = 0; i < r.n; i++)
        put(t, r.link[i], fraction);
}

/* To the switch and back: the out-port and the in-port of one GPU. */
static void add_switch(struct tally *t, int gpu, double fraction) {
    int other = gpu % t->c->node.gpus ? gpu - 1 : gpu + 1;
    struct dtp_route out, in;
    dtp_cluster_route(t->c, t->ngpus, gpu, other, &out);
    dtp_cluster_route(t->c, t->ngpus, other, gpu, &in);
    put(t, out.link[0], fraction);
    put(t, in.link[1], fraction);
}

static void add_flow(struct tally *t, const struct dtp_coll_flow *f, double times) {
    if (f->src == f->dst)
        add_switch(t, gpu_of(t->g, f->src), f->fraction * times);
    else
        add_route(t, gpu_of(t->g, f->src), gpu_of(t->g, f->dst), f->fraction * times);
}

static void add_steps(struct tally *t, const struct dtp_step *steps, int n, int per_node) {
    for (int i = 0; i < n; i++) {
        bool uniform = dtp_step_uniform(&steps[i]);
        for (int r = 0; r < (uniform ? 1 : steps[i].repeat); r++) {
            const struct dtp_coll_flow *flow = NULL;
            int nflows = dtp_coll_flows(t->a, &steps[i], r, t->g->size, per_node, &flow);
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
    if (g->stride == 1 && g->first == node && n->mesh_ring[g->size] == 0)
        return false;
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
    struct dtp_group_shape s = {.size = g->size,
                                .nodes = nodes,
                                .per_node = per_node,
                                .siblings = 1,
                                .tier = nodes > 1 ? 0 : -1,
                                .nics = nodes < 2         ? 0
                                        : per_node < nics ? per_node
                                                          : nics};
    struct dtp_coll_cost cost;
    if (kind == DTP_ALL_TO_ALL)
        return DTP_ALGO_NAIVE;
    if (kind != DTP_ALL_REDUCE || !c->nvls)
        return DTP_ALGO_RING;
    dtp_coll_cost(c, kind, DTP_ALGO_AUTO, &s, DTP_GIGA, &cost);
    return cost.algo == DTP_ALGO_NVLS ? DTP_ALGO_NVLS : DTP_ALGO_RING;
}

static bool has_switch(const struct dtp_cluster *c, enum dtp_algo algo) {
    return algo != DTP_ALGO_NVLS || c->node.intra == DTP_INTRA_SWITCH;
}

uint32_t dtp_coll_uses(struct dtp_arena *a, const struct dtp_cluster *c,
                       const struct dtp_coll_call *call, const struct dtp_use **out) {
    const struct dtp_group *g = &call->group;
    struct dtp_step steps[DTP_MAX_STEPS];
    int per_node = dtp_group_per_node(c, g);
    enum dtp_algo algo = call->algo;
    *out = NULL;
    if (g->size < 2)
        return 0;
    if (algo == DTP_ALGO_AUTO)
        algo = default_algo(c, call->kind, g, per_node);
    int nsteps = dtp_coll_steps(algo, call->kind, g->size, per_node, steps, DTP_MAX_STEPS);
    if (nsteps < 0 || !has_switch(c, algo))
        return 0;
    struct tally t = {.a = a, .c = c, .g = &call->group, .ngpus = call->ngpus};
    bool mesh = call->algo == DTP_ALGO_AUTO && c->node.intra == DTP_INTRA_MESH &&
                per_node == g->size && call->kind <= DTP_REDUCE_SCATTER;
    if (!mesh || !spread_on_mesh(&t, dtp_busbw_factor(call->kind, g->size)))
        add_steps(&t, steps, nsteps, per_node);
    merge(&t);
    struct dtp_use *use = DTP_NEW(a, struct dtp_use, t.n);
    for (uint32_t i = 0; i < t.n; i++)
        use[i] = (struct dtp_use){t.at[i].link, DTP_USE_LINK, t.at[i].bytes};
    *out = use;
    return t.n;
}

/* One repeat of a step: the longest latency of its flows and the busiest link. */
static double repeat_s(struct tally *t, const struct dtp_step *step, int repeat, double bytes) {
    const struct dtp_coll_flow *flow = NULL;
    int n = dtp_coll_flows(t->a, step, repeat, t->g->size, dtp_group_per_node(t->c, t->g), &flow);
    double latency_s = 0, wire_s = 0;
    t->n = 0;
    for (int k = 0; k < n; k++) {
        struct dtp_route route = {.latency_s = t->c->node.gpu_link_latency_s};
        if (flow[k].src != flow[k].dst)
            dtp_cluster_route(t->c, t->ngpus, gpu_of(t->g, flow[k].src), gpu_of(t->g, flow[k].dst),
                              &route);
        latency_s = route.latency_s > latency_s ? route.latency_s : latency_s;
        add_flow(t, &flow[k], 1);
    }
    merge(t);
    for (uint32_t i = 0; i < t->n; i++) {
        double s =
            t->at[i].bytes * bytes / dtp_cluster_link_capacity(t->c, t->ngpus, t->at[i].link);
        wire_s = s > wire_s ? s : wire_s;
    }
    return latency_s + wire_s;
}

enum dtp_status dtp_coll_time_on_routes(struct dtp_arena *a, const struct dtp_cluster *c,
                                        const struct dtp_coll_call *call, double bytes,
                                        double *out_s, struct dtp_err *err) {
    struct dtp_step steps[DTP_MAX_STEPS];
    int size = call->group.size, per_node = dtp_group_per_node(c, &call->group);
    *out_s = 0;
    if (size < 2)
        return DTP_OK;
    int n = dtp_coll_steps(call->algo, call->kind, size, per_node, steps, DTP_MAX_STEPS);
    if (n < 0 || !has_switch(c, call->algo))
        return dtp_fail(err, DTP_EUNSUPPORTED, "%s has no %s for %d GPUs, %d per node",
                        dtp_collective_names[call->kind], dtp_algo_names[call->algo], size,
                        per_node);
    struct tally t = {.a = a, .c = c, .g = &call->group, .ngpus = call->ngpus};
    for (int i = 0; i < n; i++) {
        bool uniform = dtp_step_uniform(&steps[i]);
        for (int r = 0; r < (uniform ? 1 : steps[i].repeat); r++)
            *out_s += (uniform ? steps[i].repeat : 1) * repeat_s(&t, &steps[i], r, bytes);
    }
    return DTP_OK;
}
