#include "models/ops/native.h"

#include <math.h>

int64_t dtp_native_vocab(const struct dtp_model *m, int tp, enum dtp_dtype dtype) {
    enum { ROWS = 64, WIDE_BYTES = 4 };
    int64_t rows = (m->vocab + tp - 1) / tp;
    return dtp_dtype_bytes(dtype) < WIDE_BYTES ? (rows + ROWS - 1) / ROWS * ROWS : rows;
}

void dtp_native_of(const struct dtp_problem *problem, const struct dtp_native_sizes *p,
                   struct dtp_native *out) {
    const struct dtp_model *m = problem->model;
    struct dtp_native d = {.tokens = (int64_t)p->microbatch_size * problem->seq,
                           .hidden = m->hidden,
                           .seq = problem->seq,
                           .heads = m->heads / p->tp,
                           .kv_heads = m->kv_heads >= p->tp ? m->kv_heads / p->tp : 1,
                           .head_dim = m->head_dim,
                           .ffn = m->ffn / p->tp,
                           .vocab = dtp_native_vocab(m, p->tp, p->dtype),
                           .kv_copies = m->kv_heads >= p->tp ? 1 : p->tp / m->kv_heads,
                           .sp = p->sequence_parallel && p->tp > 1,
                           .dropout = problem->framework->kernels.dropout && m->dropout > 0,
                           .attention_dropout =
                               problem->framework->kernels.dropout && m->attention_dropout > 0};
    d.local_tokens = d.sp ? d.tokens / p->tp : d.tokens;
    d.q_width = d.heads * d.head_dim;
    d.kv_width = d.kv_heads * d.head_dim;
    d.qkv_width = d.q_width + 2 * d.kv_width;
    d.up_width = m->gated_ffn ? 2 * d.ffn : d.ffn;
    d.norm_params = d.hidden * (m->norm == DTP_NORM_LAYER && m->norm_bias ? 2 : 1);
    d.layer_params =
        2 * d.norm_params + d.hidden * (d.qkv_width + d.q_width) + d.hidden * (d.up_width + d.ffn);
    if (m->attention_bias || m->qkv_bias)
        d.layer_params += d.qkv_width;
    d.layer_params += m->attention_bias ? d.hidden : 0;
    d.layer_params += m->mlp_bias ? d.up_width + d.hidden : 0;
    *out = d;
}

static int64_t padded(int64_t n, int dp) {
    return (n + dp - 1) / dp * dp;
}

/* A stage without layers, by the ends of the model that it has. */
static void ends_of(const struct dtp_model *m, const struct dtp_native *d, int dp, bool first,
                    bool last, struct dtp_native_stage *out) {
    int64_t positions = m->max_positions > 0 ? m->max_positions : m->seq;
    *out = (struct dtp_native_stage){
        .first = first, .last = last, .layer_n = padded(d->layer_params, dp)};
    out->tied = out->first && out->last && m->tied_embeddings;
    if (out->first)
        out->tokens_n = padded(d->vocab * d->hidden, dp);
    if (out->first && m->position == DTP_POS_LEARNED)
        out->positions_n = padded(positions * d->hidden, dp);
    if (out->last)
        out->norm_n = padded(d->norm_params, dp);
    if (out->last && !out->tied)
        out->head_n = padded(d->vocab * d->hidden, dp);
}

void dtp_native_stage_of(const struct dtp_model *m, const struct dtp_cut *cut, int dp,
                         const struct dtp_native *d, int vs, struct dtp_native_stage *out) {
    ends_of(m, d, dp, vs == 0, vs == cut->pp * cut->vpp - 1, out);
    out->layers = dtp_cut_layers(cut, m, vs);
}

int64_t dtp_native_stage_params(const struct dtp_native_stage *s) {
    return s->tokens_n + s->positions_n + s->layers * s->layer_n + s->norm_n + s->head_n;
}

/* ---- communication inside actions ---- */

struct inline_comm {
    const struct dtp_problem *problem;
    const struct dtp_native *d;
    const struct dtp_group_shape *dp, *tp;
    enum dtp_dtype dtype;
    int zero_stage, replicas;
};

/* Weights travel in the plan's dtype, gradients as the framework reduces them. */
static double collective_s(const struct inline_comm *c, enum dtp_collective kind,
                           const struct dtp_group_shape *shape, double elements) {
    struct dtp_coll_cost cost;
    double bytes = elements * (kind == DTP_ALL_GATHER ? dtp_dtype_bytes(c->dtype)
                                                      : c->problem->framework->wire.reduce_bytes);
    if (!(elements > 0) || shape->size < 2)
        return 0;
    dtp_coll_cost(c->problem->cluster, kind, DTP_ALGO_AUTO, shape, bytes, &cost);
    return cost.time_s * c->problem->framework->wire.comm_time_factor +
           c->problem->framework->host.stream_hop_s;
}

