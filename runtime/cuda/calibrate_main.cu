/* dtplan-calibrate-cuda: times kernels and collectives of this host's GPUs, see calibrate_cuda.cuh.
 *
 *     dtplan-calibrate-cuda [--out FILE] [--seconds N] [--sustained N] [--gpus N] [--only BLOCK,...]
 *                           [--eager] [--dry-run]
 *
 * With --gpus 1 (the default) it times the kernels of one GPU, with more the collectives among them. --dry-run
 * prints the blocks and how many rows each would measure, and uses no GPU. --eager times collectives without graphs.
 * The exit status is 0 if all is done, 1 if no row could be measured, 2 for wrong usage, and 4 without a GPU. */
#include "runtime/cuda/calibrate_cuda.cuh"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <memory>
#include <mutex>
#include <thread>
#include <unistd.h>

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

/* Returns two normal numbers for element i (Box-Muller over a hashed counter). */
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

/* The first block on each SM writes down (cycles, nanoseconds). */
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
    launch(0); /* it loads the module and touches the memory */
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

/* ---- the report ---- */

void Report::head(const std::string &key, const std::string &json) {
    heads.push_back(text("\"%s\": ", key.c_str()) + json);
}
void Report::row(const std::string &json) {
    rows.push_back(json);
}
void Report::other(const std::string &json) {
    others.push_back(json);
}
void Report::clock(const std::string &json) {
    clocks.push_back(json);
}
void Report::failed(const std::string &block, const std::string &why) {
    std::string clean;

    for (char c : why)
        clean += c == '"' || c == '\\' || c < ' ' ? '\'' : c;
    fprintf(stderr, "%s: %s\n", block.c_str(), clean.c_str());
    failures.push_back(text("{\"block\":\"%s\",\"why\":\"%s\"}", block.c_str(), clean.c_str()));
}

static void put_list(FILE *f, const char *name, const std::vector<std::string> &list) {
    fprintf(f, ",\n\"%s\": [", name);
    for (size_t i = 0; i < list.size(); i++)
        fprintf(f, "%s\n%s", i ? "," : "", list[i].c_str());
    fprintf(f, "]");
}

void Report::flush() const {
    bool to_stdout = options.out == "-";
    std::string part = options.out + ".part";
    FILE *f = to_stdout ? stdout : fopen(part.c_str(), "w");

    if (!f)
        throw Failure(text("cannot write %s", part.c_str()));
    fprintf(f, "{");
    for (size_t i = 0; i < heads.size(); i++)
        fprintf(f, "%s%s", i ? ",\n" : "", heads[i].c_str());
    put_list(f, "rows", rows);
    put_list(f, "other", others);
    put_list(f, "clocks", clocks);
    put_list(f, "failures", failures);
    fprintf(f, "}\n");
    if (to_stdout)
        fflush(f);
    else if (fclose(f) || rename(part.c_str(), options.out.c_str()))
        throw Failure(text("cannot write %s", options.out.c_str()));
}

/* ---- clocks around the blocks ---- */

/* Samples the GPU a few times a second while a block runs. */
class Watch {
  public:
    Watch(Report &r, const char *block, int device) : report(r), name(block) {
        thread = std::thread([this, device] {
            while (!done) {
                Sample s;
                if (nvml_sample(device, &s))
                    samples.push_back(s);
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
        });
    }
    ~Watch() {
        done = true;
        thread.join();
        size_t step = samples.size() / 12 + 1;
        for (size_t i = 0; i < samples.size(); i += step) {
            const Sample &s = samples[i];
            report.clock(text("{\"block\":\"%s\",\"at_s\":%.1f,\"sm_mhz\":%u,\"memory_mhz\":%u,"
                              "\"power_w\":%.0f,\"celsius\":%u,\"reasons\":%llu}",
                              name, s.at_s - samples[0].at_s, s.sm_mhz, s.memory_mhz,
                              s.power_mw * 1e-3, s.celsius, s.reasons));
        }
    }

  private:
    Report &report;
    const char *name;
    std::atomic<bool> done{false};
    std::vector<Sample> samples;
    std::thread thread;
};

/* ---- running ---- */

static bool chosen(const Options &o, const char *name) {
    std::string list = "," + o.only + ",";

    return o.only.empty() || list.find(text(",%s,", name)) != std::string::npos;
}

/* Short blocks come first, and the load comes last, since it leaves the chip hot. */
static std::vector<const Block *> blocks_of(const Options &o) {
    std::vector<const Block *> out;

    for (const Block *list :
         {host_blocks, kernel_blocks, gemm_blocks, load_blocks, comm_blocks, overlap_blocks})
        for (const Block *b = list; b->name; b++)
            if ((b->gpus > 1) == (o.gpus > 1) && chosen(o, b->name))
                out.push_back(b);
    return out;
}

static int dry_run(const std::vector<const Block *> &blocks, const Options &o) {
    double shares = 0;

    for (const Block *b : blocks)
        shares += b->share;
    for (const Block *b : blocks)
        printf("%-12s %6.1f s  at most %zu rows\n", b->name, o.seconds * b->share / shares,
               b->planned());
    return 0;
}

static void head(Report &r, std::vector<Bench *> &benches) {
    char date[32];
    time_t now = time(nullptr);
    int runtime = 0, driver_cuda = 0;
    std::string driver;

    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver_cuda);
    r.head("gpu", text("\"%s\"", benches[0]->properties.name));
    r.head("impl", "\"dtplan\"");
    r.head("date", text("\"%s\"", date));
    r.head("cuda", text("\"%d, driver %d\"", runtime, driver_cuda));
    r.head("num_sms", std::to_string(benches[0]->num_sms));
    r.head("l2_bytes", std::to_string(benches[0]->l2_bytes));
    r.head("memory_bytes", std::to_string(benches[0]->properties.totalGlobalMem));
    if (nvml_open(&driver)) {
        r.head("driver", text("\"%s\"", driver.c_str()));
        r.head("power_limit_w", text("%.0f", nvml_power_limit_w(0)));
    }
    try {
        r.head("cublas", gemm_version());
    } catch (const Failure &f) {
        r.failed("cublas", f.what());
    }
}

