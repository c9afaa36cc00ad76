/* The memory-bound kernels that dtplan-calibrate-cuda times, written as fused frameworks write them: those that read
 * and write each element once, those that move elements to other places, and those over rows. */
#include "runtime/cuda/calibrate_kernels.cuh"

#include "runtime/device/dropout.h"

namespace cal {

/* ---- 16-byte accesses ---- */

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

/* ---- each element once: sums, casts, activations, dropout, rotary positions, AdamW over many tensors ---- */

/* ---- elementwise: one vector of 8 a thread ---- */

template <class Op> __global__ void each_vector(Op op, size_t vectors) {
    size_t i = blockIdx.x * static_cast<size_t>(THREADS) + threadIdx.x;

    if (i < vectors)
        op(i * VECTOR);
}
template <class Op> static void each(const Op &op, size_t n, cudaStream_t stream) {
    each_vector<<<blocks_for(n / VECTOR, THREADS), THREADS, 0, stream>>>(op, n / VECTOR);
}

template <class A, class B, class C> struct Add {
    const A *a;
    const B *b;
    C *c;
    __device__ void operator()(size_t at) const {
        float x[VECTOR], y[VECTOR];

        load8(a + at, x);
        load8(b + at, y);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            x[j] += y[j];
        store8(c + at, x);
    }
};
void add_bf16(const void *a, const void *b, void *c, size_t n, cudaStream_t stream) {
    each(Add<bf16, bf16, bf16>{static_cast<const bf16 *>(a), static_cast<const bf16 *>(b),
                               static_cast<bf16 *>(c)},
         n, stream);
}
void add_mixed(const float *a, const bf16 *b, float *c, size_t n, cudaStream_t stream) {
    each(Add<float, bf16, float>{a, b, c}, n, stream);
}

template <class A, class B> struct Copy {
    const A *a;
    B *b;
    __device__ void operator()(size_t at) const {
        float x[VECTOR];

        load8(a + at, x);
        store8(b + at, x);
    }
};
void copy_bf16(const bf16 *a, bf16 *b, size_t n, cudaStream_t stream) {
    each(Copy<bf16, bf16>{a, b}, n, stream);
}
void cast_f32_bf16(const float *a, bf16 *b, size_t n, cudaStream_t stream) {
    each(Copy<float, bf16>{a, b}, n, stream);
}
void cast_bf16_f32(const bf16 *a, float *b, size_t n, cudaStream_t stream) {
    each(Copy<bf16, float>{a, b}, n, stream);
}

/* GELU, tanh form (Hendrycks and Gimpel 2016, section 2). */
static const double gelu_a = 0.7978845608028654, gelu_b = 0.044715;

__device__ static float tanh_fast(float x) {
#if __CUDA_ARCH__ >= 750
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return tanhf(x);
#endif
}
struct Gelu {
    const bf16 *x;
    bf16 *y;
    __device__ void operator()(size_t at) const {
        float v[VECTOR];

        load8(x + at, v);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            float u =
                static_cast<float>(gelu_a) * v[j] * (1 + static_cast<float>(gelu_b) * v[j] * v[j]);
            v[j] = 0.5f * v[j] * (1 + tanh_fast(u));
        }
        store8(y + at, v);
    }
};
void gelu(const bf16 *x, bf16 *y, size_t n, cudaStream_t stream) {
    each(Gelu{x, y}, n, stream);
}

struct GeluBackward {
    const bf16 *x, *dy;
    bf16 *dx;
    __device__ void operator()(size_t at) const {
        float v[VECTOR], g[VECTOR];

        load8(x + at, v);
        load8(dy + at, g);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            float a = static_cast<float>(gelu_a), b = static_cast<float>(gelu_b), x2 = v[j] * v[j];
            float t = tanh_fast(a * v[j] * (1 + b * x2));
            g[j] *= 0.5f * (1 + t) + 0.5f * v[j] * (1 - t * t) * a * (1 + 3 * b * x2);
        }
        store8(dx + at, g);
    }
};
void gelu_backward(const bf16 *x, const bf16 *dy, bf16 *dx, size_t n, cudaStream_t stream) {
    each(GeluBackward{x, dy, dx}, n, stream);
}

__device__ static float sigmoid(float x) {
    return 1 / (1 + __expf(-x));
}
struct Swiglu {
    const bf16 *gate, *up;
    bf16 *y;
    __device__ void operator()(size_t at) const {
        float g[VECTOR], u[VECTOR];

        load8(gate + at, g);
        load8(up + at, u);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            g[j] = g[j] * sigmoid(g[j]) * u[j];
        store8(y + at, g);
    }
};
void swiglu(const bf16 *gate, const bf16 *up, bf16 *y, size_t n, cudaStream_t stream) {
    each(Swiglu{gate, up, y}, n, stream);
}

struct SwigluBackward {
    const bf16 *gate, *up, *dy;
    bf16 *dgate, *dup;
    __device__ void operator()(size_t at) const {
        float g[VECTOR], u[VECTOR], d[VECTOR];

        load8(gate + at, g);
        load8(up + at, u);
        load8(dy + at, d);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            float s = sigmoid(g[j]), silu = g[j] * s;
            float du = d[j] * silu;
            g[j] = d[j] * u[j] * s * (1 + g[j] * (1 - s));
            u[j] = du;
        }
        store8(dgate + at, g);
        store8(dup + at, u);
    }
};
void swiglu_backward(const bf16 *gate, const bf16 *up, const bf16 *dy, bf16 *dgate, bf16 *dup,
                     size_t n, cudaStream_t stream) {
    each(SwigluBackward{gate, up, dy, dgate, dup}, n, stream);
}

