/* collective.h: collectives as data: step lists, closed forms, measured curves, NCCL's choice.
 *
 * A step is {repeat, peer pattern, distance, fraction of the buffer, tier}: the members that send do so
 * at once after the step's latency, then a barrier. Its closed form is
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
    DTP_ALGO_TREE,
    DTP_ALGO_DOUBLE_TREE,
    DTP_ALGO_PARAMETER_SERVER,
    DTP_ALGO_SEQUENTIAL,
    DTP_ALGO_NAIVE, /* parallel all-to-all */
    DTP_ALGO_NVLS,
    DTP_ALGO_HIERARCHICAL,
    DTP_ALGO_PAIRWISE, /* all_to_all in n-1 steps */
    DTP_NALGOS
};
extern const char *const dtp_algo_names[];

enum dtp_peer { DTP_PEER_NEXT, DTP_PEER_XOR, DTP_PEER_TO_ROOT, DTP_PEER_FROM_ROOT, DTP_PEER_ALL,
                DTP_PEER_TREE_UP, DTP_PEER_TREE_DOWN, DTP_PEER_SWITCH };
struct dtp_step {
    int repeat;
    enum dtp_peer peer;
    int distance;
    double fraction; /* of the buffer, sent by each sender in one repeat */
    int tier;        /* 0: the whole group; 1: inside the node; 2: across nodes (hierarchical) */
};

/* Fills steps (at most `capacity`), returns how many, or -1 when the algorithm does not apply. */
int dtp_coll_steps(enum dtp_algo algo, enum dtp_collective kind, int n, int per_node,
                   struct dtp_step *steps, int capacity);
double dtp_busbw_factor(enum dtp_collective kind, int n);

struct dtp_coll_cost {
    double time_s;      /* alone, with the sibling groups of the same axis running in lockstep */
    double latency_s;   /* part of it that does not depend on bandwidth */
    double nvlink_bytes;/* through one GPU's port and direction, of the busiest member */
    double nic_bytes;   /* through one NIC and direction, siblings NOT included */
    enum dtp_algo algo;
    bool extrapolated;  /* beyond the measured curve's sizes or group */
    const char *source; /* curve, or "nccl model", or "steps" */
};

/* algo DTP_ALGO_AUTO: the fastest that applies, as NCCL chooses. Group of size 1 or 0 bytes: 0 s. */
void dtp_coll_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                   const struct dtp_group_shape *shape, double bytes, struct dtp_coll_cost *out);
/* Message between two given GPUs (pipeline), sharded over nothing: bytes as they go on the wire.
 * siblings: messages that leave the same NIC at the same time, itself included. */
void dtp_p2p_cost(const struct dtp_cluster *c, int ngpus, int src, int dst, int siblings,
                  double bytes, struct dtp_coll_cost *out);

/* Link uses of a compound flow whose work is `bytes` (as above): weight = bytes on the link / bytes, for
 * every member and every step. Returns the number of uses (<= capacity). Links are those of
 * dtp_cluster_route(). */
uint32_t dtp_coll_uses(struct dtp_arena *a, const struct dtp_cluster *c, int ngpus,
                       enum dtp_collective kind, enum dtp_algo algo, const struct dtp_group *group,
                       const struct dtp_use **out);

#endif
