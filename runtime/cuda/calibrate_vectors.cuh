/* calibrate_vectors.cuh: what the memory-bound kernels of dtplan-calibrate-cuda share: 16-byte accesses,
 * written as fused frameworks write them. */
#ifndef DTP_RUNTIME_CUDA_CALIBRATE_VECTORS_CUH
#define DTP_RUNTIME_CUDA_CALIBRATE_VECTORS_CUH

#include "runtime/cuda/calibrate_kernels.cuh"

namespace cal {

enum { VECTOR = 8, THREADS = 256 };

struct alignas(16) Bf8 {
    __nv_bfloat162 pair[VECTOR / 2];
};

__device__ __forceinline__ void load8(const bf16 *from, float out[VECTOR]) {
    Bf8 v = *reinterpret_cast<const Bf8 *>(from);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        float2 f = __bfloat1622float2(v.pair[i]);
        out[2 * i] = f.x;
        out[2 * i + 1] = f.y;
    }
}
__device__ __forceinline__ void store8(bf16 *to, const float in[VECTOR]) {
    Bf8 v;
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++)
        v.pair[i] = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
    *reinterpret_cast<Bf8 *>(to) = v;
}
__device__ __forceinline__ void load8(const float *from, float out[VECTOR]) {
    float4 a = reinterpret_cast<const float4 *>(from)[0];
    float4 b = reinterpret_cast<const float4 *>(from)[1];
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}
__device__ __forceinline__ void store8(float *to, const float in[VECTOR]) {
    reinterpret_cast<float4 *>(to)[0] = make_float4(in[0], in[1], in[2], in[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(in[4], in[5], in[6], in[7]);
}

static inline unsigned blocks_for(size_t items, unsigned per_block) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
}

} // namespace cal
#endif
