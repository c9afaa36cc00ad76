#include "traces/formats/chakra.h"

#include <stdlib.h>
#include <string.h>

#include "traces/formats/chakra_private.h"
#include "traces/formats/protobuf.h"

enum { MOST_MESSAGE_BYTES = 1 << 26 };

const char *const dtp_chakra_type_name[DTP_NCHAKRA_TYPES] = {
    "INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL"};
const char *const dtp_chakra_comm_name[] = {
    "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
    "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};

/* ---- nodes ---- */

void dtp_chakra_add_dep(struct dtp_arena *a, struct dtp_chakra *g, uint64_t id) {
    g->dep = dtp_arena_room(a, g->dep, sizeof *g->dep, g->ndeps, &g->deps_capacity);
    g->dep[g->ndeps++] = id;
}

/* A repeated number, packed or not. */
static bool take_deps(struct dtp_arena *a, struct dtp_chakra *g, const struct dtp_proto_field *f) {
    if (f->wire == DTP_WIRE_VARINT) {
        dtp_chakra_add_dep(a, g, f->value);
        return true;
    }
    struct dtp_bytes b = f->body;
    uint64_t id;
    while (f->wire == DTP_WIRE_BYTES && b.at < b.end) {
        if (!dtp_proto_varint(&b, &id))
            return false;
        dtp_chakra_add_dep(a, g, id);
    }
    return f->wire == DTP_WIRE_BYTES;
}

static void count_attr(struct dtp_arena *a, struct dtp_chakra *g, uint32_t name) {
    g->attr_count =
        dtp_arena_room(a, g->attr_count, sizeof *g->attr_count, name, &g->attr_capacity);
    g->attr_count[name]++;
}

static void set_attr(struct dtp_chakra_node *node, const char *name, int64_t v) {
    struct {
        const char *name;
        int64_t *to;
    } fields[] = {{"comm_type", &node->comm_type},
                  {"comm_src", &node->comm_src},
                  {"comm_dst", &node->comm_dst},
                  {"comm_tag", &node->comm_tag}};
    if (strcmp(name, "comm_size") == 0)
        node->comm_bytes = v > 0 ? (uint64_t)v : 0;
    else if (strcmp(name, "num_ops") == 0)
        node->num_ops = v > 0 ? (uint64_t)v : 0;
    else if (strcmp(name, "is_cpu_op") == 0)
        node->is_cpu_op = v != 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(name, fields[i].name) == 0)
            *fields[i].to = v;
}

/* Attribute: any integer width is taken (writers differ), strings for the group. */
static bool take_attr(struct dtp_arena *a, struct dtp_chakra *g, struct dtp_chakra_node *node,
                      struct dtp_bytes b) {
    struct dtp_proto_field f;
    struct dtp_bytes text = {0};
    uint32_t name = dtp_intern_add(g->attr, "", 0);
    int64_t v = 0;
    while (b.at < b.end) {
        if (!dtp_proto_next(&b, &f))
            return false;
        if (f.number == 1 && f.wire == DTP_WIRE_BYTES)
            name =
                dtp_intern_add(g->attr, (const char *)f.body.at, (size_t)(f.body.end - f.body.at));
        else if (f.wire == DTP_WIRE_BYTES)
            text = f.body;
        else
            v = f.number == 15 || f.number == 17 ? dtp_proto_zigzag(f.value) : (int64_t)f.value;
    }
    count_attr(a, g, name);
    set_attr(node, g->attr->at[name], v);
    if (text.at && strcmp(g->attr->at[name], "pg_name") == 0)
        node->group = dtp_proto_text(a, &text);
    return true;
}

static bool take_node_field(struct dtp_arena *a, struct dtp_chakra *g, struct dtp_chakra_node *node,
                            const struct dtp_proto_field *f) {
    if (f->number == 1)
        node->id = f->value;
    else if (f->number == 2 && f->wire == DTP_WIRE_BYTES)
        node->name = dtp_proto_text(a, &f->body);
    else if (f->number == 3)
        node->type = f->value < DTP_NCHAKRA_TYPES ? (int)f->value : DTP_CHAKRA_INVALID;
    else if (f->number == 6)
        node->start_us = f->value;
    else if (f->number == 7)
        node->dur_us = f->value;
    else if (f->number == 10 && f->wire == DTP_WIRE_BYTES)
        return take_attr(a, g, node, f->body);
    return true;
}

struct dtp_chakra_node dtp_chakra_node_init(const struct dtp_chakra *g) {
    return (struct dtp_chakra_node){.name = "",
                                    .group = "",
                                    .comm_type = -1,
                                    .comm_src = -1,
                                    .comm_dst = -1,
                                    .comm_tag = -1,
                                    .first_dep = g->ndeps};
}

