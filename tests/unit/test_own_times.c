/* Times of our own kernels on GPUs: read, applied to a cluster, refused where there are none. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "hw/own_times.h"
#include "models/cost/cost_internal.h"
#include "models/ops/op_native.h"
#include "models/ops/op.h"
#include "planner/cli/calibration.h"
#include "planner/setup.h"
#include "tests/suites.h"

static struct dtp_arena *a;

static enum dtp_status set_up_gpus(const char *cluster, int gpus, struct dtp_setup *out,
                                   struct dtp_err *err) {
    const struct dtp_ask ask = {.model = "gpt3-1.3b",
                                .cluster = cluster,
                                .framework = "dtplan",
                                .gpus = gpus,
                                .batch = 32,
                                .dtype = -1,
                                .attention = -1};
    return dtp_setup_init(a, &ask, out, err);
}

static enum dtp_status set_up(const char *cluster, struct dtp_setup *out, struct dtp_err *err) {
    return set_up_gpus(cluster, 8, out, err);
}

/* Between kernels of ranks that have communicators it takes longer. */
static void test_gap_beside_peers(void) {
    struct dtp_setup *alone = DTP_NEW(a, struct dtp_setup, 1),
                     *two = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_own_times t;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_own_times_read(a, dtp_own_times_path(a, "h200"), &t, &err), DTP_OK);
    CU_ASSERT(t.peer_gap_s > 1e-7 && t.peer_gap_s < 1e-6);
    CU_ASSERT_EQUAL_FATAL(set_up_gpus("hgx-h200", 1, alone, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(set_up_gpus("hgx-h200", 2, two, &err), DTP_OK);
    CU_ASSERT_EQUAL(alone->framework.quirks.traced_gaps.kernel_gap_s, 0);
    CU_ASSERT_EQUAL(two->framework.quirks.traced_gaps.kernel_gap_s, t.peer_gap_s);
}

/* Attention's grid has head_dim 80, for which cuDNN's kernels take nearly the time of 128. */
static void test_head_dim(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_attention_shape x = {.dtype = DTP_BF16,
                                    .impl = DTP_ATTN_OWN,
                                    .causal = true,
                                    .batch = 2,
                                    .heads = 32,
                                    .kv_heads = 32};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    for (int i = 0; i < 4; i++) {
        x.backward = i % 2;
        x.seq_q = x.seq_kv = i / 2 ? 8192 : 2048;
        x.head_dim = 128;
        double whole_s = dtp_device_attention_s(&s->cluster.gpu, &x);
        x.head_dim = 80;
        double part_s = dtp_device_attention_s(&s->cluster.gpu, &x);
        CU_ASSERT(part_s > 0.85 * whole_s && part_s < 1.02 * whole_s);
    }
}

static void test_legal_where_measured(void) {
    struct dtp_setup *h200 = DTP_NEW(a, struct dtp_setup, 1),
                     *h100 = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_setup *a100 = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", h200, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(h200->framework.name, "dtplan-cuda");
    CU_ASSERT_EQUAL(h200->problem.dtype, DTP_BF16);
    CU_ASSERT(h200->framework.host.launch_s > 0 && !h200->cluster.gpu.not_calibrated);
    CU_ASSERT(h200->framework.host.stream_hop_s > 1e-6 && h200->framework.host.stream_hop_s < 1e-5);
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h100", h100, &err), DTP_OK);
    CU_ASSERT(h100->cluster.gpu.not_calibrated);
    double faster = h200->cluster.gpu.kernel[DTP_K_NORM].bytes_per_s /
                    h100->cluster.gpu.kernel[DTP_K_NORM].bytes_per_s;
    CU_ASSERT_DOUBLE_EQUAL(
        faster, h200->cluster.gpu.hbm_bytes_per_s / h100->cluster.gpu.hbm_bytes_per_s, 1e-9);
    CU_ASSERT_EQUAL(set_up("dgx-a100-80", a100, &err), DTP_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "calibrate --backend cuda"));
}

