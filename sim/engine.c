#include "sim/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/heap.h"
#include "sim/maxmin.h"

/* What an ended dependency reads and writes, in one cache line instead of six arrays. */
struct node {
    double start_s; /* so far */
    double span_s;  /* alone: what it takes; else its latency; once it has ended: its end */
    dtp_id cause;
    uint32_t waits; /* dependencies not yet ended; ALONE */
    uint32_t succ_begin, unused;
};

static const uint32_t ALONE = 1u << 31; /* in waits: no use, and nobody loads its device */

/* Work under way. Slots are reused, so that the state of what runs now stays in the cache. */
struct slot {
    double remaining, rate, since_s; /* remaining work at since_s */
    dtp_id task;
    uint32_t next_on_device, previous_on_device; /* slot + 1, or 0 */
    uint8_t has_links, listed;
};

struct device {
    uint32_t first_slot; /* slot + 1 of the compute tasks under way, or 0 */
    uint32_t first_load; /* use + 1 of the loads under way in order of use, or 0 */
    uint8_t loaded;      /* some task of the graph loads it */
    uint8_t dirty;
};

struct engine {
    struct dtp_arena *a;
    const struct dtp_platform *p;
    const struct dtp_graph *g;
    struct dtp_timeline *t;
    struct dtp_maxmin *m;
    struct node *node; /* [ntasks + 1] */
    dtp_id *ready;     /* stack of tasks whose dependencies have ended */
    uint32_t nready, ready_capacity, nended;
    struct dtp_heap begins, ends; /* by task; by slot */
    uint32_t *end_pos;            /* [nslots] 1 + place in ends, or 0 */
    struct slot *slot;
    uint32_t *free_slots;
    uint32_t nslots, nfree;
    uint32_t seq;
    struct device *device;
    dtp_id *dirty_devices;
    uint32_t ndirty_devices;
    uint32_t *next_load; /* [nuses] use + 1 */
};

/* ---- dependencies ---- */

/* The start is the latest end; among equals the lowest id is the cause. */
static inline void relax(double *start_s, dtp_id *cause, dtp_id before, double end_s) {
    if (end_s > *start_s) {
        *start_s = end_s;
        *cause = before;
    } else if (end_s == *start_s && before < *cause) {
        *cause = before;
    }
}

static void push_ready(struct engine *e, dtp_id i) {
    if (e->nready == e->ready_capacity) {
        uint32_t n = e->ready_capacity ? 2 * e->ready_capacity : 1024;
        e->ready = dtp_arena_grow(e->a, e->ready, sizeof(dtp_id), e->nready, n);
        e->ready_capacity = n;
    }
    e->ready[e->nready++] = i;
}

static void end_task(struct engine *e, dtp_id i, double end_s) {
    struct node *x = &e->node[i];
    x->span_s = end_s;
    e->nended++;
    for (uint32_t k = x[0].succ_begin; k < x[1].succ_begin; k++) {
        dtp_id next = e->g->succ[k];
        struct node *y = &e->node[next];
        relax(&y->start_s, &y->cause, i, end_s);
        if ((--y->waits & ~ALONE) == 0)
            push_ready(e, next);
    }
}

/* Evaluates what can be known now; the others get their event. */
static void run_ready(struct engine *e) {
    while (e->nready > 0) {
        dtp_id i = e->ready[--e->nready];
        const struct node *x = &e->node[i];
        double at_s = x->start_s + x->span_s;
        if (x->waits & ALONE)
            end_task(e, i, at_s);
        else
            dtp_heap_push(e->a, &e->begins, (struct dtp_event){at_s, e->seq++, i}, NULL);
    }
}

/* ---- work under way ---- */

static uint32_t new_slot(struct engine *e) {
    if (e->nfree == 0) {
        uint32_t old = e->nslots, n = old ? 2 * old : 256;
        e->slot = dtp_arena_grow(e->a, e->slot, sizeof *e->slot, old, n);
        e->end_pos = dtp_arena_grow(e->a, e->end_pos, sizeof(uint32_t), old, n);
        e->free_slots = dtp_arena_grow(e->a, e->free_slots, sizeof(uint32_t), old, n);
        for (uint32_t s = n; s-- > old;)
            e->free_slots[e->nfree++] = s;
        e->nslots = n;
    }
    return e->free_slots[--e->nfree];
}

