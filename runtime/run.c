/* A run: checks, ranks, results. */
#include "runtime/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/graphs.h"
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
    if (o->shadow_cluster && (o->save || o->resume))
        return dtp_fail(err, DTP_EUNSUPPORTED, "a shadow rank has no checkpoints");
    const struct dtp_dev_ops *ops;
    return dtp_dev_find(o->backend, &ops, err);
}

/* ---- results: gathered at rank 0 ---- */

void dtp_run_summarise(struct dtp_arena *a, const struct dtp_run_options *o,
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

static enum dtp_status train(struct dtp_rank *r, struct dtp_run_result *out) {
    const struct dtp_run_options *o = r->o;
    int first = 0;
    DTP_TRY(dtp_checkpoint_prepare(r));
    if (o->resume)
        DTP_TRY(dtp_checkpoint_load(r, &first));
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
    read_meter(r, &meter, out);
    out->loss_scale = r->loss_scale.scale;
    out->skipped_steps = r->loss_scale.skipped;
    return gather_result(r, out);
}

enum dtp_status dtp_rank_run(struct dtp_rank *r, void *shared, const struct dtp_endpoint *e,
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
    if (status != DTP_OK && r->host)
        r->host->ops->abort(r->host, r->err->msg);
    return status;
}

/* ---- the job ---- */

static enum dtp_status run_launched(struct dtp_arena *a, const struct dtp_run_options *o,
                                    struct dtp_endpoint *e, struct dtp_run_result *out,
                                    struct dtp_err *err) {
    int size = o->plan.tp * o->plan.dp * o->plan.pp;
    if (e->size != size)
        return dtp_fail(err, DTP_EINPUT, "%s started %d ranks, the plan has %d", e->launcher,
                        e->size, size);
    e->timeout_s = o->timeout_s;
    struct dtp_rank *r = DTP_NEW(a, struct dtp_rank, 1);
    *r = (struct dtp_rank){.arena = a, .o = o, .rank = e->rank, .err = err};
    enum dtp_status status = dtp_rank_run(r, NULL, e, out);
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
    DTP_TRY(dtp_run_check(o, err));
    DTP_TRY(dtp_launch_environment(a, &launched, &e, err));
    DTP_TRY(launched && !o->shadow_cluster ? run_launched(a, o, &e, out, err)
                                           : run_alone(a, o, out, err));
    dtp_run_summarise(a, o, out);
    return DTP_OK;
}
