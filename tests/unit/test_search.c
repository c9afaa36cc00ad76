/* The search: counts, the same bytes at any number of threads, limits, near misses, nothing that fits. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "planner/advise.h"
#include "tests/planner_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static const struct planner_case cases[] = {
    {"gpt3-1.3b", "dgx-a100-80", "megatron-core", 16, 64, 0, 8, NULL},
    {"gpt22b", "dgx-a100-80", "megatron-2022", 64, 64, 0, 0, NULL},
    {"mixtral-8x7b", "dgx-h100", "megatron-core", 32, 64, 0, 0, "microbatch_size=1,2"}};
enum { NCASES = sizeof cases / sizeof *cases };

static struct dtp_setup *search(const struct planner_case *c, int jobs, struct dtp_search *out) {
    struct dtp_setup *s = case_setup(arena, c);
    struct dtp_limits limits = case_limits(arena, c, s);
    struct dtp_search_options options = {.jobs = jobs, .every = true};
    struct dtp_err err = {0};
    if (dtp_search(arena, &s->problem, &limits, &options, out, &err) != DTP_OK)
        CU_FAIL_FATAL(err.msg);
    return s;
}

/* candidates = illegal + over memory + bounded + estimated; the reasons sum to the illegal ones; what the
 * verdicts say is what the counts say. */
static void test_counts(void) {
    for (int k = 0; k < NCASES; k++) {
        struct dtp_search f;
        struct dtp_setup *s = search(&cases[k], 2, &f);
        const struct dtp_counts *c = &f.counts;
        uint64_t reasons = 0, bad = 0;
        for (int i = 0; i < DTP_NREASONS; i++)
            reasons += c->reason[i];
        size_t next = 0;
        for (uint64_t i = 0; i < f.space.ncandidates; i++) {
            if (f.reason[i] != DTP_LEGAL)
                continue;
            const struct dtp_legal *l = &f.legal[next++];
            bool over = l->verdict == DTP_VERDICT_OVER_MEMORY;
            bad += l->number != i;
            bad += over != (l->device_bytes > s->problem.memory_limit_bytes);
            bad += (l->time_s > 0) != (l->verdict >= DTP_VERDICT_ESTIMATED);
        }
        CU_ASSERT_EQUAL(next, f.nlegal);
        CU_ASSERT_EQUAL(c->candidates, f.space.ncandidates);
        CU_ASSERT_EQUAL(c->candidates, c->illegal + c->over_memory + c->bounded + c->estimated);
        CU_ASSERT_EQUAL(reasons, c->illegal);
        CU_ASSERT_EQUAL(bad, 0);
        CU_ASSERT_EQUAL(c->simulated, f.nresults);
        CU_ASSERT(c->simulated <= c->estimated);
        CU_ASSERT(f.nresults > 1);
    }
}

/* Plans whose simulation would take more than there is keep their estimate, and the search goes on; it ends where
 * none can be simulated. */
static void test_too_large(void) {
    static const struct planner_case one = {
        "mixtral-8x7b", "dgx-h100", "megatron-core", 16, 4096, 0, 0, NULL};
    struct dtp_setup *s = case_setup(arena, &one);
    struct dtp_limits limits = case_limits(arena, &one, s);
    struct dtp_search all, some;
    struct dtp_search_options options = {.jobs = 2};
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &all, &err), DTP_OK);
    CU_ASSERT_EQUAL(all.counts.too_large, 0);
    options.most_bytes = 2e6;
    if (dtp_search(arena, &s->problem, &limits, &options, &some, &err) != DTP_OK)
        CU_FAIL_FATAL(err.msg);
    CU_ASSERT(some.counts.too_large > 0);
    CU_ASSERT(some.nresults > 0);
    CU_ASSERT_EQUAL(some.counts.simulated, some.nresults);
    size_t estimated = 0;
    for (size_t i = 0; i < some.nlegal; i++)
        estimated += some.legal[i].verdict == DTP_VERDICT_ESTIMATED && some.legal[i].time_s > 0;
    CU_ASSERT(estimated >= some.counts.too_large);
    options.most_bytes = 1;
    CU_ASSERT_EQUAL(dtp_search(arena, &s->problem, &limits, &options, &some, &err),
                    DTP_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "of memory"));
}

