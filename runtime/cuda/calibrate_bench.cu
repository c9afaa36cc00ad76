#include "runtime/cuda/calibrate.cuh"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "sim/base/units.h"

namespace cal {

void check(cudaError_t e, const char *what) {
    if (e != cudaSuccess)
        throw Failure(text("%s: %s", what, cudaGetErrorString(e)));
}

double now_s() {
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

std::string text(const char *format, ...) {
    char buffer[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    return buffer;
}

static const struct {
    const char *name;
    size_t bytes;
} types[] = {{"fp32", 4}, {"tf32", 4}, {"fp16", 2}, {"bf16", 2}, {"fp8", 1}};

const char *type_name(Type t) {
    return types[static_cast<int>(t)].name;
}
size_t type_bytes(Type t) {
    return types[static_cast<int>(t)].bytes;
}

std::vector<size_t> spread(size_t n) {
    std::vector<size_t> order(n);
    uint64_t state = 0x9e3779b97f4a7c15ull;

    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(order[i - 1], order[(state >> 33) % i]);
    }
    return order;
}

/* ---- operands ---- */

/* Two normal numbers of element i (Box-Muller over a hashed counter). */
__device__ static float2 normal_pair(uint64_t i) {
    uint64_t x = i + 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    float u = (static_cast<uint32_t>(x) + 1.0f) * 2.3283064e-10f;
    float v = static_cast<uint32_t>(x >> 32) * 2.3283064e-10f;
    float r = sqrtf(-2.0f * __logf(fminf(u, 1.0f)));
    return make_float2(r * __cosf(6.2831853f * v), r * __sinf(6.2831853f * v));
}

template <class T> __global__ void fill_kernel(T *to, size_t pairs, bool positive) {
    size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;

    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < pairs;
         i += step) {
        float2 v = normal_pair(i);
        to[2 * i] = T(positive ? fabsf(v.x) : v.x);
        to[2 * i + 1] = T(positive ? fabsf(v.y) : v.y);
    }
}

template <class T>
static void fill_as(void *pool, size_t bytes, bool positive, cudaStream_t stream) {
    fill_kernel<T>
        <<<2048, 256, 0, stream>>>(static_cast<T *>(pool), bytes / sizeof(T) / 2, positive);
}

static size_t aligned(size_t bytes) {
    return (bytes + 511) & ~size_t{511};
}

int Bench::prepare(Type t, size_t footprint, bool positive) {
    size_t each = aligned(footprint) + 512, want = (3 * l2_bytes + each - 1) / each + 1;
    size_t n = std::max<size_t>(1, std::min(want, pool_bytes / each));

    if (each > pool_bytes)
        throw Failure("operands larger than the pool");
    use();
    switch (t) {
    case Type::f32:
    case Type::tf32:
        fill_as<float>(pool, n * each, positive, stream);
        break;
    case Type::f16:
        fill_as<__half>(pool, n * each, positive, stream);
        break;
    case Type::bf16:
        fill_as<__nv_bfloat16>(pool, n * each, positive, stream);
        break;
    case Type::fp8:
        fill_as<__nv_fp8_e4m3>(pool, n * each, positive, stream);
        break;
    }
    CAL_CUDA(cudaGetLastError());
    CAL_CUDA(cudaStreamSynchronize(stream));
    return static_cast<int>(n);
}

/* ---- clock ---- */

enum { MAX_SMS = 512, STAMP_VALUES = 2 };

/* The first block on each SM notes (cycles, nanoseconds). */
__global__ void stamp_kernel(unsigned long long *out, unsigned *claimed) {
    unsigned sm;
    unsigned long long ns;

    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x || sm >= MAX_SMS || atomicExch(&claimed[sm], 1u))
        return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    out[STAMP_VALUES * sm] = clock64();
    out[STAMP_VALUES * sm + 1] = ns;
}

static const size_t stamp_set = MAX_SMS * STAMP_VALUES;

void Bench::stamp(int which) {
    unsigned *claimed = reinterpret_cast<unsigned *>(stamps + 2 * stamp_set);

    CAL_CUDA(cudaMemsetAsync(claimed, 0, MAX_SMS * sizeof(unsigned), stream));
    if (which == 0)
        CAL_CUDA(cudaMemsetAsync(stamps, 0, 2 * stamp_set * sizeof *stamps, stream));
    stamp_kernel<<<num_sms * 8, 1024, 0, stream>>>(stamps + which * stamp_set, claimed);
    CAL_CUDA(cudaGetLastError());
}

