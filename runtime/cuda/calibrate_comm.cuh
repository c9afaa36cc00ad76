/* calibrate_comm.cuh: what the blocks of dtplan-calibrate-cuda that need several GPUs share: communicators
 * and buffers, the collectives, and their times. Sizes are those of nccl-tests: all_gather, reduce_scatter
 * and all_to_all name the whole buffer of a rank, of which it sends or receives (n - 1) / n. */
#ifndef DTP_RUNTIME_CUDA_CALIBRATE_COMM_CUH
#define DTP_RUNTIME_CUDA_CALIBRATE_COMM_CUH

#include <nccl.h>

#include "runtime/cuda/calibrate.cuh"

namespace cal {

void nccl_open();

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
/* The first STEP_COLLECTIVES are those of training steps: timed one by one and beside kernels, too. */
enum { STEP_COLLECTIVES = 5 };
extern const NamedCollective collectives[];

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

void launch(Ring &r, const Comms &comms);
/* Waits; the time of the last rank that was started, which waited for none. */
double finish_s(Ring &r);
/* Time of one collective among several. */
double collective_s(Ring &r, Collective f, size_t bytes, bool eager);

} // namespace cal
#endif
