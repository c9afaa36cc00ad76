/* Instantiates the kernels of attention_kernels.cuh with dropout of the probabilities. */
#include "runtime/cuda/attention_kernels.cuh"

namespace dtp {

void flash_forward_dropout(struct dtp_dev *d, const struct dtp_attention_args *x) {
    flash_forward_of<true>(d, x);
}

void flash_backward_dropout(struct dtp_dev *d, const struct dtp_attention_args *x) {
    flash_backward_of<true>(d, x);
}

} // namespace dtp
