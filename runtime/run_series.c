/* Forked ranks that train one plan after another. Rank 0 appends each result to an open file without a
 * name; the process that forked reads it as soon as the board says that it is there. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "runtime/rank.h"
#include "runtime/run.h"

struct job {
    struct dtp_arena *a;
    const struct dtp_run_series *s;
    size_t first, end;  /* plans of these processes */
    size_t told;        /* the next that done() is called for */
    atomic_size_t *ran; /* shared: plans before this one have their result in the file */
    struct dtp_comm_config config;
    void *shared;
    FILE *result;
    off_t read_bytes; /* of the file, so far */
};

/* ---- results ---- */

static bool put(FILE *f, const void *x, size_t size, size_t n) {
    return fwrite(x, size, n, f) == n;
}

static bool write_result(FILE *f, const struct dtp_run_result *x) {
    size_t steps = (size_t)x->steps, ranks = (size_t)x->nranks;
    return put(f, x, sizeof *x, 1) && put(f, x->loss, sizeof *x->loss, steps) &&
           put(f, x->step_s_each, sizeof *x->step_s_each, steps) &&
           put(f, x->peak_bytes, sizeof *x->peak_bytes, ranks) &&
           put(f, x->peak_by_class, sizeof *x->peak_by_class, ranks) &&
           put(f, x->event, sizeof *x->event, x->nevents) && fflush(f) == 0;
}

/* Without moving the position, which the rank that writes shares. */
static bool get(struct job *job, void *out, size_t bytes) {
    char *to = out;
    while (bytes > 0) {
        ssize_t n = pread(fileno(job->result), to, bytes, job->read_bytes);
        if (n <= 0)
            return false;
        to += n;
        bytes -= (size_t)n;
        job->read_bytes += n;
    }
    return true;
}

static void *get_list(struct job *job, size_t size, size_t n, bool *good) {
    void *x = dtp_arena_alloc(job->a, size, n);
    *good = *good && get(job, x, size * n);
    return x;
}

static bool read_result(struct job *job, struct dtp_run_result *out) {
    bool good = get(job, out, sizeof *out);
    size_t steps = good ? (size_t)out->steps : 0, ranks = good ? (size_t)out->nranks : 0;
    out->loss = get_list(job, sizeof *out->loss, steps, &good);
    out->step_s_each = get_list(job, sizeof *out->step_s_each, steps, &good);
    out->peak_bytes = get_list(job, sizeof *out->peak_bytes, ranks, &good);
    out->peak_by_class = get_list(job, sizeof *out->peak_by_class, ranks, &good);
    out->event = get_list(job, sizeof *out->event, good ? out->nevents : 0, &good);
    return good;
}

/* Every result that has come since the last call. */
static void tell(void *context) {
    struct job *job = context;
    for (size_t ran = atomic_load(job->ran); job->told < ran; job->told++) {
        struct dtp_run_result r;
        struct dtp_err err = {0};
        if (read_result(job, &r)) {
            dtp_run_summarise(job->a, &job->s->options[job->told], &r);
            job->s->done(job->s->context, job->told, &r, NULL);
            continue;
        }
        (void)dtp_fail(&err, DTP_ENO, "rank 0 left no result");
        job->s->done(job->s->context, job->told, NULL, &err);
    }
}

/* ---- ranks ---- */

/* One plan; device and communicators are taken from `kept` and stay there. */
static enum dtp_status train_one(struct job *job, size_t i, struct dtp_rank *kept, int rank) {
    const struct dtp_run_options *o = &job->s->options[i];
    struct dtp_arena *a = dtp_arena_create("plan");
    struct dtp_run_result result = {0};
    struct dtp_rank *r = DTP_NEW(a, struct dtp_rank, 1);
    *r = *kept;
    r->arena = a;
    r->o = o;
    enum dtp_status status = dtp_rank_run(r, job->shared, NULL, &result);
    kept->ops = r->ops;
    kept->dev = r->dev;
    kept->host = r->host;
    kept->comm = r->comm;
    kept->cops = r->cops;
    if (status == DTP_OK && rank == 0 && !write_result(job->result, &result))
        status = dtp_fail(r->err, DTP_ENO, "cannot write the result to a temporary file");
    if (status == DTP_OK && i + 1 < job->end)
        status = dtp_rank_clear(r);
    dtp_arena_destroy(a);
    if (status == DTP_OK && rank == 0)
        atomic_store(job->ran, i + 1);
    return status;
}

