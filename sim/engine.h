/* engine.h: runs a frozen graph on a platform, event by event.
 *
 * Events are ordered by (time, sequence number), so that equal inputs give equal bytes. Simultaneous
 * ends are all taken before rates are solved anew. Tasks without uses and without a device cost one
 * heap operation; a graph with no link and no load at all runs as a plain longest path.
 *
 * Units: seconds. The engine allocates in `a`: its state and the timeline. Errors: DTP_EINPUT when a
 * task can never end (a rate of 0), naming it.
 */
#ifndef DTP_SIM_ENGINE_H
#define DTP_SIM_ENGINE_H

#include "sim/graph.h"
#include "sim/timeline.h"

enum dtp_status dtp_engine_run(struct dtp_arena *a, const struct dtp_platform *p,
                               const struct dtp_graph *g, struct dtp_timeline *out,
                               struct dtp_err *err);

#endif
