/* Layer and RMS norm, column sums (bias gradients) and squared norms. All sums have a fixed order. */
#include "runtime/cuda/kernels.cuh"

#include <algorithm>

namespace dtp {

enum { FEW_THREADS = 512, MAX_THREADS = 1024, MOST_VECTORS = 16 };
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

/* dx row by row; a block keeps the sums for dweight and dbias of its rows in registers and leaves them
 * in partial[block][2][cols]. */
template <typename T, int V, int K>
__global__ void __launch_bounds__(threads_of(K))
    norm_backward(struct dtp_norm_args n, float *partial) {
    int64_t cols = n.cols;
    float dw[K * V], db[K * V], inverse = 1.0f / static_cast<float>(cols);
#pragma unroll
    for (int i = 0; i < K * V; i++)
        dw[i] = db[i] = 0.0f;
    for (int64_t row = blockIdx.x; row < n.rows; row += gridDim.x) {
        float xh[K * V], g[K * V], r[K * V], sum[2] = {0.0f, 0.0f};
        float mean = n.mean ? n.mean[row] : 0.0f, rstd = n.rstd[row];
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
#pragma unroll
            for (int v = 0; v < V; v++)
                xh[k * V + v] = g[k * V + v] = r[k * V + v] = 0.0f;
            if (at >= cols)
                continue;
            float w[V];
            if (n.residual) /* under way during the sums */
                load<T, V>(r + k * V, static_cast<const T *>(n.residual) + row * cols + at);
            load<T, V>(xh + k * V, static_cast<const T *>(n.x) + row * cols + at);
            load<T, V>(g + k * V, static_cast<const T *>(n.dy) + row * cols + at);
            load<T, V>(w, static_cast<const T *>(n.weight) + at);
#pragma unroll
            for (int v = 0; v < V; v++) {
                int i = k * V + v;
                xh[i] = (xh[i] - mean) * rstd;
                dw[i] += g[i] * xh[i];
                db[i] += g[i];
                g[i] *= w[v];
                sum[0] += g[i];
                sum[1] += g[i] * xh[i];
            }
        }
        block_sum(sum);
        float mean_g = n.rms ? 0.0f : sum[0] * inverse, mean_gx = sum[1] * inverse;
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
            if (at >= cols)
                continue;
#pragma unroll
            for (int v = 0; v < V; v++)
                r[k * V + v] += rstd * (g[k * V + v] - mean_g - xh[k * V + v] * mean_gx);
            store<T, V>(static_cast<T *>(n.dx) + row * cols + at, r + k * V);
        }
    }
    float *to = partial + static_cast<int64_t>(blockIdx.x) * 2 * cols;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t at = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
        for (int v = 0; v < V && at < cols; v++) {
            to[at + v] = dw[k * V + v];
            to[cols + at + v] = db[k * V + v];
        }
    }
}

/* out[y][c] += sum over parts of partial[part][y][c], y = blockIdx.y below the number of outs. Loads of
 * AT_ONCE parts are under way together: few blocks must read all. */
enum { FOLD_ROWS = 16, AT_ONCE = 8 };
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

/* partial[nparts][outs][cols]; second NULL: one out, but every part still holds `outs` */
static void fold(struct dtp_dev *d, float *first, float *second, int nparts, int outs,
                 int64_t cols) {
    dim3 grid(static_cast<unsigned>(ceil_div(cols, 32)), second ? 2 : 1);
    fold_columns<<<grid, dim3(32, FOLD_ROWS), 0, stream_of(d)>>>(
        first, second, static_cast<const float *>(dtp_cuda_of(d)->scratch), nparts, outs * cols,
        cols);
}

/* Blocks of whole warps that hold a row; f(integral_constant<K>, threads). */
template <int V, class F> static void with_rows(struct dtp_dev *d, int64_t cols, F f) {
    int64_t vectors = (cols + V - 1) / V;
    int threads = static_cast<int>(std::min<int64_t>((vectors + 31) / 32 * 32, FEW_THREADS));
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
            with_rows<V>(d, n->cols, [&](auto k, int threads) {
                norm_forward<T, V, decltype(k)::value>
                    <<<static_cast<unsigned>(n->rows), threads, 0, stream_of(d)>>>(*n);
            });
        });
    });
}

