/* Strict reading and deterministic writing; test_json_fields.c has the field tables. */
#include "sim/base/json.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/base/text.h"
#include "tests/arena_case.h"
#include "tests/suites.h"

static struct dtp_err err;

static enum dtp_status parse(const char *text, const struct dtp_json **out) {
    memset(&err, 0, sizeof err);
    *out = NULL;
    return dtp_json_parse(arena, "t.json", text, strlen(text), out, &err);
}

static char *written(const struct dtp_json *j, int indent) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, indent);
    dtp_json_put_json(&w, j);
    fclose(f);
    char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

/* ---- reading ---- */

/* text, and what it must be after reading and writing on one line */
static void test_accepts(void) {
    static const char *const cases[][2] = {
        {"{}", "{}\n"},
        {"[]", "[]\n"},
        {" [ ] \n", "[]\n"},
        {"null", "null\n"},
        {"true", "true\n"},
        {"-0.5e-3", "-0.0005\n"},
        {"0", "0\n"},
        {"9007199254740992", "9007199254740992\n"},
        {"-9007199254740992", "-9007199254740992\n"},
        {"1e300", "1e+300\n"},
        {"[1,[2,[3]],{\"a\":{\"b\":false}}]", "[1, [2, [3]], {\"a\": {\"b\": false}}]\n"},
        {"\"\\u00e9\\ud83d\\ude00\\n\\/\"", "\"\xc3\xa9\xf0\x9f\x98\x80\\n/\"\n"},
        {"\"\xe2\x82\xac\"", "\"\xe2\x82\xac\"\n"},
        {"{\"\":1,\"a b\":2}", "{\"\": 1, \"a b\": 2}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dtp_json *j;
        CU_ASSERT_EQUAL_FATAL(parse(cases[i][0], &j), DTP_OK);
        CU_ASSERT_STRING_EQUAL(written(j, 0), cases[i][1]);
    }
}

static void test_rejects_with_the_place(void) {
    static const char *const cases[][2] = {
        {"{\"a\":1,\"a\":2}", "t.json: $.a: duplicate key"},
        {"[{\"x\":{\"k\":1,\"j\":2,\"k\":3}}]", "t.json: $[0].x.k: duplicate key"},
        {"{\"a\":1} x", "t.json:1:9: found 'x', expected the end of the text"},
        {"[1,\n 2,\n 3", "t.json:3:3: found the end of the text, expected ',' or ']'"},
        {"[1,]", "t.json:1:4: found ']', expected a value after ','"},
        {"{\"a\":1,}", "t.json:1:8: found '}', expected a key after ','"},
        {"{a:1}", "t.json:1:2: found 'a', expected a key in quotes"},
        {"{\"a\" 1}", "t.json:1:6: found '1', expected ':'"},
        {"[1 2]", "t.json:1:4: found '2', expected ',' or ']'"},
        {"01", "t.json:1:2: found '1', expected no digit after a leading zero"},
        {"1.", "t.json:1:3: found the end of the text, expected a digit"},
        {"-", "t.json:1:2: found the end of the text, expected a digit"},
        {"1e", "t.json:1:3: found the end of the text, expected a digit"},
        {"\"ab", "t.json:1:1: found '\"', expected a string that ends"},
        {"\"a\tb\"", "t.json:1:3: found byte 0x09, expected no raw control character in a string"},
        {"\"\\x\"", "t.json:1:3: found 'x', expected one of \" \\ / b f n r t u after a backslash"},
        {"\"\\ud800\"", "t.json:1:2: found '\\', expected both halves of a surrogate pair"},
        {"\"\\udc00\"", "t.json:1:2: found '\\', expected both halves of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "t.json:1:2: found '\\', expected both halves of a surrogate pair"},
        {"\"\\u0000\"", "t.json:1:2: found '\\', expected no NUL character (\\u0000)"},
        {"\"\\u12g4\"", "t.json:1:6: found 'g', expected four hexadecimal digits after \\u"},
        {"\"\xff\"", "t.json:1:2: found byte 0xff, expected valid UTF-8"},
        {"\"\xc0\xaf\"", "t.json:1:2: found byte 0xc0, expected valid UTF-8"},
        {"\"\xe0\x80\x80\"", "t.json:1:2: found byte 0xe0, expected valid UTF-8"},
        {"\"\xed\xa0\x80\"", "t.json:1:2: found byte 0xed, expected valid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "t.json:1:2: found byte 0xf4, expected valid UTF-8"},
        {"\"\xe2\x82\"", "t.json:1:2: found byte 0xe2, expected valid UTF-8"},
        {"{\"a\":[0,{\"b\":9007199254740993}]}",
         "t.json: $.a[1].b: found 9007199254740993, expected an integer of at most 2^53 in size"},
        {"[1e999]", "t.json: $[0]: found 1e999, expected a finite number"},
        {"NaN", "t.json:1:1: found 'N', expected true, false, null, a number, a string, [ or {"},
        {"Infinity",
         "t.json:1:1: found 'I', expected true, false, null, a number, a string, [ or {"},
        {"tru", "t.json:1:4: found the end of the text, expected true, false, null, a number, a "
                "string, [ or {"},
        {"", "t.json:1:1: found the end of the text, expected true, false, null, a number, a "
             "string, [ or {"},
        {"\xef\xbb{}",
         "t.json:1:1: found byte 0xef, expected true, false, null, a number, a string, [ or {"},
        {"\xef\xbb\xbf{]", "t.json:1:2: found ']', expected a key in quotes"},
        {"\xff\xfe{", "t.json: found UTF-16, expected UTF-8: save it as that"},
        {"// no\n{}",
         "t.json:1:1: found '/', expected true, false, null, a number, a string, [ or {"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dtp_json *j;
        CU_ASSERT_EQUAL(parse(cases[i][0], &j), DTP_EINPUT);
        CU_ASSERT_PTR_NULL(j);
        CU_ASSERT_STRING_EQUAL(err.msg, cases[i][1]);
    }
}

static void test_nul_and_length(void) {
    const struct dtp_json *j;
    CU_ASSERT_EQUAL(dtp_json_parse(arena, "t.json", "\xef\xbb\xbf[1]", 6, &j, &err), DTP_OK);
    CU_ASSERT(dtp_json_size(j) == 1);
    CU_ASSERT_EQUAL(dtp_json_parse(arena, "t.json", "[1]\0", 4, &j, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "t.json:1:4: found byte 0x00, expected the end of the text");
    CU_ASSERT_EQUAL(dtp_json_parse(arena, "t.json", "[1]]", 3, &j, &err), DTP_OK);
}

static void test_depth(void) {
    char text[2 * 65 + 1];
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        const struct dtp_json *j;
        CU_ASSERT_EQUAL(parse(text, &j), depth == 64 ? DTP_OK : DTP_EINPUT);
    }
    CU_ASSERT_STRING_EQUAL(err.msg, "t.json:1:65: nested deeper than 64 levels");
}

/* Every prefix of a document, and the document with each byte replaced, is read or refused with a
 * message, without a crash (the sanitizer builds watch). */
static void test_truncated_and_damaged(void) {
    static const char text[] =
        "{\"a\":[1,-2.5e3,{\"b\":\"x\\u00e9\\ud83d\\ude00\xc3\xa9\"}],\"c\":null}";
    const struct dtp_json *j;
    for (size_t n = 0; n + 1 < sizeof text; n++) {
        CU_ASSERT_EQUAL(dtp_json_parse(arena, "t", text, n, &j, &err), DTP_EINPUT);
        CU_ASSERT_EQUAL(strncmp(err.msg, "t:1:", 4), 0);
    }
    for (size_t n = 0; n + 1 < sizeof text; n++)
        for (int byte = 0; byte < 256; byte++) {
            char copy[sizeof text];
            memcpy(copy, text, sizeof text);
            copy[n] = (char)byte;
            err.msg[0] = '\0';
            enum dtp_status status = dtp_json_parse(arena, "t", copy, sizeof text - 1, &j, &err);
            CU_ASSERT((status == DTP_OK) == (err.msg[0] == '\0'));
        }
}

static void test_access(void) {
    const struct dtp_json *j;
    CU_ASSERT_EQUAL_FATAL(parse("{\"n\":1.5,\"s\":\"x\",\"b\":true,\"z\":null,\"l\":[7,8]}", &j),
                          DTP_OK);
    CU_ASSERT_EQUAL(dtp_json_type(j), DTP_JSON_OBJECT);
    CU_ASSERT_EQUAL(dtp_json_size(j), 5);
    CU_ASSERT_EQUAL(dtp_json_number(dtp_json_get(j, "n")), 1.5);
    CU_ASSERT_STRING_EQUAL(dtp_json_string(dtp_json_get(j, "s")), "x");
    CU_ASSERT(dtp_json_bool(dtp_json_get(j, "b")));
    CU_ASSERT_EQUAL(dtp_json_type(dtp_json_get(j, "z")), DTP_JSON_NULL);
    CU_ASSERT_PTR_NULL(dtp_json_get(j, "missing"));
    CU_ASSERT_STRING_EQUAL(dtp_json_key(dtp_json_at(j, 4)), "l");
    CU_ASSERT_STRING_EQUAL(dtp_json_key(j), "");
    const struct dtp_json *eight = dtp_json_at(dtp_json_get(j, "l"), 1);
    char place[64];
    CU_ASSERT_STRING_EQUAL(dtp_json_place(eight, place, sizeof place), "t.json: $.l[1]");
    CU_ASSERT_STRING_EQUAL(dtp_json_key(eight), "");
    CU_ASSERT_PTR_NULL(dtp_json_get(eight, "n"));
    CU_ASSERT_EQUAL(dtp_json_expected(eight, "a string", &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "t.json: $.l[1]: found 8, expected a string");
}

static void test_large_objects(void) {
    struct dtp_rng r = dtp_rng_stream(2, 0);
    char *text = NULL;
    size_t n = 0;
    enum { N = 3000 };
    FILE *f = open_memstream(&text, &n);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    for (int i = 0; i < N; i++) /* keys in no order: 7919 is prime to N */
        dtp_json_kv_int(&w, dtp_arena_printf(arena, "k%d", i * 7919 % N), i);
    dtp_json_end(&w);
    fclose(f);
    const struct dtp_json *j;
    CU_ASSERT_EQUAL_FATAL(parse(text, &j), DTP_OK);
    for (int i = 0; i < N; i++) {
        int at = (int)dtp_rng_below(&r, N);
        const struct dtp_json *m = dtp_json_get(j, dtp_arena_printf(arena, "k%d", at * 7919 % N));
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL(dtp_json_number(m), at);
    }
    CU_ASSERT_PTR_NULL(dtp_json_get(j, "k"));
    memcpy(strstr(text, "\"k77\""), "\"k78\"", 5);
    CU_ASSERT_EQUAL(parse(text, &j), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "t.json: $.k78: duplicate key");
    free(text);
}

/* ---- writing ---- */

static void test_write_layout(void) {
    const struct dtp_json *j;
    CU_ASSERT_EQUAL_FATAL(parse("{\"a\":[1,{}],\"b\":{\"c\":[]}}", &j), DTP_OK);
    CU_ASSERT_STRING_EQUAL(
        written(j, 2), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": []\n  }\n}\n");
}

/* A table: each row is one line, whatever the indentation; per_line numbers of a list are one. */
static void test_write_rows(void) {
    const struct dtp_json *j;
    char *text = NULL;
    size_t n = 0;
    double times[] = {1, 2, 3, 4};
    FILE *f = open_memstream(&text, &n);
    struct dtp_json_out w;
    CU_ASSERT_EQUAL_FATAL(parse("{\"a\":{\"x\":1},\"b\":[\"y\",2],\"c\":{\"d\":\"e\"}}", &j),
                          DTP_OK);
    dtp_json_begin(&w, f, 1);
    dtp_json_array(&w);
    dtp_json_line(&w);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "a", 1);
    dtp_json_put_key(&w, "b");
    dtp_json_line(&w); /* is already on one */
    dtp_json_array(&w);
    dtp_json_end(&w);
    dtp_json_end(&w);
    dtp_json_put_doubles(&w, &(struct dtp_doubles){times, 4}, 2);
    dtp_json_put_doubles(&w, &(struct dtp_doubles){times, 3}, 0);
    dtp_json_put_doubles(&w, &(struct dtp_doubles){NULL, 0}, 2);
    dtp_json_put_rows(&w, j);
    dtp_json_end(&w);
    fclose(f);
    CU_ASSERT_STRING_EQUAL(text,
                           "[\n {\"a\": 1, \"b\": []},\n [\n  1, 2,\n  3, 4\n ],\n [1, 2, 3],\n []"
                           ",\n {\n  \"a\": {\"x\": 1},\n  \"b\": [\"y\", 2],\n"
                           "  \"c\": {\n   \"d\": \"e\"\n  }\n }\n]\n");
    free(text);
}

static void test_write_special_values(void) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_array(&w);
    dtp_json_put_double(&w, NAN);
    dtp_json_put_double(&w, -INFINITY);
    dtp_json_put_string(&w, NULL);
    dtp_json_put_string(&w, "\"\\\x01\n\x7f");
    dtp_json_put_u64(&w, UINT64_MAX);
    dtp_json_put_int(&w, -5);
    dtp_json_put_null(&w);
    dtp_json_end(&w);
    fclose(f);
    CU_ASSERT_STRING_EQUAL(text, "[null, null, null, \"\\\"\\\\\\u0001\\n\\u007f\", "
                                 "18446744073709551615, -5, null]\n");
    free(text);
}

static void test_doubles_are_shortest_and_exact(void) {
    char buf[32];
    CU_ASSERT_STRING_EQUAL(dtp_double_text(0.1, buf, sizeof buf), "0.1");
    CU_ASSERT_STRING_EQUAL(dtp_double_text(1.0 / 3, buf, sizeof buf), "0.3333333333333333");
    CU_ASSERT_STRING_EQUAL(dtp_double_text(5e-324, buf, sizeof buf), "4.94065645841247e-324");
    CU_ASSERT_STRING_EQUAL(dtp_double_text(100, buf, sizeof buf), "100");
    /* beyond 2^53 plain digits would be refused as an integer */
    CU_ASSERT_STRING_EQUAL(dtp_double_text(9007678901234568.0, buf, sizeof buf),
                           "9.007678901234568e+15");
    CU_ASSERT_STRING_EQUAL(dtp_double_text(-1e22, buf, sizeof buf), "-1e+22");
    struct dtp_rng r = dtp_rng_stream(6, 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = dtp_rng_next(&r);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isfinite(v))
            CU_ASSERT_EQUAL(strtod(dtp_double_text(v, buf, sizeof buf), NULL), v);
    }
}

static CU_TestInfo reading[] = {
    {"accepts", test_accepts},
    {"rejects with the place", test_rejects_with_the_place},
    {"NUL and length", test_nul_and_length},
    {"depth", test_depth},
    {"truncated and damaged", test_truncated_and_damaged},
    {"access", test_access},
    {"large objects", test_large_objects},
    CU_TEST_INFO_NULL,
};
static CU_TestInfo writing[] = {
    {"layout", test_write_layout},
    {"rows", test_write_rows},
    {"special values", test_write_special_values},
    {"doubles", test_doubles_are_shortest_and_exact},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"reading", setup, teardown, NULL, NULL, reading},
                             {"writing", setup, teardown, NULL, NULL, writing},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
