/* The clock at which a chip runs the layers of a model when they would take more power than it has. */
#include "models/ops/native.h"
#include "models/ops/op_build.h"
#include "models/schedule/schedule.h"

bool dtp_op_is_product(const struct dtp_op *op) {
    return op->kind == DTP_OP_GEMM || op->kind == DTP_OP_ATTENTION;
}

static double gemm_j_per_flop(const struct dtp_power_cal *p, enum dtp_dtype dtype) {
    double narrow = dtype == DTP_FP8 ? p->fp8_energy : dtype == DTP_FP4 ? p->fp4_energy : 0;
    return (narrow > 0 ? narrow : 1) * p->gemm_j_per_flop;
}

/* Kernels for 128 compute head_dim 80 and 96, too: these take their time and, on H200, within 10 % their energy
 * (traces/measured/check_cuda_h200.json, energy_of_kernels). */
static double computed_flops(const struct dtp_attention_shape *s) {
    static const int64_t width[] = {64, 128};
    double dim = (double)s->head_dim;
    for (size_t i = 0; i < sizeof width / sizeof width[0]; i++)
        if (s->head_dim <= width[i])
            return dtp_attention_flops(s) * (double)width[i] / dim;
    return dtp_attention_flops(s);
}

static double attention_j(const struct dtp_power_cal *p, const struct dtp_attention_shape *s) {
    double plain = s->backward ? p->attention_backward_j_per_flop : p->attention_j_per_flop;
    double drops =
        s->backward ? p->attention_dropout_backward_j_per_flop : p->attention_dropout_j_per_flop;
    return s->dropout && drops > 0 ? drops * dtp_attention_flops(s) : plain * computed_flops(s);
}

/* Bytes beyond the cache of what the kernel before has just written, or the next one reads. */
static double beyond_cache(const struct dtp_gpu *g, double bytes) {
    double l2_bytes = (double)g->l2_bytes;
    return bytes > l2_bytes ? bytes - l2_bytes : 0;
}

/* Weights, their gradients (fp32, added to) and what is kept for the backward come from memory or go there. */
static double gemm_bytes(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    enum { ADDED_BYTES = 8 };
    double e = dtp_dtype_bytes(s->dtype), m = (double)s->m, n = (double)s->n, k = (double)s->k;
    double in = beyond_cache(g, e * m * k), out = e * m * n;
    if (s->pass == DTP_GEMM_WGRAD)
        out = ADDED_BYTES * m * n;
    else if (s->pass == DTP_GEMM_DGRAD)
        out = beyond_cache(g, out);
    return (double)s->batch * (in + e * k * n + out);
}

/* Forward, queries, keys and values have just been made, the output is kept; backward, these four and its gradient are
 * read and three are made. */
static double attention_bytes(const struct dtp_gpu *g, const struct dtp_attention_shape *s) {
    enum { MADE = 3, KEPT = 4 };
    double e = dtp_dtype_bytes(s->dtype), rows = (double)(s->batch * s->seq_q);
    double each = e * rows * (double)(s->heads * s->head_dim), made = beyond_cache(g, MADE * each);
    return s->backward ? KEPT * each + beyond_cache(g, each) + made : each + made;
}

static double product_bytes(const struct dtp_gpu *g, const struct dtp_op *op) {
    return op->count * (op->kind == DTP_OP_GEMM ? gemm_bytes(g, &op->gemm)
                                                : attention_bytes(g, &op->attention));
}

/* Those that go with the clock. */
static double product_j(const struct dtp_power_cal *p, const struct dtp_op *op) {
    return op->kind == DTP_OP_GEMM ? dtp_op_flops(op) * gemm_j_per_flop(p, op->gemm.dtype)
                                   : op->count * attention_j(p, &op->attention);
}

double dtp_op_droop(const struct dtp_gpu *g, const struct dtp_op *op) {
    return 1 / (op->kind == DTP_OP_GEMM ? dtp_device_gemm_clock(g, &op->gemm)
                                        : dtp_device_attention_clock(g, &op->attention));
}

/* One operation `times` over. */
static void add_op(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                   const struct dtp_op *op, double times, struct dtp_load_mix *m) {
    const struct dtp_gpu *g = &problem->cluster->gpu;
    double time_s = times * dtp_op_seconds(problem, key, op);
    if (dtp_op_is_product(op)) {
        m->product_s += time_s;
        m->product_j += times * product_j(&g->power, op);
        if (g->power.j_per_byte > 0)
            m->other_j += times * g->power.j_per_byte * product_bytes(g, op);
    } else {
        m->other_s += time_s;
        m->other_j +=
            time_s * (op->kind == DTP_OP_KERNEL ? g->kernel[op->kernel].power_w : g->power.comm_w);
    }
    m->other_s += times * op->count * op->launches *
                  (g->kernel_gap_s + problem->framework->quirks.traced_gaps.kernel_gap_s);
}