static void set_rate(struct engine *e, uint32_t s, double rate, double now_s) {
    struct slot *x = &e->slot[s];
    if (x->rate > 0 && now_s > x->since_s) {
        double left = x->remaining - x->rate * (now_s - x->since_s);
        x->remaining = left > 0 ? left : 0;
        x->since_s = now_s;
    }
    x->rate = rate;
    struct dtp_event end = {x->since_s + x->remaining / rate, e->seq++, s};
    if (e->end_pos[s] == DTP_NONE)
        dtp_heap_push(e->a, &e->ends, end, e->end_pos);
    else
        dtp_heap_move(&e->ends, e->end_pos[s], end, e->end_pos);
}

static void mark_device(struct engine *e, dtp_id d) {
    if (e->device[d].dirty)
        return;
    e->device[d].dirty = 1;
    e->dirty_devices[e->ndirty_devices++] = d;
}

static void link_slot(struct engine *e, dtp_id d, uint32_t s) {
    uint32_t first = e->device[d].first_slot;
    e->slot[s].next_on_device = first;
    e->slot[s].previous_on_device = 0;
    if (first)
        e->slot[first - 1].previous_on_device = s + 1;
    e->device[d].first_slot = s + 1;
    mark_device(e, d);
}

static void unlink_slot(struct engine *e, dtp_id d, uint32_t s) {
    const struct slot *x = &e->slot[s];
    if (x->previous_on_device)
        e->slot[x->previous_on_device - 1].next_on_device = x->next_on_device;
    else
        e->device[d].first_slot = x->next_on_device;
    if (x->next_on_device)
        e->slot[x->next_on_device - 1].previous_on_device = x->previous_on_device;
}

/* The list is kept in order of use, so that the sum of the shares does not depend on who came first. */
static void load_device(struct engine *e, uint32_t use, int under_way) {
    dtp_id d = e->g->use[use].resource;
    uint32_t *at = &e->device[d].first_load;
    while (*at && *at < use + 1)
        at = &e->next_load[*at - 1];
    if (under_way) {
        e->next_load[use] = *at;
        *at = use + 1;
    } else {
        *at = e->next_load[use];
    }
    mark_device(e, d);
}

static void load_devices(struct engine *e, dtp_id i, int under_way) {
    for (uint32_t k = e->g->use_begin[i]; k < e->g->use_end[i]; k++)
        if (e->g->use[k].kind == DTP_USE_LOAD)
            load_device(e, k, under_way);
}

/* Returns the rate at which the device serves the task: what the loads of others leave. */
static double device_rate(const struct engine *e, dtp_id i) {
    const struct dtp_graph *g = e->g;
    double left = 1;
    for (uint32_t u = e->device[g->device[i]].first_load; u; u = e->next_load[u - 1])
        if (u - 1 < g->use_begin[i] || u - 1 >= g->use_end[i])
            left -= g->use[u - 1].weight;
    return g->rate_cap[i] * (left > DTP_DEVICE_MIN_RATE ? left : DTP_DEVICE_MIN_RATE);
}

static int on_loaded_device(const struct engine *e, dtp_id i) {
    return e->device && e->g->device[i] != DTP_NONE && e->device[e->g->device[i]].loaded;
}

static void begin_work(struct engine *e, dtp_id i, double now_s) {
    const struct dtp_graph *g = e->g;
    e->t->nevents++;
    if (g->work[i] == 0) {
        end_task(e, i, now_s);
        return;
    }
    uint32_t s = new_slot(e), first = g->use_begin[i], n = g->use_end[i] - first;
    e->slot[s] = (struct slot){.remaining = g->work[i], .since_s = now_s, .task = i};
    e->end_pos[s] = DTP_NONE;
    for (uint32_t k = first; k < first + n; k++)
        e->slot[s].has_links |= g->use[k].kind == DTP_USE_LINK;
    if (e->slot[s].has_links)
        dtp_maxmin_add(e->m, s, g->rate_cap[i], g->use + first, n);
    if (e->device)
        load_devices(e, i, 1);
    if (on_loaded_device(e, i))
        link_slot(e, g->device[i], s);
    else if (!e->slot[s].has_links)
        set_rate(e, s, g->rate_cap[i], now_s);
}

static void end_work(struct engine *e, uint32_t s, double now_s) {
    dtp_id i = e->slot[s].task;
    if (e->slot[s].has_links)
        dtp_maxmin_remove(e->m, s);
    if (e->device)
        load_devices(e, i, 0);
    if (on_loaded_device(e, i))
        unlink_slot(e, e->g->device[i], s);
    e->free_slots[e->nfree++] = s;
    end_task(e, i, now_s);
}

/* ---- the clock ---- */