static bool is_simulated(const struct dtp_setup *s, const struct dtp_result *r) {
    struct dtp_arena *scratch = dtp_arena_create("again");
    struct dtp_evaluator *ev = dtp_evaluator_create(scratch, &s->problem);
    struct dtp_result again;
    bool same = dtp_evaluate(scratch, ev, &r->plan, DTP_SIMULATE, NULL, &again, NULL) == DTP_OK &&
                again.step_s - r->step_s == 0;
    dtp_evaluator_destroy(ev);
    dtp_arena_destroy(scratch);
    return same;
}

/* Sorted by time, each fits, the first of each layout is marked. */
static void test_results(void) {
    for (int k = 0; k < NCASES; k++) {
        struct dtp_search f;
        struct dtp_setup *s = search(&cases[k], 2, &f);
        int layouts = 0;
        for (size_t i = 0; i < f.nresults; i++) {
            struct dtp_plan p;
            const struct dtp_legal *legal = f.legal;
            while (legal->number != f.number[i])
                legal++;
            dtp_search_plan(&f, legal, &p);
            CU_ASSERT_EQUAL(dtp_plan_compare(&p, &f.result[i].plan), 0);
            CU_ASSERT(i == 0 || f.result[i].step_s >= f.result[i - 1].step_s);
            CU_ASSERT(f.result[i].device_bytes <= s->problem.memory_limit_bytes);
            layouts += f.new_layout[i];
        }
        CU_ASSERT(f.new_layout[0]);
        CU_ASSERT(layouts > 1);
        for (size_t i = 0; i < f.nlegal; i++)
            CU_ASSERT(f.legal[i].device_bytes >= f.leanest->device_bytes);
        dtp_report_explain(arena, &s->problem, &f);
        for (int i = 0; i < f.nnear_misses; i++) {
            double faster_pct = 0;
            CU_ASSERT(sscanf(strstr(f.near_miss[i].why_not, "would"),
                             "would be %lf %% faster, needs", &faster_pct) == 1);
            CU_ASSERT(fabs(faster_pct / 100 - (1 - f.near_miss[i].step_s / f.result[0].step_s)) <
                      6e-4);
            CU_ASSERT(f.near_miss[i].device_bytes > s->problem.memory_limit_bytes);
            CU_ASSERT(f.near_miss[i].device_bytes <= 2 * s->problem.memory_limit_bytes);
            CU_ASSERT(f.near_miss[i].step_s < f.result[0].step_s);
            CU_ASSERT(is_simulated(s, &f.near_miss[i]));
        }
    }
}

/* The faster of two plans, of 44.8 GiB, is a near miss at a limit of 23 GiB, not at 22: it misses by more than the
 * limit again. */
static void test_far_miss(void) {
    struct planner_case c = {"gpt3-1.3b",
                             "dgx-a100-80",
                             "megatron-core",
                             8,
                             64,
                             0,
                             0,
                             "tp=1,pp=1,cp=1,zero_stage=1,microbatch_size=1,8,recompute=none"};
    for (c.limit_gib = 22; c.limit_gib <= 23; c.limit_gib++) {
        struct dtp_search f;
        search(&c, 1, &f);
        CU_ASSERT_FATAL(f.nresults == 1 && f.counts.over_memory == 1);
        CU_ASSERT_EQUAL(f.nnear_misses, c.limit_gib > 22);
    }
}

