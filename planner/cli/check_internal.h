/* check_internal.h: private to check_*.c and verb_check.c. Options of dtplan check, and the problem that they ask for:
 * on CPU ranks with a calibration of this machine, on GPUs with the card's cluster and times of our runtime's kernels.
 */
#ifndef DTP_PLANNER_CLI_CHECK_INTERNAL_H
#define DTP_PLANNER_CLI_CHECK_INTERNAL_H

#include <string.h>

#include "planner/check.h"
#include "planner/cli/cli.h"
#include "runtime/run.h"

struct dtp_check_own {
    const char *backend, *calibration, *predictions, *results, *svg;
    int steps, layouts, skip;
    bool cover, shadow;
    int runners_up;
};

static inline bool dtp_check_on_gpus(const struct dtp_check_own *own) {
    return strcmp(own->backend, "cuda") == 0;
}
/* Also sets c->machine, versions and calibrate_s. */
enum dtp_status dtp_check_set_up(struct dtp_cli *cli, struct dtp_ask ask, struct dtp_check *c,
                                 struct dtp_setup *setup, struct dtp_err *err);
/* Returns the plan with its communication resolved: ranks communicate in order, and the plan tells the executor so. */
struct dtp_plan dtp_check_resolved(const struct dtp_plan *p, const struct dtp_framework *f);

extern const struct dtp_form dtp_check_shadow_form;
enum dtp_status dtp_check_shadow(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err);

/* What a step consists of, from a simulated timeline and from a measured trace.
 *
 * Terms, means over the ranks:
 *   forward     inside F actions                       backward   inside B, I and W (and recomputation)
 *   optimizer   the update, without the collectives in it
 *   waits       what is left of the step: for other stages, transfers, gradients that are reduced
 * Collectives of tensor parallelism are part of the first two (on GPUs they are inside graphs, whose parts
 * have no times), and so is the time in which these wait for parameters of ZeRO-3, where collectives overlap
 * compute; on CPUs a collective is a part of the waits.
 */
struct dtp_check_terms {
    const struct dtp_problem *problem;
    struct dtp_evaluator *ev;
    struct dtp_cost_memo *memo;
    bool beside; /* dp collectives overlap compute */
};
/* Predicts time, bytes and terms of row->plan. */
enum dtp_status dtp_check_predict(struct dtp_check_terms *t, struct dtp_check_row *row,
                                  struct dtp_err *err);
/* Fills in the measured terms from the trace of the last step. */
void dtp_check_measure(struct dtp_check_row *row, const struct dtp_run_result *r, bool beside);
/* Returns the mean time of actions of a kind ("0F3", enum dtp_action_kind) in the last step, and their number. */
double dtp_action_mean_s(const struct dtp_run_result *r, int kind, int *count);
/* Lists the tasks of the step as predicted and, with ranks numbered after those, as measured. */
enum dtp_status dtp_check_tasks(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan, const struct dtp_run_result *r,
                                struct dtp_tasks **out, struct dtp_err *err);

#endif
