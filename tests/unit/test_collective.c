/* Collectives: step lists and their wire bytes, closed forms, curves, link uses. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hw/cluster_parts.h"
#include "hw/coll_parts.h"
#include "sim/base/units.h"
#include "tests/cluster_case.h"
#include "tests/suites.h"

#define MB DTP_MEGA
#define EXACT 1e-12
#define LOG2_16 4

static bool near(double x, double y, double tolerance) {
    return fabs(x - y) <= tolerance * fabs(y);
}

/* ---- steps ---- */

/* Bytes that all members send for a buffer of one byte. */
static double sent(enum dtp_algo algo, enum dtp_collective kind, int n, int per_node,
                   int *repeats) {
    struct dtp_step steps[DTP_MAX_STEPS];
    int count = dtp_coll_steps(algo, kind, n, per_node, steps, DTP_MAX_STEPS);
    double sum = 0;
    *repeats = 0;
    CU_ASSERT_FATAL(count >= 0);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < steps[i].repeat; r++) {
            const struct dtp_coll_flow *flow = NULL;
            int flows = dtp_coll_flows(a, &steps[i], r, n, per_node, &flow);
            for (int k = 0; k < flows; k++) {
                CU_ASSERT(flow[k].src >= 0 && flow[k].src < n && flow[k].dst >= 0 &&
                          flow[k].dst < n);
                sum += flow[k].fraction;
            }
            ++*repeats;
        }
    return sum;
}

static void expect(enum dtp_algo algo, enum dtp_collective kind, int n, double bytes, int repeats) {
    int counted = 0;
    CU_ASSERT(near(sent(algo, kind, n, 1, &counted), bytes, EXACT));
    CU_ASSERT_EQUAL(counted, repeats);
}

static void test_step_counts(void) {
    const int n = 16;
    const double n1 = n - 1;
    expect(DTP_ALGO_RING, DTP_ALL_REDUCE, n, 2 * n1, 2 * (n - 1));
    expect(DTP_ALGO_RING, DTP_ALL_GATHER, n, n1, n - 1);
    expect(DTP_ALGO_RECURSIVE_DOUBLING, DTP_ALL_REDUCE, n, n * LOG2_16, LOG2_16);
    expect(DTP_ALGO_HALVING_DOUBLING, DTP_ALL_REDUCE, n, 2 * n1, 2 * LOG2_16);
    expect(DTP_ALGO_HALVING_DOUBLING, DTP_REDUCE_SCATTER, n, n1, LOG2_16);
    expect(DTP_ALGO_TREE, DTP_ALL_REDUCE, n, 2 * n1, 2 * LOG2_16);
    expect(DTP_ALGO_DOUBLE_TREE, DTP_ALL_REDUCE, n, 2 * n1, 2 * LOG2_16);
    expect(DTP_ALGO_PARAMETER_SERVER, DTP_ALL_REDUCE, n, 2 * n1, 2);
    expect(DTP_ALGO_SEQUENTIAL, DTP_ALL_REDUCE, n, 2 * n1, 2 * (n - 1));
    expect(DTP_ALGO_NAIVE, DTP_ALL_REDUCE, n, n * n1, 1);
    expect(DTP_ALGO_NAIVE, DTP_ALL_TO_ALL, n, n1, 1);
    expect(DTP_ALGO_PAIRWISE, DTP_ALL_TO_ALL, n, n1, n - 1);
    expect(DTP_ALGO_TREE, DTP_BROADCAST, n, n1, LOG2_16);
    /* 11 = 8 + 3: three fold in and out */
    expect(DTP_ALGO_RECURSIVE_DOUBLING, DTP_ALL_REDUCE, 11, 8 * 3 + 2 * 3, 3 + 2);
    expect(DTP_ALGO_HALVING_DOUBLING, DTP_ALL_REDUCE, 11, 2 * 7 + 2 * 3, 2 * 3 + 2);
    int repeats = 0;
    /* 4 nodes of 4: 3/4 of the buffer inside, twice; across 2 (4-1) of 1/16 for each of 16 */
    CU_ASSERT(near(sent(DTP_ALGO_HIERARCHICAL, DTP_ALL_REDUCE, 16, 4, &repeats),
                   16 * (2 * 3 / 4.0 + 2 * 3 / 16.0), EXACT));
    CU_ASSERT_EQUAL(repeats, 3 + 6 + 3);
    /* rings over nodes: as many bytes, split over the members of a node */
    CU_ASSERT(near(sent(DTP_ALGO_RING, DTP_ALL_REDUCE, 16, 4, &repeats), 2 * n1, EXACT));
}

