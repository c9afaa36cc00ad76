#include "models/memory.h"

#include <string.h>

#include "models/evaluate.h"
#include "models/schedule.h"
#include "models/stage.h"

/* ---- memo -------------------------------------------------------------------------------------- */

/* Activations of one layer of each kind and one microbatch. */
struct activations {
    uint64_t key[2];
    bool known;
    double kept[DTP_NLAYER_KINDS];  /* between forward and backward */
    double whole[DTP_NLAYER_KINDS]; /* while the layer's backward runs */
    double working;                 /* gradients of activations alive in the backward */
};

/* Microbatches in flight per rank and chunk when they are most. */
struct in_flight {
    int schedule, pp, vpp, m;
    const int *peak_chunk; /* [pp * vpp], rank * vpp + chunk; NULL: free */
};

enum { MEMO_SLOTS = 8192 };

struct dtp_memory_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct activations *activations; /* [MEMO_SLOTS], direct-mapped */
    struct in_flight *in_flight;     /* [MEMO_SLOTS], direct-mapped */
    struct dtp_stage_memory *stages; /* [DTP_MAX_STAGES] scratch */
    struct dtp_param_counts params;
    struct dtp_ops ops;
    struct dtp_action *action; /* [nactions] scratch: the order of one rank */
    size_t nactions;
};

struct dtp_memory_memo *dtp_memory_memo_create(struct dtp_arena *a,
                                               const struct dtp_problem *problem) {
    struct dtp_memory_memo *memo = DTP_NEW(a, struct dtp_memory_memo, 1);
    memo->a = a;
    memo->problem = problem;
    memo->activations = DTP_NEW(a, struct activations, MEMO_SLOTS);
    memo->in_flight = DTP_NEW(a, struct in_flight, MEMO_SLOTS);
    memo->stages = DTP_NEW(a, struct dtp_stage_memory, DTP_MAX_STAGES);
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    return memo;
}

static uint64_t mix(uint64_t x) {
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 31;
}

/* ---- activations -------------------------------------------------------------------------------- */

static double element_bytes(const struct dtp_plan *plan) {
    return plan->dtype == DTP_FP32 || plan->dtype == DTP_TF32 ? 4 : 2;
}

/* Input of a layer, all that full recomputation keeps: 2 s b h (Korthikanti 2022, section 5). */
static double layer_input_bytes(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    double tokens = (double)plan->microbatch_size * problem->seq / plan->cp;
    return element_bytes(plan) * tokens * problem->model->hidden /
           (plan->sequence_parallel ? plan->tp : 1);
}

static void layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                              enum dtp_layer_kind kind, struct dtp_ops *ops, double *kept,
                              double *whole) {
    double all = 0, core = 0;
    dtp_ops_layer(problem, plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        all += ops->at[i].saved_bytes;
        core += ops->at[i].core ? ops->at[i].saved_bytes : 0;
    }
    bool layer = kind == DTP_LAYER_DENSE || kind == DTP_LAYER_MOE;
    *whole = all;
    *kept = all;
    if (layer && plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        *kept = all - core;
    if (layer && plan->recompute == DTP_RECOMPUTE_FULL)
        *kept = layer_input_bytes(problem, plan);
}

double dtp_memory_layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                    enum dtp_layer_kind kind) {
    struct dtp_ops ops;
    double kept, whole;
    layer_activations(problem, plan, kind, &ops, &kept, &whole);
    return kept;
}

static const struct activations *activations_of(struct dtp_memory_memo *memo,
                                                const struct dtp_plan *plan) {
    const struct dtp_problem *problem = memo->problem;
    uint64_t key[2] = {(uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->ep << 28 |
                           (uint64_t)plan->microbatch_size << 42 |
                           (uint64_t)plan->sequence_parallel << 62,
                       (uint64_t)plan->recompute | (uint64_t)plan->dtype << 2};
    struct activations *x = &memo->activations[mix(key[0] ^ mix(key[1])) % MEMO_SLOTS];
    if (x->known && x->key[0] == key[0] && x->key[1] == key[1])
        return x;
    memset(x, 0, sizeof *x);
    memcpy(x->key, key, sizeof key);
    x->known = true;
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        bool moe = k == DTP_LAYER_MOE, conv = k == DTP_LAYER_CONV;
        if ((moe && problem->model->moe.experts == 0) || conv != (problem->model->nconvs > 0))
            continue;
        layer_activations(problem, plan, (enum dtp_layer_kind)k, &memo->ops, &x->kept[k],
                          &x->whole[k]);
    }
    /* The gradient of a layer's output and of the widest tensor inside it, once each. */
    const struct dtp_model *m = problem->model;
    double tokens = (double)plan->microbatch_size * problem->seq / plan->cp;
    x->working = m->nconvs > 0
                     ? 0
                     : layer_input_bytes(problem, plan) + element_bytes(plan) * tokens * m->ffn /
                                                              plan->tp * (m->gated_ffn ? 2 : 1);
    return x;
}

