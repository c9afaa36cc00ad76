/* backend.h: the table of operations of a device, and how to open one.
 *
 * The executor and the transformer call a device through one table; the CPU's is built in, CUDA's is
 * in a shared object (libdtplan_cuda.so) that is opened at run time and exports
 *     const struct dtp_dev_ops *dtp_cuda_dev_ops(void);
 *     const struct dtp_comm_ops *dtp_cuda_comm_ops(void);          (comm.h)
 *     const uint64_t dtp_cuda_table_bytes;                         DTP_TABLE_BYTES of its build
 * The module is looked for at $DTPLAN_CUDA, in the program's folder, in ../lib, and where the loader looks.
 *
 * Conventions, the same for every implementation:
 *   - Matrices are row-major. Activations are [rows, features] with row = position * batch +
 *     sequence ("s b h"), so that sequence parallelism splits rows into contiguous parts.
 *   - `void *` tensors hold elements of dev->dtype (fp32, bf16, fp16); `void *` gradients of weights
 *     hold dev->grad_dtype; `float *` is fp32 on any device. Tensor addresses come from dev->heap.
 *     On the CPU dtype and grad_dtype are fp32.
 *   - Every operation is enqueued on the compute stream and returns at once (CPU: is done). Errors
 *     stick and are reported by check(), which the executor calls after each action.
 *   - Streams run on their own; event_record / event_wait order them. On the CPU communication is
 *     done when its call returns and events are no operations.
 *   - No operation allocates. What an operation needs beyond its arguments is a workspace that the
 *     executor allocates once, from workspace_bytes().
 *   - Weight gradients (dweight, dbias, dtable, GEMM with accumulate) ADD to what is there.
 *   - All results are deterministic: the same call gives the same bytes. One exception: the backward of
 *     cuDNN's attention does not promise it (runtime/cuda/README.md says how to get one that does).
 */
#ifndef DTP_RUNTIME_DEVICE_H
#define DTP_RUNTIME_DEVICE_H

#include <stdbool.h>

#include "hw/device.h"
#include "runtime/device/dropout.h"
#include "runtime/device/tensor_heap.h"

struct dtp_dev_ops;

enum dtp_stream {
    DTP_STREAM_COMPUTE,
    DTP_STREAM_TP, /* a lane of traces, and for measuring: a rank has these collectives on compute */
    DTP_STREAM_DP,
    DTP_STREAM_SEND_F, /* p2p: one stream per direction and end, so that none waits for another */
    DTP_STREAM_RECV_F,
    DTP_STREAM_SEND_B,
    DTP_STREAM_RECV_B,
    DTP_NSTREAMS
};
extern const char *const dtp_stream_names[]; /* "compute", "tp", ..., NULL */

/* Events are 0 .. DTP_DEV_EVENTS - 1 and are recorded again when their number comes round; marks of one
 * step are 0 .. DTP_DEV_MARKS - 1; graphs are 0 .. DTP_DEV_GRAPHS - 1. */
enum { DTP_DEV_EVENTS = 4096, DTP_DEV_MARKS = 120000, DTP_DEV_GRAPHS = 4096 };

struct dtp_dev_config {
    int index;             /* local rank: core to pin to, or GPU */
    int nlocal;            /* ranks on this host */
    uint64_t memory_bytes; /* heap size; 0: what the device has (CPU: its share of the host's) */
    enum dtp_dtype dtype, grad_dtype;
};

/* Implementations embed this as their first member. */
struct dtp_dev {
    const struct dtp_dev_ops *ops;
    struct dtp_heap *heap;
    enum dtp_dtype dtype, grad_dtype;
    struct dtp_comm *comm;     /* set by the executor; for CUDA's abort path */
    struct dtp_graphs *graphs; /* graphs.h; NULL: none */
    /* set by the executor: called now and then while the device waits; NULL: nobody listens */
    void (*waiting)(void *listener);
    void *listener;
};

/* Arguments of operations are compared byte by byte (graphs.h): none has bytes that no member covers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* C[m,n] = op(A)[m,k] op(B)[k,n] (+ C) (+ bias[n]). ld: elements between rows as stored. With GELU (tanh
 * form), C contiguous and no accumulation: before gets the product (+ bias) and C its GELU; or C is the
 * product times the slope of GELU at slope_at[m,n], without bias. */
