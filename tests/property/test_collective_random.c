/* Closed form of every algorithm = its steps as flows in the engine, alone, on random topologies; and
 * a compound flow ends when the cost says. DTP_LONG=1 for ten times as many. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/rng.h"
#include "sim/base/units.h"
#include "sim/engine.h"
#include "tests/cluster_routes.h"
#include "tests/suites.h"

#define TOLERANCE 1e-9

static struct dtp_arena *trial, *program;
static struct dtp_cluster bases[5];

static int setup(void) {
    static const char *const names[5] = {"a100", "v100", "summit", "pcie-gen4", "hgx-h100"};
    struct dtp_err err = {0};
    program = dtp_arena_create("program");
    trial = dtp_arena_create("trial");
    for (int i = 0; i < 5; i++)
        if (dtp_cluster_load(program, names[i], &bases[i], &err) != DTP_OK)
            return 1;
    return 0;
}

static int teardown(void) {
    dtp_arena_destroy(trial);
    dtp_arena_destroy(program);
    return 0;
}

static int below(struct dtp_rng *r, int n) {
    return (int)dtp_rng_below(r, (uint64_t)n);
}

/* Random links, NICs, tiers, oversubscription and rails. */
static struct dtp_cluster random_cluster(struct dtp_rng *r) {
    static const int nics[] = {1, 2, 4, 8};
    struct dtp_cluster c = bases[below(r, 5)];
    struct dtp_node *n = &c.node;
    if (n->intra == DTP_INTRA_SWITCH && below(r, 4) == 0)
        n->intra = DTP_INTRA_SHM;
    n->gpu_link_bytes_per_s = (10 + 400 * dtp_rng_uniform(r)) * DTP_GIGA;
    n->nic_bytes_per_s = (1 + 50 * dtp_rng_uniform(r)) * DTP_GIGA;
    n->gpu_link_latency_s = dtp_rng_uniform(r) * 5 * DTP_MICRO;
    n->nic_latency_s = dtp_rng_uniform(r) * 20 * DTP_MICRO;
    n->nics = nics[below(r, 4)];
    for (int i = 0; i < n->gpus; i++)
        n->nic_of_gpu[i] = i * n->nics / n->gpus;
    c.ntiers = 1 + below(r, 3);
    c.tier[0] = (struct dtp_tier){"leaf", 1 + below(r, 3), 1 + below(r, 3), 1e-6};
    c.tier[1] = (struct dtp_tier){"spine", 2 * c.tier[0].nodes, 1 + below(r, 3), 1e-6};
    c.tier[2] = (struct dtp_tier){"core", 64 * c.tier[0].nodes, 1, 1e-6};
    c.rail_optimised = below(r, 2) == 0;
    c.max_gpus = 0;
    return c;
}

struct build {
    const struct dtp_cluster *c;
    const struct dtp_coll_call *call;
    struct dtp_graph graph;
    double bytes;
};

static int gpu_of(const struct build *b, int member) {
    return b->call->group.first + member * b->call->group.stride;
}

/* Links of one flow; to the switch and back are the two ports of a GPU. */
static struct dtp_route flow_route(const struct build *b, const struct dtp_coll_flow *f) {
    struct dtp_route r, back;
    int src = gpu_of(b, f->src);
    if (f->src != f->dst) {
        dtp_cluster_route(b->c, b->call->ngpus, src, gpu_of(b, f->dst), &r);
        return r;
    }
    int other = src % b->c->node.gpus ? src - 1 : src + 1;
    dtp_cluster_route(b->c, b->call->ngpus, src, other, &r);
    dtp_cluster_route(b->c, b->call->ngpus, other, src, &back);
    r.link[1] = back.link[1];
    return r;
}

