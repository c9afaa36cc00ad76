/* replay.h: a measured job run again from its dependencies.
 *
 * A trace becomes a graph of tasks (sim/graph.h) that the engine runs:
 *
 *     host   a call starts when the call before it on its thread has ended, plus the host's own time
 *            between them; where one thread waits for another (the backward pass of autograd),
 *            after the call that handed over. A call that synchronises ends after the work it waits for.
 *     work   a kernel or copy starts when the work before it on its stream, its launch and the work of
 *            the streams it was told to wait for have ended, plus the latency of a start
 *     collective   starts on each rank like a kernel and ends on all ranks transfer_ns after the last
 *            start (match.h): what the others wait is a result, not an input
 *
 * Work that follows its launch, and work that follows other work (while none, one or more streams have work that
 * waits), each have one latency a kernel, the mean over its starts; a start that was sooner has its own. What a
 * start took longer stays in the replay as a wait named unexplained, which no what-if changes, so that the
 * replay as measured ends when the trace does. explained_pct is the share of the ranks' spans without such
 * waits. dtp_replay_doubt() says when a what-if is no more than a guess.
 *
 * What-if: the same graph with other durations. A transfer is latency + bytes / bandwidth: the latency of an
 * operation and group is fitted over the sizes that the trace has of them, t = a + b bytes with each size's
 * median; where there is one size, it is what the collective model says of the cluster. network_bandwidth k
 * divides the part above the latency by k, network_latency k multiplies the latency by k. kernel_speed k: compute kernels take 1/k; memory_speed k: copies; host_speed k:
 * the host. One rank's kernels, one rank's start or one collective can be slowed alone.
 */
#ifndef DTP_TRACES_REPLAY_REPLAY_H
#define DTP_TRACES_REPLAY_REPLAY_H

#include "traces/replay/analyse.h"
#include "traces/replay/critical.h"
#include "traces/replay/match.h"
#include "traces/replay/whatif.h"

struct dtp_replay_options {
    enum dtp_align align;
    double network_bandwidth, network_latency, kernel_speed, memory_speed,
        host_speed;  /* 1: as measured */
    const char *op;  /* kernels whose name has this text ... */
    double op_speed; /* ... are that much faster */
    int slow_rank;   /* rank whose compute kernels take slow_by times as long; -1: none */
    double slow_by;
    int delayed_rank; /* rank whose host starts delay_s later; -1: none */
    double delay_s;
    int slow_collective; /* in order of ends, from 0, takes slow_collective_by as long; -1: none */
    double slow_collective_by;
    const char *overlap;   /* operations with this text hold up nothing but the end of their step */
    uint64_t bucket_bytes; /* reductions of a group that follow one another share a transfer up to
                              this size; 0: as measured */
    struct dtp_whatif other;      /* hardware, kernels */
    bool remove_straggler;        /* no rank takes longer to a collective than the median rank */
    struct dtp_tasks **out_tasks; /* the job as replayed, to write (tasks.h); NULL: not wanted */
};
#define DTP_REPLAY_AS_MEASURED                                                                     \
    ((struct dtp_replay_options){.network_bandwidth = 1,                                           \
                                 .network_latency = 1,                                             \
                                 .kernel_speed = 1,                                                \
                                 .memory_speed = 1,                                                \
                                 .host_speed = 1,                                                  \
                                 .op_speed = 1,                                                    \
                                 .slow_rank = -1,                                                  \
                                 .slow_by = 1,                                                     \
                                 .delayed_rank = -1,                                               \
                                 .slow_collective = -1,                                            \
                                 .slow_collective_by = 1})

/* A step ends when the last device work launched in it has ended and its host part, too. It begins with its host
 * part or, where the host runs ahead of the device, when the step before it has ended. */
struct dtp_replayed_step {
    const char *name;
    double measured_s, replayed_s;
    double start_s, replayed_start_s;
    double host_s, replayed_host_s; /* the host part alone; 0 in timelines of dtplan */
};

/* What the latency of an operation in a group is taken for. */
struct dtp_replay_network {
    enum dtp_comm_op op;
    const char *group;
    int group_size, nsizes;
    double latency_s;
    const char *from; /* "2 sizes of the trace", "model of h100", "no model: none" */
};

struct dtp_replayed_comm {
    enum dtp_comm_op op;
    int group_size;
    uint64_t bytes;
    double start_s, end_s, replayed_end_s; /* since the first event of all ranks, clocks aligned */
    double transfer_s, waiting_s;
};

struct dtp_replayed_rank {
    const struct dtp_trace_rank *rank;
    struct dtp_replayed_step *step;
    size_t nsteps;
    struct dtp_replayed_comm *comm; /* by end */
    size_t ncomms;
    double unexplained_s, span_s; /* span: first call or work to last end */
    double replayed_end_s, measured_end_s;
};

struct dtp_replay {
    struct dtp_replayed_rank *rank;
    size_t nranks;
    double explained_pct;
    uint32_t ntasks;
    uint64_t nwork; /* pieces of device work */
    struct dtp_matches matches;
    struct dtp_critical critical;       /* ends with the job */
    struct dtp_replay_network *network; /* [nnetwork]; none unless a what-if is about the network */
    size_t nnetwork;
};

enum dtp_status dtp_replay(struct dtp_arena *a, struct dtp_trace *t,
                           const struct dtp_replay_options *options, struct dtp_replay *out,
                           struct dtp_err *err);
/* Replays a timeline that dtplan wrote (t->tasks): its dependencies are in the file. */
enum dtp_status dtp_replay_tasks(struct dtp_arena *a, struct dtp_trace *t,
                                 const struct dtp_replay_options *options, struct dtp_replay *out,
                                 struct dtp_err *err);

#endif
