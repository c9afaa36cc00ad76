/* Any bytes are read as a configuration or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_run_config c;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_config_read(a, s, &c, &err) == DTP_OK) {
        if (c.found < 1 || c.layers < 0 || dtp_config_batch(&c) < 0 || dtp_config_gpus(&c) < 0)
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
