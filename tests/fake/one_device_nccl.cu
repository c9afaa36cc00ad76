/* A stand-in for NCCL of ranks that share one GPU, for tests of layouts with more ranks than GPUs: what the runtime
 * uses of it (runtime/cuda/nccl_private.h). Without MPS, processes take turns on a GPU, and kernels of NCCL 2.30 that
 * wait for each other spend whole time slices on it (an H200: all-reduce of 1 MB by two ranks 72 ms, by four 216); here
 * streams wait for words of memory (cuStreamBatchMemOp), so that an exchange takes two turns of 1 to 2 ms a rank.
 *
 * A communicator is shared memory of the host, which each rank registers: a slot a rank for what it gives, and for
 * each pair (from, to) two words. `empty`: `from` may write its slot, as `to` has read it; `full`: `to` may read
 * it. A word is waited for until it is 1 and then made 0 by the one that waited, so that a graph can hold it.
 * Sums run in the order of ranks, in fp32. An abort makes all words of a rank 1 for a while. */
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <type_traits>
#include <unistd.h>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nccl.h>

namespace {

enum { MOST_RANKS = 16, THREADS = 256, BLOCKS = 32, VERSION = 23000 };
const size_t SLOT_BYTES = 8 << 20; /* few pieces: each costs a turn of every process */
const double OPEN_S = 60, ABORT_S = 2;

struct board {
    std::atomic<int> joined;
    uint32_t full[MOST_RANKS][MOST_RANKS], empty[MOST_RANKS][MOST_RANKS]; /* [from][to] */
};
const size_t BOARD_BYTES = 4096;
static_assert(sizeof(board) <= BOARD_BYTES, "a page");

} // namespace

struct ncclComm {
    int size, me;
    size_t bytes;
    board *host, *gpu;
    unsigned char *slot; /* memory of the GPU; [size][SLOT_BYTES] */
};

namespace {

using batch_fn = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);
batch_fn batch;
char last[256];

double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

ncclResult_t fail(const char *what, const char *why) {
    snprintf(last, sizeof last, "%s: %s", what, why);
    return ncclUnhandledCudaError;
}

ncclResult_t check(cudaError_t e, const char *what) {
    return e == cudaSuccess ? ncclSuccess : fail(what, cudaGetErrorString(e));
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        ncclResult_t tried = (call);                                                               \
        if (tried != ncclSuccess)                                                                  \
            return tried;                                                                          \
    } while (0)

/* ---- words ---- */

struct words {
    CUstreamBatchMemOpParams op[2 * MOST_RANKS];
    unsigned n;
};

void write_word(words *w, const uint32_t *word, uint32_t value) {
    CUstreamBatchMemOpParams *p = &w->op[w->n++];
    memset(p, 0, sizeof *p);
    p->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p->writeValue.address = CUdeviceptr(uintptr_t(word));
    p->writeValue.value = value;
}

void take_word(words *w, const uint32_t *word) {
    CUstreamBatchMemOpParams *p = &w->op[w->n++];
    memset(p, 0, sizeof *p);
    p->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    p->waitValue.address = CUdeviceptr(uintptr_t(word));
    p->waitValue.value = 1;
    p->waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    write_word(w, word, 0);
}

ncclResult_t enqueue(words *w, cudaStream_t stream) {
    CUresult r = w->n ? batch(CUstream(stream), w->n, w->op, 0) : CUDA_SUCCESS;
    char text[32];
    snprintf(text, sizeof text, "error %d", int(r));
    return r == CUDA_SUCCESS ? ncclSuccess : fail("words of the stream", text);
}

/* ---- kernels: slots are memory of the host, which no cache may answer for ---- */

/* Copies `parts` pieces of n words, from -> to, each so many words after the one before. */
template <typename T>
__global__ void copy_pieces(volatile T *to, size_t to_step, const volatile T *from,
                            size_t from_step, size_t n, int parts) {
    size_t all = n * size_t(parts), by = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += by)
        to[i / n * to_step + i % n] = from[i / n * from_step + i % n];
    __threadfence_system();
}

/* A number of a slot: read as a word, since a volatile one has no conversion. */
template <typename T> __device__ float number(const unsigned char *slot, size_t i) {
    using word = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint16_t>;
    word w = reinterpret_cast<const volatile word *>(slot)[i];
    T x;
    memcpy(&x, &w, sizeof x);
    return float(x);
}

template <typename T>
__global__ void reduce(T *to, const unsigned char *slot, size_t n, int size, bool max) {
    size_t by = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += by) {
        float sum = 0;
        for (int r = 0; r < size; r++) {
            float x = number<T>(slot + size_t(r) * SLOT_BYTES, i);
            sum = r == 0 ? x : max ? fmaxf(sum, x) : sum + x;
        }
        to[i] = T(sum);
    }
}

