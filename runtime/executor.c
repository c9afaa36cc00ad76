/* Walks a rank's actions, step by step. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/device/graphs.h"
#include "runtime/os_linux.h"
#include "runtime/rank.h"

enum { STAGING_BYTES = 1 << 21 };

/* ---- what the schedule needs ---- */

struct dtp_schedule_passes dtp_run_passes(const struct dtp_plan *plan) {
    return (struct dtp_schedule_passes){.p2p = plan->pp > 1,
                                        .recompute = plan->recompute != DTP_RECOMPUTE_NONE,
                                        .zero_stage = plan->zero_stage,
                                        .regather_backward = true,
                                        .reduce = plan->dp > 1,
                                        .reduce_per_microbatch = plan->zero_stage >= 2,
                                        .optim = true};
}

enum dtp_status dtp_run_schedule(struct dtp_arena *a, const struct dtp_plan *plan,
                                 struct dtp_schedule *out, struct dtp_err *err) {
    struct dtp_schedule compute;
    const struct dtp_schedule_passes passes = dtp_run_passes(plan);
    DTP_TRY(dtp_schedule_make(a, plan->schedule, plan->pp, plan->vpp,
                              dtp_plan_num_microbatches(plan), &compute, err));
    return dtp_schedule_complete(a, &compute, &passes, out, err);
}

/* A boundary between stages never has more messages in flight, in either direction, than its earlier stage has
 * microbatches in flight, so that twice the most of any rank is enough room for a sender. */
struct dtp_comm_config dtp_rank_comm_config(const struct dtp_run_options *o,
                                            const struct dtp_schedule *s) {
    const struct dtp_plan *p = &o->plan;
    int most = 0;
    struct dtp_arena *a = dtp_arena_create("in flight");
    int *peak = DTP_NEW(a, int, (size_t)p->pp);
    dtp_schedule_in_flight(s, NULL, peak, NULL);
    for (int r = 0; r < p->pp; r++)
        most = peak[r] > most ? peak[r] : most;
    dtp_arena_destroy(a);
    uint64_t tokens = (uint64_t)p->microbatch_size * (uint64_t)o->seq;
    uint64_t width = (uint64_t)o->model->hidden * (uint64_t)dtp_dtype_bytes(p->dtype);
    return (struct dtp_comm_config){.size = p->tp * p->dp * p->pp,
                                    .local_size = p->tp * p->dp * p->pp,
                                    .staging_bytes = STAGING_BYTES,
                                    .message_bytes = p->pp > 1 ? tokens * width : 1,
                                    .nmessages = p->pp > 1 ? 2 * most + 2 : 1,
                                    .timeout_s = o->timeout_s};
}

/* ---- actions ---- */

typedef enum dtp_status action_fn(struct dtp_rank *r, struct dtp_action x, uint32_t index);

static bool last_microbatch(const struct dtp_rank *r, uint32_t index) {
    const struct dtp_schedule *s = &r->schedule;
    struct dtp_action x = s->action[index];
    for (uint32_t i = index + 1; i < s->begin[r->layout.pp_rank + 1]; i++)
        if (s->action[i].kind == x.kind && s->action[i].chunk == x.chunk)
            return false;
    return true;
}

static struct dtp_micro *micro_of(struct dtp_rank *r, struct dtp_action x) {
    return &r->micro[x.chunk][x.microbatch];
}

/* Returns the global rank that holds a stage, and sets *chunk to the chunk there. */
static int neighbour(const struct dtp_rank *r, int stage, int *chunk) {
    int s;
    dtp_schedule_holder(r->schedule.kind, r->plan->pp, r->plan->vpp, stage, &s, chunk);
    return dtp_layout_rank(r->plan, r->layout.tp_rank, r->layout.dp_rank, s);
}

/* direction is 0 forward and 1 backward; stage is the receiver's. */
static uint64_t tag_of(int direction, int stage, uint32_t microbatch) {
    return (uint64_t)microbatch << 20 | (uint64_t)stage << 1 | (uint64_t)direction;
}