struct dtp_gemm_args {
    const void *a, *b;
    void *c;
    bool ta, tb;     /* A stored [k,m]; B stored [n,k] */
    bool accumulate; /* C += */
    bool c_gradient; /* C holds grad_dtype (a weight gradient) */
    char unused[4];
    int64_t m, n, k; /* sizes of the product */
    int64_t lda, ldb, ldc;
    const void *bias;     /* [n] or NULL; not together with accumulate */
    void *before;         /* or NULL */
    const void *slope_at; /* or NULL */
};

/* y = (x - mean) * rstd * weight + bias over each row; rms: mean = 0, no bias. */
struct dtp_norm_args {
    bool rms;
    char unused[7];
    int64_t rows, cols;
    double epsilon;
    const void *x, *weight, *bias; /* bias NULL: none */
    void *y;
    float *mean, *rstd; /* [rows], written by forward, read by backward; mean NULL when rms */
    /* backward: dx = gradient through the norm + residual (NULL: 0) */
    const void *dy, *residual;
    void *dx, *dweight, *dbias; /* dbias NULL: none */
};

/* Rotates pairs (i, i + head_dim/2) of each head by the angle position * theta^(-2i/head_dim), in
 * place. position = row / batch. */
struct dtp_rope_args {
    void *x; /* first of the heads in row 0 */
    int64_t rows, batch, heads, head_dim, row_stride;
    double theta;
    bool inverse; /* backward */
    char unused[7];
};

/* Causal attention, grouped queries. q[row, head, d]: q + row * q_stride + head * head_dim, and so on;
 * row = position * batch + sequence. `saved` is what the implementation keeps for the backward
 * (attention_saved_bytes(): probabilities on the CPU, log-sum-exp in fused kernels). With dropout of the
 * probabilities, all heads being first_head .. of the model. */
struct dtp_attention_args {
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t qkv_stride,
        out_stride; /* elements between rows of q, k, v (and dq, dk, dv); of out, dout */
    const void *q, *k, *v;
    void *out; /* forward: written; backward: read */
    void *saved;
    void *workspace; /* workspace_bytes() */
    const void *dout;
    void *dq, *dk, *dv; /* written */
    struct dtp_dropout dropout;
    int64_t first_head;
};

/* out = dropout(x + bias) + residual; bias [cols], residual: NULL: 0; out may be x. Row r is row
 * first_row + r of the microbatch, = position * batch + sequence. */
struct dtp_residual_args {
    void *out;
    const void *x, *bias, *residual;
    int64_t rows, cols, first_row, batch;
    struct dtp_dropout dropout;
};

enum dtp_act { DTP_ACT_FN_GELU, DTP_ACT_FN_SWIGLU, DTP_ACT_FN_RELU }; /* GELU: tanh form */

/* GELU, ReLU: x[rows, cols] -> y[rows, cols]. SwiGLU: x[rows, 2 cols] = gate | up -> silu(gate) * up. */
struct dtp_act_args {
    enum dtp_act fn;
    int unused;
    int64_t rows, cols;
    const void *x;
    void *y;
    const void *dy;
    void *dx;
};

/* Vocabulary-parallel cross-entropy, in steps with all-reduces between them:
 *   loss_max:  max[r] = max over valid columns                           -> all-reduce max
 *              (it may leave in sum and target what loss_sum then uses)
 *   loss_sum:  sum[r] = sum of exp(l - max), target[r] = l[target] - max or 0 -> all-reduce sum of both
 *   loss_mean: *loss += scale * sum over rows of (log(sum) - target)
 *   loss_grad: logits <- (exp(l - max) / sum - 1[column = target]) * scale, 0 in padded columns
 * targets are global token ids; this rank's columns are first .. first + valid - 1. */
struct dtp_loss_args {
    void *logits;
    int64_t rows, cols, valid, first;
    const int32_t *targets; /* [rows], on the device */
    float *max, *sum, *target;
    float *loss; /* one number */
    double scale;
};

/* Rows of a table by token id; ids outside first .. first + valid - 1 give 0 (another rank has them).
 * position_*: out[row] += table[first_position + row / batch]. */
struct dtp_embedding_args {
    const int32_t *ids; /* [rows], on the device; NULL for positions */
    int64_t rows, cols, valid, first, batch;
    const void *table;
    void *out;
    const void *dout;
    void *dtable;
};

#pragma GCC diagnostic pop

