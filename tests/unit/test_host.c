/* Host and GPU as two clocks, and operations that depend on alignment: hand-computed cases. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "tests/costs_case.h"
#include "tests/near.h"
#include "tests/problem_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct fixture x;

static void prepare(void) {
    problem_case(arena, &x, "gpt1.7b", "megatron-2021", 1, 4);
    x.framework.host.launch_s = x.framework.host.layer_host_s = 0;
    x.framework.host.host_sync = x.framework.host.launch_blocking = false;
    x.framework.host.backward_launch_factor = 0.5;
    x.plan.dtype = x.problem.dtype = DTP_FP16;
    x.problem.seq = 1024;
}

enum { F, I, W, R };

static void phases(struct dtp_phase out[4]) {
    struct dtp_cost_memo *memo = dtp_cost_memo_create(arena, &x.problem);
    memcpy(out, dtp_cost_layers(memo, &x.plan)->of[DTP_LAYER_DENSE], 4 * sizeof *out);
}

/* Kernels that the host launches for a layer: forward, backward. */
static void launches(double out[2]) {
    struct dtp_ops *ops = DTP_NEW(arena, struct dtp_ops, 1);
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, ops);
    out[0] = out[1] = 0;
    for (int i = 0; i < ops->n; i++)
        out[ops->at[i].pass != DTP_PASS_F] += ops->at[i].count * ops->at[i].launches;
}

static bool near(double got, double want) {
    return is_near(got, want, 1e-12);
}

static double backward_s(const struct dtp_phase p[4]) {
    return p[I].total_s + p[W].total_s + p[R].total_s;
}

/* A host that is never late costs nothing; one that is always late is all that counts. */
static void test_extremes(void) {
    struct dtp_phase free_of_host[4], quick[4], slow[4];
    double n[2];
    prepare();
    launches(n);
    phases(free_of_host);
    x.framework.host.launch_s = 1e-9;
    phases(quick);
    x.framework.host.launch_s = 1;
    phases(slow);
    for (int k = 0; k < 4; k++) {
        CU_ASSERT_EQUAL(quick[k].total_s, free_of_host[k].total_s);
        CU_ASSERT_EQUAL(free_of_host[k].host_s, 0);
    }
    CU_ASSERT(n[1] > n[0] && n[0] > 10);
    CU_ASSERT(near(slow[F].total_s, n[0]));
    CU_ASSERT(near(slow[F].total_s + backward_s(slow), n[0] + 0.5 * n[1]));
}

/* The forward is late, the backward is not: what the queue catches up depends on whether the host waits
 * at the start of the microbatch. */
static void test_catch_up(void) {
    struct dtp_phase gpu[4], free_run[4], synced[4];
    double n[2];
    prepare();
    launches(n);
    phases(gpu);
    double forward_s = 1.5 * gpu[F].total_s;
    x.framework.host.launch_s = forward_s / n[0];
    x.framework.host.backward_launch_factor =
        0.1 * backward_s(gpu) / (n[1] * x.framework.host.launch_s);
    phases(free_run);
    x.framework.host.host_sync = true;
    phases(synced);
    CU_ASSERT(near(free_run[F].total_s + backward_s(free_run), gpu[F].total_s + backward_s(gpu)));
    CU_ASSERT(near(synced[F].total_s, forward_s));
    CU_ASSERT(near(backward_s(synced), backward_s(gpu)));
    CU_ASSERT(near(synced[F].host_s, 0.5 * gpu[F].total_s));
}

/* What the host gains on a long forward helps a backward that it launches too slowly. */
static void test_lead(void) {
    struct dtp_phase gpu[4], synced[4];
    double n[2];
    prepare();
    launches(n);
    phases(gpu);
    x.framework.host.host_sync = true;
    x.framework.host.launch_s = 0.5 * gpu[F].total_s / n[0];
    double late_s = 0.2 * backward_s(gpu), lead_s = 0.5 * gpu[F].total_s;
    x.framework.host.backward_launch_factor =
        (backward_s(gpu) + lead_s + late_s) / (n[1] * x.framework.host.launch_s);
    phases(synced);
    CU_ASSERT(near(synced[F].total_s, gpu[F].total_s));
    CU_ASSERT(near(backward_s(synced), backward_s(gpu) + late_s));
}

