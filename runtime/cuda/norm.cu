/* Layer and RMS norm, column sums (bias gradients) and squared norms. All sums have a fixed order. */
#include "runtime/cuda/kernels.cuh"

#include <algorithm>

namespace dtp {

enum { FEW_THREADS = 512, MAX_THREADS = 1024, MOST_VECTORS = 16 };
enum { MOST_AT_ONCE = 15 }; /* rows of a block: each has a barrier of the sixteen of a block */
/* few vectors a thread: smaller blocks, so that all stays in registers */
constexpr int threads_of(int k) {
    return k <= 4 ? FEW_THREADS : MAX_THREADS;
}

/* One block a row, K vectors of V elements a thread, all in registers. */
template <typename T, int V, int K>
__global__ void __launch_bounds__(threads_of(K)) norm_forward(struct dtp_norm_args n) {
    int64_t row = blockIdx.x, cols = n.cols;
    const T *from = static_cast<const T *>(n.x) + row * cols;
    float x[K * V], sum[1] = {0.0f};
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
        if (at < cols)
            load<T, V>(x + k * V, from + at);
#pragma unroll
        for (int v = 0; v < V; v++) {
            x[k * V + v] = at < cols ? x[k * V + v] : 0.0f;
            sum[0] += x[k * V + v];
        }
    }
    float mean = 0.0f, inverse = 1.0f / static_cast<float>(cols);
    if (!n.rms) {
        block_sum(sum);
        mean = sum[0] * inverse;
    }
    sum[0] = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
#pragma unroll
        for (int v = 0; v < V; v++) {
            float centred = x[k * V + v] - mean;
            sum[0] += at < cols ? centred * centred : 0.0f;
        }
    }
    block_sum(sum);
    float rstd = 1.0f / sqrtf(sum[0] * inverse + static_cast<float>(n.epsilon));
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
        if (at >= cols)
            continue;
        float w[V], b[V];
        load<T, V>(w, static_cast<const T *>(n.weight) + at);
#pragma unroll
        for (int v = 0; v < V; v++)
            b[v] = 0.0f;
        if (n.bias)
            load<T, V>(b, static_cast<const T *>(n.bias) + at);
#pragma unroll
        for (int v = 0; v < V; v++)
            w[v] = (x[k * V + v] - mean) * rstd * w[v] + b[v];
        store<T, V>(static_cast<T *>(n.y) + row * cols + at, w);
    }
    if (threadIdx.x == 0) {
        n.rstd[row] = rstd;
        if (n.mean)
            n.mean[row] = mean;
    }
}

/* Sums each of two numbers over the blockDim.x threads of a row; a row waits for its own threads only. The caller
 * alternates between two places, so that one wait is enough. */
__device__ __forceinline__ void row_sum(float (&x)[2], int turn) {
    __shared__ float part[2][MAX_THREADS / 32][2];
    int nwarps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int first = static_cast<int>(threadIdx.y) * nwarps;
    x[0] = warp_sum(x[0]);
    x[1] = warp_sum(x[1]);
    if (nwarps == 1)
        return;
    if (lane == 0) {
        float *to = part[turn][first + static_cast<int>(threadIdx.x) / 32];
        to[0] = x[0];
        to[1] = x[1];
    }
    asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
    x[0] = warp_sum(lane < nwarps ? part[turn][first + lane][0] : 0.0f);
    x[1] = warp_sum(lane < nwarps ? part[turn][first + lane][1] : 0.0f);
}

/* Sums of the block's rows in their order into part[2][cols]; all: the same in shared memory, for several rows. */
template <int V, int K>
__device__ __forceinline__ void add_rows(const float (&dw)[K * V], const float (&db)[K * V],
                                         float *all, float *part, int64_t cols) {
    float *to = blockDim.y > 1 ? all : part;
    for (unsigned y = 0; y < blockDim.y; y++) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
            for (int v = 0; v < V && at < cols && threadIdx.y == y; v++) {
                to[at + v] = dw[k * V + v] + (y > 0 ? to[at + v] : 0.0f);
                to[cols + at + v] = db[k * V + v] + (y > 0 ? to[cols + at + v] : 0.0f);
            }
        }
        __syncthreads();
    }
    int64_t first = static_cast<int64_t>(threadIdx.y) * blockDim.x + threadIdx.x;
    for (int64_t i = first; to == all && i < 2 * cols; i += blockDim.x * blockDim.y)
        part[i] = all[i];
}

/* dx row by row, blockDim.y rows at a time; a thread keeps the sums for dweight and dbias of its columns in
 * registers, a block adds those of its rows in their order and leaves them in partial[block][2][cols]. Between
 * the two passes over a row its elements stay as they came, in half the registers. */
