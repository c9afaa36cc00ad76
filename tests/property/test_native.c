/* Our own runtime, predicted: bytes are those of the run, rank by rank; the fidelities keep their order,
 * with a core for each rank and with ranks that take turns. */
#include <CUnit/Basic.h>
#include <stdio.h>

#include "planner/space.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

struct machine {
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_problem problem;
    struct dtp_evaluator *ev;
};

static void make(struct dtp_arena *a, const struct dtp_model *m, int ranks, int batch,
                 struct machine *out) {
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, "cpu", &out->cluster, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_framework_load(a, "dtplan", &out->framework, &err), DTP_OK);
    out->problem = (struct dtp_problem){.model = m,
                                        .cluster = &out->cluster,
                                        .framework = &out->framework,
                                        .gpus = ranks,
                                        .seq = 16,
                                        .global_batch = batch,
                                        .attention = -1,
                                        .dtype = DTP_FP32};
    out->problem.memory_limit_bytes = dtp_problem_default_limit(&out->problem);
    out->ev = dtp_evaluator_create(a, &out->problem);
}

/* Calls visit for every legal plan. */
static int each_plan(struct dtp_arena *a, const struct machine *x,
                     void (*visit)(const struct machine *x, const struct dtp_plan *p)) {
    struct dtp_limits limits = dtp_limits_none();
    struct dtp_space space;
    int n = 0;
    limits.fixed.dtype = DTP_FP32;
    limits.fixed.dp_overlap = 0;
    dtp_space_init(a, &x->problem, &limits, &space);
    for (uint64_t i = 0; i < space.ncandidates; i++) {
        struct dtp_plan p;
        dtp_space_candidate(&space, i, &p);
        if (dtp_plan_check(&x->problem, &p) != DTP_LEGAL)
            continue;
        visit(x, &p);
        n++;
    }
    return n;
}

static void same_bytes(const struct machine *x, const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create("run");
    struct dtp_run_options o = tiny_options(x->problem.model);
    struct dtp_run_result run;
    struct dtp_result predicted;
    struct dtp_err err = {0};
    o.plan = *p;
    o.steps = 1;
    if (x->framework.kernels.dropout)
        o.dropout = o.attention_dropout = x->problem.model->dropout;
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o, &run, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_evaluate(a, x->ev, p, DTP_BOUND, NULL, &predicted, &err), DTP_OK);
    for (int r = 0; r < run.nranks; r++) {
        const struct dtp_stage_memory *s = &predicted.stages[r / (p->tp * p->dp)];
        CU_ASSERT_EQUAL(s->peak_bytes, run.peak_bytes[r]);
        CU_ASSERT_EQUAL(s->peak_bytes, s->weights_bytes + s->gradients_bytes + s->optimizer_bytes +
                                           s->activations_bytes + s->logits_bytes +
                                           s->buffers_bytes);
        if (s->peak_bytes != run.peak_bytes[r])
            printf("\n    %s: rank %d %llu, predicted %llu\n", dtp_plan_flags(a, p), r,
                   (unsigned long long)run.peak_bytes[r], (unsigned long long)s->peak_bytes);
    }
    dtp_arena_destroy(a);
}

static void check_bytes(const char *family, double dropout) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model(family);
    struct machine x;
    make(a, &m, 2, 4, &x);
    x.framework.kernels.dropout = dropout > 0;
    m.dropout = m.attention_dropout = dropout;
    CU_ASSERT(each_plan(a, &x, same_bytes) > 60);
    dtp_evaluator_destroy(x.ev);
    dtp_arena_destroy(a);
}

static void test_gpt_bytes(void) {
    check_bytes("gpt", 0);
}

static void test_llama_bytes(void) {
    check_bytes("llama", 0);
}

static void test_bytes_with_dropout(void) {
    check_bytes("gpt", 0.1);
}

