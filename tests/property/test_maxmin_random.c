/* Large coupled systems, too large for the slow reference: equations (1) and (2) are checked on the
 * rates themselves, and the work per change is bounded. */
#include <CUnit/Basic.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/maxmin.c" /* its tests read how many links it solved */
#include "tests/arena_case.h"
#include "tests/suites.h"

static const double RELATIVE = 1e-9;

enum { MAX_LINKS = 2000, NACTIVITIES = 1000, MAX_USES = 40, NSTEPS = 2000, CHECK_EVERY = 100 };

struct system {
    struct dtp_platform p;
    struct dtp_maxmin *m;
    struct dtp_rng r;
    struct dtp_use uses[NACTIVITIES][MAX_USES];
    uint32_t nuses[NACTIVITIES];
    double cap[NACTIVITIES];
    int active[NACTIVITIES];
    double load[MAX_LINKS], largest[MAX_LINKS];
};

struct shape {
    const char *name;
    uint32_t nlinks, max_uses;
    int equal_links, equal_weights;
};

/* 1 .. 2^20, evenly by magnitude */
static double magnitude(struct dtp_rng *r) {
    return (1 + dtp_rng_uniform(r)) * (double)(1u << dtp_rng_below(r, 20));
}

static void toggle(struct system *s, const struct shape *shape, uint32_t i) {
    s->active[i] = !s->active[i];
    if (!s->active[i]) {
        dtp_maxmin_remove(s->m, i);
        return;
    }
    uint32_t want = 1 + (uint32_t)dtp_rng_below(&s->r, shape->max_uses), n = 0;
    for (uint32_t k = 0; k < want; k++) {
        dtp_id l = (dtp_id)dtp_rng_below(&s->r, shape->nlinks);
        int twice = 0;
        for (uint32_t j = 0; j < n; j++)
            twice |= s->uses[i][j].resource == l;
        double w = shape->equal_weights ? 1 : magnitude(&s->r) / 1024;
        if (!twice)
            s->uses[i][n++] = (struct dtp_use){l, DTP_USE_LINK, w};
    }
    s->nuses[i] = n;
    s->cap[i] = dtp_rng_below(&s->r, 4) ? DTP_UNCAPPED : magnitude(&s->r);
    dtp_maxmin_add(s->m, i, s->cap[i], s->uses[i], n);
}

static int breaks_equations(struct system *s) {
    int wrong = 0;
    memset(s->load, 0, sizeof s->load);
    memset(s->largest, 0, sizeof s->largest);
    for (uint32_t i = 0; i < NACTIVITIES; i++)
        for (uint32_t k = 0; s->active[i] && k < s->nuses[i]; k++) {
            dtp_id l = s->uses[i][k].resource;
            double rate = dtp_maxmin_rate(s->m, i);
            s->load[l] += s->uses[i][k].weight * rate;
            s->largest[l] = rate > s->largest[l] ? rate : s->largest[l];
        }
    for (uint32_t l = 0; l < s->p.nlinks; l++)
        wrong += s->load[l] > s->p.link_capacity_per_s[l] * (1 + RELATIVE);
    for (uint32_t i = 0; i < NACTIVITIES; i++) {
        double rate = s->active[i] ? dtp_maxmin_rate(s->m, i) : 1;
        int limited = !s->active[i] || rate >= s->cap[i] * (1 - RELATIVE);
        for (uint32_t k = 0; !limited && k < s->nuses[i]; k++) {
            dtp_id l = s->uses[i][k].resource;
            limited = s->load[l] >= s->p.link_capacity_per_s[l] * (1 - RELATIVE) &&
                      rate >= s->largest[l] * (1 - RELATIVE);
        }
        wrong += !limited || !(rate > 0);
    }
    return wrong;
}

/* Returns the mean number of links solved per change. */
static double run_shape(const struct shape *shape) {
    static struct system s;
    const uint32_t *changed;
    int wrong = 0;
    dtp_arena_reset(arena);
    memset(&s, 0, sizeof s);
    s.r = dtp_rng_stream(4, shape->nlinks);
    dtp_platform_init(&s.p, arena);
    for (uint32_t l = 0; l < shape->nlinks; l++)
        dtp_platform_link(&s.p, shape->equal_links ? 10 : magnitude(&s.r), NULL);
    s.m = dtp_maxmin_create(arena, &s.p, 1);
    for (int step = 1; step <= NSTEPS; step++) {
        toggle(&s, shape, (uint32_t)dtp_rng_below(&s.r, NACTIVITIES));
        dtp_maxmin_solve(s.m, &changed);
        if (step % CHECK_EVERY == 0)
            wrong += breaks_equations(&s);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    if (wrong)
        printf("  %s: %d wrong\n", shape->name, wrong);
    return (double)s.m->nsolved / NSTEPS;
}

static void test_rates_of_large_systems_obey_the_equations(void) {
    static const struct shape shapes[] = {{"few links, many activities", 20, 4, 0, 0},
                                          {"strongly coupled", 300, 4, 0, 1},
                                          {"strongly coupled, ties", 300, 4, 1, 1},
                                          {"compound flows", 300, MAX_USES, 0, 0},
                                          {"compound flows, ties", 300, MAX_USES, 1, 1}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) /* each link about once a change */
        CU_ASSERT(run_shape(&shapes[k]) < 3 * shapes[k].nlinks);
}

/* 1,000 activities with two links each of 2,000 meet here and there only. */
static void test_loosely_coupled_changes_stay_local(void) {
    static const struct shape shape = {"loosely coupled", MAX_LINKS, 2, 0, 1};
    CU_ASSERT(run_shape(&shape) < 10);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"rates of large systems obey the equations",
         test_rates_of_large_systems_obey_the_equations},
        {"loosely coupled changes stay local", test_loosely_coupled_changes_stay_local},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{.pName = "max-min at large",
                              .pInitFunc = setup,
                              .pCleanupFunc = teardown,
                              .pTests = tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
