#include "traces/jobs/jobs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/base/units.h"
#include "traces/jobs/jobs_private.h"
#include "traces/formats/visit.h"

const char *const dtp_job_status_name[DTP_NJOB_STATUSES] = {"completed", "failed",     "cancelled",
                                                            "timeout",   "unfinished", "other"};
const char *const dtp_job_source_name[DTP_NJOB_SOURCES] = {"philly", "helios", "acme", "pai"};

struct dtp_job *jobs_add(struct dtp_arena *a, struct dtp_jobs *jobs) {
    jobs->job = dtp_arena_room(a, jobs->job, sizeof *jobs->job, jobs->n, &jobs->capacity);
    struct dtp_job *job = &jobs->job[jobs->n++];
    *job = (struct dtp_job){.id = "", .user = "", .group = "", .type = "", .attempts = 1};
    job->submit_s = job->start_s = job->end_s = job->run_s = job->gpus = DTP_JOB_UNKNOWN;
    job->status = DTP_JOB_OTHER;
    return job;
}

void jobs_drop(struct dtp_jobs *jobs, uint64_t line) {
    if (jobs->dropped++ == 0)
        jobs->dropped_line = line;
}

enum dtp_job_status jobs_status(const char *word) {
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

/* n digits at *at as a number; *at moves behind them and behind the separator, if it is there. */
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
        return jobs_read_philly(a, source, out, err);
    return jobs_read_csv(a, source, out, err);
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
        struct dtp_job *job = jobs_add(a, jobs);
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
