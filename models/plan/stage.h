/* stage.h: the part of the model that a virtual pipeline stage holds. */
#ifndef DTP_MODELS_STAGE_H
#define DTP_MODELS_STAGE_H

#include "models/plan/plan.h"

struct dtp_stage {
    int layers, moe_layers;      /* those of multi-token prediction too; of `layers` */
    bool first, last;            /* holds the embedding; the final norm, head and loss */
    double dense_params;         /* on one tp rank: what dp x cp replicates */
    double expert_params;        /* on one tp and ep rank: routed experts */
    double largest_layer_params; /* on one tp and ep rank */
    double root_params;          /* of dense_params, outside the layers: embedding, norm, head */
};

/* Layers of a virtual stage with those of multi-token prediction, which follow the model's on the last one
 * (Megatron-Core: mtp_on_this_rank()). */
int dtp_stage_layers(const struct dtp_model *m, const struct dtp_plan *plan, int vs);
/* How many of each kind virtual stage vs (0 .. pp*vpp-1) holds. */
void dtp_stage_count(const struct dtp_model *m, const struct dtp_plan *plan, int vs,
                     int n[DTP_NLAYER_KINDS]);
/* counts: dtp_model_params() of the model. vs: 0 .. pp*vpp-1. */
void dtp_stage_of(const struct dtp_model *m, const struct dtp_param_counts *counts,
                  const struct dtp_plan *plan, int vs, struct dtp_stage *out);

#endif
