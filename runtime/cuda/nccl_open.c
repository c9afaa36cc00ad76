/* Finds NCCL, opens it, and ends its communicators.
 *
 * Collectives on the compute stream may be recorded in graphs (runtime/graphs.h). NCCL (2.28, its
 * strongstream.cc, enqueue.cc, init.cc) then
 * - orders graphs and other enqueued work by an event node for each collective. This is switched off, because the
 *   extra branches of the graph cost time and protect nothing: our compute stream orders both, and NCCL's work on
 *   the host, which the stream would not order, exists only for groups that span hosts, which no graph holds.
 * - registers the buffers with the other ranks, which then have to record at the same time. This is switched off.
 * - ends a communicator, also by an abort, only when no graph holds a collective of it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cuda/nccl_internal.h"
#include "runtime/cuda/sharing.h"

static const char *const libraries[] = {"libnccl.so.2", "libnccl.so",
                                        "/usr/local/cuda/lib64/libnccl.so.2", NULL};

/* Opens $DTPLAN_NCCL, or else the library that the loader finds. */
static void *open_library(void) {
    const char *const given[] = {getenv("DTPLAN_NCCL"), NULL};
    return dtp_cuda_library(given[0] ? given : libraries);
}

int dtp_nccl_version(void) {
    void *library = open_library();
    ncclResult_t (*get)(int *) = NULL;
    void *found = library ? dlsym(library, "ncclGetVersion") : NULL;
    int version = 0;
    memcpy(&get, &found, sizeof found);
    if (get)
        (void)get(&version);
    return version;
}

/* If several ranks of a communicator share one GPU (sharing.h), NCCL has to be told; each then takes one channel
 * only, as they share the multiprocessors and memory too. */
static enum dtp_status share(const struct dtp_cuda *c, struct dtp_err *err) {
    enum { MAJOR = 10000, MINOR = 100 };
    int version = dtp_nccl_version();
    if (c->sharers == 1)
        return DTP_OK;
    if (version < DTP_NCCL_SHARES)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "backend cuda: %d ranks on a GPU need NCCL 2.30 or newer, this is %d.%d.%d",
                        c->sharers, version / MAJOR, version / MINOR % MINOR, version % MINOR);
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    (void)setenv("NCCL_MAX_CTAS", "1", 0);
    return DTP_OK;
}

enum dtp_status dtp_nccl_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                              struct dtp_comm **out, struct dtp_err *err) {
    struct dtp_nccl *n = DTP_NEW(a, struct dtp_nccl, 1);
    n->cuda = dtp_cuda_of(config->device);
    n->host = config->host;
    n->arena = a;
    *out = &n->comm;
    n->comm =
        (struct dtp_comm){.ops = dtp_cuda_comm_ops(), .rank = config->rank, .size = config->size};
    n->cuda->timeout_s = config->timeout_s;
    if (config->size == 1)
        return DTP_OK; /* one rank runs without NCCL installed */
    (void)setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
    (void)setenv("NCCL_GRAPH_REGISTER", "0", 0);
    /* a rank is pinned to one core, which NCCL's threads would share with it: let them use the cores near the GPU */
    (void)setenv("NCCL_IGNORE_CPU_AFFINITY", "1", 0);
    void *library = open_library();
    if (!library)
        return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda needs NCCL for %d ranks: %s",
                        config->size, dlerror());
    DTP_TRY(share(n->cuda, err));
#define NCCL_LOAD(f)                                                                               \
    {                                                                                              \
        void *found = dlsym(library, #f);                                                          \
        if (!found)                                                                                \
            return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda: NCCL lacks " #f);                \
        memcpy(&n->f, &found, sizeof found);                                                       \
    }
    NCCL_FUNCTIONS(NCCL_LOAD)
    n->cuda->nccl = n;
    return DTP_OK;
}

/* Threads that may outlive the arena of n call it here: the process has only one such function. */
static __typeof__(&ncclCommAbort) abort_comm;

static void *end_one(void *comm) {
    (void)abort_comm(comm);
    return NULL;
}

/* Returns true if all streams are idle within some seconds; false if not, or if the GPU has failed, after which
 * nothing ends. */
static bool drained(const struct dtp_cuda *c) {
    enum { LOOKS = 5000 };
    const struct timespec ms = {.tv_nsec = (long)(DTP_MILLI * DTP_GIGA)};
    for (int s = 0, i = 0; i < LOOKS; i++) {
        cudaError_t e = cudaSuccess;
        while (s < DTP_NSTREAMS && (e = cudaStreamQuery(c->stream[s])) == cudaSuccess)
            s++;
        (void)cudaGetLastError();
        if (e != cudaErrorNotReady)
            return e == cudaSuccess;
        (void)nanosleep(&ms, NULL);
    }
    return false;
}

/* Aborts each communicator in a separate thread. An abort stops the kernels at once, but returns only when the
 * graphs are gone, and these can be destroyed only when the kernels have stopped. Aborts that do not return are left
 * to the end of the process. */
void dtp_nccl_abort_all(struct dtp_nccl *n) {
    if (n->aborted)
        return;
    n->aborted = true;
    pthread_t thread[MAX_COMMS];
    int nthreads = 0;
    abort_comm = n->ncclCommAbort;
    for (int i = 0; i < n->nall; i++)
        nthreads += pthread_create(&thread[nthreads], NULL, end_one, n->all[i]) == 0;
    bool idle = drained(n->cuda);
    if (idle)
        n->cuda->dev.ops->forget_graphs(&n->cuda->dev);
    for (int i = 0; i < nthreads; i++)
        (void)(idle ? pthread_join(thread[i], NULL) : pthread_detach(thread[i]));
}

bool dtp_nccl_failed(struct dtp_nccl *n, char *text, size_t size) {
    for (int i = 0; i < n->nall && !n->aborted; i++) {
        ncclResult_t r = ncclSuccess;
        (void)n->ncclCommGetAsyncError(n->all[i], &r);
        if (r == ncclSuccess || r == ncclInProgress)
            continue;
        snprintf(text, size, "NCCL: %s", n->ncclGetErrorString(r));
        return true;
    }
    return false;
}

void dtp_nccl_close(struct dtp_comm *c) {
    struct dtp_nccl *n = (struct dtp_nccl *)c;
    bool failed = n->cuda->failure[0] != '\0';
    if (failed)
        dtp_nccl_abort_all(n);
    n->cuda->dev.ops->forget_graphs(&n->cuda->dev);
    for (int i = 0; i < n->nall && !n->aborted; i++)
        (void)n->ncclCommDestroy(n->all[i]);
    n->cuda->nccl = NULL;
}
