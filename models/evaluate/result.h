/* result.h: what is known of one plan: the numbers of the report and of --json (CLI.md). */
#ifndef DTP_MODELS_RESULT_H
#define DTP_MODELS_RESULT_H

#include "models/memory/memory.h"

/* X(field, JSON key, words, shorter words, colour of pages, colour of terminals): seconds of the step, by what the
 * rank that ends last did or waited for; they add up to step_s. */
#define DTP_BREAKDOWN_LIST(X)                                                                      \
    X(compute_s, "compute", "compute", "compute", "#2f9e44", GREEN)                                \
    X(recompute_s, "recompute", "recomputation", "recomputation", "#12b886", CYAN)                 \
    X(tp_exposed_s, "tp_exposed", "tensor-parallel communication", "tp communication", "#1c7ed6",  \
      BLUE)                                                                                        \
    X(cp_exposed_s, "cp_exposed", "context-parallel communication", "cp communication", "#1c7ed6", \
      BLUE)                                                                                        \
    X(ep_exposed_s, "ep_exposed", "expert communication", "ep communication", "#1c7ed6", BLUE)     \
    X(pp_bubble_s, "pp_bubble", "pipeline bubble", "pipeline bubble", "#f08c00", YELLOW)           \
    X(pp_exposed_s, "pp_exposed", "pipeline transfers", "pipeline transfers", "#4263eb", BLUE)     \
    X(dp_exposed_s, "dp_exposed", "gradient and parameter traffic", "dp traffic", "#4263eb", BLUE) \
    X(optimizer_s, "optimizer", "optimizer", "optimizer", "#0c8599", CYAN)                         \
    X(offload_s, "offload", "offload", "offload", "#c92a2a", RED)                                  \
    X(host_s, "host", "host time", "host time", "#e03131", RED)                                    \
    X(other_s, "other", "other", "other", "#868e96", DIM)
struct dtp_breakdown {
#define X(field, ...) double field;
    DTP_BREAKDOWN_LIST(X)
#undef X
};
static inline double dtp_breakdown_sum_s(const struct dtp_breakdown *b) {
    double sum_s = 0;
#define X(field, ...) sum_s += b->field;
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
    uint64_t peak_bytes, reserved_bytes, device_bytes; /* the worst stage */
    uint64_t memory_limit_bytes;                       /* what device_bytes may be */
    uint64_t observed_bytes; /* what nvidia-smi shows: with what the allocator caches */
    uint64_t by_zero_stage
        [4]; /* device bytes, of stages that the framework refuses too: as if it had them */
    int zero_refused; /* bit z: it refuses stage z in this plan */
    bool fits, extrapolated;
    bool
        unlike; /* simulated was one replica for others that lie otherwise on the nodes: it can be short */
    const char *why_not; /* runners-up: why it lost; NULL otherwise */
};

/* The object that JSON documents have for a result. */
extern const struct dtp_form dtp_result_form;

#endif
