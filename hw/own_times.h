/* own_times.h: reads hw/runtime/GPU.json, which says how long kernels and collectives of our runtime take on a GPU.
 *
 *     {"gpu": "h100-sxm", "title", "machine", "versions", "source", "launch_s", "stream_hop_s",
 *      "peer_gap_s", "calibration": {...}, "curves": [...]}
 *     {"gpu": "h100-sxm", "like": "h200", "source"}     the times of another GPU, with memory-bound kernels
 *                                                      scaled by nominal bandwidth: not calibrated
 *
 * calibration is as in a GPU file, without "like"; for the framework `dtplan` it overrides what the GPU file says.
 * curves are for groups of GPUs in one node (hw/curves) and come before those of the cluster. launch_s is the host's
 * time for one kernel. stream_hop_s is what a collective on a separate stream takes in addition to its time between
 * kernels of one stream. peer_gap_s adds to the calibration's kernel_gap_s between kernels of a graph once the rank has
 * communicators with other GPUs of its host. `dtplan calibrate --backend cuda --framework dtplan` writes such a file.
 */
#ifndef DTP_HW_OWN_TIMES_H
#define DTP_HW_OWN_TIMES_H

#include "hw/cluster.h"

struct dtp_own_times {
    const char *gpu, *like, *title, *machine, *versions, *source;
    double launch_s, stream_hop_s, peer_gap_s, power_limit_w, most_clock_hz;
    const struct dtp_json *calibration, *loads, *curves;
};

/* Returns the path of the file for the GPU of this name, or NULL if there is none. */
const char *dtp_own_times_path(struct dtp_arena *a, const char *gpu);
enum dtp_status dtp_own_times_read(struct dtp_arena *a, const char *path, struct dtp_own_times *out,
                                   struct dtp_err *err);
/* Puts the times into the GPU and the curves of the cluster; DTP_EINPUT if the cluster has another GPU. */
enum dtp_status dtp_own_times_apply(struct dtp_arena *a, const struct dtp_own_times *t,
                                    struct dtp_cluster *c, struct dtp_err *err);

#endif
