#include "models/ops/op.h"

#include <assert.h>

#include "models/ops/op_build.h"
#include <string.h>

/* ---- casts of what FP8 and FP4 products read ---- */

/* Scales of whole tensors in TransformerEngine's modules, of which what follows is known kernel by kernel. */
static bool known(const struct dtp_op_build *b) {
    return b->dtype == DTP_FP8 && b->f->kernels.fp8_keeps_casts &&
           b->f->kernels.fp8_cast_bytes == 0 && b->f->kernels.fp8_recipe != DTP_FP8_BLOCK;
}

/* Its kernel writes the cast where the scale is known before it runs (TransformerEngine 1.11,
 * module/layernorm_linear.py). */
void dtp_op_norm_within(struct dtp_op_build *b, int from) {
    b->norm_cast = false;
    for (int i = from; i < b->out->n && known(b) && b->f->kernels.fp8_recipe == DTP_FP8_DELAYED;
         i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass == DTP_PASS_F && op->kind == DTP_OP_KERNEL && op->kernel == DTP_K_NORM) {
            op->bytes -= (b->e - 1) * op->elements;
            b->norm_cast = true;
        }
    }
}

/* FP8 products of Ada, Hopper and the Blackwell of graphics cards read both operands along the summed dimension alone,
 * so that weight gradients need them transposed; those of sm_10x and sm_11x do not (is_non_tn_fp8_gemm_supported() of
 * TransformerEngine 2). */
static bool transposes(const struct dtp_op_build *b) {
    const char *arch = b->problem->cluster->gpu.arch;
    return known(b) && arch &&
           (strncmp(arch, "sm_8", 4) == 0 || strncmp(arch, "sm_9", 4) == 0 ||
            strncmp(arch, "sm_12", 5) == 0);
}

static void cast(struct dtp_op_build *b, enum dtp_pass pass, double elements, double part,
                 double bytes) {
    dtp_op_kernel(b, "fp8 cast", pass, DTP_K_COPY, bytes * part * elements, part * elements);
}

/* Input and output gradient are cast to FP8 and transposed for the weight gradient (Micikevicius 2022;
 * TransformerEngine); with sequence parallelism each rank casts its part of what is gathered next: the h wide input
 * of a column-parallel layer, the output gradient of a row-parallel one. What was gathered, and what a norm wrote, is
 * transposed by a kernel of its own (TransformerEngine 1.11, module/base.py, grad_output_preprocess(), and
 * layernorm_linear.py); else the cast writes both. */
static void casts(struct dtp_op_build *b, struct dtp_op_shape s) {
    double in = s.m * s.k * s.batch, out = s.m * s.n * s.batch;
    bool both = transposes(b),
         split = b->key->sequence_parallel && b->t > 1 &&
                 !b->f->quirks.gathered_casts.fp8_cast_after_gather,
         in_gathered = split && !s.row_parallel && s.k >= b->h,
         out_gathered = split && s.row_parallel, by_norm = b->norm_cast && !s.row_parallel;
    double bytes = dtp_framework_cast_bytes(b->f, b->dtype), alone = known(b) ? bytes - 1 : bytes,
           part = split ? 1 / b->t : 1, whole = both ? bytes : alone;
    if (!by_norm)
        cast(b, DTP_PASS_F, in, in_gathered ? part : 1, in_gathered ? alone : whole);
    cast(b, DTP_PASS_I, out, out_gathered ? part : 1, out_gathered ? alone : whole);
    double apart = (in_gathered || by_norm ? in : 0) + (out_gathered ? out : 0);
    if (both && apart > 0)
        dtp_op_kernel(b, "fp8 transpose", DTP_PASS_W, DTP_K_COPY, 2 * apart, apart);
}

/* ---- what products keep of their inputs for the weight gradient ---- */

/* An input that nothing else needs is kept as its FP8 cast alone, rowwise where the backward gathers it and
 * transposed elsewhere (TransformerEngine, module/linear.py and layernorm_linear.py: update_usage before
 * save_for_backward). One byte an element; the scales of MXFP8 (1/32 byte) are left out, NVFP4 counts as FP8. */
