/* offload.h: what it costs a step to keep the optimizer state, or the weights too, outside the GPU.
 *
 * ZeRO-Offload (Ren 2021, section 4): gradients go down over PCIe, Adam runs on the host, weights come back;
 * the node's host memory and its links to the GPUs are shared by all its ranks. ZeRO-Infinity (Rajbhandari
 * 2021, section 6): state on NVMe streams through the host while Adam runs; weights of a rank's shard come up
 * before each gather. What stays off the GPU is memory.c's business, whether it fits plan_check.c's.
 */
#ifndef DTP_MODELS_OFFLOAD_H
#define DTP_MODELS_OFFLOAD_H

#include "models/evaluate/evaluate.h"

/* Seconds of one rank. */
struct dtp_offload_cost {
    double down_s;   /* its gradients to the host, once */
    double update_s; /* Adam on the host; its state from and to NVMe meanwhile */
    double up_s;     /* its weights back */
};

/* params: that a rank updates. All zero without offload. */
struct dtp_offload_cost dtp_offload_cost(const struct dtp_problem *problem,
                                         const struct dtp_plan *plan, double params);
/* What a step takes more. backward_s: of one microbatch, behind which gradients can leave. */
double dtp_offload_exposed_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                             double params, double backward_s);
/* ZeRO-3 with weights on the host: the shard of so many gathered parameters comes up first. */
double dtp_offload_fetch_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                           double params);

#endif
