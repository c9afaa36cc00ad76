/* Any bytes are read as a workload of AICB or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/aicb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_aicb w;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_aicb_read(a, s, 1e-9, &w, &err) == DTP_OK) {
        for (size_t i = 0; i < w.n; i++)
            if (w.row[i].group_size < 0 || !w.row[i].type)
                abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
