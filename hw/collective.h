/* collective.h: describes collectives as data: lists of steps, closed forms, measured curves, NCCL's choice.
 *
 * A step is {repeat, peer pattern, distance, fraction of the buffer, tier}: all members that send
 * start together after the step's latency, and a barrier ends the step. The closed form is
 *     sum over steps of repeat x (latency + max over links of bytes on the link / capacity)
 * with one step's flows counted on the real routes; the simulator emits the same steps as flows
 * (--detail step) or one compound flow. A measured curve t(s) = a + b sqrt(s) + c s, where the
 * cluster has one, takes the place of the closed form: alone, the collective ends at exactly t(s).
 *
 * bytes: all_reduce, broadcast, reduce: the buffer of each rank; all_gather, reduce_scatter: the whole
 * (gathered) buffer; all_to_all: what each rank sends in all; send_recv: the message.
 * busbw (nccl-tests): bytes / t x {2(n-1)/n, (n-1)/n, (n-1)/n, (n-1)/n, 1}.
 */
#ifndef DTP_HW_COLLECTIVE_H
#define DTP_HW_COLLECTIVE_H

#include "hw/placement.h"
#include "sim/graph.h"

enum dtp_collective {
    DTP_ALL_REDUCE,
    DTP_ALL_GATHER,
    DTP_REDUCE_SCATTER,
    DTP_BROADCAST,
    DTP_REDUCE,
    DTP_ALL_TO_ALL,
    DTP_SEND_RECV,
    DTP_NCOLLECTIVES
};
extern const char *const dtp_collective_names[]; /* "all_reduce", ..., NULL */

/* One row of the table of algorithms; `dtplan collectives` lists them. */
enum dtp_algo {
    DTP_ALGO_AUTO,
    DTP_ALGO_RING,
    DTP_ALGO_RECURSIVE_DOUBLING,
    DTP_ALGO_HALVING_DOUBLING, /* Rabenseifner */
    DTP_ALGO_TREE,             /* binomial, whole buffer at each level */
    DTP_ALGO_DOUBLE_TREE, /* two mirrored trees, half each; AUTO gives NCCL's pipelined ones this name */
    DTP_ALGO_PARAMETER_SERVER,
    DTP_ALGO_SEQUENTIAL,
    DTP_ALGO_NAIVE, /* parallel all-to-all */
    DTP_ALGO_NVLS,
    DTP_ALGO_HIERARCHICAL,
    DTP_ALGO_PAIRWISE, /* all_to_all in n-1 steps */
    DTP_NALGOS
};
extern const char *const dtp_algo_names[];

/* Who sends to whom among members 0 .. n-1, d = distance. */
enum dtp_peer {
    DTP_PEER_NEXT,  /* i to i + d mod n; d = 0 stands for the number of the repeat, from 1. With
                          * several members on each of several nodes the ring has a channel for each
                          * member of a node, so that all NICs work (as NCCL's rings do) */
    DTP_PEER_CHAIN, /* the ring without its last link, pipelined */
    DTP_PEER_CHAIN_BACK, /* the same in the other direction */
    DTP_PEER_XOR,        /* i to i xor d, among the largest power of two of the members */
    DTP_PEER_FOLD_IN,    /* i to i - d for i >= d: members beyond the power of two d */
    DTP_PEER_FOLD_OUT,   /* and back */
    DTP_PEER_TO_ROOT,    /* all to 0 at once; d = 1: one in each repeat */
    DTP_PEER_FROM_ROOT,  /* and back */
    DTP_PEER_ALL,        /* each to each */
    DTP_PEER_TREE_UP,    /* binomial: i to i - d where i mod 2d = d */
    DTP_PEER_TREE_DOWN,  /* and back */
    DTP_PEER_TREES_UP,   /* the same in two trees at once, the second mirrored */
    DTP_PEER_TREES_DOWN,
    DTP_PEER_SWITCH /* each to the switch, which sums, and back */
};
struct dtp_step {
    int repeat;
    enum dtp_peer peer;
    int distance;
    double fraction; /* share of the buffer that a sender sends to each peer in a repeat */
    int tier;        /* 0: the whole group; 1: inside the node; 2: across nodes (hierarchical) */
};
#define DTP_MAX_STEPS 80

