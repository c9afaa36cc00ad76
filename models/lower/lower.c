#include "models/lower/lower_internal.h"

#include <string.h>

#include "sim/base/machine.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- ranks and their compute ---- */

static void make_ranks(struct dtp_lowering *w) {
    struct dtp_lowered *out = w->out;
    size_t n = (size_t)(w->l.pp * w->replicas);
    out->nranks = (int)n;
    out->rank = DTP_NEW(w->a, int, n);
    out->stage = DTP_NEW(w->a, int, n);
    out->compute_stream = DTP_NEW(w->a, dtp_id, n);
    out->tasks = DTP_NEW(w->a, struct dtp_rank_tasks, n);
    w->device = DTP_NEW(w->a, dtp_id, n);
    w->host = DTP_NEW(w->a, dtp_id, n);
    memset(out->tasks, 0xff, n * sizeof *out->tasks);
    for (int s = 0; s < w->l.pp; s++)
        for (int q = 0; q < w->replicas; q++) {
            int i = dtp_lowering_index(w, s, q);
            out->rank[i] = dtp_lowering_rank(w, s, q);
            out->stage[i] = s;
            out->compute_stream[i] = dtp_graph_stream(w->g);
            w->device[i] = dtp_platform_device(&out->platform);
        }
}

static void make_cores(struct dtp_lowering *w) {
    if (!dtp_shares_cores(w->problem))
        return;
    size_t cores = (size_t)w->problem->cluster->node.cores, n = (size_t)w->out->nranks;
    dtp_id *link = DTP_NEW(w->a, dtp_id, cores);
    w->core = DTP_NEW(w->a, struct dtp_use, n);
    for (size_t i = 0; i < cores; i++)
        link[i] = dtp_platform_link(&w->out->platform, 1, dtp_arena_printf(w->a, "core%zu", i));
    for (size_t i = 0; i < n; i++)
        w->core[i] = (struct dtp_use){link[(size_t)w->out->rank[i] % cores], DTP_USE_LINK, 1};
}

/* ---- transfers ---- */

/* The action that starts the transfer of each slot, and the one that waits for it. */
struct ends {
    uint32_t *from, *to; /* [nslots], UINT32_MAX: none */
};

static struct ends find_slots(struct dtp_lowering *w) {
    const struct dtp_schedule *s = w->l.schedule;
    struct ends e = {DTP_NEW(w->a, uint32_t, w->nslots), DTP_NEW(w->a, uint32_t, w->nslots)};
    memset(e.from, 0xff, w->nslots * sizeof *e.from);
    memset(e.to, 0xff, w->nslots * sizeof *e.to);
    for (int stage = 0; stage < w->l.pp; stage++)
        for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++) {
            struct dtp_action act = s->action[k];
            int vs = w->l.stage_of[stage * w->l.vpp + act.chunk];
            int64_t in = dtp_slot_in(&w->l, act.kind, vs, act.microbatch);
            int64_t out = dtp_slot_out(&w->l, act.kind, vs, act.microbatch);
            if (in >= 0)
                e.to[in] = k;
            if (out >= 0)
                e.from[out] = k;
        }
    return e;
}

static dtp_id add_transfer(struct dtp_lowering *w, const struct dtp_flow *flow, int vs,
                           bool backward, int mb, int replica) {
    int i = dtp_lowering_index(w, w->l.rank_of[vs], replica);
    struct dtp_task_tag tag = {backward ? DTP_T_SEND_B : DTP_T_SEND_F, w->out->rank[i], vs, mb, 0};
    return dtp_graph_add(w->g, &(struct dtp_task){.latency_s = flow->latency_s,
                                                  .work = flow->work,
                                                  .rate_cap = flow->rate_cap,
                                                  .uses = flow->uses,
                                                  .nuses = flow->nuses,
                                                  .same_uses = flow->same_uses,
                                                  .device = DTP_NONE,
                                                  .stream = DTP_NONE,
                                                  .tag = dtp_tag_pack(tag)});
}

