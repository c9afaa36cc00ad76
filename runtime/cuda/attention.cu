/* Causal attention: cuDNN's where it is found, our own kernels on tensor cores, or plain ones. cuDNN draws
 * other random numbers than dropout.h, so that dropout of the probabilities is always ours. The plain ones serve
 * any dtype and any head_dim up to 256: one warp a row, one key at a time. They are slow, and check the others. */
#include "runtime/cuda/attention_kernels.cuh"

#include "runtime/cuda/kernels.cuh"

namespace dtp {

/* ---- plain kernels, and the row sums of dout * out (workspace: [batch, head, seq]) that every backward needs ---- */

enum { PLAIN_WARPS = 4, LANE_ELEMENTS = 8 };

struct Place { /* a warp works on one position of a sequence and one head */
    int64_t position, sequence, head, row;
    int lane;
    bool valid;
    __device__ __forceinline__ Place(const dtp_attention_args &x, int64_t nheads) {
        int64_t i = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + threadIdx.x / 32;
        lane = static_cast<int>(threadIdx.x) % 32;
        position = i % x.seq;
        head = i / x.seq % nheads;
        sequence = i / x.seq / nheads;
        valid = sequence < x.batch;
        row = position * x.batch + sequence;
    }
};

/* Lane l holds elements l, l + 32, ... of a head. */
template <typename T>
__device__ __forceinline__ void load_head(float *to, const void *base, int64_t at, const Place &p,
                                          int64_t dim) {
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
        int64_t e = p.lane + 32 * i;
        to[i] = e < dim ? to_float(static_cast<const T *>(base)[at + e]) : 0.0f;
    }
}
template <typename T>
__device__ __forceinline__ void store_head(void *base, int64_t at, const float *x, const Place &p,
                                           int64_t dim) {
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        if (p.lane + 32 * i < dim)
            static_cast<T *>(base)[at + p.lane + 32 * i] = from_float<T>(x[i]);
}
__device__ __forceinline__ float dot(const float *a, const float *b) {
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        s += a[i] * b[i];
    return warp_sum(s);
}

/* Returns the factor of a probability. */
__device__ __forceinline__ float dropped(const dtp_attention_args &x, const Place &p, int64_t head,
                                         int64_t query, int64_t key) {
    uint32_t q = static_cast<uint32_t>(query), k = static_cast<uint32_t>(key);
    if (x.dropout.drop_below == 0)
        return 1.0f;
    auto bits = dtp_dropout_scores(&x.dropout, static_cast<uint32_t>(x.first_head + head), q, k,
                                   static_cast<uint32_t>(p.sequence));
    return dtp_dropout_keeps(&x.dropout, &bits, dtp_dropout_score_slot(q, k)) ? x.dropout.scale
                                                                              : 0.0f;
}

template <typename T> __global__ void simple_forward(struct dtp_attention_args x, float scale) {
    Place p(x, x.heads);
    if (!p.valid)
        return;
    int64_t dim = x.head_dim, kv = p.head / (x.heads / x.kv_heads) * dim;
    float q[LANE_ELEMENTS], o[LANE_ELEMENTS] = {}, most = -INFINITY, sum = 0.0f;
    load_head<T>(q, x.q, p.row * x.qkv_stride + p.head * dim, p, dim);
    for (int64_t key = 0; key <= p.position; key++) {
        int64_t at = (key * x.batch + p.sequence) * x.qkv_stride + kv;
        float k[LANE_ELEMENTS], v[LANE_ELEMENTS];
        load_head<T>(k, x.k, at, p, dim);
        load_head<T>(v, x.v, at, p, dim);
        float s = dot(q, k) * scale, m = fmaxf(most, s), keep = expf(most - m), e = expf(s - m);
        sum = sum * keep + e;
        most = m;
        e *= dropped(x, p, p.head, p.position, key);
#pragma unroll
        for (int i = 0; i < LANE_ELEMENTS; i++)
            o[i] = o[i] * keep + e * v[i];
    }
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        o[i] /= sum;
    store_head<T>(x.out, p.row * x.out_stride + p.head * dim, o, p, dim);
    if (p.lane == 0)
        static_cast<float *>(x.saved)[(p.sequence * x.heads + p.head) * x.seq + p.position] =
            most + logf(sum);
}

