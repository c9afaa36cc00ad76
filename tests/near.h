/* near.h: floating-point numbers that must agree to a relative tolerance. */
#ifndef DTP_TESTS_NEAR_H
#define DTP_TESTS_NEAR_H

#include <CUnit/Basic.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static inline bool is_near(double got, double want, double tolerance) {
    return fabs(got - want) <= tolerance * fabs(want);
}

/* Asserts it, and prints what was found where it is not so. */
static inline void expect_near(double got, double want, double tolerance) {
    if (!is_near(got, want, tolerance))
        printf("\n  found %.17g, expected %.17g\n", got, want);
    CU_ASSERT(is_near(got, want, tolerance));
}

#endif
