/* NCCL's model: hand-computed cases, choices by size, and an independent computation of its tuning
 * code for measured machines (tests/fixtures/hw/nccl_estimates.csv). */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hw/nccl.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "tests/cluster_case.h"
#include "tests/suites.h"

#define PREDICTIONS "tests/fixtures/hw/nccl_estimates.csv"

static struct dtp_group_shape whole_nodes(const struct dtp_cluster *c, int nodes) {
    return (struct dtp_group_shape){.size = nodes * c->node.gpus,
                                    .nodes = nodes,
                                    .per_node = c->node.gpus,
                                    .nics = nodes > 1 ? c->node.nics : 0,
                                    .siblings = 1,
                                    .tier = nodes > 1 ? 0 : -1};
}

static struct dtp_nccl_choice choose(const struct dtp_cluster *c, enum dtp_collective kind,
                                     int nodes, double bytes) {
    struct dtp_nccl_choice choice;
    struct dtp_group_shape s = whole_nodes(c, nodes);
    CU_ASSERT_FATAL(dtp_nccl_choose(c, kind, &s, bytes, &choice));
    return choice;
}

static void test_by_hand(void) {
    struct dtp_cluster c = load("a100");
    /* ring, LL, 8 GPUs: 6.6 us + 14 hops of 0.6 us; all-gather 7 hops */
    CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_REDUCE, 1, 8).time_s, 15.0e-6, 1e-8);
    CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_GATHER, 1, 8).time_s, 10.8e-6, 1e-8);
    /* two nodes: tree, LL: 6.8 + 2 (7 x 0.6 + 5 + the fabric's 3.0) */
    double fabric = c.node.nic_latency_s + c.tier[0].latency_s;
    CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_REDUCE, 2, 8).time_s,
                           6.8e-6 + 2 * (7 * 0.6e-6 + 5e-6 + fabric), 1e-9);
}

/* Two channels a card of 25 GB/s, four a card of 50, 16 at most; inside a node what NVLink takes. */
static void test_channels(void) {
    static const struct {
        const char *cluster;
        int nodes, nics, channels;
    } cases[] = {{"a100", 1, 0, 24},     {"a100", 2, 1, 2},      {"a100", 4, 4, 8},
                 {"a100", 2, 8, 16},     {"hgx-h100", 1, 0, 24}, {"hgx-h100", 2, 1, 4},
                 {"hgx-h100", 48, 2, 8}, {"hgx-h100", 2, 8, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_cluster c = load(cases[i].cluster);
        struct dtp_group_shape s = {.nodes = cases[i].nodes, .nics = cases[i].nics};
        CU_ASSERT_EQUAL(dtp_nccl_channels(&c, &s), cases[i].channels);
    }
}

/* Cards in pairs: 0.8 of four links of 14.06 GB/s inside a pair, what PCIe gives in a larger ring and for
 * a send, which may leave the pair. */
static void test_bridges(void) {
    static const char *const clusters[] = {"a40-nvlink", "rtx-a6000-nvlink", "rtx3090-nvlink"};
    static const double pcie_bytes_per_s[] = {24e9, 24e9, 12e9};
    for (int i = 0; i < 3; i++) {
        struct dtp_cluster c = load(clusters[i]);
        struct dtp_group_shape s = {.size = 2, .nodes = 1, .per_node = 2, .siblings = 1};
        CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &s), 45e9, 1);
        s.size = s.per_node = 4;
        CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &s), pcie_bytes_per_s[i], 1);
        struct dtp_coll_cost send;
        dtp_p2p_cost(&c, 1, 2, 1, 1e9, &send);
        CU_ASSERT_DOUBLE_EQUAL(1e9 / send.time_s / pcie_bytes_per_s[i], 1, 0.1);
    }
}

