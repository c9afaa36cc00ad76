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
 * Computed here as a fixed point. Each link has a level L_l, the rate at which it limits, or infinity:
 *     (3) rate           x_i = min(R_i, min over its links of L_l)
 *     (4) level          sum_i w_il min(y_il, L_l) = C_l, where y_il = min(R_i, the levels of the other
 *                        links of i); no solution: L_l is infinite
 * Any fixed point of (3) and (4) is feasible, and each activity has x_i = R_i or a saturated link with
 * L_l = x_i >= all rates there: so (1) and (2) hold, and as those have one solution it is the one.
 * Level by level the rates settle in a finite number of rounds (Charny, Clark and Jain 1995).
 *
 * The solver is incremental: a change makes the links of the activity dirty; a dirty link is solved by
 * (4), lowest level first, and makes other links dirty only where a y below their level has changed.
 * So work is proportional to what changes, not to the component; an activity alone on its links is
 * O(uses). Nothing is summed up over time: every level is computed from the capacity. Relative
 * differences below DTP_MAXMIN_TOLERANCE count as none.
 *
 * One test per equation in tests/unit/test_maxmin.c.
 */
#ifndef DTP_SIM_MAXMIN_H
#define DTP_SIM_MAXMIN_H

#include "sim/base/arena.h"
#include "sim/graph.h"

#define DTP_MAXMIN_TOLERANCE 1e-13

struct dtp_maxmin;

/* max_activities: a first guess; it grows. */
struct dtp_maxmin *dtp_maxmin_create(struct dtp_arena *a, const struct dtp_platform *p,
                                     uint32_t max_activities);
/* activity: a small dense number, not active now. uses: only DTP_USE_LINK entries are read, and
 * copied; no link twice. rate_cap may be infinite if there is a link. */
void dtp_maxmin_add(struct dtp_maxmin *m, uint32_t activity, double rate_cap,
                    const struct dtp_use *uses, uint32_t nuses);
void dtp_maxmin_remove(struct dtp_maxmin *m, uint32_t activity);
void dtp_maxmin_set_cap(struct dtp_maxmin *m, uint32_t activity, double rate_cap);
/* Recomputes what the changes since the last call touched. *changed lists the active ones whose
 * rate is now different (all new ones among them), each once, in an order that depends only on the
 * sequence of calls; valid until the next call. */
uint32_t dtp_maxmin_solve(struct dtp_maxmin *m, const uint32_t **changed);
double dtp_maxmin_rate(const struct dtp_maxmin *m, uint32_t activity);

#endif
