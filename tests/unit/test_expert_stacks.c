/* Layers of experts are compared as torchtitan, DeepSpeed (AutoEP and its own layer), transformers and Megatron-Core
 * run them: they have the same FLOPs, and differ in who holds and sums what, and in what each refuses. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/cost/cost_internal.h"
#include "models/ops/op.h"
#include "tests/op_case.h"
#include "tests/suites.h"

static const char *const stacks[] = {"megatron-core", "torchtitan", "deepspeed", "deepspeed-moe",
                                     "torch-fsdp2"};
enum { NSTACKS = sizeof stacks / sizeof stacks[0], WITHOUT_EP = NSTACKS - 1 };

/* Forward FLOPs of a layer of Mixtral as the model counts them, less the masked half of attention. */
static double layer_flops(const struct dtp_model *m) {
    double s = m->seq, h = m->hidden, kv = h / 4;
    return 2 * s * (2 * h * h + 2 * h * kv + 8 * h + 2 * 3 * h * m->moe.ffn) + 2 * s * s * h;
}

static double named(const struct fixture *x, const char *name) {
    double times = 0;
    for (int i = 0; i < x->ops.n; i++)
        times += strcmp(x->ops.at[i].name, name) == 0 && x->ops.at[i].pass == DTP_PASS_F
                     ? x->ops.at[i].count
                     : 0;
    return times;
}

/* One expert a rank: no stack does more or less; several in groups lose half a tile each, one after another
 * nothing. The backward does twice as much, but for attention's 2.5. */
static void test_same_flops(void) {
    for (int i = 0; i < NSTACKS; i++) {
        struct fixture *x = op_case("mixtral-8x7b", stacks[i]);
        x->problem.attention = DTP_ATTN_FLASH2;
        x->framework.kernels.moe_imbalance = 1;
        bool loop = x->framework.quirks.expert_loop.moe_expert_loop;
        double want = layer_flops(&x->model), row = 2 * 3 * (double)x->model.hidden * 14336;
        double back = 2 * want + (double)x->model.seq * x->model.seq * x->model.hidden;
        double lost = loop ? 0 : 8 * 64 * row;
        near(flops(x, DTP_LAYER_MOE, DTP_PASS_F), want + lost);
        near(flops(x, DTP_LAYER_MOE, DTP_PASS_I) + flops(x, DTP_LAYER_MOE, DTP_PASS_W),
             back + 2 * lost);
        CU_ASSERT(named(x, "experts fc2") == (loop ? 8 : 1));
        CU_ASSERT(named(x, "experts gate") == x->framework.kernels.moe_separate_products);
        if (i == WITHOUT_EP)
            continue;
        x->plan.ep = x->plan.dp = 8;
        near(flops(x, DTP_LAYER_MOE, DTP_PASS_F), want);
    }
}

/* top_k rows a token go there and back in each direction; a capacity makes them more or fewer, the model's
 * before the stack's. */
static void test_rows_sent(void) {
    for (int i = 0; i < WITHOUT_EP; i++) {
        struct fixture *x = op_case("mixtral-8x7b", stacks[i]);
        double rows = 2.0 * x->model.seq, bytes = 2.0 * x->model.hidden;
        int n;
        x->plan.ep = x->plan.dp = 8;
        x->framework.kernels.moe_imbalance = 1;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
        near(traffic(x, DTP_ALL_TO_ALL, DTP_PASS_F, &n), 2 * rows * bytes);
        near(traffic(x, DTP_ALL_TO_ALL, DTP_PASS_I, &n), 2 * rows * bytes);
        x->framework.quirks.expert_loop.moe_capacity = 1.5;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
        near(traffic(x, DTP_ALL_TO_ALL, DTP_PASS_F, &n), 1.5 * 2 * rows * bytes);
        x->model.moe.capacity_factor = 1.25;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
        near(traffic(x, DTP_ALL_TO_ALL, DTP_PASS_F, &n), 1.25 * 2 * rows * bytes);
        CU_ASSERT(n == 2);
    }
}

/* With ZeRO every parameter has one owner, whatever ep: a rank's part of the experts is shared by those of its
 * expert-data-parallel group alone. Without ep all is as if experts were layers. */
