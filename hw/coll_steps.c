#include "hw/collective.h"

#include <assert.h>

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

/* log2 n exchanges of the whole buffer; those beyond the power of two fold in before and out after. */
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

/* To the root and back, at once (one_by_one 0) or each alone. */
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

/* In the switch; between nodes each GPU carries its share of the sum around a ring. */
static bool nvls(struct list *l, enum dtp_collective k) {
    int p = l->per_node, nodes = l->size / p;
    if (k != DTP_ALL_REDUCE || p < 2)
        return false;
    add(l, 1, DTP_PEER_SWITCH, 0, 1, 1);
    add(l, 2 * (nodes - 1), DTP_PEER_NEXT, 1, l->inverse, 2);
    return true;
}

/* Inside, across with one ring for each member of a node, inside. */
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
