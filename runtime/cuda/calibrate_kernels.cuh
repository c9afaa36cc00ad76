/* calibrate_kernels.cuh: the memory-bound kernels that dtplan-calibrate-cuda times. Counts of elements are
 * multiples of 8, matrices row-major and contiguous. Every call enqueues and returns. */
#ifndef DTP_RUNTIME_CUDA_CALIBRATE_KERNELS_CUH
#define DTP_RUNTIME_CUDA_CALIBRATE_KERNELS_CUH

#include <cuda_bf16.h>

#include "runtime/cuda/calibrate_cuda.cuh"

namespace cal {

using bf16 = __nv_bfloat16;

void add_mixed(const float *a, const bf16 *b, float *c, size_t n, cudaStream_t stream);
void copy_bf16(const bf16 *a, bf16 *b, size_t n, cudaStream_t stream);
void cast_f32_bf16(const float *a, bf16 *b, size_t n, cudaStream_t stream);
void cast_bf16_f32(const bf16 *a, float *b, size_t n, cudaStream_t stream);
void gelu(const bf16 *x, bf16 *y, size_t n, cudaStream_t stream);
void gelu_backward(const bf16 *x, const bf16 *dy, bf16 *dx, size_t n, cudaStream_t stream);
void swiglu(const bf16 *gate, const bf16 *up, bf16 *y, size_t n, cudaStream_t stream);
void swiglu_backward(const bf16 *gate, const bf16 *up, const bf16 *dy, bf16 *dgate, bf16 *dup,
                     size_t n, cudaStream_t stream);
/* keeps 0.9 of the elements */
void dropout(const bf16 *x, bf16 *y, uint8_t *mask, size_t n, cudaStream_t stream);
/* x[rows][heads][head_dim]; cosines, sines[rows][head_dim / 2]; head_dim a multiple of 16 */
void rope(bf16 *x, const float *cosines, const float *sines, size_t rows, int heads, int head_dim,
          cudaStream_t stream);
void swap_axes(const bf16 *x, bf16 *y, size_t a, size_t b, size_t d, cudaStream_t stream);
/* rows and cols are multiples of 64 */
void transpose(const bf16 *x, bf16 *y, size_t rows, size_t cols, cudaStream_t stream);
void cat(const bf16 *a, const bf16 *b, bf16 *y, size_t rows, size_t na, size_t nb,
         cudaStream_t stream);
/* partial: 64 x cols */
void column_sums(const bf16 *x, float *out, float *partial, size_t rows, size_t cols,
                 cudaStream_t stream);

struct NormArgs {
    bool rms;
    size_t rows, cols; /* cols at most 16384 */
    const bf16 *x, *weight, *bias;
    bf16 *y;
    float2 *saved; /* mean and 1 / deviation of each row */
    /* backward */
    const bf16 *dy;
    bf16 *dx;
    float *dweight, *dbias, *partial; /* partial: 2 x grid x cols */
    size_t grid;                      /* blocks that walk the rows */
};
void norm_forward(const NormArgs &n, cudaStream_t stream);
void norm_backward(const NormArgs &n, cudaStream_t stream);
void softmax(const bf16 *x, bf16 *y, size_t rows, size_t cols, cudaStream_t stream);
void softmax_backward(const bf16 *y, const bf16 *dy, bf16 *dx, size_t rows, size_t cols,
                      cudaStream_t stream);
void loss_sum(const bf16 *logits, float2 *out, size_t rows, size_t cols, cudaStream_t stream);
void loss_grad(bf16 *logits, const float2 *sums, const int *targets, size_t rows, size_t cols,
               cudaStream_t stream);
void gather(const bf16 *table, const int *ids, bf16 *out, size_t rows, size_t cols,
            cudaStream_t stream);
void scatter_add(const bf16 *dout, const int *ids, float *table, size_t rows, size_t cols,
                 cudaStream_t stream);

struct AdamChunk {
    size_t first, n; /* elements of one tensor: a block's work */
};
/* Parameters have type P, gradients G and moments S. master is in fp32; if it is NULL, the parameters themselves
 * are updated. adamw() exists for (P, G, S) = (float, float, float), (bf16, bf16, bf16), (bf16, bf16, float) and
 * (bf16, float, float). */
template <class P, class G, class S> struct AdamTensors {
    P *param;
    float *master;
    S *m, *v;
    const G *grad;
};
template <class P, class G, class S>
void adamw(const AdamChunk *chunks, size_t n, const AdamTensors<P, G, S> &t, cudaStream_t stream);

/* calibrate_check.cu: every kernel against double precision on the host. A wrong one is listed among the
 * failures of the report: its rows are worth nothing. */
void check_kernels(Bench &b, Report &report);

} // namespace cal
#endif
