/* Memory against the formulas of the literature, exactly. */
#include <CUnit/Basic.h>
#include <math.h>

#include "models/schedule/schedule.h"
#include "tests/memory_case.h"

/* Korthikanti 2022, equations 1 to 4 and section 5, per layer:
 *   1  s b h (34 + 5 a s / h)                no parallelism
 *   2  s b h (10 + 24 / t + 5 a s / (h t))   tensor parallel
 *   4  s b h / t (34 + 5 a s / h)            with sequence parallelism
 *   5  s b h 34 / t                          and selective recomputation
 *      2 s b h                               full recomputation */
static void test_korthikanti(void) {
    static const char *const models[] = {"gpt22b", "gpt175b", "gpt530b", "gpt1t"};
    for (int i = 0; i < 4; i++)
        for (int t = 1; t <= 16; t *= 2)
            for (int b = 1; b <= 4; b *= 2) {
                struct fixture x;
                setup(&x, models[i], "megatron-2022");
                x.plan.tp = t;
                x.plan.microbatch_size = x.plan.global_batch_size = b;
                double s = x.model.seq, h = x.model.hidden, a = x.model.heads, sbh = s * b * h;
                double core = 5 * a * s / h;
                equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
                      t == 1 ? sbh * (34 + core) : sbh * (10 + 24.0 / t + core / t));
                x.plan.recompute = DTP_RECOMPUTE_FULL;
                equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE), 2 * sbh);
                if (t == 1)
                    continue;
                x.plan.sequence_parallel = true;
                x.plan.recompute = DTP_RECOMPUTE_NONE;
                equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
                      sbh / t * (34 + core));
                x.plan.recompute = DTP_RECOMPUTE_SELECTIVE;
                equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
                      sbh / t * 34);
            }
}

/* Rajbhandari 2020, figure 1: psi parameters, N = 64: bytes per parameter. */
static void test_zero(void) {
    static const double want[4] = {16, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
    struct fixture x;
    setup(&x, "gpt3-1.3b", "megatron-2022");
    x.framework.keeps.gradient_bytes = 2;
    x.problem.gpus = x.plan.dp = 64;
    x.plan.global_batch_size = x.problem.global_batch = 64;
    struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x.problem);
    for (int z = 0; z < 4; z++) {
        struct dtp_stage_memory s;
        x.plan.zero_stage = z;
        dtp_memory(memo, &x.plan, &s);
        double states = (double)(s.weights_bytes + s.gradients_bytes + s.optimizer_bytes);
        CU_ASSERT(fabs(states / (double)s.params - want[z]) < 1e-6);
        /* parameters that fill 80 GB: 5.0, 19, 36, 320 billion (figure 1's caption and text books) */
        static const double fill[4] = {5.0, 19, 36, 320};
        CU_ASSERT(fabs(80.0 / want[z] / fill[z] - 1) < 0.02);
    }
}

/* State takes 20 bytes if gradients are kept in fp32 in addition to those in 16 bit, and 18 if instead of them. */
static void test_bytes_per_parameter(void) {
    struct fixture x;
    setup(&x, "gpt2", "megatron-2022");
    struct dtp_stage_memory s;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
    CU_ASSERT(s.weights_bytes + s.gradients_bytes + s.optimizer_bytes == 18 * s.params);
    x.framework.keeps.gradient_bytes = 6;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
    CU_ASSERT(s.weights_bytes + s.gradients_bytes + s.optimizer_bytes == 20 * s.params);
}

/* The items are the peak, for many plans; activations follow the schedule's microbatches in flight. */
static void test_items(void) {
    struct fixture x;
    setup(&x, "gpt175b", "megatron-2022");
    for (int pp = 1; pp <= 16; pp *= 4)
        for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
            for (int z = 0; z < 4; z++) {
                int vpp = dtp_schedule_kinds[kind].chunked ? 2 : 1, m = 32;
                if (dtp_schedule_applies(kind, pp, vpp, m))
                    continue;
                x.plan.pp = pp;
                x.plan.vpp = vpp;
                x.plan.schedule = kind;
                x.plan.zero_stage = z;
                x.plan.dp = 4;
                x.plan.global_batch_size = 4 * m;
                struct dtp_stage_memory s[16];
                struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x.problem);
                dtp_memory(memo, &x.plan, s);
                uint64_t worst = 0;
                for (int i = 0; i < pp; i++) {
                    CU_ASSERT(s[i].peak_bytes == s[i].weights_bytes + s[i].gradients_bytes +
                                                     s[i].optimizer_bytes + s[i].activations_bytes +
                                                     s[i].logits_bytes + s[i].buffers_bytes);
                    CU_ASSERT(s[i].reserved_bytes >= s[i].peak_bytes);
                    CU_ASSERT(s[i].observed_bytes >= s[i].reserved_bytes);
                    worst = s[i].device_bytes > worst ? s[i].device_bytes : worst;
                }
                CU_ASSERT(worst == dtp_memory_device_bytes(memo, &x.plan));
            }
}

