/* jobs.h: what a cluster ran: published traces of job schedulers as one table of jobs.
 *
 *     Philly   cluster_job_log: JSON, an array of {jobid, user, vc, status, submitted_time, attempts}
 *     Helios   cluster_log.csv: job_id, user, vc, gpu_num, ..., submit_time, start_time, end_time
 *     Acme     trace_seren.csv, trace_kalos.csv: like Helios, with type and gpu_time, times with a zone
 *     PAI      pai_job_table and pai_task_table of 2020, with or without a header line; a job of
 *              the first takes its GPUs and its start from its rows in the second
 *
 * A file may be gzip, a member of a tar archive or lie in a folder that is named. Times are seconds:
 * since 1970 where a file has dates (taken as UTC where it names no zone), since the start of the
 * trace for PAI; only differences of one trace mean something. Jobs are sorted by submission.
 *
 *     struct dtp_jobs jobs;
 *     DTP_TRY(dtp_jobs_load(a, paths, npaths, &jobs, err));
 *     for (size_t i = 0; i < jobs.n; i++) { ... jobs.job[i].gpus ... }
 */
#ifndef DTP_TRACES_JOBS_JOBS_H
#define DTP_TRACES_JOBS_JOBS_H

#include <stdio.h>

#include "traces/formats/intern.h"
#include "traces/formats/source.h"

#define DTP_JOB_UNKNOWN (-1.0)

enum dtp_job_status {
    DTP_JOB_COMPLETED, /* Pass, COMPLETED, Terminated (PAI's word for an end as planned) */
    DTP_JOB_FAILED,    /* Failed, NODE_FAIL, OUT_OF_MEMORY */
    DTP_JOB_CANCELLED, /* Killed, CANCELLED */
    DTP_JOB_TIMEOUT,
    DTP_JOB_UNFINISHED, /* Running, Waiting, PENDING */
    DTP_JOB_OTHER,
    DTP_NJOB_STATUSES
};

enum dtp_job_source {
    DTP_JOBS_PHILLY,
    DTP_JOBS_HELIOS,
    DTP_JOBS_ACME,
    DTP_JOBS_PAI,
    DTP_NJOB_SOURCES
};

struct dtp_job {
    const char *id, *user, *group, *type; /* "" where the trace does not say */
    double submit_s, start_s, end_s;      /* DTP_JOB_UNKNOWN: not said, or still running */
    double run_s;                         /* on GPUs, all attempts together; DTP_JOB_UNKNOWN */
    double gpus;                          /* PAI shares GPUs: 0.25; DTP_JOB_UNKNOWN */
    int nodes, attempts;                  /* 0: not said */
    enum dtp_job_status status;
    enum dtp_job_source source;
};

struct dtp_jobs {
    struct dtp_job *job;
    size_t n, capacity;
    uint64_t rows;                  /* rows of the files */
    uint64_t dropped, dropped_line; /* rows that are none; the line of the first */
    uint64_t bad_times;             /* ends before starts, starts before submissions */
    uint64_t bad_durations;         /* the stated duration is not end - start */
    uint64_t no_zone;               /* times without a zone */
    uint64_t no_tasks;              /* jobs of PAI without a row in the table of tasks */
    struct dtp_intern *texts;
    struct dtp_job_tasks *tasks; /* private: of PAI, until the tables are joined */
};

/* Files, folders and archives of one or more traces. DTP_EINPUT where a file is none. */
enum dtp_status dtp_jobs_load(struct dtp_arena *a, const char *const *paths, size_t npaths,
                              struct dtp_jobs *out, struct dtp_err *err);

/* ---- file by file ---- */

void dtp_jobs_init(struct dtp_arena *a, struct dtp_jobs *out);
enum dtp_status dtp_jobs_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_jobs *out,
                              struct dtp_err *err);
/* Joins the tables of PAI, checks times, sorts. */
void dtp_jobs_finish(struct dtp_arena *a, struct dtp_jobs *jobs);

/* A line for each kind of trouble: rows that are no jobs, with their share, times that contradict, ... */
void dtp_jobs_print_warnings(FILE *f, const struct dtp_jobs *jobs);
/* Sets the seconds since 1970 of "2023-05-17 11:00:58", with or without a fraction and a zone; false: it is no time. */
bool dtp_parse_date(const char *text, double *out_s, bool *out_zone);

#endif
