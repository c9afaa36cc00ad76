#include "models/lower/lower.h"

#include <string.h>

#include "models/lower/lower_build.h"

const char *const dtp_detail_names[] = {"action", "op", "step", NULL};
const char *const dtp_task_names[] = {"F",
                                      "B",
                                      "I",
                                      "W",
                                      "send F",
                                      "send B",
                                      "reduce",
                                      "gather",
                                      "unshard",
                                      "optimizer",
                                      "embedding all-reduce",
                                      "norm all-reduce",
                                      "offload",
                                      "host",
                                      "late W",
                                      "op",
                                      NULL};

/* kind 5 bits, rank 20, stage 12, microbatch 19, part 8 (larger parts stay at the largest). */
enum { RANK_AT = 5, STAGE_AT = 25, MICROBATCH_AT = 37, PART_AT = 56, MOST_PARTS = 255 };

uint64_t dtp_tag_pack(struct dtp_task_tag t) {
    int part = t.part < MOST_PARTS ? t.part : MOST_PARTS;
    return (uint64_t)t.kind | (uint64_t)t.rank << RANK_AT | (uint64_t)t.stage << STAGE_AT |
           (uint64_t)t.microbatch << MICROBATCH_AT | (uint64_t)part << PART_AT;
}

static int bits(uint64_t tag, int from, int to) {
    return (int)(tag >> from & ((UINT64_C(1) << (to - from)) - 1));
}

enum dtp_task_kind dtp_tag_kind(uint64_t tag) {
    return (enum dtp_task_kind)bits(tag, 0, RANK_AT);
}

struct dtp_task_tag dtp_tag_unpack(uint64_t tag) {
    return (struct dtp_task_tag){.kind = dtp_tag_kind(tag),
                                 .rank = bits(tag, RANK_AT, STAGE_AT),
                                 .stage = bits(tag, STAGE_AT, MICROBATCH_AT),
                                 .microbatch = bits(tag, MICROBATCH_AT, PART_AT),
                                 .part = (int)(tag >> PART_AT)};
}

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

/* Where a collective of the rank may run beside compute, its compute needs the device: from the first
 * action that ends a chunk's gradients, to the last that waits for gathered parameters, or always. */
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

/* The operations of one action in series. */
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
        dtp_lower_net_task(w, i, act.chunk, row, &task);
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

static void add_actions(struct dtp_lowering *w) {
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

/* ---- transfers ---- */

/* Actions by slot: who starts the transfer, who waits for it. */
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

/* One virtual stage and direction: the transfers of all microbatches and replicas. */
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

/* What each action waits for beside its stream; a rendezvous waits for the receiver as well. */
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

/* ---- all of it ---- */

static enum dtp_status init(struct dtp_lowering *w, struct dtp_err *err) {
    const struct dtp_plan *p = w->plan;
    const struct dtp_cluster *c = w->problem->cluster;
    DTP_TRY(dtp_plan_place(p, c, w->problem->framework, &w->placement, err));
    w->replicas = w->out->folded ? 1 : p->tp * p->cp * p->dp;
    w->nactions = w->l.schedule->begin[w->l.pp];
    w->nslots = 2 * (size_t)w->l.nstages * (size_t)w->l.m;
    size_t actions = (size_t)w->replicas * w->nactions, slots = (size_t)w->replicas * w->nslots;
    dtp_graph_init(w->g, w->a);
    DTP_TRY(dtp_lowering_reserve(w, err));
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
    dtp_lower_net(&w);
    add_actions(&w);
    add_p2p(&w);
    if (w.l.p2p == DTP_P2P_SLOTS)
        dtp_lower_slots(&w);
    dtp_flows_collectives(&w);
    dtp_lower_units(&w);
    connect(&w);
    dtp_lower_tail(&w);
    return dtp_graph_freeze(&out->graph, err);
}
