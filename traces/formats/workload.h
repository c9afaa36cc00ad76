/* workload.h: text workloads of ASTRA-sim 1, SimAI and AICB: layers with compute and collectives.
 *
 *     line 1   policy, then "key: value" pairs
 *     line 2   number of layers
 *     rows     name dependency, then for forward, input gradient and weight gradient: time,
 *              collective, bytes; then the time of the update. Spaces or tabs, 12 fields.
 *
 * A number of rows other than line 2 says is DTP_EINPUT (such files are published). Times are in units
 * that the file does not tell: ASTRA-sim 1 and SimAI mean cycles of 1 ns, Chakra's converter copies the
 * same numbers as microseconds. The caller says which, unit_s.
 */
#ifndef DTP_TRACES_FORMATS_WORKLOAD_H
#define DTP_TRACES_FORMATS_WORKLOAD_H

#include "traces/formats/intern.h"
#include "traces/formats/source.h"

enum dtp_workload_phase {
    DTP_PHASE_FORWARD,
    DTP_PHASE_INPUT_GRADIENT,
    DTP_PHASE_WEIGHT_GRADIENT,
    DTP_NPHASES
};

struct dtp_workload_layer {
    const char *name;
    struct {
        double compute_s;
        const char *collective; /* ALLREDUCE, ALLTOALL_EP, ..., NONE */
        uint64_t bytes;
    } phase[DTP_NPHASES];
    double update_s;
};

struct dtp_workload {
    const char *policy, *header; /* header: the rest of line 1 */
    struct dtp_workload_layer *layer;
    size_t nlayers;
};

enum dtp_status dtp_workload_read(struct dtp_arena *a, struct dtp_source *source, double unit_s,
                                  struct dtp_workload *out, struct dtp_err *err);

#endif
