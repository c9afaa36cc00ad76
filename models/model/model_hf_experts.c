#include <string.h>

#include "models/model/model_hf.h"

/* What the types with experts mean beyond their numbers. */

enum dtp_status dtp_hf_read_mixtral(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->moe.experts = 8;
    m->moe.top_k = 2;
    m->moe.ffn = m->ffn;
    DTP_TRY(dtp_hf_int(j, "num_local_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(j, "num_experts_per_tok", &m->moe.top_k, err));
    return dtp_hf_read_window(j, m, err);
}

static enum dtp_status read_qwen_moe(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    int shared = 0;
    const struct dtp_json *dense = dtp_hf_get(j, "mlp_only_layers");
    DTP_TRY(dtp_hf_int(j, "num_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(j, "num_experts_per_tok", &m->moe.top_k, err));
    DTP_TRY(dtp_hf_int(j, "moe_intermediate_size", &m->moe.ffn, err));
    DTP_TRY(dtp_hf_int(j, "decoder_sparse_step", &m->moe.layer_step, err));
    DTP_TRY(dtp_hf_int(j, "shared_expert_intermediate_size", &shared, err));
    if (dense && (dtp_json_type(dense) != DTP_JSON_ARRAY || dtp_json_size(dense) > 0))
        return dtp_json_expected(dense, "an empty array", err);
    if (shared > 0 && (m->moe.ffn < 1 || shared % m->moe.ffn != 0))
        return dtp_json_expected(dtp_hf_get(j, "shared_expert_intermediate_size"),
                                 "a multiple of moe_intermediate_size", err);
    m->moe.shared_experts = shared > 0 ? shared / m->moe.ffn : 0;
    return dtp_hf_read_qwen_window(j, m, err);
}

enum dtp_status dtp_hf_read_qwen2_moe(const struct dtp_json *j, struct dtp_model *m,
                                      struct dtp_err *err) {
    m->qkv_bias = true;
    DTP_TRY(read_qwen_moe(j, m, err));
    m->moe.shared_gate = m->moe.shared_experts > 0;
    return DTP_OK;
}

enum dtp_status dtp_hf_read_qwen3_moe(const struct dtp_json *j, struct dtp_model *m,
                                      struct dtp_err *err) {
    m->qk_norm = true;
    return read_qwen_moe(j, m, err);
}

enum dtp_status dtp_hf_read_deepseek(const struct dtp_json *j, struct dtp_model *m,
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
        DTP_TRY(dtp_hf_int(j, keys[i].key, keys[i].to, err));
    DTP_TRY(dtp_hf_string(j, "topk_method", &topk_method, err));
    m->moe.router_bias = strcmp(topk_method, "noaux_tc") == 0; /* DeepSeek-V3, section 2.1.2 */
    if (m->mla.kv_lora_rank > 0)
        m->head_dim = m->mla.nope_head_dim + m->mla.rope_head_dim;
    return DTP_OK;
}

/* DeepSeek-V3's configs may leave the method out; the type implies it. */
enum dtp_status dtp_hf_read_deepseek_v3(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    DTP_TRY(dtp_hf_read_deepseek(j, m, err));
    m->moe.router_bias = true;
    return DTP_OK;
}

/* Every layer of experts, each as wide as intermediate_size; the two counts under one of their names. */
enum dtp_status dtp_hf_read_experts(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->moe.ffn = m->ffn;
    DTP_TRY(dtp_hf_int(j, "num_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(j, "num_local_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(j, "experts_per_token", &m->moe.top_k, err));
    return dtp_hf_int(j, "num_experts_per_tok", &m->moe.top_k, err);
}

enum dtp_status dtp_hf_read_olmoe(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qk_norm = true;
    return dtp_hf_read_experts(j, m, err);
}

/* Biases everywhere, on the router too. */
enum dtp_status dtp_hf_read_gpt_oss(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    m->attention_bias = m->mlp_bias = m->moe.router_bias = true;
    DTP_TRY(dtp_hf_read_every_second(j, m, err));
    return dtp_hf_read_experts(j, m, err);
}

enum dtp_status dtp_hf_read_phimoe(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->norm = DTP_NORM_LAYER;
    m->norm_bias = true;
    DTP_TRY(dtp_hf_bool(j, "lm_head_bias", &m->head_bias, err));
    return dtp_hf_read_experts(j, m, err);
}

/* A shared expert in each layer of experts; layers without have their own width. */
enum dtp_status dtp_hf_read_llama4(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->moe.shared_experts = 1;
    DTP_TRY(dtp_hf_read_experts(j, m, err));
    DTP_TRY(dtp_hf_int(j, "interleave_moe_layer_step", &m->moe.layer_step, err));
    DTP_TRY(dtp_hf_read_chunks(j, m, err));
    return dtp_hf_int(j, "intermediate_size_mlp", &m->ffn, err);
}

enum dtp_status dtp_hf_read_dbrx(const struct dtp_json *j, struct dtp_model *m,
                                 struct dtp_err *err) {
    const struct dtp_json *attention = dtp_hf_get(j, "attn_config"),
                          *ffn = dtp_hf_get(j, "ffn_config");
    if (!attention || dtp_json_type(attention) != DTP_JSON_OBJECT)
        return dtp_json_expected(attention ? attention : j, "an object \"attn_config\"", err);
    if (!ffn || dtp_json_type(ffn) != DTP_JSON_OBJECT)
        return dtp_json_expected(ffn ? ffn : j, "an object \"ffn_config\"", err);
    m->norm = DTP_NORM_LAYER;
    DTP_TRY(dtp_hf_int(attention, "kv_n_heads", &m->kv_heads, err));
    DTP_TRY(dtp_hf_int(ffn, "ffn_hidden_size", &m->ffn, err));
    DTP_TRY(dtp_hf_int(ffn, "moe_num_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(ffn, "moe_top_k", &m->moe.top_k, err));
    m->moe.ffn = m->ffn;
    return DTP_OK;
}

enum dtp_status dtp_hf_read_glm4_moe(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    DTP_TRY(dtp_hf_bool(j, "use_qk_norm", &m->qk_norm, err));
    DTP_TRY(dtp_hf_read_deepseek_v3(j, m, err));
    return dtp_hf_read_qkv_bias(j, m, err);
}

/* MiniMax-M2: norms of q and k, a bias of the router (its scores are sigmoids). */
enum dtp_status dtp_hf_read_minimax_m2(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    m->moe.router_bias = true;
    DTP_TRY(dtp_hf_bool(j, "use_routing_bias", &m->moe.router_bias, err));
    DTP_TRY(dtp_hf_bool(j, "use_qk_norm", &m->qk_norm, err));
    return dtp_hf_read_experts(j, m, err);
}

/* ERNIE 4.5: its own names, and a correction of the router's scores in each layer of experts. */
enum dtp_status dtp_hf_read_ernie(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->moe.router_bias = true;
    DTP_TRY(dtp_hf_int(j, "moe_num_experts", &m->moe.experts, err));
    DTP_TRY(dtp_hf_int(j, "moe_k", &m->moe.top_k, err));
    DTP_TRY(dtp_hf_int(j, "moe_intermediate_size", &m->moe.ffn, err));
    DTP_TRY(dtp_hf_int(j, "moe_num_shared_experts", &m->moe.shared_experts, err));
    DTP_TRY(dtp_hf_int(j, "moe_layer_start_index", &m->moe.dense_layers_first, err));
    return dtp_hf_int(j, "moe_layer_interval", &m->moe.layer_step, err);
}
