/* Measured runs have facts that no column holds (traces/measured/clusters.json). */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>

#include "models/memory/memory.h"
#include "tests/measured_rows.h"
#include "tests/shared_case.h"
#include "tests/suites.h"

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
    CU_ASSERT(c->model.attention_dropout > 0 && c->problem.attention == DTP_ATTN_CUDNN_9_3);
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

/* Columns that name what the options of simulate name win over what is known of a source. */
static void test_option_columns(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,"
        "peak_mem_unit,peak_mem_kind,attention,cluster,nic\nFlagPerf:llama3_8B-megatron,a,megatron,"
        "H100,"
        "80,8,8,Llama,32,4096,32,32000,2048,2,1,1,4,,1,8,bf16,none,1,50,GB,%s\n";
    struct dtp_run_case *c =
        case_of_file(dtp_arena_printf(arena, row, "reserved,flash2,aws-p5,1x100"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT_EQUAL(c->problem.attention, DTP_ATTN_FLASH2);
    CU_ASSERT_STRING_EQUAL(c->cluster.name, "aws-p5");
    CU_ASSERT(c->cluster.node.nics == 1 && c->cluster.node.nic_bytes_per_s == 100e9 / 8);
    c = case_of_file(dtp_arena_printf(arena, row, ",sdpa,,16 x 400 Gb/s EFA"));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(c->problem.attention < 0 && strstr(c->note, "sdpa"));
    CU_ASSERT(c->cluster.node.nics * c->cluster.node.nic_bytes_per_s == 16 * 400e9 / 8);
    c = case_of_file(dtp_arena_printf(arena, row, ",,no-such-cluster,"));
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "no-such-cluster"));
    c = case_of_file(dtp_arena_printf(arena, row, "pinned,,,"));
    CU_ASSERT(c->unsupported && strstr(c->unsupported, "peak_mem_kind"));
}

/* A run of nanotron whose page says another accumulation than its row's batch makes: its step holds the batch
 * of the row twice. */
static void test_other_batch(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,"
        "peak_mem_unit\nplaybook,nanotron_ultrascale-%s,nanotron,H100,80,64,8,Llama "
        "(1B),16,2048,32,"
        "131072,4096,2,2,1,16,1,8,256,bf16,none,1,25.8,GB\n";
    struct dtp_run_case *told = case_of_file(dtp_arena_printf(arena, row, "198")),
                        *other = case_of_file(dtp_arena_printf(arena, row, "177"));
    CU_ASSERT_FATAL(told->unsupported == NULL && other->unsupported == NULL);
    CU_ASSERT(dtp_plan_num_microbatches(&told->plan) == 1 && told->plan.global_batch_size == 128);
    CU_ASSERT_DOUBLE_EQUAL(told->batches, 2, 1e-12);
    CU_ASSERT(told->framework.host.checked_collectives && strstr(told->note, "1 microbatches"));
    CU_ASSERT(dtp_plan_num_microbatches(&other->plan) == 2 && other->plan.global_batch_size == 256);
    CU_ASSERT_DOUBLE_EQUAL(other->batches, 1, 1e-12);
}

/* In nanotron's sweep the newer runs had 8 GiB less of the card, and cut the 1B model in another way than the first
 * runs, to which those belong that would reserve more than any run holds. */
static void test_versions(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,ffn,"
        "gated_ffn,vocab,seq,tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,"
        "step_s,peak_mem,peak_mem_unit\nplaybook,a,nanotron,H100,80,16,8,Llama (1B),16,2048,32,"
        "8192,1,131072,4096,1,2,1,8,1,%d,256,bf16,none,1,25,GB\n";
    struct dtp_run_case *newer = case_of_file(dtp_arena_printf(arena, row, 2)),
                        *first = case_of_file(dtp_arena_printf(arena, row, 16));
    CU_ASSERT_FATAL(newer->unsupported == NULL && first->unsupported == NULL);
    CU_ASSERT(!newer->framework.host.checked_transfers && first->framework.host.checked_transfers);
    CU_ASSERT(newer->problem.memory_limit_bytes < 71 * ((uint64_t)1 << 30));
    CU_ASSERT(first->problem.memory_limit_bytes > 79 * ((uint64_t)1 << 30));
    CU_ASSERT(newer->plan.layers_per_stage.at[0] == 10 && first->plan.layers_per_stage.at[0] == 11);
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
    CU_ASSERT(c->framework.keeps.weight_bytes == 4 && c->framework.keeps.optimizer_bytes == 8);
    c = case_of_file(dtp_arena_printf(arena, row, "amp,"));
    CU_ASSERT(c->plan.dtype == DTP_BF16 && c->plan.recompute == DTP_RECOMPUTE_NONE);
    CU_ASSERT(c->problem.attention == DTP_ATTN_FLASH2);
    CU_ASSERT(c->framework.keeps.weight_bytes == 2 && c->framework.keeps.optimizer_bytes == 12);
}

