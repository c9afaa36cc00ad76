#include "models/memory/memory.h"

#include <string.h>

#include "models/cost/cost.h"
#include "models/memory/memory_internal.h"

/* What the activations in flight depend on. */
struct orders_key {
    int schedule, pp, vpp, m;
};

struct dtp_memory_memo *dtp_memory_memo_create(struct dtp_arena *a,
                                               const struct dtp_problem *problem) {
    struct dtp_memory_memo *memo = DTP_NEW(a, struct dtp_memory_memo, 1);
    memo->a = a;
    memo->problem = problem;
    dtp_placed_memo_init(&memo->placed, a, problem);
    dtp_memo_init(&memo->activations, a, sizeof(struct dtp_layer_key));
    dtp_memo_init(&memo->layers, a, sizeof(struct dtp_layer_key));
    dtp_memo_init(&memo->in_flight, a, sizeof(struct orders_key));
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    return memo;
}

/* ---- activations -------------------------------------------------------------------------------- */

/* The two clocks of a layer without waiting, as cost_layer.c has them, for its forward and backward. */
static void layer_clocks(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                         const struct dtp_ops *ops, struct layer_kept *out) {
    const struct dtp_framework *f = problem->framework;
    double check_s = dtp_framework_check_s(f, key->tp, key->tp > problem->cluster->node.gpus);
    for (int p = 0; p < 2; p++) {
        double launch_s = f->host.launch_s * (p == 0 ? 1 : f->host.backward_launch_factor);
        out->host_s[p] = launch_s * out->launches[p] + f->host.layer_host_s;
        out->gpu_s[p] = 0;
    }
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out->gpu_s[op->pass != DTP_PASS_F] += dtp_op_seconds(problem, key, op);
        if (op->kind == DTP_OP_COLLECTIVE)
            out->host_s[op->pass != DTP_PASS_F] += op->count * check_s;
    }
}

/* Returns what the plan's modules do not keep of operations from .. to - 1. */
static double dropped_bytes(const struct dtp_ops *ops, int from, int to, int modules) {
    double sum = 0;
    for (int i = from; i < to; i++)
        sum += ops->at[i].dropped_by & modules ? ops->at[i].saved_bytes : 0;
    return sum;
}

/* Returns the bytes of an element of an activation between layers. */
static double element_bytes(const struct dtp_problem *problem, const struct dtp_layer_key *key) {
    bool wide = key->dtype == DTP_FP32 || key->dtype == DTP_TF32 ||
                dtp_framework_autocasts(problem->framework, key->zero_stage);
    return wide ? 4 : 2;
}

/* Input of a layer, all that full recomputation keeps: 2 s b h (Korthikanti 2022, section 5). */
static double input_bytes(const struct dtp_problem *problem, const struct dtp_layer_key *key) {
    double tokens = (double)key->microbatch_size * problem->seq / key->cp;
    return element_bytes(problem, key) * tokens * problem->model->hidden /
           (key->sequence_parallel ? key->tp : 1);
}

static void layer_activations(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                              struct dtp_ops *ops, struct layer_kept *out) {
    dtp_op_list(problem, key, ops);
    out->whole = out->launches[0] = out->launches[1] = 0;
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out->whole += op->saved_bytes;
        out->launches[op->pass != DTP_PASS_F] += op->launches * op->count;
    }
    if (problem->framework->quirks.allocator_replay.queue_layers > 0)
        layer_clocks(problem, key, ops, out);
    bool layer = dtp_layer_is_block(key->kind);
    int modules = layer ? key->recompute_modules : 0;
    double attention = dropped_bytes(ops, 0, ops->mlp, modules),
           mlp = dropped_bytes(ops, ops->mlp, ops->n, modules);
    out->kept = out->whole - attention - mlp;
    out->again = attention > mlp ? attention : mlp;
    if (layer && key->recompute == DTP_RECOMPUTE_FULL) {
        out->kept = input_bytes(problem, key);
        out->again = out->whole;
    }
}

