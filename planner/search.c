#include "planner/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/search_internal.h"
#include "sim/base/pool.h"
#include "sim/base/units.h"

const char *const dtp_verdict_names[] = {"illegal",   "over_memory", "bounded",
                                         "estimated", "simulated",   NULL};

/* Constants, so that the work does not depend on the number of threads. */
enum {
    WAVE = 64,
    BOUND_WAVE = 1024,
    SIMULATED_WAVE = 8,
    MOST_NEAR_MISSES_TRIED = 64,
    NEAR_MISSES_SIMULATED = 3
};

/* A plan that does not fit is shown if its time would be below this fraction of the best. */
static const double WORTH_A_LOOK = 0.999;
/* ESTIMATE and SIMULATE add in different orders, so that either may exceed the other by this relative error. */
static const double ROUNDING = 1e-9;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * DTP_NANO;
}

static void tell(const struct searcher *s, const char *what, double done) {
    if (s->options.progress)
        s->options.progress(s->options.progress_ctx, what, done);
}

struct dtp_evaluator *dtp_search_evaluator(struct searcher *s, int thread) {
    if (!s->evaluator[thread]) {
        s->arena[thread] = dtp_arena_create("evaluator");
        s->evaluator[thread] = dtp_evaluator_create(s->arena[thread], s->problem);
    }
    return s->evaluator[thread];
}

void dtp_search_forget(struct searcher *s, int thread) {
    dtp_evaluator_destroy(s->evaluator[thread]);
    dtp_arena_destroy(s->arena[thread]);
    s->evaluator[thread] = NULL;
    s->arena[thread] = NULL;
}

/* ---- ESTIMATE ---- */

static void estimate_item(void *ctx, size_t item, int thread) {
    struct searcher *s = ctx;
    struct contender *c = s->wave[item];
    struct dtp_plan plan;
    dtp_search_plan(s->out, c->legal, &plan);
    c->estimate_s = dtp_evaluate_estimate(dtp_search_evaluator(s, thread), &plan);
}

void dtp_search_estimate(struct searcher *s, struct contender **wave, size_t n) {
    s->wave = wave;
    dtp_pool_run(s->options.jobs, n, estimate_item, s);
}

/* Keeps best[] (at most `most`, ascending) with t in it; returns the new length. */
static int keep_best(double *best, int n, int most, double t) {
    if (n == most && t >= best[n - 1])
        return n;
    int at = n < most ? n++ : n - 1;
    for (; at > 0 && best[at - 1] > t; at--)
        best[at] = best[at - 1];
    best[at] = t;
    return n;
}

/* Estimates contenders from s->next on while their bound does not exceed threshold(); the threshold is
 * the `top`-th best estimate so far, or `fixed_s` when that is given (> 0). */
static void estimate_until(struct searcher *s, double fixed_s) {
    struct contender *wave[WAVE];
    while (s->next < s->ncontenders) {
        double limit = fixed_s > 0                  ? fixed_s
                       : s->nbest == s->options.top ? s->best[s->nbest - 1]
                                                    : (double)INFINITY;
        size_t n = 0;
        while (n < WAVE && s->next < s->ncontenders && s->contender[s->next].bound_s <= limit) {
            struct contender *c = &s->contender[s->next++];
            if (c->estimate_s == 0)
                wave[n++] = c;
        }
        if (n == 0)
            break;
        dtp_search_estimate(s, wave, n);
        for (size_t i = 0; i < n; i++)
            s->nbest = keep_best(s->best, s->nbest, s->options.top, wave[i]->estimate_s);
        tell(s, "estimating", (double)s->next / (double)s->ncontenders);
    }
}

/* ---- SIMULATE ---- */

/* A result outlives the arena of the simulation. */
static void copy_result(struct dtp_arena *a, const struct dtp_result *from, struct dtp_result *to) {
    *to = *from;
    to->stages = DTP_NEW(a, struct dtp_stage_memory, (size_t)from->nstages + 1);
    memcpy(to->stages, from->stages, (size_t)from->nstages * sizeof *from->stages);
}

