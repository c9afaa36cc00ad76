#include "traces/validate/tune.h"

#include "models/schedule/schedule.h"

/* The run did fit: the memory model may be off by this much. */
static const double memory_slack = 1.05;

/* The best so far. */
struct best {
    struct dtp_plan plan;
    double time_s; /* infinite: none */
    double most_bytes;
};

static void try_plan(struct dtp_evaluator *ev, const struct dtp_plan *plan, struct best *best) {
    const struct dtp_problem *problem = dtp_evaluator_problem(ev);
    if (dtp_plan_check(problem, plan) != DTP_LEGAL ||
        (double)dtp_evaluate_memory(ev, plan) > best->most_bytes)
        return;
    double time_s = dtp_evaluate_estimate(ev, plan);
    if (time_s > 0 && time_s < best->time_s)
        *best = (struct best){*plan, time_s, best->most_bytes};
}

static void try_recompute(struct dtp_evaluator *ev, struct dtp_plan plan, bool search,
                          struct best *best) {
    if (!search) {
        try_plan(ev, &plan, best);
        return;
    }
    for (int r = DTP_RECOMPUTE_NONE; r <= DTP_RECOMPUTE_FULL; r++) {
        plan.recompute = (enum dtp_recompute)r;
        try_plan(ev, &plan, best);
    }
}

static void try_chunks(struct dtp_evaluator *ev, struct dtp_plan plan, struct dtp_unsaid unsaid,
                       struct best *best) {
    const struct dtp_model *m = dtp_evaluator_problem(ev)->model;
    try_recompute(ev, plan, unsaid.recompute, best);
    if (!unsaid.vpp || plan.pp == 1)
        return;
    for (int vpp = 2; vpp <= m->layers / plan.pp && vpp <= DTP_SCHEDULE_MAX_VPP; vpp++) {
        if (m->layers % (plan.pp * vpp) != 0)
            continue;
        plan.vpp = vpp;
        plan.schedule = dtp_schedule_usual(vpp);
        try_recompute(ev, plan, unsaid.recompute, best);
    }
}

static void try_all(struct dtp_evaluator *ev, struct dtp_plan plan, struct dtp_unsaid unsaid,
                    struct best *best) {
    int most = plan.global_batch_size / plan.dp;
    int from = unsaid.microbatch ? 1 : plan.microbatch_size;
    for (int b = from; b <= (unsaid.microbatch ? most : from); b *= 2) {
        plan.microbatch_size = b;
        try_chunks(ev, plan, unsaid, best);
    }
}

const char *dtp_run_tune(struct dtp_arena *a, struct dtp_run_case *c, struct dtp_unsaid unsaid) {
    struct dtp_arena *scratch = dtp_arena_create_in(a, "tune");
    const char *taken = NULL;
    int stated = c->plan.zero_stage;
    unsaid.recompute &= unsaid.microbatch || unsaid.vpp;
    if (unsaid.microbatch || unsaid.vpp) {
        struct dtp_evaluator *ev = dtp_evaluator_create(scratch, &c->problem);
        double limit_bytes = (double)c->problem.memory_limit_bytes;
        struct best best = {.time_s = INFINITY, .most_bytes = limit_bytes};
        try_all(ev, c->plan, unsaid, &best);
        best.most_bytes = memory_slack * limit_bytes;
        if (!isfinite(best.time_s))
            try_all(ev, c->plan, unsaid, &best);
        struct dtp_plan divided = c->plan; /* ZeRO-2 holds all weights, and the run did fit */
        divided.zero_stage = 3;
        if (!isfinite(best.time_s) && c->plan.zero_stage == 2)
            try_all(ev, divided, unsaid, &best);
        if (isfinite(best.time_s)) {
            c->plan = best.plan;
            taken = dtp_arena_printf(
                a, "taken as the fastest that fits: %smicrobatch %d, vpp %d, %s",
                best.plan.zero_stage != stated ? "ZeRO 3, " : "", c->plan.microbatch_size,
                c->plan.vpp,
                c->plan.recompute == DTP_RECOMPUTE_NONE ? "no recomputation"
                                                        : dtp_recompute_names[c->plan.recompute]);
        }
    }
    dtp_arena_destroy(scratch);
    return taken;
}
