/* Times collectives and transfers of a device's communicator by marks on its stream. */
#include <string.h>
#include <sys/mman.h>

#include "hw/fit_curve.h"
#include "runtime/launch.h"
#include "runtime/measure/measure.h"
#include "runtime/os_linux.h"
#include "sim/base/units.h"
#include "runtime/comm/comm.h"

static const enum dtp_collective kinds[] = {DTP_ALL_REDUCE, DTP_ALL_GATHER, DTP_REDUCE_SCATTER,
                                            DTP_SEND_RECV};
enum { OTHER_BYTES = 256 * (int)DTP_MIB };
enum { NKINDS = sizeof kinds / sizeof *kinds, MOST_SIZES = 32, HOP = NKINDS * MOST_SIZES, GAP };

struct job {
    const struct dtp_measure_options *o;
    const struct dtp_measure_grid *grid;
    struct dtp_comm_config config;
    struct dtp_measure_board *board;
};

struct member {
    const struct dtp_measure_grid *grid;
    const struct dtp_dev_ops *dev_ops;
    struct dtp_dev *dev;
    struct dtp_comm *host, *comm;
    const struct dtp_comm_ops *ops;
    struct dtp_comm_group *host_world, *group, *pair;
    char *x, *y, *other; /* what a collective reads and writes; what else passes through caches */
    float *sums;         /* sums of its columns */
    double alone_s;      /* a small kernel in a graph, before there are communicators */
    uint64_t tag;
    struct dtp_err *err;
};

struct pass {
    enum dtp_collective kind;
    int64_t bytes;
    bool apart;   /* on a separate stream, not in a graph on that of the kernels */
    bool without; /* only the kernels between, no collective */
};

static enum dtp_stream stream_of(const struct pass *p, int rank) {
    if (p->kind != DTP_SEND_RECV)
        return p->apart ? DTP_STREAM_DP : DTP_STREAM_COMPUTE;
    return rank == 0 ? DTP_STREAM_SEND_F : DTP_STREAM_RECV_F;
}

static enum dtp_status once(struct member *m, const struct pass *p) {
    enum dtp_dtype type = m->grid->dtype;
    int64_t bytes = p->bytes, n = bytes / dtp_dtype_bytes(type), share = n / m->group->size;
    enum dtp_stream stream = stream_of(p, m->comm->rank);
    switch (p->kind) {
    case DTP_ALL_REDUCE:
        return m->ops->all_reduce(m->group, stream, m->x, n, type, DTP_REDUCE_MAX, m->err);
    case DTP_ALL_GATHER:
        return m->ops->all_gather(m->group, stream, m->y, m->x, share, type, m->err);
    case DTP_REDUCE_SCATTER:
        return m->ops->reduce_scatter(m->group, stream, m->y, m->x, share, type, m->err);
    case DTP_SEND_RECV:
        m->tag++;
        if (m->comm->rank == 0)
            return m->ops->send(m->comm, stream, m->x, (uint64_t)bytes, 1, m->tag, m->err);
        return m->comm->rank == 1
                   ? m->ops->recv(m->comm, stream, m->y, (uint64_t)bytes, 0, m->tag, m->err)
                   : DTP_OK;
    case DTP_BROADCAST:
    case DTP_REDUCE:
    case DTP_ALL_TO_ALL:
    case DTP_NCOLLECTIVES:
        break;
    }
    return DTP_OK;
}

/* Between two collectives of tensor parallelism a layer reads and writes about TIMES the bytes of one: the
 * products' operands, and what attention or the MLP keeps. Meanwhile NCCL's buffers leave the caches: an all-gather
 * of 3 MB over two H200 takes 21 us without that, 24 with it. */
static void use_caches(struct member *m, int64_t bytes) {
    enum { TIMES = 8, COLS = 2048 };
    int64_t all = TIMES * bytes, e = dtp_dtype_bytes(m->grid->dtype);
    int64_t rows = (all < OTHER_BYTES ? all : OTHER_BYTES) / e / COLS;
    if (rows >
        0) /* only reads: lines that were written would go to memory while the collective runs */
        m->dev_ops->bias_backward(m->dev, m->sums, m->other, (const int64_t[2]){rows, COLS});
}

