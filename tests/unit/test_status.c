/* Statuses are exit codes; messages are one line, and say so when they are cut. */
#include "sim/base/status.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <string.h>

static void test_fail_formats_and_returns(void) {
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_fail(&err, DTP_EINPUT, "%s: found %d", "a.json", 7), DTP_EINPUT);
    CU_ASSERT_EQUAL(err.status, DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "a.json: found 7");
}

static void test_null_err_is_allowed(void) {
    CU_ASSERT_EQUAL(dtp_fail(NULL, DTP_EUSAGE, "nobody reads %s", "this"), DTP_EUSAGE);
    dtp_err_prefix(NULL, "nowhere");
}

static void test_control_characters_never_reach_the_message(void) {
    struct dtp_err err;
    dtp_fail(&err, DTP_EINPUT, "key \"%s\"", "a\n\x1b[31mb\x7f");
    CU_ASSERT_STRING_EQUAL(err.msg, "key \"a??[31mb?\"");
}

static void test_long_message_is_cut_visibly(void) {
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct dtp_err err;
    dtp_fail(&err, DTP_EINPUT, "%s", text);
    CU_ASSERT_EQUAL(strlen(err.msg), sizeof err.msg - 1);
    CU_ASSERT_STRING_EQUAL(err.msg + sizeof err.msg - 5, "x...");
    dtp_err_prefix(&err, "file.json");
    CU_ASSERT_EQUAL(strlen(err.msg), sizeof err.msg - 1);
    CU_ASSERT_EQUAL(strncmp(err.msg, "file.json: xxx", 14), 0);
}

static void test_prefix_goes_in_front(void) {
    struct dtp_err err;
    dtp_fail(&err, DTP_EINPUT, "bad");
    dtp_err_prefix(&err, "here");
    dtp_err_prefix(&err, "there");
    CU_ASSERT_STRING_EQUAL(err.msg, "there: here: bad");
}

static enum dtp_status try_twice(enum dtp_status first, int *reached) {
    DTP_TRY(first);
    *reached = 1;
    return DTP_ENO;
}

static void test_try_propagates(void) {
    int reached = 0;
    CU_ASSERT_EQUAL(try_twice(DTP_ENOMEM, &reached), DTP_ENOMEM);
    CU_ASSERT_EQUAL(reached, 0);
    CU_ASSERT_EQUAL(try_twice(DTP_OK, &reached), DTP_ENO);
    CU_ASSERT_EQUAL(reached, 1);
}

static void test_statuses_are_the_documented_exit_codes(void) {
    CU_ASSERT_EQUAL(DTP_OK, 0);
    CU_ASSERT_EQUAL(DTP_ENO, 1);
    CU_ASSERT_EQUAL(DTP_EUSAGE, 2);
    CU_ASSERT_EQUAL(DTP_EINPUT, 3);
    CU_ASSERT_EQUAL(DTP_EUNSUPPORTED, 4);
    CU_ASSERT_EQUAL(DTP_ENOMEM, 5);
}

static CU_TestInfo tests[] = {
    {"fail formats and returns", test_fail_formats_and_returns},
    {"a NULL err is allowed", test_null_err_is_allowed},
    {"control characters", test_control_characters_never_reach_the_message},
    {"a long message is cut", test_long_message_is_cut_visibly},
    {"prefix", test_prefix_goes_in_front},
    {"DTP_TRY", test_try_propagates},
    {"exit codes", test_statuses_are_the_documented_exit_codes},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"status", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
