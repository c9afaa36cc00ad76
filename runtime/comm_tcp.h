/* comm_tcp.h: messages over TCP between ranks of several hosts; internal to the communicator.
 *
 * Every pair of ranks has one socket. A message is {tag, bytes} and its data. A send copies into a slot
 * and returns; whoever waits for anything moves all sockets along (one thread, poll), so that no order
 * of sends and receives blocks. Messages that nobody waits for yet are kept in slots of their sender. */
#ifndef DTP_RUNTIME_COMM_TCP_H
#define DTP_RUNTIME_COMM_TCP_H

#include "runtime/comm.h"

struct dtp_tcp_head {
    uint64_t tag, bytes;
};

struct dtp_tcp_slot {
    bool taken, complete;
    uint64_t order; /* of arrival or departure */
    struct dtp_tcp_head head;
    char *data;
};

struct dtp_tcp_peer {
    int fd; /* -1: this rank itself, or closed */
    bool said_goodbye;
    struct dtp_tcp_slot *in, *out; /* [nslots] */
    uint64_t next_in, next_out;
    /* the message being written: header and data, bytes done */
    struct dtp_tcp_slot *writing;
    uint64_t written_bytes;
    /* the message being read */
    struct dtp_tcp_head head;
    uint64_t read_bytes; /* header included */
    char *read_to;       /* where its data goes: a slot's or the waiting receiver's */
    struct dtp_tcp_slot *reading;
};

/* The receive that this rank waits for. */
struct dtp_tcp_wanted {
    int from;
    uint64_t tag, bytes;
    char *to;
    bool done;
};

struct dtp_tcp {
    struct dtp_comm comm;
    struct dtp_comm_config config;
    struct dtp_tcp_peer *peer; /* [size] */
    struct pollfd *poll;
    int nslots;
    uint64_t slot_bytes;
    char *scratch; /* [slot_bytes] */
    struct dtp_tcp_wanted wanted;
    char doing[64];
    char failure[512]; /* first message of an abort, by anybody */
};

#define DTP_TCP_GOODBYE (UINT64_MAX - 1)
#define DTP_TCP_ABORT (UINT64_MAX - 2)
#define DTP_TCP_COLLECTIVE (UINT64_C(1) << 63)

bool dtp_tcp_pending(const struct dtp_tcp *t, int to); /* something is left to write */
void dtp_tcp_move(struct dtp_tcp *t);                  /* once, waiting a little */
enum dtp_status dtp_tcp_enqueue(struct dtp_tcp *t, int to, struct dtp_tcp_head head, const void *x,
                                struct dtp_err *err);
enum dtp_status dtp_tcp_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                             uint64_t bytes, int to, uint64_t tag, struct dtp_err *err);
enum dtp_status dtp_tcp_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                             int from, uint64_t tag, struct dtp_err *err);

/* comm_tcp_collective.c */
enum dtp_status dtp_tcp_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                              const int *ranks, int nranks, struct dtp_comm_group **out,
                              struct dtp_err *err);
enum dtp_status dtp_tcp_all_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                   int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                   struct dtp_err *err);
enum dtp_status dtp_tcp_reduce_scatter(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                       const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err);
enum dtp_status dtp_tcp_all_gather(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err);
enum dtp_status dtp_tcp_all_to_all(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err);
enum dtp_status dtp_tcp_barrier(struct dtp_comm_group *g, struct dtp_err *err);

#endif
