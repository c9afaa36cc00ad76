/* Memory, stream order and trace of a rank. */
#include "runtime/rank.h"

#include <stdio.h>

enum { MAX_PENDING = DTP_DEV_EVENTS / 2 };

static enum dtp_status take(struct dtp_rank *r, enum dtp_mem class, const char *name,
                            uint64_t bytes, void **out) {
    *out = dtp_heap_alloc(r->dev->heap, class, name, bytes);
    if (!*out && r->npending > 0) { /* what other streams still hold may be enough */
        r->ops->sync(r->dev);
        dtp_drain(r);
        *out = dtp_heap_alloc(r->dev->heap, class, name, bytes);
    }
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
    r->next_event = (r->next_event + 1) % (DTP_DEV_EVENTS - DTP_ACTIONS_AHEAD);
    return r->next_event;
}

enum dtp_status dtp_give_after(struct dtp_rank *r, void *p, enum dtp_stream stream) {
    if (!r->pending)
        r->pending = DTP_NEW(r->arena, struct dtp_pending, MAX_PENDING);
    if (r->npending >= MAX_PENDING) { /* events would come round */
        r->ops->sync(r->dev);
        dtp_drain(r);
    }
    int event = new_event(r);
    r->ops->event_record(r->dev, stream, event);
    r->pending[r->npending++] = (struct dtp_pending){p, event};
    dtp_drain(r);
    return DTP_OK;
}

void dtp_drain(struct dtp_rank *r) {
    int kept = 0;
    for (int i = 0; i < r->npending; i++) {
        if (r->ops->event_done(r->dev, r->pending[i].event))
            dtp_give(r, r->pending[i].p);
        else
            r->pending[kept++] = r->pending[i];
    }
    r->npending = kept;
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

int dtp_trace_begin(struct dtp_rank *r, enum dtp_stream stream, const char *name) {
    if (r->nevents >= r->max_events)
        return -1;
    int i = r->nevents++;
    struct dtp_run_event *e = &r->event[i];
    *e = (struct dtp_run_event){.rank = r->rank, .step = r->step, .stream = (int)stream};
    snprintf(e->name, sizeof e->name, "%s", name);
    r->ops->mark(r->dev, stream, 2 * i);
    return i;
}

void dtp_trace_end(struct dtp_rank *r, int event) {
    if (event >= 0)
        r->ops->mark(r->dev, (enum dtp_stream)r->event[event].stream, 2 * event + 1);
}
