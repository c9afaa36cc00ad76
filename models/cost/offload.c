#include "models/cost/offload.h"

/* fp32 weights, momentum and variance are read and written, the gradient is read, 16-bit weights are
 * written: 3 x 8 + 4 + 2. DeepSpeed's CPUAdam updates 3.9e9 parameters a second at 1 to 10 billion (Ren
 * 2021, Table 4), 117 GB/s on a DGX-2's host. */
static const double adam_bytes = 30;
static const double state_bytes = 24; /* of that, what lives on NVMe: read and written */

static int ranks_of_node(const struct dtp_problem *problem) {
    int gpus = problem->cluster->node.gpus;
    return problem->gpus < gpus ? problem->gpus : gpus;
}

/* Bytes per second between one GPU and the host while all of a node do the same. */
static double link_bytes_per_s(const struct dtp_problem *problem) {
    const struct dtp_node *node = &problem->cluster->node;
    double rate = problem->cluster->gpu.offload_bytes_per_s, ranks = ranks_of_node(problem);
    if (node->host_gpu_bytes_per_s > 0 && rate > node->host_gpu_bytes_per_s / ranks)
        rate = node->host_gpu_bytes_per_s / ranks;
    if (rate > node->host_stream_bytes_per_s / ranks)
        rate = node->host_stream_bytes_per_s / ranks;
    return rate;
}

struct dtp_offload_cost dtp_offload_cost(const struct dtp_problem *problem,
                                         const struct dtp_plan *plan, double params) {
    const struct dtp_framework *f = problem->framework;
    const struct dtp_node *node = &problem->cluster->node;
    double link = link_bytes_per_s(problem), on_node = params * ranks_of_node(problem);
    if (plan->offload == DTP_OFFLOAD_NONE || link <= 0)
        return (struct dtp_offload_cost){0};
    struct dtp_offload_cost c = {.down_s = params * f->wire.offload_gradient_bytes / link,
                                 .update_s = on_node * adam_bytes / node->host_stream_bytes_per_s,
                                 .up_s = plan->offload == DTP_OFFLOAD_PARAMETERS
                                             ? 0
                                             : params * f->wire.offload_weight_bytes / link};
    if (plan->offload_to == DTP_OFFLOAD_NVME && node->nvme_bytes_per_s > 0) {
        double disk_s = on_node * state_bytes / node->nvme_bytes_per_s;
        c.update_s = disk_s > c.update_s ? disk_s : c.update_s;
    }
    return c;
}

double dtp_offload_exposed_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                             double params, double backward_s) {
    const struct dtp_framework *f = problem->framework;
    struct dtp_offload_cost c = dtp_offload_cost(problem, plan, params);
    int m = dtp_plan_num_microbatches(plan);
    double times = f->wire.offload_each_microbatch ? m : 1;
    /* With accumulation the sum so far comes up and goes down again. */
    double down_s = f->wire.offload_each_microbatch && m > 1 ? 2 * c.down_s : c.down_s;
    if (f->wire.offload_overlap)
        down_s = down_s > backward_s ? down_s - backward_s : 0;
    return times * down_s + c.update_s + c.up_s;
}

double dtp_offload_fetch_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                           double params) {
    double ranks = plan->zero_group > 0 ? plan->zero_group : (double)plan->dp * plan->cp;
    const struct dtp_node *node = &problem->cluster->node;
    double bytes = params / ranks * problem->framework->keeps.weight_bytes;
    if (plan->offload != DTP_OFFLOAD_PARAMETERS || link_bytes_per_s(problem) <= 0)
        return 0;
    double link_s = bytes / link_bytes_per_s(problem);
    double disk_s = plan->offload_to == DTP_OFFLOAD_NVME && node->nvme_bytes_per_s > 0
                        ? bytes * ranks_of_node(problem) / node->nvme_bytes_per_s
                        : 0;
    return link_s > disk_s ? link_s : disk_s;
}
