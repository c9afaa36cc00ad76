/* What BOUND needs: the first rank's tail and the least transfer, memoised. */
#include <math.h>

#include "models/cost/cost_private.h"
#include "models/cost/offload.h"
#include "models/schedule/schedule.h"

struct tail {
    double tail_s, fixed_s, reduce_s;
    int nreduce;
};

static const struct tail *first_rank_tail(struct dtp_cost_memo *memo, const struct dtp_plan *plan) {
    uint64_t key[3] = {
        (uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->ep << 28 |
            (uint64_t)plan->pp << 42 | (uint64_t)plan->zero_stage << 58 |
            (uint64_t)plan->offload << 60 | (uint64_t)plan->offload_to << 62,
        (uint64_t)plan->dp | (uint64_t)plan->vpp << 20 | (uint64_t)(plan->dp_overlap + 1) << 34 |
            (uint64_t)plan->dp_algo << 36 | (uint64_t)plan->schedule << 40 |
            (uint64_t)plan->zero_group << 44 | (uint64_t)plan->account_for_ends << 63,
        (uint64_t)plan->etp | (uint64_t)plan->last_stage_less << 14 |
            (uint64_t)(plan->sequence_parallel && memo->problem->framework->kernels.native)
                << 63}; /* whose norms are summed over tp then */
    const struct tail *known = dtp_memo_find(&memo->tails, key);
    bool even = plan->layers_per_stage.n == 0; /* the key does not hold a list of layers */
    if (known && even)
        return known;
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_framework *f = problem->framework;
    struct tail *out = DTP_NEW(memo->a, struct tail, 1);
    struct dtp_placement placement;
    if (dtp_plan_place(plan, problem->cluster, f, &placement, NULL) != DTP_OK)
        return out;
    struct replica_shapes shape = dtp_replica_shapes(problem, &placement);
    bool overlapped = dtp_framework_dp_overlaps(f, plan->dp_overlap, plan->zero_stage);
    bool overlap = overlapped || plan->zero_stage == 3 ||
                   (plan->zero_stage == 2 && f->wire.reduce_per_microbatch);
    double params = 0, last_unit_s = 0, sum_s = 0, gather_s = 0;
    for (int vs = 0; vs < plan->pp * plan->vpp; vs++) {
        int rank, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        if (rank != 0)
            continue;
        struct dtp_stage_cost cost = {0};
        struct dtp_stage stage;
        dtp_cost_data_parallel(memo, plan, &shape, vs, &cost);
        dtp_stage_of(problem->model, &memo->params, plan, vs, &stage);
        params += dtp_cost_optimizer_params(plan, &stage);
        sum_s += cost.nreduce * cost.reduce.time_s;
        gather_s += cost.nreduce * cost.gather.time_s;
        if (vs == 0)
            last_unit_s = cost.reduce.time_s;
        if (vs == 0 && overlapped && plan->zero_stage < 3) {
            out->nreduce = cost.nreduce;
            out->reduce_s = cost.reduce.time_s;
        }
    }
    out->tail_s = (overlap ? last_unit_s : sum_s) + (f->wire.param_gather_overlap ? 0 : gather_s) +
                  dtp_cost_embedding_all_reduce(problem, plan, &placement).time_s +
                  dtp_cost_norm_all_reduce(problem, plan).time_s +
                  dtp_cost_optimizer_s(problem, plan, params);
    out->fixed_s = dtp_offload_exposed_s(problem, plan, params, INFINITY) + f->host.step_host_s;
    if (even)
        dtp_memo_put(&memo->tails, key, out);
    return out;
}

static const double *least_transfer_s(struct dtp_cost_memo *memo, const struct dtp_plan *plan) {
    uint64_t key[3] = {(uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->pp << 28 |
                           (uint64_t)plan->microbatch_size << 42 |
                           (uint64_t)plan->sequence_parallel << 62,
                       (uint64_t)plan->dp};
    const double *known_s = dtp_memo_find(&memo->transfers, key);
    if (known_s)
        return known_s;
    const struct dtp_problem *problem = memo->problem;
    double *out_s = DTP_NEW(memo->a, double, 1);
    struct dtp_placement placement;
    if (dtp_plan_place(plan, problem->cluster, problem->framework, &placement, NULL) == DTP_OK) {
        struct dtp_group_shape tp =
            dtp_placement_shape(&placement, problem->cluster, DTP_AXIS_TP, 0);
        for (int s = 0; s < plan->pp; s++) {
            int to = (s + 1) % plan->pp;
            double t_s = dtp_cost_transfer(problem, plan, &placement, &tp, s, to).time_s;
            double back_s = dtp_cost_transfer(problem, plan, &placement, &tp, to, s).time_s;
            t_s = t_s < back_s ? t_s : back_s;
            *out_s = s == 0 || t_s < *out_s ? t_s : *out_s;
        }
    }
    dtp_memo_put(&memo->transfers, key, out_s);
    return out_s;
}

void dtp_cost_bound(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                    struct dtp_bound_costs *out) {
    const struct tail *tail = first_rank_tail(memo, plan);
    *out = (struct dtp_bound_costs){.p2p_s = plan->pp > 1 ? *least_transfer_s(memo, plan) : 0,
                                    .fixed_s = tail->fixed_s,
                                    .tail_s = tail->tail_s,
                                    .nreduce = tail->nreduce,
                                    .reduce_s = tail->reduce_s};
}
