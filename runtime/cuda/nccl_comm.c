/* NCCL is opened at run time (nccl_open.c). Each group has one communicator. A pipeline has one for each edge of the
 * ring of stages, direction (forward, backward) and sense (with the ring, or against it as V-shaped schedules go) of
 * the plan. Each is used on one stream of each end, so that no transfer waits for an unrelated one. NCCL has no tags:
 * between two ranks, transfers of a direction are received in the order in which they are sent, which holds for the
 * schedules' F, B and I. Ids travel over the communicator of host memory. */
#include <string.h>

#include "runtime/cuda/nccl_internal.h"
#include "sim/base/units.h"

struct nccl_group {
    struct dtp_comm_group group;
    enum dtp_group_kind kind;
    ncclComm_t comm;
};

static struct dtp_nccl *nccl_of(const struct dtp_comm_group *g) {
    return (struct dtp_nccl *)g->comm;
}

static enum dtp_status result(const struct dtp_nccl *n, ncclResult_t r, const char *what,
                              struct dtp_err *err) {
    if (r == ncclSuccess || r == ncclInProgress)
        return DTP_OK;
    return dtp_fail(err, DTP_ENO, "%s: %s", what, n->ncclGetErrorString(r));
}
#define TRY_NCCL(n, f, ...) DTP_TRY(result((n), (n)->f(__VA_ARGS__), #f, err))

/* ---- groups ---- */

static enum dtp_status join(struct dtp_nccl *n, const ncclUniqueId *id, int size, int me,
                            ncclComm_t *out, struct dtp_err *err) {
    if (n->nall == MAX_COMMS)
        return dtp_fail(err, DTP_EUNSUPPORTED, "more than %d communicators", MAX_COMMS);
    TRY_NCCL(n, ncclCommInitRank, out, size, *id, me);
    n->all[n->nall++] = *out;
    return DTP_OK;
}

static bool of_stages(enum dtp_group_kind kind) {
    return kind == DTP_GROUP_PP || kind == DTP_GROUP_PP_RING || kind == DTP_GROUP_PP_AGAINST;
}

/* Returns how many ids this rank makes; each has a thread that waits for those who join. */
static int num_ids(enum dtp_group_kind kind, const struct dtp_comm_group *g) {
    bool last = g->me == g->size - 1;
    if (!of_stages(kind))
        return g->me == 0 ? 1 : 0;
    return last == (kind == DTP_GROUP_PP_RING) ? NDIRECTIONS : 0;
}

/* Stages i and i + 1 of the ring share a communicator for each direction, in which they are ranks 0 and 1; i
 * made their ids. */
static enum dtp_status join_edge(struct dtp_nccl *n, const struct dtp_comm_group *g, int i,
                                 const ncclUniqueId ids[NDIRECTIONS], struct edge *out,
                                 struct dtp_err *err) {
    int next = (i + 1) % g->size, which = g->me == i ? NEXT : PREVIOUS;
    if (g->me != i && g->me != next)
        return DTP_OK;
    out[which].peer = g->rank[g->me == i ? next : i];
    for (int direction = 0; direction < NDIRECTIONS; direction++)
        DTP_TRY(
            join(n, &ids[direction], 2, which == NEXT ? 0 : 1, &out[which].comm[direction], err));
    return DTP_OK;
}

/* Joins every other edge, then those between them, so that each rank is in one of them at a time. */
static enum dtp_status join_edges(struct dtp_nccl *n, const struct dtp_comm_group *g,
                                  enum dtp_group_kind kind, const ncclUniqueId (*ids)[NDIRECTIONS],
                                  struct edge *out, struct dtp_err *err) {
    int last = g->size - 1;
    if (kind == DTP_GROUP_PP_RING)
        return join_edge(n, g, last, ids[last], out, err);
    for (int odd = 0; odd < 2; odd++)
        for (int i = odd; i < last; i += 2)
            DTP_TRY(join_edge(n, g, i, ids[i], out, err));
    return DTP_OK;
}

/* Neighbours come first: they begin another pipeline. */
static void take_edges(struct dtp_nccl *n, const struct known *k) {
    struct edge *to = n->edge[k->kind == DTP_GROUP_PP_AGAINST ? AGAINST : WITH];
    if (k->kind == DTP_GROUP_PP)
        memset(n->edge, 0, sizeof n->edge);
    for (int i = 0; i < NEDGES; i++)
        if (k->edge[i].comm[FORWARD])
            to[i] = k->edge[i];
}

/* All members know a group or none does: they opened it together. */
static struct known *find_known(struct dtp_nccl *n, const struct nccl_group *g) {
    for (int i = 0; i < n->nknown; i++) {
        struct known *k = &n->known[i];
        if (k->kind == g->kind && k->size == g->group.size &&
            memcmp(k->rank, g->group.rank, (size_t)k->size * sizeof *k->rank) == 0)
            return k;
    }
    return NULL;
}

