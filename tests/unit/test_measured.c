/* Measured runs: reading, what is assumed, what is refused. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/memory.h"
#include "traces/validate.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

#define HEADER                                                                                     \
    "id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,tp,pp,"    \
    "vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,peak_mem_unit\n"

static const char *file_of(const char *text) {
    char *path = dtp_arena_strdup(arena, "/tmp/dtplan-runs-XXXXXX");
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_FATAL(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static struct dtp_runs read_runs(const char *text) {
    struct dtp_runs runs = {0};
    struct dtp_err err = {0};
    const char *path = file_of(text);
    if (dtp_runs_read(arena, path, &runs, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("dtp_runs_read");
    }
    unlink(path);
    return runs;
}

static void test_read(void) {
    struct dtp_runs r = read_runs(
        HEADER
        "a,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,51200,2048,8,1,1,1,0,4,4,fp16,full,"
        "1.42,60.5,GiB\n"
        "b,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,51200,2048,8,1,,,,,4,fp16,,soon,,\n");
    CU_ASSERT_FATAL(r.n == 2 && !r.verdicts);
    CU_ASSERT(r.at[0].layers == 48 && r.at[0].step_s == 1.42 && !r.at[0].broken);
    const char *meaning;
    CU_ASSERT(dtp_run_peak_bytes(&r.at[0], &meaning) == 60.5 * 1024 * 1024 * 1024);
    CU_ASSERT_STRING_EQUAL(meaning, "allocated");
    CU_ASSERT(r.at[1].vpp == DTP_UNKNOWN && r.at[1].microbatch == DTP_UNKNOWN);
    CU_ASSERT_FATAL(r.at[1].broken != NULL);
    CU_ASSERT(strstr(r.at[1].broken, "step_s") && strstr(r.at[1].broken, "soon"));
}

static void test_schema(void) {
    struct dtp_runs runs = {0};
    struct dtp_err err = {0};
    const char *path = file_of("a,b\n1,2\n");
    CU_ASSERT(dtp_runs_read(arena, path, &runs, &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "no column \"id\"") && strstr(err.msg, path));
    unlink(path);
}

static struct dtp_run_case *case_of_file(const char *text) {
    struct dtp_runs r = read_runs(text);
    struct dtp_run_library *library;
    struct dtp_run_case *c = DTP_NEW(arena, struct dtp_run_case, 1);
    CU_ASSERT_FATAL(r.n == 1);
    CU_ASSERT_FATAL(dtp_run_library_create(arena, &library, NULL) == DTP_OK);
    CU_ASSERT_FATAL(dtp_run_case_make(arena, library, &r.at[0], c, NULL) == DTP_OK);
    return c;
}

static struct dtp_run_case *case_of(const char *row) {
    return case_of_file(dtp_arena_printf(arena, HEADER "%s\n", row));
}

/* What the scripts of a run say and no column does (traces/measured/clusters.json). */
static void test_facts(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,"
        "peak_mem_unit\n%s,a,megatron,%s,80,8,8,Llama,32,4096,32,32000,2048,2,1,1,4,,1,8,bf16,none,"
        "1,50,GB\n";
    struct dtp_run_case *c =
        case_of_file(dtp_arena_printf(arena, row, "FlagPerf:llama3_8B-megatron", "H100"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(c->model.dropout > 0 && c->plan.zero_stage == 1 && c->plan.sequence_parallel);
    CU_ASSERT(strstr(c->peak_mem_unit, "smi") != NULL);
    c = case_of_file(dtp_arena_printf(arena, row, "FlagPerf:aquila2_7b-flagscale", "A800"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT_STRING_EQUAL(c->framework.name, "flagscale");
    CU_ASSERT(c->model.dropout <= 0 && !c->plan.sequence_parallel);
    c = case_of_file(dtp_arena_printf(arena, row, "elsewhere", "H100"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(c->plan.zero_stage == 0 && c->model.dropout <= 0);
    CU_ASSERT_STRING_EQUAL(c->peak_mem_unit, "GB");
}

/* FlagPerf's run in fp32: --recompute-activations, no flash attention, no master copy; those in 16 bit not. */
static void test_fp32_run(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,flash_attention,step_s,"
        "peak_mem,peak_mem_unit\nFlagPerf:llama2_70B-megatron,a,megatron,H800,80,32,8,Llama 70B,80,"
        "8192,64,32000,4096,8,4,1,1,,1,44,%s,1,22,77,GiB\n";
    struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, row, "fp32,full"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(c->plan.dtype == DTP_TF32 && c->plan.recompute == DTP_RECOMPUTE_SELECTIVE);
    CU_ASSERT(c->problem.attention == DTP_ATTN_UNFUSED);
    CU_ASSERT(c->framework.memory.weight_bytes == 4 && c->framework.memory.optimizer_bytes == 8);
    c = case_of_file(dtp_arena_printf(arena, row, "amp,"));
    CU_ASSERT(c->plan.dtype == DTP_BF16 && c->plan.recompute == DTP_RECOMPUTE_NONE);
    CU_ASSERT(c->problem.attention == DTP_ATTN_FLASH2);
    CU_ASSERT(c->framework.memory.weight_bytes == 2 && c->framework.memory.optimizer_bytes == 12);
}

/* Llama 3 70B on GB200 under Megatron-FSDP: sharded in FP8, half of its layers' activations on the host. */
static void test_megatron_fsdp(void) {
    static const char *const row = "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,"
                                   "layers,hidden,heads,kv_heads,ffn,"
                                   "gated_ffn,vocab,seq,tp,pp,vpp,cp,dp,zero_stage,microbatch,"
                                   "global_batch,dtype,recompute,step_s,"
                                   "peak_mem,peak_mem_unit\nNVIDIA-NeMo/"
                                   "Megatron-Bridge@1,a,nemo,GB200,186,64,4,LLAMA3_70B,80,8192,"
                                   "64,8,28672,1,128256,8192,1,1,1,1,64,%d,2,256,%s,,7,,\n";
    struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, row, 3, "FP8-CS"));
    struct dtp_stage_memory moved, kept;
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT_STRING_EQUAL(c->framework.name, "megatron-bridge");
    CU_ASSERT(dtp_plan_check(&c->problem, &c->plan) == DTP_LEGAL);
    CU_ASSERT(c->framework.fp8_recipe == DTP_FP8_CURRENT && c->problem.offloaded_layers == 40);
    dtp_memory(dtp_memory_memo_create(arena, &c->problem), &c->plan, &moved);
    CU_ASSERT(moved.device_bytes < c->problem.memory_limit_bytes); /* it ran */
    double layer = dtp_memory_layer_activations(&c->problem, &c->plan, DTP_LAYER_DENSE);
    c->problem.offloaded_layers = 0;
    dtp_memory(dtp_memory_memo_create(arena, &c->problem), &c->plan, &kept);
    CU_ASSERT_DOUBLE_EQUAL((double)kept.activations_bytes - (double)moved.activations_bytes,
                           38 * layer, 2); /* two are on the way */
    c = case_of_file(dtp_arena_printf(arena, row, 1, "MXFP8"));
    CU_ASSERT(c->framework.fp8_recipe == DTP_FP8_BLOCK && c->problem.offloaded_layers == 0);
}

/* NeMo's launcher of 24.07 turned cuDNN attention off for all but one script; its fine-tuning packed SQuAD. */
static void test_attention_facts(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,flash_attention,step_s,"
        "peak_mem,peak_mem_unit\n%s,a,nemo,H100,80,8,8,%s,32,4096,32,32000,4096,1,1,1,8,1,1,%d,FP8,"
        "none,1,1,,\n";
    static const char *const docs = "NVIDIA/NeMo@164b0097f8:docs";
    struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, row, docs, "LLAMA2-7B", 128));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(c->problem.attention == DTP_ATTN_FLASH2 && c->problem.document_tokens == 0);
    c = case_of_file(dtp_arena_printf(arena, row, docs, "LLAMA2-7B", 32));
    CU_ASSERT(c->problem.attention == DTP_ATTN_FLASH2 && c->problem.document_tokens == 200);
    CU_ASSERT(c->framework.memory.optimizer_bytes == 6); /* Adam in 16 bit; not in pre-training */
    c = case_of_file(dtp_arena_printf(arena, row, docs, "GPT3-175B", 128));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN && strstr(c->note, "cudnn"));
    c = case_of_file(dtp_arena_printf(arena, row, "Megatron-Bridge@1:docs", "LLAMA2-7B", 32));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN && c->problem.document_tokens == 0);
}

