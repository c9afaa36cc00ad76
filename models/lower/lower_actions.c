#include "models/lower/lower_internal.h"

#include <string.h>

#include "models/plan/plan.h"

/* This file makes the actions of the ranks into tasks: it lists their operations and finds what their collectives
 * ask of the network. */

/* ---- --detail op ---- */

/* Operations stand in the order in which a rank launches them. Their times are scaled so that they add up to the
 * action: gaps between kernels and host time are spread over the operations that compute, what overlap hides is
 * taken from all. */

struct dtp_op_list {
    int n;
    size_t capacity;
    struct dtp_op_time *at;
    double sum_s;
};

static bool same_work(const struct dtp_op *x, const struct dtp_op *y) {
    return x->kind == y->kind && x->pass == y->pass && x->gemm.m == y->gemm.m &&
           x->gemm.n == y->gemm.n && x->gemm.k == y->gemm.k && x->bytes == y->bytes &&
           x->collective == y->collective;
}

static int op_name(struct dtp_lowering *w, const char *name, const struct dtp_op *op) {
    enum { MOST_NAMES = 255 };
    struct dtp_lowered *out = w->out;
    if (!out->op_name) {
        out->op_name = DTP_NEW(w->a, const char *, MOST_NAMES);
        out->op = DTP_NEW(w->a, const struct dtp_op *, MOST_NAMES);
    }
    for (int i = 0; i < out->nop_names; i++)
        if (strcmp(out->op_name[i], name) == 0 &&
            (!op || (out->op[i] && same_work(out->op[i], op))))
            return i;
    if (out->nop_names == MOST_NAMES) {
        out->op[MOST_NAMES - 1] = NULL;
        return MOST_NAMES - 1;
    }
    out->op[out->nop_names] = op;
    out->op_name[out->nop_names] = name;
    return out->nop_names++;
}

static void add_pass(struct dtp_lowering *w, struct dtp_op_list *list, enum dtp_layer_kind kind,
                     enum dtp_pass pass, bool repeated_only) {
    struct dtp_ops *ops = DTP_NEW(w->a, struct dtp_ops, 1);
    dtp_ops_layer(w->problem, w->plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        double time_s = op->pass == pass && (!repeated_only || op->repeated)
                            ? dtp_op_time_s(w->problem, w->plan, op)
                            : 0;
        if (!(time_s > 0))
            continue;
        list->at =
            dtp_arena_room(w->a, list->at, sizeof *list->at, (size_t)list->n, &list->capacity);
        list->at[list->n++] = (struct dtp_op_time){time_s, op_name(w, op->name, op)};
        list->sum_s += time_s;
    }
}

static void add_recompute(struct dtp_lowering *w, struct dtp_op_list *list,
                          enum dtp_layer_kind kind, int layer_of_chunk) {
    const struct dtp_plan *p = w->plan;
    if (p->recompute_layers == 0 || layer_of_chunk < p->recompute_layers)
        add_pass(w, list, kind, DTP_PASS_F, true);
}

/* Adds one layer of the action: its forward, or the passes of the backward that the action holds. */
static void add_layer(struct dtp_lowering *w, struct dtp_op_list *list, enum dtp_layer_kind kind,
                      int action, int layer_of_chunk) {
    if (action == DTP_A_F)
        add_pass(w, list, kind, DTP_PASS_F, false);
    if ((action == DTP_A_B || action == DTP_A_I) && layer_of_chunk >= 0)
        add_recompute(w, list, kind, layer_of_chunk);
    if (action == DTP_A_B || action == DTP_A_I)
        add_pass(w, list, kind, DTP_PASS_I, false);
    if (action == DTP_A_B || action == DTP_A_W)
        add_pass(w, list, kind, DTP_PASS_W, false);
}

