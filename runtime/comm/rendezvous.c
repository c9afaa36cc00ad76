/* Who is where: every rank tells rank 0, rank 0 tells everybody. Plain TCP, all bytes in one order of
 * the sender's integers: a job does not mix byte orders.
 *
 *   rank r -> rank 0: struct hello, text      what r trains, or why it cannot start
 *   rank 0 -> rank r: its magic               at once: this is the rank 0 of your job
 *   rank 0 -> rank r: struct verdict, peers   when all have come; without peers where the job ends
 * Rank 0 reads from all callers at a time, so that one who says nothing holds nobody up. */
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/socket.h"
#include "runtime/facts.h"
#include "runtime/os_linux.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

enum { MAGIC = 0x64747073, BACKLOG = 1024, MOST_STRANGERS = 256 };

struct hello {
    uint32_t magic;
    int32_t size, rank;
    int32_t failed; /* with this status, 0: the text says what it trains */
    uint64_t job;
    uint32_t text_bytes, unused;
    struct dtp_caller peer;
};

struct verdict {
    int32_t status;
    char text[508];
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

/* Without waiting beyond the deadline, as connect() itself would for a host that does not answer. */
static bool connect_until(int fd, const struct addrinfo *at, int64_t deadline_ns) {
    int flags = fcntl(fd, F_GETFL), failure = 0;
    socklen_t size = sizeof failure;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return false;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || !dtp_socket_ready(fd, POLLOUT, deadline_ns) ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0 || failure != 0))
        return false;
    return fcntl(fd, F_SETFL, flags) == 0;
}

int dtp_socket_connect(const char *host, int port, int64_t deadline_ns) {
    struct addrinfo *at = resolve(host, port, false);
    if (!at)
        return -1;
    int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd >= 0 && !connect_until(fd, at, deadline_ns)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(at);
    return fd;
}

/* ---- rank 0 ---- */

/* Who has connected: of a rank once its greeting is complete. */
struct visitor {
    int fd; /* -1: none */
    uint64_t order, read_bytes;
    struct hello hello;
    char *text;
};

struct server {
    const struct dtp_endpoint *e;
    struct dtp_arena *a;
    int listener, missing;
    struct visitor
        *visitor; /* [size + MOST_STRANGERS]: one of each rank, and who has not said a greeting */
    struct pollfd *poll; /* likewise, and the listener */
    uint64_t visits;
    struct dtp_caller *peers;
    struct verdict verdict;
    int64_t deadline_ns;
};

static int visitors(const struct server *s) {
    return s->e->size + MOST_STRANGERS;
}

static void leave(struct visitor *v) {
    if (v->fd >= 0)
        close(v->fd);
    v->fd = -1;
}

/* The first reason stands; who waits for more ranks then does so for a moment only. */
static void end_job(struct server *s, int status, const char *text) {
    const double grace_s = 3;
    int64_t soon_ns = dtp_deadline_ns(grace_s);
    if (s->verdict.status != DTP_OK)
        return;
    s->verdict.status = status;
    snprintf(s->verdict.text, sizeof s->verdict.text, "%s", text);
    s->deadline_ns = soon_ns < s->deadline_ns ? soon_ns : s->deadline_ns;
}

static void tell(struct server *s, struct visitor *v) {
    int64_t patience_ns = dtp_deadline_ns(5);
    size_t bytes = (size_t)s->e->size * sizeof *s->peers;
    bool told = dtp_socket_transfer(v->fd, &s->verdict, sizeof s->verdict, true, patience_ns);
    if (told && s->verdict.status == DTP_OK &&
        !dtp_socket_transfer(v->fd, s->peers, bytes, true, patience_ns))
        end_job(s, DTP_ENO, dtp_arena_printf(s->a, "rank %d went away", v->hello.rank));
    leave(v);
}

