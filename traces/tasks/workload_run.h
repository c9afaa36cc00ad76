/* workload_run.h: simulators' workloads and Chakra graphs run on a cluster, through the engine.
 *
 * Text workloads (ASTRA-sim 1, SimAI). All ranks do the same, so that one stands for all. Forward: each
 * layer computes and then waits for its collective. Backward, last layer first: the weight gradient
 * computes and its collective starts, which nothing waits for but the layer's update; then the input
 * gradient computes and waits for its collective. Where the header has checkpoints, the layers between
 * a checkpoint and its initiate compute forward again first. Then the updates. (ASTRA-sim 1, the training
 * loops of Workload.cc.)
 *
 *     groups     forward and input gradient: tensor; weight gradient: data; _EP: expert; _DP_EP: expert data.
 *                Sizes: model_parallel_NPU_group, ep, pp of the header; HYBRID_DATA_MODEL without them:
 *                tensor inside the node; DATA, MICRO, HYBRID_DLRM: all GPUs together; MODEL: all tensor
 *     bytes      as collective.h: of all-gather and reduce-scatter the whole buffer
 *     pipeline   rows of one stage only: transfers and bubble are not in the file, and not counted
 *
 * AICB's rows run one after the other, with the group sizes that they name.
 *
 * Chakra graphs, one file a rank. A node starts when its data dependencies have ended and the node before
 * it on its resource (host, compute, memory, a group's communicator) of its rank has. A collective of a group ends
 * on all ranks together, a send with its receive. The one graph of an unfinished set stands for all
 * ranks: its collectives are of all GPUs, and a transfer without its other side takes its own time.
 */
#ifndef DTP_TRACES_TASKS_WORKLOAD_RUN_H
#define DTP_TRACES_TASKS_WORKLOAD_RUN_H

#include "hw/placement.h"
#include "traces/formats/aicb.h"
#include "traces/formats/chakra.h"
#include "traces/tasks/tasks.h"
#include "traces/formats/workload.h"

enum dtp_workload_stream {
    DTP_WORKLOAD_COMPUTE,
    DTP_WORKLOAD_TENSOR,
    DTP_WORKLOAD_DATA,
    DTP_WORKLOAD_EXPERT,
    DTP_WORKLOAD_EXPERT_DATA,
    DTP_WORKLOAD_TRANSFER,
    DTP_WORKLOAD_COMMUNICATION, /* all communication of a graph */
    DTP_NWORKLOAD_STREAMS
};
extern const char *const dtp_workload_stream_name[DTP_NWORKLOAD_STREAMS];

struct dtp_workload_result {
    double step_s;
    double busy_s
        [DTP_NWORKLOAD_STREAMS]; /* time on one rank; graphs fill compute and, as "tensor", all their
                                      * communication */
    int gpus;
    struct dtp_sizes sizes; /* all data of a graph */
    uint64_t unmatched;     /* transfers and collectives whose other side has no file */
    struct dtp_tasks *tasks;
};

/* gpus 0: as many as the file says; DTP_EINPUT where it does not, or where the groups do not fit. */
enum dtp_status dtp_workload_run(struct dtp_arena *a, const struct dtp_workload *w,
                                 const struct dtp_cluster *c, int gpus,
                                 struct dtp_workload_result *out, struct dtp_err *err);
enum dtp_status dtp_aicb_run(struct dtp_arena *a, const struct dtp_aicb *w,
                             const struct dtp_cluster *c, int gpus, struct dtp_workload_result *out,
                             struct dtp_err *err);
/* graph[r] is of rank r. */
enum dtp_status dtp_chakra_run(struct dtp_arena *a, const struct dtp_chakra *const *graph,
                               size_t nranks, const struct dtp_cluster *c, int gpus,
                               struct dtp_workload_result *out, struct dtp_err *err);

#endif