/* Every rank's data reaches every rank: who knows whose contribution, step by step. */
static void check_all_reduce_spreads(enum dtp_algo algo, int n, int per_node) {
    struct dtp_step steps[DTP_MAX_STEPS];
    uint64_t knows[32], after[32];
    int count = dtp_coll_steps(algo, DTP_ALL_REDUCE, n, per_node, steps, DTP_MAX_STEPS);
    CU_ASSERT_FATAL(count > 0);
    for (int i = 0; i < n; i++)
        knows[i] = (uint64_t)1 << i;
    for (int i = 0; i < count; i++)
        for (int r = 0; r < steps[i].repeat; r++) {
            const struct dtp_coll_flow *flow = NULL;
            int flows = dtp_coll_flows(a, &steps[i], r, n, per_node, &flow);
            memcpy(after, knows, sizeof after);
            for (int k = 0; k < flows; k++)
                after[flow[k].dst] |= knows[flow[k].src];
            memcpy(knows, after, sizeof knows);
        }
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL(knows[i], ((uint64_t)1 << n) - 1);
}

static void test_spreads(void) {
    static const enum dtp_algo algos[] = {DTP_ALGO_RING,
                                          DTP_ALGO_RECURSIVE_DOUBLING,
                                          DTP_ALGO_HALVING_DOUBLING,
                                          DTP_ALGO_TREE,
                                          DTP_ALGO_DOUBLE_TREE,
                                          DTP_ALGO_PARAMETER_SERVER,
                                          DTP_ALGO_SEQUENTIAL,
                                          DTP_ALGO_NAIVE};
    for (int n = 2; n <= 17; n++)
        for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
            check_all_reduce_spreads(algos[i], n, 1);
    check_all_reduce_spreads(DTP_ALGO_HIERARCHICAL, 12, 4);
    check_all_reduce_spreads(DTP_ALGO_RING, 12, 4);
}

/* ---- costs ---- */

static const struct dtp_group_shape in_node = {
    .size = 8, .nodes = 1, .per_node = 8, .siblings = 1, .tier = -1};

static double cost_s(const struct dtp_cluster *c, enum dtp_collective kind,
                     const struct dtp_group_shape *s, double bytes) {
    struct dtp_coll_cost cost;
    dtp_coll_cost(c, kind, DTP_ALGO_AUTO, s, bytes, &cost);
    return cost.time_s;
}

static void test_megatron_figures(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_coll_cost cost;
    /* NVLink ring of 8 A100: busbw 232 GB/s / (1 + 13 MB / bytes) */
    for (double bytes = 16 * MB; bytes <= 1024 * MB; bytes *= 2) {
        double t = 2 * 7 / 8.0 * bytes / (232 * DTP_GIGA / (1 + 13 * MB / bytes));
        CU_ASSERT(near(cost_s(&c, DTP_ALL_REDUCE, &in_node, bytes), t, 0.12));
    }
    /* InfiniBand 21.5 GB/s and 30 us */
    dtp_p2p_cost(&c, 0, 8, 1, 100 * MB, &cost);
    CU_ASSERT(near(cost.time_s, 30e-6 + 100 * MB / (21.5 * DTP_GIGA), 1e-3));
    dtp_p2p_cost(&c, 0, 8, 2, 100 * MB, &cost); /* two messages through one NIC of 24 GB/s */
    CU_ASSERT(near(cost.time_s, 30e-6 + 100 * MB / (12 * DTP_GIGA), 1e-3));
    dtp_p2p_cost(&c, 0, 0, 1, MB, &cost);
    CU_ASSERT_EQUAL(cost.time_s, 0);
}

static void test_nothing_to_do(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape one = {.size = 1, .nodes = 1, .per_node = 1, .siblings = 1, .tier = -1};
    CU_ASSERT_EQUAL(cost_s(&c, DTP_ALL_REDUCE, &one, MB), 0);
    CU_ASSERT_EQUAL(cost_s(&c, DTP_ALL_REDUCE, &in_node, 0), 0);
}

