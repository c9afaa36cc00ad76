/* DeepSpeed's ZeRO and hybrid sharding: published bytes, volumes on the wire, fidelities, the search. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/plan/plan.h"
#include "planner/search.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static void setup(struct fixture *x, const char *model, const char *framework, int gpus) {
    problem_case(arena, x, model, framework, gpus, 4 * gpus);
    x->problem.memory_limit_bytes = UINT64_C(80000000000);
    x->plan.dp = gpus;
}

static struct dtp_costs costs_of(struct fixture *x) {
    struct dtp_costs costs;
    CU_ASSERT_FATAL(dtp_plan_check(&x->problem, &x->plan) == DTP_LEGAL);
    dtp_costs(arena, dtp_cost_memo_create(arena, &x->problem), &x->plan, &costs);
    return costs;
}

/* A collective that overlaps a mix of products and memory-bound kernels takes a share of their rate between the two
 * slow-downs, and is stretched by less than if it overlapped memory-bound kernels alone; one that leaves the node
 * keeps its bandwidth, and a GPU file without figures changes nothing. */
static void test_beside_compute(void) {
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct fixture x;
        setup(&x, "llama2-7b", "torch-fsdp2", 8 * nodes);
        x.plan.zero_stage = 3;
        struct dtp_gpu *gpu = &x.cluster.gpu;
        gpu->comm_slowdown = 0.3;
        gpu->comm_memory_rate = gpu->comm_memory_slowdown = 0;
        struct dtp_comm plain = costs_of(&x).stage[0].unshard;
        /* 16 of 24 channels through eight cards */
        CU_ASSERT_DOUBLE_EQUAL(plain.device_share, nodes == 1 ? 0.3 : 0.2, 1e-12);
        CU_ASSERT(plain.stretch == 0 && plain.wait_s > 0);
        gpu->comm_memory_rate = 0.5;
        gpu->comm_memory_slowdown = 0.1;
        struct dtp_comm c = costs_of(&x).stage[0].unshard;
        CU_ASSERT(c.device_share > plain.device_share / 3 && c.device_share < plain.device_share);
        CU_ASSERT(nodes == 1 ? c.stretch > 0 && c.stretch < 1 : c.stretch == 0);
        CU_ASSERT(c.time_s == plain.time_s && c.wait_s == plain.wait_s);
    }
}

/* estimate_zero2_ and estimate_zero3_model_states_mem_needs() of DeepSpeed without offload, P parameters
 * on N GPUs: 2 P + 18 P / N, and 18 P / N plus the largest layer. Its documentation (code-docs, memory)
 * gives 6.09 GB for 2851 M parameters on 8 GPUs with ZeRO-3, and, by its older formula which keeps
 * whole gradients as ZeRO-1 does, 4 P + 16 P / N: 15.93 GB. */
static void test_deepspeed_states(void) {
    static const double gib = 1024.0 * 1024 * 1024;
    static const double whole[4] = {0, 4, 2, 0}, divided[4] = {0, 16, 18, 18};
    CU_ASSERT(fabs(2851e6 * (whole[1] + divided[1] / 8) / gib - 15.93) < 0.01);
    CU_ASSERT(fabs((2851e6 * divided[3] / 8 + 4 * 32e6) / gib - 6.09) < 0.01);
    for (int z = 1; z <= 3; z++) {
        struct fixture x;
        setup(&x, "gpt3-2.7b", "deepspeed", 2);
        x.problem.seq = 128; /* so that the update holds most */
        x.plan.zero_stage = z;
        struct dtp_stage_memory s;
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
        CU_ASSERT_STRING_EQUAL(s.moment, "update");
        double states = (double)(s.weights_bytes + s.gradients_bytes + s.optimizer_bytes);
        /* its count for ZeRO-3 has one 16-bit shard, stage3.py holds weights and gradients */
        double more = z == 3 ? 2.0 / 2 : 0;
        CU_ASSERT(fabs(states / (double)s.params - whole[z] - divided[z] / 2 - more) < 1e-6);
        CU_ASSERT(s.activations_bytes == 0);
    }
}

/* Megatron's optimizers cast what a rank updates of 16-bit gradients to fp32 first; those of fp32 are read where they
 * are. */
