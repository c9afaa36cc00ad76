/* nccl_internal.h: what nccl_comm.c and nccl_open.c share. */
#ifndef DTP_RUNTIME_CUDA_NCCL_INTERNAL_H
#define DTP_RUNTIME_CUDA_NCCL_INTERNAL_H

#include <nccl.h>

#include "runtime/cuda/cuda.h"

enum { MAX_COMMS = 64, FORWARD = 0, BACKWARD = 1, NDIRECTIONS = 2 };

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclAllReduce)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAllGather)                                                                               \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)

/* The edge between two neighbours of the ring of stages, in one sense. */
struct edge {
    ncclComm_t comm[NDIRECTIONS]; /* NULL: no transfers */
    int peer;                     /* global rank of the other end */
};
/* A rank has two neighbours; with two stages both are the same peer, but the edges differ. */
enum { NEXT, PREVIOUS, NEDGES };
enum { WITH, AGAINST, NSENSES }; /* the ring, or against it as V-shaped schedules go */

/* A group that was opened is kept, because the plans of a series open the same ones repeatedly. */
struct known {
    enum dtp_group_kind kind;
    int size, *rank;
    ncclComm_t comm;
    struct edge edge[NEDGES]; /* a group of stages has these instead */
    bool needed;              /* by the plan that begins */
};

struct dtp_nccl {
    struct dtp_comm comm;
    struct dtp_arena *arena;
    struct known known[MAX_COMMS];
    int nknown;
    struct nccl_group *waiting[MAX_COMMS]; /* to be joined */
    int nwaiting;
#define NCCL_MEMBER(f) __typeof__(&(f)) f;
    NCCL_FUNCTIONS(NCCL_MEMBER)
    struct dtp_cuda *cuda;
    struct dtp_comm *host;
    ncclComm_t all[MAX_COMMS]; /* to close and to abort */
    int nall;
    bool aborted;
    struct edge edge[NSENSES][NEDGES]; /* edges of this plan's pipeline */
};

enum dtp_status dtp_nccl_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                              struct dtp_comm **out, struct dtp_err *err);
void dtp_nccl_close(struct dtp_comm *c);

#endif
