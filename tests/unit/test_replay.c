/* The replay: a job of two ranks whose times are known by hand comes out as calculated, as it is and under
 * every what-if. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/units.h"
#include "tests/suites.h"
#include "traces/replay/replay.h"
#include "traces/replay/streams.h"

#define US 1e-6
static const double TOLERANCE_S = 1e-12;

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtp_replay_XXXXXX";

/* ---- a job by hand ----
 *
 * Each rank, times in us: the host launches a at 0, tells the communication stream to wait (30), launches
 * the all-reduce (40), tells the compute stream to wait (50), launches b (60), and synchronises from 70.
 *
 *     a on stream 7     starts 10, takes 100 on rank 0, 200 on rank 1
 *     all-reduce on 20  starts 2 after a, ends on both at 212 + 50 = 262
 *     b on stream 7     starts 2 after the all-reduce, takes 30: 264 to 294
 *     synchronise       returns 6 after b: 300
 *
 * A launch call takes 5; work starts 10 after its launch, 2 after the work it follows. */
struct job {
    double a_us[2], b_us, transfer_us, late_us[2];
    double a_edited[2]; /* factors on `dur` in the file alone; 0: none */
    double tail_us[2];  /* the rank's all-reduce ends so much later */
};

static double edited_us(double dur_us, double factor) {
    return factor > 0 ? dur_us * factor : dur_us;
}

static void put(FILE *f, const char *cat, const char *name, const char *where, double at_us,
                double dur_us) {
    fprintf(f, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",%s,\"ts\":%.3f,\"dur\":%.3f", cat,
            name, where, at_us + 1000, dur_us);
}

static void call(FILE *f, const char *name, double at_us, double dur_us, int correlation) {
    put(f, "cuda_runtime", name, "\"pid\":1,\"tid\":1", at_us, dur_us);
    fprintf(f, ",\"args\":{\"correlation\":%d}}", correlation);
}

static void work(FILE *f, const char *name, int stream, double at_us, double dur_us,
                 int correlation) {
    put(f, "kernel", name, "\"pid\":0,\"tid\":7", at_us, dur_us);
    fprintf(f, ",\"args\":{\"device\":0,\"stream\":%d,\"correlation\":%d}}", stream, correlation);
}

static const char *write_rank(const struct job *j, int rank) {
    const char *path = dtp_arena_printf(arena, "%s/rank%d.json", folder, rank);
    FILE *f = fopen(path, "w");
    double h = j->late_us[rank], end_a = h + 10 + j->a_us[rank];
    double other = j->late_us[!rank] + 10 + j->a_us[!rank];
    double end = (end_a > other ? end_a : other) + 2 + j->transfer_us;
    fprintf(
        f,
        "{\"distributedInfo\":{\"rank\":%d,\"world_size\":2},\"traceEvents\":[\n"
        "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#1\",\"pid\":1,\"tid\":1,"
        "\"ts\":%.3f,\"dur\":%.3f}",
        rank, 1000 + h, end + 2 + j->b_us + 6 - h);
    call(f, "cudaLaunchKernel", h, 5, 1);
    call(f, "cudaEventRecord", h + 20, 1, 2);
    call(f, "cudaStreamWaitEvent", h + 30, 1, 3);
    call(f, "cudaLaunchKernel", h + 40, 5, 4);
    call(f, "cudaStreamWaitEvent", h + 50, 1, 5);
    call(f, "cudaLaunchKernel", h + 60, 5, 6);
    call(f, "cudaDeviceSynchronize", h + 70, end + 2 + j->b_us + 6 - h - 70, 7);
    work(f, "gemm_a", 7, h + 10, edited_us(j->a_us[rank], j->a_edited[rank]), 1);
    work(f, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, end_a + 2,
         end - end_a - 2 + j->tail_us[rank], 4);
    work(f, "gemm_b", 7, end + 2, j->b_us, 6);
    fprintf(f, "]}\n");
    fclose(f);
    return path;
}

static const struct job known = {{100, 200}, 30, 50, {0, 0}, {0, 0}};

