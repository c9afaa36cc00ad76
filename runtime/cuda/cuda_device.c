/* The CUDA device is implemented here: opening, memory, the order of its streams, marks of the trace, waits, graphs of
 * what is enqueued on the compute stream, and the table. */
#include "runtime/cuda/cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cuda/sharing.h"
#include "sim/base/units.h"

enum { MAX_BLOCKS = 1 << 16, STAGING_HALF_BYTES = 4 << 20, SCRATCH_BYTES = 64 << 20 };

void *dtp_cuda_library(const char *const *names) {
    void *found = NULL;
    for (; *names && !found; names++)
        found = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return found;
}

void dtp_cuda_fail(struct dtp_cuda *c, const char *format, ...) {
    if (c->failure[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(c->failure, sizeof c->failure, format, args);
    va_end(args);
}

void dtp_cuda_note(struct dtp_cuda *c, cudaError_t e, const char *what) {
    if (e != cudaSuccess)
        dtp_cuda_fail(c, "%s: %s", what, cudaGetErrorString(e));
}

/* ---- waits: what the device has ended, is at, and fails with ---- */

static const double ns_per_ms = DTP_GIGA * DTP_MILLI;

/* These repeat dtp_stream_names, which is in the program and out of reach here. */
static const char *const stream_names[DTP_NSTREAMS] = {"compute", "tp",     "dp",    "send F",
                                                       "recv F",  "send B", "recv B"};

/* Says where an error was found; the executor names the action if reached() works. */
static const char *found_in(const struct dtp_cuda *c) {
    return c->write_value ? "CUDA"
                          : "CUDA, in this action or one before (DTPLAN_CUDA_SYNC=1 tells)";
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * (int64_t)DTP_GIGA + t.tv_nsec;
}

static void cuda_event_record(struct dtp_dev *d, enum dtp_stream stream, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (!c->event[event])
        dtp_cuda_note(c, cudaEventCreateWithFlags(&c->event[event], cudaEventDisableTiming),
                      "event");
    dtp_cuda_note(c, cudaEventRecord(c->event[event], c->stream[stream]), "event");
}

static void cuda_event_wait(struct dtp_dev *d, enum dtp_stream stream, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->event[event])
        dtp_cuda_note(c, cudaStreamWaitEvent(c->stream[stream], c->event[event], 0), "event");
}

static bool cuda_event_done(struct dtp_dev *d, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (!c->event[event])
        return true;
    dtp_cuda_note(c, cudaGetLastError(), found_in(c));
    bool busy = cudaEventQuery(c->event[event]) == cudaErrorNotReady;
    if (busy)
        (void)cudaGetLastError(); /* this clears "not ready", which CUDA keeps as an error too */
    return !busy;
}

/* Counts the marks of this step that have passed: they tell a long step from one that hangs. */
static int marks_passed(const struct dtp_cuda *c) {
    int passed = 0;
    for (int i = 0; i < c->num_marks; i++)
        passed += c->mark[i] && cudaEventQuery(c->mark[i]) != cudaErrorNotReady;
    (void)cudaGetLastError(); /* this clears "not ready", which CUDA keeps as an error too */
    return passed;
}

struct wait {
    const char *stream;
    int64_t since_ns; /* time of the last progress that was seen */
    int passed;
};

/* Returns true if the wait must end: NCCL failed, or there was no progress for the time-out. */
static bool give_up(struct dtp_cuda *c, struct wait *w) {
    char text[sizeof c->failure];
    double waited_s = (double)(now_ns() - w->since_ns) / (double)DTP_GIGA;
    if (c->dev.waiting)
        c->dev.waiting(c->dev.listener);
    if (!c->nccl)
        return false;
    bool failed = dtp_nccl_failed(c->nccl, text, sizeof text);
    if (!failed && waited_s <= c->timeout_s)
        return false;
    int passed = failed ? 0 : marks_passed(c);
    if (passed > w->passed) {
        w->passed = passed;
        w->since_ns = now_ns();
        return false;
    }
    if (!failed && c->dev.comm)
        c->dev.comm->ops->hang(c->dev.comm, waited_s, text, sizeof text);
    else if (!failed)
        snprintf(text, sizeof text, "waited %.1f s for the %s stream", waited_s, w->stream);
    dtp_cuda_fail(c, "%s", text);
    /* the others are told first: NCCL may wait for messages that never come */
    if (c->dev.comm)
        c->dev.comm->ops->abort(c->dev.comm, c->failure);
    dtp_nccl_abort_all(c->nccl);
    return true;
}

static void wait_stream(struct dtp_cuda *c, int stream) {
    enum { LOOK_EVERY = 4096 };
    struct wait w = {.stream = stream_names[stream], .since_ns = now_ns()};
    cudaError_t e;
    dtp_cuda_note(c, cudaGetLastError(), found_in(c));
    for (int i = 1; (e = cudaStreamQuery(c->stream[stream])) == cudaErrorNotReady; i++)
        if (i % LOOK_EVERY == 0 && give_up(c, &w))
            break;
    (void)cudaGetLastError(); /* this clears "not ready", which CUDA keeps as an error too */
    dtp_cuda_note(c, e != cudaErrorNotReady ? e : cudaStreamSynchronize(c->stream[stream]),
                  found_in(c));
}

void dtp_cuda_sync(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    for (int s = 0; s < DTP_NSTREAMS; s++)
        wait_stream(c, s);
    if (c->marked) /* unread marks of a step still refer to the present zero */
        return;
    dtp_cuda_note(c, cudaEventRecord(c->zero, dtp_cuda_compute(c)), "event");
    dtp_cuda_note(c, cudaEventSynchronize(c->zero), "event");
    c->zero_ns = now_ns();
}

static enum dtp_status cuda_check(struct dtp_dev *d, struct dtp_err *err) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->sync_each)
        for (int s = 0; s < DTP_NSTREAMS; s++)
            wait_stream(c, s);
    dtp_cuda_note(c, cudaGetLastError(), found_in(c));
    return c->failure[0] ? dtp_fail(err, DTP_ENO, "%s", c->failure) : DTP_OK;
}

