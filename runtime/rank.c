/* A rank: its memory, the order of its streams and its trace; how it opens (device, communicators, groups, tensors)
 * and closes; what it tells of a step. */
#include "runtime/rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/device/graphs.h"
#include "runtime/facts.h"
#include "runtime/os_linux.h"
#include "runtime/transformer/transformer.h"

static enum dtp_status take(struct dtp_rank *r, enum dtp_mem class, const char *name,
                            uint64_t bytes, void **out) {
    *out = dtp_heap_alloc(r->dev->heap, class, name, bytes);
    return *out ? DTP_OK : dtp_heap_fail(r->dev->heap, name, bytes, r->err);
}

enum dtp_status dtp_take(struct dtp_rank *r, enum dtp_mem class, const char *name, int64_t n,
                         void **out) {
    return take(r, class, name, (uint64_t)n * (uint64_t)dtp_dtype_bytes(r->dev->dtype), out);
}

enum dtp_status dtp_take_floats(struct dtp_rank *r, enum dtp_mem class, const char *name, int64_t n,
                                float **out) {
    void *p;
    DTP_TRY(take(r, class, name, (uint64_t)n * sizeof(float), &p));
    *out = p;
    return DTP_OK;
}

void dtp_give(struct dtp_rank *r, void *p) {
    dtp_heap_release(r->dev->heap, p);
}

static int new_event(struct dtp_rank *r) {
    r->next_event = (r->next_event + 1) % DTP_NEW_EVENTS;
    return r->next_event;
}

/* ---- what was sent ---- */

enum dtp_status dtp_wait_event(struct dtp_rank *r, int event) {
    enum { LOOK_EVERY = 1024 };
    int64_t start_ns = dtp_os_now_ns();
    int64_t most_ns = (int64_t)(r->o->timeout_s / 4 * (double)DTP_NS_PER_S);
    enum dtp_status status = DTP_OK;
    for (int i = 1; status == DTP_OK && !r->ops->event_done(r->dev, event); i++) {
        if (i % LOOK_EVERY == 0 && r->dev->waiting)
            r->dev->waiting(r->dev->listener);
        if (dtp_os_now_ns() - start_ns <= most_ns)
            continue;
        r->ops->sync(r->dev);
        status = r->ops->check(r->dev, r->err);
        break;
    }
    r->host_ns -= dtp_os_now_ns() - start_ns;
    return status;
}

/* Fewer would let some order of actions wait for itself (models/schedule.h); more only take memory: what a
 * send waits for is then received, or the receiver is behind and is what the step waits for. */
enum dtp_status dtp_give_sent(struct dtp_rank *r, int direction, int most) {
    struct dtp_sent *s = &r->sent[direction];
    for (; s->n > most; s->n--, s->first = (s->first + 1) % DTP_MOST_SENT) {
        DTP_TRY(dtp_wait_event(r, dtp_event_sent(direction, s->first)));
        dtp_give(r, s->tensor[s->first]);
    }
    return DTP_OK;
}

void dtp_hold_sent(struct dtp_rank *r, int direction, void *tensor) {
    struct dtp_sent *s = &r->sent[direction];
    int at = (s->first + s->n++) % DTP_MOST_SENT;
    r->ops->event_record(r->dev, direction == 0 ? DTP_STREAM_SEND_F : DTP_STREAM_SEND_B,
                         dtp_event_sent(direction, at));
    s->tensor[at] = tensor;
}

int dtp_record(struct dtp_rank *r, enum dtp_stream stream) {
    int event = new_event(r);
    r->ops->event_record(r->dev, stream, event);
    return event;
}

void dtp_order(struct dtp_rank *r, enum dtp_stream stream, enum dtp_stream after) {
    int event = new_event(r);
    r->ops->event_record(r->dev, after, event);
    r->ops->event_wait(r->dev, stream, event);
}

/* Collectives of tensor parallelism are a lane of the trace, but no stream. */
static enum dtp_stream stream_of(enum dtp_stream lane) {
    return lane == DTP_STREAM_TP ? DTP_STREAM_COMPUTE : lane;
}