/* A collective runs between kernels, as in a layer: the kernel before it writes what it reads, and no more. */
static enum dtp_status between_kernels(struct member *m, const struct pass *p) {
    enum { BEFORE, AFTER };
    int64_t n = p->bytes / dtp_dtype_bytes(m->grid->dtype);
    use_caches(m, p->bytes);
    m->dev_ops->add(m->dev, m->x, m->y, p->kind == DTP_ALL_GATHER ? n / m->group->size : n, false);
    if (p->without || !p->apart)
        return p->without ? DTP_OK : once(m, p);
    m->dev_ops->event_record(m->dev, DTP_STREAM_COMPUTE, BEFORE);
    m->dev_ops->event_wait(m->dev, DTP_STREAM_DP, BEFORE);
    DTP_TRY(once(m, p));
    m->dev_ops->event_record(m->dev, DTP_STREAM_DP, AFTER);
    m->dev_ops->event_wait(m->dev, DTP_STREAM_COMPUTE, AFTER);
    return DTP_OK;
}

static enum dtp_status enqueue(struct member *m, const struct pass *p, int64_t calls) {
    for (int64_t i = 0; i < calls; i++)
        DTP_TRY(p->kind == DTP_SEND_RECV ? once(m, p) : between_kernels(m, p));
    return DTP_OK;
}

static enum dtp_status meet(struct member *m) {
    m->dev_ops->sync(m->dev);
    return m->host->ops->barrier(m->host_world, m->err);
}

/* Records the calls as a graph; *kept is false if no graph holds them. */
static enum dtp_status record(struct member *m, const struct pass *p, int64_t calls, bool *kept) {
    *kept = !p->apart && p->kind != DTP_SEND_RECV && m->dev_ops->record &&
            m->dev_ops->record(m->dev, 0, true);
    if (!*kept)
        return DTP_OK;
    DTP_TRY(enqueue(m, p, calls));
    *kept = m->dev_ops->record(m->dev, 0, false) > 0;
    if (*kept) /* a replay before the timed one uploads it to the GPU */
        m->dev_ops->replay(m->dev, 0);
    return DTP_OK;
}

/* Measures the mean time of a call; every rank makes the same number, and all start together. */
static enum dtp_status measure_pass(struct member *m, const struct pass *p, double *out_s) {
    enum { MOST_CALLS = 40, LEAST_CALLS = 4, WARM = 2 };
    const int64_t call_bytes = (int64_t)DTP_GIB / 2;
    const double host_s = 2e-5;
    bool pair = p->kind == DTP_SEND_RECV, kept = false;
    enum dtp_stream stream = pair ? stream_of(p, m->comm->rank) : DTP_STREAM_COMPUTE;
    int64_t calls = call_bytes / p->bytes;
    calls = calls > MOST_CALLS ? MOST_CALLS : calls < LEAST_CALLS ? LEAST_CALLS : calls;
    DTP_TRY(enqueue(m, p, WARM));
    DTP_TRY(meet(m));
    DTP_TRY(record(m, p, calls, &kept));
    DTP_TRY(meet(m));
    if (!pair && m->dev_ops->pause) /* the host runs ahead */
        m->dev_ops->pause(m->dev, stream, (kept ? 1.0 : (double)calls) * host_s);
    m->dev_ops->mark(m->dev, stream, 0);
    if (kept)
        m->dev_ops->replay(m->dev, 0);
    else
        DTP_TRY(enqueue(m, p, calls));
    m->dev_ops->mark(m->dev, stream, 1);
    m->dev_ops->sync(m->dev);
    int64_t begin_ns = m->dev_ops->mark_ns(m->dev, 0), end_ns = m->dev_ops->mark_ns(m->dev, 1);
    *out_s = (double)(end_ns - begin_ns) / (double)DTP_NS_PER_S / (double)calls;
    return m->dev_ops->check(m->dev, m->err);
}

