#include "hw/collective.h"

#include <assert.h>

#include "sim/base/units.h"

const char *const dtp_collective_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                            "broadcast",  "reduce",     "all_to_all",
                                            "send_recv",  NULL};
const char *const dtp_algo_names[] = {
    "auto",  "ring",        "recursive_doubling", "halving_doubling",
    "tree",  "double_tree", "parameter_server",   "sequential",
    "naive", "nvls",        "hierarchical",       "pairwise",
    NULL};

double dtp_busbw_factor(enum dtp_collective kind, int n) {
    if (n < 1)
        return 0;
    switch (kind) {
    case DTP_ALL_REDUCE:
        return 2.0 * (n - 1) / n;
    case DTP_ALL_GATHER:
    case DTP_REDUCE_SCATTER:
    case DTP_ALL_TO_ALL:
        return (double)(n - 1) / n;
    case DTP_BROADCAST:
    case DTP_REDUCE:
    case DTP_SEND_RECV:
        return 1;
    case DTP_NCOLLECTIVES:
        break;
    }
    return 0;
}

/* ---- step lists ---- */

struct list {
    struct dtp_step *at;
    int n, capacity, size, per_node;
    double inverse; /* 1/size */
};

static void add(struct list *l, int repeat, enum dtp_peer peer, int distance, double fraction,
                int tier) {
    if (repeat <= 0)
        return;
    assert(l->n < l->capacity);
    l->at[l->n++] = (struct dtp_step){repeat, peer, distance, fraction, tier};
}

