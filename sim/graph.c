#include "sim/graph.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMED_TASKS = 8, FEW_USES = 8 };

struct build {
    uint32_t tasks_capacity, deps_capacity, uses_capacity, streams_capacity;
    dtp_id *before, *after; /* [ndeps] */
    dtp_id *last;           /* [nstreams] last task added, or DTP_NONE */
};

void dtp_graph_init(struct dtp_graph *g, struct dtp_arena *a) {
    *g = (struct dtp_graph){.a = a};
    g->build = DTP_NEW(a, struct build, 1);
}

static void reserve_tasks(struct dtp_graph *g, uint32_t n) {
    struct build *b = g->build;
    uint32_t old = g->ntasks;
    if (n <= b->tasks_capacity)
        return;
    g->start_s = dtp_arena_grow(g->a, g->start_s, sizeof(double), old, n);
    g->latency_s = dtp_arena_grow(g->a, g->latency_s, sizeof(double), old, n);
    g->work = dtp_arena_grow(g->a, g->work, sizeof(double), old, n);
    g->rate_cap = dtp_arena_grow(g->a, g->rate_cap, sizeof(double), old, n);
    g->device = dtp_arena_grow(g->a, g->device, sizeof(dtp_id), old, n);
    g->stream = dtp_arena_grow(g->a, g->stream, sizeof(dtp_id), old, n);
    g->tag = dtp_arena_grow(g->a, g->tag, sizeof(uint64_t), old, n);
    g->use_begin = dtp_arena_grow(g->a, g->use_begin, sizeof(uint32_t), old, n);
    g->use_end = dtp_arena_grow(g->a, g->use_end, sizeof(uint32_t), old, n);
    b->tasks_capacity = n;
}

static void reserve_deps(struct dtp_graph *g, uint32_t n) {
    struct build *b = g->build;
    if (n <= b->deps_capacity)
        return;
    b->before = dtp_arena_grow(g->a, b->before, sizeof(dtp_id), g->ndeps, n);
    b->after = dtp_arena_grow(g->a, b->after, sizeof(dtp_id), g->ndeps, n);
    b->deps_capacity = n;
}

static void reserve_uses(struct dtp_graph *g, uint32_t n) {
    struct build *b = g->build;
    if (n <= b->uses_capacity)
        return;
    g->use = dtp_arena_grow(g->a, g->use, sizeof *g->use, g->nuses, n);
    b->uses_capacity = n;
}

void dtp_graph_reserve(struct dtp_graph *g, uint32_t ntasks, uint32_t ndeps, uint32_t nuses) {
    reserve_tasks(g, ntasks);
    reserve_deps(g, ndeps);
    reserve_uses(g, nuses);
}

static uint32_t doubled(uint32_t capacity, uint32_t least) {
    uint32_t n = capacity ? 2 * capacity : 256;
    return n < least ? least : n;
}

static int use_order(const struct dtp_use *x, const struct dtp_use *y) {
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->resource < y->resource ? -1 : x->resource > y->resource;
}

/* This is heap sort: uses of a compound flow can be thousands, and qsort may allocate. */
static void sift_use(struct dtp_use *u, uint32_t i, uint32_t n) {
    struct dtp_use moved = u[i];
    for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && use_order(&u[c], &u[c + 1]) < 0)
            c++;
        if (use_order(&moved, &u[c]) >= 0)
            break;
        u[i] = u[c];
    }
    u[i] = moved;
}

static void sort_uses(struct dtp_use *u, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;)
        sift_use(u, i, n);
    for (uint32_t end = n; end-- > 1;) {
        struct dtp_use top = u[0];
        u[0] = u[end];
        u[end] = top;
        sift_use(u, 0, end);
    }
}

/* Adds up the weights of equal resources; returns how many uses are left. */
static uint32_t merge_uses(struct dtp_use *u, uint32_t n) {
    uint32_t out = 0;
    if (n > FEW_USES)
        sort_uses(u, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = n > FEW_USES && out > 0 ? out - 1 : 0;
        while (k < out && use_order(&u[k], &u[i]) != 0)
            k++;
        if (k < out)
            u[k].weight += u[i].weight;
        else
            u[out++] = u[i];
    }
    return out;
}

static void add_uses(struct dtp_graph *g, const struct dtp_use *uses, uint32_t n) {
    struct build *b = g->build;
    if (g->nuses + n > b->uses_capacity)
        reserve_uses(g, doubled(b->uses_capacity, g->nuses + n));
    struct dtp_use *u = g->use + g->nuses;
    memcpy(u, uses, n * sizeof *u);
    if (n > 1)
        n = merge_uses(u, n);
    for (uint32_t i = 0; i < n; i++)
        g->nload_uses += u[i].kind == DTP_USE_LOAD;
    g->nuses += n;
}

