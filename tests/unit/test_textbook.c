/* Framework `ideal`: the simulated bubble of a model of the library equals the published formula, its stages are equal,
 * and it has whatever another framework has. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "models/cost/cost.h"
#include "models/framework/optimizer.h"
#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/schedule_path.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const double tolerance = 1e-9;

struct shape {
    int kind, pp, vpp, m;
};

static struct dtp_plan plan_of(const struct fixture *x, const struct shape *s) {
    struct dtp_plan plan = x->plan;
    plan.schedule = s->kind;
    plan.pp = s->pp;
    plan.vpp = s->vpp;
    CU_ASSERT_EQUAL_FATAL(dtp_plan_check(&x->problem, &plan), DTP_LEGAL);
    return plan;
}

/* Free links are a framework file's comm_time_factor of 0. With 4,096 tokens attention makes F longer than W, which
 * ZB-H1's formula needs: only then the weight gradients kept back fit into the gaps. */
static void load_case(struct fixture *x, const struct shape *s) {
    problem_case(arena, x, "gpt7.5b", "ideal", s->pp, s->m);
    x->problem.seq = 4096;
    x->framework.wire.comm_time_factor = 0;
}

/* Times of a virtual stage, which are those of all of them: 36 layers, embedding and head on pp vpp stages. */
static struct path_times equal_times(struct fixture *x, const struct dtp_plan *plan) {
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x->problem);
    const struct dtp_layer_costs *layer = dtp_cost_layers(memo, plan);
    struct dtp_costs c;
    double sum_s[3] = {0};
    dtp_costs(arena, memo, plan, &c);
    for (int k = 0; k < 3; k++)
        sum_s[k] =
            (36 * layer->of[DTP_LAYER_DENSE][k].total_s +
             layer->of[DTP_LAYER_EMBEDDING][k].total_s + layer->of[DTP_LAYER_HEAD][k].total_s) /
            c.nstages;
    for (int vs = 0; vs < c.nstages; vs++) {
        expect_near(c.stage[vs].f.total_s, sum_s[0], tolerance);
        expect_near(c.stage[vs].i.total_s, sum_s[1], tolerance);
        expect_near(c.stage[vs].w.total_s, sum_s[2], tolerance);
        CU_ASSERT(c.stage[vs].f.host_s == 0 && c.stage[vs].i.host_s == 0);
        CU_ASSERT(c.stage[vs].send_f.time_s == 0 && c.stage[vs].send_b.time_s == 0);
    }
    return (struct path_times){sum_s[0], sum_s[1] + sum_s[2], sum_s[1], sum_s[2], 0};
}

/* The bubble of a rank in seconds, from the times of a chunk. Narayanan 2021, 2.2: (p - 1)(F + B), of a stage in v
 * chunks 1/v; Qi 2023, 2.3: ZB-H1 (p - 1)(F + I - W); ZB-H2 has nothing but the way down of the first microbatch,
 * (p - 1) F, where F + I - 2 W < F. Naive (Huang 2019, figure 2b): one of p stages works at any moment. ZB-V has no formula for unequal F, I and W: a longest path of the test's own. */
static double published_s(const struct shape *s, const struct path_times *t) {
    double fill = s->pp - 1;
    struct dtp_schedule order;
    switch (s->kind) {
    case DTP_SCHED_ZB_H1:
        CU_ASSERT(t->w < t->f);
        return fill * (t->f + t->i - t->w);
    case DTP_SCHED_ZB_H2:
        CU_ASSERT(t->i < 2 * t->w);
        return fill * t->f;
    case DTP_SCHED_ZB_V:
        CU_ASSERT_FATAL(dtp_schedule_make(arena, s->kind, s->pp, s->vpp, s->m, &order, NULL) ==
                        DTP_OK);
        return path_step(&order, t) - s->m * s->vpp * (t->f + t->i + t->w);
    case DTP_SCHED_NAIVE:
        return fill * s->m * (t->f + t->b);
    default:
        return fill * (t->f + t->b);
    }
}

static struct dtp_result simulated(struct fixture *x, const struct dtp_plan *plan) {
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x->problem);
    struct dtp_result r = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_evaluate(arena, ev, plan, DTP_SIMULATE, NULL, &r, NULL), DTP_OK);
    dtp_evaluator_destroy(ev);
    return r;
}

