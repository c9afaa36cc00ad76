/* Any text is read as a workload or refused with a message; sums do not exceed the layers. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/workload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_workload w;
    struct dtp_source *s = NULL;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_workload_read(a, s, 1e-9, &w, &err) == DTP_OK) {
        uint64_t count, bytes;
        dtp_workload_sum(&w, "ALLREDUCE", &count, &bytes);
        if (count > w.nlayers * DTP_NPHASES)
            abort();
    } else if (err.msg[0] == '\0' || err.status == DTP_OK) {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
