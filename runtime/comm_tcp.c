/* TCP between hosts: moving messages along. */
#include "runtime/comm_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/socket.h"

enum { NAP_MS = 50 };

static struct dtp_tcp_slot *free_slot(const struct dtp_tcp *t, struct dtp_tcp_slot *slots) {
    for (int i = 0; i < t->nslots; i++)
        if (!slots[i].taken)
            return &slots[i];
    return NULL;
}

/* The earliest complete slot with this tag, or with any (tag NULL). */
static struct dtp_tcp_slot *first_slot(const struct dtp_tcp *t, struct dtp_tcp_slot *slots,
                                       const uint64_t *tag) {
    struct dtp_tcp_slot *best = NULL;
    for (int i = 0; i < t->nslots; i++) {
        struct dtp_tcp_slot *s = &slots[i];
        if (s->taken && s->complete && (!tag || s->head.tag == *tag) &&
            (!best || s->order < best->order))
            best = s;
    }
    return best;
}

static enum dtp_status failed(const struct dtp_tcp *t, struct dtp_err *err) {
    return dtp_fail(err, DTP_ENO, "%s", t->failure);
}

/* ---- reading ---- */

/* The header is there: where does the data go? False: no slot, try again later. */
static bool choose_place(struct dtp_tcp *t, int from) {
    struct dtp_tcp_peer *p = &t->peer[from];
    struct dtp_tcp_wanted *w = &t->wanted;
    if (w->to && !w->done && w->from == from && w->tag == p->head.tag &&
        w->bytes == p->head.bytes) {
        p->read_to = w->to;
        return true;
    }
    p->reading = p->head.bytes <= t->slot_bytes ? free_slot(t, p->in) : NULL;
    if (!p->reading)
        return false;
    *p->reading = (struct dtp_tcp_slot){
        .taken = true, .order = p->next_in++, .head = p->head, .data = p->reading->data};
    p->read_to = p->reading->data;
    return true;
}

static void message_read(struct dtp_tcp *t, int from) {
    struct dtp_tcp_peer *p = &t->peer[from];
    if (p->reading)
        p->reading->complete = true;
    else
        t->wanted.done = true;
    if (p->head.tag == DTP_TCP_GOODBYE)
        p->said_goodbye = true;
    if (p->head.tag == DTP_TCP_ABORT && !t->failure[0])
        snprintf(t->failure, sizeof t->failure, "%s", p->reading ? p->reading->data : "aborted");
    p->reading = NULL;
    p->read_to = NULL;
    p->read_bytes = 0;
}

static void peer_lost(struct dtp_tcp *t, int from) {
    struct dtp_tcp_peer *p = &t->peer[from];
    close(p->fd);
    p->fd = -1;
    if (!p->said_goodbye && !t->failure[0])
        snprintf(t->failure, sizeof t->failure, "rank %d died: rank %d lost its connection in %s",
                 from, t->comm.rank, t->doing);
}

static void read_some(struct dtp_tcp *t, int from) {
    struct dtp_tcp_peer *p = &t->peer[from];
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

static void write_some(struct dtp_tcp *t, int to) {
    struct dtp_tcp_peer *p = &t->peer[to];
    while (p->fd >= 0 && (p->writing || (p->writing = first_slot(t, p->out, NULL)))) {
        struct dtp_tcp_slot *s = p->writing;
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

bool dtp_tcp_pending(const struct dtp_tcp *t, int to) {
    return t->peer[to].writing || first_slot(t, t->peer[to].out, NULL);
}

static void move_all(struct dtp_tcp *t, int wait_ms) {
    for (int r = 0; r < t->comm.size; r++) {
        struct dtp_tcp_peer *p = &t->peer[r];
        bool pending = p->writing || first_slot(t, p->out, NULL);
        t->poll[r] =
            (struct pollfd){.fd = p->fd, .events = (short)(POLLIN | (pending ? POLLOUT : 0))};
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

void dtp_tcp_move(struct dtp_tcp *t) {
    move_all(t, NAP_MS);
}

/* Moves data until *done (or once, with done NULL); DTP_ENO after the time-out, an abort or the death
 * of a rank. */
static enum dtp_status progress(struct dtp_tcp *t, const bool *done, struct dtp_err *err) {
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

enum dtp_status dtp_tcp_enqueue(struct dtp_tcp *t, int to, struct dtp_tcp_head head, const void *x,
                                struct dtp_err *err) {
    struct dtp_tcp_peer *p = &t->peer[to];
    struct dtp_tcp_slot *s;
    int64_t deadline_ns = dtp_deadline_ns(t->config.timeout_s);
    while (!(s = free_slot(t, p->out))) {
        move_all(t, NAP_MS);
        if (t->failure[0])
            return failed(t, err);
        if (dtp_seconds_left(deadline_ns) <= 0)
            return dtp_fail(err, DTP_ENO, "rank %d does not take what rank %d sends in %s", to,
                            t->comm.rank, t->doing);
    }
    *s = (struct dtp_tcp_slot){
        .taken = true, .complete = true, .order = p->next_out++, .head = head, .data = s->data};
    if (head.bytes > 0)
        memcpy(s->data, x, (size_t)head.bytes);
    write_some(t, to);
    return DTP_OK;
}

enum dtp_status dtp_tcp_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                             uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct dtp_tcp *t = (struct dtp_tcp *)c;
    if (bytes > t->slot_bytes)
        return dtp_fail(err, DTP_EINPUT, "rank %d: a message of %llu bytes, slots hold %llu",
                        c->rank, (unsigned long long)bytes, (unsigned long long)t->slot_bytes);
    DTP_TRY(dtp_tcp_enqueue(t, to, (struct dtp_tcp_head){tag, bytes}, x, err));
    return progress(t, NULL, err);
}

enum dtp_status dtp_tcp_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                             int from, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct dtp_tcp *t = (struct dtp_tcp *)c;
    struct dtp_tcp_peer *p = &t->peer[from];
    struct dtp_tcp_slot *s = first_slot(t, p->in, &tag);
    t->wanted = (struct dtp_tcp_wanted){.from = from, .tag = tag, .bytes = bytes, .to = x};
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