/* Before streams wait: to load a kernel later may mean to wait for them. */
ncclResult_t load_kernels() {
    const void *kernel[] = {reinterpret_cast<const void *>(copy_pieces<uint32_t>),
                            reinterpret_cast<const void *>(copy_pieces<uint8_t>),
                            reinterpret_cast<const void *>(reduce<float>),
                            reinterpret_cast<const void *>(reduce<__half>),
                            reinterpret_cast<const void *>(reduce<__nv_bfloat16>)};
    cudaFuncAttributes a;
    for (const void *k : kernel)
        TRY(check(cudaFuncGetAttributes(&a, k), "kernels"));
    return ncclSuccess;
}

ncclResult_t copy(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
                  int parts, cudaStream_t stream) {
    size_t all = size_t(uintptr_t(to) | uintptr_t(from)) | to_step | from_step | bytes;
    if (all % sizeof(uint32_t) == 0)
        copy_pieces<uint32_t><<<BLOCKS, THREADS, 0, stream>>>(
            static_cast<uint32_t *>(to), to_step / 4, static_cast<const uint32_t *>(from),
            from_step / 4, bytes / 4, parts);
    else
        copy_pieces<uint8_t><<<BLOCKS, THREADS, 0, stream>>>(static_cast<uint8_t *>(to), to_step,
                                                             static_cast<const uint8_t *>(from),
                                                             from_step, bytes, parts);
    return check(cudaGetLastError(), "copy");
}

/* ---- operations, piece by piece ---- */

size_t size_of(ncclDataType_t type) {
    return type == ncclFloat32 ? 4 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : 1;
}

/* Around the writing of my slot for others, and around the reading of theirs; with: one of them, -1: all. */
enum phase { BEFORE_WRITE, AFTER_WRITE, BEFORE_READ, AFTER_READ };

ncclResult_t sync(const ncclComm *c, phase p, int with, cudaStream_t stream) {
    words w{};
    for (int r = 0; r < c->size; r++) {
        if (r == c->me || (with >= 0 && r != with))
            continue;
        if (p == BEFORE_WRITE)
            take_word(&w, &c->gpu->empty[c->me][r]);
        else if (p == AFTER_WRITE)
            write_word(&w, &c->gpu->full[c->me][r], 1);
        else if (p == BEFORE_READ)
            take_word(&w, &c->gpu->full[r][c->me]);
        else
            write_word(&w, &c->gpu->empty[r][c->me], 1);
    }
    return enqueue(&w, stream);
}

unsigned char *slot_of(const ncclComm *c, int rank) {
    return c->slot + size_t(rank) * SLOT_BYTES;
}

ncclResult_t reduce_slots(const ncclComm *c, void *to, size_t offset, size_t n, ncclDataType_t type,
                          ncclRedOp_t op, cudaStream_t stream) {
    bool max = op == ncclMax;
    const unsigned char *from = c->slot + offset;
    if (type == ncclFloat32)
        reduce<<<BLOCKS, THREADS, 0, stream>>>(static_cast<float *>(to), from, n, c->size, max);
    else if (type == ncclFloat16)
        reduce<<<BLOCKS, THREADS, 0, stream>>>(static_cast<__half *>(to), from, n, c->size, max);
    else if (type == ncclBfloat16)
        reduce<<<BLOCKS, THREADS, 0, stream>>>(static_cast<__nv_bfloat16 *>(to), from, n, c->size,
                                               max);
    else
        return fail("reduction", "of a type that this stand-in lacks");
    return check(cudaGetLastError(), "reduction");
}

/* What each rank gives and takes of a piece of n elements at `at`. */
struct piece {
    size_t at, n;
};

template <typename Put, typename Take>
ncclResult_t pieces(const ncclComm *c, size_t n, size_t most, cudaStream_t stream, Put put,
                    Take take) {
    for (size_t at = 0; at < n; at += most) {
        piece p{at, n - at < most ? n - at : most};
        TRY(sync(c, BEFORE_WRITE, -1, stream));
        TRY(put(p));
        TRY(sync(c, AFTER_WRITE, -1, stream));
        TRY(sync(c, BEFORE_READ, -1, stream));
        TRY(take(p));
        TRY(sync(c, AFTER_READ, -1, stream));
    }
    return ncclSuccess;
}

} // namespace