static void test_bubbles(void) {
    static const struct shape shapes[] = {
        {DTP_SCHED_GPIPE, 4, 1, 4},         {DTP_SCHED_GPIPE, 4, 1, 8},
        {DTP_SCHED_1F1B, 4, 1, 4},          {DTP_SCHED_1F1B, 8, 1, 32},
        {DTP_SCHED_INTERLEAVED, 4, 2, 8},   {DTP_SCHED_INTERLEAVED, 4, 3, 8},
        {DTP_SCHED_BREADTH_FIRST, 4, 2, 8}, {DTP_SCHED_BREADTH_FIRST, 8, 4, 8},
        {DTP_SCHED_EAGER_1F1B, 4, 1, 8},    {DTP_SCHED_ZB_H1, 4, 1, 8},
        {DTP_SCHED_ZB_H1, 8, 1, 16},        {DTP_SCHED_ZB_H2, 4, 1, 8},
        {DTP_SCHED_ZB_H2, 8, 1, 16},        {DTP_SCHED_ZB_V, 4, 2, 8},
        {DTP_SCHED_NAIVE, 4, 1, 1},         {DTP_SCHED_NAIVE, 4, 1, 8}};
    int seen = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const struct shape *s = &shapes[k];
        struct fixture x;
        load_case(&x, s);
        struct dtp_plan plan = plan_of(&x, s);
        struct path_times t = equal_times(&x, &plan);
        struct dtp_result r = simulated(&x, &plan);
        double work_s = s->m * s->vpp * (t.f + t.i + t.w), idle_s = published_s(s, &t);
        expect_near(r.breakdown.pp_bubble_s, idle_s, tolerance);
        expect_near(r.step_s - r.breakdown.optimizer_s, work_s + idle_s, tolerance);
        expect_near(r.bubble.over_ideal, idle_s / work_s, tolerance);
        expect_near(r.bubble.fraction, idle_s / (work_s + idle_s), tolerance);
        CU_ASSERT(r.bound_s <= r.estimate_s && r.estimate_s <= r.step_s);
        seen |= 1 << s->kind;
    }
    CU_ASSERT_EQUAL(seen, (1 << DTP_NSCHEDULES) - 1);
}

/* p = m = 4: GPipe and 1F1B idle 3/7 of the time; p = 4, m = 8: 3/8 of the work, in two chunks 3/16. Naive: (p - 1)/p. */
static void test_numbers(void) {
    static const struct {
        struct shape shape;
        double fraction, over_ideal;
    } cases[] = {{{DTP_SCHED_GPIPE, 4, 1, 4}, 3.0 / 7, 3.0 / 4},
                 {{DTP_SCHED_1F1B, 4, 1, 4}, 3.0 / 7, 3.0 / 4},
                 {{DTP_SCHED_EAGER_1F1B, 4, 1, 8}, 3.0 / 11, 3.0 / 8},
                 {{DTP_SCHED_INTERLEAVED, 4, 2, 8}, 3.0 / 19, 3.0 / 16},
                 {{DTP_SCHED_BREADTH_FIRST, 4, 2, 8}, 3.0 / 19, 3.0 / 16},
                 {{DTP_SCHED_NAIVE, 4, 1, 8}, 3.0 / 4, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct fixture x;
        load_case(&x, &cases[k].shape);
        struct dtp_plan plan = plan_of(&x, &cases[k].shape);
        struct dtp_result r = simulated(&x, &plan);
        expect_near(r.breakdown.pp_bubble_s / (r.step_s - r.breakdown.optimizer_s),
                    cases[k].fraction, tolerance);
        expect_near(r.bubble.over_ideal, cases[k].over_ideal, tolerance);
    }
}

/* Full recomputation of one layer in the chunk of nine repeats a ninth of the blocks' forwards on each stage. */
static void test_recompute(void) {
    const struct shape s = {DTP_SCHED_1F1B, 4, 1, 8};
    struct fixture x;
    load_case(&x, &s);
    struct dtp_plan plan = plan_of(&x, &s);
    plan.recompute = DTP_RECOMPUTE_FULL;
    plan.recompute_layers = 1;
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x.problem);
    const struct dtp_layer_costs *layer = dtp_cost_layers(memo, &plan);
    struct dtp_costs c;
    dtp_costs(arena, memo, &plan, &c);
    for (int vs = 0; vs < 4; vs++)
        expect_near(c.stage[vs].r.total_s, layer->of[DTP_LAYER_DENSE][3].total_s, tolerance);
    CU_ASSERT(c.stage[0].r.total_s > 0);
}

