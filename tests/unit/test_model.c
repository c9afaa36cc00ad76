/* Parameter and FLOP counts of the model library against published figures. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "models/model/model.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "tests/model_case.h"
#include "tests/near.h"
#include "tests/suites.h"

#define REL_TOL                                                                                    \
    1e-12 /* sums of products of integers below 2^53: only the order of adding differs */

static bool near(double got, double want) {
    return is_near(got, want, REL_TOL);
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Elements of the released checkpoints. */
static void test_exact_counts(void) {
    static const struct {
        const char *name;
        uint64_t params;
    } rows[] = {
        {"gpt2", 124439808},         {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},     {"llama-7b", 6738415616},        {"llama-13b", 13015864320},
        {"llama-65b", 65285660672},  {"llama2-70b", 68976648192},     {"llama3-8b", 8030261248},
        {"llama3-70b", 70553706496}, {"llama3.1-405b", 405853388800}, {"bloom176b", 176247271424},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dtp_model m = load(rows[i].name);
        if (total_params(&m) != rows[i].params)
            fprintf(stderr, "%s: %llu, published %llu\n", rows[i].name,
                    (unsigned long long)total_params(&m), (unsigned long long)rows[i].params);
        CU_ASSERT_EQUAL(total_params(&m), rows[i].params);
    }
}

/* Narayanan 2021, Table 1, to the digits printed there. */
static void test_ptdp_table_1(void) {
    static const struct {
        const char *name;
        double billions;
    } rows[] = {{"gpt1.7b", 1.7},   {"gpt3.6b", 3.6}, {"gpt7.5b", 7.5},   {"gpt18b", 18.4},
                {"gpt39b", 39.1},   {"gpt76b", 76.1}, {"gpt145b", 145.6}, {"gpt310b", 310.1},
                {"gpt530b", 529.6}, {"gpt1t", 1008.0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dtp_model m = load(rows[i].name);
        double billions = (double)total_params(&m) / DTP_GIGA;
        CU_ASSERT_EQUAL(m.vocab, 51200);
        CU_ASSERT_EQUAL(m.seq, 2048);
        CU_ASSERT_DOUBLE_EQUAL(floor(billions * 10 + 0.5) / 10, rows[i].billions, 1e-9);
    }
}

/* P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) (Narayanan 2021, section 5.1); its final norm, 2h,
 * is not counted there. */
static void test_ptdp_formula(void) {
    static const char *const names[] = {"gpt1.7b", "gpt18b", "gpt145b", "gpt530b", "gpt1t"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dtp_model m = load(names[i]);
        double l = m.layers, h = m.hidden, v = m.vocab, s = m.seq;
        double p = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h));
        CU_ASSERT(near((double)total_params(&m), p + 2 * h));
    }
}

/* What tools print for BERT is the encoder and the pooler: no dense, norm and bias of the
 * masked-token head, no next-sentence classifier. */
static void test_bert_without_heads(void) {
    static const struct {
        const char *name;
        uint64_t params;
    } rows[] = {{"bert-base", 109482240}, {"bert-large", 335141888}};
    for (size_t i = 0; i < 2; i++) {
        struct dtp_model m = load(rows[i].name);
        uint64_t h = (uint64_t)m.hidden, v = (uint64_t)m.vocab;
        CU_ASSERT_EQUAL(total_params(&m) - (h * h + h + 2 * h + v) - (2 * h + 2), rows[i].params);
    }
}

/* Billions of active parameters as published: Mixtral 12.9 and 39, DeepSeek-V2 21, V3 37,
 * Qwen3 22 (of 235). */
static void test_active_params(void) {
    static const struct {
        const char *name;
        double billions;
    } rows[] = {{"mixtral-8x7b", 12.9},
                {"mixtral-8x22b", 39},
                {"deepseek-v2", 21},
                {"deepseek-v3", 37},
                {"qwen3-235b-a22b", 22}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dtp_model m = load(rows[i].name);
        struct dtp_param_counts n;
        dtp_model_params(&m, m.vocab, &n);
        double ratio = (double)n.active / DTP_GIGA / rows[i].billions;
        CU_ASSERT_DOUBLE_EQUAL(ratio, 1, 0.03);
    }
}

/* Dense layers first, then MoE: DeepSeek-V3 has 3 and 58; every second layer MoE: half of them. */
static void test_moe_layers(void) {
    struct dtp_model m = load("deepseek-v3");
    struct dtp_param_counts n;
    dtp_model_params(&m, m.vocab, &n);
    CU_ASSERT(n.dense_layers == 3 && n.moe_layers == 58);
    CU_ASSERT(!dtp_model_layer_is_moe(&m, 2) && dtp_model_layer_is_moe(&m, 3));
    CU_ASSERT_EQUAL(n.moe_layer_experts, 256ull * 3 * 7168 * 2048);
    m = load("mixtral-8x7b");
    m.moe.layer_step = 2;
    dtp_model_params(&m, m.vocab, &n);
    CU_ASSERT(n.dense_layers == 16 && n.moe_layers == 16);
    CU_ASSERT(!dtp_model_layer_is_moe(&m, 0) && dtp_model_layer_is_moe(&m, 1));
}

