/* own_times.h: measures our own runtime on the GPUs at hand, as a file of hw/own_times.h. */
#ifndef DTP_PLANNER_CLI_OWN_TIMES_H
#define DTP_PLANNER_CLI_OWN_TIMES_H

#include "runtime/measure/measure.h"

/* GPUs of `backend`, groups of up to nranks of them (0: all there are); *path NULL: named after the GPU. */
enum dtp_status dtp_own_times_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                   const char **path, struct dtp_measured *out,
                                   struct dtp_err *err);
void dtp_own_times_report(FILE *f, const struct dtp_measured *m, const char *path);

/* own_power.c: false where nothing was measured. Watts above idle of a class of kernels. */
bool dtp_own_power(const struct dtp_measured *m, struct dtp_power_cal *out);
double dtp_own_kernel_power_w(const struct dtp_measured *m, const char *kernel);

#endif
