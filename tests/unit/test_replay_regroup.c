/* What-ifs that regroup collectives, on a job of two ranks whose times are known by hand. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/suites.h"
#include "traces/replay/replay.h"

#define US 1e-6

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtp_regroup_XXXXXX";

/* Times in us, the same on both ranks. The host launches a at 0, the first all-reduce at 30 (after a), b at
 * 40, the second at 60 (after b), c at 70 (after the second) and synchronises from 80. Work starts 10
 * after its launch, 2 after other work; the synchronisation returns 6 after c.
 *
 *                     a        first       b         second      c          end
 *     b is free       10-110   112-162   112-212   214-284     286-316     322
 *     b waits for it  10-110   112-162   164-264   266-336     338-368     374 */
struct job {
    bool b_waits;
    int elements; /* size of the first; 4 bytes each */
    double transfer_us[2];
};

static void event(FILE *f, const char *cat, const char *name, int lane, const double time[2]) {
    fprintf(f,
            ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{",
            cat, name, lane ? 0 : 1, lane ? lane : 1, 1000 + time[0], time[1] - time[0]);
    if (lane)
        fprintf(f, "\"device\":0,\"stream\":%d,", lane);
}

static void call(FILE *f, const char *name, double from_us, double to_us, int id) {
    event(f, "cuda_runtime", name, 0, (double[2]){from_us, to_us});
    fprintf(f, "\"correlation\":%d}}", id);
}

static void kernel(FILE *f, const char *name, double from_us, double to_us, int id) {
    event(f, "kernel", name, 7, (double[2]){from_us, to_us});
    fprintf(f, "\"correlation\":%d}}", id);
}

static void reduce(FILE *f, const double time[2], int elements, int id) {
    event(f, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, time);
    fprintf(f,
            "\"correlation\":%d,\"Collective name\":\"allreduce\",\"In msg nelems\":%d,"
            "\"Group size\":2,\"dtype\":\"Float\"}}",
            id, elements);
}

static const char *write_rank(const struct job *j, int rank) {
    const char *path = dtp_arena_printf(arena, "%s/rank%d.json", folder, rank);
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    double first = 112 + j->transfer_us[0], b = (j->b_waits ? first + 2 : 112) + 100;
    double second = b + 2 + j->transfer_us[1], end = second + 2 + 30 + 6;
    fprintf(f,
            "{\"distributedInfo\":{\"rank\":%d,\"world_size\":2},\"traceEvents\":[\n"
            "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#1\",\"pid\":1,"
            "\"tid\":1,\"ts\":1000,\"dur\":%.3f}",
            rank, end);
    call(f, "cudaLaunchKernel", 0, 5, 1);
    call(f, "cudaStreamWaitEvent", 20, 21, 2);
    call(f, "cudaLaunchKernel", 30, 34, 3);
    if (j->b_waits)
        call(f, "cudaStreamWaitEvent", 36, 37, 4);
    call(f, "cudaLaunchKernel", 40, 45, 5);
    call(f, "cudaStreamWaitEvent", 50, 51, 6);
    call(f, "cudaLaunchKernel", 60, 64, 7);
    call(f, "cudaStreamWaitEvent", 66, 67, 8);
    call(f, "cudaLaunchKernel", 70, 75, 9);
    call(f, "cudaDeviceSynchronize", 80, end, 10);
    kernel(f, "gemm_a", 10, 110, 1);
    reduce(f, (double[2]){112, first}, j->elements, 3);
    kernel(f, "gemm_b", b - 100, b, 5);
    reduce(f, (double[2]){b + 2, second}, 2000, 7);
    kernel(f, "gemm_c", second + 2, second + 32, 9);
    fprintf(f, "]}\n");
    fclose(f);
    return path;
}

static void expect(const struct job *j, const struct dtp_replay_options *options, double end_us) {
    const char *paths[2] = {write_rank(j, 0), write_rank(j, 1)};
    struct dtp_trace t;
    struct dtp_replay r;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, 2, NULL, &t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, options, &r, &err), DTP_OK);
    for (size_t i = 0; i < r.nranks; i++) {
        double found_s = r.rank[i].step[0].replayed_s;
        if (fabs(found_s - end_us * US) > 1e-12)
            printf("\n  rank %zu: found %.3f us, expected %.3f us", i, found_s / US, end_us);
        CU_ASSERT_DOUBLE_EQUAL(found_s, end_us * US, 1e-12);
    }
}

static const struct job is_free = {false, 1000, {50, 70}}, waits = {true, 1000, {50, 70}};

static void as_measured(void) {
    expect(&is_free, &DTP_REPLAY_AS_MEASURED, 322);
    expect(&waits, &DTP_REPLAY_AS_MEASURED, 374);
}

/* b no longer waits for the first; c waits for the second, which is the last of the step. */
static void overlapped(void) {
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    o.overlap = "all_reduce";
    expect(&waits, &o, 322);
    expect(&is_free, &o, 322);
    o.overlap = "all_gather"; /* there is none */
    expect(&waits, &o, 374);
}

/* Both after b, at 214. 4 kB take 50 and 8 kB 70, so the latency is 30: together 50 + 70 - 30, then c. */
static void bucketed(void) {
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    static const struct job same = {false, 2000, {70, 70}};
    o.bucket_bytes = 12000;
    expect(&is_free, &o, 214 + 90 + 2 + 30 + 6);
    o.bucket_bytes = 11999; /* too small for both */
    expect(&is_free, &o, 322);
    o.bucket_bytes = 16000; /* one size alone tells no latency */
    expect(&same, &o, 214 + 140 + 2 + 30 + 6);
}

/* b needs the first and the second needs b. */
static void impossible_bucket(void) {
    const char *paths[2] = {write_rank(&waits, 0), write_rank(&waits, 1)};
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    struct dtp_trace t;
    struct dtp_replay r;
    struct dtp_err err = {0};
    o.bucket_bytes = 12000;
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, 2, NULL, &t, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_replay(arena, &t, &o, &r, &err), DTP_EUNSUPPORTED);
}

int main(void) {
    CU_TestInfo tests[] = {{"as measured", as_measured},
                           {"overlapped", overlapped},
                           {"bucketed", bucketed},
                           {"an impossible bucket", impossible_bucket},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"replay, regrouped", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (!mkdtemp(folder))
        return 1;
    int status = run_suites(suites);
    for (int i = 0; i < 2; i++)
        unlink(dtp_arena_printf(arena, "%s/rank%d.json", folder, i));
    rmdir(folder);
    dtp_arena_destroy(arena);
    return status;
}