static int power_below(int n) {
    int p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

static bool gathers(enum dtp_collective k) {
    return k == DTP_ALL_GATHER || k == DTP_REDUCE_SCATTER;
}

static bool ring(struct list *l, enum dtp_collective k) {
    int n = l->size;
    switch (k) {
    case DTP_ALL_REDUCE:
        add(l, 2 * (n - 1), DTP_PEER_NEXT, 1, l->inverse, 0);
        return true;
    case DTP_ALL_GATHER:
    case DTP_REDUCE_SCATTER:
        add(l, n - 1, DTP_PEER_NEXT, 1, l->inverse, 0);
        return true;
    case DTP_BROADCAST:
    case DTP_SEND_RECV:
        add(l, 1, DTP_PEER_CHAIN, 1, 1, 0);
        return true;
    case DTP_REDUCE:
        add(l, 1, DTP_PEER_CHAIN_BACK, 1, 1, 0);
        return true;
    case DTP_ALL_TO_ALL:
    case DTP_NCOLLECTIVES:
        break;
    }
    return false;
}

/* Lists log2 n exchanges of the whole buffer; members beyond the power of two fold in before and out after. */
static bool recursive_doubling(struct list *l, enum dtp_collective k) {
    int p = power_below(l->size), beyond = l->size - p;
    if (k != DTP_ALL_REDUCE)
        return false;
    add(l, beyond > 0, DTP_PEER_FOLD_IN, p, 1, 0);
    for (int d = 1; d < p; d *= 2)
        add(l, 1, DTP_PEER_XOR, d, 1, 0);
    add(l, beyond > 0, DTP_PEER_FOLD_OUT, p, 1, 0);
    return true;
}

/* Rabenseifner; Thakur, Rabenseifner and Gropp 2005, section 4: halves with the nearest first, so that
 * the largest exchanges stay in the node. A gather or scatter is one of its two parts. */
static bool halving_doubling(struct list *l, enum dtp_collective k) {
    int p = power_below(l->size), beyond = l->size - p;
    if (k != DTP_ALL_REDUCE && !(gathers(k) && beyond == 0))
        return false;
    add(l, beyond > 0, DTP_PEER_FOLD_IN, p, 1, 0);
    if (k != DTP_ALL_GATHER)
        for (int d = 1; d < p; d *= 2)
            add(l, 1, DTP_PEER_XOR, d, 0.5 / d, 0);
    if (k != DTP_REDUCE_SCATTER)
        for (int d = p / 2; d >= 1; d /= 2)
            add(l, 1, DTP_PEER_XOR, d, 0.5 / d, 0);
    add(l, beyond > 0, DTP_PEER_FOLD_OUT, p, 1, 0);
    return true;
}

static bool trees(struct list *l, enum dtp_collective k, enum dtp_peer up, enum dtp_peer down,
                  double fraction) {
    int top = 1;
    if (k != DTP_ALL_REDUCE && k != DTP_BROADCAST && k != DTP_REDUCE)
        return false;
    while (top < l->size)
        top *= 2;
    if (k != DTP_BROADCAST)
        for (int d = 1; d < top; d *= 2)
            add(l, 1, up, d, fraction, 0);
    if (k != DTP_REDUCE)
        for (int d = top / 2; d >= 1; d /= 2)
            add(l, 1, down, d, fraction, 0);
    return true;
}

static bool tree(struct list *l, enum dtp_collective k) {
    return trees(l, k, DTP_PEER_TREE_UP, DTP_PEER_TREE_DOWN, 1);
}

/* Only the all-reduce: the two trees have different roots (Sanders, Speck and Traeff 2009). */
static bool double_tree(struct list *l, enum dtp_collective k) {
    return k == DTP_ALL_REDUCE && trees(l, k, DTP_PEER_TREES_UP, DTP_PEER_TREES_DOWN, 0.5);
}

/* Lists sends to the root and back, all at once (one_by_one 0) or one at a time. */
static bool by_root(struct list *l, enum dtp_collective k, int one_by_one) {
    int repeat = one_by_one ? l->size - 1 : 1;
    double up = k == DTP_ALL_GATHER ? l->inverse : 1;
    double down = k == DTP_REDUCE_SCATTER ? l->inverse : 1;
    if (k == DTP_ALL_TO_ALL || k == DTP_SEND_RECV)
        return false;
    if (k != DTP_BROADCAST)
        add(l, repeat, DTP_PEER_TO_ROOT, one_by_one, up, 0);
    if (k != DTP_REDUCE)
        add(l, repeat, DTP_PEER_FROM_ROOT, one_by_one, down, 0);
    return true;
}

static bool parameter_server(struct list *l, enum dtp_collective k) {
    return by_root(l, k, 0);
}

static bool sequential(struct list *l, enum dtp_collective k) {
    return by_root(l, k, 1);
}

static bool naive(struct list *l, enum dtp_collective k) {
    if (k == DTP_BROADCAST || k == DTP_REDUCE || k == DTP_SEND_RECV)
        return false;
    add(l, 1, DTP_PEER_ALL, 0, k == DTP_ALL_REDUCE ? 1 : l->inverse, 0);
    return true;
}

/* Lists a sum in the switch; between nodes each GPU carries its share of the sum around a ring. */
static bool nvls(struct list *l, enum dtp_collective k) {
    int p = l->per_node, nodes = l->size / p;
    if (k != DTP_ALL_REDUCE || p < 2)
        return false;
    add(l, 1, DTP_PEER_SWITCH, 0, 1, 1);
    add(l, 2 * (nodes - 1), DTP_PEER_NEXT, 1, l->inverse, 2);
    return true;
}

/* Lists steps inside the node, across nodes with one ring for each member of a node, and inside again. */
static bool hierarchical(struct list *l, enum dtp_collective k) {
    int p = l->per_node, nodes = l->size / p;
    if (p < 2 || nodes < 2 || (k != DTP_ALL_REDUCE && !gathers(k)))
        return false;
    if (k != DTP_ALL_GATHER)
        add(l, p - 1, DTP_PEER_NEXT, 1, 1.0 / p, 1);
    add(l, (k == DTP_ALL_REDUCE ? 2 : 1) * (nodes - 1), DTP_PEER_NEXT, 1, l->inverse, 2);
    if (k != DTP_REDUCE_SCATTER)
        add(l, p - 1, DTP_PEER_NEXT, 1, 1.0 / p, 1);
    return true;
}

static bool pairwise(struct list *l, enum dtp_collective k) {
    if (k != DTP_ALL_TO_ALL)
        return false;
    add(l, l->size - 1, DTP_PEER_NEXT, 0, l->inverse, 0);
    return true;
}

static bool (*const builders[DTP_NALGOS])(struct list *, enum dtp_collective) = {
    [DTP_ALGO_RING] = ring,
    [DTP_ALGO_RECURSIVE_DOUBLING] = recursive_doubling,
    [DTP_ALGO_HALVING_DOUBLING] = halving_doubling,
    [DTP_ALGO_TREE] = tree,
    [DTP_ALGO_DOUBLE_TREE] = double_tree,
    [DTP_ALGO_PARAMETER_SERVER] = parameter_server,
    [DTP_ALGO_SEQUENTIAL] = sequential,
    [DTP_ALGO_NAIVE] = naive,
    [DTP_ALGO_NVLS] = nvls,
    [DTP_ALGO_HIERARCHICAL] = hierarchical,
    [DTP_ALGO_PAIRWISE] = pairwise,
};

int dtp_coll_steps(enum dtp_algo algo, enum dtp_collective kind, int n, int per_node,
                   struct dtp_step *steps, int capacity) {
    if (n < 2 || !builders[algo] || n % per_node != 0)
        return -1;
    struct list l = {steps, 0, capacity, n, per_node, 1.0 / n};
    return builders[algo](&l, kind) ? l.n : -1;
}

bool dtp_step_uniform(const struct dtp_step *s) {
    bool rooted = s->peer == DTP_PEER_TO_ROOT || s->peer == DTP_PEER_FROM_ROOT;
    return s->repeat == 1 ||
           !((s->peer == DTP_PEER_NEXT && s->distance == 0) || (rooted && s->distance == 1));
}

/* ---- flows of one repeat of a step ---- */

struct flows {
    struct dtp_coll_flow *at;
    int n, capacity;
    double fraction;
};

static void add_flow(struct flows *f, int src, int dst) {
    assert(f->n < f->capacity);
    f->at[f->n++] = (struct dtp_coll_flow){src, dst, f->fraction};
}

/* Channel k of a ring_flows over nodes of p members enters a node at member k and walks up, in every other
 * node at member k-1 and walks down: between nodes it stays on one rail (as NCCL's rings do). */
static int ring_member(int position, int channel, int p) {
    int node = position / p, i = position % p;
    int local = node % 2 == 0 ? channel + i : channel + p - 1 - i;
    return node * p + local % p;
}

static void ring_flows(struct flows *f, int n, int p, bool closed, bool back) {
    int links = closed ? n : n - 1;
    if (p == n) /* inside one node the order of the members is as good as any */
        p = 1;
    f->fraction /= p;
    for (int k = 0; k < p; k++)
        for (int i = 0; i < links; i++) {
            int at = closed ? i : i + (p - k) % p; /* a chain starts at the root, member 0 */
            int from = p == 1 ? at : ring_member(at % n, k, p);
            int to = p == 1 ? (at + 1) % n : ring_member((at + 1) % n, k, p);
            add_flow(f, back ? to : from, back ? from : to);
        }
}

/* Rings inside every node, or of equal members across the nodes. */
static void hierarchical_flows(struct flows *f, int n, int p, bool inside) {
    for (int i = 0; i < n; i++)
        add_flow(f, i, inside ? i / p * p + (i + 1) % p : (i + p) % n);
}

static void next(struct flows *f, const struct dtp_step *s, int repeat, int n, int p) {
    int d = s->distance ? s->distance : repeat + 1;
    if (s->tier > 0) {
        hierarchical_flows(f, n, p, s->tier == 1);
        return;
    }
    if (s->distance == 1) {
        ring_flows(f, n, p, true, false);
        return;
    }
    for (int i = 0; i < n; i++)
        add_flow(f, i, (i + d) % n);
}

static void exchange(struct flows *f, int n, int d) {
    int p = 1;
    while (p <= n / 2)
        p *= 2;
    for (int i = 0; i < p; i++)
        add_flow(f, i, i ^ d);
}

static void fold(struct flows *f, int n, int d, bool out) {
    for (int i = d; i < n; i++)
        add_flow(f, out ? i - d : i, out ? i : i - d);
}

static void root(struct flows *f, const struct dtp_step *s, int repeat, int n, bool out) {
    int from = s->distance ? repeat + 1 : 1, to = s->distance ? repeat + 2 : n;
    for (int i = from; i < to; i++)
        add_flow(f, out ? 0 : i, out ? i : 0);
}

static void tree_flows(struct flows *f, int n, int d, bool down, bool mirrored) {
    for (int i = d; i < n; i += 2 * d) {
        int child = mirrored ? n - 1 - i : i, parent = mirrored ? n - 1 - (i - d) : i - d;
        add_flow(f, down ? parent : child, down ? child : parent);
    }
}

static void all(struct flows *f, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 1; k < n; k++)
            add_flow(f, i, (i + k) % n);
}

