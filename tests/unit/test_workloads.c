/* Readers of workloads and logs: samples of ../shared/traces give facts.json, malformed files are
 * refused, what is written reads back. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "tests/facts_case.h"
#include "traces/formats/aicb.h"
#include "traces/formats/logs.h"
#include "traces/formats/workload.h"

static struct dtp_arena *arena;
static cJSON *facts; /* NULL where ../shared is missing */

/* ---- ASTRA-sim, SimAI ---- */

static enum dtp_status read_workload(const char *path, double unit_s, struct dtp_workload *out,
                                     struct dtp_err *err) {
    struct dtp_source *s;
    *err = (struct dtp_err){0};
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = dtp_workload_read(arena, s, unit_s, out, err);
    dtp_source_close(s);
    return status;
}

static void sum_of(const struct dtp_workload *w, const char *collective, uint64_t *out_count,
                   uint64_t *out_bytes) {
    *out_count = *out_bytes = 0;
    for (size_t i = 0; i < w->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            if (strcmp(w->layer[i].phase[p].collective, collective) == 0) {
                ++*out_count;
                *out_bytes += w->layer[i].phase[p].bytes;
            }
}

static void check_workload(const char *path, const cJSON *fact) {
    struct dtp_workload w;
    struct dtp_err err = {0};
    const cJSON *c;
    enum dtp_status status = read_workload(path, DTP_NANO, &w, &err);
    double declared = number(fact, "declared_layers"), rows = number(fact, "rows");
    if (fabs(declared - rows) > 0) {
        CU_ASSERT_EQUAL(status, DTP_EINPUT);
        return;
    }
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL((double)w.nlayers, rows, 0);
    CU_ASSERT_STRING_EQUAL(w.policy, string(fact, "policy"));
    CU_ASSERT_STRING_EQUAL(w.header, string(fact, "header"));
    double update_s = 0;
    for (int p = 0; p < DTP_NPHASES; p++) {
        double sum_s = 0;
        for (size_t i = 0; i < w.nlayers; i++)
            sum_s += w.layer[i].phase[p].compute_s;
        const cJSON *sum = cJSON_GetArrayItem(item(fact, "compute_sum_fwd_ig_wg"), p);
        CU_ASSERT_DOUBLE_EQUAL(sum_s / DTP_NANO, sum ? sum->valuedouble : -1, 1e-3);
    }
    for (size_t i = 0; i < w.nlayers; i++)
        update_s += w.layer[i].update_s;
    CU_ASSERT_DOUBLE_EQUAL(update_s / DTP_NANO, number(fact, "wg_update_time_sum"), 1e-3);
    cJSON_ArrayForEach(c, item(fact, "collectives")) {
        uint64_t count, bytes;
        sum_of(&w, c->string, &count, &bytes);
        CU_ASSERT_DOUBLE_EQUAL((double)count, number(c, "count"), 0);
        CU_ASSERT_DOUBLE_EQUAL((double)bytes, number(c, "bytes"), 0);
    }
}

static void workload_samples(void) {
    static const struct {
        const char *path, *key;
    } cases[] = {
        {"astra-sim/v1/DLRM_HybridParallel.txt", "DLRM_HybridParallel.txt"},
        {"astra-sim/v1/MLP_HybridParallel_Data_Model.txt", "MLP_HybridParallel_Data_Model.txt"},
        {"astra-sim/v1/microAllReduce.txt", "microAllReduce.txt"},
        {"simai/microAllReduce.txt", "microAllReduce.txt#2"},
        {"simai/workload_analytical.txt", "workload_analytical.txt"},
        {"simai/aicb__G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt",
         "aicb__G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt"},
        {"simai/aicb__L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt",
         "aicb__L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt"},
        {"simai/aicb__L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt",
         "aicb__L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt"},
        {"simai/aicb__all_reduce.txt", "aicb__all_reduce.txt"}};
    for (size_t i = 0; facts && i < sizeof cases / sizeof *cases; i++)
        check_workload(facts_path(arena, cases[i].path), item(item(facts, "other"), cases[i].key));
    if (!facts)
        return;
    static const char *const bad[][2] = {
        {"bad/13_astra_v1_layer_count_mismatch.txt", "line 2 says 54 layers, the file has"},
        {"bad/27_real_aicb_declares_839_has_33.txt", "line 2 says 839 layers, the file has 33"}};
    for (int i = 0; i < 2; i++) {
        struct dtp_workload w;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL(read_workload(facts_path(arena, bad[i][0]), DTP_NANO, &w, &err),
                        DTP_EINPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, bad[i][1]));
    }
}