struct Dropout {
    const bf16 *x;
    bf16 *y;
    uint8_t *mask;
    float keep;
    __device__ void operator()(size_t at) const {
        size_t i = at / VECTOR;
        uint32_t least = static_cast<uint32_t>((1 - keep) * 65536);
        uint32_t bits[4] = {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0};
        const uint32_t key[2] = {17, 29};
        float v[VECTOR];
        uint8_t kept[VECTOR];

        load8(x + at, v);
        dtp_philox(bits, key);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            kept[j] = ((bits[j / 2] >> (16 * (j % 2))) & 0xffff) >= least;
            v[j] = kept[j] ? v[j] / keep : 0;
        }
        store8(y + at, v);
        *reinterpret_cast<uint2 *>(mask + at) = *reinterpret_cast<uint2 *>(kept);
    }
};
void dropout(const bf16 *x, bf16 *y, uint8_t *mask, size_t n, cudaStream_t stream) {
    each(Dropout{x, y, mask, 0.9f}, n, stream);
}

/* Rotates (i, i + d/2) of each head; a thread has 8 pairs. angles: cos, sin by [position][d/2]. */
__global__ void rope_kernel(bf16 *x, const float *cosines, const float *sines, uint32_t vectors,
                            uint32_t heads, uint32_t half) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t head = i / (half / VECTOR), at = (i - head * (half / VECTOR)) * VECTOR;
    size_t position = head / heads;
    float a[VECTOR], b[VECTOR], c[VECTOR], s[VECTOR];

    if (i >= vectors)
        return;
    bf16 *p = x + static_cast<size_t>(head) * 2 * half + at;
    load8(p, a);
    load8(p + half, b);
    load8(cosines + position * half + at, c);
    load8(sines + position * half + at, s);
#pragma unroll
    for (int j = 0; j < VECTOR; j++) {
        float u = a[j] * c[j] - b[j] * s[j];
        b[j] = a[j] * s[j] + b[j] * c[j];
        a[j] = u;
    }
    store8(p, a);
    store8(p + half, b);
}
void rope(bf16 *x, const float *cosines, const float *sines, size_t rows, int heads, int head_dim,
          cudaStream_t stream) {
    size_t vectors = rows * static_cast<size_t>(heads) * static_cast<size_t>(head_dim / 2) / VECTOR;

    rope_kernel<<<blocks_for(vectors, THREADS), THREADS, 0, stream>>>(
        x, cosines, sines, static_cast<uint32_t>(vectors), static_cast<uint32_t>(heads),
        static_cast<uint32_t>(head_dim / 2));
}

/* ---- AdamW (Loshchilov and Hutter 2019, algorithm 2), many tensors in one launch ---- */

template <class P, class G, class S>
__global__ void adamw_kernel(const AdamChunk *chunks, AdamTensors<P, G, S> t) {
    AdamChunk c = chunks[blockIdx.x];
    const float beta1 = 0.9f, beta2 = 0.95f, lr = 1e-4f, decay = 0.1f, epsilon = 1e-8f;
    const float correct1 = 0.1f, correct2 = 0.05f; /* corrections of the first step */

    for (size_t i = threadIdx.x; i < c.n / VECTOR; i += THREADS) {
        size_t at = c.first + i * VECTOR;
        float p[VECTOR], a[VECTOR], b[VECTOR], g[VECTOR];

        if (t.master)
            load8(t.master + at, p);
        else
            load8(t.param + at, p);
        load8(t.m + at, a);
        load8(t.v + at, b);
        load8(t.grad + at, g);
#pragma unroll
        for (int e = 0; e < VECTOR; e++) {
            a[e] = beta1 * a[e] + (1 - beta1) * g[e];
            b[e] = beta2 * b[e] + (1 - beta2) * g[e] * g[e];
            float step = a[e] / correct1 / (sqrtf(b[e] / correct2) + epsilon);
            p[e] -= lr * (step + decay * p[e]);
        }
        if (t.master)
            store8(t.master + at, p);
        store8(t.param + at, p);
        store8(t.m + at, a);
        store8(t.v + at, b);
    }
}
template <class P, class G, class S>
void adamw(const AdamChunk *chunks, size_t n, const AdamTensors<P, G, S> &t, cudaStream_t stream) {
    adamw_kernel<<<static_cast<unsigned>(n), THREADS, 0, stream>>>(chunks, t);
}
#define ADAMW(P, G, S)                                                                             \
    template void adamw(const AdamChunk *, size_t, const AdamTensors<P, G, S> &, cudaStream_t)
ADAMW(float, float, float);
ADAMW(bf16, bf16, bf16);
ADAMW(bf16, bf16, float);
ADAMW(bf16, float, float);

/* ---- moves: axes swapped, transposes, columns joined, embeddings ---- */

/* ---- strided ---- */

/* Below, rows and columns are divided in 32 bits: a 64-bit division costs as much as the memory access. */

/* Turns [a][b][d] into [b][a][d], with d contiguous. */
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

/* A row of y has the columns of a, then those of b. */
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

/* ---- rows: norms, softmax, sums of columns, cross-entropy ---- */

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
/* A block has 32 columns, and a column has 32 threads. */
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

/* A thread has at most NV vectors of a row; its vector j is j * blockDim + thread. */
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

/* Computes dx = r (w dy - mean(w dy) - xhat mean(w dy xhat)); a block walks rows and keeps the sums for the
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

/* Returns the number of threads of a row, each with 2 or 4 vectors: as few threads as that takes. */
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
