#include "traces/jobs/jobs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/base/units.h"
#include "traces/formats/lines.h"
#include "traces/formats/pull.h"
#include "traces/formats/visit.h"
#include "traces/formats/format.h"
#include "sim/base/stats.h"
#include "sim/base/text.h"
#include "traces/catalog.h"

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

static const char *const job_status_name[DTP_NJOB_STATUSES] = {
    "completed", "failed", "cancelled", "timeout", "unfinished", "other"};
static const char *const job_source_name[DTP_NJOB_SOURCES] = {"philly", "helios", "acme", "pai"};

static struct dtp_job *add(struct dtp_arena *a, struct dtp_jobs *jobs) {
    jobs->job = dtp_arena_room(a, jobs->job, sizeof *jobs->job, jobs->n, &jobs->capacity);
    struct dtp_job *job = &jobs->job[jobs->n++];
    *job = (struct dtp_job){.id = "", .user = "", .group = "", .type = "", .attempts = 1};
    job->submit_s = job->start_s = job->end_s = job->run_s = job->gpus = DTP_JOB_UNKNOWN;
    job->status = DTP_JOB_OTHER;
    return job;
}

static void drop(struct dtp_jobs *jobs, uint64_t line) {
    if (jobs->dropped++ == 0)
        jobs->dropped_line = line;
}

static enum dtp_job_status jobs_status(const char *word) {
    static const struct {
        const char *word;
        enum dtp_job_status status;
    } words[] = {{"Pass", DTP_JOB_COMPLETED},       {"COMPLETED", DTP_JOB_COMPLETED},
                 {"Terminated", DTP_JOB_COMPLETED}, {"Failed", DTP_JOB_FAILED},
                 {"NODE_FAIL", DTP_JOB_FAILED},     {"OUT_OF_MEMORY", DTP_JOB_FAILED},
                 {"Killed", DTP_JOB_CANCELLED},     {"CANCELLED", DTP_JOB_CANCELLED},
                 {"TIMEOUT", DTP_JOB_TIMEOUT},      {"Running", DTP_JOB_UNFINISHED},
                 {"Waiting", DTP_JOB_UNFINISHED},   {"PENDING", DTP_JOB_UNFINISHED}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(word, words[i].word) == 0)
            return words[i].status;
    return DTP_JOB_OTHER;
}

/* ---- dates ---- */