/* One repeat: equal latency, then the flows together, then a barrier, which is returned. */
static dtp_id add_repeat(struct build *b, const struct dtp_coll_flow *flow, int n, dtp_id before) {
    double latency_s = 0;
    for (int k = 0; k < n; k++) {
        struct dtp_route r = flow_route(b, &flow[k]);
        latency_s = r.latency_s > latency_s ? r.latency_s : latency_s;
    }
    dtp_id barrier = dtp_graph_add(
        &b->graph, &(struct dtp_task){.rate_cap = 1, .device = DTP_NONE, .stream = DTP_NONE});
    for (int k = 0; k < n; k++) {
        struct dtp_route r = flow_route(b, &flow[k]);
        struct dtp_use use[DTP_MAX_ROUTE];
        for (int i = 0; i < r.n; i++)
            use[i] = (struct dtp_use){r.link[i], DTP_USE_LINK, 1};
        dtp_id t = dtp_graph_add(&b->graph, &(struct dtp_task){.latency_s = latency_s,
                                                               .work = b->bytes * flow[k].fraction,
                                                               .rate_cap = DTP_UNCAPPED,
                                                               .uses = use,
                                                               .nuses = (uint32_t)r.n,
                                                               .device = DTP_NONE,
                                                               .stream = DTP_NONE});
        if (before != DTP_NONE)
            dtp_graph_dep(&b->graph, before, t);
        dtp_graph_dep(&b->graph, t, barrier);
    }
    return barrier;
}

static void add_links(struct dtp_platform *p, const struct dtp_cluster *c, int ngpus) {
    dtp_platform_init(p, trial);
    for (uint32_t l = 0; l < dtp_cluster_nlinks(c, ngpus); l++)
        dtp_platform_link(p, dtp_cluster_link_capacity(c, ngpus, l), NULL);
}

