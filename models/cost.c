#include "models/cost.h"

#include <math.h>
#include <string.h>

#include "models/evaluate.h"
#include "models/native.h"
#include "models/offload.h"
#include "models/schedule.h"
#include "models/stage.h"

/* ---- memo -------------------------------------------------------------------------------------- */

struct memo_entry {
    uint64_t key[2];
    const void *value; /* NULL: free */
};
/* Open addressing; capacity is a power of two. */
struct memo_table {
    struct memo_entry *entry;
    size_t n, capacity;
};

struct dtp_cost_memo {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct memo_table layers, tails, transfers;
    struct dtp_ops ops; /* scratch */
    struct dtp_param_counts params;
    double forward_flops;
    bool tp_innermost;
};

static void table_init(struct memo_table *t, struct dtp_arena *a) {
    t->capacity = 64;
    t->entry = DTP_NEW(a, struct memo_entry, t->capacity);
}

static struct memo_entry *table_slot(const struct memo_table *t, const uint64_t key[2]) {
    uint64_t x = (key[0] ^ (key[1] * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
    size_t i = (size_t)(x ^ x >> 29) & (t->capacity - 1);
    while (t->entry[i].value && (t->entry[i].key[0] != key[0] || t->entry[i].key[1] != key[1]))
        i = (i + 1) & (t->capacity - 1);
    return &t->entry[i];
}

static void table_put(struct memo_table *t, struct dtp_arena *a, const uint64_t key[2],
                      const void *value) {
    if (++t->n * 2 > t->capacity) {
        struct memo_table bigger = {DTP_NEW(a, struct memo_entry, t->capacity * 2), t->n,
                                    t->capacity * 2};
        for (size_t i = 0; i < t->capacity; i++)
            if (t->entry[i].value)
                *table_slot(&bigger, t->entry[i].key) = t->entry[i];
        *t = bigger;
    }
    *table_slot(t, key) = (struct memo_entry){{key[0], key[1]}, value};
}

struct dtp_cost_memo *dtp_cost_memo_create(struct dtp_arena *a, const struct dtp_problem *problem) {
    struct dtp_cost_memo *memo = DTP_NEW(a, struct dtp_cost_memo, 1);
    memo->a = a;
    memo->problem = problem;
    table_init(&memo->layers, a);
    table_init(&memo->tails, a);
    table_init(&memo->transfers, a);
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    memo->forward_flops = dtp_model_forward_flops(problem->model, problem->seq);
    memo->tp_innermost = strncmp(problem->framework->rank_order, "tp-cp", 5) == 0;
    return memo;
}

static void layer_key(const struct dtp_cost_memo *memo, const struct dtp_plan *p, uint64_t key[2]) {
    uint64_t several = dtp_plan_num_microbatches(p) > 1;
    key[0] = (uint64_t)p->tp | (uint64_t)p->cp << 14 | (uint64_t)p->ep << 28 |
             (uint64_t)p->microbatch_size << 42 | (uint64_t)p->sequence_parallel << 62 |
             several << 63;
    key[1] = (uint64_t)p->recompute | (uint64_t)p->dtype << 2 | (uint64_t)(p->tp_overlap + 1) << 5 |
             (uint64_t)p->tp_algo << 7 | (uint64_t)p->zero_stage << 60;
    if (!memo->tp_innermost) /* then the shape of the tp group depends on the other axes */
        key[1] |= (uint64_t)p->dp << 16 | (uint64_t)p->pp << 40;
}

/* ---- one layer -------------------------------------------------------------------------------- */

enum { PHASE_F, PHASE_I, PHASE_W, PHASE_R };

/* What a pass of a layer takes before overlap is settled. */
struct tally {
    double compute_s, gemm_s, attention_s, flops;
    double exposed_s[DTP_NAXES], overlapped_s[DTP_NAXES];
    double launches, collectives; /* of the host */
    double net_bytes[3];          /* tp, cp, ep */
    double kernels_s, kernels_s2; /* sums of the kernels' durations and of their squares */
};

static void tally_op(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                     const struct dtp_op *op, struct tally *t) {
    const struct dtp_framework *f = memo->problem->framework;
    double time_s = dtp_op_time_s(memo->problem, plan, op);
    if (op->kind == DTP_OP_COLLECTIVE) {
        t->exposed_s[op->axis] += op->count * f->collective_gap_s;
        *(op->overlapped ? &t->overlapped_s[op->axis] : &t->exposed_s[op->axis]) += time_s;
        int net = op->axis == DTP_AXIS_TP   ? 0
                  : op->axis == DTP_AXIS_CP ? 1
                  : op->axis == DTP_AXIS_EP ? 2
                                            : -1;
        if (net >= 0)
            t->net_bytes[net] += op->count * op->bytes * (op->collective == DTP_ALL_REDUCE ? 2 : 1);
        t->launches += op->count;
        t->collectives += op->count;
        return;
    }
    double gap_s = memo->problem->cluster->gpu.kernel_gap_s + f->kernel_gap_s;
    t->compute_s += time_s + op->count * op->launches * gap_s;
    if (op->count * op->launches > 0) {
        t->kernels_s += time_s;
        t->kernels_s2 += time_s * time_s / (op->count * op->launches);
    }
    t->flops += dtp_op_flops(op);
    t->launches += op->count * op->launches;
    if (op->kind == DTP_OP_GEMM)
        t->gemm_s += time_s;
    if (op->kind == DTP_OP_ATTENTION)
        t->attention_s += time_s;
}

/* The part of a collective that runs beside `cover_s` of compute is hidden; the compute beside it slows
 * by the GPU's comm_slowdown share. Returns what stays exposed. */
static double expose(double comm_s, double cover_s, double fraction, double slowdown) {
    double hidden_s = comm_s * fraction < cover_s ? comm_s * fraction : cover_s;
    return comm_s - hidden_s + slowdown * hidden_s;
}

static struct dtp_phase settle(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                               const struct tally *t, double tp_cover_s) {
    const struct dtp_framework *f = memo->problem->framework;
    double slowdown = memo->problem->cluster->gpu.comm_slowdown;
    double ring = plan->cp > 1 ? (plan->cp - 1.0) / plan->cp : 0;
    struct dtp_phase phase = {
        .compute_s = t->compute_s,
        .tp_s = t->exposed_s[DTP_AXIS_TP] +
                expose(t->overlapped_s[DTP_AXIS_TP], tp_cover_s, f->tp_overlap_fraction, slowdown),
        .cp_s = t->exposed_s[DTP_AXIS_CP] +
                expose(t->overlapped_s[DTP_AXIS_CP], ring * t->attention_s, 1, slowdown),
        .ep_s = t->exposed_s[DTP_AXIS_EP] + t->overlapped_s[DTP_AXIS_EP],
        .flops = t->flops,
        .net_bytes = {t->net_bytes[0], t->net_bytes[1], t->net_bytes[2]},
    };
    phase.total_s = phase.compute_s + phase.tp_s + phase.cp_s + phase.ep_s;
    return phase;
}

/* From a launch to the kernel's start, and from its end to the host's return: 5 us each (CUDA, usual). */
static const double launch_round_trip_s = 1e-5;
/* The same for each launch under CUDA_LAUNCH_BLOCKING, set on all runs of bloom_prequel: it holds what
 * the host of these runs takes for a launch beyond launch_s, which another machine's runs gave. */
static const double blocked_launch_s = 4.2e-5;

static void wait_for_host(struct dtp_phase *phase, double wait_s) {
    if (wait_s <= 0)
        return;
    phase->host_s += wait_s;
    phase->total_s += wait_s;
}

/* Host time of a layer beside its kernels': per direction and recomputation; of its unshard; of each
 * collective. */
struct layer_host {
    double layer_s, unshard_s, collective_s;
};

/* Two clocks: a kernel starts when the one before it has ended and the host has launched it. The host runs
 * ahead through the queue, so over a stretch in which it never waits for the GPU the time is the larger
 * of the two sums. Where the host waits at the start of each microbatch the forward is a stretch of its
 * own, and what the host gains on it helps the backward. Where every launch waits for its kernel the two
 * add up. */
static void two_clocks(const struct dtp_framework *f, const struct tally t[4],
                       struct layer_host host, struct dtp_phase phase[4]) {
    double launch_s = f->launch_s, back_s = launch_s * f->backward_launch_factor;
    double layer_host_s = host.layer_s;
    bool again = t[PHASE_R].launches > 0;
    double forward_s = t[PHASE_F].launches * launch_s + t[PHASE_F].collectives * host.collective_s +
                       layer_host_s + host.unshard_s;
    double backward_s = (t[PHASE_I].launches + t[PHASE_W].launches) * back_s +
                        (t[PHASE_I].collectives + t[PHASE_W].collectives) * host.collective_s +
                        layer_host_s + host.unshard_s;
    if (again)
        backward_s += t[PHASE_R].launches * launch_s + t[PHASE_R].collectives * host.collective_s +
                      layer_host_s;
    double gpu_s = phase[PHASE_F].total_s + phase[PHASE_I].total_s + phase[PHASE_W].total_s +
                   phase[PHASE_R].total_s;
    if (f->launch_blocking) {
        double backward = t[PHASE_I].launches + t[PHASE_W].launches + t[PHASE_R].launches;
        wait_for_host(&phase[PHASE_F], forward_s + t[PHASE_F].launches * blocked_launch_s);
        wait_for_host(&phase[PHASE_I], backward_s + backward * blocked_launch_s);
        return;
    }
    double wait_s = forward_s - phase[PHASE_F].total_s, all_s = forward_s + backward_s - gpu_s;
    if (!f->host_sync && wait_s > all_s)
        wait_s = all_s;
    wait_for_host(&phase[PHASE_F], wait_s);
    wait_for_host(&phase[PHASE_I], all_s - (wait_s > 0 ? wait_s : 0));
}

/* Number of operations that full recomputation repeats: all, or as PyTorch's checkpoint does without
 * re-entering autograd: up to the last tensor that the forward kept. A GEMM keeps its inputs, so that
 * it does not run itself; another kernel keeps what it makes. */
static int recomputed_ops(const struct dtp_framework *f, const struct dtp_ops *ops) {
    if (!f->recompute_stops_early)
        return ops->n;
    for (int i = ops->n - 1; i >= 0; i--)
        if (ops->at[i].pass == DTP_PASS_F && ops->at[i].saved_bytes > 0)
            return ops->at[i].kind == DTP_OP_GEMM ? i : i + 1;
    return 0;
}

/* Returns the mean duration of its kernels by time. */
static double layer_phases(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                           enum dtp_layer_kind kind, struct dtp_phase out[4]) {
    struct tally t[4] = {0};
    dtp_ops_layer(memo->problem, plan, kind, &memo->ops);
    int recomputed = recomputed_ops(memo->problem->framework, &memo->ops);
    bool repeats = kind == DTP_LAYER_DENSE || kind == DTP_LAYER_MOE || kind == DTP_LAYER_CONV;
    for (int i = 0; i < memo->ops.n; i++) {
        const struct dtp_op *op = &memo->ops.at[i];
        tally_op(memo, plan, op, &t[op->pass]);
        bool again = (plan->recompute == DTP_RECOMPUTE_FULL && i < recomputed) ||
                     (plan->recompute == DTP_RECOMPUTE_SELECTIVE && op->core);
        if (repeats && again && op->pass == DTP_PASS_F)
            tally_op(memo, plan, op, &t[PHASE_R]);
    }
    out[PHASE_F] = settle(memo, plan, &t[PHASE_F], t[PHASE_F].gemm_s);
    /* Backward tp collectives hide behind the weight-gradient and input-gradient GEMMs. */
    out[PHASE_I] = settle(memo, plan, &t[PHASE_I], t[PHASE_W].gemm_s + t[PHASE_I].gemm_s);
    out[PHASE_W] = settle(memo, plan, &t[PHASE_W], 0);
    out[PHASE_R] = settle(memo, plan, &t[PHASE_R], t[PHASE_R].gemm_s);
    const struct dtp_framework *f = memo->problem->framework;
    struct layer_host host = {.layer_s = repeats ? f->layer_host_s : 0,
                              .unshard_s = repeats && plan->zero_stage == 3 ? f->zero3_host_s : 0,
                              .collective_s =
                                  f->collective_host_s + dtp_framework_check_s(f, plan->tp)};
    two_clocks(f, t, host, out);
    if (kind == DTP_LAYER_MOE && f->moe_sync) { /* the GPU waits for what the host learns from it */
        wait_for_host(&out[PHASE_F], launch_round_trip_s + f->launch_s);
        if (t[PHASE_R].launches > 0)
            wait_for_host(&out[PHASE_R], launch_round_trip_s + f->launch_s);
    }
    double sum_s = 0, sum_s2 = 0;
    for (int k = 0; k < 4; k++) {
        sum_s += t[k].kernels_s;
        sum_s2 += t[k].kernels_s2;
    }
    return sum_s > 0 ? sum_s2 / sum_s : 0;
}

const struct dtp_layer_costs *dtp_cost_layers(struct dtp_cost_memo *memo,
                                              const struct dtp_plan *plan) {
    uint64_t key[2];
    layer_key(memo, plan, key);
    const struct memo_entry *known = table_slot(&memo->layers, key);
    if (known->value)
        return known->value;
    const struct dtp_model *m = memo->problem->model;
    struct dtp_layer_costs *costs = DTP_NEW(memo->a, struct dtp_layer_costs, 1);
    if (m->nconvs > 0) {
        costs->kernel_s = layer_phases(memo, plan, DTP_LAYER_CONV, costs->dense);
    } else {
        costs->kernel_s = layer_phases(memo, plan, DTP_LAYER_DENSE, costs->dense);
        layer_phases(memo, plan, DTP_LAYER_EMBEDDING, costs->embedding);
        layer_phases(memo, plan, DTP_LAYER_HEAD, costs->head);
        if (m->moe.experts > 0)
            layer_phases(memo, plan, DTP_LAYER_MOE, costs->moe);
    }
    table_put(&memo->layers, memo->a, key, costs);
    return costs;
}

bool dtp_shares_cores(const struct dtp_problem *problem) {
    const struct dtp_node *n = &problem->cluster->node;
    return n->intra == DTP_INTRA_SHM && n->cores > 0 && problem->gpus > n->cores;
}

/* ---- stages ----------------------------------------------------------------------------------- */

static void phase_add(struct dtp_phase *sum, const struct dtp_phase *p, double times) {
    sum->total_s += times * p->total_s;
    sum->compute_s += times * p->compute_s;
    sum->tp_s += times * p->tp_s;
    sum->cp_s += times * p->cp_s;
    sum->ep_s += times * p->ep_s;
    sum->dp_s += times * p->dp_s;
    sum->pp_s += times * p->pp_s;
    sum->host_s += times * p->host_s;
    sum->flops += times * p->flops;
    for (int axis = 0; axis < 3; axis++)
        sum->net_bytes[axis] += times * p->net_bytes[axis];
}

static void stage_phases(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                         const struct dtp_layer_costs *layer, int vs, struct dtp_stage_cost *out) {
    const struct dtp_model *m = memo->problem->model;
    struct dtp_phase *phase[4] = {&out->f, &out->i, &out->w, &out->r};
    if (m->nconvs > 0) {
        for (int k = 0; k < 4; k++)
            *phase[k] = layer->dense[k];
        return;
    }
    struct dtp_stage stage;
    dtp_stage_of(m, &memo->params, plan, vs, &stage);
    int n = stage.layers, moe = stage.moe_layers;
    for (int k = 0; k < 4; k++) {
        double share = 1; /* of the layers whose forward is repeated */
        if (k == PHASE_R && plan->recompute == DTP_RECOMPUTE_FULL && plan->recompute_layers > 0 &&
            plan->recompute_layers < n)
            share = plan->recompute_layers / (double)n;
        phase_add(phase[k], &layer->dense[k], share * (n - moe));
        phase_add(phase[k], &layer->moe[k], share * moe);
        if (stage.first)
            phase_add(phase[k], &layer->embedding[k], 1);
        if (stage.last)
            phase_add(phase[k], &layer->head[k], 1);
    }
    double host_s = memo->problem->framework->microbatch_host_s / plan->vpp;
    out->f.host_s += host_s;
    out->f.total_s += host_s;
}

static struct dtp_comm comm(const struct dtp_problem *problem, enum dtp_collective kind,
                            enum dtp_axis axis, enum dtp_algo algo,
                            const struct dtp_group_shape *shape, double bytes) {
    struct dtp_coll_cost cost;
    double factor = problem->framework->comm_time_factor;
    dtp_coll_cost(problem->cluster, kind, algo, shape, bytes, &cost);
    return (struct dtp_comm){.kind = kind,
                             .axis = axis,
                             .algo = cost.algo,
                             .bytes = cost.time_s > 0 ? bytes : 0,
                             .time_s = cost.time_s * factor,
                             .latency_s = cost.latency_s * factor,
                             .device_share = problem->cluster->gpu.comm_slowdown};
}

static void comm_add(struct dtp_comm *sum, const struct dtp_comm *c) {
    if (sum->time_s <= 0) {
        *sum = *c;
        return;
    }
    sum->bytes += c->bytes;
    sum->time_s += c->time_s;
    sum->latency_s += c->latency_s;
}

/* Groups of data parallelism. */
struct replica_shapes {
    struct dtp_group_shape all[2]; /* of dense parameters, of experts */
    struct dtp_group_shape tp, zero, replica;
};

static struct replica_shapes replica_shapes(const struct dtp_problem *problem,
                                            const struct dtp_placement *p) {
    const struct dtp_cluster *c = problem->cluster;
    return (struct replica_shapes){.all = {dtp_placement_shape(p, c, DTP_AXIS_DP_CP, 0),
                                           dtp_placement_shape(p, c, DTP_AXIS_EDP, 0)},
                                   .tp = dtp_placement_shape(p, c, DTP_AXIS_TP, 0),
                                   .zero = dtp_placement_shape(p, c, DTP_AXIS_ZERO, 0),
                                   .replica = dtp_placement_shape(p, c, DTP_AXIS_REPLICA, 0)};
}

/* Sharded inside the group, replicated between groups (HSDP): gradients are reduce-scattered in the
 * group, then every shard is summed over the groups. The two run on streams of their own, so that the
 * longer of them sets the pace and the other adds itself once to all units. */
static struct dtp_comm hybrid_reduce(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                     const struct replica_shapes *shape, double bytes, int nunits) {
    struct dtp_comm inside =
        comm(problem, DTP_REDUCE_SCATTER, DTP_AXIS_ZERO, plan->dp_algo, &shape->zero, bytes);
    struct dtp_comm between = comm(problem, DTP_ALL_REDUCE, DTP_AXIS_REPLICA, plan->dp_algo,
                                   &shape->replica, bytes / plan->zero_group);
    bool far = between.time_s > inside.time_s;
    struct dtp_comm longer = far ? between : inside;
    double rest_s = (far ? inside.time_s : between.time_s) / nunits;
    longer.time_s += rest_s;
    longer.latency_s += rest_s; /* not on the links of the longer */
    return longer;
}

static bool hybrid(const struct dtp_framework *f, const struct dtp_plan *plan) {
    bool unshards = plan->zero_stage == 2 && f->memory.gathered_bytes > 0;
    return plan->zero_group > 0 && (unshards || plan->zero_stage == 3);
}

static int units_of(double total, double unit) {
    return unit > 0 && total > unit ? (int)(total / unit + 0.999999) : 1;
}

/* Gradient reduction, gather and unshard of a stage: in units of one bucket, or one layer with ZeRO-3. */
static void stage_data_parallel(const struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                                const struct replica_shapes *shape, int vs,
                                struct dtp_stage_cost *out) {
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_framework *f = problem->framework;
    if (f->native) {
        dtp_native_data_parallel(problem, plan, &shape->all[0], &shape->tp, vs, out);
        return;
    }
    struct dtp_stage stage;
    dtp_stage_of(problem->model, &memo->params, plan, vs, &stage);
    double params[2] = {stage.dense_params, stage.expert_params};
    double total_bytes = (params[0] + params[1]) * f->reduce_bytes;
    /* Megatron-core: buckets of at least 40 M parameters and 1 M per data-parallel rank, so that the latency
     * of a ring stays small beside its traffic. */
    double bucket_bytes = f->dp_bucket_params_per_rank * plan->dp * plan->cp * f->reduce_bytes;
    if (f->dp_bucket_bytes > bucket_bytes)
        bucket_bytes = f->dp_bucket_bytes;
    out->nreduce = units_of(total_bytes, bucket_bytes);
    if (plan->zero_stage == 3)
        out->nunshard =
            f->zero3_unit_params > 0
                ? units_of(params[0] + params[1], dtp_framework_unit_params(f, problem->model))
            : stage.layers > 0 ? stage.layers
                               : 1;
    if (plan->zero_stage == 3 && !f->zero3_buckets)
        out->nreduce = out->nunshard;
    bool scatter = plan->zero_stage == 3 || (plan->zero_stage == 2 && f->zero2_reduce_scatter) ||
                   (plan->zero_stage == 1 && f->zero1_reduce_scatter);
    bool grouped = plan->zero_group > 0; /* summed over all replicas, gathered in the group */
    static const enum dtp_axis axis[2] = {DTP_AXIS_DP_CP, DTP_AXIS_EDP};
    for (int k = 0; k < 2; k++) {
        if (params[k] <= 0 || shape->all[k].size <= 1)
            continue;
        double unit_bytes = params[k] / out->nreduce * f->reduce_bytes;
        int gathers = plan->zero_stage == 3 ? out->nunshard : out->nreduce;
        struct dtp_comm c =
            hybrid(f, plan)
                ? hybrid_reduce(problem, plan, shape, unit_bytes, out->nreduce)
                : comm(problem, scatter && !grouped ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, axis[k],
                       plan->dp_algo, &shape->all[k], unit_bytes);
        comm_add(&out->reduce, &c);
        if (plan->zero_stage == 0)
            continue;
        c = comm(problem, DTP_ALL_GATHER, grouped ? DTP_AXIS_ZERO : axis[k], plan->dp_algo,
                 grouped ? &shape->zero : &shape->all[k],
                 params[k] / gathers * dtp_framework_gathered_bytes(f));
        comm_add(plan->zero_stage == 3 ? &out->unshard : &out->gather, &c);
    }
    if (plan->zero_stage == 3 && out->unshard.time_s > 0) /* from the host first */
        out->unshard.time_s +=
            dtp_offload_fetch_s(problem, plan, (params[0] + params[1]) / out->nunshard);
}

static struct dtp_comm transfer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                const struct dtp_placement *placement,
                                const struct dtp_group_shape *tp_shape, int from, int to) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_node *node = &problem->cluster->node;
    if (from == to)
        return (struct dtp_comm){0};
    double full_bytes = (double)plan->microbatch_size * problem->seq / plan->cp *
                        problem->model->hidden * f->p2p_bytes;
    bool split = plan->tp > 1 && (f->scatter_gather || plan->sequence_parallel);
    double bytes = split ? full_bytes / plan->tp : full_bytes;
    int siblings = node->nics > 0 ? (node->gpus + node->nics - 1) / node->nics : 1;
    struct dtp_coll_cost cost;
    dtp_p2p_cost(problem->cluster, dtp_placement_rank(placement, 0, 0, 0, from),
                 dtp_placement_rank(placement, 0, 0, 0, to), siblings, bytes, &cost);
    if (f->inline_communication) /* the copies are the ranks' own: a wake-up is left */
        cost.time_s = cost.latency_s;
    double host_s = f->p2p_host_s + (f->checked_transfers ? f->check_transfer_s : 0);
    struct dtp_comm c = {.kind = DTP_SEND_RECV,
                         .axis = DTP_AXIS_PP,
                         .algo = cost.algo,
                         .bytes = bytes,
                         .time_s = cost.time_s * f->comm_time_factor + host_s,
                         .latency_s = cost.latency_s * f->comm_time_factor + host_s};
    if (split && !plan->sequence_parallel) { /* gathered again inside the node */
        struct dtp_comm gather =
            comm(problem, DTP_ALL_GATHER, DTP_AXIS_TP, DTP_ALGO_AUTO, tp_shape, full_bytes);
        c.time_s += gather.time_s;
        c.latency_s += gather.time_s; /* not on the NIC: counts as delay */
    }
    return c;
}

