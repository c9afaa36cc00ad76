/* calibrate_cuda.cuh: what the files of `dtplan-calibrate-cuda` share.
 *
 * The program times kernels and collectives alone, never a training step, and writes what
 * hw/calibrate.h reads: {"gpu", "driver", ..., "rows": [...], "other": [...], "clocks": [...]}.
 * "rows" holds ops that hw/calibrate.h documents; "other" what it does not fit (launch times, kernels
 * that overlap collectives, collectives by size, load over time).
 *
 * How a kernel is timed. n launches go into a CUDA graph, over operands that rotate through more
 * memory than three times the L2 cache, so that no launch finds its operands there; the graph is
 * replayed and the median replay over n is the time of one kernel, the gap to the next included.
 * Operands are normal random numbers, since power, and with it the clock, depends on the bits.
 * Around the replays one stamp kernel reads the cycle counter of every SM and the global timer:
 * their ratio is the mean SM clock of exactly this measurement.
 *
 * Libraries (cuBLASLt, NCCL, NVML) are opened at run time: what is missing costs its blocks only.
 */
#ifndef DTP_RUNTIME_CUDA_CALIBRATE_CUH
#define DTP_RUNTIME_CUDA_CALIBRATE_CUH

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace cal {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
void check(cudaError_t e, const char *what);
#define CAL_CUDA(call) ::cal::check((call), #call)

double now_s(); /* monotonic */
double median(std::vector<double> v);
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum class Type { f32, tf32, f16, bf16, fp8 };
const char *type_name(Type t);
size_t type_bytes(Type t);

struct Options {
    std::string out = "-";
    double seconds = 300;    /* limit for all blocks together */
    double sustained_s = 20; /* duration of the GEMM under load */
    int gpus = 1;
    bool dry_run = false;
    bool eager = false; /* collectives without CUDA graphs */
    std::string only;   /* comma-separated names of blocks; empty: all */
};

/* The file is rewritten after each block, so that what was measured survives. */
class Report {
  public:
    explicit Report(const Options &o) : options(o) {
    }
    void head(const std::string &key, const std::string &json); /* json: the value as it stands */
    void row(const std::string &json);
    void other(const std::string &json);
    void clock(const std::string &json);
    void failed(const std::string &block, const std::string &why);
    void flush() const;
    size_t count() const {
        return rows.size() + others.size();
    }

  private:
    const Options &options;
    std::vector<std::string> heads, rows, others, clocks, failures;
};

struct Timing {
    double time_s, clock_mhz;
    int launches; /* launches in one replay */
};

/* One GPU: stream, operand memory, timing. */
class Bench {
  public:
    explicit Bench(int device);
    ~Bench();
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    const int device;
    int num_sms = 0;
    size_t l2_bytes = 0, pool_bytes = 0;
    cudaStream_t stream = nullptr;
    cudaDeviceProp properties{};

    void use() const;
    /* Lays out rotations of `footprint` bytes, filled with normal random numbers of a type (positive:
     * their magnitudes); how many there are. */
    int prepare(Type t, size_t footprint, bool positive = false);
    /* Operand that starts `slot` bytes into rotation i. */
    void *at(size_t footprint, int i, size_t slot) const;
    bool fits(size_t footprint) const {
        return footprint <= pool_bytes;
    }

    using Launch = std::function<void(int rotation)>; /* enqueues one kernel on `stream` */
    Timing measure(const Launch &launch, int nrotations, double target_s = 4e-3, int replays = 5);
    /* Measures the same without a graph, by `launches` launches in the stream. */
    Timing measure_stream(const Launch &launch, int nrotations, int launches, int replays = 5);
    cudaGraphExec_t capture(const Launch &launch, int nrotations, int launches);
    double replay_s(cudaGraphExec_t graph);

    /* The mean SM clock between two calls of stamp(0) and stamp(1); sync first. */
    void stamp(int which);
    double clock_mhz();

  private:
    char *pool = nullptr;
    unsigned long long *stamps = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr;
};

/* Each block gets this context. It must be done at `until_s`, on the clock of now_s(). */
struct Context {
    const Options &options;
    Report &report;
    std::vector<Bench *> &benches; /* one a GPU */
    double until_s;
    bool out_of_time() const {
        return now_s() > until_s;
    }
};
struct Block {
    const char *name;
    double share; /* share of the time */
    int gpus;
    void (*run)(Context &c);
    size_t (*planned)(); /* rows of a dry run */
};
extern const Block gemm_blocks[], kernel_blocks[], host_blocks[], comm_blocks[], overlap_blocks[],
    load_blocks[];

/* Order in which n items are measured: a fixed permutation, so that a block that runs out of time has
 * sampled all of its grid. */
std::vector<size_t> spread(size_t n);

/* ---- GEMM ---- */
enum class Pass { forward, dgrad, wgrad };
struct Shape {
    Pass pass;
    Type type;
    long m, n, k, batch;
    bool accumulate; /* C in fp32, added to */
};
size_t gemm_bytes(const Shape &s);
struct GemmPlan; /* descriptors and the algorithm that the library's heuristic puts first */
GemmPlan *gemm_open(const Shape &s);
void gemm_close(GemmPlan *p);
void gemm_run(GemmPlan *p, Bench &b, int rotation);
std::string gemm_version();

/* c = a + b in bf16, n elements: the elementwise kernel of the overlap block. */
void add_bf16(const void *a, const void *b, void *c, size_t n, cudaStream_t stream);

/* ---- clocks (NVML) ---- */
struct Sample {
    double at_s; /* time by now_s() */
    unsigned sm_mhz, memory_mhz, power_mw, celsius;
    unsigned long long reasons; /* NVML's clocks event reasons */
};
bool nvml_open(std::string *driver);
bool nvml_sample(int device, Sample *out);
double nvml_power_limit_w(int device);

} // namespace cal
#endif
