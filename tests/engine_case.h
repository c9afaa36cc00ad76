/* engine_case.h: a platform and a graph by hand, run by the engine: what its unit tests start from. */
#ifndef DTP_TESTS_ENGINE_CASE_H
#define DTP_TESTS_ENGINE_CASE_H

#include <CUnit/Basic.h>
#include <math.h>

#include "sim/engine.h"
#include "tests/arena_case.h"

static const double RELATIVE = 1e-12;

static struct dtp_platform platform;
static struct dtp_graph graph;
static struct dtp_timeline timeline;
static struct dtp_err err;

static inline void fresh(uint32_t nlinks, const double *capacity) {
    dtp_arena_reset(arena);
    dtp_platform_init(&platform, arena);
    dtp_graph_init(&graph, arena);
    for (uint32_t l = 0; l < nlinks; l++)
        dtp_platform_link(&platform, capacity[l], NULL);
}

static inline dtp_id add(struct dtp_task t, const struct dtp_use *uses, uint32_t n) {
    t.uses = uses;
    t.nuses = n;
    t.stream = DTP_NONE;
    return dtp_graph_add(&graph, &t);
}

/* A flow over the links whose bit is set in `links`. */
static inline dtp_id flow(unsigned links, double bytes, double start_s, double latency_s) {
    struct dtp_use uses[8];
    uint32_t n = 0;
    for (uint32_t l = 0; l < 8; l++)
        if (links >> l & 1)
            uses[n++] = (struct dtp_use){l, DTP_USE_LINK, 1};
    return add((struct dtp_task){.start_s = start_s,
                                 .latency_s = latency_s,
                                 .work = bytes,
                                 .rate_cap = DTP_UNCAPPED,
                                 .device = DTP_NONE},
               uses, n);
}

static inline dtp_id compute(double work_s, dtp_id device) {
    return add((struct dtp_task){.work = work_s, .device = device}, NULL, 0);
}

/* Loads the device with the share for work_s after latency_s. */
static inline dtp_id load(dtp_id device, double share, double latency_s, double work_s) {
    const struct dtp_use use = {device, DTP_USE_LOAD, share};
    return add((struct dtp_task){.latency_s = latency_s, .work = work_s, .device = DTP_NONE}, &use,
               1);
}

static inline void run(void) {
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&graph, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &platform, &graph, &timeline, &err), DTP_OK);
}

static inline void expect_end(dtp_id i, double end_s) {
    double x = timeline.end_s[i];
    CU_ASSERT(fabs(x - end_s) <= RELATIVE * end_s);
    if (!(fabs(x - end_s) <= RELATIVE * end_s))
        printf("  task %u: end %.17g, expected %.17g\n", i, x, end_s);
}

#endif
