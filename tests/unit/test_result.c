/* Evaluations and their JSON: the names of the command line, sums, rates by hand, refused ZeRO stages
 * as null, the same bytes twice, options of the simulation. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/evaluate/evaluate.h"
#include "sim/base/units.h"
#include "tests/costs_case.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct fixture x;
static struct dtp_evaluator *ev;
static const double tolerance = 1e-12;

static int setup(void) {
    problem_case(arena, &x, "gpt18b", "megatron-core", 64, 128);
    x.problem.memory_limit_bytes = dtp_problem_default_limit(&x.problem);
    x.plan.tp = x.plan.pp = x.plan.dp = 4;
    x.plan.zero_stage = 1;
    ev = dtp_evaluator_create(arena, &x.problem);
    return 0;
}

static int teardown(void) {
    dtp_evaluator_destroy(ev);
    return 0;
}

static struct dtp_result result_at(enum dtp_fidelity fidelity,
                                   struct dtp_simulate_options *options) {
    struct dtp_result r;
    struct dtp_err err = {0};
    if (dtp_evaluate(arena, ev, &x.plan, fidelity, options, &r, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("dtp_evaluate");
    }
    return r;
}

static const char *json_text(const struct dtp_result *r) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    dtp_fields_write(&w, dtp_result_form.fields, r);
    dtp_json_end(&w);
    fclose(f);
    const char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

static const struct dtp_json *json_of(const struct dtp_result *r) {
    const struct dtp_json *j = NULL;
    const char *text = json_text(r);
    CU_ASSERT_FATAL(dtp_json_parse(arena, "result", text, strlen(text), &j, NULL) == DTP_OK);
    return j;
}

/* ---- */

static void test_names(void) {
    static const char *const names[] = {"plan",
                                        "step_s",
                                        "tokens_per_s",
                                        "tflops_per_gpu",
                                        "mfu",
                                        "hfu",
                                        "causal_mfu",
                                        "bubble_fraction",
                                        "bubble_over_ideal",
                                        "peak_bytes",
                                        "allocated_bytes",
                                        "reserved_bytes",
                                        "device_bytes",
                                        "memory_limit_bytes",
                                        "stages",
                                        "memory_by_zero_stage",
                                        "zero_stages_refused",
                                        "breakdown_s",
                                        "estimate_s",
                                        "bound_s"};
    static const char *const parts[] = {"compute",    "recompute", "tp_exposed", "cp_exposed",
                                        "ep_exposed", "pp_bubble", "pp_exposed", "dp_exposed",
                                        "optimizer",  "offload",   "host",       "other"};
    static const char *const items[] = {"stage",           "peak_bytes",      "weights_bytes",
                                        "gradients_bytes", "optimizer_bytes", "activations_bytes",
                                        "logits_bytes",    "buffers_bytes"};
    struct dtp_result r = result_at(DTP_SIMULATE, NULL);
    const struct dtp_json *j = json_of(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CU_ASSERT(dtp_json_get(j, names[i]) != NULL);
    const struct dtp_json *breakdown = dtp_json_get(j, "breakdown_s");
    CU_ASSERT(dtp_json_size(breakdown) == sizeof parts / sizeof *parts);
    double sum_s = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum_s += dtp_json_number(dtp_json_get(breakdown, parts[i]));
    CU_ASSERT(fabs(sum_s - r.step_s) <= tolerance * r.step_s);
    const struct dtp_json *stages = dtp_json_get(j, "stages");
    CU_ASSERT_FATAL(dtp_json_size(stages) == 4);
    for (size_t s = 0; s < 4; s++) {
        double sum = 0;
        for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
            const struct dtp_json *item = dtp_json_get(dtp_json_at(stages, s), items[i]);
            CU_ASSERT_FATAL(item != NULL);
            sum += i >= 2 ? dtp_json_number(item) : 0;
        }
        CU_ASSERT(sum == dtp_json_number(dtp_json_get(dtp_json_at(stages, s), "peak_bytes")));
    }
    CU_ASSERT(dtp_json_get(j, "why_not") == NULL);
    r.why_not = "slower";
    CU_ASSERT_STRING_EQUAL(dtp_json_string(dtp_json_get(json_of(&r), "why_not")), "slower");
    r.why_not = NULL;
    struct dtp_result again = result_at(DTP_SIMULATE, NULL);
    CU_ASSERT_STRING_EQUAL(json_text(&r), json_text(&again));
}

