/* Weight gradients of the head that a pipeline puts off: by hand, in time and in memory. */
#include <math.h>

#include "models/memory/memory.h"
#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct fixture x;

static bool near(double got, double want) {
    return is_near(got, want, 1e-9);
}

/* GPT of 6.7B over four stages: the head makes the last the slowest. 32 microbatches. */
static void prepare(double deferral_bytes) {
    problem_case(arena, &x, "gpt3-6.7b", "nemo", 16, 128);
    x.problem.memory_limit_bytes = x.cluster.gpu.memory_bytes;
    x.plan.dp = x.plan.pp = 4;
    x.plan.dp_overlap = 0;
    x.framework.quirks.head_deferral.head_deferral_bytes = deferral_bytes;
}

static struct dtp_costs costs(void) {
    struct dtp_costs c;
    dtp_costs(arena, dtp_cost_memo_create(arena, &x.problem), &x.plan, &c);
    return c;
}

static double step_s(enum dtp_fidelity fidelity) {
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    struct dtp_result r;
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &x.plan, fidelity, NULL, &r, NULL) == DTP_OK);
    dtp_evaluator_destroy(ev);
    return r.step_s;
}

static void test_number(void) {
    prepare(0);
    double bytes = 2 * dtp_cost_logits(&x.problem, &x.plan);
    CU_ASSERT(near(bytes, 2.0 * 2048 * dtp_framework_padded_vocab(&x.framework, 50257, 1)));
    CU_ASSERT_EQUAL(dtp_cost_deferred(&x.problem, &x.plan), 0);
    x.framework.quirks.head_deferral.head_deferral_bytes = 8.5 * bytes;
    CU_ASSERT_EQUAL(dtp_cost_deferred(&x.problem, &x.plan), 8);
    x.framework.quirks.head_deferral.head_deferral_bytes = 1e4 * bytes;
    CU_ASSERT_EQUAL(dtp_cost_deferred(&x.problem, &x.plan), 32);
    x.plan.pp = 1;
    CU_ASSERT_EQUAL(dtp_cost_deferred(&x.problem, &x.plan), 0);
}

/* What leaves the backwards comes at the end. */
static void test_costs(void) {
    prepare(0);
    struct dtp_costs at_once = costs();
    prepare(8.5 * 2 * dtp_cost_logits(&x.problem, &x.plan));
    struct dtp_costs c = costs();
    double less_s = at_once.stage[3].w.total_s - c.stage[3].w.total_s;
    CU_ASSERT(at_once.late.total_s == 0 && less_s > 0);
    CU_ASSERT(near(32 * less_s, c.late.total_s) && near(c.late.total_s, c.late.compute_s));
    CU_ASSERT(near(at_once.stage[2].w.total_s, c.stage[2].w.total_s));
}

/* The last stage sets the pace, so that a step gains what its 32 backwards are shorter by, and what the last of
 * them is, as that is on the way to the first rank. 128 do not fit into the drain. */
static void test_step(void) {
    prepare(0);
    double at_once_s = step_s(DTP_SIMULATE);
    prepare(1.5 * 2 * dtp_cost_logits(&x.problem, &x.plan));
    double late_s = costs().late.total_s, drain_s = 0;
    for (int s = 0; s < 3; s++)
        drain_s += costs().stage[s].i.total_s + costs().stage[s].w.total_s;
    CU_ASSERT_FATAL(late_s < drain_s);
    double gain_s = at_once_s - step_s(DTP_SIMULATE);
    CU_ASSERT(gain_s > late_s && gain_s < late_s * 33 / 32);
    prepare(1e15);
    x.plan.global_batch_size = x.problem.global_batch = 512;
    CU_ASSERT_FATAL(costs().late.total_s > drain_s);
    x.framework.quirks.head_deferral.head_deferral_bytes = 0;
    at_once_s = step_s(DTP_SIMULATE);
    x.framework.quirks.head_deferral.head_deferral_bytes = 1e15;
    double simulated_s = step_s(DTP_SIMULATE), estimated_s = step_s(DTP_ESTIMATE);
    CU_ASSERT(simulated_s < at_once_s && at_once_s - simulated_s < costs().late.total_s);
    CU_ASSERT(estimated_s <= simulated_s * (1 + 1e-9));
    CU_ASSERT(step_s(DTP_BOUND) <= estimated_s * (1 + 1e-9));
}

/* They are one task of the last stage, and none of a microbatch's, of which there is none more. */
static void test_tasks(void) {
    struct dtp_lowered *lo = NULL;
    struct dtp_timeline *timeline = NULL;
    struct dtp_simulate_options options = {.out_lowered = &lo, .out_timeline = &timeline};
    struct dtp_result r;
    int of[DTP_NTASKS] = {0}, microbatches = 0;
    prepare(8.5 * 2 * dtp_cost_logits(&x.problem, &x.plan));
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &x.problem);
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &x.plan, DTP_SIMULATE, &options, &r, NULL) == DTP_OK);
    for (dtp_id i = 0; i < timeline->ntasks; i++) {
        struct dtp_task_tag tag = dtp_tag_unpack(lo->graph.tag[i]);
        of[tag.kind]++;
        if (tag.kind <= DTP_T_W && tag.microbatch >= microbatches)
            microbatches = tag.microbatch + 1;
        if (tag.kind == DTP_T_LATE)
            CU_ASSERT(tag.stage == 3 &&
                      near(timeline->end_s[i] - timeline->start_s[i], costs().late.total_s));
    }
    CU_ASSERT(of[DTP_T_LATE] == 1 && of[DTP_T_W] == 0 && microbatches == 32);
    dtp_evaluator_destroy(ev);
}

/* Each deferred product keeps the gradient of its logits, and the head's input. */
static void test_memory(void) {
    struct dtp_stage_memory before[4], after[4];
    prepare(0);
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, before);
    double logits_bytes = 2 * dtp_cost_logits(&x.problem, &x.plan);
    prepare(8.5 * logits_bytes);
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, after);
    double more = (double)after[3].peak_bytes - (double)before[3].peak_bytes;
    CU_ASSERT(fabs(more - 8 * (logits_bytes + 2.0 * 2048 * x.model.hidden)) <= 2);
    CU_ASSERT_EQUAL(after[2].peak_bytes, before[2].peak_bytes);
    /* no more with multi-token prediction, whose own heads put nothing off */
    x.model.mtp_layers = 1;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, after);
    x.framework.quirks.head_deferral.head_deferral_bytes = 0;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, before);
    more = (double)after[3].peak_bytes - (double)before[3].peak_bytes;
    CU_ASSERT(fabs(more - 8 * (logits_bytes + 2.0 * 2048 * x.model.hidden)) <= 2);
}

int main(void) {
    CU_TestInfo tests[] = {{"number", test_number}, {"costs", test_costs},   {"step", test_step},
                           {"tasks", test_tasks},   {"memory", test_memory}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"deferral", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
