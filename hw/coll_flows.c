#include "hw/collective.h"

#include <assert.h>

struct flows {
    struct dtp_coll_flow *at;
    int n, capacity;
    double fraction;
};

static void add(struct flows *f, int src, int dst) {
    assert(f->n < f->capacity);
    f->at[f->n++] = (struct dtp_coll_flow){src, dst, f->fraction};
}

/* Channel k of a ring over nodes of p members enters a node at member k and walks up, in every other
 * node at member k-1 and walks down: between nodes it stays on one rail (as NCCL's rings do). */
static int ring_member(int position, int channel, int p) {
    int node = position / p, i = position % p;
    int local = node % 2 == 0 ? channel + i : channel + p - 1 - i;
    return node * p + local % p;
}

static void ring(struct flows *f, int n, int p, bool closed, bool back) {
    int links = closed ? n : n - 1;
    if (p == n) /* inside one node the order of the members is as good as any */
        p = 1;
    f->fraction /= p;
    for (int k = 0; k < p; k++)
        for (int i = 0; i < links; i++) {
            int at = closed ? i : i + (p - k) % p; /* a chain starts at the root, member 0 */
            int from = p == 1 ? at : ring_member(at % n, k, p);
            int to = p == 1 ? (at + 1) % n : ring_member((at + 1) % n, k, p);
            add(f, back ? to : from, back ? from : to);
        }
}

/* Rings inside every node, or of equal members across the nodes. */
static void hierarchical(struct flows *f, int n, int p, bool inside) {
    for (int i = 0; i < n; i++)
        add(f, i, inside ? i / p * p + (i + 1) % p : (i + p) % n);
}

static void next(struct flows *f, const struct dtp_step *s, int repeat, int n, int p) {
    int d = s->distance ? s->distance : repeat + 1;
    if (s->tier > 0) {
        hierarchical(f, n, p, s->tier == 1);
        return;
    }
    if (s->distance == 1) {
        ring(f, n, p, true, false);
        return;
    }
    for (int i = 0; i < n; i++)
        add(f, i, (i + d) % n);
}

static void exchange(struct flows *f, int n, int d) {
    int p = 1;
    while (p <= n / 2)
        p *= 2;
    for (int i = 0; i < p; i++)
        add(f, i, i ^ d);
}

static void fold(struct flows *f, int n, int d, bool out) {
    for (int i = d; i < n; i++)
        add(f, out ? i - d : i, out ? i : i - d);
}

static void root(struct flows *f, const struct dtp_step *s, int repeat, int n, bool out) {
    int from = s->distance ? repeat + 1 : 1, to = s->distance ? repeat + 2 : n;
    for (int i = from; i < to; i++)
        add(f, out ? 0 : i, out ? i : 0);
}

static void tree(struct flows *f, int n, int d, bool down, bool mirrored) {
    for (int i = d; i < n; i += 2 * d) {
        int child = mirrored ? n - 1 - i : i, parent = mirrored ? n - 1 - (i - d) : i - d;
        add(f, down ? parent : child, down ? child : parent);
    }
}

static void all(struct flows *f, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 1; k < n; k++)
            add(f, i, (i + k) % n);
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
        ring(&f, n, per_node, false, false);
        break;
    case DTP_PEER_CHAIN_BACK:
        ring(&f, n, per_node, false, true);
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
        tree(&f, n, s->distance, false, false);
        break;
    case DTP_PEER_TREE_DOWN:
        tree(&f, n, s->distance, true, false);
        break;
    case DTP_PEER_TREES_UP:
    case DTP_PEER_TREES_DOWN:
        tree(&f, n, s->distance, s->peer == DTP_PEER_TREES_DOWN, false);
        tree(&f, n, s->distance, s->peer == DTP_PEER_TREES_DOWN, true);
        break;
    case DTP_PEER_SWITCH:
        for (int i = 0; i < n; i++)
            add(&f, i, i);
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
