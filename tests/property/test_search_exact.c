/* The winner of the search = the winner of simulating every legal plan that fits, on many small spaces;
 * and the fidelities in the space: BOUND <= ESTIMATE <= SIMULATE, so that pruning is safe. */
#include <CUnit/Basic.h>
#include <stdlib.h>

#include "models/schedule/schedule.h"
#include "tests/planner_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const double TOLERANCE = 1e-12; /* relative, of bound against estimate against simulation */

struct exhaustive {
    uint64_t number, illegal, over_memory, fit;
    double step_s;
    bool found;
    bool usual; /* one that fits is */
    int above_bound, above_estimate, above_simulation;
};

/* The number of layers that a candidate stands for, one after another; the most where none fits. */
static void find_fewest(struct dtp_evaluator *ev, struct dtp_plan *plan) {
    const struct dtp_problem *p = dtp_evaluator_problem(ev);
    int most = dtp_plan_most_layers(plan, p->model);
    if (plan->recompute_layers != DTP_FEWEST_LAYERS)
        return;
    plan->recompute_layers = 1;
    if (dtp_plan_check(p, plan) != DTP_LEGAL) /* then it has no memory to ask for */
        return;
    for (int k = 2; k < most && dtp_evaluate_memory(ev, plan) > p->memory_limit_bytes; k++)
        if (dtp_framework_recomputes(p->framework, most, k))
            plan->recompute_layers = k;
}

static void try_plan(struct dtp_evaluator *ev, uint64_t number, const struct dtp_plan *plan,
                     struct exhaustive *out) {
    const struct dtp_problem *p = dtp_evaluator_problem(ev);
    struct dtp_err err = {0};
    struct dtp_result r;
    if (dtp_plan_check(p, plan) != DTP_LEGAL) {
        out->illegal++;
        return;
    }
    if (dtp_evaluate_memory(ev, plan) > p->memory_limit_bytes) {
        out->over_memory++;
        return;
    }
    out->fit++;
    out->usual |= dtp_plan_is_usual(plan);
    double bound_s = dtp_evaluate_bound(ev, plan), estimate_s = dtp_evaluate_estimate(ev, plan);
    struct dtp_arena *a = dtp_arena_create("one plan");
    if (dtp_evaluate(a, ev, plan, DTP_SIMULATE, NULL, &r, &err) != DTP_OK)
        CU_FAIL(err.msg);
    dtp_arena_destroy(a);
    out->above_bound += dtp_evaluate_floor(ev, plan) > bound_s;
    out->above_estimate += bound_s > estimate_s * (1 + TOLERANCE);
    out->above_simulation += estimate_s > r.step_s * (1 + TOLERANCE);
    if (!out->found || r.step_s < out->step_s) {
        out->found = true;
        out->step_s = r.step_s;
        out->number = number;
    }
}

static void simulate_all(const struct dtp_problem *p, const struct dtp_limits *limits,
                         struct exhaustive *out) {
    struct dtp_arena *a = dtp_arena_create("exhaustive");
    struct dtp_evaluator *ev = dtp_evaluator_create(a, p);
    struct dtp_space space;
    struct dtp_plan plan;
    *out = (struct exhaustive){0};
    dtp_space_init(a, p, limits, &space);
    for (uint64_t i = 0; i < space.ncandidates; i++) {
        dtp_space_candidate(&space, i, &plan);
        find_fewest(ev, &plan);
        try_plan(ev, i, &plan, out);
    }
    dtp_evaluator_destroy(ev);
    dtp_arena_destroy(a);
}

static const struct planner_case cases[] = {
    {"gpt2", "dgx-a100-80", "megatron-core", 8, 16, 0, 0, NULL},
    {"gpt2", "dgx-a100-40", "megatron-2021", 16, 16, 0, 3, NULL},
    {"gpt2-xl", "dgx-a100-80", "megatron-core", 4, 8, 0, 12, NULL},
    {"gpt2-xl", "dgx-1v", "megatron-2021", 8, 16, 512, 14, NULL},
    {"gpt3-1.3b", "dgx-a100-80", "megatron-core", 16, 32, 0, 10, "microbatch_size=1,2,4"},
    {"gpt3-2.7b", "alcf-polaris", "megatron-core", 12, 24, 0, 30, "microbatch_size=1,2"},
    {"gpt3-6.7b", "aws-p4d", "megatron-2022", 32, 32, 0, 30, "microbatch_size=1,pp=2..8"},
    {"llama2-7b", "dgx-h100", "megatron-core", 16, 16, 0, 60, "microbatch_size=1,2"},
    {"mixtral-8x7b", "dgx-h100", "megatron-core", 32, 16, 0, 0, "microbatch_size=1,tp=1..4"},
    {"llama2-7b", "dgx-a100-80", "megatron-core", 8, 8, 16384, 0, "microbatch_size=1"},
    {"gpt3-1.3b", "aws-p4d", "torch-fsdp2", 32, 64, 0, 0, NULL},
    {"gpt3-1.3b", "gcp-a2", "deepspeed", 16, 32, 0, 12, NULL},
    {"llama3-8b", "hgx-h100", "torch-fsdp2", 8, 64, 0, 0, NULL},
    {"llama3-8b", "hgx-h100", "torchtitan", 8, 32, 0, 50, "microbatch_size=1,tp=1,2,pp=1,2"},
    {"deepseek-v2-lite", "dgx-h100", "megatron-core", 32, 16, 0, 0,
     "microbatch_size=1,tp=1,2,pp=1..4,cp=1,2,vpp=1..3,recompute=none"},
    {"llama3.2-1b", "hgx-h100", "megatron-core", 4, 8, 0, 12, "microbatch_size=1,pp=2,4"},
    {"llama3-8b", "hgx-h100", "megatron-core", 12, 24, 0, 0, "microbatch_size=1,tp=1,2,pp=3,6"}};