int dtp_trace_begin(struct dtp_rank *r, enum dtp_stream stream, const char *name) {
    if (r->nevents >= r->max_events)
        return -1;
    int i = r->nevents++;
    struct dtp_run_event *e = &r->event[i];
    *e = (struct dtp_run_event){.rank = r->rank, .step = r->step, .stream = (int)stream};
    snprintf(e->name, sizeof e->name, "%s", name);
    r->ops->mark(r->dev, stream_of(stream), 2 * i);
    return i;
}

int dtp_trace_begin_part(struct dtp_rank *r, enum dtp_stream stream, const char *name) {
    return dtp_graphs_keep(r->dev) ? -1 : dtp_trace_begin(r, stream, name);
}

void dtp_trace_end(struct dtp_rank *r, int event) {
    if (event >= 0)
        r->ops->mark(r->dev, stream_of((enum dtp_stream)r->event[event].stream), 2 * event + 1);
}

/* ---- opening ---- */

enum { MAX_EVENTS = DTP_DEV_MARKS / 2 };

/* The group of ranks that differ from this one in the coordinates given as free; NULL when alone. */
static enum dtp_status open_group(struct dtp_rank *r, enum dtp_group_kind kind, const int *ranks,
                                  int n, struct dtp_comm_group **out) {
    *out = NULL;
    return n > 1 ? r->cops->group(r->arena, r->comm, kind, ranks, n, out, r->err) : DTP_OK;
}

enum dtp_status dtp_rank_open_stages(struct dtp_rank *r, const int *ranks) {
    const struct dtp_plan *p = r->plan;
    struct dtp_comm_group *stages;
    bool ring = false, against = false;
    for (int vs = 0; vs + 1 < p->pp * p->vpp; vs++) {
        int from, to, chunk;
        dtp_schedule_holder(r->schedule.kind, p->pp, p->vpp, vs, &from, &chunk);
        dtp_schedule_holder(r->schedule.kind, p->pp, p->vpp, vs + 1, &to, &chunk);
        bool round = from == p->pp - 1 && to == 0;
        ring |= round;
        against |= to < from && !round;
    }
    DTP_TRY(open_group(r, DTP_GROUP_PP, ranks, p->pp, &stages));
    if (ring)
        DTP_TRY(open_group(r, DTP_GROUP_PP_RING, ranks, p->pp, &stages));
    if (against)
        DTP_TRY(open_group(r, DTP_GROUP_PP_AGAINST, ranks, p->pp, &stages));
    return DTP_OK;
}

static enum dtp_status open_groups(struct dtp_rank *r) {
    const struct dtp_plan *p = r->plan;
    const struct dtp_layout *l = &r->layout;
    int *ranks = DTP_NEW(r->arena, int, (size_t)r->size), n = 0;
    for (int i = 0; i < r->size; i++)
        ranks[i] = i;
    DTP_TRY(r->host->ops->group(r->arena, r->host, DTP_GROUP_WORLD, ranks, r->size, &r->host_world,
                                r->err));
    r->world = r->host_world;
    if (r->comm != r->host)
        DTP_TRY(
            r->cops->group(r->arena, r->comm, DTP_GROUP_WORLD, ranks, r->size, &r->world, r->err));
    for (int t = 0; t < p->tp; t++)
        ranks[t] = dtp_layout_rank(p, t, l->dp_rank, l->pp_rank);
    DTP_TRY(open_group(r, DTP_GROUP_TP, ranks, p->tp, &r->tp));
    for (int d = 0; d < p->dp; d++)
        ranks[d] = dtp_layout_rank(p, l->tp_rank, d, l->pp_rank);
    DTP_TRY(open_group(r, DTP_GROUP_DP, ranks, p->dp, &r->dp));
    for (int i = 0; i < p->pp; i++)
        ranks[i] = dtp_layout_rank(p, l->tp_rank, l->dp_rank, i);
    DTP_TRY(dtp_rank_open_stages(r, ranks));
    int copies = r->dims.kv_copies, first = l->tp_rank / copies * copies;
    for (int t = 0; t < copies; t++)
        ranks[t] = dtp_layout_rank(p, first + t, l->dp_rank, l->pp_rank);
    DTP_TRY(open_group(r, DTP_GROUP_KV, ranks, copies, &r->kv));
    int last, chunk;
    dtp_schedule_holder(p->schedule, p->pp, p->vpp, p->pp * p->vpp - 1, &last, &chunk);
    if (r->model->tied_embeddings && (l->pp_rank == 0 || l->pp_rank == last)) {
        ranks[n++] = dtp_layout_rank(p, l->tp_rank, l->dp_rank, 0);
        ranks[n++] = dtp_layout_rank(p, l->tp_rank, l->dp_rank, last);
    }
    DTP_TRY(open_group(r, DTP_GROUP_EMBEDDING, ranks, last > 0 ? n : 0, &r->embedding));
    return r->cops->join ? r->cops->join(r->comm, r->err) : DTP_OK;
}

