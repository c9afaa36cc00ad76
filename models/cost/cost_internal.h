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
    int kinds[DTP_NLAYER_KINDS]; /* of the whole model */
    double forward_flops;
};

/* Phases of struct dtp_layer_costs, in its order. */
enum { PHASE_F, PHASE_I, PHASE_W, PHASE_R };

/* Gradient reduction, gather and unshard of a stage: in units of one bucket, or one layer with ZeRO-3. counts: of
 * the model's parameters. */
void dtp_cost_data_parallel(const struct dtp_problem *problem,
                            const struct dtp_param_counts *counts, const struct dtp_update_key *key,
                            int vs, struct dtp_stage_cost *out);
/* Communication that the ranks of our own runtime do themselves, in order: dp collectives of ZeRO-2 and -3 and the
 * copies of transfers become parts of the phases. */
void dtp_cost_native_phases(const struct dtp_problem *problem, const struct dtp_update_key *key,
                            int microbatch_size, int vs, struct dtp_stage_cost *out);
/* All that transfers between stages depend on. No padding. */
struct dtp_transfer_key {
    const struct dtp_group_shape *tp_shape;
    int tp, cp, pp, microbatch_size, sequence_parallel;
    int stride; /* ranks from a stage to the next */
};
/* One microbatch from pipeline stage `from` to `to`. */
struct dtp_comm dtp_cost_transfer(const struct dtp_problem *problem,
                                  const struct dtp_transfer_key *key, int from, int to);
struct dtp_comm dtp_cost_embedding_all_reduce(const struct dtp_problem *problem,
                                              const struct dtp_update_key *key);
/* The gradient norm, one number summed over everything, and the check of the barrier that ends a step. */
struct dtp_comm dtp_cost_norm_all_reduce(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key);
/* Parameters of a stage that one rank updates. */
double dtp_cost_optimizer_params(const struct dtp_update_key *key, const struct dtp_stage *stage);
/* On the GPU; what is offloaded is updated on the host. */
double dtp_cost_optimizer_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                            double params);

/* What it costs a step to keep the optimizer state, or the weights too, outside the GPU.
 *
 * ZeRO-Offload (Ren 2021, section 4): gradients go down over PCIe, Adam runs on the host, weights come back;
 * the node's host memory and its links to the GPUs are shared by all its ranks. ZeRO-Infinity (Rajbhandari
 * 2021, section 6): state on NVMe streams through the host while Adam runs; weights of a rank's shard come up
 * before each gather. What stays off the GPU is memory.c's business, whether it fits plan_check.c's.
 */
/* Seconds of one rank. */
struct dtp_offload_cost {
    double down_s;   /* its gradients to the host, once */
    double update_s; /* Adam on the host; its state from and to NVMe meanwhile */
    double up_s;     /* its weights back */
};

/* params: that a rank updates. All zero without offload. */
struct dtp_offload_cost dtp_offload_cost(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key, double params);
/* What a step takes more. backward_s: of one microbatch, behind which gradients can leave. */
double dtp_offload_exposed_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                             double params, double backward_s);
/* ZeRO-3 with weights on the host: the shard of so many gathered parameters comes up first. */
double dtp_offload_fetch_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                           double params);

#endif