void dtp_chakra_add_node(struct dtp_arena *a, struct dtp_chakra *g,
                         const struct dtp_chakra_node *node) {
    g->node = dtp_arena_room(a, g->node, sizeof *g->node, g->nnodes, &g->nodes_capacity);
    g->node[g->nnodes++] = *node;
}

static bool take_node(struct dtp_arena *a, struct dtp_chakra *g, struct dtp_bytes b) {
    struct dtp_chakra_node node = dtp_chakra_node_init(g);
    struct dtp_bytes again = b;
    struct dtp_proto_field f;
    while (b.at < b.end) /* control dependencies first */
        if (!dtp_proto_next(&b, &f) || !take_node_field(a, g, &node, &f) ||
            (f.number == 4 && !take_deps(a, g, &f)))
            return false;
    node.nctrl = g->ndeps - node.first_dep;
    while (again.at < again.end && dtp_proto_next(&again, &f))
        if (f.number == 5 && !take_deps(a, g, &f))
            return false;
    node.ndata = g->ndeps - node.first_dep - node.nctrl;
    /* ALL_REDUCE is 0, which proto3 may leave out of an attribute, never the attribute itself */
    dtp_chakra_add_node(a, g, &node);
    return true;
}

static bool take_metadata(struct dtp_arena *a, struct dtp_chakra *g, struct dtp_bytes b) {
    struct dtp_proto_field f;
    while (b.at < b.end) {
        if (!dtp_proto_next(&b, &f))
            return false;
        if (f.number == 1 && f.wire == DTP_WIRE_BYTES)
            g->version = dtp_proto_text(a, &f.body);
    }
    return true;
}

/* ---- the graph as a whole ---- */

struct by_id {
    uint64_t id;
    uint32_t node;
};

static int compare_id(const void *x, const void *y) {
    const struct by_id *p = x, *q = y;
    return p->id < q->id ? -1 : p->id > q->id;
}

static uint32_t find_node(const struct by_id *v, uint32_t n, uint64_t id) {
    const struct by_id *found =
        n > 0 ? bsearch(&(struct by_id){.id = id}, v, n, sizeof *v, compare_id) : NULL;
    return found ? found->node : UINT32_MAX;
}

/* Data dependencies by their target: succ[first[t] .. first[t + 1]) wait for node t. */
struct waiting {
    uint32_t *first, *succ, *npred;
};

static void find_waiting(struct dtp_arena *a, const struct dtp_chakra *g, uint32_t *target,
                         struct waiting *out) {
    uint32_t *at = DTP_NEW(a, uint32_t, g->nnodes + 2), *owner = DTP_NEW(a, uint32_t, g->ndeps + 1);
    out->first = DTP_NEW(a, uint32_t, g->nnodes + 2);
    out->npred = DTP_NEW(a, uint32_t, g->nnodes + 1);
    out->succ = DTP_NEW(a, uint32_t, g->ndeps + 1);
    for (uint32_t i = 0; i < g->nnodes; i++)
        for (uint32_t d = 0; d < g->node[i].nctrl + g->node[i].ndata; d++) {
            owner[g->node[i].first_dep + d] = i;
            if (d < g->node[i].nctrl)
                target[g->node[i].first_dep + d] = UINT32_MAX;
        }
    for (uint32_t d = 0; d < g->ndeps; d++)
        if (target[d] != UINT32_MAX)
            out->first[target[d] + 1]++;
    for (uint32_t i = 0; i < g->nnodes; i++)
        out->first[i + 1] += out->first[i];
    memcpy(at, out->first, (g->nnodes + 1) * sizeof *at);
    for (uint32_t d = 0; d < g->ndeps; d++)
        if (target[d] != UINT32_MAX) {
            out->succ[at[target[d]]++] = owner[d];
            out->npred[owner[d]]++;
        }
}

/* Takes away nodes whose data dependencies are gone, again and again; what stays holds a cycle. */
static enum dtp_status check_cycles(struct dtp_arena *a, const struct dtp_chakra *g,
                                    uint32_t *target, const char *file, struct dtp_err *err) {
    struct waiting w;
    uint32_t *ready = DTP_NEW(a, uint32_t, g->nnodes + 1), n = 0;
    find_waiting(a, g, target, &w);
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (w.npred[i] == 0)
            ready[n++] = i;
    for (uint32_t done = 0; done < n; done++)
        for (uint32_t k = w.first[ready[done]]; k < w.first[ready[done] + 1]; k++)
            if (--w.npred[w.succ[k]] == 0)
                ready[n++] = w.succ[k];
    for (uint32_t i = 0; i < g->nnodes && n < g->nnodes; i++)
        if (w.npred[i] > 0)
            return dtp_fail(err, DTP_EINPUT,
                            "%s: %u nodes depend on each other in a cycle, among "
                            "them node %llu \"%s\"",
                            file, g->nnodes - n, (unsigned long long)g->node[i].id,
                            g->node[i].name);
    return DTP_OK;
}

