/* Every layout trains alike: 20 steps of any plan give the losses of the serial run.
 *
 * By default a sample of the layouts of 2 and 4 ranks; with DTP_LONG=1 all of 2, 4 and 8 ranks
 * (of 8: each with one of the two families). What
 * differs between layouts is the order of fp32 sums only: losses of about 4 then agree to
 * 5e-6 (one unit in the last place is 4.8e-7). */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>

#include "tests/runtime_cases.h"
#include "tests/suites.h"

static const double tolerance = 5e-6;
enum { SAMPLE_OF_EACH_SIZE = 20 };

static struct dtp_arena *arena;

struct reference {
    struct dtp_model model;
    double dropout;
    double loss[64];
    int steps;
};

static struct dtp_run_options options_of(const struct reference *ref) {
    struct dtp_run_options o = tiny_options(&ref->model);
    o.dropout = ref->dropout;
    o.attention_dropout = 2 * ref->dropout;
    return o;
}

static void make_reference(const char *family, double dropout, struct reference *out) {
    struct dtp_err err = {0};
    struct dtp_run_result r;
    out->model = tiny_model(family);
    out->dropout = dropout;
    struct dtp_run_options o = options_of(out);
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    out->steps = r.steps;
    memcpy(out->loss, r.loss, (size_t)r.steps * sizeof *r.loss);
    /* 20 steps learn something, or equal losses would mean little */
    CU_ASSERT(r.loss[0] - r.loss[r.steps - 1] > (dropout > 0 ? 0.2 : 0.4));
}

static double compare(const struct reference *ref, const struct dtp_plan *plan) {
    struct dtp_err err = {0};
    struct dtp_run_result r;
    struct dtp_arena *a = dtp_arena_create("layout");
    struct dtp_run_options o = options_of(ref);
    int global_batch = o.plan.global_batch_size;
    o.plan = *plan;
    o.plan.global_batch_size = global_batch;
    double worst = 0;
    if (dtp_run(a, &o, &r, &err) != DTP_OK) {
        printf("\n    %s: %s\n", dtp_plan_flags(a, plan), err.msg);
        worst = INFINITY;
    }
    for (int i = 0; isfinite(worst) && i < r.steps; i++)
        worst = fmax(worst, fabs(r.loss[i] - ref->loss[i]));
    if (!(worst < tolerance))
        printf("\n    %s %s: off by %.2e\n", ref->model.name, dtp_plan_flags(a, plan), worst);
    dtp_arena_destroy(a);
    return worst;
}

/* ---- all layouts of a number of ranks ---- */

struct layouts {
    const struct reference *ref;
    int ranks, every, first, count; /* takes every so many, from the first */
    int ran;
    double worst;
};

static void try_plan(struct layouts *l, const struct dtp_plan *plan) {
    struct dtp_run_options o = tiny_options(&l->ref->model);
    int global_batch = o.plan.global_batch_size;
    o.plan = *plan;
    o.plan.global_batch_size = global_batch;
    if (dtp_run_check(&o, NULL) != DTP_OK || l->count++ % l->every != l->first)
        return;
    l->worst = fmax(l->worst, compare(l->ref, plan));
    l->ran++;
}

static void vary_details(struct layouts *l, struct dtp_plan p) {
    for (int variant = 0; variant < 4 * 2 * 3 * 2; variant++) {
        p.zero_stage = variant % 4;
        p.sequence_parallel = variant / 4 % 2;
        p.recompute = (enum dtp_recompute)(variant / 8 % 3);
        p.microbatch_size = 1 + variant / 24;
        try_plan(l, &p);
    }
}

static void vary_schedule(struct layouts *l, struct dtp_plan p) {
    for (p.schedule = 0; p.schedule < DTP_NSCHEDULES; p.schedule++)
        for (p.vpp = 1; p.vpp <= 4; p.vpp *= 2)
            vary_details(l, p);
}

static void all_layouts(struct layouts *l) {
    struct dtp_plan p = tiny_options(&l->ref->model).plan;
    for (int tp = 1; tp <= l->ranks; tp *= 2)
        for (int pp = 1; tp * pp <= l->ranks; pp *= 2)
            vary_schedule(l, with_degrees(p, tp, pp, l->ranks / tp / pp));
}

