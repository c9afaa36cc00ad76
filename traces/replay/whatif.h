/* whatif.h: a replay on other hardware, and with other kernels.
 *
 * Each piece of measured work is scaled by what the calibrated models (hw/device.h, hw/collective.h) say of
 * the two machines, so that what the models miss of a piece stays in it:
 *
 *     kernels       by class, told from the name: matrix products, fused attention, all else memory
 *                   bound. The size is the one that takes the measured time on the GPU of the trace: a
 *                   product of m = n = k, attention of one sequence of 32 heads of 128, a stream of bytes
 *     copies        by the nominal rate of PCIe
 *     collectives   by operation, ranks and bytes; where the trace does not say the bytes, those that
 *                   take the measured transfer
 *
 * More ranks: K times the replicas do the same, so collectives over all ranks of the job span K times
 * as many; what is gathered or reduced in all stays (ZeRO shards become smaller).
 */
#ifndef DTP_TRACES_REPLAY_WHATIF_H
#define DTP_TRACES_REPLAY_WHATIF_H

#include "hw/cluster.h"
#include "traces/replay/match.h"

struct dtp_whatif {
    const struct dtp_cluster *from, *to; /* the trace's, and the one instead; NULL: as measured */
    bool same_network;                   /* only the GPU is another */
    int times_ranks;                     /* 0, 1: as measured */
    const char *removed; /* kernels and collectives with this in their name take no time; or NULL */
    const char *fused;   /* neighbours with this text run as the longest of them */
};

/* The GPU's usual machine by the name in a trace ("NVIDIA H200", "Tesla V100-SXM2-16GB").
 * DTP_EUNSUPPORTED: no known GPU in it. */
enum dtp_status dtp_whatif_machine(struct dtp_arena *a, const char *device, struct dtp_cluster *out,
                                   struct dtp_err *err);
/* Returns the time of a kernel that took dur_s. */
double dtp_whatif_kernel_s(const struct dtp_whatif *w, const char *name, double dur_s);
double dtp_whatif_copy_s(const struct dtp_whatif *w, double dur_s);
/* Time of a transfer that took transfer_s. stride: between the ranks of its group; world: ranks of
 * the job. */
struct dtp_whatif_transfer {
    enum dtp_comm_op op;
    int group_size, stride, world;
    uint64_t bytes; /* in, per rank; 0: unknown */
    double transfer_s;
};
double dtp_whatif_transfer_s(const struct dtp_whatif *w, const struct dtp_whatif_transfer *x);
/* The part of its time on a cluster that does not depend on bandwidth. */
double dtp_whatif_latency_s(const struct dtp_cluster *c, const struct dtp_whatif_transfer *x);

#endif
