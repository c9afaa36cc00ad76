/* optimizer.h: optimizers beside AdamW, by what they keep and move.
 *
 * A framework file describes AdamW: `keeps.optimizer_bytes` is its master weights, if any, and two moments, and
 * `kernels.optimizer_bytes_moved` what its update reads and writes. Another optimizer keeps other state.
 */
#ifndef DTP_MODELS_OPTIMIZER_H
#define DTP_MODELS_OPTIMIZER_H

#include "models/framework/framework.h"

enum dtp_optimizer {
    DTP_ADAMW,
    DTP_SGD,
    DTP_SGD_MOMENTUM,
    DTP_LION,
    DTP_ADAFACTOR,
    DTP_ADAMW_8BIT,
    DTP_NOPTIMIZERS
};
extern const char *const dtp_optimizer_names[]; /* as in --optimizer, NULL-terminated */

/* Turns the stack's AdamW into another optimizer. DTP_EUSAGE for an unknown name, or one that the stack does not have.
 * name NULL: AdamW. */
enum dtp_status dtp_framework_set_optimizer(struct dtp_framework *f, const char *name,
                                            struct dtp_err *err);

#endif
