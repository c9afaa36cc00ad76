/* BOUND <= ESTIMATE <= SIMULATE of real models, frameworks and clusters, through the evaluator; the breakdown
 * sums to the step. The seed of a failing case is printed. */
#include "tests/fidelity_case.h"

enum { NREAL = 120 };

static const char *const model_names[] = {"gpt2",         "gpt1.7b",   "gpt18b",     "llama3-8b",
                                          "mixtral-8x7b", "gemma3-1b", "gpt-oss-20b"};
static const char *const framework_names[] = {"megatron-2021", "megatron-2022", "megatron-core",
                                              "torchtitan",    "deepspeed",     "deepspeed-moe",
                                              "torch-fsdp2",   "nemo",          "torchtitan-eager"};
enum { NFRAMEWORKS = sizeof framework_names / sizeof *framework_names };
static const char *const cluster_names[] = {"dgx-a100-80", "selene", "hgx-h100", "dgx-1v"};

static int power(struct dtp_rng *r, int most) {
    return 1 << below(r, most + 1);
}

static bool random_real_plan(struct dtp_rng *r, const struct dtp_problem *problem,
                             struct dtp_plan *p) {
    for (int attempt = 0; attempt < 3000; attempt++) {
        *p = dtp_plan_default();
        p->dtype = problem->dtype;
        p->tp = power(r, 3);
        p->pp = power(r, 3);
        p->cp = below(r, 4) ? 1 : 2;
        if (problem->gpus % (p->tp * p->pp * p->cp) != 0)
            continue;
        p->dp = problem->gpus / (p->tp * p->pp * p->cp);
        bool moe = problem->model->moe.experts > 0;
        p->ep = moe ? power(r, 3) : 1;
        p->etp = moe && below(r, 2) ? power(r, 3) : 0;
        p->ep_overlap = moe && below(r, 2);
        p->ep_per_node = moe && below(r, 2);
        p->schedule = below(r, DTP_NSCHEDULES);
        p->vpp = dtp_schedule_kinds[p->schedule].chunked ? 2 + below(r, 3) : 1;
        p->microbatch_size = power(r, 2);
        p->global_batch_size = problem->global_batch;
        p->zero_stage = below(r, 4);
        p->sequence_parallel = below(r, 2);
        p->recompute = (enum dtp_recompute)below(r, 3);
        p->recompute_layers = p->recompute == DTP_RECOMPUTE_FULL ? below(r, 3) : 0;
        if (p->recompute == DTP_RECOMPUTE_SELECTIVE)
            p->recompute_modules = below(r, 1 << DTP_NMODULES) & dtp_model_modules(problem->model) &
                                   problem->framework->can.recompute_modules;
        p->account_for_ends = below(r, 4) == 0;
        p->last_stage_less = below(r, 3) == 0 ? 1 + below(r, 3) : 0;
        p->p2p_overlap = below(r, 3) - 1;
        p->dp_overlap = below(r, 3) - 1;
        if (dtp_plan_check(problem, p) == DTP_LEGAL)
            return true;
    }
    return false;
}

static bool none_negative(const struct dtp_breakdown *b) {
    bool ok = true;
#define X(field, ...) ok = ok && b->field >= -1e-9;
    DTP_BREAKDOWN_LIST(X)
#undef X
    return ok;
}

static bool load_problem(struct dtp_rng *r, struct random_case *c) {
    struct dtp_err err = {0};
    dtp_arena_reset(arena);
    *c = (struct random_case){0};
    bool ok = dtp_model_load(arena, model_names[below(r, 7)], &c->model, &err) == DTP_OK &&
              dtp_framework_load(arena, framework_names[below(r, NFRAMEWORKS)], &c->framework,
                                 &err) == DTP_OK &&
              dtp_cluster_load(arena, cluster_names[below(r, 4)], &c->cluster, &err) == DTP_OK;
    if (!ok)
        printf("\n  %s\n", err.msg);
    c->model.mtp_layers = c->framework.can.has_mtp ? below(r, 3) : 0;
    c->problem = (struct dtp_problem){
        .model = &c->model,
        .cluster = &c->cluster,
        .framework = &c->framework,
        .gpus = 8 << below(r, 4),
        .seq = 1024,
        .global_batch = 64 << below(r, 3),
        .attention = -1,
        .dtype = c->cluster.gpu.peak_flops_per_s[DTP_BF16] > 0 ? DTP_BF16 : DTP_FP16};
    c->problem.memory_limit_bytes = dtp_problem_default_limit(&c->problem);
    return ok;
}

