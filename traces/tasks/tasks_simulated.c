#include "traces/tasks/tasks_simulated.h"

#include <math.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"

struct build {
    struct dtp_arena *a;
    const struct dtp_tasks_simulation *s;
    const struct dtp_lowered *lo;
    struct dtp_tasks *t;
    struct dtp_placement placement;
    bool placed;
    uint32_t *pred_begin, *pred; /* predecessors in the graph */
    uint32_t *task_of;           /* [graph tasks] first task made of it */
    int *held, *most;            /* [nranks] microbatches of activations: now, at most */
    int *index;                  /* by global rank */
    double *alone_s;             /* [ops] of an operation by itself; 0: not computed yet */
};

static const char *const stream_names[DTP_NTASKS] = {
    [DTP_T_F] = "compute",
    [DTP_T_B] = "compute",
    [DTP_T_I] = "compute",
    [DTP_T_W] = "compute",
    [DTP_T_SEND_F] = "send forward",
    [DTP_T_SEND_B] = "send backward",
    [DTP_T_REDUCE] = "data parallel",
    [DTP_T_GATHER] = "data parallel",
    [DTP_T_UNSHARD] = "data parallel",
    [DTP_T_OPTIM] = "compute",
    [DTP_T_EMBEDDING] = "embedding",
    [DTP_T_NORM] = "norm",
    [DTP_T_OFFLOAD] = "compute",
    [DTP_T_HOST] = "compute",
    [DTP_T_LATE] = "compute",
    [DTP_T_OP] = "compute",
};

static enum dtp_comm_op comm_op(enum dtp_collective kind) {
    static const enum dtp_comm_op ops[DTP_NCOLLECTIVES] = {[DTP_ALL_REDUCE] = DTP_COMM_ALL_REDUCE,
                                                           [DTP_ALL_GATHER] = DTP_COMM_ALL_GATHER,
                                                           [DTP_REDUCE_SCATTER] =
                                                               DTP_COMM_REDUCE_SCATTER,
                                                           [DTP_BROADCAST] = DTP_COMM_BROADCAST,
                                                           [DTP_REDUCE] = DTP_COMM_REDUCE,
                                                           [DTP_ALL_TO_ALL] = DTP_COMM_ALL_TO_ALL,
                                                           [DTP_SEND_RECV] = DTP_COMM_SEND_RECV};
    return ops[kind];
}

static int chunk_of(const struct dtp_lowered *lo, int vs) {
    int rank, chunk;
    dtp_schedule_holder(lo->schedule, lo->pp, lo->vpp, vs, &rank, &chunk);
    return chunk;
}

/* As in the text of a schedule where the task is an action. */
static const char *task_name(const struct build *b, struct dtp_task_tag tag) {
    static const char *const action[] = {"F", "B", "I", "W", "SF", "SB"};
    if (tag.kind <= DTP_T_SEND_B)
        return dtp_arena_printf(b->a, "%d%s%d", chunk_of(b->lo, tag.stage), action[tag.kind],
                                tag.microbatch);
    if (tag.kind == DTP_T_OP)
        return b->lo->op_name[tag.part];
    if (tag.kind == DTP_T_REDUCE || tag.kind == DTP_T_GATHER || tag.kind == DTP_T_UNSHARD)
        return dtp_arena_printf(b->a, "%d %s %d", chunk_of(b->lo, tag.stage),
                                dtp_task_names[tag.kind], tag.microbatch);
    return dtp_task_names[tag.kind];
}

/* ---- the collective or transfer of a task ---- */

static const struct dtp_comm *comm_of(const struct build *b, struct dtp_task_tag tag) {
    const struct dtp_costs *c = b->s->costs;
    const struct dtp_stage_cost *s = &c->stage[tag.stage < c->nstages ? tag.stage : 0];
    const struct dtp_comm *const comm[DTP_NTASKS] = {
        [DTP_T_SEND_F] = &s->send_f,       [DTP_T_SEND_B] = &s->send_b,
        [DTP_T_REDUCE] = &s->reduce,       [DTP_T_GATHER] = &s->gather,
        [DTP_T_UNSHARD] = &s->unshard,     [DTP_T_EMBEDDING] = &c->embedding_all_reduce,
        [DTP_T_NORM] = &c->norm_all_reduce};
    return comm[tag.kind];
}

