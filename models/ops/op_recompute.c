/* What recomputation repeats of a layer. */
#include "models/ops/op_build.h"

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
void dtp_op_alternate_products(struct dtp_op_build *b) {
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

void dtp_op_set_repeated(const struct dtp_framework *f, const struct dtp_layer_key *key,
                         struct dtp_ops *ops) {
    int recomputed = key->recompute == DTP_RECOMPUTE_FULL ? recomputed_ops(f, ops) : 0;
    int modules = key->recompute_modules;
    for (int i = 0; i < ops->n; i++) {
        struct dtp_op *op = &ops->at[i];
        op->repeated =
            op->pass == DTP_PASS_F && (i < recomputed || (modules & op->again_by) || op->again);
    }
}
