/* This communicator serves a job of which only this rank exists (comm.h). */
#include <stdio.h>
#include <string.h>

#include "hw/collective.h"
#include "runtime/comm/comm.h"

struct shadow {
    struct dtp_comm comm;
    const struct dtp_shadow *job; /* NULL: the groups are in host memory */
    struct dtp_dev *device;
    struct dtp_placement placement;
};

struct shadow_group {
    struct dtp_comm_group group;
    struct dtp_group_shape shape;
};

static struct shadow *shadow_of(const struct dtp_comm_group *g) {
    return (struct shadow *)g->comm;
}

static enum dtp_status shadow_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                                   struct dtp_comm **out, struct dtp_err *err) {
    struct shadow *s = DTP_NEW(a, struct shadow, 1);
    s->comm =
        (struct dtp_comm){.ops = dtp_shadow_comm_ops(), .rank = config->rank, .size = config->size};
    s->job = config->shadow;
    s->device = config->device;
    *out = &s->comm;
    if (!s->job)
        return DTP_OK;
    const struct dtp_plan *p = s->job->plan;
    const struct dtp_sizes sizes = {.tp = p->tp, .cp = 1, .dp = p->dp, .pp = p->pp, .ep = 1};
    return dtp_placement_init(&s->placement, s->job->cluster, &sizes, "tp-cp-dp-pp", err);
}

static void shadow_close(struct dtp_comm *c) {
    (void)c;
}

/* Returns the axis whose links a kind of group uses; the world, which sends the norm only, uses the widest. */
static enum dtp_axis axis_of(const struct dtp_plan *p, enum dtp_group_kind kind) {
    switch (kind) {
    case DTP_GROUP_TP:
    case DTP_GROUP_KV:
        return DTP_AXIS_TP;
    case DTP_GROUP_DP:
        return DTP_AXIS_DP;
    case DTP_GROUP_EMBEDDING:
    case DTP_GROUP_PP:
    case DTP_GROUP_PP_RING:
    case DTP_GROUP_PP_AGAINST:
        return DTP_AXIS_PP;
    case DTP_GROUP_WORLD:
    case DTP_NGROUPS:
        break;
    }
    return p->dp > 1 ? DTP_AXIS_DP : p->pp > 1 ? DTP_AXIS_PP : DTP_AXIS_TP;
}

/* Makes a group in host memory, whose only member is this rank. */
static enum dtp_status shadow_group(struct dtp_arena *a, struct dtp_comm *c,
                                    enum dtp_group_kind kind, const int *ranks, int nranks,
                                    struct dtp_comm_group **out, struct dtp_err *err) {
    struct shadow *s = (struct shadow *)c;
    struct shadow_group *g = DTP_NEW(a, struct shadow_group, 1);
    const int *members = s->job ? ranks : &c->rank;
    DTP_TRY(dtp_comm_members(a, c, members, s->job ? nranks : 1, &g->group, err));
    if (s->job) {
        g->shape = dtp_placement_shape(&s->placement, s->job->cluster, axis_of(s->job->plan, kind),
                                       c->rank);
        if (g->shape.size > nranks) {
            g->shape.size = nranks;
            g->shape.nodes = g->shape.nodes < nranks ? g->shape.nodes : nranks;
        }
    }
    *out = &g->group;
    return DTP_OK;
}

static enum dtp_status pause_for(const struct shadow *s, enum dtp_stream stream, double time_s) {
    s->device->ops->pause(s->device, stream, time_s);
    return DTP_OK;
}

/* bytes are counted as in hw/collective.h. */
static enum dtp_status collective(struct dtp_comm_group *g, enum dtp_stream stream,
                                  enum dtp_collective kind, double bytes) {
    const struct shadow *s = shadow_of(g);
    struct dtp_coll_cost cost;
    if (!s->job)
        return DTP_OK;
    const struct shadow_group *mine = (const struct shadow_group *)g;
    dtp_coll_cost(s->job->cluster, kind, DTP_ALGO_AUTO, &mine->shape, bytes, &cost);
    return pause_for(s, stream, cost.time_s);
}

/* Returns true if the next kernels compute on the result, which then holds numbers of this rank instead of those of
 * the others. The numbers matter: a chip runs faster on zeros, or on what memory holds, than on activations. */
static bool computes_on(const struct shadow *s, enum dtp_stream stream) {
    return s->job && stream == DTP_STREAM_COMPUTE && strcmp(s->device->ops->name, "cpu") != 0;
}

