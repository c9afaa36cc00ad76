/* Times collectives and transfers of forked ranks through shared memory. */
#include <string.h>
#include <sys/mman.h>

#include "hw/fit_curve.h"
#include "runtime/launch.h"
#include "runtime/measure/measure.h"
#include "runtime/os_linux.h"
#include "runtime/rank.h"

static const int64_t sizes[] = {64, 1024, 16384, 65536, 262144, 1 << 19, 1 << 22};
enum { NSIZES = sizeof sizes / sizeof *sizes, NKINDS = 4 };
static const enum dtp_collective kinds[NKINDS] = {DTP_ALL_REDUCE, DTP_ALL_GATHER,
                                                  DTP_REDUCE_SCATTER, DTP_SEND_RECV};

struct job {
    const struct dtp_measure_options *o;
    struct dtp_comm_config config;
    int group; /* ranks of one group */
    struct dtp_measure_board *board;
};

struct member {
    struct dtp_comm *comm;
    const struct dtp_comm_ops *ops;
    struct dtp_comm_group *group;
    float *x, *y;
    int64_t n; /* elements of the whole buffer */
    enum dtp_collective kind;
    struct dtp_err *err;
    enum dtp_status status;
    uint64_t tag;
};

/* Sends a message from the even rank of a pair to the odd one, and back. */
static enum dtp_status round_trip(struct member *m) {
    uint64_t bytes = (uint64_t)m->n * sizeof(float), tag = ++m->tag;
    int other = m->comm->rank ^ 1;
    if (other > m->comm->rank)
        DTP_TRY(m->ops->send(m->comm, DTP_STREAM_SEND_F, m->x, bytes, other, tag, m->err));
    DTP_TRY(m->ops->recv(m->comm, DTP_STREAM_RECV_F, m->y, bytes, other, tag, m->err));
    if (other < m->comm->rank)
        DTP_TRY(m->ops->send(m->comm, DTP_STREAM_SEND_F, m->x, bytes, other, tag, m->err));
    return DTP_OK;
}

static enum dtp_status run_once(struct member *m) {
    int64_t share = m->n / m->group->size > 0 ? m->n / m->group->size : 1;
    switch (m->kind) {
    case DTP_ALL_REDUCE:
        return m->ops->all_reduce(m->group, DTP_STREAM_TP, m->x, m->n, DTP_FP32, DTP_REDUCE_SUM,
                                  m->err);
    case DTP_ALL_GATHER:
        return m->ops->all_gather(m->group, DTP_STREAM_TP, m->y, m->x, share, DTP_FP32, m->err);
    case DTP_REDUCE_SCATTER:
        return m->ops->reduce_scatter(m->group, DTP_STREAM_TP, m->y, m->x, share, DTP_FP32, m->err);
    case DTP_SEND_RECV:
        return round_trip(m);
    case DTP_BROADCAST:
    case DTP_REDUCE:
    case DTP_ALL_TO_ALL:
    case DTP_NCOLLECTIVES:
        break;
    }
    return DTP_OK;
}

/* Takes the least mean time of `calls` calls over several rounds; every rank makes the same number of calls. */
static enum dtp_status measure_size(struct member *m, int64_t bytes, double *out_s) {
    enum { ROUNDS = 8, MOST_CALLS = 64, LEAST_CALLS = 3, CALL_BYTES = 1 << 19 };
    int calls = (int)(CALL_BYTES / (bytes + 1));
    calls = calls > MOST_CALLS ? MOST_CALLS : calls < LEAST_CALLS ? LEAST_CALLS : calls;
    *out_s = INFINITY;
    m->n = bytes / (int64_t)sizeof(float);
    for (int round = 0; round < ROUNDS; round++) {
        memset(m->x, 0, (size_t)bytes); /* else the sums would grow without bound */
        DTP_TRY(m->ops->barrier(m->group, m->err));
        int64_t start_ns = dtp_os_now_ns();
        for (int i = 0; i < calls; i++)
            DTP_TRY(run_once(m));
        double t = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S / calls;
        *out_s = t < *out_s ? t : *out_s;
    }
    return DTP_OK;
}

