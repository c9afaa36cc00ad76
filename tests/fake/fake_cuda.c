/* A module that says it is CUDA on four H200 and computes on the CPU: so that what the program does
 * around GPUs is tested where there is none. Built as libdtplan_fake.so; DTPLAN_CUDA names it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/comm.h"
#include "runtime/os_linux.h"
#include "tests/fake/recorder.h"

extern const uint64_t dtp_cuda_table_bytes;
const struct dtp_dev_ops *dtp_cuda_dev_ops(void);
const struct dtp_comm_ops *dtp_cuda_comm_ops(void);

const uint64_t dtp_cuda_table_bytes = DTP_TABLE_BYTES;

static void fake_about(struct dtp_dev *d, struct dtp_dev_about *out) {
    enum { GPUS = 4 };
    (void)d;
    out->ndevices = GPUS;
    snprintf(out->card, sizeof out->card, "NVIDIA H200");
    snprintf(out->versions, sizeof out->versions, "none");
}

/* $DTPLAN_FAKE_FAULT=N: action N fails in the third step, and is found three actions later or by a wait,
 * as errors of CUDA are. */
static struct {
    int step, reached, rank;
    bool fails, found;
    int looks[DTP_DEV_EVENTS];
} late = {.step = -1};

static void fake_reach(struct dtp_dev *d, int number) {
    enum { STEP = 2, LATE = 3 };
    const char *fault = getenv("DTPLAN_FAKE_FAULT");
    (void)d;
    if (number == 0)
        late.step++;
    late.fails = fault && late.step == STEP && number > atoi(fault);
    late.reached = late.fails ? atoi(fault) : number;
    late.found |= late.fails && number > atoi(fault) + LATE;
}

static int fake_reached(struct dtp_dev *d) {
    (void)d;
    return late.reached;
}

static void fake_sync(struct dtp_dev *d) {
    (void)d;
    late.found = late.fails;
}

static enum dtp_status fake_check(struct dtp_dev *d, struct dtp_err *err) {
    (void)d;
    if (recorder.failed != DTP_OK)
        return dtp_fail(err, recorder.failed, "%s", recorder.failure.msg);
    return late.found ? dtp_fail(err, DTP_ENO, "CUDA: an illegal address") : DTP_OK;
}

/* Events pass some looks after they were recorded, each time another number of them. */
static void fake_event_record(struct dtp_dev *d, enum dtp_stream stream, int event) {
    enum { MOST_LOOKS = 7 };
    static unsigned recorded;
    (void)d, (void)stream;
    late.looks[event] = (int)(recorded++ * 2654435761U >> 16) % MOST_LOOKS;
}

static bool fake_event_done(struct dtp_dev *d, int event) {
    (void)d;
    return late.looks[event]-- <= 0;
}

/* $DTPLAN_FAKE_NO_GRAPHS=R: rank R records none. */
static int fake_record(struct dtp_dev *d, int graph, bool on) {
    const char *rank = getenv("DTPLAN_FAKE_NO_GRAPHS");
    return rank && atoi(rank) == late.rank ? 0 : recorder_record(d, graph, on);
}

static enum dtp_status fake_dev_open(struct dtp_arena *a, const struct dtp_dev_config *config,
                                     struct dtp_dev **out, struct dtp_err *err) {
    DTP_TRY(dtp_cpu_dev_ops()->open(a, config, out, err));
    (*out)->ops = dtp_cuda_dev_ops();
    late.rank = config->index;
    return DTP_OK;
}

const struct dtp_dev_ops *dtp_cuda_dev_ops(void) {
    static struct dtp_dev_ops ops;
    ops = *dtp_cpu_dev_ops();
    ops.name = "cuda";
    ops.about = fake_about;
    ops.open = fake_dev_open;
    ops.reach = fake_reach;
    ops.reached = fake_reached;
    ops.sync = fake_sync;
    ops.check = fake_check;
    ops.event_record = fake_event_record;
    ops.event_done = fake_event_done;
    recorder_table(&ops);
    ops.record = fake_record;
    return &ops;
}

/* Who holds up the job stands on the board of the host's communicator, as with NCCL. */
static struct dtp_comm *host;

