/* Layers of Hugging Face models in eager PyTorch: what they launch and keep, and the peaks of DDP and FSDP. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/framework/optimizer.h"
#include "sim/base/units.h"
#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

struct sizes {
    int layers, hidden, heads, seq, vocab, microbatch;
};

static void setup(struct fixture *x, const char *family, const char *framework, struct sizes s) {
    struct dtp_err err = {0};
    if (dtp_model_family(family, &x->model, &err) != DTP_OK ||
        dtp_framework_load(arena, framework, &x->framework, &err) != DTP_OK ||
        dtp_cluster_load(arena, "hgx-h100", &x->cluster, &err) != DTP_OK)
        CU_FAIL_FATAL("fixture");
    x->model.name = family;
    x->model.layers = s.layers;
    x->model.hidden = s.hidden;
    x->model.heads = s.heads;
    x->model.ffn = 4 * s.hidden;
    x->model.vocab = s.vocab;
    x->model.seq = s.seq;
    x->model.max_positions = x->model.position == DTP_POS_LEARNED ? s.seq : 0;
    if (dtp_model_finish(&x->model, &err) != DTP_OK)
        CU_FAIL_FATAL("model");
    x->problem = (struct dtp_problem){.model = &x->model,
                                      .framework = &x->framework,
                                      .cluster = &x->cluster,
                                      .gpus = 1,
                                      .seq = s.seq,
                                      .global_batch = s.microbatch,
                                      .attention = -1,
                                      .dtype = DTP_BF16};
    x->plan = dtp_plan_default();
    x->plan.microbatch_size = x->plan.global_batch_size = s.microbatch;
}

/* Bytes per token and layer, without the 4 a of the log-sum-exp, are: GPT-2 58 h in 16 bit, 86 h under autocast;
 * Llama 24 h + 8 f, 34 h + 8 f. */
static void test_activations(void) {
    static const struct {
        const char *family, *framework;
        double h, f;
    } cases[] = {{"gpt", "torch-ddp-bf16", 58, 0},
                 {"gpt", "torch-ddp", 86, 0},
                 {"llama", "torch-fsdp2", 24, 8},
                 {"llama", "torch-ddp", 34, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture x;
        setup(&x, cases[i].family, cases[i].framework, (struct sizes){2, 2048, 16, 1024, 32000, 4});
        double tokens = 4.0 * 1024, h = x.model.hidden;
        expect_near(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
                    tokens * (cases[i].h * h + cases[i].f * x.model.ffn + 4 * x.model.heads),
                    1e-12);
    }
}

static int kernels_named(const struct dtp_ops *ops, const char *start, enum dtp_pass pass) {
    int n = 0;
    for (int i = 0; i < ops->n; i++)
        n += ops->at[i].pass == pass && strncmp(ops->at[i].name, start, strlen(start)) == 0;
    return n;
}

/* NewGELUActivation: 8 kernels forward, 11 backward (traces of PyTorch 2.11); MPT's GELU is one. */
static void test_gelu(void) {
    struct fixture x;
    struct dtp_ops ops;
    setup(&x, "gpt", "torch-fsdp2", (struct sizes){2, 2048, 16, 1024, 51200, 4});
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, &ops);
    CU_ASSERT_EQUAL(kernels_named(&ops, "gelu", DTP_PASS_F), 8);
    CU_ASSERT_EQUAL(kernels_named(&ops, "gelu", DTP_PASS_I), 11);
    setup(&x, "mpt", "torch-fsdp1", (struct sizes){2, 2048, 16, 1024, 51200, 4});
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, &ops);
    CU_ASSERT_EQUAL(kernels_named(&ops, "gelu", DTP_PASS_F), 0);
    CU_ASSERT_EQUAL(kernels_named(&ops, "activation", DTP_PASS_F), 1);
}

static void test_precision(void) {
    struct fixture x;
    struct dtp_ops narrow, wide;
    double bytes[2] = {0, 0};
    setup(&x, "gpt", "torch-ddp-bf16", (struct sizes){2, 2048, 16, 1024, 51200, 4});
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, &narrow);
    setup(&x, "gpt", "torch-ddp", (struct sizes){2, 2048, 16, 1024, 51200, 4});
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, &wide);
    for (int i = 0; i < narrow.n; i++)
        bytes[0] += narrow.at[i].kind == DTP_OP_KERNEL ? narrow.at[i].bytes : 0;
    for (int i = 0; i < wide.n; i++)
        bytes[1] += wide.at[i].kind == DTP_OP_KERNEL ? wide.at[i].bytes : 0;
    CU_ASSERT(bytes[1] > 1.8 * bytes[0] && bytes[1] < 2.8 * bytes[0]);
}

/* Checkpointing stops at the last tensor that was kept: for Llama the input of the last product, which is
 * not repeated; GPT-2's dropout mask comes after it, so there it is. */
