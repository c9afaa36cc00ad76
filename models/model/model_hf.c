#include "models/model/model_internal.h"

#include <limits.h>
#include <string.h>

#include "sim/base/text.h"

/* This file reads a config.json of Hugging Face. Model types name the same thing differently (n_embd, hidden_size,
 * d_model), so one table lists every name of each number; what a type means beyond its numbers is
 * its row: the family that sets the flags, and a function for the keys that only it has. Keys that do not touch
 * sizes are passed over; a null counts as absent.
 *
 * To add a type: a row in the table of types, its function if it has keys of its own, and a config in
 * tests/unit/test_model_hf.c with the exact count of a checkpoint. */

/* ---- values: each reader leaves *out when the key is absent or null, and fails when the type is wrong ---- */

static const struct dtp_json *hf_get(const struct dtp_json *j, const char *key) {
    const struct dtp_json *v = dtp_json_get(j, key);
    return v && dtp_json_type(v) != DTP_JSON_NULL ? v : NULL;
}

static enum dtp_status hf_int(const struct dtp_json *j, const char *key, int *out,
                              struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v)
        return DTP_OK;
    double d = dtp_json_type(v) == DTP_JSON_NUMBER ? dtp_json_number(v) : -1;
    if (!(d >= 0 && d <= 1e8) || d != (double)(int)d)
        return dtp_json_expected(v, "an integer from 0 to 1e8", err);
    *out = (int)d;
    return DTP_OK;
}

static enum dtp_status hf_bool(const struct dtp_json *j, const char *key, bool *out,
                               struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_BOOL)
        return dtp_json_expected(v, "true or false", err);
    *out = dtp_json_bool(v);
    return DTP_OK;
}

static enum dtp_status hf_string(const struct dtp_json *j, const char *key, const char **out,
                                 struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_STRING)
        return dtp_json_expected(v, "a string", err);
    *out = dtp_json_string(v);
    return DTP_OK;
}

static enum dtp_status get_dropout(const struct dtp_json *j, const char *key, double *out,
                                   struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_NUMBER || dtp_json_number(v) < 0 || dtp_json_number(v) > 1)
        return dtp_json_expected(v, "a probability from 0 to 1", err);
    *out = dtp_json_number(v);
    return DTP_OK;
}

#define LARGEST_BASE 1e12

static enum dtp_status get_above_0(const struct dtp_json *j, const char *key, double most,
                                   double *out, struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_NUMBER || !(dtp_json_number(v) > 0) ||
        dtp_json_number(v) > most)
        return dtp_json_expected(v, "a number above 0", err);
    *out = dtp_json_number(v);
    return DTP_OK;
}

/* Reads what changes values and no shape. Version 5 of transformers has the base of RoPE in an object. */
static enum dtp_status read_epsilon_and_base(const struct dtp_json *j, struct dtp_model *m,
                                             struct dtp_err *err) {
    static const char *const epsilons[] = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"};
    const struct dtp_json *rope = hf_get(j, "rope_parameters");
    for (size_t i = 0; i < sizeof epsilons / sizeof epsilons[0]; i++)
        DTP_TRY(get_above_0(j, epsilons[i], 1, &m->norm_epsilon, err));
    if (m->position != DTP_POS_ROPE)
        return DTP_OK;
    if (rope && dtp_json_type(rope) == DTP_JSON_OBJECT)
        DTP_TRY(get_above_0(rope, "rope_theta", LARGEST_BASE, &m->rope_theta, err));
    return get_above_0(j, "rope_theta", LARGEST_BASE, &m->rope_theta, err);
}

/* ---- numbers that all types have ---- */

/* The value is that of the first of the names that stands in the document. */
struct hf_number {
    size_t offset;
    bool required;
    const char *names[7];
};