/* Adds the transfers of all microbatches and replicas from one virtual stage in one direction. */
static void add_transfers(struct dtp_lowering *w, const struct ends *ends, int vs, bool backward,
                          struct dtp_flow *flows) {
    double send_s = w->l.send_s[backward ? w->l.nstages + vs : vs];
    if (send_s < 0)
        return;
    bool direct = send_s == 0 && w->l.p2p != DTP_P2P_RENDEZVOUS && w->l.p2p != DTP_P2P_SLOTS;
    if (!direct)
        dtp_flows_p2p(w, vs, backward, flows);
    for (int mb = 0; mb < w->l.m; mb++) {
        size_t slot = (size_t)(backward ? w->l.nstages + vs : vs) * (size_t)w->l.m + (size_t)mb;
        for (int q = 0; q < w->replicas && ends->from[slot] != UINT32_MAX; q++) {
            dtp_id *x = &w->transfer[(size_t)q * w->nslots + slot];
            dtp_id sender = w->last_task[(size_t)q * w->nactions + ends->from[slot]];
            *x = direct ? sender : add_transfer(w, &flows[q], vs, backward, mb, q);
            if (direct)
                continue;
            if (flows[q].same_uses == 0)
                flows[q].same_uses = *x + 1;
            dtp_graph_dep(w->g, sender, *x);
        }
    }
}

/* An action waits for more than its stream; a rendezvous waits for the receiver as well. */
static void connect_action(struct dtp_lowering *w, int stage, int replica, uint32_t k) {
    dtp_id preds[4];
    size_t at = (size_t)replica * w->nactions + k;
    int n = dtp_lowering_preds(w, stage, replica, k, preds);
    int stream = k > w->l.schedule->begin[stage] ||
                 w->host[dtp_lowering_index(w, stage, replica)] != DTP_NONE;
    for (int i = stream; i < n; i++)
        dtp_graph_dep(w->g, preds[i], w->first_task[at]);
    if (w->l.p2p != DTP_P2P_RENDEZVOUS || !stream)
        return;
    struct dtp_action act = w->l.schedule->action[k];
    int64_t in =
        dtp_slot_in(&w->l, act.kind, w->l.stage_of[stage * w->l.vpp + act.chunk], act.microbatch);
    dtp_id x = in < 0 ? DTP_NONE : w->transfer[(size_t)replica * w->nslots + (size_t)in];
    if (x == DTP_NONE)
        return;
    dtp_graph_dep(w->g, preds[0], x);
    if (w->whole && k > w->l.schedule->begin[stage] && w->whole[at - 1] != DTP_NONE)
        dtp_graph_dep(w->g, w->whole[at - 1], x);
}

static void add_p2p(struct dtp_lowering *w) {
    struct ends ends = find_slots(w);
    struct dtp_flow *flows = DTP_NEW(w->a, struct dtp_flow, (size_t)w->replicas);
    for (int vs = 0; vs < w->l.nstages; vs++)
        for (int backward = 0; backward < 2; backward++)
            add_transfers(w, &ends, vs, backward, flows);
}

static void connect(struct dtp_lowering *w) {
    const struct dtp_schedule *s = w->l.schedule;
    for (int stage = 0; stage < w->l.pp; stage++)
        for (int q = 0; q < w->replicas; q++)
            for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++)
                connect_action(w, stage, q, k);
}

/* ---- transfers in time slots ---- */

/* `come` must end before the rank takes part in the transfers of the slot. */
struct slots {
    dtp_id *come, *gate; /* [pp] */
    dtp_id *end;         /* [pp] end of this slot's transfers so far */
    uint32_t *pos;       /* [pp] next action */
    int64_t *out;        /* [pp] transfer that the rank starts in this slot, or -1 */
};

