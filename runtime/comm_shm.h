/* comm_shm.h: layout of the memory that the ranks of one host share.
 *
 *   board     one: abort flag and message; per rank its process id, what it does, whether it waits
 *   stage     per rank and kind of group: barrier words and two halves of staging memory
 *   box       per sending rank: message slots; a slot is free or full, only its sender fills it and
 *             only its receiver frees it
 * Everything is reached by offset, since processes map it at different addresses. Zero bytes are the
 * valid initial state. */
#ifndef DTP_RUNTIME_COMM_SHM_H
#define DTP_RUNTIME_COMM_SHM_H

#include <stdatomic.h>

#include "runtime/comm.h"

/* A counter that others wait on; waiters tells whether a wake-up call is needed. */
struct dtp_gate {
    atomic_uint value, waiters;
};

struct dtp_rank_state {
    atomic_int process;
    atomic_llong seen_ns; /* alive then; dtp_os_now_ns(), one clock for all processes */
    char doing[56];
};

struct dtp_board {
    atomic_uint aborted; /* 0 no, 1 message under way, 2 message there */
    atomic_int abort_rank;
    struct dtp_gate attached; /* ranks that have mapped the memory */
    char message[1024];
    struct dtp_rank_state rank[]; /* [size] */
};

struct dtp_stage_words {
    atomic_uint arrived;
    struct dtp_gate generation;
};

enum dtp_slot_state { DTP_SLOT_FREE, DTP_SLOT_FULL };
struct dtp_slot {
    atomic_uint state;
    int to;
    uint64_t tag, bytes;
};
struct dtp_box {
    struct dtp_gate posted, freed;
    struct dtp_slot slot[]; /* [nmessages] */
};

struct dtp_shm_layout {
    uint64_t stage_bytes, box_bytes;       /* of one */
    uint64_t stages_at, boxes_at, data_at; /* offsets */
    uint64_t slot_bytes;                   /* room for one message */
    uint64_t total_bytes;
};

struct dtp_shm {
    struct dtp_comm comm;
    struct dtp_comm_config config;
    struct dtp_shm_layout layout;
    char *memory;
    struct dtp_board *board;
    bool owns_memory; /* mapped by open, not by the process that forked */
    bool spin;        /* there is a core for every rank */
};

/* Waits until the gate's value is not `old`. DTP_ENO when the job was aborted meanwhile, a rank died or
 * the time-out passed: then it aborts the job itself. */
enum dtp_status dtp_shm_wait(struct dtp_shm *s, struct dtp_gate *gate, unsigned old,
                             struct dtp_err *err);
void dtp_shm_open_gate(struct dtp_gate *gate); /* adds 1 and wakes */

/* comm_shm_p2p.c */
enum dtp_status dtp_shm_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                             uint64_t bytes, int to, uint64_t tag, struct dtp_err *err);
enum dtp_status dtp_shm_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                             int from, uint64_t tag, struct dtp_err *err);
/* comm_shm_collective.c */
enum dtp_status dtp_shm_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                              const int *ranks, int nranks, struct dtp_comm_group **out,
                              struct dtp_err *err);
enum dtp_status dtp_shm_all_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                   int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                   struct dtp_err *err);
enum dtp_status dtp_shm_reduce_scatter(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                       const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err);
enum dtp_status dtp_shm_all_gather(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err);
enum dtp_status dtp_shm_all_to_all(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err);
enum dtp_status dtp_shm_barrier(struct dtp_comm_group *g, struct dtp_err *err);

#endif
