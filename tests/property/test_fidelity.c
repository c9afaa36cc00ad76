/* BOUND <= ESTIMATE <= SIMULATE on random costs, clusters and plans; equal where nothing contends; folded =
 * unfolded. Costs are made by hand: any mixture of transfers, reductions, gathers, unshards. The seed of a
 * failing case is printed. */
#include "tests/fidelity_case.h"

enum { NCASES = 300 };

/* ---- a random case ---- */

/* Nodes of 4 GPUs with one NIC each or shared, perhaps an oversubscribed leaf tier. */
static void random_cluster(struct dtp_rng *r, struct dtp_cluster *c) {
    struct dtp_err err = {0};
    if (dtp_cluster_load(arena, "dgx-a100-80", c, &err) != DTP_OK)
        CU_FAIL_FATAL("dgx-a100-80");
    c->node.gpus = 4;
    c->node.nics = 1 << below(r, 3);
    for (int i = 0; i < c->node.gpus; i++)
        c->node.nic_of_gpu[i] = i * c->node.nics / c->node.gpus;
    c->rail_optimised = false;
    c->ntiers = 2;
    c->tier[0] = (struct dtp_tier){"leaf", 2, between(r, 1, 3), 0};
    c->tier[1] = (struct dtp_tier){"spine", 4096, 1, 0};
    c->max_gpus = 0;
}

static struct dtp_comm random_comm(struct dtp_rng *r, enum dtp_collective kind, enum dtp_axis axis,
                                   double bytes_per_s) {
    double time_s = below(r, 5) == 0 ? 0 : between(r, 0.01, 0.6);
    double latency_s = time_s * between(r, 0, 0.5);
    struct dtp_comm c =
        case_comm(kind, axis, (time_s - latency_s) * bytes_per_s, time_s, latency_s);
    c.wait_s = below(r, 2) ? between(r, 0, 0.3) : 0;
    c.stretch = below(r, 2) ? between(r, 0, 0.8) : 0;
    return c;
}

static void random_stage(struct dtp_rng *r, double bytes_per_s, const struct random_case *c, int vs,
                         struct dtp_stage_cost *s) {
    s->f.total_s = between(r, 0.5, 1.5);
    s->i.total_s = between(r, 0.5, 1.5);
    s->w.total_s = between(r, 0.5, 1.5);
    s->r.total_s = below(r, 2) ? between(r, 0, 1) : 0;
    if (below(r, 2)) {
        s->f.hidden_s = between(r, 0, 0.5);
        s->i.hidden_s = between(r, 0, 0.5);
    }
    for (int axis = 0; axis < DTP_NET_AXES && below(r, 2); axis++) {
        s->f.net_bytes[axis] = bytes_per_s * dtp_rng_uniform(r);
        s->i.net_bytes[axis] = bytes_per_s * dtp_rng_uniform(r);
        s->w.net_bytes[axis] = bytes_per_s * dtp_rng_uniform(r);
    }
    s->nreduce = below(r, 5);
    s->nunshard = c->costs.zero_stage == 3 ? 1 + below(r, 4) : 0;
    s->reduce = random_comm(r, DTP_REDUCE_SCATTER, DTP_AXIS_DP_CP, bytes_per_s);
    if (c->costs.zero_stage == 3)
        s->unshard = random_comm(r, DTP_ALL_GATHER, DTP_AXIS_DP_CP, bytes_per_s);
    else
        s->gather = random_comm(r, DTP_ALL_GATHER, DTP_AXIS_DP_CP, bytes_per_s);
    if (vs + 1 < c->costs.nstages)
        s->send_f = random_comm(r, DTP_SEND_RECV, DTP_AXIS_PP, bytes_per_s);
    if (vs > 0)
        s->send_b = random_comm(r, DTP_SEND_RECV, DTP_AXIS_PP, bytes_per_s);
}

static void random_costs(struct dtp_rng *r, double bytes_per_s, struct random_case *c) {
    const struct dtp_plan *p = &c->plan;
    int m = p->global_batch_size / p->dp;
    c->costs = case_costs(arena, p->pp, p->vpp, m, (struct case_times){0, 0, 0});
    c->costs.zero_stage = below(r, 4);
    c->costs.prefetch = below(r, 3);
    c->costs.prefetch_forward = (c->costs.prefetch + m) % 3;
    c->costs.p2p_blocking = below(r, 2);
    c->costs.p2p_slots = c->costs.p2p_blocking && (p->pp + m) % 2;
    c->costs.reduce_overlap = below(r, 2);
    c->costs.reduce_per_microbatch = below(r, 3) == 0;
    c->costs.gather_overlap = below(r, 2);
    c->costs.regather_backward = below(r, 2);
    c->costs.step_host_s = below(r, 2) ? 0.1 : 0;
    c->costs.offload_s = below(r, 2) ? 0.2 : 0;
    for (int s = 0; s < c->costs.nstages; s++)
        random_stage(r, bytes_per_s, c, s, &c->costs.stage[s]);
    for (int s = 0; s < p->pp; s++)
        c->costs.optimizer_s[s] = between(r, 0, 0.5);
    c->costs.embedding_all_reduce = random_comm(r, DTP_ALL_REDUCE, DTP_AXIS_PP, bytes_per_s);
    c->costs.norm_all_reduce = random_comm(r, DTP_ALL_REDUCE, DTP_AXIS_PP, bytes_per_s);
    c->costs.late.total_s = below(r, 2) ? between(r, 0, 3) : 0;
}

