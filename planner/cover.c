#include "planner/cover.h"

#include <stdlib.h>

enum { TP, PP, DP, ZERO, SP, RECOMPUTE, MICROBATCH, NSETTINGS };

static int setting(const struct dtp_plan *p, int which) {
    const int value[NSETTINGS] = {
        [TP] = p->tp,
        [PP] = (p->pp * DTP_MAX_STAGES + p->schedule) * DTP_MAX_STAGES / 2 + p->vpp,
        [DP] = p->dp,
        [ZERO] = p->zero_stage,
        [SP] = p->sequence_parallel,
        [RECOMPUTE] = (int)p->recompute,
        [MICROBATCH] = p->microbatch_size};
    return value[which];
}

struct pairs {
    uint64_t *key; /* sorted */
    bool *chosen;
    size_t n;
};

static uint64_t key_of(const struct dtp_plan *p, int i, int k) {
    enum { SETTING_BITS = 28 };
    return ((uint64_t)(i * NSETTINGS + k) << 2 * SETTING_BITS) |
           ((uint64_t)setting(p, i) << SETTING_BITS) | (uint64_t)setting(p, k);
}

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct pairs all_pairs(struct dtp_arena *a, const struct dtp_plan *plan, size_t n) {
    enum { PAIRS = NSETTINGS * (NSETTINGS - 1) / 2 };
    struct pairs x = {.key = DTP_NEW(a, uint64_t, n * PAIRS)};
    size_t all = 0;
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < NSETTINGS; i++)
            for (int k = i + 1; k < NSETTINGS; k++)
                x.key[all++] = key_of(&plan[p], i, k);
    qsort(x.key, all, sizeof *x.key, compare);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || x.key[i] != x.key[i - 1])
            x.key[x.n++] = x.key[i];
    x.chosen = DTP_NEW(a, bool, x.n);
    return x;
}

/* Pairs of the plan that no chosen plan has; choose: now it is one. */
static int missing(struct pairs *x, const struct dtp_plan *p, bool choose) {
    int count = 0;
    for (int i = 0; i < NSETTINGS; i++)
        for (int k = i + 1; k < NSETTINGS; k++) {
            uint64_t key = key_of(p, i, k);
            const uint64_t *at = bsearch(&key, x->key, x->n, sizeof key, compare);
            size_t index = at ? (size_t)(at - x->key) : 0;
            count += at && !x->chosen[index];
            if (at && choose)
                x->chosen[index] = true;
        }
    return count;
}

static size_t best_of(struct pairs *x, const struct dtp_plan *plan, size_t n, int *most) {
    size_t best = 0;
    *most = 0;
    for (size_t p = 0; p < n; p++) {
        int count = missing(x, &plan[p], false);
        if (count > *most) {
            *most = count;
            best = p;
        }
    }
    return best;
}

size_t dtp_plan_cover(struct dtp_arena *a, const struct dtp_plan *plan, size_t n, size_t least,
                      size_t *out) {
    bool *taken = DTP_NEW(a, bool, n);
    struct pairs x = all_pairs(a, plan, n);
    size_t chosen = 0;
    int most;
    for (size_t p = best_of(&x, plan, n, &most); most > 0; p = best_of(&x, plan, n, &most)) {
        (void)missing(&x, &plan[p], true);
        taken[p] = true;
        out[chosen++] = p;
    }
    size_t wanted = least < n ? least : n, more = chosen < wanted ? wanted - chosen : 0;
    for (size_t i = 0; i < more; i++) { /* the first free one from each of so many equal parts on */
        size_t p = i * n / more;
        while (taken[p])
            p = (p + 1) % n;
        taken[p] = true;
        out[chosen++] = p;
    }
    return chosen;
}
