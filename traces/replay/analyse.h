/* analyse.h: where the time of a measured job goes, per rank and step. Definitions:
 *
 *     work        kernels, memcpy and memset; nothing else makes a device busy
 *     span        first start to last end of the work
 *     busy        length of the union of the work; idle = span - busy
 *     compute     union of the work that is neither communication nor memory
 *     comm        union of the kernels named nccl (NCCL and RCCL)
 *     memory      union of memcpy and memset
 *     overlap     length of compute AND comm; overlap_pct = overlap / comm
 *     exposed     comm not under compute; memory not under compute or comm
 *
 * A step has the work whose launching call starts in it: host time [start, start + wall). Steps are the
 * ProfilerStep annotations; without any, from one optimizer step's end to the next; else the trace.
 *
 * `--hta-compat`: as Holistic Trace Analysis does, for comparison only: fractional microseconds are
 * rounded inward (start up, end down), work launched at or after the last step begins is left
 * out, and with it the last step. That loses 18 % of the compute of a trace of short kernels.
 */
#ifndef DTP_TRACES_REPLAY_ANALYSE_H
#define DTP_TRACES_REPLAY_ANALYSE_H

#include "traces/formats/trace.h"

struct dtp_trace_times {
    int64_t span_ns, busy_ns, idle_ns, compute_ns, comm_ns, memory_ns;
    int64_t overlap_ns;           /* compute and communication at once */
    int64_t sum_ns[DTP_NCLASSES]; /* durations added */
    uint64_t n[DTP_NCLASSES];
};

void dtp_trace_times_all(const struct dtp_trace_rank *r, struct dtp_trace_times *out);
/* The work launched by calls that start in [from_ns, to_ns). */
void dtp_trace_times_launched(const struct dtp_trace_rank *r, int64_t from_ns, int64_t to_ns,
                              struct dtp_trace_times *out);
void dtp_trace_times_hta(const struct dtp_trace_rank *r, struct dtp_trace_times *out);
double dtp_trace_overlap_pct(const struct dtp_trace_times *t);

/* Steps as above; *out lives in a. */
void dtp_trace_steps(struct dtp_arena *a, const struct dtp_trace_rank *r,
                     const struct dtp_trace_step **out, size_t *out_n);

/* Work by name, the longest sum first. */
struct dtp_trace_by_name {
    const char *name;
    uint64_t count;
    int64_t sum_ns;
};
void dtp_trace_kernels(struct dtp_arena *a, const struct dtp_trace_rank *r,
                       const struct dtp_trace_by_name **out, size_t *out_n);

/* First start to last end of all events. */
int64_t dtp_trace_span_ns(const struct dtp_trace_rank *r);
int64_t dtp_trace_first_ns(const struct dtp_trace_rank *r); /* start of the first of them */
/* Time in which the device waits for the host: it is idle and the next work was launched, by a
 * call that started, after the idle time began. */
int64_t dtp_trace_launch_bound_ns(const struct dtp_trace_rank *r);
/* Stretches of it: from where the device began to wait, over work that each time came late, to the first
 * that was there before the device was free. The most idle first. */
struct dtp_trace_stretch {
    int64_t start_ns, end_ns, idle_ns;
    uint64_t nwork;
};
void dtp_trace_launch_bound(struct dtp_arena *a, const struct dtp_trace_rank *r,
                            struct dtp_trace_stretch **out, size_t *out_n);

#endif
