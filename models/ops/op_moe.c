/* A layer of experts as Megatron-Core and its like run it: router, permutation, all-to-all, grouped
 * products, and the way back (Lepikhin 2020, section 2; Fedus 2021; Gale 2022 for dropless routing). */
#include <math.h>

#include "models/ops/op_internal.h"

/* Rows of one microbatch on their way to the experts of a rank. */
struct routed {
    double own;     /* tokens that this rank routes */
    double sent;    /* rows that it sends: each token top_k times */
    double local;   /* experts that it holds */
    double fullest; /* load of the fullest rank over the mean */
    double rows;    /* rows that the fullest rank's experts work on */
    bool gathered;  /* over etp, whose ranks each route different tokens */
};

/* The experts of a rank average their loads, so that the excess of the fullest falls with the root of their
 * number. A capacity cuts the excess off and pads the rest; without expert parallelism all rows stay. */
static struct routed route(const struct dtp_op_build *b) {
    const struct dtp_moe *moe = &b->m->moe;
    double capacity = dtp_framework_capacity(b->f, b->m);
    bool capped = capacity > 0, split = b->key->sequence_parallel;
    int etp = b->key->etp;
    struct routed r = {.own = split ? b->tokens / b->t : b->tokens,
                       .local = moe->experts / (double)b->key->ep,
                       .fullest = 1,
                       .gathered = etp > 1 && (split || b->key->tp == 1)};
    r.sent = r.own * moe->top_k * (capped ? capacity : 1);
    if (b->key->ep > 1 && !capped && b->f->kernels.moe_imbalance > 1)
        r.fullest += (b->f->kernels.moe_imbalance - 1) / sqrt(r.local);
    r.rows = r.sent * r.fullest * (r.gathered ? etp : 1);
    return r;
}

/* The rows of an expert do not fill their last tile: half of one is lost on the mean, or what is known to be
 * missing where a capacity says how many they are. */
static const double tile = 128;

static double tiled(const struct dtp_op_build *b, double rows) {
    return dtp_framework_capacity(b->f, b->m) > 0 ? tile * ceil(rows / tile) : rows + tile / 2;
}

/* Repeats the operations from `from` on for one of n experts after another. */
static void one_by_one(struct dtp_op_build *b, int from, double n) {
    for (int i = from; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        op->count = n;
        op->gemm.batch = 1;
        op->bytes /= n;
        op->elements /= n;
    }
}

static void products(struct dtp_op_build *b, const struct routed *r, double rows, double groups) {
    double in = b->m->gated_ffn ? 2 : 1, kept = dtp_op_input_bytes(b, r->rows * b->h);
    if (in > 1 && b->f->kernels.moe_separate_products) {
        dtp_op_linears(b, "experts gate", (struct dtp_op_shape){rows, b->ffn, b->h, groups}, kept);
        dtp_op_linears(b, "experts up", (struct dtp_op_shape){rows, b->ffn, b->h, groups}, 0);
        dtp_op_kernel(b, "input gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE,
                      3 * b->e * r->rows * b->h, r->rows * b->h);
    } else {
        dtp_op_linears(b, "experts fc1", (struct dtp_op_shape){rows, in * b->ffn, b->h, groups},
                       kept);
    }
    int activation = b->out->n;
    dtp_op_activation(b, r->rows, b->m->mlp_bias);
    dtp_op_again(b, activation, DTP_BIT_MOE_ACT);
    int down = b->out->n;
    dtp_op_linears(b, "experts fc2", (struct dtp_op_shape){rows, b->h, b->ffn, groups},
                   dtp_op_input_bytes(b, r->rows * b->ffn));
    dtp_op_input_dropped(b, down, DTP_BIT_MOE_ACT);
}

static void experts(struct dtp_op_build *b, const struct routed *r) {
    double ffn = b->ffn, t = b->t;
    double groups = r->local < r->rows ? r->local : r->rows; /* those that can have a row */
    double rows = r->rows / groups;
    bool loop = b->f->quirks.expert_loop.moe_expert_loop && groups > 1, fused = b->fused_activation;
    int from = b->out->n;
    b->ffn = b->m->moe.ffn / (double)b->key->etp;
    b->t = 1; /* a rank casts all rows that it works on: none is its part of a gather to come */
    b->fused_activation = fused || b->f->quirks.fused_experts.moe_fused_activation;
    if (groups > 1 && !loop) /* single products lose what of a tile they lack */
        rows = tiled(b, rows);
    products(b, r, rows, groups);
    if (loop) {
        one_by_one(b, from, groups);
        for (int pass = DTP_PASS_F; pass <= DTP_PASS_I;
             pass++) /* outputs put together, gradients */
            dtp_op_kernel(b, "rows of all experts", (enum dtp_pass)pass, DTP_K_COPY,
                          2 * b->e * r->rows * b->h, r->rows * b->h);
    }
    b->fused_activation = fused;
    b->ffn = ffn;
    b->t = t;
}

