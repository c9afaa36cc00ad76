/* Losses of PyTorch on the same models, initial values and tokens (tests/golden/runtime). */
#include <CUnit/Basic.h>
#include <math.h>

#include "sim/base/json.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

/* fp32 sums in another order; the file has 6 decimals. */
static const double tolerance = 1e-5;

static void check_family(const char *family) {
    struct dtp_arena *a = dtp_arena_create("test");
    const struct dtp_json *root;
    struct dtp_err err = {0};
    struct dtp_run_result r;
    CU_ASSERT_EQUAL_FATAL(
        dtp_json_read_file(a, DTP_SOURCE_DIR "/tests/golden/runtime/torch_losses.json", &root,
                           &err),
        DTP_OK);
    const struct dtp_json *losses = dtp_json_get(root, family);
    struct dtp_model m = tiny_model(family);
    struct dtp_run_options o = tiny_options(&m);
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_json_size(losses), (size_t)r.steps);
    for (int i = 0; i < r.steps; i++)
        CU_ASSERT(fabs(r.loss[i] - dtp_json_number(dtp_json_at(losses, (size_t)i))) < tolerance);
    dtp_arena_destroy(a);
}

static void test_gpt(void) {
    check_family("gpt");
}

static void test_llama(void) {
    check_family("llama");
}

int main(void) {
    CU_TestInfo tests[] = {{"GPT", test_gpt}, {"Llama", test_llama}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"reference", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
