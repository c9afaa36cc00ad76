/* verb_infer.h: what the verb infer shares with others. */
#ifndef DTP_PLANNER_CLI_VERB_INFER_H
#define DTP_PLANNER_CLI_VERB_INFER_H

#include "traces/replay/infer.h"

/* Name of a cluster whose GPU the device's name has ("NVIDIA H200"), with room for the ranks; NULL: none. */
const char *dtp_cli_cluster_of(struct dtp_arena *a, const char *device, int gpus);

#endif