/* At the points the time is what was measured, whatever the formula says. */
static void test_points(void) {
    struct dtp_cluster c;
    struct dtp_own_times t;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, "hgx-h200", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_own_times_read(a, dtp_own_times_path(a, "h200"), &t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_own_times_apply(a, &t, &c, &err), DTP_OK);
    const struct dtp_time_table *table = &c.gpu.table[DTP_TABLE_GEMM_FORWARD];
    size_t ny = table->axis[1].n, nz = table->axis[2].n;
    for (size_t i = 0; i < table->time_s.n; i += 37) {
        const struct dtp_gemm s = {.dtype = DTP_BF16,
                                   .m = (int64_t)table->axis[0].at[i / nz / ny],
                                   .n = (int64_t)table->axis[1].at[i / nz % ny],
                                   .k = (int64_t)table->axis[2].at[i % nz],
                                   .batch = 1};
        CU_ASSERT_DOUBLE_EQUAL(dtp_device_gemm_s(&c.gpu, &s) / table->time_s.at[i], 1, 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(dtp_device_gemm_clock(&c.gpu, &s), table->clock.at[i], 1e-12);
    }
    CU_ASSERT(c.ncurves > 4 && c.curve[0].gpus == 2);
    CU_ASSERT_EQUAL(dtp_cluster_load(a, "hgx-h100", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_own_times_apply(a, &t, &c, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NULL(dtp_own_times_path(a, "no-such-gpu"));
}

/* ---- power ---- */

enum { IDLE_W = 100, LIMIT_W = 700 };
static const double most_hz = 2e9, flops = 1e12, j_per_flop = 1e-12, exponent = 0.8;
static const double j_per_byte = 1e-10, near_fit = 1e-6; /* the exponent is found by trying */

/* A GEMM at a clock; the whole call takes call_s, the product 1 ms at the highest clock. */
static struct dtp_measured_load gemm_load(double x, double call_s, double bytes) {
    double w = IDLE_W + (j_per_flop * pow(x, exponent) * flops + j_per_byte * bytes) / call_s;
    return (struct dtp_measured_load){.kernel = "gemm_forward",
                                      .busy = 1,
                                      .flops = flops,
                                      .bytes = bytes,
                                      .alone_s = 1e-3 / x,
                                      .call_s = call_s,
                                      .alone_clock_hz = x * most_hz,
                                      .clock_hz = x * most_hz,
                                      .power_w = w};
}

/* What was put in comes out. */
static void test_power_fit(void) {
    struct dtp_measured *m = DTP_NEW(a, struct dtp_measured, 1);
    struct dtp_power_cal p;
    const double few = 1e9;
    m->limits = (struct dtp_dev_load){.power_limit_w = LIMIT_W, .most_clock_hz = most_hz};
    CU_ASSERT_FALSE(dtp_own_power(m, &p));
    m->load[m->nloads++] = gemm_load(0.6, 2e-3, 0);
    m->load[m->nloads++] = gemm_load(0.8, 3e-3, few);
    m->load[m->nloads++] = gemm_load(1, 4e-3, 0);
    m->load[m->nloads++] = gemm_load(1, 6e-3, 4 * few);
    m->load[m->nloads] = gemm_load(0.5, 2e-3, few);
    snprintf(m->load[m->nloads++].kernel, sizeof m->load->kernel, "attention_forward");
    m->load[m->nloads] = gemm_load(0.5, 2e-3, few);
    m->load[m->nloads].flops /= 2;
    snprintf(m->load[m->nloads++].kernel, sizeof m->load->kernel, "attention_dropout_forward");
    m->load[m->nloads++] = (struct dtp_measured_load){.kernel = "pause", .power_w = IDLE_W};
    m->load[m->nloads++] = (struct dtp_measured_load){.kernel = "norm", .power_w = 450};
    m->load[m->nloads++] = (struct dtp_measured_load){.kernel = "all_reduce", .power_w = 250};
    /* 1 ms at x = 1 is 1100 W: 400 J/s over the limit for 0.3 s, of 600 W saved: 0.2 s of a long rest */
    m->load[m->nloads++] = (struct dtp_measured_load){.kernel = "after_rest",
                                                      .flops = flops,
                                                      .call_s = 1e-3,
                                                      .clock_hz = most_hz,
                                                      .rest_s = 100,
                                                      .stretch_s = 0.3};
    CU_ASSERT_TRUE_FATAL(dtp_own_power(m, &p));
    CU_ASSERT_DOUBLE_EQUAL(p.exponent, exponent, near_fit);
    CU_ASSERT_DOUBLE_EQUAL(p.gemm_j_per_flop / j_per_flop, 1, near_fit);
    CU_ASSERT_DOUBLE_EQUAL(p.j_per_byte / j_per_byte, 1, near_fit);
    CU_ASSERT_DOUBLE_EQUAL(p.attention_j_per_flop / j_per_flop, 1, near_fit);
    CU_ASSERT_DOUBLE_EQUAL(p.attention_dropout_j_per_flop / j_per_flop, 2, near_fit);
    CU_ASSERT_EQUAL(p.attention_dropout_backward_j_per_flop, 0); /* was not loaded */
    CU_ASSERT_DOUBLE_EQUAL(p.comm_w, 150, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(p.burst_w, IDLE_W + 1400, 1e-3); /* at x = 1, alone, of most bytes */
    CU_ASSERT_DOUBLE_EQUAL(p.memory_s, 0.2, near_fit);
    CU_ASSERT_DOUBLE_EQUAL(dtp_own_kernel_power_w(m, "norm"), 350, 1e-9);
    CU_ASSERT_EQUAL(dtp_own_kernel_power_w(m, "rope"), 0);
}

static double slowdown_of(const struct dtp_problem *problem, const struct dtp_plan *plan) {
    struct dtp_ops *ops = DTP_NEW(a, struct dtp_ops, 1);
    double slowest = 0;
    dtp_ops_layer(problem, plan, DTP_LAYER_DENSE, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        bool product = op->kind == DTP_OP_GEMM || op->kind == DTP_OP_ATTENTION;
        CU_ASSERT(product ? op->slowdown >= 1 : op->slowdown == 1);
        slowest = op->slowdown > slowest ? op->slowdown : slowest;
    }
    return slowest;
}

/* An H200 whose products have no clocks of their own, and a plan in bf16. */
static struct dtp_setup *clocked_by_power(struct dtp_plan *plan) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    for (int i = 0; i < DTP_TABLE_KERNEL; i++)
        s->cluster.gpu.table[i].clock.n = 0;
    *plan = dtp_plan_default();
    plan->dtype = DTP_BF16;
    plan->global_batch_size = 32;
    return s;
}

/* Random numbers take energy where it was measured, of runs that draw them. */
static void test_clock_with_dropout(void) {
    struct dtp_plan plan;
    struct dtp_setup *s = clocked_by_power(&plan);
    struct dtp_power_cal *p = &s->cluster.gpu.power;
    plan.dp = 8;
    plan.microbatch_size = 4;
    double plain = slowdown_of(&s->problem, &plan);
    p->attention_dropout_j_per_flop = 3 * p->attention_j_per_flop;
    p->attention_dropout_backward_j_per_flop = 3 * p->attention_backward_j_per_flop;
    CU_ASSERT_EQUAL(slowdown_of(&s->problem, &plan), plain); /* trains without */
    s->framework.kernels.dropout = true;
    s->model.attention_dropout = 0.1;
    double measured = slowdown_of(&s->problem, &plan);
    p->attention_dropout_j_per_flop = p->attention_dropout_backward_j_per_flop = 0;
    CU_ASSERT(measured > 1.02 * slowdown_of(&s->problem, &plan));
}

/* Few tokens: weight gradients move more bytes a FLOP. head_dim 80 is computed as 128 is. */
static void test_clock_by_bytes(void) {
    struct dtp_plan plan;
    struct dtp_setup *s = clocked_by_power(&plan);
    struct dtp_power_cal *p = &s->cluster.gpu.power;
    double bytes[2], wide[2], measured = p->j_per_byte;
    for (int i = 0; i < 2; i++) {
        plan.microbatch_size = i == 0 ? 1 : 32;
        double with = slowdown_of(&s->problem, &plan);
        p->j_per_byte = 0;
        bytes[i] = with / slowdown_of(&s->problem, &plan);
        p->j_per_byte = measured;
    }
    CU_ASSERT(bytes[1] > 1 && bytes[0] > bytes[1]);
    p->attention_j_per_flop *= 8;
    p->attention_backward_j_per_flop *= 8;
    for (int i = 0; i < 2; i++) { /* as many FLOPs; 64 is computed as it is */
        s->model.heads = s->model.kv_heads = s->model.hidden / (i == 0 ? 64 : 80);
        s->model.head_dim = i == 0 ? 64 : 80;
        wide[i] = slowdown_of(&s->problem, &plan);
    }
    CU_ASSERT(wide[1] > 1.01 * wide[0]);
}

/* They take the time of the kernel that drops, though they read a tensor less. */
static void test_gradients_of_dropout(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_ops *ops = DTP_NEW(a, struct dtp_ops, 1);
    struct dtp_err err = {0};
    struct dtp_plan plan = dtp_plan_default();
    double time_s[2] = {0, 0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    s->framework.kernels.dropout = true;
    s->model.dropout = 0.1;
    plan.dtype = DTP_BF16;
    plan.global_batch_size = 32;
    plan.dp = 8;
    dtp_ops_layer(&s->problem, &plan, DTP_LAYER_DENSE, ops);
    for (int i = 0; i < ops->n; i++)
        if (ops->at[i].kind == DTP_OP_KERNEL && ops->at[i].kernel == DTP_K_DROPOUT)
            time_s[ops->at[i].pass == DTP_PASS_F ? 0 : 1] +=
                dtp_op_time_s(&s->problem, &plan, &ops->at[i]);
    CU_ASSERT(time_s[0] > 0);
    CU_ASSERT_DOUBLE_EQUAL(time_s[0], time_s[1], 1e-12);
}

/* A chip is slower under larger products, and faster where it rests in the bubble. */
static void test_clock_of_layers(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_plan plan = dtp_plan_default();
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    for (int i = 0; i < DTP_TABLE_KERNEL; i++)
        s->cluster.gpu.table[i].clock.n = 0; /* power alone sets the clock */
    plan.dtype = DTP_BF16;
    plan.global_batch_size = 32;
    plan.dp = 8;
    plan.microbatch_size = 1;
    double small = slowdown_of(&s->problem, &plan);
    plan.microbatch_size = 4;
    double large = slowdown_of(&s->problem, &plan);
    CU_ASSERT(small > 1.05 && large > small && large < 1.6);
    plan.zero_stage =
        2; /* the chip rests while gradients are reduced, and more so the shorter a microbatch is */
    CU_ASSERT(slowdown_of(&s->problem, &plan) < large);
    plan.microbatch_size = 1;
    CU_ASSERT(slowdown_of(&s->problem, &plan) / small < 0.97);
    plan.microbatch_size = 4;
    plan.zero_stage = 0;
    plan.pp = 4;
    plan.dp = 2;
    CU_ASSERT(slowdown_of(&s->problem, &plan) < large);
    s->cluster.gpu.power.idle_w = 0;
    CU_ASSERT_EQUAL(slowdown_of(&s->problem, &plan), 1);
}

static double lost_by(int table) {
    return table == DTP_TABLE_ATTENTION_FORWARD    ? 0.1
           : table == DTP_TABLE_ATTENTION_BACKWARD ? 0.5
                                                   : 0.2;
}

/* If power is plenty, a product loses its own share of the clock, however small it is. */
static void test_droop(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_ops *ops = DTP_NEW(a, struct dtp_ops, 1);
    struct dtp_err err = {0};
    struct dtp_plan plan = dtp_plan_default();
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    struct dtp_gpu *g = &s->cluster.gpu;
    g->power_w = 1e6;
    for (int i = 0; i < DTP_TABLE_KERNEL; i++) {
        struct dtp_time_table *t = &g->table[i];
        t->clock = (struct dtp_doubles){DTP_NEW(a, double, t->time_s.n), t->time_s.n};
        for (size_t k = 0; k < t->clock.n; k++)
            t->clock.at[k] = 1 - lost_by(i);
    }
    plan.dtype = DTP_BF16;
    plan.global_batch_size = 32;
    plan.dp = 8;
    for (plan.microbatch_size = 1; plan.microbatch_size <= 4; plan.microbatch_size *= 4) {
        int n = 0;
        dtp_ops_layer(&s->problem, &plan, DTP_LAYER_DENSE, ops);
        for (int i = 0; i < ops->n; i++) {
            const struct dtp_op *op = &ops->at[i];
            double lost = op->kind == DTP_OP_GEMM        ? lost_by(DTP_TABLE_GEMM_FORWARD)
                          : op->kind != DTP_OP_ATTENTION ? 0
                          : op->attention.backward       ? lost_by(DTP_TABLE_ATTENTION_BACKWARD)
                                                         : lost_by(DTP_TABLE_ATTENTION_FORWARD);
            n += lost > 0;
            CU_ASSERT_DOUBLE_EQUAL(op->slowdown, 1 / (1 - lost), 1e-12);
        }
        CU_ASSERT(n > 8);
    }
}

/* What ZeRO-3 gathers in a forward that computes for compute_s. */
static double gathers_s(const struct dtp_problem *problem, double compute_s) {
    struct dtp_placed placed;
    struct dtp_update_key key;
    struct dtp_plan plan = dtp_plan_default();
    struct dtp_stage_cost cost = {.f = {.total_s = compute_s}};
    plan.dp = 8;
    plan.zero_stage = 3;
    plan.dtype = DTP_BF16;
    plan.global_batch_size = 32;
    dtp_placed_make(problem, &plan, &placed);
    dtp_update_key_of(problem, &plan, &placed, &key);
    dtp_cost_native_phases(problem, &key, plan.microbatch_size, 0, &cost);
    return cost.f.dp_s;
}

/* A tied head gathers the tokens again, as much as a separate head; nothing overlaps the first layer's. */
static void test_gathers(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_model m, deeper;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_model_load(a, "gpt3-125m", &m, &err), DTP_OK);
    s->cluster.gpu.comm_slowdown = 0;
    s->problem.model = &m;
    CU_ASSERT(m.tied_embeddings);
    double exposed_s = gathers_s(&s->problem, 1), all_s = gathers_s(&s->problem, 0);
    deeper = m;
    deeper.layers *= 2;
    s->problem.model = &deeper;
    double layer_s = (gathers_s(&s->problem, 0) - all_s) / m.layers;
    CU_ASSERT_DOUBLE_EQUAL(gathers_s(&s->problem, 1), exposed_s, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(all_s - exposed_s, (m.layers - 1) * layer_s, 1e-12);
    m.tied_embeddings = false;
    s->problem.model = &m;
    CU_ASSERT_DOUBLE_EQUAL(gathers_s(&s->problem, 1), exposed_s, 1e-12);
}

/* The clock of a plan does not depend on the plans that were costed before it: what an evaluator remembers
 * of those with other stages, chunks, replicas and schedules is not theirs alone. */
static void test_remembered(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up("hgx-h200", s, &err), DTP_OK);
    s->problem.gpus = 48;
    s->problem.global_batch = 240;
    struct dtp_evaluator *seen = dtp_evaluator_create(a, &s->problem);
    struct dtp_plan plan = dtp_plan_default();
    plan.dtype = DTP_BF16;
    plan.global_batch_size = 240;
    int n = 0;
    for (plan.pp = 1; plan.pp <= 6; plan.pp++)
        for (plan.vpp = 1; plan.vpp <= 5; plan.vpp++) {
            if (48 % plan.pp != 0)
                continue;
            plan.zero_stage = 1 + plan.vpp % 2;
            plan.dp = 48 / plan.pp;
            plan.schedule = plan.vpp > 1 ? DTP_SCHED_INTERLEAVED : DTP_SCHED_1F1B;
            struct dtp_evaluator *fresh = dtp_evaluator_create(a, &s->problem);
            CU_ASSERT_EQUAL(dtp_evaluate_bound(seen, &plan), dtp_evaluate_bound(fresh, &plan));
            dtp_evaluator_destroy(fresh);
            n++;
        }
    dtp_evaluator_destroy(seen);
    CU_ASSERT_EQUAL(n, 25);
}

/* Layers of experts are part of the load, which ep divides: layers without them have a clock that depends
 * on it, too. */
static void test_remembered_experts(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    const struct dtp_ask ask = {.model = "deepseek-v2-lite",
                                .cluster = "dgx-b200",
                                .gpus = 32,
                                .batch = 64,
                                .dtype = -1,
                                .attention = -1};
    CU_ASSERT_EQUAL_FATAL(dtp_setup_init(a, &ask, s, &err), DTP_OK);
    CU_ASSERT_FATAL(s->cluster.gpu.power.idle_w > 0);
    struct dtp_evaluator *seen = dtp_evaluator_create(a, &s->problem);
    struct dtp_plan plan = dtp_plan_default();
    plan.dtype = s->problem.dtype;
    plan.global_batch_size = 64;
    plan.dp = 32;
    for (plan.ep = 1; plan.ep <= 32; plan.ep *= 2) {
        struct dtp_evaluator *fresh = dtp_evaluator_create(a, &s->problem);
        CU_ASSERT_EQUAL(dtp_evaluate_estimate(seen, &plan), dtp_evaluate_estimate(fresh, &plan));
        dtp_evaluator_destroy(fresh);
    }
    dtp_evaluator_destroy(seen);
}

/* What all ranks wait for in ZeRO-3, in the key of a clock: however layers are divided it is the same key. */
static void test_waits(void) {
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(set_up_gpus("hgx-h200", 48, s, &err), DTP_OK);
    struct dtp_plan plan = dtp_plan_default();
    plan.zero_stage = 3;
    plan.global_batch_size = 48;
    for (plan.dp = 2; plan.dp <= 12; plan.dp++) {
        plan.pp = 48 / plan.dp;
        if (plan.dp * plan.pp != 48)
            continue;
        struct dtp_placed placed;
        struct dtp_layer_key key;
        dtp_placed_make(&s->problem, &plan, &placed);
        dtp_layer_key_of(&s->problem, &plan, &placed, &key);
        struct dtp_native_waits waits = dtp_native_waits_of(&s->problem, &key);
        CU_ASSERT(waits.reduce_s > 0 && waits.gather_s > waits.layer_gather_s);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"legal where measured", test_legal_where_measured},
                           {"points", test_points},
                           {"power from loads", test_power_fit},
                           {"clock of layers", test_clock_of_layers},
                           {"clock with dropout", test_clock_with_dropout},
                           {"clock by bytes and head_dim", test_clock_by_bytes},
                           {"gap beside peers", test_gap_beside_peers},
                           {"head_dim", test_head_dim},
                           {"gradients of dropout", test_gradients_of_dropout},
                           {"droop", test_droop},
                           {"gathers of ZeRO-3", test_gathers},
                           {"waits of ZeRO", test_waits},
                           {"remembered clocks", test_remembered},
                           {"remembered clocks of experts", test_remembered_experts},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"times of our own kernels", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    a = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(a);
    return status;
}
