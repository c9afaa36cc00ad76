/* op_case.h: the operations of a layer of a model and a framework of the library on A100s. */
#ifndef DTP_TESTS_OP_CASE_H
#define DTP_TESTS_OP_CASE_H

#include <CUnit/Basic.h>
#include <math.h>

#include "models/plan/key.h"
#include "tests/arena_case.h"
#include "tests/near.h"
#include "tests/problem_case.h"

static inline struct fixture *op_case(const char *model, const char *framework) {
    struct fixture *x = DTP_NEW(arena, struct fixture, 1);
    problem_case(arena, x, model, framework, 8, 8);
    return x;
}

static inline struct dtp_layer_key key_of(const struct dtp_problem *problem,
                                          const struct dtp_plan *plan) {
    struct dtp_placed *placed = DTP_NEW(arena, struct dtp_placed, 1);
    struct dtp_layer_key key;
    dtp_placed_make(problem, plan, placed);
    dtp_layer_key_of(problem, plan, placed, &key);
    return key;
}

static inline double flops(struct fixture *x, enum dtp_layer_kind kind, enum dtp_pass pass) {
    double sum = 0;
    dtp_ops_layer(&x->problem, &x->plan, kind, &x->ops);
    for (int i = 0; i < x->ops.n; i++)
        sum += x->ops.at[i].pass == pass ? dtp_op_flops(&x->ops.at[i]) : 0;
    return sum;
}

static inline void near(double got, double want) {
    expect_near(got, want, 1e-9);
}

static inline double traffic(const struct fixture *x, enum dtp_collective kind, int pass, int *n) {
    double sum = 0;
    *n = 0;
    for (int i = 0; i < x->ops.n; i++) {
        const struct dtp_op *op = &x->ops.at[i];
        if (op->kind != DTP_OP_COLLECTIVE || op->collective != kind || (int)op->pass != pass)
            continue;
        sum += op->bytes;
        ++*n;
    }
    return sum;
}

#endif
