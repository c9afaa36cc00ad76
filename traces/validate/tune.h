/* tune.h: what a measured run leaves unsaid, taken as its author would have tuned it.
 *
 * Microbatch, chunks per stage and recomputation that a row leaves empty become the combination with the
 * least ESTIMATE among those that fit: microbatch 1, 2, 4, 8, ... dividing the batch; where the schedule
 * is interleaved, chunks dividing the layers of a stage; recomputation none, selective, full as far as
 * the framework has them. Recomputation alone is not searched: unsaid beside a stated microbatch it is
 * none.
 * If nothing fits, what needs up to 5 % more counts, too: the run did fit; then ZeRO-3 where ZeRO-2 was stated.
 * If nothing is left, the plan stays as it was.
 */
#ifndef DTP_TRACES_VALIDATE_TUNE_H
#define DTP_TRACES_VALIDATE_TUNE_H

#include "traces/validate/measured.h"

struct dtp_unsaid {
    bool microbatch, vpp, recompute;
};

/* Changes c->plan; returns what was taken, or NULL. */
const char *dtp_run_tune(struct dtp_arena *a, struct dtp_run_case *c, struct dtp_unsaid unsaid);

#endif
