/* Vocabulary-parallel cross-entropy in the dtype of the logits, and embeddings. */
#include "runtime/cuda/kernels.cuh"

namespace dtp {

enum { LOSS_THREADS = 512, EMBED_THREADS = 256 };

/* The maximum and, relative to it, the sum of exponentials of this rank's part of a row, in one pass:
 * sum[r] and target[r] hold the latter and the local maximum until loss_sum() makes them final. */
template <typename T, int V>
__global__ void __launch_bounds__(LOSS_THREADS) loss_max(struct dtp_loss_args x) {
    __shared__ float part[32];
    int64_t row = blockIdx.x;
    const T *l = static_cast<const T *>(x.logits) + row * x.cols;
    float most = -INFINITY, sum[1] = {0.0f};
    for (int64_t k = static_cast<int64_t>(threadIdx.x) * V; k < x.valid; k += LOSS_THREADS * V) {
        float a[V], m = most;
        load<T, V>(a, l + k);
#pragma unroll
        for (int v = 0; v < V; v++) {
            a[v] = k + v < x.valid ? a[v] : -INFINITY;
            m = fmaxf(m, a[v]);
        }
        sum[0] *= __expf(most - m); /* exp(-inf) = 0 the first time */
#pragma unroll
        for (int v = 0; v < V; v++)
            sum[0] += __expf(a[v] - m);
        most = m;
    }
    float all = warp_max(most);
    int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0)
        part[warp] = all;
    __syncthreads();
    all = warp_max(lane < LOSS_THREADS / 32 ? part[lane] : -INFINITY);
    sum[0] = most == -INFINITY ? 0.0f : sum[0] * __expf(most - all);
    block_sum(sum);
    if (threadIdx.x == 0) {
        x.max[row] = all;
        x.sum[row] = sum[0];
        x.target[row] = all;
    }
}

template <typename T> __global__ void loss_sum(struct dtp_loss_args x) {
    int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= x.rows)
        return;
    float local = x.target[row], most = x.max[row];
    int64_t own = x.targets[row] - x.first;
    bool mine = own >= 0 && own < x.valid;
    x.sum[row] = local == -INFINITY ? 0.0f : x.sum[row] * expf(local - most);
    x.target[row] =
        mine ? to_float(static_cast<const T *>(x.logits)[row * x.cols + own]) - most : 0.0f;
}

__global__ void __launch_bounds__(LOSS_THREADS) loss_mean(struct dtp_loss_args x) {
    float s[1] = {0.0f};
    for (int64_t r = threadIdx.x; r < x.rows; r += LOSS_THREADS)
        s[0] += logf(x.sum[r]) - x.target[r];
    block_sum(s);
    if (threadIdx.x == 0)
        *x.loss += static_cast<float>(static_cast<double>(s[0]) * x.scale);
}

template <typename T, int V>
__global__ void __launch_bounds__(LOSS_THREADS) loss_grad(struct dtp_loss_args x) {
    int64_t row = blockIdx.x, own = x.targets[row] - x.first;
    T *l = static_cast<T *>(x.logits) + row * x.cols;
    float scale = static_cast<float>(x.scale), most = x.max[row], factor = scale / x.sum[row];
    for (int64_t k = static_cast<int64_t>(threadIdx.x) * V; k < x.cols; k += LOSS_THREADS * V) {
        float a[V];
        load<T, V>(a, l + k);
#pragma unroll
        for (int v = 0; v < V; v++) {
            a[v] = k + v < x.valid ? __expf(a[v] - most) * factor : 0.0f;
            if (k + v == own && own < x.valid)
                a[v] -= scale;
        }
        store<T, V>(l + k, a);
    }
}

extern "C" void dtp_cuda_loss_max(struct dtp_dev *d, const struct dtp_loss_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(x->logits) && fits<T>(x->cols), [&](auto width) {
            loss_max<T, decltype(width)::value>
                <<<static_cast<unsigned>(x->rows), LOSS_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

extern "C" void dtp_cuda_loss_sum(struct dtp_dev *d, const struct dtp_loss_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        loss_sum<decltype(zero)>
            <<<static_cast<unsigned>(ceil_div(x->rows, 128)), 128, 0, stream_of(d)>>>(*x);
    });
}

extern "C" void dtp_cuda_loss_mean(struct dtp_dev *d, const struct dtp_loss_args *x) {
    loss_mean<<<1, LOSS_THREADS, 0, stream_of(d)>>>(*x);
}

