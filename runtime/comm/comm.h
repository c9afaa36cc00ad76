/* comm.h: the table of communication operations, and how to open one.
 *
 * A communicator connects the R ranks of a job; groups are subsets. Implementations: shared memory
 * (ranks are processes of one host), TCP (ranks on several hosts), NCCL (in the CUDA module).
 *
 *   all_reduce      x[n] <- sum (or max) over the group, in rank order: deterministic
 *   reduce_scatter  out[n] <- part `me` of the sum of in[size * n]; out may be in + me * n
 *   all_gather      out[size * n] <- in[n] of rank 0, 1, ...; in may be out + me * n
 *   all_to_all      out part j <- part `me` of in of rank j; n elements each
 *   send, recv      point to point, matched by (from, tag); a send never blocks for its receiver as
 *                   long as the job has no more in flight than dtp_comm_config says; the buffer of a
 *                   send may be reused when its event (stream order) has passed - on the CPU at once
 *   barrier         of a group
 * Collectives are called by all members in the same order. Every call names the stream it belongs to;
 * CPU implementations return when it is done. Counts are elements of `dtype`.
 *
 * Failure. Every wait has a time-out and watches the board: one rank's abort() ends the waits of all
 * others with DTP_ENO, and the first message is kept. A rank that died is found by its process id; a
 * rank that hangs by the time-out, which names the rank that shows no life and its action: who waits says
 * so now and then (doing), also while it waits for its device.
 */
#ifndef DTP_RUNTIME_COMM_H
#define DTP_RUNTIME_COMM_H

#include "models/plan/plan.h"
#include "runtime/device/backend.h"

struct dtp_comm_ops;

/* A job of which one rank runs, alone ("shadow"): its exact schedule and shapes, and instead of each
 * collective or message a wait of the length that hw/collective.h predicts, on the same stream. What
 * would arrive stays what the memory held. The world and tied embeddings use the shape of the dp (pp)
 * axis cut to their size; a message waits for its own transfer only, not for its sender. */
struct dtp_shadow {
    const struct dtp_cluster *cluster;
    const struct dtp_plan *plan;
};

/* Each rank is in at most one group of a kind. */
enum dtp_group_kind {
    DTP_GROUP_WORLD,
    DTP_GROUP_TP,
    DTP_GROUP_DP,
    DTP_GROUP_KV,         /* ranks that hold the same key-value head (kv_heads < tp) */
    DTP_GROUP_EMBEDDING,  /* first and last stage: tied embeddings */
    DTP_GROUP_PP,         /* neighbours, which send to each other */
    DTP_GROUP_PP_RING,    /* the last stage with the first, where chunks go round */
    DTP_GROUP_PP_AGAINST, /* neighbours, where chunks go back (V) */
    DTP_NGROUPS
};

struct dtp_comm_config {
    int rank, size;
    int local_rank, local_size;
    uint64_t staging_bytes; /* per rank and group, a multiple of 4096 */
    uint64_t message_bytes; /* largest p2p message */
    int nmessages;          /* most messages of one sender in flight */
    double timeout_s;
    /* Shared memory: a mapping made before the fork, or NULL: by rendezvous. Its size is
     * dtp_comm_shm_bytes(). */
    void *shared;
    struct dtp_dev *device;              /* NCCL */
    const struct dtp_endpoint *endpoint; /* launch.h; NULL after a fork */
    const struct dtp_shadow *shadow;     /* "shadow": NULL for the communicator of host memory */
    struct dtp_comm *host; /* NCCL: the open communicator of host memory, to exchange its ids */
};

/* Implementations embed these as their first members. */
struct dtp_comm {
    const struct dtp_comm_ops *ops;
    int rank, size;
};
struct dtp_comm_group {
    struct dtp_comm *comm;
    int size, me;    /* me: index of this rank in the group */
    const int *rank; /* [size] global ranks, ascending */
};

enum dtp_reduce_op { DTP_REDUCE_SUM, DTP_REDUCE_MAX };

