/* Queues solved by hand: FIFO holds up, EASY backfills without moving the first; parts of nodes; failures
 * cost restarts and work since the checkpoint; published rows run. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/units.h"
#include "tests/shared_case.h"
#include "tests/suites.h"
#include "traces/jobs/cluster_replay.h"

static struct dtp_arena *arena;

#ifndef DTP_SOURCE_DIR
#define DTP_SOURCE_DIR "."
#endif

struct row {
    double submit_s, run_s, gpus;
};

static struct dtp_cluster_replay replay(const struct row *row, size_t n,
                                        struct dtp_cluster_replay_options o) {
    struct dtp_jobs jobs = {.n = n, .job = DTP_NEW(arena, struct dtp_job, n + 1)};
    struct dtp_cluster_replay out;
    struct dtp_err err = {0};
    for (size_t i = 0; i < n; i++)
        jobs.job[i] = (struct dtp_job){.id = "",
                                       .submit_s = row[i].submit_s,
                                       .start_s = row[i].submit_s + 7,
                                       .end_s = DTP_JOB_UNKNOWN,
                                       .run_s = row[i].run_s,
                                       .gpus = row[i].gpus};
    enum dtp_status status = dtp_cluster_replay(arena, &jobs, &o, &out, &err);
    if (status != DTP_OK)
        printf("\n  %s\n", err.msg);
    CU_ASSERT_FATAL(status == DTP_OK);
    return out;
}
#define REPLAY(rows, ...)                                                                          \
    replay(rows, sizeof rows / sizeof *rows, (struct dtp_cluster_replay_options){__VA_ARGS__})

/* Two nodes of 8. A takes one for 10 s; B needs both and waits; C needs one for 5 s, D one for 20 s. */
static const struct row four[] = {{0, 10, 8}, {1, 10, 16}, {2, 5, 8}, {3, 20, 8}};

static void test_fifo(void) {
    struct dtp_cluster_replay r =
        REPLAY(four, .nodes = 2, .gpus_per_node = 8, .policy = DTP_QUEUE_FIFO);
    static const double starts[] = {0, 10, 20, 20};
    for (size_t i = 0; i < 4; i++)
        CU_ASSERT(r.run[i].start_s == starts[i]);
    CU_ASSERT(r.span_s == 40 && r.wait_mean_s == (0 + 9 + 18 + 17) / 4.0);
    double gpu_s = 8 * 10 + 16 * 10 + 8 * 5 + 8 * 20;
    CU_ASSERT_DOUBLE_EQUAL(r.utilisation, gpu_s / (16 * 40), 1e-12);
    CU_ASSERT(r.goodput == r.utilisation && r.failures == 0 && r.recorded_wait_s == 7);
    CU_ASSERT(r.wait_median_s == 9 && r.wait_p99_s == 18);
}

/* C ends at 7, before B's 10: it goes first. D would end at 22 and move B: it waits. */
static void test_backfill(void) {
    struct dtp_cluster_replay r =
        REPLAY(four, .nodes = 2, .gpus_per_node = 8, .policy = DTP_QUEUE_BACKFILL);
    static const double starts[] = {0, 10, 2, 20};
    for (size_t i = 0; i < 4; i++)
        CU_ASSERT(r.run[i].start_s == starts[i]);
    CU_ASSERT(r.size[1].n == 3 && r.size[2].n == 1 && r.size[2].wait_s == 9);
}

/* With a third node, D may run without taking what B was promised: at 10, A's node and the third are free. */
static void test_backfill_beside(void) {
    static const struct row rows[] = {{0, 10, 16}, {1, 10, 16}, {3, 20, 8}};
    struct dtp_cluster_replay r =
        REPLAY(rows, .nodes = 3, .gpus_per_node = 8, .policy = DTP_QUEUE_BACKFILL);
    CU_ASSERT(r.run[1].start_s == 10 && r.run[2].start_s == 3);
    r = REPLAY(rows, .nodes = 3, .gpus_per_node = 8, .policy = DTP_QUEUE_FIFO);
    CU_ASSERT(r.run[2].start_s == 10);
}

/* Parts go where they leave the least; GPUs are shared; what is larger than the cluster is left out. */
static void test_parts(void) {
    static const struct row rows[] = {{0, 10, 4}, {0, 10, 6},    {1, 10, 2}, {1, 10, 4},
                                      {2, 10, 1}, {3, 10, 0.25}, {4, 1, 17}, {5, 1, 0}};
    struct dtp_cluster_replay r =
        REPLAY(rows, .nodes = 2, .gpus_per_node = 8, .policy = DTP_QUEUE_FIFO);
    CU_ASSERT(r.too_large == 1 && r.unknown == 1 && r.n == 6);
    static const double starts[] = {0, 0,  1,
                                    1, 10, 10}; /* 2 with 6, 4 with 4: both nodes are full */
    for (size_t i = 0; i < 6; i++)
        CU_ASSERT(r.run[i].start_s == starts[i]);
}

