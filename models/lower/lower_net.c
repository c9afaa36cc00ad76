#include "models/lower/lower_build.h"

/* Collectives inside actions (tp, cp, ep, etp) whose groups span nodes. An action that moves so many bytes in
 * its duration asks for their mean rate on the NICs of its node and on the fabric: there it shares with
 * gradient reductions, gathers and transfers, of its own stage and of others, as a flow of that rate
 * would. Alone it takes what it takes. The other ranks of the stage do the same at the same time, in
 * lockstep, which is part of the duration already: their sum is scaled down to what a link has.
 * Inside a node, where NVLink is seldom short, the bytes are not counted. */

static const enum dtp_collective net_kind[DTP_NET_AXES] = {DTP_ALL_GATHER, DTP_ALL_GATHER,
                                                           DTP_ALL_TO_ALL, DTP_ALL_GATHER};

/* Bytes on a link of the node's NICs or of the fabric per byte of the axis' collectives: of one rank, and
 * of all ranks of the stage. */
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

/* One axis of one stage: totals by link over its groups, then the shares of the simulated ranks. */
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

void dtp_lower_net(struct dtp_lowering *w) {
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

/* Bytes on the link in one action, by the weights of one axis each. */
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

void dtp_lower_net_task(struct dtp_lowering *w, int i, int chunk, int row, struct dtp_task *task) {
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
