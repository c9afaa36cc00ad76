/* What collectives cost: published figures, curves and what lies between them, bytes of the wires. */
#include <CUnit/Basic.h>
#include <math.h>

#include "hw/cluster_internal.h"
#include "hw/collective_internal.h"
#include "sim/base/units.h"
#include "tests/cluster_case.h"
#include "tests/near.h"
#include "tests/suites.h"

#define MB DTP_MEGA
#define EXACT 1e-12

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
        CU_ASSERT(is_near(cost_s(&c, DTP_ALL_REDUCE, &in_node, bytes), t, 0.12));
    }
    /* InfiniBand 21.5 GB/s and 30 us */
    dtp_p2p_cost(&c, 0, 8, 1, 100 * MB, &cost);
    CU_ASSERT(is_near(cost.time_s, 30e-6 + 100 * MB / (21.5 * DTP_GIGA), 1e-3));
    dtp_p2p_cost(&c, 0, 8, 2, 100 * MB, &cost); /* two messages through one NIC of 24 GB/s */
    CU_ASSERT(is_near(cost.time_s, 30e-6 + 100 * MB / (12 * DTP_GIGA), 1e-3));
    dtp_p2p_cost(&c, 0, 0, 1, MB, &cost);
    CU_ASSERT_EQUAL(cost.time_s, 0);
}

static void test_nothing_to_do(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape one = {.size = 1, .nodes = 1, .per_node = 1, .siblings = 1, .tier = -1};
    CU_ASSERT_EQUAL(cost_s(&c, DTP_ALL_REDUCE, &one, MB), 0);
    CU_ASSERT_EQUAL(cost_s(&c, DTP_ALL_REDUCE, &in_node, 0), 0);
}

/* SHARP: 64 H100 as CoreWeave published them, 4 to 16 % less than without. Nothing else changes, other groups gain,
 * too, and none is above the 480 GB/s that NVIDIA shows as the most (GTC 25, S72583). */
static void test_switch_sums(void) {
    static const double published[][2] = {
        {512, 2984.6}, {1024, 5808}, {2048, 11163}, {4096, 22181}, {8192, 43980}}; /* MiB, us */
    struct dtp_cluster with = load("hgx-h100-sharp"), without = load("hgx-h100");
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct dtp_group_shape s = {
            .size = 64, .nodes = 8, .per_node = 8, .nics = 8, .siblings = 1, .tier = 0};
        double bytes = published[i][0] * DTP_MIB, t = cost_s(&with, DTP_ALL_REDUCE, &s, bytes);
        double plain = cost_s(&without, DTP_ALL_REDUCE, &s, bytes);
        CU_ASSERT(is_near(t, published[i][1] * DTP_MICRO, 0.01));
        CU_ASSERT(t < 0.96 * plain && t > 0.84 * plain);
        CU_ASSERT(cost_s(&with, DTP_ALL_GATHER, &s, bytes) ==
                  cost_s(&without, DTP_ALL_GATHER, &s, bytes));
        CU_ASSERT(cost_s(&with, DTP_ALL_REDUCE, &in_node, bytes) ==
                  cost_s(&without, DTP_ALL_REDUCE, &in_node, bytes));
        for (s.nodes = 4; s.nodes <= 256; s.nodes *= 2) {
            s.size = 8 * s.nodes;
            t = cost_s(&with, DTP_ALL_REDUCE, &s, bytes);
            double busbw = dtp_busbw_factor(DTP_ALL_REDUCE, s.size) * bytes / t;
            CU_ASSERT(busbw < 480 * DTP_GIGA);
            CU_ASSERT(t < cost_s(&without, DTP_ALL_REDUCE, &s, bytes));
        }
    }
}

