/* chakra_private.h: shared by the readers of the two forms of a Chakra graph. */
#ifndef DTP_TRACES_FORMATS_CHAKRA_PRIVATE_H
#define DTP_TRACES_FORMATS_CHAKRA_PRIVATE_H

#include "traces/formats/chakra.h"

/* A node that says nothing yet; its dependencies begin behind those there are. */
struct dtp_chakra_node chakra_node(const struct dtp_chakra *g);
void chakra_add_node(struct dtp_arena *a, struct dtp_chakra *g, const struct dtp_chakra_node *node);
void chakra_add_dep(struct dtp_arena *a, struct dtp_chakra *g, uint64_t id);
/* Nodes twice, dangling dependencies, cycles. */
enum dtp_status chakra_check(struct dtp_chakra *g, const char *file, struct dtp_err *err);

#endif
