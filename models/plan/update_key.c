#include "models/plan/update_key.h"

#include <assert.h>

enum { ADDRESSES = 2, NUMBERS = 18 };
static_assert(sizeof(struct dtp_update_key) == ADDRESSES * sizeof(void *) + NUMBERS * sizeof(int),
              "padding has no value that a memo could compare");

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
        .sequence_parallel = plan->sequence_parallel && f->kernels.native,
        .dp_overlap = dtp_framework_dp_overlaps(f, plan->dp_overlap, plan->zero_stage),
        .dp_algo = plan->dp_algo,
        .offload = plan->offload,
        .offload_to = plan->offload_to,
        .dtype = plan->dtype,
        .microbatches = each ? dtp_plan_num_microbatches(plan) : 0};
}
