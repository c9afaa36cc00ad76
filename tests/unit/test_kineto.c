/* The Kineto reader: malformed files get their verdict (refused with a byte, or loaded with a counted
 * warning), times are exact, archives and folders give ranks. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "traces/formats/kineto.h"
#include "traces/formats/pull.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static enum dtp_status load(const char *file, struct dtp_trace *out, struct dtp_err *err) {
    const char *path =
        file[0] == '/'
            ? file
            : dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_kineto/%s", DTP_SOURCE_DIR, file);
    struct dtp_trace_options options = {.rank = -1};
    *err = (struct dtp_err){0};
    return dtp_trace_load(arena, &path, 1, &options, out, err);
}

static enum dtp_status load_text(const char *text, size_t n, struct dtp_trace_rank *r,
                                 struct dtp_err *err) {
    struct dtp_source *s;
    *err = (struct dtp_err){0};
    dtp_trace_rank_init(r, arena, "text");
    DTP_TRY(dtp_source_memory(arena, "text", text, n, &s, err));
    enum dtp_status status = dtp_kineto_read(s, NULL, r, err);
    dtp_source_close(s);
    return status;
}

static void refused(void) {
    static const struct {
        const char *file, *says;
    } cases[] = {{"01_truncated_mid_event.json", "byte 408: the file ends"},
                 {"05_unescaped_quote_and_newline_in_name.json", "byte 120: expected , or }"},
                 {"12_gzip_truncated.json.gz", "gzip data ends inside a member"},
                 {"15_deep_nesting.json", "nested deeper than 64"},
                 {"23_empty.json", "an empty file"},
                 {"25_missing_rank_of_pair.json", "rank 7 of a world of 4"},
                 {"26_nan_golden.json", "Megatron golden values, JSON, which has no ranks"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_trace t;
        struct dtp_err err;
        CU_ASSERT_EQUAL(load(cases[i].file, &t, &err), DTP_EINPUT);
        if (!strstr(err.msg, cases[i].says)) {
            printf("\n  %s: %s\n", cases[i].file, err.msg);
            CU_FAIL("another message");
        }
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].file));
    }
}

static void warned(void) {
    static const struct {
        const char *file;
        size_t events;
        enum dtp_trace_warning w;
        uint64_t count;
    } cases[] = {{"02_inf_nan_numbers.json", 1, DTP_WARN_NOT_FINITE, 3},
                 {"02_inf_nan_numbers.json", 1, DTP_WARN_BAD_TIME, 1},
                 {"03_bad_utf8_and_control.json", 1, DTP_WARN_BAD_NAME, 3},
                 {"04_bad_escape_windows_path.json", 0, DTP_WARN_BAD_ESCAPE, 2},
                 {"06_ints_above_2p53.json", 3, DTP_WARN_BIG_ID, 1},
                 {"06_ints_above_2p53.json", 3, DTP_WARN_BIG_INTEGER, 2},
                 {"07_negative_and_zero_dur_ts0.json", 3, DTP_WARN_NEGATIVE_DURATION, 2},
                 {"07_negative_and_zero_dur_ts0.json", 3, DTP_WARN_ZERO_TIME, 1},
                 {"08_no_distributedInfo.json", 1, DTP_WARN_NO_RANK, 1},
                 {"10_duplicate_ids_and_keys.json", 3, DTP_WARN_DUPLICATE_KEY, 2},
                 {"10_duplicate_ids_and_keys.json", 3, DTP_WARN_AMBIGUOUS_LINK, 1},
                 {"11_gzip_two_members.json.gz", 2, DTP_WARN_NOT_FINITE, 0},
                 {"14_trailing_garbage_and_bare_array.json", 2, DTP_WARN_NOT_FINITE, 0},
                 {"16_string_stream_and_pid.json", 3, DTP_WARN_NO_LAUNCH, 0},
                 {"17_partial_overlap_on_one_tid.json", 4, DTP_WARN_OVERLAP, 1},
                 {"17_partial_overlap_on_one_tid.json", 4, DTP_WARN_NEGATIVE_DURATION, 0},
                 {"18_orphan_flow_and_kernel_before_launch.json", 2, DTP_WARN_BEFORE_LAUNCH, 1},
                 {"18_orphan_flow_and_kernel_before_launch.json", 2, DTP_WARN_ORPHAN_FLOW, 1},
                 {"24_metadata_events_only.json", 0, DTP_WARN_NOT_FINITE, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_trace t;
        struct dtp_err err;
        enum dtp_status status = load(cases[i].file, &t, &err);
        if (status != DTP_OK)
            printf("\n  %s: %s\n", cases[i].file, err.msg);
        CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
        CU_ASSERT_EQUAL(t.nranks, 1);
        CU_ASSERT_EQUAL(t.rank[0].nevents, cases[i].events);
        if (t.rank[0].warned[cases[i].w].count != cases[i].count)
            printf("\n  %s: %s: %llu\n", cases[i].file, dtp_trace_warning_text[cases[i].w],
                   (unsigned long long)t.rank[0].warned[cases[i].w].count);
        CU_ASSERT_EQUAL(t.rank[0].warned[cases[i].w].count, cases[i].count);
    }
}

static void details(void) {
    struct dtp_trace t;
    struct dtp_err err;
    CU_ASSERT_EQUAL_FATAL(load("10_duplicate_ids_and_keys.json", &t, &err), DTP_OK);
    CU_ASSERT_EQUAL(t.rank[0].rank, 1); /* the last of two */
    const struct dtp_trace_event *kernel = dtp_trace_event(&t.rank[0], 2);
    CU_ASSERT_STRING_EQUAL(dtp_trace_name(&t.rank[0], kernel->name), "k2");
    CU_ASSERT_EQUAL(kernel->launch, 1);
    CU_ASSERT_EQUAL_FATAL(load("06_ints_above_2p53.json", &t, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_trace_event(&t.rank[0], 0)->start_ns, 1712195495519689123);
    CU_ASSERT_EQUAL(dtp_trace_event(&t.rank[0], 0)->dur_ns, 1);
    CU_ASSERT_EQUAL(dtp_trace_event(&t.rank[0], 1)->start_ns, 9007199254740993000);
    CU_ASSERT_EQUAL(dtp_trace_event(&t.rank[0], 2)->link,
                    0); /* 26 digits: no link, not a wrong one */
    CU_ASSERT_EQUAL_FATAL(load("16_string_stream_and_pid.json", &t, &err), DTP_OK);
    kernel = dtp_trace_event(&t.rank[0], 0);
    CU_ASSERT_EQUAL(kernel->kind, DTP_TRACE_KERNEL);
    CU_ASSERT_EQUAL(t.rank[0].lane[kernel->lane].stream, 7);
    CU_ASSERT_EQUAL(kernel->launch, 1);
}

