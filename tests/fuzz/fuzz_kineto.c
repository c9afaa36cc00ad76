/* Any bytes are read as a trace or refused with a message; what was read obeys trace.h. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "traces/formats/kineto.h"

static void check(const struct dtp_trace_rank *r) {
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->dur_ns < 0 || dtp_trace_end_ns(e) < e->start_ns || e->lane >= r->nlanes ||
            e->name >= dtp_trace_nnames(r))
            abort();
        if (e->launch != DTP_TRACE_NONE && e->launch >= r->nevents)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_source *s;
    struct dtp_trace_rank r;
    dtp_trace_rank_init(&r, a, "fuzz");
    if (dtp_source_memory(a, "fuzz", data, size, &s, &err) == DTP_OK) {
        if (dtp_kineto_read(s, NULL, &r, &err) == DTP_OK)
            check(&r);
        else if (err.msg[0] == '\0' || err.status != DTP_EINPUT)
            abort();
        dtp_source_close(s);
    }
    dtp_arena_destroy(a);
    return 0;
}
