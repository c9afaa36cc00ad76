/* coll_parts.h: what the files of the collective module share; not for others. */
#ifndef DTP_HW_COLL_PARTS_H
#define DTP_HW_COLL_PARTS_H

#include "hw/nccl.h"

/* lat and g of every way to run a collective: NCCL's algorithms, or one for a group of sends. */
void dtp_coll_terms(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *s, struct dtp_nccl_terms *out);
/* The closed form of the steps on a regular group, of one algorithm or (AUTO) of the fastest. out has
 * time_s -1 when none applies. */
void dtp_steps_cost(const struct dtp_cluster *c, enum dtp_collective kind, enum dtp_algo algo,
                    const struct dtp_group_shape *s, double bytes, struct dtp_coll_cost *out);

static inline double dtp_lesser(double x, double y) {
    return x < y ? x : y;
}
static inline double dtp_greater(double x, double y) {
    return x > y ? x : y;
}
/* Achieved, one direction of one GPU. */
static inline double dtp_port_bytes_per_s(const struct dtp_cluster *c) {
    return c->node.gpu_link_bytes_per_s * c->node.gpu_link_efficiency;
}

#endif
