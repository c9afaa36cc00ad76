/* How large a graph becomes, before it is built. */
#include "models/lower/lower_build.h"
#include "sim/base/machine.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* Bytes of a task, of a dependency and of a use, in the graph, the engine and the timeline and while they are
 * made: within 20 % of what a process takes in all for 24 plans of three models and all details, the largest
 * of 8.6 million tasks and 1.3 GB. */
static const double task_bytes = 100, dep_bytes = 50, use_bytes = 40;
/* A graph of so many bytes is never refused: asking what the machine has takes longer than making it. */
static const double small_bytes = 16 * DTP_MIB;

struct size {
    double tasks, deps, uses;
};

static void add_actions(struct dtp_lowering *w, int stage, struct size *out) {
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

/* Collectives of one kind that the members of a group call, and how many of them do so for each action or at
 * the end of the step. */
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

static void add_units(struct dtp_lowering *w, int stage, enum dtp_unit unit, struct size *out) {
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

enum dtp_status dtp_lowering_reserve(struct dtp_lowering *w, struct dtp_err *err) {
    char tasks[32], needs[32], has[32];
    double nranks = (double)w->l.pp * w->replicas, slots = (double)w->replicas * (double)w->nslots;
    /* transfers; host, optimizer and offload of each rank */
    struct size n = {slots + 3 * nranks, 3 * slots + 6 * nranks, 0};
    for (int stage = 0; stage < w->l.pp; stage++) {
        add_actions(w, stage, &n);
        for (int unit = 0; unit < DTP_NUNITS; unit++)
            add_units(w, stage, (enum dtp_unit)unit, &n);
    }
    double bytes = n.tasks * task_bytes + n.deps * dep_bytes + n.uses * use_bytes,
           ids = UINT32_MAX / 8;
    double most_bytes = w->options->most_bytes;
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