/* The rank that waits for a transfer. */
static int receiver(const struct build *b, dtp_id x, int sender) {
    const struct dtp_graph *g = &b->lo->graph;
    for (uint32_t k = g->succ_begin[x]; k < g->succ_begin[x + 1]; k++) {
        int to = dtp_tag_unpack(g->tag[g->succ[k]]).rank;
        if (to != sender)
            return to;
    }
    return -1;
}

/* Tied embeddings: the first and the last stage; the norm: every rank. */
static struct dtp_group group_of(const struct build *b, struct dtp_task_tag tag,
                                 enum dtp_axis axis) {
    const struct dtp_placement *p = &b->placement;
    int t, c, d, s;
    if (tag.kind == DTP_T_NORM)
        return (struct dtp_group){0, 1, p->ngpus};
    if (tag.kind != DTP_T_EMBEDDING)
        return dtp_placement_group(p, axis, tag.rank);
    dtp_placement_coords(p, tag.rank, &t, &c, &d, &s);
    int first = dtp_placement_rank(p, t, c, d, 0), last = dtp_placement_rank(p, t, c, d, p->pp - 1);
    return (struct dtp_group){first, last - first, 2};
}

static void describe_comm(const struct build *b, dtp_id x, struct dtp_task_tag tag,
                          struct dtp_tasks_task *k) {
    const struct dtp_comm *c = comm_of(b, tag);
    if (!c)
        return;
    double dur_s = k->end_s - k->start_s;
    /* several units may be one task (a reduction that nothing overlaps) */
    double n = c->time_s > 0 ? floor(b->lo->graph.alone_s[x] / c->time_s + 0.5) : 1;
    n = n >= 1 && dur_s > 0 ? n : 1;
    k->class = DTP_CLASS_COMM;
    k->op = (int)comm_op(c->kind);
    k->bytes = c->bytes > 0 ? (uint64_t)(n * c->bytes) : 0;
    k->latency_s = n * c->latency_s < dur_s ? n * c->latency_s : dur_s;
    if (tag.kind == DTP_T_SEND_F || tag.kind == DTP_T_SEND_B) {
        k->op = DTP_COMM_SEND_RECV;
        k->peer = receiver(b, x, tag.rank);
        return;
    }
    if (!b->placed || (b->lo->folded && tag.kind == DTP_T_NORM))
        return;
    struct dtp_group g = group_of(b, tag, c->axis);
    k->group_first = g.first;
    k->group_stride = g.stride;
    k->group_size = g.size;
}

static void describe_op(const struct build *b, struct dtp_task_tag tag, struct dtp_tasks_task *k) {
    const struct dtp_op *op = b->lo->op ? b->lo->op[tag.part] : NULL;
    if (!op)
        return;
    static const char *const passes[DTP_NPASSES] = {"", " dX", " dW"};
    bool said = strstr(k->name, "dX") || strstr(k->name, "dY") || strstr(k->name, "backward");
    if (op->pass != DTP_PASS_F && !said)
        k->name = dtp_arena_printf(b->a, "%s%s", k->name, passes[op->pass]);
    k->category = dtp_op_kind_names[op->kind];
    if (!(b->alone_s[tag.part] > 0))
        b->alone_s[tag.part] = dtp_op_time_s(b->s->problem, b->s->plan, op);
    double dur_s = k->end_s - k->start_s, alone_s = b->alone_s[tag.part];
    k->wait_s = op->kind != DTP_OP_COLLECTIVE && dur_s > alone_s ? dur_s - alone_s : 0;
    k->flops = op->count > 0 ? dtp_op_flops(op) / op->count : dtp_op_flops(op);
    if (op->kind == DTP_OP_GEMM || op->kind == DTP_OP_BMM)
        k->shape =
            dtp_arena_printf(b->a, "%lldx%lldx%lldx%lld", (long long)op->gemm.batch,
                             (long long)op->gemm.m, (long long)op->gemm.n, (long long)op->gemm.k);
    else if (op->kind == DTP_OP_ATTENTION)
        k->shape =
            dtp_arena_printf(b->a, "%lldx%lldx%lldx%lldx%lld", (long long)op->attention.batch,
                             (long long)op->attention.heads, (long long)op->attention.kv_heads,
                             (long long)op->attention.seq_q, (long long)op->attention.head_dim);
    if (op->kind != DTP_OP_COLLECTIVE)
        return;
    k->class = DTP_CLASS_COMM;
    k->op = (int)comm_op(op->collective);
    k->bytes = op->bytes > 0 ? (uint64_t)op->bytes : 0;
    if (!b->placed)
        return;
    struct dtp_group g = dtp_placement_group(&b->placement, op->axis, tag.rank);
    k->group_first = g.first;
    k->group_stride = g.stride;
    k->group_size = g.size;
}

