/* Any bytes are read as a report of Nsight Systems or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/nsys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_trace_rank *rank;
    size_t n;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_nsys_read(a, s, NULL, &rank, &n, &err) == DTP_OK) {
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < rank[r].nevents; i++)
                if (dtp_trace_event(&rank[r], i)->dur_ns < 0)
                    abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
