/* own_times.h: hw/runtime/GPU.json: how long the kernels and collectives of our own runtime take on a GPU.
 *
 *     {"gpu": "h100-sxm", "title", "machine", "versions", "source", "launch_s", "stream_hop_s",
 *      "peer_gap_s", "calibration": {...}, "curves": [...]}
 *     {"gpu": "h100-sxm", "like": "h200", "source"}     that of another, memory-bound kernels scaled by
 *                                                      the nominal bandwidth: not calibrated
 *
 * calibration: as in a GPU file, without "like"; for the framework `dtplan` it goes over what the GPU file
 * says. curves: of groups of GPUs of one node (hw/curves), before those of the cluster. launch_s: of the
 * host, for one kernel. stream_hop_s: what a collective on a stream of its own takes beside its time between
 * kernels of one stream. peer_gap_s: between two kernels of a graph beside the calibration's kernel_gap_s, once the rank
 * has communicators with other GPUs of its host. `dtplan calibrate --backend cuda --framework dtplan` writes such a file.
 */
#ifndef DTP_HW_OWN_TIMES_H
#define DTP_HW_OWN_TIMES_H

#include "hw/cluster.h"

struct dtp_own_times {
    const char *gpu, *like, *title, *machine, *versions, *source;
    double launch_s, stream_hop_s, peer_gap_s, power_limit_w, most_clock_hz;
    const struct dtp_json *calibration, *loads, *curves;
};

/* Path of the file for a GPU by its name, or NULL. */
const char *dtp_own_times_path(struct dtp_arena *a, const char *gpu);
enum dtp_status dtp_own_times_read(struct dtp_arena *a, const char *path, struct dtp_own_times *out,
                                   struct dtp_err *err);
/* Into the GPU and the curves of the cluster; DTP_EINPUT where the cluster has another GPU. */
enum dtp_status dtp_own_times_apply(struct dtp_arena *a, const struct dtp_own_times *t,
                                    struct dtp_cluster *c, struct dtp_err *err);

#endif