static void solve_devices(struct engine *e, double now_s) {
    for (uint32_t k = 0; k < e->ndirty_devices; k++) {
        struct device *d = &e->device[e->dirty_devices[k]];
        d->dirty = 0;
        for (uint32_t s = d->first_slot; s; s = e->slot[s - 1].next_on_device) {
            double rate = device_rate(e, e->slot[s - 1].task);
            if (e->slot[s - 1].has_links)
                dtp_maxmin_set_cap(e->m, s - 1, rate);
            else if (rate != e->slot[s - 1].rate)
                set_rate(e, s - 1, rate, now_s);
        }
    }
    e->ndirty_devices = 0;
}

static enum dtp_status solve_rates(struct engine *e, double now_s, struct dtp_err *err) {
    const uint32_t *changed;
    solve_devices(e, now_s);
    uint32_t n = dtp_maxmin_solve(e->m, &changed);
    for (uint32_t k = 0; k < n; k++) {
        double rate = dtp_maxmin_rate(e->m, changed[k]);
        dtp_id i = e->slot[changed[k]].task;
        if (!(rate > 0))
            return dtp_fail(err, DTP_EINPUT,
                            "task %u (tag %" PRIu64 ") can never end: its rate is 0", i,
                            e->g->tag[i]);
        set_rate(e, changed[k], rate, now_s);
    }
    return DTP_OK;
}

static void prefetch_task(const struct dtp_graph *g, dtp_id i) {
    __builtin_prefetch(&g->work[i]);
    __builtin_prefetch(&g->rate_cap[i]);
    __builtin_prefetch(&g->use_begin[i]);
    __builtin_prefetch(&g->use_end[i]);
}

/* Takes the next event if it is due by until_s; *at_s is its time. */
static int take_event(struct engine *e, double until_s, double *at_s) {
    struct dtp_event none = {INFINITY, 0, 0};
    struct dtp_event begin = e->begins.n ? e->begins.e[0] : none;
    struct dtp_event end = e->ends.n ? e->ends.e[0] : none;
    int is_end = e->ends.n && dtp_event_before(end, begin);
    struct dtp_event next = is_end ? end : begin;
    if ((!is_end && !e->begins.n) || next.time_s > until_s)
        return 0;
    *at_s = next.time_s;
    if (is_end) {
        dtp_heap_take(&e->ends, 0, e->end_pos);
        if (e->ends.n) /* the next one's, while this one is worked on: large graphs miss here */
            __builtin_prefetch(&e->node[e->slot[e->ends.e[0].id].task]);
        end_work(e, next.id, next.time_s);
    } else {
        dtp_heap_take(&e->begins, 0, NULL);
        if (e->begins.n)
            prefetch_task(e->g, e->begins.e[0].id);
        begin_work(e, next.id, next.time_s);
    }
    run_ready(e);
    return 1;
}

static enum dtp_status run_events(struct engine *e, struct dtp_err *err) {
    double now_s = 0;
    for (dtp_id i = e->g->ntasks; i-- > 0;)
        if (e->g->npred[i] == 0)
            push_ready(e, i);
    run_ready(e);
    while (take_event(e, INFINITY, &now_s)) {
        double until_s = now_s * (1 + DTP_ENGINE_MERGE), at_s;
        while (take_event(e, until_s, &at_s))
            now_s = at_s > now_s ? at_s : now_s;
        DTP_TRY(solve_rates(e, now_s, err));
    }
    return DTP_OK;
}

/* ---- set-up ---- */

static void init_timeline(struct dtp_arena *a, const struct dtp_graph *g, struct dtp_timeline *t) {
    uint32_t n = g->ntasks;
    *t = (struct dtp_timeline){.ntasks = n, .last = DTP_NONE};
    t->start_s = DTP_NEW(a, double, n);
    t->end_s = DTP_NEW(a, double, n);
    t->cause = DTP_NEW(a, dtp_id, n);
}

static void init_devices(struct engine *e) {
    if (e->g->nload_uses == 0)
        return;
    e->device = DTP_NEW(e->a, struct device, e->p->ndevices);
    e->dirty_devices = DTP_NEW(e->a, dtp_id, e->p->ndevices);
    e->next_load = DTP_NEW(e->a, uint32_t, e->g->nuses);
    for (uint32_t k = 0; k < e->g->nuses; k++)
        if (e->g->use[k].kind == DTP_USE_LOAD)
            e->device[e->g->use[k].resource].loaded = 1;
}

