/* framework_private.h: private to framework*.c: what dtp_framework_fields are read into. */
#ifndef DTP_MODELS_FRAMEWORK_PRIVATE_H
#define DTP_MODELS_FRAMEWORK_PRIVATE_H

#include "models/framework/framework.h"

/* What a file holds: the framework and the lists that are read by hand. */
struct document {
    struct dtp_framework framework;
    const struct dtp_json *aliases, *schedules, *zero_stages, *zero_stages_pp, *zero_stages_tp,
        *dtypes, *recompute, *fitted, *by_gpu;
};

#endif
