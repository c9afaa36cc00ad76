/* tasks_simulated.h: a simulated step as tasks (tasks.h).
 *
 * Actions are named as in the schedule's text ("0F3"), transfers "0SF3", operations by their own
 * name, with dX or dW in the backward.
 * A collective stands on each simulated member of its group. Counters: microbatches held by each rank
 * and, where memory is given, the bytes: all but activations, plus activations times what is held.
 */
#ifndef DTP_TRACES_TASKS_TASKS_SIMULATED_H
#define DTP_TRACES_TASKS_TASKS_SIMULATED_H

#include "models/evaluate/evaluate.h"
#include "traces/tasks/tasks.h"

struct dtp_tasks_simulation {
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    const struct dtp_costs *costs;
    const struct dtp_lowered *lowered;
    const struct dtp_timeline *timeline;
    const struct dtp_result *result; /* NULL: no memory */
    const char *title;
};
struct dtp_tasks *dtp_tasks_of_simulation(struct dtp_arena *a,
                                          const struct dtp_tasks_simulation *s);
/* Evaluates the plan at SIMULATE and gives its tasks. */
enum dtp_status dtp_tasks_simulate(struct dtp_arena *a, struct dtp_evaluator *ev,
                                   const struct dtp_plan *plan,
                                   const struct dtp_simulate_options *options,
                                   struct dtp_result *out_result, struct dtp_tasks **out,
                                   struct dtp_err *err);

#endif
