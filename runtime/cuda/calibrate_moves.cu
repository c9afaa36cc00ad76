/* Kernels that move elements to other places: axes swapped, transposes, columns joined, embeddings. */
#include "runtime/cuda/calibrate_vectors.cuh"

namespace cal {

/* ---- strided ---- */

/* Below, rows and columns are divided in 32 bits: a 64-bit division costs as much as the memory access. */

/* [a][b][d] -> [b][a][d], d contiguous. */
__global__ void swap_kernel(const Bf8 *x, Bf8 *y, uint32_t a, uint32_t b, uint32_t d8) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t row = i / d8, at = i - row * d8, ia = row / b, ib = row - ia * b;

    if (row < a * b)
        y[static_cast<size_t>(ib * a + ia) * d8 + at] = x[i];
}
void swap_axes(const bf16 *x, bf16 *y, size_t a, size_t b, size_t d, cudaStream_t stream) {
    swap_kernel<<<blocks_for(a * b * d / VECTOR, THREADS), THREADS, 0, stream>>>(
        reinterpret_cast<const Bf8 *>(x), reinterpret_cast<Bf8 *>(y), static_cast<uint32_t>(a),
        static_cast<uint32_t>(b), static_cast<uint32_t>(d / VECTOR));
}

enum { TILE = 64, TILE_ROWS = 8 };
__global__ void transpose_kernel(const bf16 *x, bf16 *y, size_t rows, size_t cols) {
    __shared__ bf16 tile[TILE][TILE + 2];
    size_t r0 = blockIdx.y * static_cast<size_t>(TILE), c0 = blockIdx.x * static_cast<size_t>(TILE);
    int tx = static_cast<int>(threadIdx.x) * 2, ty = static_cast<int>(threadIdx.y);

    for (int r = ty; r < TILE; r += TILE_ROWS)
        *reinterpret_cast<__nv_bfloat162 *>(&tile[r][tx]) =
            *reinterpret_cast<const __nv_bfloat162 *>(x + (r0 + r) * cols + c0 + tx);
    __syncthreads();
    for (int c = ty; c < TILE; c += TILE_ROWS) {
        __nv_bfloat162 v;
        v.x = tile[tx][c];
        v.y = tile[tx + 1][c];
        *reinterpret_cast<__nv_bfloat162 *>(y + (c0 + c) * rows + r0 + tx) = v;
    }
}
void transpose(const bf16 *x, bf16 *y, size_t rows, size_t cols, cudaStream_t stream) {
    dim3 grid(static_cast<unsigned>(cols / TILE), static_cast<unsigned>(rows / TILE));

    transpose_kernel<<<grid, dim3(TILE / 2, TILE_ROWS), 0, stream>>>(x, y, rows, cols);
}

/* Columns of a, then of b. */
__global__ void cat_kernel(const Bf8 *a, const Bf8 *b, Bf8 *y, uint32_t vectors, uint32_t na,
                           uint32_t nb) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t row = i / (na + nb), at = i - row * (na + nb);

    if (i < vectors)
        y[i] = at < na ? a[row * na + at] : b[row * nb + at - na];
}
void cat(const bf16 *a, const bf16 *b, bf16 *y, size_t rows, size_t na, size_t nb,
         cudaStream_t stream) {
    size_t vectors = rows * (na + nb) / VECTOR;

    cat_kernel<<<blocks_for(vectors, THREADS), THREADS, 0, stream>>>(
        reinterpret_cast<const Bf8 *>(a), reinterpret_cast<const Bf8 *>(b),
        reinterpret_cast<Bf8 *>(y), static_cast<uint32_t>(vectors),
        static_cast<uint32_t>(na / VECTOR), static_cast<uint32_t>(nb / VECTOR));
}

/* ---- embedding ---- */

__global__ void gather_kernel(const Bf8 *table, const int *ids, Bf8 *out, uint32_t vectors,
                              uint32_t row_vectors) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t row = i / row_vectors, at = i - row * row_vectors;

    if (i < vectors)
        out[i] = table[static_cast<size_t>(ids[row]) * row_vectors + at];
}
void gather(const bf16 *table, const int *ids, bf16 *out, size_t rows, size_t cols,
            cudaStream_t stream) {
    size_t vectors = rows * cols / VECTOR;

    gather_kernel<<<blocks_for(vectors, THREADS), THREADS, 0, stream>>>(
        reinterpret_cast<const Bf8 *>(table), ids, reinterpret_cast<Bf8 *>(out),
        static_cast<uint32_t>(vectors), static_cast<uint32_t>(cols / VECTOR));
}

__device__ static void atomic_add4(float *to, const float *v) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4 *>(to), make_float4(v[0], v[1], v[2], v[3]));
#else
    for (int e = 0; e < 4; e++)
        atomicAdd(to + e, v[e]);
#endif
}
__global__ void scatter_add_kernel(const bf16 *dout, const int *ids, float *table, uint32_t vectors,
                                   uint32_t row_vectors) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t row = i / row_vectors, at = i - row * row_vectors;
    float v[VECTOR];

    if (i >= vectors)
        return;
    load8(dout + static_cast<size_t>(i) * VECTOR, v);
    float *to = table + (static_cast<size_t>(ids[row]) * row_vectors + at) * VECTOR;
    atomic_add4(to, v);
    atomic_add4(to + 4, v + 4);
}
void scatter_add(const bf16 *dout, const int *ids, float *table, size_t rows, size_t cols,
                 cudaStream_t stream) {
    size_t vectors = rows * cols / VECTOR;

    scatter_add_kernel<<<blocks_for(vectors, THREADS), THREADS, 0, stream>>>(
        dout, ids, table, static_cast<uint32_t>(vectors), static_cast<uint32_t>(cols / VECTOR));
}

} // namespace cal
