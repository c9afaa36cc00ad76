/* jobs_private.h: shared by jobs*.c. */
#ifndef DTP_TRACES_JOBS_JOBS_PRIVATE_H
#define DTP_TRACES_JOBS_JOBS_PRIVATE_H

#include "traces/jobs/jobs.h"

/* Rows of pai_task_table, summed over the tasks of a job; index: id of the name. */
struct jobs_task {
    double gpus, start_s, end_s, run_s;
    int nodes;
    enum dtp_job_status status;
};
struct dtp_job_tasks {
    struct dtp_intern *names;
    struct jobs_task *task;
    size_t capacity;
    bool has_jobs; /* pai_job_table was read, too */
};

struct dtp_job *jobs_add(struct dtp_arena *a, struct dtp_jobs *jobs);
void jobs_drop(struct dtp_jobs *jobs, uint64_t line);
enum dtp_job_status jobs_status(const char *word);

enum dtp_status jobs_read_csv(struct dtp_arena *a, struct dtp_source *source, struct dtp_jobs *out,
                              struct dtp_err *err);
enum dtp_status jobs_read_philly(struct dtp_arena *a, struct dtp_source *source,
                                 struct dtp_jobs *out, struct dtp_err *err);

#endif
