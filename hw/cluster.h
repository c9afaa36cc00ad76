/* cluster.h: nodes of GPUs, what links them inside, NICs, and the fabric between.
 *
 * Data: hw/cluster/NAME.json names a GPU file and holds the node, the fabric and the measured
 * collective curves of that machine; every number with its source. A user's file has the same form;
 * on the command line `--cluster a100 --nic 4x100` changes one and names the rest by default.
 *
 * Links (ids are dense, per direction): NVLink port out and in of each GPU (or the cube mesh's and
 * PCIe tree's links), NIC out and in, and for each fabric tier the up- and down-links of each group.
 * A tier that is not oversubscribed can never bind and has no links. Units: bytes/s, seconds.
 */
#ifndef DTP_HW_CLUSTER_H
#define DTP_HW_CLUSTER_H

#include "hw/device.h"

#define DTP_MAX_GPUS_PER_NODE 128
#define DTP_MAX_TIERS 4

enum dtp_intra { DTP_INTRA_SWITCH, DTP_INTRA_MESH, DTP_INTRA_PCIE, DTP_INTRA_SHM };
extern const char *const dtp_intra_names[]; /* "nvswitch", "mesh", "pcie", "shm" */

struct dtp_node {
    int gpus;
    enum dtp_intra intra;
    double gpu_link_bytes_per_s; /* per GPU and direction: all of its NVLinks, or PCIe */
    double gpu_link_latency_s;
    int mesh_links[16][16];      /* DTP_INTRA_MESH: links between GPU i and j */
    double mesh_link_bytes_per_s;/* one of them, per direction */
    int nics;
    double nic_bytes_per_s;      /* one, per direction, nominal */
    double nic_efficiency;       /* achieved / nominal for large messages */
    double nic_latency_s;        /* one message, end to end within a leaf */
    int nic_of_gpu[DTP_MAX_GPUS_PER_NODE];
    uint64_t host_memory_bytes;
    double nvme_bytes_per_s, nvme_bytes;
    int cores;
};

struct dtp_tier {
    const char *name;       /* "leaf", "spine", "core" */
    int nodes;              /* nodes under one switch group of this tier; the last covers all */
    double oversubscription;/* 1: full bisection; 2: half of the bandwidth goes up */
    double latency_s;       /* added for a message that crosses this tier */
};

/* A measured curve of one collective: t(bytes) = a + b sqrt(bytes) + c bytes, for a group of `gpus`
 * GPUs on `nodes` nodes. */
struct dtp_curve {
    int collective;  /* enum dtp_collective */
    int gpus, nodes;
    double a_s, b_s_per_sqrt_byte, c_s_per_byte;
    double min_bytes, max_bytes; /* measured range */
    double mean_error;
    const char *source;
};

struct dtp_cluster {
    const char *name, *title;
    struct dtp_gpu gpu;
    struct dtp_node node;
    struct dtp_tier tier[DTP_MAX_TIERS];
    int ntiers;
    bool rail_optimised;
    const char *fabric; /* "infiniband", "ethernet", "omnipath", "slingshot", "efa", "none" */
    int max_gpus;       /* 0: no limit */
    const char *nccl;   /* version whose tuning applies, "2.18" */
    bool nvls;          /* in-switch reduction used */
    struct dtp_curve *curve;
    int ncurves;
    /* collective constants used where there is no curve */
    double intra_busbw_bytes_per_s; /* ring asymptote inside the node */
    double intra_half_bytes;        /* busbw = asymptote / (1 + half / bytes) */
};

/* name: an entry of hw/cluster, an alias, or a path ending in .json. */
enum dtp_status dtp_cluster_load(struct dtp_arena *a, const char *name, struct dtp_cluster *out,
                                 struct dtp_err *err);
enum dtp_status dtp_cluster_read(struct dtp_arena *a, const struct dtp_json *j,
                                 struct dtp_cluster *out, struct dtp_err *err);
/* "4x100" (count x Gbit/s) replaces the NICs. */
enum dtp_status dtp_cluster_set_nics(struct dtp_cluster *c, const char *text, struct dtp_err *err);
/* Default cluster of a GPU file for a measured row: DGX-like nodes of that GPU. */
enum dtp_status dtp_cluster_for_gpu(struct dtp_arena *a, const char *family, double memory_gb,
                                    int gpus_per_node, struct dtp_cluster *out,
                                    struct dtp_err *err);
/* Sorted names, for `dtplan clusters` and suggestions; titles by loading each. */
enum dtp_status dtp_cluster_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                                 struct dtp_err *err);

/* ---- links of a cluster with ngpus GPUs in use, as dense ids 0 .. nlinks-1 ---- */

int dtp_cluster_nnodes(const struct dtp_cluster *c, int ngpus);
uint32_t dtp_cluster_nlinks(const struct dtp_cluster *c, int ngpus);
double dtp_cluster_link_capacity(const struct dtp_cluster *c, int ngpus, uint32_t link);
const char *dtp_cluster_link_name(struct dtp_arena *a, const struct dtp_cluster *c, int ngpus,
                                  uint32_t link);
#define DTP_MAX_ROUTE 16
struct dtp_route {
    int n;
    uint32_t link[DTP_MAX_ROUTE];
    double latency_s;
    bool inter_node;
};
/* The route of a message from GPU src to GPU dst (global indices, src != dst). */
void dtp_cluster_route(const struct dtp_cluster *c, int ngpus, int src, int dst,
                       struct dtp_route *out);

#endif