/* Blocked launches: the sum of both, and the way there and back for each. */
static void test_blocking(void) {
    struct dtp_phase gpu[4], blocked[4];
    double n[2];
    prepare();
    x.plan.recompute = DTP_RECOMPUTE_FULL;
    launches(n);
    phases(gpu);
    x.framework.host.launch_blocking = true;
    x.framework.host.launch_s = 1e-4;
    phases(blocked);
    CU_ASSERT(near(blocked[F].total_s, gpu[F].total_s + n[0] * 1.1e-4));
    CU_ASSERT(near(backward_s(blocked), backward_s(gpu) + n[0] * 1.1e-4 + n[1] * 0.6e-4));
}

static double time_of(const char *name, enum dtp_layer_kind kind) {
    struct dtp_ops *ops = DTP_NEW(arena, struct dtp_ops, 1);
    double sum_s = 0;
    dtp_ops_layer(&x.problem, &x.plan, kind, ops);
    for (int i = 0; i < ops->n; i++)
        if (strcmp(ops->at[i].name, name) == 0)
            sum_s += dtp_op_time_s(&x.problem, &x.plan, &ops->at[i]);
    return sum_s;
}

static void test_alignment(void) {
    prepare();
    x.model.vocab = 50257;
    x.framework.kernels.vocab_multiple = 128;
    double padded_s = time_of("logits", DTP_LAYER_HEAD);
    x.framework.quirks.traced_gaps.vocab_padded = false;
    double odd_s = time_of("logits", DTP_LAYER_HEAD);
    CU_ASSERT(odd_s > 3 * padded_s && odd_s < 3.4 * padded_s);
    x.plan.tp = 2;
    CU_ASSERT(time_of("logits", DTP_LAYER_HEAD) < padded_s);
    prepare();
    double aligned_s = time_of("QK^T", DTP_LAYER_DENSE);
    x.model.head_dim = 92;
    CU_ASSERT(time_of("QK^T", DTP_LAYER_DENSE) > 3 * aligned_s);
}

static void test_softmax_blocks(void) {
    prepare();
    x.plan.tp = 8; /* three heads on a rank */
    CU_ASSERT(time_of("mask", DTP_LAYER_DENSE) > 0);
    x.plan.microbatch_size = 4;
    CU_ASSERT_EQUAL(time_of("mask", DTP_LAYER_DENSE), 0);
}

/* Two tp collectives in a forward, one of two ranks each: the checks are host time, linear in the ranks. */
static void test_checks(void) {
    struct dtp_phase plain[4], two[4], four[4];
    prepare();
    x.plan.tp = 2;
    x.problem.gpus = 4;
    x.framework.quirks.polled_checks.check_rank_s = 1;
    phases(plain);
    x.framework.host.checked_collectives = true;
    phases(two);
    x.plan.tp = 4;
    phases(four);
    CU_ASSERT(plain[F].host_s < 1);
    CU_ASSERT(near(two[F].total_s, 2 * 2));
    CU_ASSERT(near(four[F].total_s, 2 * 4));
    CU_ASSERT_EQUAL(dtp_framework_check_s(&x.framework, 1, false), 0);
    x.framework.quirks.polled_checks.check_far_rank_s = 2; /* groups of several nodes */
    x.plan.tp = x.problem.gpus = 16;
    phases(four);
    CU_ASSERT(near(four[F].total_s, 2 * 16 * 2));
}

static struct dtp_stage_cost stage_cost(void) {
    struct dtp_costs costs;
    dtp_costs(arena, dtp_cost_memo_create(arena, &x.problem), &x.plan, &costs);
    return costs.stage[0];
}

/* nanotron on 16 ranks: DDP reduces buckets behind the backward, ZeRO-1 its whole buffer after it and copies 6
 * tensors of each layer for each rank; a check goes before every message. */