static void random_plan(struct dtp_rng *r, struct random_case *c) {
    struct dtp_plan *p = &c->plan;
    *p = dtp_plan_default();
    p->tp = 1 << below(r, 3);
    p->cp = 1 + below(r, 2);
    p->dp = 1 << below(r, 3);
    do {
        p->schedule = below(r, DTP_NSCHEDULES);
        p->pp = 1 + below(r, 5);
        p->vpp = dtp_schedule_kinds[p->schedule].chunked ? 2 + below(r, 2) : 1;
        p->global_batch_size = (1 + below(r, 14)) * p->dp;
    } while (dtp_schedule_make(arena, p->schedule, p->pp, p->vpp, p->global_batch_size / p->dp,
                               &c->schedule, NULL) != DTP_OK);
}

/* Each property draws cases of its own. */
enum { ALONE = 7, SHARED = 17, SLOWED = 27 };

/* Groups of experts inside the replicas, or over all ranks of a stage. */
static void random_experts(struct dtp_rng *r, struct random_case *c) {
    struct dtp_plan *p = &c->plan;
    int ranks = p->tp * p->cp * p->dp;
    bool folds = strcmp(c->framework.wire.rank_order, "tp-cp-dp-pp") == 0 && ranks % 2 == 0;
    p->etp = folds && below(r, 2) ? 2 : 0;
    int groups = p->etp > 0 && p->etp != p->tp ? ranks / p->etp : p->cp * p->dp;
    p->ep = groups % 2 == 0 && below(r, 2) ? 2 : 1;
}

/* bytes_per_s: rate of each flow alone; far below every link, nothing contends. */
static void random_case(uint64_t property, uint64_t seed, double bytes_per_s,
                        struct random_case *c) {
    struct dtp_rng r = dtp_rng_stream(property, seed);
    dtp_arena_reset(arena);
    *c = (struct random_case){0};
    random_cluster(&r, &c->cluster);
    c->framework.wire.rank_order = below(&r, 2) ? "tp-cp-dp-pp" : "tp-pp-cp-dp";
    random_plan(&r, c);
    random_experts(&r, c);
    c->problem = (struct dtp_problem){.model = &c->model,
                                      .cluster = &c->cluster,
                                      .framework = &c->framework,
                                      .gpus = c->plan.tp * c->plan.cp * c->plan.dp * c->plan.pp};
    random_costs(&r, bytes_per_s, c);
}

static double simulate_path(struct random_case *c, bool fold, enum dtp_detail detail,
                            struct dtp_path *path, int **stage) {
    struct dtp_lower_options how = {.fold = fold, .detail = detail};
    struct dtp_lowered lowered;
    struct dtp_timeline t;
    struct dtp_err err = {0};
    struct dtp_lower_input in = {&c->problem, &c->plan, &c->costs, &c->schedule};
    enum dtp_status status = dtp_lower(arena, &in, &how, &lowered, &err);
    if (status == DTP_OK)
        status = dtp_engine_run(arena, &lowered.platform, &lowered.graph, &t, &err);
    if (status != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("lower and run");
    }
    dtp_lowered_path(arena, &lowered, &c->costs, &t, path);
    CU_ASSERT(path->rank[path->last_rank].end_s == t.makespan_s);
    *stage = lowered.stage;
    return t.makespan_s;
}

static double simulate(struct random_case *c, bool fold, enum dtp_detail detail) {
    struct dtp_path path;
    int *stage;
    return simulate_path(c, fold, detail, &path, &stage);
}

/* ---- with costs by hand ---- */

/* Every rank's times, not only the end of the last: a fault off the critical path shows as well. */
static bool same_ranks(const struct dtp_path *simulated, const int *stage,
                       const struct dtp_path *estimate) {
    bool same = true;
    for (int i = 0; i < simulated->nranks; i++) {
        const struct dtp_rank_path *a = &simulated->rank[i], *b = &estimate->rank[stage[i]];
        const double pairs[][2] = {{a->last_s, b->last_s},
                                   {a->busy_s, b->busy_s},
                                   {a->reduced_s, b->reduced_s},
                                   {a->embedding_start_s, b->embedding_start_s},
                                   {a->embedding_end_s, b->embedding_end_s},
                                   {a->norm_end_s, b->norm_end_s},
                                   {a->optimized_s, b->optimized_s},
                                   {a->gathered_s, b->gathered_s},
                                   {a->end_s, b->end_s}};
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            same = same && fabs(pairs[k][0] - pairs[k][1]) <= tolerance * estimate->step_s;
    }
    return same;
}