static void test_cases(void) {
    struct dtp_run_case *c = case_of("a,megatron-2022,A100,80,64,8,GPT 175B,96,12288,96,51200,2048,"
                                     "8,8,3,1,0,1,64,fp16,selective,13.75,,");
    CU_ASSERT(c->unsupported == NULL && c->plan.tp == 8 && c->plan.vpp == 3);
    CU_ASSERT(c->plan.schedule == DTP_SCHED_INTERLEAVED && c->plan.dtype == DTP_FP16);
    CU_ASSERT(c->plan.recompute == DTP_RECOMPUTE_SELECTIVE && c->problem.model->layers == 96);
    CU_ASSERT_STRING_EQUAL(c->cluster.name, "selene");
    c = case_of("a,megatron-2022,A100,80,64,8,GPT 175B,96,12288,128,51200,2048,"
                "8,8,3,1,0,1,64,fp16,selective,13.75,,");
    CU_ASSERT(c->model.head_dim == 96); /* the run's heads, not the 128 columns of GPT-3's 96 */
    c = case_of("a,no-such-stack,A100,80,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,fp16,none,1,,");
    CU_ASSERT(!c->unsupported && strstr(c->note, "framework taken as torch-ddp"));
    c = case_of(
        "a,My-FSDP,NVIDIA H100 80GB HBM3,94,8,8,GPT,4,256,4,512,128,1,1,1,8,,1,8,bf16,none,1,,");
    CU_ASSERT(!c->unsupported && strstr(c->note, "framework taken as torch-fsdp2"));
    CU_ASSERT(strstr(c->note, "94 GB") && c->cluster.gpu.other_memory && c->plan.zero_stage == 3);
    c = case_of("a,paxml,H100,80,8,8,GPT 5B,4,256,4,512,128,1,1,1,8,1,1,8,bf16,,1,,");
    CU_ASSERT(!c->unsupported &&
              c->plan.zero_stage == 3); /* shards parameters, whatever the row says */
    c = case_of("a,megatron-core,A100,80,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,fp8,none,1,,");
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "dtype")); /* the chip has none */
    c = case_of("a,megatron-core,TPUv4,32,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,bf16,none,1,,");
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "TPUv4"));
    c = case_of("a,megatron-core,A100,80,8,8,GPT,4,256,4,512,128,1,1,1,8,0,3,8,bf16,none,1,,");
    CU_ASSERT(!c->unsupported && c->plan.global_batch_size == 24); /* 3 x 8 does not divide 8 */
    c = case_of("a,megatron-core,A100,80,8,8,GPT,8,256,4,512,128,1,4,2,1,0,1,10,bf16,none,1,,");
    CU_ASSERT(!c->unsupported && c->plan.dp == 2 && c->plan.vpp == 1); /* of 5 microbatches, pp 4 */
    CU_ASSERT(c->plan.schedule == DTP_SCHED_1F1B && strstr(c->note, "dp 2") != NULL);
    /* dp 0 of a layout on more GPUs than there are */
    c = case_of("a,megatron-core,A100,80,8,8,GPT,4,256,4,512,128,16,1,1,0,1,1,8,bf16,none,1,,");
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "number of GPUs"));
    c = case_of(
        "a,megatron-core,A100,80,8,8,Llama 7B,32,4096,32,32000,2048,1,1,1,8,0,1,8,bf16,,1,,");
    CU_ASSERT(c->unsupported == NULL && *c->note); /* recomputation is not stated */
}

