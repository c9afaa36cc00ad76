/* jobs_csv.c: tables of Helios, Acme and PAI, told apart by their columns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/base/units.h"
#include "traces/jobs/jobs_private.h"
#include "traces/formats/lines.h"

enum { MOST_CELLS = 32 };

enum column {
    COL_ID,
    COL_USER,
    COL_GROUP,
    COL_TYPE,
    COL_GPUS,
    COL_NODES,
    COL_STATUS,
    COL_SUBMIT,
    COL_START,
    COL_END,
    COL_DURATION,
    COL_INSTANCES,
    COL_PLAN_GPU,
    COL_GPU_TIME,
    COL_INST_ID,
    NCOLUMNS
};

static const struct {
    const char *name;
    enum column column;
} names[] = {{"job_id", COL_ID},          {"job_name", COL_ID},        {"user", COL_USER},
             {"vc", COL_GROUP},           {"type", COL_TYPE},          {"gpu_num", COL_GPUS},
             {"node_num", COL_NODES},     {"state", COL_STATUS},       {"status", COL_STATUS},
             {"submit_time", COL_SUBMIT}, {"start_time", COL_START},   {"end_time", COL_END},
             {"duration", COL_DURATION},  {"inst_num", COL_INSTANCES}, {"plan_gpu", COL_PLAN_GPU},
             {"gpu_time", COL_GPU_TIME},  {"inst_id", COL_INST_ID},    {"gpu_type", COL_TYPE}};

struct table {
    struct dtp_jobs *jobs;
    struct dtp_arena *a;
    enum dtp_job_source source;
    bool tasks;       /* of PAI: rows are tasks of jobs */
    int at[NCOLUMNS]; /* -1: no such column */
    size_t ncells;
};

static void take_header(struct table *t, char **cell, size_t n) {
    for (int c = 0; c < NCOLUMNS; c++)
        t->at[c] = -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strcmp(cell[i], names[k].name) == 0)
                t->at[names[k].column] = (int)i;
    t->ncells = n;
}

/* Files of PAI come without a header line (it lies in a file beside them). */
static bool take_pai(struct table *t, char **cell, size_t n) {
    static const char *const task[] = {"job_name",   "task_name", "inst_num", "status",
                                       "start_time", "end_time",  "plan_cpu", "plan_mem",
                                       "plan_gpu",   "gpu_type"};
    static const char *const job[] = {"job_name", "inst_id",    "user",
                                      "status",   "start_time", "end_time"};
    enum { NTASK = sizeof task / sizeof *task, NJOB = sizeof job / sizeof *job };
    if ((n != NTASK && n != NJOB) || jobs_status(cell[3]) == DTP_JOB_OTHER)
        return false;
    char *header[NTASK];
    for (size_t i = 0; i < n; i++)
        header[i] = dtp_arena_strdup(t->a, n == NTASK ? task[i] : job[i]);
    take_header(t, header, n);
    return true;
}

/* The kind of table, by its columns. *out_header: the line was the header. */
static enum dtp_status recognise(struct table *t, const char *file, char **cell, size_t n,
                                 bool *out_header, struct dtp_err *err) {
    take_header(t, cell, n < MOST_CELLS ? n : MOST_CELLS);
    *out_header = t->at[COL_ID] >= 0 && t->at[COL_STATUS] >= 0;
    if (!*out_header && (n > MOST_CELLS || !take_pai(t, cell, n)))
        return dtp_fail(
            err, DTP_EINPUT,
            "%s: no table of jobs that is known: the first line has %zu cells, "
            "\"%.60s\" first; expected columns of Helios, Acme or PAI, or Philly's JSON",
            file, n, cell[0]);
    t->tasks = t->at[COL_PLAN_GPU] >= 0;
    if (t->tasks || (t->at[COL_SUBMIT] < 0 && t->at[COL_INST_ID] >= 0))
        t->source = DTP_JOBS_PAI;
    else
        t->source = t->at[COL_GROUP] >= 0 ? DTP_JOBS_HELIOS : DTP_JOBS_ACME;
    t->jobs->tasks->has_jobs |= t->source == DTP_JOBS_PAI && !t->tasks;
    return DTP_OK;
}

bool dtp_jobs_detect(const char *line) {
    struct dtp_arena *a = dtp_arena_create("a line");
    struct dtp_jobs jobs;
    struct table t = {.jobs = &jobs, .a = a};
    char *cell[MOST_CELLS];
    bool header;
    dtp_jobs_init(a, &jobs);
    size_t n = dtp_line_cells(dtp_arena_strdup(a, line), cell, MOST_CELLS);
    bool found = recognise(&t, "", cell, n, &header, NULL) == DTP_OK;
    dtp_arena_destroy(a);
    return found;
}

static const char *text_at(const struct table *t, char **cell, enum column c) {
    return t->at[c] >= 0 ? cell[t->at[c]] : "";
}

/* A number that is finite and not negative; false where the cell is no number. Empty and NaN: unknown. */
static bool number_at(const struct table *t, char **cell, enum column c, double *out) {
    const char *text = text_at(t, cell, c);
    char *end;
    *out = DTP_JOB_UNKNOWN;
    if (!*text || strcasecmp(text, "nan") == 0 || strcasecmp(text, "none") == 0)
        return true;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0)
        return false;
    *out = v;
    return true;
}

