/* collective_internal.h: what hw/collective_cost.c and hw/nccl.c share. */
#ifndef DTP_HW_COLLECTIVE_INTERNAL_H
#define DTP_HW_COLLECTIVE_INTERNAL_H

#include "hw/nccl.h"

/* Fills in latency and time per byte of every way to run a collective: NCCL's algorithms, or one for grouped sends. */
void dtp_coll_terms(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *s, struct dtp_nccl_terms *out);

static inline double dtp_lesser(double x, double y) {
    return x < y ? x : y;
}
static inline double dtp_greater(double x, double y) {
    return x > y ? x : y;
}

#endif
