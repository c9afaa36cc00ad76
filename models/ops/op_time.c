/* FLOPs, seconds and energy of operations, and the clock at which a chip runs the layers of a model when they would
 * take more power than it has. */
#include "hw/nccl.h"
#include "models/ops/op_internal.h"
#include "models/ops/op_native.h"
#include "models/schedule/schedule.h"

double dtp_op_flops(const struct dtp_op *op) {
    switch (op->kind) {
    case DTP_OP_GEMM:
    case DTP_OP_BMM:
        return op->count * 2.0 * (double)op->gemm.m * (double)op->gemm.n * (double)op->gemm.k *
               (double)op->gemm.batch;
    case DTP_OP_ATTENTION:
        return op->count * dtp_attention_flops(&op->attention);
    case DTP_OP_KERNEL:
    case DTP_OP_COLLECTIVE:
        return 0;
    }
    return 0;
}

/* A token that goes once to each node: of the nodes one holds none of its k experts with the chance
 * C(E - E / nodes, k) / C(E, k). Over the k rows that go otherwise. */
static double once_share(const struct dtp_moe *moe, int nodes) {
    double experts = moe->experts, here = experts / nodes, none = 1;
    for (int i = 0; i < moe->top_k; i++)
        none *= experts - i > here ? (experts - here - i) / (experts - i) : 0;
    return nodes * (1 - none) / moe->top_k;
}

static bool goes_once(const struct dtp_layer_key *key, const struct dtp_op *op,
                      const struct dtp_group_shape *shape) {
    return shape && key->ep_per_node > 0 && op->axis == DTP_AXIS_EP && shape->nodes > 1;
}

/* The network cards run at their rate, or at the fabric's if it is less, while the GPUs of a node pass rows to each
 * other (DeepEP reaches 43 to 58 GB/s of 50 between nodes: deepseek-ai/DeepEP, README, internode kernels of 16
 * to 64 ranks). */
static double per_node_s(const struct dtp_problem *problem, const struct dtp_op *op,
                         const struct dtp_group_shape *shape, const struct dtp_coll_cost *rows) {
    struct dtp_group_shape one = *shape;
    struct dtp_group_shape inside = {.size = shape->per_node,
                                     .nodes = 1,
                                     .per_node = shape->per_node,
                                     .siblings = 1,
                                     .tier = -1};
    struct dtp_coll_cost cost = {0};
    one.per_node = one.nics = 1;
    double nic_s = once_share(&problem->model->moe, shape->nodes) * rows->nic_bytes /
                       dtp_coll_ring_bytes_per_s(problem->cluster, &one) +
                   rows->latency_s;
    if (inside.size > 1)
        dtp_coll_cost(problem->cluster, op->collective, DTP_ALGO_AUTO, &inside, op->bytes, &cost);
    return nic_s > cost.time_s ? nic_s : cost.time_s;
}

double dtp_op_net_share(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                        const struct dtp_op *op) {
    bool once = op->kind == DTP_OP_COLLECTIVE && goes_once(key, op, key->ep_shape);
    return once ? once_share(&problem->model->moe, key->ep_shape->nodes) : 1;
}

static const struct dtp_group_shape *shape_of(const struct dtp_layer_key *key, enum dtp_axis axis) {
    return axis == DTP_AXIS_TP   ? key->tp_shape
           : axis == DTP_AXIS_CP ? key->cp_shape
           : axis == DTP_AXIS_EP ? key->ep_shape
                                 : key->etp_shape;
}

static double collective_time_s(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                                const struct dtp_op *op) {
    const struct dtp_group_shape *shape = shape_of(key, op->axis);
    if (!shape) /* the cluster has no place for the plan */
        return 0;
    struct dtp_coll_cost cost;
    enum dtp_algo algo = op->axis == DTP_AXIS_TP ? key->tp_algo : DTP_ALGO_AUTO;
    dtp_coll_cost(problem->cluster, op->collective, algo, shape, op->bytes, &cost);
    double steps = op->collective == DTP_ALL_REDUCE ? 2.0 * (shape->size - 1) : shape->size - 1;
    double alone_s =
        goes_once(key, op, shape) ? per_node_s(problem, op, shape, &cost) : cost.time_s;
    double time_s = alone_s * problem->framework->wire.comm_time_factor;
    if (op->axis != DTP_AXIS_TP || shape->nodes < 2 ||
        problem->framework->quirks.slow_hops.tp_hop_s <= 0)
        return time_s;
    const struct dtp_node *node = &problem->cluster->node;
    double hops_s = steps * problem->framework->quirks.slow_hops.tp_hop_s +
                    cost.nic_bytes / (node->nic_bytes_per_s * node->nic_efficiency);
    return time_s > hops_s ? time_s : hops_s;
}

