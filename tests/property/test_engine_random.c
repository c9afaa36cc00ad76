/* Random platforms and graphs against two references that are slow and plainly right: progressive
 * filling by repeated scans, and a simulator that solves every rate anew at every event. */
#include <CUnit/Basic.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/engine.h"
#include "sim/maxmin.h"
#include "tests/suites.h"

static const double RELATIVE = 1e-9;

enum { MAX_LINKS = 24, MAX_ACTIVITIES = 60, MAX_USES = 6, MAX_TASKS = 120, NROUNDS = 400 };

static struct dtp_arena *arena;

static int setup(void) {
    arena = dtp_arena_create("test");
    return 0;
}

static int teardown(void) {
    dtp_arena_destroy(arena);
    return 0;
}

static double log_uniform(struct dtp_rng *r, double low, uint32_t ndoublings) {
    double x = low * (1 + dtp_rng_uniform(r));
    for (uint64_t k = dtp_rng_below(r, ndoublings); k > 0; k--)
        x *= 2;
    return x;
}

/* ---- rates ---- */

struct ref_activity {
    double cap, rate;
    struct dtp_use uses[MAX_USES];
    uint32_t nuses;
    int active, fixed;
};

/* Progressive filling: find the least rate at which a link is full or a cap met; fix those; repeat. */
static void ref_solve(const struct dtp_platform *p, struct ref_activity *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i].fixed = !x[i].active;
    for (;;) {
        double level = INFINITY, load[MAX_LINKS] = {0}, weight[MAX_LINKS] = {0};
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; x[i].active && k < x[i].nuses; k++) {
                uint32_t l = x[i].uses[k].resource;
                if (x[i].fixed)
                    load[l] += x[i].uses[k].weight * x[i].rate;
                else
                    weight[l] += x[i].uses[k].weight;
            }
        for (uint32_t l = 0; l < p->nlinks; l++)
            if (weight[l] > 0)
                level = fmin(level, (p->link_capacity_per_s[l] - load[l]) / weight[l]);
        for (uint32_t i = 0; i < n; i++)
            if (!x[i].fixed)
                level = fmin(level, x[i].cap);
        if (isinf(level))
            return;
        for (uint32_t i = 0; i < n; i++) {
            int full = x[i].cap <= level;
            for (uint32_t k = 0; k < x[i].nuses; k++) {
                uint32_t l = x[i].uses[k].resource;
                full |= weight[l] > 0 &&
                        (p->link_capacity_per_s[l] - load[l]) / weight[l] <= level * (1 + 1e-12);
            }
            if (!x[i].fixed && full) {
                x[i].fixed = 1;
                x[i].rate = level;
            }
        }
    }
}

static uint32_t random_uses(struct dtp_rng *r, uint32_t nlinks, struct dtp_use *uses) {
    uint32_t n = 0, want = 1 + (uint32_t)dtp_rng_below(r, MAX_USES - 1);
    while (n < want && n < nlinks) {
        dtp_id l = (dtp_id)dtp_rng_below(r, nlinks);
        int twice = 0;
        for (uint32_t k = 0; k < n; k++)
            twice |= uses[k].resource == l;
        double w = dtp_rng_below(r, 3) ? 1 : log_uniform(r, 0.25, 4);
        if (!twice)
            uses[n++] = (struct dtp_use){l, DTP_USE_LINK, w};
    }
    return n;
}

static void random_links(struct dtp_rng *r, struct dtp_platform *p, int round) {
    uint32_t n = 1 + (uint32_t)dtp_rng_below(r, MAX_LINKS);
    dtp_platform_init(p, arena);
    for (uint32_t l = 0; l < n; l++) /* every third platform has equal links, hence many ties */
        dtp_platform_link(p, round % 3 ? log_uniform(r, 1, 8) : 10, NULL);
}

static void add_random(struct dtp_rng *r, const struct dtp_platform *p, struct dtp_maxmin *m,
                       struct ref_activity *x, uint32_t i) {
    x[i].active = 1;
    x[i].nuses = random_uses(r, p->nlinks, x[i].uses);
    x[i].cap = dtp_rng_below(r, 3) ? DTP_UNCAPPED : log_uniform(r, 0.05, 8);
    dtp_maxmin_add(m, i, x[i].cap, x[i].uses, x[i].nuses);
}

