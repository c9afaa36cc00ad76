/* trace_internal.h: what `dtplan trace` asks and says beyond the summaries that the formats make (traces/catalog.h): the
 * commands that a configuration or a log leads to, and workloads on a cluster. */
#ifndef DTP_PLANNER_CLI_TRACE_INTERNAL_H
#define DTP_PLANNER_CLI_TRACE_INTERNAL_H

#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "traces/catalog.h"
#include "traces/formats/config.h"
#include "traces/formats/logs.h"
#include "traces/tasks/workload_run.h"

struct dtp_trace_files {
    struct dtp_items items;
    const struct dtp_run_config *config; /* the run that a log describes, or NULL */
    const char *model_file;              /* that was written from it, or NULL */
    /* [items.n] with --cluster, else NULL; of graphs the first has the result of all */
    struct dtp_workload_result **run;
};

/* trace_config.c: the commands that ask about what a configuration says. */
void dtp_trace_print_config(struct dtp_arena *a, FILE *f, const struct dtp_run_config *c);
void dtp_trace_write_config(struct dtp_arena *a, struct dtp_json_out *w,
                            const struct dtp_run_config *c);
/* " --tp 8 --pp 4 ...", as much as it says. */
void dtp_trace_add_layout(struct dtp_str *s, const struct dtp_run_config *c);
/* The command that compares a log with a prediction. */
const char *dtp_trace_doctor(struct dtp_arena *a, const struct dtp_trace_files *files,
                             const struct dtp_log *log);

/* Prints the summaries for `dtplan replay` if the first file has no ranks to replay. */
enum dtp_status dtp_trace_other(struct dtp_cli *cli, bool *out_done, struct dtp_err *err);

#endif
