/* calibration.h: what runtime/measure.h measured, as a cluster file with its device inside. */
#ifndef DTP_PLANNER_CLI_CALIBRATION_H
#define DTP_PLANNER_CLI_CALIBRATION_H

#include "runtime/measure/measure.h"

/* Measures, and writes the file; a note on stderr says how long it takes. */
enum dtp_status dtp_calibration_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                     const char *path, struct dtp_measured *out,
                                     struct dtp_err *err);

/* ---- our runtime on this machine's GPUs, as a file of hw/own_times.h ---- */

/* GPUs of `backend`, groups of up to nranks of them (0: all there are); *path NULL: named after the GPU. */
enum dtp_status dtp_own_times_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                   const char **path, struct dtp_measured *out,
                                   struct dtp_err *err);
void dtp_own_times_report(FILE *f, const struct dtp_measured *m, const char *path);

/* False where nothing was measured. Watts above idle of a class of kernels. */
bool dtp_own_power(const struct dtp_measured *m, struct dtp_power_cal *out);
double dtp_own_kernel_power_w(const struct dtp_measured *m, const char *kernel);

#endif
