/* tasks_chakra.c: tasks as Chakra graphs, one a rank, as ASTRA-sim takes them: compute nodes with their
 * time, a collective on every member of its group, a transfer as a SEND on one rank and a RECV on the
 * other with one tag. What waits on another rank waits through them. */
#include <math.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "traces/formats/chakra.h"
#include "traces/tasks/tasks_private.h"

struct group {
    int first, stride, size;
};
struct tasks_groups {
    struct group *at;
    size_t n;
};

struct tasks_groups *tasks_groups_find(struct dtp_arena *a, const struct dtp_tasks *t) {
    struct tasks_groups *g = DTP_NEW(a, struct tasks_groups, 1);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        struct group own = {k->group_first, k->group_stride, k->group_size};
        size_t at = 0;
        if (own.size == 0)
            continue;
        while (at < g->n && memcmp(&g->at[at], &own, sizeof own) != 0)
            at++;
        if (at < g->n)
            continue;
        g->at = dtp_arena_grow(a, g->at, sizeof own, g->n, g->n + 1);
        g->at[g->n++] = own;
    }
    return g;
}

void tasks_write_groups(FILE *f, const struct tasks_groups *g) {
    struct dtp_json_out w;
    char key[24];
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    for (size_t i = 0; i < g->n; i++) {
        snprintf(key, sizeof key, "%zu", i);
        dtp_json_put_key(&w, key);
        dtp_json_array(&w);
        for (int k = 0; k < g->at[i].size; k++)
            dtp_json_put_int(&w, g->at[i].first + k * g->at[i].stride);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
}

static const char *group_name(struct dtp_arena *a, const struct tasks_groups *g,
                              const struct dtp_tasks_task *k) {
    struct group own = {k->group_first, k->group_stride, k->group_size};
    for (size_t i = 0; own.size > 0 && i < g->n; i++)
        if (memcmp(&g->at[i], &own, sizeof own) == 0)
            return dtp_arena_printf(a, "%zu", i);
    return "";
}

/* ALL_REDUCE, ALL_GATHER, ... in Chakra's order; -1: it has no collective of the kind. */
static int comm_type(int op) {
    static const int types[DTP_NCOMM_OPS] = {
        [DTP_COMM_ALL_REDUCE] = 0, [DTP_COMM_ALL_GATHER] = 2, [DTP_COMM_REDUCE_SCATTER] = 7,
        [DTP_COMM_ALL_TO_ALL] = 6, [DTP_COMM_BROADCAST] = 5,  [DTP_COMM_REDUCE] = 1,
        [DTP_COMM_SEND_RECV] = -1, [DTP_COMM_BARRIER] = 9,    [DTP_COMM_UNKNOWN] = -1};
    return types[op];
}

struct graph {
    struct dtp_arena *a;
    const struct dtp_tasks *t;
    struct dtp_chakra g;
    uint32_t *node; /* [ntasks] 1 + the task's node in this rank's file, or 0; for a collective that
                       stands on another member, the node of its own part */
};

static uint64_t us_of(double t_s) {
    return t_s > 0 ? (uint64_t)(t_s / DTP_MICRO + 0.5) : 0;
}

static bool is_transfer(const struct dtp_tasks_task *k) {
    return k->op == DTP_COMM_SEND_RECV && k->peer >= 0;
}

static void add_dep(struct graph *x, uint32_t node) {
    dtp_chakra_add_dep(x->a, &x->g, node);
    x->g.node[x->g.nnodes - 1].ndata++;
}

static struct dtp_chakra_node *add_node(struct graph *x, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node n = dtp_chakra_node_init(&x->g);
    n.id = x->node[i] - 1;
    n.name = k->name;
    n.type = DTP_CHAKRA_COMP;
    n.start_us = us_of(k->start_s);
    n.dur_us = us_of(k->end_s) - n.start_us;
    dtp_chakra_add_node(x->a, &x->g, &n);
    return &x->g.node[x->g.nnodes - 1];
}

/* What a task of this rank waits for; for a transfer, only what the sender waits for. */
static void add_deps(struct graph *x, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    for (uint32_t d = 0; d < k->ndeps; d++) {
        uint32_t before = x->node[x->t->dep[k->first_dep + d]];
        if (before > 0 && before != x->node[i])
            add_dep(x, before - 1);
    }
}

static void add_transfer(struct graph *x, uint32_t i, bool sends) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node *n = add_node(x, i);
    n->type = sends ? DTP_CHAKRA_SEND : DTP_CHAKRA_RECV;
    n->comm_src = k->rank;
    n->comm_dst = k->peer;
    n->comm_tag = i;
    n->comm_bytes = k->bytes;
    n->dur_us = 0;
    add_deps(x, i);
}

static bool stands_on(const struct dtp_tasks_task *k, int rank) {
    return k->rank == rank || (is_transfer(k) && k->peer == rank);
}

/* Parts of one collective are neighbours; who waits for another member's waits for the own part. */
static void share_parts(const struct graph *x) {
    const struct dtp_tasks *t = x->t;
    for (uint32_t i = 0, j; i < t->ntasks; i = j) {
        const struct dtp_tasks_task *k = &t->task[i];
        uint32_t own = x->node[i];
        for (j = i + 1;
             j < t->ntasks && k->group_size > 1 && t->task[j].start_s == k->start_s &&
             t->task[j].end_s == k->end_s && t->task[j].group_size == k->group_size &&
             t->task[j].group_first == k->group_first && strcmp(t->task[j].name, k->name) == 0;
             j++)
            own = x->node[j] > 0 ? x->node[j] : own;
        x->node[i] = own; /* others wait for the first of the parts */
    }
}

static void add_task(struct graph *x, const struct tasks_groups *groups, uint32_t i) {
    const struct dtp_tasks_task *k = &x->t->task[i];
    struct dtp_chakra_node *n = add_node(x, i);
    int type = k->class == DTP_CLASS_COMM ? comm_type(k->op) : -1;
    if (type >= 0 && k->bytes > 0) {
        n->type = DTP_CHAKRA_COLL;
        n->comm_type = type;
        n->comm_bytes = k->bytes;
        n->group = group_name(x->a, groups, k);
        n->dur_us = 0;
    }
    n->is_cpu_op = k->class == DTP_CLASS_HOST;
    n->num_ops = k->flops > 0 ? (uint64_t)k->flops : 0;
    add_deps(x, i);
}

void tasks_write_chakra(FILE *f, const struct dtp_tasks *t, const struct tasks_groups *groups,
                        int rank) {
    struct dtp_arena *scratch = dtp_arena_create("writing a graph of a rank");
    struct graph x = {.a = scratch, .t = t, .g = {.version = "0.0.4"}};
    uint32_t n = 0;
    x.node = DTP_NEW(scratch, uint32_t, (size_t)t->ntasks + 1);
    for (uint32_t i = 0; i < t->ntasks; i++)
        x.node[i] = stands_on(&t->task[i], rank) ? ++n : 0;
    share_parts(&x);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        if (!stands_on(&t->task[i], rank))
            continue;
        if (is_transfer(&t->task[i]))
            add_transfer(&x, i, t->task[i].rank == rank);
        else
            add_task(&x, groups, i);
    }
    dtp_chakra_write(f, &x.g);
    dtp_arena_destroy(scratch);
}
