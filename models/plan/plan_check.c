#include "models/plan/plan.h"

#include <stdint.h>
#include <string.h>

#include "models/schedule/schedule.h"

/* Each check_* returns the first reason of its kind, or DTP_LEGAL. */

static enum dtp_reason check_degrees(const struct dtp_problem *q, const struct dtp_plan *p) {
    const struct dtp_framework *f = q->framework;
    if (p->tp < 1 || p->pp < 1 || p->dp < 1 || p->cp < 1 || p->ep < 1 || p->vpp < 1)
        return DTP_WHY_GPUS;
    int64_t model_ranks = (int64_t)p->tp * p->cp; /* each factor <= 2^31: no overflow below */
    if (model_ranks > q->gpus || model_ranks * p->pp > q->gpus ||
        model_ranks * p->pp * p->dp != q->gpus)
        return DTP_WHY_GPUS;
    if (p->tp > DTP_MAX_DEGREE || p->cp > DTP_MAX_DEGREE || p->ep > DTP_MAX_DEGREE ||
        p->etp > DTP_MAX_DEGREE || p->microbatch_size > DTP_MAX_MICROBATCH)
        return DTP_WHY_SIZE;
    if (f->can.max_tp > 0 && p->tp > f->can.max_tp)
        return DTP_WHY_TP;
    if (f->can.max_pp > 0 && p->pp > f->can.max_pp)
        return DTP_WHY_PP;
    if (p->cp > 1 && !f->can.has_cp)
        return DTP_WHY_CP;
    return DTP_LEGAL;
}

/* Convolutions: one kind of layer list, never cut. */
static enum dtp_reason check_convolutions(const struct dtp_plan *p) {
    if (p->tp > 1)
        return DTP_WHY_TP;
    if (p->pp > 1 || p->vpp > 1)
        return DTP_WHY_PP;
    if (p->cp > 1)
        return DTP_WHY_CP;
    if (p->ep > 1)
        return DTP_WHY_EP;
    if (p->sequence_parallel)
        return DTP_WHY_SP_TP1;
    if (p->recompute != DTP_RECOMPUTE_NONE || p->recompute_layers != 0)
        return DTP_WHY_RECOMPUTE;
    return DTP_LEGAL;
}

/* Checks all that tp and cp divide. */
static enum dtp_reason check_shapes(const struct dtp_problem *q, const struct dtp_plan *p) {
    const struct dtp_model *m = q->model;
    if (p->sequence_parallel && p->tp == 1)
        return DTP_WHY_SP_TP1;
    if (p->sequence_parallel && !q->framework->can.has_sequence_parallel)
        return DTP_WHY_SP;
    if (p->tp > 1) {
        if (m->heads % p->tp != 0)
            return DTP_WHY_HEADS;
        if (m->kv_heads > 0 && m->kv_heads % p->tp != 0 && p->tp % m->kv_heads != 0)
            return DTP_WHY_KV_HEADS;
        if (m->ffn % p->tp != 0 || (int64_t)m->moe.ffn * m->moe.shared_experts % p->tp != 0)
            return DTP_WHY_FFN;
        if (m->hidden % p->tp != 0)
            return DTP_WHY_HIDDEN;
    }
    if (p->cp > 1 && q->seq % (2 * (int64_t)p->cp) != 0)
        return DTP_WHY_SEQ_CP;
    if (p->sequence_parallel && q->seq % ((int64_t)p->tp * p->cp) != 0)
        return DTP_WHY_SEQ_TP;
    return DTP_LEGAL;
}

static enum dtp_reason check_batch(const struct dtp_plan *p) {
    if (p->microbatch_size < 1 || p->global_batch_size < 1)
        return DTP_WHY_BATCH;
    int64_t round = (int64_t)p->microbatch_size * p->dp;
    if (round > p->global_batch_size || p->global_batch_size % round != 0)
        return DTP_WHY_BATCH;
    return p->global_batch_size / round > DTP_MAX_MICROBATCHES ? DTP_WHY_MICROBATCHES : DTP_LEGAL;
}

static bool has_etp(const struct dtp_framework *f, const struct dtp_plan *p) {
    return f->can.expert_tp == DTP_EXPERT_TP_ANY ||
           (f->can.expert_tp == DTP_EXPERT_TP_ONE && p->etp == 1);
}

/* A forward and a backward of different microbatches run side by side (Megatron-Core,
 * combined_1f1b.py; transformer_config.py for what it refuses). */
static bool may_hide(const struct dtp_framework *f, const struct dtp_plan *p) {
    return f->can.has_ep_overlap && (p->pp == 1 || p->vpp > 1) &&
           dtp_plan_num_microbatches(p) > 1 && p->recompute != DTP_RECOMPUTE_FULL &&
           !(dtp_plan_modules(p) & DTP_BIT_MOE);
}

