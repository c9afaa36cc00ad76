/* key.h: all that a costed function reads besides the problem.
 *
 * What lists, times or weighs the operations of a layer takes the problem and a struct dtp_layer_key, what costs the
 * end of a step a struct dtp_update_key; neither sees the plan. All plans with the same key get one result from
 * a memo, and the compiler ensures that the function reads nothing else. The members have the names of the plan's,
 * with defaults resolved: 0 overlaps, modules and degrees are gone.
 *
 *     struct dtp_layer_key all, one;
 *     dtp_layer_key_of(problem, plan, placed, &all);             layers of every kind, and the clock they share
 *     dtp_layer_key_kind(problem, &all, DTP_LAYER_DENSE, &one);  one of them at the highest clock
 */
#ifndef DTP_MODELS_KEY_H
#define DTP_MODELS_KEY_H

#include "models/plan/placed.h"

/* Whole numbers and addresses without padding, so that equal keys have equal bytes. Members that do not count are 0.
 * Shapes are those of a struct dtp_placed, which must stay; NULL where nothing is timed, or the plan has no place. */
struct dtp_layer_key {
    const struct dtp_group_shape *tp_shape, *cp_shape, *ep_shape, *etp_shape;
    const struct dtp_group_shape *dp_shape; /* dp x cp, as the last members */
    enum dtp_layer_kind kind;               /* DTP_NLAYER_KINDS: of all kinds */
    int tp, cp, ep, etp;                    /* ep and etp: 1 without experts */
    int microbatch_size;
    int microbatches; /* in a step; 2: two or more, if only that has an effect */
    int zero_stage, sequence_parallel;
    enum dtp_recompute recompute;
    int recompute_modules; /* dtp_plan_modules() */
    enum dtp_algo tp_algo;
    int tp_overlap, ep_overlap, ep_per_node; /* ep_overlap: dtp_plan_hides_experts() */
    enum dtp_dtype dtype;
    /* Only of all kinds, and where products have a clock, on which the bubble and the waits of a step count. */
    int pp, vpp, dp, schedule;
};

/* placed NULL: for what takes no time. */
void dtp_layer_key_of(const struct dtp_problem *problem, const struct dtp_plan *plan,
                      const struct dtp_placed *placed, struct dtp_layer_key *out);
/* all: a key of the same problem. */
void dtp_layer_key_kind(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                        enum dtp_layer_kind kind, struct dtp_layer_key *out);

/* The end of a step: gradients that are reduced, parameters that are updated, offloaded and gathered. No padding. */
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
    int microbatches; /* in a step; 0 if none of them offloads by itself */
};

void dtp_update_key_of(const struct dtp_problem *problem, const struct dtp_plan *plan,
                       const struct dtp_placed *placed, struct dtp_update_key *out);

#endif
