/* measured_rows.h: what the tests of measured rows share: files of rows, and the case that is made of one row. */
#ifndef DTP_TESTS_MEASURED_ROWS_H
#define DTP_TESTS_MEASURED_ROWS_H

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/arena_case.h"
#include "traces/validate/measured.h"

#define HEADER                                                                                     \
    "id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,tp,pp,"    \
    "vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s,peak_mem,peak_mem_unit\n"

static inline const char *file_of(const char *text) {
    char *path = dtp_arena_strdup(arena, "/tmp/dtplan-runs-XXXXXX");
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_FATAL(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static inline struct dtp_runs read_runs(const char *text) {
    struct dtp_runs runs = {0};
    struct dtp_err err = {0};
    const char *path = file_of(text);
    if (dtp_runs_read(arena, path, &runs, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("dtp_runs_read");
    }
    unlink(path);
    return runs;
}

static inline struct dtp_run_case *case_of_file(const char *text) {
    struct dtp_runs r = read_runs(text);
    struct dtp_run_library *library;
    struct dtp_run_case *c = DTP_NEW(arena, struct dtp_run_case, 1);
    CU_ASSERT_FATAL(r.n == 1);
    CU_ASSERT_FATAL(dtp_run_library_create(arena, &library, NULL) == DTP_OK);
    dtp_run_case_make(arena, library, &r.at[0], c);
    return c;
}

static inline struct dtp_run_case *case_of(const char *row) {
    return case_of_file(dtp_arena_printf(arena, HEADER "%s\n", row));
}

#endif