static void make_list(struct dtp_lowering *w, struct dtp_op_list *list, int vs, int action) {
    const struct dtp_model *m = w->problem->model;
    if (m->nconvs > 0) {
        add_layer(w, list, DTP_LAYER_CONV, action, 0);
        return;
    }
    int first = dtp_plan_first_layer(w->plan, m, vs), n = dtp_stage_layers(m, w->plan, vs);
    bool forward = action == DTP_A_F, last = vs + 1 == w->l.nstages;
    if (vs == 0 && forward)
        add_layer(w, list, DTP_LAYER_EMBEDDING, action, -1);
    if (last && !forward)
        add_layer(w, list, DTP_LAYER_HEAD, action, -1);
    for (int k = 0; last && !forward && k < m->mtp_layers; k++)
        add_layer(w, list, DTP_LAYER_MTP, action, -1);
    for (int k = 0; k < n; k++) {
        int i = forward ? k : n - 1 - k;
        add_layer(w, list, dtp_model_layer_kind(m, first + i), action, i);
    }
    if (vs == 0 && !forward)
        add_layer(w, list, DTP_LAYER_EMBEDDING, action, -1);
    for (int k = 0; last && forward && k < m->mtp_layers; k++)
        add_layer(w, list, DTP_LAYER_MTP, action, -1);
    if (last && forward)
        add_layer(w, list, DTP_LAYER_HEAD, action, -1);
}

static bool is_collective(const struct dtp_lowering *w, const struct dtp_op_time *t) {
    const struct dtp_op *op = w->out->op[t->name];
    return op && op->kind == DTP_OP_COLLECTIVE;
}

/* Gaps and host time go to what computes; where collectives are hidden, all shrink alike. */
static void stretch(const struct dtp_lowering *w, struct dtp_op_list *list, double dur_s) {
    double collectives_s = 0;
    for (int i = 0; i < list->n; i++)
        collectives_s += is_collective(w, &list->at[i]) ? list->at[i].time_s : 0;
    double computes_s = list->sum_s - collectives_s;
    bool more = computes_s > 0 && dur_s >= list->sum_s;
    double factor = more ? (dur_s - collectives_s) / computes_s : dur_s / list->sum_s;
    for (int i = 0; i < list->n; i++)
        if (!more || !is_collective(w, &list->at[i]))
            list->at[i].time_s *= factor;
}

int dtp_detail_ops(struct dtp_lowering *w, int vs, int row, double dur_s,
                   const struct dtp_op_time **out) {
    if (!w->ops)
        w->ops = DTP_NEW(w->a, struct dtp_op_list, DTP_LAYOUT_ROWS * (size_t)w->l.nstages);
    struct dtp_op_list *list = &w->ops[row * w->l.nstages + vs];
    if (list->n == 0) {
        make_list(w, list, vs, row % DTP_LAYOUT_KINDS);
        stretch(w, list, dur_s);
        if (list->n == 0) { /* an action without operations is one of its length */
            list->at = DTP_NEW(w->a, struct dtp_op_time, 1);
            list->at[list->n++] = (struct dtp_op_time){dur_s, op_name(w, "action", NULL)};
        }
    }
    *out = list->at;
    return list->n;
}

/* Collectives inside actions (tp, cp, ep, etp) whose groups span nodes. An action that moves so many bytes in
 * its duration demands their mean rate on the NICs of its node and on the fabric. It shares these with gradient
 * reductions, gathers and transfers, of its stage and of others, as a flow of that rate would; on links that
 * nothing shares it takes its duration. The other ranks of the stage do the same at the same time, in lockstep,
 * which the duration already includes, so their sum is scaled down to the capacity of a link. Bytes inside a node,
 * where NVLink is seldom the limit, are not counted. */

static const enum dtp_collective net_kind[DTP_NET_AXES] = {DTP_ALL_GATHER, DTP_ALL_GATHER,
                                                           DTP_ALL_TO_ALL, DTP_ALL_GATHER};

/* So many bytes are on a link of the node's NICs or of the fabric per byte of the axis' collectives: those of one
 * rank, and those of all ranks of the stage. */
struct net_use {
    uint32_t link;
    double own[DTP_NET_AXES], total[DTP_NET_AXES];
};
/* What an action of a kind and chunk asks for: by how much its work and rate grow, and its uses. */
struct net_task {
    bool known;
    double most; /* bytes a second on its busiest link; 0: none */
    struct dtp_use *use;
    uint32_t nuses;
    uint32_t same_uses; /* 1 + the first task that has them, or 0 */
};
struct dtp_rank_net {
    struct net_use *at;
    uint32_t n;
    struct net_task *task; /* [DTP_LAYOUT_ROWS][vpp], made when first asked for */
};

