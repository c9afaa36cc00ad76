/* aicb.h: CSV workloads of AICB: what one rank does in order, mostly collectives.
 *
 * An optional line "[rank0 ~ rank127]", then columns comm_type, comm_group, comm_group_size, msg_size,
 * stage, dst, src, additional, _elapsed_time, algbw, busbw, count. Words are Python's
 * ("CommType.all_reduce", "None"). The unit of _elapsed_time is not in the file: the caller says it.
 */
#ifndef DTP_TRACES_FORMATS_AICB_H
#define DTP_TRACES_FORMATS_AICB_H

#include "traces/formats/intern.h"
#include "traces/formats/source.h"

struct dtp_aicb_row {
    const char *type, *group, *stage; /* as in the file, without "CommType." and "CommGroup." */
    int group_size;                   /* 0: None */
    uint64_t bytes, count;
    double elapsed_s; /* -1: None */
    int64_t src, dst; /* -1: None */
};

struct dtp_aicb {
    const char *preamble; /* without brackets, or "" */
    struct dtp_aicb_row *row;
    size_t n, capacity;
    struct dtp_intern *words;
};

/* A row with another number of cells, or with a number that is none, is DTP_EINPUT with its line. */
enum dtp_status dtp_aicb_read(struct dtp_arena *a, struct dtp_source *source, double unit_s,
                              struct dtp_aicb *out, struct dtp_err *err);

#endif