template <typename T, int V, int K>
__global__ void __launch_bounds__(MAX_THREADS)
    norm_backward(struct dtp_norm_args n, float *partial) {
    extern __shared__ float all[]; /* [2][cols], with several rows at a time */
    int64_t cols = n.cols, step = static_cast<int64_t>(gridDim.x) * blockDim.y;
    int turn = 0;
    float dw[K * V], db[K * V], inverse = 1.0f / static_cast<float>(cols);
#pragma unroll
    for (int i = 0; i < K * V; i++)
        dw[i] = db[i] = 0.0f;
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < n.rows;
         row += step) {
        Vector<T, V> x[K] = {}, dy[K] = {}, r[K] = {};
        float sum[2] = {0.0f, 0.0f}, mean = n.mean ? n.mean[row] : 0.0f, rstd = n.rstd[row];
#pragma unroll
        for (int k = 0; k < K; k++) { /* all are under way at once */
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
            if (at >= cols)
                continue;
            x[k] = load_raw<T, V>(static_cast<const T *>(n.x) + row * cols + at);
            dy[k] = load_raw<T, V>(static_cast<const T *>(n.dy) + row * cols + at);
            if (n.residual)
                r[k] = load_raw<T, V>(static_cast<const T *>(n.residual) + row * cols + at);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
            float xh[V], g[V], w[V];
            if (at >= cols)
                continue;
            unpack<T, V>(xh, x[k]);
            unpack<T, V>(g, dy[k]);
            load<T, V>(w, static_cast<const T *>(n.weight) + at);
#pragma unroll
            for (int v = 0; v < V; v++) {
                xh[v] = (xh[v] - mean) * rstd;
                dw[k * V + v] += g[v] * xh[v];
                db[k * V + v] += g[v];
                sum[0] += g[v] * w[v];
                sum[1] += g[v] * w[v] * xh[v];
            }
        }
        row_sum(sum, turn);
        turn ^= 1;
        float mean_g = n.rms ? 0.0f : sum[0] * inverse, mean_gx = sum[1] * inverse;
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
            float xh[V], g[V], w[V], out[V];
            if (at >= cols)
                continue;
            unpack<T, V>(xh, x[k]);
            unpack<T, V>(g, dy[k]);
            unpack<T, V>(out, r[k]);
            load<T, V>(w, static_cast<const T *>(n.weight) + at);
#pragma unroll
            for (int v = 0; v < V; v++)
                out[v] += rstd * (g[v] * w[v] - mean_g - (xh[v] - mean) * rstd * mean_gx);
            store<T, V>(static_cast<T *>(n.dx) + row * cols + at, out);
        }
    }
    add_rows<V, K>(dw, db, all, partial + static_cast<int64_t>(blockIdx.x) * 2 * cols, cols);
}

/* out[y][c] += sum over parts of partial[part][y][c], y = blockIdx.y below the number of outs. Loads of
 * AT_ONCE parts are under way together: few blocks must read all. */
enum { FOLD_ROWS = 16, AT_ONCE = 9 }; /* 144 parts: a block of each SM */
__global__ void __launch_bounds__(32 * FOLD_ROWS)
    fold_columns(float *first, float *second, const float *partial, int nparts, int64_t stride,
                 int64_t cols) {
    __shared__ float sum[FOLD_ROWS][33];
    int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
    float *out = blockIdx.y == 0 ? first : second;
    float s = 0.0f;
    partial += blockIdx.y * cols;
    for (int i = static_cast<int>(threadIdx.y); c < cols && i < nparts; i += AT_ONCE * FOLD_ROWS) {
        float a[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            a[k] = i + k * FOLD_ROWS < nparts ? partial[(i + k * FOLD_ROWS) * stride + c] : 0.0f;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            s += a[k];
    }
    sum[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y != 0 || c >= cols)
        return;
    for (int i = 1; i < FOLD_ROWS; i++)
        s += sum[i][threadIdx.x];
    out[c] += s;
}

/* partial[nparts][2][cols] */
static void fold(struct dtp_dev *d, float *first, float *second, int nparts, int64_t cols) {
    dim3 grid(static_cast<unsigned>(ceil_div(cols, 32)), second ? 2 : 1);
    fold_columns<<<grid, dim3(32, FOLD_ROWS), 0, stream_of(d)>>>(
        first, second, static_cast<const float *>(dtp_cuda_of(d)->scratch), nparts, 2 * cols, cols);
}

/* Blocks of whole warps that hold a row, of `few` threads with few vectors each; f(integral_constant<K>,
 * threads). */
template <int V, class F> static void with_rows(struct dtp_dev *d, int64_t cols, int few, F f) {
    int64_t vectors = (cols + V - 1) / V;
    int threads = static_cast<int>(std::min<int64_t>((vectors + 31) / 32 * 32, few));
    int k = ceil_div(vectors, threads);
    constexpr int most = V > 1 ? MOST_VECTORS / 2 : MOST_VECTORS;
    if (k <= 1)
        f(std::integral_constant<int, 1>{}, threads);
    else if (k <= 2)
        f(std::integral_constant<int, 2>{}, threads);
    else if (k <= 4)
        f(std::integral_constant<int, 4>{}, threads);
    else if (ceil_div(vectors, MAX_THREADS) <= most)
        f(std::integral_constant<int, most>{}, MAX_THREADS);
    else
        dtp_cuda_fail(dtp_cuda_of(d), "norm over %lld columns", static_cast<long long>(cols));
}

extern "C" void dtp_cuda_norm_forward(struct dtp_dev *d, const struct dtp_norm_args *n) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = all_aligned(n->x, n->y, n->weight, n->bias) && fits<T>(n->cols);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            with_rows<V>(d, n->cols, FEW_THREADS, [&](auto k, int threads) {
                norm_forward<T, V, decltype(k)::value>
                    <<<static_cast<unsigned>(n->rows), threads, 0, stream_of(d)>>>(*n);
            });
        });
    });
}

