/* What the tests of BOUND <= ESTIMATE <= SIMULATE share: a random case, and its report. */
#ifndef DTP_TESTS_FIDELITY_CASE_H
#define DTP_TESTS_FIDELITY_CASE_H

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/evaluate/evaluate.h"
#include "sim/base/rng.h"
#include "tests/costs_case.h"
#include "tests/near.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const double tolerance = 1e-9;

/* Cases of one property. Random options are many and each combination rare (one fault of ESTIMATE showed
 * in 1 of 300 plans), so that the number counts; DTP_LONG=1 draws more. */
enum { LONGER = 20 };

static inline uint64_t ncases(int n) {
    const char *mode = getenv("DTP_LONG");
    return (uint64_t)n * (mode && strcmp(mode, "1") == 0 ? LONGER : 1);
}

static inline int below(struct dtp_rng *r, int n) {
    return (int)dtp_rng_below(r, (uint64_t)n);
}
static inline double between(struct dtp_rng *r, double low, double high) {
    return low + (high - low) * dtp_rng_uniform(r);
}

struct random_case {
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_model model;
    struct dtp_problem problem;
    struct dtp_plan plan;
    struct dtp_costs costs;
    struct dtp_schedule schedule;
};

static inline void report(uint64_t seed, const struct random_case *c, const char *what, double x,
                          double y) {
    printf("\n  seed %d: %s: %.17g against %.17g (%s pp %d vpp %d m %d tp %d cp %d dp %d, zero %d "
           "blocking %d overlap %d per microbatch %d gather %d ep %d etp %d)\n",
           (int)seed, what, x, y, dtp_schedule_kinds[c->plan.schedule].name, c->plan.pp,
           c->plan.vpp, dtp_plan_num_microbatches(&c->plan), c->plan.tp, c->plan.cp, c->plan.dp,
           c->costs.zero_stage, c->costs.p2p_blocking, c->costs.reduce_overlap,
           c->costs.reduce_per_microbatch, c->costs.gather_overlap, c->plan.ep, c->plan.etp);
}

static inline bool equal(double got, double want) {
    return is_near(got, want, tolerance);
}

#endif
