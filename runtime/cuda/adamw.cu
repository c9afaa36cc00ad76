/* The optimizer computes the squared norm of the gradients, their scale, and AdamW, each over many tensors in one
 * launch. */
#include "runtime/cuda/kernels.cuh"

#include <algorithm>
#include <cmath>

namespace dtp {

enum { THREADS = 256 };

static const int64_t max_blocks = int64_t{1} << 30;

/* ---- squared norm: the runs are laid end to end and cut into chunks, of which a block takes those
 * at a fixed stride; the last block to end adds the blocks' sums in their order ---- */

enum { NORM_THREADS = 512, NORM_LOADS = 4, NORM_CHUNK = 4 * NORM_THREADS * NORM_LOADS };
struct NormRun {
    const float *grad;
    int64_t n;
    unsigned first_chunk;
    float factor;
};
struct NormBatch {
    struct NormRun run[DTP_NORM2_RUNS];
    float *sum, *partial;
    unsigned *ticket, nchunks;
    int nruns;
};

template <int V> __device__ __forceinline__ float squares(const NormRun &r, int64_t begin) {
    float sum = 0.0f;
    int64_t end = begin + NORM_CHUNK < r.n ? begin + NORM_CHUNK : r.n;
#pragma unroll NORM_LOADS
    for (int64_t i = begin + threadIdx.x * V; i < end; i += NORM_THREADS * V) {
        float a[V];
        load<float, V>(a, r.grad + i);
#pragma unroll
        for (int v = 0; v < V; v++)
            sum += a[v] * a[v];
    }
    return sum;
}

__global__ void __launch_bounds__(NORM_THREADS) squared_norm(const __grid_constant__ NormBatch b) {
    __shared__ bool last;
    float s[1] = {0.0f};
    int which = 0;
    for (unsigned chunk = blockIdx.x; chunk < b.nchunks; chunk += gridDim.x) {
        while (which + 1 < b.nruns && b.run[which + 1].first_chunk <= chunk)
            which++;
        const NormRun &r = b.run[which];
        int64_t begin = static_cast<int64_t>(chunk - r.first_chunk) * NORM_CHUNK;
        bool wide = reinterpret_cast<uintptr_t>(r.grad) % 16 == 0 && r.n % 4 == 0;
        s[0] += r.factor * (wide ? squares<4>(r, begin) : squares<1>(r, begin));
    }
    block_sum(s);
    if (threadIdx.x == 0) {
        b.partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(b.ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    s[0] = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += NORM_THREADS)
        s[0] += __ldcg(b.partial + i);
    block_sum(s);
    if (threadIdx.x == 0) {
        *b.sum += s[0];
        *b.ticket = 0;
    }
}

extern "C" void dtp_cuda_norm2(struct dtp_dev *d, const struct dtp_norm2_args *x) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    NormBatch b{};
    b.sum = x->sum;
    b.partial = static_cast<float *>(c->scratch);
    b.ticket = c->ticket;
    b.nruns = static_cast<int>(x->nruns);
    for (int i = 0; i < b.nruns; i++) {
        const dtp_norm2_run &r = x->run[i];
        b.run[i] = NormRun{static_cast<const float *>(r.grad), r.n, b.nchunks,
                           static_cast<float>(r.factor)};
        b.nchunks += static_cast<unsigned>(ceil_div(r.n, NORM_CHUNK));
    }
    unsigned blocks = std::min(b.nchunks, 4 * static_cast<unsigned>(c->num_sms));
    if (blocks > 0)
        squared_norm<<<blocks, NORM_THREADS, 0, stream_of(d)>>>(b);
}

/* ---- the scale ---- */

__global__ void clip_scale(float *scale, const float *norm2, struct dtp_clip clip) {
    double norm = sqrt(static_cast<double>(*norm2)) / clip.loss_scale, most = clip.max_norm;
    double factor = most > 0 && norm > most ? most / norm : 1.0;
    bool skipped = clip.skip && !isfinite(*norm2);
    *scale = skipped ? 0.0f : static_cast<float>(factor / clip.loss_scale);
}

extern "C" void dtp_cuda_clip_scale(struct dtp_dev *d, float *scale, const float *norm2,
                                    const struct dtp_clip *clip) {
    clip_scale<<<1, 1, 0, stream_of(d)>>>(scale, norm2, *clip);
}

/* ---- AdamW ---- */

/* One launch runs AdamW (Loshchilov 2019, algorithm 2) over many tensors: a block finds its tensor from
 * the first block of each. */
enum { ADAM_TENSORS = 56, ADAM_CHUNK = 4 * THREADS * 4 };
struct AdamTensor {
    void *param;
    float *master, *m, *v;
    const float *grad;
    int64_t n;
    unsigned first_block;
    bool decay, wide;
};
struct AdamBatch {
    struct AdamTensor t[ADAM_TENSORS];
    const float *grad_scale;
    float beta1, beta2, epsilon, rate, root, keep;
    int n;
};

template <typename T, int V>
__device__ __forceinline__ void adam_elements(const AdamBatch &b, const AdamTensor &t, int64_t i,
                                              float scale) {
    float g[V], m[V], v[V], p[V];
    T *param = static_cast<T *>(t.param);
    load<float, V>(g, t.grad + i);
    load<float, V>(m, t.m + i);
    load<float, V>(v, t.v + i);
    if (t.master)
        load<float, V>(p, t.master + i);
    else
        load<T, V>(p, param + i);
    float keep = t.decay ? b.keep : 1.0f;
#pragma unroll
    for (int k = 0; k < V; k++) {
        float x = g[k] * scale;
        m[k] = b.beta1 * m[k] + (1.0f - b.beta1) * x;
        v[k] = b.beta2 * v[k] + (1.0f - b.beta2) * x * x;
        p[k] = keep * p[k] - b.rate * m[k] / (sqrtf(v[k]) * b.root + b.epsilon);
    }
    store<float, V>(t.m + i, m);
    store<float, V>(t.v + i, v);
    if (t.master)
        store<float, V>(t.master + i, p);
    store<T, V>(param + i, p);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) adamw(const __grid_constant__ AdamBatch b) {
    int which = 0;
    while (which + 1 < b.n && b.t[which + 1].first_block <= blockIdx.x)
        which++;
    const AdamTensor &t = b.t[which];
    float scale = b.grad_scale ? *b.grad_scale : 1.0f;
    if (scale == 0.0f) /* the step is skipped */
        return;
    int64_t begin = static_cast<int64_t>(blockIdx.x - t.first_block) * ADAM_CHUNK;
    int64_t end = begin + ADAM_CHUNK < t.n ? begin + ADAM_CHUNK : t.n;
    if (t.wide) {
        for (int64_t i = begin + threadIdx.x * 4; i < end; i += THREADS * 4)
            adam_elements<T, 4>(b, t, i, scale);
    } else {
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
            adam_elements<T, 1>(b, t, i, scale);
    }
}

extern "C" void dtp_cuda_adamw(struct dtp_dev *d, const struct dtp_adamw_hyper *h,
                               const struct dtp_adamw_tensor *t, int n) {
    AdamBatch b{};
    double step = static_cast<double>(h->step);
    b.grad_scale = h->grad_scale;
    b.beta1 = static_cast<float>(h->beta1);
    b.beta2 = static_cast<float>(h->beta2);
    b.epsilon = static_cast<float>(h->epsilon);
    b.rate = static_cast<float>(h->lr / (1 - std::pow(h->beta1, step)));
    b.root = static_cast<float>(1 / std::sqrt(1 - std::pow(h->beta2, step)));
    b.keep = static_cast<float>(1 - h->lr * h->weight_decay);
    int64_t blocks = 0;
    for (int i = 0; i < n; i++) {
        AdamTensor &x = b.t[b.n++];
        x = AdamTensor{t[i].param,
                       t[i].master,
                       t[i].m,
                       t[i].v,
                       static_cast<const float *>(t[i].grad),
                       t[i].n,
                       static_cast<unsigned>(blocks),
                       t[i].decay,
                       false};
        x.wide = all_aligned(x.param, x.master, x.m, x.v, x.grad) && x.n % 4 == 0;
        blocks += ceil_div(x.n, ADAM_CHUNK);
        if (b.n < ADAM_TENSORS && i + 1 < n && blocks < max_blocks)
            continue;
        with_type(d, d->dtype, [&](auto zero) {
            adamw<decltype(zero)><<<static_cast<unsigned>(blocks), THREADS, 0, stream_of(d)>>>(b);
        });
        b.n = 0;
        blocks = 0;
    }
}

} // namespace dtp