static void test_early_stop(void) {
    static const char *const families[] = {"gpt", "llama"};
    for (int i = 0; i < 2; i++) {
        struct fixture x;
        setup(&x, families[i], "torch-fsdp2", (struct sizes){2, 2048, 16, 1024, 32000, 4});
        x.plan.recompute = DTP_RECOMPUTE_FULL;
        struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x.problem);
        const struct dtp_layer_costs *costs = dtp_cost_layers(memo, &x.plan);
        double last = 2.0 * 4 * 1024 * x.model.ffn * x.model.hidden;
        expect_near(costs->of[DTP_LAYER_DENSE][3].flops,
                    costs->of[DTP_LAYER_DENSE][0].flops - (i == 1 ? last : 0), 1e-12);
        CU_ASSERT(costs->of[DTP_LAYER_DENSE][3].total_s < costs->of[DTP_LAYER_DENSE][0].total_s);
    }
}

static double peak_bytes(struct fixture *x) {
    struct dtp_stage_memory m;
    dtp_memory(dtp_memory_memo_create(arena, &x->problem), &x->plan, &m);
    CU_ASSERT_EQUAL(m.peak_bytes, m.weights_bytes + m.gradients_bytes + m.optimizer_bytes +
                                      m.activations_bytes + m.logits_bytes + m.buffers_bytes);
    return (double)m.peak_bytes;
}

/* Our runs of PyTorch 2.11 on one H100: largest allocated bytes over the first steps. */
static void test_measured_peaks(void) {
    struct fixture x;
    setup(&x, "gpt", "torch-ddp", (struct sizes){16, 2048, 16, 2048, 51200, 2});
    expect_near(peak_bytes(&x), 34.308 * DTP_GIGA, 0.01);
    setup(&x, "gpt", "torch-ddp", (struct sizes){24, 1024, 16, 1024, 51200, 16});
    x.plan.recompute = DTP_RECOMPUTE_FULL;
    expect_near(peak_bytes(&x), 19.086 * DTP_GIGA, 0.01);
    setup(&x, "llama", "torch-ddp", (struct sizes){12, 2048, 16, 2048, 32000, 4});
    expect_near(peak_bytes(&x), 37.149 * DTP_GIGA, 0.01);
    setup(&x, "llama", "torch-ddp-bf16", (struct sizes){12, 2048, 16, 2048, 32000, 4});
    expect_near(peak_bytes(&x), 23.995 * DTP_GIGA, 0.01);
}

/* FSDP2 stores 12 P / d bytes of P parameters on d ranks; more ranks have smaller peaks, never below the rest. */
static void test_fsdp(void) {
    struct fixture x;
    double before = 0;
    for (int d = 2; d <= 8; d *= 2) {
        setup(&x, "gpt", "torch-fsdp2", (struct sizes){24, 2048, 16, 1024, 51200, 8});
        x.plan.dp = x.problem.gpus = d;
        x.plan.zero_stage = 3;
        x.plan.global_batch_size = x.problem.global_batch = 8 * d;
        struct dtp_param_counts counts;
        dtp_model_params(&x.model, x.model.vocab, &counts);
        double peak = peak_bytes(&x), shards = 12 * (double)counts.total / d;
        CU_ASSERT(peak > shards);
        if (d > 2)
            expect_near(before - peak, shards, 1e-6); /* half of 12 P / (d / 2) */
        before = peak;
    }
}

/* Without prefetch in the forward its gathers are exposed. */
static void test_forward_prefetch(void) {
    double step_s[2];
    for (int ahead = 0; ahead < 2; ahead++) {
        struct fixture x;
        setup(&x, "mpt", "torch-fsdp1", (struct sizes){32, 4096, 32, 2048, 50368, 2});
        x.framework.wire.zero3_forward_prefetch = ahead;
        x.plan.dp = x.problem.gpus = 8;
        x.plan.zero_stage = 3;
        x.plan.global_batch_size = x.problem.global_batch = 16;
        struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
        step_s[ahead] = dtp_evaluate_estimate(ev, &x.plan);
        CU_ASSERT(dtp_evaluate_bound(ev, &x.plan) <= step_s[ahead]);
        dtp_evaluator_destroy(ev);
    }
    CU_ASSERT(step_s[0] > 1.02 * step_s[1]);
}

/* The A100 file has no cuDNN attention, the V100 file none at all. */
static void test_attention_of_gpu(void) {
    static const char *const clusters[] = {"dgx-a100-80", "dgx-2"};
    for (int i = 0; i < 2; i++) {
        struct fixture x;
        struct dtp_ops ops;
        struct dtp_err err = {0};
        setup(&x, "llama", "torch-fsdp2", (struct sizes){2, 2048, 16, 1024, 32000, 4});
        x.plan.dtype = DTP_FP16;
        CU_ASSERT_FATAL(dtp_cluster_load(arena, clusters[i], &x.cluster, &err) == DTP_OK);
        dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, &ops);
        bool fused = false;
        for (int k = 0; k < ops.n; k++) {
            fused |= ops.at[k].kind == DTP_OP_ATTENTION;
            CU_ASSERT(isfinite(dtp_op_time_s(&x.problem, &x.plan, &ops.at[k])));
        }
        CU_ASSERT_EQUAL(fused, i == 0);
    }
}