static enum dtp_status open_shadow(struct dtp_rank *r, struct dtp_comm_config *config) {
    struct dtp_shadow *job = DTP_NEW(r->home, struct dtp_shadow, 1);
    *job = (struct dtp_shadow){.cluster = r->o->shadow_cluster, .plan = r->plan};
    DTP_TRY(dtp_comm_find("shadow", &r->cops, r->err));
    DTP_TRY(r->cops->open(r->home, config, &r->host, r->err));
    config->shadow = job;
    DTP_TRY(r->cops->open(r->home, config, &r->comm, r->err));
    r->dev->comm = r->comm;
    return DTP_OK;
}

/* Fills the memory with numbers, since what it holds stands for data that would come from other ranks. */
static enum dtp_status fill_memory(struct dtp_rank *r) {
    struct dtp_heap_stats stats;
    dtp_heap_stats(r->dev->heap, &stats);
    void *all = dtp_heap_alloc(r->dev->heap, DTP_MEM_BUFFERS, "all memory", stats.size_bytes);
    if (!all)
        return dtp_heap_fail(r->dev->heap, "all memory", stats.size_bytes, r->err);
    r->ops->fill(r->dev, all, stats.size_bytes);
    r->ops->sync(r->dev);
    dtp_give(r, all);
    return DTP_OK;
}

static enum dtp_status open_comm(struct dtp_rank *r, void *shared,
                                 const struct dtp_endpoint *endpoint) {
    struct dtp_comm_config config =
        r->comm_config ? *r->comm_config : dtp_rank_comm_config(r->o, &r->schedule);
    const struct dtp_comm_ops *host;
    const char *name = "shm";
    config.rank = r->rank;
    config.local_rank = endpoint ? endpoint->local_rank : r->rank;
    config.local_size = endpoint ? endpoint->local_size : r->size;
    config.shared = shared;
    config.endpoint = endpoint;
    config.device = r->dev;
    if (r->o->shadow_cluster)
        return open_shadow(r, &config);
    if (endpoint && endpoint->local_size < endpoint->size)
        name = "tcp";
    DTP_TRY(dtp_comm_find(name, &host, r->err));
    DTP_TRY(host->open(r->home, &config, &r->host, r->err));
    r->comm = r->host;
    r->cops = host;
    if (strcmp(r->ops->name, "cuda") == 0) {
        config.host = r->host;
        DTP_TRY(dtp_comm_find("nccl", &r->cops, r->err));
        DTP_TRY(r->cops->open(r->home, &config, &r->comm, r->err));
    }
    r->dev->comm = r->comm;
    return DTP_OK;
}