/* The part of an action in which the device waits for the host's launches. */
static double host_share(const struct build *b, struct dtp_task_tag tag) {
    const struct dtp_costs *c = b->s->costs;
    bool late = tag.kind == DTP_T_LATE;
    if ((tag.kind > DTP_T_W && !late) || tag.stage >= c->nstages)
        return 0;
    const struct dtp_stage_cost *s = &c->stage[tag.stage];
    double host_s = s->f.host_s, total_s = s->f.total_s;
    if (late) {
        host_s = c->late.host_s;
        total_s = c->late.total_s;
    } else if (tag.kind == DTP_T_W) {
        host_s = s->w.host_s;
        total_s = s->w.total_s;
    } else if (tag.kind != DTP_T_F) {
        double w = tag.kind == DTP_T_B;
        host_s = s->i.host_s + s->r.host_s + w * s->w.host_s;
        total_s = s->i.total_s + s->r.total_s + w * s->w.total_s;
    }
    return total_s > 0 && host_s < total_s ? host_s / total_s : 0;
}

/* ---- tasks ---- */

static void find_preds(struct build *b) {
    const struct dtp_graph *g = &b->lo->graph;
    uint32_t n = b->s->timeline->ntasks;
    b->pred_begin = DTP_NEW(b->a, uint32_t, (size_t)n + 2);
    b->pred = DTP_NEW(b->a, uint32_t, (size_t)g->succ_begin[n] + 1);
    for (uint32_t k = 0; k < g->succ_begin[n]; k++)
        b->pred_begin[g->succ[k] + 2]++;
    for (uint32_t i = 2; i <= n + 1; i++)
        b->pred_begin[i] += b->pred_begin[i - 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = g->succ_begin[i]; k < g->succ_begin[i + 1]; k++)
            b->pred[b->pred_begin[g->succ[k] + 1]++] = i;
}

static void add_deps(struct build *b, dtp_id x) {
    for (uint32_t k = b->pred_begin[x]; k < b->pred_begin[x + 1]; k++)
        dtp_tasks_after(b->t, b->task_of[b->pred[k]]);
}

static struct dtp_tasks_task describe(const struct build *b, dtp_id x, struct dtp_task_tag tag) {
    bool action = tag.kind <= DTP_T_SEND_B || tag.kind == DTP_T_OP;
    bool chunked =
        action || tag.kind == DTP_T_REDUCE || tag.kind == DTP_T_GATHER || tag.kind == DTP_T_UNSHARD;
    struct dtp_tasks_task k = {.name = task_name(b, tag),
                               .rank = tag.rank,
                               .stream = stream_names[tag.kind],
                               .category = dtp_task_names[tag.kind],
                               DTP_TASKS_UNSAID,
                               .start_s = b->s->timeline->start_s[x],
                               .end_s = b->s->timeline->end_s[x]};
    if (action)
        k.microbatch = tag.microbatch;
    if (chunked)
        k.chunk = chunk_of(b->lo, tag.stage);
    if (tag.kind <= DTP_T_W && tag.part > 0)
        k.part = tag.part;
    k.wait_s = host_share(b, tag) * (k.end_s - k.start_s);
    if (tag.kind == DTP_T_OFFLOAD)
        k.class = DTP_CLASS_MEMORY;
    else if (tag.kind == DTP_T_HOST)
        k.class = DTP_CLASS_HOST;
    else if (tag.kind == DTP_T_OP)
        describe_op(b, tag, &k);
    else
        describe_comm(b, x, tag, &k);
    return k;
}