double Bench::clock_mhz() {
    std::vector<unsigned long long> v(2 * stamp_set);
    std::vector<double> mhz;

    CAL_CUDA(cudaMemcpy(v.data(), stamps, v.size() * sizeof v[0], cudaMemcpyDeviceToHost));
    for (size_t sm = 0; sm < MAX_SMS; sm++) {
        const unsigned long long *from = &v[STAMP_VALUES * sm], *to = from + stamp_set;
        if (from[1] && to[1] > from[1])
            mhz.push_back(static_cast<double>(to[0] - from[0]) /
                          (DTP_NANO * DTP_MEGA * static_cast<double>(to[1] - from[1])));
    }
    if (mhz.empty())
        return 0;
    std::nth_element(mhz.begin(), mhz.begin() + mhz.size() / 2, mhz.end());
    return mhz[mhz.size() / 2];
}

/* ---- timing ---- */

Bench::Bench(int index) : device(index) {
    size_t free_bytes, total;

    use();
    CAL_CUDA(cudaGetDeviceProperties(&properties, device));
    num_sms = properties.multiProcessorCount;
    l2_bytes = static_cast<size_t>(properties.l2CacheSize);
    CAL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CAL_CUDA(cudaMemGetInfo(&free_bytes, &total));
    pool_bytes = std::min<size_t>(free_bytes / 2, size_t{16} << 30) & ~size_t{4095};
    CAL_CUDA(cudaMalloc(&pool, pool_bytes));
    CAL_CUDA(cudaMalloc(&stamps, 3 * stamp_set * sizeof *stamps));
    CAL_CUDA(cudaEventCreate(&start));
    CAL_CUDA(cudaEventCreate(&stop));
}

Bench::~Bench() {
    cudaSetDevice(device);
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaFree(stamps);
    cudaFree(pool);
    cudaStreamDestroy(stream);
}

void Bench::use() const {
    CAL_CUDA(cudaSetDevice(device));
}

void *Bench::at(size_t footprint, int i, size_t slot) const {
    return pool + static_cast<size_t>(i) * (aligned(footprint) + 512) + aligned(slot);
}

cudaGraphExec_t Bench::capture(const Launch &launch, int nrotations, int launches) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    CAL_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
        for (int i = 0; i < launches; i++)
            launch(i % nrotations);
    } catch (...) {
        cudaStreamEndCapture(stream, &graph);
        throw;
    }
    CAL_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    CAL_CUDA(e);
    return exec;
}

double Bench::replay_s(cudaGraphExec_t graph) {
    float ms;

    CAL_CUDA(cudaEventRecord(start, stream));
    CAL_CUDA(cudaGraphLaunch(graph, stream));
    CAL_CUDA(cudaEventRecord(stop, stream));
    CAL_CUDA(cudaEventSynchronize(stop));
    CAL_CUDA(cudaEventElapsedTime(&ms, start, stop));
    return ms * 1e-3;
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

Timing Bench::measure(const Launch &launch, int nrotations, double target_s, int replays) {
    float ms;
    std::vector<double> times;

    use();
    launch(0); /* module load, first touch */
    CAL_CUDA(cudaStreamSynchronize(stream));
    double begin_s = now_s();
    launch(nrotations > 1 ? 1 : 0);
    CAL_CUDA(cudaStreamSynchronize(stream));
    double guess_s = now_s() - begin_s;
    if (guess_s < target_s) { /* host time hides the kernel's */
        CAL_CUDA(cudaEventRecord(start, stream));
        for (int i = 0; i < 10; i++)
            launch(i % nrotations);
        CAL_CUDA(cudaEventRecord(stop, stream));
        CAL_CUDA(cudaEventSynchronize(stop));
        CAL_CUDA(cudaEventElapsedTime(&ms, start, stop));
        guess_s = std::max(ms * 1e-3 / 10, 1e-6);
    }
    if (guess_s > target_s)
        replays = (replays + 1) / 2;
    int n = std::max(1, std::min(400, static_cast<int>(std::ceil(target_s / guess_s))));
    cudaGraphExec_t graph = capture(launch, nrotations, n);

    if (guess_s <= target_s)
        replay_s(graph);
    stamp(0);
    for (int i = 0; i < replays; i++)
        times.push_back(replay_s(graph));
    stamp(1);
    CAL_CUDA(cudaStreamSynchronize(stream));
    cudaGraphExecDestroy(graph);
    return {median(times) / n, clock_mhz(), n};
}

Timing Bench::measure_stream(const Launch &launch, int nrotations, int launches, int replays) {
    std::vector<double> times;

    use();
    stamp(0);
    for (int r = 0; r < replays + 1; r++) {
        float ms;
        CAL_CUDA(cudaEventRecord(start, stream));
        for (int i = 0; i < launches; i++)
            launch(i % nrotations);
        CAL_CUDA(cudaEventRecord(stop, stream));
        CAL_CUDA(cudaEventSynchronize(stop));
        CAL_CUDA(cudaEventElapsedTime(&ms, start, stop));
        if (r) /* the first warms up */
            times.push_back(ms * 1e-3 / launches);
    }
    stamp(1);
    CAL_CUDA(cudaStreamSynchronize(stream));
    return {median(times), clock_mhz(), launches};
}

} // namespace cal