static void slot_actions(struct dtp_lowering *w, int replica, uint32_t slot, struct slots *x) {
    const struct dtp_schedule *s = w->l.schedule;
    for (int r = 0; r < w->l.pp; r++) {
        uint32_t k = x->pos[r];
        x->out[r] = -1;
        x->end[r] = DTP_NONE;
        if (k == s->begin[r + 1] || w->l.slot[k] != slot)
            continue;
        struct dtp_action act = s->action[k];
        size_t at = (size_t)replica * w->nactions + k;
        w->gate[at] = x->gate[r];
        x->come[r] = w->last_task[at];
        x->out[r] =
            dtp_slot_out(&w->l, act.kind, w->l.stage_of[r * w->l.vpp + act.chunk], act.microbatch);
        x->pos[r]++;
    }
}

/* The rank waits for one more transfer of the slot. */
static void slot_end(struct dtp_lowering *w, struct slots *x, int r, dtp_id transfer) {
    if (x->end[r] == DTP_NONE) {
        x->end[r] = transfer;
        return;
    }
    dtp_id both = dtp_graph_add(w->g, &(struct dtp_task){.rate_cap = 1,
                                                         .device = DTP_NONE,
                                                         .stream = DTP_NONE,
                                                         .tag = w->g->tag[transfer]});
    dtp_graph_dep(w->g, x->end[r], both);
    dtp_graph_dep(w->g, transfer, both);
    x->end[r] = both;
}

static void slot_transfers(struct dtp_lowering *w, int replica, struct slots *x) {
    for (int r = 0; r < w->l.pp; r++) {
        dtp_id transfer =
            x->out[r] < 0 ? DTP_NONE : w->transfer[(size_t)replica * w->nslots + (size_t)x->out[r]];
        if (transfer == DTP_NONE)
            continue;
        int to = dtp_slot_receiver(&w->l, x->out[r]);
        if (x->come[to] != DTP_NONE)
            dtp_graph_dep(w->g, x->come[to], transfer);
        slot_end(w, x, r, transfer);
        slot_end(w, x, to, transfer);
    }
    for (int r = 0; r < w->l.pp; r++)
        if (x->end[r] != DTP_NONE)
            x->come[r] = x->gate[r] = x->end[r];
}

static void connect_slots(struct dtp_lowering *w) {
    size_t n = (size_t)w->l.pp;
    struct slots x = {.pos = DTP_NEW(w->a, uint32_t, n), .out = DTP_NEW(w->a, int64_t, n)};
    w->gate = dtp_new_ids(w->a, (size_t)w->replicas * w->nactions);
    for (int q = 0; q < w->replicas; q++) {
        x.come = dtp_new_ids(w->a, n);
        x.gate = dtp_new_ids(w->a, n);
        x.end = dtp_new_ids(w->a, n);
        for (int r = 0; r < w->l.pp; r++) {
            x.pos[r] = w->l.schedule->begin[r];
            x.come[r] = w->host[dtp_lowering_index(w, r, q)];
        }
        for (uint32_t slot = 0; slot < w->l.nslots; slot++) {
            slot_actions(w, q, slot, &x);
            slot_transfers(w, q, &x);
        }
    }
}

/* ---- how large the graph becomes, before it is built ---- */

/* A task, a dependency and a use take so many bytes in the graph, the engine and the timeline and while they are
 * made. The sum is within 20 % of what a process takes in all for 24 plans of three models and all details, the
 * largest of which has 8.6 million tasks and takes 1.3 GB. */
static const double task_bytes = 100, dep_bytes = 50, use_bytes = 40;
/* A graph of so many bytes is never refused: asking what the machine has takes longer than making it. */
static const double small_bytes = 16 * DTP_MIB;
/* Every rank of replicas that do not lie alike is simulated where that takes no more. */
static const double unlike_bytes = 64 * DTP_MIB;

struct size {
    double tasks, deps, uses;
};

