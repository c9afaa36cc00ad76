/* Kernels that sum over rows or columns: bias gradients, norms, softmax, cross-entropy; one pass where one is
 * enough. */
#include "runtime/cuda/calibrate_vectors.cuh"

namespace cal {

/* ---- sums ---- */

/* out[col] = sum over rows: a block has 256 columns (32 threads of 8) and a band of rows. */
enum { BANDS = 64 };
__global__ void column_sums_kernel(const bf16 *x, float *partial, size_t rows, size_t cols) {
    __shared__ float part[8][32 * VECTOR];
    size_t lane = threadIdx.x % 32, c = (blockIdx.x * 32 + lane) * VECTOR;
    size_t warp = threadIdx.x / 32, band = (rows + BANDS - 1) / BANDS;
    size_t end = min(rows, (blockIdx.y + 1) * band);
    float sum[VECTOR] = {0}, v[VECTOR];

    if (c < cols)
        for (size_t r = blockIdx.y * band + warp; r < end; r += 8) {
            load8(x + r * cols + c, v);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                sum[j] += v[j];
        }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        part[warp][lane * VECTOR + j] = sum[j];
    __syncthreads();
    size_t out = blockIdx.x * 32 * VECTOR + threadIdx.x;
    if (out < cols) {
        float total = 0;
        for (int w = 0; w < 8; w++)
            total += part[w][threadIdx.x];
        partial[blockIdx.y * cols + out] = total;
    }
}
/* 32 columns a block, 32 threads a column. */
__global__ void sum_bands_kernel(const float *partial, float *out, size_t bands, size_t cols) {
    __shared__ float part[32][33];
    size_t lane = threadIdx.x, first = threadIdx.y, c = blockIdx.x * 32 + lane;
    float total = 0;

    if (c < cols)
#pragma unroll 8
        for (size_t b = first; b < bands; b += 32)
            total += partial[b * cols + c];
    part[first][lane] = total;
    __syncthreads();
    if (first || c >= cols)
        return;
    for (int i = 1; i < 32; i++)
        total += part[i][lane];
    out[c] = total;
}
static void sum_bands(const float *partial, float *out, size_t bands, size_t cols,
                      cudaStream_t stream) {
    sum_bands_kernel<<<blocks_for(cols, 32), dim3(32, 32), 0, stream>>>(partial, out, bands, cols);
}
void column_sums(const bf16 *x, float *out, float *partial, size_t rows, size_t cols,
                 cudaStream_t stream) {
    column_sums_kernel<<<dim3(blocks_for(cols, 32 * VECTOR), BANDS), THREADS, 0, stream>>>(
        x, partial, rows, cols);
    sum_bands(partial, out, BANDS, cols, stream);
}

/* ---- rows: a block has one row, in registers ---- */

__device__ static float block_sum(float v, float *shared, bool largest = false) {
    for (int d = 16; d; d /= 2) {
        float o = __shfl_xor_sync(0xffffffffu, v, d);
        v = largest ? fmaxf(v, o) : v + o;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    float total = shared[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++)
        total = largest ? fmaxf(total, shared[w]) : total + shared[w];
    return total;
}

/* A row of at most NV vectors a thread; vector j of a thread is j * blockDim + thread. */
template <int NV>
__device__ static void load_row(const bf16 *x, size_t vectors, float v[NV][VECTOR], float other) {
#pragma unroll
    for (int j = 0; j < NV; j++) {
        size_t i = static_cast<size_t>(j) * blockDim.x + threadIdx.x;
        if (i < vectors)
            load8(x + i * VECTOR, v[j]);
        else
#pragma unroll
            for (int e = 0; e < VECTOR; e++)
                v[j][e] = other;
    }
}
template <int NV>
__device__ static void store_row(bf16 *y, size_t vectors, const float v[NV][VECTOR]) {
#pragma unroll
    for (int j = 0; j < NV; j++) {
        size_t i = static_cast<size_t>(j) * blockDim.x + threadIdx.x;
        if (i < vectors)
            store8(y + i * VECTOR, v[j]);
    }
}
template <int NV, class F>
__device__ static float row_sum(const float v[NV][VECTOR], float *shared, F f) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            sum += f(v[j][e]);
    return block_sum(sum, shared);
}

template <int NV, bool RMS> __global__ void norm_kernel(NormArgs n) {
    __shared__ float shared[32];
    size_t row = blockIdx.x, cols = n.cols, vectors = cols / VECTOR;
    float v[NV][VECTOR], g[VECTOR], b[VECTOR] = {0}, mean = 0;

    load_row<NV>(n.x + row * cols, vectors, v, 0);
    if (!RMS)
        mean = row_sum<NV>(v, shared, [](float a) { return a; }) / static_cast<float>(cols);
    float square = 0;
#pragma unroll
    for (int j = 0; j < NV; j++)
        if (static_cast<size_t>(j) * blockDim.x + threadIdx.x < vectors)
#pragma unroll
            for (int e = 0; e < VECTOR; e++)
                square += (v[j][e] - mean) * (v[j][e] - mean);
    float r = rsqrtf(block_sum(square, shared) / static_cast<float>(cols) + 1e-5f);
#pragma unroll
    for (int j = 0; j < NV; j++) {
        size_t i = static_cast<size_t>(j) * blockDim.x + threadIdx.x;
        if (i >= vectors)
            continue;
        load8(n.weight + i * VECTOR, g);
        if (!RMS)
            load8(n.bias + i * VECTOR, b);
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            v[j][e] = (v[j][e] - mean) * r * g[e] + b[e];
    }
    store_row<NV>(n.y + row * cols, vectors, v);
    if (threadIdx.x == 0)
        n.saved[row] = make_float2(mean, r);
}

/* dx = r (w dy - mean(w dy) - xhat mean(w dy xhat)); a block walks rows and keeps the sums for the
 * weight and bias gradients in registers until the end. */
template <int NV, bool RMS> __global__ void norm_backward_kernel(NormArgs n) {
    __shared__ float shared[32];
    size_t cols = n.cols, vectors = cols / VECTOR;
    float dw[NV][VECTOR] = {}, db[NV][VECTOR] = {}, g[NV][VECTOR];

    load_row<NV>(n.weight, vectors, g, 0);
    for (size_t row = blockIdx.x; row < n.rows; row += gridDim.x) {
        float v[NV][VECTOR], d[NV][VECTOR], a = 0, b = 0;
        float2 s = n.saved[row];

        load_row<NV>(n.x + row * cols, vectors, v, 0);
        load_row<NV>(n.dy + row * cols, vectors, d, 0);
#pragma unroll
        for (int j = 0; j < NV; j++)
#pragma unroll
            for (int e = 0; e < VECTOR; e++) {
                float xhat = (v[j][e] - s.x) * s.y;
                v[j][e] = xhat;
                dw[j][e] += d[j][e] * xhat;
                if (!RMS)
                    db[j][e] += d[j][e];
                d[j][e] *= g[j][e];
                a += d[j][e];
                b += d[j][e] * xhat;
            }
        a = RMS ? 0 : block_sum(a, shared) / static_cast<float>(cols);
        b = block_sum(b, shared) / static_cast<float>(cols);
#pragma unroll
        for (int j = 0; j < NV; j++)
#pragma unroll
            for (int e = 0; e < VECTOR; e++)
                d[j][e] = s.y * (d[j][e] - a - v[j][e] * b);
        store_row<NV>(n.dx + row * cols, vectors, d);
    }
#pragma unroll
    for (int j = 0; j < NV; j++) {
        size_t i = static_cast<size_t>(j) * blockDim.x + threadIdx.x;
        if (i >= vectors)
            continue;
        store8(n.partial + blockIdx.x * cols + i * VECTOR, dw[j]);
        if (!RMS)
            store8(n.partial + (gridDim.x + blockIdx.x) * cols + i * VECTOR, db[j]);
    }
}

/* Threads and vectors a thread of a row: 2 or 4 vectors, as few threads as that takes. */
static unsigned row_threads(size_t cols, int vectors_each) {
    size_t n =
        (cols / VECTOR + static_cast<size_t>(vectors_each) - 1) / static_cast<size_t>(vectors_each);
    return static_cast<unsigned>(n < 32 ? 32 : n > 1024 ? 1024 : (n + 31) / 32 * 32);
}

void norm_forward(const NormArgs &n, cudaStream_t stream) {
    unsigned threads = row_threads(n.cols, 2), rows = static_cast<unsigned>(n.rows);

    if (n.rms)
        norm_kernel<2, true><<<rows, threads, 0, stream>>>(n);
    else
        norm_kernel<2, false><<<rows, threads, 0, stream>>>(n);
}
void norm_backward(const NormArgs &n, cudaStream_t stream) {
    unsigned threads = row_threads(n.cols, 2);
    unsigned grid = static_cast<unsigned>(n.grid);

    if (n.rms)
        norm_backward_kernel<2, true><<<grid, threads, 0, stream>>>(n);
    else
        norm_backward_kernel<2, false><<<grid, threads, 0, stream>>>(n);
    sum_bands(n.partial, n.dweight, n.grid, n.cols, stream);
    if (!n.rms)
        sum_bands(n.partial + n.grid * n.cols, n.dbias, n.grid, n.cols, stream);
}

template <int NV> __global__ void softmax_kernel(const bf16 *x, bf16 *y, size_t cols) {
    __shared__ float shared[32];
    size_t row = blockIdx.x, vectors = cols / VECTOR;
    float v[NV][VECTOR], most = -INFINITY;

    load_row<NV>(x + row * cols, vectors, v, -INFINITY);
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            most = fmaxf(most, v[j][e]);
    most = block_sum(most, shared, true);
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            v[j][e] = __expf(v[j][e] - most);
    float scale = 1 / row_sum<NV>(v, shared, [](float a) { return a; });
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            v[j][e] *= scale;
    store_row<NV>(y + row * cols, vectors, v);
}
template <int NV>
__global__ void softmax_backward_kernel(const bf16 *y, const bf16 *dy, bf16 *dx, size_t cols) {
    __shared__ float shared[32];
    size_t row = blockIdx.x, vectors = cols / VECTOR;
    float v[NV][VECTOR], d[NV][VECTOR], sum = 0;

    load_row<NV>(y + row * cols, vectors, v, 0);
    load_row<NV>(dy + row * cols, vectors, d, 0);
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            sum += v[j][e] * d[j][e];
    sum = block_sum(sum, shared);
#pragma unroll
    for (int j = 0; j < NV; j++)
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            d[j][e] = v[j][e] * (d[j][e] - sum);
    store_row<NV>(dx + row * cols, vectors, d);
}
void softmax(const bf16 *x, bf16 *y, size_t rows, size_t cols, cudaStream_t stream) {
    softmax_kernel<2><<<static_cast<unsigned>(rows), row_threads(cols, 2), 0, stream>>>(x, y, cols);
}
void softmax_backward(const bf16 *y, const bf16 *dy, bf16 *dx, size_t rows, size_t cols,
                      cudaStream_t stream) {
    softmax_backward_kernel<2>
        <<<static_cast<unsigned>(rows), row_threads(cols, 2), 0, stream>>>(y, dy, dx, cols);
}

/* ---- cross-entropy: one pass for maximum and sum, one for the gradient, in place ---- */

enum { LOSS_THREADS = 512 };
__global__ void loss_sum_kernel(const bf16 *logits, float2 *out, size_t cols) {
    __shared__ float shared[32];
    size_t row = blockIdx.x;
    float most = -INFINITY, sum = 0, v[VECTOR];

    for (size_t i = threadIdx.x; i < cols / VECTOR; i += LOSS_THREADS) {
        load8(logits + row * cols + i * VECTOR, v);
        float here = most;
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            here = fmaxf(here, v[e]);
        sum *= __expf(most - here);
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            sum += __expf(v[e] - here);
        most = here;
    }
    float all = block_sum(most, shared, true);
    sum = block_sum(most == -INFINITY ? 0 : sum * __expf(most - all), shared);
    if (threadIdx.x == 0)
        out[row] = make_float2(all, sum);
}
__global__ void loss_grad_kernel(bf16 *logits, const float2 *sums, const int *targets, size_t cols,
                                 float scale) {
    size_t row = blockIdx.x, target = static_cast<size_t>(targets[row]);
    float2 s = sums[row];
    float over = scale / s.y, v[VECTOR];

    for (size_t i = threadIdx.x; i < cols / VECTOR; i += LOSS_THREADS) {
        bf16 *at = logits + row * cols + i * VECTOR;
        load8(at, v);
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            v[e] = __expf(v[e] - s.x) * over - (i * VECTOR + e == target ? scale : 0);
        store8(at, v);
    }
}
void loss_sum(const bf16 *logits, float2 *out, size_t rows, size_t cols, cudaStream_t stream) {
    loss_sum_kernel<<<static_cast<unsigned>(rows), LOSS_THREADS, 0, stream>>>(logits, out, cols);
}
void loss_grad(bf16 *logits, const float2 *sums, const int *targets, size_t rows, size_t cols,
               cudaStream_t stream) {
    loss_grad_kernel<<<static_cast<unsigned>(rows), LOSS_THREADS, 0, stream>>>(
        logits, sums, targets, cols, 1.0f / static_cast<float>(rows));
}

} // namespace cal
