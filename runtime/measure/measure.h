/* measure.h: times the runtime's device and communication tables alone, to calibrate this machine for predictions. It
 * measures neither a training step nor a plan.
 *
 * Kernels: one process per core, pinned like a rank, runs the same sweep as all others at the same time, so that
 * times are those of a busy machine (shared caches and memory). Each kernel is repeated on operands
 * that move through a pool, because in training another kernel wrote what it reads. The time
 * is the median of the repeats, and the least of these medians over several rounds at different times: a
 * disturbance seldom lasts, while the cost of cache misses is part of the kernel's time.
 *   gemm        forward, input gradient, weight gradient (adds) on a grid of m, n, k
 *   attention   forward, backward of one head on a grid of sequences, head sizes and query heads that
 *               share keys; with dropout again
 *   classes     elements/s of each enum dtp_kernel that the runtime uses; SwiGLU's time over GELU's
 *   gap         host time of one kernel: the call, and a tensor that is allocated and freed
 * Collectives: groups of n ranks, n = 2 .. nranks (divisors of it), use the communicator of forked ranks with sizes
 * from 64 B to 4 MiB, to which t = a + b sqrt(s) + c s is fitted (hw/fit_curve.h). With more ranks than cores the
 * ranks of a core take turns: the curve holds the time that one rank works, time x cores / ranks.
 * With `together` nranks / n groups run at once, so that a job of more ranks than cores is measured as such.
 * A p2p time is one way of a round trip of ranks 2 i and 2 i + 1.
 */
#ifndef DTP_RUNTIME_MEASURE_H
#define DTP_RUNTIME_MEASURE_H

#include "hw/collective.h"
#include "runtime/device/backend.h"

struct dtp_measure_options {
    const char *backend; /* "cpu" */
    int nranks;          /* largest group of the collectives; 0: none */
    bool together;       /* groups of each size fill nranks, as in a job of that many */
    int rounds;          /* rounds of the kernel sweep; the least time counts */
    int largest;         /* largest m, n, k in the grid */
    void (*progress)(void *context, const char *what);
    void *context;
};

/* This is what was measured of one kernel under long load. */
struct dtp_measured_load {
    char kernel[32];
    double busy;  /* share of the time that it would run at full clock; the rest is pauses */
    double flops; /* FLOPs of a call; 0: memory-bound */
    double bytes; /* a product's operands, each once, from memory */
    double alone_s, call_s; /* a call in a short burst; under load, with its rest */
    double alone_clock_hz, clock_hz, power_w;
    double rest_s, stretch_s; /* "after_rest": a stretch of calls after each rest */
};

enum { DTP_MEASURE_MAX_CURVES = 64, DTP_MEASURE_MAX_LOADS = 40 };
struct dtp_measured {
    int ncores;
    struct dtp_dev_about about; /* set by dtp_measure_device() alone */
    double launch_s;            /* host time of one kernel, likewise */
    struct dtp_time_table table[DTP_NTABLES];
    double elements_per_s[DTP_NKERNELS]; /* 0: the runtime has none */
    double gated_factor[DTP_NKERNELS];   /* activations: SwiGLU's time over GELU's */
    double latency_s[DTP_NKERNELS]; /* added to the time of the elements, by dtp_measure_device() */
    double copy_bytes_per_s;        /* large copy, read and written */
    double gap_s;
    /* extra time of a collective on a separate stream, over one on the stream of the kernels around it */
    double hop_s;
    double peer_gap_s; /* gap of kernels in a graph: with communicators, less without */
    struct dtp_dev_load limits;
    struct dtp_measured_load load[DTP_MEASURE_MAX_LOADS];
    int nloads;
    struct dtp_curve curve[DTP_MEASURE_MAX_CURVES];
    int ncurves;
    double seconds; /* duration of the measurement */
};
struct dtp_measure_options dtp_measure_default(void);

/* This grid is for a device that works through a queue (a GPU, or the CPU in tests). One process calls a kernel
 * repeatedly until it has taken a millisecond or so, timed by marks on its stream; short kernels are enqueued after
 * a pause, so that the host stays in front of the device. Operands hold numbers, and small ones move through more
 * memory than caches hold. The kernels are those of training, in dtype:
 *   gemm       tokens x width x width for forward and dgrad, width x width x tokens for wgrad; forward
 *              again with bias and GELU, dgrad with GELU's slope
 *   attention  forward, backward over sequence, head_dim and heads; with dropout again
 *   classes    seconds at `rows` by `cols`; elements/s at `class_rows` rows of `class_cols`
 *   launch     host time: four GEMMs to six kernels with the tensors that they write; as a graph where
 *              the device has graphs
 * The gap between kernels (gap_s, which the GPU file knows) is subtracted from the times.
 * Short kernels are in a graph if the device has graphs, as the executor's are.
 * Curves are measured for collectives of n = 2, 4, 8, ... nranks GPUs, in a graph of kernels as well, and for
 * transfers alone; also the extra time of a collective on a separate stream. */
struct dtp_measure_grid {
    enum dtp_dtype dtype;
    const int *tokens, *width, *seq, *head_dim, *heads; /* ascending, ended by 0 */
    const int *gelu_n, *gelu_k;                         /* products with GELU, likewise */
    const int *rows, *cols;                             /* sizes of the classes, likewise */
    int class_rows, class_cols; /* for long load; at least the largest of both lists */
    uint64_t memory_bytes,
        most_bytes;       /* the heap; most of one operand: larger products are scaled from
                                          the next smaller inner dimension */
    const int64_t *bytes; /* sizes of collectives, ended by 0 */
    double target_s, gap_s;
};
struct dtp_measure_grid dtp_measure_gpu_grid(void);
enum dtp_status dtp_measure_device(struct dtp_arena *a, const struct dtp_measure_options *o,
                                   const struct dtp_measure_grid *grid, struct dtp_measured *out,
                                   struct dtp_err *err);

/* Describes what a backend runs on; a separate process asks it. */
enum dtp_status dtp_measure_about(const char *backend, struct dtp_dev_about *out,
                                  struct dtp_err *err);

/* Returns DTP_EUNSUPPORTED for another backend than "cpu". */
enum dtp_status dtp_measure(struct dtp_arena *a, const struct dtp_measure_options *o,
                            struct dtp_measured *out, struct dtp_err *err);

/* ---- between the files of this module ---- */

enum { DTP_MEASURE_MAX_TIMES = 8192 };
#define DTP_MEASURE_DROPOUT 0.1 /* the time does not depend on its value */
/* Rank 0 of the forked processes writes it. */
struct dtp_measure_board {
    double time_s[DTP_MEASURE_MAX_TIMES];
    double clock[DTP_MEASURE_MAX_TIMES]; /* products: share of the highest; else 1 */
    struct dtp_dev_load limits;
    struct dtp_measured_load load[DTP_MEASURE_MAX_LOADS];
    int nloads;
    struct dtp_dev_about about;
};
enum dtp_status dtp_measure_device_comm(struct dtp_arena *a, const struct dtp_measure_options *o,
                                        const struct dtp_measure_grid *grid,
                                        struct dtp_measured *out, struct dtp_err *err);
enum dtp_status dtp_measure_collectives(struct dtp_arena *a, const struct dtp_measure_options *o,
                                        struct dtp_measured *out, struct dtp_err *err);

#endif
