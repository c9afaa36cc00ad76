/* Schedules by hand: names, orders, activations in flight, complete lists, errors, goldens. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/text.h"
#include "tests/schedule_path.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static struct dtp_schedule make(int kind, int pp, int vpp, int m) {
    struct dtp_schedule s;
    struct dtp_err err = {0};
    if (dtp_schedule_make(arena, kind, pp, vpp, m, &s, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("dtp_schedule_make");
    }
    return s;
}

static const char *text_of(const struct dtp_schedule *s) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_FATAL(f != NULL);
    dtp_schedule_print(f, s);
    fclose(f);
    const char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

static void equal_text(const char *got, const char *want) {
    if (strcmp(got, want) != 0)
        printf("\n--- found\n%s--- expected\n%s", got, want);
    CU_ASSERT_STRING_EQUAL(got, want);
}

/* ---- names ---- */

static void test_names(void) {
    int n = 0;
    for (; dtp_schedule_kinds[n].name; n++)
        CU_ASSERT(dtp_schedule_names[n] &&
                  strcmp(dtp_schedule_kinds[n].name, dtp_schedule_names[n]) == 0);
    CU_ASSERT(n == DTP_NSCHEDULES && dtp_schedule_names[n] == NULL);
    CU_ASSERT(dtp_schedule_find("gpipe") == DTP_SCHED_GPIPE);
    CU_ASSERT(dtp_schedule_find("GPipe") == DTP_SCHED_GPIPE);
    CU_ASSERT(dtp_schedule_find("1F1B") == DTP_SCHED_1F1B);
    CU_ASSERT(dtp_schedule_find("1F1B (DeepSpeed pipeline)") == DTP_SCHED_1F1B);
    CU_ASSERT(dtp_schedule_find("Interleaved 1F1B") == DTP_SCHED_INTERLEAVED);
    CU_ASSERT(dtp_schedule_find("interleaved_1f1b") == DTP_SCHED_INTERLEAVED);
    CU_ASSERT(dtp_schedule_find("ZB-H1") == DTP_SCHED_ZB_H1);
    CU_ASSERT(dtp_schedule_find("zbh1") == DTP_SCHED_ZB_H1);
    CU_ASSERT(dtp_schedule_find("Looped BFS") == DTP_SCHED_BREADTH_FIRST);
    /* DAPPLE's two warm-ups (Fan 2021): PA min(p - r, m), PB min(2 (p - r) - 1, m) */
    CU_ASSERT(dtp_schedule_find("DAPPLE") == DTP_SCHED_1F1B);
    CU_ASSERT(dtp_schedule_find("dapple-pb") == DTP_SCHED_EAGER_1F1B);
    CU_ASSERT(dtp_schedule_find("pipedream-flush") == DTP_SCHED_1F1B);
    CU_ASSERT(dtp_schedule_find("FSDP FULL_SHARD") == -1 && dtp_schedule_find("") == -1);
}

static void test_applies(void) {
    struct dtp_schedule s;
    struct dtp_err err;
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_1F1B, 4, 1, 1) == NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_1F1B, 4, 2, 8) != NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_INTERLEAVED, 4, 1, 8) != NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_INTERLEAVED, 4, 2, 6) != NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_INTERLEAVED, 4, 2, 8) == NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_USER, 4, 1, 8) != NULL);
    CU_ASSERT(dtp_schedule_applies(DTP_SCHED_GPIPE, 4, 1, 0) != NULL);
    CU_ASSERT(dtp_schedule_make(arena, DTP_SCHED_INTERLEAVED, 4, 2, 6, &s, &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "pp must divide") != NULL);
}

/* ---- times ---- */

/* 1F1B, p = 8, m = 32, F = 1, B = 2, a transfer of 0.1 per hop: 123.8, where (m + p - 1)(F + B) and
 * the hops of one fill and one drain, 2 (p - 1) 0.1, give 118.4 only. */
