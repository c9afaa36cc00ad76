/* explain_budget.c: the operations of one rank added up over a step. */
#include <math.h>
#include <string.h>

#include "models/plan/plan.h"
#include "planner/cli/explain_private.h"

static double gemm_bytes(const struct dtp_gemm *g) {
    return (double)(g->m * g->k + g->k * g->n + g->m * g->n) * (double)g->batch *
           dtp_dtype_bytes(g->dtype);
}

static double attention_bytes(const struct dtp_attention_shape *s) {
    return (double)(s->batch * s->head_dim) *
           (double)(2 * s->heads * s->seq_q + 2 * s->kv_heads * s->seq_kv) *
           dtp_dtype_bytes(s->dtype);
}

static double op_bytes(const struct dtp_op *op) {
    switch (op->kind) {
    case DTP_OP_GEMM:
    case DTP_OP_BMM:
        return op->count * gemm_bytes(&op->gemm);
    case DTP_OP_ATTENTION:
        return op->count * attention_bytes(&op->attention);
    case DTP_OP_KERNEL:
    case DTP_OP_COLLECTIVE:
        break;
    }
    return op->count * op->bytes;
}

static double of_peak(const struct dtp_budget *b, const struct dtp_budget_row *r) {
    const struct dtp_gpu *gpu = &b->problem->cluster->gpu;
    if (r->op->kind == DTP_OP_COLLECTIVE || r->time_s <= 0)
        return NAN;
    if (r->op->kind == DTP_OP_KERNEL)
        return r->bytes / r->time_s / gpu->hbm_bytes_per_s;
    return r->flops / r->time_s / gpu->peak_flops_per_s[b->plan->dtype];
}

static bool same_gemm(const struct dtp_gemm *x, const struct dtp_gemm *y) {
    return x->dtype == y->dtype && x->pass == y->pass && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->batch == y->batch && x->whole_waves == y->whole_waves &&
           x->unaligned == y->unaligned;
}

/* A row that the operation joins: the same kernel on the same shape, as the two all-gathers of a layer. */
static struct dtp_budget_row *find(struct dtp_budget *b, const struct dtp_budget_row *r) {
    for (size_t i = 0; i < b->n; i++) {
        struct dtp_budget_row *o = &b->row[i];
        if (o->layer == r->layer && strcmp(o->pass, r->pass) == 0 &&
            strcmp(o->op->name, r->op->name) == 0 && o->op->kind == r->op->kind &&
            o->op->bytes == r->op->bytes && o->op->overlapped == r->op->overlapped &&
            same_gemm(&o->op->gemm, &r->op->gemm))
            return o;
    }
    return NULL;
}

static void add(struct dtp_budget *b, const struct dtp_op *op, const char *layer, const char *pass,
                double launches) {
    struct dtp_budget_row r = {
        .op = op, .layer = layer, .pass = pass, .times = launches * op->count};
    r.time_s = launches * dtp_op_time_s(b->problem, b->plan, op);
    r.flops = launches * dtp_op_flops(op);
    r.bytes = launches * op_bytes(op);
    b->time_s += r.time_s;
    if (op->kind != DTP_OP_COLLECTIVE)
        b->compute_s += r.time_s;
    struct dtp_budget_row *same = find(b, &r);
    if (same) {
        same->times += r.times;
        same->time_s += r.time_s;
        same->flops += r.flops;
        same->bytes += r.bytes;
        return;
    }
    r.of_peak = of_peak(b, &r);
    r.extrapolated =
        op->kind == DTP_OP_GEMM && !dtp_device_gemm_covered(&b->problem->cluster->gpu, &op->gemm);
    b->row = dtp_arena_room(b->a, b->row, sizeof *b->row, b->n, &b->capacity);
    b->row[b->n++] = r;
}

/* Layers of the stage, so many of them recomputed. */
static void add_layers(struct dtp_budget *b, enum dtp_layer_kind kind, double layers,
                       double again) {
    static const char *const kinds[DTP_NLAYER_KINDS] = {
        [DTP_LAYER_DENSE] = "layer",
        [DTP_LAYER_MOE] = "MoE layer",
        [DTP_LAYER_DENSE_WINDOW] = "window layer",
        [DTP_LAYER_MOE_WINDOW] = "MoE window layer",
        [DTP_LAYER_EMBEDDING] = "embedding",
        [DTP_LAYER_HEAD] = "head",
        [DTP_LAYER_MTP] = "prediction after next",
        [DTP_LAYER_CONV] = "convolutions",
    };
    if (layers <= 0)
        return;
    struct dtp_ops *ops = DTP_NEW(b->a, struct dtp_ops, 1);
    double m = dtp_plan_num_microbatches(b->plan);
    dtp_ops_layer(b->problem, b->plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        add(b, op, kinds[kind], dtp_pass_names[op->pass], layers * m);
        if (op->repeated && again > 0)
            add(b, op, kinds[kind], "R", again * m);
    }
}

void dtp_budget_fill(struct dtp_budget *b, int stage) {
    const struct dtp_model *m = b->problem->model;
    const struct dtp_plan *p = b->plan;
    int all[DTP_NLAYER_KINDS] = {0}, again[DTP_NLAYER_KINDS] = {0}; /* recomputed */
    for (int chunk = 0; chunk < p->vpp; chunk++) {
        int vs = dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, stage, chunk);
        int first = dtp_plan_first_layer(p, m, vs), n = dtp_stage_layers(m, p, vs);
        int here[DTP_NLAYER_KINDS];
        dtp_stage_count(m, p, vs, here);
        for (int k = 0; k < DTP_NLAYER_KINDS; k++)
            all[k] += here[k];
        if (p->recompute_layers > 0 && p->recompute_layers < n)
            n = p->recompute_layers;
        if (m->nconvs == 0)
            dtp_model_count_kinds(m, first, first + n, again);
    }
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        add_layers(b, (enum dtp_layer_kind)k, all[k], again[k]);
}
