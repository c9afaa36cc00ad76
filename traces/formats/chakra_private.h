/* chakra_private.h: shared by the readers of the two forms of a Chakra graph. */
#ifndef DTP_TRACES_FORMATS_CHAKRA_PRIVATE_H
#define DTP_TRACES_FORMATS_CHAKRA_PRIVATE_H

#include "traces/formats/chakra.h"

/* Nodes twice, dangling dependencies, cycles. */
enum dtp_status chakra_check(struct dtp_chakra *g, const char *file, struct dtp_err *err);

#endif
