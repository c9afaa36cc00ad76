/* Any bytes are read as a table of jobs or refused with a message; what is kept is in order. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/jobs/jobs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s = NULL;
    struct dtp_jobs jobs;
    dtp_jobs_init(a, &jobs);
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK &&
        dtp_jobs_read(a, s, &jobs, &err) == DTP_OK) {
        dtp_jobs_finish(a, &jobs);
        for (size_t i = 0; i < jobs.n; i++)
            if (!jobs.job[i].id[0] || (i > 0 && jobs.job[i].submit_s < jobs.job[i - 1].submit_s))
                abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    dtp_source_close(s);
    dtp_arena_destroy(a);
    return 0;
}
