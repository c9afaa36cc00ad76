#include "models/plan/key.h"

#include <assert.h>

enum { SHAPES = 5, LAYER_NUMBERS = 20, UPDATE_ADDRESSES = 2, UPDATE_NUMBERS = 18 };
static_assert(sizeof(struct dtp_layer_key) ==
                  SHAPES * sizeof(struct dtp_group_shape *) + LAYER_NUMBERS * sizeof(int),
              "padding has no value that a memo could compare");

static_assert(sizeof(struct dtp_update_key) ==
                  UPDATE_ADDRESSES * sizeof(void *) + UPDATE_NUMBERS * sizeof(int),
              "padding has no value that a memo could compare");

/* Whether gradients are added up counts; how many times only where ZeRO's copies are shared by the microbatches. */
static int counted_microbatches(const struct dtp_problem *problem, int microbatches) {
    bool all = problem->framework->quirks.zero_pieces.zero_copy_bytes > 0;
    return all || microbatches < 2 ? microbatches : 2;
}

/* Our runtime waits for ZeRO's collectives, which depend on dp; elsewhere dp only gives the microbatches. */
static void add_clock(const struct dtp_problem *problem, const struct dtp_plan *plan,
                      const struct dtp_placed *placed, struct dtp_layer_key *out) {
    out->microbatches = dtp_plan_num_microbatches(plan);
    out->pp = plan->pp;
    out->vpp = plan->vpp;
    out->schedule = plan->schedule;
    if (problem->framework->kernels.ops != DTP_OPS_OWN || plan->zero_stage < 2)
        return;
    out->dp = plan->dp;
    if (placed)
        out->dp_shape = placed->shape[DTP_AXIS_DP_CP];
}

void dtp_layer_key_of(const struct dtp_problem *problem, const struct dtp_plan *plan,
                      const struct dtp_placed *placed, struct dtp_layer_key *out) {
    *out = (struct dtp_layer_key){
        .kind = DTP_NLAYER_KINDS,
        .tp = plan->tp,
        .cp = plan->cp,
        .ep = plan->ep,
        .etp = dtp_plan_etp(plan),
        .microbatch_size = plan->microbatch_size,
        .microbatches = counted_microbatches(problem, dtp_plan_num_microbatches(plan)),
        .zero_stage = plan->zero_stage,
        .sequence_parallel = plan->sequence_parallel,
        .recompute = plan->recompute,
        .recompute_modules = dtp_plan_modules(plan),
        .tp_algo = plan->tp_algo,
        .tp_overlap = plan->tp_overlap < 0 ? problem->framework->wire.tp_overlap : plan->tp_overlap,
        .ep_overlap = dtp_plan_hides_experts(plan),
        .ep_per_node = plan->ep_per_node,
        .dtype = plan->dtype};
    if (placed) {
        out->tp_shape = placed->shape[DTP_AXIS_TP];
        out->cp_shape = placed->shape[DTP_AXIS_CP];
        out->ep_shape = placed->shape[DTP_AXIS_EP];
        out->etp_shape = placed->shape[DTP_AXIS_ETP];
    }
    if (dtp_device_has_clock(&problem->cluster->gpu, plan->dtype))
        add_clock(problem, plan, placed, out);
}

/* A window that holds all keys is none. */
static enum dtp_layer_kind same_kind(const struct dtp_problem *problem, enum dtp_layer_kind kind) {
    if (problem->model->sliding_window < problem->seq)
        return kind;
    return kind == DTP_LAYER_DENSE_WINDOW ? DTP_LAYER_DENSE
           : kind == DTP_LAYER_MOE_WINDOW ? DTP_LAYER_MOE
                                          : kind;
}

void dtp_layer_key_kind(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                        enum dtp_layer_kind kind, struct dtp_layer_key *out) {
    *out = *all;
    out->kind = same_kind(problem, kind);
    out->microbatches = counted_microbatches(problem, all->microbatches);
    out->pp = out->vpp = out->dp = out->schedule = 0;
    out->dp_shape = NULL;
    if (dtp_layer_has_experts(kind))
        return;
    out->ep = out->etp = 1;
    out->ep_overlap = out->ep_per_node = 0;
    out->ep_shape = out->etp_shape = NULL;
}

void dtp_update_key_of(const struct dtp_problem *problem, const struct dtp_plan *plan,
                       const struct dtp_placed *placed, struct dtp_update_key *out) {
    const struct dtp_framework *f = problem->framework;
    bool each = f->quirks.eager_offload.offload_each_microbatch;
    *out = (struct dtp_update_key){
        .placed = placed,
        .cut = dtp_plan_cut(plan),
        .replicas = plan->dp * plan->cp,
        .zero_group = plan->zero_group,
        .zero_stage = plan->zero_stage,
        .sequence_parallel = plan->sequence_parallel && f->kernels.ops == DTP_OPS_OWN,
        .dp_overlap = dtp_framework_dp_overlaps(f, plan->dp_overlap, plan->zero_stage),
        .dp_algo = plan->dp_algo,
        .offload = plan->offload,
        .offload_to = plan->offload_to,
        .dtype = plan->dtype,
        .microbatches = each ? dtp_plan_num_microbatches(plan) : 0};
}