static void test_megatron_update(void) {
    for (int i = 0; i < 4; i++) {
        struct fixture x;
        struct dtp_stage_memory s;
        bool wide = i / 2 > 0, divided = i % 2 > 0;
        setup(&x, "gpt3-2.7b", wide ? "megatron-core" : "megatron-bridge", 2);
        x.problem.seq = 128;
        x.plan.zero_stage = divided;
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
        CU_ASSERT((strcmp(s.moment, "update") == 0) == !wide);
        double gradients = wide ? 4 : divided ? 2 + 4 / 2.0 : 2 + 4;
        CU_ASSERT_DOUBLE_EQUAL((double)s.gradients_bytes, gradients * (double)s.params, 2);
    }
}

/* Buckets: 5e8 elements of 2 bytes, two of them where ZeRO-1/2 overlap; what ZeRO-3 keeps gathered. */
static void test_deepspeed_buffers(void) {
    struct fixture x;
    setup(&x, "llama2-13b", "deepspeed", 64);
    struct dtp_stage_memory one, two, three;
    struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x.problem);
    x.plan.zero_stage = 2;
    dtp_memory(memo, &x.plan, &one);
    x.plan.dp_overlap = 1;
    dtp_memory(memo, &x.plan, &two);
    CU_ASSERT(one.buffers_bytes >= 1000000000);
    CU_ASSERT(two.buffers_bytes - one.buffers_bytes == 1000000000);
    x.plan.dp_overlap = -1;
    x.plan.zero_stage = 3;
    dtp_memory(memo, &x.plan, &three);
    x.framework.quirks.zero_pieces.zero3_reuse_params = 0;
    struct dtp_stage_memory released;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &released);
    /* max_reuse_distance 1e9: the last 5e8 parameters of the forward, 2 bytes each */
    CU_ASSERT(three.buffers_bytes - released.buffers_bytes == 1000000000);
}

static void test_deepspeed_traffic(void) {
    struct fixture x;
    setup(&x, "llama2-13b", "deepspeed", 16);
    double params = 0;
    for (int z = 1; z <= 3; z++) {
        x.plan.zero_stage = z;
        struct dtp_costs c = costs_of(&x);
        const struct dtp_stage_cost *s = &c.stage[0];
        CU_ASSERT(s->reduce.kind == (z == 3 ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE));
        CU_ASSERT(c.reduce_overlap == (z == 3));
        CU_ASSERT(c.reduce_per_microbatch == (z >= 2));
        double bytes = s->reduce.bytes * s->nreduce;
        params = z == 1 ? bytes / 2 : params;
        CU_ASSERT(fabs(bytes / 2 / params - 1) < 1e-12);
        CU_ASSERT(s->nreduce == (int)ceil(params / 5e8));
        double gathered = z == 3 ? s->unshard.bytes * s->nunshard : s->gather.bytes * s->nreduce;
        CU_ASSERT(fabs(gathered / 2 / params - 1) < 1e-12);
        if (z == 3) /* 5120 x 13824 is the largest weight, above the prefetch bucket of 5e7 */
            CU_ASSERT(s->nunshard == (int)ceil(params / (5120.0 * 13824)));
        CU_ASSERT(c.regather_backward);
    }
    setup(&x, "gpt2", "deepspeed", 16); /* less than half of max_reuse_distance */
    x.plan.zero_stage = 3;
    CU_ASSERT(!costs_of(&x).regather_backward);
}

/* What a plan may not do better than, at each fidelity. */
/* InternEvo: each of n ranks sends its 1 / n of the weights to the others, whatever the buckets are; in groups as
 * many fewer, inside the node. */
