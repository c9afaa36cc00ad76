/* CHECK: which candidates are legal, what memory they take, their bounds; and what is counted. */
#include <stdlib.h>
#include <string.h>

#include "planner/search_parts.h"
#include "sim/base/pool.h"

/* The legal plans of one shape, in the arena of the thread that found them. */
struct found {
    struct dtp_legal *at;
    size_t n;
};

struct checker {
    struct searcher *s;
    struct found *found; /* [nshapes] */
};

static uint64_t bytes_with(struct dtp_evaluator *ev, struct dtp_plan *plan, int recompute_layers) {
    plan->recompute_layers = recompute_layers;
    return dtp_evaluate_memory(ev, plan);
}

/* The most layers of a chunk up to `most` that the framework recomputes alone. */
static int layers_up_to(const struct dtp_problem *problem, int chunk, int most) {
    while (!dtp_framework_recomputes(problem->framework, chunk, most))
        most--;
    return most;
}

/* Of a plan like the one that is checked, with no layer recomputed and with all. */
struct beside {
    uint64_t none_bytes, all_bytes;
};

/* Where memory falls as evenly as it mostly does: the first number of layers that fits. */
static int guess_fewest(uint64_t limit_bytes, const struct beside *beside, int chunk) {
    if (beside->none_bytes == UINT64_MAX)
        return chunk / 2;
    double over = (double)(beside->none_bytes - limit_bytes);
    return (int)(chunk * over / (double)(beside->none_bytes - beside->all_bytes)) + 1;
}

/* Puts into the plan the fewest layers whose recomputation makes it fit, the most where none does. Returns the
 * bytes. From the guess and its neighbour on by halving. */
static uint64_t find_fewest(const struct dtp_problem *problem, struct dtp_evaluator *ev,
                            const struct beside *beside, struct dtp_plan *plan) {
    uint64_t limit_bytes = problem->memory_limit_bytes, bytes = beside->all_bytes;
    int chunk = dtp_plan_most_layers(plan, problem->model);
    int most = layers_up_to(problem, chunk, chunk - 1), low = 0, high = chunk; /* low: too few */
    if (beside->none_bytes <= limit_bytes)
        return bytes_with(ev, plan, 1);
    if (beside->all_bytes > limit_bytes || most == 1)
        return bytes_with(ev, plan, most);
    int k = guess_fewest(limit_bytes, beside, chunk);
    for (int tried = 0; high - low > 1; tried++) {
        k = k > low ? k : low + 1;
        k = layers_up_to(problem, chunk, k < high ? k : high - 1);
        uint64_t k_bytes = k > low ? bytes_with(ev, plan, k) : UINT64_MAX;
        if (k_bytes <= limit_bytes) {
            high = k;
            bytes = k_bytes;
        } else {
            low = k > low ? k : low + 1;
        }
        k = tried > 0 ? low + (high - low) / 2 : k == high ? high - 1 : low + 1;
    }
    if (high == chunk)
        return bytes_with(ev, plan, most);
    plan->recompute_layers = high;
    return bytes;
}

static bool check_candidate(struct searcher *s, struct dtp_evaluator *ev,
                            const struct beside *beside, struct dtp_plan *plan,
                            struct dtp_legal *out) {
    bool fewest = plan->recompute_layers == DTP_FEWEST_LAYERS;
    if (fewest)
        plan->recompute_layers = 1;
    enum dtp_reason why = dtp_plan_check(s->problem, plan);
    s->out->reason[out->number] = (uint8_t)why;
    if (why != DTP_LEGAL)
        return false;
    out->device_bytes =
        fewest ? find_fewest(s->problem, ev, beside, plan) : dtp_evaluate_memory(ev, plan);
    out->recompute_layers = plan->recompute_layers;
    bool fits = out->device_bytes <= s->problem->memory_limit_bytes;
    out->verdict = fits ? DTP_VERDICT_BOUNDED : DTP_VERDICT_OVER_MEMORY;
    if (fits || s->options.all_bounds)
        out->bound_s = dtp_evaluate_bound(ev, plan);
    return true;
}

static void check_shape(void *ctx, size_t item, int thread) {
    struct checker *c = ctx;
    const struct dtp_space *space = &c->s->out->space;
    struct dtp_evaluator *ev = dtp_search_evaluator(c->s, thread);
    uint64_t n = dtp_space_shape_size(space, item);
    struct found *f = &c->found[item];
    struct dtp_plan plan;
    struct dtp_legal one;
    struct beside beside = {0};
    size_t capacity = 0;
    for (uint64_t i = 0; i < n; i++) {
        dtp_space_plan(space, item, i, &plan);
        if (i % (uint64_t)space->shape[item].nrecompute == 0)
            beside = (struct beside){UINT64_MAX, UINT64_MAX};
        one = (struct dtp_legal){.number = space->shape[item].first + i};
        if (!check_candidate(c->s, ev, &beside, &plan, &one))
            continue;
        if (plan.recompute == DTP_RECOMPUTE_NONE)
            beside.none_bytes = one.device_bytes;
        else if (plan.recompute == DTP_RECOMPUTE_FULL && plan.recompute_layers == 0)
            beside.all_bytes = one.device_bytes;
        f->at = dtp_arena_room(c->s->arena[thread], f->at, sizeof *f->at, f->n, &capacity);
        f->at[f->n++] = one;
    }
}

