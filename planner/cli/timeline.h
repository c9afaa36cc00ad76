/* timeline.h: one plan simulated as the options say, its timeline written where one was asked for. */
#ifndef DTP_PLANNER_CLI_TIMELINE_H
#define DTP_PLANNER_CLI_TIMELINE_H

#include "planner/cli/cli.h"

/* path NULL: no timeline. Uses cli->args.no_fold and .detail. */
enum dtp_status dtp_cli_simulate(struct dtp_cli *cli, struct dtp_evaluator *ev,
                                 const struct dtp_plan *plan, const char *path,
                                 struct dtp_result *out, struct dtp_err *err);

#endif
