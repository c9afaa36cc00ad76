/* These blocks measure what surrounds the kernels: the time of the host (launches, gaps, copies to its memory and
 * back), and the effect of sustained load on the clock. The same products run on an idle chip and on one that has
 * been busy, while NVML reads clock, power and temperature. */
#include "runtime/cuda/calibrate_cuda.cuh"

#include <algorithm>
#include <chrono>
#include <dlfcn.h>
#include <memory>
#include <thread>

namespace cal {

/* ---- NVML, opened at run time; signatures from its documentation ---- */

namespace {
struct Nvml {
    int (*init)();
    int (*handle)(unsigned, void **);
    int (*clock)(void *, int, unsigned *);
    int (*power)(void *, unsigned *);
    int (*temperature)(void *, int, unsigned *);
    int (*reasons)(void *, unsigned long long *);
    int (*limit)(void *, unsigned *);
    int (*driver)(char *, unsigned);
    bool ready;
};
Nvml nvml;

template <class F> bool load(void *so, const char *name, F *f) {
    *f = reinterpret_cast<F>(dlsym(so, name));
    return *f != nullptr;
}
} // namespace

bool nvml_open(std::string *driver) {
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char version[96] = "";

    if (!so)
        return false;
    nvml.ready = load(so, "nvmlInit_v2", &nvml.init) &&
                 load(so, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) &&
                 load(so, "nvmlDeviceGetClockInfo", &nvml.clock) &&
                 load(so, "nvmlDeviceGetPowerUsage", &nvml.power) &&
                 load(so, "nvmlDeviceGetTemperature", &nvml.temperature) &&
                 load(so, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.reasons) &&
                 load(so, "nvmlDeviceGetEnforcedPowerLimit", &nvml.limit) &&
                 load(so, "nvmlSystemGetDriverVersion", &nvml.driver) && nvml.init() == 0;
    if (nvml.ready && nvml.driver(version, sizeof version) == 0)
        *driver = version;
    return nvml.ready;
}

bool nvml_sample(int device, Sample *out) {
    enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };
    void *h;

    *out = Sample{now_s(), 0, 0, 0, 0, 0};
    if (!nvml.ready || nvml.handle(static_cast<unsigned>(device), &h))
        return false;
    bool ok = nvml.clock(h, CLOCK_SM, &out->sm_mhz) == 0;
    nvml.clock(h, CLOCK_MEMORY, &out->memory_mhz);
    nvml.power(h, &out->power_mw);
    nvml.temperature(h, SENSOR_GPU, &out->celsius);
    nvml.reasons(h, &out->reasons);
    return ok;
}

double nvml_power_limit_w(int device) {
    void *h;
    unsigned mw = 0;

    if (!nvml.ready || nvml.handle(static_cast<unsigned>(device), &h) || nvml.limit(h, &mw))
        return 0;
    return mw * 1e-3;
}

/* ---- load ---- */

static std::string sample_json(int device) {
    Sample s;

    if (!nvml_sample(device, &s))
        return "";
    return text(",\"sm_mhz\":%u,\"memory_mhz\":%u,\"power_w\":%.0f,\"celsius\":%u,"
                "\"reasons\":%llu",
                s.sm_mhz, s.memory_mhz, s.power_mw * 1e-3, s.celsius, s.reasons);
}

static void rest(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Loaded {
    std::unique_ptr<GemmPlan, void (*)(GemmPlan *)> plan;
    cudaGraphExec_t graph;
    int launches;
};

/* Returns a graph that repeats one product for about `target_s`. */
static Loaded load_of(Bench &b, const Shape &s, double target_s, int rotations) {
    Loaded l{{gemm_open(s), gemm_close}, nullptr, 0};
    double flops =
        2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);

    l.launches = std::max(1, static_cast<int>(target_s * 7e14 / flops));
    l.graph = b.capture([&](int i) { gemm_run(l.plan.get(), b, i); }, rotations, l.launches);
    return l;
}

/* Runs the product for `seconds`, and writes a line every quarter of a second. */
static void run_loaded(Context &c, Bench &b, const Shape &s, double seconds, const char *op) {
    int rotations = b.prepare(s.type, gemm_bytes(s));
    Loaded l = load_of(b, s, 0.05, rotations);
    double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) *
                   static_cast<double>(s.k) * l.launches;
    double begin = now_s(), next = begin;

    while (now_s() < begin + seconds) {
        double sum = 0;
        int n = 0;
        next += 0.25;
        b.stamp(0);
        do {
            sum += b.replay_s(l.graph);
            n++;
        } while (now_s() < next);
        /* read while busy: the next replay runs */
        b.stamp(1);
        CAL_CUDA(cudaGraphLaunch(l.graph, b.stream));
        rest(0.01);
        std::string sample = sample_json(b.device);
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        c.report.other(text("{\"op\":\"%s\",\"at_s\":%.2f,\"m\":%ld,\"n\":%ld,\"k\":%ld,"
                            "\"flops_per_s\":%.4g,\"clock_mhz\":%.0f%s}",
                            op, now_s() - begin, s.m, s.n, s.k, flops * n / sum, b.clock_mhz(),
                            sample.c_str()));
    }
    cudaGraphExecDestroy(l.graph);
}

