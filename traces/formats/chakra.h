/* chakra.h: Chakra execution traces in protobuf (.et): graphs of compute, memory and communication.
 *
 * A file is a stream of messages, each after its length as a varint: GlobalMetadata{version = 1} and
 * Nodes{id = 1, name = 2, type = 3, ctrl_deps = 4, data_deps = 5, start_time_micros = 6,
 * duration_micros = 7, attr = 10}. An attribute has a name and one value of any width. Zeros may be
 * left out (proto3). A graph with a node twice or a cycle of data dependencies, and a file that is cut, are
 * DTP_EINPUT; dependencies on nodes that do not exist are counted. (Control dependencies say which
 * operator called which; in published traces they do have cycles.) Schema: mlcommons/chakra, et_def.proto.
 *
 * Writing gives the same form, for ASTRA-sim: a simulated or measured graph, one file a rank.
 */
#ifndef DTP_TRACES_FORMATS_CHAKRA_H
#define DTP_TRACES_FORMATS_CHAKRA_H

#include <stdio.h>

#include "traces/formats/intern.h"
#include "traces/formats/source.h"

enum dtp_chakra_type {
    DTP_CHAKRA_INVALID,
    DTP_CHAKRA_METADATA,
    DTP_CHAKRA_MEM_LOAD,
    DTP_CHAKRA_MEM_STORE,
    DTP_CHAKRA_COMP,
    DTP_CHAKRA_SEND,
    DTP_CHAKRA_RECV,
    DTP_CHAKRA_COLL,
    DTP_NCHAKRA_TYPES
};
extern const char *const dtp_chakra_type_name[DTP_NCHAKRA_TYPES];
/* Index of comm_type: ALL_REDUCE, REDUCE, ALL_GATHER, ... */
extern const char *const dtp_chakra_comm_name[];
enum { DTP_NCHAKRA_COMMS = 10 };

struct dtp_chakra_node {
    uint64_t id, start_us, dur_us;
    const char *name, *group;
    int type;
    int64_t comm_type; /* -1: not said */
    uint64_t comm_bytes, num_ops;
    int64_t comm_src, comm_dst, comm_tag; /* -1: not said */
    bool is_cpu_op;
    uint32_t first_dep, nctrl, ndata; /* into dep[]: control dependencies, then data */
};

struct dtp_chakra {
    const char *version; /* "" if not said */
    struct dtp_chakra_node *node;
    uint32_t nnodes;
    size_t nodes_capacity;
    uint64_t *dep;
    uint32_t ndeps;
    size_t deps_capacity;
    uint64_t nmessages, ndangling;
    struct dtp_intern *attr; /* names of attributes, and of how many nodes each is one */
    uint64_t *attr_count;    /* [attr_capacity] */
    size_t attr_capacity;
    const char *workload, *soc; /* named by the JSON form; "" if not said */
    int64_t ngpus;              /* 0: not said */
};

enum dtp_status dtp_chakra_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_chakra *out, struct dtp_err *err);
/* The JSON form: {"workload_graph": [{Id, Name, NodeType, runtime, data_deps, ctrlDeps, is_cpu_op, ...}],
 * "workload_name", "ngpus", "soc"}, all but the graph optional; runtime in us. The same checks. */
enum dtp_status dtp_chakra_read_json(struct dtp_arena *a, struct dtp_source *source,
                                     struct dtp_chakra *out, struct dtp_err *err);
/* For each of dep[]: the index of its node, UINT32_MAX where there is none. */
uint32_t *dtp_chakra_targets(struct dtp_arena *a, const struct dtp_chakra *graph);

/* Returns a node that says nothing yet, for a graph that is made; its dependencies begin after those that exist. */
struct dtp_chakra_node dtp_chakra_node_init(const struct dtp_chakra *g);
void dtp_chakra_add_node(struct dtp_arena *a, struct dtp_chakra *g,
                         const struct dtp_chakra_node *node);
void dtp_chakra_add_dep(struct dtp_arena *a, struct dtp_chakra *g, uint64_t id);
void dtp_chakra_write(FILE *f, const struct dtp_chakra *graph);

#endif
