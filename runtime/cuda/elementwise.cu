/* Rotary positions, activations, residual sums, casts: each element is read and written once. */
#include "runtime/cuda/kernels.cuh"

#include "sim/base/units.h"

namespace dtp {

enum { THREADS = 256 };

__device__ __forceinline__ int64_t thread_index() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/* ---- shadow ranks ---- */

__global__ void pause_for(int64_t ns) {
    int64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(200);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
}

extern "C" void dtp_cuda_pause(struct dtp_dev *d, enum dtp_stream stream, double time_s) {
    /* less what starting a kernel takes, about */
    const double launch_s = 2e-6;
    int64_t ns = static_cast<int64_t>((time_s - launch_s) / DTP_NANO);
    if (ns > 0)
        pause_for<<<1, 1, 0, dtp_cuda_of(d)->stream[stream]>>>(ns);
}

__device__ __forceinline__ uint32_t fill_word(uint64_t i) { /* dtp_dev_fill_word() */
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    uint32_t word = 0x3c803c80u | (x & 0x807f807fu);
#pragma unroll
    for (uint32_t half = 0; half < 32; half += 16)
        for (uint32_t coin = 7; coin < 15 && x >> half >> coin & 1; coin++)
            word -= 0x80u << half;
    return word;
}

__global__ void __launch_bounds__(THREADS) fill(uint32_t *to, uint64_t n) {
    uint64_t step = static_cast<uint64_t>(gridDim.x) * THREADS;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step)
        to[i] = fill_word(i);
}

extern "C" void dtp_cuda_fill(struct dtp_dev *d, void *to, uint64_t bytes) {
    unsigned blocks = static_cast<unsigned>(8 * dtp_cuda_of(d)->num_sms);
    fill<<<blocks, THREADS, 0, stream_of(d)>>>(static_cast<uint32_t *>(to),
                                               bytes / sizeof(uint32_t));
}

/* ---- rotary positions (Su 2021) ---- */

template <typename T, int V> __global__ void rope(struct dtp_rope_args r) {
    extern __shared__ float turn[]; /* cosines, sines [2][half] */
    int64_t row = blockIdx.x;
    int half = static_cast<int>(r.head_dim) / 2;
    double position = static_cast<double>(row / r.batch);
    for (int i = static_cast<int>(threadIdx.x); i < half; i += static_cast<int>(blockDim.x)) {
        double frequency = exp2(-2.0 * i / static_cast<double>(r.head_dim) * log2(r.theta));
        double s, c;
        sincos(position * frequency, &s, &c);
        turn[i] = static_cast<float>(c);
        turn[half + i] = static_cast<float>(r.inverse ? -s : s);
    }
    __syncthreads();
    int per_head = half / V, n = per_head * static_cast<int>(r.heads);
    T *base = static_cast<T *>(r.x) + row * r.row_stride;
    for (int k = static_cast<int>(threadIdx.x); k < n; k += static_cast<int>(blockDim.x)) {
        int i = k % per_head * V;
        T *at = base + static_cast<int64_t>(k / per_head) * r.head_dim + i;
        float x[V], y[V];
        load<T, V>(x, at);
        load<T, V>(y, at + half);
#pragma unroll
        for (int v = 0; v < V; v++) {
            float c = turn[i + v], s = turn[half + i + v], a = x[v], b = y[v];
            x[v] = a * c - b * s;
            y[v] = a * s + b * c;
        }
        store<T, V>(at, x);
        store<T, V>(at + half, y);
    }
}

extern "C" void dtp_cuda_rope(struct dtp_dev *d, const struct dtp_rope_args *r) {
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = aligned(r->x) && fits<T>(r->head_dim / 2) && fits<T>(r->row_stride);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            size_t shared_bytes = static_cast<size_t>(r->head_dim) * sizeof(float);
            rope<T, V><<<static_cast<unsigned>(r->rows), 128, shared_bytes, stream_of(d)>>>(*r);
        });
    });
}

/* ---- activations ---- */

/* tanh from the exponential: exact to rounding of the result, and cheaper than tanhf */
__device__ __forceinline__ float tanh_of(float u) {
    return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * u));
}
__device__ __forceinline__ float sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* tanh form (Hendrycks 2016) */
static constexpr float gelu_root = 0.7978845608f, gelu_cubic = 0.044715f;
struct Gelu {
    static __device__ __forceinline__ float value(float x) {
        return 0.5f * x * (1.0f + tanh_of(gelu_root * (x + gelu_cubic * x * x * x)));
    }
    static __device__ __forceinline__ float slope(float x) {
        float t = tanh_of(gelu_root * (x + gelu_cubic * x * x * x));
        return 0.5f * (1.0f + t) +
               0.5f * x * (1.0f - t * t) * gelu_root * (1.0f + 3.0f * gelu_cubic * x * x);
    }
};
struct Relu {
    static __device__ __forceinline__ float value(float x) {
        return x > 0.0f ? x : 0.0f;
    }
    static __device__ __forceinline__ float slope(float x) {
        return x > 0.0f ? 1.0f : 0.0f;
    }
};