double dtp_memory_layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                    enum dtp_layer_kind kind) {
    struct dtp_layer_key all, key;
    struct dtp_ops ops;
    struct layer_kept x;
    dtp_layer_key_of(problem, plan, NULL, &all);
    dtp_layer_key_kind(problem, &all, kind, &key);
    layer_activations(problem, &key, &ops, &x);
    return x.kept;
}

/* Without a queue, memory does not depend on times, so the key leaves out the placement of groups, what hides
 * behind what, and how often gradients are added up. */
static void activations_key(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                            struct dtp_layer_key *out) {
    bool queue = memo->problem->framework->quirks.allocator_replay.queue_layers > 0;
    struct dtp_layer_key all;
    dtp_layer_key_of(memo->problem, plan, queue ? dtp_placed_find(&memo->placed, plan) : NULL,
                     &all);
    dtp_layer_key_kind(memo->problem, &all, DTP_LAYER_MOE, out); /* without a clock */
    out->kind = DTP_NLAYER_KINDS;
    if (queue)
        return;
    out->microbatches = 1;
    out->tp_overlap = out->ep_overlap = out->ep_per_node = 0;
    out->tp_algo = DTP_ALGO_AUTO;
    if (!memo->problem->framework->quirks.autocast_copies.autocast) /* dtp_framework_autocasts() */
        out->zero_stage = 0;
}

static const struct layer_kept *find_layer(struct dtp_memory_memo *memo,
                                           const struct dtp_layer_key *all,
                                           enum dtp_layer_kind kind) {
    struct dtp_layer_key key;
    dtp_layer_key_kind(memo->problem, all, kind, &key);
    const struct layer_kept *known = dtp_memo_find(&memo->layers, &key);
    if (known)
        return known;
    struct layer_kept *x = DTP_NEW(memo->a, struct layer_kept, 1);
    layer_activations(memo->problem, &key, &memo->ops, x);
    dtp_memo_put(&memo->layers, &key, x);
    return x;
}

static void all_activations(struct dtp_memory_memo *memo, const struct dtp_layer_key *key,
                            struct activations *x) {
    const struct dtp_problem *problem = memo->problem;
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        bool moe = k == DTP_LAYER_MOE, conv = k == DTP_LAYER_CONV;
        bool window = k == DTP_LAYER_DENSE_WINDOW || k == DTP_LAYER_MOE_WINDOW;
        if ((moe && problem->model->moe.experts == 0) ||
            (k == DTP_LAYER_MTP && problem->model->mtp_layers == 0) ||
            conv != (problem->model->nconvs > 0) ||
            window) /* keeps what a layer without one keeps */
            continue;
        const struct layer_kept *layer = find_layer(memo, key, (enum dtp_layer_kind)k);
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
    double tokens = (double)key->microbatch_size * problem->seq / key->cp;
    double width = m->ffn, routed = (double)m->moe.top_k * m->moe.ffn;
    if (m->moe.experts > 0 && routed > width)
        width = routed;
    x->input = input_bytes(problem, key);
    x->gathered_input = x->input * (key->sequence_parallel ? key->tp : 1);
    if (m->nconvs > 0)
        return;
    x->widest = element_bytes(problem, key) * tokens * width / key->tp * (m->gated_ffn ? 2 : 1);
    x->working = x->input + x->widest;
    /* Sequence parallelism adds the gathered input of a block, if it has no separate buffer, and its
     * gradient before it is scattered. */
    if (key->sequence_parallel)
        x->working += (problem->framework->quirks.allocator_replay.gather_buffers > 0 ? 1 : 2) *
                      x->gathered_input;
}