/* 100 us and 100.25 us after the same second, one absolute, one relative to a base. */
static void two_clocks(void) {
    const char *paths[2];
    for (int i = 0; i < 2; i++)
        paths[i] = dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_kineto/%s", DTP_SOURCE_DIR,
                                    i ? "09b_rank1_float_us_with_base.json"
                                      : "09a_rank0_int_us_absolute.json");
    struct dtp_trace t;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, 2, NULL, &t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(t.nranks, 2);
    int64_t at[2];
    for (int i = 0; i < 2; i++)
        at[i] = t.rank[i].base_ns + dtp_trace_event(&t.rank[i], 0)->start_ns;
    CU_ASSERT_EQUAL(at[0], 1767189312000100000);
    CU_ASSERT_EQUAL(at[1], 1767189312000100250);
    paths[1] = paths[0];
    CU_ASSERT_EQUAL(dtp_trace_load(arena, paths, 2, NULL, &t, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "are both rank 0"));
}

static void bad_bytes_in_a_name(void) {
    static const char text[] =
        "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\xff\x01"
        "b\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":1}]}";
    struct dtp_trace_rank r;
    struct dtp_err err;
    CU_ASSERT_EQUAL_FATAL(load_text(text, sizeof text - 1, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(r.nevents, 1);
    CU_ASSERT_STRING_EQUAL(dtp_trace_name(&r, dtp_trace_event(&r, 0)->name), "a\xef\xbf\xbd\x01"
                                                                             "b");
    CU_ASSERT_EQUAL(r.warned[DTP_WARN_BAD_NAME].count, 2);
}

/* A file that is cut anywhere is refused, with one exception: a bare array may stay open. */
static void cut_anywhere(void) {
    static const char text[] =
        "{\"a\":[1,{\"b\":null}],\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":"
        "\"k\\u00e9\","
        "\"pid\":0,\"tid\":7,\"ts\":1.5,\"dur\":2,\"args\":{\"stream\":7}},{\"ph\":\"M\"}]}";
    struct dtp_trace_rank r;
    struct dtp_err err;
    for (size_t n = 0; n + 1 < sizeof text - 1; n++)
        CU_ASSERT_EQUAL(load_text(text, n, &r, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(load_text(text, sizeof text - 1, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL(r.nrecords, 2);
    CU_ASSERT_EQUAL(dtp_trace_event(&r, 0)->start_ns, 1500);
}

static void decimals(void) {
    static const struct {
        const char *text;
        bool good;
        int64_t ns;
    } cases[] = {{"0", true, 0},
                 {"1", true, 1000},
                 {"1.5", true, 1500},
                 {"-1.001", true, -1001},
                 {"0.0005", true, 1},
                 {"0.0004999", true, 0},
                 {"1.7e3", true, 1700000},
                 {"12e-4", true, 1},
                 {"9223372036854775.807", true, INT64_MAX},
                 {"9223372036854775.808", false, 0},
                 {"99999999999999999999999", false, 0},
                 {"1712195495519689.12345678901234567890", true, 1712195495519689123},
                 {"", false, 0},
                 {"abc", false, 0},
                 {"1.2.3", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_text t = {cases[i].text, strlen(cases[i].text), DTP_TOKEN_NUMBER};
        int64_t ns = 0;
        bool good = dtp_text_us_to_ns(&t, &ns);
        if (good != cases[i].good || ns != cases[i].ns)
            printf("\n  \"%s\": %d %lld\n", cases[i].text, good, (long long)ns);
        CU_ASSERT_EQUAL(good, cases[i].good);
        CU_ASSERT_EQUAL(ns, cases[i].ns);
    }
}

/* Strings and numbers that straddle the reader's window of 256 kB. */
static void across_windows(void) {
    size_t n = 0, capacity = (size_t)3 << 20, events = 0;
    char *text = DTP_NEW(arena, char, capacity);
    n += (size_t)sprintf(text + n, "{\"traceEvents\":[");
    while (n < capacity - 400) {
        n += (size_t)sprintf(
            text + n,
            "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%.*s\\n%zu\",\"pid\":0,\"tid\":7,"
            "\"ts\":%zu.25,\"dur\":1,\"args\":{\"stream\":7,\"x\":\"%.*s\"}}",
            events ? "," : "", (int)(events % 7), "abcdefg", events % 100, events + 1,
            (int)(events % 11), "01234567890");
        events++;
    }
    n += (size_t)sprintf(text + n, "]}");
    struct dtp_trace_rank r;
    struct dtp_err err;
    CU_ASSERT_EQUAL_FATAL(load_text(text, n, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(r.nevents, events);
    for (size_t i = 0; i < events; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s\n%zu", (int)(i % 7), "abcdefg", i % 100);
        const struct dtp_trace_event *e = dtp_trace_event(&r, i);
        if (strcmp(dtp_trace_name(&r, e->name), name) != 0 ||
            e->start_ns != (int64_t)(i + 1) * 1000 + 250)
            CU_FAIL_FATAL("an event across windows");
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"malformed files are refused with a place", refused},
                           {"repairable files load with counted warnings", warned},
                           {"what the repairs give", details},
                           {"absolute and relative clocks meet", two_clocks},
                           {"bad bytes in names become U+FFFD", bad_bytes_in_a_name},
                           {"a cut file is refused", cut_anywhere},
                           {"decimal microseconds are exact", decimals},
                           {"tokens across the window", across_windows},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"kineto", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