dtp_id dtp_graph_add(struct dtp_graph *g, const struct dtp_task *t) {
    struct build *b = g->build;
    if (g->ntasks == b->tasks_capacity)
        reserve_tasks(g, doubled(b->tasks_capacity, 0));
    dtp_id id = g->ntasks++;
    g->start_s[id] = t->start_s;
    g->latency_s[id] = t->latency_s;
    g->work[id] = t->work;
    g->rate_cap[id] = t->rate_cap == 0 ? 1 : t->rate_cap;
    g->device[id] = t->device;
    g->stream[id] = t->stream;
    g->tag[id] = t->tag;
    g->use_begin[id] = g->nuses;
    if (t->same_uses == 0 && t->nuses > 0)
        add_uses(g, t->uses, t->nuses);
    g->use_end[id] = g->nuses;
    if (t->same_uses > 0) {
        assert(t->same_uses <= id);
        g->use_begin[id] = g->use_begin[t->same_uses - 1];
        g->use_end[id] = g->use_end[t->same_uses - 1];
    }
    if (t->stream != DTP_NONE) {
        assert(t->stream < g->nstreams);
        if (b->last[t->stream] != DTP_NONE)
            dtp_graph_dep(g, b->last[t->stream], id);
        b->last[t->stream] = id;
    }
    return id;
}

void dtp_graph_dep(struct dtp_graph *g, dtp_id before, dtp_id after) {
    struct build *b = g->build;
    if (g->ndeps == b->deps_capacity)
        reserve_deps(g, doubled(b->deps_capacity, 0));
    b->before[g->ndeps] = before;
    b->after[g->ndeps++] = after;
}

dtp_id dtp_graph_stream(struct dtp_graph *g) {
    struct build *b = g->build;
    if (g->nstreams == b->streams_capacity) {
        b->streams_capacity = doubled(b->streams_capacity, 0);
        b->last = dtp_arena_grow(g->a, b->last, sizeof(dtp_id), g->nstreams, b->streams_capacity);
    }
    b->last[g->nstreams] = DTP_NONE;
    return g->nstreams++;
}

/* Returns the first use of the task that no task before it has: tasks with the same uses share them. */
static uint32_t first_own_use(const struct dtp_graph *g, dtp_id i, uint32_t *nseen) {
    uint32_t first = g->use_begin[i] > *nseen ? g->use_begin[i] : *nseen;
    *nseen = g->use_end[i] > *nseen ? g->use_end[i] : *nseen;
    return first;
}

static bool has_link(const struct dtp_graph *g, dtp_id i) {
    for (uint32_t k = g->use_begin[i]; k < g->use_end[i]; k++)
        if (g->use[k].kind == DTP_USE_LINK)
            return true;
    return false;
}

static enum dtp_status check_task(const struct dtp_graph *g, dtp_id i, uint32_t *nseen,
                                  struct dtp_err *err) {
    for (uint32_t k = first_own_use(g, i, nseen); k < g->use_end[i]; k++) {
        const struct dtp_use *u = &g->use[k];
        if (!(u->weight > 0) || !isfinite(u->weight))
            return dtp_fail(err, DTP_EINPUT, "task %u: use of %u has weight %g, expected > 0", i,
                            u->resource, u->weight);
    }
    if (!(g->work[i] >= 0) || !isfinite(g->work[i]))
        return dtp_fail(err, DTP_EINPUT, "task %u: work %g, expected 0 or more", i, g->work[i]);
    if (!(g->latency_s[i] >= 0) || !isfinite(g->latency_s[i]))
        return dtp_fail(err, DTP_EINPUT, "task %u: latency %g s, expected 0 or more", i,
                        g->latency_s[i]);
    if (!(g->start_s[i] >= 0) || !isfinite(g->start_s[i]))
        return dtp_fail(err, DTP_EINPUT, "task %u: earliest start %g s, expected 0 or more", i,
                        g->start_s[i]);
    if (!(g->rate_cap[i] > 0))
        return dtp_fail(err, DTP_EINPUT, "task %u: rate cap %g, expected > 0", i, g->rate_cap[i]);
    if (isinf(g->rate_cap[i]) && !has_link(g, i))
        return dtp_fail(err, DTP_EINPUT, "task %u: no rate cap and no link that limits it", i);
    return DTP_OK;
}