const struct activations *dtp_memory_activations(struct dtp_memory_memo *memo,
                                                 const struct dtp_plan *plan) {
    struct dtp_layer_key key;
    activations_key(memo, plan, &key);
    const struct activations *known = dtp_memo_find(&memo->activations, &key);
    if (known)
        return known;
    struct activations *x = DTP_NEW(memo->a, struct activations, 1);
    all_activations(memo, &key, x);
    dtp_memo_put(&memo->activations, &key, x);
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
static const int *find_in_flight(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    int m = dtp_plan_num_microbatches(plan), n = plan->pp * plan->vpp;
    const struct orders_key key = {plan->schedule, plan->pp, plan->vpp, m};
    const int *known = dtp_memo_find(&memo->in_flight, &key);
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
    dtp_memo_put(&memo->in_flight, &key, peak_chunk);
    return peak_chunk;
}

/* ---- stages --------------------------------------------------------------------------------------- */

static void find_stages(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    const struct dtp_model *m = memo->problem->model;
    size_t n = (size_t)(plan->pp * plan->vpp);
    struct dtp_cut cut = dtp_plan_cut(plan);
    cut.schedule = 0; /* the same stages on other ranks */
    bool same = memcmp(&cut, &memo->cut, sizeof cut) == 0;
    if (same && !cut.layers_per_stage) /* whose content may be another */
        return;
    if (n > memo->nstages) {
        memo->stage = DTP_NEW(memo->a, struct memory_stage, n);
        memo->nstages = n;
    }
    for (int vs = 0; vs < (int)n; vs++) {
        dtp_stage_of(m, &memo->params, &cut, vs, &memo->stage[vs].stage);
        dtp_stage_count(m, plan, vs, memo->stage[vs].n);
    }
    memo->cut = cut;
}

/* ---- the moments of a rank ---- */

/* Rounds to whole bytes. A few values are summed, so each is capped at 1e18, more than any machine has. */
static uint64_t whole_bytes(double v) {
    const double most = 1e18;
    return v > most ? (uint64_t)most : v > 0 ? (uint64_t)(v + 0.5) : 0;
}

/* Layers whose activations are on the host while others run; two are on the way or in use (TransformerEngine,
 * cpu_offload.py). Their copies hide behind the layers' compute and are not timed. */
static int moved_layers(const struct dtp_problem *problem, int layers) {
    int moved = problem->offloaded_layers < layers ? problem->offloaded_layers : layers;
    return moved > 2 ? moved - 2 : 0;
}

static void add_chunk(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                      const struct activations *x, int vs, int in_flight, struct rank_parts *r) {
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_stage stage = memo->stage[vs].stage;
    r->dense += stage.dense_params;
    r->experts += stage.expert_params;
    r->root += stage.root_params;
    if (stage.largest_layer_params > r->largest_layer)
        r->largest_layer = stage.largest_layer_params;
    r->layers += stage.layers;
    int dense = stage.layers - stage.moe_layers;
    double kept = dense * x->kept[DTP_LAYER_DENSE] + stage.moe_layers * x->kept[DTP_LAYER_MOE] +
                  x->kept[DTP_LAYER_CONV];
    double share = dtp_plan_recomputed_share(plan, stage.layers);
    if (plan->recompute == DTP_RECOMPUTE_FULL && share < 1)
        kept = share * kept + (1 - share) * (dense * x->whole[DTP_LAYER_DENSE] +
                                             stage.moe_layers * x->whole[DTP_LAYER_MOE]);
    kept -= moved_layers(problem, dense) * x->kept[DTP_LAYER_DENSE];
    if (stage.first)
        kept += x->kept[DTP_LAYER_EMBEDDING];
    if (!stage.last && problem->framework->keeps.keeps_stage_outputs)
        kept += x->input;
    if (stage.first && !(stage.last && problem->model->tied_embeddings))
        r->table = (double)problem->model->vocab * problem->model->hidden / plan->tp;
    if (stage.last)
        kept += x->kept[DTP_LAYER_HEAD] + problem->model->mtp_layers * x->kept[DTP_LAYER_MTP];
    r->activations += in_flight * kept;
    for (int moe = 0; moe < 2; moe++) {
        int kind = moe ? DTP_LAYER_MOE : DTP_LAYER_DENSE;
        if ((moe ? stage.moe_layers : dense) == 0)
            continue;
        r->whole_layer = x->whole[kind] > r->whole_layer ? x->whole[kind] : r->whole_layer;
        r->again = x->again[kind] > r->again ? x->again[kind] : r->again;
    }
    if (stage.last && problem->model->classes == 0 && problem->model->vocab > 0) {
        /* each depth of multi-token prediction has its own */
        double logits = dtp_cost_logits(problem, plan) * (1 + problem->model->mtp_layers);
        const struct dtp_framework *f = problem->framework;
        double outputs =
            f->quirks.kept_outputs.outputs_kept_bytes * dtp_plan_num_microbatches(plan);
        r->saved_logits = f->keeps.logits_saved_bytes * in_flight * logits;
        r->outputs = plan->pp > 1 ? outputs * logits : 0;
        /* deferred weight gradients of the head read its input and the gradient of the logits */
        r->outputs +=
            dtp_cost_deferred(problem, plan) * (2 * dtp_cost_logits(problem, plan) + x->input);
        double copies = plan->tp > 1 && f->keeps.logits_tp_copies_bytes > 0
                            ? f->keeps.logits_tp_copies_bytes
                            : f->keeps.logits_copies_bytes;
        r->logits = (copies - f->keeps.logits_saved_bytes) * logits;
        r->nlogits = logits;
    }
}

static int num_communicators(const struct dtp_plan *plan) {
    return (plan->tp > 1) + (plan->dp * plan->cp > 1) + (plan->pp > 1) + (plan->cp > 1) +
           (plan->ep > 1) + (plan->etp > 1 && plan->etp != plan->tp);
}

/* What one stage holds at a moment; the largest sum of a stage is its peak. */
struct moment {
    const char *name;
    double weights, gradients, optimizer, activations, logits, buffers;
};

static double moment_sum(const struct moment *m) {
    return m->weights + m->gradients + m->optimizer + m->activations + m->logits + m->buffers;
}

static void take_larger(struct moment *peak, const struct moment *m) {
    if (moment_sum(m) > moment_sum(peak))
        *peak = *m;
}

/* Parameters of a stage that a rank stores in each state, by ZeRO stage (Rajbhandari 2020, section 5). */
struct stored {
    double weights, gathered, gradients, states;
};

static struct stored stored_params(const struct dtp_framework *f, const struct dtp_plan *plan,
                                   const struct rank_parts *r) {
    double replicas = plan->zero_group > 0 ? plan->zero_group : (double)plan->dp * plan->cp,
           expert_replicas = dtp_plan_expert_sharers(plan);
    double sharded = r->dense / replicas + r->experts / expert_replicas,
           all = r->dense + r->experts;
    /* FSDP that keeps what it gathered (SHARD_GRAD_OP) still stores wide shards; gradients that it
     * reduces once a step are whole until then. */
    bool keeps = plan->zero_stage == 2 && f->keeps.gathered_bytes > 0;
    bool scatters = plan->zero_stage == 3 ||
                    (plan->zero_stage == 2 && !(keeps && !f->wire.reduce_per_microbatch));
    return (struct stored){.weights = plan->zero_stage >= 3 || keeps ? sharded : all,
                           .gathered = keeps ? all : 0,
                           .gradients = scatters ? sharded : all,
                           .states = plan->zero_stage >= 1 ? sharded : all};
}

/* DDP keeps its reduction buckets, and gradients are views of them. */
static bool has_reducer(const struct dtp_framework *f, const struct dtp_plan *plan) {
    return plan->zero_stage == 0 && f->keeps.reducer_bytes > 0 &&
           plan->dp * plan->cp >= f->keeps.reducer_ranks;
}

/* Buffers that are there all the time, but for those of ZeRO-3. */
static double standing_buffers(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                               const struct activations *x, const struct rank_parts *r) {
    const struct dtp_framework *f = memo->problem->framework;
    double buffers = f->keeps.fixed_bytes;
    /* Made by the first microbatch, kept by the module for the others (TransformerEngine, module/base.py). */
    if (dtp_dtype_narrow(plan->dtype))
        buffers += f->keeps.fp8_weight_bytes * (r->dense + r->experts - r->root);
    if (plan->dp * plan->cp > 1)
        buffers += f->keeps.bucket_bytes;
    if ((plan->zero_stage == 1 || plan->zero_stage == 2) &&
        dtp_framework_dp_overlaps(memo->problem->framework, plan->dp_overlap, plan->zero_stage))
        buffers += f->quirks.zero_pieces.overlap_bucket_bytes;
    if (has_reducer(f, plan))
        buffers += f->keeps.reducer_bytes * (r->dense + r->experts);
    if (plan->sequence_parallel && plan->tp > 1)
        buffers += f->quirks.allocator_replay.gather_buffers * x->gathered_input;
    if (plan->zero_stage == 2 || (plan->zero_stage == 3 && !f->keeps.lazy_gradients))
        buffers +=
            f->keeps.gradient_bytes * r->largest_layer; /* one layer's before they are reduced */
    if (plan->pp > 1 &&
        f->quirks.kept_outputs.transfers_kept) /* one for each microbatch and direction */
        buffers += 2 * dtp_plan_num_microbatches(plan) * x->input;
    else if (plan->pp > 1)
        buffers += 2 * x->input;
    if (plan->offload == DTP_OFFLOAD_PARAMETERS)
        buffers += 2 * f->keeps.weight_bytes * r->largest_layer;
    return buffers;
}

/* Returns the buffers of prefetched layers, the layer in use, and what is outside layers. With units counted
 * in weights: the unit in use, maybe the embedding table, the prefetched ones, and what the forward left gathered. */
static double unshard_buffers(const struct dtp_problem *problem, const struct dtp_plan *plan,
                              const struct rank_parts *r) {
    const struct dtp_framework *f = problem->framework;
    if (plan->zero_stage < 3)
        return 0;
    double all = r->dense + r->experts;
    if (f->quirks.zero_pieces.zero3_unit_params > 0) {
        double unit = dtp_framework_unit_params(f, problem->model);
        double table = (double)problem->model->vocab * problem->model->hidden;
        double live = dtp_framework_reused_params(f, all) + (unit > table ? unit : table) +
                      f->wire.zero3_prefetch_layers * f->quirks.zero_pieces.zero3_unit_params;
        return dtp_framework_gathered_bytes(f, plan->dtype) * (live < all ? live : all);
    }
    return dtp_framework_gathered_bytes(f, plan->dtype) *
           ((f->wire.zero3_prefetch_layers + 1) * r->largest_layer + r->root);
}

/* Returns what a layer's backward holds in addition to the activations in flight. A concurrent forward has made the
 * same layer of another microbatch; for each layer that it made before, a backward has freed one (Megatron-Core,
 * TransformerModelChunkSchedulePlan.run()). */
static double live_layer(const struct dtp_plan *plan, const struct activations *x,
                         const struct rank_parts *r) {
    double beside = dtp_plan_hides_experts(plan) ? x->kept[DTP_LAYER_MOE] : 0;
    return x->working + r->again + beside;
}

/* Returns the 16-bit copies of weights that autocast keeps; recomputation makes those of its layers when it runs. */
static double cached_weights(const struct dtp_framework *f, const struct dtp_plan *plan,
                             const struct rank_parts *r) {
    double products = r->dense + r->experts - r->table;
    if (plan->recompute == DTP_RECOMPUTE_FULL)
        products = r->root - r->table;
    return plan->zero_stage >= 2 ? 0 : f->quirks.autocast_copies.cached_weight_bytes * products;
}

/* The end of a backward whose gradients are added to those of the step only then: the activations of its
 * microbatch are gone. */
static void take_backward_end(const struct dtp_framework *f, const struct rank_parts *r,
                              double live, struct moment now, struct moment *peak) {
    double left = r->in_flight > 1 ? (r->in_flight - 1.0) / r->in_flight : 0;
    now.name = "end of backward";
    now.gradients += f->quirks.whole_gradients.backward_gradient_bytes * (r->dense + r->experts);
    now.activations = left * r->activations + live;
    now.logits = left * r->saved_logits + r->outputs;
    take_larger(peak, &now);
}

/* The updated parameters: a piece for each rank, then all in one. */
static void take_parameter_gather(double flat, double standing, struct moment now,
                                  struct moment *peak) {
    now.name = "parameter gather";
    now.activations = now.logits = 0;
    now.buffers = standing + 2 * flat;
    if (flat > 0)
        take_larger(peak, &now);
}

static void take_second_backward(const struct rank_parts *r, double live, struct moment now,
                                 struct moment *peak) {
    double left = (r->in_flight - 1.0) / r->in_flight;
    now.name = "second backward";
    now.activations = left * r->activations + live;
    now.logits = left * r->saved_logits + r->outputs;
    take_larger(peak, &now);
    now.activations -= live;
    now.logits += r->logits;
    take_larger(peak, &now);
}

/* The end of a backward of ZeRO-3 (PyTorch FSDP): the live layer with its weights, its gradients and the
 * copy that is being reduced, then the last reduction alone. */
static struct moment zero3_end(const struct dtp_framework *f, const struct dtp_plan *plan,
                               const struct rank_parts *r, double standing, struct moment now,
                               struct moment peak) {
    double gathered = dtp_framework_gathered_bytes(f, plan->dtype), reduced = f->wire.reduce_bytes;
    double root_share = r->root / (r->dense + r->experts), all_gradients = now.gradients;
    now.gradients = (1 - root_share) * all_gradients;
    now.buffers += (2 * gathered + reduced) * r->largest_layer + 2 * gathered * r->root;
    take_larger(&peak, &now);
    now.name = "last reduction";
    now.activations = 0;
    now.gradients = all_gradients;
    now.buffers = standing + reduced * (r->largest_layer + r->root);
    take_larger(&peak, &now);
    return peak;
}

/* Offload that takes each microbatch's gradients to the host: what is left are the buckets. */
static bool gradients_leave(const struct dtp_framework *f, const struct dtp_plan *plan) {
    bool divided = plan->zero_stage > 0 || plan->dp * plan->cp == 1;
    return plan->offload != DTP_OFFLOAD_NONE && f->quirks.eager_offload.offload_each_microbatch &&
           divided;
}

/* Moments: the loss of the last microbatch (the logits meet the activations in flight, the working set
 * of a layer does not); the backward of the last layer; with gradients that come into being in the
 * backward, its end, when all gradients and one live layer are there. Under ZeRO-3 (PyTorch FSDP) that
 * layer has its weights, its gradients and the copy that is being reduced, what is outside the
 * layers its weights and gradients. */
static struct moment stage_peak(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                                const struct activations *x, const struct rank_parts *r,
                                struct rank_sums *out_sums) {
    const struct dtp_framework *framework = memo->problem->framework;
    const struct dtp_framework *f = framework;
    struct stored stored = stored_params(framework, plan, r);
    double standing = standing_buffers(memo, plan, x, r);
    double cached = cached_weights(f, plan, r);
    double live = live_layer(plan, x, r);
    struct moment now = {
        .name = "loss",
        .weights = plan->offload == DTP_OFFLOAD_PARAMETERS
                       ? 0
                       : stored.weights * f->keeps.weight_bytes +
                             stored.gathered * f->keeps.gathered_bytes,
        .gradients =
            gradients_leave(framework, plan) ? 0 : stored.gradients * f->keeps.gradient_bytes,
        .optimizer =
            plan->offload == DTP_OFFLOAD_NONE ? stored.states * f->keeps.optimizer_bytes : 0,
        .activations = r->activations,
        .logits = r->logits,
        .buffers = standing + cached + unshard_buffers(memo->problem, plan, r)};
    now.logits = r->logits + r->saved_logits + r->outputs;
    double all_gradients = now.gradients;
    if (f->keeps.lazy_gradients && !r->gradients_live)
        now.gradients = 0;
    struct moment peak = now;
    *out_sums = (struct rank_sums){.loss = moment_sum(&now), .optimizer = now.optimizer};
    now.name = "backward";
    now.logits = r->saved_logits + r->outputs;
    now.activations = r->activations + live;
    take_larger(&peak, &now);
    /* ZeRO-1/2 give their buckets back. */
    if (f->keeps.step_copy_bytes > 0 && plan->offload == DTP_OFFLOAD_NONE) {
        struct moment update = {.name = "update",
                                .weights = now.weights,
                                .gradients =
                                    all_gradients + stored.states * f->keeps.step_copy_bytes,
                                .optimizer = now.optimizer,
                                .buffers = plan->zero_stage == 3 ? standing : f->keeps.fixed_bytes};
        take_larger(&peak, &update);
    }
    if (f->quirks.whole_gradients.backward_gradient_bytes > 0)
        take_backward_end(f, r, live, now, &peak);
    out_sums->passes = moment_sum(&peak);
    take_parameter_gather(dtp_memory_flat_gather_bytes(f, plan, r), standing, now, &peak);
    if (!f->keeps.lazy_gradients)
        return peak;
    if (!r->gradients_live && r->in_flight > 1) { /* all forwards came first */
        now.gradients = all_gradients;
        take_second_backward(r, live, now, &peak);
    }
    now.name = "end of backward";
    now.logits = r->outputs;
    /* Without accumulation the gradients are views of the reduction buckets. */
    bool views = has_reducer(f, plan) && !r->gradients_live;
    now.gradients = views ? 0 : all_gradients;
    now.activations = live + (plan->recompute == DTP_RECOMPUTE_NONE ? r->whole_layer : 0);
    now.buffers = standing;
    if (plan->zero_stage >= 3)
        return zero3_end(framework, plan, r, standing, now, peak);
    take_larger(&peak, &now);
    return peak;
}

/* A caching allocator gives back what it cached, idle or by its factor, only when the card is full. */
static void fill_device(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                        const struct activations *x, const struct rank_parts *r,
                        const struct rank_sums *sums, struct dtp_stage_memory *out) {
    const struct dtp_framework *f = memo->problem->framework;
    uint64_t limit_bytes = memo->problem->memory_limit_bytes;
    uint64_t needed_bytes = whole_bytes((double)out->peak_bytes * f->keeps.allocator_factor);
    uint64_t beside_bytes = whole_bytes(f->keeps.context_bytes) +
                            whole_bytes(f->keeps.communicator_bytes * num_communicators(plan));
    struct reserved idle = dtp_memory_idle_bytes(memo, plan, x, r, sums);
    out->wanted_bytes = needed_bytes + whole_bytes(idle.wanted);
    bool room = out->wanted_bytes + beside_bytes <= limit_bytes;
    uint64_t idle_bytes = whole_bytes(room ? idle.wanted : idle.least);
    bool collectives = plan->tp > 1 || plan->dp * plan->cp > 1;
    double more = collectives ? f->keeps.cache_factor - f->keeps.allocator_factor : 0;
    out->device_bytes = needed_bytes + beside_bytes;
    out->observed_bytes =
        out->device_bytes + idle_bytes + whole_bytes(more > 0 ? more * (double)out->peak_bytes : 0);
    if (out->observed_bytes > limit_bytes)
        out->observed_bytes = out->device_bytes > limit_bytes ? out->device_bytes : limit_bytes;
    out->reserved_bytes = needed_bytes + idle_bytes;
    if (out->reserved_bytes > out->observed_bytes - beside_bytes)
        out->reserved_bytes = out->observed_bytes - beside_bytes;
}

static void fill_stage(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                       const struct activations *x, const struct rank_parts *r,
                       struct dtp_stage_memory *out) {
    struct rank_sums sums;
    struct moment peak = stage_peak(memo, plan, x, r, &sums);
    sums.peak = moment_sum(&peak);
    out->moment = peak.name;
    out->activations_bytes = whole_bytes(peak.activations);
    out->logits_bytes = whole_bytes(peak.logits);
    out->weights_bytes = whole_bytes(peak.weights);
    out->gradients_bytes = whole_bytes(peak.gradients);
    out->optimizer_bytes = whole_bytes(peak.optimizer);
    out->buffers_bytes = whole_bytes(peak.buffers);
    out->params = whole_bytes(r->dense + r->experts);
    out->peak_bytes = out->weights_bytes + out->gradients_bytes + out->optimizer_bytes +
                      out->activations_bytes + out->logits_bytes + out->buffers_bytes;
    fill_device(memo, plan, x, r, &sums, out);
}

static void fill_rank(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                      const struct activations *x, const int *in_flight, int rank,
                      struct dtp_stage_memory *out) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[plan->schedule];
    struct rank_parts r = {0};
    for (int chunk = 0; chunk < plan->vpp; chunk++) {
        int n = in_flight[rank * plan->vpp + chunk];
        add_chunk(memo, plan, x, kind->stage(plan->pp, plan->vpp, rank, chunk), n, &r);
        r.in_flight += n;
    }
    r.gradients_live = r.in_flight < plan->vpp * dtp_plan_num_microbatches(plan);
    fill_stage(memo, plan, x, &r, out);
}

