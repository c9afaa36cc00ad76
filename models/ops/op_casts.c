/* Casts of what FP8 and FP4 products read. */
#include <string.h>

#include "models/ops/op_build.h"

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
void dtp_op_casts(struct dtp_op_build *b, struct dtp_op_shape s) {
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
