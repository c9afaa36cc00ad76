/* A run: its checks, its ranks, its results. dtp_run_series() trains one plan after another with the same processes:
 * rank 0 appends each result to an open file without a name, and the process that forked reads it as soon as the
 * board says that it is there. */
#include "runtime/run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device/graphs.h"
#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "runtime/rank.h"
#include "sim/base/stats.h"

struct dtp_run_options dtp_run_options_default(void) {
    return (struct dtp_run_options){.plan = dtp_plan_default(),
                                    .backend = "cpu",
                                    .steps = 10,
                                    .lr = 0.001,
                                    .min_lr = 0.0001,
                                    .warmup_steps = 2,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .epsilon = 1e-8,
                                    .weight_decay = 0.1,
                                    .clip_norm = 1,
                                    .timeout_s = 60,
                                    .prefetch_units = 1,
                                    .pin = true};
}

int dtp_run_warm_up(const struct dtp_run_options *o) {
    enum { FIRST = 1, AND_GRAPHS = 2 };
    return strcmp(o->backend, "cpu") == 0 ? FIRST : AND_GRAPHS;
}

const char *dtp_run_stream_name(int stream) {
    return stream >= 0 && stream < DTP_NSTREAMS ? dtp_stream_names[stream] : "?";
}

/* ---- what it refuses ---- */

static enum dtp_status check_plan(const struct dtp_run_options *o, struct dtp_err *err) {
    const struct dtp_plan *p = &o->plan;
    const struct dtp_model *m = o->model;
    const struct {
        bool bad;
        const char *why;
    } rule[] = {
        {p->tp < 1 || p->pp < 1 || p->dp < 1 || p->vpp < 1, "degrees must be 1 or more"},
        {m->heads % p->tp != 0, dtp_reasons[DTP_WHY_HEADS]},
        {m->kv_heads % p->tp != 0 && p->tp % m->kv_heads != 0, dtp_reasons[DTP_WHY_KV_HEADS]},
        {m->ffn % p->tp != 0, dtp_reasons[DTP_WHY_FFN]},
        {m->hidden % p->tp != 0, dtp_reasons[DTP_WHY_HIDDEN]},
        {p->pp * p->vpp > m->layers, dtp_reasons[DTP_WHY_LAYERS]},
        {p->microbatch_size < 1 || p->global_batch_size < 1 ||
             p->global_batch_size % (p->microbatch_size * p->dp) != 0,
         dtp_reasons[DTP_WHY_BATCH]},
        {p->microbatch_size > 0 && p->dp > 0 && dtp_plan_num_microbatches(p) > DTP_MAX_MICROBATCHES,
         dtp_reasons[DTP_WHY_MICROBATCHES]},
        {p->sequence_parallel && p->tp == 1, dtp_reasons[DTP_WHY_SP_TP1]},
        {p->sequence_parallel && o->seq % p->tp != 0, dtp_reasons[DTP_WHY_SEQ_TP]},
        {p->zero_stage > 0 && p->dp < 2, dtp_reasons[DTP_WHY_ZERO_DP1]},
        {p->pp == 1 && (p->vpp > 1 || p->schedule != dtp_schedule_usual(1)),
         dtp_reasons[DTP_WHY_PP1]},
    };
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++)
        if (rule[i].bad)
            return dtp_fail(err, DTP_EINPUT, "this plan cannot run: %s", rule[i].why);
    return DTP_OK;
}

static enum dtp_status check_layers(const struct dtp_run_options *o, struct dtp_err *err) {
    const struct dtp_plan *p = &o->plan;
    int n = p->pp * p->vpp, sum = 0;
    if (p->layers_per_stage.at && p->layers_per_stage.n != (size_t)n)
        return dtp_fail(err, DTP_EINPUT, "this plan cannot run: %s",
                        dtp_reasons[DTP_WHY_LAYER_SUM]);
    for (int vs = 0; vs < n; vs++) {
        int layers = dtp_plan_layers(p, o->model, vs);
        sum += layers > 0 ? layers : o->model->layers + 1;
    }
    if (sum != o->model->layers)
        return dtp_fail(err, DTP_EINPUT, "this plan cannot run: %s",
                        dtp_reasons[DTP_WHY_LAYER_SUM]);
    return DTP_OK;
}

static enum dtp_status check_support(const struct dtp_run_options *o, struct dtp_err *err) {
    const struct dtp_plan *p = &o->plan;
    if (p->cp > 1 || p->ep > 1)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the runtime has no %s parallelism (%s %d)",
                        p->cp > 1 ? "context" : "expert", p->cp > 1 ? "cp" : "ep",
                        p->cp > 1 ? p->cp : p->ep);
    if (p->offload != DTP_OFFLOAD_NONE)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the runtime does not offload");
    if (dtp_plan_modules(p) & ~DTP_BIT_CORE_ATTN)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "the runtime recomputes the attention core or whole layers, not the "
                        "recompute_modules of the plan");
    if (strcmp(o->backend, "cpu") == 0 && p->dtype != DTP_FP32)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "the cpu backend computes in fp32, the plan asks for "
                        "%s: give --dtype fp32",
                        dtp_dtype_names[p->dtype]);
    return dtp_layout_supports(o->model, err);
}

