/* Collectives from messages: every member sends each other member what it needs, and adds up in the
 * order of ranks. Pieces fit a slot; a member is at most one piece ahead of any other. */
#include <string.h>

#include "runtime/comm_tcp.h"

struct tcp_group {
    struct dtp_comm_group group;
    enum dtp_group_kind kind;
    uint64_t piece; /* counts on over all collectives */
};

enum dtp_status dtp_tcp_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                              const int *ranks, int nranks, struct dtp_comm_group **out,
                              struct dtp_err *err) {
    struct tcp_group *g = DTP_NEW(a, struct tcp_group, 1);
    int *copy = DTP_NEW(a, int, (size_t)nranks), me = -1;
    for (int i = 0; i < nranks; i++) {
        copy[i] = ranks[i];
        me = ranks[i] == c->rank ? i : me;
    }
    g->group = (struct dtp_comm_group){.comm = c, .size = nranks, .me = me, .rank = copy};
    g->kind = kind;
    if (me < 0)
        return dtp_fail(err, DTP_EINPUT, "rank %d is no member of the group it opens", c->rank);
    *out = &g->group;
    return DTP_OK;
}

static uint64_t next_tag(struct tcp_group *g) {
    return DTP_TCP_COLLECTIVE | (uint64_t)g->kind << 56 | (g->piece++ & 0xffffffffffffff);
}

static struct dtp_tcp *tcp_of(const struct dtp_comm_group *g) {
    return (struct dtp_tcp *)g->comm;
}

static enum dtp_status send_to(struct dtp_comm_group *g, int member, const void *x, uint64_t bytes,
                               uint64_t tag, struct dtp_err *err) {
    return dtp_tcp_send(g->comm, DTP_STREAM_COMPUTE, x, bytes, g->rank[member], tag, err);
}

static enum dtp_status receive_from(struct dtp_comm_group *g, int member, void *x, uint64_t bytes,
                                    uint64_t tag, struct dtp_err *err) {
    return dtp_tcp_recv(g->comm, DTP_STREAM_COMPUTE, x, bytes, g->rank[member], tag, err);
}

static void combine(float *out, const float *x, int64_t n, enum dtp_reduce_op op) {
    for (int64_t i = 0; op == DTP_REDUCE_SUM && i < n; i++)
        out[i] += x[i];
    for (int64_t i = 0; op == DTP_REDUCE_MAX && i < n; i++)
        out[i] = x[i] > out[i] ? x[i] : out[i];
}

/* out[n] <- the reduction of what all members have for this one; parts[r] at in + r * stride. The own
 * part is read before out is written, so that out may be it. */
struct reduce_piece {
    float *out;
    const float *in;
    int64_t stride, n;
    enum dtp_reduce_op op;
};

static enum dtp_status reduce_piece(struct tcp_group *g, const struct reduce_piece *p,
                                    struct dtp_err *err) {
    int me = g->group.me, size = g->group.size;
    uint64_t tag = next_tag(g), bytes = (uint64_t)p->n * sizeof *p->in;
    float *scratch = (float *)(void *)tcp_of(&g->group)->scratch, *own = scratch + p->n;
    for (int r = 0; r < size; r++)
        if (r != me)
            DTP_TRY(send_to(&g->group, r, p->in + r * p->stride, bytes, tag, err));
    memcpy(own, p->in + me * p->stride, (size_t)bytes);
    for (int r = 0; r < size; r++) {
        if (r != me)
            DTP_TRY(receive_from(&g->group, r, scratch, bytes, tag, err));
        const float *x = r == me ? own : scratch;
        if (r == 0)
            memcpy(p->out, x, (size_t)bytes);
        else
            combine(p->out, x, p->n, p->op);
    }
    return DTP_OK;
}

static enum dtp_status only_fp32(enum dtp_dtype dtype, struct dtp_err *err) {
    if (dtype == DTP_FP32)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED, "TCP reduces fp32, not %s", dtp_dtype_names[dtype]);
}

static int64_t most_floats(const struct dtp_comm_group *g) {
    return (int64_t)(tcp_of(g)->slot_bytes / sizeof(float) / 2); /* scratch holds two pieces */
}

