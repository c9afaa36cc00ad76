#include "sim/platform.h"

void dtp_platform_init(struct dtp_platform *p, struct dtp_arena *a) {
    *p = (struct dtp_platform){.a = a};
}

dtp_id dtp_platform_link(struct dtp_platform *p, double capacity_per_s, const char *name) {
    if (p->nlinks == p->links_capacity) {
        uint32_t n = p->links_capacity ? 2 * p->links_capacity : 64;
        p->link_capacity_per_s =
            dtp_arena_grow(p->a, p->link_capacity_per_s, sizeof(double), p->nlinks, n);
        p->link_name = dtp_arena_grow(p->a, p->link_name, sizeof(char *), p->nlinks, n);
        p->links_capacity = n;
    }
    p->link_capacity_per_s[p->nlinks] = capacity_per_s;
    p->link_name[p->nlinks] = name;
    return p->nlinks++;
}

dtp_id dtp_platform_device(struct dtp_platform *p) {
    return p->ndevices++;
}