/* ---- microbatches in flight --------------------------------------------------------------------- */

static int *count_in_flight(struct dtp_memory_memo *memo, const struct dtp_plan *plan, int m) {
    int *peak_chunk = DTP_NEW(memo->a, int, (size_t)(plan->pp * plan->vpp));
    size_t most = (size_t)dtp_schedule_max_actions(plan->vpp, m);
    if (most > memo->nactions) {
        memo->action = DTP_NEW(memo->a, struct dtp_action, most);
        memo->nactions = most;
    }
    for (int rank = 0; rank < plan->pp; rank++) { /* the order of one rank at a time */
        int n =
            dtp_schedule_kinds[plan->schedule].generate(plan->pp, plan->vpp, m, rank, memo->action);
        uint32_t begin[2] = {0, (uint32_t)n};
        struct dtp_schedule one = {.kind = plan->schedule,
                                   .pp = 1,
                                   .vpp = plan->vpp,
                                   .m = m,
                                   .begin = begin,
                                   .action = memo->action};
        dtp_schedule_in_flight(&one, NULL, NULL, peak_chunk + rank * plan->vpp);
    }
    return peak_chunk;
}

/* Orders are periodic in m with period pp once all ranks are busy: beyond 4 pp the counts either stay or grow
 * by the same amount per period. */
static const int *in_flight_of(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    int m = dtp_plan_num_microbatches(plan), n = plan->pp * plan->vpp;
    uint64_t key = (uint64_t)plan->schedule | (uint64_t)plan->pp << 4 | (uint64_t)plan->vpp << 20 |
                   (uint64_t)m << 36;
    struct in_flight *x = &memo->in_flight[mix(key) % MEMO_SLOTS];
    if (x->peak_chunk && x->schedule == plan->schedule && x->pp == plan->pp &&
        x->vpp == plan->vpp && x->m == m)
        return x->peak_chunk;
    int *peak_chunk;
    int base = 4 * plan->pp + m % plan->pp;
    if (m <= base + plan->pp) {
        peak_chunk = count_in_flight(memo, plan, m);
    } else {
        int *next = count_in_flight(memo, plan, base + plan->pp);
        peak_chunk = count_in_flight(memo, plan, base);
        for (int i = 0; i < n; i++)
            peak_chunk[i] += (next[i] - peak_chunk[i]) * ((m - base) / plan->pp);
    }
    *x = (struct in_flight){plan->schedule, plan->pp, plan->vpp, m, peak_chunk};
    return peak_chunk;
}

/* ---- one stage ----------------------------------------------------------------------------------- */

static uint64_t whole_bytes(double v) {
    return v > 0 ? (uint64_t)(v + 0.5) : 0;
}

/* What the chunks of a rank add up to. */
struct rank_parts {
    double dense, experts, root, largest_layer;
    double activations, whole_layer, logits;
};

static void add_chunk(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                      const struct activations *x, int vs, int in_flight, struct rank_parts *r) {
    const struct dtp_problem *problem = memo->problem;
    struct dtp_stage stage;
    dtp_stage_of(problem->model, &memo->params, plan, vs, &stage);
    r->dense += stage.dense_params;
    r->experts += stage.expert_params;
    r->root += stage.root_params;
    if (stage.largest_layer_params > r->largest_layer)
        r->largest_layer = stage.largest_layer_params;
    int dense = stage.layers - stage.moe_layers;
    double kept = dense * x->kept[DTP_LAYER_DENSE] + stage.moe_layers * x->kept[DTP_LAYER_MOE] +
                  x->kept[DTP_LAYER_CONV];
    if (plan->recompute == DTP_RECOMPUTE_FULL && plan->recompute_layers > 0 &&
        plan->recompute_layers < stage.layers) {
        double share = plan->recompute_layers / (double)stage.layers;
        kept = share * kept + (1 - share) * (dense * x->whole[DTP_LAYER_DENSE] +
                                             stage.moe_layers * x->whole[DTP_LAYER_MOE]);
    }
    if (stage.first)
        kept += x->kept[DTP_LAYER_EMBEDDING];
    if (stage.last)
        kept += x->kept[DTP_LAYER_HEAD];
    r->activations += in_flight * kept;
    if (dense > 0 && x->whole[DTP_LAYER_DENSE] > r->whole_layer)
        r->whole_layer = x->whole[DTP_LAYER_DENSE];
    if (stage.moe_layers > 0 && x->whole[DTP_LAYER_MOE] > r->whole_layer)
        r->whole_layer = x->whole[DTP_LAYER_MOE];
    if (stage.last && problem->model->classes == 0 && problem->model->vocab > 0) {
        double vocab =
            dtp_framework_padded_vocab(problem->framework, problem->model->vocab, plan->tp);
        r->logits = problem->framework->memory.logits_copies_bytes * plan->microbatch_size *
                    problem->seq / plan->cp * vocab / plan->tp;
    }
}

