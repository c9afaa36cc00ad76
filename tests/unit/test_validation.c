/* Statistics and ranks of validated rows, by hand. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "traces/validate/validate.h"
#include "tests/measured_rows.h"
#include "tests/suites.h"

static bool every(const void *ctx, const struct dtp_validated *row) {
    (void)ctx;
    (void)row;
    return true;
}

/* The 90th percentile of n errors of 1, 2, .. n % is the ceil(0.9 n)-th (nearest rank). */
static void test_percentile(void) {
    enum { MOST = 21 };
    struct dtp_run run[MOST];
    struct dtp_validated row[MOST];
    memset(run, 0, sizeof run);
    memset(row, 0, sizeof row);
    for (int i = 0; i < MOST; i++) {
        run[i].step_s = 1;
        row[i] = (struct dtp_validated){.run = &run[i], .supported = true, .error = 0.01 * (i + 1)};
    }
    for (int n = 1; n <= MOST; n++) {
        struct dtp_validation v = {.runs = {.at = run, .n = (size_t)n}, .row = row};
        struct dtp_error_stats s = dtp_validation_stats(arena, &v, false, every, NULL);
        CU_ASSERT(fabs(s.p90 - 0.01 * ceil(0.9 * n - 1e-9)) < 1e-12);
    }
}

/* Five layouts of GPT 6.7B: the first keeps 16 bytes of 6.7e9 parameters and fits no card of 80 GB, so that it is
 * nobody's pick, however fast it would be: the best of the others is, and of all. */
static void test_regret(void) {
    static const char text[] =
        "id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,tp,pp,"
        "dp,"
        "zero_stage,microbatch,global_batch,dtype,recompute,step_s\n"
        "a,megatron-core,A100,80,8,8,GPT 6.7B,32,4096,32,51200,2048,1,1,8,0,1,64,bf16,none,9\n"
        "b,megatron-core,A100,80,8,8,GPT 6.7B,32,4096,32,51200,2048,4,1,2,0,1,64,bf16,none,1\n"
        "c,megatron-core,A100,80,8,8,GPT 6.7B,32,4096,32,51200,2048,4,1,2,0,1,64,bf16,full,2\n"
        "d,megatron-core,A100,80,8,8,GPT 6.7B,32,4096,32,51200,2048,8,1,1,0,1,64,bf16,full,3\n"
        "e,megatron-core,A100,80,8,8,GPT 6.7B,32,4096,32,51200,2048,1,8,1,0,8,64,bf16,full,4\n";
    const char *path = file_of(text);
    struct dtp_validation v;
    struct dtp_err err = {0};
    struct dtp_validate_options options = {.fidelity = DTP_SIMULATE, .jobs = 1};
    CU_ASSERT_FATAL(dtp_validate(arena, &path, 1, &options, &v, &err) == DTP_OK);
    unlink(path);
    CU_ASSERT_FATAL(v.ncells == 1 && v.cell[0].rows == 5);
    CU_ASSERT(!v.row[0].fits && v.row[1].fits && v.row[0].predicted_s < v.row[1].predicted_s);
    CU_ASSERT(v.cell[0].regret_top1 == 0 && v.cell[0].regret_top5 == 0);
}

/* errors -10, +20, -30, +40 %: MAPE 25, median 25, p90 (nearest rank) 40, bias +5 */
static void test_stats(void) {
    static const double error[] = {-0.1, 0.2, -0.3, 0.4};
    struct dtp_run run[4];
    struct dtp_validated row[4];
    memset(run, 0, sizeof run);
    memset(row, 0, sizeof row);
    for (int i = 0; i < 4; i++) {
        run[i].step_s = 1;
        row[i] = (struct dtp_validated){.run = &run[i], .supported = true, .error = error[i]};
    }
    struct dtp_validation v = {.runs = {.at = run, .n = 4}, .row = row};
    struct dtp_error_stats s = dtp_validation_stats(arena, &v, false, every, NULL);
    CU_ASSERT(s.rows == 4 && fabs(s.mape - 0.25) < 1e-12 && fabs(s.median - 0.25) < 1e-12);
    CU_ASSERT(fabs(s.p90 - 0.4) < 1e-12 && fabs(s.bias - 0.05) < 1e-12 && s.worst == s.p90);
    row[3].supported = false;
    s = dtp_validation_stats(arena, &v, false, every, NULL);
    CU_ASSERT(s.rows == 3 && fabs(s.mape - 0.2) < 1e-12 && fabs(s.median - 0.2) < 1e-12);
    CU_ASSERT(dtp_validation_stats(arena, &v, true, every, NULL).rows == 0);
}

int main(void) {
    CU_TestInfo tests[] = {{"statistics", test_stats},
                           {"90th percentile", test_percentile},
                           {"a pick that does not fit", test_regret},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"validation", setup, teardown, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