static void replay_job(const struct job *j, const struct dtp_replay_options *options,
                       struct dtp_replay *out) {
    const char *paths[2] = {write_rank(j, 0), write_rank(j, 1)};
    struct dtp_trace *t = DTP_NEW(arena, struct dtp_trace, 1);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, 2, NULL, t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, t, options, out, &err), DTP_OK);
}

static void expect_step(const struct dtp_replay *r, double expected_us) {
    for (size_t i = 0; i < r->nranks; i++) {
        CU_ASSERT_EQUAL_FATAL(r->rank[i].nsteps, 1);
        double found_s = r->rank[i].step[0].replayed_s;
        if (fabs(found_s - expected_us * US) > TOLERANCE_S)
            printf("\n  rank %zu: found %.6f us, expected %.6f us", i, found_s / US, expected_us);
        CU_ASSERT_DOUBLE_EQUAL(found_s, expected_us * US, TOLERANCE_S);
    }
}

static void as_measured(void) {
    struct dtp_replay r;
    replay_job(&known, &DTP_REPLAY_AS_MEASURED, &r);
    expect_step(&r, 300);
    CU_ASSERT_EQUAL_FATAL(r.matches.n, 1);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].comm[0].transfer_s, 50 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].comm[0].waiting_s, 100 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[1].comm[0].waiting_s, 0, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].comm[0].replayed_end_s, 262 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.explained_pct, 100, 1e-9);
}

/* An all-reduce of 100 us: a rank that ends 20 us after the other has a tail; 5 us are skew of the clocks, and 30,
 * more than a quarter of the transfer, no record of what happened. */
static void tails(void) {
    static const double tail_us[] = {20, 5, 30}, want_us[] = {20, 0, 0};
    for (int i = 0; i < 3; i++) {
        struct job j = {{100, 200}, 30, 100, {0, 0}, {0, 0}, {tail_us[i], 0}};
        const char *paths[2] = {write_rank(&j, 0), write_rank(&j, 1)};
        struct dtp_trace *t = DTP_NEW(arena, struct dtp_trace, 1);
        struct dtp_matches m;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, 2, NULL, t, &err), DTP_OK);
        dtp_trace_match(arena, t, DTP_ALIGN_NONE, &m);
        CU_ASSERT_FATAL(m.n == 1 && m.at[0].n == 2);
        for (size_t k = 0; k < 2; k++)
            CU_ASSERT_EQUAL(m.member[k].tail_ns,
                            m.member[k].rank == 0 ? (int64_t)(want_us[i] * 1000) : 0);
    }
}