enum dtp_status dtp_run_check(const struct dtp_run_options *o, struct dtp_err *err) {
    const struct dtp_plan *p = &o->plan;
    const struct dtp_model *m = o->model;
    if (o->steps < 1 || o->seq < 1)
        return dtp_fail(err, DTP_EINPUT, "a run needs 1 step or more (%d) of 1 token or more (%d)",
                        o->steps, o->seq);
    int exponent;
    if (o->loss_scale < 0 || (o->loss_scale > 0 && frexp(o->loss_scale, &exponent) != 0.5))
        return dtp_fail(err, DTP_EINPUT, "loss scale %g: expected a power of two", o->loss_scale);
    if (!(o->dropout >= 0 && o->dropout < 1 && o->attention_dropout >= 0 &&
          o->attention_dropout < 1))
        return dtp_fail(err, DTP_EINPUT, "dropout %g, of the attention %g: expected 0 to below 1",
                        o->dropout, o->attention_dropout);
    DTP_TRY(check_support(o, err));
    DTP_TRY(check_plan(o, err));
    DTP_TRY(check_layers(o, err));
    const char *why =
        dtp_schedule_applies(p->schedule, p->pp, p->vpp, dtp_plan_num_microbatches(p));
    if (p->pp > 1 && why)
        return dtp_fail(err, DTP_EINPUT, "this plan cannot run: %s: %s",
                        dtp_schedule_names[p->schedule], why);
    int num_microbatches = dtp_plan_num_microbatches(p);
    int held = dtp_schedule_sends_held(p->schedule, p->pp, num_microbatches);
    if (held > DTP_MOST_SENT)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "this plan cannot run: %s holds %d sent tensors with %d microbatches, at "
                        "most %d can be",
                        dtp_schedule_names[p->schedule], held, num_microbatches, DTP_MOST_SENT);
    int positions = m->max_positions > 0 ? m->max_positions : m->seq;
    if (m->position == DTP_POS_LEARNED && o->seq > positions)
        return dtp_fail(err, DTP_EINPUT, "sequences of %d, the model has %d positions", o->seq,
                        positions);
    int size = p->tp * p->dp * p->pp;
    if (o->shadow_cluster && (o->shadow_rank < 0 || o->shadow_rank >= size))
        return dtp_fail(err, DTP_EINPUT, "rank %d of %d", o->shadow_rank, size);
    if (o->shadow_cluster && (o->save || o->resume || o->weights || o->save_weights))
        return dtp_fail(err, DTP_EUNSUPPORTED, "a shadow rank has no checkpoints or weights");
    const struct dtp_dev_ops *ops;
    return dtp_dev_find(o->backend, &ops, err);
}

/* ---- results: gathered at rank 0 ---- */

static void run_summarise(struct dtp_arena *a, const struct dtp_run_options *o,
                          struct dtp_run_result *out) {
    int warm = dtp_run_warm_up(o), skip = out->steps > warm ? warm : out->steps - 1;
    int n = out->steps - skip;
    double *sorted = DTP_NEW(a, double, (size_t)(n > 0 ? n : 1));
    if (n < 1)
        return;
    memcpy(sorted, out->step_s_each + skip, (size_t)n * sizeof *sorted);
    out->step_s = dtp_median(sorted, (size_t)n);
    out->best_step_s = sorted[0];
    out->tokens_per_s = (double)o->plan.global_batch_size * o->seq / out->step_s;
}

/* Bytes of every rank at rank 0 (at all: it is small), n multiple of 4. */
static enum dtp_status gather_bytes(struct dtp_rank *r, void *out, const void *in, size_t bytes) {
    return r->host->ops->all_gather(r->host_world, DTP_STREAM_COMPUTE, out, in,
                                    (int64_t)(bytes / sizeof(float)), DTP_FP32, r->err);
}

static enum dtp_status gather_events(struct dtp_rank *r, struct dtp_run_result *out) {
    struct dtp_arena *a = r->arena;
    size_t size = (size_t)r->host_world->size, most = 0, total = 0;
    uint64_t mine = (uint64_t)r->nevents, *count = DTP_NEW(a, uint64_t, size);
    DTP_TRY(gather_bytes(r, count, &mine, sizeof mine));
    for (size_t i = 0; i < size; i++) {
        most = count[i] > most ? (size_t)count[i] : most;
        total += (size_t)count[i];
    }
    struct dtp_run_event *all = DTP_NEW(a, struct dtp_run_event, size * most);
    DTP_TRY(gather_bytes(r, all, r->event, most * sizeof *all));
    out->event = DTP_NEW(a, struct dtp_run_event, total);
    out->nevents = 0;
    for (size_t i = 0; i < size; i++)
        for (size_t k = 0; k < count[i]; k++)
            out->event[out->nevents++] = all[i * most + k];
    return DTP_OK;
}