extern "C" void dtp_cuda_norm_backward(struct dtp_dev *d, const struct dtp_norm_args *n) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    int64_t room = static_cast<int64_t>(c->scratch_bytes / sizeof(float)) / (2 * n->cols);
    /* what is resident at once, so that blocks get the same number of rows and leave few parts */
    int64_t threads = std::min<int64_t>(std::max<int64_t>(n->cols / 8, 128), FEW_THREADS);
    int64_t resident = c->num_sms * (1024 / threads);
    int64_t few = ceil_div(n->rows, int64_t{4}); /* each part is read again by the fold */
    int blocks = static_cast<int>(std::min({few, room, resident}));
    float *partial = static_cast<float *>(c->scratch);
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = all_aligned(n->x, n->dy, n->dx, n->weight, n->residual) && fits<T>(n->cols);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            with_rows<V>(d, n->cols, [&](auto k, int threads) {
                norm_backward<T, V, decltype(k)::value>
                    <<<static_cast<unsigned>(blocks), threads, 0, stream_of(d)>>>(*n, partial);
            });
        });
    });
    fold(d, static_cast<float *>(n->dweight), static_cast<float *>(n->dbias), blocks, 2, n->cols);
}

/* ---- column sums ---- */

enum { SUM_ROWS = 8 };
template <typename T, int V>
__global__ void __launch_bounds__(32 * SUM_ROWS)
    column_sums(float *partial, const T *x, int64_t rows, int64_t cols) {
    __shared__ float sum[SUM_ROWS][32 * V + 1];
    int64_t c = (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * V;
    float s[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        s[v] = 0.0f;
    int64_t step = static_cast<int64_t>(gridDim.y) * SUM_ROWS;
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
    if (threadIdx.y != 0 || c >= cols)
        return;
    for (int v = 0; v < V; v++) {
        float all = 0.0f;
        for (int i = 0; i < SUM_ROWS; i++)
            all += sum[i][threadIdx.x * V + v];
        partial[blockIdx.y * cols + c + v] = all;
    }
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
            dim3 grid(static_cast<unsigned>(ceil_div(cols, 32 * V)), static_cast<unsigned>(parts));
            column_sums<T, V><<<grid, dim3(32, SUM_ROWS), 0, stream_of(d)>>>(
                static_cast<float *>(c->scratch), static_cast<const T *>(dy), rows, cols);
        });
    });
    fold(d, static_cast<float *>(dbias), nullptr, parts, 1, cols);
}

/* ---- squared norm: the last block to end adds the blocks' sums in their order ---- */

enum { NORM_THREADS = 512 };
template <typename T, int V>
__global__ void __launch_bounds__(NORM_THREADS)
    squared_norm(float *out, const T *x, int64_t n, float factor, float *partial,
                 unsigned *ticket) {
    __shared__ bool last;
    float s[1] = {0.0f};
    int64_t step = static_cast<int64_t>(gridDim.x) * NORM_THREADS * V;
    for (int64_t i = (static_cast<int64_t>(blockIdx.x) * NORM_THREADS + threadIdx.x) * V; i < n;
         i += step) {
        float a[V];
        load<T, V>(a, x + i);
#pragma unroll
        for (int v = 0; v < V; v++)
            s[0] += a[v] * a[v];
    }
    block_sum(s);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    s[0] = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += NORM_THREADS)
        s[0] += __ldcg(partial + i);
    block_sum(s);
    if (threadIdx.x == 0) {
        *out += s[0] * factor;
        *ticket = 0;
    }
}

extern "C" void dtp_cuda_norm2(struct dtp_dev *d, float *sum, const void *grad, int64_t n,
                               double factor) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    with_type(d, d->grad_dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(grad) && fits<T>(n), [&](auto width) {
            constexpr int V = decltype(width)::value;
            int blocks = std::min(ceil_div(n, NORM_THREADS * V), 4 * c->num_sms);
            squared_norm<T, V><<<static_cast<unsigned>(blocks), NORM_THREADS, 0, stream_of(d)>>>(
                sum, static_cast<const T *>(grad), n, static_cast<float>(factor),
                static_cast<float *>(c->scratch), c->ticket);
        });
    });
}

} // namespace dtp