static const Shape load_shape = {Pass::forward, Type::bf16, 8192, 8192, 8192, 1, false};

/* Runs bursts of growing length on a chip that rested, to see how long it stays fast. */
static void run_cold(Context &c, Bench &b) {
    int rotations = b.prepare(load_shape.type, gemm_bytes(load_shape));
    Loaded l = load_of(b, load_shape, 0.004, rotations);
    double flops = 2.0 * 8192.0 * 8192.0 * 8192.0 * l.launches;

    b.replay_s(l.graph);
    rest(2);
    double begin = now_s();
    for (int i = 0; i < 120; i++) {
        b.stamp(0);
        double t = b.replay_s(l.graph);
        b.stamp(1);
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        if (i < 10 || i % 10 == 0)
            c.report.other(text("{\"op\":\"gemm_after_rest\",\"at_s\":%.4f,\"flops_per_s\":%.4g,"
                                "\"clock_mhz\":%.0f}",
                                now_s() - begin, flops / t, b.clock_mhz()));
    }
    cudaGraphExecDestroy(l.graph);
}

/* Runs shapes of layers on the hot chip, half a second each. */
static void run_hot_shapes(Context &c, Bench &b) {
    std::vector<Shape> shapes;

    for (long h : {2048l, 4096l, 8192l, 12288l})
        for (long tokens : {2048l, 8192l}) {
            shapes.push_back({Pass::forward, Type::bf16, tokens, 4 * h, h, 1, false});
            shapes.push_back({Pass::dgrad, Type::bf16, tokens, h, 4 * h, 1, false});
            shapes.push_back({Pass::wgrad, Type::bf16, 4 * h, h, tokens, 1, true});
            shapes.push_back({Pass::forward, Type::bf16, tokens, h, h, 1, false});
        }
    for (const Shape &s : shapes)
        if (!c.out_of_time())
            run_loaded(c, b, s, 0.2,
                       s.pass == Pass::forward ? "gemm_fwd_hot"
                       : s.pass == Pass::dgrad ? "gemm_dgrad_hot"
                                               : "gemm_wgrad_hot");
}

/* Runs products and memory-bound kernels in turn, as a step does: about a quarter of the time goes to the latter,
 * which cools the chip. */
static void run_mixed(Context &c, Bench &b, double seconds) {
    const Shape s = {Pass::forward, Type::bf16, 4096, 8192, 4096, 1, false};
    const size_t n = size_t{4096} * 4096;
    int rotations = b.prepare(s.type, gemm_bytes(s) + 6 * n);
    std::unique_ptr<GemmPlan, void (*)(GemmPlan *)> plan{gemm_open(s), gemm_close};
    auto both = [&](int i) {
        char *p = static_cast<char *>(b.at(gemm_bytes(s) + 6 * n, i, gemm_bytes(s)));
        gemm_run(plan.get(), b, i);
        for (int j = 0; j < 4; j++)
            add_bf16(p, p + 2 * n, p + 4 * n, n, b.stream);
    };
    cudaGraphExec_t graph = b.capture(both, rotations, 80);
    double begin = now_s(), next = begin;

    while (now_s() < begin + seconds) {
        double sum = 0;
        int count = 0;
        next += 0.5;
        b.stamp(0);
        do {
            sum += b.replay_s(graph);
            count++;
        } while (now_s() < next);
        b.stamp(1);
        CAL_CUDA(cudaGraphLaunch(graph, b.stream));
        rest(0.01);
        std::string sample = sample_json(b.device);
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        c.report.other(text("{\"op\":\"gemm_and_adds\",\"at_s\":%.2f,\"time_s\":%.4g,"
                            "\"clock_mhz\":%.0f%s}",
                            now_s() - begin, sum / count / 80, b.clock_mhz(), sample.c_str()));
    }
    cudaGraphExecDestroy(graph);
}

static void run_load(Context &c) {
    Bench &b = *c.benches[0];

    b.use();
    run_cold(c, b);
    run_loaded(c, b, load_shape, c.options.sustained_s, "gemm_sustained");
    run_mixed(c, b, 0.2 * c.options.sustained_s);
    run_hot_shapes(c, b);
}
static size_t plan_load() {
    return 150;
}

