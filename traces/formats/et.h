/* et.h: PyTorch execution traces: the operators of one rank, their tree and their collectives.
 *
 * Understood: schema 1.0.1 (flat: parent, inputs, input_shapes, ...) and 1.0.2 to 1.1.x, whose nodes
 * carry ctrl_deps (the parent) and attrs. There are no durations: those are in the Kineto trace of the
 * same run; a record_param_comms node has what Kineto often lacks, bytes and splits. Nodes are not in
 * order of their ids, and the root is its own parent. A node id may stand twice and a parent may be
 * missing; both are counted. Times in the file are the process's own clock.
 *
 *     struct dtp_et et;
 *     DTP_TRY(dtp_et_read(a, source, &et, err));
 *     for (uint32_t i = 0; i < et.ncomms; i++) { ... et.comm[i].collective ... }
 *
 * Memory: 40 bytes a node and each name once; tensors are passed over.
 */
#ifndef DTP_TRACES_FORMATS_ET_H
#define DTP_TRACES_FORMATS_ET_H

#include "traces/formats/intern.h"
#include "traces/formats/source.h"

struct dtp_et_node {
    uint64_t id, parent, rf_id;
    uint32_t name, thread; /* name: of et.names */
};

struct dtp_et_comm {
    uint64_t node;          /* its id */
    const char *collective; /* allreduce, all_to_allv, wait, ...; "" where it is not said */
    const char *group, *group_description; /* "" where it is not said */
    uint64_t in_elements, out_elements, element_bytes, in_bytes;
    int64_t group_size; /* 0: not said */
    const int64_t *in_split, *out_split;
    size_t nin_split, nout_split;
    bool stated; /* by attributes; else taken from the inputs of the node */
};

struct dtp_et {
    const char *schema, *time;
    int64_t pid, start_ts, finish_ts;
    bool flat; /* schema 1.0.1 */
    struct dtp_et_node *node;
    uint32_t nnodes;
    size_t nodes_capacity;
    struct dtp_et_comm *comm; /* in the order of their nodes' ids */
    uint32_t ncomms;
    size_t comms_capacity;
    struct dtp_intern *names;
    uint64_t duplicate_ids, missing_parents, self_parents;
};

enum dtp_status dtp_et_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_et *out,
                            struct dtp_err *err);

/* Names of operators, the most frequent first (then by name). */
struct dtp_et_count {
    const char *name;
    uint64_t count;
};
void dtp_et_ops(struct dtp_arena *a, const struct dtp_et *et, const struct dtp_et_count **out,
                size_t *out_n);

#endif
