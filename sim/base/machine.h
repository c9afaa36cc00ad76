/* machine.h: what the machine, and the control group that this process runs in, have of memory.
 *
 * A container or a batch system limits a process by its control group (cgroups(7)) and by those around it:
 * the smallest counts. Of what a group uses, pages of files that were not touched for long are given back
 * when memory runs short, and count as free (as MemAvailable of proc(5) counts them for the machine).
 */
#ifndef DTP_SIM_BASE_MACHINE_H
#define DTP_SIM_BASE_MACHINE_H

#include <stdint.h>

struct dtp_machine_memory {
    uint64_t total_bytes; /* the machine's, or the group's limit if that is less */
    uint64_t free_bytes;  /* what could still be had; UINT64_MAX where nothing says */
};

/* root: a folder put before /proc and /sys; "" except in tests. */
struct dtp_machine_memory dtp_machine_memory(const char *root);

#endif