static void general_stages(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                           struct dtp_stage_memory *stages) {
    const struct activations *x = dtp_memory_activations(memo, plan);
    const int *in_flight = find_in_flight(memo, plan);
    find_stages(memo, plan);
    for (int rank = 0; rank < plan->pp; rank++)
        fill_rank(memo, plan, x, in_flight, rank, &stages[rank]);
}

static bool same_layers(const struct dtp_memory_memo *memo, int vs, int as) {
    const struct memory_stage *x = &memo->stage[vs], *y = &memo->stage[as];
    return memo->problem->model->moe.experts == 0 ? x->stage.layers == y->stage.layers
                                                  : memcmp(x->n, y->n, sizeof x->n) == 0;
}

/* The rank needs no more than another in the middle of the model: the same layers, of no more microbatches. */
static bool needs_no_more(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                          const int *in_flight, int rank, int other) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[plan->schedule];
    int last = plan->pp * plan->vpp - 1, all = plan->vpp * dtp_plan_num_microbatches(plan);
    int here = 0, there = 0; /* microbatches */
    for (int chunk = 0; chunk < plan->vpp; chunk++) {
        int vs = kind->stage(plan->pp, plan->vpp, rank, chunk);
        int as = kind->stage(plan->pp, plan->vpp, other, chunk);
        int n = in_flight[rank * plan->vpp + chunk], of = in_flight[other * plan->vpp + chunk];
        if (n > of || vs == 0 || vs == last || as == 0 || as == last || !same_layers(memo, vs, as))
            return false;
        here += n;
        there += of;
    }
    return (here < all) == (there < all); /* as gradients_live */
}