/* Returns the seconds from one small kernel in a graph to the next; 0 if the device has no graphs. */
static double small_kernel_s(struct member *m) {
    enum { ELEMENTS = 1024, KERNELS = 500, ROUNDS = 5 };
    const double busy_s = 5e-2; /* the clock has risen by then */
    double least_s = 0;
    if (!m->dev_ops->record || !m->dev_ops->record(m->dev, 0, true))
        return 0;
    for (int i = 0; i < KERNELS; i++)
        m->dev_ops->add(m->dev, m->x, m->y, ELEMENTS, false);
    if (m->dev_ops->record(m->dev, 0, false) == 0)
        return 0;
    if (m->dev_ops->pause)
        m->dev_ops->pause(m->dev, DTP_STREAM_COMPUTE, busy_s);
    for (int i = 0; i <= ROUNDS; i++) { /* the first uploads it to the device */
        m->dev_ops->mark(m->dev, DTP_STREAM_COMPUTE, 0);
        m->dev_ops->replay(m->dev, 0);
        m->dev_ops->mark(m->dev, DTP_STREAM_COMPUTE, 1);
        m->dev_ops->sync(m->dev);
        double t = (double)(m->dev_ops->mark_ns(m->dev, 1) - m->dev_ops->mark_ns(m->dev, 0)) /
                   (double)DTP_NS_PER_S / KERNELS;
        least_s = i <= 1 || t < least_s ? t : least_s;
    }
    return least_s;
}

static enum dtp_status open_member(struct dtp_arena *a, struct job *job, int rank,
                                   struct member *m) {
    struct dtp_comm_config config = job->config;
    int64_t most = 0;
    int *ranks = DTP_NEW(a, int, (size_t)config.size);
    for (int i = 0; i < config.size; i++)
        ranks[i] = i;
    for (int i = 0; m->grid->bytes[i]; i++)
        most = m->grid->bytes[i];
    const struct dtp_dev_config device = {.index = rank,
                                          .nlocal = config.size,
                                          .memory_bytes =
                                              2 * (uint64_t)most + OTHER_BYTES + (uint64_t)DTP_MIB,
                                          .dtype = m->grid->dtype,
                                          .grad_dtype = DTP_FP32};
    config.rank = config.local_rank = rank;
    DTP_TRY(dtp_dev_find(job->o->backend, &m->dev_ops, m->err));
    DTP_TRY(m->dev_ops->open(a, &device, &m->dev, m->err));
    m->x = dtp_heap_alloc(m->dev->heap, DTP_MEM_BUFFERS, "x", (uint64_t)most);
    m->y = dtp_heap_alloc(m->dev->heap, DTP_MEM_BUFFERS, "y", (uint64_t)most);
    m->other = dtp_heap_alloc(m->dev->heap, DTP_MEM_BUFFERS, "other", OTHER_BYTES);
    m->sums = dtp_heap_alloc(m->dev->heap, DTP_MEM_BUFFERS, "sums", 16 * (uint64_t)DTP_KIB);
    if (!m->x || !m->y || !m->other || !m->sums)
        return dtp_heap_fail(m->dev->heap, "collectives", (uint64_t)most, m->err);
    m->dev_ops->fill(m->dev, m->x, (uint64_t)most);
    m->dev_ops->fill(m->dev, m->y, (uint64_t)most);
    m->dev_ops->sync(m->dev);
    m->alone_s = small_kernel_s(m);
    config.device = m->dev;
    DTP_TRY(dtp_comm_find("shm", &m->ops, m->err));
    DTP_TRY(m->ops->open(a, &config, &m->host, m->err));
    m->comm = m->host;
    if (strcmp(m->dev_ops->name, "cuda") == 0) {
        config.host = m->host;
        DTP_TRY(dtp_comm_find("nccl", &m->ops, m->err));
        DTP_TRY(m->ops->open(a, &config, &m->comm, m->err));
    }
    m->dev->comm = m->comm;
    DTP_TRY(m->host->ops->group(a, m->host, DTP_GROUP_WORLD, ranks, config.size, &m->host_world,
                                m->err));
    DTP_TRY(m->ops->group(a, m->comm, DTP_GROUP_TP, ranks, config.size, &m->group, m->err));
    DTP_TRY(m->ops->group(a, m->comm, DTP_GROUP_PP, ranks, config.size, &m->pair, m->err));
    if (m->ops->join)
        DTP_TRY(m->ops->join(m->comm, m->err));
    return DTP_OK;
}

