/* attention_cudnn.h: causal attention as graphs of cuDNN, and their execution plans; internal to libdtplan_cuda.so.
 *
 *   forward   S = scale Q K^T, masked; P = softmax(S); O = P V; kept: the log of the sum of exp(S), which
 *             is what the kernels of attention.cu keep, so that either backward reads it
 *   backward  with delta = rowsum(dO O): dS = P (dO V^T - delta) scale; dQ = dS K, dK = dS^T Q, dV = P^T dO
 * The operations are those that cuDNN's fused engines recognise as a pattern (cuDNN developer guide,
 * "Fused Flash Attention"), in its order.
 *
 * cuDNN is opened at run time. A graph is described tensor by tensor and operation by operation; cuDNN's
 * heuristic then names kernels for the whole of it, and the first that can be built is the plan. Plans
 * are built for the properties of a device, not for an opened one, so that they can be built (and
 * tested) where there is no GPU: that needs cuDNN 9.8. Calls on a graph may be chained without checks: the first
 * failure clears graph->good, and nothing more is done.
 */
#ifndef DTP_RUNTIME_CUDA_ATTENTION_CUDNN_H
#define DTP_RUNTIME_CUDA_ATTENTION_CUDNN_H

#include <cudnn.h>

#include "runtime/device/backend.h"

#define DTP_CUDNN_FUNCTIONS(X)                                                                     \
    X(cudnnGetVersion)                                                                             \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

struct dtp_cudnn_api {
#define DTP_CUDNN_MEMBER(f) __typeof__(&(f)) f;
    DTP_CUDNN_FUNCTIONS(DTP_CUDNN_MEMBER)
    cudnnBackendDescriptor_t device; /* properties */
};

enum {
    DTP_CUDNN_DESCRIPTORS = 128,
    DTP_CUDNN_OPERATIONS = 32,
    DTP_CUDNN_POINTERS = 16,
    DTP_CUDNN_PACKS = 256
};

struct dtp_cudnn_graph {
    const struct dtp_cudnn_api *api;
    cudnnBackendDescriptor_t made[DTP_CUDNN_DESCRIPTORS]; /* all, destroyed with the plan */
    int nmade;
    cudnnBackendDescriptor_t operation[DTP_CUDNN_OPERATIONS];
    int noperations;
    int64_t next_id; /* id for a tensor that only the graph knows */
    bool good;
};

/* Arguments of a plan as cuDNN takes them. Steps repeat the same addresses, and making one costs more host
 * time than a launch. */
struct dtp_cudnn_pack {
    cudnnBackendDescriptor_t made; /* NULL: not used yet */
    void *pointers[DTP_CUDNN_POINTERS];
    void *workspace;
};

struct dtp_cudnn_plan {
    struct dtp_cudnn_graph graph;
    /* by a hash of the addresses; a newcomer replaces */
    struct dtp_cudnn_pack pack[DTP_CUDNN_PACKS];
    cudnnBackendDescriptor_t plan;
    int64_t nconfigs; /* kernels that the heuristic named */
    int64_t workspace_bytes;
    float number;       /* the caller's, for an argument by value */
    bool deterministic; /* by cuDNN's own notes */
};

/* Loads cuDNN's functions; DTP_EUNSUPPORTED, saying what is missing. Opens no device. */
enum dtp_status dtp_cudnn_load(struct dtp_cudnn_api *api, struct dtp_err *err);
/* The device that plans are for: number `index`, or what a JSON text says (as cuDNN writes it). */
enum dtp_status dtp_cudnn_device(struct dtp_cudnn_api *api, int index, const char *json,
                                 struct dtp_err *err);
void dtp_cudnn_unload(struct dtp_cudnn_api *api);

void dtp_cudnn_destroy(struct dtp_cudnn_plan *p);

enum dtp_attention_pass {
    DTP_ATTENTION_FORWARD,
    DTP_ATTENTION_BACKWARD, /* dQ is summed by atomic additions: not the same bits on each run */
    DTP_ATTENTION_BACKWARD_EXACT, /* the same bits on each run; larger workspace */
    DTP_ATTENTION_PASSES
};

/* x: shapes and strides only. dtype: DTP_BF16 or DTP_FP16. False: cuDNN has no kernel for it. Destroy p
 * in either case. */
bool dtp_attention_plan(struct dtp_cudnn_plan *p, const struct dtp_cudnn_api *api,
                        const struct dtp_attention_args *x, enum dtp_dtype dtype,
                        enum dtp_attention_pass pass);
/* In the backward pass x->workspace holds delta, the sums of dQ and cuDNN's workspace at these offsets. */
struct dtp_attention_space {
    uint64_t delta, dq, plan, bytes; /* offsets; the whole */
};
struct dtp_attention_space dtp_attention_space(const struct dtp_cudnn_plan *p,
                                               const struct dtp_attention_args *x,
                                               enum dtp_attention_pass pass);
bool dtp_attention_run(struct dtp_cudnn_plan *p, cudnnHandle_t handle,
                       const struct dtp_attention_args *x, enum dtp_attention_pass pass);

#endif
