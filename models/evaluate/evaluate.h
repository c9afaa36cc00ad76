/* evaluate.h: one entry, three fidelities.
 *
 *     struct dtp_evaluator *ev = dtp_evaluator_create(a, &problem);     one per thread
 *     double lower_s = dtp_evaluate_bound(ev, &plan);
 *     double time_s  = dtp_evaluate_estimate(ev, &plan);
 *     DTP_TRY(dtp_evaluate(result_arena, ev, &plan, DTP_SIMULATE, NULL, &result, err));
 *
 * BOUND <= ESTIMATE <= SIMULATE holds for every legal plan. The evaluator keeps memos (layer costs,
 * schedules, in-flight counts) and an arena for the candidate, which it resets at each call.
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

/* Returns the default memory limit: device memory less the margin of the framework (validated error of the peak). */
uint64_t dtp_problem_default_limit(const struct dtp_problem *p);

struct dtp_evaluator;
/* The evaluator serves one thread and copies the problem, whose model, cluster and framework must stay valid. */
struct dtp_evaluator *dtp_evaluator_create(struct dtp_arena *a, const struct dtp_problem *problem);
void dtp_evaluator_destroy(struct dtp_evaluator *ev); /* frees its arena; `a` holds the rest */
const struct dtp_problem *dtp_evaluator_problem(const struct dtp_evaluator *ev);
/* These return seconds per step of a legal plan; INFINITY from ESTIMATE: a deadlock, or an operation without a time. */
double dtp_evaluate_floor(struct dtp_evaluator *ev, const struct dtp_plan *plan); /* lower.h */
double dtp_evaluate_bound(struct dtp_evaluator *ev, const struct dtp_plan *plan);
double dtp_evaluate_estimate(struct dtp_evaluator *ev, const struct dtp_plan *plan);
uint64_t dtp_evaluate_memory(struct dtp_evaluator *ev,
                             const struct dtp_plan *plan); /* device bytes of the worst stage */
/* Fills the whole result at the fidelity. The plan must be legal (dtp_plan_check); options may be NULL. */
enum dtp_status dtp_evaluate(struct dtp_arena *a, struct dtp_evaluator *ev,
                             const struct dtp_plan *plan, enum dtp_fidelity fidelity,
                             struct dtp_simulate_options *options, struct dtp_result *out,
                             struct dtp_err *err);

/* The time of a step is divided as follows, from the paths of its ranks.
 *
 * The bubble is the idle time on the longest path if transfers are free. For stage s, in the window from
 * the first start to the last end over all ranks,
 *     fraction   = mean over s of (window - busy_s) / window
 *     over_ideal = mean over s of (window - busy_s) / busy_s        the text-books' (p-1)/m, /v
 *     imbalance  busy_s of the busiest rank - busy_s; the rest is warm-up, at most the idle
 *                time before the rank's first backward, and drain
 * so that none of them contains exposed communication.
 *
 * The breakdown divides the time of the rank that ends last by the phases of its stages. Waits between its
 * actions are pp_bubble up to the bubble that it has with free transfers, and pp_exposed beyond that. What
 * compute lost to concurrent communication is dp_exposed. Waits for other ranks in the embedding or norm
 * all-reduce are pp_bubble.
 * other_s closes the sum to step_s to the last bit.
 *
 * free_path: ESTIMATE's path with free transfers, one rank per stage. */
void dtp_bubble_fill(const struct dtp_path *free_path, struct dtp_bubble *out);
/* path: the path of ESTIMATE or of SIMULATE for the same costs. */
void dtp_breakdown_fill(const struct dtp_costs *costs, const struct dtp_schedule *schedule,
                        const struct dtp_path *path, const struct dtp_path *free_path,
                        struct dtp_breakdown *out);

#endif