/* Equations (1) and (2), checked on the rates themselves. */
static int breaks_equations(const struct dtp_platform *p, const struct dtp_maxmin *m,
                            const struct ref_activity *x) {
    double load[MAX_LINKS] = {0}, largest[MAX_LINKS] = {0};
    int wrong = 0;
    for (uint32_t i = 0; i < MAX_ACTIVITIES; i++)
        for (uint32_t k = 0; x[i].active && k < x[i].nuses; k++) {
            uint32_t l = x[i].uses[k].resource;
            load[l] += x[i].uses[k].weight * dtp_maxmin_rate(m, i);
            largest[l] = fmax(largest[l], dtp_maxmin_rate(m, i));
        }
    for (uint32_t l = 0; l < p->nlinks; l++)
        wrong += load[l] > p->link_capacity_per_s[l] * (1 + RELATIVE);
    for (uint32_t i = 0; i < MAX_ACTIVITIES; i++) {
        if (!x[i].active)
            continue;
        double rate = dtp_maxmin_rate(m, i);
        int limited = rate >= x[i].cap * (1 - RELATIVE);
        for (uint32_t k = 0; k < x[i].nuses; k++) {
            uint32_t l = x[i].uses[k].resource;
            limited |= load[l] >= p->link_capacity_per_s[l] * (1 - RELATIVE) &&
                       rate >= largest[l] * (1 - RELATIVE);
        }
        wrong += !limited || !(rate > 0) || rate > x[i].cap * (1 + RELATIVE);
    }
    return wrong;
}

static void test_rates_obey_the_equations_after_every_change(void) {
    int broken = 0, off = 0, unreported = 0;
    for (int round = 0; round < NROUNDS; round++) {
        struct dtp_rng r = dtp_rng_stream(1, (uint64_t)round);
        struct dtp_platform p;
        struct ref_activity x[MAX_ACTIVITIES] = {0};
        double seen[MAX_ACTIVITIES] = {0};
        const uint32_t *changed;
        dtp_arena_reset(arena);
        random_links(&r, &p, round);
        struct dtp_maxmin *m = dtp_maxmin_create(arena, &p, 4);
        for (int step = 0; step < 60; step++) {
            for (uint64_t k = 1 + dtp_rng_below(&r, 4); k > 0; k--) {
                uint32_t i = (uint32_t)dtp_rng_below(&r, MAX_ACTIVITIES);
                if (!x[i].active) {
                    add_random(&r, &p, m, x, i);
                } else if (dtp_rng_below(&r, 4)) {
                    dtp_maxmin_remove(m, i);
                    x[i].active = 0;
                } else {
                    x[i].cap = log_uniform(&r, 0.05, 8);
                    dtp_maxmin_set_cap(m, i, x[i].cap);
                }
            }
            uint32_t n = dtp_maxmin_solve(m, &changed);
            for (uint32_t k = 0; k < n; k++)
                seen[changed[k]] = dtp_maxmin_rate(m, changed[k]);
            broken += breaks_equations(&p, m, x);
            ref_solve(&p, x, MAX_ACTIVITIES);
            for (uint32_t i = 0; i < MAX_ACTIVITIES; i++) {
                double rate = dtp_maxmin_rate(m, i);
                off += x[i].active && fabs(rate - x[i].rate) > RELATIVE * x[i].rate;
                unreported += x[i].active && seen[i] != rate;
            }
        }
    }
    CU_ASSERT_EQUAL(broken, 0);
    CU_ASSERT_EQUAL(off, 0);
    CU_ASSERT_EQUAL(unreported, 0);
}

/* ---- whole runs ---- */

struct world {
    struct dtp_platform p;
    struct dtp_task task[MAX_TASKS];
    struct dtp_use uses[MAX_TASKS][MAX_USES + 1];
    uint32_t ntasks, ndeps;
    dtp_id before[4 * MAX_TASKS], after[4 * MAX_TASKS];
};