/* Bounds and estimates do not depend on the plans that were asked about before: memos keep what they depend on. */
static void test_alone(void) {
    static const struct planner_case of[] = {
        {"gpt2-medium", "hgx-h100", "dtplan", 16, 32, 0, 0, "microbatch_size=1,2"},
        {"gpt3-1.3b", "hgx-h100", "dtplan-cuda", 32, 512, 0, 0, "microbatch_size=4,8,pp=4..8"},
        {"gpt2-medium", "hgx-h100", "megatron-core", 16, 32, 0, 0, "microbatch_size=1"},
        {"deepseek-v2-lite", "hgx-h100", "megatron-core", 16, 32, 0, 0,
         "microbatch_size=1,tp=1,2,pp=2..4,recompute=none"}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct dtp_search f;
        struct dtp_setup *s = search(&of[k], 2, &f);
        uint64_t differ = 0;
        for (size_t i = 0; i < f.nlegal; i++) {
            struct dtp_arena *a = dtp_arena_create("alone");
            struct dtp_evaluator *ev = dtp_evaluator_create(a, &s->problem);
            struct dtp_plan p;
            dtp_search_plan(&f, &f.legal[i], &p);
            bool asked = f.legal[i].verdict != DTP_VERDICT_OVER_MEMORY || f.legal[i].bound_s > 0;
            differ += (asked && dtp_evaluate_bound(ev, &p) != f.legal[i].bound_s) ||
                      dtp_evaluate_memory(ev, &p) != f.legal[i].device_bytes;
            if (f.legal[i].verdict == DTP_VERDICT_ESTIMATED)
                differ += dtp_evaluate_estimate(ev, &p) != f.legal[i].time_s;
            dtp_evaluator_destroy(ev);
            dtp_arena_destroy(a);
        }
        CU_ASSERT(f.nlegal > 100);
        CU_ASSERT_EQUAL(differ, 0);
    }
}

/* Plans that do not fit have bounds when all are asked for, else those alone that miss least: the same ones, and near
 * misses are the same. */
static void test_all_bounds(void) {
    const struct planner_case *c = &cases[1];
    struct dtp_setup *s = case_setup(arena, c);
    struct dtp_limits limits = case_limits(arena, c, s);
    struct dtp_search_options options = {.jobs = 2, .every = true};
    struct dtp_search all, few;
    uint64_t unknown = 0, left_out = 0, differ = 0;
    CU_ASSERT_EQUAL_FATAL(dtp_search(arena, &s->problem, &limits, &options, &all, NULL), DTP_OK);
    options.every = false;
    CU_ASSERT_EQUAL_FATAL(dtp_search(arena, &s->problem, &limits, &options, &few, NULL), DTP_OK);
    for (size_t i = 0, k = 0; i < all.nlegal; i++) {
        bool here = k < few.nlegal && few.legal[k].number == all.legal[i].number;
        double bound_s = here ? few.legal[k++].bound_s : 0;
        unknown += !(all.legal[i].bound_s > 0);
        left_out += bound_s == 0;
        differ += bound_s > 0 && bound_s != all.legal[i].bound_s;
    }
    CU_ASSERT(unknown == 0 && differ == 0 && left_out > 0);
    CU_ASSERT(few.nnear_misses > 0);
    CU_ASSERT_EQUAL_FATAL(all.nnear_misses, few.nnear_misses);
    for (int i = 0; i < few.nnear_misses; i++)
        CU_ASSERT(dtp_plan_compare(&all.near_miss[i].plan, &few.near_miss[i].plan) == 0 &&
                  all.near_miss[i].step_s == few.near_miss[i].step_s);
}

