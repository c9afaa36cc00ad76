/* cluster.h: nodes of GPUs, what links them inside, NICs, and the fabric between.
 *
 * Data: hw/cluster/NAME.json names a GPU file and holds the node, the fabric and the measured
 * collective curves of that machine; every number with its source. A user's file has the same form;
 * on the command line `--cluster a100 --nic 4x100` changes one and names the rest by default.
 *
 * A file may start from another one ("base": "dgx-a100-80") and name only what differs; what no file
 * gives follows from the GPU (hw/README.md has the keys and an example).
 *
 * Links (ids are dense, per direction): NVLink port out and in of each GPU (or the cube mesh's and
 * PCIe tree's links), NIC out and in, and for each fabric tier the up- and down-links of each group.
 * A tier that is not oversubscribed can never bind and has no links. Capacities are achieved ones
 * (nominal x efficiency). Units: bytes/s, seconds.
 *
 * Routes are O(1) arithmetic:
 *     nvswitch  out(src), in(dst)
 *     mesh      the direct NVLink, else two through a relay GPU (widest, then lowest index), else
 *               host(src), the link between the sockets, host(dst)
 *     pcie      up(src) [switch up, (socket link), switch down] down(dst)
 *     shm       the memory of the node, one link
 *     nodes     NIC of src, up-links of the tiers left, down-links, NIC of dst. In a rail-optimised
 *               fabric GPUs of the same index meet in their rail's leaf; others go one tier higher.
 */
#ifndef DTP_HW_CLUSTER_H
#define DTP_HW_CLUSTER_H

#include "hw/device.h"

#define DTP_MAX_GPUS_PER_NODE 128
#define DTP_MAX_TIERS 4

#define DTP_MAX_MESH 16

enum dtp_intra { DTP_INTRA_SWITCH, DTP_INTRA_MESH, DTP_INTRA_PCIE, DTP_INTRA_SHM };
extern const char *const dtp_intra_names[]; /* "nvswitch", "mesh", "pcie", "shm" */

struct dtp_node {
    int gpus;
    enum dtp_intra intra;
    double gpu_link_bytes_per_s; /* per GPU and direction: all of its NVLinks, or PCIe */
    double gpu_link_efficiency;  /* achieved / nominal for large messages */
    double gpu_link_latency_s;   /* one step of a collective */
    int mesh_links[DTP_MAX_MESH][DTP_MAX_MESH]; /* DTP_INTRA_MESH: links between GPU i and j */
    double mesh_link_bytes_per_s;               /* one of them, per direction */
    /* GPU to host (mesh without a path, pcie switch), per direction */
    double host_link_bytes_per_s;
    double socket_link_bytes_per_s; /* between the two sockets, per direction */
    int sockets, pcie_gpus_per_switch;
    int nics;
    double nic_bytes_per_s;     /* one, per direction, nominal */
    double nic_efficiency;      /* achieved / nominal for large messages */
    double nic_latency_s;       /* one step of a collective, end to end within a leaf */
    double far_nic_bytes_per_s; /* all rings of a node that leave by another GPU's NIC; 0: any */
    double p2p_efficiency;      /* achieved / nominal for one send and receive */
    double p2p_latency_s;       /* a send and receive between nodes, start to end, 0 bytes */
    double p2p_intra_latency_s; /* the same inside the node */
    int nic_of_gpu[DTP_MAX_GPUS_PER_NODE];
    uint64_t host_memory_bytes;
    double nvme_bytes_per_s, nvme_bytes;
    double host_stream_bytes_per_s; /* that the CPUs reach on host memory together */
    double host_gpu_bytes_per_s;    /* host to all GPUs at once; 0: each as if alone */
    int cores;
    /* derived: links that the GPU with fewest has to the others of GPUs 0 .. i-1 (so wide is a ring of
     * those: V100 of a DGX-1V, 2 to 8 GPUs, 1 2 4 2 3 4 6, measured 1 2 3.8 1.6 2 3.9 6); dense ids of the mesh's directed links (-1: none), and how i reaches j:
     * DTP_RELAY_DIRECT, DTP_RELAY_HOST or the index of the relay GPU */
    int mesh_ring[DTP_MAX_MESH + 1], nmesh;
    short mesh_id[DTP_MAX_MESH][DTP_MAX_MESH], relay[DTP_MAX_MESH][DTP_MAX_MESH];
};
#define DTP_RELAY_DIRECT (-1)
#define DTP_RELAY_HOST (-2)

struct dtp_tier {
    const char *name; /* "leaf", "spine", "core" */
    int nodes;        /* nodes under one switch group of this tier; the last covers all */
    /* up-links: 1 is full bisection; with 2 half of the bandwidth goes up */
    double oversubscription;
    double latency_s; /* added to a step that crosses it; unequal ones prevent folding */
};

/* A measured curve of one collective: t(bytes) = a + b sqrt(bytes) + c bytes, for a group of `gpus`
 * GPUs on `nodes` nodes; where the points themselves are there, straight lines between them: NCCL's protocols
 * change at sizes, which a fit cannot follow. */