/* Measures the power of the first rank's device while a large all-reduce is repeated. */
static enum dtp_status measure_power(struct job *job, int rank, struct member *m) {
    enum { CALLS = 2500 };
    const struct pass p = {.kind = DTP_ALL_REDUCE, .bytes = 64 * (int64_t)DTP_MIB};
    struct dtp_dev_load before, after;
    if (!m->dev_ops->load)
        return DTP_OK;
    DTP_TRY(meet(m));
    m->dev_ops->load(m->dev, &before);
    int64_t start_ns = dtp_os_now_ns();
    DTP_TRY(enqueue(m, &p, CALLS));
    m->dev_ops->sync(m->dev);
    m->dev_ops->load(m->dev, &after);
    double all_s = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    if (rank == 0)
        job->board->load[0] =
            (struct dtp_measured_load){.kernel = "all_reduce",
                                       .busy = 1,
                                       .call_s = all_s / CALLS,
                                       .power_w = (after.energy_j - before.energy_j) / all_s};
    return m->dev_ops->check(m->dev, m->err);
}

/* Takes the least of three rounds, because a rank that is interrupted once delays all. */
static enum dtp_status measure_least(struct member *m, const struct pass *p, double *out_s) {
    enum { ROUNDS = 3 };
    for (int i = 0; i < ROUNDS; i++) {
        double t = 0;
        DTP_TRY(measure_pass(m, p, &t));
        *out_s = i == 0 || t < *out_s ? t : *out_s;
    }
    return DTP_OK;
}

/* Returns the time of the collectives alone, without that of the kernels between them. */
static enum dtp_status measure_own(struct member *m, struct pass p, double *out_s) {
    double kernel_s = 0;
    DTP_TRY(measure_least(m, &p, out_s));
    p.without = true;
    if (p.kind != DTP_SEND_RECV)
        DTP_TRY(measure_least(m, &p, &kernel_s));
    *out_s = *out_s > kernel_s ? *out_s - kernel_s : 0;
    return DTP_OK;
}

/* Measures how much longer a small collective takes on a separate stream than on the stream of the kernels around it:
 * the difference is two waits of one stream for another. */
static enum dtp_status measure_hop(struct job *job, int rank, struct member *m) {
    double apart_s, beside_s;
    struct pass p = {.kind = DTP_ALL_GATHER, .bytes = m->grid->bytes[0], .apart = true};
    DTP_TRY(measure_own(m, p, &apart_s));
    p.apart = false;
    DTP_TRY(measure_own(m, p, &beside_s));
    if (rank == 0)
        job->board->time_s[HOP] = apart_s > beside_s ? apart_s - beside_s : 0;
    return DTP_OK;
}

static enum dtp_status measure_all(struct job *job, int rank, struct member *m) {
    for (int k = 0; k < NKINDS; k++)
        for (int i = 0; m->grid->bytes[i]; i++) {
            double t = 0;
            struct pass p = {.kind = kinds[k], .bytes = m->grid->bytes[i]};
            DTP_TRY(measure_own(m, p, &t));
            if (rank == 0)
                job->board->time_s[k * MOST_SIZES + i] = t;
        }
    DTP_TRY(measure_hop(job, rank, m));
    double gap_s = small_kernel_s(m) - m->alone_s;
    if (rank == 0)
        job->board->time_s[GAP] = gap_s > 0 ? gap_s : 0;
    if (m->dev_ops->forget_graphs) /* before their communicators are closed */
        m->dev_ops->forget_graphs(m->dev);
    return measure_power(job, rank, m);
}

static enum dtp_status member_rank(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    struct dtp_arena *a = dtp_arena_create("collectives");
    struct member m = {.grid = job->grid, .err = err};
    dtp_os_pin(rank);
    enum dtp_status status = open_member(a, job, rank, &m);
    if (status == DTP_OK)
        status = measure_all(job, rank, &m);
    if (m.comm && m.comm != m.host)
        m.comm->ops->close(m.comm);
    if (m.host)
        m.host->ops->close(m.host);
    if (m.dev)
        m.dev_ops->close(m.dev);
    dtp_arena_destroy(a);
    return status;
}