static double *last_saved_bytes(struct dtp_op_build *b) {
    return &b->out->at[b->out->n - 1].saved_bytes;
}

/* Rows ordered by expert before they are sent. Unfused: index_select, whose gradient is added into zeros by
 * index_add_. Gathers of rows and copies of chunks reach the memory's rate. */
static void permute(struct dtp_op_build *b, const struct routed *r) {
    double x = r->sent * b->h, bytes = b->e * (x + r->own * b->h);
    bool fused = b->f->kernels.moe_fused_permute;
    dtp_op_kernel(b, "permute", DTP_PASS_F, DTP_K_EMBEDDING, bytes, x);
    dtp_op_kernel(b, "permute", DTP_PASS_I, fused ? DTP_K_EMBEDDING : DTP_K_STRIDED, bytes,
                  (fused ? 1 : b->problem->cluster->gpu.index_add_elements) * x);
}

/* Rows gathered into the order of the tokens, times their weights in fp32 and summed over top_k; the rows are
 * kept for the gradient of the weights, the sum of their products with that of the output. */
static void gather_back(struct dtp_op_build *b, const struct routed *r) {
    double x = r->sent * b->h, own = r->own * b->h, e = b->e;
    dtp_op_kernel(b, "unpermute", DTP_PASS_F, DTP_K_EMBEDDING, 2 * e * x, x);
    dtp_op_kernel(b, "weigh rows", DTP_PASS_F, DTP_K_STRIDED, (e + 4) * x, x);
    *last_saved_bytes(b) = e * x;
    dtp_op_kernel(b, "sum of rows", DTP_PASS_F, DTP_K_REDUCE, 4 * x + e * own, x);
    dtp_op_kernel(b, "weigh rows", DTP_PASS_I, DTP_K_STRIDED, e * x + 4 * own, x);
    dtp_op_kernel(b, "weights' gradient", DTP_PASS_I, DTP_K_ELEMENTWISE, (e + 4) * x + 4 * own, x);
    dtp_op_kernel(b, "weights' gradient", DTP_PASS_I, DTP_K_REDUCE, 4 * x, x);
    dtp_op_kernel(b, "unpermute", DTP_PASS_I, DTP_K_EMBEDDING, 2 * e * x, x);
}

/* Moves rows back where they came from; each token is the sum of its rows. */
static void unpermute(struct dtp_op_build *b, const struct routed *r) {
    double x = r->sent * b->h, bytes = b->e * (x + r->own * b->h);
    if (b->f->kernels.moe_gathers_rows) {
        gather_back(b, r);
        return;
    }
    bool fused = b->f->kernels.moe_fused_permute;
    dtp_op_kernel(b, "unpermute", DTP_PASS_F, fused ? DTP_K_EMBEDDING : DTP_K_STRIDED, bytes,
                  (fused ? 1 : b->problem->cluster->gpu.scatter_add_elements) * x);
    dtp_op_kernel(b, "unpermute", DTP_PASS_I, DTP_K_EMBEDDING, bytes, x);
}

/* Rows times the weights of their experts, which is not part of the experts' activation: kept for the
 * gradient of the weights, the sums of the products of a row and its gradient. */
static void weigh(struct dtp_op_build *b, const struct routed *r) {
    double x = r->sent * b->h, e = b->e;
    if (!b->f->quirks.weighed_rows.moe_weighs_rows || b->f->kernels.moe_gathers_rows)
        return;
    if (b->f->kernels.moe_fused_permute) {
        dtp_op_kernel(b, "weights' gradient", DTP_PASS_I, DTP_K_EMBEDDING, e * x, x)->launches = 0;
        *last_saved_bytes(b) = e * x;
        return;
    }
    dtp_op_kernel(b, "weigh rows", DTP_PASS_F, DTP_K_STRIDED, 2 * e * x, x);
    *last_saved_bytes(b) = e * x;
    dtp_op_kernel(b, "weigh rows", DTP_PASS_I, DTP_K_STRIDED, 2 * e * x, x);
    dtp_op_kernel(b, "weights' gradient", DTP_PASS_I, DTP_K_ELEMENTWISE, 3 * e * x, x);
    dtp_op_kernel(b, "weights' gradient", DTP_PASS_I, DTP_K_REDUCE, e * x, x);
}

/* Rows that came from several ranks, by the rank's own experts, and back: chunks put together, or, where all
 * are of one capacity, a transpose. */
static void sort_chunks(struct dtp_op_build *b, const struct routed *r, const char *name) {
    double x = r->rows * b->h;
    enum dtp_kernel k = dtp_framework_capacity(b->f, b->m) > 0 ? DTP_K_STRIDED : DTP_K_COPY;
    if (r->local <= 1 || (b->key->ep == 1 && !r->gathered))
        return;
    for (int pass = DTP_PASS_F; pass <= DTP_PASS_I; pass++)
        dtp_op_kernel(b, name, (enum dtp_pass)pass, k, 2 * b->e * x, x);
}