/* Megatron-core refuses ZeRO 2 and 3, whose bytes are told all the same. */
static void test_zero_stages(void) {
    struct dtp_result r = result_at(DTP_ESTIMATE, NULL);
    const struct dtp_json *z = dtp_json_get(json_of(&r), "memory_by_zero_stage");
    CU_ASSERT(dtp_json_type(dtp_json_get(z, "0")) == DTP_JSON_NUMBER);
    CU_ASSERT((uint64_t)dtp_json_number(dtp_json_get(z, "1")) == r.device_bytes);
    CU_ASSERT(r.by_zero_stage[0] > r.by_zero_stage[1]);
    CU_ASSERT(r.by_zero_stage[1] > r.by_zero_stage[2] && r.by_zero_stage[2] > r.by_zero_stage[3]);
    CU_ASSERT((uint64_t)dtp_json_number(dtp_json_get(z, "3")) == r.by_zero_stage[3]);
    CU_ASSERT_EQUAL(r.zero_refused, 1 << 2 | 1 << 3);
}

/* tokens/s = batch seq / T; TFLOP/s = 3 forward FLOPs batch / (T GPUs); mfu over the dense peak. */
static void test_rates(void) {
    struct dtp_result r = result_at(DTP_ESTIMATE, NULL);
    double flops = 3 * dtp_model_forward_flops(&x.model, 2048) * 128;
    CU_ASSERT(fabs(r.tokens_per_s * r.step_s / (128.0 * 2048) - 1) < tolerance);
    CU_ASSERT(fabs(r.flops_per_gpu_per_s * r.step_s * 64 / flops - 1) < tolerance);
    CU_ASSERT(fabs(r.mfu * 312 * DTP_TERA / r.flops_per_gpu_per_s - 1) < tolerance);
    CU_ASSERT(r.hfu == r.mfu);
    double tflops = dtp_json_number(dtp_json_get(json_of(&r), "tflops_per_gpu"));
    CU_ASSERT(fabs(tflops * DTP_TERA / r.flops_per_gpu_per_s - 1) < tolerance);
    x.plan.recompute = DTP_RECOMPUTE_FULL;
    r = result_at(DTP_ESTIMATE, NULL);
    CU_ASSERT(r.hfu > 1.2 * r.mfu && r.hfu < 4.0 / 3 * r.mfu * (1 + tolerance));
    CU_ASSERT(r.breakdown.recompute_s > 0);
    x.plan.recompute = DTP_RECOMPUTE_NONE;
}

static void test_fidelities(void) {
    struct dtp_result bound = result_at(DTP_BOUND, NULL), estimate = result_at(DTP_ESTIMATE, NULL),
                      simulated = result_at(DTP_SIMULATE, NULL);
    CU_ASSERT(bound.step_s == estimate.bound_s && bound.estimate_s == 0);
    CU_ASSERT(dtp_breakdown_sum_s(&bound.breakdown) == bound.step_s);
    CU_ASSERT(fabs(estimate.estimate_s / simulated.estimate_s - 1) < 1e-9);
    CU_ASSERT(simulated.bound_s <= simulated.estimate_s);
    CU_ASSERT(simulated.estimate_s <= simulated.step_s);
    CU_ASSERT(estimate.step_s == dtp_evaluate_estimate(ev, &x.plan));
    /* four stages of a tied model under ZeRO-1: every wait has its name */
    CU_ASSERT(fabs(estimate.breakdown.other_s) <= 1e-9 * estimate.step_s);
    CU_ASSERT(fabs(simulated.breakdown.other_s) <= 1e-9 * simulated.step_s);
    CU_ASSERT(bound.step_s == dtp_evaluate_bound(ev, &x.plan));
    CU_ASSERT(dtp_evaluator_problem(ev)->gpus == 64);
}

