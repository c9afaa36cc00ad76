/* CHECK: which candidates are legal, what memory they take, their bounds; and what is counted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/search_internal.h"
#include "sim/base/pool.h"

enum {
    LAYOUT_WAVE = 16,
    LAYOUT_STRIDE = 1000003,          /* a prime: waves look at all parts of the space alike */
    MOST_REMEMBERED_BYTES = 48 << 20, /* size of a thread's memos */
    TIGHTEN_BY = 64                   /* plans that are estimated to find how slow is too slow */
};
/* The search keeps plans whose bound is below this multiple of the `top`-th best estimate so far: more than the best
 * few, so that the report can show other layouts and usual plans. With fewer than options.most_kept it drops none. */
static const double WORTH_KEEPING = 1.25;

/* The state of all candidates of a shape that differ only in the microbatch. */
enum row_state { ROW_OPEN, ROW_LEGAL, ROW_OVER, ROW_ILLEGAL };

/* What a reason depends on besides the shape: a reason that refuses one candidate refuses the others in its scope. */
enum scope { OF_SHAPE, OF_ROW, OF_MICROBATCH, OF_ONE };
static const unsigned char scope_of[DTP_NREASONS] = {[DTP_WHY_SEQ_TP] = OF_ROW,
                                                     [DTP_WHY_SP_TP1] = OF_ROW,
                                                     [DTP_WHY_SP] = OF_ROW,
                                                     [DTP_WHY_EXPERTS_SP] = OF_ROW,
                                                     [DTP_WHY_ZERO] = OF_ROW,
                                                     [DTP_WHY_ZERO_PP] = OF_ROW,
                                                     [DTP_WHY_ZERO_DP1] = OF_ROW,
                                                     [DTP_WHY_ZERO_GROUP] = OF_ROW,
                                                     [DTP_WHY_ZERO_TP] = OF_ROW,
                                                     [DTP_WHY_RECOMPUTE] = OF_ROW,
                                                     [DTP_WHY_MODULES] = OF_ROW,
                                                     [DTP_WHY_OFFLOAD] = OF_ROW,
                                                     [DTP_WHY_OFFLOAD_ZERO] = OF_ROW,
                                                     [DTP_WHY_OFFLOAD_ROOM] = OF_ROW,
                                                     [DTP_WHY_SIZE] = OF_MICROBATCH,
                                                     [DTP_WHY_BATCH] = OF_MICROBATCH,
                                                     [DTP_WHY_MICROBATCHES] = OF_MICROBATCH,
                                                     [DTP_WHY_INTERLEAVE] = OF_MICROBATCH,
                                                     [DTP_WHY_FEW_MICROBATCHES] = OF_MICROBATCH,
                                                     [DTP_WHY_EP_OVERLAP] = OF_ONE};

/* Legal plans, in the order in which they were found. */
struct kept {
    struct dtp_legal *at;
    size_t n, capacity;
};

/* What one thread counts. */
struct tally {
    uint64_t reason[DTP_NREASONS], over_memory, fit;
    struct dtp_legal leanest; /* device_bytes 0: none yet */
    unsigned char *row;       /* [most rows of a shape] enum row_state */
    double *floor_s;          /* [microbatches x divisions of the state of a layout] 0: not known */
};