double dtp_op_input_bytes(const struct dtp_op_build *b, double elements) {
    return (dtp_dtype_narrow(b->dtype) && b->f->kernels.fp8_keeps_casts ? 1 : b->e) * elements;
}

/* What attention made: its projection keeps the 16-bit tensor that attention's own backward needs too
 * (Megatron-Core, attention.py: save_original_input), or with delayed scaling, whose scale has passed on by then,
 * a cast of it as of any input; attention then keeps the other (fused_core()). */
double dtp_op_context_bytes(const struct dtp_op_build *b, double elements) {
    return b->f->kernels.fp8_recipe == DTP_FP8_DELAYED ? dtp_op_input_bytes(b, elements)
                                                       : b->e * elements;
}

/* Input of a column-parallel layer that is kept for its weight gradient: the shard (Korthikanti 2022,
 * section 4.2.2). */
double dtp_op_column_input_bytes(const struct dtp_op_build *b) {
    return dtp_op_input_bytes(b, b->z);
}

/* ---- what recomputation repeats ---- */

void dtp_op_again(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].again_by |= b->out->at[i].pass == DTP_PASS_F ? modules : 0;
}

void dtp_op_dropped(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++)
        b->out->at[i].dropped_by |= b->out->at[i].pass == DTP_PASS_F ? modules : 0;
}

void dtp_op_input_dropped(struct dtp_op_build *b, int from, int modules) {
    for (int i = from; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass == DTP_PASS_F)
            *(op->kind == DTP_OP_GEMM ? &op->dropped_by : &op->again_by) |= modules;
    }
}

static void set_core(struct dtp_op *op, bool is) {
    op->again_by = op->dropped_by = is ? DTP_BIT_CORE_ATTN : 0;
}

/* Selective recomputation as torchtitan has it: what attention and every second product made stays,
 * the rest is repeated. FP8 products are none of those that its list names (aten.mm): all are repeated but the
 * last, whose output no backward reads. */
static void alternate_products(struct dtp_op_build *b) {
    double all = 0, kept = b->e * b->z;
    bool repeated = true, listed = !dtp_dtype_narrow(b->dtype);
    struct dtp_op *attention = NULL, *first = NULL, *last = NULL;
    for (int i = 0; i < b->out->n; i++) {
        struct dtp_op *op = &b->out->at[i];
        if (op->pass != DTP_PASS_F)
            continue;
        all += op->saved_bytes;
        op->saved_bytes = 0;
        set_core(op, op->kind == DTP_OP_KERNEL);
        if (op->kind == DTP_OP_GEMM) {
            repeated = !repeated || !listed;
            set_core(op, repeated);
            last = op;
            kept += repeated ? 0 : b->e * (double)(op->gemm.m * op->gemm.n * op->gemm.batch);
        } else if (op->kind == DTP_OP_ATTENTION) {
            attention = op;
            kept += b->e * b->tokens * b->q_width;
        }
        first = first ? first : op;
    }
    if (!attention)
        return;
    if (!listed && last)
        set_core(last, false);
    attention->saved_bytes = kept;
    set_core(first, true);
    first->saved_bytes = all > kept ? all - kept : 0;
    b->out->mlp = 0; /* the layer is repeated as a whole */
}

/* Number of operations that full recomputation repeats: all, or as PyTorch's checkpoint does without
 * re-entering autograd: up to the last tensor that the forward kept. A GEMM keeps its inputs, so that
 * it does not run itself; another kernel keeps what it makes. */
static int recomputed_ops(const struct dtp_framework *f, const struct dtp_ops *ops) {
    if (!f->kernels.recompute_stops_early)
        return ops->n;
    for (int i = ops->n - 1; i >= 0; i--)
        if (ops->at[i].pass == DTP_PASS_F && ops->at[i].saved_bytes > 0)
            return ops->at[i].kind == DTP_OP_GEMM ? i : i + 1;
    return 0;
}

