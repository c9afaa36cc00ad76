/* Lists of operations: FLOPs against the formula, what tp divides, what each pass does. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/ops/op.h"
#include "models/schedule/schedule.h"
#include "tests/op_case.h"
#include "tests/suites.h"

static const struct dtp_op *find_op(const struct fixture *x, enum dtp_op_kind kind) {
    for (int i = 0; i < x->ops.n; i++)
        if (x->ops.at[i].kind == kind)
            return &x->ops.at[i];
    return NULL;
}

/* Packed: four documents in a sequence are four sequences of a quarter to fused attention, with a quarter of its
 * FLOPs; the products see the same tokens. One document of the sequence's length changes nothing. */
static void test_documents(void) {
    struct fixture *x = op_case("llama2-7b", "nemo");
    x->problem.attention = DTP_ATTN_FLASH2;
    double whole = flops(x, DTP_LAYER_DENSE, DTP_PASS_F);
    double attention = dtp_op_flops(find_op(x, DTP_OP_ATTENTION));
    x->problem.document_tokens = x->problem.seq / 4;
    near(whole - flops(x, DTP_LAYER_DENSE, DTP_PASS_F), 0.75 * attention);
    near(dtp_op_flops(find_op(x, DTP_OP_ATTENTION)), attention / 4);
    x->problem.document_tokens = x->problem.seq;
    near(flops(x, DTP_LAYER_DENSE, DTP_PASS_F), whole);
}

/* Narayanan 2021, appendix: a layer's forward is 24 B s h^2 (1 + s / 6h); each tp rank does 1/t; the
 * backward does twice as much. Scores in memory: attention is counted in full. */
static void test_flops(void) {
    for (int t = 1; t <= 8; t *= 2)
        for (int b = 1; b <= 4; b *= 2) {
            struct fixture *x = op_case("gpt22b", "megatron-2022");
            double s = x->model.seq, h = x->model.hidden;
            x->plan.tp = t;
            x->plan.microbatch_size = b;
            double want = 24 * b * s * h * h * (1 + s / (6 * h)) / t;
            near(flops(x, DTP_LAYER_DENSE, DTP_PASS_F), want);
            near(flops(x, DTP_LAYER_DENSE, DTP_PASS_I) + flops(x, DTP_LAYER_DENSE, DTP_PASS_W),
                 2 * want);
            double vocab = dtp_framework_padded_vocab(&x->framework, x->model.vocab, t);
            near(flops(x, DTP_LAYER_HEAD, DTP_PASS_F), 2 * b * s * h * vocab / t);
        }
}

/* Shoeybi 2019: two all-reduces of 2 s b h bytes forward and two backward. Korthikanti 2022: with
 * sequence parallelism two gathers and two scatters forward; backward one gather more for each of the
 * two column-parallel inputs. */
static void test_tensor_parallel(void) {
    struct fixture *x = op_case("gpt22b", "megatron-2022");
    double bytes = 2.0 * x->model.seq * x->model.hidden;
    int n;
    x->plan.tp = 8;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    near(traffic(x, DTP_ALL_REDUCE, DTP_PASS_F, &n), 2 * bytes);
    near(traffic(x, DTP_ALL_REDUCE, DTP_PASS_I, &n), 2 * bytes);
    x->plan.sequence_parallel = true;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    CU_ASSERT(traffic(x, DTP_ALL_REDUCE, DTP_PASS_F, &n) == 0);
    near(traffic(x, DTP_ALL_GATHER, DTP_PASS_F, &n), 2 * bytes);
    near(traffic(x, DTP_REDUCE_SCATTER, DTP_PASS_F, &n), 2 * bytes);
    near(traffic(x, DTP_ALL_GATHER, DTP_PASS_I, &n), 4 * bytes);
    near(traffic(x, DTP_REDUCE_SCATTER, DTP_PASS_I, &n), 2 * bytes);
    x->plan.tp = 1;
    x->plan.sequence_parallel = false;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        CU_ASSERT(x->ops.at[i].kind != DTP_OP_COLLECTIVE);
}