static double kernel_s(const struct inline_comm *c, enum dtp_kernel k, double elements) {
    const struct dtp_gpu *g = &c->problem->cluster->gpu;
    double e = c->problem->framework->wire.reduce_bytes; /* of gradients */
    return dtp_device_kernel_s(g, k, 2 * e * elements, elements) + g->kernel_gap_s;
}

/* Gradients of `partial` parameters that each tp rank has a part of, in `runs` neighbouring runs. */
static double partial_s(const struct inline_comm *c, int runs, int64_t elements) {
    return c->d->sp ? runs * collective_s(c, DTP_ALL_REDUCE, c->tp, (double)elements / runs) : 0;
}

/* One unit: its partial gradients over tp, then over dp. */
static double reduce_s(const struct inline_comm *c, int64_t n, double over_tp_s) {
    int zero = c->zero_stage;
    if (n == 0)
        return 0;
    double t = over_tp_s;
    t += collective_s(c, zero > 0 ? DTP_REDUCE_SCATTER : DTP_ALL_REDUCE, c->dp, (double)n);
    if (zero >= 2) /* a fresh buffer, and the sum into the shard */
        t += kernel_s(c, DTP_K_COPY, (double)n) +
             kernel_s(c, DTP_K_ELEMENTWISE, (double)n / c->replicas);
    return t;
}

static double reduce_all_s(const struct inline_comm *c, const struct dtp_native_stage *s) {
    const struct dtp_native *d = c->d;
    double kv_s = 0;
    if (d->kv_copies > 1) { /* key-value heads that several ranks hold */
        struct dtp_group_shape kv = *c->tp;
        kv.size = kv.per_node = d->kv_copies;
        kv_s = collective_s(c, DTP_ALL_REDUCE, &kv, 2.0 * (double)(d->kv_width * d->hidden));
    }
    double layer_s = reduce_s(c, s->layer_n, kv_s + partial_s(c, 2, 2 * d->norm_params));
    return reduce_s(c, s->tokens_n, 0) +
           reduce_s(c, s->positions_n, partial_s(c, 1, s->positions_n)) + s->layers * layer_s +
           reduce_s(c, s->norm_n, partial_s(c, 1, d->norm_params)) + reduce_s(c, s->head_n, 0);
}

static double gather_s(const struct inline_comm *c, int64_t n) {
    return collective_s(c, DTP_ALL_GATHER, c->dp, (double)n);
}

static double gather_all_s(const struct inline_comm *c, const struct dtp_native_stage *s) {
    return gather_s(c, s->tokens_n) + gather_s(c, s->positions_n) +
           s->layers * gather_s(c, s->layer_n) + gather_s(c, s->norm_n) + gather_s(c, s->head_n);
}

static void phase_add(struct dtp_phase *p, double *part, double time_s) {
    *part += time_s;
    p->total_s += time_s;
}

/* Half of a transfer's copies is the sender's, half the receiver's. */
static double copy_s(const struct inline_comm *c) {
    struct dtp_coll_cost cost;
    double bytes = (double)(c->d->local_tokens * c->d->hidden) * dtp_dtype_bytes(c->dtype);
    dtp_p2p_cost(c->problem->cluster, 0, 1, 1, bytes, &cost);
    return (cost.time_s - cost.latency_s) / 2;
}

/* On streams of their own: of ZeRO-3's gathers what runs beside the layer before is hidden, and slows it. Nothing
 * runs beside the first. */
static double exposed_gather_s(const struct inline_comm *c, const struct dtp_native_stage *s,
                               double all_s, double compute_s) {
    double slowdown = c->problem->cluster->gpu.comm_slowdown;
    double layer_s = gather_s(c, s->layer_n), beside_s = s->layers > 0 ? compute_s / s->layers : 0;
    double hidden_s = s->layers > 0 ? (s->layers - 1) * fmin(layer_s, beside_s) : 0;
    return all_s - (1 - slowdown) * hidden_s;
}

static void wait_for(const struct inline_comm *c, const struct dtp_native_stage *s,
                     struct dtp_native_waits *out) {
    out->reduce_s += reduce_all_s(c, s);
    out->gather_s += c->zero_stage == 3 ? 2 * gather_all_s(c, s) : 0;
}

/* The stages' sum, from both ends and all layers: how layers are divided does not change a bit of it. */
struct dtp_native_waits dtp_native_waits_of(const struct dtp_problem *problem,
                                            const struct dtp_layer_key *all) {
    struct dtp_native_waits out = {0};
    if (!problem->framework->kernels.native || all->zero_stage < 2 || all->dp < 2 || !all->dp_shape)
        return out;
    struct dtp_native d;
    const struct dtp_native_sizes sizes = {all->tp, all->microbatch_size, all->sequence_parallel,
                                           all->dtype};
    dtp_native_of(problem, &sizes, &d);
    struct inline_comm c = {problem,         &d,     all->dp_shape, all->tp_shape, all->dtype,
                            all->zero_stage, all->dp};
    struct dtp_native_stage end,
        layers = {.layers = problem->model->layers, .layer_n = padded(d.layer_params, all->dp)};
    int last = all->pp * all->vpp - 1;
    for (int vs = 0; vs <= last; vs += last > 0 ? last : 1) {
        ends_of(problem->model, &d, all->dp, vs == 0, vs == last, &end);
        wait_for(&c, &end, &out);
    }
    wait_for(&c, &layers, &out);
    if (all->zero_stage == 3)
        out.layer_gather_s = gather_s(&c, layers.layer_n);
    return out;
}

