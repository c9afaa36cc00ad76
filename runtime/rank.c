/* Memory, stream order and trace of a rank. */
#include "runtime/rank.h"

#include <stdio.h>

#include "runtime/graphs.h"
#include "runtime/os_linux.h"

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