/* These rules are those of Megatron-Core's initialize_model_parallel() and MoELayer.forward(). */
static enum dtp_reason check_experts(const struct dtp_problem *q, const struct dtp_plan *p) {
    int experts = q->model->moe.experts;
    int64_t etp = dtp_plan_etp(p), ranks = (int64_t)p->tp * p->cp * p->dp;
    if (etp != p->tp && (experts == 0 || !has_etp(q->framework, p) || ranks % etp != 0))
        return DTP_WHY_ETP;
    if (experts > 0 && q->model->moe.ffn % etp != 0)
        return etp == p->tp ? DTP_WHY_FFN : DTP_WHY_ETP;
    if (experts > 0 && p->tp > 1 && q->framework->can.has_sequence_parallel &&
        !p->sequence_parallel)
        return DTP_WHY_EXPERTS_SP;
    if (experts == 0 && (p->ep_overlap > 0 || p->ep_per_node > 0))
        return DTP_WHY_EP_DENSE;
    if (p->ep == 1)
        return DTP_LEGAL;
    if (!q->framework->can.has_ep || experts == 0 || experts % p->ep != 0)
        return DTP_WHY_EP;
    if (q->framework->can.max_ep > 0 && p->ep > q->framework->can.max_ep)
        return DTP_WHY_EP_HERE;
    if (ranks / etp % p->ep != 0)
        return DTP_WHY_EP;
    if (p->ep_per_node > 0 && !q->framework->can.has_ep_per_node)
        return DTP_WHY_EP_PER_NODE;
    return dtp_plan_hides_experts(p) && !may_hide(q->framework, p) ? DTP_WHY_EP_OVERLAP : DTP_LEGAL;
}

/* Groups inside dp x cp: state is divided in a group, gradients are summed over all. */
static enum dtp_reason check_zero_group(const struct dtp_framework *f, const struct dtp_plan *p) {
    if (p->zero_group == 0)
        return DTP_LEGAL;
    bool divides = f->kernels.ops != DTP_OPS_OWN && p->zero_group > 1 &&
                   (int64_t)p->dp * p->cp % p->zero_group == 0;
    bool stage =
        p->zero_stage == 1 || p->zero_stage == 2 || (p->zero_stage == 3 && f->can.hybrid_shard);
    /* torchtitan shards over dp_shard x cp: a group holds whole context-parallel groups */
    divides &= p->zero_stage < 3 || p->zero_group % p->cp == 0;
    return divides && stage && p->ep == 1 && dtp_plan_etp(p) == p->tp ? DTP_LEGAL
                                                                      : DTP_WHY_ZERO_GROUP;
}

static enum dtp_reason check_zero(const struct dtp_framework *f, const struct dtp_plan *p) {
    enum dtp_reason group = check_zero_group(f, p);
    if (group != DTP_LEGAL)
        return group;
    if (p->zero_stage < 0 || p->zero_stage > 3 || !(f->can.zero_stages >> p->zero_stage & 1))
        return DTP_WHY_ZERO;
    if (p->zero_stage == 0)
        return DTP_LEGAL;
    bool always =
        !(f->can.zero_stages & 1); /* such as FSDP: it wraps the model of a single rank, too */
    if ((int64_t)p->dp * p->cp < 2 && !always && p->offload != DTP_OFFLOAD_PARAMETERS)
        return DTP_WHY_ZERO_DP1;
    if (p->pp > 1 && !(f->can.zero_stages_pp >> p->zero_stage & 1))
        return DTP_WHY_ZERO_PP;
    if (p->tp > 1 && !(f->can.zero_stages_tp >> p->zero_stage & 1))
        return DTP_WHY_ZERO_TP;
    return DTP_LEGAL;
}

/* The kind's own conditions (dtp_schedule_applies), each with its reason. The microbatch count is
 * whole by now. */
static enum dtp_reason check_schedule(const struct dtp_plan *p) {
    if (p->schedule < 0 || p->schedule >= DTP_NSCHEDULES)
        return DTP_WHY_SCHEDULE;
    if (p->pp == 1)
        return p->vpp > 1                             ? DTP_WHY_VPP
               : p->schedule != dtp_schedule_usual(1) ? DTP_WHY_PP1
                                                      : DTP_LEGAL;
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[p->schedule];
    if (k->chunked != (p->vpp > 1) || p->vpp > DTP_SCHEDULE_MAX_VPP)
        return DTP_WHY_VPP;
    if (k->most_vpp > 0 && p->vpp > k->most_vpp)
        return DTP_WHY_VPP;
    if (k->whole_groups && dtp_plan_num_microbatches(p) % p->pp != 0)
        return DTP_WHY_INTERLEAVE;
    if (k->fills_twice && dtp_plan_num_microbatches(p) < 2 * p->pp - 1)
        return DTP_WHY_FEW_MICROBATCHES;
    return DTP_LEGAL;
}

