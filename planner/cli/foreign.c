/* Options of other tools that have no counterpart of the same meaning: what to say instead. Options that
 * differ by name alone are aliases (common.c). */
#include <string.h>

#include "planner/cli/options.h"

#define OWN_MODEL                                                                                  \
    "--model FILE: a model of your own, a few lines of JSON (models/README.md); `dtplan trace "    \
    "SCRIPT` reads a launch script"

static const struct {
    const char *name, *say;
} elsewhere[] = {
    {"price", "`dtplan sweep`, which has it"},
    {"deadline", "`dtplan sweep`, which has it"},
    {"nodes", "--gpus with the GPUs of all nodes"},
    {"num-nodes", "--gpus with the GPUs of all nodes"},
    {"nnodes", "--gpus with the GPUs of all nodes"},
    {"nproc-per-node", "--gpus with the GPUs of all nodes"},
    {"node", "--gpus with the GPUs of all nodes"},
    {"gpus-per-node", "--cluster, which has them"},
    {"bandwidth", "--nic NxG, such as 8x400"},
    {"network", "--nic NxG, such as 8x400, or a --cluster that has it"},
    {"hardware", "--cluster"},
    {"system", "--cluster"},
    {"vram", "--memory-limit"},
    {"bf16", "--dtype bf16"},
    {"fp16", "--dtype fp16"},
    {"fp8", "--dtype fp8"},
    {"fp8-format", "--dtype fp8"},
    {"fp32", "--dtype fp32"},
    {"tf32", "--dtype tf32"},
    {"fsdp", "--framework torch-fsdp2 --zero-stage 3"},
    {"hsdp", "--zero-stage 3 --zero-group N: GPUs that share one copy"},
    {"data-parallel-shard-degree", "--zero-group: GPUs that share one copy"},
    {"data-parallel-replicate-degree", "--zero-group: GPUs that share one copy"},
    {"deepspeed", "--framework deepspeed"},
    {"use-distributed-optimizer", "--zero-stage 1"},
    {"use-megatron-fsdp", "--framework megatron-bridge --zero-stage 3"},
    {"optimizer-cpu-offload", "--offload optimizer"},
    {"overlap-grad-reduce", "--dp-overlap 1"},
    {"tp-comm-overlap", "--tp-overlap 1"},
    {"overlap-moe-expert-parallel-comm", "--ep-overlap 1"},
    {"moe-enable-deepep", "--ep-per-node 1"},
    {"decoder-first-pipeline-num-layers", "--layers-per-stage LIST"},
    {"decoder-last-pipeline-num-layers", "--layers-per-stage LIST"},
    {"use-flash-attn", "--attention flash2"},
    {"flash-attention", "--attention flash2"},
    {"flash-attn", "--attention flash2"},
    {"gradient-checkpointing", "--recompute full"},
    {"activation-checkpointing", "--recompute none, selective or full"},
    {"ac", "--recompute none, selective or full"},
    {"recompute-method", "--recompute-layers N for block; uniform is the default"},
    {"recompute-num-layers", "--recompute-layers of --recompute-method block"},
    {"moe-layer-recompute", "--recompute selective --recompute-modules moe"},
    {"recompute-activations", "--recompute selective"},
    {"train-samples", "--tokens: samples x seq"},
    {"train-iters", "--tokens: iterations x batch x seq"},
    {"gradient-accumulation-steps", "--batch: microbatch x dp x this"},
    {"num-layers-per-virtual-pipeline-stage", "--vpp: layers / (pp x this)"},
    {"lora", "nothing: adapters are not modelled, all weights are trained"},
    {"qlora", "nothing: adapters are not modelled, all weights are trained"},
    {"peft", "nothing: adapters are not modelled, all weights are trained"},
    {"cpu-offload", "--offload optimizer"},
    {"offload-optimizer", "--offload optimizer"},
    {"offload-param", "--offload parameters"},
    {"layers", OWN_MODEL},
    {"num-layers", OWN_MODEL},
    {"hidden", OWN_MODEL},
    {"hidden-size", OWN_MODEL},
    {"heads", OWN_MODEL},
    {"num-attention-heads", OWN_MODEL},
    {"ffn-hidden-size", OWN_MODEL},
    {"vocab", OWN_MODEL},
    {"vocab-size", OWN_MODEL},
    {"num-experts", OWN_MODEL},
    {"num-query-groups", OWN_MODEL},
    {"group-query-attention", OWN_MODEL},
    {"moe-router-topk", OWN_MODEL},
    {"moe-ffn-hidden-size", OWN_MODEL},
    {"swiglu", OWN_MODEL},
    {"untie-embeddings-and-output-weights", OWN_MODEL},
};

/* Commands that others have. */
static const struct {
    const char *name, *say;
} commands[] = {
    {"memory", "simulate, whose answer has the memory of each stage"},
    {"oom", "doctor --measured OOM"},
    {"estimate", "simulate"},
    {"predict", "simulate"},
    {"search", "plan"},
    {"tune", "plan"},
    {"train", "run"},
    {"config", "trace FILE"},
    {"diff", "compare"},
};

const char *dtp_command_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].say;
    return NULL;
}

const char *dtp_option_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].name, name) == 0)
            return elsewhere[i].say;
    return NULL;
}