enum dtp_status dtp_tcp_reduce_scatter(struct dtp_comm_group *group, enum dtp_stream stream,
                                       void *out, const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err) {
    (void)stream;
    int64_t most = most_floats(group);
    DTP_TRY(only_fp32(dtype, err));
    for (int64_t at = 0; at < n; at += most) {
        const struct reduce_piece p = {(float *)out + at, (const float *)in + at, n,
                                       n - at < most ? n - at : most, DTP_REDUCE_SUM};
        DTP_TRY(reduce_piece((struct tcp_group *)group, &p, err));
    }
    return DTP_OK;
}

enum dtp_status dtp_tcp_all_gather(struct dtp_comm_group *group, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err) {
    (void)stream;
    struct tcp_group *g = (struct tcp_group *)group;
    uint64_t total = (uint64_t)n * (uint64_t)dtp_dtype_bytes(dtype);
    uint64_t most = tcp_of(group)->slot_bytes;
    char *to = out;
    memmove(to + (uint64_t)group->me * total, in, (size_t)total);
    for (uint64_t at = 0; at < total; at += most) {
        uint64_t count = total - at < most ? total - at : most, tag = next_tag(g);
        for (int r = 0; r < group->size; r++)
            if (r != group->me)
                DTP_TRY(send_to(group, r, (const char *)in + at, count, tag, err));
        for (int r = 0; r < group->size; r++)
            if (r != group->me)
                DTP_TRY(receive_from(group, r, to + (uint64_t)r * total + at, count, tag, err));
    }
    return DTP_OK;
}

/* A piece of size x part elements: each member reduces its part, then all gather the parts. */
enum dtp_status dtp_tcp_all_reduce(struct dtp_comm_group *group, enum dtp_stream stream, void *x,
                                   int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                   struct dtp_err *err) {
    (void)stream;
    struct tcp_group *g = (struct tcp_group *)group;
    int64_t size = group->size, most = most_floats(group), whole = n / size * size;
    DTP_TRY(only_fp32(dtype, err));
    for (int64_t at = 0; at < whole;) {
        int64_t part = (whole - at) / size < most ? (whole - at) / size : most;
        float *from = (float *)x + at, *own = from + group->me * part;
        const struct reduce_piece p = {own, from, part, part, op};
        DTP_TRY(reduce_piece(g, &p, err));
        DTP_TRY(dtp_tcp_all_gather(group, stream, from, own, part, dtype, err));
        at += part * size;
    }
    /* fewer elements than members: everybody reduces them all */
    const struct reduce_piece rest = {(float *)x + whole, (float *)x + whole, 0, n - whole, op};
    return n > whole ? reduce_piece(g, &rest, err) : DTP_OK;
}

enum dtp_status dtp_tcp_all_to_all(struct dtp_comm_group *group, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err) {
    (void)stream;
    struct tcp_group *g = (struct tcp_group *)group;
    uint64_t part = (uint64_t)n * (uint64_t)dtp_dtype_bytes(dtype),
             most = tcp_of(group)->slot_bytes;
    const char *from = in;
    char *to = out;
    memcpy(to + (uint64_t)group->me * part, from + (uint64_t)group->me * part, (size_t)part);
    for (uint64_t at = 0; at < part; at += most) {
        uint64_t count = part - at < most ? part - at : most, tag = next_tag(g);
        for (int r = 0; r < group->size; r++)
            if (r != group->me)
                DTP_TRY(send_to(group, r, from + (uint64_t)r * part + at, count, tag, err));
        for (int r = 0; r < group->size; r++)
            if (r != group->me)
                DTP_TRY(receive_from(group, r, to + (uint64_t)r * part + at, count, tag, err));
    }
    return DTP_OK;
}

enum dtp_status dtp_tcp_barrier(struct dtp_comm_group *group, struct dtp_err *err) {
    uint64_t tag = next_tag((struct tcp_group *)group);
    char token = 0;
    for (int r = 0; r < group->size; r++)
        if (r != group->me)
            DTP_TRY(send_to(group, r, &token, 1, tag, err));
    for (int r = 0; r < group->size; r++)
        if (r != group->me)
            DTP_TRY(receive_from(group, r, &token, 1, tag, err));
    return DTP_OK;
}
