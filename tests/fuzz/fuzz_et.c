/* Any bytes are read as an execution trace or refused with a message; sums stay within the nodes. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/et.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_et et;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_et_read(a, s, &et, &err) == DTP_OK) {
        const struct dtp_et_count *ops;
        size_t n;
        uint64_t sum = 0;
        dtp_et_ops(a, &et, &ops, &n);
        for (size_t i = 0; i < n; i++)
            sum += ops[i].count;
        if (sum != et.nnodes || et.ncomms > et.nnodes)
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
