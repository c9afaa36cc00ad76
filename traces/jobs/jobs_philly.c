/* jobs_philly.c: Philly's log: an array of jobs, each with its attempts and, per attempt, its GPUs by
 * node. An attempt without times still runs; a job without attempts never started. */
#include <stdio.h>
#include <string.h>

#include "traces/jobs/jobs_private.h"
#include "traces/formats/pull.h"

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

static enum dtp_status take_job(struct reader *r, struct dtp_err *err) {
    struct dtp_job *job = jobs_add(r->a, r->jobs);
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
    jobs_drop(r->jobs, r->jobs->rows);
    r->jobs->n--;
    return DTP_OK;
}

enum dtp_status jobs_read_philly(struct dtp_arena *a, struct dtp_source *source,
                                 struct dtp_jobs *out, struct dtp_err *err) {
    struct reader r = {.a = a, .jobs = out};
    enum dtp_status status;
    char c;
    size_t before = out->n;
    dtp_pull_init(&r.p, a, source);
    DTP_TRY(dtp_pull_open(&r.p, '[', err));
    while (dtp_pull_element(&r.p, &status, err))
        DTP_TRY(take_job(&r, err));
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r.p, &c, err));
    if (c)
        return dtp_pull_fail(&r.p, err, "found text after the array");
    if (out->n == before)
        return dtp_fail(err, DTP_EINPUT, "%s: no job of Philly in it", dtp_source_name(source));
    return DTP_OK;
}
