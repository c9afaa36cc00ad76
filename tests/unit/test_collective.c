/* Collectives: step lists and their wire bytes, link uses, the closed form on real routes. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/units.h"
#include "tests/cluster_routes.h"
#include "tests/cluster_case.h"
#include "tests/near.h"
#include "tests/suites.h"

#define MB DTP_MEGA
#define EXACT 1e-12
#define LOG2_16 4

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
    CU_ASSERT(is_near(sent(algo, kind, n, 1, &counted), bytes, EXACT));
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
    CU_ASSERT(is_near(sent(DTP_ALGO_HIERARCHICAL, DTP_ALL_REDUCE, 16, 4, &repeats),
                      16 * (2 * 3 / 4.0 + 2 * 3 / 16.0), EXACT));
    CU_ASSERT_EQUAL(repeats, 3 + 6 + 3);
    /* rings over nodes: as many bytes, split over the members of a node */
    CU_ASSERT(is_near(sent(DTP_ALGO_RING, DTP_ALL_REDUCE, 16, 4, &repeats), 2 * n1, EXACT));
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
        CU_ASSERT(is_near(use[i].weight, 2 * 7 / 8.0, EXACT));
    /* over two nodes of 8 all NICs carry the same */
    call.group.size = call.ngpus = 16;
    uint32_t n = dtp_coll_uses(a, &c, &call, &use);
    double nic = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strstr(link_name(a, &c, 16, use[i].resource), "nic")) {
            CU_ASSERT(nic <= 0 || is_near(use[i].weight, nic, EXACT));
            nic = use[i].weight;
        }
    CU_ASSERT(is_near(nic, 2 * 15 / 16.0 / 8, EXACT));
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
            if (strstr(link_name(a, &c, 16, use[i].resource), "nic")) {
                nics += use[i].weight;
                most = use[i].weight > most ? use[i].weight : most;
            } else {
                CU_ASSERT(use[i].weight <= 1 + EXACT);
            }
        CU_ASSERT(is_near(most, 1 / 8.0, EXACT));
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
                    if (strstr(link_name(a, &c, call.ngpus, use[k].resource), "nic"))
                        nics += use[k].weight;
                int here = c.node.gpus / stride > 0 ? c.node.gpus / stride : 1;
                double elsewhere = size > here ? size - here : 0;
                CU_ASSERT(is_near(nics, 2 * elsewhere, EXACT) || (nics <= 0 && elsewhere <= 0));
            }
    }
}

/* By shape and on the real routes: the same closed form, on switched nodes. */
static void test_closed_form(void) {
    struct dtp_cluster c = load("a100");
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
                if (!time_on_routes(a, &c, &call, 64 * MB, &t))
                    continue;
                dtp_coll_cost(&c, call.kind, call.algo, &s, 64 * MB, &k);
                if (strcmp(k.source, "steps") != 0 || k.algo != call.algo)
                    continue;
                if (!is_near(k.time_s, t, 1e-9))
                    printf("%s %s %d: %g by shape, %g on routes\n", dtp_algo_names[algo],
                           dtp_collective_names[kind], size, k.time_s, t);
                CU_ASSERT(is_near(k.time_s, t, 1e-9));
            }
}

int main(void) {
    CU_TestInfo tests[] = {{"steps: counts and bytes", test_step_counts},
                           {"steps: every contribution arrives", test_spreads},
                           {"uses end with the cost", test_uses},
                           {"weights of rings", test_ring_weights},
                           {"weights of broadcasts", test_broadcast_weights},
                           {"an exchange keeps its bytes", test_exchange_bytes},
                           {"closed form by shape and on routes", test_closed_form},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"collective", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
