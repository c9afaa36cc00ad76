/* attention_kernels.cuh: causal attention on tensor cores without the matrix of probabilities (Dao 2022, 2023).
 *
 * A warp owns 16 rows of one head, or twice as many in the forward (each operand that it loads from
 * shared memory then serves two products); a block has 4 warps and walks over tiles of ROWS rows of
 * the other side, two of which are in shared memory: one in use, one on its way.
 *   forward  rows are queries:  S = Q K^T, P = softmax(S), O = P V;  kept: log of the sum of exp(S)
 *   dq       rows are queries:  dS = P (dO V^T - delta), dQ = dS K
 *   dkv      rows are keys:     the same transposed, so that sums over queries stay in one warp:
 *            S^T = K Q^T, dV = P^T dO, dK = dS^T Q;  query heads of a group one after the other
 * The backward computes S twice, in exchange it has no atomics: the same bits on each run. Products
 * are mma.m16n8k16 with fp32 sums; a sum of one product is the left operand of the next as it lies in
 * registers. Rows of tiles are padded by 16 bytes, so that ldmatrix has no bank conflicts. */
#ifndef DTP_RUNTIME_CUDA_ATTENTION_KERNELS_CUH
#define DTP_RUNTIME_CUDA_ATTENTION_KERNELS_CUH

#include "runtime/cuda/kernels.cuh"

