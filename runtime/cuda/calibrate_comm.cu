/* Blocks that need several GPUs: NCCL, opened at run time; collectives by size over the GPUs of one process, and
 * kernels that overlap collectives. Sizes are those of nccl-tests: all_gather, reduce_scatter
 * and all_to_all name the whole buffer of a rank, of which it sends or receives (n - 1) / n. */
#include "runtime/cuda/calibrate_cuda.cuh"

#include <algorithm>
#include <dlfcn.h>
#include <exception>
#include <memory>

#include <nccl.h>

namespace cal {

/* Communicators and buffers of all GPUs; the collective runs on a stream of its own. */
struct Ring {
    std::vector<Bench *> &benches;
    std::vector<ncclComm_t> comm;
    std::vector<cudaStream_t> stream;
    std::vector<char *> send, recv;
    std::vector<cudaEvent_t> start, stop;
    size_t most;
    int n;

    Ring(std::vector<Bench *> &b, size_t bytes);
    ~Ring();
};

/* One rank's part, inside a group. count: elements of bf16 of the whole buffer. */
using Collective = void (*)(Ring &r, int rank, size_t count);

enum { ELEMENT_BYTES = 2 };

struct NamedCollective {
    const char *name;
    Collective run;
};
/* The first STEP_COLLECTIVES are those of training steps: they are timed one by one, and while kernels run. */
enum { STEP_COLLECTIVES = 5 };

/* `times` collectives: one graph a GPU, or (--eager) enqueued one by one. */
struct Comms {
    Ring &r;
    Collective f;
    size_t count;
    int times;
    std::vector<cudaGraphExec_t> graphs;

    Comms(Ring &ring, Collective collective, size_t bytes, int n, bool eager);
    ~Comms();
    Comms(const Comms &) = delete;
    Comms &operator=(const Comms &) = delete;

  private:
    void capture();
};

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitAll)                                                                             \
    X(ncclCommDestroy)                                                                             \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllReduce)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclBroadcast)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclSend)                                                                                    \
    X(ncclRecv)

struct Nccl {
#define NCCL_MEMBER(f) decltype(&::f) f;
    NCCL_FUNCTIONS(NCCL_MEMBER)
};
static Nccl nccl;