static void set_repeated(const struct dtp_framework *f, const struct dtp_layer_key *key,
                         struct dtp_ops *ops) {
    int recomputed = key->recompute == DTP_RECOMPUTE_FULL ? recomputed_ops(f, ops) : 0;
    int modules = key->recompute_modules;
    for (int i = 0; i < ops->n; i++) {
        struct dtp_op *op = &ops->at[i];
        op->repeated =
            op->pass == DTP_PASS_F && (i < recomputed || (modules & op->again_by) || op->again);
    }
}

/* ---- operations ---- */

const char *const dtp_pass_names[] = {"F", "I", "W", NULL};
const char *const dtp_op_kind_names[] = {"gemm", "bmm", "attention", "kernel", "collective", NULL};

struct dtp_op *dtp_op_add(struct dtp_op_build *b, const char *name, enum dtp_op_kind kind,
                          enum dtp_pass pass) {
    assert(b->out->n < DTP_MAX_OPS);
    struct dtp_op *op = &b->out->at[b->out->n++];
    *op = (struct dtp_op){
        .name = name, .kind = kind, .pass = pass, .count = 1, .slowdown = 1, .launches = 1};
    return op;
}

struct dtp_op *dtp_op_kernel(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                             enum dtp_kernel k, double bytes, double elements) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_KERNEL, pass);
    op->kernel = k;
    op->bytes = bytes;
    op->elements = elements;
    return op;
}

void dtp_op_gemm(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                 struct dtp_op_shape s) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_GEMM, pass);
    enum dtp_gemm_pass gemm_pass = pass == DTP_PASS_F   ? DTP_GEMM_FORWARD
                                   : pass == DTP_PASS_I ? DTP_GEMM_DGRAD
                                                        : DTP_GEMM_WGRAD;
    op->gemm = (struct dtp_gemm){.dtype = b->dtype,
                                 .pass = gemm_pass,
                                 .m = (int64_t)s.m,
                                 .n = (int64_t)s.n,
                                 .k = (int64_t)s.k,
                                 .batch = (int64_t)s.batch,
                                 .whole_waves = b->f->kernels.whole_gemm_waves};
}

void dtp_op_linears(struct dtp_op_build *b, const char *name, struct dtp_op_shape s,
                    double saved_bytes) {
    dtp_op_gemm(b, name, DTP_PASS_F, s);
    b->out->at[b->out->n - 1].saved_bytes = saved_bytes;
    dtp_op_gemm(b, name, DTP_PASS_I, (struct dtp_op_shape){s.m, s.k, s.n, s.batch});
    dtp_op_gemm(b, name, DTP_PASS_W, (struct dtp_op_shape){s.k, s.n, s.m, s.batch});
    if (dtp_dtype_narrow(b->dtype))
        casts(b, s);
}

void dtp_op_linear(struct dtp_op_build *b, const char *name, double rows, double in, double out,
                   double saved_bytes) {
    dtp_op_linears(b, name, (struct dtp_op_shape){rows, out, in, 1}, saved_bytes);
}

struct dtp_op *dtp_op_collective(struct dtp_op_build *b, const char *name, enum dtp_pass pass,
                                 enum dtp_collective kind, enum dtp_axis axis, double bytes) {
    struct dtp_op *op = dtp_op_add(b, name, DTP_OP_COLLECTIVE, pass);
    op->collective = kind;
    op->axis = axis;
    op->bytes = bytes;
    return op;
}

/* Entry of a column-parallel block (Shoeybi 2019, section 3; with sequence parallelism Korthikanti
 * 2022, section 4.2.2): the forward gathers the sequence, the backward reduces the input gradient; the
 * sharded input is gathered once more for the weight gradient. */