static enum dtp_status forked_rank(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    const struct dtp_run_options *o = &job->s->options[job->first];
    struct dtp_arena *home = dtp_arena_create("rank");
    struct dtp_rank *kept = DTP_NEW(home, struct dtp_rank, 1);
    *kept = (struct dtp_rank){.home = home,
                              .rank = o->shadow_cluster ? o->shadow_rank : rank,
                              .comm_config = o->shadow_cluster ? NULL : &job->config,
                              .err = err};
    enum dtp_status status = DTP_OK;
    for (size_t i = job->first; status == DTP_OK && i < job->end; i++)
        status = train_one(job, i, kept, rank);
    dtp_rank_close(kept);
    dtp_arena_destroy(home);
    return status;
}

/* ---- the processes ---- */

static bool same_processes(const struct dtp_run_options *a, const struct dtp_run_options *b) {
    return !a->shadow_cluster && !b->shadow_cluster && strcmp(a->backend, b->backend) == 0 &&
           a->plan.dtype == b->plan.dtype && a->memory_bytes == b->memory_bytes &&
           a->plan.tp * a->plan.pp * a->plan.dp == b->plan.tp * b->plan.pp * b->plan.dp;
}

/* Room for any of the plans first .. end - 1. */
static enum dtp_status join_configs(struct job *job, struct dtp_err *err) {
    for (size_t i = job->first; i < job->end; i++) {
        const struct dtp_run_options *o = &job->s->options[i];
        struct dtp_schedule schedule;
        DTP_TRY(dtp_run_schedule(job->a, &o->plan, &schedule, err));
        struct dtp_comm_config c = dtp_rank_comm_config(o, &schedule), *all = &job->config;
        if (i == job->first)
            *all = c;
        all->message_bytes =
            c.message_bytes > all->message_bytes ? c.message_bytes : all->message_bytes;
        all->nmessages = c.nmessages > all->nmessages ? c.nmessages : all->nmessages;
        if (o->shadow_cluster) /* one process, and a board for its failures */
            all->size = all->local_size = 1;
    }
    return DTP_OK;
}

/* The plans from job->first on, as far as one set of processes gets; *err: why it ended. */
static enum dtp_status run_processes(struct job *job, struct dtp_err *err) {
    const double grace_s = 1;
    DTP_TRY(join_configs(job, err));
    DTP_TRY(dtp_comm_shm_map(&job->config, &job->shared, err));
    const struct dtp_fork f = {.nranks = job->config.size,
                               .run = forked_rank,
                               .context = job,
                               .shared = job->shared,
                               .grace_s = grace_s,
                               .poll = tell};
    enum dtp_status status = dtp_launch_fork(&f, err);
    dtp_comm_shm_unmap(&job->config, job->shared);
    tell(job);
    return status;
}

/* Past the plans that the processes of job->first can also run. */
static size_t end_of_processes(const struct job *job) {
    const struct dtp_run_options *o = job->s->options;
    size_t end = job->first + 1;
    while (end < job->s->n && same_processes(&o[job->first], &o[end]) &&
           dtp_run_check(&o[end], NULL) == DTP_OK)
        end++;
    return end;
}

/* Plans from job->told on; *failure: of the one at which it ended. */
static enum dtp_status run_some(struct job *job, struct dtp_err *failure) {
    DTP_TRY(dtp_run_check(&job->s->options[job->told], failure));
    job->first = job->told;
    job->end = end_of_processes(job);
    atomic_store(job->ran, job->first);
    job->result = tmpfile();
    job->read_bytes = 0;
    if (!job->result)
        return dtp_fail(failure, DTP_ENO, "cannot make a temporary file for the result");
    enum dtp_status status = run_processes(job, failure);
    fclose(job->result);
    if (status == DTP_OK && job->told < job->end)
        return dtp_fail(failure, DTP_ENO, "the ranks ended without a result");
    return status;
}

enum dtp_status dtp_run_series(struct dtp_arena *a, const struct dtp_run_series *s,
                               struct dtp_err *err) {
    struct job job = {.a = a, .s = s, .ran = dtp_os_map(sizeof *job.ran, true)};
    if (!job.ran)
        return dtp_fail(err, DTP_ENOMEM, "cannot map memory for the progress of a series");
    while (job.told < s->n) {
        struct dtp_err failure = {0};
        if (run_some(&job, &failure) != DTP_OK && job.told < s->n)
            s->done(s->context, job.told++, NULL, &failure);
    }
    munmap(job.ran, sizeof *job.ran);
    return DTP_OK;
}