/* What recomputation repeats: nothing, the core, all of the forward, or the forward up to the last tensor that
 * it kept. */
static void test_repeated(void) {
    struct fixture *x = op_case("gpt22b", "torch-ddp");
    int n[2] = {0};
    for (int mode = 0; mode < 4; mode++) {
        x->plan.recompute = mode == 3 ? DTP_RECOMPUTE_FULL : (enum dtp_recompute)mode;
        x->framework.kernels.recompute_stops_early = mode == 3;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        for (int i = 0; i < x->ops.n; i++) {
            const struct dtp_op *op = &x->ops.at[i];
            bool forward = op->pass == DTP_PASS_F;
            CU_ASSERT(mode == 3 ||
                      op->repeated == (forward && (mode == DTP_RECOMPUTE_FULL ||
                                                   (mode == DTP_RECOMPUTE_SELECTIVE &&
                                                    op->again_by & DTP_BIT_CORE_ATTN))));
            CU_ASSERT(forward || !op->repeated);
            if (mode >= DTP_RECOMPUTE_FULL)
                n[mode == 3] += op->repeated;
        }
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_HEAD, &x->ops);
        for (int i = 0; i < x->ops.n; i++)
            CU_ASSERT(!x->ops.at[i].repeated);
    }
    CU_ASSERT(n[1] > 0 && n[1] < n[0]);
}

/* Every operation of every model takes a finite time, and all of it is in one of three passes. */
static void test_every_model(void) {
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, NULL) == DTP_OK && n > 50);
    for (size_t i = 0; i < n; i++) {
        struct fixture *x = op_case(names[i], "megatron-core");
        enum dtp_layer_kind kinds[] = {DTP_LAYER_DENSE, DTP_LAYER_EMBEDDING, DTP_LAYER_HEAD};
        for (int k = 0; k < 3; k++) {
            enum dtp_layer_kind kind = x->model.nconvs > 0 ? DTP_LAYER_CONV : kinds[k];
            dtp_ops_layer(&x->problem, &x->plan, kind, &x->ops);
            CU_ASSERT(x->ops.n > 0 && x->ops.n <= DTP_MAX_OPS);
            for (int o = 0; o < x->ops.n; o++) {
                double t_s = dtp_op_time_s(&x->problem, &x->plan, &x->ops.at[o]);
                if (!(isfinite(t_s) && t_s >= 0))
                    printf("\n  %s: %s takes %g s\n", names[i], x->ops.at[o].name, t_s);
                CU_ASSERT(isfinite(t_s) && t_s >= 0);
                CU_ASSERT(x->ops.at[o].pass < DTP_NPASSES);
            }
        }
    }
}

static double launches(struct fixture *x) {
    double sum = 0;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        sum += x->ops.at[i].count * x->ops.at[i].launches;
    return sum;
}

/* Megatron's softmax kernel takes blocks of four heads; what it leaves goes through fp32. In fp32 it takes
 * none, and nothing is converted: scale, mask and softmax apart, and the scale's backward. */
static void test_softmax(void) {
    struct fixture *x = op_case("gpt22b", "megatron-2021"); /* 64 heads */
    x->plan.tp = 16;
    double fused = launches(x);
    x->plan.tp = 32;
    CU_ASSERT(launches(x) == fused + 8);
    x->plan.microbatch_size = 2;
    CU_ASSERT(launches(x) == fused);
    x->plan.dtype = DTP_TF32;
    CU_ASSERT(launches(x) == fused + 3);
}