template <typename T> __global__ void attention_delta(struct dtp_attention_args x) {
    Place p(x, x.heads);
    if (!p.valid)
        return;
    float o[LANE_ELEMENTS], g[LANE_ELEMENTS];
    int64_t at = p.row * x.out_stride + p.head * x.head_dim;
    load_head<T>(o, x.out, at, p, x.head_dim);
    load_head<T>(g, x.dout, at, p, x.head_dim);
    float s = dot(o, g);
    if (p.lane == 0)
        static_cast<float *>(x.workspace)[(p.sequence * x.heads + p.head) * x.seq + p.position] = s;
}

template <typename T> __global__ void simple_dq(struct dtp_attention_args x, float scale) {
    Place p(x, x.heads);
    if (!p.valid)
        return;
    int64_t dim = x.head_dim, kv = p.head / (x.heads / x.kv_heads) * dim;
    int64_t stat = (p.sequence * x.heads + p.head) * x.seq + p.position;
    float lse = static_cast<const float *>(x.saved)[stat];
    float delta = static_cast<const float *>(x.workspace)[stat];
    float q[LANE_ELEMENTS], g[LANE_ELEMENTS], dq[LANE_ELEMENTS] = {};
    load_head<T>(q, x.q, p.row * x.qkv_stride + p.head * dim, p, dim);
    load_head<T>(g, x.dout, p.row * x.out_stride + p.head * dim, p, dim);
    for (int64_t key = 0; key <= p.position; key++) {
        int64_t at = (key * x.batch + p.sequence) * x.qkv_stride + kv;
        float k[LANE_ELEMENTS], v[LANE_ELEMENTS];
        load_head<T>(k, x.k, at, p, dim);
        load_head<T>(v, x.v, at, p, dim);
        float dp = dot(g, v) * dropped(x, p, p.head, p.position, key);
        float ds = expf(dot(q, k) * scale - lse) * (dp - delta) * scale;
#pragma unroll
        for (int i = 0; i < LANE_ELEMENTS; i++)
            dq[i] += ds * k[i];
    }
    store_head<T>(x.dq, p.row * x.qkv_stride + p.head * dim, dq, p, dim);
}

template <typename T> __global__ void simple_dkv(struct dtp_attention_args x, float scale) {
    Place p(x, x.kv_heads);
    if (!p.valid)
        return;
    int64_t dim = x.head_dim, group = x.heads / x.kv_heads;
    int64_t at = p.row * x.qkv_stride + p.head * dim;
    float k[LANE_ELEMENTS], v[LANE_ELEMENTS], dk[LANE_ELEMENTS] = {}, dv[LANE_ELEMENTS] = {};
    load_head<T>(k, x.k, at, p, dim);
    load_head<T>(v, x.v, at, p, dim);
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++)
        for (int64_t query = p.position; query < x.seq; query++) {
            int64_t row = query * x.batch + p.sequence;
            int64_t stat = (p.sequence * x.heads + head) * x.seq + query;
            float q[LANE_ELEMENTS], g[LANE_ELEMENTS];
            load_head<T>(q, x.q, row * x.qkv_stride + head * dim, p, dim);
            load_head<T>(g, x.dout, row * x.out_stride + head * dim, p, dim);
            float w = expf(dot(q, k) * scale - static_cast<const float *>(x.saved)[stat]);
            float drop = dropped(x, p, head, query, p.position);
            float ds =
                w * (dot(g, v) * drop - static_cast<const float *>(x.workspace)[stat]) * scale;
#pragma unroll
            for (int i = 0; i < LANE_ELEMENTS; i++) {
                dv[i] += w * drop * g[i];
                dk[i] += ds * q[i];
            }
        }
    store_head<T>(x.dk, at, dk, p, dim);
    store_head<T>(x.dv, at, dv, p, dim);
}