/* Bubble over work, mean over the ranks (Narayanan 2021, section 2.2); a backward in two parts leaves a
 * third of it (Qi 2023). */
static double rest_of(const struct dtp_layer_key *all) {
    enum { SPLIT = 3 };
    double rest = (all->pp - 1.0) / all->vpp / all->microbatches;
    return dtp_schedule_kinds[all->schedule].split_backward ? rest / SPLIT : rest;
}

struct dtp_load_mix dtp_op_load(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                                const struct dtp_ops *ops) {
    struct dtp_load_mix m = {0};
    for (int i = 0; i < ops->n; i++)
        add_op(problem, key, &ops->at[i], ops->at[i].repeated ? 2 : 1, &m);
    return m;
}

static void whole_model(const struct dtp_model *m, int n[DTP_NLAYER_KINDS]) {
    struct dtp_plan whole = dtp_plan_default();
    dtp_stage_count(m, &whole, 0, n);
}

/* Collectives of ZeRO-2 and -3 in our own runtime: the chip rests while they are waited for, and takes their
 * power too while they run beside a layer. */
static void add_waits(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                      const struct dtp_load_mix *layer, double stretches, struct dtp_load_mix *m) {
    struct dtp_native_waits w = dtp_native_waits_of(problem, all);
    const double forward = 1.0 / 3, backward = 2.0 / 3; /* of a layer's time */
    double layer_s = layer->product_s + layer->other_s, hidden_s = 0;
    for (int pass = 0; pass < 2; pass++) {
        double beside_s = layer_s * (pass == 0 ? forward : backward);
        hidden_s +=
            problem->model->layers * (w.layer_gather_s < beside_s ? w.layer_gather_s : beside_s);
    }
    m->other_s += (w.reduce_s + w.gather_s - hidden_s) / stretches;
    m->other_j += problem->cluster->gpu.power.comm_w * (w.reduce_s + w.gather_s) / stretches;
}

/* A step of a stage, on the mean over the model: its bubble is one rest, while the pipeline fills before it
 * and empties behind it. The mean counts: the chip is slower to follow than a layer lasts. */
double dtp_op_slowdown(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                       const struct dtp_load_mix of[DTP_NLAYER_KINDS]) {
    int n[DTP_NLAYER_KINDS];
    double stretches = (double)all->pp / all->microbatches;
    struct dtp_load_mix mix = {.rest = rest_of(all)};
    whole_model(problem->model, n);
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        mix.product_s += n[k] * of[k].product_s / stretches;
        mix.product_j += n[k] * of[k].product_j / stretches;
        mix.other_s += n[k] * of[k].other_s / stretches;
        mix.other_j += n[k] * of[k].other_j / stretches;
    }
    if (problem->framework->kernels.native && all->zero_stage >= 2)
        add_waits(problem, all, &of[DTP_LAYER_DENSE], stretches, &mix);
    return dtp_power_slowdown(&problem->cluster->gpu, &mix);
}

bool dtp_op_follows_clock(enum dtp_layer_kind kind) {
    return dtp_layer_is_block(kind) || kind == DTP_LAYER_HEAD || kind == DTP_LAYER_MTP;
}

bool dtp_op_has_clock(const struct dtp_problem *problem, enum dtp_dtype dtype) {
    const struct dtp_gpu *g = &problem->cluster->gpu;
    const struct dtp_time_table *table = &g->table[DTP_TABLE_GEMM_FORWARD];
    return g->power.idle_w > 0 && (table->time_s.n == 0 || table->dtype == (int)dtype);
}

void dtp_op_set_clock(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                      enum dtp_layer_kind kind, struct dtp_ops *ops) {
    struct dtp_load_mix load[DTP_NLAYER_KINDS] = {0};
    struct dtp_ops other;
    int n[DTP_NLAYER_KINDS];
    if (!dtp_op_has_clock(problem, all->dtype) || !dtp_op_follows_clock(kind))
        return;
    whole_model(problem->model, n);
    for (int k = 0; k < DTP_NLAYER_KINDS; k++) {
        if (n[k] == 0 || !dtp_op_follows_clock((enum dtp_layer_kind)k))
            continue;
        struct dtp_layer_key one;
        dtp_layer_key_kind(problem, all, (enum dtp_layer_kind)k, &one);
        dtp_op_list(problem, &one, &other);
        load[k] = dtp_op_load(problem, &one, &other);
    }
    double slowdown = dtp_op_slowdown(problem, all, load);
    for (int i = 0; i < ops->n; i++) {
        double droop =
            dtp_op_is_product(&ops->at[i]) ? dtp_op_droop(&problem->cluster->gpu, &ops->at[i]) : 0;
        if (droop > 0)
            ops->at[i].slowdown = droop > slowdown ? droop : slowdown;
    }
}