/* Rank 1 decides: its launch 10, a 200, 2, the all-reduce 50, 2, b 30, and 6 to return. */
static void critical_path(void) {
    struct dtp_replay r;
    replay_job(&known, &DTP_REPLAY_AS_MEASURED, &r);
    const struct dtp_critical *c = &r.critical;
    double sum_s = 0;
    for (int k = 0; k < DTP_NCRITICAL; k++)
        sum_s += c->class_s[k];
    CU_ASSERT(c->last_rank == 0 && c->nhops == 1); /* both end at once: the lower is the last */
    CU_ASSERT_DOUBLE_EQUAL(c->span_s, 300 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(sum_s, 300 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(c->class_s[DTP_CRITICAL_COMPUTE], 230 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(c->class_s[DTP_CRITICAL_COMM], 50 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(c->class_s[DTP_CRITICAL_LATENCY] + c->class_s[DTP_CRITICAL_HOST],
                           20 * US, TOLERANCE_S);
    CU_ASSERT_FATAL(c->nitems > 2);
    CU_ASSERT_STRING_EQUAL(c->item[0].name, "gemm_a");
    CU_ASSERT_DOUBLE_EQUAL(c->item[0].sum_s, 200 * US, TOLERANCE_S);
    CU_ASSERT_STRING_EQUAL(c->item[1].name, dtp_comm_op_name[DTP_COMM_ALL_REDUCE]);
    struct dtp_trace_stream *s;
    size_t n;
    dtp_trace_streams(arena, r.rank[1].rank, &s, &n);
    CU_ASSERT_EQUAL_FATAL(n, 2);
    CU_ASSERT_EQUAL(s[0].stream, 7);
    CU_ASSERT_EQUAL(s[0].busy_ns, 230000);
    CU_ASSERT_EQUAL(s[0].class_ns[DTP_CLASS_COMPUTE], 230000);
    CU_ASSERT_EQUAL(s[1].busy_ns, 50000);
}

/* Kernels and collectives taken away, neighbours fused: b 30 goes; the all-reduce 50 goes. */
static void removed(void) {
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    struct dtp_replay r;
    o.other.removed = "gemm_b";
    replay_job(&known, &o, &r);
    expect_step(&r, 270);
    o.other.removed = "all_reduce";
    replay_job(&known, &o, &r);
    expect_step(&r, 250);
    o.other.removed = "AllReduce_Sum";
    replay_job(&known, &o, &r);
    expect_step(&r, 250);
    o.other.removed = NULL;
    o.other.fused = "gemm";
    replay_job(&known, &o, &r);
    expect_step(&r, 270);
    o.other.fused = "gemm_a"; /* alone among its neighbours */
    replay_job(&known, &o, &r);
    expect_step(&r, 300);
}

/* The step under each change, from the table above. */
static void what_if(void) {
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    struct dtp_replay r;
    o.slow_rank = 1; /* a 300, b 45 on rank 1: 10 + 300 + 2 + 50 + 2 + 45 + 6 */
    o.slow_by = 1.5;
    replay_job(&known, &o, &r);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[1].step[0].replayed_s, 415 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].step[0].replayed_s, 400 * US, TOLERANCE_S);
    o.slow_rank = 0; /* a 150 on rank 0 is hidden, b 45 is not */
    replay_job(&known, &o, &r);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].step[0].replayed_s, 315 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[1].step[0].replayed_s, 300 * US, TOLERANCE_S);
    o = DTP_REPLAY_AS_MEASURED;
    o.slow_collective = 0; /* 150 instead of 50 */
    o.slow_collective_by = 3;
    replay_job(&known, &o, &r);
    expect_step(&r, 400);
    o = DTP_REPLAY_AS_MEASURED;
    o.delayed_rank = 0; /* by 30: hidden by rank 1 */
    o.delay_s = 30 * US;
    replay_job(&known, &o, &r);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[1].step[0].replayed_s, 300 * US, TOLERANCE_S);
    o.delayed_rank = 1; /* by 30: rank 0 waits */
    replay_job(&known, &o, &r);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[0].step[0].replayed_s, 330 * US, TOLERANCE_S);
    CU_ASSERT_DOUBLE_EQUAL(r.rank[1].step[0].replayed_s, 300 * US, TOLERANCE_S);
    o = DTP_REPLAY_AS_MEASURED;
    o.kernel_speed = 2; /* 10 + 100 + 2 + 50 + 2 + 15 + 6 */
    replay_job(&known, &o, &r);
    expect_step(&r, 185);
    o = DTP_REPLAY_AS_MEASURED;
    o.op = "gemm_b"; /* 30 becomes 3 */
    o.op_speed = 10;
    replay_job(&known, &o, &r);
    expect_step(&r, 273);
    o = DTP_REPLAY_AS_MEASURED;
    o.network_latency = 0; /* one size and no known machine: the transfer of 50 is all bandwidth */
    replay_job(&known, &o, &r);
    expect_step(&r, 300);
    o = DTP_REPLAY_AS_MEASURED;
    o.network_bandwidth = 4; /* 12.5 instead of 50 */
    replay_job(&known, &o, &r);
    expect_step(&r, 262.5);
    o = DTP_REPLAY_AS_MEASURED;
    o.remove_straggler = true; /* rank 1's stretch of 212 becomes rank 0's 112 */
    replay_job(&known, &o, &r);
    CU_ASSERT(r.rank[0].step[0].replayed_s < 230 * US);
}

