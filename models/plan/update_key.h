/* update_key.h: all that the end of a step depends on beside the problem: gradients that are reduced, parameters
 * that are updated, offloaded and gathered again.
 *
 * As struct dtp_layer_key is for layers: what computes these costs takes the problem and this key, never the plan.
 */
#ifndef DTP_MODELS_UPDATE_KEY_H
#define DTP_MODELS_UPDATE_KEY_H

#include "models/plan/placed.h"

/* No padding. The members have the plan's names, with defaults resolved. */
struct dtp_update_key {
    const struct dtp_placed *placed; /* from a memo: equal sizes have equal addresses */
    struct dtp_cut cut; /* a memo has none with a list of layers, whose content may be another */
    int replicas;       /* dp x cp */
    int zero_group, zero_stage, sequence_parallel;
    int dp_overlap; /* dtp_framework_dp_overlaps() */
    enum dtp_algo dp_algo;
    enum dtp_offload offload;
    enum dtp_offload_to offload_to;
    enum dtp_dtype dtype;
    int microbatches; /* of a step; 0 where none of them offloads by itself */
};

void dtp_update_key_of(const struct dtp_problem *problem, const struct dtp_plan *plan,
                       const struct dtp_placed *placed, struct dtp_update_key *out);

#endif