/* PaddleNLP's LLaMA on 40 GB ran without the fused RMS norm, on 80 GB with it, and so did GPT-3. */
static void test_unfused_norms(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,"
        "peak_mem_unit\nFlagPerf:%s-paddle,a,megatron,A100,%d,8,8,LLaMA-7B,32,4096,32,32000,2048,1,"
        "1,1,8,2,2,128,fp16 O2,full,9,33,GB\n";
    struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, row, "llama1_7B", 40));
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT_STRING_EQUAL(c->framework.name, "paddlenlp");
    CU_ASSERT(!c->framework.kernels.fused_norm && c->framework.wire.reduce_per_microbatch);
    CU_ASSERT(
        case_of_file(dtp_arena_printf(arena, row, "llama1_7B", 80))->framework.kernels.fused_norm);
    CU_ASSERT(
        case_of_file(dtp_arena_printf(arena, row, "llama1_7B", 0))->framework.kernels.fused_norm);
    CU_ASSERT(
        case_of_file(dtp_arena_printf(arena, row, "gpt3_6.7B", 40))->framework.kernels.fused_norm);
}

/* torchtitan's runs on A100 were eager, of 13B with a fused norm; fms-fsdp checkpoints a share of the blocks, of 7B none. */
static void test_runs_on_a100(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,schedule,step_s,peak_mem,"
        "peak_mem_unit\npytorch/%s,a,%s,%s,80,64,8,Llama-2 %s,40,5120,40,32000,4096,1,1,1,64,3,2,"
        "128,bf16,%s,%s,4,,\n";
    static const char *const docs = "torchtitan@6aac93843:docs/performance.md (2024)";
    static const struct {
        const char *source, *framework, *gpu, *model, *recompute, *schedule, *stack;
        bool fused;
        enum dtp_recompute real;
        int layers;
    } runs[] = {{docs, "torchtitan", "A100", "13B", "none", "FSDP2", "torchtitan-eager", true,
                 DTP_RECOMPUTE_NONE, 0},
                {docs, "torchtitan", "A100", "70B", "selective (op)", "FSDP2", "torchtitan-eager",
                 false, DTP_RECOMPUTE_SELECTIVE, 0},
                {"torchtitan@b5bcd76", "torchtitan", "H100", "8B", "selective (op)", "FSDP2",
                 "torchtitan", true, DTP_RECOMPUTE_SELECTIVE, 0},
                {"torchtitan@4d88a8a44:docs/performance.md", "torchtitan", "A100", "8B",
                 "selective (layer)", "FSDP2", "torchtitan-eager", true, DTP_RECOMPUTE_FULL, 16},
                {docs, "torchtitan", "A100", "13B", "selective (layer)", "FSDP2",
                 "torchtitan-eager", true, DTP_RECOMPUTE_FULL, 20},
                {"torchtitan@4d88a8a44:docs/performance.md", "torchtitan", "A100", "70B", "full",
                 "FSDP2", "torchtitan-eager", false, DTP_RECOMPUTE_FULL, 0},
                {"torchtitan@4d88a8a44:docs/performance.md", "torchtitan", "H100", "405B", "full",
                 "FSDP2+TP", "torchtitan", true, DTP_RECOMPUTE_FULL, 0},
                {"fms-fsdp", "other", "A100", "7b", "none", "HSDP", "fms-fsdp", true,
                 DTP_RECOMPUTE_NONE, 0},
                {"fms-fsdp", "other", "A100", "13b", "selective", "FSDP", "fms-fsdp", true,
                 DTP_RECOMPUTE_FULL, 16},
                {"fms-fsdp", "other", "A100", "34b", "selective", "FSDP", "fms-fsdp", true,
                 DTP_RECOMPUTE_FULL, 0}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct dtp_run_case *c = case_of_file(
            dtp_arena_printf(arena, row, runs[i].source, runs[i].framework, runs[i].gpu,
                             runs[i].model, runs[i].recompute, runs[i].schedule));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT_STRING_EQUAL(c->framework.name, runs[i].stack);
        CU_ASSERT(c->framework.kernels.fused_norm == runs[i].fused);
        CU_ASSERT(c->plan.recompute == runs[i].real);
        CU_ASSERT(c->plan.recompute_layers == runs[i].layers);
        CU_ASSERT(strstr(c->note, "no recomputation") == NULL);
    }
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
    CU_ASSERT(c->framework.kernels.fp8_recipe == DTP_FP8_CURRENT &&
              c->problem.offloaded_layers == 40);
    dtp_memory(dtp_memory_memo_create(arena, &c->problem), &c->plan, &moved);
    CU_ASSERT(moved.device_bytes < c->problem.memory_limit_bytes); /* it ran */
    double layer = dtp_memory_layer_activations(&c->problem, &c->plan, DTP_LAYER_DENSE);
    c->problem.offloaded_layers = 0;
    dtp_memory(dtp_memory_memo_create(arena, &c->problem), &c->plan, &kept);
    CU_ASSERT_DOUBLE_EQUAL((double)kept.activations_bytes - (double)moved.activations_bytes,
                           38 * layer, 2); /* two are on the way */
    c = case_of_file(dtp_arena_printf(arena, row, 1, "MXFP8"));
    CU_ASSERT(c->framework.kernels.fp8_recipe == DTP_FP8_BLOCK && c->problem.offloaded_layers == 0);
}

