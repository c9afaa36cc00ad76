/* calibrate_rows_private.h: private to calibrate_rows.c and calibrate_csv.c: rows being collected. */
#ifndef DTP_HW_CALIBRATE_ROWS_PRIVATE_H
#define DTP_HW_CALIBRATE_ROWS_PRIVATE_H

#include "hw/calibrate.h"

bool dtp_cal_in_list(const char *const *names, const char *name);
/* A new row of zeros. */
struct dtp_cal_row *dtp_cal_add_row(struct dtp_arena *a, struct dtp_cal_rows *rows);
/* Index of a source, added where it is new. */
enum dtp_status dtp_cal_find_source(struct dtp_arena *a, struct dtp_cal_rows *rows,
                                    const char *name, int *out, struct dtp_err *err);
enum dtp_status dtp_cal_read_csv(struct dtp_arena *a, const char *path,
                                 const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                 struct dtp_err *err);

#endif