/* Compares what rank 0 trains with what a caller trains. */
static void compare_facts(struct server *s, const struct visitor *v) {
    const struct dtp_json *x, *y;
    if (!s->e->facts || strcmp(s->e->facts, v->text) == 0)
        return;
    const struct dtp_json_difference *d = NULL;
    if (dtp_json_parse(s->a, "rank 0", s->e->facts, strlen(s->e->facts), &x, NULL) == DTP_OK &&
        dtp_json_parse(s->a, "a caller", v->text, strlen(v->text), &y, NULL) == DTP_OK)
        d = dtp_json_differ(s->a, x, y);
    end_job(s, DTP_EINPUT,
            d ? dtp_arena_printf(
                    s->a, "ranks train different things: %s is %s on rank 0 and %s on rank %d",
                    d->path, d->x, d->y, v->hello.rank)
              : dtp_arena_printf(s->a, "rank %d sent what rank 0 cannot read", v->hello.rank));
}

static bool has_hung_up(int fd) {
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* A complete greeting. */
static void admit(struct server *s, struct visitor *v) {
    const struct hello *h = &v->hello;
    uint32_t magic = MAGIC;
    if (h->size != s->e->size || h->rank <= 0 || h->rank >= s->e->size) {
        end_job(s, DTP_EINPUT,
                dtp_arena_printf(s->a, "a caller is rank %d of %d, expected each of 1 .. %d once",
                                 h->rank, h->size, s->e->size - 1));
        tell(s, v);
        return;
    }
    struct visitor *seat = &s->visitor[h->rank];
    if (seat->fd >= 0 && has_hung_up(seat->fd))
        leave(seat);
    if (seat->fd >= 0)
        end_job(s, DTP_EINPUT, dtp_arena_printf(s->a, "two callers are rank %d", h->rank));
    if (seat->fd >= 0 ||
        !dtp_socket_transfer(v->fd, &magic, sizeof magic, true, dtp_deadline_ns(1))) {
        leave(v);
        return;
    }
    *seat = *v;
    v->fd = -1;
    s->peers[h->rank] = h->peer;
    if (h->failed != 0)
        end_job(s, h->failed,
                dtp_arena_printf(s->a, "rank %d cannot start: %s", h->rank, seat->text));
    else
        compare_facts(s, seat);
}

static void hear(struct server *s, struct visitor *v) {
    struct hello *h = &v->hello;
    bool in_head = v->read_bytes < sizeof *h;
    char *to = in_head ? (char *)h + v->read_bytes : v->text + (v->read_bytes - sizeof *h);
    uint64_t total = sizeof *h + (in_head ? 0 : h->text_bytes);
    ssize_t n = recv(v->fd, to, (size_t)(total - v->read_bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        leave(v);
        return;
    }
    v->read_bytes += (uint64_t)n;
    if (in_head && v->read_bytes == sizeof *h) {
        if (h->magic != MAGIC || h->job != s->e->job || h->text_bytes >= DTP_FACTS_MOST_BYTES) {
            leave(v); /* a stranger */
            return;
        }
        v->text = dtp_arena_alloc(s->a, 1, (size_t)h->text_bytes + 1);
    }
    if (v->read_bytes >= sizeof *h && v->read_bytes == sizeof *h + h->text_bytes)
        admit(s, v);
}

/* In place of the first to come among those who have not said a greeting, where all seats are taken. */
static void let_in(struct server *s) {
    int fd = accept(s->listener, NULL, NULL);
    struct visitor *seat = &s->visitor[s->e->size];
    if (fd < 0)
        return;
    for (struct visitor *v = seat; v < s->visitor + visitors(s); v++)
        if (seat->fd >= 0 && (v->fd < 0 || v->order < seat->order))
            seat = v;
    leave(seat);
    *seat = (struct visitor){.fd = fd, .order = s->visits++};
}

/* Everybody who is there, or comes before the deadline; after a failure those hear it at once. */
static void gather(struct server *s) {
    int n = visitors(s);
    for (s->missing = s->e->size - 1; s->missing > 0 && dtp_seconds_left(s->deadline_ns) > 0;) {
        const int most_ms = 100;
        for (int i = 0; i < n; i++)
            s->poll[i] =
                (struct pollfd){.fd = i < s->e->size ? -1 : s->visitor[i].fd, .events = POLLIN};
        s->poll[n] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        (void)poll(s->poll, (nfds_t)n + 1, most_ms);
        for (int i = s->e->size; i < n; i++)
            if (s->visitor[i].fd >= 0 && s->poll[i].revents)
                hear(s, &s->visitor[i]);
        if (s->poll[n].revents)
            let_in(s);
        s->missing = 0;
        for (int r = 1; r < s->e->size; r++) {
            bool came = s->visitor[r].read_bytes > 0;
            s->missing += !came;
            if (came && s->visitor[r].fd >= 0 && s->verdict.status != DTP_OK)
                tell(s, &s->visitor[r]);
        }
    }
    if (s->missing > 0)
        end_job(s, DTP_ENO,
                dtp_arena_printf(s->a, "rendezvous at %s:%d: %d of %d ranks came within %.0f s",
                                 s->e->master_host, s->e->master_port, s->e->size - s->missing,
                                 s->e->size, s->e->timeout_s));
    for (int r = 1; r < s->e->size; r++)
        if (s->visitor[r].fd >= 0)
            tell(s, &s->visitor[r]);
}

/* At the first of the ports that is free. */
static int listen_somewhere(const struct dtp_endpoint *e) {
    const struct timespec nap = {.tv_nsec = (long)(20 * DTP_NS_PER_MS)};
    int64_t deadline_ns = dtp_deadline_ns(e->timeout_s);
    do {
        for (int i = 0; i < DTP_MASTER_PORTS; i++) {
            int fd = dtp_socket_listen(NULL, e->master_port + i);
            if (fd >= 0)
                return fd;
        }
        nanosleep(&nap, NULL);
    } while (dtp_seconds_left(deadline_ns) > 0);
    return -1;
}

/* why: rank 0 itself cannot start; NULL: it can. */
static enum dtp_status serve(const struct dtp_endpoint *e, const struct dtp_err *why,
                             struct dtp_caller *peers, struct dtp_err *err) {
    int listener = listen_somewhere(e);
    if (listener < 0)
        return dtp_fail(err, DTP_ENO, "rank 0 cannot listen at any port from %d to %d: %s",
                        e->master_port, e->master_port + DTP_MASTER_PORTS - 1, strerror(errno));
    struct dtp_arena *a = dtp_arena_create("rendezvous");
    struct server s = {.e = e, .a = a, .listener = listener, .peers = peers};
    size_t n = (size_t)visitors(&s);
    s.visitor = DTP_NEW(a, struct visitor, n);
    s.poll = DTP_NEW(a, struct pollfd, n + 1);
    s.deadline_ns = dtp_deadline_ns(e->timeout_s);
    for (size_t i = 0; i < n; i++)
        s.visitor[i].fd = -1;
    if (why)
        end_job(&s, (int)why->status, dtp_arena_printf(a, "rank 0 cannot start: %s", why->msg));
    gather(&s);
    for (size_t i = 0; i < n; i++)
        leave(&s.visitor[i]);
    close(listener);
    enum dtp_status status = (enum dtp_status)s.verdict.status;
    if (status != DTP_OK)
        (void)dtp_fail(err, status, "%s", s.verdict.text);
    dtp_arena_destroy(a);
    return status;
}

/* ---- the others ---- */

/* A port at which the rank 0 of this job answers; -1: not this one. */
static int call_port(const struct dtp_endpoint *e, int port, struct hello *h, const char *text,
                     int64_t deadline_ns) {
    const double patience_s = 2;
    int64_t soon_ns = dtp_deadline_ns(patience_s);
    uint32_t magic = 0;
    soon_ns = soon_ns < deadline_ns ? soon_ns : deadline_ns;
    int fd = dtp_socket_connect(e->master_host, port, soon_ns);
    if (fd < 0)
        return -1;
    if (dtp_socket_transfer(fd, h, sizeof *h, true, soon_ns) &&
        dtp_socket_transfer(fd, (char *)(uintptr_t)text, h->text_bytes, true, soon_ns) &&
        dtp_socket_transfer(fd, &magic, sizeof magic, false, soon_ns) && magic == MAGIC)
        return fd;
    close(fd);
    return -1;
}

/* Rank 0 may come later than we do, so each failure is a reason to try again. */
static enum dtp_status call(const struct dtp_endpoint *e, const struct dtp_err *why,
                            struct dtp_caller *peers, struct dtp_err *err) {
    const char *text = why ? why->msg : e->facts ? e->facts : "";
    struct hello h = {.magic = MAGIC,
                      .size = e->size,
                      .rank = e->rank,
                      .failed = why ? (int32_t)why->status : 0,
                      .job = e->job,
                      .text_bytes = (uint32_t)strlen(text),
                      .peer = peers[e->rank]};
    const struct timespec nap = {.tv_nsec = (long)(20 * DTP_NS_PER_MS)};
    int64_t deadline_ns = dtp_deadline_ns(e->timeout_s);
    for (int i = 0; dtp_seconds_left(deadline_ns) > 0; i++) {
        struct verdict v;
        size_t bytes = (size_t)e->size * sizeof *peers;
        int fd = call_port(e, e->master_port + i % DTP_MASTER_PORTS, &h, text, deadline_ns);
        if (fd < 0) {
            nanosleep(&nap, NULL);
            continue;
        }
        /* rank 0 answers at its own deadline at the latest, which may be a little behind ours */
        int64_t last_ns = deadline_ns + 2 * DTP_NS_PER_S;
        bool told = dtp_socket_transfer(fd, &v, sizeof v, false, last_ns);
        bool done =
            told && (v.status != DTP_OK || dtp_socket_transfer(fd, peers, bytes, false, last_ns));
        close(fd);
        v.text[sizeof v.text - 1] = '\0';
        if (done)
            return v.status == DTP_OK ? DTP_OK
                                      : dtp_fail(err, (enum dtp_status)v.status, "%s", v.text);
        return dtp_fail(err, DTP_ENO,
                        "rank 0 left the rendezvous at %s:%d before rank %d had its answer",
                        e->master_host, e->master_port, e->rank);
    }
    return dtp_fail(
        err, DTP_ENO, "rank %d did not reach rank 0 at %s, ports %d to %d, within %.0f s", e->rank,
        e->master_host, e->master_port, e->master_port + DTP_MASTER_PORTS - 1, e->timeout_s);
}

static enum dtp_status meet(const struct dtp_endpoint *e, const struct dtp_err *why,
                            struct dtp_caller *peers, struct dtp_err *err) {
    if (e->met)
        *e->met = true;
    if (e->size == 1)
        return DTP_OK;
    return e->rank == 0 ? serve(e, why, peers, err) : call(e, why, peers, err);
}

enum dtp_status dtp_rendezvous(const struct dtp_endpoint *e, const unsigned char *blob,
                               struct dtp_caller *peers, struct dtp_err *err) {
    memset(peers, 0, (size_t)e->size * sizeof *peers);
    struct dtp_caller *own = &peers[e->rank];
    if (gethostname(own->host, sizeof own->host - 1) != 0)
        return dtp_fail(err, DTP_ENO, "gethostname: %s", strerror(errno));
    memcpy(own->blob, blob, DTP_BLOB_BYTES);
    return meet(e, NULL, peers, err);
}

void dtp_rendezvous_fail(const struct dtp_endpoint *e, const struct dtp_err *why) {
    const double most_s = 10;
    struct dtp_endpoint short_e = *e;
    struct dtp_arena *a = dtp_arena_create("failure");
    struct dtp_err ignored;
    short_e.timeout_s = e->timeout_s < most_s ? e->timeout_s : most_s;
    (void)meet(&short_e, why, DTP_NEW(a, struct dtp_caller, (size_t)e->size), &ignored);
    dtp_arena_destroy(a);
}
