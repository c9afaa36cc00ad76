/* Activations of a layer, microbatches in flight and what stages hold, memoised. */
#include <string.h>

#include "models/memory/memory_private.h"
#include "models/ops/op_build.h"

struct dtp_memory_memo *dtp_memory_memo_create(struct dtp_arena *a,
                                               const struct dtp_problem *problem) {
    struct dtp_memory_memo *memo = DTP_NEW(a, struct dtp_memory_memo, 1);
    memo->a = a;
    memo->problem = problem;
    dtp_memo_init(&memo->activations, a);
    dtp_memo_init(&memo->layers, a);
    dtp_memo_init(&memo->in_flight, a);
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    return memo;
}

/* ---- activations -------------------------------------------------------------------------------- */

/* Of an activation between layers. */
static double element_bytes(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    bool wide =
        plan->dtype == DTP_FP32 || plan->dtype == DTP_TF32 || problem->framework->kernels.autocast;
    return wide ? 4 : 2;
}

double dtp_memory_layer_input_bytes(const struct dtp_problem *problem,
                                    const struct dtp_plan *plan) {
    double tokens = (double)plan->microbatch_size * problem->seq / plan->cp;
    return element_bytes(problem, plan) * tokens * problem->model->hidden /
           (plan->sequence_parallel ? plan->tp : 1);
}

double dtp_memory_gathered_input_bytes(const struct dtp_problem *problem,
                                       const struct dtp_plan *plan) {
    return dtp_memory_layer_input_bytes(problem, plan) * (plan->sequence_parallel ? plan->tp : 1);
}

/* The two clocks of a layer without waiting, as cost_layer.c has them, for its forward and backward. */
static void layer_clocks(const struct dtp_problem *problem, const struct dtp_plan *plan,
                         const struct dtp_ops *ops, struct layer_kept *out) {
    const struct dtp_framework *f = problem->framework;
    double check_s = dtp_framework_check_s(f, plan->tp, plan->tp > problem->cluster->node.gpus);
    for (int p = 0; p < 2; p++) {
        double launch_s = f->host.launch_s * (p == 0 ? 1 : f->host.backward_launch_factor);
        out->host_s[p] = launch_s * out->launches[p] + f->host.layer_host_s;
        out->gpu_s[p] = 0;
    }
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out->gpu_s[op->pass != DTP_PASS_F] += dtp_op_time_s(problem, plan, op);
        if (op->kind == DTP_OP_COLLECTIVE)
            out->host_s[op->pass != DTP_PASS_F] += op->count * check_s;
    }
}

/* What the plan's modules do not keep of operations from .. to - 1. */
static double dropped_bytes(const struct dtp_ops *ops, int from, int to, int modules) {
    double sum = 0;
    for (int i = from; i < to; i++)
        sum += ops->at[i].dropped_by & modules ? ops->at[i].saved_bytes : 0;
    return sum;
}

static void layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                              enum dtp_layer_kind kind, struct dtp_ops *ops,
                              struct layer_kept *out) {
    dtp_op_list(problem, plan, kind, ops);
    out->whole = out->launches[0] = out->launches[1] = 0;
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out->whole += op->saved_bytes;
        out->launches[op->pass != DTP_PASS_F] += op->launches * op->count;
    }
    if (problem->framework->keeps.queue_layers > 0)
        layer_clocks(problem, plan, ops, out);
    bool layer = dtp_layer_is_block(kind);
    int modules = layer ? dtp_plan_modules(plan) : 0;
    double attention = dropped_bytes(ops, 0, ops->mlp, modules),
           mlp = dropped_bytes(ops, ops->mlp, ops->n, modules);
    out->kept = out->whole - attention - mlp;
    out->again = attention > mlp ? attention : mlp;
    if (layer && plan->recompute == DTP_RECOMPUTE_FULL) {
        out->kept = dtp_memory_layer_input_bytes(problem, plan);
        out->again = out->whole;
    }
}

double dtp_memory_layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                    enum dtp_layer_kind kind) {
    struct dtp_ops ops;
    struct layer_kept x;
    layer_activations(problem, plan, kind, &ops, &x);
    return x.kept;
}

/* What activations depend on; of layers without experts not ep and etp. With a queue, whose clocks look at the times
 * of all operations, also what those of a layer depend on beside it (kernels_key() of cost_layer.c). */