/* Which entry of models/frameworks a source's runs are predicted by. */
static void test_stacks(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s\n%s,a,"
        "megatron-deepspeed,A100,,8,8,GPT,16,2048,16,50257,1024,1,1,1,8,0,1,8,fp16,full,1\n";
    struct dtp_run_case *sums =
        case_of_file(dtp_arena_printf(arena, row, "VIA-Research/vTrain data/ground_truth_single"));
    struct dtp_run_case *tuned =
        case_of_file("source,framework,recompute,id,gpu,gpus,layers,hidden,seq,tp,global_batch,"
                     "step_s\ntorchtune,other,full,,,1,1,1,1,1,1,1\n");
    CU_ASSERT_STRING_EQUAL(tuned->framework.name, "torchtune-compile");
    CU_ASSERT_STRING_EQUAL(sums->framework.name, "vtrain");
    CU_ASSERT(sums->plan.recompute == DTP_RECOMPUTE_NONE);
    struct dtp_run_case *runs =
        case_of_file(dtp_arena_printf(arena, row, "VIA-Research/vTrain data/ground_truth_multi"));
    CU_ASSERT_STRING_EQUAL(runs->framework.name, "megatron-deepspeed");
    CU_ASSERT(dtp_framework_padded_vocab(&runs->framework, 50257, 1) == 50304);
    CU_ASSERT(dtp_framework_padded_vocab(&sums->framework, 50257, 1) == 50257);
}