/* clang-format off */
const Block load_blocks[] = {
    {"load", 22, 1, run_load, plan_load},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

/* ---- the host ---- */

__global__ void empty_kernel() {
}
__global__ void spin_kernel(long long cycles) {
    long long start = clock64();

    while (clock64() - start < cycles)
        ;
}

/* A kernel of c cycles takes gap + c / f, so that gap = 2 t(c) - t(2c). */
static double gap_s(Bench &b, bool graph, double *single_s) {
    const long long cycles = 40000;
    unsigned sms = static_cast<unsigned>(b.num_sms);
    auto spin = [&](long long n) {
        auto launch = [&b, n, sms](int) { spin_kernel<<<sms, 128, 0, b.stream>>>(n); };
        return graph ? b.measure(launch, 1).time_s : b.measure_stream(launch, 1, 200, 9).time_s;
    };
    double once = spin(cycles), twice = spin(2 * cycles);

    *single_s = once;
    return 2 * once - twice;
}

/* Returns the host time of a launch. The queue holds about a thousand, so that none waits for the device. */
static double launch_s(Bench &b, bool graph_of_one) {
    auto empty = [&b](int) { empty_kernel<<<1, 1, 0, b.stream>>>(); };
    cudaGraphExec_t graph = b.capture(empty, 1, 1);
    std::vector<double> times;

    for (int r = 0; r < 21; r++) {
        const int n = 400;
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        double start = now_s();
        for (int i = 0; i < n; i++)
            if (graph_of_one)
                CAL_CUDA(cudaGraphLaunch(graph, b.stream));
            else
                empty(0);
        times.push_back((now_s() - start) / n);
    }
    CAL_CUDA(cudaStreamSynchronize(b.stream));
    cudaGraphExecDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Measures the host's time for one launch of a graph of n kernels, and the device's time for each kernel in it. */
static void graph_rows(Context &c, Bench &b, int n) {
    auto empty = [&b](int) { empty_kernel<<<1, 1, 0, b.stream>>>(); };
    cudaGraphExec_t graph = b.capture(empty, 1, n);
    std::vector<double> host, device;

    for (int r = 0; r < 15; r++) {
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        double start = now_s();
        CAL_CUDA(cudaGraphLaunch(graph, b.stream));
        host.push_back(now_s() - start);
        device.push_back(b.replay_s(graph) / n);
    }
    CAL_CUDA(cudaStreamSynchronize(b.stream));
    cudaGraphExecDestroy(graph);
    std::sort(host.begin(), host.end());
    std::sort(device.begin(), device.end());
    c.report.other(text("{\"op\":\"graph_launch\",\"kernels\":%d,\"host_s\":%.4g,"
                        "\"device_s_per_kernel\":%.4g}",
                        n, host[7], device[7]));
}

static double roundtrip_s(Bench &b) {
    std::vector<double> times;

    for (int i = 0; i < 200; i++) {
        double start = now_s();
        empty_kernel<<<1, 1, 0, b.stream>>>();
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        times.push_back(now_s() - start);
    }
    std::sort(times.begin(), times.end());
    return times[100];
}

static void run_host(Context &c) {
    Bench &b = *c.benches[0];
    double single;

    b.use();
    double gap = gap_s(b, false, &single);
    c.report.row(text("{\"op\":\"kernel_gap\",\"note\":\"in a stream\",\"time_s\":%.4g}", gap));
    gap = gap_s(b, true, &single);
    c.report.other(text("{\"op\":\"kernel_gap_in_graph\",\"time_s\":%.4g}", gap));
    c.report.other(text("{\"op\":\"launch\",\"note\":\"host, empty kernel\",\"time_s\":%.4g}",
                        launch_s(b, false)));
    c.report.other(text("{\"op\":\"launch\",\"note\":\"host, graph of one kernel\","
                        "\"time_s\":%.4g}",
                        launch_s(b, true)));
    c.report.other(text("{\"op\":\"launch_and_wait\",\"time_s\":%.4g}", roundtrip_s(b)));
    for (int n : {10, 100, 1000})
        graph_rows(c, b, n);
}

static void run_offload(Context &c) {
    Bench &b = *c.benches[0];
    const size_t most = size_t{256} << 20;
    void *host;

    b.use();
    int n = b.prepare(Type::bf16, most);
    CAL_CUDA(cudaMallocHost(&host, most));
    for (size_t bytes : {size_t{1} << 20, size_t{16} << 20, most})
        for (bool out : {false, true}) {
            Timing t = b.measure_stream(
                [&](int i) {
                    void *device = b.at(most, i, 0);
                    CAL_CUDA(cudaMemcpyAsync(out ? host : device, out ? device : host, bytes,
                                             cudaMemcpyDefault, b.stream));
                },
                n, 4);
            std::string note = out ? "device to host" : "host to device";
            std::string json = text("{\"op\":\"offload\",\"note\":\"%s\",\"bytes\":%zu,"
                                    "\"time_s\":%.4g}",
                                    note.c_str(), bytes, t.time_s);
            if (bytes == most)
                c.report.row(json);
            else
                c.report.other(json);
        }
    cudaFreeHost(host);
}
static size_t plan_host() {
    return 9;
}
static size_t plan_offload() {
    return 6;
}

/* clang-format off */
const Block host_blocks[] = {
    {"host", 1, 1, run_host, plan_host},
    {"offload", 1, 1, run_offload, plan_offload},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

} // namespace cal