namespace dtp {

enum { ROWS = 64, WARPS = 4, THREADS = 32 * WARPS, PAD = 8 };
static constexpr float log2_e = 1.4426950408889634f;

/* ---- instructions ---- */

__device__ __forceinline__ unsigned shared_address(const void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
/* c[16,8] += a[16,16] b[16,8] */
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
    if constexpr (std::is_same<T, bf16>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* 16 bytes from global to shared memory, zeros when !there */
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* 2^x within 2^-22; 2^-inf = 0 */
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
template <typename T> __device__ __forceinline__ unsigned pack(float low, float high) {
    T t[2] = {from_float<T>(low), from_float<T>(high)};
    unsigned r;
    memcpy(&r, t, sizeof r);
    return r;
}

/* ---- tiles ---- */

template <typename T, int D, int N = ROWS> struct Tile { T row[N][D + PAD]; };

/* Rows first .. first + N - 1 of one head; base: its row 0, stride: elements between its rows. */
template <typename T, int D, int N>
__device__ __forceinline__ void fetch(Tile<T, D, N> &to, const T *base, int64_t stride, int first,
                                      int seq) {
    constexpr int per_row = D / 8;
    for (int i = static_cast<int>(threadIdx.x); i < N * per_row; i += THREADS) {
        int r = i / per_row, c = i % per_row * 8;
        bool there = first + r < seq;
        copy_async(&to.row[r][c], base + (there ? first + r : 0) * stride + c, there);
    }
}

/* The left operand: the m-th 16 of this warp's N / WARPS rows, columns k .. k + 15. */
template <typename T, int D, int N>
__device__ __forceinline__ void left(unsigned (&a)[4], const Tile<T, D, N> &t, int k, int m) {
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    load_matrices(a, &t.row[warp * (N / WARPS) + m * 16 + lane % 16][k + lane / 16 * 8]);
}

/* s[m][ROWS of other] = mine other^T: this warp's M times 16 rows against the other tile */
template <typename T, int D, int M>
__device__ __forceinline__ void product(float (&s)[M][ROWS / 8][4],
                                        const Tile<T, D, M * ROWS> &mine, const Tile<T, D> &other) {
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        unsigned a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            left(a[m], mine, k, m);
#pragma unroll
        for (int n = 0; n < ROWS; n += 16) {
            unsigned b[4];
            load_matrices(b, &other.row[n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<T>(s[m][n / 8], a[m], b[0], b[1]);
                multiply<T>(s[m][n / 8 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum[m][16, D] += p[m][16, ROWS] other[ROWS, D], p as product() leaves it */
template <typename T, int D, int M>
__device__ __forceinline__ void
accumulate(float (&sum)[M][D / 8][4], const float (&p)[M][ROWS / 8][4], const Tile<T, D> &other) {
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        unsigned a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float(&p0)[4] = p[m][k / 8], (&p1)[4] = p[m][k / 8 + 1];
            a[m][0] = pack<T>(p0[0], p0[1]);
            a[m][1] = pack<T>(p0[2], p0[3]);
            a[m][2] = pack<T>(p1[0], p1[1]);
            a[m][3] = pack<T>(p1[2], p1[3]);
        }
#pragma unroll
        for (int n = 0; n < D; n += 16) {
            unsigned b[4];
            load_transposed(b, &other.row[k + lane % 8 + lane / 8 % 2 * 8][n + lane / 16 * 8]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<T>(sum[m][n / 8], a[m], b[0], b[1]);
                multiply<T>(sum[m][n / 8 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* This warp's 16 rows to memory, times a factor per half of the rows. */
template <typename T, int D>
__device__ __forceinline__ void put(T *base, int64_t stride, const float (&x)[D / 8][4],
                                    const int (&row)[2], const float (&factor)[2], int seq) {
    int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row[half] >= seq)
            continue;
        T *to = base + row[half] * stride + column;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *reinterpret_cast<unsigned *>(to + n * 8) =
                pack<T>(x[n][2 * half] * factor[half], x[n][2 * half + 1] * factor[half]);
    }
}

/* A block works on one head of one sequence, whose data is here. */
template <typename T> struct Head {
    int64_t stride, out_stride; /* elements between positions */
    int64_t stat;               /* index of position 0 in saved and workspace */
    const T *q, *k, *v, *out, *dout;
    T *dq, *dk, *dv, *o;
    __device__ __forceinline__ Head(const dtp_attention_args &x, int sequence, int head) {
        int64_t kv = head / (x.heads / x.kv_heads);
        int64_t at = sequence * x.qkv_stride + head * x.head_dim;
        int64_t kv_at = sequence * x.qkv_stride + kv * x.head_dim;
        int64_t out_at = sequence * x.out_stride + head * x.head_dim;
        stride = x.batch * x.qkv_stride;
        out_stride = x.batch * x.out_stride;
        stat = (sequence * x.heads + head) * x.seq;
        q = static_cast<const T *>(x.q) + at;
        k = static_cast<const T *>(x.k) + kv_at;
        v = static_cast<const T *>(x.v) + kv_at;
        o = static_cast<T *>(x.out) + out_at;
        out = o;
        dout = static_cast<const T *>(x.dout) + out_at;
        dq = static_cast<T *>(x.dq) + at;
        dk = static_cast<T *>(x.dk) + kv_at;
        dv = static_cast<T *>(x.dv) + kv_at;
    }
};

enum { WIDE = 2 }; /* times 16 rows a warp, in the forward */

/* ---- dropout: a thread draws eight elements at a time (runtime/dropout.h) ---- */

/* f(m, n, i, kept) for the elements s[m][n][i] of product() when its rows are queries; query: the thread's
 * first row, key: the tile's first. */
template <int M, class F>
__device__ __forceinline__ void drop_rows(const dtp_dropout &d, uint32_t head, uint32_t sequence,
                                          int query, int key, F f) {
    const unsigned first = M == WIDE ? 0 : query / 16 % 2 * 2; /* index among the four queries */
    key += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n += 2)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            auto bits = dtp_dropout_scores(&d, head, query, key + n * 8 + i, sequence);
#pragma unroll
            for (int k = 0; k < M * 4; k++) {
                int m = k / 4, half = k / 2 % 2, odd = k % 2;
                unsigned slot = (first + m * 2 + half) * 2 + odd;
                f(m, n + odd, 2 * half + i, dtp_dropout_keeps(&d, &bits, slot));
            }
        }
}

/* Does the same if the rows are keys, with M = 1: bit n * 4 + i belongs to s[0][n][i]. query is the tile's first. */
__device__ __forceinline__ uint32_t kept_columns(const dtp_dropout &d, uint32_t head,
                                                 uint32_t sequence, int query, int key) {
    uint32_t kept = 0;
    query += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n += 4)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            auto bits = dtp_dropout_scores(&d, head, query + n * 8 + i, key, sequence);
#pragma unroll
            for (int k = 0; k < 8; k++) /* four queries, two keys */
                if (dtp_dropout_keeps(&d, &bits, k))
                    kept |= 1u << ((n + k / 2) * 4 + k % 2 * 2 + i);
        }
    return kept;
}

/* f(n, i) for the elements s[m][n][i] of a product. */
template <class F> __device__ __forceinline__ void each_element(F f) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            f(n, i);
}

/* ---- forward ---- */

template <typename T, int D> struct ForwardMemory {
    Tile<T, D, WIDE * ROWS> q;
    Tile<T, D> k[2], v[2];
};

/* Masks the keys after each query in a tile on the diagonal. */
__device__ __forceinline__ void mask_later(float (&s)[ROWS / 8][4], const int (&row)[2],
                                           int first_key) {
    int lane = static_cast<int>(threadIdx.x) % 32;
    each_element([&](int n, int i) {
        if (first_key + n * 8 + lane % 4 * 2 + i % 2 > row[i / 2])
            s[n][i] = -INFINITY;
    });
}

/* Exponentials, and the running maximum and sum of 16 rows. */
template <int D>
__device__ __forceinline__ void soften(float (&s)[ROWS / 8][4], float (&o)[D / 8][4],
                                       float (&most)[2], float (&sum)[2], float to_log2) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = most[half];
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float keep = exp2_of((most[half] - top) * to_log2), shift = top * to_log2, part = 0.0f;
        most[half] = top;
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = exp2_of(s[n][i] * to_log2 - shift);
                part += s[n][i];
            }
        sum[half] = sum[half] * keep + part;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            o[n][2 * half] *= keep;
            o[n][2 * half + 1] *= keep;
        }
    }
}

/* Over the four threads that share a row. */
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x += __shfl_xor_sync(0xffffffffu, x, 2);
    return x;
}

template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS)
    flash_forward(const __grid_constant__ dtp_attention_args x, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    auto &m = *reinterpret_cast<ForwardMemory<T, D> *>(memory);
    const int seq = static_cast<int>(x.seq), lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * WIDE * ROWS;
    const int last = (min(first + WIDE * ROWS, seq) - 1) / ROWS; /* tile of keys */
    const Head<T> h(x, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
    const int mine = first + static_cast<int>(threadIdx.x) / 32 * 16 * WIDE;
    int row[WIDE][2];
    float o[WIDE][D / 8][4] = {}, most[WIDE][2], sum[WIDE][2];
#pragma unroll
    for (int w = 0; w < WIDE; w++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            row[w][half] = mine + w * 16 + half * 8 + lane / 4;
            most[w][half] = -INFINITY;
            sum[w][half] = 0.0f;
        }
    fetch(m.q, h.q, h.stride, first, seq);
    fetch(m.k[0], h.k, h.stride, 0, seq);
    fetch(m.v[0], h.v, h.stride, 0, seq);
    commit();
    for (int j = 0; j <= last; j++) {
        if (j < last) {
            fetch(m.k[(j + 1) % 2], h.k, h.stride, (j + 1) * ROWS, seq);
            fetch(m.v[(j + 1) % 2], h.v, h.stride, (j + 1) * ROWS, seq);
        }
        commit();
        wait_groups<1>();
        __syncthreads();
        if (j * ROWS < mine + WIDE * 16) { /* else this warp sees none of these keys */
            float s[WIDE][ROWS / 8][4];
            product<T, D, WIDE>(s, m.q, m.k[j % 2]);
#pragma unroll
            for (int w = 0; w < WIDE; w++) {
                if ((j + 1) * ROWS > mine + w * 16)
                    mask_later(s[w], row[w], j * ROWS);
                soften<D>(s[w], o[w], most[w], sum[w], scale * log2_e);
            }
            if constexpr (DROPS)
                drop_rows<WIDE>(
                    x.dropout, blockIdx.y + static_cast<unsigned>(x.first_head), blockIdx.z,
                    mine + lane / 4, j * ROWS,
                    [&](int w, int n, int i, bool kept) { s[w][n][i] = kept ? s[w][n][i] : 0.0f; });
            accumulate<T, D, WIDE>(o, s, m.v[j % 2]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int w = 0; w < WIDE; w++) {
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float all = row_sum(sum[w][half]);
            inverse[half] = (DROPS ? x.dropout.scale : 1.0f) / all;
            if (lane % 4 == 0 && row[w][half] < seq)
                static_cast<float *>(x.saved)[h.stat + row[w][half]] =
                    most[w][half] * scale + logf(all);
        }
        put<T, D>(h.o, h.out_stride, o[w], row[w], inverse, seq);
    }
}

/* ---- backward ---- */

template <typename T, int D> struct QueryMemory { Tile<T, D> q, dout, k[2], v[2]; };

template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS)
    flash_dq(const __grid_constant__ dtp_attention_args x, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    auto &m = *reinterpret_cast<QueryMemory<T, D> *>(memory);
    const int seq = static_cast<int>(x.seq), lane = static_cast<int>(threadIdx.x) % 32;
    const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), first = tile * ROWS;
    const Head<T> h(x, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
    const int base = first + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    const int row[2] = {base, base + 8};
    const float to_log2 = scale * log2_e;
    float dq[1][D / 8][4] = {}, lse[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t at = h.stat + (row[half] < seq ? row[half] : 0);
        lse[half] = static_cast<const float *>(x.saved)[at] * log2_e;
        delta[half] = static_cast<const float *>(x.workspace)[at];
    }
    fetch(m.q, h.q, h.stride, first, seq);
    fetch(m.dout, h.dout, h.out_stride, first, seq);
    fetch(m.k[0], h.k, h.stride, 0, seq);
    fetch(m.v[0], h.v, h.stride, 0, seq);
    commit();
    for (int j = 0; j <= tile; j++) {
        if (j < tile) {
            fetch(m.k[(j + 1) % 2], h.k, h.stride, (j + 1) * ROWS, seq);
            fetch(m.v[(j + 1) % 2], h.v, h.stride, (j + 1) * ROWS, seq);
        }
        commit();
        wait_groups<1>();
        __syncthreads();
        float p[1][ROWS / 8][4], dp[1][ROWS / 8][4];
        product<T, D, 1>(p, m.q, m.k[j % 2]);
        product<T, D, 1>(dp, m.dout, m.v[j % 2]);
        if constexpr (DROPS)
            drop_rows<1>(x.dropout, blockIdx.y + static_cast<unsigned>(x.first_head), blockIdx.z,
                         base, j * ROWS, [&](int, int n, int i, bool kept) {
                             dp[0][n][i] = kept ? dp[0][n][i] * x.dropout.scale : 0.0f;
                         });
        each_element([&](int n, int i) {
            bool seen = j < tile || j * ROWS + n * 8 + lane % 4 * 2 + i % 2 <= row[i / 2];
            float w = seen ? exp2_of(p[0][n][i] * to_log2 - lse[i / 2]) : 0.0f;
            dp[0][n][i] = w * (dp[0][n][i] - delta[i / 2]);
        });
        accumulate<T, D, 1>(dq, dp, m.k[j % 2]);
        __syncthreads();
    }
    const float factor[2] = {scale, scale};
    put<T, D>(h.dq, h.stride, dq[0], row, factor, seq);
}

template <typename T, int D> struct KeyMemory {
    Tile<T, D> k, v, q[2], dout[2];
    float lse[2][ROWS], delta[2][ROWS];
};

/* One tile of queries: rows of positions, their statistics. */
template <typename T, int D>
__device__ __forceinline__ void fetch_queries(KeyMemory<T, D> &m, int slot, const Head<T> &h,
                                              const dtp_attention_args &x, int first) {
    int seq = static_cast<int>(x.seq), t = static_cast<int>(threadIdx.x);
    fetch(m.q[slot], h.q, h.stride, first, seq);
    fetch(m.dout[slot], h.dout, h.out_stride, first, seq);
    if (t < ROWS) {
        bool there = first + t < seq;
        int64_t at = h.stat + first + t;
        /* beyond the sequence: exp2(0 - inf) = 0 */
        m.lse[slot][t] = there ? static_cast<const float *>(x.saved)[at] * log2_e : INFINITY;
        m.delta[slot][t] = there ? static_cast<const float *>(x.workspace)[at] : 0.0f;
    }
}

template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS)
    flash_dkv(const __grid_constant__ dtp_attention_args x, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    auto &m = *reinterpret_cast<KeyMemory<T, D> *>(memory);
    const int seq = static_cast<int>(x.seq), lane = static_cast<int>(threadIdx.x) % 32;
    const int tile = static_cast<int>(blockIdx.x), ntiles = static_cast<int>(gridDim.x);
    const int group = static_cast<int>(x.heads / x.kv_heads), kv = static_cast<int>(blockIdx.y);
    const int sequence = static_cast<int>(blockIdx.z), first = tile * ROWS;
    const int base = first + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    const int row[2] = {base, base + 8};
    const int per_head = ntiles - tile, n_all = group * per_head;
    const float to_log2 = scale * log2_e;
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    const Head<T> mine(x, sequence, kv * group);
    fetch(m.k, mine.k, mine.stride, first, seq);
    fetch(m.v, mine.v, mine.stride, first, seq);
    fetch_queries(m, 0, mine, x, first);
    commit();
    for (int i = 0; i < n_all; i++) {
        int next = i + 1, slot = i % 2, query = (tile + i % per_head) * ROWS;
        if (next < n_all) {
            const Head<T> h(x, sequence, kv * group + next / per_head);
            fetch_queries(m, next % 2, h, x, (tile + next % per_head) * ROWS);
        }
        commit();
        wait_groups<1>();
        __syncthreads();
        float p[1][ROWS / 8][4], dp[1][ROWS / 8][4];
        product<T, D, 1>(p, m.k, m.q[slot]);
        each_element([&](int n, int k) {
            int c = n * 8 + lane % 4 * 2 + k % 2;
            bool seen = query > first || query + c >= row[k / 2];
            p[0][n][k] = seen ? exp2_of(p[0][n][k] * to_log2 - m.lse[slot][c]) : 0.0f;
        });
        uint32_t kept = ~0u;
        if constexpr (DROPS) {
            unsigned head = static_cast<unsigned>(x.first_head + kv * group + i / per_head);
            kept = kept_columns(x.dropout, head, blockIdx.z, query, base);
            each_element(
                [&](int n, int k) { dp[0][n][k] = kept >> (n * 4 + k) & 1 ? p[0][n][k] : 0.0f; });
            accumulate<T, D, 1>(dv, dp, m.dout[slot]);
        } else {
            accumulate<T, D, 1>(dv, p, m.dout[slot]);
        }
        product<T, D, 1>(dp, m.v, m.dout[slot]);
        each_element([&](int n, int k) {
            float g = dp[0][n][k];
            if constexpr (DROPS)
                g = kept >> (n * 4 + k) & 1 ? g * x.dropout.scale : 0.0f;
            p[0][n][k] *= g - m.delta[slot][n * 8 + lane % 4 * 2 + k % 2];
        });
        accumulate<T, D, 1>(dk, p, m.q[slot]);
        __syncthreads();
    }
    const float up = DROPS ? x.dropout.scale : 1.0f;
    const float whole[2] = {up, up}, factor[2] = {scale, scale};
    put<T, D>(mine.dv, mine.stride, dv[0], row, whole, seq);
    put<T, D>(mine.dk, mine.stride, dk[0], row, factor, seq);
}

