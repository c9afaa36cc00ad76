/* cudnn.h: graphs of operations for cuDNN's backend API, and their execution plans; internal to
 * libdtplan_cuda.so.
 *
 * cuDNN is opened at run time. A graph is described tensor by tensor and operation by operation; cuDNN's
 * heuristic then names kernels for the whole of it, and the first that can be built is the plan. Plans
 * are built for the properties of a device, not for an opened one, so that they can be built (and
 * tested) where there is no GPU: needs cuDNN 9.8.
 *
 * Calls on a graph may be chained without checks: the first failure clears graph->good, and nothing more
 * is done.
 */
#ifndef DTP_RUNTIME_CUDA_CUDNN_H
#define DTP_RUNTIME_CUDA_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include <cudnn.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

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
    int64_t next_id; /* of a tensor that only the graph knows */
    bool good;
};

/* id 0: virtual, it exists within the graph only. by_value: one number, given by the host. */
struct dtp_cudnn_tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t dims[4], strides[4];
    bool by_value;
};

/* A pointwise operation: y = mode(x, b), or t ? x : b. b, t NULL: not used. axis: of GEN_INDEX. */
struct dtp_cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    int64_t axis;
    cudnnBackendDescriptor_t x, b, t, y;
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

void dtp_cudnn_graph_start(struct dtp_cudnn_graph *g, const struct dtp_cudnn_api *api);
cudnnBackendDescriptor_t dtp_cudnn_tensor(struct dtp_cudnn_graph *g,
                                          const struct dtp_cudnn_tensor *t);
void dtp_cudnn_matmul(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t a,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c);
void dtp_cudnn_pointwise(struct dtp_cudnn_graph *g, const struct dtp_cudnn_pointwise *p);
void dtp_cudnn_reduce(struct dtp_cudnn_graph *g, cudnnReduceTensorOp_t op,
                      cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);
void dtp_cudnn_reshape(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t x,
                       cudnnBackendDescriptor_t y);
/* Builds p->plan from p->graph; false: cuDNN has no kernel for it. */
bool dtp_cudnn_build(struct dtp_cudnn_plan *p, bool deterministic);
void dtp_cudnn_destroy(struct dtp_cudnn_plan *p);
/* Enqueues the plan: tensors by id, host numbers by address, which must stay theirs as long as the plan. The
 * same ids in each run of a plan. */
struct dtp_cudnn_run {
    const int64_t *ids;
    void *const *pointers;
    int n; /* DTP_CUDNN_POINTERS at most */
    void *workspace;
};
bool dtp_cudnn_execute(struct dtp_cudnn_plan *p, cudnnHandle_t handle,
                       const struct dtp_cudnn_run *run);

#endif