static struct dtp_task random_task(struct dtp_rng *r, struct world *w, struct dtp_use *uses) {
    struct dtp_task t = {.device = DTP_NONE, .stream = DTP_NONE, .rate_cap = 1};
    uint64_t kind = dtp_rng_below(r, 10);
    t.work = dtp_rng_below(r, 8) ? log_uniform(r, 0.5, 5) : 0;
    t.start_s = dtp_rng_below(r, 6) ? 0 : 3 * dtp_rng_uniform(r);
    t.latency_s = dtp_rng_below(r, 2) ? 0 : 0.25 * (double)dtp_rng_below(r, 4);
    t.uses = uses;
    if (kind >= 3) {
        t.nuses = random_uses(r, w->p.nlinks, uses);
        t.rate_cap = dtp_rng_below(r, 3) ? DTP_UNCAPPED : log_uniform(r, 0.1, 5);
    }
    if (kind <= 3 && w->p.ndevices > 0)
        t.device = (dtp_id)dtp_rng_below(r, w->p.ndevices);
    if ((kind == 2 || kind > 7) && w->p.ndevices > 0)
        uses[t.nuses++] = (struct dtp_use){(dtp_id)dtp_rng_below(r, w->p.ndevices), DTP_USE_LOAD,
                                           0.05 + 0.6 * dtp_rng_uniform(r)};
    return t;
}

static void random_world(struct world *w, int round) {
    struct dtp_rng r = dtp_rng_stream(2, (uint64_t)round);
    memset(w, 0, sizeof *w);
    random_links(&r, &w->p, round);
    for (uint64_t k = dtp_rng_below(&r, 4); k > 0; k--)
        dtp_platform_device(&w->p);
    w->ntasks = 1 + (uint32_t)dtp_rng_below(&r, MAX_TASKS);
    for (uint32_t i = 0; i < w->ntasks; i++) {
        w->task[i] = random_task(&r, w, w->uses[i]);
        if (round % 3 == 0) /* with equal links: many equal ends */
            w->task[i].work = (double)dtp_rng_below(&r, 3);
        for (uint64_t k = dtp_rng_below(&r, 3); i > 0 && k > 0; k--) {
            w->before[w->ndeps] = (dtp_id)dtp_rng_below(&r, i);
            w->after[w->ndeps++] = i;
        }
    }
}

/* Builds the world with task i as the place[i]-th and runs it. */
static void run_world(struct world *w, const uint32_t *place, struct dtp_timeline *t) {
    struct dtp_graph g;
    struct dtp_err err;
    dtp_graph_init(&g, arena);
    for (uint32_t k = 0; k < w->ntasks; k++)
        for (uint32_t i = 0; i < w->ntasks; i++)
            if (place[i] == k)
                dtp_graph_add(&g, &w->task[i]);
    for (uint32_t e = 0; e < w->ndeps; e++)
        dtp_graph_dep(&g, place[w->before[e]], place[w->after[e]]);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&g, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_engine_run(arena, &w->p, &g, t, &err), DTP_OK);
}

struct ref_state {
    struct ref_activity x[MAX_TASKS];
    double start_s[MAX_TASKS], left[MAX_TASKS], end_s[MAX_TASKS];
    int ended[MAX_TASKS];
};

static int ref_is_ready(const struct world *w, struct ref_state *s, uint32_t i) {
    s->start_s[i] = w->task[i].start_s;
    for (uint32_t e = 0; e < w->ndeps; e++)
        if (w->after[e] == i) {
            if (!s->ended[w->before[e]])
                return 0;
            s->start_s[i] = fmax(s->start_s[i], s->end_s[w->before[e]]);
        }
    return 1;
}

static double ref_device_share(const struct world *w, const struct ref_state *s, uint32_t i) {
    double left = 1;
    for (uint32_t j = 0; j < w->ntasks; j++)
        for (uint32_t k = 0; j != i && s->x[j].active && k < w->task[j].nuses; k++)
            if (w->uses[j][k].kind == DTP_USE_LOAD && w->uses[j][k].resource == w->task[i].device)
                left -= w->uses[j][k].weight;
    return fmax(left, DTP_DEVICE_MIN_RATE);
}