static void check_layouts(const struct reference *ref, int ranks) {
    struct layouts l = {.ref = ref, .ranks = ranks, .every = 1 << 30};
    all_layouts(&l);
    int total = l.count;
    bool all = getenv("DTP_LONG") != NULL;
    l = (struct layouts){.ref = ref, .ranks = ranks, .every = 1};
    if (ranks == 8) { /* half of them with each family, so that an hour is not needed */
        l.every = 2;
        l.first = strcmp(ref->model.name, "gpt") == 0;
    }
    if (!all && total > SAMPLE_OF_EACH_SIZE) /* a prime step meets all combinations in turn */
        for (l.every = total / SAMPLE_OF_EACH_SIZE; l.every % 2 == 0 || l.every % 3 == 0;)
            l.every++;
    all_layouts(&l);
    printf("\n    %s, %d ranks: %d of %d layouts, off by %.1e at most", ref->model.name, ranks,
           l.ran, total, l.worst);
    CU_ASSERT(l.worst < tolerance);
    CU_ASSERT(l.ran > 5);
}

static void check_family(const char *family, double dropout) {
    struct reference ref;
    make_reference(family, dropout, &ref);
    check_layouts(&ref, 2);
    check_layouts(&ref, 4);
    if (getenv("DTP_LONG"))
        check_layouts(&ref, 8);
}

static void test_gpt(void) {
    check_family("gpt", 0);
}

static void test_llama(void) {
    check_family("llama", 0);
}

static void test_dropout(void) {
    check_family("gpt", 0.1);
}

static void test_sixteen_ranks(void) {
    struct reference ref;
    make_reference("gpt", 0, &ref);
    struct dtp_plan p = with_degrees(tiny_options(&ref.model).plan, 2, 4, 2);
    p.vpp = 2;
    p.schedule = DTP_SCHED_INTERLEAVED;
    p.sequence_parallel = true;
    p.zero_stage = 1;
    CU_ASSERT(compare(&ref, &p) < tolerance);
}

/* tp = 4 over 2 key-value heads: two ranks hold each; uneven stages; separate reduction; gradients of a
 * unit that two microbatches share; recomputation of a part. */
static void check_odd_cases(double dropout) {
    struct reference ref;
    static int layers[] = {1, 4, 3};
    make_reference("llama", dropout, &ref);
    struct dtp_plan p = with_degrees(tiny_options(&ref.model).plan, 4, 1, 1);
    p.sequence_parallel = true;
    CU_ASSERT(compare(&ref, &p) < tolerance);
    p = with_degrees(tiny_options(&ref.model).plan, 1, 3, 1);
    p.layers_per_stage = (struct dtp_ints){layers, 3};
    CU_ASSERT(compare(&ref, &p) < tolerance);
    p = with_degrees(tiny_options(&ref.model).plan, 1, 2, 1);
    p.last_stage_less = 2;
    CU_ASSERT(compare(&ref, &p) < tolerance);
    p = with_degrees(tiny_options(&ref.model).plan, 1, 1, 2);
    p.dp_overlap = 0;
    CU_ASSERT(compare(&ref, &p) < tolerance);
    p = with_degrees(tiny_options(&ref.model).plan, 1, 2, 2); /* I of one before W of another */
    p.schedule = DTP_SCHED_ZB_H1;
    p.zero_stage = 3;
    CU_ASSERT(compare(&ref, &p) < tolerance);
    p = with_degrees(tiny_options(&ref.model).plan, 1, 2, 1);
    p.recompute = DTP_RECOMPUTE_FULL;
    p.recompute_layers = 2;
    CU_ASSERT(compare(&ref, &p) < tolerance);
}

static void test_odd_cases(void) {
    check_odd_cases(0);
    check_odd_cases(0.1);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"16 ranks", test_sixteen_ranks},   {"odd cases", test_odd_cases}, {"GPT", test_gpt},
        {"GPT with dropout", test_dropout}, {"Llama", test_llama},         CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"layouts", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