template <typename T, int V, class A>
__global__ void __launch_bounds__(THREADS) act_forward(T *y, const T *x, int64_t n) {
    int64_t i = thread_index() * V;
    if (i >= n)
        return;
    float a[V];
    load<T, V>(a, x + i);
#pragma unroll
    for (int v = 0; v < V; v++)
        a[v] = A::value(a[v]);
    store<T, V>(y + i, a);
}

template <typename T, int V, class A>
__global__ void __launch_bounds__(THREADS) act_backward(T *dx, const T *x, const T *dy, int64_t n) {
    int64_t i = thread_index() * V;
    if (i >= n)
        return;
    float a[V], g[V];
    load<T, V>(a, x + i);
    load<T, V>(g, dy + i);
#pragma unroll
    for (int v = 0; v < V; v++)
        g[v] *= A::slope(a[v]);
    store<T, V>(dx + i, g);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    swiglu_forward(T *y, const T *x, int64_t rows, int64_t cols) {
    int64_t i = thread_index() * V;
    if (i >= rows * cols)
        return;
    int64_t row = i / cols, k = i % cols;
    float gate[V], up[V];
    load<T, V>(gate, x + row * 2 * cols + k);
    load<T, V>(up, x + row * 2 * cols + cols + k);
#pragma unroll
    for (int v = 0; v < V; v++)
        gate[v] = gate[v] * sigmoid(gate[v]) * up[v];
    store<T, V>(y + i, gate);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    swiglu_backward(T *dx, const T *x, const T *dy, int64_t rows, int64_t cols) {
    int64_t i = thread_index() * V;
    if (i >= rows * cols)
        return;
    int64_t row = i / cols, k = i % cols, at = row * 2 * cols + k;
    float gate[V], up[V], g[V];
    load<T, V>(gate, x + at);
    load<T, V>(up, x + at + cols);
    load<T, V>(g, dy + i);
#pragma unroll
    for (int v = 0; v < V; v++) {
        float s = sigmoid(gate[v]), silu = gate[v] * s, u = up[v];
        up[v] = g[v] * silu;
        gate[v] = g[v] * u * (s + silu * (1.0f - s));
    }
    store<T, V>(dx + at, gate);
    store<T, V>(dx + at + cols, up);
}

extern "C" void dtp_cuda_act_forward(struct dtp_dev *d, const struct dtp_act_args *x) {
    int64_t n = x->rows * x->cols;
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = all_aligned(x->x, x->y) && fits<T>(x->fn == DTP_ACT_FN_SWIGLU ? x->cols : n);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            unsigned blocks = static_cast<unsigned>(ceil_div(n, THREADS * V));
            T *y = static_cast<T *>(x->y);
            const T *in = static_cast<const T *>(x->x);
            switch (x->fn) {
            case DTP_ACT_FN_GELU:
                act_forward<T, V, Gelu><<<blocks, THREADS, 0, stream_of(d)>>>(y, in, n);
                break;
            case DTP_ACT_FN_RELU:
                act_forward<T, V, Relu><<<blocks, THREADS, 0, stream_of(d)>>>(y, in, n);
                break;
            case DTP_ACT_FN_SWIGLU:
                swiglu_forward<T, V><<<blocks, THREADS, 0, stream_of(d)>>>(y, in, x->rows, x->cols);
                break;
            }
        });
    });
}

extern "C" void dtp_cuda_act_backward(struct dtp_dev *d, const struct dtp_act_args *x) {
    int64_t n = x->rows * x->cols;
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide =
            all_aligned(x->x, x->dx, x->dy) && fits<T>(x->fn == DTP_ACT_FN_SWIGLU ? x->cols : n);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            unsigned blocks = static_cast<unsigned>(ceil_div(n, THREADS * V));
            T *dx = static_cast<T *>(x->dx);
            const T *in = static_cast<const T *>(x->x), *dy = static_cast<const T *>(x->dy);
            switch (x->fn) {
            case DTP_ACT_FN_GELU:
                act_backward<T, V, Gelu><<<blocks, THREADS, 0, stream_of(d)>>>(dx, in, dy, n);
                break;
            case DTP_ACT_FN_RELU:
                act_backward<T, V, Relu><<<blocks, THREADS, 0, stream_of(d)>>>(dx, in, dy, n);
                break;
            case DTP_ACT_FN_SWIGLU:
                swiglu_backward<T, V>
                    <<<blocks, THREADS, 0, stream_of(d)>>>(dx, in, dy, x->rows, x->cols);
                break;
            }
        });
    });
}

