/* Costs by hand: what hides and what stays exposed, what slows an operation, messages of a reduction, the FLOPs
 * of a step. */
#include <stdlib.h>
#include <string.h>

#include "models/cost/cost.h"
#include "tests/op_case.h"
#include "tests/suites.h"

static struct dtp_costs costs_of(const struct fixture *x) {
    struct dtp_costs c;
    dtp_costs(arena, dtp_cost_memo_create(arena, &x->problem), &x->plan, &c);
    CU_ASSERT_FATAL(c.nstages > 0);
    return c;
}

static const struct dtp_phase *layer_of(const struct fixture *x, int pass) {
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
    return &dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_DENSE][pass];
}

/* Seconds of a layer's operations of one kind (of collectives: one axis) in its forward. */
static double forward_s(struct fixture *x, enum dtp_op_kind kind, enum dtp_axis axis) {
    double sum_s = 0;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    for (int i = 0; i < x->ops.n; i++) {
        const struct dtp_op *op = &x->ops.at[i];
        bool counts = op->kind == kind && op->pass == DTP_PASS_F &&
                      (kind != DTP_OP_COLLECTIVE || op->axis == axis);
        sum_s += counts ? dtp_op_time_s(&x->problem, &x->plan, op) : 0;
    }
    return sum_s;
}

/* A ring of c ranks passes keys and values on c - 1 times while it computes c blocks of attention: (c - 1) / c of
 * the attention hides them, and loses comm_slowdown of what they take. */
static void test_ring(void) {
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    x->framework.quirks.traced_gaps.collective_gap_s = 0;
    x->plan.cp = 4;
    x->plan.dp = 2;
    for (int slow = 0; slow < 2; slow++)
        for (int hidden = 0; hidden < 2; hidden++) {
            double slowdown = x->cluster.gpu.comm_slowdown = slow ? 0.25 : 0;
            x->framework.wire.comm_time_factor = hidden ? 1e-3 : 1e3;
            double ring_s = forward_s(x, DTP_OP_COLLECTIVE, DTP_AXIS_CP);
            double cover_s = 3 / 4.0 * forward_s(x, DTP_OP_ATTENTION, DTP_AXIS_CP);
            double hides_s = hidden ? ring_s : cover_s;
            CU_ASSERT(ring_s > 0 && (hidden ? ring_s < cover_s : ring_s > cover_s));
            near(layer_of(x, 0)->cp_s, ring_s - hides_s + slowdown * hides_s);
        }
}

/* A reduction that overlaps kernels waits for room: comm_wait_kernels mean durations of them, but no longer than
 * comm_wait_s. Inside the node its transfer takes 1 / (1 - m (1 - r)) times as long, where m is the share of
 * memory-bound kernels and r is its rate while these run. */
static void test_beside(void) {
    struct fixture *x = op_case("gpt3-6.7b", "megatron-core");
    struct dtp_gpu *g = &x->cluster.gpu;
    x->plan.dp = 8;
    g->comm_wait_kernels = 1.5;
    g->comm_memory_rate = 0.5;
    for (int long_wait = 0; long_wait < 2; long_wait++) {
        g->comm_wait_s = long_wait ? 1 : 1e-7;
        struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
        const struct dtp_layer_costs *layer = dtp_cost_layers(memo, &x->plan);
        struct dtp_comm reduce = costs_of(x).stage[0].reduce;
        CU_ASSERT(layer->memory_share > 0.05 && layer->memory_share < 0.95);
        near(reduce.wait_s, long_wait ? 1.5 * layer->kernel_s : 1e-7);
        near(reduce.stretch, 1 / (1 - layer->memory_share / 2) - 1);
    }
    x->plan.dp = x->problem.gpus = x->problem.global_batch = x->plan.global_batch_size = 16;
    CU_ASSERT(costs_of(x).stage[0].reduce.stretch == 0); /* through NICs */
}

static double time_of(struct fixture *x, enum dtp_op_kind kind) {
    return forward_s(x, kind, DTP_AXIS_TP);
}