extern "C" void dtp_cuda_loss_grad(struct dtp_dev *d, const struct dtp_loss_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(x->logits) && fits<T>(x->cols), [&](auto width) {
            loss_grad<T, decltype(width)::value>
                <<<static_cast<unsigned>(x->rows), LOSS_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

/* ---- embeddings ---- */

template <typename T, int V>
__global__ void __launch_bounds__(EMBED_THREADS) embed(struct dtp_embedding_args x) {
    int64_t row = blockIdx.x, own = x.ids[row] - x.first;
    bool mine = own >= 0 && own < x.valid;
    const T *from = static_cast<const T *>(x.table) + own * x.cols;
    T *to = static_cast<T *>(x.out) + row * x.cols;
    for (int64_t k = static_cast<int64_t>(threadIdx.x) * V; k < x.cols; k += EMBED_THREADS * V) {
        float a[V];
#pragma unroll
        for (int v = 0; v < V; v++)
            a[v] = 0.0f;
        if (mine)
            load<T, V>(a, from + k);
        store<T, V>(to + k, a);
    }
}

/* The first row with a token sums over all rows with it, in their order; the others do nothing. The
 * search is rows^2 comparisons, which stay in the L2 cache. Columns are split over blockIdx.y. */
template <typename T, int V>
__global__ void __launch_bounds__(EMBED_THREADS) embed_backward(struct dtp_embedding_args x) {
    __shared__ int list[EMBED_THREADS], before[EMBED_THREADS / 32 + 1];
    int64_t row = blockIdx.x;
    int id = x.ids[row];
    int64_t own = id - x.first;
    if (own < 0 || own >= x.valid)
        return;
    int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    bool earlier = false;
    for (int64_t r = t; r < row && !earlier; r += EMBED_THREADS)
        earlier = x.ids[r] == id;
    if (__syncthreads_or(earlier))
        return;
    int64_t k = (static_cast<int64_t>(blockIdx.y) * EMBED_THREADS + t) * V;
    float sum[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[v] = 0.0f;
    for (int64_t from = row; from < x.rows; from += EMBED_THREADS) {
        bool same = from + t < x.rows && x.ids[from + t] == id;
        unsigned votes = __ballot_sync(0xffffffffu, same);
        if (lane == 0)
            before[warp + 1] = __popc(votes);
        __syncthreads();
        if (t == 0) {
            before[0] = 0;
            for (int i = 1; i <= EMBED_THREADS / 32; i++)
                before[i] += before[i - 1];
        }
        __syncthreads();
        if (same)
            list[before[warp] + __popc(votes & ((1u << lane) - 1u))] = t;
        __syncthreads();
        int count = before[EMBED_THREADS / 32];
        for (int i = 0; i < count && k < x.cols; i++) {
            float a[V];
            load<T, V>(a, static_cast<const T *>(x.dout) + (from + list[i]) * x.cols + k);
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] += a[v];
        }
        __syncthreads();
    }
    float *to = static_cast<float *>(x.dtable) + own * x.cols + k;
    for (int v = 0; v < V && k < x.cols; v++)
        to[v] += sum[v];
}

template <typename T, int V>
__global__ void __launch_bounds__(EMBED_THREADS) position_add(struct dtp_embedding_args x) {
    int64_t row = blockIdx.x;
    const T *from = static_cast<const T *>(x.table) + (x.first + row / x.batch) * x.cols;
    T *to = static_cast<T *>(x.out) + row * x.cols;
    for (int64_t k = static_cast<int64_t>(threadIdx.x) * V; k < x.cols; k += EMBED_THREADS * V) {
        float a[V], b[V];
        load<T, V>(a, to + k);
        load<T, V>(b, from + k);
#pragma unroll
        for (int v = 0; v < V; v++)
            a[v] += b[v];
        store<T, V>(to + k, a);
    }
}

/* One block a position: rows position * batch .. of one part stand together. */
template <typename T, int V>
__global__ void __launch_bounds__(EMBED_THREADS) position_backward(struct dtp_embedding_args x) {
    int64_t position = blockIdx.x, first = position * x.batch;
    float *to = static_cast<float *>(x.dtable) + (x.first + position) * x.cols;
    for (int64_t k = static_cast<int64_t>(threadIdx.x) * V; k < x.cols; k += EMBED_THREADS * V) {
        float sum[V];
#pragma unroll
        for (int v = 0; v < V; v++)
            sum[v] = 0.0f;
        for (int64_t r = first; r < first + x.batch && r < x.rows; r++) {
            float a[V];
            load<T, V>(a, static_cast<const T *>(x.dout) + r * x.cols + k);
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] += a[v];
        }
        for (int v = 0; v < V; v++)
            to[k + v] += sum[v];
    }
}

extern "C" void dtp_cuda_embed(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(all_aligned(x->table, x->out) && fits<T>(x->cols), [&](auto width) {
            embed<T, decltype(width)::value>
                <<<static_cast<unsigned>(x->rows), EMBED_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

extern "C" void dtp_cuda_embed_backward(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(x->dout) && fits<T>(x->cols), [&](auto width) {
            constexpr int V = decltype(width)::value;
            dim3 grid(static_cast<unsigned>(x->rows),
                      static_cast<unsigned>(ceil_div(x->cols, EMBED_THREADS * V)));
            embed_backward<T, V><<<grid, EMBED_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

extern "C" void dtp_cuda_position_add(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(all_aligned(x->table, x->out) && fits<T>(x->cols), [&](auto width) {
            position_add<T, decltype(width)::value>
                <<<static_cast<unsigned>(x->rows), EMBED_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

extern "C" void dtp_cuda_position_backward(struct dtp_dev *d, const struct dtp_embedding_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(aligned(x->dout) && fits<T>(x->cols), [&](auto width) {
            unsigned positions = static_cast<unsigned>(ceil_div(x->rows, x->batch));
            position_backward<T, decltype(width)::value>
                <<<positions, EMBED_THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

} // namespace dtp
