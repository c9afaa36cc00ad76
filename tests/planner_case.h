/* planner_case.h: problems for tests of search and report, from the library of models and clusters. */
#ifndef DTP_TESTS_PLANNER_CASE_H
#define DTP_TESTS_PLANNER_CASE_H

#include <CUnit/Basic.h>

#include "planner/search.h"
#include "planner/setup.h"
#include "sim/base/units.h"

struct planner_case {
    const char *model, *cluster, *framework;
    int gpus, batch, seq;
    double limit_gib;   /* 0: the default */
    const char *limits; /* as --why-not writes them, or NULL */
};

static inline struct dtp_setup *case_setup(struct dtp_arena *a, const struct planner_case *c) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_ask ask = {.model = c->model,
                          .cluster = c->cluster,
                          .framework = c->framework,
                          .gpus = c->gpus,
                          .batch = c->batch,
                          .seq = c->seq,
                          .dtype = -1,
                          .attention = -1,
                          .memory_limit_bytes = (uint64_t)(c->limit_gib * DTP_GIB)};
    if (dtp_setup_init(a, &ask, s, &err) != DTP_OK)
        CU_FAIL_FATAL(err.msg);
    return s;
}

static inline struct dtp_limits case_limits(struct dtp_arena *a, const struct planner_case *c,
                                            const struct dtp_setup *s) {
    struct dtp_limits l = dtp_limits_none();
    l.fixed.dtype = s->problem.dtype;
    if (c->limits)
        CU_ASSERT_EQUAL_FATAL(dtp_limits_parse(a, c->limits, "limits", &l, NULL), DTP_OK);
    return l;
}

#endif
