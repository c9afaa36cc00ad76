#include "models/lower/lower_build.h"

/* What follows the last action of each rank; the order of lower_layout.h. Each step of the tail waits
 * for the ends that dtp_rank_tasks holds so far. */

static uint64_t rank_tag(const struct dtp_lowering *w, int i, enum dtp_task_kind kind) {
    return dtp_tag_pack(
        (struct dtp_task_tag){.kind = kind, .rank = w->out->rank[i], .stage = w->out->stage[i]});
}

/* Ends that the next step of rank i waits for. */
static int ends_of(const struct dtp_rank_tasks *t, dtp_id out[2]) {
    dtp_id newest = t->gather != DTP_NONE      ? t->gather
                    : t->optimizer != DTP_NONE ? t->optimizer
                    : t->norm != DTP_NONE      ? t->norm
                                               : t->embedding;
    int n = 0;
    if (newest != DTP_NONE) {
        out[n++] = newest;
        return n;
    }
    if (t->last != DTP_NONE)
        out[n++] = t->last;
    if (t->reduce != DTP_NONE)
        out[n++] = t->reduce;
    return n;
}

static void wait_for_rank(struct dtp_lowering *w, int i, dtp_id after) {
    dtp_id ends[2];
    int n = ends_of(&w->out->tasks[i], ends);
    for (int k = 0; k < n; k++)
        dtp_graph_dep(w->g, ends[k], after);
}

/* Weight gradients of the head that were put off: one more piece of compute of the rank. */
static void late(struct dtp_lowering *w) {
    int vs = w->l.nstages - 1;
    for (int q = 0; q < w->replicas && w->costs->late.total_s > 0; q++) {
        int i = dtp_lowering_index(w, w->l.rank_of[vs], q);
        struct dtp_task_tag tag = {DTP_T_LATE, w->out->rank[i], vs, 0, 0};
        dtp_id x = dtp_graph_add(w->g, &(struct dtp_task){.work = w->costs->late.total_s,
                                                          .rate_cap = 1,
                                                          .uses = w->core ? &w->core[i] : NULL,
                                                          .nuses = w->core != NULL,
                                                          .device = w->device[i],
                                                          .stream = w->out->compute_stream[i],
                                                          .tag = dtp_tag_pack(tag)});
        dtp_graph_dep(w->g, w->out->tasks[i].last, x);
        w->out->tasks[i].last = x;
    }
}

/* nreduce units of every chunk of one group, in series; the first waits for all members. */
static dtp_id series_of(struct dtp_lowering *w, int stage, const struct dtp_group_flow *f,
                        enum dtp_unit unit) {
    dtp_id last = DTP_NONE;
    for (int c = 0; c < w->l.vpp; c++) {
        int vs = w->l.stage_of[stage * w->l.vpp + c];
        const struct dtp_stage_cost *s = &w->costs->stage[vs];
        struct dtp_task_tag tag = {.kind = unit == DTP_UNIT_GATHER ? DTP_T_GATHER : DTP_T_REDUCE,
                                   .rank = w->out->rank[f->member[0]],
                                   .stage = vs};
        for (int k = 0; k < s->nreduce; k++) {
            tag.microbatch = k;
            struct dtp_span x =
                dtp_flows_add(w, f, dtp_unit_comm(s, unit), 1, false, dtp_tag_pack(tag));
            for (int q = 0; q < f->nmembers && last == DTP_NONE; q++)
                wait_for_rank(w, f->member[q], x.in);
            if (last != DTP_NONE)
                dtp_graph_dep(w->g, last, x.in);
            last = x.out;
        }
    }
    return last;
}

/* After the ranks' last actions (reductions) or optimizers (gathers). */
static void series(struct dtp_lowering *w, int stage, enum dtp_unit unit) {
    const struct dtp_group_flows *groups = &w->unit[stage * DTP_NUNITS + (int)unit];
    for (int i = 0; i < groups->n; i++) {
        const struct dtp_group_flow *f = &groups->at[i];
        dtp_id last = series_of(w, stage, f, unit);
        for (int q = 0; q < f->nmembers; q++) {
            struct dtp_rank_tasks *t = &w->out->tasks[f->member[q]];
            *(unit == DTP_UNIT_GATHER ? &t->gather : &t->reduce) = last;
        }
    }
}

static void embedding(struct dtp_lowering *w) {
    for (int i = 0; i < w->embedding.n; i++) {
        const struct dtp_group_flow *f = &w->embedding.at[i];
        struct dtp_span x = dtp_flows_add(w, f, &w->costs->embedding_all_reduce, 1, false,
                                          rank_tag(w, f->member[0], DTP_T_EMBEDDING));
        for (int q = 0; q < 2; q++)
            wait_for_rank(w, f->member[q], x.in);
        for (int q = 0; q < 2; q++) {
            w->out->tasks[f->member[q]].embedding = x.out;
            w->out->tasks[f->member[q]].embedding_begin = x.in;
        }
    }
}

/* A few bytes over all ranks: latency only, so no flow. */
static void norm(struct dtp_lowering *w) {
    double time_s = w->costs->norm_all_reduce.time_s;
    if (!(time_s > 0))
        return;
    dtp_id x =
        dtp_graph_add(w->g, &(struct dtp_task){.work = time_s,
                                               .rate_cap = 1,
                                               .uses = w->core,
                                               .nuses = w->core ? (uint32_t)w->out->nranks : 0,
                                               .device = DTP_NONE,
                                               .stream = DTP_NONE,
                                               .tag = rank_tag(w, 0, DTP_T_NORM)});
    for (int i = 0; i < w->out->nranks; i++)
        wait_for_rank(w, i, x);
    for (int i = 0; i < w->out->nranks; i++)
        w->out->tasks[i].norm = x;
}

static dtp_id after_rank(struct dtp_lowering *w, int i, double work_s, enum dtp_task_kind kind) {
    dtp_id x = dtp_graph_add(w->g, &(struct dtp_task){.work = work_s,
                                                      .rate_cap = 1,
                                                      .uses = w->core ? &w->core[i] : NULL,
                                                      .nuses = w->core != NULL,
                                                      .device = DTP_NONE,
                                                      .stream = w->out->compute_stream[i],
                                                      .tag = rank_tag(w, i, kind)});
    wait_for_rank(w, i, x);
    return x;
}

void dtp_lower_tail(struct dtp_lowering *w) {
    const struct dtp_costs *c = w->costs;
    late(w);
    if (dtp_reduces_last(c))
        for (int stage = 0; stage < w->l.pp; stage++)
            series(w, stage, DTP_UNIT_REDUCE);
    embedding(w);
    norm(w);
    for (int i = 0; i < w->out->nranks; i++)
        w->out->tasks[i].optimizer =
            after_rank(w, i, c->optimizer_s[w->out->stage[i]], DTP_T_OPTIM);
    for (int stage = 0; stage < w->l.pp && !c->gather_overlap; stage++)
        series(w, stage, DTP_UNIT_GATHER);
    for (int i = 0; i < w->out->nranks && c->offload_s > 0; i++)
        w->out->tasks[i].end = after_rank(w, i, c->offload_s, DTP_T_OFFLOAD);
}