/* Every entry: a source, a count within 5 % of a rounded published one, equal to an exact one. */
static void test_whole_library(void) {
    const char *const *names;
    size_t n;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, &err) == DTP_OK);
    CU_ASSERT(n >= 140);
    for (size_t i = 0; i < n; i++) {
        struct dtp_model m = load(names[i]);
        double params = (double)total_params(&m), published = m.published_params;
        bool exact = fmod(published, DTP_MEGA) != 0;
        bool right = exact ? params == published : fabs(params / published - 1) < 0.05;
        if (!right)
            fprintf(stderr, "%s: %.0f, published %.0f\n", names[i], params, published);
        CU_ASSERT(published > 0 && right);
        CU_ASSERT(strlen(m.source) > 20);
        CU_ASSERT_STRING_EQUAL(m.name, names[i]);
        CU_ASSERT(m.seq > 0 && m.global_batch > 0);
    }
}

/* 2 % and the rounding of the published digits are let pass: 1.65e9 as 1.7e9, 41.3e9 as 40e9. */
static void test_published_gap(void) {
    struct dtp_model m = load("gpt175b");
    double counted = (double)total_params(&m);
    m.published_params = 0;
    CU_ASSERT(dtp_model_published_gap(&m) == 0);
    m.published_params = 175e9;
    CU_ASSERT(dtp_model_published_gap(&m) == 0);
    m.published_params = floor(counted / 1.019) + 0.0;
    CU_ASSERT(dtp_model_published_gap(&m) == 0);
    m.published_params = 168e9;
    CU_ASSERT_DOUBLE_EQUAL(dtp_model_published_gap(&m), counted / 168e9 - 1, 1e-12);
    m.published_params = 200e9; /* rounded to 100e9s */
    CU_ASSERT(dtp_model_published_gap(&m) == 0);
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, NULL) == DTP_OK);
    for (size_t i = 0; i < n; i++) {
        m = load(names[i]);
        CU_ASSERT(dtp_model_published_gap(&m) == 0);
    }
}

static void test_parts_sum_to_total(void) {
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_model_list(arena, &names, &n, NULL) == DTP_OK);
    for (size_t i = 0; i < n; i++) {
        struct dtp_model m = load(names[i]);
        struct dtp_param_counts c;
        dtp_model_params(&m, m.vocab, &c);
        CU_ASSERT_EQUAL(c.total, c.embedding + c.head + c.final_norm +
                                     (uint64_t)c.dense_layers * c.dense_layer +
                                     (uint64_t)c.moe_layers * c.moe_layer);
        CU_ASSERT(c.active <= c.total && c.moe_layer_experts <= c.moe_layer);
        CU_ASSERT(m.nconvs > 0 || c.dense_layers + c.moe_layers == m.layers);
    }
}

/* Padding adds rows of h: once when tied, twice when not. */
static void test_padded_vocab(void) {
    struct dtp_param_counts bare, padded;
    struct dtp_model gpt = load("gpt175b"), llama = load("llama-7b");
    dtp_model_params(&gpt, 50257, &bare);
    dtp_model_params(&gpt, 51200, &padded);
    CU_ASSERT_EQUAL(padded.total - bare.total, (51200u - 50257u) * 12288u);
    dtp_model_params(&llama, 32000, &bare);
    dtp_model_params(&llama, 32128, &padded);
    CU_ASSERT_EQUAL(padded.total - bare.total, 2u * 128u * 4096u);
}

/* ---- FLOPs ----------------------------------------------------------------------------------- */

/* 96 B s l h^2 (1 + s / 6h + V / 16lh) for forward, backward and the recomputed forward of the
 * layers (Narayanan 2021, section 5.1): 4 forwards of the layers and 3 of the LM head. */
static void test_ptdp_flops(void) {
    static const char *const names[] = {"gpt1.7b", "gpt3.6b", "gpt7.5b", "gpt18b",  "gpt39b",
                                        "gpt76b",  "gpt145b", "gpt310b", "gpt530b", "gpt1t"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dtp_model m = load(names[i]);
        double l = m.layers, h = m.hidden, v = m.vocab, s = m.seq;
        double paper = 96 * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
        double head = 2 * s * h * v;
        double forward = dtp_model_forward_flops(&m, m.seq);
        CU_ASSERT(near(4 * (forward - head) + 3 * head, paper));
    }
}