/* Passes on the result of F or B if the receiving stage is on the same rank, as in schedules that a user defines. */
static void hand_over(struct dtp_rank *r, struct dtp_action x, int direction) {
    struct dtp_micro *m = micro_of(r, x);
    int stage = r->layout.chunk[x.chunk].stage + (direction == 0 ? 1 : -1), chunk;
    if (stage < 0 || stage >= r->plan->pp * r->plan->vpp || neighbour(r, stage, &chunk) != r->rank)
        return;
    if (direction == 0) {
        r->micro[chunk][x.microbatch].x = m->x;
        m->x = NULL;
    } else {
        r->micro[chunk][x.microbatch].grad = m->grad;
        m->grad = NULL;
    }
}

static enum dtp_status do_forward(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    DTP_TRY(dtp_chunk_forward(r, x.chunk, (int)x.microbatch));
    hand_over(r, x, 0);
    return DTP_OK;
}

static enum dtp_status do_backward(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    DTP_TRY(dtp_chunk_backward(r, x.chunk, (int)x.microbatch, last_microbatch(r, index)));
    hand_over(r, x, 1);
    return DTP_OK;
}

static enum dtp_status do_weights(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    return dtp_chunk_weights(r, x.chunk, (int)x.microbatch, last_microbatch(r, index));
}

static enum dtp_status send(struct dtp_rank *r, struct dtp_action x, int direction, void **data) {
    enum dtp_stream stream = direction == 0 ? DTP_STREAM_SEND_F : DTP_STREAM_SEND_B;
    int stage = r->layout.chunk[x.chunk].stage + (direction == 0 ? 1 : -1), chunk;
    int to = neighbour(r, stage, &chunk);
    uint64_t bytes = (uint64_t)(r->dims.local_tokens * r->dims.hidden) *
                     (uint64_t)dtp_dtype_bytes(r->dev->dtype);
    DTP_TRY(dtp_give_sent(r, direction, r->sends_held - 1));
    DTP_TRY(r->cops->send(r->comm, stream, *data, bytes, to, tag_of(direction, stage, x.microbatch),
                          r->err));
    dtp_hold_sent(r, direction, *data);
    *data = NULL;
    return DTP_OK;
}

static enum dtp_status receive(struct dtp_rank *r, struct dtp_action x, int direction,
                               void **data) {
    enum dtp_stream stream = direction == 0 ? DTP_STREAM_RECV_F : DTP_STREAM_RECV_B;
    int stage = r->layout.chunk[x.chunk].stage, chunk;
    int from = neighbour(r, stage + (direction == 0 ? -1 : 1), &chunk);
    int64_t n = r->dims.local_tokens * r->dims.hidden;
    DTP_TRY(dtp_take(r, DTP_MEM_ACTIVATIONS,
                     direction == 0 ? "received activations" : "received gradients", n, data));
    DTP_TRY(r->cops->recv(r->comm, stream, *data,
                          (uint64_t)n * (uint64_t)dtp_dtype_bytes(r->dev->dtype), from,
                          tag_of(direction, stage, x.microbatch), r->err));
    dtp_order(r, DTP_STREAM_COMPUTE, stream);
    return DTP_OK;
}

static enum dtp_status do_send_forward(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    return send(r, x, 0, &micro_of(r, x)->x);
}

static enum dtp_status do_receive_forward(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    return receive(r, x, 0, &micro_of(r, x)->x);
}

static enum dtp_status do_send_backward(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    return send(r, x, 1, &micro_of(r, x)->grad);
}

static enum dtp_status do_receive_backward(struct dtp_rank *r, struct dtp_action x,
                                           uint32_t index) {
    (void)index;
    return receive(r, x, 1, &micro_of(r, x)->grad);
}

/* The layers are computed again one by one inside the backward, right before their use, so that one
 * layer's activations exist at a time; this action only marks the place. */
static enum dtp_status do_nothing(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)r, (void)x, (void)index;
    return DTP_OK;
}

/* Gathers what the next use of the chunk needs first. */
static enum dtp_status do_unshard(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    struct dtp_chunk *c = &r->layout.chunk[x.chunk];
    bool forward = false, found = false;
    for (uint32_t i = index + 1; !found && i < r->schedule.begin[r->layout.pp_rank + 1]; i++) {
        struct dtp_action next = r->schedule.action[i];
        forward = next.kind == DTP_A_F;
        found = next.chunk == x.chunk && (forward || next.kind == DTP_A_B || next.kind == DTP_A_I);
    }
    struct dtp_unit *first = c->last ? c->head : &c->layer[c->nlayers - 1];
    return dtp_unit_need(r, forward ? c->unit : first, forward ? 1 : -1);
}

