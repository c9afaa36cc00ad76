/* Timelines read back: the replay of a measured job, written and read, replays to the same steps; broken files
 * are refused. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/text.h"
#include "tests/shared_case.h"
#include "tests/suites.h"
#include "traces/replay/replay.h"
#include "traces/tasks/tasks.h"

static struct dtp_arena *arena;

/* The replay of a measured job, written and read back, replays to the same steps. */
static void check_measured(const char *const *paths, size_t n) {
    struct dtp_trace trace, again;
    struct dtp_replay first, second;
    struct dtp_tasks *tasks = NULL;
    struct dtp_err err = {0};
    const char *path = dtp_arena_printf(arena, "/tmp/dtp_tasks_read_%ld.json.gz", (long)getpid());
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    o.kernel_speed = 1.25;
    o.out_tasks = &tasks;
    CU_ASSERT_FATAL(dtp_trace_load(arena, paths, n, NULL, &trace, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_replay(arena, &trace, &o, &first, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_tasks_write(arena, tasks, path, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_trace_load(arena, &path, 1, NULL, &again, &err) == DTP_OK);
    remove(path);
    CU_ASSERT_FATAL(dtp_replay(arena, &again, &DTP_REPLAY_AS_MEASURED, &second, &err) == DTP_OK);
    CU_ASSERT_FATAL(second.nranks == first.nranks && second.explained_pct == first.explained_pct);
    for (size_t r = 0; r < first.nranks; r++) {
        CU_ASSERT_FATAL(second.rank[r].nsteps == first.rank[r].nsteps);
        for (size_t s = 0; s < first.rank[r].nsteps; s++)
            CU_ASSERT_DOUBLE_EQUAL(second.rank[r].step[s].replayed_s,
                                   first.rank[r].step[s].replayed_s, 1e-9);
    }
}

static void test_measured(void) {
    const char *job[] = {fixture_path(arena, "traces/job_rank0.json"),
                         fixture_path(arena, "traces/job_rank1.json")};
    const char *fsdp[] = {shared_file(arena, "traces/kineto-h200-2rank/k_fsdp2_rank0.json.gz"),
                          shared_file(arena, "traces/kineto-h200-2rank/k_fsdp2_rank1.json.gz")};
    const char *dlrm = shared_file(arena, "traces/kineto-dlrm-8rank/dlrm_kineto.tar.gz");
    check_measured(job, 2);
    if (fsdp[0])
        check_measured(fsdp, 2);
    if (dlrm)
        check_measured(&dlrm, 1);
}

static enum dtp_status read_text(const char *text, struct dtp_err *err) {
    struct dtp_source *s;
    struct dtp_tasks *t;
    DTP_TRY(dtp_source_memory(arena, "text", text, strlen(text), &s, err));
    enum dtp_status status = dtp_tasks_read(arena, s, &t, err);
    dtp_source_close(s);
    return status;
}

static void test_broken(void) {
#define HEAD "{\"dtplan\":{\"schema_version\":1,\"tasks\":1,\"lanes\":[\"c\"]},\"traceEvents\":["
    static const char *const bad[] = {
        "{\"dtplan\":{\"schema_version\":2},\"traceEvents\":[]}",
        HEAD "]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"args\":{\"id\":0,\"start_s\":0,\"end_s\":1}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":1,\"start_s\":0,\"end_s\":1}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0,\"start_s\":2,\"end_s\":1}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0,\"start_s\":0,\"end_s\":1,"
             "\"after\":[7]}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0,\"class\":\"x\"}}]}",
        HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0,\"start_s\":NaN}}]}"};
    struct dtp_err err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT(read_text(bad[i], &err) == DTP_EINPUT && strstr(err.msg, "byte"));
    CU_ASSERT(read_text(HEAD "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"args\":{\"id\":0,\"start_s\":0,"
                             "\"end_s\":1}}]}",
                        &err) == DTP_OK);
#undef HEAD
}

int main(void) {
    CU_TestInfo tests[] = {{"a replay of a measured job", test_measured},
                           {"broken files", test_broken},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"tasks read", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
