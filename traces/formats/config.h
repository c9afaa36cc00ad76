/* config.h: what a training configuration says of model and layout, whatever the framework: arguments of
 * Megatron (YAML, a command line, a launch script), recipes of NeMo, YAML of nanotron, LLM Foundry, axolotl and
 * LLaMA-Factory and accelerate, TOML of torchtitan, JSON of Hugging Face and DeepSpeed.
 *
 * YAML and JSON are read by their sections (settings.h); a section of another job, such as an evaluation, is passed
 * over. Lines of anything else are "key = value", "--key value"; keys of one meaning are one table. Variables of a
 * shell script ("TP=${TP:-8}", "--tensor-model-parallel-size $TP") stand for their values. What is not said is 0; of
 * what is said several times, as in a script of several commands, the last counts. Of a model file only what a
 * comparison needs is taken.
 */
#ifndef DTP_TRACES_FORMATS_CONFIG_H
#define DTP_TRACES_FORMATS_CONFIG_H

#include <stdio.h>

#include "traces/formats/script.h"
#include "traces/formats/settings.h"
#include "traces/formats/source.h"

/* X(field, framework's words for it, separated by a blank; underscores for dashes) */
#define DTP_CONFIG_FIELDS(X)                                                                       \
    X(layers, "num_layers num_hidden_layers n_layers")                                             \
    X(hidden, "hidden_size dim d_model n_embd")                                                    \
    X(heads, "num_attention_heads n_heads")                                                        \
    X(kv_heads, "num_query_groups num_key_value_heads n_kv_heads")                                 \
    X(ffn, "ffn_hidden_size intermediate_size")                                                    \
    X(experts, "num_experts num_local_experts n_routed_experts moe_num_experts")                   \
    X(vocab, "vocab_size padded_vocab_size")                                                       \
    X(seq, "seq_length sequence_length seq_len max_seq_len max_seq_length model_max_length "       \
           "sequence_len cutoff_len SEQ_LEN encoder_seq_length max_length packed_sequence_size "   \
           "max_target_length")                                                                    \
    X(tp, "tensor_model_parallel_size tensor_parallel_degree tensor_parallelism tp TP tp_size "    \
          "model_parallel_size")                                                                   \
    X(pp, "pipeline_model_parallel_size pipeline_parallel_degree pipeline_parallelism pp PP "      \
          "pp_size pipe_parallel_size")                                                            \
    X(dp, "dp data_parallel_size dp_size")                                                         \
    X(shards, "data_parallel_shard_degree data_parallel_degree")                                   \
    X(replicas, "data_parallel_replicate_degree")                                                  \
    X(cp, "context_parallel_size context_parallel_degree context_parallelism cp CP cp_size")       \
    X(ep, "expert_model_parallel_size expert_parallel_degree expert_parallelism "                  \
          "expert_parallel_size autoep_size EP ep_size")                                           \
    X(etp, "expert_tensor_parallel_size expert_tensor_parallel_degree ETP")                        \
    X(layers_a_chunk, "num_layers_per_virtual_pipeline_stage")                                     \
    X(vpp, "virtual_pipeline_model_parallel_size virtual_pipeline_parallelism "                    \
           "num_virtual_stages_per_pipeline_rank VPP")                                             \
    X(layers_a_stage, "pipeline_parallel_layers_per_stage")                                        \
    X(first_less, "pipeline_parallel_first_stage_less_layers")                                     \
    X(last_less, "pipeline_parallel_last_stage_less_layers")                                       \
    X(microbatch, "micro_batch_size train_micro_batch_size_per_gpu local_batch_size "              \
                  "per_device_train_batch_size device_train_microbatch_size "                      \
                  "per_device_batch_size ppo_micro_batch_size_per_gpu micro_train_batch_size MBS") \
    X(pipeline_microbatch, "pipeline_parallel_microbatch_size")                                    \
    X(accumulation, "batch_accumulation_per_replica gradient_accumulation_steps")                  \
    X(global_batch,                                                                                \
      "ppo_mini_batch_size global_batch_size train_batch_size global_train_batch_size GBS")        \
    X(zero_stage, "zero_stage")                                                                    \
    X(recompute_layers, "recompute_num_layers activations_checkpoint_num_layers")                  \
    X(recompute_every, "selective_ac_option")                                                      \
    X(nodes, "nnodes num_nodes actor_num_nodes num_machines nodes NNODES NUM_NODES")               \
    X(node_gpus, "nproc_per_node gpus_per_node num_gpus_per_node num_gpus ntasks_per_node "        \
                 "GPUS_PER_NODE NPROC_PER_NODE n_gpus_per_node actor_num_gpus_per_node devices")   \
    X(gpus, "world_size num_processes")

enum { DTP_CONFIG_TEXT = 96 };

struct dtp_run_config {
#define X(field, words) long field;
    DTP_CONFIG_FIELDS(X)
#undef X
    bool gated, untied, recompute_full, recompute_selective, recompute_block, distributed_optimizer,
        sequence_parallel, embedding_counts, loss_counts, fp8, fp16, fp4, ep_overlap, ep_per_node;
    bool first_whole, last_whole; /* first_less, last_less are said to be 0 */
    bool scales_now;              /* FP8 with scales of this step, not delayed ones */
    bool offloads_optimizer, offloads_parameters, offloads_to_nvme;
    bool async_tp, eager;        /* torchtitan's, which are frameworks of their own to dtplan */
    bool generates;              /* an RL job, of which this is the training part */
    bool adapters;               /* LoRA and its like are trained, not the model */
    int modules;                 /* modules that are recomputed, bits of enum dtp_module */
    const char *schedule;        /* the pipeline's, as its stack calls it; NULL: not said */
    const char *layout;          /* layers of each virtual stage, "1,2,2"; NULL: not said */
    const char *zero_file;       /* DeepSpeed's settings, which give the stage; NULL: not said */
    const char *framework;       /* the one that has settings of these names; NULL: not told */
    char model[DTP_CONFIG_TEXT]; /* its name; "": not said */
    char tokenizer[DTP_CONFIG_TEXT]; /* often has the name of the model; "": not said */
    const struct dtp_script *script; /* the run is a launch of it; or NULL */
    int launch;                      /* number of that launch, from 0 */
    struct dtp_settings settings;    /* all of them, with what became of each */
    int found;                       /* fields that were set */
    uint64_t changed; /* bits of fields, in their order, that were set again to another value */
};

/* DTP_EINPUT where no line says anything of a model or a layout. */
enum dtp_status dtp_config_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_run_config *out, struct dtp_err *err);
/* Does the same with the launch of that number, from 1, in a script; it takes the first if launch is 0 or there are
 * fewer. */
enum dtp_status dtp_config_read_launch(struct dtp_arena *a, struct dtp_source *source, int launch,
                                       struct dtp_run_config *out, struct dtp_err *err);
/* Sequences of a step; 0: not said and not implied. */
long dtp_config_batch(const struct dtp_run_config *c);
/* GPUs that it runs on, as many at least as its layout takes; 0: not said and not implied. */
long dtp_config_gpus(const struct dtp_run_config *c);
/* The model, as a file that `--model` takes; false where the configuration does not say enough. */
bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c);

#endif