/* Beyond 4 pp microbatches the counts are extrapolated: the same as counting them all. */
static void test_many_microbatches(void) {
    struct fixture x;
    setup(&x, "gpt2", "megatron-2022");
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
        for (int pp = 2; pp <= 6; pp += 2)
            for (int m = 5 * pp; m <= 9 * pp; m += dtp_schedule_kinds[kind].whole_groups ? pp : 1) {
                int vpp = dtp_schedule_kinds[kind].chunked ? 2 : 1, peak_chunk[12];
                struct dtp_schedule schedule;
                if (dtp_schedule_applies(kind, pp, vpp, m))
                    continue;
                CU_ASSERT_FATAL(dtp_schedule_make(arena, kind, pp, vpp, m, &schedule, NULL) ==
                                DTP_OK);
                dtp_schedule_in_flight(&schedule, NULL, NULL, peak_chunk);
                x.plan.pp = pp;
                x.plan.vpp = vpp;
                x.plan.schedule = kind;
                x.plan.global_batch_size = m;
                struct dtp_stage_memory s[6], one[6];
                dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, s);
                x.plan.global_batch_size = 2 * pp; /* what every kind takes */
                struct dtp_schedule least;
                CU_ASSERT_FATAL(dtp_schedule_make(arena, kind, pp, vpp, 2 * pp, &least, NULL) ==
                                DTP_OK);
                int least_chunk[12];
                dtp_schedule_in_flight(&least, NULL, NULL, least_chunk);
                dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, one);
                for (int rank = 1; rank + 1 < pp;
                     rank++) { /* equal layers, no head, no embedding */
                    double more = 0, layers = 0;
                    for (int c = 0; c < vpp; c++) {
                        int vs = dtp_schedule_kinds[kind].stage(pp, vpp, rank, c),
                            i = rank * vpp + c;
                        layers = dtp_plan_layers(&x.plan, &x.model, vs);
                        more += (peak_chunk[i] - least_chunk[i]) * layers;
                    }
                    double layer =
                        dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
                    double got =
                        (double)s[rank].activations_bytes - (double)one[rank].activations_bytes;
                    CU_ASSERT(fabs(got - more * layer) <= 2);
                }
            }
}

/* Gradients of one backward that are added at its end meet those of the step when the activations of the
 * microbatch are gone: 2 B per parameter more once they outweigh these. */
static void test_backward_gradients(void) {
    struct fixture x;
    struct dtp_stage_memory plain, added;
    setup(&x, "gpt1.7b", "megatron-2021");
    x.problem.seq = 8;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &plain);
    x.framework.quirks.whole_gradients.backward_gradient_bytes = 2;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &added);
    CU_ASSERT_STRING_EQUAL(added.moment, "end of backward");
    equal((double)(added.gradients_bytes - plain.gradients_bytes), 2.0 * (double)plain.params);
    CU_ASSERT(added.activations_bytes < plain.activations_bytes);
}

/* Copies of attention: 6 B for each token and element of the heads' width, divided by tp. */
static void test_attention_copies(void) {
    struct fixture x;
    setup(&x, "llama2-7b", "nanotron");
    x.plan.dtype = x.problem.dtype = DTP_BF16;
    x.framework.quirks.attention_copies.attention_copies_bytes = 0;
    double none = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    x.framework.quirks.attention_copies.attention_copies_bytes = 6;
    double six = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    equal(six - none, 6.0 * x.model.seq * x.model.hidden);
}

/* What the allocator caches fills the card at most, and never counts against a plan; without collectives it
 * caches nothing. */
