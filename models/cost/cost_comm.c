/* This file times what stages send and reduce: data parallelism, transfers between stages, sums once a step. */
#include <math.h>

#include "hw/nccl.h"
#include "models/cost/cost_internal.h"
#include "models/ops/op_native.h"
#include "sim/base/units.h"

/* ---- offload ---- */

/* fp32 weights, momentum and variance are read and written, the gradient is read, 16-bit weights are
 * written: 3 x 8 + 4 + 2. DeepSpeed's CPUAdam updates 3.9e9 parameters a second at 1 to 10 billion (Ren
 * 2021, Table 4), 117 GB/s on a DGX-2's host. */
static const double adam_bytes = 30;
static const double state_bytes = 24; /* part of it that is on NVMe: read and written */

static int ranks_of_node(const struct dtp_problem *problem) {
    int gpus = problem->cluster->node.gpus;
    return problem->gpus < gpus ? problem->gpus : gpus;
}

/* Bytes per second between one GPU and the host while all of a node do the same. */
static double link_bytes_per_s(const struct dtp_problem *problem) {
    const struct dtp_node *node = &problem->cluster->node;
    double rate = problem->cluster->gpu.offload_bytes_per_s, ranks = ranks_of_node(problem);
    if (node->host_gpu_bytes_per_s > 0 && rate > node->host_gpu_bytes_per_s / ranks)
        rate = node->host_gpu_bytes_per_s / ranks;
    if (rate > node->host_stream_bytes_per_s / ranks)
        rate = node->host_stream_bytes_per_s / ranks;
    return rate;
}

struct dtp_offload_cost dtp_offload_cost(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key, double params) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_node *node = &problem->cluster->node;
    double link = link_bytes_per_s(problem), on_node = params * ranks_of_node(problem);
    if (key->offload == DTP_OFFLOAD_NONE || link <= 0)
        return (struct dtp_offload_cost){0};
    struct dtp_offload_cost c = {
        .down_s = params * f->quirks.fp32_offload.offload_gradient_bytes / link,
        .update_s = on_node * adam_bytes / node->host_stream_bytes_per_s,
        .up_s = key->offload == DTP_OFFLOAD_PARAMETERS
                    ? 0
                    : params * f->quirks.fp32_offload.offload_weight_bytes / link};
    if (key->offload_to == DTP_OFFLOAD_NVME && node->nvme_bytes_per_s > 0) {
        double disk_s = on_node * state_bytes / node->nvme_bytes_per_s;
        c.update_s = disk_s > c.update_s ? disk_s : c.update_s;
    }
    return c;
}

double dtp_offload_exposed_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                             double params, double backward_s) {
    const struct dtp_framework *f = problem->framework;
    struct dtp_offload_cost c = dtp_offload_cost(problem, key, params);
    int m = key->microbatches;
    double times = f->quirks.eager_offload.offload_each_microbatch ? m : 1;
    /* The sum so far moves to the GPU and back if microbatches accumulate. */
    double down_s =
        f->quirks.eager_offload.offload_each_microbatch && m > 1 ? 2 * c.down_s : c.down_s;
    if (f->quirks.eager_offload.offload_overlap)
        down_s = down_s > backward_s ? down_s - backward_s : 0;
    return times * down_s + c.update_s + c.up_s;
}

double dtp_offload_fetch_s(const struct dtp_problem *problem, const struct dtp_update_key *key,
                           double params) {
    double ranks = key->zero_group > 0 ? key->zero_group : key->replicas;
    const struct dtp_node *node = &problem->cluster->node;
    double bytes = params / ranks * problem->framework->keeps.weight_bytes;
    if (key->offload != DTP_OFFLOAD_PARAMETERS || link_bytes_per_s(problem) <= 0)
        return 0;
    double link_s = bytes / link_bytes_per_s(problem);
    double disk_s = key->offload_to == DTP_OFFLOAD_NVME && node->nvme_bytes_per_s > 0
                        ? bytes * ranks_of_node(problem) / node->nvme_bytes_per_s
                        : 0;
    return link_s > disk_s ? link_s : disk_s;
}

/* ---- collectives ---- */

