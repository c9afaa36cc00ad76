/* Timelines: one event per task, integer ids, nothing overlaps within a thread, arrows from a transfer to
 * the action that waits, counters back to zero, gzip, no file on a failure; Chakra graphs; filters;
 * replays of what was written, and edited. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "planner/setup.h"
#include "sim/base/text.h"
#include "tests/costs_case.h"
#include "tests/suites.h"
#include "tests/tasks_case.h"
#include "traces/formats/chakra.h"
#include "traces/tasks/tasks_simulated.h"

#ifndef DTP_SOURCE_DIR
#define DTP_SOURCE_DIR "."
#endif

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtp_tasks_XXXXXX";

static const char *path_of(const char *name) {
    return dtp_arena_printf(arena, "%s/%s", folder, name);
}

/* Three tasks of one stream, the first two at once. */
static struct dtp_tasks *three(void) {
    struct dtp_tasks *t = dtp_tasks_create(arena, "run", "three <tasks> & more");
    dtp_tasks_rank(t, 0, "rank \"0\"");
    struct dtp_tasks_task k = {
        .name = "0F0", .stream = "compute", DTP_TASKS_UNSAID, .start_s = 1, .end_s = 3};
    dtp_tasks_add(t, &k);
    k = (struct dtp_tasks_task){
        .name = "0F1", .stream = "compute", DTP_TASKS_UNSAID, .start_s = 2, .end_s = 4};
    dtp_tasks_add(t, &k);
    k.start_s = 3;
    k.end_s = 5;
    dtp_tasks_add(t, &k);
    dtp_tasks_after(t, 0);
    dtp_tasks_step(t, -1, "step", 0, 5);
    return t;
}

static void test_events(void) {
    const char *path = path_of("three.json");
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_tasks_write(arena, three(), path, &err) == DTP_OK);
    const struct dtp_json *events = case_events(arena, path);
    CU_ASSERT(case_count(events, "X", NULL) == 3);
    CU_ASSERT(case_count(events, "M", "thread_name") == 2);
    CU_ASSERT(case_count(events, "M", "process_name") == 1);
    double tid[3] = {0}, at[3] = {0};
    int n = 0;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        CU_ASSERT(case_number(e, "pid") == 1);
        if (strcmp(case_text(e, "ph"), "X") != 0 || n == 3)
            continue;
        at[n] = case_number(e, "ts");
        tid[n++] = case_number(e, "tid");
    }
    CU_ASSERT(at[0] == 1e6 && at[1] == 2e6 && at[2] == 3e6);
    CU_ASSERT(tid[0] != tid[1] && tid[0] == tid[2]);
}

/* Nothing is left of what cannot be written, and unknown names are refused by the table. */
static void test_refusals(void) {
    struct dtp_err err = {0};
    CU_ASSERT(dtp_tasks_write(arena, three(), "/nowhere/at/all.json", &err) == DTP_EINPUT);
    CU_ASSERT(dtp_tasks_write(arena, three(), path_of("three.txt"), &err) == DTP_EUSAGE);
    CU_ASSERT(access(path_of("three.txt"), F_OK) != 0);
    struct dtp_tasks *none;
    struct dtp_tasks_filter f = {.ranks = "1"};
    CU_ASSERT(dtp_tasks_select(arena, three(), &f, &none, &err) == DTP_EUSAGE);
    f.ranks = "1,,2";
    CU_ASSERT(dtp_tasks_select(arena, three(), &f, &none, &err) == DTP_EUSAGE);
}

/* The compressed file holds the same bytes as the plain one. */
static void test_gzip(void) {
    const char *plain = path_of("three.csv"), *packed = path_of("three.csv.gz");
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_tasks_write(arena, three(), plain, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_tasks_write(arena, three(), packed, &err) == DTP_OK);
    const char *want = NULL;
    size_t n = 0;
    CU_ASSERT_FATAL(dtp_file_read(arena, plain, 0, &want, &n, &err) == DTP_OK);
    char *got = DTP_NEW(arena, char, n + 1);
    gzFile f = gzopen(packed, "rb");
    CU_ASSERT_FATAL(f != NULL);
    CU_ASSERT(gzread(f, got, (unsigned)n + 1) == (int)n && memcmp(got, want, n) == 0);
    gzclose(f);
}

