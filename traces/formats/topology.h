/* topology.h: NCCL's XML of one machine (NCCL_TOPO_DUMP_FILE), as a cluster file of hw/cluster.
 *
 *     <system version="1"><cpu numaid="0" affinity="..."><pci busid link_speed link_width device>
 *       <gpu dev sm rank> <nvlink target count tclass/> </gpu>    <nic><net name speed port/></nic>
 *
 * What becomes what: GPUs with NVLinks to a switch (a target that is no GPU, or class 0x068000) are
 * "nvswitch", with NVLinks to each other "mesh" with its matrix, without any "pcie". The GPU file is
 * found by the PCI device id; where that is unknown by the compute capability, which is a guess. NICs
 * slower than a quarter of the fastest are for management and left out. A GPU takes the NIC nearest in
 * the PCI tree, of equally near ones the least used. The fabric between nodes is not in the file.
 *
 * Needs libexpat at build time; without it reading is DTP_EUNSUPPORTED.
 */
#ifndef DTP_TRACES_FORMATS_TOPOLOGY_H
#define DTP_TRACES_FORMATS_TOPOLOGY_H

#include <stdio.h>

#include "traces/formats/source.h"

enum { DTP_TOPOLOGY_GPUS = 128, DTP_TOPOLOGY_NETS = 1024, DTP_TOPOLOGY_DEPTH = 32 };

/* A path holds the numbers of the elements from the root to a device. */
struct dtp_topology_path {
    int n;
    int element[DTP_TOPOLOGY_DEPTH];
};

struct dtp_topology_gpu {
    const char *bus_id, *device_id; /* device_id: "0x2330", or "" */
    int dev, sm;                    /* -1, 0: not said */
    int nvlinks;                    /* links to all targets */
    int switch_links;               /* those of them to switches */
    int nic;                        /* index into the nets that are used, -1: none */
    double pcie_bytes_per_s;        /* one direction; 0: not said */
    struct dtp_topology_path path;
};

struct dtp_topology_net {
    const char *name;
    double bytes_per_s;
    bool used; /* fast enough to be for training */
    struct dtp_topology_path path;
};

struct dtp_topology {
    struct dtp_topology_gpu gpu[DTP_TOPOLOGY_GPUS];
    struct dtp_topology_net net[DTP_TOPOLOGY_NETS];
    int ngpus, nnets, nused, ncpus;
    int cores;         /* hardware threads of the affinity masks; 0: not said */
    int gpus_a_switch; /* GPUs below one PCIe switch, at most */
    int link[DTP_TOPOLOGY_GPUS][DTP_TOPOLOGY_GPUS]; /* NVLinks from GPU i to j */
    const char *intra;                              /* "nvswitch", "mesh", "pcie" */
    const char *gpu_name;                           /* name in hw/gpu */
    bool gpu_guessed;
    const char *fabric; /* by the names of the NICs */
};

/* *out is large: keep it in an arena. */
enum dtp_status dtp_topology_read(struct dtp_arena *a, struct dtp_source *source,
                                  struct dtp_topology *out, struct dtp_err *err);
/* A file for --cluster. source: what its "source" says. */
void dtp_topology_write_cluster(FILE *f, const struct dtp_topology *t, const char *source);

#endif
