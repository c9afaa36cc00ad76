/* Readers of graphs, workloads and logs: samples of ../shared/traces give facts.json, malformed files are
 * refused, what is written reads back. */
#include <CUnit/Basic.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/aicb.h"
#include "traces/chakra.h"
#include "traces/logs.h"
#include "traces/workload.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const char *folder;
static cJSON *facts; /* NULL where ../shared is missing */

static const cJSON *item(const cJSON *j, const char *key) {
    return j ? cJSON_GetObjectItemCaseSensitive(j, key) : NULL;
}

static double number(const cJSON *j, const char *key) {
    const cJSON *v = item(j, key);
    return v && cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
}

static const char *string(const cJSON *j, const char *key) {
    const cJSON *v = item(j, key);
    return v && cJSON_IsString(v) ? v->valuestring : "";
}

static const char *shared(const char *file) {
    return dtp_arena_printf(arena, "%s/%s", folder, file);
}

/* ---- Chakra ---- */

static enum dtp_status read_graph(const char *path, const char *member, struct dtp_chakra *g,
                                  struct dtp_err *err) {
    struct dtp_source *s, *m = NULL;
    *err = (struct dtp_err){0};
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = DTP_OK;
    while (member && (status = dtp_source_tar_next(arena, s, &m, err)) == DTP_OK && m &&
           !strstr(dtp_source_name(m), member))
        dtp_source_close(m);
    if (status == DTP_OK)
        status = dtp_chakra_read(arena, m ? m : s, g, err);
    dtp_source_close(m);
    dtp_source_close(s);
    return status;
}

static void check_nodes(const struct dtp_chakra *g, const cJSON *fact) {
    const cJSON *c;
    CU_ASSERT_DOUBLE_EQUAL((double)g->nmessages, number(fact, "n_messages"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)g->ndangling, number(fact, "dangling_deps"), 0);
    CU_ASSERT_STRING_EQUAL(g->version, string(fact, "version"));
    double nctrl = 0, ndata = 0;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        nctrl += g->node[i].nctrl;
        ndata += g->node[i].ndata;
    }
    CU_ASSERT_DOUBLE_EQUAL(nctrl, number(fact, "ctrl_deps"), 0);
    CU_ASSERT_DOUBLE_EQUAL(ndata, number(fact, "data_deps"), 0);
    cJSON_ArrayForEach(c, item(fact, "attr_names")) {
        uint32_t name = dtp_intern_add(g->attr, c->string, strlen(c->string));
        double n = name < g->attr_capacity ? (double)g->attr_count[name] : 0;
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
    }
    cJSON_ArrayForEach(c, item(fact, "node_types")) {
        double n = 0, dur = 0;
        for (uint32_t i = 0; i < g->nnodes; i++)
            if (strcmp(dtp_chakra_type_name[g->node[i].type], c->string) == 0) {
                n++;
                dur += (double)g->node[i].dur_us;
            }
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
        CU_ASSERT_DOUBLE_EQUAL(dur, number(item(fact, "duration_micros_by_type"), c->string), 0);
    }
}

static void check_collectives(const struct dtp_chakra *g, const cJSON *fact) {
    const cJSON *c;
    cJSON_ArrayForEach(c, item(fact, "collectives")) {
        double n = 0, bytes = 0;
        for (uint32_t i = 0; i < g->nnodes; i++) {
            const struct dtp_chakra_node *node = &g->node[i];
            if (node->type < DTP_CHAKRA_SEND)
                continue;
            const char *kind = node->type != DTP_CHAKRA_COLL ? dtp_chakra_type_name[node->type]
                               : node->comm_type < 0         ? "None"
                                                     : dtp_chakra_comm_name[node->comm_type];
            if (strcmp(kind, c->string) == 0) {
                n++;
                bytes += (double)node->comm_bytes;
            }
        }
        CU_ASSERT_DOUBLE_EQUAL(n, number(c, "count"), 0);
        CU_ASSERT_DOUBLE_EQUAL(bytes, number(c, "bytes"), 0);
    }
}

static void chakra_samples(void) {
    static const struct {
        const char *path, *member, *key;
    } cases[] = {{"chakra/feeder_tests_trace.tar.gz", "chakra.0.et",
                  "feeder_tests_trace.tar.gz:chakra.0.et"},
                 {"astra-sim/et/4npus_1MB__all_to_all.0.et", NULL, "4npus_1MB__all_to_all.0.et"},
                 {"astra-sim/et/8npus_1MB__all_reduce.0.et", NULL, "8npus_1MB__all_reduce.0.et"},
                 {"astra-sim/et/custom_ring_allreduce_8npus_1MB.0.et", NULL,
                  "custom_ring_allreduce_8npus_1MB.0.et"}};
    for (size_t i = 0; facts && i < sizeof cases / sizeof *cases; i++) {
        struct dtp_chakra g;
        struct dtp_err err;
        const cJSON *fact = item(item(facts, "other"), cases[i].key);
        enum dtp_status status = read_graph(shared(cases[i].path), cases[i].member, &g, &err);
        if (status != DTP_OK)
            printf("\n  %s", err.msg);
        CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(fact);
        check_nodes(&g, fact);
        check_collectives(&g, fact);
    }
}