/* The graph of a large plan is large, so it lives in an arena that ends with the simulation of the plan. */
static void simulate_item(void *ctx, size_t item, int thread) {
    struct searcher *s = ctx;
    struct contender *c = s->wave[item];
    struct dtp_plan plan;
    struct dtp_result result;
    struct dtp_err err;
    struct dtp_simulate_options options = {.no_fold = s->options.no_fold,
                                           .detail = s->options.detail,
                                           .most_bytes = s->options.most_bytes};
    struct dtp_evaluator *ev = dtp_search_evaluator(s, thread);
    struct dtp_arena *scratch = dtp_arena_create("simulation");
    dtp_search_plan(s->out, c->legal, &plan);
    if (dtp_evaluate(scratch, ev, &plan, DTP_SIMULATE, &options, &result, &err) == DTP_OK) {
        c->result = DTP_NEW(s->arena[thread], struct dtp_result, 1);
        copy_result(s->arena[thread], &result, c->result);
    } else {
        c->failure = DTP_NEW(s->arena[thread], struct dtp_err, 1);
        *c->failure = err;
    }
    dtp_arena_destroy(scratch);
}

static enum dtp_status fail(const struct searcher *s, struct dtp_err *err) {
    if (err)
        *err = *s->failure;
    return s->failure->status;
}

/* Simulates those of the list that were not. One that this machine cannot simulate, as its graph is too large,
 * keeps its estimate; the others go on. */
static enum dtp_status simulate(struct searcher *s, struct contender **list, size_t n,
                                struct dtp_err *err) {
    struct contender *wave[DTP_MOST_SIMULATED_WAVE];
    size_t todo = 0;
    for (size_t i = 0; i < n; i++)
        if (!list[i]->result && !list[i]->failure)
            wave[todo++] = list[i];
    s->wave = wave;
    dtp_pool_run(s->options.jobs, todo, simulate_item, s);
    for (size_t i = 0; i < todo; i++) {
        const struct contender *c = wave[i];
        bool too_large =
            c->failure && c->failure->status == DTP_EUNSUPPORTED && isfinite(c->estimate_s);
        if (c->failure && (!too_large || !s->failure))
            s->failure = c->failure;
        if (c->failure && !too_large)
            return fail(s, err);
        if (!c->failure && c->result->step_s < s->best_simulated_s)
            s->best_simulated_s = c->result->step_s;
    }
    return DTP_OK;
}

