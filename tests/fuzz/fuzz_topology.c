/* Any bytes are read as a topology of NCCL or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_topology *t = DTP_NEW(a, struct dtp_topology, 1);
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_topology_read(a, s, t, &err) == DTP_OK) {
        for (int i = 0; i < t->ngpus; i++)
            if (t->gpu[i].nic >= t->nused || t->link[i][i] < 0)
                abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