static void chakra_malformed(void) {
    static const struct {
        const char *file, *says;
    } cases[] = {{"19_chakra_cycle.et", "2 nodes depend on each other in a cycle"},
                 {"20_chakra_dangling_dup_id.et", "node 1 is there twice"},
                 {"21_chakra_truncated_frame.et", "message 1 is cut"},
                 {"22_huge_length.et", "claims"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_chakra g;
        struct dtp_err err;
        const char *path = dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_chakra/%s",
                                            DTP_SOURCE_DIR, cases[i].file);
        CU_ASSERT_EQUAL(read_graph(path, NULL, &g, &err), DTP_EINPUT);
        if (!strstr(err.msg, cases[i].says))
            printf("\n  %s", err.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].says));
    }
}

static void expect_same(const struct dtp_chakra_node *p, const struct dtp_chakra_node *q) {
    CU_ASSERT(p->id == q->id && p->type == q->type && p->dur_us == q->dur_us &&
              p->start_us == q->start_us && p->comm_type == q->comm_type &&
              p->comm_bytes == q->comm_bytes && p->comm_src == q->comm_src &&
              p->comm_dst == q->comm_dst && p->comm_tag == q->comm_tag &&
              p->is_cpu_op == q->is_cpu_op && p->nctrl == q->nctrl && p->ndata == q->ndata);
    CU_ASSERT_STRING_EQUAL(p->name, q->name);
    CU_ASSERT_STRING_EQUAL(p->group, q->group);
}

static void chakra_written(void) {
    static uint64_t dep[] = {7, 0, 7, UINT64_MAX};
    struct dtp_chakra_node node[] = {{.id = 0,
                                      .name = "load",
                                      .group = "",
                                      .type = DTP_CHAKRA_MEM_LOAD,
                                      .comm_type = -1,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .dur_us = 3},
                                     {.id = 7,
                                      .name = "gemm",
                                      .group = "",
                                      .type = DTP_CHAKRA_COMP,
                                      .comm_type = -1,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .start_us = 1ull << 40,
                                      .dur_us = 300},
                                     {.id = UINT64_MAX,
                                      .name = "all-reduce",
                                      .group = "dp",
                                      .type = DTP_CHAKRA_COLL,
                                      .comm_type = 0,
                                      .comm_bytes = 1ull << 33,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .first_dep = 0,
                                      .nctrl = 1,
                                      .ndata = 1},
                                     {.id = 9,
                                      .name = "send",
                                      .group = "",
                                      .type = DTP_CHAKRA_SEND,
                                      .comm_type = -1,
                                      .comm_bytes = 5,
                                      .comm_src = 0,
                                      .comm_dst = 1,
                                      .comm_tag = 4,
                                      .is_cpu_op = true,
                                      .first_dep = 2,
                                      .ndata = 2}};
    struct dtp_chakra g = {.version = "0.0.4", .node = node, .nnodes = 4, .dep = dep, .ndeps = 4},
                      back;
    char *bytes = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&bytes, &n);
    struct dtp_source *s;
    struct dtp_err err = {0};
    dtp_chakra_write(f, &g);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "written", bytes, n, &s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_read(arena, s, &back, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(back.nnodes, 4);
    CU_ASSERT_STRING_EQUAL(back.version, "0.0.4");
    for (uint32_t i = 0; i < 4; i++)
        expect_same(&node[i], &back.node[i]);
    free(bytes);
}

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
        dtp_workload_sum(&w, c->string, &count, &bytes);
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
        check_workload(shared(cases[i].path), item(item(facts, "other"), cases[i].key));
    if (!facts)
        return;
    static const char *const bad[][2] = {
        {"bad/13_astra_v1_layer_count_mismatch.txt", "line 2 says 54 layers, the file has"},
        {"bad/27_real_aicb_declares_839_has_33.txt", "line 2 says 839 layers, the file has 33"}};
    for (int i = 0; i < 2; i++) {
        struct dtp_workload w;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL(read_workload(shared(bad[i][0]), DTP_NANO, &w, &err), DTP_EINPUT);
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
        read_aicb(shared(dtp_arena_printf(arena, "simai/%s", file)), DTP_NANO, &w, &err), DTP_OK);
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
    CU_ASSERT_STRING_EQUAL(row->redop, string(fact, "op"));
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
        read_log(shared(dtp_arena_printf(arena, "nccl-tests/%s", fact->string)), &log);
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
        if (cJSON_IsNumber(item(fact, "avg_stated")))
            CU_ASSERT_DOUBLE_EQUAL(log.nccl.stated_average_bytes_per_s / DTP_GIGA,
                                   number(fact, "avg_stated"), 1e-9);
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

static void load_facts(void) {
    const char *text;
    size_t n;
    folder = dtp_arena_printf(arena, "%s/../shared/traces", DTP_SOURCE_DIR);
    if (dtp_file_read(arena, shared("facts.json"), 0, &text, &n, NULL) != DTP_OK) {
        printf("skipped: the samples of ../shared/traces, which are missing\n");
        return;
    }
    char *copy = dtp_arena_strndup(arena, text, n);
    for (char *at = copy; (at = strstr(at, ": NaN"));)
        memcpy(at, ":null", 5);
    facts = cJSON_Parse(copy);
}

int main(void) {
    CU_TestInfo tests[] = {{"Chakra samples give facts.json", chakra_samples},
                           {"malformed graphs are refused", chakra_malformed},
                           {"a written graph reads back", chakra_written},
                           {"workload samples give facts.json", workload_samples},
                           {"the unit of a workload is the caller's", workload_unit},
                           {"AICB samples give facts.json", aicb_samples},
                           {"AICB by hand", aicb_by_hand},
                           {"nccl-tests samples give facts.json", nccl_samples},
                           {"nccl-tests by hand", logs_by_hand},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"workloads", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    load_facts();
    int status = run_suites(suites);
    cJSON_Delete(facts);
    dtp_arena_destroy(arena);
    return status;
}