static void nccl_open() {
    void *so = dlopen("libnccl.so.2", RTLD_NOW);

    if (!so)
        throw Failure(text("NCCL: %s", dlerror()));
#define NCCL_LOAD(f)                                                                               \
    nccl.f = reinterpret_cast<decltype(nccl.f)>(dlsym(so, #f));                                    \
    if (!nccl.f)                                                                                   \
        throw Failure("NCCL: no " #f);
    NCCL_FUNCTIONS(NCCL_LOAD)
}
static void nccl_check(ncclResult_t r, const char *what) {
    if (r != ncclSuccess)
        throw Failure(text("%s: %s", what, nccl.ncclGetErrorString(r)));
}
#define CAL_NCCL(f, ...) nccl_check(nccl.f(__VA_ARGS__), #f)

Ring::Ring(std::vector<Bench *> &b, size_t bytes)
    : benches(b), most(bytes), n(static_cast<int>(b.size())) {
    std::vector<int> devices;
    comm.resize(b.size());
    for (Bench *bench : b) {
        cudaStream_t s;
        cudaEvent_t e[2];
        char *p[2];
        bench->prepare(Type::bf16, most);
        void *random = bench->at(most, 0, 0);
        CAL_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        for (int i = 0; i < 2; i++) {
            CAL_CUDA(cudaEventCreate(&e[i]));
            CAL_CUDA(cudaMalloc(&p[i], most));
            CAL_CUDA(cudaMemcpy(p[i], random, most, cudaMemcpyDeviceToDevice));
        }
        stream.push_back(s);
        start.push_back(e[0]);
        stop.push_back(e[1]);
        send.push_back(p[0]);
        recv.push_back(p[1]);
        devices.push_back(bench->device);
    }
    CAL_NCCL(ncclCommInitAll, comm.data(), n, devices.data());
}

Ring::~Ring() {
    /* a rank may wait for ever: leave it to the end of the process */
    if (std::uncaught_exceptions())
        return;
    for (int r = 0; r < n; r++) {
        benches[static_cast<size_t>(r)]->use();
        cudaDeviceSynchronize();
        nccl.ncclCommDestroy(comm[static_cast<size_t>(r)]);
        cudaFree(send[static_cast<size_t>(r)]);
        cudaFree(recv[static_cast<size_t>(r)]);
    }
}

static const ncclDataType_t element = ncclBfloat16;

struct Rank {
    char *send, *recv;
    ncclComm_t comm;
    cudaStream_t s;
    size_t part; /* elements */
    Rank(const Ring &r, int rank, size_t count)
        : send(r.send[static_cast<size_t>(rank)]), recv(r.recv[static_cast<size_t>(rank)]),
          comm(r.comm[static_cast<size_t>(rank)]), s(r.stream[static_cast<size_t>(rank)]),
          part(count / static_cast<size_t>(r.n)) {
    }
};

static void all_reduce(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    CAL_NCCL(ncclAllReduce, k.send, k.recv, count, element, ncclSum, k.comm, k.s);
}
static void all_gather(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    CAL_NCCL(ncclAllGather, k.send, k.recv, k.part, element, k.comm, k.s);
}
static void reduce_scatter(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    CAL_NCCL(ncclReduceScatter, k.send, k.recv, k.part, element, ncclSum, k.comm, k.s);
}
static void broadcast(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    CAL_NCCL(ncclBroadcast, k.send, k.recv, count, element, 0, k.comm, k.s);
}
static void reduce(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    CAL_NCCL(ncclReduce, k.send, k.recv, count, element, ncclSum, 0, k.comm, k.s);
}
static void all_to_all(Ring &r, int rank, size_t count) {
    Rank k(r, rank, count);
    for (int peer = 0; peer < r.n; peer++) {
        size_t at = static_cast<size_t>(peer) * k.part * ELEMENT_BYTES;
        CAL_NCCL(ncclSend, k.send + at, k.part, element, peer, k.comm, k.s);
        CAL_NCCL(ncclRecv, k.recv + at, k.part, element, peer, k.comm, k.s);
    }
}
static void send_recv(Ring &r, int rank, size_t count) { /* around the ring, both ways at once */
    Rank k(r, rank, count);
    CAL_NCCL(ncclSend, k.send, count, element, (rank + 1) % r.n, k.comm, k.s);
    CAL_NCCL(ncclRecv, k.recv, count, element, (rank + r.n - 1) % r.n, k.comm, k.s);
}
static void p2p(Ring &r, int rank, size_t count) { /* one way, from the first to the second */
    Rank k(r, rank, count);
    if (rank == 0)
        CAL_NCCL(ncclSend, k.send, count, element, 1, k.comm, k.s);
    if (rank == 1)
        CAL_NCCL(ncclRecv, k.recv, count, element, 0, k.comm, k.s);
}

/* clang-format off */
static const NamedCollective collectives[] = {
    {"all_reduce", all_reduce}, {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all}, {"send_recv", send_recv}, {"p2p", p2p}, {"broadcast", broadcast},
    {"reduce", reduce}};
/* clang-format on */

static void enqueue(Ring &r, Collective f, size_t count, int times) {
    for (int i = 0; i < times; i++) {
        CAL_NCCL(ncclGroupStart);
        for (int rank = 0; rank < r.n; rank++)
            f(r, rank, count);
        CAL_NCCL(ncclGroupEnd);
    }
}

Comms::Comms(Ring &ring, Collective collective, size_t bytes, int n, bool eager)
    : r(ring), f(collective), count(bytes / ELEMENT_BYTES), times(n) {
    enqueue(r, f, count, 1); /* connects, outside of a capture */
    for (size_t rank = 0; rank < r.stream.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaStreamSynchronize(r.stream[rank]));
    }
    if (!eager)
        capture();
}

Comms::~Comms() {
    for (cudaGraphExec_t g : graphs)
        cudaGraphExecDestroy(g);
}

void Comms::capture() {
    std::vector<cudaGraph_t> captured(r.stream.size());

    for (size_t rank = 0; rank < r.stream.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaStreamBeginCapture(r.stream[rank], cudaStreamCaptureModeThreadLocal));
    }
    enqueue(r, f, count, times);
    /* all captures must have ended before a graph may be instantiated */
    for (size_t rank = 0; rank < r.stream.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaStreamEndCapture(r.stream[rank], &captured[rank]));
    }
    graphs.resize(r.stream.size());
    for (size_t rank = 0; rank < r.stream.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaGraphInstantiate(&graphs[rank], captured[rank], 0));
        cudaGraphDestroy(captured[rank]);
    }
}