static void cuda_mark(struct dtp_dev *d, enum dtp_stream stream, int mark) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (mark < 0 || mark >= DTP_CUDA_MAX_MARKS)
        return;
    if (!c->marked)
        c->num_marks = 0;
    c->marked = true;
    c->num_marks = mark >= c->num_marks ? mark + 1 : c->num_marks;
    if (!c->mark[mark])
        dtp_cuda_note(c, cudaEventCreate(&c->mark[mark]), "event");
    dtp_cuda_note(c, cudaEventRecord(c->mark[mark], c->stream[stream]), "event");
}

static int64_t cuda_mark_ns(struct dtp_dev *d, int mark) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    float ms = 0;
    c->marked = false;
    if (mark < 0 || mark >= DTP_CUDA_MAX_MARKS || !c->mark[mark])
        return 0;
    dtp_cuda_note(c, cudaEventElapsedTime(&ms, c->zero, c->mark[mark]), "event");
    return c->zero_ns + (int64_t)((double)ms * ns_per_ms);
}

/* ---- progress of the device: it writes a number into memory of the host, which outlives its errors ---- */

static void waits_open(struct dtp_cuda *c) {
    static const char *const names[] = {"libcuda.so.1", NULL};
    void *driver = dtp_cuda_library(names);
    void *found = driver ? dlsym(driver, "cuStreamWriteValue32_v2") : NULL;
    if (found && cudaHostAlloc((void **)&c->reached, sizeof *c->reached, cudaHostAllocDefault) ==
                     cudaSuccess) {
        *c->reached = 0;
        memcpy(&c->write_value, &found, sizeof found); /* ISO C has no cast between the two */
    }
}

static void cuda_reach(struct dtp_dev *d, int number) {
    enum { NO_MEMORY_BARRIER = 1 }; /* a flag of cuda.h: no other data depends on it */
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->write_value)
        (void)c->write_value(dtp_cuda_compute(c), (uintptr_t)c->reached, (unsigned)number,
                             NO_MEMORY_BARRIER);
}

static int cuda_reached(struct dtp_dev *d) {
    const struct dtp_cuda *c = dtp_cuda_of(d);
    return c->write_value ? (int)*(const volatile unsigned *)c->reached : -1;
}

/* ---- graphs ---- */

static void forget(struct dtp_cuda *c, int graph) {
    if (c->graph[graph])
        (void)cudaGraphExecDestroy(c->graph[graph]);
    c->graph[graph] = NULL;
}