#define TO(member) offsetof(struct dtp_model, member)
static const struct hf_number numbers[] = {
    {TO(layers), true, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
    {TO(hidden), true, {"hidden_size", "n_embd", "d_model", "n_embed"}},
    {TO(heads), true, {"num_attention_heads", "n_head", "n_heads", "num_heads"}},
    {TO(kv_heads), false, {"num_key_value_heads", "num_kv_heads", "multi_query_group_num"}},
    {TO(head_dim), false, {"head_dim"}},
    {TO(ffn), false, {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}},
    {TO(vocab), false, {"vocab_size", "padded_vocab_size"}},
    {TO(max_positions),
     false,
     {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"}},
    {TO(token_types), false, {"type_vocab_size"}},
    {TO(mtp_layers), false, {"num_nextn_predict_layers", "mtp_num_hidden_layers"}},
};

static enum dtp_status read_numbers(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct hf_number *n = &numbers[i];
        int *to = (int *)(void *)((char *)m + n->offset);
        const char *const *name = n->names;
        while (*name && !hf_get(j, *name))
            name++;
        if (!*name)
            continue;
        DTP_TRY(hf_int(j, *name, to, err));
        if (n->required && *to < 1)
            return dtp_json_expected(hf_get(j, *name), "an integer of 1 or more", err);
    }
    return DTP_OK;
}

/* This check runs after the function of the type: some configs leave out what their class has by default. */
static enum dtp_status check_numbers(const struct dtp_json *j, const struct dtp_model *m,
                                     struct dtp_err *err) {
    char place[512];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct hf_number *n = &numbers[i];
        if (n->required && *(const int *)(const void *)((const char *)m + n->offset) < 1)
            return dtp_fail(err, DTP_EINPUT, "%s: missing key \"%s\" (or \"%s\")",
                            dtp_json_place(j, place, sizeof place), n->names[0], n->names[1]);
    }
    return DTP_OK;
}

static const struct {
    const char *name;
    enum dtp_activation activation;
} activations[] = {
    {"gelu", DTP_ACT_GELU},          {"gelu_new", DTP_ACT_GELU},
    {"gelu_fast", DTP_ACT_GELU},     {"gelu_pytorch_tanh", DTP_ACT_GELU},
    {"quick_gelu", DTP_ACT_GELU},    {"gelu_10", DTP_ACT_GELU},
    {"gelu_python", DTP_ACT_GELU},   {"relu", DTP_ACT_RELU},
    {"relu2", DTP_ACT_SQUARED_RELU}, {"silu", DTP_ACT_SILU},
    {"swish", DTP_ACT_SILU},
};
#define NACTIVATIONS (sizeof activations / sizeof activations[0])

static enum dtp_status read_activation(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function",
                                       "activation"};
    const struct dtp_json *v = NULL;
    const char *names[NACTIVATIONS], *text = NULL;
    char place[512];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !v; i++) {
        v = hf_get(j, keys[i]);
        DTP_TRY(hf_string(j, keys[i], &text, err));
    }
    for (size_t i = 0; i < NACTIVATIONS; i++) {
        names[i] = activations[i].name;
        if (text && strcmp(text, names[i]) == 0) {
            m->activation = activations[i].activation;
            return DTP_OK;
        }
    }
    if (!text)
        return DTP_OK;
    enum dtp_status status =
        dtp_unknown_name(err, DTP_EUNSUPPORTED, "activation", text, names, NACTIVATIONS, NULL);
    dtp_err_prefix(err, dtp_json_place(v, place, sizeof place));
    return status;
}

static enum dtp_status read_common(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    static const char *const dropouts[] = {"resid_pdrop",    "hidden_dropout_prob",
                                           "hidden_dropout", "residual_dropout",
                                           "resid_dropout",  "dropout"};
    static const char *const of_attention[] = {"attn_pdrop", "attention_probs_dropout_prob",
                                               "attention_dropout"};
    DTP_TRY(read_numbers(j, m, err));
    DTP_TRY(read_activation(j, m, err));
    DTP_TRY(read_epsilon_and_base(j, m, err));
    for (size_t i = 0; i < sizeof dropouts / sizeof dropouts[0]; i++)
        DTP_TRY(get_dropout(j, dropouts[i], &m->dropout, err));
    for (size_t i = 0; i < sizeof of_attention / sizeof of_attention[0]; i++)
        DTP_TRY(get_dropout(j, of_attention[i], &m->attention_dropout, err));
    DTP_TRY(hf_bool(j, "attention_bias", &m->attention_bias, err));
    DTP_TRY(hf_bool(j, "mlp_bias", &m->mlp_bias, err));
    return hf_bool(j, "tie_word_embeddings", &m->tied_embeddings, err);
}

/* ---- which layers see all keys, and which a window of them ---- */

static enum dtp_status read_window(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    return hf_int(j, "sliding_window", &m->sliding_window, err);
}

/* Qwen states a window even if it is switched off; if on, it applies to layers from max_window_layers on. */
static enum dtp_status read_qwen_window(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    bool use = false;
    int full = 0;
    DTP_TRY(hf_bool(j, "use_sliding_window", &use, err));
    DTP_TRY(hf_int(j, "max_window_layers", &full, err));
    if (!use || (full > 0 && full >= m->layers))
        return DTP_OK;
    if (full > 0)
        return dtp_json_expected(hf_get(j, "max_window_layers"), "0, or all layers", err);
    return read_window(j, m, err);
}