static void record(Ring &r, std::vector<cudaEvent_t> &events) {
    for (size_t rank = 0; rank < events.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaEventRecord(events[rank], r.stream[rank]));
    }
}
static void launch(Ring &r, const Comms &comms) {
    if (comms.graphs.empty()) {
        record(r, r.start);
        enqueue(r, comms.f, comms.count, comms.times);
        record(r, r.stop);
        return;
    }
    for (size_t rank = 0; rank < comms.graphs.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaEventRecord(r.start[rank], r.stream[rank]));
        CAL_CUDA(cudaGraphLaunch(comms.graphs[rank], r.stream[rank]));
        CAL_CUDA(cudaEventRecord(r.stop[rank], r.stream[rank]));
    }
}
static double finish_s(Ring &r) {
    float ms = 0;

    for (size_t rank = 0; rank < r.stop.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaEventSynchronize(r.stop[rank]));
        CAL_CUDA(cudaEventElapsedTime(&ms, r.start[rank], r.stop[rank]));
    }
    return ms * 1e-3;
}
static double collective_s(Ring &r, Collective f, size_t bytes, bool eager) {
    int times = static_cast<int>(std::max(2.0, std::min(100.0, 3e-3 / (1e-5 + bytes / 3e11))));
    Comms comms(r, f, bytes, times, eager);
    std::vector<double> t;

    for (int i = 0; i < 6; i++) {
        launch(r, comms);
        double s = finish_s(r) / times;
        if (i) /* the first warms up */
            t.push_back(s);
    }
    return median(t);
}

/* Without a graph, from one host thread for all GPUs: what small sizes cost then. */
static double eager_s(Ring &r, Collective f, size_t bytes, double *host_s) {
    const int times = 50;
    std::vector<double> t, host;

    for (int i = 0; i < 6; i++) {
        double begin = now_s();
        enqueue(r, f, bytes / ELEMENT_BYTES, times);
        double queued = now_s();
        for (int rank = 0; rank < r.n; rank++) {
            r.benches[static_cast<size_t>(rank)]->use();
            CAL_CUDA(cudaStreamSynchronize(r.stream[static_cast<size_t>(rank)]));
        }
        if (i) {
            t.push_back((now_s() - begin) / times);
            host.push_back((queued - begin) / times);
        }
    }
    *host_s = median(host) / r.n;
    return median(t);
}

static const size_t most_bytes = size_t{1} << 30;

static void run_comm(Context &c) {
    nccl_open();
    Ring r(c.benches, most_bytes);
    int version = 0;

    nccl.ncclGetVersion(&version);
    c.report.head("nccl", std::to_string(version));
    c.report.head("world", std::to_string(r.n));
    for (const auto &x : collectives) {
        fprintf(stderr, "%s\n", x.name);
        c.report.flush();
        for (size_t bytes = 8; bytes <= most_bytes && !c.out_of_time(); bytes *= 2)
            c.report.other(text("{\"op\":\"%s\",\"bytes\":%zu,\"time_s\":%.4g}", x.name, bytes,
                                collective_s(r, x.run, bytes, c.options.eager)));
    }
    for (size_t i = 0; i < STEP_COLLECTIVES; i++)
        for (size_t bytes : {size_t{1024}, size_t{1} << 20}) {
            double host, all = eager_s(r, collectives[i].run, bytes, &host);
            c.report.other(text("{\"op\":\"%s_eager\",\"bytes\":%zu,\"time_s\":%.4g,"
                                "\"host_s_per_rank\":%.4g}",
                                collectives[i].name, bytes, all, host));
        }
}
static size_t plan_comm() {
    return sizeof collectives / sizeof *collectives * 28 + 10;
}

/* clang-format off */
const Block comm_blocks[] = {
    {"comm", 40, 2, run_comm, plan_comm},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

/* ---- kernels that overlap collectives ---- */

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

/* Measures one kernel of `k` while the collectives of `comm` (if any) run, and these too. Both start
 * together; only the shorter of the two overlapped the other all the time. */
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
            /* graphs of both kinds hang if they run at once (NCCL 2.28, two GPUs, one host thread) */
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