/* Measured inside a node; through a few network cards a collective needs fewer SMs. */
static double device_share(const struct dtp_cluster *c, const struct dtp_group_shape *shape) {
    static const struct dtp_group_shape in_node = {.nodes = 1};
    return c->gpu.comm_slowdown * dtp_nccl_channels(c, shape) / dtp_nccl_channels(c, &in_node);
}

static struct dtp_comm comm(const struct dtp_problem *problem, enum dtp_collective kind,
                            enum dtp_axis axis, enum dtp_algo algo,
                            const struct dtp_group_shape *shape, double bytes) {
    struct dtp_coll_cost cost;
    double factor = problem->framework->wire.comm_time_factor;
    dtp_coll_cost(problem->cluster, kind, algo, shape, bytes, &cost);
    return (struct dtp_comm){.kind = kind,
                             .axis = axis,
                             .algo = cost.algo,
                             .bytes = cost.time_s > 0 ? bytes : 0,
                             .time_s = cost.time_s * factor,
                             .latency_s = cost.latency_s * factor,
                             .device_share = device_share(problem->cluster, shape)};
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

/* Sharded inside the group, replicated between groups (HSDP): gradients are reduce-scattered in the
 * group, then every shard is summed over the groups. The two run on streams of their own, so that the
 * longer of them sets the pace and the other adds itself once to all units. */
static struct dtp_comm hybrid_reduce(const struct dtp_problem *problem,
                                     const struct dtp_update_key *key, double bytes, int nunits) {
    struct dtp_comm inside = comm(problem, DTP_REDUCE_SCATTER, DTP_AXIS_ZERO, key->dp_algo,
                                  key->placed->shape[DTP_AXIS_ZERO], bytes);
    struct dtp_comm between = comm(problem, DTP_ALL_REDUCE, DTP_AXIS_REPLICA, key->dp_algo,
                                   key->placed->shape[DTP_AXIS_REPLICA], bytes / key->zero_group);
    bool far = between.time_s > inside.time_s;
    struct dtp_comm longer = far ? between : inside;
    double rest_s = (far ? inside.time_s : between.time_s) / nunits;
    longer.time_s += rest_s;
    longer.latency_s += rest_s; /* not on the links of the longer */
    return longer;
}

static bool hybrid(const struct dtp_framework *f, const struct dtp_update_key *key) {
    bool unshards = key->zero_stage == 2 && f->keeps.gathered_bytes > 0;
    return key->zero_group > 0 && (unshards || key->zero_stage == 3);
}

/* Adds a time that does not load the links. */
static void delay(struct dtp_comm *c, double time_s) {
    c->time_s += time_s;
    c->latency_s += time_s;
}

/* Checks before the messages of a step, and tensors that are copied out of what ZeRO-1/2 gathered. */
static void host_delays(const struct dtp_framework *f, const struct dtp_update_key *key,
                        const struct dtp_stage *stage, double buckets, struct dtp_stage_cost *out) {
    int ranks = key->replicas;
    double check_s = dtp_framework_check_s(f, ranks, key->placed->shape[DTP_AXIS_DP_CP]->nodes > 1);
    double copies =
        (double)f->quirks.whole_gradients.gather_copies_per_layer * stage->layers * ranks;
    if (out->reduce.time_s > 0)
        delay(&out->reduce, check_s * buckets);
    if (out->gather.time_s > 0)
        delay(&out->gather, check_s + copies * f->host.launch_s / out->nreduce);
}

/* PyTorch's DDP (reducer.cpp) goes through the tensors from the last to the first; the one that fills a bucket is
 * its last, and 1 MiB fills the first bucket. */
struct filling {
    double fill_bytes, limit_bytes;
    int n;
};

static void add_tensor(struct filling *b, double bytes) {
    b->fill_bytes += bytes;
    if (b->fill_bytes < (b->n == 0 ? DTP_MIB : b->limit_bytes))
        return;
    b->fill_bytes = 0;
    b->n++;
}

static int tensor_buckets(const struct dtp_model *m, const struct dtp_stage *stage,
                          double limit_bytes, double weight_bytes) {
    struct filling b = {.limit_bytes = limit_bytes};
    double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    double row_bytes = m->hidden * weight_bytes;
    if (stage->last && !(stage->first && m->tied_embeddings))
        add_tensor(&b, m->vocab * row_bytes);
    for (int l = 0; l < stage->layers; l++) {
        add_tensor(&b, m->ffn * row_bytes);
        add_tensor(&b, (m->gated_ffn ? 2.0 : 1.0) * m->ffn * row_bytes);
        add_tensor(&b, q * row_bytes);
        add_tensor(&b, (q + 2 * kv) * row_bytes);
    }
    if (stage->first)
        add_tensor(&b, m->vocab * row_bytes);
    return b.n + (b.fill_bytes > 0 || b.n == 0);
}

static int units_of(double total, double unit) {
    enum { MOST_UNITS = 1 << 24 };
    double n = unit > 0 && total > unit ? total / unit + 0.999999 : 1;
    return n < MOST_UNITS ? (int)n : MOST_UNITS;
}

/* Messages of the reduction of a stage in out->nreduce; how many buckets are one of them. */
static double count_reductions(const struct dtp_problem *problem, const struct dtp_update_key *key,
                               const struct dtp_stage *stage, struct dtp_stage_cost *out) {
    const struct dtp_framework *f = problem->framework;
    double total_bytes = (stage->dense_params + stage->expert_params) * f->wire.reduce_bytes;
    /* Megatron-core: buckets of at least 40 M parameters and 1 M per data-parallel rank, so that the latency
     * of a ring stays small compared with its traffic. */
    double bucket_bytes = f->wire.dp_bucket_params_per_rank * key->replicas * f->wire.reduce_bytes;
    if (f->wire.dp_bucket_bytes > bucket_bytes)
        bucket_bytes = f->wire.dp_bucket_bytes;
    bool whole = f->quirks.whole_gradients.dp_whole_buffer && !key->dp_overlap;
    out->nreduce = whole ? 1 : units_of(total_bytes, bucket_bytes);
    if (!f->wire.dp_bucket_tensors || whole || stage->moe_layers > 0 || problem->model->nconvs > 0)
        return 1;
    double weight_bytes = f->wire.reduce_bytes / key->cut.tp;
    double table_bytes = (double)problem->model->vocab * problem->model->hidden * weight_bytes;
    int n = tensor_buckets(problem->model, stage, bucket_bytes, weight_bytes);
    /* the last, which no backward hides, is the whole token table: no unit is smaller */
    out->nreduce =
        stage->first && n * table_bytes > total_bytes ? units_of(total_bytes, table_bytes) : n;
    return (double)n / out->nreduce;
}

/* One of n units of the parameters that ranks share: gathered, or their part of a broadcast from each rank in
 * turn of all that it has. */
static struct dtp_comm gather(const struct dtp_problem *problem, const struct dtp_update_key *key,
                              enum dtp_axis axis, const struct dtp_group_shape *shape, double bytes,
                              int n) {
    if (!problem->framework->quirks.broadcast_gather.gather_by_broadcasts || key->zero_stage > 2)
        return comm(problem, DTP_ALL_GATHER, axis, key->dp_algo, shape, bytes);
    double each = shape->size / (double)n;
    struct dtp_comm c = comm(problem, DTP_BROADCAST, axis, key->dp_algo, shape, bytes / each);
    c.bytes = bytes;
    c.time_s *= each;
    c.latency_s *= each;
    return c;
}

/* ---- our own runtime ---- */

static void add_part(struct dtp_phase *p, double *part, double time_s) {
    *part += time_s;
    p->total_s += time_s;
}

/* Half of a transfer's copies is the sender's, half the receiver's. */
static double copy_s(const struct dtp_native_comm *c) {
    struct dtp_coll_cost cost;
    double bytes = (double)(c->d.local_tokens * c->d.hidden) * dtp_dtype_bytes(c->dtype);
    dtp_p2p_cost(c->problem->cluster, 0, 1, 1, bytes, &cost);
    return (cost.time_s - cost.latency_s) / 2;
}

/* ZeRO-3's gathers run on separate streams: what overlaps the previous layer is hidden and slows that layer. The first
 * gather overlaps nothing. */
static double exposed_gather_s(const struct dtp_native_comm *c, double all_s, double compute_s) {
    double slowdown = c->problem->cluster->gpu.comm_slowdown;
    double layer_s = dtp_native_gather_s(c, c->s.layer_n),
           beside_s = c->s.layers > 0 ? compute_s / c->s.layers : 0;
    double hidden_s = c->s.layers > 0 ? (c->s.layers - 1) * fmin(layer_s, beside_s) : 0;
    return all_s - (1 - slowdown) * hidden_s;
}

static struct dtp_native_comm stage_comm(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key, int microbatch_size,
                                         int vs) {
    const struct dtp_native_sizes sizes = {key->cut.tp, microbatch_size, key->sequence_parallel,
                                           key->dtype};
    struct dtp_native_comm c = {.problem = problem,
                                .dp = key->placed->shape[DTP_AXIS_DP_CP],
                                .tp = key->placed->shape[DTP_AXIS_TP],
                                .dtype = key->dtype,
                                .zero_stage = key->zero_stage,
                                .replicas = key->replicas};
    dtp_native_of(problem, &sizes, &c.d);
    dtp_native_stage_of(problem->model, &key->cut, key->replicas, &c.d, vs, &c.s);
    return c;
}

void dtp_cost_native_phases(const struct dtp_problem *problem, const struct dtp_update_key *key,
                            int microbatch_size, int vs, struct dtp_stage_cost *out) {
    const struct dtp_native_comm c = stage_comm(problem, key, microbatch_size, vs);
    int neighbours = (vs > 0) + (vs + 1 < key->cut.pp * key->cut.vpp);
    const struct dtp_framework *f = problem->framework;
    if (key->cut.pp > 1 && f->wire.inline_communication) {
        double copies_s = neighbours * copy_s(&c);
        add_part(&out->f, &out->f.pp_s, copies_s);
        add_part(&out->i, &out->i.pp_s, copies_s);
    }
    if (key->zero_stage >= 2)
        add_part(&out->w, &out->w.dp_s, dtp_native_reduce_s(&c));
    if (key->zero_stage < 3)
        return;
    double gather = dtp_native_gather_all_s(&c);
    double again = c.s.tied ? dtp_native_gather_s(&c, c.s.tokens_n) : 0; /* for the head */
    if (!f->wire.inline_communication) {
        add_part(&out->f, &out->f.dp_s, exposed_gather_s(&c, gather + again, out->f.total_s));
        add_part(&out->i, &out->i.dp_s,
                 exposed_gather_s(&c, gather, out->i.total_s + out->w.total_s));
    } else {
        double ends = dtp_native_gather_s(&c, c.s.positions_n) +
                      (c.s.tied ? 0 : dtp_native_gather_s(&c, c.s.tokens_n));
        add_part(&out->f, &out->f.dp_s, gather + again);
        add_part(&out->i, &out->i.dp_s, gather - ends);
    }
}

static void native_data_parallel(const struct dtp_problem *problem,
                                 const struct dtp_param_counts *counts,
                                 const struct dtp_update_key *key, int vs,
                                 struct dtp_stage_cost *out) {
    (void)counts;
    const struct dtp_native_comm c = stage_comm(problem, key, 0, vs);
    bool streams = !problem->framework->wire.inline_communication;
    double reduce = key->zero_stage < 2 ? dtp_native_reduce_s(&c) : 0;
    int n = out->nreduce = streams && key->zero_stage < 2 && key->replicas > 1
                               ? dtp_native_num_reductions(&c, reduce)
                               : 1;
    if (key->zero_stage < 2)
        out->reduce =
            (struct dtp_comm){.kind = DTP_ALL_REDUCE,
                              .axis = DTP_AXIS_DP_CP,
                              .time_s = reduce / n,
                              .latency_s = reduce / n,
                              .device_share = streams ? problem->cluster->gpu.comm_slowdown : 0};
    bool gathers = key->zero_stage == 1 || key->zero_stage == 2;
    double gather = gathers ? dtp_native_gather_all_s(&c) : 0;
    if (gathers)
        out->gather = (struct dtp_comm){.kind = DTP_ALL_GATHER,
                                        .axis = DTP_AXIS_DP_CP,
                                        .time_s = gather / n,
                                        .latency_s = gather / n};
}

static void general_data_parallel(const struct dtp_problem *problem,
                                  const struct dtp_param_counts *counts,
                                  const struct dtp_update_key *key, int vs,
                                  struct dtp_stage_cost *out) {
    const struct dtp_framework *f = problem->framework;
    struct dtp_stage stage;
    dtp_stage_of(problem->model, counts, &key->cut, vs, &stage);
    double params[2] = {stage.dense_params, stage.expert_params};
    double buckets = count_reductions(problem, key, &stage, out); /* per unit */
    if (key->zero_stage == 3)
        out->nunshard =
            f->quirks.zero_pieces.zero3_unit_params > 0
                ? units_of(params[0] + params[1], dtp_framework_unit_params(f, problem->model))
            : stage.layers > 0 ? stage.layers
                               : 1;
    if (key->zero_stage == 3 && !f->quirks.zero_pieces.zero3_buckets)
        out->nreduce = out->nunshard;
    bool scatter = key->zero_stage == 3 ||
                   (key->zero_stage == 2 && f->quirks.zero_pieces.zero2_reduce_scatter) ||
                   (key->zero_stage == 1 && f->wire.zero1_reduce_scatter);
    bool grouped = key->zero_group > 0; /* summed over all replicas, gathered in the group */
    static const enum dtp_axis axis[2] = {DTP_AXIS_DP_CP, DTP_AXIS_EDP};
    const struct dtp_group_shape *const shape[2] = {key->placed->shape[axis[0]],
                                                    key->placed->shape[axis[1]]};
    for (int k = 0; k < 2; k++) {
        if (params[k] <= 0 || shape[k]->size <= 1)
            continue;
        double unit_bytes = params[k] / (out->nreduce * buckets) * f->wire.reduce_bytes;
        int gathers = key->zero_stage == 3 ? out->nunshard : out->nreduce;
        struct dtp_comm c =
            hybrid(f, key)
                ? hybrid_reduce(problem, key, unit_bytes, out->nreduce)
                : comm(problem, scatter && !grouped ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, axis[k],
                       key->dp_algo, shape[k], unit_bytes);
        c.bytes *= buckets;
        c.time_s *= buckets;
        c.latency_s *= buckets;
        comm_add(&out->reduce, &c);
        if (key->zero_stage == 0)
            continue;
        c = gather(problem, key, grouped ? DTP_AXIS_ZERO : axis[k],
                   grouped ? key->placed->shape[DTP_AXIS_ZERO] : shape[k],
                   params[k] / gathers * dtp_framework_gathered_bytes(f, key->dtype), gathers);
        comm_add(key->zero_stage == 3 ? &out->unshard : &out->gather, &c);
    }
    host_delays(f, key, &stage, buckets, out);
    if (key->zero_stage == 3 && out->unshard.time_s > 0) /* from the host first */
        out->unshard.time_s +=
            dtp_offload_fetch_s(problem, key, (params[0] + params[1]) / out->nunshard);
}

void dtp_cost_data_parallel(const struct dtp_problem *problem,
                            const struct dtp_param_counts *counts, const struct dtp_update_key *key,
                            int vs, struct dtp_stage_cost *out) {
    static void (*const methods[])(const struct dtp_problem *, const struct dtp_param_counts *,
                                   const struct dtp_update_key *, int, struct dtp_stage_cost *) = {
        [DTP_OPS_FUSED] = general_data_parallel,
        [DTP_OPS_EAGER] = general_data_parallel,
        [DTP_OPS_OWN] = native_data_parallel,
    };
    methods[problem->framework->kernels.ops](problem, counts, key, vs, out);
}

struct dtp_comm dtp_cost_transfer(const struct dtp_problem *problem,
                                  const struct dtp_transfer_key *key, int from, int to) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_node *node = &problem->cluster->node;
    if (from == to)
        return (struct dtp_comm){0};
    double full_bytes = (double)key->microbatch_size * problem->seq / key->cp *
                        problem->model->hidden * f->wire.p2p_bytes;
    bool split = key->tp > 1 && (f->wire.scatter_gather || key->sequence_parallel);
    double bytes = split ? full_bytes / key->tp : full_bytes;
    int siblings = node->nics > 0 ? (node->gpus + node->nics - 1) / node->nics : 1;
    struct dtp_coll_cost cost;
    dtp_p2p_cost(problem->cluster, from * key->stride, to * key->stride, siblings, bytes, &cost);
    if (f->wire.inline_communication) /* the copies are the ranks' own: a wake-up is left */
        cost.time_s = cost.latency_s;
    /* a rank's waits for the two directions add up, transfers that meet here do not: all with one */
    double check_s =
        f->host.checked_transfers && from < to ? f->quirks.polled_checks.check_transfer_s : 0;
    double host_s = f->quirks.transfer_wait.p2p_host_s + check_s + f->host.stream_hop_s;
    struct dtp_comm c = {.kind = DTP_SEND_RECV,
                         .axis = DTP_AXIS_PP,
                         .algo = cost.algo,
                         .bytes = bytes,
                         .time_s = cost.time_s * f->wire.comm_time_factor + host_s,
                         .latency_s = cost.latency_s * f->wire.comm_time_factor + host_s};
    if (split && !key->sequence_parallel) { /* gathered again inside the node */
        struct dtp_comm gather =
            comm(problem, DTP_ALL_GATHER, DTP_AXIS_TP, DTP_ALGO_AUTO, key->tp_shape, full_bytes);
        c.time_s += gather.time_s;
        c.latency_s += gather.time_s; /* not on the NIC: counts as delay */
    }
    return c;
}

