/* config.h: what a training configuration says of model and layout, whatever the framework: arguments of
 * Megatron (YAML or a command line), YAML of nanotron, TOML of torchtitan, JSON of Hugging Face.
 *
 * Lines are "key: value", "key = value", "--key value"; keys of one meaning are one table. What is not
 * said is 0. Of a model file only what a comparison needs is taken.
 */
#ifndef DTP_TRACES_FORMATS_CONFIG_H
#define DTP_TRACES_FORMATS_CONFIG_H

#include <stdio.h>

#include "traces/formats/source.h"

/* X(field, framework's words for it, separated by a blank; underscores for dashes) */
#define DTP_CONFIG_FIELDS(X)                                                                       \
    X(layers, "num_layers num_hidden_layers n_layers")                                             \
    X(hidden, "hidden_size dim")                                                                   \
    X(heads, "num_attention_heads n_heads")                                                        \
    X(kv_heads, "num_query_groups num_key_value_heads n_kv_heads")                                 \
    X(ffn, "ffn_hidden_size intermediate_size")                                                    \
    X(vocab, "vocab_size padded_vocab_size")                                                       \
    X(seq, "seq_length sequence_length seq_len")                                                   \
    X(tp, "tensor_model_parallel_size tensor_parallel_degree tp")                                  \
    X(pp, "pipeline_model_parallel_size pipeline_parallel_degree pp")                              \
    X(dp, "dp data_parallel_size")                                                                 \
    X(cp, "context_parallel_size context_parallel_degree cp")                                      \
    X(ep, "expert_model_parallel_size expert_parallel_degree")                                     \
    X(etp, "expert_tensor_parallel_size expert_tensor_parallel_degree")                            \
    X(layers_a_chunk, "num_layers_per_virtual_pipeline_stage")                                     \
    X(microbatch, "micro_batch_size train_micro_batch_size_per_gpu local_batch_size")              \
    X(accumulation, "batch_accumulation_per_replica gradient_accumulation_steps")                  \
    X(global_batch, "global_batch_size train_batch_size")

struct dtp_run_config {
#define X(field, words) long field;
    DTP_CONFIG_FIELDS(X)
#undef X
    bool gated, untied, recompute_full, distributed_optimizer, sequence_parallel;
    int found; /* fields that were set */
};

/* DTP_EINPUT where no line says anything of a model or a layout. */
enum dtp_status dtp_config_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_run_config *out, struct dtp_err *err);
/* Sequences of a step; 0: not said and not implied. */
long dtp_config_batch(const struct dtp_run_config *c);
/* The model, as a file that `--model` takes; false where the configuration does not say enough. */
bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c);

#endif
