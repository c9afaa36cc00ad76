/* CSV by RFC 4180: each case is a text and the cells that it stands for. */
#include "sim/base/csv.c" /* a text need not be a file here */
#include "tests/arena_case.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

static struct dtp_err err;

static enum dtp_status parse(const char *text, struct dtp_csv *csv) {
    memset(&err, 0, sizeof err);
    return parse_csv(arena, "t.csv", text, strlen(text), csv, &err);
}

/* Rows as "a|b;c|d", for comparison with one literal. */
static const char *flat(const struct dtp_csv *csv) {
    struct dtp_str s = {.a = arena};
    dtp_str_add(&s, "");
    for (size_t i = 0; i < csv->nrows; i++)
        for (size_t k = 0; k < csv->ncols; k++) {
            dtp_str_add(&s, k > 0 ? "|" : i > 0 ? ";" : "");
            dtp_str_add(&s, dtp_csv_get(csv, i, (int)k));
        }
    return s.at;
}

static void test_cells(void) {
    static const char *const cases[][2] = {
        {"a,b\n1,2\n3,4\n", "1|2;3|4"},
        {"a,b\n1,2", "1|2"},
        {"a,b\r\n1,2\r\n", "1|2"},
        {"\xef\xbb\xbf"
         "a,b\n1,2\n",
         "1|2"},
        {"a,b\n\n1,2\n\n", "1|2"},
        {"a,b\n\"x,y\",\"say \"\"hi\"\"\"\n", "x,y|say \"hi\""},
        {"a,b\n\"two\nlines\",2\n", "two\nlines|2"},
        {"a,b\n1\n", "1|"},
        {"a,b\n,\n", "|"},
        {"a,b\n1,", "1|"},
        {"a,b\n\"\",x\n", "|x"},
        {"a,b\n x , y\n", " x | y"},
        {"a\n\"q\"", "q"},
        {"a,b\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_csv csv;
        CU_ASSERT_EQUAL_FATAL(parse(cases[i][0], &csv), DTP_OK);
        CU_ASSERT_STRING_EQUAL(flat(&csv), cases[i][1]);
    }
}

static void test_columns_and_lines(void) {
    struct dtp_csv csv;
    CU_ASSERT_EQUAL_FATAL(parse("id,step_s\nx,\"1\n2\"\n\ny,3\n", &csv), DTP_OK);
    CU_ASSERT_EQUAL(csv.ncols, 2);
    CU_ASSERT_EQUAL(dtp_csv_col(&csv, "step_s"), 1);
    CU_ASSERT_EQUAL(dtp_csv_col(&csv, "step"), -1);
    CU_ASSERT_STRING_EQUAL(dtp_csv_get(&csv, 1, 1), "3");
    CU_ASSERT_STRING_EQUAL(dtp_csv_get(&csv, 1, -1), "");
    CU_ASSERT_EQUAL(csv.line[0], 2);
    CU_ASSERT_EQUAL(csv.line[1], 5);
}

static void test_errors_name_the_line(void) {
    static const char *const cases[][2] = {
        {"a,b\n1,2,3\n", "t.csv:2: found more than the 2 cells of the header"},
        {"a,b\n1,\"open\nmore\n", "t.csv:2: a quoted cell that never ends"},
        {"a,b\n1,2\n\"x\"y,2\n", "t.csv:3: found text after a closing quote"},
        {"a,b,a\n", "t.csv:1: column \"a\" stands twice"},
        {"", "t.csv: found no header line"},
        {"\n\n", "t.csv: found no header line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_csv csv;
        CU_ASSERT_EQUAL(parse(cases[i][0], &csv), DTP_EINPUT);
        CU_ASSERT_STRING_EQUAL(err.msg, cases[i][1]);
    }
    struct dtp_csv csv;
    CU_ASSERT_EQUAL(parse_csv(arena, "t.csv", "a\0b", 3, &csv, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(dtp_csv_read_file(arena, "no/such/file.csv", &csv, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "no/such/file.csv: cannot open: No such file or directory");
}

static void test_put_reads_back(void) {
    static const char *const cells[] = {
        "\xef\xbb\xbfmark", "plain", "", "a,b", "say \"hi\"", "x\ny", "\r\n-", " ", "\xc3\xa9"};
    enum { NCELLS = sizeof cells / sizeof *cells };
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    for (int i = 0; i < NCELLS; i++)
        fprintf(f, "c%d%s", i, i + 1 < NCELLS ? "," : "\n");
    for (int i = 0; i < NCELLS; i++)
        dtp_csv_put(f, cells[i], i + 1 == NCELLS);
    fclose(f);
    struct dtp_csv csv;
    CU_ASSERT_EQUAL_FATAL(parse_csv(arena, "t.csv", text, n, &csv, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(csv.nrows, 1);
    for (int i = 0; i < NCELLS; i++)
        CU_ASSERT_STRING_EQUAL(dtp_csv_get(&csv, 0, i), cells[i]);
    free(text);
}

static CU_TestInfo tests[] = {
    {"cells", test_cells},
    {"columns and lines", test_columns_and_lines},
    {"errors name the line", test_errors_name_the_line},
    {"what is put reads back", test_put_reads_back},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"csv", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
