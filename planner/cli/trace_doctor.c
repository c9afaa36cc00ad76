/* trace_doctor.c: the command that compares what a log says with a prediction. */
#include <string.h>

#include "planner/cli/trace.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static const char *framework_of(const struct dtp_log *log) {
    switch (log->dialect) {
    case DTP_LOG_MEGATRON:
        return "megatron-core";
    case DTP_LOG_NANOTRON:
        return "nanotron";
    case DTP_LOG_TORCHTITAN:
        return "torchtitan";
    case DTP_LOG_DEEPSPEED:
        return "deepspeed";
    case DTP_LOG_NCCL_TESTS:
    case DTP_LOG_OTHER:
    case DTP_NLOG_DIALECTS:
        break;
    }
    return dtp_scalars_tag(&log->scalars, "iteration-time") ? "megatron-core" : NULL;
}

/* "1.15s,60.7GB" of what the log has; "3.2s" to be filled in where it has no step time. */
static void add_measured(struct dtp_str *s, const struct dtp_scalars *scalars) {
    const struct dtp_series *step = dtp_scalars_find(scalars, DTP_QUANTITY_STEP_S),
                            *flops = dtp_scalars_find(scalars, DTP_QUANTITY_FLOPS_PER_GPU),
                            *peak = dtp_scalars_find(scalars, DTP_QUANTITY_PEAK_BYTES);
    struct dtp_series_stats t;
    if (step) {
        dtp_series_stats(step, &t);
        dtp_str_printf(s, " --measured %.6gs", t.median);
    } else if (flops) {
        dtp_series_stats(flops, &t);
        dtp_str_printf(s, " --measured %.5gTF", t.median / DTP_TERA);
    } else {
        dtp_str_add(s, " --measured TIME");
    }
    if (peak) {
        dtp_series_stats(peak, &t);
        dtp_str_printf(s, ",%.5gGB", t.max / DTP_GIGA);
    }
}

const char *dtp_trace_doctor(struct dtp_arena *a, const struct dtp_trace_files *files,
                             const struct dtp_log *log) {
    struct dtp_str s = {.a = a};
    const struct dtp_run_config *c = files->config;
    dtp_str_add(&s, "dtplan doctor");
    add_measured(&s, &log->scalars);
    dtp_str_add(&s, " --model ");
    if (files->model_file)
        dtp_str_add_word(&s, files->model_file);
    else
        dtp_str_add(&s, "NAME|FILE");
    if (c && dtp_config_gpus(c) > 0)
        dtp_str_printf(&s, " --gpus %ld", dtp_config_gpus(c));
    else
        dtp_str_add(&s, " --gpus N");
    dtp_str_add(&s, " --cluster C");
    const char *framework = framework_of(log);
    if (framework)
        dtp_str_printf(&s, " --framework %s", framework);
    if (c) {
        dtp_trace_add_layout(&s, c);
        return s.at;
    }
    const struct dtp_series *batch = dtp_scalars_find(&log->scalars, DTP_QUANTITY_SEQUENCES);
    dtp_str_add(&s, " --tp T --pp P --microbatch-size M");
    if (batch && batch->n > 0)
        dtp_str_printf(&s, " --batch %.0f", batch->at[batch->n - 1].value);
    return s.at;
}
