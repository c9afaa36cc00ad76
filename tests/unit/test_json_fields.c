/* Field tables: one table reads a struct from JSON and from text, and writes it. */
#include "sim/base/json.h"
#include "tests/arena_case.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

static struct dtp_err err;

static enum dtp_status parse(const char *text, const struct dtp_json **out) {
    memset(&err, 0, sizeof err);
    *out = NULL;
    return dtp_json_parse(arena, "t.json", text, strlen(text), out, &err);
}

enum color { RED, GREEN };
static const char *const color_names[] = {"red", "green", NULL};

struct inner {
    double bandwidth_bytes_per_s;
};
struct thing {
    bool on;
    int count;
    uint64_t size_bytes;
    double latency_s, any;
    const char *name;
    enum color color;
    struct dtp_ints layers;
    struct dtp_doubles weights;
    struct inner inner;
    const struct dtp_json *extra;
};

#define AT(member) offsetof(struct thing, member)
static const struct dtp_field inner_fields[] = {
    {"bandwidth_bytes_per_s", DTP_FIELD_DOUBLE, offsetof(struct inner, bandwidth_bytes_per_s),
     .min = 0, .max = 1e15, .required = true, .help = "bytes/s"},
    {0}};
static const struct dtp_field thing_fields[] = {
    {"on", DTP_FIELD_BOOL, AT(on)},
    {"count", DTP_FIELD_INT, AT(count), .min = 1, .max = 1024, .required = true,
     .help = "how many"},
    {"size_bytes", DTP_FIELD_U64, AT(size_bytes)},
    {"latency_s", DTP_FIELD_DOUBLE, AT(latency_s), .min = 0, .max = 1e9, .optional_null = true},
    {"any", DTP_FIELD_DOUBLE, AT(any)},
    {"name", DTP_FIELD_STRING, AT(name)},
    {"color", DTP_FIELD_ENUM, AT(color), .names = color_names},
    {"layers", DTP_FIELD_INTS, AT(layers), .min = 1, .max = 100},
    {"weights", DTP_FIELD_DOUBLES, AT(weights)},
    {"inner", DTP_FIELD_OBJECT, AT(inner), .fields = inner_fields},
    {"extra", DTP_FIELD_JSON, AT(extra)},
    {0}};

static const char full[] =
    "{\"on\": true, \"count\": 8, \"size_bytes\": 9007199254740992, \"latency_s\": 2.5e-06, "
    "\"any\": -3, \"name\": \"x\", \"color\": \"green\", \"layers\": [3, 4], \"weights\": [0.1], "
    "\"inner\": {\"bandwidth_bytes_per_s\": 25000000000}, \"extra\": {\"k\": [1]}}\n";

static enum dtp_status read_thing(const char *text, struct thing *t) {
    const struct dtp_json *j;
    DTP_TRY(parse(text, &j));
    return dtp_fields_read(arena, j, thing_fields, t, &err);
}

static void test_fields_round_trip(void) {
    struct thing t = {0};
    CU_ASSERT_EQUAL_FATAL(read_thing(full, &t), DTP_OK);
    CU_ASSERT(t.on);
    CU_ASSERT_EQUAL(t.count, 8);
    CU_ASSERT_EQUAL(t.size_bytes, UINT64_C(1) << 53);
    CU_ASSERT_EQUAL(t.color, GREEN);
    CU_ASSERT_EQUAL(t.layers.n, 2);
    CU_ASSERT_EQUAL(t.layers.at[1], 4);
    CU_ASSERT_EQUAL(t.weights.at[0], 0.1);
    CU_ASSERT_EQUAL(t.inner.bandwidth_bytes_per_s, 25e9);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    dtp_fields_write(&w, thing_fields, &t);
    dtp_json_end(&w);
    fclose(f);
    CU_ASSERT_STRING_EQUAL(text, full);
    free(text);
}

static void test_fields_defaults_and_annotations(void) {
    struct thing t = {.latency_s = 7, .any = 5, .name = "kept"};
    CU_ASSERT_EQUAL(read_thing("{\"count\":1,\"latency_s\":null,\"source\":{\"count\":\"a paper\"},"
                               "\"notes\":\"n\",\"inner\":{\"bandwidth_bytes_per_s\":1,"
                               "\"source\":\"s\"}}",
                               &t),
                    DTP_OK);
    CU_ASSERT_EQUAL(t.latency_s, 7);
    CU_ASSERT_EQUAL(t.any, 5);
    CU_ASSERT_STRING_EQUAL(t.name, "kept");
    CU_ASSERT_PTR_NULL(t.layers.at);
}