static void test_jobs(void) {
    for (int k = 0; k < NCASES; k++) {
        struct dtp_search one, many;
        search(&cases[k], 1, &one);
        search(&cases[k], 4, &many);
        size_t n = (size_t)one.space.ncandidates;
        CU_ASSERT_EQUAL_FATAL(one.nresults, many.nresults);
        CU_ASSERT_EQUAL_FATAL(one.space.ncandidates, many.space.ncandidates);
        CU_ASSERT_EQUAL_FATAL(one.nlegal, many.nlegal);
        CU_ASSERT_EQUAL(memcmp(one.reason, many.reason, n), 0);
        for (size_t i = 0; i < one.nlegal; i++) {
            const struct dtp_legal *x = &one.legal[i], *y = &many.legal[i];
            CU_ASSERT(x->number == y->number && x->verdict == y->verdict &&
                      x->bound_s == y->bound_s && x->time_s == y->time_s &&
                      x->device_bytes == y->device_bytes);
        }
        for (size_t i = 0; i < one.nresults; i++) {
            CU_ASSERT_EQUAL(one.number[i], many.number[i]);
            CU_ASSERT_EQUAL(one.result[i].step_s, many.result[i].step_s);
        }
        CU_ASSERT_EQUAL(one.nnear_misses, many.nnear_misses);
    }
}

/* ---- when the answer is no ---- */

static void advice(const struct planner_case *c, const char *says, const char *and_says) {
    struct dtp_search f;
    struct dtp_setup *s = search(c, 2, &f);
    struct dtp_limits limits = case_limits(arena, c, s);
    struct dtp_report r = {.setup = s, .search = &f, .limits = &limits};
    CU_ASSERT_EQUAL_FATAL(f.nresults, 0);
    const char *text = dtp_advise(arena, &r);
    if (!strstr(text, says) || !strstr(text, and_says))
        printf("\n  found \"%s\",\n  expected \"%s\" and \"%s\"\n", text, says, and_says);
    CU_ASSERT(strstr(text, says) != NULL);
    CU_ASSERT(strstr(text, and_says) != NULL);
}

static void test_advice(void) {
    /* 1023 = 3 x 11 x 31: more layers or heads than there are, or dp that does not divide 1536 */
    advice(&(struct planner_case){"gpt175b", "selene", NULL, 1023, 1536, 0, 0, NULL},
           "splits a batch of 1536", "1024 GPUs");
    advice(&(struct planner_case){"gpt175b", "dgx-a100-80", NULL, 8, 0, 0, 0, NULL},
           "does not fit on 8 GPUs", "needs at least");
    advice(&(struct planner_case){"gpt175b", "dgx-a100-80", NULL, 1024, 0, 0, 0, "tp=5"},
           "--tp leaves no plan", "1, 2, 4, 8");
    advice(
        &(struct planner_case){"gpt175b", "dgx-a100-80", NULL, 1024, 0, 0, 0, "tp=8,zero_stage=3"},
        "within these limits is refused", "without the limits");
    advice(&(struct planner_case){"gpt175b", "dgx-a100-80", NULL, 1024, 0, 0, 0, "dp=512"},
           "does not fit", "without the limits");
}

/* What is said to work does, and the next smaller number does not. */
static void test_least_gpus(void) {
    struct planner_case c = {"gpt22b", "dgx-a100-80", NULL, 1, 64, 0, 0, NULL};
    int least = 0;
    struct dtp_plan plan;
    for (int n = 1; n <= 16 && least == 0; n++) {
        c.gpus = n;
        struct dtp_setup *s = case_setup(arena, &c);
        if (dtp_search_any(&s->problem, NULL, &plan))
            least = n;
    }
    CU_ASSERT_FATAL(least > 1);
    c.gpus = 1;
    char says[64];
    snprintf(says, sizeof says, "needs at least %d GPUs", least);
    advice(&c, "does not fit on 1 GPU:", says);
}

int main(void) {
    CU_TestInfo tests[] = {{"counts and verdicts", test_counts},
                           {"results in order", test_results},
                           {"a far miss", test_far_miss},
                           {"too large to be simulated", test_too_large},
                           {"a plan alone", test_alone},
                           {"bounds of plans that do not fit", test_all_bounds},
                           {"any number of threads", test_jobs},
                           {"advice", test_advice},
                           {"least number of GPUs", test_least_gpus},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"search", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