static enum dtp_status gather_result(struct dtp_rank *r, struct dtp_run_result *out) {
    struct dtp_heap_stats stats;
    dtp_heap_stats(r->dev->heap, &stats);
    size_t size = (size_t)r->host_world->size; /* 1 of a shadow job */
    out->is_root = r->rank == 0 || r->o->shadow_cluster;
    out->nranks = (int)size;
    out->peak_bytes = DTP_NEW(r->arena, uint64_t, size);
    out->peak_by_class = dtp_arena_alloc(r->arena, sizeof *out->peak_by_class, size);
    r->host->ops->doing(r->host, "the end of the run");
    DTP_TRY(gather_bytes(r, out->peak_bytes, &stats.peak_bytes, sizeof stats.peak_bytes));
    DTP_TRY(gather_bytes(r, out->peak_by_class, stats.at_peak, sizeof stats.at_peak));
    return gather_events(r, out);
}

/* ---- one rank ---- */

static enum dtp_status maybe_save(struct dtp_rank *r, int done) {
    const struct dtp_run_options *o = r->o;
    bool now = done == o->steps || (o->save_every > 0 && done % o->save_every == 0);
    return o->save && now ? dtp_checkpoint_save(r, done) : DTP_OK;
}

/* Clock and power of the device over some steps. */
struct meter {
    double energy_j, clock_hz;
    int64_t start_ns, host_ns;
    int steps;
};

static double energy_j(const struct dtp_rank *r) {
    struct dtp_dev_load now = {0};
    if (r->ops->load)
        r->ops->load(r->dev, &now);
    return now.energy_j;
}

static struct meter start_meter(const struct dtp_rank *r) {
    return (struct meter){.energy_j = energy_j(r), .start_ns = dtp_os_now_ns()};
}

static void read_meter(const struct dtp_rank *r, const struct meter *m,
                       struct dtp_run_result *out) {
    double used_j = energy_j(r) - m->energy_j;
    double all_s = (double)(dtp_os_now_ns() - m->start_ns) / (double)DTP_NS_PER_S;
    out->clock_hz = m->clock_hz / m->steps;
    out->power_w = used_j > 0 ? used_j / all_s : 0;
    out->host_s = (double)m->host_ns / (double)DTP_NS_PER_S / m->steps;
    out->overhead_bytes = r->ops->overhead_bytes(r->dev);
    struct dtp_graphs_stats graphs;
    dtp_graphs_stats(r->dev, &graphs);
    out->graphs = graphs.graphs;
    out->graph_kernels = graphs.kernels;
    out->graph_share = graphs.ops > 0 ? (double)graphs.replayed / (double)graphs.ops : 0;
}

/* Ranks of several hosts may have read different folders. */
static enum dtp_status check_first(struct dtp_rank *r, int first) {
    int32_t mine = first, *all = DTP_NEW(r->arena, int32_t, (size_t)r->size);
    if (!r->o->resume)
        return DTP_OK;
    DTP_TRY(gather_bytes(r, all, &mine, sizeof mine));
    for (int i = 1; i < r->size; i++)
        if (all[i] != all[0])
            return dtp_fail(r->err, DTP_EINPUT, "rank 0 resumes from step %d, rank %d from step %d",
                            (int)all[0], i, (int)all[i]);
    return DTP_OK;
}

static enum dtp_status train(struct dtp_rank *r, struct dtp_run_result *out) {
    const struct dtp_run_options *o = r->o;
    int first = 0;
    DTP_TRY(dtp_checkpoint_prepare(r));
    DTP_TRY(dtp_weights_save_begin(r));
    if (o->resume)
        DTP_TRY(dtp_checkpoint_load(r, &first));
    DTP_TRY(check_first(r, first));
    if (first >= o->steps)
        return dtp_fail(r->err, DTP_EINPUT,
                        "the checkpoint in %s is of step %d, the run ends at %d", o->resume, first,
                        o->steps);
    out->first_step = r->first_step = first;
    out->steps = o->steps - first;
    out->loss = DTP_NEW(r->arena, double, (size_t)out->steps);
    out->step_s_each = DTP_NEW(r->arena, double, (size_t)out->steps);
    dtp_heap_reset_peak(r->dev->heap);
    struct meter meter = {0};
    for (int i = 0; i < out->steps; i++) {
        if (i == 0 || i == dtp_run_warm_up(o))
            meter = start_meter(r);
        r->step = first + i;
        DTP_TRY(dtp_rank_step(r, &out->loss[i], &out->step_s_each[i]));
        if (o->progress && (r->rank == 0 || o->shadow_cluster))
            o->progress(o->progress_context, r->step, out->loss[i], out->step_s_each[i]);
        meter.clock_hz += r->clock_hz;
        meter.host_ns += r->host_ns;
        meter.steps++;
        DTP_TRY(maybe_save(r, r->step + 1));
    }
    DTP_TRY(dtp_weights_save(r));
    read_meter(r, &meter, out);
    out->loss_scale = r->loss_scale.scale;
    out->skipped_steps = r->loss_scale.skipped;
    return gather_result(r, out);
}

