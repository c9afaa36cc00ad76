/* chakra_run.c: Chakra graphs of ranks, as one graph for the engine. Each node has a task; collectives
 * and transfers have one more between their sides: it starts when all sides are ready. */
#include <stdlib.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/units.h"
#include "sim/engine.h"
#include "traces/tasks/workload_run.h"

enum resource { HOST, COMPUTE, MEMORY, COMM, NRESOURCES };
static const char *const resource_name[NRESOURCES] = {"host", "compute", "memory", "communication"};

/* One side of a collective or transfer, to be matched: nodes of equal key, in order. */
struct side {
    const char *group; /* group of a collective; "" for a transfer */
    int64_t from, to, tag, kind;
    uint32_t order; /* number among those of its rank with this key */
    uint32_t rank, node;
};

struct run {
    struct dtp_arena *a;
    const struct dtp_chakra *const *graph;
    size_t nranks;
    const struct dtp_cluster *c;
    int gpus;
    struct dtp_graph g;
    dtp_id **start, **end; /* [rank][node] */
    dtp_id (*stream)[NRESOURCES];
    struct dtp_intern *groups; /* a group has a line of its own on each rank, as in NCCL */
    dtp_id *line;              /* [ngroups], of the rank being added; DTP_NONE: not yet */
    struct side *side;
    size_t nsides;
    uint64_t unmatched;
    struct dtp_err *err;
};

static enum resource resource_of(const struct dtp_chakra_node *n) {
    if (n->is_cpu_op || n->type == DTP_CHAKRA_METADATA || n->type == DTP_CHAKRA_INVALID ||
        (n->type == DTP_CHAKRA_COLL && n->comm_type < 0))
        return HOST;
    if (n->type == DTP_CHAKRA_MEM_LOAD || n->type == DTP_CHAKRA_MEM_STORE)
        return MEMORY;
    return n->type == DTP_CHAKRA_COMP ? COMPUTE : COMM;
}

static bool kind_of(int64_t comm_type, enum dtp_collective *out) {
    static const int kinds[DTP_NCHAKRA_COMMS] = {
        DTP_ALL_REDUCE, DTP_REDUCE,     DTP_ALL_GATHER,     DTP_ALL_GATHER,     DTP_BROADCAST,
        DTP_BROADCAST,  DTP_ALL_TO_ALL, DTP_REDUCE_SCATTER, DTP_REDUCE_SCATTER, -1};
    if (comm_type < 0 || comm_type >= DTP_NCHAKRA_COMMS || kinds[comm_type] < 0)
        return false; /* a barrier moves nothing */
    *out = (enum dtp_collective)kinds[comm_type];
    return true;
}

/* ---- order of nodes on their resources: one in which every dependency comes first ---- */

/* Counts each data dependency that has a node, or puts the waiting node on the list of that node. */
struct waiting {
    uint32_t *npred, *first, *succ;
    bool counting;
};

static void visit(const struct dtp_chakra *g, uint32_t i, const uint32_t *target,
                  struct waiting *w) {
    const struct dtp_chakra_node *n = &g->node[i];
    for (uint32_t d = n->first_dep + n->nctrl; d < n->first_dep + n->nctrl + n->ndata; d++) {
        if (target[d] == UINT32_MAX)
            continue;
        if (w->counting) {
            w->first[target[d] + 1]++;
            w->npred[i]++;
        } else {
            w->succ[w->first[target[d]]++] = i;
        }
    }
}