/* Units are reduced during the last backward as they are done; the first layer's, the positions' and the tokens' are
 * done at its end: as so many equal ones that each takes as long as these. */
static int num_reductions(const struct inline_comm *c, const struct dtp_native_stage *s,
                          double all_s) {
    double end_s = reduce_s(c, s->layers > 0 ? s->layer_n : 0, 0) + reduce_s(c, s->positions_n, 0) +
                   reduce_s(c, s->tokens_n, 0);
    int n = end_s > 0 ? (int)(all_s / end_s + 1.0 / 2) : 1;
    return n > 1 ? n : 1;
}

/* A stage with what takes part in its communication. */
struct stage_comm {
    struct dtp_native d;
    struct dtp_native_stage s;
    struct inline_comm c;
};

static void stage_comm(const struct dtp_problem *problem, const struct dtp_update_key *key,
                       int microbatch_size, int vs, struct stage_comm *x) {
    const struct dtp_native_sizes sizes = {key->cut.tp, microbatch_size, key->sequence_parallel,
                                           key->dtype};
    dtp_native_of(problem, &sizes, &x->d);
    dtp_native_stage_of(problem->model, &key->cut, key->replicas, &x->d, vs, &x->s);
    x->c = (struct inline_comm){.problem = problem,
                                .d = &x->d,
                                .dp = key->placed->shape[DTP_AXIS_DP_CP],
                                .tp = key->placed->shape[DTP_AXIS_TP],
                                .dtype = key->dtype,
                                .zero_stage = key->zero_stage,
                                .replicas = key->replicas};
}

void dtp_native_phases(const struct dtp_problem *problem, const struct dtp_update_key *key,
                       int microbatch_size, int vs, struct dtp_stage_cost *out) {
    struct stage_comm x;
    stage_comm(problem, key, microbatch_size, vs, &x);
    int neighbours = (vs > 0) + (vs + 1 < key->cut.pp * key->cut.vpp);
    const struct dtp_framework *f = problem->framework;
    if (key->cut.pp > 1 && f->wire.inline_communication) {
        double copies_s = neighbours * copy_s(&x.c);
        phase_add(&out->f, &out->f.pp_s, copies_s);
        phase_add(&out->i, &out->i.pp_s, copies_s);
    }
    if (key->zero_stage >= 2)
        phase_add(&out->w, &out->w.dp_s, reduce_all_s(&x.c, &x.s));
    if (key->zero_stage < 3)
        return;
    double gather = gather_all_s(&x.c, &x.s);
    double again = x.s.tied ? gather_s(&x.c, x.s.tokens_n) : 0; /* for the head */
    if (!f->wire.inline_communication) {
        phase_add(&out->f, &out->f.dp_s,
                  exposed_gather_s(&x.c, &x.s, gather + again, out->f.total_s));
        phase_add(&out->i, &out->i.dp_s,
                  exposed_gather_s(&x.c, &x.s, gather, out->i.total_s + out->w.total_s));
    } else {
        double ends =
            gather_s(&x.c, x.s.positions_n) + (x.s.tied ? 0 : gather_s(&x.c, x.s.tokens_n));
        phase_add(&out->f, &out->f.dp_s, gather + again);
        phase_add(&out->i, &out->i.dp_s, gather - ends);
    }
}

void dtp_native_reductions(const struct dtp_problem *problem, const struct dtp_update_key *key,
                           int vs, struct dtp_stage_cost *out) {
    struct stage_comm x;
    stage_comm(problem, key, 0, vs, &x);
    bool streams = !problem->framework->wire.inline_communication;
    double reduce = key->zero_stage < 2 ? reduce_all_s(&x.c, &x.s) : 0;
    int n = out->nreduce = streams && key->zero_stage < 2 && key->replicas > 1
                               ? num_reductions(&x.c, &x.s, reduce)
                               : 1;
    if (key->zero_stage < 2)
        out->reduce =
            (struct dtp_comm){.kind = DTP_ALL_REDUCE,
                              .axis = DTP_AXIS_DP_CP,
                              .time_s = reduce / n,
                              .latency_s = reduce / n,
                              .device_share = streams ? problem->cluster->gpu.comm_slowdown : 0};
    bool gathers = key->zero_stage == 1 || key->zero_stage == 2;
    double gather = gathers ? gather_all_s(&x.c, &x.s) : 0;
    if (gathers)
        out->gather = (struct dtp_comm){.kind = DTP_ALL_GATHER,
                                        .axis = DTP_AXIS_DP_CP,
                                        .time_s = gather / n,
                                        .latency_s = gather / n};
}