struct dtp_adamw_hyper {
    double lr, beta1, beta2, epsilon, weight_decay;
    int64_t step;            /* from 1 */
    const float *grad_scale; /* on the device: clipping; NULL: 1; 0: nothing is changed */
};
/* How gradients that were multiplied by loss_scale become those of the step. */
struct dtp_clip {
    double max_norm;   /* 0: no clipping */
    double loss_scale; /* a power of two; 1: none */
    bool skip;         /* 0 when the norm is infinite or not a number */
};
/* *sum += the squared norms of runs of gradients, each times its factor; what no run needs is 0. */
enum { DTP_NORM2_RUNS = 128 };
struct dtp_norm2_run {
    const void *grad;
    int64_t n;
    double factor;
};
struct dtp_norm2_args {
    float *sum;
    int64_t nruns;
    struct dtp_norm2_run run[DTP_NORM2_RUNS];
};
/* One contiguous run of parameters. master NULL: the parameter itself is fp32. */
struct dtp_adamw_tensor {
    void *param;
    float *master, *m, *v;
    const void *grad;
    int64_t n;
    bool decay;
};

/* The numbers of a run belong to this hardware and software. */
struct dtp_dev_about {
    char card[96];      /* "NVIDIA H100 80GB HBM3" */
    char versions[160]; /* versions of driver and libraries */
    int ndevices;       /* devices of this kind of back end on this host */
};

/* 0: not known. */
struct dtp_dev_load {
    double energy_j; /* since the driver's start */
    double power_limit_w, most_clock_hz;
};

struct dtp_dev_ops {
    const char *name; /* "cpu", "cuda" */
    enum dtp_status (*open)(struct dtp_arena *a, const struct dtp_dev_config *config,
                            struct dtp_dev **out, struct dtp_err *err);
    void (*close)(struct dtp_dev *d);
    void (*about)(struct dtp_dev *d, struct dtp_dev_about *out);

    /* bytes: what the heap may hand out lies in dev->heap; these move data */
    /* from_host may be changed as soon as the call returns */
    void (*copy_in)(struct dtp_dev *d, void *to, const void *from_host, uint64_t bytes);
    void (*copy_out)(struct dtp_dev *d, void *to_host, const void *from,
                     uint64_t bytes); /* waits */
    void (*copy)(struct dtp_dev *d, void *to, const void *from, uint64_t bytes);
    void (*zero)(struct dtp_dev *d, void *to, uint64_t bytes);
    /* n elements; to and from may differ in type */
    void (*cast)(struct dtp_dev *d, void *to, enum dtp_dtype to_type, const void *from,
                 enum dtp_dtype from_type, int64_t n);

    void (*event_record)(struct dtp_dev *d, enum dtp_stream stream, int event);
    void (*event_wait)(struct dtp_dev *d, enum dtp_stream stream, int event);
    bool (*event_done)(struct dtp_dev *d, int event);
    void (*sync)(struct dtp_dev *d);
    /* These tell how far the device is: reach() enqueues a number on the compute stream, and reached() returns the
     * last number that the device came to, also after it has failed; -1: not known. They are NULL if the device
     * does each operation at once. */
    void (*reach)(struct dtp_dev *d, int number);
    int (*reached)(struct dtp_dev *d);
    /* First error since the last call, asynchronous ones included. */
    enum dtp_status (*check)(struct dtp_dev *d, struct dtp_err *err);
    /* Device memory in use beyond the heap (context, libraries); 0 on the CPU. */
    uint64_t (*overhead_bytes)(struct dtp_dev *d);
    /* Seconds of the device's clock for events of the trace, or the host's clock on the CPU; traces
     * of CUDA resolve them after the step. mark: an index that the caller chooses, 0 .. */
    void (*mark)(struct dtp_dev *d, enum dtp_stream stream, int mark);
    int64_t (*mark_ns)(struct dtp_dev *d, int mark); /* on the host's monotonic clock */

    /* These read the device's sensors; they are NULL if it has none. tick() marks the start (0) or the end (1) of a
     * stretch on the compute stream; clock_hz() returns the mean clock over the last stretch, once all is done. */
    void (*tick)(struct dtp_dev *d, int end);
    double (*clock_hz)(struct dtp_dev *d);
    void (*load)(struct dtp_dev *d, struct dtp_dev_load *out);

    /* CUDA graphs; NULL where there are none. Between record(true) and record(false) what is enqueued on
     * the compute stream is kept instead of run, in place of what was kept under that number;
     * record(false): how many kernels that was, 0: nothing was kept. record(true): 0: there is no
     * recording (and nothing to end). replay() enqueues all of it, with the same arguments. */
    int (*record)(struct dtp_dev *d, int graph, bool on);
    void (*replay)(struct dtp_dev *d, int graph);
    void (*forget_graphs)(struct dtp_dev *d);