static void check_alone(uint64_t seed, struct random_case *c, bool fold, enum dtp_detail detail) {
    struct dtp_path estimate, simulated;
    int *stage;
    dtp_estimate(arena, &c->costs, &c->schedule, &estimate);
    double step_s = simulate_path(c, fold, detail, &simulated, &stage);
    bool ok = equal(step_s, estimate.step_s) && same_ranks(&simulated, stage, &estimate);
    if (!ok) {
        printf("\n  %s, detail %s:", fold ? "folded" : "unfolded", dtp_detail_names[detail]);
        report(seed, c, "simulated, estimate", step_s, estimate.step_s);
    }
    CU_ASSERT(ok);
}

static void test_no_contention(void) {
    struct random_case c;
    for (uint64_t seed = 0; seed < ncases(8 * NCASES); seed++) {
        random_case(ALONE, seed, 1e3, &c);
        check_alone(seed, &c, true, DTP_DETAIL_ACTION);
        if (seed % 2)
            check_alone(seed, &c, false, DTP_DETAIL_ACTION);
        if (seed % 4 == 0)
            check_alone(seed, &c, seed % 8 == 0, DTP_DETAIL_STEP);
    }
}

static void test_contention(void) {
    struct random_case c;
    struct dtp_path path;
    int later = 0, symmetric = 0;
    const uint64_t n = ncases(2 * NCASES);
    for (uint64_t seed = 0; seed < n; seed++) {
        random_case(SHARED, seed, 15e9, &c);
        dtp_estimate(arena, &c.costs, &c.schedule, &path);
        double folded_s = simulate(&c, true, DTP_DETAIL_ACTION),
               unfolded_s = simulate(&c, false, DTP_DETAIL_ACTION);
        bool above = unfolded_s >= path.step_s * (1 - tolerance) &&
                     folded_s >= path.step_s * (1 - tolerance);
        if (!above)
            report(seed, &c, "unfolded below the estimate", unfolded_s, path.step_s);
        CU_ASSERT(above);
        later += unfolded_s > path.step_s * (1 + 1e-6);
        double steps_s = simulate(&c, seed % 2, DTP_DETAIL_STEP);
        if (!(steps_s >= path.step_s * (1 - tolerance)))
            report(seed, &c, "steps below the estimate", steps_s, path.step_s);
        CU_ASSERT(steps_s >= path.step_s * (1 - tolerance));
        struct dtp_placement placement;
        CU_ASSERT_FATAL(dtp_plan_place(&c.plan, &c.cluster, &c.framework, &placement, NULL) ==
                        DTP_OK);
        if (!dtp_placement_symmetric(&placement, &c.cluster))
            continue;
        symmetric++;
        if (!equal(folded_s, unfolded_s))
            report(seed, &c, "folded, unfolded", folded_s, unfolded_s);
        CU_ASSERT(equal(folded_s, unfolded_s));
    }
    printf(" (%d of %d contend, %d symmetric)", later, (int)n, symmetric);
    CU_ASSERT(later > 0 && symmetric > (int)n / 10);
}

/* Load on the devices only slows what overlaps a collective, so that the time is never below the estimate. */
static void test_slow_down(void) {
    struct random_case c;
    struct dtp_path path;
    int later = 0;
    static const double share[] = {0.05, 0.2, 0.45};
    const uint64_t n = ncases(2 * NCASES);
    for (uint64_t seed = 0; seed < n; seed++) {
        random_case(SLOWED, seed, 1e3, &c);
        for (int s = 0; s < c.costs.nstages; s++) {
            struct dtp_stage_cost *stage = &c.costs.stage[s];
            stage->reduce.device_share = stage->gather.device_share = share[seed % 3];
            stage->unshard.device_share = share[seed / 3 % 3];
            if (seed / 2 % 2) { /* not every member sends in every step */
                stage->reduce.kind = DTP_ALL_REDUCE;
                stage->reduce.algo = DTP_ALGO_TREE;
            }
        }
        dtp_estimate(arena, &c.costs, &c.schedule, &path);
        double folded_s = simulate(&c, true, DTP_DETAIL_ACTION),
               unfolded_s = simulate(&c, false, DTP_DETAIL_ACTION);
        if (!equal(folded_s, unfolded_s))
            report(seed, &c, "folded, unfolded with slow-down", folded_s, unfolded_s);
        CU_ASSERT(equal(folded_s, unfolded_s));
        bool above = folded_s >= path.step_s * (1 - tolerance);
        if (!above)
            report(seed, &c, "below the estimate with slow-down", folded_s, path.step_s);
        CU_ASSERT(above);
        double steps_s = simulate(&c, seed % 2, DTP_DETAIL_STEP);
        above = steps_s >= path.step_s * (1 - tolerance);
        if (!above)
            report(seed, &c, "steps below the estimate with slow-down", steps_s, path.step_s);
        CU_ASSERT(above);
        later += folded_s > path.step_s * (1 + 1e-6);
    }
    CU_ASSERT(later > (int)n / 10);
}

