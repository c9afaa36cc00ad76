/* Hugging Face config.json files: the same counts as the library, and located errors. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/model/model.h"
#include "sim/base/text.h"
#include "tests/model_case.h"
#include "tests/suites.h"

static enum dtp_status read_text(const char *text, struct dtp_model *m, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_parse(arena, "config.json", text, strlen(text), &j, err));
    return dtp_model_read(arena, j, m, err);
}

/* clang-format off */
/* The keys that matter of published configs, and the library's model or the checkpoint's count. */
static const struct {
    const char *same_as;
    uint64_t params;
    const char *text;
} configs[] = {
    {"gpt2", 0, "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":12,"
     "\"n_embd\":768,\"n_head\":12,\"n_inner\":null,\"vocab_size\":50257,\"n_positions\":1024,"
     "\"n_ctx\":1024,\"activation_function\":\"gelu_new\",\"resid_pdrop\":0.1}"},
    {"gpt-j-6b", 0, "{\"model_type\":\"gptj\",\"n_layer\":28,\"n_embd\":4096,\"n_head\":16,"
     "\"vocab_size\":50400,\"n_positions\":2048,\"rotary_dim\":64,\"tie_word_embeddings\":false}"},
    {"gpt-neox-20b", 0, "{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":44,"
     "\"hidden_size\":6144,\"num_attention_heads\":64,\"intermediate_size\":24576,"
     "\"vocab_size\":50432,\"max_position_embeddings\":2048,\"hidden_act\":\"gelu_fast\","
     "\"tie_word_embeddings\":false,\"use_parallel_residual\":true}"},
    {"opt-6.7b", 0, "{\"model_type\":\"opt\",\"num_hidden_layers\":32,\"hidden_size\":4096,"
     "\"num_attention_heads\":32,\"ffn_dim\":16384,\"vocab_size\":50272,\"dropout\":0.1,"
     "\"max_position_embeddings\":2048,\"word_embed_proj_dim\":4096,"
     "\"do_layer_norm_before\":true,\"activation_function\":\"relu\"}"},
    {"bloom176b", 0, "{\"model_type\":\"bloom\",\"n_layer\":70,\"num_attention_heads\":112,"
     "\"n_embed\":14336,\"vocab_size\":250880,\"seq_length\":2048,\"hidden_dropout\":0.0}"},
    {"llama2-70b", 0, "{\"model_type\":\"llama\",\"num_hidden_layers\":80,\"hidden_size\":8192,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,"
     "\"vocab_size\":32000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\","
     "\"tie_word_embeddings\":false}"},
    {"llama3-8b", 0, "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":32,"
     "\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"intermediate_size\":14336,\"vocab_size\":128256,\"max_position_embeddings\":8192}"},
    {"llama3.2-1b", 0, "{\"model_type\":\"llama\",\"num_hidden_layers\":16,\"hidden_size\":2048,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"intermediate_size\":8192,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"attention_bias\":false,\"mlp_bias\":false,\"tie_word_embeddings\":true}"},
    {"mistral-7b", 0, "{\"model_type\":\"mistral\",\"num_hidden_layers\":32,"
     "\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"intermediate_size\":14336,\"vocab_size\":32000,\"max_position_embeddings\":32768,"
     "\"sliding_window\":4096,\"tie_word_embeddings\":false}"},
    {"mixtral-8x7b", 0, "{\"model_type\":\"mixtral\",\"num_hidden_layers\":32,"
     "\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"intermediate_size\":14336,\"vocab_size\":32000,\"max_position_embeddings\":32768,"
     "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":null}"},
    {"qwen2.5-7b", 0, "{\"model_type\":\"qwen2\",\"num_hidden_layers\":28,\"hidden_size\":3584,"
     "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
     "\"vocab_size\":152064,\"max_position_embeddings\":131072,\"sliding_window\":131072,"
     "\"use_sliding_window\":false,\"tie_word_embeddings\":false}"},
    {"qwen3-30b-a3b", 0, "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":48,"
     "\"hidden_size\":2048,\"num_attention_heads\":32,\"num_key_value_heads\":4,"
     "\"head_dim\":128,\"intermediate_size\":6144,\"moe_intermediate_size\":768,"
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[],\"vocab_size\":151936,\"max_position_embeddings\":40960,"
     "\"tie_word_embeddings\":false}"},
    {NULL, 14315784192, "{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":24,"
     "\"hidden_size\":2048,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
     "\"intermediate_size\":5632,\"moe_intermediate_size\":1408,\"num_experts\":60,"
     "\"num_experts_per_tok\":4,\"shared_expert_intermediate_size\":5632,"
     "\"decoder_sparse_step\":1,\"vocab_size\":151936,\"max_position_embeddings\":8192,"
     "\"tie_word_embeddings\":false}"},
    {"gemma-7b", 0, "{\"model_type\":\"gemma\",\"num_hidden_layers\":28,\"hidden_size\":3072,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"head_dim\":256,"
     "\"intermediate_size\":24576,\"vocab_size\":256000,\"max_position_embeddings\":8192,"
     "\"hidden_act\":\"gelu\"}"},
    {"gemma2-9b", 0, "{\"model_type\":\"gemma2\",\"num_hidden_layers\":42,\"hidden_size\":3584,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":256,"
     "\"intermediate_size\":14336,\"vocab_size\":256000,\"max_position_embeddings\":8192,"
     "\"hidden_activation\":\"gelu_pytorch_tanh\",\"sliding_window\":4096}"},
    {"falcon-7b", 0, "{\"model_type\":\"falcon\",\"num_hidden_layers\":32,\"hidden_size\":4544,"
     "\"num_attention_heads\":71,\"vocab_size\":65024,\"multi_query\":true,\"bias\":false,"
     "\"parallel_attn\":true,\"new_decoder_architecture\":false,\"alibi\":false}"},
    {"falcon-40b", 0, "{\"model_type\":\"falcon\",\"num_hidden_layers\":60,\"hidden_size\":8192,"
     "\"num_attention_heads\":128,\"num_kv_heads\":8,\"vocab_size\":65024,\"bias\":false,"
     "\"multi_query\":true,\"parallel_attn\":true,\"new_decoder_architecture\":true}"},
    {"mpt-7b", 0, "{\"model_type\":\"mpt\",\"n_layers\":32,\"d_model\":4096,\"n_heads\":32,"
     "\"expansion_ratio\":4,\"vocab_size\":50432,\"max_seq_len\":2048,\"no_bias\":true,"
     "\"attn_config\":{\"alibi\":true}}"},
    {"phi3-mini", 0, "{\"model_type\":\"phi3\",\"num_hidden_layers\":32,\"hidden_size\":3072,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":8192,"
     "\"vocab_size\":32064,\"max_position_embeddings\":4096,\"sliding_window\":2047,"
     "\"resid_pdrop\":0.0,\"tie_word_embeddings\":false}"},
    {NULL, 2779683840, "{\"model_type\":\"phi\",\"num_hidden_layers\":32,\"hidden_size\":2560,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":10240,"
     "\"vocab_size\":51200,\"max_position_embeddings\":2048,\"hidden_act\":\"gelu_new\","
     "\"partial_rotary_factor\":0.4,\"tie_word_embeddings\":false}"},
    {NULL, 3030371328, "{\"model_type\":\"starcoder2\",\"num_hidden_layers\":30,"
     "\"hidden_size\":3072,\"num_attention_heads\":24,\"num_key_value_heads\":2,"
     "\"intermediate_size\":12288,\"vocab_size\":49152,\"max_position_embeddings\":16384,"
     "\"sliding_window\":4096,\"use_bias\":true,\"hidden_act\":\"gelu_pytorch_tanh\"}"},
    {NULL, 15517456384, "{\"model_type\":\"gpt_bigcode\",\"n_layer\":40,\"n_embd\":6144,"
     "\"n_head\":48,\"n_inner\":24576,\"vocab_size\":49152,\"n_positions\":8192,"
     "\"multi_query\":true}"},
    {NULL, 7737708544, "{\"model_type\":\"internlm2\",\"num_hidden_layers\":32,"
     "\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"intermediate_size\":14336,\"vocab_size\":92544,\"max_position_embeddings\":32768,"
     "\"bias\":false,\"tie_word_embeddings\":false}"},
    {"nemotron-4-15b", 0, "{\"model_type\":\"nemotron\",\"num_hidden_layers\":32,"
     "\"hidden_size\":6144,\"num_attention_heads\":48,\"num_key_value_heads\":8,"
     "\"intermediate_size\":24576,\"vocab_size\":256000,\"max_position_embeddings\":4096,"
     "\"hidden_act\":\"relu2\",\"tie_word_embeddings\":false}"},
    {"deepseek-v2-lite", 0, "{\"model_type\":\"deepseek_v2\",\"num_hidden_layers\":27,"
     "\"hidden_size\":2048,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
     "\"intermediate_size\":10944,\"moe_intermediate_size\":1408,\"n_routed_experts\":64,"
     "\"n_shared_experts\":2,\"num_experts_per_tok\":6,\"first_k_dense_replace\":1,"
     "\"moe_layer_freq\":1,\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
     "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"topk_method\":\"greedy\","
     "\"vocab_size\":102400,\"max_position_embeddings\":163840,\"tie_word_embeddings\":false}"},
    {"deepseek-v3", 0, "{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,"
     "\"hidden_size\":7168,\"num_attention_heads\":128,\"num_key_value_heads\":128,"
     "\"intermediate_size\":18432,\"moe_intermediate_size\":2048,\"n_routed_experts\":256,"
     "\"n_shared_experts\":1,\"num_experts_per_tok\":8,\"first_k_dense_replace\":3,"
     "\"moe_layer_freq\":1,\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
     "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"topk_method\":\"noaux_tc\","
     "\"vocab_size\":129280,\"num_nextn_predict_layers\":1,\"max_position_embeddings\":163840,\"tie_word_embeddings\":false}"},
    {NULL, 107769861120,
     "{\"model_type\":\"llama4\",\"architectures\":[\"Llama4ForConditionalGeneration"
     "\"],\"text_config\":{\"model_type\":\"llama4_text\",\"hidden_size\":5120,\"int"
     "ermediate_size\":8192,\"intermediate_size_mlp\":16384,\"num_hidden_layers\":48"
     ",\"num_attention_heads\":40,\"num_key_value_heads\":8,\"head_dim\":128,\"vocab"
     "_size\":202048,\"num_local_experts\":16,\"num_experts_per_tok\":1,\"interleave"
     "_moe_layer_step\":1}}"},
    {NULL, 400711848960,
     "{\"model_type\":\"llama4\",\"text_config\":{\"model_type\":\"llama4_text\",\"h"
     "idden_size\":5120,\"intermediate_size\":8192,\"intermediate_size_mlp\":16384,\""
     "num_hidden_layers\":48,\"num_attention_heads\":40,\"num_key_value_heads\":8,\""
     "head_dim\":128,\"vocab_size\":202048,\"num_local_experts\":128,\"num_experts_p"
     "er_tok\":1,\"interleave_moe_layer_step\":2}}"},
    {NULL, 23572403200,
     "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\",\"num"
     "_hidden_layers\":40,\"hidden_size\":5120,\"num_attention_heads\":32,\"num_key_"
     "value_heads\":8,\"head_dim\":128,\"intermediate_size\":32768,\"vocab_size\":13"
     "1072}}"},
    {NULL, 27009346304,
     "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"h"
     "idden_size\":5376,\"intermediate_size\":21504,\"num_hidden_layers\":62,\"num_a"
     "ttention_heads\":32,\"num_key_value_heads\":16,\"head_dim\":128}}"},
    {NULL, 41873153344,
     "{\"model_type\":\"phimoe\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num"
     "_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":6400,\"v"
     "ocab_size\":32064,\"num_local_experts\":16,\"num_experts_per_tok\":2,\"attenti"
     "on_bias\":true,\"lm_head_bias\":true}"},
    {NULL, 228689336320, /* with norms of q and k over a head; the checkpoint has them over all: 0.0002 % more */
     "{\"model_type\":\"minimax_m2\",\"num_hidden_layers\":62,\"hidden_size\":3072,"
     "\"num_attention_heads\":48,\"num_key_value_heads\":8,\"head_dim\":128,"
     "\"intermediate_size\":1536,\"num_local_experts\":256,\"num_experts_per_tok\":8,"
     "\"shared_intermediate_size\":0,\"use_qk_norm\":true,\"use_routing_bias\":true,"
     "\"vocab_size\":200064,\"tie_word_embeddings\":false}"},
    {NULL, 21825437888,
     "{\"model_type\":\"ernie4_5_moe\",\"num_hidden_layers\":28,\"hidden_size\":2560,"
     "\"num_attention_heads\":20,\"num_key_value_heads\":4,\"head_dim\":128,"
     "\"intermediate_size\":12288,\"moe_num_experts\":64,\"moe_k\":6,"
     "\"moe_intermediate_size\":1536,\"moe_num_shared_experts\":2,\"moe_layer_start_index\":1,"
     "\"moe_layer_interval\":1,\"vocab_size\":103424,\"tie_word_embeddings\":true}"},
    {NULL, 16375728128,
     "{\"model_type\":\"deepseek\",\"num_hidden_layers\":28,\"hidden_size\":2048,\"n"
     "um_attention_heads\":16,\"num_key_value_heads\":16,\"intermediate_size\":10944"
     ",\"moe_intermediate_size\":1408,\"n_routed_experts\":64,\"n_shared_experts\":2"
     ",\"num_experts_per_tok\":6,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\""
     "vocab_size\":102400}"},
    {NULL, 1026408232448,
     "{\"model_type\":\"kimi_k2\",\"num_hidden_layers\":61,\"hidden_size\":7168,\"nu"
     "m_attention_heads\":64,\"num_key_value_heads\":64,\"intermediate_size\":18432,"
     "\"moe_intermediate_size\":2048,\"n_routed_experts\":384,\"n_shared_experts\":1"
     ",\"num_experts_per_tok\":8,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\""
     "q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_hea"
     "d_dim\":64,\"v_head_dim\":128,\"vocab_size\":163840}"},
    {NULL, 34980831232,
     "{\"model_type\":\"cohere\",\"num_hidden_layers\":40,\"hidden_size\":8192,\"num"
     "_attention_heads\":64,\"intermediate_size\":22528,\"vocab_size\":256000}"},
    {NULL, 2795443200,
     "{\"model_type\":\"stablelm\",\"num_hidden_layers\":32,\"hidden_size\":2560,\"n"
     "um_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":6912,"
     "\"vocab_size\":50304,\"tie_word_embeddings\":false}"},
    {NULL, 1644515328,
     "{\"model_type\":\"stablelm\",\"num_hidden_layers\":24,\"hidden_size\":2048,\"n"
     "um_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":5632,"
     "\"vocab_size\":100352,\"use_qkv_bias\":true}"},
    {NULL, 8170848256,
     "{\"model_type\":\"granite\",\"num_hidden_layers\":40,\"hidden_size\":4096,\"nu"
     "m_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":12800,\""
     "vocab_size\":49155,\"tie_word_embeddings\":true}"},
    {NULL, 9399951360,
     "{\"model_type\":\"chatglm\",\"num_layers\":40,\"hidden_size\":4096,\"num_atten"
     "tion_heads\":32,\"multi_query_group_num\":2,\"kv_channels\":128,\"ffn_hidden_s"
     "ize\":13696,\"padded_vocab_size\":151552,\"add_qkv_bias\":true}"},
    {NULL, 7505973248,
     "{\"model_type\":\"baichuan\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"n"
     "um_attention_heads\":32,\"intermediate_size\":11008,\"vocab_size\":125696}"},
    {NULL, 131596523520,
     "{\"model_type\":\"dbrx\",\"d_model\":6144,\"n_layers\":40,\"n_heads\":48,\"att"
     "n_config\":{\"kv_n_heads\":8},\"ffn_config\":{\"ffn_hidden_size\":10752,\"moe_"
     "num_experts\":16,\"moe_top_k\":4},\"vocab_size\":100352,\"max_seq_len\":32768}"},
    {NULL, 3075098624,
     "{\"model_type\":\"smollm3\",\"num_hidden_layers\":36,\"hidden_size\":2048,\"nu"
     "m_attention_heads\":16,\"num_key_value_heads\":4,\"intermediate_size\":11008,\""
     "vocab_size\":128256,\"tie_word_embeddings\":true}"},
    {NULL, 7818448896,
     "{\"model_type\":\"exaone\",\"num_layers\":32,\"hidden_size\":4096,\"num_attent"
     "ion_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_s"
     "ize\":102400,\"activation_function\":\"silu\"}"},
    {NULL, 36151104512,
     "{\"model_type\":\"seed_oss\",\"num_hidden_layers\":64,\"hidden_size\":5120,\"n"
     "um_attention_heads\":80,\"num_key_value_heads\":8,\"head_dim\":128,\"intermedi"
     "ate_size\":27648,\"vocab_size\":155136,\"attention_bias\":true,\"attention_out"
     "_bias\":false}"},
    {"bert-base", 0, "{\"model_type\":\"bert\",\"num_hidden_layers\":12,\"hidden_size\":768,"
     "\"num_attention_heads\":12,\"intermediate_size\":3072,\"vocab_size\":30522,"
     "\"max_position_embeddings\":512,\"type_vocab_size\":2,\"hidden_act\":\"gelu\"}"},
    {NULL, 124697433, "{\"model_type\":\"roberta\",\"num_hidden_layers\":12,"
     "\"hidden_size\":768,\"num_attention_heads\":12,\"intermediate_size\":3072,"
     "\"vocab_size\":50265,\"max_position_embeddings\":514,\"type_vocab_size\":1}"},
    {"vit-l16", 0, "{\"model_type\":\"vit\",\"num_hidden_layers\":24,\"hidden_size\":1024,"
     "\"num_attention_heads\":16,\"intermediate_size\":4096,\"image_size\":224,"
     "\"patch_size\":16,\"num_channels\":3,\"qkv_bias\":true,\"hidden_dropout_prob\":0.0}"},
};
/* clang-format on */

