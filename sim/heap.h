/* heap.h: the event queue: a 4-ary heap of (time, sequence number), the earliest first.
 *
 * Four children of 16 bytes fill one cache line, so a level costs one miss. With `pos` (one entry per
 * id) an event can be moved or removed by its id; without it (NULL) events are only added and taken.
 * All is inline: the engine's inner loop. The sequence number may wrap; it only orders equal times.
 */
#ifndef DTP_SIM_HEAP_H
#define DTP_SIM_HEAP_H

#include "sim/base/arena.h"
#include "sim/platform.h"

struct dtp_event {
    double time_s;
    uint32_t seq;
    dtp_id id;
};

struct dtp_heap {
    struct dtp_event *e;
    uint32_t n, capacity;
};

static inline int dtp_event_before(struct dtp_event x, struct dtp_event y) {
    return x.time_s < y.time_s || (x.time_s == y.time_s && x.seq < y.seq);
}

static inline void dtp_heap_set(struct dtp_heap *h, uint32_t i, struct dtp_event e, uint32_t *pos) {
    h->e[i] = e;
    if (pos)
        pos[e.id] = i;
}

static inline void dtp_heap_up(struct dtp_heap *h, uint32_t i, struct dtp_event e, uint32_t *pos) {
    while (i > 0) {
        uint32_t parent = (i - 1) / 4;
        if (!dtp_event_before(e, h->e[parent]))
            break;
        dtp_heap_set(h, i, h->e[parent], pos);
        i = parent;
    }
    dtp_heap_set(h, i, e, pos);
}

static inline void dtp_heap_down(struct dtp_heap *h, uint32_t i, struct dtp_event e,
                                 uint32_t *pos) {
    for (;;) {
        uint32_t first = 4 * i + 1, best = first, end = first + 4 < h->n ? first + 4 : h->n;
        if (first >= h->n)
            break;
        for (uint32_t c = first + 1; c < end; c++)
            if (dtp_event_before(h->e[c], h->e[best]))
                best = c;
        if (!dtp_event_before(h->e[best], e))
            break;
        dtp_heap_set(h, i, h->e[best], pos);
        i = best;
    }
    dtp_heap_set(h, i, e, pos);
}

static inline void dtp_heap_push(struct dtp_arena *a, struct dtp_heap *h, struct dtp_event e,
                                 uint32_t *pos) {
    if (h->n == h->capacity) {
        uint32_t n = h->capacity ? 2 * h->capacity : 256;
        h->e = dtp_arena_grow(a, h->e, sizeof *h->e, h->capacity, n);
        h->capacity = n;
    }
    dtp_heap_up(h, h->n++, e, pos);
}

/* Takes out the event at index i; index 0 is the earliest. */
static inline struct dtp_event dtp_heap_take(struct dtp_heap *h, uint32_t i, uint32_t *pos) {
    struct dtp_event out = h->e[i], last = h->e[--h->n];
    if (i < h->n) {
        if (i > 0 && dtp_event_before(last, h->e[(i - 1) / 4]))
            dtp_heap_up(h, i, last, pos);
        else
            dtp_heap_down(h, i, last, pos);
    }
    return out;
}

/* Gives the event at index i a new time. */
static inline void dtp_heap_move(struct dtp_heap *h, uint32_t i, struct dtp_event e,
                                 uint32_t *pos) {
    if (i > 0 && dtp_event_before(e, h->e[(i - 1) / 4]))
        dtp_heap_up(h, i, e, pos);
    else
        dtp_heap_down(h, i, e, pos);
}

#endif
