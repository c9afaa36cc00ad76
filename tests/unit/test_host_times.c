/* Host times of launches: two threads whose gaps are known; what synchronises, a full queue and the
 * optimizer do not count; a trace without launches is refused. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "tests/suites.h"
#include "traces/replay/host_times.h"
#include "traces/formats/kineto.h"

static struct dtp_arena *arena;
static struct dtp_str text;
static int correlation;

static void add(const char *category, const char *name, int tid, double at_us, double dur_us) {
    dtp_str_printf(
        &text,
        "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,"
        "\"dur\":%.3f,\"args\":{\"correlation\":%d}}",
        text.n > 16 ? "," : "", category, name, tid, at_us, dur_us, correlation);
}

/* A call of 5 us that launches a kernel of 2 us. */
static void launch(int tid, double at_us, double dur_us) {
    correlation++;
    add("cuda_runtime", "cudaLaunchKernel", tid, at_us, dur_us);
    dtp_str_printf(
        &text,
        ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":%.3f,"
        "\"dur\":2,\"args\":{\"device\":0,\"stream\":7,\"correlation\":%d}}",
        at_us + dur_us, correlation);
}

static enum dtp_status measure(struct dtp_host_times *out) {
    struct dtp_source *s;
    struct dtp_trace_rank *r = DTP_NEW(arena, struct dtp_trace_rank, 1);
    struct dtp_err err = {0};
    dtp_str_add(&text, "]}");
    CU_ASSERT_FATAL(dtp_source_memory(arena, "test", text.at, text.n, &s, &err) == DTP_OK);
    dtp_trace_rank_init(r, arena, "test");
    CU_ASSERT_FATAL(dtp_kineto_read(s, NULL, r, &err) == DTP_OK);
    dtp_source_close(s);
    r->rank = 0;
    struct dtp_trace t = {.rank = r, .nranks = 1};
    return dtp_host_times_of(arena, &t, out, &err);
}

static void begin(void) {
    text = (struct dtp_str){.a = arena};
    correlation = 0;
    dtp_str_add(&text, "{\"traceEvents\":[");
}

static void test_threads(void) {
    struct dtp_host_times h;
    begin();
    for (int i = 0; i <= 20; i++) /* forward: 20 gaps of 10 us, and one of 210 */
        launch(1, 1000 + 10 * i, 5);
    launch(1, 1410, 5);
    add("cpu_op", "autograd::engine::evaluate_function: X", 2, 2000, 900);
    for (int i = 0; i <= 30; i++)
        launch(2, 2000 + 30 * i, 5);
    add("user_annotation", "Optimizer.step#A.step", 1, 4000, 500);
    for (int i = 0; i < 5; i++)
        launch(1, 4000 + 100 * i, 5);
    CU_ASSERT_FATAL(measure(&h) == DTP_OK);
    const struct dtp_launch_times *f = &h.direction[DTP_FORWARD_LAUNCHES];
    const struct dtp_launch_times *b = &h.direction[DTP_BACKWARD_LAUNCHES];
    CU_ASSERT(f->n == 21 && fabs(f->launch_s - 10e-6) < 1e-9); /* 19 of the 21 gaps */
    CU_ASSERT_DOUBLE_EQUAL(f->rest_s, 200e-6, 1e-9);
    CU_ASSERT(b->n == 30 && fabs(b->launch_s - 30e-6) < 1e-9 && fabs(b->rest_s) < 1e-9);
    CU_ASSERT(fabs(h.optimizer_s * (double)(h.nsteps ? h.nsteps : 1) - 500e-6) < 1e-9);
}

static void test_left_out(void) {
    struct dtp_host_times h;
    begin();
    for (int i = 0; i <= 20; i++)
        launch(1, 1000 + 10 * i, 5);
    add("cuda_runtime", "cudaDeviceSynchronize", 1, 1250, 700); /* no launch's time */
    add("cpu_op", "c10d::allreduce_", 1, 2500, 45);             /* its launch takes 5 of them */
    add("cpu_op", "c10d::allgather_", 1, 2600, 65);
    launch(1, 2000, 405); /* held up 400 us by a full queue */
    launch(1, 2410, 5);
    CU_ASSERT_FATAL(measure(&h) == DTP_OK);
    const struct dtp_launch_times *f = &h.direction[DTP_FORWARD_LAUNCHES];
    CU_ASSERT(f->n == 21 && fabs(f->launch_s - 10e-6) < 1e-9 && fabs(f->rest_s) < 1e-9);
    CU_ASSERT(h.ncollectives == 2 && fabs(h.collective_s - (40e-6 + 60e-6) / 2) < 1e-9);
}

static void test_none(void) {
    struct dtp_host_times h;
    begin();
    add("cpu_op", "aten::mm", 1, 10, 5);
    CU_ASSERT(measure(&h) == DTP_ENO);
}

int main(void) {
    CU_TestInfo tests[] = {{"two threads", test_threads},
                           {"what is left out", test_left_out},
                           {"no launches", test_none},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"host times", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