/* Gathers never profit from the switch's sum: 361 against 480 GB/s on H200. */
static void test_gathers_stay_on_ring(void) {
    struct dtp_cluster c = load("h200");
    const double bytes = 8 * DTP_GIGA;
    double reduce = 2 * 7 / 8.0 * bytes / cost_s(&c, DTP_ALL_REDUCE, &in_node, bytes);
    double gather = 7 / 8.0 * bytes / cost_s(&c, DTP_ALL_GATHER, &in_node, bytes);
    double scatter = 7 / 8.0 * bytes / cost_s(&c, DTP_REDUCE_SCATTER, &in_node, bytes);
    CU_ASSERT(is_near(reduce, 480 * DTP_GIGA, 0.05));
    CU_ASSERT(is_near(gather, 361 * DTP_GIGA, 0.08));
    CU_ASSERT(is_near(scatter, 363 * DTP_GIGA, 0.08));
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
                 {DTP_BROADCAST, {1, 1}, 1 / 8.0}};
    struct dtp_cluster c = load("a100");
    struct dtp_group_shape two = {
        .size = 16, .nodes = 2, .per_node = 8, .nics = 8, .siblings = 1, .tier = 0};
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            struct dtp_coll_cost k;
            dtp_coll_cost(&c, wires[i].kind, DTP_ALGO_AUTO, nodes > 1 ? &two : &in_node, MB, &k);
            CU_ASSERT(is_near(k.nvlink_bytes, wires[i].port[nodes - 1] * MB, EXACT));
            CU_ASSERT(is_near(k.nic_bytes, nodes > 1 ? wires[i].nic * MB : 0, EXACT));
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
 * its time by the ratio of the latencies; of 6 a quarter of the one and the rest of the other. Below the bytes that a curve was measured at the model's shape holds. */
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
    CU_ASSERT(is_near(cost_s(&c, DTP_ALL_GATHER, &four, MB), (from_2 * 1 + from_8 * 3) / 2, EXACT));
    struct dtp_group_shape six = in_node; /* half of the way from 4 to 8 */
    six.size = six.per_node = 6;
    dtp_coll_terms(&c, DTP_ALL_GATHER, &six, &t);
    CU_ASSERT(is_near(cost_s(&c, DTP_ALL_GATHER, &six, MB),
                      t.at[0].lat_s / lat_s * (from_2 * 1 / 4 + from_8 * 3 * 3 / 4), EXACT));
    dtp_coll_terms(&c, DTP_ALL_GATHER, &four, &t);
    two[0] = flat_curve(&c, 8, 3, DTP_GIGA);
    c.ncurves = 1;
    const struct dtp_nccl_correction *f = dtp_nccl_correction_for(&c, DTP_ALL_GATHER, 1, false);
    double g = two[0].term[0].s_per_byte, lat_8 = two[0].term[0].lat_s;
    double there = MB * t.at[0].s_per_byte / g / from_8, known = DTP_GIGA;
    double model_there =
        f->latency * lat_8 + f->mixed * sqrt(lat_8 * g * there) + f->bandwidth * g * there;
    double model_known =
        f->latency * lat_8 + f->mixed * sqrt(lat_8 * g * known) + f->bandwidth * g * known;
    CU_ASSERT(is_near(cost_s(&c, DTP_ALL_GATHER, &four, MB), from_8 * 3 * model_there / model_known,
                      EXACT));
}

/* At measured points what was measured, between them the line through both; less than the least takes as long, more
 * than the largest in proportion, also where noise has the last faster than the one before. */
static void test_measured_points(void) {
    struct dtp_cluster c = load("a100");
    double bytes[] = {MB, 2 * MB, 4 * MB}, time_s[] = {1, 2, 6};
    struct dtp_curve k = flat_curve(&c, 8, 100, 1);
    k.at_bytes = (struct dtp_doubles){bytes, 3};
    k.time_s = (struct dtp_doubles){time_s, 3};
    c.curve = &k;
    c.ncurves = 1;
    static const double want[][2] = {{0.5, 1}, {1, 1}, {1.5, 1.5}, {2, 2},
                                     {3, 4},   {4, 6}, {5, 7.5}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CU_ASSERT(
            is_near(cost_s(&c, DTP_ALL_GATHER, &in_node, want[i][0] * MB), want[i][1], EXACT));
    time_s[2] = 1.5;
    CU_ASSERT(is_near(cost_s(&c, DTP_ALL_GATHER, &in_node, 40 * MB), 15, EXACT));
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
    CU_ASSERT(is_near(cost_s(&c, DTP_ALL_REDUCE, &s, DTP_GIGA), 2 * own, 0.03));
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

int main(void) {
    CU_TestInfo tests[] = {{"figures of DGX A100", test_megatron_figures},
                           {"one rank, no bytes", test_nothing_to_do},
                           {"gathers stay on ring", test_gathers_stay_on_ring},
                           {"sums in the switches of the fabric", test_switch_sums},
                           {"bytes of ports and NICs", test_wires},
                           {"between curves and below them", test_between_curves},
                           {"measured points", test_measured_points},
                           {"groups share NICs", test_sharing},
                           {"costs grow with bytes", test_monotone},
                           {"Summit's triplets", test_summit},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"costs", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
