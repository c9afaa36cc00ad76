/* kernels.cuh: what all kernels share: element types, 16-byte accesses, sums over a block. */
#ifndef DTP_RUNTIME_CUDA_KERNELS_CUH
#define DTP_RUNTIME_CUDA_KERNELS_CUH

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "runtime/cuda/cuda.h"
}

namespace dtp {

using bf16 = __nv_bfloat16;
using fp16 = __half;

__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(fp16 x) {
    return __half2float(x);
}
template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ fp16 from_float<fp16>(float x) {
    return __float2half_rn(x);
}

/* V elements of T as floats, moved by the widest accesses that V * sizeof(T) bytes allow. */
template <int BYTES> struct Raw;
template <> struct Raw<2> { using type = uint16_t; };
template <> struct Raw<4> { using type = uint32_t; };
template <> struct Raw<8> { using type = uint2; };
template <> struct Raw<16> { using type = uint4; };
template <typename T, int V> using Vector = typename Raw<V * sizeof(T)>::type;
template <typename T, int V> __device__ __forceinline__ Vector<T, V> load_raw(const T *from) {
    return *reinterpret_cast<const Vector<T, V> *>(from);
}
template <typename T, int V> __device__ __forceinline__ void unpack(float *x, Vector<T, V> raw) {
    T t[V];
    memcpy(t, &raw, sizeof t);
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = to_float(t[i]);
}
template <typename T, int V> __device__ __forceinline__ void load(float *x, const T *from) {
    unpack<T, V>(x, load_raw<T, V>(from));
}
template <typename T, int V> __device__ __forceinline__ void store(T *to, const float *x) {
    using R = typename Raw<V * sizeof(T)>::type;
    T t[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        t[i] = from_float<T>(x[i]);
    R raw;
    memcpy(&raw, t, sizeof raw);
    *reinterpret_cast<R *>(to) = raw;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}
/* The sum of N numbers over a block of whole warps, in every thread, the same on each run. */
template <int N> __device__ __forceinline__ void block_sum(float (&x)[N]) {
    __shared__ float part[32][N];
    int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int nwarps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_sum(x[i]);
    __syncthreads(); /* part[] may still be read from the call before */
    if (lane == 0)
#pragma unroll
        for (int i = 0; i < N; i++)
            part[warp][i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_sum(lane < nwarps ? part[lane][i] : 0.0f);
}

/* ---- host ---- */

static inline int ceil_div(int64_t a, int64_t b) {
    return static_cast<int>((a + b - 1) / b);
}
static inline cudaStream_t stream_of(struct dtp_dev *d) {
    return dtp_cuda_compute(dtp_cuda_of(d));
}
/* f(T{}) with the C++ type of a dtype. */
template <class F> static void with_type(struct dtp_dev *d, enum dtp_dtype dtype, F f) {
    if (dtype == DTP_BF16)
        f(bf16{});
    else if (dtype == DTP_FP16)
        f(fp16{});
    else if (dtype == DTP_FP32)
        f(float{});
    else
        dtp_cuda_fail(dtp_cuda_of(d), "no kernels for dtype %d", static_cast<int>(dtype));
}
/* f(integral_constant<V>): V elements make 16 bytes when all addresses and row lengths allow, else 1. */
template <typename T, class F> static void with_width(bool wide, F f) {
    if (wide)
        f(std::integral_constant<int, static_cast<int>(16 / sizeof(T))>{});
    else
        f(std::integral_constant<int, 1>{});
}
static inline bool aligned(const void *p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0; /* NULL is */
}
template <typename... P> static inline bool all_aligned(P... p) {
    return (aligned(p) && ...);
}
template <typename T> static inline bool fits(int64_t cols) {
    return cols % static_cast<int64_t>(16 / sizeof(T)) == 0;
}

} // namespace dtp

#endif