static void ref_rates(const struct world *w, struct ref_state *s) {
    for (uint32_t i = 0; i < w->ntasks; i++) {
        s->x[i].nuses = 0;
        for (uint32_t k = 0; k < w->task[i].nuses; k++)
            if (w->uses[i][k].kind == DTP_USE_LINK)
                s->x[i].uses[s->x[i].nuses++] = w->uses[i][k];
        s->x[i].cap = w->task[i].rate_cap;
        if (w->task[i].device != DTP_NONE)
            s->x[i].cap *= ref_device_share(w, s, i);
    }
    ref_solve(&w->p, s->x, w->ntasks);
}

/* Event by event with everything solved anew: the next event is the earliest begin of work or end. */
static void ref_run(const struct world *w, struct ref_state *s) {
    double now_s = 0;
    memset(s, 0, sizeof *s);
    for (uint32_t nended = 0; nended < w->ntasks;) {
        double next_s = INFINITY;
        ref_rates(w, s);
        for (uint32_t i = 0; i < w->ntasks; i++)
            if (s->x[i].active)
                next_s = fmin(next_s, now_s + s->left[i] / s->x[i].rate);
            else if (!s->ended[i] && ref_is_ready(w, s, i))
                next_s = fmin(next_s, fmax(now_s, s->start_s[i] + w->task[i].latency_s));
        for (uint32_t i = 0; i < w->ntasks; i++) {
            int due = s->x[i].active &&
                      now_s + s->left[i] / s->x[i].rate <= next_s * (1 + DTP_ENGINE_MERGE);
            if (s->x[i].active)
                s->left[i] = due ? 0 : s->left[i] - s->x[i].rate * (next_s - now_s);
            else if (!s->ended[i] && ref_is_ready(w, s, i) &&
                     s->start_s[i] + w->task[i].latency_s <= next_s + 1e-12) {
                s->x[i].active = 1;
                s->left[i] = w->task[i].work;
            }
            if (s->x[i].active && s->left[i] == 0) {
                s->x[i].active = 0;
                s->ended[i] = 1;
                s->end_s[i] = next_s;
                nended++;
            }
        }
        now_s = next_s;
    }
}

static void identity(uint32_t *place, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        place[i] = i;
}

static void test_times_equal_those_of_the_reference_simulator(void) {
    static struct world w;
    static struct ref_state ref;
    int off = 0, nloaded = 0;
    for (int round = 0; round < NROUNDS; round++) {
        uint32_t place[MAX_TASKS];
        struct dtp_timeline t;
        dtp_arena_reset(arena);
        random_world(&w, round);
        identity(place, w.ntasks);
        run_world(&w, place, &t);
        ref_run(&w, &ref);
        nloaded += w.p.ndevices > 0;
        for (uint32_t i = 0; i < w.ntasks; i++) {
            int bad = fabs(t.end_s[i] - ref.end_s[i]) > RELATIVE * (1 + ref.end_s[i]);
            if (bad && off++ < 5)
                printf("  round %d task %u: %.15g, reference %.15g\n", round, i, t.end_s[i],
                       ref.end_s[i]);
        }
    }
    CU_ASSERT_EQUAL(off, 0);
    CU_ASSERT(nloaded > NROUNDS / 2);
}

static void test_the_order_of_insertion_does_not_matter(void) {
    static struct world w;
    int off = 0;
    for (int round = 0; round < NROUNDS; round++) {
        struct dtp_rng r = dtp_rng_stream(3, (uint64_t)round);
        uint32_t place[MAX_TASKS], shuffled[MAX_TASKS];
        struct dtp_timeline t, u;
        dtp_arena_reset(arena);
        random_world(&w, round);
        identity(place, w.ntasks);
        identity(shuffled, w.ntasks);
        for (uint32_t i = w.ntasks; i-- > 1;) {
            uint32_t k = (uint32_t)dtp_rng_below(&r, i + 1), x = shuffled[i];
            shuffled[i] = shuffled[k];
            shuffled[k] = x;
        }
        run_world(&w, place, &t);
        run_world(&w, shuffled, &u);
        for (uint32_t i = 0; i < w.ntasks; i++)
            off += fabs(t.end_s[i] - u.end_s[shuffled[i]]) > RELATIVE * (1 + t.end_s[i]);
    }
    CU_ASSERT_EQUAL(off, 0);
}

