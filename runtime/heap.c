#include "runtime/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/text.h"

const char *const dtp_mem_names[] = {
    [DTP_MEM_WEIGHTS] = "weights",
    [DTP_MEM_GRADIENTS] = "gradients",
    [DTP_MEM_OPTIMIZER] = "optimizer",
    [DTP_MEM_ACTIVATIONS] = "activations",
    [DTP_MEM_LOGITS] = "logits",
    [DTP_MEM_BUFFERS] = "buffers",
    [DTP_NMEM] = NULL,
};

/* Blocks of the whole range in order of address, free and taken; indices into block[]. */
struct block {
    uint64_t offset_bytes, size_bytes;
    const char *name; /* NULL: free */
    enum dtp_mem class;
    int before, after; /* -1: none */
};

struct dtp_heap {
    char *base;
    struct dtp_heap_stats stats;
    struct block *block;
    int *spare; /* unused entries of block[] */
    int nspare, first, max_blocks;
};

struct dtp_heap *dtp_heap_create(struct dtp_arena *a, void *base, uint64_t size_bytes,
                                 int max_blocks) {
    struct dtp_heap *h = DTP_NEW(a, struct dtp_heap, 1);
    h->base = base;
    h->stats.size_bytes = size_bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
    h->max_blocks = 2 * max_blocks + 1; /* taken ones with a free one between each two */
    h->block = DTP_NEW(a, struct block, (size_t)h->max_blocks);
    h->spare = DTP_NEW(a, int, (size_t)h->max_blocks);
    for (int i = h->max_blocks - 1; i > 0; i--)
        h->spare[h->nspare++] = i;
    h->block[0] = (struct block){.size_bytes = h->stats.size_bytes, .before = -1, .after = -1};
    return h;
}

static int best_fit(const struct dtp_heap *h, uint64_t need_bytes) {
    int best = -1;
    for (int i = h->first; i >= 0; i = h->block[i].after) {
        const struct block *b = &h->block[i];
        if (!b->name && b->size_bytes >= need_bytes &&
            (best < 0 || b->size_bytes < h->block[best].size_bytes))
            best = i;
    }
    return best;
}

/* Cuts block i to need_bytes; the rest becomes a free block behind it. */
static void split(struct dtp_heap *h, int i, uint64_t need_bytes) {
    struct block *b = &h->block[i];
    if (b->size_bytes == need_bytes)
        return;
    int rest = h->spare[--h->nspare];
    h->block[rest] = (struct block){.offset_bytes = b->offset_bytes + need_bytes,
                                    .size_bytes = b->size_bytes - need_bytes,
                                    .before = i,
                                    .after = b->after};
    if (b->after >= 0)
        h->block[b->after].before = rest;
    b->after = rest;
    b->size_bytes = need_bytes;
}

static void count(struct dtp_heap *h, const struct block *b) {
    struct dtp_heap_stats *s = &h->stats;
    s->nallocs++;
    s->live_bytes += b->size_bytes;
    s->live[b->class] += b->size_bytes;
    if (b->offset_bytes + b->size_bytes > s->extent_bytes)
        s->extent_bytes = b->offset_bytes + b->size_bytes;
    if (s->live_bytes <= s->peak_bytes)
        return;
    s->peak_bytes = s->live_bytes;
    memcpy(s->at_peak, s->live, sizeof s->live);
}

void *dtp_heap_alloc(struct dtp_heap *h, enum dtp_mem class, const char *name, uint64_t bytes) {
    if (bytes > h->stats.size_bytes)
        return NULL;
    uint64_t need_bytes = (bytes + DTP_HEAP_ALIGN_BYTES - 1) / DTP_HEAP_ALIGN_BYTES;
    need_bytes = (need_bytes ? need_bytes : 1) * DTP_HEAP_ALIGN_BYTES;
    int i = best_fit(h, need_bytes);
    if (i < 0 || h->nspare == 0)
        return NULL;
    split(h, i, need_bytes);
    struct block *b = &h->block[i];
    b->name = name;
    b->class = class;
    count(h, b);
    return h->base + b->offset_bytes;
}

/* Joins block i with the one behind it when both are free. */
static void join(struct dtp_heap *h, int i) {
    struct block *b = &h->block[i];
    if (b->name || b->after < 0 || h->block[b->after].name)
        return;
    int gone = b->after;
    b->size_bytes += h->block[gone].size_bytes;
    b->after = h->block[gone].after;
    if (b->after >= 0)
        h->block[b->after].before = i;
    h->spare[h->nspare++] = gone;
}

void dtp_heap_release(struct dtp_heap *h, void *p) {
    if (!p)
        return;
    uint64_t offset_bytes = (uint64_t)((char *)p - h->base);
    int i = h->first;
    while (i >= 0 && h->block[i].offset_bytes != offset_bytes)
        i = h->block[i].after;
    if (i < 0 || !h->block[i].name)
        return;
    struct block *b = &h->block[i];
    h->stats.live_bytes -= b->size_bytes;
    h->stats.live[b->class] -= b->size_bytes;
    b->name = NULL;
    join(h, i);
    if (b->before >= 0)
        join(h, b->before);
}

void dtp_heap_stats(const struct dtp_heap *h, struct dtp_heap_stats *out) {
    *out = h->stats;
}

void dtp_heap_reset_peak(struct dtp_heap *h) {
    h->stats.peak_bytes = h->stats.live_bytes;
    memcpy(h->stats.at_peak, h->stats.live, sizeof h->stats.live);
}

enum dtp_status dtp_heap_fail(const struct dtp_heap *h, const char *name, uint64_t bytes,
                              struct dtp_err *err) {
    char need[32], left[32], all[32], most[32];
    const struct dtp_heap_stats *s = &h->stats;
    int largest = 0;
    for (int k = 1; k < DTP_NMEM; k++)
        if (s->live[k] > s->live[largest])
            largest = k;
    return dtp_fail(err, DTP_ENOMEM, "out of memory: %s for %s, %s of %s free; most is %s, %s",
                    dtp_fmt_bytes_gib((double)bytes, need, sizeof need), name,
                    dtp_fmt_bytes_gib((double)(s->size_bytes - s->live_bytes), left, sizeof left),
                    dtp_fmt_bytes_gib((double)s->size_bytes, all, sizeof all),
                    dtp_mem_names[largest],
                    dtp_fmt_bytes_gib((double)s->live[largest], most, sizeof most));
}
