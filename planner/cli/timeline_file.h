/* timeline_file.h: one plan simulated as the options say; timelines written where they were asked for. */
#ifndef DTP_PLANNER_CLI_TIMELINE_FILE_H
#define DTP_PLANNER_CLI_TIMELINE_FILE_H

#include "planner/cli/cli.h"
#include "traces/tasks/tasks.h"

/* path NULL: no timeline. Uses cli->args.no_fold and .detail. */
enum dtp_status dtp_cli_simulate(struct dtp_cli *cli, struct dtp_evaluator *ev,
                                 const struct dtp_plan *plan, const char *path,
                                 struct dtp_result *out, struct dtp_err *err);

/* What a real run did, as tasks: each rank in order, receives after their sends. */
struct dtp_run_result;
struct dtp_tasks *dtp_cli_run_tasks(struct dtp_arena *a, const struct dtp_plan *plan,
                                    const struct dtp_run_result *r, const char *title);
/* --timeline-ranks, -steps and -streams choose parts of a timeline: refused without one. */
enum dtp_status dtp_cli_check_timeline(const struct dtp_cli *cli, struct dtp_err *err);
/* Writes the tasks, or what those leave of them. */
enum dtp_status dtp_cli_write_tasks(struct dtp_cli *cli, const struct dtp_tasks *tasks,
                                    const char *path, struct dtp_err *err);

#endif
