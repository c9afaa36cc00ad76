/* Causal attention: cuDNN's where it is found, our own kernels on tensor cores, or plain ones. cuDNN draws
 * other random numbers than ours (dropout.h), so that dropout of the probabilities is always ours. */
#include "runtime/cuda/attention_kernels.cuh"

namespace dtp {

/* 16-byte rows, and a head_dim that was compiled. */
static bool fast(const struct dtp_dev *d, const struct dtp_attention_args *x) {
    const struct dtp_cuda *c = reinterpret_cast<const struct dtp_cuda *>(d);
    int64_t dim = x->head_dim;
    return c->attention != DTP_CUDA_ATTENTION_SIMPLE &&
           (d->dtype == DTP_BF16 || d->dtype == DTP_FP16) &&
           (dim == 64 || dim == 80 || dim == 96 || dim == 128) && x->qkv_stride % 8 == 0 &&
           x->out_stride % 8 == 0 &&
           all_aligned(x->q, x->k, x->v, x->out, x->dout, x->dq, x->dk, x->dv);
}

/* log of the sum of exponentials */
extern "C" uint64_t dtp_cuda_attention_saved_bytes(const struct dtp_dev *d,
                                                   const struct dtp_attention_args *x) {
    (void)d;
    return static_cast<uint64_t>(x->batch * x->heads * x->seq) * sizeof(float);
}

/* row sums of dout * out; or what cuDNN wants */
extern "C" uint64_t dtp_cuda_attention_workspace_bytes(const struct dtp_dev *d,
                                                       const struct dtp_attention_args *x) {
    uint64_t own = dtp_cuda_attention_saved_bytes(d, x);
    if (x->dropout.drop_below > 0)
        return own;
    uint64_t fused = dtp_cuda_fused_workspace_bytes(dtp_cuda_of(const_cast<struct dtp_dev *>(d)),
                                                    x); /* it keeps the plans it makes */
    return fused > own ? fused : own;
}

extern "C" void dtp_cuda_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    bool drops = x->dropout.drop_below > 0;
    if (!drops && dtp_cuda_fused_forward(dtp_cuda_of(d), x))
        return;
    if (!fast(d, x))
        dtp_cuda_attention_simple_forward(d, x);
    else if (drops)
        flash_forward_dropout(d, x);
    else
        flash_forward_of<false>(d, x);
}

extern "C" void dtp_cuda_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    bool drops = x->dropout.drop_below > 0;
    if (!drops && dtp_cuda_fused_backward(dtp_cuda_of(d), x))
        return;
    dtp_cuda_attention_delta(d, x);
    if (!fast(d, x))
        dtp_cuda_attention_simple_backward(d, x);
    else if (drops)
        flash_backward_dropout(d, x);
    else
        flash_backward_of<false>(d, x);
}

} // namespace dtp
