/* arena_bytes.h: how much of an arena is in use. Its test includes arena.c, whose structs it reads, in place of the
 * library's. */
#ifndef DTP_TESTS_ARENA_BYTES_H
#define DTP_TESTS_ARENA_BYTES_H

#include "sim/base/arena.c"

static inline size_t arena_used_bytes(const struct dtp_arena *a) {
    size_t n = a->current ? a->current->used : 0;
    for (const struct block *b = a->first; b != a->current; b = b->next)
        n += b->used;
    return n;
}

#endif