/* Gathers never profit from the switch's sum: 361 against 480 GB/s on H200. */
static void test_gathers_stay_on_ring(void) {
    struct dtp_cluster c = load("h200");
    const double bytes = 8 * DTP_GIGA;
    double reduce = 2 * 7 / 8.0 * bytes / cost_s(&c, DTP_ALL_REDUCE, &in_node, bytes);
    double gather = 7 / 8.0 * bytes / cost_s(&c, DTP_ALL_GATHER, &in_node, bytes);
    double scatter = 7 / 8.0 * bytes / cost_s(&c, DTP_REDUCE_SCATTER, &in_node, bytes);
    CU_ASSERT(near(reduce, 480 * DTP_GIGA, 0.05));
    CU_ASSERT(near(gather, 361 * DTP_GIGA, 0.08));
    CU_ASSERT(near(scatter, 363 * DTP_GIGA, 0.08));
    struct dtp_coll_cost cost;
    dtp_coll_cost(&c, DTP_ALL_GATHER, DTP_ALGO_AUTO, &in_node, bytes, &cost);
    CU_ASSERT_EQUAL(cost.algo, DTP_ALGO_RING);
    dtp_coll_cost(&c, DTP_ALL_REDUCE, DTP_ALGO_AUTO, &in_node, bytes, &cost);
    CU_ASSERT_EQUAL(cost.algo, DTP_ALGO_NVLS);
}

/* Bytes of the busiest port and NIC (of 8) for a buffer of one byte, on one node of 8 and on two. */
static void test_wires(void) {
    static const struct {
        enum dtp_collective kind;
        double port[2], nic;
    } wires[] = {{DTP_ALL_REDUCE, {2 * 7 / 8.0, 2 * 15 / 16.0}, 2 * 15 / 16.0 / 8},
                 {DTP_ALL_GATHER, {7 / 8.0, 15 / 16.0}, 15 / 16.0 / 8},
                 {DTP_ALL_TO_ALL, {7 / 8.0, 7 / 16.0}, 8 * 8 / 16.0 / 8},
                 {DTP_BROADCAST, {1, 1}, 1}};
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape two = {
        .size = 16, .nodes = 2, .per_node = 8, .nics = 8, .siblings = 1, .tier = 0};
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            struct dtp_coll_cost k;
            dtp_coll_cost(&c, wires[i].kind, DTP_ALGO_AUTO, nodes > 1 ? &two : &in_node, MB, &k);
            CU_ASSERT(near(k.nvlink_bytes, wires[i].port[nodes - 1] * MB, EXACT));
            CU_ASSERT(near(k.nic_bytes, nodes > 1 ? wires[i].nic * MB : 0, EXACT));
        }
}

/* A curve of n GPUs that takes time_s whatever the bytes, from `least` bytes on. */
static struct dtp_curve flat_curve(const struct dtp_cluster *c, int n, double time_s,
                                   double least_bytes) {
    struct dtp_curve k = {.collective = DTP_ALL_GATHER,
                          .gpus = n,
                          .nodes = 1,
                          .a_s = time_s,
                          .min_bytes = least_bytes,
                          .max_bytes = DTP_TERA,
                          .source = "flat"};
    dtp_curve_terms(c, &k);
    return k;
}

/* Curves of 2 and 8 GPUs say of 4, which is as far from both by its logarithm, the mean of what each says:
 * its time by the ratio of the latencies. Below the bytes that a curve was measured at the model's shape holds. */
static void test_between_curves(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape four = in_node;
    four.size = four.per_node = 4;
    struct dtp_nccl_terms t;
    dtp_coll_terms(&c, DTP_ALL_GATHER, &four, &t);
    CU_ASSERT_FATAL(t.n == 1);
    struct dtp_curve two[] = {flat_curve(&c, 2, 1, 1), flat_curve(&c, 8, 3, 1)};
    c.curve = two;
    c.ncurves = 2;
    double lat_s = t.at[0].lat_s, from_2 = lat_s / two[0].term[0].lat_s,
           from_8 = lat_s / two[1].term[0].lat_s;
    CU_ASSERT(near(cost_s(&c, DTP_ALL_GATHER, &four, MB), (from_2 * 1 + from_8 * 3) / 2, EXACT));
    two[0] = flat_curve(&c, 8, 3, DTP_GIGA);
    c.ncurves = 1;
    const struct dtp_nccl_correction *f = dtp_nccl_correction_for(&c, DTP_ALL_GATHER, 1, false);
    double g = two[0].term[0].s_per_byte, lat_8 = two[0].term[0].lat_s;
    double there = MB * t.at[0].s_per_byte / g / from_8, known = DTP_GIGA;
    double model_there =
        f->latency * lat_8 + f->mixed * sqrt(lat_8 * g * there) + f->bandwidth * g * there;
    double model_known =
        f->latency * lat_8 + f->mixed * sqrt(lat_8 * g * known) + f->bandwidth * g * known;
    CU_ASSERT(
        near(cost_s(&c, DTP_ALL_GATHER, &four, MB), from_8 * 3 * model_there / model_known, EXACT));
}

