/* shared_case.h: files of ../shared, which a clone alone does not have. */
#ifndef DTP_TESTS_SHARED_CASE_H
#define DTP_TESTS_SHARED_CASE_H

#include <stdio.h>
#include <unistd.h>

#include "sim/base/text.h"

/* NULL, and said so, where it is missing. */
static inline const char *shared_file(struct dtp_arena *a, const char *file) {
    const char *path = dtp_arena_printf(a, "%s/../shared/%s", DTP_SOURCE_DIR, file);
    if (access(path, R_OK) == 0)
        return path;
    printf("skipped: %s is missing\n", path);
    return NULL;
}

#endif