static double bytes_of(int64_t n, enum dtp_dtype dtype) {
    return (double)n * dtp_dtype_bytes(dtype);
}

static enum dtp_status shadow_all_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                         int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                         struct dtp_err *err) {
    (void)x, (void)op, (void)err;
    return collective(g, stream, DTP_ALL_REDUCE, bytes_of(n, dtype));
}

static enum dtp_status shadow_reduce_scatter(struct dtp_comm_group *g, enum dtp_stream stream,
                                             void *out, const void *in, int64_t n,
                                             enum dtp_dtype dtype, struct dtp_err *err) {
    const struct shadow *s = shadow_of(g);
    uint64_t bytes = (uint64_t)bytes_of(n, dtype);
    (void)err;
    if (computes_on(s, stream))
        s->device->ops->copy(s->device, out, (const char *)in + (uint64_t)g->me * bytes, bytes);
    return collective(g, stream, DTP_REDUCE_SCATTER, bytes_of(n, dtype) * g->size);
}

static enum dtp_status shadow_all_gather(struct dtp_comm_group *g, enum dtp_stream stream,
                                         void *out, const void *in, int64_t n, enum dtp_dtype dtype,
                                         struct dtp_err *err) {
    const struct shadow *s = shadow_of(g);
    uint64_t bytes = (uint64_t)bytes_of(n, dtype);
    (void)err;
    if (!s->job)
        memmove(out, in, (size_t)bytes);
    for (int i = 0; computes_on(s, stream) && i < g->size; i++)
        s->device->ops->copy(s->device, (char *)out + (uint64_t)i * bytes, in, bytes);
    return collective(g, stream, DTP_ALL_GATHER, bytes_of(n, dtype) * g->size);
}

static enum dtp_status shadow_all_to_all(struct dtp_comm_group *g, enum dtp_stream stream,
                                         void *out, const void *in, int64_t n, enum dtp_dtype dtype,
                                         struct dtp_err *err) {
    (void)err;
    if (!shadow_of(g)->job)
        memmove(out, in, (size_t)bytes_of(n, dtype));
    return collective(g, stream, DTP_ALL_TO_ALL, bytes_of(n, dtype) * g->size);
}

static enum dtp_status message(struct dtp_comm *c, enum dtp_stream stream, int peer,
                               uint64_t bytes) {
    const struct shadow *s = (const struct shadow *)c;
    struct dtp_coll_cost cost;
    dtp_p2p_cost(s->job->cluster, c->rank, peer, 1, (double)bytes, &cost);
    return pause_for(s, stream, cost.time_s);
}

static enum dtp_status shadow_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                                   uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)x, (void)tag, (void)err;
    return message(c, stream, to, bytes);
}

static enum dtp_status shadow_recv(struct dtp_comm *c, enum dtp_stream stream, void *x,
                                   uint64_t bytes, int from, uint64_t tag, struct dtp_err *err) {
    const struct shadow *s = (const struct shadow *)c;
    (void)tag, (void)err;
    /* the numbers matter: on what other tensors left there a chip may run faster than on activations */
    if (s->job && strcmp(s->device->ops->name, "cpu") != 0)
        s->device->ops->fill(s->device, x, bytes / sizeof(float) * sizeof(float));
    return message(c, stream, from, bytes);
}

static enum dtp_status shadow_barrier(struct dtp_comm_group *g, struct dtp_err *err) {
    (void)g, (void)err;
    return DTP_OK;
}

static void shadow_doing(struct dtp_comm *c, const char *action) {
    (void)c, (void)action;
}

static void shadow_hang(struct dtp_comm *c, double waited_s, char *text, size_t size) {
    snprintf(text, size, "rank %d, alone, has waited %.1f s for its device", c->rank, waited_s);
}

static void shadow_abort(struct dtp_comm *c, const char *text) {
    (void)c, (void)text;
}

static const struct dtp_comm_ops shadow_ops = {
    .name = "shadow",
    .open = shadow_open,
    .close = shadow_close,
    .group = shadow_group,
    .all_reduce = shadow_all_reduce,
    .reduce_scatter = shadow_reduce_scatter,
    .all_gather = shadow_all_gather,
    .all_to_all = shadow_all_to_all,
    .send = shadow_send,
    .recv = shadow_recv,
    .barrier = shadow_barrier,
    .doing = shadow_doing,
    .hang = shadow_hang,
    .abort = shadow_abort,
};

const struct dtp_comm_ops *dtp_shadow_comm_ops(void) {
    return &shadow_ops;
}