/* Whether stages are as even as possible except the last, if layers can be given stage by stage. */
static bool leaves_layers(const struct dtp_problem *q, const struct dtp_plan *p, int n) {
    return p->last_stage_less > 0 && n > 1 && n <= DTP_MAX_STAGES &&
           dtp_framework_takes_layers(q->framework) && !p->layers_per_stage.at &&
           q->model->mtp_layers == 0 && p->last_stage_less < q->model->layers / n;
}

static enum dtp_reason check_stages(const struct dtp_problem *q, const struct dtp_plan *p) {
    int64_t n = (int64_t)p->pp * p->vpp;
    int layers = q->model->layers;
    bool uneven = q->framework->can.uneven_stages;
    bool uneven_here = p->vpp > 1 ? q->framework->can.uneven_chunks : uneven;
    if (p->account_for_ends) {
        bool divides = p->pp > 1 && n <= DTP_MAX_STAGES && (layers + 2) % n == 0;
        bool has = q->framework->can.accounts_for_ends && !p->layers_per_stage.at &&
                   p->last_stage_less == 0;
        return has && divides ? DTP_LEGAL : DTP_WHY_ENDS;
    }
    if (n > layers)
        return DTP_WHY_LAYERS;
    if (p->last_stage_less != 0)
        return leaves_layers(q, p, (int)n) ? DTP_LEGAL : DTP_WHY_LAST_LESS;
    if (n > DTP_MAX_STAGES)
        return DTP_WHY_PP;
    if (!dtp_framework_reaches_last(q->framework, q->model, p->pp))
        return DTP_WHY_LAST_STAGE;
    if (!p->layers_per_stage.at)
        return (layers % n != 0 || (n > 1 && q->model->mtp_layers > 0)) && !uneven_here
                   ? DTP_WHY_UNEVEN
                   : DTP_LEGAL;
    if (p->layers_per_stage.n != (size_t)n)
        return DTP_WHY_LAYER_SUM;
    int64_t sum = 0;
    bool equal = true;
    for (size_t i = 0; i < p->layers_per_stage.n; i++) {
        bool may_be_none = q->framework->quirks.cut_by_cost.stages_by_cost ||
                           (i + 1 == (size_t)n && q->model->mtp_layers > 0);
        if (p->layers_per_stage.at[i] < (may_be_none ? 0 : 1))
            return DTP_WHY_LAYER_SUM;
        sum += p->layers_per_stage.at[i];
        equal &= p->layers_per_stage.at[i] == p->layers_per_stage.at[0];
    }
    if (sum != layers)
        return DTP_WHY_LAYER_SUM;
    return !equal && !uneven ? DTP_WHY_UNEVEN : DTP_LEGAL;
}

/* PyTorch's selective checkpointing gives what it kept to one backward only ("you are only allowed to backward
 * once", pytorch/pytorch#142862): a split backward needs it twice (areal-project/AReaL#916 omits it with ZB-V). */
static bool asks_twice(const struct dtp_framework *f, const struct dtp_plan *p) {
    return f->kernels.selective_alternate_products && p->recompute == DTP_RECOMPUTE_SELECTIVE &&
           p->pp > 1 && dtp_schedule_kinds[p->schedule].split_backward;
}

/* Megatron-Core, transformer_config.py: norms and activations want their FP8 scale of the forward. */
static bool has_modules(const struct dtp_problem *q, const struct dtp_plan *p) {
    int early = DTP_BIT_LAYERNORM | DTP_BIT_MOE_ACT;
    bool scale_gone = dtp_dtype_narrow(p->dtype) &&
                      q->framework->kernels.fp8_recipe == DTP_FP8_DELAYED &&
                      (p->recompute_modules & early) != 0;
    int has = q->framework->can.recompute_modules & dtp_model_modules(q->model);
    return p->recompute == DTP_RECOMPUTE_SELECTIVE && (p->recompute_modules & ~has) == 0 &&
           !scale_gone;
}