static void test_owners(void) {
    for (int i = 0; i < NSTACKS; i++) {
        struct fixture *x = op_case("mixtral-8x7b", stacks[i]);
        struct dtp_param_counts n;
        struct dtp_stage stage;
        dtp_model_params(&x->model, x->model.vocab, &n);
        x->plan.dp = x->problem.gpus = 64;
        x->plan.global_batch_size = 64;
        x->plan.zero_stage = x->framework.can.zero_stages >> 3 & 1 ? 3 : 1;
        double reduced = 0;
        for (int ep = 1; ep <= (i == WITHOUT_EP ? 1 : 8); ep *= 2) {
            struct dtp_costs costs;
            x->plan.ep = ep;
            CU_ASSERT_FATAL(dtp_plan_check(&x->problem, &x->plan) == DTP_LEGAL);
            struct dtp_update_key key;
            dtp_update_key_of(&x->problem, &x->plan, NULL, &key);
            dtp_stage_of(&x->model, &n, &key.cut, 0, &stage);
            near(64 * dtp_cost_optimizer_params(&key, &stage), (double)n.total);
            dtp_costs(arena, dtp_cost_memo_create(arena, &x->problem), &x->plan, &costs);
            double bytes = costs.stage[0].nreduce * costs.stage[0].reduce.bytes;
            double want =
                (stage.dense_params + stage.expert_params) * x->framework.wire.reduce_bytes;
            near(bytes, want);
            CU_ASSERT(ep == 1 || bytes < reduced);
            reduced = bytes;
        }
    }
}

/* fp32 router: copies of the tokens and their gradient, a product at the rate of fp32. It keeps its copy of the
 * tokens where one of 16 bit keeps the tokens themselves. */
static void test_wide_router(void) {
    struct fixture *x = op_case("mixtral-8x7b", "torchtitan");
    double tokens = (double)x->model.seq * x->model.hidden;
    double kept = dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_MOE);
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
    CU_ASSERT(named(x, "tokens to fp32") == 1);
    for (int i = 0; i < x->ops.n; i++)
        if (strcmp(x->ops.at[i].name, "router") == 0)
            CU_ASSERT(x->ops.at[i].gemm.dtype == DTP_FP32);
    x->framework.kernels.moe_router_fp32 = false;
    near(dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_MOE),
         kept - (4 - 2) * tokens);
}

/* Side by side with another microbatch: a forward's rows hide behind the compute of a backward, a backward's
 * behind that of a forward, and slow it; nothing else of the layer changes, and one layer more is kept: the
 * backward has let go of the others when the forward makes them. */
static void check_hidden(bool slow) {
    struct fixture *x = op_case("mixtral-8x7b", "megatron-core");
    const struct dtp_phase *apart, *beside;
    x->framework.wire.comm_time_factor = slow ? 100 : 1; /* longer than what they hide behind */
    x->plan.ep = x->plan.dp = 8;
    x->plan.global_batch_size = 32;
    x->cluster.gpu.comm_slowdown = 0.2;
    x->framework.keeps.logits_copies_bytes = 0; /* a backward has the peak, not the loss */
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
    apart = dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_MOE];
    CU_ASSERT(slow == (apart[0].ep_s > apart[1].compute_s + apart[2].compute_s));
    uint64_t before = dtp_evaluate_memory(dtp_evaluator_create(arena, &x->problem), &x->plan);
    x->plan.ep_overlap = 1;
    beside = dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_MOE];
    const double cover[2] = {apart[1].compute_s + apart[2].compute_s, apart[0].compute_s};
    for (int k = 0; k < 2; k++) {
        double hidden = apart[k].ep_s < cover[k] ? apart[k].ep_s : cover[k];
        CU_ASSERT(hidden > 0);
        near(beside[k].ep_s, apart[k].ep_s - 0.8 * hidden);
        near(beside[k].total_s, apart[k].total_s - 0.8 * hidden);
        near(beside[k].net_bytes[2], apart[k].net_bytes[2]);
    }
    struct dtp_costs costs; /* a stage adds up what its layers hide and send */
    dtp_costs(arena, memo, &x->plan, &costs);
    CU_ASSERT(beside[0].hidden_s > 0 && beside[1].hidden_s > 0);
    near(costs.stage[0].f.hidden_s, x->model.layers * beside[0].hidden_s);
    near(costs.stage[0].i.hidden_s, x->model.layers * beside[1].hidden_s);
    near(costs.stage[0].f.net_bytes[2], x->model.layers * beside[0].net_bytes[2]);
    double kept = dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_MOE);
    uint64_t after = dtp_evaluate_memory(dtp_evaluator_create(arena, &x->problem), &x->plan);
    CU_ASSERT_DOUBLE_EQUAL((double)(after - before), kept * x->framework.keeps.allocator_factor,
                           16);
    x->plan.ep = 1; /* nothing travels */
    double alone_s = dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_MOE][0].total_s;
    x->plan.ep_overlap = 0;
    near(dtp_cost_layers(memo, &x->plan)->of[DTP_LAYER_MOE][0].total_s, alone_s);
}

static void test_hidden(void) {
    check_hidden(false);
    check_hidden(true);
}

static double net_share(const struct fixture *x, const struct dtp_op *op) {
    struct dtp_layer_key key = key_of(&x->problem, &x->plan);
    return dtp_op_net_share(&x->problem, &key, op);
}

/* Two nodes with two experts each of four, two for a token: of six pairs one is all on either node, so that a
 * token goes to 5/3 nodes instead of as two rows. One expert a token: as rows; all: to each node once. */