/* Times a kernel by rows and columns if they were measured, with one element read and one written: a kernel that
 * moves less takes less in proportion. */
static double kernel_time_s(const struct dtp_gpu *gpu, enum dtp_dtype dtype,
                            const struct dtp_op *op) {
    double rows_s = dtp_device_rows_s(gpu, op->kernel, op->rows, op->cols);
    if (!(rows_s > 0))
        return dtp_device_kernel_s(gpu, op->kernel, op->bytes, op->elements);
    return rows_s * op->bytes / (2.0 * dtp_dtype_bytes(dtype) * op->rows * op->cols);
}

enum { SMALL_HEAD = 64 };

double dtp_op_seconds(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                      const struct dtp_op *op) {
    const struct dtp_gpu *gpu = &problem->cluster->gpu;
    struct dtp_framework_gpu on = dtp_framework_on(problem->framework, gpu);
    double time_s = 0;
    switch (op->kind) {
    case DTP_OP_GEMM:
        time_s = dtp_device_gemm_s(gpu, &op->gemm);
        break;
    case DTP_OP_BMM:
        time_s = dtp_device_bmm_s(gpu, &op->gemm);
        break;
    case DTP_OP_ATTENTION:
        time_s = dtp_device_attention_s(gpu, &op->attention);
        break;
    case DTP_OP_KERNEL:
        time_s = kernel_time_s(gpu, key->dtype, op);
        if (op->launches <= 0 && time_s > 0) /* the end of another kernel */
            time_s -= gpu->kernel[op->kernel].latency_s;
        if (op->kernel == DTP_K_NORM)
            time_s *= on.norm_time_factor;
        if (op->kernel == DTP_K_NORM_BACKWARD)
            time_s *= on.norm_backward_time_factor;
        break;
    case DTP_OP_COLLECTIVE:
        return op->count * collective_time_s(problem, key, op);
    }
    if (op->kind != DTP_OP_KERNEL)
        time_s *= dtp_device_slowest(gpu, problem->gpus);
    if (op->kind == DTP_OP_ATTENTION && key->cp > 1)
        time_s *= problem->framework->kernels.cp_attention_factor;
    if (op->kind == DTP_OP_ATTENTION && op->attention.head_dim <= SMALL_HEAD)
        time_s *= problem->framework->quirks.small_heads.small_head_factor;
    return op->count * time_s *
           (op->kind == DTP_OP_ATTENTION ? on.attention_time_factor : on.kernel_time_factor) *
           op->slowdown;
}

double dtp_op_time_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                     const struct dtp_op *op) {
    struct dtp_placed placed;
    struct dtp_layer_key key;
    bool sends = op->kind == DTP_OP_COLLECTIVE;
    if (sends)
        dtp_placed_make(problem, plan, &placed);
    dtp_layer_key_of(problem, plan, sends ? &placed : NULL, &key);
    return dtp_op_seconds(problem, &key, op);
}

/* ---- the clock ---- */

bool dtp_op_is_product(const struct dtp_op *op) {
    return op->kind == DTP_OP_GEMM || op->kind == DTP_OP_ATTENTION;
}

static double gemm_j_per_flop(const struct dtp_power_cal *p, enum dtp_dtype dtype) {
    double narrow = dtype == DTP_FP8 ? p->fp8_energy : dtype == DTP_FP4 ? p->fp4_energy : 0;
    return (narrow > 0 ? narrow : 1) * p->gemm_j_per_flop;
}

/* Kernels for 128 compute head_dim 80 and 96, too: these take their time and, on H200, within 10 % their energy
 * (traces/measured/check_cuda_h200.json, energy_of_kernels). */
static double computed_flops(const struct dtp_attention_shape *s) {
    static const int64_t width[] = {64, 128};
    double dim = (double)s->head_dim;
    for (size_t i = 0; i < sizeof width / sizeof width[0]; i++)
        if (s->head_dim <= width[i])
            return dtp_attention_flops(s) * (double)width[i] / dim;
    return dtp_attention_flops(s);
}

