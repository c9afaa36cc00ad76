/* Chrome timelines: one event per task, integer ids, no overlap within a thread, arrows from a transfer
 * to the action that waits, counters back to zero, gzip, no file on abort. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "sim/base/text.h"
#include "tests/costs_case.h"
#include "traces/chrome.h"

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtp_chrome_XXXXXX";

static const char *path_of(const char *name) {
    return dtp_arena_printf(arena, "%s/%s", folder, name);
}

static const struct dtp_json *read_events(const char *path) {
    const struct dtp_json *root = NULL;
    struct dtp_err err = {0};
    if (dtp_json_read_file(arena, path, &root, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("not JSON");
    }
    return dtp_json_get(root, "traceEvents");
}

static const char *text(const struct dtp_json *e, const char *key) {
    const struct dtp_json *j = dtp_json_get(e, key);
    return j && dtp_json_type(j) == DTP_JSON_STRING ? dtp_json_string(j) : "";
}

static double number(const struct dtp_json *e, const char *key) {
    const struct dtp_json *j = dtp_json_get(e, key);
    return j && dtp_json_type(j) == DTP_JSON_NUMBER ? dtp_json_number(j) : (double)NAN;
}

static int count(const struct dtp_json *events, const char *phase, const char *name) {
    int n = 0;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        n += strcmp(text(e, "ph"), phase) == 0 && (!name || strcmp(text(e, "name"), name) == 0);
    }
    return n;
}

/* ---- events as a runtime would write them ---- */

static enum dtp_status write_three(const char *path, struct dtp_chrome **c, struct dtp_err *err) {
    DTP_TRY(dtp_chrome_open(arena, path, c, err));
    dtp_chrome_rank(*c, 0, "rank \"0\"");
    struct dtp_chrome_event e = {
        .stream = "compute", .name = "0F0", .start_s = 1, .dur_s = 2, .microbatch = 0, .part = -1};
    dtp_chrome_event(*c, &e);
    e = (struct dtp_chrome_event){
        .stream = "compute", .name = "0F1", .start_s = 2, .dur_s = 2, .microbatch = -1, .part = 3};
    dtp_chrome_event(*c, &e); /* overlaps the first: another thread */
    e.start_s = 3;
    dtp_chrome_event(*c, &e); /* the first thread is free again */
    return DTP_OK;
}

static void test_events(void) {
    const char *path = path_of("three.json");
    struct dtp_chrome *c;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(write_three(path, &c, &err) == DTP_OK);
    CU_ASSERT(access(path, F_OK) != 0); /* nothing there before the close */
    CU_ASSERT_FATAL(dtp_chrome_close(c, &err) == DTP_OK);
    const struct dtp_json *events = read_events(path);
    CU_ASSERT(count(events, "X", NULL) == 3);
    CU_ASSERT(count(events, "M", "thread_name") == 2);
    CU_ASSERT(count(events, "M", "process_name") == 1);
    double tid[3];
    int n = 0;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        if (strcmp(text(e, "ph"), "X") != 0)
            continue;
        if (n == 0)
            CU_ASSERT(number(e, "ts") == 1e6 && number(e, "dur") == 2e6);
        tid[n++] = number(e, "tid");
    }
    CU_ASSERT(tid[0] != tid[1] && tid[0] == tid[2]);
}

static void test_abort(void) {
    const char *path = path_of("aborted.json.gz");
    struct dtp_chrome *c;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(write_three(path, &c, &err) == DTP_OK);
    dtp_chrome_abort(c);
    CU_ASSERT(access(path, F_OK) != 0);
    CU_ASSERT(dtp_chrome_open(arena, "/nowhere/at/all.json", &c, &err) != DTP_OK);
}

/* The compressed file holds the same bytes as the plain one. */
static void test_gzip(void) {
    const char *plain = path_of("plain.json"), *packed = path_of("packed.json.gz");
    struct dtp_chrome *c;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(write_three(plain, &c, &err) == DTP_OK && dtp_chrome_close(c, &err) == DTP_OK);
    CU_ASSERT_FATAL(write_three(packed, &c, &err) == DTP_OK && dtp_chrome_close(c, &err) == DTP_OK);
    const char *want = NULL;
    size_t n = 0;
    CU_ASSERT_FATAL(dtp_file_read(arena, plain, 0, &want, &n, &err) == DTP_OK);
    char *got = DTP_NEW(arena, char, n + 1);
    gzFile f = gzopen(packed, "rb");
    CU_ASSERT_FATAL(f != NULL);
    CU_ASSERT(gzread(f, got, (unsigned)n + 1) == (int)n && memcmp(got, want, n) == 0);
    gzclose(f);
}