/* Operations change no time; steps of collectives meet others differently, above the estimate. */
static void check_details(uint64_t seed, struct random_case *c, struct dtp_evaluator *ev,
                          const struct dtp_result *action) {
    struct dtp_simulate_options by_op = {.detail = DTP_DETAIL_OP},
                                by_step = {.detail = DTP_DETAIL_STEP};
    struct dtp_result op, step;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &c->plan, DTP_SIMULATE, &by_op, &op, &err) == DTP_OK &&
                    dtp_evaluate(arena, ev, &c->plan, DTP_SIMULATE, &by_step, &step, &err) ==
                        DTP_OK);
    double estimate_s = dtp_evaluate_estimate(ev, &c->plan);
    bool ok = equal(op.step_s, action->step_s) && step.step_s >= estimate_s * (1 - tolerance);
    if (!ok) {
        report(seed, c, "by operation, by action", op.step_s, action->step_s);
        report(seed, c, "by step, estimate", step.step_s, estimate_s);
    }
    CU_ASSERT(ok);
}

/* One rank a stage stands for all where replicas are alike, however the groups of experts lie. Returns whether they
 * are. */
static bool check_unfolded(uint64_t seed, struct random_case *c, struct dtp_evaluator *ev,
                           const struct dtp_result *folded) {
    struct dtp_simulate_options all = {.no_fold = true};
    struct dtp_placement placement;
    struct dtp_result unfolded;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(
        dtp_plan_place(&c->plan, &c->cluster, &c->framework, &placement, &err) == DTP_OK &&
        dtp_evaluate(arena, ev, &c->plan, DTP_SIMULATE, &all, &unfolded, &err) == DTP_OK);
    bool alike = dtp_placement_symmetric(&placement, &c->cluster),
         ok = !alike || equal(unfolded.step_s, folded->step_s);
    if (!ok)
        report(seed, c, "unfolded, folded", unfolded.step_s, folded->step_s);
    CU_ASSERT(ok);
    return alike;
}

static void check_real(uint64_t seed, struct random_case *c, struct dtp_evaluator *ev) {
    struct dtp_err err = {0};
    struct dtp_result estimate, simulated;
    enum dtp_status status = dtp_evaluate(arena, ev, &c->plan, DTP_ESTIMATE, NULL, &estimate, &err);
    if (status == DTP_OK)
        status = dtp_evaluate(arena, ev, &c->plan, DTP_SIMULATE, NULL, &simulated, &err);
    if (status != DTP_OK)
        printf("\n  %s, %s, %s, %s: %s\n", c->model.name, c->framework.name, c->cluster.name,
               dtp_plan_flags(arena, &c->plan), err.msg);
    CU_ASSERT_FATAL(status == DTP_OK);
    bool ordered = estimate.bound_s <= estimate.step_s &&
                   estimate.step_s <= simulated.step_s * (1 + tolerance) &&
                   simulated.bound_s <= simulated.estimate_s &&
                   simulated.estimate_s <= simulated.step_s;
    if (!ordered)
        printf("\n  seed %d: %s %s %s %s: bound %.12g estimate %.12g simulated %.12g\n", (int)seed,
               c->model.name, c->framework.name, c->cluster.name, dtp_plan_flags(arena, &c->plan),
               estimate.bound_s, estimate.step_s, simulated.step_s);
    CU_ASSERT(ordered);
    CU_ASSERT(estimate.bound_s > 0 && dtp_evaluate_bound(ev, &c->plan) <= estimate.step_s);
    CU_ASSERT(fabs(dtp_breakdown_sum_s(&simulated.breakdown) - simulated.step_s) <=
              1e-12 * simulated.step_s);
    CU_ASSERT(fabs(dtp_breakdown_sum_s(&estimate.breakdown) - estimate.step_s) <=
              1e-12 * estimate.step_s);
    CU_ASSERT(none_negative(&simulated.breakdown) && none_negative(&estimate.breakdown));
    if (seed % 4 == 0)
        check_details(seed, c, ev, &simulated);
    if (c->model.moe.experts > 0 && c->problem.gpus <= 32)
        check_unfolded(seed, c, ev, &simulated);
    CU_ASSERT(estimate.step_s == dtp_evaluate_estimate(ev, &c->plan));
    CU_ASSERT(estimate.device_bytes == dtp_evaluate_memory(ev, &c->plan));
    const struct dtp_bubble *b = &simulated.bubble;
    CU_ASSERT(fabs(b->warmup + b->drain + b->imbalance - b->fraction) < 1e-9);
}

/* All figures of a result, as text: numbers with all their digits. */
static char *figures(struct dtp_evaluator *ev, const struct dtp_plan *plan) {
    struct dtp_result r;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_FATAL(f && dtp_evaluate(arena, ev, plan, DTP_ESTIMATE, NULL, &r, NULL) == DTP_OK);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    dtp_fields_write(&w, dtp_result_form.fields, &r);
    dtp_json_end(&w);
    fclose(f);
    return text;
}

