/* Any text is read as a log or refused with a message. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/logs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_nccl_log nccl;
    struct dtp_train_log train;
    const char *text = dtp_arena_strndup(a, (const char *)data, size);
    if (dtp_nccl_log_parse(a, "fuzz", text, &nccl, &err) == DTP_OK) {
        if (nccl.n == 0 || !(dtp_nccl_log_average_bytes_per_s(&nccl) >= 0))
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    if (dtp_train_log_parse(a, "fuzz", text, &train, &err) == DTP_OK &&
        !(dtp_train_log_median_s(a, &train, 1) > 0))
        abort();
    dtp_arena_destroy(a);
    return 0;
}