/* ---- a simulated step ---- */

static void check_threads(const struct dtp_json *events) {
    double end[256] = {0};
    bool integer = true, apart = true;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        double tid = number(e, "tid"), pid = number(e, "pid");
        integer = integer && tid == floor(tid) && pid == floor(pid) && tid < 256;
        if (strcmp(text(e, "ph"), "X") != 0 || !integer)
            continue;
        /* times in microseconds are rounded to their last bit */
        apart = apart && number(e, "ts") >= end[(int)tid] * (1 - 1e-15) - 1e-9;
        end[(int)tid] = number(e, "ts") + number(e, "dur");
    }
    CU_ASSERT(integer && apart);
}

static void test_timeline(void) {
    static struct dtp_cluster cluster;
    static struct dtp_framework framework = {.rank_order = "tp-cp-dp-pp"};
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_cluster_load(arena, "dgx-a100-80", &cluster, &err) == DTP_OK);
    int p = 4, v = 2, m = 8;
    struct dtp_costs c = case_costs(arena, p, v, m, (struct case_times){1, 0.5, 0.5});
    case_sends(&c, 1e9, 0.25, 0);
    for (int s = 0; s < c.nstages; s++) {
        c.stage[s].nreduce = 2;
        c.stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0);
    }
    c.reduce_overlap = true;
    struct dtp_schedule s = case_schedule(arena, DTP_SCHED_INTERLEAVED, p, v, m);
    struct dtp_plan plan = dtp_plan_default();
    plan.pp = p;
    plan.vpp = v;
    plan.dp = 2;
    plan.schedule = DTP_SCHED_INTERLEAVED;
    struct dtp_problem problem = {.cluster = &cluster, .framework = &framework, .gpus = 8};
    struct dtp_lower_input in = {&problem, &plan, &c, &s};
    struct dtp_lower_options how = {.fold = true};
    struct dtp_lowered lowered;
    struct dtp_timeline t;
    CU_ASSERT_FATAL(dtp_lower(arena, &in, &how, &lowered, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_engine_run(arena, &lowered.platform, &lowered.graph, &t, &err) == DTP_OK);
    const char *path = path_of("step.json");
    CU_ASSERT_FATAL(dtp_chrome_write(arena, &problem, &lowered, &t, path, &err) == DTP_OK);
    const struct dtp_json *events = read_events(path);
    int transfers = 2 * m * (p * v - 1); /* no two neighbours on one rank */
    CU_ASSERT(count(events, "M", "process_name") == p);
    CU_ASSERT(count(events, "X", "1F3") == p);
    CU_ASSERT(count(events, "X", "0B7") == 2 * p); /* the last B of a chunk is cut in two */
    CU_ASSERT(count(events, "X", "0SF3") == p && count(events, "X", "1SF3") == p - 1);
    CU_ASSERT(count(events, "s", NULL) == transfers && count(events, "f", NULL) == transfers);
    CU_ASSERT(count(events, "X", "0 reduce 1") == p);
    CU_ASSERT(count(events, "C", NULL) == 2 * m * v * p);
    double held = NAN;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        if (strcmp(text(e, "ph"), "C") == 0)
            held = number(dtp_json_get(e, "args"), "value");
    }
    CU_ASSERT(held == 0);
    check_threads(events);
}

static int remove_folder(void) {
    static const char *const names[] = {"three.json", "plain.json", "packed.json.gz", "step.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(path_of(names[i]));
    return rmdir(folder);
}

int main(void) {
    CU_TestInfo tests[] = {{"events and threads", test_events},
                           {"abort", test_abort},
                           {"gzip", test_gzip},
                           {"a simulated step", test_timeline},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"chrome", NULL, remove_folder, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (!mkdtemp(folder) || CU_initialize_registry() != CUE_SUCCESS ||
        CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    dtp_arena_destroy(arena);
    return failures ? 1 : 0;
}