/* What an evaluator remembers of the plans before changes nothing: a fresh one says the same. */
static void check_remembered(const char *framework, struct dtp_rng *r, struct random_case *c) {
    enum { NPLANS = 24 };
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &c->problem);
    int nwrong = 0;
    for (int i = 0; i < NPLANS && random_real_plan(r, &c->problem, &c->plan); i++) {
        struct dtp_evaluator *fresh = dtp_evaluator_create(arena, &c->problem);
        char *said = figures(ev, &c->plan), *says = figures(fresh, &c->plan);
        if (strcmp(said, says) != 0 && nwrong++ == 0)
            printf("\n  %s, %s: after other plans %s\n  says\n%s\n  for\n%s\n", framework,
                   c->model.name, dtp_plan_flags(arena, &c->plan), said, says);
        free(said);
        free(says);
        dtp_evaluator_destroy(fresh);
    }
    dtp_evaluator_destroy(ev);
    CU_ASSERT_EQUAL(nwrong, 0);
}

static void test_remembered(void) {
    const char *const *names;
    struct random_case c;
    size_t n;
    struct dtp_arena *list = dtp_arena_create("names");
    CU_ASSERT_FATAL(dtp_framework_list(list, &names, &n, NULL) == DTP_OK);
    for (uint64_t seed = 0; seed < ncases(2 * (int)n); seed++) {
        struct dtp_rng r = dtp_rng_stream(12, seed);
        const char *name = names[seed % n];
        CU_ASSERT_FATAL(load_problem(&r, &c));
        CU_ASSERT_FATAL(dtp_framework_load(arena, name, &c.framework, NULL) == DTP_OK);
        c.model.mtp_layers = 0;
        c.problem.gpus = 8 << below(&r, 2);
        c.problem.global_batch = 8 << below(&r, 2); /* one microbatch and several */
        if (c.framework.kernels.ops != DTP_OPS_OWN)
            check_remembered(name, &r, &c);
    }
    dtp_arena_destroy(list);
}

/* Numbers of GPUs that leave replicas of a stage and other stages on the same nodes, whose GPUs share links: a ring of
 * another stage on the NIC or the bus of some replicas alone slows these, and folding does not see it. */
static void test_uneven(void) {
    static const char *const clusters[] = {"pcie-gen4", "a40-nvlink", "dgx-1v", "summit",
                                           "hgx-h100"};
    static const int gpus[] = {6, 12, 20, 24, 32, 40, 48};
    struct dtp_err err = {0};
    struct random_case c;
    int n = 0, alike = 0;
    for (uint64_t seed = 0; seed < ncases(NREAL); seed++) {
        struct dtp_rng r = dtp_rng_stream(13, seed);
        CU_ASSERT_FATAL(load_problem(&r, &c));
        CU_ASSERT_FATAL(dtp_cluster_load(arena, clusters[below(&r, 5)], &c.cluster, &err) ==
                        DTP_OK);
        CU_ASSERT_FATAL(dtp_framework_load(arena, "megatron-2022", &c.framework, &err) == DTP_OK);
        c.problem.gpus = gpus[below(&r, 7)];
        c.problem.global_batch = c.problem.gpus * (1 + below(&r, 3));
        c.problem.dtype = DTP_FP16;
        c.problem.memory_limit_bytes = dtp_problem_default_limit(&c.problem);
        if (!random_real_plan(&r, &c.problem, &c.plan))
            continue;
        struct dtp_evaluator *ev = dtp_evaluator_create(arena, &c.problem);
        struct dtp_result folded;
        CU_ASSERT_FATAL(dtp_evaluate(arena, ev, &c.plan, DTP_SIMULATE, NULL, &folded, &err) ==
                        DTP_OK);
        alike += check_unfolded(seed, &c, ev, &folded);
        n++;
        dtp_evaluator_destroy(ev);
    }
    printf(" (%d of %d alike)", alike, n);
    CU_ASSERT(n > (int)ncases(NREAL) / 2 && alike > n / 4 && alike < n);
}

static void test_real(void) {
    struct random_case c;
    double tight = 0;
    int n = 0;
    for (uint64_t seed = 0; seed < ncases(NREAL); seed++) {
        struct dtp_rng r = dtp_rng_stream(11, seed);
        CU_ASSERT_FATAL(load_problem(&r, &c));
        const struct dtp_attention_cal *attention =
            &c.cluster.gpu.attention[c.framework.kernels.attention];
        bool timed =
            c.framework.kernels.attention == DTP_ATTN_UNFUSED || attention->flops_per_s > 0;
        if (!timed || !random_real_plan(&r, &c.problem, &c.plan))
            continue;
        struct dtp_evaluator *ev = dtp_evaluator_create(arena, &c.problem);
        check_real(seed, &c, ev);
        tight += dtp_evaluate_bound(ev, &c.plan) / dtp_evaluate_estimate(ev, &c.plan);
        n++;
        dtp_evaluator_destroy(ev);
    }
    printf(" (%d plans, bound / estimate %.3f)", n, tight / n);
    CU_ASSERT(n > (int)ncases(NREAL) / 2 && tight / n > 0.8);
}

int main(void) {
    CU_TestInfo tests[] = {{"models, frameworks and clusters", test_real},
                           {"uneven nodes", test_uneven},
                           {"plans before change nothing", test_remembered},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"fidelity", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("case");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