/* A task of the rank, or a collective that it is a member of. */
static bool concerns(const struct dtp_tasks_task *k, int rank) {
    int far = rank - k->group_first;
    return k->rank == rank || (k->group_size > 1 && k->group_stride > 0 && far >= 0 &&
                               far % k->group_stride == 0 && far / k->group_stride < k->group_size);
}

/* Adds those dependencies of the collective that concern the rank. */
static void add_own_deps(struct build *b, dtp_id x, int rank) {
    for (uint32_t k = b->pred_begin[x]; k < b->pred_begin[x + 1]; k++) {
        uint32_t before = b->task_of[b->pred[k]];
        if (before < b->t->ntasks && concerns(&b->t->task[before], rank))
            dtp_tasks_after(b->t, before);
    }
}

/* Members of the group that are simulated themselves: the same collective, seen from them. It waits for
 * what the member did, and ends with the first's. */
static void add_members(struct build *b, dtp_id x, struct dtp_tasks_task k) {
    int own = k.rank;
    if (b->lo->folded || k.group_size < 2 || dtp_tag_unpack(b->lo->graph.tag[x]).kind == DTP_T_OP)
        return;
    for (int i = 0; i < k.group_size; i++) {
        k.rank = k.group_first + i * k.group_stride;
        if (k.rank == own || k.end_s == k.start_s)
            continue;
        dtp_tasks_add(b->t, &k);
        add_own_deps(b, x, k.rank);
        dtp_tasks_after(b->t, b->task_of[x]);
    }
}

/* Ids of the graph are no topological order where a frozen order says otherwise; all first tasks are
 * numbered before their dependencies are taken. */
static void number_tasks(struct build *b) {
    uint32_t n = b->s->timeline->ntasks, at = 0;
    b->task_of = DTP_NEW(b->a, uint32_t, (size_t)n + 1);
    for (dtp_id x = 0; x < n; x++) {
        struct dtp_tasks_task k = describe(b, x, dtp_tag_unpack(b->lo->graph.tag[x]));
        b->task_of[x] = at++;
        bool copies = !b->lo->folded && k.group_size > 1 && k.end_s > k.start_s &&
                      dtp_tag_unpack(b->lo->graph.tag[x]).kind != DTP_T_OP;
        at += copies ? (uint32_t)k.group_size - 1 : 0;
    }
}

/* ---- counters ---- */

/* Activations of a microbatch are held from the start of F to the end of B (of W where split). */
static void count_activations(struct build *b, dtp_id x, struct dtp_task_tag tag, bool write) {
    int i = b->index[tag.rank];
    int *held = &b->held[i];
    struct dtp_task_tag next = {.kind = DTP_NTASKS};
    if (x + 1 < b->s->timeline->ntasks)
        next = dtp_tag_unpack(b->lo->graph.tag[x + 1]);
    bool last_part = next.kind != tag.kind || next.rank != tag.rank || next.stage != tag.stage ||
                     next.microbatch != tag.microbatch;
    bool begins = tag.kind == DTP_T_F && tag.part == 0;
    bool ends = (tag.kind == DTP_T_B || tag.kind == DTP_T_W) && last_part;
    if (!begins && !ends)
        return;
    *held += begins ? 1 : -1;
    b->most[i] = *held > b->most[i] ? *held : b->most[i];
    if (!write)
        return;
    double at_s = begins ? b->s->timeline->start_s[x] : b->s->timeline->end_s[x];
    dtp_tasks_count(b->t, tag.rank, "microbatches held", at_s, *held);
    if (!b->s->result || b->lo->stage[i] >= b->s->result->nstages || b->most[i] == 0)
        return;
    const struct dtp_stage_memory *m = &b->s->result->stages[b->lo->stage[i]];
    double fixed = (double)(m->peak_bytes - m->activations_bytes);
    dtp_tasks_count(b->t, tag.rank, "memory bytes", at_s,
                    fixed + (double)m->activations_bytes * *held / b->most[i]);
}

