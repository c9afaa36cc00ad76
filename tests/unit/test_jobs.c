/* Tables of jobs: rows of the published traces, of ../shared and by hand, become the jobs they mean. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/text.h"
#include "tests/shared_case.h"
#include "tests/suites.h"
#include "traces/jobs/jobs.h"

static struct dtp_arena *arena;
static const double march_1_s = 1677600000; /* 2023-02-28T16:00:00Z, March 1 in Shanghai */

static const char *corpus(const char *file) {
    return dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_jobs/%s", DTP_SOURCE_DIR, file);
}

static void load(const char *const *paths, size_t n, struct dtp_jobs *out) {
    struct dtp_err err = {0};
    enum dtp_status status = dtp_jobs_load(arena, paths, n, out, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
}

static void dates(void) {
    double t;
    bool zone;
    CU_ASSERT_TRUE(dtp_parse_date("1970-01-01 00:00:00", &t, &zone));
    CU_ASSERT_DOUBLE_EQUAL(t, 0, 0);
    CU_ASSERT_FALSE(zone);
    CU_ASSERT_TRUE(dtp_parse_date("2024-02-29T12:34:56.25Z", &t, &zone));
    CU_ASSERT_DOUBLE_EQUAL(t, 1709210096.25, 1e-6);
    CU_ASSERT_TRUE(zone);
    CU_ASSERT_TRUE(dtp_parse_date("2023-03-01 00:00:00+08:00", &t, &zone));
    CU_ASSERT_DOUBLE_EQUAL(t, march_1_s, 0);
    CU_ASSERT_TRUE(dtp_parse_date("2023-02-28 12:30:00-0330", &t, &zone));
    CU_ASSERT_DOUBLE_EQUAL(t, march_1_s, 0);
    static const char *const bad[] = {"", "None", "2023-13-01 00:00:00", "2023-03-01",
                                      "2023-03-01 00:00:00 CET"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_FALSE(dtp_parse_date(bad[i], &t, &zone));
}

static void helios(void) {
    struct dtp_jobs jobs;
    load((const char *const[]){corpus("helios.csv")}, 1, &jobs);
    CU_ASSERT_EQUAL_FATAL(jobs.n, 2);
    CU_ASSERT_EQUAL(jobs.dropped, 1);
    CU_ASSERT_EQUAL(jobs.dropped_line, 4);
    CU_ASSERT_EQUAL(jobs.bad_times, 1);
    const struct dtp_job *job = &jobs.job[1]; /* sorted by submission */
    CU_ASSERT_STRING_EQUAL(job->id, "7");
    CU_ASSERT_STRING_EQUAL(job->user, "u1");
    CU_ASSERT_STRING_EQUAL(job->group, "v1");
    CU_ASSERT_DOUBLE_EQUAL(job->start_s - job->submit_s, 60, 0);
    CU_ASSERT_DOUBLE_EQUAL(job->run_s, 3600, 0);
    CU_ASSERT_DOUBLE_EQUAL(job->gpus, 8, 0);
    CU_ASSERT_EQUAL(job->status, DTP_JOB_COMPLETED);
    CU_ASSERT_EQUAL(job->source, DTP_JOBS_HELIOS);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].run_s, DTP_JOB_UNKNOWN, 0);
}

static void acme(void) {
    struct dtp_jobs jobs;
    load((const char *const[]){corpus("acme.csv")}, 1, &jobs);
    CU_ASSERT_EQUAL_FATAL(jobs.n, 2);
    CU_ASSERT_EQUAL(jobs.no_zone, 0);
    CU_ASSERT_EQUAL(jobs.bad_durations, 1);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].submit_s, march_1_s + 18 * 60 + 22, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].run_s, 117.5, 1e-6);
    CU_ASSERT_STRING_EQUAL(jobs.job[1].user, "a, \"quoted\" user");
    CU_ASSERT_EQUAL(jobs.job[0].source, DTP_JOBS_ACME);
}

