#include "models/plan/placed.h"

void dtp_placed_make(const struct dtp_problem *problem, const struct dtp_plan *plan,
                     struct dtp_placed *out) {
    static const enum dtp_axis axes[] = {DTP_AXIS_TP,   DTP_AXIS_CP,     DTP_AXIS_EP,
                                         DTP_AXIS_ETP,  DTP_AXIS_DP_CP,  DTP_AXIS_EDP,
                                         DTP_AXIS_ZERO, DTP_AXIS_REPLICA};
    *out = (struct dtp_placed){0};
    if (dtp_plan_place(plan, problem->cluster, problem->framework, &out->at, NULL) != DTP_OK)
        return;
    out->fits = true;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        struct dtp_group_shape *own = &out->own[axes[i]];
        *own = dtp_placement_shape(&out->at, problem->cluster, axes[i], 0);
        out->shape[axes[i]] = own;
    }
}

/* What a placement depends on. */
struct sizes {
    int tp, cp, dp, pp, ep, etp, zero_group;
};

void dtp_placed_memo_init(struct dtp_placed_memo *m, struct dtp_arena *a,
                          const struct dtp_problem *problem) {
    m->problem = problem;
    dtp_memo_init(&m->memo, a, sizeof(struct sizes));
    dtp_memo_init(&m->shapes, a, sizeof(struct dtp_group_shape));
}

static const struct dtp_group_shape *first_equal(struct dtp_placed_memo *m,
                                                 const struct dtp_group_shape *shape) {
    const struct dtp_group_shape *known = dtp_memo_find(&m->shapes, shape);
    if (known)
        return known;
    dtp_memo_put(&m->shapes, shape, shape);
    return shape;
}

const struct dtp_placed *dtp_placed_find(struct dtp_placed_memo *m, const struct dtp_plan *plan) {
    struct sizes key = {plan->tp, plan->cp,           plan->dp,        plan->pp,
                        plan->ep, dtp_plan_etp(plan), plan->zero_group};
    const struct dtp_placed *known = dtp_memo_find(&m->memo, &key);
    if (known)
        return known;
    struct dtp_placed *out = DTP_NEW(m->memo.a, struct dtp_placed, 1);
    dtp_placed_make(m->problem, plan, out);
    for (int axis = 0; axis < DTP_NAXES; axis++)
        if (out->shape[axis])
            out->shape[axis] = first_equal(m, out->shape[axis]);
    dtp_memo_put(&m->memo, &key, out);
    return out;
}