static void test_broadcasts(void) {
    for (int group = 0; group <= 8; group += 8) {
        struct fixture x;
        setup(&x, "llama2-7b", "internevo", 32);
        x.plan.zero_stage = 1;
        x.plan.zero_group = group;
        struct dtp_placement at;
        struct dtp_coll_cost one;
        CU_ASSERT_FATAL(dtp_plan_place(&x.plan, &x.cluster, &x.framework, &at, NULL) == DTP_OK);
        struct dtp_group_shape shape =
            dtp_placement_shape(&at, &x.cluster, group ? DTP_AXIS_ZERO : DTP_AXIS_DP_CP, 0);
        struct dtp_param_counts n;
        dtp_model_params(&x.model, x.model.vocab, &n);
        double bytes = 2.0 * (double)n.total;
        dtp_coll_cost(&x.cluster, DTP_BROADCAST, DTP_ALGO_AUTO, &shape, bytes / shape.size, &one);
        struct dtp_costs costs = costs_of(&x);
        const struct dtp_stage_cost *s = &costs.stage[0];
        CU_ASSERT_EQUAL(shape.size, group ? 8 : 32);
        CU_ASSERT(s->nreduce > 1 && s->gather.kind == DTP_BROADCAST);
        CU_ASSERT(fabs(s->nreduce * s->gather.time_s / (shape.size * one.time_s) - 1) < 1e-9);
        CU_ASSERT(fabs(s->nreduce * s->gather.bytes / bytes - 1) < 1e-9);
    }
}

/* torchtitan gathers FP8 weights as they are, a byte each, but not those with rowwise scales; gradients go in fp32. */
static void test_fp8_gathers(void) {
    static const struct {
        const char *framework;
        double share;
    } stacks[] = {{"torchtitan", 0.5}, {"torchtitan-rowwise", 1}};
    for (int i = 0; i < 2; i++) {
        struct fixture x;
        setup(&x, "llama3-8b", stacks[i].framework, 16);
        CU_ASSERT_FATAL(dtp_cluster_load(arena, "h100", &x.cluster, NULL) == DTP_OK);
        x.plan.zero_stage = 3;
        struct dtp_stage_cost wide = costs_of(&x).stage[0];
        x.plan.dtype = x.problem.dtype = DTP_FP8;
        struct dtp_stage_cost narrow = costs_of(&x).stage[0];
        CU_ASSERT(fabs(narrow.unshard.bytes / wide.unshard.bytes - stacks[i].share) < 1e-12);
        CU_ASSERT(narrow.reduce.bytes == wide.reduce.bytes);
    }
}

static void ordered(struct fixture *x) {
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x->problem);
    struct dtp_err err = {0};
    struct dtp_result folded, whole;
    struct dtp_simulate_options options = {.no_fold = true};
    double bound_s = dtp_evaluate_bound(ev, &x->plan),
           estimate_s = dtp_evaluate_estimate(ev, &x->plan);
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &x->plan, DTP_SIMULATE, NULL, &folded, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &x->plan, DTP_SIMULATE, &options, &whole, &err) ==
                    DTP_OK);
    CU_ASSERT(bound_s <= estimate_s * (1 + 1e-9));
    CU_ASSERT(estimate_s <= folded.step_s * (1 + 1e-9));
    CU_ASSERT(fabs(folded.step_s / whole.step_s - 1) < 1e-9);
    dtp_evaluator_destroy(ev);
}

static void test_fidelities(void) {
    static const char *const frameworks[] = {"deepspeed", "torch-fsdp1", "torch-fsdp2",
                                             "torchtitan"};
    for (int f = 0; f < 4; f++)
        for (int z = 2; z <= 3; z++)
            for (int group = 0; group <= 16; group += 8) {
                struct fixture x;
                setup(&x, "gpt3-1.3b", frameworks[f], 32);
                x.problem.attention = DTP_ATTN_UNFUSED;
                x.plan.zero_stage = z;
                x.plan.zero_group = group;
                ordered(&x);
            }
}

