/* schedule_kinds.h: private to schedule*.c: other names of the kinds; a chunk's neighbours.
 *
 * To add a schedule: its index in schedule.h, one row and one function in schedule_kinds.c, one
 * golden in tests/golden/schedule. */
#ifndef DTP_MODELS_SCHEDULE_KINDS_H
#define DTP_MODELS_SCHEDULE_KINDS_H

#include "models/schedule/schedule.h"

struct dtp_schedule_alias {
    const char *name; /* lower case, letters and digits only; NULL ends the table */
    int kind;
};
extern const struct dtp_schedule_alias dtp_schedule_aliases[];

/* Neighbours of a chunk along the model: the ranks that hold the virtual stages before and after
 * (-1: none); far: another rank, so that data is sent. */
struct dtp_chunk_links {
    int stage, before, after;
    bool far_before, far_after;
};
/* links[vpp] of a rank. */
void dtp_schedule_links(const struct dtp_schedule *s, int rank, struct dtp_chunk_links *links);

#endif