struct dtp_curve {
    int collective; /* enum dtp_collective */
    int gpus, nodes;
    double a_s, b_s_per_sqrt_byte, c_s_per_byte;
    double min_bytes, max_bytes; /* measured range */
    int points;
    double mean_error;
    struct dtp_doubles at_bytes, time_s; /* the points, or none */
    const char *source;
    /* derived: lat and g of NCCL's algorithms for the group on the machine where it was measured
     * (hw/nccl.h); foreign: that machine had other links, so that the curve is only scaled from */
    int nterms;
    struct {
        int algo;
        double lat_s, s_per_byte;
    } term[4];
    bool foreign, simple_only;
};

struct dtp_nccl;

struct dtp_cluster {
    const char *name, *title;
    struct dtp_gpu gpu;
    struct dtp_node node;
    struct dtp_tier tier[DTP_MAX_TIERS];
    int ntiers;
    bool rail_optimised;
    const char *fabric; /* "infiniband", "ethernet", "omnipath", "slingshot", "efa", "none" */
    int max_gpus;       /* 0: no limit */
    const char *nccl;   /* "2.18"; from 2.17 on in-switch sums; hw/nccl has the constants */
    bool nvls;          /* in-switch reduction used */
    struct dtp_curve *curve;
    int ncurves;
    const struct dtp_nccl *nccl_model; /* hw/nccl.h */
    bool simple_only; /* fabrics where only NCCL's Simple protocol is safe (libfabric) */
    double intra_busbw_bytes_per_s; /* ring asymptote inside the node, where there is no curve */
};

/* These describe a file, a member of its "tiers" and one of its "curves", for the reader and for the manual. */
extern const struct dtp_field dtp_cluster_fields[], dtp_tier_fields[], dtp_curve_fields[];

/* name: an entry of hw/cluster, an alias of hw/names.json ("a100": dgx-a100-80), or a path ending in .json. */
enum dtp_status dtp_cluster_load(struct dtp_arena *a, const char *name, struct dtp_cluster *out,
                                 struct dtp_err *err);
/* The file behind such a name, and the name without folder and ending. */
enum dtp_status dtp_cluster_file(struct dtp_arena *a, const char *name, const struct dtp_json **out,
                                 const char **out_name, struct dtp_err *err);
/* Makes a cluster from an object that was read; DTP_EINPUT names the key. */
enum dtp_status dtp_cluster_read(struct dtp_arena *a, const struct dtp_json *j,
                                 struct dtp_cluster *out, struct dtp_err *err);
/* "4x100" (count x Gbit/s) replaces the NICs and their affinity; more NICs than GPUs are bundled, so
 * many to a GPU (32x100 on 8 GPUs is 8x400). */
enum dtp_status dtp_cluster_set_nics(struct dtp_cluster *c, const char *text, struct dtp_err *err);
/* The families of cards of hw/names.json, NULL-terminated, and the one that a card is called like ("h100" is H100),
 * else `card` itself. */
enum dtp_status dtp_card_families(struct dtp_arena *a, const char *const **out,
                                  struct dtp_err *err);
const char *dtp_card_name(const char *const *families, const char *card);
/* Default cluster for a card as a measured row names it ("A100", "A100-SXM4-80GB"): DGX-like nodes of it. */
enum dtp_status dtp_cluster_for_gpu(struct dtp_arena *a, const char *card, double memory_gb,
                                    int gpus_per_node, struct dtp_cluster *out,
                                    struct dtp_err *err);
/* Sorted names, for `dtplan clusters` and suggestions; titles by loading each. */
enum dtp_status dtp_cluster_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                                 struct dtp_err *err);

/* ---- links of a cluster with ngpus GPUs in use, as dense ids 0 .. nlinks-1 ---- */

/* Nodes that they fill, the last one in part. */
int dtp_cluster_nnodes(const struct dtp_cluster *c, int ngpus);
uint32_t dtp_cluster_nlinks(const struct dtp_cluster *c, int ngpus);
/* Returns the achieved bytes per second of one direction. */
double dtp_cluster_link_capacity(const struct dtp_cluster *c, int ngpus, uint32_t link);
/* A NIC, then *node is its node, or a link between nodes, then -1; false: inside a node. */
bool dtp_cluster_link_fabric(const struct dtp_cluster *c, int ngpus, uint32_t link, int *node);
/* Links of each node where routes use no others than those of the nodes at their ends, so that a route
 * moved by whole nodes uses the same links so many further on; 0 where a tier may bind. */
uint32_t dtp_cluster_node_links(const struct dtp_cluster *c);
/* Routes between nodes share no link when no end of one is in a block of so many nodes with an end of the
 * other; 0: no such number. */
int dtp_cluster_block_nodes(const struct dtp_cluster *c);
#define DTP_MAX_ROUTE 16
struct dtp_route {
    int n;
    uint32_t link[DTP_MAX_ROUTE];
    double latency_s;
    bool inter_node;
};
/* Finds the route of a message from GPU src to GPU dst (global indices, src != dst). */
void dtp_cluster_route(const struct dtp_cluster *c, int ngpus, int src, int dst,
                       struct dtp_route *out);

#endif
