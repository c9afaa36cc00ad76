/* trace.h: a measured job in memory: ranks, lanes, events with times in whole nanoseconds.
 *
 * Every reader fills this one form. An event lies on a lane: a host thread, or a stream of a device.
 * Times are int64 nanoseconds from decimal text, never through a double (at 1.7e15 us a double has a
 * grid of 0.25 us); the absolute time of an event is base_ns + start_ns. Names are interned. A GPU
 * event knows the host call that launched it (by correlation id), a collective its size and group.
 *
 *     kernel, memcpy, memset   work on a device: the only kinds that make it busy
 *     call                     a runtime or driver call of the host; some launch device work
 *     op, annotation           host spans that frameworks record
 *     gpu annotation, sync     spans on a device that are no work
 *
 * What is dropped or repaired is counted in warnings, with the byte where it first happened. Memory:
 * 48 bytes an event; events come in blocks, so that nothing is copied while it grows.
 *
 *     struct dtp_trace t = {0};
 *     DTP_TRY(dtp_trace_load(a, paths, npaths, &options, &t, err));
 *     for (size_t i = 0; i < t.rank[0].nevents; i++) { ... dtp_trace_event(&t.rank[0], i) ... }
 */
#ifndef DTP_TRACES_FORMATS_TRACE_H
#define DTP_TRACES_FORMATS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "hw/collective.h"
#include "sim/base/arena.h"
#include "sim/base/status.h"
#include "traces/formats/intern.h"

#define DTP_TRACE_NONE UINT32_MAX
enum { DTP_TRACE_BLOCK = 1 << 14 };

enum dtp_trace_kind {
    DTP_TRACE_KERNEL,
    DTP_TRACE_MEMCPY,
    DTP_TRACE_MEMSET,
    DTP_TRACE_CALL,
    DTP_TRACE_OP,
    DTP_TRACE_ANNOTATION,
    DTP_TRACE_GPU_ANNOTATION,
    DTP_TRACE_SYNC,
    DTP_TRACE_OTHER
};

/* The name of device work tells its class: "nccl" (RCCL has the same names) is communication, Memcpy and
 * Memset are memory, all else computes. */
enum dtp_trace_class { DTP_CLASS_COMPUTE, DTP_CLASS_COMM, DTP_CLASS_MEMORY, DTP_NCLASSES };

enum dtp_comm_op {
    DTP_COMM_ALL_REDUCE,
    DTP_COMM_ALL_GATHER,
    DTP_COMM_REDUCE_SCATTER,
    DTP_COMM_ALL_TO_ALL,
    DTP_COMM_BROADCAST,
    DTP_COMM_REDUCE,
    DTP_COMM_SEND_RECV,
    DTP_COMM_BARRIER,
    DTP_COMM_UNKNOWN,
    DTP_NCOMM_OPS
};
extern const char *const dtp_comm_op_name[DTP_NCOMM_OPS];

struct dtp_trace_event {
    int64_t start_ns, dur_ns;
    uint64_t link;   /* correlation id; 0: none */
    uint32_t name;   /* index into names */
    uint32_t lane;   /* index into lanes */
    uint32_t comm;   /* index into comms, or DTP_TRACE_NONE */
    uint32_t launch; /* the event that launched this device work, or DTP_TRACE_NONE */
    uint32_t shape;  /* index into names: "[16,1,1][64,1,1]", grid and block of a kernel, or the
                        dimensions of an operator's inputs "[[8,4],[]]"; DTP_TRACE_NONE: not recorded */
    uint8_t kind;    /* enum dtp_trace_kind */
    uint8_t category;
    uint8_t class;  /* device work's enum dtp_trace_class */
    bool on_stream; /* the record names a stream, whatever its kind */
};

struct dtp_trace_lane {
    const char *pid, *tid; /* as in the file */
    bool is_device;
    int64_t device, stream; /* numbers of a device lane */
    uint64_t nwork;         /* kernels, copies and sets */
};

/* A record says this of a collective. Text is "" and numbers are 0 if it does not say. */
struct dtp_trace_comm {
    const char *collective, *group, *group_description, *group_ranks;
    uint64_t in_elements, out_elements, element_bytes, in_bytes;
    int group_size;
    int64_t seq, peer; /* -1: unknown */
};

struct dtp_trace_group {
    const char *name, *description;
    int size;
    const int *rank; /* [nranks] */
    size_t nranks;
};

struct dtp_trace_step {
    int64_t number;
    int64_t start_ns, dur_ns;
    const char *name;
};

/* X(name, what it means, followed by the count) */
#define DTP_TRACE_WARNINGS(X)                                                                      \
    X(NOT_FINITE, "NaN or infinite values dropped")                                                \
    X(BAD_TIME, "events dropped for a time that is no number")                                     \
    X(BAD_NAME, "names with invalid UTF-8 or control characters repaired")                         \
    X(BAD_ESCAPE, "unknown escapes in strings kept literally")                                     \
    X(NEGATIVE_DURATION, "negative durations taken as 0 (unfinished events)")                      \
    X(ZERO_TIME, "device events at time 0 dropped")                                                \
    X(BIG_ID, "correlation ids beyond 64 bits dropped, not linked")                                \
    X(BIG_INTEGER, "integers beyond 2^53 kept exactly")                                            \
    X(DUPLICATE_KEY, "duplicate keys, the last one taken")                                         \
    X(AMBIGUOUS_LINK, "correlation ids with several launches, the last before the work taken")     \
    X(NO_RANK, "files without a rank, numbered by their name or the first that is free")           \
    X(NO_LAUNCH, "device events whose launch is not in the trace")                                 \
    X(BEFORE_LAUNCH, "device events that start before their launch (clock skew)")                  \
    X(ORPHAN_FLOW, "flow ends on a device without a start")                                        \
    X(OVERLAP, "device events that overlap the one before on their stream")                        \
    X(UNFINISHED_GROUP, "ranks of the job without a file")                                         \
    X(UNMATCHED, "collectives that other ranks of the group do not have")                          \
    X(DANGLING, "dependencies on tasks that do not exist")

