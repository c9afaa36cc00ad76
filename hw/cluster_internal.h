/* cluster_internal.h: what the files of the cluster module share, and the collectives and own_times.c with it. */
#ifndef DTP_HW_CLUSTER_INTERNAL_H
#define DTP_HW_CLUSTER_INTERNAL_H

#include "hw/cluster.h"

/* Reads a list of names of hw/curves, or of curves themselves; measured: the machine that they were measured on. */
enum dtp_status dtp_cluster_load_curves(struct dtp_arena *a, const struct dtp_json *names,
                                        const struct dtp_cluster *measured, struct dtp_cluster *out,
                                        struct dtp_err *err);
/* Fills the terms of a curve (hw/collective_cost.c). */
void dtp_curve_terms(const struct dtp_cluster *measured, struct dtp_curve *k);
/* Numbers the mesh's links and finds the way from each GPU to each (hw/cluster_links.c). */
void dtp_node_mesh(struct dtp_node *node);

#endif