static enum dtp_status do_reshard(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    dtp_chunk_reshard(r, &r->layout.chunk[x.chunk]);
    return DTP_OK;
}

static enum dtp_status do_reduce(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)index;
    return dtp_chunk_reduce(r, &r->layout.chunk[x.chunk]);
}

static enum dtp_status do_optimizer(struct dtp_rank *r, struct dtp_action x, uint32_t index) {
    (void)x, (void)index;
    return dtp_optimizer_step(r);
}

static const struct action_row {
    action_fn *run;
    enum dtp_stream stream;
} actions[DTP_NACTIONS] = {
    [DTP_A_F] = {do_forward, DTP_STREAM_COMPUTE},
    [DTP_A_B] = {do_backward, DTP_STREAM_COMPUTE},
    [DTP_A_I] = {do_backward, DTP_STREAM_COMPUTE},
    [DTP_A_W] = {do_weights, DTP_STREAM_COMPUTE},
    [DTP_A_SEND_F] = {do_send_forward, DTP_STREAM_SEND_F},
    [DTP_A_RECV_F] = {do_receive_forward, DTP_STREAM_RECV_F},
    [DTP_A_SEND_B] = {do_send_backward, DTP_STREAM_SEND_B},
    [DTP_A_RECV_B] = {do_receive_backward, DTP_STREAM_RECV_B},
    [DTP_A_RECOMPUTE] = {do_nothing, DTP_STREAM_COMPUTE},
    [DTP_A_UNSHARD] = {do_unshard, DTP_STREAM_DP},
    [DTP_A_RESHARD] = {do_reshard, DTP_STREAM_DP},
    [DTP_A_REDUCE_GRAD] = {do_reduce, DTP_STREAM_DP},
    [DTP_A_OFFLOAD] = {do_nothing, DTP_STREAM_DP}, /* plans with offload are refused */
    [DTP_A_FETCH] = {do_nothing, DTP_STREAM_DP},
    [DTP_A_OPTIM] = {do_optimizer, DTP_STREAM_COMPUTE},
};

static void inject_fault(const struct dtp_rank *r) {
    const struct dtp_run_options *o = r->o;
    if (o->fault == DTP_FAULT_NONE || o->fault_rank != r->rank || o->fault_step != r->step ||
        o->fault_action != r->action)
        return;
    if (o->fault == DTP_FAULT_KILL)
        (void)raise(SIGKILL);
    if (o->fault == DTP_FAULT_ADDRESS) {
        enum { NOWHERE = 4096, N = 4 };
        r->ops->add(r->dev, (float *)NOWHERE, r->scalars, N, true);
        return;
    }
    for (;;)
        (void)pause();
}

/* ---- progress of a rank: the first action of the step that its device has not ended ---- */

static int device_action(const struct dtp_rank *r) {
    int reached = r->ops->reached ? r->ops->reached(r->dev) : -1;
    return reached >= 0 && reached <= r->action ? reached : r->action;
}

static void describe(const struct dtp_rank *r, int action, char *text, size_t size) {
    const struct dtp_schedule *s = &r->schedule;
    struct dtp_action x = s->action[s->begin[r->layout.pp_rank] + (uint32_t)action];
    snprintf(text, size, "%u%s%u of step %d", (unsigned)x.chunk, dtp_action_names[x.kind],
             (unsigned)x.microbatch, r->step);
}

/* Tells the other ranks, while the device waits, its current action and that this rank is alive. */
static void still_waiting(void *rank) {
    struct dtp_rank *r = rank;
    char doing[48];
    describe(r, device_action(r), doing, sizeof doing);
    r->host->ops->doing(r->host, doing);
}

/* Adds rank and action to the message, unless another rank aborted: then the message names that rank already. */
static enum dtp_status name_action(struct dtp_rank *r, enum dtp_status status, int action) {
    char doing[48], where[64];
    if (status == DTP_OK || !r->err || strncmp(r->err->msg, "rank ", strlen("rank ")) == 0)
        return status;
    describe(r, action, doing, sizeof doing);
    snprintf(where, sizeof where, "rank %d in %s", r->rank, doing);
    dtp_err_prefix(r->err, where);
    return status;
}

/* Errors of the device are asynchronous: they are caused by the action that the device did not end, not by the one
 * that is being enqueued. */
static enum dtp_status check_device(struct dtp_rank *r) {
    return name_action(r, r->ops->check(r->dev, r->err), device_action(r));
}

