/* problem_case.h: a model of the library on a framework and A100s, and the default plan of it. */
#ifndef DTP_TESTS_PROBLEM_CASE_H
#define DTP_TESTS_PROBLEM_CASE_H

#include <CUnit/Basic.h>

#include "models/evaluate/evaluate.h"

struct fixture {
    struct dtp_model model;
    struct dtp_framework framework;
    struct dtp_cluster cluster;
    struct dtp_problem problem;
    struct dtp_plan plan;
    struct dtp_ops ops; /* operations of a layer, if a test asks for them */
};

static inline void problem_case(struct dtp_arena *a, struct fixture *x, const char *model,
                                const char *framework, int gpus, int batch) {
    struct dtp_err err = {0};
    *x = (struct fixture){0};
    if (dtp_model_load(a, model, &x->model, &err) != DTP_OK ||
        dtp_framework_load(a, framework, &x->framework, &err) != DTP_OK ||
        dtp_cluster_load(a, "dgx-a100-80", &x->cluster, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("fixture");
    }
    x->problem = (struct dtp_problem){.model = &x->model,
                                      .framework = &x->framework,
                                      .cluster = &x->cluster,
                                      .gpus = gpus,
                                      .seq = x->model.seq,
                                      .global_batch = batch,
                                      .attention = -1,
                                      .dtype = DTP_BF16};
    x->plan = dtp_plan_default();
    x->plan.global_batch_size = batch;
}

#endif