static void test_choices(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_nccl_choice small = choose(&c, DTP_ALL_REDUCE, 1, 1024);
    CU_ASSERT(small.algo == DTP_NCCL_RING && small.proto == DTP_PROTO_LL && small.channels == 1);
    struct dtp_nccl_choice large = choose(&c, DTP_ALL_REDUCE, 1, DTP_GIGA);
    CU_ASSERT(large.algo == DTP_NCCL_RING && large.proto == DTP_PROTO_SIMPLE);
    CU_ASSERT_EQUAL(large.channels, c.nccl_model->channels[DTP_NCCL_AMPERE]);
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_REDUCE, 16, 1024).algo, DTP_NCCL_TREE);
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_GATHER, 16, 1024).algo, DTP_NCCL_RING);
    c = load("h100");
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_REDUCE, 1, DTP_GIGA).algo, DTP_NCCL_NVLS);
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_GATHER, 1, DTP_GIGA).algo, DTP_NCCL_RING);
    c.nvls = false;
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_REDUCE, 1, DTP_GIGA).algo, DTP_NCCL_RING);
    c = load("aws-p4d");
    CU_ASSERT_EQUAL(choose(&c, DTP_ALL_REDUCE, 4, 1024).proto, DTP_PROTO_SIMPLE);
    struct dtp_nccl_choice none;
    struct dtp_group_shape s = whole_nodes(&c, 2);
    CU_ASSERT(!dtp_nccl_choose(&c, DTP_ALL_TO_ALL, &s, 1024, &none));
}

/* A millisecond more on the fabric: an all-gather over two nodes crosses it once, and twice (the receiver asks
 * first) by the only protocol of libfabric. */
static void test_fabric(void) {
    for (int simple = 0; simple < 2; simple++) {
        struct dtp_cluster c = load("a100");
        c.simple_only = simple;
        double before_s = choose(&c, DTP_ALL_GATHER, 2, 8).time_s;
        c.tier[0].latency_s += 1e-3;
        CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_GATHER, 2, 8).time_s - before_s,
                               simple ? 2e-3 : 1e-3, 1e-12);
    }
    struct dtp_cluster c = load("a100"); /* what passes a tier of 1 : 3 has a third */
    struct dtp_group_shape s = {
        .size = 8, .nodes = 8, .per_node = 1, .nics = 1, .siblings = 1, .tier = 0};
    double near_rate = dtp_coll_ring_bytes_per_s(&c, &s);
    c.ntiers = 2;
    c.tier[0].oversubscription = 3;
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &s), near_rate, 1);
    s.tier = 1;
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &s), near_rate / 3, 1);
}

/* Small messages' protocol takes half of a ring's bandwidth, and no more than its own limit: an all-gather of 8 sends 7/8.
 * The other protocols are made to start late. */
static void test_small_messages(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_nccl m = *c.nccl_model;
    struct dtp_group_shape s = whole_nodes(&c, 1);
    double half = dtp_coll_ring_bytes_per_s(&c, &s) / 2, bytes = 1e6;
    m.base_s[DTP_NCCL_RING][DTP_PROTO_LL128] = m.base_s[DTP_NCCL_RING][DTP_PROTO_SIMPLE] = 1;
    c.nccl_model = &m;
    for (int limited = 0; limited < 2; limited++) {
        m.ll_max_bytes_per_s[DTP_NCCL_AMPERE][0] = limited ? half / 2 : 10 * half;
        double latency_s = choose(&c, DTP_ALL_GATHER, 1, 1e-6).time_s;
        CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_GATHER, 1, bytes).time_s - latency_s,
                               7.0 / 8 * bytes / (limited ? half / 2 : half), 1e-12);
    }
}

/* Between nodes a hop inside one takes no less than the proxy, three times that by the only protocol of libfabric: a
 * millisecond more in each of the 14 of 15 hops of an all-gather over two nodes that stay inside. */
static void test_proxy(void) {
    for (int simple = 0; simple < 2; simple++) {
        struct dtp_cluster c = load("a100");
        struct dtp_nccl m = *c.nccl_model;
        m.net_overhead_s = 1e-3;
        c.nccl_model = &m;
        c.simple_only = simple;
        double before_s = choose(&c, DTP_ALL_GATHER, 2, 8).time_s;
        m.net_overhead_s = 2e-3;
        CU_ASSERT_DOUBLE_EQUAL(choose(&c, DTP_ALL_GATHER, 2, 8).time_s - before_s,
                               14 * (simple ? 3e-3 : 1e-3), 1e-12);
        CU_ASSERT(choose(&c, DTP_ALL_GATHER, 1, 8).time_s < 1e-3);
    }
}