/* Gaps of a stack: one for each kernel and each collective, at any size. */
static void test_gaps(void) {
    struct fixture *x = op_case("gpt22b", "megatron-deepspeed");
    double f_s[2], kernels = 0, collectives = 0;
    x->plan.tp = 8;
    x->framework.host.launch_s = 0;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        if (x->ops.at[i].pass == DTP_PASS_F)
            *(x->ops.at[i].kind == DTP_OP_COLLECTIVE ? &collectives : &kernels) +=
                x->ops.at[i].count * x->ops.at[i].launches;
    for (int i = 0; i < 2; i++) {
        x->framework.quirks.traced_gaps.kernel_gap_s = i * 1e-5;
        x->framework.quirks.traced_gaps.collective_gap_s = i * 1e-4;
        f_s[i] = dtp_cost_layers(dtp_cost_memo_create(arena, &x->problem), &x->plan)
                     ->of[DTP_LAYER_DENSE][0]
                     .total_s;
    }
    CU_ASSERT(collectives == 2 && kernels > 10);
    CU_ASSERT(fabs(f_s[1] - f_s[0] - 1e-5 * kernels - 1e-4 * collectives) < 1e-12);
}

/* torchtitan's selective recomputation of 16-bit layers keeps the first, third, ... product of q, k, v, o, gate,
 * up and down, of FP8 layers none: with the input and what attention made, 2 B an element. */
static void test_alternate_products(void) {
    struct fixture *x = op_case("llama3-8b", "torchtitan");
    x->plan.recompute = DTP_RECOMPUTE_SELECTIVE;
    double tokens = x->model.seq, h = x->model.hidden, ffn = x->model.ffn, kv = h / 4;
    x->plan.dtype = DTP_BF16;
    near(dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_DENSE),
         2 * tokens * (h + h + h + kv + ffn + h));
    x->plan.dtype = DTP_FP8;
    near(dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_DENSE), 2 * tokens * 2 * h);
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    int repeated = 0;
    for (int i = 0; i < x->ops.n; i++)
        repeated += x->ops.at[i].kind == DTP_OP_GEMM && x->ops.at[i].pass == DTP_PASS_F &&
                    x->ops.at[i].again_by != 0;
    CU_ASSERT_EQUAL(repeated, 6); /* down's output is not read again */
}

/* The mean of a step's load: layers x m microbatches over pp stages, and behind it the bubble as a rest, (pp - 1) /
 * (v m) of it, a third of that where backwards are split. */
static void test_rests(void) {
    static const struct {
        int schedule, vpp;
        double rest;
    } cases[] = {{DTP_SCHED_1F1B, 1, 3.0 / 8},
                 {DTP_SCHED_INTERLEAVED, 3, 3.0 / (3 * 8)},
                 {DTP_SCHED_ZB_H1, 1, 3.0 / (3 * 8)}};
    struct fixture *x = op_case("gpt3-6.7b", "megatron-core");
    struct dtp_load_mix of[DTP_NLAYER_KINDS] = {{0}};
    CU_ASSERT_FATAL(dtp_cluster_load(arena, "dgx-b200", &x->cluster, NULL) == DTP_OK);
    struct dtp_gpu *g = &x->cluster.gpu;
    g->power.memory_s = 1;
    g->power.burst_w = 0;
    of[DTP_LAYER_DENSE] =
        (struct dtp_load_mix){1e-3, 2e-3 * g->power_w, 1e-4, 1e-5 * g->power_w, 0};
    x->plan.pp = 4;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x->plan.schedule = cases[i].schedule;
        x->plan.vpp = cases[i].vpp;
        double n = x->model.layers * 8 / 4.0, w = g->power_w;
        struct dtp_load_mix mix = {n * 1e-3, n * 2e-3 * w, n * 1e-4, n * 1e-5 * w, cases[i].rest};
        double slowdown = dtp_power_slowdown(g, &mix);
        struct dtp_layer_key key = key_of(&x->problem, &x->plan);
        near(dtp_op_slowdown(&x->problem, &key, of), slowdown);
        mix.rest *= 2; /* and it counts */
        CU_ASSERT(slowdown > 1 && dtp_power_slowdown(g, &mix) < slowdown * (1 - 1e-3));
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"FLOPs of a GPT layer", test_flops},
                           {"tensor-parallel traffic", test_tensor_parallel},
                           {"softmax of few heads", test_softmax},
                           {"packed documents", test_documents},
                           {"gaps", test_gaps},
                           {"rests of a pipeline", test_rests},
                           {"what is repeated", test_repeated},
                           {"every model of the library", test_every_model},
                           {"every second product", test_alternate_products},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"op", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
