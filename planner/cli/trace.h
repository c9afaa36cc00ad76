/* trace.h: what `dtplan trace` read, and its summaries. One file, one item; the ranks of a job are one
 * item together, so are tables of jobs, and the event files of one run. */
#ifndef DTP_PLANNER_CLI_TRACE_H
#define DTP_PLANNER_CLI_TRACE_H

#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "traces/formats/aicb.h"
#include "traces/formats/chakra.h"
#include "traces/formats/config.h"
#include "traces/formats/et.h"
#include "traces/formats/format.h"
#include "traces/jobs/jobs.h"
#include "traces/formats/logs.h"
#include "traces/jobs/stragglers.h"
#include "traces/formats/topology.h"
#include "traces/formats/trace.h"
#include "traces/formats/workload.h"
#include "traces/tasks/workload_run.h"

struct dtp_trace_item {
    const char *name;
    enum dtp_format format;
    size_t nfiles;
    /* by the kind of the format */
    struct dtp_trace *ranks;
    struct dtp_chakra *graph;
    struct dtp_et *et;
    struct dtp_workload *workload;
    struct dtp_aicb *aicb;
    struct dtp_log *log; /* of golden values and event files, too: only its scalars */
    struct dtp_topology *topology;
    struct dtp_jobs *jobs;
    struct dtp_iterations *iterations;
    struct dtp_run_config *config;
    struct dtp_workload_result *run; /* with --cluster; of graphs: the first has that of all */
};

struct dtp_trace_items {
    struct dtp_trace_item *item;
    size_t n, capacity;
    const char *unit; /* of times in workloads, as typed; NULL: not said */
    double unit_s;
    const struct dtp_run_config *config; /* of the run that a log is of, or NULL */
    const char *model_file;              /* that was written from it, or NULL */
};

/* What the user named, read; formats < 0: told by content. */
struct dtp_trace_request {
    const char *const *paths;
    size_t npaths;
    int format; /* enum dtp_format, or -1 */
    struct dtp_trace_options load;
};
enum dtp_status dtp_trace_items_read(struct dtp_arena *a, const struct dtp_trace_request *request,
                                     struct dtp_trace_items *out, struct dtp_err *err);

void dtp_trace_print_item(struct dtp_arena *a, FILE *f, const struct dtp_trace_items *items,
                          const struct dtp_trace_item *item);
void dtp_trace_write_item(struct dtp_arena *a, struct dtp_json_out *w,
                          const struct dtp_trace_items *items, const struct dtp_trace_item *item);
/* trace_config.c: what a configuration says, and the commands that ask about it. */
void dtp_trace_print_config(struct dtp_arena *a, FILE *f, const struct dtp_run_config *c);
void dtp_trace_write_config(struct dtp_arena *a, struct dtp_json_out *w,
                            const struct dtp_run_config *c);
/* The library's model by its name, else by its shape; NULL: neither. */
const char *dtp_trace_config_model(struct dtp_arena *a, const struct dtp_run_config *c);
/* trace_layout.c: " --tp 8 --pp 4 ...", as much as it says. */
void dtp_trace_add_layout(struct dtp_str *s, const struct dtp_run_config *c);
/* The command that compares a log with a prediction. */
const char *dtp_trace_doctor(struct dtp_arena *a, const struct dtp_trace_items *items,
                             const struct dtp_log *log);

/* Runs workloads and graphs on the cluster. gpus 0: as the files say. */
enum dtp_status dtp_trace_simulate(struct dtp_arena *a, struct dtp_trace_items *items,
                                   const struct dtp_cluster *c, int gpus, struct dtp_err *err);
void dtp_trace_print_run(FILE *f, const struct dtp_workload_result *run);
void dtp_trace_write_run(struct dtp_json_out *w, const struct dtp_workload_result *run);

/* For `dtplan replay`: where the first file has no ranks to replay, prints the summaries instead. */
enum dtp_status dtp_trace_other(struct dtp_cli *cli, bool *out_done, struct dtp_err *err);

/* Sums that both forms of a summary show. */
struct dtp_trace_sum {
    const char *kind, *group;
    uint64_t count;
    double bytes;
};
size_t dtp_trace_sums(struct dtp_arena *a, const struct dtp_trace_item *item,
                      struct dtp_trace_sum **out);

#endif
