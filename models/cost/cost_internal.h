/* cost_internal.h: private to cost*.c: the memo, and the parts that stages and BOUND are made of. */
#ifndef DTP_MODELS_COST_INTERNAL_H
#define DTP_MODELS_COST_INTERNAL_H

#include "models/cost/cost.h"
#include "models/ops/op.h"
#include "models/plan/key.h"
#include "sim/base/memo.h"

struct dtp_cost_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_placed_memo placed;
    struct dtp_memo kernels, layers, tails, transfers;
    struct dtp_arena *scratch;
    struct dtp_ops ops; /* scratch too */
    struct dtp_param_counts params;
    int kinds[DTP_NLAYER_KINDS]; /* layers of each kind in the model */
    double forward_flops;
};

/* The phases of struct dtp_layer_costs, in its order. */
enum { PHASE_F, PHASE_I, PHASE_W, PHASE_R };

/* Fills in gradient reduction, gather and unshard of a stage, in units of one bucket, or of one layer with ZeRO-3.
 * counts: the parameters of the model. */
void dtp_cost_data_parallel(const struct dtp_problem *problem,
                            const struct dtp_param_counts *counts, const struct dtp_update_key *key,
                            int vs, struct dtp_stage_cost *out);
/* Adds to the phases the communication that ranks of our runtime run themselves, in the order of their actions: dp
 * collectives of ZeRO-2 and -3, and the copies of transfers. */
void dtp_cost_native_phases(const struct dtp_problem *problem, const struct dtp_update_key *key,
                            int microbatch_size, int vs, struct dtp_stage_cost *out);
/* Transfers between stages depend on these members only. The struct has no padding. */
struct dtp_transfer_key {
    const struct dtp_group_shape *tp_shape;
    int tp, cp, pp, microbatch_size, sequence_parallel;
    int stride; /* ranks from a stage to the next */
};
/* Times the transfer of one microbatch from pipeline stage `from` to `to`. */
struct dtp_comm dtp_cost_transfer(const struct dtp_problem *problem,
                                  const struct dtp_transfer_key *key, int from, int to);
struct dtp_comm dtp_cost_embedding_all_reduce(const struct dtp_problem *problem,
                                              const struct dtp_update_key *key);
/* Times the all-reduce of the gradient norm, one number over all ranks, and the barrier check that ends a step. */
struct dtp_comm dtp_cost_norm_all_reduce(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key);
/* Returns how many parameters of a stage one rank updates. */
double dtp_cost_optimizer_params(const struct dtp_update_key *key, const struct dtp_stage *stage);

/* Offloading keeps the optimizer state, or the weights too, outside the GPU and costs each step time.
 *
 * ZeRO-Offload (Ren 2021, section 4): gradients move to the host over PCIe, Adam runs there, weights return;
 * the node's host memory and its links to the GPUs are shared by all its ranks. ZeRO-Infinity (Rajbhandari
 * 2021, section 6): state on NVMe streams through the host while Adam runs; a rank's shard of the weights moves up
 * before each gather. memory.c counts what stays off the GPU, and plan_check.c checks that it fits.
 */
/* Seconds of one rank per step. */
struct dtp_offload_cost {
    double down_s;   /* move its gradients to the host, once */
    double update_s; /* Adam on the host; its state from and to NVMe meanwhile */
    double up_s;     /* move its weights back */
};

/* params: how many a rank updates. All times are zero without offload. */
struct dtp_offload_cost dtp_offload_cost(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key, double params);
/* Returns what offloading adds to a step. backward_s: the backward of a microbatch, which can hide moving gradients. */
double dtp_offload_exposed_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                             double params, double backward_s);
/* Returns the time to move up a rank's shard of `params` gathered parameters (ZeRO-3 with weights on the host). */
double dtp_offload_fetch_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                           double params);

#endif