static void test_observed(void) {
    struct fixture x;
    struct dtp_stage_memory s[1];
    setup(&x, "gpt1.7b", "megatron-core");
    uint64_t limits[] = {(uint64_t)1 << 40, 0, (uint64_t)1 << 30};
    x.problem.memory_limit_bytes = limits[0];
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, s);
    CU_ASSERT(s->observed_bytes == s->device_bytes);
    x.plan.global_batch_size = x.plan.dp = 2;
    for (int i = 0; i < 3; i++) {
        x.problem.memory_limit_bytes = limits[i];
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, s);
        if (i == 0) {
            double factor = x.framework.keeps.cache_factor - x.framework.keeps.allocator_factor;
            CU_ASSERT(factor > 0);
            equal((double)(s->observed_bytes - s->device_bytes),
                  floor(factor * (double)s->peak_bytes + 0.5));
            limits[1] = s->device_bytes + 1000;
        } else {
            CU_ASSERT(s->observed_bytes == (i == 1 ? limits[1] : s->device_bytes));
        }
    }
}

/* Per logit of a rank at the start of the backward: log-softmax and two gradients, with tp's own loss one more. */
static void test_loss_parallel(void) {
    struct fixture x;
    setup(&x, "llama3-8b", "torchtitan");
    struct dtp_stage_memory s;
    for (int tp = 1; tp <= 8; tp *= 8) {
        x.plan.tp = tp;
        x.plan.zero_stage = 3;
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
        equal((double)s.logits_bytes, (tp > 1 ? 16.0 : 12.0) * 8192 * 128256 / tp);
    }
}

/* Llama 3 8B: f = 3.5 h, K and V h / 4 each, so that a layer without parallelism keeps per token two norms'
 * inputs (2 h elements), qkv's and fc1's input (2 h), QKV (1.5 h), context (h), fc1's output (7 h) and fc2's input
 * (3.5 h), and the log-sum-exp. 16 bit: 2 bytes each; TransformerEngine: 1 of the products' inputs, and with delayed
 * scaling 1 more of the context. */
static void test_fp8_casts(void) {
    static const struct {
        const char *framework;
        double bytes_per_h;
    } fp8[] = {{"megatron-bridge", 2 * (2 + 1.5 + 1 + 7) + 2 + 3.5},
               {"megatron-core", 2 * (2 + 1.5 + 1 + 7) + 2 + 3.5 + 1},
               {"torchtitan", 2 * (2 + 2 + 1.5 + 1 + 7 + 3.5)}};
    for (size_t i = 0; i < sizeof fp8 / sizeof *fp8; i++) {
        struct fixture x;
        setup(&x, "llama3-8b", fp8[i].framework);
        x.problem.attention = DTP_ATTN_FLASH2;
        double n = x.model.seq, h = x.model.hidden, lse = 4 * n * x.model.heads;
        x.framework.kernels.fused_bias_activation = true;
        x.plan.dtype = DTP_BF16;
        equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
              2 * (2 + 2 + 1.5 + 1 + 7 + 3.5) * n * h + lse);
        x.plan.dtype = DTP_FP8;
        equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
              fp8[i].bytes_per_h * n * h + lse);
        if (x.framework.kernels.fp8_recipe != DTP_FP8_DELAYED)
            continue;
        x.plan.recompute = DTP_RECOMPUTE_SELECTIVE; /* leaves the cast alone */
        equal(dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE),
              (fp8[i].bytes_per_h - 2) * n * h);
    }
}

/* An FP8 copy and its transpose of the weights in layers: 32 (2.5 h^2 + 10.5 h^2) and the norms. */
static void test_fp8_weights(void) {
    struct fixture x;
    setup(&x, "llama3-8b", "megatron-core");
    struct dtp_stage_memory with, without;
    double h = x.model.hidden;
    for (int dtype = DTP_BF16; dtype <= DTP_FP8; dtype += DTP_FP8 - DTP_BF16) {
        x.plan.dtype = (enum dtp_dtype)dtype;
        x.framework.keeps.fp8_weight_bytes = 2;
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &with);
        x.framework.keeps.fp8_weight_bytes = 0;
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &without);
        double more = (double)with.peak_bytes - (double)without.peak_bytes;
        equal(more, dtype == DTP_FP8 ? 2 * 32 * (13 * h * h + 2 * h) : 0);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"Korthikanti's equations", test_korthikanti},
                           {"ZeRO's bytes per parameter", test_zero},
                           {"18 and 20 bytes", test_bytes_per_parameter},
                           {"items add up", test_items},
                           {"many microbatches", test_many_microbatches},
                           {"gradients of a backward", test_backward_gradients},
                           {"copies of attention", test_attention_copies},
                           {"what nvidia-smi shows", test_observed},
                           {"loss of tensor parallelism", test_loss_parallel},
                           {"FP8 casts kept", test_fp8_casts},
                           {"FP8 copies of weights", test_fp8_weights},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"memory", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
