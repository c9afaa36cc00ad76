/* topology_private.h: shared by topology*.c. */
#ifndef DTP_TRACES_FORMATS_TOPOLOGY_PRIVATE_H
#define DTP_TRACES_FORMATS_TOPOLOGY_PRIVATE_H

#include "traces/formats/topology.h"

/* One nvlink element, before all GPUs are known. */
struct topology_link {
    int gpu, count;
    const char *target, *class;
};

void topology_sort(struct dtp_topology *t); /* GPUs by dev */
void topology_set_links(struct dtp_topology *t, const struct topology_link *link, size_t n);
enum dtp_status topology_finish(struct dtp_topology *t, const char *file, struct dtp_err *err);

#endif
