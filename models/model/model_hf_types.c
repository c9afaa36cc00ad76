#include "models/model/model_hf.h"

#include <limits.h>
#include <string.h>

/* What single model types of Hugging Face mean beyond their numbers. */

/* ---- what single types mean ------------------------------------------------------------------ */

static enum dtp_status read_gpt_bigcode(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    bool multi_query = true;
    DTP_TRY(dtp_hf_bool(j, "multi_query", &multi_query, err));
    m->kv_heads = multi_query ? 1 : m->heads;
    return DTP_OK;
}

static enum dtp_status read_gpt_neox(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    return dtp_hf_bool(j, "use_parallel_residual", &m->parallel_block, err);
}

static enum dtp_status read_phi(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    (void)j, (void)err;
    m->attention_bias = true; /* GPT-J with biases everywhere, one norm */
    return DTP_OK;
}

/* OPT keeps two more rows than positions; the 350M model is another architecture. */
static enum dtp_status read_opt(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    int projection = m->hidden;
    bool norm_before = true;
    DTP_TRY(dtp_hf_int(j, "word_embed_proj_dim", &projection, err));
    DTP_TRY(dtp_hf_bool(j, "do_layer_norm_before", &norm_before, err));
    if (projection != m->hidden)
        return dtp_json_expected(dtp_hf_get(j, "word_embed_proj_dim"), "the value of hidden_size",
                                 err);
    if (!norm_before)
        return dtp_json_expected(dtp_hf_get(j, "do_layer_norm_before"), "true", err);
    m->seq = m->max_positions;
    m->max_positions += 2;
    return DTP_OK;
}

static enum dtp_status read_qwen2(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qkv_bias = true;
    return dtp_hf_read_qwen_window(j, m, err);
}

static enum dtp_status read_qwen3(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err) {
    m->qk_norm = true;
    return dtp_hf_read_qwen_window(j, m, err);
}

static enum dtp_status read_gemma2(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->layer_norms = 4; /* before and after each block */
    return dtp_hf_read_every_second(j, m, err);
}

static void if_absent(int *to, int value) {
    *to = *to > 0 ? *to : value;
}

/* Numbers that equal Gemma3TextConfig's defaults may be left out. */
static enum dtp_status read_gemma3(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->qk_norm = true;
    if_absent(&m->heads, 8);
    if_absent(&m->kv_heads, 4);
    if_absent(&m->head_dim, 256);
    if_absent(&m->vocab, 262208);
    m->layer_norms = 4;
    return dtp_hf_read_every_sixth(j, m, err);
}

/* Attention and MLP from one layer norm without a bias. */
static enum dtp_status read_cohere(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    m->parallel_block = m->tied_embeddings = true;
    m->norm = DTP_NORM_LAYER;
    DTP_TRY(dtp_hf_bool(j, "tie_word_embeddings", &m->tied_embeddings, err));
    return dtp_hf_bool(j, "use_qk_norm", &m->qk_norm, err);
}

static enum dtp_status read_cohere2(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    DTP_TRY(read_cohere(j, m, err));
    return dtp_hf_read_every_fourth(j, m, err);
}

static enum dtp_status read_stablelm(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    m->norm = DTP_NORM_LAYER;
    m->norm_bias = true;
    return dtp_hf_bool(j, "use_qkv_bias", &m->qkv_bias, err);
}

/* Layer norms without weights; those that the count has are 0.004 % of 7B. */
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
    return dtp_hf_read_every_fourth(j, m, err);
}

/* What these call attention_bias is that of q, k and v. */
enum dtp_status dtp_hf_read_qkv_bias(const struct dtp_json *j, struct dtp_model *m,
                                     struct dtp_err *err) {
    (void)j, (void)err;
    m->qkv_bias = m->attention_bias;
    m->attention_bias = false;
    return DTP_OK;
}

static enum dtp_status read_glm4(const struct dtp_json *j, struct dtp_model *m,
                                 struct dtp_err *err) {
    m->layer_norms = 4;
    return dtp_hf_read_qkv_bias(j, m, err);
}

static enum dtp_status read_chatglm(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    DTP_TRY(dtp_hf_int(j, "kv_channels", &m->head_dim, err));
    return dtp_hf_bool(j, "add_qkv_bias", &m->qkv_bias, err);
}

/* Falcon-7B: one norm and one key/value head; 40B and 180B: two norms and groups. */
static enum dtp_status read_falcon(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    bool grouped = false, multi_query = true, bias = false, alibi = false;
    DTP_TRY(dtp_hf_bool(j, "new_decoder_architecture", &grouped, err));
    DTP_TRY(dtp_hf_bool(j, "multi_query", &multi_query, err));
    DTP_TRY(dtp_hf_bool(j, "bias", &bias, err));
    DTP_TRY(dtp_hf_bool(j, "alibi", &alibi, err));
    DTP_TRY(dtp_hf_bool(j, "parallel_attn", &m->parallel_block, err));
    if (!grouped)
        m->kv_heads = multi_query ? 1 : m->heads;
    m->layer_norms = grouped || !m->parallel_block ? 2 : 1;
    m->attention_bias = m->mlp_bias = bias;
    m->position = alibi ? DTP_POS_ALIBI : DTP_POS_ROPE;
    return DTP_OK;
}

