/* TCP between hosts: a communicator with one socket for each pair of ranks.
 *
 * A message is {tag, bytes} and its data. A send copies into a slot and returns; whoever waits for anything moves the
 * data of all sockets (one thread, poll), so that no order of sends and receives blocks. Messages that nobody waits
 * for yet are kept in slots of their sender. */
#include "runtime/comm/comm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/socket.h"
#include "runtime/launch.h"
#include "runtime/os_linux.h"

struct head {
    uint64_t tag, bytes;
};

struct slot {
    bool taken, complete;
    uint64_t order; /* counts arrivals or departures */
    struct head head;
    char *data;
};

struct peer {
    int fd; /* -1: this rank itself, or closed */
    bool said_goodbye;
    struct slot *in, *out; /* [nslots] */
    uint64_t next_in, next_out;
    /* the message being written: header and data, bytes done */
    struct slot *writing;
    uint64_t written_bytes;
    /* the message being read */
    struct head head;
    uint64_t read_bytes; /* header included */
    char *read_to;       /* its data goes here: a slot's or the receiver's buffer */
    struct slot *reading;
};

/* The receive that this rank waits for. */
struct wanted {
    int from;
    uint64_t tag, bytes;
    char *to;
    bool done;
};

struct tcp {
    struct dtp_comm comm;
    struct dtp_comm_config config;
    struct peer *peer; /* [size] */
    struct pollfd *poll;
    int nslots;
    uint64_t slot_bytes;
    char *scratch; /* [slot_bytes] */
    struct wanted wanted;
    char doing[64];
    char failure[512]; /* first message of an abort, by anybody */
};

#define TAG_GOODBYE (UINT64_MAX - 1)
#define TAG_ABORT (UINT64_MAX - 2)
#define TAG_COLLECTIVE (UINT64_C(1) << 63)

enum { NAP_MS = 50 };

static struct slot *free_slot(const struct tcp *t, struct slot *slots) {
    for (int i = 0; i < t->nslots; i++)
        if (!slots[i].taken)
            return &slots[i];
    return NULL;
}

/* Returns the earliest complete slot with this tag, or with any (tag NULL). */
static struct slot *first_slot(const struct tcp *t, struct slot *slots, const uint64_t *tag) {
    struct slot *best = NULL;
    for (int i = 0; i < t->nslots; i++) {
        struct slot *s = &slots[i];
        if (s->taken && s->complete && (!tag || s->head.tag == *tag) &&
            (!best || s->order < best->order))
            best = s;
    }
    return best;
}

static enum dtp_status failed(const struct tcp *t, struct dtp_err *err) {
    return dtp_fail(err, DTP_ENO, "%s", t->failure);
}

/* ---- reading ---- */

/* The header is there: where does the data go? False: no slot, try again later. */
static bool choose_place(struct tcp *t, int from) {
    struct peer *p = &t->peer[from];
    struct wanted *w = &t->wanted;
    if (w->to && !w->done && w->from == from && w->tag == p->head.tag &&
        w->bytes == p->head.bytes) {
        p->read_to = w->to;
        return true;
    }
    p->reading = p->head.bytes <= t->slot_bytes ? free_slot(t, p->in) : NULL;
    if (!p->reading)
        return false;
    *p->reading = (struct slot){
        .taken = true, .order = p->next_in++, .head = p->head, .data = p->reading->data};
    p->read_to = p->reading->data;
    return true;
}

static void message_read(struct tcp *t, int from) {
    struct peer *p = &t->peer[from];
    if (p->reading)
        p->reading->complete = true;
    else
        t->wanted.done = true;
    if (p->head.tag == TAG_GOODBYE)
        p->said_goodbye = true;
    if (p->head.tag == TAG_ABORT && !t->failure[0])
        snprintf(t->failure, sizeof t->failure, "%s", p->reading ? p->reading->data : "aborted");
    p->reading = NULL;
    p->read_to = NULL;
    p->read_bytes = 0;
}

