/* cost_private.h: private to cost*.c: the memo, and the parts that stages and BOUND are made of. */
#ifndef DTP_MODELS_COST_PRIVATE_H
#define DTP_MODELS_COST_PRIVATE_H

#include "models/cost/cost.h"
#include "models/evaluate/evaluate.h"
#include "models/cost/memo.h"
#include "models/plan/stage.h"

struct dtp_cost_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_memo kernels, layers, tails, transfers;
    struct dtp_arena *scratch;
    struct dtp_ops ops; /* scratch too */
    struct dtp_param_counts params;
    int kinds[DTP_NLAYER_KINDS]; /* of the whole model */
    double forward_flops;
    bool layers_vary; /* as in framework.h */
};

/* Phases of struct dtp_layer_costs, in its order. */
enum { PHASE_F, PHASE_I, PHASE_W, PHASE_R };

/* Groups of data parallelism. */
struct replica_shapes {
    struct dtp_group_shape all[2]; /* of dense parameters, of experts */
    struct dtp_group_shape tp, zero, replica;
};
struct replica_shapes dtp_replica_shapes(const struct dtp_problem *problem,
                                         const struct dtp_placement *p);

/* Gradient reduction, gather and unshard of a stage: in units of one bucket, or one layer with ZeRO-3. */
void dtp_cost_data_parallel(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                            const struct replica_shapes *shape, int vs, struct dtp_stage_cost *out);
/* One microbatch from pipeline stage `from` to `to`. */
struct dtp_comm dtp_cost_transfer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                  const struct dtp_placement *placement,
                                  const struct dtp_group_shape *tp_shape, int from, int to);
struct dtp_comm dtp_cost_embedding_all_reduce(const struct dtp_problem *problem,
                                              const struct dtp_plan *plan,
                                              const struct dtp_placement *placement);
/* The gradient norm, one number summed over everything, and the check of the barrier that ends a step. */
struct dtp_comm dtp_cost_norm_all_reduce(const struct dtp_problem *problem,
                                         const struct dtp_plan *plan);
/* Parameters of a stage that one rank updates. */
double dtp_cost_optimizer_params(const struct dtp_plan *plan, const struct dtp_stage *stage);
/* On the GPU; what is offloaded is updated on the host. */
double dtp_cost_optimizer_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                            double params);

#endif