/* Fills steps (DTP_MAX_STEPS are enough), returns how many, or -1 when the algorithm does not
 * apply. per_node: members on each node, 1 when they are not spread evenly. */
int dtp_coll_steps(enum dtp_algo algo, enum dtp_collective kind, int n, int per_node,
                   struct dtp_step *steps, int capacity);

/* One flow of a repeat (counted from 0) of a step, between members; src = dst goes to the switch and back. */
struct dtp_coll_flow {
    int src, dst;
    double fraction;
};
int dtp_coll_flows(struct dtp_arena *a, const struct dtp_step *step, int repeat, int n,
                   int per_node, const struct dtp_coll_flow **out);
/* Returns true when all repeats of the step have the same flows. */
bool dtp_step_uniform(const struct dtp_step *step);
/* Returns the members on each node, or 1 when the group is not spread evenly over its nodes. */
int dtp_group_per_node(const struct dtp_cluster *c, const struct dtp_group *group);
double dtp_busbw_factor(enum dtp_collective kind, int n);

struct dtp_coll_cost {
    double time_s;       /* alone, with the sibling groups of the same axis running in lockstep */
    double latency_s;    /* part of it that does not depend on bandwidth */
    double nvlink_bytes; /* through one port and direction of the busiest member */
    double nic_bytes;    /* through one NIC and direction, siblings NOT included */
    enum dtp_algo algo;
    bool extrapolated;  /* beyond the measured curve's sizes or group */
    const char *source; /* curve, or "nccl model", or "steps" */
};

/* DTP_ALGO_AUTO takes the fastest algorithm that applies, as NCCL does. A group of size 1 or 0 bytes take 0 s.
 *   measured   the cluster has a curve for this group size and node count: t(s), also beyond the
 *              measured sizes (c is never below what the wires take)
 *   scaled     it has curves of other group sizes: with lat and g of NCCL's algorithm (hw/nccl.h)
 *              for this group and for the curve's, t = lat/lat' t'(s g/g' lat'/lat): the curve's
 *              shape in dimensionless form, blended between the next smaller and larger group;
 *              all_gather and reduce_scatter stand for each other, and are scaled from an all_reduce
 *              that runs as a ring, never from one in the switch
 *   modelled   no such curve: lat and g with the correction fitted over all sweeps
 *   never less than the bytes of the busiest link at its capacity.
 * An algorithm that is requested by name and is not one of NCCL's is timed by its steps, each hop with the
 * latency of the node or the NIC. One that does not apply is replaced: out->algo names the one that is timed.
 * Shapes stand for regular groups. */
void dtp_coll_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                   const struct dtp_group_shape *shape, double bytes, struct dtp_coll_cost *out);
/* Times a message between two given GPUs (pipeline). bytes: as they go on the wire, not divided over any group.
 * siblings: how many messages leave the same NIC at the same time, this one included. */
void dtp_p2p_cost(const struct dtp_cluster *c, int src, int dst, int siblings, double bytes,
                  struct dtp_coll_cost *out);

/* One collective of one group among ngpus GPUs in use. */
struct dtp_coll_call {
    enum dtp_collective kind;
    enum dtp_algo algo;
    struct dtp_group group;
    int ngpus;
};

/* Lists the link uses of a compound flow whose work is `bytes` (as above), summed over all members and steps, links
 * ascending: weight = bytes on the link / bytes. Returns the number of uses. The links are those of
 * dtp_cluster_route(); in a mesh each GPU spreads what it sends over its links into the group, as NCCL's rings do.
 * AUTO stands for in-switch or ring (trees move the same volume), and for direct sends in all_to_all. */
uint32_t dtp_coll_uses(struct dtp_arena *a, const struct dtp_cluster *c,
                       const struct dtp_coll_call *call, const struct dtp_use **out);

#endif
