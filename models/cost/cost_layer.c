/* This file makes the phases of one layer: it adds up operations, hides collectives, and follows the host's clock. */
#include <string.h>

#include "models/cost/cost_internal.h"
#include "models/ops/op.h"

/* One operation of a layer at the highest clock, and its part in the recomputation. */
struct timed_op {
    double time_s, gap_s, launches, flops, net_bytes;
    unsigned char kind, pass, axis;
    bool again, overlapped;
    bool product; /* matrix product of a layer or head: slower at a lower clock */
    double droop; /* slowdown of a product even at its highest possible clock */
};
struct layer_phases {
    struct dtp_phase phase[4];
    double kernel_s, memory_share; /* as in struct dtp_layer_costs */
};
/* Holds the phases at the highest clock or, if the clock depends on the plan, the kernels that they consist of. */
struct layer_kernels {
    struct layer_phases top;
    int n;
    struct timed_op *at;      /* NULL: at the highest clock alone */
    struct dtp_load_mix load; /* one layer at the highest clock */
};

/* What a pass of a layer takes before overlap is settled. */
struct tally {
    double compute_s, gemm_s, attention_s, flops;
    double exposed_s[DTP_NAXES], overlapped_s[DTP_NAXES];
    double launches, collectives; /* the host's */
    double net_bytes[DTP_NET_AXES];
    double kernels_s, kernels_s2; /* sums of the kernels' durations and of their squares */
    double memory_s;              /* memory-bound part of kernels_s */
};

static void tally_op(const struct timed_op *op, double slowdown, struct tally *t) {
    double slower = op->droop > slowdown ? op->droop : slowdown;
    double time_s = op->product ? op->time_s * slower : op->time_s;
    t->launches += op->launches;
    if (op->kind == DTP_OP_COLLECTIVE) {
        t->exposed_s[op->axis] += op->gap_s;
        *(op->overlapped ? &t->overlapped_s[op->axis] : &t->exposed_s[op->axis]) += time_s;
        for (int net = 0; net < DTP_NET_AXES; net++)
            t->net_bytes[net] += op->axis == dtp_net_axis[net] ? op->net_bytes : 0;
        t->collectives += op->launches;
        return;
    }
    t->compute_s += time_s + op->gap_s;
    if (op->launches > 0) {
        t->kernels_s += time_s;
        t->kernels_s2 += time_s * time_s / op->launches;
        t->memory_s += op->kind == DTP_OP_KERNEL ? time_s : 0;
    }
    t->flops += op->flops;
    if (op->kind == DTP_OP_GEMM)
        t->gemm_s += time_s;
    if (op->kind == DTP_OP_ATTENTION)
        t->attention_s += time_s;
}

/* The part of a collective that overlaps `cover_s` of compute is hidden, and that compute slows down by
 * the GPU's comm_slowdown share. Returns what stays exposed. */
static double expose(double comm_s, double cover_s, double fraction, double slowdown) {
    double hidden_s = comm_s * fraction < cover_s ? comm_s * fraction : cover_s;
    return comm_s - hidden_s + slowdown * hidden_s;
}

static struct dtp_phase settle(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                               const struct tally *t, double tp_cover_s, double ep_cover_s) {
    const struct dtp_framework *f = problem->framework;
    double slowdown = problem->cluster->gpu.comm_slowdown;
    double ring = key->cp > 1 ? (key->cp - 1.0) / key->cp : 0;
    struct dtp_phase phase = {
        .compute_s = t->compute_s,
        .tp_s =
            t->exposed_s[DTP_AXIS_TP] + t->exposed_s[DTP_AXIS_ETP] +
            expose(t->overlapped_s[DTP_AXIS_TP], tp_cover_s, f->wire.tp_overlap_fraction, slowdown),
        .cp_s = t->exposed_s[DTP_AXIS_CP] +
                expose(t->overlapped_s[DTP_AXIS_CP], ring * t->attention_s, 1, slowdown),
        .ep_s = t->exposed_s[DTP_AXIS_EP] +
                expose(t->overlapped_s[DTP_AXIS_EP], ep_cover_s, 1, slowdown),
        .flops = t->flops,
    };
    memcpy(phase.net_bytes, t->net_bytes, sizeof phase.net_bytes);
    phase.hidden_s = t->exposed_s[DTP_AXIS_EP] + t->overlapped_s[DTP_AXIS_EP] - phase.ep_s;
    phase.total_s = phase.compute_s + phase.tp_s + phase.cp_s + phase.ep_s;
    return phase;
}