/* The slowest of 1,024 chips sets the pace of products and attention, not of what memory bounds; ring attention is
 * cp_attention_factor slower. */
static void test_slower(void) {
    static const enum dtp_op_kind kinds[] = {DTP_OP_GEMM, DTP_OP_ATTENTION, DTP_OP_KERNEL};
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    double alone_s[3];
    x->cluster.gpu.chip_spread = 0.01;
    for (int i = 0; i < 3; i++)
        alone_s[i] = time_of(x, kinds[i]);
    x->problem.gpus = 1024;
    double slowest = dtp_device_slowest(&x->cluster.gpu, 1024);
    CU_ASSERT(slowest > 1.01);
    for (int i = 0; i < 3; i++)
        near(time_of(x, kinds[i]), alone_s[i] * (kinds[i] == DTP_OP_KERNEL ? 1 : slowest));
    x->problem.gpus = 8;
    x->plan.cp = 2;
    x->framework.kernels.cp_attention_factor = 1;
    double plain_s = time_of(x, DTP_OP_ATTENTION);
    x->framework.kernels.cp_attention_factor = 1.25;
    near(time_of(x, DTP_OP_ATTENTION), 1.25 * plain_s);
    x->plan.cp = 1;
    near(time_of(x, DTP_OP_ATTENTION), alone_s[1]);
}

/* 16 ranks of tp on two nodes at a second a hop: 15 hops of a gather, 30 of an all-reduce, and the bytes through
 * the NICs. */
static void test_hops(void) {
    struct fixture *x = op_case("gpt175b", "megatron-core");
    const struct dtp_node *node = &x->cluster.node;
    x->plan.tp = x->problem.gpus = 16;
    x->framework.quirks.slow_hops.tp_hop_s = 1;
    for (int sp = 0; sp < 2; sp++) {
        int n = 0;
        x->plan.sequence_parallel = sp;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        for (int i = 0; i < x->ops.n; i++) {
            const struct dtp_op *op = &x->ops.at[i];
            if (op->kind != DTP_OP_COLLECTIVE || op->axis != DTP_AXIS_TP)
                continue;
            int sums = op->collective == DTP_ALL_REDUCE ? 2 : 1;
            double wire_s = sums * 15 / 16.0 * op->bytes / node->nics /
                            (node->nic_bytes_per_s * node->nic_efficiency);
            near(dtp_op_time_s(&x->problem, &x->plan, op), op->count * (15 * sums + wire_s));
            n++;
        }
        CU_ASSERT(n > 0);
    }
}

/* Megatron-core's buckets hold so many parameters for each rank that shares them, whose number is dp x cp. */
static void test_buckets_per_rank(void) {
    struct fixture *x = op_case("gpt3-6.7b", "megatron-core");
    struct dtp_param_counts n;
    dtp_model_params(&x->model, x->model.vocab, &n);
    x->framework.wire.dp_bucket_bytes = 0;
    x->framework.wire.dp_bucket_params_per_rank = 1000000;
    x->plan.dp_overlap = 1;
    for (int cp = 1; cp <= 8; cp *= 2) {
        x->plan.cp = cp;
        x->plan.dp = 8 / cp;
        CU_ASSERT_EQUAL(costs_of(x).stage[0].nreduce, (int)ceil((double)n.total / 8e6));
    }
}

/* Between stages goes what a rank holds of b s h elements: all, or its part of a tp group's where these send parts or have
 * the sequence in parts. First and last stage sum the gradients of their parts of the token table. */
static void test_pipeline_bytes(void) {
    struct fixture *x = op_case("gpt3-6.7b", "megatron-core");
    double full = 2.0 * x->model.seq * x->model.hidden;
    x->plan.tp = 4;
    x->plan.pp = 2;
    x->framework.wire.p2p_bytes = 2;
    for (int parts = 0; parts < 2; parts++)
        for (int sp = 0; sp < 2; sp++) {
            x->framework.wire.scatter_gather = parts;
            x->plan.sequence_parallel = sp;
            struct dtp_costs c = costs_of(x);
            near(c.stage[0].send_f.bytes, parts || sp ? full / 4 : full);
            near(c.stage[1].send_b.bytes, parts || sp ? full / 4 : full);
        }
    double vocab = dtp_framework_padded_vocab(&x->framework, x->model.vocab, 4);
    CU_ASSERT(x->model.tied_embeddings && x->framework.wire.tied_embedding_all_reduce);
    near(costs_of(x).embedding_all_reduce.bytes,
         vocab / 4 * x->model.hidden * x->framework.wire.reduce_bytes);
}

