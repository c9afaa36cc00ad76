/* cluster_replay.h: the jobs of a cluster's trace run again on N nodes, under another queue.
 *
 * A job needs its GPUs all at once: whole nodes first, what is left of them on the node where it leaves
 * the least free. Its run takes what the trace says, times time_factor; its nodes are its own until it ends.
 *
 *     FIFO       in order of submission; who does not fit holds up all behind
 *     BACKFILL   EASY (Lifka 1995): the first in the queue has the earliest time at which it will fit;
 *                later ones may start now if they do not move that time, run times being known
 *
 * Failures: an interruption every gpu_hours_per_failure / GPUs hours on average, exponential, drawn from the
 * job's own stream; it costs restart_s and what was done since the last checkpoint. The job keeps its
 * nodes meanwhile.
 *
 *     queueing     start - submission                  utilisation  GPU time allocated / capacity
 *     goodput      GPU time of run (no restarts, no lost work) x efficiency / capacity
 *     capacity     GPUs x (last end - first submission)
 */
#ifndef DTP_TRACES_JOBS_CLUSTER_REPLAY_H
#define DTP_TRACES_JOBS_CLUSTER_REPLAY_H

#include "traces/jobs/jobs.h"

enum dtp_queue_policy { DTP_QUEUE_FIFO, DTP_QUEUE_BACKFILL, DTP_NQUEUE_POLICIES };

/* The speed of a job of so many GPUs here: efficiency is throughput per GPU over the best of any size,
 * 0 .. 1; time_factor is its run time here over that of the trace. */
struct dtp_job_speed {
    double efficiency, time_factor;
};

struct dtp_cluster_replay_options {
    int nodes, gpus_per_node;
    enum dtp_queue_policy policy;
    double gpu_hours_per_failure; /* 0: none */
    double restart_s, checkpoint_s;
    uint64_t seed;
    struct dtp_job_speed (*speed)(const void *ctx, double gpus); /* NULL: {1, 1} */
    const void *speed_ctx;
};

struct dtp_job_run {
    const struct dtp_job *job;
    double start_s, end_s; /* here */
    double wait_s, lost_s; /* lost: restarts and repeated work */
    int failures;
};

enum { DTP_JOB_SIZES = 4 }; /* parts of a node, one node, up to 8 nodes, more */
extern const char *const dtp_job_size_words[];
struct dtp_job_size {
    uint64_t n;
    double wait_s, gpu_s; /* mean; sum */
};

struct dtp_cluster_replay {
    struct dtp_job_run *run; /* in order of submission */
    size_t n;
    uint64_t unknown,
        too_large;          /* jobs left out: no GPUs or no run time; more than the cluster has */
    double too_large_share; /* share of the GPU time of all jobs whose GPUs and time are known */
    double span_s, utilisation, goodput;
    double wait_mean_s, wait_median_s, wait_p90_s, wait_p99_s;
    double recorded_wait_s; /* mean in the trace, of the jobs that have both; DTP_JOB_UNKNOWN */
    uint64_t failures;
    double lost_gpu_s;
    struct dtp_job_size size[DTP_JOB_SIZES];
};

/* Runs the jobs in order of submission. DTP_EUSAGE: no nodes; DTP_EINPUT: no jobs; DTP_ENO: none that can run. */
enum dtp_status dtp_cluster_replay(struct dtp_arena *a, const struct dtp_jobs *jobs,
                                   const struct dtp_cluster_replay_options *options,
                                   struct dtp_cluster_replay *out, struct dtp_err *err);

#endif
