/* cluster_case.h: an arena, and clusters of the library in it. */
#ifndef DTP_TESTS_CLUSTER_CASE_H
#define DTP_TESTS_CLUSTER_CASE_H

#include <CUnit/Basic.h>

#include "hw/cluster.h"

static struct dtp_arena *a;

static inline int setup(void) {
    a = dtp_arena_create("test");
    return 0;
}

static inline int teardown(void) {
    dtp_arena_destroy(a);
    return 0;
}

static inline struct dtp_cluster load(const char *name) {
    struct dtp_cluster c;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, name, &c, &err), DTP_OK);
    return c;
}

#endif