/* An action may have failed because the device failed in an earlier one, which is then named instead. */
static enum dtp_status find_cause(struct dtp_rank *r, enum dtp_status status) {
    struct dtp_err found = {0};
    enum dtp_status device = r->ops->check(r->dev, &found);
    if (device == DTP_OK || !r->err)
        return name_action(r, status, r->action);
    *r->err = found;
    return name_action(r, device, device_action(r));
}

/* Waits until the device has ended the action DTP_ACTIONS_AHEAD before this one. */
static enum dtp_status stay_close(struct dtp_rank *r) {
    return r->num_ahead < DTP_ACTIONS_AHEAD ? DTP_OK
                                            : dtp_wait_event(r, dtp_event_ahead(r->num_ahead));
}

static enum dtp_status run_action(struct dtp_rank *r, uint32_t index) {
    struct dtp_action x = r->schedule.action[index];
    const struct action_row *row = &actions[x.kind];
    char name[28], doing[48];
    snprintf(name, sizeof name, "%u%s%u", (unsigned)x.chunk, dtp_action_names[x.kind],
             (unsigned)x.microbatch);
    describe(r, r->action, doing, sizeof doing);
    r->host->ops->doing(r->host, doing);
    inject_fault(r);
    int64_t begin_ns = dtp_os_now_ns();
    enum dtp_status status = stay_close(r);
    if (status != DTP_OK)
        return name_action(r, status, device_action(r));
    if (row->stream >=
        DTP_STREAM_SEND_F) /* it made what is sent; the memory may have held another tensor */
        dtp_order(r, row->stream, DTP_STREAM_COMPUTE);
    int event = dtp_trace_begin(r, row->stream, name);
    status = row->run(r, x, index);
    dtp_trace_end(r, event);
    r->ops->event_record(r->dev, DTP_STREAM_COMPUTE, dtp_event_ahead(r->num_ahead++));
    if (r->ops->reach)
        r->ops->reach(r->dev, r->action + 1);
    r->host_ns += dtp_os_now_ns() - begin_ns;
    return status == DTP_OK ? check_device(r) : find_cause(r, status);
}

static enum dtp_status walk(struct dtp_rank *r, double *loss, double *step_s) {
    const struct dtp_schedule *s = &r->schedule;
    r->nevents = 0;
    r->num_ahead = 0;
    r->host_ns = 0;
    r->ops->zero(r->dev, r->scalars, DTP_NSCALARS * sizeof *r->scalars);
    DTP_TRY(dtp_units_begin_step(r));
    dtp_draw_tokens(r, r->step);
    r->ops->sync(r->dev);
    r->host->ops->doing(r->host, "the start of a step");
    DTP_TRY(r->host->ops->barrier(r->host_world, r->err));
    int64_t start_ns = dtp_os_now_ns();
    if (r->ops->reach)
        r->ops->reach(r->dev, 0);
    if (r->ops->tick)
        r->ops->tick(r->dev, 0);
    uint32_t begin = s->begin[r->layout.pp_rank], end = s->begin[r->layout.pp_rank + 1];
    for (uint32_t i = begin; i < end; i++) {
        r->action = (int)(i - begin);
        DTP_TRY(run_action(r, i));
    }
    if (r->ops->tick)
        r->ops->tick(r->dev, 1);
    if (r->step + 1 < r->o->steps) /* while the device computes */
        dtp_draw_tokens(r, r->step + 1);
    r->ops->sync(r->dev);
    DTP_TRY(check_device(r));
    *step_s = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    for (int direction = 0; direction < 2; direction++)
        DTP_TRY(dtp_give_sent(r, direction, 0));
    dtp_step_times(r, start_ns);
    dtp_graphs_next_step(r->dev);
    r->clock_hz = r->ops->clock_hz ? r->ops->clock_hz(r->dev) : 0;
    r->host->ops->doing(r->host, "the end of a step");
    DTP_TRY(dtp_loss_scale_update(r));
    return dtp_step_share(r, loss, step_s);
}

enum dtp_status dtp_rank_step(struct dtp_rank *r, double *loss, double *step_s) {
    r->action = 0;
    r->dev->waiting = still_waiting;
    r->dev->listener = r;
    enum dtp_status status = walk(r, loss, step_s);
    r->dev->waiting = NULL;
    return status;
}
