#include "traces/chakra.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGE_BYTES = 1 << 26, VARINT_BYTES = 10 };
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

const char *const dtp_chakra_type_name[DTP_NCHAKRA_TYPES] = {
    "INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL"};
const char *const dtp_chakra_comm_name[] = {
    "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
    "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};

/* ---- wire format ---- */

struct bytes {
    const unsigned char *at, *end;
};

struct field {
    uint32_t number;
    int wire;
    uint64_t value;
    struct bytes body; /* of WIRE_BYTES */
};

static bool take_varint(struct bytes *b, uint64_t *out) {
    *out = 0;
    if (!b->at)
        return false;
    for (unsigned i = 0; i < VARINT_BYTES && b->at < b->end; i++) {
        unsigned char c = *b->at++;
        *out |= (uint64_t)(c & 0x7f) << (7 * i);
        if (!(c & 0x80))
            return true;
    }
    return false;
}

static bool take_fixed(struct bytes *b, size_t n, uint64_t *out) {
    if ((size_t)(b->end - b->at) < n)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)b->at[i] << (8 * i);
    b->at += n;
    return true;
}

static bool take_field(struct bytes *b, struct field *out) {
    uint64_t key, n;
    if (!take_varint(b, &key) || key >> 3 == 0 || key >> 32)
        return false;
    out->number = (uint32_t)(key >> 3);
    out->wire = (int)(key & 7);
    if (out->wire == WIRE_VARINT)
        return take_varint(b, &out->value);
    if (out->wire == WIRE_64 || out->wire == WIRE_32)
        return take_fixed(b, out->wire == WIRE_64 ? 8 : 4, &out->value);
    if (out->wire != WIRE_BYTES || !take_varint(b, &n) || n > (uint64_t)(b->end - b->at))
        return false;
    out->body = (struct bytes){b->at, b->at + n};
    b->at += n;
    return true;
}

static const char *text_of(struct dtp_arena *a, const struct bytes *b) {
    return dtp_arena_strndup(a, (const char *)b->at, (size_t)(b->end - b->at));
}

/* ---- nodes ---- */

static void add_dep(struct dtp_arena *a, struct dtp_chakra *g, uint64_t id) {
    if (g->ndeps == g->deps_capacity) {
        uint32_t more = g->deps_capacity ? g->deps_capacity * 2 : 256;
        g->dep = dtp_arena_grow(a, g->dep, sizeof *g->dep, g->deps_capacity, more);
        g->deps_capacity = more;
    }
    g->dep[g->ndeps++] = id;
}

/* A repeated number, packed or not. */
static bool take_deps(struct dtp_arena *a, struct dtp_chakra *g, const struct field *f) {
    if (f->wire == WIRE_VARINT) {
        add_dep(a, g, f->value);
        return true;
    }
    struct bytes b = f->body;
    uint64_t id;
    while (f->wire == WIRE_BYTES && b.at < b.end) {
        if (!take_varint(&b, &id))
            return false;
        add_dep(a, g, id);
    }
    return f->wire == WIRE_BYTES;
}