static enum dtp_status open_known(struct dtp_nccl *n, enum dtp_group_kind kind,
                                  const struct dtp_comm_group *g, const struct known **out,
                                  struct dtp_err *err) {
    struct dtp_comm_group *host;
    ncclUniqueId mine[NDIRECTIONS] = {0}, (*ids)[NDIRECTIONS];
    if (n->nknown == MAX_COMMS)
        return dtp_fail(err, DTP_EUNSUPPORTED, "more than %d groups", MAX_COMMS);
    struct known *k = &n->known[n->nknown];
    *k = (struct known){
        .kind = kind, .size = g->size, .rank = DTP_NEW(n->arena, int, (size_t)g->size)};
    memcpy(k->rank, g->rank, (size_t)g->size * sizeof *k->rank);
    ids = dtp_arena_alloc(n->arena, sizeof *ids, (size_t)g->size);
    for (int i = 0; i < num_ids(kind, g); i++)
        TRY_NCCL(n, ncclGetUniqueId, &mine[i]);
    DTP_TRY(n->host->ops->group(n->arena, n->host, kind, g->rank, g->size, &host, err));
    DTP_TRY(n->host->ops->all_gather(host, DTP_STREAM_COMPUTE, ids, mine,
                                     (int64_t)(sizeof mine / (sizeof(float))), DTP_FP32, err));
    if (of_stages(kind))
        DTP_TRY(join_edges(n, g, kind, (const ncclUniqueId(*)[NDIRECTIONS])ids, k->edge, err));
    else
        DTP_TRY(join(n, &ids[0][0], g->size, g->me, &k->comm, err));
    n->nknown++;
    *out = k;
    return DTP_OK;
}

/* Returns how many communicators this rank has in a group. */
static int num_comms(enum dtp_group_kind kind, const struct dtp_comm_group *g) {
    bool first = g->me == 0, last = g->me == g->size - 1;
    if (!of_stages(kind))
        return 1;
    int edges = kind == DTP_GROUP_PP_RING ? first || last : !first + !last;
    return NDIRECTIONS * edges;
}

static bool is_kept(const struct dtp_nccl *n, ncclComm_t comm) {
    bool kept = false;
    for (int i = 0; i < n->nknown; i++) {
        kept |= n->known[i].comm == comm;
        for (int e = 0; e < NEDGES * NDIRECTIONS; e++)
            kept |= n->known[i].edge[e / NDIRECTIONS].comm[e % NDIRECTIONS] == comm;
    }
    return kept;
}

/* Ends the communicators that this plan does not need, in the order in which all ranks joined them. */
static enum dtp_status end_old(struct dtp_nccl *n, struct dtp_err *err) {
    ncclComm_t old[MAX_COMMS];
    int nknown = 0, nall = 0, nold = 0;
    for (int i = 0; i < n->nknown; i++)
        if (n->known[i].needed)
            n->known[nknown++] = n->known[i];
    n->nknown = nknown;
    for (int i = 0; i < n->nall; i++)
        if (is_kept(n, n->all[i]))
            n->all[nall++] = n->all[i];
        else
            old[nold++] = n->all[i];
    n->nall = nall; /* set first: if one fails, none may end twice at the end of the run */
    for (int i = 0; i < nold; i++)
        TRY_NCCL(n, ncclCommDestroy, old[i]);
    return DTP_OK;
}

/* Ends old communicators on all ranks if some GPU lacks the memory for ncomms more. */
static enum dtp_status make_room(struct dtp_nccl *n, int ncomms, struct dtp_err *err) {
    /* on H200 with NCCL 2.28 nine connected communicators of two GPUs take 3.9 GiB */
    const double comm_bytes = 0.45 * DTP_GIB;
    struct dtp_comm_group *world;
    size_t free_bytes = 0, all_bytes;
    int *ranks = DTP_NEW(n->arena, int, (size_t)n->comm.size);
    if (n->nknown == 0)
        return DTP_OK;
    for (int i = 0; i < n->comm.size; i++)
        ranks[i] = i;
    (void)cudaMemGetInfo(&free_bytes, &all_bytes);
    float lacks = ncomms * comm_bytes > (double)free_bytes ? 1 : 0;
    DTP_TRY(
        n->host->ops->group(n->arena, n->host, DTP_GROUP_WORLD, ranks, n->comm.size, &world, err));
    DTP_TRY(n->host->ops->all_reduce(world, DTP_STREAM_COMPUTE, &lacks, 1, DTP_FP32, DTP_REDUCE_MAX,
                                     err));
    /* another object of this group comes next (the ids), whose first piece takes the same staging memory */
    DTP_TRY(n->host->ops->barrier(world, err));
    return lacks > 0 ? end_old(n, err) : DTP_OK;
}

