/* NCCL, opened at run time; collectives by size over the GPUs of one process. */
#include <dlfcn.h>

#include <algorithm>
#include <exception>

#include "runtime/cuda/calibrate_comm.cuh"

namespace cal {

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

void nccl_open() {
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
const NamedCollective collectives[] = {
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
void launch(Ring &r, const Comms &comms) {
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
double finish_s(Ring &r) {
    float ms = 0;

    for (size_t rank = 0; rank < r.stop.size(); rank++) {
        r.benches[rank]->use();
        CAL_CUDA(cudaEventSynchronize(r.stop[rank]));
        CAL_CUDA(cudaEventElapsedTime(&ms, r.start[rank], r.stop[rank]));
    }
    return ms * 1e-3;
}
double collective_s(Ring &r, Collective f, size_t bytes, bool eager) {
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

} // namespace cal
