/* calibration.h: what runtime/measure.h measured, as a cluster file with its device inside. */
#ifndef DTP_PLANNER_CLI_CALIBRATION_H
#define DTP_PLANNER_CLI_CALIBRATION_H

#include "runtime/measure/measure.h"

void dtp_curve_write(struct dtp_json_out *w, const struct dtp_curve *c, const char *source);
/* Measures, and writes the file; a note on stderr says how long it takes. */
enum dtp_status dtp_calibration_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                     const char *path, struct dtp_measured *out,
                                     struct dtp_err *err);

#endif