static double run(struct build *b) {
    struct dtp_platform p;
    struct dtp_timeline t;
    struct dtp_err err = {0};
    add_links(&p, b->c, b->call->ngpus);
    CU_ASSERT_EQUAL_FATAL(dtp_graph_freeze(&b->graph, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_engine_run(trial, &p, &b->graph, &t, &err), DTP_OK);
    return t.makespan_s;
}

static double simulate(const struct dtp_cluster *c, const struct dtp_coll_call *call,
                       double bytes) {
    struct dtp_step steps[DTP_MAX_STEPS];
    struct build b = {.c = c, .call = call, .bytes = bytes};
    int n = call->group.size, per_node = dtp_group_per_node(c, &call->group);
    int nsteps = dtp_coll_steps(call->algo, call->kind, n, per_node, steps, DTP_MAX_STEPS);
    dtp_id barrier = DTP_NONE;
    dtp_graph_init(&b.graph, trial);
    for (int i = 0; i < nsteps; i++)
        for (int r = 0; r < steps[i].repeat; r++) {
            const struct dtp_coll_flow *flow = NULL;
            int flows = dtp_coll_flows(trial, &steps[i], r, n, per_node, &flow);
            barrier = add_repeat(&b, flow, flows, barrier);
        }
    return run(&b);
}

static void test_closed_forms(void) {
    struct dtp_rng r = dtp_rng_stream(11, 0);
    int trials = getenv("DTP_LONG") ? 90000 : 9000, ran = 0;
    double worst = 0;
    for (int i = 0; i < trials; i++) {
        struct dtp_cluster c = random_cluster(&r);
        struct dtp_coll_call call = {.kind = (enum dtp_collective)below(&r, DTP_NCOLLECTIVES),
                                     .algo = (enum dtp_algo)(1 + below(&r, DTP_NALGOS - 1))};
        int stride = 1 + below(&r, 9);
        call.group = (struct dtp_group){below(&r, 5), stride, 2 + below(&r, 15)};
        call.ngpus = call.group.first + stride * call.group.size;
        double bytes = 1e3 + 1e8 * dtp_rng_uniform(&r), closed = 0;
        if (call.kind == DTP_SEND_RECV)
            call.group.size = 2;
        if (!time_on_routes(trial, &c, &call, bytes, &closed))
            continue;
        double simulated = simulate(&c, &call, bytes);
        double e = fabs(simulated - closed) / closed;
        CU_ASSERT(e <= TOLERANCE);
        worst = e > worst ? e : worst;
        ran++;
        dtp_arena_reset(trial);
    }
    printf("%d random collectives, largest difference %.1e\n", ran, worst);
    CU_ASSERT(ran > trials / 4);
}

/* What goes out of GPUs and NICs comes in: for each node, and each fabric tier. */
static void test_conservation(void) {
    struct dtp_rng r = dtp_rng_stream(12, 0);
    for (int i = 0; i < 2000; i++) {
        struct dtp_cluster c = random_cluster(&r);
        struct dtp_coll_call call = {.kind = (enum dtp_collective)below(&r, DTP_NCOLLECTIVES),
                                     .algo = (enum dtp_algo)below(&r, DTP_NALGOS)};
        int stride = 1 + below(&r, 9), size = 2 + below(&r, 15);
        call.group = (struct dtp_group){0, stride, call.kind == DTP_SEND_RECV ? 2 : size};
        call.ngpus = stride * call.group.size;
        const struct dtp_use *use = NULL;
        uint32_t n = dtp_coll_uses(trial, &c, &call, &use);
        double out = 0, in = 0, up = 0, down = 0;
        for (uint32_t k = 0; k < n; k++) {
            const char *name = link_name(trial, &c, call.ngpus, use[k].resource);
            const char *end = strrchr(name, '.') + 1;
            bool outer =
                strstr(name, "nic") || (c.node.intra == DTP_INTRA_SWITCH && strstr(name, "gpu"));
            out += outer && strcmp(end, "out") == 0 ? use[k].weight : 0;
            in += outer && strcmp(end, "in") == 0 ? use[k].weight : 0;
            up += strcmp(end, "up") == 0 ? use[k].weight : 0;
            down += strcmp(end, "down") == 0 ? use[k].weight : 0;
        }
        CU_ASSERT(fabs(out - in) <= TOLERANCE * (out + 1));
        CU_ASSERT(fabs(up - down) <= TOLERANCE * (up + 1));
        dtp_arena_reset(trial);
    }
}

/* A compound flow capped at bytes / (time - latency) ends at the cost's time, on whole nodes. */
static void test_compound_flows(void) {
    static const char *const names[] = {"a100",         "h200",        "alcf-polaris",
                                        "jeanzay-a100", "gcp-a3-mega", "v100"};
    struct dtp_rng r = dtp_rng_stream(13, 0);
    for (int i = 0; i < 600; i++) {
        struct dtp_cluster c;
        struct dtp_placement p;
        struct dtp_err err = {0};
        struct dtp_coll_cost cost;
        CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(trial, names[i % 6], &c, &err), DTP_OK);
        int stride = 1 << below(&r, 4), nodes = 1 << below(&r, 3);
        int gpus = c.node.gpus * nodes, size = gpus / stride;
        if (size < 2 || (c.node.intra == DTP_INTRA_MESH && (stride > 1 || nodes > 1)))
            continue;
        struct dtp_sizes sizes = {stride, 1, size, 1, 1};
        CU_ASSERT_EQUAL_FATAL(dtp_placement_init(&p, &c, &sizes, "tp-cp-dp-pp", &err), DTP_OK);
        struct dtp_group_shape shape = dtp_placement_shape(&p, &c, DTP_AXIS_DP, 0);
        shape.siblings = 1;
        struct dtp_coll_call call = {
            (enum dtp_collective)below(&r, DTP_SEND_RECV), DTP_ALGO_AUTO, {0, stride, size}, gpus};
        if (c.node.intra == DTP_INTRA_MESH)
            call.kind = DTP_ALL_REDUCE;
        double bytes = 1e5 + 1e9 * dtp_rng_uniform(&r);
        dtp_coll_cost(&c, call.kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
        struct build b = {.c = &c, .call = &call, .bytes = bytes};
        const struct dtp_use *use = NULL;
        uint32_t n = dtp_coll_uses(trial, &c, &call, &use);
        dtp_graph_init(&b.graph, trial);
        dtp_graph_add(&b.graph,
                      &(struct dtp_task){.latency_s = cost.latency_s,
                                         .work = bytes,
                                         .rate_cap = bytes / (cost.time_s - cost.latency_s),
                                         .uses = use,
                                         .nuses = n,
                                         .device = DTP_NONE,
                                         .stream = DTP_NONE});
        double t = run(&b);
        if (fabs(t - cost.time_s) > TOLERANCE * cost.time_s)
            printf("%s %s %d GPUs stride %d: %g simulated, %g by cost\n", names[i % 6],
                   dtp_collective_names[call.kind], size, stride, t, cost.time_s);
        CU_ASSERT(fabs(t - cost.time_s) <= TOLERANCE * cost.time_s);
        dtp_arena_reset(trial);
    }
}

/* Without a tier that binds, a group some nodes further on uses the links so many nodes further on, with the
 * same weights to the last bit. */
static void test_moved(void) {
    struct dtp_rng r = dtp_rng_stream(14, 0);
    int moved = 0;
    for (int i = 0; i < 2000; i++) {
        struct dtp_cluster c = random_cluster(&r);
        for (int t = 0; t < c.ntiers && i % 2 == 0; t++)
            c.tier[t].oversubscription = 1;
        bool binds = false;
        for (int t = 0; t + 1 < c.ntiers; t++)
            binds |= c.tier[t].oversubscription > 1;
        uint32_t links = dtp_cluster_node_links(&c);
        CU_ASSERT_EQUAL(links == 0, binds);
        if (links == 0)
            continue;
        int stride = 1 + below(&r, 9), size = 2 + below(&r, 15), nodes = 1 + below(&r, 9);
        struct dtp_coll_call call = {.kind = (enum dtp_collective)below(&r, DTP_NCOLLECTIVES),
                                     .algo = (enum dtp_algo)below(&r, DTP_NALGOS),
                                     .group = {below(&r, c.node.gpus), stride, size}};
        call.ngpus = call.group.first + stride * size + nodes * c.node.gpus;
        const struct dtp_use *use = NULL, *further = NULL;
        uint32_t n = dtp_coll_uses(trial, &c, &call, &use);
        call.group.first += nodes * c.node.gpus;
        CU_ASSERT_EQUAL_FATAL(dtp_coll_uses(trial, &c, &call, &further), n);
        for (uint32_t k = 0; k < n; k++) {
            CU_ASSERT_EQUAL(further[k].resource, use[k].resource + (uint32_t)nodes * links);
            CU_ASSERT_EQUAL(further[k].weight, use[k].weight);
        }
        moved += n > 0;
        dtp_arena_reset(trial);
    }
    CU_ASSERT(moved > 500);
}

/* Routes whose ends have no block in common share no link. */
static void test_blocks(void) {
    struct dtp_rng r = dtp_rng_stream(15, 0);
    int apart = 0;
    for (int i = 0; i < 20000; i++) {
        struct dtp_cluster c = random_cluster(&r);
        int block = dtp_cluster_block_nodes(&c) * c.node.gpus, ngpus = 40 * c.node.gpus;
        int end[4];
        for (int k = 0; k < 4; k++)
            end[k] = below(&r, ngpus);
        if (block == 0 || end[0] == end[1] || end[2] == end[3])
            continue;
        bool meet = false, share = false;
        for (int k = 0; k < 4; k++)
            meet |= end[k / 2] / block == end[2 + k % 2] / block;
        struct dtp_route x, y;
        dtp_cluster_route(&c, ngpus, end[0], end[1], &x);
        dtp_cluster_route(&c, ngpus, end[2], end[3], &y);
        for (int k = 0; k < x.n * y.n; k++)
            share |= x.link[k / y.n] == y.link[k % y.n];
        CU_ASSERT(meet || !share);
        apart += !meet;
    }
    CU_ASSERT(apart > 2000);
}

int main(void) {
    CU_TestInfo tests[] = {{"closed forms against the engine", test_closed_forms},
                           {"bytes out are bytes in", test_conservation},
                           {"compound flows end with the cost", test_compound_flows},
                           {"uses of a group further on", test_moved},
                           {"routes without a common block", test_blocks},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"collective_random", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