    /* The stream is busy for this long, and does nothing: shadow ranks (comm.h). */
    void (*pause)(struct dtp_dev *d, enum dtp_stream stream, double time_s);
    /* Small numbers of either sign, whatever dtype they are read as; bytes: a multiple of 4. */
    void (*fill)(struct dtp_dev *d, void *to, uint64_t bytes);

    void (*gemm)(struct dtp_dev *d, const struct dtp_gemm_args *g);
    void (*norm_forward)(struct dtp_dev *d, const struct dtp_norm_args *n);
    void (*norm_backward)(struct dtp_dev *d, const struct dtp_norm_args *n);
    void (*rope)(struct dtp_dev *d, const struct dtp_rope_args *r);
    uint64_t (*attention_saved_bytes)(const struct dtp_dev *d, const struct dtp_attention_args *x);
    uint64_t (*attention_workspace_bytes)(const struct dtp_dev *d,
                                          const struct dtp_attention_args *x);
    void (*attention_forward)(struct dtp_dev *d, const struct dtp_attention_args *x);
    void (*attention_backward)(struct dtp_dev *d, const struct dtp_attention_args *x);
    void (*act_forward)(struct dtp_dev *d, const struct dtp_act_args *x);
    void (*act_backward)(struct dtp_dev *d, const struct dtp_act_args *x);
    void (*loss_max)(struct dtp_dev *d, const struct dtp_loss_args *x);
    void (*loss_sum)(struct dtp_dev *d, const struct dtp_loss_args *x);
    void (*loss_mean)(struct dtp_dev *d, const struct dtp_loss_args *x);
    void (*loss_grad)(struct dtp_dev *d, const struct dtp_loss_args *x);
    void (*embed)(struct dtp_dev *d, const struct dtp_embedding_args *x);
    void (*embed_backward)(struct dtp_dev *d, const struct dtp_embedding_args *x);
    void (*position_add)(struct dtp_dev *d, const struct dtp_embedding_args *x);
    void (*position_backward)(struct dtp_dev *d, const struct dtp_embedding_args *x);
    /* also the backward of its dropout, without bias and residual */
    void (*bias_residual)(struct dtp_dev *d, const struct dtp_residual_args *x);
    /* dbias[cols] += column sums of dy */
    void (*bias_backward)(struct dtp_dev *d, void *dbias, const void *dy, const int64_t shape[2]);
    void (*add)(struct dtp_dev *d, void *to, const void *from, int64_t n, bool gradients);
    void (*norm2)(struct dtp_dev *d, const struct dtp_norm2_args *x);
    /* *scale = min(1, max_norm / norm) / loss_scale, norm = sqrt(*norm2) / loss_scale */
    void (*clip_scale)(struct dtp_dev *d, float *scale, const float *norm2,
                       const struct dtp_clip *clip);
    void (*adamw)(struct dtp_dev *d, const struct dtp_adamw_hyper *h,
                  const struct dtp_adamw_tensor *t, int n);
};

/* Two bf16 numbers, evenly spread over -2^-5 .. 2^-5; also one fp32, or two fp16 below 2. Few bits would
 * stay the same in numbers of one magnitude, and a GPU takes less power on them than on activations. */
static inline uint32_t dtp_dev_fill_word(uint64_t i) {
    uint32_t x = (uint32_t)i * 2654435761U; /* Knuth's multiplicative hash */
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    uint32_t word = 0x3c803c80U | (x & 0x807f807fU);
    for (uint32_t half = 0; half < 32; half += 16) /* halve it as often as coins show heads */
        for (uint32_t coin = 7; coin < 15 && x >> half >> coin & 1; coin++)
            word -= 0x80U << half;
    return word;
}

/* backend: "cpu" or "cuda". The table of a backend; DTP_EUNSUPPORTED, naming what is missing, when its
 * module cannot be opened. */
enum dtp_status dtp_dev_find(const char *backend, const struct dtp_dev_ops **out,
                             struct dtp_err *err);
const struct dtp_dev_ops *dtp_cpu_dev_ops(void);
/* The CPU's table; DTP_EUNSUPPORTED without a library for its matrix products, which it opens. */
enum dtp_status dtp_cpu_dev_find(const struct dtp_dev_ops **out, struct dtp_err *err);

#endif
