/* Configurations of runs and iteration times of workers. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model/model.h"
#include "models/model/modules.h"
#include "sim/base/json.h"
#include "tests/shared_case.h"
#include "tests/suites.h"
#include "traces/formats/config.h"
#include "traces/jobs/stragglers.h"

static struct dtp_arena *arena;

static const char *corpus(const char *file) {
    return dtp_arena_printf(arena, "%s/tests/fuzz/corpus/%s", DTP_SOURCE_DIR, file);
}

static void read_config(const char *file, struct dtp_run_config *out) {
    struct dtp_source *s;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_open(arena, corpus(file), &s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_config_read(arena, s, out, &err), DTP_OK);
    dtp_source_close(s);
}

static void megatron(void) {
    struct dtp_run_config c;
    read_config("fuzz_config/megatron.yaml", &c);
    CU_ASSERT_EQUAL(c.layers, 32);
    CU_ASSERT_EQUAL(c.kv_heads, 8);
    CU_ASSERT_EQUAL(c.pp, 4);
    CU_ASSERT_EQUAL(c.layers_a_chunk, 1);
    CU_ASSERT_TRUE(c.untied);
    CU_ASSERT_TRUE(c.distributed_optimizer);
    CU_ASSERT_EQUAL(dtp_config_batch(&c), 8);
    /* the model that it writes is one that --model takes */
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    CU_ASSERT_TRUE(dtp_config_write_model(f, &c));
    fclose(f);
    const struct dtp_json *j;
    struct dtp_model m;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(arena, "model", text, n, &j, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_model_read(arena, j, &m, &err), DTP_OK);
    CU_ASSERT_EQUAL(m.layers, 32);
    CU_ASSERT_EQUAL(m.kv_heads, 8);
    CU_ASSERT_FALSE(m.tied_embeddings);
    free(text);
}

static void command_line(void) {
    struct dtp_run_config c;
    read_config("fuzz_config/command.sh", &c);
    CU_ASSERT_EQUAL(c.layers, 24);
    CU_ASSERT_EQUAL(c.hidden, 2048);
    CU_ASSERT_EQUAL(c.heads, 16);
    CU_ASSERT_EQUAL(c.tp, 2);
    CU_ASSERT_TRUE(c.gated);
    CU_ASSERT_TRUE(c.sequence_parallel);
    CU_ASSERT_FALSE(dtp_config_write_model(stdout, &c)); /* no vocabulary */
}

static void yaml_and_toml(void) {
    struct dtp_run_config c;
    read_config("fuzz_config/nanotron.yaml", &c);
    CU_ASSERT_EQUAL(c.dp, 4);
    CU_ASSERT_EQUAL(c.tp, 2);
    CU_ASSERT_EQUAL(c.seq, 4096);
    CU_ASSERT_TRUE(c.untied);
    CU_ASSERT_EQUAL(dtp_config_batch(&c), 64);
    read_config("fuzz_config/titan.toml", &c);
    CU_ASSERT_EQUAL(c.tp, 4);
    CU_ASSERT_EQUAL(c.microbatch, 2);
    CU_ASSERT_EQUAL(c.seq, 8192);
}

/* Variables with and without defaults, exported, in front of a command; a comment says nothing. */
static void launch_script(void) {
    struct dtp_run_config c;
    read_config("fuzz_config/launch.txt", &c);
    CU_ASSERT_EQUAL(c.layers, 32);
    CU_ASSERT_EQUAL(c.heads, 32);
    CU_ASSERT_EQUAL(c.experts, 8);
    CU_ASSERT_EQUAL(c.tp, 2);
    CU_ASSERT_EQUAL(c.pp, 4);
    CU_ASSERT_EQUAL(c.ep, 8);
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 32);
    CU_ASSERT_EQUAL(c.modules, DTP_BIT_MOE_ACT | DTP_BIT_LAYERNORM);
    CU_ASSERT_TRUE(c.recompute_selective && c.fp8 && !c.recompute_full);
    CU_ASSERT_EQUAL(dtp_config_batch(&c), 0);               /* it is computed */
    CU_ASSERT_STRING_EQUAL(c.framework, "megatron-bridge"); /* delayed scales go with no moe_act */
    c.nodes = 1;                                            /* the layout takes more */
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 32);
    CU_ASSERT_FALSE(dtp_config_write_model(stdout, &c)); /* it says too little about experts */
}