static void test_fields_errors(void) {
    static const char *const cases[][2] = {
        {"[]", "t.json: $: found an array of 0, expected an object"},
        {"{}", "t.json: $: missing key \"count\" (how many)"},
        {"{\"cuont\":1}", "t.json: $.cuont: unknown key, did you mean \"count\"?"},
        {"{\"inner\":{\"zzz\":1}}",
         "t.json: $.inner.zzz: unknown key, expected one of: bandwidth_bytes_per_s"},
        {"{\"count\":0}", "t.json: $.count: found 0, expected an integer from 1 to 1024"},
        {"{\"count\":1.5}", "t.json: $.count: found 1.5, expected an integer from 1 to 1024"},
        {"{\"count\":\"8\"}", "t.json: $.count: found \"8\", expected an integer from 1 to 1024"},
        {"{\"count\":null}", "t.json: $.count: found null, expected an integer from 1 to 1024"},
        {"{\"size_bytes\":-1}", "t.json: $.size_bytes: found -1, expected an integer of 0 or more"},
        {"{\"any\":[]}", "t.json: $.any: found an array of 0, expected a number"},
        {"{\"on\":1}", "t.json: $.on: found 1, expected true or false"},
        {"{\"name\":1}", "t.json: $.name: found 1, expected a string"},
        {"{\"color\":\"gren\"}",
         "t.json: $.color: unknown value \"gren\", did you mean \"green\"?"},
        {"{\"layers\":[1,101]}",
         "t.json: $.layers[1]: found 101, expected an integer from 1 to 100"},
        {"{\"layers\":3}", "t.json: $.layers: found 3, expected an array of numbers"},
        {"{\"inner\":3}", "t.json: $.inner: found 3, expected an object"},
        {"{\"source\":3}",
         "t.json: $.source: found 3, expected a string, or an object of key and string"},
        {"{\"source\":{\"a\":3}}", "t.json: $.source.a: found 3, expected a string"},
        {"{\"notes\":{}}", "t.json: $.notes: found an object, expected a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct thing t = {0};
        CU_ASSERT_EQUAL(read_thing(cases[i][0], &t), DTP_EINPUT);
        CU_ASSERT_STRING_EQUAL(err.msg, cases[i][1]);
    }
}

static enum dtp_status set(struct thing *t, const char *name, const char *text) {
    const struct dtp_field *field = dtp_field_find(thing_fields, name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(field);
    return dtp_field_parse(arena, field, text, "--x", t, &err);
}

static void test_field_parse(void) {
    struct thing t = {0};
    CU_ASSERT_EQUAL(set(&t, "on", "yes"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "count", "12"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "size_bytes", "80GB"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "latency_s", "25us"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "name", "abc"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "color", "green"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "layers", "12,13,12"), DTP_OK);
    CU_ASSERT_EQUAL(set(&t, "weights", "0.5"), DTP_OK);
    CU_ASSERT(t.on && t.count == 12 && t.size_bytes == UINT64_C(80000000000));
    CU_ASSERT_DOUBLE_EQUAL(t.latency_s, 25e-6, 1e-18);
    CU_ASSERT_STRING_EQUAL(t.name, "abc");
    CU_ASSERT(t.color == GREEN && t.layers.n == 3 && t.layers.at[1] == 13);
    CU_ASSERT(t.weights.n == 1 && t.weights.at[0] == 0.5);
    static const char *const bad[][3] = {
        {"on", "maybe", "--x: found \"maybe\", expected true or false"},
        {"count", "0", "--x: found \"0\", expected an integer from 1 to 1024"},
        {"count", "1.5", "--x: found \"1.5\", expected an integer from 1 to 1024"},
        {"color", "rad", "--x: unknown value \"rad\", did you mean \"red\"?"},
        {"layers", "1,,2", "--x: found \"\", expected a number"},
        {"extra", "1", "--x: \"extra\" can only be set in a JSON file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(set(&t, bad[i][0], bad[i][1]), DTP_EUSAGE);
        CU_ASSERT_STRING_EQUAL(err.msg, bad[i][2]);
    }
}

static CU_TestInfo fields[] = {
    {"round trip", test_fields_round_trip},
    {"defaults and annotations", test_fields_defaults_and_annotations},
    {"errors", test_fields_errors},
    {"from text", test_field_parse},
    CU_TEST_INFO_NULL,
};
int main(void) {
    CU_SuiteInfo suites[] = {{"field tables", setup, teardown, NULL, NULL, fields},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