struct checker {
    struct searcher *s;
    struct tally *tally;           /* [jobs] */
    struct dtp_arena **wave_arena; /* [jobs] */
    struct kept *found;            /* [LAYOUT_WAVE] */
    size_t *
        layout; /* [nlayouts + 1] the first shape of each: all but its stages and their order is the same */
    size_t nlayouts, first; /* first: of the wave */
    struct kept fit, over;
    double most_s; /* plans of higher bounds are not kept */
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

/* Memory of the plan that is checked, with no layer recomputed and with all. */
struct beside {
    uint64_t none_bytes, all_bytes; /* UINT64_MAX: not known */
};

/* Returns the bytes of the plan with this mode of recomputation. */
static uint64_t bytes_beside(struct dtp_evaluator *ev, const struct dtp_plan *plan,
                             enum dtp_recompute mode) {
    struct dtp_plan p = *plan;
    p.recompute = mode;
    p.recompute_layers = 0;
    return dtp_evaluate_memory(ev, &p);
}

/* Returns the first number of recomputed layers that fits if memory falls evenly with it, as it mostly does. */
static int guess_fewest(uint64_t limit_bytes, const struct beside *beside, int chunk) {
    double over = (double)(beside->none_bytes - limit_bytes);
    return (int)(chunk * over / (double)(beside->none_bytes - beside->all_bytes)) + 1;
}

/* Puts into the plan the fewest layers whose recomputation makes it fit, the most where none does. Returns the
 * bytes. From the guess and its neighbour on by halving. */
static uint64_t find_fewest(const struct dtp_problem *problem, struct dtp_evaluator *ev,
                            struct beside *beside, struct dtp_plan *plan) {
    uint64_t limit_bytes = problem->memory_limit_bytes, bytes = beside->all_bytes;
    int chunk = dtp_plan_most_layers(plan, problem->model);
    int most = layers_up_to(problem, chunk, chunk - 1), low = 0, high = chunk; /* low: too few */
    if (beside->all_bytes == UINT64_MAX)
        beside->all_bytes = bytes_beside(ev, plan, DTP_RECOMPUTE_FULL);
    if (beside->none_bytes == UINT64_MAX)
        beside->none_bytes = bytes_beside(ev, plan, DTP_RECOMPUTE_NONE);
    bytes = beside->all_bytes;
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

/* The memory and the bound of a legal candidate. */
static void measure(struct searcher *s, struct dtp_evaluator *ev, struct beside *beside,
                    struct dtp_plan *plan, struct dtp_legal *out) {
    bool fewest = out->recompute_layers == DTP_FEWEST_LAYERS;
    out->device_bytes =
        fewest ? find_fewest(s->problem, ev, beside, plan) : dtp_evaluate_memory(ev, plan);
    out->recompute_layers = plan->recompute_layers;
    bool fits = out->device_bytes <= s->problem->memory_limit_bytes;
    out->verdict = fits ? DTP_VERDICT_BOUNDED : DTP_VERDICT_OVER_MEMORY;
    if (fits || s->options.every)
        out->bound_s = dtp_evaluate_bound(ev, plan);
    if (plan->recompute == DTP_RECOMPUTE_NONE)
        beside->none_bytes = out->device_bytes;
    else if (plan->recompute == DTP_RECOMPUTE_FULL && plan->recompute_layers == 0)
        beside->all_bytes = out->device_bytes;
}

static void keep(struct dtp_arena *a, struct kept *to, const struct dtp_legal *one) {
    to->at = dtp_arena_room(a, to->at, sizeof *to->at, to->n, &to->capacity);
    to->at[to->n++] = *one;
}

static bool is_leaner(const struct dtp_legal *a, const struct dtp_legal *b) {
    if (a->device_bytes != b->device_bytes)
        return a->device_bytes < b->device_bytes;
    return a->number < b->number;
}

/* A shape while it is checked. */
struct checking {
    struct checker *c;
    int thread;
    size_t shape;
    uint64_t nrows, nrecompute, nmicrobatches;
    struct tally *tally;
    struct kept *found;
};

/* Counts a legal candidate and keeps it if it may matter. */
static void settle(const struct checking *k, const struct dtp_legal *one) {
    struct searcher *s = k->c->s;
    uint64_t limit_bytes = s->problem->memory_limit_bytes;
    bool fits = one->verdict == DTP_VERDICT_BOUNDED;
    k->tally->fit += fits;
    k->tally->over_memory += !fits;
    if (k->tally->leanest.device_bytes == 0 || is_leaner(one, &k->tally->leanest))
        k->tally->leanest = *one;
    if (s->options.every ||
        (fits ? one->bound_s <= k->c->most_s : one->device_bytes <= DTP_MOST_MISSED * limit_bytes))
        keep(k->c->wave_arena[k->thread], k->found, one);
}

/* A reason refuses the candidate of the microbatch and row; where nobody wants each, all that it refuses are settled at
 * once. False: the microbatch is done with. */
static bool refuse(const struct checking *k, uint64_t microbatch, uint64_t row,
                   enum dtp_reason why) {
    struct searcher *s = k->c->s;
    uint64_t left = k->nmicrobatches - microbatch;
    unsigned char *state = k->tally->row;
    if (s->options.every) {
        s->out->reason[s->out->space.shape[k->shape].first + microbatch * k->nrows + row] =
            (uint8_t)why;
        k->tally->reason[why]++;
        return true;
    }
    if (scope_of[why] == OF_ONE || scope_of[why] == OF_ROW) {
        k->tally->reason[why] += scope_of[why] == OF_ROW ? left : 1;
        state[row] = scope_of[why] == OF_ROW ? ROW_ILLEGAL : state[row];
        return true;
    }
    for (uint64_t r = row; r < k->nrows; r++) {
        if (state[r] == ROW_ILLEGAL)
            continue;
        k->tally->reason[why] += scope_of[why] == OF_SHAPE ? left : 1;
        state[r] = scope_of[why] == OF_SHAPE ? ROW_ILLEGAL : state[r];
    }
    return false;
}

/* Returns the layers that are recomputed, of which the plan has one where the candidate stands for the fewest. */
static int plan_of(const struct checking *k, uint64_t microbatch, uint64_t row,
                   struct dtp_plan *out) {
    dtp_space_plan(&k->c->s->out->space, k->shape, microbatch * k->nrows + row, out);
    int layers = out->recompute_layers;
    if (layers == DTP_FEWEST_LAYERS)
        out->recompute_layers = 1;
    return layers;
}

/* The first row that was legal with a smaller microbatch tells for all of them whether this one is. */
static bool is_refused(const struct checking *k, uint64_t microbatch) {
    const unsigned char *state = k->tally->row;
    struct dtp_plan plan;
    uint64_t row = 0;
    while (row < k->nrows && state[row] != ROW_LEGAL && state[row] != ROW_OVER)
        row++;
    if (row == k->nrows)
        return false;
    plan_of(k, microbatch, row, &plan);
    enum dtp_reason why = dtp_plan_check(k->c->s->problem, &plan);
    if (why == DTP_LEGAL)
        return false;
    for (; row < k->nrows; row++)
        k->tally->reason[why] += state[row] != ROW_ILLEGAL;
    return true;
}

/* The plans like this one are slower than what is known, whatever their stages and recomputation. */
static bool is_slow(const struct checking *k, struct dtp_evaluator *ev, double *floor_s,
                    const struct dtp_plan *plan) {
    if (!isfinite(k->c->most_s))
        return false;
    if (*floor_s == 0)
        *floor_s = dtp_evaluate_floor(ev, plan);
    return *floor_s > k->c->most_s;
}

/* Plans that differ in recomputation alone. */
static bool check_group(const struct checking *k, struct dtp_evaluator *ev, uint64_t microbatch,
                        uint64_t group) {
    struct searcher *s = k->c->s;
    unsigned char *state = k->tally->row;
    uint64_t first = group * k->nrecompute, before = microbatch * k->nrows;
    double *floor_s = &k->tally->floor_s[before / k->nrecompute + group];
    struct beside beside = {UINT64_MAX, UINT64_MAX};
    for (uint64_t row = first; row < first + k->nrecompute; row++) {
        struct dtp_plan plan;
        struct dtp_legal one = {.number = s->out->space.shape[k->shape].first + before + row};
        if (state[row] == ROW_ILLEGAL || state[row] == ROW_OVER) {
            k->tally->over_memory += state[row] == ROW_OVER;
            continue;
        }
        one.recompute_layers = plan_of(k, microbatch, row, &plan);
        enum dtp_reason why =
            state[row] == ROW_LEGAL ? DTP_LEGAL : dtp_plan_check(s->problem, &plan);
        if (why != DTP_LEGAL && !refuse(k, microbatch, row, why))
            return false;
        if (why != DTP_LEGAL)
            continue;
        if (!s->options.every)
            state[row] = ROW_LEGAL;
        if (is_slow(k, ev, floor_s, &plan)) {
            k->tally->fit++;
            continue;
        }
        measure(s, ev, &beside, &plan, &one);
        settle(k, &one);
        if (!s->options.every &&
            one.device_bytes > DTP_MOST_MISSED * s->problem->memory_limit_bytes)
            state[row] = ROW_OVER;
    }
    return true;
}

static void check_microbatch(const struct checking *k, struct dtp_evaluator *ev,
                             uint64_t microbatch) {
    if (is_refused(k, microbatch))
        return;
    bool on = true;
    for (uint64_t group = 0; group < k->nrows / k->nrecompute && on; group++)
        on = check_group(k, ev, microbatch, group);
}

static uint64_t rows_of(const struct dtp_shape *h) {
    return (uint64_t)h->nzero * (uint64_t)h->nsp * (uint64_t)h->nrecompute;
}

static bool same_layout(const struct dtp_shape *a, const struct dtp_shape *b) {
    return a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep &&
           a->etp == b->etp && a->ep_overlap == b->ep_overlap && a->ep_per_node == b->ep_per_node;
}

static void check_layout(void *ctx, size_t item, int thread) {
    struct checker *c = ctx;
    const struct dtp_space *space = &c->s->out->space;
    size_t stride = c->nlayouts % LAYOUT_STRIDE == 0 ? 1 : LAYOUT_STRIDE;
    size_t layout = (c->first + item) * stride % c->nlayouts;
    const struct dtp_shape *first = &space->shape[c->layout[layout]];
    size_t nfloors = (size_t)first->nmicrobatch * (size_t)first->nzero * (size_t)first->nsp;
    struct checking k = {
        .c = c, .thread = thread, .tally = &c->tally[thread], .found = &c->found[item]};
    memset(k.tally->floor_s, 0, nfloors * sizeof *k.tally->floor_s);
    for (k.shape = c->layout[layout]; k.shape < c->layout[layout + 1]; k.shape++) {
        const struct dtp_shape *h = &space->shape[k.shape];
        k.nrows = rows_of(h);
        k.nrecompute = (uint64_t)h->nrecompute;
        k.nmicrobatches = (uint64_t)h->nmicrobatch;
        memset(k.tally->row, ROW_OPEN, k.nrows);
        for (uint64_t m = 0; m < k.nmicrobatches; m++)
            check_microbatch(&k, dtp_search_evaluator(c->s, thread), m);
    }
}

static int by_number(const void *x, const void *y) {
    const struct dtp_legal *a = x, *b = y;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int by_legal_bound(const void *x, const void *y) {
    const struct dtp_legal *a = x, *b = y;
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    return by_number(x, y);
}

static int by_legal_bytes(const void *x, const void *y) {
    const struct dtp_legal *a = x, *b = y;
    return is_leaner(a, b) ? -1 : is_leaner(b, a);
}

static int by_time(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* Leaves out what is slower than plans that are known already, and what misses memory by most. */
static void tighten(struct checker *c) {
    struct searcher *s = c->s;
    struct contender tried[TIGHTEN_BY], *wave[TIGHTEN_BY];
    double time_s[TIGHTEN_BY] = {0};
    size_t top = (size_t)s->options.top;
    if (c->over.n > s->options.most_kept) {
        qsort(c->over.at, c->over.n, sizeof *c->over.at, by_legal_bytes);
        c->over.n = s->options.most_kept / 2;
    }
    size_t n = c->fit.n < TIGHTEN_BY ? c->fit.n : TIGHTEN_BY;
    if (c->fit.n <= s->options.most_kept || top > n)
        return;
    qsort(c->fit.at, c->fit.n, sizeof *c->fit.at, by_legal_bound);
    for (size_t i = 0; i < n; i++) {
        tried[i] = (struct contender){.legal = &c->fit.at[i], .number = c->fit.at[i].number};
        wave[i] = &tried[i];
    }
    dtp_search_estimate(s, wave, n);
    for (size_t i = 0; i < n; i++)
        time_s[i] = tried[i].estimate_s;
    qsort(time_s, n, sizeof *time_s, by_time);
    if (time_s[top - 1] * WORTH_KEEPING < c->most_s)
        c->most_s = time_s[top - 1] * WORTH_KEEPING;
    while (c->fit.n > 0 && c->fit.at[c->fit.n - 1].bound_s > c->most_s)
        c->fit.n--;
}

static void check_wave(struct checker *c, size_t n) {
    struct searcher *s = c->s;
    memset(c->found, 0, n * sizeof *c->found);
    for (int i = 0; i < s->options.jobs; i++)
        c->wave_arena[i] = dtp_arena_create("wave");
    dtp_pool_run(s->options.jobs, n, check_layout, c);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < c->found[i].n; j++) {
            const struct dtp_legal *one = &c->found[i].at[j];
            keep(s->a, one->verdict == DTP_VERDICT_BOUNDED ? &c->fit : &c->over, one);
        }
    for (int i = 0; i < s->options.jobs; i++) {
        dtp_arena_destroy(c->wave_arena[i]);
        if (dtp_arena_bytes(s->arena[i]) > MOST_REMEMBERED_BYTES)
            dtp_search_forget(s, i);
    }
    if (!s->options.every)
        tighten(c);
}

/* Collects what the threads counted, and the remaining plans in order of their numbers. */
static void finish(struct checker *c) {
    struct searcher *s = c->s;
    struct dtp_search *out = s->out;
    struct dtp_legal *leanest = DTP_NEW(s->a, struct dtp_legal, 1);
    for (int i = 0; i < s->options.jobs; i++) {
        const struct tally *t = &c->tally[i];
        for (int r = 0; r < DTP_NREASONS; r++)
            out->counts.reason[r] += t->reason[r];
        out->counts.over_memory += t->over_memory;
        out->nfit += t->fit;
        if (t->leanest.device_bytes > 0 &&
            (leanest->device_bytes == 0 || is_leaner(&t->leanest, leanest)))
            *leanest = t->leanest;
    }
    out->leanest = leanest->device_bytes > 0 ? leanest : NULL;
    out->nlegal = c->fit.n + c->over.n;
    out->legal = DTP_NEW(s->a, struct dtp_legal, out->nlegal + 1);
    if (c->fit.n > 0)
        memcpy(out->legal, c->fit.at, c->fit.n * sizeof *out->legal);
    if (c->over.n > 0)
        memcpy(out->legal + c->fit.n, c->over.at, c->over.n * sizeof *out->legal);
    qsort(out->legal, out->nlegal, sizeof *out->legal, by_number);
}

static void find_layouts(struct checker *c) {
    struct searcher *s = c->s;
    const struct dtp_space *space = &s->out->space;
    size_t most_rows = 0, most_floors = 0;
    c->layout = DTP_NEW(s->a, size_t, space->nshapes + 1);
    for (size_t i = 0; i < space->nshapes; i++) {
        const struct dtp_shape *h = &space->shape[i];
        size_t rows = rows_of(h), floors = rows / (size_t)h->nrecompute * (size_t)h->nmicrobatch;
        if (i == 0 || !same_layout(h - 1, h))
            c->layout[c->nlayouts++] = i;
        most_rows = rows > most_rows ? rows : most_rows;
        most_floors = floors > most_floors ? floors : most_floors;
    }
    c->layout[c->nlayouts] = space->nshapes;
    for (int i = 0; i < s->options.jobs; i++) {
        c->tally[i].row = DTP_NEW(s->a, unsigned char, most_rows + 1);
        c->tally[i].floor_s = DTP_NEW(s->a, double, most_floors + 1);
    }
}

void dtp_search_check(struct searcher *s) {
    struct dtp_search *out = s->out;
    struct checker c = {.s = s,
                        .tally = DTP_NEW(s->a, struct tally, (size_t)s->options.jobs),
                        .wave_arena = DTP_NEW(s->a, struct dtp_arena *, (size_t)s->options.jobs),
                        .found = DTP_NEW(s->a, struct kept, LAYOUT_WAVE),
                        .most_s = (double)INFINITY};
    find_layouts(&c);
    if (s->options.every)
        out->reason = DTP_NEW(s->a, uint8_t, (size_t)out->space.ncandidates + 1);
    for (c.first = 0; c.first < c.nlayouts; c.first += LAYOUT_WAVE)
        check_wave(&c, c.nlayouts - c.first < LAYOUT_WAVE ? c.nlayouts - c.first : LAYOUT_WAVE);
    finish(&c);
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
    uint64_t least_bytes = fits ? 0 : limit_bytes + 1,
             most_bytes = (fits ? 1 : DTP_MOST_MISSED) * limit_bytes;
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
    c->candidates = out->space.ncandidates;
    c->illegal = c->candidates - c->over_memory - out->nfit;
    for (size_t i = 0; i < out->nlegal; i++) {
        c->estimated += out->legal[i].verdict >= DTP_VERDICT_ESTIMATED;
        c->simulated += out->legal[i].verdict == DTP_VERDICT_SIMULATED;
    }
    c->bounded = out->nfit - c->estimated;
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
