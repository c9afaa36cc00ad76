/* What products keep of their inputs for the weight gradient. */
#include "models/ops/op_build.h"

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