/* Keeps a captured graph and returns the number of its kernels; 0 if it cannot be kept. */
static int keep(struct dtp_cuda *c, int graph, cudaGraph_t captured) {
    size_t n = 0;
    dtp_cuda_replace_memsets(captured);
    if (cudaGraphGetNodes(captured, NULL, &n) != cudaSuccess || n == 0 ||
        cudaGraphInstantiate(&c->graph[graph], captured, 0) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller runs without the graph */
        c->graph[graph] = NULL;
        return 0;
    }
    return (int)n;
}

static int cuda_record(struct dtp_dev *d, int graph, bool on) {
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

static void cuda_replay(struct dtp_dev *d, int graph) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->graph[graph])
        dtp_cuda_note(c, cudaGraphLaunch(c->graph[graph], dtp_cuda_compute(c)), "graph");
}

static void cuda_forget_graphs(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    for (int i = 0; i < DTP_DEV_GRAPHS; i++)
        forget(c, i);
}

/* ---- opening ---- */

static enum dtp_status cuda_error(cudaError_t e, const char *what, struct dtp_err *err) {
    if (e == cudaSuccess)
        return DTP_OK;
    enum dtp_status status = e == cudaErrorMemoryAllocation ? DTP_ENOMEM
                             : e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver
                                 ? DTP_EUNSUPPORTED
                                 : DTP_ENO;
    return dtp_fail(err, status, "%s: %s", what, cudaGetErrorString(e));
}

#define TRY_CUDA(call) DTP_TRY(cuda_error((call), #call, err))

static enum dtp_status select_gpu(struct dtp_cuda *c, const struct dtp_dev_config *config,
                                  struct dtp_err *err) {
    int ngpus = 0;
    cudaError_t e = cudaGetDeviceCount(&ngpus);
    if (e != cudaSuccess || ngpus == 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda finds no GPU: %s",
                        cudaGetErrorString(e));
    DTP_TRY(dtp_cuda_read_sharers(getenv("DTPLAN_CUDA_RANKS_PER_GPU"), &c->sharers, err));
    c->index = config->index / c->sharers;
    if (c->index >= ngpus)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "backend cuda needs a GPU for each rank: this host has %d, a rank asks "
                        "for number %d",
                        ngpus, c->index);
    TRY_CUDA(cudaSetDevice(c->index));
    TRY_CUDA(cudaDeviceGetAttribute(&c->num_sms, cudaDevAttrMultiProcessorCount, c->index));
    return DTP_OK;
}

static enum dtp_status open_streams(struct dtp_cuda *c, struct dtp_err *err) {
    int least, greatest;
    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int s = 0; s < DTP_NSTREAMS; s++) /* transfers have priority, since others wait for them */
        TRY_CUDA(cudaStreamCreateWithPriority(&c->stream[s], cudaStreamNonBlocking,
                                              s == DTP_STREAM_COMPUTE ? least : greatest));
    TRY_CUDA(cudaEventCreate(&c->zero));
    for (int half = 0; half < 2; half++)
        TRY_CUDA(cudaEventCreateWithFlags(&c->staged[half], cudaEventDisableTiming));
    return DTP_OK;
}

static enum dtp_status open_memory(struct dtp_arena *a, struct dtp_cuda *c,
                                   const struct dtp_dev_config *config, struct dtp_err *err) {
    size_t free_bytes, total_bytes;
    TRY_CUDA(
        cudaHostAlloc((void **)&c->staging, 2 * (size_t)STAGING_HALF_BYTES, cudaHostAllocDefault));
    c->scratch_bytes = SCRATCH_BYTES;
    TRY_CUDA(cudaMalloc(&c->scratch, SCRATCH_BYTES));
    const size_t tickets_bytes = DTP_CUDA_TICKETS * sizeof *c->ticket;
    TRY_CUDA(cudaMalloc((void **)&c->ticket, tickets_bytes));
    TRY_CUDA(cudaMemset(c->ticket, 0, tickets_bytes));
    dtp_cuda_sensors_open(a, c);
    waits_open(c);
    DTP_TRY(dtp_cuda_gemm_open(a, c, err));
    DTP_TRY(dtp_cuda_fused_open(a, c, err));
    TRY_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    c->size_bytes = dtp_cuda_heap_bytes(free_bytes, total_bytes, c->sharers, config->nlocal);
    if (config->memory_bytes && config->memory_bytes < c->size_bytes)
        c->size_bytes = config->memory_bytes;
    TRY_CUDA(cudaMalloc(&c->base, (size_t)c->size_bytes));
    c->dev.heap = dtp_heap_create(a, c->base, c->size_bytes, MAX_BLOCKS);
    return DTP_OK;
}

