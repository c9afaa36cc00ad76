/* logs_private.h: shared by logs*.c. */
#ifndef DTP_TRACES_FORMATS_LOGS_PRIVATE_H
#define DTP_TRACES_FORMATS_LOGS_PRIVATE_H

#include "traces/formats/logs.h"

/* What lines before this one said. */
struct log_state {
    struct dtp_log *log;
    struct dtp_intern *texts; /* of rows of nccl-tests */
    double titan_s;           /* time stamp of the last step line, or -1 */
    int64_t titan_step;
};

/* Takes the line, which may be written to, if a trainer printed it. */
bool logs_take_train(struct log_state *s, char *line);

#endif
