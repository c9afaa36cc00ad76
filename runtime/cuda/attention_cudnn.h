/* attention_cudnn.h: causal attention as graphs of cuDNN; internal to libdtplan_cuda.so.
 *
 *   forward   S = scale Q K^T, masked; P = softmax(S); O = P V; kept: the log of the sum of exp(S), which
 *             is what the kernels of attention.cu keep, so that either backward reads it
 *   backward  with delta = rowsum(dO O): dS = P (dO V^T - delta) scale; dQ = dS K, dK = dS^T Q, dV = P^T dO
 * The operations are those that cuDNN's fused engines recognise as a pattern (cuDNN developer guide,
 * "Fused Flash Attention"), in its order.
 */
#ifndef DTP_RUNTIME_CUDA_ATTENTION_CUDNN_H
#define DTP_RUNTIME_CUDA_ATTENTION_CUDNN_H

#include "runtime/cuda/cudnn.h"
#include "runtime/device/backend.h"

enum dtp_attention_pass {
    DTP_ATTENTION_FORWARD,
    DTP_ATTENTION_BACKWARD, /* dQ is summed by atomic additions: not the same bits on each run */
    DTP_ATTENTION_BACKWARD_EXACT, /* the same bits on each run; larger workspace */
    DTP_ATTENTION_PASSES
};

/* x: shapes and strides only. dtype: DTP_BF16 or DTP_FP16. False: cuDNN has no kernel for it. Destroy p
 * in either case. */
bool dtp_attention_plan(struct dtp_cudnn_plan *p, const struct dtp_cudnn_api *api,
                        const struct dtp_attention_args *x, enum dtp_dtype dtype,
                        enum dtp_attention_pass pass);
/* Of the backward: where x->workspace holds delta, the sums of dQ, and cuDNN's own. */
struct dtp_attention_space {
    uint64_t delta, dq, plan, bytes; /* offsets; the whole */
};
struct dtp_attention_space dtp_attention_space(const struct dtp_cudnn_plan *p,
                                               const struct dtp_attention_args *x,
                                               enum dtp_attention_pass pass);
bool dtp_attention_run(struct dtp_cudnn_plan *p, cudnnHandle_t handle,
                       const struct dtp_attention_args *x, enum dtp_attention_pass pass);

#endif