static enum dtp_status open_device(struct dtp_rank *r, const struct dtp_endpoint *endpoint) {
    const struct dtp_run_options *o = r->o;
    bool alone = o->shadow_cluster != NULL;
    const struct dtp_dev_config config = {.index = endpoint ? endpoint->local_rank
                                                   : alone  ? 0
                                                            : r->rank,
                                          .nlocal = endpoint ? endpoint->local_size
                                                    : alone  ? 1
                                                             : r->size,
                                          .memory_bytes = o->memory_bytes,
                                          .dtype = r->plan->dtype,
                                          .grad_dtype = DTP_FP32};
    if (o->pin)
        dtp_os_pin(config.index);
    DTP_TRY(dtp_dev_find(o->backend, &r->ops, r->err));
    DTP_TRY(r->ops->open(r->home, &config, &r->dev, r->err));
    r->ops = dtp_graphs_open(r->home, r->dev);
    return DTP_OK;
}

static void list_units(struct dtp_rank *r) {
    for (int c = 0; c < r->layout.nchunks; c++)
        r->nunits += r->layout.chunk[c].nunits;
    r->unit = DTP_NEW(r->arena, struct dtp_unit *, (size_t)r->nunits);
    int n = 0;
    for (int c = 0; c < r->layout.nchunks; c++)
        for (int i = 0; i < r->layout.chunk[c].nunits; i++)
            r->unit[n++] = &r->layout.chunk[c].unit[i];
}

static void make_micros(struct dtp_rank *r) {
    r->micro = DTP_NEW(r->arena, struct dtp_micro *, (size_t)r->layout.nchunks);
    for (int c = 0; c < r->layout.nchunks; c++) {
        r->micro[c] = DTP_NEW(r->arena, struct dtp_micro, (size_t)r->num_microbatches);
        for (int m = 0; m < r->num_microbatches; m++)
            r->micro[c][m].layer =
                DTP_NEW(r->arena, struct dtp_layer_acts, (size_t)r->layout.chunk[c].nlayers);
    }
}

static enum dtp_status create_tensors(struct dtp_rank *r) {
    struct dtp_attention_args shape;
    float *workspace;
    DTP_TRY(dtp_take_floats(r, DTP_MEM_BUFFERS, "scalars", DTP_NSCALARS, &r->scalars));
    dtp_layer_attention_args(r, NULL, NULL, &shape);
    uint64_t bytes = r->ops->attention_workspace_bytes(r->dev, &shape);
    DTP_TRY(dtp_take_floats(r, DTP_MEM_BUFFERS, "attention workspace",
                            (int64_t)(bytes / sizeof(float)), &workspace));
    r->workspace = workspace;
    r->tensors = DTP_NEW(r->arena, struct dtp_adamw_tensor, (size_t)r->nunits * DTP_NLAYER_PARAMS);
    return dtp_units_create(r);
}

enum dtp_status dtp_rank_open(struct dtp_rank *r, void *shared,
                              const struct dtp_endpoint *endpoint) {
    r->model = r->o->model;
    r->plan = &r->o->plan;
    r->size = r->plan->tp * r->plan->dp * r->plan->pp;
    r->local_size = endpoint ? endpoint->local_size : r->size;
    r->first_local = endpoint ? r->rank - endpoint->local_rank : 0;
    r->num_microbatches = dtp_plan_num_microbatches(r->plan);
    r->sp = r->plan->sequence_parallel && r->plan->tp > 1;
    r->split = dtp_schedule_kinds[r->plan->schedule].split_backward;
    dtp_loss_scale_start(r->o, &r->loss_scale);
    r->tokens_inverse = 1 / ((double)r->plan->global_batch_size * r->o->seq);
    r->max_events = MAX_EVENTS;
    r->event = DTP_NEW(r->arena, struct dtp_run_event, MAX_EVENTS);
    DTP_TRY(dtp_run_schedule(r->arena, r->plan, &r->schedule, r->err));
    r->sends_held = dtp_schedule_sends_held(r->plan->schedule, r->plan->pp, r->num_microbatches);
    dtp_layout_make(r->arena, r->model, r->plan, r->o->seq, r->rank, &r->layout);
    r->dims = r->layout.dims;
    list_units(r);
    make_micros(r);
    r->host_ids = DTP_NEW(r->arena, int32_t, (size_t)r->dims.tokens);
    r->drawn = DTP_NEW(r->arena, int32_t,
                       (size_t)r->num_microbatches * (size_t)(r->dims.tokens + r->dims.batch));
    r->drawn_step = -1;
    r->data = DTP_NEW(r->arena, struct dtp_data, 1);
    *r->data = (struct dtp_data){.seed = r->o->seed, .vocab = r->model->vocab, .seq = r->o->seq};
    DTP_TRY(dtp_data_open(r->arena, r->o->data, r->data, r->err));
    r->home = r->home ? r->home : r->arena;
    if (!r->dev)
        DTP_TRY(open_device(r, endpoint));
    if (r->o->shadow_cluster && strcmp(r->ops->name, "cpu") != 0) /* there it is zeros */
        DTP_TRY(fill_memory(r));
    if (!r->host && endpoint) {
        struct dtp_endpoint *e = DTP_NEW(r->home, struct dtp_endpoint, 1);
        *e = *endpoint;
        DTP_TRY(dtp_facts_text(r->home, r->o, r->data, &e->facts, r->err));
        endpoint = e;
    }
    if (!r->host)
        DTP_TRY(open_comm(r, shared, endpoint));
    r->host->ops->doing(r->host, "its start");
    DTP_TRY(open_groups(r));
    return create_tensors(r);
}

