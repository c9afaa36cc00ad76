/* Which layers have a window, as configs of Hugging Face say it in their several ways, and what operations
 * such layers have. */
#include <CUnit/Basic.h>
#include <string.h>

#include "tests/op_case.h"
#include "tests/suites.h"

static enum dtp_status read_config(const char *keys, struct dtp_model *m, struct dtp_err *err) {
    const struct dtp_json *j;
    const char *text = dtp_arena_printf(
        arena,
        "{%s,\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":8,"
        "\"intermediate_size\":128,\"vocab_size\":100,\"max_position_embeddings\":8192}",
        keys);
    DTP_TRY(dtp_json_parse(arena, "config.json", text, strlen(text), &j, err));
    return dtp_model_read(arena, j, m, err);
}

#define LOCAL "\"sliding_attention\""
#define FULL "\"full_attention\""

/* Windows, every so many-th layer without, chunks. */
static const struct {
    const char *keys;
    int window, step;
    bool chunked;
} configs[] = {
    {"\"model_type\":\"gemma2\"", 4096, 2, false},
    {"\"model_type\":\"gemma2\",\"sliding_window\":null", 0, 0, false},
    {"\"model_type\":\"gemma3_text\",\"sliding_window\":1024", 1024, 6, false},
    {"\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":4", 4096, 4, false},
    {"\"model_type\":\"gemma3_text\",\"_sliding_window_pattern\":3", 4096, 3, false},
    {"\"model_type\":\"cohere2\"", 4096, 4, false},
    {"\"model_type\":\"exaone4\",\"sliding_window\":64,\"sliding_window_pattern\":\"LLG\"", 64, 3,
     false},
    {"\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"sliding_window\":128", 128, 2, false},
    {"\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"sliding_window\":128,"
     "\"layer_types\":[" LOCAL "," LOCAL "," LOCAL "," FULL "," LOCAL "," LOCAL "," LOCAL "," FULL
     "]",
     128, 4, false},
    {"\"model_type\":\"gemma2\",\"layer_types\":[" FULL "," FULL "," FULL "," FULL "," FULL "," FULL
     "," FULL "," FULL "]",
     0, 0, false},
    {"\"model_type\":\"mistral\",\"sliding_window\":16", 16, 0, false},
    {"\"model_type\":\"qwen2\",\"sliding_window\":16,\"use_sliding_window\":false", 0, 0, false},
    {"\"model_type\":\"qwen2\",\"sliding_window\":16,\"use_sliding_window\":true,"
     "\"max_window_layers\":8",
     0, 0, false},
    {"\"model_type\":\"qwen2\",\"sliding_window\":16,\"use_sliding_window\":true", 16, 0, false},
    {"\"model_type\":\"llama4_text\",\"num_local_experts\":4", 8192, 4, true},
    {"\"model_type\":\"llama4_text\",\"num_local_experts\":4,\"attention_chunk_size\":null", 0, 0,
     false},
    {"\"model_type\":\"llama\",\"layer_types\":\"none of its keys\"", 0, 0, false},
};

static void test_configs(void) {
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct dtp_model m;
        struct dtp_err err = {0};
        if (read_config(configs[i].keys, &m, &err) != DTP_OK)
            printf("\n  %s: %s\n", configs[i].keys, err.msg);
        CU_ASSERT_EQUAL_FATAL(err.status, DTP_OK);
        bool right = m.sliding_window == configs[i].window &&
                     m.full_attention_step == configs[i].step &&
                     m.chunked_attention == configs[i].chunked;
        if (!right)
            printf("\n  %s: window %d, step %d\n", configs[i].keys, m.sliding_window,
                   m.full_attention_step);
        CU_ASSERT(right);
    }
}

static const struct {
    const char *keys, *part;
} refused[] = {
    {"\"model_type\":\"gemma2\",\"layer_types\":[" FULL "]", "as many types as layers"},
    {"\"model_type\":\"gemma2\",\"layer_types\":[" FULL "," LOCAL "," FULL "," FULL "," FULL
     "," FULL "," FULL "," FULL "]",
     "$.layer_types[1]"},
    {"\"model_type\":\"gemma2\",\"layer_types\":[\"linear_attention\"," LOCAL "," FULL "," FULL
     "," FULL "," FULL "," FULL "," FULL "]",
     "$.layer_types[0]"},
    {"\"model_type\":\"exaone4\",\"sliding_window\":64,\"sliding_window_pattern\":\"LGL\"",
     "a global one"},
    {"\"model_type\":\"qwen2\",\"sliding_window\":16,\"use_sliding_window\":true,"
     "\"max_window_layers\":3",
     "$.max_window_layers"},
};