int dtp_coll_flows(struct dtp_arena *a, const struct dtp_step *s, int repeat, int n, int per_node,
                   const struct dtp_coll_flow **out) {
    bool multi_ring = s->tier == 0 && s->peer <= DTP_PEER_CHAIN_BACK && per_node > 1;
    int capacity = s->peer == DTP_PEER_ALL ? n * (n - 1) : multi_ring ? n * per_node : 2 * n;
    struct flows f = {DTP_NEW(a, struct dtp_coll_flow, (size_t)capacity), 0, capacity, s->fraction};
    switch (s->peer) {
    case DTP_PEER_NEXT:
        next(&f, s, repeat, n, per_node);
        break;
    case DTP_PEER_CHAIN:
        ring_flows(&f, n, per_node, false, false);
        break;
    case DTP_PEER_CHAIN_BACK:
        ring_flows(&f, n, per_node, false, true);
        break;
    case DTP_PEER_XOR:
        exchange(&f, n, s->distance);
        break;
    case DTP_PEER_FOLD_IN:
        fold(&f, n, s->distance, false);
        break;
    case DTP_PEER_FOLD_OUT:
        fold(&f, n, s->distance, true);
        break;
    case DTP_PEER_TO_ROOT:
        root(&f, s, repeat, n, false);
        break;
    case DTP_PEER_FROM_ROOT:
        root(&f, s, repeat, n, true);
        break;
    case DTP_PEER_ALL:
        all(&f, n);
        break;
    case DTP_PEER_TREE_UP:
        tree_flows(&f, n, s->distance, false, false);
        break;
    case DTP_PEER_TREE_DOWN:
        tree_flows(&f, n, s->distance, true, false);
        break;
    case DTP_PEER_TREES_UP:
    case DTP_PEER_TREES_DOWN:
        tree_flows(&f, n, s->distance, s->peer == DTP_PEER_TREES_DOWN, false);
        tree_flows(&f, n, s->distance, s->peer == DTP_PEER_TREES_DOWN, true);
        break;
    case DTP_PEER_SWITCH:
        for (int i = 0; i < n; i++)
            add_flow(&f, i, i);
        break;
    }
    *out = f.at;
    return f.n;
}