/* MLPerf's three rounds of GPT-3 on Hopper: FlashAttention 1, 2, then cuDNN's; weights in 16 bit until 4.0. */
static void test_mlperf_rounds(void) {
    static const char *const row =
        "source,id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,"
        "tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,flash_attention,step_s,"
        "peak_mem,peak_mem_unit\nmlcommons/training_results_%s:NVIDIA/"
        "results,a,nemo-mlperf,H100,80,"
        "512,8,GPT-3 175B (MLPerf),96,12288,96,51200,2048,4,8,12,16,1,1,2048,FP8,none,1,11,,\n";
    static const struct {
        const char *round;
        enum dtp_attention attention;
        bool narrow_weights;
    } cases[] = {{"v3.0", DTP_ATTN_FLASH1, false},
                 {"v3.1", DTP_ATTN_FLASH2, false},
                 {"v4.1", DTP_ATTN_CUDNN, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_run_case *c = case_of_file(dtp_arena_printf(arena, row, cases[i].round));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->problem.attention == (int)cases[i].attention);
        CU_ASSERT((c->framework.keeps.fp8_weight_bytes <= 0) == cases[i].narrow_weights);
    }
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
    CU_ASSERT(c->framework.keeps.optimizer_bytes == 6); /* Adam in 16 bit; not in pre-training */
    c = case_of_file(dtp_arena_printf(arena, row, docs, "GPT3-175B", 128));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN_9_3 && strstr(c->note, "cudnn_9_3"));
    c = case_of_file(dtp_arena_printf(arena, row, "dgxc-benchmarking@v24.11.1:llama3.1", "a", 128));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN_9_3);
    c = case_of_file(
        dtp_arena_printf(arena, row, "dgxc-benchmarking@v25.02.02:llama3.1", "a", 128));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN);
    c = case_of_file(dtp_arena_printf(arena, row, "Megatron-Bridge@1:docs", "LLAMA2-7B", 32));
    CU_ASSERT(c->problem.attention == DTP_ATTN_CUDNN && c->problem.document_tokens == 0);
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
        CU_ASSERT(c->framework.kernels.recompute_stops_early == !strstr(tables[i].stack, "2.0"));
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
    const char *path = shared_file(arena, "measured/vtrain_single.csv");
    struct dtp_runs r = {0};
    if (!path)
        return;
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