/* A kernel starts 5 us after its launch, and the host returns 5 us after its end (usual for CUDA). */
static const double launch_round_trip_s = 1e-5;

static void wait_for_host(struct dtp_phase *phase, double wait_s) {
    if (wait_s <= 0)
        return;
    phase->host_s += wait_s;
    phase->total_s += wait_s;
    phase->hidden_s -= wait_s < phase->hidden_s ? wait_s : phase->hidden_s;
}

/* Host time of a layer in addition to that of its kernels: per direction and recomputation, for its
 * unshard, and for each collective. */
struct layer_host {
    double layer_s, unshard_s, collective_s;
};

/* Two clocks: a kernel starts when the one before it has ended and the host has launched it. The queue
 * lets the host lead, so over a stretch in which it never waits for the GPU the time is the larger of the
 * two sums. If the host waits at the start of each microbatch, the forward is a separate stretch, and the
 * lead that the host gains in it helps the backward. If every launch waits for its kernel, the two sums
 * add up. */
static void two_clocks(const struct dtp_framework *f, const struct tally t[4],
                       struct layer_host host, struct dtp_phase phase[4]) {
    double launch_s = f->host.launch_s, back_s = launch_s * f->host.backward_launch_factor;
    double layer_host_s = host.layer_s;
    bool again = t[PHASE_R].launches > 0;
    double forward_s = t[PHASE_F].launches * launch_s + t[PHASE_F].collectives * host.collective_s +
                       layer_host_s + host.unshard_s;
    double backward_s = (t[PHASE_I].launches + t[PHASE_W].launches) * back_s +
                        (t[PHASE_I].collectives + t[PHASE_W].collectives) * host.collective_s +
                        layer_host_s + host.unshard_s;
    if (again)
        backward_s += t[PHASE_R].launches * launch_s + t[PHASE_R].collectives * host.collective_s +
                      layer_host_s * fmin(1, t[PHASE_R].launches / t[PHASE_F].launches);
    double gpu_s = phase[PHASE_F].total_s + phase[PHASE_I].total_s + phase[PHASE_W].total_s +
                   phase[PHASE_R].total_s;
    if (f->host.launch_blocking) {
        double backward = t[PHASE_I].launches + t[PHASE_W].launches + t[PHASE_R].launches;
        wait_for_host(&phase[PHASE_F], forward_s + t[PHASE_F].launches * launch_round_trip_s);
        wait_for_host(&phase[PHASE_I], backward_s + backward * launch_round_trip_s);
        return;
    }
    double wait_s = forward_s - phase[PHASE_F].total_s, all_s = forward_s + backward_s - gpu_s;
    if (!f->host.host_sync && wait_s > all_s)
        wait_s = all_s;
    wait_for_host(&phase[PHASE_F], wait_s);
    wait_for_host(&phase[PHASE_I], all_s - (wait_s > 0 ? wait_s : 0));
}

/* The mean duration of the kernels by time, and the share of the memory-bound ones. */
static void mean_kernel(const struct tally t[4], struct layer_phases *out) {
    double sum_s = 0, sum_s2 = 0, memory_s = 0;
    for (int k = 0; k < 4; k++) {
        sum_s += t[k].kernels_s;
        sum_s2 += t[k].kernels_s2;
        memory_s += t[k].memory_s;
    }
    out->kernel_s = sum_s > 0 ? sum_s2 / sum_s : 0;
    out->memory_share = sum_s > 0 ? memory_s / sum_s : 0;
}