static struct net_use *use_of(struct dtp_lowering *w, struct dtp_rank_net *net, uint32_t link) {
    for (uint32_t k = 0; k < net->n; k++)
        if (net->at[k].link == link)
            return &net->at[k];
    net->at = dtp_arena_grow(w->a, net->at, sizeof *net->at, net->n, net->n + 1);
    net->at[net->n] = (struct net_use){.link = link};
    return &net->at[net->n++];
}

static int members_on(const struct dtp_group *g, int node, int gpus) {
    int n = 0;
    for (int i = 0; i < g->size; i++)
        n += (g->first + i * g->stride) / gpus == node;
    return n;
}

/* Adds the totals by link over the groups of one axis of one stage, then the shares of the simulated ranks. */
static void add_axis(struct dtp_lowering *w, int stage, int axis) {
    const struct dtp_placement *p = &w->placement;
    int gpus = w->problem->cluster->node.gpus, nreplicas = dtp_lowering_replicas(w);
    struct dtp_moved_uses *uses = DTP_NEW(w->a, struct dtp_moved_uses, (size_t)nreplicas);
    struct dtp_group mine =
        dtp_placement_group(p, dtp_net_axis[axis], dtp_lowering_rank(w, stage, 0));
    for (int q = 0; q < nreplicas; q++) {
        int rank = dtp_lowering_rank(w, stage, q);
        struct dtp_group g = dtp_placement_group(p, dtp_net_axis[axis], rank);
        if (g.first != rank || (w->out->folded && !dtp_lowering_meet(w, &g, &mine)))
            continue;
        uses[q] = dtp_lowering_uses(w, net_kind[axis], DTP_ALGO_AUTO, &g);
        dtp_lowering_uses_add(w, &uses[q]);
    }
    for (int q = 0; q < w->replicas; q++) {
        int rank = dtp_lowering_rank(w, stage, q), tp, cp, dp, pp;
        struct dtp_group g = dtp_placement_group(p, dtp_net_axis[axis], rank);
        dtp_placement_coords(p, g.first, &tp, &cp, &dp, &pp);
        int first = tp + p->tp * (cp + p->cp * dp);
        double here = members_on(&g, rank / gpus, gpus);
        for (uint32_t k = 0; k < uses[first].n; k++) {
            int node;
            uint32_t link = uses[first].at[k].resource + uses[first].shift;
            bool fabric = dtp_cluster_link_fabric(w->problem->cluster, p->ngpus, link, &node);
            if (!fabric || (node >= 0 && node != rank / gpus))
                continue;
            struct net_use *x = use_of(w, &w->net[dtp_lowering_index(w, stage, q)], link);
            x->own[axis] = uses[first].at[k].weight / (node < 0 ? g.size : here);
            x->total[axis] = w->total[link];
        }
    }
    dtp_lowering_total_clear(w);
}

static void find_net(struct dtp_lowering *w) {
    if (w->core)
        return;
    for (int axis = 0; axis < DTP_NET_AXES; axis++) {
        double bytes = 0;
        for (int vs = 0; vs < w->l.nstages; vs++) {
            const struct dtp_stage_cost *s = &w->costs->stage[vs];
            bytes += s->f.net_bytes[axis] + s->i.net_bytes[axis] + s->w.net_bytes[axis] +
                     s->r.net_bytes[axis];
        }
        if (!(bytes > 0) ||
            dtp_placement_shape(&w->placement, w->problem->cluster, dtp_net_axis[axis], 0).nodes <
                2)
            continue;
        if (!w->net)
            w->net = DTP_NEW(w->a, struct dtp_rank_net, (size_t)w->out->nranks);
        for (int stage = 0; stage < w->l.pp; stage++)
            add_axis(w, stage, axis);
    }
}

