/* socket.h: the few TCP calls of the rendezvous and of the TCP communicator, all with deadlines. */
#ifndef DTP_RUNTIME_SOCKET_H
#define DTP_RUNTIME_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t dtp_deadline_ns(double timeout_s); /* on the monotonic clock */
double dtp_seconds_left(int64_t deadline_ns);
/* -1: cannot. host NULL: all addresses; port 0: any. */
int dtp_socket_listen(const char *host, int port);
int dtp_socket_connect(const char *host, int port, int64_t deadline_ns);
bool dtp_socket_ready(int fd, short events, int64_t deadline_ns);
/* All bytes, or false: closed, failed or too late. */
bool dtp_socket_transfer(int fd, void *x, size_t bytes, bool out, int64_t deadline_ns);

#endif
