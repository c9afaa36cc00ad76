/* What a step leaves: when each action ran, the loss and the time of all ranks. */
#include <math.h>

#include "runtime/os_linux.h"
#include "runtime/rank.h"

void dtp_step_times(struct dtp_rank *r, int64_t start_ns) {
    for (int i = 0; i < r->nevents; i++) {
        int64_t begin_ns = r->ops->mark_ns(r->dev, 2 * i);
        int64_t end_ns = r->ops->mark_ns(r->dev, 2 * i + 1);
        r->event[i].start_s = (double)(begin_ns - start_ns) / (double)DTP_NS_PER_S;
        r->event[i].dur_s = (double)(end_ns - begin_ns) / (double)DTP_NS_PER_S;
    }
}

static enum dtp_status reduce(struct dtp_rank *r, float *x, enum dtp_reduce_op op) {
    return r->host->ops->all_reduce(r->host_world, DTP_STREAM_COMPUTE, x, 1, DTP_FP32, op, r->err);
}

/* Where losses mean something they are numbers; else the first rank whose part is none is named. */
static enum dtp_status check_loss(struct dtp_rank *r, float loss, float part) {
    if (isfinite(loss) || r->o->shadow_cluster || r->o->rough_weights)
        return DTP_OK;
    float from_last = isfinite(part) ? 0 : (float)(r->size - r->rank);
    DTP_TRY(reduce(r, &from_last, DTP_REDUCE_MAX));
    return dtp_fail(r->err, DTP_ENO, "rank %d: the loss of step %d is %s", r->size - (int)from_last,
                    r->step + 1, isnan(loss) ? "not a number" : "infinite");
}

enum dtp_status dtp_step_share(struct dtp_rank *r, double *loss, double *step_s) {
    float sum = 0, longest = (float)*step_s;
    r->ops->copy_out(r->dev, &sum, r->scalars + DTP_SCALAR_LOSS, sizeof sum);
    if (r->layout.tp_rank != 0)
        sum = 0; /* each tp rank has the same */
    float part = sum;
    DTP_TRY(reduce(r, &sum, DTP_REDUCE_SUM));
    DTP_TRY(reduce(r, &longest, DTP_REDUCE_MAX));
    *loss = (double)sum;
    *step_s = (double)longest;
    return check_loss(r, sum, part);
}
