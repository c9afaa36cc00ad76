#include "planner/refine.h"

/* Layers taken from the last stage at most; less than GAIN is not worth it. */
enum { MOST_TAKEN = 4 };
static const double GAIN = 0.01, IMBALANCE = 0.02;

struct tried {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_evaluator *ev;
    struct dtp_plan plan; /* the fastest so far */
    double least_s;
};

/* Estimates a plan; false: refused or too large. */
static bool fits(struct tried *t, const struct dtp_plan *p, double *out_s) {
    struct dtp_result r;
    bool runs = dtp_plan_check(t->problem, p) == DTP_LEGAL &&
                dtp_evaluate(t->a, t->ev, p, DTP_ESTIMATE, NULL, &r, NULL) == DTP_OK && r.fits;
    *out_s = runs ? r.step_s : 0;
    return runs;
}

static void keep(struct tried *t, const struct dtp_plan *p, double step_s) {
    if (step_s > 0 && step_s < t->least_s) {
        t->least_s = step_s;
        t->plan = *p;
    }
}

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

static void try_cuts(struct tried *t, const struct dtp_result *best) {
    const struct dtp_plan *of = &best->plan;
    double step_s;
    if (of->pp < 2 || of->vpp > 1 || of->layers_per_stage.n > 0 ||
        best->bubble.imbalance < IMBALANCE)
        return;
    for (int taken = 1; taken <= MOST_TAKEN; taken++) {
        struct dtp_plan p = *of;
        p.layers_per_stage = cut(t->a, t->problem->model, of, taken);
        p.account_for_ends = false;
        if (fits(t, &p, &step_s))
            keep(t, &p, step_s);
    }
}

/* The fewest layers of each chunk whose recomputation makes the plan fit, by halving. */
static void try_layers(struct tried *t, const struct dtp_plan *of) {
    int largest = 0, low = 0; /* low: too few */
    double step_s, high_s = 0;
    for (int vs = 0; vs < of->pp * of->vpp; vs++) {
        int layers = dtp_plan_layers(of, t->problem->model, vs);
        largest = layers > largest ? layers : largest;
    }
    struct dtp_plan p = *of, fit = *of;
    for (int high = largest; high - low > 1;) {
        p.recompute_layers = low + (high - low) / 2;
        if (fits(t, &p, &step_s)) {
            high = p.recompute_layers;
            high_s = step_s;
            fit = p;
        } else {
            low = p.recompute_layers;
        }
    }
    keep(t, &fit, high_s);
}

bool dtp_refine(struct dtp_arena *a, const struct dtp_problem *problem,
                const struct dtp_search *search, struct dtp_result *out) {
    const struct dtp_result *best = &search->result[0];
    double enough_s = (1 - GAIN) * best->step_s;
    struct tried t = {
        .a = a, .problem = problem, .ev = dtp_evaluator_create(a, problem), .least_s = enough_s};
    try_cuts(&t, best);
    for (size_t i = 0; i < search->nresults; i++) {
        const struct dtp_result *r = &search->result[i];
        if (r->plan.recompute == DTP_RECOMPUTE_FULL && r->plan.recompute_layers == 0 && r->fits &&
            r->step_s - r->breakdown.recompute_s < t.least_s)
            try_layers(&t, &r->plan);
    }
    bool found = t.least_s < enough_s &&
                 dtp_evaluate(a, t.ev, &t.plan, DTP_SIMULATE, NULL, out, NULL) == DTP_OK &&
                 out->step_s < enough_s;
    dtp_evaluator_destroy(t.ev);
    return found;
}
