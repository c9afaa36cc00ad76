/* streams.h: what each stream of a device did, and the bubble of a pipeline.
 *
 * A stream's busy time is the union of its work. The bubble is found from the pattern of transfers: a job
 * whose ranks exchange send/recv kernels is a pipeline; per step, the window goes from the first to the
 * last compute of any rank (clocks aligned, work by the step that its host calls belong to), and
 *
 *     bubble    = mean over the ranks of 1 - compute / window    (Narayanan 2021, section 2.2)
 *     waiting   = mean over the ranks of the time in send/recv kernels before the last rank came,
 *                 over the window: what of it other ranks explain; the rest is the host's and copies
 */
#ifndef DTP_TRACES_REPLAY_STREAMS_H
#define DTP_TRACES_REPLAY_STREAMS_H

#include "traces/replay/match.h"

struct dtp_trace_stream {
    int64_t device, stream;
    int64_t first_ns, last_ns, busy_ns;
    int64_t class_ns[DTP_NCLASSES]; /* durations added */
    uint64_t nwork;
};
/* Streams with work, the busiest first. */
void dtp_trace_streams(struct dtp_arena *a, const struct dtp_trace_rank *r,
                       struct dtp_trace_stream **out, size_t *out_n);

struct dtp_trace_bubble {
    bool found; /* a pipeline of two ranks or more */
    double window_s, fraction, waiting_fraction;
};
/* Measures the pipeline bubble of the step number `step` (dtp_trace_steps) of every rank. */
void dtp_trace_pipeline_bubble(struct dtp_arena *a, const struct dtp_trace *t,
                               const struct dtp_matches *m, size_t step,
                               struct dtp_trace_bubble *out);

#endif