/* Eight rings, one for each GPU index, through eight NICs or through four. */
static void test_sharing(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape s = {
        .size = 8, .nodes = 8, .per_node = 1, .nics = 1, .siblings = 1, .tier = 0};
    double own = cost_s(&c, DTP_ALL_REDUCE, &s, DTP_GIGA);
    CU_ASSERT(own > 2 * 7 / 8.0 * DTP_GIGA / (25 * DTP_GIGA));
    CU_ASSERT(own < 1.15 * 2 * 7 / 8.0 * DTP_GIGA / (24 * DTP_GIGA));
    s.siblings = 2;
    CU_ASSERT(near(cost_s(&c, DTP_ALL_REDUCE, &s, DTP_GIGA), 2 * own, 0.03));
}

/* All shapes of a few machines: monotone in bytes, latency a part, source named. */
static void test_monotone(void) {
    static const char *const names[] = {"v100",    "summit",   "a100",         "h100",
                                        "h200",    "gb200",    "alcf-polaris", "pcie-gen4",
                                        "aws-p4d", "dgx-b200", "gcp-a3-mega"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dtp_cluster c = load(names[i]);
        for (int kind = 0; kind < DTP_NCOLLECTIVES; kind++)
            for (int p = 1; p <= c.node.gpus; p *= 2)
                for (int nodes = 1; nodes <= 256; nodes *= 4) {
                    struct dtp_group_shape s = {.size = p * nodes,
                                                .nodes = nodes,
                                                .per_node = p,
                                                .siblings = 1,
                                                .tier = nodes > 1 ? 0 : -1};
                    s.nics = nodes < 2 ? 0 : p < c.node.nics ? p : c.node.nics;
                    double last = 0;
                    for (double bytes = 64; bytes < 20 * DTP_GIGA; bytes *= 1.3) {
                        struct dtp_coll_cost k;
                        if (p * nodes < 2)
                            continue;
                        dtp_coll_cost(&c, (enum dtp_collective)kind, DTP_ALGO_AUTO, &s, bytes, &k);
                        CU_ASSERT(k.time_s >= last * (1 - 1e-9) && k.time_s > 0);
                        CU_ASSERT(k.latency_s >= 0 && k.latency_s <= k.time_s);
                        CU_ASSERT(k.source[0] != '\0');
                        last = k.time_s;
                    }
                }
    }
}

/* ---- uses ---- */

static struct dtp_group_shape shape_of(const struct dtp_cluster *c, int size, int stride) {
    struct dtp_placement p;
    struct dtp_err err = {0};
    struct dtp_sizes sizes = {stride, 1, size, 1, 1};
    CU_ASSERT_EQUAL_FATAL(dtp_placement_init(&p, c, &sizes, "tp-cp-dp-pp", &err), DTP_OK);
    struct dtp_group_shape s = dtp_placement_shape(&p, c, DTP_AXIS_DP, 0);
    s.siblings = 1;
    return s;
}