/* Sorts the edges by their first task, in the order of insertion, by counting. */
static int sort_deps(struct dtp_graph *g) {
    struct build *b = g->build;
    uint32_t n = g->ntasks, sum = 0;
    int forward = 1;
    g->succ_begin = DTP_NEW(g->a, uint32_t, (size_t)n + 1);
    g->succ = DTP_NEW(g->a, dtp_id, g->ndeps);
    g->npred = DTP_NEW(g->a, uint32_t, n);
    for (uint32_t e = 0; e < g->ndeps; e++) {
        assert(b->before[e] < n && b->after[e] < n);
        g->succ_begin[b->before[e]]++;
        g->npred[b->after[e]]++;
        forward &= b->before[e] < b->after[e];
    }
    for (uint32_t i = 0; i <= n; i++)
        g->succ_begin[i] = sum += g->succ_begin[i];
    for (uint32_t e = g->ndeps; e-- > 0;)
        g->succ[--g->succ_begin[b->before[e]]] = b->after[e];
    return forward;
}

enum dtp_status dtp_graph_fail_cycle(struct dtp_arena *a, const struct dtp_graph *g,
                                     const uint32_t *left, struct dtp_err *err) {
    const struct build *b = g->build;
    dtp_id *pred = DTP_NEW(a, dtp_id, g->ntasks), at = 0;
    uint8_t *seen = DTP_NEW(a, uint8_t, g->ntasks);
    for (uint32_t e = g->ndeps; e-- > 0;)
        if (left[b->before[e]] && left[b->after[e]])
            pred[b->after[e]] = b->before[e];
    while (!left[at])
        at++;
    while (!seen[at]) { /* going back through unfinished tasks must come round */
        seen[at] = 1;
        at = pred[at];
    }
    /* start from the lowest id, so that the message does not depend on how it was found */
    dtp_id first = at;
    for (dtp_id i = pred[at]; i != at; i = pred[i])
        first = i < first ? i : first;
    char text[512] = "";
    size_t used = 0;
    uint32_t n = 0;
    for (dtp_id i = first; n == 0 || i != first; i = pred[i], n++)
        if (n < MAX_NAMED_TASKS)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     " task %u (tag %" PRIu64 ") waits for", i, g->tag[i]);
    return dtp_fail(err, DTP_EINPUT, "dependency cycle of %u tasks:%s%s task %u", n, text,
                    n > MAX_NAMED_TASKS ? " ... for" : "", first);
}

/* This is Kahn 1962, with the order itself as the queue. */
static enum dtp_status find_order(struct dtp_graph *g, struct dtp_err *err) {
    uint32_t *left = DTP_NEW(g->a, uint32_t, g->ntasks), n = 0;
    g->order = DTP_NEW(g->a, dtp_id, g->ntasks);
    memcpy(left, g->npred, g->ntasks * sizeof *left);
    for (dtp_id i = 0; i < g->ntasks; i++)
        if (left[i] == 0)
            g->order[n++] = i;
    for (uint32_t at = 0; at < n; at++) {
        dtp_id i = g->order[at];
        for (uint32_t k = g->succ_begin[i]; k < g->succ_begin[i + 1]; k++)
            if (--left[g->succ[k]] == 0)
                g->order[n++] = g->succ[k];
    }
    return n == g->ntasks ? DTP_OK : dtp_graph_fail_cycle(g->a, g, left, err);
}

enum dtp_status dtp_graph_freeze(struct dtp_graph *g, struct dtp_err *err) {
    uint32_t nseen = 0;
    g->alone_s = DTP_NEW(g->a, double, g->ntasks);
    for (dtp_id i = 0; i < g->ntasks; i++) {
        DTP_TRY(check_task(g, i, &nseen, err));
        g->alone_s[i] = g->latency_s[i] + g->work[i] / g->rate_cap[i];
    }
    return sort_deps(g) || g->nuses > 0 ? DTP_OK : find_order(g, err);
}

enum dtp_status dtp_graph_check(const struct dtp_graph *g, const struct dtp_platform *p,
                                struct dtp_err *err) {
    uint32_t nseen = 0;
    for (dtp_id i = 0; i < g->ntasks; i++) {
        if (g->device[i] != DTP_NONE && g->device[i] >= p->ndevices)
            return dtp_fail(err, DTP_EINPUT, "task %u: device %u of %u", i, g->device[i],
                            p->ndevices);
        for (uint32_t k = first_own_use(g, i, &nseen); k < g->use_end[i]; k++) {
            int is_link = g->use[k].kind == DTP_USE_LINK;
            uint32_t n = is_link ? p->nlinks : p->ndevices;
            if (g->use[k].resource >= n)
                return dtp_fail(err, DTP_EINPUT, "task %u uses %s %u of %u", i,
                                is_link ? "link" : "device", g->use[k].resource, n);
        }
    }
    return DTP_OK;
}