/* LLM Foundry's benchmarks: the version of PyTorch by table; MPT as its yamls have it, with biases. */
static void test_llm_foundry(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s\n"
        "mosaicml/llm-foundry@%s,a,torch-fsdp1,A100,80,8,8,MPT-30b,48,7168,56,50368,2048,1,1,1,8,3,"
        "3,504,%s,full,1\n";
    static const struct {
        const char *source, *dtype, *stack;
    } tables[] = {{"1:scripts/train/benchmarking/README.md", "amp_bf16", "torch-fsdp1"},
                  {"1:scripts/train/benchmarking/README.md", "bf16", "torch-fsdp1-2.0"},
                  {"1:scripts/train/benchmarking/h100new.csv", "amp_bf16", "torch-fsdp1"},
                  {"1:scripts/train/benchmarking/torches.csv", "amp_bf16", "torch-fsdp1-2.0"}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct dtp_run_case *c =
            case_of_file(dtp_arena_printf(arena, row, tables[i].source, tables[i].dtype));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT_STRING_EQUAL(c->framework.name, tables[i].stack);
        CU_ASSERT(c->framework.recompute_stops_early == !strstr(tables[i].stack, "2.0"));
        CU_ASSERT(c->model.mlp_bias && c->model.position == DTP_POS_LEARNED);
        CU_ASSERT(c->model.head_dim == 128);
    }
}

static bool same_but_batch(const struct dtp_run *x, const struct dtp_run *y) {
    return x->layers == y->layers && x->hidden == y->hidden && x->tp == y->tp && x->pp == y->pp &&
           x->dp == y->dp && x->microbatch == y->microbatch;
}

/* vTrain's times of one node are linear in the microbatches to its last digit, 1 us: sums of parts, as
 * clusters.json says. Runs repeat to a few parts in a thousand at best. */