static void activations_key(const struct dtp_problem *problem, const struct dtp_plan *plan,
                            bool experts, uint64_t key[3]) {
    key[0] = (uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->microbatch_size << 42 |
             (uint64_t)plan->sequence_parallel << 62;
    key[1] = (uint64_t)plan->recompute | (uint64_t)plan->dtype << 2 |
             (uint64_t)(plan->pp > 1) << 6 | (uint64_t)dtp_plan_modules(plan) << 21;
    key[2] = 0;
    if (experts) {
        key[0] |= (uint64_t)plan->ep << 28;
        key[1] |= (uint64_t)plan->etp << 7;
    }
    bool alike = plan->zero_stage <= 1 && problem->framework->wire.zero_copy_bytes <= 0;
    if (problem->framework->keeps.queue_layers > 0)
        key[1] |= (uint64_t)(dtp_plan_num_microbatches(plan) > 1) << 29 |
                  (uint64_t)(alike ? 0 : plan->zero_stage) << 30 | (uint64_t)plan->tp_algo << 32;
    if (problem->framework->keeps.queue_layers > 0 && dtp_framework_layers_vary(problem->framework))
        key[2] |= (uint64_t)plan->dp << 16 | (uint64_t)plan->pp << 40;
}

static const struct layer_kept *find_layer(struct dtp_memory_memo *memo,
                                           const struct dtp_plan *plan, enum dtp_layer_kind kind) {
    uint64_t key[3];
    activations_key(memo->problem, plan, kind == DTP_LAYER_MOE, key);
    key[2] |= (uint64_t)kind;
    const struct layer_kept *known = dtp_memo_find(&memo->layers, key);
    if (known)
        return known;
    struct layer_kept *x = DTP_NEW(memo->a, struct layer_kept, 1);
    layer_activations(memo->problem, plan, kind, &memo->ops, x);
    dtp_memo_put(&memo->layers, key, x);
    return x;
}

const struct activations *dtp_memory_activations(struct dtp_memory_memo *memo,
                                                 const struct dtp_plan *plan) {
    const struct dtp_problem *problem = memo->problem;
    uint64_t key[3];
    activations_key(problem, plan, true, key);
    const struct activations *known = dtp_memo_find(&memo->activations, key);
    if (known)
        return known;
    struct activations *x = DTP_NEW(memo->a, struct activations, 1);
    dtp_memo_put(&memo->activations, key, x);
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        bool moe = k == DTP_LAYER_MOE, conv = k == DTP_LAYER_CONV;
        bool window = k == DTP_LAYER_DENSE_WINDOW || k == DTP_LAYER_MOE_WINDOW;
        if ((moe && problem->model->moe.experts == 0) ||
            (k == DTP_LAYER_MTP && problem->model->mtp_layers == 0) ||
            conv != (problem->model->nconvs > 0) ||
            window) /* keeps what a layer without one keeps */
            continue;
        const struct layer_kept *layer = find_layer(memo, plan, (enum dtp_layer_kind)k);
        x->kept[k] = layer->kept;
        x->whole[k] = layer->whole;
        x->again[k] = layer->again;
        if (k == DTP_LAYER_DENSE) {
            memcpy(x->launches, layer->launches, sizeof x->launches);
            memcpy(x->host_s, layer->host_s, sizeof x->host_s);
            memcpy(x->gpu_s, layer->gpu_s, sizeof x->gpu_s);
        }
    }
    /* The gradient of a layer's output and of the widest tensor inside it, once each. */
    const struct dtp_model *m = problem->model;
    double tokens = (double)plan->microbatch_size * problem->seq / plan->cp;
    double width = m->ffn, routed = (double)m->moe.top_k * m->moe.ffn;
    if (m->moe.experts > 0 && routed > width)
        width = routed;
    if (m->nconvs > 0)
        return x;
    x->widest = element_bytes(problem, plan) * tokens * width / plan->tp * (m->gated_ffn ? 2 : 1);
    x->working = dtp_memory_layer_input_bytes(problem, plan) + x->widest;
    /* Sequence parallelism: the gathered input of a block, where it has no buffer of its own, and its
     * gradient before it is scattered. */
    if (plan->sequence_parallel)
        x->working += (problem->framework->keeps.gather_buffers > 0 ? 1 : 2) *
                      dtp_memory_gathered_input_bytes(problem, plan);
    return x;
}

/* ---- microbatches in flight --------------------------------------------------------------------- */

static int *count_in_flight(struct dtp_memory_memo *memo, const struct dtp_plan *plan, int m) {
    int *peak_chunk = DTP_NEW(memo->a, int, (size_t)(plan->pp * plan->vpp));
    size_t most = dtp_schedule_max_actions(plan->vpp, m);
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
const int *dtp_memory_in_flight(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    int m = dtp_plan_num_microbatches(plan), n = plan->pp * plan->vpp;
    const uint64_t key[3] = {(uint64_t)plan->schedule,
                             (uint64_t)plan->pp << 32 | (uint64_t)plan->vpp, (uint64_t)m};
    const int *known = dtp_memo_find(&memo->in_flight, key);
    if (known)
        return known;
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
    dtp_memo_put(&memo->in_flight, key, peak_chunk);
    return peak_chunk;
}

/* ---- stages --------------------------------------------------------------------------------------- */

void dtp_memory_stages(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    const struct dtp_model *m = memo->problem->model;
    size_t n = (size_t)(plan->pp * plan->vpp);
    struct stages_shape shape = {plan->tp,
                                 plan->ep,
                                 dtp_plan_etp(plan),
                                 plan->pp,
                                 plan->vpp,
                                 plan->last_stage_less,
                                 plan->account_for_ends};
    bool listed = plan->layers_per_stage.at != NULL; /* the shape does not hold a list of layers */
    if (!listed && memcmp(&shape, &memo->shape, sizeof shape) == 0)
        return;
    if (n > memo->nstages) {
        memo->stage = DTP_NEW(memo->a, struct memory_stage, n);
        memo->nstages = n;
    }
    for (int vs = 0; vs < (int)n; vs++) {
        dtp_stage_of(m, &memo->params, plan, vs, &memo->stage[vs].stage);
        dtp_stage_count(m, plan, vs, memo->stage[vs].n);
    }
    if (listed)
        shape.pp = 0; /* no plan's */
    memo->shape = shape;
}