/* A chain has one task at a time, so its end is a sum, and wider links never make it later. */
static void test_a_chain_is_a_sum_and_capacity_never_hurts_it(void) {
    static struct world w;
    int off = 0, later = 0;
    for (int round = 0; round < NROUNDS; round++) {
        uint32_t place[MAX_TASKS];
        struct dtp_timeline t, wider;
        double end_s = 0;
        dtp_arena_reset(arena);
        random_world(&w, round);
        identity(place, w.ntasks);
        w.ndeps = 0;
        for (uint32_t i = 0; i < w.ntasks; i++) {
            double rate = w.task[i].rate_cap;
            for (uint32_t k = 0; k < w.task[i].nuses; k++)
                if (w.uses[i][k].kind == DTP_USE_LINK)
                    rate = fmin(rate, w.p.link_capacity_per_s[w.uses[i][k].resource] /
                                          w.uses[i][k].weight);
            end_s = fmax(end_s, w.task[i].start_s) + w.task[i].latency_s + w.task[i].work / rate;
            if (i > 0) {
                w.before[w.ndeps] = i - 1;
                w.after[w.ndeps++] = i;
            }
        }
        run_world(&w, place, &t);
        off += fabs(t.makespan_s - end_s) > RELATIVE * (1 + end_s);
        for (uint32_t l = 0; l < w.p.nlinks; l += 2)
            w.p.link_capacity_per_s[l] *= 1.5;
        run_world(&w, place, &wider);
        later += wider.makespan_s > t.makespan_s * (1 + RELATIVE);
    }
    CU_ASSERT_EQUAL(off, 0);
    CU_ASSERT_EQUAL(later, 0);
}

/* No task ends before its time alone is over, and none starts before those it depends on have ended.
 * Work on a link is conserved: it takes at least the bytes over the capacity. */
static void test_no_task_is_too_early_and_no_link_too_fast(void) {
    static struct world w;
    int early = 0, fast = 0;
    for (int round = 0; round < NROUNDS; round++) {
        uint32_t place[MAX_TASKS];
        struct dtp_timeline t;
        double bytes[MAX_LINKS] = {0}, first_s = INFINITY;
        dtp_arena_reset(arena);
        random_world(&w, round);
        identity(place, w.ntasks);
        run_world(&w, place, &t);
        for (uint32_t e = 0; e < w.ndeps; e++)
            early += t.start_s[w.after[e]] < t.end_s[w.before[e]];
        for (uint32_t i = 0; i < w.ntasks; i++) {
            double alone_s = w.task[i].latency_s + w.task[i].work / w.task[i].rate_cap;
            early += t.end_s[i] - t.start_s[i] < alone_s * (1 - RELATIVE) - RELATIVE;
            early += t.start_s[i] < w.task[i].start_s;
            first_s = fmin(first_s, t.start_s[i]);
            for (uint32_t k = 0; k < w.task[i].nuses; k++)
                if (w.uses[i][k].kind == DTP_USE_LINK)
                    bytes[w.uses[i][k].resource] += w.task[i].work * w.uses[i][k].weight;
        }
        for (uint32_t l = 0; l < w.p.nlinks; l++)
            fast +=
                bytes[l] > w.p.link_capacity_per_s[l] * (t.makespan_s - first_s) * (1 + RELATIVE);
    }
    CU_ASSERT_EQUAL(early, 0);
    CU_ASSERT_EQUAL(fast, 0);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"rates obey the equations after every change",
         test_rates_obey_the_equations_after_every_change},
        {"times equal those of the reference simulator",
         test_times_equal_those_of_the_reference_simulator},
        {"the order of insertion does not matter", test_the_order_of_insertion_does_not_matter},
        {"a chain is a sum, capacity never hurts it",
         test_a_chain_is_a_sum_and_capacity_never_hurts_it},
        {"no task is too early and no link too fast",
         test_no_task_is_too_early_and_no_link_too_fast},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{.pName = "engine against references",
                              .pInitFunc = setup,
                              .pCleanupFunc = teardown,
                              .pTests = tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