static void stage_transfers(const struct dtp_problem *problem, const struct dtp_plan *plan,
                            const struct dtp_placement *placement, struct dtp_costs *out) {
    struct dtp_group_shape tp = dtp_placement_shape(placement, problem->cluster, DTP_AXIS_TP, 0);
    for (int vs = 0; vs + 1 < out->nstages; vs++) {
        int from, to, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &from, &chunk);
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs + 1, &to, &chunk);
        out->stage[vs].send_f = transfer(problem, plan, placement, &tp, from, to);
        out->stage[vs + 1].send_b = transfer(problem, plan, placement, &tp, to, from);
    }
}

/* ---- once a step ------------------------------------------------------------------------------- */

static double optimizer_params(const struct dtp_plan *plan, const struct dtp_stage *stage) {
    double all = plan->zero_group > 0 ? plan->zero_group : (double)plan->dp * plan->cp;
    double replicas = plan->zero_stage >= 1 ? all : 1;
    double expert_replicas = plan->zero_stage >= 1 ? replicas / plan->ep : 1;
    return stage->dense_params / replicas + stage->expert_params / expert_replicas;
}

/* On the GPU; what is offloaded is updated on the host. */
static double optimizer_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                          double params) {
    if (plan->offload != DTP_OFFLOAD_NONE)
        return 0;
    double bytes = problem->framework->optimizer_bytes_moved * params;
    return dtp_framework_on(problem->framework, &problem->cluster->gpu).kernel_time_factor *
           dtp_device_kernel_s(&problem->cluster->gpu, DTP_K_OPTIMIZER, bytes, params);
}