static uint64_t general_peak(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    uint64_t worst_bytes = 0;
    const struct activations *x = dtp_memory_activations(memo, plan);
    const int *in_flight = find_in_flight(memo, plan);
    find_stages(memo, plan);
    for (int rank = 0, like = 0; rank < plan->pp; rank++) {
        struct dtp_stage_memory stage;
        if (rank > 0 && needs_no_more(memo, plan, in_flight, rank, like))
            continue;
        like = rank;
        fill_rank(memo, plan, x, in_flight, rank, &stage);
        worst_bytes = stage.device_bytes > worst_bytes ? stage.device_bytes : worst_bytes;
    }
    return worst_bytes;
}

static void native_stages(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                          struct dtp_stage_memory *stages) {
    dtp_memory_native(memo->a, memo->problem, plan, stages);
}

static uint64_t native_peak(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    return dtp_memory_native_peak(memo->a, memo->problem, plan);
}

/* Our own runtime's allocations are walked one by one. */
static const struct method {
    void (*stages)(struct dtp_memory_memo *, const struct dtp_plan *, struct dtp_stage_memory *);
    uint64_t (*peak)(struct dtp_memory_memo *, const struct dtp_plan *);
} methods[] = {[DTP_OPS_FUSED] = {general_stages, general_peak},
               [DTP_OPS_EAGER] = {general_stages, general_peak},
               [DTP_OPS_OWN] = {native_stages, native_peak}};

void dtp_memory(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                struct dtp_stage_memory *stages) {
    methods[memo->problem->framework->kernels.ops].stages(memo, plan, stages);
}

uint64_t dtp_memory_device_bytes(struct dtp_memory_memo *memo, const struct dtp_plan *plan) {
    return methods[memo->problem->framework->kernels.ops].peak(memo, plan);
}
