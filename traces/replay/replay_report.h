/* replay_report.h: a replay as text and as JSON (definitions are printed with both). */
#ifndef DTP_TRACES_REPLAY_REPLAY_REPORT_H
#define DTP_TRACES_REPLAY_REPLAY_REPORT_H

#include "traces/replay/replay.h"

/* The steps of all ranks together: from the first begin to the last end. Means leave out the first of three or
 * more, which warms up. */
struct dtp_replayed_job {
    size_t nsteps; /* steps that the means are over */
    double measured_s, replayed_s, host_s, replayed_host_s;
};

/* Why what-ifs on this replay of the trace as measured are a guess; NULL: they are not. */
const char *dtp_replay_doubt(struct dtp_arena *a, const struct dtp_replay *measured);

struct dtp_replay_report {
    const struct dtp_replay *replay;   /* under the what-if, or as measured */
    const struct dtp_replay *measured; /* the replay of the trace as it is */
    const struct dtp_trace *trace;
    bool what_if, hta_compat;
    bool steps; /* a table of the steps is all that is asked */
};

bool dtp_replay_is_what_if(const struct dtp_replay_options *o);
/* One paragraph: what the figures mean. */
extern const char dtp_replay_definitions[];
void dtp_replay_print(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report);
void dtp_replay_write_json(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report);

#endif
