#include "models/cost/cost.h"

#include <math.h>
#include <string.h>

#include "models/cost/cost_internal.h"
#include "models/schedule/schedule.h"

bool dtp_shares_cores(const struct dtp_problem *problem) {
    const struct dtp_node *n = &problem->cluster->node;
    return n->intra == DTP_INTRA_SHM && n->cores > 0 && problem->gpus > n->cores;
}

struct dtp_cost_memo *dtp_cost_memo_create(struct dtp_arena *a, const struct dtp_problem *problem) {
    struct dtp_cost_memo *memo = DTP_NEW(a, struct dtp_cost_memo, 1);
    memo->a = a;
    memo->scratch = dtp_arena_create_in(a, "kernels");
    memo->problem = problem;
    dtp_placed_memo_init(&memo->placed, a, problem);
    dtp_memo_init(&memo->kernels, a, sizeof(struct dtp_layer_key));
    dtp_memo_init(&memo->layers, a, sizeof(struct dtp_layer_key));
    dtp_memo_init(&memo->tails, a, sizeof(struct dtp_update_key));
    dtp_memo_init(&memo->transfers, a, sizeof(struct dtp_transfer_key));
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    struct dtp_plan whole = dtp_plan_default();
    dtp_stage_count(problem->model, &whole, 0, memo->kinds);
    memo->forward_flops = dtp_model_forward_flops(problem->model, problem->seq);
    return memo;
}

/* ---- stages ----------------------------------------------------------------------------------- */

const enum dtp_axis dtp_net_axis[DTP_NET_AXES] = {DTP_AXIS_TP, DTP_AXIS_CP, DTP_AXIS_EP,
                                                  DTP_AXIS_ETP};

static void phase_add(struct dtp_phase *sum, const struct dtp_phase *p, double times) {
#define X(member, term) sum->member += times * p->member;
    DTP_PHASE_LIST(X)
#undef X
#define X(member) sum->member += times * p->member;
    DTP_PHASE_SUMS(X)
#undef X
    for (int axis = 0; axis < DTP_NET_AXES; axis++)
        sum->net_bytes[axis] += times * p->net_bytes[axis];
}

double dtp_cost_logits(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    double vocab = dtp_framework_padded_vocab(problem->framework, problem->model->vocab, plan->tp);
    return (double)plan->microbatch_size * problem->seq / plan->cp * vocab / plan->tp;
}

int dtp_cost_deferred(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    const struct dtp_framework *f = problem->framework;
    if (plan->pp == 1 || f->quirks.head_deferral.head_deferral_bytes <= 0 ||
        problem->model->classes > 0)
        return 0;
    enum { GRADIENT_BYTES = 2 };
    int m = dtp_plan_num_microbatches(plan);
    double n = f->quirks.head_deferral.head_deferral_bytes /
               (GRADIENT_BYTES * dtp_cost_logits(problem, plan));
    return n < m ? (int)n : m;
}

double dtp_cost_inline_share(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    return 1 - (double)dtp_cost_deferred(problem, plan) / dtp_plan_num_microbatches(plan);
}

double dtp_cost_stage_count(const struct dtp_problem *problem, const struct dtp_plan *plan, int vs,
                            double n[DTP_NLAYER_KINDS]) {
    bool equal = problem->framework->quirks.textbook.equal_stages;
    const struct dtp_plan whole = dtp_plan_default();
    int count[DTP_NLAYER_KINDS];
    double blocks = 0, stages = equal ? (double)plan->pp * plan->vpp : 1;
    dtp_stage_count(problem->model, equal ? &whole : plan, equal ? 0 : vs, count);
    for (int kind = 0; kind < DTP_NLAYER_KINDS; kind++) {
        n[kind] = count[kind] / stages;
        blocks += dtp_layer_is_block((enum dtp_layer_kind)kind) ? n[kind] : 0;
    }
    return dtp_plan_recomputed_share(plan, blocks);
}

static void stage_phases(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                         const struct dtp_layer_costs *layer, int vs, struct dtp_stage_cost *out) {
    struct dtp_phase *phase[4] = {&out->f, &out->i, &out->w, &out->r};
    double n[DTP_NLAYER_KINDS];
    double share = dtp_cost_stage_count(memo->problem, plan, vs, n);
    double inline_share = dtp_cost_inline_share(memo->problem, plan);
    for (int kind = 0; kind < DTP_NLAYER_KINDS; kind++)
        for (int k = 0; n[kind] > 0 && k < 4; k++) {
            bool part = k == PHASE_R && dtp_layer_is_block((enum dtp_layer_kind)kind);
            bool late = k == PHASE_W && kind == DTP_LAYER_HEAD;
            phase_add(phase[k], &layer->of[kind][k],
                      n[kind] * (part   ? share
                                 : late ? inline_share
                                        : 1));
        }
}

