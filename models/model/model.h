/* model.h: describes the architecture of a network and counts its parameters and FLOPs.
 *
 * A model is read from models/library/NAME.json (strict; each with `source`) or a Hugging Face config.json. One struct
 * covers decoders (GPT, Llama, BLOOM, MPT), encoders (BERT, ViT), mixtures of experts (Mixtral,
 * DeepSeek) and a list of convolutions (ResNet): what an architecture lacks is 0 or false.
 *
 * Parameters (h hidden, f ffn, a heads, g kv_heads, d head_dim, V vocab):
 *   attention  h (a d) + 2 h (g d) + (a d) h      (+ biases; MLA has its own projections)
 *   MLP        2 h f, gated 3 h f                 (+ biases)
 *   norms, embeddings V h (+ positions), head V h unless tied
 * FLOPs of a forward pass count 2 per multiply-add of the matrix products, attention in full (not halved
 * by the causal mask; a layer with a window counts the keys in it) and the LM head: 24 B s h^2 (1 + s / 6h) per GPT
 * layer and 2 B s h V for the head (Narayanan 2021, section 5.1: x 3 for forward and backward, x 4 with full
 * recomputation: 96 B s l h^2 (1 + s/6h + V/16lh)).
 */
#ifndef DTP_MODELS_MODEL_H
#define DTP_MODELS_MODEL_H

#include "sim/base/json.h"

/* Longest training sequence that is assumed when a Hugging Face file only says how many positions
 * the model can take. */
#define DTP_MODEL_SEQ_DEFAULT_MAX 8192

enum dtp_activation { DTP_ACT_GELU, DTP_ACT_RELU, DTP_ACT_SILU, DTP_ACT_SQUARED_RELU };
enum dtp_norm { DTP_NORM_LAYER, DTP_NORM_RMS };
enum dtp_position { DTP_POS_LEARNED, DTP_POS_ROPE, DTP_POS_ALIBI, DTP_POS_NONE };
extern const char *const dtp_activation_names[], *const dtp_norm_names[],
                                                     *const dtp_position_names[];

/* The kinds of layers and other parts of a stage; parts of one kind run the same operations. */
enum dtp_layer_kind {
    DTP_LAYER_DENSE, /* also a layer with a window, if all layers have it */
    DTP_LAYER_MOE,
    DTP_LAYER_DENSE_WINDOW, /* has a window, while other layers of the model have none */
    DTP_LAYER_MOE_WINDOW,
    DTP_LAYER_EMBEDDING,
    DTP_LAYER_HEAD,
    DTP_LAYER_MTP, /* a depth of multi-token prediction without its transformer layer */
    DTP_LAYER_CONV,
    DTP_NLAYER_KINDS
};
static inline bool dtp_layer_is_block(enum dtp_layer_kind kind) {
    return kind <= DTP_LAYER_MOE_WINDOW;
}
static inline bool dtp_layer_has_experts(enum dtp_layer_kind kind) {
    return kind == DTP_LAYER_MOE || kind == DTP_LAYER_MOE_WINDOW;
}

struct dtp_moe {
    int experts; /* routed experts per MoE layer; 0: dense model */
    int top_k;
    int ffn;                /* hidden size of one expert */
    int shared_experts;     /* experts that every token visits, same ffn */
    bool shared_gate;       /* a sigmoid gate h x 1 on the shared experts (Qwen) */
    bool router_bias;       /* a bias per expert (DeepSeek-V3) */
    int dense_layers_first; /* first layers that keep the dense MLP */
    int layer_step;         /* every layer_step-th layer is MoE; 1: all */
    double capacity_factor; /* 0: dropless */
};

/* Multi-head latent attention (DeepSeek-V2 2024, section 2.1); kv_lora_rank 0: none. */
struct dtp_mla {
    int q_lora_rank, kv_lora_rank, nope_head_dim, rope_head_dim, v_head_dim;
};

/* One convolution as an implicit GEMM: m = batch out^2, n = cout / groups, k = cin kernel^2 /
 * groups. */
struct dtp_conv {
    int cin, cout, kernel, stride, in_size, out_size, groups, repeat;
    bool batch_norm; /* followed by a batch norm (2 cout parameters); without, it has a bias */
};

