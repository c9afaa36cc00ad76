/* cuda.h: the CUDA device; internal to libdtplan_cuda.so.
 *
 * One process has one device. Host code is C (cuda_device.c, gemm.c, nccl_comm.c); kernels are in *.cu, each
 * behind a launcher that takes the arguments of the device table as they are. Launchers enqueue on
 * the compute stream and report nothing: launch errors are CUDA's last error and failures of other
 * libraries are c->failure, both found by check().
 *
 * Memory: the heap is one cudaMalloc of what the device has free less a margin (sharing.h) that context,
 * kernels and NCCL's buffers share. Reductions keep partial sums in c->scratch.
 */
#ifndef DTP_RUNTIME_CUDA_CUDA_H
#define DTP_RUNTIME_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "runtime/comm/comm.h"

enum { DTP_CUDA_MAX_MARKS = 1 << 17, DTP_CUDA_MAX_SMS = 256, DTP_CUDA_TICKETS = 1 << 14 };

struct dtp_cuda_gemms; /* gemm.c */
struct dtp_cuda_fused; /* attention_plans.c */
struct dtp_nccl;       /* nccl_comm.c */

/* Kernels of the attention: $DTPLAN_CUDA_ATTENTION. */
enum dtp_cuda_attention {
    DTP_CUDA_ATTENTION_AUTO,  /* cuDNN's where found, else our own */
    DTP_CUDA_ATTENTION_CUDNN, /* an error where not found */
    DTP_CUDA_ATTENTION_EXACT, /* likewise, and the same bits on each run */
    DTP_CUDA_ATTENTION_OWN,   /* attention.cu */
    DTP_CUDA_ATTENTION_SIMPLE /* its plain kernels */
};

struct dtp_cuda {
    struct dtp_dev dev;
    int index;   /* number of the GPU */
    int sharers; /* ranks on it */
    int num_sms; /* multiprocessors */
    void *base;  /* start of the heap */
    uint64_t size_bytes;
    cudaStream_t stream[DTP_NSTREAMS];
    cudaEvent_t event[DTP_DEV_EVENTS]; /* NULL until used */
    cudaEvent_t *mark;                 /* [DTP_CUDA_MAX_MARKS], likewise */
    cudaEvent_t zero;                  /* at zero_ns of the host's clock */
    int64_t zero_ns;
    int num_marks; /* marks of this step */
    bool marked;   /* marks were recorded since zero and nobody has read one yet */
    void *scratch;
    uint64_t scratch_bytes;
    unsigned
        *ticket; /* [DTP_CUDA_TICKETS] of reductions whose last block adds up; 0 between launches */
    void *ticks, *nvml;     /* sensors.cu */
    cudaGraphExec_t *graph; /* [DTP_DEV_GRAPHS]; NULL: none */
    char *staging;          /* pinned host memory for copy_in: two halves */
    cudaEvent_t staged[2];
    uint64_t staging_at;
    struct dtp_cuda_gemms *gemms;
    struct dtp_nccl *nccl; /* set while a communicator is open */
    double timeout_s;      /* limit for sync() without progress, with several ranks */
    bool sync_each;        /* DTPLAN_CUDA_SYNC: check() waits, so that errors name their action */
    enum dtp_cuda_attention attention;
    struct dtp_cuda_fused *fused; /* attention of cuDNN; NULL: our own */
    unsigned *reached; /* pinned; written by the GPU in the order of the compute stream */
    int (*write_value)(cudaStream_t, unsigned long long, unsigned, unsigned); /* NULL: no reach() */
    char failure[512]; /* first failure that is not CUDA's; "" none */
};

static inline struct dtp_cuda *dtp_cuda_of(struct dtp_dev *d) {
    return (struct dtp_cuda *)d;
}

static inline cudaStream_t dtp_cuda_compute(const struct dtp_cuda *c) {
    return c->stream[DTP_STREAM_COMPUTE];
}

