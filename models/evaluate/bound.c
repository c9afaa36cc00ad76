#include <string.h>

#include "models/evaluate/evaluate.h"
#include "models/plan/plan.h"

/* BOUND. Let F_s, B_s be what rank s computes for one microbatch (all its chunks), f_s, b_s the same of
 * its first chunk alone, and h the least time of a transfer. Whatever the order of the actions, the
 * first F on rank s ends no earlier than all first chunks before it have run and sent on; rank s then
 * computes m (F_s + B_s), its stream held by each of its own sends where transfers block; and its
 * last action is the backward of its first chunk, whose gradient still has to go down to rank 0,
 * where the tail follows:
 *
 *     T >= sum over q < s of (f_q + b_q + 2 h) + m (F_s + B_s) + sends_s h + tail_0     for every s
 *
 * With the backward split (B = I + W) the last action may be a weight gradient that nobody waits for:
 *
 *     T >= sum over q < s of (f_q + h) + max(m (F_s + I_s + W_s), m (F_s + I_s) + sum of (i_q + h) +
 *          tail_0) + sends_s h
 *
 * Sends that hold rank s: those of its F's unless it has the last virtual stage, of its B's unless it
 * has the first; the last gradient it sends is part of the way down already.
 */

struct stage_sum {
    double forward_s, input_s, weight_s; /* one virtual stage and microbatch */
};

static void add(struct stage_sum *s, const struct dtp_phase *p, double n, double nrecompute) {
    s->forward_s += n * p[0].total_s;
    s->input_s += n * p[1].total_s + nrecompute * p[3].total_s;
    s->weight_s += n * p[2].total_s;
}

struct bounding {
    const struct dtp_plan *plan;
    const struct dtp_problem *problem;
    const struct dtp_layer_costs *layers;
    double head_share; /* head_share: of its weight gradients, within the backwards */
    int nstages;
    /* the virtual stage that was asked for last: most are like the one before */
    double n[DTP_NLAYER_KINDS];
    struct stage_sum sum;
};

/* Takes out the weight gradients of n heads that are deferred to the end of the step. */
static void take_late(const struct bounding *b, struct stage_sum *s, double n) {
    s->weight_s -= n * (1 - b->head_share) * b->layers->of[DTP_LAYER_HEAD][2].total_s;
}

static bool same_layers(const double *x, const double *y) {
    int k = 0;
    while (k < DTP_NLAYER_KINDS && x[k] == y[k])
        k++;
    return k == DTP_NLAYER_KINDS;
}

static struct stage_sum stage_cost(struct bounding *b, int vs) {
    struct stage_sum s = {0};
    double n[DTP_NLAYER_KINDS];
    double share = dtp_cost_stage_count(b->problem, b->plan, vs, n);
    if (same_layers(n, b->n))
        return b->sum;
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        if (n[k] > 0)
            add(&s, b->layers->of[k], n[k],
                n[k] * (dtp_layer_is_block((enum dtp_layer_kind)k) ? share : 1));
    if (n[DTP_LAYER_HEAD] > 0)
        take_late(b, &s, n[DTP_LAYER_HEAD]);
    memcpy(b->n, n, sizeof n);
    b->sum = s;
    return s;
}

/* True when all virtual stages hold the same layers and go round the ranks (chunk c of rank r is
 * virtual stage c pp + r), so that three ranks stand for all. */
static bool alike(const struct bounding *b) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[b->plan->schedule];
    int last = kind->stage(b->plan->pp, b->plan->vpp, b->plan->pp - 1, b->plan->vpp - 1);
    return last == b->nstages - 1 && dtp_plan_alike(b->plan, b->problem->model) &&
           !b->problem->framework->quirks.textbook.equal_stages;
}

struct rank_sum {
    double up_s, down_s;   /* first chunk: F; B without W where split */
    double chain_s, all_s; /* all chunks: F + B without W where split; F + B */
};

static void take(struct rank_sum *sum, const struct stage_sum *s, bool first_chunk, double n,
                 bool split) {
    double down_s = s->input_s + (split ? 0 : s->weight_s);
    sum->all_s += n * (s->forward_s + s->input_s + s->weight_s);
    sum->chain_s += n * (s->forward_s + down_s);
    if (first_chunk) {
        sum->up_s += s->forward_s;
        sum->down_s += down_s;
    }
}

static struct rank_sum rank_cost(struct bounding *b, int r, bool split) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[b->plan->schedule];
    struct rank_sum sum = {0};
    for (int c = 0; c < b->plan->vpp; c++) {
        struct stage_sum s = stage_cost(b, kind->stage(b->plan->pp, b->plan->vpp, r, c));
        take(&sum, &s, c == 0, 1, split);
    }
    return sum;
}

/* Returns the same for equal stages: vpp equal chunks, the embedding on the first stage, the head on the last. */
static struct rank_sum rank_cost_alike(const struct bounding *b, int r, bool split) {
    int n = b->problem->model->layers / b->nstages;
    struct stage_sum s = {0}, embedding = {0}, head = {0};
    struct rank_sum sum = {0};
    add(&s, b->layers->of[DTP_LAYER_DENSE], n, n * dtp_plan_recomputed_share(b->plan, n));
    take(&sum, &s, true, b->plan->vpp, split);
    if (r == 0) {
        add(&embedding, b->layers->of[DTP_LAYER_EMBEDDING], 1, 1);
        take(&sum, &embedding, true, 1, split);
    }
    if (r + 1 == b->plan->pp) {
        add(&head, b->layers->of[DTP_LAYER_HEAD], 1, 1);
        take_late(b, &head, 1);
        take(&sum, &head, b->nstages == b->plan->pp, 1, split);
    }
    return sum;
}

