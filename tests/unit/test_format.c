/* Every sample of ../shared/traces, and every seed of the fuzzers, is told by its content. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/text.h"
#include "tests/suites.h"
#include "traces/catalog.h"

static struct dtp_arena *arena;

struct expected {
    const char *path;
    const struct dtp_format *format;
};

static size_t seen;

static enum dtp_status check_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    const struct expected *e = ctx;
    const struct dtp_format *found = NULL;
    enum dtp_status status = dtp_format_detect(v->source, &found, err);
    if (status != DTP_OK || found != e->format)
        printf("\n  %s: found %s, expected %s", dtp_source_name(v->source),
               status == DTP_OK ? found->name : err->msg, e->format->name);
    CU_ASSERT_EQUAL(status, DTP_OK);
    CU_ASSERT_PTR_EQUAL(found, e->format);
    seen++;
    return DTP_OK;
}

static void check(const char *folder, const struct expected *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct dtp_err err = {0};
        struct expected one = e[i];
        const char *path = dtp_arena_printf(arena, "%s/%s", folder, e[i].path);
        seen = 0;
        CU_ASSERT_EQUAL(dtp_visit(arena, path, check_one, &one, &err), DTP_OK);
        CU_ASSERT_TRUE(seen > 0);
    }
}

static void samples(void) {
    static const struct expected expected[] = {
        {"kineto-h200-2rank", &dtp_format_kineto},
        {"kineto-dlrm-8rank/dlrm_kineto.tar.gz", &dtp_format_kineto},
        {"kineto-dlrm-8rank/dlrm_pytorch_et.tar.gz", &dtp_format_pytorch_et},
        {"tracelens", &dtp_format_kineto},
        {"kineto-hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", &dtp_format_kineto},
        {"kineto-hta/call_stack__backward_thread.json", &dtp_format_kineto},
        {"kineto-hta/execution_trace__benchmark_simple_add_et.json.gz", &dtp_format_pytorch_et},
        {"et", &dtp_format_pytorch_et},
        {"chakra/feeder_tests_trace.tar.gz", &dtp_format_chakra},
        {"chakra/json_trace.tar.gz", &dtp_format_chakra_json},
        {"chakra/1.0.2-chakra.0.0.4.tgz", &dtp_format_pytorch_et},
        {"astra-sim/et", &dtp_format_chakra},
        {"astra-sim/v1", &dtp_format_workload},
        {"simai/workload_analytical.txt", &dtp_format_workload},
        {"simai/microAllReduce.txt", &dtp_format_workload},
        {"simai/aicb__all_reduce.txt", &dtp_format_workload},
        {"simai/aicb__L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", &dtp_format_aicb},
        {"megatron/gpt3_7b_tp1_pp4_memory_speed__golden_h100.json", &dtp_format_golden},
        {"nccl-tests", &dtp_format_log},
        {"synthetic/mini_nsys.sqlite", &dtp_format_nsys},
        {"synthetic/mini_timeline.json", &dtp_format_kineto},
        {"cluster/philly__cluster_job_log.readme-row.json", &dtp_format_philly},
        {"cluster/helios__cluster_log.readme-rows.csv", &dtp_format_jobs_csv},
        {"cluster/acme__trace_kalos.readme-rows.csv", &dtp_format_jobs_csv},
        {"cluster/acme__trace_seren.readme-rows.csv", &dtp_format_jobs_csv},
        {"cluster/pai2020__minibatch_job_1_norm.csv", &dtp_format_pai_iterations},
        {"bad/13_astra_v1_layer_count_mismatch.txt", &dtp_format_workload},
        {"bad/27_real_aicb_declares_839_has_33.txt", &dtp_format_workload},
        {"bad/14_trailing_garbage_and_bare_array.json", &dtp_format_kineto},
        {"bad/15_deep_nesting.json", &dtp_format_kineto},
        {"bad/19_chakra_cycle.et", &dtp_format_chakra},
        {"bad/21_chakra_truncated_frame.et", &dtp_format_chakra},
        {"bad/26_nan_golden.json", &dtp_format_golden}};
    const char *folder = dtp_arena_printf(arena, "%s/../shared/traces", DTP_SOURCE_DIR);
    if (access(folder, R_OK) != 0)
        return;
    check(folder, expected, sizeof expected / sizeof *expected);
}

static void seeds(void) {
    static const struct expected expected[] = {{"fuzz_jobs/acme.csv", &dtp_format_jobs_csv},
                                               {"fuzz_jobs/pai_task.csv", &dtp_format_jobs_csv},
                                               {"fuzz_jobs/pai_job.csv", &dtp_format_jobs_csv},
                                               {"fuzz_jobs/philly.json", &dtp_format_philly},
                                               {"fuzz_aicb", &dtp_format_aicb},
                                               {"fuzz_et/attrs.json", &dtp_format_pytorch_et},
                                               {"fuzz_et/flat.json", &dtp_format_pytorch_et},
                                               {"fuzz_chakra_json", &dtp_format_chakra_json},
                                               {"fuzz_events", &dtp_format_tensorboard},
                                               {"fuzz_golden", &dtp_format_golden},
                                               {"fuzz_logs", &dtp_format_log},
                                               {"fuzz_nsys", &dtp_format_nsys},
                                               {"fuzz_topology", &dtp_format_nccl_topology},
                                               {"fuzz_workload", &dtp_format_workload}};
    check(dtp_arena_printf(arena, "%s/tests/fuzz/corpus", DTP_SOURCE_DIR), expected,
          sizeof expected / sizeof *expected);
}

/* A byte order mark in front of text, as Windows writes it, changes nothing. */
static void marked(void) {
    static const char text[] = "\xef\xbb\xbf{\"schemaVersion\": 1, \"traceEvents\": []}";
    struct dtp_source *s;
    struct dtp_err err = {0};
    const struct dtp_format *found = NULL;
    char all[sizeof text];
    size_t n;
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "x", text, sizeof text - 1, &s, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_format_detect(s, &found, &err), DTP_OK);
    CU_ASSERT_PTR_EQUAL(found, &dtp_format_kineto);
    CU_ASSERT_EQUAL(dtp_source_read(s, all, sizeof all, &n, &err), DTP_OK);
    CU_ASSERT(n == sizeof text - 1 - 3 && all[0] == '{');
    dtp_source_close(s);
}

static void unknown(void) {
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "empty file"},
                 {"{\"model\": 1, \"gpus\": 2}", "JSON with the keys \"model\" \"gpus\""},
                 {"\x01\x02\x03", "binary data"},
                 {"[[1, 2], 3]", "JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_source *s;
        struct dtp_err err = {0};
        const struct dtp_format *found = NULL;
        CU_ASSERT_EQUAL_FATAL(
            dtp_source_memory(arena, "x", cases[i].text, strlen(cases[i].text), &s, &err), DTP_OK);
        CU_ASSERT_EQUAL(dtp_format_detect(s, &found, &err), DTP_EINPUT);
        if (!strstr(err.msg, cases[i].says))
            printf("\n  %s", err.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].says));
        dtp_source_close(s);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"samples", samples},
                           {"seeds of the fuzzers", seeds},
                           {"behind a byte order mark", marked},
                           {"what is of no format", unknown},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"formats", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
