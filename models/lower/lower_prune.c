#include <string.h>

#include "models/lower/lower_build.h"
#include "sim/base/mix.h"

/* A collective of 4,096 ranks uses 16,384 links, nearly all of them alike. A link needs no use where
 *   - only one collective of one stage (its groups in lockstep) uses it: together they never ask for
 *     more than it has, by the weights of lower_flows.c;
 *   - another link has the same capacity and the same uses by the same groups: one binds as both do.
 * Links that a transfer or the embedding's all-reduce uses stay. */

struct pruning {
    struct dtp_lowering *w;
    uint64_t *signature; /* [nlinks] of the uses, in any order */
    uint32_t *user;      /* [nlinks] 1 + the last collective that uses it */
    bool *several;       /* [nlinks] more than one does */
    bool *keep;          /* [nlinks] */
};

/* Single precision, so that sums in another order count as equal. */
static uint64_t bits(double x) {
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void sign(struct pruning *p, const struct dtp_group_flows *flows, uint32_t collective) {
    for (int i = 0; i < flows->n; i++) {
        const struct dtp_group_flow *f = &flows->at[i];
        for (uint32_t k = 0; k < f->nraw; k++) {
            uint32_t link = f->raw[2 * k].resource;
            uint64_t who = (uint64_t)collective << 32 | (uint32_t)i;
            uint64_t what = bits(f->raw[2 * k].weight) << 32 | bits(f->raw[2 * k + 1].weight);
            p->signature[link] += dtp_mix(dtp_mix(who + 1) + what);
            p->several[link] |= p->user[link] && p->user[link] != collective + 1;
            p->user[link] = collective + 1;
        }
    }
}

static void choose(struct pruning *p) {
    struct dtp_lowering *w = p->w;
    size_t nbuckets = 2 * (size_t)w->nlinks + 1;
    uint64_t *seen = DTP_NEW(w->a, uint64_t, nbuckets);
    for (uint32_t link = 0; link < w->nlinks; link++) {
        p->keep[link] = w->link[link] != DTP_NONE;
        if (p->keep[link] || !p->several[link])
            continue;
        uint64_t key = dtp_mix(p->signature[link] + bits(dtp_lowering_capacity(w, link))) | 1;
        size_t at = (size_t)(key % nbuckets);
        while (seen[at] && seen[at] != key)
            at = (at + 1) % nbuckets;
        p->keep[link] = seen[at] == 0;
        seen[at] = key;
    }
}

static void drop(const struct pruning *p, const struct dtp_group_flows *flows) {
    for (int i = 0; i < flows->n; i++) {
        struct dtp_group_flow *f = &flows->at[i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < f->nraw; k++) {
            if (!p->keep[f->raw[2 * k].resource])
                continue;
            f->raw[2 * n] = f->raw[2 * k];
            f->raw[2 * n + 1] = f->raw[2 * k + 1];
            n++;
        }
        f->nraw = n;
    }
}

void dtp_flows_prune(struct dtp_lowering *w) {
    size_t n = w->nlinks;
    struct pruning p = {w, DTP_NEW(w->a, uint64_t, n), DTP_NEW(w->a, uint32_t, n),
                        DTP_NEW(w->a, bool, n), DTP_NEW(w->a, bool, n)};
    uint32_t ncollectives = (uint32_t)(w->l.pp * DTP_NUNITS);
    for (int i = 0; i < w->embedding.n; i++)
        for (uint32_t k = 0; k < w->embedding.at[i].nraw; k++)
            dtp_lowering_link(w, w->embedding.at[i].raw[2 * k].resource);
    for (uint32_t c = 0; c < ncollectives; c++)
        sign(&p, &w->unit[c], c);
    choose(&p);
    for (uint32_t c = 0; c < ncollectives; c++)
        drop(&p, &w->unit[c]);
}