static void test_once_a_node(void) {
    static const struct {
        int experts, top_k;
        double share;
    } cases[] = {{4, 2, 5.0 / 6}, {4, 1, 1}, {4, 4, 0.5}, {16, 16, 0.125}, {256, 8, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *x = op_case("mixtral-8x7b", "megatron-core");
        x->model.moe.experts = cases[i].experts;
        x->model.moe.top_k = cases[i].top_k;
        x->problem.gpus = 16;
        x->plan.ep = x->plan.dp = cases[i].experts < 16 ? cases[i].experts : 16;
        x->plan.tp = x->plan.etp = 16 / x->plan.ep; /* innermost: the ep ranks are on both nodes */
        x->plan.sequence_parallel = x->plan.tp > 1;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
        for (int k = 0; k < x->ops.n; k++) {
            const struct dtp_op *op = &x->ops.at[k];
            x->plan.ep_per_node = 0;
            double rows_s = dtp_op_time_s(&x->problem, &x->plan, op);
            CU_ASSERT(net_share(x, op) == 1);
            x->plan.ep_per_node = 1;
            double once_s = dtp_op_time_s(&x->problem, &x->plan, op);
            if (op->kind != DTP_OP_COLLECTIVE || op->axis != DTP_AXIS_EP) {
                CU_ASSERT(once_s == rows_s);
                continue;
            }
            if (cases[i].share > 0)
                near(net_share(x, op), cases[i].share);
            CU_ASSERT(once_s > 0 && once_s < rows_s);
        }
    }
}

/* The links between nodes bound both ways: where they have a hundredth of the bandwidth what is sent once takes longer
 * by its share of the bytes, but for what NCCL's sends reach less than the cards do. */
static void test_thin_fabric(void) {
    struct fixture *x = op_case("mixtral-8x7b", "megatron-core");
    x->problem.gpus = 16;
    x->plan.ep = x->plan.dp = 2;
    x->plan.tp = x->plan.etp = 8;
    x->plan.sequence_parallel = true;
    x->cluster.tier[0] = (struct dtp_tier){.name = "leaf", .nodes = 1, .oversubscription = 100};
    x->cluster.tier[1] = (struct dtp_tier){.name = "spine", .nodes = 64, .oversubscription = 1};
    x->cluster.ntiers = 2;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
    for (int k = 0; k < x->ops.n; k++) {
        const struct dtp_op *op = &x->ops.at[k];
        if (op->kind != DTP_OP_COLLECTIVE || op->axis != DTP_AXIS_EP)
            continue;
        x->plan.ep_per_node = 0;
        double rows_s = dtp_op_time_s(&x->problem, &x->plan, op);
        x->plan.ep_per_node = 1;
        double once_s = dtp_op_time_s(&x->problem, &x->plan, op);
        double share = net_share(x, op);
        CU_ASSERT(once_s > 0.8 * share * rows_s && once_s < share * rows_s);
    }
}

static enum dtp_reason reason(const char *stack, int ep, int zero, int group) {
    struct fixture *x = op_case("mixtral-8x7b", stack);
    x->plan.dp = x->problem.gpus = 8;
    x->plan.ep = ep;
    x->plan.zero_stage = zero;
    x->plan.zero_group = group;
    return dtp_plan_check(&x->problem, &x->plan);
}

static void test_refusals(void) {
    CU_ASSERT(reason("torch-fsdp2", 1, 3, 0) == DTP_LEGAL);
    CU_ASSERT(reason("torch-fsdp2", 2, 3, 0) == DTP_WHY_EP_HERE);
    for (int zero = 0; zero <= 3; zero++)
        CU_ASSERT(reason("deepspeed", 8, zero, 0) == DTP_LEGAL);
    CU_ASSERT(reason("deepspeed", 8, 3, 4) == DTP_WHY_ZERO_GROUP); /* AutoEP refuses MiCS */
    CU_ASSERT(reason("deepspeed-moe", 8, 2, 0) == DTP_LEGAL);
    CU_ASSERT(reason("deepspeed-moe", 8, 3, 0) == DTP_WHY_ZERO);
    CU_ASSERT(reason("torch-ddp", 1, 0, 0) == DTP_WHY_EXPERTS);
    CU_ASSERT(reason("nanotron", 2, 0, 0) == DTP_WHY_EXPERTS);
}

int main(void) {
    CU_TestInfo tests[] = {{"the same FLOPs", test_same_flops},
                           {"rows sent", test_rows_sent},
                           {"one owner each", test_owners},
                           {"rows behind compute", test_hidden},
                           {"once a node", test_once_a_node},
                           {"thin fabric", test_thin_fabric},
                           {"router in fp32", test_wide_router},
                           {"refusals", test_refusals},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"experts by stack", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