void dtp_search_check(struct searcher *s) {
    struct dtp_search *out = s->out;
    size_t nshapes = out->space.nshapes;
    struct checker c = {s, DTP_NEW(s->a, struct found, nshapes + 1)};
    out->reason = DTP_NEW(s->a, uint8_t, (size_t)out->space.ncandidates + 1);
    dtp_pool_run(s->options.jobs, nshapes, check_shape, &c);
    for (size_t i = 0; i < nshapes; i++)
        out->nlegal += c.found[i].n;
    out->legal = DTP_NEW(s->a, struct dtp_legal, out->nlegal + 1);
    size_t at = 0;
    for (size_t i = 0; i < nshapes; i++) {
        if (c.found[i].n > 0)
            memcpy(out->legal + at, c.found[i].at, c.found[i].n * sizeof *out->legal);
        at += c.found[i].n;
    }
}

static void bound_item(void *ctx, size_t item, int thread) {
    struct searcher *s = ctx;
    struct contender *c = &s->bounded[item];
    struct dtp_plan plan;
    if (c->legal->bound_s == 0) {
        dtp_search_plan(s->out, c->legal, &plan);
        c->legal->bound_s = dtp_evaluate_bound(dtp_search_evaluator(s, thread), &plan);
    }
    c->bound_s = c->legal->bound_s;
}

void dtp_search_bound(struct searcher *s, struct contender *list, size_t n) {
    s->bounded = list;
    dtp_pool_run(s->options.jobs, n, bound_item, s);
}

static int by_bound(const void *x, const void *y) {
    const struct contender *a = x, *b = y;
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int by_bytes(const void *x, const void *y) {
    const struct contender *a = x, *b = y;
    if (a->legal->device_bytes != b->legal->device_bytes)
        return a->legal->device_bytes < b->legal->device_bytes ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void dtp_search_gather(struct searcher *s, bool fits, struct contender **out, size_t *out_n) {
    const struct dtp_search *r = s->out;
    uint64_t limit_bytes = s->problem->memory_limit_bytes;
    uint64_t least_bytes = fits ? 0 : limit_bytes + 1, most_bytes = (fits ? 1 : 2) * limit_bytes;
    size_t n = 0, at = 0;
    for (size_t i = 0; i < r->nlegal; i++)
        n += r->legal[i].device_bytes >= least_bytes && r->legal[i].device_bytes <= most_bytes;
    struct contender *list = DTP_NEW(s->a, struct contender, n + 1);
    for (size_t i = 0; i < r->nlegal; i++)
        if (r->legal[i].device_bytes >= least_bytes && r->legal[i].device_bytes <= most_bytes)
            list[at++] = (struct contender){.legal = &r->legal[i],
                                            .number = r->legal[i].number,
                                            .bound_s = r->legal[i].bound_s};
    qsort(list, n, sizeof *list, fits ? by_bound : by_bytes);
    *out = list;
    *out_n = n;
}

void dtp_search_count(struct dtp_search *out) {
    struct dtp_counts *c = &out->counts;
    uint64_t n[DTP_NVERDICTS] = {0};
    c->candidates = out->space.ncandidates;
    for (uint64_t i = 0; i < out->space.ncandidates; i++)
        if (out->reason[i] != DTP_LEGAL)
            c->reason[out->reason[i]]++;
    for (size_t i = 0; i < out->nlegal; i++) {
        const struct dtp_legal *l = &out->legal[i];
        n[l->verdict]++;
        if (!out->leanest || l->device_bytes < out->leanest->device_bytes)
            out->leanest = l;
    }
    c->illegal = c->candidates - out->nlegal;
    c->over_memory = n[DTP_VERDICT_OVER_MEMORY];
    c->bounded = n[DTP_VERDICT_BOUNDED];
    c->estimated = n[DTP_VERDICT_ESTIMATED] + n[DTP_VERDICT_SIMULATED];
    c->simulated = n[DTP_VERDICT_SIMULATED];
}

void dtp_search_plan(const struct dtp_search *search, const struct dtp_legal *legal,
                     struct dtp_plan *out) {
    dtp_space_candidate(&search->space, legal->number, out);
    out->recompute_layers = legal->recompute_layers;
}

int dtp_counts_reason(const struct dtp_counts *c, int k) {
    bool taken[DTP_NREASONS] = {false};
    int most = -1;
    for (; k >= 0; k--) {
        most = -1;
        for (int i = DTP_LEGAL + 1; i < DTP_NREASONS; i++)
            if (!taken[i] && c->reason[i] > 0 && (most < 0 || c->reason[i] > c->reason[most]))
                most = i;
        if (most < 0)
            return -1;
        taken[most] = true;
    }
    return most;
}

bool dtp_search_any(const struct dtp_problem *problem, const struct dtp_limits *limits,
                    struct dtp_plan *out) {
    struct dtp_arena *a = dtp_arena_create("search");
    struct dtp_evaluator *ev = dtp_evaluator_create(a, problem);
    struct dtp_space space;
    dtp_space_init(a, problem, limits, &space);
    bool found = false;
    for (size_t shape = 0; shape < space.nshapes && !found; shape++) {
        uint64_t n = dtp_space_shape_size(&space, shape);
        for (uint64_t i = 0; i < n && !found; i++) {
            dtp_space_plan(&space, shape, i, out);
            /* as few layers as fit: no plan fits with some that does not with all */
            found = dtp_plan_check(problem, out) == DTP_LEGAL &&
                    dtp_evaluate_memory(ev, out) <= problem->memory_limit_bytes;
        }
    }
    dtp_evaluator_destroy(ev);
    dtp_arena_destroy(a);
    return found;
}
