/* TCP between hosts: who connects to whom, and the end. */
#include "runtime/comm_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "runtime/socket.h"

enum { LEAST_SLOT_BYTES = 1 << 16, EXTRA_SLOTS = 16, FAREWELL_ROUNDS = 20 };

struct tcp_blob {
    uint32_t address; /* network order */
    int port;
};

/* The address by which the others reach this host: that of the interface towards rank 0. */
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

static void tune(int fd) {
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int connect_to(const struct dtp_tcp *t, const struct dtp_caller *whom) {
    struct tcp_blob blob;
    char host[INET_ADDRSTRLEN];
    memcpy(&blob, whom->blob, sizeof blob);
    struct in_addr at = {.s_addr = blob.address};
    inet_ntop(AF_INET, &at, host, sizeof host);
    bool loopback = blob.address == htonl(INADDR_LOOPBACK);
    char own[64] = "";
    (void)gethostname(own, sizeof own - 1);
    /* where the master is given by name, hosts find each other by name too */
    const char *name = loopback && strcmp(own, whom->host) != 0 ? whom->host : host;
    int fd = dtp_socket_connect(name, blob.port);
    int32_t rank = t->comm.rank;
    if (fd >= 0 && !dtp_socket_transfer(fd, &rank, sizeof rank, true, dtp_deadline_ns(5))) {
        close(fd);
        return -1;
    }
    return fd;
}

static enum dtp_status mesh(struct dtp_tcp *t, int listener, const struct dtp_caller *all,
                            struct dtp_err *err) {
    int64_t deadline_ns = dtp_deadline_ns(t->config.timeout_s);
    for (int r = 0; r < t->comm.rank; r++)
        if ((t->peer[r].fd = connect_to(t, &all[r])) < 0)
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

static enum dtp_status make_slots(struct dtp_arena *a, struct dtp_tcp *t, struct dtp_err *err) {
    size_t n = (size_t)t->nslots, size = (size_t)t->comm.size;
    uint64_t each = 2 * (uint64_t)t->nslots * t->slot_bytes;
    char *data = dtp_os_map(each * size + t->slot_bytes, false); /* touched pages only */
    if (!data)
        return dtp_fail(err, DTP_ENOMEM, "rank %d: no memory for messages", t->comm.rank);
    t->scratch = data + each * size;
    for (size_t r = 0; r < size; r++) {
        struct dtp_tcp_peer *p = &t->peer[r];
        p->fd = -1;
        p->in = DTP_NEW(a, struct dtp_tcp_slot, 2 * n);
        p->out = p->in + n;
        for (size_t i = 0; i < 2 * n; i++)
            p->in[i].data = data + r * each + i * t->slot_bytes;
    }
    return DTP_OK;
}

static enum dtp_status tcp_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                                struct dtp_comm **out, struct dtp_err *err) {
    struct dtp_tcp *t = DTP_NEW(a, struct dtp_tcp, 1);
    unsigned char blob[DTP_BLOB_BYTES] = {0};
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    t->comm = (struct dtp_comm){dtp_tcp_comm_ops(), config->rank, config->size};
    t->config = *config;
    t->nslots = config->nmessages + EXTRA_SLOTS;
    t->slot_bytes =
        config->message_bytes > LEAST_SLOT_BYTES ? config->message_bytes : LEAST_SLOT_BYTES;
    t->peer = DTP_NEW(a, struct dtp_tcp_peer, (size_t)config->size);
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

static void say_to_all(struct dtp_tcp *t, uint64_t tag, const char *text) {
    struct dtp_tcp_head head = {tag, text ? strlen(text) + 1 : 0};
    for (int r = 0; r < t->comm.size; r++)
        if (t->peer[r].fd >= 0)
            (void)dtp_tcp_enqueue(t, r, head, text, NULL);
    for (int i = 0; i < FAREWELL_ROUNDS; i++) { /* what is still queued */
        bool pending = false;
        for (int r = 0; r < t->comm.size; r++)
            pending |= t->peer[r].fd >= 0 && dtp_tcp_pending(t, r);
        if (!pending)
            return;
        dtp_tcp_move(t);
    }
}

static void tcp_abort(struct dtp_comm *c, const char *message) {
    struct dtp_tcp *t = (struct dtp_tcp *)c;
    if (t->failure[0])
        return;
    say_to_all(t, DTP_TCP_ABORT, message);
    snprintf(t->failure, sizeof t->failure, "%s", message);
}

/* Closing a socket with unread data resets it, and the other side loses what we said last: so read on
 * until it has hung up too. */
static void hang_up(struct dtp_tcp *t) {
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
    struct dtp_tcp *t = (struct dtp_tcp *)c;
    /* who fails passes the first message on, or the others would only see a connection end */
    if (t->failure[0])
        say_to_all(t, DTP_TCP_ABORT, t->failure);
    else
        say_to_all(t, DTP_TCP_GOODBYE, NULL);
    hang_up(t);
}

static void tcp_doing(struct dtp_comm *c, const char *action) {
    struct dtp_tcp *t = (struct dtp_tcp *)c;
    if (action)
        snprintf(t->doing, sizeof t->doing, "%s", action);
}

/* Other hosts are seen by what they send only. */
static void tcp_hang(struct dtp_comm *c, double waited_s, char *text, size_t size) {
    snprintf(text, size, "another rank is stuck: rank %d has waited %.1f s in %s", c->rank,
             waited_s, ((const struct dtp_tcp *)c)->doing);
}

static const struct dtp_comm_ops tcp_ops = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .group = dtp_tcp_group,
    .all_reduce = dtp_tcp_all_reduce,
    .reduce_scatter = dtp_tcp_reduce_scatter,
    .all_gather = dtp_tcp_all_gather,
    .all_to_all = dtp_tcp_all_to_all,
    .send = dtp_tcp_send,
    .recv = dtp_tcp_recv,
    .barrier = dtp_tcp_barrier,
    .doing = tcp_doing,
    .hang = tcp_hang,
    .abort = tcp_abort,
};

const struct dtp_comm_ops *dtp_tcp_comm_ops(void) {
    return &tcp_ops;
}