/* ---- host ---- */

template <class K>
static void launch(struct dtp_dev *d, K kernel, const int64_t (&rows_heads)[2], size_t shared_bytes,
                   const struct dtp_attention_args *x) {
    const int64_t rows = rows_heads[0], heads = rows_heads[1];
    dim3 grid(static_cast<unsigned>(ceil_div(x->seq, rows)), static_cast<unsigned>(heads),
              static_cast<unsigned>(x->batch));
    float scale = 1.0f / sqrtf(static_cast<float>(x->head_dim));
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
    kernel<<<grid, THREADS, shared_bytes, stream_of(d)>>>(*x, scale);
}

template <typename T, class F> static void with_dim(int64_t dim, F f) {
    if (dim == 64)
        f(T{}, std::integral_constant<int, 64>{});
    else if (dim == 80)
        f(T{}, std::integral_constant<int, 80>{});
    else if (dim == 96)
        f(T{}, std::integral_constant<int, 96>{});
    else
        f(T{}, std::integral_constant<int, 128>{});
}
template <class F> static void with_kernel(struct dtp_dev *d, int64_t dim, F f) {
    if (d->dtype == DTP_BF16)
        with_dim<bf16>(dim, f);
    else
        with_dim<fp16>(dim, f);
}

template <bool DROPS>
static void flash_forward_of(struct dtp_dev *d, const struct dtp_attention_args *x) {
    with_kernel(d, x->head_dim, [&](auto type, auto dim) {
        using T = decltype(type);
        constexpr int D = decltype(dim)::value;
        launch(d, flash_forward<T, D, DROPS>, {WIDE * ROWS, x->heads}, sizeof(ForwardMemory<T, D>),
               x);
    });
}

/* The workspace has delta. */
template <bool DROPS>
static void flash_backward_of(struct dtp_dev *d, const struct dtp_attention_args *x) {
    with_kernel(d, x->head_dim, [&](auto type, auto dim) {
        using T = decltype(type);
        constexpr int D = decltype(dim)::value;
        launch(d, flash_dq<T, D, DROPS>, {ROWS, x->heads}, sizeof(QueryMemory<T, D>), x);
        launch(d, flash_dkv<T, D, DROPS>, {ROWS, x->kv_heads}, sizeof(KeyMemory<T, D>), x);
    });
}

/* attention_dropout.cu: compiled apart, since each takes its time */
void flash_forward_dropout(struct dtp_dev *d, const struct dtp_attention_args *x);
void flash_backward_dropout(struct dtp_dev *d, const struct dtp_attention_args *x);

} // namespace dtp

#endif
