/* placement.h: which GPU a rank is, and which ranks form each group.
 *
 * Ranks are numbered with the axes innermost first. Megatron's order, tp-cp-dp-pp:
 *     rank = t + TP (c + CP (d + DP p))
 * and GPU = rank (rank order), node = GPU / gpus per node. An order is data: a list of axes. Expert
 * groups divide the dp x cp axis: ep innermost of it (Megatron-core parallel_state). With an expert tensor
 * parallel degree etp other than tp they divide the ranks of a stage independently of tp, cp and dp:
 *     rank = te + ETP (e + EP (de + EDP p)),  ETP EP EDP = TP CP DP  ("folding", Liu 2025, section 3.2)
 * which needs pp outermost, so that both orders have the same stages.
 * All groups are arithmetic: first + i x stride, i < size; (dp x cp) is one such axis when cp and dp
 * are neighbours in the order, which dtp_placement_init() checks.
 */
#ifndef DTP_HW_PLACEMENT_H
#define DTP_HW_PLACEMENT_H

#include "hw/cluster.h"

enum dtp_axis {
    DTP_AXIS_TP,
    DTP_AXIS_CP,
    DTP_AXIS_DP,
    DTP_AXIS_PP,
    DTP_AXIS_DP_CP,   /* gradient reduction and ZeRO */
    DTP_AXIS_EP,      /* experts */
    DTP_AXIS_ETP,     /* parts of one expert */
    DTP_AXIS_EDP,     /* replicas of one expert */
    DTP_AXIS_ZERO,    /* ranks that share optimizer state: the innermost zero_group of dp x cp */
    DTP_AXIS_REPLICA, /* ranks that hold the same shard of it, one of each zero_group */
    DTP_NAXES
};

struct dtp_group {
    int first, stride, size;
};

struct dtp_sizes {
    int tp, cp, dp, pp, ep;
    int etp; /* 0: tp */
};

struct dtp_placement {
    int tp, cp, dp, pp, ep, etp;
    int ngpus, gpus_per_node;
    int stride[4];  /* [tp, cp, dp, pp] */
    int zero_group; /* set by the caller; 0: all of dp x cp */
};

/* order: "tp-cp-dp-pp" and its permutations. */
enum dtp_status dtp_placement_init(struct dtp_placement *out, const struct dtp_cluster *c,
                                   const struct dtp_sizes *sizes, const char *order,
                                   struct dtp_err *err);
int dtp_placement_rank(const struct dtp_placement *p, int t, int c, int d, int s);
void dtp_placement_coords(const struct dtp_placement *p, int rank, int *t, int *c, int *d, int *s);
struct dtp_group dtp_placement_group(const struct dtp_placement *p, enum dtp_axis axis, int rank);

/* What the cost of a collective depends on. */
struct dtp_group_shape {
    int size;
    int nodes;    /* nodes the group touches */
    int per_node; /* its GPUs on the node that holds most */
    int nics;     /* NICs that its GPUs on that node use; 0: the group is inside one node */
    int siblings; /* groups of the same axis (and same pp stage) that share its busiest NIC,
                         * itself included; 1 when the group is inside one node */
    int tier;     /* highest fabric tier crossed, -1 inside a node */
};
/* Returns the shape of the group on the axis that the rank is in; an axis of one rank has size 1 and one node. */
struct dtp_group_shape dtp_placement_shape(const struct dtp_placement *p,
                                           const struct dtp_cluster *c, enum dtp_axis axis,
                                           int rank);
/* True when all replicas (t, c, d) of each stage see the same group shapes, the same stage-to-stage routes and the
 * same traffic of others on the links of these, so that one of them stands for all (folding is exact). */
bool dtp_placement_symmetric(const struct dtp_placement *p, const struct dtp_cluster *c);

#endif
