/* nccl.h: NCCL's tuning model: which algorithm and protocol it takes for a message, and its estimate.
 *
 * NCCL times every (algorithm, protocol) as latency + bytes / bandwidth and takes the least:
 *     ring   latency = base + (steps - crossings) x intra + crossings x net,  steps 2(n-1) or n-1,
 *            bandwidth = W n / steps
 *     tree   latency = base + 2 ((p-1) intra + floor(log2 N) net),            bandwidth = 0.46 W
 *     NVLS   latency = in-switch,    bandwidth from the switch;  NVLS tree between nodes
 * with W the bandwidth of all channels, cut by protocol: LL to half or its cap, LL128 to 0.92.
 * Constants: hw/nccl/VERSION.json (src/graph/tuning.cc). Its estimates are within 10 % from 256 MB up
 * and 1.5 to 3 times too fast below 16 MB, so that this module gives the choice and the shape:
 * dtp_nccl_terms() gives the two terms of each algorithm (latency of its fastest protocol, seconds
 * per byte of its widest) that hw/collective_cost.c scales with measured curves. One correction for all
 * machines does not hold below 16 MB (tried; 20 to 50 % off on machines held out): it is for what was
 * never measured.
 */
#ifndef DTP_HW_NCCL_H
#define DTP_HW_NCCL_H

#include "hw/collective.h"

enum dtp_proto { DTP_PROTO_LL, DTP_PROTO_LL128, DTP_PROTO_SIMPLE, DTP_NPROTOS };
extern const char *const dtp_proto_names[];

enum dtp_nccl_algo {
    DTP_NCCL_TREE, /* a double binary tree */
    DTP_NCCL_RING,
    DTP_NCCL_NVLS,
    DTP_NCCL_NVLS_TREE,
    DTP_NNCCL_ALGOS
};
enum dtp_nccl_arch {
    DTP_NCCL_VOLTA,
    DTP_NCCL_AMPERE,
    DTP_NCCL_HOPPER,
    DTP_NCCL_BLACKWELL,
    DTP_NNCCL_ARCHS
};
#define DTP_NCCL_TREE_SIZES 23 /* correction of tree at 64 B x 2^i */

/* t = latency x lat + mixed x sqrt(lat x g x bytes) + bandwidth x g x bytes, least over the
 * algorithms: three factors for all measured sweeps of a class (tests/bench/sweeps.h). */
struct dtp_nccl_correction {
    double latency, mixed, bandwidth, mean_error;
};
enum dtp_correction {
    DTP_CORRECTION_NODE,      /* inside a node */
    DTP_CORRECTION_FABRIC,    /* InfiniBand, RoCE, Omni-Path */
    DTP_CORRECTION_LIBFABRIC, /* clusters with simple_only */
    DTP_CORRECTION_EXCHANGE,  /* all_to_all over a fabric: a group of sends */
    DTP_NCORRECTIONS
};

struct dtp_nccl {
    const char *version;
    double base_s[DTP_NNCCL_ALGOS][DTP_NPROTOS];
    double nvlink_s[DTP_NNCCL_ALGOS][DTP_NPROTOS], pci_s[DTP_NNCCL_ALGOS][DTP_NPROTOS],
        net_s[DTP_NNCCL_ALGOS][DTP_NPROTOS];
    /* by architecture and by 1, 2, 3 or more nodes */
    double ll_max_bytes_per_s[DTP_NNCCL_ARCHS][3], ring_ll128_bytes_per_s[DTP_NNCCL_ARCHS][3],
        tree_ll128_bytes_per_s[DTP_NNCCL_ARCHS][3], tree_simple_bytes_per_s[DTP_NNCCL_ARCHS][3];
    double nvls_efficiency[DTP_NNCCL_ARCHS], nvls_share; /* the share of it that is achieved */
    double nvlink_bytes_per_s[DTP_NNCCL_ARCHS];          /* what NCCL counts for one NVLink */
    int channels[DTP_NNCCL_ARCHS];                       /* on an 8-GPU NVLink node */
    int nvls_min_gpus[DTP_NNCCL_ARCHS]; /* fewest per node for the in-switch sum; 0: never */
    double net_overhead_s;
    double tree_correction[DTP_NPROTOS][DTP_NCCL_TREE_SIZES];
    double plateau[2]; /* latency factor of ring + Simple between nodes: Volta, later */
    struct dtp_nccl_correction correction[DTP_NCORRECTIONS];
};

/* The constants of hw/nccl/VERSION.json; DTP_EINPUT names the key that is wrong. */
enum dtp_status dtp_nccl_load(struct dtp_arena *a, const char *version, const struct dtp_nccl **out,
                              struct dtp_err *err);

struct dtp_nccl_choice {
    enum dtp_nccl_algo algo;
    enum dtp_proto proto;
    int channels;
    double time_s; /* NCCL's own estimate, uncorrected */
};
/* False when the collective is not one that NCCL tunes (send_recv, all_to_all). */
bool dtp_nccl_choose(const struct dtp_cluster *c, enum dtp_collective kind,
                     const struct dtp_group_shape *shape, double bytes,
                     struct dtp_nccl_choice *out);

struct dtp_nccl_terms {
    int n;
    struct {
        enum dtp_nccl_algo algo;
        double lat_s, s_per_byte;
    } at[DTP_NNCCL_ALGOS];
};
/* The algorithms that NCCL allows here. */
void dtp_nccl_terms(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *shape, struct dtp_nccl_terms *out);

/* The factors for a group: of NCCL's algorithms, or 1, 0, 1 for what it does not tune. */
const struct dtp_nccl_correction *dtp_nccl_correction_for(const struct dtp_cluster *c,
                                                          enum dtp_collective kind, int nodes,
                                                          bool simple_only);

/* Channels of a collective of the group: it keeps so many thread blocks, each on a separate SM, on every
 * GPU. Through network cards that is two for each card of the group, four where one ring cannot fill it, and 16
 * at most (ncclTopoDupChannels() in search.cc and ncclTopoPostset() in connect.cc: "4 compute channels per search
 * channel to reach peak BW on <8 PPN"). */
int dtp_nccl_channels(const struct dtp_cluster *c, const struct dtp_group_shape *shape);

/* Achieved bandwidth of a ring of this shape: the NVLinks inside, the group's share of the NICs. */
double dtp_coll_ring_bytes_per_s(const struct dtp_cluster *c, const struct dtp_group_shape *shape);

#endif