struct dtp_comm_ops {
    const char *name; /* "shm", "tcp", "nccl" */
    enum dtp_status (*open)(struct dtp_arena *a, const struct dtp_comm_config *config,
                            struct dtp_comm **out, struct dtp_err *err);
    void (*close)(struct dtp_comm *c);
    /* Called by all its members, groups of a kind in the same order. size 1 is fine. */
    enum dtp_status (*group)(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                             const int *ranks, int nranks, struct dtp_comm_group **out,
                             struct dtp_err *err);
    /* Called by all ranks, when each has called group() for all that its plan needs, before anything is sent in
     * them. NULL: there is nothing to do. */
    enum dtp_status (*join)(struct dtp_comm *c, struct dtp_err *err);
    enum dtp_status (*all_reduce)(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                  int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                  struct dtp_err *err);
    enum dtp_status (*reduce_scatter)(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                      const void *in, int64_t n, enum dtp_dtype dtype,
                                      struct dtp_err *err);
    enum dtp_status (*all_gather)(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                  const void *in, int64_t n, enum dtp_dtype dtype,
                                  struct dtp_err *err);
    enum dtp_status (*all_to_all)(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                  const void *in, int64_t n, enum dtp_dtype dtype,
                                  struct dtp_err *err);
    enum dtp_status (*send)(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                            uint64_t bytes, int to, uint64_t tag, struct dtp_err *err);
    enum dtp_status (*recv)(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                            int from, uint64_t tag, struct dtp_err *err);
    enum dtp_status (*barrier)(struct dtp_comm_group *g, struct dtp_err *err);
    /* Tells the others, for messages, what this rank does ("0F3" of step 7), and that it is alive. NULL means that
     * it still does the same. A call is cheap. */
    void (*doing)(struct dtp_comm *c, const char *action);
    /* Who holds up the job, for the message of a rank that has waited in vain. */
    void (*hang)(struct dtp_comm *c, double waited_s, char *text, size_t size);
    /* Ends the job: all waits of all ranks fail with this message. Safe to call once or more. */
    void (*abort)(struct dtp_comm *c, const char *message);
};

/* Tells a module that was built from other headers. */
#define DTP_TABLE_BYTES                                                                            \
    (sizeof(struct dtp_dev_ops) << 32 | sizeof(struct dtp_comm_ops) << 16 |                        \
     sizeof(struct dtp_comm_config) << 8 | sizeof(struct dtp_dev_config))

/* Fills in what every group has: its members, and which of them this rank is. */
static inline enum dtp_status dtp_comm_members(struct dtp_arena *a, struct dtp_comm *c,
                                               const int *ranks, int nranks,
                                               struct dtp_comm_group *out, struct dtp_err *err) {
    int *copy = DTP_NEW(a, int, (size_t)nranks), me = -1;
    for (int i = 0; i < nranks; i++) {
        copy[i] = ranks[i];
        me = ranks[i] == c->rank ? i : me;
    }
    *out = (struct dtp_comm_group){.comm = c, .size = nranks, .me = me, .rank = copy};
    if (me < 0)
        return dtp_fail(err, DTP_EINPUT, "rank %d is no member of the group it opens", c->rank);
    return DTP_OK;
}
/* out <- out + x, or the larger of both. */
static inline void dtp_comm_combine(float *out, const float *x, int64_t n, enum dtp_reduce_op op) {
    for (int64_t i = 0; op == DTP_REDUCE_SUM && i < n; i++)
        out[i] += x[i];
    for (int64_t i = 0; op == DTP_REDUCE_MAX && i < n; i++)
        out[i] = x[i] > out[i] ? x[i] : out[i];
}
static inline enum dtp_status dtp_comm_only_fp32(const char *what, enum dtp_dtype dtype,
                                                 struct dtp_err *err) {
    if (dtype == DTP_FP32)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED, "%s reduces fp32, not %s", what, dtp_dtype_names[dtype]);
}

/* name: "shm", "tcp", "shadow" or "nccl". */
enum dtp_status dtp_comm_find(const char *name, const struct dtp_comm_ops **out,
                              struct dtp_err *err);
const struct dtp_comm_ops *dtp_shm_comm_ops(void);
const struct dtp_comm_ops *dtp_tcp_comm_ops(void);
const struct dtp_comm_ops *dtp_shadow_comm_ops(void);

/* ---- the board of a shared-memory job, also for the process that forked the ranks ---- */

uint64_t dtp_comm_shm_bytes(const struct dtp_comm_config *config);
/* A private name-less mapping for ranks that will be forked. */
enum dtp_status dtp_comm_shm_map(const struct dtp_comm_config *config, void **out,
                                 struct dtp_err *err);
void dtp_comm_shm_unmap(const struct dtp_comm_config *config, void *shared);
/* Returns the first message of an abort, or NULL; *rank is the rank that sent it. */
const char *dtp_comm_shm_message(const void *shared, int *rank);
void dtp_comm_shm_abort(void *shared, int rank, const char *message);
const char *dtp_comm_shm_doing(const void *shared, int rank);

#endif
