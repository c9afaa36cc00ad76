/* Causal attention on tensor cores without the matrix of probabilities (Dao 2022, 2023).
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

/* Where a block works. */
template <typename T> struct Head {
    int64_t stride, out_stride; /* elements between positions */
    int64_t stat;               /* of position 0 in saved and workspace */
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

/* ---- forward ---- */

enum { WIDE = 2 }; /* times 16 rows a warp */

template <typename T, int D> struct ForwardMemory {
    Tile<T, D, WIDE * ROWS> q;
    Tile<T, D> k[2], v[2];
};

/* The mask (of a tile on the diagonal), exponentials, and the running maximum and sum of 16 rows. */
template <int D>
__device__ __forceinline__ void soften(float (&s)[ROWS / 8][4], float (&o)[D / 8][4],
                                       float (&most)[2], float (&sum)[2], const int (&row)[2],
                                       int first_key, bool mask, float to_log2) {
    int lane = static_cast<int>(threadIdx.x) % 32;
    if (mask)
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (first_key + n * 8 + lane % 4 * 2 + i % 2 > row[i / 2])
                    s[n][i] = -INFINITY;
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

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    flash_forward(const __grid_constant__ dtp_attention_args x, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    auto &m = *reinterpret_cast<ForwardMemory<T, D> *>(memory);
    const int seq = static_cast<int>(x.seq), lane = static_cast<int>(threadIdx.x) % 32;
    /* long rows first: they take longest */
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
            for (int w = 0; w < WIDE; w++)
                soften<D>(s[w], o[w], most[w], sum[w], row[w], j * ROWS,
                          (j + 1) * ROWS > mine + w * 16, scale * log2_e);
            accumulate<T, D, WIDE>(o, s, m.v[j % 2]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int w = 0; w < WIDE; w++) {
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float all = sum[w][half];
            all += __shfl_xor_sync(0xffffffffu, all, 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            inverse[half] = 1.0f / all;
            if (lane % 4 == 0 && row[w][half] < seq)
                static_cast<float *>(x.saved)[h.stat + row[w][half]] =
                    most[w][half] * scale + logf(all);
        }
        put<T, D>(h.o, h.out_stride, o[w], row[w], inverse, seq);
    }
}

/* ---- backward ---- */

template <typename T, int D> struct QueryMemory { Tile<T, D> q, dout, k[2], v[2]; };

template <typename T, int D>
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
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = j < tile || j * ROWS + n * 8 + lane % 4 * 2 + i % 2 <= row[i / 2];
                float w = seen ? exp2_of(p[0][n][i] * to_log2 - lse[i / 2]) : 0.0f;
                dp[0][n][i] = w * (dp[0][n][i] - delta[i / 2]);
            }
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

template <typename T, int D>
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
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int c = n * 8 + lane % 4 * 2 + k % 2;
                bool seen = query > first || query + c >= row[k / 2];
                p[0][n][k] = seen ? exp2_of(p[0][n][k] * to_log2 - m.lse[slot][c]) : 0.0f;
            }
        accumulate<T, D, 1>(dv, p, m.dout[slot]);
        product<T, D, 1>(dp, m.v, m.dout[slot]);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                p[0][n][k] *= dp[0][n][k] - m.delta[slot][n * 8 + lane % 4 * 2 + k % 2];
        accumulate<T, D, 1>(dk, p, m.q[slot]);
        __syncthreads();
    }
    const float one[2] = {1.0f, 1.0f}, factor[2] = {scale, scale};
    put<T, D>(mine.dv, mine.stride, dv[0], row, one, seq);
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
    uint64_t fused = dtp_cuda_fused_workspace_bytes(dtp_cuda_of(const_cast<struct dtp_dev *>(d)),
                                                    x); /* it keeps the plans it makes */
    return fused > own ? fused : own;
}

extern "C" void dtp_cuda_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    if (dtp_cuda_fused_forward(dtp_cuda_of(d), x))
        return;
    if (!fast(d, x)) {
        dtp_cuda_attention_simple_forward(d, x);
        return;
    }
    with_kernel(d, x->head_dim, [&](auto type, auto dim) {
        using T = decltype(type);
        constexpr int D = decltype(dim)::value;
        launch(d, flash_forward<T, D>, {WIDE * ROWS, x->heads}, sizeof(ForwardMemory<T, D>), x);
    });
}

extern "C" void dtp_cuda_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x) {
    if (dtp_cuda_fused_backward(dtp_cuda_of(d), x))
        return;
    dtp_cuda_attention_delta(d, x);
    if (!fast(d, x)) {
        dtp_cuda_attention_simple_backward(d, x);
        return;
    }
    with_kernel(d, x->head_dim, [&](auto type, auto dim) {
        using T = decltype(type);
        constexpr int D = decltype(dim)::value;
        launch(d, flash_dq<T, D>, {ROWS, x->heads}, sizeof(QueryMemory<T, D>), x);
        launch(d, flash_dkv<T, D>, {ROWS, x->kv_heads}, sizeof(KeyMemory<T, D>), x);
    });
}

} // namespace dtp
