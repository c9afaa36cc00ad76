/* Rows as a table of measured runs may hold them, and their neighbours: each gets a prediction, and what a
 * change does to time and memory has the sign and the size that it must have. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>

#include "tests/suites.h"
#include "traces/validate/measured.h"

static struct dtp_arena *arena;
static struct dtp_run_library *library;

/* One run of each stack, of sizes that were published. */
#define MPT_7B                                                                                     \
    .model = "MPT-7b", .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 32, .ffn = 16384,    \
    .gated_ffn = 0, .vocab = 50368
#define LLAMA_8B                                                                                   \
    .model = "Llama-3.1 8B", .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8,             \
    .ffn = 14336, .gated_ffn = 1, .vocab = 128256
#define LLAMA_70B                                                                                  \
    .model = "LLAMA3_70B", .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672, \
    .gated_ffn = 1, .vocab = 128256
#define GPT_22B                                                                                    \
    .model = "GPT 22B", .layers = 48, .hidden = 6144, .heads = 64, .kv_heads = 64, .ffn = 24576,   \
    .gated_ffn = 0, .vocab = 51200
#define ON(card, gb, n, node) .gpu = card, .gpu_mem_gb = gb, .gpus = n, .gpus_per_node = node
#define LAYOUT(t, p, d, z) .tp = t, .pp = p, .vpp = 1, .cp = 1, .dp = d, .zero_stage = z
#define BATCH(s, b, all) .seq = s, .microbatch = b, .global_batch = all
#define MODES(type, again, parallel)                                                               \
    .dtype = type, .recompute = again, .sequence_parallel = parallel, .flash_attention = 1,        \
    .attention = "", .cluster = "", .nic = "", .optimizer = "", .loss = ""

static const struct dtp_run runs[] = {
    {.framework = "torch-fsdp1",
     MPT_7B,
     ON("A100", 80, 16, 8),
     LAYOUT(1, 1, 16, 3),
     BATCH(2048, 4, 128),
     MODES("amp_bf16", "none", 0),
     .schedule = "FSDP FULL_SHARD"},
    {.framework = "torchtitan",
     LLAMA_8B,
     ON("H100", 96, 64, 8),
     LAYOUT(1, 1, 64, 3),
     BATCH(8192, 1, 128),
     MODES("bf16 compile", "selective", 0),
     .schedule = "FSDP2"},
    {.framework = "torchtitan",
     LLAMA_70B,
     ON("H100", 96, 256, 8),
     LAYOUT(8, 1, 32, 3),
     BATCH(8192, 2, 128),
     MODES("float8 compile", "full", 1),
     .schedule = "FSDP2 + TP"},
    {.framework = "nemo",
     LLAMA_8B,
     ON("H100", 80, 8, 8),
     LAYOUT(1, 1, 8, 1),
     BATCH(8192, 1, 128),
     MODES("FP8", "", 0),
     .schedule = ""},
    {.framework = "nemo",
     LLAMA_70B,
     ON("GB200", 186, 64, 4),
     LAYOUT(2, 4, 8, 1),
     BATCH(8192, 1, 256),
     MODES("MXFP8", "", 1),
     .schedule = ""},
    {.framework = "nemo-mlperf",
     LLAMA_70B,
     ON("H100", 80, 64, 8),
     LAYOUT(4, 2, 8, 1),
     BATCH(8192, 1, 128),
     MODES("FP8 (TE hybrid)", "selective", 1),
     .schedule = ""},
    {.framework = "nanotron",
     LLAMA_8B,
     ON("H100", 80, 16, 8),
     LAYOUT(4, 1, 4, 1),
     BATCH(4096, 1, 256),
     MODES("bf16", "none", 1),
     .schedule = ""},
    {.framework = "megatron-deepspeed",
     GPT_22B,
     ON("A100", 80, 64, 8),
     LAYOUT(4, 4, 4, 1),
     BATCH(2048, 1, 512),
     MODES("fp16", "full", 0),
     .schedule = "1f1b"},
    {.framework = "megatron-core",
     GPT_22B,
     ON("A100", 80, 64, 8),
     LAYOUT(4, 4, 4, 1),
     BATCH(2048, 1, 512),
     MODES("bf16", "selective", 1),
     .schedule = ""},
    {.framework = "megatron-2022",
     GPT_22B,
     ON("A100", 80, 64, 8),
     LAYOUT(8, 2, 4, 0),
     BATCH(2048, 2, 256),
     MODES("fp16", "full", 0),
     .schedule = ""},
    {.framework = "internevo",
     LLAMA_8B,
     ON("A100", 80, 64, 8),
     LAYOUT(1, 1, 64, 1),
     BATCH(2048, 2, 512),
     MODES("bf16", "none", 0),
     .schedule = "ZeRO-1 over all DP"},
    {.framework = "torch-ddp",
     MPT_7B,
     ON("H200", 141, 8, 8),
     LAYOUT(1, 1, 8, 0),
     BATCH(1024, 2, 64),
     MODES("fp32 weights, bf16 autocast", "none", 0),
     .schedule = ""},
    {.framework = "paxml",
     MPT_7B,
     ON("H100", 80, 64, 8),
     LAYOUT(1, 1, 64, 1),
     BATCH(2048, 4, 256),
     MODES("BF16", "", 0),
     .schedule = ""},
    {.framework = "a-stack-without-a-file",
     LLAMA_8B,
     ON("H100 SXM", 94, 64, 8),
     LAYOUT(2, 1, 32, 1),
     BATCH(4096, 1, 256),
     MODES("", "none", DTP_UNKNOWN),
     .schedule = ""},
};

