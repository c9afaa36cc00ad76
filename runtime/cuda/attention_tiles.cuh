/* attention_tiles.cuh: tensor-core instructions, tiles in shared memory and products of them, for the
 * kernels of attention_kernels.cuh. */
#ifndef DTP_RUNTIME_CUDA_ATTENTION_TILES_CUH
#define DTP_RUNTIME_CUDA_ATTENTION_TILES_CUH

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

} // namespace dtp

#endif
