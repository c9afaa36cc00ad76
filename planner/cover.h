/* cover.h: few plans that stand for many: every pair of settings that some plan has is in one chosen.
 *
 * Settings: tp, pp with its schedule and chunks, dp, ZeRO stage, sequence parallelism, recomputation,
 * microbatch size. Greedy: the plan with most pairs that are still missing, of equals the first; then,
 * until `least` are chosen, those that are spread evenly over the rest (deterministic).
 */
#ifndef DTP_PLANNER_COVER_H
#define DTP_PLANNER_COVER_H

#include "models/plan/plan.h"

/* Indices of the chosen plans into out[n], in the order of choice: the first few have most of the values, whatever
 * is cut off behind them; returns how many. */
size_t dtp_plan_cover(struct dtp_arena *a, const struct dtp_plan *plan, size_t n, size_t least,
                      size_t *out);

#endif