void dtp_op_tp_enter(struct dtp_op_build *b) {
    if (b->key->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->key->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce dX", DTP_PASS_I, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes)
            ->overlapped = b->tp_overlap;
        return;
    }
    double gathered =
        dtp_dtype_narrow(b->dtype) ? bytes / b->e : bytes; /* cast before the gather */
    dtp_op_collective(b, "tp all-gather", DTP_PASS_F, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = b->tp_overlap && b->f->wire.tp_overlap_forward;
    dtp_op_collective(b, "tp all-gather X", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = b->tp_overlap;
    dtp_op_collective(b, "tp reduce-scatter dX", DTP_PASS_I, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = b->tp_overlap;
}

/* Exit of a row-parallel block: the forward sums the partial outputs; the backward gathers the sharded
 * output gradient (sequence parallelism) or copies it (none). */
void dtp_op_tp_leave(struct dtp_op_build *b) {
    if (b->key->tp == 1)
        return;
    double bytes = b->tokens * b->h * b->e;
    if (!b->key->sequence_parallel) {
        dtp_op_collective(b, "tp all-reduce", DTP_PASS_F, DTP_ALL_REDUCE, DTP_AXIS_TP, bytes);
        return;
    }
    bool whole = b->tp_overlap && b->f->wire.tp_overlap_forward;
    dtp_op_collective(b, "tp reduce-scatter", DTP_PASS_F, DTP_REDUCE_SCATTER, DTP_AXIS_TP, bytes)
        ->overlapped = whole;
    double gathered = dtp_dtype_narrow(b->dtype) ? bytes / b->e : bytes;
    dtp_op_collective(b, "tp all-gather dY", DTP_PASS_I, DTP_ALL_GATHER, DTP_AXIS_TP, gathered)
        ->overlapped = whole;
}

void dtp_op_norm(struct dtp_op_build *b, const char *name, double elements, double saved_bytes) {
    if (!b->f->kernels.fused_norm && b->m->norm == DTP_NORM_RMS) {
        dtp_op_eager_rms_norm(b, elements);
        return;
    }
    /* Reads x and writes y. Backward: dx reads x and dy and writes dx, the parameters read both again. */
    double x = b->f->quirks.fp32_norms.norm_fp32 ? 4 : b->e, y = b->e;
    bool again = b->f->quirks.fp32_norms.repeats_norms;
    if (b->f->quirks.fp32_norms.norm_fp32) {
        dtp_op_kernel(b, "norm to fp32", DTP_PASS_F, DTP_K_COPY, (x + y) * elements, elements)
            ->again = again;
        dtp_op_kernel(b, "norm gradient to 16 bit", DTP_PASS_I, DTP_K_COPY, (x + y) * elements,
                      elements);
    }
    struct dtp_op *f = dtp_op_kernel(b, name, DTP_PASS_F, DTP_K_NORM, (x + y) * elements, elements);
    f->again = again;
    f->saved_bytes = again ? saved_bytes : saved_bytes * x / b->e;
    dtp_op_kernel(b, name, DTP_PASS_I, DTP_K_NORM_BACKWARD, (2 * x + y) * elements, elements);
    dtp_op_kernel(b, "norm parameters", DTP_PASS_W, DTP_K_NORM_BACKWARD, (x + y) * elements,
                  elements)
        ->launches = 2; /* partial sums, then their sum */
}

/* Output of a block: bias, dropout and the residual add (7 z bytes in one kernel with a mask of one
 * byte). */
void dtp_op_residual(struct dtp_op_build *b, bool bias) {
    double mask = b->dropout ? 1 : 0, e = b->e;
    if (b->f->kernels.fused_bias_dropout_add || (!b->dropout && !bias)) {
        dtp_op_kernel(b, "bias dropout add", DTP_PASS_F,
                      b->dropout ? DTP_K_DROPOUT : DTP_K_ELEMENTWISE, (3 * e + mask) * b->z, b->z)
            ->saved_bytes = mask * b->z;
    } else {
        if (bias && !b->f->kernels.fused_linear_bias)
            dtp_op_kernel(b, "bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * b->z, b->z);
        if (b->dropout)
            dtp_op_kernel(b, "dropout", DTP_PASS_F, DTP_K_DROPOUT, (2 * e + 1) * b->z, b->z)
                ->saved_bytes = b->z;
        dtp_op_kernel(b, "residual add", DTP_PASS_F, DTP_K_ELEMENTWISE, 3 * e * b->z, b->z);
    }
    if (b->dropout)
        dtp_op_kernel(b, "dropout backward", DTP_PASS_I, DTP_K_ELEMENTWISE, (2 * e + 1) * b->z,
                      b->z);
    if (bias)
        dtp_op_kernel(b, "bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * b->z, b->z);
    dtp_op_kernel(b, "residual gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE, 3 * e * b->z, b->z);
}

void dtp_op_input_gradient_adds(struct dtp_op_build *b, double n) {
    double elements = b->tokens * b->h;
    dtp_op_kernel(b, "input gradient add", DTP_PASS_I, DTP_K_ELEMENTWISE, n * 3 * b->e * elements,
                  n * elements)
        ->launches = n;
}

void dtp_op_activation(struct dtp_op_build *b, double rows, bool bias) {
    /* Gated: reads both halves, writes one. A bias that is not fused costs a pass of its own. */
    double e = b->e, x = rows * b->ffn, in = b->m->gated_ffn ? 2 : 1;
    if (bias && !b->fused_activation && !b->f->kernels.fused_linear_bias)
        dtp_op_kernel(b, "fc1 bias", DTP_PASS_F, DTP_K_ELEMENTWISE, 2 * e * in * x, in * x);
    /* Unfused, SiLU of the gate is a tensor of its own, kept for its product with the other half. */
    double gate_kept = b->m->gated_ffn && !b->fused_activation ? 1 : 0;
    double passes = gate_kept > 0 ? 5.0 / 3 : 1;
    dtp_op_kernel(b, "activation", DTP_PASS_F, DTP_K_ACTIVATION, passes * e * (in + 1) * x, x)
        ->saved_bytes = e * (gate_kept + in) * x;
    dtp_op_kernel(b, "activation", DTP_PASS_I, DTP_K_ACTIVATION_BACKWARD,
                  passes * e * (2 * in + 1) * x, x);
    if (bias)
        dtp_op_kernel(b, "fc1 bias gradient", DTP_PASS_W, DTP_K_REDUCE, e * in * x, in * x);
}

void dtp_op_mlp(struct dtp_op_build *b, const char *up, const char *down, double rows,
                double saved_in_bytes) {
    const struct dtp_model *m = b->m;
    double in = m->gated_ffn ? 2 : 1;
    if (m->gated_ffn && b->f->kernels.separate_products) {
        dtp_op_linears(b, "gate", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, saved_in_bytes);
        dtp_op_linears(b, "up", (struct dtp_op_shape){rows, b->ffn, b->h, 1}, 0);
        dtp_op_input_gradient_adds(b, 1);
    } else {
        dtp_op_linears(b, up, (struct dtp_op_shape){rows, in * b->ffn, b->h, 1}, saved_in_bytes);
    }
    dtp_op_activation(b, rows, m->mlp_bias);
    dtp_op_linears(b, down, (struct dtp_op_shape){rows, b->h, b->ffn, 1, .row_parallel = true},
                   dtp_op_input_bytes(b, rows * b->ffn));
}

/* The norm is a module of its own before experts, a part of the dense MLP otherwise. */
static void mlp_block(struct dtp_op_build *b, bool moe) {
    int from = b->out->mlp = b->out->n;
    if (!b->m->parallel_block)
        dtp_op_norm(b, "norm 2", b->z, b->e * b->z);
    int inside = b->out->n;
    if (moe) {
        dtp_op_again(b, from, DTP_BIT_LAYERNORM);
        dtp_op_moe(b);
    } else {
        if (!b->m->parallel_block)
            dtp_op_norm_within(b, from);
        dtp_op_tp_enter(b);
        dtp_op_mlp(b, "fc1", "fc2", b->tokens, dtp_op_column_input_bytes(b));
        b->norm_cast = false;
        dtp_op_tp_leave(b);
        dtp_op_again(b, from, DTP_BIT_MLP);
        dtp_op_dropped(b, inside, DTP_BIT_MLP);
    }
    dtp_op_residual(b, b->m->mlp_bias);
}

/* Weight gradients go into a buffer. Fused, the GEMM's epilogue reads the buffer before it adds (4 bytes in
 * fp32; the wider write hides). Otherwise, with several microbatches, a kernel of its own reads the new and
 * the old and writes, for each tensor. params: of the layer, on this rank. */
static void accumulation(struct dtp_op_build *b, double params) {
    double g = b->f->kernels.fp32_gradient_accumulation ? 4 : 2;
    double vectors =
        2 * (b->m->norm_bias ? 2 : 1) + (b->m->attention_bias ? 2 : 0) + (b->m->mlp_bias ? 2 : 0);
    if (b->f->kernels.fused_gradient_accumulation)
        dtp_op_kernel(b, "gradient add in GEMM", DTP_PASS_W, DTP_K_ELEMENTWISE, g * params, params)
            ->launches = vectors;
    else if (b->key->microbatches > 1)
        dtp_op_kernel(b, "gradient add", DTP_PASS_W, DTP_K_ELEMENTWISE, (2 + 2 * g) * params,
                      params)
            ->launches = vectors + 4;
}

static double layer_params(const struct dtp_op_build *b, bool moe) {
    struct dtp_param_counts counts;
    dtp_model_params(b->m, b->m->vocab, &counts);
    if (!moe)
        return (double)counts.dense_layer / b->t;
    double experts = (double)counts.moe_layer_experts;
    return ((double)counts.moe_layer - experts) / b->t +
           experts / ((double)b->key->etp * b->key->ep);
}

/* What eager lists exist for: decoders with a language model head. */
static bool eager(const struct dtp_op_build *b) {
    return b->f->kernels.eager && b->m->mla.kv_lora_rank == 0 && b->m->patch == 0 &&
           b->m->classes == 0 && !b->m->mlm_head && !b->m->parallel_block;
}

/* Copies beside the collectives of ZeRO: gradients into the buckets and out of them; of ZeRO-3: gathered parameters into place, gradients into the buffer that
 * is reduced (a conversion where they travel in fp32). Recomputation uses what the backward gathered. */
static void zero_copies(struct dtp_op_build *b, double params) {
    const struct dtp_framework *f = b->f;
    int zero = b->key->zero_stage;
    if ((zero == 1 || zero == 2) && f->quirks.zero_pieces.zero_copy_bytes > 0) {
        double times = zero == 2 && f->wire.reduce_per_microbatch ? 1 : b->key->microbatches;
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W, DTP_K_COPY,
                      f->quirks.zero_pieces.zero_copy_bytes * params / times, params / times);
    }
    if (zero < 3)
        return;
    if (f->wire.zero3_copy_out_bytes > 0) {
        dtp_op_kernel(b, "unshard copy", DTP_PASS_F, DTP_K_COPY,
                      f->wire.zero3_copy_out_bytes * params, params);
        if (f->wire.zero3_regather_backward && b->key->recompute != DTP_RECOMPUTE_FULL)
            dtp_op_kernel(b, "unshard copy", DTP_PASS_I, DTP_K_COPY,
                          f->wire.zero3_copy_out_bytes * params, params);
    }
    if (f->wire.zero3_copy_in_bytes > 0)
        dtp_op_kernel(b, "reduce copy", DTP_PASS_W,
                      f->wire.reduce_bytes > b->e ? DTP_K_STRIDED : DTP_K_COPY,
                      f->wire.zero3_copy_in_bytes * params, params);
}

static void layer(struct dtp_op_build *b, bool moe) {
    double params = layer_params(b, moe);
    if (eager(b)) {
        dtp_op_eager_attention(b);
        if (moe)
            dtp_op_eager_experts(b);
        else
            dtp_op_eager_mlp(b);
        dtp_op_eager_weights(b, params, dtp_op_eager_tensors(b, moe));
    } else {
        dtp_op_attention_block(b);
        mlp_block(b, moe);
        accumulation(b, params);
    }
    if (b->f->kernels.selective_alternate_products && b->key->recompute == DTP_RECOMPUTE_SELECTIVE)
        alternate_products(b);
    zero_copies(b, params);
}

static int window_of(const struct dtp_problem *problem, enum dtp_layer_kind kind) {
    const struct dtp_model *m = problem->model;
    bool alike = m->full_attention_step == 0;
    bool has = alike || kind == DTP_LAYER_DENSE_WINDOW || kind == DTP_LAYER_MOE_WINDOW;
    return has && m->sliding_window < problem->seq ? m->sliding_window : 0;
}

static struct dtp_op_build build_of(const struct dtp_problem *problem,
                                    const struct dtp_layer_key *key, struct dtp_ops *out) {
    const struct dtp_model *m = problem->model;
    double t = key->tp, n = (double)key->microbatch_size * problem->seq / key->cp;
    double kv = m->kv_heads < key->tp ? 1 : m->kv_heads / t;
    return (struct dtp_op_build){
        .problem = problem,
        .m = m,
        .f = problem->framework,
        .key = key,
        .out = out,
        .dtype =
            dtp_layer_is_block(key->kind) || !dtp_dtype_narrow(key->dtype) ? key->dtype : DTP_BF16,
        .e = key->dtype == DTP_FP32 || key->dtype == DTP_TF32 ? 4 : 2,
        .tokens = n,
        .z = n * m->hidden / (key->sequence_parallel ? t : 1),
        .h = m->hidden,
        .t = t,
        .q_width = m->heads * (double)m->head_dim / t,
        .kv_width = kv * m->head_dim,
        .ffn = m->ffn / t,
        .window = window_of(problem, key->kind),
        .dropout = m->dropout > 0 && problem->framework->kernels.dropout,
        .fused_activation = problem->framework->kernels.fused_bias_activation,
        .attention_dropout = m->attention_dropout > 0 && problem->framework->kernels.dropout,
        .tp_overlap = key->tp_overlap,
    };
}

void dtp_op_list(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                 struct dtp_ops *out) {
    struct dtp_op_build b = build_of(problem, key, out);
    enum dtp_layer_kind kind = key->kind;
    out->n = out->mlp = 0;
    switch (kind) {
    case DTP_LAYER_DENSE:
    case DTP_LAYER_MOE:
    case DTP_LAYER_DENSE_WINDOW:
    case DTP_LAYER_MOE_WINDOW:
        if (b.f->kernels.native)
            dtp_op_native_layer(&b);
        else
            layer(&b, dtp_layer_has_experts(kind));
        break;
    case DTP_LAYER_EMBEDDING:
        if (b.f->kernels.native)
            dtp_op_native_embedding(&b);
        else if (eager(&b))
            dtp_op_eager_embedding(&b);
        else
            dtp_op_embedding(&b);
        break;
    case DTP_LAYER_HEAD:
        if (b.f->kernels.native)
            dtp_op_native_head(&b);
        else if (eager(&b))
            dtp_op_eager_head(&b);
        else
            dtp_op_head(&b);
        break;
    case DTP_LAYER_MTP:
        dtp_op_mtp(&b);
        break;
    case DTP_LAYER_CONV:
        dtp_op_convolutions(&b);
        break;
    case DTP_NLAYER_KINDS:
        break;
    }
    if (dtp_layer_is_block(kind) || kind == DTP_LAYER_CONV)
        set_repeated(b.f, key, out);
}

void dtp_ops_layer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                   enum dtp_layer_kind kind, struct dtp_ops *out) {
    struct dtp_placed placed;
    struct dtp_layer_key all, one;
    dtp_placed_make(problem, plan, &placed);
    dtp_layer_key_of(problem, plan, &placed, &all);
    dtp_layer_key_kind(problem, &all, kind, &one);
    dtp_op_list(problem, &one, out);
    dtp_op_set_clock(problem, &all, kind, out);
}