/* Hybrid: gathers inside the node; on the network 1 / 8 of the gradients, summed over four nodes. */
static void test_hybrid_traffic(void) {
    struct fixture x;
    setup(&x, "llama2-7b", "torch-fsdp1", 32);
    x.plan.zero_stage = 3;
    struct dtp_costs full = costs_of(&x);
    x.plan.zero_group = 8;
    struct dtp_costs hybrid = costs_of(&x);
    const struct dtp_stage_cost *f = &full.stage[0], *h = &hybrid.stage[0];
    CU_ASSERT(h->unshard.axis == DTP_AXIS_ZERO && h->unshard.time_s < f->unshard.time_s);
    CU_ASSERT(fabs(h->unshard.bytes / f->unshard.bytes - 1) < 1e-12);
    CU_ASSERT(h->reduce.axis == DTP_AXIS_REPLICA && h->reduce.kind == DTP_ALL_REDUCE);
    CU_ASSERT(fabs(h->reduce.bytes * 8 / f->reduce.bytes - 1) < 1e-12);
    struct dtp_group_shape four = {.size = 4, .nodes = 4, .per_node = 1, .nics = 1, .siblings = 1},
                           node = {.size = 8, .nodes = 1, .per_node = 8, .siblings = 1, .tier = -1};
    struct dtp_coll_cost between, inside;
    dtp_coll_cost(&x.cluster, DTP_ALL_REDUCE, DTP_ALGO_AUTO, &four, f->reduce.bytes / 8, &between);
    dtp_coll_cost(&x.cluster, DTP_REDUCE_SCATTER, DTP_ALGO_AUTO, &node, f->reduce.bytes, &inside);
    double longer_s = fmax(between.time_s, inside.time_s),
           shorter_s = fmin(between.time_s, inside.time_s);
    CU_ASSERT(fabs(h->reduce.time_s - longer_s - shorter_s / h->nreduce) < 1e-12);
    /* the state is divided by 8 again, and updated by 8 */
    CU_ASSERT(hybrid.optimizer_s[0] > 3.5 * full.optimizer_s[0]);
    x.plan.zero_group = 32; /* one group: the same as without */
    struct dtp_costs one = costs_of(&x);
    CU_ASSERT(one.stage[0].reduce.time_s == f->reduce.time_s &&
              one.stage[0].unshard.time_s == f->unshard.time_s);
}

static void test_hybrid_memory(void) {
    struct fixture x;
    setup(&x, "llama2-7b", "torch-fsdp2", 64);
    struct dtp_stage_memory eight, grouped;
    x.plan.zero_stage = 3;
    x.plan.zero_group = 8;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &grouped);
    x.plan.zero_group = 0;
    x.plan.dp = x.problem.gpus = 8;
    x.plan.global_batch_size = x.problem.global_batch = 32;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &eight);
    CU_ASSERT(grouped.peak_bytes == eight.peak_bytes); /* 8 nodes hold what one would */
}

static void test_legality(void) {
    struct fixture x;
    setup(&x, "llama2-7b", "torch-fsdp1", 32);
    x.plan.zero_stage = 3;
    x.plan.zero_group = 8;
    CU_ASSERT(dtp_plan_check(&x.problem, &x.plan) == DTP_LEGAL);
    x.framework.can.hybrid_shard = false;
    CU_ASSERT(dtp_plan_check(&x.problem, &x.plan) == DTP_WHY_ZERO_GROUP);
    x.framework.can.hybrid_shard = true;
    x.plan.zero_group = 24;
    CU_ASSERT(dtp_plan_check(&x.problem, &x.plan) == DTP_WHY_ZERO_GROUP);
}

/* The search finds DeepSpeed plans: ZeRO-3 where the states of the others are too much. */
static void test_search(void) {
    struct fixture x;
    setup(&x, "llama2-13b", "deepspeed", 32);
    struct dtp_search_options options = {.jobs = 1, .top = 3, .layouts = -1};
    struct dtp_search found;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_search(arena, &x.problem, NULL, &options, &found, &err) == DTP_OK);
    CU_ASSERT_FATAL(found.nresults > 0);
    for (size_t i = 0; i < found.nresults; i++) {
        CU_ASSERT(dtp_plan_check(&x.problem, &found.result[i].plan) == DTP_LEGAL);
        CU_ASSERT(found.result[i].fits && found.result[i].plan.zero_stage >= 1);
    }
}

/* However experts are laid out: the ranks that divide a layer's experts hold all of them once, those that
 * share state update every parameter once, and the items of memory add up to the peak. */
