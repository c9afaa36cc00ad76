/* Kernels that read and write each element once: sums, casts, activations, dropout, rotary positions,
 * AdamW over many tensors. */
#include "runtime/cuda/calibrate_vectors.cuh"

#include "runtime/device/dropout.h"

namespace cal {

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
    const float correct1 = 0.1f, correct2 = 0.05f; /* first step */

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

} // namespace cal
