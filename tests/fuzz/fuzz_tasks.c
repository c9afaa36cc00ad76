/* Any bytes are read as a timeline or refused; one that was read is replayed or refused, laid out, and
 * written and read again it has the same tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "traces/replay/infer.h"
#include "traces/replay/replay.h"
#include "traces/tasks/tasks_internal.h"

static void check_again(struct dtp_arena *a, const struct dtp_tasks *t) {
    char *bytes = NULL;
    size_t n = 0;
    struct dtp_source *s;
    struct dtp_tasks *again = NULL;
    struct dtp_err err = {0};
    FILE *f = open_memstream(&bytes, &n);
    if (!f || tasks_write_chrome(a, f, t, &err) != DTP_OK)
        abort();
    fclose(f);
    if (dtp_source_memory(a, "again", bytes, n, &s, &err) != DTP_OK ||
        dtp_tasks_read(a, s, &again, &err) != DTP_OK || again->ntasks != t->ntasks ||
        again->ndeps != t->ndeps || again->nranks != t->nranks)
        abort();
    for (uint32_t i = 0; i < t->ntasks; i++)
        if (again->task[i].start_s != t->task[i].start_s ||
            again->task[i].end_s != t->task[i].end_s || again->task[i].rank != t->task[i].rank ||
            strcmp(again->task[i].name, t->task[i].name) != 0)
            abort();
    dtp_source_close(s);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s;
    struct dtp_tasks *t;
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK) {
        if (dtp_tasks_read(a, s, &t, &err) == DTP_OK) {
            struct dtp_trace trace;
            struct dtp_replay replay;
            struct dtp_inferred inferred;
            check_again(a, t);
            dtp_tasks_to_trace(a, t, "fuzz", &trace);
            enum dtp_status status = dtp_replay(a, &trace, &DTP_REPLAY_AS_MEASURED, &replay, &err);
            if (status != DTP_OK && status != DTP_EINPUT)
                abort();
            dtp_infer(a, &trace, &inferred);
        } else if (err.msg[0] == '\0' || err.status != DTP_EINPUT) {
            abort();
        }
        dtp_source_close(s);
    }
    dtp_arena_destroy(a);
    return 0;
}
