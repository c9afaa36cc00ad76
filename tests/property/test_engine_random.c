/* Random platforms and graphs are compared with a simulator that is slow and plainly right: it solves all rates again
 * at every event. */
#include <string.h>

#include "tests/engine_reference.h"
#include "tests/suites.h"

enum { MAX_TASKS = 120 };

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

/* Goes from event to event and solves everything again: the next event is the earliest begin of work or end. */
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
