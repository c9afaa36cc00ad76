/* schedule_path.h: a plain longest path over the compute actions of a schedule, for tests.
 *
 * Written apart from the evaluator's: each rank runs its list in order, an action starts when the
 * rank is free and its data is there, `hop` after the action that made it ended on another rank.
 * Sweeps over the ranks until nothing moves.
 */
#ifndef DTP_TESTS_SCHEDULE_PATH_H
#define DTP_TESTS_SCHEDULE_PATH_H

#include <stdlib.h>

#include "models/schedule/schedule.h"

struct path_times {
    double f, b, i, w; /* times of one chunk and one microbatch */
    double hop;
};

/* State: when each F and each B (or I) ended, -1 before; when each rank is free; its next action. */
struct path {
    const struct dtp_schedule *s;
    const struct path_times *t;
    double *f_end, *b_end; /* [stages * m] */
    double *free_at;       /* [pp] */
    uint32_t *at;          /* [pp] */
};

/* When the data of an action is there, or -1. */
static inline double path_ready(const struct path *p, int rank, int vs, struct dtp_action x) {
    const struct dtp_schedule *s = p->s;
    size_t here = (size_t)vs * (size_t)s->m + x.microbatch;
    int from = x.kind == DTP_A_F ? vs - 1 : vs + 1, holder, chunk;
    if (x.kind == DTP_A_W)
        return p->b_end[here];
    if (from < 0)
        return 0;
    if (from == s->pp * s->vpp)
        return p->f_end[here];
    double end =
        (x.kind == DTP_A_F ? p->f_end : p->b_end)[(size_t)from * (size_t)s->m + x.microbatch];
    dtp_schedule_holder(s->kind, s->pp, s->vpp, from, &holder, &chunk);
    return end < 0 || holder == rank ? end : end + p->t->hop;
}

/* Runs the next action of a rank if it can. */
static inline bool path_advance(struct path *p, int rank) {
    const struct dtp_schedule *s = p->s;
    if (p->at[rank] == s->begin[rank + 1])
        return false;
    struct dtp_action x = s->action[p->at[rank]];
    int vs = dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, rank, x.chunk);
    size_t here = (size_t)vs * (size_t)s->m + x.microbatch;
    const double duration[] = {
        [DTP_A_F] = p->t->f, [DTP_A_B] = p->t->b, [DTP_A_I] = p->t->i, [DTP_A_W] = p->t->w};
    double ready = path_ready(p, rank, vs, x);
    if (ready < 0)
        return false;
    p->free_at[rank] = (ready > p->free_at[rank] ? ready : p->free_at[rank]) + duration[x.kind];
    if (x.kind != DTP_A_W)
        (x.kind == DTP_A_F ? p->f_end : p->b_end)[here] = p->free_at[rank];
    p->at[rank]++;
    return true;
}

/* Time of the last end, or -1 when the order deadlocks. */
static inline double path_step(const struct dtp_schedule *s, const struct path_times *t) {
    size_t cells = (size_t)s->pp * (size_t)s->vpp * (size_t)s->m, pp = (size_t)s->pp;
    struct path p = {.s = s,
                     .t = t,
                     .f_end = malloc(cells * sizeof(double)),
                     .b_end = malloc(cells * sizeof(double)),
                     .free_at = calloc(pp, sizeof(double)),
                     .at = malloc(pp * sizeof(uint32_t))};
    double last = 0;
    if (!p.f_end || !p.b_end || !p.free_at || !p.at)
        abort();
    for (size_t k = 0; k < cells; k++)
        p.f_end[k] = p.b_end[k] = -1;
    for (size_t r = 0; r < pp; r++)
        p.at[r] = s->begin[r];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->pp; r++)
            while (path_advance(&p, r))
                moved = true;
    }
    for (int r = 0; r < s->pp; r++)
        last = p.free_at[r] > last ? p.free_at[r] : last;
    for (int r = 0; r < s->pp; r++)
        last = p.at[r] < s->begin[r + 1] ? -1 : last;
    free(p.f_end);
    free(p.b_end);
    free(p.free_at);
    free(p.at);
    return last;
}

#endif
