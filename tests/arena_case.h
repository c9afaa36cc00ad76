/* arena_case.h: the arena of a suite, from its setup to its teardown. */
#ifndef DTP_TESTS_ARENA_CASE_H
#define DTP_TESTS_ARENA_CASE_H

#include "sim/base/arena.h"

static struct dtp_arena *arena;

static inline int setup(void) {
    arena = dtp_arena_create("test");
    return 0;
}

static inline int teardown(void) {
    dtp_arena_destroy(arena);
    return 0;
}

#endif
