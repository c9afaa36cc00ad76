#include "traces/formats/chakra.h"

#include <stdlib.h>
#include <string.h>

#include "traces/formats/protobuf.h"
#include "traces/formats/pull.h"
#include "traces/formats/format.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/catalog.h"

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

/* Removes nodes whose data dependencies are gone, until there are no more; what stays holds a cycle. */
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

static enum dtp_status check(struct dtp_chakra *g, const char *file, struct dtp_err *err) {
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
    return check(out, dtp_source_name(source), err);
}

/* ---- JSON ---- */

struct reader {
    struct dtp_pull p;
    struct dtp_arena *a;
    struct dtp_chakra *g;
};

/* Dependencies of one node, kept apart by kind until the node ends: the list wants control first. */
struct ids {
    uint64_t *at;
    uint32_t n, capacity;
};

static enum dtp_status take_ids(struct reader *r, struct ids *out, struct dtp_err *err) {
    enum dtp_status status;
    out->n = 0;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        uint64_t id;
        DTP_TRY(dtp_pull_u64(&r->p, &id, err));
        if (out->n == out->capacity) {
            uint32_t size = out->capacity * 2 + 16;
            out->at = dtp_arena_grow(r->a, out->at, sizeof *out->at, out->capacity, size);
            out->capacity = size;
        }
        out->at[out->n++] = id;
    }
    return status;
}

static enum dtp_status take_string(struct reader *r, const char **out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    *out = dtp_arena_strndup(r->a, t.at, t.n);
    return DTP_OK;
}

struct taken {
    struct dtp_chakra_node node;
    bool has_id;
};

static enum dtp_status take_number(struct reader *r, const struct dtp_text *key, struct taken *t,
                                   bool *out_known, struct dtp_err *err) {
    struct dtp_chakra_node *n = &t->node;
    struct {
        const char *key;
        int64_t *to;
    } fields[] = {{"comm_type", &n->comm_type},
                  {"comm_src", &n->comm_src},
                  {"comm_dst", &n->comm_dst},
                  {"comm_tag", &n->comm_tag}};
    *out_known = true;
    if (dtp_text_is(key, "Id")) {
        t->has_id = true;
        return dtp_pull_u64(&r->p, &n->id, err);
    }
    if (dtp_text_is(key, "runtime"))
        return dtp_pull_u64(&r->p, &n->dur_us, err);
    if (dtp_text_is(key, "comm_size"))
        return dtp_pull_u64(&r->p, &n->comm_bytes, err);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (dtp_text_is(key, fields[i].key))
            return dtp_pull_i64(&r->p, fields[i].to, err);
    *out_known = false;
    return DTP_OK;
}

static enum dtp_status take_member(struct reader *r, const struct dtp_text *key, struct taken *t,
                                   struct ids *control, struct ids *data, struct dtp_err *err) {
    struct dtp_text text;
    bool known;
    int64_t type;
    if (dtp_text_is(key, "data_deps"))
        return take_ids(r, data, err);
    if (dtp_text_is(key, "ctrlDeps"))
        return take_ids(r, control, err);
    if (dtp_text_is(key, "Name"))
        return take_string(r, &t->node.name, err);
    if (dtp_text_is(key, "pg_name"))
        return take_string(r, &t->node.group, err);
    if (dtp_text_is(key, "NodeType")) {
        DTP_TRY(dtp_pull_i64(&r->p, &type, err));
        bool valid = type > DTP_CHAKRA_INVALID && type < DTP_NCHAKRA_TYPES;
        t->node.type = valid ? (int)type : DTP_CHAKRA_INVALID;
        return DTP_OK;
    }
    if (dtp_text_is(key, "is_cpu_op")) {
        DTP_TRY(dtp_pull_text(&r->p, &text, err));
        t->node.is_cpu_op = dtp_text_is(&text, "true") || dtp_text_is(&text, "1");
        return DTP_OK;
    }
    DTP_TRY(take_number(r, key, t, &known, err));
    return known ? DTP_OK : dtp_pull_skip(&r->p, err);
}