static void test_transfers(void) {
    struct dtp_schedule s = make(DTP_SCHED_1F1B, 8, 1, 32);
    struct path_times free_hops = {.f = 1, .b = 2}, t = {.f = 1, .b = 2, .hop = 0.1};
    CU_ASSERT_DOUBLE_EQUAL(path_step(&s, &free_hops), 117.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(path_step(&s, &t), 123.8, 1e-9);
}

/* ---- in flight ---- */

static void test_in_flight(void) {
    enum { P = 4, M = 12, V = 2 };
    int flight[P * V], peak[P], chunk[P * V];
    for (int m = 1; m <= M; m++) {
        struct dtp_schedule gpipe = make(DTP_SCHED_GPIPE, P, 1, m);
        dtp_schedule_in_flight(&gpipe, flight, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == m && flight[r] == m);
        struct dtp_schedule one = make(DTP_SCHED_1F1B, P, 1, m);
        dtp_schedule_in_flight(&one, flight, peak, chunk);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == (m < P - r ? m : P - r) && flight[r] == peak[r] &&
                      chunk[r] == peak[r]);
        struct dtp_schedule naive = make(DTP_SCHED_NAIVE, P, 1, m);
        dtp_schedule_in_flight(&naive, NULL, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == 1);
        struct dtp_schedule zb = make(DTP_SCHED_ZB_H1, P, 1, m);
        dtp_schedule_in_flight(&zb, NULL, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == (m < P ? m : P));
    }
    for (int m = 2 * P - 1; m <= M; m++) { /* 2 p chunks: as many bytes as p of 1F1B */
        struct dtp_schedule zb_v = make(DTP_SCHED_ZB_V, P, V, m);
        dtp_schedule_in_flight(&zb_v, NULL, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == 2 * P);
        struct dtp_schedule zb_h2 = make(DTP_SCHED_ZB_H2, P, 1, m);
        dtp_schedule_in_flight(&zb_h2, NULL, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == 2 * P - 1);
        struct dtp_schedule breadth = make(DTP_SCHED_BREADTH_FIRST, P, V, m);
        dtp_schedule_in_flight(&breadth, flight, peak, NULL);
        for (int r = 0; r < P; r++)
            CU_ASSERT(peak[r] == V * m && flight[r * V] == m && flight[r * V + 1] == m);
    }
    /* Interleaved: the warm-up 2 (p - r - 1) + (v - 1) p and the forward that follows it. */
    struct dtp_schedule s = make(DTP_SCHED_INTERLEAVED, P, V, M);
    dtp_schedule_in_flight(&s, flight, peak, chunk);
    for (int r = 0; r < P; r++) {
        CU_ASSERT(peak[r] == 2 * (P - r - 1) + (V - 1) * P + 1);
        CU_ASSERT(chunk[r * V] + chunk[r * V + 1] == peak[r]);
        CU_ASSERT(flight[r * V] >= chunk[r * V] && flight[r * V + 1] >= chunk[r * V + 1]);
    }
    /* Rank 0: 4 + 4 + 3 forwards: chunk 0 holds 7 of them at the peak, chunk 1 holds 4. */
    CU_ASSERT(chunk[0] == 7 && chunk[1] == 4);
}

/* ---- complete lists ---- */

