/* Any text is read as a log or refused with a message; statistics are in order. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/logs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_log log;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_log_read(a, s, &log, &err) == DTP_OK) {
        if (!(dtp_nccl_log_average_bytes_per_s(&log.nccl) >= 0))
            abort();
        for (size_t i = 0; i < log.scalars.n; i++) {
            struct dtp_series_stats stats;
            dtp_series_stats(&log.scalars.series[i], &stats);
            if (stats.n > 0 && !(stats.min <= stats.median && stats.median <= stats.max))
                abort();
        }
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
