/* The tokenizer's strings are read byte by byte and eight bytes at once, with each special byte at each place: both
 * must agree. */
#include "traces/formats/pull.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>

#include "tests/suites.h"

static struct dtp_arena *arena;

/* The string that `json` begins with, read as an element of an array. */
static struct dtp_text read_string(const char *json, size_t n, struct dtp_pull *p) {
    struct dtp_source *source;
    struct dtp_err err = {0};
    struct dtp_text t = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "text", json, n, &source, &err), DTP_OK);
    dtp_pull_init(p, arena, source);
    CU_ASSERT_EQUAL_FATAL(dtp_pull_text(p, &t, &err), DTP_OK);
    CU_ASSERT_EQUAL(t.token, DTP_TOKEN_STRING);
    dtp_source_close(source);
    return t;
}

static void test_specials(void) {
    static const struct {
        const char *in, *out;
        int controls, bad_utf8;
    } special[] = {
        {"", "", 0, 0},
        {"\x7f", "\x7f", 0, 0},   /* the last byte that needs nothing */
        {" !#[]", " !#[]", 0, 0}, /* neighbours of the quote, the backslash and the controls */
        {"\x01", "\x01", 1, 0},
        {"\x1f", "\x1f", 1, 0},
        {"\\\"", "\"", 0, 0},
        {"\\\\", "\\", 0, 0},
        {"\\n", "\n", 0, 0},
        {"\xc3\xa9", "\xc3\xa9", 0, 0},
        {"\x80", "\xef\xbf\xbd", 0, 1},
        {"\xa2", "\xef\xbf\xbd", 0, 1},  /* a quote with the top bit */
        {"\xdc", "\xef\xbf\xbd", 0, 1}}; /* a backslash with it */
    enum { LONGEST = 27 };
    for (size_t k = 0; k < sizeof special / sizeof *special; k++)
        for (int before = 0; before < LONGEST; before++)
            for (int after = 0; after < LONGEST; after++) {
                char in[128], out[128];
                const char *a = "abcdefghijklmnopqrstuvwxyz0", *b = "9876543210ZYXWVUTSRQPONMLKJ";
                int n = snprintf(in, sizeof in, "\"%.*s%s%.*s\", \"next", before, a, special[k].in,
                                 after, b);
                snprintf(out, sizeof out, "%.*s%s%.*s", before, a, special[k].out, after, b);
                struct dtp_pull p;
                struct dtp_text t = read_string(in, (size_t)n, &p);
                CU_ASSERT(dtp_text_is(&t, out));
                CU_ASSERT_EQUAL(p.raw_controls, (uint64_t)special[k].controls);
                CU_ASSERT_EQUAL(p.bad_utf8, (uint64_t)special[k].bad_utf8);
                CU_ASSERT_EQUAL(dtp_pull_offset(&p), (uint64_t)n - strlen(", \"next"));
                dtp_arena_reset(arena);
            }
}

/* A member at each place around the end of the window, whole and ended after each of its bytes. */
static void test_window(void) {
    static const char text[] = "{\"k\\u00e9y\" : \"a\\ud83d\\ude00\\\\\\\"b\"}",
                      key[] = "k\xc3\xa9y", value[] = "a\xf0\x9f\x98\x80\\\"b";
    enum { WINDOW = 1 << 18, N = sizeof text - 1 };
    char *json = dtp_arena_alloc(arena, 1, WINDOW + N);
    struct dtp_arena *a = dtp_arena_create("window");
    memset(json, ' ', WINDOW + N);
    for (size_t before = 0; before <= N; before++) {
        char *at = json + WINDOW - before;
        memcpy(at, text, N);
        for (size_t n = 0; n <= N; n++) {
            struct dtp_source *source;
            struct dtp_pull p;
            struct dtp_text t;
            bool same = false;
            CU_ASSERT_EQUAL_FATAL(
                dtp_source_memory(a, "text", json, WINDOW - before + n, &source, NULL), DTP_OK);
            dtp_pull_init(&p, a, source);
            enum dtp_status status = dtp_pull_open(&p, '{', NULL);
            while (status == DTP_OK && dtp_pull_member(&p, &t, &status, NULL)) {
                same = dtp_text_is(&t, key);
                status = dtp_pull_text(&p, &t, NULL);
                same = same && status == DTP_OK && dtp_text_is(&t, value);
            }
            CU_ASSERT_EQUAL(status, n < N ? DTP_EINPUT : DTP_OK);
            CU_ASSERT(n < N || same);
            dtp_source_close(source);
            dtp_arena_reset(a);
        }
        memset(at, ' ', N);
    }
    dtp_arena_destroy(a);
}

/* White space may stand before the colon, however long or short the key is. */
static void test_long_key(void) {
    enum { LONGEST = 1000 };
    char json[LONGEST + 16];
    for (int n = 0; n <= LONGEST; n += n < 250 || n > 260 ? 9 : 1) {
        struct dtp_source *source;
        struct dtp_pull p;
        struct dtp_text t = {0};
        struct dtp_err err = {0};
        enum dtp_status status;
        uint64_t value = 0;
        json[0] = '{';
        json[1] = '"';
        memset(json + 2, 'k', (size_t)n);
        int rest = snprintf(json + 2 + n, sizeof json - 2 - (size_t)n, "\"\n: 7}");
        CU_ASSERT_EQUAL_FATAL(
            dtp_source_memory(arena, "text", json, (size_t)(2 + n + rest), &source, &err), DTP_OK);
        dtp_pull_init(&p, arena, source);
        CU_ASSERT_EQUAL(dtp_pull_open(&p, '{', &err), DTP_OK);
        CU_ASSERT(dtp_pull_member(&p, &t, &status, &err));
        CU_ASSERT(t.n == (size_t)n && t.at && (n == 0 || (t.at[0] == 'k' && t.at[n - 1] == 'k')));
        CU_ASSERT_EQUAL(dtp_pull_u64(&p, &value, &err), DTP_OK);
        CU_ASSERT_EQUAL(value, 7);
        CU_ASSERT(!dtp_pull_member(&p, &t, &status, &err));
        CU_ASSERT_EQUAL(status, DTP_OK);
        dtp_source_close(source);
        dtp_arena_reset(arena);
    }
}

static void test_text_is(void) {
    const struct dtp_text t = {"duration", 3, DTP_TOKEN_STRING}, none = {"x", 0, DTP_TOKEN_STRING},
                          nul = {"a\0b", 3, DTP_TOKEN_STRING};
    CU_ASSERT(dtp_text_is(&t, "dur"));
    CU_ASSERT(!dtp_text_is(&t, "du") && !dtp_text_is(&t, "dura") && !dtp_text_is(&t, ""));
    CU_ASSERT(dtp_text_is(&none, "") && !dtp_text_is(&none, "x"));
    CU_ASSERT(!dtp_text_is(&nul, "a"));
}

int main(void) {
    CU_TestInfo tests[] = {{"special bytes", test_specials},
                           {"around the end of the window", test_window},
                           {"long keys", test_long_key},
                           {"comparison", test_text_is},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"pull", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
