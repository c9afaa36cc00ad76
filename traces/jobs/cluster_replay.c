#include "traces/jobs/cluster_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/rng.h"
#include "sim/base/units.h"

const char *const dtp_job_size_words[] = {"parts of a node", "one node", "2 to 8 nodes",
                                          "more than 8"};

/* GPUs are counted in hundredths, since jobs may share one. */
enum { UNITS = 100, MOST_BACKFILL = 256 };

/* A job runs on whole nodes, and on a part of one more. */
struct placed {
    int *node; /* [nwhole] */
    int nwhole, rest_node, rest_units;
};

struct job {
    struct dtp_job_run *run;
    int64_t units;
    double wall_s;
    struct placed at;
};

struct state {
    struct dtp_arena *a;
    const struct dtp_cluster_replay_options *o;
    int *free, *later; /* [nodes] units free now; scratch */
    int full;          /* units of a node */
    struct job *job;   /* by submission */
    size_t njobs;
    size_t *running, nrunning; /* by end */
    size_t *queue, nqueue;     /* by submission */
    double now_s;
};

/* ---- placement ---- */

/* The node where the rest of a job leaves the least free, not one of those that are wholly taken. */
static int find_rest(const struct state *s, const int *free, int need) {
    int best = -1;
    for (int i = 0; i < s->o->nodes; i++)
        if (free[i] >= need && (best < 0 || free[i] < free[best]))
            best = i;
    return best;
}

/* Takes units of `free` for the job; false, and nothing taken, where it does not fit. */
static bool take(const struct state *s, int *free, int64_t units, struct placed *p) {
    p->nwhole = (int)(units / s->full);
    p->rest_units = (int)(units % s->full);
    p->rest_node = -1;
    int n = 0;
    for (int i = 0; i < s->o->nodes && n < p->nwhole; i++)
        if (free[i] == s->full) {
            free[i] = 0;
            p->node[n++] = i;
        }
    if (n == p->nwhole && p->rest_units > 0)
        p->rest_node = find_rest(s, free, p->rest_units);
    if (n == p->nwhole && (p->rest_units == 0 || p->rest_node >= 0)) {
        if (p->rest_node >= 0)
            free[p->rest_node] -= p->rest_units;
        return true;
    }
    for (int i = 0; i < n; i++)
        free[p->node[i]] = s->full;
    return false;
}

static void give_back(const struct state *s, int *free, const struct placed *p) {
    for (int i = 0; i < p->nwhole; i++)
        free[p->node[i]] = s->full;
    if (p->rest_node >= 0)
        free[p->rest_node] += p->rest_units;
}

/* ---- failures ---- */

/* The wall time of a job: its work, and for each failure what it lost and the restart. Work that is
 * checkpointed stays done. */
static void draw_failures(const struct state *s, struct job *j, double work_s, uint64_t entity) {
    struct dtp_rng r = dtp_rng_stream(s->o->seed, entity);
    double gpus = (double)j->units / UNITS;
    double mean_s = s->o->gpu_hours_per_failure * DTP_S_PER_HOUR / gpus;
    double done_s = 0, wall_s = 0;
    enum { MOST = 100000 };
    while (s->o->gpu_hours_per_failure > 0 && j->run->failures < MOST) {
        double until_s = -mean_s * log(1 - dtp_rng_uniform(&r));
        if (done_s + until_s >= work_s)
            break;
        double reached_s = done_s + until_s;
        double kept_s = s->o->checkpoint_s > 0
                            ? floor(reached_s / s->o->checkpoint_s) * s->o->checkpoint_s
                            : reached_s;
        kept_s = kept_s > done_s ? kept_s : done_s;
        wall_s += until_s + s->o->restart_s;
        j->run->lost_s += reached_s - kept_s + s->o->restart_s;
        j->run->failures++;
        done_s = kept_s;
    }
    j->wall_s = wall_s + work_s - done_s;
}

/* ---- the queue ---- */

static void start(struct state *s, size_t i) {
    struct job *j = &s->job[i];
    j->run->start_s = s->now_s;
    j->run->end_s = s->now_s + j->wall_s;
    size_t at = s->nrunning++;
    for (; at > 0 && s->job[s->running[at - 1]].run->end_s > j->run->end_s; at--)
        s->running[at] = s->running[at - 1];
    s->running[at] = i;
}

static void leave_queue(struct state *s, size_t at) {
    memmove(s->queue + at, s->queue + at + 1, (s->nqueue - at - 1) * sizeof *s->queue);
    s->nqueue--;
}