static void trainers(void) {
    struct dtp_run_config c;
    read_config("fuzz_config/axolotl.yaml", &c);
    CU_ASSERT_STRING_EQUAL(c.model, "meta-llama/Meta-Llama-3-8B");
    CU_ASSERT_STRING_EQUAL(c.framework, "deepspeed");
    CU_ASSERT_EQUAL(c.zero_stage, 3);
    CU_ASSERT_EQUAL(c.seq, 4096);
    CU_ASSERT_TRUE(c.recompute_full);
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 0);
    read_config("fuzz_config/tune.yaml", &c);
    CU_ASSERT_STRING_EQUAL(c.model, "llama3_70b");
    CU_ASSERT_EQUAL(c.microbatch, 2);
    CU_ASSERT_TRUE(c.recompute_full);
    CU_ASSERT_STRING_EQUAL(c.framework, "torchtune");
    CU_ASSERT_FALSE(c.adapters);
    read_config("fuzz_config/lora.yaml", &c);
    CU_ASSERT_TRUE(c.adapters);
    CU_ASSERT_STRING_EQUAL(c.model, "Qwen/Qwen2.5-7B");
    read_config("fuzz_config/zero.json", &c);
    CU_ASSERT_EQUAL(c.microbatch, 2);
    CU_ASSERT_EQUAL(c.accumulation, 4);
    CU_ASSERT_EQUAL(c.zero_stage, 2);
    CU_ASSERT_TRUE(c.fp16);
    CU_ASSERT_STRING_EQUAL(c.framework, "deepspeed");
}

static void read_text(const char *text, struct dtp_run_config *out) {
    struct dtp_source *s;
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "text", text, strlen(text), &s, NULL), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_config_read(arena, s, out, NULL), DTP_OK);
    dtp_source_close(s);
}

/* Launches of a script do not mix. In one, the last of several values counts, and that there are several is said; the
 * same one twice is none. */
static void said_again(void) {
    struct dtp_run_config c;
    read_text(
        "TP=2\n"
        "python train.py --num-layers 8 --tensor-model-parallel-size $TP --micro-batch-size 1\n"
        "python train.py --num-layers 8 --tensor-model-parallel-size 4 --micro-batch-size 1\n",
        &c);
    CU_ASSERT_EQUAL(c.tp, 2);
    CU_ASSERT_EQUAL(c.changed, 0);
    CU_ASSERT_EQUAL_FATAL(c.script->nlaunches, 2);
    read_text("python train.py --num-layers 8 --tensor-model-parallel-size 2 --micro-batch-size 1 "
              "--tensor-model-parallel-size 4 --micro-batch-size 1\n",
              &c);
    CU_ASSERT_EQUAL(c.tp, 4);
    CU_ASSERT_EQUAL(c.microbatch, 1);
    CU_ASSERT(c.changed != 0 && (c.changed & (c.changed - 1)) == 0); /* one bit */
}

/* What the settings that --emit writes do not have (tests/property/test_emitted.c). */
static void as_people_write(void) {
    struct dtp_run_config c;
    read_text(
        "model:\n  tensor_model_parallel_size: 4\n  activations_checkpoint_granularity: full\n"
        "  activations_checkpoint_method: block\n  activations_checkpoint_num_layers: 3\n",
        &c);
    CU_ASSERT_STRING_EQUAL(c.framework, "nemo");
    CU_ASSERT_TRUE(c.recompute_full && c.recompute_block);
    CU_ASSERT_EQUAL(c.recompute_layers, 3);
    read_text("{\n  \"bf16\": {\"enabled\": true},\n  \"fp16\": {\"enabled\": false},\n"
              "  \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"},\n"
              "    \"offload_optimizer\": {\"device\": \"none\"}},\n"
              "  \"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 2,\n"
              "  \"gradient_accumulation_steps\": 4\n}\n",
              &c);
    CU_ASSERT_FALSE(c.fp16 || c.offloads_optimizer);
    CU_ASSERT_TRUE(c.offloads_parameters && c.offloads_to_nvme);
    CU_ASSERT_EQUAL(c.zero_stage, 3);
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 8); /* 64 / (2 x 4) */
    read_text("--tensor-model-parallel-size 2 --fp8-format hybrid --fp8-recipe tensorwise\n", &c);
    CU_ASSERT_TRUE(c.fp8);
    CU_ASSERT_STRING_EQUAL(c.framework, "megatron-bridge");
    read_text("--tensor-model-parallel-size 2 --fp8-format hybrid --fp8-recipe delayed\n", &c);
    CU_ASSERT_STRING_EQUAL(c.framework, "megatron-core");
}

