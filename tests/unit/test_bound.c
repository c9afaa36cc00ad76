/* BOUND against sums by hand on a model of equal layers, and against ESTIMATE: equal where the
 * formula is the longest path. */
#include <CUnit/Basic.h>
#include <math.h>

#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct fixture x;
static const double tolerance = 2e-11; /* the bound allows for rounding */

static void near(double got, double want) {
    expect_near(got, want, tolerance);
}

static void setup(const char *model) {
    problem_case(arena, &x, model, "megatron-core", 64, 128);
    x.problem.memory_limit_bytes = dtp_problem_default_limit(&x.problem);
}

static struct dtp_plan plan_of(int tp, int pp, int vpp, int schedule) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = tp;
    p.pp = pp;
    p.dp = 64 / tp / pp;
    p.vpp = vpp;
    p.schedule = schedule;
    p.global_batch_size = 128;
    p.dtype = DTP_BF16;
    return p;
}

/* pp = 1: m x (layers, embedding, head) + the tail is the longest path itself, but for what reductions
 * that do not hide add to the tail: without overlap, exactly. */
static void test_one_stage(void) {
    setup("gpt1.7b");
    struct dtp_plan p = plan_of(8, 1, 1, DTP_SCHED_1F1B);
    p.dp_overlap = 0;
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    x.framework.wire.param_gather_overlap = false;
    near(dtp_evaluate_bound(ev, &p), dtp_evaluate_estimate(ev, &p));
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x.problem);
    const struct dtp_layer_costs *l = dtp_cost_layers(memo, &p);
    struct dtp_bound_costs extra;
    dtp_cost_bound(memo, &p, &extra);
    double layer_s = 0;
    for (int k = 0; k < 4; k++)
        layer_s += x.model.layers * l->of[DTP_LAYER_DENSE][k].total_s +
                   l->of[DTP_LAYER_EMBEDDING][k].total_s + l->of[DTP_LAYER_HEAD][k].total_s;
    int m = dtp_plan_num_microbatches(&p);
    near(dtp_bound_s(memo, &x.problem, &p), m * layer_s + extra.fixed_s + extra.tail_s);
    dtp_evaluator_destroy(ev);
}

/* Dense and expert layers of which some are repeated: on one stage still the longest path. */
static void test_some_repeated(void) {
    setup("deepseek-v2-lite");
    x.framework.wire.param_gather_overlap = false;
    struct dtp_plan p = plan_of(1, 1, 1, DTP_SCHED_1F1B);
    p.global_batch_size = x.problem.global_batch = 128;
    p.dp_overlap = 0;
    p.recompute = DTP_RECOMPUTE_FULL;
    for (p.recompute_layers = 0; p.recompute_layers < x.model.layers; p.recompute_layers += 9) {
        struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
        near(dtp_evaluate_bound(ev, &p), dtp_evaluate_estimate(ev, &p));
        dtp_evaluator_destroy(ev);
    }
}

/* Equal stages: GPipe, 1F1B and interleaving of one model are within a few percent of the estimate,
 * never above it; with free transfers nearer still. */
static void test_pipelines(void) {
    setup("gpt18b");
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    static const int kinds[] = {DTP_SCHED_GPIPE, DTP_SCHED_1F1B, DTP_SCHED_INTERLEAVED};
    for (int k = 0; k < 3; k++)
        for (int pp = 2; pp <= 8; pp *= 2)
            for (int overlap = 0; overlap < 2; overlap++) {
                struct dtp_plan p = plan_of(8, pp, k == 2 ? 5 : 1, kinds[k]);
                p.p2p_overlap = overlap;
                double bound_s = dtp_evaluate_bound(ev, &p), s = dtp_evaluate_estimate(ev, &p);
                if (bound_s > s || bound_s < 0.93 * s)
                    printf("\n  %s: bound %.9g estimate %.9g\n", dtp_plan_flags(arena, &p), bound_s,
                           s);
                CU_ASSERT(bound_s <= s && bound_s > 0.93 * s);
            }
    dtp_evaluator_destroy(ev);
}

/* A list of layers that says what is the default gives the same bound as no list; a longer last stage
 * gives more. */
static void test_uneven(void) {
    setup("gpt18b");
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    struct dtp_plan p = plan_of(8, 4, 1, DTP_SCHED_1F1B);
    CU_ASSERT_FATAL(x.model.layers == 40);
    double even_s = dtp_evaluate_bound(ev, &p);
    int even[] = {10, 10, 10, 10}, uneven[] = {10, 10, 9, 11};
    p.layers_per_stage = (struct dtp_ints){even, 4};
    near(dtp_evaluate_bound(ev, &p), even_s);
    p.layers_per_stage = (struct dtp_ints){uneven, 4};
    CU_ASSERT(dtp_evaluate_bound(ev, &p) > even_s);
    CU_ASSERT(dtp_evaluate_bound(ev, &p) <= dtp_evaluate_estimate(ev, &p));
    dtp_evaluator_destroy(ev);
}

/* Recomputation of the first n layers of a chunk: monotone in n, between none and full. */
static void test_recompute(void) {
    setup("gpt18b");
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    struct dtp_plan p = plan_of(8, 4, 1, DTP_SCHED_1F1B);
    double before_s = dtp_evaluate_bound(ev, &p);
    p.recompute = DTP_RECOMPUTE_FULL;
    for (int n = 1; n <= 10; n++) {
        p.recompute_layers = n;
        double now_s = dtp_evaluate_bound(ev, &p);
        CU_ASSERT(now_s > before_s);
        CU_ASSERT(now_s <= dtp_evaluate_estimate(ev, &p) * (1 + tolerance));
        before_s = now_s;
    }
    p.recompute_layers = 0;
    near(dtp_evaluate_bound(ev, &p), before_s);
    dtp_evaluator_destroy(ev);
}

/* Split backward and V-shaped placement: below the estimate, and not far. */
static void test_zero_bubble(void) {
    setup("gpt18b");
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    for (int pp = 2; pp <= 4; pp *= 2)
        for (int v = 0; v < 2; v++)
            for (int overlap = 0; overlap < 2; overlap++) {
                struct dtp_plan p = plan_of(8, pp, v ? 2 : 1, v ? DTP_SCHED_ZB_V : DTP_SCHED_ZB_H1);
                p.p2p_overlap = overlap;
                double bound_s = dtp_evaluate_bound(ev, &p), s = dtp_evaluate_estimate(ev, &p);
                if (bound_s > s || bound_s < 0.85 * s)
                    printf("\n  %s: bound %.9g estimate %.9g\n", dtp_plan_flags(arena, &p), bound_s,
                           s);
                CU_ASSERT(bound_s <= s && bound_s > 0.85 * s);
            }
    dtp_evaluator_destroy(ev);
}

int main(void) {
    CU_TestInfo tests[] = {{"one stage", test_one_stage},
                           {"some layers repeated", test_some_repeated},
                           {"equal stages", test_pipelines},
                           {"uneven stages", test_uneven},
                           {"recomputation", test_recompute},
                           {"zero bubble", test_zero_bubble},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"bound", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