static int64_t zigzag(uint64_t v) {
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* Attribute: any integer width is taken (writers differ), strings for the group. */
static bool take_attr(struct dtp_arena *a, struct dtp_chakra_node *node, struct bytes b) {
    struct field f;
    const char *name = "", *text = "";
    int64_t v = 0;
    while (b.at < b.end) {
        if (!take_field(&b, &f))
            return false;
        if (f.number == 1 && f.wire == WIRE_BYTES)
            name = text_of(a, &f.body);
        else if (f.wire == WIRE_BYTES)
            text = text_of(a, &f.body);
        else
            v = f.number == 15 || f.number == 17 ? zigzag(f.value) : (int64_t)f.value;
    }
    if (strcmp(name, "comm_type") == 0)
        node->comm_type = v;
    else if (strcmp(name, "comm_size") == 0)
        node->comm_bytes = v > 0 ? (uint64_t)v : 0;
    else if (strcmp(name, "comm_src") == 0)
        node->comm_src = v;
    else if (strcmp(name, "comm_dst") == 0)
        node->comm_dst = v;
    else if (strcmp(name, "num_ops") == 0)
        node->num_ops = v > 0 ? (uint64_t)v : 0;
    else if (strcmp(name, "comm_tag") == 0)
        node->comm_tag = v;
    else if (strcmp(name, "is_cpu_op") == 0)
        node->is_cpu_op = v != 0;
    else if (strcmp(name, "pg_name") == 0)
        node->group = text;
    return true;
}

static bool take_node_field(struct dtp_arena *a, struct dtp_chakra_node *node,
                            const struct field *f) {
    if (f->number == 1)
        node->id = f->value;
    else if (f->number == 2 && f->wire == WIRE_BYTES)
        node->name = text_of(a, &f->body);
    else if (f->number == 3)
        node->type = f->value < DTP_NCHAKRA_TYPES ? (int)f->value : DTP_CHAKRA_INVALID;
    else if (f->number == 6)
        node->start_us = f->value;
    else if (f->number == 7)
        node->dur_us = f->value;
    else if (f->number == 10 && f->wire == WIRE_BYTES)
        return take_attr(a, node, f->body);
    return true;
}

static bool take_node(struct dtp_arena *a, struct dtp_chakra *g, struct bytes b) {
    struct dtp_chakra_node node = {.name = "",
                                   .group = "",
                                   .comm_type = -1,
                                   .comm_src = -1,
                                   .comm_dst = -1,
                                   .comm_tag = -1,
                                   .first_dep = g->ndeps};
    struct bytes again = b;
    struct field f;
    while (b.at < b.end) /* control dependencies first */
        if (!take_field(&b, &f) || !take_node_field(a, &node, &f) ||
            (f.number == 4 && !take_deps(a, g, &f)))
            return false;
    node.nctrl = g->ndeps - node.first_dep;
    while (again.at < again.end && take_field(&again, &f))
        if (f.number == 5 && !take_deps(a, g, &f))
            return false;
    node.ndata = g->ndeps - node.first_dep - node.nctrl;
    /* ALL_REDUCE is 0, which proto3 may leave out of an attribute, never the attribute itself */
    if (g->nnodes == g->nodes_capacity) {
        uint32_t more = g->nodes_capacity ? g->nodes_capacity * 2 : 64;
        g->node = dtp_arena_grow(a, g->node, sizeof *g->node, g->nodes_capacity, more);
        g->nodes_capacity = more;
    }
    g->node[g->nnodes++] = node;
    return true;
}

static bool take_metadata(struct dtp_arena *a, struct dtp_chakra *g, struct bytes b) {
    struct field f;
    while (b.at < b.end) {
        if (!take_field(&b, &f))
            return false;
        if (f.number == 1 && f.wire == WIRE_BYTES)
            g->version = text_of(a, &f.body);
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

static enum dtp_status check_graph(struct dtp_chakra *g, const char *file, struct dtp_err *err) {
    struct dtp_arena *a = dtp_arena_create("checking a graph");
    struct by_id *v = DTP_NEW(a, struct by_id, g->nnodes + 1);
    uint32_t *target = DTP_NEW(a, uint32_t, g->ndeps + 1);
    enum dtp_status status = DTP_OK;
    for (uint32_t i = 0; i < g->nnodes; i++)
        v[i] = (struct by_id){g->node[i].id, i};
    qsort(v, g->nnodes, sizeof *v, compare_id);
    for (uint32_t i = 1; i < g->nnodes && status == DTP_OK; i++)
        if (v[i].id == v[i - 1].id)
            status = dtp_fail(err, DTP_EINPUT, "%s: node %llu is there twice", file,
                              (unsigned long long)v[i].id);
    for (uint32_t i = 0; i < g->ndeps; i++) {
        target[i] = find_node(v, g->nnodes, g->dep[i]);
        g->ndangling += target[i] == UINT32_MAX;
    }
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
    for (unsigned i = 0; i < VARINT_BYTES; i++) {
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
    *out = (struct dtp_chakra){.version = ""};
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
        struct bytes b = {buf, n > 0 ? buf + n : buf};
        bool good = out->nmessages == 0 ? take_metadata(a, out, b) : take_node(a, out, b);
        if (!good)
            return dtp_fail(err, DTP_EINPUT, "%s: message %llu is no %s", dtp_source_name(source),
                            (unsigned long long)out->nmessages,
                            out->nmessages == 0 ? "GlobalMetadata" : "Node");
    }
    if (out->nmessages == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", dtp_source_name(source));
    return check_graph(out, dtp_source_name(source), err);
}
