/* Statistics of dtplan check and its JSON. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>

#include "planner/check.h"
#include "tests/suites.h"

static const double tolerance = 1e-12;

static struct dtp_check_row row(double predicted_s, double measured_s, const char *failure) {
    struct dtp_check_row r = {.plan = dtp_plan_default(),
                              .predicted_s = predicted_s,
                              .measured_s = measured_s,
                              .predicted_peak_bytes = 1000,
                              .measured_peak_bytes = 1000,
                              .failure = failure};
    r.term[0] = (struct dtp_check_term){"forward", predicted_s / 2, measured_s / 2};
    return r;
}

/* Errors of 10 and 20 %, and one that failed: 100 % of a step, and no peak; the pick is row 0, row 1 is the fastest. */
static void test_summary(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_check_row rows[] = {row(1.1, 1, NULL), row(1.2, 1.5, NULL),
                                   row(2, (double)NAN, "rank 1 died")};
    struct dtp_check c = {.row = rows, .nrows = 3};
    rows[1].measured_s = 1.5;
    rows[1].predicted_s = 1.2;
    rows[1].measured_peak_bytes = 800;
    dtp_check_summarise(a, &c);
    CU_ASSERT_DOUBLE_EQUAL(c.mape_step_pct, (10.0 + 20 + 100) / 3, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(c.mape_peak_pct, (0 + 25.0) / 2, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(c.worst_peak_pct, 25, tolerance);
    CU_ASSERT_EQUAL(c.nfailed, 1);
    CU_ASSERT_EQUAL(c.picked, 0);
    CU_ASSERT_EQUAL(c.fastest_measured, 0);
    CU_ASSERT_DOUBLE_EQUAL(c.regret_pct, 0, tolerance);
    CU_ASSERT_DOUBLE_EQUAL(c.rank_correlation, 1, tolerance);
    rows[0].measured_s = 2;
    dtp_check_summarise(a, &c);
    CU_ASSERT_EQUAL(c.fastest_measured, 1);
    CU_ASSERT_DOUBLE_EQUAL(c.regret_pct, 100 * (2 / 1.5 - 1), 1e-9);
    dtp_arena_destroy(a);
}

/* The names that CLI.md promises, and null where a run failed. */
static void test_json(void) {
    static const char *const keys[] = {"machine",       "backend",          "rows",
                                       "mape_step_pct", "mape_peak_pct",    "rank_correlation",
                                       "picked",        "fastest_measured", "regret_pct"};
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_setup *setup = DTP_NEW(a, struct dtp_setup, 1);
    const struct dtp_ask ask = {.model = "gpt-check",
                                .cluster = "cpu",
                                .framework = "dtplan",
                                .gpus = 2,
                                .dtype = DTP_FP32,
                                .attention = -1};
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_setup_init(a, &ask, setup, &err), DTP_OK);
    struct dtp_check_row rows[] = {row(1.1, 1, NULL), row(2, (double)NAN, "rank 1 died")};
    struct dtp_check c = {
        .row = rows, .nrows = 2, .setup = setup, .machine = "here", .backend = "cpu", .steps = 5};
    dtp_check_summarise(a, &c);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    dtp_check_json(f, &c);
    fclose(f);
    const struct dtp_json *j;
    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(a, "check", text, size, &j, &err), DTP_OK);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CU_ASSERT_PTR_NOT_NULL(dtp_json_get(j, keys[i]));
    const struct dtp_json *list = dtp_json_get(j, "rows");
    CU_ASSERT_EQUAL_FATAL(dtp_json_size(list), 2);
    const struct dtp_json *first = dtp_json_at(list, 0), *second = dtp_json_at(list, 1);
    CU_ASSERT_DOUBLE_EQUAL(dtp_json_number(dtp_json_get(first, "measured_s")), 1, tolerance);
    CU_ASSERT_EQUAL(dtp_json_size(dtp_json_get(first, "terms")), 1);
    CU_ASSERT_EQUAL(dtp_json_type(dtp_json_get(second, "measured_s")), DTP_JSON_NULL);
    CU_ASSERT_STRING_EQUAL(dtp_json_string(dtp_json_get(second, "failure")), "rank 1 died");
    free(text);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"summary", test_summary}, {"JSON", test_json}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"check", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
