#include "models/evaluate/breakdown.h"
#include "models/lower/lower_layout.h"

static double least(double a, double b) {
    return a < b ? a : b;
}

void dtp_bubble_fill(const struct dtp_path *free_path, struct dtp_bubble *out) {
    int pp = free_path->nranks;
    double begin_s = INFINITY, end_s = 0, busiest_s = 0;
    *out = (struct dtp_bubble){0};
    for (int r = 0; r < pp; r++) {
        const struct dtp_rank_path *p = &free_path->rank[r];
        begin_s = p->first_s < begin_s ? p->first_s : begin_s;
        end_s = p->last_s > end_s ? p->last_s : end_s;
        busiest_s = p->busy_s > busiest_s ? p->busy_s : busiest_s;
    }
    double window_s = end_s - begin_s;
    if (!(window_s > 0))
        return;
    for (int r = 0; r < pp; r++) {
        const struct dtp_rank_path *p = &free_path->rank[r];
        double share = 1 / (window_s * pp);
        /* waiting for parameters is communication, wherever it falls */
        double idle_s = window_s - p->busy_s - p->dp_wait_s;
        idle_s = idle_s > 0 ? idle_s : 0;
        double imbalance_s = least(busiest_s - p->busy_s, idle_s);
        double warmup_s = least(p->filled_s, idle_s - imbalance_s);
        out->fraction += idle_s * share;
        out->over_ideal += idle_s / (p->busy_s * pp);
        out->imbalance += imbalance_s * share;
        out->warmup += warmup_s * share;
        out->drain += (idle_s - imbalance_s - warmup_s) * share;
    }
}

/* Adds n microbatches of one phase to the terms that it consists of. */
static void add_phase(struct dtp_breakdown *b, const struct dtp_phase *p, double n,
                      bool recomputed) {
    double compute_s = b->compute_s;
#define X(member, term) b->term += n * p->member;
    DTP_PHASE_LIST(X)
#undef X
    if (recomputed) {
        b->compute_s = compute_s;
        b->recompute_s += n * p->compute_s;
    }
}

/* Rows of experts that have no other microbatch to hide behind, of the rank's actions. */
static double alone_s(const struct dtp_costs *costs, const struct dtp_schedule *schedule,
                      int stage) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[schedule->kind];
    struct dtp_paired paired = dtp_schedule_paired(schedule, stage);
    double sum_s = 0;
    for (uint32_t k = schedule->begin[stage]; k < schedule->begin[stage + 1]; k++) {
        struct dtp_action act = schedule->action[k];
        const struct dtp_stage_cost *s =
            &costs->stage[kind->stage(schedule->pp, schedule->vpp, stage, act.chunk)];
        if (k < paired.from || k >= paired.to)
            sum_s += act.kind == DTP_A_F ? s->f.hidden_s : act.kind == DTP_A_W ? 0 : s->i.hidden_s;
    }
    return sum_s;
}

static double above_zero(double x) {
    return x > 0 ? x : 0;
}

/* Adding other_s last, in the order of the list, gives exactly step_s. */
static void close_sum(struct dtp_breakdown *b, double step_s) {
    b->other_s = 0;
    for (int i = 0; i < 4; i++)
        b->other_s += step_s - dtp_breakdown_sum_s(b);
}

void dtp_breakdown_fill(const struct dtp_costs *costs, const struct dtp_schedule *schedule,
                        const struct dtp_path *path, const struct dtp_path *free_path,
                        struct dtp_breakdown *out) {
    const struct dtp_schedule_kind *kind = &dtp_schedule_kinds[schedule->kind];
    int last = path->last_rank, stage = path->stage_of_last;
    const struct dtp_rank_path *p = &path->rank[last], *free_p = &free_path->rank[stage];
    double fixed_s = costs->step_host_s, ideal_s = 0, inline_dp_s;
    *out = (struct dtp_breakdown){0};
    for (int c = 0; c < schedule->vpp; c++) {
        const struct dtp_stage_cost *s =
            &costs->stage[kind->stage(schedule->pp, schedule->vpp, stage, c)];
        add_phase(out, &s->f, schedule->m, false);
        add_phase(out, &s->i, schedule->m, false);
        add_phase(out, &s->w, schedule->m, false);
        add_phase(out, &s->r, schedule->m, true);
        ideal_s += schedule->m * (s->f.total_s + s->i.total_s + s->w.total_s + s->r.total_s);
    }
    int head_rank, chunk;
    dtp_schedule_holder(schedule->kind, schedule->pp, schedule->vpp, costs->nstages - 1, &head_rank,
                        &chunk);
    if (stage == head_rank) {
        add_phase(out, &costs->late, 1, false);
        ideal_s += costs->late.total_s;
    }
    double unpaired_s = alone_s(costs, schedule, stage);
    out->ep_exposed_s += unpaired_s;
    ideal_s += unpaired_s;
    inline_dp_s = out->dp_exposed_s;
    double wait_s = above_zero(p->last_s - fixed_s - p->busy_s - p->dp_wait_s);
    double idle_s = above_zero(free_p->last_s - fixed_s - free_p->busy_s - free_p->dp_wait_s);
    out->pp_bubble_s = wait_s < idle_s ? wait_s : idle_s;
    out->pp_exposed_s += wait_s - out->pp_bubble_s;
    out->pp_bubble_s += p->embedding_start_s - p->reduced_s + p->norm_start_s - p->embedding_end_s;
    /* what actions last longer: slowed by reductions beside them, or by other ranks of the core */
    double slowed_s = costs->shares_cores ? 0 : p->busy_s - ideal_s;
    out->dp_exposed_s = p->dp_wait_s + slowed_s + p->reduced_s - p->last_s;
    out->dp_exposed_s += p->embedding_end_s - p->embedding_start_s;
    out->dp_exposed_s += p->norm_end_s - p->norm_start_s + p->gathered_s - p->optimized_s;
    out->dp_exposed_s = above_zero(out->dp_exposed_s) + inline_dp_s;
    out->optimizer_s = p->optimized_s - p->norm_end_s;
    out->offload_s = costs->offload_s;
    out->host_s += fixed_s;
    close_sum(out, path->step_s);
}
