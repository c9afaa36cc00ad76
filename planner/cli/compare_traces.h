/* compare_traces.h: dtplan compare TRACE... PREDICTED. */
#ifndef DTP_PLANNER_CLI_COMPARE_TRACES_H
#define DTP_PLANNER_CLI_COMPARE_TRACES_H

#include "planner/cli/cli.h"

extern const struct dtp_form dtp_compare_traces_form; /* its document */
/* A trace or timeline rather than a plan document. */
bool dtp_cli_is_trace(struct dtp_arena *a, const char *path);
/* cli->arg: the ranks of a trace, then a timeline, trace or plan document to compare it with. step: of
 * the trace, -1: the last. */
enum dtp_status dtp_cli_compare_traces(struct dtp_cli *cli, int step, struct dtp_err *err);

#endif
