/* platform.h: the resources that activities share. There are two kinds, each numbered by a dense id:
 *
 * - LINK: a capacity in units/s shared max-min fairly by the activities that use it (a NIC
 *   direction, an NVLink port, a switch's up-links, the cores of a CPU host).
 * - DEVICE: computes at rate 1. While an activity that loads it with share x is under way (a
 *   collective whose kernels take SMs and memory bandwidth), the compute tasks on the device
 *   progress at rate 1 - (sum of the shares), at least DTP_DEVICE_MIN_RATE.
 *
 * sim knows nothing of GPUs: the code that builds the platform gives links and devices their meaning.
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

/* Starts an empty platform. Names of links must stay valid or be NULL. Links and devices each count ids from 0. */
void dtp_platform_init(struct dtp_platform *p, struct dtp_arena *a);
dtp_id dtp_platform_link(struct dtp_platform *p, double capacity_per_s, const char *name);
dtp_id dtp_platform_device(struct dtp_platform *p);

#endif