/* A trace edited by hand: a later start of one rank, longer kernels; every later time follows. */
static void edited(void) {
    static const struct {
        struct job job;
        double end_us; /* since the first event of all ranks */
    } cases[] = {{{{100, 300}, 30, 50, {0, 0}}, 400},
                 {{{100, 200}, 30, 150, {0, 0}}, 400},
                 {{{100, 200}, 30, 50, {0, 70}}, 370},
                 {{{100, 200}, 30, 50, {250, 0}}, 450}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_replay r;
        replay_job(&cases[i].job, &DTP_REPLAY_AS_MEASURED, &r);
        for (int k = 0; k < 2; k++)
            CU_ASSERT_DOUBLE_EQUAL(r.rank[k].replayed_end_s, cases[i].end_us * US, 1e-9);
    }
}

/* Only `dur` is edited, all times stay: dependencies are found where they were, and the end moves. */
static void edited_durations(void) {
    static const struct {
        struct job job;
        double end_us;
    } cases[] = {{{{100, 200}, 30, 50, {0, 0}, {0, 1.5}}, 400}, /* a 300 on rank 1 */
                 {{{100, 200}, 30, 50, {0, 0}, {1.5, 0}}, 300}, /* a 150 on rank 0: hidden */
                 {{{100, 200}, 30, 50, {0, 0}, {3, 0}}, 400}};  /* a 300 on rank 0 */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_replay r;
        replay_job(&cases[i].job, &DTP_REPLAY_AS_MEASURED, &r);
        for (int k = 0; k < 2; k++) {
            if (fabs(r.rank[k].replayed_end_s / US - cases[i].end_us) > 2)
                printf("\n  case %zu rank %d: %.3f us", i, k, r.rank[k].replayed_end_s / US);
            CU_ASSERT_DOUBLE_EQUAL(r.rank[k].replayed_end_s, cases[i].end_us * US, 2 * US);
        }
    }
}

static uint32_t add_event(struct dtp_trace_rank *r, int kind, int64_t from_ns, int64_t to_ns,
                          uint32_t launch) {
    struct dtp_trace_event *e = dtp_trace_add(r);
    e->kind = (uint8_t)kind;
    e->start_ns = from_ns;
    e->dur_ns = to_ns - from_ns;
    e->launch = launch;
    e->class = DTP_CLASS_COMPUTE;
    return (uint32_t)r->nevents - 1;
}

/* Work at 15 and 25 comes late (launched at 12 and 21, free at 10 and 20), at 31 it was there (22); at
 * 52 late again (45, free at 40). */
static void launch_bound(void) {
    static const int64_t work[5][3] = {
        {0, 10, -5}, {15, 20, 12}, {25, 30, 21}, {31, 40, 22}, {52, 60, 45}};
    struct dtp_trace_rank *r = DTP_NEW(arena, struct dtp_trace_rank, 1);
    struct dtp_trace_stretch *s;
    size_t n;
    dtp_trace_rank_init(r, arena, "by hand");
    for (size_t i = 0; i < 5; i++) {
        uint32_t call = add_event(r, DTP_TRACE_CALL, work[i][2], work[i][2] + 1, DTP_TRACE_NONE);
        add_event(r, DTP_TRACE_KERNEL, work[i][0], work[i][1], call);
    }
    dtp_trace_launch_bound(arena, r, &s, &n);
    CU_ASSERT_EQUAL_FATAL(n, 2);
    CU_ASSERT_EQUAL(s[0].start_ns, 40);
    CU_ASSERT_EQUAL(s[0].idle_ns, 12);
    CU_ASSERT_EQUAL(s[0].nwork, 1);
    CU_ASSERT_EQUAL(s[1].start_ns, 10);
    CU_ASSERT_EQUAL(s[1].end_ns, 30);
    CU_ASSERT_EQUAL(s[1].idle_ns, 10);
    CU_ASSERT_EQUAL(s[1].nwork, 2);
    CU_ASSERT_EQUAL(dtp_trace_launch_bound_ns(r), 22);
}

int main(void) {
    CU_TestInfo tests[] = {{"two ranks by hand", as_measured},
                           {"critical path and streams", critical_path},
                           {"kernels removed and fused", removed},
                           {"what-ifs by hand", what_if},
                           {"edited traces by hand", edited},
                           {"edited durations by hand", edited_durations},
                           {"launch-bound stretches", launch_bound},
                           {"tails of collectives", tails},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"replay", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
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