static bool is_repeated(enum dtp_layer_kind kind) {
    return dtp_layer_is_block(kind) || kind == DTP_LAYER_CONV;
}

static struct timed_op time_op(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                               const struct dtp_op *op) {
    const struct dtp_framework *f = problem->framework;
    bool collective = op->kind == DTP_OP_COLLECTIVE;
    double launches = op->count * (collective ? 1 : op->launches);
    double gap_s = collective ? f->quirks.traced_gaps.collective_gap_s
                              : dtp_framework_kernel_gap_s(f, &problem->cluster->gpu);
    return (struct timed_op){.time_s = dtp_op_seconds(problem, key, op),
                             .gap_s = launches * gap_s,
                             .launches = launches,
                             .flops = dtp_op_flops(op),
                             .net_bytes = op->count * op->bytes *
                                          (op->collective == DTP_ALL_REDUCE ? 2 : 1) *
                                          dtp_op_net_share(problem, key, op),
                             .kind = (unsigned char)op->kind,
                             .pass = (unsigned char)op->pass,
                             .axis = (unsigned char)op->axis,
                             .overlapped = op->overlapped};
}

static void time_layer(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                       const struct dtp_ops *ops, struct timed_op *out) {
    bool clock = dtp_op_follows_clock(key->kind);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        out[i] = time_op(problem, key, op);
        out[i].again = op->repeated;
        out[i].product = clock && dtp_op_is_product(op);
        out[i].droop = out[i].product ? dtp_op_droop(&problem->cluster->gpu, op) : 1;
    }
}

static void add_up(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                   const struct layer_kernels *k, double slowdown, struct layer_phases *result) {
    struct tally t[4] = {0};
    struct dtp_phase *out = result->phase;
    bool repeats = is_repeated(key->kind);
    for (int i = 0; i < k->n; i++) {
        tally_op(&k->at[i], slowdown, &t[k->at[i].pass]);
        if (k->at[i].again)
            tally_op(&k->at[i], slowdown, &t[PHASE_R]);
    }
    /* Rows of a forward travel behind another microbatch's backward, those of a backward behind its forward; what
     * of the two is longer is left. Where there is no other, dtp_layout_row(), hidden_s more is. */
    double back_s = t[PHASE_I].compute_s + t[PHASE_W].compute_s;
    out[PHASE_F] = settle(problem, key, &t[PHASE_F], t[PHASE_F].gemm_s, back_s);
    /* Backward tp collectives hide behind the weight-gradient and input-gradient GEMMs. */
    out[PHASE_I] = settle(problem, key, &t[PHASE_I], t[PHASE_W].gemm_s + t[PHASE_I].gemm_s,
                          t[PHASE_F].compute_s);
    out[PHASE_W] = settle(problem, key, &t[PHASE_W], 0, 0);
    out[PHASE_R] = settle(problem, key, &t[PHASE_R], t[PHASE_R].gemm_s, 0);
    const struct dtp_framework *f = problem->framework;
    bool far = key->tp > problem->cluster->node.gpus;
    struct layer_host host = {
        .layer_s = (repeats ? f->host.layer_host_s : 0) +
                   (dtp_layer_has_experts(key->kind) ? f->host.moe_layer_host_s : 0),
        .unshard_s = repeats && key->zero_stage == 3 ? f->quirks.unshard_host.zero3_host_s : 0,
        .collective_s = dtp_framework_check_s(f, key->tp, far)};
    two_clocks(f, t, host, out);
    bool counted = dtp_framework_capacity(f, problem->model) <= 0; /* else the counts are known */
    if (dtp_layer_has_experts(key->kind) && f->host.moe_sync &&
        counted) { /* the GPU waits for what the host learns */
        wait_for_host(&out[PHASE_F], launch_round_trip_s + f->host.launch_s);
        if (t[PHASE_R].launches > 0)
            wait_for_host(&out[PHASE_R], launch_round_trip_s + f->host.launch_s);
    }
    mean_kernel(t, result);
}