static bool time_at(struct table *t, char **cell, enum column c, double *out_s) {
    bool zone;
    const char *text = text_at(t, cell, c);
    if (number_at(t, cell, c, out_s))
        return true;
    if (!dtp_parse_date(text, out_s, &zone) || *out_s < 0)
        return false;
    t->jobs->no_zone += !zone;
    return true;
}

static int count_of(double v) {
    return v > 0 && v < DTP_GIGA ? (int)v : 0;
}

static bool take_task(struct table *t, char **cell) {
    struct dtp_job_tasks *tasks = t->jobs->tasks;
    double n, percent, start_s, end_s;
    const char *name = text_at(t, cell, COL_ID);
    if (!*name || !number_at(t, cell, COL_INSTANCES, &n) ||
        !number_at(t, cell, COL_PLAN_GPU, &percent) || !time_at(t, cell, COL_START, &start_s) ||
        !time_at(t, cell, COL_END, &end_s))
        return false;
    uint32_t before = tasks->names->n, id = dtp_intern_add(tasks->names, name, strlen(name));
    tasks->task = dtp_arena_room(t->a, tasks->task, sizeof *tasks->task, id, &tasks->capacity);
    struct jobs_task *task = &tasks->task[id];
    if (id >= before)
        *task = (struct jobs_task){.start_s = start_s, .end_s = end_s, .run_s = DTP_JOB_UNKNOWN};
    double instances = n > 0 ? n : 1, percent_of_one = percent > 0 ? percent : 0;
    task->gpus += instances * percent_of_one / 100;
    task->nodes = count_of((double)task->nodes + count_of(instances));
    if (start_s >= 0 && (task->start_s < 0 || start_s < task->start_s))
        task->start_s = start_s;
    if (end_s > task->end_s)
        task->end_s = end_s;
    if (task->start_s >= 0 && task->end_s >= task->start_s)
        task->run_s = task->end_s - task->start_s;
    enum dtp_job_status status = jobs_status(text_at(t, cell, COL_STATUS));
    if (id >= before || status != DTP_JOB_COMPLETED) /* a job is complete when all its tasks are */
        task->status = status;
    return true;
}

static bool take_job(struct table *t, char **cell) {
    double submit_s, start_s, end_s, gpus, nodes, duration_s;
    if (!*text_at(t, cell, COL_ID) || !time_at(t, cell, COL_SUBMIT, &submit_s) ||
        !time_at(t, cell, COL_START, &start_s) || !time_at(t, cell, COL_END, &end_s) ||
        !number_at(t, cell, COL_GPUS, &gpus) || !number_at(t, cell, COL_NODES, &nodes) ||
        !number_at(t, cell, COL_DURATION, &duration_s))
        return false;
    struct dtp_job *job = jobs_add(t->a, t->jobs);
    job->id = dtp_arena_strdup(t->a, text_at(t, cell, COL_ID));
    job->user = dtp_intern_text(t->jobs->texts, text_at(t, cell, COL_USER));
    job->group = dtp_intern_text(t->jobs->texts, text_at(t, cell, COL_GROUP));
    job->type = dtp_intern_text(t->jobs->texts, text_at(t, cell, COL_TYPE));
    job->submit_s = submit_s;
    job->start_s = start_s;
    job->end_s = end_s;
    job->gpus = gpus;
    job->nodes = count_of(nodes);
    job->status = jobs_status(text_at(t, cell, COL_STATUS));
    job->source = t->source;
    if (t->source ==
        DTP_JOBS_PAI) { /* its job table has the submission, its tasks have the start */
        job->submit_s = start_s;
        job->start_s = DTP_JOB_UNKNOWN;
    } else if (duration_s >= 0 && start_s >= 0 && end_s >= 0) {
        t->jobs->bad_durations += fabs(end_s - start_s - duration_s) > 1;
    }
    return true;
}

enum dtp_status jobs_read_csv(struct dtp_arena *a, struct dtp_source *source, struct dtp_jobs *out,
                              struct dtp_err *err) {
    struct table t = {.jobs = out, .a = a};
    struct dtp_lines l;
    enum dtp_status status;
    char *line, *cell[MOST_CELLS];
    bool known = false, header = false;
    uint64_t rows = 0, taken = 0;
    dtp_lines_init(&l, a, source);
    while (dtp_lines_next(&l, &line, &status, err)) {
        if (!*line)
            continue;
        size_t n = dtp_line_cells(line, cell, MOST_CELLS);
        if (!known) {
            DTP_TRY(recognise(&t, dtp_source_name(source), cell, n, &header, err));
            known = true;
            if (header)
                continue;
        }
        rows++;
        bool good = n == t.ncells && (t.tasks ? take_task(&t, cell) : take_job(&t, cell));
        taken += good;
        if (!good)
            jobs_drop(out, l.number);
    }
    DTP_TRY(status);
    out->rows += rows;
    if (!known || (rows > 0 && taken == 0))
        return dtp_fail(err, DTP_EINPUT, "%s: %s", dtp_source_name(source),
                        known ? "no row of it is a job" : "an empty file");
    return DTP_OK;
}