static void test_counts(void) {
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct dtp_model m = {0}, library = {0};
        struct dtp_err err = {0};
        const char *name = configs[i].same_as;
        uint64_t expected = configs[i].params;
        if (read_text(configs[i].text, &m, &err) != DTP_OK)
            fprintf(stderr, "%zu: %s\n", i, err.msg);
        CU_ASSERT_EQUAL_FATAL(err.status, DTP_OK);
        if (name) {
            CU_ASSERT_EQUAL_FATAL(dtp_model_load(arena, name, &library, &err), DTP_OK);
            expected = total_params(&library);
            CU_ASSERT_EQUAL(dtp_model_forward_flops(&m, 1024),
                            dtp_model_forward_flops(&library, 1024));
            CU_ASSERT(m.dropout == library.dropout && m.activation == library.activation);
            CU_ASSERT(m.norm == library.norm && m.parallel_block == library.parallel_block);
        }
        if (total_params(&m) != expected)
            fprintf(stderr, "%.60s: %llu, expected %llu\n", configs[i].text,
                    (unsigned long long)total_params(&m), (unsigned long long)expected);
        CU_ASSERT_EQUAL(total_params(&m), expected);
        CU_ASSERT(m.seq > 0 && m.seq <= DTP_MODEL_SEQ_DEFAULT_MAX);
    }
}