/* The second of two stages ends last: 8 s of actions to 10 with 2 of waiting, of which 1 is left where transfers are
 * free; reduced at 11; the other comes to the embedding at 12, and to the norm at 15, 2 after its end; update,
 * gather. */
static void test_breakdown(void) {
    struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){4, 2, 2});
    struct dtp_schedule s = case_schedule(arena, DTP_SCHED_1F1B, 2, 1, 1);
    struct dtp_rank_path ranks[2] = {{0}, {.last_s = 10, .busy_s = 8, .reduced_s = 11}};
    struct dtp_rank_path free_ranks[2] = {{0}, {.last_s = 9, .busy_s = 8}};
    struct dtp_rank_path *p = &ranks[1];
    p->embedding_start_s = 12;
    p->embedding_end_s = 13;
    p->norm_start_s = 15;
    p->norm_end_s = 15.5;
    p->optimized_s = 16;
    p->gathered_s = p->end_s = 17;
    struct dtp_path path = {
        .step_s = 17, .last_rank = 1, .stage_of_last = 1, .nranks = 2, .rank = ranks};
    struct dtp_path free_path = {.nranks = 2, .rank = free_ranks};
    struct dtp_breakdown b;
    dtp_breakdown_fill(&c, &s, &path, &free_path, &b);
    CU_ASSERT(b.compute_s == 8 && b.pp_exposed_s == 1 && b.optimizer_s == 0.5);
    CU_ASSERT(b.pp_bubble_s == 1 + (12 - 11) + (15 - 13));
    CU_ASSERT(b.dp_exposed_s == (11 - 10) + (13 - 12) + 0.5 + 1);
    CU_ASSERT(b.other_s == 0);
    c.step_host_s = 0.5; /* a part of the same waiting */
    dtp_breakdown_fill(&c, &s, &path, &free_path, &b);
    CU_ASSERT(b.host_s == 0.5 && b.pp_exposed_s == 1 && b.other_s == 0);
    CU_ASSERT(b.pp_bubble_s == 0.5 + (12 - 11) + (15 - 13));
}

/* Unfolded as folded on a symmetric placement; operations as actions; what is asked for is kept. */
static void test_options(void) {
    struct dtp_lowered *lowered = NULL;
    struct dtp_timeline *t = NULL;
    struct dtp_simulate_options options = {
        .no_fold = true, .out_lowered = &lowered, .out_timeline = &t};
    double folded_s = result_at(DTP_SIMULATE, NULL).step_s;
    double unfolded_s = result_at(DTP_SIMULATE, &options).step_s;
    CU_ASSERT(fabs(unfolded_s / folded_s - 1) < 1e-9);
    CU_ASSERT_FATAL(lowered && t && lowered->nranks == 64);
    CU_ASSERT(t->makespan_s == unfolded_s && t->ntasks == lowered->graph.ntasks);
    struct dtp_simulate_options ops = {.detail = DTP_DETAIL_OP, .out_lowered = &lowered};
    CU_ASSERT(fabs(result_at(DTP_SIMULATE, &ops).step_s / folded_s - 1) < 1e-9);
    bool found = false;
    for (int i = 0; i < lowered->nop_names; i++)
        found = found || strcmp(lowered->op_name[i], "qkv") == 0;
    CU_ASSERT(found && lowered->nranks == 4);
}

int main(void) {
    CU_TestInfo tests[] = {{"names of the JSON", test_names},
                           {"ZeRO stages", test_zero_stages},
                           {"rates", test_rates},
                           {"fidelities", test_fidelities},
                           {"options", test_options},
                           {"a breakdown by hand", test_breakdown},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"result", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
