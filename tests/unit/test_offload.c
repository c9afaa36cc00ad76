/* Offload by hand: links, Adam on the host, disks, what leaves the GPU; and ZeRO-Offload's headline. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/cost/cost_internal.h"
#include "models/evaluate/evaluate.h"
#include "tests/near.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;
static struct dtp_cluster cluster;
static struct dtp_framework framework;
static struct dtp_problem problem;
static struct dtp_plan plan;

static void prepare(const char *stack) {
    struct dtp_err err = {0};
    if (dtp_model_load(arena, "gpt3-6.7b", &model, &err) != DTP_OK ||
        dtp_cluster_load(arena, "dgx-2", &cluster, &err) != DTP_OK ||
        dtp_framework_load(arena, stack, &framework, &err) != DTP_OK)
        CU_FAIL_FATAL("model, cluster or framework");
    cluster.gpu.offload_bytes_per_s = 10e9;
    cluster.node.host_gpu_bytes_per_s = 32e9;
    cluster.node.host_stream_bytes_per_s = 60e9;
    cluster.node.nvme_bytes_per_s = 24e9;
    plan = dtp_plan_default();
    plan.dtype = DTP_FP16;
    plan.dp = 16;
    plan.zero_stage = 2;
    plan.global_batch_size = 32;
    plan.offload = DTP_OFFLOAD_OPTIMIZER;
    problem = (struct dtp_problem){.model = &model,
                                   .cluster = &cluster,
                                   .framework = &framework,
                                   .gpus = 16,
                                   .seq = 1024,
                                   .global_batch = 32,
                                   .attention = -1,
                                   .dtype = DTP_FP16};
}

static const struct dtp_update_key *key(void) {
    struct dtp_update_key *k = DTP_NEW(arena, struct dtp_update_key, 1);
    dtp_update_key_of(&problem, &plan, NULL, k);
    return k;
}

static bool near(double got, double want) {
    return is_near(got, want, 1e-12);
}

/* 16 ranks share 32 GB/s to the GPUs and 60 GB/s of host memory: 2 GB/s each, 1e9 parameters of 30 B. */
static void test_rates(void) {
    prepare("deepspeed");
    struct dtp_offload_cost c = dtp_offload_cost(&problem, key(), 1e9);
    CU_ASSERT(near(c.down_s, 2e9 / 2e9) && near(c.up_s, 2e9 / 2e9));
    CU_ASSERT(near(c.update_s, 16 * 30e9 / 60e9));
    problem.gpus = 1; /* alone: the card's own link, the whole host */
    c = dtp_offload_cost(&problem, key(), 1e9);
    CU_ASSERT(near(c.down_s, 2e9 / 10e9) && near(c.update_s, 30e9 / 60e9));
    plan.offload_to = DTP_OFFLOAD_NVME; /* 24 B to and from 24 GB/s */
    c = dtp_offload_cost(&problem, key(), 1e9);
    CU_ASSERT(near(c.update_s, 1));
    plan.offload = DTP_OFFLOAD_NONE;
    c = dtp_offload_cost(&problem, key(), 1e9);
    CU_ASSERT(c.down_s == 0 && c.update_s == 0 && c.up_s == 0);
}

/* DeepSpeed: with two microbatches the sum comes up and goes down again, behind the backward of each; a
 * stack that sends them in the step pays once and in full. */
static void test_exposed(void) {
    prepare("deepspeed");
    double update_s = 16 * 30e9 / 60e9, up_s = 1;
    CU_ASSERT(near(dtp_offload_exposed_s(&problem, key(), 1e9, 5), update_s + up_s));
    CU_ASSERT(near(dtp_offload_exposed_s(&problem, key(), 1e9, 0.5), update_s + up_s + 2 * 1.5));
    framework.quirks.eager_offload.offload_each_microbatch =
        framework.quirks.eager_offload.offload_overlap = false;
    CU_ASSERT(near(dtp_offload_exposed_s(&problem, key(), 1e9, 5), update_s + up_s + 1));
}

