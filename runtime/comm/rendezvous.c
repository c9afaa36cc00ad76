/* Who is where: every rank tells rank 0, rank 0 tells everybody. Plain TCP, all bytes in one order of
 * the sender's integers: a job does not mix byte orders. */
#include "runtime/launch.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/os_linux.h"
#include "runtime/comm/socket.h"
#include "sim/base/units.h"

enum { MAGIC = 0x64747072, BACKLOG = 1024 };

struct hello {
    uint32_t magic;
    int32_t size, rank;
    struct dtp_caller peer;
};

double dtp_seconds_left(int64_t deadline_ns) {
    return (double)(deadline_ns - dtp_os_now_ns()) / (double)DTP_NS_PER_S;
}

int64_t dtp_deadline_ns(double timeout_s) {
    return dtp_os_now_ns() + (int64_t)(timeout_s * (double)DTP_NS_PER_S);
}

bool dtp_socket_ready(int fd, short events, int64_t deadline_ns) {
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        double left_s = dtp_seconds_left(deadline_ns);
        if (left_s <= 0)
            return false;
        int ms = left_s < 1 ? (int)(left_s * DTP_KILO) + 1 : (int)DTP_KILO;
        int n = poll(&p, 1, ms);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

bool dtp_socket_transfer(int fd, void *x, size_t bytes, bool out, int64_t deadline_ns) {
    char *at = x;
    while (bytes > 0) {
        if (!dtp_socket_ready(fd, out ? POLLOUT : POLLIN, deadline_ns))
            return false;
        ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static struct addrinfo *resolve(const char *host, int port, bool passive) {
    char text[16];
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    snprintf(text, sizeof text, "%d", port);
    return getaddrinfo(host, text, &hints, &found) == 0 ? found : NULL;
}

int dtp_socket_listen(const char *host, int port) {
    struct addrinfo *at = resolve(host, port, true);
    if (!at)
        return -1;
    int one = 1, fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd >= 0 && (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(at);
    return fd;
}

int dtp_socket_connect(const char *host, int port) {
    struct addrinfo *at = resolve(host, port, false);
    if (!at)
        return -1;
    int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(at);
    return fd;
}

/* One caller of rank 0: its greeting goes into peers, its socket into sockets. */
static enum dtp_status admit(const struct dtp_endpoint *e, int fd, struct dtp_caller *peers,
                             int *sockets, struct dtp_err *err) {
    struct hello h;
    int64_t patience_ns = dtp_deadline_ns(5);
    if (!dtp_socket_transfer(fd, &h, sizeof h, false, patience_ns) || h.magic != MAGIC) {
        close(fd); /* a stranger */
        return DTP_OK;
    }
    if (h.size != e->size || h.rank <= 0 || h.rank >= e->size || sockets[h.rank] >= 0) {
        close(fd);
        return dtp_fail(err, DTP_EINPUT,
                        "rendezvous at %s:%d: a caller is rank %d of %d, expected "
                        "each of 1 .. %d once",
                        e->master_host, e->master_port, h.rank, h.size, e->size - 1);
    }
    sockets[h.rank] = fd;
    peers[h.rank] = h.peer;
    return DTP_OK;
}

static enum dtp_status gather(const struct dtp_endpoint *e, int listener, struct dtp_caller *peers,
                              int *sockets, struct dtp_err *err) {
    int64_t deadline_ns = dtp_deadline_ns(e->timeout_s);
    for (int missing = e->size - 1; missing > 0;) {
        if (!dtp_socket_ready(listener, POLLIN, deadline_ns))
            return dtp_fail(err, DTP_ENO, "rendezvous at %s:%d: %d of %d ranks came within %.0f s",
                            e->master_host, e->master_port, e->size - missing, e->size,
                            e->timeout_s);
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            DTP_TRY(admit(e, fd, peers, sockets, err));
        missing = 0;
        for (int r = 1; r < e->size; r++)
            missing += sockets[r] < 0;
    }
    for (int r = 1; r < e->size; r++)
        if (!dtp_socket_transfer(sockets[r], peers, (size_t)e->size * sizeof *peers, true,
                                 deadline_ns))
            return dtp_fail(err, DTP_ENO, "rendezvous: rank %d went away", r);
    return DTP_OK;
}

static enum dtp_status serve(const struct dtp_endpoint *e, struct dtp_caller *peers,
                             struct dtp_err *err) {
    int listener = -1;
    const struct timespec nap = {.tv_nsec = (long)(20 * DTP_NS_PER_MS)};
    int64_t deadline_ns = dtp_deadline_ns(e->timeout_s);
    /* the port may still be held by the listener of the previous rendezvous */
    while ((listener = dtp_socket_listen(NULL, e->master_port)) < 0 &&
           dtp_seconds_left(deadline_ns) > 0)
        nanosleep(&nap, NULL);
    if (listener < 0)
        return dtp_fail(err, DTP_ENO, "rank 0 cannot listen at port %d: %s", e->master_port,
                        strerror(errno));
    struct dtp_arena *a = dtp_arena_create("rendezvous");
    int *sockets = DTP_NEW(a, int, (size_t)e->size);
    for (int r = 0; r < e->size; r++)
        sockets[r] = -1;
    enum dtp_status status = gather(e, listener, peers, sockets, err);
    for (int r = 0; r < e->size; r++)
        if (sockets[r] >= 0)
            close(sockets[r]);
    close(listener);
    dtp_arena_destroy(a);
    return status;
}

/* Rank 0 may come later than we do, so each failure is a reason to try again. */
static enum dtp_status call(const struct dtp_endpoint *e, struct dtp_caller *peers,
                            struct dtp_err *err) {
    struct hello h = {.magic = MAGIC, .size = e->size, .rank = e->rank, .peer = peers[e->rank]};
    const struct timespec nap = {.tv_nsec = (long)(20 * DTP_NS_PER_MS)};
    int64_t deadline_ns = dtp_deadline_ns(e->timeout_s);
    while (dtp_seconds_left(deadline_ns) > 0) {
        int fd = dtp_socket_connect(e->master_host, e->master_port);
        bool done =
            fd >= 0 && dtp_socket_transfer(fd, &h, sizeof h, true, deadline_ns) &&
            dtp_socket_transfer(fd, peers, (size_t)e->size * sizeof *peers, false, deadline_ns);
        if (fd >= 0)
            close(fd);
        if (done)
            return DTP_OK;
        nanosleep(&nap, NULL);
    }
    return dtp_fail(err, DTP_ENO, "rank %d did not reach rank 0 at %s:%d within %.0f s", e->rank,
                    e->master_host, e->master_port, e->timeout_s);
}

enum dtp_status dtp_rendezvous(const struct dtp_endpoint *e, const unsigned char *blob,
                               struct dtp_caller *peers, struct dtp_err *err) {
    memset(peers, 0, (size_t)e->size * sizeof *peers);
    struct dtp_caller *own = &peers[e->rank];
    if (gethostname(own->host, sizeof own->host - 1) != 0)
        return dtp_fail(err, DTP_ENO, "gethostname: %s", strerror(errno));
    memcpy(own->blob, blob, DTP_BLOB_BYTES);
    if (e->size == 1)
        return DTP_OK;
    return e->rank == 0 ? serve(e, peers, err) : call(e, peers, err);
}
