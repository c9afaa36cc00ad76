/* memory_case.h: a model on a framework and what a plan of it holds, for the tests of memory. */
#ifndef DTP_TESTS_MEMORY_CASE_H
#define DTP_TESTS_MEMORY_CASE_H

#include <CUnit/Basic.h>
#include <math.h>

#include "sim/base/units.h"
#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static void setup(struct fixture *x, const char *model, const char *framework) {
    problem_case(arena, x, model, framework, 1, 1);
    x->problem.dtype = x->plan.dtype = DTP_FP16;
}

static void equal(double got, double want) {
    expect_near(got, want, 1e-12);
}

#endif