static void test_reduction_checks(void) {
    struct dtp_err err = {0};
    prepare();
    if (dtp_framework_load(arena, "nanotron", &x.framework, &err) != DTP_OK)
        CU_FAIL_FATAL("framework");
    x.plan.dp = x.problem.gpus = 16;
    x.plan.global_batch_size = x.problem.global_batch = 16;
    struct dtp_stage_cost ddp = stage_cost();
    x.plan.zero_stage = 1;
    struct dtp_stage_cost zero1 = stage_cost();
    double bytes = ddp.reduce.bytes * ddp.nreduce;
    /* three buckets of a layer (both MLP weights, the two of attention), the token table, whose size a unit has */
    double buckets = 3.0 * x.model.layers + 1;
    CU_ASSERT(ddp.nreduce == (int)ceil(bytes / (4.0 * x.model.vocab * x.model.hidden)));
    CU_ASSERT(zero1.nreduce == 1 && zero1.reduce.kind == DTP_ALL_REDUCE);
    CU_ASSERT(near(zero1.reduce.bytes, bytes));
    x.framework.quirks.whole_gradients.gather_copies_per_layer = 0;
    struct dtp_stage_cost free = stage_cost();
    CU_ASSERT(near(zero1.gather.time_s - free.gather.time_s,
                   6.0 * x.model.layers * 16 * x.framework.host.launch_s));
    x.framework.host.checked_collectives = true;
    x.framework.quirks.polled_checks.check_far_rank_s = 1;
    struct dtp_stage_cost checked = stage_cost();
    CU_ASSERT(near(checked.reduce.time_s - free.reduce.time_s, 16));
    CU_ASSERT(near(checked.gather.latency_s - free.gather.latency_s, 16));
    x.plan.zero_stage = 0;
    checked = stage_cost();
    CU_ASSERT(near(checked.reduce.time_s - ddp.reduce.time_s, 16 * buckets / ddp.nreduce));
}

/* The wait of a microbatch at a boundary is one for both ways: two stages take it once a microbatch, four have
 * ranks of two boundaries, and the fill is short. */
static void test_transfer_checks(void) {
    prepare();
    x.framework.quirks.polled_checks.check_transfer_s = 1000;
    x.framework.host.checked_transfers = true;
    for (int pp = 2; pp <= 4; pp += 2)
        for (int m = 4; m <= 16; m *= 4) {
            struct dtp_costs costs;
            struct dtp_path path;
            x.plan.pp = x.problem.gpus = pp;
            x.plan.global_batch_size = x.problem.global_batch = m;
            x.plan.p2p_overlap = 0;
            dtp_costs(arena, dtp_cost_memo_create(arena, &x.problem), &x.plan, &costs);
            struct dtp_schedule schedule = case_schedule(arena, x.plan.schedule, pp, 1, m);
            dtp_estimate(arena, &costs, &schedule, &path);
            CU_ASSERT(fabs(path.step_s / 1000 - m * pp / 2) < 0.1);
        }
}

/* A ring over two nodes takes 15 steps, and sends (n-1)/n of the bytes over the NICs of a node. */
static void test_far_ring(void) {
    struct dtp_ops *ops = DTP_NEW(arena, struct dtp_ops, 1);
    prepare();
    x.plan.tp = x.problem.gpus = 16;
    x.plan.sequence_parallel = true;
    dtp_ops_layer(&x.problem, &x.plan, DTP_LAYER_DENSE, ops);
    int at = 0;
    while (at < ops->n &&
           (ops->at[at].kind != DTP_OP_COLLECTIVE || ops->at[at].collective != DTP_ALL_GATHER))
        at++;
    CU_ASSERT_FATAL(at < ops->n);
    const struct dtp_op *gather = &ops->at[at];
    double network_s = dtp_op_time_s(&x.problem, &x.plan, gather);
    x.framework.quirks.slow_hops.tp_hop_s = 1e-9; /* the network takes longer */
    CU_ASSERT(near(dtp_op_time_s(&x.problem, &x.plan, gather), network_s));
    x.framework.quirks.slow_hops.tp_hop_s = 1;
    const struct dtp_node *node = &x.cluster.node;
    double wire_s =
        gather->bytes * 15 / 16 / node->nics / (node->nic_bytes_per_s * node->nic_efficiency);
    CU_ASSERT(near(dtp_op_time_s(&x.problem, &x.plan, gather), gather->count * (15 + wire_s)));
    CU_ASSERT(wire_s > 0 && wire_s < network_s);
}

/* Nanotron's tp collectives at column-parallel blocks hide in the backward, for no longer than the GEMMs that they
 * overlap take; the forward waits for its own. */
static void test_hidden_collectives(void) {
    struct dtp_phase shown[4], hidden[4], far[4];
    prepare();
    x.plan.tp = x.problem.gpus = 2;
    x.plan.sequence_parallel = true;
    x.framework.wire.tp_overlap = false;
    phases(shown);
    x.framework.wire.tp_overlap = true;
    phases(hidden);
    CU_ASSERT_EQUAL(hidden[F].tp_s, shown[F].tp_s);
    CU_ASSERT(hidden[I].tp_s > 0 && hidden[I].tp_s < 0.9 * shown[I].tp_s);
    x.framework.quirks.slow_hops.tp_hop_s = 1;
    /* six rings of 15 steps, that GEMMs of milliseconds cannot hide */
    x.plan.tp = x.problem.gpus = 16;
    phases(far);
    double rings_s = far[I].tp_s / 15;
    CU_ASSERT(rings_s > 5.9 && rings_s < 6.1);
}