static void test_sums(void) {
    const char *path =
        dtp_arena_printf(arena, "%s/../shared/measured/vtrain_single.csv", DTP_SOURCE_DIR);
    struct dtp_runs r = {0};
    if (access(path, R_OK) != 0) {
        printf("skipped: %s is missing\n", path);
        return;
    }
    CU_ASSERT_FATAL(dtp_runs_read(arena, path, &r, NULL) == DTP_OK && r.n > 500);
    int checked = 0;
    for (size_t i = 0; i < r.n; i++) {
        const struct dtp_run *at[3] = {&r.at[i]};
        int n = 1;
        for (size_t k = i + 1; k < r.n && n < 3; k++)
            if (same_but_batch(at[0], &r.at[k]))
                at[n++] = &r.at[k];
        if (n < 3)
            continue;
        double x[2], y[2];
        for (int k = 0; k < 2; k++) {
            x[k] = (at[k + 1]->global_batch - at[0]->global_batch) /
                   (double)(at[0]->microbatch * at[0]->dp);
            y[k] = at[k + 1]->step_s - at[0]->step_s;
        }
        double off_s = fabs(y[1] - y[0] * x[1] / x[0]);
        CU_ASSERT(off_s < 1e-6 * (2 + 2 * fabs(x[1] / x[0])));
        checked++;
    }
    CU_ASSERT(checked > 100);
}

/* Llama 3.1 405B: 126 layers on 16 x 8 stages (Grattafiori 2024, section 3.3.2); FP4 counts as FP8. */
static void test_ends(void) {
    static const char *const row =
        "a,nemo,GB300,,256,,Llama 3.1 405B,126,16384,128,128256,8192,4,16,%d,4,1,1,1536,%s,,42,,";
    struct dtp_run_case *c = case_of(dtp_arena_printf(arena, row, 8, "NVFP4"));
    CU_ASSERT_FATAL(!c->unsupported);
    CU_ASSERT(c->plan.account_for_ends && strstr(c->note, "embedding and head taken as layers"));
    CU_ASSERT(dtp_plan_layers(&c->plan, &c->model, 0) == 0 &&
              dtp_plan_layers(&c->plan, &c->model, 1) == 1);
    CU_ASSERT(c->plan.dtype == DTP_FP4 && c->outside && c->cluster.gpu.not_calibrated);
    CU_ASSERT_STRING_EQUAL(c->cluster.name, "gb300-nvl72");
    c = case_of(
        dtp_arena_printf(arena, row, 7, "bf16")); /* 112 stages divide neither 126 nor 128 */
    CU_ASSERT(!c->plan.account_for_ends && c->plan.dtype == DTP_BF16 && !c->outside);
}

/* A schedule that names one with chunks takes those that it wants; one that names none says so. */
static void test_schedules(void) {
    static const struct {
        const char *schedule;
        int kind, vpp;
        const char *note;
    } cases[] = {{"ZBV", DTP_SCHED_ZB_V, 2, "2 virtual stages assumed"},
                 {"Looped BFS", DTP_SCHED_BREADTH_FIRST, 2, "2 virtual stages assumed"},
                 {"DualPipe", DTP_SCHED_1F1B, 1, "\"DualPipe\" is not known: taken as 1f1b"},
                 {"ZB H2", DTP_SCHED_1F1B, 1, "\"ZB H2\" is not known (near: zb-h1)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_run_case *c = case_of_file(dtp_arena_printf(
            arena,
            "schedule,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,"
            "vocab,seq,tp,pp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s\n"
            "%s,a,megatron-core,H100,80,64,8,GPT,32,4096,32,50257,2048,1,4,16,1,1,256,bf16,none,"
            "5\n",
            cases[i].schedule));
        CU_ASSERT_FATAL(!c->unsupported);
        CU_ASSERT(c->plan.schedule == cases[i].kind && c->plan.vpp == cases[i].vpp);
        CU_ASSERT_PTR_NOT_NULL(strstr(c->note, cases[i].note));
        CU_ASSERT((c->unknown_schedule != NULL) == (cases[i].vpp == 1));
    }
}

