/* PyTorch execution traces and Chakra graphs in JSON: the samples of ../shared/traces give facts.json. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/comm_sums.h"
#include "tests/facts_case.h"
#include "traces/formats/chakra.h"
#include "traces/formats/et.h"

static struct dtp_arena *arena;
static cJSON *facts;               /* NULL where ../shared is missing */
static struct dtp_source *archive; /* that an open member lies in */

/* The file, or the member of the archive that ends in `member`. */
static struct dtp_source *open_sample(const char *path, const char *member) {
    struct dtp_source *s, *m = NULL;
    struct dtp_err err = {0};
    enum dtp_status status = dtp_source_open(arena, path, &s, &err);
    while (status == DTP_OK && member &&
           (!m || !strstr(dtp_source_name(m), member) || strstr(dtp_source_name(m), "._"))) {
        dtp_source_close(m);
        status = dtp_source_tar_next(arena, s, &m, &err);
        if (!m)
            break;
    }
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    archive = m ? s : NULL;
    return m ? m : s;
}

static void close_sample(struct dtp_source *s) {
    dtp_source_close(s);
    dtp_source_close(archive);
    archive = NULL;
}

static void read_et(const char *path, const char *member, struct dtp_et *et) {
    struct dtp_err err = {0};
    struct dtp_source *s = open_sample(path, member);
    enum dtp_status status = dtp_et_read(arena, s, et, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    close_sample(s);
}

/* facts.json takes names and bytes from attributes alone where the schema has attributes. */
static const char *fact_name(const struct dtp_et *et, const struct dtp_et_comm *c) {
    return et->flat || c->stated ? c->collective : "?";
}

static double fact_bytes(const struct dtp_et *et, const struct dtp_et_comm *c) {
    return et->flat || c->stated ? (double)c->in_bytes : 0;
}

static void check_comms(const struct dtp_et *et, const cJSON *fact) {
    const cJSON *c;
    double all = 0;
    cJSON_ArrayForEach(c, item(fact, "record_param_comms")) {
        double n = 0, bytes = 0;
        for (uint32_t i = 0; i < et->ncomms; i++)
            if (strcmp(fact_name(et, &et->comm[i]), c->string) == 0) {
                n++;
                bytes += fact_bytes(et, &et->comm[i]);
            }
        CU_ASSERT_DOUBLE_EQUAL(n, number(c, "count"), 0);
        CU_ASSERT_DOUBLE_EQUAL(bytes, number(c, "in_bytes"), 0);
        all += n;
    }
    CU_ASSERT_DOUBLE_EQUAL(all, et->ncomms, 0);
    uint32_t at = 0;
    cJSON_ArrayForEach(c, item(fact, "comm_sequence")) {
        while (at < et->ncomms && strcmp(fact_name(et, &et->comm[at]), "wait") == 0)
            at++;
        CU_ASSERT_TRUE_FATAL(at < et->ncomms);
        const struct dtp_et_comm *comm = &et->comm[at++];
        CU_ASSERT_DOUBLE_EQUAL((double)comm->node, cJSON_GetArrayItem(c, 0)->valuedouble, 0);
        CU_ASSERT_STRING_EQUAL(fact_name(et, comm), cJSON_GetArrayItem(c, 1)->valuestring);
        CU_ASSERT_DOUBLE_EQUAL(fact_bytes(et, comm), cJSON_GetArrayItem(c, 2)->valuedouble, 0);
    }
    cJSON_ArrayForEach(c, item(fact, "process_groups")) {
        double n = 0;
        for (uint32_t i = 0; i < et->ncomms; i++) {
            const char *key = dtp_arena_printf(arena, "('%s', %lld)", et->comm[i].group,
                                               (long long)et->comm[i].group_size);
            n += strcmp(key, c->string) == 0;
        }
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
    }
}

static void check_et(const char *path, const char *member, const char *key) {
    struct dtp_et et;
    const cJSON *fact = item(item(facts, "other"), key), *c;
    const struct dtp_et_count *ops;
    size_t nops;
    CU_ASSERT_PTR_NOT_NULL_FATAL(fact);
    read_et(path, member, &et);
    CU_ASSERT_STRING_EQUAL(et.schema, string(fact, "schema"));
    CU_ASSERT_STRING_EQUAL(et.time, string(fact, "time"));
    CU_ASSERT_EQUAL(et.flat, strcmp(string(fact, "layout"), "flat(1.0.x)") == 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.pid, number(fact, "pid"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.start_ts, number(fact, "start_ts"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.finish_ts, number(fact, "finish_ts"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.nnodes, number(fact, "n_nodes"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.duplicate_ids, number(fact, "duplicate_ids"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.missing_parents, number(fact, "missing_parents"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)et.self_parents, number(fact, "self_parent"), 0);
    check_comms(&et, fact);
    dtp_et_ops(arena, &et, &ops, &nops);
    cJSON_ArrayForEach(c, item(fact, "top_ops")) {
        double n = 0;
        for (size_t i = 0; i < nops; i++)
            n += strcmp(ops[i].name, c->string) == 0 ? (double)ops[i].count : 0;
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
    }
}

static void et_samples(void) {
    if (!facts)
        return;
    const char *dlrm = facts_path(arena, "kineto-dlrm-8rank/dlrm_pytorch_et.tar.gz");
    for (int rank = 0; rank < 8; rank++) {
        const char *member = dtp_arena_printf(arena, "dlrm_eg_%d.json", rank);
        check_et(dlrm, member, dtp_arena_printf(arena, "dlrm_pytorch_et.tar.gz:%s", member));
    }
    static const char *const files[] = {"1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz",
                                        "linear_et.json.gz", "pt2_et.json.gz"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_et(facts_path(arena, dtp_arena_printf(arena, "et/%s", files[i])), NULL, files[i]);
    check_et(facts_path(arena, "chakra/1.0.2-chakra.0.0.4.tgz"), "1.0.2-chakra.0.0.4.json",
             "1.0.2-chakra.0.0.4.tgz:1.0.2-chakra.0.0.4.json");
}

/* Rank 0 of DLRM: what its fourth collective sends to each rank, and receives. */
static void splits(void) {
    static const int64_t sent[] = {96, 224, 288, 1664, 592, 96, 192, 240};
    struct dtp_et et;
    if (!facts)
        return;
    read_et(facts_path(arena, "kineto-dlrm-8rank/dlrm_pytorch_et.tar.gz"), "dlrm_eg_0.json", &et);
    const struct dtp_et_comm *c = NULL;
    for (uint32_t i = 0; i < et.ncomms; i++)
        if (et.comm[i].in_bytes == 13568)
            c = &et.comm[i];
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    if (!c)
        return;
    CU_ASSERT_EQUAL_FATAL(c->nin_split, 8);
    CU_ASSERT_EQUAL_FATAL(c->nout_split, 8);
    for (int i = 0; i < 8; i++) {
        CU_ASSERT_EQUAL(c->in_split[i], sent[i]);
        CU_ASSERT_EQUAL(c->out_split[i], 96);
    }
}

static double et_bytes(const struct dtp_et *et, const char *collective, double *out_n) {
    double bytes = 0;
    *out_n = 0;
    for (uint32_t i = 0; i < et->ncomms; i++)
        if (strcmp(et->comm[i].collective, collective) == 0) {
            bytes += (double)et->comm[i].in_bytes;
            ++*out_n;
        }
    return bytes;
}

static double kineto_bytes(const struct dtp_trace_rank *r, const char *collective) {
    const struct comm_sum *v;
    size_t n;
    double bytes = 0;
    comm_sums(arena, r, false, &v, &n);
    for (size_t i = 0; i < n; i++)
        bytes += strcmp(v[i].key, collective) == 0 ? (double)v[i].in_bytes : 0;
    return bytes;
}

/* ResNet-50 on two GPUs as an execution trace, a Kineto trace and a Chakra graph: the same bytes in an
 * iteration, of which the first two hold three. */
static void one_job_three_formats(void) {
    static const double reduced = 102228128, broadcast = 212904;
    struct dtp_et et;
    struct dtp_trace t;
    struct dtp_chakra g;
    struct dtp_err err = {0};
    double n, graph[2] = {0};
    if (!facts)
        return;
    read_et(facts_path(arena, "et/1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz"), NULL, &et);
    CU_ASSERT_DOUBLE_EQUAL(et_bytes(&et, "allreduce", &n), 3 * reduced, 0);
    CU_ASSERT_DOUBLE_EQUAL(et_bytes(&et, "broadcast", &n), 3 * broadcast, 0);
    const char *path = facts_path(arena, "kineto-hta/nccl_parser_config__nccl_data.json.gz");
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, &path, 1, NULL, &t, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(kineto_bytes(&t.rank[0], "allreduce"), 3 * reduced, 0);
    CU_ASSERT_DOUBLE_EQUAL(kineto_bytes(&t.rank[0], "broadcast"), 3 * broadcast, 0);
    struct dtp_source *s =
        open_sample(facts_path(arena, "chakra/feeder_tests_trace.tar.gz"), "chakra.0.et");
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_read(arena, s, &g, &err), DTP_OK);
    close_sample(s);
    for (uint32_t i = 0; i < g.nnodes; i++)
        if (g.node[i].type == DTP_CHAKRA_COLL && g.node[i].comm_type >= 0)
            graph[g.node[i].comm_type > 0] += (double)g.node[i].comm_bytes;
    CU_ASSERT_DOUBLE_EQUAL(graph[0], reduced, 0);
    CU_ASSERT_DOUBLE_EQUAL(graph[1], broadcast, 0);
}

/* DLRM on eight GPUs: every rank's execution trace and Kineto trace move the same bytes. */
static void two_formats_of_eight_ranks(void) {
    struct dtp_trace t;
    struct dtp_err err = {0};
    double n[4];
    if (!facts)
        return;
    const char *path = facts_path(arena, "kineto-dlrm-8rank/dlrm_kineto.tar.gz");
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, &path, 1, NULL, &t, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(t.nranks, 8);
    for (int rank = 0; rank < 8; rank++) {
        struct dtp_et et;
        double kernels = 0;
        read_et(facts_path(arena, "kineto-dlrm-8rank/dlrm_pytorch_et.tar.gz"),
                dtp_arena_printf(arena, "dlrm_eg_%d.json", rank), &et);
        CU_ASSERT_DOUBLE_EQUAL(et_bytes(&et, "allreduce", &n[0]), 2485252, 0);
        CU_ASSERT_DOUBLE_EQUAL(
            et_bytes(&et, "all_to_allv", &n[1]) + et_bytes(&et, "all_to_all", &n[2]), 64448, 0);
        for (size_t i = 0; i < t.rank[rank].nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(&t.rank[rank], i);
            kernels += dtp_trace_is_work(e) && e->class == DTP_CLASS_COMM;
        }
        CU_ASSERT_DOUBLE_EQUAL(n[0] + n[1] + n[2], kernels, 0);
    }
}

static const char *corpus(const char *file) {
    return dtp_arena_printf(arena, "%s/tests/fuzz/corpus/%s", DTP_SOURCE_DIR, file);
}

static void by_hand(void) {
    struct dtp_et et;
    read_et(corpus("fuzz_et/flat.json"), NULL, &et);
    CU_ASSERT_EQUAL(et.nnodes, 4);
    CU_ASSERT_EQUAL(et.duplicate_ids, 1);
    CU_ASSERT_EQUAL(et.missing_parents, 1);
    CU_ASSERT_EQUAL_FATAL(et.ncomms, 2);
    CU_ASSERT_EQUAL(et.comm[0].in_bytes, 26); /* two tensors of two bytes an element */
    CU_ASSERT_EQUAL(et.comm[1].in_bytes, 24);
    CU_ASSERT_EQUAL(et.comm[1].nin_split, 3);
    CU_ASSERT_EQUAL(et.comm[1].in_split[2], 3);
    read_et(corpus("fuzz_et/attrs.json"), NULL, &et);
    CU_ASSERT_FALSE(et.flat);
    CU_ASSERT_EQUAL_FATAL(et.ncomms, 2);
    CU_ASSERT_STRING_EQUAL(et.comm[0].collective, "_allgather_base");
    CU_ASSERT_STRING_EQUAL(et.comm[0].group, "0");
    CU_ASSERT_EQUAL(et.comm[0].in_bytes, 8);
    CU_ASSERT_EQUAL(et.comm[0].out_elements, 8);
    CU_ASSERT_EQUAL(et.comm[0].nin_split, 2);
    CU_ASSERT_EQUAL(et.node[1].thread, 3);
    CU_ASSERT_STRING_EQUAL(et.comm[1].collective,
                           "all_gather"); /* no attributes: from the inputs */
    CU_ASSERT_FALSE(et.comm[1].stated);
    CU_ASSERT_EQUAL(et.comm[1].out_elements, 2);
    struct dtp_err err = {0};
    struct dtp_source *s = open_sample(corpus("fuzz_et/no_comma.json"), NULL);
    CU_ASSERT_EQUAL(dtp_et_read(arena, s, &et, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "byte"));
    close_sample(s);
}

/* ---- Chakra in JSON ---- */

static enum dtp_status read_json(const char *path, const char *member, struct dtp_chakra *g,
                                 struct dtp_err *err) {
    struct dtp_source *s = open_sample(path, member);
    *err = (struct dtp_err){0};
    enum dtp_status status = dtp_chakra_read_json(arena, s, g, err);
    close_sample(s);
    return status;
}

/* The archive holds the graph of chakra.0.et, as JSON: the same nodes, times and dependencies. */
static void json_samples(void) {
    struct dtp_chakra small, large, twin;
    struct dtp_err err;
    if (!facts)
        return;
    const char *path = facts_path(arena, "chakra/json_trace.tar.gz");
    CU_ASSERT_EQUAL_FATAL(read_json(path, "small_chakra.0.json", &small, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(
        small.nnodes,
        number(item(item(facts, "other"), "json_trace.tar.gz:small_chakra.0.json"), "n_nodes"), 0);
    CU_ASSERT_STRING_EQUAL(small.workload, "workload_name");
    CU_ASSERT_STRING_EQUAL(small.soc, "soc_name");
    CU_ASSERT_EQUAL(small.ngpus, 8);
    CU_ASSERT_EQUAL(small.node[0].nctrl, 1);
    CU_ASSERT_EQUAL_FATAL(read_json(path, "/chakra.0.json", &large, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(
        large.nnodes,
        number(item(item(facts, "other"), "json_trace.tar.gz:chakra.0.json"), "n_nodes"), 0);
    struct dtp_source *s =
        open_sample(facts_path(arena, "chakra/feeder_tests_trace.tar.gz"), "chakra.0.et");
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_read(arena, s, &twin, &err), DTP_OK);
    close_sample(s);
    double data[2] = {0}, dur_us[2] = {0}, coll[2] = {0};
    const struct dtp_chakra *g[2] = {&large, &twin};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < g[k]->nnodes; i++) {
            data[k] += g[k]->node[i].ndata;
            dur_us[k] += (double)g[k]->node[i].dur_us;
            coll[k] += g[k]->node[i].type == DTP_CHAKRA_COLL;
        }
    CU_ASSERT_EQUAL(large.nnodes, twin.nnodes);
    CU_ASSERT_DOUBLE_EQUAL(coll[0], coll[1], 0);
    CU_ASSERT_DOUBLE_EQUAL(dur_us[0], dur_us[1], 0);
    CU_ASSERT_DOUBLE_EQUAL(data[0], data[1], 0);
}

static void json_by_hand(void) {
    struct dtp_chakra g;
    struct dtp_err err;
    CU_ASSERT_EQUAL_FATAL(read_json(corpus("fuzz_chakra_json/small.json"), NULL, &g, &err), DTP_OK);
    CU_ASSERT_EQUAL(g.node[1].comm_type, 2);
    CU_ASSERT_EQUAL(g.node[1].comm_bytes, 1024);
    CU_ASSERT_STRING_EQUAL(g.node[1].group, "tp");
    CU_ASSERT_EQUAL(g.ndangling, 0);
    CU_ASSERT_EQUAL(read_json(corpus("fuzz_chakra_json/cycle.json"), NULL, &g, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "cycle"));
}

int main(void) {
    CU_TestInfo tests[] = {{"execution traces give facts.json", et_samples},
                           {"the splits of an all-to-all", splits},
                           {"one job in three formats", one_job_three_formats},
                           {"eight ranks in two formats", two_formats_of_eight_ranks},
                           {"execution traces by hand", by_hand},
                           {"Chakra in JSON is its protobuf twin", json_samples},
                           {"Chakra in JSON by hand", json_by_hand},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"execution traces", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_facts_suites(suites, &arena, &facts);
}
