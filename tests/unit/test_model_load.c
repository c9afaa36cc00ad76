/* Finding, reading, writing and completing models. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "models/model/model.h"
#include "sim/base/text.h"
#include "tests/model_case.h"
#include "tests/model_equal.h"
#include "tests/suites.h"

/* ---- loading --------------------------------------------------------------------------------- */

static void test_names_people_type(void) {
    static const char *const rows[][2] = {
        {"GPT3", "gpt175b"},
        {"gpt3-175b", "gpt175b"},
        {"gpt-175b", "gpt175b"},
        {"llama-3-70b", "llama3-70b"},
        {"Llama3_70B", "llama3-70b"},
        {"meta-llama/Meta-Llama-3-70B", "llama3-70b"},
        {"gpt-1.7b", "gpt1.7b"},
        {"meta-llama/Llama-3.1-8B", "llama3.1-8b"},
        {"bloom", "bloom176b"},
        {"mt-nlg", "gpt530b"},
        {"Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"},
        {"Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"},
        {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
        {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
        {"moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"},
        {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
        {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
        {"unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama3.1-8b"},
        {"google/gemma-3-27b-it", "gemma3-27b"},
        {"qwen3_32b_bf16", "qwen3-32b"},
        {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"},
        {"zai-org/GLM-4.5-Air-FP8", "glm4.5-air"},
        {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
        {"mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"},
        {"HuggingFaceTB/SmolLM-1.7B", "smollm2-1.7b"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CU_ASSERT_STRING_EQUAL(load(rows[i][0]).name, rows[i][1]);
}

static void expect_load_error(const char *name, const char *const *parts) {
    struct dtp_model m;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_model_load(arena, name, &m, &err), DTP_EINPUT);
    for (; *parts; parts++) {
        if (!strstr(err.msg, *parts))
            fprintf(stderr, "%s: message lacks \"%s\": %s\n", name, *parts, err.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, *parts));
    }
}

static void test_unknown_name(void) {
    expect_load_error("llama3-70c", (const char *const[]){"\"llama3-70c\"", "llama3-70b", NULL});
    expect_load_error("gtp175b", (const char *const[]){"gpt175b", NULL});
    expect_load_error(
        "a-laboratory-of-somewhere/Qwen3-9B-Thinking-2507",
        (const char *const[]){"-laboratory-of-somewhere/Qwen3-9B-Thinking-2507\"", "qwen3-", NULL});
    /* 9999 is no date, and V3.2 and VL are architectures that the library does not hold. */
    expect_load_error("qwen3-8b-9999", (const char *const[]){"qwen3-8b", NULL});
    expect_load_error("deepseek-v3.2", (const char *const[]){"deepseek-v3", NULL});
    expect_load_error("qwen3-vl-4b-instruct", (const char *const[]){"unknown model", NULL});
    expect_load_error("-instruct", (const char *const[]){"unknown model", NULL});
    expect_load_error("", (const char *const[]){"model", NULL});
    expect_load_error("../hw/gpu/a100-80", (const char *const[]){"unknown model", NULL});
    expect_load_error("/no/such/file.json", (const char *const[]){"/no/such/file.json", NULL});
}

/* A name must not stand for two models, however it is spelled. */
static void test_no_alias_twice(void) {
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, NULL) == DTP_OK);
    for (size_t i = 0; i < n; i++) {
        const char *file = dtp_arena_printf(arena, "models/library/%s.json", names[i]);
        const struct dtp_json *j, *aliases;
        CU_ASSERT_FATAL(dtp_json_read_file(arena, dtp_data_path(arena, file), &j, NULL) == DTP_OK);
        aliases = dtp_json_get(j, "aliases");
        CU_ASSERT_STRING_EQUAL(load(names[i]).name, names[i]);
        for (size_t k = 0; aliases && k < dtp_json_size(aliases); k++) {
            const char *alias = dtp_json_string(dtp_json_at(aliases, k));
            struct dtp_model m = load(dtp_arena_printf(arena, "owner/%s", alias));
            if (strcmp(m.name, names[i]) != 0)
                fprintf(stderr, "alias %s of %s finds %s\n", alias, names[i], m.name);
            CU_ASSERT_STRING_EQUAL(m.name, names[i]);
        }
    }
}

/* write -> read gives the same struct, and the same bytes again. */
static void test_write_read(void) {
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, NULL) == DTP_OK);
    for (size_t i = 0; i < n; i++) {
        struct dtp_model m = load(names[i]), back;
        char *text = NULL;
        size_t length = 0;
        FILE *f = open_memstream(&text, &length);
        struct dtp_json_out w;
        struct dtp_err err = {0};
        const struct dtp_json *j;
        dtp_json_begin(&w, f, 0);
        dtp_model_write(&w, &m);
        fclose(f);
        CU_ASSERT_EQUAL_FATAL(dtp_json_parse(arena, "written", text, length, &j, &err), DTP_OK);
        if (dtp_model_read(arena, j, &back, &err) != DTP_OK)
            fprintf(stderr, "%s: %s\n", names[i], err.msg);
        CU_ASSERT_FATAL(err.status == DTP_OK);
        CU_ASSERT(model_equal(&m, &back));
        back.ffn++;
        CU_ASSERT_FALSE(model_equal(&m, &back));
        free(text);
    }
}

/* ---- descriptions built in code -------------------------------------------------------------- */

static void test_finish_defaults(void) {
    struct dtp_model m;
    CU_ASSERT_EQUAL(dtp_model_family("gpt", &m, NULL), DTP_OK);
    m.layers = 24;
    m.hidden = 2304;
    m.heads = 24;
    m.vocab = 51200;
    m.seq = 2048;
    CU_ASSERT_EQUAL(dtp_model_finish(&m, NULL), DTP_OK);
    CU_ASSERT_EQUAL(m.kv_heads, 24);
    CU_ASSERT_EQUAL(m.head_dim, 96);
    CU_ASSERT_EQUAL(m.ffn, 4 * 2304);
    CU_ASSERT_EQUAL(m.layer_norms, 2);
    CU_ASSERT_EQUAL(m.global_batch * m.seq, 4194304);
    struct dtp_model same = load("gpt1.7b");
    CU_ASSERT_EQUAL(total_params(&m), total_params(&same));
    struct dtp_model again = m;
    CU_ASSERT_EQUAL(dtp_model_finish(&again, NULL), DTP_OK);
    CU_ASSERT(model_equal(&m, &again));
}

static void test_finish_refuses(void) {
    const struct dtp_model good = load("llama3-8b");
    struct dtp_model m;
    struct dtp_err err;
#define REFUSED(part, ...)                                                                         \
    do {                                                                                           \
        m = good;                                                                                  \
        __VA_ARGS__;                                                                               \
        CU_ASSERT_EQUAL(dtp_model_finish(&m, &err), DTP_EINPUT);                                   \
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, part));                                             \
    } while (0)
    REFUSED("layers", m.layers = 0);
    REFUSED("heads", m.heads = 0);
    REFUSED("vocab", m.vocab = 0);
    REFUSED("kv_heads", m.kv_heads = 5);
    REFUSED("do not divide hidden", m.head_dim = 0; m.heads = 48);
    REFUSED("top_k", m.moe.experts = 8; m.moe.top_k = 9);
    REFUSED("learned positions", m.position = DTP_POS_LEARNED; m.max_positions = 1024);
    REFUSED("patches", m.patch = 16; m.image = 225; m.channels = 3);
    REFUSED("more than can be counted", m.layers = 2048; m.hidden = 1000000; m.heads = 100000;
            m.head_dim = 10000; m.ffn = 1000000);
    REFUSED("ffn: found 1000001, expected 0 to 1000000", m.ffn = 1000001);
    REFUSED("moe.experts: found -1", m.moe.experts = -1);
    REFUSED("more than 1000 patches", m.patch = 1; m.image = 100000; m.channels = 3);
#undef REFUSED
    CU_ASSERT_EQUAL(dtp_model_family("lama", &m, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "llama"));
}

static CU_TestInfo load_tests[] = {{"names people type", test_names_people_type},
                                   {"unknown names", test_unknown_name},
                                   {"no alias twice", test_no_alias_twice},
                                   {"write and read", test_write_read},
                                   CU_TEST_INFO_NULL};
static CU_TestInfo finish_tests[] = {
    {"defaults", test_finish_defaults}, {"refusals", test_finish_refuses}, CU_TEST_INFO_NULL};

int main(void) {
    CU_SuiteInfo suites[] = {
        {"dtp_model_load", setup, teardown, NULL, NULL, load_tests},
        {"dtp_model_finish", setup, teardown, NULL, NULL, finish_tests},
        CU_SUITE_INFO_NULL,
    };
    return run_suites(suites);
}