static void test_expert_sums(void) {
    static const int layouts[][5] = {{1, 8, 1, 0, 1}, {1, 8, 8, 0, 1}, {4, 2, 2, 0, 1},
                                     {4, 2, 8, 1, 1}, {4, 4, 4, 2, 2}, {2, 8, 4, 4, 2},
                                     {1, 16, 4, 4, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const int *n = layouts[i];
        struct fixture x;
        struct dtp_param_counts counts;
        struct dtp_stage_memory memory[2];
        setup(&x, "mixtral-8x7b", "megatron-core", n[0] * n[1] * n[4]);
        dtp_model_params(&x.model, x.model.vocab, &counts);
        x.plan.tp = n[0];
        x.plan.dp = n[1];
        x.plan.ep = n[2];
        x.plan.etp = n[3];
        x.plan.pp = n[4];
        x.plan.sequence_parallel = n[0] > 1;
        x.plan.zero_stage = 1;
        CU_ASSERT(dtp_plan_check(&x.problem, &x.plan) == DTP_LEGAL);
        double all = 0, updated = 0, dense = 0;
        for (int vs = 0; vs < x.plan.pp; vs++) {
            struct dtp_stage stage;
            const struct dtp_cut cut = dtp_plan_cut(&x.plan);
            dtp_stage_of(&x.model, &counts, &cut, vs, &stage);
            all += stage.expert_params * dtp_plan_etp(&x.plan) * x.plan.ep;
            dense += stage.dense_params * x.plan.tp;
        }
        double experts = (double)counts.moe_layer_experts * x.model.layers;
        CU_ASSERT_DOUBLE_EQUAL(all, experts, 1e-9 * experts);
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, memory);
        for (int s = 0; s < x.plan.pp; s++) {
            updated += (double)memory[s].optimizer_bytes / x.framework.keeps.optimizer_bytes *
                       x.plan.tp * x.plan.dp;
            CU_ASSERT(memory[s].peak_bytes == memory[s].weights_bytes + memory[s].gradients_bytes +
                                                  memory[s].optimizer_bytes +
                                                  memory[s].activations_bytes +
                                                  memory[s].logits_bytes + memory[s].buffers_bytes);
        }
        CU_ASSERT_DOUBLE_EQUAL(updated, experts + dense, 1e-6 * updated);
    }
}

/* torchtitan shards experts over dp and, with ep, exchanges tokens in place of weights: less is gathered, the
 * step is shorter. A user's 16B model on 8 H100 of 80 GB: a batch of 4 a GPU overflows, of 2 runs
 * (73 GiB with a batch between, in a pull request of torchtitan). */
static void test_experts(void) {
    struct fixture x;
    setup(&x, "deepseek-v2-lite", "torchtitan", 8);
    CU_ASSERT_FATAL(dtp_cluster_load(arena, "h100", &x.cluster, NULL) == DTP_OK);
    x.problem.memory_limit_bytes = x.cluster.gpu.memory_bytes;
    x.plan.zero_stage = 3;
    x.plan.recompute = DTP_RECOMPUTE_SELECTIVE;
    double step_s[2];
    for (int k = 0; k < 2; k++) {
        struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
        x.plan.ep = k ? 8 : 1;
        x.plan.microbatch_size = 2;
        CU_ASSERT_FATAL(dtp_plan_check(&x.problem, &x.plan) == DTP_LEGAL);
        CU_ASSERT(dtp_evaluate_memory(ev, &x.plan) < x.problem.memory_limit_bytes);
        step_s[k] = dtp_evaluate_estimate(ev, &x.plan);
        x.plan.microbatch_size = 4;
        CU_ASSERT(dtp_evaluate_memory(ev, &x.plan) > x.problem.memory_limit_bytes);
    }
    CU_ASSERT(step_s[1] < step_s[0]);
}

int main(void) {
    CU_TestInfo tests[] = {{"DeepSpeed's own estimate", test_deepspeed_states},
                           {"update of Megatron's", test_megatron_update},
                           {"DeepSpeed's buffers", test_deepspeed_buffers},
                           {"DeepSpeed's traffic", test_deepspeed_traffic},
                           {"broadcasts of parameters", test_broadcasts},
                           {"gathers of FP8 weights", test_fp8_gathers},
                           {"fidelities", test_fidelities},
                           {"beside compute", test_beside_compute},
                           {"hybrid traffic", test_hybrid_traffic},
                           {"hybrid memory", test_hybrid_memory},
                           {"legality", test_legality},
                           {"search", test_search},
                           {"experts", test_experts},
                           {"sums of experts", test_expert_sums},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"sharding", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