static void test_complete(void) {
    struct dtp_schedule s = make(DTP_SCHED_1F1B, 2, 1, 2), full;
    struct dtp_schedule_passes all = {.p2p = true,
                                      .recompute = true,
                                      .zero_stage = 3,
                                      .regather_backward = true,
                                      .reduce = true,
                                      .offload = true,
                                      .optim = true};
    CU_ASSERT(dtp_schedule_complete(arena, &s, &all, &full, NULL) == DTP_OK);
    equal_text(text_of(&full),
               "# 1f1b pp 2 vpp 1 m 2\n"
               "0: 0U0 0F0 0SF0 0R0 0U1 0F1 0SF1 0R1 0RB0 0U0 0C0 0B0 0R0 0RB1 0U1 0C1 0B1 0R1 0G1 "
               "0H0 0O0 0D0\n"
               "1: 0RF0 0U0 0F0 0R0 0U0 0C0 0B0 0SB0 0R0 0RF1 0U1 0F1 0R1 0U1 0C1 0B1 0SB1 0R1 0G1 "
               "0H0 0O0 0D0\n");
    struct dtp_schedule_passes kept = {
        .zero_stage = 3, .reduce = true, .reduce_per_microbatch = true};
    CU_ASSERT(dtp_schedule_complete(arena, &s, &kept, &full, NULL) == DTP_OK);
    equal_text(text_of(&full), "# 1f1b pp 2 vpp 1 m 2\n"
                               "0: 0U0 0F0 0F1 0B0 0G0 0B1 0R1 0G1\n"
                               "1: 0U0 0F0 0B0 0R0 0G0 0U1 0F1 0B1 0R1 0G1\n");
    struct dtp_schedule zb = make(DTP_SCHED_ZB_H1, 2, 1, 2);
    struct dtp_schedule_passes split = {
        .p2p = true, .recompute = true, .reduce = true, .optim = true};
    CU_ASSERT(dtp_schedule_complete(arena, &zb, &split, &full, NULL) == DTP_OK);
    equal_text(text_of(&full), "# zb-h1 pp 2 vpp 1 m 2\n"
                               "0: 0F0 0SF0 0F1 0SF1 0RB0 0C0 0I0 0W0 0RB1 0C1 0I1 0W1 0G1 0O0\n"
                               "1: 0RF0 0F0 0C0 0I0 0SB0 0RF1 0F1 0C1 0I1 0SB1 0W0 0W1 0G1 0O0\n");
    struct dtp_err err;
    struct dtp_schedule twice;
    CU_ASSERT(dtp_schedule_complete(arena, &full, &split, &twice, &err) == DTP_EINPUT);
    /* A rank that holds two virtual stages in a row sends nothing between them. */
    CU_ASSERT(dtp_schedule_parse(arena, "t", "0: 0F0 1F0 1B0 0B0\n", 0, &s, NULL) == DTP_OK);
    CU_ASSERT(dtp_schedule_complete(arena, &s, &split, &full, NULL) == DTP_OK);
    equal_text(text_of(&full), "# user pp 1 vpp 2 m 1\n0: 0F0 1F0 1C0 1B0 1G0 0C0 0B0 0G0 0O0\n");
}

/* ---- checker ---- */

static void check_says(const char *text, const char *want) {
    struct dtp_schedule s;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_schedule_parse(arena, "t", text, 0, &s, &err) == DTP_OK);
    enum dtp_status status = dtp_schedule_check(arena, &s, &err);
    if (!want) {
        CU_ASSERT(status == DTP_OK);
        return;
    }
    if (status == DTP_OK || !strstr(err.msg, want))
        printf("\n  found \"%s\", expected \"%s\"\n", err.msg, want);
    CU_ASSERT(status == DTP_EINPUT && strstr(err.msg, want) != NULL);
}