/* ---- the interface ---- */

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
    *version = VERSION;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
    return r == ncclSuccess ? "no error" : last;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    int f = memfd_create("one_device_nccl", MFD_CLOEXEC);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", int(getpid()), f);
    bool good = f >= 0 && ftruncate(f, off_t(BOARD_BYTES + MOST_RANKS * SLOT_BYTES)) == 0;
    return good ? ncclSuccess : fail("memory file", id->internal);
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int me) {
    ncclComm *c =
        new ncclComm{size, me, BOARD_BYTES + size_t(size) * SLOT_BYTES, nullptr, nullptr, nullptr};
    void *found = nullptr, *gpu = nullptr;
    int f = open(id.internal, O_RDWR | O_CLOEXEC), made_by = 0, made = -1;
    void *m = f < 0 || size > MOST_RANKS
                  ? MAP_FAILED
                  : mmap(nullptr, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (f >= 0)
        close(f);
    if (m == MAP_FAILED)
        return fail("shared memory", id.internal);
    cudaDriverEntryPointQueryResult how;
    TRY(check(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &found, 12000,
                                               cudaEnableDefault, &how),
              "cuStreamBatchMemOp"));
    batch = reinterpret_cast<batch_fn>(found);
    TRY(load_kernels());
    TRY(check(cudaHostRegister(m, c->bytes, cudaHostRegisterMapped), "cudaHostRegister"));
    TRY(check(cudaHostGetDevicePointer(&gpu, m, 0), "cudaHostGetDevicePointer"));
    c->host = static_cast<board *>(m);
    c->gpu = static_cast<board *>(gpu);
    c->slot = static_cast<unsigned char *>(gpu) + BOARD_BYTES;
    for (int r = 0; r < size; r++)
        c->host->empty[me][r] = 1;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    c->host->joined++;
    for (double end_s = now_s() + OPEN_S; c->host->joined < size; usleep(100))
        if (now_s() > end_s)
            return fail("communicator", "others did not come");
    if (sscanf(id.internal, "/proc/%d/fd/%d", &made_by, &made) == 2 && made_by == int(getpid()))
        close(made);
    *out = c;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    (void)cudaHostUnregister(c->host);
    munmap(c->host, c->bytes);
    delete c;
    return ncclSuccess;
}

/* The memory stays: streams may still read it. */
ncclResult_t ncclCommAbort(ncclComm_t c) {
    for (double end_s = now_s() + ABORT_S; now_s() < end_s; usleep(20))
        for (int r = 0; r < c->size; r++) {
            const_cast<volatile uint32_t &>(c->host->full[r][c->me]) = 1;
            const_cast<volatile uint32_t &>(c->host->empty[c->me][r]) = 1;
        }
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream) {
    const size_t e = size_of(type);
    return pieces(
        c, n, SLOT_BYTES / e, stream,
        [=](piece p) {
            return copy(slot_of(c, c->me), 0, static_cast<const char *>(in) + p.at * e, 0, p.n * e,
                        1, stream);
        },
        [=](piece p) {
            return reduce_slots(c, static_cast<char *>(out) + p.at * e, 0, p.n, type, op, stream);
        });
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t stream) {
    const size_t e = size_of(type), most = SLOT_BYTES / size_t(c->size) / e;
    return pieces(
        c, n, most, stream,
        [=](piece p) {
            return copy(slot_of(c, c->me), most * e, static_cast<const char *>(in) + p.at * e,
                        n * e, p.n * e, c->size, stream);
        },
        [=](piece p) {
            return reduce_slots(c, static_cast<char *>(out) + p.at * e, size_t(c->me) * most * e,
                                p.n, type, op, stream);
        });
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream) {
    const size_t e = size_of(type);
    return pieces(
        c, n, SLOT_BYTES / e, stream,
        [=](piece p) {
            return copy(slot_of(c, c->me), 0, static_cast<const char *>(in) + p.at * e, 0, p.n * e,
                        1, stream);
        },
        [=](piece p) {
            return copy(static_cast<char *>(out) + p.at * e, n * e, c->slot, SLOT_BYTES, p.n * e,
                        c->size, stream);
        });
}

ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int to, ncclComm_t c,
                      cudaStream_t stream) {
    size_t bytes = n * size_of(type);
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        size_t part = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        TRY(sync(c, BEFORE_WRITE, to, stream));
        TRY(copy(slot_of(c, c->me), 0, static_cast<const char *>(in) + at, 0, part, 1, stream));
        TRY(sync(c, AFTER_WRITE, to, stream));
    }
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int from, ncclComm_t c,
                      cudaStream_t stream) {
    size_t bytes = n * size_of(type);
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        size_t part = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        TRY(sync(c, BEFORE_READ, from, stream));
        TRY(copy(static_cast<char *>(out) + at, 0, slot_of(c, from), 0, part, 1, stream));
        TRY(sync(c, AFTER_READ, from, stream));
    }
    return ncclSuccess;
}

} /* extern "C" */