static void peer_lost(struct tcp *t, int from) {
    struct peer *p = &t->peer[from];
    close(p->fd);
    p->fd = -1;
    if (!p->said_goodbye && !t->failure[0])
        snprintf(t->failure, sizeof t->failure, "rank %d died: rank %d lost its connection in %s",
                 from, t->comm.rank, t->doing);
}

static void read_some(struct tcp *t, int from) {
    struct peer *p = &t->peer[from];
    for (;;) {
        bool in_head = p->read_bytes < sizeof p->head;
        if (!in_head && !p->read_to && !choose_place(t, from))
            return;
        uint64_t total = sizeof p->head + (in_head ? 0 : p->head.bytes);
        char *to = in_head ? (char *)&p->head + p->read_bytes
                           : p->read_to + (p->read_bytes - sizeof p->head);
        if (!in_head && p->read_bytes == total) {
            message_read(t, from);
            continue;
        }
        ssize_t n = recv(p->fd, to, (size_t)(total - p->read_bytes), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            peer_lost(t, from);
            return;
        }
        p->read_bytes += (uint64_t)n;
    }
}

/* ---- writing ---- */

static void write_some(struct tcp *t, int to) {
    struct peer *p = &t->peer[to];
    while (p->fd >= 0 && (p->writing || (p->writing = first_slot(t, p->out, NULL)))) {
        struct slot *s = p->writing;
        uint64_t head = sizeof s->head, total = head + s->head.bytes;
        const char *from = p->written_bytes < head ? (const char *)&s->head + p->written_bytes
                                                   : s->data + (p->written_bytes - head);
        uint64_t left = (p->written_bytes < head ? head : total) - p->written_bytes;
        ssize_t n = left ? send(p->fd, from, (size_t)left, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            peer_lost(t, to);
            return;
        }
        p->written_bytes += (uint64_t)n;
        if (p->written_bytes == total) {
            s->taken = s->complete = false;
            p->writing = NULL;
            p->written_bytes = 0;
        }
    }
}

/* ---- progress ---- */

static bool tcp_pending(const struct tcp *t, int to) {
    return t->peer[to].writing || first_slot(t, t->peer[to].out, NULL);
}

static void move_all(struct tcp *t, int wait_ms) {
    for (int r = 0; r < t->comm.size; r++) {
        short events = tcp_pending(t, r) ? POLLIN | POLLOUT : POLLIN;
        t->poll[r] = (struct pollfd){.fd = t->peer[r].fd, .events = events};
    }
    if (poll(t->poll, (nfds_t)t->comm.size, wait_ms) <= 0)
        return;
    for (int r = 0; r < t->comm.size; r++) {
        if (t->peer[r].fd >= 0 && (t->poll[r].revents & (POLLIN | POLLHUP | POLLERR)))
            read_some(t, r);
        if (t->peer[r].fd >= 0 && (t->poll[r].revents & POLLOUT))
            write_some(t, r);
    }
}

/* Moves data until *done (or once, with done NULL); DTP_ENO after the time-out, an abort or the death
 * of a rank. */
static enum dtp_status progress(struct tcp *t, const bool *done, struct dtp_err *err) {
    int64_t deadline_ns = dtp_deadline_ns(t->config.timeout_s);
    if (!done) {
        move_all(t, 0);
        return t->failure[0] ? failed(t, err) : DTP_OK;
    }
    while (!*done) {
        move_all(t, NAP_MS);
        if (t->failure[0])
            return failed(t, err);
        if (!*done && dtp_seconds_left(deadline_ns) <= 0) {
            char text[256];
            snprintf(text, sizeof text, "rank %d hangs or is late: rank %d has waited %.1f s in %s",
                     t->wanted.from, t->comm.rank, t->config.timeout_s, t->doing);
            t->comm.ops->abort(&t->comm, text);
            return failed(t, err);
        }
    }
    return DTP_OK;
}