static void run_block(Context &c, const Block &b) {
    double begin = now_s();
    size_t before = c.report.count();

    try {
        Watch watch(c.report, b.name, c.benches[0]->device);
        b.run(c);
    } catch (const std::exception &e) {
        c.report.failed(b.name, e.what());
    }
    fprintf(stderr, "%-12s %6.1f s, %zu rows\n", b.name, now_s() - begin,
            c.report.count() - before);
    c.report.flush();
}

/* Ends the process, and writes what was measured, if a GPU never answers. */
static void watchdog(double seconds) {
    std::thread([seconds] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        fprintf(stderr, "dtplan-calibrate-cuda: no answer after %.0f s\n", seconds);
        _exit(1);
    }).detach();
}

static int run(const Options &o) {
    std::vector<const Block *> blocks = blocks_of(o);
    std::vector<std::unique_ptr<Bench>> owned;
    std::vector<Bench *> benches;
    int found = 0;
    double shares = 0, start = now_s();
    Report report(o);

    if (o.dry_run)
        return dry_run(blocks, o);
    if (cudaGetDeviceCount(&found) != cudaSuccess || found < o.gpus) {
        fprintf(stderr, "dtplan-calibrate-cuda: %d of %d GPUs found\n", found, o.gpus);
        return 4;
    }
    watchdog(1.3 * o.seconds + o.sustained_s + 20);
    for (int i = 0; i < o.gpus; i++) {
        owned.push_back(std::make_unique<Bench>(i));
        benches.push_back(owned.back().get());
    }
    head(report, benches);
    for (const Block *b : blocks)
        shares += b->share;
    for (const Block *b : blocks) {
        /* later blocks get the time that earlier ones did not use */
        double left = start + o.seconds - now_s();
        Context c{o, report, benches, now_s() + left * b->share / shares};
        run_block(c, *b);
        shares -= b->share;
        if (cudaDeviceSynchronize() != cudaSuccess)
            break; /* the context is gone; what was measured is written */
    }
    return report.count() ? 0 : 1;
}

static int usage(FILE *f, int code) {
    fprintf(f,
            "usage: dtplan-calibrate-cuda [--out FILE] [--seconds N] [--sustained N] [--gpus N]\n"
            "                             [--only BLOCK,...] [--eager] [--dry-run]\n");
    return code;
}

static int main_of(int argc, char **argv) {
    Options o;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (!strcmp(argv[i], "--dry-run")) {
            o.dry_run = true;
            continue;
        }
        if (!strcmp(argv[i], "--eager")) {
            o.eager = true;
            continue;
        }
        if (!strcmp(argv[i], "--help"))
            return usage(stdout, 0);
        if (!value)
            return usage(stderr, 2);
        if (!strcmp(argv[i], "--out"))
            o.out = value;
        else if (!strcmp(argv[i], "--seconds"))
            o.seconds = atof(value);
        else if (!strcmp(argv[i], "--sustained"))
            o.sustained_s = atof(value);
        else if (!strcmp(argv[i], "--gpus"))
            o.gpus = atoi(value);
        else if (!strcmp(argv[i], "--only"))
            o.only = value;
        else
            return usage(stderr, 2);
        i++;
    }
    if (o.seconds <= 0 || o.gpus < 1)
        return usage(stderr, 2);
    try {
        return run(o);
    } catch (const std::exception &e) {
        fprintf(stderr, "dtplan-calibrate-cuda: %s\n", e.what());
        return 1;
    }
}

} // namespace cal

int main(int argc, char **argv) {
    return cal::main_of(argc, argv);
}