static void size_actions(struct dtp_lowering *w, int stage, struct size *out) {
    const struct dtp_layout *l = &w->l;
    const struct dtp_op_time *ops;
    double n = 0;
    uint32_t begin = l->schedule->begin[stage], end = l->schedule->begin[stage + 1];
    for (uint32_t k = begin; k < end; k++) {
        struct dtp_action act = l->schedule->action[k];
        int vs = l->stage_of[stage * l->vpp + act.chunk];
        int row = dtp_layout_row(l, stage, k);
        struct dtp_action_parts parts = {.nparts = 1};
        if (l->parts)
            parts = dtp_layout_parts(l, vs, act.kind, k);
        bool whole = w->options->detail != DTP_DETAIL_OP || parts.nparts > 1;
        n += whole ? parts.nparts
                   : dtp_detail_ops(w, vs, row, l->dur_s[row * l->nstages + vs], &ops);
    }
    out->tasks += n * w->replicas;
    out->deps += (n + (l->pp > 1 ? 2.0 : 0.0) * (end - begin)) * w->replicas;
}

/* Counts the collectives of one kind that the members of a group call, during actions and at the end of the step. */
static int ncalls(const struct dtp_lowering *w, int stage, enum dtp_unit unit) {
    const struct dtp_layout *l = &w->l;
    int n = 0;
    for (uint32_t k = l->schedule->begin[stage]; l->parts && k < l->schedule->begin[stage + 1];
         k++) {
        struct dtp_action act = l->schedule->action[k];
        struct dtp_action_parts p =
            dtp_layout_parts(l, l->stage_of[stage * l->vpp + act.chunk], act.kind, k);
        n += unit == DTP_UNIT_REDUCE   ? p.nreduce + p.reduce_whole
             : unit == DTP_UNIT_GATHER ? p.ngather
                                       : p.nunshard;
    }
    bool last = unit == DTP_UNIT_REDUCE   ? dtp_reduces_last(w->costs)
                : unit == DTP_UNIT_GATHER ? !w->costs->gather_overlap
                                          : false;
    for (int c = 0; c < l->vpp && last; c++)
        n += w->costs->stage[l->stage_of[stage * l->vpp + c]].nreduce;
    return n;
}

static void size_units(struct dtp_lowering *w, int stage, enum dtp_unit unit, struct size *out) {
    const struct dtp_comm *comm = dtp_flows_unit_comm(w, stage, unit);
    int calls = comm ? ncalls(w, stage, unit) : 0;
    if (calls == 0)
        return;
    struct dtp_group group =
        dtp_placement_group(&w->placement, comm->axis, dtp_lowering_rank(w, stage, 0));
    double ngroups = w->out->folded ? 1 : (double)w->replicas / group.size;
    double n = dtp_flows_count(w, &group, comm), waits = unit == DTP_UNIT_UNSHARD ? 3 : 1;
    out->tasks += calls * ngroups * n;
    out->deps += calls * (ngroups * (2 * n - 1) + w->replicas * waits);
    out->uses += calls * (n > 1 ? 2 * ngroups * n : w->replicas); /* links of flows; members */
}

static enum dtp_status reserve(struct dtp_lowering *w, double most_bytes, struct dtp_err *err) {
    char tasks[32], needs[32], has[32];
    double nranks = (double)w->l.pp * w->replicas, slots = (double)w->replicas * (double)w->nslots;
    /* transfers; host, optimizer and offload of each rank */
    struct size n = {slots + 3 * nranks, 3 * slots + 6 * nranks, 0};
    for (int stage = 0; stage < w->l.pp; stage++) {
        size_actions(w, stage, &n);
        for (int unit = 0; unit < DTP_NUNITS; unit++)
            size_units(w, stage, (enum dtp_unit)unit, &n);
    }
    double bytes = n.tasks * task_bytes + n.deps * dep_bytes + n.uses * use_bytes,
           ids = UINT32_MAX / 8;
    if (most_bytes <= 0)
        most_bytes = bytes <= small_bytes ? small_bytes : (double)dtp_machine_memory("").free_bytes;
    if (bytes <= most_bytes && n.tasks <= ids && n.deps <= ids && n.uses <= ids) {
        dtp_graph_reserve(w->g, (uint32_t)n.tasks, (uint32_t)n.deps, (uint32_t)n.uses);
        return DTP_OK;
    }
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s tasks of %.0f ranks take about %s of memory, there are %s: %sfewer GPUs or "
                    "microbatches take less",
                    dtp_fmt_count(n.tasks, tasks, sizeof tasks), nranks,
                    dtp_fmt_bytes_gib(bytes, needs, sizeof needs),
                    dtp_fmt_bytes_gib(most_bytes, has, sizeof has),
                    w->out->folded ? "" : "leave --no-fold out, or ");
}