static enum dtp_status take_json_node(struct reader *r, struct ids *control, struct ids *data,
                                      struct dtp_err *err) {
    struct taken t = {.node = dtp_chakra_node_init(r->g)};
    struct dtp_text key;
    enum dtp_status status;
    control->n = data->n = 0;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_member(r, &key, &t, control, data, err));
    DTP_TRY(status);
    if (!t.has_id)
        return dtp_pull_fail(&r->p, err, "found a node without an Id");
    for (uint32_t i = 0; i < control->n; i++)
        dtp_chakra_add_dep(r->a, r->g, control->at[i]);
    for (uint32_t i = 0; i < data->n; i++)
        dtp_chakra_add_dep(r->a, r->g, data->at[i]);
    t.node.nctrl = control->n;
    t.node.ndata = data->n;
    dtp_chakra_add_node(r->a, r->g, &t.node);
    return DTP_OK;
}

static enum dtp_status take_graph(struct reader *r, struct dtp_err *err) {
    struct ids control = {0}, data = {0};
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_json_node(r, &control, &data, err));
    return status;
}

enum dtp_status dtp_chakra_read_json(struct dtp_arena *a, struct dtp_source *source,
                                     struct dtp_chakra *out, struct dtp_err *err) {
    struct reader r = {.a = a, .g = out};
    struct dtp_text key;
    bool graph = false;
    enum dtp_status status;
    char c;
    *out = (struct dtp_chakra){.version = "", .workload = "", .soc = ""};
    dtp_pull_init(&r.p, a, source);
    DTP_TRY(dtp_pull_open(&r.p, '{', err));
    while (dtp_pull_member(&r.p, &key, &status, err)) {
        bool is_graph = dtp_text_is(&key, "workload_graph");
        graph |= is_graph;
        if (is_graph)
            DTP_TRY(take_graph(&r, err));
        else if (dtp_text_is(&key, "workload_name"))
            DTP_TRY(take_string(&r, &out->workload, err));
        else if (dtp_text_is(&key, "soc"))
            DTP_TRY(take_string(&r, &out->soc, err));
        else if (dtp_text_is(&key, "ngpus"))
            DTP_TRY(dtp_pull_i64(&r.p, &out->ngpus, err));
        else
            DTP_TRY(dtp_pull_skip(&r.p, err));
    }
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r.p, &c, err));
    if (c)
        return dtp_pull_fail(&r.p, err, "found text after the object");
    if (!graph)
        return dtp_fail(err, DTP_EINPUT, "%s: no workload_graph in it", dtp_source_name(source));
    out->nmessages = out->nnodes;
    return check(out, dtp_source_name(source), err);
}

/* ---- writing ---- */

/* A message is built in memory, for its length comes first. */
struct message {
    unsigned char *at;
    size_t n, capacity;
    struct dtp_arena *a;
};

static void put_byte(struct message *m, unsigned char c) {
    if (m->n == m->capacity) {
        m->at = dtp_arena_grow(m->a, m->at, 1, m->capacity, m->capacity * 2 + 256);
        m->capacity = m->capacity * 2 + 256;
    }
    m->at[m->n++] = c;
}

static void put_varint(struct message *m, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        put_byte(m, (unsigned char)(v | 0x80));
    put_byte(m, (unsigned char)v);
}

static void put_number(struct message *m, unsigned field, uint64_t v) {
    put_varint(m, field << 3);
    put_varint(m, v);
}

static void put_bytes(struct message *m, unsigned field, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    for (size_t i = 0; i < n; i++)
        put_byte(m, at[i]);
}

static void put_deps(struct message *m, unsigned field, const uint64_t *dep, uint32_t n) {
    struct message ids = {.a = m->a};
    for (uint32_t i = 0; i < n; i++)
        put_varint(&ids, dep[i]);
    if (n > 0)
        put_bytes(m, field, ids.at, ids.n);
}

enum { ATTR_INT64 = 9, ATTR_BOOL = 27, ATTR_STRING = 29 };

