/* estimate_walk.h: private to estimate*.c: the state of a walk along the longest path. */
#ifndef DTP_MODELS_ESTIMATE_WALK_H
#define DTP_MODELS_ESTIMATE_WALK_H

#include "models/lower/lower_layout.h"

struct dtp_walk_rank {
    uint32_t pos, stop, end; /* next action; walk no further than stop for now; behind the last */
    double free_s;           /* end of the previous action (and of a reduction that blocks) */
    int64_t out;             /* rendezvous: transfer that the previous action started, or -1 */
    double reduce_free_s, gather_free_s, unshard_free_s;
    uint32_t nunits; /* unsharded units so far */
    bool filled;     /* a backward has started */
};

struct dtp_walk {
    struct dtp_layout l;
    struct dtp_walk_rank *state; /* [pp] */
    struct dtp_rank_path *path;
    double *sent_s;   /* [2 * nstages * m] arrival; rendezvous: end of the producer; -1: not yet */
    double *posted_s; /* rendezvous: when the receiver came; else NULL */
    double *unit_start_s; /* [pp * ring] starts of the last units */
    int ring;
};

/* Sweeps up and down the ranks until none can go on. */
void dtp_walk_sweep(struct dtp_walk *w);

/* Walks until the times of all ranks grow by the same step every few periods of the schedule, then jumps
 * over the periods that are left. Returns how many actions it left out; 0 when there is no such state.
 *
 * Why it is exact. The actions of a rank repeat every `period` actions with microbatches `shift`
 * later; a cut (a position on each rank) and the cut one period on see the same dependencies. Times on
 * the cut are the state of a max-plus linear system x(k+1) = A x(k) (Baccelli 1992, section 3.7): once
 * x(k+c) = lambda + x(k) in all components, it holds for good. The components are the ranks' times
 * and those of the transfers that have been started and are still waited for. */
uint64_t dtp_walk_jump(struct dtp_arena *a, struct dtp_walk *w);

#endif