struct dtp_comm dtp_cost_embedding_all_reduce(const struct dtp_problem *problem,
                                              const struct dtp_update_key *key) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_model *m = problem->model;
    const struct dtp_placement *placement = &key->placed->at;
    bool shared = m->tied_embeddings || m->mtp_layers > 0; /* which looks up tokens on the last */
    if (key->cut.pp == 1 || !shared || !f->wire.tied_embedding_all_reduce)
        return (struct dtp_comm){0};
    int last = dtp_placement_rank(placement, 0, 0, 0, key->cut.pp - 1);
    int nodes = last / placement->gpus_per_node > 0 ? 2 : 1;
    struct dtp_group_shape shape = {.size = 2,
                                    .nodes = nodes,
                                    .per_node = 3 - nodes,
                                    .nics = nodes - 1,
                                    .siblings = 1,
                                    .tier = nodes - 2};
    double vocab = dtp_framework_padded_vocab(f, problem->model->vocab, key->cut.tp);
    double shards = f->kernels.ops == DTP_OPS_OWN && key->zero_stage > 0 ? key->replicas : 1;
    return comm(problem, DTP_ALL_REDUCE, DTP_AXIS_PP, DTP_ALGO_AUTO, &shape,
                vocab / key->cut.tp * problem->model->hidden * f->wire.reduce_bytes / shards);
}

