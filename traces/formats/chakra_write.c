#include <string.h>

#include "traces/formats/chakra.h"

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