static enum dtp_status nccl_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                                  const int *ranks, int nranks, struct dtp_comm_group **out,
                                  struct dtp_err *err) {
    struct dtp_nccl *n = (struct dtp_nccl *)c;
    struct nccl_group *g = DTP_NEW(a, struct nccl_group, 1);
    g->kind = kind;
    DTP_TRY(dtp_comm_members(a, c, ranks, nranks, &g->group, err));
    *out = &g->group;
    if (nranks == 1)
        return DTP_OK;
    if (n->nwaiting == MAX_COMMS)
        return dtp_fail(err, DTP_EUNSUPPORTED, "more than %d groups", MAX_COMMS);
    n->waiting[n->nwaiting++] = g;
    return DTP_OK;
}

static enum dtp_status nccl_join(struct dtp_comm *c, struct dtp_err *err) {
    struct dtp_nccl *n = (struct dtp_nccl *)c;
    int ncomms = 0, nwaiting = n->nwaiting;
    n->nwaiting = 0;
    for (int i = 0; i < n->nknown; i++)
        n->known[i].needed = false;
    for (int i = 0; i < nwaiting; i++) {
        const struct nccl_group *g = n->waiting[i];
        struct known *known = find_known(n, g);
        if (known)
            known->needed = true;
        else
            ncomms += num_comms(g->kind, &g->group);
    }
    DTP_TRY(make_room(n, ncomms, err));
    for (int i = 0; i < nwaiting; i++) {
        struct nccl_group *g = n->waiting[i];
        const struct known *known = find_known(n, g);
        if (!known)
            DTP_TRY(open_known(n, g->kind, &g->group, &known, err));
        g->comm = known->comm;
        if (of_stages(g->kind))
            take_edges(n, known);
    }
    return DTP_OK;
}

/* ---- operations ---- */

static ncclDataType_t type_of(enum dtp_dtype dtype) {
    return dtype == DTP_BF16 ? ncclBfloat16 : dtype == DTP_FP16 ? ncclFloat16 : ncclFloat32;
}

static cudaStream_t stream_of(const struct dtp_nccl *n, enum dtp_stream stream) {
    return n->cuda->stream[stream];
}

static ncclComm_t comm_of(const struct dtp_comm_group *g) {
    return ((const struct nccl_group *)g)->comm;
}

static enum dtp_status nccl_all_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                       int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                       struct dtp_err *err) {
    const struct dtp_nccl *c = nccl_of(g);
    ncclRedOp_t sum_or_max = op == DTP_REDUCE_MAX ? ncclMax : ncclSum;
    if (g->size == 1)
        return DTP_OK;
    TRY_NCCL(c, ncclAllReduce, x, x, (size_t)n, type_of(dtype), sum_or_max, comm_of(g),
             stream_of(c, stream));
    return DTP_OK;
}

static enum dtp_status local_copy(const struct dtp_nccl *c, enum dtp_stream stream, void *out,
                                  const void *in, uint64_t bytes, struct dtp_err *err) {
    if (out == in)
        return DTP_OK;
    cudaError_t e = cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, stream_of(c, stream));
    return e == cudaSuccess ? DTP_OK : dtp_fail(err, DTP_ENO, "copy: %s", cudaGetErrorString(e));
}

static uint64_t bytes_of(int64_t n, enum dtp_dtype dtype) {
    return (uint64_t)n * (dtype == DTP_BF16 || dtype == DTP_FP16 ? 2 : sizeof(float));
}

static enum dtp_status nccl_reduce_scatter(struct dtp_comm_group *g, enum dtp_stream stream,
                                           void *out, const void *in, int64_t n,
                                           enum dtp_dtype dtype, struct dtp_err *err) {
    const struct dtp_nccl *c = nccl_of(g);
    if (g->size == 1)
        return local_copy(c, stream, out, in, bytes_of(n, dtype), err);
    TRY_NCCL(c, ncclReduceScatter, in, out, (size_t)n, type_of(dtype), ncclSum, comm_of(g),
             stream_of(c, stream));
    return DTP_OK;
}

static enum dtp_status nccl_all_gather(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                       const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err) {
    const struct dtp_nccl *c = nccl_of(g);
    if (g->size == 1)
        return local_copy(c, stream, out, in, bytes_of(n, dtype), err);
    TRY_NCCL(c, ncclAllGather, in, out, (size_t)n, type_of(dtype), comm_of(g),
             stream_of(c, stream));
    return DTP_OK;
}