enum { NCASES = sizeof cases / sizeof *cases };

static void test_winner(void) {
    int unusual = 0;
    for (int k = 0; k < NCASES; k++) {
        struct dtp_setup *s = case_setup(arena, &cases[k]);
        struct dtp_limits limits = case_limits(arena, &cases[k], s);
        struct dtp_search_options options = {
            .jobs = 2, .top = 1 + k % 4, .layouts = k % 2 ? -1 : 3};
        struct dtp_search found;
        struct exhaustive all;
        struct dtp_err err = {0};
        simulate_all(&s->problem, &limits, &all);
        if (dtp_search(arena, &s->problem, &limits, &options, &found, &err) != DTP_OK)
            CU_FAIL(err.msg);
        CU_ASSERT(all.found);
        CU_ASSERT_EQUAL(all.above_bound, 0);
        CU_ASSERT_EQUAL(all.above_estimate, 0);
        CU_ASSERT_EQUAL(all.above_simulation, 0);
        CU_ASSERT(found.nresults > 0);
        if (found.nresults == 0 || !all.found)
            continue;
        bool same = found.number[0] == all.number && found.result[0].step_s == all.step_s;
        if (!same)
            printf(
                "\n  case %d (%s): found plan %llu with %.9g s, expected plan %llu with %.9g s\n",
                k, cases[k].model, (unsigned long long)found.number[0], found.result[0].step_s,
                (unsigned long long)all.number, all.step_s);
        CU_ASSERT(same);
        bool usual = dtp_plan_is_usual(&found.result[0].plan);
        CU_ASSERT_EQUAL(found.usual != NULL, !usual && all.usual);
        CU_ASSERT(!found.usual || dtp_plan_is_usual(&found.usual->plan));
        unusual += !usual;
        CU_ASSERT_EQUAL(found.counts.illegal, all.illegal);
        CU_ASSERT_EQUAL(found.counts.over_memory, all.over_memory);
        CU_ASSERT_EQUAL(found.counts.bounded + found.counts.estimated, all.fit);
    }
    CU_ASSERT(unusual > 1);
}

/* What is left out of a search that keeps little is not among the best. */
static void test_few_kept(void) {
    uint64_t left_out = 0;
    for (int k = 0; k < NCASES; k++) {
        struct dtp_setup *s = case_setup(arena, &cases[k]);
        struct dtp_limits limits = case_limits(arena, &cases[k], s);
        struct dtp_search_options options = {.jobs = 2, .every = true, .top = 3, .layouts = -1};
        struct dtp_search all, few;
        CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &all, NULL), DTP_OK);
        options.every = false;
        options.most_kept = 8;
        CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &few, NULL), DTP_OK);
        left_out += all.nlegal - few.nlegal;
        CU_ASSERT_EQUAL(all.counts.candidates, few.counts.candidates);
        CU_ASSERT_EQUAL(all.counts.illegal, few.counts.illegal);
        CU_ASSERT(few.nresults >= (all.nresults < 3 ? all.nresults : 3));
        for (size_t i = 0; i < 3 && i < few.nresults; i++)
            CU_ASSERT(all.number[i] == few.number[i] &&
                      all.result[i].step_s == few.result[i].step_s);
    }
    CU_ASSERT(left_out > 1000);
}

/* The fewest layers that fit are enough: every number of layers has the same winner. */
static void test_fewest(void) {
    for (int k = 0; k < NCASES; k++) {
        struct dtp_setup *s = case_setup(arena, &cases[k]);
        struct dtp_limits limits = case_limits(arena, &cases[k], s);
        struct dtp_search_options options = {.jobs = 2, .layouts = -1};
        struct dtp_search fewest, each;
        CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &fewest, NULL), DTP_OK);
        dtp_limits_relax(&limits, DTP_LIMIT_RECOMPUTE_LAYERS);
        CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &each, NULL), DTP_OK);
        CU_ASSERT_EQUAL(fewest.result[0].step_s, each.result[0].step_s);
        CU_ASSERT_EQUAL(dtp_plan_compare(&fewest.result[0].plan, &each.result[0].plan), 0);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"winner = winner of simulating everything", test_winner},
                           {"few plans kept", test_few_kept},
                           {"the fewest layers that fit are enough", test_fewest},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"search", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