static void exchange(struct dtp_op_build *b, const struct routed *r, const char *name) {
    for (int pass = DTP_PASS_F; b->key->ep > 1 && pass <= DTP_PASS_I; pass++)
        dtp_op_collective(b, name, (enum dtp_pass)pass, DTP_ALL_TO_ALL, DTP_AXIS_EP,
                          b->e * r->sent * r->fullest * b->h)
            ->overlapped = b->key->ep_overlap;
}

/* The ranks among which an expert is divided gather the rows that each got, top_k times the tokens of the
 * dense layer, and scatter the sums. */
static void gather_rows(struct dtp_op_build *b, const struct routed *r, bool back) {
    double bytes = b->e * r->rows * b->h;
    if (!r->gathered)
        return;
    dtp_op_collective(b, back ? "etp reduce-scatter rows" : "etp all-gather rows", DTP_PASS_F,
                      back ? DTP_REDUCE_SCATTER : DTP_ALL_GATHER, DTP_AXIS_ETP, bytes);
    dtp_op_collective(b, back ? "etp all-gather dY" : "etp reduce-scatter dX", DTP_PASS_I,
                      back ? DTP_ALL_GATHER : DTP_REDUCE_SCATTER, DTP_AXIS_ETP, bytes);
}

/* Product in 16 bit, or of fp32 copies; softmax, top-k, auxiliary loss, counts and the map of rows are separate kernels
 * on n x experts elements in fp32. */
static void router(struct dtp_op_build *b, const struct routed *r) {
    double elements = r->own * b->m->moe.experts, x = r->own * b->h;
    enum dtp_dtype dtype = b->dtype;
    bool wide = b->f->kernels.moe_router_fp32 && b->e < 4;
    b->dtype = wide ? DTP_FP32 : dtp_dtype_narrow(dtype) ? DTP_BF16 : dtype;
    if (wide) {
        dtp_op_kernel(b, "tokens to fp32", DTP_PASS_F, DTP_K_COPY, (b->e + 4) * x, x);
        dtp_op_kernel(b, "gradient to 16 bit", DTP_PASS_I, DTP_K_COPY, (b->e + 4) * x, x);
    }
    int from = b->out->n;
    dtp_op_linear(b, "router", r->own, b->h, b->m->moe.experts, (wide ? 4 : b->e) * x);
    dtp_op_input_dropped(b, from, DTP_BIT_LAYERNORM);
    b->dtype = dtype;
    dtp_op_kernel(b, "router softmax and top-k", DTP_PASS_F, DTP_K_SOFTMAX, 32 * elements,
                  4 * elements)
        ->launches = 12;
    dtp_op_kernel(b, "router softmax and top-k", DTP_PASS_I, DTP_K_SOFTMAX_BACKWARD, 16 * elements,
                  2 * elements)
        ->launches = 6;
}

static void shared_experts(struct dtp_op_build *b) {
    double ffn = b->ffn;
    bool apart = b->key->sequence_parallel; /* routed rows were gathered on their own */
    if (b->m->moe.shared_experts == 0)
        return;
    b->ffn = b->m->moe.ffn * b->m->moe.shared_experts / b->t;
    int from = b->out->n;
    if (apart)
        dtp_op_tp_enter(b);
    dtp_op_mlp(b, "shared fc1", "shared fc2", b->tokens, 0);
    if (apart)
        dtp_op_tp_leave(b);
    dtp_op_again(b, from, DTP_BIT_SHARED_EXPERTS);
    dtp_op_dropped(b, from, DTP_BIT_SHARED_EXPERTS);
    b->ffn = ffn;
}

void dtp_op_moe(struct dtp_op_build *b) {
    struct routed r = route(b);
    int from = b->out->n;
    bool whole = !b->key->sequence_parallel; /* every rank of a tp group routes all tokens */
    if (whole)
        dtp_op_tp_enter(b);
    router(b, &r); /* what it read is what an ordinary checkpoint of all this keeps */
    int routed = b->out->n;
    permute(b, &r);
    exchange(b, &r, "ep dispatch");
    gather_rows(b, &r, false);
    sort_chunks(b, &r, "rows by expert");
    experts(b, &r);
    sort_chunks(b, &r, "rows by rank");
    gather_rows(b, &r, true);
    exchange(b, &r, "ep combine");
    weigh(b, &r);
    unpermute(b, &r);
    shared_experts(b);
    if (whole)
        dtp_op_tp_leave(b);
    dtp_op_again(b, from, DTP_BIT_MOE);
    dtp_op_dropped(b, routed, DTP_BIT_MOE);
}