static int num_communicators(const struct dtp_plan *plan) {
    return (plan->tp > 1) + (plan->dp * plan->cp > 1) + (plan->pp > 1) + (plan->cp > 1) +
           (plan->ep > 1);
}

static void fill_stage(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                       const struct activations *x, const struct rank_parts *r,
                       struct dtp_stage_memory *out) {
    const struct dtp_framework_memory *f = &memo->problem->framework->memory;
    double replicas = (double)plan->dp * plan->cp, expert_replicas = replicas / plan->ep;
    double sharded = r->dense / replicas + r->experts / expert_replicas,
           all = r->dense + r->experts;
    double weights = plan->zero_stage >= 3 ? sharded : all;
    double gradients = plan->zero_stage >= 2 ? sharded : all;
    double states = plan->zero_stage >= 1 ? sharded : all;
    double buffers = f->fixed_bytes;
    if (replicas > 1)
        buffers += f->bucket_bytes;
    if (plan->zero_stage >= 2) /* the gradients of one layer before they are reduced */
        buffers += f->gradient_bytes * r->largest_layer;
    if (plan->zero_stage ==
        3) /* layers gathered ahead, the one in use, and what is outside layers */
        buffers +=
            f->weight_bytes *
            ((memo->problem->framework->zero3_prefetch_layers + 1) * r->largest_layer + r->root);
    if (plan->pp > 1)
        buffers += 2 * layer_input_bytes(memo->problem, plan);
    if (plan->offload != DTP_OFFLOAD_NONE)
        states = 0;
    if (plan->offload == DTP_OFFLOAD_PARAMETERS) {
        buffers += 2 * f->weight_bytes * r->largest_layer;
        weights = 0;
    }
    double activations = r->activations + x->working;
    if (plan->recompute == DTP_RECOMPUTE_FULL)
        activations += r->whole_layer;
    else if (plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        activations += r->whole_layer - x->kept[DTP_LAYER_DENSE] > 0
                           ? r->whole_layer - x->kept[DTP_LAYER_DENSE]
                           : 0;
    /* The loss comes before the first layer's backward: the logits meet the activations in flight, the
     * working set of a layer does not. */
    bool at_loss = r->logits > activations - r->activations;
    out->moment = at_loss ? "loss" : "backward";
    out->activations_bytes = whole_bytes(at_loss ? r->activations : activations);
    out->logits_bytes = at_loss ? whole_bytes(r->logits) : 0;
    out->weights_bytes = whole_bytes(weights * f->weight_bytes);
    out->gradients_bytes = whole_bytes(gradients * f->gradient_bytes);
    out->optimizer_bytes = whole_bytes(states * f->optimizer_bytes);
    out->buffers_bytes = whole_bytes(buffers);
    out->params = whole_bytes(all);
    out->peak_bytes = out->weights_bytes + out->gradients_bytes + out->optimizer_bytes +
                      out->activations_bytes + out->logits_bytes + out->buffers_bytes;
    out->reserved_bytes = whole_bytes((double)out->peak_bytes * f->allocator_factor);
    out->device_bytes = out->reserved_bytes + whole_bytes(f->context_bytes) +
                        whole_bytes(f->communicator_bytes * num_communicators(plan));
}

void dtp_memory(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                struct dtp_stage_memory *stages) {
    const struct activations *x = activations_of(memo, plan);
    const int *in_flight = in_flight_of(memo, plan);
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[plan->schedule];
    for (int rank = 0; rank < plan->pp; rank++) {
        struct rank_parts r = {0};
        for (int chunk = 0; chunk < plan->vpp; chunk++)
            add_chunk(memo, plan, x, kind->stage(plan->pp, plan->vpp, rank, chunk),
                      in_flight[rank * plan->vpp + chunk], &r);
        fill_stage(memo, plan, x, &r, &stages[rank]);
    }
}

uint64_t dtp_memory_device_bytes(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    uint64_t worst_bytes = 0;
    dtp_memory(memo, plan, memo->stages);
    for (int s = 0; s < plan->pp; s++)
        if (memo->stages[s].device_bytes > worst_bytes)
            worst_bytes = memo->stages[s].device_bytes;
    return worst_bytes;
}
