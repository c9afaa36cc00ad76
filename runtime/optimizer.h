/* optimizer.h: what of a unit this rank updates; also what it saves. Internal to runtime/. */
#ifndef DTP_RUNTIME_OPTIMIZER_H
#define DTP_RUNTIME_OPTIMIZER_H

#include "runtime/rank.h"

/* Elements begin .. begin + n - 1 of the unit; weights and grads point at the first of them, and so do
 * the unit's master, m and v. */
struct dtp_owned {
    int64_t begin, n;
    void *weights, *grads;
};
struct dtp_owned dtp_unit_owned(const struct dtp_rank *r, struct dtp_unit *u);
/* The part of a parameter among them, as elements of the unit; false: none. */
bool dtp_param_owned(const struct dtp_param *p, const struct dtp_owned *o, int64_t *begin,
                     int64_t *n);

#endif