static struct dtp_transfer_key transfer_key(const struct dtp_plan *plan,
                                            const struct dtp_placed *placed) {
    return (struct dtp_transfer_key){.tp_shape = placed->shape[DTP_AXIS_TP],
                                     .tp = plan->tp,
                                     .cp = plan->cp,
                                     .pp = plan->pp,
                                     .microbatch_size = plan->microbatch_size,
                                     .sequence_parallel = plan->sequence_parallel,
                                     .stride = placed->at.stride[DTP_AXIS_PP]};
}

static void stage_transfers(const struct dtp_problem *problem, const struct dtp_plan *plan,
                            const struct dtp_placed *placed, struct dtp_costs *out) {
    const struct dtp_transfer_key key = transfer_key(plan, placed);
    for (int vs = 0; vs + 1 < out->nstages; vs++) {
        int from, to, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &from, &chunk);
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs + 1, &to, &chunk);
        out->stage[vs].send_f = dtp_cost_transfer(problem, &key, from, to);
        out->stage[vs + 1].send_b = dtp_cost_transfer(problem, &key, to, from);
    }
}

/* ---- once a step ------------------------------------------------------------------------------- */

double dtp_cost_optimizer_params(const struct dtp_update_key *key, const struct dtp_stage *stage) {
    bool grouped = key->zero_group > 0, divided = key->zero_stage >= 1;
    double all = grouped ? key->zero_group : key->replicas;
    double sharers =
        grouped ? key->zero_group
                : (double)key->cut.tp * key->replicas / ((double)key->cut.etp * key->cut.ep);
    double replicas = divided ? all : 1, expert_replicas = divided ? sharers : 1;
    return stage->dense_params / replicas + stage->expert_params / expert_replicas;
}

/* Returns the time of the update on the GPU; offloaded state is updated on the host and takes 0 here. */
static double cost_optimizer_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                               double params) {
    if (key->offload != DTP_OFFLOAD_NONE)
        return 0;
    double bytes = problem->framework->kernels.optimizer_bytes_moved * params;
    return dtp_framework_on(problem->framework, &problem->cluster->gpu).kernel_time_factor *
           dtp_device_kernel_s(&problem->cluster->gpu, DTP_K_OPTIMIZER, bytes, params);
}

static void step_costs(struct dtp_arena *a, const struct dtp_cost_memo *memo,
                       const struct dtp_plan *plan, const struct dtp_update_key *key,
                       struct dtp_costs *out) {
    const struct dtp_problem *problem = memo->problem;
    out->optimizer_s = DTP_NEW(a, double, (size_t)plan->pp);
    double *params = DTP_NEW(a, double, (size_t)plan->pp);
    for (int vs = 0; vs < out->nstages; vs++) {
        int rank, chunk;
        struct dtp_stage stage;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        dtp_stage_of(problem->model, &memo->params, &key->cut, vs, &stage);
        params[rank] += dtp_cost_optimizer_params(key, &stage);
    }
    double worst_params = 0;
    for (int s = 0; s < plan->pp; s++) {
        out->optimizer_s[s] = cost_optimizer_s(problem, key, params[s]);
        worst_params = params[s] > worst_params ? params[s] : worst_params;
    }
    out->embedding_all_reduce = dtp_cost_embedding_all_reduce(problem, key);
    out->norm_all_reduce = dtp_cost_norm_all_reduce(problem, key);
    double backward_s = 0; /* the first rank's */
    for (int vs = 0; vs < out->nstages; vs++) {
        int rank, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        const struct dtp_stage_cost *stage = &out->stage[vs];
        backward_s += rank == 0 ? stage->i.total_s + stage->w.total_s + stage->r.total_s : 0;
    }
    out->offload_s = dtp_offload_exposed_s(problem, key, worst_params, backward_s);
    out->step_host_s = problem->framework->host.step_host_s;
    out->model_flops = 3 * memo->forward_flops * plan->global_batch_size;
    out->hardware_flops = out->model_flops;
    double copies = (double)out->m * plan->dp * plan->cp * plan->tp;
    for (int vs = 0; vs < out->nstages; vs++)
        out->hardware_flops += out->stage[vs].r.flops * copies;
}