/* By hand for Llama 3 8B: 2 x the weights of the matrices + 4 s^2 a d per layer. */
static void test_llama_flops(void) {
    struct dtp_model m = load("llama3-8b");
    double s = 8192, h = 4096, kv = 1024, f = 14336;
    double weights = 32 * (2 * h * h + 2 * h * kv + 3 * h * f) + 128256 * h;
    CU_ASSERT(near(dtp_model_forward_flops(&m, 8192), 2 * weights * s + 32 * 4 * s * s * h));
}

/* ResNet-50 at 224 pixels: 4,089,184,256 multiply-adds with the classifier. */
static void test_conv_flops(void) {
    struct dtp_model m = load("resnet50");
    CU_ASSERT_EQUAL(dtp_model_forward_flops(&m, m.seq), 2.0 * 4089184256.0);
}

/* ViT-B/16 by hand: 197 tokens, 196 patches, the classifier on one token. */
static void test_vit_flops(void) {
    struct dtp_model m = load("vit-b16");
    double s = 197, h = 768;
    double layer = 2 * 12 * h * h * s + 4 * s * s * h;
    CU_ASSERT_EQUAL(m.seq, 197);
    CU_ASSERT(near(dtp_model_forward_flops(&m, m.seq),
                   12 * layer + 2 * 16 * 16 * 3 * h * 196 + 2 * h * 1000));
}

/* A token pays for the router, top_k experts and the shared ones, not for the rest. */
static void test_moe_flops(void) {
    struct dtp_model m = load("mixtral-8x7b"), dense = m;
    double s = 4096, h = 4096, f = 14336;
    dense.moe = (struct dtp_moe){0};
    double more = dtp_model_forward_flops(&m, 4096) - dtp_model_forward_flops(&dense, 4096);
    CU_ASSERT(near(more, 32 * 2 * s * (3 * h * f + 8 * h))); /* 2 experts for 1 MLP */
}

/* Beyond the window a token more costs the same whatever the length. */
static void test_window_flops(void) {
    struct dtp_model m = load("mistral-7b");
    double at8k = dtp_model_forward_flops(&m, 8192), at16k = dtp_model_forward_flops(&m, 16384);
    CU_ASSERT(near(at16k, 2 * at8k));
    m.sliding_window = 0;
    CU_ASSERT(dtp_model_forward_flops(&m, 8192) > at8k);
}

/* Five of six layers with a window: of 62, ten see all keys. What is off by one layer is seen. */
static void test_alternating_windows(void) {
    struct dtp_model m = load("gemma3-27b"), full = m;
    double s = 131072, w = 1024, width = 32.0 * 128;
    int n[DTP_NLAYER_KINDS] = {0};
    full.sliding_window = full.full_attention_step = 0;
    dtp_model_count_kinds(&m, 0, m.layers, n);
    CU_ASSERT(n[DTP_LAYER_DENSE] == 10 && n[DTP_LAYER_DENSE_WINDOW] == 52);
    CU_ASSERT(dtp_model_layer_kind(&m, 4) == DTP_LAYER_DENSE_WINDOW &&
              dtp_model_layer_kind(&m, 5) == DTP_LAYER_DENSE);
    CU_ASSERT(near(dtp_model_forward_flops(&full, 131072) - dtp_model_forward_flops(&m, 131072),
                   52 * 4 * s * (s - w) * width));
    CU_ASSERT_EQUAL(dtp_model_forward_flops(&full, 1024), dtp_model_forward_flops(&m, 1024));
    m = load("llama4-maverick"); /* experts in every second layer, all keys in every fourth */
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        n[k] = 0;
    dtp_model_count_kinds(&m, 0, m.layers, n);
    CU_ASSERT(n[DTP_LAYER_MOE] == 12 && n[DTP_LAYER_MOE_WINDOW] == 12 &&
              n[DTP_LAYER_DENSE_WINDOW] == 24 && n[DTP_LAYER_DENSE] == 0);
}

/* What a causal mask leaves out, by counting pairs of one query and one key: those later, of the own window or
 * chunk. 4 a d FLOPs a pair. */