static enum dtp_status tcp_enqueue(struct tcp *t, int to, struct head head, const void *x,
                                   struct dtp_err *err) {
    struct peer *p = &t->peer[to];
    struct slot *s;
    int64_t deadline_ns = dtp_deadline_ns(t->config.timeout_s);
    while (!(s = free_slot(t, p->out))) {
        move_all(t, NAP_MS);
        if (t->failure[0])
            return failed(t, err);
        if (dtp_seconds_left(deadline_ns) <= 0)
            return dtp_fail(err, DTP_ENO, "rank %d does not take what rank %d sends in %s", to,
                            t->comm.rank, t->doing);
    }
    *s = (struct slot){
        .taken = true, .complete = true, .order = p->next_out++, .head = head, .data = s->data};
    if (head.bytes > 0)
        memcpy(s->data, x, (size_t)head.bytes);
    write_some(t, to);
    return DTP_OK;
}

static enum dtp_status tcp_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                                uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct tcp *t = (struct tcp *)c;
    if (bytes > t->slot_bytes)
        return dtp_fail(err, DTP_EINPUT, "rank %d: a message of %llu bytes, slots hold %llu",
                        c->rank, (unsigned long long)bytes, (unsigned long long)t->slot_bytes);
    DTP_TRY(tcp_enqueue(t, to, (struct head){tag, bytes}, x, err));
    return progress(t, NULL, err);
}

static enum dtp_status tcp_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                                int from, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct tcp *t = (struct tcp *)c;
    struct peer *p = &t->peer[from];
    struct slot *s = first_slot(t, p->in, &tag);
    t->wanted = (struct wanted){.from = from, .tag = tag, .bytes = bytes, .to = x};
    while (!s && !t->wanted.done) {
        bool moved = p->reading && p->reading->head.tag == tag; /* on its way into a slot */
        const bool *done = moved ? &p->reading->complete : &t->wanted.done;
        DTP_TRY(progress(t, done, err));
        s = first_slot(t, p->in, &tag);
    }
    t->wanted.to = NULL;
    if (!s)
        return DTP_OK;
    if (s->head.bytes != bytes)
        return dtp_fail(err, DTP_EINPUT, "rank %d expects %llu bytes from rank %d, which sent %llu",
                        c->rank, (unsigned long long)bytes, from,
                        (unsigned long long)s->head.bytes);
    memcpy(x, s->data, (size_t)bytes);
    s->taken = s->complete = false;
    return DTP_OK;
}

/* ---- collectives from messages ----
 *
 * Every member sends each other member what it needs, and adds up in the order of ranks. Pieces fit a slot; a member
 * is at most one piece ahead of any other. */

struct tcp_group {
    struct dtp_comm_group group;
    enum dtp_group_kind kind;
    uint64_t piece; /* counts on over all collectives */
};

static enum dtp_status tcp_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                                 const int *ranks, int nranks, struct dtp_comm_group **out,
                                 struct dtp_err *err) {
    struct tcp_group *g = DTP_NEW(a, struct tcp_group, 1);
    DTP_TRY(dtp_comm_members(a, c, ranks, nranks, &g->group, err));
    g->kind = kind;
    *out = &g->group;
    return DTP_OK;
}

static uint64_t next_tag(struct tcp_group *g) {
    return TAG_COLLECTIVE | (uint64_t)g->kind << 56 | (g->piece++ & 0xffffffffffffff);
}

static struct tcp *tcp_of(const struct dtp_comm_group *g) {
    return (struct tcp *)g->comm;
}

static enum dtp_status send_to(struct dtp_comm_group *g, int member, const void *x, uint64_t bytes,
                               uint64_t tag, struct dtp_err *err) {
    return tcp_send(g->comm, DTP_STREAM_COMPUTE, x, bytes, g->rank[member], tag, err);
}

static enum dtp_status receive_from(struct dtp_comm_group *g, int member, void *x, uint64_t bytes,
                                    uint64_t tag, struct dtp_err *err) {
    return tcp_recv(g->comm, DTP_STREAM_COMPUTE, x, bytes, g->rank[member], tag, err);
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
            dtp_comm_combine(p->out, x, p->n, p->op);
    }
    return DTP_OK;
}