static void put_attr(struct message *m, const char *name, unsigned value_field, uint64_t v) {
    struct message attr = {.a = m->a};
    put_bytes(&attr, 1, name, strlen(name));
    put_number(&attr, value_field, v);
    put_bytes(m, 10, attr.at, attr.n);
}

static void put_node(struct message *m, const struct dtp_chakra *g,
                     const struct dtp_chakra_node *node) {
    put_number(m, 1, node->id);
    put_bytes(m, 2, node->name, strlen(node->name));
    put_number(m, 3, (uint64_t)node->type);
    if (g->ndeps > 0) {
        const uint64_t *dep = g->dep + node->first_dep;
        put_deps(m, 4, dep, node->nctrl);
        put_deps(m, 5, dep + node->nctrl, node->ndata);
    }
    put_number(m, 6, node->start_us);
    put_number(m, 7, node->dur_us);
    put_attr(m, "is_cpu_op", ATTR_BOOL, node->is_cpu_op);
    if (node->comm_type >= 0)
        put_attr(m, "comm_type", ATTR_INT64, (uint64_t)node->comm_type);
    if (node->comm_bytes > 0)
        put_attr(m, "comm_size", ATTR_INT64, node->comm_bytes);
    if (node->num_ops > 0)
        put_attr(m, "num_ops", ATTR_INT64, node->num_ops);
    if (node->comm_src >= 0)
        put_attr(m, "comm_src", ATTR_INT64, (uint64_t)node->comm_src);
    if (node->comm_dst >= 0)
        put_attr(m, "comm_dst", ATTR_INT64, (uint64_t)node->comm_dst);
    if (node->comm_tag >= 0)
        put_attr(m, "comm_tag", ATTR_INT64, (uint64_t)node->comm_tag);
    if (node->group[0]) {
        struct message attr = {.a = m->a};
        put_bytes(&attr, 1, "pg_name", strlen("pg_name"));
        put_bytes(&attr, ATTR_STRING, node->group, strlen(node->group));
        put_bytes(m, 10, attr.at, attr.n);
    }
}

static void write_message(FILE *f, struct message *m) {
    struct message length = {.a = m->a};
    put_varint(&length, m->n);
    fwrite(length.at, 1, length.n, f);
    fwrite(m->at, 1, m->n, f);
    m->n = 0;
}

void dtp_chakra_write(FILE *f, const struct dtp_chakra *graph) {
    struct message m = {.a = dtp_arena_create("writing a graph")};
    put_bytes(&m, 1, graph->version, strlen(graph->version));
    write_message(f, &m);
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        put_node(&m, graph, &graph->node[i]);
        write_message(f, &m);
    }
    dtp_arena_destroy(m.a);
}

/* ---- the rows of the formats ---- */

/* A length, and so many bytes that are fields 1 (a string) or 2 (an attribute); or none, and a node. */
static bool is_chakra(const struct dtp_format_head *h) {
    size_t size;
    const unsigned char *at = dtp_head_bytes(h, &size);
    struct dtp_bytes b = {at, at + size};
    uint64_t n;
    if (size < 2 || dtp_head_json(h) || !dtp_proto_varint(&b, &n) || b.at == b.end)
        return false;
    if (n == 0)
        return dtp_proto_varint(&b, &n) && n > 0 && b.at < b.end &&
               (*b.at == 0x08 || *b.at == 0x12);
    if (*b.at != 0x0a && *b.at != 0x12)
        return false;
    struct dtp_proto_field f;
    bool whole = n <= (uint64_t)(b.end - b.at);
    if (whole)
        b.end = b.at + n;
    while (b.at < b.end && dtp_proto_next(&b, &f))
        if (f.number > 2 || f.wire != DTP_WIRE_BYTES)
            return false;
    return !whole || b.at == b.end;
}

static bool is_chakra_json(const struct dtp_format_head *h) {
    return dtp_head_json(h) == '{' &&
           (dtp_head_has_key(h, 1, "workload_graph") ||
            (dtp_head_has_key(h, 1, "workload_name") && dtp_head_has_key(h, 1, "ngpus")));
}