static struct dtp_comm embedding_all_reduce(const struct dtp_problem *problem,
                                            const struct dtp_plan *plan,
                                            const struct dtp_placement *placement) {
    const struct dtp_framework *f = problem->framework;
    if (plan->pp == 1 || !problem->model->tied_embeddings || !f->tied_embedding_all_reduce)
        return (struct dtp_comm){0};
    int last = dtp_placement_rank(placement, 0, 0, 0, plan->pp - 1);
    int nodes = last / placement->gpus_per_node > 0 ? 2 : 1;
    struct dtp_group_shape shape = {.size = 2,
                                    .nodes = nodes,
                                    .per_node = 3 - nodes,
                                    .nics = nodes - 1,
                                    .siblings = 1,
                                    .tier = nodes - 2};
    double vocab = dtp_framework_padded_vocab(f, problem->model->vocab, plan->tp);
    double shards = f->native && plan->zero_stage > 0 ? plan->dp : 1;
    return comm(problem, DTP_ALL_REDUCE, DTP_AXIS_PP, DTP_ALGO_AUTO, &shape,
                vocab / plan->tp * problem->model->hidden * f->reduce_bytes / shards);
}

/* The gradient norm: one number summed over everything. */
static struct dtp_comm norm_all_reduce(const struct dtp_problem *problem,
                                       const struct dtp_plan *plan) {
    if (plan->tp * plan->pp == 1 && plan->zero_stage == 0 && !problem->framework->native)
        return (struct dtp_comm){0};
    int nodes = dtp_cluster_nnodes(problem->cluster, problem->gpus);
    struct dtp_group_shape shape = {.size = problem->gpus,
                                    .nodes = nodes,
                                    .per_node = problem->gpus / nodes,
                                    .nics = nodes > 1 ? 1 : 0,
                                    .siblings = 1,
                                    .tier = nodes > 1 ? 0 : -1};
    struct dtp_comm c = comm(problem, DTP_ALL_REDUCE, DTP_AXIS_PP, DTP_ALGO_AUTO, &shape, 8);
    c.device_share = 0;
    return c;
}