/* Transfers that hold the stream of rank r while it still has work, at least. */
static double held_sends(const struct bounding *b, int r, int m) {
    const struct dtp_plan *p = b->plan;
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[p->schedule];
    int n = 0;
    for (int c = 0; c < p->vpp; c++) {
        int vs = kind->stage(p->pp, p->vpp, r, c);
        bool up_here = c + 1 < p->vpp && kind->stage(p->pp, p->vpp, r, c + 1) == vs + 1;
        bool down_here = c > 0 && kind->stage(p->pp, p->vpp, r, c - 1) == vs - 1;
        n += (vs + 1 < b->nstages && !up_here) + (vs > 0 && !down_here);
    }
    return (double)n * m - (r > 0);
}

static double pipeline(struct bounding *b, const struct dtp_bound_costs *extra, bool blocking) {
    const struct dtp_plan *p = b->plan;
    int m = dtp_plan_num_microbatches(p);
    bool split = dtp_schedule_kinds[p->schedule].split_backward, same = alike(b);
    double hop_s = p->pp > 1 ? extra->p2p_s : 0, up_s = 0, down_s = 0, best_s = 0;
    for (int r = 0; r < p->pp; r++) {
        if (same && r == 1 && p->pp > 3) { /* only the last of equal ranks can bind */
            struct rank_sum middle = rank_cost_alike(b, r, split);
            up_s += (p->pp - 3) * (middle.up_s + hop_s);
            down_s += (p->pp - 3) * (middle.down_s + hop_s);
            r = p->pp - 2;
        }
        struct rank_sum sum = same ? rank_cost_alike(b, r, split) : rank_cost(b, r, split);
        double sends_s = blocking && p->pp > 1 ? held_sends(b, r, m) * hop_s : 0;
        double tail_s = split && r > 0 ? 0 : extra->tail_s;
        double work_s = m * sum.all_s + (split ? 0 : down_s) + tail_s;
        double chain_s = m * sum.chain_s + down_s + extra->tail_s;
        double t = up_s + sends_s + (work_s > chain_s ? work_s : chain_s);
        best_s = t > best_s ? t : best_s;
        up_s += sum.up_s + hop_s;
        down_s += sum.down_s + hop_s;
    }
    return best_s;
}

/* Overlapped reductions of the first virtual stage queue from the first part of its last backward on:
 * what they exceed that backward by comes after it. */
static double queued_s(struct bounding *b, const struct dtp_bound_costs *extra) {
    if (extra->nreduce < 2 || dtp_schedule_kinds[b->plan->schedule].split_backward)
        return 0;
    struct stage_sum first = stage_cost(b, 0);
    int n = extra->nreduce;
    double backward_s = first.input_s + first.weight_s;
    double more_s = (n - 1) * extra->reduce_s - backward_s * (n - 1) / n;
    return more_s > 0 ? more_s : 0;
}

/* Products here, sums of as many terms as there are actions on the path: where the bound is exact it may come out above
 * by their rounding, and a tie would be pruned. */
static const double rounding = 1e-11;

double dtp_floor_s(struct dtp_cost_memo *memo, const struct dtp_problem *problem,
                   const struct dtp_plan *plan) {
    struct dtp_plan whole = *plan;
    if (dtp_device_has_clock(&problem->cluster->gpu, plan->dtype) ||
        problem->framework->kernels.ops == DTP_OPS_OWN)
        return 0;
    whole.recompute = DTP_RECOMPUTE_NONE;
    whole.recompute_layers = whole.recompute_modules = 0;
    whole.zero_stage = 0;
    struct bounding b = {.plan = &whole,
                         .problem = problem,
                         .layers = dtp_cost_layers(memo, &whole),
                         .head_share = dtp_cost_inline_share(problem, plan),
                         .n = {-1}};
    whole.pp = whole.vpp = 1;
    whole.account_for_ends = false;
    whole.last_stage_less = 0;
    whole.layers_per_stage = (struct dtp_ints){0};
    struct stage_sum s = stage_cost(&b, 0);
    return dtp_plan_num_microbatches(plan) * (s.forward_s + s.input_s + s.weight_s) / plan->pp *
           (1 - rounding);
}

double dtp_bound_s(struct dtp_cost_memo *memo, const struct dtp_problem *problem,
                   const struct dtp_plan *plan) {
    struct dtp_bound_costs extra;
    dtp_cost_bound(memo, plan, &extra);
    struct bounding b = {.plan = plan,
                         .problem = problem,
                         .layers = dtp_cost_layers(memo, plan),
                         .head_share = dtp_cost_inline_share(problem, plan),
                         .nstages = plan->pp * plan->vpp,
                         .n = {-1}};
    extra.tail_s += queued_s(&b, &extra);
    bool blocking = dtp_plan_p2p_blocks(plan, problem->framework);
    return (extra.fixed_s + pipeline(&b, &extra, blocking)) * (1 - rounding);
}