/* Nodes as they become ready, in the order of the file among equals (a queue). */
static uint32_t *topological(struct run *r, const struct dtp_chakra *g, const uint32_t *target) {
    uint32_t *order = DTP_NEW(r->a, uint32_t, g->nnodes + 1), n = 0;
    struct waiting w = {DTP_NEW(r->a, uint32_t, g->nnodes + 1),
                        DTP_NEW(r->a, uint32_t, g->nnodes + 2),
                        DTP_NEW(r->a, uint32_t, g->ndeps + 1), true};
    for (uint32_t i = 0; i < g->nnodes; i++)
        visit(g, i, target, &w);
    for (uint32_t i = 0; i < g->nnodes; i++)
        w.first[i + 1] += w.first[i];
    w.counting = false;
    for (uint32_t i = 0; i < g->nnodes; i++)
        visit(g, i, target, &w);
    uint32_t *npred = w.npred, *first = w.first, *succ = w.succ;
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (npred[i] == 0)
            order[n++] = i;
    for (uint32_t done = 0; done < n; done++) { /* first[i] now is where the next one's begin */
        uint32_t from = order[done] > 0 ? first[order[done] - 1] : 0;
        for (uint32_t k = from; k < first[order[done]]; k++)
            if (--npred[succ[k]] == 0)
                order[n++] = succ[k];
    }
    return order; /* all nodes: the reader refuses cycles */
}

/* ---- tasks ---- */

static dtp_id add(struct run *r, double time_s, dtp_id stream) {
    return dtp_graph_add(
        &r->g,
        &(struct dtp_task){.work = time_s, .rate_cap = 1, .device = DTP_NONE, .stream = stream});
}

static dtp_id line_of(struct run *r, const char *group) {
    uint32_t id = dtp_intern_add(r->groups, group, strlen(group));
    if (r->line[id] == DTP_NONE)
        r->line[id] = dtp_graph_stream(&r->g);
    return r->line[id];
}

static void add_node(struct run *r, uint32_t rank, uint32_t i) {
    const struct dtp_chakra_node *n = &r->graph[rank]->node[i];
    enum resource resource = resource_of(n);
    if (resource != COMM) {
        r->start[rank][i] = r->end[rank][i] =
            add(r, (double)n->dur_us * DTP_MICRO, r->stream[rank][resource]);
        return;
    }
    /* collectives of a group hold their place in line; transfers may pass each other */
    bool coll = n->type == DTP_CHAKRA_COLL;
    dtp_id stream = coll ? line_of(r, n->group) : DTP_NONE;
    r->start[rank][i] = add(r, 0, stream);
    r->end[rank][i] = add(r, 0, stream);
    struct side *s = &r->side[r->nsides++];
    *s =
        (struct side){.group = coll ? n->group : "", .kind = n->comm_type, .rank = rank, .node = i};
    if (!coll) {
        s->kind = -1;
        s->from = n->type == DTP_CHAKRA_SEND ? (int64_t)rank : n->comm_src;
        s->to = n->type == DTP_CHAKRA_SEND ? n->comm_dst : (int64_t)rank;
        s->tag = n->comm_tag;
    }
}

static void add_rank(struct run *r, uint32_t rank) {
    const struct dtp_chakra *g = r->graph[rank];
    const uint32_t *target = dtp_chakra_targets(r->a, g), *order = topological(r, g, target);
    r->start[rank] = DTP_NEW(r->a, dtp_id, g->nnodes + 1);
    r->end[rank] = DTP_NEW(r->a, dtp_id, g->nnodes + 1);
    for (int k = 0; k < NRESOURCES; k++)
        r->stream[rank][k] = dtp_graph_stream(&r->g);
    for (uint32_t i = 0; i < r->groups->n; i++)
        r->line[i] = DTP_NONE;
    for (uint32_t i = 0; i < g->nnodes; i++)
        add_node(r, rank, order[i]);
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const struct dtp_chakra_node *n = &g->node[i];
        for (uint32_t d = n->first_dep + n->nctrl; d < n->first_dep + n->nctrl + n->ndata; d++)
            if (target[d] != UINT32_MAX)
                dtp_graph_dep(&r->g, r->end[rank][target[d]], r->start[rank][i]);
    }
}

/* ---- sides that belong together ---- */

