/* Measured runs: reading, what is assumed, what is refused. */
#include <CUnit/Basic.h>
#include <string.h>

#include "tests/measured_rows.h"
#include "tests/suites.h"
#include "traces/validate/measured_internal.h"

static void test_read(void) {
    struct dtp_runs r = read_runs(
        HEADER
        "a,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,51200,2048,8,1,1,1,0,4,4,fp16,full,"
        "1.42,60.5,GiB\n"
        "b,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,51200,2048,8,1,,,,,4,fp16,,soon,,\n");
    CU_ASSERT_FATAL(r.n == 2);
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
    CU_ASSERT(!c->unsupported && c->plan.dp == 2 && c->plan.vpp == 1); /* 5 microbatches, pp 4 */
    CU_ASSERT(c->plan.schedule == DTP_SCHED_1F1B && strstr(c->note, "dp 2") != NULL);
    /* dp 0 of a layout on more GPUs than there are */
    c = case_of("a,megatron-core,A100,80,8,8,GPT,4,256,4,512,128,16,1,1,0,1,1,8,bf16,none,1,,");
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "number of GPUs"));
    c = case_of(
        "a,megatron-core,A100,80,8,8,Llama 7B,32,4096,32,32000,2048,1,1,1,8,0,1,8,bf16,,1,,");
    CU_ASSERT(c->unsupported == NULL && *c->note); /* recomputation is not stated */
}

/* A row cuts a model of the library; experts that no column describes are not taken for a dense model. */
static void test_experts_of_library(void) {
#define WITH_EXPERTS(shape)                                                                        \
    "id,framework,gpu,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,tp,pp,dp,ep,"         \
    "zero_stage,microbatch,global_batch,dtype,recompute,step_s\na,megatron-core,H100,8,8," shape   \
    ",4096,1,1,8,8,1,1,32,bf16,none,1\n"
    struct dtp_run_case *c = case_of_file(WITH_EXPERTS("deepseek-v3,4,,,"));
    CU_ASSERT_FATAL(!c->unsupported);
    CU_ASSERT(c->model.layers == 4 && c->model.moe.experts == 256 && c->model.hidden == 7168);
    c = case_of_file(WITH_EXPERTS("Unheard 30B,48,2048,32,151936"));
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "has experts"));
#undef WITH_EXPERTS
}

/* A stack without a file is known by a word of its name, not by letters within one; else by the columns. */
static void test_relatives(void) {
    static const struct {
        const char *framework, *taken;
    } names[] = {{"no-such-stack", "torch-ddp"},   {"split-stack", "torch-ddp"},
                 {"internal", "torch-ddp"},        {"My-FSDP", "torch-fsdp2"},
                 {"TheirFSDP", "torch-fsdp2"},     {"FSDP1 (ours)", "torch-fsdp1"},
                 {"OldLLMFoundry", "torch-fsdp1"}, {"our torchtitan", "torchtitan"},
                 {"ColossalChat", "megatron-core"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct dtp_run_case *c = case_of(dtp_arena_printf(
            arena, "a,%s,A100,80,8,8,GPT,4,256,4,512,128,1,1,1,8,0,1,8,fp16,none,1,,",
            names[i].framework));
        CU_ASSERT_FATAL(!c->unsupported);
        CU_ASSERT_STRING_EQUAL(c->framework.name, names[i].taken);
        CU_ASSERT_PTR_NOT_NULL(strstr(c->note, "framework taken as"));
    }
    struct dtp_run_library *l;
    CU_ASSERT_FATAL(dtp_run_library_create(arena, &l, NULL) == DTP_OK);
    CU_ASSERT_FATAL(l->nrelatives > 0 && l->nstacks > 0);
    for (size_t i = 0; i < l->nrelatives; i++)
        CU_ASSERT_PTR_NOT_NULL(dtp_run_framework(l, l->relative[i].use));
    for (size_t i = 0; i < l->nstacks; i++)
        CU_ASSERT_PTR_NOT_NULL(dtp_run_framework(l, l->stack[i].use));
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

/* Llama 3.1 405B: 126 layers on 16 x 8 stages (Grattafiori 2024, section 3.3.2); GB300 has FP4. */
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
                 {"ZB H3", DTP_SCHED_1F1B, 1, "\"ZB H3\" is not known (near: zb-h1)"}};
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

int main(void) {
    CU_TestInfo tests[] = {{"reading", test_read},
                           {"embedding and head as layers", test_ends},
                           {"schedules of rows", test_schedules},
                           {"a model with experts", test_experts},
                           {"experts of the library", test_experts_of_library},
                           {"types of products", test_dtypes},
                           {"another schema", test_schema},
                           {"from a row to a problem", test_cases},
                           {"experts", test_experts},
                           {"stacks of sources", test_stacks},
                           {"stacks without a file", test_relatives},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"measured", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