static enum dtp_reason check_recompute(const struct dtp_problem *q, const struct dtp_plan *p) {
    if (!((unsigned)q->framework->can.recompute_modes >> (unsigned)p->recompute & 1U) ||
        asks_twice(q->framework, p))
        return DTP_WHY_RECOMPUTE;
    if (p->recompute_modules != 0 && !has_modules(q, p))
        return DTP_WHY_MODULES;
    if (p->recompute_layers == 0)
        return DTP_LEGAL;
    if (p->recompute_layers < 0 || p->recompute != DTP_RECOMPUTE_FULL)
        return DTP_WHY_RECOMPUTE;
    int most = dtp_plan_most_layers(p, q->model);
    return dtp_framework_recomputes(q->framework, most, p->recompute_layers) ? DTP_LEGAL
                                                                             : DTP_WHY_RECOMPUTE;
}

static enum dtp_reason check_dtype(const struct dtp_problem *q, const struct dtp_plan *p) {
    const struct dtp_gpu *g = &q->cluster->gpu;
    bool known = (int)p->dtype >= 0 && p->dtype < DTP_NDTYPES;
    if (!known || g->peak_flops_per_s[p->dtype] <= 0 || g->gemm[p->dtype].sm_flops_per_s <= 0)
        return DTP_WHY_DTYPE;
    return q->framework->can.dtypes >> p->dtype & 1 ? DTP_LEGAL : DTP_WHY_DTYPE_HERE;
}

double dtp_plan_offloaded_bytes(const struct dtp_problem *q, const struct dtp_plan *p) {
    const struct dtp_framework *f = q->framework;
    struct dtp_param_counts count;
    if (p->offload == DTP_OFFLOAD_NONE)
        return 0;
    dtp_model_params(q->model, q->model->vocab, &count);
    double per_parameter_bytes = f->keeps.optimizer_bytes + 4; /* and fp32 gradients */
    if (p->offload == DTP_OFFLOAD_PARAMETERS)
        per_parameter_bytes += f->keeps.weight_bytes;
    double ranks = (double)p->tp * p->pp;
    if (p->zero_stage > 0)
        ranks *= p->zero_group > 0 ? p->zero_group : (double)p->dp * p->cp;
    int node = q->cluster->node.gpus, on_node = node < q->gpus ? node : q->gpus;
    return (double)count.total * per_parameter_bytes / ranks * on_node;
}

/* The node must hold what its GPUs put there. */
static enum dtp_reason check_offload(const struct dtp_problem *q, const struct dtp_plan *p) {
    if (p->offload == DTP_OFFLOAD_NONE)
        return DTP_LEGAL;
    const struct dtp_node *node = &q->cluster->node;
    if (!q->framework->can.offload)
        return DTP_WHY_OFFLOAD;
    bool whole = p->zero_stage == 0 && (int64_t)p->dp * p->cp > 1; /* each rank updates all of it */
    if (whole || (p->offload == DTP_OFFLOAD_PARAMETERS && p->zero_stage < 3))
        return DTP_WHY_OFFLOAD_ZERO;
    double room_bytes =
        p->offload_to == DTP_OFFLOAD_NVME ? node->nvme_bytes : (double)node->host_memory_bytes;
    return dtp_plan_offloaded_bytes(q, p) > room_bytes ? DTP_WHY_OFFLOAD_ROOM : DTP_LEGAL;
}

bool dtp_framework_has_schedule(const struct dtp_framework *f, int schedule) {
    for (const char *const *known = f->can.schedules; known && *known; known++)
        if (strcmp(*known, dtp_schedule_names[schedule]) == 0)
            return true;
    return false;
}

enum dtp_reason dtp_plan_check(const struct dtp_problem *q, const struct dtp_plan *p) {
    if (q->model->moe.experts > 0 && !q->framework->can.has_ep)
        return DTP_WHY_EXPERTS;
    enum dtp_reason why = check_degrees(q, p);
    if (why == DTP_LEGAL)
        why = q->model->nconvs > 0 ? check_convolutions(p) : check_shapes(q, p);
    if (why == DTP_LEGAL)
        why = check_batch(p);
    if (why == DTP_LEGAL)
        why = check_experts(q, p);
    if (why == DTP_LEGAL)
        why = check_zero(q->framework, p);
    if (why == DTP_LEGAL)
        why = check_schedule(p);
    if (why == DTP_LEGAL && q->model->nconvs == 0)
        why = check_stages(q, p);
    if (why == DTP_LEGAL)
        why = check_recompute(q, p);
    if (why == DTP_LEGAL)
        why = check_dtype(q, p);
    if (why == DTP_LEGAL)
        why = p->pp == 1 || dtp_framework_has_schedule(q->framework, p->schedule)
                  ? DTP_LEGAL
                  : DTP_WHY_SCHEDULE;
    if (why == DTP_LEGAL)
        why = check_offload(q, p);
    return why;
}