/* GPUs behind one PCIe switch need no host bridge, one more does. */
static void test_pcie(void) {
    struct dtp_cluster c = load("pcie-gen4");
    struct dtp_group_shape s = {.nodes = 1, .siblings = 1, .tier = -1};
    CU_ASSERT_FATAL(c.node.intra == DTP_INTRA_PCIE && c.node.pcie_gpus_per_switch > 1);
    c.node.host_link_bytes_per_s = 1e3;
    s.size = s.per_node = c.node.pcie_gpus_per_switch;
    CU_ASSERT(dtp_coll_ring_bytes_per_s(&c, &s) > 1e9);
    s.size = s.per_node = c.node.pcie_gpus_per_switch + 1;
    CU_ASSERT(dtp_coll_ring_bytes_per_s(&c, &s) <= 1e3);
}

/* Rows of which the machine is known here. */
static const char *cluster_of(const char *label, int *nodes, enum dtp_collective *kind) {
    *nodes = 1;
    *kind = DTP_ALL_REDUCE;
    if (strstr(label, "V100x8"))
        return "dgx-1v";
    if (strstr(label, "A100x8"))
        return "dgx-a100-80";
    if (strstr(label, "H100x8"))
        return "hgx-h100";
    if (strncmp(label, "DGXA100 ", 8) == 0) {
        *nodes = atoi(label + 8) / 8;
        return "dgx-a100-80";
    }
    if (strncmp(label, "DGXH100 ", 8) == 0) {
        *nodes = atoi(label + 8) / 8;
        return "dgx-h100";
    }
    return NULL;
}

/* Rings of two of a node's eight GPUs that end at a NIC they are not next to share a node's rate: a quarter. */
static void test_far_rings(void) {
    struct dtp_cluster c = load("a100-4x200");
    struct dtp_group_shape far = {
        .size = 32, .nodes = 16, .per_node = 2, .nics = 2, .siblings = 2, .tier = 0};
    struct dtp_group_shape alone = far, whole = whole_nodes(&c, 16);
    alone.per_node = alone.nics = 1; /* tp 8: in and out at one GPU */
    CU_ASSERT(c.node.far_nic_bytes_per_s > 0);
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &far), c.node.far_nic_bytes_per_s / 4, 1);
    double alone_s = dtp_coll_ring_bytes_per_s(&c, &alone);
    double whole_s = dtp_coll_ring_bytes_per_s(&c, &whole);
    c.node.far_nic_bytes_per_s = 0;
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &far), 2 * alone_s, 1);
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &alone), alone_s, 1);
    CU_ASSERT_DOUBLE_EQUAL(dtp_coll_ring_bytes_per_s(&c, &whole), whole_s, 1);
}

/* Only the fabric's latency and the channel search are ours: the estimates are near each other. */
static void test_independent(void) {
    struct dtp_csv csv;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_csv_read_file(a, PREDICTIONS, &csv, &err), DTP_OK);
    int label = dtp_csv_col(&csv, "case"), bytes = dtp_csv_col(&csv, "bytes");
    int time = dtp_csv_col(&csv, "pred_us"), rows = 0, close = 0;
    double sum = 0;
    for (size_t r = 0; r < csv.nrows; r++) {
        int nodes = 1;
        enum dtp_collective kind;
        const char *name = cluster_of(dtp_csv_get(&csv, r, label), &nodes, &kind);
        if (!name)
            continue;
        struct dtp_cluster c = load(name);
        c.node.nic_latency_s = c.tier[0].latency_s = 0; /* NCCL counts none for InfiniBand */
        struct dtp_nccl_choice k = choose(&c, kind, nodes, atof(dtp_csv_get(&csv, r, bytes)));
        double e = fabs(k.time_s / (atof(dtp_csv_get(&csv, r, time)) * DTP_MICRO) - 1);
        sum += e;
        close += e < 0.2;
        rows++;
    }
    printf("NCCL's estimates: %d rows, mean difference %.1f %%, %d within 20 %%\n", rows,
           100 * sum / rows, close);
    CU_ASSERT(rows >= 20);
    CU_ASSERT(sum / rows < 0.1);
}

int main(void) {
    CU_TestInfo tests[] = {{"latencies by hand", test_by_hand},
                           {"choices by size and machine", test_choices},
                           {"bridges", test_bridges},
                           {"channels", test_channels},
                           {"rings through far NICs", test_far_rings},
                           {"latency and tiers of the fabric", test_fabric},
                           {"small messages", test_small_messages},
                           {"the proxy between nodes", test_proxy},
                           {"PCIe switches", test_pcie},
                           {"against an independent computation", test_independent},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"nccl", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
