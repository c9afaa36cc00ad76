/* fuzz_scalars.h: any bytes are read as scalars or refused with a message. The target defines READ, the
 * reader. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/scalars.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_scalars scalars;
    dtp_scalars_init(a, &scalars);
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        READ(a, s, &scalars, &err) == DTP_OK) {
        for (size_t i = 0; i < scalars.n; i++)
            if (scalars.series[i].n == 0 || scalars.series[i].nan > scalars.series[i].n)
                abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