static struct by_id *sorted_ids(struct dtp_arena *a, const struct dtp_chakra *g) {
    struct by_id *v = DTP_NEW(a, struct by_id, g->nnodes + 1);
    for (uint32_t i = 0; i < g->nnodes; i++)
        v[i] = (struct by_id){g->node[i].id, i};
    qsort(v, g->nnodes, sizeof *v, compare_id);
    return v;
}

uint32_t *dtp_chakra_targets(struct dtp_arena *a, const struct dtp_chakra *g) {
    const struct by_id *v = sorted_ids(a, g);
    uint32_t *target = DTP_NEW(a, uint32_t, g->ndeps + 1);
    for (uint32_t i = 0; i < g->ndeps; i++)
        target[i] = find_node(v, g->nnodes, g->dep[i]);
    return target;
}

enum dtp_status chakra_check(struct dtp_chakra *g, const char *file, struct dtp_err *err) {
    struct dtp_arena *a = dtp_arena_create("checking a graph");
    const struct by_id *v = sorted_ids(a, g);
    uint32_t *target = dtp_chakra_targets(a, g);
    enum dtp_status status = DTP_OK;
    for (uint32_t i = 1; i < g->nnodes && status == DTP_OK; i++)
        if (v[i].id == v[i - 1].id)
            status = dtp_fail(err, DTP_EINPUT, "%s: node %llu is there twice", file,
                              (unsigned long long)v[i].id);
    for (uint32_t i = 0; i < g->ndeps; i++)
        g->ndangling += target[i] == UINT32_MAX;
    if (status == DTP_OK)
        status = check_cycles(a, g, target, file, err);
    dtp_arena_destroy(a);
    return status;
}

/* ---- frames ---- */

/* *out_n = SIZE_MAX at the end of the file. */
static enum dtp_status read_length(struct dtp_source *s, uint64_t message, size_t *out_n,
                                   struct dtp_err *err) {
    uint64_t n = 0;
    for (unsigned i = 0; i < DTP_VARINT_BYTES; i++) {
        unsigned char c;
        size_t got;
        DTP_TRY(dtp_source_read(s, &c, 1, &got, err));
        if (got == 0 && i == 0) {
            *out_n = SIZE_MAX;
            return DTP_OK;
        }
        if (got == 0)
            return dtp_fail(err, DTP_EINPUT, "%s: the file ends in the length of message %llu",
                            dtp_source_name(s), (unsigned long long)message);
        n |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c & 0x80)
            continue;
        *out_n = (size_t)n;
        if (n <= MOST_MESSAGE_BYTES)
            return DTP_OK;
        break;
    }
    return dtp_fail(err, DTP_EINPUT, "%s: message %llu claims %llu bytes", dtp_source_name(s),
                    (unsigned long long)message, (unsigned long long)n);
}

enum dtp_status dtp_chakra_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_chakra *out, struct dtp_err *err) {
    unsigned char *buf = NULL;
    size_t capacity = 0, n = 0, got;
    *out = (struct dtp_chakra){.version = "", .workload = "", .soc = ""};
    out->attr = dtp_intern_create(a);
    for (;; out->nmessages++) {
        DTP_TRY(read_length(source, out->nmessages, &n, err));
        if (n == SIZE_MAX)
            break;
        for (size_t have = 0; have < n; have += got) { /* grows with what is really there */
            size_t want = n - have < (size_t)1 << 16 ? n - have : (size_t)1 << 16;
            if (capacity < have + want) {
                size_t more = capacity * 2 > have + want ? capacity * 2 : have + want;
                buf = dtp_arena_grow(a, buf, 1, capacity, more);
                capacity = more;
            }
            DTP_TRY(dtp_source_read(source, buf + have, want, &got, err));
            if (got < want)
                return dtp_fail(err, DTP_EINPUT, "%s: message %llu is cut: %zu of %zu bytes",
                                dtp_source_name(source), (unsigned long long)out->nmessages,
                                have + got, n);
        }
        struct dtp_bytes b = {buf, n > 0 ? buf + n : buf};
        bool good = out->nmessages == 0 ? take_metadata(a, out, b) : take_node(a, out, b);
        if (!good)
            return dtp_fail(err, DTP_EINPUT, "%s: message %llu is no %s", dtp_source_name(source),
                            (unsigned long long)out->nmessages,
                            out->nmessages == 0 ? "GlobalMetadata" : "Node");
    }
    if (out->nmessages == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", dtp_source_name(source));
    return chakra_check(out, dtp_source_name(source), err);
}
