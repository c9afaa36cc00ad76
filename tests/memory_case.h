/* memory_case.h: a model on a framework and what a plan of it holds, for the tests of memory. */
#ifndef DTP_TESTS_MEMORY_CASE_H
#define DTP_TESTS_MEMORY_CASE_H

#include <CUnit/Basic.h>
#include <math.h>

#include "models/evaluate.h"
#include "sim/base/units.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

struct fixture {
    struct dtp_model model;
    struct dtp_framework framework;
    struct dtp_cluster cluster;
    struct dtp_problem problem;
    struct dtp_plan plan;
};

static void setup(struct fixture *x, const char *model, const char *framework) {
    struct dtp_err err = {0};
    if (dtp_model_load(arena, model, &x->model, &err) != DTP_OK ||
        dtp_framework_load(arena, framework, &x->framework, &err) != DTP_OK ||
        dtp_cluster_load(arena, "dgx-a100-80", &x->cluster, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("fixture");
    }
    x->problem = (struct dtp_problem){.model = &x->model,
                                      .framework = &x->framework,
                                      .cluster = &x->cluster,
                                      .gpus = 1,
                                      .seq = x->model.seq,
                                      .global_batch = 1,
                                      .attention = -1,
                                      .dtype = DTP_FP16};
    x->plan = dtp_plan_default();
    x->plan.global_batch_size = 1;
    x->plan.dtype = DTP_FP16;
}

static void equal(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        printf("\n  found %.17g, expected %.17g\n", got, want);
    CU_ASSERT(fabs(got - want) <= 1e-12 * fabs(want));
}

#endif
