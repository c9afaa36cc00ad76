/* Every sample of ../shared/traces, and every seed of the fuzzers, is told by its content. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/text.h"
#include "tests/suites.h"
#include "traces/formats/format.h"
#include "traces/formats/visit.h"

static struct dtp_arena *arena;

struct expected {
    const char *path;
    enum dtp_format format;
};

static size_t seen;

static enum dtp_status check_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    const struct expected *e = ctx;
    enum dtp_format found = DTP_NFORMATS;
    enum dtp_status status = dtp_format_detect(v->source, &found, err);
    if (status != DTP_OK || found != e->format)
        printf("\n  %s: found %s, expected %s", dtp_source_name(v->source),
               status == DTP_OK ? dtp_formats[found].name : err->msg, dtp_formats[e->format].name);
    CU_ASSERT_EQUAL(status, DTP_OK);
    CU_ASSERT_EQUAL(found, e->format);
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
        {"kineto-h200-2rank", DTP_FORMAT_KINETO},
        {"kineto-dlrm-8rank/dlrm_kineto.tar.gz", DTP_FORMAT_KINETO},
        {"kineto-dlrm-8rank/dlrm_pytorch_et.tar.gz", DTP_FORMAT_PYTORCH_ET},
        {"tracelens", DTP_FORMAT_KINETO},
        {"kineto-hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", DTP_FORMAT_KINETO},
        {"kineto-hta/call_stack__backward_thread.json", DTP_FORMAT_KINETO},
        {"kineto-hta/execution_trace__benchmark_simple_add_et.json.gz", DTP_FORMAT_PYTORCH_ET},
        {"et", DTP_FORMAT_PYTORCH_ET},
        {"chakra/feeder_tests_trace.tar.gz", DTP_FORMAT_CHAKRA},
        {"chakra/json_trace.tar.gz", DTP_FORMAT_CHAKRA_JSON},
        {"chakra/1.0.2-chakra.0.0.4.tgz", DTP_FORMAT_PYTORCH_ET},
        {"astra-sim/et", DTP_FORMAT_CHAKRA},
        {"astra-sim/v1", DTP_FORMAT_WORKLOAD},
        {"simai/workload_analytical.txt", DTP_FORMAT_WORKLOAD},
        {"simai/microAllReduce.txt", DTP_FORMAT_WORKLOAD},
        {"simai/aicb__all_reduce.txt", DTP_FORMAT_WORKLOAD},
        {"simai/aicb__L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", DTP_FORMAT_AICB},
        {"megatron/gpt3_7b_tp1_pp4_memory_speed__golden_h100.json", DTP_FORMAT_GOLDEN},
        {"nccl-tests", DTP_FORMAT_LOG},
        {"synthetic/mini_nsys.sqlite", DTP_FORMAT_NSYS},
        {"synthetic/mini_timeline.json", DTP_FORMAT_KINETO},
        {"cluster/philly__cluster_job_log.readme-row.json", DTP_FORMAT_PHILLY},
        {"cluster/helios__cluster_log.readme-rows.csv", DTP_FORMAT_JOBS_CSV},
        {"cluster/acme__trace_kalos.readme-rows.csv", DTP_FORMAT_JOBS_CSV},
        {"cluster/acme__trace_seren.readme-rows.csv", DTP_FORMAT_JOBS_CSV},
        {"cluster/pai2020__minibatch_job_1_norm.csv", DTP_FORMAT_PAI_ITERATIONS},
        {"bad/13_astra_v1_layer_count_mismatch.txt", DTP_FORMAT_WORKLOAD},
        {"bad/27_real_aicb_declares_839_has_33.txt", DTP_FORMAT_WORKLOAD},
        {"bad/14_trailing_garbage_and_bare_array.json", DTP_FORMAT_KINETO},
        {"bad/15_deep_nesting.json", DTP_FORMAT_KINETO},
        {"bad/19_chakra_cycle.et", DTP_FORMAT_CHAKRA},
        {"bad/21_chakra_truncated_frame.et", DTP_FORMAT_CHAKRA},
        {"bad/26_nan_golden.json", DTP_FORMAT_GOLDEN}};
    const char *folder = dtp_arena_printf(arena, "%s/../shared/traces", DTP_SOURCE_DIR);
    if (access(folder, R_OK) != 0) {
        printf("skipped: the samples of ../shared/traces, which are missing\n");
        return;
    }
    check(folder, expected, sizeof expected / sizeof *expected);
}

static void seeds(void) {
    static const struct expected expected[] = {{"fuzz_jobs/acme.csv", DTP_FORMAT_JOBS_CSV},
                                               {"fuzz_jobs/pai_task.csv", DTP_FORMAT_JOBS_CSV},
                                               {"fuzz_jobs/pai_job.csv", DTP_FORMAT_JOBS_CSV},
                                               {"fuzz_jobs/philly.json", DTP_FORMAT_PHILLY},
                                               {"fuzz_aicb", DTP_FORMAT_AICB},
                                               {"fuzz_et/attrs.json", DTP_FORMAT_PYTORCH_ET},
                                               {"fuzz_et/flat.json", DTP_FORMAT_PYTORCH_ET},
                                               {"fuzz_chakra_json", DTP_FORMAT_CHAKRA_JSON},
                                               {"fuzz_events", DTP_FORMAT_TENSORBOARD},
                                               {"fuzz_golden", DTP_FORMAT_GOLDEN},
                                               {"fuzz_logs", DTP_FORMAT_LOG},
                                               {"fuzz_nsys", DTP_FORMAT_NSYS},
                                               {"fuzz_topology", DTP_FORMAT_TOPOLOGY},
                                               {"fuzz_workload", DTP_FORMAT_WORKLOAD}};
    check(dtp_arena_printf(arena, "%s/tests/fuzz/corpus", DTP_SOURCE_DIR), expected,
          sizeof expected / sizeof *expected);
}

/* A byte order mark in front of text, as Windows writes it, changes nothing. */
static void marked(void) {
    static const char text[] = "\xef\xbb\xbf{\"schemaVersion\": 1, \"traceEvents\": []}";
    struct dtp_source *s;
    struct dtp_err err = {0};
    enum dtp_format found;
    char all[sizeof text];
    size_t n;
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "x", text, sizeof text - 1, &s, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_format_detect(s, &found, &err), DTP_OK);
    CU_ASSERT_EQUAL(found, DTP_FORMAT_KINETO);
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
        enum dtp_format found;
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