enum dtp_status dtp_rank_clear(struct dtp_rank *r) {
    r->ops->sync(r->dev);
    DTP_TRY(r->ops->check(r->dev, r->err));
    dtp_graphs_forget(r->dev);
    dtp_heap_clear(r->dev->heap);
    return r->host->ops->barrier(r->host_world, r->err);
}

void dtp_rank_close(struct dtp_rank *r) {
    if (r->comm && r->comm != r->host)
        r->cops->close(r->comm);
    if (r->host)
        r->host->ops->close(r->host);
    if (r->dev)
        r->ops->close(r->dev);
}

/* ---- what a step leaves: when each action ran, the loss and the time of all ranks ---- */

void dtp_step_times(struct dtp_rank *r, int64_t start_ns) {
    for (int i = 0; i < r->nevents; i++) {
        int64_t begin_ns = r->ops->mark_ns(r->dev, 2 * i);
        int64_t end_ns = r->ops->mark_ns(r->dev, 2 * i + 1);
        r->event[i].start_s = (double)(begin_ns - start_ns) / (double)DTP_NS_PER_S;
        r->event[i].dur_s = (double)(end_ns - begin_ns) / (double)DTP_NS_PER_S;
    }
}

static enum dtp_status reduce(struct dtp_rank *r, float *x, enum dtp_reduce_op op) {
    return r->host->ops->all_reduce(r->host_world, DTP_STREAM_COMPUTE, x, 1, DTP_FP32, op, r->err);
}

/* A loss must be finite in runs whose losses mean something. If it is not, the error names the first rank whose
 * part of it is not finite. */
static enum dtp_status check_loss(struct dtp_rank *r, float loss, float part) {
    if (isfinite(loss) || r->o->shadow_cluster || r->o->rough_weights)
        return DTP_OK;
    float from_last = isfinite(part) ? 0 : (float)(r->size - r->rank);
    DTP_TRY(reduce(r, &from_last, DTP_REDUCE_MAX));
    return dtp_fail(r->err, DTP_ENO, "rank %d: the loss of step %d is %s", r->size - (int)from_last,
                    r->step + 1, isnan(loss) ? "not a number" : "infinite");
}

enum dtp_status dtp_step_share(struct dtp_rank *r, double *loss, double *step_s) {
    float sum = 0, longest = (float)*step_s;
    r->ops->copy_out(r->dev, &sum, r->scalars + DTP_SCALAR_LOSS, sizeof sum);
    if (r->layout.tp_rank != 0)
        sum = 0; /* each tp rank has the same */
    float part = sum;
    DTP_TRY(reduce(r, &sum, DTP_REDUCE_SUM));
    DTP_TRY(reduce(r, &longest, DTP_REDUCE_MAX));
    *loss = (double)sum;
    *step_s = (double)longest;
    return check_loss(r, sum, part);
}