static int64_t most_floats(const struct dtp_comm_group *g) {
    return (int64_t)(tcp_of(g)->slot_bytes / sizeof(float) / 2); /* scratch holds two pieces */
}

static enum dtp_status tcp_reduce_scatter(struct dtp_comm_group *group, enum dtp_stream stream,
                                          void *out, const void *in, int64_t n,
                                          enum dtp_dtype dtype, struct dtp_err *err) {
    (void)stream;
    int64_t most = most_floats(group);
    DTP_TRY(dtp_comm_only_fp32("TCP", dtype, err));
    for (int64_t at = 0; at < n; at += most) {
        const struct reduce_piece p = {(float *)out + at, (const float *)in + at, n,
                                       n - at < most ? n - at : most, DTP_REDUCE_SUM};
        DTP_TRY(reduce_piece((struct tcp_group *)group, &p, err));
    }
    return DTP_OK;
}

static enum dtp_status tcp_all_gather(struct dtp_comm_group *group, enum dtp_stream stream,
                                      void *out, const void *in, int64_t n, enum dtp_dtype dtype,
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
static enum dtp_status tcp_all_reduce(struct dtp_comm_group *group, enum dtp_stream stream, void *x,
                                      int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                      struct dtp_err *err) {
    (void)stream;
    struct tcp_group *g = (struct tcp_group *)group;
    int64_t size = group->size, most = most_floats(group), whole = n / size * size;
    DTP_TRY(dtp_comm_only_fp32("TCP", dtype, err));
    for (int64_t at = 0; at < whole;) {
        int64_t part = (whole - at) / size < most ? (whole - at) / size : most;
        float *from = (float *)x + at, *own = from + group->me * part;
        const struct reduce_piece p = {own, from, part, part, op};
        DTP_TRY(reduce_piece(g, &p, err));
        DTP_TRY(tcp_all_gather(group, stream, from, own, part, dtype, err));
        at += part * size;
    }
    /* fewer elements than members: everybody reduces them all */
    const struct reduce_piece rest = {(float *)x + whole, (float *)x + whole, 0, n - whole, op};
    return n > whole ? reduce_piece(g, &rest, err) : DTP_OK;
}

static enum dtp_status tcp_all_to_all(struct dtp_comm_group *group, enum dtp_stream stream,
                                      void *out, const void *in, int64_t n, enum dtp_dtype dtype,
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

static enum dtp_status tcp_barrier(struct dtp_comm_group *group, struct dtp_err *err) {
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

/* ---- opening: who connects to whom; closing ---- */

enum { LEAST_SLOT_BYTES = 1 << 16, EXTRA_SLOTS = 16, FAREWELL_ROUNDS = 20 };

struct tcp_blob {
    uint32_t address; /* network order */
    int port;
};

/* Returns the address by which the others reach this host: that of the interface towards rank 0. */
static uint32_t own_address(const struct dtp_endpoint *e) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct in_addr master;
    uint32_t address = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (inet_pton(AF_INET, e->master_host, &master) != 1 || master.s_addr == address)
        return address; /* a name: see connect_to() */
    at.sin_addr = master;
    int fd = socket(AF_INET, SOCK_DGRAM, 0); /* connecting a datagram socket sends nothing */
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &size) == 0)
        address = at.sin_addr.s_addr;
    if (fd >= 0)
        close(fd);
    return address;
}

/* A host that lost its power or its network says no goodbye: its kernel stops to answer probes and to acknowledge data.
 * A rank that computes, hangs or is stopped goes on to do both. */
static void tune(int fd) {
    int one = 1, idle_s = 2, interval_s = 1, probes = 6, unacknowledged_ms = 8000;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
                     sizeof unacknowledged_ms);
}

