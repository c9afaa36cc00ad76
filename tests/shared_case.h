/* shared_case.h: paths of fixtures, which the repository has, and of larger samples, which lie in a folder `shared`
 * next to some checkouts. A test checks the fixtures everywhere and the samples in addition where they are. */
#ifndef DTP_TESTS_SHARED_CASE_H
#define DTP_TESTS_SHARED_CASE_H

#include <stdio.h>
#include <unistd.h>

#include "sim/base/text.h"

static inline const char *fixture_path(struct dtp_arena *a, const char *file) {
    return dtp_arena_printf(a, "%s/tests/fixtures/%s", DTP_SOURCE_DIR, file);
}

/* The path of a sample; NULL if this checkout has no samples. */
static inline const char *shared_file(struct dtp_arena *a, const char *file) {
    const char *path = dtp_arena_printf(a, "%s/../shared/%s", DTP_SOURCE_DIR, file);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