static void test_check(void) {
    check_says("0: 0F0 0F1 0B0 0B1\n1: 0F0 0B0 0F1 0B1\n", NULL);
    check_says("0: 0F0 0F1 0B0 0B1\n1: 0F0 0F1 0B0\n", "rank 1: 0B1 must stand once");
    check_says("0: 0F0 0F1 0B0 0B1\n1: 0F0 0B0 0B1\n", "rank 1: 0F1 is missing");
    check_says("0: 0F0 0F1 0B0 0B1\n1: 0F0 0F0 0B0 0B1\n", "rank 1: 0F0 stands twice");
    check_says("0: 0F0 0B0 0W0\n", "rank 0: 0B0 must stand once");
    check_says("0: 0F0 0I0\n", "rank 0: 0B0 must stand once");
    check_says("0: 0F7 0B7\n1: 0F0 0B0\n", "4 actions cannot hold");
    /* rank 0 wants a gradient before it gave what makes it */
    check_says("0: 0F0 0B0 0B1 0F1\n1: 0F0 0B0 0F1 0B1\n",
               "deadlock: rank 0 at 0B1 waits for 0B1 of rank 1; rank 1 at 0F1 waits for 0F1 of "
               "rank 0");
    check_says("0: 0B0 0F0\n", "rank 0 at 0B0 waits for 0F0 of its own, which comes later");
    check_says("0: 0F0 0SF0 0RB0 0B0\n1: 0RF0 0F0 0B0 0SB0\n", NULL);
    check_says("0: 0F0 0SF0 0B0\n1: 0RF0 0F0 0B0 0SB0\n", "rank 0: 0RB0 is missing");
    check_says("0: 0F0 0SF0 0RB0 0B0 0SB0\n1: 0RF0 0F0 0B0 0SB0\n", "rank 0: 0SB0 has no other");
    check_says("0: 0SF0 0F0 0RB0 0B0\n1: 0RF0 0F0 0B0 0SB0\n", "deadlock: rank 0 at 0SF0");
    check_says("0: 0F0 0SF0 0RB0 0B0\n1: 0F0 0RF0 0B0 0SB0\n", "deadlock: rank 0 at 0RB0");
    check_says("0: 0U0 0F0 0R0 0B0\n", "rank 0: 0B0 uses parameters that are not gathered");
    check_says("0: 0U0 0F0 0U0 0B0\n", "gathers parameters that are there already");
    check_says("0: 0F0 0B0 0R0\n", "frees parameters that are not gathered");
    check_says("0: 0F0 0G0 0B0\n", "rank 0 at 0G0 waits for 0B0 of its own");
    check_says("0: 0F0 0O0 0B0\n", "rank 0: 0B0 stands after the optimizer");
    check_says("0: 0F0 0B0 0G0 0O0 0O0\n", "0O0 stands twice");
    check_says("0: 0F0 0C0 0I0 0W0 0O0 0D0\n", NULL);
}

/* ---- text ---- */

static void parse_says(const char *text, int vpp, const char *want) {
    struct dtp_schedule s;
    struct dtp_err err = {0};
    enum dtp_status status = dtp_schedule_parse(arena, "mine.txt", text, vpp, &s, &err);
    if (status == DTP_OK || !strstr(err.msg, want))
        printf("\n  found \"%s\", expected \"%s\"\n", err.msg, want);
    CU_ASSERT(status == DTP_EINPUT && strstr(err.msg, want) != NULL);
}

static void test_parse(void) {
    struct dtp_schedule s;
    CU_ASSERT_FATAL(dtp_schedule_parse(arena, "t",
                                       "# by hand\r\n\n 0: 0F0\t0B0  # all of it\r\n1:0F0 0B0", 0,
                                       &s, NULL) == DTP_OK);
    CU_ASSERT(s.kind == DTP_SCHED_USER && s.pp == 2 && s.vpp == 1 && s.m == 1 && s.begin[2] == 4);
    CU_ASSERT(dtp_schedule_parse(arena, "t", "0: 0F0 0B0\n", 3, &s, NULL) == DTP_OK && s.vpp == 3);
    CU_ASSERT(dtp_schedule_parse(arena, "t", "# ZB-H1\n0: 0F0 0I0 0W0\n", 0, &s, NULL) == DTP_OK &&
              s.kind == DTP_SCHED_ZB_H1);
    parse_says("", 0, "mine.txt: no actions");
    parse_says("0:\n1:\n", 0, "mine.txt: no actions");
    parse_says("0: 0F0\n\n2: 0F0\n", 0, "mine.txt:3: expected \"1:\"");
    parse_says("0 0F0\n", 0, "mine.txt:1: expected \"0:\"");
    parse_says("0: 0F0 0Q0\n", 0, "mine.txt:1: found \"0Q0\", expected CHUNK KIND MICROBATCH");
    parse_says("0: F0\n", 0, "found \"F0\"");
    parse_says("0: 0F\n", 0, "found \"0F\"");
    parse_says("0: 0F0x\n", 0, "found \"0F0x\"");
    parse_says("0: 0F-1\n", 0, "found \"0F-1\"");
    parse_says("0: 99999999999F0\n", 0, "found \"99999999999F0\"");
    parse_says("0: 0F99999999999\n", 0, "found \"0F99999999999\"");
    parse_says("# zb-v\n0: 0F0 1F0 2F0\n", 0, "mine.txt: named zb-v, with pp 1, vpp 3");
    parse_says("0: 2F0\n", 2, "mine.txt: chunk 2 occurs, expected chunks below 2");
}

