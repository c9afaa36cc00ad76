/* cluster_parts.h: what the files of the cluster module share; not for others.
 *
 * A file is read into a spec: first its base, then its own keys over it; then what nobody gave is
 * derived. 0 means "derive".
 */
#ifndef DTP_HW_CLUSTER_PARTS_H
#define DTP_HW_CLUSTER_PARTS_H

#include "hw/cluster.h"

/* Keys of one file that are read by hand; reset for each file of the chain. */
struct dtp_cluster_json {
    const struct dtp_json *gpu, *tiers, *curves, *mesh_links, *affinity;
};
struct dtp_cluster_spec {
    struct dtp_cluster c;
    struct dtp_cluster_json json;
    const struct dtp_json *gpu, *curves; /* of the last file that gave them */
    struct dtp_ints affinity;
    const char *base;
    struct dtp_cluster measured; /* as the file that gave the curves describes it */
};

void dtp_cluster_spec_defaults(struct dtp_cluster_spec *spec);
/* Tiers, mesh, affinity of one file. */
enum dtp_status dtp_cluster_spec_parts(struct dtp_arena *a, const struct dtp_json *j,
                                       struct dtp_cluster_spec *spec, struct dtp_err *err);
/* Derives and checks, once the GPU is read. */
enum dtp_status dtp_cluster_spec_finish(struct dtp_arena *a, const struct dtp_json *j,
                                        struct dtp_cluster_spec *spec, struct dtp_err *err);
/* measured: the machine of the curves. */
enum dtp_status dtp_cluster_load_curves(struct dtp_arena *a, const struct dtp_json *names,
                                        const struct dtp_cluster *measured, struct dtp_cluster *out,
                                        struct dtp_err *err);
/* Fills the terms of a curve (hw/coll_cost.c). */
void dtp_curve_terms(const struct dtp_cluster *measured, struct dtp_curve *k);

void dtp_node_bundle_nics(struct dtp_node *node);
void dtp_node_spread_nics(struct dtp_node *node);
/* Ids of the mesh's links and the way from each GPU to each. */
void dtp_node_mesh(struct dtp_node *node);

#endif
