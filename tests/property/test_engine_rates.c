/* Rates after every change of random activities: they obey the equations of max-min fairness and are those of
 * the reference. */
#include "sim/maxmin.h"

#include "tests/engine_reference.h"
#include "tests/suites.h"

enum { MAX_ACTIVITIES = 60 };

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

int main(void) {
    CU_TestInfo tests[] = {{"rates obey the equations after every change",
                            test_rates_obey_the_equations_after_every_change},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "rates", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = tests},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
