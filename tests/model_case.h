/* model_case.h: models of the library in the suite's arena. */
#ifndef DTP_TESTS_MODEL_CASE_H
#define DTP_TESTS_MODEL_CASE_H

#include <CUnit/Basic.h>

#include "models/model/model.h"
#include "tests/arena_case.h"

static inline struct dtp_model load(const char *name) {
    struct dtp_model m = {0};
    struct dtp_err err = {0};
    if (dtp_model_load(arena, name, &m, &err) != DTP_OK) {
        fprintf(stderr, "%s: %s\n", name, err.msg);
        CU_FAIL_FATAL("a model that must load did not");
    }
    return m;
}

static inline uint64_t total_params(const struct dtp_model *m) {
    struct dtp_param_counts n;
    dtp_model_params(m, m->vocab, &n);
    return n.total;
}

#endif