static double attention_j(const struct dtp_power_cal *p, const struct dtp_attention_shape *s) {
    double plain = s->backward ? p->attention_backward_j_per_flop : p->attention_j_per_flop;
    double drops =
        s->backward ? p->attention_dropout_backward_j_per_flop : p->attention_dropout_j_per_flop;
    return s->dropout && drops > 0 ? drops * dtp_attention_flops(s) : plain * computed_flops(s);
}

/* Bytes beyond the cache of what the kernel before has just written, or the next one reads. */
static double beyond_cache(const struct dtp_gpu *g, double bytes) {
    double l2_bytes = (double)g->l2_bytes;
    return bytes > l2_bytes ? bytes - l2_bytes : 0;
}

/* Weights, their gradients (fp32, added to) and what is kept for the backward come from memory or go there. */
static double gemm_bytes(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    enum { ADDED_BYTES = 8 };
    double e = dtp_dtype_bytes(s->dtype), m = (double)s->m, n = (double)s->n, k = (double)s->k;
    double in = beyond_cache(g, e * m * k), out = e * m * n;
    if (s->pass == DTP_GEMM_WGRAD)
        out = ADDED_BYTES * m * n;
    else if (s->pass == DTP_GEMM_DGRAD)
        out = beyond_cache(g, out);
    return (double)s->batch * (in + e * k * n + out);
}

/* Forward, queries, keys and values have just been made, the output is kept; backward, these four and its gradient are
 * read and three are made. */
static double attention_bytes(const struct dtp_gpu *g, const struct dtp_attention_shape *s) {
    enum { MADE = 3, KEPT = 4 };
    double e = dtp_dtype_bytes(s->dtype), rows = (double)(s->batch * s->seq_q);
    double each = e * rows * (double)(s->heads * s->head_dim), made = beyond_cache(g, MADE * each);
    return s->backward ? KEPT * each + beyond_cache(g, each) + made : each + made;
}

static double product_bytes(const struct dtp_gpu *g, const struct dtp_op *op) {
    return op->count * (op->kind == DTP_OP_GEMM ? gemm_bytes(g, &op->gemm)
                                                : attention_bytes(g, &op->attention));
}

/* Returns the joules that depend on the clock. */
static double product_j(const struct dtp_power_cal *p, const struct dtp_op *op) {
    return op->kind == DTP_OP_GEMM ? dtp_op_flops(op) * gemm_j_per_flop(p, op->gemm.dtype)
                                   : op->count * attention_j(p, &op->attention);
}

double dtp_op_droop(const struct dtp_gpu *g, const struct dtp_op *op) {
    return 1 / (op->kind == DTP_OP_GEMM ? dtp_device_gemm_clock(g, &op->gemm)
                                        : dtp_device_attention_clock(g, &op->attention));
}

/* One operation `times` over. */
static void add_op(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                   const struct dtp_op *op, double times, struct dtp_load_mix *m) {
    const struct dtp_gpu *g = &problem->cluster->gpu;
    double time_s = times * dtp_op_seconds(problem, key, op);
    if (dtp_op_is_product(op)) {
        m->product_s += time_s;
        m->product_j += times * product_j(&g->power, op);
        if (g->power.j_per_byte > 0)
            m->other_j += times * g->power.j_per_byte * product_bytes(g, op);
    } else {
        m->other_s += time_s;
        m->other_j +=
            time_s * (op->kind == DTP_OP_KERNEL ? g->kernel[op->kernel].power_w : g->power.comm_w);
    }
    m->other_s +=
        times * op->count * op->launches * dtp_framework_kernel_gap_s(problem->framework, g);
}

/* Bubble over work, mean over the ranks (Narayanan 2021, section 2.2); a backward in two parts leaves a
 * third of it (Qi 2023). */
static double rest_of(const struct dtp_layer_key *all) {
    enum { SPLIT = 3 };
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[all->schedule];
    double rest = (all->pp - 1.0) / all->vpp / (kind->serial ? 1 : all->microbatches);
    return kind->split_backward ? rest / SPLIT : rest;
}