static void step_costs(struct dtp_arena *a, const struct dtp_cost_memo *memo,
                       const struct dtp_plan *plan, const struct dtp_placement *placement,
                       struct dtp_costs *out) {
    const struct dtp_problem *problem = memo->problem;
    out->optimizer_s = DTP_NEW(a, double, (size_t)plan->pp);
    double *params = DTP_NEW(a, double, (size_t)plan->pp);
    for (int vs = 0; vs < out->nstages; vs++) {
        int rank, chunk;
        struct dtp_stage stage;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        dtp_stage_of(problem->model, &memo->params, plan, vs, &stage);
        params[rank] += optimizer_params(plan, &stage);
    }
    double worst_params = 0;
    for (int s = 0; s < plan->pp; s++) {
        out->optimizer_s[s] = optimizer_s(problem, plan, params[s]);
        worst_params = params[s] > worst_params ? params[s] : worst_params;
    }
    out->embedding_all_reduce = embedding_all_reduce(problem, plan, placement);
    out->norm_all_reduce = norm_all_reduce(problem, plan);
    double backward_s = 0; /* of the first rank */
    for (int vs = 0; vs < out->nstages; vs++) {
        int rank, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        const struct dtp_stage_cost *stage = &out->stage[vs];
        backward_s += rank == 0 ? stage->i.total_s + stage->w.total_s + stage->r.total_s : 0;
    }
    out->offload_s = dtp_offload_exposed_s(problem, plan, worst_params, backward_s);
    out->step_host_s = problem->framework->step_host_s;
    out->model_flops = 3 * memo->forward_flops * plan->global_batch_size;
    out->hardware_flops = out->model_flops;
    double copies = (double)out->m * plan->dp * plan->cp * plan->tp;
    for (int vs = 0; vs < out->nstages; vs++)
        out->hardware_flops += out->stage[vs].r.flops * copies;
}