/* Keeps the first. */
void dtp_cuda_fail(struct dtp_cuda *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dtp_cuda_note(struct dtp_cuda *c, cudaError_t e,
                   const char *what); /* likewise, if it failed */
/* The module exports these tables. */
#define DTP_EXPORT __attribute__((visibility("default")))
DTP_EXPORT const struct dtp_dev_ops *dtp_cuda_dev_ops(void);
DTP_EXPORT const struct dtp_comm_ops *dtp_cuda_comm_ops(void);
DTP_EXPORT extern const uint64_t dtp_cuda_table_bytes; /* DTP_TABLE_BYTES */
/* Opens one of several names of a shared library; NULL. */
void *dtp_cuda_library(const char *const *names);

/* gemm.c */
size_t dtp_cuda_gemm_version(const struct dtp_cuda *c);
int dtp_nccl_version(void); /* 0: not installed */
enum dtp_status dtp_cuda_gemm_open(struct dtp_arena *a, struct dtp_cuda *c, struct dtp_err *err);
void dtp_cuda_gemm_close(struct dtp_cuda *c);
void dtp_cuda_gemm(struct dtp_dev *d, const struct dtp_gemm_args *g);
/* nccl_comm.c: ends all of NCCL's kernels; true when NCCL itself reports an error */
void dtp_nccl_abort_all(struct dtp_nccl *n);
bool dtp_nccl_failed(struct dtp_nccl *n, char *text, size_t size);

/* sensors.cu */
void dtp_cuda_sensors_open(struct dtp_arena *a, struct dtp_cuda *c);
void dtp_cuda_tick(struct dtp_dev *d, int end);
double dtp_cuda_clock_hz(struct dtp_dev *d);
void dtp_cuda_load(struct dtp_dev *d, struct dtp_dev_load *out);
/* norm.cu */
void dtp_cuda_norm_forward(struct dtp_dev *d, const struct dtp_norm_args *n);
void dtp_cuda_norm_backward(struct dtp_dev *d, const struct dtp_norm_args *n);
void dtp_cuda_bias_backward(struct dtp_dev *d, void *dbias, const void *dy, const int64_t shape[2]);
/* cuda_device.c */
void dtp_cuda_sync(struct dtp_dev *d);
/* graph_memsets.cu: of a captured graph, before it is instantiated */
void dtp_cuda_replace_memsets(cudaGraph_t graph);
/* elementwise.cu */
void dtp_cuda_pause(struct dtp_dev *d, enum dtp_stream stream, double time_s);
void dtp_cuda_fill(struct dtp_dev *d, void *to, uint64_t bytes);
void dtp_cuda_rope(struct dtp_dev *d, const struct dtp_rope_args *r);
void dtp_cuda_act_forward(struct dtp_dev *d, const struct dtp_act_args *x);
void dtp_cuda_act_backward(struct dtp_dev *d, const struct dtp_act_args *x);
void dtp_cuda_bias_residual(struct dtp_dev *d, const struct dtp_residual_args *x);
void dtp_cuda_add(struct dtp_dev *d, void *to, const void *from, int64_t n, bool gradients);
void dtp_cuda_cast(struct dtp_dev *d, void *to, enum dtp_dtype to_type, const void *from,
                   enum dtp_dtype from_type, int64_t n);
/* adamw.cu */
void dtp_cuda_norm2(struct dtp_dev *d, const struct dtp_norm2_args *x);
void dtp_cuda_clip_scale(struct dtp_dev *d, float *scale, const float *norm2,
                         const struct dtp_clip *clip);
void dtp_cuda_adamw(struct dtp_dev *d, const struct dtp_adamw_hyper *h,
                    const struct dtp_adamw_tensor *t, int n);
/* loss.cu */
void dtp_cuda_loss_max(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cuda_loss_sum(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cuda_loss_mean(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cuda_loss_grad(struct dtp_dev *d, const struct dtp_loss_args *x);
void dtp_cuda_embed(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cuda_embed_backward(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cuda_position_add(struct dtp_dev *d, const struct dtp_embedding_args *x);
void dtp_cuda_position_backward(struct dtp_dev *d, const struct dtp_embedding_args *x);
/* attention_plans.c: cuDNN's. False: it has no kernel, take our own. */
enum dtp_status dtp_cuda_fused_open(struct dtp_arena *a, struct dtp_cuda *c, struct dtp_err *err);
void dtp_cuda_fused_close(struct dtp_cuda *c);
uint64_t dtp_cuda_fused_workspace_bytes(struct dtp_cuda *c, const struct dtp_attention_args *x);
bool dtp_cuda_fused_forward(struct dtp_cuda *c, const struct dtp_attention_args *x);
bool dtp_cuda_fused_backward(struct dtp_cuda *c, const struct dtp_attention_args *x);
/* attention.cu: tensor cores for bf16 and fp16 with head_dim 64, 80, 96, 128; else plain kernels */
uint64_t dtp_cuda_attention_saved_bytes(const struct dtp_dev *d,
                                        const struct dtp_attention_args *x);
uint64_t dtp_cuda_attention_workspace_bytes(const struct dtp_dev *d,
                                            const struct dtp_attention_args *x);
void dtp_cuda_attention_forward(struct dtp_dev *d, const struct dtp_attention_args *x);
void dtp_cuda_attention_backward(struct dtp_dev *d, const struct dtp_attention_args *x);

#endif