static void test_picture(void) {
    const char *path = path_of("three.svg"), *text = NULL;
    struct dtp_err err = {0};
    size_t n = 0;
    CU_ASSERT_FATAL(dtp_tasks_write(arena, three(), path, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_file_read(arena, path, 0, &text, &n, &err) == DTP_OK);
    CU_ASSERT(strstr(text, "three &lt;tasks&gt; &amp; more") != NULL);
    CU_ASSERT(strstr(text, "0F1") && n > 7 && strcmp(text + n - 7, "</svg>\n") == 0);
}

static size_t count_of(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

/* 1F1B of so many microbatches on two ranks, forward 1 and backward 2 s. */
static struct dtp_tasks *one_f_one_b(int m) {
    struct dtp_tasks *t = dtp_tasks_create(arena, "simulation", "long");
    for (int rank = 0; rank < 2; rank++) {
        dtp_tasks_rank(t, rank, rank ? "last" : "first");
        for (int i = 0; i < m; i++) {
            double f_s = rank || i == 0 ? 3 * i + rank : 3 * i - 2,
                   b_s = rank ? 3 * i + 2 : 3 * i + 4;
            struct dtp_tasks_task k = {.name = dtp_arena_printf(arena, "0F%d", i),
                                       .category = "F",
                                       .stream = "compute",
                                       .rank = rank,
                                       .start_s = f_s,
                                       .end_s = f_s + 1,
                                       DTP_TASKS_UNSAID};
            dtp_tasks_add(t, &k);
            k.name = dtp_arena_printf(arena, "0B%d", i);
            k.category = "B";
            k.start_s = b_s;
            k.end_s = b_s + 2;
            dtp_tasks_add(t, &k);
        }
    }
    return t;
}

/* The first, some of the middle and the last of 512 microbatches are drawn, each wide enough for its name. */
static void test_long_picture(void) {
    static const struct {
        int m;
        size_t breaks;
    } cases[] = {{8, 0}, {512, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = path_of("long.svg"), *text = NULL;
        size_t n = 0;
        CU_ASSERT_FATAL(dtp_tasks_write(arena, one_f_one_b(cases[i].m), path, NULL) == DTP_OK);
        CU_ASSERT_FATAL(dtp_file_read(arena, path, 0, &text, &n, NULL) == DTP_OK);
        CU_ASSERT_EQUAL(count_of(text, "not shown"), cases[i].breaks);
        CU_ASSERT(strstr(text, ">0F0<") && strstr(text, ">0B0<") && !strstr(text, "nan"));
        CU_ASSERT(strstr(text, dtp_arena_printf(arena, ">0B%d<", cases[i].m - 1)) != NULL);
        CU_ASSERT(count_of(text, "<title>") < 100 && !strstr(text, " tasks, first"));
    }
}

/* ---- a simulated step ---- */

static void check_threads(const struct dtp_json *events) {
    double end[256] = {0};
    bool integer = true, apart = true;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        double tid = case_number(e, "tid"), pid = case_number(e, "pid");
        integer = integer && tid == floor(tid) && pid == floor(pid) && tid < 256 && pid >= 1;
        if (strcmp(case_text(e, "ph"), "X") != 0 || !integer)
            continue;
        apart = apart && case_number(e, "ts") >= end[(int)tid];
        end[(int)tid] = case_number(e, "ts") + case_number(e, "dur");
    }
    CU_ASSERT(integer && apart);
}

enum { P = 4, V = 2, M = 8 };

/* Interleaved 1F1B with sends and overlapped reductions, dp 2; fold or every rank. */
static struct dtp_tasks *simulated(bool fold) {
    static struct dtp_cluster cluster;
    static struct dtp_framework framework = {.wire.rank_order = "tp-cp-dp-pp"};
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_cluster_load(arena, "dgx-a100-80", &cluster, &err) == DTP_OK);
    struct dtp_costs c = case_costs(arena, P, V, M, (struct case_times){1, 0.5, 0.5});
    case_sends(&c, 1e9, 0.25, 0);
    for (int s = 0; s < c.nstages; s++) {
        c.stage[s].nreduce = 2;
        c.stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1e9, 0.5, 0);
    }
    c.reduce_overlap = true;
    struct dtp_schedule s = case_schedule(arena, DTP_SCHED_INTERLEAVED, P, V, M);
    struct dtp_plan plan = dtp_plan_default();
    plan.pp = P;
    plan.vpp = V;
    plan.dp = 2;
    plan.schedule = DTP_SCHED_INTERLEAVED;
    struct dtp_problem problem = {.cluster = &cluster, .framework = &framework, .gpus = 8};
    struct dtp_lower_input in = {&problem, &plan, &c, &s};
    struct dtp_lower_options how = {.fold = fold};
    struct dtp_lowered lowered;
    struct dtp_timeline t;
    CU_ASSERT_FATAL(dtp_lower(arena, &in, &how, &lowered, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_engine_run(arena, &lowered.platform, &lowered.graph, &t, &err) == DTP_OK);
    struct dtp_tasks_simulation what = {.problem = &problem,
                                        .plan = &plan,
                                        .costs = &c,
                                        .lowered = &lowered,
                                        .timeline = &t,
                                        .title = "interleaved"};
    return dtp_tasks_of_simulation(arena, &what);
}

static void test_timeline(void) {
    struct dtp_err err = {0};
    const char *path = path_of("step.json");
    CU_ASSERT_FATAL(dtp_tasks_write(arena, simulated(true), path, &err) == DTP_OK);
    const struct dtp_json *events = case_events(arena, path);
    int transfers = 2 * M * (P * V - 1); /* no two neighbours on one rank */
    CU_ASSERT(case_count(events, "M", "process_name") == P);
    CU_ASSERT(case_count(events, "X", "1F3") == P);
    CU_ASSERT(case_count(events, "X", "0B7") == 2 * P); /* the last B of a chunk is cut in two */
    CU_ASSERT(case_count(events, "X", "0SF3") == P && case_count(events, "X", "1SF3") == P - 1);
    CU_ASSERT(case_count(events, "s", NULL) == transfers);
    CU_ASSERT(case_count(events, "f", NULL) == transfers);
    CU_ASSERT(case_count(events, "X", "0 reduce 1") == P);
    CU_ASSERT(case_count(events, "C", NULL) == 2 * M * V * P);
    double held = NAN;
    for (size_t i = 0; i < dtp_json_size(events); i++) {
        const struct dtp_json *e = dtp_json_at(events, i);
        if (strcmp(case_text(e, "ph"), "C") == 0)
            held = case_number(dtp_json_get(e, "args"), "value");
    }
    CU_ASSERT(held == 0);
    check_threads(events);
}

/* Every rank shows the reductions of its group; a filter keeps its ranks and what happens on them. */
static void test_members_and_filter(void) {
    struct dtp_err err = {0};
    struct dtp_tasks *all = simulated(false), *some = NULL;
    int on_rank[2 * P] = {0};
    for (uint32_t i = 0; i < all->ntasks; i++)
        on_rank[all->task[i].rank] += strcmp(all->task[i].stream, "data parallel") == 0;
    for (int r = 0; r < 2 * P; r++)
        CU_ASSERT(on_rank[r] == 2 * V);
    struct dtp_tasks_filter f = {.ranks = "2..3", .streams = "compute"};
    CU_ASSERT_FATAL(dtp_tasks_select(arena, all, &f, &some, &err) == DTP_OK);
    CU_ASSERT(some->nranks == 2 && some->ntasks > 0);
    for (uint32_t i = 0; i < some->ntasks; i++)
        CU_ASSERT(some->task[i].rank / 2 == 1 && !strcmp(some->task[i].stream, "compute"));
    double end_s = 0; /* what was cut off stays as gaps: the part replays to its own end */
    for (uint32_t i = 0; i < some->ntasks; i++)
        end_s = some->task[i].end_s > end_s ? some->task[i].end_s : end_s;
    struct dtp_trace trace;
    struct dtp_replay replay;
    const char *path = path_of("part.json");
    CU_ASSERT_FATAL(dtp_tasks_write(arena, some, path, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_trace_load(arena, &path, 1, NULL, &trace, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_replay(arena, &trace, &DTP_REPLAY_AS_MEASURED, &replay, &err) == DTP_OK);
    double replayed_s = fmax(replay.rank[0].replayed_end_s, replay.rank[1].replayed_end_s);
    CU_ASSERT_DOUBLE_EQUAL(replayed_s, end_s, 1e-9 * end_s);
}

/* Sends and receives pair by tag across the graphs; nothing waits for what does not exist. */
static void test_chakra(void) {
    struct dtp_err err = {0};
    struct dtp_tasks *all = simulated(false);
    int sends = 0, receives = 0, collectives = 0;
    double balance = 0, compute_us = 0;
    CU_ASSERT_FATAL(dtp_tasks_write(arena, all, path_of("job.et"), &err) == DTP_OK);
    for (int r = 0; r < 2 * P; r++) {
        struct dtp_source *source;
        struct dtp_chakra g = {0};
        const char *path = path_of(dtp_arena_printf(arena, "job.%d.et", r));
        CU_ASSERT_FATAL(dtp_source_open(arena, path, &source, &err) == DTP_OK);
        CU_ASSERT_FATAL(dtp_chakra_read(arena, source, &g, &err) == DTP_OK);
        dtp_source_close(source);
        CU_ASSERT(g.ndangling == 0);
        for (uint32_t i = 0; i < g.nnodes; i++) {
            const struct dtp_chakra_node *n = &g.node[i];
            sends += n->type == DTP_CHAKRA_SEND;
            receives += n->type == DTP_CHAKRA_RECV;
            collectives += n->type == DTP_CHAKRA_COLL && n->group[0];
            balance += n->type == DTP_CHAKRA_SEND   ? (double)n->comm_tag * 1.5
                       : n->type == DTP_CHAKRA_RECV ? (double)n->comm_tag * -1.5
                                                    : 0;
            compute_us += n->type == DTP_CHAKRA_COMP ? (double)n->dur_us : 0;
        }
    }
    CU_ASSERT(sends == 2 * 2 * M * (P * V - 1) && receives == sends && balance == 0);
    CU_ASSERT(collectives == 2 * P * V * 2);
    CU_ASSERT(compute_us == 2.0 * P * V * M * 2 * 1e6); /* F and B: 1 s each */
}

/* What files will take, before they are written, within a factor of two and a half. */
static void test_sizes(void) {
    static const char *const names[] = {"size.json", "size.csv", "size.svg", "size.et"};
    struct dtp_tasks *all = simulated(false);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(names[i]);
        struct dtp_err err = {0};
        struct stat st;
        double bytes = 0;
        CU_ASSERT_FATAL(dtp_tasks_write(arena, all, path, &err) == DTP_OK);
        for (int r = 0; r < 2 * P; r++) {
            const char *of_rank = path_of(dtp_arena_printf(arena, "size.%d.et", r));
            bytes += strstr(path, ".et") && stat(of_rank, &st) == 0 ? (double)st.st_size : 0;
        }
        bytes += !strstr(path, ".et") && stat(path, &st) == 0 ? (double)st.st_size : 0;
        double said = dtp_tasks_bytes(all, path);
        CU_ASSERT(said > bytes / 2.5 && said < bytes * 2.5);
    }
    CU_ASSERT(dtp_tasks_bytes(all, "size.csv.gz") == 0);
}

/* On every rank the optimizer waits for the rank's own part of the norm, that for its reductions. */
static void test_chakra_waits(void) {
    struct dtp_ask ask = {
        .model = "gpt3-125m", .gpus = 8, .batch = 8, .dtype = -1, .attention = -1};
    struct dtp_setup *setup = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_plan plan = dtp_plan_default();
    struct dtp_simulate_options how = {.no_fold = true};
    struct dtp_result result;
    struct dtp_tasks *t;
    CU_ASSERT_FATAL(dtp_setup_init(arena, &ask, setup, &err) == DTP_OK);
    plan.pp = 2;
    plan.dp = 4;
    plan.zero_stage = 1;
    plan.global_batch_size = 8;
    plan.dtype = setup->problem.dtype;
    CU_ASSERT_FATAL(dtp_plan_check(&setup->problem, &plan) == DTP_LEGAL);
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &setup->problem);
    CU_ASSERT_FATAL(dtp_tasks_simulate(arena, ev, &plan, &how, &result, &t, &err) == DTP_OK);
    dtp_evaluator_destroy(ev);
    CU_ASSERT_FATAL(dtp_tasks_write(arena, t, path_of("job.et"), &err) == DTP_OK);
    for (int r = 0; r < 8; r++) {
        struct dtp_source *source;
        struct dtp_chakra g = {0};
        const char *path = path_of(dtp_arena_printf(arena, "job.%d.et", r));
        int norms = 0, waits = 0, reductions = 0;
        CU_ASSERT_FATAL(dtp_source_open(arena, path, &source, &err) == DTP_OK);
        CU_ASSERT_FATAL(dtp_chakra_read(arena, source, &g, &err) == DTP_OK);
        dtp_source_close(source);
        for (uint32_t i = 0; i < g.nnodes; i++) {
            const struct dtp_chakra_node *n = &g.node[i];
            const uint64_t *dep = g.dep + n->first_dep + n->nctrl;
            bool norm = strcmp(n->name, "norm all-reduce") == 0;
            norms += norm && n->type == DTP_CHAKRA_COLL;
            for (uint32_t d = 0; d < n->ndata; d++) {
                const struct dtp_chakra_node *before = &g.node[dep[d]];
                waits += !strcmp(n->name, "optimizer") && !strcmp(before->name, "norm all-reduce");
                reductions += norm && strstr(before->name, "reduce") != NULL;
            }
        }
        CU_ASSERT(norms == 1 && waits == 1 && reductions > 0);
    }
}

/* ---- replays ---- */

static void test_round_trip(void) {
    struct dtp_tasks *t = simulated(true);
    double step_s = t->step[0].end_s;
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    CU_ASSERT(fabs(case_replayed_s(arena, t, path_of("a.json.gz"), &o) - step_s) <= 1e-9 * step_s);
    o.kernel_speed = 2; /* all of the step but the sends and reductions: more than half is left */
    double half_s = case_replayed_s(arena, t, path_of("a.json"), &o);
    CU_ASSERT(half_s > step_s / 2 && half_s < 0.7 * step_s);
    o.network_bandwidth = 2;
    double all_s = case_replayed_s(arena, t, path_of("a.json"), &o);
    CU_ASSERT_DOUBLE_EQUAL(all_s, step_s / 2, 1e-9 * step_s);
    o = DTP_REPLAY_AS_MEASURED;
    o.delayed_rank = 0;
    o.delay_s = 3;
    CU_ASSERT_DOUBLE_EQUAL(case_replayed_s(arena, t, path_of("a.json"), &o), step_s + 3, 1e-9);
}

/* A receive that was posted first ends with its send; one posted late takes its own time. */
static void test_receive(void) {
    struct dtp_tasks *t = dtp_tasks_create(arena, "run", "two ranks");
    dtp_tasks_rank(t, 0, "rank 0");
    dtp_tasks_rank(t, 1, "rank 1");
    struct dtp_tasks_task f = {
        .name = "0F0", .stream = "compute", DTP_TASKS_UNSAID, .start_s = 0, .end_s = 4};
    struct dtp_tasks_task r = {.name = "0RF0",
                               .rank = 1,
                               .stream = "recv",
                               .class = DTP_CLASS_COMM,
                               DTP_TASKS_UNSAID,
                               .start_s = 1,
                               .end_s = 5};
    dtp_tasks_add(t, &f);
    dtp_tasks_add(t, &r);
    dtp_tasks_after(t, 0);
    dtp_tasks_step(t, -1, "step", 0, 5);
    dtp_tasks_explain(t);
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    CU_ASSERT_DOUBLE_EQUAL(case_replayed_s(arena, t, path_of("a.json"), &o), 5, 1e-12);
    o.kernel_speed = 2; /* the send ends at 2, the receive one second later */
    CU_ASSERT_DOUBLE_EQUAL(case_replayed_s(arena, t, path_of("a.json"), &o), 3, 1e-12);
    o.kernel_speed = 8; /* at 0.5: the receive was posted at 1 */
    CU_ASSERT_DOUBLE_EQUAL(case_replayed_s(arena, t, path_of("a.json"), &o), 2, 1e-12);
}

static int remove_folder(void) {
    static const char *const names[] = {
        "three.json", "three.csv", "three.csv.gz", "three.svg",       "long.svg",
        "step.json",  "part.json", "a.json",       "a.json.gz",       "job.groups.json",
        "size.json",  "size.csv",  "size.svg",     "size.groups.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(path_of(names[i]));
    for (int r = 0; r < 2 * P; r++) {
        remove(path_of(dtp_arena_printf(arena, "job.%d.et", r)));
        remove(path_of(dtp_arena_printf(arena, "size.%d.et", r)));
    }
    return rmdir(folder);
}

int main(void) {
    CU_TestInfo tests[] = {{"events and threads", test_events},
                           {"refusals", test_refusals},
                           {"gzip", test_gzip},
                           {"picture", test_picture},
                           {"picture of a long step", test_long_picture},
                           {"a simulated step", test_timeline},
                           {"members of groups, filters", test_members_and_filter},
                           {"chakra graphs", test_chakra},
                           {"chakra graphs wait", test_chakra_waits},
                           {"sizes of files", test_sizes},
                           {"round trip and what-if", test_round_trip},
                           {"a receive", test_receive},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"tasks", NULL, remove_folder, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (!mkdtemp(folder))
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