/* Reads n digits at *at as a number; *at moves past them and past the separator, if it is there. */
static bool take_digits(const char **at, int n, const char *separators, int *out) {
    *out = 0;
    for (int i = 0; i < n; i++, ++*at) {
        if (!isdigit((unsigned char)**at))
            return false;
        *out = *out * 10 + (**at - '0');
    }
    if (!*separators)
        return true;
    if (!**at || !strchr(separators, **at))
        return false;
    ++*at;
    return true;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar: years begin in March, so that the leap day
 * is the last, and 400 years have 146097 days. */
static int64_t days_of(int year, int month, int day) {
    int64_t y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool take_zone(const char *at, int *out_minutes, bool *out_zone) {
    int h, m;
    *out_minutes = 0;
    *out_zone = *at != '\0';
    if (*at == '\0' || strcmp(at, "Z") == 0)
        return true;
    bool minus = *at == '-';
    if (*at != '+' && *at != '-')
        return false;
    at++;
    if (!take_digits(&at, 2, "", &h))
        return false;
    at += *at == ':';
    if (!take_digits(&at, 2, "", &m) || *at)
        return false;
    *out_minutes = (minus ? -1 : 1) * (h * 60 + m);
    return true;
}

bool dtp_parse_date(const char *text, double *out_s, bool *out_zone) {
    int year, month, day, h, m, s, zone;
    double fraction = 0;
    const char *at = text;
    if (!take_digits(&at, 4, "-/", &year) || !take_digits(&at, 2, "-/", &month) ||
        !take_digits(&at, 2, " T", &day) || !take_digits(&at, 2, ":", &h) ||
        !take_digits(&at, 2, ":", &m) || !take_digits(&at, 2, "", &s))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > 31 || h > 24 || m > 59 || s > 60)
        return false;
    if (*at == '.') {
        double place = 1;
        for (at++; isdigit((unsigned char)*at); at++)
            fraction += (*at - '0') * (place /= 10);
    }
    if (!take_zone(at, &zone, out_zone))
        return false;
    *out_s = (double)days_of(year, month, day) * DTP_S_PER_DAY + h * DTP_S_PER_HOUR +
             (m - zone) * DTP_S_PER_MINUTE + s + fraction;
    return true;
}

/* ---- reading ---- */

/* ---- Helios, Acme, PAI: CSV ---- */

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
    bool tasks;       /* PAI's rows are tasks of jobs */
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

/* Files of PAI come without a header line (it lies in another file of the folder). */
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

/* Tells whether the first line of a text is that of a table of jobs: a header, or a row of PAI. */
static bool is_table(const char *line) {
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
    struct dtp_job *job = add(t->a, t->jobs);
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

static enum dtp_status read_csv(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_jobs *out, struct dtp_err *err) {
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
            drop(out, l.number);
    }
    DTP_TRY(status);
    out->rows += rows;
    if (!known || (rows > 0 && taken == 0))
        return dtp_fail(err, DTP_EINPUT, "%s: %s", dtp_source_name(source),
                        known ? "no row of it is a job" : "an empty file");
    return DTP_OK;
}

/* ---- Philly: JSON ---- */

enum { MOST_NODES = 1 << 24 };

struct attempt {
    double start_s, end_s;
    uint64_t gpus;
    int nodes;
};

struct reader {
    struct dtp_pull p;
    struct dtp_arena *a;
    struct dtp_jobs *jobs;
};

/* The scalar as a date. "None", null and what is no date: unknown. */
static enum dtp_status take_time(struct reader *r, double *out_s, struct dtp_err *err) {
    struct dtp_text t;
    char text[48];
    bool zone;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    snprintf(text, sizeof text, "%.*s", (int)(t.n < sizeof text ? t.n : sizeof text - 1), t.at);
    if (!dtp_parse_date(text, out_s, &zone) || *out_s < 0)
        *out_s = DTP_JOB_UNKNOWN;
    else
        r->jobs->no_zone += !zone;
    return DTP_OK;
}

static enum dtp_status take_kept(struct reader *r, const char **out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    uint32_t id = dtp_intern_add(r->jobs->texts, t.at, t.n);
    *out = r->jobs->texts->at[id];
    return DTP_OK;
}

/* Whether the next value is null, which is taken then. */
static enum dtp_status take_null(struct reader *r, bool *out, struct dtp_err *err) {
    char c;
    struct dtp_text t;
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    *out = c == 'n';
    return *out ? dtp_pull_text(&r->p, &t, err) : DTP_OK;
}

static enum dtp_status take_node(struct reader *r, struct attempt *out, struct dtp_err *err) {
    struct dtp_text key;
    bool none;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        bool gpus = dtp_text_is(&key, "gpus");
        DTP_TRY(take_null(r, &none, err));
        if (none)
            continue;
        if (!gpus) {
            DTP_TRY(dtp_pull_skip(&r->p, err));
            continue;
        }
        DTP_TRY(dtp_pull_open(&r->p, '[', err));
        while (dtp_pull_element(&r->p, &status, err)) {
            DTP_TRY(dtp_pull_skip(&r->p, err));
            out->gpus++;
        }
        DTP_TRY(status);
    }
    return status;
}

static enum dtp_status take_nodes(struct reader *r, struct attempt *out, struct dtp_err *err) {
    bool none;
    enum dtp_status status;
    DTP_TRY(take_null(r, &none, err));
    if (none)
        return DTP_OK;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        DTP_TRY(take_node(r, out, err));
        out->nodes += out->nodes < MOST_NODES;
    }
    return status;
}

static enum dtp_status take_attempt(struct reader *r, struct attempt *out, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    *out = (struct attempt){DTP_JOB_UNKNOWN, DTP_JOB_UNKNOWN, 0, 0};
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "start_time"))
            DTP_TRY(take_time(r, &out->start_s, err));
        else if (dtp_text_is(&key, "end_time"))
            DTP_TRY(take_time(r, &out->end_s, err));
        else if (dtp_text_is(&key, "detail"))
            DTP_TRY(take_nodes(r, out, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}

/* From the start of the first attempt to the end of the last; as many GPUs as the largest had. */
static void add_attempt(struct dtp_job *job, const struct attempt *at) {
    job->attempts++;
    if (job->start_s < 0)
        job->start_s = at->start_s;
    job->end_s = at->end_s;
    if ((double)at->gpus > job->gpus)
        job->gpus = (double)at->gpus;
    if (at->nodes > job->nodes)
        job->nodes = at->nodes;
    if (at->start_s >= 0 && at->end_s >= at->start_s)
        job->run_s = (job->run_s > 0 ? job->run_s : 0) + at->end_s - at->start_s;
}

static enum dtp_status take_attempts(struct reader *r, struct dtp_job *job, struct dtp_err *err) {
    bool none;
    enum dtp_status status;
    DTP_TRY(take_null(r, &none, err));
    if (none)
        return DTP_OK;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        struct attempt at;
        DTP_TRY(take_attempt(r, &at, err));
        add_attempt(job, &at);
    }
    return status;
}