/* Keys and values of h / 4 that are copied for each head of queries are kept h wide: 2 (2 h - h / 2) more. */
static void test_repeated_kv(void) {
    struct fixture x;
    setup(&x, "llama", "torchtune", (struct sizes){2, 4096, 32, 1024, 32000, 1});
    x.model.kv_heads = 8;
    CU_ASSERT(x.framework.quirks.repeated_kv.repeats_kv);
    double with = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    x.framework.quirks.repeated_kv.repeats_kv = false;
    expect_near(with - dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
                2 * 1.5 * 4096 * 1024, 1e-12);
}

/* Attention of transformers without a fused kernel: Q, repeated K and V and the output of h each in 16 bit, and for
 * each score the fp32 softmax and its 16-bit cast. Llama 8B at 2 x 2,048 tokens: 4096 (8 x 4096 + 6 x 32 x 2048). */
static void test_unfused(void) {
    struct fixture x;
    setup(&x, "llama", "hf-bf16", (struct sizes){2, 4096, 32, 2048, 32000, 2});
    x.model.kv_heads = 8;
    double fused = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    x.problem.attention = DTP_ATTN_UNFUSED;
    double unfused = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    double kept = 4096.0 * (4 * 4096 + 4 * 1024 + 4 * 32);
    expect_near(unfused - fused + kept, 4096.0 * (8 * 4096 + 6 * 32 * 2048), 1e-12);
}

/* One process has no DDP, so no reducer: 8 bytes a parameter in fp32 come with the second rank, and gradients are views
 * of them. FSDP2 keeps no copies of autocast. */
static void test_reducer(void) {
    struct fixture x;
    struct dtp_param_counts params;
    double peak[2];
    for (int dp = 1; dp <= 2; dp++) {
        setup(&x, "llama", "hf", (struct sizes){4, 2048, 16, 1024, 32000, 16});
        x.plan.dp = x.problem.gpus = dp;
        x.plan.global_batch_size = x.problem.global_batch = 16 * dp;
        peak[dp - 1] = peak_bytes(&x);
    }
    dtp_model_params(&x.model, x.model.vocab, &params);
    expect_near(peak[1] - peak[0], 8 * (double)params.total, 1e-3);
    CU_ASSERT(dtp_framework_autocasts(&x.framework, 0));
    CU_ASSERT_FALSE(dtp_framework_autocasts(&x.framework, 3));
}

/* State a parameter and bytes that a step moves (transformers 5.17 and bitsandbytes) with fp32 and bf16 weights: the
 * update, and 12 or 6 to clip gradients. */
static void test_optimizers(void) {
    static const struct {
        const char *name;
        double state[2], moved[2];
    } cases[] = {
        {"adamw", {8, 4}, {40, 20}},        {"sgd", {0, 0}, {24, 12}},
        {"sgd_momentum", {4, 2}, {32, 16}}, {"lion", {4, 2}, {32, 16}},
        {"adafactor", {0, 0}, {110, 104}},  {"adamw_8bit", {2.03125, 2.03125}, {28.0625, 16.0625}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int wide = 0; wide < 2; wide++) {
            struct dtp_framework f;
            CU_ASSERT_FATAL(dtp_framework_load(arena, wide ? "hf-bf16" : "hf", &f, NULL) == DTP_OK);
            CU_ASSERT(dtp_framework_set_optimizer(&f, cases[i].name, NULL) == DTP_OK);
            CU_ASSERT_EQUAL(f.keeps.optimizer_bytes, cases[i].state[wide]);
            CU_ASSERT_EQUAL(f.kernels.optimizer_bytes_moved, cases[i].moved[wide]);
        }
    struct dtp_framework f;
    struct dtp_err err;
    CU_ASSERT_FATAL(dtp_framework_load(arena, "megatron-core", &f, NULL) == DTP_OK);
    CU_ASSERT(dtp_framework_set_optimizer(&f, "sgd", &err) == DTP_EUSAGE);
    CU_ASSERT(strstr(err.msg, "megatron-core has adamw") != NULL);
    CU_ASSERT(dtp_framework_set_optimizer(&f, "adamv", &err) == DTP_EUSAGE);
    CU_ASSERT(strstr(err.msg, "adamw") != NULL);
}

int main(void) {
    arena = dtp_arena_create("test");
    CU_TestInfo tests[] = {{"activations kept", test_activations},
                           {"GELU kernel by kernel", test_gelu},
                           {"autocast moves twice the bytes", test_precision},
                           {"recomputation stops early", test_early_stop},
                           {"keys and values repeated", test_repeated_kv},
                           {"unfused attention", test_unfused},
                           {"reducer of DDP", test_reducer},
                           {"optimizers", test_optimizers},
                           {"measured peaks", test_measured_peaks},
                           {"FSDP shards", test_fsdp},
                           {"forward prefetch", test_forward_prefetch},
                           {"attention that the GPU has", test_attention_of_gpu},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"eager", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
