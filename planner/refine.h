/* refine.h: what the search does not try, tried on what it found.
 *
 * The search divides layers evenly, or with the embedding and the head as a layer each, and recomputes all layers
 * or none.
 *   cut        the head of a small model with a large vocabulary takes as long as several layers (Llama 3 8B: 2.4);
 *              up to four layers of the last stage go to those before it, for the best plan without chunks
 *   recompute  of a plan with full recomputation as few layers as fit (Megatron-LM's --recompute-num-layers,
 *              checkpointing of some layers under FSDP): for the best plan and for those that could beat it so
 * The fastest is told beside the best plan; the search itself stays what its space says.
 */
#ifndef DTP_PLANNER_REFINE_H
#define DTP_PLANNER_REFINE_H

#include "planner/search.h"

/* True where one of them fits and is faster than the best plan by 1 % and more; simulated, in `a`. */
bool dtp_refine(struct dtp_arena *a, const struct dtp_problem *problem,
                const struct dtp_search *search, struct dtp_result *out);

#endif
