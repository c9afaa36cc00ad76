/* graphs.h: CUDA graphs of what a rank enqueues again and again.
 *
 * A layer's kernels are the same in every step, and with the same arguments: the heap hands out addresses
 * in the same order. So, between two points at which the compute stream meets the host or another stream
 * (an event, a mark, a copy), the operations are not enqueued but kept with their arguments, as a piece;
 * at its end the piece is
 *   enqueued      when it is seen for the first time,
 *   recorded      as a CUDA graph (device.h, record) when it comes again, byte for byte the same,
 *   replayed      from then on: one call of the driver instead of one for each kernel.
 * Whatever changes (an address) makes another piece, so that results are those of the
 * operations, bit by bit. Collectives are no part of pieces.
 *
 * The host then needs 0.2 us for a kernel instead of 4 to 5, and the device less time between two. Where the
 * host was busy for less than a tenth of the second step (the first chooses algorithms), kernels are so long
 * that this is little, and there are none. DTPLAN_CUDA_GRAPHS=0: never, 1: from the second step on.
 *
 *     r->ops = dtp_graphs_open(arena, r->dev);     the device's own table when it has no graphs
 */
#ifndef DTP_RUNTIME_GRAPHS_H
#define DTP_RUNTIME_GRAPHS_H

#include "runtime/device.h"

const struct dtp_dev_ops *dtp_graphs_open(struct dtp_arena *a, struct dtp_dev *d);
enum dtp_graphs_mode {
    DTP_GRAPHS_LEARN, /* pieces are kept and enqueued: the first two steps */
    DTP_GRAPHS_OFF,   /* operations go through */
    DTP_GRAPHS_ON
};
/* After each step. */
void dtp_graphs_decide(struct dtp_dev *d, double host_s, double step_s);
/* Whatever was decided, for some operations; returns what it was. */
enum dtp_graphs_mode dtp_graphs_switch(struct dtp_dev *d, enum dtp_graphs_mode mode);
/* Of a plan that has ended: the memory is handed out anew. */
void dtp_graphs_forget(struct dtp_dev *d);

struct dtp_graphs_stats {
    int graphs, kernels;   /* recorded so far */
    int64_t ops, replayed; /* in the last step: in pieces; of them in graphs */
};
void dtp_graphs_stats(const struct dtp_dev *d, struct dtp_graphs_stats *out);

#endif