void dtp_costs(struct dtp_arena *a, struct dtp_cost_memo *memo, const struct dtp_plan *plan,
               struct dtp_costs *out) {
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_framework *f = problem->framework;
    const struct dtp_layer_costs *layer = dtp_cost_layers(memo, plan);
    struct dtp_placement placement;
    memset(out, 0, sizeof *out);
    if (dtp_placement_init(&placement, problem->cluster,
                           &(struct dtp_sizes){plan->tp, plan->cp, plan->dp, plan->pp, plan->ep},
                           f->rank_order, NULL) != DTP_OK)
        return;
    placement.zero_group = plan->zero_group;
    out->pp = plan->pp;
    out->vpp = plan->vpp;
    out->m = dtp_plan_num_microbatches(plan);
    out->nstages = plan->pp * plan->vpp;
    out->stage = DTP_NEW(a, struct dtp_stage_cost, (size_t)out->nstages);
    out->p2p_blocking = plan->p2p_overlap < 0 ? f->p2p_blocking : !plan->p2p_overlap;
    out->p2p_slots = f->p2p_slots;
    out->reduce_overlap = dtp_framework_dp_overlaps(f, plan->dp_overlap, plan->zero_stage);
    out->gather_overlap = f->param_gather_overlap;
    out->reduce_per_microbatch = plan->zero_stage >= 2 && f->reduce_per_microbatch;
    double params = (double)memo->params.total;
    out->regather_backward =
        f->zero3_regather_backward &&
        (f->zero3_reuse_params <= 0 || dtp_framework_reused_params(f, params) < params);
    out->zero_stage = plan->zero_stage;
    out->shares_cores = dtp_shares_cores(problem);
    out->prefetch = f->zero3_prefetch_layers;
    out->extrapolated = problem->cluster->gpu.not_calibrated;
    out->prefetch_forward = f->zero3_forward_prefetch ? f->zero3_prefetch_layers : 0;
    struct replica_shapes shape = replica_shapes(problem, &placement);
    for (int vs = 0; vs < out->nstages; vs++) {
        stage_phases(memo, plan, layer, vs, &out->stage[vs]);
        stage_data_parallel(memo, plan, &shape, vs, &out->stage[vs]);
        double wait_s = problem->cluster->gpu.comm_wait_kernels * layer->kernel_s;
        if (wait_s > problem->cluster->gpu.comm_wait_s)
            wait_s = problem->cluster->gpu.comm_wait_s;
        if (!f->inline_communication)
            out->stage[vs].reduce.wait_s = out->stage[vs].gather.wait_s =
                out->stage[vs].unshard.wait_s = wait_s;
    }
    stage_transfers(problem, plan, &placement, out);
    step_costs(a, memo, plan, &placement, out);
}

