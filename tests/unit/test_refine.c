/* What the search does not try: a cut has all layers, fits, and takes as long when simulated alone; of layers that
 * are recomputed one less is too much. */
#include "planner/refine.h"

#include "tests/planner_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static bool refined(const struct planner_case *c, struct dtp_result *best, struct dtp_result *out,
                    struct dtp_problem *problem) {
    struct dtp_setup *s = case_setup(arena, c);
    struct dtp_limits limits = case_limits(arena, c, s);
    struct dtp_search search;
    *problem = s->problem;
    CU_ASSERT_EQUAL_FATAL(dtp_search(arena, &s->problem, &limits, NULL, &search, NULL), DTP_OK);
    CU_ASSERT_FATAL(search.nresults > 0);
    *best = search.result[0];
    return dtp_refine(arena, &s->problem, &search, out);
}

/* The head of 152k entries is 1.6 layers of Qwen2.5 32B. */
static void test_found(void) {
    static const struct planner_case c = {"qwen2.5-32b", "hgx-h100", "megatron-core", 32, 256, 0, 0,
                                          "pp=4,vpp=1"};
    struct dtp_result best, cut, alone;
    struct dtp_problem problem;
    CU_ASSERT_FATAL(refined(&c, &best, &cut, &problem));
    const struct dtp_ints *layers = &cut.plan.layers_per_stage;
    int sum = 0;
    for (size_t i = 0; i < layers->n; i++)
        sum += layers->at[i];
    CU_ASSERT(layers->n == 4 && sum == problem.model->layers && layers->at[3] < layers->at[0]);
    CU_ASSERT(cut.fits && cut.step_s < 0.99 * best.step_s && cut.step_s > 0.9 * best.step_s);
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &problem);
    CU_ASSERT_EQUAL(dtp_evaluate(arena, ev, &cut.plan, DTP_SIMULATE, NULL, &alone, NULL), DTP_OK);
    CU_ASSERT_EQUAL(alone.step_s, cut.step_s);
    dtp_evaluator_destroy(ev);
}

/* FSDP2 has recomputation of all layers or none. */
static void test_layers(void) {
    static const struct planner_case c = {"llama3-8b", "hgx-h100", "torch-fsdp2", 8, 64,
                                          0,           0,          NULL};
    struct dtp_result best, r, less;
    struct dtp_problem problem;
    CU_ASSERT_FATAL(refined(&c, &best, &r, &problem));
    CU_ASSERT(best.plan.recompute == DTP_RECOMPUTE_FULL && best.plan.recompute_layers == 0);
    CU_ASSERT(r.plan.recompute_layers > 0 && r.plan.recompute_layers < problem.model->layers);
    CU_ASSERT(r.fits && r.step_s < 0.99 * best.step_s);
    struct dtp_plan p = r.plan;
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &problem);
    p.recompute_layers--;
    CU_ASSERT_EQUAL(dtp_evaluate(arena, ev, &p, DTP_ESTIMATE, NULL, &less, NULL), DTP_OK);
    CU_ASSERT(!less.fits);
    dtp_evaluator_destroy(ev);
}

/* Even stages, no stages, chunks, no room for one layer more in the first stage; nothing recomputed. */
static void test_none(void) {
    static const struct planner_case none[] = {
        {"gpt3-13b", "dgx-a100-80", "megatron-core", 8, 64, 0, 0, "pp=4,vpp=1,tp=2"},
        {"gpt3-1.3b", "dgx-a100-80", "megatron-core", 8, 64, 0, 0, "pp=1"},
        {"qwen2.5-32b", "hgx-h100", "megatron-core", 32, 256, 0, 0, "pp=4,vpp=4"},
        {"llama3-8b", "hgx-h100", "megatron-core", 8, 64, 0, 0, "pp=2,vpp=1,tp=1,recompute=none"}};
    struct dtp_result best, cut;
    struct dtp_problem problem;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CU_ASSERT(!refined(&none[i], &best, &cut, &problem));
}

int main(void) {
    CU_TestInfo tests[] = {{"a cut", test_found},
                           {"recomputed layers", test_layers},
                           {"none to be found", test_none},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"refine", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