struct dtp_comm dtp_cost_norm_all_reduce(const struct dtp_problem *problem,
                                         const struct dtp_update_key *key) {
    const struct dtp_framework *f = problem->framework;
    int nodes = dtp_cluster_nnodes(problem->cluster, problem->gpus);
    bool ends_checked =
        key->cut.pp == 1 || f->host.checked_transfers; /* the barrier that ends a step */
    double check_s = ends_checked ? dtp_framework_check_s(f, problem->gpus, nodes > 1) : 0;
    bool whole =
        key->cut.tp * key->cut.pp == 1 && key->zero_stage == 0; /* each rank has all gradients */
    if (whole && f->kernels.ops != DTP_OPS_OWN && check_s == 0)
        return (struct dtp_comm){0};
    struct dtp_group_shape shape = {.size = problem->gpus,
                                    .nodes = nodes,
                                    .per_node = problem->gpus / nodes,
                                    .nics = nodes > 1 ? 1 : 0,
                                    .siblings = 1,
                                    .tier = nodes > 1 ? 0 : -1};
    struct dtp_comm c = comm(problem, DTP_ALL_REDUCE, DTP_AXIS_PP, DTP_ALGO_AUTO, &shape, 8);
    c.device_share = 0;
    delay(&c, check_s);
    return c;
}