static double bytes_of(const struct dtp_stage_cost *s, int kind, int axis) {
    double input = s->i.net_bytes[axis] + s->r.net_bytes[axis];
    return kind == DTP_A_F   ? s->f.net_bytes[axis]
           : kind == DTP_A_I ? input
           : kind == DTP_A_W ? s->w.net_bytes[axis]
                             : input + s->w.net_bytes[axis];
}

/* Returns the bytes on the link in one action; each axis has its weight. */
static double on_link(const struct dtp_stage_cost *s, int kind, const double weight[DTP_NET_AXES]) {
    double bytes = 0;
    for (int axis = 0; axis < DTP_NET_AXES; axis++)
        bytes += weight[axis] * bytes_of(s, kind, axis);
    return bytes;
}

static struct net_task make_task(struct dtp_lowering *w, const struct dtp_rank_net *net, int vs,
                                 int row) {
    const struct dtp_stage_cost *s = &w->costs->stage[vs];
    int kind = row % DTP_LAYOUT_KINDS;
    struct net_task task = {.known = true};
    double dur_s = w->l.dur_s[row * w->l.nstages + vs];
    if (!(dur_s > 0))
        return task;
    task.use = DTP_NEW(w->a, struct dtp_use, net->n);
    for (uint32_t k = 0; k < net->n; k++) {
        double own = on_link(s, kind, net->at[k].own) / dur_s,
               total = on_link(s, kind, net->at[k].total) / dur_s,
               limit = dtp_lowering_capacity(w, net->at[k].link);
        if (!(own > 0))
            continue;
        double scale = total < limit ? 1 : limit / total;
        task.most = scale * own > task.most ? scale * own : task.most;
        task.use[task.nuses++] =
            (struct dtp_use){dtp_lowering_link(w, net->at[k].link), DTP_USE_LINK,
                             scale * (w->out->folded ? total : own)};
    }
    for (uint32_t k = 0; k < task.nuses; k++)
        task.use[k].weight /= task.most;
    return task;
}

static void set_net(struct dtp_lowering *w, int i, int chunk, int row, struct dtp_task *task) {
    struct dtp_rank_net *net = &w->net[i];
    if (net->n == 0)
        return;
    if (!net->task)
        net->task = DTP_NEW(w->a, struct net_task, DTP_LAYOUT_ROWS * (size_t)w->l.vpp);
    struct net_task *mine = &net->task[row * w->l.vpp + chunk];
    if (!mine->known)
        *mine = make_task(w, net, w->l.stage_of[w->out->stage[i] * w->l.vpp + chunk], row);
    if (mine->nuses == 0)
        return;
    task->work *= mine->most; /* bytes on the busiest link, at their mean rate */
    task->rate_cap *= mine->most;
    task->uses = mine->use;
    task->nuses = mine->nuses;
    task->same_uses = mine->same_uses;
    if (mine->same_uses == 0)
        mine->same_uses = w->g->ntasks + 1; /* the caller adds it next */
}

/* ---- tasks ---- */

static void add_host(struct dtp_lowering *w, int i) {
    w->host[i] = DTP_NONE;
    if (!(w->costs->step_host_s > 0))
        return;
    uint64_t tag =
        dtp_tag_pack((struct dtp_task_tag){DTP_T_HOST, w->out->rank[i], w->out->stage[i], 0, 0});
    w->host[i] = dtp_graph_add(w->g, &(struct dtp_task){.work = w->costs->step_host_s,
                                                        .rate_cap = 1,
                                                        .device = DTP_NONE,
                                                        .stream = w->out->compute_stream[i],
                                                        .tag = tag});
}

/* Compute needs the device while a collective of the rank may run at the same time: from the first action that
 * ends a chunk's gradients, up to the last that waits for gathered parameters, or always. */
struct beside {
    uint32_t before, after; /* actions < before or >= after */
};

