/* intern.h: each text once: names of kernels, users of jobs. Ids count from 0 in order of arrival. */
#ifndef DTP_TRACES_FORMATS_INTERN_H
#define DTP_TRACES_FORMATS_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"

struct dtp_intern {
    struct dtp_arena *a;
    const char **at; /* [n] */
    uint32_t n;
    /* private: open addressing over ids, at most half full; slot holds id + 1, or 0 */
    uint32_t *length, *hash, *slot;
    uint32_t capacity, nslots;
};

struct dtp_intern *dtp_intern_create(struct dtp_arena *a);
uint32_t dtp_intern_add(struct dtp_intern *t, const char *s, size_t n);
bool dtp_intern_find(const struct dtp_intern *t, const char *s, size_t n, uint32_t *out);
/* Returns the kept text itself. */
const char *dtp_intern_text(struct dtp_intern *t, const char *s);

#endif