/* A collective that runs while a layer computes waits for room on the SMs and lowers the rate of the layer's kernels.
 * Memory-bound kernels lower its bandwidth if it stays in the node; through a network card, which has a fraction of
 * that bandwidth, it is not slowed. */
static void set_beside(const struct dtp_gpu *gpu, const struct dtp_layer_costs *layer, bool in_node,
                       struct dtp_comm *comm) {
    double wait_s = gpu->comm_wait_kernels * layer->kernel_s, memory = layer->memory_share;
    comm->wait_s = wait_s < gpu->comm_wait_s ? wait_s : gpu->comm_wait_s;
    if (in_node && gpu->comm_memory_rate > 0)
        comm->stretch = 1 / (1 - memory * (1 - gpu->comm_memory_rate)) - 1;
    if (comm->device_share > 0 && gpu->comm_memory_slowdown > 0)
        comm->device_share *= 1 - memory * (1 - gpu->comm_memory_slowdown / gpu->comm_slowdown);
}

/* If tp groups span nodes, the last backward, during which gradients are reduced, takes longer by another tp_hop_s for
 * each ring step of its tp collectives less its host time. Each block of a layer gathers the gradient and the input and
 * scatters the result, or all-reduces it. Only the last stage is corrected: the first stage should have the same, but
 * no measured run shows it so far. */
static void slow_hops(const struct dtp_problem *problem, const struct dtp_plan *plan,
                      const struct dtp_placed *placed, struct dtp_costs *out) {
    if (!out->reduce_overlap || plan->dp * plan->cp == 1 || placed->shape[DTP_AXIS_TP]->nodes < 2)
        return;
    double steps = (plan->sequence_parallel ? 3 : 2) * 2.0 * (plan->tp - 1);
    int layers = dtp_stage_layers(problem->model, plan, out->nstages - 1);
    double more_s = layers * steps * problem->framework->quirks.slow_hops.tp_hop_s -
                    out->stage[out->nstages - 1].i.host_s;
    if (more_s <= 0)
        return;
    out->late.tp_s += more_s;
    out->late.total_s += more_s;
}

void dtp_costs(struct dtp_arena *a, struct dtp_cost_memo *memo, const struct dtp_plan *plan,
               struct dtp_costs *out) {
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_framework *f = problem->framework;
    const struct dtp_layer_costs *layer = dtp_cost_layers(memo, plan);
    const struct dtp_placed *placed = dtp_placed_find(&memo->placed, plan);
    struct dtp_update_key key;
    memset(out, 0, sizeof *out);
    if (!placed->fits)
        return;
    dtp_update_key_of(problem, plan, placed, &key);
    out->pp = plan->pp;
    out->vpp = plan->vpp;
    out->m = dtp_plan_num_microbatches(plan);
    out->nstages = plan->pp * plan->vpp;
    out->stage = DTP_NEW(a, struct dtp_stage_cost, (size_t)out->nstages);
    out->p2p_blocking = dtp_plan_p2p_blocks(plan, f);
    out->p2p_slots = f->wire.p2p_slots;
    out->reduce_overlap = key.dp_overlap;
    out->gather_overlap = f->wire.param_gather_overlap;
    out->reduce_per_microbatch = plan->zero_stage >= 2 && f->wire.reduce_per_microbatch;
    double params = (double)memo->params.total;
    out->regather_backward =
        f->wire.zero3_regather_backward && (f->quirks.zero_pieces.zero3_reuse_params <= 0 ||
                                            dtp_framework_reused_params(f, params) < params);
    out->zero_stage = plan->zero_stage;
    out->shares_cores = dtp_shares_cores(problem);
    out->prefetch = f->wire.zero3_prefetch_layers;
    out->extrapolated = problem->cluster->gpu.not_calibrated;
    out->prefetch_forward = f->wire.zero3_forward_prefetch ? f->wire.zero3_prefetch_layers : 0;
    bool in_node = placed->shape[DTP_AXIS_DP_CP]->nodes <= 1;
    for (int vs = 0; vs < out->nstages; vs++) {
        stage_phases(memo, plan, layer, vs, &out->stage[vs]);
        dtp_cost_data_parallel(problem, &memo->params, &key, vs, &out->stage[vs]);
        if (f->kernels.ops == DTP_OPS_OWN)
            dtp_cost_native_phases(problem, &key, plan->microbatch_size, vs, &out->stage[vs]);
        struct dtp_stage_cost *s = &out->stage[vs];
        struct dtp_comm *const unit[] = {&s->reduce, &s->gather, &s->unshard};
        for (int k = 0; k < 3 && !f->wire.inline_communication; k++)
            set_beside(&problem->cluster->gpu, layer, in_node, unit[k]);
    }
    phase_add(&out->late, &layer->of[DTP_LAYER_HEAD][PHASE_W], dtp_cost_deferred(problem, plan));
    slow_hops(problem, plan, placed, out);
    stage_transfers(problem, plan, placed, out);
    step_costs(a, memo, plan, &key, out);
}