static enum dtp_status take_member(struct reader *r, const struct dtp_text *key,
                                   struct dtp_job *job, struct dtp_err *err) {
    const char *text;
    if (dtp_text_is(key, "jobid"))
        return take_kept(r, &job->id, err);
    if (dtp_text_is(key, "user"))
        return take_kept(r, &job->user, err);
    if (dtp_text_is(key, "vc"))
        return take_kept(r, &job->group, err);
    if (dtp_text_is(key, "submitted_time"))
        return take_time(r, &job->submit_s, err);
    if (dtp_text_is(key, "attempts"))
        return take_attempts(r, job, err);
    if (!dtp_text_is(key, "status"))
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(take_kept(r, &text, err));
    job->status = jobs_status(text);
    return DTP_OK;
}

static enum dtp_status take_philly_job(struct reader *r, struct dtp_err *err) {
    struct dtp_job *job = add(r->a, r->jobs);
    struct dtp_text key;
    enum dtp_status status;
    job->source = DTP_JOBS_PHILLY;
    job->attempts = 0;
    r->jobs->rows++;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_member(r, &key, job, err));
    DTP_TRY(status);
    if (*job->id && (job->submit_s >= 0 || job->attempts > 0))
        return DTP_OK;
    drop(r->jobs, r->jobs->rows);
    r->jobs->n--;
    return DTP_OK;
}

static enum dtp_status read_philly(struct dtp_arena *a, struct dtp_source *source,
                                   struct dtp_jobs *out, struct dtp_err *err) {
    struct reader r = {.a = a, .jobs = out};
    enum dtp_status status;
    char c;
    size_t before = out->n;
    dtp_pull_init(&r.p, a, source);
    DTP_TRY(dtp_pull_open(&r.p, '[', err));
    while (dtp_pull_element(&r.p, &status, err))
        DTP_TRY(take_philly_job(&r, err));
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r.p, &c, err));
    if (c)
        return dtp_pull_fail(&r.p, err, "found text after the array");
    if (out->n == before)
        return dtp_fail(err, DTP_EINPUT, "%s: no job of Philly in it", dtp_source_name(source));
    return DTP_OK;
}

/* ---- tables together ---- */

void dtp_jobs_init(struct dtp_arena *a, struct dtp_jobs *out) {
    *out = (struct dtp_jobs){.texts = dtp_intern_create(a)};
    out->tasks = DTP_NEW(a, struct dtp_job_tasks, 1);
    out->tasks->names = dtp_intern_create(a);
}

enum dtp_status dtp_jobs_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_jobs *out,
                              struct dtp_err *err) {
    const unsigned char *head;
    size_t n, i = 0;
    DTP_TRY(dtp_source_peek(source, &head, &n, err));
    while (i < n && isspace(head[i]))
        i++;
    if (i < n && (head[i] == '[' || head[i] == '{'))
        return read_philly(a, source, out, err);
    return read_csv(a, source, out, err);
}

struct load {
    struct dtp_arena *a;
    struct dtp_jobs *jobs;
};

static enum dtp_status load_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    struct load *l = ctx;
    return dtp_jobs_read(l->a, v->source, l->jobs, err);
}

/* Jobs of which only tasks are known (pai_task_table alone). */
static void jobs_of_tasks(struct dtp_arena *a, struct dtp_jobs *jobs) {
    const struct dtp_job_tasks *t = jobs->tasks;
    for (uint32_t i = 0; i < t->names->n; i++) {
        struct dtp_job *job = add(a, jobs);
        job->id = t->names->at[i];
        job->source = DTP_JOBS_PAI;
        job->submit_s = job->start_s = t->task[i].start_s;
        job->end_s = t->task[i].end_s;
        job->run_s = t->task[i].run_s;
        job->gpus = t->task[i].gpus;
        job->nodes = t->task[i].nodes;
        job->status = t->task[i].status;
    }
}

