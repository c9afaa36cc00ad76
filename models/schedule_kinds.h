/* schedule_kinds.h: private to schedule*.c: other names of the kinds.
 *
 * To add a schedule: its index in schedule.h, one row and one function in schedule_kinds.c, one
 * golden in tests/golden/schedule. */
#ifndef DTP_MODELS_SCHEDULE_KINDS_H
#define DTP_MODELS_SCHEDULE_KINDS_H

#include "models/schedule.h"

struct dtp_schedule_alias {
    const char *name; /* lower case, letters and digits only; NULL ends the table */
    int kind;
};
extern const struct dtp_schedule_alias dtp_schedule_aliases[];

#endif
