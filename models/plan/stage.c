#include "models/plan/stage.h"

int dtp_stage_layers(const struct dtp_model *m, const struct dtp_plan *plan, int vs) {
    return dtp_plan_layers(plan, m, vs) + (vs + 1 == plan->pp * plan->vpp ? m->mtp_layers : 0);
}

void dtp_stage_count(const struct dtp_model *m, const struct dtp_plan *plan, int vs,
                     int n[DTP_NLAYER_KINDS]) {
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        n[k] = 0;
    if (m->nconvs > 0) {
        n[DTP_LAYER_CONV] = 1;
        return;
    }
    int from, layers = dtp_plan_span(plan, m, vs, &from), last = vs + 1 == plan->pp * plan->vpp;
    dtp_model_count_kinds(m, from, from + layers + (last ? m->mtp_layers : 0), n);
    n[DTP_LAYER_EMBEDDING] = vs == 0;
    n[DTP_LAYER_HEAD] = last;
    n[DTP_LAYER_MTP] = last ? m->mtp_layers : 0;
}

void dtp_stage_of(const struct dtp_model *m, const struct dtp_param_counts *counts,
                  const struct dtp_plan *plan, int vs, struct dtp_stage *out) {
    int of[DTP_NLAYER_KINDS];
    dtp_stage_count(m, plan, vs, of);
    int moe = of[DTP_LAYER_MOE] + of[DTP_LAYER_MOE_WINDOW];
    int n = m->nconvs > 0 ? m->layers : moe + of[DTP_LAYER_DENSE] + of[DTP_LAYER_DENSE_WINDOW];
    *out = (struct dtp_stage){
        .layers = n, .moe_layers = moe, .first = vs == 0, .last = vs == plan->pp * plan->vpp - 1};
    double experts = (double)counts->moe_layer_experts,
           shared = (double)counts->moe_layer - experts;
    double layers = (n - moe) * (double)counts->dense_layer + moe * shared, root = 0;
    if (m->nconvs > 0) {
        root = (double)counts->total;
        layers = 0;
    } else {
        if (out->first)
            root += (double)counts->embedding;
        if (out->last)
            root += (double)counts->final_norm + (double)counts->head;
        /* the copy that computes the logits, or that looks up the next tokens of the prediction after next */
        if (out->last && !out->first && (m->tied_embeddings || m->mtp_layers > 0))
            root += (double)m->vocab * m->hidden;
        root += of[DTP_LAYER_MTP] * (double)counts->mtp;
    }
    out->root_params = root / plan->tp;
    out->dense_params = layers / plan->tp + out->root_params;
    out->expert_params = moe * experts / dtp_plan_expert_ranks(plan);
    double dense_layer = n > moe ? (double)counts->dense_layer / plan->tp : 0;
    double moe_layer = moe > 0 ? shared / plan->tp + experts / dtp_plan_expert_ranks(plan) : 0;
    out->largest_layer_params = dense_layer > moe_layer ? dense_layer : moe_layer;
}
