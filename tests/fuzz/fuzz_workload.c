/* Any text is read as a workload or refused with a message; no time is below 0. */
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
        for (size_t i = 0; i < w.nlayers; i++)
            for (int p = 0; p < DTP_NPHASES; p++)
                if (!(w.layer[i].phase[p].compute_s >= 0) || !w.layer[i].phase[p].collective)
                    abort();
    } else if (err.msg[0] == '\0' || err.status == DTP_OK) {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