static struct beside find_beside(const struct dtp_lowering *w, int stage) {
    const struct dtp_costs *c = w->costs;
    const struct dtp_schedule *s = w->l.schedule;
    struct beside b = {s->begin[stage], s->begin[stage + 1]};
    for (int k = 0; k < w->l.vpp; k++) {
        int vs = w->l.stage_of[stage * w->l.vpp + k];
        const struct dtp_stage_cost *cost = &c->stage[vs];
        bool reduces =
            cost->nreduce > 0 && cost->reduce.time_s > 0 && cost->reduce.device_share > 0;
        bool gathers =
            cost->nreduce > 0 && cost->gather.time_s > 0 && cost->gather.device_share > 0;
        bool unshards =
            w->l.unsharded && cost->unshard.time_s > 0 && cost->unshard.device_share > 0;
        if (unshards || (reduces && c->reduce_per_microbatch && c->reduce_overlap))
            b.after = s->begin[stage];
        if (reduces && c->reduce_overlap && w->l.last[vs] < b.after)
            b.after = w->l.last[vs];
        if (gathers && c->gather_overlap && w->l.first[vs] >= b.before)
            b.before = w->l.first[vs] + 1;
    }
    return b;
}

static enum dtp_task_kind kind_of(int action) {
    static const enum dtp_task_kind kinds[] = {DTP_T_F, DTP_T_B, DTP_T_I, DTP_T_W};
    return kinds[action];
}

/* Adds the operations of one action in series and returns the last. */
static dtp_id add_ops(struct dtp_lowering *w, struct dtp_task task, struct dtp_task_tag tag,
                      int row) {
    const struct dtp_op_time *ops;
    int n = dtp_detail_ops(w, tag.stage, row, task.work / task.rate_cap, &ops);
    dtp_id last = DTP_NONE;
    tag.kind = DTP_T_OP;
    for (int i = 0; i < n; i++) {
        task.work = ops[i].time_s * task.rate_cap;
        tag.part = ops[i].name;
        task.tag = dtp_tag_pack(tag);
        last = dtp_graph_add(w->g, &task);
        task.same_uses = last + 1;
    }
    return last;
}

static void add_action(struct dtp_lowering *w, int i, uint32_t k, size_t at, bool on_device) {
    struct dtp_action act = w->l.schedule->action[k];
    int vs = w->l.stage_of[w->out->stage[i] * w->l.vpp + act.chunk];
    struct dtp_action_parts parts = {.nparts = 1};
    if (w->l.parts)
        parts = dtp_layout_parts(&w->l, vs, act.kind, k);
    struct dtp_task_tag tag = {kind_of(act.kind), w->out->rank[i], vs, (int)act.microbatch, 0};
    int row = dtp_layout_row(&w->l, w->out->stage[i], k);
    struct dtp_task task = {.work = w->l.dur_s[row * w->l.nstages + vs] / parts.nparts,
                            .rate_cap = 1,
                            .uses = w->core ? &w->core[i] : NULL,
                            .nuses = w->core != NULL,
                            .device = on_device ? w->device[i] : DTP_NONE,
                            .stream = w->out->compute_stream[i]};
    if (w->net)
        set_net(w, i, act.chunk, row, &task);
    w->first_task[at] = w->g->ntasks;
    if (w->options->detail == DTP_DETAIL_OP && parts.nparts == 1) {
        w->last_task[at] = add_ops(w, task, tag, row);
        return;
    }
    for (int p = 0; p < parts.nparts; p++) {
        tag.part = p;
        task.tag = dtp_tag_pack(tag);
        w->last_task[at] = dtp_graph_add(w->g, &task);
        task.same_uses = (uint32_t)w->last_task[at] + 1;
    }
}

void dtp_lower_actions(struct dtp_lowering *w) {
    find_net(w);
    const struct dtp_schedule *s = w->l.schedule;
    for (int stage = 0; stage < w->l.pp; stage++) {
        struct beside beside = find_beside(w, stage);
        for (int q = 0; q < w->replicas; q++) {
            int i = dtp_lowering_index(w, stage, q);
            size_t base = (size_t)q * w->nactions;
            add_host(w, i);
            for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++)
                add_action(w, i, k, base + k, k < beside.before || k >= beside.after);
            if (s->begin[stage] < s->begin[stage + 1]) {
                w->out->tasks[i].first = w->first_task[base + s->begin[stage]];
                w->out->tasks[i].last = w->last_task[base + s->begin[stage + 1] - 1];
            }
        }
    }
}
