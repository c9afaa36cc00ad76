#include "models/evaluate/evaluate.h"

#include "models/lower/lower_layout.h"
#include "sim/base/memo.h"

/* ---- where the time of a step goes ---- */

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
    /* actions are slowed by concurrent reductions, or by other ranks on the same core */
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

/* ---- one entry for three fidelities ---- */

/* Schedules are kept for later plans while they fit; a larger one is made for each plan in the candidate arena. */
static const size_t max_kept_actions = (size_t)1 << 24;

/* What an order depends on. */
struct order_key {
    int schedule, pp, vpp, m;
};

struct dtp_evaluator {
    struct dtp_problem problem;
    struct dtp_arena *program, *candidate;
    struct dtp_cost_memo *costs;
    struct dtp_memory_memo *memory;
    struct dtp_memo schedules;
    size_t nactions; /* actions in the schedules */
};

uint64_t dtp_problem_default_limit(const struct dtp_problem *p) {
    double margin = p->framework->keeps.margin;
    return (uint64_t)((double)p->cluster->gpu.memory_bytes * (1 - margin));
}

struct dtp_evaluator *dtp_evaluator_create(struct dtp_arena *a, const struct dtp_problem *problem) {
    struct dtp_evaluator *ev = DTP_NEW(a, struct dtp_evaluator, 1);
    ev->problem = *problem;
    ev->program = a;
    ev->candidate = dtp_arena_create_in(a, "candidate");
    ev->costs = dtp_cost_memo_create(a, &ev->problem);
    ev->memory = dtp_memory_memo_create(a, &ev->problem);
    dtp_memo_init(&ev->schedules, a, sizeof(struct order_key));
    return ev;
}

void dtp_evaluator_destroy(struct dtp_evaluator *ev) {
    if (ev)
        dtp_arena_destroy(ev->candidate);
}

const struct dtp_problem *dtp_evaluator_problem(const struct dtp_evaluator *ev) {
    return &ev->problem;
}

static enum dtp_status find_schedule(struct dtp_evaluator *ev, const struct dtp_plan *p,
                                     const struct dtp_schedule **out, struct dtp_err *err) {
    int m = dtp_plan_num_microbatches(p);
    const struct order_key key = {p->schedule, p->pp, p->vpp, m};
    *out = dtp_memo_find(&ev->schedules, &key);
    if (*out)
        return DTP_OK;
    size_t n = dtp_schedule_max_actions(p->vpp, m) * (size_t)p->pp;
    bool keep = ev->nactions + n <= max_kept_actions;
    struct dtp_arena *a = keep ? ev->program : ev->candidate;
    struct dtp_schedule *s = DTP_NEW(a, struct dtp_schedule, 1);
    DTP_TRY(dtp_schedule_make(a, p->schedule, p->pp, p->vpp, m, s, err));
    if (keep) {
        dtp_memo_put(&ev->schedules, &key, s);
        ev->nactions += n;
    }
    *out = s;
    return DTP_OK;
}

double dtp_evaluate_floor(struct dtp_evaluator *ev, const struct dtp_plan *plan) {
    return dtp_floor_s(ev->costs, &ev->problem, plan);
}

double dtp_evaluate_bound(struct dtp_evaluator *ev, const struct dtp_plan *plan) {
    return dtp_bound_s(ev->costs, &ev->problem, plan);
}

double dtp_evaluate_estimate(struct dtp_evaluator *ev, const struct dtp_plan *plan) {
    const struct dtp_schedule *schedule;
    struct dtp_costs costs;
    struct dtp_path path;
    dtp_arena_reset(ev->candidate);
    if (find_schedule(ev, plan, &schedule, NULL) != DTP_OK)
        return INFINITY;
    dtp_costs(ev->candidate, ev->costs, plan, &costs);
    if (costs.nstages == 0)
        return INFINITY;
    dtp_estimate(ev->candidate, &costs, schedule, &path);
    return path.step_s;
}

uint64_t dtp_evaluate_memory(struct dtp_evaluator *ev, const struct dtp_plan *plan) {
    return dtp_memory_device_bytes(ev->memory, plan);
}

static void fill_memory(struct dtp_arena *a, struct dtp_evaluator *ev, struct dtp_result *r) {
    r->nstages = r->plan.pp;
    r->stages = DTP_NEW(a, struct dtp_stage_memory, (size_t)r->plan.pp);
    dtp_memory(ev->memory, &r->plan, r->stages);
    for (int s = 0; s < r->nstages; s++) {
        const struct dtp_stage_memory *m = &r->stages[s];
        r->peak_bytes = m->peak_bytes > r->peak_bytes ? m->peak_bytes : r->peak_bytes;
        if (m->reserved_bytes > r->reserved_bytes)
            r->reserved_bytes = m->reserved_bytes;
        r->device_bytes = m->device_bytes > r->device_bytes ? m->device_bytes : r->device_bytes;
        uint64_t observed = m->observed_bytes > 0 ? m->observed_bytes : m->device_bytes;
        r->observed_bytes = observed > r->observed_bytes ? observed : r->observed_bytes;
    }
    for (int z = 0; z <= 3; z++) {
        struct dtp_plan p = r->plan;
        p.zero_stage = z;
        p.zero_group = z > 0 ? p.zero_group : 0;
        if (z != r->plan.zero_stage && dtp_plan_check(&ev->problem, &p) != DTP_LEGAL)
            r->zero_refused |= 1 << z;
        r->by_zero_stage[z] = dtp_memory_device_bytes(ev->memory, &p);
    }
    r->memory_limit_bytes = ev->problem.memory_limit_bytes;
    r->fits = r->device_bytes <= r->memory_limit_bytes;
}

