/* Graphs of what is enqueued on the compute stream. */
#include "runtime/cuda/cuda.h"

static void forget(struct dtp_cuda *c, int graph) {
    if (c->graph[graph])
        (void)cudaGraphExecDestroy(c->graph[graph]);
    c->graph[graph] = NULL;
}

/* Kernels of what was captured; 0: it cannot be kept. */
static int keep(struct dtp_cuda *c, int graph, cudaGraph_t captured) {
    size_t n = 0;
    dtp_cuda_replace_memsets(captured);
    if (cudaGraphGetNodes(captured, NULL, &n) != cudaSuccess || n == 0 ||
        cudaGraphInstantiate(&c->graph[graph], captured, 0) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller does without */
        c->graph[graph] = NULL;
        return 0;
    }
    return (int)n;
}

int dtp_cuda_record(struct dtp_dev *d, int graph, bool on) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    cudaGraph_t captured = NULL;
    if (on) {
        forget(c, graph);
        dtp_cuda_note(c,
                      cudaStreamBeginCapture(dtp_cuda_compute(c), cudaStreamCaptureModeThreadLocal),
                      "graph");
        return 1;
    }
    if (cudaStreamEndCapture(dtp_cuda_compute(c), &captured) != cudaSuccess || !captured) {
        (void)cudaGetLastError();
        return 0;
    }
    int kernels = keep(c, graph, captured);
    (void)cudaGraphDestroy(captured);
    return kernels;
}

void dtp_cuda_replay(struct dtp_dev *d, int graph) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->graph[graph])
        dtp_cuda_note(c, cudaGraphLaunch(c->graph[graph], dtp_cuda_compute(c)), "graph");
}

void dtp_cuda_forget_graphs(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    for (int i = 0; i < DTP_DEV_GRAPHS; i++)
        forget(c, i);
}
