/* calibrate_cuda.h: dtplan calibrate --backend cuda.
 *
 * Runs dtplan-calibrate-cuda (runtime/cuda/calibrate.cuh), which lies beside this program or in $PATH or
 * is named by $DTPLAN_CALIBRATE_CUDA; its sweep stays as OUT.sweep.json. Then the GPU file whose
 * sweep_names hold the GPU found is fitted to it, as with --from, and written to OUT. */
#ifndef DTP_PLANNER_CLI_CALIBRATE_CUDA_H
#define DTP_PLANNER_CLI_CALIBRATE_CUDA_H

#include "planner/cli/cli.h"

/* gpu NULL: by the name that the driver reports; out NULL: GPU.json. DTP_EUNSUPPORTED, naming what is
 * missing, without the program or without a GPU. */
enum dtp_status dtp_calibrate_cuda(struct dtp_cli *cli, const char *gpu, const char *out,
                                   struct dtp_err *err);

#endif
