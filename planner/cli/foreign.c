/* Options of other tools that have no counterpart of the same meaning: what to say instead. Options that
 * differ by name alone are aliases (common.c). */
#include <string.h>

#include "planner/cli/options.h"

#define OWN_MODEL "--model FILE: a model of your own, a few lines of JSON (models/README.md)"

static const struct {
    const char *name, *say;
} elsewhere[] = {
    {"nodes", "--gpus with the GPUs of all nodes"},
    {"num-nodes", "--gpus with the GPUs of all nodes"},
    {"nnodes", "--gpus with the GPUs of all nodes"},
    {"nproc-per-node", "--gpus with the GPUs of all nodes"},
    {"bf16", "--dtype bf16"},
    {"fp16", "--dtype fp16"},
    {"fp8", "--dtype fp8"},
    {"fp8-format", "--dtype fp8"},
    {"fp32", "--dtype fp32"},
    {"tf32", "--dtype tf32"},
    {"fsdp", "--framework torch-fsdp2 --zero-stage 3"},
    {"use-distributed-optimizer", "--zero-stage 1"},
    {"use-flash-attn", "--attention flash2"},
    {"flash-attention", "--attention flash2"},
    {"gradient-checkpointing", "--recompute full"},
    {"activation-checkpointing", "--recompute full"},
    {"recompute-activations", "--recompute selective"},
    {"gradient-accumulation-steps", "--batch: microbatch x dp x this"},
    {"num-layers-per-virtual-pipeline-stage", "--vpp: layers / (pp x this)"},
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
};

const char *dtp_option_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].name, name) == 0)
            return elsewhere[i].say;
    return NULL;
}
