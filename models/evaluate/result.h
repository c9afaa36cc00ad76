/* result.h: what is known of one plan: the numbers of the report and of --json (CLI.md). */
#ifndef DTP_MODELS_RESULT_H
#define DTP_MODELS_RESULT_H

#include "models/memory/memory.h"

/* X(field, JSON key): seconds of the step, by what the rank that ends last did or waited for; they
 * add up to step_s. */
#define DTP_BREAKDOWN_LIST(X)                                                                      \
    X(compute_s, "compute")                                                                        \
    X(recompute_s, "recompute")                                                                    \
    X(tp_exposed_s, "tp_exposed")                                                                  \
    X(cp_exposed_s, "cp_exposed")                                                                  \
    X(ep_exposed_s, "ep_exposed")                                                                  \
    X(pp_bubble_s, "pp_bubble")                                                                    \
    X(pp_exposed_s, "pp_exposed")                                                                  \
    X(dp_exposed_s, "dp_exposed")                                                                  \
    X(optimizer_s, "optimizer")                                                                    \
    X(offload_s, "offload")                                                                        \
    X(host_s, "host")                                                                              \
    X(other_s, "other")
struct dtp_breakdown {
#define X(field, key) double field;
    DTP_BREAKDOWN_LIST(X)
#undef X
};
static inline double dtp_breakdown_sum_s(const struct dtp_breakdown *b) {
    double sum_s = 0;
#define X(field, key) sum_s += b->field;
    DTP_BREAKDOWN_LIST(X)
#undef X
    return sum_s;
}

struct
    dtp_bubble { /* fractions of the pipeline window, mean over stages; they add up to `fraction` */
    double fraction;   /* 1 - compute busy / window, exposed communication not counted */
    double over_ideal; /* bubble time / ideal compute time: the text-books' (p - 1) / m */
    double warmup, drain, imbalance;
};

struct dtp_result {
    struct dtp_plan plan;
    double step_s, estimate_s, bound_s; /* step_s: of the highest fidelity that was run */
    double tokens_per_s, flops_per_gpu_per_s, mfu, hfu;
    double causal_mfu; /* mfu without what a causal mask leaves out of attention */
    struct dtp_bubble bubble;
    struct dtp_breakdown breakdown;
    int nstages;
    struct dtp_stage_memory *stages;                   /* [pp], result arena */
    uint64_t peak_bytes, reserved_bytes, device_bytes; /* of the worst stage */
    uint64_t observed_bytes;   /* what nvidia-smi shows: with what the allocator caches */
    uint64_t by_zero_stage[4]; /* device bytes; 0: refused by the framework */
    bool fits, extrapolated;
    const char *why_not; /* runners-up: why it lost; NULL otherwise */
};

struct dtp_problem;
/* The members of an object that is open. */
void dtp_result_write(struct dtp_json_out *w, const struct dtp_problem *problem,
                      const struct dtp_result *r);

#endif
