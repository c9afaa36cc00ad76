/* engine_reference.h: random links and their users, and the rates of the latter by a method that is slow and
 * plainly right: progressive filling by repeated scans. */
#ifndef DTP_TESTS_ENGINE_REFERENCE_H
#define DTP_TESTS_ENGINE_REFERENCE_H

#include <CUnit/Basic.h>
#include <math.h>

#include "sim/base/rng.h"
#include "sim/engine.h"
#include "tests/arena_case.h"

static const double RELATIVE = 1e-9;

enum { MAX_LINKS = 24, MAX_USES = 6, NROUNDS = 400 };

static inline double log_uniform(struct dtp_rng *r, double low, uint32_t ndoublings) {
    double x = low * (1 + dtp_rng_uniform(r));
    for (uint64_t k = dtp_rng_below(r, ndoublings); k > 0; k--)
        x *= 2;
    return x;
}

struct ref_activity {
    double cap, rate;
    struct dtp_use uses[MAX_USES];
    uint32_t nuses;
    int active, fixed;
};

/* Progressive filling: find the least rate at which a link is full or a cap met; fix those; repeat. */
static inline void ref_solve(const struct dtp_platform *p, struct ref_activity *x, uint32_t n) {
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

static inline uint32_t random_uses(struct dtp_rng *r, uint32_t nlinks, struct dtp_use *uses) {
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

static inline void random_links(struct dtp_rng *r, struct dtp_platform *p, int round) {
    uint32_t n = 1 + (uint32_t)dtp_rng_below(r, MAX_LINKS);
    dtp_platform_init(p, arena);
    for (uint32_t l = 0; l < n; l++) /* every third platform has equal links, hence many ties */
        dtp_platform_link(p, round % 3 ? log_uniform(r, 1, 8) : 10, NULL);
}

#endif
