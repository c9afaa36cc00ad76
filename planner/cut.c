#include "planner/cut.h"

#include <math.h>

/* Layers taken from the last stage at most; less than GAIN is not worth a cut by hand. */
enum { MOST_TAKEN = 4 };
static const double GAIN = 0.01, IMBALANCE = 0.02;

/* As many layers less in the last stage, one more in each of those before it, which hold the fewest microbatches. */
static struct dtp_ints cut(struct dtp_arena *a, const struct dtp_model *m,
                           const struct dtp_plan *plan, int taken) {
    struct dtp_ints layers = {DTP_NEW(a, int, (size_t)plan->pp), (size_t)plan->pp};
    for (int s = 0; s < plan->pp; s++)
        layers.at[s] = dtp_plan_layers(plan, m, s);
    layers.at[plan->pp - 1] -= taken;
    for (int i = 0; i < taken; i++)
        layers.at[plan->pp - 2 - i % (plan->pp - 1)]++;
    return layers;
}

bool dtp_better_cut(struct dtp_arena *a, const struct dtp_problem *problem,
                    const struct dtp_result *best, struct dtp_result *out) {
    const struct dtp_plan *of = &best->plan;
    struct dtp_plan chosen = *of;
    struct dtp_result r;
    double least_s = INFINITY;
    if (of->pp < 2 || of->vpp > 1 || of->layers_per_stage.n > 0 ||
        best->bubble.imbalance < IMBALANCE)
        return false;
    struct dtp_evaluator *ev = dtp_evaluator_create(a, problem);
    for (int taken = 1; taken <= MOST_TAKEN; taken++) {
        struct dtp_plan p = *of;
        p.layers_per_stage = cut(a, problem->model, of, taken);
        p.account_for_ends = false;
        if (dtp_plan_check(problem, &p) == DTP_LEGAL &&
            dtp_evaluate(a, ev, &p, DTP_ESTIMATE, NULL, &r, NULL) == DTP_OK && r.fits &&
            r.step_s < least_s) {
            least_s = r.step_s;
            chosen = p;
        }
    }
    bool found = least_s < (1 - GAIN) * best->step_s &&
                 dtp_evaluate(a, ev, &chosen, DTP_SIMULATE, NULL, out, NULL) == DTP_OK &&
                 out->step_s < (1 - GAIN) * best->step_s;
    dtp_evaluator_destroy(ev);
    return found;
}