static void test_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct dtp_model m;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL(read_config(refused[i].keys, &m, &err), DTP_EINPUT);
        if (!strstr(err.msg, refused[i].part))
            printf("\n  %s\n", err.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, refused[i].part));
    }
}

static double attention_flops(struct fixture *x, enum dtp_layer_kind kind) {
    double sum = 0;
    dtp_ops_layer(&x->problem, &x->plan, kind, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        if (x->ops.at[i].kind == DTP_OP_ATTENTION && x->ops.at[i].pass == DTP_PASS_F)
            sum += dtp_op_flops(&x->ops.at[i]);
    return sum;
}

/* In a layer with a window all but attention is as in one without; attention has the pairs that causal mask and
 * window leave, whatever cp divides them by; it keeps the same activations. */
static void test_window_layer(void) {
    struct fixture *x = op_case("gemma3-1b", "megatron-core");
    double s = 8192, w = 512, width = 4.0 * 256;
    x->problem.attention = DTP_ATTN_FLASH2;
    x->problem.seq = 8192;
    double full = flops(x, DTP_LAYER_DENSE, DTP_PASS_F);
    double less = full - flops(x, DTP_LAYER_DENSE_WINDOW, DTP_PASS_F);
    near(attention_flops(x, DTP_LAYER_DENSE), 4 * width * s * s / 2);
    near(attention_flops(x, DTP_LAYER_DENSE_WINDOW), 4 * width * (s * s - (s - w) * (s - w)) / 2);
    near(less, attention_flops(x, DTP_LAYER_DENSE) - attention_flops(x, DTP_LAYER_DENSE_WINDOW));
    near(dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_DENSE_WINDOW),
         dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_DENSE));
    double whole = attention_flops(x, DTP_LAYER_DENSE_WINDOW);
    x->plan.cp = 4;
    near(attention_flops(x, DTP_LAYER_DENSE_WINDOW), whole / 4);
    x->plan.cp = 1;
    x->problem.seq = 512; /* all keys are in it */
    near(flops(x, DTP_LAYER_DENSE_WINDOW, DTP_PASS_F), flops(x, DTP_LAYER_DENSE, DTP_PASS_F));
}

/* Four chunks are four sequences of a quarter; ranks of cp that hold less than a chunk see it all; a last chunk that
 * is shorter counts too. */
static void test_chunks(void) {
    struct fixture *x = op_case("llama4-scout", "megatron-core");
    double s = 32768, chunk = 8192, width = 40.0 * 128;
    x->problem.attention = DTP_ATTN_FLASH2;
    x->problem.seq = 32768;
    near(attention_flops(x, DTP_LAYER_MOE), 4 * width * s * s / 2);
    near(attention_flops(x, DTP_LAYER_MOE_WINDOW), 4 * width * s * chunk / 2);
    x->plan.cp = 8;
    near(attention_flops(x, DTP_LAYER_MOE_WINDOW), 4 * width * s * chunk / 2 / 8);
    x->plan.cp = 1;
    x->problem.seq = 12288; /* as two of 6144 */
    near(attention_flops(x, DTP_LAYER_MOE_WINDOW), 4 * width * 12288 * 6144 / 2);
    x->plan.cp = 2;
    near(attention_flops(x, DTP_LAYER_MOE_WINDOW), 4 * width * 12288 * 6144 / 2 / 2);
}

int main(void) {
    CU_TestInfo reading[] = {
        {"configs", test_configs}, {"refused", test_refused}, CU_TEST_INFO_NULL};
    CU_TestInfo layers[] = {
        {"a layer with a window", test_window_layer}, {"chunks", test_chunks}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"windows of configs", setup, teardown, NULL, NULL, reading},
                             {"layers with windows", setup, teardown, NULL, NULL, layers},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
