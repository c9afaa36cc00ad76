/* Workloads and graphs on a cluster end when a calculation by hand says. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/units.h"
#include "tests/suites.h"
#include "traces/tasks/workload_run.h"

static struct dtp_arena *arena;
static struct dtp_cluster *cluster; /* nodes of 8 GPUs */

/* Describes one collective over so many GPUs, while as many groups run at the same time. */
static double collective_s(enum dtp_collective kind, int size, int beside, double bytes) {
    struct dtp_placement p;
    struct dtp_coll_cost cost;
    struct dtp_err err = {0};
    struct dtp_sizes sizes = {beside, 1, size, 1, 1};
    CU_ASSERT_EQUAL_FATAL(dtp_placement_init(&p, cluster, &sizes, "tp-cp-dp-pp", &err), DTP_OK);
    struct dtp_group_shape shape = dtp_placement_shape(&p, cluster, DTP_AXIS_DP, 0);
    dtp_coll_cost(cluster, kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
    return cost.time_s;
}

static void run_text(const char *text, int gpus, struct dtp_workload_result *out) {
    struct dtp_source *s;
    struct dtp_workload w;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "text", text, strlen(text), &s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_workload_read(arena, s, DTP_NANO, &w, &err), DTP_OK);
    dtp_source_close(s);
    enum dtp_status status = dtp_workload_run(arena, &w, cluster, gpus, out, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
}

/* Tensor collectives are waited for; the gradients' overlap what follows, and end last here. */
static void transformer(void) {
    struct dtp_workload_result r;
    run_text("HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 16\n2\n"
             "a -1 1000000 ALLREDUCE 1048576 2000000 ALLREDUCE 1048576 3000000 ALLREDUCE 8388608 "
             "100\n"
             "b -1 5000000 NONE 0 7000000 NONE 0 11000000 ALLREDUCE 268435456 200\n",
             0, &r);
    double tensor = collective_s(DTP_ALL_REDUCE, 8, 1, 1048576),
           small = collective_s(DTP_ALL_REDUCE, 2, 8, 8388608),
           large = collective_s(DTP_ALL_REDUCE, 2, 8, 268435456);
    CU_ASSERT_EQUAL(r.gpus, 16);
    CU_ASSERT_EQUAL(r.sizes.tp, 8);
    CU_ASSERT_EQUAL(r.sizes.dp, 2);
    double ms = DTP_MILLI, forward = 1 * ms + tensor + 5 * ms, wg_b = forward + 11 * ms,
           wg_a = wg_b + 7 * ms + 3 * ms, end = wg_a + 2 * ms + tensor;
    double data_b = wg_b + large, data_a = (data_b > wg_a ? data_b : wg_a) + small;
    double update_b = (data_b > end ? data_b : end) + 200 * DTP_NANO;
    double update_a = (data_a > update_b ? data_a : update_b) + 100 * DTP_NANO;
    CU_ASSERT_DOUBLE_EQUAL(r.step_s, update_a, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.busy_s[DTP_WORKLOAD_COMPUTE], 29 * ms + 300 * DTP_NANO, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.busy_s[DTP_WORKLOAD_TENSOR], 2 * tensor, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.busy_s[DTP_WORKLOAD_DATA], large + small, 1e-12);
}

/* Layer 1 initiates: its forward and that of layer 0, the checkpoint, run again. */
static void checkpoints(void) {
    struct dtp_workload_result with, without;
    static const char rows[] = "a -1 1000 NONE 0 10 NONE 0 10 NONE 0 0\n"
                               "b -1 500 NONE 0 10 NONE 0 10 NONE 0 0\n";
    run_text(dtp_arena_printf(arena,
                              "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 "
                              "checkpoints: 1 0 checkpoint_initiates: 1 1\n2\n%s",
                              rows),
             8, &with);
    run_text(dtp_arena_printf(arena, "HYBRID_TRANSFORMER\n2\n%s", rows), 8, &without);
    CU_ASSERT_DOUBLE_EQUAL(without.step_s, 1540 * DTP_NANO, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(with.step_s, 3040 * DTP_NANO, 1e-15);
}

static void refused(void) {
    static const char text[] = "DATA\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
    static const char odd[] =
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
    const char *const texts[] = {text, odd};
    const int gpus[] = {0, 12};
    static const char *const says[] = {"--gpus N", "12 GPUs do not divide"};
    for (int i = 0; i < 2; i++) {
        struct dtp_source *s;
        struct dtp_workload w;
        struct dtp_workload_result r;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL_FATAL(
            dtp_source_memory(arena, "text", texts[i], strlen(texts[i]), &s, &err), DTP_OK);
        CU_ASSERT_EQUAL_FATAL(dtp_workload_read(arena, s, 1, &w, &err), DTP_OK);
        dtp_source_close(s);
        CU_ASSERT_EQUAL(dtp_workload_run(arena, &w, cluster, gpus[i], &r, &err), DTP_EINPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, says[i]));
    }
}

static void aicb(void) {
    static struct dtp_aicb_row rows[] = {
        {"computation", "None", "forward", 0, 0, 2, 3e-3, -1, -1},
        {"all_reduce", "tp_group", "forward", 8, 1048576, 1, -1, -1, -1},
        {"reduce_scatter", "dp_group", "step", 2, 8388608, 3, -1, -1, -1},
        {"epoch_end", "None", "", 0, 0, 1, -1, -1, -1}};
    struct dtp_aicb w = {.preamble = "rank0 ~ rank15", .row = rows, .n = 4};
    struct dtp_workload_result r;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_aicb_run(arena, &w, cluster, 0, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL(r.gpus, 16);
    CU_ASSERT_DOUBLE_EQUAL(r.step_s,
                           6e-3 + collective_s(DTP_ALL_REDUCE, 8, 1, 1048576) +
                               3 * collective_s(DTP_REDUCE_SCATTER, 2, 8, 8388608),
                           1e-12);
}

/* ---- graphs ---- */

#define NODE                                                                                       \
    .name = "n", .group = "", .comm_type = -1, .comm_src = -1, .comm_dst = -1, .comm_tag = -1

/* Rank 1 computes longer; the collective ends on both together, and a kernel behind it waits. */
static void graph_collective(void) {
    static uint64_t dep[] = {1, 2};
    struct dtp_chakra_node node[2][3];
    struct dtp_chakra g[2];
    const struct dtp_chakra *ranks[] = {&g[0], &g[1]};
    struct dtp_workload_result r;
    struct dtp_err err = {0};
    for (int k = 0; k < 2; k++) {
        node[k][0] = (struct dtp_chakra_node){NODE, .id = 1, .type = DTP_CHAKRA_COMP,
                                              .dur_us = k ? 300 : 100};
        node[k][1] = (struct dtp_chakra_node){NODE, .id = 2, .type = DTP_CHAKRA_COLL,
                                              .comm_bytes = 1048576, .ndata = 1};
        node[k][1].comm_type = 0;
        node[k][2] = (struct dtp_chakra_node){NODE,         .id = 3,        .type = DTP_CHAKRA_COMP,
                                              .dur_us = 50, .first_dep = 1, .ndata = 1};
        g[k] = (struct dtp_chakra){.node = node[k], .nnodes = 3, .dep = dep, .ndeps = 2};
    }
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_run(arena, ranks, 2, cluster, 0, &r, &err), DTP_OK);
    double coll = collective_s(DTP_ALL_REDUCE, 2, 1, 1048576);
    CU_ASSERT_DOUBLE_EQUAL(r.step_s, 350e-6 + coll, 1e-12);
    CU_ASSERT_EQUAL(r.unmatched, 0);
    CU_ASSERT_DOUBLE_EQUAL(r.tasks->task[1].end_s, r.tasks->task[4].end_s, 1e-15);
    /* one graph for all: a collective of eight */
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_run(arena, ranks, 1, cluster, 8, &r, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(r.step_s, 150e-6 + collective_s(DTP_ALL_REDUCE, 8, 1, 1048576), 1e-12);
}

/* Rank 0 sends after its kernel, rank 1 receives; another receive has no other side. */
static void graph_transfer(void) {
    static uint64_t dep[] = {1};
    struct dtp_chakra_node send[] = {
        {NODE, .id = 1, .type = DTP_CHAKRA_COMP, .dur_us = 200},
        {NODE, .id = 2, .type = DTP_CHAKRA_SEND, .comm_bytes = 4194304, .ndata = 1}};
    struct dtp_chakra_node receive[] = {
        {NODE, .id = 1, .type = DTP_CHAKRA_RECV, .comm_bytes = 4194304},
        {NODE, .id = 2, .type = DTP_CHAKRA_COMP, .dur_us = 10, .ndata = 1}};
    send[1].comm_src = receive[0].comm_src = 0;
    send[1].comm_dst = receive[0].comm_dst = 1;
    send[1].comm_tag = receive[0].comm_tag = 7;
    struct dtp_chakra g[] = {{.node = send, .nnodes = 2, .dep = dep, .ndeps = 1},
                             {.node = receive, .nnodes = 2, .dep = dep, .ndeps = 1}};
    const struct dtp_chakra *ranks[] = {&g[0], &g[1]};
    struct dtp_workload_result r;
    struct dtp_coll_cost cost;
    struct dtp_err err = {0};
    dtp_p2p_cost(cluster, 0, 1, 1, 4194304, &cost);
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_run(arena, ranks, 2, cluster, 0, &r, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(r.step_s, 210e-6 + cost.time_s, 1e-12);
    CU_ASSERT_EQUAL(r.unmatched, 0);
    receive[0].comm_tag = 8;
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_run(arena, ranks, 2, cluster, 0, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL(r.unmatched, 2);
}

/* By the policy alone: all GPUs share a model, the GPUs of a node do, or none. */
static void policies(void) {
    static const struct {
        const char *policy;
        int gpus, tp;
    } cases[] = {{"MODEL", 32, 32},
                 {"HYBRID_DATA_MODEL", 32, 8},
                 {"HYBRID_MODEL_DATA", 4, 4},
                 {"DATA", 32, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_workload_result r;
        run_text(
            dtp_arena_printf(arena, "%s\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", cases[i].policy),
            cases[i].gpus, &r);
        CU_ASSERT_EQUAL(r.sizes.tp, cases[i].tp);
        CU_ASSERT_EQUAL(r.sizes.dp, cases[i].gpus / cases[i].tp);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"a transformer's two layers", transformer},
                           {"checkpoints compute forward again", checkpoints},
                           {"workloads that do not fit are refused", refused},
                           {"AICB's rows in order", aicb},
                           {"a collective of two graphs ends together", graph_collective},
                           {"a send meets its receive", graph_transfer},
                           {"policies", policies},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"workloads on a cluster", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    arena = dtp_arena_create("test");
    cluster = DTP_NEW(arena, struct dtp_cluster, 1);
    if (dtp_cluster_load(arena, "dgx-h100", cluster, &err) != DTP_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
