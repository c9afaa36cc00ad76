/* check_terms.h: what a step consists of, from a simulated timeline and from a measured trace.
 *
 * Terms, means over the ranks:
 *   forward     inside F actions                       backward   inside B, I and W (and recomputation)
 *   optimizer   the update, without the collectives in it
 *   waits       what is left of the step: for other stages, transfers, gradients that are reduced
 * Collectives of tensor parallelism are part of the first two (on GPUs they are inside graphs, whose parts
 * have no times), and so is the time in which these wait for parameters of ZeRO-3, where collectives run beside
 * compute; on CPUs a collective is a part of the waits.
 */
#ifndef DTP_PLANNER_CLI_CHECK_TERMS_H
#define DTP_PLANNER_CLI_CHECK_TERMS_H

#include "planner/check.h"
#include "runtime/run.h"
#include "traces/tasks/tasks.h"

struct dtp_check_terms {
    const struct dtp_problem *problem;
    struct dtp_evaluator *ev;
    struct dtp_cost_memo *memo;
    bool beside; /* dp collectives run beside compute */
};
/* Time, bytes and terms of row->plan. */
enum dtp_status dtp_check_predict(struct dtp_check_terms *t, struct dtp_check_row *row,
                                  struct dtp_err *err);
/* The measured terms, from the trace of the last step. */
void dtp_check_measure(struct dtp_check_row *row, const struct dtp_run_result *r, bool beside);
/* Mean time of the actions of a kind ("0F3", enum dtp_action_kind) in the last step, and how many. */
double dtp_action_mean_s(const struct dtp_run_result *r, int kind, int *count);
/* The step as predicted and, with ranks shifted behind those, as measured. */
enum dtp_status dtp_check_tasks(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan, const struct dtp_run_result *r,
                                struct dtp_tasks **out, struct dtp_err *err);

#endif
