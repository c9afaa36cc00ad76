/* Kernels beside collectives, on the GPUs of one process. */
#include <algorithm>
#include <memory>

#include "runtime/cuda/calibrate_comm.cuh"

namespace cal {

/* A kernel on the compute streams of all GPUs, `times` in a graph each. */
struct Beside {
    std::vector<cudaGraphExec_t> graphs;
    std::vector<GemmPlan *> plans;
    int times;
    ~Beside() {
        for (cudaGraphExec_t g : graphs)
            cudaGraphExecDestroy(g);
        for (GemmPlan *p : plans)
            gemm_close(p);
    }
};

static std::unique_ptr<Beside> gemms(Ring &r, const Shape &s, double seconds) {
    auto out = std::make_unique<Beside>();
    double flops =
        2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);

    out->times = std::max(4, static_cast<int>(seconds * 6e14 / flops));
    for (Bench *b : r.benches) {
        b->use();
        int n = b->prepare(s.type, gemm_bytes(s));
        GemmPlan *p = gemm_open(s);
        out->plans.push_back(p);
        gemm_run(p, *b, 0);
        out->graphs.push_back(b->capture([&](int i) { gemm_run(p, *b, i); }, n, out->times));
    }
    return out;
}

static std::unique_ptr<Beside> adds(Ring &r, size_t n, double seconds) {
    auto out = std::make_unique<Beside>();

    out->times = std::max(4, static_cast<int>(seconds * 2.5e12 / (6.0 * static_cast<double>(n))));
    for (Bench *b : r.benches) {
        b->use();
        int rotations = b->prepare(Type::bf16, 6 * n);
        out->graphs.push_back(b->capture(
            [&](int i) {
                char *p = static_cast<char *>(b->at(6 * n, i, 0));
                add_bf16(p, p + 2 * n, p + 4 * n, n, b->stream);
            },
            rotations, out->times));
    }
    return out;
}

/* Time of one kernel of `k`, while the collectives of `comm` (if any) run, and theirs. Both start
 * together; only the shorter of the two was beside the other all the time. */
static void together(Ring &r, Beside &k, const Comms *comm, double out[2]) {
    std::vector<double> kernel, collective;

    for (int i = 0; i < 4; i++) {
        double t = 0;
        if (comm)
            launch(r, *comm);
        for (size_t rank = 0; rank < k.graphs.size(); rank++) {
            r.benches[rank]->use();
            CAL_CUDA(cudaEventRecord(r.start[rank], r.benches[rank]->stream));
            CAL_CUDA(cudaGraphLaunch(k.graphs[rank], r.benches[rank]->stream));
            CAL_CUDA(cudaEventRecord(r.stop[rank], r.benches[rank]->stream));
        }
        for (size_t rank = 0; rank < k.graphs.size(); rank++) {
            float ms;
            r.benches[rank]->use();
            CAL_CUDA(cudaEventSynchronize(r.stop[rank]));
            CAL_CUDA(cudaEventElapsedTime(&ms, r.start[rank], r.stop[rank]));
            t = std::max(t, static_cast<double>(ms) * 1e-3 / k.times);
        }
        for (size_t rank = 0; rank < k.graphs.size(); rank++) {
            r.benches[rank]->use();
            CAL_CUDA(cudaDeviceSynchronize());
        }
        if (i)
            kernel.push_back(t);
    }
    out[0] = median(kernel);
}

/* The collective's time while kernels run all along: `seconds` of kernels, a third of it collectives. */
static double comm_beside_s(Ring &r, Beside &k, const Comms &comm) {
    std::vector<double> t;

    for (int i = 0; i < 4; i++) {
        for (size_t rank = 0; rank < k.graphs.size(); rank++) {
            r.benches[rank]->use();
            CAL_CUDA(cudaGraphLaunch(k.graphs[rank], r.benches[rank]->stream));
        }
        launch(r, comm);
        double s = finish_s(r) / comm.times;
        for (Bench *b : r.benches) {
            b->use();
            CAL_CUDA(cudaDeviceSynchronize());
        }
        if (i)
            t.push_back(s);
    }
    return median(t);
}

static void overlap_rows(Context &c, Ring &r, const std::string &what,
                         const std::function<std::unique_ptr<Beside>(double)> &make) {
    const double seconds = 0.02;
    std::unique_ptr<Beside> k = make(seconds), longer = make(3 * seconds);
    double alone[2], beside[2];

    together(r, *k, nullptr, alone);
    fprintf(stderr, "beside %s\n", what.c_str());
    c.report.flush();
    for (size_t i = 0; i < STEP_COLLECTIVES; i++)
        for (size_t bytes : {size_t{16} << 20, size_t{128} << 20}) {
            if (c.out_of_time())
                return;
            /* graphs of both kinds beside each other hang (NCCL 2.28, two GPUs, one host thread) */
            const bool eager = true;
            double one_s = collective_s(r, collectives[i].run, bytes, eager);
            int times = std::max(2, static_cast<int>(3 * seconds / one_s));
            together(r, *k,
                     std::make_unique<Comms>(r, collectives[i].run, bytes, times, eager).get(),
                     beside);
            times = std::max(2, static_cast<int>(seconds / one_s));
            double slowed_s =
                comm_beside_s(r, *longer, Comms(r, collectives[i].run, bytes, times, eager));
            c.report.other(text("{\"op\":\"beside\",%s,\"collective\":\"%s\",\"bytes\":%zu,"
                                "\"alone_s\":%.4g,\"beside_s\":%.4g,\"factor\":%.3f,"
                                "\"collective_alone_s\":%.4g,\"collective_beside_s\":%.4g,"
                                "\"collective_factor\":%.3f}",
                                what.c_str(), collectives[i].name, bytes, alone[0], beside[0],
                                beside[0] / alone[0], one_s, slowed_s, slowed_s / one_s));
        }
}

static void run_overlap(Context &c) {
    const Shape shapes[] = {{Pass::forward, Type::bf16, 4096, 4096, 4096, 1, false},
                            {Pass::wgrad, Type::bf16, 8192, 2048, 8192, 1, true},
                            {Pass::forward, Type::bf16, 2048, 8192, 8192, 1, false},
                            {Pass::dgrad, Type::bf16, 8192, 1024, 4096, 1, false}};

    nccl_open();
    Ring r(c.benches, size_t{128} << 20);
    for (const Shape &s : shapes)
        overlap_rows(c, r,
                     text("\"kernel\":\"%s\",\"m\":%ld,\"n\":%ld,\"k\":%ld",
                          s.pass == Pass::forward ? "gemm_fwd"
                          : s.pass == Pass::dgrad ? "gemm_dgrad"
                                                  : "gemm_wgrad",
                          s.m, s.n, s.k),
                     [&](double seconds) { return gemms(r, s, seconds); });
    overlap_rows(c, r, "\"kernel\":\"add\",\"elements\":33554432",
                 [&](double seconds) { return adds(r, size_t{1} << 25, seconds); });
}
static size_t plan_overlap() {
    return 50;
}

/* clang-format off */
const Block overlap_blocks[] = {
    {"overlap", 60, 2, run_overlap, plan_overlap},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

} // namespace cal
