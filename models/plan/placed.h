/* placed.h: a plan on the cluster: which GPU each of its ranks is, and what its groups look like there.
 *
 * A placement depends on the degrees and the ZeRO group alone, so that thousands of candidates share one: it is made
 * once and kept in a memo.
 */
#ifndef DTP_MODELS_PLACED_H
#define DTP_MODELS_PLACED_H

#include "models/plan/plan.h"
#include "sim/base/memo.h"

struct dtp_placed {
    bool fits; /* false: the cluster has no place for the plan; the rest is zero */
    struct dtp_placement at;
    /* What the first rank's groups look like; dp and pp alone are left out. From a memo, equal shapes have equal
     * addresses. */
    const struct dtp_group_shape *shape[DTP_NAXES];
    struct dtp_group_shape own[DTP_NAXES];
};

/* The shapes are those in out, which must stay where it is. */
void dtp_placed_make(const struct dtp_problem *problem, const struct dtp_plan *plan,
                     struct dtp_placed *out);

struct dtp_placed_memo {
    const struct dtp_problem *problem;
    struct dtp_memo memo, shapes;
};
/* The memo serves one problem, which must stay. */
void dtp_placed_memo_init(struct dtp_placed_memo *m, struct dtp_arena *a,
                          const struct dtp_problem *problem);
const struct dtp_placed *dtp_placed_find(struct dtp_placed_memo *m, const struct dtp_plan *plan);

#endif