static enum dtp_status measure_all(struct dtp_arena *a, struct job *job, int rank,
                                   struct dtp_err *err) {
    struct dtp_comm_config config = job->config;
    struct member m = {.err = err};
    int *ranks = DTP_NEW(a, int, (size_t)job->group);
    for (int i = 0; i < job->group; i++)
        ranks[i] = rank / job->group * job->group + i;
    config.rank = config.local_rank = rank;
    dtp_os_pin(rank);
    DTP_TRY(dtp_comm_find("shm", &m.ops, err));
    DTP_TRY(m.ops->open(a, &config, &m.comm, err));
    DTP_TRY(m.ops->group(a, m.comm, DTP_GROUP_TP, ranks, job->group, &m.group, err));
    m.x = dtp_arena_alloc(a, sizeof *m.x, (size_t)sizes[NSIZES - 1]);
    m.y = dtp_arena_alloc(a, sizeof *m.y, (size_t)sizes[NSIZES - 1]);
    for (int k = 0; k < NKINDS; k++)
        for (int i = 0; i < NSIZES; i++) {
            double time_s;
            m.kind = kinds[k];
            if (m.kind == DTP_SEND_RECV && job->group != 2)
                continue;
            DTP_TRY(measure_size(&m, sizes[i], &time_s));
            if (rank == 0)
                job->board->time_s[k * NSIZES + i] = m.kind == DTP_SEND_RECV ? time_s / 2 : time_s;
        }
    m.ops->close(m.comm);
    return DTP_OK;
}

static enum dtp_status member_rank(void *context, int rank, struct dtp_err *err) {
    struct dtp_arena *a = dtp_arena_create("collectives");
    enum dtp_status status = measure_all(a, context, rank, err);
    dtp_arena_destroy(a);
    return status;
}

/* Fits the curves of one group size; share is the part of a core that a rank has. */
static enum dtp_status fit(struct dtp_arena *a, const double *time_s, int n, double share,
                           struct dtp_measured *out, struct dtp_err *err) {
    static const double least[3] = {0, 0, 0};
    for (int k = 0; k < NKINDS; k++) {
        struct dtp_point point[NSIZES];
        if (kinds[k] == DTP_SEND_RECV && n > 2)
            continue; /* only a pair measures it */
        for (int i = 0; i < NSIZES; i++)
            point[i] = (struct dtp_point){(double)sizes[i], time_s[k * NSIZES + i] * share};
        struct dtp_curve *c = &out->curve[out->ncurves++];
        DTP_TRY(dtp_fit_curve(a, point, NSIZES, least, c, err));
        c->collective = (int)kinds[k];
        c->gpus = n;
        c->nodes = 1;
    }
    return DTP_OK;
}

static enum dtp_status measure_group(struct dtp_arena *a, const struct dtp_measure_options *o,
                                     int n, struct dtp_measured *out, struct dtp_err *err) {
    enum { STAGING_BYTES = 1 << 21 };
    int size = o->together ? o->nranks : n;
    struct job job = {.o = o,
                      .group = n,
                      .board = dtp_os_map(sizeof *job.board, true),
                      .config = {.size = size,
                                 .local_size = size,
                                 .staging_bytes = STAGING_BYTES,
                                 .message_bytes = (uint64_t)sizes[NSIZES - 1],
                                 .nmessages = 4,
                                 .timeout_s = 60}};
    void *shared;
    if (!job.board)
        return dtp_fail(err, DTP_ENOMEM, "cannot map memory for the measured times");
    enum dtp_status status = dtp_comm_shm_map(&job.config, &shared, err);
    if (status == DTP_OK) {
        job.config.shared = shared;
        const struct dtp_fork f = {
            .nranks = size, .run = member_rank, .context = &job, .shared = shared, .grace_s = 1};
        status = dtp_launch_fork(&f, err);
        dtp_comm_shm_unmap(&job.config, shared);
    }
    double share = size > out->ncores ? (double)out->ncores / size : 1;
    if (status == DTP_OK)
        status = fit(a, job.board->time_s, n, share, out, err);
    munmap(job.board, sizeof *job.board);
    return status;
}

enum dtp_status dtp_measure_collectives(struct dtp_arena *a, const struct dtp_measure_options *o,
                                        struct dtp_measured *out, struct dtp_err *err) {
    if (o->progress)
        o->progress(o->context, "collectives");
    for (int n = 2; n <= o->nranks && out->ncurves + NKINDS <= DTP_MEASURE_MAX_CURVES; n++)
        if (o->nranks % n == 0)
            DTP_TRY(measure_group(a, o, n, out, err));
    return DTP_OK;
}
