#include "runtime/device/tensor_heap.h"

#include <assert.h>
#include <string.h>

#include "sim/base/text.h"

static const char *const mem_names[] = {
    [DTP_MEM_WEIGHTS] = "weights",
    [DTP_MEM_GRADIENTS] = "gradients",
    [DTP_MEM_OPTIMIZER] = "optimizer",
    [DTP_MEM_ACTIVATIONS] = "activations",
    [DTP_MEM_LOGITS] = "logits",
    [DTP_MEM_BUFFERS] = "buffers",
    [DTP_NMEM] = NULL,
};

/* Blocks of the whole range in order of address, free and taken; indices into block[]. Free ones are
 * in a list of their own, and a table finds a block by its offset, so that neither taking nor releasing
 * looks at the thousands of tensors of a deep pipeline. */
struct block {
    uint64_t offset_bytes, size_bytes;
    const char *name; /* NULL: free */
    enum dtp_mem class;
    int before, after;           /* neighbours in memory, -1: none */
    int free_before, free_after; /* in the list of free blocks */
};

struct dtp_heap {
    char *base;
    struct dtp_heap_stats stats;
    struct block *block;
    int *spare; /* unused entries of block[] */
    int nspare, first_free, max_blocks;
    int *table; /* [table_mask + 1] index of a taken block + 1, 0: empty; linear probing */
    uint64_t table_mask;
};

/* ---- the table of taken blocks ---- */

static uint64_t home_of(const struct dtp_heap *h, uint64_t offset_bytes) {
    return (offset_bytes / DTP_HEAP_ALIGN_BYTES * UINT64_C(0x9e3779b97f4a7c15)) >> 20 &
           h->table_mask;
}

static void table_put(struct dtp_heap *h, int i) {
    uint64_t at = home_of(h, h->block[i].offset_bytes);
    while (h->table[at])
        at = (at + 1) & h->table_mask;
    h->table[at] = i + 1;
}

/* Returns the place of the block in the table, or an empty place if the block is not there. */
static uint64_t table_find(const struct dtp_heap *h, uint64_t offset_bytes) {
    uint64_t at = home_of(h, offset_bytes);
    while (h->table[at] && h->block[h->table[at] - 1].offset_bytes != offset_bytes)
        at = (at + 1) & h->table_mask;
    return at;
}

/* Removes an entry. The entries after it without a gap may have been displaced by it, so that the hole is closed. */
static void table_remove(struct dtp_heap *h, uint64_t hole) {
    h->table[hole] = 0;
    for (uint64_t at = (hole + 1) & h->table_mask; h->table[at]; at = (at + 1) & h->table_mask) {
        uint64_t home = home_of(h, h->block[h->table[at] - 1].offset_bytes);
        if (((at - home) & h->table_mask) < ((at - hole) & h->table_mask))
            continue;
        h->table[hole] = h->table[at];
        h->table[at] = 0;
        hole = at;
    }
}

/* ---- the list of free blocks ---- */

static void list_put(struct dtp_heap *h, int i) {
    h->block[i].free_before = -1;
    h->block[i].free_after = h->first_free;
    if (h->first_free >= 0)
        h->block[h->first_free].free_before = i;
    h->first_free = i;
}

static void list_remove(struct dtp_heap *h, int i) {
    const struct block *b = &h->block[i];
    if (b->free_before >= 0)
        h->block[b->free_before].free_after = b->free_after;
    else
        h->first_free = b->free_after;
    if (b->free_after >= 0)
        h->block[b->free_after].free_before = b->free_before;
}

struct dtp_heap *dtp_heap_create(struct dtp_arena *a, void *base, uint64_t size_bytes,
                                 int max_blocks) {
    struct dtp_heap *h = DTP_NEW(a, struct dtp_heap, 1);
    h->base = base;
    h->stats.size_bytes = size_bytes / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
    h->max_blocks = 2 * max_blocks + 1; /* taken ones with a free one between each two */
    h->block = DTP_NEW(a, struct block, (size_t)h->max_blocks);
    h->spare = DTP_NEW(a, int, (size_t)h->max_blocks);
    for (h->table_mask = 1; h->table_mask < 2 * (uint64_t)h->max_blocks;)
        h->table_mask *= 2;
    h->table_mask--;
    h->table = DTP_NEW(a, int, (size_t)h->table_mask + 1);
    dtp_heap_clear(h);
    return h;
}

void dtp_heap_clear(struct dtp_heap *h) {
    h->stats = (struct dtp_heap_stats){.size_bytes = h->stats.size_bytes};
    memset(h->table, 0, ((size_t)h->table_mask + 1) * sizeof *h->table);
    h->nspare = 0;
    for (int i = h->max_blocks - 1; i > 0; i--)
        h->spare[h->nspare++] = i;
    h->block[0] = (struct block){.size_bytes = h->stats.size_bytes, .before = -1, .after = -1};
    h->first_free = -1;
    list_put(h, 0);
}

/* The smallest that is large enough, of equal ones the lowest. */
static int best_fit(const struct dtp_heap *h, uint64_t need_bytes) {
    int best = -1;
    for (int i = h->first_free; i >= 0; i = h->block[i].free_after) {
        const struct block *b = &h->block[i], *than = best < 0 ? NULL : &h->block[best];
        if (b->size_bytes < need_bytes)
            continue;
        if (!than || b->size_bytes < than->size_bytes ||
            (b->size_bytes == than->size_bytes && b->offset_bytes < than->offset_bytes))
            best = i;
    }
    return best;
}

/* Cuts block i to need_bytes; the rest becomes a free block after it. */
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
    list_put(h, rest);
}

static void count(struct dtp_heap *h, const struct block *b) {
    struct dtp_heap_stats *s = &h->stats;
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
    list_remove(h, i);
    table_put(h, i);
    struct block *b = &h->block[i];
    b->name = name;
    b->class = class;
    count(h, b);
    return h->base + b->offset_bytes;
}

/* Joins block i with the one after it if both are free. */
static void join(struct dtp_heap *h, int i) {
    struct block *b = &h->block[i];
    if (b->name || b->after < 0 || h->block[b->after].name)
        return;
    int gone = b->after;
    list_remove(h, gone);
    b->size_bytes += h->block[gone].size_bytes;
    b->after = h->block[gone].after;
    if (b->after >= 0)
        h->block[b->after].before = i;
    h->spare[h->nspare++] = gone;
}

void dtp_heap_release(struct dtp_heap *h, void *p) {
    if (!p)
        return;
    uint64_t place = table_find(h, (uint64_t)((char *)p - h->base));
    int i = h->table[place] - 1;
    assert(i >= 0); /* not of this heap, or released before */
    if (i < 0)
        return;
    struct block *b = &h->block[i];
    table_remove(h, place);
    h->stats.live_bytes -= b->size_bytes;
    h->stats.live[b->class] -= b->size_bytes;
    b->name = NULL;
    list_put(h, i);
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
                    dtp_fmt_bytes_gib((double)s->size_bytes, all, sizeof all), mem_names[largest],
                    dtp_fmt_bytes_gib((double)s->live[largest], most, sizeof most));
}
