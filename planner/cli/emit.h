/* emit.h: the script that starts a plan on a cluster: Slurm's job script, or torchrun's command. */
#ifndef DTP_PLANNER_CLI_EMIT_H
#define DTP_PLANNER_CLI_EMIT_H

#include "planner/setup.h"

enum dtp_emit { DTP_EMIT_NONE, DTP_EMIT_SLURM, DTP_EMIT_TORCHRUN };
extern const char *const dtp_emit_names[]; /* "none", "slurm", "torchrun", NULL */

/* Nodes and GPUs per node are the cluster's. An embedded model has no name that a command line could
 * give: status DTP_EUNSUPPORTED. */
enum dtp_status dtp_emit_script(struct dtp_arena *a, FILE *f, enum dtp_emit kind,
                                const struct dtp_setup *setup, const struct dtp_plan *plan,
                                struct dtp_err *err);

#endif
