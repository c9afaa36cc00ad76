/* cut.h: a better cut of the layers into stages than the search has.
 *
 * The search divides layers evenly, or with the embedding and the head as a layer each. The head of a small model
 * with a large vocabulary takes as long as several layers (Llama 3 8B: 2.4): one or more layers less in the last
 * stage make all stages wait less. Such a cut is found for one plan, after the search, and told; the search itself
 * stays what its space says.
 */
#ifndef DTP_PLANNER_CUT_H
#define DTP_PLANNER_CUT_H

#include "models/evaluate.h"

/* True where a cut of the best plan without chunks fits and is faster by 1 % and more; simulated, in `a`. */
bool dtp_better_cut(struct dtp_arena *a, const struct dtp_problem *problem,
                    const struct dtp_result *best, struct dtp_result *out);

#endif