static bool has_all(int has, int other) {
    return (other & ~has) == 0;
}

/* No other framework has what it lacks, so that a refusal always has a framework to name. */
static void test_has_all(void) {
    struct dtp_framework ideal, other;
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_framework_load(arena, "ideal", &ideal, NULL) == DTP_OK);
    CU_ASSERT_FATAL(dtp_framework_list(arena, &names, &n, NULL) == DTP_OK);
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
        CU_ASSERT(dtp_framework_has_schedule(&ideal, kind));
    CU_ASSERT(ideal.can.optimizers == (1 << DTP_NOPTIMIZERS) - 1);
    CU_ASSERT(ideal.can.dtypes == (1 << DTP_NDTYPES) - 1 && ideal.can.zero_stages == 15);
    CU_ASSERT(ideal.can.zero_stages_pp == 15 && ideal.can.zero_stages_tp == 15);
    CU_ASSERT(ideal.can.recompute_modes == 7 && ideal.can.expert_tp == DTP_EXPERT_TP_ANY);
    CU_ASSERT(ideal.can.recompute_layers == DTP_RECOMPUTE_ANY);
    CU_ASSERT(ideal.can.max_tp == 0 && ideal.can.max_pp == 0 && ideal.can.max_ep == 0);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_FATAL(dtp_framework_load(arena, names[i], &other, NULL) == DTP_OK);
        const struct dtp_framework_can *a = &ideal.can, *b = &other.can;
        CU_ASSERT(has_all(a->has_sequence_parallel, b->has_sequence_parallel));
        CU_ASSERT(has_all(a->has_cp, b->has_cp) && has_all(a->has_mtp, b->has_mtp));
        CU_ASSERT(has_all(a->has_ep, b->has_ep) && has_all(a->has_ep_per_node, b->has_ep_per_node));
        CU_ASSERT(has_all(a->has_ep_overlap, b->has_ep_overlap));
        CU_ASSERT(has_all(a->uneven_stages, b->uneven_stages));
        CU_ASSERT(has_all(a->uneven_chunks, b->uneven_chunks));
        CU_ASSERT(has_all(a->accounts_for_ends, b->accounts_for_ends));
        CU_ASSERT(has_all(a->hybrid_shard, b->hybrid_shard) && has_all(a->offload, b->offload));
        CU_ASSERT(has_all(a->recompute_modules, b->recompute_modules));
    }
}

static bool takes_schedule(const struct dtp_framework *f, const void *context) {
    return dtp_framework_has_schedule(f, *(const int *)context);
}

/* A refusal of Megatron-Core names the frameworks of a schedule, a text-book's after those that exist. */
static void test_named_last(void) {
    struct dtp_framework from;
    const int zb_h2 = DTP_SCHED_ZB_H2, zb_v = DTP_SCHED_ZB_V;
    CU_ASSERT_FATAL(dtp_framework_load(arena, "megatron-core", &from, NULL) == DTP_OK);
    const char *text = dtp_frameworks_text(arena, &from, takes_schedule, &zb_h2);
    CU_ASSERT(text && strcmp(text, "ideal") == 0);
    text = dtp_frameworks_text(arena, &from, takes_schedule, &zb_v);
    CU_ASSERT(text && strcmp(text, "torch-pp, torchtitan-eager, ideal") == 0);
}

int main(void) {
    CU_TestInfo tests[] = {{"bubbles by formula", test_bubbles},
                           {"bubbles by number", test_numbers},
                           {"recomputation in equal stages", test_recompute},
                           {"has what others have", test_has_all},
                           {"named last", test_named_last},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"textbook", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