/* ---- what BOUND needs: the first rank's tail and the least transfer, memoised ---- */

struct tail {
    double tail_s, fixed_s, reduce_s;
    int nreduce;
};

static void make_tail(const struct dtp_problem *problem, const struct dtp_param_counts *counts,
                      const struct dtp_update_key *key, struct tail *out) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_cut *cut = &key->cut;
    bool overlap = key->dp_overlap || key->zero_stage == 3 ||
                   (key->zero_stage == 2 && f->wire.reduce_per_microbatch);
    double params = 0, last_unit_s = 0, sum_s = 0, gather_s = 0;
    for (int vs = 0; vs < cut->pp * cut->vpp; vs++) {
        int rank, chunk;
        dtp_schedule_holder(cut->schedule, cut->pp, cut->vpp, vs, &rank, &chunk);
        if (rank != 0)
            continue;
        struct dtp_stage_cost cost = {0};
        struct dtp_stage stage;
        dtp_cost_data_parallel(problem, counts, key, vs, &cost);
        dtp_stage_of(problem->model, counts, cut, vs, &stage);
        params += dtp_cost_optimizer_params(key, &stage);
        sum_s += cost.nreduce * cost.reduce.time_s;
        gather_s += cost.nreduce * cost.gather.time_s;
        if (vs == 0)
            last_unit_s = cost.reduce.time_s;
        if (vs == 0 && key->dp_overlap && key->zero_stage < 3) {
            out->nreduce = cost.nreduce;
            out->reduce_s = cost.reduce.time_s;
        }
    }
    out->tail_s = (overlap ? last_unit_s : sum_s) + (f->wire.param_gather_overlap ? 0 : gather_s) +
                  dtp_cost_embedding_all_reduce(problem, key).time_s +
                  dtp_cost_norm_all_reduce(problem, key).time_s +
                  cost_optimizer_s(problem, key, params);
    out->fixed_s = dtp_offload_exposed_s(problem, key, params, INFINITY) + f->host.step_host_s;
}

static const struct tail *first_rank_tail(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                                          const struct dtp_placed *placed) {
    struct dtp_update_key key;
    dtp_update_key_of(memo->problem, plan, placed, &key);
    bool listed = key.cut.layers_per_stage != NULL;
    const struct tail *known = listed ? NULL : dtp_memo_find(&memo->tails, &key);
    if (known)
        return known;
    struct tail *out = DTP_NEW(memo->a, struct tail, 1);
    make_tail(memo->problem, &memo->params, &key, out);
    if (!listed)
        dtp_memo_put(&memo->tails, &key, out);
    return out;
}

static double make_least_transfer_s(const struct dtp_problem *problem,
                                    const struct dtp_transfer_key *key) {
    double least_s = INFINITY;
    for (int s = 0; s < key->pp; s++) {
        int to = (s + 1) % key->pp;
        least_s = fmin(least_s, dtp_cost_transfer(problem, key, s, to).time_s);
        least_s = fmin(least_s, dtp_cost_transfer(problem, key, to, s).time_s);
    }
    return least_s;
}

static double least_transfer_s(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                               const struct dtp_placed *placed) {
    const struct dtp_transfer_key key = transfer_key(plan, placed);
    const double *known_s = dtp_memo_find(&memo->transfers, &key);
    if (known_s)
        return *known_s;
    double *out_s = DTP_NEW(memo->a, double, 1);
    *out_s = make_least_transfer_s(memo->problem, &key);
    dtp_memo_put(&memo->transfers, &key, out_s);
    return *out_s;
}

void dtp_cost_bound(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                    struct dtp_bound_costs *out) {
    const struct dtp_placed *placed = dtp_placed_find(&memo->placed, plan);
    *out = (struct dtp_bound_costs){0};
    if (!placed->fits)
        return;
    const struct tail *tail = first_rank_tail(memo, plan, placed);
    *out =
        (struct dtp_bound_costs){.p2p_s = plan->pp > 1 ? least_transfer_s(memo, plan, placed) : 0,
                                 .fixed_s = tail->fixed_s,
                                 .tail_s = tail->tail_s,
                                 .nreduce = tail->nreduce,
                                 .reduce_s = tail->reduce_s};
}