static enum dtp_status nccl_all_to_all(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                       const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err) {
    const struct dtp_nccl *c = nccl_of(g);
    uint64_t part_bytes = bytes_of(n, dtype);
    if (g->size == 1)
        return local_copy(c, stream, out, in, part_bytes, err);
    DTP_TRY(result(c, c->ncclGroupStart(), "ncclGroupStart", err));
    for (int i = 0; i < g->size; i++) {
        uint64_t at = (uint64_t)i * part_bytes;
        TRY_NCCL(c, ncclSend, (const char *)in + at, (size_t)n, type_of(dtype), i, comm_of(g),
                 stream_of(c, stream));
        TRY_NCCL(c, ncclRecv, (char *)out + at, (size_t)n, type_of(dtype), i, comm_of(g),
                 stream_of(c, stream));
    }
    return result(c, c->ncclGroupEnd(), "ncclGroupEnd", err);
}

/* Activations are sent to the next stage and gradients come from it on one edge; activations that come and gradients
 * that are sent use the other edge. A V-shaped schedule reverses that where it turns round. */
struct way {
    ncclComm_t comm;
    int other; /* rank of the peer in it */
};

static enum dtp_status find_way(const struct dtp_nccl *n, int peer, enum dtp_stream stream,
                                struct way *out, struct dtp_err *err) {
    bool forward = stream == DTP_STREAM_SEND_F || stream == DTP_STREAM_RECV_F;
    int usual = stream == DTP_STREAM_SEND_F || stream == DTP_STREAM_RECV_B ? NEXT : PREVIOUS;
    for (int sense = 0; sense < NSENSES; sense++) {
        int which = sense == WITH ? usual : 1 - usual;
        const struct edge *e = &n->edge[sense][which];
        *out = (struct way){e->comm[forward ? FORWARD : BACKWARD], which == NEXT ? 1 : 0};
        if (out->comm && e->peer == peer)
            return DTP_OK;
    }
    return dtp_fail(err, DTP_EUNSUPPORTED, "rank %d is no neighbour in the pipeline", peer);
}

static enum dtp_status nccl_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                                 uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)tag;
    const struct dtp_nccl *n = (const struct dtp_nccl *)c;
    struct way w;
    DTP_TRY(find_way(n, to, stream, &w, err));
    TRY_NCCL(n, ncclSend, x, bytes, ncclInt8, w.other, w.comm, stream_of(n, stream));
    return DTP_OK;
}

static enum dtp_status nccl_recv(struct dtp_comm *c, enum dtp_stream stream, void *x,
                                 uint64_t bytes, int from, uint64_t tag, struct dtp_err *err) {
    (void)tag;
    const struct dtp_nccl *n = (const struct dtp_nccl *)c;
    struct way w;
    DTP_TRY(find_way(n, from, stream, &w, err));
    TRY_NCCL(n, ncclRecv, x, bytes, ncclInt8, w.other, w.comm, stream_of(n, stream));
    return DTP_OK;
}

/* The GPUs meet here: when it returns, what each has enqueued is done everywhere. */
static enum dtp_status nccl_barrier(struct dtp_comm_group *g, struct dtp_err *err) {
    struct dtp_nccl *c = nccl_of(g);
    DTP_TRY(
        nccl_all_reduce(g, DTP_STREAM_COMPUTE, c->cuda->scratch, 1, DTP_FP32, DTP_REDUCE_SUM, err));
    c->cuda->dev.ops->sync(&c->cuda->dev);
    return c->cuda->dev.ops->check(&c->cuda->dev, err);
}

static void nccl_doing(struct dtp_comm *c, const char *action) {
    struct dtp_comm *host = ((struct dtp_nccl *)c)->host;
    host->ops->doing(host, action);
}

static void nccl_hang(struct dtp_comm *c, double waited_s, char *text, size_t size) {
    struct dtp_comm *host = ((struct dtp_nccl *)c)->host;
    host->ops->hang(host, waited_s, text, size);
}

static void nccl_abort(struct dtp_comm *c, const char *message) {
    struct dtp_nccl *n = (struct dtp_nccl *)c;
    n->host->ops->abort(n->host, message);
    dtp_nccl_abort_all(n);
}

static const struct dtp_comm_ops nccl_ops = {
    .name = "nccl",
    .open = dtp_nccl_open,
    .close = dtp_nccl_close,
    .group = nccl_group,
    .join = nccl_join,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .all_to_all = nccl_all_to_all,
    .send = nccl_send,
    .recv = nccl_recv,
    .barrier = nccl_barrier,
    .doing = nccl_doing,
    .hang = nccl_hang,
    .abort = nccl_abort,
};

const struct dtp_comm_ops *dtp_cuda_comm_ops(void) {
    return &nccl_ops;
}