static unsigned blocks_of(const struct dtp_attention_args *x, int64_t heads) {
    return static_cast<unsigned>(ceil_div(x->batch * heads * x->seq, PLAIN_WARPS));
}

static void delta_rows(struct dtp_dev *d, const struct dtp_attention_args *x) {
    with_type(d, d->dtype, [&](auto zero) {
        attention_delta<decltype(zero)>
            <<<blocks_of(x, x->heads), 32 * PLAIN_WARPS, 0, stream_of(d)>>>(*x);
    });
}

static void plain_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    if (x->head_dim > 32 * LANE_ELEMENTS)
        dtp_cuda_fail(dtp_cuda_of(d), "attention with head_dim %d, at most %d",
                      static_cast<int>(x->head_dim), 32 * LANE_ELEMENTS);
    float scale = 1.0f / sqrtf(static_cast<float>(x->head_dim));
    with_type(d, d->dtype, [&](auto zero) {
        simple_forward<decltype(zero)>
            <<<blocks_of(x, x->heads), 32 * PLAIN_WARPS, 0, stream_of(d)>>>(*x, scale);
    });
}

static void plain_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    float scale = 1.0f / sqrtf(static_cast<float>(x->head_dim));
    with_type(d, d->dtype, [&](auto zero) {
        using T = decltype(zero);
        simple_dq<T><<<blocks_of(x, x->heads), 32 * PLAIN_WARPS, 0, stream_of(d)>>>(*x, scale);
        simple_dkv<T><<<blocks_of(x, x->kv_heads), 32 * PLAIN_WARPS, 0, stream_of(d)>>>(*x, scale);
    });
}

/* ---- the choice ---- */

/* 16-byte rows, and a head_dim that was compiled. */
static bool fast(const struct dtp_dev *d, const struct dtp_attention_args *x) {
    const struct dtp_cuda *c = reinterpret_cast<const struct dtp_cuda *>(d);
    int64_t dim = x->head_dim;
    return c->attention != DTP_CUDA_ATTENTION_SIMPLE &&
           (d->dtype == DTP_BF16 || d->dtype == DTP_FP16) &&
           (dim == 64 || dim == 80 || dim == 96 || dim == 128) && x->qkv_stride % 8 == 0 &&
           x->out_stride % 8 == 0 &&
           all_aligned(x->q, x->k, x->v, x->out, x->dout, x->dq, x->dk, x->dv);
}

/* log of the sum of exponentials */
extern "C" uint64_t dtp_cuda_attention_saved_bytes(const struct dtp_dev *d,
                                                   const struct dtp_attention_args *x) {
    (void)d;
    return static_cast<uint64_t>(x->batch * x->heads * x->seq) * sizeof(float);
}

/* row sums of dout * out; or what cuDNN wants */
extern "C" uint64_t dtp_cuda_attention_workspace_bytes(const struct dtp_dev *d,
                                                       const struct dtp_attention_args *x) {
    uint64_t own = dtp_cuda_attention_saved_bytes(d, x);
    if (x->dropout.drop_below > 0)
        return own;
    uint64_t fused = dtp_cuda_fused_workspace_bytes(dtp_cuda_of(const_cast<struct dtp_dev *>(d)),
                                                    x); /* it keeps the plans it makes */
    return fused > own ? fused : own;
}

extern "C" void dtp_cuda_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    bool drops = x->dropout.drop_below > 0;
    if (!drops && dtp_cuda_fused_forward(dtp_cuda_of(d), x))
        return;
    if (!fast(d, x))
        plain_forward(d, x);
    else if (drops)
        flash_forward_dropout(d, x);
    else
        flash_forward_of<false>(d, x);
}

extern "C" void dtp_cuda_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    bool drops = x->dropout.drop_below > 0;
    if (!drops && dtp_cuda_fused_backward(dtp_cuda_of(d), x))
        return;
    delta_rows(d, x);
    if (!fast(d, x))
        plain_backward(d, x);
    else if (drops)
        flash_backward_dropout(d, x);
    else
        flash_backward_of<false>(d, x);
}

} // namespace dtp
