/* sharing.h: several ranks on one GPU, so that layouts of many ranks are tested where there are few GPUs.
 * $DTPLAN_CUDA_RANKS_PER_GPU=N: ranks 0 .. N-1 of a host take its first GPU, the next N its second, ...;
 * unset: a GPU for each rank. */
#ifndef DTP_RUNTIME_CUDA_SHARING_H
#define DTP_RUNTIME_CUDA_SHARING_H

#include <stdint.h>
#include <stdlib.h>

#include "sim/base/status.h"
#include "sim/base/units.h"

/* NCCL 2.30 is the first that lets them (NCCL_MULTI_RANK_GPU_ENABLE, its docs/userguide/source/env.rst). */
enum { DTP_NCCL_SHARES = 23000 };

/* text: of the environment, or NULL. */
static inline enum dtp_status dtp_cuda_read_sharers(const char *text, int *out,
                                                    struct dtp_err *err) {
    enum { MOST = 64, TEN = 10 };
    char *end = NULL;
    long n = text ? strtol(text, &end, TEN) : 1;
    if (text && (end == text || *end || n < 1 || n > MOST))
        return dtp_fail(err, DTP_EINPUT, "DTPLAN_CUDA_RANKS_PER_GPU is %s, expected 1 .. %d", text,
                        (int)MOST);
    *out = (int)n;
    return DTP_OK;
}

/* Context, kernels and libraries may still take so much outside the heap; communicators of NCCL take some 0.45 GiB
 * each, and a series of plans keeps them while there is room (nccl_comm.c): 4 GPUs ran out of 5 GiB. */
static inline uint64_t dtp_cuda_margin_bytes(int nlocal) {
    return (uint64_t)DTP_GIB * (nlocal > 1 ? 1 + 2 * (uint64_t)nlocal : 1);
}

/* Returns the size of a rank's heap: what is free less the margin. On a shared GPU it is half of the rank's share,
 * whatever the others have taken already: theirs are as large. */
static inline uint64_t dtp_cuda_heap_bytes(uint64_t free_bytes, uint64_t total_bytes, int sharers,
                                           int nlocal) {
    uint64_t margin_bytes = dtp_cuda_margin_bytes(nlocal);
    if (sharers > 1)
        return total_bytes / (uint64_t)sharers / 2;
    return free_bytes > margin_bytes ? free_bytes - margin_bytes : free_bytes / 2;
}

/* Returns the bytes used outside the heaps; on a shared GPU each rank's part of them. */
static inline uint64_t dtp_cuda_beside_bytes(uint64_t free_bytes, uint64_t total_bytes, int sharers,
                                             uint64_t heap_bytes) {
    uint64_t used_bytes = (total_bytes - free_bytes) / (uint64_t)sharers;
    return used_bytes > heap_bytes ? used_bytes - heap_bytes : 0;
}

#endif
