/* FLOPs and seconds of one operation. */
#include "hw/nccl.h"
#include "models/ops/op_build.h"

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

/* The network cards at their own rate, or the fabric's where it is less, and beside them the rows that the GPUs of a
 * node pass on (DeepEP reaches 43 to 58 GB/s of 50 between nodes: deepseek-ai/DeepEP, README, internode kernels of 16
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

/* By rows and columns where they were measured, of an element read and one written: a kernel that moves less
 * takes that much less. */
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