static void join_tasks(struct dtp_arena *a, struct dtp_jobs *jobs) {
    struct dtp_job_tasks *t = jobs->tasks;
    if (!t->has_jobs) {
        jobs_of_tasks(a, jobs);
        return;
    }
    uint32_t known = t->names->n;
    for (size_t i = 0; i < jobs->n; i++) {
        struct dtp_job *job = &jobs->job[i];
        if (job->source != DTP_JOBS_PAI)
            continue;
        uint32_t id = dtp_intern_add(t->names, job->id, strlen(job->id));
        if (id >= known) {
            jobs->no_tasks++;
            continue;
        }
        job->gpus = t->task[id].gpus;
        job->nodes = t->task[id].nodes;
        job->start_s = t->task[id].start_s;
        job->run_s = t->task[id].run_s;
    }
}

static bool known(double t_s) {
    return t_s > DTP_JOB_UNKNOWN;
}

static void check_times(struct dtp_jobs *jobs) {
    for (size_t i = 0; i < jobs->n; i++) {
        struct dtp_job *job = &jobs->job[i];
        bool late_start =
            known(job->start_s) && known(job->submit_s) && job->start_s < job->submit_s;
        bool late_end = known(job->start_s) && known(job->end_s) && job->end_s < job->start_s;
        jobs->bad_times += late_start || late_end;
        if (known(job->run_s) || !known(job->start_s) || !known(job->end_s) || late_end)
            continue;
        job->run_s = job->end_s - job->start_s;
    }
}

static int by_submission(const void *x, const void *y) {
    const struct dtp_job *p = x, *q = y;
    if (p->submit_s < q->submit_s || p->submit_s > q->submit_s)
        return p->submit_s < q->submit_s ? -1 : 1;
    return strcmp(p->id, q->id);
}

void dtp_jobs_finish(struct dtp_arena *a, struct dtp_jobs *jobs) {
    join_tasks(a, jobs);
    check_times(jobs);
    if (jobs->n > 0)
        qsort(jobs->job, jobs->n, sizeof *jobs->job, by_submission);
}

enum dtp_status dtp_jobs_load(struct dtp_arena *a, const char *const *paths, size_t npaths,
                              struct dtp_jobs *out, struct dtp_err *err) {
    struct load l = {a, out};
    dtp_jobs_init(a, out);
    for (size_t i = 0; i < npaths; i++)
        DTP_TRY(dtp_visit(a, paths[i], load_one, &l, err));
    dtp_jobs_finish(a, out);
    return DTP_OK;
}

/* ---- the rows of the formats ---- */

enum { TEXT = 32 };

static bool is_philly(const struct dtp_format_head *h) {
    return dtp_head_json(h) == '[' &&
           (dtp_head_has_key(h, 2, "jobid") || dtp_head_has_key(h, 2, "attempts"));
}

static bool is_jobs_csv(const struct dtp_format_head *h) {
    char line[1024];
    return dtp_head_is_text(h) && !dtp_head_json(h) && dtp_head_line(h, 0, line, sizeof line) &&
           is_table(line);
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_jobs *jobs = *content;
    if (!jobs) {
        *content = jobs = DTP_NEW(a, struct dtp_jobs, 1);
        dtp_jobs_init(a, jobs);
    }
    return dtp_jobs_read(a, v->source, jobs, err);
}

static enum dtp_status finish(struct dtp_arena *a, void *content, struct dtp_err *err) {
    (void)err;
    dtp_jobs_finish(a, content);
    return DTP_OK;
}

/* Median and 95th percentile of values that are known. */
static void print_spread(struct dtp_arena *a, FILE *f, const char *what,
                         const struct dtp_jobs *jobs, double (*of)(const struct dtp_job *)) {
    double *v = DTP_NEW(a, double, jobs->n + 1);
    size_t n = 0;
    char mid[TEXT], high[TEXT];
    for (size_t i = 0; i < jobs->n; i++) {
        double x = of(&jobs->job[i]);
        if (x >= 0)
            v[n++] = x;
    }
    if (n == 0)
        return;
    double median = dtp_median_high(v, n); /* sorts */
    fprintf(f, "  %s: median %s, 95 %% below %s (%zu jobs)\n", what,
            dtp_fmt_time(median, mid, TEXT), dtp_fmt_time(v[n * 95 / 100], high, TEXT), n);
}

static double queue_s(const struct dtp_job *j) {
    return j->submit_s >= 0 && j->start_s >= j->submit_s ? j->start_s - j->submit_s : -1;
}

static double run_s(const struct dtp_job *j) {
    return j->run_s;
}

