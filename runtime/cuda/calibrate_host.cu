/* Blocks of what the host takes: launches, the gaps between kernels, copies to its memory and back. */
#include <algorithm>

#include "runtime/cuda/calibrate.cuh"

namespace cal {

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

/* Host time of a launch: the queue holds about a thousand, so that none waits for the device. */
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

/* Host time of one launch of a graph of n kernels, and the device's of each kernel in it. */
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