enum dtp_trace_warning {
#define X(name, text) DTP_WARN_##name,
    DTP_TRACE_WARNINGS(X)
#undef X
        DTP_NTRACE_WARNINGS
};
extern const char *const dtp_trace_warning_text[DTP_NTRACE_WARNINGS];

struct dtp_trace_warned {
    uint64_t count, first_byte; /* 0: not of one place */
};

struct dtp_trace_rank {
    struct dtp_arena *a;
    const char *file;
    int rank, world_size; /* -1: unknown */
    const char *backend, *device, *time_unit;
    bool has_base, decimal_us; /* times with a fraction */
    bool unlaunched;           /* no work has a launch: it belongs to the step in which it starts */
    int64_t base_ns;
    int64_t offset_ns;     /* to add so that clocks agree (align) */
    uint64_t device_bytes; /* memory of the device; 0: unknown */
    struct dtp_trace_event **block;
    size_t nevents, nblocks, blocks_capacity;
    struct dtp_trace_lane *lane;
    uint32_t nlanes;
    size_t lanes_capacity;
    struct dtp_trace_comm *comm;
    uint32_t ncomms;
    size_t comms_capacity;
    struct dtp_trace_group *group;
    size_t ngroups;
    struct dtp_trace_step *step; /* ProfilerStep annotations, by time */
    size_t nsteps, steps_capacity;
    struct dtp_intern *names, *categories;
    uint64_t *category_count; /* [256]; events without a category are counted as "None" */
    uint64_t phase_count[128];
    uint64_t raw_bytes, nrecords; /* the file's bytes unpacked, its events of any phase */
    const char **top_key;
    size_t ntop_keys;
    uint64_t nflows, nflows_paired, nflows_start_only, nflows_end_only;
    struct dtp_trace_warned warned[DTP_NTRACE_WARNINGS];
};

struct dtp_tasks; /* tasks.h */

struct dtp_trace {
    struct dtp_trace_rank *rank;
    size_t nranks, capacity;
    struct dtp_tasks *tasks; /* from a timeline that dtplan wrote, with dependencies, or NULL */
};

struct dtp_trace_options {
    int rank; /* the rank of a single file that does not say; -1: from the name or the order */
    void (*progress)(void *ctx, const char *file, uint64_t bytes); /* may be NULL */
    void *progress_ctx;
};

static inline struct dtp_trace_event *dtp_trace_event(const struct dtp_trace_rank *r, size_t i) {
    return &r->block[i / DTP_TRACE_BLOCK][i % DTP_TRACE_BLOCK];
}
static inline int64_t dtp_trace_end_ns(const struct dtp_trace_event *e) {
    return e->start_ns + e->dur_ns;
}
static inline bool dtp_trace_is_work(const struct dtp_trace_event *e) {
    return e->kind <= DTP_TRACE_MEMSET;
}
const char *dtp_trace_name(const struct dtp_trace_rank *r, uint32_t name);
uint32_t dtp_trace_nnames(const struct dtp_trace_rank *r);
const char *dtp_trace_category(const struct dtp_trace_rank *r, uint8_t category);

/* Files, folders (every file that looks like a trace, sorted by name) and tar archives of ranks;
 * ranks in increasing order. DTP_EINPUT names the file and the byte. Two files of one rank, and a
 * rank beyond the world size, are errors. */
enum dtp_status dtp_trace_load(struct dtp_arena *a, const char *const *paths, size_t npaths,
                               const struct dtp_trace_options *options, struct dtp_trace *out,
                               struct dtp_err *err);

/* Prints one line for each kind of warning, for one rank or, if r is NULL, for all together. */
void dtp_trace_print_warnings(FILE *f, const struct dtp_trace_rank *r);

/* ---- for readers ---- */

void dtp_trace_rank_init(struct dtp_trace_rank *r, struct dtp_arena *a, const char *file);
struct dtp_trace_event *dtp_trace_add(struct dtp_trace_rank *r);
uint32_t dtp_trace_intern(struct dtp_trace_rank *r, const char *s, size_t n);
uint8_t dtp_trace_intern_category(struct dtp_trace_rank *r, const char *s, size_t n);
uint32_t dtp_trace_host_lane(struct dtp_trace_rank *r, const char *pid, const char *tid);
uint32_t dtp_trace_device_lane(struct dtp_trace_rank *r, int64_t device, int64_t stream);
uint32_t dtp_trace_add_comm(struct dtp_trace_rank *r, const struct dtp_trace_comm *comm);
/* The annotation e is step `number`. */
void dtp_trace_add_step(struct dtp_trace_rank *r, int64_t number, const struct dtp_trace_event *e);
void dtp_trace_warn(struct dtp_trace_rank *r, enum dtp_trace_warning w, uint64_t byte);
/* After the last event: classes, links of launches, steps by time, overlaps. */
void dtp_trace_finish(struct dtp_trace_rank *r);
/* Returns the operation that the name of a record, kernel or annotation means. */
enum dtp_comm_op dtp_comm_op_of(const char *name);
/* The collective by which it is timed: a barrier, and what is not known, as an all-reduce. */
enum dtp_collective dtp_comm_collective(enum dtp_comm_op op);

#endif