/* Tells whether the first job of the queue fits once all that end by then have ended. */
static bool fits_later(struct state *s, const int *free, double by_s) {
    struct job *head = &s->job[s->queue[0]];
    memcpy(s->later, free, (size_t)s->o->nodes * sizeof *free);
    for (size_t r = 0; r < s->nrunning && s->job[s->running[r]].run->end_s <= by_s; r++)
        give_back(s, s->later, &s->job[s->running[r]].at);
    return take(s, s->later, head->units, &head->at);
}

/* The earliest end after which the first of the queue fits. */
static double promised_s(struct state *s) {
    for (size_t r = 0; r < s->nrunning; r++) {
        double end_s = s->job[s->running[r]].run->end_s;
        if (fits_later(s, s->free, end_s))
            return end_s;
    }
    return INFINITY;
}

static void backfill(struct state *s) {
    double shadow_s = promised_s(s);
    for (size_t q = 1; q < s->nqueue && q < MOST_BACKFILL;) {
        struct job *j = &s->job[s->queue[q]];
        if (take(s, s->free, j->units, &j->at)) {
            if (s->now_s + j->wall_s <= shadow_s || fits_later(s, s->free, shadow_s)) {
                start(s, s->queue[q]);
                leave_queue(s, q);
                continue;
            }
            give_back(s, s->free, &j->at);
        }
        q++;
    }
}

static void schedule(struct state *s) {
    while (s->nqueue > 0) {
        struct job *j = &s->job[s->queue[0]];
        if (!take(s, s->free, j->units, &j->at))
            break;
        start(s, s->queue[0]);
        leave_queue(s, 0);
    }
    if (s->o->policy == DTP_QUEUE_BACKFILL && s->nqueue > 1)
        backfill(s);
}

static void end_jobs(struct state *s) {
    size_t n = 0;
    while (n < s->nrunning && s->job[s->running[n]].run->end_s <= s->now_s)
        give_back(s, s->free, &s->job[s->running[n++]].at);
    memmove(s->running, s->running + n, (s->nrunning - n) * sizeof *s->running);
    s->nrunning -= n;
}

static void run_all(struct state *s) {
    size_t next = 0;
    while (next < s->njobs || s->nrunning > 0) {
        double submit_s = next < s->njobs ? s->job[next].run->job->submit_s : (double)INFINITY;
        double end_s = s->nrunning > 0 ? s->job[s->running[0]].run->end_s : (double)INFINITY;
        s->now_s = submit_s < end_s ? submit_s : end_s;
        end_jobs(s);
        while (next < s->njobs && s->job[next].run->job->submit_s <= s->now_s)
            s->queue[s->nqueue++] = next++;
        schedule(s);
    }
}

/* ---- what is run ---- */

static struct dtp_job_speed speed_of(const struct state *s, double gpus) {
    return s->o->speed ? s->o->speed(s->o->speed_ctx, gpus) : (struct dtp_job_speed){1, 1};
}

static void take_jobs(struct state *s, const struct dtp_jobs *jobs,
                      struct dtp_cluster_replay *out) {
    out->run = DTP_NEW(s->a, struct dtp_job_run, jobs->n + 1);
    s->job = DTP_NEW(s->a, struct job, jobs->n + 1);
    double all_s = 0, too_large_s = 0; /* GPU time */
    for (size_t i = 0; i < jobs->n; i++) {
        const struct dtp_job *job = &jobs->job[i];
        double units = job->gpus * UNITS;
        if (!(job->gpus > 0) || job->run_s < 0 || job->submit_s < 0) {
            out->unknown++;
            continue;
        }
        all_s += job->gpus * job->run_s;
        if (units > (double)s->full * s->o->nodes) {
            out->too_large++;
            too_large_s += job->gpus * job->run_s;
            continue;
        }
        struct job *j = &s->job[s->njobs++];
        *j = (struct job){.run = &out->run[out->n++], .units = (int64_t)(units + 0.5)};
        j->units = j->units > 0 ? j->units : 1;
        j->run->job = job;
        j->at.node = DTP_NEW(s->a, int, (size_t)(j->units / s->full) + 1);
        draw_failures(s, j, job->run_s * speed_of(s, job->gpus).time_factor, i);
    }
    out->too_large_share = all_s > 0 ? too_large_s / all_s : 0;
}

static int by_submission(const void *x, const void *y) {
    const struct job *p = x, *q = y;
    double a = p->run->job->submit_s, b = q->run->job->submit_s;
    if (a != b)
        return a < b ? -1 : 1;
    return p->run < q->run ? -1 : p->run > q->run;
}

