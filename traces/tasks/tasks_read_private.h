/* tasks_read_private.h: private to tasks_read*.c: a timeline being read. */
#ifndef DTP_TRACES_TASKS_TASKS_READ_PRIVATE_H
#define DTP_TRACES_TASKS_TASKS_READ_PRIVATE_H

#include "sim/base/units.h"
#include "traces/formats/pull.h"
#include "traces/tasks/tasks.h"

enum { MOST_TASKS = 1 << 28, MOST_RANKS = 1 << 24 };
#define MOST_S DTP_GIGA /* in ns, sums stay below 2^63 */

struct read_task {
    struct dtp_tasks_task k;
    int64_t id, tid;
    size_t first_dep, ndeps;
};

struct tasks_reader {
    struct dtp_arena *a;
    struct dtp_pull p;
    struct dtp_tasks *t;
    struct read_task *task;
    size_t ntasks, capacity;
    int64_t *dep;
    size_t ndeps, deps_capacity;
    const char **lane;
    size_t nlanes, lanes_capacity;
    int64_t declared;
    struct dtp_trace_rank names; /* equal texts are one */
};

enum dtp_status tasks_read_double(struct tasks_reader *r, double *out, struct dtp_err *err);
enum dtp_status tasks_read_whole(struct tasks_reader *r, int64_t least, int64_t most, int64_t *out,
                                 struct dtp_err *err);
enum dtp_status tasks_read_int(struct tasks_reader *r, int *out, struct dtp_err *err);
enum dtp_status tasks_read_string(struct tasks_reader *r, const char **out, struct dtp_err *err);
/* Within MOST_S. */
bool tasks_in_time(double t_s);
/* The object "dtplan": ranks, lanes, steps and how many tasks follow. */
enum dtp_status tasks_read_head(struct tasks_reader *r, struct dtp_err *err);

#endif