/* ---- sums and casts ---- */

/* Columns first .. first + V - 1 of a row: V divides 8, so that they share a counter. */
template <int V>
__device__ __forceinline__ void drop(float (&a)[V], const dtp_residual_args &x, int64_t row,
                                     int64_t first) {
    uint32_t at = static_cast<uint32_t>(x.first_row + row), batch = static_cast<uint32_t>(x.batch);
    uint32_t column = static_cast<uint32_t>(first), slot = column % DTP_DROPOUT_BLOCK;
    struct dtp_dropout_bits bits = dtp_dropout_features(&x.dropout, column, at / batch, at % batch);
#pragma unroll
    for (unsigned v = 0; v < V; v++)
        a[v] = dtp_dropout_keeps(&x.dropout, &bits, slot + v) ? a[v] * x.dropout.scale : 0.0f;
}

template <typename T, int V, bool DROPS>
__global__ void __launch_bounds__(THREADS)
    bias_residual(const __grid_constant__ struct dtp_residual_args x) {
    int64_t i = thread_index() * V;
    if (i >= x.rows * x.cols)
        return;
    int64_t row = i / x.cols, column = i - row * x.cols;
    float a[V], b[V];
    load<T, V>(a, static_cast<const T *>(x.x) + i);
    if (x.bias) {
        load<T, V>(b, static_cast<const T *>(x.bias) + column);
#pragma unroll
        for (int v = 0; v < V; v++)
            a[v] += b[v];
    }
    if constexpr (DROPS)
        drop<V>(a, x, row, column);
    if (x.residual) {
        load<T, V>(b, static_cast<const T *>(x.residual) + i);
#pragma unroll
        for (int v = 0; v < V; v++)
            a[v] += b[v];
    }
    store<T, V>(static_cast<T *>(x.out) + i, a);
}

extern "C" void dtp_cuda_bias_residual(struct dtp_dev *d, const struct dtp_residual_args *x) {
    bool drops = x->dropout.drop_below > 0;
    if (!x->bias && !x->residual && !drops && x->out == x->x)
        return;
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = all_aligned(x->out, x->x, x->bias, x->residual) && fits<T>(x->cols);
        with_width<T>(wide, [&](auto width) {
            constexpr int V = decltype(width)::value;
            unsigned blocks = static_cast<unsigned>(ceil_div(x->rows * x->cols, THREADS * V));
            if (drops)
                bias_residual<T, V, true><<<blocks, THREADS, 0, stream_of(d)>>>(*x);
            else
                bias_residual<T, V, false><<<blocks, THREADS, 0, stream_of(d)>>>(*x);
        });
    });
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) add(T *to, const T *from, int64_t n) {
    int64_t i = thread_index() * V;
    if (i >= n)
        return;
    float a[V], b[V];
    load<T, V>(a, to + i);
    load<T, V>(b, from + i);
#pragma unroll
    for (int v = 0; v < V; v++)
        a[v] += b[v];
    store<T, V>(to + i, a);
}

extern "C" void dtp_cuda_add(struct dtp_dev *d, void *to, const void *from, int64_t n,
                             bool gradients) {
    with_type(d, gradients ? d->grad_dtype : d->dtype, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(all_aligned(to, from) && fits<T>(n), [&](auto width) {
            constexpr int V = decltype(width)::value;
            unsigned blocks = static_cast<unsigned>(ceil_div(n, THREADS * V));
            add<T, V><<<blocks, THREADS, 0, stream_of(d)>>>(static_cast<T *>(to),
                                                            static_cast<const T *>(from), n);
        });
    });
}

template <typename T, typename S, int V>
__global__ void __launch_bounds__(THREADS) cast(T *to, const S *from, int64_t n) {
    int64_t i = thread_index() * V;
    if (i >= n)
        return;
    float a[V];
    load<S, V>(a, from + i);
    store<T, V>(to + i, a);
}

extern "C" void dtp_cuda_cast(struct dtp_dev *d, void *to, enum dtp_dtype to_type, const void *from,
                              enum dtp_dtype from_type, int64_t n) {
    with_type(d, to_type, [&](auto zero) {
        using T = decltype(zero);
        with_type(d, from_type, [&](auto other) {
            using S = decltype(other);
            constexpr int V = 4;
            unsigned blocks = static_cast<unsigned>(ceil_div(n, THREADS * V));
            if (all_aligned(to, from) && n % V == 0)
                cast<T, S, V><<<blocks, THREADS, 0, stream_of(d)>>>(
                    static_cast<T *>(to), static_cast<const S *>(from), n);
            else
                cast<T, S, 1><<<blocks * V, THREADS, 0, stream_of(d)>>>(
                    static_cast<T *>(to), static_cast<const S *>(from), n);
        });
    });
}

} // namespace dtp