static int by_key(const struct side *p, const struct side *q) {
    int c = strcmp(p->group, q->group);
    if (c != 0)
        return c;
    const int64_t x[] = {p->from, p->to, p->tag}, y[] = {q->from, q->to, q->tag};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Sends and collectives are told apart by kind only where the group is unnamed. */
static int by_kind_and_key(const struct side *p, const struct side *q) {
    bool p_coll = p->kind >= 0, q_coll = q->kind >= 0;
    if (p_coll != q_coll)
        return p_coll ? 1 : -1;
    return by_key(p, q);
}

static int by_key_and_rank(const void *x, const void *y) {
    const struct side *p = x, *q = y;
    int c = by_kind_and_key(p, q);
    if (c != 0)
        return c;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    return p->order < q->order ? -1 : p->order > q->order;
}

static int by_key_and_order(const void *x, const void *y) {
    const struct side *p = x, *q = y;
    int c = by_kind_and_key(p, q);
    if (c != 0)
        return c;
    if (p->order != q->order)
        return p->order < q->order ? -1 : 1;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

/* The members of a group lie a stride apart, and groups like it fill the other GPUs. */
static double collective_s(struct run *r, const struct side *s, size_t n, double bytes) {
    enum dtp_collective kind;
    struct dtp_placement p;
    struct dtp_coll_cost cost;
    int size = n > 1 ? (int)n : r->gpus;
    int stride = n > 1 ? (int)s[1].rank - (int)s[0].rank : 1;
    for (size_t i = 2; i < n; i++)
        if ((int)s[i].rank - (int)s[i - 1].rank != stride)
            stride = 1;
    if (!kind_of(s->kind, &kind) || bytes <= 0 || size <= 1)
        return 0;
    struct dtp_sizes sizes = {stride, 1, size, 1, 1};
    if (stride < 1 || dtp_placement_init(&p, r->c, &sizes, "tp-cp-dp-pp", NULL) != DTP_OK)
        return 0;
    struct dtp_group_shape shape = dtp_placement_shape(&p, r->c, DTP_AXIS_DP, 0);
    dtp_coll_cost(r->c, kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
    return cost.time_s;
}

static double transfer_s(struct run *r, const struct side *s, double bytes) {
    struct dtp_coll_cost cost = {0};
    bool inside = s->from >= 0 && s->to >= 0 && s->from < r->gpus && s->to < r->gpus;
    if (bytes > 0 && r->gpus > 1 && s->from != s->to)
        dtp_p2p_cost(r->c, inside ? (int)s->from : 0, inside ? (int)s->to : 1, 1, bytes, &cost);
    return cost.time_s;
}

/* Sides [from, to) are one collective or transfer. */
static void join(struct run *r, const struct side *s, size_t n) {
    double bytes = 0;
    for (size_t i = 0; i < n; i++) {
        double own = (double)r->graph[s[i].rank]->node[s[i].node].comm_bytes;
        bytes = own > bytes ? own : bytes;
    }
    bool coll = s->kind >= 0;
    r->unmatched += coll ? n == 1 && r->nranks > 1 : n == 1;
    dtp_id middle = add(r, coll ? collective_s(r, s, n, bytes) : transfer_s(r, s, bytes), DTP_NONE);
    for (size_t i = 0; i < n; i++) {
        dtp_graph_dep(&r->g, r->start[s[i].rank][s[i].node], middle);
        dtp_graph_dep(&r->g, middle, r->end[s[i].rank][s[i].node]);
    }
}

static void join_all(struct run *r) {
    if (r->nsides == 0)
        return;
    /* sides of a rank with one key were added in its order: number them */
    for (size_t i = 0; i < r->nsides; i++)
        r->side[i].order = (uint32_t)i;
    qsort(r->side, r->nsides, sizeof *r->side, by_key_and_rank);
    uint32_t order = 0;
    for (size_t i = 0; i < r->nsides; i++) {
        bool same = i > 0 && (r->side[i].kind >= 0) == (r->side[i - 1].kind >= 0) &&
                    by_key(&r->side[i], &r->side[i - 1]) == 0 &&
                    r->side[i].rank == r->side[i - 1].rank;
        order = same ? order + 1 : 0;
        r->side[i].order = order;
    }
    qsort(r->side, r->nsides, sizeof *r->side, by_key_and_order);
    for (size_t from = 0, to; from < r->nsides; from = to) {
        for (to = from + 1; to < r->nsides && r->side[to].order == r->side[from].order &&
                            (r->side[to].kind >= 0) == (r->side[from].kind >= 0) &&
                            by_key(&r->side[to], &r->side[from]) == 0;)
            to++;
        join(r, r->side + from, to - from);
    }
}

/* ---- the record ---- */

static void record(struct run *r, const struct dtp_timeline *line, struct dtp_tasks *tasks) {
    for (uint32_t rank = 0; rank < r->nranks; rank++) {
        dtp_tasks_rank(tasks, (int)rank, dtp_arena_printf(r->a, "rank %u", rank));
        for (uint32_t i = 0; i < r->graph[rank]->nnodes; i++) {
            const struct dtp_chakra_node *n = &r->graph[rank]->node[i];
            enum resource resource = resource_of(n);
            dtp_tasks_add(
                tasks, &(struct dtp_tasks_task){.name = n->name,
                                                .rank = (int)rank,
                                                .stream = resource_name[resource],
                                                .class = resource == COMM      ? DTP_CLASS_COMM
                                                         : resource == COMPUTE ? DTP_CLASS_COMPUTE
                                                         : resource == MEMORY  ? DTP_CLASS_MEMORY
                                                                               : DTP_CLASS_HOST,
                                                .bytes = n->comm_bytes,
                                                .start_s = line->start_s[r->start[rank][i]],
                                                .end_s = line->end_s[r->end[rank][i]],
                                                DTP_TASKS_UNSAID});
        }
    }
    dtp_tasks_step(tasks, -1, "graph", 0, line->makespan_s);
}

static void sum_up(struct run *r, const struct dtp_timeline *line,
                   struct dtp_workload_result *out) {
    for (uint32_t i = 0; i < r->graph[0]->nnodes; i++) {
        enum resource resource = resource_of(&r->graph[0]->node[i]);
        double time_s = line->end_s[r->end[0][i]] - line->start_s[r->start[0][i]];
        if (resource == COMPUTE)
            out->busy_s[DTP_WORKLOAD_COMPUTE] += time_s;
        else if (resource == COMM)
            out->busy_s[DTP_WORKLOAD_COMMUNICATION] += time_s;
    }
}

enum dtp_status dtp_chakra_run(struct dtp_arena *a, const struct dtp_chakra *const *graph,
                               size_t nranks, const struct dtp_cluster *c, int gpus,
                               struct dtp_workload_result *out, struct dtp_err *err) {
    struct run r = {.a = a, .graph = graph, .nranks = nranks, .c = c, .err = err};
    struct dtp_platform platform;
    struct dtp_timeline line;
    uint64_t nodes = 0;
    *out = (struct dtp_workload_result){0};
    r.gpus = gpus > (int)nranks ? gpus : (int)nranks;
    r.groups = dtp_intern_create(a);
    for (size_t i = 0; i < nranks; i++) {
        nodes += graph[i]->nnodes;
        for (uint32_t k = 0; k < graph[i]->nnodes; k++)
            dtp_intern_text(r.groups, graph[i]->node[k].group);
    }
    r.line = DTP_NEW(a, dtp_id, r.groups->n + 1);
    dtp_graph_init(&r.g, a);
    r.side = DTP_NEW(a, struct side, nodes + 1);
    r.start = DTP_NEW(a, dtp_id *, nranks);
    r.end = DTP_NEW(a, dtp_id *, nranks);
    r.stream = dtp_arena_alloc(a, sizeof *r.stream, nranks);
    for (uint32_t rank = 0; rank < nranks; rank++)
        add_rank(&r, rank);
    join_all(&r);
    DTP_TRY(dtp_graph_freeze(&r.g, err));
    dtp_platform_init(&platform, a);
    DTP_TRY(dtp_engine_run(a, &platform, &r.g, &line, err));
    out->step_s = line.makespan_s;
    out->gpus = r.gpus;
    out->sizes = (struct dtp_sizes){1, 1, r.gpus, 1, 1};
    out->unmatched = r.unmatched;
    out->tasks = dtp_tasks_create(a, "simulation", "Chakra graphs");
    record(&r, &line, out->tasks);
    sum_up(&r, &line, out);
    return DTP_OK;
}