static void pai(void) {
    struct dtp_jobs jobs;
    load((const char *const[]){corpus("pai_task.csv"), corpus("pai_job.csv")}, 2, &jobs);
    CU_ASSERT_EQUAL_FATAL(jobs.n, 3);
    CU_ASSERT_STRING_EQUAL(jobs.job[0].id, "j2");
    CU_ASSERT_EQUAL(jobs.job[0].status, DTP_JOB_UNFINISHED);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].gpus, 2, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].end_s, DTP_JOB_UNKNOWN, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].start_s, 50.5, 0);
    CU_ASSERT_EQUAL(jobs.no_tasks, 1);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[1].gpus, DTP_JOB_UNKNOWN, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[2].submit_s, 90, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[2].start_s, 100, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[2].end_s, 1130, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[2].gpus, 1, 1e-12); /* 4 x 25 % */
    CU_ASSERT_EQUAL(jobs.job[2].nodes, 5);
    load((const char *const[]){corpus("pai_task.csv")}, 1, &jobs);
    CU_ASSERT_EQUAL(jobs.n, 2);
}

static void philly(void) {
    struct dtp_jobs jobs;
    load((const char *const[]){corpus("philly.json")}, 1, &jobs);
    CU_ASSERT_EQUAL_FATAL(jobs.n, 2);
    CU_ASSERT_EQUAL(jobs.dropped, 1);
    CU_ASSERT_STRING_EQUAL(jobs.job[0].id, "app_3");
    CU_ASSERT_EQUAL(jobs.job[0].attempts, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].gpus, DTP_JOB_UNKNOWN, 0);
    CU_ASSERT_EQUAL(jobs.job[1].attempts, 2);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[1].gpus, 3, 0);
    CU_ASSERT_EQUAL(jobs.job[1].nodes, 2);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[1].start_s - jobs.job[1].submit_s, 30, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[1].end_s, DTP_JOB_UNKNOWN, 0);
    CU_ASSERT_DOUBLE_EQUAL(jobs.job[1].run_s, 74, 0);
}

static void refused(void) {
    static const char *const bad[] = {
        "a,b,c\n1,2,3\n", "", "job_id,state\n,\n", "[]", "[{\"jobid\":\"x\"", "{\"jobid\":\"x\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dtp_source *s;
        struct dtp_jobs jobs;
        struct dtp_err err = {0};
        dtp_jobs_init(arena, &jobs);
        CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "bad", bad[i], strlen(bad[i]), &s, &err),
                              DTP_OK);
        CU_ASSERT_EQUAL(dtp_jobs_read(arena, s, &jobs, &err), DTP_EINPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "bad"));
        dtp_source_close(s);
    }
}

/* Rows that the READMEs of the traces show. */
static void published(void) {
    static const struct {
        const char *file;
        size_t n;
        double gpus, run_s;
        enum dtp_job_source source;
    } cases[] = {{"philly__cluster_job_log.readme-row.json", 1, 8, 74 + 193182, DTP_JOBS_PHILLY},
                 {"helios__cluster_log.readme-rows.csv", 3, 1, 36848 - 0, DTP_JOBS_HELIOS},
                 {"acme__trace_kalos.readme-rows.csv", 2, 64, 8, DTP_JOBS_ACME},
                 {"acme__trace_seren.readme-rows.csv", 2, 8, 117, DTP_JOBS_ACME}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_jobs jobs;
        const char *path =
            shared_file(arena, dtp_arena_printf(arena, "traces/cluster/%s", cases[i].file));
        if (!path)
            continue;
        load(&path, 1, &jobs);
        CU_ASSERT_EQUAL_FATAL(jobs.n, cases[i].n);
        CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].gpus, cases[i].gpus, 0);
        CU_ASSERT_DOUBLE_EQUAL(jobs.job[0].run_s, cases[i].run_s, 1);
        CU_ASSERT_EQUAL(jobs.job[0].source, cases[i].source);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"dates become seconds", dates},
                           {"Helios", helios},
                           {"Acme", acme},
                           {"PAI, its two tables joined", pai},
                           {"Philly", philly},
                           {"what is no table of jobs is refused", refused},
                           {"published rows", published},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"jobs", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