struct answer {
    double step_s, peak_bytes;
};

static struct answer ask(const struct dtp_run *run, const char *what) {
    struct dtp_arena *a = dtp_arena_create_in(arena, "row");
    struct dtp_run_case *c = DTP_NEW(a, struct dtp_run_case, 1);
    struct dtp_result r;
    struct answer out = {0};
    dtp_run_case_make(a, library, run, c);
    if (!c->unsupported) {
        struct dtp_evaluator *ev = dtp_evaluator_create(a, &c->problem);
        if (dtp_evaluate(a, ev, &c->plan, DTP_SIMULATE, NULL, &r, NULL) == DTP_OK)
            out = (struct answer){r.step_s, (double)r.device_bytes};
        dtp_evaluator_destroy(ev);
    }
    bool sane = out.step_s > 0 && isfinite(out.step_s) && out.peak_bytes > 0;
    if (!sane)
        printf("\n  %s on %s, %s: %s", run->framework, run->gpu, what,
               c->unsupported ? c->unsupported : "not simulated");
    CU_ASSERT(sane);
    dtp_arena_destroy(a);
    return out;
}

/* What is changed, and between what the time and the least that the memory may be, over those before. */
struct change {
    const char *what;
    double least, most, memory;
    void (*apply)(struct dtp_run *run);
};

static void weak_scaling(struct dtp_run *run) {
    run->gpus *= 2;
    run->dp *= 2;
    run->global_batch *= 2;
}

static void batch(struct dtp_run *run) {
    run->global_batch *= 2;
}

static void microbatch(struct dtp_run *run) {
    run->microbatch *= 2;
    run->global_batch *= 2;
}

static void sequence(struct dtp_run *run) {
    run->seq *= 2;
}

static void layers(struct dtp_run *run) {
    run->layers *= 2;
}

static void recomputation(struct dtp_run *run) {
    run->recompute = "full";
}

static void silent(struct dtp_run *run) {
    run->dp = run->vpp = run->cp = run->sequence_parallel = DTP_UNKNOWN;
}

static void odd_batch(struct dtp_run *run) {
    run->global_batch += 1;
}

static void slower_card(struct dtp_run *run) {
    run->gpu = "A100";
    run->gpu_mem_gb = 80;
    run->dtype = "bf16";
}

/* Memory: with microbatches twice as large as many are in flight; FSDP's larger groups hold smaller shards. */
static const struct change changes[] = {{"twice the replicas", 0.97, 1.5, 0.2, weak_scaling},
                                        {"twice the batch", 1.3, 2.1, 0.95, batch},
                                        {"twice the microbatch", 0.98, 2.2, 1, microbatch},
                                        {"twice the sequence", 1.2, 4.2, 1, sequence},
                                        {"twice the layers", 1.4, 2.6, 1.2, layers},
                                        {"full recomputation", 0.999, 1.5, 0, recomputation},
                                        {"silent columns", 0.8, 1.25, 0.5, silent},
                                        {"a batch that does not divide", 1, 2.1, 0.95, odd_batch},
                                        {"an A100", 0.99, 9, 0, slower_card}};

static void test_neighbours(void) {
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct dtp_run base = runs[i];
        base.id = base.file = base.step_s_from = base.peak_mem_unit = base.source = "";
        base.ep = DTP_UNKNOWN;
        struct answer before = ask(&base, "as it is");
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
            const struct change *c = &changes[k];
            struct dtp_run run = base;
            c->apply(&run);
            struct answer after = ask(&run, c->what);
            double time = after.step_s / before.step_s,
                   memory = after.peak_bytes / before.peak_bytes;
            bool holds = time >= c->least && time <= c->most && memory >= c->memory;
            if (!holds)
                printf("\n  %s, %s on %s: %s: %.3f of the time, %.3f of the memory", run.framework,
                       run.model, base.gpu, c->what, time, memory);
            CU_ASSERT(holds);
        }
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"neighbours of measured runs", test_neighbours}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"measured stress", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = dtp_run_library_create(arena, &library, NULL) == DTP_OK ? run_suites(suites) : 1;
    dtp_arena_destroy(arena);
    return status;
}