/* ops, scratch: room for what is made and forgotten; a: keeps the kernels themselves where plans have a clock. */
static void make_kernels(struct dtp_arena *a, const struct dtp_problem *problem,
                         const struct dtp_layer_key *key, struct dtp_arena *scratch,
                         struct dtp_ops *ops, struct layer_kernels *k) {
    bool clock = dtp_device_has_clock(&problem->cluster->gpu, key->dtype);
    dtp_op_list(problem, key, ops);
    k->n = ops->n;
    k->at = DTP_NEW(clock ? a : scratch, struct timed_op, (size_t)k->n + 1);
    time_layer(problem, key, ops, k->at);
    if (!clock) {
        add_up(problem, key, k, 1, &k->top);
        k->at = NULL;
        dtp_arena_reset(scratch);
    } else if (dtp_op_follows_clock(key->kind)) {
        k->load = dtp_op_load(problem, key, ops);
    }
}

static const struct layer_kernels *find_kernels(struct dtp_cost_memo *memo,
                                                const struct dtp_layer_key *key) {
    const struct layer_kernels *known = dtp_memo_find(&memo->kernels, key);
    if (known)
        return known;
    struct layer_kernels *k = DTP_NEW(memo->a, struct layer_kernels, 1);
    make_kernels(memo->a, memo->problem, key, memo->scratch, &memo->ops, k);
    dtp_memo_put(&memo->kernels, key, k);
    return k;
}

/* The model's repeated layer, whether there is a dense one or not, tells the mean kernel. */
static void put_phases(struct dtp_layer_costs *costs, enum dtp_layer_kind kind,
                       const struct layer_phases *x) {
    memcpy(costs->of[kind], x->phase, sizeof x->phase);
    if (kind == DTP_LAYER_DENSE || kind == DTP_LAYER_CONV) {
        costs->kernel_s = x->kernel_s;
        costs->memory_share = x->memory_share;
    }
}

static const struct dtp_layer_costs *make_costs(struct dtp_cost_memo *memo,
                                                const struct dtp_layer_key *all) {
    const struct dtp_problem *problem = memo->problem;
    struct dtp_layer_costs *costs = DTP_NEW(memo->a, struct dtp_layer_costs, 1);
    bool conv = problem->model->nconvs > 0;
    const struct layer_kernels *kernels[DTP_NLAYER_KINDS] = {NULL};
    struct dtp_layer_key key[DTP_NLAYER_KINDS];
    struct dtp_load_mix load[DTP_NLAYER_KINDS] = {0};
    for (int i = 0; i < DTP_NLAYER_KINDS; i++)
        if (i == DTP_LAYER_DENSE ? !conv : memo->kinds[i] > 0) {
            dtp_layer_key_kind(problem, all, (enum dtp_layer_kind)i, &key[i]);
            kernels[i] = find_kernels(memo, &key[i]);
            load[i] = kernels[i]->load;
        }
    double slowdown = dtp_device_has_clock(&problem->cluster->gpu, all->dtype)
                          ? dtp_op_slowdown(problem, all, load)
                          : 1;
    for (int i = 0; i < DTP_NLAYER_KINDS; i++) {
        const struct layer_kernels *k = kernels[i];
        if (!k)
            continue;
        struct layer_phases own = k->top;
        if (k->at)
            add_up(problem, &key[i], k, slowdown, &own);
        put_phases(costs, (enum dtp_layer_kind)i, &own);
    }
    return costs;
}

const struct dtp_layer_costs *dtp_cost_layers(struct dtp_cost_memo *memo,
                                              const struct dtp_plan *plan) {
    struct dtp_layer_key key;
    dtp_layer_key_of(memo->problem, plan, dtp_placed_find(&memo->placed, plan), &key);
    const struct dtp_layer_costs *known = dtp_memo_find(&memo->layers, &key);
    if (known)
        return known;
    const struct dtp_layer_costs *costs = make_costs(memo, &key);
    dtp_memo_put(&memo->layers, &key, costs);
    return costs;
}