/* While gradients are reduced, the six rings of 15 steps of each layer's last backward take one more second a step;
 * they do not if the reduction follows the backward (ZeRO-1), nor inside a node. */
static void test_slow_hops(void) {
    struct fixture *x = op_case("llama3-8b", "nanotron");
    x->plan.sequence_parallel = true;
    x->framework.quirks.slow_hops.tp_hop_s = 1;
    for (int far = 0; far < 2; far++)
        for (int zero = 0; zero < 2; zero++) {
            x->plan.tp = far ? 16 : 8;
            x->plan.dp = 2;
            x->plan.zero_stage = zero;
            x->problem.gpus = 2 * x->plan.tp;
            x->problem.global_batch = x->plan.global_batch_size = 2 * x->plan.microbatch_size;
            struct dtp_costs costs = costs_of(x);
            near(costs.late.tp_s, far && zero == 0 ? x->model.layers * 6 * 15 : 0);
            near(costs.late.total_s, costs.late.tp_s);
        }
}

/* A checked barrier of all ranks ends the step of every layout without a pipeline, and with one where transfers are
 * checked too. */
static void test_checked_barrier(void) {
    static const struct {
        int tp, pp, dp, zero_stage;
    } layouts[] = {{16, 1, 1, 0}, {8, 2, 1, 0}, {1, 1, 16, 0}, {1, 1, 16, 1}};
    struct fixture *x = op_case("llama3-8b", "nanotron");
    x->problem.gpus = 16;
    x->problem.global_batch = x->plan.global_batch_size = 16 * x->plan.microbatch_size;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        x->plan.tp = layouts[i].tp;
        x->plan.pp = layouts[i].pp;
        x->plan.dp = layouts[i].dp;
        x->plan.zero_stage = layouts[i].zero_stage;
        for (int transfers = 0; transfers < 2; transfers++) {
            x->framework.host.checked_collectives = false;
            double alone_s = costs_of(x).norm_all_reduce.time_s;
            CU_ASSERT(alone_s < 0.001);
            x->framework.host.checked_collectives = true;
            x->framework.host.checked_transfers = transfers;
            double check_s = costs_of(x).norm_all_reduce.time_s - alone_s;
            bool checked = x->plan.pp == 1 || transfers;
            CU_ASSERT(
                fabs(check_s - (checked ? 16 * x->framework.quirks.polled_checks.check_far_rank_s
                                        : 0)) < 0.001);
        }
    }
}

/* h 512, f 2048, 1,000 words, two layers, 4 bytes a gradient: tensors of 4, 4, 1 and 3 MiB a layer from the last
 * to the first, then the table's 1.95. A bucket ends with the tensor that fills its 5 MiB, the first with 1 MiB:
 * 4 | 4 1 | 3 4 | 4 1 | 3 1.95. */
static void test_buckets(void) {
    struct fixture *x = op_case("gpt2", "torch-ddp");
    x->model.hidden = 512;
    x->model.heads = x->model.kv_heads = 8;
    x->model.head_dim = 64;
    x->model.ffn = 2048;
    x->model.layers = 2;
    x->model.vocab = 1000;
    CU_ASSERT_FATAL(x->model.tied_embeddings && !x->model.gated_ffn);
    x->plan.dp = 8;
    x->framework.wire.reduce_bytes = 4;
    x->framework.wire.dp_bucket_tensors = true;
    x->framework.quirks.whole_gradients.dp_whole_buffer = false;
    x->framework.wire.dp_bucket_params_per_rank = 0;
    x->framework.wire.dp_bucket_bytes = 5 << 20;
    CU_ASSERT_EQUAL(costs_of(x).stage[0].nreduce, 5);
}