void dtp_jobs_print_warnings(FILE *f, const struct dtp_jobs *jobs) {
    const struct {
        uint64_t n;
        const char *text;
    } notes[] = {{jobs->bad_times, "jobs that end before they start or start before they are sent"},
                 {jobs->bad_durations, "rows whose duration is not end less start"},
                 {jobs->no_zone, "times without a zone, taken as UTC"},
                 {jobs->no_tasks, "jobs without a row in the table of tasks"}};
    if (jobs->dropped > 0)
        fprintf(f,
                "  warning: %llu of %llu rows are no job (the first in line %llu): %.1f %% of the "
                "rows, "
                "and of the GPU-hours if they are like the others\n",
                (unsigned long long)jobs->dropped, (unsigned long long)jobs->rows,
                (unsigned long long)jobs->dropped_line,
                100 * (double)jobs->dropped / (double)jobs->rows);
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (notes[i].n > 0)
            fprintf(f, "  warning: %llu %s\n", (unsigned long long)notes[i].n, notes[i].text);
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    const struct dtp_jobs *jobs = item->content;
    uint64_t by_status[DTP_NJOB_STATUSES] = {0};
    double gpu_s = 0, most = 0, first = -1, last = -1;
    char span[TEXT];
    for (size_t i = 0; i < jobs->n; i++) {
        const struct dtp_job *j = &jobs->job[i];
        by_status[j->status]++;
        if (j->gpus > 0 && j->run_s > 0)
            gpu_s += j->gpus * j->run_s;
        most = j->gpus > most ? j->gpus : most;
        if (j->submit_s >= 0 && (first < 0 || j->submit_s < first))
            first = j->submit_s;
        last = j->end_s > last ? j->end_s : last;
    }
    fprintf(f, "  %zu jobs of %s", jobs->n,
            jobs->n > 0 ? job_source_name[jobs->job[0].source] : "no source");
    if (first >= 0 && last > first)
        fprintf(f, " over %s", dtp_fmt_time(last - first, span, TEXT));
    fprintf(f, ", %.1f GPU hours, the largest on %.0f GPUs\n ", gpu_s / DTP_S_PER_HOUR, most);
    for (int s = 0; s < DTP_NJOB_STATUSES; s++)
        if (by_status[s] > 0)
            fprintf(f, " %llu %s", (unsigned long long)by_status[s], job_status_name[s]);
    fprintf(f, "\n");
    print_spread(a, f, "run time", jobs, run_s);
    print_spread(a, f, "time in the queue", jobs, queue_s);
    dtp_jobs_print_warnings(f, jobs);
    fprintf(f, "  on another cluster or queue:  dtplan jobs %s%s --nodes N\n", item->name,
            item->nfiles > 1 ? " ..." : "");
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_jobs *jobs = item->content;
    uint64_t by_status[DTP_NJOB_STATUSES] = {0};
    double gpu_s = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        by_status[jobs->job[i].status]++;
        if (jobs->job[i].gpus > 0 && jobs->job[i].run_s > 0)
            gpu_s += jobs->job[i].gpus * jobs->job[i].run_s;
    }
    dtp_json_kv_u64(w, "jobs", jobs->n);
    dtp_json_kv_u64(w, "dropped_rows", jobs->dropped);
    dtp_json_kv_double(w, "gpu_s", gpu_s);
    dtp_json_put_key(w, "by_status");
    dtp_json_object(w);
    for (int s = 0; s < DTP_NJOB_STATUSES; s++)
        dtp_json_kv_u64(w, job_status_name[s], by_status[s]);
    dtp_json_end(w);
}

const struct dtp_format dtp_format_philly = {.name = "philly",
                                             .title = "Philly job log, JSON",
                                             .told = "an array with jobid, attempts",
                                             .kind = DTP_KIND_JOBS,
                                             .joins = "jobs",
                                             .detect = is_philly,
                                             .read = read_item,
                                             .finish = finish,
                                             .print = print_item,
                                             .json = write_item};

const struct dtp_format dtp_format_jobs_csv = {.name = "jobs",
                                               .title = "Helios, Acme or PAI jobs, CSV",
                                               .told =
                                                   "header job_id or job_name, ..., or PAI's rows",
                                               .kind = DTP_KIND_JOBS,
                                               .joins = "jobs",
                                               .detect = is_jobs_csv,
                                               .read = read_item,
                                               .finish = finish,
                                               .print = print_item,
                                               .json = write_item};