static enum dtp_status read_protobuf(struct dtp_arena *a, const struct dtp_visited *v,
                                     const struct dtp_format_options *o, void **content,
                                     struct dtp_err *err) {
    (void)o;
    struct dtp_chakra *g = *content = DTP_NEW(a, struct dtp_chakra, 1);
    return dtp_chakra_read(a, v->source, g, err);
}

static enum dtp_status read_json(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_chakra *g = *content = DTP_NEW(a, struct dtp_chakra, 1);
    return dtp_chakra_read_json(a, v->source, g, err);
}

static const struct dtp_traffic *traffic_of(struct dtp_arena *a, const struct dtp_chakra *g) {
    struct dtp_traffic *t = DTP_NEW(a, struct dtp_traffic, 1);
    t->a = a;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const struct dtp_chakra_node *n = &g->node[i];
        bool named = n->comm_type >= 0 && n->comm_type < DTP_NCHAKRA_COMMS;
        if (n->type == DTP_CHAKRA_COLL && n->comm_type < 0)
            continue; /* the host's call around a collective moves nothing itself */
        if (n->type >= DTP_CHAKRA_SEND)
            dtp_traffic_add(t,
                            n->type == DTP_CHAKRA_COLL && named ? dtp_chakra_comm_name[n->comm_type]
                                                                : dtp_chakra_type_name[n->type],
                            n->group, 1, (double)n->comm_bytes);
    }
    return t;
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    const struct dtp_chakra *g = item->content;
    fprintf(f, "  %u nodes, %u dependencies (%llu on nodes that are not there)\n", g->nnodes,
            g->ndeps, (unsigned long long)g->ndangling);
    for (int type = 0; type < DTP_NCHAKRA_TYPES; type++) {
        uint64_t n = 0, us = 0;
        char time[32];
        for (uint32_t i = 0; i < g->nnodes; i++)
            if (g->node[i].type == type) {
                n++;
                us += g->node[i].dur_us;
            }
        if (n > 0)
            fprintf(f, "    %-22s %-18s x%-7llu %s\n", dtp_chakra_type_name[type], "",
                    (unsigned long long)n, dtp_fmt_time((double)us * DTP_MICRO, time, sizeof time));
    }
    dtp_traffic_print(f, traffic_of(a, g));
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    const struct dtp_chakra *g = item->content;
    dtp_json_kv_string(w, "version", g->version);
    dtp_json_kv_u64(w, "nodes", g->nnodes);
    dtp_json_kv_u64(w, "dependencies", g->ndeps);
    dtp_json_kv_u64(w, "dangling", g->ndangling);
    dtp_json_put_key(w, "types");
    dtp_json_array(w);
    for (int type = 0; type < DTP_NCHAKRA_TYPES; type++) {
        uint64_t n = 0, us = 0;
        for (uint32_t i = 0; i < g->nnodes; i++) {
            n += g->node[i].type == type;
            us += g->node[i].type == type ? g->node[i].dur_us : 0;
        }
        if (n == 0)
            continue;
        dtp_json_object(w);
        dtp_json_kv_string(w, "type", dtp_chakra_type_name[type]);
        dtp_json_kv_u64(w, "count", n);
        dtp_json_kv_double(w, "duration_s", (double)us * DTP_MICRO);
        dtp_json_end(w);
    }
    dtp_json_end(w);
    dtp_traffic_json(w, traffic_of(a, g));
}

const struct dtp_format dtp_format_chakra = {.name = "chakra",
                                             .title = "Chakra graph, protobuf (.et)",
                                             .told = "first message is a GlobalMetadata",
                                             .kind = DTP_KIND_GRAPH,
                                             .detect = is_chakra,
                                             .read = read_protobuf,
                                             .print = print_item,
                                             .json = write_item};

const struct dtp_format dtp_format_chakra_json = {.name = "chakra-json",
                                                  .title = "Chakra graph, JSON",
                                                  .told = "key workload_graph",
                                                  .kind = DTP_KIND_GRAPH,
                                                  .detect = is_chakra_json,
                                                  .read = read_json,
                                                  .print = print_item,
                                                  .json = write_item};