/* The value is 6, or "LLLG" for local layers and then one that is global. */
static enum dtp_status read_pattern(const struct dtp_json *j, const char *key, int *step,
                                    struct dtp_err *err) {
    const struct dtp_json *v = hf_get(j, key);
    if (!v || dtp_json_type(v) != DTP_JSON_STRING)
        return hf_int(j, key, step, err);
    const char *text = dtp_json_string(v);
    size_t local = strspn(text, "L");
    if (strcmp(text + local, "G") != 0)
        return dtp_json_expected(v, "local layers and a global one, such as \"LLLG\"", err);
    *step = (int)local + 1;
    return DTP_OK;
}

static enum dtp_status alternate(const struct dtp_json *j, struct dtp_model *m, int window,
                                 int step, struct dtp_err *err) {
    m->sliding_window = dtp_json_get(j, "sliding_window") ? 0 : window; /* null: none */
    DTP_TRY(read_window(j, m, err));
    DTP_TRY(read_pattern(j, "sliding_window_pattern", &step, err));
    DTP_TRY(read_pattern(j, "_sliding_window_pattern", &step, err));
    m->full_attention_step = m->sliding_window > 0 ? step : 0;
    return DTP_OK;
}

/* A config may leave out what equals its class's default: the window and the step that follow. */
static enum dtp_status read_every_second(const struct dtp_json *j, struct dtp_model *m,
                                         struct dtp_err *err) {
    return alternate(j, m, 4096, 2, err);
}

static enum dtp_status read_every_fourth(const struct dtp_json *j, struct dtp_model *m,
                                         struct dtp_err *err) {
    return alternate(j, m, 4096, 4, err);
}

static enum dtp_status read_every_sixth(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    return alternate(j, m, 4096, 6, err);
}

/* Llama 4: layers with rotary positions see their own chunk, every fourth has no positions and sees all. */
static enum dtp_status read_chunks(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    const char *key = "attention_chunk_size";
    m->sliding_window = dtp_json_get(j, key) ? 0 : 8192;
    DTP_TRY(hf_int(j, key, &m->sliding_window, err));
    m->chunked_attention = m->sliding_window > 0;
    m->full_attention_step = m->chunked_attention ? 4 : 0;
    return m->chunked_attention ? hf_int(j, "no_rope_layer_interval", &m->full_attention_step, err)
                                : DTP_OK;
}

/* A list of all layers overrides what the type says: every n-th layer, all layers or none see all keys. */
static enum dtp_status read_layer_types(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    const struct dtp_json *types = hf_get(j, "layer_types");
    int step = 0;
    if (!types || m->sliding_window == 0)
        return DTP_OK;
    if (dtp_json_type(types) != DTP_JSON_ARRAY || (int)dtp_json_size(types) != m->layers)
        return dtp_json_expected(types, "an array of as many types as layers", err);
    for (int l = 0; l < m->layers; l++) {
        const struct dtp_json *at = dtp_json_at(types, (size_t)l);
        bool text = dtp_json_type(at) == DTP_JSON_STRING;
        bool full = text && strcmp(dtp_json_string(at), "full_attention") == 0;
        if (!full && (!text || (strcmp(dtp_json_string(at), "sliding_attention") != 0 &&
                                strcmp(dtp_json_string(at), "chunked_attention") != 0)))
            return dtp_json_expected(
                at, "\"full_attention\", \"sliding_attention\" or \"chunked_attention\"", err);
        if (full && step == 0)
            step = l + 1;
        if (full != (step > 0 && (l + 1) % step == 0))
            return dtp_json_expected(at, "full attention in every so many-th layer", err);
    }
    m->full_attention_step = step;
    if (step == 1)
        m->sliding_window = m->full_attention_step = 0;
    m->chunked_attention &= m->sliding_window > 0;
    return DTP_OK;
}

/* ---- what the types with experts mean beyond their numbers ---- */

/* These types call the bias of q, k and v attention_bias. */
static enum dtp_status read_qkv_bias(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    (void)j, (void)err;
    m->qkv_bias = m->attention_bias;
    m->attention_bias = false;
    return DTP_OK;
}