static int connect_to(const struct tcp *t, const struct dtp_caller *whom, int64_t deadline_ns) {
    struct tcp_blob blob;
    char host[INET_ADDRSTRLEN];
    memcpy(&blob, whom->blob, sizeof blob);
    struct in_addr at = {.s_addr = blob.address};
    inet_ntop(AF_INET, &at, host, sizeof host);
    bool loopback = blob.address == htonl(INADDR_LOOPBACK);
    char own[64] = "";
    (void)gethostname(own, sizeof own - 1);
    /* if the master is given by name, hosts find each other by name too */
    const char *name = loopback && strcmp(own, whom->host) != 0 ? whom->host : host;
    int fd = dtp_socket_connect(name, blob.port, deadline_ns);
    int32_t rank = t->comm.rank;
    if (fd >= 0 && !dtp_socket_transfer(fd, &rank, sizeof rank, true, deadline_ns)) {
        close(fd);
        return -1;
    }
    return fd;
}

static enum dtp_status mesh(struct tcp *t, int listener, const struct dtp_caller *all,
                            struct dtp_err *err) {
    int64_t deadline_ns = dtp_deadline_ns(t->config.timeout_s);
    for (int r = 0; r < t->comm.rank; r++)
        if ((t->peer[r].fd = connect_to(t, &all[r], deadline_ns)) < 0)
            return dtp_fail(err, DTP_ENO, "rank %d cannot connect to rank %d on %s", t->comm.rank,
                            r, all[r].host);
    for (int missing = t->comm.size - 1 - t->comm.rank; missing > 0;) {
        int32_t rank = -1;
        int fd =
            dtp_socket_ready(listener, POLLIN, deadline_ns) ? accept(listener, NULL, NULL) : -1;
        if (fd < 0)
            return dtp_fail(err, DTP_ENO, "rank %d: %d ranks did not connect within %.0f s",
                            t->comm.rank, missing, t->config.timeout_s);
        if (!dtp_socket_transfer(fd, &rank, sizeof rank, false, dtp_deadline_ns(5)) ||
            rank <= t->comm.rank || rank >= t->comm.size || t->peer[rank].fd >= 0) {
            close(fd);
            continue;
        }
        t->peer[rank].fd = fd;
        missing--;
    }
    for (int r = 0; r < t->comm.size; r++)
        if (t->peer[r].fd >= 0)
            tune(t->peer[r].fd);
    return DTP_OK;
}

static enum dtp_status make_slots(struct dtp_arena *a, struct tcp *t, struct dtp_err *err) {
    size_t n = (size_t)t->nslots, size = (size_t)t->comm.size;
    uint64_t each = 2 * (uint64_t)t->nslots * t->slot_bytes;
    char *data = dtp_os_map(each * size + t->slot_bytes, false); /* touched pages only */
    if (!data)
        return dtp_fail(err, DTP_ENOMEM, "rank %d: no memory for messages", t->comm.rank);
    t->scratch = data + each * size;
    for (size_t r = 0; r < size; r++) {
        struct peer *p = &t->peer[r];
        p->fd = -1;
        p->in = DTP_NEW(a, struct slot, 2 * n);
        p->out = p->in + n;
        for (size_t i = 0; i < 2 * n; i++)
            p->in[i].data = data + r * each + i * t->slot_bytes;
    }
    return DTP_OK;
}