/* Many microbatches, any imbalance of stages and transfers, as reals or as eighths (exact sums, so that
 * ties abound): the jump over the steady state changes no time of any rank. */
static void random_long(struct dtp_rng *r, struct random_case *c) {
    bool eighths = below(r, 2), balanced = below(r, 2);
    struct dtp_plan *p = &c->plan;
    dtp_arena_reset(arena);
    *p = dtp_plan_default();
    do {
        p->schedule = below(r, DTP_NSCHEDULES);
        p->pp = 2 + below(r, 7);
        p->vpp = dtp_schedule_kinds[p->schedule].chunked ? 2 + below(r, 2) : 1;
        p->global_batch_size = p->pp * (4 + below(r, 40)) + below(r, 2) * below(r, p->pp);
    } while (dtp_schedule_make(arena, p->schedule, p->pp, p->vpp, p->global_batch_size,
                               &c->schedule, NULL) != DTP_OK);
    random_costs(r, 1, c);
    if (below(r, 4))
        c->costs.reduce_per_microbatch = false;
    if (below(r, 4))
        c->costs.zero_stage = 0;
    for (int s = 0; s < c->costs.nstages; s++) {
        struct dtp_stage_cost *x = &c->costs.stage[s];
        double *times[] = {&x->f.total_s,     &x->i.total_s,     &x->w.total_s,
                           &x->r.total_s,     &x->send_f.time_s, &x->send_b.time_s,
                           &x->reduce.time_s, &x->gather.time_s, &x->unshard.time_s,
                           &x->f.hidden_s,    &x->i.hidden_s};
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            *times[k] = eighths ? floor(8 * *times[k]) / 8 : *times[k];
        if (balanced && s > 0) {
            x->f = c->costs.stage[0].f;
            x->i = c->costs.stage[0].i;
            x->w = c->costs.stage[0].w;
            x->r = c->costs.stage[0].r;
        }
    }
}

static bool same_path(const struct dtp_path *x, const struct dtp_path *y) {
    static const double rounding = 1e-12;
    bool same = x->last_rank == y->last_rank && fabs(x->step_s - y->step_s) <= rounding * y->step_s;
    for (int r = 0; r < x->nranks; r++) {
        const struct dtp_rank_path *a = &x->rank[r], *b = &y->rank[r];
        const double pairs[][2] = {{a->first_s, b->first_s},   {a->last_s, b->last_s},
                                   {a->busy_s, b->busy_s},     {a->dp_wait_s, b->dp_wait_s},
                                   {a->filled_s, b->filled_s}, {a->reduced_s, b->reduced_s},
                                   {a->end_s, b->end_s}};
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            same = same && fabs(pairs[k][0] - pairs[k][1]) <= rounding * y->step_s;
    }
    return same;
}

static void test_jump(void) {
    struct random_case c = {0};
    struct dtp_path jumped, plain;
    int njumps = 0;
    const uint64_t n = ncases(10 * NCASES);
    double left_out = 0;
    for (uint64_t seed = 0; seed < n; seed++) {
        struct dtp_rng r = dtp_rng_stream(13, seed);
        random_long(&r, &c);
        dtp_estimate(arena, &c.costs, &c.schedule, &jumped);
        dtp_estimate_plain(arena, &c.costs, &c.schedule, &plain);
        bool same = same_path(&jumped, &plain);
        if (!same)
            report(seed, &c, "jump, plain", jumped.step_s, plain.step_s);
        CU_ASSERT(same);
        njumps += jumped.nactions < plain.nactions;
        left_out += 1 - (double)jumped.nactions / (double)plain.nactions;
    }
    printf(" (%d of %d jump, %.0f %% left out)", njumps, (int)n, 100 * left_out / (double)n);
    CU_ASSERT(njumps > (int)n * 3 / 10);
}

int main(void) {
    CU_TestInfo tests[] = {{"no contention: estimate = simulate", test_no_contention},
                           {"contention: estimate <= simulate, folded = unfolded", test_contention},
                           {"slow-down beside collectives", test_slow_down},
                           {"jump over the steady state", test_jump},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"fidelity", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("case");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