struct dtp_load_mix dtp_op_load(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                                const struct dtp_ops *ops) {
    struct dtp_load_mix m = {0};
    for (int i = 0; i < ops->n; i++)
        add_op(problem, key, &ops->at[i], ops->at[i].repeated ? 2 : 1, &m);
    return m;
}

static void whole_model(const struct dtp_model *m, int n[DTP_NLAYER_KINDS]) {
    struct dtp_plan whole = dtp_plan_default();
    dtp_stage_count(m, &whole, 0, n);
}

/* Adds the collectives of ZeRO-2 and -3 of our runtime: the chip rests while ranks wait for them, and draws power
 * for them too while a layer runs. */
static void add_waits(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                      const struct dtp_load_mix *layer, double stretches, struct dtp_load_mix *m) {
    struct dtp_native_waits w = dtp_native_waits_of(problem, all);
    const double forward = 1.0 / 3, backward = 2.0 / 3; /* shares of a layer's time */
    double layer_s = layer->product_s + layer->other_s, hidden_s = 0;
    for (int pass = 0; pass < 2; pass++) {
        double beside_s = layer_s * (pass == 0 ? forward : backward);
        hidden_s +=
            problem->model->layers * (w.layer_gather_s < beside_s ? w.layer_gather_s : beside_s);
    }
    m->other_s += (w.reduce_s + w.gather_s - hidden_s) / stretches;
    m->other_j += problem->cluster->gpu.power.comm_w * (w.reduce_s + w.gather_s) / stretches;
}

/* A step of a stage, on the mean over the model: its bubble is one rest, while the pipeline fills before it
 * and empties behind it. The mean counts: the chip is slower to follow than a layer lasts. */
double dtp_op_slowdown(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                       const struct dtp_load_mix of[DTP_NLAYER_KINDS]) {
    int n[DTP_NLAYER_KINDS];
    double stretches = (double)all->pp / all->microbatches;
    struct dtp_load_mix mix = {.rest = rest_of(all)};
    whole_model(problem->model, n);
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        mix.product_s += n[k] * of[k].product_s / stretches;
        mix.product_j += n[k] * of[k].product_j / stretches;
        mix.other_s += n[k] * of[k].other_s / stretches;
        mix.other_j += n[k] * of[k].other_j / stretches;
    }
    if (problem->framework->kernels.ops == DTP_OPS_OWN && all->zero_stage >= 2)
        add_waits(problem, all, &of[DTP_LAYER_DENSE], stretches, &mix);
    return dtp_power_slowdown(&problem->cluster->gpu, &mix);
}

bool dtp_op_follows_clock(enum dtp_layer_kind kind) {
    return dtp_layer_is_block(kind) || kind == DTP_LAYER_HEAD || kind == DTP_LAYER_MTP;
}

/* Sets op->slowdown in the operations of a layer or head. */
static void set_clock(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                      enum dtp_layer_kind kind, struct dtp_ops *ops) {
    struct dtp_load_mix load[DTP_NLAYER_KINDS] = {0};
    struct dtp_ops other;
    int n[DTP_NLAYER_KINDS];
    if (!dtp_device_has_clock(&problem->cluster->gpu, all->dtype) || !dtp_op_follows_clock(kind))
        return;
    whole_model(problem->model, n);
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        if (n[k] == 0 || !dtp_op_follows_clock((enum dtp_layer_kind)k))
            continue;
        struct dtp_layer_key one;
        dtp_layer_key_kind(problem, all, (enum dtp_layer_kind)k, &one);
        dtp_op_list(problem, &one, &other);
        load[k] = dtp_op_load(problem, &one, &other);
    }
    double slowdown = dtp_op_slowdown(problem, all, load);
    for (int i = 0; i < ops->n; i++) {
        double droop =
            dtp_op_is_product(&ops->at[i]) ? dtp_op_droop(&problem->cluster->gpu, &ops->at[i]) : 0;
        if (droop > 0)
            ops->at[i].slowdown = droop > slowdown ? droop : slowdown;
    }
}

void dtp_ops_layer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                   enum dtp_layer_kind kind, struct dtp_ops *out) {
    struct dtp_placed placed;
    struct dtp_layer_key all, one;
    dtp_placed_make(problem, plan, &placed);
    dtp_layer_key_of(problem, plan, &placed, &all);
    dtp_layer_key_kind(problem, &all, kind, &one);
    dtp_op_list(problem, &one, out);
    set_clock(problem, &all, kind, out);
}