/* Launchers and trainers of Hugging Face: GPUs and microbatches imply the batch, a file of DeepSpeed's the stage. */
static void launchers(void) {
    struct dtp_run_config c;
    read_text("deepspeed --num_gpus=8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf "
              "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 "
              "--deepspeed ds_config.json --model_max_length 4096\n",
              &c);
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 8);
    CU_ASSERT_EQUAL(dtp_config_batch(&c), 64);
    CU_ASSERT_EQUAL(c.seq, 4096);
    CU_ASSERT_EQUAL(c.zero_stage, 0);
    CU_ASSERT_STRING_EQUAL(c.zero_file, "ds_config.json");
    read_text("deepspeed_config:\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
              "  zero_stage: 2\ndistributed_type: DEEPSPEED\nfsdp_config: {}\nnum_processes: 16\n",
              &c);
    CU_ASSERT_STRING_EQUAL(c.framework, "deepspeed");
    CU_ASSERT_EQUAL(c.zero_stage, 2);
    CU_ASSERT_TRUE(c.offloads_optimizer && !c.offloads_parameters && !c.offloads_to_nvme);
    CU_ASSERT_EQUAL(dtp_config_gpus(&c), 16);
    read_text("fsdp_config:\n  fsdp_activation_checkpointing: true\n"
              "  fsdp_sharding_strategy: SHARD_GRAD_OP\nnum_machines: 1\nnum_processes: 4\n",
              &c);
    CU_ASSERT_STRING_EQUAL(c.framework, "torch-fsdp2");
    CU_ASSERT_EQUAL(c.zero_stage, 2);
    CU_ASSERT_TRUE(c.recompute_full);
    CU_ASSERT_PTR_NULL(c.zero_file);
}

static enum dtp_status read_times(const char *path, struct dtp_iterations *out,
                                  struct dtp_err *err) {
    struct dtp_source *s;
    *err = (struct dtp_err){0};
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = dtp_iterations_read(arena, s, out, err);
    dtp_source_close(s);
    return status;
}

static void stragglers(void) {
    struct dtp_iterations t;
    struct dtp_err err;
    CU_ASSERT_EQUAL_FATAL(read_times(corpus("fuzz_iterations/two.csv"), &t, &err), DTP_OK);
    CU_ASSERT_EQUAL(t.nworkers, 2);
    CU_ASSERT_EQUAL(t.niterations, 2);
    CU_ASSERT_DOUBLE_EQUAL(t.mean, 18, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(t.mean_slowest, 25, 1e-12);
    CU_ASSERT_EQUAL(t.worker[0].slowest, 1);
    CU_ASSERT_DOUBLE_EQUAL(t.worker[1].mean, 21, 1e-12);
    CU_ASSERT_EQUAL(read_times(corpus("fuzz_iterations/nan.csv"), &t, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "nan.csv:2"));
}

/* The two series of facts.json: rows, workers, iterations, mean. */
static void stragglers_published(void) {
    static const struct {
        const char *file;
        size_t rows, workers, iterations;
        double mean;
    } cases[] = {{"pai2020__minibatch_job_1_norm.csv", 3000, 10, 300, 443.67},
                 {"pai2020__minibatch_job_2_norm.csv", 2402, 10, 254, 807.37}};
    for (int i = 0; i < 2; i++) {
        struct dtp_iterations t;
        struct dtp_err err;
        const char *path =
            shared_file(arena, dtp_arena_printf(arena, "traces/cluster/%s", cases[i].file));
        if (!path)
            continue;
        CU_ASSERT_EQUAL_FATAL(read_times(path, &t, &err), DTP_OK);
        CU_ASSERT_EQUAL(t.rows, cases[i].rows);
        CU_ASSERT_EQUAL(t.nworkers, cases[i].workers);
        CU_ASSERT_EQUAL(t.niterations, cases[i].iterations);
        CU_ASSERT_DOUBLE_EQUAL(t.mean, cases[i].mean, 0.0051);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"arguments of Megatron in YAML", megatron},
                           {"a command line", command_line},
                           {"YAML of nanotron, TOML of torchtitan", yaml_and_toml},
                           {"a launch script", launch_script},
                           {"trainers", trainers},
                           {"as people write them", as_people_write},
                           {"said again", said_again},
                           {"launchers of Hugging Face", launchers},
                           {"iteration times by hand", stragglers},
                           {"iteration times of PAI", stragglers_published},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"configurations and workers", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