static enum dtp_status cuda_open(struct dtp_arena *a, const struct dtp_dev_config *config,
                                 struct dtp_dev **out, struct dtp_err *err) {
    if (config->dtype != DTP_BF16 && config->dtype != DTP_FP16 && config->dtype != DTP_FP32)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the cuda backend computes in bf16, fp16 or fp32");
    if (config->grad_dtype != DTP_FP32)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the cuda backend keeps gradients in fp32");
    struct dtp_cuda *c = DTP_NEW(a, struct dtp_cuda, 1);
    *c = (struct dtp_cuda){.dev = {.ops = dtp_cuda_dev_ops(),
                                   .dtype = config->dtype,
                                   .grad_dtype = config->grad_dtype}};
    c->sync_each = getenv("DTPLAN_CUDA_SYNC") != NULL;
    /* a hardware queue for each stream: kernels of NCCL that wait must not hold up others */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    c->mark = DTP_NEW(a, cudaEvent_t, DTP_CUDA_MAX_MARKS);
    c->graph = DTP_NEW(a, cudaGraphExec_t, DTP_DEV_GRAPHS);
    DTP_TRY(select_gpu(c, config, err));
    DTP_TRY(open_streams(c, err));
    DTP_TRY(open_memory(a, c, config, err));
    *out = &c->dev;
    dtp_cuda_sync(&c->dev);
    return DTP_OK;
}

static void cuda_close(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    dtp_cuda_fused_close(c);
    cuda_forget_graphs(d);
    for (int i = 0; i < DTP_CUDA_MAX_MARKS && c->mark[i]; i++)
        (void)cudaEventDestroy(c->mark[i]);
    for (int i = 0; i < DTP_DEV_EVENTS; i++)
        if (c->event[i])
            (void)cudaEventDestroy(c->event[i]);
    for (int i = 0; i < 2; i++)
        (void)cudaEventDestroy(c->staged[i]);
    (void)cudaEventDestroy(c->zero);
    for (int s = 0; s < DTP_NSTREAMS; s++)
        (void)cudaStreamDestroy(c->stream[s]);
    dtp_cuda_gemm_close(c);
    (void)cudaFree(c->base);
    (void)cudaFree(c->scratch);
    (void)cudaFree(c->ticket);
    (void)cudaFree(c->ticks);
    (void)cudaFreeHost(c->staging);
    (void)cudaFreeHost(c->reached);
}

/* Reads the version of the kernel module, "580.159.04", or writes "?". */
static void read_driver(char *out, size_t size) {
    char line[256] = "";
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    snprintf(out, size, "?");
    if (!f)
        return;
    if (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "  ");
        for (; at && *at; at++)
            if (*at >= '0' && *at <= '9' && at[-1] == ' ')
                break;
        if (at && *at)
            snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
    }
    (void)fclose(f);
}

static void cuda_about(struct dtp_dev *d, struct dtp_dev_about *out) {
    const struct dtp_cuda *c = dtp_cuda_of(d);
    struct cudaDeviceProp prop;
    char driver[64];
    int runtime = 0, nccl = dtp_nccl_version(), major = 1000, minor = 10;
    size_t lt = dtp_cuda_gemm_version(c);
    bool known = cudaGetDeviceProperties(&prop, c->index) == cudaSuccess;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetDeviceCount(&out->ndevices);
    read_driver(driver, sizeof driver);
    snprintf(out->card, sizeof out->card, "%.95s", known ? prop.name : "?");
    snprintf(out->versions, sizeof out->versions,
             "driver %s, CUDA %d.%d, cuBLASLt %zu, NCCL %d.%d.%d", driver, runtime / major,
             runtime % major / minor, lt, nccl / (major * minor),
             nccl / (major / minor) % (major / minor), nccl % (major / minor));
}

/* ---- data movement ---- */