static int by_estimate(const void *x, const void *y) {
    const struct contender *a = *(struct contender *const *)x, *b = *(struct contender *const *)y;
    if (a->estimate_s != b->estimate_s)
        return a->estimate_s < b->estimate_s ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* The estimated contenders by (estimate, number). */
static size_t ranking(struct searcher *s, struct contender **out) {
    size_t n = 0;
    for (size_t i = 0; i < s->ncontenders; i++)
        if (s->contender[i].estimate_s > 0)
            out[n++] = &s->contender[i];
    qsort(out, n, sizeof *out, by_estimate);
    return n;
}

/* Simulates the top estimates, then all plans that could still win. Estimates may be added meanwhile, but they only
 * change what comes after the best simulated time. */
static enum dtp_status simulate_top(struct searcher *s, struct dtp_err *err) {
    struct contender **rank = DTP_NEW(s->a, struct contender *, s->ncontenders + 1);
    size_t n = ranking(s, rank), done = 0;
    size_t top = (size_t)s->options.top < n ? (size_t)s->options.top : n;
    while (done < top) {
        size_t wave = top - done < DTP_MOST_SIMULATED_WAVE ? top - done : DTP_MOST_SIMULATED_WAVE;
        DTP_TRY(simulate(s, rank + done, wave, err));
        done += wave;
        tell(s, "simulating", (double)done / (double)top);
    }
    estimate_until(s, s->best_simulated_s);
    n = ranking(s, rank);
    for (size_t at = 0; at < n && rank[at]->estimate_s < s->best_simulated_s;) {
        size_t wave = 0;
        while (wave < SIMULATED_WAVE && at + wave < n &&
               rank[at + wave]->estimate_s < s->best_simulated_s)
            wave++;
        DTP_TRY(simulate(s, rank + at, wave, err));
        at += wave;
    }
    return DTP_OK;
}

static int by_time(const void *x, const void *y) {
    const struct contender *a = *(struct contender *const *)x, *b = *(struct contender *const *)y;
    if (a->result->step_s != b->result->step_s)
        return a->result->step_s < b->result->step_s ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static bool same_layout(const struct dtp_plan *a, const struct dtp_plan *b) {
    return a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep && a->etp == b->etp;
}

/* The first result without unusual settings, if the best has some. */
static const struct dtp_result *find_usual(const struct dtp_search *out) {
    for (size_t i = 0; i < out->nresults; i++)
        if (dtp_plan_is_usual(&out->result[i].plan))
            return i > 0 ? &out->result[i] : NULL;
    return NULL;
}

static void collect(struct searcher *s) {
    struct dtp_search *out = s->out;
    struct contender **list = DTP_NEW(s->a, struct contender *, s->ncontenders + 1);
    size_t n = 0;
    for (size_t i = 0; i < s->ncontenders; i++) {
        struct contender *c = &s->contender[i];
        if (c->estimate_s > 0) {
            c->legal->verdict = c->result ? DTP_VERDICT_SIMULATED : DTP_VERDICT_ESTIMATED;
            c->legal->time_s = c->result ? c->result->step_s : c->estimate_s;
        }
        out->counts.too_large += c->failure != NULL;
        if (c->result)
            list[n++] = c;
    }
    qsort(list, n, sizeof *list, by_time);
    out->result = DTP_NEW(s->a, struct dtp_result, n + 1);
    out->number = DTP_NEW(s->a, uint64_t, n + 1);
    out->new_layout = DTP_NEW(s->a, bool, n + 1);
    out->nresults = n;
    for (size_t i = 0; i < n; i++) {
        copy_result(s->a, list[i]->result, &out->result[i]);
        out->number[i] = list[i]->number;
        out->new_layout[i] = true;
        for (size_t k = 0; k < i; k++)
            if (same_layout(&out->result[k].plan, &out->result[i].plan))
                out->new_layout[i] = false;
    }
    out->usual = find_usual(out);
}

/* ---- near misses ---- */

static void add_near_miss(struct searcher *s, const struct contender *c) {
    struct dtp_search *out = s->out;
    if (c)
        copy_result(s->a, c->result, &out->near_miss[out->nnear_misses++]);
}

/* The contenders that may be near misses, by their estimates. Those that miss least come first, so that few
 * need a bound. */
static size_t find_promising(struct searcher *s, double most_s, struct contender **out) {
    struct contender *list;
    size_t n, tried = 0, promising = 0;
    dtp_search_gather(s, false, &list, &n);
    for (size_t at = 0; at < n && tried < MOST_NEAR_MISSES_TRIED; at += BOUND_WAVE) {
        size_t end = n - at < BOUND_WAVE ? n : at + BOUND_WAVE;
        dtp_search_bound(s, list + at, end - at);
        for (size_t i = at; i < end && tried < MOST_NEAR_MISSES_TRIED; i++)
            if (list[i].bound_s < most_s)
                out[tried++] = &list[i];
    }
    dtp_search_estimate(s, out, tried);
    for (size_t i = 0; i < tried; i++)
        if (out[i]->estimate_s < most_s)
            out[promising++] = out[i];
    return promising;
}

/* The first of the list that was simulated as faster than most_s, and the fastest. */
static void find_faster(struct contender *const *list, size_t n, double most_s,
                        struct contender **first, struct contender **fastest) {
    *first = *fastest = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!list[i]->result || list[i]->result->step_s >= most_s)
            continue;
        if (!*first)
            *first = list[i];
        if (!*fastest || list[i]->result->step_s < (*fastest)->result->step_s)
            *fastest = list[i];
    }
}

/* Simulates the contenders that could still change the two: those before the first, and those with an estimate not
 * above the fastest time. */
static enum dtp_status settle_faster(struct searcher *s, struct contender **list, size_t n,
                                     double most_s, struct dtp_err *err) {
    struct contender *wave[NEAR_MISSES_SIMULATED + 1], *first, *fastest;
    size_t count = 0;
    find_faster(list, n, most_s, &first, &fastest);
    double below_s = fastest ? fastest->result->step_s * (1 + ROUNDING) : most_s;
    for (size_t i = 0; i < n; i++) {
        if (list[i] == first)
            first = NULL;
        if (first || list[i]->estimate_s <= below_s)
            wave[count++] = list[i];
    }
    return simulate(s, wave, count, err);
}

