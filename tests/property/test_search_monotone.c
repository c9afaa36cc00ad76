/* A limit never makes the answer of a search faster; neither does less memory, a slower network card or a slower GPU. */
#include <CUnit/Basic.h>
#include <stdio.h>

#include "sim/base/rng.h"
#include "tests/planner_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const double TOLERANCE = 1e-9; /* sums in another order differ by it */

static const struct planner_case cases[] = {
    {"gpt2-xl", "dgx-a100-80", "megatron-core", 16, 32, 0, 0, NULL},
    {"gpt3-1.3b", "dgx-a100-80", "megatron-core", 32, 64, 0, 16, NULL},
    {"gpt3-6.7b", "aws-p4d", "megatron-2022", 32, 64, 0, 30, NULL},
    {"llama3-8b", "hgx-h100", "megatron-core", 32, 64, 0, 40, NULL},
    {"llama3-8b", "hgx-h100", "torchtitan", 16, 32, 0, 50, NULL},
    {"llama2-7b", "dgx-a100-80", "nemo", 24, 48, 0, 0, NULL},
    {"mixtral-8x7b", "dgx-h100", "megatron-core", 32, 32, 0, 0, NULL},
    {"deepseek-v2-lite", "hgx-h100", "megatron-core", 16, 32, 0, 0, NULL},
    {"gpt3-1.3b", "gcp-a2", "deepspeed", 16, 32, 0, 12, NULL},
    {"gpt3-1.3b", "rtx4090-box", "nanotron", 32, 128, 1024, 0, NULL},
    {"llama3-8b", "hgx-h100", "torch-fsdp2", 16, 64, 0, 0, NULL},
    {"gpt22b", "dgx-a100-80", "megatron-2021", 32, 64, 0, 0, NULL}};
enum { NCASES = sizeof cases / sizeof *cases, LIMITS_TRIED = 12 };

/* Seconds of the best plan; 0: nothing fits. */
static double best_s(const struct dtp_problem *p, const struct dtp_limits *limits,
                     struct dtp_plan *plan) {
    struct dtp_search_options options = {.jobs = 2, .top = 1, .layouts = -1};
    struct dtp_arena *a = dtp_arena_create("one search");
    struct dtp_search found;
    struct dtp_err err = {0};
    if (dtp_search(a, p, limits, &options, &found, &err) != DTP_OK)
        CU_FAIL(err.msg);
    double step_s = found.nresults > 0 ? found.result[0].step_s : 0;
    if (plan && found.nresults > 0)
        *plan = found.result[0].plan;
    dtp_arena_destroy(a);
    return step_s;
}

static struct dtp_limits free_limits(const struct dtp_problem *p) {
    struct dtp_limits l = dtp_limits_none();
    l.fixed.dtype = p->dtype;
    return l;
}

/* A range or one or two values of a field, around what some candidate has. Groups of ZeRO-1 and degrees of experts
 * between 1 and tp are tried only when asked for: those two limits may add plans. */
static void limit_field(struct dtp_rng *r, const struct dtp_plan *like, struct dtp_limits *l) {
    enum dtp_limit field;
    do
        field = (enum dtp_limit)dtp_rng_below(r, DTP_NLIMITS);
    while (field == DTP_LIMIT_ZERO_GROUP || field == DTP_LIMIT_ETP);
    struct dtp_select *s = &l->field[field];
    int value = dtp_limit_get(like, field);
    *s = (struct dtp_select){.n = 1, .lo = {value}, .hi = {value}};
    switch (dtp_rng_below(r, 3)) {
    case 0:
        s->lo[0] = value / 2;
        s->hi[0] = 2 * value + 1;
        break;
    case 1:
        s->n = 2;
        s->lo[1] = s->hi[1] = (int)dtp_rng_below(r, 5);
        break;
    }
}

static void test_limits(void) {
    struct dtp_rng r = dtp_rng_stream(20, 1);
    int answers = 0;
    for (int k = 0; k < NCASES; k++) {
        struct dtp_setup *s = case_setup(arena, &cases[k]);
        struct dtp_limits none = free_limits(&s->problem);
        struct dtp_space space;
        double whole_s = best_s(&s->problem, &none, NULL);
        CU_ASSERT_FATAL(whole_s > 0);
        dtp_space_init(arena, &s->problem, &none, &space);
        for (int i = 0; i < LIMITS_TRIED; i++) {
            struct dtp_limits l = none;
            struct dtp_plan like, best;
            dtp_space_candidate(&space, dtp_rng_below(&r, space.ncandidates), &like);
            for (uint64_t n = 1 + dtp_rng_below(&r, 2); n > 0; n--)
                limit_field(&r, &like, &l);
            double limited_s = best_s(&s->problem, &l, &best);
            answers += limited_s > 0;
            CU_ASSERT(limited_s == 0 || limited_s >= whole_s * (1 - TOLERANCE));
            if (limited_s == 0 || limited_s >= whole_s * (1 - TOLERANCE))
                continue;
            printf("\n  case %d (%s): %.6g s without limits, %.6g with", k, cases[k].model, whole_s,
                   limited_s);
            for (int f = 0; f < DTP_NLIMITS; f++)
                for (int j = 0; j < l.field[f].n; j++)
                    printf(" %s=%d..%d", dtp_limit_fields[f].name, l.field[f].lo[j],
                           l.field[f].hi[j]);
            printf(": %s", dtp_plan_flags(arena, &best));
        }
    }
    CU_ASSERT(answers > NCASES * LIMITS_TRIED / 4);
}

/* With more memory, a faster network card or a faster GPU the best is no slower. */
static void test_hardware(void) {
    for (int k = 0; k < NCASES; k++) {
        struct dtp_setup *s = case_setup(arena, &cases[k]);
        struct dtp_limits none = free_limits(&s->problem);
        struct dtp_cluster better = *s->problem.cluster;
        struct dtp_problem p = s->problem;
        double base_s = best_s(&p, &none, NULL), t[3];
        p.memory_limit_bytes += p.memory_limit_bytes / 4;
        t[0] = best_s(&p, &none, NULL);
        p = s->problem;
        p.cluster = &better;
        better.node.nic_bytes_per_s *= 2;
        t[1] = best_s(&p, &none, NULL);
        better = *s->problem.cluster;
        better.gpu.hbm_bytes_per_s *= 1.25;
        for (int d = 0; d < DTP_NDTYPES; d++) {
            better.gpu.peak_flops_per_s[d] *= 1.25;
            better.gpu.gemm[d].sm_flops_per_s *= 1.25;
        }
        t[2] = best_s(&p, &none, NULL);
        for (int i = 0; i < 3; i++)
            if (t[i] > base_s * (1 + TOLERANCE))
                printf("\n  case %d (%s): %.6g s, better %s: %.6g", k, cases[k].model, base_s,
                       i == 0   ? "memory"
                       : i == 1 ? "network"
                                : "GPU",
                       t[i]);
        for (int i = 0; i < 3; i++)
            CU_ASSERT(t[i] <= base_s * (1 + TOLERANCE));
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"a limit never makes the answer faster", test_limits},
                           {"better hardware never makes it slower", test_hardware},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"search", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