/* BOUND <= ESTIMATE <= SIMULATE; without contention the last two agree. */
static void ordered(const struct machine *x, const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create("simulation");
    struct dtp_result r;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_evaluate(a, x->ev, p, DTP_SIMULATE, NULL, &r, &err), DTP_OK);
    CU_ASSERT(r.bound_s <= r.estimate_s);
    CU_ASSERT(r.estimate_s <= r.step_s);
    CU_ASSERT_DOUBLE_EQUAL(dtp_breakdown_sum_s(&r.breakdown) / r.step_s, 1, 1e-9);
    if (x->problem.gpus <= x->cluster.node.cores)
        CU_ASSERT_DOUBLE_EQUAL(r.step_s / r.estimate_s, 1, 1e-9);
    if (r.bound_s > r.estimate_s || r.estimate_s > r.step_s)
        printf("\n    %s: %g %g %g\n", dtp_plan_flags(a, p), r.bound_s, r.estimate_s, r.step_s);
    dtp_arena_destroy(a);
}

/* All cores busy all the time cannot be beaten: four ranks of a layout without a pipeline, each with
 * the same work, take twice as long on two cores as on four. */
static void twice(const struct machine *x, const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create("simulation");
    struct dtp_result shared, own;
    struct dtp_err err = {0};
    struct machine y = *x;
    y.cluster.node.cores = 4;
    y.problem.cluster = &y.cluster;
    y.ev = dtp_evaluator_create(a, &y.problem);
    CU_ASSERT_EQUAL_FATAL(dtp_evaluate(a, x->ev, p, DTP_SIMULATE, NULL, &shared, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_evaluate(a, y.ev, p, DTP_SIMULATE, NULL, &own, &err), DTP_OK);
    CU_ASSERT(shared.step_s <= 2 * own.step_s * (1 + 1e-9));
    CU_ASSERT(shared.step_s >= own.step_s);
    if (p->pp == 1)
        CU_ASSERT_DOUBLE_EQUAL(shared.step_s / own.step_s, 2, 1e-9);
    dtp_evaluator_destroy(y.ev);
    dtp_arena_destroy(a);
}

static void check_order(int ranks, void (*visit)(const struct machine *, const struct dtp_plan *)) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model("gpt");
    struct machine x;
    make(a, &m, ranks, 8, &x);
    CU_ASSERT(each_plan(a, &x, visit) > 100);
    dtp_evaluator_destroy(x.ev);
    dtp_arena_destroy(a);
}

static void test_own_cores(void) {
    check_order(2, ordered);
}

static void test_shared_cores(void) {
    check_order(4, ordered);
}

static void test_turns(void) {
    check_order(4, twice);
}

static double activation_s(const struct machine *x) {
    struct dtp_plan plan = dtp_plan_default();
    struct dtp_ops ops;
    double time_s = 0;
    plan.dtype = DTP_FP32;
    plan.microbatch_size = 2;
    dtp_ops_layer(&x->problem, &plan, DTP_LAYER_DENSE, &ops);
    for (int i = 0; i < ops.n; i++)
        if (strcmp(ops.at[i].name, "activation") == 0)
            time_s += dtp_op_time_s(&x->problem, &plan, &ops.at[i]);
    return time_s;
}

/* SwiGLU takes what was measured of it: a quarter of GELU's time forward, half of it backward. */
static void test_swiglu(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model gpt = tiny_model("gpt"), llama = tiny_model("llama");
    struct machine x;
    make(a, &gpt, 1, 4, &x);
    struct dtp_kernel_cal *k = x.cluster.gpu.kernel;
    k[DTP_K_ACTIVATION] = (struct dtp_kernel_cal){1e15, 1e6, 0.25};
    k[DTP_K_ACTIVATION_BACKWARD] = (struct dtp_kernel_cal){1e15, 2e6, 0.5};
    double tokens = 2 * 16;
    CU_ASSERT_DOUBLE_EQUAL(activation_s(&x), tokens * gpt.ffn * (1e-6 + 0.5e-6), 1e-12);
    x.problem.model = &llama;
    CU_ASSERT_DOUBLE_EQUAL(activation_s(&x), tokens * llama.ffn * (0.25e-6 + 0.25e-6), 1e-12);
    dtp_evaluator_destroy(x.ev);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"bytes of GPT", test_gpt_bytes},
                           {"bytes of Llama", test_llama_bytes},
                           {"bytes with dropout", test_bytes_with_dropout},
                           {"SwiGLU", test_swiglu},
                           {"fidelities, a core each", test_own_cores},
                           {"fidelities, shared cores", test_shared_cores},
                           {"ranks take turns", test_turns},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"native", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
