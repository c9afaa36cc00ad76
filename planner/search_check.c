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

static bool check_candidate(struct searcher *s, struct dtp_evaluator *ev, uint64_t number,
                            const struct dtp_plan *plan, struct dtp_legal *out) {
    enum dtp_reason why = dtp_plan_check(s->problem, plan);
    s->out->reason[number] = (uint8_t)why;
    if (why != DTP_LEGAL)
        return false;
    *out = (struct dtp_legal){.number = number, .device_bytes = dtp_evaluate_memory(ev, plan)};
    out->bound_s = dtp_evaluate_bound(ev, plan);
    out->verdict = out->device_bytes > s->problem->memory_limit_bytes ? DTP_VERDICT_OVER_MEMORY
                                                                      : DTP_VERDICT_BOUNDED;
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
    size_t capacity = 0;
    for (uint64_t i = 0; i < n; i++) {
        dtp_space_plan(space, item, i, &plan);
        if (!check_candidate(c->s, ev, space->shape[item].first + i, &plan, &one))
            continue;
        if (f->n == capacity) {
            size_t grown = capacity ? 2 * capacity : 16;
            f->at = dtp_arena_grow(c->s->arena[thread], f->at, sizeof *f->at, capacity, grown);
            capacity = grown;
        }
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

static int by_bound(const void *x, const void *y) {
    const struct contender *a = x, *b = y;
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void dtp_search_gather(struct searcher *s, enum dtp_verdict verdict, struct contender **out,
                       size_t *out_n) {
    const struct dtp_search *r = s->out;
    size_t n = 0;
    for (size_t i = 0; i < r->nlegal; i++)
        n += r->legal[i].verdict == verdict;
    struct contender *list = DTP_NEW(s->a, struct contender, n + 1);
    n = 0;
    for (size_t i = 0; i < r->nlegal; i++)
        if (r->legal[i].verdict == verdict)
            list[n++] = (struct contender){.legal = &r->legal[i],
                                           .number = r->legal[i].number,
                                           .bound_s = r->legal[i].bound_s};
    qsort(list, n, sizeof *list, by_bound);
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
        if (out->smallest_bytes == 0 || l->device_bytes < out->smallest_bytes) {
            out->smallest_bytes = l->device_bytes;
            out->smallest_number = l->number;
        }
    }
    c->illegal = c->candidates - out->nlegal;
    c->over_memory = n[DTP_VERDICT_OVER_MEMORY];
    c->bounded = n[DTP_VERDICT_BOUNDED];
    c->estimated = n[DTP_VERDICT_ESTIMATED] + n[DTP_VERDICT_SIMULATED];
    c->simulated = n[DTP_VERDICT_SIMULATED];
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
            found = dtp_plan_check(problem, out) == DTP_LEGAL &&
                    dtp_evaluate_memory(ev, out) <= problem->memory_limit_bytes;
        }
    }
    dtp_evaluator_destroy(ev);
    dtp_arena_destroy(a);
    return found;
}
