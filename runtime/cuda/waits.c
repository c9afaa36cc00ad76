/* Order of the streams, marks of the trace, and waits: what the device has ended, is at, and fails with. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/cuda/cuda.h"
#include "sim/base/units.h"

static const double ns_per_ms = DTP_GIGA * DTP_MILLI;

/* dtp_stream_names, which is in the program */
static const char *const stream_names[DTP_NSTREAMS] = {"compute", "tp",     "dp",    "send F",
                                                       "recv F",  "send B", "recv B"};

/* What an error is found in: the executor names the action, where reached() is known. */
static const char *found_in(const struct dtp_cuda *c) {
    return c->write_value ? "CUDA"
                          : "CUDA, in this action or one before (DTPLAN_CUDA_SYNC=1 tells)";
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * (int64_t)DTP_GIGA + t.tv_nsec;
}

void dtp_cuda_event_record(struct dtp_dev *d, enum dtp_stream stream, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (!c->event[event])
        dtp_cuda_note(c, cudaEventCreateWithFlags(&c->event[event], cudaEventDisableTiming),
                      "event");
    dtp_cuda_note(c, cudaEventRecord(c->event[event], c->stream[stream]), "event");
}

void dtp_cuda_event_wait(struct dtp_dev *d, enum dtp_stream stream, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->event[event])
        dtp_cuda_note(c, cudaStreamWaitEvent(c->stream[stream], c->event[event], 0), "event");
}

bool dtp_cuda_event_done(struct dtp_dev *d, int event) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (!c->event[event])
        return true;
    dtp_cuda_note(c, cudaGetLastError(), found_in(c));
    bool busy = cudaEventQuery(c->event[event]) == cudaErrorNotReady;
    if (busy)
        (void)cudaGetLastError(); /* "not ready" is kept as an error, too */
    return !busy;
}

/* Marks of this step that have passed: they tell a long step from one that is stuck. */
static int marks_passed(const struct dtp_cuda *c) {
    int passed = 0;
    for (int i = 0; i < c->num_marks; i++)
        passed += c->mark[i] && cudaEventQuery(c->mark[i]) != cudaErrorNotReady;
    (void)cudaGetLastError(); /* "not ready" is kept as an error, too */
    return passed;
}

struct wait {
    const char *stream;
    int64_t since_ns; /* of the last progress that was seen */
    int passed;
};

/* True when the wait is over: NCCL failed, or nothing has moved for the time-out. */
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
    /* the others first: NCCL may wait for what does not come */
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
    (void)cudaGetLastError(); /* "not ready" is kept as an error, too */
    dtp_cuda_note(c, e != cudaErrorNotReady ? e : cudaStreamSynchronize(c->stream[stream]),
                  found_in(c));
}

void dtp_cuda_sync(struct dtp_dev *d) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    for (int s = 0; s < DTP_NSTREAMS; s++)
        wait_stream(c, s);
    if (c->marked) /* marks of a step are still to be read against the zero before it */
        return;
    dtp_cuda_note(c, cudaEventRecord(c->zero, dtp_cuda_compute(c)), "event");
    dtp_cuda_note(c, cudaEventSynchronize(c->zero), "event");
    c->zero_ns = now_ns();
}

enum dtp_status dtp_cuda_check(struct dtp_dev *d, struct dtp_err *err) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->sync_each)
        for (int s = 0; s < DTP_NSTREAMS; s++)
            wait_stream(c, s);
    dtp_cuda_note(c, cudaGetLastError(), found_in(c));
    return c->failure[0] ? dtp_fail(err, DTP_ENO, "%s", c->failure) : DTP_OK;
}

void dtp_cuda_mark(struct dtp_dev *d, enum dtp_stream stream, int mark) {
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

int64_t dtp_cuda_mark_ns(struct dtp_dev *d, int mark) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    float ms = 0;
    c->marked = false;
    if (mark < 0 || mark >= DTP_CUDA_MAX_MARKS || !c->mark[mark])
        return 0;
    dtp_cuda_note(c, cudaEventElapsedTime(&ms, c->zero, c->mark[mark]), "event");
    return c->zero_ns + (int64_t)((double)ms * ns_per_ms);
}

/* ---- where the device is: a number that it writes into memory of the host, which outlives its errors ---- */

void dtp_cuda_waits_open(struct dtp_cuda *c) {
    static const char *const names[] = {"libcuda.so.1", NULL};
    void *driver = dtp_cuda_library(names);
    void *found = driver ? dlsym(driver, "cuStreamWriteValue32_v2") : NULL;
    if (found && cudaHostAlloc((void **)&c->reached, sizeof *c->reached, cudaHostAllocDefault) ==
                     cudaSuccess) {
        *c->reached = 0;
        memcpy(&c->write_value, &found, sizeof found); /* ISO C has no cast between the two */
    }
}

void dtp_cuda_reach(struct dtp_dev *d, int number) {
    enum { NO_MEMORY_BARRIER = 1 }; /* of cuda.h: nobody reads anything else by it */
    struct dtp_cuda *c = dtp_cuda_of(d);
    if (c->write_value)
        (void)c->write_value(dtp_cuda_compute(c), (uintptr_t)c->reached, (unsigned)number,
                             NO_MEMORY_BARRIER);
}

int dtp_cuda_reached(struct dtp_dev *d) {
    const struct dtp_cuda *c = dtp_cuda_of(d);
    return c->write_value ? (int)*(const volatile unsigned *)c->reached : -1;
}