/* ---- goldens ---- */

#define GOLDEN_DIR DTP_SOURCE_DIR "/tests/golden/schedule"

/* Each file, KIND-pP-vV-mM.txt, reads back, is sound, and is what the generator writes. With
 * DTP_UPDATE_GOLDEN=1 they are rewritten; a new one must exist (it may be empty). */
static void golden(const char *name, int seen[]) {
    int kind = 0, pp = 0, vpp = 0, m = 0;
    const char *tail = strstr(name, "-p");
    CU_ASSERT_FATAL(tail && sscanf(tail, "-p%d-v%d-m%d", &pp, &vpp, &m) == 3);
    kind = dtp_schedule_find(dtp_arena_strndup(arena, name, (size_t)(tail - name)));
    CU_ASSERT_FATAL(kind >= 0);
    struct dtp_schedule s = make(kind, pp, vpp, m), back;
    const char *path = dtp_arena_printf(arena, "%s/%s.txt", GOLDEN_DIR, name);
    const char *text, *got = text_of(&s);
    size_t length;
    if (getenv("DTP_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CU_ASSERT_FATAL(f != NULL);
        fputs(got, f);
        fclose(f);
    }
    CU_ASSERT_FATAL(dtp_file_read(arena, path, 0, &text, &length, NULL) == DTP_OK);
    equal_text(got, text);
    CU_ASSERT(dtp_schedule_parse(arena, path, text, 0, &back, NULL) == DTP_OK);
    CU_ASSERT(back.kind == kind && dtp_schedule_check(arena, &back, NULL) == DTP_OK);
    seen[kind]++;
}

static void test_goldens(void) {
    const char *const *names;
    size_t n;
    int seen[DTP_NSCHEDULES] = {0};
    CU_ASSERT_FATAL(dtp_dir_list(arena, GOLDEN_DIR, ".txt", &names, &n, NULL) == DTP_OK);
    for (size_t i = 0; i < n; i++)
        golden(names[i], seen);
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
        CU_ASSERT(seen[kind] > 0); /* every kind has a golden */
}

/* Four billion actions have no ids, whatever memory there is. */
static void test_too_long(void) {
    struct dtp_schedule s;
    struct dtp_err err = {0};
    CU_ASSERT(dtp_schedule_make(arena, DTP_SCHED_1F1B, 8, 1, 1 << 30, &s, &err) ==
              DTP_EUNSUPPORTED);
    CU_ASSERT(strstr(err.msg, "B actions of 1073741824 microbatches") != NULL);
    CU_ASSERT(dtp_schedule_max_actions(1024, 1 << 30) == 3 * ((size_t)1 << 40));
}

int main(void) {
    CU_TestInfo tests[] = {{"names and aliases", test_names},
                           {"where a kind applies", test_applies},
                           {"transfers lengthen 1F1B to 123.8", test_transfers},
                           {"activations in flight", test_in_flight},
                           {"complete lists", test_complete},
                           {"checker", test_check},
                           {"text", test_parse},
                           {"goldens", test_goldens},
                           {"too long", test_too_long},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"schedule", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