static enum dtp_status tcp_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                                struct dtp_comm **out, struct dtp_err *err) {
    struct tcp *t = DTP_NEW(a, struct tcp, 1);
    unsigned char blob[DTP_BLOB_BYTES] = {0};
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    t->comm = (struct dtp_comm){dtp_tcp_comm_ops(), config->rank, config->size};
    t->config = *config;
    t->nslots = config->nmessages + EXTRA_SLOTS;
    t->slot_bytes =
        config->message_bytes > LEAST_SLOT_BYTES ? config->message_bytes : LEAST_SLOT_BYTES;
    t->peer = DTP_NEW(a, struct peer, (size_t)config->size);
    t->poll = DTP_NEW(a, struct pollfd, (size_t)config->size);
    DTP_TRY(make_slots(a, t, err));
    int listener = dtp_socket_listen(NULL, 0);
    if (listener < 0 || getsockname(listener, (struct sockaddr *)&at, &size) != 0)
        return dtp_fail(err, DTP_ENO, "rank %d cannot listen: %s", config->rank, strerror(errno));
    const struct tcp_blob mine = {.address = own_address(config->endpoint),
                                  .port = ntohs(at.sin_port)};
    memcpy(blob, &mine, sizeof mine);
    struct dtp_caller *all = DTP_NEW(a, struct dtp_caller, (size_t)config->size);
    enum dtp_status status = dtp_rendezvous(config->endpoint, blob, all, err);
    if (status == DTP_OK)
        status = mesh(t, listener, all, err);
    close(listener);
    *out = &t->comm;
    return status;
}

static void say_to_all(struct tcp *t, uint64_t tag, const char *text) {
    struct head head = {tag, text ? strlen(text) + 1 : 0};
    for (int r = 0; r < t->comm.size; r++)
        if (t->peer[r].fd >= 0)
            (void)tcp_enqueue(t, r, head, text, NULL);
    for (int i = 0; i < FAREWELL_ROUNDS; i++) { /* sends what is still queued */
        bool pending = false;
        for (int r = 0; r < t->comm.size; r++)
            pending |= t->peer[r].fd >= 0 && tcp_pending(t, r);
        if (!pending)
            return;
        move_all(t, NAP_MS);
    }
}

static void tcp_abort(struct dtp_comm *c, const char *message) {
    struct tcp *t = (struct tcp *)c;
    if (t->failure[0])
        return;
    say_to_all(t, TAG_ABORT, message);
    snprintf(t->failure, sizeof t->failure, "%s", message);
}

/* Closing a socket with unread data resets it, and the other side loses what we said last: so read on
 * until it has hung up too. */
static void hang_up(struct tcp *t) {
    const double patience_s = 1;
    char sink[512];
    int64_t deadline_ns = dtp_deadline_ns(patience_s);
    for (int r = 0; r < t->comm.size; r++)
        if (t->peer[r].fd >= 0)
            (void)shutdown(t->peer[r].fd, SHUT_WR);
    for (int r = 0; r < t->comm.size; r++) {
        int fd = t->peer[r].fd;
        if (fd < 0)
            continue;
        while (dtp_socket_ready(fd, POLLIN, deadline_ns) && recv(fd, sink, sizeof sink, 0) > 0)
            continue;
        close(fd);
    }
}

static void tcp_close(struct dtp_comm *c) {
    struct tcp *t = (struct tcp *)c;
    /* who fails passes the first message on, or the others would only see a connection end */
    if (t->failure[0])
        say_to_all(t, TAG_ABORT, t->failure);
    else
        say_to_all(t, TAG_GOODBYE, NULL);
    hang_up(t);
}

static void tcp_doing(struct dtp_comm *c, const char *action) {
    struct tcp *t = (struct tcp *)c;
    if (action)
        snprintf(t->doing, sizeof t->doing, "%s", action);
}

/* Other hosts are seen by what they send only. */
static void tcp_hang(struct dtp_comm *c, double waited_s, char *text, size_t size) {
    snprintf(text, size, "another rank is stuck: rank %d has waited %.1f s in %s", c->rank,
             waited_s, ((const struct tcp *)c)->doing);
}

static const struct dtp_comm_ops tcp_ops = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .group = tcp_group,
    .all_reduce = tcp_all_reduce,
    .reduce_scatter = tcp_reduce_scatter,
    .all_gather = tcp_all_gather,
    .all_to_all = tcp_all_to_all,
    .send = tcp_send,
    .recv = tcp_recv,
    .barrier = tcp_barrier,
    .doing = tcp_doing,
    .hang = tcp_hang,
    .abort = tcp_abort,
};

const struct dtp_comm_ops *dtp_tcp_comm_ops(void) {
    return &tcp_ops;
}
