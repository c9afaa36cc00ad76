/* os_linux.h: system calls of Linux that POSIX lacks, for the communicator and the launcher. */
#ifndef DTP_RUNTIME_OS_LINUX_H
#define DTP_RUNTIME_OS_LINUX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/units.h"

#define DTP_NS_PER_S ((int64_t)DTP_GIGA)
#define DTP_NS_PER_MS (DTP_NS_PER_S / 1000)

/* Sleeps while *word is while_value, at most timeout_ns; may wake for nothing. Between processes. */
void dtp_os_futex_wait(const atomic_uint *word, unsigned while_value, int64_t timeout_ns);
void dtp_os_futex_wake(const atomic_uint *word);
/* The calling process is killed when its parent ends. parent: its process id before the fork. */
void dtp_os_die_with_parent(int parent);
/* Zeroed pages that take memory only when touched; NULL when refused. */
void *dtp_os_map(uint64_t bytes, bool shared);
/* Memory without a name that other processes of the host map through /proc: nothing to unlink. The
 * creator keeps *fd open until the others have attached. NULL when refused. */
void *dtp_os_memory_create(uint64_t bytes, int *fd);
void *dtp_os_memory_attach(int process, int fd, uint64_t bytes);
void dtp_os_relax(void); /* a pause in a spin loop */
void dtp_os_yield(void);

void dtp_os_cpu_name(char *out, size_t size); /* "AMD EPYC ...", or "?" */

#endif
