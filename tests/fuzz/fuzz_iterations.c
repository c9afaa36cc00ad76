/* Any bytes are read as iteration times or refused with a message; the slowest is no faster than the mean. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/jobs/stragglers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_iterations t;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_iterations_read(a, s, &t, &err) == DTP_OK) {
        if (t.nworkers == 0 || t.niterations > t.rows || t.nworkers > t.rows)
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
