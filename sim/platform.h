/* platform.h: what activities share. Two kinds of resource, both by dense id:
 *
 * - LINK: a capacity in units/s shared max-min fairly by the activities that use it (a NIC
 *   direction, an NVLink port, a switch's up-links, the cores of a CPU host).
 * - DEVICE: computes at rate 1. While an activity that loads it with share x is under way (a
 *   collective whose kernels take SMs and memory bandwidth), the compute tasks on the device
 *   progress at rate 1 - (sum of the shares), at least DTP_DEVICE_MIN_RATE.
 *
 * sim knows nothing of GPUs: who builds the platform gives the meaning.
 */
#ifndef DTP_SIM_PLATFORM_H
#define DTP_SIM_PLATFORM_H

#include <stdint.h>

#include "sim/base/arena.h"

typedef uint32_t dtp_id;
#define DTP_NONE UINT32_MAX
#define DTP_DEVICE_MIN_RATE 0.05

struct dtp_platform {
    struct dtp_arena *a;
    double *link_capacity_per_s; /* [nlinks] units of work per second, > 0 */
    const char **link_name;      /* [nlinks] may hold NULL */
    uint32_t nlinks, links_capacity;
    uint32_t ndevices;
};

/* Empty; names must stay, NULL is none. Ids count from 0, links and devices apart. */
void dtp_platform_init(struct dtp_platform *p, struct dtp_arena *a);
dtp_id dtp_platform_link(struct dtp_platform *p, double capacity_per_s, const char *name);
dtp_id dtp_platform_device(struct dtp_platform *p);

#endif