/* Experts: ep of the row, the model by its name, the capacity by the source (Liu 2025, section 4.2). */
static void test_experts(void) {
    static const char *const header =
        "source,ep,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,"
        "seq,tp,pp,"
        "vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s\n%s,4,a,megatron-core,"
        "H100,80,"
        "128,8,Mixtral 8x22B,56,6144,48,32000,4096,2,8,7,8,1,1,256,bf16,none,4.48\n";
    struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, header, "arXiv:2504.14960"));
    CU_ASSERT_FATAL(!c->unsupported);
    CU_ASSERT(c->plan.ep == 4 && c->model.moe.experts == 8 && c->model.moe.capacity_factor == 1);
    c = case_of_file(dtp_arena_printf(arena, header, "elsewhere"));
    CU_ASSERT(c->model.moe.capacity_factor == 0);
}

/* However the type of the products is written; on a GPU that does not have it its predecessor. */
static void test_dtypes(void) {
    static const struct {
        const char *gpu, *text;
        enum dtp_dtype dtype;
        bool outside;
    } runs[] = {{"H100,80", "BF16", DTP_BF16, false},
                {"H100,80", "bf16(fp32 grad acc)", DTP_BF16, false},
                {"H100,80", "fp32 weights; bf16 autocast", DTP_BF16, false},
                {"H100,80", "bfloat16", DTP_BF16, false},
                {"H100,80", "FP16", DTP_FP16, false},
                {"H100,80", "float8 rowwise", DTP_FP8, false},
                {"H100,80", "FP8-MX", DTP_FP8, true},
                {"B200,180", "mxfp8", DTP_FP8, true},
                {"GB200,186", "nvfp4", DTP_FP4, true},
                {"H100,80", "nvfp4", DTP_FP8, true},
                {"A100,80", "tf32", DTP_TF32, false},
                {"A100,80", "fp32", DTP_TF32, false},
                {"A100,80", "", DTP_BF16, false},
                {"V100,32", "fp32", DTP_FP32, false},
                {"V100,16", "amp", DTP_FP16, false},
                {"V100,32", "", DTP_FP16, false}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct dtp_run_case *c = case_of(dtp_arena_printf(
            arena, "a,torch-ddp,%s,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,%s,none,1,,", runs[i].gpu,
            runs[i].text));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->plan.dtype == runs[i].dtype && c->outside == runs[i].outside);
    }
    struct dtp_run_case *c =
        case_of("a,torch-ddp,A800,40,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,bf16,none,1,,");
    CU_ASSERT(!c->unsupported && c->cluster.gpu.memory_bytes < 45000000000);
    c = case_of("a,torch-ddp,H100,80,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,,bf16,none,1,,");
    CU_ASSERT(!c->unsupported && c->plan.global_batch_size == 8); /* none stated */
}

