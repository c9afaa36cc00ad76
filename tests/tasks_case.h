/* tasks_case.h: tasks written to a file and read back, for tests of the writers. */
#ifndef DTP_TESTS_TASKS_CASE_H
#define DTP_TESTS_TASKS_CASE_H

#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/json.h"
#include "traces/replay/replay.h"
#include "traces/tasks/tasks.h"

static inline const struct dtp_json *case_events(struct dtp_arena *a, const char *path) {
    const struct dtp_json *root = NULL;
    struct dtp_err err = {0};
    if (dtp_json_read_file(a, path, &root, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("not JSON");
    }
    return dtp_json_get(root, "traceEvents");
}

static inline const char *case_text(const struct dtp_json *e, const char *key) {
    const struct dtp_json *j = dtp_json_get(e, key);
    return j && dtp_json_type(j) == DTP_JSON_STRING ? dtp_json_string(j) : "";
}

static inline double case_number(const struct dtp_json *e, const char *key) {
    const struct dtp_json *j = dtp_json_get(e, key);
    return j && dtp_json_type(j) == DTP_JSON_NUMBER ? dtp_json_number(j) : (double)NAN;
}

static inline int case_count(const struct dtp_json *events, const char *phase, const char *name) {
    int n = 0;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        n += strcmp(case_text(e, "ph"), phase) == 0 &&
             (!name || strcmp(case_text(e, "name"), name) == 0);
    }
    return n;
}

/* Writes, loads as the command line does, and replays; the step, or NAN. */
static inline double case_replayed_s(struct dtp_arena *a, const struct dtp_tasks *tasks,
                                     const char *path, const struct dtp_replay_options *options) {
    struct dtp_trace trace;
    struct dtp_replay replay;
    struct dtp_err err = {0};
    enum dtp_status status = dtp_tasks_write(a, tasks, path, &err);
    if (status == DTP_OK)
        status = dtp_trace_load(a, &path, 1, NULL, &trace, &err);
    if (status == DTP_OK)
        status = dtp_replay(a, &trace, options, &replay, &err);
    if (status != DTP_OK) {
        printf("\n  %s\n", err.msg);
        return (double)NAN;
    }
    return replay.nranks > 0 && replay.rank[0].nsteps > 0 ? replay.rank[0].step[0].replayed_s
                                                          : (double)NAN;
}

#endif