/* The busiest link lets the flow end when its cost says: work at capacity <= time - latency. */
static void check_uses(const struct dtp_cluster *c, enum dtp_collective kind, int size,
                       int stride) {
    struct dtp_coll_call call = {kind, DTP_ALGO_AUTO, {0, stride, size}, size * stride};
    const struct dtp_use *use = NULL;
    uint32_t n = dtp_coll_uses(a, c, &call, &use);
    struct dtp_group_shape s = shape_of(c, size, stride);
    double worst = 0;
    CU_ASSERT(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        double w = use[i].weight / dtp_cluster_link_capacity(c, call.ngpus, use[i].resource);
        worst = w > worst ? w : worst;
        CU_ASSERT(i == 0 || use[i].resource > use[i - 1].resource);
    }
    for (double bytes = 1 * MB; bytes < 10 * DTP_GIGA; bytes *= 7) {
        struct dtp_coll_cost k;
        dtp_coll_cost(c, kind, DTP_ALGO_AUTO, &s, bytes, &k);
        CU_ASSERT(worst * bytes <= (k.time_s - k.latency_s) * (1 + 1e-9));
    }
}

static void test_uses(void) {
    static const char *const names[] = {"a100",         "h100",   "h200",  "jeanzay-a100",
                                        "alcf-polaris", "aws-p5", "gb200", "dgx-b200",
                                        "gcp-a3-mega",  "dgx-2"};
    static const enum dtp_collective kinds[] = {DTP_ALL_REDUCE, DTP_ALL_GATHER, DTP_REDUCE_SCATTER,
                                                DTP_ALL_TO_ALL, DTP_BROADCAST};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dtp_cluster c = load(names[i]);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int stride = 1; stride <= 8; stride *= 2)
                for (int size = 2; size * stride <= 64; size *= 2)
                    check_uses(&c, kinds[k], size, stride);
    }
}

/* A ring inside a node of switched GPUs: each port carries 2(n-1)/n out and in. */
static void test_ring_weights(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_coll_call call = {DTP_ALL_REDUCE, DTP_ALGO_AUTO, {0, 1, 8}, 8};
    const struct dtp_use *use = NULL;
    CU_ASSERT_EQUAL(dtp_coll_uses(a, &c, &call, &use), 16);
    for (int i = 0; i < 16; i++)
        CU_ASSERT(near(use[i].weight, 2 * 7 / 8.0, EXACT));
    /* over two nodes of 8 all NICs carry the same */
    call.group.size = call.ngpus = 16;
    uint32_t n = dtp_coll_uses(a, &c, &call, &use);
    double nic = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strstr(dtp_cluster_link_name(a, &c, 16, use[i].resource), "nic")) {
            CU_ASSERT(nic <= 0 || near(use[i].weight, nic, EXACT));
            nic = use[i].weight;
        }
    CU_ASSERT(near(nic, 2 * 15 / 16.0 / 8, EXACT));
}

/* A broadcast goes through a chain over each NIC, all from the root: the byte leaves the first node once, in equal
 * parts, or enters it in those whose chain ends there; every port but the last of a chain passes its part on. */
static void test_broadcast_weights(void) {
    struct dtp_cluster c = load("a100");
    for (int kind = DTP_BROADCAST; kind <= DTP_REDUCE; kind++) {
        struct dtp_coll_call call = {(enum dtp_collective)kind, DTP_ALGO_AUTO, {0, 1, 16}, 16};
        const struct dtp_use *use = NULL;
        uint32_t n = dtp_coll_uses(a, &c, &call, &use);
        double nics = 0, most = 0;
        for (uint32_t i = 0; i < n; i++)
            if (strstr(dtp_cluster_link_name(a, &c, 16, use[i].resource), "nic")) {
                nics += use[i].weight;
                most = use[i].weight > most ? use[i].weight : most;
            } else {
                CU_ASSERT(use[i].weight <= 1 + EXACT);
            }
        CU_ASSERT(near(most, 1 / 8.0, EXACT));
        CU_ASSERT(nics > 2 - EXACT && nics <= 4 + EXACT); /* out and in, both ways at most */
    }
    struct dtp_coll_cost one, all;
    struct dtp_group_shape s = shape_of(&c, 16, 1), narrow = s;
    narrow.nics = 1;
    dtp_coll_cost(&c, DTP_BROADCAST, DTP_ALGO_AUTO, &s, DTP_GIGA, &all);
    dtp_coll_cost(&c, DTP_BROADCAST, DTP_ALGO_AUTO, &narrow, DTP_GIGA, &one);
    CU_ASSERT(all.time_s < one.time_s / 4);
}

/* An exchange loses and makes no bytes: what leaves the nodes enters others, of every rank the share of those
 * elsewhere, however the group lies (that of experts inside a stage has a stride of etp). */
