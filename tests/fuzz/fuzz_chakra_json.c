/* Any bytes are read as a Chakra graph in JSON or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/chakra.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_chakra g;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_chakra_read_json(a, s, &g, &err) == DTP_OK) {
        uint64_t deps = 0;
        for (uint32_t i = 0; i < g.nnodes; i++)
            deps += g.node[i].nctrl + g.node[i].ndata;
        if (deps != g.ndeps || g.ndangling > g.ndeps)
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
