/* schedule_path.h: a plain longest path over the compute actions of a schedule, for tests.
 *
 * Written apart from the evaluator's: each rank runs its list in order, an action starts when the
 * rank is free and its data is there, `hop` after the action that made it ended on another rank.
 * Sweeps over the ranks until nothing moves.
 */
#ifndef DTP_TESTS_SCHEDULE_PATH_H
#define DTP_TESTS_SCHEDULE_PATH_H

#include <stdlib.h>

#include "models/schedule.h"

struct path_times {
    double f, b, i, w; /* of one chunk and one microbatch */
    double hop;
};

/* Time of the last end, or -1 when the order deadlocks. */
static inline double path_step(const struct dtp_schedule *s, const struct path_times *t) {
    int nstages = s->pp * s->vpp, left = (int)s->begin[s->pp];
    size_t cells = (size_t)nstages * (size_t)s->m;
    double *f_end = malloc(cells * sizeof *f_end), *b_end = malloc(cells * sizeof *b_end);
    double *free_at = calloc((size_t)s->pp, sizeof *free_at);
    uint32_t *at = malloc((size_t)s->pp * sizeof *at);
    double last = -1;
    if (!f_end || !b_end || !free_at || !at)
        abort();
    for (size_t k = 0; k < cells; k++)
        f_end[k] = b_end[k] = -1;
    for (int r = 0; r < s->pp; r++)
        at[r] = s->begin[r];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->pp; r++) {
            for (; at[r] < s->begin[r + 1]; at[r]++, left--, moved = true) {
                struct dtp_action x = s->action[at[r]];
                int vs = dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, r, x.chunk);
                size_t here = (size_t)vs * (size_t)s->m + x.microbatch;
                double ready = 0, *end = x.kind == DTP_A_F ? f_end : b_end, duration = t->f;
                int from = x.kind == DTP_A_F ? vs - 1 : vs + 1, rank = r, chunk;
                if (x.kind == DTP_A_W) {
                    ready = b_end[here];
                    duration = t->w;
                } else {
                    if (x.kind != DTP_A_F)
                        duration = x.kind == DTP_A_B ? t->b : t->i;
                    if (from >= 0 && from < nstages) {
                        dtp_schedule_holder(s->kind, s->pp, s->vpp, from, &rank, &chunk);
                        ready = end[(size_t)from * (size_t)s->m + x.microbatch];
                    } else if (x.kind != DTP_A_F) {
                        ready = f_end[here];
                    }
                }
                if (ready < 0)
                    break;
                if (rank != r)
                    ready += t->hop;
                free_at[r] = (ready > free_at[r] ? ready : free_at[r]) + duration;
                if (x.kind != DTP_A_W)
                    end[here] = free_at[r];
                last = free_at[r] > last ? free_at[r] : last;
            }
        }
    }
    free(f_end);
    free(b_end);
    free(free_at);
    free(at);
    return left == 0 ? last : -1;
}

#endif