static enum dtp_status told(enum dtp_status status, struct dtp_err *err) {
    char text[256];
    late.found |= late.fails; /* a device that has failed fails what comes next, and is found */
    if (late.fails && status == DTP_OK)
        return dtp_fail(err, DTP_ENO, "all_reduce: unhandled error of the device");
    if (status == DTP_OK || !err || !strstr(err->msg, "hangs"))
        return status;
    host->ops->hang(host, 1, text, sizeof text);
    return dtp_fail(err, status, "%s", text);
}

struct blob {
    int process, fd;
};

/* This shared memory is apart from that of the host: rank 0 makes it, the others map it. */
static enum dtp_status fake_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                                 struct dtp_comm **out, struct dtp_err *err) {
    struct dtp_comm_config own = *config;
    struct dtp_comm_group *world;
    struct blob mine = {.process = (int)getpid(), .fd = -1};
    struct blob *all = DTP_NEW(a, struct blob, (size_t)config->size);
    int *ranks = DTP_NEW(a, int, (size_t)config->size);
    uint64_t bytes = dtp_comm_shm_bytes(config);
    for (int i = 0; i < config->size; i++)
        ranks[i] = i;
    if (config->rank == 0)
        own.shared = dtp_os_memory_create(bytes, &mine.fd);
    DTP_TRY(config->host->ops->group(a, config->host, DTP_GROUP_WORLD, ranks, config->size, &world,
                                     err));
    DTP_TRY(config->host->ops->all_gather(world, DTP_STREAM_COMPUTE, all, &mine,
                                          (int64_t)(sizeof mine / sizeof(float)), DTP_FP32, err));
    if (config->rank != 0)
        own.shared = dtp_os_memory_attach(all[0].process, all[0].fd, bytes);
    if (!own.shared)
        return dtp_fail(err, DTP_ENOMEM, "no memory for the ranks of the fake module");
    DTP_TRY(config->host->ops->barrier(world, err)); /* all have it before the file goes */
    if (mine.fd >= 0)
        (void)close(mine.fd);
    DTP_TRY(dtp_shm_comm_ops()->open(a, &own, out, err));
    (*out)->ops = dtp_cuda_comm_ops();
    host = config->host;
    return DTP_OK;
}

/* Collectives on the compute stream are recorded with what is around them. */
static bool keep(enum dtp_stream stream, struct dtp_collective_args x) {
    return stream == DTP_STREAM_COMPUTE && recorder_keep(DTP_OP_collective, &x);
}

static enum dtp_status fake_all_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                       int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                       struct dtp_err *err) {
    if (keep(stream, (struct dtp_collective_args){g, x, x, n, DTP_ALL_REDUCE, dtype, op, 0}))
        return DTP_OK;
    return told(dtp_shm_comm_ops()->all_reduce(g, stream, x, n, dtype, op, err), err);
}

static enum dtp_status fake_all_gather(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                       const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err) {
    if (keep(stream, (struct dtp_collective_args){g, out, in, n, DTP_ALL_GATHER, dtype, 0, 0}))
        return DTP_OK;
    return told(dtp_shm_comm_ops()->all_gather(g, stream, out, in, n, dtype, err), err);
}

static enum dtp_status fake_reduce_scatter(struct dtp_comm_group *g, enum dtp_stream stream,
                                           void *out, const void *in, int64_t n,
                                           enum dtp_dtype dtype, struct dtp_err *err) {
    if (keep(stream, (struct dtp_collective_args){g, out, in, n, DTP_REDUCE_SCATTER, dtype, 0, 0}))
        return DTP_OK;
    return told(dtp_shm_comm_ops()->reduce_scatter(g, stream, out, in, n, dtype, err), err);
}

const struct dtp_comm_ops *dtp_cuda_comm_ops(void) {
    static struct dtp_comm_ops ops;
    ops = *dtp_shm_comm_ops();
    ops.name = "nccl";
    ops.open = fake_open;
    ops.all_reduce = fake_all_reduce;
    ops.all_gather = fake_all_gather;
    ops.reduce_scatter = fake_reduce_scatter;
    return &ops;
}