static void init_nodes(struct engine *e) {
    const struct dtp_graph *g = e->g;
    e->node = DTP_NEW(e->a, struct node, (size_t)g->ntasks + 1);
    for (dtp_id i = 0; i < g->ntasks; i++) {
        int alone = g->use_begin[i] == g->use_end[i] && !on_loaded_device(e, i);
        e->node[i] = (struct node){.start_s = g->start_s[i],
                                   .span_s = alone ? g->alone_s[i] : g->latency_s[i],
                                   .cause = DTP_NONE,
                                   .waits = g->npred[i] | (alone ? ALONE : 0),
                                   .succ_begin = g->succ_begin[i]};
    }
    e->node[g->ntasks].succ_begin = g->ndeps;
}

/* Tasks that wait for each other never end. */
static enum dtp_status check_ended(const struct engine *e, struct dtp_err *err) {
    if (e->nended == e->g->ntasks)
        return DTP_OK;
    uint32_t *left = DTP_NEW(e->a, uint32_t, e->g->ntasks);
    for (dtp_id i = 0; i < e->g->ntasks; i++)
        left[i] = e->node[i].waits & ~ALONE;
    return dtp_graph_fail_cycle(e->a, e->g, left, err);
}

static void read_nodes(const struct engine *e) {
    for (dtp_id i = 0; i < e->g->ntasks; i++) {
        e->t->start_s[i] = e->node[i].start_s;
        e->t->end_s[i] = e->node[i].span_s;
        e->t->cause[i] = e->node[i].cause;
    }
}

/* Without a link and a load the ends follow in topological order, by the same sums as the events would make. */
static void run_longest_path(const struct dtp_graph *g, struct dtp_timeline *t) {
    if (g->ntasks == 0)
        return;
    memcpy(t->start_s, g->start_s, g->ntasks * sizeof(double));
    memset(t->cause, 0xff, g->ntasks * sizeof(dtp_id)); /* DTP_NONE */
    for (uint32_t at = 0; at < g->ntasks; at++) {
        dtp_id i = g->order ? g->order[at] : at;
        double end_s = t->start_s[i] + g->alone_s[i];
        t->end_s[i] = end_s;
        for (uint32_t k = g->succ_begin[i]; k < g->succ_begin[i + 1]; k++)
            relax(&t->start_s[g->succ[k]], &t->cause[g->succ[k]], i, end_s);
    }
    t->nevents = g->ntasks;
}

static void find_last(struct dtp_timeline *t) {
    t->makespan_s = 0;
    for (dtp_id i = 0; i < t->ntasks; i++)
        if (t->last == DTP_NONE || t->end_s[i] > t->makespan_s) {
            t->makespan_s = t->end_s[i];
            t->last = i;
        }
}

enum dtp_status dtp_engine_run(struct dtp_arena *a, const struct dtp_platform *p,
                               const struct dtp_graph *g, struct dtp_timeline *out,
                               struct dtp_err *err) {
    DTP_TRY(dtp_graph_check(g, p, err));
    init_timeline(a, g, out);
    if (g->nuses == 0) {
        run_longest_path(g, out);
    } else {
        struct engine e = {.a = a, .p = p, .g = g, .t = out};
        e.m = dtp_maxmin_create(a, p, 256);
        init_devices(&e);
        init_nodes(&e);
        DTP_TRY(run_events(&e, err));
        DTP_TRY(check_ended(&e, err));
        out->nevents += e.nended;
        read_nodes(&e);
    }
    find_last(out);
    return DTP_OK;
}

/* ---- what follows from a timeline ---- */

/* The tasks of a stream follow one another, so the time under way is a plain sum. */
const double *dtp_timeline_busy_s(struct dtp_arena *a, const struct dtp_timeline *t,
                                  const struct dtp_graph *g) {
    double *busy_s = DTP_NEW(a, double, g->nstreams);
    for (dtp_id i = 0; i < t->ntasks; i++)
        if (g->stream[i] != DTP_NONE)
            busy_s[g->stream[i]] += t->end_s[i] - t->start_s[i];
    return busy_s;
}

void dtp_timeline_critical_path(struct dtp_arena *a, const struct dtp_timeline *t, dtp_id last,
                                const dtp_id **out, uint32_t *out_n) {
    uint32_t n = 0;
    for (dtp_id i = last; i != DTP_NONE; i = t->cause[i])
        n++;
    dtp_id *path = DTP_NEW(a, dtp_id, n);
    *out = path;
    *out_n = n;
    for (dtp_id i = last; i != DTP_NONE; i = t->cause[i])
        path[--n] = i;
}
