/* maxmin.h: max-min fair rates of activities over links.
 *
 * Given links l with capacity C_l and activities i with cap R_i and weights w_il >= 0, the rates
 * x_i are max-min fair when
 *     (1) feasible       for each l: sum_i w_il x_i <= C_l,   0 < x_i <= R_i
 *     (2) bottleneck     each i has x_i = R_i, or a saturated link l (w_il > 0, equality in (1)) on
 *                        which x_i >= x_j for every j with w_jl > 0
 * Such rates exist and are unique (Bertsekas and Gallager 1992, 6.5.2). Progressive filling: raise all
 * unfixed rates together until a link saturates or a cap is met; fix those activities; repeat.
 *
 * The solver is incremental: adding or removing an activity recomputes only the connected component
 * of links and activities that the change touches; an activity alone on its links is O(uses).
 * One test per equation in tests/unit/test_maxmin.c.
 */
#ifndef DTP_SIM_MAXMIN_H
#define DTP_SIM_MAXMIN_H

#include "sim/base/arena.h"
#include "sim/graph.h"

struct dtp_maxmin;

struct dtp_maxmin *dtp_maxmin_create(struct dtp_arena *a, const struct dtp_platform *p,
                                     uint32_t max_activities);
/* activity: 0 .. max_activities-1, not active now. uses: only DTP_USE_LINK entries are read; the
 * array must stay valid while the activity is active. */
void dtp_maxmin_add(struct dtp_maxmin *m, uint32_t activity, double rate_cap,
                    const struct dtp_use *uses, uint32_t nuses);
void dtp_maxmin_remove(struct dtp_maxmin *m, uint32_t activity);
/* Recomputes what the adds and removes since the last call touched. *changed lists the activities
 * whose rate is now different, in increasing order; valid until the next call. */
uint32_t dtp_maxmin_solve(struct dtp_maxmin *m, const uint32_t **changed);
double dtp_maxmin_rate(const struct dtp_maxmin *m, uint32_t activity);

#endif