extern "C" void dtp_cuda_norm_backward(struct dtp_dev *d, const struct dtp_norm_args *n) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    int64_t room = static_cast<int64_t>(c->scratch_bytes / sizeof(float)) / (2 * n->cols);
    int blocks = 0;
    float *partial = static_cast<float *>(c->scratch);
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = all_aligned(n->x, n->dy, n->dx, n->weight, n->residual) && fits<T>(n->cols);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            with_rows<V>(d, n->cols, MAX_THREADS, [&](auto k, int threads) {
                constexpr int K = decltype(k)::value;
                /* one block of each SM leaves few parts, each of which is read again by the fold */
                int at_once = K == 1 ? std::min(MAX_THREADS / threads, int{MOST_AT_ONCE}) : 1;
                int64_t few = ceil_div(n->rows, std::max(at_once, 4));
                blocks = static_cast<int>(std::min<int64_t>({few, room, c->num_sms}));
                size_t bytes = at_once > 1 ? 2 * sizeof(float) * static_cast<size_t>(n->cols) : 0;
                norm_backward<T, V, K>
                    <<<static_cast<unsigned>(blocks),
                       dim3(static_cast<unsigned>(threads), static_cast<unsigned>(at_once)), bytes,
                       stream_of(d)>>>(*n, partial);
            });
        });
    });
    fold(d, static_cast<float *>(n->dweight), static_cast<float *>(n->dbias), blocks, n->cols);
}

/* ---- column sums: the last block of a group of columns adds the blocks' sums in their order ---- */

enum { SUM_ROWS = 8 };
template <typename T, int V>
__global__ void __launch_bounds__(32 * SUM_ROWS)
    column_sums(float *out, float *partial, const T *x, int64_t rows, int64_t cols,
                unsigned *tickets) {
    __shared__ float sum[SUM_ROWS][32 * V + 1];
    __shared__ bool last;
    int64_t group = static_cast<int64_t>(blockIdx.x) * 32 * V, c = group + threadIdx.x * V;
    int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    float s[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        s[v] = 0.0f;
    int64_t step = static_cast<int64_t>(gridDim.y) * SUM_ROWS;
#pragma unroll 4
    for (int64_t r = static_cast<int64_t>(blockIdx.y) * SUM_ROWS + threadIdx.y;
         c < cols && r < rows; r += step) {
        float a[V];
        load<T, V>(a, x + r * cols + c);
#pragma unroll
        for (int v = 0; v < V; v++)
            s[v] += a[v];
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[threadIdx.y][threadIdx.x * V + v] = s[v];
    __syncthreads();
    for (int i = thread; i < 32 * V && group + i < cols; i += 32 * SUM_ROWS) {
        float all = 0.0f;
        for (int y = 0; y < SUM_ROWS; y++)
            all += sum[y][i];
        partial[blockIdx.y * cols + group + i] = all;
    }
    __threadfence();
    __syncthreads();
    if (thread == 0)
        last = atomicAdd(tickets + blockIdx.x, 1u) == gridDim.y - 1;
    __syncthreads();
    if (!last)
        return;
    for (int i = thread; i < 32 * V && group + i < cols; i += 32 * SUM_ROWS) {
        float all = 0.0f;
#pragma unroll 16
        for (unsigned y = 0; y < gridDim.y; y++)
            all += __ldcg(partial + y * cols + group + i);
        out[group + i] += all;
    }
    if (thread == 0)
        tickets[blockIdx.x] = 0;
}

extern "C" void dtp_cuda_bias_backward(struct dtp_dev *d, void *dbias, const void *dy,
                                       const int64_t shape[2]) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    int64_t rows = shape[0], cols = shape[1];
    int64_t room = static_cast<int64_t>(c->scratch_bytes / sizeof(float)) / cols;
    int parts = static_cast<int>(std::min<int64_t>({64, room, (rows + 31) / 32}));
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(dy) && fits<T>(cols), [&](auto width) {
            constexpr int V = decltype(width)::value;
            int groups = ceil_div(cols, 32 * V);
            if (groups > DTP_CUDA_TICKETS) {
                dtp_cuda_fail(c, "a bias of %lld columns", static_cast<long long>(cols));
                return;
            }
            dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(parts));
            column_sums<T, V><<<grid, dim3(32, SUM_ROWS), 0, stream_of(d)>>>(
                static_cast<float *>(dbias), static_cast<float *>(c->scratch),
                static_cast<const T *>(dy), rows, cols, c->ticket);
        });
    });
}

} // namespace dtp