/* ---- figures ---- */

/* The smallest value that is not below the share of all. */
static double quantile(const double *v, size_t n, double share) {
    size_t at = n > 0 ? (size_t)ceil(share * (double)n) : 0;
    return n > 0 ? v[at > 0 ? at - 1 : 0] : 0;
}

static int size_of(const struct state *s, const struct job *j) {
    int64_t nodes = j->units / s->full;
    return j->units < s->full ? 0 : nodes <= 1 ? 1 : nodes <= 8 ? 2 : 3;
}

static void summarise(struct state *s, struct dtp_cluster_replay *out) {
    double first_s = INFINITY, last_s = -INFINITY, allocated_s = 0, good_s = 0, recorded_s = 0;
    double *wait = DTP_NEW(s->a, double, s->njobs + 1);
    uint64_t nrecorded = 0;
    for (size_t i = 0; i < s->njobs; i++) {
        const struct job *j = &s->job[i];
        struct dtp_job_run *r = j->run;
        double gpus = (double)j->units / UNITS;
        r->wait_s = wait[i] = r->start_s - r->job->submit_s;
        first_s = r->job->submit_s < first_s ? r->job->submit_s : first_s;
        last_s = r->end_s > last_s ? r->end_s : last_s;
        allocated_s += gpus * j->wall_s;
        good_s += gpus * (j->wall_s - r->lost_s) * speed_of(s, r->job->gpus).efficiency;
        out->failures += (uint64_t)r->failures;
        out->lost_gpu_s += gpus * r->lost_s;
        out->wait_mean_s += wait[i];
        struct dtp_job_size *size = &out->size[size_of(s, j)];
        size->n++;
        size->wait_s += wait[i];
        size->gpu_s += gpus * j->wall_s;
        if (r->job->start_s >= r->job->submit_s) {
            recorded_s += r->job->start_s - r->job->submit_s;
            nrecorded++;
        }
    }
    qsort(wait, s->njobs, sizeof *wait, dtp_order_double);
    out->span_s = last_s - first_s;
    double capacity_s = (double)s->o->nodes * s->o->gpus_per_node * out->span_s;
    out->utilisation = capacity_s > 0 ? allocated_s / capacity_s : 0;
    out->goodput = capacity_s > 0 ? good_s / capacity_s : 0;
    out->wait_mean_s /= (double)s->njobs;
    out->wait_median_s = quantile(wait, s->njobs, 0.5);
    out->wait_p90_s = quantile(wait, s->njobs, 0.9);
    out->wait_p99_s = quantile(wait, s->njobs, 0.99);
    out->recorded_wait_s = nrecorded > 0 ? recorded_s / (double)nrecorded : DTP_JOB_UNKNOWN;
    for (int i = 0; i < DTP_JOB_SIZES; i++)
        if (out->size[i].n > 0)
            out->size[i].wait_s /= (double)out->size[i].n;
}

enum dtp_status dtp_cluster_replay(struct dtp_arena *a, const struct dtp_jobs *jobs,
                                   const struct dtp_cluster_replay_options *options,
                                   struct dtp_cluster_replay *out, struct dtp_err *err) {
    struct state s = {.a = a, .o = options, .full = options->gpus_per_node * UNITS};
    *out = (struct dtp_cluster_replay){0};
    if (options->nodes < 1 || options->gpus_per_node < 1)
        return dtp_fail(err, DTP_EUSAGE, "a cluster needs nodes and GPUs in them");
    s.free = DTP_NEW(a, int, (size_t)options->nodes);
    s.later = DTP_NEW(a, int, (size_t)options->nodes);
    for (int i = 0; i < options->nodes; i++)
        s.free[i] = s.full;
    if (jobs->n == 0)
        return dtp_fail(err, DTP_EINPUT, "no job in the trace");
    take_jobs(&s, jobs, out);
    if (s.njobs == 0)
        return dtp_fail(err, DTP_ENO,
                        "no job of the trace can run: %llu lack GPUs or times, %llu are too large",
                        (unsigned long long)out->unknown, (unsigned long long)out->too_large);
    qsort(s.job, s.njobs, sizeof *s.job, by_submission);
    s.running = DTP_NEW(a, size_t, s.njobs);
    s.queue = DTP_NEW(a, size_t, s.njobs);
    run_all(&s);
    summarise(&s, out);
    return DTP_OK;
}