/* Copies through pinned memory, so that the host goes on at once; each half is reused when the device has read it. */
static void cuda_copy_in(struct dtp_dev *d, void *to, const void *from_host, uint64_t bytes) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    for (uint64_t done = 0; done < bytes;) {
        uint64_t half = c->staging_at / STAGING_HALF_BYTES, in = c->staging_at % STAGING_HALF_BYTES;
        uint64_t part = bytes - done, room = STAGING_HALF_BYTES - in;
        part = part < room ? part : room;
        if (in == 0)
            dtp_cuda_note(c, cudaEventSynchronize(c->staged[half]), "copy to the GPU");
        memcpy(c->staging + c->staging_at, (const char *)from_host + done, (size_t)part);
        dtp_cuda_note(c,
                      cudaMemcpyAsync((char *)to + done, c->staging + c->staging_at, (size_t)part,
                                      cudaMemcpyHostToDevice, dtp_cuda_compute(c)),
                      "copy to the GPU");
        if (part == room)
            dtp_cuda_note(c, cudaEventRecord(c->staged[half], dtp_cuda_compute(c)),
                          "copy to the GPU");
        c->staging_at = (c->staging_at + part) % (2 * (uint64_t)STAGING_HALF_BYTES);
        done += part;
    }
}

static void cuda_copy_out(struct dtp_dev *d, void *to_host, const void *from, uint64_t bytes) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    dtp_cuda_note(
        c,
        cudaMemcpyAsync(to_host, from, (size_t)bytes, cudaMemcpyDeviceToHost, dtp_cuda_compute(c)),
        "copy from the GPU");
    dtp_cuda_note(c, cudaStreamSynchronize(dtp_cuda_compute(c)), "copy from the GPU");
}

static void cuda_copy(struct dtp_dev *d, void *to, const void *from, uint64_t bytes) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    dtp_cuda_note(
        c, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, dtp_cuda_compute(c)),
        "copy");
}

static void cuda_zero(struct dtp_dev *d, void *to, uint64_t bytes) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    dtp_cuda_note(c, cudaMemsetAsync(to, 0, (size_t)bytes, dtp_cuda_compute(c)), "zero");
}

/* ---- the table ---- */

static uint64_t cuda_overhead_bytes(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    size_t free_bytes, total_bytes;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        return 0;
    return dtp_cuda_beside_bytes(free_bytes, total_bytes, c->sharers, c->size_bytes);
}

static const struct dtp_dev_ops cuda_ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .about = cuda_about,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .cast = dtp_cuda_cast,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_done = cuda_event_done,
    .sync = dtp_cuda_sync,
    .reach = cuda_reach,
    .reached = cuda_reached,
    .check = cuda_check,
    .overhead_bytes = cuda_overhead_bytes,
    .mark = cuda_mark,
    .mark_ns = cuda_mark_ns,
    .tick = dtp_cuda_tick,
    .clock_hz = dtp_cuda_clock_hz,
    .load = dtp_cuda_load,
    .record = cuda_record,
    .replay = cuda_replay,
    .forget_graphs = cuda_forget_graphs,
    .pause = dtp_cuda_pause,
    .fill = dtp_cuda_fill,
    .gemm = dtp_cuda_gemm,
    .norm_forward = dtp_cuda_norm_forward,
    .norm_backward = dtp_cuda_norm_backward,
    .rope = dtp_cuda_rope,
    .attention_saved_bytes = dtp_cuda_attention_saved_bytes,
    .attention_workspace_bytes = dtp_cuda_attention_workspace_bytes,
    .attention_forward = dtp_cuda_attention_forward,
    .attention_backward = dtp_cuda_attention_backward,
    .act_forward = dtp_cuda_act_forward,
    .act_backward = dtp_cuda_act_backward,
    .loss_max = dtp_cuda_loss_max,
    .loss_sum = dtp_cuda_loss_sum,
    .loss_mean = dtp_cuda_loss_mean,
    .loss_grad = dtp_cuda_loss_grad,
    .embed = dtp_cuda_embed,
    .embed_backward = dtp_cuda_embed_backward,
    .position_add = dtp_cuda_position_add,
    .position_backward = dtp_cuda_position_backward,
    .bias_residual = dtp_cuda_bias_residual,
    .bias_backward = dtp_cuda_bias_backward,
    .add = dtp_cuda_add,
    .norm2 = dtp_cuda_norm2,
    .clip_scale = dtp_cuda_clip_scale,
    .adamw = dtp_cuda_adamw,
};

const uint64_t dtp_cuda_table_bytes = DTP_TABLE_BYTES;

const struct dtp_dev_ops *dtp_cuda_dev_ops(void) {
    return &cuda_ops;
}