/* What the sweep's source tells about its runs, by their size. */
static void test_sized_facts(void) {
    struct dtp_run_case *c = case_of("a,nanotron,H100,80,64,8,Llama-like,16,2048,32,131072,4096,"
                                     "8,1,1,8,0,1,256,bf16,none,1,,");
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(!c->framework.checked_collectives);
    CU_ASSERT_STRING_EQUAL(c->peak_mem_unit, "GiB reserved");
    c = case_of("a,nanotron,H100,80,64,8,Llama-like,16,2048,32,131072,4096,8,2,1,4,0,1,256,bf16,"
                "none,1,,");
    CU_ASSERT(c->framework.checked_collectives && !c->framework.checked_transfers);
    c = case_of("a,nanotron,H100,80,512,8,Llama-like,16,2048,32,131072,4096,8,2,1,32,0,1,256,bf16,"
                "none,1,,");
    CU_ASSERT(c->framework.checked_collectives && c->framework.checked_transfers);
    c = case_of("a,nanotron,H100,80,8,8,Llama-like,32,4096,32,131072,4096,1,2,1,4,0,4,256,bf16,"
                "none,1,,"); /* one that cannot have fitted at first */
    CU_ASSERT(c->framework.checked_transfers);
    static const int gpus[] = {16, 64, 128};
    for (int i = 0; i < 3; i++) { /* large microbatches on 32 and 64 GPUs */
        c = case_of(
            dtp_arena_printf(arena,
                             "a,nanotron,H100,80,%d,8,Llama-like,16,2048,32,131072,4096,8,1,"
                             "1,%d,1,16,256,bf16,none,1,,",
                             gpus[i], gpus[i] / 8));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->framework.checked_collectives == (i == 1));
    }
    static const int ffn[] = {8192, 14336};
    for (int i = 0; i < 2; i++) {
        c = case_of_file(dtp_arena_printf(
            arena,
            "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,ffn,"
            "gated_ffn,vocab,seq,tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,step_s\n"
            "x,a,nanotron,H100,80,64,8,Llama-like,32,4096,32,%d,1,131072,4096,8,1,1,8,0,1,256,bf16,"
            "1\n",
            ffn[i]));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->model.tied_embeddings == (i == 0));
    }
    for (int tp = 1; tp <= 2; tp++) { /* pipelines of 8B that would fill the card and not */
        c = case_of_file(dtp_arena_printf(
            arena,
            "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,ffn,"
            "gated_ffn,vocab,seq,tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,step_s\n"
            "x,a,nanotron,H100,80,16,8,Llama-like,32,4096,32,14336,1,131072,4096,%d,2,1,%d,1,1,256,"
            "bf16,1\n",
            tp, 8 / tp));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->framework.checked_transfers == (tp == 1));
    }
}

/* Pipelines on 256 GPUs that were not made again: ZeRO-1 with dp 32, microbatch 2 of 8B. On 64, 8B
 * without ZeRO below dp 32, and from dp 4 on 16 and 32. ZeRO-1 of one replica. */
static void test_campaign_facts(void) {
    static const struct {
        const char *gpus, *rest;
        bool slow;
    } runs[] = {{"256,8,Llama 1B,16,2048,32,131072,4096,4,2,1", "32,1,1,256", true},
                {"256,8,Llama 1B,16,2048,32,131072,4096,4,2,1", "32,0,1,256", false},
                {"256,8,Llama 1B,16,2048,32,131072,4096,8,2,1", "16,1,2,256", false},
                {"256,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "16,1,2,256", true},
                {"256,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "16,1,1,256", false},
                {"64,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "4,0,1,256", true},
                {"64,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "4,1,1,256", false},
                {"32,8,Llama 8B,32,4096,32,131072,4096,4,2,1", "4,0,1,256", true},
                {"32,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "2,0,1,256", false},
                {"8,8,Llama 1B,16,2048,32,131072,4096,1,8,1", "1,1,1,256", true},
                {"8,8,Llama 1B,16,2048,32,131072,4096,1,8,1", "1,0,1,256", false},
                {"64,8,Llama 1B,16,2048,32,131072,4096,8,2,1", "4,0,1,256", false}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char line[160];
        snprintf(line, sizeof line, "a,nanotron,H100,80,%s,%s,bf16,none,1,,", runs[i].gpus,
                 runs[i].rest);
        struct dtp_run_case *c = case_of(line);
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->framework.checked_transfers == runs[i].slow);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"reading", test_read},
                           {"embedding and head as layers", test_ends},
                           {"schedules of rows", test_schedules},
                           {"a model with experts", test_experts},
                           {"types of products", test_dtypes},
                           {"facts by size of the run", test_sized_facts},
                           {"facts of runs that were not made again", test_campaign_facts},
                           {"another schema", test_schema},
                           {"from a row to a problem", test_cases},
                           {"what the scripts say", test_facts},
                           {"a run in fp32", test_fp32_run},
                           {"stacks of sources", test_stacks},
                           {"sums that are no runs", test_sums},
                           {"LLM Foundry's tables", test_llm_foundry},
                           {"Megatron-FSDP", test_megatron_fsdp},
                           {"attention that the scripts set", test_attention_facts},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"measured", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