/* Opens the plan and trains; a failure is told to all ranks (run.c). */
static enum dtp_status rank_run(struct dtp_rank *r, void *shared, const struct dtp_endpoint *e,
                                struct dtp_run_result *out) {
    char where[64];
    int64_t start_ns = dtp_os_now_ns();
    enum dtp_status status = dtp_rank_open(r, shared, e);
    out->open_s = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    snprintf(where, sizeof where, "rank %d in its start", r->rank);
    if (status != DTP_OK && strncmp(r->err->msg, "rank ", strlen("rank ")) != 0)
        dtp_err_prefix(r->err, where);
    if (status == DTP_OK)
        status = train(r, out);
    dtp_checkpoint_release(r);
    if (status != DTP_OK && r->host)
        r->host->ops->abort(r->host, r->err->msg);
    return status;
}

/* ---- the job ---- */

static enum dtp_status run_launched(struct dtp_arena *a, const struct dtp_run_options *o,
                                    struct dtp_endpoint *e, struct dtp_run_result *out,
                                    struct dtp_err *err) {
    int size = o->plan.tp * o->plan.dp * o->plan.pp;
    bool met = false;
    e->timeout_s = o->timeout_s;
    /* cppcheck-suppress autoVariables ; it is taken back below */
    e->met = &met;
    struct dtp_rank *r = DTP_NEW(a, struct dtp_rank, 1);
    *r = (struct dtp_rank){.arena = a, .o = o, .rank = e->rank, .err = err};
    enum dtp_status status = dtp_run_check(o, err);
    if (status == DTP_OK && e->size != size)
        status = dtp_fail(err, DTP_EINPUT, "%s started %d ranks, the plan has %d", e->launcher,
                          e->size, size);
    if (status == DTP_OK)
        status = rank_run(r, NULL, e, out);
    e->met = NULL;
    if (status != DTP_OK && !met)
        dtp_rendezvous_fail(e, err);
    dtp_rank_close(r);
    return status;
}

/* The only one of its series. */
struct alone {
    struct dtp_arena *a;
    struct dtp_run_result *out;
    struct dtp_err *err;
    enum dtp_status status;
};

static void alone_done(void *context, size_t i, const struct dtp_run_result *r,
                       const struct dtp_err *failure) {
    struct alone *x = context;
    (void)i;
    x->status = failure ? failure->status : DTP_OK;
    if (failure)
        *x->err = *failure;
    else
        *x->out = *r;
}

static enum dtp_status run_alone(struct dtp_arena *a, const struct dtp_run_options *o,
                                 struct dtp_run_result *out, struct dtp_err *err) {
    struct alone x = {.a = a, .out = out, .err = err};
    const struct dtp_run_series series = {.options = o, .n = 1, .done = alone_done, .context = &x};
    DTP_TRY(dtp_run_series(a, &series, err));
    return x.status;
}

enum dtp_status dtp_run(struct dtp_arena *a, const struct dtp_run_options *o,
                        struct dtp_run_result *out, struct dtp_err *err) {
    struct dtp_endpoint e;
    struct dtp_err local = {0};
    bool launched;
    *out = (struct dtp_run_result){0};
    err = err ? err : &local;
    DTP_TRY(dtp_launch_environment(a, &launched, &e, err));
    if (launched && !o->shadow_cluster) {
        DTP_TRY(run_launched(a, o, &e, out, err));
    } else {
        DTP_TRY(dtp_run_check(o, err));
        DTP_TRY(run_alone(a, o, out, err));
    }
    run_summarise(a, o, out);
    return DTP_OK;
}

/* ---- a series of plans ---- */

struct job {
    struct dtp_arena *a;
    const struct dtp_run_series *s;
    size_t first, end;  /* plans of these processes */
    size_t told;        /* the next that done() is called for */
    atomic_size_t *ran; /* shared: plans before this one have their result in the file */
    struct dtp_comm_config config;
    void *shared;
    FILE *result;
    off_t read_bytes; /* bytes of the file, so far */
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
            run_summarise(job->a, &job->s->options[job->told], &r);
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
    enum dtp_status status = rank_run(r, job->shared, NULL, &result);
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