static void test_cross_entropy_passes(void) {
    prepare();
    if (dtp_cluster_load(arena, "aws-p5", &x.cluster, NULL) != DTP_OK)
        CU_FAIL_FATAL("cluster");
    x.framework.kernels.cross_entropy = DTP_LOSS_TORCH;
    double own_s = time_of("cross-entropy", DTP_LAYER_HEAD);
    x.framework.kernels.cross_entropy = DTP_LOSS_PASSES;
    double logits = 1024.0 * dtp_framework_padded_vocab(&x.framework, x.model.vocab, 1);
    double passes_s = dtp_device_kernel_s(&x.cluster.gpu, DTP_K_ELEMENTWISE, 8 * logits, logits) +
                      2 * dtp_device_kernel_s(&x.cluster.gpu, DTP_K_COPY, 6 * logits, logits) +
                      2 * dtp_device_kernel_s(&x.cluster.gpu, DTP_K_REDUCE, 4 * logits, logits) +
                      3 * dtp_device_kernel_s(&x.cluster.gpu, DTP_K_STRIDED, 8 * logits, logits);
    double s = time_of("cross-entropy", DTP_LAYER_HEAD);
    CU_ASSERT(s > 0.99 * passes_s && s < 1.01 * passes_s && s < own_s);
    x.framework.quirks.traced_gaps.half_cross_entropy = true;
    double half_s = time_of("cross-entropy", DTP_LAYER_HEAD);
    CU_ASSERT(half_s > 0.45 * s && half_s < 0.55 * s);
    x.framework.quirks.traced_gaps.half_cross_entropy = false;
    x.framework.kernels.cross_entropy =
        DTP_LOSS_COMPILED; /* fewer kernels that read and write it */
    double compiled_s = time_of("cross-entropy", DTP_LAYER_HEAD);
    CU_ASSERT(compiled_s > 0.5 * s && compiled_s < 0.7 * s);
    x.framework.kernels.cross_entropy = DTP_LOSS_FUSED; /* 8, at PyTorch's rate */
    CU_ASSERT(near(time_of("cross-entropy", DTP_LAYER_HEAD), own_s * 8 / 52));
}

static void test_norm_factor(void) {
    prepare();
    x.framework.kernels.norm_time_factor = 1;
    double persistent_s = time_of("norm 1", DTP_LAYER_DENSE);
    x.framework.kernels.norm_time_factor = 2;
    CU_ASSERT(near(time_of("norm 1", DTP_LAYER_DENSE), 2 * persistent_s));
    struct dtp_framework_gpu here = dtp_framework_on(&x.framework, &x.cluster.gpu);
    here.norm_time_factor = here.norm_backward_time_factor = 1;
    x.framework.kernels.by_gpu = &here;
    x.framework.kernels.nby_gpu = 1;
    CU_ASSERT(near(time_of("norm 1", DTP_LAYER_DENSE), persistent_s));
    here.norm_backward_time_factor = 3; /* the forward takes less than half of the two */
    CU_ASSERT(time_of("norm 1", DTP_LAYER_DENSE) > 2 * persistent_s);
    CU_ASSERT(time_of("norm 1", DTP_LAYER_DENSE) < 3 * persistent_s);
    here.family = "another";
    here.norm_backward_time_factor = 1;
    x.cluster.gpu.like_family = "another";
    CU_ASSERT(near(time_of("norm 1", DTP_LAYER_DENSE), 2 * persistent_s));
    x.cluster.gpu.not_calibrated = true; /* then as on the GPU that it is scaled from */
    CU_ASSERT(near(time_of("norm 1", DTP_LAYER_DENSE), persistent_s));
}

int main(void) {
    CU_TestInfo tests[] = {{"host always early or late", test_extremes},
                           {"late forward, early backward", test_catch_up},
                           {"lead of the forward", test_lead},
                           {"blocked launches", test_blocking},
                           {"alignment of head and scores", test_alignment},
                           {"softmax by blocks of heads", test_softmax_blocks},
                           {"checked collectives", test_checks},
                           {"checks and copies of a reduction", test_reduction_checks},
                           {"waits between stages", test_transfer_checks},
                           {"rings over nodes", test_far_ring},
                           {"collectives behind GEMMs", test_hidden_collectives},
                           {"cross-entropy by passes", test_cross_entropy_passes},
                           {"norm kernels of a stack", test_norm_factor},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"host", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