/* Weights on the host: a rank's sixteenth of a unit, at 2 GB/s. */
static void test_fetch(void) {
    prepare("deepspeed");
    CU_ASSERT(dtp_offload_fetch_s(&problem, key(), 16e9) == 0);
    plan.zero_stage = 3;
    plan.offload = DTP_OFFLOAD_PARAMETERS;
    CU_ASSERT(near(dtp_offload_fetch_s(&problem, key(), 16e9), 2e9 / 2e9));
    plan.offload_to = DTP_OFFLOAD_NVME;
    CU_ASSERT(near(dtp_offload_fetch_s(&problem, key(), 16e9), 2e9 * 16 / 24e9));
}

static double unshard_s(int *out_n) {
    struct dtp_costs c;
    dtp_costs(arena, dtp_cost_memo_create(arena, &problem), &plan, &c);
    *out_n = c.stage[0].nunshard;
    return c.stage[0].unshard.time_s;
}

/* A unit's share of all weights, those of experts among them, comes up before it is gathered. */
static void test_fetched_units(void) {
    struct dtp_param_counts counts;
    int n;
    prepare("deepspeed");
    CU_ASSERT_FATAL(dtp_model_load(arena, "mixtral-8x7b", &model, NULL) == DTP_OK);
    dtp_model_params(&model, model.vocab, &counts);
    plan.zero_stage = 3;
    plan.offload = DTP_OFFLOAD_NONE;
    double gathered_s = unshard_s(&n);
    plan.offload = DTP_OFFLOAD_PARAMETERS;
    CU_ASSERT(near(unshard_s(&n) - gathered_s,
                   dtp_offload_fetch_s(&problem, key(), (double)counts.total / n)));
}

/* If each microbatch sends its gradients in full, a plan of half as many pays less, whichever was asked first. */
static void test_ask_order(void) {
    prepare("deepspeed");
    framework.quirks.eager_offload.offload_overlap = false;
    plan.global_batch_size = problem.global_batch = 64;
    double fixed_s[2][2];
    for (int order = 0; order < 2; order++) {
        struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &problem);
        for (int k = 0; k < 2; k++) {
            struct dtp_bound_costs bound;
            int twice = k ^ order;
            plan.microbatch_size = 1 + twice;
            dtp_cost_bound(memo, &plan, &bound);
            fixed_s[order][twice] = bound.fixed_s;
        }
    }
    CU_ASSERT(fixed_s[0][0] == fixed_s[1][0] && fixed_s[0][1] == fixed_s[1][1]);
    CU_ASSERT(fixed_s[0][0] > fixed_s[0][1]);
}

/* Gradients of one microbatch go to the host during its backward, which includes a recomputed forward. */
static void test_beside_recomputation(void) {
    double left_s[2];
    prepare("deepspeed");
    cluster.gpu.offload_bytes_per_s = 1e8; /* longer than a backward */
    plan.global_batch_size = problem.global_batch = 16;
    for (int full = 0; full < 2; full++) {
        struct dtp_costs c;
        plan.recompute = full ? DTP_RECOMPUTE_FULL : DTP_RECOMPUTE_NONE;
        dtp_costs(arena, dtp_cost_memo_create(arena, &problem), &plan, &c);
        left_s[full] = c.offload_s + (full ? c.stage[0].r.total_s : 0);
        CU_ASSERT(c.stage[0].i.total_s > 0 && (c.stage[0].r.total_s > 0) == full);
        left_s[full] += c.stage[0].i.total_s + c.stage[0].w.total_s;
    }
    CU_ASSERT(near(left_s[1], left_s[0]));
}

/* Sixteen GPUs of a node divide 12 bytes of state and fp32 gradients of each parameter: the host holds one set; in
 * groups of eight two, and weights of 2 bytes in addition if these go there as well. */