struct dtp_model {
    const char *name, *title, *source;
    int layers, hidden, heads, kv_heads, head_dim, ffn;
    bool gated_ffn;
    enum dtp_activation activation;
    enum dtp_norm norm;
    enum dtp_position position;
    bool attention_bias, qkv_bias, mlp_bias; /* attention_bias: all four projections */
    bool norm_bias;
    bool qk_norm;    /* a norm of head_dim on queries and one on keys (Qwen3) */
    int layer_norms; /* norms of width h in a layer; 0: 2, or 1 when parallel_block */
    bool tied_embeddings, embedding_norm, final_norm, causal;
    bool parallel_block;    /* attention and MLP from one norm (GPT-J, Falcon) */
    int vocab;              /* as published; frameworks pad it */
    int seq, max_positions; /* default training length; rows of a learned position table */
    int token_types;        /* BERT: 2 */
    bool head_bias;         /* LM head with a bias per token of the vocabulary (GPT-J) */
    bool mlm_head;          /* BERT: dense h x h and norm before the decoder, which has a bias */
    bool nsp_head;          /* BERT: pooler h x h and next-sentence classifier h x 2 */
    double dropout,
        attention_dropout; /* hidden states; probabilities of attention. 0: no such kernels */
    double norm_epsilon, rope_theta; /* added to a variance; base of RoPE. 0: 1e-5 and 10000 */
    int sliding_window;      /* keys that a query sees, itself included; 0: full attention */
    int full_attention_step; /* every n-th layer sees all keys; 0: none does */
    bool chunked_attention; /* a query sees the keys of its own chunk of sliding_window (Llama 4) */
    int mtp_layers;         /* depths of multi-token prediction (DeepSeek-V3 2024, section 2.2) */
    struct dtp_moe moe;
    struct dtp_mla mla;
    int patch, image, classes,
        channels; /* ViT: (image / patch)^2 + 1 tokens; classes > 0: classifier, no LM head */
    /* [nconvs] convolutional networks such as ResNet; `layers` is then only for display */
    struct dtp_conv *conv;
    int nconvs;
    int global_batch;        /* default, in sequences (images) */
    double train_tokens;     /* published token budget, 0: unknown */
    double published_params; /* what the count is checked against, 0: unknown */
    const char *user_file;   /* the file that it was read from, NULL: the library's or a document */
};

/* These tables describe a model file and a member of its "convs", for the reader and for the manual. */
extern const struct dtp_field dtp_model_fields[], dtp_conv_fields[];

struct dtp_param_counts {
    uint64_t embedding; /* tokens, positions, types, embedding norm, patch projection; for a
                           list of convolutions: all of them */
    uint64_t dense_layer, moe_layer; /* one layer of each kind */
    uint64_t moe_layer_experts;      /* part of moe_layer that ep divides (routed experts) */
    uint64_t moe_layer_active;       /* part of moe_layer that one token uses */
    uint64_t final_norm;
    uint64_t head; /* untied LM head or classifier, MLM head; 0 when tied and bare */
    uint64_t mtp;  /* one depth of multi-token prediction without its layer: norms and 2h x h */
    int dense_layers, moe_layers;
    uint64_t total, active; /* the main model, without multi-token prediction */
};

/* name: an entry of models/library/, an alias, or a path (own JSON, Hugging Face config.json, or the folder
 * that holds it). Names ignore case, '-', '_', an owner, and a name's last words on further training, its date or
 * the format of the weights: meta-llama/Meta-Llama-3-70B-Instruct and Qwen/Qwen3-4B-Thinking-2507-FP8 are found.
 */
enum dtp_status dtp_model_load(struct dtp_arena *a, const char *name, struct dtp_model *out,
                               struct dtp_err *err);
/* Loads one of many names: the aliases of all files are read when the first name comes that is no file's name. *names
 * is NULL before the first call and lives in `a`. */
struct dtp_model_names;
enum dtp_status dtp_model_load_by(struct dtp_arena *a, struct dtp_model_names **names,
                                  const char *name, struct dtp_model *out, struct dtp_err *err);
/* Reads dtplan's form or Hugging Face's (recognised by "model_type" or "architectures"). The name of a document
 * without one is "". */
enum dtp_status dtp_model_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_model *out,
                               struct dtp_err *err);
/* Fills *out with the flags that models of one family share ("gpt", "llama", "bert", ...); sizes are 0. */
enum dtp_status dtp_model_family(const char *family, struct dtp_model *out, struct dtp_err *err);
/* Fills what a short description implies (kv_heads = heads, ffn = 4 h, head_dim = h / a, ...) and
 * checks the rest. For rows of measured runs, built in code. */
enum dtp_status dtp_model_finish(struct dtp_model *m, struct dtp_err *err);
void dtp_model_write(struct dtp_json_out *w, const struct dtp_model *m);
enum dtp_status dtp_model_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                               struct dtp_err *err);

bool dtp_model_layer_is_moe(const struct dtp_model *m, int layer);
/* Layers beyond the last belong to the depths of multi-token prediction and have the kind of the last. */
enum dtp_layer_kind dtp_model_layer_kind(const struct dtp_model *m, int layer);
/* Adds the layers from .. to - 1 to the counts of their kinds. */
void dtp_model_count_kinds(const struct dtp_model *m, int from, int to, int n[DTP_NLAYER_KINDS]);
/* Counts the parameters. vocab: as published, or as padded by the framework. */
void dtp_model_params(const struct dtp_model *m, int vocab, struct dtp_param_counts *out);
/* Returns counted / published_params - 1 if that exceeds 2 % and the rounding of the published digits (1.7e9 may be
 * 1.65e9), else 0. A file with a gap does not describe the model that it names. */
double dtp_model_published_gap(const struct dtp_model *m);
/* Returns the forward FLOPs of one sequence of seq tokens (of one image for convolutions). */
double dtp_model_forward_flops(const struct dtp_model *m, int seq);
/* Returns the same without the pairs of queries and keys that a causal mask excludes. */
double dtp_model_causal_flops(const struct dtp_model *m, int seq);

#endif
