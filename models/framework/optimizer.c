#include "models/framework/optimizer.h"

#include "sim/base/text.h"

const char *const dtp_optimizer_names[] = {[DTP_ADAMW] = "adamw",
                                           [DTP_SGD] = "sgd",
                                           [DTP_SGD_MOMENTUM] = "sgd_momentum",
                                           [DTP_LION] = "lion",
                                           [DTP_ADAFACTOR] = "adafactor",
                                           [DTP_ADAMW_8BIT] = "adamw_8bit",
                                           [DTP_NOPTIMIZERS] = NULL};

/* `moments` have the size of AdamW's, `state_bytes` a size of their own. */
static const struct kind {
    double moments, state_bytes;
    /* Bytes of an update that is not one pass over weights, gradients and state; 0: it is. */
    double bytes_moved;
} kinds[DTP_NOPTIMIZERS] = {
    [DTP_ADAMW] = {.moments = 2},
    [DTP_SGD] = {0},
    [DTP_SGD_MOMENTUM] = {.moments = 1},
    [DTP_LION] = {.moments = 1},
    /* transformers/optimization.py, Adafactor.step() without a first moment: a row and a column of means for each
     * matrix, and 98 bytes a parameter of fp32 passes, operator by operator: the gradient and the weight to fp32 (6
     * each), square (8), plus epsilon (8), two means (8), product of the factors (4), times the gradient (12), its
     * norm (4), division (8), learning rate (8), negation (8), sum (12), back to 16 bit (6). */
    [DTP_ADAFACTOR] = {.bytes_moved = 98},
    /* bitsandbytes: two moments of a byte, and an fp32 scale for 256 of each. */
    [DTP_ADAMW_8BIT] = {.state_bytes = 2 * (1 + 4.0 / 256)},
};

enum dtp_status dtp_framework_set_optimizer(struct dtp_framework *f, const char *name,
                                            struct dtp_err *err) {
    const double fp32_bytes = 4;
    int kind = name ? dtp_name_index(dtp_optimizer_names, name) : DTP_ADAMW;
    if (kind < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "optimizer", name, dtp_optimizer_names,
                                DTP_NOPTIMIZERS, NULL);
    if (!(f->can.optimizers >> kind & 1)) {
        char has[128];
        dtp_set_text(dtp_optimizer_names, f->can.optimizers, has, sizeof has);
        return dtp_fail(err, DTP_EUSAGE, "--optimizer: found %s, framework %s has %s", name,
                        f->name, has);
    }
    struct dtp_framework_keeps *m = &f->keeps;
    bool master = m->weight_bytes < fp32_bytes && m->optimizer_bytes >= 3 * fp32_bytes;
    double master_bytes = master ? fp32_bytes : 0;
    double moment_bytes = (m->optimizer_bytes - master_bytes) / 2;
    double state_bytes = kinds[kind].moments * moment_bytes + kinds[kind].state_bytes;
    /* AdamW reads weight, gradient and two moments and writes all but the gradient; what a step moves in
     * addition, such as to clip gradients, stays. */
    if (kinds[kind].bytes_moved > 0)
        f->kernels.optimizer_bytes_moved += kinds[kind].bytes_moved - 7 * moment_bytes;
    else
        f->kernels.optimizer_bytes_moved += 2 * (state_bytes - 2 * moment_bytes);
    m->optimizer_bytes = master_bytes + state_bytes;
    return DTP_OK;
}