/* A file, and the folder that holds it, are models; the name is the folder's. */
static void test_paths(void) {
    char folder[] = "/tmp/dtp-model-XXXXXX";
    struct dtp_model m;
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    const char *path = dtp_arena_printf(arena, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(configs[0].text, f);
    fclose(f);
    CU_ASSERT_EQUAL(dtp_model_load(arena, path, &m, &err), DTP_OK);
    CU_ASSERT_EQUAL(total_params(&m), 124439808);
    CU_ASSERT_STRING_EQUAL(m.name, strrchr(folder, '/') + 1);
    CU_ASSERT_EQUAL(dtp_model_load(arena, folder, &m, &err), DTP_OK);
    CU_ASSERT_EQUAL(total_params(&m), 124439808);
    CU_ASSERT_STRING_EQUAL(m.name, strrchr(folder, '/') + 1);
    unlink(path);
    rmdir(folder);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"hidden_size\":4096,\"num_attention_heads\":32,\"vocab_size\":"     \
    "32000"

static const struct {
    const char *text;
    enum dtp_status status;
    const char *parts[3]; /* parts of the message */
} bad[] = {
    {"{\"model_type\":\"lama\"}", DTP_EUNSUPPORTED, {"$.model_type", "\"lama\"", "llama"}},
    {"{\"model_type\":7}", DTP_EINPUT, {"$.model_type", "a string"}},
    {"{\"architectures\":[\"T5ForConditionalGeneration\"]}",
     DTP_EUNSUPPORTED,
     {"$.architectures[0]", "T5ForConditionalGeneration"}},
    {"{\"architectures\":[]}", DTP_EINPUT, {"config.json", "model_type"}},
    {"{" LLAMA "}", DTP_EINPUT, {"config.json", "missing key", "num_hidden_layers"}},
    {"{" LLAMA ",\"num_hidden_layers\":\"32\"}", DTP_EINPUT, {"$.num_hidden_layers", "integer"}},
    {"{" LLAMA ",\"num_hidden_layers\":0}", DTP_EINPUT, {"$.num_hidden_layers", "1 or more"}},
    {"{" LLAMA ",\"num_hidden_layers\":2.5}", DTP_EINPUT, {"$.num_hidden_layers", "integer"}},
    {"{" LLAMA ",\"num_hidden_layers\":32,\"num_key_value_heads\":5}", DTP_EINPUT, {"kv_heads"}},
    {"{" LLAMA ",\"num_hidden_layers\":32,\"hidden_act\":\"siluu\"}",
     DTP_EUNSUPPORTED,
     {"$.hidden_act", "siluu", "\"silu\""}},
    {"{" LLAMA ",\"num_hidden_layers\":32,\"attention_bias\":1}",
     DTP_EINPUT,
     {"$.attention_bias", "true or false"}},
    {"{\"model_type\":\"opt\",\"num_hidden_layers\":24,\"hidden_size\":1024,"
     "\"num_attention_heads\":16,\"vocab_size\":50272,\"word_embed_proj_dim\":512}",
     DTP_EINPUT,
     {"$.word_embed_proj_dim", "hidden_size"}},
    {"{\"model_type\":\"dbrx\",\"d_model\":64,\"n_heads\":4,\"n_layers\":2,"
     "\"attn_config\":3,\"ffn_config\":{}}",
     DTP_EINPUT,
     {"$.attn_config", "an object"}},
    /* own form */
    {"{\"layers\":2,\"hidden\":64,\"heads\":4,\"vocab\":100,\"hiden\":1}",
     DTP_EINPUT,
     {"config.json: $.hiden", "\"hidden\""}},
    {"{\"hidden\":64,\"heads\":4,\"vocab\":100}", DTP_EINPUT, {"missing key \"layers\""}},
    {"{\"layers\":2,\"heads\":4,\"vocab\":100}", DTP_EINPUT, {"missing key \"hidden\""}},
    {"{\"layers\":-2}", DTP_EINPUT, {"$.layers", "from 1 to"}},
    {"{\"layers\":2,\"hidden\":65,\"heads\":4,\"vocab\":100}", DTP_EINPUT, {"heads", "65"}},
    {"{\"layers\":2,\"family\":\"lama\"}", DTP_EINPUT, {"$.family", "llama"}},
    {"{\"layers\":2,\"norm\":\"batch\"}", DTP_EINPUT, {"$.norm", "batch"}},
    {"{\"layers\":2,\"moe\":{\"expert\":8}}", DTP_EINPUT, {"$.moe.expert", "\"experts\""}},
    {"{\"layers\":2,\"aliases\":[3]}", DTP_EINPUT, {"$.aliases[0]", "a name"}},
    {"{\"layers\":2,\"convs\":[{\"cin\":3}]}", DTP_EINPUT, {"$.convs[0]", "cout"}},
    {"{\"layers\":2,\"convs\":[{\"cin\":3,\"cout\":8,\"in_size\":8,\"groups\":2}]}",
     DTP_EINPUT,
     {"$.convs[0]", "groups"}},
    {"[]", DTP_EINPUT, {"config.json: $", "object"}},
};

static void test_located_errors(void) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dtp_model m;
        struct dtp_err err = {0};
        enum dtp_status status = read_text(bad[i].text, &m, &err);
        if (status != bad[i].status)
            fprintf(stderr, "%s: status %d, %s\n", bad[i].text, (int)status, err.msg);
        CU_ASSERT_EQUAL(status, bad[i].status);
        for (size_t k = 0; k < 3 && bad[i].parts[k]; k++) {
            if (!strstr(err.msg, bad[i].parts[k]))
                fprintf(stderr, "message lacks \"%s\": %s\n", bad[i].parts[k], err.msg);
            CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, bad[i].parts[k]));
        }
    }
}

/* Every prefix of a document is refused, with the file named. */
static void test_truncated(void) {
    const char *text = configs[3].text;
    for (size_t n = 0; n < strlen(text); n++) {
        const struct dtp_json *j;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL(dtp_json_parse(arena, "config.json", text, n, &j, &err), DTP_EINPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "config.json"));
    }
}

static CU_TestInfo read_tests[] = {
    {"counts", test_counts}, {"paths", test_paths}, CU_TEST_INFO_NULL};
static CU_TestInfo error_tests[] = {
    {"located", test_located_errors}, {"truncated", test_truncated}, CU_TEST_INFO_NULL};

int main(void) {
    CU_SuiteInfo suites[] = {
        {"Hugging Face configs", setup, teardown, NULL, NULL, read_tests},
        {"errors of dtp_model_read", setup, teardown, NULL, NULL, error_tests},
        CU_SUITE_INFO_NULL,
    };
    return run_suites(suites);
}
