/* tensor_heap.h: allocates all memory of a rank, and keeps the high-water mark of live bytes.
 *
 * A heap manages one range of addresses (host or device; it never touches the memory itself). All
 * tensors of a rank come from it, each with a name and a class, so that a peak can be explained:
 *   live  = sum over live tensors of their size, rounded up to DTP_HEAP_ALIGN_BYTES
 *   peak  = max over time of live; at_peak[class] = the classes' parts at that moment (they add up)
 * Allocation is best fit over free blocks sorted by address, and free neighbours are merged. Fragmentation does not
 * count in live; `extent` tells the highest address used. Book-keeping lives in an arena and is allocated at
 * creation (max_blocks), so that the C library allocates nothing during a step.
 *
 *     struct dtp_heap *h = dtp_heap_create(a, base, size, 4096);
 *     float *x = dtp_heap_alloc(h, DTP_MEM_ACTIVATIONS, "logits", bytes);    NULL: does not fit
 *     dtp_heap_release(h, x);
 */
#ifndef DTP_RUNTIME_HEAP_H
#define DTP_RUNTIME_HEAP_H

#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

#define DTP_HEAP_ALIGN_BYTES 256

/* These are the items of memory.h. Workspaces and unshard buffers count as buffers. */
enum dtp_mem {
    DTP_MEM_WEIGHTS,
    DTP_MEM_GRADIENTS,
    DTP_MEM_OPTIMIZER,
    DTP_MEM_ACTIVATIONS,
    DTP_MEM_LOGITS,
    DTP_MEM_BUFFERS,
    DTP_NMEM
};

struct dtp_heap;

struct dtp_heap_stats {
    uint64_t size_bytes, live_bytes, peak_bytes, extent_bytes;
    uint64_t live[DTP_NMEM], at_peak[DTP_NMEM]; /* bytes by class */
};

/* base may be an address of device memory; max_blocks is the most tensors alive at once. */
struct dtp_heap *dtp_heap_create(struct dtp_arena *a, void *base, uint64_t size_bytes,
                                 int max_blocks);
/* Returns NULL if the tensor does not fit; 0 bytes count as 1. name must outlive the tensor. */
void *dtp_heap_alloc(struct dtp_heap *h, enum dtp_mem item, const char *name, uint64_t bytes);
void dtp_heap_release(struct dtp_heap *h, void *p); /* NULL is fine */
void dtp_heap_stats(const struct dtp_heap *h, struct dtp_heap_stats *out);
void dtp_heap_clear(struct dtp_heap *h); /* releases all, and resets the counts */
/* Starts a new high-water mark from what is live now. */
void dtp_heap_reset_peak(struct dtp_heap *h);
/* Fails with "out of memory: 12.0 MiB for logits, 3.1 MiB of 64.0 MiB free; largest: ..." and DTP_ENOMEM. */
enum dtp_status dtp_heap_fail(const struct dtp_heap *h, const char *name, uint64_t bytes,
                              struct dtp_err *err);

#endif