static enum dtp_status read_mpt(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    const struct dtp_json *attention = dtp_hf_get(j, "attn_config");
    int ratio = 4;
    bool no_bias = true, alibi = true;
    DTP_TRY(dtp_hf_int(j, "expansion_ratio", &ratio, err));
    DTP_TRY(dtp_hf_bool(j, "no_bias", &no_bias, err));
    if (attention && dtp_json_type(attention) != DTP_JSON_OBJECT)
        return dtp_json_expected(attention, "an object", err);
    if (attention) {
        DTP_TRY(dtp_hf_bool(attention, "alibi", &alibi, err));
        DTP_TRY(dtp_hf_int(attention, "kv_n_heads", &m->kv_heads, err));
    }
    if (ratio < 1 || ratio > 1000 || m->hidden > INT_MAX / ratio)
        return dtp_json_expected(dtp_hf_get(j, "expansion_ratio"), "a small integer", err);
    m->ffn = ratio * m->hidden;
    m->attention_bias = m->mlp_bias = m->norm_bias = !no_bias;
    m->position = alibi ? DTP_POS_ALIBI : DTP_POS_LEARNED;
    return DTP_OK;
}

static enum dtp_status read_starcoder2(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    bool bias = true;
    DTP_TRY(dtp_hf_bool(j, "use_bias", &bias, err));
    m->attention_bias = m->mlp_bias = bias;
    m->position = DTP_POS_ROPE;
    return dtp_hf_read_window(j, m, err);
}

/* RoBERTa: masked-language head only, and two positions that padding takes. */
static enum dtp_status read_roberta(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    (void)j, (void)err;
    m->nsp_head = false;
    m->seq = m->max_positions > 2 ? m->max_positions - 2 : 0;
    return DTP_OK;
}

static enum dtp_status read_vit(const struct dtp_json *j, struct dtp_model *m,
                                struct dtp_err *err) {
    const struct dtp_json *labels = dtp_hf_get(j, "id2label");
    m->image = 224;
    m->patch = 16;
    DTP_TRY(dtp_hf_int(j, "image_size", &m->image, err));
    DTP_TRY(dtp_hf_int(j, "patch_size", &m->patch, err));
    DTP_TRY(dtp_hf_int(j, "num_channels", &m->channels, err));
    DTP_TRY(dtp_hf_int(j, "num_labels", &m->classes, err));
    if (m->patch < 1)
        return dtp_json_expected(dtp_hf_get(j, "patch_size"), "an integer of 1 or more", err);
    if (labels)
        m->classes = (int)dtp_json_size(labels);
    m->vocab = 0;
    return DTP_OK;
}

/* ---- the types ------------------------------------------------------------------------------- */

const struct dtp_hf_type dtp_hf_types[] = {
    {"gpt2", "gpt", NULL},
    {"gpt_bigcode", "gpt", read_gpt_bigcode},
    {"gpt_neo", "gpt", NULL},
    {"gpt_neox", "gpt_neox", read_gpt_neox},
    {"gptj", "gptj", NULL},
    {"phi", "gptj", read_phi},
    {"opt", "opt", read_opt},
    {"bloom", "bloom", NULL},
    {"llama", "llama", NULL},
    {"llama4_text", "llama", dtp_hf_read_llama4},
    {"internlm2", "llama", NULL},
    {"baichuan", "llama", NULL},
    {"minicpm", "llama", NULL},
    {"smollm3", "llama", NULL},
    {"granite", "llama", NULL},
    {"granitemoe", "llama", dtp_hf_read_experts},
    {"exaone", "llama", NULL},
    {"exaone4", "llama", read_exaone4},
    {"seed_oss", "llama", dtp_hf_read_qkv_bias},
    {"olmo", "llama", read_olmo},
    {"olmo2", "llama", read_qk_norm},
    {"olmoe", "llama", dtp_hf_read_olmoe},
    {"cohere", "llama", read_cohere},
    {"cohere2", "llama", read_cohere2},
    {"stablelm", "llama", read_stablelm},
    {"chatglm", "llama", read_chatglm},
    {"glm", "llama", dtp_hf_read_qkv_bias},
    {"glm4", "llama", read_glm4},
    {"glm4_moe", "llama", dtp_hf_read_glm4_moe},
    {"phimoe", "llama", dtp_hf_read_phimoe},
    {"gpt_oss", "llama", dtp_hf_read_gpt_oss},
    {"minimax_m2", "llama", dtp_hf_read_minimax_m2},
    {"ernie4_5", "llama", NULL},
    {"ernie4_5_moe", "llama", dtp_hf_read_ernie},
    {"dbrx", "llama", dtp_hf_read_dbrx},
    {"phi3", "llama", dtp_hf_read_window},
    {"mistral", "llama", dtp_hf_read_window},
    {"mixtral", "llama", dtp_hf_read_mixtral},
    {"qwen2", "llama", read_qwen2},
    {"qwen2_moe", "llama", dtp_hf_read_qwen2_moe},
    {"qwen3", "llama", read_qwen3},
    {"qwen3_moe", "llama", dtp_hf_read_qwen3_moe},
    {"qwen2_vl", "llama", read_qwen2},
    {"qwen2_vl_text", "llama", read_qwen2},
    {"qwen2_5_vl", "llama", read_qwen2},
    {"qwen2_5_vl_text", "llama", read_qwen2},
    {"qwen3_vl_text", "llama", read_qwen3},
    {"deepseek", "llama", dtp_hf_read_deepseek},
    {"deepseek_v2", "llama", dtp_hf_read_deepseek},
    {"deepseek_v3", "llama", dtp_hf_read_deepseek_v3},
    {"kimi_k2", "llama", dtp_hf_read_deepseek_v3},
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
const size_t dtp_hf_ntypes = sizeof dtp_hf_types / sizeof dtp_hf_types[0];