/* Tries the few contenders that miss least and the one of the least estimate. Of those faster than the best it keeps
 * the one that misses least and the fastest. Mostly these are list[0] and list[last], which it simulates first. */
static enum dtp_status find_near_misses(struct searcher *s, struct dtp_err *err) {
    struct contender *list[MOST_NEAR_MISSES_TRIED], *least, *fastest;
    double most_s = s->best_simulated_s * WORTH_A_LOOK;
    size_t n = find_promising(s, most_s, list), last = 0;
    if (n == 0)
        return DTP_OK;
    for (size_t i = 1; i < n; i++)
        if (list[i]->estimate_s < list[last]->estimate_s)
            last = i;
    size_t few = n < NEAR_MISSES_SIMULATED ? n : NEAR_MISSES_SIMULATED;
    if (last >= few) {
        list[few] = list[last];
        last = few++;
    }
    struct contender *likely[] = {list[0], list[last]};
    DTP_TRY(simulate(s, likely, last > 0 ? 2 : 1, err));
    DTP_TRY(settle_faster(s, list, few, most_s, err));
    find_faster(list, few, most_s, &least, &fastest);
    add_near_miss(s, least);
    add_near_miss(s, fastest != least ? fastest : NULL);
    return DTP_OK;
}

/* ---- the whole search ---- */

static void start(struct searcher *s, const struct dtp_limits *limits) {
    struct dtp_search *out = s->out;
    *out = (struct dtp_search){0};
    if (s->options.top < 1)
        s->options.top = DTP_DEFAULT_TOP;
    if (s->options.jobs < 1)
        s->options.jobs = dtp_pool_default_threads();
    if (s->options.most_kept == 0)
        s->options.most_kept = DTP_DEFAULT_KEPT;
    if (s->options.layouts == 0)
        s->options.layouts = DTP_DEFAULT_LAYOUTS;
    s->best = DTP_NEW(s->a, double, (size_t)s->options.top);
    s->best_simulated_s = (double)INFINITY;
    s->evaluator = DTP_NEW(s->a, struct dtp_evaluator *, (size_t)s->options.jobs);
    s->arena = DTP_NEW(s->a, struct dtp_arena *, (size_t)s->options.jobs);
    dtp_space_init(s->a, s->problem, limits, &out->space);
}

static enum dtp_status run(struct searcher *s, struct dtp_err *err) {
    enum { MOST_LISTED = 20000000 };
    if (s->options.every && s->out->space.ncandidates > MOST_LISTED)
        return dtp_fail(
            err, DTP_EUSAGE,
            "a list of every plan would have %llu lines, at most %d are kept: narrow the search "
            "by options such as --tp 4,8, --schedule 1f1b or --zero-stage 1",
            (unsigned long long)s->out->space.ncandidates, (int)MOST_LISTED);
    tell(s, "checking", 0);
    dtp_search_check(s);
    dtp_search_gather(s, true, &s->contender, &s->ncontenders);
    estimate_until(s, 0);
    struct contender **others = DTP_NEW(s->a, struct contender *, DTP_MOST_LAYOUTS + 1);
    size_t nothers = dtp_search_layouts(s, others);
    struct contender *usual = dtp_search_usual(s);
    if (usual)
        others[nothers++] = usual;
    DTP_TRY(simulate_top(s, err));
    DTP_TRY(simulate(s, others, nothers, err));
    /* other plans may be faster than the best one so far */
    if (s->ncontenders > 0)
        DTP_TRY(simulate_top(s, err));
    collect(s);
    if (s->out->nresults == 0 && s->failure)
        return fail(s, err);
    return s->out->nresults > 0 ? find_near_misses(s, err) : DTP_OK;
}

enum dtp_status dtp_search(struct dtp_arena *a, const struct dtp_problem *problem,
                           const struct dtp_limits *limits,
                           const struct dtp_search_options *options, struct dtp_search *out,
                           struct dtp_err *err) {
    double start_s = now_s();
    struct searcher s = {.a = a, .problem = problem, .out = out};
    if (options)
        s.options = *options;
    start(&s, limits);
    enum dtp_status status = run(&s, err);
    for (int i = 0; i < s.options.jobs; i++)
        dtp_search_forget(&s, i);
    dtp_search_count(out);
    out->counts.seconds = now_s() - start_s;
    tell(&s, NULL, 1);
    return status;
}
