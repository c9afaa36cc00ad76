/* Modules of a layer that selective recomputation chooses (modules.h): what each lets go, by hand, and what it runs
 * again. s b h and the like as in Korthikanti 2022, section 4.1: N = s b tokens, 2 bytes an element. */
#include <string.h>

#include "models/memory/memory.h"
#include "tests/op_case.h"
#include "tests/suites.h"

static struct fixture *module_case(const char *model, int tp, int ep) {
    struct fixture *x = op_case(model, "megatron-core");
    x->plan.tp = tp;
    x->plan.ep = ep;
    x->plan.sequence_parallel = tp > 1;
    x->plan.etp = ep > 1 ? 1 : 0;
    return x;
}

static double kept(struct fixture *x, enum dtp_layer_kind kind, int modules) {
    x->plan.recompute = modules ? DTP_RECOMPUTE_SELECTIVE : DTP_RECOMPUTE_NONE;
    x->plan.recompute_modules = modules;
    return dtp_memory_layer_activations(&x->problem, &x->plan, kind);
}

static double dropped(struct fixture *x, enum dtp_layer_kind kind, int modules) {
    return kept(x, kind, 0) - kept(x, kind, modules);
}

/* Forward operations that run again, of the name or all. */
static int repeated(struct fixture *x, enum dtp_layer_kind kind, int modules, const char *name) {
    int n = 0;
    kept(x, kind, modules);
    dtp_ops_layer(&x->problem, &x->plan, kind, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        n += x->ops.at[i].repeated && (!name || strcmp(x->ops.at[i].name, name) == 0);
    return n;
}

/* Equation 4: 34 s b h / t with its parts: of the MLP the inputs of fc1 2, of GELU 8, of fc2 8; 5 a s^2 b / t are
 * scores in memory. */
static void test_dense(void) {
    struct fixture *x = module_case("gpt22b", 8, 1);
    double n = x->model.seq, h = x->model.hidden, a = x->model.heads, t = 8;
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_MLP), 18 * n * h / t);
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_CORE_ATTN), 4 * n * a / t); /* log-sum-exp */
    x->problem.attention = DTP_ATTN_UNFUSED;
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_CORE_ATTN), 5 * a * n * n / t);
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_CORE_ATTN | DTP_BIT_MLP),
         18 * n * h / t + 5 * a * n * n / t);
    /* no module given is the core; norms are part of the products here */
    x->plan.recompute_modules = 0;
    near(dtp_memory_layer_activations(&x->problem, &x->plan, DTP_LAYER_DENSE),
         kept(x, DTP_LAYER_DENSE, DTP_BIT_CORE_ATTN));
    CU_ASSERT(dropped(x, DTP_LAYER_DENSE, DTP_BIT_LAYERNORM) == 0);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_DENSE, DTP_BIT_LAYERNORM, NULL), 0);
    /* norm, gather, fc1, activation, fc2, scatter; nothing of attention */
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_DENSE, DTP_BIT_MLP, NULL), 6);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_DENSE, DTP_BIT_MLP, "norm 2"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_DENSE, DTP_BIT_MLP, "tp all-gather"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_DENSE, DTP_BIT_MLP, "tp reduce-scatter"), 1);
}

/* Mixtral: k of 8 experts, gated: rows 2 k N h into them, 4 k N f into the activation, 2 k N f into the second
 * product; the norm's output, 2 N h, is what the router and a checkpoint of all keep. */
static void test_experts(void) {
    struct fixture *x = module_case("mixtral-8x7b", 1, 8);
    double n = x->model.seq, h = x->model.hidden, f = x->model.moe.ffn, k = x->model.moe.top_k;
    x->framework.kernels.moe_imbalance = 1;
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_LAYERNORM), 2 * n * h);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT), 2 * k * n * f);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MOE), k * n * (2 * h + 6 * f));
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MOE | DTP_BIT_MOE_ACT), k * n * (2 * h + 6 * f));
    CU_ASSERT(dropped(x, DTP_LAYER_MOE, DTP_BIT_MLP) == 0);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT, NULL), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT, "activation"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_LAYERNORM, NULL), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE, "ep dispatch"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE, "ep combine"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE, "norm 2"), 0);
    /* in FP8 the cast of what is made again runs again */
    x->framework.kernels.fp8_recipe = DTP_FP8_CURRENT;
    x->plan.dtype = DTP_FP8;
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT), k * n * f);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT, "fp8 cast"), 1);
}

/* DeepSeek-V3: queries and keys of 128 + 64, values of 128 for each of 128 heads, from latents of 1536 and 512
 * whose normed copies the products up keep; two norms; a shared expert. */
static void test_latent_attention(void) {
    struct fixture *x = module_case("deepseek-v3", 1, 1);
    double n = x->model.seq, h = 7168, f = 2048;
    double latent = 2 * n * (128 * (2 * (128 + 64) + 128) + 1536 + 512);
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_MLA_UP_PROJ), latent);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ), latent);
    near(dropped(x, DTP_LAYER_DENSE, DTP_BIT_LAYERNORM), 2 * n * h);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_LAYERNORM), 4 * n * h);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_SHARED_EXPERTS), 6 * n * f);
    near(dropped(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ | DTP_BIT_LAYERNORM), latent + 4 * n * h);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ, "q up"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ, "kv norm"), 1);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ, "q down"), 0);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ, NULL), 5);
    CU_ASSERT_EQUAL(repeated(x, DTP_LAYER_MOE, DTP_BIT_LAYERNORM, NULL), 2);
}

/* Attention's part is recomputed when the MLP's is gone: the backward holds the larger part and what is kept. */
static void test_peak(void) {
    struct fixture *x = module_case("deepseek-v3", 1, 1);
    int both = DTP_BIT_MLA_UP_PROJ | DTP_BIT_MOE_ACT, layers = 62, first = 3; /* one is of MTP */
    double act = dropped(x, DTP_LAYER_MOE, DTP_BIT_MOE_ACT),
           up = dropped(x, DTP_LAYER_MOE, DTP_BIT_MLA_UP_PROJ);
    x->framework.keeps.logits_copies_bytes = 0; /* else the loss is the peak */
    struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x->problem);
    struct dtp_stage_memory stage[2];
    for (int i = 0; i < 2; i++) {
        kept(x, DTP_LAYER_MOE, i == 0 ? 0 : both);
        dtp_memory(memo, &x->plan, &stage[i]);
        CU_ASSERT_STRING_EQUAL(stage[i].moment, "backward");
    }
    near((double)stage[0].activations_bytes - (double)stage[1].activations_bytes,
         layers * up + (layers - first) * act - (act > up ? act : up));
}

static void test_models(void) {
    static const struct {
        const char *model;
        int has;
    } cases[] = {
        {"gpt22b", DTP_BIT_CORE_ATTN | DTP_BIT_MLP},
        {"mixtral-8x7b", DTP_BIT_CORE_ATTN | DTP_BIT_LAYERNORM | DTP_BIT_MOE | DTP_BIT_MOE_ACT},
        {"deepseek-v3", (1 << DTP_NMODULES) - 1},
        {"resnet50", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_model m;
        CU_ASSERT_FATAL(dtp_model_load(arena, cases[i].model, &m, NULL) == DTP_OK);
        CU_ASSERT_EQUAL(dtp_model_modules(&m), cases[i].has);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"dense layers", test_dense},
                           {"experts", test_experts},
                           {"latent attention", test_latent_attention},
                           {"peak", test_peak},
                           {"models", test_models},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"modules", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