/* Whoever repeats them, however a sequence is cut: all ranks together compute the same FLOPs. */
static void test_flops(void) {
    static const int layouts[][3] = {
        {1, 1, 8}, {2, 1, 4}, {1, 2, 4}, {2, 4, 1}, {8, 1, 1}}; /* tp, cp, dp */
    struct fixture *x = op_case("gpt3-6.7b", "megatron-core");
    x->plan.recompute = DTP_RECOMPUTE_FULL;
    double repeated = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        x->plan.tp = layouts[i][0];
        x->plan.cp = layouts[i][1];
        x->plan.dp = layouts[i][2];
        struct dtp_costs c = costs_of(x);
        near(c.model_flops, 3 * dtp_model_forward_flops(&x->model, x->problem.seq) * 8);
        double more = c.hardware_flops - c.model_flops;
        repeated = i == 0 ? more : repeated;
        near(more, repeated);
    }
    CU_ASSERT(repeated > 0);
}

/* A microbatch's share of the copies into buckets, once a step, goes with their number: 8 / dp, whatever was asked
 * before. */
static void test_shared_copies(void) {
    struct fixture *x = op_case("gpt3-1.3b", "deepspeed");
    double rest_s = 0, copies_s = 0;
    x->framework.can.max_pp = 2;
    x->framework.host.launch_s = x->framework.host.layer_host_s = 0;
    x->plan.zero_stage = 1;
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
    for (int i = 0; i < 3; i++) {
        x->plan.dp = 4 >> i; /* 2, 4 and 8 microbatches */
        x->plan.pp = 2;
        double w_s = dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_DENSE][2].total_s;
        near(w_s, layer_of(x, 2)->total_s);
        if (i == 1)
            copies_s = 4 * (rest_s - w_s);
        else if (i == 2)
            near(w_s, rest_s - 3 * copies_s / 8);
        rest_s = i == 0 ? w_s : rest_s;
    }
    CU_ASSERT(copies_s > 0);
}

/* A context-parallel group of 3 x 4 ranks, of which 4 lie on the second of three nodes with one NIC each. With two
 * stages of 12 ranks only its own stage is counted there, with one stage the other replica uses that NIC too. A memo
 * that was asked for both gives each its own cost. */
static void test_ask_order(void) {
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    double alone_s[2];
    x->cluster.node.nics = 1;
    memset(x->cluster.node.nic_of_gpu, 0, sizeof x->cluster.node.nic_of_gpu);
    x->problem.gpus = 24;
    x->plan.tp = 4;
    x->plan.cp = 3;
    x->plan.global_batch_size = 24;
    for (int pp = 1; pp <= 2; pp++) {
        x->plan.pp = pp;
        x->plan.dp = 2 / pp;
        alone_s[pp - 1] = layer_of(x, 0)->cp_s;
    }
    CU_ASSERT(alone_s[0] > 1.2 * alone_s[1]);
    for (int first = 1; first <= 2; first++) {
        struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
        for (int k = 0; k < 2; k++) {
            int pp = x->plan.pp = k == 0 ? first : 3 - first;
            x->plan.dp = 2 / pp;
            CU_ASSERT(dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_DENSE][0].cp_s ==
                      alone_s[pp - 1]);
        }
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"a ring behind attention", test_ring},
                           {"beside kernels", test_beside},
                           {"what slows operations", test_slower},
                           {"hops between nodes", test_hops},
                           {"buckets of tensors", test_buckets},
                           {"buckets of ranks", test_buckets_per_rank},
                           {"bytes between stages", test_pipeline_bytes},
                           {"ring steps beside reductions", test_slow_hops},
                           {"a checked barrier", test_checked_barrier},
                           {"FLOPs of a step", test_flops},
                           {"copies shared by microbatches", test_shared_copies},
                           {"the order of questions", test_ask_order},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"costs", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