static enum dtp_status fit(struct dtp_arena *a, const struct job *job, struct dtp_measured *out,
                           struct dtp_err *err) {
    static const double least[3] = {0, 0, 0};
    int nsizes = 0;
    while (nsizes < MOST_SIZES && job->grid->bytes[nsizes])
        nsizes++;
    for (int k = 0; k < NKINDS; k++) {
        struct dtp_point point[MOST_SIZES];
        if (kinds[k] == DTP_SEND_RECV && job->config.size > 2)
            continue; /* only a pair measures it */
        if (out->ncurves == DTP_MEASURE_MAX_CURVES)
            return dtp_fail(err, DTP_EINPUT, "more than %d curves", DTP_MEASURE_MAX_CURVES);
        for (int i = 0; i < nsizes; i++)
            point[i] = (struct dtp_point){(double)job->grid->bytes[i],
                                          job->board->time_s[k * MOST_SIZES + i]};
        struct dtp_curve *c = &out->curve[out->ncurves++];
        DTP_TRY(dtp_fit_curve(a, point, (size_t)nsizes, least, c, err));
        c->collective = (int)kinds[k];
        c->at_bytes = (struct dtp_doubles){DTP_NEW(a, double, (size_t)nsizes), (size_t)nsizes};
        c->time_s = (struct dtp_doubles){DTP_NEW(a, double, (size_t)nsizes), (size_t)nsizes};
        for (int i = 0; i < nsizes; i++) {
            c->at_bytes.at[i] = point[i].bytes;
            c->time_s.at[i] = point[i].time_s;
        }
        c->gpus = job->config.size;
        c->nodes = 1;
    }
    return DTP_OK;
}

static enum dtp_status measure_group(struct dtp_arena *a, struct job *job, struct dtp_measured *out,
                                     struct dtp_err *err) {
    int64_t most = 0;
    for (int i = 0; job->grid->bytes[i]; i++)
        most = job->grid->bytes[i];
    job->config.message_bytes = (uint64_t)most;
    void *shared;
    DTP_TRY(dtp_comm_shm_map(&job->config, &shared, err));
    job->config.shared = shared;
    const struct dtp_fork f = {.nranks = job->config.size,
                               .run = member_rank,
                               .context = job,
                               .shared = shared,
                               .grace_s = 1};
    enum dtp_status status = dtp_launch_fork(&f, err);
    dtp_comm_shm_unmap(&job->config, shared);
    if (job->config.size == 2) {
        out->hop_s = job->board->time_s[HOP];
        out->peer_gap_s = job->board->time_s[GAP];
    }
    if (job->board->load[0].power_w > 0 && out->nloads < DTP_MEASURE_MAX_LOADS)
        out->load[out->nloads++] = job->board->load[0];
    job->board->load[0] = (struct dtp_measured_load){.power_w = 0};
    return status == DTP_OK ? fit(a, job, out, err) : status;
}

enum dtp_status dtp_measure_device_comm(struct dtp_arena *a, const struct dtp_measure_options *o,
                                        const struct dtp_measure_grid *grid,
                                        struct dtp_measured *out, struct dtp_err *err) {
    enum { STAGING_BYTES = 2 * (int)DTP_MIB, IN_FLIGHT = 64 };
    struct job job = {.o = o, .grid = grid, .board = dtp_os_map(sizeof *job.board, true)};
    enum dtp_status status = DTP_OK;
    if (!job.board)
        return dtp_fail(err, DTP_ENOMEM, "cannot map memory for the measured times");
    if (o->progress)
        o->progress(o->context, "collectives");
    for (int n = 2; status == DTP_OK && n <= o->nranks; n *= 2) {
        job.config = (struct dtp_comm_config){.size = n,
                                              .local_size = n,
                                              .staging_bytes = STAGING_BYTES,
                                              .nmessages = IN_FLIGHT,
                                              .timeout_s = 60};
        status = measure_group(a, &job, out, err);
    }
    munmap(job.board, sizeof *job.board);
    return status;
}
