/* breakdown.h: where the time of a step goes, from the paths of its ranks.
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
 */
#ifndef DTP_MODELS_BREAKDOWN_H
#define DTP_MODELS_BREAKDOWN_H

#include "models/lower/lower.h"
#include "models/evaluate/result.h"

/* free_path: by ESTIMATE with free transfers, a rank per stage. */
void dtp_bubble_fill(const struct dtp_path *free_path, struct dtp_bubble *out);
/* path: ESTIMATE's or SIMULATE's of the same costs. */
void dtp_breakdown_fill(const struct dtp_costs *costs, const struct dtp_schedule *schedule,
                        const struct dtp_path *path, const struct dtp_path *free_path,
                        struct dtp_breakdown *out);

#endif