/* Two layers by hand; the unit is the caller's. */
static void workload_unit(void) {
    const char *path =
        dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_workload/two.txt", DTP_SOURCE_DIR);
    struct dtp_workload w;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(read_workload(path, DTP_MICRO, &w, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(w.nlayers, 2);
    CU_ASSERT_STRING_EQUAL(w.header, "tp: 2");
    CU_ASSERT_DOUBLE_EQUAL(w.layer[0].phase[DTP_PHASE_WEIGHT_GRADIENT].compute_s, 7e-6, 1e-18);
    CU_ASSERT_STRING_EQUAL(w.layer[0].phase[DTP_PHASE_WEIGHT_GRADIENT].collective, "ALLTOALL_EP");
    CU_ASSERT_EQUAL(w.layer[0].phase[DTP_PHASE_FORWARD].bytes, 1024);
}

/* ---- AICB ---- */

static enum dtp_status read_aicb(const char *path, double unit_s, struct dtp_aicb *out,
                                 struct dtp_err *err) {
    struct dtp_source *s;
    *err = (struct dtp_err){0};
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = dtp_aicb_read(arena, s, unit_s, out, err);
    dtp_source_close(s);
    return status;
}

static void aicb_samples(void) {
    static const char file[] = "aicb__L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv";
    struct dtp_aicb w;
    struct dtp_err err;
    const cJSON *fact = item(item(facts, "other"), file), *c;
    if (!facts)
        return;
    CU_ASSERT_EQUAL_FATAL(
        read_aicb(facts_path(arena, dtp_arena_printf(arena, "simai/%s", file)), DTP_NANO, &w, &err),
        DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL((double)w.n, number(fact, "rows"), 0);
    CU_ASSERT_STRING_EQUAL(dtp_arena_printf(arena, "[%s]", w.preamble),
                           cJSON_GetArrayItem(item(fact, "preamble"), 0)->valuestring);
    cJSON_ArrayForEach(c, item(fact, "by_type_group")) {
        double n = 0, bytes = 0;
        for (size_t i = 0; i < w.n; i++) {
            const struct dtp_aicb_row *row = &w.row[i];
            const char *group = strcmp(row->group, "None") == 0
                                    ? "None"
                                    : dtp_arena_printf(arena, "CommGroup.%s", row->group);
            if (strcmp(dtp_arena_printf(arena, "CommType.%s/%s", row->type, group), c->string))
                continue;
            n++;
            bytes += (double)row->bytes;
        }
        CU_ASSERT_DOUBLE_EQUAL(n, number(c, "count"), 0);
        CU_ASSERT_DOUBLE_EQUAL(bytes, number(c, "bytes"), 0);
    }
}

static void aicb_by_hand(void) {
    struct dtp_aicb w;
    struct dtp_err err;
    const char *at = dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_aicb", DTP_SOURCE_DIR);
    CU_ASSERT_EQUAL_FATAL(
        read_aicb(dtp_arena_printf(arena, "%s/good.csv", at), DTP_MILLI, &w, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(w.n, 3);
    CU_ASSERT_DOUBLE_EQUAL(w.row[1].elapsed_s, 12.5e-3, 1e-15); /* the unit is the caller's */
    CU_ASSERT_DOUBLE_EQUAL(w.row[0].elapsed_s, -1, 0);
    CU_ASSERT_EQUAL(w.row[1].count, 2);
    CU_ASSERT_EQUAL(w.row[2].src, 0);
    CU_ASSERT_EQUAL(w.row[2].dst, -1);
    CU_ASSERT_EQUAL(read_aicb(dtp_arena_printf(arena, "%s/rows.csv", at), 1, &w, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "rows.csv:4: msg_size"));
}

/* ---- logs ---- */

static void check_nccl_row(const struct dtp_nccl_row *row, const cJSON *fact) {
    CU_ASSERT_DOUBLE_EQUAL((double)row->bytes, number(fact, "bytes"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)row->count, number(fact, "count"), 0);
    CU_ASSERT_STRING_EQUAL(row->type, string(fact, "dtype"));
    CU_ASSERT_DOUBLE_EQUAL(row->time_s[0] / DTP_MICRO, number(fact, "oop_us"), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(row->time_s[1] / DTP_MICRO, number(fact, "ip_us"), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(row->busbw_bytes_per_s[0] / DTP_GIGA, number(fact, "oop_busbw"), 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(row->busbw_bytes_per_s[1] / DTP_GIGA, number(fact, "ip_busbw"), 1e-9);
}

static void read_log(const char *path, struct dtp_log *out) {
    struct dtp_source *source;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_open(arena, path, &source, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_log_read(arena, source, out, &err), DTP_OK);
    dtp_source_close(source);
    CU_ASSERT_EQUAL(out->dialect, DTP_LOG_NCCL_TESTS);
}

static double largest_busbw(const struct dtp_nccl_log *log) {
    double most = 0;
    for (size_t i = 0; i < log->n; i++)
        if (log->row[i].busbw_bytes_per_s[0] > most)
            most = log->row[i].busbw_bytes_per_s[0];
    return most;
}

static void nccl_samples(void) {
    const cJSON *fact;
    cJSON_ArrayForEach(fact, item(facts, "nccl_tests")) {
        struct dtp_log log;
        double zero_rows = 0;
        read_log(facts_path(arena, dtp_arena_printf(arena, "nccl-tests/%s", fact->string)), &log);
        const struct dtp_nccl_row *last = &log.nccl.row[log.nccl.n - 1];
        CU_ASSERT_DOUBLE_EQUAL((double)log.nccl.n, number(fact, "rows"), 0);
        for (size_t i = 0; i < log.nccl.n; i++)
            zero_rows += log.nccl.row[i].bytes == 0;
        CU_ASSERT_DOUBLE_EQUAL(zero_rows, number(fact, "zero_byte_rows"), 0);
        check_nccl_row(&log.nccl.row[0], item(fact, "first"));
        check_nccl_row(last, item(fact, "last"));
        CU_ASSERT_DOUBLE_EQUAL((double)last->bytes / (double)last->count,
                               number(fact, "count_times_size"), 0);
        CU_ASSERT_DOUBLE_EQUAL(largest_busbw(&log.nccl) / DTP_GIGA, number(fact, "max_busbw"),
                               1e-9);
        CU_ASSERT_DOUBLE_EQUAL(dtp_nccl_log_average_bytes_per_s(&log.nccl) / DTP_GIGA,
                               number(fact, "avg_recomputed_from_rounded"), 1e-4);
        if (cJSON_IsNumber(item(fact, "avg_stated"))) /* average before the rows were rounded */
            CU_ASSERT_DOUBLE_EQUAL(dtp_nccl_log_average_bytes_per_s(&log.nccl) / DTP_GIGA,
                                   number(fact, "avg_stated"), 1e-2);
    }
}

/* A prefix of srun; an old table with N/A and mpirun's prefix. */
static void logs_by_hand(void) {
    struct dtp_log log;
    read_log(dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_logs/nccl.log", DTP_SOURCE_DIR),
             &log);
    CU_ASSERT_EQUAL_FATAL(log.nccl.n, 2);
    CU_ASSERT_DOUBLE_EQUAL(log.nccl.row[1].time_s[0], 20.5e-6, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(log.nccl.row[1].time_s[1], -1, 0);
    CU_ASSERT_DOUBLE_EQUAL(log.nccl.row[1].busbw_bytes_per_s[1], 0.09e9, 1e-3);
}

int main(void) {
    CU_TestInfo tests[] = {{"workload samples give facts.json", workload_samples},
                           {"the unit of a workload is the caller's", workload_unit},
                           {"AICB samples give facts.json", aicb_samples},
                           {"AICB by hand", aicb_by_hand},
                           {"nccl-tests samples give facts.json", nccl_samples},
                           {"nccl-tests by hand", logs_by_hand},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"workloads", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_facts_suites(suites, &arena, &facts);
}