int dtp_group_per_node(const struct dtp_cluster *c, const struct dtp_group *g) {
    int gpus = c->node.gpus, first = g->first / gpus;
    int last = (g->first + (g->size - 1) * g->stride) / gpus;
    if (first == last)
        return g->size;
    if (g->stride >= gpus || gpus % g->stride != 0)
        return 1;
    int per_node = gpus / g->stride;
    return g->first % gpus < g->stride && g->size % per_node == 0 ? per_node : 1;
}

/* ---- links that the flows use ---- */

/* The bytes that cross a link, in the order of the flows; equal links are merged at the end. */
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

/* Sorts entries by link; those of one link stay in the order of the flows. */
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

/* Adds a flow to the switch and back, over the out-port and the in-port of one GPU. */
static void add_switch(struct tally *t, int gpu, double fraction) {
    int other = gpu % t->c->node.gpus ? gpu - 1 : gpu + 1;
    struct dtp_route out, in;
    dtp_cluster_route(t->c, t->ngpus, gpu, other, &out);
    dtp_cluster_route(t->c, t->ngpus, other, gpu, &in);
    put(t, out.link[0], fraction);
    put(t, in.link[1], fraction);
}

static void tally_flow(struct tally *t, const struct dtp_coll_flow *f, double times) {
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
                tally_flow(t, &flow[k], uniform ? steps[i].repeat : 1);
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