/* No work is lost but what was done after the last checkpoint; the mean number of failures is right. */
static void test_failures(void) {
    enum { N = 400 };
    struct row rows[N];
    double work_s = 100 * DTP_S_PER_HOUR;
    for (int i = 0; i < N; i++)
        rows[i] = (struct row){0, work_s, 8};
    struct dtp_cluster_replay r =
        replay(rows, N,
               (struct dtp_cluster_replay_options){.nodes = N,
                                                   .gpus_per_node = 8,
                                                   .gpu_hours_per_failure = 400,
                                                   .restart_s = 600,
                                                   .checkpoint_s = 3600});
    double failures = 0, lost_s = 0;
    for (size_t i = 0; i < r.n; i++) {
        double wall_s = r.run[i].end_s - r.run[i].start_s;
        CU_ASSERT_DOUBLE_EQUAL(wall_s - r.run[i].lost_s, work_s, 1e-6);
        CU_ASSERT(r.run[i].lost_s <= r.run[i].failures * (3600.0 + 600));
        failures += r.run[i].failures;
        lost_s += r.run[i].lost_s;
    }
    /* 100 h of 8 GPUs at 400 GPU-hours: 2 a job, and a little more for the work that is repeated */
    CU_ASSERT(fabs(failures / N - 2.02) < 4 * sqrt(2.0 / N));
    CU_ASSERT(fabs(lost_s / failures - 600 - 1800) < 150); /* half an interval on average */
    CU_ASSERT(r.goodput < r.utilisation && r.failures == (uint64_t)failures);
}

static struct dtp_job_speed half(const void *ctx, double gpus) {
    (void)ctx;
    return (struct dtp_job_speed){gpus > 8 ? 0.5 : 1, 2};
}

static void test_speed(void) {
    struct dtp_cluster_replay r = REPLAY(four, .nodes = 2, .gpus_per_node = 8, .speed = half);
    CU_ASSERT(r.span_s == 80 - 0 && r.run[1].start_s == 20);
    double good_s = 2 * (8 * 10 + 0.5 * 16 * 10 + 8 * 5 + 8 * 20);
    CU_ASSERT_DOUBLE_EQUAL(r.goodput, good_s / (16 * r.span_s), 1e-12);
}

/* Tables of each format, from the seeds of the fuzzers and the rows that the READMEs of the traces show. */
static void test_samples(void) {
    const char *const paths[] = {
        dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_jobs/helios.csv", DTP_SOURCE_DIR),
        dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_jobs/acme.csv", DTP_SOURCE_DIR),
        dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_jobs/philly.json", DTP_SOURCE_DIR),
        shared_file(arena, "traces/cluster/helios__cluster_log.readme-rows.csv"),
        shared_file(arena, "traces/cluster/acme__trace_seren.readme-rows.csv"),
        shared_file(arena, "traces/cluster/acme__trace_kalos.readme-rows.csv"),
        shared_file(arena, "traces/cluster/philly__cluster_job_log.readme-row.json")};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *path = paths[i];
        struct dtp_jobs jobs;
        struct dtp_cluster_replay r;
        struct dtp_err err = {0};
        if (!path)
            continue;
        CU_ASSERT_FATAL(dtp_jobs_load(arena, &path, 1, &jobs, &err) == DTP_OK);
        struct dtp_cluster_replay_options o = {
            .nodes = 64, .gpus_per_node = 8, .policy = DTP_QUEUE_BACKFILL};
        enum dtp_status status = dtp_cluster_replay(arena, &jobs, &o, &r, &err);
        if (status != DTP_OK)
            printf("\n  %s: %s\n", path, err.msg);
        CU_ASSERT_FATAL(status == DTP_OK);
        CU_ASSERT(r.n > 0 && r.wait_mean_s == 0 && r.utilisation > 0); /* room for all at once */
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"first in, first out", test_fifo},
                           {"backfill", test_backfill},
                           {"backfill beside the promise", test_backfill_beside},
                           {"parts of nodes", test_parts},
                           {"failures", test_failures},
                           {"speed by size", test_speed},
                           {"published rows", test_samples},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"cluster replay", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
