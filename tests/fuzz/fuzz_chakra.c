/* Any bytes are read as a graph or refused; a graph that was read, written and read again, is the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/chakra.h"

static void check_again(struct dtp_arena *a, const struct dtp_chakra *g) {
    char *bytes = NULL;
    size_t n = 0;
    struct dtp_source *s;
    struct dtp_chakra again;
    struct dtp_err err = {0};
    FILE *f = open_memstream(&bytes, &n);
    if (!f)
        abort();
    dtp_chakra_write(f, g);
    fclose(f);
    if (dtp_source_memory(a, "again", bytes, n, &s, &err) != DTP_OK ||
        dtp_chakra_read(a, s, &again, &err) != DTP_OK || again.nnodes != g->nnodes ||
        again.ndeps != g->ndeps || again.ndangling != g->ndangling)
        abort();
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (again.node[i].id != g->node[i].id || again.node[i].dur_us != g->node[i].dur_us ||
            again.node[i].type != g->node[i].type ||
            again.node[i].comm_bytes != g->node[i].comm_bytes)
            abort();
    dtp_source_close(s);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s;
    struct dtp_chakra g;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK) {
        if (dtp_chakra_read(a, s, &g, &err) == DTP_OK)
            check_again(a, &g);
        else if (err.msg[0] == '\0' || err.status != DTP_EINPUT)
            abort();
        dtp_source_close(s);
    }
    dtp_arena_destroy(a);
    return 0;
}
