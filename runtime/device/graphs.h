/* graphs.h: makes CUDA graphs of what a rank enqueues repeatedly.
 *
 * A layer's kernels are the same in every step, and with the same arguments: the heap hands out addresses
 * in the same order. So, between two points at which the compute stream synchronises with the host or another stream
 * (an event, a mark, a copy), the operations are not enqueued but kept with their arguments, as a piece;
 * at its end the piece is
 *   enqueued      when it is seen for the first time,
 *   recorded      as a CUDA graph (device.h, record) when it comes again, byte for byte the same,
 *   replayed      from then on: one call of the driver instead of one for each kernel.
 * If anything changes (an address), this makes another piece, so that results are those of the
 * operations, bit by bit. Collectives on the compute stream are operations, too: those of tensor
 * parallelism, for which it would only wait elsewhere. All ranks record in the same step, in the same order
 * of actions; one that replays and one that enqueues still meet (nccl_comm.c).
 *
 * The host then needs 0.2 us for a kernel instead of 4 to 5, and the device needs less time between two. Pieces are
 * learned in the first step, which chooses algorithms, and recorded from the second on.
 * DTPLAN_CUDA_GRAPHS=0 turns graphs off.
 *
 *     r->ops = dtp_graphs_open(arena, r->dev);     the device's own table when it has no graphs
 */
#ifndef DTP_RUNTIME_GRAPHS_H
#define DTP_RUNTIME_GRAPHS_H

#include "hw/collective.h"
#include "runtime/comm/comm.h"

const struct dtp_dev_ops *dtp_graphs_open(struct dtp_arena *a, struct dtp_dev *d);
/* Must be called after each step. */
void dtp_graphs_next_step(struct dtp_dev *d);
/* Returns true if operations are kept: then the caller leaves out what would end a piece in the middle of an action. */
bool dtp_graphs_keep(const struct dtp_dev *d);

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
/* A collective of a group (comm.h): all_reduce (in is out), all_gather or reduce_scatter. */
struct dtp_collective_args {
    struct dtp_comm_group *group;
    void *out;
    const void *in;
    int64_t n;
    enum dtp_collective kind;
    enum dtp_dtype dtype;
    enum dtp_reduce_op op; /* operator of an all_reduce */
    int unused;
};
#pragma GCC diagnostic pop
/* Runs a collective on the compute stream, in the order of the operations. may_keep allows a piece to keep it as an
 * operation; then check() finds its failure. */
enum dtp_status dtp_graphs_collective(struct dtp_dev *d, const struct dtp_collective_args *x,
                                      bool may_keep, struct dtp_err *err);
/* Forgets the graphs of a plan that has ended, because the next plan reuses the memory. */
void dtp_graphs_forget(struct dtp_dev *d);

struct dtp_graphs_stats {
    int graphs, kernels;   /* recorded so far */
    int64_t ops, replayed; /* in the last step: all operations, those in graphs */
};
void dtp_graphs_stats(const struct dtp_dev *d, struct dtp_graphs_stats *out);

#endif
