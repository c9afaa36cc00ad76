/* calibrate_trace.h: dtplan calibrate --from-trace TRACE...: a framework file from a measured job. */
#ifndef DTP_PLANNER_CLI_CALIBRATE_TRACE_H
#define DTP_PLANNER_CLI_CALIBRATE_TRACE_H

#include "planner/cli/cli.h"

struct dtp_calibrate_trace {
    const char *framework; /* to start from; NULL: the one that the trace shows */
    const char *cluster;   /* NULL: one with the trace's GPU */
    const char *out;       /* NULL: NAME-trace.json */
};

/* The trace's model and plan (dtplan infer) say how many launches a layer has in the framework and in
 * the trace; their times (traces/replay/host_times.h) become launch_s, backward_launch_factor and layer_host_s
 * (zero3_host_s of FSDP). Prints the step as measured and as predicted before and after, and kernels as
 * measured over predicted, by kind; writes the file with source and errors. */
enum dtp_status dtp_cli_calibrate_trace(struct dtp_cli *cli, const struct dtp_calibrate_trace *args,
                                        struct dtp_err *err);

#endif
