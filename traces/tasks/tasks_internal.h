/* tasks_internal.h: shared by tasks_*.c: the writers, and order within streams. */
#ifndef DTP_TRACES_TASKS_TASKS_INTERNAL_H
#define DTP_TRACES_TASKS_TASKS_INTERNAL_H

#include "traces/tasks/tasks.h"

/* A row of a picture or thread of a file: tasks that nest or follow each other. */
struct tasks_lane {
    int rank, number; /* number: 2, 3, ... of further lanes of one stream */
    const char *stream;
};
struct tasks_lanes {
    struct tasks_lane *lane; /* by rank in the order of the tasks' ranks, then first task */
    size_t n;
    uint32_t *of;    /* [ntasks] lane of a task */
    uint32_t *order; /* [ntasks] tasks by lane, start, longest first */
    uint32_t *depth; /* [ntasks] how many tasks of its lane it stands inside */
};
/* Times in whole nanoseconds decide what overlaps. */
void tasks_lay_out(struct dtp_arena *a, const struct dtp_tasks *t, struct tasks_lanes *out);
int64_t tasks_ns(double t_s);
/* From the rounded start to the rounded end, so that neighbours stay neighbours. */
int64_t tasks_length_ns(const struct dtp_tasks_task *k);
const char *tasks_category(const struct dtp_tasks_task *k);

/* A stretch of time and where a picture has it. */
struct tasks_piece {
    double from_s, to_s, x, width; /* pixels */
};
enum { TASKS_PIECES = 3 };

typedef enum dtp_status tasks_writer(struct dtp_arena *a, FILE *f, const struct dtp_tasks *t,
                                     struct dtp_err *err);
tasks_writer tasks_write_chrome, tasks_write_csv, tasks_write_gantt;
/* Graph of one rank; the index of a group's ranks is its name. */
struct tasks_groups;

#endif