static void test_room(void) {
    static const struct {
        int zero_stage, zero_group;
        enum dtp_offload what;
        double bytes;
    } cases[] = {{2, 0, DTP_OFFLOAD_OPTIMIZER, 16},
                 {2, 8, DTP_OFFLOAD_OPTIMIZER, 2 * 16},
                 {3, 0, DTP_OFFLOAD_PARAMETERS, 18}};
    struct dtp_param_counts n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        prepare("deepspeed");
        dtp_model_params(&model, model.vocab, &n);
        plan.zero_stage = cases[i].zero_stage;
        plan.zero_group = cases[i].zero_group;
        plan.offload = cases[i].what;
        double needed = (double)n.total * cases[i].bytes;
        CU_ASSERT(near(dtp_plan_offloaded_bytes(&problem, &plan), needed));
        cluster.node.host_memory_bytes = (uint64_t)(needed * 1.001);
        CU_ASSERT(dtp_plan_check(&problem, &plan) == DTP_LEGAL);
        cluster.node.host_memory_bytes = (uint64_t)(needed * 0.999);
        CU_ASSERT(dtp_plan_check(&problem, &plan) == DTP_WHY_OFFLOAD_ROOM);
    }
}

/* State leaves the GPU whole; DeepSpeed's gradients too, Megatron's stay. */
static void test_memory(void) {
    struct dtp_stage_memory with, without;
    prepare("deepspeed");
    dtp_memory(dtp_memory_memo_create(arena, &problem), &plan, &with);
    plan.offload = DTP_OFFLOAD_NONE;
    dtp_memory(dtp_memory_memo_create(arena, &problem), &plan, &without);
    CU_ASSERT(with.optimizer_bytes == 0 && with.gradients_bytes == 0);
    CU_ASSERT(without.optimizer_bytes > 0 && with.weights_bytes == without.weights_bytes);
    CU_ASSERT(with.peak_bytes < without.peak_bytes);
    prepare("megatron-core");
    plan.zero_stage = 1;
    dtp_memory(dtp_memory_memo_create(arena, &problem), &plan, &with);
    CU_ASSERT(with.optimizer_bytes == 0 && with.gradients_bytes > 0);
}

static double step_s(enum dtp_fidelity fidelity) {
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &problem);
    struct dtp_result r;
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &plan, fidelity, NULL, &r, NULL) == DTP_OK);
    dtp_evaluator_destroy(ev);
    return r.step_s;
}

/* The three fidelities keep their order with what is offloaded. */
static void test_fidelities(void) {
    prepare("deepspeed");
    double bound_s = step_s(DTP_BOUND), estimate_s = step_s(DTP_ESTIMATE);
    CU_ASSERT(bound_s <= estimate_s && bound_s > 0.5 * estimate_s);
    CU_ASSERT(step_s(DTP_SIMULATE) >= estimate_s * (1 - 1e-9));
    plan.offload = DTP_OFFLOAD_NONE;
    CU_ASSERT(step_s(DTP_ESTIMATE) < estimate_s);
}

/* Ren 2021, abstract: 10 billion parameters on one V100 at 40 TFLOP/s (50 layers of 4096, seq 1024, an update
 * for each microbatch of 8). */
static void test_zero_offload(void) {
    prepare("deepspeed");
    CU_ASSERT_FATAL(dtp_cluster_load(arena, "dgx-2", &cluster, NULL) == DTP_OK);
    model.layers = 50;
    plan.dp = problem.gpus = 1;
    plan.zero_stage = 0;
    plan.recompute = DTP_RECOMPUTE_FULL;
    plan.microbatch_size = plan.global_batch_size = problem.global_batch = 8;
    double flops = 6.0 * 10.3e9 * 8 * 1024;
    double rate = flops / step_s(DTP_SIMULATE);
    CU_ASSERT(rate > 34e12 && rate < 46e12);
}

int main(void) {
    CU_TestInfo tests[] = {{"rates", test_rates},
                           {"what is exposed", test_exposed},
                           {"weights from the host", test_fetch},
                           {"units from the host", test_fetched_units},
                           {"the order of questions", test_ask_order},
                           {"beside recomputation", test_beside_recomputation},
                           {"room on the host", test_room},
                           {"memory", test_memory},
                           {"fidelities", test_fidelities},
                           {"ZeRO-Offload on one V100", test_zero_offload},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"offload", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
