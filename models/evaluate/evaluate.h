/* evaluate.h: one entry, three fidelities.
 *
 *     struct dtp_evaluator *ev = dtp_evaluator_create(a, &problem);     one per thread
 *     double lower_s = dtp_evaluate_bound(ev, &plan);
 *     double time_s  = dtp_evaluate_estimate(ev, &plan);
 *     DTP_TRY(dtp_evaluate(result_arena, ev, &plan, DTP_SIMULATE, NULL, &result, err));
 *
 * BOUND <= ESTIMATE <= SIMULATE for every legal plan. The evaluator keeps memos (layer costs,
 * schedules, in-flight counts) and a candidate arena that it resets per call.
 */
#ifndef DTP_MODELS_EVALUATE_H
#define DTP_MODELS_EVALUATE_H

#include "models/lower/lower.h"
#include "models/evaluate/result.h"

enum dtp_fidelity { DTP_BOUND, DTP_ESTIMATE, DTP_SIMULATE };

struct dtp_simulate_options {
    bool no_fold;
    enum dtp_detail detail;
    double most_bytes; /* as in struct dtp_lower_options */
    /* filled on request: the lowered graph and its timeline, in the result arena; else NULL */
    struct dtp_lowered **out_lowered;
    struct dtp_timeline **out_timeline;
};

/* Default memory limit: device memory less the margin of the framework and GPU (validated error). */
uint64_t dtp_problem_default_limit(const struct dtp_problem *p);

struct dtp_evaluator;
/* For one thread; copies the problem, whose model, cluster and framework must stay. */
struct dtp_evaluator *dtp_evaluator_create(struct dtp_arena *a, const struct dtp_problem *problem);
void dtp_evaluator_destroy(struct dtp_evaluator *ev); /* its candidate arena; the rest is a's */
const struct dtp_problem *dtp_evaluator_problem(const struct dtp_evaluator *ev);
/* Seconds of a step of a legal plan; ESTIMATE is INFINITY where the order deadlocks or an operation has no time. */
double dtp_evaluate_floor(struct dtp_evaluator *ev, const struct dtp_plan *plan); /* lower.h */
double dtp_evaluate_bound(struct dtp_evaluator *ev, const struct dtp_plan *plan);
double dtp_evaluate_estimate(struct dtp_evaluator *ev, const struct dtp_plan *plan);
uint64_t dtp_evaluate_memory(struct dtp_evaluator *ev,
                             const struct dtp_plan *plan); /* device bytes, worst stage */
/* Full result at the fidelity; the plan must be legal (dtp_plan_check). options may be NULL. */
enum dtp_status dtp_evaluate(struct dtp_arena *a, struct dtp_evaluator *ev,
                             const struct dtp_plan *plan, enum dtp_fidelity fidelity,
                             struct dtp_simulate_options *options, struct dtp_result *out,
                             struct dtp_err *err);

/* Where the time of a step goes, from the paths of its ranks.
 *
 * Bubble: idle time of the longest path on which transfers are free, per stage s in the window from
 * the first start to the last end over all ranks,
 *     fraction   = mean over s of (window - busy_s) / window
 *     over_ideal = mean over s of (window - busy_s) / busy_s        the text-books' (p-1)/m, /v
 *     imbalance  busy_s of the busiest rank - busy_s; of what is left, warm-up up to the idle time
 *                before the rank's first backward, drain the rest
 * so that exposed communication is in neither.
 *
 * Breakdown of the rank that ends last: what its actions consist of by the phases of its stages; its
 * waits between actions up to the bubble it has where transfers are free are pp_bubble, the rest is
 * pp_exposed; compute that ran slower than its cost beside communication is dp_exposed; waiting for
 * other ranks in the embedding or norm all-reduce is pp_bubble. other_s closes the sum to step_s to
 * the last bit.
 *
 * free_path: by ESTIMATE with free transfers, a rank per stage. */
void dtp_bubble_fill(const struct dtp_path *free_path, struct dtp_bubble *out);
/* path: ESTIMATE's or SIMULATE's of the same costs. */
void dtp_breakdown_fill(const struct dtp_costs *costs, const struct dtp_schedule *schedule,
                        const struct dtp_path *path, const struct dtp_path *free_path,
                        struct dtp_breakdown *out);

#endif
