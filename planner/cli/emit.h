/* emit.h: what starts a plan: a job script of dtplan's runtime, or the settings of another stack. */
#ifndef DTP_PLANNER_CLI_EMIT_H
#define DTP_PLANNER_CLI_EMIT_H

#include "planner/setup.h"

extern const char *const dtp_emit_names[]; /* "none", "slurm", "torchrun", "megatron", ..., NULL */
#define DTP_EMIT_NONE 0

/* kind: index into dtp_emit_names. slurm and torchrun start `dtplan run`; the others write the settings
 * of their stack (arguments, TOML, JSON, YAML), layout and model, nothing about data or learning rate.
 * A model without a name for the command line, or a plan made for another stack, gives status
 * DTP_EUNSUPPORTED. Nodes and GPUs per node are the cluster's. `dtplan trace` reads the settings back, except
 * what a stack has no setting for: GPUs and model (Megatron gives the model, nanotron and torchtitan the GPUs);
 * Megatron's schedule gpipe; torchtitan's tp without sequence parallelism, and etp without ep; DeepSpeed's
 * recomputation and groups of ZeRO (tests/property/test_emitted.c). */
enum dtp_status dtp_emit_script(struct dtp_arena *a, FILE *f, int kind,
                                const struct dtp_setup *setup, const struct dtp_plan *plan,
                                struct dtp_err *err);
/* The framework whose settings a kind writes, or NULL: a script. */
const char *dtp_emit_framework(int kind);

#endif