/* ---- what BOUND needs --------------------------------------------------------------------------- */

struct tail {
    double tail_s, fixed_s, reduce_s;
    int nreduce;
};

static const struct tail *first_rank_tail(struct dtp_cost_memo *memo, const struct dtp_plan *plan) {
    uint64_t key[2] = {(uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->ep << 28 |
                           (uint64_t)plan->pp << 42 | (uint64_t)plan->zero_stage << 58 |
                           (uint64_t)plan->offload << 60 | (uint64_t)plan->offload_to << 62,
                       (uint64_t)plan->dp | (uint64_t)plan->vpp << 20 |
                           (uint64_t)(plan->dp_overlap + 1) << 34 | (uint64_t)plan->dp_algo << 36 |
                           (uint64_t)plan->schedule << 40 | (uint64_t)plan->zero_group << 44 |
                           (uint64_t)plan->account_for_ends << 63};
    const struct memo_entry *known = table_slot(&memo->tails, key);
    bool even = plan->layers_per_stage.n == 0; /* the key does not hold a list of layers */
    if (known->value && even)
        return known->value;
    const struct dtp_problem *problem = memo->problem;
    const struct dtp_framework *f = problem->framework;
    struct tail *out = DTP_NEW(memo->a, struct tail, 1);
    struct dtp_placement placement;
    if (dtp_placement_init(&placement, problem->cluster,
                           &(struct dtp_sizes){plan->tp, plan->cp, plan->dp, plan->pp, plan->ep},
                           f->rank_order, NULL) != DTP_OK)
        return out;
    placement.zero_group = plan->zero_group;
    struct replica_shapes shape = replica_shapes(problem, &placement);
    bool overlapped = dtp_framework_dp_overlaps(f, plan->dp_overlap, plan->zero_stage);
    bool overlap =
        overlapped || plan->zero_stage == 3 || (plan->zero_stage == 2 && f->reduce_per_microbatch);
    double params = 0, last_unit_s = 0, sum_s = 0, gather_s = 0;
    for (int vs = 0; vs < plan->pp * plan->vpp; vs++) {
        int rank, chunk;
        dtp_schedule_holder(plan->schedule, plan->pp, plan->vpp, vs, &rank, &chunk);
        if (rank != 0)
            continue;
        struct dtp_stage_cost cost = {0};
        struct dtp_stage stage;
        stage_data_parallel(memo, plan, &shape, vs, &cost);
        dtp_stage_of(problem->model, &memo->params, plan, vs, &stage);
        params += optimizer_params(plan, &stage);
        sum_s += cost.nreduce * cost.reduce.time_s;
        gather_s += cost.nreduce * cost.gather.time_s;
        if (vs == 0)
            last_unit_s = cost.reduce.time_s;
        if (vs == 0 && overlapped && plan->zero_stage < 3) {
            out->nreduce = cost.nreduce;
            out->reduce_s = cost.reduce.time_s;
        }
    }
    out->tail_s = (overlap ? last_unit_s : sum_s) + (f->param_gather_overlap ? 0 : gather_s) +
                  embedding_all_reduce(problem, plan, &placement).time_s +
                  norm_all_reduce(problem, plan).time_s + optimizer_s(problem, plan, params);
    out->fixed_s = dtp_offload_exposed_s(problem, plan, params, INFINITY) + f->step_host_s;
    if (even)
        table_put(&memo->tails, memo->a, key, out);
    return out;
}

static const double *least_transfer_s(struct dtp_cost_memo *memo, const struct dtp_plan *plan) {
    uint64_t key[2] = {(uint64_t)plan->tp | (uint64_t)plan->cp << 14 | (uint64_t)plan->pp << 28 |
                           (uint64_t)plan->microbatch_size << 42 |
                           (uint64_t)plan->sequence_parallel << 62,
                       (uint64_t)plan->dp};
    const struct memo_entry *known = table_slot(&memo->transfers, key);
    if (known->value)
        return known->value;
    const struct dtp_problem *problem = memo->problem;
    double *out_s = DTP_NEW(memo->a, double, 1);
    struct dtp_placement placement;
    if (dtp_placement_init(&placement, problem->cluster,
                           &(struct dtp_sizes){plan->tp, plan->cp, plan->dp, plan->pp, plan->ep},
                           problem->framework->rank_order, NULL) == DTP_OK) {
        struct dtp_group_shape tp =
            dtp_placement_shape(&placement, problem->cluster, DTP_AXIS_TP, 0);
        for (int s = 0; s < plan->pp; s++) {
            int to = (s + 1) % plan->pp;
            double t_s = transfer(problem, plan, &placement, &tp, s, to).time_s;
            double back_s = transfer(problem, plan, &placement, &tp, to, s).time_s;
            t_s = t_s < back_s ? t_s : back_s;
            *out_s = s == 0 || t_s < *out_s ? t_s : *out_s;
        }
    }
    table_put(&memo->transfers, memo->a, key, out_s);
    return out_s;
}

void dtp_cost_bound(struct dtp_cost_memo *memo, const struct dtp_plan *plan,
                    struct dtp_bound_costs *out) {
    const struct tail *tail = first_rank_tail(memo, plan);
    *out = (struct dtp_bound_costs){.p2p_s = plan->pp > 1 ? *least_transfer_s(memo, plan) : 0,
                                    .fixed_s = tail->fixed_s,
                                    .tail_s = tail->tail_s,
                                    .nreduce = tail->nreduce,
                                    .reduce_s = tail->reduce_s};
}