static void test_exchange_bytes(void) {
    static const char *const names[] = {"a100", "h100", "alcf-polaris", "aws-p5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dtp_cluster c = load(names[i]);
        for (int stride = 1; stride <= 8; stride *= 2)
            for (int size = 2; size * stride <= 128; size *= 2) {
                struct dtp_coll_call call = {
                    DTP_ALL_TO_ALL, DTP_ALGO_AUTO, {0, stride, size}, size * stride};
                const struct dtp_use *use = NULL;
                uint32_t n = dtp_coll_uses(a, &c, &call, &use);
                double nics = 0;
                for (uint32_t k = 0; k < n; k++)
                    if (strstr(dtp_cluster_link_name(a, &c, call.ngpus, use[k].resource), "nic"))
                        nics += use[k].weight;
                int here = c.node.gpus / stride > 0 ? c.node.gpus / stride : 1;
                double elsewhere = size > here ? size - here : 0;
                CU_ASSERT(near(nics, 2 * elsewhere, EXACT) || (nics <= 0 && elsewhere <= 0));
            }
    }
}

/* The triplets of Summit meet over the link between the sockets. */
static void test_summit(void) {
    struct dtp_cluster c = load("summit");
    struct dtp_group_shape s = {.size = 6, .nodes = 1, .per_node = 6, .siblings = 1, .tier = -1};
    double busbw = 2 * 5 / 6.0 * DTP_GIGA / cost_s(&c, DTP_ALL_REDUCE, &s, DTP_GIGA);
    CU_ASSERT(busbw < 32 * DTP_GIGA && busbw > 25 * DTP_GIGA);
    s.size = s.per_node = 3; /* 2 + 2 links of 25 GB/s */
    busbw = 2 * 2 / 3.0 * DTP_GIGA / cost_s(&c, DTP_ALL_REDUCE, &s, DTP_GIGA);
    CU_ASSERT(busbw < 100 * DTP_GIGA && busbw > 80 * DTP_GIGA);
}

/* By shape and on the real routes: the same closed form, on switched nodes. */
static void test_closed_form(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_err err = {0};
    c.rail_optimised = false;
    for (int algo = DTP_ALGO_RECURSIVE_DOUBLING; algo < DTP_NALGOS; algo++)
        for (int kind = 0; kind < DTP_NCOLLECTIVES; kind++)
            for (int size = 2; size <= 64; size *= 2) {
                double t = 0;
                struct dtp_coll_cost k;
                struct dtp_group_shape s = shape_of(&c, size, 1);
                struct dtp_coll_call call = {
                    (enum dtp_collective)kind, (enum dtp_algo)algo, {0, 1, size}, size};
                if (algo == DTP_ALGO_TREE || algo == DTP_ALGO_DOUBLE_TREE)
                    continue; /* by shape their sharing of a NIC is the worst case */
                if (dtp_coll_time_on_routes(a, &c, &call, 64 * MB, &t, &err) != DTP_OK)
                    continue;
                dtp_coll_cost(&c, call.kind, call.algo, &s, 64 * MB, &k);
                if (strcmp(k.source, "steps") != 0 || k.algo != call.algo)
                    continue;
                if (!near(k.time_s, t, 1e-9))
                    printf("%s %s %d: %g by shape, %g on routes\n", dtp_algo_names[algo],
                           dtp_collective_names[kind], size, k.time_s, t);
                CU_ASSERT(near(k.time_s, t, 1e-9));
            }
}

int main(void) {
    CU_TestInfo tests[] = {{"steps: counts and bytes", test_step_counts},
                           {"steps: every contribution arrives", test_spreads},
                           {"figures of DGX A100", test_megatron_figures},
                           {"one rank, no bytes", test_nothing_to_do},
                           {"gathers stay on ring", test_gathers_stay_on_ring},
                           {"bytes of ports and NICs", test_wires},
                           {"between curves and below them", test_between_curves},
                           {"groups share NICs", test_sharing},
                           {"costs grow with bytes", test_monotone},
                           {"uses end with the cost", test_uses},
                           {"weights of rings", test_ring_weights},
                           {"weights of broadcasts", test_broadcast_weights},
                           {"an exchange keeps its bytes", test_exchange_bytes},
                           {"Summit's triplets", test_summit},
                           {"closed form by shape and on routes", test_closed_form},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"collective", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