static enum dtp_status read_mixtral(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->moe.experts = 8;
    m->moe.top_k = 2;
    m->moe.ffn = m->ffn;
    DTP_TRY(hf_int(j, "num_local_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(j, "num_experts_per_tok", &m->moe.top_k, err));
    return read_window(j, m, err);
}

static enum dtp_status read_qwen_moe(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    int shared = 0;
    const struct dtp_json *dense = hf_get(j, "mlp_only_layers");
    DTP_TRY(hf_int(j, "num_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(j, "num_experts_per_tok", &m->moe.top_k, err));
    DTP_TRY(hf_int(j, "moe_intermediate_size", &m->moe.ffn, err));
    DTP_TRY(hf_int(j, "decoder_sparse_step", &m->moe.layer_step, err));
    DTP_TRY(hf_int(j, "shared_expert_intermediate_size", &shared, err));
    if (dense && (dtp_json_type(dense) != DTP_JSON_ARRAY || dtp_json_size(dense) > 0))
        return dtp_json_expected(dense, "an empty array", err);
    if (shared > 0 && (m->moe.ffn < 1 || shared % m->moe.ffn != 0))
        return dtp_json_expected(hf_get(j, "shared_expert_intermediate_size"),
                                 "a multiple of moe_intermediate_size", err);
    m->moe.shared_experts = shared > 0 ? shared / m->moe.ffn : 0;
    return read_qwen_window(j, m, err);
}

static enum dtp_status read_qwen2_moe(const struct dtp_json *j, struct dtp_model *m,
                                      struct dtp_err *err) {
    m->qkv_bias = true;
    DTP_TRY(read_qwen_moe(j, m, err));
    m->moe.shared_gate = m->moe.shared_experts > 0;
    return DTP_OK;
}

static enum dtp_status read_qwen3_moe(const struct dtp_json *j, struct dtp_model *m,
                                      struct dtp_err *err) {
    m->qk_norm = true;
    return read_qwen_moe(j, m, err);
}

static enum dtp_status read_deepseek(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    const struct {
        const char *key;
        int *to;
    } keys[] = {
        {"n_routed_experts", &m->moe.experts},
        {"n_shared_experts", &m->moe.shared_experts},
        {"num_experts_per_tok", &m->moe.top_k},
        {"moe_intermediate_size", &m->moe.ffn},
        {"first_k_dense_replace", &m->moe.dense_layers_first},
        {"moe_layer_freq", &m->moe.layer_step},
        {"q_lora_rank", &m->mla.q_lora_rank},
        {"kv_lora_rank", &m->mla.kv_lora_rank},
        {"qk_nope_head_dim", &m->mla.nope_head_dim},
        {"qk_rope_head_dim", &m->mla.rope_head_dim},
        {"v_head_dim", &m->mla.v_head_dim},
    };
    const char *topk_method = "";
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        DTP_TRY(hf_int(j, keys[i].key, keys[i].to, err));
    DTP_TRY(hf_string(j, "topk_method", &topk_method, err));
    m->moe.router_bias = strcmp(topk_method, "noaux_tc") == 0; /* DeepSeek-V3, section 2.1.2 */
    if (m->mla.kv_lora_rank > 0)
        m->head_dim = m->mla.nope_head_dim + m->mla.rope_head_dim;
    return DTP_OK;
}

/* DeepSeek-V3's configs may leave the method out; the type implies it. */
static enum dtp_status read_deepseek_v3(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    DTP_TRY(read_deepseek(j, m, err));
    m->moe.router_bias = true;
    return DTP_OK;
}

/* All layers have experts, each as wide as intermediate_size; the two counts have several names. */
static enum dtp_status read_experts(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->moe.ffn = m->ffn;
    DTP_TRY(hf_int(j, "num_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(j, "num_local_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(j, "experts_per_token", &m->moe.top_k, err));
    return hf_int(j, "num_experts_per_tok", &m->moe.top_k, err);
}

static enum dtp_status read_olmoe(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qk_norm = true;
    return read_experts(j, m, err);
}

/* All matrices have biases, and so has the router. */
static enum dtp_status read_gpt_oss(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->attention_bias = m->mlp_bias = m->moe.router_bias = true;
    DTP_TRY(read_every_second(j, m, err));
    return read_experts(j, m, err);
}

static enum dtp_status read_phimoe(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->norm = DTP_NORM_LAYER;
    m->norm_bias = true;
    DTP_TRY(hf_bool(j, "lm_head_bias", &m->head_bias, err));
    return read_experts(j, m, err);
}

/* Each layer of experts has a shared one; layers without experts have their own width. */
static enum dtp_status read_llama4(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->moe.shared_experts = 1;
    DTP_TRY(read_experts(j, m, err));
    DTP_TRY(hf_int(j, "interleave_moe_layer_step", &m->moe.layer_step, err));
    DTP_TRY(read_chunks(j, m, err));
    return hf_int(j, "intermediate_size_mlp", &m->ffn, err);
}

static enum dtp_status read_dbrx(const struct dtp_json *j, struct dtp_model *m,
                                 struct dtp_err *err) {
    const struct dtp_json *attention = hf_get(j, "attn_config"), *ffn = hf_get(j, "ffn_config");
    if (!attention || dtp_json_type(attention) != DTP_JSON_OBJECT)
        return dtp_json_expected(attention ? attention : j, "an object \"attn_config\"", err);
    if (!ffn || dtp_json_type(ffn) != DTP_JSON_OBJECT)
        return dtp_json_expected(ffn ? ffn : j, "an object \"ffn_config\"", err);
    m->norm = DTP_NORM_LAYER;
    DTP_TRY(hf_int(attention, "kv_n_heads", &m->kv_heads, err));
    DTP_TRY(hf_int(ffn, "ffn_hidden_size", &m->ffn, err));
    DTP_TRY(hf_int(ffn, "moe_num_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(ffn, "moe_top_k", &m->moe.top_k, err));
    m->moe.ffn = m->ffn;
    return DTP_OK;
}

static enum dtp_status read_glm4_moe(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    DTP_TRY(hf_bool(j, "use_qk_norm", &m->qk_norm, err));
    DTP_TRY(read_deepseek_v3(j, m, err));
    return read_qkv_bias(j, m, err);
}

/* MiniMax-M2 has norms of q and k, and a bias of the router (its scores are sigmoids). */
static enum dtp_status read_minimax_m2(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    m->moe.router_bias = true;
    DTP_TRY(hf_bool(j, "use_routing_bias", &m->moe.router_bias, err));
    DTP_TRY(hf_bool(j, "use_qk_norm", &m->qk_norm, err));
    return read_experts(j, m, err);
}

/* ERNIE 4.5 has names of its own, and corrects the router's scores in each layer of experts. */
static enum dtp_status read_ernie(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->moe.router_bias = true;
    DTP_TRY(hf_int(j, "moe_num_experts", &m->moe.experts, err));
    DTP_TRY(hf_int(j, "moe_k", &m->moe.top_k, err));
    DTP_TRY(hf_int(j, "moe_intermediate_size", &m->moe.ffn, err));
    DTP_TRY(hf_int(j, "moe_num_shared_experts", &m->moe.shared_experts, err));
    DTP_TRY(hf_int(j, "moe_layer_start_index", &m->moe.dense_layers_first, err));
    return hf_int(j, "moe_layer_interval", &m->moe.layer_step, err);
}

/* ---- what the other types mean beyond their numbers ---- */

static enum dtp_status read_gpt_bigcode(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    bool multi_query = true;
    DTP_TRY(hf_bool(j, "multi_query", &multi_query, err));
    m->kv_heads = multi_query ? 1 : m->heads;
    return DTP_OK;
}

static enum dtp_status read_gpt_neox(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    return hf_bool(j, "use_parallel_residual", &m->parallel_block, err);
}

static enum dtp_status read_phi(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    (void)j, (void)err;
    m->attention_bias = true; /* GPT-J with biases everywhere, one norm */
    return DTP_OK;
}

/* OPT's position table has two more rows than positions; its 350M model has another architecture. */
static enum dtp_status read_opt(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    int projection = m->hidden;
    bool norm_before = true;
    DTP_TRY(hf_int(j, "word_embed_proj_dim", &projection, err));
    DTP_TRY(hf_bool(j, "do_layer_norm_before", &norm_before, err));
    if (projection != m->hidden)
        return dtp_json_expected(hf_get(j, "word_embed_proj_dim"), "the value of hidden_size", err);
    if (!norm_before)
        return dtp_json_expected(hf_get(j, "do_layer_norm_before"), "true", err);
    m->seq = m->max_positions;
    m->max_positions += 2;
    return DTP_OK;
}

static enum dtp_status read_qwen2(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qkv_bias = true;
    return read_qwen_window(j, m, err);
}

static enum dtp_status read_qwen3(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qk_norm = true;
    return read_qwen_window(j, m, err);
}

static enum dtp_status read_gemma2(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->layer_norms = 4; /* before and after each block */
    return read_every_second(j, m, err);
}

static void if_absent(int *to, int value) {
    *to = *to > 0 ? *to : value;
}

/* A config may leave out numbers that equal the defaults of Gemma3TextConfig. */
static enum dtp_status read_gemma3(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->qk_norm = true;
    if_absent(&m->heads, 8);
    if_absent(&m->kv_heads, 4);
    if_absent(&m->head_dim, 256);
    if_absent(&m->vocab, 262208);
    m->layer_norms = 4;
    return read_every_sixth(j, m, err);
}

/* Attention and MLP read one layer norm without a bias. */
static enum dtp_status read_cohere(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->parallel_block = m->tied_embeddings = true;
    m->norm = DTP_NORM_LAYER;
    DTP_TRY(hf_bool(j, "tie_word_embeddings", &m->tied_embeddings, err));
    return hf_bool(j, "use_qk_norm", &m->qk_norm, err);
}

static enum dtp_status read_cohere2(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    DTP_TRY(read_cohere(j, m, err));
    return read_every_fourth(j, m, err);
}

static enum dtp_status read_stablelm(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    m->norm = DTP_NORM_LAYER;
    m->norm_bias = true;
    return hf_bool(j, "use_qkv_bias", &m->qkv_bias, err);
}

/* OLMo's layer norms have no weights; we count them nevertheless, which adds 0.004 % to the 7B model. */
static enum dtp_status read_olmo(const struct dtp_json *j, struct dtp_model *m,
                                 struct dtp_err *err) {
    (void)j, (void)err;
    m->norm = DTP_NORM_LAYER;
    return DTP_OK;
}

static enum dtp_status read_qk_norm(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    (void)j, (void)err;
    m->qk_norm = true;
    return DTP_OK;
}

static enum dtp_status read_exaone4(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->qk_norm = true;
    return read_every_fourth(j, m, err);
}

static enum dtp_status read_glm4(const struct dtp_json *j, struct dtp_model *m,
                                 struct dtp_err *err) {
    m->layer_norms = 4;
    return read_qkv_bias(j, m, err);
}

static enum dtp_status read_chatglm(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    DTP_TRY(hf_int(j, "kv_channels", &m->head_dim, err));
    return hf_bool(j, "add_qkv_bias", &m->qkv_bias, err);
}

/* Falcon-7B has one norm and one key/value head; 40B and 180B have two norms and groups. */
static enum dtp_status read_falcon(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    bool grouped = false, multi_query = true, bias = false, alibi = false;
    DTP_TRY(hf_bool(j, "new_decoder_architecture", &grouped, err));
    DTP_TRY(hf_bool(j, "multi_query", &multi_query, err));
    DTP_TRY(hf_bool(j, "bias", &bias, err));
    DTP_TRY(hf_bool(j, "alibi", &alibi, err));
    DTP_TRY(hf_bool(j, "parallel_attn", &m->parallel_block, err));
    if (!grouped)
        m->kv_heads = multi_query ? 1 : m->heads;
    m->layer_norms = grouped || !m->parallel_block ? 2 : 1;
    m->attention_bias = m->mlp_bias = bias;
    m->position = alibi ? DTP_POS_ALIBI : DTP_POS_ROPE;
    return DTP_OK;
}

static enum dtp_status read_mpt(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    const struct dtp_json *attention = hf_get(j, "attn_config");
    int ratio = 4;
    bool no_bias = true, alibi = true;
    DTP_TRY(hf_int(j, "expansion_ratio", &ratio, err));
    DTP_TRY(hf_bool(j, "no_bias", &no_bias, err));
    if (attention && dtp_json_type(attention) != DTP_JSON_OBJECT)
        return dtp_json_expected(attention, "an object", err);
    if (attention) {
        DTP_TRY(hf_bool(attention, "alibi", &alibi, err));
        DTP_TRY(hf_int(attention, "kv_n_heads", &m->kv_heads, err));
    }
    if (ratio < 1 || ratio > 1000 || m->hidden > INT_MAX / ratio)
        return dtp_json_expected(hf_get(j, "expansion_ratio"), "a small integer", err);
    m->ffn = ratio * m->hidden;
    m->attention_bias = m->mlp_bias = m->norm_bias = !no_bias;
    m->position = alibi ? DTP_POS_ALIBI : DTP_POS_LEARNED;
    return DTP_OK;
}

static enum dtp_status read_starcoder2(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    bool bias = true;
    DTP_TRY(hf_bool(j, "use_bias", &bias, err));
    m->attention_bias = m->mlp_bias = bias;
    m->position = DTP_POS_ROPE;
    return read_window(j, m, err);
}

/* RoBERTa has only the masked-language head, and padding takes two positions. */
static enum dtp_status read_roberta(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    (void)j, (void)err;
    m->nsp_head = false;
    m->seq = m->max_positions > 2 ? m->max_positions - 2 : 0;
    return DTP_OK;
}

static enum dtp_status read_vit(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    const struct dtp_json *labels = hf_get(j, "id2label");
    m->image = 224;
    m->patch = 16;
    DTP_TRY(hf_int(j, "image_size", &m->image, err));
    DTP_TRY(hf_int(j, "patch_size", &m->patch, err));
    DTP_TRY(hf_int(j, "num_channels", &m->channels, err));
    DTP_TRY(hf_int(j, "num_labels", &m->classes, err));
    if (m->patch < 1)
        return dtp_json_expected(hf_get(j, "patch_size"), "an integer of 1 or more", err);
    if (labels)
        m->classes = (int)dtp_json_size(labels);
    m->vocab = 0;
    return DTP_OK;
}

/* ---- the types ---- */

/* Reads the keys that only this type has, over the family's flags and the common numbers. */
typedef enum dtp_status hf_fn(const struct dtp_json *j, struct dtp_model *m, struct dtp_err *err);
struct hf_type {
    const char *type, *family;
    hf_fn *special; /* NULL: the numbers say all */
};

static const struct hf_type hf_types[] = {
    {"gpt2", "gpt", NULL},
    {"gpt_bigcode", "gpt", read_gpt_bigcode},
    {"gpt_neo", "gpt", NULL},
    {"gpt_neox", "gpt_neox", read_gpt_neox},
    {"gptj", "gptj", NULL},
    {"phi", "gptj", read_phi},
    {"opt", "opt", read_opt},
    {"bloom", "bloom", NULL},
    {"llama", "llama", NULL},
    {"llama4_text", "llama", read_llama4},
    {"internlm2", "llama", NULL},
    {"baichuan", "llama", NULL},
    {"minicpm", "llama", NULL},
    {"smollm3", "llama", NULL},
    {"granite", "llama", NULL},
    {"granitemoe", "llama", read_experts},
    {"exaone", "llama", NULL},
    {"exaone4", "llama", read_exaone4},
    {"seed_oss", "llama", read_qkv_bias},
    {"olmo", "llama", read_olmo},
    {"olmo2", "llama", read_qk_norm},
    {"olmoe", "llama", read_olmoe},
    {"cohere", "llama", read_cohere},
    {"cohere2", "llama", read_cohere2},
    {"stablelm", "llama", read_stablelm},
    {"chatglm", "llama", read_chatglm},
    {"glm", "llama", read_qkv_bias},
    {"glm4", "llama", read_glm4},
    {"glm4_moe", "llama", read_glm4_moe},
    {"phimoe", "llama", read_phimoe},
    {"gpt_oss", "llama", read_gpt_oss},
    {"minimax_m2", "llama", read_minimax_m2},
    {"ernie4_5", "llama", NULL},
    {"ernie4_5_moe", "llama", read_ernie},
    {"dbrx", "llama", read_dbrx},
    {"phi3", "llama", read_window},
    {"mistral", "llama", read_window},
    {"mixtral", "llama", read_mixtral},
    {"qwen2", "llama", read_qwen2},
    {"qwen2_moe", "llama", read_qwen2_moe},
    {"qwen3", "llama", read_qwen3},
    {"qwen3_moe", "llama", read_qwen3_moe},
    {"qwen2_vl", "llama", read_qwen2},
    {"qwen2_vl_text", "llama", read_qwen2},
    {"qwen2_5_vl", "llama", read_qwen2},
    {"qwen2_5_vl_text", "llama", read_qwen2},
    {"qwen3_vl_text", "llama", read_qwen3},
    {"deepseek", "llama", read_deepseek},
    {"deepseek_v2", "llama", read_deepseek},
    {"deepseek_v3", "llama", read_deepseek_v3},
    {"kimi_k2", "llama", read_deepseek_v3},
    {"gemma", "gemma", NULL},
    {"gemma2", "gemma", read_gemma2},
    {"gemma3_text", "gemma", read_gemma3},
    {"falcon", "falcon", read_falcon},
    {"mpt", "mpt", read_mpt},
    {"starcoder2", "gpt", read_starcoder2},
    {"nemotron", "nemotron", NULL},
    {"bert", "bert", NULL},
    {"roberta", "bert", read_roberta},
    {"vit", "vit", read_vit},
};
#define NTYPES (sizeof hf_types / sizeof hf_types[0])

/* ---- the document ---- */

bool dtp_model_is_hf(const struct dtp_json *j) {
    return dtp_json_get(j, "model_type") || dtp_json_get(j, "architectures") ||
           dtp_json_get(j, "hidden_size") || dtp_json_get(j, "n_embd"); /* without its type */
}

/* Returns the longest type whose letters begin the class name: "LlamaForCausalLM" begins with "llama". */
static const char *type_of_class(const char *class_name) {
    const char *best = NULL;
    size_t best_length = 0;
    for (size_t i = 0; i < NTYPES; i++) {
        const char *t = hf_types[i].type, *c = class_name;
        for (; *t; t++) {
            if (*t == '_')
                continue;
            if ((*c | 0x20) != *t && *c != *t)
                break;
            c++;
        }
        if (!*t && (size_t)(c - class_name) > best_length) {
            best = hf_types[i].type;
            best_length = (size_t)(c - class_name);
        }
    }
    return best;
}

static enum dtp_status find_type(const struct dtp_json *j, const struct hf_type **out,
                                 struct dtp_err *err) {
    const char *text = NULL, *names[NTYPES];
    const struct dtp_json *at = hf_get(j, "model_type"), *classes = hf_get(j, "architectures");
    char place[512];
    DTP_TRY(hf_string(j, "model_type", &text, err));
    if (!at && classes && dtp_json_type(classes) == DTP_JSON_ARRAY && dtp_json_size(classes) > 0)
        at = dtp_json_at(classes, 0);
    if (!at || dtp_json_type(at) != DTP_JSON_STRING)
        return dtp_json_expected(at ? at : j, "\"model_type\", or \"architectures\" of one class",
                                 err);
    const char *of_class = text ? NULL : type_of_class(dtp_json_string(at));
    text = text ? text : of_class ? of_class : dtp_json_string(at);
    for (size_t i = 0; i < NTYPES; i++) {
        names[i] = hf_types[i].type;
        if (strcmp(names[i], text) == 0) {
            *out = &hf_types[i];
            return DTP_OK;
        }
    }
    dtp_json_place(at, place, sizeof place);
    /* a name that goes on behind a known one ("qwen3_next") is another architecture, not a slip */
    int nearest = dtp_nearest_name(text, names, NTYPES);
    if (nearest < 0 || strlen(text) > strlen(names[nearest]) + 1)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: models of type \"%s\" are not modelled; one that is built like a "
                        "decoder or BERT can be a file of your own (models/README.md)",
                        place, text);
    enum dtp_status status =
        dtp_unknown_name(err, DTP_EUNSUPPORTED, "model type", text, names, NTYPES, NULL);
    dtp_err_prefix(err, place);
    return status;
}

/* Models with vision or audio keep the config of their language model in a nested object. */
static const struct dtp_json *language_model(const struct dtp_json *j) {
    const struct dtp_json *text = hf_get(j, "text_config");
    bool of_text = text && dtp_json_type(text) == DTP_JSON_OBJECT;
    return of_text && !hf_get(j, "num_hidden_layers") ? text : j;
}

enum dtp_status dtp_model_read_hf(const struct dtp_json *j, struct dtp_model *out,
                                  struct dtp_err *err) {
    const struct hf_type *type = NULL;
    const char *path = "";
    const struct dtp_json *whole = j;
    j = language_model(j);
    DTP_TRY(find_type(j, &type, err));
    DTP_TRY(dtp_model_family(type->family, out, err));
    DTP_TRY(read_common(j, out, err));
    if (type->special)
        DTP_TRY(type->special(j, out, err));
    DTP_TRY(check_numbers(j, out, err));
    DTP_TRY(read_layer_types(j, out, err));
    DTP_TRY(hf_bool(whole, "tie_word_embeddings", &out->tied_embeddings, err));
    if (j != whole || hf_get(whole, "vision_config"))
        out->title = "language model alone, without what sees or hears";
    DTP_TRY(hf_string(whole, "_name_or_path", &path, err));
    /* The trainer saves a checkpoint's folder or "owner/name". */
    out->name = dtp_base_name(path);
    out->source = "Hugging Face config.json";
    if (out->seq == 0 && out->max_positions > 0)
        out->seq = out->max_positions;
    if (out->seq > DTP_MODEL_SEQ_DEFAULT_MAX)
        out->seq = DTP_MODEL_SEQ_DEFAULT_MAX;
    return DTP_OK;
}