static void name_ranks(struct build *b) {
    const struct dtp_lowered *lo = b->lo;
    int most = 0;
    for (int i = 0; i < lo->nranks; i++)
        most = lo->rank[i] > most ? lo->rank[i] : most;
    b->held = DTP_NEW(b->a, int, (size_t)lo->nranks);
    b->most = DTP_NEW(b->a, int, (size_t)lo->nranks);
    b->index = DTP_NEW(b->a, int, (size_t)most + 1);
    for (int i = 0; i < lo->nranks; i++) {
        int rank = lo->rank[i], node = rank / b->s->problem->cluster->node.gpus;
        dtp_tasks_rank(b->t, rank,
                       lo->folded ? dtp_arena_printf(b->a, "stage %d (rank %d)", lo->stage[i], rank)
                                  : dtp_arena_printf(b->a, "rank %d (stage %d, node %d)", rank,
                                                     lo->stage[i], node));
        b->index[rank] = i;
    }
}

static void place(struct build *b) {
    const struct dtp_plan *p = b->s->plan;
    const struct dtp_problem *problem = b->s->problem;
    b->placed =
        dtp_plan_place(p, problem->cluster, problem->framework, &b->placement, NULL) == DTP_OK;
}

struct dtp_tasks *dtp_tasks_of_simulation(struct dtp_arena *a,
                                          const struct dtp_tasks_simulation *s) {
    struct build b = {.a = a, .s = s, .lo = s->lowered};
    b.t = dtp_tasks_create(a, "simulation", s->title);
    b.alone_s = DTP_NEW(a, double, (size_t)s->lowered->nop_names + 1);
    name_ranks(&b);
    place(&b);
    find_preds(&b);
    number_tasks(&b);
    for (dtp_id x = 0; x < s->timeline->ntasks; x++) {
        struct dtp_task_tag tag = dtp_tag_unpack(b.lo->graph.tag[x]);
        struct dtp_tasks_task k = describe(&b, x, tag);
        dtp_tasks_add(b.t, &k);
        add_deps(&b, x);
        add_members(&b, x, k);
        count_activations(&b, x, tag, false);
    }
    for (dtp_id x = 0; x < s->timeline->ntasks; x++) {
        struct dtp_task_tag tag = dtp_tag_unpack(b.lo->graph.tag[x]);
        count_activations(&b, x, tag, true);
    }
    dtp_tasks_step(b.t, -1, "step", 0, s->timeline->makespan_s);
    return b.t;
}

enum dtp_status dtp_tasks_simulate(struct dtp_arena *a, struct dtp_evaluator *ev,
                                   const struct dtp_plan *plan,
                                   const struct dtp_simulate_options *options,
                                   struct dtp_result *out_result, struct dtp_tasks **out,
                                   struct dtp_err *err) {
    struct dtp_lowered *lowered = NULL;
    struct dtp_timeline *timeline = NULL;
    struct dtp_costs costs;
    struct dtp_simulate_options own = *options;
    const struct dtp_problem *problem = dtp_evaluator_problem(ev);
    own.out_lowered = &lowered;
    own.out_timeline = &timeline;
    DTP_TRY(dtp_evaluate(a, ev, plan, DTP_SIMULATE, &own, out_result, err));
    dtp_costs(a, dtp_cost_memo_create(a, problem), plan, &costs);
    const char *name = problem->model->title ? problem->model->title : problem->model->name;
    *out = dtp_tasks_of_simulation(
        a, &(struct dtp_tasks_simulation){.problem = problem,
                                          .plan = plan,
                                          .costs = &costs,
                                          .lowered = lowered,
                                          .timeline = timeline,
                                          .result = out_result,
                                          .title =
                                              dtp_arena_printf(a, "%s: %s", name ? name : "a model",
                                                               dtp_plan_flags(a, plan))});
    return DTP_OK;
}