static void fill_rates(const struct dtp_problem *p, const struct dtp_costs *costs,
                       struct dtp_result *r) {
    double peak = p->cluster->gpu.peak_flops_per_s[r->plan.dtype];
    double per_gpu = 1 / (r->step_s * p->gpus);
    r->tokens_per_s = (double)r->plan.global_batch_size * p->seq / r->step_s;
    r->flops_per_gpu_per_s = costs->model_flops * per_gpu;
    r->mfu = peak > 0 ? r->flops_per_gpu_per_s / peak : 0;
    r->hfu = peak > 0 ? costs->hardware_flops * per_gpu / peak : 0;
    r->causal_mfu = r->mfu * dtp_model_causal_flops(p->model, p->seq) /
                    dtp_model_forward_flops(p->model, p->seq);
    r->extrapolated = costs->extrapolated;
}

/* The simulated path of every rank; lowered graph and timeline stay in `a`. */
static enum dtp_status simulate(struct dtp_arena *a, const struct dtp_lower_input *in,
                                struct dtp_simulate_options *options, struct dtp_path *path,
                                bool *unlike, struct dtp_err *err) {
    struct dtp_lower_options how = {.fold = !(options && options->no_fold),
                                    .detail = options ? options->detail : DTP_DETAIL_ACTION,
                                    .most_bytes = options ? options->most_bytes : 0};
    struct dtp_lowered *lowered = DTP_NEW(a, struct dtp_lowered, 1);
    struct dtp_timeline *timeline = DTP_NEW(a, struct dtp_timeline, 1);
    DTP_TRY(dtp_lower(a, in, &how, lowered, err));
    *unlike = lowered->unlike;
    DTP_TRY(dtp_engine_run(a, &lowered->platform, &lowered->graph, timeline, err));
    dtp_lowered_path(a, lowered, in->costs, timeline, path);
    if (options && options->out_lowered)
        *options->out_lowered = lowered;
    if (options && options->out_timeline)
        *options->out_timeline = timeline;
    return DTP_OK;
}

/* The fidelities add the same times in another order: what rounding turned around is put right, and
 * nothing else. */
static double at_most(double x, double limit) {
    static const double rounding = 1e-9;
    return x > limit && x <= limit * (1 + rounding) ? limit : x;
}

static const char *attention_name(const struct dtp_problem *p) {
    return dtp_attention_names[p->attention >= 0 ? p->attention
                                                 : (int)p->framework->kernels.attention];
}

enum dtp_status dtp_evaluate(struct dtp_arena *a, struct dtp_evaluator *ev,
                             const struct dtp_plan *plan, enum dtp_fidelity fidelity,
                             struct dtp_simulate_options *options, struct dtp_result *out,
                             struct dtp_err *err) {
    const struct dtp_schedule *schedule;
    struct dtp_costs costs;
    struct dtp_path estimate, free_path, simulated;
    dtp_arena_reset(ev->candidate);
    *out = (struct dtp_result){.plan = *plan};
    dtp_costs(ev->candidate, ev->costs, plan, &costs);
    if (costs.nstages == 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "cluster %s has no place for the plan's %d GPUs",
                        ev->problem.cluster->name, ev->problem.gpus);
    fill_memory(a, ev, out);
    out->step_s = out->bound_s = dtp_bound_s(ev->costs, &ev->problem, plan);
    out->breakdown.other_s = out->step_s;
    if (fidelity != DTP_BOUND) {
        DTP_TRY(find_schedule(ev, plan, &schedule, err));
        dtp_estimate(ev->candidate, &costs, schedule, &estimate);
        dtp_estimate_free(ev->candidate, &costs, schedule, &free_path);
        if (!isfinite(estimate.step_s))
            return dtp_fail(err, DTP_EUNSUPPORTED,
                            "%s on %s: no calibrated time for an operation of %s (%s attention), "
                            "or an order that deadlocks",
                            ev->problem.framework->name, ev->problem.cluster->gpu.name,
                            ev->problem.model->name, attention_name(&ev->problem));
        out->step_s = out->estimate_s = estimate.step_s;
        const struct dtp_path *path = &estimate;
        if (fidelity == DTP_SIMULATE) {
            bool keep = options && (options->out_lowered || options->out_timeline);
            struct dtp_lower_input in = {&ev->problem, plan, &costs, schedule};
            DTP_TRY(
                simulate(keep ? a : ev->candidate, &in, options, &simulated, &out->unlike, err));
            path = &simulated;
            out->step_s = simulated.step_s;
        }
        out->estimate_s = at_most(out->estimate_s, out->step_s);
        out->bound_s = at_most(out->bound_s, out->estimate_s);
        dtp_bubble_fill(&free_path, &out->bubble);
        dtp_breakdown_fill(&costs, schedule, path, &free_path, &out->breakdown);
    }
    fill_rates(&ev->problem, &costs, out);
    return DTP_OK;
}