static void test_causal_flops(void) {
    enum { SEQ = 96 };
    struct dtp_model m = load("llama3-8b");
    m.layers = 1;
    for (int kind = 0; kind < 3; kind++) { /* all keys, window of 32, chunks of 32 */
        m.sliding_window = kind > 0 ? 32 : 0;
        m.chunked_attention = kind == 2;
        int counted = SEQ * (kind > 0 ? 32 : SEQ), seen = 0;
        for (int q = 0; q < SEQ; q++)
            for (int k = 0; k <= q; k++)
                seen += kind == 0 || (kind == 1 ? q - k < 32 : q / 32 == k / 32) ? 1 : 0;
        CU_ASSERT(near(dtp_model_forward_flops(&m, SEQ) - dtp_model_causal_flops(&m, SEQ),
                       4.0 * m.heads * m.head_dim * (counted - seen)));
    }
    m = load("bert-large");
    CU_ASSERT_EQUAL(dtp_model_causal_flops(&m, 512), dtp_model_forward_flops(&m, 512));
    m = load("resnet50");
    CU_ASSERT_EQUAL(dtp_model_causal_flops(&m, 1), dtp_model_forward_flops(&m, 1));
}

/* A depth of multi-token prediction: one more layer, 2h x h and the head, on FLOPs and not on what the model is
 * called by: 671B, 11.5B more with norms (DeepSeek-V3's README: 14B with a copy each of table and head). */
static void test_multi_token(void) {
    struct dtp_model m = load("deepseek-v3"), main = m;
    struct dtp_param_counts n, alone;
    double s = 4096, h = 7168, v = 129280, qk = 192, heads = 128, ffn = 2048;
    main.mtp_layers = 0;
    dtp_model_params(&m, m.vocab, &n);
    dtp_model_params(&main, m.vocab, &alone);
    CU_ASSERT(n.total == alone.total && n.active == alone.active && alone.mtp == 0);
    CU_ASSERT_EQUAL(n.mtp, 2 * 7168 * 7168 + 3 * 7168);
    CU_ASSERT(near((double)(n.mtp + n.moe_layer) / 11.6e9, 1) ||
              fabs((double)(n.mtp + n.moe_layer) - 11.6e9) < 0.05e9);
    double attention =
        h * 1536 + 1536 * heads * qk + h * (512 + 64) + 512 * heads * 256 + heads * 128 * h;
    double layer = 2 * s * (attention + h * 256 + 9 * 3 * h * ffn) + 2 * s * s * heads * (qk + 128);
    CU_ASSERT(near(dtp_model_forward_flops(&m, 4096) - dtp_model_forward_flops(&main, 4096),
                   layer + 2 * s * (2 * h * h) + 2 * s * h * v));
}

/* Counts of a stretch of layers, depths after the last too, are those of its layers one by one. */
static void test_kinds_counted(void) {
    for (int first = 0; first <= 6; first++)
        for (int step = 1; step <= 3; step++)
            for (int window = 0; window <= 4; window += 4) {
                struct dtp_model m = {.layers = 5, .moe = {.experts = first < 6 ? 4 : 0}};
                m.moe.dense_layers_first = first;
                m.moe.layer_step = step;
                m.full_attention_step = window;
                for (int from = 0; from < 5; from++)
                    for (int to = from; to <= 7; to++) {
                        int n[DTP_NLAYER_KINDS] = {0}, want[DTP_NLAYER_KINDS] = {0};
                        dtp_model_count_kinds(&m, from, to, n);
                        for (int l = from; l < to; l++)
                            want[dtp_model_layer_kind(&m, l)]++;
                        CU_ASSERT(memcmp(n, want, sizeof n) == 0);
                    }
            }
}

static CU_TestInfo params_tests[] = {{"exact counts", test_exact_counts},
                                     {"PTD-P Table 1", test_ptdp_table_1},
                                     {"PTD-P formula", test_ptdp_formula},
                                     {"BERT without heads", test_bert_without_heads},
                                     {"active parameters", test_active_params},
                                     {"MoE layers", test_moe_layers},
                                     {"kinds counted", test_kinds_counted},
                                     {"whole library", test_whole_library},
                                     {"counted against published", test_published_gap},
                                     {"parts sum to total", test_parts_sum_to_total},
                                     {"padded vocabulary", test_padded_vocab},
                                     CU_TEST_INFO_NULL};
static CU_TestInfo flops_tests[] = {{"PTD-P FLOPs", test_ptdp_flops},
                                    {"Llama 3 by hand", test_llama_flops},
                                    {"ResNet-50", test_conv_flops},
                                    {"ViT-B/16 by hand", test_vit_flops},
                                    {"MoE", test_moe_flops},
                                    {"window", test_window_flops},
                                    {"alternating windows", test_alternating_windows},
                                    {"causal mask", test_causal_flops},
                                    {"multi-token prediction", test_multi_token},
                                    CU_TEST_INFO_NULL};
int main(void) {
    CU_SuiteInfo suites[] = {
        {"dtp_model_params", setup, teardown, NULL, NULL, params_tests},
        {"dtp_model_forward_flops", setup, teardown, NULL, NULL, flops_tests},
        CU_SUITE_INFO_NULL,
    };
    return run_suites(suites);
}