/* What the sweep's source tells about its runs, by their size. */
static void test_sized_facts(void) {
    struct dtp_run_case *c = case_of("a,nanotron,H100,80,64,8,Llama-like,16,2048,32,131072,4096,"
                                     "8,1,1,8,0,1,256,bf16,none,1,,");
    CU_ASSERT_FATAL(c->unsupported == NULL);
    CU_ASSERT(!c->framework.host.checked_collectives);
    CU_ASSERT_STRING_EQUAL(c->peak_mem_unit, "GiB reserved");
    c = case_of("a,nanotron,H100,80,64,8,Llama-like,16,2048,32,131072,4096,8,2,1,4,1,1,256,bf16,"
                "none,1,,");
    CU_ASSERT(c->framework.host.checked_collectives && !c->framework.host.checked_transfers);
    c = case_of("a,nanotron,H100,80,512,8,Llama-like,16,2048,32,131072,4096,8,2,1,32,0,1,256,bf16,"
                "none,1,,");
    CU_ASSERT(c->framework.host.checked_collectives && c->framework.host.checked_transfers);
    c = case_of("a,nanotron,H100,80,8,8,Llama-like,32,4096,32,131072,4096,1,2,1,4,0,4,256,bf16,"
                "none,1,,"); /* one that cannot have fitted at first */
    CU_ASSERT(c->framework.host.checked_transfers);
    static const int gpus[] = {16, 64, 128};
    for (int i = 0; i < 3; i++) { /* microbatches of more than one sequence on 32 and 64 GPUs */
        c = case_of(
            dtp_arena_printf(arena,
                             "a,nanotron,H100,80,%d,8,Llama-like,16,2048,32,131072,4096,8,1,"
                             "1,%d,1,2,256,bf16,none,1,,",
                             gpus[i], gpus[i] / 8));
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->framework.host.checked_collectives == (i == 1));
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
        CU_ASSERT(c->framework.host.checked_transfers == (tp == 1));
    }
}

/* Pipelines on 256 GPUs that were not made again: ZeRO-1 with dp 32 and more, microbatch 2 of 8B. On 64, models
 * below 80B with microbatch 1 and without ZeRO below dp 32, and from dp 4 on 16 and 32. ZeRO-1 of one replica. */
static void test_campaign_facts(void) {
    static const struct {
        const char *gpus, *rest;
        bool slow;
    } runs[] = {{"256,8,Llama 1B,16,2048,32,131072,4096,4,2,1", "32,1,1,256", true},
                {"256,8,Llama 1B,16,2048,32,131072,4096,1,2,1", "128,1,2,256", true},
                {"256,8,Llama 1B,16,2048,32,131072,4096,4,2,1", "32,0,1,256", false},
                {"256,8,Llama 1B,16,2048,32,131072,4096,8,2,1", "16,1,2,256", false},
                {"256,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "16,1,2,256", true},
                {"256,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "16,1,1,256", false},
                {"64,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "4,0,1,256", true},
                {"64,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "4,1,1,256", false},
                {"64,8,Llama 1B,16,2048,32,131072,4096,4,2,1", "8,0,32,256", false},
                {"128,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "8,0,8,256", false},
                {"32,8,Llama 8B,32,4096,32,131072,4096,4,2,1", "4,0,1,256", true},
                {"32,8,Llama 8B,32,4096,32,131072,4096,8,2,1", "2,0,1,256", false},
                {"8,8,Llama 1B,16,2048,32,131072,4096,1,8,1", "1,1,1,256", true},
                {"8,8,Llama 1B,16,2048,32,131072,4096,1,8,1", "1,0,1,256", false},
                {"64,8,Llama 3B,28,3072,32,131072,4096,8,2,1", "4,0,1,256", true},
                {"64,8,Llama 3B,28,3072,32,131072,4096,8,2,1", "4,0,2,256", false},
                {"64,8,Llama 80B,80,8192,64,131072,4096,8,4,1", "2,0,1,256", false}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char line[160];
        snprintf(line, sizeof line, "a,nanotron,H100,80,%s,%s,bf16,none,1,,", runs[i].gpus,
                 runs[i].rest);
        struct dtp_run_case *c = case_of(line);
        CU_ASSERT_FATAL(c->unsupported == NULL);
        CU_ASSERT(c->framework.host.checked_transfers == runs[i].slow);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"columns named as options", test_option_columns},
                           {"facts by size of the run", test_sized_facts},
                           {"facts of runs that were not made again", test_campaign_facts},
                           {"what the scripts say", test_facts},
                           {"a run with another batch than its row", test_other_batch},
                           {"versions of nanotron", test_versions},
                           {"a run in fp32", test_fp32_run},
                           {"runs without a fused norm", test_unfused_norms},
                           {"PyTorch's runs on A100", test_runs_on_a100},
                           {"sums that are no runs", test_sums},
                           {"LLM Foundry's tables", test_llm_foundry},
                           {"Megatron-FSDP", test_megatron_fsdp},
                           {"attention that the scripts set", test_attention_facts},
                           {"rounds of MLPerf", test_mlperf_rounds},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"facts of measured runs", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