/* One replica stands for those that lie alike, and for others where all of them are too many. */
static enum dtp_status fold(struct dtp_lowering *w, struct dtp_err *err) {
    int all = w->plan->tp * w->plan->cp * w->plan->dp;
    bool unlike = w->out->folded && !dtp_placement_symmetric(&w->placement, w->problem->cluster);
    double most_bytes = w->options->most_bytes;
    if (unlike) {
        w->out->folded = false;
        w->replicas = all;
        double few_bytes = most_bytes > 0 && most_bytes < unlike_bytes ? most_bytes : unlike_bytes;
        if (reserve(w, few_bytes, NULL) == DTP_OK)
            return DTP_OK;
        w->out->folded = w->out->unlike = true;
    }
    w->replicas = w->out->folded ? 1 : all;
    return reserve(w, most_bytes, err);
}

/* ---- all of it ---- */

static enum dtp_status init(struct dtp_lowering *w, struct dtp_err *err) {
    const struct dtp_plan *p = w->plan;
    const struct dtp_cluster *c = w->problem->cluster;
    DTP_TRY(dtp_plan_place(p, c, w->problem->framework, &w->placement, err));
    w->nactions = w->l.schedule->begin[w->l.pp];
    w->nslots = 2 * (size_t)w->l.nstages * (size_t)w->l.m;
    dtp_graph_init(w->g, w->a);
    DTP_TRY(fold(w, err));
    size_t actions = (size_t)w->replicas * w->nactions, slots = (size_t)w->replicas * w->nslots;
    w->first_task = dtp_new_ids(w->a, actions);
    w->last_task = dtp_new_ids(w->a, actions);
    w->transfer = dtp_new_ids(w->a, slots);
    if (w->costs->reduce_per_microbatch && !w->costs->reduce_overlap)
        w->whole = dtp_new_ids(w->a, actions);
    w->nlinks = dtp_cluster_nlinks(c, w->placement.ngpus);
    w->node_links = dtp_cluster_node_links(c);
    w->block_gpus = dtp_cluster_block_nodes(c) * c->node.gpus;
    w->link = dtp_new_ids(w->a, w->nlinks);
    w->total = DTP_NEW(w->a, double, w->nlinks);
    w->own = DTP_NEW(w->a, double, w->nlinks);
    w->touched = DTP_NEW(w->a, uint32_t, w->nlinks);
    dtp_platform_init(&w->out->platform, w->a);
    return DTP_OK;
}

enum dtp_status dtp_lower(struct dtp_arena *a, const struct dtp_lower_input *in,
                          const struct dtp_lower_options *options, struct dtp_lowered *out,
                          struct dtp_err *err) {
    struct dtp_lowering w = {.a = a,
                             .problem = in->problem,
                             .plan = in->plan,
                             .costs = in->costs,
                             .options = options,
                             .out = out,
                             .g = &out->graph};
    *out = (struct dtp_lowered){.folded = options->fold && !dtp_shares_cores(in->problem),
                                .schedule = in->schedule->kind,
                                .pp = in->schedule->pp,
                                .vpp = in->schedule->vpp};
    dtp_layout_init(a, in->costs, in->schedule, false, &w.l);
    DTP_TRY(init(&w, err));
    make_ranks(&w);
    make_cores(&w);
    dtp_lower_actions(&w);
    add_p2p(&w);
    if (w.l.p2p == DTP_P2P_SLOTS)
        connect_slots(&w);
    dtp_flows_collectives(&w);
    dtp_lower_units(&w);
    connect(&w);
    dtp_lower_tail(&w);
    return dtp_graph_freeze(&out->graph, err);
}
